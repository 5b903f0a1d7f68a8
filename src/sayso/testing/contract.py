"""The contract of a store, as tests. Subclass `StoreContract` in your tests, and define how to create your store.

    class TestMyStore(StoreContract):
        def make_store(self) -> Store:
            return MyStore(tempfile.mkdtemp())

        def elsewhere(self, store: Store) -> Store:  # if several processes can share a store
            return MyStore(store.folder)

Each test checks one fact that a store implementation can get wrong: what it stores, finds and lists, which of several
concurrent callers wins, what other processes see, and what the clock causes. The rules of the verbs are in the base
class, not tested here. For readable failures, call `pytest.register_assert_rewrite("sayso.testing")` in `conftest.py`.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

from sayso import audit, errors
from sayso.model.journal import first_link
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State, Verb
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum
from sayso.stores import workers
from sayso.stores.base import Filter
from sayso.testing.contract_records import EvidenceContract, KeyContract, RecordContract, RunContract
from sayso.testing.doubles import sample_call, sample_edit
from sayso.testing.scene import ADA, BOB, outcomes_of, refusal

_PATIENCE = 30  # seconds in which a change must be noticed
_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)
_SECRET = {"password": "hunter2"}


class StoreContract(EvidenceContract, KeyContract, RunContract, RecordContract):
    """The tests that every store must pass; see the module's docstring for how to use them."""

    # -- ask ---------------------------------------------------------------------------------------------------

    def test_what_is_asked_comes_back_equal_in_every_field(self) -> None:
        full: dict[str, Any] = {
            "quorum": Quorum(2, frozenset({"finance", "ops"})),
            "on_behalf_of": Identity("idp", "carol"),
            "also_for": (Identity("idp", "dan"), Identity(LOCAL, "eve")),
            "process": "host/boot/1/2/3",
            "prompt": "Pay?\nNow \u202e\ud800",
            "description": "",
            "risk": "high",
            "rule": "when=is_large",
            "context": {"order": ["A-1", None, True, 1.5]},
            "retries": 2,
            "idempotent": True,
            "redact": ("iban",),
        }
        request = sample_call("run ü", {"amount": 10, "to": "ü\u200b", **_SECRET}, **full)
        assert all(getattr(request, field.name) == full[field.name] for field in fields(Request) if field.name in full)
        recorded = self.recorded(request)
        assert self.store.ask(request) == recorded
        other = self.elsewhere(self.store)
        assert other.get(request.id) == recorded
        other.close()

    def test_progress_comes_back_equal_in_every_field(self) -> None:
        request = self.store.ask(sample_call(quorum=Quorum(3), retries=1))
        claimed = self.store.claim(request.id, ADA, roles=(), channel="test")
        voted = self.decide("approve", claimed, ADA)
        edited = self.decide("approve", voted, BOB, edited=sample_edit(voted, amount=7, **_SECRET))
        twice = self.decide("approve", edited, ADA)
        approved = self.decide("approve", twice, Identity("idp", "carol"))
        running = self.store.start(request.id, "t")
        failed = self.store.finish(request.id, "t", Outcome("failed", error="no \ud800 \u202e"))
        again = self.store.start(request.id, "u")
        unknown = self.store.finish(request.id, "u", Outcome("unknown", error="broken off"))
        resolved = self.store.resolve(request.id, BOB, roles=(), happened=True, comment="seen", channel="test", start=2)
        assert [r.state for r in (claimed, voted, edited, twice)] == [State.PENDING] * 4
        assert [r.state for r in (approved, running, failed)] == [State.APPROVED, State.RUNNING, State.APPROVED]
        assert [r.state for r in (again, unknown, resolved)] == [State.RUNNING, State.UNKNOWN, State.DONE]
        other = self.elsewhere(self.store)
        assert other.get(request.id) == resolved
        other.close()

    def test_asking_the_same_in_the_same_run_finds_the_request(self) -> None:
        first = self.store.ask(sample_call("run_same"))
        assert self.store.ask(sample_call("run_same")) == first
        assert self.store.find(first.fingerprint) == first
        assert self.events(first) == ["asked"]

    def test_in_another_run_or_with_other_arguments_it_is_another_request(self) -> None:
        calls = [sample_call("run_a"), sample_call("run_b"), *(sample_call("run_b", {"amount": n}) for n in (1, True))]
        assert len({self.store.ask(call).id for call in calls}) == 4

    def test_a_no_holds_and_a_spent_approval_does_not(self) -> None:
        holding = {State.PENDING, State.APPROVED, State.RUNNING, State.UNKNOWN, State.REJECTED, State.FEEDBACK}
        holding |= {State.CANCELLED, State.ANSWERED}
        for state in State:
            request = self.in_state(state)
            found = self.store.find(request.fingerprint)
            assert (found == request) if state in holding else (found is None), state

    # -- find --------------------------------------------------------------------------------------------------

    def test_an_id_that_was_never_asked_is_not_found(self) -> None:
        assert refusal(errors.RequestNotFoundError, lambda: self.store.get("rq_none")).request_id == "rq_none"
        refusal(errors.RequestNotFoundError, lambda: self.decide("approve", sample_call()))
        refusal(errors.RequestNotFoundError, lambda: self.store.start("rq_none", "t"))
        refusal(errors.RequestNotFoundError, lambda: self.store.settle("rq_none"))
        assert self.store.find("0" * 64) is None
        assert self.everything() == ([], [])

    def test_ids_are_matched_by_their_beginning(self) -> None:
        ids = sorted(self.store.ask(replace(sample_call(), id=f"rq_{tail}")).id for tail in ("aab", "aac", "b", "a%"))
        assert sorted(self.store.match("rq_")) == ids
        assert sorted(self.store.match("rq_aa")) == ["rq_aab", "rq_aac"]
        assert list(self.store.match("rq_a%")) == ["rq_a%"]
        assert len(self.store.match("rq_", 2)) == 2
        assert list(self.store.match("rq_c")) == []

    def test_a_list_is_in_the_order_of_asking_and_its_cursor_stays_good(self) -> None:
        ids = [self.ask().id for _ in range(7)]
        first = self.store.list(Filter(), limit=3)
        self.decide("reject", first.requests[0])
        later = self.ask().id
        second = self.store.list(Filter(), cursor=first.cursor, limit=3)
        third = self.store.list(Filter(), cursor=second.cursor, limit=3)
        assert [r.id for page in (first, second, third) for r in page.requests] == [*ids, later]
        assert third.cursor is None
        assert self.store.list(Filter(), limit=8).cursor is None

    def test_a_list_can_begin_with_the_newest(self) -> None:
        ids = [self.ask().id for _ in range(5)]
        first = self.store.list(Filter(), limit=2, newest=True)
        rest = self.store.list(Filter(), cursor=first.cursor, limit=5, newest=True)
        assert [r.id for r in (*first.requests, *rest.requests)] == ids[::-1]

    def test_what_is_no_cursor_is_refused(self) -> None:
        for cursor in ("", "x", "-1", "1 OR 1=1", "٣"):
            refusal(ValueError, lambda cursor=cursor: self.store.list(Filter(), cursor=cursor))

    def test_each_filter_restricts_and_count_agrees(self) -> None:
        plain, question = self.ask("run_a"), self.question(text="Straße?")
        risky = self.ask("run_b", risk="high", prompt="Größe")
        claimed = self.store.claim(self.ask("run_c").id, Identity(LOCAL, "Ada"), roles=(), channel="test")
        rejected = self.decide("reject", self.ask("run_d"))
        cases: list[tuple[Filter, list[Request]]] = [
            (Filter(), [plain, question, risky, claimed, rejected]),
            (Filter(states=frozenset({State.REJECTED})), [rejected]),
            (Filter(states=frozenset({State.REJECTED, State.PENDING}), run_id="run_d"), [rejected]),
            (Filter(run_id="run_a"), [plain]),
            (Filter(name="pay"), [plain, risky, claimed, rejected]),
            (Filter(name="payments:pay", risk="high"), [risky]),
            (Filter(name="payments"), []),
            (Filter(claimed_by=ADA), [claimed]),
            (Filter(claimed_by=BOB), []),
            (Filter(kind="question"), [question]),
            (Filter(ids=frozenset({rejected.id, plain.id, "rq_none", "rq_\0"})), [plain, rejected]),
            (Filter(ids=frozenset({rejected.id, plain.id}), states=frozenset({State.PENDING})), [plain]),
            (Filter(ids=frozenset({"rq_none"})), []),
            (Filter(text="STRASSE"), [question]),
            (Filter(text="grösse"), [risky]),
            (Filter(text="SAID s"), [rejected]),
            (Filter(text=' so  "said so" '), [rejected]),
            (Filter(text='"so said"'), []),
            (Filter(text="said straße"), []),
            (Filter(text="Pay%"), []),
            (Filter(text=plain.id[5:]), [plain]),
        ]
        for wanted, found in cases:
            if wanted.text is not None and found in ([question], [risky], [rejected]) and not self.searches_words:
                continue
            assert [r.id for r in self.store.list(wanted).requests] == [r.id for r in found], wanted
            assert self.store.count(wanted) == len(found), wanted

    # -- decide ------------------------------------------------------------------------------------------------

    def test_each_decision_leads_to_its_state_and_says_who_when_and_how(self) -> None:
        cases: list[tuple[Verb, str]] = [("approve", "approved"), ("reject", "rejected"), ("feedback", "feedback")]
        cases.append(("cancel", "cancelled"))
        for verb, state in cases:
            request = self.decide(verb, self.ask())
            self.clock.tick(seconds=12)
            decision = request.decision
            assert (request.state, self.events(request)) == (state, ["asked", state])
            assert decision is not None
            assert (decision.verb, decision.by, decision.channel) == (verb, ADA, "test")
            assert decision.at == self.clock() - 12 * _SECOND
            error = refusal(errors.AlreadyDecidedError, lambda r=request: self.decide("approve", r, BOB))
            assert (error.by, error.at, error.channel, error.state) == ("ada", decision.at, "test", state)
            assert self.store.get(request.id) == request

    def test_the_instant_of_a_decision_is_the_stores(self) -> None:
        request = self.ask()
        asked = self.decide
        self.clock.tick(seconds=5)
        assert asked("approve", request).approval_expires_at == self.clock() + request.approval_window

    # -- start and finish --------------------------------------------------------------------------------------

    def test_only_an_approved_call_is_started(self) -> None:
        for state in set(State) - {State.APPROVED}:
            request = self.in_state(state)
            before = self.store.get(request.id)
            refusal(errors.StartRefusedError, lambda r=request: self.store.start(r.id, "again"))
            assert self.store.get(request.id) == before, state

    def test_only_the_holder_of_the_token_says_how_a_call_ended(self) -> None:
        request = self.started("mine")
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "yours", Outcome("done")))
        done = self.store.finish(request.id, "mine", Outcome("done", result='{"result":1}'))
        assert done.execution is not None
        assert (done.state, done.execution.result, done.holds) == (State.DONE, '{"result":1}', False)
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "mine", Outcome("failed")))

    def test_only_an_idempotent_call_is_started_again_after_an_unknown_outcome(self) -> None:
        refusal(errors.OutcomeUnknownError, lambda: self.store.start(self.unknown().id, "again"))
        request = self.unknown("first", idempotent=True)
        assert self.store.start(request.id, "second").state is State.RUNNING
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "first", Outcome("done")))
        failed = self.store.finish(request.id, "second", Outcome("failed"))
        assert failed.state is State.UNKNOWN, "the first start is still unknown"
        assert self.store.start(request.id, "third").state is State.RUNNING

    # -- the journal -------------------------------------------------------------------------------------------

    def test_every_transition_is_a_row_in_the_chain_of_its_run(self) -> None:
        request = self.store.ask(sample_call("run_a"))
        self.store.ask(sample_call("run_b"))
        self.decide("approve", request)
        self.store.start(request.id, "t")
        self.store.finish(request.id, "t", Outcome("done"))
        rows = self.store.journal(run_id="run_a")
        assert [(row.seq, row.event) for row in rows] == [(1, "asked"), (2, "approved"), (3, "started"), (4, "done")]
        assert {row.request_id for row in rows} == {request.id}
        assert rows[0].link != first_link("run_a")
        assert audit.verify(self.store) == (5, 2, (), 2, 0)

    def test_a_refused_verb_leaves_no_trace(self) -> None:
        request, no = self.approved(), {"roles": (), "happened": True, "comment": None, "channel": "test"}
        before = self.everything()
        refusal(errors.AlreadyDecidedError, lambda: self.decide("reject", request, BOB))
        refusal(errors.NotUnknownError, partial(self.store.resolve, request.id, BOB, **no))
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "t", Outcome("done")))
        assert self.everything() == before

    def test_the_journal_is_read_page_by_page(self) -> None:
        for run_id in ("run_b", "run_a", "run_c"):
            self.decide("reject", self.ask(run_id))
        whole = self.store.journal()
        assert [(row.run_id, row.seq) for row in whole] == [(f"run_{c}", n) for c in "abc" for n in (1, 2)]
        assert [*self.store.journal(limit=4), *self.store.journal(after=("run_b", 2), limit=4)] == list(whole)
        for run_id in ("run_a", "run_b", "run_c"):
            for after in (("run_a", 2), ("run_b", 1), ("run_b", 9), ("run_c", 0)):
                behind = [row for row in whole if row.run_id == run_id and (row.run_id, row.seq) > after]
                assert list(self.store.journal(run_id=run_id, after=after)) == behind
        assert list(self.store.journal(request_id="rq_none")) == []

    def test_a_note_about_no_request_stands_in_the_chain(self) -> None:
        self.ask("run_a")
        self.store.note("run_a", "denied", Identity(PROGRAM, "tests"), {"rule": "when=never"})
        row = self.store.journal(run_id="run_a")[-1]
        assert (row.seq, row.event, row.request_id, row.detail) == (2, "denied", "", '{"rule":"when=never"}')
        assert audit.verify(self.store).broken == ()

    def test_the_journal_holds_no_argument(self) -> None:
        request = sample_call(
            arguments={"amount": 31337313373133731337, "to": "canary-to", "password": "canary-secret"}
        )
        edited = self.decide("approve", self.store.ask(request), edited=sample_edit(request, to="canary-edit"))
        self.store.start(edited.id, "t")
        self.store.finish(edited.id, "t", Outcome("failed", error="canary-error"))
        text = "".join(str(row) for row in self.store.journal())
        assert len(self.events(edited)) == 4
        assert "canary" not in text
        assert "31337313373133731337" not in text

    # -- concurrent calls --------------------------------------------------------------------------------------

    def test_of_eight_who_ask_the_same_at_once_all_get_one_request(self) -> None:
        asked = [sample_call("run_same") for _ in range(8)]
        found = outcomes_of([lambda request=request: self.store.ask(request) for request in asked])
        assert len({request.id for request in found if isinstance(request, Request)}) == 1
        assert self.store.count(Filter()) == 1

    def test_of_eight_who_decide_at_once_one_wins_and_seven_are_told_who(self) -> None:
        request = self.ask()
        people = [Identity(LOCAL, f"person{n}") for n in range(8)]
        verbs: list[Verb] = ["approve", "reject", "feedback", "reject"] * 2  # no cancel, which can follow an approval
        results = outcomes_of([partial(self.decide, verb, request, by) for verb, by in zip(verbs, people, strict=True)])
        winners = [one for one in results if isinstance(one, Request)]
        losers = [one for one in results if isinstance(one, errors.AlreadyDecidedError)]
        decision = self.store.get(request.id).decision
        assert (len(winners), len(losers)) == (1, 7)
        assert decision is not None
        assert {(loser.by, loser.channel) for loser in losers} == {(str(decision.by), "test")}

    def test_of_eight_who_start_at_once_one_runs(self) -> None:
        request = self.approved()
        results = outcomes_of([lambda token=f"t{n}": self.store.start(request.id, token) for n in range(8)])
        assert Counter(type(one) for one in results) == {Request: 1, errors.AlreadyStartedError: 7}

    def test_a_token_starts_once_whatever_the_gate_allows(self) -> None:
        """A network may deliver the request to start again, after the call has ended."""
        request = self.approved(retries=3)
        for outcome in (Outcome("failed"), Outcome("suspended")):
            token = outcome.state
            self.store.start(request.id, token)
            assert self.store.finish(request.id, token, outcome).state is State.APPROVED
            refusal(errors.AlreadyStartedError, lambda token=token: self.store.start(request.id, token))
        assert self.store.start(request.id, "new").state is State.RUNNING

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
        results = outcomes_of(works)
        assert [getattr(one, "state", type(one)) for one in results] == [State.RUNNING] * 6 + [
            errors.RequestNotFoundError
        ] * 6

    # -- other processes ---------------------------------------------------------------------------------------

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

    # -- watchers are woken ------------------------------------------------------------------------------------

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

    # -- expiry ------------------------------------------------------------------------------------------------

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

    def test_asking_again_after_the_end_asks_anew(self) -> None:
        first = self.store.ask(sample_call("run_same"))
        self.clock.tick("24h")
        second = self.store.ask(sample_call("run_same"))
        assert second.id != first.id
        assert self.store.get(first.id).state is State.EXPIRED
        assert self.store.find(first.fingerprint) == second

    # -- the worker is gone ------------------------------------------------------------------------------------

    def test_a_call_whose_process_is_gone_is_unknown_and_not_started_again(self) -> None:
        with patch.object(workers, "current", return_value="host/boot/space/1/1"):
            request = self.started("mine")
        with patch.object(workers, "is_gone", return_value=True):
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
