"""How a call through a gate waits for a person, and what is saved of its run.

`Caller` raises `ConfirmationRequired`, `sayso.gates.wait.Waiter` blocks, and a step of a run (`sayso.runs.engine`)
pauses the run. `open_request` and `withdraw` are the two writes of a program before a start: it asks, or it stops
waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

from sayso import errors, telemetry
from sayso.effects import Attempt, Effects, Pause, StoreCall, drive
from sayso.gates import signals
from sayso.gates.scope import requester
from sayso.model.ids import is_random
from sayso.model.request import Request
from sayso.model.run import RunUpdate
from sayso.stores.program import ProgramStore


class Block(NamedTuple):
    """How to wait where the call stands.

    Attributes:
        timeout: How long a call waits, however often it asks anew; None without end. The request itself does not end.
        on_expiry: `reject` raises when the request expires meanwhile, `ask` asks anew.
        is_quiet: Nothing is shown or asked here: a channel carries the request to a person.
    """

    timeout: timedelta | None = None
    on_expiry: Literal["reject", "ask"] = "reject"
    is_quiet: bool = False


def withdraw(store: ProgramStore, request_id: str, why: str, error: BaseException | None = None) -> Effects[None]:
    """Take back a request that nobody waits for any more, because of `error` where there is one.

    Raises:
        StoreError: The store failed; the request may still be pending.
    """
    verb = partial(store.withdraw, is_brief=True)  # whoever stops waiting must not be held up
    if isinstance(error, GeneratorExit):  # nothing can be awaited any more
        verb(request_id, requester(), why)
    else:
        yield StoreCall(verb, request_id, requester(), why)


def open_request(store: ProgramStore, request: Request, saved: RunUpdate | None = None) -> Effects[Request]:
    """Record a request, and return the open one of its fingerprint or key, this or an earlier one. Durable on return.

    A cancelled task or Ctrl-C may break this off when the request is stored already; it is withdrawn then. It stays
    where somebody can come back to it: in a run with a name, or one that is saved together with it.
    """
    if saved is not None or not is_random(request.run_id):
        found: Request = yield StoreCall(store.ask, request, saved)
    else:
        left: list[bool] = []  # holds something once nobody waits any more
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
    if left:  # a coroutine that is closed does not wait for this thread, and may have withdrawn too early
        with suppress(errors.SaysoError):
            drive(withdraw(store, request.id, "the program stopped waiting (GeneratorExit)", GeneratorExit()))
    return found


class Caller:
    """Who makes a call: what becomes of it where it must wait, and what of its run is saved together with it.

    The loop in `sayso.gates.call` asks this. Here it does not wait: what a person must decide first is raised.
    """

    finds = True
    """Whether an earlier request for the same call is looked for; a run that saves its calls knows its own."""

    def allowed(self, gate: Any, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return what the function is called with where the rule lets the call through."""
        return gate.signature.spread(arguments)

    def passed(self, attempt: Attempt) -> None:
        """Take note of how a call ended that the rule let through."""

    ask = staticmethod(open_request)

    def wait(self, request: Request) -> Effects[None]:
        """Wait until it is decided; may raise instead."""
        yield from ()
        raise signals.ConfirmationRequired.of(request)

    def running(self, request: Request) -> Effects[Request]:
        """Wait until a call that runs elsewhere has ended, and return its request; raises where nobody waits for it."""
        yield from ()
        raise started_before(request)

    def asks_anew(self, request: Request) -> bool:  # noqa: ARG002  for those that look
        """Say whether a call whose request expired or was withdrawn meanwhile is asked anew, or is refused."""
        return True

    def refused(self, request: Request) -> BaseException:
        """Return what is raised for a no."""
        return signals.refused(request)

    def denied(self, reason: str) -> BaseException:
        """Return what is raised where the rule denies the call; nobody was asked."""
        return signals.ConfirmationDenied(reason)

    def is_over(self, request: Request) -> bool:  # noqa: ARG002  for those that keep more than the request has
        """Say whether the approval of a call that is about to start was given until an instant that has come."""
        return False

    def begin(self, request: Request) -> None:
        """Take note that an approved call is about to start; may raise instead, and then it does not."""

    def held_back(self, request: Request, seconds: float) -> Effects[None]:  # noqa: ARG002  for those that listen
        """Wait until an approval that is about to start its call cannot be undone any more; may raise instead."""
        yield Pause(seconds)

    def resume(self, request: Request) -> None:
        """Take note that it did not start after all, because its request changed meanwhile."""

    def happened(self, request: Request) -> None:
        """Take note that the call was found to have had its effect already; it is not made."""

    def saving(self, attempt: Attempt) -> RunUpdate | None:  # noqa: ARG002  for those that save
        """Return what of the run is to be saved in one transaction with how the call ended."""
        return None

    def saved(self) -> None:
        """Take note that it is in the store."""

    def executed(self, request: Request, attempt: Attempt) -> Effects[None]:  # noqa: ARG002  for those that look
        """Take note that the call was made."""
        yield from ()

    def break_off(self, error: BaseException) -> Effects[None]:  # noqa: ARG002  for those that wait
        """Take back what nobody waits for any more, because the call ends with `error`."""
        yield from ()

    def close(self) -> None:
        """Take note that the call is over."""


def started_before(request: Request) -> errors.AlreadyStartedError:
    """Return what is raised where a call was started already, and nobody here waits for it."""
    at = None if request.execution is None else request.execution.started_at
    return errors.AlreadyStartedError(request.id, state=request.state, at=at, age="before")


def not_found_again(what: str, pool: str) -> errors.ConfigError:
    """Return the refusal of what would raise `ConfirmationRequired` where nobody could come back to it."""
    return errors.ConfigError(
        f"{what} would wait for a person in a thread of a pool ({pool}) outside of any run; nothing was asked and "
        "nothing ran. Such a thread serves one caller after another, so nobody could come back for the decision. Name "
        'the run around it, inside of the thread: with sayso.run("order-4721"): ...'
    )
