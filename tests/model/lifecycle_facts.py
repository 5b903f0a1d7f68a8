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

NOES = {"reject": "rejected", "feedback": "feedback", "cancel": "cancelled"}
HOLDING = {"pending", "approved", "running", "unknown", "rejected", "feedback", "cancelled"}
_LAST = {"running": "running", "done": "done", "gone": "unknown", "unknown": "unknown", "over": "failed"}
FINAL = {"rejected", "feedback", "cancelled", "expired", "done", "failed"}
NOT_SETTLED = frozenset({"withdraw", "send back", "revoke"})
"""The verbs that do not first record what time has changed."""


class Options(NamedTuple):
    """What the gate of a request says, and what its people do besides approving and rejecting."""

    quorum: int = 1
    retries: int = 0
    idempotent: bool = False
    undo: bool = True
    edits: bool = True
    effect: bool = False
    grant: bool = False


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
    """An approval by one person, and until when it can be undone."""

    by: str
    again: bool
    until: int
    is_edit: bool
    is_by_grant: bool = False


@dataclass(frozen=True)
class Facts:
    """The truth about one request.

    Attributes:
        ends, approval_ends: When it expires, and when its approval does. It was asked at 0.
        call: What would run: the call that was asked for, or that of whoever changed it.
        votes: Who agrees to that call now.
        word: What ended the wait, if a person, the program or time did.
        is_cleared: Whether asking again does not find it, because the program withdrew it or forgot the no.
        last: How the last start ended, as far as anybody knows: `gone` if its worker was lost and has not reported,
            `unknown` if it reported that, `over` if it failed and nothing may start after it.
        is_lost: Whether nobody knows how an earlier start ended.
        failed, paused, starts: How many starts are known to have failed, to have paused, and were made at all.
        has_grant: Whether the grant that approved it is in force.
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

    def deadlines(self) -> set[int]:
        """Return the instants at which something may change."""
        ends = {"pending": self.ends, "approved": self.approval_ends, "unknown": self.approval_ends}
        return {ends.get(self.state, 0), *(vote.until for vote in self.votes)}

    def lapsed(self, now: int) -> Facts:
        """Return what time has made of it."""
        end = {"pending": self.ends, "approved": self.approval_ends}.get(self.state)
        return self if end is None or now < end else replace(self, word="expired", is_cleared=True)

    def after(self, step: Step, now: int, others: Others = ()) -> Facts | None:  # noqa: C901, PLR0912  the rules
        """Return what a step changes; None if it must be refused or finds nothing to change."""
        state = self.state
        match step.verb:
            case "approve" if state == "pending" and step.by != "agent":
                return self._approved(step, now)
            case "reject" | "feedback" | "cancel" if state == "pending" or (step.verb, state) == ("cancel", "approved"):
                return replace(self, word=NOES[step.verb], votes=())
            case "undo" if state in {"pending", "approved"}:
                vote = next((one for one in self.votes if one.by == step.by), None)
                if vote is None or now >= vote.until:
                    return None
                rest = () if vote.is_edit else tuple(one for one in self.votes if one.by != step.by)
                return replace(self, votes=rest, call="asked" if vote.is_edit else self.call, approval_ends=0)
            case "extend" if state in {"pending", "approved"}:
                return replace(self, **{"ends" if state == "pending" else "approval_ends": now + SPAN})
            case "withdraw" if state in {"pending", "approved"}:
                return replace(self, word="cancelled", votes=(), is_cleared=True)
            case "withdraw" if state in NOES.values() and not self.is_cleared:
                return replace(self, is_cleared=True)
            case "send back" if state == "approved" and self.call != "asked" and now < self.approval_ends:
                return self._asked_again(now)
            case "revoke" if self.has_grant:
                return replace(self, has_grant=False)
            case "start" if self.may_start(now) and self._is_free(others, now):
                if self.is_by_grant and not self.has_grant:
                    return self._asked_again(now) if state == "approved" else None
                lost = self.is_lost or self.last in {"gone", "unknown"}
                return replace(self, last="running", is_lost=lost, starts=self.starts + 1)
            case "done" | "failed" | "unknown" | "paused" if self.last in {"running", "gone"}:
                return self._finished(step.verb, now)
            case "gone" if state == "running":
                return replace(self, last="gone")
            case "happened" | "happened, forced" if state == "unknown" and step.by != "agent":
                return replace(self, last="done", is_lost=False)
            case "did not" | "did not, forced" if state == "unknown" and step.by != "agent":
                return self._failed(now)
            case "happened, forced" if state == "running":
                return replace(self, last="done", is_lost=False)
            case "did not, forced" if state == "running":
                return replace(self, last="over", is_lost=False)
            case _:
                return None

    def _approved(self, step: Step, now: int) -> Facts | None:
        votes = self.votes
        if step.edit or any(vote.again is not step.again for vote in votes):
            votes = ()  # they were for another call, or for other terms
        if any(vote.by == step.by for vote in votes) or (step.again and not self.options.effect):
            return None
        votes = (*votes, Vote(step.by, step.again, now + HOLD if step.hold else 0, step.edit))
        ends = max(now, *(vote.until for vote in votes)) + WINDOW if len(votes) >= self.options.quorum else 0
        return replace(self, votes=votes, call=step.by if step.edit else self.call, approval_ends=ends)

    def _asked_again(self, now: int) -> Facts:
        if self.last == "paused" and self.is_lost and self.call == "asked":  # by a grant that has ended
            return replace(self, last="unknown")
        return replace(self, votes=(), call="asked", approval_ends=0, ends=max(self.ends, now + self.ends))

    @property
    def is_by_grant(self) -> bool:
        return any(vote.is_by_grant for vote in self.votes)

    def may_start(self, now: int) -> bool:
        """Return whether its people and its gate let it start, whatever other requests there are."""
        is_open = self.state == "approved" or (self.state == "unknown" and self.options.idempotent and not self.word)
        is_in_time = all(vote.until <= now for vote in self.votes) and now < self.approval_ends
        return is_open and self.is_agreed and is_in_time

    def _is_free(self, others: Others, now: int) -> bool:
        """Return whether no other request may have had the effect, or waits for it since earlier."""
        return self.votes[0].again or not any(
            other.state in {"running", "done", "unknown"}
            or (other.paused and other.state != "failed")
            or (
                is_earlier
                and not other.starts
                and other.state in {"pending", "approved"}
                and other.lapsed(now) is other
            )
            for is_earlier, other in others
        )

    def _finished(self, how: str, now: int) -> Facts:
        match how:
            case "paused":
                return replace(self, last="paused", paused=self.paused + 1)
            case "failed" if self.is_lost:
                return replace(self, last="unknown")
            case "failed":
                return self._failed(now)
            case _:
                return replace(self, last=how)

    def _failed(self, now: int) -> Facts:
        failed = self.failed + 1
        is_allowed = self.options.idempotent or failed <= self.options.retries
        may_retry = is_allowed and not self.word and now < self.approval_ends
        return replace(self, last="failed" if may_retry else "over", is_lost=False, failed=failed)

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
            case "withdraw" if before.state in NOES.values():
                return "cleared", {}
            case "start" if state == "running":
                return "started", {"attempt": counted, "start": self.starts if self.paused else None}
            case "start" | "send back":
                return "unknown" if state == "unknown" else "returned", {}
            case "done" | "failed" | "unknown" | "gone":
                again = True if (state, step.verb) == ("approved", "failed") else None
                return "unknown" if state == "unknown" else step.verb, {"attempt": counted, "may_try_again": again}
            case "paused":
                return "suspended", {"attempt": counted, "start": self.starts}
            case "extend":
                return "extended", {"what": "expires_at" if state == "pending" else "approval_expires_at"}
            case "settle":
                return state, {"what": "request" if before.state == "pending" else "approval"}
            case verb if verb in NOES:
                return state, {}
            case "withdraw":
                return "unknown" if state == "unknown" else "withdrawn", {}
            case verb:
                forced = before.state == "running" or None
                return "resolved", {"happened": verb.startswith("happened"), "given_up": forced and "worker"}

    def key(self, now: int) -> tuple[Any, ...]:
        """Return what counts of it for later steps: instants from now on, and numbers up to where they matter."""
        state, failed = self.state, 0 if self.options.idempotent else min(self.failed, self.options.retries + 1)
        votes = tuple(vote._replace(until=max(vote.until - now, 0)) for vote in self.votes)
        ends = min(max(self.ends - now, 0), SPAN), max(self.approval_ends - now, 0), votes, self.call
        return (
            state, *(ends if state not in FINAL else ()), self.word, self.is_cleared, self.last, self.is_lost,
            failed, self.paused > 0, min(self.starts, 2), self.has_grant,
        )  # fmt: skip


Others = Sequence[tuple[bool, Facts]]
"""The other requests with the effect, and whether each was asked earlier."""
