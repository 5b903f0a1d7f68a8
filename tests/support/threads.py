"""Proof that those who wait keep no thread each, in whatever process the test runs.

The invariant: only what begins inside a block counts. How many threads a process has depends on the tests before, and
how many a pool may have depends on the machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from unittest.mock import patch

from sayso import effects

__all__ = ["few_threads"]


@contextmanager
def few_threads() -> Generator[list[str]]:
    """Leave two threads to each pool of the running loop, and yield the names of those that begin inside the block.

    Whoever kept a thread of a pool while it waits would leave none for the rest, which then never begins to wait.
    """
    begun, start = list[str](), threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        begun.append(thread.name)
        start(thread)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    with suppress(ImportError):
        import anyio.to_thread

        anyio.to_thread.current_default_thread_limiter().total_tokens = 2
    with (
        ThreadPoolExecutor(2) as pool,
        patch.object(effects, "_pool", lambda: pool),
        patch.object(threading.Thread, "start", counted),
    ):
        yield begun
