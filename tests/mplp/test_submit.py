"""What is submitted for approval waits like any other request; what cannot be approved later is refused at once."""

from __future__ import annotations

import pytest

import sayso
from sayso import errors
from sayso.effects import drive
from sayso.mplp import (
    Confirm,
    ConfirmRefusedError,
    Decision,
    Governance,
    Meta,
    MismatchError,
    NotConformantError,
    Plan,
    create_confirm,
    document_of,
    flow,
    process_decision,
    read_confirm,
    submit_plan_for_approval,
)
from sayso.mplp.document import time_text
from sayso.mplp.schema import id_of
from tests.conftest import Clock
from tests.support.submitting import plan_of_three, submitted, yes

pytestmark = pytest.mark.usefixtures("memory")


def test_a_submitted_plan_waits_like_any_other_request() -> None:
    plan, confirm, request = submitted()
    assert (plan.status, confirm.status, request.state) == ("proposed", "pending", "pending")
    assert request.kind == "call"
    assert request.prompt == "Requesting approval for plan: Move the data"
    shown = request.call.arguments
    assert (shown["title"], [step["description"] for step in shown["steps"]]) == (
        "Move the data", ["step 0", "step 1", "step 2"],
    )  # fmt: skip
    assert (confirm.target_type, confirm.target_id, confirm.requested_by_role) == ("plan", plan.plan_id, "agent")


def test_submitting_the_same_plan_again_finds_what_waits() -> None:
    plan, confirm, _ = submitted()
    again = submit_plan_for_approval(plan_of_three(), "agent")
    assert again == confirm
    assert submit_plan_for_approval(plan, "agent") == confirm
    assert len(sayso.Review().list(state="all").requests) == 1


def test_a_plan_that_was_changed_while_it_waits_is_refused() -> None:
    _, confirm, request = submitted()
    with pytest.raises(ConfirmRefusedError, match="was changed while its earlier version waits"):
        submit_plan_for_approval(plan_of_three(title="Another"), "agent")
    assert sayso.Review().list(state="all").requests == (request,)
    assert read_confirm(confirm.confirm_id).status == "pending"


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (plan_of_three(plan_id="plan-123"), "/plan_id: 'plan-123'"),
        (plan_of_three(title=""), "/title: '' is shorter than 1 character"),
        (plan_of_three(steps=[]), "/steps: a list has less than 1 item"),
    ],
)
def test_a_plan_that_does_not_conform_is_refused_by_the_name_of_the_field(plan: Plan, problem: str) -> None:
    with pytest.raises(NotConformantError, match=problem):
        submit_plan_for_approval(plan, "agent")
    assert sayso.Review().list(state="all").requests == ()


@pytest.mark.parametrize(("role", "reason"), [("half \ud800", "why"), ("agent", "half \ud800")])
def test_words_that_cannot_leave_as_json_are_not_submitted(role: str, reason: str) -> None:
    with pytest.raises(NotConformantError, match="has a lone surrogate"):
        submit_plan_for_approval(plan_of_three(), role, reason=reason)
    assert sayso.Review().list(state="all").requests == ()


def test_a_confirm_that_is_brought_along_keeps_its_id_and_its_fields() -> None:
    plan = plan_of_three()
    brought = create_confirm("plan", plan.plan_id, "agent", "High risk")
    brought.meta = Meta(tags=["x"])
    brought.governance = Governance(lifecycle_phase="review")
    before = brought.export()
    confirm = submit_plan_for_approval(plan, "agent", confirm=brought)
    assert confirm is brought
    (request,) = sayso.Review().list().requests
    before["requested_at"] = time_text(request.created_at)  # what it says itself, nobody here can know
    assert {name: confirm.export()[name] for name in before} == before
    assert document_of(sayso.Review().store, brought.confirm_id) == confirm.export()


