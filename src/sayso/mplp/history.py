"""What a store knows of a Confirm: its requests, by any id that names it, and the learning samples of decisions.

Nothing here writes. The requests of a target are in the run `plan:ID` (or `extension:ID`, ...). The events of a Confirm
are in the journal of the run `confirm:ID`, whose first row names the target. The Confirm of any other request has an id
derived from the request's id.

Samples have the form that the protocol's core schema defines. Plans give samples of the family `intent_resolution`, and
calls and questions of `confirm_decision`. A call's secrets are masked in all texts, whoever wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import ConfigDict, Field

from sayso import clock, errors
from sayso.model import canonical, lifecycle, redaction
from sayso.model.journal import detail_of
from sayso.model.redaction import Redaction
from sayso.model.request import Call, Request, State
from sayso.model.text import storable
from sayso.mplp.confirm import Confirm, confirm_id_of, confirm_of, plan_of, round_facts, run_of
from sayso.mplp.document import ConfirmStatus, Document, FrozenList, Part, Plan, time_now, time_text
from sayso.mplp.schema import ConfirmNotFoundError, MismatchError, id_of, is_id, new_id
from sayso.reviews import Review
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in, rows_of

_MATCHING_DIGITS = 12  # the hexadecimal digits of a derived id that equal those of the request's id


class StoredConfirm(NamedTuple):
    """One Confirm in a store.

    Attributes:
        rounds: Its requests in their current state, oldest first; at least one.
        names: The ids and roles that programs gave its decisions.
        recorded_events: The ids of its events in the journal.
    """

    rounds: tuple[Request, ...]
    names: Mapping[str, tuple[str, str]]
    recorded_events: frozenset[str]

    @property
    def last(self) -> Request:
        """The request of the newest round."""
        return self.rounds[-1]

    @property
    def confirm(self) -> Confirm:
        """The Confirm."""
        return confirm_of(self.rounds, self.names)

    @property
    def plan(self) -> Plan:
        """The plan; raises `ValueError` if the target is not a plan."""
        return plan_of(self.rounds)


def journal_run_of(confirm_id: str) -> str:
    """Return the id of the run whose journal has the events of a Confirm."""
    return f"confirm:{confirm_id}"


def requests_of(store: Store, run_id: str) -> list[Request]:
    """Return all requests of a run, oldest first; overdue ones are expired even if that is not recorded yet."""
    return [_as_of_now(request) for request in requests_in(store, Filter(run_id=run_id))]


def find_confirm(store: Store, wanted: str) -> StoredConfirm:
    """Return the Confirm with this id, or whose plan or request has this id.

    Raises:
        ConfirmNotFoundError: There is no such Confirm.
        AmbiguousIdError: The prefix of a request's id matches several requests.
    """
    if is_id(wanted):
        targets = ((detail.get("target_type"), detail.get("target_id")) for _, detail in _rows(store, wanted))
        run_id = next((run_of(a, b) for a, b in targets if isinstance(a, str) and isinstance(b, str)), None)
        request = None
        if run_id is None:  # it may be the id that is derived from a request's own
            alike = map(store.get, store.match(f"rq_{wanted.replace('-', '')[:_MATCHING_DIGITS]}"))
            request = next((_as_of_now(one) for one in alike if confirm_id_of(one) == wanted), None)
    else:
        try:
            run_id, request = None, _as_of_now(store.get(Review(store).find(wanted)))
        except errors.RequestNotFoundError:
            raise ConfirmNotFoundError(wanted) from None
    if request is not None and round_facts(request) is None:
        return StoredConfirm((request,), {}, frozenset())
    if request is not None:
        wanted, run_id = confirm_id_of(request), request.run_id
    if run_id is None:
        return find_plan(store, wanted)
    found = _rounds_of(requests_of(store, run_id), wanted)
    if not found:
        raise ConfirmNotFoundError(wanted)
    return _load(store, found)


def find_plan(store: Store, plan_id: str) -> StoredConfirm:
    """Return the newest Confirm about a plan; raise `ConfirmNotFoundError` if the plan was never submitted."""
    found = find_target(store, "plan", plan_id)
    if found is None:
        raise ConfirmNotFoundError(plan_id)
    return found


def find_target(store: Store, target_type: str, target_id: str) -> StoredConfirm | None:
    """Return the newest Confirm about a target; None if the target was never submitted."""
    rounds = [
        request for request in requests_of(store, run_of(target_type, target_id)) if round_facts(request) is not None
    ]
    return _load(store, _rounds_of(rounds, confirm_id_of(rounds[-1]))) if rounds else None


def _load(store: Store, rounds: list[Request]) -> StoredConfirm:
    names: dict[str, tuple[str, str]] = {}
    recorded = set[str]()
    for event, detail in _rows(store, confirm_id_of(rounds[0])):
        match event, detail:
            # A server does not accept such rows from programs, which could change the role of a person's decision.
            case "confirm.decision", {"of": str(own), "decision_id": str(decision_id), "decided_by_role": str(role)}:
                names[own] = decision_id, role
            case _:
                recorded.add(str(detail.get("event_id")))
    return StoredConfirm(tuple(rounds), names, frozenset(recorded))


def _rounds_of(requests: list[Request], confirm_id: str) -> list[Request]:
    """Return the rounds of a Confirm, without requests withdrawn in favour of another one of the same round."""
    rounds: dict[str, Request] = {}
    for request in requests:
        if round_facts(request) is None or confirm_id_of(request) != confirm_id:
            continue
        other = rounds.get(request.place)
        if other is None or _is_withdrawn(other) or not _is_withdrawn(request):
            rounds[request.place] = request
    return list(rounds.values())


def _is_withdrawn(request: Request) -> bool:
    return request.state is State.CANCELLED and not request.holds


def _as_of_now(request: Request) -> Request:
    change = lifecycle.expire(request, clock.now())
    return request if change is None else change.request


def _rows(store: Store, confirm_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with suppress(errors.RunNotFoundError):  # a server hides runs that another program created
        for entry in rows_of(store, run_id=journal_run_of(confirm_id)):
            if detail := detail_of(entry.detail):  # skip altered rows, which `sayso log --verify` finds
                yield entry.event, detail


redaction_of = lru_cache(maxsize=256)(Redaction)
"""Return a `Redaction` that also masks a gate's names; it is cached because many requests share one."""


