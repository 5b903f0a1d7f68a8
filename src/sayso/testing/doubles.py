"""Test doubles: a clock that the test advances, a scripted model, a scripted reviewer, and sample requests.

The model's next turn depends only on the history, so concurrent runs can share one script, and a run that is resumed in
another process gets the next turn. The reviewer decides through `sayso.Review`, so a script can do only what a person
can: each step decides the oldest pending request. A sample request has the form that a gate produces, with valid fields
and a new id.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from keyword import iskeyword
from typing import Any, NamedTuple, Self, cast

from sayso import clock
from sayso.errors import SaysoError
from sayso.model import canonical, duration
from sayso.model.canonical.json_tree import dump
from sayso.model.ids import call_digest, fingerprint, new_request_id, new_run_id, question_digest
from sayso.model.redaction import Redaction
from sayso.model.request import Call, Question, Request, State
from sayso.model.reviewer import PROGRAM, Identity, Reviewer
from sayso.model.schema import Schema
from sayso.reviews import Review
from sayso.runs.messages import Message, ModelError, Reply, reply_of
from sayso.stores.base import Store


class Clock:
    """A clock that does not advance by itself; a source for `sayso.clock.use`.

    Attributes:
        at: The current time, aware and in UTC.
    """

    def __init__(self, at: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def tick(self, span: timedelta | str = timedelta(), /, **parts: float) -> datetime:
        """Advance by a span (`"25h"`, a `timedelta`, or its parts: `seconds=-1`), and return the new time.

        Raises:
            ConfigError: The text is not a duration.
        """
        self.at += (duration.parse(span) if isinstance(span, str) else span) + timedelta(**parts)
        return self.at


@contextmanager
def frozen_clock(at: datetime | None = None) -> Generator[Clock]:
    """Freeze sayso's clock inside the block, in all threads of this process; `clock.tick("25h")` advances it."""
    frozen = Clock() if at is None else Clock(at)
    with clock.use(frozen):
        yield frozen


class Asked(NamedTuple):
    """The messages and tools that the scripted model received for one turn."""

    messages: list[Message]
    tools: list[dict[str, Any]]


class ScriptedModel:
    """A model that answers a history with n replies with turn n of its script, counted from 0.

        model = ScriptedModel([[("refund", {"order": 4721, "amount": 50})], "Refunded."])
        output = Agent(name="clerk", model=model, tools=[refund])(prompt="Refund 4721").run()
        assert model.seen[1].messages[-1]["content"] == "refunded 50"

    Args:
        turns: Each is a text, which is streamed by word; a call or a list of calls (pairs of name and arguments); a
            `Reply`, or a mapping with `text` and `calls`; an exception, which is raised; or a function of the messages,
            sync or async, that returns one of these.

    Attributes:
        seen: Every turn that it was asked for, in order; concurrent runs are interleaved.
    """

    name = "script"

    def __init__(self, turns: Iterable[object]) -> None:
        self.seen: list[Asked] = []
        self._turns = list(turns)

    async def turn(self, messages: list[Message], tools: list[dict[str, Any]], /) -> AsyncGenerator[str | Reply]:
        """See `Model.turn`.

        Raises:
            ModelError: The script has no turn for this history, or the turn is invalid.
        """
        self.seen.append(Asked(deepcopy(messages), deepcopy(tools)))
        number = sum(message["role"] == "assistant" for message in messages)
        if number >= len(self._turns):
            raise ModelError(self.name, f"has {len(self._turns)} turns in its script and was called once more")
        turn: object = self._turns[number]
        if callable(turn):
            turn = turn(deepcopy(messages))
            if inspect.isawaitable(turn):
                turn = await turn
        if isinstance(turn, BaseException):
            raise turn
        reply = reply_of(turn, messages, model=self.name)
        for word in re.split(r"(?<=\s)(?=\S)", reply.text) if reply.text else ():
            yield word
        yield reply


_TOOL = "payments:pay"
_DAY = timedelta(hours=24)
_KINDS: dict[str, type] = {"amount": int, "to": str, "password": str}


