"""A plain model, the store in memory and the stores in a file go through the same life, and never differ.

Hypothesis draws the steps. After each one they are compared, and the promises are looked at: one start for each
approval, distinct people, what was approved is what runs, final is final, nothing expires into an approval, who asked
decides nothing, and every change has its row in a whole chain.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sayso import audit, errors
from sayso import clock as sayso_clock
from sayso.model.ids import fingerprint
from sayso.model.journal import Entry
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Decision, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum
from sayso.stores import workers
from sayso.stores.base import Filter, Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import Clock, sample_call, sample_edit, sample_question
from tests.stores.reference import Model, Wait
from tests.support.rounds import rounds

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PEOPLE = st.sampled_from(["ada", "ADA", "bob", "carol", "dave", "agent"])
ROLES = st.sampled_from([frozenset({"finance"}), frozenset[str]()])
WHICH = st.integers(0, 5)
AMOUNT = st.integers(1, 3)


def identity(name: str) -> Identity:
    return Identity(PROGRAM if name == "agent" else LOCAL, name)


class Lives(RuleBasedStateMachine):
    """The steps."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "requests.db"
        self.clock, self.model = Clock(EPOCH), Model()
        self.memory, self.file = MemoryStore(), SqliteStore(self.path)
        self.lines = JsonlStore(self.path.with_name("requests.jsonl"))
        self.asked: list[Request] = []
        self.ended: dict[str, Request] = {}
        self.tokens = 0
        self.worker, self.gone = "w0", set[str]()
        self.patches: list[Any] = [
            sayso_clock.use(self.clock),
            patch.object(workers, "current", lambda: self.worker),
            patch.object(workers, "is_gone", lambda name: name in self.gone),
        ]
        for each in self.patches:
            each.__enter__()

    def teardown(self) -> None:
        self.file.close()
        self.lines.close()
        for each in reversed(self.patches):
            each.__exit__(None, None, None)
        self.folder.cleanup()

    # -- all of them -------------------------------------------------------------------------------------------------

    def chosen(self, which: int, *likely: str) -> tuple[Wait, str]:
        """Return one of the requests: mostly one in a likely state, by default one that can still change."""
        places = range(len(self.asked))
        states = likely or ("pending", "approved", "running", "unknown")
        fitting = [place for place in places if self.model.waits[place].state in states]
        among = list(places) if which == 0 or not fitting else fitting
        place = among[-1 - which % len(among)]
        return self.model.waits[place], self.asked[place].id

    def step(self, verb: Callable[[Store], object], expected: str | None) -> None:
        """Do the same to all stores: all do what the model did, or all refuse with the same words."""
        told: list[tuple[object, str]] = []
        for store in (self.memory, self.file, self.lines):
            try:
                result = verb(store)
            except (errors.DecisionRefusedError, errors.StartRefusedError) as refusal:
                told.append((None, f"{type(refusal).__name__}: {refusal}"))
            else:
                told.append((str(result.state) if isinstance(result, Request) else result, ""))
        assert told[0] == told[1] == told[2]
        assert told[0][0] == expected, told[0][1]

    # -- the program -----------------------------------------------------------------------------------------------

    @initialize(needed=st.integers(1, 2), retries=st.integers(0, 1), idempotent=st.booleans())
    def begin(self, needed: int, retries: int, idempotent: bool) -> None:
        for run in "abc":
            self.ask(run, 1, needed, None, None, retries, idempotent, 100)

    @rule(
        run=st.sampled_from("abcd"), amount=AMOUNT, needed=st.integers(1, 3), role=st.sampled_from([None, "finance"]),
        behalf=st.sampled_from([None, "dave"]), retries=st.integers(0, 1), idempotent=st.booleans(),
        span=st.sampled_from([30, 100]),
    )  # fmt: skip
    def ask(
        self, run: str, amount: int, needed: int, role: str | None, behalf: str | None, retries: int, idempotent: bool,
        span: int,
    ) -> None:  # fmt: skip
        request = sample_call(
            f"run_{run}", {"amount": amount}, quorum=Quorum(needed, frozenset({role} if role else ())),
            on_behalf_of=None if behalf is None else identity(behalf), retries=retries, idempotent=idempotent,
            requester=identity("agent"), expires_at=self.clock() + timedelta(seconds=span),
            approval_window=timedelta(seconds=100),
        )  # fmt: skip
        wait = Wait(
            (run, amount), amount, self.model.now + span, needed=needed, role=role, retries=retries,
            idempotent=idempotent, barred=frozenset({"agent", behalf or "agent"}),
        )  # fmt: skip
        self.asks(request, wait)

    @rule(run=st.sampled_from("ab"), text=st.sampled_from(["who?", "when?"]))
    def ask_question(self, run: str, text: str) -> None:
        end = self.clock() + timedelta(seconds=60)
        request = sample_question(f"run_{run}", text, requester=identity("agent"), expires_at=end)
        barred = frozenset({"agent"})
        self.asks(request, Wait((run, text), 0, self.model.now + 60, kind="question", barred=barred))

    def asks(self, request: Request, wait: Wait) -> None:
        stands = self.model.ask(wait)
        if stands is wait:
            self.asked.append(request)
        expected = self.asked[next(n for n, known in enumerate(self.model.waits) if known is stands)].id
        assert {store.ask(request).id for store in (self.memory, self.file, self.lines)} == {expected}

    @rule(which=WHICH)
    def start(self, which: int) -> None:
        self.start_one(*self.chosen(which, "approved", "unknown"))

    def start_one(self, wait: Wait, request_id: str) -> None:
        self.tokens += 1
        self.worker = f"w{self.tokens}"
        token = f"t{self.tokens}"
        self.step(lambda store: store.start(request_id, token), self.model.start(wait, token))

    @rule(which=WHICH)
    def approve_and_start(self, which: int) -> None:
        """Two steps in one, so that lives with an end are not rare."""
        wait, request_id = self.chosen(which, "pending")
        for by in ("ada", "bob", "carol"):
            self.say((wait, request_id), "approve", by, frozenset({"finance"}))
        self.start_one(wait, request_id)

    @rule(
        which=WHICH,
        outcome=st.sampled_from(["done", "failed", "unknown", "suspended"]),
        old=st.sampled_from([-1, -1, -1, 0, None]),
    )
    def finish(self, which: int, outcome: Any, old: int | None) -> None:
        wait, request_id = self.chosen(which, "running", "unknown")
        token = wait.tokens[old] if wait.tokens and old is not None else "made up"
        expected = self.model.finish(wait, token, outcome)
        self.step(lambda store: store.finish(request_id, token, Outcome(outcome, error="e")), expected)

    @rule(which=WHICH)
    def crash(self, which: int) -> None:
        """The process that runs it dies; nobody has noticed yet."""
        wait, request_id = self.chosen(which, "running")
        execution = self.memory.get(request_id).execution
        if execution is not None and wait.state == "running":
            self.gone.add(execution.worker)
            wait.worker_is_gone = True

    @rule(which=WHICH)
    def withdraw(self, which: int) -> None:
        wait, request_id = self.chosen(which)
        self.step(lambda store: store.withdraw(request_id, identity("agent")), self.model.withdraw(wait))

    # -- people ----------------------------------------------------------------------------------------------------

    def say(
        self, about: tuple[Wait, str], verb: Any, by: str, roles: frozenset[str], amount: int | None = None, *,
        view: str = "now",
    ) -> None:  # fmt: skip
        wait, request_id = about
        request = self.memory.get(request_id)
        edited = sample_edit(request, amount=amount) if amount is not None and request.kind == "call" else None
        if edited is not None and edited.digest == request.effective.digest:
            edited = amount = None
        seen = {"old": "0" * 64, "now": request.current_fingerprint, "untold": None}[view]
        decided = request.current_fingerprint if edited is None else fingerprint(request.run_id, edited.digest)
        answer = '{"answer":"x"}' if verb == "answer" else None
        decision = Decision(verb, identity(by), EPOCH, "test", "said", decided, edited is not None, answer)
        expected = self.model.say(
            wait, verb, by, set(roles), amount, {"old": -1, "now": wait.amount, "untold": None}[view]
        )
        self.step(lambda store: store.decide(request_id, decision, roles=roles, seen=seen, edited=edited), expected)

    @rule(which=WHICH, by=PEOPLE, roles=ROLES, view=st.sampled_from(["now", "untold"]))
    def approve(self, which: int, by: str, roles: frozenset[str], view: str) -> None:
        self.say(self.chosen(which, "pending"), "approve", by, roles, view=view)

    @rule(which=WHICH, by=PEOPLE, roles=ROLES, amount=AMOUNT)
    def edit(self, which: int, by: str, roles: frozenset[str], amount: int) -> None:
        self.say(self.chosen(which, "pending"), "approve", by, roles, amount)

    @rule(which=WHICH, by=PEOPLE, roles=ROLES, verb=st.sampled_from(["reject", "feedback", "cancel", "answer"]))
    def decide(self, which: int, by: str, roles: frozenset[str], verb: str) -> None:
        self.say(self.chosen(which), verb, by, roles)

    @rule(which=WHICH, verb=st.sampled_from(["approve", "reject", "cancel", "answer"]))
    def decide_on_an_old_view(self, which: int, verb: str) -> None:
        self.say(self.chosen(which), verb, "ada", frozenset({"finance"}), view="old")

    @rule(which=WHICH, by=PEOPLE, roles=ROLES)
    def claim(self, which: int, by: str, roles: frozenset[str]) -> None:
        wait, request_id = self.chosen(which)
        expected = self.model.claim(wait, by, set(roles))
        self.step(lambda store: store.claim(request_id, identity(by), roles=roles, channel="test"), expected)

    @rule(which=WHICH, by=PEOPLE, roles=ROLES, force=st.booleans())
    def release(self, which: int, by: str, roles: frozenset[str], force: bool) -> None:
        wait, request_id = self.chosen(which)
        expected = self.model.release(wait, by, set(roles), force=force)
        who = identity(by)
        self.step(lambda store: store.release(request_id, who, roles=roles, force=force, channel="test"), expected)

    @rule(which=WHICH, by=PEOPLE, roles=ROLES, span=st.sampled_from([10, 200]))
    def extend(self, which: int, by: str, roles: frozenset[str], span: int) -> None:
        wait, request_id = self.chosen(which)
        expected = self.model.extend(wait, by, set(roles), span)
        who, delta = identity(by), timedelta(seconds=span)
        self.step(lambda store: store.extend(request_id, who, roles=roles, span=delta, channel="test"), expected)

    @rule(which=WHICH, by=PEOPLE, roles=ROLES, happened=st.booleans(), force=st.booleans())
    def resolve(self, which: int, by: str, roles: frozenset[str], happened: bool, force: bool) -> None:
        wait, request_id = self.chosen(which, "unknown", "running")
        expected = self.model.resolve(wait, by, set(roles), happened=happened, force=force)
        who = identity(by)

        def resolve(store: Store) -> Request:
            execution = store.get(request_id).execution
            return store.resolve(
                request_id, who, roles=roles, happened=happened, comment=None, channel="test", force=force,
                start=1 if execution is None else execution.starts,
            )  # fmt: skip

        self.step(resolve, expected)

    # -- time, and the machine -------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 9, 30, 70]))
    def tick(self, seconds: int) -> None:
        self.clock.tick(seconds=seconds)
        self.model.now += seconds

    @rule(which=WHICH)
    def expire(self, which: int) -> None:
        """Somebody looks at one request, and writes down what is due."""
        wait, request_id = self.chosen(which)
        self.model.settle(wait)
        self.step(lambda store: store.settle(request_id), wait.state)

    @rule()
    def sweep(self) -> None:
        before = [wait.state for wait in self.model.waits]
        for wait in self.model.waits:
            self.model.settle(wait)
        changed = sum(was != wait.state for was, wait in zip(before, self.model.waits, strict=True))
        assert self.memory.sweep() == self.file.sweep() == self.lines.sweep() == changed

    @rule()
    def restore(self) -> None:
        """The program ends, and a new one opens the file."""
        self.file.close()
        self.file = SqliteStore(self.path)
        self.lines.close()
        self.lines = JsonlStore(self.path.with_name("requests.jsonl"))

    # -- the promises ----------------------------------------------------------------------------------------------

    @invariant()
    def all_agree(self) -> None:
        requests = self.memory.list(Filter(), limit=1000).requests
        for store in (self.file, self.lines):
            assert list(requests) == list(store.list(Filter(), limit=1000).requests)
        assert [request.id for request in requests] == [request.id for request in self.asked]
        for request, wait in zip(requests, self.model.waits, strict=True):
            assert (request.state, request.holds) == (wait.state, wait.holds)
            claimer = None if request.claimed_by is None else request.claimed_by.subject.lower()
            assert claimer == wait.claimer
            if request.kind == "call":
                assert request.effective.arguments == {"amount": wait.amount}
            assert (request.execution.attempt if request.execution else 0) == wait.attempt
            assert (self.memory.find(request.fingerprint) == request) is wait.holds

    @invariant()
    def promises_hold(self) -> None:
        for request, wait in zip(self.memory.list(Filter(), limit=1000).requests, self.model.waits, strict=True):
            people = {vote.by.folded for vote in request.votes}
            assert len(people) == len(request.votes)
            assert not people & {f"local:{name}" for name in wait.barred} | people & {"program:agent"}
            if wait.grants:
                decision = request.decision
                assert decision is not None
                assert decision.verb == "approve" or request.state is State.CANCELLED
                assert decision.fingerprint == request.current_fingerprint
                assert wait.idempotent or wait.grants <= 1 + wait.retries
            if request.state is State.APPROVED:
                assert len(people) >= wait.needed
            if request.state in FINAL:
                first = self.ended.setdefault(request.id, request)
                assert replace(first, holds=False) == replace(request, holds=False)

    @invariant()
    def every_change_has_its_row(self) -> None:
        rows = self.memory.journal(limit=10_000)
        assert list(self.file.journal(limit=10_000)) == list(self.lines.journal(limit=10_000))
        assert list(map(_said, rows)) == list(map(_said, self.file.journal(limit=10_000)))
        counts = [sum(row.request_id == request.id for row in rows) for request in self.asked]
        assert counts == [wait.rows for wait in self.model.waits]
        found = audit.verify(self.file)
        assert audit.verify(self.lines) == found
        assert (found.rows, found.broken) == (len(rows), ())


def _said(entry: Entry) -> tuple[Any, ...]:
    """Return what a row says; how its request stands is said on disk alone, and so the links differ."""
    detail = json.loads(entry.detail)
    detail.pop("row_digest", None)
    return *entry[:7], detail


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=rounds(80, 1_000),
    stateful_step_count=rounds(40, 100),
    deadline=None,
)
