"""The part of `sayso.testing.contract` about records, keys, effects, results, evidence and runs.

A key is permanently bound to one request in its run. An effect starts once across all runs, until it is known not to
have happened. A purge never removes rows of the journal. Each test of a run checks one fact about the verbs of
`sayso.stores.base.ProgramStore`, or about a run that is saved together with a request.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

from sayso import audit, errors
from sayso.model import canonical
from sayso.model.ids import new_request_id, new_run_id
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Call, Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate, Step
from sayso.stores import workers
from sayso.stores.base import Filter, Store
from sayso.stores.filter import RunFilter
from sayso.stores.records import Note, Record
from sayso.stores.workers import Lease
from sayso.testing.doubles import sample_call
from sayso.testing.scene import ADA, Scene, outcomes_of, refusal

_RUN, _KEY, _EFFECT = "run_keys", "call_1", "refund:A-4721"
_FREE = (State.FAILED, State.REJECTED, State.FEEDBACK, State.CANCELLED, State.EXPIRED)
_TAKEN = (State.PENDING, State.APPROVED, State.RUNNING, State.DONE, State.UNKNOWN)
_CANARY = "canary-7215893461"
_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)
_BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"a": None, "b": [1, 1.5, True, "x", {"c": []}]},
    {"ü\u2028": "\ud800 \x00 ' \" \u202e", "n": -(2**70), "e": 1e300},
)


class RecordContract(Scene):
    """Tests of records: keep, read, swap and drop."""

    def keys(self, kind: str = "token", **options: Any) -> list[str]:
        """Return the keys of the records that `records` finds."""
        return [record.key for record in self.store.records(kind, **options)]

    def test_a_record_comes_back_as_it_was_kept(self) -> None:
        other: Store = self.elsewhere(self.store)
        for n, body in enumerate(_BODIES):
            for due in (None, self.clock() + n * _SECOND + _INSTANT):
                record = Record("token", f"t{n} ü/\u2028'", body, due)
                assert self.store.keep(record)
                assert self.store.record("token", record.key) == other.record("token", record.key) == record
        assert len(self.keys()) == len(_BODIES)  # the second record of a key replaced the first
        other.close()

    def test_a_record_survives_the_store_that_kept_it(self) -> None:
        record = Record("token", "t", {"a": 1}, self.clock())
        self.store.keep(record)
        self.store.keep(Record("token", "gone", {}))
        self.store.drop("token", "gone")
        self.store.close()
        assert list(self.store.records("token")) == [record]

    def test_a_record_is_a_copy_of_what_was_kept(self) -> None:
        body: dict[str, Any] = {"roles": ["finance"], "pair": (1, 2)}
        self.store.keep(Record("token", "t", body))
        body["roles"].append("admin")
        found = self.store.record("token", "t")
        assert found is not None
        found.body["roles"].append("root")
        assert self.store.record("token", "t") == Record("token", "t", {"roles": ["finance"], "pair": [1, 2]})

    def test_a_record_that_was_never_kept_is_none(self) -> None:
        self.store.keep(Record("token", "t", {}))
        assert self.store.record("token", "u") is None
        assert self.store.record("link", "t") is None
        assert self.store.record("token", "\ud800") is None
        assert self.keys("link") == []
        assert not self.store.drop("link", "t")
        assert not self.store.drop("token", "\ud800")

    def test_a_record_that_cannot_be_written_is_refused_and_nothing_is_kept(self) -> None:
        for kind, key in (("", "t"), ("token", ""), ("token", "\ud800")):
            refusal(ValueError, lambda kind=kind, key=key: Record(kind, key, {}))
        refusal(ValueError, lambda: Record("token", "t", {}, self.clock().replace(tzinfo=None)))
        refusal(TypeError, lambda: self.store.keep(Record("token", "t", {"a": object()})))
        refusal(ValueError, lambda: self.store.keep(Record("token", "t", {"a": float("nan")})))
        assert self.keys() == []

    def test_of_eight_who_keep_a_new_record_at_once_one_does(self) -> None:
        records = [Record("seen", "k", {"n": n}) for n in range(8)]
        results = outcomes_of([partial(self.store.keep, record, only_new=True) for record in records])
        assert sorted(map(str, results)) == ["False"] * 7 + ["True"]
        assert self.store.record("seen", "k") == records[results.index(True)]

    def test_of_eight_who_swap_a_record_at_once_one_does(self) -> None:
        before = Record("delivery", "k", {"tries": 0}, self.clock())
        self.store.keep(before)
        after = [Record("delivery", "k", {"tries": n + 1}, self.clock()) for n in range(8)]
        swapped = outcomes_of([partial(self.store.swap, before, record) for record in after])
        assert sorted(map(str, swapped)) == ["False"] * 7 + ["True"]
        assert self.store.record("delivery", "k") == after[swapped.index(True)]

    def test_a_record_that_was_changed_meanwhile_is_not_swapped(self) -> None:
        mine = Record("delivery", "k", {"tries": 0, "of": [1]}, self.clock())
        after = Record("delivery", "k", {"tries": 9}, self.clock())
        for now in (
            None,
            Record("delivery", "k", {"tries": 1, "of": [1]}, self.clock()),
            Record("delivery", "k", {"tries": 0, "of": [1]}, self.clock() + _INSTANT),
            Record("delivery", "k", {"tries": 0, "of": [1]}),
        ):
            if now is not None:
                self.store.keep(now)
            assert not self.store.swap(mine, after)
            assert self.store.record("delivery", "k") == now
        self.store.keep(mine)
        assert self.store.swap(mine, after)
        refusal(ValueError, lambda: self.store.swap(after, Record("delivery", "other", {})))
        assert self.store.record("delivery", "k") == after

    def test_what_is_noted_of_a_record_stands_in_the_journal_where_the_record_was_written(self) -> None:
        def note(event: str) -> Note:
            return Note("run_records", event, Identity("local", "ada"), "cli", {"n": event})

        first, second = Record("token", "t", {"n": 1}), Record("token", "t", {"n": 2})
        assert self.store.keep(first, note=note("kept"))
        assert not self.store.keep(second, only_new=True, note=note("kept twice"))
        assert not self.store.swap(second, first, note=note("swapped first"))
        assert self.store.swap(first, second, note=note("swapped"))
        rows = self.store.journal(run_id="run_records")
        assert [(row.seq, row.event, row.by, row.channel, row.request_id, row.detail) for row in rows] == [
            (1, "kept", "local:ada", "cli", "", '{"n":"kept"}'),
            (2, "swapped", "local:ada", "cli", "", '{"n":"swapped"}'),
        ]
        assert self.store.record("token", "t") == second

    def test_of_eight_who_drop_a_record_at_once_one_does(self) -> None:
        self.store.keep(Record("link", "k", {}))
        dropped = outcomes_of([partial(self.store.drop, "link", "k")] * 8)
        assert sorted(map(str, dropped)) == ["False"] * 7 + ["True"]
        assert self.store.record("link", "k") is None

    def test_records_come_in_the_order_of_their_keys(self) -> None:
        keys = ["a", "a/1", "a0", "B", "b", "ü", "\U0001f600", "z"]
        for key in reversed(keys):
            self.store.keep(Record("token", key, {}))
        self.store.keep(Record("link", "c", {}))
        in_order = sorted(keys)
        assert self.keys() == in_order
        assert self.keys(limit=3) == in_order[:3]
        assert self.keys(after=in_order[2], limit=3) == in_order[3:6]
        assert self.keys(after="zzzz") == in_order[-2:]

    def test_records_that_are_due_come_with_the_longest_due_first(self) -> None:
        now = self.clock()
        for key, due in (("a", now), ("b", now - _SECOND), ("c", now + _INSTANT), ("d", None), ("e", now - _SECOND)):
            self.store.keep(Record("seen", key, {}, due))
        self.store.keep(Record("link", "f", {}, now - _SECOND))
        assert self.keys("seen", due_by=now) == ["b", "e", "a"]
        assert self.keys("seen", due_by=now, limit=2) == ["b", "e"]
        assert self.keys("seen", due_by=now + _INSTANT) == ["b", "e", "a", "c"]
        refusal(ValueError, lambda: self.store.records("seen", due_by=now, after="a"))


class KeyContract(Scene):
    """Tests of keys, effects and results."""

    def again(self, key: str = _KEY, amount: int = 10, run_id: str = _RUN) -> Request:
        """Ask the keyed call again, like a program that has lost its state."""
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

    def test_two_keys_are_two_requests_of_one_call(self) -> None:
        assert self.again("call_1").id != self.again("call_2").id
        assert self.again("call_1").fingerprint != self.again("call_2").fingerprint

    def test_one_key_in_two_runs_is_two_requests(self) -> None:
        assert self.again(run_id="run_a").id != self.again(run_id="run_b").id
        assert self.store.find_key("run_c", _KEY) is None

    def test_a_key_is_refused_for_other_arguments_and_for_another_kind(self) -> None:
        first = self.again()
        before = self.everything()
        error = refusal(errors.KeyReusedError, lambda: self.again(amount=11))
        assert (error.key, error.run_id, error.request_id) == (_KEY, _RUN, first.id)
        assert first.id in str(error)
        assert self.everything() == before

    def test_of_ten_threads_with_one_key_all_get_one_request(self) -> None:
        found = outcomes_of([self.again] * 10)
        assert {one.id for one in found if isinstance(one, Request)} == {self.again().id}
        assert all(isinstance(one, Request) for one in found), found
        assert self.store.count(Filter()) == 1

    def test_of_two_programs_with_one_key_and_other_arguments_one_is_refused(self) -> None:
        results = outcomes_of([lambda amount=amount: self.again(amount=amount) for amount in range(1, 9)])
        assert sum(isinstance(one, Request) for one in results) == 1
        assert sum(isinstance(one, errors.KeyReusedError) for one in results) == 7

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

    def test_of_ten_starts_of_one_effect_one_runs(self) -> None:
        asked = [self.ask(f"run_{n}", effect=_EFFECT) for n in range(10)]
        approved = [self.decide("approve", request) for request in asked]
        results = outcomes_of([lambda r=request: self.store.start(r.id, r.id) for request in approved])
        assert sum(isinstance(one, Request) for one in results) == 1
        assert sum(isinstance(one, errors.EffectTakenError) for one in results) == 9

    def test_requests_with_an_effect_are_found_in_the_order_of_asking(self) -> None:
        first = self.in_state(State.DONE, self.ask("run_1", effect=_EFFECT))
        second = self.ask("run_2", effect=_EFFECT)
        self.ask("run_3", effect="refund:B-1")
        assert list(self.store.by_effect(_EFFECT)) == [first, second]
        assert list(self.store.by_effect("refund:none")) == []


class EvidenceContract(Scene):
    """Tests of evidence: heads, purges and scrubs."""

    def _done(self) -> Request:
        """Run a call in which every text is a canary."""
        arguments = {"to": _CANARY, "password": _CANARY}
        request = self.store.ask(sample_call("run_a", arguments, prompt=_CANARY, context={"of": _CANARY}))
        self.decide("approve", request)
        self.store.start(request.id, "t")
        return self.store.finish(request.id, "t", Outcome("done", canonical.encode({"result": _CANARY}).text))

    def test_heads_are_the_newest_rows_of_all_chains(self) -> None:
        for run_id in ("run_b", "run_a", "run_b"):
            self.ask(run_id)
        self.decide("reject", self.ask("run_c"))
        newest = {row.run_id: (row.run_id, row.seq, row.link) for row in self.store.journal()}
        assert list(self.store.heads()) == [newest[run_id] for run_id in ("run_a", "run_b", "run_c")]

    def test_a_purge_leaves_who_decided_what_and_nothing_of_what_it_was_about(self) -> None:
        before = self._done()
        self.clock.tick(days=1)
        self.store.purge(before.id, ADA, before=self.clock(), channel="test")
        after = self.elsewhere(self.store).get(before.id)
        assert after == self.store.get(before.id)
        assert after.purged_at == self.clock()
        assert isinstance(after.subject, Call)
        texts = (after.subject.form, after.subject.masked, after.prompt, after.context, after.decision, after.execution)
        assert _CANARY not in "".join(map(repr, texts))
        assert after.execution is not None
        assert after.execution.result is None
        assert (after.state, after.fingerprint) == (before.state, before.fingerprint)
        assert self.store.journal(run_id="run_a")[-1].event == "purged"
        assert audit.verify(self.store).broken == ()

    def test_a_purge_removes_what_a_keyed_call_returned_and_its_key_stays_used(self) -> None:
        words = {"title": _CANARY, "summary": _CANARY}
        request = self.store.ask(sample_call("run_a", None, key="call_1", effect="refund:A-4721", **words))
        self.decide("approve", request)
        self.store.start(request.id, "t")
        form = canonical.encode({"result": _CANARY}).text
        self.store.finish(request.id, "t", Outcome("done", None, None, form))
        assert self.store.result(request.id) == form
        self.clock.tick(days=1)
        after = self.store.purge(request.id, ADA, before=self.clock(), channel="test")
        assert _CANARY not in repr((after.title, after.summary, after.execution))
        assert self.store.record("result", request.id) is None
        assert "purged" in str(refusal(errors.ValueNotKeptError, lambda: self.store.result(request.id)))
        assert self.store.find_key("run_a", "call_1") == after
        assert self.store.ask(replace(request, id=new_request_id())) == after
        assert list(self.store.by_effect("refund:A-4721")) == [after]
        assert audit.verify(self.store).broken == ()

    def test_what_a_hook_found_is_the_result_of_a_keyed_call(self) -> None:
        request = self.store.ask(sample_call("run_a", key="call_1"))
        self.decide("approve", request)
        self.store.start(request.id, "t")
        self.store.finish(request.id, "t", Outcome("unknown"))
        form = canonical.encode({"result": "A-17"}).text
        resolve = partial(self.store.resolve, roles=None, happened=True, comment=None, channel="verify")
        resolved = resolve(request.id, request.requester, outcome=Outcome("done", form, None, form))
        assert (resolved.state, self.store.result(request.id)) == (State.DONE, form)
        assert self.elsewhere(self.store).get(request.id) == resolved

    def test_what_lives_or_ended_later_is_not_purged(self) -> None:
        for state in State:
            request = self.in_state(state)
            end = self.clock() + timedelta(days=9) if state not in FINAL else self.clock() - timedelta(days=9)
            refusal(
                errors.PurgeRefusedError, lambda r=request, b=end: self.store.purge(r.id, ADA, before=b, channel="test")
            )
            assert self.store.get(request.id) == request

    def test_the_steps_of_a_run_that_ended_are_removed_and_no_others(self) -> None:
        for state in (RunState.ENDED, RunState.PAUSED):
            run = RunRecord(f"run_{state}", "agent", "agent", state, None, self.clock(), self.clock())
            self.store.save_run(RunUpdate(run, [Step("", '{"of":1}', "rq_none")]))
        self.clock.tick(days=1)
        self.store.purge_run("run_ended", ADA, before=self.clock(), channel="test")
        refusal(
            errors.PurgeRefusedError,
            lambda: self.store.purge_run("run_paused", ADA, before=self.clock(), channel="test"),
        )
        assert [len(self.store.get_run(run_id).steps) for run_id in ("run_ended", "run_paused")] == [0, 1]
        assert self.store.get_run("run_ended").run.state is RunState.ENDED

    def test_a_scrub_changes_nothing_that_is_seen(self) -> None:
        self._done()
        for state in State:
            self.in_state(state)
        before = self.everything()
        assert self.store.scrub()
        assert self.everything() == before
        assert audit.verify(self.elsewhere(self.store)).broken == ()


_PATIENCE = 30  # seconds in which a change must be noticed


class RunContract(Scene):
    """Tests of runs: save, take, release and find."""

    def run(self, name: str = "agent", run_id: str | None = None, lease: Lease | None = None) -> RunRecord:
        """Return a new run that a lease holds; it is not in any store yet."""
        self.lease = lease or Lease()  # a lease ends with its object
        now = self.clock()
        return RunRecord(run_id or new_run_id(), name, "agent", RunState.RUNNING, self.lease.holder, now, now)

    def paused(self, *steps: Step, name: str = "agent") -> RunRecord:
        """Save a run that was released as paused."""
        run = self.run(name)
        self.store.leave_run(RunUpdate(run, steps), RunState.PAUSED)
        self.clock.tick(seconds=1)
        return run

    def steps(self, run: RunRecord, store: Store | None = None) -> Sequence[Step]:
        """Return the stored steps of a run."""
        return (store or self.store).get_run(run.id).steps

    def ready(self, *names: str) -> list[str]:
        """Return the ids of the runs that are ready to continue."""
        return list(self.store.ready_runs(names or ("agent",)))

    # -- save --------------------------------------------------------------------------------------------------

    def test_a_run_comes_back_with_its_steps_in_order(self) -> None:
        run = self.run("ü\u2028", "order 4721/ü")
        first = [Step("/", '{"t0":1}'), Step("/a", '{"waits":"rq_1"}', "rq_1")]
        second = [Step("/a", '{"value":"\u00fc\\ud800"}'), Step("/b" * 200, "{}")]
        self.store.save_run(RunUpdate(run, first))
        self.store.save_run(RunUpdate(run, second))
        other = self.elsewhere(self.store)
        assert self.store.get_run(run.id) == other.get_run(run.id) == RunSnapshot(run, (*first, *second))
        self.store.save_run(RunUpdate(run, [Step("/c", "{}")]))
        assert [step.place for step in self.steps(run, other)][-1] == "/c"
        other.close()

    def test_a_run_without_steps_comes_back(self) -> None:
        run = self.run()
        self.store.save_run(RunUpdate(run, []))
        assert self.store.get_run(run.id) == RunSnapshot(run, ())

    def test_a_run_that_was_never_saved_is_not_found(self) -> None:
        self.store.save_run(RunUpdate(self.run(), []))
        assert refusal(errors.RunNotFoundError, lambda: self.store.get_run("run_none")).run_id == "run_none"
        refusal(errors.RunNotFoundError, lambda: self.store.take_run("run_none", Lease().holder))

    def test_steps_of_many_threads_are_all_kept(self) -> None:
        run = self.run()
        added = [[Step(f"/{n}/{m}", f'{{"n":{n}}}') for m in range(5)] for n in range(8)]
        outcomes_of([partial(self.store.save_run, RunUpdate(run, steps)) for steps in added])
        stored = self.steps(run)
        assert sorted(stored) == sorted(step for steps in added for step in steps)
        assert all([step for step in stored if step in steps] == steps for steps in added)

    # -- leases ------------------------------------------------------------------------------------------------

    def test_a_run_that_was_handed_back_is_taken_with_its_steps(self) -> None:
        run = self.paused(Step("/", "{}"))
        mine = Lease()
        before = self.store.take_run(run.id, mine.holder)
        assert (before.run.state, before.run.holder) == (RunState.PAUSED, None)
        assert list(before.steps) == [Step("/", "{}")]
        now = self.store.get_run(run.id).run
        assert (now.state, now.holder, now.updated_at) == (RunState.RUNNING, mine.holder, self.clock())
        refusal(errors.RunBusyError, lambda: self.store.save_run(RunUpdate(run, [])))
        self.store.save_run(RunUpdate(now, [Step("/a", "{}")]))
        assert len(self.steps(run)) == 2

    def test_of_eight_who_take_a_run_at_once_one_has_it(self) -> None:
        run = self.paused()
        leases = [Lease() for _ in range(8)]
        results = outcomes_of([partial(self.store.take_run, run.id, lease.holder) for lease in leases])
        assert sorted(type(one).__name__ for one in results) == ["RunBusyError"] * 7 + ["RunSnapshot"]
        winner = next(lease for lease, one in zip(leases, results, strict=True) if isinstance(one, RunSnapshot))
        assert self.store.get_run(run.id).run.holder == winner.holder

    # -- together with a request -------------------------------------------------------------------------------

    def test_a_request_and_its_run_are_recorded_together_or_not_at_all(self) -> None:
        run, request = self.run(), sample_call()
        step = Step("/", "{}", request.id)
        assert self.store.ask(request, RunUpdate(run, [step])) == self.recorded(request)
        assert self.store.get_run(run.id) == RunSnapshot(run, (step,))
        before, other = self.everything(), self.run(run_id=run.id)
        refusal(errors.RunBusyError, lambda: self.store.ask(sample_call(), RunUpdate(other, [step])))
        assert (self.everything(), len(self.steps(run))) == (before, 1)

    def test_a_run_is_handed_back_with_the_request_for_which_it_waits(self) -> None:
        run, request = self.run(), sample_call()
        saved = RunUpdate(run, [Step("/", "{}", request.id)], RunState.PAUSED)
        self.store.ask(request, saved)
        stored = self.store.get_run(run.id)
        assert (stored.run.state, stored.run.holder, stored.steps) == (RunState.PAUSED, None, tuple(saved.steps))
        refusal(errors.RunBusyError, lambda: self.store.save_run(RunUpdate(run, [])))
        assert self.store.ask(request, saved) == self.recorded(request)  # sent again because the response was lost
        assert self.store.get_run(run.id) == stored

    def test_a_run_is_handed_back_with_the_end_of_its_call(self) -> None:
        run, request = self.run(), self.started("mine")
        self.store.finish(request.id, "mine", Outcome("done"), RunUpdate(run, [Step("/", "{}")], RunState.ENDED))
        stored = self.store.get_run(run.id)
        assert (stored.run.state, stored.run.holder, len(stored.steps)) == (RunState.ENDED, None, 1)

    def test_the_end_of_a_call_and_its_run_are_recorded_together(self) -> None:
        run, request = self.run(), self.started("mine")
        saved = RunUpdate(run, [Step("/", '{"value":1}')])
        refusal(errors.StartRefusedError, lambda: self.store.finish(request.id, "x", Outcome("done"), saved))
        refusal(errors.RunNotFoundError, lambda: self.store.get_run(run.id))
        assert self.store.finish(request.id, "mine", Outcome("done"), saved).state is State.DONE
        assert self.steps(run) == (Step("/", '{"value":1}'),)

    # -- find --------------------------------------------------------------------------------------------------

    def test_a_paused_run_can_go_on_when_what_it_waits_for_is_decided(self) -> None:
        waiting = {State.PENDING, State.RUNNING, State.UNKNOWN}
        for state in State:
            request = self.in_state(state)
            run = self.paused(Step("/", "{}"), Step("/a", "{}", request.id))
            assert self.ready() == ([] if state in waiting else [run.id]), state
            self.store.leave_run(RunUpdate(self._taken(run), []), RunState.ENDED)
        request = self.ask()
        run = self.paused(Step("/a", "{}", request.id), Step("/b", "{}", self.ask().id))
        assert self.ready() == []
        self.decide("feedback", request)
        assert self.ready() == [run.id]

    def test_what_a_run_waited_for_before_does_not_make_it_ready(self) -> None:
        done, pending = self.in_state(State.DONE), self.ask()
        run = self.paused(Step("/a", "{}", done.id), Step("/a", '{"value":1}'), Step("/b", "{}", pending.id))
        assert self.ready() == []
        taken = self._taken(run)
        again = self.in_state(State.REJECTED)
        self.store.leave_run(RunUpdate(taken, [Step("/a", "{}", again.id)]), RunState.PAUSED)
        assert self.ready() == [run.id]
        self.store.leave_run(RunUpdate(self._taken(run), [Step("/a", "{}", pending.id)]), RunState.PAUSED)
        assert self.ready() == []

    def test_a_run_that_was_broken_off_can_go_on_and_one_in_hand_or_ended_cannot(self) -> None:
        decided = Step("/", "{}", self.approved().id)
        broken, ended, held, gone = (self.run() for _ in range(4))
        self.store.leave_run(RunUpdate(broken, []), RunState.BROKEN)
        self.store.leave_run(RunUpdate(ended, [decided]), RunState.ENDED)
        lease = Lease()
        self.store.save_run(RunUpdate(self.run(run_id=held.id, lease=lease), [decided]))
        self.store.save_run(RunUpdate(gone, []))  # its lease has ended with its object
        assert sorted(self.ready()) == sorted([broken.id, gone.id])
        with patch.object(workers, "current", return_value="host/boot/space/1/1"):
            dead = self.run()
            self.store.save_run(RunUpdate(dead, []))
        assert dead.id not in self.ready()
        with patch.object(workers, "is_gone", return_value=True):
            assert dead.id in self.ready()
        lease.release()

    def test_ready_runs_are_of_these_names_and_longest_untouched_first(self) -> None:
        decided = Step("/", "{}", self.approved().id)
        a, b, c, _ = (self.paused(decided, name=name).id for name in ("one", "two", "one", "three"))
        assert self.ready("one", "two") == [a, b, c]
        self.store.leave_run(RunUpdate(self._taken(self.store.get_run(a).run), []), RunState.PAUSED)
        assert self.ready("one", "two") == [b, c, a]
        assert list(self.store.ready_runs({"one", "two"}, 2)) == [b, c]
        assert self.ready("four") == list(self.store.ready_runs([])) == []

    def test_runs_are_listed_newest_first_and_the_cursor_stays_good(self) -> None:
        ids = [self.paused(name="a" if n % 2 else "b").id for n in range(7)][::-1]
        page, cursor = self.store.runs(RunFilter(), limit=3)
        self.store.leave_run(RunUpdate(self._taken(page[0]), []), RunState.ENDED)
        self.paused()
        rest, end = self.store.runs(RunFilter(), cursor=cursor, limit=10)
        assert [run.id for run in (*page, *rest)] == ids
        assert end is None
        ended, _ = self.store.runs(RunFilter(frozenset({RunState.ENDED})))
        assert [run.id for run in ended] == ids[:1]
        named, _ = self.store.runs(RunFilter(frozenset({RunState.PAUSED, RunState.BROKEN}), "a"))
        assert [run.id for run in named] == ids[1::2]
        some, _ = self.store.runs(RunFilter(ids=frozenset({ids[0], ids[3], "run_none"})))
        assert [run.id for run in some] == [ids[0], ids[3]]
        refusal(ValueError, lambda: self.store.runs(RunFilter(), cursor="x"))

    def _taken(self, run: RunRecord) -> RunRecord:
        self.lease = Lease()
        self.store.take_run(run.id, self.lease.holder)
        return self.store.get_run(run.id).run

    # -- watchers of all changes are woken ---------------------------------------------------------------------

    def test_any_change_wakes_who_watches_all(self) -> None:
        request, run = self.ask(), self.run()
        other = self.elsewhere(self.store)
        changes = [
            lambda: self.store.ask(sample_call()),
            lambda: self.decide("approve", request),
            lambda: self.store.save_run(RunUpdate(run, [])),
            lambda: other.save_run(RunUpdate(run, [Step("/", "{}")])),
            lambda: other.ask(sample_call()),
        ]
        for change in changes:
            woken = threading.Event()
            unwatch = self.store.watch_all(woken.set)
            change()
            assert woken.wait(_PATIENCE)
            unwatch()
        other.close()

    def test_who_no_longer_watches_all_is_not_woken(self) -> None:
        calls = list[str]()
        self.store.watch_all(lambda: calls.append("woken"))()
        calls.clear()  # a watcher may wake spuriously, even at this moment
        for _ in range(3):
            self.ask()
            self.store.save_run(RunUpdate(self.run(), []))
        assert len(calls) <= 1
