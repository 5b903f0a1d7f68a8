"""What a store promises about grants, budgets and the stop; a part of `full_contract`.

Every test is one fact. What a person's verbs add, and what gates do with it, is tested elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal, localcontext
from functools import partial
from typing import Any
from unittest.mock import patch

from sayso import audit, errors
from sayso.model.grant import Grant
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import PROGRAM, Identity, Quorum, Reviewer
from sayso.stores import review
from sayso.testing.doubles import sample_call, sample_edit
from sayso.testing.scene import Scene, outcomes_of, refusal

__all__ = ["AlteredRecordContract", "BudgetContract", "GrantContract"]

_ADA, _BOB = Reviewer("ada", roles={"finance"}), Reviewer("bob", roles={"finance"})
_HOUR, _SECOND = timedelta(hours=1), timedelta(seconds=1)
_SUM, _COUNT = ("sum(args.amount) <= 100 per 24h per agent", None), ("count() <= 2 per 1h per run", None)


class GrantContract(Scene):
    """Grants and the stop, as the transactions of a store see them."""

    def granted(self, request: Request | None = None, who: Reviewer = _ADA, **terms: Any) -> Grant:
        """Approve a request, by default a new one, and the next ones like it."""
        asked = self.store.ask(sample_call()) if request is None else request
        given: dict[str, Any] = {"count": 5, "lasts": _HOUR, "edited": None, "seen": None, **terms}
        edited = given["edited"]
        decision = Decision("approve", who.identity, self.clock(), "test", None, "", edited is not None)
        return self.store.grant(asked.id, decision, who=who, **given)[1]

    def test_others_give_no_grant_while_a_call_is_claimed(self) -> None:
        asked = self.store.ask(sample_call(quorum=Quorum(2)))
        self.store.claim(asked.id, _ADA.identity, roles=_ADA.roles, channel="test")
        refusal(errors.ClaimedError, lambda: self.granted(asked, _BOB))
        assert list(self.store.grants()) == []
        assert self.granted(asked, _ADA).is_by(_ADA.identity)

    def like(self, amount: int = 5, run_id: str | None = None, **fields: Any) -> Request:
        """Ask for a call like the one that was granted."""
        return self.store.ask(sample_call(run_id, {"amount": amount, "to": "alice"}, **fields))

    # -- grants: what fits -------------------------------------------------------------------------------------

    def test_a_call_that_fits_a_grant_is_approved_by_its_people(self) -> None:
        grant = self.granted()
        request = self.like(amount=10)
        decision = request.decision
        assert request.state is State.APPROVED
        assert decision is not None
        assert (decision.by, decision.channel, decision.under) == (_ADA.identity, "grant", grant.id)
        assert self.events(request) == ["asked", "approved"]
        assert self.store.get(request.id) == request
        entries = self.store.journal(request_id=request.id)
        assert grant.id in entries[-1].detail
        assert self.store.start(request.id, "t").state is State.RUNNING
        assert grant.id in self.store.journal(request_id=request.id)[-1].detail
        assert self.store.grants()[0].left == 4
        assert audit.verify(self.store).broken == ()

    def test_a_call_with_other_fields_waits(self) -> None:
        self.granted()
        for arguments in (
            {"amount": 11, "to": "alice"}, {"amount": -1, "to": "alice"}, {"amount": 5, "to": "bob"},
            {"amount": True, "to": "alice"}, {"amount": "5", "to": "alice"}, {"to": "alice"},
        ):  # fmt: skip
            assert self.store.ask(sample_call(None, arguments)).state is State.PENDING, arguments

    def test_a_call_of_another_version_of_the_tool_waits(self) -> None:
        self.granted()
        assert self.store.ask(sample_call(None, {"amount": 5, "to": "alice", "note": ""})).state is State.PENDING
        assert self.store.ask(sample_call(None, {"amount": 5})).state is State.PENDING

    def test_a_call_of_another_program_or_for_somebody_waits(self) -> None:
        self.granted()
        assert self.like(requester=Identity(PROGRAM, "other")).state is State.PENDING
        assert self.like(on_behalf_of=Identity("idp", "carol")).state is State.PENDING

    def test_a_grant_of_a_run_counts_in_no_other(self) -> None:
        self.granted(self.store.ask(sample_call("run_here")), here=True)
        assert self.like(run_id="run_here").state is State.APPROVED
        assert self.like(run_id="run_there").state is State.PENDING

    def test_a_call_whose_gate_asks_for_more_waits(self) -> None:
        self.granted()
        more: list[dict[str, Any]] = [{"always": True}, {"risk": "high"}, {"retries": 1}, {"idempotent": True}]
        for fields in more:
            assert self.like(**fields).state is State.PENDING, fields
        assert self.like(quorum=Quorum(2)).state is State.PENDING
        assert self.like(quorum=Quorum(1, frozenset({"legal"}))).state is State.PENDING
        assert self.like(quorum=Quorum(1, frozenset({"finance"}))).state is State.APPROVED

    def test_no_grant_is_drawn_from_a_gate_that_wants_a_person_always(self) -> None:
        request = self.ask(always=True)
        refusal(errors.GrantRefusedError, lambda: self.granted(request))
        assert self.store.get(request.id).state is State.PENDING
        assert self.store.grants(ended=True) == []

    def test_nobody_grants_what_they_ask_for(self) -> None:
        mine = self.store.ask(sample_call(requester=_ADA.identity))
        refusal(errors.OwnRequestError, lambda: self.granted(mine))
        behalf = self.store.ask(sample_call(on_behalf_of=Identity("idp", "ada@example.com")))
        refusal(errors.OwnRequestError, lambda: self.granted(behalf))
        assert self.store.grants(ended=True) == []

    def test_a_quorum_of_two_needs_two_people_behind_a_grant(self) -> None:
        request = self.store.ask(sample_call(quorum=Quorum(2)))
        first = self.granted(request)
        assert self.like(quorum=Quorum(2)).state is State.PENDING
        second = self.granted(self.store.get(request.id), _BOB)
        assert (second.id, [one.by.subject for one in second.grantors]) == (first.id, ["ada", "bob"])
        approved = self.like(amount=4, quorum=Quorum(2))
        assert (approved.state, [vote.by.subject for vote in approved.votes]) == (State.APPROVED, ["ada", "bob"])

    def test_whoever_grants_the_same_later_agrees_to_the_first_grant_while_it_lasts(self) -> None:
        request, later = self.store.ask(sample_call(quorum=Quorum(3))), Reviewer("carol")
        first = self.granted(request)
        self.clock.tick(minutes=20)
        second = self.granted(self.store.get(request.id), _BOB)
        assert (second.id, second.until) == (first.id, first.until)
        self.clock.tick(hours=1)
        third = self.granted(self.store.get(request.id), later)
        assert (third.id == first.id, [one.by.subject for one in third.grantors]) == (False, ["carol"])

    def test_a_grant_with_other_terms_is_another_one(self) -> None:
        request = self.store.ask(sample_call(quorum=Quorum(2)))
        self.granted(request)
        self.granted(self.store.get(request.id), _BOB, count=6)
        assert [len(grant.grantors) for grant in self.store.grants()] == [1, 1]
        assert self.like(quorum=Quorum(2)).state is State.PENDING

    def test_a_grant_for_another_secret_is_another_one(self) -> None:
        request = self.store.ask(sample_call(None, {"amount": 10, "password": "old"}, quorum=Quorum(3)))
        first = self.granted(request)
        changed = self.granted(request, _BOB, edited=sample_edit(request, password="new"))
        again = self.granted(request, Reviewer("carol"))
        assert first.id != changed.id == again.id

    def test_one_more_person_may_agree_to_a_grant_once(self) -> None:
        grant = self.granted(self.store.ask(sample_call(quorum=Quorum(2))))
        refusal(errors.AlreadyVotedError, lambda: self.store.agree(grant.id, _ADA, channel="test"))
        requester = Reviewer("tests", issuer=PROGRAM)
        refusal(errors.OwnRequestError, lambda: self.store.agree(grant.id, requester, channel="test"))
        self.store.agree(grant.id, _BOB, channel="test")
        assert self.like(quorum=Quorum(2)).state is State.APPROVED

    def test_a_grant_from_an_edited_call_is_drawn_from_the_edit(self) -> None:
        request = self.ask()
        self.granted(request, edited=sample_edit(request, amount=3))
        assert self.like(amount=10).state is State.PENDING
        assert self.like(amount=3).state is State.APPROVED

    def test_a_reviewer_may_tighten_a_grant_and_take_fields_out(self) -> None:
        self.granted(at_most={"amount": 4}, without=["to"])
        assert self.like(amount=5).state is State.PENDING
        assert self.store.ask(sample_call(None, {"amount": 4, "to": "bob"})).state is State.APPROVED
        wider: list[dict[str, Any]] = [
            {"at_most": {"amount": 11}},
            {"at_most": {"to": 1}},
            {"without": ["x"]},
            {"count": 0},
        ]
        for terms in wider:
            refusal(errors.GrantRefusedError, partial(self.granted, **terms))

    def test_a_secret_is_kept_equal_and_not_written_into_the_grant(self) -> None:
        arguments = {"amount": 10, "password": "hunter2"}
        grant = self.granted(self.store.ask(sample_call(None, arguments)))
        assert "hunter2" not in str(grant)
        assert self.store.ask(sample_call(None, {**arguments, "amount": 1})).state is State.APPROVED
        assert self.store.ask(sample_call(None, {**arguments, "password": "hunter3"})).state is State.PENDING

    # -- grants: how they end ----------------------------------------------------------------------------------

    def test_a_grant_is_used_up_by_its_starts(self) -> None:
        self.granted(count=2)
        first, second, third = (self.like(run_id=f"run_{n}") for n in range(3))
        assert {one.state for one in (first, second, third)} == {State.APPROVED}
        self.store.start(first.id, "a")
        self.store.finish(first.id, "a", Outcome("failed"))
        self.store.start(second.id, "b")
        fault = refusal(errors.GrantEndedError, lambda: self.store.start(third.id, "c"))
        assert fault.state == "pending"
        assert self.events(third) == ["asked", "approved", "returned"]
        assert self.like().state is State.PENDING
        assert [grant.ended for grant in self.store.grants(ended=True)] == ["used up"]
        assert self.decide("approve", self.store.get(third.id)).state is State.APPROVED
        assert self.store.start(third.id, "d").state is State.RUNNING
        assert audit.verify(self.store).broken == ()

    def test_a_further_start_of_one_approval_takes_nothing_more(self) -> None:
        self.granted(self.store.ask(sample_call(retries=1)), count=1)
        request = self.like(retries=1)
        self.store.start(request.id, "a")
        assert self.store.finish(request.id, "a", Outcome("failed")).state is State.APPROVED
        assert self.store.start(request.id, "b").state is State.RUNNING

    def test_a_grant_that_was_revoked_stops_what_has_not_started(self) -> None:
        grant, other = self.granted(), self.elsewhere(self.store)
        request = self.like()
        revoked = other.revoke_grant(grant.id, _BOB.identity, channel="test", reason="wrong")
        assert (revoked.ended, revoked.ended_by) == ("revoked", _BOB.identity)
        fault = refusal(errors.GrantEndedError, lambda: self.store.start(request.id, "t"))
        assert "revoked by bob" in str(fault)
        assert self.store.get(request.id).state is State.PENDING
        assert self.like().state is State.PENDING
        assert self.store.revoke_grant(grant.id, _ADA.identity, channel="test") == revoked
        refusal(errors.GrantNotFoundError, lambda: self.store.revoke_grant("gr_none", _ADA.identity, channel="test"))
        other.close()

    def test_a_grant_ends_at_its_end_also_for_what_was_approved_before(self) -> None:
        self.granted(lasts=_HOUR)
        request = self.like()
        self.clock.tick(seconds=3600)
        refusal(errors.GrantEndedError, lambda: self.store.start(request.id, "t"))
        assert self.like().state is State.PENDING
        assert self.store.grants() == []
        assert [grant.ended for grant in self.store.grants(ended=True)] == ["expired"]

    def test_a_grant_made_elsewhere_counts_here_at_once(self) -> None:
        self.like(amount=1)  # asked in one statement, by what is remembered
        other = self.elsewhere(self.store)
        self._store, mine = other, self.store
        self.granted()
        self._store = mine
        assert self.like().state is State.APPROVED
        other.close()

    def test_of_eight_starts_at_once_no_more_than_the_count_run(self) -> None:
        self.granted(count=3)
        requests = [self.like(run_id=f"run_{n}") for n in range(8)]
        told = outcomes_of([lambda one=one: self.store.start(one.id, one.id) for one in requests])
        assert sum(isinstance(one, Request) for one in told) == 3
        assert sum(isinstance(one, errors.GrantEndedError) for one in told) == 5

    # -- the stop ----------------------------------------------------------------------------------------------

    def test_a_stop_blocks_what_was_approved_until_starts_go_on(self) -> None:
        request, other = self.approved(), self.elsewhere(self.store)
        self.store.start(self.approved().id, "warm")  # in one statement, by what is remembered
        other.stop(_ADA.identity, channel="test", reason="fire")
        fault = refusal(errors.StoppedError, lambda: self.store.start(request.id, "t"))
        assert (fault.by, fault.reason) == ("ada", "fire")
        assert self.store.get(request.id) == request
        assert other.stop(_BOB.identity, channel="test").by == _ADA.identity
        assert other.go(_BOB.identity, channel="test")
        assert not other.go(_BOB.identity, channel="test")
        assert self.store.stopped() is None
        assert self.store.start(request.id, "t").state is State.RUNNING
        told = [(entry.event, entry.by) for entry in self.store.journal(run_id="sayso:starts")]
        assert told == [("stopped", "local:ada"), ("went_on", "local:bob")]
        assert audit.verify(self.store).broken == ()
        other.close()

    def test_what_runs_can_finish_while_starts_are_stopped(self) -> None:
        request = self.started("t")
        self.store.stop(_ADA.identity, channel="test")
        assert self.store.finish(request.id, "t", Outcome("done")).state is State.DONE


class BudgetContract(Scene):
    """Budgets; a store that is asked over a network leaves them to a person."""

    def within(
        self, amount: int, *budgets: tuple[str, str | None], run_id: str | None = None, **fields: Any
    ) -> Request:
        """Ask for a call that a policy allows within budgets."""
        arguments = {"amount": amount, "to": "alice"}
        return self.store.ask(sample_call(run_id, arguments, budgets=budgets or (_SUM,), **fields))

    def test_a_call_within_its_budget_is_approved_by_the_policy(self) -> None:
        request = self.within(40)
        assert request.state is State.APPROVED
        assert request.decision is not None
        assert (request.decision.by.qualified, request.decision.channel) == ("policy:budget", "policy")
        assert request.missing_votes == 0
        assert self.store.start(request.id, "t").state is State.RUNNING
        other = self.elsewhere(self.store)
        assert other.get(request.id).budgets == (_SUM,)
        other.close()

    def test_a_call_that_has_ended_before_it_is_recorded_is_approved_by_no_budget(self) -> None:
        request = self.within(40, expires_at=self.clock())
        assert self.store.settle(request.id).state is State.EXPIRED
        assert self.events(request) == ["asked", "expired"]

    def test_a_call_without_room_waits_for_a_person_who_is_told_why(self) -> None:
        self.store.start(self.within(70).id, "a")
        request = self.within(31)
        assert request.state is State.PENDING
        assert "no room" in str(request.rule)
        assert self.within(30).state is State.APPROVED

    def test_a_budget_is_taken_when_the_call_starts(self) -> None:
        first, second = self.within(60), self.within(60, run_id="run_other")
        assert (first.state, second.state) == (State.APPROVED, State.APPROVED)
        self.store.start(first.id, "a")
        refusal(errors.GrantEndedError, lambda: self.store.start(second.id, "b"))
        assert self.store.get(second.id).state is State.PENDING
        self.decide("approve", self.store.get(second.id))
        assert self.store.start(second.id, "b").state is State.RUNNING  # a person's word takes nothing
        assert self.within(40).state is State.APPROVED

    def test_only_what_surely_did_not_run_gives_back(self) -> None:
        for outcome, left in (
            (Outcome("failed", not_run=True), 100), (Outcome("failed", error="not run: NotExecuted: exit 1"), 75),
            (Outcome("done", not_run=True), 50), (Outcome("unknown", not_run=True), 25),
        ):  # fmt: skip
            request = self.within(25)
            self.store.start(request.id, "t")
            self.store.finish(request.id, "t", outcome)
            assert self.within(left, run_id=f"run_{left}").state is State.APPROVED, outcome
            assert self.within(left + 1, run_id=f"run_{left}").state is State.PENDING, outcome

    def test_an_unknown_call_that_did_not_happen_gives_back(self) -> None:
        request = self.within(100)
        self.store.start(request.id, "t")
        self.store.finish(request.id, "t", Outcome("unknown"))
        assert self.within(1).state is State.PENDING
        self.store.resolve(request.id, _ADA.identity, roles=(), happened=False, comment=None, channel="test")
        assert self.within(100).state is State.APPROVED

    def test_a_budget_has_room_again_when_its_span_has_passed(self) -> None:
        self.store.start(self.within(100).id, "a")
        self.clock.tick(seconds=24 * 3600 - 1)
        assert self.within(1).state is State.PENDING
        self.clock.tick(seconds=1)
        assert self.within(100).state is State.APPROVED

    def test_each_run_and_each_program_has_its_own_account(self) -> None:
        for n in (1, 2):
            self.store.start(self.within(n, _COUNT, run_id="run_a").id, "t")
        assert self.within(3, _COUNT, run_id="run_a").state is State.PENDING
        assert self.within(3, _COUNT, run_id="run_b").state is State.APPROVED
        self.store.start(self.within(100).id, "t")
        assert self.within(100, requester=Identity(PROGRAM, "other")).state is State.APPROVED
        assert self.within(100, run_id="run_c").state is State.PENDING

    def test_all_budgets_of_a_call_need_room_and_are_taken_together(self) -> None:
        self.store.start(self.within(90, _SUM, _COUNT, run_id="run_a").id, "t")
        assert self.within(11, _SUM, _COUNT, run_id="run_a").state is State.PENDING
        self.store.start(self.within(1, _SUM, _COUNT, run_id="run_a").id, "u")
        assert self.within(2, _SUM, _COUNT, run_id="run_a").state is State.PENDING
        assert self.within(9, run_id="run_b").state is State.APPROVED

    def test_a_budget_is_added_up_to_the_last_digit(self) -> None:
        with localcontext(prec=2):  # of the program, which may run the store's transactions in its own thread
            self.store.start(self.within(100).id, "a")
            assert self.within(1).state is State.PENDING

    def test_an_amount_that_is_no_number_from_zero_waits(self) -> None:
        endless = Decimal("1e9999999")  # no sum can hold it
        for arguments in ({"amount": -1}, {"amount": True}, {"amount": "1"}, {"to": "alice"}, {"amount": endless}):
            assert self.store.ask(sample_call(None, arguments, budgets=(_SUM,))).state is State.PENDING, arguments

    def test_a_gate_that_wants_a_person_always_gets_one(self) -> None:
        assert self.within(1, always=True).state is State.PENDING

    def test_of_eight_starts_at_once_none_exceeds_the_budget(self) -> None:
        requests = [self.within(30, run_id=f"run_{n}") for n in range(8)]
        told = outcomes_of([lambda one=one: self.store.start(one.id, one.id) for one in requests])
        assert sum(isinstance(one, Request) for one in told) == 3


class AlteredRecordContract(GrantContract, BudgetContract):
    """What somebody did to the records by hand, without a row in the journal; a program has no verb for it."""

    def test_a_grant_that_was_altered_approves_nothing_and_starts_nothing(self) -> None:
        grant = self.granted(count=3)
        approved = self.like()
        self._rewrite("grant", grant.id, count=9)
        waiting = self.like(run_id="later")
        assert waiting.state is State.PENDING
        refusal(errors.GrantEndedError, lambda: self.store.start(approved.id, "t"))
        assert self.store.get(approved.id).state is State.PENDING
        assert "altered" in (self.store.get(approved.id).returned or "")
        (broken,) = audit.verify(self.store).broken
        assert broken.run_id == f"sayso:grant:{grant.id}"
        assert audit.verify(self.store, run_id=broken.run_id).broken == (broken,)
        self.store.revoke_grant(grant.id, _ADA.identity, channel="test")
        assert '"altered":true' in self.store.journal(run_id=broken.run_id)[-1].detail
        assert audit.verify(self.store).broken == ()

    def test_nobody_agrees_to_a_grant_that_was_altered(self) -> None:
        request = self.store.ask(sample_call(quorum=Quorum(2)))
        grant = self.granted(request)
        self._rewrite("grant", grant.id, used=-5)
        refusal(errors.StoreCorruptError, lambda: self.store.agree(grant.id, _BOB, channel="test"))
        refusal(errors.StoreCorruptError, lambda: self.granted(request, _BOB))
        assert self.store.get(request.id).state is State.PENDING

    def test_a_grant_that_was_put_back_or_put_in_by_hand_approves_nothing(self) -> None:
        grant = self.granted()
        record = self.store.record("grant", grant.id)
        assert record is not None
        self.store.revoke_grant(grant.id, _ADA.identity, channel="test")
        self.store.keep(record)
        self.store.keep(replace(record, key="gr_" + "0" * 32))
        assert self.like().state is State.PENDING
        assert {one.run_id for one in audit.verify(self.store).broken} == {
            f"sayso:grant:{grant.id}", "sayso:grant:gr_" + "0" * 32
        }  # fmt: skip

    def _rewrite(self, kind: str, key: str, **changes: Any) -> None:
        record = self.store.record(kind, key)
        assert record is not None
        self.store.keep(replace(record, body={**record.body, **changes}))

    def test_a_stop_that_was_taken_away_by_hand_still_stops(self) -> None:
        request, other = self.approved(), self.elsewhere(self.store)
        self.store.start(self.approved().id, "warm")
        other.stop(_ADA.identity, channel="test")
        other.go(_ADA.identity, channel="test")
        other.stop(_ADA.identity, channel="test", reason="fire")
        assert other.drop("stop", "stop")
        fault = refusal(errors.StoppedError, lambda: self.store.start(request.id, "t"))
        assert fault.by == "ada"
        assert "deleted by hand" in str(fault)
        assert [one.run_id for one in audit.verify(self.store).broken] == ["sayso:starts"]
        for page in (2, 3, 1000):  # however many rows are read at once
            with patch.object(review, "_PAGE", page):
                stop = self.store.stopped()
            assert stop is not None
            assert stop.by == _ADA.identity
        assert self.store.stop(_BOB.identity, channel="test").by == _ADA.identity
        assert self.store.go(_BOB.identity, channel="test")
        assert self.store.start(request.id, "t").state is State.RUNNING
        assert audit.verify(self.store).broken == ()
        other.close()

    def test_an_account_that_was_altered_has_no_room(self) -> None:
        self.store.start(self.within(70).id, "a")
        (account,) = self.store.records("budget")
        approved = self.within(30)
        assert approved.state is State.APPROVED
        for altered in (replace(account, body={**account.body, "takings": []}), None):
            self.store.drop("budget", account.key)
            if altered is not None:
                self.store.keep(altered)
            assert "does not match the journal" in str(self.within(1).rule)
            assert [one.run_id for one in audit.verify(self.store).broken] == [f"sayso:budget:{account.key}"]
        refusal(errors.GrantEndedError, lambda: self.store.start(approved.id, "b"))
        self.store.keep(account)
        assert self.within(30, run_id="run_again").state is State.APPROVED
        assert audit.verify(self.store).broken == ()
