"""The state machine of a request: every allowed transition, as pure functions.

    pending --approve, quorum met--> approved --start--> running --finish--> done | failed | unknown
    pending --reject--> rejected                unknown --resolve--> done | failed
    pending --feedback--> feedback              unknown --start, idempotent only--> running
    pending --answer--> answered                running --failed, retries left--> approved
    pending | approved --cancel--> cancelled    pending | approved --expire--> expired
    approved --undo, before it can start--> pending
                                                running --suspended, it asks a person--> approved
    approved --the function's own types refuse the edit, before the start--> pending

Each function takes a request and the current time, and returns a `Transition`: the new request and its journal entry.
If the change is not allowed it raises, and nothing may be written. Stores call these functions inside one transaction,
on the request as read in that transaction; nothing else changes its state. What reviewers do before they decide is in
`sayso.model.teamwork`. The rules:

* A final state never changes. `must_be_pending` tells a late reviewer who decided first.
* The ends of requests and approvals are compared with the store's clock, and only here. The end itself is too late
  (`now >= end`).
* An escalation adds people who may decide. It does not change the quorum, the requester's exclusion, or the end.
* A person counts once: votes are distinct by folded identity. An edit discards earlier votes, because they agreed to
  something else than what would now run.
* `start` is the single right to run an approved call. The transaction that issues the fencing token also leaves
  `approved`, so a second start finds the request `running`.
* `holds` says whether asking for the same call again in its run finds this request: until the call is done or failed
  for good, or the request has expired or was withdrawn. A rejection holds: the same call stays refused.
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
from sayso.model.ids import effect_digest, key_digest
from sayso.model.request import Call, Decision, Execution, Request, State, voter_of, without_secrets
from sayso.model.reviewer import Identity

MOST_KEPT = 1_048_576
"""The largest real result, in bytes, that a store keeps for a call with a key."""

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
    """An allowed change: the request after it, and its entry in the journal."""

    request: Request
    event: str
    by: Identity
    channel: str
    detail: dict[str, Any]


class Outcome(NamedTuple):
    """How a call ended, as observed by the program that ran it.

    Attributes:
        state: `done`; `failed` (it ended with an error); `unknown` (interrupted, or an error that does not say whether
            it took effect); `suspended` (it paused to ask a person, and its start is given back).
        result: Canonical form of its result with secrets masked, if that was kept.
        error: Type and message of the error, secrets masked.
        kept: For a call with a key, the canonical form of its real result (see `result_to_keep`).
        not_kept: Why there is none.
        not_run: Whether a `failed` call certainly had no effect. Only the program sets it, never an error's message.
    """

    state: Literal["done", "failed", "unknown", "suspended"]
    result: str | None = None
    error: str | None = None
    kept: str | None = None
    not_kept: str | None = None
    not_run: bool = False


def result_to_keep(value: object) -> tuple[str | None, str | None]:
    """Return the canonical form of the result of a call with a key, for `Outcome.kept`; or why there is none."""
    try:
        return canonical.encode({"result": value}).text, None
    except Exception as error:  # noqa: BLE001  a result may be any object; the call ran, and is recorded without it
        return None, f"over 1 MB or no canonical form: {type(value).__name__[:200]} ({type(error).__name__[:200]})"


def _evolve(before: _Value, **changes: Any) -> _Value:
    # dataclasses.replace would run every field through __init__: ten times slower, and this is the hot path.
    new = object.__new__(type(before))
    object.__setattr__(new, "__dict__", {**before.__dict__, **changes})
    return new


def asked(request: Request) -> Transition:
    """Return the transition that creates a request."""
    detail = {"kind": request.kind, "fingerprint": request.fingerprint, "shown": request.subject.shown_digest}
    if isinstance(request.subject, Call):
        detail["tool"] = request.subject.tool
    if request.key is not None:
        detail["key"] = key_digest(request.run_id, request.key)
    if request.effect is not None:
        detail["effect"] = effect_digest(request.effect)
    if request.acts_for:
        detail["on_behalf_of"] = ", ".join(person.qualified for person in request.acts_for)
    return Transition(request, "asked", request.requester, "program", detail)


def must_be_same(known: Request, asked: Request) -> None:
    """Check that a key is reused for the same call or question only.

    Raises:
        KeyReusedError: The tool or the requested arguments differ.
    """
    if known.subject.digest == asked.subject.digest:
        return
    before, now = (one.subject.tool if isinstance(one.subject, Call) else "a question" for one in (known, asked))
    what = "other arguments" if before == now else f"another tool, {before}"
    raise errors.KeyReusedError(asked.run_id, str(asked.key), request_id=known.id, what=what)


def is_due(request: Request, now: datetime) -> bool:
    """Return whether the request or its approval has reached its end, and that is not recorded yet."""
    if request.state is State.PENDING:
        return now >= request.expires_at
    if request.state is State.APPROVED:
        return request.approval_expires_at is not None and now >= request.approval_expires_at
    return False


def expire(request: Request, now: datetime) -> Transition | None:
    """Return the transition to `expired` if the request is due, else None."""
    if not is_due(request, now):
        return None
    detail = {"what": "request" if request.state is State.PENDING else "approval"}
    new = _evolve(request, state=State.EXPIRED, holds=False)
    end = Transition(new, "expired", request.requester, "clock", detail)
    return _unknown_at_end(request, end)


def _unknown_at_end(request: Request, end: Transition) -> Transition:
    """Return the end of what waited; it is replaced by `unknown` if an earlier start of the call is unresolved."""
    if request.execution is None or not request.execution.unresolved:
        return end
    decision = request.decision if end.request.decision is None else end.request.decision
    new = _evolve(request, state=State.UNKNOWN, decision=decision, claimed_by=None, claimed_at=None)
    return end._replace(request=new, event="unknown")


def escalate(request: Request, now: datetime) -> Transition | None:
    """Return the transition that lets more people decide, if its time has come. The quorum does not change."""
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
    """Check that a request is pending; raises the `DecisionRefusedError` that says how it was decided."""
    if request.state is State.PENDING:
        return
    if request.decision is None or request.state is State.EXPIRED:
        ended = _ended_at(request)
        raise errors.RequestExpiredError(request.id, expired_at=ended, age=ago(ended, now))
    decision = request.decision
    raise errors.AlreadyDecidedError(
        request.id, state=_PAST[decision.verb], by=str(decision.by), at=decision.at, channel=decision.channel,
        age=ago(decision.at, now),
    )  # fmt: skip


def must_be_allowed(
    request: Request, by: Identity, roles: Collection[str], now: datetime, *, is_vote: bool = False
) -> None:
    """Check that a person may decide; raises the `DecisionRefusedError` that says why not.

    A claim keeps one approval of a quorum for the claimer, until they have given it. `is_vote` means that the person
    would only add one of the others, to the call and on the terms that the earlier votes are for.
    """
    acts_for = request.acts_for
    if by.is_same(request.requester) or (acts_for and any(by.may_be(person) for person in acts_for)):
        raise errors.OwnRequestError(request.id, by=str(by))
    if not request.admits(by, roles):
        raise errors.MissingRoleError(request.id, by=str(by), roles=sorted(request.wanted_roles))
    claimer = request.claimed_by
    if claimer is None or request.claimed_at is None or by.is_same(claimer):
        return
    has_voted = any(claimer.is_same(vote.by) for vote in request.votes)
    if not has_voted and not (is_vote and request.missing_votes > 1):
        raise errors.ClaimedError(request.id, by=str(claimer), at=request.claimed_at, age=ago(request.claimed_at, now))


def _must_have_reason(request: Request, decision: Decision) -> None:
    """Check that a rejection of a target, or an approval to repeat a taken effect, has a reason."""
    is_no = decision.verb in _NOES and is_target(request)
    if not is_no and not decision.again:
        return
    from sayso.model.text import is_blank  # most decisions need no reason

    if is_blank(decision.comment or ""):
        what = [] if is_no else ["an approval that lets the effect happen again"]
        raise errors.ReasonMissingError(request.id, *what)


def decide(
    request: Request, decision: Decision, *, roles: Collection[str], seen: str | None, edited: Call | None,
    now: datetime, has_grant: bool = False,
) -> Transition:  # fmt: skip
    """Take one person's decision.

    Args:
        decision: The decision; its `at` and `fingerprint` are set here.
        roles: The reviewer's roles.
        seen: Fingerprint of what the reviewer saw; None for the call as it is now.
        edited: For an approval with changes, the whole call as it would run, already validated.
        now: The store's time.
        has_grant: Whether the approval also gives a grant, which is more than a vote on this call.

    Raises:
        DecisionRefusedError: Or a subclass; the request is unchanged.
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
            request.id, f"request {request.id} has no effect, so `again` does not apply; nothing was decided"
        )
    is_plain = verb == "approve" and edited is None and not has_grant
    votes = request.votes
    is_vote = is_plain and (not votes or all(vote.again is decision.again for vote in votes))
    must_be_allowed(request, decision.by, roles, now, is_vote=is_vote)
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
    return _unknown_at_end(request, Transition(new, str(new.state), decision.by, decision.channel, detail))


