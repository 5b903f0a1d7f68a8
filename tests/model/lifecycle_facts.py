"""What is true about a request, kept beside the record: who agreed, what ran, and what anybody knows of how it ended.

Written from the design, without the package's lifecycle. `Facts.after` says what a step changes, or None if it must be
refused; `Facts.state` says which state the record must then have. Instants are whole ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

SPAN, WINDOW, HOLD = 2, 2, 1
"""How long a request waits, how long its approval is valid, and how long that can be undone, in ticks."""
LEASE, ESCALATION, BUDGET = 2, 1, 2
"""How long a call runs without a renewal, when more people may decide, and how long a budget counts, in ticks."""

ENDS = {"reject": "rejected", "feedback": "feedback", "cancel": "cancelled", "answer": "answered"}
HOLDING = {"pending", "approved", "running", "unknown", "rejected", "feedback", "cancelled", "answered"}
_LAST = {"running": "running", "done": "done", "gone": "unknown", "unknown": "unknown", "over": "failed"}
_MAY_HAVE = {"running", "gone", "unknown", "done"}
FINAL = {"rejected", "feedback", "cancelled", "answered", "expired", "done", "failed"}
FINDINGS = ("happened", "did not")
NOT_SETTLED = frozenset(
    {
        "withdraw", "send back", "revoke", "ask other arguments", "ask elsewhere", "renew", "renew before", "stop",
        "go",
    }
)  # fmt: skip
"""The verbs that do not first record what time has changed."""
QUIET = NOT_SETTLED - {"ask other arguments"} | {"gone", "settle", "sweep", "ask"}
"""The verbs that find nothing to change without an error."""
UNRECORDED = frozenset({"revoke", "renew", "stop", "go"})
"""The verbs without an entry in the run's journal."""


class Options(NamedTuple):
    """What the gate of a request says, and what happens besides decisions, starts and ends.

    Attributes:
        lease: Whether its workers are on other machines, so that only their leases tell whether they live.
        key: Whether it has a key. Then it is asked again, and its result is kept.
        claims: Whether people claim it, for themselves and for others.
        question: Whether it is a question, and not a call.
        roles: Whether only ada has the role that it needs, and an escalation lets bob decide too.
        stop: Whether people stop every start, and allow them again.
        budget: Whether its policy allows it within a budget of one call.
    """

    quorum: int = 1
    retries: int = 0
    idempotent: bool = False
    undo: bool = True
    edits: bool = True
    effect: bool = False
    grant: bool = False
    lease: bool = False
    key: bool = False
    claims: bool = False
    question: bool = False
    roles: bool = False
    stop: bool = False
    budget: bool = False


class Step(NamedTuple):
    """One step of one request: of a person, the program, or time."""

    verb: str
    by: str = ""
    edit: bool = False
    again: bool = False
    hold: bool = False
    which: int = 0

    def __str__(self) -> str:
        words = [self.verb, self.by, *(name for name in ("edit", "again", "hold") if getattr(self, name))]
        return f"{'AB'[self.which]}: {' '.join(filter(None, words))}"


class Vote(NamedTuple):
    """An approval by one person, until when it can be undone, and whether it ended that person's claim."""

    by: str
    again: bool
    until: int
    is_edit: bool
    had_claim: bool = False


