"""What is promised, checked after every step of a schedule, by what happened and not by what the store says of it.

`Promises` hears of each call that ran, each decision that was acknowledged and each message that was sent, and reads
each line that is committed. It shares no rule with `sayso.model.lifecycle`: the tables here are its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from sayso.stores.transaction import LEASE
from tests.simulation.budgets import BUDGET, Budgets
from tests.simulation.grants import Grants, detail_of
from tests.simulation.kernel import LEASE_SECONDS, BrokenPromiseError
from tests.simulation.run_records import RunRecords
from tests.simulation.teamwork import Teamwork

if TYPE_CHECKING:
    from sayso.model.request import Request
    from tests.simulation.journals import Journal
    from tests.simulation.kernel import Process, World

__all__ = ["Acknowledged", "Promises", "Row", "Start", "Terms"]

_AFTER = {
    "pending": {"pending", "approved", "rejected", "feedback", "cancelled", "expired", "answered"},
    "approved": {"approved", "running", "cancelled", "expired", "pending"},
    "running": {"running", "done", "failed", "unknown"},
    "unknown": {"unknown", "done", "failed"},
}  # what is not a key here is final
_AGAIN = {"running": {"approved"}, "unknown": {"running", "approved"}, "approved": {"unknown"}}
"""Also allowed where the gate gives a call further starts."""
_OPEN = {"pending", "approved", "running"}
_BEGUN = {"running", "unknown", "done", "failed"}
_BETWEEN = {"approved", "expired", "cancelled"}
"""Where a call may be that may start again."""
_RECORDED_AS = {"approved": {"approved", "voted"}, "cancelled": {"cancelled", "unknown"}}
"""How decisions are recorded: what had an unknown start before stays unknown."""
_TAKES_EFFECT = {"running", "unknown", "done"}


class Acknowledged(NamedTuple):
    """A decision of which its reviewer was told that it is taken."""

    request_id: str
    event: str
    by: str


class Start(NamedTuple):
    """One call that runs, or ran: a request has as many as its gate gives it."""

    request_id: str
    attempt: int


class Terms(NamedTuple):
    """How often a gate lets a call of a run start again.

    Attributes:
        retries: After so many failures.
        idempotent: Whether after an unknown outcome.
        pauses: After so many pauses half-way.
    """

    retries: int = 0
    idempotent: bool = False
    pauses: int = 0


class _Vote(NamedTuple):
    """An approval, as the journal tells it: when, under which grant, and whether its effect may happen again."""

    by: str
    at: int
    grant: str | None
    again: bool


class Row:
    """What the file says of a request, as far as it is checked."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns
        self.votes: list[_Vote] = []
        self.lines: dict[str, int] = {}  # where in the file the last line with each event ends
        self.starts = 0  # without those that paused
        self.worker = ""  # of the last
        self.granted = 0  # all
        self.has_paused = False
        self.lease_ends = 0  # in microseconds, as its start and each renewal say
        self.history = {columns["state"]}
        self.events: list[tuple[str, str]] = []

    @property
    def state(self) -> str:
        return self.columns["state"]

    @property
    def is_within_budget(self) -> bool:
        return any(vote.grant == BUDGET for vote in self.votes)

    @property
    def voters(self) -> list[str]:
        return [vote.by for vote in self.votes]

    def take(self, event: str, by: str, at: int, detail: dict[str, Any], end: int) -> None:
        """Add an event of its journal, whose line ends there in the file."""
        self.events.append((event, by))
        self.lines[event] = end
        match event:
            case "started":
                self.starts += 1
                self.granted += 1
                self.worker = detail["worker"]
            case "suspended":
                self.starts -= 1
                self.has_paused = True
            case "voted" | "approved":
                kept = [] if "votes_reset" in detail or "edited" in detail else self.votes
                under = BUDGET if BUDGET in detail else detail.get("grant")
                self.votes = [*kept, _Vote(by, at, under, "again" in detail)]
            case "undone":
                self.votes = [] if "edited" in detail else [vote for vote in self.votes if vote.by != by]
            case "returned":
                self.votes = []
            case _:
                pass


