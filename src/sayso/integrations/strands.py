"""Sayso in Strands Agents (extra `strands`): a plugin holds tool calls at the point where tools execute.

`BeforeToolCallEvent` hooks and interrupts run before it, so a person sees the arguments as other hooks changed them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from typing import Any, Unpack

from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolFailed, ToolHook, framework

_plugins: Any = framework("strands.plugins", "strands", "Strands Agents")
_stages: Any = framework("strands.middleware.stages", "strands", "Strands Agents")
_events: Any = framework("strands.types.events", "strands", "Strands Agents")


class _Interrupted(Exception):
    """The tool interrupts its agent, which calls it again after the interrupt is answered."""


class ToolApproval(_plugins.Plugin):
    """Holds the tool calls of an agent until a person has decided: `Agent(…, plugins=[ToolApproval()])`.

    Put it last. An agent as a tool has its own plugins. Output that a held tool streams arrives after the tool ends.

    Args:
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.
    """

    name = "sayso-tool-approval"

    def __init__(self, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._hook = ToolHook(tools, options, suspends=(_Interrupted,))

    def init_agent(self, agent: Any) -> None:
        """Install the plugin before each tool execution of the agent."""
        agent.add_middleware(_stages.ExecuteToolStage, self.execute_tool)

    async def execute_tool(self, context: Any, next_stage: Callable[[Any], AsyncGenerator[Any]]) -> AsyncGenerator[Any]:
        """Run a call once it is approved; a refusal becomes its result, with the status `error`."""
        name, known = context.tool_use["name"], context.agent.tool_registry.registry
        is_held = context.tool is not None and self._hook.holds(name, known)
        async for event in self._hold(context, next_stage) if is_held else next_stage(context):
            yield event

    async def _hold(self, context: Any, next_stage: Callable[[Any], AsyncGenerator[Any]]) -> AsyncGenerator[Any]:
        use, spec, events = context.tool_use, context.tool.tool_spec, list[Any]()

        async def execute(approved: dict[str, Any]) -> Any:
            events.extend([each async for each in next_stage(context.replace(tool_use={**use, "input": approved}))])
            results = [event for event in events if isinstance(event, _events.ToolResultEvent)]
            if not results:
                raise _Interrupted
            content = results[-1].tool_result["content"]
            if results[-1].tool_result.get("status") == "error":
                raise results[-1].exception or ToolFailed(str(content))
            return content

        call = Call(
            use["name"], use["input"], id=use["toolUseId"], conversation=context.agent.session_id,
            schema=spec["inputSchema"].get("json"), description=spec["description"],
            words=_model_text(context.agent.messages, use["toolUseId"]),
        )  # fmt: skip
        try:
            result = await self._hook.acall(call, execute)
        except _Interrupted:
            result = None
        for event in events:
            if not isinstance(event, _events.ToolResultEvent):
                yield event
        if result is None:
            return
        words = [{"text": result.words}] if result.words else []
        status, content = ("success", [*words, *result.value]) if result.has_run else ("error", words)
        yield _events.ToolResultEvent({"toolUseId": use["toolUseId"], "status": status, "content": content})


def _model_text(messages: list[Any], call_id: str) -> str:
    for message in reversed(messages):
        parts = message["content"]
        if any(part.get("toolUse", {}).get("toolUseId") == call_id for part in parts):
            return "".join(part.get("text", "") for part in parts).strip()
    return ""
