"""Tools, agents and workflows as each other's parts, and the record of what they did.

Handlers note in a list what they did. The one invariant: a free call runs once and a gated one after its yes.
"""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from datetime import timedelta
from typing import Any

import pytest

import sayso
from sayso import Agent, ApprovalPolicyDecision, Tool, Workflow, errors, load_run, suspend
from sayso.runs.events import parse_event
from sayso.runs.messages import ModelError
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from tests.support.running import agent_of, awaited, ids, reason, started, yes

# -- kinds of runnables ----------------------------------------------------------------------------------------------


def test_an_agent_and_a_workflow_can_be_gated_themselves(each_store: Store, ran: list[Any], pay: Tool) -> None:
    inner = agent_of([pay], [("pay", {"amount": 1})], name="inner", requires_approval=lambda prompt: "money" in prompt)
    flow = Workflow(name="flow", requires_approval=lambda place, **_: place == "prod").step(inner)
    assert reason(flow(place="test", prompt="hello").run()) == ("cancelled", "approval_required")
    paused = started(flow, place="prod", prompt="money")
    (entry,) = paused.metadata["pending_approvals"]
    assert (entry["runnable_path"], entry["runnable_type"]) == ("flow", "Workflow")
    output = flow(resume=yes(paused)).run()
    assert output.metadata["pending_approvals"][0]["runnable_path"] == "flow.inner"
    output = flow(resume=yes(output)).run()
    assert output.metadata["pending_approvals"][0]["runnable_path"] == "flow.inner.pay"
    output = flow(resume=yes(output)).run()
    assert (reason(output), output.output, ran) == (("success", None), {"inner": "paid 1"}, [1])
    assert output.usage["approvals:approved"] == 3


def test_a_gated_workflow_may_be_edited(each_store: Store, ran: list[Any]) -> None:
    flow = Workflow(name="flow", requires_approval=True).step(lambda place: ran.append(place), name="go")  # noqa: PLW0108
    paused = started(flow, place="prod")
    assert paused.metadata["pending_approvals"][0]["input"] == {"place": "prod"}
    flow(resume={ids(paused)[0]: {"approved": True, "override_input": {"place": "test"}}}).run()
    assert ran == ["test"]


def test_rules_of_a_handler_that_takes_anything_get_its_arguments_by_name(memory: None, ran: list[Any]) -> None:
    def note(**given: Any) -> None:
        ran.append(given)

    tool = Tool(
        note, requires_approval=lambda env: env == "production", approval_prompt=lambda env, **_: f"to {env}?",
        approval_description=lambda env: f"in {env}",
    )  # fmt: skip
    assert reason(tool(env="staging").run()) == ("success", None)
    (entry,) = started(tool, env="production").metadata["pending_approvals"]
    assert (entry["prompt"], entry["description"]) == ("to production?", "in production")


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("answer", [False, True])
def test_a_workflow_ends_as_its_step_does_and_says_the_same_again(
    each_store: Store, ran: list[Any], gated: bool, answer: bool
) -> None:
    def fails() -> None:
        raise ValueError("no")

    flow = Workflow(name="flow", requires_approval=gated).step(lambda: "seen", name="look")
    flow.step(Tool(fails, requires_approval=True))
    output = started(flow)
    for _ in range(gated):
        output = flow(resume=yes(output)).run()
    output = flow(resume=dict.fromkeys(ids(output), answer)).run()
    assert reason(output) == (("error", None) if answer else ("cancelled", "approval_denied"))
    assert output.output == {"look": "seen"}
    again = flow(parent_id=output.run_id).run()
    assert (again.status, again.error, again.output) == (output.status, output.error, output.output)
    assert sayso.Review().list(state=["pending", "approved"]).requests == ()


def test_a_denied_agent_tells_the_outer_model(each_store: Store, ran: list[Any], pay: Tool) -> None:
    inner = agent_of([pay], [("pay", {"amount": 1})], name="inner", requires_approval=True)
    outer = agent_of([inner], [("inner", {"prompt": "go"})], name="outer")
    paused = started(outer, prompt="go")
    output = outer(resume=dict.fromkeys(ids(paused), False)).run()
    assert (reason(output), ran) == (("success", None), [])
    assert "inner was not run" in output.output


