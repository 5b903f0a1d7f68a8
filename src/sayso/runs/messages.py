"""The messages between an agent's loop and a model: how a reply is read, and what a model is told of its calls.

Messages are plain JSON objects with a `role`: `system` and `user` with `content`; `assistant` with `content`,
`tool_calls` (`id`, `name`, `arguments`) and, where an adapter needs it, `provider`; `tool` with `tool_call_id`, `name`,
`content`, `is_error`. A reply is given whole or not at all, so that no call of a reply that broke off can run.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

from sayso.errors import SaysoError
from sayso.model import canonical
from sayso.model.request import not_run
from sayso.model.text import closest, storable
from sayso.runs.events import Denied, plain

Message = dict[str, Any]


class ModelError(SaysoError):
    """A model gave no usable reply. No call of this turn was run.

    Attributes:
        model: The name of the model.
        reason: The cause, as a text.
        status: The HTTP status, if the provider sent one.
        retry_after: The seconds to wait, if the provider stated them.
    """

    def __init__(
        self, model: str, reason: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:  # fmt: skip
        super().__init__(f"the model {model} {reason}; nothing of this turn was run")
        self.model = model
        self.reason = reason
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool call that a model asks for.

    Attributes:
        id: The provider's id of the call, which the result repeats.
        arguments: JSON values by name; empty if there is a problem.
        problem: Why the arguments are invalid, for the model to correct; None if they are valid.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    problem: str | None = None

    def result(self, text: str, *, is_error: bool = False, approval: Mapping[str, Any] | None = None) -> Message:
        """Return the message with this call's result, without lone surrogates, which no provider accepts.

        Args:
            text: The result or the error.
            is_error: Whether the call gave no result.
            approval: The record of its request; a person's comments and changes are put above the text.
        """
        content = storable(_above_result(approval) + text)
        return {"role": "tool", "tool_call_id": self.id, "name": self.name, "content": content, "is_error": is_error}


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply in one turn.

    Attributes:
        usage: Counters: `turns`, and from providers `tokens:input`, `tokens:output` and `tokens:cached` (the part of
            the input that came from the provider's cache).
        provider: JSON with which the adapter can return the provider's own message unchanged.
    """

    text: str = ""
    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    provider: dict[str, Any] | None = None

    @property
    def message(self) -> Message:
        """The reply as a message of the history; each access creates a new one."""
        calls = [{"id": call.id, "name": call.name, "arguments": deepcopy(call.arguments)} for call in self.calls]
        message: Message = {"role": "assistant", "content": self.text, "tool_calls": calls}
        return message if self.provider is None else {**message, "provider": deepcopy(self.provider)}


@runtime_checkable
class Model(Protocol):
    """A model that an agent can ask. Implementations need not know stores, gates or runs."""

    def turn(self, messages: list[Message], tools: list[dict[str, Any]], /) -> AsyncIterator[str | Reply]:
        """Yield text as it streams, and finally one `Reply` whose text is all the streamed text.

        The caller closes the iterator if it stops early. Implementations must not modify either list.

        Args:
            messages: The history, oldest first, in the form that the module's docstring describes.
            tools: The `name`, `description` and `parameters` (a JSON Schema) of each tool that may be called.

        Raises:
            ModelError: There is no reply, or it was interrupted.
        """
        ...


def reply_of(given: object, messages: Sequence[Message], *, model: str) -> Reply:
    """Convert the result of a function or script to a reply.

    Args:
        given: Text; a `Reply`; a call or a list of calls; or a mapping with the optional items `text`, `calls` and
            `usage`. A call is a `ModelCall`, a pair of name and arguments, or a mapping with `name`, `arguments` and
            optionally `id`. Arguments are a mapping or JSON text.
        messages: The history that it answers; calls without an id get one that is new in the history.
        model: The model's name, for errors.

    Raises:
        ModelError: It is none of these.
    """
    text: object = ""
    calls: object = given
    usage: dict[str, int] = {}
    provider: dict[str, Any] | None = None
    match given:
        case str():
            text, calls = given, []
        case Reply():
            text, calls, usage, provider = given.text, given.calls, given.usage, given.provider
        case Mapping() if "name" not in given:
            fields = cast("Mapping[str, Any]", given)
            strange = sorted(set(fields) - {"text", "calls", "usage"})
            if strange:
                raise ModelError(
                    model, f"replied with the unknown fields {strange}; the known ones are `text`, `calls` and `usage`"
                )
            text, calls, usage = fields.get("text") or "", fields.get("calls") or [], fields.get("usage") or {}
        case _:
            if isinstance(given, ModelCall | Mapping) or _pair(given) is not None:
                calls = [cast("object", given)]
    if not isinstance(text, str) or not isinstance(calls, list | tuple):
        raise ModelError(
            model, f"replied with {kind_of(cast('object', given))}, where text or a list of calls is needed"
        )
    if not text.isascii() and text.encode(errors="ignore").decode() != text:
        raise ModelError(model, "replied with a lone surrogate, which is not valid text")
    read: list[ModelCall] = []
    if calls:
        turn = 1 + [message.get("role") for message in messages].count("assistant")
        read = [_call_of(call, f"call_{turn}_{n}", model) for n, call in enumerate(cast("list[object]", calls), 1)]
    return Reply(text, read, {"turns": 1, **usage}, provider)


