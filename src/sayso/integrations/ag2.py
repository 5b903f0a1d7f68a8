"""Sayso in AG2 (extra `ag2`): an agent's middleware holds tool calls.

It needs AG2 1.0 or later, whose agents are `ag2.Agent`. AG2 would show an exception to the model as a traceback, so a
refusal is returned as a result in words.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from copy import copy
from typing import Any, Unpack

from sayso.errors import ConfigError
from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolHook, framework

_middleware: Any = framework("ag2.middleware", "ag2", "AG2")
_events: Any = framework("ag2.events", "ag2", "AG2")
_exceptions: Any = framework("ag2.exceptions", "ag2", "AG2")


def hold_tools(agent: Any, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
    """Hold the tool calls of an agent until a person has decided, by appending a middleware to the agent.

    Tools that the provider runs on its own servers are not held. Subtasks (`tasks=TaskConfig()`) have agents without
    middleware, so they must not have a held tool.

    Args:
        agent: The `ag2.Agent`.
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.

    Raises:
        ConfigError: Subtasks of the agent have a held tool. If it is added later, or if none of the agent's tools
            matches one of `tools`, the agent's next model call raises.
    """
    hook = ToolHook(tools, options, suspends=(_exceptions.HumanInputError,))
    _check_subtasks(agent, hook)
    agent.add_middleware(_middleware.Middleware(_Approval, hook=hook, agent=agent))


def _check_subtasks(agent: Any, hook: ToolHook) -> None:
    """Refuse subtasks with a held tool: AG2 gives their agents this agent's tools, but not its middleware."""
    tasks = agent.tasks
    if tasks is None:
        return
    inherited = {_name_of(tool) for tool in agent.tools} - {*tasks.exclude_tools}
    if tasks.include_tools is not None:
        inherited &= {*tasks.include_tools}
    held = [name for name in sorted(inherited | {_name_of(tool) for tool in tasks.extra_tools}) if hook.holds(name)]
    if held:
        raise ConfigError(
            f"subtasks of {agent.name} would run {', '.join(held)} without asking a person; leave them out:"
            f" TaskConfig(exclude_tools={held})"
        )


def _name_of(tool: Any) -> str:
    schema: Any = getattr(tool, "schema", None)
    return str(getattr(tool, "__name__", "") if schema is None else schema.function.name)


def _functions_of(model_call: Any) -> dict[str, Any]:
    """Return by name the functions that AG2 gives to the model: an option of the innermost of its nested calls."""
    while "tools" not in model_call.keywords:
        model_call = model_call.args[0]
    functions = [getattr(schema, "function", None) for schema in model_call.keywords["tools"]]
    return {function.name: function for function in functions if function is not None}


class _Approval(_middleware.BaseMiddleware):
    def __init__(self, event: Any, context: Any, hook: ToolHook, agent: Any) -> None:
        super().__init__(event, context)  # pyright: ignore[reportUnknownMemberType]
        self._hook, self._agent, self._words = hook, agent, dict[str, str]()
        self._functions = dict[str, Any]()  # those that this turn's model can call

    async def on_llm_call(self, call_next: Callable[[Any, Any], Awaitable[Any]], events: Any, context: Any) -> Any:
        _check_subtasks(self._agent, self._hook)
        self._functions = _functions_of(call_next)
        if self._functions:
            self._hook.check(self._functions)
        response = await call_next(events, context)
        words = "" if response.message is None else str(response.message.content or "")
        for call in response.tool_calls.calls if response.tool_calls else ():
            self._words[call.id] = words.strip()
        return response

    async def on_tool_execution(self, call_next: Callable[[Any, Any], Awaitable[Any]], event: Any, context: Any) -> Any:
        """Run a call once it is approved; a refusal becomes its result."""
        if not self._hook.holds(event.name):
            return await call_next(event, context)
        ran: list[Any] = []

        async def execute(approved: dict[str, Any]) -> Any:
            call = copy(event)
            call.arguments, call.serialized_arguments = json.dumps(approved), approved
            ran.append(await call_next(call, context))
            if isinstance(ran[-1], _events.ToolErrorEvent):
                raise ran[-1].error
            return [part.content if isinstance(part, _events.TextInput) else str(part) for part in ran[-1].result.parts]

        function = self._functions.get(event.name)
        call = Call(
            event.name, event.serialized_arguments, id=event.id, conversation=str(context.stream.id),
            schema=getattr(function, "parameters", None), description=getattr(function, "description", None),
            words=self._words.get(event.id, ""),
        )  # fmt: skip
        result = await self._hook.acall(call, execute)
        if result.has_run and not result.words and ran:
            return ran[-1]
        value = "\n".join(result.value) if result.has_run else ""
        return _events.ToolResultEvent.from_call(event, "\n\n".join(each for each in (result.words, value) if each))
