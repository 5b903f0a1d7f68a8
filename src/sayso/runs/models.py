"""`model_of`: the model that an agent asks, from a name, a pydantic-ai model, or an async function."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, cast

from sayso.errors import ConfigError
from sayso.runs.messages import Message, Model, ModelError, Reply, kind_of, reply_of


class CallableModel:
    """A model that is an async function of `(messages, tools)`.

    The function returns a value that `reply_of` accepts, or is an async generator that yields text and, if it calls
    tools, finally such a value.
    """

    def __init__(self, function: Callable[[list[Message], list[dict[str, Any]]], object]) -> None:
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self._function = function

    async def turn(self, messages: list[Message], tools: list[dict[str, Any]], /) -> AsyncGenerator[str | Reply]:
        """See `Model.turn`. Exceptions of the function are passed on unchanged."""
        # Copies, because the store keeps the history, and a function may modify its arguments.
        answer: Any = self._function(deepcopy(messages), deepcopy(tools))
        streamed, final = "", None
        if inspect.isasyncgen(answer):
            async with aclosing(cast("AsyncGenerator[object]", answer)) as pieces:
                async for piece in pieces:
                    if final is not None:
                        raise ModelError(self.name, "sent more after its reply")
                    if isinstance(piece, str):
                        streamed += piece
                        yield piece
                    else:
                        final = piece
        elif inspect.isawaitable(answer):
            final = await answer
        else:
            raise ModelError(self.name, f"returned {kind_of(answer)} without being async: make it an `async def`")
        reply = reply_of(streamed if final is None and streamed else final, messages, model=self.name)
        if reply.text and not streamed:
            yield reply.text
        yield reply if reply.text or not streamed else replace(reply, text=streamed)


def model_of(given: object) -> Model:
    """Return a model.

    Args:
        given: A name (`openai/gpt-5`, `openai:gpt-5`, or another one that pydantic-ai knows), a pydantic-ai model, a
            `Model`, or an async function as for `CallableModel`. A provider's key is read at the first turn, not here.

    Raises:
        ConfigError: It is none of these, the name is unknown, or a package is not installed.
    """
    if isinstance(given, type):
        raise ConfigError(f"the class {given.__name__} is not a model; give an instance of it")
    if isinstance(given, Model):
        return given
    if isinstance(given, str) and find_spec("pydantic_ai") is None:
        raise ConfigError(
            f"the model {given!r} needs pydantic-ai, which is not installed: "
            'pip install "sayso[agent]" (an async function as the model needs no package)'
        )
    if isinstance(given, str) or any(kind.__module__.startswith("pydantic_ai.models") for kind in type(given).__mro__):
        from sayso.runs.provider import ProviderModel

        return ProviderModel(cast("Any", given))
    if callable(given):
        return CallableModel(given)
    raise ConfigError(f"{kind_of(given)} is not a model: give a name, a pydantic-ai model, or an async function")
