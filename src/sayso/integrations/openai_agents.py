"""Sayso in the OpenAI Agents SDK (extra `openai-agents`): an agent's tool calls wait for a person.

`gate` wraps a function tool, or an agent as a tool; `resume` continues a paused run; `ModelWords` shows reviewers what
the model wrote. A call waits in place (`wait="block"`), or the SDK pauses the run (`wait="pause"`). Invariant: only the
store decides. An approval in the SDK's own state, which may be old or altered, starts nothing.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import json
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar, Unpack, cast

from sayso import aio, clock, config, errors
from sayso.effects import Suspended, offload
from sayso.gates import scope
from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import acall_tool, check_options, check_wait, options_of
from sayso.model.request import State, not_run
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

T = TypeVar("T")
Wait = Literal["block", "pause"]
_MOST_WORDS = 1_000

_sdk: Any = None
_RunHooks: Any = object
with suppress(ImportError):  # `gate` reports it
    _sdk = importlib.import_module("agents")
    _tools: Any = importlib.import_module("agents.tool")
    _RunHooks = _sdk.RunHooks


def gate(tool: T, *, wait: Wait = "block", **options: Unpack[HoldOptions]) -> T:
    """Return a copy of a tool whose calls wait for a person.

    Run the agent inside `sayso.run(conversation_id)`, because a call is identified by its id and the run's name.

    Args:
        tool: A `FunctionTool`: a function, a tool of an MCP server (`MCPUtil.get_function_tools`), or an agent as a
            tool, whose whole task is then approved; only gates of its own tools hold what it does. `needs_approval` is
            replaced, and `timeout_seconds` counts from the start of the approved call.
        wait: `block` waits in place, and withdraws the request if the run is cancelled. `pause` ends the run with
            `interruptions`; save `result.to_state().to_string()`, and continue with `resume`.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `context` and `store`, as for `sayso.hold`.

    Raises:
        ConfigError: The tool is not a function tool, or an option is invalid.
        TypeError: There is no such option.
    """
    if _sdk is None:
        raise errors.ConfigError('the OpenAI Agents SDK is not installed: pip install "sayso[openai-agents]"')
    if not isinstance(tool, _sdk.FunctionTool):
        raise errors.ConfigError(f"gate() takes a function tool of the OpenAI Agents SDK, not {tool!r}")
    check_wait(wait, "block", "pause")
    check_options(options, "context")
    config.check_store(options.get("store"))
    gated = _GatedTool(tool, wait, options)
    made: Any = copy.copy(tool)
    made.on_invoke_tool = gated.invoke
    made.needs_approval = gated.needs_approval if wait == "pause" else False
    made.timeout_seconds = None  # otherwise it would also limit the wait
    return cast("T", made)


async def resume(paused: Any) -> Any:
    """Return the state of a paused run for `Runner.run(agent, state)`, in which decided calls continue.

    Calls that still wait for a person stay interrupted, so the run pauses again. Interruptions of tools that sayso does
    not gate are unchanged. Call this and the runner inside `sayso.run(…)` with the name of the run.

    Args:
        paused: A `RunState`, e.g. from `RunState.from_string(agent, text)`, or the result of the paused run.

    Raises:
        StoreError: The store cannot be reached; nothing continues.
    """
    state = paused.to_state() if hasattr(paused, "to_state") else paused
    waiting: dict[int, set[str | None]] = {}  # by store: the keys of pending requests
    for item in state.get_interruptions():
        gated = _gate_of(item)
        if gated is None:
            continue
        store = config.open_store(gated.options.get("store"))
        if id(store) not in waiting:
            look = partial(_waiting, store, scope.current().run_id)
            waiting[id(store)] = await offload(look) if store.blocks else look()
        if item.call_id not in waiting[id(store)]:
            state.approve(item)  # makes the SDK call the tool, whose gate reads the decision from the store
    return state


def _gate_of(item: Any) -> _GatedTool | None:
    for tool in item.agent.tools:
        gated = getattr(getattr(tool, "on_invoke_tool", None), "__self__", None)
        if tool.name == item.tool_name and isinstance(gated, _GatedTool):
            return gated
    return None


def _waiting(store: Store, run_id: str) -> set[str | None]:
    wanted = Filter(states=frozenset({State.PENDING}), run_id=run_id, at=clock.now())
    return {request.key for request in requests_in(store, wanted)}


class _GatedTool:
    """A tool and the options with which it is held. The SDK calls its two methods instead of the tool's."""

    def __init__(self, tool: Any, wait: Wait, options: HoldOptions) -> None:
        self.options: HoldOptions = options
        self._wait = wait
        self._name: str = tool.qualified_name
        self._schema: dict[str, Any] = tool.params_json_schema
        self._description: str | None = tool.description or None
        self._timeout: float | None = tool.timeout_seconds
        self._is_agent = getattr(tool, "_is_agent_tool", False) is True
        self._on_error = _tools.resolve_function_tool_failure_error_function(tool)
        # Otherwise the SDK would turn an error into text, and the call would not be recorded as failed.
        self._tool = _tools.set_function_tool_failure_error_function(copy.copy(tool), None)

    async def needs_approval(self, _: Any, arguments: dict[str, Any], call_id: str) -> bool:
        """Ask for the call, and return whether the run must pause until a person decides."""
        try:
            return (await aio.hold(self._name, arguments, **self._options_of(call_id))).state == State.PENDING
        except errors.ArgumentError:
            return False  # `invoke` reports it to the model

    async def invoke(self, context: Any, text: str) -> Any:
        """Run the call once it is approved, and return the result for the model."""
        try:
            arguments = json.loads(text or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return not_run(self._name, "its arguments are not a JSON object", may_change=True)
        failed: list[Exception] = []

        async def run(approved: dict[str, Any]) -> Any:
            try:
                return await self._call(context, approved)
            except Exception as error:
                failed.append(error)
                raise

        # The SDK's default message for a failed call always says "please try again".
        is_default = self._on_error is _tools.default_tool_error_function
        try:
            result = await acall_tool(
                self._name, cast("dict[str, Any]", arguments), run, self._options_of(context.tool_call_id),
                tells_failure=is_default,
            )  # fmt: skip
        except Suspended:
            return None  # an agent as a tool has paused, and the SDK calls it again after the decision
        except Exception as error:
            if error not in failed or self._on_error is None:
                raise
            message = self._on_error(context, error)
            return await message if asyncio.iscoroutine(message) else message
        return _with_words(result.words, result.value) if result.has_run else result.words

    def _options_of(self, call_id: str) -> HoldOptions:
        run, is_blocking = scope.current(), self._wait == "block"
        options: dict[str, Any] = {"suspends": Suspended, **self.options, "withdraw_on_exit": is_blocking}
        if not is_blocking:
            options["run"] = None  # use the enclosing run, which needs a name so that the call can be found again
        name = run.run_id if run.owner is None else None
        words = _words.get((run.run_id, call_id))
        return options_of(
            options, key=call_id, run=name, schema=self._schema, description=self._description, words=words
        )

    async def _call(self, context: Any, arguments: dict[str, Any]) -> Any:
        context.tool_arguments = json.dumps(arguments, ensure_ascii=False)  # for hooks and the tool
        async with asyncio.timeout(self._timeout):
            result = await self._tool.on_invoke_tool(context, context.tool_arguments)
        if self._is_agent and result is None:
            raise Suspended
        return result


def _with_words(words: str, result: Any) -> Any:
    if not words:
        return result
    outputs = (_sdk.ToolOutputText, _sdk.ToolOutputImage, _sdk.ToolOutputFileContent)
    parts = cast("list[Any]", result) if isinstance(result, list) else [result]
    if parts and all(isinstance(part, outputs) for part in parts):
        return [_sdk.ToolOutputText(text=words), *parts]
    return f"{words}\n\n{result}"


_words: OrderedDict[tuple[str, str], str] = OrderedDict()


class ModelWords(_RunHooks):
    """Shows the reviewer the text that the model wrote with its calls: `Runner.run(agent, …, hooks=ModelWords())`.

    It is needed because the SDK gives a tool only its arguments. A subclass that overrides `on_llm_end` must call this.
    """

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:  # noqa: ARG002  the SDK's signature
        """Record the model's text for each of its calls."""
        texts = [_sdk.ItemHelpers.extract_text(item) for item in response.output]
        words = " ".join(text for text in texts if text).strip()
        for item in response.output:
            if words and item.type == "function_call":
                _words[scope.current().run_id, item.call_id] = words
        while len(_words) > _MOST_WORDS:
            _words.popitem(last=False)
