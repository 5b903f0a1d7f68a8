"""Every request is a Confirm: of other targets, of calls and questions, in every store and process, and as a sample."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.model.reviewer import LOCAL, Identity
from sayso.mplp import (
    Confirm,
    ConfirmNotFoundError,
    ConfirmRefusedError,
    Decision,
    MismatchError,
    NotConformantError,
    Plan,
    TargetType,
    Trace,
    aio,
    capture_learning_sample,
    create_confirm,
    process_decision,
    read_confirm,
    read_plan,
    refresh,
    sample_of,
    start,
    submit_for_approval,
    submit_plan_for_approval,
    subscribe,
)
from sayso.mplp.confirm import confirm_id_of
from sayso.mplp.history import find_confirm
from sayso.mplp.schema import id_of, uuid4_of
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from tests.conftest import Clock
from tests.support.acting import held
from tests.support.protocol import misfits, needs_frozen
from tests.support.submitting import plan_of_three, reviewer, submitted, yes

pytestmark = pytest.mark.usefixtures("memory")


# -- other targets, and other requests ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in TargetType if kind is not TargetType.PLAN])
def test_any_target_may_wait(kind: TargetType) -> None:
    confirm = submit_for_approval(create_confirm(kind, id_of("target"), "agent", "Please"))
    (request,) = sayso.Review().list().requests
    assert request.call.arguments == {"target_type": kind, "target_id": id_of("target"), "reason": "Please"} or (
        request.call.arguments["target_id"] == id_of("target")
    )
    reviewer().approve(request.id)
    refresh(confirm)
    assert start(confirm, lambda given: given.target_id) == id_of("target")


def test_a_call_is_a_confirm_of_its_own() -> None:
    @sayso.gate(wait="raise", prompt="Really?")
    def pay(amount: int, password: str) -> str:
        return f"paid {amount}"

    request = sayso.Review().get(held(pay, 1, "hunter2").confirmation_id)
    confirm = Confirm.from_request(request)
    assert (confirm.status, confirm.target_type, confirm.reason) == ("pending", "other", "Really?")
    assert read_confirm(confirm.confirm_id) == confirm == read_confirm(request.id)
    assert "hunter2" not in json.dumps(confirm.export())
    after = Confirm.from_request(reviewer().approve(request.id))
    assert (after.confirm_id, after.status) == (confirm.confirm_id, "approved")


def test_a_question_is_a_confirm_and_a_plain_no_is_a_rejection() -> None:
    for answer, status in ((True, "approved"), (False, "rejected")):
        with sayso.run(f"work-{answer}"), pytest.raises(sayso.ConfirmationRequired) as asked:
            sayso.ask("Go on?", type=bool, wait="raise")
        confirm = Confirm.from_request(reviewer().answer(asked.value.confirmation_id, answer))
        assert (confirm.target_type, confirm.status, confirm.reason) == ("context", status, "Go on?")
        assert confirm.decisions[0].status == status
        confirm.export()


def test_a_run_that_waits_as_a_whole_is_a_trace() -> None:
    from sayso.testing import ScriptedModel

    agent = sayso.Agent(name="bot", model=ScriptedModel(["hi"]), tools=[], requires_approval=True)
    agent(prompt="x").run()
    (request,) = sayso.Review().list().requests
    confirm = Confirm.from_request(request)
    assert confirm.target_type == "trace"
    assert confirm.trace is not None
    assert confirm.trace.trace_id == confirm.target_id == uuid4_of(request.run_id.removeprefix("run_"))
    confirm.export()


def test_every_state_of_a_request_is_a_status() -> None:
    from sayso.testing.scene import Scene

    wanted = {
        "pending": "pending", "approved": "approved", "running": "approved", "done": "approved", "failed": "approved",
        "unknown": "approved", "answered": "approved", "rejected": "rejected", "feedback": "rejected",
        "cancelled": "cancelled", "expired": "cancelled",
    }  # fmt: skip
    assert set(wanted) == set(State)

    class Here(Scene):
        def make_store(self) -> MemoryStore:
            return MemoryStore()

    for state in State:
        scene = Here()
        scene.setup_method()
        confirm = Confirm.from_request(scene.in_state(state))
        scene.teardown_method()
        assert confirm.status == wanted[state], state
        confirm.export()


def test_what_was_put_into_the_store_by_hand_is_no_confirm_of_a_plan() -> None:
    _, confirm, request = submitted()
    for odd in ({"place": ""}, {"place": "x/1"}, {"place": f"{confirm.confirm_id}/x"}, {"run_id": "order-1"}):
        altered: Any = replace(request, **odd)
        assert confirm_id_of(altered) != confirm.confirm_id
        assert Confirm.from_request(altered).target_type == "other"
    context = {"confirm_id": "x", "requested_by_role": 5, "confirm": {"meta": 5}}
    for told in (None, {}, context):
        found = Confirm.from_request(replace(request, context=told))
        assert (found.confirm_id, found.status) == (confirm.confirm_id, "pending")
        found.export()


def test_a_plan_that_was_purged_leaves_its_confirm(clock: Clock) -> None:
    plan, confirm, request = submitted()
    process_decision(confirm, Decision(status="rejected", decided_by_role="dba", reason="no way back"))
    clock.tick(days=100)
    sayso.Review().store.purge(request.id, Identity(LOCAL, "ada"), before=clock.at, channel="cli")
    found = read_confirm(confirm.confirm_id)
    assert (found.status, found.decisions[0].decided_by_role) == ("rejected", "dba")
    assert "no way back" not in found.to_json()
    with pytest.raises(ConfirmRefusedError, match="was purged"):
        read_plan(plan.plan_id)
    refresh(confirm)
    assert sample_of(sayso.Review().get(request.id)).sample_family == "confirm_decision"
    assert submit_plan_for_approval(plan, "agent").confirm_id == confirm.confirm_id


# -- anywhere -------------------------------------------------------------------------------------------------------


def test_submitted_here_approved_there_and_read_elsewhere(tmp_path: Path) -> None:
    submit = """
        from tests.support.submitting import plan_of_three
        from sayso.mplp import submit_plan_for_approval
        print(submit_plan_for_approval(plan_of_three(), "agent").confirm_id)
    """
    read = """
        import sys
        from sayso.mplp import read_confirm, read_plan
        confirm = read_confirm(sys.argv[1])
        print(confirm.status, read_plan(confirm.target_id).status, confirm.decisions[0].decided_by_role)
    """
    root, address = Path(__file__).resolve().parents[2], f"sqlite:///{tmp_path}/a.db"

    def run(text: str, *words: str) -> str:
        import os
        import subprocess
        import textwrap

        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text), *words], capture_output=True, text=True, check=True,
            cwd=root, env={**os.environ, "SAYSO_STORE": address},
        )  # fmt: skip
        return done.stdout.strip()

    confirm_id = run(submit)
    store = SqliteStore(f"{tmp_path}/a.db")
    sayso.Review(store, channel="browser").approve(find_confirm(store, confirm_id).last.id, by="ada")
    store.close()
    assert run(read, confirm_id) == "approved approved ada"


@pytest.mark.parametrize("url", ["sqlite:///{}/a.db", "jsonl:{}/a.jsonl"])
def test_every_store_keeps_what_a_confirm_is_made_of(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, key in (("open", ""), ("sealed", base64.urlsafe_b64encode(bytes(32)).decode())):
        monkeypatch.setenv("SAYSO_KEY", key)
        (tmp_path / place).mkdir()
        address = url.format(tmp_path / place)
        plan, confirm, request = submitted(store=address)
        process_decision(confirm, Decision(status="rejected", decided_by_role="dba", reason="no"))
        again = submit_plan_for_approval(plan, "agent", store=address)
        assert (again.confirm_id, [d.decided_by_role for d in again.decisions]) == (confirm.confirm_id, ["dba"])
        assert read_confirm(confirm.confirm_id, store=address) == again
        assert read_confirm(request.id[:12], store=address) == again


def test_ids_that_there_are_not_are_not_found() -> None:
    for wanted in ("rq_none", id_of("nothing"), "", "x", "rq_"):
        with pytest.raises(ConfirmNotFoundError):
            read_confirm(wanted)
    with pytest.raises(ConfirmNotFoundError):
        read_plan(id_of("nothing"))


def test_the_async_face_does_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        sayso.configure(store=f"sqlite:///{tmp_path}/a.db")
        heard: list[str] = []

        async def hear(event: Any) -> None:
            await asyncio.sleep(0)
            heard.append(event.event_type)

        unsubscribe = subscribe(hear)
        plan = plan_of_three()
        confirm = await aio.submit_plan_for_approval(plan, "agent")
        await aio.add_decision(confirm, "rejected", "dba", "no")
        assert (plan.status, confirm.status) == ("draft", "rejected")
        confirm = await aio.submit_plan_for_approval(plan, "agent")
        await aio.process_decision(confirm, yes())
        sample = await aio.capture_learning_sample(confirm, plan)
        assert sample.sample_family == "intent_resolution"
        assert (await aio.read_confirm(confirm.confirm_id)).status == "approved"
        assert (await aio.read_plan(plan.plan_id)).status == "approved"

        async def carry_out(given: Plan) -> int:
            await asyncio.sleep(0)
            return len(given.steps)

        assert await aio.start(plan, carry_out) == 3
        with pytest.raises(errors.AlreadyStartedError):
            await aio.start(plan, carry_out)
        other = await aio.create_confirm("extension", id_of("x"), "agent")
        await aio.submit_for_approval(other)
        await aio.process_decision(other, yes())
        await aio.refresh(other)
        assert await aio.start(other, lambda given: given.target_type) == "extension"
        unsubscribe()
        assert heard.count("plan_approved") == 1
        assert heard.count("plan_rejected") == 1

    asyncio.run(main())


def test_both_faces_have_the_same_verbs() -> None:
    import inspect

    from sayso import mplp

    for name in aio.__all__:
        plain, twin = inspect.signature(getattr(mplp, name)), inspect.signature(getattr(aio, name))
        assert list(plain.parameters) == list(twin.parameters), name
        assert [p.default for p in plain.parameters.values()] == [p.default for p in twin.parameters.values()], name
        assert inspect.iscoroutinefunction(getattr(aio, name))


# -- learning -------------------------------------------------------------------------------------------------------


def test_a_sample_of_a_plan_says_what_the_description_says() -> None:
    plan, confirm, _ = submitted()
    process_decision(confirm, yes(reason="fine"))
    sample = capture_learning_sample(confirm, plan, context={"title": "Shop"}).export()
    assert sample["sample_family"] == "intent_resolution"
    assert sample["input"]["intent_text"] == "No downtime"
    assert sample["input"]["context"] == {"title": "Shop"}
    assert [step["description"] for step in sample["output"]["plan_structure"]] == ["step 0", "step 1", "step 2"]
    assert sample["feedback"] == {"source": "user", "type": "approval", "quality_label": "good", "details": "fine"}
    with pytest.raises(MismatchError):
        capture_learning_sample(confirm, plan_of_three(plan_id=id_of("other")))


def test_a_sample_of_a_call_says_what_was_proposed_and_what_was_approved() -> None:
    @sayso.gate(wait="raise", risk="high")
    def pay(amount: int, password: str) -> str:
        return f"paid {amount}"

    request = sayso.Review().get(held(pay, 100, "hunter2").confirmation_id)
    request = reviewer().approve(request.id, changes={"amount": 80}, comment="less")
    sample = sample_of(request).export()
    assert sample == sample_of(request).export()
    assert sample["input"]["proposed"] == {"amount": 100, "password": "***"}
    assert sample["output"]["approved"] == {"amount": 80, "password": "***"}
    assert (sample["output"]["is_edited"], sample["output"]["final_status"]) == (True, "approved")
    assert sample["meta"]["human_feedback_label"] == "approved"
    assert "hunter2" not in json.dumps(sample)


def test_a_secret_in_a_plan_is_masked_in_its_sample() -> None:
    plan = plan_of_three(objective="Copy postgres://me:hunter2@db/x")
    confirm = submit_plan_for_approval(plan, "agent")
    sample = capture_learning_sample(confirm, plan, context={"password": 4711}).export()
    assert "hunter2" not in json.dumps(sample)
    assert sample["input"]["context"] == {"password": "***"}


def test_a_secret_that_a_reviewer_quotes_is_masked_in_each_sample() -> None:
    @sayso.gate(wait="raise")
    def pay(amount: int, password: str) -> str:
        return f"paid {amount}"

    request = sayso.Review().get(held(pay, 100, "hunter2").confirmation_id)
    request = reviewer().reject(request.id, "hunter2 is revoked")
    confirm = Confirm.from_request(request)
    for sample in (sample_of(request), capture_learning_sample(confirm, request)):
        assert sample.feedback is not None
        assert sample.feedback["details"] == sample.output["rejection_reason"] == "*** is revoked"
    plan = plan_of_three(objective="Copy postgres://me:hunter2@db/x")
    confirm = submit_plan_for_approval(plan, "agent")
    process_decision(confirm, Decision(status="rejected", decided_by_role="dba", reason="hunter2 is revoked"))
    asked = find_confirm(sayso.Review().store, confirm.confirm_id).last
    for sample in (sample_of(asked), capture_learning_sample(confirm, plan)):
        assert sample.feedback is not None
        assert sample.feedback["details"] == "*** is revoked"


@needs_frozen
def test_samples_fit_the_frozen_schemas(clock: Clock) -> None:
    plan, confirm, _ = submitted()
    clock.tick(seconds=45)
    process_decision(confirm, Decision(status="rejected", decided_by_role="dba", reason="no"))
    submit_plan_for_approval(plan, "agent")
    clock.tick(seconds=45)
    refresh(confirm)
    process_decision(confirm, yes())
    rounds = find_confirm(sayso.Review().store, confirm.confirm_id).rounds
    for sample in (capture_learning_sample(confirm, plan), sample_of(*rounds), sample_of(rounds[0])):
        assert misfits("mplp-learning-sample-core", sample.export()) == []
        assert misfits("mplp-learning-sample-intent", sample.export()) == []
    whole = sample_of(*rounds).export()
    assert (whole["meta"]["clarification_rounds"], whole["meta"]["decision_latency_ms"]) == (1, 90_000)
    with pytest.raises(sayso.ConfirmationRequired) as asked:
        sayso.ask("Which?", wait="raise")
    reviewer().answer(asked.value.confirmation_id, "this one")
    answered = sample_of(sayso.Review().get(asked.value.confirmation_id)).export()
    assert answered["sample_family"] == "confirm_decision"
    assert answered["output"]["answer"] == "this one"
    assert misfits("mplp-learning-sample-core", answered) == []
    assert isinstance(confirm.trace, Trace | None)


def test_what_a_program_says_was_decided_is_in_no_confirm(memory: MemoryStore) -> None:
    plan, confirm, request = submitted()
    said = {"decision_id": id_of("forged"), "status": "approved", "decided_by_role": "cfo", "reason": "Go ahead"}
    said["decided_at"] = "2026-01-01T00:00:00Z"
    event = {"event_id": id_of("event"), "event_type": "confirm.decided", "timestamp": "2026-01-01T00:00:00Z"}
    forged = {"decisions": [said], "events": [event], "status": "approved", "requested_at": "2020-01-01T00:00:00Z"}
    forged |= {"confirm_id": id_of("x"), "target_id": id_of("y"), "governance": {"lifecyclePhase": "draft"}}
    memory._tables().rows[request.id] = replace(request, context={**(request.context or {}), "confirm": forged})
    read = read_confirm(confirm.confirm_id)
    assert (read.status, read.decisions, read.requested_at) == ("pending", [], request.created_at)
    assert (read.confirm_id, read.target_id) == (confirm.confirm_id, plan.plan_id)
    assert [one.event_type for one in read.events or ()] == ["confirm.requested"]
    assert read.governance is not None
    assert read.governance.lifecycle_phase == "draft"
    reviewer().approve(request.id)
    assert [one.decided_by_role for one in read_confirm(plan.plan_id).decisions] == ["ada"]


def test_a_confirm_can_be_read_whatever_a_program_wrote_for_its_reason(memory: MemoryStore) -> None:
    _, confirm, request = submitted()
    context = {**(request.context or {}), "confirm": {"reason": {"a": [1]}, "meta": 7}}
    memory._tables().rows[request.id] = replace(request, context=context)
    assert read_confirm(confirm.confirm_id).reason == request.prompt


@settings(max_examples=100)
@given(texts=st.lists(st.text(max_size=12), min_size=4, max_size=4))
def test_hostile_words_come_through_as_they_were_or_are_refused(texts: list[str]) -> None:
    store = MemoryStore()
    plan = plan_of_three(title=texts[0], objective=texts[1])
    try:
        confirm = submit_plan_for_approval(plan, texts[2], reason=texts[3], store=store)
    except NotConformantError:
        return
    assert read_confirm(confirm.confirm_id, store=store).requested_by_role == texts[2]
    again = Plan.parse(read_plan(plan.plan_id, store=store).export())
    assert (again.title, again.objective) == (texts[0], texts[1])
    assert "\ud800" not in confirm.to_json()