def test_what_a_document_says_was_decided_is_not_brought_along() -> None:
    plan = plan_of_three()
    decision = Decision(status="approved", decided_by_role="cfo", reason="mine")
    forged = Confirm(target_type="plan", target_id=plan.plan_id, requested_by_role="agent", decisions=[decision])
    assert submit_plan_for_approval(plan, "agent", confirm=forged).decisions == []
    (request,) = sayso.Review().list().requests
    assert set((request.context or {})["confirm"]) == {"meta"}
    done = Confirm(target_type="plan", target_id=plan.plan_id, requested_by_role="agent", status="approved")
    with pytest.raises(ConfirmRefusedError, match="has the status approved, which only a decision can give"):
        submit_plan_for_approval(plan_of_three(), "agent", confirm=done)


def test_confirm_and_plan_must_be_about_the_same() -> None:
    other = create_confirm("plan", id_of("other"), "agent")
    with pytest.raises(MismatchError, match="is about"):
        submit_plan_for_approval(plan_of_three(), "agent", confirm=other)
    with pytest.raises(MismatchError, match="'a context', and this is 'a plan'"):
        submit_plan_for_approval(plan_of_three(), "agent", confirm=create_confirm("context", id_of("other"), "agent"))
    assert sayso.Review().list(state="all").requests == ()


def test_an_id_that_is_taken_names_its_own_target_only() -> None:
    _, confirm, _ = submitted()
    stranger = plan_of_three(plan_id=id_of("other"))
    brought = Confirm(
        confirm_id=confirm.confirm_id, target_type="plan", target_id=stranger.plan_id, requested_by_role="x"
    )
    with pytest.raises(MismatchError):
        submit_plan_for_approval(stranger, "x", confirm=brought)


def test_a_locked_confirm_is_not_submitted() -> None:
    brought = create_confirm("plan", plan_of_three().plan_id, "agent")
    brought.governance = Governance(locked=True)
    with pytest.raises(ConfirmRefusedError, match="locked"):
        submit_plan_for_approval(plan_of_three(), "agent", confirm=brought)


def test_the_options_are_those_of_a_gate(clock: Clock) -> None:
    _, _, request = submitted(expires="1h", approval_expires="2h", quorum=2, roles={"dba"}, risk="high", reason="Why")
    assert (request.expires_at - request.created_at).total_seconds() == 3600
    assert (request.approval_window.total_seconds(), request.risk, request.prompt) == (7200, "high", "Why")
    assert (request.quorum.count, request.quorum.roles) == (2, {"dba"})
    with pytest.raises(errors.ConfigError, match="quorum= takes a number of people from 1"):
        submit_plan_for_approval(plan_of_three(), "agent", quorum=0)


def test_of_two_who_submit_at_one_time_one_waits() -> None:
    """The other one's request is taken back, as if both had looked before either had asked."""
    store = sayso.Review().store
    first, second = (flow.submit_plan_for_approval(plan_of_three(title=title), "agent") for title in "ab")
    looked, late = next(first)(), next(second)()
    drive(first, looked)
    with pytest.raises(ConfirmRefusedError, match="was changed"):
        drive(second, late)
    (waiting,) = sayso.Review().list().requests
    assert waiting.call.arguments["title"] == "a"
    assert document_of(store, waiting.id)["status"] == "pending"


def test_of_two_who_submit_another_round_at_one_time_one_waits() -> None:
    _, confirm, request = submitted()
    sayso.Review(reviewer="ada").reject(request.id, "no")
    first, second = (flow.submit_plan_for_approval(plan_of_three(title=title), "agent") for title in "ab")
    looked, late = next(first)(), next(second)()
    drive(first, looked)
    with pytest.raises(ConfirmRefusedError, match="was changed"):
        drive(second, late)
    found = read_confirm(confirm.confirm_id)
    assert (found.status, len(found.events or ())) == ("pending", 3)


def test_whoever_the_run_acts_for_cannot_decide_its_plan() -> None:
    with sayso.run("work", on_behalf_of="ada"):
        _, confirm, _ = submitted()
    with pytest.raises(errors.OwnRequestError):
        process_decision(confirm, yes("ada"))
    assert read_confirm(confirm.confirm_id).status == "pending"
