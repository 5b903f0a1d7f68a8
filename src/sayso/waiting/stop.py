"""What a wait has to do with a program that is made to end: SIGTERM is told what waits, and Ctrl-C is not held up.

A process that dies of SIGTERM says nothing by itself; it is told only where the program left the signal alone, in its
main thread, and for as long as it waits. Ctrl-C is raised in the main thread alone, which then waits for its other
threads. Invariant: the program dies of the signal exactly as it would have without us.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["PACE", "is_interrupted", "told"]

PACE = 0.25
"""Seconds between two looks at what tells nobody: Ctrl-C in the main thread, a cancel scope of anyio."""

_last_words: dict[object, Callable[[], Sequence[str]]] = {}
_looked = (float("-inf"), False)  # when this process looked for Ctrl-C, and what it saw


def is_interrupted() -> bool:
    """Say whether Ctrl-C is ending the program, and its main thread only waits for its other threads to end.

    All threads share one look in each `PACE`: Python lists the frames of every thread for it, so that a thousand
    threads that looked for themselves took more than one core.
    """
    global _looked  # noqa: PLW0603  two threads that look at once only see the same twice
    now, (at, answer) = time.monotonic(), _looked
    if now - at < PACE:
        return answer
    _looked = now, answer  # before the look, so that no other thread takes one meanwhile
    _looked = now, _is_main_thread_interrupted()
    return _looked[1]


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


_JOINING = {("threading", "join"), ("concurrent.futures.thread", "shutdown")}


@contextmanager
def told(rows: Callable[[], Sequence[str]]) -> Generator[None]:
    """Say `rows()` on stderr if SIGTERM ends the program inside the block.

    Args:
        rows: Called in a signal handler: it must not take a lock.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread
        return
    mine = object()
    _last_words[mine] = rows
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        _listen(_die)
    try:
        yield
    finally:
        _last_words.pop(mine, None)
        if not _last_words and signal.getsignal(signal.SIGTERM) is _die:
            _listen(signal.SIG_DFL)


def _listen(handler: Any) -> None:
    with suppress(ValueError):  # an interpreter beside the main one, which may set none
        signal.signal(signal.SIGTERM, handler)


def _die(number: int, _: object) -> None:
    with suppress(Exception):  # nothing that fails here may keep the program from ending
        rows = [row for words in list(_last_words.values()) for row in words()]
        # Not `sys.stderr`: its buffer may be in the middle of a write.
        os.write(2, "".join(f"{row}\n" for row in rows).encode(errors="backslashreplace"))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _forget() -> None:
    # A forked child waits for nothing of what its parent waits for.
    _last_words.clear()
    if signal.getsignal(signal.SIGTERM) is _die:
        _listen(signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
