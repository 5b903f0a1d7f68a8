"""What is promised of budgets: the calls that a policy allows by itself use what it says, and not more.

It reads the journal, counts by itself, and shares no rule with `sayso.model.grant` and `sayso.stores.grants`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.simulation.promises import Promises, Row

__all__ = ["BUDGET", "Budgets", "Limit"]

BUDGET = "budget"
_POLICY = "policy:budget"


class Limit(NamedTuple):
    """A budget of the schedule's policy.

    Attributes:
        most: What may be used in each span.
        seconds: The span.
        counts: Whether it counts calls; else it sums up their amounts.
        per_run: Whether each run has an account; else all share one.
        name: With a name, all tools share the account; else each has its own.
    """

    most: int
    seconds: int
    counts: bool
    per_run: bool
    name: str | None

    @property
    def text(self) -> str:
        """As a policy writes it."""
        what = "count()" if self.counts else "sum(args.amount)"
        return f"{what} <= {self.most} per {self.seconds}s{' per run' if self.per_run else ''}"


class _Taking(NamedTuple):
    """What a call took from an account, and when, in microseconds."""

    request_id: str
    at: int
    amount: int


class Budgets:
    """The budgets of one schedule.

    Args:
        promises: What happened to the calls.

    Attributes:
        limits: Of the calls of these tools.
        tools: Their names.
    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self.limits: Sequence[Limit] = ()
        self.tools: tuple[str, ...] = ()
        self.begin()

    def begin(self) -> None:
        """Forget what the file said: it is read again."""
        self._accounts: dict[tuple[object, ...], list[_Taking]] = {}
        self._within = set[str]()  # requests that the policy allowed and that no person has seen
        self._given_back = set[str]()
        self._asked: dict[str, tuple[bool, int]] = {}  # in this line: whether there was room, and when
        self._failed: dict[str, int] = {}  # in this line: when

    def take(self, request_id: str, event: str, by: str, at: int, detail: dict[str, Any]) -> None:
        """Take an event of the journal, before its request is changed by it."""
        if event == "budget_given_back":
            self._given_back.add(detail["request"])
        row = self._promises.rows.get(request_id)
        if row is None or row.columns["tool"] not in self.tools:
            return
        match event:
            case "asked":
                self._asked[request_id] = self._has_room(row, at), at
            case "approved" if by == _POLICY:
                self._within.add(request_id)
            case "started" if detail.get("grant") == BUDGET:
                self._start(row, at)
            case "returned" if request_id in self._within:
                self._within.remove(request_id)
                if self._has_room(row, at):
                    raise self._promises.broken(f"{request_id} waits for a person, and its budgets have room")
            case "failed" | "resolved" if request_id in self._within:
                self._failed[request_id] = at
            case _:
                pass

    def end_line(self, *, is_again: bool) -> None:
        """Check what one transaction has done as a whole."""
        for request_id, (has_room, at) in self._asked.items():
            columns = self._promises.rows[request_id].columns
            has_ended = columns["state"] == "pending" and columns["ends_at"] <= at  # before it was recorded
            if (has_room and not has_ended) is not (request_id in self._within):
                raise self._promises.broken(f"{request_id} was asked, and its budgets have room: {has_room}")
        for request_id, at in self._failed.items():
            self._check_failed(self._promises.rows[request_id], at, is_again=is_again)
        self._asked.clear()
        self._failed.clear()

    def call_takes_effect(self, request_id: str) -> None:
        """A call has its effect."""
        if request_id in self._given_back:
            raise self._promises.broken(f"{request_id} took effect, and its budget was given back")

    def _check_failed(self, row: Row, at: int, *, is_again: bool) -> None:
        """Check that a call that surely did nothing gives back what it took, and no other one."""
        request_id = row.columns["id"]
        did_take = any(self._taking(row, limit, at) is not None for limit in self.limits)
        is_given_back = request_id in self._given_back
        if row.state != "failed" or not (did_take or is_given_back):
            return
        did_nothing = row.granted == 1 and self._promises.did_nothing(row)
        if did_nothing is not is_given_back and not is_again:
            what = "given back" if is_given_back else "kept"
            raise self._promises.broken(f"{request_id} failed, did nothing: {did_nothing}, and its budget was {what}")
        for limit in self.limits if is_given_back else ():
            if self._taking(row, limit, at) is not None:  # what was out of the span once stays so
                account = [one for one in self._alive(row, limit, at) if one.request_id != request_id]
                self._accounts[self._account(row, limit)] = account

    # -- accounts --------------------------------------------------------------------------------------------------

    def _start(self, row: Row, at: int) -> None:
        if not self._has_room(row, at):
            raise self._promises.broken(
                f"{row.columns['id']} was started, and its budgets have no room: {self._accounts}"
            )
        for limit in self.limits:
            if self._taking(row, limit, at) is None:
                account = list(self._alive(row, limit, at))
                self._accounts[self._account(row, limit)] = [*account, self._wanted(row, limit, at)]

    def _has_room(self, row: Row, at: int) -> bool:
        for limit in self.limits:
            used = sum(one.amount for one in self._alive(row, limit, at))
            if self._taking(row, limit, at) is None and used + self._wanted(row, limit, at).amount > limit.most:
                return False
        return True

    def _alive(self, row: Row, limit: Limit, at: int) -> Iterator[_Taking]:
        since = at - limit.seconds * 1_000_000
        return (one for one in self._accounts.get(self._account(row, limit), ()) if one.at > since)

    def _taking(self, row: Row, limit: Limit, at: int) -> _Taking | None:
        return next((one for one in self._alive(row, limit, at) if one.request_id == row.columns["id"]), None)

    @staticmethod
    def _account(row: Row, limit: Limit) -> tuple[object, ...]:
        whose = limit.name or row.columns["tool"]
        return limit, whose, row.columns["run_id"] if limit.per_run else None

    @staticmethod
    def _wanted(row: Row, limit: Limit, at: int) -> _Taking:
        amount = 1 if limit.counts else json.loads(row.columns["form"])["amount"]
        return _Taking(row.columns["id"], at, amount)
