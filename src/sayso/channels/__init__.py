"""How a request reaches a person.

Here is the awaitable human: a question, the coroutine that carries it to somebody, and the tool that puts both before
a model; and here is the outbox, which tells people elsewhere that something waits. Each question is a request in the
store; no channel keeps an answer of its own, so that a question carried through one of them can be answered through any
other. Invariant: a channel that fails or ends leaves the request as it was.
"""

from __future__ import annotations

from sayso.channels.console import console_requester
from sayso.channels.human import HumanInputRequest, Requester, human_in_the_loop
from sayso.channels.notification import Channel, Notification, UndeliverableError
from sayso.channels.outbox import ChannelHealth, deliver, forget, health
from sayso.channels.queue import create_queue_requester, queue_channel

__all__ = [
    "Channel",
    "ChannelHealth",
    "HumanInputRequest",
    "Notification",
    "Requester",
    "UndeliverableError",
    "console_requester",
    "create_queue_requester",
    "deliver",
    "forget",
    "health",
    "human_in_the_loop",
    "queue_channel",
]
