"""The person's door: deciding, and being refused with reasons.

Each refusal is one kind of error with its facts, and leaves the request and its journal as they were. Who may decide
is in `test_reviewers`, changed arguments in `test_edits`. The invariant: decided is decided.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import sayso
from sayso import errors, reviews
from sayso.model.ids import ID_LENGTH
from sayso.model.request import FINAL, Request, State
from sayso.model.reviewer import Identity, Reviewer
from sayso.mplp import create_confirm, submit_for_approval
from sayso.mplp.schema import id_of
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import Pay, approved, held, payer
from tests.support.ids import stable


def test_decision_is_kept_with_everything_about_it(review: sayso.Review, pay: Pay, clock: Clock) -> None:
    pause = held(pay, 5)
    clock.tick(minutes=3)
    request = sayso.Review(review.store, channel="chat").approve(
        pause.confirmation_id, by=Reviewer("bob", roles={"finance"}, issuer="github"), comment="fine"
    )
    decision = request.decision
    assert decision is not None
    assert (decision.verb, decision.by, decision.at) == ("approve", Identity("github", "bob"), clock.at)
    assert (decision.channel, decision.comment, decision.edited) == ("chat", "fine", False)
    assert decision.fingerprint == request.fingerprint
    assert request.approval_expires_at == clock.at + timedelta(hours=24)
    assert review.get(request.id) == request


def test_words_of_a_decision_reach_the_program(review: sayso.Review, pay: Pay) -> None:
    table = {
        "reject": (sayso.ConfirmationRejected, "was rejected by ada: no \\udcff"),
        "feedback": (sayso.ConfirmationFeedback, "was sent back by ada: no \\udcff"),
        "cancel": (sayso.ConfirmationCancelled, "was cancelled by ada: no \\udcff"),
    }
    for amount, (verb, (kind, words)) in enumerate(table.items()):
        pause = held(pay, amount)
        getattr(review, verb)(pause.confirmation_id, "no \udcff")
        for _ in range(2):
            with pytest.raises(sayso.ConfirmationRejected) as caught:
                pay(amount)
            assert type(caught.value) is kind
            assert words in str(caught.value)
            assert caught.value.confirmation_id == pause.confirmation_id


def test_cancel_reaches_an_approval_that_was_not_used(review: sayso.Review, pay: Pay) -> None:
    request_id = approved(pay, 5)
    assert review.cancel(request_id, "the run is over").state is State.CANCELLED
    with pytest.raises(sayso.ConfirmationCancelled, match="the run is over"):
        pay(5)


def test_reviewer_may_be_named_by_the_review(store: Store, pay: Pay) -> None:
    for reviewer in ("ada", Reviewer("ada", roles={"finance"})):
        pause = held(payer(roles={"finance"}) if isinstance(reviewer, Reviewer) else pay, 5)
        request = sayso.Review(reviewer=reviewer).approve(pause.confirmation_id)
        assert request.decision is not None
        assert request.decision.by == Identity("local", "ada")
        sayso.clear_all_confirmations()


@pytest.mark.parametrize("by", ["", " ", "ada ", "a\nb", "a\u202eb", "a\u200bb"])
def test_reviewer_without_a_proper_name_decides_nothing(review: sayso.Review, pay: Pay, by: str) -> None:
    request_id = held(pay, 5).confirmation_id
    with pytest.raises(ValueError, match="subject"):
        review.approve(request_id, by=by)
    assert review.get(request_id).state is State.PENDING


# -- refusals --------------------------------------------------------------------------------------------------------

Case = Callable[[sayso.Review, Pay, Clock], tuple[str, Callable[[], Any]]]


def already_decided(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(pay, 5).confirmation_id
    sayso.Review(review.store, channel="chat").approve(request_id, by="bob")
    clock.tick(seconds=12)
    return request_id, lambda: review.reject(request_id)


def expired(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(pay, 5).confirmation_id
    clock.tick(hours=24)
    review.get(request_id)
    clock.tick(minutes=5)
    return request_id, lambda: review.approve(request_id)


def own_request(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    with sayso.run("order-1", on_behalf_of="Ada"):
        request_id = held(pay, 5).confirmation_id
    return request_id, lambda: review.approve(request_id)


def missing_role(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(payer(roles=["finance", "board"]), 5).confirmation_id
    return request_id, lambda: review.approve(request_id, by=Reviewer("ada", roles={"staff"}))


def already_voted(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(payer(quorum=3), 5).confirmation_id
    review.approve(request_id)
    return request_id, lambda: review.approve(request_id, by="ADA")


def claimed(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(pay, 5).confirmation_id
    review.claim(request_id, by="bob")
    clock.tick(minutes=3)
    return request_id, lambda: review.approve(request_id)


def not_claimed(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(pay, 5).confirmation_id
    return request_id, lambda: review.release(request_id)


def stale(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request = review.get(held(payer(quorum=2), 5).confirmation_id)
    review.approve(request.id, by="bob", changes={"amount": 4})
    return request.id, lambda: review.approve(request.id, seen=request.current_fingerprint)


def wrong_kind(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(pay, 5).confirmation_id
    return request_id, lambda: review.answer(request_id, True)


def invalid_changes(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(pay, 5).confirmation_id
    return request_id, lambda: review.approve(request_id, changes={"amount": "lots", "nosuch": 1})


def grant_refused(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(pay, 5).confirmation_id
    return request_id, lambda: review.grant(request_id, count=2, lasts="1h", at_most={"amount": 6})


def invalid_answer(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(sayso.ask, "Go on?", type=bool, wait="raise").confirmation_id
    return request_id, lambda: review.answer(request_id, "perhaps")


def reason_missing(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    submit_for_approval(create_confirm("extension", id_of("test", "one"), "agent", "why"))
    (request,) = review.list().requests
    return request.id, lambda: review.reject(request.id)


def not_unknown(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = approved(pay, 5)
    pay(5)
    return request_id, lambda: review.resolve(request_id, happened=True)


def not_undone(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = approved(pay, 5)
    return request_id, lambda: review.undo(request_id)


REFUSALS: list[tuple[Case, type[errors.DecisionRefusedError], dict[str, Any], str]] = [
    (already_decided, errors.AlreadyDecidedError, {"state": "approved", "by": "bob", "channel": "chat"},
     "was already approved by 'bob' (chat, 12 s ago); nothing changed"),
    (expired, errors.RequestExpiredError, {}, "expired 5 min ago; nothing was decided"),
    (own_request, errors.OwnRequestError, {"by": "ada"}, "cannot decide it; somebody else must"),
    (missing_role, errors.MissingRoleError, {"by": "ada", "roles": ("board", "finance")},
     "needs the role 'board' or 'finance'"),
    (already_voted, errors.AlreadyVotedError, {"by": "ADA", "missing": 2}, "approvals by others still needed: 2"),
    (claimed, errors.ClaimedError, {"by": "bob"}, "was claimed by 'bob' 3 min ago; nothing was decided"),
    (not_claimed, errors.NotClaimedError, {}, "is not claimed by anybody"),
    (stale, errors.StaleViewError, {}, "was changed since you looked"),
    (wrong_kind, errors.WrongKindError, {"kind": "call", "verb": "answer"}, "does not accept answer; use approve"),
    (invalid_changes, errors.InvalidChangesError, {}, "nothing was decided"),
    (grant_refused, errors.GrantRefusedError, {}, "no grant was made from"),
    (invalid_answer, errors.InvalidAnswerError, {}, "still waits"),
    (reason_missing, errors.ReasonMissingError, {}, "needs a reason; nothing was decided"),
    (not_unknown, errors.NotUnknownError, {"state": "done"}, "its outcome is not unknown"),
    (not_undone, errors.NotUndoneError, {}, "was not undone"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "kind", "facts", "words"), REFUSALS, ids=[case.__name__ for case, *_ in REFUSALS])
def test_refusal_says_what_happened_and_changes_nothing(
    store: Store, review: sayso.Review, pay: Pay, clock: Clock, case: Case, kind: Any, facts: dict[str, Any], words: str
) -> None:
    request_id, attempt = case(review, pay, clock)
    before, rows = store.get(request_id), store.journal()
    with pytest.raises(errors.DecisionRefusedError) as caught:
        attempt()
    refusal: Any = caught.value
    assert type(refusal) is kind
    assert words in str(refusal)
    assert refusal.request_id == request_id
    assert request_id in str(refusal)
    assert {name: getattr(refusal, name) for name in facts} == facts
    assert store.get(request_id) == before
    assert store.journal() == rows
    again = pickle.loads(pickle.dumps(refusal))
    assert (type(again), str(again), vars(again)) == (kind, str(refusal), vars(refusal))


def test_every_refusal_is_in_the_table() -> None:
    kinds = {kind for kind in errors.DecisionRefusedError.__subclasses__() if kind.__module__ == errors.__name__}
    assert kinds == {kind for _, kind, _, _ in REFUSALS}


@pytest.mark.parametrize(
    ("case", "fact"), [(already_decided, "at"), (claimed, "at"), (expired, "expired_at")], ids=stable
)
def test_times_of_a_refusal_are_the_stores(review: sayso.Review, pay: Pay, clock: Clock, case: Case, fact: str) -> None:
    began = clock.at
    request_id, attempt = case(review, pay, clock)
    with pytest.raises(errors.DecisionRefusedError) as caught:
        attempt()
    expected = review.get(request_id).expires_at if case is expired else began
    assert getattr(caught.value, fact) == expected


@pytest.mark.parametrize(("milliseconds", "counts"), [(-1, True), (0, False), (1, False)])
@pytest.mark.parametrize("verb", ["approve", "reject", "feedback", "cancel", "claim"])
def test_request_ends_at_its_very_instant(
    review: sayso.Review, clock: Clock, milliseconds: int, counts: bool, verb: str
) -> None:
    pay = payer(expires="1h")
    request_id = held(pay, 5).confirmation_id
    clock.tick(hours=1, milliseconds=milliseconds)
    words = ["words"] if verb == "feedback" else []
    if counts:
        getattr(review, verb)(request_id, *words)
        assert review.get(request_id).state is not State.EXPIRED
        return
    with pytest.raises(errors.RequestExpiredError, match="must ask again"):
        getattr(review, verb)(request_id, *words)
    assert review.get(request_id).state is State.EXPIRED
    assert held(pay, 5).confirmation_id != request_id


def reach(review: sayso.Review, clock: Clock, state: State) -> str:
    """Bring a request into a final state."""
    ends: dict[State, Callable[[str], Any]] = {
        State.REJECTED: review.reject,
        State.FEEDBACK: lambda request_id: review.feedback(request_id, "words"),
        State.CANCELLED: review.cancel,
        State.EXPIRED: lambda _: clock.tick(hours=24),
    }

    @sayso.gate(wait="raise")
    def act(fails: bool) -> None:
        if fails:
            raise ValueError("over")

    if state is State.ANSWERED:
        request_id = held(sayso.ask, "Go on?", wait="raise").confirmation_id
        review.answer(request_id, "yes")
        return request_id
    request_id = held(act, state is State.FAILED).confirmation_id
    if state in ends:
        ends[state](request_id)
        return request_id
    review.approve(request_id)
    if state is State.FAILED:
        with pytest.raises(ValueError, match="over"):
            act(True)
    else:
        act(False)
    return request_id


@pytest.mark.parametrize("state", sorted(FINAL))
def test_final_state_never_changes(store: Store, review: sayso.Review, clock: Clock, state: State) -> None:
    request_id = reach(review, clock, state)
    before = review.get(request_id)
    assert before.state is state
    clock.tick(seconds=5)
    attempts: list[Callable[[], Request]] = [
        lambda: review.approve(request_id, by="bob"),
        lambda: review.approve(request_id, by="bob", changes={"fails": True}),
        lambda: review.reject(request_id, by="bob"),
        lambda: review.feedback(request_id, "words", by="bob"),
        lambda: review.answer(request_id, "yes", by="bob"),
        lambda: review.cancel(request_id, by="bob"),
        lambda: review.claim(request_id, by="bob"),
        lambda: review.release(request_id, by="bob", force=True),
        lambda: review.extend(request_id, "1h", by="bob"),
        lambda: review.resolve(request_id, happened=True, by="bob"),
    ]
    for attempt in attempts:
        with pytest.raises(errors.DecisionRefusedError):
            attempt()
    assert store.get(request_id) == before
    assert review.get(request_id) == before


def test_happened_is_a_bool_and_nothing_that_reads_like_one(review: sayso.Review, pay: Pay) -> None:
    with pytest.raises(TypeError, match="True or False"):
        review.resolve(approved(pay, 5), happened="no")  # type: ignore[arg-type]


# -- the async twin --------------------------------------------------------------------------------------------------


def test_async_review_has_the_same_verbs_with_the_same_signatures() -> None:
    def verbs(cls: type) -> dict[str, Any]:
        return {name: verb for name, verb in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}

    ours, theirs = verbs(sayso.aio.Review), verbs(reviews.Review)
    assert set(ours) == set(theirs)
    assert len(ours) >= 12
    for name, verb in ours.items():
        assert inspect.iscoroutinefunction(verb) or name == "list", name  # that one can be walked as well as awaited
        assert inspect.signature(verb) == inspect.signature(theirs[name]), name
        assert verb.__doc__ == theirs[name].__doc__
    assert inspect.signature(sayso.aio.Review) == inspect.signature(reviews.Review)


def test_what_is_no_id_or_no_state_is_named_and_nothing_is_decided(memory: Store) -> None:
    review, request_id = sayso.Review(by="ada"), held(payer(), 5).id
    for given in ([request_id], None, 7, ["x"] * ID_LENGTH):
        for verb in (review.approve, review.get, review.claim):
            with pytest.raises(TypeError, match=r"pass the id of one request, a string .* nothing was done"):
                verb(given)  # type: ignore[arg-type]
    assert memory.get(request_id).state is State.PENDING
    for state, meant in {"pendign": "did you mean 'pending'?", "x": "known are pending, .* and all"}.items():
        with pytest.raises(ValueError, match=f"unknown state '{state}'; {meant}"):
            review.list(state=["done", state])
