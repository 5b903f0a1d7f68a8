"""Every sequence of steps of a request, or of two with one effect or budget, on the store in memory, against the facts.

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
from sayso.model.grant import Budget
from sayso.model.ids import effect_digest, key_digest
from sayso.model.journal import Trail
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Decision, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Escalation, Identity, Quorum, Reviewer
from sayso.stores.memory import MemoryStore, MemoryTables
from sayso.stores.transaction import ESCALATION as TO_ESCALATE
from sayso.stores.transaction import LEASE as RENEWAL
from sayso.testing import sample_call, sample_edit, sample_question
from tests.model.lifecycle_facts import (
    BUDGET,
    ESCALATION,
    HOLD,
    LEASE,
    QUIET,
    SPAN,
    UNRECORDED,
    WINDOW,
    Facts,
    Options,
    Step,
    Vote,
)

EPOCH, TICK = datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=1)
WHO = {name: Identity(PROGRAM if name == "agent" else LOCAL, name) for name in ("ada", "bob", "eve", "agent")}
ROLES = {"ada": {"finance"}, "bob": {"boss"}, "eve": {"sales"}, "agent": {"finance"}}
OTHER = {"ada": "bob", "bob": "ada", "eve": "ada"}
EFFECT, KEY, AGAIN = "refund:1", "call_1", "rq_again"
FAR = f"elsewhere/boot/1/1/7/1/program/machine/{LEASE * TICK.total_seconds():g}"
"""A worker on another machine, with a lease."""

_STEPS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # the verbs, by whom, and which requests have them: those with one of these options
    (("reject", "cancel", "extend", "happened", "did not"), "deciders", "call question"),
    (("feedback", "happened, forced", "did not, forced", "approve an old view"), "ada", "call question"),
    (("approve", "happened"), "agent", "call question"),
    (("undo",), "people", "undo"),
    (("withdraw", "settle"), "", "call question"),
    (("start", "start again", "start on an old view"), "", "call"),
    (("done", "failed", "unknown", "paused", "gone", "done before"), "", "call"),
    (("happened, an earlier start",), "ada", "call"),
    (("happened by hook", "did not by hook", "happened by hook, an earlier start"), "agent", "lease key"),
    (("renew", "renew before"), "", "lease"),
    (("sweep",), "", "lease roles"),
    (("ask",), "", "lease key question"),
    (("ask other arguments", "ask elsewhere"), "", "key"),
    (("claim", "release", "assign"), "people", "claims"),
    (("release, forced", "assign, forced"), "bob", "claims"),
    (("claim",), "agent", "claims"),
    (("answer",), "deciders", "question"),
    (("answer",), "agent", "question"),
    (("send back",), "", "edits"),
    (("stop", "go"), "ada", "stop"),
    (("revoke",), "ada", "grant"),
    (("not run",), "", "budget"),
)


class World(NamedTuple):
    """The requests as recorded, the truth about each, and the time."""

    now: int
    rows: tuple[Request, ...]
    facts: tuple[Facts, ...]
    trails: tuple[Trail, ...]
    records: dict[str, Any]
    chains: dict[str, list[Any]]  # the entries about grants, budgets and the stop


class Found(AssertionError):
    """The record and the facts differ after a sequence of steps."""


def steps_of(options: Options, count: int) -> list[Step]:
    """Return every step that there is."""
    is_many = options.claims or options.roles
    people = ["ada"] + ["bob"] * (options.quorum > 1 or is_many)
    people += ["eve"] if options.roles or (options.claims and options.quorum > 1) else []
    holds, agains, edits = ((False, True)[: 1 + has] for has in (options.undo, options.effect, options.edits))
    found = [Step("approve", *one) for one in itertools.product(people, edits, agains, holds)]
    has = {name for name in Options._fields if getattr(options, name)} | (set() if options.question else {"call"})
    for verbs, by, those in _STEPS:
        whose = {"people": people, "deciders": people if is_many else people[:1]}.get(by, [by])
        found += [Step(verb, who) for verb in verbs for who in whose if has & set(those.split())]
    found = [step for step in found if step.verb != "sweep" or count == 1]  # it settles all requests
    return [step._replace(which=which) for which in range(count) for step in found]


def _trail(row: Request) -> Trail:
    trail = Trail().after("asked", dumps(lifecycle.asked(row).detail))[0]
    is_approved = row.state is State.APPROVED
    return trail.after("approved", dumps({"fingerprint": row.fingerprint}))[0] if is_approved else trail


class Search:
    """The states that were found, with the step that led to each first."""

    def __init__(self, options: Options, count: int = 1) -> None:
        self.options, self.steps, self.taken, self.now = options, steps_of(options, count), 0, 0
        self.worker = FAR if options.lease else "worker"
        self.store = MemoryStore()
        with clock.use(self.time):
            self.asked = [self._asked(n) for n in range(count)]
            self.other = replace(self._asked(0, is_other=True), id=AGAIN)
            if options.grant:
                self.grant = self._granted()
            rows = [self.store.ask(one) for one in self.asked]
        self.effect = effect_digest(EFFECT) if options.effect else None
        self.edits = {}
        if options.edits:
            self.edits = {
                who: sample_edit(rows[0], amount=amount) for amount, who in enumerate(("ada", "bob", "eve"), 20)
            }
        facts = Facts(options)
        if options.grant or options.budget:
            votes = (Vote("grant" if options.grant else "budget", False, 0, False),)
            facts = replace(facts, votes=votes, approval_ends=WINDOW)
        tables = self.store._content
        first = World(0, tuple(rows), (facts,) * count, tuple(map(_trail, rows)), tables.records, _chains(tables))
        self.parents: dict[Any, tuple[Any, str]] = {self.key(first): (None, "")}
        self.level = [first]
        self.depth = 0

    def time(self) -> datetime:
        return EPOCH + self.now * TICK

    def _asked(self, n: int, *, is_other: bool = False) -> Request:
        options = self.options
        fields: dict[str, Any] = {
            "requester": WHO["agent"], "created_at": EPOCH, "expires_at": EPOCH + SPAN * TICK, "id": f"rq_{n}",
            "approval_window": WINDOW * TICK, "key": KEY if options.key else None,
            "quorum": Quorum(options.quorum, frozenset({"finance"}) if options.roles else frozenset()),
            "escalation": Escalation(ESCALATION * TICK, {"boss"}) if options.roles else None,
        }  # fmt: skip
        if options.question:
            return sample_question(f"run_{n}", "Which bank?" if is_other else "Which account?", **fields)
        budgets = ((f"count() <= 1 per {BUDGET}m", None),) if options.budget else ()
        return sample_call(
            f"run_{n}", {"amount": 99 if is_other else 10, "to": "alice"}, **fields, budgets=budgets,
            effect=EFFECT if options.effect else None, retries=options.retries, idempotent=options.idempotent,
        )  # fmt: skip

    def _granted(self) -> str:
        """Let a grant approve what is asked next; return its id."""
        first, store = self.store.ask(self._asked(9)), self.store
        decision = Decision("approve", WHO["ada"], EPOCH, "test", None, "")
        who = Reviewer("ada")
        return store.grant(first.id, decision, who=who, seen=None, edited=None, lasts=99 * TICK, count=9)[1].id

    def run(self, depth: int = 1_000, *, most: int | None = None) -> None:
        """Take every step from every state, up to a depth, until there were `most` steps, or to the end."""
        with clock.use(self.time):
            while self.level and self.depth < depth and (most is None or self.taken < most):
                self.depth, level, self.level = self.depth + 1, self.level, []
                for world in level:
                    before = self.key(world)
                    self.taken += len(self.steps) + 1
                    for words, after in self.following(world, before):
                        key = self.key(after)
                        if key not in self.parents:
                            self.parents[key] = before, words
                            self.level.append(after)
                            for what in filter(None, [*map(self.told, after.facts, after.rows), self.spent(after)]):
                                raise Found(f"{'; '.join(self.path(key))}: {what}; {self.options}")

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

    def taken_step(self, world: World, step: Step) -> World | str | None:
        """Return the world after a step, None if nothing changes, or what is wrong."""
        self.now, which = world.now, step.which
        before, row = world.facts[which], world.rows[which]
        if step.verb in {"start again", "start on an old view"} and row.execution is None:
            return None
        if step.verb == "renew" and before.began == world.now:
            return None  # the first renewal is after half of a lease
        facts = before.settled(step.verb, world.now)
        others = [(n < which, one) for n, one in enumerate(world.facts) if n != which]
        expected = facts.after(step, world.now, others)
        tables = self.restored(world)
        refused, found = "", None
        try:
            found = self.act(step, row)
        except errors.SaysoError as error:
            refused = str(error)
        rows = tuple(tables.rows[one.id] for one in world.rows)
        after, new = rows[which], facts if expected is None else expected
        wrong = self.wrong(new, row, after) or self.answered(step, new, found)
        wrong = wrong or self.broken(before, after, [one for _, one in others])
        is_ours = expected is not None and (step.verb != "start" or new.state == "running")
        if wrong or (refused and is_ours):
            return wrong or f"it was refused ({refused})"
        if expected is None and not refused and step.verb not in QUIET:
            return "it was not refused"
        entries = [] if facts is before else [facts.entry(Step("settle"), before, world.now)]
        entries += [] if expected is None or step.verb in UNRECORDED else [new.entry(step, facts, world.now)]
        trail = self.recorded(tables, after, world.trails[which], entries)
        if isinstance(trail, str):
            return trail
        if rows == world.rows and new == before and tables.records == world.records:
            return None
        all_facts, trails = list(world.facts), list(world.trails)
        all_facts[which], trails[which] = new, trail
        if step.verb in {"stop", "go"}:  # for all requests of the store
            all_facts = [replace(one, is_stopped=new.is_stopped) for one in all_facts]
        return World(world.now, rows, tuple(all_facts), tuple(trails), tables.records, _chains(tables))

    def restored(self, world: World) -> MemoryTables:
        """Let the store have the content of a state."""
        tables = self.store._content = MemoryTables()
        for one in world.rows:
            tables.put(one, None if one.key is None else key_digest(one.run_id, one.key), self.effect)
        tables.records = {kind: dict(rows) for kind, rows in world.records.items()}
        for name, rows in world.chains.items():
            tables.chains[name].rows.extend(rows)
        return tables

    def act(self, step: Step, row: Request) -> Any:
        """Take a step on the store; return what it answers."""
        return self.by_person(step, row) if step.by else self.by_program(step, row)

    def by_person(self, step: Step, row: Request) -> Any:  # noqa: C901, PLR0912  a verb for each step
        """Take a step of a person, or of a program that tries to be one, or of the gate's hook."""
        store, who, roles, is_forced = self.store, WHO[step.by], ROLES[step.by], step.verb.endswith("forced")
        ran = row.execution
        token, starts = ("t1", 1) if ran is None else (ran.token, ran.starts)
        match step.verb.removesuffix(", forced"):
            case "approve" | "reject" | "feedback" | "cancel" | "answer" as verb:
                edited = self.edits[step.by] if step.edit else None
                decision = Decision(
                    verb, who, EPOCH, "test", "because", "", step.edit, again=step.again,
                    held_for=HOLD * TICK if step.hold else None,
                    answer='{"answer":"yes"}' if verb == "answer" else None,
                )  # fmt: skip
                store.decide(row.id, decision, roles=roles, seen=row.current_fingerprint, edited=edited)
            case "approve an old view":
                decision = Decision("approve", who, EPOCH, "test", None, "")
                store.decide(row.id, decision, roles=roles, seen="0" * 64)
            case "undo":
                store.undo(row.id, who, channel="test")
            case "extend":
                store.extend(row.id, who, roles=roles, span=SPAN * TICK, channel="test")
            case "claim":
                store.claim(row.id, who, roles=roles, channel="test")
            case "release":
                store.release(row.id, who, roles=roles, force=is_forced, channel="test")
            case "assign":
                to, theirs = (WHO[OTHER[step.by]], ROLES[OTHER[step.by]])
                store.assign(row.id, who, to=to, to_roles=theirs, roles=roles, force=is_forced, channel="test")
            case "revoke":
                store.revoke_grant(self.grant, who, channel="test")
            case "stop":
                store.stop(who, channel="test")
            case "go":
                store.go(who, channel="test")
            case verb:
                is_hook, is_old, happened = "by hook" in verb, "an earlier start" in verb, "happened" in verb
                outcome = Outcome("done", kept="found") if is_hook and happened else None
                store.resolve(
                    row.id, who, roles=None if is_hook else roles, happened=happened, comment=None, channel="test",
                    force=is_forced, start=starts - is_old, outcome=outcome,
                    token=(f"t{starts - 1}" if is_old else token) if is_hook else None,
                )  # fmt: skip

    def by_program(self, step: Step, row: Request) -> Any:  # noqa: C901, PLR0912  a verb for each step
        """Take a step of the program, of time, or of whoever looks; return what it answers."""
        store, agent, ran = self.store, WHO["agent"], row.execution
        token, starts = ("none", 0) if ran is None else (ran.token, ran.starts)
        match step.verb:
            case "ask" | "ask elsewhere":
                now, run_id = self.time(), "run_9" if step.verb == "ask elsewhere" else row.run_id
                again = replace(self.asked[step.which], id=AGAIN, run_id=run_id)
                return store.ask(replace(again, created_at=now, expires_at=now + SPAN * TICK)).id
            case "ask other arguments":
                return store.ask(self.other).id
            case "withdraw":
                store.withdraw(row.id, agent)
            case "send back":
                store.send_back(row.id, agent, ["amount: is odd"])
            case "start":
                store.start(row.id, f"t{starts + 1}", by=self.worker)
            case "start again":
                store.start(row.id, token, by=self.worker)
            case "start on an old view":
                store.start(row.id, f"t{starts + 1}", by=self.worker, seen=replace(row, execution=None))
            case "done before":
                store.finish(row.id, f"t{starts - 1}", Outcome("done", kept="another"))
            case "renew" | "renew before":
                return store.renew([(row.id, token if step.verb == "renew" else f"t{starts - 1}")])
            case "gone":
                store.settle(row.id, gone=self.worker)
            case "settle":
                store.settle(row.id)
            case "sweep":
                store.sweep()
            case verb:
                state: Any = {"paused": "suspended", "not run": "failed"}.get(verb, verb)
                kept = f"r{starts}" if verb == "done" else None
                store.finish(
                    row.id, token, Outcome(state, error=f"it was {state}", kept=kept, not_run=verb == "not run")
                )
        return None

    def wrong(self, facts: Facts, row: Request, after: Request) -> str:  # noqa: C901, PLR0912  a list
        """Return where record and facts differ; empty if they agree."""
        if after.state != facts.state:
            return f"it is {after.state}, and should be {facts.state}"
        if after.holds is not facts.holds:
            return f"holds is {after.holds}"
        if self.options.key and self.result(after) != facts.result:
            return f"its result is {self.result(after)}"
        if after is row:
            return ""
        if row.state in FINAL and vars(row) != {**vars(after), "holds": row.holds}:
            return "a final request changed"
        if after.state in {"pending", "approved", "running"} and after.kind == "call":
            votes = [vote.by.subject for vote in after.votes]
            if votes != [vote.by.replace("grant", "ada") for vote in facts.votes]:
                return f"its votes are {votes}"
            call = {"asked": after.call, **self.edits}[facts.call]
            if after.effective != call:
                return "another call would run"
            if after.state != "pending" and (after.decision is None or after.decision.verb != "approve"):
                return "nobody approved it"
            if any(vote.fingerprint != after.fingerprint_of(call.digest) for vote in after.votes):
                return "a vote is for another call"
        if after.state == "pending" and ("" if after.claimed_by is None else after.claimed_by.subject) != facts.claimer:
            return f"it is claimed by {after.claimed_by}"
        ran = after.execution
        if (0 if ran is None else ran.starts) != facts.starts:
            return f"it was started {facts.starts} times"
        return ""

    def told(self, facts: Facts, row: Request) -> str:
        """Return what is wrong with what the model that asked is told; empty if nothing is."""
        message = row.message_for_model() if facts.starts else ""
        if "was not run" in message.replace("was not run again", ""):
            return f"its message says that it was not run: {message}"
        if facts.is_lost and row.state in {"pending", "unknown"} and "nobody knows" not in message:
            return f"its message does not say that nobody knows: {message}"
        return ""

    def result(self, row: Request) -> str:
        """Return the result that whoever uses the key again gets; empty if there is none."""
        try:
            return self.store.result(row.id)
        except errors.ValueNotKeptError:
            return ""

    def broken(self, before: Facts, row: Request, others: list[Facts]) -> str:
        """Return which promise about starts was broken; empty if none was."""
        if row.execution is None or row.execution.starts <= before.starts:
            return ""
        if before.word or before.is_stopped or before.state in FINAL:
            return "it was started after its end, or while all starts are stopped"
        if before.may_have_happened and not before.options.idempotent:
            return "two starts of it may have happened"
        is_same = before.options.effect and not row.votes[0].again
        if is_same and any(other.may_have_happened for other in others):
            return "two requests may have had one effect"
        return ""

    def spent(self, world: World) -> str:
        """Return what is wrong with the account of the budget; empty if nothing is."""
        if not self.options.budget:
            return ""
        self.now, budget = world.now, Budget(world.rows[0].budgets[0][0])
        self.restored(world)
        used = self.store.budget_used(budget, budget.account(world.rows[0]))
        right = sum(one.has_taken(world.now) for one in world.facts)
        return "" if used == right else f"{used} of the budget are used, and not {right}"

    def answered(self, step: Step, facts: Facts, found: Any) -> str:
        """Return what is wrong with the answer to a program; empty if it is right."""
        own = f"rq_{step.which}"
        match step.verb:
            case "ask" if found != (own if self.options.key or facts.holds else AGAIN):
                return f"asking again found {found}"
            case "ask elsewhere" if found != AGAIN:
                return f"the key found {found} in another run"
            case "renew" | "renew before" if facts.starts:
                is_lost = step.verb == "renew before" or facts.last == "gone"
                may_be = step.verb == "renew" and facts.last not in {"running", "gone"}
                return "" if may_be or bool(found) is is_lost else f"its renewal says that {found} are lost"
            case _:
                return ""

    def recorded(
        self, tables: MemoryTables, row: Request, trail: Trail, entries: list[tuple[str, dict[str, Any]]]
    ) -> Trail | str:
        """Return the trail after what a step wrote into the journal, or what is wrong with that."""
        rows = tables.chains[row.run_id].rows if row.run_id in tables.chains else []
        written = [(event, detail) for _, about, event, _, _, detail in rows if about == row.id]
        if len(written) != len(entries):
            return f"it wrote {[event for event, _ in written]}"
        for place, ((event, whole), (wanted, told)) in enumerate(zip(written, entries, strict=True), 1):
            detail = {**whole, **{name: name in whole or None for name in ("held_until", "given_up")}}
            if event != wanted or any(detail.get(name) != value for name, value in told.items()):
                return f"it wrote {event} {whole}, and should write {wanted} {told}"
            trail, problem = trail.after(event, dumps(whole))
            if problem is not None or (place == len(written) and row.state not in trail.states):
                return f"the journal is not possible: {problem}, {trail.states}"
        return trail

    def key(self, world: World) -> Any:
        """Return what can still differ later."""
        pairs = zip(world.facts, world.rows, strict=True)
        now = EPOCH + world.now * TICK
        records = [
            (kind, key, max(row.due - clock.microseconds(now), 0))
            for kind in (RENEWAL, TO_ESCALATE)
            for key, row in world.records.get(kind, {}).items()
        ]
        return *(facts.key(world.now) + _hidden(row) for facts, row in pairs), *records


