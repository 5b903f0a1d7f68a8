"""What the verbs of a store decide by rule: people, undo, ends, keys, effects and calls that stop to ask.

A store of somebody else has these rules from the base class, and the shipped contract leaves them out.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from unittest.mock import patch

from sayso import audit, errors
from sayso.model import lifecycle
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate, Step
from sayso.model.teamwork import comments_in
from sayso.stores import workers
from sayso.stores.base import Filter
from sayso.stores.workers import Lease
from sayso.testing import StoreContract, sample_call, sample_edit
from sayso.testing.scene import ADA, BOB, refusal

__all__ = ["RuleContract"]

_KEY, _EFFECT, _SHOWN = "call_1", "refund:A-4721", '{"result":"***"}'
_FREE = (State.FAILED, State.REJECTED, State.FEEDBACK, State.CANCELLED, State.EXPIRED)
_SECOND, _SECRET = timedelta(seconds=1), {"password": "hunter2"}


class RuleContract(StoreContract):
    """The rules, beside what a store does by itself."""

    def test_who_asked_cannot_decide_nor_who_it_is_asked_for(self) -> None:
        request = self.ask(on_behalf_of=Identity(LOCAL, "Carol"))
        before = self.everything()
        for by in (Identity(PROGRAM, "tests"), Identity(LOCAL, "carol"), Identity(LOCAL, "\uff23arol")):
            for verb in ("approve", "reject", "feedback", "cancel"):
                refusal(errors.OwnRequestError, lambda verb=verb, by=by: self.decide(verb, request, by))
        assert self.everything() == before

    def test_a_quorum_counts_distinct_people(self) -> None:
        request = self.decide("approve", self.ask(quorum=Quorum(2)))
        for by in (ADA, Identity(LOCAL, "ADA"), Identity(LOCAL, "\uff41da")):
            assert refusal(errors.AlreadyVotedError, lambda by=by: self.decide("approve", request, by)).missing == 1
        assert self.store.get(request.id).state is State.PENDING
        assert self.decide("approve", request, BOB).state is State.APPROVED

    def test_an_edit_that_the_functions_own_types_refuse_waits_anew(self) -> None:
        request = self.ask()
        edited = self.decide("approve", request, edited=sample_edit(request, amount=7))
        back = self.store.send_back(edited.id, request.requester, ["amount: is odd"])
        assert back == self.store.get(request.id)
        assert (back.state, back.effective, back.decision, back.votes) == (State.PENDING, request.call, None, ())
        assert back.returned == "amount: is odd"
        assert self.store.journal(request_id=request.id)[-1].event == "returned"
        assert self.store.send_back(edited.id, request.requester, ["amount: is odd"]) == back, "it waits already"
        approved = self.decide("approve", back)
        assert self.store.send_back(edited.id, request.requester, ["x: y"]) == approved, "nobody edited this one"

    def test_who_saw_an_older_call_decides_nothing(self) -> None:
        request = self.ask(quorum=Quorum(2))
        edited = self.decide("approve", request, edited=sample_edit(request, amount=7))
        error = refusal(errors.StaleViewError, lambda: self.decide("approve", request, BOB))
        assert (error.seen, error.current) == (request.fingerprint, edited.current_fingerprint)
        assert self.store.get(request.id) == edited

    def test_who_does_not_say_what_was_seen_decides_the_call_as_it_stands(self) -> None:
        request = self.ask(quorum=Quorum(2))
        edited = self.decide("approve", request, edited=sample_edit(request, amount=7))
        said = Decision("approve", BOB, self.clock(), "test", None, request.fingerprint)
        decision = self.store.decide(request.id, said, roles=(), seen=None).decision
        assert decision is not None
        assert decision.fingerprint == edited.current_fingerprint

    def test_a_claimed_request_is_decided_by_its_claimer_until_released(self) -> None:
        request = self.store.claim(self.ask().id, ADA, roles=(), channel="test")
        assert self.store.claim(request.id, ADA, roles=(), channel="test") == request
        assert refusal(errors.ClaimedError, lambda: self.decide("approve", request, BOB)).by == "ada"
        refusal(errors.ClaimedError, lambda: self.store.claim(request.id, BOB, roles=(), channel="test"))
        refusal(errors.ClaimedError, lambda: self.store.release(request.id, BOB, roles=(), force=False, channel="test"))
        free = partial(self.store.release, request.id, BOB, roles=(), force=True, channel="test")
        free()
        refusal(errors.NotClaimedError, free)
        assert self.decide("approve", request, BOB).state is State.APPROVED
        assert self.events(request) == ["asked", "claimed", "claimed", "released", "approved"]

    def test_a_claim_leaves_the_other_approvals_of_a_quorum_to_others(self) -> None:
        carol = Identity(LOCAL, "carol")
        request = self.store.claim(self.ask(quorum=Quorum(2)).id, ADA, roles=(), channel="test")
        for verb in ("reject", "feedback", "cancel"):
            refusal(errors.ClaimedError, lambda verb=verb: self.decide(verb, request, BOB))
        edited = sample_edit(request, amount=7)
        refusal(errors.ClaimedError, lambda: self.decide("approve", request, BOB, edited=edited))
        voted = self.decide("approve", request, BOB)
        assert voted == self.elsewhere(self.store).get(request.id)
        assert (voted.state, voted.claimed_by, voted.missing_votes) == (State.PENDING, ADA, 1)
        refusal(errors.ClaimedError, lambda: self.decide("approve", request, carol))  # the last one is the claimer's
        done = self.decide("approve", request, ADA)
        assert (done.state, done.claimed_by) == (State.APPROVED, None)
        assert self.events(request) == ["asked", "claimed", "voted", "approved"]
        assert audit.verify(self.store).broken == ()

    def test_an_assigned_request_is_decided_by_whom_it_was_assigned_to(self) -> None:
        def assign(to: Identity, by: Identity = ADA, *, force: bool = False) -> Request:
            return self.store.assign(
                request.id, by, to=to, to_roles=None, roles=(), force=force, channel="test"
            )  # fmt: skip

        request = self.ask()
        assert assign(BOB).claimed_by == self.elsewhere(self.store).get(request.id).claimed_by == BOB
        assert [one.id for one in self.store.list(Filter(claimed_by=BOB)).requests] == [request.id]
        assert refusal(errors.ClaimedError, lambda: self.decide("approve", request, ADA)).by == "bob"
        refusal(errors.ClaimedError, lambda: assign(ADA))
        assign(ADA, force=True)
        refusal(errors.OwnRequestError, lambda: assign(request.requester))
        assert self.decide("approve", request, ADA).state is State.APPROVED
        assert self.events(request) == ["asked", "assigned", "assigned", "approved"]
        assert audit.verify(self.store).broken == ()

    def test_who_stands_in_decides_what_is_assigned_to_who_is_away_in_their_own_name(self) -> None:
        carol, until = Identity(LOCAL, "carol"), self.clock() + timedelta(hours=3)
        role, pair, mine = (self.ask(run, **options) for run, options in (
            ("run_a", {"quorum": Quorum(1, {"finance"})}), ("run_b", {"quorum": Quorum(2)}), ("run_c", {}),
        ))  # fmt: skip
        for request in (role, pair, mine):
            self.store.assign(
                request.id, carol, to=ADA, to_roles={"finance"}, roles={"finance"}, force=False, channel="test"
            )  # fmt: skip
            refusal(errors.ClaimedError, lambda r=request: self.decide("reject", r, BOB, roles={"finance"}))
        made = self.store.delegate(ADA, to=BOB, until=until, channel="test")
        self.store.delegate(BOB, to=carol, until=until, channel="test")
        other = self.elsewhere(self.store)
        assert [(one.by, one.to, one.until) for one in other.delegations()] == [(ADA, BOB, until), (BOB, carol, until)]
        assert made.since == self.clock()
        assert (other.stood_in_for(BOB), other.stood_in_for(carol)) == ([ADA], [BOB])
        refusal(errors.ClaimedError, lambda: self.decide("approve", mine, carol))  # one step
        refusal(errors.MissingRoleError, lambda: self.decide("approve", role, BOB))  # no role comes with it
        later = self.store.extend(pair.id, BOB, roles=(), span=timedelta(days=5), channel="test")
        assert later.claimed_by == ADA
        assert self.decide("approve", pair, BOB).missing_votes == 1
        self.store.assign(pair.id, carol, to=ADA, to_roles=None, roles=(), force=False, channel="test")
        refusal(errors.AlreadyVotedError, lambda: self.decide("approve", pair, BOB))  # they count once
        done = self.decide("approve", pair, ADA)
        assert (done.state, [vote.by for vote in done.votes]) == (State.APPROVED, [BOB, ADA])
        rows = [json.loads(row.detail).get("on_behalf_of") for row in self.store.journal(request_id=pair.id)]
        assert rows[1:] == [None, ADA.qualified, ADA.qualified, None, None]
        own = self.ask("run_d", on_behalf_of=BOB)
        self.store.assign(own.id, carol, to=ADA, to_roles=None, roles=(), force=False, channel="test")
        refusal(errors.OwnRequestError, lambda: self.decide("approve", own, BOB))
        self.store.comment(mine.id, carol, text="look, @ada", channel="test")
        assert mine.id in other.mentions(ADA) & other.mentions(BOB)
        self.store.comment(mine.id, BOB, text="I did", channel="test")
        assert (mine.id in other.mentions(ADA), mine.id in other.mentions(BOB)) == (True, False)
        for to, end in ((ADA, until), (BOB, self.clock())):
            refusal(ValueError, lambda t=to, e=end: self.store.delegate(ADA, to=t, until=e, channel="test"))
        self.clock.at = until
        assert other.delegations() == []
        refusal(errors.ClaimedError, lambda: self.decide("approve", mine, BOB))
        self.store.delegate(ADA, to=BOB, until=until + timedelta(days=1), channel="test")
        assert [self.store.end_delegation(ADA, channel="test") for _ in range(2)] == [True, False]
        refusal(errors.ClaimedError, lambda: self.decide("approve", mine, BOB))
        assert audit.verify(self.store).broken == ()

    def test_comments_are_found_for_many_requests_at_once(self) -> None:
        first, second, third, other = (
            self.ask(run, arguments={"amount": at}) for at, run in enumerate(("b", "a", "b", "a"))
        )
        for request, text in ((first, "1"), (other, "no"), (third, "2"), (second, "3"), (first, "4")):
            self.store.comment(request.id, ADA, text=text, channel="test")
        found = dict[str, list[str]]()
        for row in self.elsewhere(self.store).comments([first, second, third]):
            found.setdefault(row.request_id, []).append(comments_in([self.store.legible(row)])[0].text)
        assert found == {first.id: ["1", "4"], second.id: ["3"], third.id: ["2"]}
        assert [*self.store.comments([])] == []

    def test_a_snooze_is_of_one_person_and_changes_nothing_of_the_request(self) -> None:
        first, second, third = self.ask("run_a"), self.ask("run_b"), self.in_state(State.REJECTED)
        before, until = self.everything(), self.clock() + timedelta(hours=1)
        for request in (first, second):
            assert self.store.snooze(request.id, ADA, until=until) == request
        other = self.elsewhere(self.store)
        assert other.snoozes(Identity(LOCAL, "Ada")) == {first.id: until, second.id: until}
        assert other.snoozes(BOB) == {}
        self.store.snooze(first.id, ADA, until=None)
        assert other.snoozes(ADA) == {second.id: until}
        for request, at in ((first, first.expires_at), (first, self.clock()), (third, until)):
            refusal(errors.DecisionRefusedError, lambda r=request, t=at: self.store.snooze(r.id, ADA, until=t))
        assert self.everything() == before
        self.clock.at = until
        later = until + timedelta(hours=1)
        self.store.snooze(first.id, ADA, until=later)  # which takes away what is over
        assert other.snoozes(ADA) == {first.id: later}
        self.decide("reject", first)
        assert other.snoozes(ADA) == {}

    def test_the_snoozed_requests_of_a_person_are_read_together(self) -> None:
        until = self.clock() + timedelta(hours=1)
        asked = [self.ask(f"run_{at}").id for at in range(5)]
        for request_id in asked:
            self.store.snooze(request_id, ADA, until=until)
        with ExitStack() as counted:
            reads = [
                counted.enter_context(patch.object(self.store, name, wraps=getattr(self.store, name)))
                for name in ("count", "get", "list", "record", "records", "records_of")
            ]
            assert self.store.snoozes(ADA) == dict.fromkeys(asked, until)
            assert sum(read.call_count for read in reads) == 2  # one of the snoozes, and one of the requests
        self.store.snooze(asked[0], BOB, until=until)
        self.store.snooze(asked[1], Identity(LOCAL, "Dave"), until=until)  # who is not asked for
        found = self.store.snoozes_of([ADA, BOB, Identity(LOCAL, "Carol")])
        assert found == {
            ADA.folded: dict.fromkeys(asked, until), BOB.folded: {asked[0]: until}, Identity(LOCAL, "carol").folded: {},
        }  # fmt: skip

    def test_who_has_approved_what_needs_further_people_is_found_until_it_changes(self) -> None:
        carol, other = Identity(LOCAL, "Carol"), self.elsewhere(self.store)
        pair, trio, gone, alone = (self.ask(f"run_{at}", quorum=Quorum(count)) for at, count in enumerate((2, 3, 2, 1)))
        assert other.voters() == {}
        for request in (pair, trio, gone, alone):
            self.decide("approve", request, carol)
        self.decide("approve", trio, ADA)
        assert other.voters() == {
            pair.id: frozenset({carol.folded}), trio.id: frozenset({carol.folded, ADA.folded}),
            gone.id: frozenset({carol.folded}),
        }  # fmt: skip
        self.decide("approve", pair, ADA)
        self.decide("reject", trio, ADA)
        assert other.voters() == {gone.id: frozenset({carol.folded})}
        later = self.store.extend(gone.id, BOB, roles=(), span=timedelta(days=5), channel="test").expires_at
        self.clock.at = later - timedelta(seconds=1)
        assert list(other.voters()) == [gone.id]
        self.clock.at = later
        assert other.voters() == {}
        self.store.settle(gone.id)
        assert self.store.count_records("voted", 9) == 0

    def test_a_comment_stands_in_the_journal_without_secrets_and_changes_nothing(self) -> None:
        for state in State:
            request = self.in_state(state)
            said = self.store.comment(request.id, BOB, text="is this the right one, @ada?", channel="test")
            assert said == request == self.elsewhere(self.store).get(request.id), state
            assert self.events(request)[-1] == "commented"
        request = self.ask(arguments={"amount": 1, **_SECRET})
        self.store.comment(request.id, BOB, text="they wrote hunter2; @ada, @idp:Carol, not a@b", channel="test")
        rows = map(self.store.legible, self.store.journal(request_id=request.id))
        (found,) = comments_in(rows)
        assert (found.by, found.channel, found.mentions) == (BOB.qualified, "test", ("ada", "idp:Carol"))
        assert "hunter2" not in found.text
        assert found.text.startswith("they wrote ")
        assert request.id in self.store.mentions(ADA)
        self.store.comment(request.id, Identity("idp", "carol"), text="it is; @bob", channel="test")
        self.store.comment(request.id, BOB, text="thanks", channel="test")
        assert not self.store.mentions(Identity("idp", "carol")) | self.store.mentions(BOB)
        self.store.comment(request.id, Identity("guests", "Ada"), text="of another Ada, @hunter2", channel="test")
        for who, is_mentioned in (
            (ADA, True),
            (Identity("guests", "ada"), False),
            (Identity("local", "hunter2"), False),
        ):
            assert (request.id in self.store.mentions(who)) is is_mentioned, who
        self.store.comment(request.id, ADA, text="seen", channel="test")
        assert request.id not in self.store.mentions(ADA) | self.store.mentions(Identity("guests", "ada"))
        self.store.comment(request.id, BOB, text="and now, @ada?", channel="test")
        assert request.id in self.store.mentions(ADA) & self.store.mentions(Identity("guests", "ada"))
        refusal(errors.RequestNotFoundError, lambda: self.store.comment("rq_none", BOB, text="?", channel="test"))
        assert audit.verify(self.store).broken == ()

    def test_a_zero_byte_separates_what_is_searched(self) -> None:
        asked = self.ask("run_a", title="one\0two")
        for text in ("one\0two", "\0one", "one two") if self.searches_words else ():
            assert [one.id for one in self.store.list(Filter(text=text)).requests] == [asked.id]
        assert self.store.list(Filter(text="two\0four")).requests == ()

    def test_a_program_takes_back_what_it_asked_and_forgets_a_no(self) -> None:
        program = Identity(PROGRAM, "tests")
        states = {State.PENDING: "cancelled", State.APPROVED: "cancelled", State.REJECTED: "rejected"}
        for state, after in states.items():
            request = self.in_state(state)
            assert self.store.withdraw(request.id, program).state == after
            assert self.store.find(request.fingerprint) is None
        for state in (State.RUNNING, State.UNKNOWN, State.DONE):
            request = self.in_state(state)
            assert self.store.withdraw(request.id, program) == request

    def test_an_approval_starts_nothing_while_it_can_be_undone(self) -> None:
        request = self.decide("approve", self.ask(), held_for=timedelta(seconds=5))
        assert request.held_until == self.clock() + timedelta(seconds=5)
        assert request.approval_expires_at == self.clock() + timedelta(seconds=5) + request.approval_window
        self.clock.at += timedelta(seconds=4, microseconds=999_001)
        held = refusal(errors.ApprovalHeldError, lambda: self.store.start(request.id, "t"))
        assert (held.until, held.milliseconds) == (request.held_until, 1)
        assert self.elsewhere(self.store).get(request.id) == request
        self.clock.at += timedelta(milliseconds=1)
        assert self.store.start(request.id, "t").state is State.RUNNING
        refusal(errors.NotUndoneError, lambda: self.store.undo(request.id, ADA, channel="test"))
        assert audit.verify(self.store).broken == ()

    def test_an_approval_that_is_undone_waits_again_and_starts_nothing(self) -> None:
        request = self.decide("approve", self.ask(), held_for=timedelta(seconds=5))
        refusal(errors.NotUndoneError, lambda: self.store.undo(request.id, BOB, channel="test"))
        undone = self.store.undo(request.id, ADA, channel="test")
        assert (undone.state, undone.decision, undone.votes, undone.held_until) == (State.PENDING, None, (), None)
        assert self.elsewhere(self.store).get(request.id) == undone
        self.clock.at += timedelta(seconds=6)
        refusal(errors.NotApprovedError, lambda: self.store.start(request.id, "t"))
        row = self.store.journal(request_id=request.id)[-1]
        assert (row.event, row.by, row.channel) == ("undone", ADA.qualified, "test")
        assert self.decide("approve", undone, BOB).state is State.APPROVED
        assert self.store.start(request.id, "t").state is State.RUNNING
        assert audit.verify(self.store).broken == ()

    def test_undoing_an_approval_gives_back_the_claim_that_it_ended(self) -> None:
        held_for = timedelta(seconds=5)
        for count in (1, 2):
            claimed = self.store.claim(self.ask(quorum=Quorum(count)).id, ADA, roles=(), channel="test")
            assert self.decide("approve", claimed, held_for=held_for).claimed_by is None
            self.clock.at += timedelta(seconds=1)
            undone = self.store.undo(claimed.id, ADA, channel="test")
            assert (undone.claimed_by, undone.claimed_at) == (ADA, self.clock())
            assert self.elsewhere(self.store).get(claimed.id) == undone
        voted = self.decide("approve", undone, held_for=held_for)
        self.store.claim(voted.id, BOB, roles=(), channel="test")
        assert self.store.undo(voted.id, ADA, channel="test").claimed_by == BOB
        unclaimed = self.decide("approve", self.ask(), held_for=held_for)
        assert self.store.undo(unclaimed.id, ADA, channel="test").claimed_by is None
        assert audit.verify(self.store).broken == ()

    def test_an_undo_by_who_stands_in_gives_the_claim_back_to_who_is_away(self) -> None:
        held_for, until = timedelta(seconds=5), self.clock() + timedelta(hours=3)
        self.store.delegate(ADA, to=BOB, until=until, channel="test")
        for count in (1, 2):
            claimed = self.store.claim(self.ask(quorum=Quorum(count)).id, ADA, roles=(), channel="test")
            assert self.decide("approve", claimed, BOB, held_for=held_for).claimed_by is None
            undone = self.store.undo(claimed.id, BOB, channel="test")
            assert (undone.claimed_by, undone.claimed_at) == (ADA, self.clock())
            assert self.elsewhere(self.store).get(claimed.id) == undone
        assert audit.verify(self.store).broken == ()

    def test_nothing_is_undone_that_was_not_held_back_or_no_longer_is(self) -> None:
        at_once, late = self.approved(), self.decide("approve", self.ask(), held_for=timedelta(seconds=5))
        self.clock.at += timedelta(seconds=5)
        for request in (at_once, late, self.in_state(State.REJECTED), self.in_state(State.PENDING)):
            refusal(errors.NotUndoneError, lambda r=request: self.store.undo(r.id, ADA, channel="test"))
            assert self.store.get(request.id) == request

    def test_undoing_one_of_several_approvals_keeps_the_others(self) -> None:
        request = self.decide("approve", self.ask(quorum=Quorum(2)), BOB)
        both = self.decide("approve", request, ADA, held_for=timedelta(seconds=5))
        assert (both.state, len(both.votes)) == (State.APPROVED, 2)
        undone = self.store.undo(request.id, ADA, channel="test")
        assert (undone.state, [vote.by for vote in undone.votes]) == (State.PENDING, [BOB])
        voted = self.decide("approve", self.ask(quorum=Quorum(2)), ADA, held_for=timedelta(seconds=5))
        assert self.store.undo(voted.id, ADA, channel="test").votes == ()

    def test_an_approval_is_undone_although_others_have_approved_since(self) -> None:
        held_for = timedelta(seconds=5)
        for count, state in ((3, State.PENDING), (2, State.APPROVED)):
            first = self.decide("approve", self.ask(quorum=Quorum(count)), ADA, held_for=held_for)
            second = self.decide("approve", first, BOB)
            assert second.state is state
            undone = self.store.undo(first.id, ADA, channel="test")
            assert (undone.state, [vote.by for vote in undone.votes]) == (State.PENDING, [BOB])
            refusal(errors.NotApprovedError, lambda r=first: self.store.start(r.id, "t"))
        self.clock.at += held_for
        refusal(errors.NotUndoneError, lambda: self.store.undo(first.id, BOB, channel="test"))
        assert audit.verify(self.store).broken == ()

    def test_undoing_an_edit_discards_the_later_approvals_of_it(self) -> None:
        request = self.ask(quorum=Quorum(3))
        edit = sample_edit(request, amount=7)
        edited = self.decide("approve", request, edited=edit, held_for=timedelta(seconds=5))
        self.decide("approve", edited, BOB)
        undone = self.store.undo(request.id, ADA, channel="test")
        assert (undone.edited, undone.votes) == (None, ())
        assert undone.current_fingerprint == request.fingerprint

    def test_undoing_an_edit_leaves_the_call_as_it_was_proposed(self) -> None:
        request = self.ask()
        edited = self.decide("approve", request, edited=sample_edit(request, amount=7), held_for=timedelta(seconds=5))
        undone = self.store.undo(edited.id, ADA, channel="test")
        assert (undone.edited, undone.current_fingerprint) == (None, request.fingerprint)
        assert audit.verify(self.store).broken == ()

    def test_who_was_given_up_may_still_say_once_how_the_call_ended(self) -> None:
        request = self.started("mine")
        assert request.execution is not None
        assert self.store.settle(request.id, gone=request.execution.worker).state is State.UNKNOWN
        assert self.store.finish(request.id, "mine", Outcome("done")).state is State.DONE
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "mine", Outcome("failed")))
        reported = self.unknown("its own")
        refusal(errors.StartRefusedError, lambda: self.store.finish(reported.id, "its own", Outcome("done")))

    def test_an_unknown_outcome_is_resolved_once_by_a_person(self) -> None:
        for happened, state in ((True, State.DONE), (False, State.FAILED)):
            request = self.unknown()
            program = request.requester
            refusal(errors.OwnRequestError, lambda r=request, by=program: self._resolve(r, by, happened=True))
            resolved = self._resolve(request, BOB, happened=happened)
            assert resolved.execution is not None
            assert (resolved.state, resolved.holds, resolved.execution.resolved_by) == (state, False, BOB)
            error = refusal(errors.NotUnknownError, lambda r=request: self._resolve(r, ADA, happened=False))
            assert error.state == state

    def _resolve(self, request: Request, by: Identity, *, happened: bool, force: bool = False) -> Request:
        return self.store.resolve(
            request.id, by, roles=(), happened=happened, comment=None, channel="test", force=force
        )

    def test_a_key_finds_a_request_whose_end_was_reached_as_expired(self) -> None:
        first = self.again()
        self.clock.tick("24h")
        found = self.again()
        assert (found.id, found.state) == (first.id, State.EXPIRED)
        assert self.events(first) == ["asked", "expired"]

    def test_a_key_finds_its_request_after_it_was_cleared(self) -> None:
        request = self.again()
        self.store.withdraw(request.id, request.requester)
        assert self.again().id == request.id

    def test_a_call_without_a_key_is_another_request_than_the_same_with_one(self) -> None:
        keyed = self.again()
        plain = self.store.ask(sample_call("run_keys"))
        assert keyed.id != plain.id
        assert self.store.ask(sample_call("run_keys")) == plain

    def test_a_key_is_refused_for_other_arguments_after_an_edit(self) -> None:
        first = self.again()
        self.decide("approve", first, edited=sample_edit(first, amount=11))
        refusal(errors.KeyReusedError, lambda: self.again(amount=11))
        assert self.again().id == first.id

    def test_a_decision_on_a_keyed_call_is_about_its_fingerprint(self) -> None:
        edited = self.again()
        approved = self.decide("approve", edited, edited=sample_edit(edited, amount=7))
        assert approved.decision is not None
        assert approved.decision.fingerprint == approved.current_fingerprint != edited.fingerprint

    def test_a_result_of_1_mb_is_kept_and_a_larger_one_is_not(self) -> None:
        frame = len('{"result":""}')
        for size, is_kept in ((lifecycle.MOST_KEPT, True), (lifecycle.MOST_KEPT + 1, False)):
            text = f'{{"result":"{"x" * (size - frame)}"}}'
            request = self.decide("approve", self.again(f"call_{size}"))
            self.store.start(request.id, "t")
            done = self.store.finish(request.id, "t", Outcome("done", None, None, text))
            if is_kept:
                assert self.store.result(done.id) == text
            else:
                assert "1 MB" in str(refusal(errors.ValueNotKeptError, lambda r=done: self.store.result(r.id)))

    def test_a_result_that_is_not_kept_says_why(self) -> None:
        done = self.done(Outcome("done", None, None, None, "a socket has no canonical form"))
        assert "socket" in str(refusal(errors.ValueNotKeptError, lambda: self.store.result(done.id)))

    def test_a_call_without_a_key_keeps_no_real_result(self) -> None:
        started = self.started("t")
        done = self.store.finish(started.id, "t", Outcome("done", _SHOWN, None, '{"result":1}'))
        assert done.execution is not None
        assert (done.execution.kept, done.execution.not_kept) == (None, None)
        refusal(errors.ValueNotKeptError, lambda: self.store.result(done.id))

    def test_a_call_that_is_not_done_has_no_result(self) -> None:
        request = self.again()
        error = refusal(errors.ValueNotKeptError, lambda: self.store.result(request.id))
        assert "pending" in str(error)
        refusal(errors.RequestNotFoundError, lambda: self.store.result("rq_" + 32 * "0"))

    def test_an_effect_is_free_when_the_end_of_an_earlier_request_is_reached(self) -> None:
        self.ask("run_1", effect=_EFFECT, expires_at=self.clock() + timedelta(seconds=1))
        second = self.second()
        refusal(errors.EffectTakenError, lambda: self.store.start(second.id, "u"))
        self.clock.tick(seconds=1)
        assert self.store.start(second.id, "u").state is State.RUNNING

    def test_an_open_later_request_does_not_hold_an_effect_up(self) -> None:
        first = self.ask("run_1", effect=_EFFECT)
        self.second()
        assert self.store.start(self.decide("approve", first).id, "t").state is State.RUNNING

    def test_a_later_request_that_runs_holds_the_earlier_one_up(self) -> None:
        first = self.ask("run_1", effect=_EFFECT)
        second = self.allowed_again(self.ask("run_2", effect=_EFFECT))
        self.store.start(second.id, "u")
        approved = self.decide("approve", first)
        assert refusal(errors.EffectTakenError, lambda: self.store.start(approved.id, "t")).other == second.id

    def test_two_effects_and_calls_without_one_hold_nothing_up(self) -> None:
        self.in_state(State.DONE, self.ask("run_1", effect=_EFFECT))
        self.in_state(State.RUNNING, self.ask("run_2", effect="refund:B-1"))
        self.in_state(State.RUNNING, self.ask("run_3"))

    def allowed_again(self, request: Request, comment: str | None = "the first one bounced") -> Request:
        """Approve a request so that its effect may happen again."""
        said = Decision("approve", ADA, self.clock(), "test", comment, request.fingerprint, again=True)
        return self.store.decide(request.id, said, roles=(), seen=None)

    def test_an_effect_starts_again_where_a_reviewer_says_so_with_a_reason(self) -> None:
        self.in_state(State.DONE, self.ask("run_1", effect=_EFFECT))
        second = self.ask("run_2", effect=_EFFECT)
        for comment in (None, " "):
            refusal(errors.ReasonMissingError, lambda c=comment: self.allowed_again(second, c))
        approved = self.allowed_again(second)
        assert approved.decision is not None
        assert (approved.decision.again, approved.decision.comment) == (True, "the first one bounced")
        assert self.elsewhere(self.store).get(second.id) == approved
        assert self.store.start(second.id, "u").state is State.RUNNING

    def test_again_is_refused_where_there_is_no_effect(self) -> None:
        request = self.ask()
        refusal(errors.DecisionRefusedError, lambda: self.allowed_again(request))
        assert self.store.get(request.id) == request

    def test_again_begins_the_count_of_a_quorum_anew(self) -> None:
        self.in_state(State.DONE, self.ask("run_1", effect=_EFFECT))
        request = self.decide("approve", self.ask("run_2", effect=_EFFECT, quorum=Quorum(2)), BOB)
        voted = self.allowed_again(request)
        assert (voted.state, [vote.by for vote in voted.votes]) == (State.PENDING, [ADA])
        said = Decision("approve", BOB, self.clock(), "test", "as ada says", request.fingerprint, again=True)
        assert self.store.decide(request.id, said, roles=(), seen=None).state is State.APPROVED
        assert self.store.start(request.id, "u").state is State.RUNNING

    def test_a_clock_that_steps_back_revives_nothing(self) -> None:
        request = self.ask(expires_at=self.clock() + _SECOND)
        self.clock.tick(seconds=1)
        assert self.store.settle(request.id).state is State.EXPIRED
        self.clock.tick(hours=-1)
        refusal(errors.RequestExpiredError, lambda: self.decide("approve", request))
        assert self.store.settle(request.id).state is State.EXPIRED

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
        with patch.object(workers, "current", return_value="another/boot/space/1/1"):
            request = self.started("mine")
        assert self.store.sweep() == 0
        assert self.store.settle(request.id).state is State.RUNNING

    def held_far_away(self) -> RunRecord:
        """Save a run that a process on another machine holds."""
        with patch.object(workers, "current", return_value="far/boot/space//1/1//machine/30"):
            run = self.run()
        self.store.save_run(RunUpdate(run, [Step("/", "{}")]))
        return run

    def test_a_run_is_taken_from_another_machine_when_its_lease_was_not_renewed(self) -> None:
        renewed, left, mine = self.held_far_away(), self.held_far_away(), Lease()
        self.clock.tick("44s")
        assert self.ready() == []
        refusal(errors.RunBusyError, lambda: self.store.take_run(left.id, mine.holder))
        assert self.store.renew([], [(renewed.id, str(renewed.holder))]) == []
        self.clock.tick("1s")
        assert self.ready() == [left.id]
        refusal(errors.RunBusyError, lambda: self.store.take_run(renewed.id, mine.holder))
        self.store.take_run(left.id, mine.holder)
        refusal(errors.RunBusyError, lambda: self.store.save_run(RunUpdate(left, [Step("/late", "{}")])))
        assert self.store.renew([], [(left.id, str(left.holder))]) == [left.id]
        # What its holder saves does not take the renewal back.
        self.store.save_run(RunUpdate(renewed, [Step("/more", "{}")]))
        assert self.ready() == []
        self.clock.tick("44s")
        assert self.ready() == [renewed.id]
        assert self.elsewhere(self.store).get_run(left.id).run.holder == mine.holder

    def test_a_run_that_was_left_is_not_renewed(self) -> None:
        run = self.held_far_away()
        self.store.leave_run(RunUpdate(run, []), RunState.ENDED)
        ended = self.store.get_run(run.id)
        self.clock.tick("20s")
        assert self.store.renew([], [(run.id, str(run.holder))]) == [run.id]
        assert self.store.get_run(run.id) == ended

    def asked_inside(self, request: Request, amount: int = 1, lease: Lease | None = None) -> Request:
        """Ask for another call in the run of a call that is running, and keep the run as waiting for it."""
        run = self.run(run_id=request.run_id, lease=lease)
        inner = sample_call(request.run_id, {"amount": amount})
        return self.store.ask(inner, RunUpdate(run, [Step("/inner", "{}", inner.id)]))

    def test_a_call_that_stopped_to_ask_gives_its_start_back(self) -> None:
        request = self.started("mine")
        inner = self.asked_inside(request)
        approved = self.store.finish(request.id, "mine", Outcome("suspended"))
        assert (approved.state, approved.holds) == (State.APPROVED, True)
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "mine", Outcome("done")))
        self.decide("approve", inner)
        again = self.store.start(request.id, "again")
        assert again.execution is not None
        assert (again.execution.attempt, again.execution.starts) == (1, 2)
        assert self.store.finish(request.id, "again", Outcome("done")).state is State.DONE
        assert self.events(request) == ["asked", "approved", "started", "suspended", "started", "done"]
        assert audit.verify(self.store).broken == ()

    def test_how_often_a_call_was_started_is_kept_and_in_the_journal_also_where_it_stopped_to_ask(self) -> None:
        request, lease = self.started("1"), Lease()
        for amount, token in enumerate(("1", "2")):
            inner = self.asked_inside(request, amount, lease)
            stopped = self.store.finish(request.id, token, Outcome("suspended"))
            assert self.store.get(request.id) == stopped
            self.decide("approve", inner)
            self.store.start(request.id, str(amount + 2))
        rows = self.store.journal(request_id=request.id)
        assert [json.loads(row.detail).get("start") for row in rows if row.event == "started"] == [None, 2, 3]

    def test_a_call_that_stopped_to_ask_has_no_more_tries_than_before(self) -> None:
        request, lease = self.started("a", retries=1), Lease()
        self.store.finish(request.id, "a", Outcome("failed"))
        for amount, token in enumerate(("b", "c")):
            self.store.start(request.id, token)
            inner = self.asked_inside(request, amount, lease)
            suspended = self.store.finish(request.id, token, Outcome("suspended"))
            assert suspended.state is State.APPROVED
            assert self.store.get(request.id) == suspended
            self.decide("approve", inner)
        self.store.start(request.id, "d")
        assert self.store.finish(request.id, "d", Outcome("failed")).state is State.FAILED
        refusal(errors.StartRefusedError, lambda: self.store.start(request.id, "e"))

    def test_who_does_not_hold_a_run_writes_nothing_of_it(self) -> None:
        mine = self.run()
        self.store.save_run(RunUpdate(mine, [Step("/", "{}")]))
        lease = self.lease
        theirs = self.run(run_id=mine.id)
        error = refusal(errors.RunBusyError, lambda: self.store.save_run(RunUpdate(theirs, [Step("/x", "{}")])))
        assert error.run_id == mine.id
        self.store.leave_run(RunUpdate(theirs, [Step("/x", "{}")]), RunState.ENDED)
        assert self.store.get_run(mine.id) == RunSnapshot(mine, (Step("/", "{}"),))
        lease.release()

    def test_a_run_is_taken_from_who_let_it_go_or_died(self) -> None:
        run, taker = self.run(), Lease()
        self.store.save_run(RunUpdate(run, []))
        busy = refusal(errors.RunBusyError, lambda: self.store.take_run(run.id, taker.holder))
        assert "another process" not in str(busy), "it may be another task of this one"
        self.lease.release()
        assert self.store.take_run(run.id, taker.holder).run == run
        with patch.object(workers, "current", return_value="host/boot/space/1/1"):
            theirs = self.run()
            self.store.save_run(RunUpdate(theirs, []))
        refusal(errors.RunBusyError, lambda: self.store.take_run(theirs.id, taker.holder))
        with patch.object(workers, "is_gone", return_value=True):
            assert self.store.take_run(theirs.id, taker.holder).run == theirs

    def test_an_ended_run_is_shown_and_not_taken(self) -> None:
        run = self.run()
        self.store.leave_run(RunUpdate(run, [Step("/", "{}")]), RunState.ENDED)
        kept = self.store.take_run(run.id, Lease().holder)
        assert (kept.run.state, kept.run.holder, len(kept.steps)) == (RunState.ENDED, None, 1)
        assert self.store.get_run(run.id) == kept

    def test_a_run_is_saved_by_who_finds_its_request_asked_already(self) -> None:
        first = self.store.ask(sample_call("run_same"))
        run = self.run()
        assert self.store.ask(sample_call("run_same"), RunUpdate(run, [Step("/", "{}", first.id)])) == first
        assert len(self.steps(run)) == 1

    def test_a_run_stays_in_hand_where_another_request_holds_its_call(self) -> None:
        first, run = self.store.ask(sample_call("run_same")), self.run()
        found = self.store.ask(sample_call("run_same"), RunUpdate(run, [Step("/", "{}", first.id)], RunState.PAUSED))
        assert (found, self.store.get_run(run.id).run) == (first, run)

    def test_how_a_call_ended_is_recorded_even_where_its_run_is_in_other_hands(self) -> None:
        run, request = self.run(), self.started("mine")
        self.store.save_run(RunUpdate(run, []))
        lease = self.lease
        saved = RunUpdate(self.run(run_id=run.id), [Step("/", "{}")])
        refusal(errors.RunBusyError, lambda: self.store.finish(request.id, "mine", Outcome("done"), saved))
        assert (self.store.get(request.id).state, self.steps(run)) == (State.DONE, ())
        lease.release()
