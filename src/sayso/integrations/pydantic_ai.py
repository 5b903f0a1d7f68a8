"""Sayso in Pydantic AI (extra `pydantic-ai`): an agent's tool calls wait for a person.

`Gate` is a capability for an agent's tools, `gate` wraps one toolset (function tools, an MCP server), and `resume` and
`run_subagent` are for runs that pause. A call waits in place (`wait="block"`) or ends the run with
`DeferredToolRequests` (`wait="pause"`). Invariant: only the store decides. The values with which a run is resumed
cannot start a call that no person approved, or change its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, Unpack, cast

from sayso import config, errors
from sayso.gates.ambiguous import NotExecuted
from sayso.gates.gate import HoldOptions
from sayso.integrations.shown import is_shown
from sayso.integrations.tool_calls import HeldTools, acall_tool, check_options, check_wait, options_of
from sayso.model import canonical
from sayso.model.request import not_run

try:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ToolReturn
    from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, RunContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
    from pydantic_core import to_jsonable_python
except ImportError as error:
    raise errors.ConfigError('Pydantic AI is not installed: pip install "sayso[pydantic-ai]"') from error

Wait = Literal["block", "pause"]
_Requests: TypeAdapter[DeferredToolRequests] = TypeAdapter(DeferredToolRequests)
_Returned: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)


class Gate(AbstractCapability[AgentDepsT]):
    """Holds the tool calls of an agent until a person has decided: `Agent(…, capabilities=[Gate(tools=["refund"])])`.

    Args:
        tools: Names or patterns of the tools to hold; by default all. A name that no tool has is an error.
        wait: `block` waits in place, and withdraws the request if the run is cancelled. `pause` ends the run with
            `DeferredToolRequests`, which the agent needs in its `output_type`; continue with `resume`.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `context` and `store`, as for `sayso.hold`.
    """

    def __init__(
        self, tools: Collection[str] | None = None, *, wait: Wait = "block", **options: Unpack[HoldOptions]
    ) -> None:
        self._tools, self._options = _held_tools(tools, wait, options), options
        self._wait: Wait = wait

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Wrap the agent's tools in a toolset that holds them."""
        return GatedToolset(toolset, self._tools, self._wait, self._options)


def gate(
    toolset: AbstractToolset[AgentDepsT], tools: Collection[str] | None = None, *, wait: Wait = "block",
    **options: Unpack[HoldOptions],
) -> GatedToolset[AgentDepsT]:  # fmt: skip
    """Return a toolset, e.g. of an MCP server, whose calls wait for a person; the arguments are those of `Gate`."""
    return GatedToolset(toolset, _held_tools(tools, wait, options), wait, options)


def resume(requests: DeferredToolRequests) -> DeferredToolResults:
    """Return the results with which to continue a paused run; it can be continued any number of times.

    They allow each call, and the gate then reads its decision from the store. Approved calls run, refusals are told to
    the model, and if a call still waits for a person, the run ends with `DeferredToolRequests` again. Calls that sayso
    does not gate are not included; add their results.
    """
    ours = {key: value for key, value in requests.metadata.items() if "sayso" in value}
    return requests.build_results(
        approvals={call.tool_call_id: True for call in requests.approvals if call.tool_call_id in ours}, metadata=ours
    )


async def run_subagent(agent: Agent[Any, Any], prompt: str, ctx: RunContext[Any], **options: Any) -> Any:
    """Run an agent inside another agent's tool and return its output; if one of its calls waits, both agents pause.

    Each `resume` then calls the tool again, and the inner agent continues where it paused.

    Args:
        agent: The inner agent; if it pauses, its `output_type` needs `DeferredToolRequests`.
        prompt: Its task.
        ctx: The context of the tool.
        options: Further arguments for `agent.run`.
    """
    options = {"conversation_id": f"{ctx.conversation_id}/{ctx.tool_call_id}", "usage": ctx.usage, **options}
    paused = cast("dict[str, Any]", ctx.tool_call_metadata or {}).get("subagent")
    if paused is not None:
        options["message_history"] = ModelMessagesTypeAdapter.validate_python(paused["messages"])
        options["deferred_tool_results"] = resume(_Requests.validate_python(paused["requests"]))
    result = await agent.run(prompt if paused is None else None, **options)
    if not isinstance(result.output, DeferredToolRequests):
        return result.output
    messages = ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")
    requests = _Requests.dump_python(result.output, mode="json")
    raise ApprovalRequired({"sayso": "subagent", "subagent": {"messages": messages, "requests": requests}})


