"""What each verb of a store promises to one caller at a time; a part of `sayso.testing.contract`.

Every test is one fact. Nothing here knows how a store keeps its requests.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from typing import Any

from sayso import audit, errors
from sayso.model.comments import comments_in
from sayso.model.journal import first_link
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request, State, Verb
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum
from sayso.stores.base import Filter
from sayso.testing.sample import sample_call, sample_edit
from sayso.testing.scene import ADA, BOB, Scene, refusal

_SECOND = timedelta(seconds=1)
_SECRET = {"password": "hunter2"}


class VerbContract(Scene):
    """The verbs, one by one."""

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
        resolved = self.store.resolve(request.id, BOB, roles=(), happened=True, comment="seen", channel="test")
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
            (Filter(text="STRASSE"), [question]),
            (Filter(text="grösse"), [risky]),
            (Filter(text="SAID s"), [rejected]),
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

    # -- undo ----------------------------------------------------------------------------------------------------

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

    def test_undoing_an_edit_leaves_the_call_as_it_was_proposed(self) -> None:
        request = self.ask()
        edited = self.decide("approve", request, edited=sample_edit(request, amount=7), held_for=timedelta(seconds=5))
        undone = self.store.undo(edited.id, ADA, channel="test")
        assert (undone.edited, undone.current_fingerprint) == (None, request.fingerprint)
        assert audit.verify(self.store).broken == ()

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

    def test_who_was_given_up_may_still_say_once_how_the_call_ended(self) -> None:
        request = self.unknown("mine")
        assert self.store.finish(request.id, "mine", Outcome("done")).state is State.DONE
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "mine", Outcome("failed")))

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

    def test_only_an_idempotent_call_is_started_again_after_an_unknown_outcome(self) -> None:
        refusal(errors.OutcomeUnknownError, lambda: self.store.start(self.unknown().id, "again"))
        request = self.unknown("first", idempotent=True)
        assert self.store.start(request.id, "second").state is State.RUNNING
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "first", Outcome("done")))

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
        request = self.approved()
        before = self.everything()
        refusal(errors.AlreadyDecidedError, lambda: self.decide("reject", request, BOB))
        refusal(errors.NotUnknownError, lambda: self._resolve(request, BOB, happened=True))
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
        request = sample_call(arguments={"amount": 31337, "to": "canary-to", "password": "canary-secret"})
        edited = self.decide("approve", self.store.ask(request), edited=sample_edit(request, to="canary-edit"))
        self.store.start(edited.id, "t")
        self.store.finish(edited.id, "t", Outcome("failed", error="canary-error"))
        text = "".join(str(row) for row in self.store.journal())
        assert len(self.events(edited)) == 4
        assert "canary" not in text
        assert "31337" not in text
