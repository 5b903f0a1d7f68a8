"""The person's door: finding what waits, deciding it, and being refused with reasons.

Each refusal is one kind of error with its facts, and leaves the request and its journal as they were. Changed
arguments are in `test_edits`, the races between reviewers in `test_races`. The invariant: decided is decided.
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
from sayso.model.request import FINAL, Request, State
from sayso.model.reviewer import Identity, Reviewer
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.integration.acting import approved, held

Pay = Callable[..., str]


def payer(**options: Any) -> Pay:
    @sayso.gate(wait="raise", **options)
    def pay(amount: int, to: str = "alice") -> str:
        return f"paid {amount} to {to}"

    return pay


@pytest.fixture
def pay(store: Store) -> Pay:
    return payer()


@pytest.fixture
def review(store: Store, clock: Clock) -> sayso.Review:
    return sayso.Review(reviewer="ada", channel="test")


def ids(page: Any) -> list[str]:
    return [request.id for request in page.requests]


# -- finding ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def several(store: Store, review: sayso.Review) -> dict[str, str]:
    """Requests of every kind that a list can be asked for, by a name for each."""

    @sayso.gate(wait="raise", risk="high", prompt="Wipe Everything?")
    def wipe(path: str) -> None: ...

    pay = payer()
    found: dict[str, str] = {}
    with sayso.run("order-1"):
        found["pending"] = held(pay, 1).confirmation_id
        found["approved"] = held(pay, 2).confirmation_id
        found["rejected"] = held(pay, 3).confirmation_id
    with sayso.run("order-2"):
        found["wipe"] = held(wipe, "needle-in-an-argument").confirmation_id
        found["question"] = held(sayso.ask, "Which Größe?", wait="raise").confirmation_id
    review.approve(found["approved"])
    review.reject(found["rejected"])
    review.claim(found["wipe"], by="Bob")
    return found


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["pending", "approved", "wipe", "question"]),
    ({"state": "all"}, ["pending", "approved", "rejected", "wipe", "question"]),
    ({"state": "pending"}, ["pending", "wipe", "question"]),
    ({"state": State.REJECTED}, ["rejected"]),
    ({"state": ["approved", "rejected"]}, ["approved", "rejected"]),
    ({"state": {State.DONE}}, []),
    ({"run_id": "order-1"}, ["pending", "approved"]),
    ({"run_id": "order"}, []),
    ({"name": "wipe"}, ["wipe"]),
    ({"name": f"{__name__}:payer.<locals>.pay"}, ["pending", "approved"]),
    ({"name": "pa"}, []),
    ({"risk": "high"}, ["wipe"]),
    ({"kind": "question"}, ["question"]),
    ({"kind": "call", "state": "pending"}, ["pending", "wipe"]),
    ({"claimed_by": "bob"}, ["wipe"]),
    ({"claimed_by": Reviewer("BOB")}, ["wipe"]),
    ({"claimed_by": Reviewer("bob", issuer="github")}, []),
    ({"claimed_by": "ada"}, []),
    ({"text": "ORDER-2"}, ["wipe", "question"]),
    ({"text": "wipe everything"}, ["wipe"]),
    ({"text": "grösse"}, ["question"]),
    ({"text": "GRÖSSE", "kind": "question"}, ["question"]),
    ({"text": "größe"}, ["question"]),
    ({"text": "needle"}, []),
    ({"text": "%"}, []),
    ({"text": "nobody"}, []),
    ({"newest": True}, ["question", "wipe", "approved", "pending"]),
    ({"limit": 2}, ["pending", "approved"]),
    ({"limit": 2, "newest": True}, ["question", "wipe"]),
    ({"text": "order-1", "state": "all", "newest": True, "limit": 1}, ["rejected"]),
]


@pytest.mark.parametrize(("wanted", "names"), FILTERS, ids=repr)
def test_list_gives_what_it_is_asked_for(
    review: sayso.Review, several: dict[str, str], wanted: dict[str, Any], names: list[str]
) -> None:
    assert ids(review.list(**wanted)) == [several[name] for name in names]


def test_list_finds_a_request_by_its_id_as_text(review: sayso.Review, several: dict[str, str]) -> None:
    assert ids(review.list(text=several["wipe"][3:].upper())) == [several["wipe"]]


@pytest.mark.parametrize(
    "wanted",
    [{"state": "open"}, {"state": ["pending", "x"]}, {"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "-1"}],
)
def test_list_refuses_what_there_is_not(review: sayso.Review, wanted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"open|x|limit|-1"):
        review.list(**wanted)


@pytest.mark.parametrize("newest", [False, True])
def test_cursor_stays_good_while_requests_come_and_are_decided(review: sayso.Review, pay: Pay, newest: bool) -> None:
    before = [held(pay, amount).confirmation_id for amount in range(10)]
    wanted = before[::-1] if newest else before
    seen: list[str] = []
    cursor = None
    for turn in range(4):
        page = review.list(state="all", limit=3, cursor=cursor, newest=newest)
        seen += ids(page)
        cursor = page.cursor
        held(pay, 100 + turn)
        review.approve(wanted[turn])
        review.reject(wanted[-1 - turn])
    assert [request_id for request_id in seen if request_id in before] == wanted
    assert len(seen) == len(set(seen))
    assert (cursor is None) is newest


def test_last_page_has_no_cursor(review: sayso.Review, pay: Pay) -> None:
    for amount in range(4):
        held(pay, amount)
    first = review.list(limit=2)
    assert first.cursor is not None
    second = review.list(limit=2, cursor=first.cursor)
    assert (len(second.requests), second.cursor) == (2, None)
    assert review.list(limit=4).cursor is None


def test_list_writes_down_what_has_expired(review: sayso.Review, pay: Pay, clock: Clock, store: Store) -> None:
    request_id = held(pay, 1).confirmation_id
    clock.tick(hours=24)
    assert review.list().requests == ()
    assert store.get(request_id).state is State.EXPIRED
    assert store.journal(request_id=request_id)[-1].event == "expired"


def test_id_may_be_shortened_while_it_fits_no_other(review: sayso.Review, pay: Pay) -> None:
    found = [held(pay, amount).confirmation_id for amount in range(40)]
    for request_id in found[:5]:
        assert review.get(request_id).id == review.get(request_id.removeprefix("rq_")).id == request_id
        shortest = next(
            request_id[:size]
            for size in range(4, 30)
            if sum(other.startswith(request_id[:size]) for other in found) == 1
        )
        assert review.get(shortest).id == review.get(shortest.removeprefix("rq_")).id == request_id
        assert review.find(shortest) == request_id


def test_beginning_that_fits_several_is_refused_with_them(review: sayso.Review, pay: Pay) -> None:
    found = [held(pay, amount).confirmation_id for amount in range(40)]
    letter = max({request_id[3] for request_id in found}, key=lambda letter: sum(i[3] == letter for i in found))
    with pytest.raises(errors.AmbiguousIdError, match="give more of the id") as caught:
        review.get(letter)
    assert caught.value.prefix == letter
    assert set(caught.value.matches) <= {request_id for request_id in found if request_id[3] == letter}
    assert 2 <= len(caught.value.matches) <= 10
    with pytest.raises(errors.AmbiguousIdError):
        review.approve(f"rq_{letter}")


@pytest.mark.parametrize("nothing", ["", "rq_", "rq_zzzzzzzzzz", "nobody", "%", "rq_%", "\udcff", "rq_\U0010ffff"])
def test_id_that_there_is_not_is_refused(review: sayso.Review, pay: Pay, nothing: str) -> None:
    held(pay, 1)
    for verb in (review.get, review.approve, review.reject, review.claim):
        with pytest.raises(errors.RequestNotFoundError, match="sayso ls") as caught:
            verb(nothing)
        assert caught.value.request_id == nothing


# -- deciding --------------------------------------------------------------------------------------------------------


def test_decision_is_kept_with_everything_about_it(review: sayso.Review, pay: Pay, clock: Clock) -> None:
    pause = held(pay, 5)
    clock.tick(minutes=3)
    request = review.approve(
        pause.confirmation_id, by=Reviewer("bob", roles={"finance"}, issuer="github"), comment="fine", channel="chat"
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
    review.approve(request_id, by="bob", channel="chat")
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


def invalid_answer(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = held(sayso.ask, "Go on?", type=bool, wait="raise").confirmation_id
    return request_id, lambda: review.answer(request_id, "perhaps")


def not_unknown(review: sayso.Review, pay: Pay, clock: Clock) -> tuple[str, Callable[[], Any]]:
    request_id = approved(pay, 5)
    pay(5)
    return request_id, lambda: review.resolve(request_id, happened=True)


REFUSALS: list[tuple[Case, type[errors.DecisionRefusedError], dict[str, Any], str]] = [
    (already_decided, errors.AlreadyDecidedError, {"state": "approved", "by": "bob", "channel": "chat"},
     "was already approved by 'bob' (chat, 12 s ago); nothing changed"),
    (expired, errors.RequestExpiredError, {}, "expired 5 min ago; nothing was decided"),
    (own_request, errors.OwnRequestError, {"by": "ada"}, "cannot decide it; somebody else must"),
    (missing_role, errors.MissingRoleError, {"by": "ada", "roles": ("board", "finance")},
     "needs the role 'board' or 'finance'"),
    (already_voted, errors.AlreadyVotedError, {"by": "ADA", "missing": 2}, "2 more, by somebody else, still needed"),
    (claimed, errors.ClaimedError, {"by": "bob"}, "was claimed by 'bob' 3 min ago; nothing was decided"),
    (not_claimed, errors.NotClaimedError, {}, "is not claimed by anybody"),
    (stale, errors.StaleViewError, {}, "was changed since you looked"),
    (wrong_kind, errors.WrongKindError, {"kind": "call", "verb": "answer"}, "takes no answer; use approve"),
    (invalid_changes, errors.InvalidChangesError, {}, "nothing was decided"),
    (invalid_answer, errors.InvalidAnswerError, {}, "still waits"),
    (not_unknown, errors.NotUnknownError, {"state": "done"}, "its outcome is not unknown"),
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
    kinds = set(errors.DecisionRefusedError.__subclasses__())
    assert kinds == {kind for _, kind, _, _ in REFUSALS}


@pytest.mark.parametrize(("case", "fact"), [(already_decided, "at"), (claimed, "at"), (expired, "expired_at")], ids=str)
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
    with pytest.raises(errors.RequestExpiredError, match="must ask anew"):
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


# -- who may decide --------------------------------------------------------------------------------------------------

FOLDED = ["ada", "ADA", "Ada", "\uff41da", "a\uff24a"]
OTHERS = [Reviewer("ada", issuer="github"), Reviewer("ad\u00e1"), Reviewer("bob"), Reviewer("\u0430da")]


@pytest.mark.parametrize("name", FOLDED)
def test_one_person_counts_once_however_the_name_is_written(review: sayso.Review, name: str) -> None:
    request_id = held(payer(quorum=2), 5).confirmation_id
    review.approve(request_id, by="ada")
    with pytest.raises(errors.AlreadyVotedError):
        review.approve(request_id, by=name)
    assert review.get(request_id).missing_votes == 1


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_two_people_count_twice(review: sayso.Review, other: Reviewer) -> None:
    request_id = held(payer(quorum=2), 5).confirmation_id
    assert review.approve(request_id, by="ada").state is State.PENDING
    assert review.approve(request_id, by=other).state is State.APPROVED


def test_quorum_needs_its_role_from_each(review: sayso.Review) -> None:
    pay = payer(quorum=2, roles={"finance", "board"})
    request_id = held(pay, 5).confirmation_id
    for nobody in (Reviewer("eve"), Reviewer("eve", roles={"staff", "Finance"})):
        with pytest.raises(errors.MissingRoleError):
            review.approve(request_id, by=nobody)
    first = review.approve(request_id, by=Reviewer("ada", roles={"finance"}))
    assert (first.state, first.missing_votes, first.decision) == (State.PENDING, 1, None)
    held(pay, 5)
    second = review.approve(request_id, by=Reviewer("bob", roles={"board", "staff"}))
    assert (second.state, [vote.by.subject for vote in second.votes]) == (State.APPROVED, ["ada", "bob"])
    assert pay(5) == "paid 5 to alice"


def test_one_no_ends_a_quorum(review: sayso.Review) -> None:
    pay = payer(quorum=3)
    request_id = held(pay, 5).confirmation_id
    review.approve(request_id, by="ada")
    review.approve(request_id, by="bob")
    assert review.reject(request_id, "no", by="cy").state is State.REJECTED
    with pytest.raises(sayso.ConfirmationRejected):
        pay(5)


def test_edit_begins_the_count_anew(review: sayso.Review) -> None:
    pay = payer(quorum=2)
    request_id = held(pay, 5).confirmation_id
    review.approve(request_id, by="ada")
    edited = review.approve(request_id, by="bob", changes={"amount": 4})
    assert (edited.state, [vote.by.subject for vote in edited.votes]) == (State.PENDING, ["bob"])
    assert review.approve(request_id, by="ada").state is State.APPROVED
    assert pay(5) == "paid 4 to alice"


def test_edit_that_changes_nothing_is_a_vote_like_others(review: sayso.Review) -> None:
    pay = payer(quorum=2)
    request_id = held(pay, 5).confirmation_id
    review.approve(request_id, by="ada")
    request = review.approve(request_id, by="bob", changes={"amount": 5})
    assert (request.state, request.edited) == (State.APPROVED, None)


@pytest.mark.parametrize("asker", ["ada", Reviewer("ada", roles={"finance"}), Identity("local", "ada")])
@pytest.mark.parametrize("name", FOLDED)
def test_person_on_whose_behalf_it_is_asked_cannot_decide(review: sayso.Review, asker: Any, name: str) -> None:
    with sayso.run("order-1", on_behalf_of=asker):
        request_id = held(payer(), 5).confirmation_id
    for decide in (review.approve, review.reject, review.claim, review.cancel):
        with pytest.raises(errors.OwnRequestError):
            decide(request_id, by=name)
    assert review.get(request_id).on_behalf_of == Identity("local", "ada")
    assert review.approve(request_id, by="bob").state is State.APPROVED


def test_run_inside_of_another_acts_for_the_same_person(review: sayso.Review) -> None:
    with sayso.run("order-1", on_behalf_of="ada"), sayso.run("payment-1"):
        request_id = held(payer(), 5).confirmation_id
    with pytest.raises(errors.OwnRequestError):
        review.approve(request_id, by="ada")
    with sayso.run("order-1", on_behalf_of="ada"), sayso.run("payment-2", on_behalf_of="bob"):
        assert review.approve(held(payer(), 5).confirmation_id, by="ada").state is State.APPROVED


def test_program_cannot_decide_what_it_asks(review: sayso.Review, pay: Pay) -> None:
    request = review.get(held(pay, 5).confirmation_id)
    assert request.requester.issuer == "program"
    with pytest.raises(errors.OwnRequestError):
        review.approve(request.id, by=Reviewer(request.requester.subject, issuer="program"))
    assert review.approve(request.id, by=request.requester.subject).state is State.APPROVED


# -- care ------------------------------------------------------------------------------------------------------------


def test_claimed_request_is_decided_by_who_claimed_it(review: sayso.Review, pay: Pay, clock: Clock) -> None:
    request_id = held(pay, 5).confirmation_id
    claimed = review.claim(request_id, by="bob")
    assert (claimed.claimed_by, claimed.claimed_at) == (Identity("local", "bob"), clock.at)
    for attempt in (review.approve, review.reject, review.claim, review.cancel):
        with pytest.raises(errors.ClaimedError):
            attempt(request_id, by="ada")
    with pytest.raises(errors.ClaimedError):
        review.release(request_id, by="ada")
    assert review.claim(request_id, by="Bob").state is State.PENDING
    request = review.approve(request_id, by="BOB")
    assert (request.state, request.claimed_by) == (State.APPROVED, None)


def test_released_request_is_everybodys_again(store: Store, review: sayso.Review, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    review.claim(request_id, by="bob")
    assert review.release(request_id, by="bob").claimed_by is None
    review.claim(request_id, by="bob")
    assert review.release(request_id, by="ada", force=True).claimed_by is None
    assert '"claimed_by":"local:bob"' in store.journal(request_id=request_id)[-1].detail
    assert review.approve(request_id, by="cy").state is State.APPROVED


def test_request_and_approval_may_be_given_more_time(review: sayso.Review, clock: Clock) -> None:
    pay = payer(expires="1h", approval_expires="1h")
    request_id = held(pay, 5).confirmation_id
    clock.tick(minutes=59)
    assert review.extend(request_id, "2h").expires_at == clock.at + timedelta(hours=2)
    clock.tick(minutes=119)
    review.approve(request_id)
    clock.tick(minutes=59)
    assert review.extend(request_id, timedelta(hours=3)).approval_expires_at == clock.at + timedelta(hours=3)
    clock.tick(minutes=179)
    assert pay(5) == "paid 5 to alice"


def test_time_that_is_none_is_not_given(review: sayso.Review, pay: Pay) -> None:
    request = review.get(held(pay, 5).confirmation_id)
    for span in ("0s", "soon", "-1h", timedelta(0), "11000d"):
        with pytest.raises(errors.ConfigError, match="duration"):
            review.extend(request.id, span)
    assert review.get(request.id) == request


# -- the async twin --------------------------------------------------------------------------------------------------


def test_async_review_has_the_same_verbs_with_the_same_signatures() -> None:
    def verbs(cls: type) -> dict[str, Any]:
        return {name: verb for name, verb in vars(cls).items() if inspect.isfunction(verb) and not name.startswith("_")}

    ours, theirs = verbs(sayso.aio.Review), verbs(reviews.Review)
    assert set(ours) == set(theirs)
    assert len(ours) >= 12
    for name, verb in ours.items():
        assert inspect.iscoroutinefunction(verb), name
        assert inspect.signature(verb) == inspect.signature(theirs[name]), name
        assert verb.__doc__ == theirs[name].__doc__
    assert inspect.signature(sayso.aio.Review) == inspect.signature(reviews.Review)
