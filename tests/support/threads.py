"""Checks that waiting calls do not each occupy a thread.

Invariant: only threads that start inside a block count, because the number of threads before depends on earlier tests,
and the maximum of a pool depends on the machine.
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
    """Limit each pool of the running loop to two threads, and yield the names of threads that start inside the block.

    If waiting calls each held a pool thread, two of them would exhaust the pool, and the others would never start.
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
