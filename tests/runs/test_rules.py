"""Rules, prompts and cards: what holds a call, and what a person is shown of it.

Handlers note in a list what they did. The one invariant: whatever fails or answers anything else runs nothing.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import ApprovalPolicyDecision, Tool, policy
from sayso.errors import GrantRefusedError
from sayso.stores.base import Store
from tests.support.running import agent_of, ids, reason, started, yes


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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"requires_approval": lambda amount: amount > 100},
        {"requires_approval": lambda: policy.allow(budget="count() <= 9 per 1h")},
        {"requires_approval": True},
    ],
)
def test_always_waits_for_a_person_in_a_run_and_in_an_agent(memory: None, ran: list[Any], options: Any) -> None:
    def pay(amount: int) -> int:
        ran.append(amount)
        return amount

    tool = Tool(pay, always=True, **options)
    paused = tool(amount=5).run()
    assert reason(paused) == ("cancelled", "approval_required")
    request = sayso.Review().list().requests[0]
    assert request.always
    with pytest.raises(GrantRefusedError, match="always=True"):
        sayso.Review(by="ada").grant(request.id, count=5, lasts="1h")
    assert reason(tool(parent_id=paused.run_id, resume=yes(paused)).run()) == ("success", None)
    assert ran == [5]
    output = started(agent_of([tool], ("pay", {"amount": 6})), prompt="go")
    assert reason(output) == ("cancelled", "approval_required")
    with pytest.raises(sayso.ConfirmationRequired):
        tool.call(amount=7)
    assert ran == [5]


def test_no_grant_stands_in_for_a_tool_that_says_always_later(memory: None, ran: list[Any]) -> None:
    def pay(amount: int) -> int:
        ran.append(amount)
        return amount

    Tool(pay, requires_approval=True)(amount=5).run()
    sayso.Review(by="ada").grant(sayso.Review().list().requests[0].id, count=5, lasts="1h")
    assert reason(Tool(pay, requires_approval=True)(amount=4).run()) == ("success", None)
    assert reason(Tool(pay, always=True)(amount=4).run()) == ("cancelled", "approval_required")
    assert ran == [4]


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


def test_an_ended_run_says_the_same_again(each_store: Store, ran: list[Any], pay: Tool) -> None:
    faults = [ZeroDivisionError()]

    def rule() -> bool:
        if faults:
            raise faults.pop()
        return False

    broken = Tool(lambda: ran.append("broken"), name="broken", requires_approval=rule)
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
        lambda amount: amount, name="pay", requires_approval=rule, approval_prompt="other",
        approval_description="other",
    )  # fmt: skip
    (entry,) = started(tool, amount=7).metadata["pending_approvals"]
    assert (entry["prompt"], entry["description"], entry["kind"], entry["ui"]) == ("7!", "d", "k", {"a": 7})
    assert entry["metadata"] == {"team": "ops", "approval": {"expired": False}}


@pytest.mark.parametrize("by_file", [True, False], ids=["policy file", "rule"])
def test_a_nested_call_that_a_rule_allows_is_not_made_again_where_its_handler_is_resumed(
    memory: None, place: Path, ran: list[Any], by_file: bool
) -> None:
    rules = '[[rules]]\ntool = "*small"\nverdict = "allow"\n[[rules]]\ntool = "*large"\nverdict = "hold"\n'
    if by_file:
        (place / "sayso.toml").write_text(rules, encoding="utf-8")

    def small(amount: int) -> int:
        ran.append("small")
        return amount

    def large(amount: int) -> int:
        ran.append("large")
        return amount

    allowed = sayso.gate(small, wait="raise") if by_file else sayso.gate(small, wait="raise", when=lambda: False)
    held = sayso.gate(large, wait="raise")

    def pay(amount: int) -> int:
        return allowed(amount) + allowed(amount) + held(amount)

    tool = Tool(pay)
    first = started(tool, amount=5)
    assert ran == ["small", "small"]
    (request,) = sayso.Review().list(state="pending")
    sayso.Review().approve(request.id, by="ada")
    again = tool(parent_id=first.run_id).run()
    assert (again.status.code, again.output) == ("success", 15)
    assert ran == ["small", "small", "large"]


@pytest.mark.parametrize("order", ["A-1", "B-2"], ids=["the same effect", "another effect"])
def test_an_edit_of_a_tool_whose_rule_names_the_effect_runs_or_goes_back(
    memory: None, ran: list[Any], order: str
) -> None:
    def refund(order: str, amount: int) -> int:
        ran.append((order, amount))
        return amount

    tool = Tool(refund, requires_approval=lambda order: policy.hold(effect=f"refund:{order}"))
    paused = started(tool, order="A-1", amount=200)
    (request_id,) = ids(paused)
    sayso.Review().approve(request_id, by="ada", changes={"order": order, "amount": 3})
    output = tool(parent_id=paused.run_id).run()
    if order == "A-1":
        assert (output.output, ran) == (3, [("A-1", 3)])
    else:
        assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), [request_id], [])
