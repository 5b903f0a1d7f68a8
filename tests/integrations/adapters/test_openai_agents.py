"""The OpenAI Agents SDK through the common suite, and what only this SDK does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.stores.base import Store
from tests.integrations.adapters import suite
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, WORDS, AdapterSuite, ModelCall, Outcome, Scene, refund

agents: Any = framework("agents", "openai_agents")
scripted: Any = framework("agents.testing", "openai_agents")

from sayso.integrations.openai_agents import ModelWords, gate, resume  # noqa: E402

agents.set_tracing_disabled(True)


@dataclass
class Task:
    task: str


def model(scene: Scene, turn: int, *, nested: bool = False) -> Any:
    """Return a model that emits the calls of a scene, from this turn on."""

    async def respond(call: Any) -> Any:
        nonlocal turn
        calls, turn = scene.turn(turn, nested=nested), turn + 1
        if not calls:
            return scripted.ModelStep(output=[scripted.assistant_message(ANSWER)])
        emitted = [scripted.function_call(one.tool, one.arguments, call_id=one.id) for one in calls]
        return scripted.ModelStep(output=[scripted.assistant_message(WORDS), *emitted])

    return scripted.ScriptedModel([scripted.ModelStep.respond(respond) for _ in range(20)])


def tool(function: Any, scene: Scene) -> Any:
    made = agents.function_tool(function)
    return gate(made, wait=scene.mode, **scene.options) if made.name in scene.held else made


def agent_of(scene: Scene, done: int, nested_done: int = 0) -> Any:
    tools = [tool(function, scene) for function in scene.tools]
    inner = agents.Agent(name="clerk", model=model(scene, nested_done, nested=True), tools=tools)
    delegate = inner.as_tool("delegate", "Give a task to the clerk.", hooks=ModelWords(), parameters=Task)
    held = gate(inner.as_tool("delegate_held", "Give a task to the clerk.", parameters=Task), wait=scene.mode)
    return agents.Agent(name="agent", model=model(scene, done), tools=[*tools, delegate, held])


def outcome_of(result: Any) -> Outcome:
    items = result.to_input_list()
    told = {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}
    saved = result.to_state().to_string() if result.interruptions else None
    return Outcome(saved, told, None if saved is not None else result.final_output)


class AgentsDriver:
    """An agent whose conversation is `scene.thread`, persisted as the SDK's `RunState`."""

    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = True
    has_subagents: ClassVar = True

    async def start(self, scene: Scene) -> Outcome:
        with sayso.run(scene.thread):
            return outcome_of(await agents.Runner.run(agent_of(scene, 0), "go", hooks=ModelWords()))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        # A scripted model of a new process is told which turn comes next by what has happened.
        inner = max(
            (n + 1 for n, turn in enumerate(scene.nested) if any(f'"{one.id}"' in saved for one in turn)), default=0
        )
        agent = agent_of(scene, 1 + turns_done(scene, saved), inner)
        with sayso.run(scene.thread):
            state = await resume(await agents.RunState.from_string(agent, saved))
            return outcome_of(await agents.Runner.run(agent, state))


def turns_done(scene: Scene, saved: str) -> int:
    """Return the number of the turn in which the run paused."""
    return max(number for number, turn in enumerate(scene.turns) if any(f'"{call.id}"' in saved for call in turn))


class TestOpenAIAgents(AdapterSuite):
    driver: ClassVar = AgentsDriver()


class Approving:
    """Runs agents of the SDK itself, and decides."""

    def __init__(self, *tools: Any, calls: list[Any]) -> None:
        self.tools, self.calls = tools, calls

    def agent(self, *script: Any) -> Any:
        return agents.Agent(name="agent", model=scripted.ScriptedModel(list(script)), tools=list(self.tools))

    async def paused(self) -> str:
        with sayso.run("t"):
            result = await agents.Runner.run(self.agent(self.calls), "go")
        return result.to_state().to_string()

    async def state(self, saved: str) -> Any:
        return await agents.RunState.from_string(self.agent([scripted.assistant_message("end")]), saved)

    async def go_on(self, state: Any) -> dict[str, str]:
        with sayso.run("t"):
            result = await agents.Runner.run(self.agent([scripted.assistant_message("end")]), state)
        return outcome_of(result).told


