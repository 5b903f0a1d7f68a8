"""The Confirm: a request for approval, and the decisions on it, as the protocol writes them.

Beside its fields, which are the protocol's, a Confirm knows whether it is the view of requests in a store (`home`).
What changes a Confirm is in `sayso.mplp.round`. Invariant: its status follows from decisions and is never assigned,
and a locked Confirm does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, PrivateAttr

from sayso import clock
from sayso.model.request import Request
from sayso.mplp.document import Document, Part
from sayso.mplp.fault import ConfirmLockedError, ConfirmRefusedError
from sayso.mplp.ids import new_id
from sayso.mplp.part import Event, Governance, Meta, Trace, fresh_meta
from sayso.mplp.plan import Plan
from sayso.mplp.reading import pointer
from sayso.mplp.series import Series
from sayso.mplp.status import ConfirmStatus, DecisionStatus, TargetType

__all__ = ["Confirm", "Decision", "Home"]


class Decision(Part):
    """What one reviewer said.

    The protocol knows a reviewer by a role; where a person decided through a channel of sayso it is the person's name.
    """

    decision_id: str = Field(default_factory=new_id)
    status: DecisionStatus
    decided_by_role: str
    decided_at: datetime = Field(default_factory=clock.now)
    reason: str | None = None


@dataclass(frozen=True)
class Home:
    """Where a Confirm came from.

    Attributes:
        store: The store, or its address, whose requests it is a view of; None for one that was only written down.
        plan: The plan that was submitted with it in this program, whose status follows.
        seen: Which request it was read from, and that one's fingerprint then; None for one that was only written down.
    """

    store: Any = field(default=None, compare=False)
    plan: Plan | None = field(default=None, compare=False)
    seen: tuple[str, str] | None = field(default=None, compare=False)

    def __deepcopy__(self, memo: object) -> Home:
        return self  # a store is not copied with what was read from it

    def __reduce__(self) -> tuple[Any, ...]:
        return Home, (getattr(self.store, "url", self.store), None, self.seen)


class Confirm(Document):
    """A request for approval.

    What is not given is filled in: `meta`, `confirm_id`, `requested_at`, and the status `pending`. What cannot be
    conformant, such as a `target_id` that is no UUID, is refused by `export`, and not before.

    Raises:
        ConfirmLockedError: A field is assigned while `governance.locked` is true.
        ConfirmRefusedError: The status is assigned.
    """

    meta: Meta = Field(default_factory=fresh_meta)
    governance: Governance | None = None
    confirm_id: str = Field(default_factory=new_id)
    target_type: TargetType
    target_id: str
    status: ConfirmStatus = ConfirmStatus.PENDING
    requested_by_role: str
    requested_at: datetime = Field(default_factory=clock.now)
    reason: str | None = None
    decisions: Annotated[list[Decision], AfterValidator(Series)] = Field(default=[], validate_default=True)
    trace: Trace | None = None
    events: Annotated[list[Event], AfterValidator(Series)] | None = None

    _home: Home = PrivateAttr(default_factory=Home)

    @property
    def home(self) -> Home:
        """Where it came from."""
        return self._home

    @property
    def is_locked(self) -> bool:
        """Whether it refuses changes."""
        return self.governance is not None and self.governance.locked is True

    @classmethod
    def from_request(cls, request: Request, *rounds: Request) -> Confirm:
        """Return a request of sayso as a Confirm: a call, a question, a run that waits as a whole, or a plan.

        Reads nothing but what is given, and changes nothing.

        Args:
            request: The request.
            rounds: Where it was asked again, the requests of the further rounds.
        """
        from sayso.mplp.view import confirm_of

        asked = (request, *rounds)
        return confirm_of(asked).at_home(None, seen=asked[-1])

    @classmethod
    def beyond_schema(cls, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield the ids that stand twice."""
        for name, key in (("decisions", "decision_id"), ("events", "event_id")):
            yield from _twice(document.get(name) or (), name, key)

    def at_home(self, store: Any, plan: Plan | None = None, *, seen: Request) -> Self:
        """Note where it came from, and as what it was read there; return it."""
        self._home = Home(store, plan if plan is not None else self._home.plan, (seen.id, seen.current_fingerprint))
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).model_fields:
            if self.is_locked and name != "governance":
                raise ConfirmLockedError(self.confirm_id)
            if name == "status" and value != self.status:
                reason = f"the status of {self.confirm_id} follows from decisions; use add_decision or process_decision"
                raise ConfirmRefusedError(self.confirm_id, reason)
        super().__setattr__(name, value)


def _twice(items: Sequence[Mapping[str, Any]], name: str, key: str) -> Iterator[str]:
    """Yield the places of items whose id another one before them has."""
    seen = set[str]()
    for index, item in enumerate(items):
        if item[key] in seen:
            yield f"{pointer(name, index, key)}: {item[key]!r} is the id of another one already"
        seen.add(item[key])