def _chains(tables: MemoryTables) -> dict[str, list[Any]]:
    return {name: chain.rows for name, chain in tables.chains.items() if name.startswith("sayso:")}


def _hidden(row: Request) -> tuple[Any, ...]:
    """Return what the record has besides the facts."""
    decision, ran, ended = row.decision, row.execution, None
    if ran is not None:
        ended = (
            0 if row.idempotent else min(ran.attempt, row.retries + 2), ran.stopped > 0, ran.finished_at is None,
            ran.unresolved, ran.resolved_by is None, ran.error is None,
        )  # fmt: skip
    claimed = row.claimed_by is not None and row.claimed_by.subject
    word = None if decision is None else decision.verb
    return row.state, row.holds, word, row.returned is None, ended, row.escalated_at is None, claimed


_GATES = [Options(*one) for one in itertools.product((1, 2), (0, 1), (False, True))]
_PLAIN = Options(undo=False, edits=False)
ONE = [*_GATES, *(gate._replace(grant=True) for gate in _GATES if gate.quorum == 1)]
TWO = [gate._replace(effect=True, undo=False, edits=False) for gate in _GATES if gate.quorum == 1]
MORE = {
    "lease": _PLAIN._replace(lease=True),
    "lease, retries": _PLAIN._replace(lease=True, retries=1),
    "lease, idempotent": _PLAIN._replace(lease=True, idempotent=True),
    "key": _PLAIN._replace(key=True, lease=True),
    "key, retries": _PLAIN._replace(key=True, lease=True, retries=1),
    "key, idempotent": _PLAIN._replace(key=True, lease=True, idempotent=True),
    "claims": _PLAIN._replace(claims=True),
    "claims, quorum 2": _PLAIN._replace(claims=True, quorum=2),
    "claims, quorum 2, undo": _PLAIN._replace(claims=True, quorum=2, undo=True),
    "claims, grant, idempotent": _PLAIN._replace(claims=True, grant=True, idempotent=True),
    "claims, edits, idempotent": _PLAIN._replace(claims=True, edits=True, idempotent=True),
    "question": _PLAIN._replace(question=True, claims=True),
    "question, key, roles": _PLAIN._replace(question=True, claims=True, key=True, roles=True),
    "roles": _PLAIN._replace(roles=True),
    "roles, claims": _PLAIN._replace(roles=True, claims=True),
    "roles, edits": _PLAIN._replace(roles=True, edits=True),
    "roles, undo": _PLAIN._replace(roles=True, undo=True),
    "roles, quorum 2": _PLAIN._replace(roles=True, quorum=2),
    "stop": _PLAIN._replace(stop=True),
    "stop, grant": _PLAIN._replace(stop=True, grant=True),
    "stop, idempotent": _PLAIN._replace(stop=True, idempotent=True),
    "budget": _PLAIN._replace(budget=True),
    "budget, retries": _PLAIN._replace(budget=True, retries=1),
    "budget, idempotent": _PLAIN._replace(budget=True, idempotent=True),
}
PAIRS = {
    "budget": _PLAIN._replace(budget=True),
    "budget, retries": _PLAIN._replace(budget=True, retries=1),
    "budget, idempotent": _PLAIN._replace(budget=True, idempotent=True),
    "budget, stop": _PLAIN._replace(budget=True, stop=True),
    "lease": _PLAIN._replace(effect=True, lease=True),
}


def main() -> None:
    """Search everything, and print how much that was."""
    singles, pairs = [*ONE, *MORE.values()], [*TWO, *PAIRS.values()]
    for options, count in [*zip(singles, itertools.repeat(1)), *zip(pairs, itertools.repeat(2))]:
        search = Search(options, count)
        search.run(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
        print(
            f"{len(search.parents):7} states, {search.taken:8} steps, depth {search.depth:2}: {count} of {options}",
            flush=True,
        )


if __name__ == "__main__":
    main()
