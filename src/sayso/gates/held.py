"""What `sayso.hold` returns: a handle on a call that waits for a person, with the remaining steps for the program.

`wait` waits. `once` runs the call and records its outcome; `start` and `finish` do so in two steps. `sayso.aio.Held` is
the async version. Invariant: `once` and `start` hand out exactly the approved arguments, and only once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sayso import config, errors
from sayso.effects import Attempt, Operations, StoreCall, UserCall, drive
from sayso.gates import exceptions, scope
from sayso.gates.ambiguous import claim_not_executed
from sayso.gates.caller import Block, Caller, already_started, withdraw
from sayso.gates.exceptions import trim
from sayso.gates.execution import Started, begin, end, replay, send_back
from sayso.gates.find_or_ask import as_recorded
from sayso.gates.gated_call import gated_call
from sayso.gates.options import Gate
from sayso.gates.wait import Waiter, is_awaited, until_ended
from sayso.model import canonical, duration
from sayso.model.request import Request, State, not_run
from sayso.model.text import is_plain_name
from sayso.stores.base import Store

if TYPE_CHECKING:
    from concurrent.futures import Future

R = TypeVar("R")
_NOES = {State.REJECTED, State.FEEDBACK, State.CANCELLED, State.EXPIRED}


class HeldBase:
    """The common part of `Held` and `sayso.aio.Held`: the call's state when it was last read."""

    def __init__(
        self, gate: Gate, store: Store, run: scope.Scope, site: scope.CallSite, given: dict[str, Any],
        request: Request | None, denial: str | None, *, withdraw_on_exit: bool,
    ) -> None:  # fmt: skip
        self._gate, self._store, self._run, self._site = gate, store, run, site
        self._given, self._request, self._denial = given, request, denial
        self._withdraws = withdraw_on_exit
        self._started: Started | None = None
        self._attempt: Attempt | None = None

    @property
    def id(self) -> str | None:
        """Id of the request; None if the rule allowed or denied the call and nobody was asked."""
        return None if self._request is None else self._request.id

    @property
    def request(self) -> Request | None:
        """The request when it was last read; `refresh` reads it again."""
        return self._request

    @property
    def state(self) -> str:
        """Its state when it was last read (`pending`, `approved`, `done`, ...), or else `allowed` or `denied`.

        It does not change by itself: `refresh()` and every verb read it again.
        """
        if self._request is not None:
            return self._request.state.value
        return "allowed" if self._denial is None else "denied"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that would run, including a reviewer's changes; real values, secrets are not masked."""
        if self._request is None:
            return dict(self._given)
        return canonical.decode(self._request.effective.form, {})

    @property
    def changes(self) -> dict[str, Any]:
        """The arguments that a reviewer changed or added; a removed one is missing from `arguments`."""
        before = {name: canonical.encode({"value": value}).text for name, value in self._given.items()}
        now = self.arguments.items()
        return {name: value for name, value in now if before.get(name) != canonical.encode({"value": value}).text}

    @property
    def reason(self) -> str | None:
        """What the reviewer wrote, or why the rule denied it."""
        if self._request is None:
            return self._denial
        return None if self._request.decision is None else self._request.decision.comment

    def message_for_model(self) -> str:
        """Return the message to the model that asked; empty if the call was approved unchanged and without a note."""
        if self._request is not None:
            return self._request.message_for_model()
        return "" if self._denial is None else not_run(self._gate.name, self._denial)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._gate.name!r} {self.id} {self.state}>"

    # -- the verbs, as operations that `Held` and `sayso.aio.Held` drive -------------------------------------------

    def _refreshing(self) -> Operations[Request | None]:
        if self._request is not None:
            self._request = yield StoreCall(self._store.settle, self._request.id)
        return self._request

    def _waiting(self, timeout: timedelta | str | float | None) -> Operations[None]:
        self._must_not_be_denied()
        request = yield from self._refreshing()
        if request is None:
            return
        if request.state is State.PENDING:
            block = Block(_span(timeout), "reject", withdraws=self._withdraws)
            waiter = Waiter(self._run, self._store, block)
            self._request = yield from _over(waiter, waiter.until_decided(request, block))
        if self._request is not None and self._request.state in _NOES:
            raise exceptions.refused(self._request)

    def _once(self, function: Callable[[dict[str, Any]], Any]) -> Operations[Attempt]:
        self._must_not_be_denied()
        request = yield from self._refreshing()
        if request is None:
            return (yield from self._once_allowed(function))
        if self._started is not None:
            what = f"this handle has started {request.id}; report how that ended first, with finish(), fail() or"
            raise errors.StartRefusedError(request.id, f"{what} unknown()")
        own = self._attempt
        if request.state is State.DONE and request.key is None and own is not None and own.raised is None:
            return own
        gate, caller = replace(self._gate, function=function), _OnceCaller(self._run, self._store, keeps_request=True)
        try:
            attempt = yield from gated_call(gate, self._store, self._given, self._site, caller, request)
        finally:
            self._request = caller.latest or request
        if caller.has_run:
            self._attempt = attempt
            with suppress(errors.StoreError):  # the outcome of the call counts, even if the store fails now
                yield from self._refreshing()
        return attempt

    def _once_allowed(self, function: Callable[[dict[str, Any]], Any]) -> Operations[Attempt]:
        """Run a call that needs no decision; concurrent callers of this handle wait for its result."""
        from concurrent.futures import Future

        mine = Future[Attempt]()
        running: Future[Attempt] = self.__dict__.setdefault("_allowed", mine)  # atomic: of two threads, one runs it
        if self._attempt is not None:
            return self._attempt
        if running is not mine and self in _inside.get():
            raise errors.SaysoError(f"the call of {self._gate.name} waits for its own result, which would never come")
        if running is not mine:
            return (yield _Awaited(running))
        mine.set_running_or_notify_cancel()  # cancelling a task that waits must not cancel this
        before = _inside.set((*_inside.get(), self))
        try:
            attempt: Attempt = yield UserCall(function, (dict(self._given),), {})
        finally:
            with suppress(ValueError):  # a coroutine may be closed in a context without it
                _inside.reset(before)
        self._attempt = attempt
        mine.set_result(attempt)
        return attempt

    def _starting(self, by: str | None) -> Operations[dict[str, Any]]:
        if by is not None and not is_plain_name(by, 500):
            raise errors.ConfigError(f"by= takes the name of a process, not {by!r}; nothing was started")
        self._must_not_be_denied()
        request = yield from self._refreshing()
        if request is None:
            return dict(self._given)
        if request.state is not State.APPROVED:
            raise _not_startable(request)
        # Its rule may by now require less than before.
        gate, wanted = as_recorded(self._gate, self._site, request)
        waiter = Waiter(self._run, self._store, keeps_request=True)
        returned = yield from send_back(gate, self._store, request, wanted)
        if returned is not None:  # a reviewer's change is not valid: it waits again
            self._request = returned
            raise exceptions.ConfirmationRequired.of(returned)
        try:
            self._started = yield from _over(waiter, self._beginning(gate, request, wanted, by, waiter))
        except errors.GrantEndedError:
            raise  # it waits for a person now, and this error says why
        except errors.NotApprovedError:
            request = yield from self._refreshing()
            if request is not None and request.state in {State.PENDING, *_NOES}:  # it was undone, or withdrawn
                raise _not_startable(request) from None
            raise
        self._request = self._started.request
        return dict(self._started.args[0])

    def _beginning(
        self, gate: Gate, request: Request, wanted: scope.CallSite, by: str | None, waiter: Waiter
    ) -> Operations[Started]:
        waiter.wait_for(request)  # so that an approval that nobody can use any more is withdrawn
        waiter.begin(request)
        return (yield from begin(gate, self._store, request, wanted, by, waiter))

    def _ending(self, attempt: Attempt) -> Operations[None]:
        if self._request is not None:
            started, request_id = self._started, self._request.id
            if started is None:
                what = f"the call of {request_id} was not started by this handle"
                if self._attempt is not None:
                    what = f"this handle has already reported how the call of {request_id} ended"
                raise errors.StartRefusedError(request_id, f"{what}; nothing was recorded")
            if started.pid != os.getpid():
                what = f"process {started.pid} has started {request_id}, and reports how that ends"
                raise errors.StartRefusedError(request_id, f"{what}; nothing was recorded")
            attempt = attempt._replace(is_without_effect=claim_not_executed(attempt.raised))
            gate = replace(self._gate, suspends=())  # which is for `once`; here the program says how it ended
            yield from end(gate, self._store, started, attempt, is_raised=False)
            self._started = None
        self._attempt = attempt
        yield from self._refreshing()

    def _resulting(self, timeout: timedelta | str | float | None) -> Operations[Any]:
        self._must_not_be_denied()
        if self._request is None:
            if self._attempt is None:
                raise errors.ValueNotKeptError(
                    self._gate.name, "does not exist yet: the call was allowed and has not run here"
                )
            return self._attempt.unwrap()
        waiter, span = Waiter(self._run, self._store, keeps_request=True), _span(timeout)
        if span is not None:  # from now on: for the decision and the end together
            waiter.deadline = time.monotonic() + span.total_seconds()
        yield from self._waiting(timeout)
        request: Request = yield StoreCall(self._store.settle, self._request.id)
        self._request = request
        if request.state is State.RUNNING:
            request = self._request = yield from _over(waiter, _ended(self._store, request, waiter))
        if request.state is State.UNKNOWN:
            raise errors.OutcomeUnknownError(request.id)
        if request.state is State.APPROVED:
            raise errors.NotApprovedError(request.id, state=f"{self.state} and has not been started")
        own = self._attempt
        if request.state is State.DONE and request.key is None and own is not None and own.raised is None:
            return own.value
        return (yield from replay(self._gate, self._store, request))

    def _withdrawing(self, reason: str | None) -> Operations[None]:
        if self._request is not None:
            yield from withdraw(self._store, self._request.id, reason or "the program withdrew it")
            yield from self._refreshing()

    def _sending_back(self, problems: Collection[str]) -> Operations[None]:
        if self._request is not None:
            self._request = yield StoreCall(self._store.send_back, self._request.id, config.requester(), problems)

    def _leaving(self, error: BaseException | None) -> Operations[None]:
        request = (yield from self._refreshing()) if self._withdraws else None
        if request is None or is_awaited(request.id):  # an equal call of this run waits for it, too
            return
        if request.state is State.PENDING:
            yield from self._withdrawing("the program left before anybody decided")
        # A cancelled caller makes the call no more, and another one must not find its approval. With a key, the other
        # one makes this very call.
        is_cancelled = error is not None and not isinstance(error, (Exception, *self._gate.suspends))
        # In a thread, a cancelled task is told like this.
        is_cancelled |= isinstance(error, exceptions.ConfirmationCancelled) and error.confirmation_id == request.id
        # After its own error, a program may come back to a run with a name.
        comes_back = (exceptions.ConfirmationRequired, *self._gate.suspends)
        is_cancelled |= not (self._site.has_name or error is None or isinstance(error, comes_back))
        if request.state is State.APPROVED and is_cancelled and request.key is None:
            yield from self._withdrawing(f"the program stopped waiting ({type(error).__name__})")

    def _must_not_be_denied(self) -> None:
        if self._denial is not None:
            raise exceptions.ConfirmationDenied(self._denial)


