"""Who makes a call, as the loop sees it: `Caller` says how the call waits and what is saved with it.

This one raises `ConfirmationRequired`; `sayso.gates.wait.Waiter` blocks, and a step of a run (`sayso.runs.engine`)
pauses the run. `open_request` and `withdraw` are a program's two writes before a start: it asks, or it stops waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

from sayso import errors, telemetry
from sayso.config import requester
from sayso.effects import Attempt, Operations, Pause, StoreCall, drive
from sayso.gates.exceptions import ConfirmationDenied, ConfirmationRequired, refused
from sayso.model.ids import is_random
from sayso.model.request import Request
from sayso.model.run import RunUpdate
from sayso.stores.program import ProgramStore


class Block(NamedTuple):
    """How to block until a decision.

    Attributes:
        timeout: How long a call waits in total, even if it asks again; None means no limit. The request stays pending.
        on_expiry: If the request expires meanwhile, `reject` raises and `ask` asks again.
        is_quiet: Show and ask nothing here, because a channel brings the request to a person.
        withdraws: The caller withdraws the request when it stops waiting, also in a named run.
    """

    timeout: timedelta | None = None
    on_expiry: Literal["reject", "ask"] = "reject"
    is_quiet: bool = False
    withdraws: bool = False


def withdraw(store: ProgramStore, request_id: str, why: str, error: BaseException | None = None) -> Operations[None]:
    """Withdraw a request that nobody waits for any more, because of `error` if there is one.

    Raises:
        StoreError: The store failed; the request may still be pending.
    """
    verb = partial(store.withdraw, is_brief=True)  # do not delay a caller that stops waiting
    if isinstance(error, GeneratorExit):  # nothing can be awaited any more
        verb(request_id, requester(), why)
    else:
        yield StoreCall(verb, request_id, requester(), why)


def open_request(store: ProgramStore, request: Request, saved: RunUpdate | None = None) -> Operations[Request]:
    """Record a request, and return the open one with its fingerprint or key, new or existing. Durable on return.

    A cancellation or Ctrl-C may interrupt this after the request was stored; it is then withdrawn. It is not withdrawn
    if a program can come back to it: in a run with a name, or one that is saved together with it.
    """
    if saved is not None or not is_random(request.run_id):
        found: Request = yield StoreCall(store.ask, request, saved)
    else:
        left: list[bool] = []  # not empty once nobody waits any more
        try:
            found = yield StoreCall(_opened, store, request, left)
        except BaseException as error:
            left.append(True)
            with suppress(errors.SaysoError):
                why = f"the program stopped waiting ({type(error).__name__})"
                yield from withdraw(store, request.id, why, error)
            raise
    return telemetry.asked(found) if found.id == request.id else found


def _opened(store: ProgramStore, request: Request, left: Sequence[bool]) -> Request:
    found = store.ask(request)
    if left:  # a closed coroutine does not wait for this thread, and may have withdrawn too early
        with suppress(errors.SaysoError):
            drive(withdraw(store, request.id, "the program stopped waiting (GeneratorExit)", GeneratorExit()))
    return found


class Caller:
    """Who makes a call: how it waits, and what is saved of its run.

    The loop in `sayso.gates.gated_call` uses this. This base class does not wait: it raises if a person must decide.
    """

    finds = True
    """Whether to look for an earlier request of the same call; a run that saves its calls knows its own."""

    def allowed(self, gate: Any, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments with which the function runs if the rule allows the call."""
        return gate.signature.spread(arguments)

    def passed(self, attempt: Attempt) -> None:
        """Called when a call that the rule allowed has ended."""

    ask = staticmethod(open_request)

    def wait(self, request: Request) -> Operations[None]:
        """Wait until the request is decided, or raise."""
        yield from ()
        raise ConfirmationRequired.of(request)

    def running(self, request: Request) -> Operations[Request]:
        """Wait until a call that runs elsewhere has ended, and return its request; raise if this caller cannot wait."""
        yield from ()
        raise already_started(request)

    def asks_anew(self, request: Request) -> bool:  # noqa: ARG002  for subclasses
        """Return whether a call whose request expired or was withdrawn is asked again; if not, it is refused."""
        return True

    def refused(self, request: Request) -> BaseException:
        """Return the exception for a rejection."""
        return refused(request)

    def denied(self, reason: str) -> BaseException:
        """Return the exception for a call that the rule denies; nobody was asked."""
        return ConfirmationDenied(reason)

    def is_over(self, request: Request) -> bool:  # noqa: ARG002  for subclasses
        """Return whether the approval of a call that is about to start was limited to a time that is over."""
        return False

    def begin(self, request: Request) -> None:
        """Called when an approved call is about to start; an exception prevents the start."""

    def started(self, request: Request) -> None:
        """Called when the start is recorded, right before the call runs; an exception prevents the call."""

    def held_back(self, request: Request, seconds: float) -> Operations[None]:
        """Wait until the approval of a call that is about to start can no longer be undone, or raise."""
        yield Pause(seconds)
        self.begin(request)  # somebody must wait for it still

    def not_started(self, request: Request) -> None:
        """Called if the call did not start, because its request changed meanwhile."""

    def happened(self, request: Request) -> None:
        """Called if the call has already had its effect, so that it is not made."""

    def saving(self, attempt: Attempt) -> RunUpdate | None:  # noqa: ARG002  for subclasses
        """Return what to save of the run, in the same transaction as the outcome of the call."""
        return None

    def saved(self) -> None:
        """Called when that is stored, if there was anything to save."""

    def executed(self, request: Request, attempt: Attempt) -> Operations[None]:  # noqa: ARG002  for subclasses
        """Called when the call was made."""
        yield from ()

    def break_off(self, error: BaseException) -> Operations[None]:  # noqa: ARG002  for subclasses
        """Withdraw what nobody waits for any more, because the call ends with `error`."""
        yield from ()

    def close(self) -> None:
        """Called when the call is over."""


def already_started(request: Request) -> errors.AlreadyStartedError:
    """Return the exception for a call that was already started, and for which the caller does not wait."""
    at = None if request.execution is None else request.execution.started_at
    return errors.AlreadyStartedError(request.id, state=request.state, at=at, age="before")


def not_found_again(what: str, pool: str) -> errors.ConfigError:
    """Return the error for a call that would raise `ConfirmationRequired` where no program could come back to it."""
    return errors.ConfigError(
        f"{what} would wait for a person in a thread pool ({pool}) outside of a named run, where no later call could"
        " find the decision; nothing was asked and nothing ran. Enter a run inside the thread: "
        'with sayso.run("order-4721"): ...'
    )