def call(name: str, call_id: str, **arguments: Any) -> Any:
    return scripted.function_call(name, arguments, call_id=call_id)


def pay(paid: list[float], **options: Any) -> Any:
    def refund(amount: float) -> str:
        paid.append(amount)
        return f"refunded {amount}"

    return agents.function_tool(refund, **options)


def test_approval_in_the_saved_state_alone_starts_nothing(memory: Store) -> None:
    paid: list[float] = []
    play = Approving(gate(pay(paid), wait="pause"), calls=[call("refund", "c1", amount=5.0)])

    async def main() -> dict[str, str]:
        state = await play.state(await play.paused())
        for item in state.get_interruptions():
            state.approve(item, always_approve=True)
        task = asyncio.ensure_future(play.go_on(state))
        (request,) = suite.pending(memory)
        for _ in range(50):  # it has every chance to start
            await asyncio.sleep(0)
        assert (paid, task.done()) == ([], False)
        sayso.Review(by="ada").reject(request.id, "not this one")
        return await task

    assert "not this one" in asyncio.run(main())["c1"]
    assert paid == []


def test_arguments_that_were_altered_in_the_saved_state_are_refused(memory: Store) -> None:
    paid: list[float] = []
    play = Approving(gate(pay(paid), wait="pause"), calls=[call("refund", "c1", amount=5.0)])

    async def main() -> None:
        saved = await play.paused()
        suite.approve()(suite.pending(memory)[0])
        altered = saved.replace('{\\"amount\\":5.0}', '{\\"amount\\":5000.0}')
        assert altered != saved
        with sayso.run("t"):
            state = await resume(await play.state(altered))
        await play.go_on(state)

    with pytest.raises(Exception, match=r"different invocation|was used in this run|another call"):
        asyncio.run(main())
    assert paid == []


def test_interruption_of_a_tool_that_is_not_held_by_sayso_is_left_alone(memory: Store) -> None:
    paid: list[float] = []
    play = Approving(pay(paid, needs_approval=True), calls=[call("refund", "c1", amount=5.0)])

    async def main() -> int:
        with sayso.run("t"):
            state = await resume(await play.state(await play.paused()))
            return len((await agents.Runner.run(play.agent(), state)).interruptions)

    assert asyncio.run(main()) == 1
    assert (paid, suite.everything(memory)) == ([], [])


def test_tool_behind_a_handoff_pauses_and_goes_on_from_the_saved_state(memory: Store) -> None:
    paid: list[float] = []
    tool = gate(pay(paid), wait="pause")

    def first(*, is_new: bool) -> Any:
        script = [[scripted.assistant_message("end")]] if is_new else [[call("refund", "c1", amount=5.0)]]
        clerk = agents.Agent(name="clerk", model=scripted.ScriptedModel(script), tools=[tool])
        hand_over = [] if is_new else [[call("transfer_to_clerk", "h1")]]
        return agents.Agent(name="first", model=scripted.ScriptedModel(hand_over), handoffs=[clerk])

    async def main() -> Outcome:
        with sayso.run("t"):
            result = await agents.Runner.run(first(is_new=False), "go")
            suite.approve()(suite.pending(memory)[0])
            again = first(is_new=True)
            state = await resume(await agents.RunState.from_string(again, result.to_state().to_string()))
            return outcome_of(await agents.Runner.run(again, state))

    outcome = asyncio.run(main())
    assert (paid, outcome.told["c1"], outcome.answer) == ([5.0], "refunded 5.0", "end")


def test_errand_of_a_held_sub_agent_is_approved_once_and_pauses_inside(memory: Store) -> None:
    turns = [[ModelCall("d1", "delegate_held", {"task": "refund A-1"})]]
    scene = Scene(turns, "pause", nested=[[refund("n1")]])
    outcome = suite.AdapterSuite.play(TestOpenAIAgents(), scene, {"d1": suite.approve(), "n1": suite.approve()}, memory)
    assert (scene.refunds, outcome.told) == ([50.0], {"d1": ANSWER})
    assert [request.state for request in suite.everything(memory)] == [State.DONE, State.DONE]


