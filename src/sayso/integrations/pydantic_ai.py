"""Sayso in Pydantic AI (extra `pydantic-ai`): a tool call of an agent waits for a person.

`Gate` is a capability for the tools of an agent, `gate` wraps one toolset (function tools, an MCP server), `resume` and
`run_subagent` are for runs that pause. A call waits in place (`wait="block"`) or ends the run with
`DeferredToolRequests` (`wait="pause"`). Invariant: the store alone decides. What a run is resumed with starts nothing
that no person approved, and changes no argument.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, Unpack, cast

from sayso import config, errors
from sayso.gates.hold import HoldOptions
from sayso.gates.outcome import NotExecuted
from sayso.integrations.tool_calls import acall_tool, check_options, options_of
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
        tools: Names of the tools to hold, as the model sees them; all of them when not given. A name that no tool has
            is an error.
        wait: `block` waits in place, and takes the request back where the run is cancelled. `pause` ends the run with
            `DeferredToolRequests`, which the agent needs in its `output_type`; go on with `resume`.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `context` and `store`, as for `sayso.hold`.
    """

    def __init__(
        self, tools: Collection[str] | None = None, *, wait: Wait = "block", **options: Unpack[HoldOptions]
    ) -> None:
        self._tools, self._options = _checked(tools, wait, options), options
        self._wait: Wait = wait

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return the tools of the agent, held."""
        return GatedToolset(toolset, self._tools, self._wait, self._options)


def gate(
    toolset: AbstractToolset[AgentDepsT], tools: Collection[str] | None = None, *, wait: Wait = "block",
    **options: Unpack[HoldOptions],
) -> GatedToolset[AgentDepsT]:  # fmt: skip
    """Return a toolset whose calls wait for a person, as of an MCP server; the arguments are those of `Gate`."""
    return GatedToolset(toolset, _checked(tools, wait, options), wait, options)


def resume(requests: DeferredToolRequests) -> DeferredToolResults:
    """Return the results with which a paused run is called again, as often as one likes.

    They say of each call that it may be made; the gate then asks the store. What is approved runs, a no is told to the
    model, and where a call still waits for a person the run ends with `DeferredToolRequests` again. Calls that are not
    gated by sayso are left out: add their answers.
    """
    ours = {key: value for key, value in requests.metadata.items() if "sayso" in value}
    return requests.build_results(
        approvals={call.tool_call_id: True for call in requests.approvals if call.tool_call_id in ours}, metadata=ours
    )


async def run_subagent(agent: Agent[Any, Any], prompt: str, ctx: RunContext[Any], **options: Any) -> Any:
    """Run an agent inside of a tool of another one and return its output; where a call of it waits, both pause.

    The tool then is called again at each `resume`, and the inner agent goes on where it paused.

    Args:
        agent: An agent with `DeferredToolRequests` in its `output_type`, if it pauses.
        prompt: What it is to do.
        ctx: The context of the tool.
        options: What `agent.run` takes besides.
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
    """A toolset whose calls wait for a person; made by `gate` and `Gate`."""

    tools: frozenset[str] | None = None
    wait: Wait = "block"
    options: HoldOptions = field(default_factory=HoldOptions)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools; one with `requires_approval=True` is not deferred beside what the gate does.

        Raises:
            ConfigError: There is no tool with a name that is to be held.
        """
        tools = await super().get_tools(ctx)
        if missing := (self.tools or frozenset()) - tools.keys():
            raise errors.ConfigError(f"{sorted(missing)} are to be held, and there are only {sorted(tools)}")
        for name, tool in tools.items():
            if self._holds(name) and tool.tool_def.kind == "unapproved":
                tools[name] = replace(tool, tool_def=replace(tool.tool_def, kind="function"))
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Run the call once it is approved; a no is a failed call, in words for the model.

        Raises:
            ApprovalRequired: It waits for a person, with `wait="pause"`.
            ToolFailed: It is not to be run, or has failed before.
            KeyReusedError, StoreError: It was not run, for the reason that they say.
        """
        if not self._holds(name):
            return await super().call_tool(name, tool_args, ctx, tool)
        given = _plain(tool_args, tool.tool_def.parameters_json_schema)  # validated, and not what the model wrote
        check = partial(_problems, tool, ctx, self.options.get("redact") or ())
        made: list[Any] = []

        async def run(approved: dict[str, Any]) -> Any:
            is_changed = canonical.encode(approved).text != canonical.encode(given).text
            args = await _validated(tool, approved, ctx) if is_changed else tool_args
            made.append(await super(GatedToolset, self).call_tool(name, args, ctx, tool))
            return _recorded(made[0])

        try:
            waits = _pause if self.wait == "pause" else None
            result = await acall_tool(name, given, run, self._options_of(ctx, tool), waits=waits, check=check)
        except NotExecuted as error:
            raise ToolFailed(not_run(name, str(error))) from error
        if not result.has_run:
            raise ToolFailed(result.words)
        value = made[0] if made else result.value
        if not made and isinstance(value, dict) and "pydantic-ai" in value:
            value = _Returned.validate_python(value["pydantic-ai"])
        return _with_words(result.words, value)

    def _holds(self, name: str) -> bool:
        return self.tools is None or name in self.tools

    def _options_of(self, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> HoldOptions:
        options = options_of(
            self.options, key=ctx.tool_call_id, run=ctx.conversation_id, schema=tool.tool_def.parameters_json_schema,
            description=tool.tool_def.description, words=_words_before(ctx),
        )  # fmt: skip
        return {**options, "suspends": (ApprovalRequired, CallDeferred)}  # a sub-agent pauses, or the tool is deferred


def _pause(request_id: str) -> None:
    raise ApprovalRequired({"sayso": request_id})


def _checked(tools: Collection[str] | None, wait: str, options: HoldOptions) -> frozenset[str] | None:
    if isinstance(tools, str):
        raise errors.ConfigError(f"tools= takes a list of names, not {tools!r}")
    if wait not in {"block", "pause"}:
        raise errors.ConfigError(f'wait= takes "block" or "pause", not {wait!r}')
    check_options(options, "context")
    config.check_store(options.get("store"))
    return None if tools is None else frozenset(tools)


def _plain(tool_args: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = to_jsonable_python(tool_args)
    if len(plain) == 1 and plain.keys() - schema.get("properties", {}).keys():
        (plain,) = plain.values()  # the only parameter is a model, and the schema is that of its fields
    return plain


async def _validated(tool: ToolsetTool[Any], arguments: dict[str, Any], ctx: RunContext[Any]) -> dict[str, Any]:
    """Return changed arguments as the tool takes them; raise `NotExecuted` where it refuses what its schema allows."""
    try:
        args = tool.args_validator.validate_json(json.dumps(arguments), context=ctx.validation_context)
        checked = None if tool.args_validator_func is None else tool.args_validator_func(ctx, **args)
        if isawaitable(checked):
            await checked
    except (ValidationError, ModelRetry, ToolFailed) as refused:
        raise NotExecuted(f"the changed arguments do not fit the tool: {refused}") from refused
    return args


async def _problems(
    tool: ToolsetTool[Any], ctx: RunContext[Any], redact: Collection[str], arguments: dict[str, Any]
) -> list[str]:
    """Return what the tool's validators say against changed arguments, without values where some are not to be seen."""
    try:
        await _validated(tool, arguments, ctx)
    except NotExecuted as refused:
        why = refused.__cause__
        if not isinstance(why, ValidationError):
            return ["the tool refuses it" if redact else f"the tool refuses it: {why}"]
        return [f"{'.'.join(map(str, e['loc']))}: {e['type'] if redact else e['msg']}" for e in why.errors()]
    return []


def _recorded(made: Any) -> Any:
    """Return what is kept of a tool's result: what the model is told of it, and with a `ToolReturn` all that it has."""
    try:
        if isinstance(made, ToolReturn):
            return {"pydantic-ai": _Returned.dump_python(cast("ToolReturn[Any]", made), mode="json")}
        return to_jsonable_python(made, by_alias=True)
    except Exception:  # noqa: BLE001  a result may hold anything; what has no JSON form is not there for a replay
        return cast("Any", made)


def _words_before(ctx: RunContext[Any]) -> str:
    answers = [message for message in ctx.messages if isinstance(message, ModelResponse)]
    return (answers[-1].text or "").strip() if answers else ""


def _with_words(words: str, result: Any) -> Any:
    if not words:
        return result
    if isinstance(result, ToolReturn):
        returned = cast("ToolReturn[Any]", result)
        return replace(returned, return_value=_with_words(words, returned.return_value))
    return f"{words}\n\n{result}" if isinstance(result, str) else [words, result]
