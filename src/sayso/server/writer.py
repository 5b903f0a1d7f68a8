"""One thread that does what the requests to the API want written, many of them in one commit.

A request hands in a work and is answered when that is durable, and not before. What comes in while a commit is under
way shares the next one, and the event loop is woken once for all of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from sayso.stores.base import Store

__all__ = ["Writer"]

T = TypeVar("T")
_MOST = 256  # works in one commit: those behind them wait for it
_LINGER = 2.0  # seconds without work after which the thread ends


class _Job(NamedTuple):
    work: Callable[[Store], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Writer:
    """The writer of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: deque[_Job] = deque()
        self._has_jobs = threading.Condition()
        self._thread: threading.Thread | None = None

    async def do(self, work: Callable[[Store], T]) -> T:
        """Return what `work` returns once it is durable; raise what it raises.

        The work runs in the writer's thread, on a view of the store (`Store.together`), perhaps more than once. One
        whose caller has gone meanwhile is done all the same.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), loop)
        with self._has_jobs:  # so that the thread either finds the job or has ended, never neither
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sayso-writer", daemon=True)
                self._thread.start()
            else:
                self._has_jobs.notify()
        return await job.answer

    def _run(self) -> None:
        while jobs := self._next():
            try:
                found = self._store.together([job.work for job in jobs])
            except BaseException as error:  # noqa: BLE001  whatever it is, whoever waits must hear it
                found = [error] * len(jobs)
            answers: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
            for job, one in zip(jobs, found, strict=True):
                answers.setdefault(job.loop, []).append((job.answer, one))
            for loop, some in answers.items():
                with suppress(RuntimeError):  # the loop has ended, and nobody waits in it
                    loop.call_soon_threadsafe(_answer, some)

    def _next(self) -> list[_Job]:
        """Wait for work and return it; nothing where the thread is to end."""
        with self._has_jobs:
            if not self._jobs and not self._has_jobs.wait_for(lambda: self._jobs, _LINGER):
                self._thread = None
                return []
            return [self._jobs.popleft() for _ in range(min(_MOST, len(self._jobs)))]


def _answer(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for answer, found in answers:
        if answer.done():  # its caller has gone
            continue
        if isinstance(found, BaseException):
            answer.set_exception(found)
        else:
            answer.set_result(found)
