"""Plans and their Confirms follow what people decide, through whichever channel, round by round."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.mplp import (
    Confirm,
    ConfirmNotFoundError,
    ConfirmRefusedError,
    Decision,
    Governance,
    MismatchError,
    Plan,
    add_decision,
    create_confirm,
    process_decision,
    read_confirm,
    read_plan,
    refresh,
    start,
    submit_plan_for_approval,
    subscribe,
)
from sayso.mplp.schema import id_of, is_id
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.protocol import frozen, misfits, needs_frozen
from tests.support.submitting import plan_of_three, reviewer, submitted, told, yes

pytestmark = pytest.mark.usefixtures("memory")


# -- decide ---------------------------------------------------------------------------------------------------------


def test_approving_the_request_anywhere_sets_plan_and_confirm() -> None:
    plan, confirm, request = submitted()
    sayso.Review(by="ada", channel="browser").approve(request.id, comment="go")
    refresh(confirm)
    assert (plan.status, confirm.status) == ("approved", "approved")
    assert [(d.decided_by_role, d.reason) for d in confirm.decisions] == [("ada", "go")]


@pytest.mark.parametrize(("say", "reason"), [("reject", "too risky"), ("feedback", "add a way back")])
def test_a_no_sets_the_plan_back_to_draft(say: str, reason: str) -> None:
    plan, confirm, request = submitted()
    getattr(reviewer(), say)(request.id, reason)
    refresh(confirm)
    assert (plan.status, confirm.status) == ("draft", "rejected")
    assert (confirm.decisions[0].status, confirm.decisions[0].reason) == ("rejected", reason)


def test_a_decision_is_processed_through_the_persons_door() -> None:
    plan, confirm, request = submitted(roles={"dba"})
    decision = yes(reason="fine")
    process_decision(confirm, decision)
    after = sayso.Review().get(request.id)
    assert (after.state, str(after.decision and after.decision.by)) == ("approved", "dba")
    assert (plan.status, confirm.status) == ("approved", "approved")
    assert confirm.decisions == [decision.model_copy(update={"decided_at": confirm.decisions[0].decided_at})]
    assert read_confirm(confirm.confirm_id) == confirm


def test_a_role_that_was_not_asked_for_decides_nothing() -> None:
    _, confirm, _ = submitted(roles={"dba"})
    with pytest.raises(errors.MissingRoleError):
        process_decision(confirm, yes("intern"))
    assert read_confirm(confirm.confirm_id).status == "pending"


def test_a_person_counts_in_a_quorum_and_not_a_role() -> None:
    _, confirm, _ = submitted(quorum=2)
    process_decision(confirm, yes(), by="ada")
    assert (confirm.status, len(confirm.decisions)) == ("pending", 1)
    with pytest.raises(errors.AlreadyVotedError):
        process_decision(confirm, yes("owner"), by="ada")
    process_decision(confirm, yes("owner"), by="bob")
    assert (confirm.status, [d.decided_by_role for d in confirm.decisions]) == ("approved", ["dba", "owner"])
    assert read_confirm(confirm.confirm_id) == confirm


def test_a_role_that_can_be_nobodys_name_is_refused() -> None:
    _, confirm, _ = submitted()
    with pytest.raises(ConfirmRefusedError, match="the reviewer's name cannot be used"):
        process_decision(confirm, Decision(status="approved", decided_by_role=" dba\u200b"))


def test_a_rejection_of_a_submitted_plan_needs_a_reason() -> None:
    _, confirm, _ = submitted()
    with pytest.raises(ConfirmRefusedError, match="needs a reason"):
        process_decision(confirm, Decision(status="rejected", decided_by_role="dba"))
    assert read_confirm(confirm.confirm_id).status == "pending"


def test_a_copy_of_a_confirm_is_decided_where_it_waits() -> None:
    _, confirm, _ = submitted()
    process_decision(Confirm.parse(confirm.export()), yes())
    assert read_confirm(confirm.confirm_id).status == "approved"


@pytest.mark.parametrize("status", ["approved", "rejected", "cancelled"])
def test_a_confirm_of_an_earlier_round_decides_nothing(status: str) -> None:
    plan, confirm, request = submitted()
    looked_at = read_confirm(confirm.confirm_id)
    reviewer().reject(request.id, "no")
    refresh(confirm)
    plan.title = "Drop all tables"
    submit_plan_for_approval(plan, "agent")
    with pytest.raises(errors.StaleViewError, match="look again, nothing was decided"):
        process_decision(looked_at, Decision(status=status, decided_by_role="dba", reason="fine"))
    assert read_confirm(confirm.confirm_id).status == "pending"
    refresh(looked_at)
    process_decision(looked_at, yes())
    assert looked_at.status == "approved"


@pytest.mark.parametrize("copied", [lambda one: one, copy.deepcopy, lambda one: one.model_copy()])
def test_a_confirm_that_was_read_before_an_edit_decides_nothing(copied: Callable[[Confirm], Confirm]) -> None:
    _, confirm, request = submitted(quorum=2)
    looked_at = copied(read_confirm(confirm.confirm_id))
    mine = copied(Confirm.from_request(request))
    reviewer().approve(request.id, changes={"title": "As edited"})
    for one in (looked_at, mine):
        with pytest.raises(errors.StaleViewError):
            process_decision(one, yes("bob"))
    with pytest.raises(errors.StaleViewError):
        add_decision(looked_at, "approved", "bob")
    assert read_confirm(confirm.confirm_id).status == "pending"
    process_decision(read_confirm(confirm.confirm_id), yes("bob"))
    assert read_confirm(confirm.confirm_id).status == "approved"


def test_a_document_decides_only_the_round_that_it_was_made_in() -> None:
    plan, confirm, request = submitted()
    handed_over = Confirm.parse(confirm.export())
    bare = Confirm(confirm_id=confirm.confirm_id, target_type="plan", target_id=plan.plan_id, requested_by_role="agent")
    reviewer().reject(request.id, "no")
    refresh(confirm)
    plan.title = "Drop all tables"
    submit_plan_for_approval(plan, "agent")
    for document in (handed_over, bare):
        with pytest.raises(errors.StaleViewError, match="look again, nothing was decided"):
            process_decision(document, yes())
    process_decision(Confirm.parse(read_confirm(confirm.confirm_id).export()), yes())
    assert read_confirm(confirm.confirm_id).status == "approved"


def test_a_document_from_before_an_edit_decides_nothing_and_one_from_before_a_vote_does() -> None:
    _, confirm, request = submitted(quorum=3)

    def document() -> Confirm:
        return Confirm.parse(read_confirm(confirm.confirm_id).export())

    first = document()
    process_decision(document(), yes("bob"))
    reviewer().approve(request.id, by="carol", changes={"title": "As edited"})
    with pytest.raises(errors.StaleViewError):
        process_decision(first, yes("dave"))
    edited = document()
    process_decision(document(), yes("bob"))
    process_decision(edited, yes("dave"))
    assert (read_confirm(confirm.confirm_id).status, read_plan(confirm.target_id).title) == ("approved", "As edited")


def test_a_confirm_that_was_packed_and_unpacked_knows_what_it_was_read_as() -> None:
    _, _, request = submitted()
    assert pickle.loads(pickle.dumps(Confirm.from_request(request))).origin.seen == (request.id, request.fingerprint)


@pytest.mark.parametrize("role", ["planner", "Planner", " planner  "])
def test_the_role_that_asked_does_not_approve(role: str) -> None:
    confirm = submit_plan_for_approval(plan_of_three(), role)
    with pytest.raises(errors.OwnRequestError):
        process_decision(confirm, yes("planner"))
    with pytest.raises(errors.OwnRequestError):
        process_decision(confirm, yes("dba"), by="planner")
    process_decision(confirm, yes("dba"))
    assert confirm.status == "approved"


def test_whom_the_program_acts_for_does_not_approve_either() -> None:
    with sayso.run("planning", on_behalf_of=sayso.Reviewer("kim")):
        confirm = submit_plan_for_approval(plan_of_three(), "planner")
    for name in ("kim", "planner"):
        with pytest.raises(errors.OwnRequestError):
            process_decision(confirm, yes(name))


def test_a_locked_copy_decides_nothing() -> None:
    _, confirm, _ = submitted()
    confirm.governance = Governance(locked=True)
    with pytest.raises(ConfirmRefusedError, match="locked"):
        add_decision(confirm, "approved", "dba")
    assert read_confirm(confirm.confirm_id).status == "pending"


def test_a_copy_that_is_about_something_else_decides_nothing() -> None:
    _, confirm, _ = submitted()
    copy = confirm.model_copy(update={"target_id": id_of("other")})
    with pytest.raises(MismatchError):
        process_decision(copy, yes())
    assert read_confirm(confirm.confirm_id).status == "pending"


def test_whoever_comes_second_is_told_who_was_first() -> None:
    _, confirm, request = submitted()
    reviewer().reject(request.id, "no")
    with pytest.raises(ConfirmRefusedError, match="already rejected by 'ada'"):
        process_decision(confirm, yes())


def test_a_confirm_that_was_read_of_a_request_is_decided_in_no_other_store() -> None:
    _, confirm, request = submitted()
    of_request = Confirm.from_request(request)
    heard: list[Any] = []
    unsubscribe = subscribe(heard.append)
    for one in (confirm, read_confirm(confirm.confirm_id), pickle.loads(pickle.dumps(of_request)), of_request):
        with pytest.raises(ConfirmNotFoundError):
            process_decision(one, yes(), store=MemoryStore())
        assert (one.status, one.decisions) == ("pending", [])
    unsubscribe()
    assert heard == []
    assert read_confirm(confirm.confirm_id).status == "pending"


def test_the_confirm_of_a_request_is_decided_where_the_request_waits() -> None:
    elsewhere = Confirm.from_request(sample_call())
    with pytest.raises(ConfirmNotFoundError):
        add_decision(elsewhere, "approved", "dba")
    assert (elsewhere.status, elsewhere.decisions) == ("pending", [])
    _, confirm, request = submitted()
    add_decision(Confirm.from_request(request), "approved", "dba")
    assert read_confirm(confirm.confirm_id).status == "approved"


def test_the_role_that_asked_decides_no_document_from_elsewhere() -> None:
    _, confirm, _ = submitted()
    parsed = Confirm.parse(confirm.export())
    with pytest.raises(ConfirmRefusedError, match="and cannot decide it"):
        process_decision(parsed, yes("agent"), store=MemoryStore())
    assert parsed.status == "pending"
    process_decision(parsed, yes(), store=MemoryStore())
    assert (parsed.status, read_confirm(confirm.confirm_id).status) == ("approved", "pending")


def test_a_decision_is_added_where_the_confirm_waits() -> None:
    _, confirm, request = submitted()
    add_decision(confirm, "cancelled", "dba")
    assert sayso.Review().get(request.id).state is State.CANCELLED
    assert confirm.status == "cancelled"


def test_a_confirm_that_waits_nowhere_is_only_written_down() -> None:
    confirm = create_confirm("plan", id_of("plan"), "agent")
    with told() as heard:
        process_decision(confirm, yes())
    assert confirm.status == "approved"
    assert [event.event_type for event in heard] == ["confirm.decided", "plan_approved"]
    with pytest.raises(ConfirmNotFoundError):
        start(confirm, print)
    with pytest.raises(ConfirmRefusedError, match="is not in a store"):
        refresh(confirm)


# -- rounds ---------------------------------------------------------------------------------------------------------


def test_a_rejected_plan_is_submitted_again_on_the_same_confirm() -> None:
    plan, confirm, request = submitted()
    reviewer().reject(request.id, "no")
    refresh(confirm)
    plan.title = "With a way back"
    again = submit_plan_for_approval(plan, "agent")
    assert again.confirm_id == confirm.confirm_id
    assert (again.status, len(again.decisions), plan.status) == ("pending", 1, "proposed")
    process_decision(again, yes())
    assert [d.status for d in again.decisions] == ["rejected", "approved"]
    assert read_plan(plan.plan_id).title == "With a way back"


def test_the_same_plan_may_be_submitted_again_unchanged() -> None:
    plan, confirm, request = submitted()
    reviewer().reject(request.id, "no")
    refresh(confirm)
    assert submit_plan_for_approval(plan, "agent").status == "pending"
    assert len(sayso.Review().list(state="all").requests) == 2


def test_a_plan_that_was_cancelled_or_ran_out_gets_a_new_confirm(clock: Clock) -> None:
    plan, confirm, _ = submitted()
    clock.tick(hours=25)
    refresh(confirm)
    assert (confirm.status, plan.status) == ("cancelled", "draft")
    assert confirm.decisions[-1].decided_by_role == "clock"
    assert submit_plan_for_approval(plan, "agent").confirm_id != confirm.confirm_id
    assert read_confirm(confirm.confirm_id).status == "cancelled"


def test_an_approved_plan_is_not_submitted_again() -> None:
    plan, confirm, _ = submitted()
    process_decision(confirm, yes())
    with pytest.raises(ConfirmRefusedError, match="only a draft can be submitted"):
        submit_plan_for_approval(plan, "agent")
    with pytest.raises(ConfirmRefusedError, match="which is final"):
        submit_plan_for_approval(plan_of_three(title="Another"), "agent")


def test_another_confirm_for_a_plan_that_waits_is_refused() -> None:
    plan, _, _ = submitted()
    with pytest.raises(ConfirmRefusedError, match="is already pending under Confirm"):
        submit_plan_for_approval(plan, "agent", confirm=create_confirm("plan", plan.plan_id, "agent"))


@needs_frozen
def test_the_golden_flow(clock: Clock) -> None:
    """Rejected, then approved, with the ids and instants of the frozen files; all invariants hold."""
    expected, context = frozen("flow-05/expected/confirm.json"), frozen("flow-05/input/context.json")
    plan = Plan.parse(frozen("flow-05/input/plan.json"))
    confirm = Confirm.parse(frozen("flow-05/input/confirm.json"))
    clock.at = confirm.requested_at
    submit_plan_for_approval(plan, "agent", confirm=confirm)
    for said in map(Decision.model_validate, expected["decisions"]):
        clock.at = said.decided_at
        process_decision(confirm, said)
        if said.status == "rejected":
            assert (confirm.status, plan.status) == ("rejected", "draft")
            submit_plan_for_approval(plan, "agent", confirm=confirm)
    result = read_confirm(confirm.confirm_id).export()
    assert {name: result[name] for name in expected} == expected
    assert set(result) - set(expected) == {"events"}
    assert misfits("mplp-confirm", result) == []
    assert misfits("mplp-plan", read_plan(plan.plan_id).export()) == []
    broken = [one["id"] for one in _invariants() if not _holds(one, result, plan.export(), context)]
    assert broken == []


def _invariants() -> list[dict[str, str]]:
    """Read the two files of invariants; their YAML is flat."""
    from tests.support.protocol import DATA

    found: list[dict[str, str]] = []
    for name in ("invariants", "confirm-invariants"):
        for line in (DATA / "flow-05" / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
            key, _, value = line.strip().partition(": ")
            if key == "- id":
                found.append({"id": value, "scope": "confirm"})
            elif found and key in {"scope", "path", "rule"}:
                found[-1][key] = value
    assert len(found) == 17
    return found


def _holds(one: dict[str, str], confirm: Any, plan: Any, context: Any) -> bool:
    trace = {"context_id": context["context_id"], "plan_id": plan["plan_id"], "events": confirm["events"]}
    documents = {"confirm": confirm, "plan": plan, "context": context, "trace": trace}
    rule, _, given = one["rule"].rstrip(")").partition("(")
    name, _, rest = one["path"].partition("[*].")
    found = documents[one["scope"]][name]
    values = [item[rest] for item in found] if rest else [found]
    match rule:
        case "min-length":
            return len(found) >= int(given)
        case "uuid-v4":
            return bool(values) and all(map(is_id, values))
        case "eq":
            document, _, field = given.partition(".")
            return values == [documents[document][field]]
        case "enum" | "one-of":
            return all(value in given.strip("[]").replace('"', "").replace(" ", "").split(",") for value in values)
        case "non-empty-string" | "if":
            return all(isinstance(value, str) and value.strip() for value in values)
    raise AssertionError(one)
