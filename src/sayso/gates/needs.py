"""What a gate wants of a request before its call may run: how many must have agreed, and who may not have.

A request is found again by its call; the gate, its rule or the run around it may ask for more by then. The one
invariant: nothing runs by an approval that the gate would not take today, and a request that is put in the place of
another asks for no less than that one did.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from sayso.model.quorum import Escalation, Quorum
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity

__all__ = ["Needs", "spent"]


class Needs(NamedTuple):
    """What an approval needs here and now.

    Attributes:
        quorum: Who must agree.
        barred: The persons for whom the program acts.
        escalation: Who else may decide when the request has waited for long.
        retries: How many further starts a call that failed may have; the record may give fewer.
        idempotent: Whether it may be started again however it ended, if the record says so too.
    """

    quorum: Quorum
    barred: tuple[Identity, ...] = ()
    escalation: Escalation | None = None
    retries: int = sys.maxsize
    idempotent: bool = True

    def unmet_by(self, request: Request) -> str | None:
        """Return why a request that waits, or that was approved, is not enough; None where it is."""
        if not request.quorum.covers(self.quorum):
            return f"it was asked of {request.quorum}, and the gate wants {self.quorum} now"
        if self.quorum.roles and self._is_too_open(request):
            return f"it is, or will be, open to {request.escalation} too, and the gate does not want that now"
        lacks = spent(request, self.retries, idempotent=self.idempotent)
        if lacks is not None:
            return lacks
        if not self.barred:
            return None
        if request.state is State.PENDING:
            new = [person for person in self.barred if person not in request.acts_for]
            return f"the program acts for {', '.join(map(str, new))} now, who could decide it" if new else None
        deciders = [vote.by for vote in request.votes]
        if request.decision is not None:
            deciders.append(request.decision.by)
        own = [by for by in deciders if any(by.may_be(person) for person in self.barred)]
        return f"it was decided by {own[0]}, for whom the program acts" if own else None

    def _is_too_open(self, request: Request) -> bool:
        """Say whether somebody decided, or may still decide, whom only an escalation lets in that is not the gate's."""
        theirs = request.escalation
        if theirs is None or (request.state is not State.PENDING and request.escalated_at is None):
            return False
        return theirs != self.escalation and not theirs.is_within(self.escalation)

    def joined(self, request: Request) -> Needs:
        """Return what is to be asked for instead of `request`: what it asked for, and what is needed now."""
        also = tuple(person for person in request.acts_for if person not in self.barred)
        mine, theirs = self.escalation, request.escalation
        both = mine if mine is not None and mine.is_within(theirs) else theirs
        escalation = both if both is not None and both.is_within(mine) else None
        return self._replace(
            quorum=self.quorum.joined(request.quorum), barred=self.barred + also, escalation=escalation
        )


def spent(request: Request, retries: int, *, idempotent: bool) -> str | None:
    """Return why an approval has no start left; None where it has one, or where this very start is its next one.

    The stricter of the record and the gate counts: whoever wrote the gate may have taken back what it once allowed.

    Args:
        request: As it stands, before its next start or just after it.
        retries: How many further starts the gate gives a call that failed.
        idempotent: Whether the gate lets a call be started again however it ended.
    """
    last = request.execution
    if last is None or (request.idempotent and idempotent):
        return None
    before = last.attempt - (request.state is State.RUNNING)
    allowed = min(request.retries, retries)
    if before <= allowed:
        return None
    return f"it was started {before} time{'s' if before > 1 else ''}, and the gate allows {allowed + 1} now"
