"""What a run says of itself, in its output, its events and its record: one shape, and the same everywhere.

Programs that were written for another library read these. The one invariant: event, output and stored run agree.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sayso
from sayso import (
    ApprovalEvent,
    ApprovalResolution,
    Cancel,
    InteractionEvent,
    OutputEvent,
    Tool,
    Workflow,
    load_run,
    suspend,
)
from sayso.runs.events import StartEvent, parse_event
from sayso.runs.runnable import Runnable
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.running import agent_of, ids, questions, reason, started, yes


def events_of(runnable: Runnable, **given: Any) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return [event async for event in runnable(**given)]

    return asyncio.run(all_of_them())


def outputs(events: list[Any]) -> dict[str, OutputEvent]:
    return {event.path: event for event in events if isinstance(event, OutputEvent)}


# -- types -----------------------------------------------------------------------------------------------------------


def test_runnables_are_called_tool_agent_and_workflow(each_store: Store, pay: Tool) -> None:
    agent = agent_of([Workflow(name="flow").step(pay)], [("flow", {"amount": 1})])
    events = events_of(agent, prompt="go")
    kinds = {"agent": "Agent", "agent.flow": "Workflow", "agent.flow.pay": "Tool"}
    for kind in (StartEvent, OutputEvent):
        assert {event.path: event.runnable_type for event in events if isinstance(event, kind)} == kinds
    (asked,) = [event for event in events if isinstance(event, ApprovalEvent)]
    assert asked.runnable_type == "Tool"
    agent(parent_id=asked.run_id, resume={asked.approval_id: True}).run()
    assert {span.path: span.type for span in load_run(asked.run_id).spans} == kinds


# -- what waits ------------------------------------------------------------------------------------------------------


def test_what_waits_is_typed_and_in_the_metadata(each_store: Store, pay: Tool) -> None:
    agent = agent_of([pay, Tool(lambda: suspend({"question": "?"}), name="ask")], [("pay", {"amount": 1}), ("ask", {})])
    output = started(agent, prompt="go")
    (approval,), (interaction,) = output.pending_approvals, output.pending_interactions
    assert (type(approval), type(interaction)) == (ApprovalEvent, InteractionEvent)
    assert (approval.approval_id, approval.input, approval.prompt) == (ids(output)[0], {"amount": 1}, "Pay 1?")
    assert interaction.interaction_id == questions(output)[0]
    dumped = approval.model_dump(mode="json", exclude={"type"})
    assert output.metadata["pending_approvals"] == load_run(output.run_id).pending_approvals() == [dumped]
    read = parse_event(output.model_dump_json())
    assert isinstance(read, OutputEvent)
    assert read.pending_approvals == output.pending_approvals
    ended = Tool(lambda: 1, name="one")().run()
    assert (ended.pending_approvals, ended.pending_interactions) == ([], [])


def test_the_output_of_a_run_that_waits_says_for_what(each_store: Store, pay: Tool) -> None:
    told = [started(pay, amount=1), started(agent_of([pay], [("pay", {"amount": 1})]), prompt="go")]
    told.append(started(Workflow(name="flow").step(pay), amount=1))
    for output in told:
        (approval_id,) = ids(output)
        assert output.output == {"approval_id": approval_id, "status": "approval_required", "prompt": "Pay 1?"}
    asking = started(Tool(lambda: suspend({"question": "?"}, kind="ask"), name="asks"))
    (interaction_id,) = questions(asking)
    waits = {"suspension_id": interaction_id, "status": "input_required", "kind": "ask", "payload": {"question": "?"}}
    assert asking.output == waits


def test_a_held_call_says_under_approval_what_is_asked(each_store: Store, pay: Tool) -> None:
    paused = started(pay, amount=1)
    (approval_id,) = ids(paused)
    approval = paused.metadata["approval"]
    assert (approval["id"], approval["required"], approval["prompt"]) == (approval_id, True, "Pay 1?")
    assert (approval["input"], approval["expired"]) == ({"amount": 1}, False)
    decision = ApprovalResolution(approved=True, approver_id="user_42", override_input={"amount": 7})
    done = pay(parent_id=paused.run_id, resume={approval_id: decision}).run()
    (span,) = load_run(paused.run_id).spans
    for told in (done.metadata["approval"], span.metadata["approval"]):
        assert (told["id"], told["effective_input"]) == (approval_id, {"amount": 7})
        assert (told["resolution"]["approver_id"], told["resolution"]["override_input"]) == ("user_42", {"amount": 7})


# -- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["denied", "cancelled", "claimed"])
def test_a_cancelled_run_gives_a_dict_that_says_why(each_store: Store, pay: Tool, decision: str) -> None:
    paused = started(pay, amount=1)
    (approval_id,) = ids(paused)
    given: Any = {"denied": {"approved": False, "reason": "too much"}, "cancelled": Cancel("enough"), "claimed": True}
    output = pay(parent_id=paused.run_id, resume={approval_id: given[decision]}).run()
    if decision == "claimed":
        output = pay(parent_id=paused.run_id, resume={approval_id: True}).run()
    reasons = {"denied": "too much", "cancelled": "enough", "claimed": None}
    statuses = {"denied": "approval_denied", "cancelled": "cancelled", "claimed": "approval_already_claimed"}
    told = {"approval_id": approval_id, "status": statuses[decision], "reason": reasons[decision]}
    assert (output.output, output.status.reason) == (told, statuses[decision])
    if decision != "claimed":
        assert pay(parent_id=paused.run_id).run().output == load_run(paused.run_id).output == told


def test_what_a_rule_denies_gives_the_same_dict(memory: Store) -> None:
    tool = Tool(lambda: 1, name="one", requires_approval=lambda: sayso.deny("closed"))
    assert tool().run().output == {"approval_id": None, "status": "approval_denied", "reason": "closed"}


def test_cancelling_an_agents_run_gives_an_output_of_the_cancelled_tool(
    each_store: Store, ran: list[Any], pay: Tool
) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1}), ("pay", {"amount": 2})])
    outer = agent_of([agent], [("agent", {"prompt": "go"})], name="outer")
    paused = started(outer, prompt="go")
    first, _ = ids(paused)
    events = events_of(outer, parent_id=paused.run_id, resume={first: Cancel("enough")})
    assert list(outputs(events)) == ["outer.agent.pay", "outer"]
    told = {"approval_id": first, "status": "cancelled", "reason": "enough"}
    for event in outputs(events).values():
        assert (reason(event), event.status.message, event.output) == (("cancelled", "cancelled"), "enough", told)
    tool = outputs(events)["outer.agent.pay"]
    assert (tool.runnable_type, tool.input) == ("Tool", {"amount": 1})
    assert (tool.metadata["approval"]["id"], tool.metadata["approval"]["cancelled"]) == (first, True)
    assert ran == []


def test_cancelling_a_tools_own_run_says_what_was_cancelled(each_store: Store, pay: Tool) -> None:
    paused = started(pay, amount=1)
    events = events_of(pay, parent_id=paused.run_id, resume=dict.fromkeys(ids(paused), Cancel("enough")))
    (output,) = outputs(events).values()
    assert (output.input, output.metadata["approval"]["id"]) == ({"amount": 1}, ids(paused)[0])


# -- agents say texts ------------------------------------------------------------------------------------------------


def test_an_agents_output_is_a_text_and_can_be_read_as_a_message(each_store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    output = agent(parent_id=paused.run_id, resume=yes(paused)).run()
    read = parse_event(output.model_dump_json())
    assert isinstance(read, OutputEvent)
    for text in (output.output, read.output, load_run(paused.run_id).output):
        assert isinstance(text, str)
        assert text == text.collect_text() == "paid 1"  # pyright: ignore[reportAttributeAccessIssue]

    def note(text: str, parts: list[str]) -> str:
        ran.append((text, type(text)))
        return text

    held = Tool(note, requires_approval=True)
    asked = started(held, text=output.output, parts=[output.output])
    assert asked.pending_approvals[0].input == {"text": "paid 1", "parts": ["paid 1"]}
    assert held(text="paid 1", parts=["paid 1"], resume=yes(asked)).run().output == "paid 1"
    assert ran[1:] == [("paid 1", str)]


# -- late decisions --------------------------------------------------------------------------------------------------


def test_a_decision_that_came_too_late_is_told_the_same_everywhere(
    each_store: Store, clock: Clock, ran: list[Any], pay: Tool
) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    late = {"approved": True, "expires_at": int(clock.at.timestamp() * 1000)}
    output = agent(parent_id=paused.run_id, resume=dict.fromkeys(ids(paused), late)).run()
    again = agent(parent_id=paused.run_id).run()
    stored = load_run(paused.run_id)
    for pending in (
        output.metadata["pending_approvals"],
        again.metadata["pending_approvals"],
        stored.pending_approvals(),
    ):
        assert [entry["metadata"]["approval"]["expired"] for entry in pending] == [True]
    (span,) = [span for span in stored.spans if span.name == "pay"]
    assert span.metadata["approval"]["expired"] is True
    assert (output.usage["approvals:expired"], "approvals:expired" in again.usage) == (1, False)
    assert reason(agent(parent_id=paused.run_id, resume=yes(output)).run()) == ("success", None)
    assert ran == [1]


def test_a_question_whose_time_ran_out_is_told_the_same_everywhere(each_store: Store, clock: Clock) -> None:
    tool = Tool(lambda: suspend({"question": "?"}), name="asks")
    paused = started(tool)
    clock.tick(hours=24)
    output = tool(parent_id=paused.run_id).run()
    again = tool(parent_id=paused.run_id).run()
    stored = load_run(paused.run_id).pending_interactions()
    for pending in (output.metadata["pending_interactions"], again.metadata["pending_interactions"], stored):
        assert [entry["metadata"]["interaction"]["expired"] for entry in pending] == [True]


# -- stored runs -----------------------------------------------------------------------------------------------------


def test_a_loaded_run_has_the_status_and_output_of_the_run(each_store: Store, ran: list[Any], pay: Tool) -> None:
    flow = Workflow(name="flow").step(pay)
    paused = started(flow, amount=1)
    stored = load_run(paused.run_id)
    assert stored.status is not None
    assert (stored.status.code, stored.status.reason) == reason(paused)
    assert stored.output == paused.output
    sayso.Review(reviewer="ada").approve(ids(paused)[0])
    decided = load_run(paused.run_id)
    assert decided.status is not None
    assert (decided.status.reason, decided.pending_approvals()) == ("approval_required", [])
    assert "approved, and the run has not continued" in (decided.status.message or "")
    assert paused.run_id in (decided.status.message or "")
    done = flow(parent_id=paused.run_id).run()
    stored = load_run(paused.run_id)
    assert stored.status == done.status
    assert stored.output == done.output == {"pay": "paid 1"}
    asking = started(Tool(lambda: suspend({"question": "?"}), name="asks"))
    waiting = load_run(asking.run_id)
    assert waiting.status is not None
    assert (waiting.status.reason, waiting.output) == ("input_required", asking.output)
