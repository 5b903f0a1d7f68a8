"""What only one guard of a run keeps from happening: whose word counts, for how long, and who has the run.

Each of these tests stands for a mutant that no other test notices. The one invariant: a word that does not count
decides nothing, neither a yes nor a no.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from sayso import Tool, Workflow, confirm_first, errors
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunState, RunUpdate
from sayso.reviews import Review
from sayso.runs.decisions import IgnoredDecisionWarning
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.running import ids, reason, started, yes


@pytest.mark.parametrize("approved", [True, False])
def test_a_yes_or_no_whose_time_is_over_leaves_the_same_request_waiting(
    each_store: Store, clock: Clock, ran: list[Any], approved: bool
) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
    paused = started(pay)
    (wanted,) = ids(paused)
    now = int(clock.at.timestamp() * 1000)
    output = pay(resume={wanted: {"approved": approved, "expires_at": now}}).run()
    assert (reason(output), ids(output)) == (("cancelled", "approval_required"), [wanted])
    assert sayso.Review().get(wanted).state == "pending"
    assert reason(pay(resume={wanted: True}).run()) == ("success", None)
    assert ran == ["paid"]


@pytest.mark.parametrize("minutes", [(1, 10), (10, 1)])
def test_of_several_approvals_with_an_end_the_earliest_end_counts(
    each_store: Store, clock: Clock, ran: list[Any], minutes: tuple[int, int]
) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True, quorum=3)
    paused = started(pay)
    (wanted,) = ids(paused)
    now = int(clock.at.timestamp() * 1000)
    for who, count in zip(("ada", "ben"), minutes, strict=True):
        said = {"approved": True, "approver_id": who, "expires_at": now + count * 60_000}
        assert ids(pay(resume={wanted: said}).run()) == [wanted]
    clock.tick(minutes=2)
    output = pay(resume={wanted: {"approved": True, "approver_id": "cyd"}}).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])
    assert ids(output) != [wanted]


class Dying:
    """A process that dies in the middle of an approval: whatever it has not saved by then is lost."""

    def __init__(self, store: Store, patch: pytest.MonkeyPatch, *, is_approved: bool) -> None:
        approve = Review.approve

        def dies(*args: Any, **options: Any) -> None:
            if is_approved:
                approve(*args, **options)
            raise KeyboardInterrupt

        def saves_nothing(*_: Any) -> None:
            raise errors.StoreUnavailableError("the process is gone")

        patch.setattr(Review, "approve", dies)
        patch.setattr(store, "leave_run", saves_nothing)


def until(clock: Clock, **fields: Any) -> dict[str, Any]:
    """Return an approval that ends in a minute."""
    return {"approved": True, "expires_at": int(clock.at.timestamp() * 1000) + 60_000, **fields}


def test_a_process_killed_right_after_an_approval_leaves_its_end_in_force(
    each_store: Store, clock: Clock, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
    paused = started(pay)
    (wanted,) = ids(paused)
    with monkeypatch.context() as patch:
        Dying(each_store, patch, is_approved=True)
        with pytest.raises(KeyboardInterrupt):
            pay(resume={wanted: until(clock)}).run()
    assert (sayso.Review().get(wanted).state, ran) == ("approved", [])
    clock.tick(seconds=61)
    output = pay(parent_id=paused.run_id).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])
    assert ids(output) != [wanted]


def test_a_process_killed_right_before_an_approval_shortens_no_later_one(
    each_store: Store, clock: Clock, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
    (wanted,) = ids(started(pay))
    with monkeypatch.context() as patch:
        Dying(each_store, patch, is_approved=False)
        with pytest.raises(KeyboardInterrupt):
            pay(resume={wanted: until(clock)}).run()
    assert sayso.Review().get(wanted).state == "pending"
    clock.tick(seconds=61)
    assert reason(pay(resume={wanted: until(clock)}).run()) == ("success", None)
    assert ran == ["paid"]


def test_the_end_of_a_refused_approval_ends_no_other(each_store: Store, clock: Clock, ran: list[Any]) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True, quorum=2)
    paused = started(pay)
    (wanted,) = ids(paused)
    assert ids(pay(resume={wanted: {"approved": True, "approver_id": "ada"}}).run()) == [wanted]
    with pytest.warns(IgnoredDecisionWarning, match="'ada' has approved"):
        assert ids(pay(resume={wanted: until(clock, approver_id="ada")}).run()) == [wanted]
    clock.tick(seconds=61)
    assert reason(pay(resume={wanted: {"approved": True, "approver_id": "ben"}}).run()) == ("success", None)
    assert ran == ["paid"]


def test_a_decision_for_a_run_that_nobody_began_decides_nothing(each_store: Store, ran: list[Any]) -> None:
    @confirm_first
    def delete(path: str) -> None:
        ran.append(path)

    with sayso.run("order-1"), pytest.raises(sayso.ConfirmationRequired) as held:
        delete("/x")
    request_id = held.value.confirmation_id
    with pytest.warns(UserWarning, match="of another run"):
        output = Tool(lambda: "tidied", name="tidy")(run_id="order-1", resume={request_id: True}).run()
    assert (output.run_id, reason(output)) == ("order-1", ("success", None))
    assert sayso.Review().get(request_id).state == "pending"
    assert ran == []


def test_a_run_that_could_not_be_handed_back_is_in_nobodys_hand(
    each_store: Store, ran: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise errors.StoreUnavailableError("the disk is gone")

    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
    flow = Workflow(name="flow").step(pay).step(Tool(lambda: None, name="log"))
    with monkeypatch.context() as patch:
        patch.setattr(each_store, "leave_run", fails)
        paused = started(flow)
    # What is logged holds the traceback, and by that the run's lease.
    assert any(record.exc_info for record in caplog.records)
    assert reason(flow(resume=yes(paused)).run()) == ("success", None)
    assert ran == ["paid"]


def test_a_run_whose_end_is_not_saved_is_no_success(
    each_store: Store, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise errors.StoreUnavailableError("the disk is gone")

    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
    flow = Workflow(name="flow").step(pay)
    paused = started(flow)
    with monkeypatch.context() as patch:
        patch.setattr(each_store, "leave_run", fails)
        output = flow(parent_id=paused.run_id, resume=yes(paused)).run()
    assert reason(output) == ("error", "store_failed")
    assert "its end could not be recorded: the disk is gone" in str(output.status.message)
    assert reason(flow(parent_id=paused.run_id).run()) == ("success", None)
    assert ran == ["paid"]


def test_an_outermost_call_is_handed_back_with_its_request_and_with_its_end(
    each_store: Store, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
    monkeypatch.setattr(each_store, "leave_run", lambda *_: pytest.fail("a transaction of its own"))
    paused = started(pay)
    assert each_store.get_run(paused.run_id).run.state is RunState.PAUSED
    assert reason(pay(resume=yes(paused)).run()) == ("success", None)
    assert (each_store.get_run(paused.run_id).run.state, ran) == (RunState.ENDED, ["paid"])


def test_an_outermost_question_is_handed_back_with_its_request(
    each_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Tool(lambda: sayso.suspend({"question": "Which one?"}), name="ask")
    monkeypatch.setattr(each_store, "leave_run", lambda *_: pytest.fail("a transaction of its own"))
    assert each_store.get_run(started(ask).run_id).run.state is RunState.PAUSED


def test_a_call_that_is_approved_before_its_asking_returns_is_left_to_who_takes_the_run(
    each_store: Store, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = each_store.ask

    def open_and_lose(request: Request, saved: RunUpdate | None = None) -> Request:
        sayso.Review(each_store).approve(opened(request, saved).id)
        return opened(request, saved)  # sent again, as over a line that broke

    pay = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
    with monkeypatch.context() as patch:
        patch.setattr(each_store, "ask", open_and_lose)
        paused = pay(run_id="order-1").run()
    assert (reason(paused), ran) == (("cancelled", "approval_required"), [])
    assert reason(pay(run_id="order-1").run()) == ("success", None)
    assert ran == ["paid"]


def test_an_end_that_was_refused_is_not_taken_for_saved(each_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = each_store.finish

    def resolved_before(request_id: str, *args: Any) -> Request:
        each_store.resolve(
            request_id, Identity("local", "ada"), roles=(), happened=True, comment=None, channel="cli", force=True
        )
        return finish(request_id, *args)

    pay = Tool(lambda: "paid", name="pay", requires_approval=True)
    paused = started(pay)
    monkeypatch.setattr(each_store, "finish", resolved_before)
    assert reason(pay(resume=yes(paused)).run()) == ("success", None)
    kept = each_store.get_run(paused.run_id)
    assert (kept.run.state, "paid" in kept.steps[-1].body) == (RunState.ENDED, True)