def secrets_of(request: Request) -> frozenset[str]:
    """Return the secret texts of a call: values under secret names, and texts that the gate's redactor removed."""
    found = frozenset[str]()
    for call in (request.subject, request.edited):
        if not isinstance(call, Call) or call.masked is None:
            continue
        redaction, tree, shown = redaction_of(request.redact), canonical.load(call.form), call.masked
        # A canonical form escapes quotes, backslashes and line feeds like JSON.
        texts = {text for text in redaction.texts(tree) if json.dumps(text, ensure_ascii=False)[1:-1] not in shown}
        found |= redaction.secrets(tree) | {text for text in texts if text not in shown}
    return found


def mask_secrets(made: dict[str, Any], places: Sequence[tuple[str, str]], secrets: Collection[str]) -> dict[str, Any]:
    """Return JSON values with secrets masked in every text at the given places.

    Args:
        places: Pairs of a name in `made` and a name below it, where texts of people or programs are.
    """
    result = dict(made)
    for part, name in places if secrets else ():
        if name in made[part]:
            result[part] = result[part] | {name: storable(redaction.scrubbed(made[part][name], secrets))}
    return result


class FeedbackLabel(StrEnum):
    """How people judged the subject of a sample."""

    APPROVED = "approved"
    REJECTED = "rejected"
    NOT_REVIEWED = "not_reviewed"


class SampleMeta(Part):
    """Labels and sources of a sample; further fields are allowed."""

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


