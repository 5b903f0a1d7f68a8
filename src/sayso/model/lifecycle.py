"""The state machine of a request: every allowed transition, as pure functions.

    pending --approve, quorum met--> approved --start--> running --finish--> done | failed | unknown
    pending --reject--> rejected                unknown --resolve--> done | failed
    pending --feedback--> feedback              unknown --start, idempotent only--> running
    pending --answer--> answered                running --failed, retries left--> approved
    pending | approved --cancel--> cancelled    pending | approved --expire--> expired
    approved --undo, before it can start--> pending
                                                running --suspended, it asks a person--> approved
    approved --the function's own types refuse the edit, before the start--> pending

Each function takes a request and the current time, and returns a `Transition`: the new request and its journal row. If
the change is not allowed it raises, and nothing may be written. Stores call these functions inside one transaction, on
the request as read in that transaction; nothing else changes its state. What reviewers do before they decide is in
`sayso.model.teamwork`. The rules:

* A final state never changes. `must_be_pending` tells a late reviewer who decided first.
* Ends of requests and approvals are compared with the store's clock, here and nowhere else; the end itself is too late
  (`now >= end`).
* An escalation adds people who may decide. It does not change the quorum, the bar on the requester, or the end.
* A person counts once: votes are distinct by folded identity. An edit discards earlier votes, because they agreed to
  something else than what would now run.
* `start` is the single right to run an approved call. The transaction that issues the fencing token also leaves
  `approved`, so a second start finds the request `running`.
* `holds` says whether asking for the same call again in the same run finds this request. It ends when the approval is
  used or expires. A rejection still holds: the same call in the same run stays refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeVar

from sayso import clock, errors
from sayso.model import canonical
from sayso.model.duration import ago
from sayso.model.edit import is_target, must_not_be_read_only
from sayso.model.ids import effect_digest
from sayso.model.request import Call, Decision, Execution, Request, State, build_execution, without_secrets
from sayso.model.reviewer import Identity

MOST_KEPT = 1_048_576
"""Bytes of the real result of a call with a key that a store keeps."""

_PAST = {
    "approve": State.APPROVED,
    "reject": State.REJECTED,
    "feedback": State.FEEDBACK,
    "answer": State.ANSWERED,
    "cancel": State.CANCELLED,
}
_NOES = frozenset({"reject", "feedback"})
_ENDS = {"done": State.DONE, "failed": State.FAILED, "unknown": State.UNKNOWN}

_Value = TypeVar("_Value", Request, Execution, Decision)


class Transition(NamedTuple):
    """A change that is allowed: the request after it, and its row in the journal."""

    request: Request
    event: str
    by: Identity
    channel: str
    detail: dict[str, Any]


class Outcome(NamedTuple):
    """How a call ended, as the program that ran it saw it.

    Attributes:
        state: `done`; `failed` (it ended with an error); `unknown` (broken off, or an error that leaves it open whether
            it took effect); `suspended` (it stopped itself to ask a person: the start is given back).
        result: Canonical form of what it returned, secrets masked, where that was kept.
        error: Type and message of the error, secrets masked.
        kept: For a call with a key, the canonical form of what it really returned (see `result_to_keep`).
        not_kept: Why there is none.
        not_run: Whether a `failed` call surely did nothing; only the program says so, never the words of an error.
    """

    state: Literal["done", "failed", "unknown", "suspended"]
    result: str | None = None
    error: str | None = None
    kept: str | None = None
    not_kept: str | None = None
    not_run: bool = False


def result_to_keep(value: object) -> tuple[str | None, str | None]:
    """Return the canonical form of what a call with a key returned, for `Outcome.kept`; or why there is none."""
    try:
        return canonical.encode({"result": value}).text, None
    except Exception as error:  # noqa: BLE001  a result may be any object; the call ran, and its record does without
        return None, f"a {type(value).__name__} has no canonical form ({type(error).__name__})"


def _evolve(before: _Value, **changes: Any) -> _Value:
    # dataclasses.replace would run every field through __init__: ten times slower, and this is the hot path.
    new = object.__new__(type(before))
    object.__setattr__(new, "__dict__", {**before.__dict__, **changes})
    return new


def asked(request: Request) -> Transition:
    """Return the transition that brings a new request into being."""
    detail = {"kind": request.kind, "fingerprint": request.fingerprint, "shown": request.subject.shown_digest}
    if isinstance(request.subject, Call):
        detail["tool"] = request.subject.tool
    if request.effect is not None:
        detail["effect"] = effect_digest(request.effect)
    if request.acts_for:
        detail["on_behalf_of"] = ", ".join(person.qualified for person in request.acts_for)
    return Transition(request, "asked", request.requester, "program", detail)


def must_be_same(known: Request, asked: Request) -> None:
    """Refuse another call or question than the one that its key was used for.

    Raises:
        KeyReusedError: The tool or the arguments, as they were asked, are others.
    """
    if known.subject.digest == asked.subject.digest:
        return
    before, now = (one.subject.tool if isinstance(one.subject, Call) else "a question" for one in (known, asked))
    what = "other arguments" if before == now else f"another tool, {before}"
    raise errors.KeyReusedError(asked.run_id, str(asked.key), request_id=known.id, what=what)


def is_due(request: Request, now: datetime) -> bool:
    """Say whether the request's, or its approval's, end is reached and not yet written."""
    if request.state is State.PENDING:
        return now >= request.expires_at
    if request.state is State.APPROVED:
        return request.approval_expires_at is not None and now >= request.approval_expires_at
    return False


def expire(request: Request, now: datetime) -> Transition | None:
    """Return the transition to `expired` if its time has come."""
    if not is_due(request, now):
        return None
    what = "request" if request.state is State.PENDING else "approval"
    new = _evolve(request, state=State.EXPIRED, holds=False)
    return Transition(new, "expired", request.requester, "clock", {"what": what})


def escalate(request: Request, now: datetime) -> Transition | None:
    """Return the transition that opens a request to more people if its time has come; how many must agree stays."""
    escalation = request.escalation
    is_waiting = request.state is State.PENDING and request.escalated_at is None
    if escalation is None or not is_waiting or now < request.created_at + escalation.after:
        return None
    new = _evolve(request, escalated_at=now)
    return Transition(new, "escalated", request.requester, "clock", {"to": str(escalation)})


def _ended_at(request: Request) -> datetime:
    return request.expires_at if request.approval_expires_at is None else request.approval_expires_at


# -- the person ------------------------------------------------------------------------------------------------


def must_be_pending(request: Request, now: datetime) -> None:
    """Check that a request still waits for a decision; raises the `DecisionRefusedError` that says what came before."""
    if request.state is State.PENDING:
        return
    if request.decision is None or request.state is State.EXPIRED:
        ended = _ended_at(request)
        raise errors.RequestExpiredError(request.id, expired_at=ended, age=ago(ended, now))
    raise _already_decided(request, request.decision, now)


def _already_decided(request: Request, decision: Decision, now: datetime) -> errors.AlreadyDecidedError:
    return errors.AlreadyDecidedError(
        request.id, state=_PAST[decision.verb], by=str(decision.by), at=decision.at, channel=decision.channel,
        age=ago(decision.at, now),
    )  # fmt: skip


def must_be_allowed(request: Request, by: Identity, roles: Collection[str], now: datetime) -> None:
    """Check that a person may decide; raises the `DecisionRefusedError` that says why not."""
    acts_for = request.acts_for
    if by.is_same(request.requester) or (acts_for and any(by.may_be(person) for person in acts_for)):
        raise errors.OwnRequestError(request.id, by=str(by))
    if not request.admits(by, roles):
        raise errors.MissingRoleError(request.id, by=str(by), roles=sorted(request.wanted_roles))
    if request.claimed_by is not None and request.claimed_at is not None and not by.is_same(request.claimed_by):
        raise errors.ClaimedError(
            request.id, by=str(request.claimed_by), at=request.claimed_at, age=ago(request.claimed_at, now)
        )


def _must_have_reason(request: Request, decision: Decision) -> None:
    """Refuse a no to a target, or an approval in spite of an effect that is taken, that says nothing."""
    is_no = decision.verb in _NOES and is_target(request)
    if not is_no and not decision.again:
        return
    from sayso.model.escaping import is_blank  # most decisions need no reason

    if is_blank(decision.comment or ""):
        what = [] if is_no else ["the approval to let the effect happen again"]
        raise errors.ReasonMissingError(request.id, *what)


def decide(
    request: Request, decision: Decision, *, roles: Collection[str], seen: str | None, edited: Call | None,
    now: datetime,
) -> Transition:  # fmt: skip
    """Take one person's decision.

    Args:
        decision: The decision; its `at` and `fingerprint` are set here.
        roles: The reviewer's roles.
        seen: Fingerprint of what the reviewer looked at; None takes the call as it stands.
        edited: For an approve with changes, the whole call as it would run, already validated.
        now: The store's instant.

    Raises:
        DecisionRefusedError: One of its kinds; the request is as it was.
    """
    if not (decision.verb == "cancel" and request.state is State.APPROVED):
        must_be_pending(request, now)
    verb = decision.verb
    if request.kind == "question" and verb in {"approve", "feedback"}:
        raise errors.WrongKindError(request.id, kind="question", verb=verb, instead="answer, reject or cancel")
    if request.kind == "call" and verb == "answer":
        raise errors.WrongKindError(request.id, kind="call", verb=verb, instead="approve, reject, feedback or cancel")
    if decision.again or verb in _NOES:
        _must_have_reason(request, decision)
    if decision.again and (verb != "approve" or request.effect is None):
        raise errors.DecisionRefusedError(
            request.id, f"request {request.id} names no effect that could be let happen again; nothing was decided"
        )
    must_be_allowed(request, decision.by, roles, now)
    current = request.current_fingerprint
    if seen is not None and seen != current:
        raise errors.StaleViewError(request.id, seen=seen, current=current)
    if edited is not None:
        must_not_be_read_only(request)
    decided = current if edited is None else request.fingerprint_of(edited.digest)
    decision = _evolve(decision, at=now, fingerprint=decided)
    words = {} if decision.comment is None else {"comment": decision.comment}
    detail: dict[str, Any] = {"fingerprint": decided, **words}
    if decision.verb == "approve":
        return _approve(request, decision, edited, detail, now)
    new = _evolve(request, state=_PAST[decision.verb], decision=decision, votes=(), claimed_by=None, claimed_at=None)
    return Transition(new, str(new.state), decision.by, decision.channel, detail)


def _approve(
    request: Request, decision: Decision, edited: Call | None, detail: dict[str, Any], now: datetime
) -> Transition:
    votes = request.votes
    if votes and (edited is not None or any(vote.again is not decision.again for vote in votes)):
        # What was agreed to is no longer what would run, or no longer on the same terms.
        detail["votes_reset"], votes = len(votes), ()
    if votes and any(vote.by.is_same(decision.by) for vote in votes):
        raise errors.AlreadyVotedError(request.id, by=str(decision.by), missing=request.missing_votes)
    if edited is not None:
        detail |= {"edited": True, "shown": edited.shown_digest}
    if decision.again:
        detail["again"] = True
    if decision.under is not None:
        detail["grant"] = decision.under
    votes = (*votes, decision)
    changes: dict[str, Any] = {"votes": votes, "claimed_by": None, "claimed_at": None}
    if edited is not None:
        changes["edited"] = edited
    missing = request.quorum.missing([vote.by for vote in votes])
    if missing:
        detail["missing"] = missing
        return Transition(_evolve(request, **changes), "voted", decision.by, decision.channel, detail)
    counts_from = now if decision.held_for is None else now + decision.held_for
    if decision.held_for is not None:
        detail["held_until"] = clock.written(counts_from)
    ends = counts_from + request.approval_window
    changes |= {"state": State.APPROVED, "decision": decision, "approval_expires_at": ends}
    return Transition(_evolve(request, **changes), "approved", decision.by, decision.channel, detail)


def undo(request: Request, by: Identity, *, channel: str, now: datetime) -> Transition:
    """Let a reviewer take back an approval of theirs, or a vote, while it is held back from starting its call.

    Earlier votes stay. An edit that is undone leaves the call as it was proposed, and the votes begin anew.

    Raises:
        NotUndoneError: It is not theirs, nothing holds it back any more, or its call has started.
    """
    undone = request.decision if request.state is State.APPROVED else None
    if request.state is State.PENDING and request.votes:
        undone = request.votes[-1]
    if undone is None or undone.verb != "approve":
        raise errors.NotUndoneError(request.id, reason=f"the request is {request.state}")
    if not by.is_same(undone.by):
        raise errors.NotUndoneError(request.id, reason=f"it is a decision of {str(undone.by)!r}")
    if undone.held_for is None or now >= undone.at + undone.held_for:
        raise errors.NotUndoneError(request.id, reason="the time to undo it is over; cancel it if it has not started")
    new = _evolve(
        request, state=State.PENDING, decision=None, approval_expires_at=None,
        votes=() if undone.edited else tuple(vote for vote in request.votes if not vote.by.is_same(by)),
        edited=None if undone.edited else request.edited,
    )  # fmt: skip
    return Transition(new, "undone", by, channel, {"edited": True} if undone.edited else {})


def allow_within(request: Request, budgets: str, now: datetime) -> Transition:
    """Approve a call as its policy allows it, within budgets that the start takes from; nobody has looked at it."""
    by = Identity("policy", "budget")
    decision = Decision("approve", by, now, "policy", None, request.fingerprint, under="budget")
    new = _evolve(
        request, state=State.APPROVED, votes=(decision,), decision=decision,
        approval_expires_at=now + request.approval_window,
    )  # fmt: skip
    return Transition(new, "approved", by, "policy", {"fingerprint": request.fingerprint, "budget": budgets})


def ask_again(request: Request, reason: str, now: datetime) -> Transition:
    """Let a call wait for a person that was approved by a grant or a budget, which does not any more."""
    until = max(request.expires_at, now + (request.expires_at - request.created_at))
    new = _evolve(
        request, state=State.PENDING, votes=(), decision=None, approval_expires_at=None, expires_at=until,
        returned=reason,
    )  # fmt: skip
    channel = "policy" if request.decision is None else request.decision.channel
    return Transition(new, "returned", request.requester, channel, {"reason": reason})


def resolve(
    request: Request, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None, channel: str,
    force: bool = False, token: str | None = None, now: datetime,
) -> Transition:  # fmt: skip
    """Say how a call ended whose outcome is unknown.

    With `force` also of one recorded as running, whose worker only a person can know to be gone (another machine,
    another container). Such a call is never made ready to be tried again. `roles` are the reviewer's; None when the
    gate's `verify=` hook resolves it, which needs none. `comment` says how it was found out. `token` is that of the
    start that was looked into: what was found out about it says nothing about a later one.

    Raises:
        NotUnknownError: The outcome is not unknown.
        OwnRequestError: The requester resolves its own request.
        MissingRoleError: The reviewer has none of the roles.
    """
    execution = request.execution
    is_forced = force and request.state is State.RUNNING
    if (request.state is not State.UNKNOWN and not is_forced) or execution is None:
        is_running = request.state is State.RUNNING
        hint = "wait for it, or say --force if its worker is surely gone" if is_running else "nothing changed"
        raise errors.NotUnknownError(request.id, state=request.state, hint=hint)
    if token is not None and token != execution.token:
        hint = "it was started again since it was looked into; nothing changed"
        raise errors.NotUnknownError(request.id, state=request.state, hint=hint)
    if roles is not None:
        must_be_allowed(request, by, roles, now)
    detail: dict[str, Any] = {"happened": happened}
    if comment is not None:
        detail["comment"] = comment
    if is_forced:
        detail["given_up"] = execution.worker
    ended = _evolve(execution, finished_at=now, resolved_by=by)
    if not happened and not is_forced and _may_try_again(request, execution):
        return Transition(_evolve(request, state=State.APPROVED, execution=ended), "resolved", by, channel, detail)
    state = State.DONE if happened else State.FAILED
    return Transition(_evolve(request, state=state, holds=False, execution=ended), "resolved", by, channel, detail)


# -- the program -----------------------------------------------------------------------------------------------


def withdraw(request: Request, by: Identity, now: datetime, reason: str | None = None) -> Transition | None:
    """Let the program take back what it asked, or forget a no; None where there is nothing to take back.

    A request that waits or was approved becomes `cancelled`. What is running or unknown stays as it is.
    """
    if not request.holds or request.state in {State.RUNNING, State.UNKNOWN}:
        return None
    reason = None if reason is None else without_secrets(request, reason)
    if request.state in {State.PENDING, State.APPROVED}:
        decision = Decision("cancel", by, now, "program", reason or "withdrawn", request.current_fingerprint)
        new = _evolve(request, state=State.CANCELLED, holds=False, decision=decision, votes=())
        return Transition(new, "withdrawn", by, "program", {} if reason is None else {"reason": reason})
    return Transition(_evolve(request, holds=False), "cleared", by, "program", {})


def send_back(request: Request, by: Identity, problems: Collection[str], now: datetime) -> Transition | None:
    """Let an approved edit wait for its reviewers again, because the function's own types refuse it.

    The call is then as it was proposed, and the votes begin anew. None where the request is no approved edit any more.

    Args:
        request: As it stands.
        by: The program.
        problems: What its types say, without values.
        now: The instant; the request waits for as long as it did at first.
    """
    if request.state is not State.APPROVED or request.edited is None or is_due(request, now):
        return None
    reason = without_secrets(request, "; ".join(problems))
    until = max(request.expires_at, now + (request.expires_at - request.created_at))
    new = _evolve(
        request, state=State.PENDING, edited=None, votes=(), decision=None, approval_expires_at=None,
        expires_at=until, returned=reason,
    )  # fmt: skip
    return Transition(new, "returned", by, "program", {"reason": reason})


def _may_try_again(request: Request, execution: Execution) -> bool:
    return request.idempotent or execution.attempt <= request.retries


_TAKEN, _OPEN = {State.RUNNING, State.DONE, State.UNKNOWN}, {State.PENDING, State.APPROVED}


def _must_have_free_effect(request: Request, same_effect: Sequence[Request], now: datetime) -> None:
    """Refuse a start while another request holds the effect, unless the reviewers let it happen again."""
    if request.decision is not None and request.decision.again:
        return
    is_earlier = True
    for other in same_effect:
        if other.id == request.id:
            is_earlier = False
        elif other.state in _TAKEN or (is_earlier and other.state in _OPEN and not is_due(other, now)):
            raise errors.EffectTakenError(request.id, effect=str(request.effect), other=other.id, state=other.state)


def start(
    request: Request, *, worker: str, token: str, now: datetime, same_effect: Sequence[Request] = (),
    seen: Request | None = None,
) -> Transition:  # fmt: skip
    """Give out the single right to run an approved call.

    Args:
        request: The request as it stands.
        worker: Which process runs the call.
        token: New and random; `finish` wants it back.
        now: The store's instant.
        same_effect: All requests with the effect of this one, in the order in which they were asked.
        seen: The request as it was looked at before; one that was started or has ended since is refused.

    Raises:
        EffectTakenError: Another request has the effect, and it is not known that it did not happen.
        ApprovalExpiredError: The approval has ended.
        ApprovalHeldError: The approval can still be undone.
        AlreadyStartedError: The right has been given out before, or to this token.
        OutcomeUnknownError: It was given out before, and nobody knows how the call ended.
        NotApprovedError: The request is not approved.
    """
    before = request.execution
    if request.state is State.EXPIRED:
        ended = _ended_at(request)
        raise errors.ApprovalExpiredError(request.id, expired_at=ended, age=ago(ended, now))
    again = request.state is State.UNKNOWN and request.idempotent
    if again and request.approval_expires_at is not None and now >= request.approval_expires_at:
        raise errors.OutcomeUnknownError(request.id)
    # Whatever else its row says by now. A token starts once: a network may bring its message again after the end.
    is_spent = before is not None and (before.token == token or not _may_try_again(request, before))
    if (request.state is not State.APPROVED and not again) or is_spent:
        raise _not_startable(request, now)
    if seen is not None and seen.execution != before:
        raise _not_startable(request, now)
    held_until = request.held_until
    if held_until is not None and now < held_until:
        left = -((now - held_until) // timedelta(milliseconds=1))  # rounded up: after it, the start is not too early
        raise errors.ApprovalHeldError(request.id, until=held_until, milliseconds=left)
    if same_effect:
        _must_have_free_effect(request, same_effect, now)
    attempt = 1 if before is None else before.attempt + 1
    stopped = 0 if before is None else before.stopped
    execution = build_execution(token=token, worker=worker, attempt=attempt, started_at=now, stopped=stopped)
    detail = {"attempt": attempt, "worker": worker, "fingerprint": request.current_fingerprint}
    detail |= {"start": execution.starts} if execution.stopped else {}
    new = _evolve(request, state=State.RUNNING, execution=execution)
    return Transition(new, "started", request.requester, "program", detail)


def _not_startable(request: Request, now: datetime) -> errors.StartRefusedError:
    if request.state is State.UNKNOWN:
        return errors.OutcomeUnknownError(request.id)
    if request.execution is not None:
        at = request.execution.started_at
        return errors.AlreadyStartedError(request.id, state=request.state, at=at, age=ago(at, now))
    return errors.NotApprovedError(request.id, state=request.state)


def finish(request: Request, token: str, outcome: Outcome, now: datetime) -> Transition:
    """Record how a started call ended; only the holder of the token may.

    A worker that was given up for dead may still say how its call ended, once, while the outcome is `unknown`.

    Raises:
        StartRefusedError: The token is not that of the last start, or the outcome stands already.
    """
    execution = request.execution
    if execution is None or execution.token != token or request.state not in {State.RUNNING, State.UNKNOWN}:
        raise errors.StartRefusedError(
            request.id,
            f"the outcome of {request.id} stands already as {request.state}; {outcome.state} was not recorded",
        )
    detail: dict[str, Any] = {"attempt": execution.attempt}
    if outcome.state == "suspended":  # this start is no attempt any more; those before it stay spent
        ended = _evolve(execution, attempt=execution.attempt - 1, stopped=execution.stopped + 1, finished_at=now)
        new, detail["start"] = _evolve(request, state=State.APPROVED, execution=ended), execution.starts
        return Transition(new, "suspended", request.requester, "program", detail)
    kept, not_kept = (None, None) if request.key is None else _kept(outcome)
    ended = _evolve(
        execution, finished_at=now, result=outcome.result, error=outcome.error, kept=kept, not_kept=not_kept
    )
    state, holds = _ENDS[outcome.state], outcome.state == "unknown"
    if state is State.FAILED and _may_try_again(request, execution):
        state, holds = State.APPROVED, True
    if state is State.APPROVED:
        detail["may_try_again"] = True
    new = _evolve(request, state=state, holds=holds, execution=ended)
    return Transition(new, outcome.state, request.requester, "program", detail)


def _kept(outcome: Outcome) -> tuple[str | None, str | None]:
    """Return the digest of the real result that is kept for who asks with the same key; or why none is."""
    if outcome.state != "done":
        return None, None
    text, not_kept = keepable(outcome)
    return (None if text is None else kept_digest(text)), not_kept


def keepable(outcome: Outcome) -> tuple[str | None, str | None]:
    """Return the real result of an outcome if there is one that may be kept, or why there is none."""
    if outcome.kept is None:
        return None, outcome.not_kept or "the program gave none"
    size = len(outcome.kept.encode("utf-8", "surrogatepass"))
    return (outcome.kept, None) if size <= MOST_KEPT else (None, f"it is larger than 1 MB ({size:,} bytes)")


def kept_digest(text: str) -> str:
    """Return the digest by which a result that is kept is held to its request."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def abandon(request: Request, *, is_lost: bool = False) -> Transition | None:
    """Say that nobody can tell how a running call ended; None where it is not running.

    `is_lost` says that its lease was not renewed, and nothing else is known of its worker.
    """
    if request.state is not State.RUNNING or request.execution is None:
        return None
    detail: dict[str, Any] = {"attempt": request.execution.attempt, "worker": request.execution.worker}
    if is_lost:
        detail["lease"] = "lost"
    return Transition(_evolve(request, state=State.UNKNOWN), "unknown", request.requester, "sweep", detail)
