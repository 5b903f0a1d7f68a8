"""The rules of a Confirm: it is pending until a decision; a rejection may start another round, an approval is final.

`decide` applies them to a document that is in no store; for stored ones `sayso.mplp.flow` checks them and decides the
request.
"""

from __future__ import annotations

from sayso.model.escaping import is_blank
from sayso.model.reviewer import PROGRAM, Identity
from sayso.mplp.confirm import Confirm
from sayso.mplp.document import Event, StageEvent, time_text
from sayso.mplp.plan import ConfirmStatus, Decision, DecisionStatus, FrozenList, Plan, PlanStatus, TargetType
from sayso.mplp.schema import ConfirmLockedError, ConfirmRefusedError, MismatchError, NotConformantError, brief, id_of


def create_confirm(
    target_type: TargetType | str, target_id: str, requested_by_role: str, reason: str | None = None
) -> Confirm:
    """Return a new pending Confirm, which is in no store yet (seed 003, section 6).

    Args:
        target_type: What it is about: `context`, `plan`, `trace`, `extension` or `other`.
        target_id: Which one.
        requested_by_role: Who asks.
        reason: Why.
    """
    return Confirm(
        target_type=TargetType(target_type), target_id=target_id, requested_by_role=requested_by_role, reason=reason
    )


def check_unlocked(confirm: Confirm) -> None:
    """Raise `ConfirmLockedError` for a Confirm that is locked."""
    if confirm.is_locked:
        raise ConfirmLockedError(confirm.confirm_id)


def check_target(confirm: Confirm, target_type: str, target_id: str) -> None:
    """Raise `MismatchError` for a Confirm that is about something else."""
    if confirm.target_type != target_type:
        raise MismatchError(confirm.confirm_id, f"a {confirm.target_type}", f"a {target_type}")
    if confirm.target_id != target_id:
        raise MismatchError(confirm.confirm_id, confirm.target_id, target_id)


def check_decision(confirm: Confirm, decision: Decision) -> None:
    """Raise `ConfirmRefusedError` for a decision that a Confirm cannot take."""
    check_unlocked(confirm)
    if confirm.status is not ConfirmStatus.PENDING:
        last = confirm.decisions[-1] if confirm.decisions else None
        by = "" if last is None else f" by {brief(last.decided_by_role)} at {time_text(last.decided_at)}"
        raise ConfirmRefusedError(confirm.confirm_id, f"{_named(confirm)} was already {confirm.status}{by}")
    if decision.status is DecisionStatus.REJECTED and is_blank(decision.reason or ""):
        raise ConfirmRefusedError(confirm.confirm_id, f"a rejection needs a reason, and {_named(confirm)} got none")
    if any(decision.decision_id == known.decision_id for known in confirm.decisions):
        reason = f"{_named(confirm)} has a decision with the id {brief(decision.decision_id)} already"
        raise ConfirmRefusedError(confirm.confirm_id, reason)


def decide(confirm: Confirm, decision: Decision) -> Event:
    """Record a decision in a Confirm that is in no store, and return the event.

    Raises:
        ConfirmRefusedError: It cannot take the decision, or the role that asked decides.
    """
    check_decision(confirm, decision)
    if _is_own(confirm, decision):
        reason = f"{brief(decision.decided_by_role)} asked for {_named(confirm)}, and who asks does not decide"
        raise ConfirmRefusedError(confirm.confirm_id, reason)
    word = "cancelled" if decision.status is DecisionStatus.CANCELLED else "decided"
    event = Event(
        event_id=id_of("event", confirm.confirm_id, decision.decision_id),
        event_type=f"confirm.{word}",
        timestamp=decision.decided_at,
        data={"confirm_id": confirm.confirm_id, "decision_id": decision.decision_id, "status": str(decision.status)},
    )
    changes = {"status": ConfirmStatus(decision.status), "decisions": FrozenList([*confirm.decisions, decision])}
    confirm.update_from(confirm.model_copy(update=changes))
    return event


def stage_of(confirm: Confirm, decision: Decision, event_id: str) -> StageEvent:
    """Return the pipeline event of a decision about a plan (seed 003, section 4.3)."""
    return StageEvent(
        event_id=event_id,
        event_type="plan_approved" if decision.status is DecisionStatus.APPROVED else "plan_rejected",
        timestamp=decision.decided_at,
        payload={
            "confirm_id": confirm.confirm_id,
            "plan_id": confirm.target_id,
            "decided_by": decision.decided_by_role,
        },
    )


def check_submission(target: Plan | Confirm, confirm: Confirm | None) -> None:
    """Refuse a target or Confirm that cannot be submitted.

    Raises:
        NotConformantError: It does not fit the protocol; the problems name the fields.
        ConfirmRefusedError: It is locked, decided, or about something else.
    """
    if isinstance(target, Plan):
        if target.status not in {PlanStatus.DRAFT, PlanStatus.PROPOSED}:
            reason = f"plan {brief(target.plan_id)} is {target.status}, and only a draft is submitted"
            raise ConfirmRefusedError(target.plan_id, reason)
        target.export()
        if not any(step.description.strip() for step in target.steps):
            raise NotConformantError("Plan", ["/steps: no step says what is to be done"])
    if confirm is None:
        return
    check_unlocked(confirm)
    if isinstance(target, Plan):
        check_target(confirm, TargetType.PLAN, target.plan_id)
    if confirm.status not in {ConfirmStatus.PENDING, ConfirmStatus.REJECTED}:
        reason = f"{_named(confirm)} is {confirm.status} by its own account, which counts for nothing here"
        raise ConfirmRefusedError(confirm.confirm_id, reason)
    confirm.export()


def _is_own(confirm: Confirm, decision: Decision) -> bool:
    """Say whether the deciding role could be the requesting one, by the rule of a store for two names."""
    asked, decided = (" ".join(role.split()) for role in (confirm.requested_by_role, decision.decided_by_role))
    try:
        return Identity(PROGRAM, decided).may_be(Identity(PROGRAM, asked))
    except ValueError:  # no person can have such a name, and in a document it is a name all the same
        return decided == asked


def _named(confirm: Confirm) -> str:
    return f"Confirm {brief(confirm.confirm_id)}"
