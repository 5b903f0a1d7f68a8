"""Pydantic AI through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter

from sayso import errors
from sayso.model.request import State
from sayso.stores.base import Store
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, WORDS, AdapterSuite, Outcome, Scene, approve, everything, pending

framework("pydantic_ai", "pydantic_ai")

from pydantic_ai import Agent, DeferredToolRequests, RunContext  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402  # noqa: E402
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel  # noqa: E402
from pydantic_ai.toolsets import FunctionToolset  # noqa: E402

from sayso.integrations.pydantic_ai import Gate, resume, run_subagent  # noqa: E402

REQUESTS = TypeAdapter(DeferredToolRequests)
HELP = AdapterSuite()


def model(scene: Scene, *, nested: bool = False) -> FunctionModel:
    """Return a model that emits the turns of a scene, by what the messages say is done."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        calls = [ToolCallPart(call.tool, call.arguments, call.id) for call in scene.turn(turn, nested=nested)]
        return ModelResponse([TextPart(WORDS), *calls] if calls else [TextPart(ANSWER)])

    return FunctionModel(respond)


def agent_of(scene: Scene) -> Agent[None, Any]:
    functions: list[Any] = scene.tools
    output: Any = [str, DeferredToolRequests] if scene.mode == "pause" else str
    inner_gate = Gate[None](scene.held, wait=scene.mode, **scene.options)
    inner = Agent(model(scene, nested=True), tools=functions, output_type=output, capabilities=[inner_gate])

    async def delegate(ctx: RunContext[None], task: str) -> Any:
        return await run_subagent(inner, task, ctx)

    async def delegate_held(ctx: RunContext[None], task: str) -> Any:
        return await run_subagent(inner, task, ctx)

    outer_gate = Gate[None](scene.held, wait=scene.mode, **scene.options)
    tools = [*functions, delegate, delegate_held]
    return Agent(model(scene), tools=tools, output_type=output, capabilities=[outer_gate])


def outcome_of(result: Any) -> Outcome:
    parts = [part for message in result.all_messages() for part in message.parts]
    told = {part.tool_call_id: part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)}
    if not isinstance(result.output, DeferredToolRequests):
        return Outcome(None, told, result.output)
    return Outcome((result.all_messages_json(), REQUESTS.dump_json(result.output)), told, None)


class PydanticDriver:
    """An agent whose conversation is `scene.thread`, persisted as its messages and deferred requests."""

    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = True
    has_subagents: ClassVar = True

    async def start(self, scene: Scene) -> Outcome:
        return outcome_of(await agent_of(scene).run("go", conversation_id=scene.thread))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        messages, requests = saved
        result = await agent_of(scene).run(
            message_history=ModelMessagesTypeAdapter.validate_json(messages),
            deferred_tool_results=resume(REQUESTS.validate_json(requests)),
        )
        return outcome_of(result)


class TestPydanticAI(AdapterSuite):
    driver: ClassVar = PydanticDriver()


# -- what is peculiar to Pydantic AI -------------------------------------------------------------------------------


class Receipt(BaseModel):
    paid: float = Field(serialization_alias="amountPaid")


@dataclass
class Slip:
    number: int


def even(amount: int) -> int:
    if amount % 2:
        raise ValueError("only whole pairs are paid back")
    return amount


