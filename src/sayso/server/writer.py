"""One thread that does what the requests to the API want written, many of them in one commit.

A request hands in a work and is answered when that is durable, and not before. What comes in while a commit is under
way shares the next one, and the event loop is woken once for all of it. Those who wait for a change look at the store
here, too: a commit that wakes them hands their looks in, without a way around by the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sayso.stores.base import Store
from sayso.stores.watch import started

T = TypeVar("T")
_MOST = 256  # works in one commit: those behind them wait for it
_MOST_LOOKS = 64  # looks of those who wait in one commit: a thousand that one change wakes hold up no verb for long
_LINGER = 2.0  # seconds without work after which the thread ends


class _Job(NamedTuple):
    work: Callable[[Store], Any]
    tell: Callable[[Any], None]  # in the loop: what the work returned, or raised
    loop: asyncio.AbstractEventLoop


class Writer:
    """The writer of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs, self._looks = deque[_Job](), deque[_Job]()
        self._has_jobs = threading.Condition()
        self._thread: threading.Thread | None = None

    async def do(self, work: Callable[[Store], T]) -> T:
        """Return what `work` returns once it is durable; raise what it raises.

        The work runs in the writer's thread, on a view of the store (`Store.together`), perhaps more than once. One
        whose caller has gone meanwhile is done all the same.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._add(self._jobs, _Job(work, partial(_answer, answer), loop))
        return await answer

    def look(self, work: Callable[[Store], Any], tell: Callable[[Any], None], loop: asyncio.AbstractEventLoop) -> None:
        """Have `tell` called in the loop with what `work` returns or raises; from any thread, also that of a commit."""
        self._add(self._looks, _Job(work, tell, loop))

    def _add(self, jobs: deque[_Job], job: _Job) -> None:
        with self._has_jobs:  # so that the thread either finds the job or has ended, never neither
            jobs.append(job)
            if self._thread is None:
                self._thread = started("sayso-writer", self._run)
            else:
                self._has_jobs.notify()

    def _run(self) -> None:
        while jobs := self._next():
            done = self._together(jobs)
            if self._looks:  # those whom this commit woke need not wait for the works of the next one
                done += self._together(self._taken(self._looks, _MOST_LOOKS))
            answers: dict[asyncio.AbstractEventLoop, list[tuple[Callable[[Any], None], Any]]] = {}
            for job, one in done:
                answers.setdefault(job.loop, []).append((job.tell, one))
            for loop, some in answers.items():
                with suppress(RuntimeError):  # the loop has ended, and nobody waits in it
                    loop.call_soon_threadsafe(_tell, some)

    def _together(self, jobs: Sequence[_Job]) -> list[tuple[_Job, Any]]:
        try:
            return [*zip(jobs, self._store.together([job.work for job in jobs]), strict=True)]
        except BaseException as error:  # noqa: BLE001  whatever it is, whoever waits must hear it
            return [(job, error) for job in jobs]

    def _next(self) -> list[_Job]:
        """Wait for work and return it; nothing where the thread is to end."""
        jobs, looks = self._jobs, self._looks
        with self._has_jobs:
            if not jobs and not looks and not self._has_jobs.wait_for(lambda: jobs or looks, _LINGER):
                self._thread = None
                return []
            return self._taken(jobs, _MOST) + self._taken(looks, _MOST_LOOKS)

    @staticmethod
    def _taken(jobs: deque[_Job], most: int) -> list[_Job]:
        return [jobs.popleft() for _ in range(min(most, len(jobs)))]


def _tell(answers: Sequence[tuple[Callable[[Any], None], Any]]) -> None:
    for tell, found in answers:
        tell(found)


def _answer(answer: asyncio.Future[Any], found: Any) -> None:
    if answer.done():  # its caller has gone
        return
    if isinstance(found, BaseException):
        answer.set_exception(found)
    else:
        answer.set_result(found)
