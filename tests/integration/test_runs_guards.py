"""What only one guard of a run keeps from happening: whose word counts, for how long, and who has the run.

Each of these tests stands for a mutant that no other test notices. The one invariant: a word that does not count
decides nothing, neither a yes nor a no.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from sayso import Tool, confirm_first, errors
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.integration.running import ids, reason, started, yes


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
    with monkeypatch.context() as patch:
        patch.setattr(each_store, "leave_run", fails)
        paused = started(pay)
    # What is logged holds the traceback, and by that the run's lease.
    assert any(record.exc_info for record in caplog.records)
    assert reason(pay(resume=yes(paused)).run()) == ("success", None)
    assert ran == ["paid"]
