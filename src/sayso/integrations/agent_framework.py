"""Sayso in the Microsoft agent-framework (extra `agent-framework`): a function middleware holds tool calls.

The framework's own `approval_mode` pauses runs; do not set it for tools that this middleware holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Unpack, cast

from sayso.errors import ConfigError
from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolHook, framework
from sayso.model.request import not_run

_maf: Any = framework("agent_framework", "agent-framework", "Microsoft agent-framework")
_flow: Any = framework("agent_framework.exceptions", "agent-framework", "Microsoft agent-framework")


class ApprovalMiddleware(_maf.FunctionMiddleware):
    """Holds the tool calls of an agent until a person has decided: `Agent(…, middleware=[ApprovalMiddleware()])`.

    Put it last: nobody approves changes that a later middleware makes to arguments. It sees all calls of functions, MCP
    servers and agents as tools; the calls of an inner agent go through that agent's own middleware.

    Args:
        tools: Names or patterns of the tools to hold; by default all.
        options: As for `sayso.hold`.
    """

    def __init__(self, tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
        stops = (_maf.MiddlewareTermination, _maf.MiddlewareFailure, _flow.UserInputRequiredException)
        self._hook = ToolHook(tools, options, suspends=stops)

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        """Run a call once it is approved; a refusal becomes its result."""
        tool = context.function
        listed = [each.name for each in context.tools or () if hasattr(each, "name")]  # a client's tools may be no list
        try:
            is_held = self._hook.holds(tool.name, [tool.name, *listed], or_more=not listed)
        except ConfigError as error:  # of an exception, the model would only get that the function failed
            context.result = not_run(tool.name, str(error))
            return None
        if not is_held:
            return await call_next()

        async def execute(approved: dict[str, Any]) -> Any:
            context.arguments = approved
            await call_next()
            made: Any = context.result
            return [content.to_dict() for content in made] if _is_contents(made) else made

        session = context.session
        call = Call(
            tool.name, dict(context.arguments), id=context.metadata.get("call_id"),
            conversation=None if session is None else session.session_id,
            schema=tool.parameters(), description=tool.description,
        )  # fmt: skip
        result = await self._hook.acall(call, execute)
        if not result.has_run:
            context.result = result.words
            return None
        if context.result is None:  # it ran earlier or elsewhere
            value: Any = result.value
            context.result = [_maf.Content.from_dict(each) for each in value] if _is_list(value) else value
        if result.words:
            made: Any = context.result
            rest = made if _is_contents(made) else [_maf.Content.from_text(str(made))]
            context.result = [_maf.Content.from_text(result.words), *rest]
        return None


def _is_list(result: Any) -> bool:
    return isinstance(result, list)


def _is_contents(result: Any) -> bool:
    return _is_list(result) and all(isinstance(each, _maf.Content) for each in cast("list[Any]", result))
