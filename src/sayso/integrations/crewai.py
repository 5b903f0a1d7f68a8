"""Sayso in CrewAI (extra `crewai`): hooks of the process hold the tool calls of all crews and agents.

CrewAI runs a tool whose hook raised, so these never raise. The hook before a held call runs it by itself once it is
approved and tells CrewAI not to run it; the hook behind it gives the result. So no call runs twice, and none from a
cache.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any, Unpack

from sayso.errors import ConfigError
from sayso.gates.hold import HoldOptions
from sayso.integrations.tool_calls import Call, ToolHook, framework, is_in_loop
from sayso.model.request import not_run


@contextmanager
def held_tools(tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> Generator[None]:
    """Hold tool calls until a person has decided, in all crews and agents of the process, while this context is open.

    Enter it behind hooks of your own. A call waits in a thread of CrewAI's, which takes eight calls of a turn at once;
    what would wait in an event loop is not run.

    Args:
        tools: Names or patterns of the tools to hold, as the model sees them; all of them when not given.
        options: As for `sayso.hold`.
    """
    hooks: Any = framework("crewai.hooks", "crewai", "CrewAI")
    hook, results = ToolHook(tools, options), dict[int, tuple[Any, str]]()

    def run_held(context: Any) -> bool | None:
        try:
            if not hook.holds(context.tool_name):
                return None
            text = _held(hook, context)
        except Exception as error:  # noqa: BLE001  CrewAI would run the tool
            text = not_run(context.tool_name, str(error))
        results[id(context.tool_input)] = context.tool_input, text  # the same dict comes to the hook behind the call
        return False

    def replace_result(context: Any) -> str | None:
        _, text = results.pop(id(context.tool_input), (None, None))
        return text

    hooks.register_before_tool_call_hook(run_held)
    hooks.register_after_tool_call_hook(replace_result)
    try:
        yield
    finally:
        hooks.unregister_before_tool_call_hook(run_held)
        hooks.unregister_after_tool_call_hook(replace_result)


def _held(hook: ToolHook, context: Any) -> str:
    tool = context.tool
    if tool is None:
        raise ConfigError("CrewAI did not say which tool it calls")
    if is_in_loop():
        raise ConfigError("a person's wait would block the event loop it was called in; use kickoff_async()")
    call = Call(
        context.tool_name, context.tool_input, description=tool.description, schema=tool.args_schema.model_json_schema()
    )
    return hook.call(call, tool.invoke).text