def test_streamed_run_waits_too(memory: Store) -> None:
    paid: list[float] = []

    async def main() -> Any:
        script = [[call("refund", "c1", amount=5.0)], [scripted.assistant_message("end")]]
        agent = agents.Agent(name="agent", model=scripted.ScriptedModel(script), tools=[gate(pay(paid))])
        with sayso.run("t"):
            result = agents.Runner.run_streamed(agent, "go")
            async for event in result.stream_events():
                if getattr(event, "name", "") == "tool_called":
                    asyncio.ensure_future(decide())  # noqa: RUF006  the stream waits for what it does
            return result.final_output

    async def decide() -> None:
        while not suite.pending(memory):  # noqa: ASYNC110  a store tells no event of asyncio
            await asyncio.sleep(0.005)
        suite.approve()(suite.pending(memory)[0])

    assert (asyncio.run(main()), paid) == ("end", [5.0])


def told_of(tool: Any, memory: Store, arguments: dict[str, Any] | str = '{"amount": 5.0}') -> str:
    """Let a model call a tool, approve the call, and return what the model is told."""

    async def main() -> str:
        script = [[scripted.function_call("refund", arguments, call_id="c1")], [scripted.assistant_message("end")]]
        agent = agents.Agent(name="agent", model=scripted.ScriptedModel(script), tools=[tool])
        task = asyncio.ensure_future(agents.Runner.run(agent, "go"))
        while not task.done() and not suite.pending(memory):  # noqa: ASYNC110  the same
            await asyncio.sleep(0.005)
        for request in suite.pending(memory):
            suite.approve()(request)
        return outcome_of(await task).told["c1"]

    return asyncio.run(main())


def failing(**options: Any) -> Any:
    async def refund(amount: float) -> str:
        raise ValueError("the bank is closed")

    return gate(agents.function_tool(refund, **options))


def test_failure_is_told_as_it_was_and_not_as_please_try_again(memory: Store) -> None:
    told = told_of(failing(), memory)
    assert "the bank is closed" in told
    assert "try again" not in told
    assert [request.state for request in suite.everything(memory)] == [State.FAILED]


def test_failure_policy_of_the_tool_is_kept(memory: Store) -> None:
    assert (
        told_of(failing(failure_error_function=lambda _, error: f"own: {error}"), memory) == "own: the bank is closed"
    )
    with pytest.raises(Exception, match="the bank is closed"):
        told_of(failing(failure_error_function=None), memory)
    assert [request.state for request in suite.everything(memory)] == [State.FAILED] * 2


def test_call_that_exceeds_its_timeout_is_unknown_and_waiting_does_not_count(memory: Store) -> None:
    async def refund(amount: float) -> str:
        await asyncio.Event().wait()
        return "never"

    told = told_of(gate(agents.function_tool(refund, timeout=0.01)), memory)
    assert "nobody knows whether it took effect" in told
    assert [request.state for request in suite.everything(memory)] == [State.UNKNOWN]


@pytest.mark.parametrize("arguments", ["[1]", "{", '{"amount": "much"}'])
def test_arguments_that_do_not_fit_are_told_and_nobody_is_asked(arguments: str, memory: Store) -> None:
    paid: list[float] = []
    assert "refund was not run" in told_of(gate(pay(paid)), memory, arguments)
    assert (paid, suite.everything(memory)) == ([], [])


def test_pause_without_a_named_run_is_refused(memory: Store) -> None:
    paid: list[float] = []
    with pytest.raises(Exception, match="name"):
        told_of(gate(pay(paid), wait="pause"), memory)
    assert paid == []


def test_misuse_is_refused_where_it_is_written() -> None:
    with pytest.raises(errors.ConfigError, match="takes a function tool"):
        gate(lambda: None)
    with pytest.raises(errors.ConfigError, match="block"):
        gate(pay([]), wait="later")  # type: ignore[arg-type]  what is refused
    with pytest.raises(TypeError, match="rolls"):
        gate(pay([]), rolls=["finance"])  # type: ignore[call-arg]  the same