@dataclass
class GatedToolset(WrapperToolset[AgentDepsT]):
    """A toolset whose calls wait for a person; created by `gate` and `Gate`."""

    tools: HeldTools = field(default_factory=lambda: HeldTools(None))
    wait: Wait = "block"
    options: HoldOptions = field(default_factory=HoldOptions)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools; for a held one, the gate replaces `requires_approval=True`.

        Raises:
            ConfigError: A name of a tool to hold does not exist.
        """
        tools = await super().get_tools(ctx)
        self.tools.check(tools)
        for name, tool in tools.items():
            if self.tools.holds(name) and tool.tool_def.kind == "unapproved":
                tools[name] = replace(tool, tool_def=replace(tool.tool_def, kind="function"))
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Run the call once it is approved; a refusal is a failed call with a message for the model.

        Raises:
            ApprovalRequired: The call waits for a person, with `wait="pause"`.
            ToolFailed: The call was refused, or has failed before.
            KeyReusedError, StoreError: The call did not run, for the reason in the message.
        """
        if not self.tools.holds(name):
            return await super().call_tool(name, tool_args, ctx, tool)
        schema = tool.tool_def.parameters_json_schema
        given: dict[str, Any] = to_jsonable_python(tool_args)  # of validated values, not of the model's text
        originals: Any = tool_args
        if len(given) == 1 and given.keys() - schema.get("properties", {}).keys():
            # The only parameter is a model, whose fields are the schema.
            (given,), (originals,) = given.values(), tool_args.values()
        check = partial(_problems, tool, ctx, self.options.get("redact") or ())
        made: list[Any] = []

        async def run(approved: dict[str, Any]) -> Any:
            is_changed = canonical.encode(approved).text != canonical.encode(given).text
            is_changed |= not is_shown(originals, approved)  # something else changed them while the call waited
            args = await _validate(tool, approved, ctx) if is_changed else tool_args
            made.append(await super(GatedToolset, self).call_tool(name, args, ctx, tool))
            return _to_record(made[0])

        answers = [message for message in ctx.messages if isinstance(message, ModelResponse)]
        options = options_of(
            self.options, key=ctx.tool_call_id, run=ctx.conversation_id, schema=schema,
            description=tool.tool_def.description, words=(answers[-1].text or "").strip() if answers else "",
        )  # fmt: skip
        options["suspends"] = (ApprovalRequired, CallDeferred)  # a paused sub-agent or a deferred tool
        try:
            waits = _pause if self.wait == "pause" else None
            result = await acall_tool(name, given, run, options, waits=waits, check=check, originals=originals)
        except NotExecuted as error:
            raise ToolFailed(not_run(name, str(error))) from error
        if not result.has_run:
            raise ToolFailed(result.words)
        value = made[0] if made else result.value
        if not made and isinstance(value, dict) and "pydantic-ai" in value:
            value = _Returned.validate_python(value["pydantic-ai"])
        return _with_words(result.words, value)


def _pause(request_id: str) -> None:
    raise ApprovalRequired({"sayso": request_id})


def _held_tools(tools: Collection[str] | None, wait: str, options: HoldOptions) -> HeldTools:
    check_wait(wait, "block", "pause")
    check_options(options, "context")
    config.check_store(options.get("store"))
    return HeldTools(tools)


async def _validate(tool: ToolsetTool[Any], arguments: dict[str, Any], ctx: RunContext[Any]) -> dict[str, Any]:
    """Validate changed arguments for the tool; raise `NotExecuted` if it refuses values that its schema allows."""
    try:
        args = tool.args_validator.validate_json(json.dumps(arguments), context=ctx.validation_context)
        checked = None if tool.args_validator_func is None else tool.args_validator_func(ctx, **args)
        if isawaitable(checked):
            await checked
    except (ValidationError, ModelRetry, ToolFailed) as refused:
        raise NotExecuted(f"the changed arguments do not match the tool's types: {refused}") from refused
    return args


async def _problems(
    tool: ToolsetTool[Any], ctx: RunContext[Any], redact: Collection[str], arguments: dict[str, Any]
) -> list[str]:
    """Return the errors of the tool's validators for changed arguments, without values if some must be masked."""
    try:
        await _validate(tool, arguments, ctx)
    except NotExecuted as refused:
        why = refused.__cause__
        if not isinstance(why, ValidationError):
            return ["the tool rejected it" if redact else f"the tool rejected it: {why}"]
        return [f"{'.'.join(map(str, e['loc']))}: {e['type'] if redact else e['msg']}" for e in why.errors()]
    return []


def _to_record(made: Any) -> Any:
    """Return the stored form of a tool's result: the value for the model, or all parts of a `ToolReturn`."""
    try:
        if isinstance(made, ToolReturn):
            return {"pydantic-ai": _Returned.dump_python(cast("ToolReturn[Any]", made), mode="json")}
        return to_jsonable_python(made, by_alias=True)
    except Exception:  # noqa: BLE001  a result can have any value; without a JSON form it is lost for a replay
        return cast("Any", made)


def _with_words(words: str, result: Any) -> Any:
    if not words:
        return result
    if isinstance(result, ToolReturn):
        returned = cast("ToolReturn[Any]", result)
        return replace(returned, return_value=_with_words(words, returned.return_value))
    return f"{words}\n\n{result}" if isinstance(result, str) else [words, result]
