"""What is promised where several people decide: who may, from when, and what a claim keeps for one of them.

It reads the journal and shares no rule with `sayso.model.lifecycle` and `sayso.model.teamwork`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.promises import Promises, Row

__all__ = ["Teamwork"]

_DECISIONS = {"voted", "approved", "rejected", "feedback", "cancelled"}
_NOT_FOR_STRANGERS = _DECISIONS | {"claimed", "assigned", "released", "extended"}


class Teamwork:
    """The claims, escalations and delegations of one schedule.

    Args:
        promises: Which knows the requests.

    Attributes:
        members: Who may decide at any time; empty where everybody may.
        after: How many seconds later the others may, too.
    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self.members: set[str] = set()
        self.after = 0
        self.begin()

    def begin(self) -> None:
        """Forget what the file said: it is read again."""
        self._escalated: set[str] = set()
        self._claimed: dict[str, str] = {}
        self._claims_ended: dict[tuple[str, str], str] = {}  # whose, by an approval that its reviewer may undo
        self._away: dict[str, tuple[str, int]] = {}

    def take(self, chain: str, request_id: str, event: str, by: str, at: int, detail: dict[str, Any]) -> None:
        """Take an event of the journal, before its request is changed by it."""
        if chain.startswith("sayso:away:"):
            if event == "delegated":
                self._away[by] = detail["to"], at
            else:
                self._away.pop(by, None)
        row = self._promises.rows.get(request_id)
        if row is None or not self.members:
            return
        if event == "escalated":
            if at < row.columns["created_at"] + self.after * 1_000_000:
                raise self._broken(f"{request_id} was escalated too early")
            self._escalated.add(request_id)
        if event in _NOT_FOR_STRANGERS and by.startswith("local:") and "grant" not in detail:
            if by not in self.members and request_id not in self._escalated:
                raise self._broken(f"{request_id} was {event} by {by}, who may not decide it yet")
            self._check_claim(row, event, by, detail)
        self._follow(request_id, event, by, detail)

    def _check_claim(self, row: Row, event: str, by: str, detail: dict[str, Any]) -> None:
        request_id = row.columns["id"]
        claimer = self._claimed.get(request_id)
        if claimer in {None, by} or claimer == detail.get("claimed_by"):  # by force, which the journal says
            return
        if "on_behalf_of" in detail:
            if self._away.get(claimer or "", ("", 0))[0] != by:
                raise self._broken(f"{request_id} was {event} by {by} for {claimer}, for whom they do not stand in")
            return
        has_voted = claimer in row.voters
        missing = self._promises.quorum.get(row.columns["run_id"], 1) - len(row.votes)
        resets = "edited" in detail or "votes_reset" in detail
        may_vote = event in {"voted", "approved"} and not resets and missing > 1
        if not (has_voted or may_vote):
            raise self._broken(f"{request_id} was {event} by {by}, and {claimer} has claimed it")

    def _follow(self, request_id: str, event: str, by: str, detail: dict[str, Any]) -> None:
        claimer = self._claimed.get(request_id)
        match event:
            case "claimed":
                self._claimed[request_id] = by
            case "assigned":
                self._claimed[request_id] = detail["to"]
            case "voted" | "approved":
                is_theirs = by == claimer or "on_behalf_of" in detail
                self._claims_ended[request_id, by] = (claimer or "") if is_theirs else ""
                if is_theirs or event == "approved":
                    self._claimed.pop(request_id, None)
            case "undone" if whose := self._claims_ended.pop((request_id, by), ""):
                self._claimed.setdefault(request_id, whose)
            case "released" | "rejected" | "feedback" | "cancelled" | "withdrawn":
                self._claimed.pop(request_id, None)
            case _:
                pass

    def _broken(self, what: str) -> Exception:
        return self._promises.broken(what)
