"""Models of providers through pydantic-ai's model layer; nothing else of pydantic-ai is used.

This module converts a history to the messages of pydantic-ai, and its stream to text and one reply. `Reply.provider`
has the provider's own message as JSON and returns it unchanged, so that signed thinking survives pauses and changes of
process. An incomplete response is an error, however much of it has arrived.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import aclosing, contextmanager
from typing import Any, cast

import pydantic
from pydantic_ai import exceptions, models
from pydantic_ai import messages as wire
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.tools import ToolDefinition

from sayso.errors import ConfigError
from sayso.runs.messages import Message, ModelCall, ModelError, Reply, read_arguments

_KEY = "pydantic_ai"  # the key of the response in a reply's `provider`
_LONGEST = 300  # characters of a provider's error message that are passed on
_DENIED = {401, 403}
_OFFER = {"parameters": "parameters_json_schema"}


class ProviderModel:
    """A model behind pydantic-ai.

    Connections are opened for a turn and closed when no turn of this thread needs them, because a pool that outlives
    its event loop can neither be used nor closed. A program that shares a pydantic-ai model with its own code keeps it
    open with `async with model:` around both.

    Args:
        given: A name, with `/` or `:` after the provider, or a model of pydantic-ai.

    Raises:
        ConfigError: The provider is unknown, or its package is not installed.
    """

    def __init__(self, given: str | models.Model[Any]) -> None:
        self._given = _known(given) if isinstance(given, str) else given
        self.name = given if isinstance(given, str) else given.model_name
        # One model for each thread, because threads have different event loops, and a client belongs to one.
        self._local = threading.local()
        self._streams = True

    def check(self) -> None:
        """Raise `ConfigError` if a key or package is missing. It sends no request."""
        self._model()

    async def turn(self, messages: list[Message], tools: list[dict[str, Any]], /) -> AsyncGenerator[str | Reply]:
        """See `Model.turn`."""
        history = list(_history(messages))
        offers = [ToolDefinition(**{_OFFER.get(name, name): part for name, part in tool.items()}) for tool in tools]
        parameters = models.ModelRequestParameters(function_tools=offers)
        has_streamed = False
        with self._faults():
            async with self._model() as model:
                response: wire.ModelResponse | None = None
                if self._streams and _can_stream(model):
                    async with aclosing(self._streamed(model, history, parameters)) as pieces:
                        async for piece in pieces:
                            if isinstance(piece, str):
                                has_streamed = True
                                yield piece
                            else:
                                response = piece
                if response is None:
                    response = await model_request(model, history, model_request_parameters=parameters)
            reply = self._reply(response)
            if reply.text and not has_streamed:
                yield reply.text
            yield reply

    async def _streamed(
        self, model: models.Model[Any], history: list[wire.ModelMessage], parameters: models.ModelRequestParameters
    ) -> AsyncGenerator[str | wire.ModelResponse]:
        """Yield pieces of text and finally the response; yield nothing if the provider does not stream."""
        last: int | None = None  # the part of the last piece: texts separated by another part get a gap
        has_begun = False
        try:
            async with model_request_stream(model, history, model_request_parameters=parameters) as stream:
                async for event in stream:
                    has_begun = True
                    match event:
                        case (
                            wire.PartStartEvent(index=index, part=wire.TextPart(content=content))
                            | wire.PartDeltaEvent(index=index, delta=wire.TextPartDelta(content_delta=content))
                        ) if content:
                            piece = f"\n\n{content}" if last is not None and index > last + 1 else content
                            last = index
                            yield piece.encode(errors="replace").decode()  # a lone surrogate cannot be shown or sent
                        case _:
                            pass
                response = stream.get()
            if _is_cut_short(response):
                raise ModelError(self.name, "broke off its reply (the stream ended without saying that it was done)")
            yield response
        except (NotImplementedError, exceptions.ModelHTTPError) as error:
            if has_begun or not _refuses_to_stream(error):
                raise
            self._streams = False

    def _model(self) -> models.Model[Any]:
        if not isinstance(self._given, str):
            return self._given
        if not hasattr(self._local, "model"):
            try:
                self._local.model = models.infer_model(self._given)
            except (exceptions.UserError, ImportError, ValueError) as error:
                raise ConfigError(f"the model {self.name!r} cannot be used: {error}") from error
        return self._local.model

    def _reply(self, response: wire.ModelResponse) -> Reply:
        if response.state != "complete":
            raise ModelError(self.name, f"broke off its reply ({response.state})")
        parts = [part for part in response.parts if isinstance(part, wire.ToolCallPart)]
        calls = [ModelCall(part.tool_call_id, part.tool_name, *read_arguments(part.args)) for part in parts]
        text = response.text or ""
        if not calls and not text and response.finish_reason in {"content_filter", "error", "length"}:
            raise ModelError(self.name, f"gave an empty reply ({response.finish_reason})")
        usage = response.usage
        counters = {"turns": 1, "tokens:input": usage.input_tokens, "tokens:output": usage.output_tokens}
        if usage.cache_read_tokens:
            counters["tokens:cached"] = usage.cache_read_tokens
        dumped: list[Any] = wire.ModelMessagesTypeAdapter.dump_python([response], mode="json")
        try:
            json.dumps(dumped, ensure_ascii=False, allow_nan=False).encode()
        except ValueError as error:
            raise ModelError(self.name, f"gave a reply that cannot be written as JSON ({error})") from error
        return Reply(text, calls, counters, {_KEY: dumped[0]})

    @contextmanager
    def _faults(self) -> Generator[None]:
        """Convert exceptions of pydantic-ai to ours; exceptions of a user's own function pass."""
        try:
            yield
        except exceptions.ModelHTTPError as error:
            # A provider that rejects the key may quote it.
            complaint = "the key was not accepted" if error.status_code in _DENIED else _complaint(error.body)
            reason = f"answered with status {error.status_code}: {complaint}"
            raise ModelError(
                self.name, reason, status=error.status_code, retry_after=error.retry_after
            ) from error  # fmt: skip
        except exceptions.AgentRunError as error:
            raise ModelError(self.name, f"gave no usable reply ({str(error)[:_LONGEST]})") from error
        except exceptions.UserError as error:
            raise ConfigError(f"the model {self.name!r} cannot be used: {error}") from error


