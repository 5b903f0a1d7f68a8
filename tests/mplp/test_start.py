"""An approved plan is started once, as it was approved, and nothing else is."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest

import sayso
from sayso import clock, errors
from sayso.model import canonical
from sayso.model.canonical.json_tree import dumps
from sayso.model.edit import PLAN_TOOL, TARGET_TOOL, wrong_steps
from sayso.model.ids import call_digest, fingerprint
from sayso.model.request import Decision as Said
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Identity
from sayso.mplp import (
    Confirm,
    ConfirmNotFoundError,
    ConfirmRefusedError,
    NotConformantError,
    Plan,
    StepStatus,
    create_confirm,
    process_decision,
    read_confirm,
    read_plan,
    refresh,
    start,
    submit_for_approval,
    submit_plan_for_approval,
)
from sayso.mplp.confirm import round_facts
from sayso.mplp.document import Step
from sayso.mplp.schema import id_of
from sayso.stores.memory import MemoryStore
from tests.support.acting import approved
from tests.support.submitting import plan_of_three, reviewer, submitted, yes

pytestmark = pytest.mark.usefixtures("memory")


def test_an_approved_plan_is_started_once_as_it_was_approved() -> None:
    plan, _, request = submitted()
    steps = [{**step, "description": "reviewed"} for step in request.call.arguments["steps"][:1]]
    reviewer().approve(request.id, changes={"title": "As reviewed", "steps": steps})
    seen: list[Plan] = []
    assert start(plan, lambda given: seen.append(given) or "done") == "done"
    assert [(p.title, p.status, [s.description for s in p.steps]) for p in seen] == [
        ("As reviewed", "in_progress", ["reviewed"])
    ]
    assert (plan.title, plan.status) == ("As reviewed", "completed")
    with pytest.raises(errors.AlreadyStartedError):
        start(plan, seen.append)
    assert len(seen) == 1


def test_a_plan_that_failed_is_failed() -> None:
    plan, confirm, _ = submitted()
    process_decision(confirm, yes())

    def fails(_: Plan) -> None:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        start(plan, fails)
    assert (plan.status, read_confirm(confirm.confirm_id).status) == ("failed", "approved")


def test_a_plan_is_in_progress_while_it_is_carried_out() -> None:
    plan, confirm, _ = submitted()
    process_decision(confirm, yes())
    assert start(plan, lambda _: read_plan(plan.plan_id).status) == "in_progress"


def test_what_is_not_approved_is_not_started() -> None:
    plan, confirm, _ = submitted()
    for target in (plan, confirm):
        with pytest.raises(errors.NotApprovedError):
            start(target, print)
    with pytest.raises(ConfirmNotFoundError):
        start(plan_of_three(plan_id=id_of("other")), print)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "steps: Input has less than 1 item"),
        ([{"description": ""}], "steps[0].description: Input is shorter than 1 character"),
        ([{"description": "  "}], "steps: no step has a description"),
        ([{"step_id": "s1", "description": "a"}], "steps[0].step_id: should be a UUID v4 in lower case"),
        ([{"step_id": id_of("a"), "description": "a"}] * 2, "steps[1].step_id: is already the id of another step"),
        (
            [{"description": "a", "dependencies": [id_of("step", 0)]}],
            "steps[0].dependencies[0]: is not the id of a step",
        ),
        ([{"description": "a", "order_index": -1}], "steps[0].order_index: Input is less than the minimum of 0"),
        ([{"description": "a", "status": "PENDING"}], "steps[0].status: Input should be one of "),
        ([{"description": "a", "who": "b"}], "steps[0].who: there is no such field"),
        (["a"], 'steps[0]: Input is not of type "object"'),
    ],
)
def test_an_edit_that_makes_no_plan_decides_nothing(steps: list[Any], said: str) -> None:
    _, _, request = submitted()
    with pytest.raises(errors.InvalidChangesError) as refusal:
        reviewer().approve(request.id, changes={"steps": steps})
    assert [problem[: len(said)] for problem in refusal.value.problems] == [said]
    with pytest.raises(errors.InvalidChangesError, match="title"):
        reviewer().approve(request.id, changes={"title": ""})
    assert reviewer().get(request.id).state is State.PENDING


def test_a_step_that_a_reviewer_adds_gets_an_id_which_everybody_reads_alike() -> None:
    plan, _, request = submitted()
    steps = [*request.call.arguments["steps"], {"description": "Keep the old table"}, {"description": "Clean up"}]
    reviewer().approve(request.id, changes={"steps": steps})
    read = read_plan(plan.plan_id).export()["steps"]
    assert [step["status"] for step in read] == ["pending"] * 5
    assert len({step["step_id"] for step in read}) == 5
    assert start(plan, lambda given: given.export()["steps"]) == read == read_plan(plan.plan_id).export()["steps"]


def test_a_step_that_was_named_in_an_earlier_round_does_not_lend_its_id() -> None:
    plan, confirm, request = submitted()
    reviewer().approve(request.id, changes={"steps": [{"description": "a"}, {"description": "b"}]})
    reviewer().cancel(request.id)
    refresh(confirm)
    again = Plan.model_validate({**plan.export(), "status": "draft"})
    submit_plan_for_approval(again, "agent")
    (request,) = sayso.Review().list().requests
    kept = request.call.arguments["steps"][0]
    reviewer().approve(request.id, changes={"steps": [{"description": "a"}, {**kept, "description": "was a"}]})
    assert start(again, lambda given: len({step.step_id for step in given.steps})) == 2


def test_an_edit_that_makes_no_plan_is_not_carried_out_where_it_came_into_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, _, request = submitted()
    monkeypatch.setattr("sayso.model.edit.wrong_steps", lambda _: [])
    reviewer().approve(request.id, changes={"steps": [{"step_id": "s1", "description": "a"}]})
    seen: list[Any] = []
    with pytest.raises(NotConformantError, match="/steps/0/step_id: 's1' is not a UUID"):
        start(plan, seen.append)
    assert seen == []


def test_an_edit_of_what_a_program_calls_a_plan_never_breaks_a_check() -> None:
    for steps in (None, "a", [], [{"step_id": [], "dependencies": 1}], [{"description": 1, "dependencies": [[]]}, 7]):
        assert isinstance(wrong_steps({"steps": steps}), list)
    assert wrong_steps({}) == []


def test_the_person_s_door_knows_the_calls_of_targets_by_their_names() -> None:
    from sayso.mplp.document import carry_out_plan, use_target

    assert canonical.function_name(carry_out_plan) == PLAN_TOOL
    assert canonical.function_name(use_target) == TARGET_TOOL


def test_steps_that_wait_have_the_statuses_of_the_protocol() -> None:
    known = get_args(get_args(get_type_hints(Step, include_extras=True)["status"])[0])
    assert known == tuple(StepStatus)


def test_a_stored_plan_that_was_altered_is_not_carried_out(memory: MemoryStore) -> None:
    plan, confirm, request = submitted()
    process_decision(confirm, yes())
    before = memory._tables().rows[request.id]
    altered = replace(before.call, form=before.call.form.replace("Move", "Drop"))
    memory._tables().rows[request.id] = replace(before, subject=altered)
    seen: list[Any] = []
    with pytest.raises(errors.AlteredRequestError):
        start(plan, seen.append)
    assert seen == []


def test_a_programs_own_request_is_not_started_from_here() -> None:
    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        return f"paid {amount}"

    confirm = read_confirm(approved(pay, 1))
    with pytest.raises(ConfirmRefusedError, match="belongs to a program"):
        start(confirm, print)


def test_the_built_in_call_does_nothing_by_itself() -> None:
    from sayso.mplp.document import carry_out_plan

    with pytest.raises(RuntimeError, match="nothing was done"):
        carry_out_plan("t", "o", [])


def test_a_plain_start_takes_no_async_function() -> None:
    async def do(_: Plan) -> None: ...

    plan, confirm, request = submitted()
    process_decision(confirm, yes())
    with pytest.raises(TypeError, match="aio"):
        start(plan, do)
    assert sayso.Review().get(request.id).state is State.APPROVED


def test_of_eight_who_start_a_plan_one_does() -> None:
    process_decision(submitted()[1], yes())
    ran: list[Any] = []
    refused: list[errors.StartRefusedError] = []

    def work() -> None:
        try:
            start(plan_of_three(), ran.append)
        except errors.StartRefusedError as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (len(ran), len(refused)) == (1, 7)


# -- targets that are no plans --------------------------------------------------------------------------------------

SHOWN, HIDDEN = id_of("test", "shown"), id_of("test", "hidden")


def waiting(target_id: str, reason: str | None = "why") -> tuple[Confirm, Request]:
    confirm = submit_for_approval(create_confirm("extension", target_id, "agent", reason))
    (request,) = sayso.Review().list().requests
    return confirm, request


def shown_as(memory: MemoryStore, request: Request, **fields: str) -> Request:
    """Let a request that waits show other values than the ones of its run, as a program can that writes its own."""
    form = dumps({**canonical.load(request.call.form), **fields})
    digest = call_digest(request.call.tool, request.call.schema_digest, canonical.digest_input(form))
    call = replace(request.call, form=form, digest=digest)
    after = replace(request, subject=call, fingerprint=fingerprint(request.run_id, digest, request.place))
    memory._tables().rows[request.id] = after
    return after


def test_a_target_is_started_with_the_reason_that_was_approved() -> None:
    confirm, request = waiting(SHOWN)
    reviewer().approve(request.id, changes={"reason": "only this once"})
    seen: list[Confirm] = []
    start(confirm, seen.append)
    assert [(one.target_id, one.reason, one.status) for one in seen] == [(SHOWN, "only this once", "approved")]


OTHER_TYPE = {"$enum": ["sayso.mplp.document:TargetType", "TRACE"]}


@pytest.mark.parametrize("changes", [{"target_id": HIDDEN}, {"target_type": OTHER_TYPE}])
def test_the_approval_of_another_target_starts_neither(memory: MemoryStore, changes: dict[str, Any]) -> None:
    confirm, request = waiting(SHOWN)
    form = dumps({**canonical.load(request.call.form), **changes})  # as a door might that does not look at edits
    digest = call_digest(request.call.tool, request.call.schema_digest, canonical.digest_input(form))
    edited = replace(request.call, form=form, digest=digest)
    said = Said("approve", Identity(LOCAL, "ada"), clock.now(), "cli", None, "", edited=True)
    memory.decide(request.id, said, roles=(), seen=None, edited=edited)
    read = read_confirm(confirm.confirm_id)
    assert (read.status, read.decisions[0].status) == ("rejected", "rejected")
    seen: list[Any] = []
    with pytest.raises(errors.AlteredRequestError, match="is not the submitted extension"):
        start(read, seen.append)
    assert seen == []
    assert read_confirm(confirm.confirm_id).status == "rejected"


@pytest.mark.parametrize("fields", [{"target_id": SHOWN}, {"target_type": "trace"}])
def test_a_request_that_shows_another_target_than_its_run_names_is_of_neither(
    memory: MemoryStore, fields: dict[str, str]
) -> None:
    confirm, request = waiting(HIDDEN)
    request = shown_as(memory, request, **fields)
    reviewer().approve(request.id)
    read = read_confirm(request.id)
    assert (read.target_type, read.target_id in {SHOWN, HIDDEN}) == ("other", False)
    seen: list[Any] = []
    for one in (read, confirm):
        with pytest.raises((ConfirmRefusedError, ConfirmNotFoundError)):
            start(one, seen.append)
    assert seen == []


def test_a_plan_that_waits_in_the_run_of_another_target_starts_nothing(memory: MemoryStore) -> None:
    _, _, request = submitted()
    run_id = f"extension:{HIDDEN}"
    theirs = fingerprint(run_id, request.call.digest, request.place)
    memory._tables().rows[request.id] = replace(request, run_id=run_id, fingerprint=theirs)
    reviewer().approve(request.id)
    assert read_confirm(request.id).target_type == "other"
    with pytest.raises(ConfirmRefusedError, match="belongs to a program"):
        start(read_confirm(request.id), print)


def test_a_call_that_cannot_be_read_is_of_no_target(memory: MemoryStore) -> None:
    _, request = waiting(HIDDEN)
    call = replace(request.call, form='{"target_type":{"$enum":["no:Such","X"]}}', masked=None)
    assert round_facts(replace(request, subject=call)) is None