def _approve(
    request: Request, decision: Decision, edited: Call | None, detail: dict[str, Any], now: datetime
) -> Transition:
    votes = request.votes
    if votes and (edited is not None or any(vote.again is not decision.again for vote in votes)):
        # The votes were for another call, or for other terms.
        detail["votes_reset"], votes = len(votes), ()
    if votes and any(vote.by.is_same(decision.by) for vote in votes):
        raise errors.AlreadyVotedError(request.id, by=str(decision.by), missing=request.missing_votes)
    if edited is not None:
        detail |= {"edited": True, "shown": edited.shown_digest}
    if decision.again:
        detail["again"] = True
    if decision.under is not None:
        detail["grant"] = decision.under
    is_theirs = request.claimed_by is not None and decision.by.is_same(request.claimed_by)
    if is_theirs and decision.held_for is not None:
        decision = _evolve(decision, claimed=request.claimed_by)
    votes = (*votes, decision)
    changes: dict[str, Any] = {"votes": votes} if edited is None else {"votes": votes, "edited": edited}
    missing = request.quorum.missing(list(map(voter_of, votes)))
    if not missing or is_theirs:
        changes |= {"claimed_by": None, "claimed_at": None}
    if missing:
        detail["missing"] = missing
        return Transition(_evolve(request, **changes), "voted", decision.by, decision.channel, detail)
    # Another person's vote may still be undone, too.
    counts_from = max([now, *(vote.at + vote.held_for for vote in votes if vote.held_for is not None)])
    if counts_from > now:
        detail["held_until"] = clock.written(counts_from)
    ends = counts_from + request.approval_window
    changes |= {"state": State.APPROVED, "decision": decision, "approval_expires_at": ends}
    return Transition(_evolve(request, **changes), "approved", decision.by, decision.channel, detail)


