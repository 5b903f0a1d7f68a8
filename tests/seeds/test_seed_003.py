"""The description of the Confirm module, run: its Python example as it stands, and its functions in their order.

The description lies beside the checkout; where it is not there, the first test is skipped, loudly.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import mplp
from sayso.mplp import Confirm, Decision, DecisionStatus, Plan, PlanStep, TargetType, aio
from sayso.mplp.schema import is_id
from sayso.testing import frozen_clock

SEED = Path(__file__).resolve().parents[3] / "shared" / "seeds" / "003_e53a0be12532e1ec.txt"


def new_plan() -> Plan:
    return Plan(title="Fix login", objective="No more 500s", steps=[PlanStep(description="Find the cause")])


@pytest.mark.skipif(not SEED.is_file(), reason="THE DESCRIPTION IS NOT HERE: ../shared/seeds is missing")
def test_the_python_example_runs_when_only_its_classes_are_imported() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", SEED.read_text(encoding="utf-8"), re.DOTALL)
    classes = set(re.findall(r"^class (\w+)\(", block, re.MULTILINE))
    assert classes == {"TargetType", "ConfirmStatus", "DecisionStatus", "Decision", "Confirm"}
    program = block[block.index("confirm = Confirm(") :]
    names: dict[str, Any] = {name: getattr(mplp, name) for name in classes}
    exec(program, names)  # noqa: S102  the description's own text
    confirm = names["confirm"]
    assert isinstance(confirm, Confirm)
    assert (confirm.target_id, confirm.reason) == ("plan-123", "Requesting approval for login fix plan")
    fields = re.findall(r"^    (\w+): ", block[block.index("class Decision(") :], re.MULTILINE)
    assert set(fields) <= {*Confirm.model_fields, *Decision.model_fields}
    for name in ("TargetType", "ConfirmStatus", "DecisionStatus"):
        body = block.partition(f"class {name}")[2].partition("class ")[0]
        members = dict(re.findall(r"^    ([A-Z]+) = '(\w+)'", body, re.MULTILINE))
        assert members
        assert {member.name: member.value for member in getattr(mplp, name)} == members


def test_its_functions_do_what_they_do_there() -> None:
    sayso.configure(store="memory:")
    heard: list[Any] = []
    unsubscribe = mplp.subscribe(heard.append)
    plan = new_plan()
    with frozen_clock():
        confirm = mplp.submit_plan_for_approval(plan, "role-planner-001")
        assert (plan.status, confirm.status) == ("proposed", "pending")
        assert confirm.reason == "Requesting approval for plan: Fix login"
        assert (confirm.target_type, confirm.target_id) == (TargetType.PLAN, plan.plan_id)
        decision = Decision(status=DecisionStatus.APPROVED, decided_by_role="role-reviewer-001", reason="Looks good")
        mplp.process_decision(confirm, decision)
    unsubscribe()
    assert (plan.status, confirm.status, confirm.decisions) == ("approved", "approved", [decision])
    assert heard[-1].event_family == "pipeline_stage"
    assert heard[-1].payload == {
        "confirm_id": confirm.confirm_id, "plan_id": plan.plan_id, "decided_by": "role-reviewer-001",
    }  # fmt: skip
    sample = mplp.capture_learning_sample(confirm, plan).export()
    assert is_id(sample["sample_id"])
    assert sample["sample_family"] == "intent_resolution"
    assert sample["input"]["intent_text"] == plan.objective
    assert sample["output"]["plan_structure"] == [
        step.model_dump(mode="json", exclude_none=True) for step in plan.steps
    ]
    assert sample["feedback"] == {
        "source": "user", "type": "approval", "quality_label": "good", "details": "Looks good",
    }  # fmt: skip


def test_a_rejection_makes_the_plan_editable_again() -> None:
    sayso.configure(store="memory:")
    plan = new_plan()
    confirm = mplp.submit_plan_for_approval(plan, "role-planner-001")
    mplp.process_decision(confirm, Decision(status="rejected", decided_by_role="role-reviewer-001", reason="Too vague"))
    assert (plan.status, confirm.status) == ("draft", "rejected")
    assert mplp.capture_learning_sample(confirm, plan).feedback == {
        "source": "user", "type": "rejection", "quality_label": "poor", "details": "Too vague",
    }  # fmt: skip


def test_a_confirm_is_created_and_decided_without_a_store() -> None:
    confirm = mplp.create_confirm(TargetType.EXTENSION, new_plan().plan_id, "role-planner-001", "New tool")
    mplp.add_decision(confirm, DecisionStatus.REJECTED, "role-reviewer-001", "Not needed")
    assert (confirm.status, confirm.decisions[0].reason) == ("rejected", "Not needed")
    assert confirm.export()["meta"]["protocol_version"] == "1.0.0"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("create_confirm", ["target_type", "target_id", "requested_by_role", "reason"]),
        ("add_decision", ["confirm", "status", "decided_by_role", "reason"]),
        ("submit_plan_for_approval", ["plan", "requested_by"]),
        ("process_decision", ["confirm", "decision"]),
        ("capture_learning_sample", ["confirm", "target"]),
    ],
)
def test_names_and_arguments_are_those_of_the_description(name: str, arguments: list[str]) -> None:
    for face in (mplp, aio):
        parameters = inspect.signature(getattr(face, name)).parameters.values()
        assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == arguments


def test_the_async_functions_are_awaited_as_there() -> None:
    async def program() -> None:
        sayso.configure(store="memory:")
        plan = new_plan()
        confirm = await aio.submit_plan_for_approval(plan, "role-planner-001")
        await aio.process_decision(confirm, Decision(status="approved", decided_by_role="role-reviewer-001"))
        sample = await aio.capture_learning_sample(confirm, plan)
        assert (plan.status, sample.sample_family) == ("approved", "intent_resolution")

    asyncio.run(program())