_inside: ContextVar[tuple[HeldBase, ...]] = ContextVar("sayso_once", default=())
"""The handles whose allowed calls run in this context."""


class _Awaited:
    """The operation that waits for a call which another thread or task runs."""

    def __init__(self, running: Future[Attempt]) -> None:
        self._running = running

    def __call__(self) -> Attempt:
        return self._running.result()

    async def arun(self) -> Attempt:
        import asyncio

        return await asyncio.wrap_future(self._running)


class _OnceCaller(Waiter):
    """The caller for `once`: it waits for a call that runs elsewhere, but not for a person.

    Attributes:
        latest: The request as the loop last saw it; None if it is still the given one.
        has_run: Whether the call was made here.
    """

    latest: Request | None = None
    has_run = False

    def wait(self, request: Request) -> Operations[None]:
        self.latest = request
        return Caller.wait(self, request)

    def running(self, request: Request) -> Operations[Request]:
        return _ended(self._store, request, self)

    def asks_anew(self, request: Request) -> bool:  # noqa: ARG002  the handle is for this request
        """Never ask again, because the handle is for this request."""
        return False

    def refused(self, request: Request) -> BaseException:
        self.latest = request
        return super().refused(request)

    def executed(self, request: Request, attempt: Attempt) -> Operations[None]:  # noqa: ARG002  the request tells
        yield from ()
        self.latest, self.has_run = request, True