def test_tool_call_ids_of_the_model_are_told(each_store: Store, pay: Tool) -> None:
    agent = Agent(
        model=ScriptedModel([[{"name": "pay", "arguments": {"amount": 1}, "id": "call_x"}], "done"]), tools=[pay]
    )
    paused = started(agent, prompt="go")
    assert paused.metadata["pending_approvals"][0]["tool_call_id"] == "call_x"
    output = agent(resume=yes(paused)).run()
    assert [span.metadata["tool_call_id"] for span in load_run(output.run_id).spans if span.name == "pay"] == ["call_x"]


def test_free_calls_of_a_turn_run_at_once_and_only_once(each_store: Store, ran: list[Any], pay: Tool) -> None:
    look = Tool(lambda what: ran.append(what), name="look")  # noqa: PLW0108
    agent = agent_of([look, pay], [("pay", {"amount": 1}), ("look", {"what": "a"}), ("look", {"what": "b"})])
    paused = started(agent, prompt="go")
    assert sorted(ran) == ["a", "b"]
    agent(resume=yes(paused)).run()
    assert len(ran) == 3
    assert ran[2] == 1


def test_sync_handlers_of_one_turn_run_side_by_side(memory: None) -> None:
    meet = threading.Barrier(3, timeout=30)
    tool = Tool(lambda n: meet.wait() >= 0 * n, name="meet")
    output = agent_of([tool], [("meet", {"n": n}) for n in range(3)])(prompt="go").run()
    assert output.output == "true | true | true"


@awaited
async def test_a_sync_handler_does_not_block_the_loop() -> None:
    sayso.configure(store="memory:")
    go = threading.Event()
    waiting = asyncio.ensure_future(Tool(lambda: go.wait(30), name="waits")().collect())
    while not waiting.done():
        await asyncio.sleep(0.01)
        go.set()
    assert waiting.result().output is True


def test_a_handler_that_raises_stop_iteration_fails(each_store: Store) -> None:
    tool = Tool(lambda: next(iter(())), name="empty")
    assert tool().run().error == {"type": "StopIteration", "message": ""}
    gated = Tool(lambda: next(iter(())), name="empty", requires_approval=True)
    output = gated(resume=yes(started(gated))).run()
    assert output.error == {"type": "StopIteration", "message": ""}


def test_a_failed_call_is_spent_and_not_tried_again(each_store: Store, ran: list[Any]) -> None:
    def fails() -> None:
        ran.append(1)
        raise ValueError("no such account")

    agent = agent_of([Tool(fails, requires_approval=True)], [("fails", {})])
    paused = started(agent, prompt="go")
    output = agent(resume=yes(paused)).run()
    assert output.output == "fails failed: ValueError: no such account"
    agent(parent_id=paused.run_id).run()
    assert ran == [1]


def test_a_tool_may_be_called_input(each_store: Store, ran: list[Any]) -> None:
    tool = Tool(lambda: ran.append(1), name="input", requires_approval=True)
    assert reason(tool(resume=yes(started(tool))).run()) == ("success", None)
    assert ran == [1]


@pytest.mark.parametrize("name", ["a/b", "a?0", "a=", "@rq", "", "a.b"])
def test_a_step_name_cannot_be_taken_for_a_place(name: str) -> None:
    with pytest.raises(errors.ConfigError):
        Workflow(name="flow").step(Tool(lambda: 1, name="one"), name=name or "\n")


def test_max_iters_ends_the_run(memory: None, ran: list[Any]) -> None:
    look = Tool(lambda: ran.append(1), name="look")
    output = Agent(model=ScriptedModel([[("look", {})]] * 5), tools=[look], max_iters=3)(prompt="go").run()
    assert output.error is not None
    assert (output.status.code, output.error["type"], len(ran)) == ("error", "MaxItersError", 3)


@pytest.mark.parametrize("fault", [ModelError("m", "is busy"), ConnectionError("no line")])
def test_a_run_goes_on_after_its_model_was_out_of_reach(
    each_store: Store, ran: list[Any], pay: Tool, fault: Exception
) -> None:
    faults = [fault]

    def second(messages: Any) -> Any:
        if faults:
            raise faults.pop()
        return "done"

    agent = Agent(model=ScriptedModel([[("pay", {"amount": 1})], second]), tools=[pay])
    paused = started(agent, prompt="go")
    output = agent(resume=yes(paused)).run()
    assert (output.status.code, output.status.reason, ran) == ("error", None, [1])
    assert output.error is not None
    assert output.error["type"] == type(fault).__name__
    output = agent(parent_id=paused.run_id).run()
    assert (reason(output), output.output, ran) == (("success", None), "done", [1])


