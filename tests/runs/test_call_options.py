"""What `key=`, `effect=`, `suspends=` and `on_reject=` of a tool mean in a run, which raises nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sayso
from sayso import Tool, Workflow
from sayso.model.lifecycle import Outcome
from sayso.stores.base import Store
from tests.support.running import agent_of, ids, reason, started, yes


def pay(amount: int, to: str = "alice") -> str:
    return f"paid {amount} to {to}"


def gated(ran: list[Any], **options: Any) -> Tool:
    def pay(amount: int, to: str = "alice") -> str:
        ran.append(amount)
        return f"paid {amount} to {to}"

    return Tool(pay, requires_approval=True, **options)


def test_two_steps_with_one_key_are_one_call(each_store: Store, ran: list[Any]) -> None:
    tool = gated(ran, key="pay:{to}")
    flow = (
        Workflow(name="flow")
        .step(tool, name="first", amount=5)
        .step(tool, name="again", amount=5, depends_on=["first"])
    )
    paused = started(flow)
    output = flow(parent_id=paused.run_id, resume=yes(paused)).run()
    assert (output.output, ran) == ({"first": "paid 5 to alice", "again": "paid 5 to alice"}, [5])
    (request,) = sayso.Review(each_store).list(state="all").requests
    assert request.key == "pay:alice"


def slow_payment(ran: list[Any]) -> Tool:
    """Return a tool with a key, whose call lasts until an equal one has met it."""

    async def pay(amount: int, to: str = "alice") -> str:
        ran.append(amount)
        for _ in range(50):
            await asyncio.sleep(0)
        return f"paid {amount} to {to}"

    return Tool(pay, requires_approval=True, key="pay:{to}")


def test_two_calls_of_one_turn_with_one_key_are_one_call(memory: Store, ran: list[Any]) -> None:
    tool = slow_payment(ran)
    agent = agent_of([tool], [("pay", {"amount": 5}), ("pay", {"amount": 5})])
    paused = started(agent, prompt="go")
    output = agent(parent_id=paused.run_id, resume=yes(paused)).run()
    assert (output.output, ran) == ("paid 5 to alice | paid 5 to alice", [5])


def test_two_steps_with_one_key_that_run_at_once_are_one_call(memory: Store, ran: list[Any]) -> None:
    tool = slow_payment(ran)
    flow = Workflow(name="flow").step(tool, name="first", amount=5).step(tool, name="again", amount=5)
    paused = started(flow)
    output = flow(parent_id=paused.run_id, resume=yes(paused)).run()
    assert (output.output, ran) == ({"first": "paid 5 to alice", "again": "paid 5 to alice"}, [5])


def test_steps_whose_key_is_started_elsewhere_stop_the_run(memory: Store, ran: list[Any]) -> None:
    tool = gated(ran, key="pay:{to}")
    flow = Workflow(name="flow").step(tool, name="first", amount=5).step(tool, name="again", amount=5)
    paused = started(flow)
    (request,) = sayso.Review(memory).list().requests
    sayso.Review(memory).approve(request.id, by="ada")
    memory.start(request.id, "t")
    output = flow(parent_id=paused.run_id).run()
    assert (output.status.reason, ran) == ("approval_already_claimed", [])


def test_a_step_that_met_the_key_of_another_one_is_not_made_again_after_a_pause(
    each_store: Store, ran: list[Any]
) -> None:
    def ship(amount: int) -> str:
        return f"shipped {amount}"

    tool, last = gated(ran, key="pay:{to}"), Tool(ship, requires_approval=True)
    flow = Workflow(name="flow").step(tool, name="a", amount=5).step(tool, name="b", amount=5, depends_on=["a"])
    flow = flow.step(last, name="c", amount=5, depends_on=["b"])
    first = started(flow)
    second = flow(parent_id=first.run_id, resume=yes(first)).run()
    assert reason(second) == ("cancelled", "approval_required")
    output = flow(parent_id=first.run_id, resume=yes(second)).run()
    assert output.output == {"a": "paid 5 to alice", "b": "paid 5 to alice", "c": "shipped 5"}
    assert ran == [5]


def test_a_key_that_was_used_for_another_call_fails_the_step(each_store: Store, ran: list[Any]) -> None:
    tool = gated(ran, key="{to}")
    flow = Workflow(name="flow").step(tool, name="a", amount=5).step(tool, name="b", amount=6, depends_on=["a"])
    paused = started(flow)
    output = flow(parent_id=paused.run_id, resume=yes(paused)).run()
    assert (output.status.code, ran) == ("error", [5])
    assert "KeyReusedError" in (output.status.message or "")


def test_an_effect_is_taken_across_runs(each_store: Store, ran: list[Any]) -> None:
    tool = gated(ran, effect="pay:{to}")
    first, second = started(tool, amount=5), started(tool, amount=5)
    assert tool(parent_id=first.run_id, resume=yes(first)).run().output == "paid 5 to alice"
    output = tool(parent_id=second.run_id, resume=yes(second)).run()
    assert (output.status.code, ran) == ("error", [5])
    assert "pay:alice" in (output.status.message or "")


def test_a_model_that_repeats_an_effect_is_told_and_its_run_goes_on(each_store: Store, ran: list[Any]) -> None:
    agent = agent_of([gated(ran, effect="pay:{to}")], ("pay", {"amount": 5}), ("pay", {"amount": 5}))
    first = started(agent, prompt="go")
    second = agent(parent_id=first.run_id, resume=yes(first)).run()
    assert reason(second) == ("cancelled", "approval_required")
    output = agent(parent_id=first.run_id, resume=yes(second)).run()
    (done,), (refused,) = ids(first), ids(second)
    assert (output.status.code, ran) == ("success", [5])
    assert f"pay was not run: its effect 'pay:alice' is taken by {done}, which is done. This is final" in output.output
    assert each_store.get(refused).state == "cancelled"


def test_a_call_whose_effect_may_yet_fail_stops_the_run_until_that_is_known(each_store: Store, ran: list[Any]) -> None:
    tool = gated(ran, effect="pay:{to}")
    first, second = started(tool, amount=5), started(tool, amount=6)
    review = sayso.Review(each_store)
    for (request_id,) in map(ids, (first, second)):
        review.approve(request_id, by="ada")
    (met,) = ids(first)
    each_store.start(met, "t")
    for state in ("running", "unknown"):
        output = tool(parent_id=second.run_id).run()
        assert (output.error or {})["type"] == "EffectTakenError"
        assert f"{met}, which is {state}" in (output.status.message or "")
        if state == "running":
            each_store.finish(met, "t", Outcome("unknown", error="lost"))
    review.resolve(met, happened=False, by="ada", comment="the bank has nothing")
    assert tool(parent_id=second.run_id).run().output == "paid 6 to alice"
    assert ran == [6]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_handler_that_stops_for_its_framework_pauses_the_run(
    each_store: Store, ran: list[Any], idempotent: bool
) -> None:
    class Interrupt(Exception):
        pass

    def pay(amount: int) -> str:
        ran.append(amount)
        if len(ran) == 1:
            raise Interrupt
        return "paid"

    tool = Tool(pay, requires_approval=True, suspends=Interrupt, idempotent=idempotent)
    paused = started(tool, amount=5)
    stopped = tool(parent_id=paused.run_id, resume=yes(paused)).run()
    assert reason(stopped) == ("cancelled", "suspended")
    assert sayso.Review(each_store).get(ids(paused)[0]).state == "approved"
    output = tool(parent_id=paused.run_id).run()
    assert (output.output, ran) == ("paid", [5, 5])


@pytest.mark.parametrize("is_denied_by_rule", [False, True])
def test_a_no_gives_the_value_that_the_author_wants(each_store: Store, ran: list[Any], is_denied_by_rule: bool) -> None:
    rule: Any = (lambda **_: sayso.deny("never")) if is_denied_by_rule else True

    def handler(amount: int) -> str:
        ran.append(amount)
        return "paid"

    tool = Tool(handler, name="pay", requires_approval=rule, on_reject=lambda no: f"not paid: {no.message}")
    output = tool(amount=5).run()
    if not is_denied_by_rule:
        refusal = sayso.ApprovalResolution(approved=False, reason="never")
        output = tool(parent_id=output.run_id, resume=dict.fromkeys(ids(output), refusal)).run()
    assert (output.status.code, ran) == ("success", [])
    assert output.output.startswith("not paid: ")
    assert "never" in output.output


def test_a_model_reads_what_on_reject_returns(each_store: Store, ran: list[Any]) -> None:
    tool = gated(ran, on_reject=lambda _: "ask finance")
    agent = agent_of([tool], ("pay", {"amount": 5}), name="clerk")
    paused = started(agent, prompt="pay")
    output = agent(parent_id=paused.run_id, resume=dict.fromkeys(ids(paused), False)).run()
    assert (output.status.code, ran) == ("success", [])
    told = next(span for span in sayso.load_run(paused.run_id).spans if span.path == "clerk.pay")
    assert told.output == "ask finance"


def test_an_error_of_on_reject_fails_the_call_and_not_the_run(each_store: Store, ran: list[Any]) -> None:
    tool = gated(ran, on_reject=lambda _: 1 / 0)
    paused = started(tool, amount=5)
    output = tool(parent_id=paused.run_id, resume=dict.fromkeys(ids(paused), False)).run()
    assert (output.status.code, ran) == ("error", [])
    assert "ZeroDivisionError" in (output.status.message or "")


def test_on_reject_is_asked_once_for_a_no(each_store: Store, ran: list[Any]) -> None:
    asked = list[str]()

    def ask_finance(no: sayso.ConfirmationRejected) -> str:
        asked.append(no.message)
        return "ask finance"

    refused, last = gated(ran, name="refused", on_reject=ask_finance), gated(ran, name="last")
    flow = Workflow(name="flow").step(refused, amount=5).step(last, amount=6, depends_on=["refused"])
    first = started(flow)
    second = flow(parent_id=first.run_id, resume=dict.fromkeys(ids(first), False)).run()
    output = flow(parent_id=first.run_id, resume=yes(second)).run()
    assert output.output == {"refused": "ask finance", "last": "paid 6 to alice"}
    assert (ran, len(asked)) == ([6], 1)
