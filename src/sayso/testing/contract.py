"""The contract of a store, as tests: subclass `StoreContract` in your tests, and say how your store is made.

    class TestMyStore(StoreContract):
        def make_store(self) -> Store:
            return MyStore(tempfile.mkdtemp())

        def elsewhere(self, store: Store) -> Store:  # where several processes share one store
            return MyStore(store.folder)

Each test is one fact about the verbs of `sayso.stores.base.Store`. What a verb promises in the words of one thread is
in `sayso.testing.verbs`, about runs, records and keys in `sayso.testing.contract_runs` and its neighbours; here are
what several callers, other processes and the clock can do to it. Grants, budgets, the stop, the outbox and escalations
are rules that the base class applies to records and requests, and are not tested here.
For readable failures, call `pytest.register_assert_rewrite("sayso.testing")` in your `conftest.py`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import timedelta
from functools import partial
from unittest.mock import patch

from sayso import audit, errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State, Verb
from sayso.model.reviewer import LOCAL, Identity
from sayso.stores import worker
from sayso.stores.base import Filter
from sayso.testing.contract_evidence import EvidenceContract
from sayso.testing.contract_keys import KeyContract
from sayso.testing.contract_records import RecordContract
from sayso.testing.contract_runs import RunContract
from sayso.testing.sample import sample_call
from sayso.testing.scene import ADA, BOB, outcomes_of, refusal
from sayso.testing.verbs import VerbContract

_PATIENCE = 30  # seconds in which a change must be noticed
_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)


class StoreContract(EvidenceContract, KeyContract, RunContract, RecordContract, VerbContract):
    """Every store must pass this; the module says how to use it."""

    # -- one of many is first ----------------------------------------------------------------------------------

    def test_of_eight_who_ask_the_same_at_once_all_get_one_request(self) -> None:
        asked = [sample_call("run_same") for _ in range(8)]
        found = outcomes_of([lambda request=request: self.store.ask(request) for request in asked])
        assert len({request.id for request in found if isinstance(request, Request)}) == 1
        assert self.store.count(Filter()) == 1

    def test_of_eight_who_decide_at_once_one_wins_and_seven_are_told_who(self) -> None:
        request = self.ask()
        people = [Identity(LOCAL, f"person{n}") for n in range(8)]
        verbs: list[Verb] = ["approve", "reject", "feedback", "reject"] * 2  # a cancel may follow an approval
        told = outcomes_of([partial(self.decide, verb, request, by) for verb, by in zip(verbs, people, strict=True)])
        winners = [one for one in told if isinstance(one, Request)]
        losers = [one for one in told if isinstance(one, errors.AlreadyDecidedError)]
        decision = self.store.get(request.id).decision
        assert (len(winners), len(losers)) == (1, 7)
        assert decision is not None
        assert {(loser.by, loser.channel) for loser in losers} == {(str(decision.by), "test")}

    def test_of_eight_who_start_at_once_one_runs(self) -> None:
        request = self.approved()
        told = outcomes_of([lambda token=f"t{n}": self.store.start(request.id, token) for n in range(8)])
        assert Counter(type(one) for one in told) == {Request: 1, errors.AlreadyStartedError: 7}

    def test_many_verbs_at_once_leave_one_whole_chain(self) -> None:
        def live() -> None:
            request = self.store.ask(sample_call("run_shared", {"amount": threading.get_ident()}))
            self.decide("approve", request)
            self.store.start(request.id, request.id)
            self.store.finish(request.id, request.id, Outcome("done"))

        outcomes_of([live] * 12)
        found = audit.verify(self.store)
        assert (found.rows, found.chains, found.broken) == (48, 1, ())

    def test_of_many_verbs_at_once_a_refused_one_spoils_no_other(self) -> None:
        requests = [self.approved() for _ in range(6)]
        works = [lambda request=request: self.store.start(request.id, "t") for request in requests]
        works += [lambda n=n: self.store.start(f"rq_{n}", "t") for n in range(6)]
        told = outcomes_of(works)
        assert [getattr(one, "state", type(one)) for one in told] == [State.RUNNING] * 6 + [
            errors.RequestNotFoundError
        ] * 6

    # -- elsewhere ---------------------------------------------------------------------------------------------

    def test_what_a_verb_returned_stands_for_every_other_process(self) -> None:
        other = self.elsewhere(self.store)
        request = self.ask()
        assert other.get(request.id) == request
        approved = self.decide("approve", request, store=other)
        assert self.store.get(request.id) == approved
        running = self.store.start(request.id, "t")
        assert other.get(request.id) == running
        assert refusal(errors.AlreadyStartedError, lambda: other.start(request.id, "u")).state == "running"
        done = self.store.finish(request.id, "t", Outcome("done", result='{"result":1}'))
        assert other.get(request.id) == done
        assert list(other.journal()) == list(self.store.journal())
        other.close()

    def test_a_request_asked_elsewhere_is_found_and_not_asked_twice(self) -> None:
        other = self.elsewhere(self.store)
        first = other.ask(sample_call("run_same"))
        assert self.store.ask(sample_call("run_same")) == first
        other.close()

    def test_after_close_verbs_open_the_store_again(self) -> None:
        request = self.ask()
        self.store.close()
        assert self.store.get(request.id) == request
        assert self.decide("approve", request).state is State.APPROVED

    # -- who waits is woken ------------------------------------------------------------------------------------

    def test_a_change_wakes_who_watches_the_request(self) -> None:
        request, woken = self.ask(), threading.Event()
        unwatch = self.store.watch(request.id, woken.set)
        self.decide("approve", request)
        assert woken.wait(_PATIENCE)
        unwatch()

    def test_a_change_made_elsewhere_wakes_who_watches_the_request(self) -> None:
        request, woken = self.ask(), threading.Event()
        unwatch = self.store.watch(request.id, woken.set)
        other = self.elsewhere(self.store)
        self.decide("approve", request, store=other)
        assert woken.wait(_PATIENCE)
        unwatch()
        other.close()

    def test_who_no_longer_watches_is_not_woken(self) -> None:
        request, calls = self.ask(), list[str]()
        self.store.watch(request.id, lambda: calls.append("woken"))()
        self.decide("approve", request)
        assert calls == []

    # -- ends --------------------------------------------------------------------------------------------------

    def test_a_request_can_be_decided_until_its_end_and_not_at_it(self) -> None:
        end = self.clock() + _SECOND
        for late, by in ((-_INSTANT, ADA), (timedelta(), BOB), (_INSTANT, BOB)):
            request = self.ask(expires_at=end)
            self.clock.at = end + late
            if late < timedelta():
                assert self.decide("approve", request, by).state is State.APPROVED
            else:
                error = refusal(errors.RequestExpiredError, lambda r=request, by=by: self.decide("approve", r, by))
                assert error.expired_at == end
                assert self.store.get(request.id).state is State.EXPIRED
            self.clock.at = end - _SECOND

    def test_an_approval_can_be_started_until_its_end_and_not_at_it(self) -> None:
        for late in (-_INSTANT, timedelta(), _INSTANT):
            request = self.approved(approval_window=_SECOND)
            end = self.clock() + _SECOND
            assert request.approval_expires_at == end
            self.clock.at = end + late
            if late < timedelta():
                assert self.store.start(request.id, "t").state is State.RUNNING
            else:
                assert (
                    refusal(errors.ApprovalExpiredError, lambda r=request: self.store.start(r.id, "t")).expired_at
                    == end
                )
                assert self.store.get(request.id).state is State.EXPIRED
            self.clock.at = end - _SECOND

    def test_a_clock_that_steps_back_revives_nothing(self) -> None:
        request = self.ask(expires_at=self.clock() + _SECOND)
        self.clock.tick(seconds=1)
        assert self.store.settle(request.id).state is State.EXPIRED
        self.clock.tick(hours=-1)
        refusal(errors.RequestExpiredError, lambda: self.decide("approve", request))
        assert self.store.settle(request.id).state is State.EXPIRED

    def test_asking_again_after_the_end_asks_anew(self) -> None:
        first = self.store.ask(sample_call("run_same"))
        self.clock.tick("24h")
        second = self.store.ask(sample_call("run_same"))
        assert second.id != first.id
        assert self.store.get(first.id).state is State.EXPIRED
        assert self.store.find(first.fingerprint) == second

    def test_nothing_expires_into_an_approval(self) -> None:
        pending, approved = self.ask(), self.approved()
        self.clock.tick(days=3650)
        assert self.store.sweep() == 2
        assert {self.store.get(request.id).state for request in (pending, approved)} == {State.EXPIRED}
        assert self.store.sweep() == 0

    def test_extending_moves_the_end_of_a_request_and_of_an_approval(self) -> None:
        request = self.ask()
        self.clock.tick("23h")
        longer = self.store.extend(request.id, ADA, roles=(), span=timedelta(hours=2), channel="test")
        assert longer.expires_at == self.clock() + timedelta(hours=2)
        self.clock.tick("1h59m")
        approved = self.decide("approve", longer)
        later = self.store.extend(approved.id, ADA, roles=(), span=timedelta(hours=48), channel="test")
        assert later.approval_expires_at == self.clock() + timedelta(hours=48)
        self.clock.tick("47h")
        assert self.store.start(request.id, "t").state is State.RUNNING

    # -- the worker is gone ------------------------------------------------------------------------------------

    def test_a_call_whose_process_is_gone_is_unknown_and_not_started_again(self) -> None:
        with patch.object(worker, "current", return_value="host/boot/space/1/1"):
            request = self.started("mine")
        with patch.object(worker, "is_gone", return_value=True):
            assert self.store.sweep() == 1
        assert self.store.get(request.id).state is State.UNKNOWN
        assert self.events(request)[-1] == "unknown"
        refusal(errors.OutcomeUnknownError, lambda: self.store.start(request.id, "again"))

    def test_a_call_whose_process_lives_stays_running(self) -> None:
        request = self.started("mine")
        for _ in range(5):
            self.clock.tick("20s")
            assert self.store.renew([(request.id, "mine")]) == []
            assert self.store.sweep() == 0
        self.clock.tick("29s")
        assert self.store.settle(request.id).state is State.RUNNING
        self.store.finish(request.id, "mine", Outcome("done"))
        assert self.elsewhere(self.store).get(request.id).state is State.DONE

    def test_a_call_whose_lease_was_not_renewed_is_unknown_and_not_started_again(self) -> None:
        renewed, left = self.started("a", run_id="run_a"), self.started("b", run_id="run_b")
        self.clock.tick("29s")
        assert self.store.sweep() == 0
        self.store.renew([(renewed.id, "a")])
        self.clock.tick("1s")
        assert self.store.sweep() == 1
        self.clock.tick("29s")
        assert self.elsewhere(self.store).settle(renewed.id).state is State.UNKNOWN
        for request in (renewed, left):
            assert self.events(request)[-1] == "unknown"
            refusal(errors.OutcomeUnknownError, lambda request=request: self.store.start(request.id, "again"))
        assert self.store.renew([(renewed.id, "a"), (left.id, "b")]) == [renewed.id, left.id]
        assert self.store.get(left.id).state is State.UNKNOWN

    def test_only_who_holds_the_start_renews_its_lease(self) -> None:
        request = self.started("mine")
        self.clock.tick("29s")
        assert self.store.renew([(request.id, "another")]) == [request.id]
        self.clock.tick("1s")
        assert self.store.settle(request.id).state is State.UNKNOWN

    def test_the_outcome_of_a_lost_lease_is_recorded_while_nobody_has_said_how_it_ended(self) -> None:
        request = self.started("mine")
        self.clock.tick("30s")
        assert self.store.settle(request.id).state is State.UNKNOWN
        self.store.finish(request.id, "mine", Outcome("done"))
        assert self.elsewhere(self.store).get(request.id).state is State.DONE
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "mine", Outcome("done")))
        assert self.events(request)[-2:] == ["unknown", "done"]
        assert audit.verify(self.store).broken == ()

    def test_a_late_outcome_changes_nothing_that_a_person_said_and_is_told(self) -> None:
        request = self.started("mine")
        self.clock.tick("30s")
        self.store.settle(request.id)
        self.store.resolve(request.id, ADA, roles=(), happened=False, comment=None, channel="test")
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "mine", Outcome("done")))
        assert self.elsewhere(self.store).get(request.id).state is State.FAILED
        late = self.store.journal(run_id=request.run_id)[-1]
        assert (late.event, json.loads(late.detail)) == (
            "late", {"request": request.id, "state": "done", "agrees": False},
        )  # fmt: skip
        assert audit.verify(self.store).broken == ()

    def test_a_call_of_another_machine_without_a_lease_stays_running(self) -> None:
        with patch.object(worker, "current", return_value="another/boot/space/1/1"):
            request = self.started("mine")
        assert self.store.sweep() == 0
        assert self.store.settle(request.id).state is State.RUNNING
