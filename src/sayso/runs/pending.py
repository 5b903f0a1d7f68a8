"""What waits, as events and as the dicts in `pending_approvals`: made of the request alone, without the program's code.

So a loaded run, a re-emitted event and the first one say the same. Everything about the call is the masked form.
"""

from __future__ import annotations

from typing import Any

from sayso import clock
from sayso.model.request import Request, State
from sayso.model.schema import Schema
from sayso.runs.events import ApprovalEvent, InteractionEvent, RunStatus

__all__ = [
    "approval_event",
    "approval_note",
    "ended_output",
    "entry_of",
    "event_of",
    "interaction_event",
    "resolution_of",
    "type_of",
    "waiting_output",
]


def _ms(at: Any) -> int:
    return clock.microseconds(at) // 1000


def type_of(kind: str) -> str:
    """Return what a runnable is called; what was written before 0.2 says `tool` for `Tool`."""
    return kind.capitalize() if kind in {"tool", "agent", "workflow"} else kind


def _place_of(request: Request, path: str | None) -> dict[str, Any]:
    facts = request.context or {}
    name = request.call.name if request.kind == "call" else "ask"  # what asked outside of a runnable's own call
    path = path or facts.get("path") or name
    return {
        "run_id": request.run_id,
        "path": path,
        "runnable_path": path,
        "runnable_name": facts.get("runnable_name") or name,
        "runnable_type": type_of(str(facts.get("runnable_type", "function"))),
        "tool_call_id": facts.get("tool_call_id"),
        "t0": _ms(request.created_at),
    }


def approval_event(
    request: Request, note: dict[str, Any] | None = None, path: str | None = None
) -> ApprovalEvent:  # fmt: skip
    """Return the event for a call that waits.

    Args:
        request: It.
        note: What there is to say about it this time.
        path: Of the handler that made the call, where the call does not know.
    """
    facts, call = request.context or {}, request.effective
    return ApprovalEvent(
        **_place_of(request, path),
        approval_id=request.id,
        input=call.arguments,
        input_schema=Schema.from_text(call.schema).json_schema(),
        prompt=request.prompt,
        description=facts.get("description") or request.description,
        kind=facts.get("kind"),
        ui=facts.get("ui"),
        metadata={**facts.get("metadata", {}), "approval": {"expired": False, **(note or {})}},
    )


def interaction_event(
    request: Request, note: dict[str, Any] | None = None, path: str | None = None
) -> InteractionEvent:  # fmt: skip
    """Return the event for a question that waits; see `approval_event`."""
    facts = request.context or {}
    return InteractionEvent(
        **_place_of(request, path),
        interaction_id=request.id,
        kind=facts.get("kind", "suspend"),
        payload=facts.get("payload") or {"question": request.question.text},
        response_schema=facts.get("response_schema"),
        metadata={"interaction": {"expired": False, **(note or {})}},
    )


def event_of(
    request: Request, note: dict[str, Any] | None = None, path: str | None = None
) -> ApprovalEvent | InteractionEvent:  # fmt: skip
    """Return the event for a request that waits; see `approval_event`."""
    return (approval_event if request.kind == "call" else interaction_event)(request, note, path)


def entry_of(event: ApprovalEvent | InteractionEvent) -> dict[str, Any]:
    """Return the event's fields as they stand in a list of what is pending: JSON values."""
    return event.model_dump(mode="json", exclude={"type"})


def approval_note(request: Request) -> dict[str, Any]:
    """Return what is said of a held call under `metadata["approval"]`: what is asked, as people may see it."""
    facts, call = request.context or {}, request.effective
    told = {
        "prompt": request.prompt,
        "description": facts.get("description") or request.description,
        "kind": facts.get("kind"),
        "ui": facts.get("ui"),
        "tool_call_id": facts.get("tool_call_id"),
        "metadata": facts.get("metadata"),
        "effective_input": None if request.edited is None else call.arguments,
    }
    ids = {"id": request.id, "approval_id": request.id, "required": True, "input": call.arguments}
    return {**ids, **{name: value for name, value in told.items() if value is not None}}


def ended_output(status: RunStatus, approval_id: str | None, reason: str | None = None) -> dict[str, Any]:
    """Return what a cancelled call gives instead of a value."""
    return {"approval_id": approval_id, "status": status.reason, "reason": reason}


def waiting_output(event: ApprovalEvent | InteractionEvent) -> dict[str, Any]:
    """Return what a call gives instead of a value while it waits for this."""
    if isinstance(event, ApprovalEvent):
        return {"approval_id": event.approval_id, "status": "approval_required", "prompt": event.prompt}
    told = {"kind": event.kind, "payload": event.payload}
    return {"suspension_id": event.interaction_id, "status": "input_required", **told}


def resolution_of(request: Request) -> dict[str, Any]:
    """Return what was decided, in the words of the approval face, for the record: who, when, why."""
    decision = request.decision
    if decision is None:
        return {}
    return {
        "approved": decision.verb == "approve",
        "decision": decision.verb,
        "approver_id": str(decision.by),
        "reason": decision.comment if decision.verb != "approve" else None,
        "comment": decision.comment,
        "decided_at": _ms(decision.at),
        "expires_at": None if request.approval_expires_at is None else _ms(request.approval_expires_at),
        "channel": decision.channel,
        "override_input": None if request.edited is None else request.edited.arguments,
        "expired": request.state is State.EXPIRED,
    }
