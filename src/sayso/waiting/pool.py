"""What a thread of a pool is at work on: which threads serve many callers, and whether anybody still waits for the job.

Python keeps no list of pools, so they are found on the thread's own stack: a frame of `concurrent.futures`,
`multiprocessing.pool`, anyio or a known server says that this thread takes one job after another, and a thread that
Python did not start itself (mod_wsgi, uWSGI, gevent) counts as one. A loop of the program's own in a plain
`threading.Thread` cannot be told from a thread that does one job.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any
from weakref import ref

__all__ = ["Job", "job", "when_done"]

_POOLS = {"concurrent.futures.process", "multiprocessing.pool", "multiprocess.pool", "trio._core._thread_cache"}
_SERVERS = {
    "billiard", "celery", "cheroot", "distributed", "dramatiq", "eventlet", "gevent", "gunicorn", "huey", "joblib",
    "loky", "ray", "socketserver", "twisted", "waitress",
}  # fmt: skip


class Job:
    """One job of a pool's thread.

    Args:
        pool: What the thread belongs to, as words for an error.
        future: The job's own future; None where it cannot be found, and then a job is over as soon as it is met.
        cancel_scope: anyio's scope around it.
        is_lent: Its caller handed it its own context, as `asyncio.to_thread` does.
    """

    def __init__(self, pool: str, future: Any = None, cancel_scope: Any = None, *, is_lent: bool = False) -> None:
        self.pool, self.is_lent = pool, is_lent
        # Not kept alive: a thread remembers its last job until it gets another, and would keep the job's result.
        self._future, self._cancel_scope = _ref(future), _ref(cancel_scope)

    @property
    def is_over(self) -> bool:
        """Whether the thread may be at another job by now."""
        future = self._future()
        return future is None or future.done()

    @property
    def is_given_up(self) -> bool:
        """Whether the task that waited for it was cancelled."""
        awaited, cancel_scope = _awaited(self._future()), self._cancel_scope()
        if awaited is not None and awaited.cancelled():
            return True
        while cancel_scope is not None:  # as `anyio.from_thread.check_cancelled` looks
            if cancel_scope.cancel_called:
                return True
            cancel_scope = None if cancel_scope.shield else getattr(cancel_scope, "_parent_scope", None)
        return False

    def when_given_up(self, tell: Callable[[], None]) -> Callable[[], None] | None:
        """Call `tell` when the task that waits for it is cancelled; the returned function takes that back.

        Returns None where no task waits, or not yet: a thread may be at its job before anybody waits for it. A scope of
        anyio tells nobody, so `is_given_up` has to be asked now and then.
        """
        awaited = _awaited(self._future())
        return None if awaited is None else when_done(awaited, tell)


def when_done(future: Any, tell: Callable[[], None]) -> Callable[[], None]:
    """Call `tell` from any thread when an asyncio task or future of another thread's loop is done; return the undoing.

    Where its loop is closed nobody will ever be told, so `tell` is called at once.
    """

    def told(_: object) -> None:
        tell()

    loop = future.get_loop()
    try:
        loop.call_soon_threadsafe(future.add_done_callback, told)
    except RuntimeError:
        tell()
        return _nothing

    def forget() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(future.remove_done_callback, told)

    return forget


def job() -> Job | None:
    """Return the job of this thread; None where the thread is the program's own."""
    frame = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        found = _FINDS[module](frame.f_code.co_name, frame) if module in _FINDS else None
        if found is not None:
            return found
        if module in _POOLS or module.partition(".")[0] in _SERVERS:
            return Job(module)
        frame = frame.f_back
    if type(threading.current_thread()).__name__ == "_DummyThread":
        return Job("a thread that Python did not start")
    return None


def _of_executor(function: str, frame: Any) -> Job | None:
    item = frame.f_locals.get("self") if function == "run" else None
    future = getattr(item, "future", None)
    if future is None:
        return None
    work = getattr(item, "fn", None) or getattr(item, "task", (None,))[0]
    lent = getattr(getattr(work, "func", work), "__self__", None)
    return Job("concurrent.futures", future, is_lent=isinstance(lent, Context))


def _awaited(future: Any) -> Any:
    """Return the asyncio future by which a task waits for a job: of one of an executor only a callback knows it."""
    if hasattr(future, "get_loop"):
        return future
    for callback in list(getattr(future, "_done_callbacks", ())):
        names = getattr(getattr(callback, "__code__", None), "co_freevars", ())
        if "destination" in names:
            return callback.__closure__[names.index("destination")].cell_contents
    return None


def _of_anyio(function: str, frame: Any) -> Job | None:
    names: Mapping[str, Any] = frame.f_locals if function == "run" else {}
    if "cancel_scope" not in names or "future" not in names:
        return None
    return Job("anyio", names["future"], names["cancel_scope"])


_FINDS: Mapping[str, Callable[[str, Any], Job | None]] = {
    "concurrent.futures.thread": _of_executor,
    "anyio._backends._asyncio": _of_anyio,
}


def _ref(thing: Any) -> Callable[[], Any]:
    return _nothing if thing is None else ref(thing)


def _nothing() -> None:
    return None
