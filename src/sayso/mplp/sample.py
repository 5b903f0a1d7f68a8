"""What can be learned from a decision: samples of the protocol's core schema.

Plans give samples of the family `intent_resolution`, calls and questions of `confirm_decision`. All of it is read from
what is given, nothing from a store. Invariant: values that people may not see are masked here, too.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field

from sayso import clock
from sayso.model import canonical
from sayso.model.call import Call
from sayso.model.redaction import Redaction
from sayso.model.request import Request
from sayso.mplp.confirm import Confirm
from sayso.mplp.document import Document, Part
from sayso.mplp.fault import MismatchError
from sayso.mplp.ids import id_of, new_id
from sayso.mplp.plan import Plan
from sayso.mplp.status import ConfirmStatus

__all__ = ["FeedbackLabel", "LearningSample", "SampleMeta", "sample_of", "sample_of_plan", "sample_of_request"]


class FeedbackLabel(StrEnum):
    """What people made of it."""

    APPROVED = "approved"
    REJECTED = "rejected"
    NOT_REVIEWED = "not_reviewed"


class SampleMeta(Part):
    """Labels and sources of a sample; more may be added."""

    model_config = ConfigDict(extra="allow")

    source_flow_id: str | None = None
    source_event_ids: list[str] | None = None
    project_id: str | None = None
    human_feedback_label: FeedbackLabel | None = None
    quality_score: float | None = None


_LABELS = {
    ConfirmStatus.APPROVED: ("approval", "good", "good", FeedbackLabel.APPROVED),
    ConfirmStatus.REJECTED: ("rejection", "poor", "bad", FeedbackLabel.REJECTED),
    ConfirmStatus.CANCELLED: ("cancellation", "unknown", "unknown", FeedbackLabel.NOT_REVIEWED),
    ConfirmStatus.PENDING: ("none", "unknown", "unknown", FeedbackLabel.NOT_REVIEWED),
}


class LearningSample(Document):
    """One sample. The protocol lets fields be added; `feedback` is one that its Confirm module adds."""

    model_config = ConfigDict(extra="allow")

    sample_id: str = Field(default_factory=new_id)
    sample_family: str
    created_at: datetime = Field(default_factory=clock.now)
    input: dict[str, Any]
    state: dict[str, Any] | None = None
    output: dict[str, Any]
    feedback: dict[str, Any] | None = None
    meta: SampleMeta | None = None


def sample_of_plan(confirm: Confirm, plan: Plan, *, context: dict[str, Any] | None = None) -> LearningSample:
    """Return what a Confirm says about a plan: whether it was the right answer to its objective.

    Args:
        confirm: The Confirm.
        plan: Its plan, as approved or as proposed.
        context: What is known of the plan's context; its id alone when not given.

    Raises:
        MismatchError: The Confirm is about something else.
    """
    if confirm.target_id != plan.plan_id:
        raise MismatchError(confirm.confirm_id, confirm.target_id, plan.plan_id)
    steps = [step.model_dump(mode="json", exclude_none=True) for step in plan.steps]
    masked = _masked({"objective": plan.objective, "title": plan.title, "steps": steps, "context": context})
    _, _, resolution, _ = _LABELS[confirm.status]
    return LearningSample(
        sample_id=_sample_id(confirm),
        sample_family="intent_resolution",
        input={
            "intent_id": plan.plan_id,
            "intent_text": masked["objective"],
            "raw_request_summary": masked["objective"],
            "context": masked["context"] or {"context_id": plan.context_id},
        },
        output={
            "final_intent_summary": masked["title"],
            "plan_structure": masked["steps"],
            "plan_id": plan.plan_id,
            "plan_step_count": len(steps),
            "resolution_quality_label": resolution,
        },
        feedback=_feedback(confirm),
        meta=_meta(confirm, clarification_rounds=_rounds(confirm) - 1),
    )


def sample_of(request: Request, *rounds: Request) -> LearningSample:
    """Return what the decision about a request says; of a plan, about all its rounds.

    Pure: the same requests give the same sample, also its id and instant.
    """
    from sayso.mplp.view import confirm_of, facts_of, plan_of

    asked = (request, *rounds)
    confirm, last = confirm_of(asked), asked[-1]
    at = {"created_at": last.created_at if last.decision is None else last.decision.at}
    if facts_of(request) is not None and confirm.target_type == "plan" and last.purged_at is None:
        return sample_of_plan(confirm, plan_of(asked)).model_copy(update=at)
    return sample_of_request(confirm, last).model_copy(update=at)


def sample_of_request(confirm: Confirm, request: Request) -> LearningSample:
    """Return what a Confirm says about a call or question: what was proposed, and what became of it."""
    subject, last = request.subject, confirm.decisions[-1] if confirm.decisions else None
    given: dict[str, Any] = {"confirm_id": confirm.confirm_id, "kind": request.kind, "risk": request.risk}
    made: dict[str, Any] = {
        "final_status": str(confirm.status),
        "state": str(request.state),
        "decision_rounds": _rounds(confirm),
        "rejection_reason": last.reason if last is not None and last.status == "rejected" else None,
        "decider_role": None if last is None else last.decided_by_role,
    }
    if isinstance(subject, Call):
        given |= {"tool": subject.tool, "proposed": subject.arguments}
        is_yes = request.decision is not None and request.decision.verb == "approve"
        made |= {"is_edited": request.edited is not None, "approved": request.effective.arguments if is_yes else None}
    else:
        given |= {"question": subject.text}
        made |= {"answer": _answer(request)}
    return LearningSample(
        sample_id=_sample_id(confirm),
        sample_family="confirm_decision",
        input={name: value for name, value in given.items() if value is not None},
        state={"quorum": request.quorum.count, "roles": sorted(request.quorum.roles)},
        output=made,
        feedback=_feedback(confirm),
        meta=_meta(confirm),
    )


def _sample_id(confirm: Confirm) -> str:
    return id_of("sample", confirm.confirm_id, len(confirm.decisions), confirm.status)


def _rounds(confirm: Confirm) -> int:
    """Return how often it was asked: each no before the end began another round."""
    noes = sum(decision.status == "rejected" for decision in confirm.decisions)
    return noes if noes and confirm.status is ConfirmStatus.REJECTED else noes + 1


def _feedback(confirm: Confirm) -> dict[str, Any]:
    kind, quality, _, _ = _LABELS[confirm.status]
    reason = confirm.decisions[-1].reason if confirm.decisions else None
    return {"source": "user", "type": kind, "quality_label": quality} | ({} if reason is None else {"details": reason})


def _meta(confirm: Confirm, **more: Any) -> SampleMeta:
    if confirm.decisions:
        waited = confirm.decisions[-1].decided_at - confirm.requested_at
        more["decision_latency_ms"] = int(waited.total_seconds() * 1000)
    events = [event.event_id for event in confirm.events or ()]
    return SampleMeta(human_feedback_label=_LABELS[confirm.status][3], source_event_ids=events, **more)


def _masked(values: dict[str, Any]) -> dict[str, Any]:
    tree: Any = Redaction().mask(values)
    return tree


def _answer(request: Request) -> Any:
    if request.decision is None or request.decision.answer is None:
        return None
    tree: Any = canonical.display(Redaction(request.redact).mask(canonical.load(request.decision.answer)))
    return tree["answer"]
