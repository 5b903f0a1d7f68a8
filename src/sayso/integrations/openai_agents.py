"""Sayso in the OpenAI Agents SDK (extra `openai-agents`): a tool of an agent waits for a person.

`gate` wraps a function tool, or an agent as a tool; `resume` lets a paused run go on; `ModelWords` shows reviewers what
the model wrote. A call waits in place (`wait="block"`) or the SDK pauses the run (`wait="pause"`). Invariant: the store
alone decides. An approval in the SDK's own state, which may be old or altered, starts nothing.
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
from sayso.gates.hold import HoldOptions
from sayso.integrations.tool_calls import acall_tool, check_options, options_of
from sayso.model.request import State, not_run
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

T = TypeVar("T")
Wait = Literal["block", "pause"]
_MOST_WORDS = 1_000

_sdk: Any = None
_RunHooks: Any = object
with suppress(ImportError):  # `gate` says so
    _sdk = importlib.import_module("agents")
    _tools: Any = importlib.import_module("agents.tool")
    _RunHooks = _sdk.RunHooks


def gate(tool: T, *, wait: Wait = "block", **options: Unpack[HoldOptions]) -> T:
    """Return a copy of a tool whose calls wait for a person.

    Run the agent inside of `sayso.run(conversation_id)`: a call is known by its id and the name of the run.

    Args:
        tool: A `FunctionTool`: a function, a tool of an MCP server (`MCPUtil.get_function_tools`), or an agent as a
            tool, whose whole errand is then approved; what it does is held by the gates of its own tools. Its
            `needs_approval` is replaced, and its `timeout_seconds` counts from the start of the approved call.
        wait: `block` waits in place, and takes the request back where the run is cancelled. `pause` ends the run with
            `interruptions`; save `result.to_state().to_string()`, and go on with `resume`.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `context` and `store`, as for `sayso.hold`.

    Raises:
        ConfigError: This is no function tool, or an option cannot be used.
        TypeError: There is no such option.
    """
    if _sdk is None:
        raise errors.ConfigError('the OpenAI Agents SDK is not installed: pip install "sayso[openai-agents]"')
    if not isinstance(tool, _sdk.FunctionTool):
        raise errors.ConfigError(f"gate() takes a function tool of the OpenAI Agents SDK, not {tool!r}")
    if wait not in {"block", "pause"}:
        raise errors.ConfigError(f'wait= takes "block" or "pause", not {wait!r}')
    check_options(options, "context")
    config.check_store(options.get("store"))
    gated = _GatedTool(tool, wait, options)
    made: Any = copy.copy(tool)
    made.on_invoke_tool = gated.invoke
    made.needs_approval = gated.needs_approval if wait == "pause" else False
    made.timeout_seconds = None  # or it would end the wait
    return cast("T", made)


async def resume(paused: Any) -> Any:
    """Return the state of a paused run, ready for `Runner.run(agent, state)`: what was decided goes on.

    What still waits for a person stays interrupted, and the run pauses again. Interruptions of tools that are not
    gated by sayso are left as they are. Call it, and the runner, inside of `sayso.run(…)` with the name of the run.

    Args:
        paused: A `RunState`, as of `RunState.from_string(agent, text)`, or the result of the run that was paused.

    Raises:
        StoreError: The store cannot be reached; nothing goes on.
    """
    state = paused.to_state() if hasattr(paused, "to_state") else paused
    waiting: dict[int, set[str | None]] = {}  # the keys that wait, by the store
    for item in state.get_interruptions():
        gated = _gate_of(item)
        if gated is None:
            continue
        store = config.open_store(gated.options.get("store"))
        if id(store) not in waiting:
            look = partial(_waiting, store, scope.current().run_id)
            waiting[id(store)] = await offload(look) if store.blocks else look()
        if item.call_id not in waiting[id(store)]:
            state.approve(item)  # that is: call the tool. The gate then asks the store what was decided
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
    """A tool and how its calls are held; its two methods are what the SDK calls in the tool's place."""

    def __init__(self, tool: Any, wait: Wait, options: HoldOptions) -> None:
        self.options: HoldOptions = options
        self._wait = wait
        self._name: str = tool.qualified_name
        self._schema: dict[str, Any] = tool.params_json_schema
        self._description: str | None = tool.description or None
        self._timeout: float | None = tool.timeout_seconds
        self._is_agent = getattr(tool, "_is_agent_tool", False) is True
        self._on_error = _tools.resolve_function_tool_failure_error_function(tool)
        # The SDK would turn an error into a text before the record sees that the call failed.
        self._tool = _tools.set_function_tool_failure_error_function(copy.copy(tool), None)

    async def needs_approval(self, _: Any, arguments: dict[str, Any], call_id: str) -> bool:
        """Ask for the call, and return whether the run is to pause because a person has to decide."""
        try:
            return (await aio.hold(self._name, arguments, **self._options_of(call_id))).state == State.PENDING
        except errors.ArgumentError:
            return False  # `invoke` tells the model

    async def invoke(self, context: Any, text: str) -> Any:
        """Run the call once it is approved, and return what the model is told."""
        try:
            arguments = json.loads(text or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return not_run(self._name, "its arguments are no JSON object", may_change=True)
        failed: list[Exception] = []

        async def run(approved: dict[str, Any]) -> Any:
            try:
                return await self._call(context, approved)
            except Exception as error:
                failed.append(error)
                raise

        # The SDK's own words for a failed call say "please try again", whatever happened.
        is_default = self._on_error is _tools.default_tool_error_function
        try:
            result = await acall_tool(
                self._name, cast("dict[str, Any]", arguments), run, self._options_of(context.tool_call_id),
                tells_failure=is_default,
            )  # fmt: skip
        except Suspended:
            return None  # an agent as a tool has paused inside, and the SDK calls it again when that is decided
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
            options["run"] = None  # the one around, which must have a name for the call to be found again
        name = run.run_id if run.owner is None else None
        words = _words.get((run.run_id, call_id))
        return options_of(
            options, key=call_id, run=name, schema=self._schema, description=self._description, words=words
        )

    async def _call(self, context: Any, arguments: dict[str, Any]) -> Any:
        context.tool_arguments = json.dumps(arguments, ensure_ascii=False)  # hooks and the tool see what was approved
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
    """Shows the reviewer what the model wrote beside its calls: `Runner.run(agent, …, hooks=ModelWords())`.

    The SDK gives a tool only its arguments. A subclass that overrides `on_llm_end` calls this one.
    """

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:  # noqa: ARG002  the SDK's signature
        """Note the model's words for each call that it makes."""
        texts = [_sdk.ItemHelpers.extract_text(item) for item in response.output]
        words = " ".join(text for text in texts if text).strip()
        for item in response.output:
            if words and item.type == "function_call":
                _words[scope.current().run_id, item.call_id] = words
        while len(_words) > _MOST_WORDS:
            _words.popitem(last=False)
