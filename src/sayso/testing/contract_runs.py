"""The part of `sayso.testing.contract` about runs.

Every test checks one fact about the verbs of `sayso.stores.base.ProgramStore`, or about a run that is saved together
with a request. Nothing here depends on how a store represents runs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from unittest.mock import patch

from sayso import errors
from sayso.model.ids import new_run_id
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate, Step
from sayso.stores import worker
from sayso.stores.base import Store
from sayso.stores.filter import RunFilter
from sayso.stores.worker import Lease
from sayso.testing.doubles import sample_call
from sayso.testing.scene import Scene, outcomes_of, refusal

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

    # -- kept --------------------------------------------------------------------------------------------------

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

    # -- in hand -----------------------------------------------------------------------------------------------

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

    # -- found again -------------------------------------------------------------------------------------------

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
        with patch.object(worker, "current", return_value="host/boot/space/1/1"):
            dead = self.run()
            self.store.save_run(RunUpdate(dead, []))
        assert dead.id not in self.ready()
        with patch.object(worker, "is_gone", return_value=True):
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
        refusal(ValueError, lambda: self.store.runs(RunFilter(), cursor="x"))

    def _taken(self, run: RunRecord) -> RunRecord:
        self.lease = Lease()
        self.store.take_run(run.id, self.lease.holder)
        return self.store.get_run(run.id).run

    # -- who waits for any change is woken ---------------------------------------------------------------------

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
