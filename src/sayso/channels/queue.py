"""A queue between the program that asks and whatever shows questions to people: a web page, a chat, a test.

The queue takes `{"type": "human_input", "id": …, "question": …}`, plain data to be sent on; the dict keeps under the
same id what answers it. Invariant: whatever can be read from the queue can be answered through the dict.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from functools import partial
from typing import Any

from sayso.channels.request import HumanInputRequest, Requester

__all__ = ["create_queue_requester"]


def create_queue_requester(
    request_queue: asyncio.Queue[Any], pending_requests: MutableMapping[str, dict[str, Any]]
) -> Requester:
    """Return a requester that puts each question on a queue.

    Create it in the loop in which the queue is read; it may then be used from other loops and threads too.

    Args:
        request_queue: Gets `{"type": "human_input", "id": …, "question": …}`. The id is the request's in the store.
            A queue of limited size that is full lets the asker wait, who takes an answer from elsewhere meanwhile.
        pending_requests: Gets `{"request": …, "question": …, "sent": …}` under the id, before the item is on the queue;
            `sent` becomes true when it is. Whoever calls `request.set_response` takes the entry out; what was decided
            elsewhere, or has expired, is taken out when its asker hears of it.
    """
    home = _running_loop()

    async def queue_requester(request: HumanInputRequest) -> None:
        request.channel = "queue"
        request_id = await _id_of(request)
        entry = {"request": request, "question": request.question, "sent": False}
        pending_requests[request_id] = entry
        request.when_decided_elsewhere(partial(_forget, pending_requests, request_id, entry))
        try:
            await _put(request_queue, {"type": "human_input", "id": request_id, "question": request.question}, home)
        except BaseException:
            _forget(pending_requests, request_id, entry)
            raise
        entry["sent"] = True

    return queue_requester


async def _id_of(request: HumanInputRequest) -> str:
    await request.ask()
    return request.id


def _forget(pending: MutableMapping[str, dict[str, Any]], request_id: str, entry: dict[str, Any]) -> None:
    # The same question, asked once more, may stand there by now.
    if pending.get(request_id) is entry:
        pending.pop(request_id, None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _put(queue: asyncio.Queue[Any], item: dict[str, Any], home: asyncio.AbstractEventLoop | None) -> None:
    # An asyncio queue that is filled from another loop does not wake its reader.
    if home is None or home.is_closed() or home is asyncio.get_running_loop():
        await queue.put(item)
    else:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(queue.put(item), home))
