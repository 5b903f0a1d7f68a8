"""How a run ends, what it counts, and how it is cancelled.

Handlers note in a list what they did. The one invariant: a run that has ended says the same again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import sayso
from sayso import Cancel, Tool, Workflow, suspend
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.running import agent_of, answers, ids, reason, started, yes

# -- ends and counters -----------------------------------------------------------------------------------------------


def test_every_status_and_counter_has_its_name(each_store: Store, clock: Clock, ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=1)
    assert (reason(paused), paused.usage) == (("cancelled", "approval_required"), {"approvals:required": 1})
    done = pay(resume=yes(paused)).run()
    assert (reason(done), done.usage) == (("success", None), {"approvals:approved": 1})
    again = pay(resume=yes(paused)).run()
    assert (reason(again), again.usage) == (("cancelled", "approval_already_claimed"), {})
    paused = started(pay, amount=2)
    denied = pay(resume=dict.fromkeys(ids(paused), False)).run()
    assert (reason(denied), denied.usage) == (("cancelled", "approval_denied"), {"approvals:denied": 1})
    paused = started(pay, amount=3)
    ended = pay(resume=dict.fromkeys(ids(paused), Cancel("enough"))).run()
    assert (reason(ended), ended.usage) == (("cancelled", "cancelled"), {"approvals:cancelled": 1})
    assert ended.status.message == "enough"
    paused = started(pay, amount=4)
    clock.tick(hours=24)
    late = pay(parent_id=paused.run_id).run()
    assert reason(late) == ("cancelled", "approval_required")
    assert late.usage == {"approvals:expired": 1, "approvals:required": 1}
    assert late.metadata["pending_approvals"][0]["metadata"]["approval"]["expired"] is True
    assert ids(late) != ids(paused)
    assert ran == [1]


def test_an_expired_decision_is_ignored_and_the_gate_asks_again(
    each_store: Store, clock: Clock, ran: list[Any]
) -> None:
    pay = Tool(lambda amount: ran.append(amount), name="pay", requires_approval=True)  # noqa: PLW0108
    agent = agent_of([pay], [("pay", {"amount": 1})])
    outer = agent_of([agent], [("agent", {"prompt": "go"})], name="outer")
    paused = started(outer, prompt="go")
    now = int(clock.at.timestamp() * 1000)
    late = {"approved": True, "expires_at": now}
    output = outer(resume=dict.fromkeys(ids(paused), late)).run()
    assert reason(output) == ("cancelled", "approval_required")
    assert output.usage == {"approvals:expired": 1, "approvals:required": 1}
    assert output.metadata["pending_approvals"][0]["metadata"]["approval"]["expired"] is True
    assert ran == []
    assert reason(outer(resume=yes(output)).run()) == ("success", None)


def test_a_decision_that_ends_before_the_call_starts_does_not_count(
    each_store: Store, clock: Clock, ran: list[Any]
) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True, quorum=2)
    paused = started(pay)
    (wanted,) = ids(paused)
    soon = int(clock.at.timestamp() * 1000) + 60_000
    first = pay(resume={wanted: {"approved": True, "approver_id": "ada", "expires_at": soon}}).run()
    assert reason(first) == ("cancelled", "approval_required")
    clock.tick(seconds=61)
    second = pay(resume={wanted: {"approved": True, "approver_id": "ben"}}).run()
    assert (reason(second), ran) == (("cancelled", "approval_required"), [])
    assert second.metadata["pending_approvals"][0]["metadata"]["approval"]["expired"] is True
    (anew,) = ids(second)
    for who in ("ada", "ben"):
        second = pay(resume={anew: {"approved": True, "approver_id": who}}).run()
    assert (reason(second), ran) == (("success", None), ["paid"])


def test_a_decision_that_ends_starts_no_idempotent_call_whose_outcome_is_unknown(
    each_store: Store, clock: Clock, ran: list[Any]
) -> None:
    def pay() -> None:
        ran.append("paid")
        raise TimeoutError

    tool = Tool(pay, requires_approval=True, idempotent=True)
    (wanted,) = ids(paused := started(tool))
    soon = int(clock.at.timestamp() * 1000) + 60_000
    assert reason(tool(resume={wanted: {"approved": True, "expires_at": soon}}).run()) == ("error", "outcome_unknown")
    clock.tick(seconds=61)
    assert reason(tool(parent_id=paused.run_id).run()) == ("error", "outcome_unknown")
    assert ran == ["paid"]


def test_a_decision_that_ends_before_a_call_of_a_handler_starts_does_not_count(
    each_store: Store, clock: Clock, ran: list[Any]
) -> None:
    @sayso.gate(wait="raise")
    def pay() -> str:
        ran.append("paid")
        return "paid"

    def work() -> str:
        clock.tick(seconds=61)  # what it does before it pays takes a while
        return pay()

    tool = Tool(work)
    paused = started(tool)
    (wanted,) = ids(paused)
    soon = int(clock.at.timestamp() * 1000) + 60_000
    late = tool(resume={wanted: {"approved": True, "expires_at": soon}}).run()
    assert (reason(late), ran) == (("cancelled", "approval_required"), [])
    assert ids(late) != [wanted]
    after = int(clock.at.timestamp() * 1000) + 62_000
    output = tool(resume={wanted: {"approved": True, "expires_at": after} for wanted in ids(late)}).run()
    assert (reason(output), output.output, ran) == (("success", None), "paid", ["paid"])


def test_a_request_that_expired_while_a_decision_came_asks_anew(
    each_store: Store, clock: Clock, ran: list[Any]
) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True, expires=timedelta(minutes=5))
    paused = started(pay)
    clock.tick(minutes=5)
    output = pay(resume=yes(paused)).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])
    assert reason(pay(resume=yes(output)).run()) == ("success", None)


def test_a_granted_approval_that_expired_asks_anew(each_store: Store, clock: Clock, ran: list[Any]) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True, approval_expires="5m")
    paused = started(pay)
    sayso.Review().approve(ids(paused)[0], by="ada")
    clock.tick(minutes=5)
    output = pay(parent_id=paused.run_id).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])
    assert output.usage == {"approvals:expired": 1, "approvals:required": 1}


def test_counters_are_summed_up_through_nested_runs(each_store: Store, ran: list[Any], pay: Tool) -> None:
    inner = agent_of([pay], [("pay", {"amount": 1}), ("pay", {"amount": 2})], name="inner")
    flow = Workflow(name="flow").step(inner, prompt="go").step(pay, name="third", amount=3)
    outer = agent_of([flow], [("flow", {})], name="outer")
    paused = started(outer, prompt="go")
    assert paused.usage == {"turns": 2, "approvals:required": 3}
    one, two, three = by_amount(paused, 1, 2, 3)
    output = outer(resume={one: True, two: False, three: True}).run()
    assert output.usage["approvals:approved"] == 2
    assert output.usage["approvals:denied"] == 1
    assert "approvals:required" not in output.usage


# -- cancelling ------------------------------------------------------------------------------------------------------


def test_cancelling_ends_the_whole_run_and_runs_nothing_more(each_store: Store, ran: list[Any]) -> None:
    one, two = (Tool(lambda name=name: ran.append(name), name=name, requires_approval=True) for name in "ab")
    agent = agent_of([one, two], [("a", {}), ("b", {})])
    paused = started(agent, prompt="go")
    first, second = ids(paused)
    output = agent(resume={first: True, second: Cancel("stop it")}).run()
    assert (reason(output), output.status.message) == (("cancelled", "cancelled"), "stop it")
    assert output.usage == {"approvals:cancelled": 1}
    assert ran == []
    assert sayso.Review().get(first).state == "cancelled"
    assert reason(agent(parent_id=paused.run_id).run()) == ("cancelled", "cancelled")
    assert ran == []


def test_cancelling_elsewhere_ends_the_whole_run_as_well(each_store: Store, ran: list[Any]) -> None:
    one, two = (Tool(lambda name=name: ran.append(name), name=name, requires_approval=True) for name in "ab")
    flow = Workflow(name="flow").step(one).step(two).step(lambda: ran.append("c"), name="c", depends_on=["a"])
    paused = started(flow)
    review = sayso.Review(reviewer="ada")
    review.approve(ids(paused)[0])
    review.cancel(ids(paused)[1], "no more")
    output = flow(parent_id=paused.run_id).run()
    assert (reason(output), ran) == (("cancelled", "cancelled"), [])


@pytest.mark.parametrize("kind", ["sayso.cancel", "timbal.cancel"])
def test_cancel_may_be_a_dict(memory: None, ran: list[Any], pay: Tool, kind: str) -> None:
    output = pay(resume={ids(started(pay, amount=1))[0]: {"type": kind, "reason": "over"}}).run()
    assert (reason(output), output.status.message, ran) == (("cancelled", "cancelled"), "over", [])


def test_a_question_can_be_cancelled(each_store: Store, ran: list[Any]) -> None:
    def handler() -> None:
        suspend({"question": "which?"})
        ran.append(1)

    tool = Tool(handler)
    output = tool(resume=answers(started(tool), Cancel("none"))).run()
    assert (reason(output), ran) == (("cancelled", "cancelled"), [])


def by_amount(output: sayso.OutputEvent, *amounts: int) -> list[str]:
    """Return the ids of the calls that wait, by what they pay; calls of one turn are emitted as they come."""
    known = {entry["input"]["amount"]: entry["approval_id"] for entry in output.metadata["pending_approvals"]}
    return [known[amount] for amount in amounts]