class Promises:
    """What happened in one schedule.

    Args:
        world: The schedule.
        journal: What the store has committed.

    Attributes:
        ran: The arguments of each call that ran, by request.
        begun: Each call that ran.
        effects: How often each request's call had its effect.
        ended: How those ended that came to their end: nobody killed the process in between.
        pauses: How often each call paused half-way, by request.
        runs_in: The process of each call that ran.
        terms: Of gates that let a call start again, by run.
        offered: The arguments that a reviewer tried to approve, by request and reviewer.
        acknowledged: Decisions that are taken.
        told: Messages: request and state.
        handed: The requests of which a program was told.
        quorum: How many must agree to a call, by run.
        undo: For how many seconds a reviewer may take an approval back.
        again: Who let the effect of which request happen again.
        grants: What is promised of grants.
        budgets: What is promised of budgets.
        stored_runs: What is promised of stored runs.
        teamwork: What is promised where several people decide.
    """

    def __init__(self, world: World, journal: Journal) -> None:
        self._world, self._journal = world, journal
        self.ran: dict[str, list[str]] = defaultdict(list)
        self.begun: set[Start] = set()
        self.effects: dict[str, int] = defaultdict(int)
        self.ended: dict[Start, str] = {}
        self.pauses: dict[str, int] = defaultdict(int)
        self.runs_in: dict[Start, Process | None] = {}
        self.terms: dict[str, Terms] = {}
        self.offered: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.acknowledged: list[Acknowledged] = []
        self.told: list[tuple[str, str]] = []
        self.handed: set[str] = set()
        self.quorum: dict[str, int] = {}
        self.undo = 0
        self.again: set[tuple[str, str]] = set()
        self.grants = Grants(self.broken)
        self.budgets = Budgets(self)
        self.stored_runs = RunRecords(self)
        self.teamwork = Teamwork(self)
        self.rows: dict[str, Row] = {}
        self._begin()

    def _begin(self) -> None:
        self._is_stopped = False
        self.rows = {}
        self.grants.begin()
        self.budgets.begin()
        self.stored_runs.begin()
        self.teamwork.begin()

    def broken(self, what: str) -> BrokenPromiseError:
        """Note what was broken: code that is called back may not raise it to anybody."""
        self._world.broken = self._world.broken or BrokenPromiseError(what)
        return self._world.broken

    @property
    def running_worker(self) -> str | None:
        """The name of the process that runs now."""
        running = self._world.running
        return None if running is None else running.worker_name

    def is_alive(self, worker: str) -> bool:
        """Say whether a process with this name is alive."""
        return any(one.worker_name == worker and not one.is_dead for one in self._world.processes)

    # -- what happened ---------------------------------------------------------------------------------------------

    def call_runs(self, request: Request | None, arguments: dict[str, Any]) -> Start:
        """A gated function was called."""
        if request is None or request.execution is None:
            raise self.broken(f"a call ran without a request that was started: {arguments}")
        request_id = request.id
        self.check()
        text = json.dumps(arguments, sort_keys=True)
        self.ran[request_id].append(text)
        row = self.rows.get(request_id)
        if len(self.ran[request_id]) > (0 if row is None else row.granted):
            raise self.broken(f"{request_id} ran {len(self.ran[request_id])} times")
        if row is None or row.state not in _BEGUN:
            raise self.broken(f"{request_id} ran, and stands as {None if row is None else row.state}")
        offered = [self.offered[request_id, vote.by] for vote in row.votes if vote.grant is None]
        has_quorum = row.is_within_budget or len(row.votes) >= self.quorum.get(row.columns["run_id"], 1)
        if not has_quorum or not all(text in one for one in offered):
            raise self.broken(f"{request_id} ran with {text}, and {row.voters} approved {offered}")
        for vote in row.votes:
            if vote.grant not in {None, BUDGET}:
                self.grants.check_vote(vote.grant, vote.by, arguments)
        if not self._journal.is_durable(row.lines["started"]):
            raise self.broken(f"{request_id} ran before its start was on the disk")
        start = Start(request_id, request.execution.attempt)
        self.begun.add(start)
        self.ended.pop(start, None)  # a start after a pause has the number of the one before
        self.runs_in[start] = self._world.running
        return start

    def call_takes_effect(self, start: Start) -> None:
        """It does what it is for."""
        request_id, row = start.request_id, self.rows[start.request_id]
        self.effects[request_id] += 1
        self.budgets.call_takes_effect(request_id)
        if self.effects[request_id] > 1 and not self._terms(row).idempotent:
            raise self.broken(f"{request_id} took effect {self.effects[request_id]} times")
        effect = row.columns["effect_digest"]
        if effect is None or self._may_repeat(request_id, row):
            return
        for other_id, other in self.rows.items():
            is_same = other is not row and other.columns["effect_digest"] == effect
            if is_same and self.effects[other_id] and not self._may_repeat(other_id, other):
                raise self.broken(f"{request_id} took effect, and {other_id} had it")

    def _may_repeat(self, request_id: str, row: Row) -> bool:
        return all(vote.again and (request_id, vote.by) in self.again for vote in row.votes)

    def look(self, request_id: str) -> bool | None:
        """Look whether a call took effect; None while that may still happen."""
        row = self.rows[request_id]
        last = self._last(request_id, row)
        may_run = last not in self.begun or (last not in self.ended and self.runs_in[last] is not None)
        if may_run and self.is_alive(row.worker):
            return None
        return self.effects[request_id] > 0

    def did_nothing(self, row: Row) -> bool:
        """Say whether the last call of a request surely did nothing, by its own word or because it never ran."""
        start = self._last(row.columns["id"], row)
        is_seen = row.events[-1][0] == "resolved"  # a person looked, or a hook
        return start not in self.begun or is_seen or self.ended.get(start) == "did not run"

    def call_ended(self, start: Start, how: str) -> None:
        """It returned, or raised."""
        self.ended[start] = how

    def call_interrupted(self, start: Start) -> None:
        """It was interrupted, and runs no more, though its process does."""
        self.runs_in[start] = None

    def call_paused(self, start: Start) -> None:
        """It paused half-way."""
        self.pauses[start.request_id] += 1
        self.ended[start] = "paused"

    def _has_ended(self, request_id: str, row: Row) -> bool:
        return self._last(request_id, row) in self.ended

    def _last(self, request_id: str, row: Row) -> Start:
        start = Start(request_id, row.starts)
        is_doubled = start not in self.begun and row.starts > 1 and row.events[0][1].startswith("token:")
        return start._replace(attempt=row.starts - 1) if is_doubled else start  # its message came twice, far apart

    def decision_offered(self, request_id: str, by: str, arguments: dict[str, Any]) -> None:
        """A reviewer is about to approve these arguments."""
        self.offered[request_id, f"local:{by}"].add(json.dumps(arguments, sort_keys=True))

    def again_offered(self, request_id: str, by: str) -> None:
        """A reviewer is about to let an effect happen again."""
        self.again.add((request_id, f"local:{by}"))

    def decision_acknowledged(self, request_id: str, event: str, by: str) -> None:
        """A reviewer's verb returned."""
        taken = Acknowledged(request_id, event, f"local:{by}")
        self.acknowledged.append(taken)
        self.check()
        self._must_be_recorded(taken)
        if not self._journal.is_durable(self._journal.end):
            raise self.broken(f"{taken} was acknowledged before it was on the disk")

    def must_be_stopped(self) -> None:
        """A reviewer's stop returned, and nobody else could have let starts go on since."""
        self.check()
        if not self._is_stopped:
            raise self.broken("starts were stopped, and the journal does not say so")

    def grant_acknowledged(self, grant_id: str, event: str, by: str) -> None:
        """A reviewer's verb about a grant returned."""
        self.check()
        self.grants.acknowledged(grant_id, event, by)

    def message_sent(self, request_id: str, state: str) -> None:
        """A channel was given a message about what became of a request."""
        self.check()
        self.told.append((request_id, state))
        self._must_have_been(request_id, state)

    def result_given(self, request_id: str, what: str, run: str | None = None) -> None:
        """A program was told how its call ended, in a run: `done`, `failed`, `unknown`, or a no."""
        self.check()
        if run is not None and self.rows[request_id].columns["run_id"] != run:
            raise self.broken(f"a program was given the result of {request_id}, in {run}")
        has_happened = self.effects[request_id] > 0
        if (what == "done" and not has_happened) or (what in {"no", "failed"} and has_happened):
            raise self.broken(f"the program of {request_id} was told {what}, and it took effect: {has_happened}")
        if what == "unknown" and self.rows[request_id].starts == 0:
            raise self.broken(f"the program of {request_id} was told {what}, and it was never started")

    # -- after every step ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Read what was committed since, and check each line."""
        found = self._journal.read()
        if found is None:
            if self.acknowledged:
                raise self.broken("the file is gone, with decisions that were acknowledged")
            return
        if found.is_again:
            self._begin()
        for line, end in found.lines:
            self._take(line, end, is_again=found.is_again)
        if found.is_again:
            self._check_all()

    def _take(self, line: dict[str, Any], end: int, *, is_again: bool) -> None:
        self._take_leases(line.get("records", ()))
        self.stored_runs.take(line, is_again=is_again)
        for columns in line.get("asked", ()):
            self.rows[columns["id"]] = Row({"effect_digest": None, "key_digest": None, "ends_at": None, **columns})
        changed = {columns["id"]: columns for columns in line.get("changed", ())}
        for run, _, at, request_id, event, by, _, text, _ in line.get("journal", ()):
            row, detail = self.rows.get(request_id), detail_of(text)
            self._take_note(run, request_id, event, by, at, detail)
            if row is not None:
                row.take(event, by, at, detail, end)
                self._take_event(request_id, row, event, at, is_again=is_again)
        for request_id, columns in changed.items():
            self._check_change(request_id, columns, is_again=is_again)
        self.budgets.end_line(is_again=is_again)
        for columns in line.get("asked", ()):
            self._check_asked(columns["id"])

    def _take_note(self, chain: str, request_id: str, event: str, by: str, at: int, detail: dict[str, Any]) -> None:
        """Take an event, before its request is changed by it."""
        self.budgets.take(request_id, event, by, at, detail)
        self.teamwork.take(chain, request_id, event, by, at, detail)
        if chain == "sayso:starts":
            self._is_stopped = event == "stopped"
        if chain.startswith("sayso:grant:"):
            self.grants.take(event, by, at, detail)

    def _take_event(self, request_id: str, row: Row, event: str, at: int, *, is_again: bool) -> None:
        if event == "started":
            self._check_start(request_id, row, at, is_again=is_again)
            row.lease_ends = at + LEASE_SECONDS * 1_000_000
        if event == "unknown":
            self._check_given_up(request_id, row, at, is_again=is_again)
        if event in {"voted", "approved"}:
            self._check_vote(request_id, row, at)

    def _check_asked(self, request_id: str) -> None:
        asked = self.rows[request_id].columns
        for other_id, other in self.rows.items():
            is_same = other.columns["fingerprint"] == asked["fingerprint"]  # of one call in one run, with one key
            if other_id != request_id and is_same and (asked["key_digest"] is not None or other.state in _OPEN):
                raise self.broken(f"{request_id} was asked, and {other_id} is the same call ({other.state})")

    def _check_vote(self, request_id: str, row: Row, at: int) -> None:
        by = row.votes[-1].by
        if by.startswith(("program:", "token:")):
            raise self.broken(f"{request_id} was decided by {by}, who asked for it")
        if row.columns["ends_at"] is not None and at >= row.columns["ends_at"]:
            raise self.broken(f"{request_id} was approved after its end")

    def _take_leases(self, records: list[list[Any]]) -> None:
        for kind, key, _, due in records:
            if kind == LEASE and due is not None and key in self.rows:
                self.rows[key].lease_ends = due

    def _check_change(self, request_id: str, columns: dict[str, Any], *, is_again: bool) -> None:
        row = self.rows[request_id]
        before = row.state
        row.columns = {**row.columns, **columns}
        row.history.add(row.state)
        allowed = _AFTER.get(before, set[str]()) | (_AGAIN.get(before, set()) if any(self._terms(row)) else set())
        if row.state != before and row.state not in allowed:
            raise self.broken(f"{request_id} was {before} and became {row.state}")
        if is_again:  # what ran meanwhile is compared when all of it was read
            return
        if self.ran.get(request_id) and row.state not in self._begun(row):
            raise self.broken(f"{request_id} ran, and became {row.state}")
        if row.state in {"done", "failed"} and row.state != before:
            self._check_end(request_id, row)

    def _check_end(self, request_id: str, row: Row) -> None:
        if (self.effects[request_id] > 0) is not (row.state == "done"):
            raise self.broken(f"{request_id} became {row.state}, and took effect {self.effects[request_id]} times")
        if row.events[-1][0] == "resolved":
            return
        start = self._last(request_id, row)
        how = self.ended.get(start) if start in self.begun else "not run"
        if how == "not run" and row.has_paused:
            raise self.broken(f"{request_id} became {row.state}; it paused half-way, and its next start did not run")
        if how in {None, "paused"} or (how == "done") is not (row.state == "done"):
            raise self.broken(f"{request_id} became {row.state}, and its last call ended: {how}")

    def _terms(self, row: Row) -> Terms:
        return self.terms.get(row.columns["run_id"], Terms())

    def _begun(self, row: Row) -> set[str]:
        """Return the states in which a call may be that ran."""
        if not any(self._terms(row)):
            return _BEGUN
        is_returned = any(event == "returned" for event, _ in row.events)  # its grant has ended, so a person decides
        return _BEGUN | _BETWEEN | ({"pending", "rejected", "feedback"} if is_returned else set[str]())

    def _check_start(self, request_id: str, row: Row, at: int, *, is_again: bool) -> None:
        if self._is_stopped:
            raise self.broken(f"{request_id} was started, and starts are stopped")
        retries, idempotent, _ = self._terms(row)
        if row.starts > 1 + retries and not idempotent:
            raise self.broken(f"{request_id} was started {row.starts} times")
        if row.state != "approved" and not (idempotent and row.state == "unknown"):
            raise self.broken(f"{request_id} was started when it was {row.state}")
        if not row.is_within_budget and len(set(row.voters)) < self.quorum.get(row.columns["run_id"], 1):
            raise self.broken(f"{request_id} was started, and only {row.voters} approved it")
        if row.columns["ends_at"] is not None and at >= row.columns["ends_at"]:
            raise self.broken(f"{request_id} was started after its approval had ended")
        for vote in row.votes:
            self._check_vote_counts(request_id, row, vote, at)
        effect = row.columns["effect_digest"]
        if effect is None or is_again or self._may_repeat(request_id, row):
            return
        for other_id, other in self.rows.items():
            has_it = other.state in _TAKES_EFFECT or (other.has_paused and other.state != "failed")
            if other is not row and other.columns["effect_digest"] == effect and has_it:
                raise self.broken(f"{request_id} was started, and {other_id} has its effect ({other.state})")

    def _check_vote_counts(self, request_id: str, row: Row, vote: _Vote, at: int) -> None:
        if vote.grant == BUDGET:
            return
        if vote.grant is not None:
            self.grants.check_start(vote.grant, request_id, at)
            return
        is_held = row.granted == 1 and self.undo > 0 and not self.grants.has_offered(request_id, vote.by)
        if is_held and at < vote.at + self.undo * 1_000_000:
            raise self.broken(f"{request_id} was started, and {vote.by} could still undo their approval")

    def _check_given_up(self, request_id: str, row: Row, at: int, *, is_again: bool) -> None:
        start = self._last(request_id, row)
        process = self.runs_in.get(start)
        is_alive = process is not None and not (process.is_dead or process.has_ended)
        if is_alive and start not in self.ended and at < row.lease_ends and not is_again:
            raise self.broken(f"{request_id} was given up while it ran, before its lease ended")

    def _check_all(self) -> None:
        """Check what must have survived a power cut."""
        for taken in self.acknowledged:
            self._must_be_recorded(taken)
        for request_id, state in self.told:
            self._must_have_been(request_id, state)
        self.grants.check_all()
        for request_id in self.ran:
            row = self.rows.get(request_id)
            if row is None or row.state not in self._begun(row):
                raise self.broken(f"{request_id} ran, and stands as {None if row is None else row.state}")

    def _must_be_recorded(self, taken: Acknowledged) -> None:
        row = self.rows.get(taken.request_id)
        events = () if row is None else row.events
        names = _RECORDED_AS.get(taken.event, {taken.event})
        if not any(event in names and by == taken.by for event, by in events):
            raise self.broken(f"a decision was lost: {taken}; there is {events}")

    def _must_have_been(self, request_id: str, state: str) -> None:
        row = self.rows.get(request_id)
        if row is None or state not in row.history:
            been = None if row is None else sorted(row.history)
            raise self.broken(f"a message said that {request_id} is {state}, and it has been {been}")

    # -- at the end ------------------------------------------------------------------------------------------------

    def at_the_end(self, *, announced: bool) -> None:
        """Check what must have come to be once all faults have ended and everybody had time."""
        self.check()
        for request_id, row in self.rows.items():
            ran = bool(self.ran.get(request_id))
            # One whose asker never heard of it, as the answer was lost, waits until it expires.
            is_remote = row.events[0][1].startswith("token:")
            is_left = is_remote and request_id not in self.handed and row.state in {"pending", "approved"}
            # A program that was told `unknown` may have left a call that then turned out to have failed, with retries.
            is_left |= row.state == "approved" and (row.starts > 0 or row.has_paused)
            # Nobody can withdraw the request of a gate whose effect another one has.
            is_left |= row.state == "approved" and row.columns["effect_digest"] is not None
            # A worker that was stopped leaves it; the run then waits until somebody resolves another of its calls.
            same_run = (one for one in self.rows.values() if one.columns["run_id"] == row.columns["run_id"])
            is_left |= row.state == "approved" and any(one.state == "unknown" for one in same_run)
            if row.state in {"pending", "approved", "running"} and not is_left:
                raise self.broken(f"{request_id} is still {row.state}")
            has_happened = self.effects[request_id] > 0
            if has_happened is not (row.state == "done") and not (has_happened and row.state == "unknown"):
                raise self.broken(f"{request_id} is {row.state}, and took effect: {has_happened}")
            is_paused = row.has_paused and row.state in self._begun(row) - _BEGUN  # its effect stays taken
            is_broken_off = self._last(request_id, row) in self.begun and not self._has_ended(request_id, row)
            is_broken_off &= not any(event == "resolved" for event, _ in row.events)
            if ran and not is_paused and is_broken_off and row.state != "unknown":
                raise self.broken(f"{request_id} was broken off, and is {row.state}")
            if announced and not is_left and (request_id, row.state) not in self.told:
                raise self.broken(f"nobody was told that {request_id} is {row.state}: {self.told}")
