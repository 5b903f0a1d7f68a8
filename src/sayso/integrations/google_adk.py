"""Sayso in the Google Agent Development Kit (extra `google-adk`): a runner plugin holds tool calls.

ADK's own tool confirmation pauses runs; do not set `require_confirmation` for tools that this plugin holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any, Unpack, cast

from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolFailed, ToolHook, framework

_plugins: Any = framework("google.adk.plugins.base_plugin", "google-adk", "Google ADK")
_tools: Any = framework("google.adk.tools.base_tool", "google-adk", "Google ADK")
_agents: Any = framework("google.adk.agents", "google-adk", "Google ADK")
_agent_tool: Any = framework("google.adk.tools.agent_tool", "google-adk", "Google ADK")
_LISTED = (_agents.LlmAgent, _agents.SequentialAgent, _agents.ParallelAgent, _agents.LoopAgent)


class ApprovalPlugin(_plugins.BasePlugin):
    """Holds the tool calls of all agents of an app: `App(…, plugins=[ApprovalPlugin()])`.

    Put it last. The agent's own `before_tool_callback` is called with the approved arguments. If it returns a value,
    the model gets that value as the result, and the tool does not run.

    A name that no tool matches raises `ConfigError` at the first model call, which ends the run. If some agents cannot
    be listed (in a workflow, or of a class of your own), the name is only warned about, and no call is run whose tool
    has a similar name.

    Args:
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.
    """

    def __init__(self, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
        super().__init__(name="sayso_approval")  # pyright: ignore[reportUnknownMemberType]
        self._hook = ToolHook(tools, options)
        self._known, self._is_listed = set[str](), True

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Note whether the agents of the app can be listed; those of a workflow cannot."""
        self._is_listed = self._is_listed and invocation_context.agent is not None

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Check the names to hold against the tools of all agents."""
        await self._holds(None, callback_context, llm_request.tools_dict)

    async def _holds(self, name: str | None, context: Any, offered: Collection[str]) -> bool:
        self._known.update(offered)
        if self._hook.unmatched(self._known):
            agent = context.get_invocation_context().agent
            if agent is None:  # a step of a workflow that is no agent
                self._is_listed = False
            else:
                await self._list_tools(agent.root_agent, context)
        return self._hook.holds(name or "", self._known, or_more=not self._is_listed)

    async def _list_tools(self, agent: Any, context: Any) -> None:
        """Add the tools of an agent and of those below it to the known ones."""
        tools = await agent.canonical_tools(context) if isinstance(agent, _agents.LlmAgent) else ()
        self._known.update(tool.name for tool in tools)
        self._is_listed = self._is_listed and isinstance(agent, _LISTED)
        inner = [tool.agent for tool in tools if isinstance(tool, _agent_tool.AgentTool)]
        for each in (*agent.sub_agents, *inner):
            await self._list_tools(each, context)

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Run a call once it is approved, and return its result; a refusal becomes an `error`."""
        if type(tool) is _tools.BaseTool:  # ADK's placeholder for an unknown tool
            return None
        if not await self._holds(tool.name, tool_context, [tool.name]):
            return None
        session, answers = tool_context.session, list[Any]()

        async def execute(approved: dict[str, Any]) -> Any:
            agent = tool_context.get_invocation_context().agent
            for callback in getattr(agent, "canonical_before_tool_callbacks", ()):
                answer = callback(tool=tool, args=approved, tool_context=tool_context)
                answers.append(await answer if inspect.isawaitable(answer) else answer)
                if answers[-1] is not None:
                    raise ToolFailed("the agent's before_tool_callback answered the call; the tool was not run")
            return await tool.run_async(args=approved, tool_context=tool_context)

        call = Call(
            tool.name, tool_args, id=tool_context.function_call_id,
            conversation=f"{session.app_name}/{session.user_id}/{session.id}",
            schema=_schema_of(tool), description=tool.description,
            words=_model_text(session.events, tool_context.function_call_id),
        )  # fmt: skip
        result = await self._hook.acall(call, execute)
        if answers and answers[-1] is not None:
            return answers[-1]
        if not result.has_run:
            return {"error": result.words}
        returned = result.returned  # never None below, or ADK would run the tool
        return cast("dict[str, Any]", returned) if isinstance(returned, dict) else {"result": returned}


def _schema_of(tool: Any) -> Any:
    made = tool._get_declaration()  # noqa: SLF001  the only way to get a tool's parameters
    if made is None or made.parameters_json_schema is not None or made.parameters is None:
        return None if made is None else made.parameters_json_schema
    return made.parameters.json_schema.model_dump(mode="json", exclude_none=True)


def _model_text(events: list[Any], call_id: str) -> str:
    for event in reversed(events):
        if any(call.id == call_id for call in event.get_function_calls()):
            return "".join(part.text or "" for part in event.content.parts).strip()
    return ""
