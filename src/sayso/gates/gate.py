"""What a gate is: a function, and what its calls need before they run; and where a call is made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sayso.drive import UserCode
from sayso.model import canonical
from sayso.model.quorum import Quorum
from sayso.model.redaction import Redaction
from sayso.model.request import Request
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.shape import Shape
from sayso.model.signature import Signature, chosen

__all__ = ["ALLOWED", "Check", "Gate", "Place", "current", "current_request", "requester"]

current: ContextVar[Request | None] = ContextVar("sayso_current_request", default=None)


@dataclass(frozen=True, eq=False)
class Gate:
    """A function, and what its calls need before they run; `sayso.gate` explains the options."""

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
    tool: str = field(init=False)
    name: str = field(init=False)
    shape: Shape = field(init=False)
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        derived = {
            "tool": canonical.function_name(self.function),
            "name": getattr(self.function, "__name__", type(self.function).__name__),
            "shape": Shape.of(self.function, redact=self.redact),
            "signature": Signature(self.function),
        }
        self.__dict__.update(derived)

    def asks(self, hook: Callable[..., Any], arguments: Mapping[str, Any]) -> UserCode:
        """Return the call of one of the gate's hooks with the arguments that it names."""
        return UserCode(hook, _choose(hook)(arguments))


@cache
def _choose(hook: Callable[..., Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return chosen(hook)


class Place(NamedTuple):
    """Where a call is made: the runs whose decisions count for it, and for whom it is made.

    Attributes:
        run_ids: The own run first, then those of parent tasks.
        adopted: Requests that were decided from here, by digest of their call.
        on_behalf_of: The person for whom the program acts.
    """

    run_ids: Sequence[str]
    adopted: Mapping[str, str]
    on_behalf_of: Identity | None


class Check(NamedTuple):
    """What the gate says to a call.

    Attributes:
        kind: `allow`: run it; `deny`: the rule refused it; `held`: a person must decide `request`; `ready`: run it by
            `execute`; `refused`: a person said no; `happened`: it ran before, and returned `result`.
        request: The request, but for `allow` and `deny`.
        reason: Why it was denied.
        result: What it returned, for `happened`.
    """

    kind: Literal["allow", "deny", "held", "ready", "refused", "happened"]
    request: Request | None = None
    reason: str | None = None
    result: Any = None


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
