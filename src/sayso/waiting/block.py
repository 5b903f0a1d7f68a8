"""Waiting where the call stands: on a terminal by asking there, elsewhere by saying where the request can be decided.

The wait ends when the request changes, whoever changed it and through whichever channel. It costs no thread: sync
callers wait in their own, tasks on an event; one watcher per process wakes them all (see `sayso.stores.watch`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from sayso import clock, telemetry
from sayso.drive import Effect, Effects, offload
from sayso.errors import ConfigError, StoreUnavailableError
from sayso.gates.declared import span_of
from sayso.model.lifecycle import is_due
from sayso.model.request import Request, State
from sayso.stores.base import Store
from sayso.view.summary import is_random
from sayso.waiting import signals, stop, terminal
from sayso.waiting.waiter import Waiter

if TYPE_CHECKING:
    import asyncio

__all__ = ["Block", "block_of"]

# Everything that ends a wait wakes it; this look now and then is for a store whose other machines do not.
_LOOK_AGAIN = 5.0
_SOON = 0.05  # a server's clock may be behind this one's: until it agrees that the end is reached, it is asked calmly


class Block:
    """How long to wait, and what a request that expires meanwhile means.

    Args:
        timeout: How long a call stands there, however often it asks anew; None without end. The request itself is not
            touched.
        on_expiry: `reject` raises, `ask` returns, so that the caller asks anew.
        is_quiet: Nothing is shown or asked here: a channel carries the request to a person.
    """

    def __init__(
        self, timeout: timedelta | None, on_expiry: Literal["reject", "ask"], *, is_quiet: bool = False
    ) -> None:
        self._timeout = timeout
        self._on_expiry = on_expiry
        self._is_quiet = is_quiet

    def until_decided(self, store: Store, request: Request, waiter: Waiter) -> Effects[Request]:
        """Wait until the request is no longer pending, and return it.

        Args:
            store: Where the request lives.
            request: For what to wait.
            waiter: What may end the wait.

        Raises:
            ConfirmationRequired: The timeout passed, or the person at the terminal detached; it is still pending.
            ConfirmationExpired: It expired, and `on_expiry` says that this is a no.
            ConfirmationCancelled: Nobody waits any more, because the run was left or its task has ended.
        """
        waiter.stands_at(request)
        if waiter.deadline is None and self._timeout is not None:  # set once: what is asked anew gets no new time
            waiter.deadline = time.monotonic() + self._timeout.total_seconds()
        decided = _Decided(store, request, waiter, self._is_quiet)
        after: Request = yield telemetry.waiting(request, decided)
        waiter.must_go_on(after)
        if after.state is State.PENDING and decided.was_left and is_random(after.run_id):
            waiter.end("the person at the terminal left it, and nobody can come back to a run without a name")
            waiter.must_go_on(after)
        if after.state is State.PENDING:
            raise waiter.come_back_later(after, f"timeout={self._timeout}")
        if after.state is State.EXPIRED and self._on_expiry == "reject":
            raise signals.refused(after)
        return after


def block_of(wait: str, timeout: timedelta | str | None, on_expiry: str) -> Block | None:
    """Return how to wait as a gate's or a question's options say; None for `wait="raise"`.

    Raises:
        ConfigError: One of them cannot be used.
    """
    span = None if timeout is None else span_of("timeout", timeout)
    match wait, on_expiry:
        case "raise", ("reject" | "ask") if span is not None:
            raise ConfigError("timeout= is how long to stand at the gate, and wait='raise' does not stand there")
        case "raise", ("reject" | "ask"):
            return None
        case "block", ("reject" | "ask"):
            return Block(span, on_expiry)
        case (("block" | "raise"), _):
            raise ConfigError(f"on_expiry= takes 'reject' or 'ask', not {on_expiry!r}")
        case _:
            raise ConfigError(f"wait= takes 'block' or 'raise', not {wait!r}")


class _Decided(Effect):
    """Wait until a request is decided, time is over, or the person detaches; gives the request as it is then."""

    def __init__(self, store: Store, request: Request, waiter: Waiter, is_quiet: bool) -> None:  # noqa: FBT001  private
        self._store, self._request, self._waiter, self._is_quiet = store, request, waiter, is_quiet
        self._until = waiter.deadline
        self._is_asked = False

    @property
    def was_left(self) -> bool:
        """Whether the person at the terminal ended a wait that was not over."""
        return self._is_asked and (self._until is None or time.monotonic() < self._until)

    def _look(self) -> Request:
        try:
            look: Callable[[str], Request] = getattr(self._store, "as_heard", self._store.get)
            request = look(self._request.id)
            return self._store.settle(request.id) if is_due(request, clock.now()) else request
        except StoreUnavailableError:
            if terminal.can_decide(self._store) or is_due(self._request, clock.now()):
                raise
            return self._request  # a server that is away ends no wait; what was decided is heard when it is back

    def _seconds(self, request: Request) -> float:
        """Return how long to sleep before looking again; zero or less when the time is over."""
        look_again: float = getattr(self._store, "look_again", _LOOK_AGAIN)
        ends = [look_again, max(_SOON, (request.expires_at - clock.now()).total_seconds())]
        if self._until is not None:
            ends.append(self._until - time.monotonic())
        return min(ends)

    def run(self) -> Request:
        wake = threading.Event()
        unwatch = self._store.watch(self._request.id, wake.set)
        try:
            with self._waiter.waking(wake.set), stop.told(self._last_words):
                if self._is_shown_at_terminal():
                    return terminal.converse(
                        self._store, self._request, lambda: self._is_over(self._look()), self._is_left
                    )
                return self._wait(wake)
        except KeyboardInterrupt:
            terminal.say_goodbye(self._store, self._request, is_interrupted=True)
            raise
        finally:
            unwatch()

    def _is_shown_at_terminal(self) -> bool:
        """Say whether to ask here; where that cannot be, say what waits."""
        if self._is_quiet:
            return False
        if not (terminal.is_there() and terminal.can_decide(self._store)):
            terminal.announce(self._store, self._request)
            return False
        self._is_asked = True
        return True

    def _last_words(self) -> list[str]:
        return terminal.last_words(self._store, self._request)

    def _is_left(self) -> bool:
        return self._waiter.reason is not None

    def _is_over(self, request: Request) -> bool:
        return request.state is not State.PENDING or self._is_left() or self._seconds(request) <= 0

    def _wait(self, wake: threading.Event) -> Request:
        while True:
            wake.clear()
            request = self._look()
            if self._is_over(request):
                return request
            self._waiter.sleep(wake, self._seconds(request))

    async def arun(self) -> Request:
        import asyncio

        loop, wake = asyncio.get_running_loop(), asyncio.Event()

        def wake_from_any_thread() -> None:
            with suppress(RuntimeError):  # the loop may be closed by now: no matter of whoever changed the request
                loop.call_soon_threadsafe(wake.set)

        unwatch = self._store.watch(self._request.id, wake_from_any_thread)
        try:
            with self._waiter.waking(wake_from_any_thread), stop.told(self._last_words):
                if self._is_shown_at_terminal():
                    return await self._converse()
                return await self._await(wake)
        except KeyboardInterrupt:
            terminal.say_goodbye(self._store, self._request, is_interrupted=True)
            raise
        finally:
            unwatch()

    async def _await(self, wake: asyncio.Event) -> Request:
        import asyncio

        while True:
            wake.clear()
            request = await self._alook()
            if self._is_over(request):
                return request
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes together with a wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds(request)):
                    await wake.wait()

    async def _alook(self) -> Request:
        return await offload(self._look) if self._store.blocks else self._look()

    async def _converse(self) -> Request:
        import asyncio

        is_left = threading.Event()
        left: Callable[[], bool] = lambda: is_left.is_set() or self._is_left()  # noqa: E731  (a closure over `is_left`)
        over: Callable[[], bool] = lambda: is_left.is_set() or self._is_over(self._look())  # noqa: E731  (a closure over `is_left`)
        talk = asyncio.ensure_future(asyncio.to_thread(terminal.converse, self._store, self._request, over, left))
        try:
            return await asyncio.shield(talk)
        finally:
            is_left.set()  # a cancelled task leaves no thread at the terminal
