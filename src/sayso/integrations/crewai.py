"""Sayso in CrewAI (extra `crewai`): process-wide hooks hold the tool calls of all crews and agents.

CrewAI runs a tool even if its hook raised, so these hooks never raise. The hook before a held call runs the call itself
once it is approved, and tells CrewAI not to run it; the hook after it returns the result. So no call runs twice or is
answered from a cache.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any, Unpack

from sayso.errors import ConfigError
from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolHook, framework, must_not_block
from sayso.model.request import not_run


@contextmanager
def held_tools(tools: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> Generator[None]:
    """Hold the tool calls of all crews and agents of this process until a person has decided, inside the block.

    Register your own hooks before it. A call waits in a thread of CrewAI, which runs eight calls of a turn at once. A
    call that would block an event loop is not run.

    A name that no known tool matches may belong to a later crew. It is warned about at the first call, and no call is
    run whose tool has a similar name.

    Args:
        tools: Names or patterns of the tools to hold, as the model sees them; by default all. A name is for each tool
            that has it, also for those to whose name CrewAI adds a number.
        options: As for `sayso.hold`.
    """
    hooks: Any = framework("crewai.hooks", "crewai", "CrewAI")
    hook, results = ToolHook(tools, options), dict[int, tuple[Any, str]]()
    known = set[str]()

    def run_held(context: Any) -> bool | None:
        try:
            known.update(_tools_of(context))
            # Of two tools with one name, the model sees the second one with a number behind it.
            own = set[str]() if context.tool is None else {_name_of(context.tool)}
            if not any(hook.holds(name, known, or_more=True) for name in sorted({context.tool_name, *own})):
                return None
            text = _run_held(hook, context)
        except Exception as error:  # noqa: BLE001  if this raised, CrewAI would run the tool
            text = not_run(context.tool_name, str(error))
        results[id(context.tool_input)] = context.tool_input, text  # the hook after the call gets the same dict
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


def _tools_of(context: Any) -> set[str]:
    """Return the names of the tools of a call's agent and of its crew, as the models see them."""
    agent, crew, task = context.agent, context.crew, context.task
    owners = [agent, task, getattr(agent, "agent_executor", None)]  # the executor also has tools that CrewAI adds
    owners += [] if crew is None else [*crew.agents, *crew.tasks]
    lists = [getattr(owner, name, None) or () for owner in owners for name in ("tools", "original_tools")]
    return {context.tool_name, *(_name_of(tool) for tools in lists for tool in tools)}


def _name_of(tool: Any) -> str:
    return framework("crewai.utilities.string_utils", "crewai", "CrewAI").sanitize_tool_name(tool.name)


def _run_held(hook: ToolHook, context: Any) -> str:
    tool = context.tool
    if tool is None:
        raise ConfigError("CrewAI did not name the tool that it calls")
    must_not_block(context.tool_name, "use kickoff_async()")
    call = Call(
        context.tool_name, context.tool_input, description=tool.description, schema=tool.args_schema.model_json_schema()
    )
    return hook.call(call, tool.invoke).text
