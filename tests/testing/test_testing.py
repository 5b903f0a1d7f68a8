"""What ships for other people's tests: the scripted reviewer keeps to its script, and the store contract bites.

For each kind of broken store a named test of the contract must turn red; a contract that passes everything would
pass here too, were it not for these.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

import sayso
from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.journal import Entry
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Page, Store
from sayso.stores.memory import MemoryStore, MemoryTables
from sayso.testing import ScriptedReviewer, StoreContract, frozen_clock, sample_call, sample_edit, sample_question

# -- the clock -----------------------------------------------------------------------------------------------------


def test_a_frozen_clock_moves_when_it_is_told_to() -> None:
    with frozen_clock(datetime(2030, 1, 1, tzinfo=UTC)) as frozen:
        assert clock.now() == clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
        assert frozen.tick("25h") == frozen.tick() == datetime(2030, 1, 2, 1, tzinfo=UTC)
        frozen.tick(timedelta(hours=-1))
        frozen.tick(seconds=-1)
        assert clock.now() == datetime(2030, 1, 1, 23, 59, 59, tzinfo=UTC)
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_clock_goes_on_after_a_block_that_fails() -> None:
    with suppress(ZeroDivisionError), frozen_clock():
        raise ZeroDivisionError
    assert clock.now() > datetime(2026, 1, 2, tzinfo=UTC)


# -- samples -------------------------------------------------------------------------------------------------------


def test_samples_are_new_each_time_and_equal_in_their_run() -> None:
    one, other = sample_call("run_1"), sample_call("run_1")
    assert one.id != other.id
    assert one.fingerprint == other.fingerprint == one.current_fingerprint
    assert sample_call().run_id != sample_call().run_id
    assert sample_call(risk="high").risk == "high"
    assert sample_question(text="Who?").question.text == "Who?"


def test_a_sample_masks_its_secret_and_an_edit_changes_the_call() -> None:
    request = sample_call(arguments={"amount": 1, "password": "hunter2"})
    edited = sample_edit(request, amount=2)
    assert request.call.arguments["password"] == edited.arguments["password"] != "hunter2"
    assert (edited.arguments["amount"], edited.digest != request.call.digest) == (2, True)


# -- the scripted reviewer -----------------------------------------------------------------------------------------


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def gated(store: Store, **options: Any) -> Callable[..., str]:
    @sayso.gate(store=store, **options)
    def pay(amount: int, to: str = "alice") -> str:
        return f"paid {amount} to {to}"

    return pay


def test_a_blocking_program_meets_the_steps_in_order(store: MemoryStore) -> None:
    pay = gated(store)
    reviewer = ScriptedReviewer(store).approve(changes={"amount": 7}).reject("too much").feedback("ask bob").cancel()
    with reviewer.answer("yes", by="bob"):
        assert pay(10) == "paid 7 to alice"
        with pytest.raises(sayso.ConfirmationRejected, match="too much"):
            pay(1_000)
        with pytest.raises(sayso.ConfirmationFeedback, match="ask bob"):
            pay(11)
        with pytest.raises(sayso.ConfirmationCancelled):
            pay(12)
        assert sayso.ask("Sure?", store=store) == "yes"
    assert [request.kind for request in reviewer.seen] == ["call"] * 4 + ["question"]
    assert [r.call.arguments["amount"] for r in reviewer.seen[:4]] == [10, 1_000, 11, 12]
    decisions = [store.get(request.id).decision for request in reviewer.seen]
    assert [(d.by.subject, d.channel) for d in decisions if d is not None] == [("reviewer", "script")] * 4 + [
        ("bob", "script")
    ]


def test_a_quorum_is_met_by_steps_of_several_people(store: MemoryStore) -> None:
    with ScriptedReviewer(store).approve(by="ada").approve(by="bob"):
        assert gated(store, quorum=2)(10) == "paid 10 to alice"


def test_a_raising_program_is_decided_step_by_step(store: MemoryStore) -> None:
    pay, reviewer = gated(store, wait="raise"), ScriptedReviewer(store, by="ada").approve().leave().reject("no")
    with pytest.raises(sayso.ConfirmationRequired):
        pay(1)
    assert reviewer.decide_next().state is State.APPROVED
    assert pay(1) == "paid 1 to alice"
    for amount in (2, 3):
        with pytest.raises(sayso.ConfirmationRequired):
            pay(amount)
    assert reviewer.decide_next().state is State.PENDING
    assert reviewer.decide_next().call.arguments["amount"] == 3
    with pytest.raises(AssertionError, match="no request waits"):
        reviewer.decide_next()


def test_a_step_that_is_not_needed_fails_the_test(store: MemoryStore) -> None:
    reviewer = ScriptedReviewer(store).approve(changes={"amount": 7})
    with pytest.raises(AssertionError, match=r"approve\(changes={'amount': 7}\) was not needed"), reviewer:
        pass


def test_a_request_without_a_step_fails_the_test_and_does_not_hang(store: MemoryStore) -> None:
    with pytest.raises(sayso.ConfirmationCancelled) as caught, ScriptedReviewer(store):
        gated(store)(10)
    assert "no step was left" in "".join(caught.value.__notes__)
    reviewer = ScriptedReviewer(store)
    with pytest.raises(AssertionError, match="no step was left"), reviewer, suppress(sayso.ConfirmationCancelled):
        gated(store)(11)
    with pytest.raises(AssertionError, match="no request waits"):
        reviewer.decide_next()


def test_a_refused_step_fails_the_test_and_does_not_hang(store: MemoryStore) -> None:
    with pytest.raises(sayso.ConfirmationCancelled) as caught, ScriptedReviewer(store).approve(changes={"amount": "x"}):
        gated(store)(10)
    assert "InvalidChangesError" in "".join(caught.value.__notes__)


def test_no_test_runner_is_imported() -> None:
    program = "import sys, sayso.testing; print(sorted({'pytest', '_pytest', 'hypothesis'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


# -- the contract bites --------------------------------------------------------------------------------------------


class AsksTwice(MemoryStore):
    def ask(self, request: Request) -> Request:
        self._transact(lambda tx: tx.insert(lifecycle.asked(request)))
        return request


class ForgetsTheNo(MemoryStore):
    class Here(MemoryTables):
        def keep(self, at: datetime, transition: Transition) -> None:
            super().keep(at, transition)
            if transition.request.state is State.REJECTED:
                self.holders.pop(transition.request.fingerprint, None)

    def __init__(self) -> None:
        super().__init__()
        self._content = self.Here()


class LosesARow(MemoryStore):
    class Here(MemoryTables):
        def keep(self, at: datetime, transition: Transition) -> None:
            super().keep(at, transition)
            if transition.event == "started":
                self.chains[transition.request.run_id].rows.pop()
                self._places[transition.request.id] = 0

    def __init__(self) -> None:
        super().__init__()
        self._content = self.Here()


class WritesBeforeItChecks(MemoryStore):
    def decide(self, request_id: str, decision: Any, **options: Any) -> Request:
        self.note("run_x", "tried", self.get(request_id).requester, {})
        return super().decide(request_id, decision, **options)


class NeverExpires(MemoryStore):
    def _transact(self, work: Any, *args: Any, **options: Any) -> Any:
        with patch.object(lifecycle, "is_due", return_value=False):
            return super()._transact(work, *args, **options)


class StartsTwice(MemoryStore):
    def start(self, request_id: str, token: str) -> Request:
        with suppress(errors.AlreadyStartedError):
            return super().start(request_id, token)
        return self.get(request_id)


class TrustsAnyToken(MemoryStore):
    def finish(self, request_id: str, token: str, outcome: Any) -> Request:
        execution = self.get(request_id).execution
        return super().finish(request_id, token if execution is None else execution.token, outcome)


class ReordersTheList(MemoryStore):
    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        page = super().list(wanted, cursor=cursor, limit=limit, newest=newest)
        return Page(page.requests[::-1], page.cursor)


class IgnoresFilters(MemoryStore):
    def count(self, wanted: Filter) -> int:
        return super().count(Filter(kind=wanted.kind))


class PagesOverlap(MemoryStore):
    def journal(self, *, after: tuple[str, int] | None = None, **options: Any) -> Sequence[Entry]:
        return super().journal(after=None if after is None else (after[0], after[1] - 1), **options)


class NeverWakes(MemoryStore):
    def watch(self, request_id: str, wake: Callable[[], None]) -> Any:
        return super().watch(f"not {request_id}", wake)


class WakesForEver(MemoryStore):
    def watch(self, request_id: str, wake: Callable[[], None]) -> Any:
        super().watch(request_id, wake)
        return lambda: None


class DropsAField(MemoryStore):
    def get(self, request_id: str) -> Request:
        request = super().get(request_id)
        return lifecycle._evolve(request, context=None)


class TakesItsOwnTime(MemoryStore):
    def decide(self, request_id: str, decision: Any, **options: Any) -> Request:
        decided = super().decide(request_id, decision, **options)
        return lifecycle._evolve(decided, approval_expires_at=decided.created_at + decided.approval_window)


class GivesUpTheLiving(MemoryStore):
    def sweep(self) -> int:
        with patch("sayso.stores.workers.is_gone", return_value=True):
            return super().sweep()


BROKEN: list[tuple[type[MemoryStore], str]] = [
    (AsksTwice, "test_asking_the_same_in_the_same_run_finds_the_request"),
    (ForgetsTheNo, "test_a_no_holds_and_a_spent_approval_does_not"),
    (LosesARow, "test_every_transition_is_a_row_in_the_chain_of_its_run"),
    (WritesBeforeItChecks, "test_a_refused_verb_leaves_no_trace"),
    (NeverExpires, "test_a_request_can_be_decided_until_its_end_and_not_at_it"),
    (NeverExpires, "test_an_approval_can_be_started_until_its_end_and_not_at_it"),
    (NeverExpires, "test_asking_again_after_the_end_asks_anew"),
    (StartsTwice, "test_of_eight_who_start_at_once_one_runs"),
    (StartsTwice, "test_what_a_verb_returned_stands_for_every_other_process"),
    (TrustsAnyToken, "test_only_the_holder_of_the_token_says_how_a_call_ended"),
    (TrustsAnyToken, "test_only_an_idempotent_call_is_started_again_after_an_unknown_outcome"),
    (ReordersTheList, "test_a_list_is_in_the_order_of_asking_and_its_cursor_stays_good"),
    (IgnoresFilters, "test_each_filter_restricts_and_count_agrees"),
    (PagesOverlap, "test_the_journal_is_read_page_by_page"),
    (NeverWakes, "test_a_change_wakes_who_watches_the_request"),
    (WakesForEver, "test_who_no_longer_watches_is_not_woken"),
    (DropsAField, "test_what_is_asked_comes_back_equal_in_every_field"),
    (TakesItsOwnTime, "test_the_instant_of_a_decision_is_the_stores"),
    (GivesUpTheLiving, "test_a_call_whose_process_lives_stays_running"),
]


@pytest.mark.parametrize(("broken", "name"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_the_contract_finds_a_broken_store(
    broken: type[MemoryStore], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.testing.contract._PATIENCE", 0.05)

    class Contract(StoreContract):
        def make_store(self) -> Store:
            return broken()

    case = Contract()
    case.setup_method()
    try:
        with pytest.raises((AssertionError, errors.SaysoError)):
            getattr(case, name)()
    finally:
        case.teardown_method()


def test_the_contract_says_what_to_do_without_a_store() -> None:
    case = StoreContract()
    case.setup_method()
    with pytest.raises(NotImplementedError, match="the subclass must make the store"):
        case.test_a_refused_verb_leaves_no_trace()
    case.teardown_method()
