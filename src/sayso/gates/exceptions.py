"""The exceptions that a gate raises for its program, and their tracebacks.

    ConfirmationRequired            a person must decide first
    ConfirmationRejected            the call was refused
    ├── ConfirmationFeedback        sent back, with a message to the program
    ├── ConfirmationCancelled       the run is to end here
    ├── ConfirmationExpired         nobody decided in time, which counts as a refusal
    └── ConfirmationDenied          the gate's rule refused it; nobody was asked

They are `Exception`s and signals to the program, not faults. The first two and `ToolCall` keep their names and
attributes, for compatibility with the confirmation API. `except ConfirmationRejected` catches every refusal. Tracebacks
of these exceptions end at the program's own line, without the frames of sayso; errors of sayso itself keep theirs.
`__cause__` is never changed. `SAYSO_TRACEBACK=1` keeps all frames.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from sayso.errors import SaysoError, StoreError
from sayso.model.ids import is_random, new_request_id
from sayso.model.request import Call, Request, State, not_run
from sayso.view import line
from sayso.view.summary import short


class ToolCall(dict[str, Any]):
    """The call that waits: a dict with the keys `name`, `args` and `call_id`, so that it is JSON.

    Args:
        name: Name of the function.
        args: Its arguments by name: plain JSON values, with secrets masked if sayso created it.
        call_id: The model provider's id of the call; only a label.
    """

    def __init__(self, name: str, args: Mapping[str, Any], call_id: str | None = None) -> None:
        super().__init__(name=name, args=dict(args), call_id=call_id)

    @property
    def name(self) -> str:
        """Name of the function."""
        return self["name"]

    @property
    def args(self) -> dict[str, Any]:
        """Its arguments by name."""
        return self["args"]

    @property
    def call_id(self) -> str | None:
        """The model provider's id of the call."""
        return self["call_id"]

    def __reduce__(self) -> tuple[Any, ...]:
        return ToolCall, (self.name, self.args, self.call_id)

    def __repr__(self) -> str:
        return f"ToolCall(name={self.name!r}, args={self.args!r}, call_id={self.call_id!r})"


def _tool_call(given: Any) -> ToolCall | None:
    if given is None or isinstance(given, ToolCall):
        return given
    fields = cast("Mapping[str, Any]", given)
    return ToolCall(fields["name"], fields["args"], fields.get("call_id"))


def tool_call_of(request: Request) -> ToolCall | None:
    """Return the call of a request as people may see it; None for a question."""
    subject = request.subject
    return ToolCall(subject.name, subject.arguments) if isinstance(subject, Call) else None


