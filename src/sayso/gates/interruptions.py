"""Detects that nobody waits for a call any more: cancelled jobs of thread pools, and Ctrl-C.

A wait in a thread does not notice by itself that its asyncio task was cancelled or that the program is ending.
`jobs_in_context` has the opposite: the threads that still run for a call that has ended.
"""

from __future__ import annotations

import inspect
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from types import FrameType
from typing import Any
from weakref import ref

_POOLS = {"concurrent.futures.process", "multiprocessing.pool", "multiprocess.pool", "trio._core._thread_cache"}
_SERVERS = {
    "billiard", "celery", "cheroot", "distributed", "dramatiq", "eventlet", "gevent", "gunicorn", "huey", "joblib",
    "loky", "ray", "socketserver", "twisted", "waitress",
}  # fmt: skip


class Job:
    """A job of a pool's thread.

    Args:
        pool: Describes the pool, for errors.
        future: The job's own future. If it cannot be found (None), the job always counts as over.
        cancel_scope: anyio's scope around it.
        is_lent: Whether its caller passed its own context, as `asyncio.to_thread` does.
    """

    def __init__(self, pool: str, future: Any = None, cancel_scope: Any = None, *, is_lent: bool = False) -> None:
        self.pool, self.is_lent = pool, is_lent
        # Weak: a thread remembers its last job until it gets another, and would keep the job's result alive.
        self._future, self._cancel_scope = _ref(future), _ref(cancel_scope)

    @property
    def is_over(self) -> bool:
        """Whether the thread may now be running another job."""
        future = self._future()
        return future is None or future.done()

    @property
    def is_given_up(self) -> bool:
        """Whether the task that waited for it was cancelled."""
        awaited, cancel_scope = _awaited(self._future()), self._cancel_scope()
        if awaited is not None and awaited.cancelled():
            return True
        while cancel_scope is not None:  # as in `anyio.from_thread.check_cancelled`
            if cancel_scope.cancel_called:
                return True
            cancel_scope = None if cancel_scope.shield else getattr(cancel_scope, "_parent_scope", None)
        return False

    def when_given_up(self, callback: Callable[[], None]) -> Callable[[], None] | None:
        """Call back when the task that waits for the job is cancelled; the returned function undoes that.

        Returns None if no task waits, perhaps only not yet: a thread may begin its job before anybody waits for it. An
        anyio scope has no callback, so `is_given_up` must be polled.
        """
        awaited = _awaited(self._future())
        return None if awaited is None else when_done(awaited, callback)


def when_done(future: Any, callback: Callable[[], None]) -> Callable[[], None]:
    """Call back when an asyncio task or future of another thread's loop is done; the returned function undoes that.

    If the loop is closed, `callback` is called at once, because nothing else ever would. The future may also be an
    executor's; that is not undone.
    """

    def on_done(_: object) -> None:
        callback()

    if not hasattr(future, "get_loop"):
        future.add_done_callback(on_done)
        return _nothing
    loop = future.get_loop()
    try:
        loop.call_soon_threadsafe(future.add_done_callback, on_done)
    except RuntimeError:
        callback()
        return _nothing

    def undo() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(future.remove_done_callback, on_done)

    return undo


def job() -> Job | None:
    """Return the job of this thread; None if the thread is the program's own.

    The names by which `_FINDS` finds a job are private to their libraries. A thread of theirs in which they are not
    found counts as a pool's, with a job that is over.
    """
    frame, thread = inspect.currentframe(), threading.current_thread()
    strange = type(thread).__module__ if type(thread).__module__ in _FINDS else None  # anyio's has its own class
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module in _FINDS:
            found = _FINDS[module](frame.f_code.co_name, frame)
            if found is not None:
                return found
            strange = module if module == _EXECUTOR else strange
        if module in _POOLS or module.partition(".")[0] in _SERVERS:
            return Job(module)
        frame = frame.f_back
    if strange is not None:
        return Job(strange)
    return Job("a thread that Python did not start") if type(thread).__name__ == "_DummyThread" else None


