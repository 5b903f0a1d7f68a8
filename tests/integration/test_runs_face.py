"""The approval face of a run, line by line: how it ends, what it counts, what it keeps, and what it will not do.

Deaths, secrets, races, streams that break off and whole lifecycles are tested beside this. The one invariant: a
handler that ran is seen in a list that only handlers append to.
"""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import sayso
from sayso import (
    Agent,
    ApprovalPolicyDecision,
    ApprovalResolution,
    Cancel,
    Tool,
    Workflow,
    errors,
    load_run,
    suspend,
)
from sayso.runs.decide import IgnoredDecisionWarning
from sayso.runs.events import parse_event
from sayso.runs.interaction import ask_user, ask_user_multi, confirm
from sayso.runs.models import ModelError
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from tests.conftest import Clock
from tests.integration.running import agent_of, answers, awaited, ids, questions, reason, started, yes


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The configured store, of each kind in turn."""
    file = tmp_path / "sayso"
    address = {"memory": "memory:", "sqlite": f"sqlite:///{file}.db", "jsonl": f"jsonl:{file}.jsonl"}[request.param]
    sayso.configure(store=address)
    return sayso.Review().store


@pytest.fixture
def memory() -> None:
    """Tests that are about no store."""
    sayso.configure(store="memory:")


@pytest.fixture
def ran() -> list[Any]:
    """What handlers did."""
    return []


@pytest.fixture
def pay(ran: list[Any]) -> Tool:
    """A tool that waits."""

    def pay(amount: int) -> str:
        """Send money."""
        ran.append(amount)
        return f"paid {amount}"

    return Tool(pay, requires_approval=True, approval_prompt=lambda amount: f"Pay {amount}?")


# -- rules -----------------------------------------------------------------------------------------------------------


async def _async_yes(amount: int) -> bool:
    await asyncio.sleep(0)
    return amount > 100


class _Callable:
    async def __call__(self, amount: int) -> ApprovalPolicyDecision:
        return ApprovalPolicyDecision(required=amount > 100)


@pytest.mark.parametrize(
    "rule",
    [
        lambda amount: amount > 100,
        lambda amount, **_: ApprovalPolicyDecision(required=amount > 100),
        lambda amount: {"required": amount > 100},
        _async_yes,
        _Callable(),
    ],
)
def test_a_rule_lets_calls_through_or_holds_them(memory: None, ran: list[Any], rule: Any) -> None:
    def pay(amount: int, to: str = "ada") -> int:
        ran.append(amount)
        return amount

    tool = Tool(pay, requires_approval=rule)
    assert reason(tool(amount=100).run()) == ("success", None)
    assert reason(tool(amount=101).run()) == ("cancelled", "approval_required")
    assert ran == [100]


@pytest.mark.parametrize("answer", [None, 1, 0, "yes", "", [], {}, {"required": "yes"}, {"required": 1}, object()])
def test_a_rule_that_answers_anything_else_is_an_error(memory: None, ran: list[Any], answer: Any) -> None:
    output = Tool(ran.append, name="note", requires_approval=lambda: answer)
    tool = Tool(lambda: ran.append(1), name="note", requires_approval=lambda: answer)
    assert output.name == "note"
    assert reason(tool().run()) == ("error", "approval_policy_error")
    assert ran == []


@pytest.mark.parametrize("prompt", [lambda: 7, lambda: None, lambda: 1 / 0])
def test_a_prompt_that_fails_is_a_policy_error(memory: None, ran: list[Any], prompt: Any) -> None:
    output = Tool(lambda: ran.append(1), name="note", requires_approval=True, approval_prompt=prompt)().run()
    assert reason(output) == ("error", "approval_policy_error")
    assert (ran, output.metadata.get("pending_approvals")) == ([], None)


def test_a_policy_error_of_one_tool_ends_the_agents_run(memory: None, ran: list[Any], pay: Tool) -> None:
    broken = Tool(lambda: ran.append("broken"), name="broken", requires_approval=lambda: 1 / 0)
    output = agent_of([broken, pay], [("broken", {}), ("pay", {"amount": 1})])(prompt="go").run()
    assert reason(output) == ("error", "approval_policy_error")
    assert output.error is not None
    assert output.error["type"] == "PolicyError"
    assert ran == []


def test_an_ended_run_says_the_same_again(store: Store, ran: list[Any], pay: Tool) -> None:
    broken = Tool(lambda: ran.append("broken"), name="broken", requires_approval=lambda: 1 / 0)
    agent = agent_of([broken, pay], [("pay", {"amount": 1})], [("broken", {})])
    paused = started(agent, prompt="go")
    ended = agent(resume=yes(paused)).run()
    assert reason(ended) == ("error", "approval_policy_error")
    again = agent(parent_id=paused.run_id).run()
    assert (reason(again), again.error) == (reason(ended), ended.error)
    assert ran == [1]


def test_a_decision_of_the_rule_is_what_the_card_shows(memory: None) -> None:
    def rule(amount: int) -> ApprovalPolicyDecision:
        return ApprovalPolicyDecision(
            required=True, prompt=f"{amount}!", description="d", kind="k", ui={"a": amount}, metadata={"team": "ops"}
        )

    tool = Tool(
        lambda amount: amount, name="pay", requires_approval=rule, approval_kind="other", approval_ui={"x": 1},
        approval_prompt="other", approval_description="other",
    )  # fmt: skip
    (entry,) = started(tool, amount=7).metadata["pending_approvals"]
    assert (entry["prompt"], entry["description"], entry["kind"], entry["ui"]) == ("7!", "d", "k", {"a": 7})
    assert entry["metadata"] == {"team": "ops", "approval": {"expired": False}}


class Card(BaseModel):
    title: str
    amount: int = 0


async def _async_card(amount: int) -> Card:
    await asyncio.sleep(0)
    return Card(title="pay", amount=amount)


@pytest.mark.parametrize(
    "ui",
    [
        {"title": "pay", "amount": 7},
        Card(title="pay", amount=7),
        lambda amount: {"title": "pay", "amount": amount},
        lambda **given: Card(title="pay", **given),
        _async_card,
    ],
)
def test_a_card_is_a_dict_a_model_or_made_of_the_arguments(store: Store, ui: Any) -> None:
    tool = Tool(lambda amount: amount, name="pay", requires_approval=True, approval_ui=ui, approval_kind="card")
    output = started(tool, amount=7)
    (entry,) = output.metadata["pending_approvals"]
    assert (entry["ui"], entry["kind"]) == ({"title": "pay", "amount": 7}, "card")
    assert load_run(output.run_id).pending_approvals() == [entry]


@pytest.mark.parametrize("ui", [lambda: "text", lambda: 1 / 0, lambda: [1]])
def test_a_card_that_fails_is_a_policy_error(memory: None, ran: list[Any], ui: Any) -> None:
    output = Tool(lambda: ran.append(1), name="note", requires_approval=True, approval_ui=ui)().run()
    assert (reason(output), ran) == (("error", "approval_policy_error"), [])


# -- ends and counters -----------------------------------------------------------------------------------------------


def test_every_status_and_counter_has_its_name(store: Store, clock: Clock, ran: list[Any], pay: Tool) -> None:
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


def test_an_expired_decision_is_ignored_and_the_gate_asks_again(store: Store, clock: Clock, ran: list[Any]) -> None:
    pay = Tool(lambda amount: ran.append(amount), name="pay", requires_approval=True)
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


def test_a_decision_that_ends_before_the_call_starts_does_not_count(store: Store, clock: Clock, ran: list[Any]) -> None:
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


def test_a_request_that_expired_while_a_decision_came_asks_anew(store: Store, clock: Clock, ran: list[Any]) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True, expires=timedelta(minutes=5))
    paused = started(pay)
    clock.tick(minutes=5)
    output = pay(resume=yes(paused)).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])
    assert reason(pay(resume=yes(output)).run()) == ("success", None)


def test_a_granted_approval_that_expired_asks_anew(store: Store, clock: Clock, ran: list[Any]) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True, approval_expires="5m")
    paused = started(pay)
    sayso.Review().approve(ids(paused)[0], by="ada")
    clock.tick(minutes=5)
    output = pay(parent_id=paused.run_id).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])
    assert output.usage == {"approvals:expired": 1, "approvals:required": 1}


def test_counters_are_summed_up_through_nested_runs(store: Store, ran: list[Any], pay: Tool) -> None:
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


def by_amount(output: sayso.OutputEvent, *amounts: int) -> list[str]:
    """Return the ids of the calls that wait, by what they pay; calls of one turn are emitted as they come."""
    known = {entry["input"]["amount"]: entry["approval_id"] for entry in output.metadata["pending_approvals"]}
    return [known[amount] for amount in amounts]


# -- cancelling ------------------------------------------------------------------------------------------------------


def test_cancelling_ends_the_whole_run_and_runs_nothing_more(store: Store, ran: list[Any]) -> None:
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


def test_cancelling_elsewhere_ends_the_whole_run_as_well(store: Store, ran: list[Any]) -> None:
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


def test_a_question_can_be_cancelled(store: Store, ran: list[Any]) -> None:
    def handler() -> None:
        suspend({"question": "which?"})
        ran.append(1)

    tool = Tool(handler)
    output = tool(resume=answers(started(tool), Cancel("none"))).run()
    assert (reason(output), ran) == (("cancelled", "cancelled"), [])


# -- decisions -------------------------------------------------------------------------------------------------------


def test_unknown_ids_warn_and_change_nothing(store: Store, ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=1)
    with pytest.warns(IgnoredDecisionWarning, match="rq_nobody"):
        output = pay(parent_id=paused.run_id, resume={"rq_nobody": True}).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(paused), [])
    with pytest.warns(IgnoredDecisionWarning, match="rq_nobody"):
        assert reason(pay(amount=9, resume={"rq_nobody": True}).run()) == ("cancelled", "approval_required")
    assert ran == []


def test_a_decision_of_one_run_never_counts_in_another(store: Store, ran: list[Any], pay: Tool) -> None:
    one, two = started(pay, amount=1), started(pay, amount=1)
    assert ids(one) != ids(two)
    with pytest.warns(IgnoredDecisionWarning, match="another run"):
        output = pay(parent_id=two.run_id, resume=yes(one)).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(two), [])
    assert sayso.Review().get(ids(one)[0]).state == "pending"


def test_an_id_that_was_never_asked_cannot_be_decided_ahead(store: Store, ran: list[Any], pay: Tool) -> None:
    other = started(Tool(lambda: None, name="other", requires_approval=True))
    output = pay(amount=1, resume=yes(other)).run()
    assert (output.status.code, output.status.reason) == ("error", "run_changed")
    assert sayso.Review().get(ids(other)[0]).state == "pending"
    assert ran == []


def test_a_run_that_the_wrong_code_looked_at_waits_as_before(store: Store, ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=1)
    other = Tool(lambda: None, name="other")
    assert other(parent_id=paused.run_id).run().status.reason == "run_changed"
    assert load_run(paused.run_id).record.state == "paused"
    assert reason(pay(resume=yes(paused)).run()) == ("success", None)


@pytest.mark.parametrize("given", ["yes", "no", None, 1, 0, [], {"approved": "yes"}, {"approve": True}, {}])
def test_what_is_no_decision_decides_nothing(store: Store, ran: list[Any], pay: Tool, given: Any) -> None:
    paused = started(pay, amount=1)
    with pytest.warns(IgnoredDecisionWarning):
        output = pay(resume=dict.fromkeys(ids(paused), given)).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(paused), [])
    assert output.metadata["pending_approvals"][0]["metadata"]["approval"]["refused"]


def test_an_edit_runs_with_the_changed_arguments(store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 250})])
    paused = started(agent, prompt="go")
    decision = ApprovalResolution(approved=True, override_input={"amount": 7}, metadata={"ticket": "T-1"})
    output = agent(resume=dict.fromkeys(ids(paused), decision)).run()
    assert ran == [7]
    assert output.output.startswith("paid 7")
    assert "amount: 250 -> 7" in output.output
    (span,) = [span for span in load_run(output.run_id).spans if span.name == "pay"]
    assert span.input == span.metadata["approval"]["input"] == {"amount": 7}
    resolution = span.metadata["approval"]["resolution"]
    assert (resolution["override_input"], resolution["metadata"]) == ({"amount": 7}, {"ticket": "T-1"})


@pytest.mark.parametrize("override", [{"amount": "much"}, {"amont": 7}])
def test_a_bad_edit_decides_nothing(store: Store, ran: list[Any], pay: Tool, override: dict[str, Any]) -> None:
    paused = started(pay, amount=1)
    with pytest.warns(IgnoredDecisionWarning):
        output = pay(resume={ids(paused)[0]: {"approved": True, "override_input": override}}).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(paused), [])


def test_an_edit_of_what_was_approved_before_is_not_swallowed(store: Store, ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=250)
    sayso.Review().approve(ids(paused)[0], by="ada")
    with pytest.warns(IgnoredDecisionWarning, match="approved before"):
        pay(resume={ids(paused)[0]: {"approved": True, "override_input": {"amount": 7}}}).run()
    assert ran == [250]


def test_a_decision_taken_elsewhere_needs_no_resume(store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1}), ("pay", {"amount": 2})])
    paused = started(agent, prompt="go")
    first, second = by_amount(paused, 1, 2)
    review = sayso.Review(reviewer="ada")
    review.approve(first, changes={"amount": 5})
    review.feedback(second, "only on Mondays")
    output = agent(parent_id=paused.run_id).run()
    assert (reason(output), ran) == (("success", None), [5])
    assert "only on Mondays" in output.output
    assert "call it again only if changed" in output.output


def test_a_denial_tells_the_model_not_to_repeat_the_call(store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    output = agent(resume={ids(paused)[0]: ApprovalResolution(approved=False, reason="too much")}).run()
    assert (reason(output), ran) == (("success", None), [])
    assert "too much" in output.output
    assert "do not make the same call again" in output.output


def test_once_spent_the_same_call_asks_again(store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1})], [("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    second = agent(resume=yes(paused)).run()
    assert (reason(second), ran) == (("cancelled", "approval_required"), [1])
    assert ids(second) != ids(paused)


def test_asking_again_finds_the_same_open_request(store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1}), ("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    assert len(set(ids(paused))) == 2  # two calls of one turn wait twice
    for _ in range(3):
        assert set(ids(agent(parent_id=paused.run_id).run())) == set(ids(paused))
    assert len(sayso.Review().list().requests) == 2


def test_a_chosen_run_id_finds_the_run_again(store: Store, ran: list[Any], pay: Tool) -> None:
    paused = pay(amount=1, run_id="order-4721").run()
    assert (paused.run_id, ids(pay(amount=1, run_id="order-4721").run())) == ("order-4721", ids(paused))


# -- default parameters ----------------------------------------------------------------------------------------------


def test_default_params_are_made_once_for_a_call(store: Store, ran: list[Any]) -> None:
    made = iter(range(100))
    tool = Tool(
        lambda amount, key: ran.append((amount, key)), name="pay", requires_approval=True,
        default_params={"key": lambda: next(made)},
    )  # fmt: skip
    agent = agent_of([tool], [("pay", {"amount": 1}), ("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    again = agent(parent_id=paused.run_id).run()
    assert sorted(entry["input"]["key"] for entry in again.metadata["pending_approvals"]) == [0, 1]
    agent(resume=yes(paused)).run()
    assert sorted(ran) == [(1, 0), (1, 1)]
    assert next(made) == 2


def test_default_params_of_a_handler_that_asks_are_made_once(store: Store, ran: list[Any]) -> None:
    made = iter(range(100))

    def pay(key: int) -> str:
        ran.append(key)
        return suspend({"question": "which?"})

    tool = Tool(pay, default_params={"key": lambda: next(made)})
    flow = Workflow(name="flow").step(tool)
    paused = started(flow)
    output = flow(resume=answers(paused, "blue")).run()
    assert (output.output, ran) == ({"pay": "blue"}, [0, 0])


def test_plain_default_params_fill_in_what_is_not_given(memory: None) -> None:
    tool = Tool(lambda a, b=0: [a, b], name="pair", default_params={"a": 1, "b": lambda: 2})
    assert tool().run().output == [1, 2]
    assert tool(a=5, b=6).run().output == [5, 6]


def test_a_model_is_not_asked_for_what_has_a_default(memory: None) -> None:
    tool = Tool(lambda a, b, key: None, name="t", default_params={"b": 1, "key": lambda: "k"})
    assert set(tool.schema["properties"]) == {"a", "b"}
    assert tool.schema["required"] == ["a"]
    assert started(Tool(tool.handler, name="t", requires_approval=True), a=1, b=2, key=3).metadata


def test_default_params_that_fail_do_not_run_the_handler(memory: None, ran: list[Any]) -> None:
    tool = Tool(lambda key: ran.append(key), name="pay", default_params={"key": lambda: 1 / 0})
    output = tool().run()
    assert (output.status.code, ran) == ("error", [])


# -- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gated", [False, True])
def test_a_handler_asks_and_goes_on_with_the_answer(store: Store, ran: list[Any], gated: bool) -> None:
    def plan(city: str) -> str:
        day = suspend({"question": "Which day?"}, kind="day", response_schema={"type": "integer", "minimum": 1})
        sure = suspend({"question": "Sure?"}, response_schema={"type": "boolean"})
        ran.append(city)
        return f"{city} {day} {sure}"

    tool = Tool(plan, requires_approval=gated)
    output = started(tool, city="Ulm")
    if gated:
        output = tool(resume=yes(output)).run()
    assert (reason(output), output.usage) == (("cancelled", "input_required"), {"suspends:required": 1})
    (entry,) = output.metadata["pending_interactions"]
    assert (entry["kind"], entry["payload"]) == ("day", {"question": "Which day?"})
    assert load_run(output.run_id).pending_interactions() == [entry]
    with pytest.warns(IgnoredDecisionWarning):
        refused = tool(resume=answers(output, 0)).run()
    assert refused.metadata["pending_interactions"][0]["metadata"]["interaction"]["refused"]
    output = tool(resume=answers(output, 3)).run()
    assert output.metadata["pending_interactions"][0]["payload"] == {"question": "Sure?"}
    sayso.Review().answer(questions(output)[0], True)
    output = tool(parent_id=output.run_id).run()
    assert (reason(output), output.output, ran) == (("success", None), "Ulm 3 True", ["Ulm"])
    if gated:
        assert output.usage == {"approvals:approved": 1}


def test_ready_tools_ask_the_user(store: Store) -> None:
    agent = agent_of(
        [ask_user, ask_user_multi, confirm],
        [
            ("ask_user", {"question": "Colour?", "options": ["red", "blue"]}),
            ("ask_user_multi", {"question": "Sizes?", "options": ["s", "m"]}),
            ("confirm", {"action": "Order it?"}),
        ],
    )
    paused = started(agent, prompt="go")
    assert paused.usage["suspends:required"] == 3
    known = {entry["kind"]: entry["interaction_id"] for entry in paused.metadata["pending_interactions"]}
    one, two, three = known["ask_user"], known["ask_user_multi"], known["confirm"]
    with pytest.warns(IgnoredDecisionWarning):
        refused = agent(resume={one: "green"}).run()
    assert set(questions(refused)) == {one, two, three}
    output = agent(resume={one: "blue", two: ["s", "m"], three: False}).run()
    assert output.output == 'blue | ["s", "m"] | false'


def test_a_payload_that_is_no_json_is_an_error_of_the_handler(memory: None) -> None:
    output = Tool(lambda: suspend({"question": "?", "at": object()}), name="asks")().run()
    assert output.status.code == "error"
    assert output.error is not None


def test_questions_outside_of_a_run_are_refused() -> None:
    with pytest.raises(RuntimeError, match="in a run"):
        suspend({"question": "?"})


def test_an_expired_question_is_asked_anew(store: Store, clock: Clock) -> None:
    tool = Tool(lambda: suspend({"question": "?"}), name="asks")
    paused = started(tool)
    clock.tick(hours=24)
    again = tool(parent_id=paused.run_id).run()
    assert reason(again) == ("cancelled", "input_required")
    assert questions(again) != questions(paused)
    assert again.metadata["pending_interactions"][0]["metadata"]["interaction"]["expired"] is True
    assert tool(resume=answers(again, "yes")).run().output == "yes"


@pytest.mark.parametrize("gated", [False, True])
def test_a_gated_function_inside_of_a_handler_waits_for_its_own(store: Store, ran: list[Any], gated: bool) -> None:
    @sayso.confirm_first
    def delete(path: str) -> str:
        ran.append(path)
        return f"deleted {path}"

    def tidy(paths: list[str]) -> str:
        return ", ".join(delete(path) for path in paths)

    agent = agent_of([Tool(tidy, requires_approval=gated)], [("tidy", {"paths": ["a", "b"]})])
    output = started(agent, prompt="go")
    for _ in range(3 if gated else 2):
        assert reason(output) == ("cancelled", "approval_required")
        assert len(ids(output)) == 1
        output = agent(resume=yes(output)).run()
    assert (output.output, ran) == ("deleted a, deleted b", ["a", "b"])


def test_equal_gated_calls_inside_of_a_handler_wait_one_by_one(store: Store, ran: list[Any]) -> None:
    @sayso.confirm_first
    async def delete(path: str) -> None:
        ran.append(path)

    async def tidy() -> str:
        await delete("a")
        await delete("a")
        return suspend({"question": "done?"})

    tool = Tool(tidy)
    output = started(tool)
    for n in (1, 2):
        output = tool(resume=yes(output)).run()
        assert ran == ["a"] * n
    assert tool(resume=answers(output, "yes")).run().output == "yes"
    assert ran == ["a", "a"]


def test_a_no_to_a_function_inside_is_a_no_to_the_handlers_caller(store: Store, ran: list[Any]) -> None:
    @sayso.confirm_first
    def delete(path: str) -> None:
        ran.append(path)

    tool = Tool(lambda: delete("a"), name="tidy")
    output = tool(resume=dict.fromkeys(ids(started(tool)), False)).run()
    assert (reason(output), ran) == (("cancelled", "approval_denied"), [])


# -- kinds of runnables ----------------------------------------------------------------------------------------------


def test_an_agent_and_a_workflow_can_be_gated_themselves(store: Store, ran: list[Any], pay: Tool) -> None:
    inner = agent_of([pay], [("pay", {"amount": 1})], name="inner", requires_approval=lambda prompt: "money" in prompt)
    flow = Workflow(name="flow", requires_approval=lambda place, **_: place == "prod").step(inner)
    assert reason(flow(place="test", prompt="hello").run()) == ("cancelled", "approval_required")
    paused = started(flow, place="prod", prompt="money")
    (entry,) = paused.metadata["pending_approvals"]
    assert (entry["runnable_path"], entry["runnable_type"]) == ("flow", "workflow")
    output = flow(resume=yes(paused)).run()
    assert output.metadata["pending_approvals"][0]["runnable_path"] == "flow.inner"
    output = flow(resume=yes(output)).run()
    assert output.metadata["pending_approvals"][0]["runnable_path"] == "flow.inner.pay"
    output = flow(resume=yes(output)).run()
    assert (reason(output), output.output, ran) == (("success", None), {"inner": "paid 1"}, [1])
    assert output.usage["approvals:approved"] == 3


def test_a_gated_workflow_may_be_edited(store: Store, ran: list[Any]) -> None:
    flow = Workflow(name="flow", requires_approval=True).step(lambda place: ran.append(place), name="go")
    paused = started(flow, place="prod")
    assert paused.metadata["pending_approvals"][0]["input"] == {"inputs": {"place": "prod"}}
    flow(resume={ids(paused)[0]: {"approved": True, "override_input": {"inputs": {"place": "test"}}}}).run()
    assert ran == ["test"]


def test_rules_of_a_handler_that_takes_anything_get_its_arguments_by_name(memory: None, ran: list[Any]) -> None:
    def note(**given: Any) -> None:
        ran.append(given)

    tool = Tool(
        note, requires_approval=lambda env: env == "production", approval_prompt=lambda env, **_: f"to {env}?",
        approval_ui=lambda env: {"env": env},
    )  # fmt: skip
    assert reason(tool(env="staging").run()) == ("success", None)
    (entry,) = started(tool, env="production").metadata["pending_approvals"]
    assert (entry["prompt"], entry["ui"]) == ("to production?", {"env": "production"})


def test_a_denied_agent_tells_the_outer_model(store: Store, ran: list[Any], pay: Tool) -> None:
    inner = agent_of([pay], [("pay", {"amount": 1})], name="inner", requires_approval=True)
    outer = agent_of([inner], [("inner", {"prompt": "go"})], name="outer")
    paused = started(outer, prompt="go")
    output = outer(resume=dict.fromkeys(ids(paused), False)).run()
    assert (reason(output), ran) == (("success", None), [])
    assert "inner was not run" in output.output


def test_tool_call_ids_of_the_model_are_told(store: Store, pay: Tool) -> None:
    agent = Agent(
        model=ScriptedModel([[{"name": "pay", "arguments": {"amount": 1}, "id": "call_x"}], "done"]), tools=[pay]
    )
    paused = started(agent, prompt="go")
    assert paused.metadata["pending_approvals"][0]["tool_call_id"] == "call_x"
    output = agent(resume=yes(paused)).run()
    assert [span.metadata["tool_call_id"] for span in load_run(output.run_id).spans if span.name == "pay"] == ["call_x"]


def test_free_calls_of_a_turn_run_at_once_and_only_once(store: Store, ran: list[Any], pay: Tool) -> None:
    look = Tool(lambda what: ran.append(what), name="look")
    agent = agent_of([look, pay], [("pay", {"amount": 1}), ("look", {"what": "a"}), ("look", {"what": "b"})])
    paused = started(agent, prompt="go")
    assert sorted(ran) == ["a", "b"]
    agent(resume=yes(paused)).run()
    assert len(ran) == 3
    assert ran[2] == 1


def test_sync_handlers_of_one_turn_run_side_by_side(memory: None) -> None:
    meet = threading.Barrier(3, timeout=10)
    tool = Tool(lambda n: meet.wait() >= 0, name="meet")
    output = agent_of([tool], [("meet", {"n": n}) for n in range(3)])(prompt="go").run()
    assert output.output == "true | true | true"


@awaited
async def test_a_sync_handler_does_not_block_the_loop() -> None:
    sayso.configure(store="memory:")
    go = threading.Event()
    waiting = asyncio.ensure_future(Tool(lambda: go.wait(10), name="waits")().collect())
    while not waiting.done():
        await asyncio.sleep(0.01)
        go.set()
    assert waiting.result().output is True


def test_a_handler_that_raises_stop_iteration_fails(store: Store) -> None:
    tool = Tool(lambda: next(iter(())), name="empty")
    assert tool().run().error == {"type": "StopIteration", "message": ""}
    gated = Tool(lambda: next(iter(())), name="empty", requires_approval=True)
    output = gated(resume=yes(started(gated))).run()
    assert output.error == {"type": "StopIteration", "message": ""}


def test_a_failed_call_is_spent_and_not_tried_again(store: Store, ran: list[Any]) -> None:
    def fails() -> None:
        ran.append(1)
        raise ValueError("no such account")

    agent = agent_of([Tool(fails, requires_approval=True)], [("fails", {})])
    paused = started(agent, prompt="go")
    output = agent(resume=yes(paused)).run()
    assert output.output == "fails failed: ValueError: no such account"
    agent(parent_id=paused.run_id).run()
    assert ran == [1]


def test_max_iters_ends_the_run(memory: None, ran: list[Any]) -> None:
    look = Tool(lambda: ran.append(1), name="look")
    output = Agent(model=ScriptedModel([[("look", {})]] * 5), tools=[look], max_iters=3)(prompt="go").run()
    assert output.error is not None
    assert (output.status.code, output.error["type"], len(ran)) == ("error", "MaxItersError", 3)


@pytest.mark.parametrize("fault", [ModelError("m", "is busy"), ConnectionError("no line")])
def test_a_run_goes_on_after_its_model_was_out_of_reach(
    store: Store, ran: list[Any], pay: Tool, fault: Exception
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


def test_a_tool_called_directly_gives_the_value_or_raises(store: Store, ran: list[Any], pay: Tool) -> None:
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

    gated = Tool(lambda amount: amount, name="pay", requires_approval=True, approval_ui={"a": [1, None, 2.5]})
    agent = agent_of([gated, handler], {"text": "one moment", "calls": [("pay", {"amount": 1}), ("handler", {"n": 2})]})
    events = [event async for event in agent(prompt="go")]
    assert {event.type for event in events} == {"START", "DELTA", "APPROVAL", "INTERACTION", "OUTPUT"}
    for event in events:
        text = event.model_dump_json()
        assert parse_event(text) == parse_event(json.loads(text)) == event
    assert "".join(event.text for event in events if event.type == "DELTA") == "one moment"


def test_a_run_that_waits_for_nobody_writes_nothing(store: Store) -> None:
    output = agent_of([lambda_tool()], [("double", {"n": 2})])(prompt="go").run()
    assert output.output == "4"
    with pytest.raises(errors.RunNotFoundError):
        load_run(output.run_id)


def lambda_tool() -> Tool:
    return Tool(lambda n: n * 2, name="double")


def test_nothing_warns_in_the_ordinary_course(store: Store, pay: Tool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reason(pay(resume=yes(started(pay, amount=1))).run()) == ("success", None)


def test_values_between_steps_survive_the_pause(store: Store, ran: list[Any], pay: Tool) -> None:
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


def test_arguments_that_do_not_fit_run_nothing(store: Store, ran: list[Any], pay: Tool) -> None:
    output = pay(amount="much").run()
    assert (output.status.code, ran) == ("error", [])
    output = agent_of([pay], [("pay", {"amount": "much"}), ("nothing", {}), ("pay", {})])(prompt="go").run()
    assert (output.status.code, ran) == ("success", [])
    assert output.output.count("pay failed: ValidationError") == 2
    assert "There is no tool 'nothing'" in output.output