async def reply_to(
    model: Model, name: str, messages: list[Message], tools: list[dict[str, Any]], on_text: Callable[[str], None]
) -> Reply:
    """Ask a model once and return its reply, which is validated because adapters can be third-party code.

    Args:
        name: The model's name, for errors.
        messages, tools: As for `Model.turn`.
        on_text: Called with each piece of text as it arrives.

    Raises:
        ModelError: There is no reply, a part of it is invalid, or it has no JSON form.
    """
    reply: Reply | None = None
    async with AsyncExitStack() as stack:
        turn = model.turn(messages, tools)
        if isinstance(turn, AsyncGenerator):
            await stack.enter_async_context(aclosing(cast("AsyncGenerator[str | Reply]", turn)))
        async for piece in turn:
            if isinstance(piece, Reply):
                reply = piece
            else:
                on_text(piece)
    if reply is None:
        raise ModelError(name, "ended without a reply")
    calls: list[tuple[object, object, object]] = [(call.id, call.name, call.arguments) for call in reply.calls]
    is_right = isinstance(cast("object", reply.text), str)
    for label, tool, arguments in calls:
        is_right = is_right and isinstance(label, str) and isinstance(tool, str) and isinstance(arguments, dict)
    if not is_right or not set(map(type, reply.usage.values())) <= {int}:
        raise ModelError(name, "gave a reply whose text, calls or usage do not have the types of `Reply`")
    try:
        json.dumps([reply.provider, calls], allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(name, f"gave a reply that cannot be written as JSON: {error}") from error
    return reply


def read_arguments(given: object) -> tuple[dict[str, Any], str | None]:
    """Return a call's arguments as JSON values and None, or an empty dict and the problem with them.

    It is stricter than most parsers (`strict_json`), because a person must approve exactly what was meant.

    Args:
        given: A mapping, or JSON text; None and empty text mean no arguments.

    Raises:
        TypeError: The mapping has a value without a JSON form, which a model cannot have sent.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}, None
    try:
        read: object = canonical.strict_loads(given) if isinstance(given, str) else canonical.strict_copy(given)
    except ValueError as error:
        return {}, f"the arguments are not JSON: {error}"
    if not isinstance(read, dict):
        return {}, "the arguments must be a JSON object"
    return cast("dict[str, Any]", read), None


def _call_of(given: object, label: str, model: str) -> ModelCall:
    arguments: object
    problem: str | None = None
    match given:
        case ModelCall():
            label, name, arguments, problem = given.id or label, given.name, given.arguments, given.problem
        case {"name": str(name)}:
            fields = cast("Mapping[str, Any]", given)
            label, arguments = fields.get("id") or label, fields.get("arguments")
        case _:
            pair = _pair(given)
            if pair is None:
                raise ModelError(model, f"asked for {given!r}, which is not a call: give a name and its arguments")
            name, arguments = pair
    try:
        read, found = read_arguments(arguments)
    except TypeError as error:
        raise ModelError(model, f"called {name} with arguments that cannot be written as JSON ({error})") from error
    return ModelCall(str(label), name, read, problem or found)


def _pair(given: object) -> tuple[str, object] | None:
    if not isinstance(given, list | tuple):
        return None
    items = cast("Sequence[object]", given)
    return (items[0], items[1]) if len(items) == 2 and isinstance(items[0], str) else None


def kind_of(value: object) -> str:
    """Describe the type of a value for an error, without showing the value."""
    return "None" if value is None else f"a value of type {type(value).__name__}"


# -- texts for a model about its calls ------------------------------------------------------------------------------


def not_a_tool(name: str, tools: Collection[str]) -> str:
    """Return the text for a call of an unknown tool."""
    near = closest(name, tools)
    hint = "" if near is None else f" Did you mean {near}?"
    return f"There is no tool {name!r}.{hint} There are: {', '.join(tools) or 'none'}. Nothing was run."


def denial_text(name: str, denied: Denied, approval: Mapping[str, Any] | None) -> str:
    """Return the text for a call that was not made; `approval` is the record of its request, if any."""
    above = _above_result(approval)
    if approval is not None and approval.get("message_for_model") and not above:
        return approval["message_for_model"]
    return above + not_run(name, denied.message, may_change=denied.is_feedback)


def _above_result(approval: Mapping[str, Any] | None) -> str:
    """Return a person's comments and changes from an approval, for the line above the result."""
    if approval is None or not approval.get("resolution", {}).get("approved") or not approval.get("message_for_model"):
        return ""
    return f"{approval['message_for_model']}\n"


def text_of(value: Any) -> str:
    """Convert a value to text for a model: text is unchanged, other values become JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
