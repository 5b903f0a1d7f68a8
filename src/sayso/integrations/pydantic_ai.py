"""Sayso in Pydantic AI (extra `pydantic-ai`): a tool call of an agent waits for a person.

`Gate` is a capability for the tools of an agent, `gate` wraps one toolset (function tools, an MCP server), `resume` and
`run_subagent` are for runs that pause. A call waits in place (`wait="block"`) or ends the run with
`DeferredToolRequests` (`wait="pause"`). Invariant: the store alone decides. What a run is resumed with starts nothing
that no person approved, and changes no argument.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, Unpack, cast

from sayso import aio, config, errors
from sayso.effects import Suspended
from sayso.gates import NotExecuted
from sayso.held import HoldOptions
from sayso.model.request import State, not_run
from sayso.signals import ConfirmationRejected

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

__all__ = ["Gate", "GatedToolset", "Wait", "gate", "resume", "run_subagent"]

Wait = Literal["block", "pause"]
_OURS = {"schema", "key", "run", "suspends", "withdraw_on_exit"}  # options of `hold` that the call itself fills in
_REPLAYED = (errors.CallFailedError, errors.OutcomeUnknownError, errors.ValueNotKeptError, errors.EffectTakenError)
_Requests: TypeAdapter[DeferredToolRequests] = TypeAdapter(DeferredToolRequests)


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
        return {name: _not_deferred(tool) if self._holds(name) else tool for name, tool in tools.items()}

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
        try:
            held = await self._hold(name, tool_args, ctx, tool)
        except errors.ArgumentError as error:
            raise ToolFailed(not_run(name, str(error), may_change=True)) from error
        if self.wait == "pause" and held.state == State.PENDING:
            raise ApprovalRequired({"sayso": held.id})
        try:
            async with held:
                await held.wait()
                is_changed = held.request is not None and held.request.edited is not None
                result = await held.once(partial(self._run, name, None if is_changed else tool_args, ctx, tool))
        except ConfirmationRejected as no:
            raise ToolFailed(no.message_for_model) from no
        except Suspended as stopped:  # a sub-agent has paused, or the tool itself is deferred
            raise cast("Exception", stopped.__cause__) from None
        except (*_REPLAYED, NotExecuted) as error:
            await held.refresh()
            words, is_told = held.message_for_model(), not isinstance(error, _REPLAYED[2:])
            text = words if words and is_told else " ".join([words, f"{error}. Do not repeat this call."]).strip()
            raise ToolFailed(text) from error
        return _with_words(held.message_for_model(), result)

    def _holds(self, name: str) -> bool:
        return self.tools is None or name in self.tools

    async def _hold(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> aio.Held:
        context, words = dict(self.options.get("context") or {}), _words_before(ctx)
        if words:
            context["the model's words (unverified)"] = words
        options: HoldOptions = {
            "description": tool.tool_def.description, **self.options, "schema": tool.tool_def.parameters_json_schema,
            "key": ctx.tool_call_id, "run": ctx.conversation_id, "context": context or None,
            "withdraw_on_exit": self.wait == "block",
        }  # fmt: skip
        plain = _plain(tool_args, tool.tool_def.parameters_json_schema)  # validated, and not what the model wrote
        try:
            return await aio.hold(name, plain, **options)
        except asyncio.CancelledError:  # it may have been asked all the same: find it, and take it back
            async with await aio.hold(name, plain, **options):
                raise

    async def _run(
        self, name: str, tool_args: dict[str, Any] | None, ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT], arguments: dict[str, Any],
    ) -> Any:  # fmt: skip
        tool_args = await _validated(tool, arguments, ctx) if tool_args is None else tool_args
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except (ApprovalRequired, CallDeferred) as stopped:
            raise Suspended from stopped


def _checked(tools: Collection[str] | None, wait: str, options: HoldOptions) -> frozenset[str] | None:
    if isinstance(tools, str):
        raise errors.ConfigError(f"tools= takes a list of names, not {tools!r}")
    if wait not in {"block", "pause"}:
        raise errors.ConfigError(f'wait= takes "block" or "pause", not {wait!r}')
    if unknown := sorted(options.keys() - (HoldOptions.__annotations__.keys() - _OURS)):
        raise TypeError(f"there is no option {unknown[0]!r} here")
    config.check_store(options.get("store"))
    return None if tools is None else frozenset(tools)


def _not_deferred(tool: ToolsetTool[AgentDepsT]) -> ToolsetTool[AgentDepsT]:
    if tool.tool_def.kind != "unapproved":
        return tool
    return replace(tool, tool_def=replace(tool.tool_def, kind="function"))


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


def _words_before(ctx: RunContext[Any]) -> str:
    """Return what the model wrote in the message that makes the call."""
    answers = [message for message in ctx.messages if isinstance(message, ModelResponse)]
    return (answers[-1].text or "").strip() if answers else ""


def _with_words(words: str, result: Any) -> Any:
    """Return a tool's result after what a person changed and wrote."""
    if not words:
        return result
    if isinstance(result, ToolReturn):
        returned = cast("ToolReturn[Any]", result)
        return replace(returned, return_value=_with_words(words, returned.return_value))
    return f"{words}\n\n{result}" if isinstance(result, str) else [words, result]
