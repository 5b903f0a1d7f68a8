"""What a store promises about the occasion key, the effect and the stored result; a part of `sayso.testing.contract`.

A key is asked once in its run, for ever. An effect starts once across all runs until it is known not to have happened.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sayso import errors
from sayso.model import lifecycle
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import Quorum
from sayso.stores.base import Filter
from sayso.testing.sample import sample_call, sample_edit
from sayso.testing.scene import ADA, BOB, Scene, outcomes_of, refusal

_RUN, _KEY, _EFFECT = "run_keys", "call_1", "refund:A-4721"
_FREE = (State.FAILED, State.REJECTED, State.FEEDBACK, State.CANCELLED, State.EXPIRED)
_TAKEN = (State.PENDING, State.APPROVED, State.RUNNING, State.DONE, State.UNKNOWN)
_SHOWN = '{"result":"***"}'


class KeyContract(Scene):
    """The key, the effect and the result."""

    def again(self, key: str = _KEY, amount: int = 10, run_id: str = _RUN) -> Request:
        """Ask the keyed call, as a program that has lost its memory would."""
        return self.store.ask(sample_call(run_id, {"amount": amount, "to": "alice"}, key=key))

    # -- the key -----------------------------------------------------------------------------------------------

    def test_what_is_asked_with_a_key_comes_back_equal_in_every_field(self) -> None:
        words: dict[str, Any] = {
            "key": "call ü",
            "effect": "refund:\u202eA",
            "title": "Refund",
            "summary": "Refund €320.00",
        }
        request = sample_call(_RUN, **words)
        recorded = self.recorded(request)
        assert self.store.ask(request) == recorded
        other = self.elsewhere(self.store)
        assert other.get(request.id) == recorded
        assert {name: getattr(recorded, name) for name in words} == words
        other.close()

    def test_a_key_finds_its_request_in_every_state(self) -> None:
        for state in (*_FREE, *_TAKEN):
            run_id = f"run_{state}"
            request = self.in_state(state, self.again(run_id=run_id))
            assert request.state is state
            found = self.store.find_key(run_id, _KEY)
            assert found == request, state
            assert self.again(run_id=run_id) == request, state
        assert self.store.count(Filter()) == len((*_FREE, *_TAKEN))

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

    def test_two_keys_are_two_requests_of_one_call(self) -> None:
        assert self.again("call_1").id != self.again("call_2").id
        assert self.again("call_1").fingerprint != self.again("call_2").fingerprint

    def test_one_key_in_two_runs_is_two_requests(self) -> None:
        assert self.again(run_id="run_a").id != self.again(run_id="run_b").id
        assert self.store.find_key("run_c", _KEY) is None

    def test_a_call_without_a_key_is_another_request_than_the_same_with_one(self) -> None:
        keyed = self.again()
        plain = self.store.ask(sample_call(_RUN))
        assert keyed.id != plain.id
        assert self.store.ask(sample_call(_RUN)) == plain

    def test_a_key_is_refused_for_other_arguments_and_for_another_kind(self) -> None:
        first = self.again()
        before = self.everything()
        error = refusal(errors.KeyReusedError, lambda: self.again(amount=11))
        assert (error.key, error.run_id, error.request_id) == (_KEY, _RUN, first.id)
        assert first.id in str(error)
        assert self.everything() == before

    def test_a_key_is_refused_for_other_arguments_after_an_edit(self) -> None:
        first = self.again()
        self.decide("approve", first, edited=sample_edit(first, amount=11))
        refusal(errors.KeyReusedError, lambda: self.again(amount=11))
        assert self.again().id == first.id

    def test_of_ten_threads_with_one_key_all_get_one_request(self) -> None:
        found = outcomes_of([self.again] * 10)
        assert {one.id for one in found if isinstance(one, Request)} == {self.again().id}
        assert all(isinstance(one, Request) for one in found), found
        assert self.store.count(Filter()) == 1

    def test_of_two_programs_with_one_key_and_other_arguments_one_is_refused(self) -> None:
        told = outcomes_of([lambda amount=amount: self.again(amount=amount) for amount in range(1, 9)])
        assert sum(isinstance(one, Request) for one in told) == 1
        assert sum(isinstance(one, errors.KeyReusedError) for one in told) == 7

    def test_a_decision_on_a_keyed_call_is_about_its_fingerprint(self) -> None:
        edited = self.again()
        approved = self.decide("approve", edited, edited=sample_edit(edited, amount=7))
        assert approved.decision is not None
        assert approved.decision.fingerprint == approved.current_fingerprint != edited.fingerprint

    # -- the result --------------------------------------------------------------------------------------------

    def done(self, outcome: Outcome) -> Request:
        request = self.decide("approve", self.again())
        self.store.start(request.id, "t")
        return self.store.finish(request.id, "t", outcome)

    def test_the_real_result_of_a_keyed_call_is_kept_and_the_masked_one_shown(self) -> None:
        real, shown = '{"result":"hunter2"}', '{"result":"***"}'
        done = self.done(Outcome("done", shown, None, real))
        assert done.execution is not None
        assert done.execution.result == shown
        other = self.elsewhere(self.store)
        assert other.result(done.id) == real
        assert other.get(done.id) == done == self.again()
        other.close()

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

    # -- the effect --------------------------------------------------------------------------------------------

    def second(self, run_id: str = "run_2", effect: str = _EFFECT, **fields: Any) -> Request:
        """Return an approved request with the effect, in another run."""
        return self.decide("approve", self.ask(run_id, effect=effect, **fields))

    def test_an_effect_is_taken_while_an_earlier_request_may_still_have_it(self) -> None:
        for state in _TAKEN:
            effect = f"refund:{state}"
            first = self.in_state(state, self.ask(f"run_1_{state}", effect=effect))
            second = self.second(f"run_2_{state}", effect)
            error = refusal(errors.EffectTakenError, lambda r=second: self.store.start(r.id, "u"))
            assert (error.effect, error.other, error.state, error.request_id) == (effect, first.id, state, second.id)
            assert self.store.get(second.id) == second

    def test_an_effect_is_free_after_an_earlier_request_surely_did_not_have_it(self) -> None:
        for state in _FREE:
            effect = f"refund:{state}"
            self.in_state(state, self.ask(f"run_1_{state}", effect=effect))
            second = self.second(f"run_2_{state}", effect)
            assert self.store.start(second.id, "u").state is State.RUNNING, state

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

    def test_of_ten_starts_of_one_effect_one_runs(self) -> None:
        asked = [self.ask(f"run_{n}", effect=_EFFECT) for n in range(10)]
        approved = [self.decide("approve", request) for request in asked]
        told = outcomes_of([lambda r=request: self.store.start(r.id, r.id) for request in approved])
        assert sum(isinstance(one, Request) for one in told) == 1
        assert sum(isinstance(one, errors.EffectTakenError) for one in told) == 9

    def test_requests_with_an_effect_are_found_in_the_order_of_asking(self) -> None:
        first = self.in_state(State.DONE, self.ask("run_1", effect=_EFFECT))
        second = self.ask("run_2", effect=_EFFECT)
        self.ask("run_3", effect="refund:B-1")
        assert list(self.store.by_effect(_EFFECT)) == [first, second]
        assert list(self.store.by_effect("refund:none")) == []

    # -- again -------------------------------------------------------------------------------------------------

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
