"""A call runs by what its gate asks for today: a request that was asked for less is closed, and asked anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.effects import drive
from sayso.gates.execution import execute
from sayso.gates.options import Gate
from sayso.gates.scope import CallSite
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.model.reviewer import Identity, Quorum, Reviewer
from sayso.stores.base import Store
from tests.support.acting import held, state_of
from tests.support.running import ids, started

RUN = "order-1"
FINANCE = Reviewer("fay", roles={"finance"})


def gated(ran: list[int], **options: Any) -> Callable[[int], str]:
    """The same function under these options, as its program is at that time."""

    @sayso.gate(wait="raise", **options)
    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    return pay


STRICTER = [
    ({}, {"quorum": 2}),
    ({}, {"roles": {"finance"}}),
    ({"roles": {"finance", "legal"}}, {"roles": {"finance"}}),
    ({"quorum": 2}, {"quorum": 2, "roles": {"finance"}}),
    ({}, {"when": lambda: sayso.policy.hold(quorum=2)}),
]


@pytest.mark.parametrize(("before", "now"), STRICTER)
@pytest.mark.parametrize("is_approved", [False, True])
def test_request_that_was_asked_for_less_is_closed_and_asked_anew(
    store: Store, before: dict[str, Any], now: dict[str, Any], is_approved: bool
) -> None:
    ran: list[int] = []
    with sayso.run(RUN):
        old = held(gated(ran, **before), 5).confirmation_id
        for name in ["ada", "bob"][: before.get("quorum", 1) if is_approved else 0]:
            sayso.Review().approve(old, by=Reviewer(name, roles={"finance", "legal"}))
        new = held(gated(ran, **now), 5).confirmation_id
    assert (ran, new != old, state_of(old), state_of(new)) == ([], True, State.CANCELLED, State.PENDING)
    told = [entry for entry in store.journal(request_id=old) if entry.event == "withdrawn"]
    assert len(told) == 1
    assert "the gate now requires" in told[0].detail
    with pytest.raises(errors.DecisionRefusedError):
        sayso.Review().approve(old, by="zoe")


def test_what_no_person_has_looked_at_is_asked_anew_where_the_gate_wants_one_now(store: Store) -> None:
    def ask(run: str, **options: Any) -> sayso.Held:
        return sayso.hold("pay", {"amount": 5}, run=run, store=store, **options)

    budget = {"when": lambda: sayso.policy.allow(budget="count() <= 9 per 1h")}
    sayso.Review(store).grant(str(ask("first").id), by="ada", count=9, lasts="1h")
    for run, before, now in (("a", budget, {}), ("b", budget, {"always": True}), ("c", {}, {"always": True})):
        old = ask(run, **before)
        assert old.state == ask(run, **before).state == "approved"
        if run == "a":  # a grant stands in for the person whom the gate wants, and none for the one of `always`
            sayso.Review(store).revoke(sayso.Review(store).grants()[0].id, by="ada")
        new = ask(run, **now)
        assert (new.state, new.id != old.id, state_of(str(old.id))) == ("pending", True, State.CANCELLED)
        if run == "a":
            sayso.Review(store).grant(str(new.id), by="ada", count=9, lasts="1h")
    ask("d", key="k", **budget)
    with pytest.raises(errors.KeyReusedError, match="no person has approved it"):
        ask("d", key="k", always=True)


@pytest.mark.parametrize("state", [State.PENDING, State.APPROVED])
@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"quorum": 2}, {}),
        ({"roles": {"finance"}}, {"roles": {"finance", "legal"}}),
        ({}, {"prompt": "Another one?", "risk": "high", "description": "another", "expires": "1h"}),
    ],
)
def test_request_that_was_asked_for_as_much_stays(
    store: Store, before: dict[str, Any], now: dict[str, Any], state: State
) -> None:
    ran: list[int] = []
    with sayso.run(RUN):
        old = held(gated(ran, **before), 5).confirmation_id
        if state is State.PENDING:
            assert held(gated(ran, **now), 5).confirmation_id == old
            return
        for name in ["ada", "bob"][: before.get("quorum", 1)]:
            sayso.Review().approve(old, by=Reviewer(name, roles={"finance"}))
        assert gated(ran, **now)(5) == "paid"
    assert ran == [5]


def test_what_is_asked_anew_asks_for_no_less_than_what_it_replaces(store: Store) -> None:
    ran: list[int] = []
    with sayso.run(RUN, on_behalf_of="ada"):
        held(gated(ran, quorum=2), 5)
    with sayso.run(RUN, on_behalf_of="bob"):
        request = store.get(held(gated(ran, roles={"finance"}), 5).confirmation_id)
        assert (request.quorum.count, request.quorum.roles) == (2, {"finance"})
        assert {person.subject for person in request.acts_for} == {"ada", "bob"}
    with sayso.run(RUN, on_behalf_of="ada"):
        assert held(gated(ran, quorum=2), 5).confirmation_id == request.id


def test_person_of_a_later_run_cannot_decide_what_waits_already(store: Store) -> None:
    ran: list[int] = []
    with sayso.run(RUN):
        old = held(gated(ran), 5).confirmation_id
    with sayso.run(RUN, on_behalf_of="ada"):
        new = held(gated(ran), 5).confirmation_id
        for request_id in (old, new):
            with pytest.raises(errors.DecisionRefusedError):
                sayso.Review().approve(request_id, by="ada")
        sayso.Review().approve(new, by="bob")
        assert gated(ran)(5) == "paid"


def test_what_a_person_approved_before_a_run_acted_for_them_does_not_run(store: Store) -> None:
    ran: list[int] = []
    with sayso.run(RUN):
        old = held(gated(ran), 5).confirmation_id
    sayso.Review().approve(old, by="ada")
    with sayso.run(RUN, on_behalf_of="ada"):
        assert held(gated(ran), 5).confirmation_id != old
    assert ran == []


def test_what_somebody_else_approved_before_a_run_acted_for_a_person_runs(store: Store) -> None:
    ran: list[int] = []
    with sayso.run(RUN):
        sayso.Review().approve(held(gated(ran), 5).confirmation_id, by="bob")
    with sayso.run(RUN, on_behalf_of="ada"):
        assert gated(ran)(5) == "paid"


def test_answer_of_a_person_for_whom_the_run_acts_is_not_taken(store: Store) -> None:
    with sayso.run(RUN):
        old = held(sayso.ask, "Go on?", type=bool, wait="raise").confirmation_id
    sayso.Review().answer(old, True, by="ada")
    with sayso.run(RUN, on_behalf_of="ada"):
        new = held(sayso.ask, "Go on?", type=bool, wait="raise").confirmation_id
        assert new != old
        with pytest.raises(errors.OwnRequestError):
            sayso.Review().answer(new, True, by="ada")
        sayso.Review().answer(new, True, by="bob")
        assert sayso.ask("Go on?", type=bool, wait="raise") is True


def test_start_that_the_gate_does_not_allow_any_more_is_asked_anew(store: Store) -> None:
    ran: list[int] = []

    def gate(**options: Any) -> Callable[[int], str]:
        @sayso.gate(wait="raise", **options)
        def pay(amount: int) -> str:
            ran.append(amount)
            raise OSError("no route")

        return pay

    with sayso.run(RUN):
        old = held(gate(retries=3), 5).confirmation_id
        sayso.Review().approve(old, by="ada")
        with pytest.raises(OSError, match="no route"):
            gate(retries=3)(5)
        assert state_of(old) is State.APPROVED
        new = held(gate(), 5).confirmation_id
    assert (ran, new != old, state_of(old)) == ([5], True, State.CANCELLED)
    [told] = [entry for entry in store.journal(request_id=old) if entry.event == "withdrawn"]
    assert "it was started 1 time, and the gate now allows 1" in told.detail


@pytest.mark.parametrize("before, now", [(True, False), (False, True)], ids=["record only", "gate only"])  # noqa: PT006
def test_call_of_unknown_end_is_not_made_again_unless_record_and_gate_allow_it(
    store: Store, before: bool, now: bool
) -> None:
    ran: list[int] = []
    with sayso.run(RUN):
        request_id = held(gated(ran, idempotent=before), 5).confirmation_id
        sayso.Review().approve(request_id, by="ada")
        store.start(request_id, "its token")
        store.finish(request_id, "its token", Outcome("unknown"))
        with pytest.raises(errors.OutcomeUnknownError):
            gated(ran, idempotent=now)(5)
    assert (ran, state_of(request_id)) == ([], State.UNKNOWN)


def test_start_that_only_the_record_allows_is_not_executed(store: Store) -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    request_id = held(sayso.gate(wait="raise", retries=3)(pay), 5).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    store.start(request_id, "its token")
    request = store.finish(request_id, "its token", Outcome("failed"))
    with pytest.raises(errors.AlteredRequestError, match="the gate now allows 1"):
        drive(execute(Gate(pay), store, request))
    assert ran == []


@pytest.mark.parametrize("is_approved", [False, True], ids=["waiting", "approved"])
def test_run_whose_tool_asks_for_more_by_now_asks_anew(store: Store, is_approved: bool) -> None:
    ran: list[int] = []

    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    paused = started(sayso.Tool(pay, requires_approval=True), amount=5)
    [old] = ids(paused)
    if is_approved:
        sayso.Review().approve(old, by="ada")
    stricter = sayso.Tool(pay, requires_approval=True, quorum=2)
    again = stricter(parent_id=paused.run_id).run()
    [new] = ids(again)
    assert (ran, new != old, state_of(old)) == ([], True, State.CANCELLED)
    for name in ("ada", "bob"):
        sayso.Review().approve(new, by=name)
    assert stricter(parent_id=paused.run_id).run().output == "paid"
    assert ran == [5]


LACKING = [
    CallSite(("r",), {}, quorum=Quorum(2)),
    CallSite(("r",), {}, quorum=Quorum(1, {"finance"})),
    CallSite(("r",), {}, (Identity("local", "ada"),)),
]


@pytest.mark.parametrize("wanted", LACKING)
def test_call_is_not_executed_by_an_approval_that_lacks_what_it_needs(store: Store, wanted: CallSite) -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    pause = held(sayso.gate(wait="raise")(pay), 5)
    request = sayso.Review().approve(pause.confirmation_id, by="ada")
    with pytest.raises(errors.AlteredRequestError):
        drive(execute(Gate(pay), store, request, wanted))
    assert (ran, state_of(request.id)) == ([], State.FAILED)
    assert store.get(request.id).message_for_model().startswith("pay was not run: its start failed")


@pytest.mark.parametrize(
    ("mine", "other", "is_so"),
    [
        (Quorum(2), Quorum(1), True),
        (Quorum(1), Quorum(2), False),
        (Quorum(1, {"a"}), Quorum(1), True),
        (Quorum(1), Quorum(1, {"a"}), False),
        (Quorum(1, {"a"}), Quorum(1, {"a", "b"}), True),
        (Quorum(1, {"a", "b"}), Quorum(1, {"a"}), False),
        (Quorum(3, {"a"}), Quorum(2, {"b"}), False),
    ],
)
def test_quorum_covers_what_it_satisfies(mine: Quorum, other: Quorum, is_so: bool) -> None:
    assert mine.covers(other) is is_so
    if set(mine.roles) & set(other.roles) or not mine.roles or not other.roles:
        assert mine.joined(other).covers(mine)
        assert mine.joined(other).covers(other)


def test_program_whose_request_is_taken_back_again_and_again_stops(store: Store, monkeypatch: Any) -> None:
    from sayso.gates.wait import Waiter

    taken: list[str] = []

    def until_decided(_: Waiter, request: Any, block: Any) -> Any:
        taken.append(request.id)
        assert len(taken) < 50
        yield from ()
        return store.withdraw(
            request.id, request.requester, "it requires 1 reviewer, and the gate now requires another"
        )

    monkeypatch.setattr(Waiter, "until_decided", until_decided)

    @sayso.gate
    def pay(amount: int) -> None:
        raise AssertionError("nobody approved")

    with pytest.raises(sayso.ConfirmationRejected, match="the gate now requires another"):
        pay(5)
    assert 1 < len(taken) < 10