@dataclass(frozen=True)
class Facts:
    """The truth about one request.

    Attributes:
        ends, approval_ends: When it expires, and when its approval does. It was asked at 0.
        call: What would run: the call that was asked for, or that of whoever changed it.
        votes: Who agrees to that call now; `grant` and `budget` are no people.
        word: What ended the wait, if a person, the program or time did.
        is_cleared: Whether asking again does not find it, because the program withdrew it or forgot the no.
        last: How the last start ended, as far as anybody knows: `gone` if its worker was lost and has not reported,
            `unknown` if it reported that, `over` if it failed and nothing may start after it.
        is_lost: Whether nobody knows how an earlier start ended.
        failed, paused, starts: How many starts are known to have failed, to have paused, and were made at all.
        has_grant: Whether the grant that approved it is in force.
        began, lease: When the last start was, and when its lease ends.
        result: What its call returned, if that is known and it has a key.
        claimer: Who has claimed it.
        is_escalated: Whether more people may decide.
        is_stopped: Whether every start is blocked.
        took: When it took from the budget, if it did.
    """

    options: Options
    ends: int = SPAN
    call: str = "asked"
    votes: tuple[Vote, ...] = ()
    approval_ends: int = 0
    word: str = ""
    is_cleared: bool = False
    last: str = ""
    is_lost: bool = False
    failed: int = 0
    paused: int = 0
    starts: int = 0
    has_grant: bool = True
    began: int = 0
    lease: int = 0
    result: str = ""
    claimer: str = ""
    is_escalated: bool = False
    is_stopped: bool = False
    took: int | None = None

    @property
    def is_agreed(self) -> bool:
        return len(self.votes) >= self.options.quorum

    @property
    def state(self) -> str:
        """Return the state that the record must have."""
        if self.last in _LAST:
            return _LAST[self.last]
        if self.word:
            return "unknown" if self.is_lost else self.word
        return "approved" if self.is_agreed else "pending"

    @property
    def holds(self) -> bool:
        """Return whether asking again finds it."""
        return self.state in HOLDING and (self.state == "unknown" or not self.is_cleared)

    @property
    def may_have_happened(self) -> bool:
        """Return whether a start of it has, or may have, had its effect."""
        return self.is_lost or self.last in _MAY_HAVE

    def deadlines(self) -> set[int]:
        """Return the instants at which something may change."""
        ends = {"pending": self.ends, "approved": self.approval_ends, "unknown": self.approval_ends}
        more = {self.began + LEASE // 2, self.lease} if self.options.lease and self.state == "running" else set[int]()
        more |= {ESCALATION} if self.options.roles and not self.is_escalated else set()
        more |= set() if self.took is None else {self.took + BUDGET}
        return {ends.get(self.state, 0), *(vote.until for vote in self.votes), *more}

    # -- what time changes ---------------------------------------------------------------------------------------

    def expired(self, now: int) -> Facts:
        """Return what the end of its wait or of its approval has made of it."""
        end = {"pending": self.ends, "approved": self.approval_ends}.get(self.state)
        return self if end is None or now < end else replace(self, word="expired", is_cleared=True)

    def lapsed(self, now: int) -> Facts:
        """Return what time has made of it, without the leases."""
        found = self.expired(now)
        is_late = self.options.roles and found.state == "pending" and now >= ESCALATION
        return replace(found, is_escalated=True) if is_late and not found.is_escalated else found

    def settled(self, verb: str, now: int) -> Facts:
        """Return what a verb finds, after it has recorded what time has changed."""
        if verb in NOT_SETTLED:
            return self
        if verb == "ask":
            return self.expired(now)
        looks = verb in {"settle", "sweep"} or verb.startswith(FINDINGS)
        is_over = self.options.lease and self.state == "running" and now >= self.lease
        return replace(self, last="gone") if looks and is_over else self.lapsed(now)

    # -- what a step changes -------------------------------------------------------------------------------------

    def after(self, step: Step, now: int, others: Others = ()) -> Facts | None:  # noqa: C901, PLR0912  the rules
        """Return what a step changes; None if it must be refused or finds nothing to change."""
        state, options = self.state, self.options
        match step.verb:
            case "approve" if state == "pending" and not options.question and self._may(step):
                return self._approved(step, now)
            case "reject" | "feedback" | "answer" if state == "pending" and self._fits(step) and self._may(step):
                return replace(self, word=ENDS[step.verb], votes=(), claimer="")
            case "cancel" if state in {"pending", "approved"} and self._may(step):
                return replace(self, word="cancelled", votes=(), claimer="")
            case "undo" if state in {"pending", "approved"}:
                return self._undone(step, now)
            case "extend" if state in {"pending", "approved"} and self._may(step):
                return replace(self, **{"ends" if state == "pending" else "approval_ends": now + SPAN})
            case "claim" if state == "pending" and self._may(step):
                return replace(self, claimer=step.by)
            case "release" if state == "pending" and self.claimer and self._may(step):
                return replace(self, claimer="")
            case "release, forced" if state == "pending" and self.claimer and self._is_admitted(step.by):
                return replace(self, claimer="")
            case "assign" | "assign, forced" if state == "pending":
                may = self._is_admitted(step.by) if step.verb.endswith("forced") else self._may(step)
                other = "bob" if step.by == "ada" else "ada"
                can = self._is_admitted(other) and all(vote.by != other for vote in self.votes)
                return replace(self, claimer=other) if may and can else None
            case "withdraw" if state in {"pending", "approved"}:
                return replace(self, word="cancelled", votes=(), is_cleared=True)
            case "withdraw" if state in ENDS.values() and not self.is_cleared:
                return replace(self, is_cleared=True)
            case "send back" if state == "approved" and self.call != "asked" and now < self.approval_ends:
                return self._asked_again(now)
            case "revoke" if self.has_grant:
                return replace(self, has_grant=False)
            case "stop" | "go" if self.is_stopped is (step.verb == "go"):
                return replace(self, is_stopped=not self.is_stopped)
            case "start" if self.may_start(now) and self._is_free(others, now) and not self.is_stopped:
                return self._started(now, others)
            case "done" | "failed" | "not run" | "unknown" | "paused" if self.last in {"running", "gone"}:
                return self._finished(step.verb, now)
            case "renew" if self.last == "running" and state == "running":
                return replace(self, lease=now + LEASE)
            case "gone" if state == "running":
                return replace(self, last="gone")
            case verb if verb.startswith(FINDINGS):
                return self._resolved(step, now)
            case _:
                return None

    def _is_admitted(self, by: str) -> bool:
        """Return whether somebody is one of those who may decide."""
        return by != "agent" and (not self.options.roles or by == "ada" or (by == "bob" and self.is_escalated))

    def _may(self, step: Step) -> bool:
        """Return whether somebody may take a step now: a claim keeps one approval of a request that waits."""
        if not self._is_admitted(step.by):
            return False
        if self.state != "pending" or self.claimer in {"", step.by} or any(v.by == self.claimer for v in self.votes):
            return True
        is_vote = step.verb == "approve" and not step.edit and all(vote.again is step.again for vote in self.votes)
        return is_vote and self.options.quorum - len(self.votes) > 1

    def _fits(self, step: Step) -> bool:
        return step.verb == "reject" or (step.verb == "answer") is self.options.question

    def _approved(self, step: Step, now: int) -> Facts | None:
        votes = self.votes
        if step.edit or any(vote.again is not step.again for vote in votes):
            votes = ()  # they were for another call, or for other terms
        if any(vote.by == step.by for vote in votes) or (step.again and not self.options.effect):
            return None
        is_theirs = self.claimer == step.by
        votes = (*votes, Vote(step.by, step.again, now + HOLD if step.hold else 0, step.edit, is_theirs and step.hold))
        is_agreed = len(votes) >= self.options.quorum
        ends = max(now, *(vote.until for vote in votes)) + WINDOW if is_agreed else 0
        return replace(
            self, votes=votes, call=step.by if step.edit else self.call, approval_ends=ends,
            claimer="" if is_theirs or is_agreed else self.claimer,
        )  # fmt: skip

    def _undone(self, step: Step, now: int) -> Facts | None:
        vote = next((one for one in self.votes if one.by == step.by), None)
        if vote is None or now >= vote.until:
            return None
        rest = () if vote.is_edit else tuple(one for one in self.votes if one.by != step.by)
        claimer = step.by if vote.had_claim and not self.claimer else self.claimer
        return replace(
            self, votes=rest, call="asked" if vote.is_edit else self.call, approval_ends=0, claimer=claimer
        )  # fmt: skip

    def _asked_again(self, now: int) -> Facts:
        if self.last == "paused" and self.is_lost and self.call == "asked":  # by a grant that has ended
            return replace(self, last="unknown")
        return replace(self, votes=(), call="asked", approval_ends=0, ends=max(self.ends, now + self.ends))

    def _is_by(self, what: str) -> bool:
        return any(vote.by == what for vote in self.votes)

    def may_start(self, now: int) -> bool:
        """Return whether its people and its gate let it start, whatever other requests there are."""
        is_open = self.state == "approved" or (self.state == "unknown" and self.options.idempotent and not self.word)
        is_in_time = all(vote.until <= now for vote in self.votes) and now < self.approval_ends
        return is_open and self.is_agreed and is_in_time

    def has_taken(self, now: int) -> bool:
        """Return whether it uses the budget."""
        return self.took is not None and now < self.took + BUDGET

    def _is_free(self, others: Others, now: int) -> bool:
        """Return whether no other request may have had the effect, or waits for it since earlier."""
        return (
            not self.options.effect
            or self.votes[0].again
            or not any(
                other.state in {"running", "done", "unknown"}
                or (other.paused and other.state != "failed")
                or (
                    is_earlier
                    and not other.starts
                    and other.state in {"pending", "approved"}
                    and other.expired(now) is other
                )
                for is_earlier, other in others
            )
        )

    def _started(self, now: int, others: Others) -> Facts | None:
        has_room = self.has_taken(now) or not any(other.has_taken(now) for _, other in others)
        if (self._is_by("grant") and not self.has_grant) or (self._is_by("budget") and not has_room):
            return self._asked_again(now) if self.state == "approved" else None
        took = now if self._is_by("budget") and not self.has_taken(now) else self.took
        return replace(
            self, last="running", is_lost=self.is_lost or self.last in {"gone", "unknown"}, starts=self.starts + 1,
            began=now, lease=now + LEASE, took=took,
        )  # fmt: skip

    def _finished(self, how: str, now: int) -> Facts:
        match how:
            case "paused":
                return replace(self, last="paused", paused=self.paused + 1)
            case "failed" | "not run" if self.is_lost:
                return replace(self, last="unknown")
            case "failed":
                return self._failed(now)
            case "not run":
                return self._failed(now)._given_back()
            case "done" if self.options.key:
                return replace(self, last=how, result=f"r{self.starts}")
            case _:
                return replace(self, last=how)

    def _failed(self, now: int, *, may_retry: bool = True) -> Facts:
        failed = self.failed + 1
        is_allowed = self.options.idempotent or failed <= self.options.retries
        may_retry = may_retry and is_allowed and not self.word and now < self.approval_ends
        return replace(self, last="failed" if may_retry else "over", is_lost=False, failed=failed)

    def _given_back(self) -> Facts:
        """Return it without what it took from the budget, if its only start certainly had no effect."""
        return replace(self, took=None) if self.state == "failed" and self.starts == 1 else self

    def _resolved(self, step: Step, now: int) -> Facts | None:
        """Return what somebody's finding changes; `by hook` is the gate's own, which looked at the last start."""
        is_forced = step.verb.endswith("forced") and self.state == "running"
        may = "by hook" in step.verb or self._is_admitted(step.by)
        if not may or not (self.state == "unknown" or is_forced) or "an earlier start" in step.verb:
            return None
        if step.verb.startswith("happened"):
            has_result = self.options.key and "by hook" in step.verb
            return replace(self, last="done", is_lost=False, result="found" if has_result else "")
        return self._failed(now, may_retry=not is_forced)._given_back()

    # -- how it is recorded --------------------------------------------------------------------------------------

    def entry(self, step: Step, before: Facts, now: int) -> tuple[str, dict[str, Any]]:  # noqa: C901, PLR0912  the same
        """Return the event of a step that made this of `before`, and what its detail must have and must not have."""
        state, counted = self.state, self.starts - before.paused
        match step.verb:
            case "approve":
                missing = self.options.quorum - len(self.votes)
                kept = len(self.votes) == len(before.votes) + 1
                holds_back = not missing and self.approval_ends - WINDOW > now
                detail = {
                    "missing": missing or None, "votes_reset": None if kept else len(before.votes),
                    "edited": step.edit or None, "again": step.again or None, "held_until": holds_back or None,
                }  # fmt: skip
                return "voted" if missing else "approved", detail
            case "undo":
                return "undone", {"edited": (self.call == "asked" != before.call) or None}
            case "claim":
                return "claimed", {}
            case "release" | "release, forced":
                return "released", {"claimed_by": None if before.claimer == step.by else f"local:{before.claimer}"}
            case "assign" | "assign, forced":
                taken = before.claimer not in {"", step.by}
                claimed_by = f"local:{before.claimer}" if taken else None
                return "assigned", {"to": f"local:{self.claimer}", "claimed_by": claimed_by}
            case "withdraw" if before.state in ENDS.values():
                return "cleared", {}
            case "start" if state == "running":
                return "started", {"attempt": counted, "start": self.starts if self.paused else None}
            case "start" | "send back":
                return "unknown" if state == "unknown" else "returned", {}
            case "done" | "failed" | "not run" | "unknown" | "gone":
                again = True if (state, step.verb) in {("approved", "failed"), ("approved", "not run")} else None
                event = step.verb.replace("not run", "failed")
                return "unknown" if state == "unknown" else event, {"attempt": counted, "may_try_again": again}
            case "paused":
                return "suspended", {"attempt": counted, "start": self.starts}
            case "extend":
                return "extended", {"what": "expires_at" if state == "pending" else "approval_expires_at"}
            case "settle" if state == "pending":
                return "escalated", {}
            case "settle" if before.state == "running":
                return "unknown", {"lease": "lost"}
            case "settle":
                return state, {"what": "request" if before.state == "pending" else "approval"}
            case verb if verb in ENDS:
                return state, {}
            case "withdraw":
                return "unknown" if state == "unknown" else "withdrawn", {}
            case verb:
                forced = before.state == "running" or None
                return "resolved", {"happened": verb.startswith("happened"), "given_up": forced}

    def key(self, now: int) -> tuple[Any, ...]:
        """Return what counts of it for later steps: instants from now on, and numbers up to where they matter."""
        state, failed = self.state, 0 if self.options.idempotent else min(self.failed, self.options.retries + 1)
        votes = tuple(vote._replace(until=max(vote.until - now, 0)) for vote in self.votes)
        ends = min(max(self.ends - now, 0), SPAN), max(self.approval_ends - now, 0), votes, self.call, self.claimer
        lease = (now > self.began, max(self.lease - now, 0)) if self.options.lease and state == "running" else ()
        took = None if self.took is None else max(self.took + BUDGET - now, 0)
        return (
            state, *(ends if state not in FINAL else ()), self.word, self.is_cleared, self.last, self.is_lost,
            failed, self.paused > 0, min(self.starts, 2), self.has_grant, lease, bool(self.result), self.is_escalated,
            self.is_stopped, took, self.options.roles and min(now, ESCALATION),
        )  # fmt: skip


Others = Sequence[tuple[bool, Facts]]
"""The other requests with the effect, and whether each was asked earlier."""