def _ended(store: Store, request: Request, waiter: Waiter) -> Operations[Request]:
    after = yield from until_ended(store, request.id, waiter)
    if after.state is State.RUNNING:
        raise TimeoutError(f"the call of {request.id} is still running; nothing was started here")
    return after


class Held(HeldBase):
    """A call that waits for a person, or that a rule allowed; created by `sayso.hold`.

    Its attributes (`state`, `arguments`, `reason`, ...) show the last read state; `refresh()` reads it again. It raises
    what a gated function raises: `ConfirmationRequired` if the call waits, `ConfirmationRejected` for a rejection, a
    `StartRefusedError` if it cannot start.
    """

    def refresh(self) -> Request | None:
        """Read the request again and return it."""
        return driven(self._refreshing())

    def wait(self, timeout: timedelta | str | float | None = None) -> Self:
        """Wait until the call is decided, and return this handle; an approved call has not run yet.

        Args:
            timeout: Seconds, or a duration such as `"90s"`; no limit by default. The request stays pending.

        Raises:
            ConfirmationRequired: The timeout passed.
            ConfirmationRejected: Or a subclass: the call was rejected.
        """
        driven(self._waiting(timeout))
        return self

    def once(self, function: Callable[[dict[str, Any]], R]) -> R:
        """Run `function(arguments)` if the call was approved and has not run, and return its result.

        Everybody who asks with the same key gets the same result, even in other threads and processes: they wait for
        the one that runs. `function` gets the approved arguments. An exception that it raises is recorded and raised.

        Raises:
            ConfirmationRequired: Nobody has decided yet.
            ConfirmationRejected: The call was rejected.
            CallFailedError: It ran elsewhere and failed.
            OutcomeUnknownError: It was started, and its outcome is unknown.
        """
        return driven(self._once(function)).unwrap()

    def start(self, *, by: str | None = None) -> dict[str, Any]:
        """Take the single right to run the call, durable on return, and return the approved arguments.

        Then record in this process how it ended: `finish`, `fail` or `unknown`. If the process ends before, it is
        `unknown`. `by` names another process that runs the call (`sayso.stores.workers`) and ends it with
        `request.execution.token`.

        Raises:
            ConfirmationRequired: Nobody has decided yet.
            ConfirmationRejected: The call was rejected, or nobody waits for it any more, as with `once`.
            StartRefusedError: Somebody else has started it; the caller must not run it.
            ConfigError: `by` is no name.
        """
        return driven(self._starting(by))

    def finish(self, result: Any = None) -> None:
        """Record that the call was done, and its result. Durable on return.

        Raises:
            StartRefusedError: This handle has not started the call, or has already recorded its outcome.
            OutcomeNotRecordedError: The outcome could not be recorded (also `fail` and `unknown`). Try again.
        """
        driven(self._ending(Attempt(result, None)))

    def fail(self, error: Exception | str) -> None:
        """Record that the call failed and certainly had no effect. Durable on return."""
        driven(self._ending(Attempt(None, as_error(error))))

    def unknown(self, error: BaseException | str) -> None:
        """Record that it is unknown whether the call had its effect. Durable on return."""
        driven(self._ending(Attempt(None, as_error(error), is_ambiguous=True)))

    def withdraw(self, reason: str | None = None) -> None:
        """Withdraw the request if it is pending, or approved and not started."""
        driven(self._withdrawing(reason))

    def send_back(self, *problems: str) -> None:
        """Return an approved edit to its reviewers because the tool rejects their changes.

        The reviewers read `problems`, so these must not contain values of arguments. Does nothing if the request is not
        an approved edit (any more).
        """
        driven(self._sending_back(problems))

    def result(self, timeout: timedelta | str | float | None = None) -> Any:
        """Return the result of the call, whoever ran it; wait for the decision and the end, but start nothing.

        Raises:
            NotApprovedError: It is approved, and nobody has started it.
            TimeoutError: It is still running after the timeout.
            ConfirmationRequired, ConfirmationRejected, CallFailedError, OutcomeUnknownError: As for `once`.
            ValueNotKeptError: It is done, but its result was not kept (it has no key, or the result is over 1 MB).
        """
        return driven(self._resulting(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        driven(self._leaving(error))


def _span(timeout: timedelta | str | float | None) -> timedelta | None:
    if isinstance(timeout, int | float):
        return max(timedelta(seconds=timeout), timedelta(microseconds=1))
    return None if timeout is None else duration.option("timeout", timeout)


def as_error(error: BaseException | str) -> BaseException:
    """Return the exception to record if the program gives only a text."""
    return error if isinstance(error, BaseException) else RuntimeError(error)


def _not_startable(request: Request) -> Exception:
    match request.state:
        case State.PENDING:
            return exceptions.ConfirmationRequired.of(request)
        case State.UNKNOWN:
            return errors.OutcomeUnknownError(request.id)
        case state if state in _NOES:
            return exceptions.refused(request)
        case _:
            return already_started(request)


def _over(waiter: Waiter, operations: Operations[R]) -> Operations[R]:
    """Run operations that may wait; if they are interrupted, withdraw what nobody waits for any more."""
    try:
        return (yield from operations)
    except BaseException as error:
        yield from waiter.break_off(error)
        raise
    finally:
        waiter.close()


def driven(operations: Operations[R]) -> R:
    """Run operations to their end in this thread; tracebacks of their errors point at the program's own line."""
    try:
        return drive(operations)
    except BaseException as error:
        trim(error)
        raise