class ConfirmationRequired(Exception):
    """A person must decide before the program can continue. The request waits in the store under `confirmation_id`.

    Args:
        question: The question to the person.
        confirmation_id: Id of the request; a new one by default.
        tool_call: The call that waits, if any; as it would run now, if a reviewer has changed it.
        context: What the raising module needs to resume; must be JSON values if it is serialised.
        fingerprint: Fingerprint of this call, which an approval of it names as `seen`.
    """

    question: str
    tool_call: ToolCall | None

    def __init__(
        self, question: str, *, confirmation_id: str | None = None, tool_call: ToolCall | None = None,
        context: dict[str, Any] | None = None, fingerprint: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(question)
        self.question = question
        self.confirmation_id = confirmation_id or new_request_id()
        self.tool_call = _tool_call(tool_call)
        self.context: dict[str, Any] = {} if context is None else context
        self.fingerprint = fingerprint

    @property
    def request_id(self) -> str:
        """Id of the request; also `approval_id`, `confirmation_id` and `id`."""
        return self.confirmation_id

    id = approval_id = request_id

    @classmethod
    def of(cls, request: Request) -> ConfirmationRequired:
        """Return the signal for a pending request; its texts are created when they are read."""
        signal = cls.__new__(cls)
        signal.__dict__ |= {
            "_request": request, "confirmation_id": request.id, "context": {},
            "fingerprint": request.current_fingerprint,
        }  # fmt: skip
        return signal

    if not TYPE_CHECKING:  # with `__getattr__` in view, a type checker would accept every misspelt name as Any

        def __getattr__(self, name: str) -> Any:
            request: Request | None = self.__dict__.get("_request")
            if request is not None and name == "__notes__":  # a traceback prints them below the question
                self.__notes__ = _how_to_go_on(request)  # kept, or `add_note` would add to a list that is lost
                return self.__notes__
            if request is None or name not in {"question", "tool_call"}:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            subject = request.subject
            if isinstance(subject, Call):
                call = request.effective
                # The program's texts describe the call as it was asked.
                asked = (request.prompt or request.summary) if request.edited is None else None
                self.question = asked or f"Confirm execution of {line(call.name, call.drawn)}?"
                self.tool_call = ToolCall(call.name, call.arguments)
            else:
                self.question, self.tool_call = subject.text, None
            self.args = (self.question,)
            return self.__dict__[name]

    def __str__(self) -> str:
        return self.question

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.question!r}, confirmation_id={self.confirmation_id!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a session or a database; JSON if `context` is."""
        return {
            "question": self.question,
            "confirmation_id": self.confirmation_id,
            "tool_call": None if self.tool_call is None else dict(self.tool_call),
            "context": self.context,
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> ConfirmationRequired:
        """Return what `to_dict` saved."""
        return cls(
            saved["question"],
            confirmation_id=saved["confirmation_id"],
            tool_call=_tool_call(saved.get("tool_call")),
            context=dict(saved.get("context") or {}),
            fingerprint=saved.get("fingerprint"),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfirmationRequired.from_dict, (self.to_dict(),)


class ConfirmationRejected(Exception):
    """A person rejected the call, as opposed to not having answered yet.

    Args:
        message: The reason, for the program and its model.
        confirmation_id: Id of the request; None if nobody was asked.
        tool_call: The call that does not run.
    """

    def __init__(self, message: str, *, confirmation_id: str | None = None, tool_call: ToolCall | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.confirmation_id = confirmation_id
        self.tool_call = _tool_call(tool_call)
        self._for_model: str | None = None

    @property
    def message_for_model(self) -> str:
        """The message to the model that asked: the reason, in a person's words, and whether it may try again."""
        if self._for_model is not None:
            return self._for_model
        name = "the call" if self.tool_call is None else self.tool_call.name
        return not_run(name, self.message, may_change=isinstance(self, ConfirmationFeedback))

    @property
    def request_id(self) -> str | None:
        """Id of the request, None if nobody was asked; also `approval_id`, `confirmation_id` and `id`."""
        return self.confirmation_id

    id = approval_id = request_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, self.confirmation_id, self.tool_call, self._for_model)


def _again(
    kind: type[ConfirmationRejected], message: str, confirmation_id: str | None, tool_call: ToolCall | None,
    for_model: str | None = None,
) -> ConfirmationRejected:  # fmt: skip
    signal = kind(message, confirmation_id=confirmation_id, tool_call=tool_call)
    signal._for_model = for_model  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return signal


def as_told_to_model(no: ConfirmationRejected) -> ConfirmationRejected:
    """Return the signal with `message_for_model` as its text, for frameworks that show the exception to a model."""
    return _again(type(no), no.message_for_model, no.confirmation_id, no.tool_call, no.message_for_model)


class ConfirmationFeedback(ConfirmationRejected):
    """The reviewer sent the call back; `message` is what the program should take into account."""


class ConfirmationCancelled(ConfirmationRejected):
    """The reviewer or the program itself ended the run at this request, or nobody waits for the call any more."""


class ConfirmationExpired(ConfirmationRejected):
    """Nobody answered in time, or the approval expired before the call was started. No answer counts as a rejection."""


class ConfirmationDenied(ConfirmationRejected):
    """The gate's rule denied this call; nobody was asked."""


def _how_to_go_on(request: Request) -> list[str]:
    name, verb = short(request.id), "approve" if request.kind == "call" else "answer"
    if request.state is State.APPROVED:
        return [
            f"nothing was run; the approval of {name} can still be undone. Make the same call later, in the same run"
        ]
    if is_random(request.run_id):
        return [
            f"nothing was run; only this process can use the decision on {name}, because its run has no name",
            'with sayso.run("a name"): around it, a new start would find the request and its decision',
        ]
    decide = f"Decide with `sayso {verb} {name}` where its store is, or in the inbox"
    return [f"nothing was run; {name} is pending. {decide}, then make the same call in the same run"]