def undo(request: Request, by: Identity, *, channel: str, now: datetime) -> Transition:
    """Undo a reviewer's own approval or vote, while its call cannot start yet.

    The votes of others stay, earlier and later ones. Undoing an edit restores the proposed call and discards all votes.
    A claim that the approval ended is its holder's again, unless somebody else has one.

    Raises:
        NotUndoneError: It is somebody else's, its time to undo is over, or its call has started.
    """
    undone = undo_by(request, by)
    if undone is None:
        raise errors.NotUndoneError(request.id, reason=f"the request is {request.state}")
    if not by.is_same(undone.by):
        raise errors.NotUndoneError(request.id, reason=f"it was made by {str(undone.by)!r}")
    if undone.held_for is None or now >= undone.at + undone.held_for:
        raise errors.NotUndoneError(request.id, reason="the time to undo it is over; cancel it if it has not started")
    is_claimed = undone.claimed is not None and request.claimed_by is None
    new = _evolve(
        request, state=State.PENDING, decision=None, approval_expires_at=None,
        claimed_by=undone.claimed if is_claimed else request.claimed_by,
        claimed_at=now if is_claimed else request.claimed_at,
        votes=() if undone.edited else tuple(vote for vote in request.votes if not vote.by.is_same(by)),
        edited=None if undone.edited else request.edited,
    )  # fmt: skip
    return Transition(new, "undone", by, channel, {"edited": True} if undone.edited else {})


