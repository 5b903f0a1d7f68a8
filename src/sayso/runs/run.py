"""A lazy run: nothing happens until its events are iterated, or its end is collected.

Both take the same way (`sayso.runs.leg`); they differ in who listens. A consumer that breaks off its loop stops the
run at the next step: what had begun ends and is written down, and the run can be resumed.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from sayso.runs.events import Event, OutputEvent
from sayso.runs.resolution import Resolution

if TYPE_CHECKING:
    from sayso.runs.journal import Journal
    from sayso.runs.runnable import Runnable

__all__ = ["Run", "handed_back", "in_loop"]


_TURNS = 3  # of the loop, until a generator that nobody holds any more is closed
_warned: dict[str, dict[Any, Any]] = {}  # what Python remembers of warnings, by file, as it does for each module
_streams: WeakValueDictionary[str, Run] = WeakValueDictionary()


def in_loop() -> bool:
    """Say whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def handed_back(run_id: str) -> None:
    """Wait for a stream of this run in this loop that its consumer has just left: whoever leaves may go on at once."""
    stream = _streams.get(run_id)
    if stream is not None:
        await stream.leaving()


async def _ended(going: asyncio.Future[OutputEvent]) -> None:
    """Wait for the end of a run, and pass a cancellation on that comes meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not going.done():
        try:
            await asyncio.wait([going])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _caller() -> tuple[str, int]:
    """Return the file and the line that called the runnable."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("sayso.runs."):
        frame = frame.f_back
    return ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


class Run:
    """One call of a runnable: of a new run, or of one that goes on.

    Iterating gives its events, those of nested runnables among them; the last one is the `OutputEvent` of the runnable
    that was called. `collect` gives only that one, and so does awaiting the run. A run is called once; call the
    runnable again for another. One that is thrown away before it was begun warns, as a coroutine does.

    Attributes:
        runnable: What was called.
        args, kwargs: Its input.
        parent_id: The run to go on with.
        run_id: The id that a new run is to have.
        resolutions: Decisions and answers by id.
        is_begun: Whether somebody has asked for its events or its end.
    """

    def __init__(
        self, runnable: Runnable, args: tuple[Any, ...], kwargs: dict[str, Any], *, parent_id: str | None,
        run_id: str | None, resolutions: Mapping[str, Resolution],
    ) -> None:  # fmt: skip
        self.runnable, self.args, self.kwargs = runnable, args, kwargs
        self.parent_id, self.run_id, self.resolutions = parent_id, run_id, resolutions
        self._listener: asyncio.Queue[Event | None] | None = None
        self._journal: Journal | None = None
        self._is_called = False
        self._is_stopping = False
        self._going: asyncio.Future[OutputEvent] | None = None
        self._output: OutputEvent | None = None
        self._made_at = _caller()
        self.is_begun = False

    def __del__(self) -> None:
        if not getattr(self, "is_begun", True):
            text = (
                f"the run of {self.runnable.name!r} was never begun, so nothing was called and nobody was asked;"
                " use .run(), `await` or `async for`"
            )
            file, line = self._made_at
            warnings.warn_explicit(text, RuntimeWarning, file, line, registry=_warned.setdefault(file, {}))

    def __repr__(self) -> str:
        hint = "" if self._is_called else ", not begun: .run(), await .collect() or async for"
        return f"<Run of {self.runnable.name!r}{hint}>"

    def __aiter__(self) -> AsyncIterator[Event]:
        self.is_begun = True
        return self._events()

    def __await__(self) -> Generator[Any, Any, OutputEvent]:
        return self.collect().__await__()

    async def _events(self) -> AsyncGenerator[Event]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listener = queue
        self._going = going = asyncio.ensure_future(self._go())
        going.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await going
        finally:
            if not going.done():
                self._listener = None
                self.stop()
                # Not cancelled: a handler that has begun ends, and the record says how.
                await _ended(going)

    def stop(self) -> None:
        """Begin nothing new: what is under way ends and is recorded, and the run is handed back, to be gone on with."""
        self._is_stopping = True
        if self._journal is not None:
            self._journal.stop()

    def collect(self) -> Coroutine[Any, Any, OutputEvent]:
        """Take the run to its end, or to where it waits, and return its output; `await run` does the same.

        Whatever goes wrong inside of it is in the output's status; nothing is raised but what breaks this task off.
        After its events were iterated to the end, this gives the output once more.
        """
        self.is_begun = True
        return self._collected()

    async def _collected(self) -> OutputEvent:
        return await self._go() if self._output is None else self._output

    def run(self) -> OutputEvent:
        """Take the run to its end, or to where it waits, from a script without an event loop.

        Raises:
            RuntimeError: There is a running event loop in this thread; await `collect()` there.
        """
        self.is_begun = True
        if in_loop():
            raise RuntimeError("run() is for scripts; inside an event loop use `await ….collect()`")
        return asyncio.run(self._go())

    async def _go(self) -> OutputEvent:
        from sayso.runs.leg import take

        if self._is_called:
            raise RuntimeError("this run was called already; call the runnable again")
        self._is_called = True
        self._output = await take(self, self._emit)
        return self._output

    def begin(self, journal: Journal) -> None:
        """Note the run's journal, once it is in hand."""
        self._journal = journal
        journal.is_stopping = self._is_stopping
        if self._going is not None:
            _streams[journal.run_id] = self

    async def leaving(self) -> None:
        """Wait until this stream has handed its run back, if its consumer has left it."""
        going = self._going
        if going is None or going.get_loop() is not asyncio.get_running_loop():
            return
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._is_stopping and not going.done():
            await asyncio.wait([going])

    def _emit(self, event: Event) -> None:
        if self._listener is not None and not self._is_own(event):
            self._listener.put_nowait(event)

    def _is_own(self, event: Event) -> bool:
        # The outermost output is given last, with what is pending.
        return isinstance(event, OutputEvent) and event.path == self.runnable.name
