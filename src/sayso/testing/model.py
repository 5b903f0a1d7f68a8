"""A model that follows a script, for tests of agents without a provider.

The next turn is computed from the history, so that concurrent runs may share one script, and a run that is resumed in
another process gets the turn that follows.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from copy import deepcopy
from typing import Any, NamedTuple

from sayso.runs.messages import Message, ModelError, Reply, reply_of


class Asked(NamedTuple):
    """The messages and tools of one turn, as the scripted model got them."""

    messages: list[Message]
    tools: list[dict[str, Any]]


class ScriptedModel:
    """Answers a history that holds n replies with turn n of its script, counted from 0.

        model = ScriptedModel([[("refund", {"order": 4721, "amount": 50})], "Refunded."])
        output = Agent(name="clerk", model=model, tools=[refund])(prompt="Refund 4721").run()
        assert model.seen[1].messages[-1]["content"] == "refunded 50"

    Args:
        turns: Each a text, which streams in words; a call or a list of calls (pairs of name and arguments); a `Reply`,
            or a mapping with `text` and `calls`; an exception, which is raised; or a function of the messages, plain or
            async, that returns one of these.

    Attributes:
        seen: Every turn that was asked of it, in order; concurrent runs are mixed.
    """

    name = "script"

    def __init__(self, turns: Iterable[object]) -> None:
        self.seen: list[Asked] = []
        self._turns = list(turns)

    async def turn(self, messages: list[Message], tools: list[dict[str, Any]], /) -> AsyncGenerator[str | Reply]:
        """See `Model.turn`.

        Raises:
            ModelError: The script has no turn for this history, or the turn is none.
        """
        self.seen.append(Asked(deepcopy(messages), deepcopy(tools)))
        number = sum(message["role"] == "assistant" for message in messages)
        if number >= len(self._turns):
            raise ModelError(self.name, f"has {len(self._turns)} turns in its script and was asked for one more")
        reply = reply_of(await _resolved(self._turns[number], deepcopy(messages)), messages, model=self.name)
        for word in re.split(r"(?<=\s)(?=\S)", reply.text) if reply.text else ():
            yield word
        yield reply


async def _resolved(turn: object, messages: list[Message]) -> object:
    if callable(turn):
        function: Callable[[list[Message]], object] = turn
        turn = function(messages)
        if inspect.isawaitable(turn):
            turn = await turn
    if isinstance(turn, BaseException):
        raise turn
    return turn