def undo_by(request: Request, by: Identity) -> Decision | None:
    """Return the approval that a reviewer's undo is about: their own, else the last one; None if there is none."""
    if request.state not in {State.PENDING, State.APPROVED}:
        return None
    last = request.votes[-1] if request.votes else request.decision
    return next((vote for vote in request.votes if vote.by.is_same(by)), last)


def allow_within(request: Request, budgets: str, now: datetime) -> Transition:
    """Approve a call that its policy allows within budgets; the start will take from them. No person has seen it."""
    by = Identity("policy", "budget")
    decision = Decision("approve", by, now, "policy", None, request.fingerprint, under="budget")
    new = _evolve(
        request, state=State.APPROVED, votes=(decision,), decision=decision,
        approval_expires_at=now + request.approval_window,
    )  # fmt: skip
    return Transition(new, "approved", by, "policy", {"fingerprint": request.fingerprint, "budget": budgets})


def ask_again(request: Request, reason: str, now: datetime) -> Transition:
    """Make a call wait for a person, because the grant or budget that approved it no longer does."""
    until = max(request.expires_at, now + (request.expires_at - request.created_at))
    new = _evolve(
        request, state=State.PENDING, votes=(), decision=None, approval_expires_at=None, expires_at=until,
        returned=reason,
    )  # fmt: skip
    channel = "policy" if request.decision is None else request.decision.channel
    return _unknown_at_end(request, Transition(new, "returned", request.requester, channel, {"reason": reason}))


def resolve(
    request: Request, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None, channel: str,
    force: bool = False, token: str | None = None, start: int = 1, outcome: Outcome | None = None, now: datetime,
) -> Transition:  # fmt: skip
    """Record how a call with an unknown outcome ended, and the result, if a hook that says `happened` has found it.

    With `force`, also that of a running call whose worker only a person can know to be gone (on another machine or in
    another container); such a call is never retried. `roles` are the reviewer's; they are None if the gate's `verify=`
    hook resolves the call, which needs none. `comment` says how it was found out. The finding does not apply to a
    later start than the one that was examined: a hook names that by its `token`, a reviewer by its number, `start`.

    Raises:
        NotUnknownError: The outcome is not unknown.
        StaleViewError: The call was started again since the reviewer examined it.
        OwnRequestError: The requester resolves its own request.
        MissingRoleError: The reviewer has none of the roles.
    """
    execution = request.execution
    is_forced = force and request.state is State.RUNNING
    if (request.state is not State.UNKNOWN and not is_forced) or execution is None:
        is_running = request.state is State.RUNNING
        hint = "wait until it ends, or use --force if its worker is certainly gone" if is_running else "nothing changed"
        raise errors.NotUnknownError(request.id, state=request.state, hint=hint)
    if token is not None and token != execution.token:
        hint = "it was started again after it was checked; nothing changed"
        raise errors.NotUnknownError(request.id, state=request.state, hint=hint)
    if roles is not None:
        must_be_allowed(request, by, roles, now)
        if start != execution.starts:
            raise errors.StaleViewError(request.id, seen=f"start {start}", current=f"start {execution.starts}")
    detail: dict[str, Any] = {"happened": happened}
    if comment is not None:
        detail["comment"] = comment
    if is_forced:
        detail["given_up"] = execution.worker
    found = _result_fields(request, outcome) if happened and outcome is not None else {}
    ended = _evolve(execution, finished_at=now, resolved_by=by, unresolved=False, **found)
    if not happened and not is_forced and _may_try_again(request, execution, now):
        return Transition(_evolve(request, state=State.APPROVED, execution=ended), "resolved", by, channel, detail)
    state = State.DONE if happened else State.FAILED
    return Transition(_evolve(request, state=state, holds=False, execution=ended), "resolved", by, channel, detail)


