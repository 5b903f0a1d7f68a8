"""Every sequence of steps of a request, or of two with one effect, on the store in memory, against the facts.

Breadth first: what can still differ later is a state, and from each state every step is taken once, so that the first
sequence that finds a fault is a shortest one. `python -m tests.model.lifecycle_search [DEPTH]` goes on to the end.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from json import dumps
from typing import Any, NamedTuple

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.ids import effect_digest
from sayso.model.journal import Trail, detail_of
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Decision, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum, Reviewer
from sayso.stores.memory import MemoryStore, MemoryTables
from sayso.testing import sample_call, sample_edit
from tests.model.lifecycle_facts import HOLD, NOT_SETTLED, SPAN, WINDOW, Facts, Options, Step, Vote

EPOCH, TICK = datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=1)
WHO = {name: Identity(PROGRAM if name == "agent" else LOCAL, name) for name in ("ada", "bob", "agent")}
EFFECT = "refund:1"
_DIGEST = effect_digest(EFFECT)


class World(NamedTuple):
    """The requests as recorded, the truth about each, and the time."""

    now: int
    rows: tuple[Request, ...]
    facts: tuple[Facts, ...]
    trails: tuple[Trail, ...]
    records: dict[str, Any]
    grants: list[Any]  # the rows of the grant's chain


class Found(AssertionError):
    """The record and the facts differ after a sequence of steps."""


def steps_of(options: Options, count: int) -> list[Step]:
    """Return every step that there is."""
    people = ("ada", "bob")[: options.quorum]
    holds = (False, True) if options.undo else (False,)
    agains = (False, True) if options.effect else (False,)
    edits = (False, True) if options.edits else (False,)
    found = [
        Step("approve", by, edit, again, hold)
        for by, edit, again, hold in itertools.product(people, edits, agains, holds)
    ]
    found += [Step(verb, "ada") for verb in ("reject", "feedback", "cancel", "extend", "happened", "did not")]
    found += [Step("undo", by) for by in people] if options.undo else []
    found += [Step("send back")] if options.edits else []
    found += [Step(verb) for verb in ("withdraw", "start", "done", "failed", "unknown", "paused", "gone", "settle")]
    found += [Step("revoke")] if options.grant else []
    found += [Step("happened, forced", "ada"), Step("did not, forced", "ada")]
    found += [Step("approve", "agent"), Step("happened", "agent"), Step("start again")]
    found += [Step("done, by another token"), Step("approve an old view", "ada")]
    return [step._replace(which=which) for which in range(count) for step in found]


def _trail(row: Request) -> Trail:
    trail = Trail().after("asked", dumps(lifecycle.asked(row).detail))[0]
    is_approved = row.state is State.APPROVED
    return trail.after("approved", dumps({"fingerprint": row.fingerprint}))[0] if is_approved else trail


class Search:
    """The states that were found, with the step that led to each first."""

    def __init__(self, options: Options, count: int = 1) -> None:
        self.options, self.steps, self.taken, self.now = options, steps_of(options, count), 0, 0
        self.store = MemoryStore()
        with clock.use(self.time):
            rows = [self._asked(n) for n in range(count)]
            if options.grant:
                rows = [self._granted(rows[0])]
        self.edits = {who: sample_edit(rows[0], amount=amount) for amount, who in enumerate(("ada", "bob"), 20)}
        facts = Facts(options)
        if options.grant:
            facts = replace(facts, votes=(Vote("ada", False, 0, False, True),), approval_ends=WINDOW)
        tables = self.store._content
        first = World(0, tuple(rows), (facts,) * count, tuple(map(_trail, rows)), tables.records, self.chain(tables))
        self.parents: dict[Any, tuple[Any, str]] = {self.key(first): (None, "")}
        self.level = [first]
        self.depth = 0

    def time(self) -> datetime:
        return EPOCH + self.now * TICK

    def _asked(self, n: int) -> Request:
        options = self.options
        return sample_call(
            f"run_{n}", requester=WHO["agent"], created_at=EPOCH, expires_at=EPOCH + SPAN * TICK,
            approval_window=WINDOW * TICK, quorum=Quorum(options.quorum), retries=options.retries,
            idempotent=options.idempotent, effect=EFFECT if options.effect else None, id=f"rq_{n}",
        )  # fmt: skip

    def _granted(self, row: Request) -> Request:
        """Return a request as a grant has approved it, which was made for an equal one."""
        first, store = self.store.ask(self._asked(9)), self.store
        decision = Decision("approve", WHO["ada"], EPOCH, "test", None, "")
        self.grant = store.grant(
            first.id, decision, who=Reviewer("ada"), seen=None, edited=None, lasts=99 * TICK, count=9
        )[1]
        return store.ask(row)

    def chain(self, tables: MemoryTables) -> list[Any]:
        """Return the rows of the grant's chain."""
        return tables.chains[f"sayso:grant:{self.grant.id}"].rows if self.options.grant else []

    def run(self, depth: int = 1_000) -> None:
        """Take every step from every state, up to a depth, or until there is no new state."""
        with clock.use(self.time):
            while self.level and self.depth < depth:
                self.depth, level, self.level = self.depth + 1, self.level, []
                for world in level:
                    before = self.key(world)
                    self.taken += len(self.steps) + 1
                    for words, after in self.following(world, before):
                        key = self.key(after)
                        if key not in self.parents:
                            self.parents[key] = before, words
                            self.level.append(after)

    def following(self, world: World, before: Any) -> Iterator[tuple[str, World]]:
        """Yield what each step makes of a state; raises `Found` where record and facts differ."""
        due = {one for facts in world.facts for one in facts.deadlines() if one > world.now}
        if due:
            yield "time passes", world._replace(now=min(due))
        for step in self.steps:
            after = self.taken_step(world, step)
            if isinstance(after, str):
                raise Found(f"{'; '.join([*self.path(before), str(step)])}: {after}; {self.options}")
            if after is not None:
                yield str(step), after

    def path(self, key: Any) -> list[str]:
        """Return the shortest sequence to a state."""
        words = list[str]()
        while key is not None:
            key, word = self.parents[key]
            words.append(word)
        return [word for word in reversed(words) if word]

    def taken_step(self, world: World, step: Step) -> World | str | None:  # noqa: C901, PLR0912  one story
        """Return the world after a step, None if nothing changes, or what is wrong."""
        self.now, which = world.now, step.which
        before, row = world.facts[which], world.rows[which]
        if step.verb == "start again" and row.execution is None:
            return None
        facts = before if step.verb in NOT_SETTLED else before.lapsed(world.now)
        others = [(n < which, one) for n, one in enumerate(world.facts) if n != which]
        expected = facts.after(step, world.now, others)
        tables = self.store._content = MemoryTables()
        for one in world.rows:
            tables.put(one, None, _DIGEST if self.options.effect else None)
        if self.options.grant:
            tables.records = {kind: dict(rows) for kind, rows in world.records.items()}
            self.chain(tables).extend(world.grants)
        refused = ""
        try:
            self.act(step, row)
        except (errors.DecisionRefusedError, errors.StartRefusedError) as error:
            refused = str(error)
        rows = tuple(tables.rows.values())
        after = rows[which]
        new = facts if expected is None else expected
        wrong = self.wrong(new, row, after)
        is_ours = expected is not None and (step.verb != "start" or new.state == "running")
        if wrong or (refused and is_ours):
            return wrong or f"it was refused ({refused})"
        if expected is None and not refused and step.verb not in {"gone", "settle", "withdraw", "send back", "revoke"}:
            return "it was not refused"
        entries = [] if facts is before else [facts.entry(Step("settle"), before, world.now)]
        entries += [] if expected is None or step.verb == "revoke" else [new.entry(step, facts, world.now)]
        trail = world.trails[which]
        written = [entry for entry in tables.chains[row.run_id] if entry.request_id]
        if len(written) != len(entries):
            return f"it wrote {[entry.event for entry in written]}"
        for entry, (event, told) in zip(written, entries, strict=True):
            detail = detail_of(entry.detail)
            detail["held_until"] = "held_until" in detail or None
            if entry.event != event or any(detail.get(name) != value for name, value in told.items()):
                return f"it wrote {entry.event} {entry.detail}, and should write {event} {told}"
            trail, problem = trail.after(entry.event, entry.detail)
            if problem is not None or (entry is written[-1] and after.state not in trail.states):
                return f"the journal is not possible: {problem}, {trail.states}"
        if rows == world.rows and new == before:
            return None
        all_facts, trails = list(world.facts), list(world.trails)
        all_facts[which], trails[which] = new, trail
        return World(world.now, rows, tuple(all_facts), tuple(trails), tables.records, self.chain(tables))

    def act(self, step: Step, row: Request) -> None:  # noqa: C901, PLR0912  a verb for each step
        """Take a step on the store."""
        store, who = self.store, WHO.get(step.by, WHO["agent"])
        ran = row.execution
        token, starts = ("none", 1) if ran is None else (ran.token, ran.starts)
        match step.verb:
            case "approve" | "reject" | "feedback" | "cancel":
                edited = self.edits[step.by] if step.edit else None
                held_for = HOLD * TICK if step.hold else None
                decision = Decision(
                    step.verb, who, EPOCH, "test", "because", "", edited is not None, again=step.again,
                    held_for=held_for,
                )  # fmt: skip
                store.decide(row.id, decision, roles=(), seen=row.current_fingerprint, edited=edited)
            case "approve an old view":
                decision = Decision("approve", who, EPOCH, "test", None, "")
                store.decide(row.id, decision, roles=(), seen="0" * 64)
            case "done, by another token":
                store.finish(row.id, "another", Outcome("done"))
            case "undo":
                store.undo(row.id, who, channel="test")
            case "extend":
                store.extend(row.id, who, roles=(), span=SPAN * TICK, channel="test")
            case "withdraw":
                store.withdraw(row.id, who)
            case "send back":
                store.send_back(row.id, who, ["amount: is odd"])
            case "start":
                store.start(row.id, f"t{starts + 1 if ran else 1}", by="worker")
            case "start again":
                store.start(row.id, token, by="worker")
            case "done" | "failed" | "unknown" | "paused":
                state: Any = step.verb.replace("paused", "suspended")
                store.finish(row.id, token, Outcome(state, error=f"it was {state}"))
            case "revoke":
                store.revoke_grant(self.grant.id, who, channel="test")
            case "gone":
                store.settle(row.id, gone="worker")
            case "settle":
                store.settle(row.id)
            case _:
                force, happened = step.verb.endswith("forced"), "happened" in step.verb
                store.resolve(
                    row.id, who, roles=(), happened=happened, comment=None, channel="test", force=force, start=starts
                )

    def wrong(self, facts: Facts, row: Request, after: Request) -> str:  # noqa: C901, PLR0912  a list
        """Return where record and facts differ; empty if they agree."""
        if after.state != facts.state:
            return f"it is {after.state}, and should be {facts.state}"
        if after.holds is not facts.holds:
            return f"holds is {after.holds}"
        if after is row:
            return ""
        if row.state in FINAL and vars(row) != {**vars(after), "holds": row.holds}:
            return "a final request changed"
        if after.state in {"pending", "approved", "running"}:
            votes = [vote.by.subject for vote in after.votes]
            if votes != [vote.by for vote in facts.votes]:
                return f"its votes are {votes}"
            call = {"asked": after.call, **self.edits}[facts.call]
            if after.effective != call:
                return "another call would run"
            if after.state != "pending" and (after.decision is None or after.decision.verb != "approve"):
                return "nobody approved it"
            if any(vote.fingerprint != after.fingerprint_of(call.digest) for vote in after.votes):
                return "a vote is for another call"
        ran = after.execution
        if (0 if ran is None else ran.starts) != facts.starts:
            return f"it was started {facts.starts} times"
        message = after.message_for_model()
        if facts.starts and "was not run" in message.replace("was not run again", ""):
            return f"its message says that it was not run: {message}"
        if facts.is_lost and after.state in {"pending", "unknown"} and "nobody knows" not in message:
            return f"its message does not say that nobody knows: {message}"
        return ""

    def key(self, world: World) -> Any:
        """Return what can still differ later."""
        pairs = zip(world.facts, world.rows, strict=True)
        return tuple(facts.key(world.now) + _hidden(row) for facts, row in pairs)


def _hidden(row: Request) -> tuple[Any, ...]:
    """Return what the record has besides the facts."""
    decision, ran, ended = row.decision, row.execution, None
    if ran is not None:
        ended = (
            0 if row.idempotent else min(ran.attempt, row.retries + 2), ran.stopped > 0, ran.finished_at is None,
            ran.unresolved, ran.resolved_by is None, ran.error is None,
        )  # fmt: skip
    return row.state, row.holds, None if decision is None else decision.verb, row.returned is None, ended


_GATES = [Options(*one) for one in itertools.product((1, 2), (0, 1), (False, True))]
ONE = [*_GATES, *(gate._replace(grant=True) for gate in _GATES if gate.quorum == 1)]
TWO = [gate._replace(effect=True, undo=False, edits=False) for gate in _GATES if gate.quorum == 1]


def main() -> None:
    """Search everything, and print how much that was."""
    for options, count in [*zip(ONE, itertools.repeat(1)), *zip(TWO, itertools.repeat(2))]:
        search = Search(options, count)
        search.run(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
        print(
            f"{len(search.parents):7} states, {search.taken:8} steps, depth {search.depth:2}: {count} of {options}",
            flush=True,
        )


if __name__ == "__main__":
    main()
