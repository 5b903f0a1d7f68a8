"""A single thread that writes for all API requests, many of them in one commit (group commit).

A request submits a job and is answered only when its effect is durable. Jobs that arrive during a commit share the next
one, which wakes the event loop once for all of them. Requests that wait for a change also read the store here: the
commit that wakes them queues their reads directly, without a detour through the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sayso.effects import daemon_thread
from sayso.stores.base import Store

T = TypeVar("T")
_MOST = 256  # jobs in one commit; the next ones wait for it
_MOST_LOOKS = 64  # reads of waiting requests in one commit, so that a change that wakes thousands delays no write
_LINGER = 2.0  # seconds without a job after which the thread ends


class _Job(NamedTuple):
    work: Callable[[Store], Any]
    tell: Callable[[Any], None]  # called in the loop with what `work` returned or raised
    loop: asyncio.AbstractEventLoop


class Writer:
    """The writer of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs, self._looks = deque[_Job](), deque[_Job]()
        self._has_jobs = threading.Condition()
        self._thread: threading.Thread | None = None

    async def do(self, work: Callable[[Store], T]) -> T:
        """Run `work` and return its result once it is durable; raises what `work` raises.

        `work` runs in the writer's thread, on a view of the store (`Store.together`), possibly more than once. It runs
        even if the caller is cancelled meanwhile.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._add(self._jobs, _Job(work, partial(_answer, answer), loop))
        return await answer

    def look(self, work: Callable[[Store], Any], tell: Callable[[Any], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `tell` in the loop with what `work` returns or raises. Safe in any thread, also the writer's own."""
        self._add(self._looks, _Job(work, tell, loop))

    def _add(self, jobs: deque[_Job], job: _Job) -> None:
        with self._has_jobs:  # or the thread could end without the job just when this sees it running
            jobs.append(job)
            if self._thread is None:
                self._thread = daemon_thread("sayso-writer", self._run)
            else:
                self._has_jobs.notify()

    def _run(self) -> None:
        while jobs := self._next():
            done = self._together(jobs)
            if self._looks:  # requests that this commit woke do not wait for the jobs of the next one
                done += self._together(self._taken(self._looks, _MOST_LOOKS))
            answers: dict[asyncio.AbstractEventLoop, list[tuple[Callable[[Any], None], Any]]] = {}
            for job, one in done:
                answers.setdefault(job.loop, []).append((job.tell, one))
            for loop, some in answers.items():
                with suppress(RuntimeError):  # the loop is closed, so nothing awaits these answers
                    loop.call_soon_threadsafe(_tell, some)

    def _together(self, jobs: Sequence[_Job]) -> list[tuple[_Job, Any]]:
        try:
            return [*zip(jobs, self._store.together([job.work for job in jobs]), strict=True)]
        except BaseException as error:  # noqa: BLE001  every caller must get an answer, or it waits forever
            return [(job, error) for job in jobs]

    def _next(self) -> list[_Job]:
        """Wait for jobs and return them; an empty list ends the thread."""
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
    if answer.done():  # the caller was cancelled
        return
    if isinstance(found, BaseException):
        answer.set_exception(found)
    else:
        answer.set_result(found)
