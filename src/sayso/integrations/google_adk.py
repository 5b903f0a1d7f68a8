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


class ApprovalPlugin(_plugins.BasePlugin):
    """Holds the tool calls of all agents of an app: `App(…, plugins=[ApprovalPlugin()])`.

    Put it last. The agent's own `before_tool_callback` is called with the approved arguments. If it returns a value,
    the model gets that value as the result, and the tool does not run.

    Args:
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.
    """

    def __init__(self, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
        super().__init__(name="sayso_approval")  # pyright: ignore[reportUnknownMemberType]
        self._hook = ToolHook(tools, options)

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Run a call once it is approved, and return its result; a refusal becomes an `error`."""
        if type(tool) is _tools.BaseTool or not self._hook.holds(tool.name):  # ADK's placeholder for an unknown tool
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
            words=_words_before(session.events, tool_context.function_call_id),
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


def _words_before(events: list[Any], call_id: str) -> str:
    for event in reversed(events):
        if any(call.id == call_id for call in event.get_function_calls()):
            return "".join(part.text or "" for part in event.content.parts).strip()
    return ""