# -- the program -----------------------------------------------------------------------------------------------


def withdraw(request: Request, by: Identity, now: datetime, reason: str | None = None) -> Transition | None:
    """Withdraw a request, or forget its rejection; None if there is nothing to withdraw.

    A pending or approved request becomes `cancelled`. A running or unknown one is unchanged.
    """
    if not request.holds or request.state in {State.RUNNING, State.UNKNOWN}:
        return None
    reason = None if reason is None else without_secrets(request, reason)
    if request.state in {State.PENDING, State.APPROVED}:
        decision = Decision("cancel", by, now, "program", reason or "withdrawn", request.current_fingerprint)
        new = _evolve(request, state=State.CANCELLED, holds=False, decision=decision, votes=())
        end = Transition(new, "withdrawn", by, "program", {} if reason is None else {"reason": reason})
        return _unknown_at_end(request, end)
    return Transition(_evolve(request, holds=False), "cleared", by, "program", {})


def send_back(request: Request, by: Identity, problems: Collection[str], now: datetime) -> Transition | None:
    """Return an approved edit to its reviewers, because the function's own types reject it.

    The proposed call is restored and the votes are discarded. None if the request is not an approved edit (any more).

    Args:
        request: The current request.
        by: The program.
        problems: What is wrong by its types, without values.
        now: The store's time. From then, the request has again the whole time from its creation to its current end.
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


def _may_try_again(request: Request, execution: Execution, now: datetime) -> bool:
    is_approved = request.decision is not None and request.decision.verb == "approve"  # and not cancelled since
    is_in_time = request.approval_expires_at is not None and now < request.approval_expires_at
    return is_approved and is_in_time and (request.idempotent or execution.attempt <= request.retries)


_TAKEN, _OPEN = {State.RUNNING, State.DONE, State.UNKNOWN}, {State.PENDING, State.APPROVED}


def must_have_free_effect(request: Request, same_effect: Sequence[Request], now: datetime) -> None:
    """Check that no other request holds the effect, unless the reviewers allowed it to happen again.

    Only a failure frees the effect of a call that began, with a retry left only if it never paused after a part of it.
    """
    if request.decision is not None and request.decision.again:
        return
    is_earlier = True
    for other in same_effect:
        if other.id == request.id:
            is_earlier = False
            continue
        waits = is_earlier and other.state in _OPEN and other.execution is None and not is_due(other, now)
        if other.state in _TAKEN or waits or _stopped_half_way(other):
            raise errors.EffectTakenError(request.id, effect=str(request.effect), other=other.id, state=other.state)


def _stopped_half_way(request: Request) -> bool:
    execution = request.execution
    return execution is not None and execution.stopped > 0 and request.state is not State.FAILED


def start(
    request: Request, *, worker: str, token: str, now: datetime, same_effect: Sequence[Request] = (),
    seen: Request | None = None,
) -> Transition:  # fmt: skip
    """Grant the single right to run an approved call.

    Args:
        request: The current request.
        worker: The process that runs the call.
        token: New and random; `finish` needs it.
        now: The store's time.
        same_effect: All requests with the same effect, in the order in which they were asked.
        seen: The request as last read by the caller; a start or end since then refuses this start.

    Raises:
        EffectTakenError: Another request has the effect, and its call may have happened.
        ApprovalExpiredError: The approval has expired.
        ApprovalHeldError: The approval can still be undone.
        AlreadyStartedError: The call was started before, or with this token.
        OutcomeUnknownError: The call was started before, and its outcome is unknown.
        NotApprovedError: The request is not approved.
    """
    before = request.execution
    if request.state is State.EXPIRED:
        ended = _ended_at(request)
        raise errors.ApprovalExpiredError(request.id, expired_at=ended, age=ago(ended, now))
    again = request.state is State.UNKNOWN and request.idempotent
    # In any state. A token starts once, because the network may deliver its message again after the call has ended.
    is_spent = before is not None and (before.token == token or not _may_try_again(request, before, now))
    if (request.state is not State.APPROVED and not again) or is_spent:
        raise _not_startable(request, now)
    if seen is not None and seen.execution != before:
        raise _not_startable(request, now)
    held_until = request.held_until
    if held_until is not None and now < held_until:
        left = -((now - held_until) // timedelta(milliseconds=1))  # rounded up: a start after it is not too early
        raise errors.ApprovalHeldError(request.id, until=held_until, milliseconds=left)
    if same_effect:
        must_have_free_effect(request, same_effect, now)
    attempt = 1 if before is None else before.attempt + 1
    stopped, unresolved = (0, False) if before is None else (before.stopped, again or before.unresolved)
    execution = Execution(
        token=token, worker=worker, attempt=attempt, started_at=now, stopped=stopped, unresolved=unresolved
    )
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
    """Record how a started call ended. Only the holder of the token may do so.

    A worker that was presumed dead may still record its outcome, once, while the state is `unknown`.

    Raises:
        StartRefusedError: The token is not that of the last start, or the outcome is already recorded.
    """
    execution = request.execution
    if execution is None or execution.token != token or execution.finished_at is not None:
        raise errors.StartRefusedError(
            request.id,
            f"request {request.id} is {request.state} and takes no outcome; {outcome.state} was not recorded",
        )
    detail: dict[str, Any] = {"attempt": execution.attempt}
    if outcome.state == "suspended":  # this start does not count as an attempt; earlier ones do
        ended = _evolve(execution, attempt=execution.attempt - 1, stopped=execution.stopped + 1, finished_at=now)
        new, detail["start"] = _evolve(request, state=State.APPROVED, execution=ended), execution.starts
        return Transition(new, "suspended", request.requester, "program", detail)
    ended = _evolve(execution, finished_at=now, error=outcome.error, **_result_fields(request, outcome))
    # That this start failed does not tell how an earlier one ended, and only that would free the effect.
    event = "unknown" if outcome.state == "failed" and execution.unresolved else outcome.state
    state, holds = _ENDS[event], event == "unknown"
    if state is State.FAILED and _may_try_again(request, execution, now):
        state, holds, detail["may_try_again"] = State.APPROVED, True, True
    new = _evolve(request, state=state, holds=holds, execution=ended)
    return Transition(new, event, request.requester, "program", detail)


def _result_fields(request: Request, outcome: Outcome) -> dict[str, str | None]:
    """Return the fields of an execution that say what its call returned."""
    kept, not_kept = (None, None) if request.key is None or outcome.state != "done" else keepable(outcome)
    return {
        "result": outcome.result, "kept": None if kept is None else kept_digest(kept), "not_kept": not_kept,
    }  # fmt: skip


def keepable(outcome: Outcome) -> tuple[str | None, str | None]:
    """Return the real result of an outcome if it may be kept for callers that use the same key, or why not."""
    if outcome.kept is None:
        return None, outcome.not_kept or "the program gave none"
    size = len(outcome.kept.encode("utf-8", "surrogatepass"))
    return (outcome.kept, None) if size <= MOST_KEPT else (None, f"it is larger than 1 MB ({size:,} bytes)")


def kept_digest(text: str) -> str:
    """Return the digest that ties a kept result to its request."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def abandon(request: Request, *, is_lost: bool = False) -> Transition | None:
    """Set the outcome of a running call to `unknown`; None if it is not running.

    `is_lost` says that its lease was not renewed, and that nothing else is known about its worker.
    """
    if request.state is not State.RUNNING or request.execution is None:
        return None
    detail: dict[str, Any] = {"attempt": request.execution.attempt, "worker": request.execution.worker}
    if is_lost:
        detail["lease"] = "lost"
    return Transition(_evolve(request, state=State.UNKNOWN), "unknown", request.requester, "sweep", detail)
