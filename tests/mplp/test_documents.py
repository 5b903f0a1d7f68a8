"""Documents of the Confirm protocol: what is taken, what is refused and where, and what leaves."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from sayso.mplp import (
    Confirm,
    ConfirmLockedError,
    ConfirmRefusedError,
    ConfirmStatus,
    Decision,
    DecisionStatus,
    Event,
    Governance,
    LearningSample,
    Meta,
    NotConformantError,
    Plan,
    PlanStep,
    Ref,
    TargetType,
    Trace,
    add_decision,
    create_confirm,
    schema,
)
from sayso.mplp.schema import KINDS, LIMIT_BYTES, id_of, is_id, new_id, uuid4_of
from tests.conftest import Clock
from tests.support.protocol_models import made_schema

CONFIRM, PLAN, OTHER = (f"550e8400-e29b-41d4-a716-44665544052{digit}" for digit in "012")


def confirm_json(**fields: Any) -> dict[str, Any]:
    return {
        "meta": {"protocol_version": "1.0.0", "schema_version": "1.0.0"},
        "confirm_id": CONFIRM,
        "target_type": "plan",
        "target_id": PLAN,
        "status": "pending",
        "requested_by_role": "agent",
        "requested_at": "2025-12-01T12:01:00.000Z",
        **fields,
    }


def decision_json(**fields: Any) -> dict[str, Any]:
    at = {"decided_by_role": "dba", "decided_at": "2025-12-01T12:05:00.000Z"}
    return {"decision_id": OTHER, "status": "rejected", **at, **fields}


def plan_json(*steps: dict[str, Any]) -> dict[str, Any]:
    meta = {"protocol_version": "1.0.0", "schema_version": "1.0.0"}
    text = {"title": "T", "objective": "O", "status": "draft"}
    return {"meta": meta, "plan_id": PLAN, "context_id": OTHER, **text, "steps": list(steps)}


def problems(given: Any, *, strict: bool = True, kind: type[Any] = Confirm) -> list[str]:
    with pytest.raises(NotConformantError) as caught:
        kind.parse(given, strict=strict)
    return list(caught.value.problems)


# -- in Python -----------------------------------------------------------------------------------------------------


def test_the_example_of_the_description_runs_as_it_stands() -> None:
    confirm = Confirm(
        target_type=TargetType.PLAN,
        target_id="plan-123",
        requested_by_role="role-planner-001",
        reason="Requesting approval for login fix plan",
    )
    assert confirm.status is ConfirmStatus.PENDING
    assert confirm.decisions == []
    assert is_id(confirm.confirm_id)
    decision = Decision(status=DecisionStatus.APPROVED, decided_by_role="role-reviewer-001")
    assert is_id(decision.decision_id)
    assert decision.reason is None


def test_what_can_be_filled_in_is(clock: Clock) -> None:
    confirm = create_confirm("plan", PLAN, "agent")
    assert confirm.export() == confirm_json(
        confirm_id=confirm.confirm_id,
        meta={"protocol_version": "1.0.0", "schema_version": "1.0.0", "created_at": "2026-01-01T12:00:00.000Z"},
        requested_at="2026-01-01T12:00:00.000Z",
    )


def test_what_cannot_be_conformant_is_refused_at_export_by_its_name() -> None:
    confirm = create_confirm("plan", "plan-123", "agent")
    with pytest.raises(NotConformantError, match="/target_id: 'plan-123' is not a UUID v4") as caught:
        confirm.export()
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_a_time_without_a_zone_is_refused_at_export() -> None:
    naive = datetime(2026, 1, 1, 12)  # noqa: DTZ001  which is the point
    confirm = Confirm(target_type="plan", target_id=PLAN, requested_by_role="agent", requested_at=naive)
    with pytest.raises(NotConformantError, match=r"/requested_at: .* has no time zone"):
        confirm.export()


def test_times_leave_in_utc_or_with_their_offset() -> None:
    for zone, text in (
        (UTC, "2026-01-01T12:00:00.000Z"),
        (timezone(timedelta(hours=2)), "2026-01-01T12:00:00.000+02:00"),
    ):
        confirm = create_confirm("plan", PLAN, "agent")
        confirm.requested_at = datetime(2026, 1, 1, 12, tzinfo=zone)
        assert confirm.export()["requested_at"] == text


def test_every_field_comes_back_equal() -> None:
    whole = confirm_json(
        meta={
            "protocol_version": "1.0.0", "schema_version": "2.0.0", "created_at": "2025-12-01T12:00:00.000Z",
            "created_by": "a", "updated_at": "2025-12-01T12:00:00.123456Z", "updated_by": "b", "tags": ["x", "y"],
            "cross_cutting": ["security", "error-handling"],
        },
        governance={
            "lifecyclePhase": "review", "truthDomain": "plans", "locked": False,
            "lastConfirmRef": {"id": PLAN, "module": "confirm", "description": "before"},
        },
        reason="because",
        decisions=[decision_json(reason="no")],
        trace={
            "trace_id": PLAN, "span_id": OTHER, "parent_span_id": CONFIRM, "context_id": PLAN, "attributes": {"a": [1]},
        },
        events=[
            {
                "event_id": OTHER, "event_type": "confirm.requested", "source": "confirm",
                "timestamp": "2025-12-01T12:00:00.000Z", "trace_id": PLAN, "data": None,
            },
        ],
    )  # fmt: skip
    assert Confirm.parse(json.dumps(whole)).export() == whole
    assert Confirm.parse(whole) == Confirm.parse(json.dumps(whole).encode())
    step = {
        "step_id": OTHER, "description": "d", "status": "pending", "dependencies": [], "agent_role": "r",
        "order_index": 0,
    }  # fmt: skip
    assert Plan.parse(plan_json(step)).export() == plan_json(step)


def test_governance_is_named_by_either_spelling() -> None:
    assert Governance(lifecycle_phase="review") == Governance(lifecyclePhase="review")  # type: ignore[call-arg]


def test_a_confirm_is_copied_and_pickled_with_what_it_holds() -> None:
    confirm = Confirm.parse(confirm_json(decisions=[decision_json()]))
    assert copy.deepcopy(confirm) == confirm == pickle.loads(pickle.dumps(confirm))


# -- lifecycle of a document ---------------------------------------------------------------------------------------


def test_a_decision_ends_the_wait(clock: Clock) -> None:
    for status in DecisionStatus:
        confirm = create_confirm("extension", PLAN, "agent")
        add_decision(confirm, status, "dba", "because")
        assert confirm.status == status
        assert [(d.status, d.decided_by_role, d.reason) for d in confirm.decisions] == [(status, "dba", "because")]


def test_a_second_decision_is_refused() -> None:
    confirm = create_confirm("extension", PLAN, "agent")
    add_decision(confirm, "approved", "dba")
    with pytest.raises(ConfirmRefusedError, match="was already approved by 'dba'"):
        add_decision(confirm, "rejected", "eve", "no")
    assert confirm.status == "approved"
    assert len(confirm.decisions) == 1


@pytest.mark.parametrize("reason", [None, "", " \n", "\u200b", "\u2800 \x00\u00a0"])
def test_a_rejection_without_a_reason_is_refused(reason: str | None) -> None:
    confirm = create_confirm("extension", PLAN, "agent")
    with pytest.raises(ConfirmRefusedError, match="needs a reason"):
        add_decision(confirm, "rejected", "dba", reason)
    assert confirm.status == "pending"


def test_a_locked_confirm_refuses_every_change() -> None:
    confirm = create_confirm("extension", PLAN, "agent")
    confirm.governance = Governance(locked=True)
    with pytest.raises(ConfirmLockedError, match="locked"):
        add_decision(confirm, "approved", "dba")
    with pytest.raises(ConfirmLockedError):
        confirm.reason = "another"
    confirm.governance = Governance(locked=False)
    add_decision(confirm, "approved", "dba")
    assert confirm.status == "approved"


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ("append", (1,)), ("extend", ([1],)), ("insert", (0, 1)), ("pop", ()), ("remove", (1,)), ("clear", ()),
        ("sort", ()), ("reverse", ()), ("__setitem__", (0, 1)), ("__delitem__", (0,)), ("__iadd__", ([1],)),
        ("__imul__", (2,)),
    ],
)  # fmt: skip
def test_the_lists_of_a_confirm_do_not_change_in_place(change: str, given: tuple[Any, ...]) -> None:
    confirm = Confirm.parse(confirm_json(decisions=[decision_json(reason="no")], events=[]))
    decided = create_confirm("extension", PLAN, "agent")
    add_decision(decided, "rejected", "dba", "no")
    for one in (confirm, decided, copy.deepcopy(confirm), pickle.loads(pickle.dumps(confirm))):
        before = list(one.decisions)
        for held in (one.decisions, create_confirm("plan", PLAN, "agent").decisions):
            with pytest.raises(TypeError, match="nothing was"):
                getattr(held, change)(*given)
        assert one.decisions == before


@pytest.mark.parametrize("role", ["agent", "Agent", "  agent ", "\uff41gent", "agent@host"])
def test_the_role_that_asked_decides_no_document(role: str) -> None:
    confirm = create_confirm("extension", PLAN, "agent")
    with pytest.raises(ConfirmRefusedError, match="and cannot decide it"):
        add_decision(confirm, "approved", role)
    assert (confirm.status, confirm.decisions) == ("pending", [])


def test_a_role_that_nobody_could_have_is_compared_as_it_stands() -> None:
    confirm = create_confirm("extension", PLAN, "\u200b")
    with pytest.raises(ConfirmRefusedError, match="and cannot decide it"):
        add_decision(confirm, "approved", "\u200b")
    add_decision(confirm, "approved", "\u200c")
    assert confirm.status == "approved"


def test_a_status_is_never_assigned() -> None:
    confirm, plan = create_confirm("plan", PLAN, "agent"), Plan.parse(plan_json(step("a")))
    with pytest.raises(ConfirmRefusedError, match="follows from decisions"):
        confirm.status = ConfirmStatus.APPROVED
    for status in ("approved", "in_progress", "proposed"):
        with pytest.raises(ConfirmRefusedError, match="follows from decisions and starts"):
            plan.status = status  # type: ignore[assignment]
    assert (confirm.status, plan.status) == ("pending", "draft")


def step(name: str, **fields: Any) -> dict[str, Any]:
    return {"step_id": id_of("test", name), "description": name, "status": "pending", **fields}


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"status": "WRONG_STATUS"}, "/status: 'WRONG_STATUS' is not one of pending, approved, rejected, cancelled"),
        ({"confirm_id": "123e4567-e89b-12d3-a456-426614174000"}, "/confirm_id: '123e4567"),
        ({"confirm_id": CONFIRM.upper()}, "/confirm_id: '550E8400"),
        ({"confirm_id": CONFIRM + "\n"}, "/confirm_id: '550e8400"),
        ({"requested_at": "2025-12-01T12:01:00"}, "/requested_at: '2025-12-01T12:01:00' has no time zone"),
        ({"requested_at": "2025-02-30T12:01:00Z"}, "/requested_at: '2025-02-30T12:01:00Z' is not a date"),
        ({"requested_at": "yesterday"}, "/requested_at: 'yesterday' is not a date and time"),
        ({"requested_at": 1764590460}, '/requested_at: 1764590460 is not of type "string"'),
        ({"reason": None}, '/reason: null is not of type "string"'),
        ({"reason": 5}, '/reason: 5 is not of type "string"'),
        ({"decisions": {}}, '/decisions: an object is not of type "array"'),
        ({"decisions": [decision_json(status="pending")]}, "/decisions/0/status: 'pending' is not one of approved"),
        ({"decisions": [decision_json(), decision_json()]}, "/decisions/1/decision_id: "),
        ({"meta": []}, '/meta: a list is not of type "object"'),
        ({"meta": {"protocol_version": "1"}}, "/meta/schema_version: is missing"),
        ({"meta": {"protocol_version": "1.0.0", "schema_version": "1.0.0", "tags": ["a", "a"]}}, "/meta/tags: a list"),
        ({"governance": {"locked": "yes"}}, "/governance/locked: 'yes' is not of type"),
        ({"a/b~c": 1}, "/a~1b~0c: is not a field of the protocol"),
        ({"reason": "half \ud800"}, "/reason: a string has a lone surrogate"),
        ({"trace": {"trace_id": PLAN, "span_id": OTHER, "attributes": {"x": {1}}}}, "/trace: a set cannot be written"),
        ({"trace": {"trace_id": PLAN, "span_id": OTHER, "attributes": {"x": 10**9999}}}, "/trace: Exceeds"),
        ({"trace": {"trace_id": PLAN, "span_id": OTHER, "attributes": {"x": float("nan")}}}, "/trace: Out of"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(fields: dict[str, Any], problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(confirm_json(**fields))), problems(
        confirm_json(**fields)
    )


def test_all_that_is_wrong_is_named_at_once() -> None:
    wrong = confirm_json(status="x", target_type="y", requested_at="z")
    del wrong["confirm_id"]
    assert [found.partition(":")[0] for found in problems(wrong)] == [
        "/confirm_id", "/target_type", "/status", "/requested_at",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "/: is not JSON"),
        ("[]", "/: is a list, not an object"),
        ("null", "/: is null, not an object"),
        ('{"a": 1, "a": 2}', "/: is not JSON: an object has a duplicate key"),
        ('{"a": NaN}', "/: is not JSON: NaN is not a number"),
        ('{"a": %s}' % ("9" * 5000), "/: is not JSON: a number has too many digits"),
        ('{"a": "\\ud800"}', "/: is not JSON: a string has a lone surrogate"),
        ('{"\\ud800": 1}', "/: is not JSON: a string has a lone surrogate"),
        ("[" * 100_000, "/: is n"),
        ('{"a":' * 100 + "1" + "}" * 100, "/: is not JSON: it is nested deeper than 64 levels"),
        ("x" * 10_000_000, "/: is larger than 4,194,304 bytes (10,000,000)"),
        (b'{"a": "\xff"}', "/: is not UTF-8 (byte 7)"),
    ],
)
def test_what_is_no_document_is_refused(text: str | bytes, problem: str) -> None:
    for kind in (Confirm, Plan, LearningSample):
        assert problems(text, kind=kind)[0].startswith(problem)


def test_a_large_document_is_refused_before_it_is_read() -> None:
    assert problems(json.dumps(confirm_json(reason="x" * LIMIT_BYTES)))[0].startswith("/: is larger")


def test_a_document_full_of_faults_gives_a_list_that_ends() -> None:
    assert len(problems(confirm_json(decisions=[{}] * 10_000))) == 100


def test_what_is_quoted_cannot_disguise_itself() -> None:
    hidden = "\x1b[31m\u202e\u200b"
    told = "\n".join(problems(confirm_json(status=hidden * 50, **{f"{hidden}\n": 1})))
    assert not set(hidden.replace("[31m", "")) & set(told)
    assert "\\u202e" in told
    assert len(told) < 3_000


def test_steps_need_ids_of_their_own_and_dependencies_that_exist() -> None:
    twice = plan_json(step("a"), step("a"))
    assert problems(twice, kind=Plan)[0].startswith("/steps/1/step_id: ")
    lost = plan_json(step("a", dependencies=[OTHER]))
    assert problems(lost, kind=Plan)[0].startswith("/steps/0/dependencies/0: there is no step")
    assert problems(plan_json(), kind=Plan) == ["/steps: a list has less than 1 item"]
    assert problems(plan_json(step("a", order_index=-1)), kind=Plan) == [
        "/steps/0/order_index: -1 is less than the minimum of 0"
    ]


# -- other spellings -----------------------------------------------------------------------------------------------


EXAMPLE = {
    "meta": {"protocolVersion": "1.0.0", "source": "mplp-runtime"},
    "confirm_id": "confirm-550e8400-e29b-41d4-a716-446655440004",
    "target_type": "plan",
    "target_id": "plan-550e8400-e29b-41d4-a716-446655440001",
    "status": "approved",
    "requested_by_role": "role-planner-001",
    "requested_at": "2025-12-07T00:00:00.000Z",
    "reason": "Requesting approval to fix login 500 error",
    "decisions": [
        {
            "decision_id": "decision-001",
            "status": "approved",
            "decided_by_role": "role-reviewer-001",
            "decided_at": "2025-12-07T00:05:00.000Z",
            "reason": "Plan looks good, approved for execution",
        }
    ],
}


def test_the_complete_example_of_the_description_is_taken_and_what_was_changed_is_told() -> None:
    confirm = Confirm.parse(EXAMPLE, strict=False)
    assert confirm.confirm_id == "550e8400-e29b-41d4-a716-446655440004"
    assert confirm.target_id == "550e8400-e29b-41d4-a716-446655440001"
    assert confirm.decisions[0].decision_id == id_of("id", "decision-001")
    assert [change.partition(":")[0] for change in confirm.changes] == [
        "/meta/protocolVersion", "/meta/source", "/confirm_id", "/target_id", "/decisions/0/decision_id",
        "/meta/schema_version",
    ]  # fmt: skip
    assert Confirm.parse(confirm.export()).changes == ()
    assert [found.partition(":")[0] for found in problems(EXAMPLE)] == [
        "/meta/protocol_version", "/meta/schema_version", "/meta/protocolVersion", "/meta/source", "/confirm_id",
        "/target_id", "/decisions/0/decision_id",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        (
            {"requested_at": "2025-12-07 00:00:00"},
            "/requested_at: '2025-12-07 00:00:00' was read as 2025-12-07T00:00:00Z",
        ),
        ({"confirm_id": CONFIRM.upper()}, f"/confirm_id: '{CONFIRM.upper()}' was read as {CONFIRM}"),
        ({"reason": None}, "/reason: was null, and left out"),
        ({"requestedAt": "2025-12-07T00:00:00Z"}, "/requestedAt: dropped, because requested_at is present"),
        ({"governance": {"lifecycle_phase": "x"}}, "/governance/lifecycle_phase: read as lifecyclePhase"),
        ({"$comment": "hello"}, "/$comment: dropped, it is not a field of the protocol"),
    ],
)
def test_other_spellings_are_read_as_what_they_mean(fields: dict[str, Any], change: str) -> None:
    assert change in Confirm.parse(confirm_json(**fields), strict=False).changes
    problems(confirm_json(**fields))


def test_an_id_that_points_elsewhere_is_never_replaced() -> None:
    assert problems(confirm_json(target_id="plan-123"), strict=False)[0].startswith("/target_id: 'plan-123'")


def test_what_is_wrong_in_meaning_is_refused_in_every_spelling() -> None:
    assert problems(confirm_json(status="maybe"), strict=False)[0].startswith("/status: ")


# -- schemas and ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_shipped_schema_is_the_one_that_its_model_gives(kind: str) -> None:
    assert schema(kind) == made_schema(kind)


def test_there_is_no_schema_of_anything_else() -> None:
    with pytest.raises(KeyError, match="unknown schema 'trace'"):
        schema("trace")


def test_ids_have_the_one_form_and_keep_what_they_are_made_of() -> None:
    assert all(is_id(one) for one in (new_id(), id_of("a", 1), uuid4_of("0" * 32), uuid4_of("f" * 32)))
    assert uuid4_of(CONFIRM.replace("-", "")) == CONFIRM
    assert id_of("a", "b") != id_of("a\n1:b")
    assert id_of("\ud800") == id_of("\ud800")


def test_parts_do_not_change() -> None:
    part: Any
    for part, name in (
        (Decision(status="approved", decided_by_role="a"), "status"), (PlanStep(description="d"), "description"),
        (Ref(id=PLAN, module="plan"), "id"), (Event(event_type="a", data={}), "data"), (Meta(), "tags"),
        (Trace(trace_id=PLAN, span_id=PLAN), "trace_id"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="frozen"):
            setattr(part, name, None)


def test_the_protocol_is_not_loaded_with_sayso() -> None:
    program = "import sayso, sys; print([name for name in sys.modules if name.startswith(('sayso.mplp', 'pydantic'))])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
