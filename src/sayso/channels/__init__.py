"""Questions that a program awaits, and the notifications that tell people about requests.

`human` has the awaitable question and the tool that lets a model ask one. The outbox sends notifications through
channels: webhooks, Slack, Apprise, the terminal, a queue, or your own. Every question is a request in the store, so it
can be answered through any channel. A failed delivery never changes the request. `registry` has the interface of a
channel and the channels of a store, `outbox` delivers, and `settings` reads tables of `sayso.toml`.
"""

from __future__ import annotations

from sayso.channels.human import (
    HumanInputRequest,
    Requester,
    console_requester,
    create_queue_requester,
    human_in_the_loop,
    queue_channel,
)
from sayso.channels.outbox import deliver
from sayso.channels.registry import Channel, ChannelHealth, Notification, UndeliverableError, forget, health

__all__ = [
    "Channel", "ChannelHealth", "HumanInputRequest", "Notification", "Requester", "UndeliverableError",
    "console_requester", "create_queue_requester", "deliver", "forget", "health", "human_in_the_loop", "queue_channel",
]  # fmt: skip