_REFUSALS: dict[str, tuple[type[ConfirmationRejected], str]] = {
    "rejected": (ConfirmationRejected, "was rejected"),
    "feedback": (ConfirmationFeedback, "was sent back"),
    "cancelled": (ConfirmationCancelled, "was cancelled"),
    "expired": (ConfirmationExpired, "expired before anybody decided"),
}


def not_awaited(
    request: Request, reason: str, kind: type[ConfirmationRejected] = ConfirmationCancelled
) -> ConfirmationRejected:
    """Return the signal for a request that nobody waits for any more, or that was not decided while the call waited."""
    subject = request.subject
    what = f"the call {subject.name} did not run" if isinstance(subject, Call) else "no answer"
    return kind(f"{what}: {reason}", confirmation_id=request.id, tool_call=tool_call_of(request))


def refused(request: Request) -> ConfirmationRejected:
    """Return the signal for a request that was rejected or has expired."""
    kind, verb = _REFUSALS[request.state]
    subject, decision = request.subject, request.decision
    what = f"the call {subject.name}" if isinstance(subject, Call) else "the question"
    message = f"{what} {verb}"
    if request.state == "expired" and decision is not None:
        unused = " unused" if request.execution is None else ""
        message = f"the approval of {subject.name if isinstance(subject, Call) else 'the question'} expired{unused}"
    elif decision is not None:
        message += f" by {decision.by}"
        if decision.comment:
            message += f": {decision.comment}"
    return _again(kind, message, request.id, tool_call_of(request), request.message_for_model())


# Tracebacks show the public names.
for _signal in (ConfirmationRequired, ConfirmationRejected, *ConfirmationRejected.__subclasses__()):
    _signal.__module__ = "sayso"


P = ParamSpec("P")
R = TypeVar("R")

_MEANT = (SaysoError, ConfirmationRequired, ConfirmationRejected, KeyboardInterrupt)
_INSIDE = {"sayso", "asyncio", "concurrent", "functools", "inspect", "selectors", "threading"}


_KEEPS_FRAMES = os.environ.get("SAYSO_TRACEBACK") == "1"


def trim(error: BaseException) -> bool:
    """Remove the frames of a traceback before the program's own first frame, or all if there is none.

    If there is none, an unintended error keeps its frames. `SAYSO_TRACEBACK=1` keeps all frames.

    Returns:
        Whether a frame of the program is in it, so that the error did not come from sayso alone.
    """
    step = error.__traceback__
    while step is not None and str(step.tb_frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        step = step.tb_next
    if not _KEEPS_FRAMES and (step is not None or _is_meant(error)):
        error.with_traceback(step)  # an error may not allow its attributes to be set
    return step is not None


def trimmed(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that declares something, so that its errors point at the program's own line."""

    @functools.wraps(function)
    def declare(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (SaysoError, TypeError, ValueError) as error:
            if not trim(error):
                error.__traceback__ = error.__traceback__ if _KEEPS_FRAMES else None
                add_not_run(error)
            raise

    return declare


def add_not_run(error: BaseException, what: str = "nothing was run") -> None:
    """Add to an error what did not happen, unless it already says so."""
    text = str(error)
    if len(error.args) == 1 and "othing was" not in text and "not run" not in text:
        error.args = (f"{text} {what.capitalize()}" if text.endswith("?") else f"{text}; {what}",)


def _is_meant(error: BaseException) -> bool:
    if isinstance(error, StoreError):  # a fault: its frames say where
        return False
    # By name, because asyncio is not loaded in a sync program.
    if isinstance(error, _MEANT) or type(error).__name__ == "CancelledError":
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    module = None if last is None else last.tb_frame.f_globals.get("__name__")
    return isinstance(error, TypeError) and module in {"inspect", "sayso.model.parameters"}
