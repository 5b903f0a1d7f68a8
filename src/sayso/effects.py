"""Side effects as operations: code that calls user functions and stores, written once for sync and async callers.

Such code is a generator that yields operations (`StoreCall`, `UserCall`, `HookCall`, or one of its own) and receives
their results. `Attempt` is how a call of the gated function ended. `drive` runs each operation in place. `adrive`
awaits awaitables and runs blocking store calls in a small thread pool; if its task is cancelled, it first waits until
the running store call has ended. A sync function of the user goes on in its thread then: `Attempt.left` says what of a
call still runs (`InThread`, `InTasks`), so that its real end can be recorded. Also here: daemon threads, and what a
forked child resets.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from functools import cache, partial
from opcode import opmap
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, cast

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")


class Operation(Protocol):
    """Something that a generator wants done. Its result or error is sent back into the generator."""

    def __call__(self) -> Any:
        """Do it in this thread."""
        ...

    def arun(self) -> Coroutine[Any, Any, Any]:
        """Do it without blocking the event loop."""
        ...


Operations = Generator[Operation, Any, T]


class StoreCall(partial[Any]):
    """A call of a store method, or of a function whose first argument is the store.

    A bare `partial`, because each call through a gate makes five of these.
    """

    def arun(self) -> Coroutine[Any, Any, Any]:
        """Run in the thread pool, unless the store never blocks."""
        store = getattr(self.func, "__self__", None)
        if store is None:
            store = self.args[0]
        return offload(self) if getattr(store, "blocks", True) else at_once(self)


class HookCall:
    """A call of a rule, prompt or other hook, which may be async if the gated function is. Its error is raised.

    Args:
        function: The hook.
        kwargs: Its arguments.
        snapshot: Returns a value that must not change while an async hook is awaited and other tasks run.

    Attributes:
        kwargs: The arguments.
        has_moved: Whether `snapshot` returned something else after the await.
    """

    has_moved = False

    def __init__(
        self, function: Callable[..., Any], kwargs: Mapping[str, Any], snapshot: Callable[[], object] | None = None
    ) -> None:
        self._function, self.kwargs, self._snapshot = function, kwargs, snapshot

    def __call__(self) -> Any:
        value = self._function(**self.kwargs)
        if value is not True and value is not False and inspect.isawaitable(value):  # most rules return a bool
            close = getattr(value, "close", None)
            if close is not None:
                close()  # otherwise Python would warn elsewhere that the coroutine was never awaited
            raise TypeError("is async, so the gated function must be async too")
        return value

    async def arun(self) -> Any:
        value = self._function(**self.kwargs)
        if not inspect.isawaitable(value):
            return value
        before = None if self._snapshot is None else self._snapshot()
        value = await value
        self.has_moved = self._snapshot is not None and self._snapshot() != before
        return value


class Pause(NamedTuple):
    """Sleep for some seconds."""

    seconds: float

    def __call__(self) -> None:
        time.sleep(self.seconds)

    async def arun(self) -> None:
        import asyncio

        await asyncio.sleep(self.seconds)


class Attempt(NamedTuple):
    """How a call of the gated function ended: with a value or with an exception.

    Attributes:
        is_ambiguous: The exception does not say whether the call took effect. Set by `execute`.
        is_without_effect: The exception says that the call certainly did nothing (`NotExecuted`).
        left: Where the call goes on: in the thread whose task was cancelled or closed, or in tasks that it started.
    """

    value: Any
    raised: BaseException | None
    is_ambiguous: bool = False
    is_without_effect: bool = False
    left: InThread | InTasks | None = None

    def unwrap(self) -> Any:
        """Return the value, or raise what was raised."""
        if self.raised is not None:
            raise self.raised
        return self.value


def left_to_run(value: Any) -> tuple[str, bool] | None:
    """Describe a result that still has work of the call to do, and say whether that work may have begun.

    A generator or coroutine that has not begun is closed, so that it never runs. Returns None for any other result.
    """
    kind = cast("type[Any]", type(value))  # `isinstance` would read `__class__`, which user code may override to raise
    inside: Any = getattr(value, "gen", None) if kind.__module__ == "contextlib" else value
    if issubclass(type(inside), _LATER):
        has_begun = _has_begun(inside)
        if not has_begun and not isinstance(inside, AsyncGeneratorType):
            with suppress(Exception):  # user code
                inside.close()
        named = "a coroutine" if isinstance(inside, CoroutineType) else "a generator"
        return named if inside is value else "a context manager", has_begun
    executors: Any = sys.modules.get("concurrent.futures")
    is_lazy = kind in _LAZY or kind.__module__ == "multiprocessing.pool"  # nobody can tell how far it was read
    if is_lazy or hasattr(kind, "__await__") or (executors is not None and issubclass(kind, executors.Future)):
        return f"a {kind.__name__}", True
    return None


def _has_begun(inside: Any) -> bool:
    """Return whether a generator or coroutine may have begun; that of `Executor.map` has given its calls to a pool."""
    if type(inside) is AsyncGeneratorType and sys.version_info < (3, 12):  # inspect does not tell
        made = inside.ag_frame
        return inside.ag_running or made is None or made.f_code.co_code[made.f_lasti] != opmap["RETURN_GENERATOR"]
    if not getattr(inspect, _STATES[type(inside)])(inside).endswith("_CREATED"):
        return True
    frame = getattr(inside, "gi_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("concurrent.futures.")


_LAZY = {
    map, filter, itertools.accumulate, itertools.dropwhile, itertools.filterfalse, itertools.groupby, itertools.starmap,
    itertools.takewhile,
}  # fmt: skip
_STATES: Mapping[type, str] = {
    AsyncGeneratorType: "getasyncgenstate", CoroutineType: "getcoroutinestate", GeneratorType: "getgeneratorstate",
}  # fmt: skip
_LATER = tuple(_STATES)


class Suspended(BaseException):
    """Raised by a call that pauses to wait for a person. It has not ended, and may be started again once approved."""


class UserCall(NamedTuple):
    """A call of the gated function. Its result is an `Attempt`, also if the function raises.

    A sync function with an async caller runs in a thread. `token` is that of its start, whose lease lasts as long as a
    thread has the call.
    """

    is_of_user = True  # also an attribute of what wraps one; other operations do not have it

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    token: str | None = None

    def __call__(self) -> Attempt:
        try:
            return Attempt(self.function(*self.args, **self.kwargs), None)
        except BaseException as error:  # noqa: BLE001  user code; recorded by the gate, then raised again unchanged
            return Attempt(None, error)

    async def arun(self) -> Attempt:
        try:
            if inspect.iscoroutinefunction(self.function):
                return Attempt(await self.function(*self.args, **self.kwargs), None)
            return await in_thread(self)
        except BaseException as error:  # noqa: BLE001  user code, and a cancellation of the task that runs it
            # Taken off the error, which may go on to the call of a function that made this one: that did end here.
            left = error.__dict__.pop("_sayso_left", None)
            _closed.left, _closed.inside = _closed.inside, None
            return Attempt(None, error, left=left)


class _Closed(threading.local):
    """The calls that still run in a thread while their coroutines are being closed, which loses each `await`'s value.

    Attributes:
        inside: Set by the `in_thread` that is being closed, for the `UserCall` around it.
        left: Set by that, for the `adrive` around it.
    """

    inside: InThread | None = None
    left: InThread | None = None


_closed = _Closed()


class InThread:
    """A sync call in a thread, which goes on when the task that waits for it is cancelled."""

    def __init__(self, call: UserCall) -> None:
        self._call, self._lock = call, threading.Lock()
        self._has_begun = self._is_left = False
        self._attempt: Attempt | None = None
        self._then: Callable[[Attempt], object] | None = None

    def __call__(self) -> Attempt:
        with self._lock:  # so that a call that is left before it has begun does not begin, as with a cancelled future
            if self._is_left:
                return Attempt(None, None)
            self._has_begun = True
        attempt = self._call()
        with self._lock:
            self._attempt, then = attempt, self._then
        if then is not None:
            then(attempt)
        return attempt

    def left(self) -> Self | None:
        """Return this if the call goes on, although nobody waits for it any more; None if it never began."""
        with self._lock:
            self._is_left = True
            return self if self._has_begun else None

    def when_ended(self, then: Callable[[Attempt], object]) -> None:
        """Call `then` in the thread when the call has ended; here, if it has."""
        with self._lock:
            self._then = then
            attempt = self._attempt
        if attempt is not None:
            then(attempt)


class InTasks:
    """A call that has ended with an error, while asyncio tasks or threads (`asyncio.to_thread`) that it started go on.

    Args:
        attempt: How it ended.
        when_one_ended: Calls back when one of them has ended, before which it may have started others; returns False
            if none goes on.
    """

    def __init__(self, attempt: Attempt, when_one_ended: Callable[[Callable[[], None]], bool]) -> None:
        self.attempt, self._when_one_ended = attempt._replace(left=self), when_one_ended

    def when_ended(self, then: Callable[[Attempt], object]) -> None:
        """Call `then` in the pool when the last of them has ended."""
        if not self._when_one_ended(partial(self.when_ended, then)):
            with suppress(RuntimeError):  # the interpreter ends, and then this process is gone
                _pool().submit(then, self.attempt)


async def in_thread(call: UserCall) -> Attempt:
    """Run a sync call in a thread. If this task is cancelled, the exception has the `InThread` that still runs."""
    import asyncio

    running = InThread(call)
    try:
        # The thread returns the error in an Attempt: a future rejects StopIteration and would never be done.
        return await asyncio.to_thread(running)
    except BaseException as error:
        left = running.left()
        error._sayso_left = left  # type: ignore[attr-defined]  # noqa: SLF001  an attribute of ours on it
        _closed.inside = left if isinstance(error, GeneratorExit) else None
        raise


def drive(operations: Operations[T], value: Any = None) -> T:
    """Run a generator of operations to its end in this thread.

    Args:
        operations: The generator.
        value: The result of its last operation if the generator has already begun, else None.
    """
    try:
        operation = operations.send(value)
        while True:
            try:
                value = operation()
            except BaseException as error:  # noqa: BLE001  it belongs to the generator, which decides what to do about it
                operation = operations.throw(error)
            else:
                operation = operations.send(value)
    except StopIteration as end:
        return end.value


async def adrive(operations: Operations[T]) -> T:
    """Run a generator of operations to its end in this task."""
    try:
        operation = next(operations)
        while True:
            try:
                value = await operation.arun()
            except GeneratorExit as closed:
                if not getattr(operation, "is_of_user", False):
                    raise
                # The coroutine is closed in mid-call, so nothing can be awaited any more: record it synchronously.
                left, _closed.left = _closed.left, None
                return drive(operations, Attempt(None, closed, left=left))
            except BaseException as error:  # noqa: BLE001  it belongs to the generator, which decides what to do about it
                operation = operations.throw(error)
            else:
                operation = operations.send(value)
    except StopIteration as end:
        return end.value


def in_forked_child(reset: Callable[[], T]) -> Callable[[], T]:
    """Call a function in each forked child: it has the parent's locks and pools, but not the threads that use them."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return reset


def daemon_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread and return it; raises if none could be started, and the next caller tries again."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(8, thread_name_prefix="sayso")


in_forked_child(_pool.cache_clear)


async def at_once(function: Callable[[], T]) -> T:
    """Run a function that does not block, where a coroutine is expected."""
    return function()


async def until_done(work: asyncio.Future[Any]) -> None:
    """Wait until a future is done. If this task is cancelled meanwhile, raise the cancellation afterwards."""
    import asyncio

    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine to its end, although this task is cancelled meanwhile or again and again.

    It runs in a task of its own, because a cancelled scope of anyio cancels each await inside it, even of a clean-up.
    """
    import asyncio

    task = asyncio.ensure_future(work)
    await until_done(task)
    return task.result()


async def offload(function: Callable[[], T]) -> T:
    """Run a blocking function in the pool. If the task is cancelled meanwhile, the function still finishes first."""
    import asyncio
    import contextvars

    # The thread returns an error in an Attempt: a future rejects StopIteration and would never be done.
    call, run = UserCall(function, (), {}), contextvars.copy_context().run
    work = asyncio.get_running_loop().run_in_executor(_pool(), run, call)
    await until_done(work)
    return work.result().unwrap()
