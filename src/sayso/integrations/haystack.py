"""Sayso in Haystack (extra `haystack`): the tools of an `Agent` wait for a person.

Haystack's own confirmation strategies decide the calls of a turn one after the other, before any of them runs; here
each call waits by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import Any, Unpack

from sayso.errors import ConfigError
from sayso.gates.hold import HoldOptions
from sayso.integrations.tool_calls import Call, PendingCalls, ToolHook, framework, is_in_loop


class ToolApproval:
    """Holds the tools of an agent until a person has decided.

    It goes into two places. `tools=approval.hold([…])` makes the held tools; `hooks={"before_tool": [approval]}` lets
    them know the model's id of each call, by which a replay finds its result. `run_async` waits without a thread. An
    agent runs four calls of a turn at once, those that wait among them: raise `tool_concurrency_limit` where free calls
    must not be held up by more.

    Args:
        tools: Names or patterns of the tools to hold; all of them when not given.
        options: As for `sayso.hold`.
    """

    allowed_hook_points = ("before_tool",)

    def __init__(self, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
        self._hook, self._pending = ToolHook(tools, options), PendingCalls()
        self._tools: Any = framework("haystack.tools", "haystack", "Haystack")

    def hold(self, tools: Sequence[Any]) -> list[Any]:
        """Return the tools, of toolsets too, with those that are to be held held.

        Raises:
            ConfigError: A tool that is to be held is not among them.
        """
        every = self._tools.flatten_tools_or_toolsets(list(tools))
        names = [tool.name for tool in every]
        return [self._held(tool) if self._hook.holds(tool.name, names) else tool for tool in every]

    def run(self, state: Any) -> None:
        """Take note of the calls that are about to run; the agent calls it."""
        messages = state.data.get("messages") or ()
        if messages:
            calls = [(call.id, call.tool_name, call.arguments) for call in messages[-1].tool_calls]
            self._pending.show(calls, (messages[-1].text or "").strip())

    async def run_async(self, state: Any) -> None:
        """Do what `run` does."""
        self.run(state)

    def _held(self, tool: Any) -> Any:
        held = copy(tool)

        async def acall(**arguments: Any) -> Any:
            async def execute(approved: dict[str, Any]) -> Any:
                return await tool.invoke_async(**{**arguments, **approved})

            return (await self._hook.acall(self._call(tool, arguments), execute)).returned

        def call(**arguments: Any) -> Any:
            if is_in_loop():
                raise ConfigError(f"{tool.name} waits for a person and was called in an event loop; use run_async()")

            def execute(approved: dict[str, Any]) -> Any:
                return tool.invoke(**{**arguments, **approved})

            return self._hook.call(self._call(tool, arguments), execute).returned

        held.function, held.async_function = call, acall
        return held

    def _call(self, tool: Any, arguments: dict[str, Any]) -> Call:
        """Return the call as a person sees it: without what the agent fills in from its state."""
        properties = tool.parameters.get("properties", {})
        given = {name: value for name, value in arguments.items() if name in properties}
        call_id, words = self._pending.take(tool.name, given)
        return Call(tool.name, given, id=call_id, schema=tool.parameters, description=tool.description, words=words)
