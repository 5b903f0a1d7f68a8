"""Sayso in Agno (extra `agno`): tool hooks of an agent or team hold tool calls.

Agno calls hooks differently in async and sync runs, and skips async hooks in sync runs, so there are two hooks. With
`arun`, waiting occupies no thread.
"""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Unpack, cast

from sayso.errors import ConfigError
from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolHook, framework, must_not_block

_MOST_RUNS = 1_000
_ADDS_TOOLS = (
    "members", "knowledge", "knowledge_retriever", "learning", "skills", "filesystem", "compaction", "_result_store",
    "read_chat_history", "read_tool_call_history", "search_past_sessions", "enable_agentic_memory",
    "enable_agentic_state",
)  # fmt: skip
"""The settings of an agent or team for which Agno gives it further tools, which no hook can list."""


def approval_hooks(tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> list[Callable[..., Any]]:
    """Return the tool hooks that hold tool calls until a person has decided: `Agent(…, tool_hooks=approval_hooks())`.

    Put your own hooks after them: `[*approval_hooks(), audit]`. Agno runs a tool with the arguments as its first hook
    leaves them, so later hooks cannot change what was approved. Each member of a team has its own hooks.

    While no tool matches one of the names, no call is run. If Agno itself adds tools, because the agent has knowledge,
    skills, members or similar, the name is only warned about, and no call is run whose tool has a similar name.

    Args:
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.
    """
    flow: Any = framework("agno.exceptions", "agno", "Agno")
    hook = ToolHook(tools, options, suspends=(flow.AgentRunException, flow.RunCancelledException))
    pending = _Pending(framework("agno.tools.function", "agno", "Agno").Function)

    def holds(name: str, agent: Any, team: Any, run_context: Any) -> bool:
        owner = agent or team
        known = {name, *(function for function, _ in _functions_of(owner, run_context))}
        members: Any = getattr(team, "members", None)
        if isinstance(members, list):  # the hooks may be those of several members
            known.update(function for member in cast("list[Any]", members) for function, _ in _functions_of(member))
        adds = any(getattr(owner, setting, None) not in (None, False) for setting in _ADDS_TOOLS)
        return hook.holds(name, known, or_more=adds)

    async def hold_tool(
        function_name: str, function_call: Callable[..., Awaitable[Any]], arguments: dict[str, Any],
        run_context: Any = None, agent: Any = None, team: Any = None,
    ) -> Any:  # fmt: skip
        if not holds(function_name, agent, team, run_context):
            return await function_call(**arguments)
        _must_be_first(hold_tool, agent, team)

        async def execute(approved: dict[str, Any]) -> Any:
            _replace(arguments, approved)
            return await function_call(**approved)

        return (await hook.acall(pending.call(function_name, arguments, run_context, agent or team), execute)).returned

    def hold_sync_tool(
        function_name: str, function_call: Callable[..., Any], arguments: dict[str, Any], run_context: Any = None,
        agent: Any = None, team: Any = None,
    ) -> Any:  # fmt: skip
        is_other_hooks = inspect.iscoroutinefunction(function_call)
        if is_other_hooks or not holds(function_name, agent, team, run_context):
            return function_call(**arguments)
        _must_be_first(hold_tool, agent, team)
        must_not_block(function_name, "use arun()")

        def execute(approved: dict[str, Any]) -> Any:
            _replace(arguments, approved)
            return function_call(**approved)

        return hook.call(pending.call(function_name, arguments, run_context, agent or team), execute).returned

    return [hold_tool, hold_sync_tool]


def _must_be_first(hook: Any, *owners: Any) -> None:
    """Refuse a position at which arguments are a copy, because a person's changes would not reach the tool."""
    if not any(owner is not None and (owner.tool_hooks or [None])[0] is hook for owner in owners):
        raise ConfigError("approval_hooks() must be the first in tool_hooks=; the call was not run")


def _replace(arguments: dict[str, Any], approved: Mapping[str, Any]) -> None:
    arguments.clear()
    arguments.update(approved)


class _Pending:
    """Finds the model's id of a call in the messages of its run, because Agno does not pass it to hooks."""

    def __init__(self, function_class: Any) -> None:
        self._function_class = function_class
        self._taken = OrderedDict[str, set[str]]()  # by run

    def call(self, name: str, arguments: Mapping[str, Any], run_context: Any, owner: Any) -> Call:
        """Return the call to hold; equal calls of one message take its ids in order."""
        call = Call(name, arguments)
        for known, function in _functions_of(owner, run_context):
            entrypoint = getattr(function, "entrypoint", function)
            if known == name and callable(entrypoint):
                made = self._function_class.from_callable(entrypoint)
                description = getattr(function, "description", None) or made.description
                call = call._replace(schema=made.parameters, description=description)
                break
        if run_context is None:
            return call
        taken = self._taken.setdefault(run_context.run_id, set())
        while len(self._taken) > _MOST_RUNS:
            self._taken.popitem(last=False)
        messages: list[Any] = run_context.messages or []
        for message in reversed(messages):
            calls: list[dict[str, Any]] = message.tool_calls or []
            for asked in calls:
                function = asked["function"]
                is_it = function["name"] == name and json.loads(function["arguments"] or "{}") == arguments
                if is_it and asked["id"] not in taken:
                    taken.add(asked["id"])
                    words = str(message.content or "").strip()
                    return call._replace(id=asked["id"], words=words, conversation=run_context.session_id)
        return call._replace(conversation=run_context.session_id)


def _functions_of(owner: Any, run_context: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield the functions of the tools that an agent or team was given, and those of this run, by name."""
    lists: list[Any] = [getattr(run_context, "tools", None) or getattr(owner, "tools", None)]
    lists.append(getattr(run_context, "client_tools", None))
    tools: list[Any] = [tool for each in lists if isinstance(each, list) for tool in cast("list[Any]", each)]
    for tool in tools:
        toolkit: dict[str, Any] = {**getattr(tool, "functions", {}), **getattr(tool, "async_functions", {})}
        for each in toolkit.values() or (tool,):
            name = getattr(each, "name", None) or getattr(each, "__name__", None)
            if name is not None:
                yield name, each
