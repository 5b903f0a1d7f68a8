"""The state of a `ReAct` run, and its form as plain JSON that can be shown, saved and sent: the context of a pause.

In memory, messages are exactly what the model saw; in the context, every secret is masked. A context contains nothing
that could run: a waiting call is identified by its request's id, and its arguments are in the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from sayso import errors
from sayso.gates.hooks import secrets_of
from sayso.model import canonical
from sayso.model.redaction import MASK, Redaction, scrub
from sayso.model.request import Call, Request, secrets_of_call
from sayso.model.reviewer import Identity
from sayso.runs.agent import Tool
from sayso.runs.messages import Message, ModelCall, Reply


@dataclass
class Waiting:
    """A call of the model's last turn that has no result yet.

    Attributes:
        id: The provider's id of the call.
        tool: The name of the tool.
        request: The id of the request that holds it.
        is_asked: False if that request belongs to an equal call of the same turn, and this one is asked afterwards.
    """

    id: str
    tool: str
    request: str
    is_asked: bool = True


@dataclass
class ReActState:
    """The state of a run.

    Attributes:
        run_id: The run to which its decisions belong.
        inputs: The inputs of the call, as JSON values.
        messages: The conversation with the model.
        waiting: The calls that wait for a person, in the order of the calls.
        occasions: By digest: how often an equal question was answered (see `sayso.gates.scope`).
        acts_for: The people for whom the run acts.
    """

    run_id: str
    inputs: dict[str, Any]
    messages: list[Message]
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    occasions: dict[str, int] = field(default_factory=dict[str, int])
    acts_for: tuple[Identity, ...] = ()
    _secrets: set[str] = field(default_factory=set[str], repr=False)
    _shown: dict[tuple[int, str], dict[str, Any]] = field(
        default_factory=dict[tuple[int, str], dict[str, Any]], repr=False
    )

    def __post_init__(self) -> None:
        self._secrets |= _secrets_in(self.inputs)

    # -- history -----------------------------------------------------------------------------------------------

    @property
    def turns(self) -> int:
        """The number of turns of the model."""
        return sum(message["role"] == "assistant" for message in self.messages)

    def add_reply(self, reply: Reply) -> list[ModelCall]:
        """Add a turn of the model; return its calls, each with a unique id."""
        message, calls, ids = reply.message, reply.calls, {call.id for call in reply.calls}
        # The ids are not unique, so replace them; the provider's own form, which has them, is then useless.
        if "" in ids or len(ids) < len(calls):
            named = [(f"call_{self.turns + 1}_{n}", call) for n, call in enumerate(calls, 1)]
            calls = [ModelCall(label, call.name, call.arguments, call.problem) for label, call in named]
            message = Reply(reply.text, calls, reply.usage).message
        self.messages.append(message)
        return calls

    def add_result(self, call_id: str, name: str, text: str, *, is_error: bool = False) -> None:
        """Add the result of a call of the last turn; results are in the order of the calls."""
        result = {"role": "tool", "tool_call_id": call_id, "name": name, "content": text, "is_error": is_error}
        self.messages.append(result)
        last = max(n for n, message in enumerate(self.messages) if message["role"] == "assistant")
        order = [call["id"] for call in self.messages[last]["tool_calls"]]
        self.messages[last + 1 :] = sorted(self.messages[last + 1 :], key=lambda one: order.index(one["tool_call_id"]))

    # -- secrets -----------------------------------------------------------------------------------------------

    def learn_call(self, tool: Tool, call: ModelCall) -> None:
        """Record the secrets of a call of the last turn, according to the tool's options."""
        shown = tool.shown(call.arguments)
        self._shown[self.turns, call.id] = shown
        self._secrets |= _secrets_in(call.arguments, tool, shown)

    def learn_request(self, call_id: str, request: Request) -> None:
        """Record the secrets of a request's call, and how the call is shown."""
        if isinstance(request.subject, Call):
            self._shown[self.turns, call_id] = request.subject.arguments
            for call in {request.subject.digest: request.subject, request.effective.digest: request.effective}.values():
                self._secrets |= secrets_of_call(call, request)

    def scrubbed(self, text: str) -> str:
        """Mask the secrets of this run's calls in a text."""
        return scrub(text, self._secrets) if self._secrets else text

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                return self.scrubbed(value)
            case list():
                return [self._clean(one) for one in cast("list[Any]", value)]
            case dict():
                return {name: self._clean(one) for name, one in cast("dict[str, Any]", value).items()}
            case _:
                return value

    # -- as JSON -----------------------------------------------------------------------------------------------

    def context(self, seen: str | None) -> dict[str, Any]:
        """Return the content of a pause, which is sufficient to continue in another process and has no secrets.

        Args:
            seen: The fingerprint of the call that the person is shown.
        """
        inputs, messages = self._clean(_masked(self.inputs)), self._messages()
        return {
            "run_id": self.run_id,
            "iteration": self.turns - 1,
            "input_args": inputs,
            "trajectory": _trajectory(messages),
            "pending_tool_call": _pending(messages, self.waiting),
            "messages": messages,
            "waiting": [asdict(one) for one in self.waiting],
            "occasions": dict(self.occasions),
            "seen": seen,
            **({"original_question": inputs["question"]} if "question" in inputs else {}),
        }

    @property
    def trajectory(self) -> dict[str, Any]:
        """The thoughts, calls and observations: `thought_0`, `tool_calls_0`, `observation_0`, and so on."""
        return _trajectory(self._messages())

    def _messages(self) -> list[Message]:
        turn, found = 0, list[Message]()
        for message in self.messages:
            if message["role"] != "assistant":
                found.append(self._clean(message))
                continue
            turn += 1
            shown = [
                {**call, "arguments": self._shown.get((turn, call["id"]), _masked(call["arguments"]))}
                for call in message["tool_calls"]
            ]
            clean = self._clean({**message, "tool_calls": shown})
            if clean != message:  # the provider's own form must be returned unchanged, so it cannot be masked
                clean.pop("provider", None)
            found.append(clean)
        return found

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> ReActState:
        """Restore the state from a `context`.

        Raises:
            ConfigError: It is not a valid context.
        """
        try:
            waiting = [
                Waiting(*(str(one[name]) for name in ("id", "tool", "request")), is_asked=bool(one["is_asked"]))
                for one in context["waiting"]
            ]
            occasions = {str(name): int(count) for name, count in context["occasions"].items()}
            messages = cast("list[Message]", json.loads(json.dumps(context["messages"])))
            state = cls(str(context["run_id"]), dict(context["input_args"]), messages, waiting, occasions)
            is_whole = bool(waiting) and state.turns > 0
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise errors.ConfigError(f"this pause has no state of ReAct ({type(error).__name__}: {error})") from None
        if not is_whole:
            raise errors.ConfigError("this pause has a state of ReAct in which no call waits")
        return state