def jobs_in_context() -> list[tuple[Any, Context]]:
    """Return the future and the context of each job that another thread runs for `asyncio.to_thread` or the like."""
    me, found = threading.get_ident(), list[tuple[Any, Context]]()
    for thread, last in sys._current_frames().items():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  nothing else tells what other threads are at
        frame: FrameType | None = None if thread == me else last
        while frame is not None:
            if frame.f_globals.get("__name__") == _EXECUTOR and frame.f_code.co_name == "run":
                future, context = _item(frame)
                if isinstance(context, Context) and not future.done():
                    found.append((future, context))
            frame = frame.f_back
    return found


def _item(frame: FrameType) -> tuple[Any, Any]:
    """Return the future of the job that an executor's thread runs, and the object whose method it calls."""
    item = frame.f_locals.get("self")
    work = getattr(item, "fn", None) or getattr(item, "task", (None,))[0]
    return getattr(item, "future", None), getattr(getattr(work, "func", work), "__self__", None)


def _of_executor(function: str, frame: FrameType) -> Job | None:
    future, lent = _item(frame) if function == "run" else (None, None)
    return None if future is None else Job("concurrent.futures", future, is_lent=isinstance(lent, Context))


def _awaited(future: Any) -> Any:
    """Return the asyncio future by which a task waits for a job; for an executor's, only a callback knows it."""
    if hasattr(future, "get_loop"):
        return future
    for callback in list(getattr(future, "_done_callbacks", ())):
        names = getattr(getattr(callback, "__code__", None), "co_freevars", ())
        if "destination" in names:
            return callback.__closure__[names.index("destination")].cell_contents
    return None


def _of_anyio(function: str, frame: Any) -> Job | None:
    names: Mapping[str, Any] = frame.f_locals if function == "run" else {}
    if "future" not in names:
        return None
    return Job("anyio", names["future"], names.get("cancel_scope"))


_EXECUTOR = "concurrent.futures.thread"
_FINDS: Mapping[str, Callable[[str, Any], Job | None]] = {
    _EXECUTOR: _of_executor,
    "anyio._backends._asyncio": _of_anyio,
}


def _ref(thing: Any) -> Callable[[], Any]:
    return _nothing if thing is None else ref(thing)


def _nothing() -> None:
    return None


PACE = 0.25
"""Seconds between two polls of what sends no signal: Ctrl-C in the main thread, a cancel scope of anyio."""

_looked = (float("-inf"), False)  # when this process last checked for Ctrl-C, and the result


def is_interrupted() -> bool:
    """Return whether Ctrl-C is ending the program, so that its main thread only waits for its other threads to end.

    All threads share one check per `PACE`: Python lists the frames of every thread for it, and a thousand threads that
    checked on their own used more than one core.
    """
    global _looked  # noqa: PLW0603  two threads that check at once only get the same result twice
    now, (at, answer) = time.monotonic(), _looked
    if now - at < PACE:
        return answer
    _looked = now, answer  # before the check, so that no other thread does it meanwhile
    _looked = now, _is_main_thread_interrupted()
    return _looked[1]


def interrupted_runner() -> object | None:
    """Return the `asyncio.Runner` (also of `asyncio.run`) that Ctrl-C is ending; None if there is none.

    It cancels its tasks, and raises `KeyboardInterrupt` only after they have ended.
    """
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return runner if getattr(runner, "_interrupt_count", 0) else None


def _is_main_thread_interrupted() -> bool:
    main = threading.main_thread().ident
    frame = sys._current_frames().get(main or 0)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  nothing else tells what another thread is at
    is_shutdown = is_joining = False
    while frame is not None:
        at = frame.f_globals.get("__name__"), frame.f_code.co_name
        is_shutdown = is_shutdown or at == ("threading", "_shutdown")
        is_joining = is_joining or at in _JOINING
        frame = frame.f_back
    if is_shutdown:
        return isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
    if not is_joining:
        return False
    handled: Any = sys._current_exceptions().get(main or 0)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  as above
    return isinstance(handled[1] if isinstance(handled, tuple) else handled, KeyboardInterrupt)


_JOINING = {("threading", "join"), ("concurrent.futures.thread", "shutdown"), ("asyncio.runners", "close")}
"""Where the main thread waits for other threads. A runner that closes waits for those of `asyncio.to_thread`."""
