"""What a request may do, said a second time in the plainest words: the stores are compared with this, step by step.

Written from the design's drawing and promises, on purpose without the package's own lifecycle. A verb returns None
when it is refused and the new state's name otherwise; instants are whole seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Model", "Wait"]

HOLDING = {"pending", "approved", "running", "unknown", "rejected", "feedback", "cancelled", "answered"}
FINAL = {"done", "failed", "rejected", "feedback", "answered", "cancelled", "expired"}


@dataclass
class Wait:
    """One request, as this model knows it."""

    fingerprint: object
    amount: int
    ends: int
    kind: str = "call"
    needed: int = 1
    role: str | None = None
    barred: frozenset[str] = frozenset()
    retries: int = 0
    idempotent: bool = False
    window: int = 100
    state: str = "pending"
    holds: bool = True
    votes: set[str] = field(default_factory=set)
    claimer: str | None = None
    approval_ends: int = 0
    attempt: int = 0
    tokens: list[str] = field(default_factory=list)
    worker_is_gone: bool = False
    is_reported: bool = False
    is_lost: bool = False  # nobody knows how an earlier start ended
    is_over: bool = False  # somebody, or time, has ended its approval
    rows: int = 1
    grants: int = 0


class Model:
    """All requests, and the clock."""

    def __init__(self) -> None:
        self.now = 0
        self.waits: list[Wait] = []

    def holder(self, fingerprint: object) -> Wait | None:
        """Return the request that answers for this fingerprint."""
        return next((wait for wait in self.waits if wait.fingerprint == fingerprint and wait.holds), None)

    def ask(self, wait: Wait) -> Wait:
        """Return the request that stands for this one now."""
        held = self.holder(wait.fingerprint)
        if held is not None:
            self.expire(held)
            if held.holds:
                return held
        self.waits.append(wait)
        return wait

    def _to(self, wait: Wait, state: str) -> str:
        assert wait.state not in FINAL, f"{wait.state} has no way out"
        wait.state, wait.rows = state, wait.rows + 1
        wait.holds = state in HOLDING
        return state

    def _end(self, wait: Wait, state: str) -> str:
        wait.is_over = True
        return self._to(wait, "unknown" if wait.is_lost else state)

    def expire(self, wait: Wait) -> None:
        """Write the end that was reached."""
        end = {"pending": wait.ends, "approved": wait.approval_ends}.get(wait.state)
        if end is not None and self.now >= end:
            self._end(wait, "expired")

    def settle(self, wait: Wait) -> None:
        """Write the end that was reached, or that the worker is gone."""
        self.expire(wait)
        if wait.state == "running" and wait.worker_is_gone:
            self._to(wait, "unknown")

    def _admits(self, wait: Wait, by: str, roles: set[str], *, is_vote: bool = False) -> bool:
        by = by.lower()
        if by in wait.barred or (wait.role is not None and wait.role not in roles):
            return False
        if wait.claimer is None or wait.claimer == by or wait.claimer in wait.votes:
            return True  # a claim keeps its holder's own approval, until it is given
        return is_vote and wait.needed - len(wait.votes) > 1

    def say(self, wait: Wait, verb: str, by: str, roles: set[str], amount: int | None, seen: int | None) -> str | None:
        """Take a decision; `amount` is the changed argument of an approval, `seen` what was looked at, if told."""
        self.expire(wait)
        fits = {"call": {"approve", "reject", "feedback", "cancel"}, "question": {"answer", "reject", "cancel"}}
        may = wait.state == "pending" or (wait.state == "approved" and verb == "cancel")
        if (
            not may
            or verb not in fits[wait.kind]
            or not self._admits(wait, by, roles, is_vote=verb == "approve" and amount is None)
            or seen not in {None, wait.amount}
        ):
            return None
        if verb == "approve":
            return self._approve(wait, by.lower(), amount)
        past = {"reject": "rejected", "feedback": "feedback", "cancel": "cancelled", "answer": "answered"}
        wait.votes, wait.claimer = set(), None
        return self._end(wait, past[verb])

    def _approve(self, wait: Wait, by: str, amount: int | None) -> str | None:
        if amount is None and by in wait.votes:
            return None
        if amount is not None:
            wait.amount, wait.votes = amount, set()
        wait.votes.add(by)
        if wait.claimer == by or len(wait.votes) >= wait.needed:
            wait.claimer = None
        if len(wait.votes) < wait.needed:
            return self._to(wait, "pending")
        wait.approval_ends = self.now + wait.window
        return self._to(wait, "approved")

    def claim(self, wait: Wait, by: str, roles: set[str]) -> str | None:
        """Let a reviewer take it on."""
        self.expire(wait)
        if wait.state != "pending" or not self._admits(wait, by, roles):
            return None
        wait.claimer = by.lower()
        return self._to(wait, "pending")

    def release(self, wait: Wait, by: str, roles: set[str], *, force: bool) -> str | None:
        """Give it back."""
        self.expire(wait)
        if wait.state != "pending" or wait.claimer is None:
            return None
        mine = wait.claimer
        if force:
            wait.claimer = None
        if not self._admits(wait, by, roles):
            wait.claimer = mine
            return None
        wait.claimer = None
        return self._to(wait, "pending")

    def extend(self, wait: Wait, by: str, roles: set[str], span: int) -> str | None:
        """Move the end."""
        self.expire(wait)
        if wait.state not in {"pending", "approved"} or not self._admits(wait, by, roles):
            return None
        if wait.state == "pending":
            wait.ends = self.now + span
        else:
            wait.approval_ends = self.now + span
        return self._to(wait, wait.state)

    def start(self, wait: Wait, token: str) -> str | None:
        """Give out the right to run it."""
        self.expire(wait)
        again = wait.state == "unknown" and wait.idempotent and self._is_valid(wait)
        if wait.state != "approved" and not again:
            return None
        wait.attempt += 1
        wait.grants += 1
        wait.tokens.append(token)
        wait.is_lost, wait.is_reported = wait.is_lost or again, False
        wait.worker_is_gone = False
        return self._to(wait, "running")

    def finish(self, wait: Wait, token: str, outcome: str) -> str | None:
        """Record how it ended."""
        self.expire(wait)
        if wait.state not in {"running", "unknown"} or wait.tokens[-1] != token or wait.is_reported:
            return None
        wait.is_reported = True
        if outcome == "failed" and wait.is_lost:
            return self._to(wait, "unknown")
        if outcome == "failed" and self._may_try_again(wait):
            return self._to(wait, "approved")
        if outcome == "suspended":
            wait.attempt -= 1
            wait.grants -= 1
            return self._to(wait, "approved")
        return self._to(wait, outcome)

    def _may_try_again(self, wait: Wait) -> bool:
        return self._is_valid(wait) and (wait.idempotent or wait.attempt <= wait.retries)

    def _is_valid(self, wait: Wait) -> bool:
        return not wait.is_over and self.now < wait.approval_ends

    def resolve(self, wait: Wait, by: str, roles: set[str], *, happened: bool, force: bool) -> str | None:
        """Say how an unknown outcome was; by force also how a call ended that is still taken for running."""
        self.settle(wait)
        is_forced = force and wait.state == "running"
        if (wait.state != "unknown" and not is_forced) or not self._admits(wait, by, roles):
            return None
        wait.is_lost, wait.is_reported = False, True
        if not happened and not is_forced and self._may_try_again(wait):
            return self._to(wait, "approved")
        return self._to(wait, "done" if happened else "failed")

    def withdraw(self, wait: Wait) -> str:
        """Let the program take it back."""
        if wait.state in {"pending", "approved"}:
            self._end(wait, "cancelled")
            wait.votes = set()
        elif wait.holds and wait.state in FINAL:
            wait.rows += 1
        wait.holds = wait.state in {"running", "unknown"}
        return wait.state
