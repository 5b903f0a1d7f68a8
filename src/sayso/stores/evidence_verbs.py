"""The part of a store that is about evidence: the newest row of every chain, and letting go of what is none.

It comes to every store from here, made of its transactions and its other readers; a store that can do it faster does
so. The invariant: the journal's rows stay as they are, whatever is let go, and nothing is let go that may be needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.model.journal import Entry, Head, purged
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunState
from sayso.stores import outbox

__all__ = ["EvidenceVerbs"]

T = TypeVar("T")

_PAGE = 1000


class EvidenceVerbs(ABC):
    """The part of `sayso.stores.base.Store` that is about evidence."""

    @abstractmethod
    def _transact(self, work: Callable[[Any], T | errors.SaysoError]) -> T:
        """Run `work` in one transaction, alone; what it raises undoes everything."""

    @abstractmethod
    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        """Return rows of the journal, ordered by run and place; `after` is the (run, seq) of the last one seen."""

    def heads(self) -> Iterator[Head]:
        """Yield the newest row of every chain, ordered by run."""
        last: Head | None = None
        while True:
            page = self.journal(after=None if last is None else last[:2], limit=_PAGE)
            for entry in page:
                if last is not None and entry.run_id != last.run_id:
                    yield last
                last = Head(entry.run_id, entry.seq, entry.link)
            if len(page) < _PAGE:
                break
        if last is not None:
            yield last

    def purge(self, request_id: str, by: Identity, *, before: datetime, channel: str) -> Request:
        """In one transaction, remove what a request was about that ended before; see `sayso.model.journal`.

        The bytes may stay in the files until `scrub`. Does nothing to one that was purged already.

        Raises:
            RequestNotFoundError: There is no such request.
            PurgeRefusedError: Something can still happen to it, its run still needs it, or it ended later.
        """

        def work(tx: Any) -> Request:
            request: Request = tx.load(request_id)
            run = tx.run(request.run_id)
            if run is not None and run.state is not RunState.ENDED:
                raise errors.PurgeRefusedError(request_id, f"is needed by its run, which is {run.state}")
            change = purged(request, by, before=before, channel=channel, now=tx.now())
            if change is None:
                return request
            tx.update(change)
            for name in tx.slip_keys(outbox.CHANNEL):
                if tx.find_slip(outbox.delivery_kind(name), request_id) is not None:
                    tx.drop_slip(outbox.delivery_kind(name), request_id)
            if tx.find_slip(outbox.RESULT, request_id) is not None:
                tx.drop_slip(outbox.RESULT, request_id)
            return change.request

        return self._transact(work)

    def purge_run(self, run_id: str, by: Identity, *, before: datetime, channel: str) -> None:
        """In one transaction, remove all steps of a run that ended before; it is never begun again.

        Raises:
            RunNotFoundError: There is no such run.
            PurgeRefusedError: It has not ended, or later.
        """

        def work(tx: Any) -> None:
            run = tx.run(run_id)
            if run is None:
                raise errors.RunNotFoundError(run_id)
            if run.state is not RunState.ENDED or run.updated_at >= before:
                raise errors.PurgeRefusedError(run_id, f"is {run.state} since {run.updated_at:%Y-%m-%d %H:%M:%S}Z")
            tx.drop_steps(run_id)
            tx.note(run_id, "purged", by, channel, {"what": "steps", "before": clock.written(before)})

        self._transact(work)

    def scrub(self) -> bool:
        """Let nothing of what was removed remain in the files of the store.

        Returns:
            Whether nothing remains; where not, others were reading meanwhile, and it is to be tried again.
        """
        return True
