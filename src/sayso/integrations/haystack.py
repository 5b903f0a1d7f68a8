"""Sayso in Haystack (extra `haystack`): the tools of an `Agent` wait for a person.

Haystack's own confirmation strategies decide all calls of a turn one after another before any of them runs. Here each
call waits separately.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import Any, Unpack

from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, PendingCalls, ToolHook, framework, must_not_block

_CALLBACK = "streaming_callback"  # injected where an agent passes its streaming on to tools


class ToolApproval:
    """Holds the tools of an agent until a person has decided.

    Use it in two places. `tools=approval.hold([…])` creates the held tools, and `hooks={"before_tool": [approval]}`
    gives them the model's id of each call, with which a replay finds its result. `run_async` waits without a thread. An
    agent runs four calls of a turn at once, including those that wait; raise `tool_concurrency_limit` if waiting calls
    must not delay ungated ones.

    Args:
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.
    """

    allowed_hook_points = ("before_tool",)

    def __init__(self, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
        self._hook, self._pending = ToolHook(tools, options), PendingCalls()
        self._tools: Any = framework("haystack.tools", "haystack", "Haystack")

    def hold(self, tools: Sequence[Any]) -> list[Any]:
        """Return all tools, including those of toolsets, and replace those to hold by held ones.

        Raises:
            ConfigError: A tool to hold is not among them.
        """
        every = self._tools.flatten_tools_or_toolsets(list(tools))
        names = [tool.name for tool in every]
        return [self._hold_tool(tool) if self._hook.holds(tool.name, names) else tool for tool in every]

    def run(self, state: Any) -> None:
        """Record the calls that are about to run; the agent calls this hook."""
        messages = state.data.get("messages") or ()
        if messages:
            calls = [(call.id, call.tool_name, call.arguments) for call in messages[-1].tool_calls]
            self._pending.show(calls, (messages[-1].text or "").strip())

    async def run_async(self, state: Any) -> None:
        """Do the same as `run`."""
        self.run(state)

    def _hold_tool(self, tool: Any) -> Any:
        held = copy(tool)

        async def acall(**arguments: Any) -> Any:
            made, injected = self._call(tool, arguments)

            async def execute(approved: dict[str, Any]) -> Any:
                return await tool.invoke_async(**{**injected, **approved})

            return (await self._hook.acall(made, execute)).returned

        def call(**arguments: Any) -> Any:
            must_not_block(tool.name, "use run_async()")
            made, injected = self._call(tool, arguments)

            def execute(approved: dict[str, Any]) -> Any:
                return tool.invoke(**{**injected, **approved})

            return self._hook.call(made, execute).returned

        held.function, held.async_function = call, acall
        return held

    def _call(self, tool: Any, arguments: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
        """Return the call for a person, with every argument that the model gave, and those that the agent injected."""
        declared: dict[str, Any] = tool.parameters.get("properties", {})
        from_state: dict[str, str] = tool.inputs_from_state or {}
        injectable = {*from_state.values(), _CALLBACK} - declared.keys()
        call_id, words, given = self._pending.take(tool.name, arguments, injectable)
        made = Call(tool.name, given, id=call_id, schema=tool.parameters, description=tool.description, words=words)
        return made, {name: value for name, value in arguments.items() if name not in given}