def _known(name: str) -> str:
    """Return the name in pydantic-ai's notation."""
    prefix, rest = ("gateway/", name.removeprefix("gateway/")) if name.startswith("gateway/") else ("", name)
    head, slash, tail = rest.partition("/")
    written = prefix + (f"{head}:{tail}" if slash and ":" not in head else rest)
    if written == "test":
        return written
    provider, colon, model = written.partition(":")
    if not colon or not provider or not model:
        raise ConfigError(f"the model {name!r} names no provider: write it as `openai:gpt-5`")
    try:
        infer_provider_class(provider)
    except ValueError:
        raise ConfigError(f"the model {name!r} names the unknown provider {provider!r}") from None
    except ImportError as error:
        raise ConfigError(f"the model {name!r} cannot be used: {error}") from error
    return written


def _can_stream(model: models.Model[Any]) -> bool:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return not isinstance(model, FunctionModel) or model.stream_function is not None


def _is_cut_short(response: wire.ModelResponse) -> bool:
    """Return whether a network stream ended without a finish reason.

    pydantic-ai treats a chat stream that just ends as complete, because some servers never send a reason. Such a stream
    is accepted only if it has sent the usage, which comes last.
    """
    if response.provider_url is None:
        return False
    if response.finish_reason is None:
        return True
    has_reason = "finish_reason" in (response.provider_details or {})
    return not has_reason and not response.usage.input_tokens and not response.usage.output_tokens


def _refuses_to_stream(error: Exception) -> bool:
    # OpenAI's answer to unverified organisations: "param": "stream", "code": "unsupported_value".
    body = getattr(error, "body", None)
    return isinstance(error, NotImplementedError) or (
        isinstance(body, dict) and cast("dict[str, object]", body).get("param") == "stream"
    )


def _complaint(body: object) -> str:
    while isinstance(body, dict):
        inner = cast("dict[str, object]", body)
        body = inner.get("error") or inner.get("message") or "no reason given"
    return str(body or "no reason given")[:_LONGEST]


def _history(messages: Iterable[Message]) -> Generator[wire.ModelMessage]:
    """Yield pydantic-ai's messages; all messages between two replies form one request."""
    parts: list[wire.ModelRequestPart] = []
    for message in messages:
        if message["role"] != "assistant":
            parts.append(_part(message))
            continue
        if parts:
            yield wire.ModelRequest(parts=parts)
            parts = []
        yield _response(message)
    if parts:
        yield wire.ModelRequest(parts=parts)


def _part(message: Message) -> wire.ModelRequestPart:
    match message["role"]:
        case "system":
            return wire.SystemPromptPart(content=message["content"])
        case "user":
            return wire.UserPromptPart(content=message["content"])
        case "tool":
            outcome = "failed" if message.get("is_error") else "success"
            return wire.ToolReturnPart(
                tool_name=message["name"],
                content=message["content"],
                tool_call_id=message["tool_call_id"],
                outcome=outcome,
            )
        case role:
            raise ValueError(f"no message has the role {role!r}")


def _response(message: Message) -> wire.ModelResponse:
    provider: dict[str, Any] = message.get("provider") or {}
    own = provider.get(_KEY)
    if own is not None:
        try:
            (response,) = wire.ModelMessagesTypeAdapter.validate_python([own])
        except pydantic.ValidationError:
            pass  # from another version of pydantic-ai; the message itself has the same content
        else:
            if isinstance(response, wire.ModelResponse):
                return response
    parts: list[wire.ModelResponsePart] = [wire.TextPart(content=message["content"])] if message["content"] else []
    parts += [
        wire.ToolCallPart(tool_name=call["name"], args=call["arguments"], tool_call_id=call["id"])
        for call in message.get("tool_calls", [])
    ]
    return wire.ModelResponse(parts=parts)