def _call(arguments: Mapping[str, Any], schema: Schema) -> Call:
    form = canonical.encode(arguments)
    tree = canonical.load(form.text)
    masked = Redaction().mask(tree)
    digest = call_digest(_TOOL, schema.digest, form.digest_input)
    shown = None if masked is tree else dump(masked)
    return Call(_TOOL, "pay", form.text, shown, digest, schema.text, schema.digest)


def sample_call(run_id: str | None = None, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Request:
    """Return a new pending request to call `pay(amount, to, password)`; it is not in any store yet.

    Args:
        run_id: The run; by default a new one.
        arguments: The arguments by name; by default `{"amount": 10, "to": "alice"}`.
        fields: Values for any other fields of `Request`.
    """
    given = {"amount": 10, "to": "alice"} if arguments is None else arguments

    def pay() -> None: ...

    # A gate binds arguments by the function's signature; a name that no parameter can have is left out.
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name in given if name.isidentifier() and not iskeyword(name)]
    kinds = {name: _KINDS.get(name, Any) for name in names}
    pay.__annotations__ = {n: kind if type(given[n]) is kind else Any for n, kind in kinds.items()}
    cast("Any", pay).__signature__ = inspect.Signature([inspect.Parameter(name, either) for name in names])
    call = _call(given, Schema.of(pay))
    return _request("call", run_id or new_run_id(), call, fields)


def sample_edit(request: Request, **changes: Any) -> Call:
    """Return the call of a `sample_call` with a reviewer's changes."""
    before = request.effective
    return _call({**canonical.decode(before.form, {}), **changes}, Schema.from_text(before.schema))


def sample_question(run_id: str | None = None, text: str = "Which account?", **fields: Any) -> Request:
    """Return a new pending question with a text answer; it is not in any store yet."""
    schema = Schema.of_type(str)
    subject = Question(text, question_digest(text, schema.digest, 0), schema.text, schema.digest)
    return _request("question", run_id or new_run_id(), subject, fields)


def _request(kind: Any, run_id: str, subject: Call | Question, fields: Mapping[str, Any]) -> Request:
    now = clock.now()
    request = Request(
        id=new_request_id(),
        kind=kind,
        run_id=run_id,
        fingerprint=fingerprint(run_id, subject.digest, key=fields.get("key")),
        subject=subject,
        requester=Identity(PROGRAM, "tests"),
        created_at=now,
        expires_at=now + _DAY,
        approval_window=_DAY,
    )
    return replace(request, **fields) if fields else request


_PACE = 0.002  # seconds between polls for pending requests