def _masked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        tree = canonical.load(canonical.encode(dict(arguments)).text)
    except errors.ArgumentError:
        return dict.fromkeys(arguments, MASK)
    return cast("dict[str, Any]", canonical.display(cast("Any", Redaction().mask(tree))))


def _secrets_in(
    arguments: Mapping[str, Any], tool: Tool | None = None, shown: Mapping[str, Any] | None = None
) -> frozenset[str]:
    try:
        text = canonical.encode(dict(arguments)).text
    except errors.ArgumentError:
        return frozenset()
    if tool is None:
        return Redaction().secrets(canonical.load(text))
    return secrets_of(tool.gate, text, json.dumps(shown, ensure_ascii=False, default=str))


def _pending(messages: Sequence[Message], waiting: Sequence[Waiting]) -> dict[str, Any] | None:
    """Return the first waiting call in its masked form."""
    if not waiting:
        return None
    calls = next(message["tool_calls"] for message in reversed(messages) if message["role"] == "assistant")
    call = next((one for one in calls if one["id"] == waiting[0].id), None)
    return {"name": waiting[0].tool, "args": {} if call is None else call["arguments"], "id": waiting[0].id}


def _trajectory(messages: Sequence[Message]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    turn = -1
    for message in messages:
        if message["role"] == "assistant":
            turn += 1
            found[f"thought_{turn}"] = message["content"]
            found[f"tool_calls_{turn}"] = [
                {"id": call["id"], "name": call["name"], "args": call["arguments"]} for call in message["tool_calls"]
            ]
        elif message["role"] == "tool":
            before = found.get(f"observation_{turn}")
            text = message["content"]
            found[f"observation_{turn}"] = text if before is None else f"{before}\n{text}"
    return found