def calling(tool: Any, arguments: dict[str, Any], **options: Any) -> Agent[None, Any]:
    """Return an agent whose model calls one tool, which is held, and then tells what it was told."""

    def respond(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        is_new = not any(isinstance(message, ModelResponse) for message in history)
        return ModelResponse(
            [ToolCallPart(info.function_tools[0].name, arguments, "c1") if is_new else TextPart(ANSWER)]
        )

    options.setdefault("toolsets", [FunctionToolset([tool])] if tool else [])
    mode = options.pop("wait", "pause")
    gates = [Gate[None](wait=mode, **options.pop("gate", {}))]
    return Agent(FunctionModel(respond), output_type=[str, DeferredToolRequests], capabilities=gates, **options)


def paused(agent: Agent[None, Any]) -> Any:
    result = asyncio.run(agent.run("go", conversation_id="thread-1"))
    assert isinstance(result.output, DeferredToolRequests)
    return result


def resumed(agent: Agent[None, Any], result: Any) -> Any:
    given = {"message_history": result.all_messages(), "deferred_tool_results": resume(result.output)}
    return asyncio.run(agent.run(**given))


def receipt(amount: float) -> Receipt:
    return Receipt(paid=amount)


def slip(amount: float) -> Slip:
    return Slip(int(amount))


def slips(amount: float) -> list[Slip]:
    return [Slip(int(amount)), Slip(2)]


def full(amount: float) -> ToolReturn:
    return ToolReturn("paid", content="see the receipt", metadata={"paid": amount})


@pytest.mark.parametrize("tool", [receipt, slip, slips, full], ids=lambda tool: tool.__name__)
def test_result_that_is_no_text_is_told_again_as_it_was(tool: Any, memory: Store) -> None:
    result = paused(calling(tool, {"amount": 7.0}))
    approve()(pending(memory)[0])
    first, again = (resumed(calling(tool, {"amount": 7.0}), result) for _ in range(2))
    assert outcome_of(first).told == outcome_of(again).told
    assert "not kept" not in str(outcome_of(again).told)
    assert besides(first) == besides(again)


def test_pattern_holds_the_tools_that_it_matches(memory: Store) -> None:
    paused(calling(slip, {"amount": 7.0}, gate={"tools": ["sl*"]}))
    assert [request.call.name for request in pending(memory)] == ["slip"]


def besides(result: Any) -> list[Any]:
    """Return what the model, and the program, is given beside the results."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return [
        getattr(part, "metadata", part) if isinstance(part, ToolReturnPart) else part.content
        for part in parts
        if isinstance(part, ToolReturnPart | UserPromptPart)
    ]


@pytest.mark.parametrize("wait", ["pause", "block"])
def test_edit_that_only_a_validator_refuses_goes_back_to_the_reviewer(wait: str, memory: Store) -> None:
    paid: list[int] = []

    def refund(amount: Annotated[int, AfterValidator(even)]) -> str:
        paid.append(amount)
        return f"refunded {amount}"

    def agent() -> Agent[None, Any]:
        return calling(refund, {"amount": 4}, wait=wait)

    async def main() -> Outcome:
        if wait == "block":
            task = asyncio.ensure_future(agent().run("go", conversation_id="thread-1"))
            await HELP.until(lambda: bool(pending(memory)), task)
            approve(changes={"amount": 3})(pending(memory)[0])
            await HELP.until(lambda: any(request.returned for request in pending(memory)), task)
            approve(changes={"amount": 6})(pending(memory)[0])
            return outcome_of(await task)
        first = await agent().run("go", conversation_id="thread-1")
        for amount in (3, 6):
            approve(changes={"amount": amount})(pending(memory)[0])
            given = {"message_history": first.all_messages(), "deferred_tool_results": resume(first.output)}
            result = await agent().run(**given)
            assert bool(pending(memory)) is (amount == 3)
        return outcome_of(result)

    outcome = asyncio.run(main())
    (request,) = everything(memory)
    assert (paid, outcome.answer, request.state) == ([6], ANSWER, State.DONE)
    assert request.returned == "amount: Value error, only whole pairs are paid back"


class Order(BaseModel):
    id: str
    amount: Annotated[int, Field(exclude=True)] = 10


@pytest.mark.parametrize("further", [{}, {"to": "alice"}], ids=["one argument", "two"])
def test_argument_whose_model_leaves_out_what_was_given_is_refused(further: dict[str, str], memory: Store) -> None:
    paid: list[int] = []

    def pay(order: Order) -> None:
        paid.append(order.amount)

    def pay_to(order: Order, to: str) -> None:
        paid.append(order.amount)

    def told(order: dict[str, Any]) -> str:
        arguments = {"order": order, **further} if further else order
        return str(asyncio.run(calling(pay_to if further else pay, arguments, wait="block").run("go")).all_messages())

    answer = told({"id": "A-1", "amount": 5_000})
    assert "amount' is left out or changed" in answer
    assert (paid, everything(memory)) == ([], [])


def test_what_a_validator_says_of_a_secret_is_not_shown(memory: Store) -> None:
    def refund(amount: Annotated[int, AfterValidator(even)]) -> str:
        return f"refunded {amount}"

    agent = calling(refund, {"amount": 4}, gate={"redact": ["amount"]})
    result = paused(agent)
    approve(changes={"amount": 3})(pending(memory)[0])
    resumed(agent, result)
    assert pending(memory)[0].returned == "amount: value_error"


def test_tool_of_an_mcp_server_is_held(memory: Store) -> None:
    server_class: Any = pytest.importorskip(
        "fastmcp", reason="NOT TESTED: MCP toolsets, FastMCP is not installed"
    ).FastMCP
    from pydantic_ai.mcp import MCPToolset

    deleted: list[str] = []

    def agent() -> Agent[None, Any]:
        server = server_class("files")

        @server.tool
        def delete_file(path: str) -> str:
            """Delete a file."""
            deleted.append(path)
            return f"deleted {path}"

        return calling(None, {"path": "/etc/motd"}, toolsets=[MCPToolset(server)])

    result = paused(agent())
    request = pending(memory)[0]
    assert (request.call.name, dict(request.call.arguments)) == ("delete_file", {"path": "/etc/motd"})
    approve(changes={"path": "/tmp/motd"})(request)
    outcomes = [outcome_of(resumed(agent(), result)) for _ in range(2)]
    assert deleted == ["/tmp/motd"]
    assert outcomes[0].told == outcomes[1].told
    assert "deleted /tmp/motd" in outcomes[0].told["c1"]


def test_name_that_no_tool_has_is_an_error(memory: Store) -> None:
    with pytest.raises(errors.ConfigError, match="refnud"):
        paused(calling(slip, {"amount": 7.0}, gate={"tools": ["refnud"]}))
    assert everything(memory) == []