class _ScriptedStep(NamedTuple):
    verb: str
    words: tuple[Any, ...]
    options: dict[str, Any]

    def __str__(self) -> str:
        parts = [*(repr(word) for word in self.words), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{self.verb}({', '.join(parts)})"


class ScriptedReviewer:
    """Decides the pending requests of a store, oldest first, with one step of the script for each decision.

    For a gate that blocks, use it as a context manager: it decides in its own thread, and the end of the block checks
    that every step was used and every request had one. For a gate that raises, call `decide_next`.

        with ScriptedReviewer().approve(changes={"amount": 7}).reject("too much") as reviewer:
            assert pay(10, "alice") == "paid 7 to alice"
            with pytest.raises(sayso.ConfirmationRejected, match="too much"):
                pay(1_000, "bob")
        assert [request.call.arguments["amount"] for request in reviewer.seen] == [10, 1_000]

    Args:
        store: A store or its address; None for the configured one.
        by: The reviewer; each step can name another one.

    Attributes:
        seen: The requests in the state that each step found.
    """

    def __init__(self, store: Store | str | None = None, *, by: Reviewer | str = "reviewer") -> None:
        self.seen: list[Request] = []
        self._review = Review(store, reviewer=by, channel="script")
        self._steps: deque[_ScriptedStep] = deque()
        self._skipped: set[str] = set()
        self._problems: list[str] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the script --------------------------------------------------------------------------------------------

    def _add_step(self, verb: str, *words: Any, **options: Any) -> Self:
        given = {name: value for name, value in options.items() if value is not None}
        self._steps.append(_ScriptedStep(verb, words, given))
        return self

    def approve(
        self, *, changes: Mapping[str, Any] | None = None, arguments: Mapping[str, Any] | None = None,
        comment: str | None = None, by: Reviewer | str | None = None,
    ) -> Self:  # fmt: skip
        """Add a step that approves; see `Review.approve`. Like every step, it returns the reviewer itself."""
        return self._add_step("approve", changes=changes, arguments=arguments, comment=comment, by=by)

    def reject(self, comment: str | None = None, *, by: Reviewer | str | None = None) -> Self:
        """Add a step that rejects."""
        return self._add_step("reject", comment, by=by)

    def feedback(self, comment: str, *, by: Reviewer | str | None = None) -> Self:
        """Add a step that sends the call back with feedback for the program."""
        return self._add_step("feedback", comment, by=by)

    def answer(self, value: Any, *, by: Reviewer | str | None = None) -> Self:
        """Add a step that answers a question."""
        return self._add_step("answer", value, by=by)

    def cancel(self, comment: str | None = None, *, by: Reviewer | str | None = None) -> Self:
        """Add a step that cancels the run."""
        return self._add_step("cancel", comment, by=by)

    def leave(self) -> Self:
        """Add a step that leaves a request pending for good."""
        return self._add_step("leave")

    # -- decisions ---------------------------------------------------------------------------------------------

    def decide_next(self) -> Request:
        """Apply the next step to the oldest pending request, and return the request.

        Raises:
            AssertionError: No request is pending, or no step is left.
            SaysoError: The decision was refused.
        """
        request = self._next_pending()
        assert request is not None, f"no request waits for the step {self._steps[0] if self._steps else '(none left)'}"
        assert self._steps, f"no step is left for {request.id}"
        return self._decide(request)

    def _next_pending(self) -> Request | None:
        return next((one for one in self._review.list(state=State.PENDING) if one.id not in self._skipped), None)

    def _decide(self, request: Request) -> Request:
        step = self._steps.popleft()
        self.seen.append(request)
        if step.verb == "leave":
            self._skipped.add(request.id)
            return request
        verb = partial(getattr(self._review, step.verb), request.id, *step.words, **step.options)
        return verb()

    def _decide_until_stopped(self) -> None:
        while not self._stop.wait(_PACE):
            request = self._next_pending()
            if request is None:
                continue
            if not self._steps:
                self._problems.append(f"{request.id} came, and no step was left for it")
                self._give_up(request)
                continue
            try:
                self._decide(request)
            except Exception as error:  # noqa: BLE001  # reported at the end of the test; if the thread died, the test would hang
                self._problems.append(f"{type(error).__name__}: {error}")
                self._give_up(request)

    def _give_up(self, request: Request) -> None:
        """Cancel a request that has no step, so that the test fails instead of waiting forever."""
        self._skipped.add(request.id)
        anybody = Reviewer("scripted reviewer", roles=request.quorum.roles, issuer="script")
        with suppress(SaysoError):  # somebody else decided it first
            if request.claimed_by is not None:
                self._review.release(request.id, by=anybody, force=True)
            self._review.cancel(request.id, "the script has no step for it", by=anybody)

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._decide_until_stopped, name="sayso-scripted-reviewer", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if error is None:
            self.must_be_done()
        elif problems := self._take_problems():
            error.add_note(f"scripted reviewer: {problems}")  # probably the cause of the block's exception

    def must_be_done(self) -> None:
        """Check that every step was used and every request had one; each problem is reported once.

        Raises:
            AssertionError: A step was not used, a request had no step, or a decision failed.
        """
        problems = self._take_problems()
        assert not problems, problems

    def _take_problems(self) -> str:
        problems = [*self._problems, *(f"the step {step} was not needed" for step in self._steps)]
        self._problems.clear()
        self._steps.clear()
        return "; ".join(problems)
