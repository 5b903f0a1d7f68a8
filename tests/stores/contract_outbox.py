"""What a store promises about the outbox and about escalations; a part of `full_contract`.

Every test is one fact about what a verb leaves for the channels in its own transaction. Nothing here delivers.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import patch

from sayso import errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Escalation, Identity, Quorum
from sayso.stores import transaction
from sayso.stores.records import Record
from sayso.testing.doubles import sample_call, sample_edit
from sayso.testing.scene import ADA, BOB, Scene, refusal

__all__ = ["OutboxContract"]

_HOUR = timedelta(hours=1)
_CAROL = Identity(LOCAL, "carol")


class OutboxContract(Scene):
    """The outbox, and what time alone makes of a request that waits."""

    def enter(self, *channels: str) -> None:
        """Register channels."""
        for channel in channels:
            self.store.keep(Record(transaction.CHANNEL, channel, {}))

    def owed(self, request: Request, channel: str = "ops") -> Record:
        """Return what is owed to a channel for a request."""
        found = self.store.record(transaction.delivery_kind(channel), request.id)
        assert found is not None, f"nothing is owed to {channel} for {request.id}"
        return found

    def settle_account(self, request: Request, **body: Any) -> Record:
        """Let a delivery wait for nothing, as after everything was said."""
        owed = self.owed(request)
        after = Record(owed.kind, owed.key, owed.body | body)
        assert self.store.swap(owed, after)
        return after

    # -- owed --------------------------------------------------------------------------------------------------

    def test_a_new_request_owes_a_message_to_each_channel_at_once(self) -> None:
        self.enter("ops", "desk")
        request = self.ask()
        for channel in ("ops", "desk"):
            owed = self.owed(request, channel)
            assert (owed.body, owed.due) == ({"changes": 0, "sent": []}, self.clock())
            assert list(self.store.records(owed.kind)) == [owed]

    def test_a_request_that_is_found_again_owes_nothing_more(self) -> None:
        self.enter("ops")
        request = self.store.ask(sample_call("run_same"))
        said = self.settle_account(request)
        assert self.store.ask(sample_call("run_same")) == request
        assert self.owed(request) == said

    def test_without_a_channel_nothing_is_owed_and_nothing_is_kept(self) -> None:
        before = self.ask()
        self.enter("ops")
        request = self.decide("approve", before)
        assert list(self.store.records(transaction.delivery_kind("ops"))) == []
        self.store.drop(transaction.CHANNEL, "ops")
        self.decide("reject", self.ask(), BOB)
        assert list(self.store.records(transaction.delivery_kind("ops"))) == []
        assert request.state is State.APPROVED

    def test_what_people_are_to_hear_of_makes_the_delivery_due_again(self) -> None:
        self.enter("ops")
        for verb in ("approve", "reject", "feedback", "cancel"):
            request = self.ask()
            self.settle_account(request)
            self.clock.tick(seconds=1)
            self.decide(verb, request)
            assert (self.owed(request).due, self.owed(request).body["changes"]) == (self.clock(), 1), verb

    def test_how_a_call_ended_makes_the_delivery_due_again(self) -> None:
        self.enter("ops")
        for state in ("done", "failed", "unknown"):
            request = self.started("t")
            said = self.settle_account(request)
            self.clock.tick(seconds=1)
            self.store.finish(request.id, "t", Outcome(state))
            assert (self.owed(request).due, self.owed(request).body["changes"]) == (
                self.clock(),
                said.body["changes"] + 1,
            ), state

    def test_an_end_makes_the_delivery_due_again(self) -> None:
        self.enter("ops")
        request = self.ask(expires_at=self.clock() + _HOUR)
        self.settle_account(request)
        self.clock.tick(_HOUR)
        self.store.sweep()
        assert self.owed(request).due == self.clock()

    def test_what_people_need_not_hear_of_makes_nothing_due(self) -> None:
        self.enter("ops")
        request = self.ask(quorum=Quorum(2))
        said = self.settle_account(request)
        self.store.claim(request.id, ADA, roles=(), channel="test")
        self.decide("approve", request, ADA)
        assert self.owed(request) == said
        self.decide("approve", self.store.get(request.id), BOB)
        said = self.settle_account(request)
        self.store.start(request.id, "t")
        assert self.owed(request) == said

    def test_what_is_in_hand_or_given_up_is_counted_and_stays_where_it_is(self) -> None:
        self.enter("ops")
        for mark in ("holder", "given_up"):
            request = self.ask()
            due = self.clock() + _HOUR
            taken = Record(transaction.delivery_kind("ops"), request.id, {"changes": 0, "sent": [], mark: "x"}, due)
            self.store.keep(taken)
            self.decide("approve", request)
            assert self.owed(request) == Record(taken.kind, taken.key, taken.body | {"changes": 1}, due)

    def test_a_verb_that_is_refused_owes_nothing(self) -> None:
        self.enter("ops")
        request = self.decide("reject", self.ask())
        said = self.settle_account(request)
        refusal(errors.AlreadyDecidedError, lambda: self.decide("approve", request, BOB))
        assert self.owed(request) == said

    def test_what_is_owed_and_what_is_recorded_become_durable_together_or_not_at_all(self) -> None:
        self.enter("ops")
        request, asked = self.ask(), sample_call()
        before = self.everything()
        with patch.object(transaction, "delivery_kind", side_effect=RuntimeError("broken off")):
            refusal(RuntimeError, lambda: self.store.ask(asked))
            refusal(RuntimeError, lambda: self.decide("approve", request))
        assert self.everything() == before
        assert [record.key for record in self.store.records(transaction.delivery_kind("ops"))] == [request.id]

    # -- escalated ---------------------------------------------------------------------------------------------

    def escalating(self, count: int = 1, **fields: Any) -> Request:
        """Record a request of the role `finance` that is opened to the role `cfo` and to Carol after an hour."""
        escalation = Escalation(_HOUR, frozenset({"cfo"}), (_CAROL,))
        return self.ask(quorum=Quorum(count, {"finance"}), escalation=escalation, **fields)

    def test_an_escalation_is_written_when_its_time_comes_and_by_the_clock(self) -> None:
        self.enter("ops")
        request = self.escalating()
        self.settle_account(request)
        self.clock.tick(_HOUR - timedelta(microseconds=1))
        assert self.store.sweep() == 0
        assert self.store.get(request.id).escalated_at is None
        self.clock.tick(timedelta(microseconds=1))
        assert self.store.sweep() == 1
        assert self.store.get(request.id).escalated_at == self.clock()
        assert self.elsewhere(self.store).get(request.id).open_to == request.escalation
        last = list(self.store.journal(request_id=request.id))[-1]
        assert (last.event, last.channel) == ("escalated", "clock")
        assert "cfo" in last.detail
        assert "carol" in last.detail
        assert self.owed(request).due == self.clock()
        assert self.store.sweep() == 0

    def test_a_request_that_waits_again_after_the_time_of_its_escalation_is_escalated(self) -> None:
        self.enter("ops")
        undone, returned = self.escalating(), self.escalating()
        self.decide("approve", undone, roles={"finance"}, held_for=2 * _HOUR)
        self.decide("approve", returned, roles={"finance"}, edited=sample_edit(returned, amount=7))
        self.clock.tick(_HOUR)
        assert self.store.sweep() == 0
        self.store.undo(undone.id, ADA, channel="test")
        self.store.send_back(returned.id, returned.requester, ["amount: is odd"])
        assert self.store.sweep() == 2
        for request in (undone, returned):
            assert self.store.get(request.id).escalated_at == self.clock()
            assert self.events(request)[-1] == "escalated"
        assert list(self.store.records(transaction.ESCALATION)) == []

    def test_until_an_escalation_has_come_it_lets_nobody_in(self) -> None:
        request = self.escalating()
        self.clock.tick(_HOUR - timedelta(microseconds=1))
        refusal(errors.MissingRoleError, lambda: self.decide("approve", request, BOB, roles={"cfo"}))
        refusal(errors.MissingRoleError, lambda: self.decide("approve", request, _CAROL))
        assert self.decide("approve", request, ADA, roles={"finance"}).state is State.APPROVED

    def test_who_was_named_may_decide_after_it_and_the_record_says_so_first(self) -> None:
        for by, roles in ((BOB, {"cfo"}), (_CAROL, set[str]()), (ADA, {"finance"})):
            request = self.escalating()
            self.clock.tick(_HOUR)
            refusal(errors.MissingRoleError, lambda request=request: self.decide("approve", request, BOB, roles={"it"}))
            assert self.decide("approve", request, by, roles=roles).state is State.APPROVED  # nobody has swept
            assert self.events(request) == ["asked", "escalated", "approved"]

    def test_a_decision_that_comes_before_the_sweep_records_the_escalation_too(self) -> None:
        request = self.escalating()
        self.clock.tick(_HOUR)
        assert self.decide("approve", request, ADA, roles={"finance"}).escalated_at == self.clock()
        assert self.events(request) == ["asked", "escalated", "approved"]

    def test_an_escalation_takes_nothing_off_how_many_must_agree(self) -> None:
        request = self.escalating(2)
        self.clock.tick(_HOUR)
        voted = self.decide("approve", request, BOB, roles={"cfo"})
        assert (voted.state, voted.missing_votes) == (State.PENDING, 1)
        refusal(errors.AlreadyVotedError, lambda: self.decide("approve", voted, BOB, roles={"cfo", "finance"}))
        assert self.decide("approve", voted, _CAROL).state is State.APPROVED

    def test_an_escalation_never_lets_the_requester_decide(self) -> None:
        escalation = Escalation(_HOUR, frozenset({"cfo"}), (_CAROL, BOB))
        request = self.ask(
            quorum=Quorum(1, {"finance"}), escalation=escalation, requester=_CAROL, on_behalf_of=BOB
        )  # fmt: skip
        self.clock.tick(_HOUR)
        for by in (_CAROL, BOB):
            refusal(errors.OwnRequestError, lambda by=by: self.decide("approve", request, by, roles={"cfo"}))
        assert self.store.get(request.id).state is State.PENDING

    def test_what_is_decided_or_has_ended_is_not_escalated(self) -> None:
        decided, ended = self.escalating(), self.escalating(expires_at=self.clock() + _HOUR)
        self.decide("reject", decided, roles={"finance"})
        self.clock.tick(_HOUR)
        self.store.sweep()
        assert "escalated" not in self.events(decided) + self.events(ended)
        assert self.store.get(ended.id).state is State.EXPIRED
        assert list(self.store.records(transaction.ESCALATION)) == []