# Where a sample contains texts of people and programs; all its other texts are ours.
_TEXTS = (
    ("input", "tool"), ("input", "risk"), ("input", "proposed"), ("input", "question"),
    ("output", "approved"), ("output", "answer"), ("output", "decider_role"), ("output", "rejection_reason"),
    ("feedback", "details"),
)  # fmt: skip
_TEXTS_OF_PLAN = (
    ("input", "intent_text"), ("input", "raw_request_summary"), ("input", "context"),
    ("output", "final_intent_summary"), ("output", "plan_structure"), ("feedback", "details"),
)  # fmt: skip
_ORDER = ("sample_id", "sample_family", "created_at", "input", "state", "output", "feedback", "meta")


class LearningSample(Document):
    """One sample. The protocol allows additional fields; its Confirm module adds `feedback`."""

    kind = "learning-sample"
    model_config = ConfigDict(extra="allow")

    sample_id: str = Field(default_factory=new_id)
    sample_family: str
    created_at: datetime = Field(default_factory=time_now)
    input: dict[str, Any]
    state: dict[str, Any] | None = None
    output: dict[str, Any]
    feedback: dict[str, Any] | None = None
    meta: SampleMeta | None = None


def capture_learning_sample(
    confirm: Confirm, target: Plan | Request, *, context: dict[str, Any] | None = None
) -> LearningSample:
    """Return the learning sample of a decision (seed 003, section 5).

    Args:
        confirm: The Confirm.
        target: The plan of the Confirm, or the request of its call or question.
        context: The known facts about a plan's context; by default only its id.

    Raises:
        MismatchError: The Confirm is about another target.
    """
    is_plan = isinstance(target, Plan)
    return LearningSample(**(_plan_sample(confirm, target, context) if is_plan else _request_sample(confirm, target)))


def _plan_sample(confirm: Confirm, plan: Plan, context: dict[str, Any] | None) -> dict[str, Any]:
    if confirm.target_id != plan.plan_id:
        raise MismatchError(confirm.confirm_id, confirm.target_id, plan.plan_id)
    steps = [step.model_dump(mode="json", exclude_none=True) for step in plan.steps]
    given: dict[str, Any] = {"objective": plan.objective, "title": plan.title, "steps": steps, "context": context}
    masked: Any = Redaction().mask(given)
    made: dict[str, Any] = {
        "sample_id": _sample_id(confirm),
        "sample_family": "intent_resolution",
        "input": {
            "intent_id": plan.plan_id,
            "intent_text": masked["objective"],
            "raw_request_summary": masked["objective"],
            "context": masked["context"] or {"context_id": plan.context_id},
        },
        "output": {
            "final_intent_summary": masked["title"],
            "plan_structure": masked["steps"],
            "plan_id": plan.plan_id,
            "plan_step_count": len(steps),
            "resolution_quality_label": _LABELS[confirm.status][2],
        },
        "feedback": _feedback(confirm),
        "meta": _meta(confirm, clarification_rounds=_count_rounds(confirm) - 1),
    }
    return mask_secrets(made, _TEXTS_OF_PLAN, Redaction().secrets(given))


def sample_of(request: Request, *rounds: Request) -> LearningSample:
    """Return the sample of a decision on a request, or on all rounds of a plan.

    Pure: the same requests give the same sample, including its id and time.
    """
    asked = (request, *rounds)
    confirm, last = confirm_of(asked), asked[-1]
    at = {"created_at": _at(last)}
    if round_facts(request) is not None and confirm.target_type == "plan" and last.purged_at is None:
        made = _plan_sample(_as_people_decided(confirm, last), plan_of(asked), None) | {
            "sample_id": _sample_id(confirm)
        }
        return LearningSample(**mask_secrets(made, _TEXTS_OF_PLAN, secrets_of(last))).model_copy(update=at)
    return LearningSample(**_request_sample(confirm, last)).model_copy(update=at)


def _at(request: Request) -> datetime:
    return request.created_at if request.decision is None else request.decision.at


