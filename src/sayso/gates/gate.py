"""What a gate is: a function, and what its calls need before they run; and where a call is made."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sayso.drive import Effects, UserCode
from sayso.errors import ConfigError
from sayso.gates.around import Surroundings, hides_nothing
from sayso.gates.declared import check_hook, check_redact, tool_of
from sayso.gates.needs import Needs
from sayso.model.quorum import Escalation, Quorum
from sayso.model.redaction import Redaction
from sayso.model.request import Request
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.run import Saved
from sayso.model.schema import Schema
from sayso.model.signature import Signature, chosen
from sayso.policy import describe

__all__ = ["ALLOWED", "Check", "Gate", "Place", "current", "current_request", "requester"]

current: ContextVar[Request | None] = ContextVar("sayso_current_request", default=None)


@dataclass(frozen=True, eq=False)
class Gate:
    """A function, and what its calls need before they run; `sayso.gate` explains the options.

    Attributes:
        named: The name that the gate was given, in place of the function's own.
        escalation: Who else may decide, and after which time.
        words: What the author calls those options that have another name than here: `{"when": "requires_approval"}`.
        context: Makes facts for the reviewer's front end of the arguments as people see them.
        ambiguous: More errors that leave it open whether a call took effect (see `sayso.gates.ambiguous`).
        tool: What its calls are told apart by: that name, or `module:function`.
        name: What people read.
        signature: How the function is called.
        stands_alone: Nothing hidden belongs to the function, so it cannot be taken for another one.

    Raises:
        TypeError: The function cannot be gated, or not without a name.
        ConfigError: An option does not fit the function.
    """

    function: Callable[..., Any]
    when: bool | Callable[..., Any] = True
    prompt: str | Callable[..., Any] | None = None
    description: str | None = None
    expires: timedelta = timedelta(hours=24)
    approval_expires: timedelta = timedelta(hours=24)
    quorum: Quorum = Quorum()
    redaction: Redaction = Redaction()
    redactor: Callable[[dict[str, Any]], Any] | None = None
    redact: tuple[str, ...] = ()
    risk: str | None = None
    retries: int = 0
    idempotent: bool = False
    verify: Callable[..., Any] | None = None
    named: str | None = None
    context: Callable[[dict[str, Any]], Any] | None = None
    escalation: Escalation | None = None
    notify_arguments: bool = False
    ambiguous: tuple[type[BaseException], ...] = ()
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    tool: str = field(init=False)
    name: str = field(init=False)
    signature: Signature = field(init=False)
    stands_alone: bool = field(init=False)
    _bare: Schema = field(init=False, repr=False)
    _around: Surroundings = field(init=False, repr=False)
    _among: dict[str, Schema] = field(init=False, repr=False)
    _picks: dict[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        function, tool = self.function, tool_of(self.function, self.named)
        signature = Signature(function)
        hooks = {"when": self.when, "prompt": self.prompt, "verify": self.verify}
        for option, hook in hooks.items():
            check_hook(self.word(option), hook, tool, signature.names)
        check_redact(function, self.redact, tool, f"{self.word('redact')}=")
        if self.escalation is not None and self.escalation.after >= self.expires:
            raise ConfigError(f"escalate_after= of {tool} comes when its requests have expired; let them wait longer")
        derived = {
            "tool": tool,
            "name": self.named or getattr(function, "__name__", type(function).__name__),
            "signature": signature,
            "stands_alone": self.named is None and hides_nothing(function),
            "_bare": Schema.of(function, redact=self.redact),
            "_around": Surroundings(function),
            "_among": {},
            "_picks": {id(hook): chosen(hook) for hook in hooks.values() if callable(hook)},
        }
        self.__dict__.update(derived)

    def word(self, option: str) -> str:
        """Return what the author calls an option."""
        return self.words.get(option, option)

    @property
    def rule(self) -> str:
        """How its rule is named to people: `when=is_large`."""
        return describe(self.when, self.word("when"))

    def asks(self, hook: Callable[..., Any], arguments: Mapping[str, Any]) -> UserCode:
        """Return the call of one of the gate's hooks with the arguments that it names."""
        return UserCode(hook, self._picks[id(hook)](arguments))

    @cached_property
    def is_unbounded(self) -> bool:
        """Whether nothing but Python's own rules says what it may be called with."""
        return not self.signature.fields and not self._bare.has_bounds

    def out_of_bounds(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with arguments whose author wrote bounds for them; cheap where there are none."""
        return self._bare.out_of_bounds(arguments)

    @property
    def shape(self) -> Schema:
        """What the calls look like now; its digest covers the plain values around the function."""
        if self.stands_alone:
            return self._bare
        digest = self._around.now().digest
        if digest is None:
            return self._bare
        shape = self._among.get(digest)
        if shape is None:
            self._among.clear()  # a variable that goes on changing leaves no trail
            shape = self._among[digest] = self._bare.among(digest)
        return shape

    @property
    def surroundings(self) -> list[object]:
        """What else is around the function now, for `is_same`; its code too where it was given a name."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return [*self._around.now().objects, *([] if self.named is None else [code])]


class Place(NamedTuple):
    """Where a call is made: the runs whose decisions count for it, and for whom it is made.

    Attributes:
        run_ids: The own run first, then those of parent tasks.
        adopted: Requests that were decided from here, by digest of their call.
        acts_for: The persons for whom the program acts, that of the innermost run first.
        has_name: Whether the own run has one, by which another process can go on with it.
        at: Where in the run the call stands, if the run tells its places apart.
        context: What the program knows about the call: JSON values.
        saves: What is to be saved of the run together with the request, when it is asked.
        pool: The pool in whose thread the call stands, where nobody could come back to what is asked: nothing is asked.
    """

    run_ids: Sequence[str]
    adopted: Mapping[str, str]
    acts_for: tuple[Identity, ...] = ()
    has_name: bool = True
    at: str = ""
    context: Mapping[str, Any] | None = None
    saves: Callable[[Request], Effects[Saved]] | None = None
    pool: str | None = None


class Check(NamedTuple):
    """What the gate says to a call.

    Attributes:
        kind: `allow`: run it; `deny`: the rule refused it; `held`: a person must decide `request`; `ready`: run it by
            `execute`; `refused`: a person said no; `happened`: it ran before, and returned `result`.
        request: The request, but for `allow` and `deny`.
        reason: Why it was denied.
        result: What it returned, for `happened`.
        needs: What the approval must have had, for `ready`; `execute` looks again.
    """

    kind: Literal["allow", "deny", "held", "ready", "refused", "happened"]
    request: Request | None = None
    reason: str | None = None
    result: Any = None
    needs: Needs | None = None


ALLOWED = Check("allow")


def current_request() -> Request | None:
    """Return the request whose call is running here; None outside of a gated function.

    Its `id` is the same in every start of one approval: an idempotency key for the service that is called.
    """
    return current.get()


@cache
def _program() -> Identity:
    name = Path(sys.argv[0] if sys.argv else "").name or "python"
    try:
        return Identity(PROGRAM, name)
    except ValueError:  # a file name that cannot be shown as it is
        return Identity(PROGRAM, ascii(name).strip() or "python")


def requester() -> Identity:
    """Return the identity of this program."""
    return _program()
