"""Two outlets that need nothing else: the terminal of whoever delivers, and a queue of this program.

Invariant: what is written to a terminal is a notice's own line, which is escaped; a queue gets the notice as it is.
"""

from __future__ import annotations

import asyncio
import queue as queues
import sys
from collections.abc import Mapping
from typing import Any

from sayso.channels.notification import Notice
from sayso.channels.settings import Table

__all__ = ["QueueOutlet", "TerminalOutlet", "make", "queue_outlet"]

_SECONDS = 10  # for which a full queue, or a loop that is busy, is waited for


class TerminalOutlet:
    """Writes each notice as a line to standard error."""

    def __init__(self, name: str = "terminal") -> None:
        self.name = name

    def send(self, notice: Notice) -> None:
        """Write the line, and the link below it."""
        sys.stderr.write(f"sayso: {notice.line}\n" + ("" if notice.link is None else f"sayso:   {notice.link}\n"))
        sys.stderr.flush()

    def follow_up(self, notice: Notice, reference: str | None) -> None:  # noqa: ARG002  what is written stays
        """Write the outcome as a line of its own."""
        self.send(notice)


class QueueOutlet:
    """Puts each notice on a queue."""

    def __init__(self, queue: queues.Queue[Notice] | asyncio.Queue[Notice], name: str) -> None:
        self.name, self._queue = name, queue
        self._loop = asyncio.get_running_loop() if isinstance(queue, asyncio.Queue) else None

    def send(self, notice: Notice) -> None:
        """Put it on; raises `queue.Full` or `TimeoutError` where there is no room for it in time."""
        if isinstance(self._queue, queues.Queue):
            self._queue.put(notice, timeout=_SECONDS)
        elif self._loop is not None:
            # An asyncio queue is its loop's own, and this is another thread.
            putting = asyncio.run_coroutine_threadsafe(self._queue.put(notice), self._loop)
            try:
                putting.result(_SECONDS)
            except TimeoutError:
                putting.cancel()  # else it would come once more
                raise

    def follow_up(self, notice: Notice, reference: str | None) -> None:  # noqa: ARG002  there is nothing to edit
        """Put the outcome on."""
        self.send(notice)


def queue_outlet(queue: queues.Queue[Notice] | asyncio.Queue[Notice], *, name: str = "queue") -> QueueOutlet:
    """Return a channel that puts notices on a queue, for `sayso.channels.deliver`.

    Args:
        queue: A `queue.Queue`, or an `asyncio.Queue`, which is to be given inside of its loop.
        name: The channel's name.

    Raises:
        RuntimeError: An `asyncio.Queue` was given where no loop runs.
    """
    return QueueOutlet(queue, name)


def make(name: str, settings: Mapping[str, Any]) -> TerminalOutlet:
    """Return the terminal channel of a table in `sayso.toml`; raises `ConfigError` for a setting that it has not."""
    Table(f"channels.{name}", settings, known=("type",))
    return TerminalOutlet(name)
