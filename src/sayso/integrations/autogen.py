"""Sayso in AutoGen (extra `autogen`): a workbench wraps another one and holds its tools.

An assistant runs its tools in tasks that survive the cancellation of its run. A call that waits for a person is
withdrawn anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from typing import Any, Unpack

from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolFailed, ToolHook, ToolResult, framework
from sayso.model.request import not_run

_core: Any = framework("autogen_core.tools", "autogen", "AutoGen")
_Task = asyncio.Task[Any]
_tasks = ContextVar[tuple[_Task | None, _Task | None]]("sayso_autogen", default=(None, None))


class ApprovalWorkbench(_core.Workbench):
    """Holds the calls of a workbench until a person has decided.

    Use `AssistantAgent(…, workbench=ApprovalWorkbench(StaticWorkbench(tools)))`, or wrap an `McpWorkbench`. An agent as
    a tool has its own workbench, and runs without streaming.

    Args:
        workbench: The workbench whose tools are called.
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.
    """

    def __init__(self, workbench: Any, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
        self._workbench, self._hook = workbench, ToolHook(tools, options)

    async def list_tools(self) -> Any:
        """Return the tools of the workbench.

        Raises:
            ConfigError: None of them matches a name of a tool to hold.
        """
        task, (last, before) = asyncio.current_task(), _tasks.get()
        _tasks.set((task, before if last is task else last))  # called in the agent's run, and again in each call
        tools = await self._workbench.list_tools()
        if tools:
            self._hook.check([tool["name"] for tool in tools])
        return tools

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> Any:  # fmt: skip
        """Run a call once it is approved; a refusal becomes its result, marked as an error."""
        try:
            tools = {tool["name"]: tool for tool in await self.list_tools()}
            is_held = self._hook.holds(name, tools or [name], or_more=not tools)  # a workbench may list its tools later
        except Exception as error:  # noqa: BLE001  an assistant would hang if this raised
            why = [_core.TextResultContent(content=not_run(name, str(error)))]
            return _core.ToolResult(name=name, result=why, is_error=True)
        if not is_held:
            return await self._workbench.call_tool(name, arguments, cancellation_token, call_id)

        async def execute(approved: dict[str, Any]) -> Any:
            made = await self._workbench.call_tool(name, approved, cancellation_token, call_id)
            if made.is_error:
                raise ToolFailed(made.to_text())
            return [each.model_dump(mode="json") for each in made.result]

        tool = tools.get(name, {})
        call = Call(
            name, arguments or {}, id=call_id, schema=tool.get("parameters"), description=tool.get("description")
        )
        waiting = asyncio.ensure_future(self._hook.acall(call, execute))
        if cancellation_token is not None:
            cancellation_token.link_future(waiting)
        for task in (asyncio.current_task(), _tasks.get()[1]):  # cancelling the run does not cancel the former
            if task is not None:
                task.add_done_callback(lambda _: waiting.cancel())
        await asyncio.wait([waiting])
        if waiting.cancelled() or waiting.exception() is not None:  # as above
            why = "the run was cancelled" if waiting.cancelled() else str(waiting.exception())
            result = ToolResult(not_run(name, why), has_run=False)
        else:
            result = waiting.result()
        words = [_core.TextResultContent(content=result.words)] if result.words else []
        contents = [*words, *(result.value if result.has_run else ())]
        return _core.ToolResult(name=name, result=contents, is_error=not result.has_run)

    async def start(self) -> None:
        """Start the workbench."""
        await self._workbench.start()

    async def stop(self) -> None:
        """Stop the workbench."""
        await self._workbench.stop()

    async def reset(self) -> None:
        """Reset the workbench."""
        await self._workbench.reset()

    async def save_state(self) -> Any:
        """Return the state of the workbench."""
        return await self._workbench.save_state()

    async def load_state(self, state: Any) -> None:
        """Load the state of the workbench."""
        await self._workbench.load_state(state)