def export_of(request: Request, *rounds: Request) -> dict[str, Any]:
    """Return `sample_of(request, *rounds).export()`; for calls and questions without creating a `LearningSample`.

    Only texts of people and programs are validated, because the rest conforms by construction.

    Raises:
        NotConformantError: A text or value is not JSON that the protocol accepts; `problems` lists them.
    """
    if rounds or round_facts(request) is not None:
        return sample_of(request, *rounds).export()
    made: dict[str, Any] = _request_sample(confirm_of((request,)), request) | {"created_at": time_text(_at(request))}
    try:
        canonical.strict_copy(made)
    except (TypeError, ValueError):
        return sample_of(request).export()
    return {name: made[name] for name in _ORDER}


def _request_sample(confirm: Confirm, request: Request) -> dict[str, Any]:
    human = _as_people_decided(confirm, request)
    subject, last = request.subject, human.decisions[-1] if human.decisions else None
    given: dict[str, Any] = {"confirm_id": confirm.confirm_id, "kind": request.kind, "risk": request.risk}
    made: dict[str, Any] = {
        "final_status": str(confirm.status),
        "state": str(request.state),
        "decision_rounds": _count_rounds(confirm),
        "rejection_reason": last.reason if last is not None and last.status == "rejected" else None,
        "decider_role": None if last is None else last.decided_by_role,
    }
    if isinstance(subject, Call):
        edited, shown = request.edited, subject.shown
        given |= {"tool": subject.tool, "proposed": canonical.display(shown)}
        is_yes = request.decision is not None and request.decision.verb == "approve"
        left = canonical.display(shown if edited is None else edited.shown) if is_yes else None
        made |= {"is_edited": edited is not None, "approved": left}
    else:
        given |= {"question": subject.text}
        made |= {"answer": answer_of(request)}
    sample = {
        "sample_id": _sample_id(confirm),
        "sample_family": "confirm_decision",
        "input": {name: value for name, value in given.items() if value is not None},
        "state": {"quorum": request.quorum.count, "roles": sorted(request.quorum.roles)},
        "output": made,
        "feedback": _feedback(human),
        "meta": _meta(human),
    }
    return mask_secrets(sample, _TEXTS, secrets_of(request))


def answer_of(request: Request) -> Any:
    """Return the masked answer to a question as plain JSON values; None if there is none."""
    if request.decision is None or request.decision.answer is None:
        return None
    tree: Any = canonical.display(redaction_of(request.redact).mask(canonical.load(request.decision.answer)))
    return tree["answer"]


def _as_people_decided(confirm: Confirm, request: Request) -> Confirm:
    """Return the Confirm as people decided it: it stays approved if the approval expired before its use."""
    if request.state is State.EXPIRED and request.decision is not None:
        changes = {"status": ConfirmStatus.APPROVED, "decisions": FrozenList(confirm.decisions[:-1])}
        return confirm.model_copy(update=changes)
    return confirm


def _sample_id(confirm: Confirm) -> str:
    return id_of("sample", confirm.confirm_id, len(confirm.decisions), confirm.status)


def _count_rounds(confirm: Confirm) -> int:
    """Return the number of rounds; each rejection that was not final started another one."""
    rejections = sum(decision.status == "rejected" for decision in confirm.decisions)
    return rejections if rejections and confirm.status is ConfirmStatus.REJECTED else rejections + 1


def _feedback(confirm: Confirm) -> dict[str, Any]:
    kind, quality, _, _ = _LABELS[confirm.status]
    reason = confirm.decisions[-1].reason if confirm.decisions else None
    return {"source": "user", "type": kind, "quality_label": quality} | ({} if reason is None else {"details": reason})


def _meta(confirm: Confirm, **more: Any) -> dict[str, Any]:
    if confirm.decisions:
        waited = confirm.decisions[-1].decided_at - confirm.requested_at
        more["decision_latency_ms"] = int(waited.total_seconds() * 1000)
    event_ids = [event.event_id for event in confirm.events or ()]
    return {"source_event_ids": event_ids, "human_feedback_label": _LABELS[confirm.status][3].value, **more}