def test_two_tools_of_one_name_are_refused(pay: Tool) -> None:
    with pytest.raises(errors.ConfigError, match="two tools are called 'pay'"):
        agent_of([pay, Tool(lambda: 1, name="pay")])


def test_a_tool_called_directly_gives_the_value_or_raises(each_store: Store, ran: list[Any], pay: Tool) -> None:
    with pytest.raises(sayso.ConfirmationRequired) as held:
        pay.call(amount=1)
    sayso.Review().approve(held.value.confirmation_id, by="ada")
    assert pay.call(amount=1) == "paid 1"
    with sayso.run("order-2"), pytest.raises(sayso.ConfirmationRequired) as held:
        asyncio.run(pay.acall(amount=2))
    sayso.Review().reject(held.value.confirmation_id, "no", by="ada")
    with sayso.run("order-2"), pytest.raises(sayso.ConfirmationRejected):
        pay.call(amount=2)
    assert ran == [1]


# -- the record ------------------------------------------------------------------------------------------------------


@awaited
async def test_events_round_trip_through_json() -> None:
    sayso.configure(store="memory:")

    def handler(n: int) -> str:
        return suspend({"question": "?"})

    def rule(amount: int) -> ApprovalPolicyDecision:
        return ApprovalPolicyDecision(required=True, ui={"a": [amount, None, 2.5]})

    gated = Tool(lambda amount: amount, name="pay", requires_approval=rule)
    agent = agent_of([gated, handler], {"text": "one moment", "calls": [("pay", {"amount": 1}), ("handler", {"n": 2})]})
    events = [event async for event in agent(prompt="go")]
    assert {event.type for event in events} == {"START", "DELTA", "APPROVAL", "INTERACTION", "OUTPUT"}
    for event in events:
        text = event.model_dump_json()
        assert parse_event(text) == parse_event(json.loads(text)) == event
    assert "".join(event.text for event in events if event.type == "DELTA") == "one moment"


def test_a_run_that_waits_for_nobody_writes_nothing(each_store: Store) -> None:
    output = agent_of([lambda_tool()], [("double", {"n": 2})])(prompt="go").run()
    assert output.output == "4"
    with pytest.raises(errors.RunNotFoundError):
        load_run(output.run_id)


def lambda_tool() -> Tool:
    return Tool(lambda n: n * 2, name="double")


def test_nothing_warns_in_the_ordinary_course(each_store: Store, pay: Tool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reason(pay(resume=yes(started(pay, amount=1))).run()) == ("success", None)


def test_values_between_steps_survive_the_pause(each_store: Store, ran: list[Any], pay: Tool) -> None:
    flow = (
        Workflow(name="flow")
        .step(lambda: {"at": (1, 2), "when": timedelta(hours=1)}, name="made")
        .step(pay, amount=1)
        .step(lambda made, pay: ran.append((made, pay)), name="last")
    )
    paused = started(flow)
    flow(parent_id=paused.run_id, resume=yes(paused)).run()
    assert ran[-1] == ({"at": (1, 2), "when": timedelta(hours=1)}, "paid 1")


def test_a_workflow_has_default_params(memory: None) -> None:
    flow = Workflow(name="flow", default_params={"place": lambda: "prod", "n": 1}).step(
        lambda place, n: f"{place} {n}", name="go"
    )
    assert flow().run().output == {"go": "prod 1"}
    assert flow(place="test").run().output == {"go": "test 1"}


def test_arguments_that_do_not_fit_run_nothing(each_store: Store, ran: list[Any], pay: Tool) -> None:
    output = pay(amount="much").run()
    assert (output.status.code, ran) == ("error", [])
    output = agent_of([pay], [("pay", {"amount": "much"}), ("nothing", {}), ("pay", {})])(prompt="go").run()
    assert (output.status.code, ran) == ("success", [])
    assert output.output.count("pay failed: ValidationError") == 2
    assert "There is no tool 'nothing'" in output.output
