"""The state machine: each of its ways, every way that it has not, and the rules of who may take one.

The table of `WAYS` is written from the drawing in the design, not from the code: a way that the code adds or loses
shows here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sayso import clock, errors
from sayso.model import lifecycle, teamwork
from sayso.model.ids import fingerprint
from sayso.model.lifecycle import Outcome, Transition
from sayso.model.request import FINAL, LIVE, Call, Decision, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum
from sayso.testing import sample_call, sample_edit, sample_question

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
INSTANT = timedelta(microseconds=1)
ADA, BOB, CAROL = (Identity(LOCAL, name) for name in ("ada", "bob", "carol"))
AGENT = Identity(PROGRAM, "agent")


def call(**given: Any) -> Request:
    times = {"requester": AGENT, "created_at": NOW, "expires_at": NOW + SECOND, "approval_window": SECOND}
    return sample_call("run_1", **{**times, **given})


def question(**given: Any) -> Request:
    return sample_question("run_1", **{"requester": AGENT, "created_at": NOW, "expires_at": NOW + SECOND, **given})


def decide(
    request: Request, verb: Any, by: Identity = ADA, *, roles: Any = (), edited: Call | None = None,
    seen: str | None = None, now: datetime = NOW,
) -> Transition:  # fmt: skip
    current = request.current_fingerprint
    decided = current if edited is None else fingerprint(request.run_id, edited.digest)
    answer = '{"answer":"main"}' if verb == "answer" else None
    decision = Decision(verb, by, NOW, "test", None, decided, edited is not None, answer)
    return lifecycle.decide(request, decision, roles=roles, seen=seen or current, edited=edited, now=now)


def approved(request: Request | None = None) -> Request:
    return decide(call() if request is None else request, "approve").request


def held_back(request: Request) -> Request:
    decision = None if request.decision is None else replace(request.decision, held_for=SECOND)
    votes = request.votes if decision is None else (*request.votes[:-1], decision)
    return replace(request, decision=decision, votes=votes)


def started(request: Request | None = None, name: str | None = None) -> Request:
    before = approved() if request is None else request
    again = "" if before.execution is None else before.execution.token  # a token starts once
    return lifecycle.start(before, worker="w", token=name or f"{again}t", now=NOW).request


def finished(running: Request, state: Any) -> Request:
    assert running.execution is not None
    return lifecycle.finish(running, running.execution.token, Outcome(state), NOW).request


def ended(state: Any, request: Request | None = None) -> Request:
    return finished(started(request), state)


def abandoned(request: Request | None = None) -> Request:
    lost = lifecycle.abandon(started(request))
    assert lost is not None
    return lost.request


def expired() -> Request:
    transition = lifecycle.expire(call(), NOW + SECOND)
    assert transition is not None
    return transition.request


def in_state(state: State) -> Request:
    ways: dict[State, Callable[[], Request]] = {
        State.PENDING: call,
        State.APPROVED: approved,
        State.RUNNING: started,
        State.DONE: lambda: ended("done"),
        State.FAILED: lambda: ended("failed"),
        State.UNKNOWN: abandoned,
        State.REJECTED: lambda: decide(call(), "reject").request,
        State.FEEDBACK: lambda: decide(call(), "feedback").request,
        State.ANSWERED: lambda: decide(question(), "answer").request,
        State.CANCELLED: lambda: decide(call(), "cancel").request,
        State.EXPIRED: expired,
    }
    request = ways[state]()
    assert request.state is state
    return request


def forced(request: Request, *, happened: bool) -> Transition:
    return lifecycle.resolve(
        request, BOB, roles=(), happened=happened, comment=None, channel="test", force=True, now=NOW
    )


def assign(request: Request, to: Identity, *, by: Identity = ADA, force: bool = False, **roles: Any) -> Transition:
    known = {"to_roles": None, "roles": (), **roles}
    return teamwork.assign(request, by, to=to, force=force, channel="test", now=NOW, **known)


# -- every way, and every way that there is not --------------------------------------------------------------------

P, A, R, U = State.PENDING, State.APPROVED, State.RUNNING, State.UNKNOWN
VERBS: dict[str, Callable[[Request], Transition | None]] = {
    "approve": lambda r: decide(r, "approve", BOB),
    "reject": lambda r: decide(r, "reject", BOB),
    "feedback": lambda r: decide(r, "feedback", BOB),
    "cancel": lambda r: decide(r, "cancel", BOB),
    "assign": lambda r: assign(r, CAROL, by=BOB),
    "claim": lambda r: teamwork.claim(r, BOB, roles=(), channel="test", now=NOW),
    "release": lambda r: teamwork.release(r, BOB, roles=(), force=False, channel="test", now=NOW),
    "extend": lambda r: teamwork.extend(r, BOB, roles=(), span=SECOND, channel="test", now=NOW),
    "expire": lambda r: lifecycle.expire(r, NOW + SECOND),
    "start": lambda r: lifecycle.start(r, worker="w", token="u", now=NOW),
    "done": lambda r: lifecycle.finish(r, "t", Outcome("done"), NOW),
    "failed": lambda r: lifecycle.finish(r, "t", Outcome("failed"), NOW),
    "unknown": lambda r: lifecycle.finish(r, "t", Outcome("unknown"), NOW),
    "abandon": lifecycle.abandon,
    "happened": lambda r: lifecycle.resolve(r, BOB, roles=(), happened=True, comment=None, channel="test", now=NOW),
    "did not": lambda r: lifecycle.resolve(r, BOB, roles=(), happened=False, comment=None, channel="test", now=NOW),
    "happened by force": lambda r: forced(r, happened=True),
    "did not by force": lambda r: forced(r, happened=False),
    "withdraw": lambda r: lifecycle.withdraw(r, AGENT, NOW),
    "undo": lambda r: lifecycle.undo(held_back(r), ADA, channel="test", now=NOW),
    "send back": lambda r: lifecycle.send_back(replace(r, edited=r.subject), AGENT, ["amount: is odd"], NOW),
}
WAYS: dict[tuple[State, str], State] = {
    (P, "approve"): A,
    (P, "reject"): State.REJECTED,
    (P, "feedback"): State.FEEDBACK,
    (P, "cancel"): State.CANCELLED,
    (P, "assign"): P,
    (P, "claim"): P,
    (P, "extend"): P,
    (P, "expire"): State.EXPIRED,
    (P, "withdraw"): State.CANCELLED,
    (A, "cancel"): State.CANCELLED,
    (A, "extend"): A,
    (A, "expire"): State.EXPIRED,
    (A, "start"): R,
    (A, "withdraw"): State.CANCELLED,
    (A, "send back"): P,
    (A, "undo"): P,
    (R, "done"): State.DONE,
    (R, "failed"): State.FAILED,
    (R, "unknown"): U,
    (R, "abandon"): U,
    (U, "done"): State.DONE,
    (U, "failed"): State.FAILED,
    (U, "unknown"): U,
    (U, "happened"): State.DONE,
    (U, "did not"): State.FAILED,
    (R, "happened by force"): State.DONE,
    (R, "did not by force"): State.FAILED,
    (U, "happened by force"): State.DONE,
    (U, "did not by force"): State.FAILED,
    # The program forgets a no; the state stays, and the same call asks anew.
    (State.REJECTED, "withdraw"): State.REJECTED,
    (State.FEEDBACK, "withdraw"): State.FEEDBACK,
    (State.CANCELLED, "withdraw"): State.CANCELLED,
    (State.ANSWERED, "withdraw"): State.ANSWERED,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", list(State))
def test_there_is_this_way_and_no_other(state: State, verb: str) -> None:
    before = in_state(state)
    to = WAYS.get((state, verb))
    try:
        transition = VERBS[verb](before)
    except errors.SaysoError:
        transition = None
    assert (None if transition is None else transition.request.state) == to


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_state_never_changes(state: State, verb: str) -> None:
    before = in_state(state)
    try:
        transition = VERBS[verb](before)
    except errors.SaysoError:
        return
    assert transition is None or replace(transition.request, holds=before.holds) == before


def test_every_state_is_live_or_final() -> None:
    assert set(State) == LIVE | FINAL
    assert not LIVE & FINAL
    assert {state for state, verb in WAYS if verb != "withdraw"} == LIVE


def test_a_transition_leaves_the_request_as_it_was() -> None:
    before = call(quorum=Quorum(2))
    values = {field.name: getattr(before, field.name) for field in fields(Request)}
    decide(before, "approve")
    decide(before, "approve", edited=sample_edit(before, amount=7))
    lifecycle.expire(before, NOW + SECOND)
    assert {field.name: getattr(before, field.name) for field in fields(Request)} == values


def test_each_change_names_its_event_and_who_made_it() -> None:
    voted = decide(call(quorum=Quorum(2)), "approve")
    done = lifecycle.finish(started(), "t", Outcome("done"), NOW)
    assert (voted.event, voted.by, voted.channel) == ("voted", ADA, "test")
    assert (done.event, done.by, done.channel) == ("done", AGENT, "program")
    assert (lifecycle.asked(call()).event, lifecycle.asked(call()).by) == ("asked", AGENT)


# -- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("late", "due"), [(-INSTANT, False), (timedelta(), True), (INSTANT, True)])
def test_an_end_that_is_reached_is_too_late(late: timedelta, due: bool) -> None:
    for request in (call(), approved()):
        assert lifecycle.is_due(request, NOW + SECOND + late) is due
        transition = lifecycle.expire(request, NOW + SECOND + late)
        assert (transition is not None) is due
        if transition is not None:
            assert (transition.request.state, transition.request.holds) == (State.EXPIRED, False)
            assert transition.channel == "clock"


@pytest.mark.parametrize("state", sorted(set(State) - {P, A}))
def test_nothing_else_ever_expires(state: State) -> None:
    assert lifecycle.expire(in_state(state), NOW + timedelta(days=10_000)) is None


def test_an_approval_counts_from_the_instant_it_was_given() -> None:
    later = decide(call(approval_window=5 * SECOND), "approve", now=NOW + SECOND / 2).request
    assert later.approval_expires_at == NOW + SECOND / 2 + 5 * SECOND
    assert later.decision is not None
    assert later.decision.at == NOW + SECOND / 2


def test_an_expired_approval_is_refused_as_one() -> None:
    gone = lifecycle.expire(approved(), NOW + SECOND)
    assert gone is not None
    with pytest.raises(errors.ApprovalExpiredError) as refused:
        lifecycle.start(gone.request, worker="w", token="u", now=NOW + 9 * SECOND)
    assert refused.value.expired_at == NOW + SECOND


def test_an_expired_request_says_so_to_who_comes_late() -> None:
    with pytest.raises(errors.RequestExpiredError) as refused:
        decide(expired(), "approve", now=NOW + 9 * SECOND)
    assert refused.value.expired_at == NOW + SECOND


# -- people --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["approve", "reject", "feedback", "cancel"])
def test_who_asked_cannot_decide(verb: str) -> None:
    own = call(on_behalf_of=CAROL)
    for by in (AGENT, Identity("PROGRAM", "Agent"), CAROL, Identity(LOCAL, "CAROL")):
        with pytest.raises(errors.OwnRequestError):
            decide(own, verb, by)


@pytest.mark.parametrize("verb", ["claim", "release", "extend", "happened", "did not"])
def test_who_asked_cannot_care_for_the_request_either(verb: str) -> None:
    states = {"claim": P, "release": P, "extend": P, "happened": U, "did not": U}
    request = replace(in_state(states[verb]), on_behalf_of=BOB)
    if verb == "release":
        request = replace(request, claimed_by=ADA, claimed_at=NOW)
        with pytest.raises(errors.OwnRequestError):
            teamwork.release(request, BOB, roles=(), force=True, channel="test", now=NOW)
        return
    with pytest.raises(errors.OwnRequestError):
        VERBS[verb](request)


def test_the_gates_own_hook_needs_no_role_to_resolve() -> None:
    request = ended("unknown", approved_with_role())
    hook = Identity(PROGRAM, "verify=look")
    resolved = lifecycle.resolve(request, hook, roles=None, happened=True, comment=None, channel="verify", now=NOW)
    assert resolved.request.state is State.DONE


def test_each_vote_that_can_be_undone_holds_the_start_back() -> None:
    request = call(quorum=Quorum(2))
    for by, held_for in ((ADA, 5 * SECOND), (BOB, None)):
        decision = Decision("approve", by, NOW, "test", None, request.fingerprint, held_for=held_for)
        options: Any = {"roles": (), "seen": request.fingerprint, "edited": None, "now": NOW}
        last = lifecycle.decide(request, decision, **options)
        request = last.request
    later = NOW + 5 * SECOND
    assert (request.state, request.held_until) == (State.APPROVED, later)
    assert request.approval_expires_at == later + request.approval_window
    assert last.detail["held_until"] == clock.written(later)
    with pytest.raises(errors.ApprovalHeldError):
        lifecycle.start(request, worker="w", token="t", now=later - SECOND)
    assert lifecycle.start(request, worker="w", token="t", now=later).request.state is State.RUNNING


def approved_with_role() -> Request:
    return decide(call(quorum=Quorum(1, frozenset({"finance"}))), "approve", roles={"finance"}).request


@pytest.mark.parametrize("roles", [(), {"ops"}, {"Finance"}])
def test_a_role_is_needed_for_everything_that_a_reviewer_does(roles: Any) -> None:
    request = call(quorum=Quorum(1, frozenset({"finance"})))
    for verb in ("approve", "reject", "feedback", "cancel"):
        with pytest.raises(errors.MissingRoleError):
            decide(request, verb, roles=roles)
    with pytest.raises(errors.MissingRoleError):
        teamwork.claim(request, ADA, roles=roles, channel="test", now=NOW)
    with pytest.raises(errors.MissingRoleError):
        teamwork.extend(request, ADA, roles=roles, span=SECOND, channel="test", now=NOW)
    with pytest.raises(errors.MissingRoleError):
        lifecycle.resolve(
            ended("unknown", approved_with_role()), ADA, roles=roles, happened=True, comment=None, channel="t", now=NOW
        )


def test_a_quorum_is_met_by_as_many_distinct_people_as_it_names() -> None:
    request = call(quorum=Quorum(3))
    for by, missing in ((ADA, 2), (BOB, 1)):
        voted = decide(request, "approve", by)
        request = voted.request
        assert (request.state, request.missing_votes, voted.event) == (P, missing, "voted")
        with pytest.raises(errors.AlreadyVotedError):
            decide(request, "approve", Identity(LOCAL, by.subject.upper()))
    assert decide(request, "approve", CAROL).request.state is A


def test_an_edit_resets_the_votes_and_counts_as_one() -> None:
    voted = decide(decide(call(quorum=Quorum(3)), "approve", ADA).request, "approve", BOB).request
    edit = decide(voted, "approve", ADA, edited=sample_edit(voted, amount=7))
    assert (edit.request.state, edit.request.missing_votes, edit.detail["votes_reset"]) == (P, 2, 2)
    assert [vote.by for vote in edit.request.votes] == [ADA]
    assert edit.request.current_fingerprint != voted.current_fingerprint
    again = decide(edit.request, "approve", BOB).request
    assert decide(again, "approve", CAROL).request.state is A


def test_what_is_approved_is_what_the_last_voter_saw() -> None:
    request = call(quorum=Quorum(2))
    edit = decide(request, "approve", ADA, edited=sample_edit(request, amount=7)).request
    with pytest.raises(errors.StaleViewError):
        decide(edit, "approve", BOB, seen=request.fingerprint)
    final = decide(edit, "approve", BOB).request
    assert final.decision is not None
    assert final.decision.fingerprint == final.current_fingerprint
    assert final.effective.arguments["amount"] == 7


def test_a_no_against_what_was_changed_meanwhile_is_refused_too() -> None:
    request = call(quorum=Quorum(2))
    edit = decide(request, "approve", ADA, edited=sample_edit(request, amount=7)).request
    with pytest.raises(errors.StaleViewError):
        decide(edit, "reject", BOB, seen=request.fingerprint)


def test_a_claim_keeps_others_out_until_it_is_released() -> None:
    claimed = teamwork.claim(call(), ADA, roles=(), channel="test", now=NOW).request
    for verb in ("approve", "reject", "feedback", "cancel"):
        with pytest.raises(errors.ClaimedError):
            decide(claimed, verb, BOB)
    with pytest.raises(errors.ClaimedError):
        teamwork.release(claimed, BOB, roles=(), force=False, channel="test", now=NOW)
    assert decide(claimed, "approve", Identity(LOCAL, "Ada")).request.claimed_by is None
    forced = teamwork.release(claimed, BOB, roles=(), force=True, channel="test", now=NOW)
    assert forced.request.claimed_by is None
    assert forced.detail == {"claimed_by": "local:ada"}
    own = teamwork.release(claimed, ADA, roles=(), force=False, channel="test", now=NOW)
    assert own.detail == {}


def test_a_claim_keeps_one_approval_of_a_quorum_and_leaves_the_others() -> None:
    claimed = teamwork.claim(call(quorum=Quorum(2)), ADA, roles=(), channel="test", now=NOW).request
    with pytest.raises(errors.ClaimedError):  # an edit is more than a vote
        decide(claimed, "approve", BOB, edited=sample_edit(claimed, amount=7))
    for verb in ("reject", "feedback", "cancel"):
        with pytest.raises(errors.ClaimedError):
            decide(claimed, verb, BOB)
    with pytest.raises(errors.ClaimedError):
        teamwork.claim(claimed, BOB, roles=(), channel="test", now=NOW)
    voted = decide(claimed, "approve", BOB).request
    assert (voted.state, voted.claimed_by, voted.claimed_at) == (State.PENDING, ADA, NOW)
    with pytest.raises(errors.ClaimedError):  # the approval that is left is the claimer's
        decide(voted, "approve", CAROL)
    done = decide(voted, "approve", ADA).request
    assert (done.state, done.claimed_by, [vote.by for vote in done.votes]) == (State.APPROVED, None, [BOB, ADA])
    first = decide(claimed, "approve", ADA).request
    assert first.claimed_by is None, "who has voted holds it no longer"
    again = teamwork.claim(first, ADA, roles=(), channel="test", now=NOW).request
    assert decide(again, "approve", BOB).request.state is State.APPROVED, "nor keeps the other approval"
    assert decide(again, "reject", BOB).request.state is State.REJECTED, "nor keeps others from a rejection"


def test_a_vote_on_other_terms_does_not_pass_a_claim() -> None:
    request = call(quorum=Quorum(4), effect="refund:1")
    voted = decide(request, "approve", BOB).request
    claimed = teamwork.claim(voted, ADA, roles=(), channel="test", now=NOW).request
    again = Decision("approve", CAROL, NOW, "test", "the first one failed", claimed.current_fingerprint, again=True)
    with pytest.raises(errors.ClaimedError):  # it would discard the vote of bob
        lifecycle.decide(claimed, again, roles=(), seen=None, edited=None, now=NOW)
    assert len(decide(claimed, "approve", CAROL).request.votes) == 2


def test_a_request_is_assigned_to_whom_it_would_let_decide_and_by_those_too() -> None:
    request = call(quorum=Quorum(1, frozenset({"finance"})), on_behalf_of=Identity("idp", "Bob"))
    finance = {"roles": {"finance"}}
    for refused, kind in (
        (lambda: assign(request, CAROL), errors.MissingRoleError),
        (lambda: assign(request, CAROL, to_roles={"ops"}, **finance), errors.MissingRoleError),
        (lambda: assign(request, BOB, **finance), errors.OwnRequestError),
        (lambda: assign(request, CAROL, by=BOB, **finance), errors.OwnRequestError),
        (lambda: assign(request, AGENT, **finance), errors.OwnRequestError),
    ):
        with pytest.raises(kind):
            refused()
    voted = decide(call(quorum=Quorum(2)), "approve", ADA).request
    with pytest.raises(errors.AlreadyVotedError):  # then nobody could decide
        assign(voted, Identity(LOCAL, "Ada"), by=CAROL)
    given = assign(request, CAROL, to_roles={"finance"}, **finance)
    assert (given.event, given.by, given.request.claimed_by, given.detail) == (
        "assigned", ADA, CAROL, {"to": "local:carol"},
    )  # fmt: skip
    for other in (ADA, Identity(LOCAL, "dan")):
        with pytest.raises(errors.ClaimedError):
            decide(given.request, "approve", other, roles={"finance"})
        with pytest.raises(errors.ClaimedError):
            assign(given.request, other, by=other, **finance)
    with pytest.raises(errors.MissingRoleError):  # whoever gave it, the decision looks for itself
        decide(assign(request, CAROL, **finance).request, "approve", CAROL, roles={"ops"})
    assert assign(given.request, Identity(LOCAL, "dan"), by=CAROL, **finance).detail == {"to": "local:dan"}
    taken = assign(given.request, ADA, force=True, **finance)
    assert (taken.request.claimed_by, taken.detail["claimed_by"]) == (ADA, "local:carol")


def test_nobody_releases_what_nobody_claimed() -> None:
    with pytest.raises(errors.NotClaimedError):
        teamwork.release(call(), ADA, roles=(), force=True, channel="test", now=NOW)


@pytest.mark.parametrize("verb", ["approve", "feedback"])
def test_a_question_takes_no_such_decision(verb: str) -> None:
    with pytest.raises(errors.WrongKindError):
        decide(question(), verb)


def test_a_call_is_not_answered() -> None:
    with pytest.raises(errors.WrongKindError):
        decide(call(), "answer")


def test_who_was_first_is_named_to_who_comes_second() -> None:
    with pytest.raises(errors.AlreadyDecidedError) as refused:
        decide(approved(), "reject", BOB, now=NOW + 12 * SECOND)
    assert (refused.value.by, refused.value.at, refused.value.channel) == ("ada", NOW, "test")
    assert "12 s ago" in str(refused.value)
    assert "nothing changed" in str(refused.value)


# -- the program ---------------------------------------------------------------------------------------------------


def test_only_the_last_token_ends_a_call() -> None:
    first = started(approved(call(idempotent=True)), "first")
    lost = lifecycle.abandon(first)
    assert lost is not None
    second = lifecycle.start(lost.request, worker="w", token="second", now=NOW).request
    with pytest.raises(errors.StartRefusedError):
        lifecycle.finish(second, "first", Outcome("done"), NOW)
    assert lifecycle.finish(second, "second", Outcome("done"), NOW).request.state is State.DONE


@pytest.mark.parametrize("state", ["unknown", "suspended"])
def test_a_start_reports_once_how_it_ended(state: Any) -> None:
    again = started(abandoned(approved(call(idempotent=True))), "again")
    reported = finished(again, state)
    cancelled = decide(reported, "cancel").request if reported.state is A else reported
    assert cancelled.state is U  # nobody knows how the first start ended
    for outcome in ("suspended", "done"):  # the same message, which a network delivers twice, and another one
        with pytest.raises(errors.StartRefusedError):
            lifecycle.finish(cancelled, "again", Outcome(outcome), NOW)


def test_a_failed_call_has_the_starts_that_the_gate_gives_it() -> None:
    request = approved(call(retries=2))
    for attempt in (1, 2, 3):
        running = started(request)
        assert running.execution is not None
        assert running.execution.attempt == attempt
        request = finished(running, "failed")
        assert request.state is (State.FAILED if attempt == 3 else A)
        assert request.holds is (attempt < 3)


def test_retries_give_no_start_after_an_unknown_outcome() -> None:
    with pytest.raises(errors.OutcomeUnknownError):
        started(ended("unknown", approved(call(retries=5))))


def test_a_resolved_call_that_did_not_happen_may_use_its_retries() -> None:
    unknown = ended("unknown", approved(call(retries=1)))
    again = VERBS["did not"](unknown)
    assert again is not None
    assert (again.request.state, again.request.holds) == (A, True)
    spent = lifecycle.resolve(
        ended("unknown", again.request), BOB, roles=(), happened=False, comment=None, channel="test", start=2, now=NOW
    )
    assert (spent.request.state, spent.request.holds) == (State.FAILED, False)


@pytest.mark.parametrize("idempotent", [False, True])
def test_nothing_is_tried_again_after_the_approval_has_ended(idempotent: bool) -> None:
    request = approved(call(retries=1, idempotent=idempotent))
    failed = lifecycle.finish(started(request), "t", Outcome("failed"), NOW + SECOND)
    unknown = ended("unknown", request)
    resolved = lifecycle.resolve(unknown, BOB, roles=(), happened=False, comment=None, channel="test", now=NOW + SECOND)
    for last in (failed, resolved):
        assert (last.request.state, last.request.holds, last.detail.get("may_try_again")) == (
            State.FAILED, False, None,
        )  # fmt: skip


def test_a_call_that_was_given_up_by_force_is_spent_whatever_the_gate_allows() -> None:
    running = started(approved(call(retries=5, idempotent=True)))
    given_up = forced(running, happened=False)
    assert (given_up.request.state, given_up.request.holds) == (State.FAILED, False)
    assert given_up.detail == {"happened": False, "given_up": "w"}
    assert forced(ended("unknown", approved(call(retries=1))), happened=False).request.state is A


def test_an_idempotent_call_is_not_started_again_after_its_approval_ended() -> None:
    unknown = ended("unknown", approved(call(idempotent=True)))
    assert started(unknown).state is R
    with pytest.raises(errors.OutcomeUnknownError):
        lifecycle.start(unknown, worker="w", token="u", now=NOW + SECOND)


def test_a_spent_approval_no_longer_holds_and_an_unknown_one_does() -> None:
    assert [ended(state).holds for state in ("done", "failed", "unknown")] == [False, False, True]


@pytest.mark.parametrize(
    ("before", "how"),
    [
        (lambda: ended("failed", approved(call(retries=1))), "failed"),
        (lambda: ended("suspended"), "stopped half-way to ask a person"),
        (lambda: VERBS["did not"](ended("unknown", approved(call(retries=1)))).request, "did not take effect, as bob"),
    ],
    ids=["failed", "suspended", "resolved"],
)
def test_what_was_started_is_not_said_to_be_not_run(before: Callable[[], Request], how: str) -> None:
    gone = lifecycle.expire(before(), NOW + SECOND)
    assert gone is not None
    for last in (gone.request, decide(before(), "cancel").request):
        assert f"pay was started, and {how}" in last.message_for_model()
        assert "it was not run again: " in last.message_for_model()


def test_an_unknown_start_is_not_forgotten_while_a_changed_call_waits_again() -> None:
    changed = decide(call(idempotent=True), "approve", edited=sample_edit(call(), amount=7)).request
    half = finished(started(abandoned(changed)), "suspended")
    back = lifecycle.send_back(half, AGENT, ["amount: is odd"], NOW)
    assert back is not None
    assert "nobody knows whether it took effect" in back.request.message_for_model()
    claimed = teamwork.claim(back.request, ADA, roles=(), channel="test", now=NOW).request
    over = lifecycle.expire(claimed, NOW + 2 * SECOND)
    assert over is not None
    assert over.request.state is U
    resolved = lifecycle.resolve(
        over.request, BOB, roles=(), happened=True, comment=None, channel="test", start=2, now=NOW + 2 * SECOND
    )
    assert resolved.request.state is State.DONE


def test_the_programs_own_withdrawal_is_a_cancellation_by_it() -> None:
    withdrawn = lifecycle.withdraw(approved(), AGENT, NOW)
    assert withdrawn is not None
    assert (withdrawn.event, withdrawn.request.state, withdrawn.request.holds) == ("withdrawn", State.CANCELLED, False)
    with pytest.raises(errors.AlreadyDecidedError):
        decide(withdrawn.request, "approve", BOB)


@pytest.mark.parametrize(
    "end", [lifecycle.expire, lambda r, now: lifecycle.withdraw(r, AGENT, now)], ids=["expire", "withdraw"]
)
def test_a_claim_ends_with_the_wait_of_a_call_that_is_unknown(end: Callable[..., Transition | None]) -> None:
    changed = decide(call(idempotent=True), "approve", edited=sample_edit(call(), amount=7)).request
    half = finished(started(abandoned(changed)), "suspended")
    back = lifecycle.send_back(half, AGENT, ["amount: is odd"], NOW)
    assert back is not None
    claimed = teamwork.claim(back.request, ADA, roles=(), channel="test", now=NOW).request
    gone = end(claimed, back.request.expires_at)
    assert gone is not None
    assert (gone.request.state, gone.request.claimed_by) == (State.UNKNOWN, None)
    found = lifecycle.resolve(
        gone.request, BOB, roles=(), happened=True, comment=None, channel="test", start=2, now=NOW
    ).request
    assert found.state is State.DONE
