"""How a request reaches a person.

Here is the awaitable human: a question, the coroutine that carries it to somebody, and the tool that puts both before
a model. Each question is a request in the store; no channel keeps an answer of its own, so that a question carried
through one of them can be answered through any other. Invariant: a channel that fails or ends leaves the question as
it was.
"""

from __future__ import annotations

from sayso.channels.console import console_requester
from sayso.channels.queue import create_queue_requester
from sayso.channels.request import HumanInputRequest, Requester
from sayso.channels.tool import human_in_the_loop

__all__ = [
    "HumanInputRequest",
    "Requester",
    "console_requester",
    "create_queue_requester",
    "human_in_the_loop",
]
