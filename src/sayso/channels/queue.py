"""Queues of a program: a channel that puts notifications on one, and a requester that puts questions on one."""

from __future__ import annotations

import asyncio
import queue as queues
from collections.abc import MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any

from sayso.channels.human import HumanInputRequest, Requester
from sayso.channels.notification import Channel, Notification

_SECONDS = 10  # to wait for room on a queue, or for a busy event loop


class QueueChannel(Channel):
    """A channel that puts notifications on a queue, for `sayso.channels.deliver`.

    Args:
        queue: A `queue.Queue`, or an `asyncio.Queue`; make the channel in the loop of the latter.
        name: The channel's name.

    Raises:
        RuntimeError: An `asyncio.Queue` was given outside of a running loop.
    """

    def __init__(
        self, queue: queues.Queue[Notification] | asyncio.Queue[Notification], *, name: str = "queue"
    ) -> None:  # fmt: skip
        self.name, self._queue = name, queue
        self._loop = asyncio.get_running_loop() if isinstance(queue, asyncio.Queue) else None

    def send(self, notification: Notification) -> None:
        """Put it on the queue; raises `queue.Full` or `TimeoutError` after ten seconds without room."""
        if isinstance(self._queue, queues.Queue):
            self._queue.put(notification, timeout=_SECONDS)
        elif self._loop is not None:
            # An asyncio queue may be used in its own loop only, and this is another thread.
            putting = asyncio.run_coroutine_threadsafe(self._queue.put(notification), self._loop)
            try:
                putting.result(_SECONDS)
            except TimeoutError:
                putting.cancel()  # else it would be put there twice
                raise


queue_channel = QueueChannel


def create_queue_requester(
    request_queue: asyncio.Queue[Any], pending_requests: MutableMapping[str, dict[str, Any]]
) -> Requester:
    """Return a requester that puts each question on a queue.

    Create it in the event loop that reads the queue; it may then be used from other loops and threads too.

    Args:
        request_queue: Gets `{"type": "human_input", "id": …, "question": …}`. The id is the request's in the store.
            While a bounded queue is full the asker waits, and takes an answer through another channel meanwhile.
        pending_requests: Gets `{"request": …, "question": …, "sent": …}` under the id, before the item is on the queue;
            `sent` becomes true when it is. Who calls `request.set_response` removes the entry; an entry that was
            decided elsewhere, or has expired, is removed when its asker learns of it.
    """
    home: asyncio.AbstractEventLoop | None = None
    with suppress(RuntimeError):
        home = asyncio.get_running_loop()

    async def queue_requester(request: HumanInputRequest) -> None:
        request.channel = "queue"
        await request.ask()
        request_id = request.id
        entry = {"request": request, "question": request.question, "sent": False}
        pending_requests[request_id] = entry
        request.when_decided_elsewhere(partial(_forget, pending_requests, request_id, entry))
        putting = request_queue.put({"type": "human_input", "id": request_id, "question": request.question})
        try:
            # An item that another loop puts on an asyncio queue does not wake its reader.
            if home is None or home.is_closed() or home is asyncio.get_running_loop():
                await putting
            else:
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(putting, home))
        except BaseException:
            _forget(pending_requests, request_id, entry)
            raise
        entry["sent"] = True

    return queue_requester


def _forget(pending: MutableMapping[str, dict[str, Any]], request_id: str, entry: dict[str, Any]) -> None:
    # The same question may have been asked again meanwhile.
    if pending.get(request_id) is entry:
        pending.pop(request_id, None)
