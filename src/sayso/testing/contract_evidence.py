"""What a store's tests say about evidence: the newest row of every chain, and what a purge leaves.

They are part of `sayso.testing.StoreContract`. The invariant: whatever was purged, the journal keeps its rows.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sayso import audit, errors
from sayso.model import canonical
from sayso.model.ids import new_request_id
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Call, Request, State
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.testing.sample import sample_call
from sayso.testing.scene import ADA, Scene, refusal

_CANARY = "canary-7215893461"


class EvidenceContract(Scene):
    """The part of `sayso.testing.StoreContract` that is about evidence."""

    def _done(self) -> Request:
        """Let a call be run whose every text is a canary."""
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
        kept = canonical.encode({"result": _CANARY}).text
        self.store.finish(request.id, "t", Outcome("done", None, None, kept))
        assert self.store.result(request.id) == kept
        self.clock.tick(days=1)
        after = self.store.purge(request.id, ADA, before=self.clock(), channel="test")
        assert _CANARY not in repr((after.title, after.summary, after.execution))
        assert self.store.record("result", request.id) is None
        assert "purged" in str(refusal(errors.ValueNotKeptError, lambda: self.store.result(request.id)))
        assert self.store.find_key("run_a", "call_1") == after
        assert self.store.ask(replace(request, id=new_request_id())) == after
        assert list(self.store.by_effect("refund:A-4721")) == [after]
        assert audit.verify(self.store).broken == ()

    def test_what_lives_or_ended_later_is_not_purged(self) -> None:
        for state in State:
            request = self.in_state(state)
            end = self.clock() + timedelta(days=9) if state not in FINAL else self.clock() - timedelta(days=9)
            refusal(
                errors.PurgeRefusedError,
                lambda r=request, b=end: self.store.purge(r.id, ADA, before=b, channel="test"),
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
