"""Whether the store's requests bear out what a run's steps say of gated calls.

The steps of a run are chained in SQLite alone, and without a key, so that a step is no proof that a gated call was
approved or made. Here are the requests of one run, read once when it goes on. The invariant: a call that a person must
approve counts as made only where its own request says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sayso.effects import Effects, StoreCall
from sayso.errors import AlteredRequestError
from sayso.model.request import Request, State
from sayso.model.run import RunRecord
from sayso.runs.events import RunStatus
from sayso.runs.halt import Halt
from sayso.stores.base import Filter, Store

if TYPE_CHECKING:
    from sayso.runs.frame import Frame

__all__ = ["Proof", "borne_out", "must_be_of", "read_proof"]

_PAGE = 1000


class Proof:
    """The requests of a run, as they stood when it was gone on with.

    Attributes:
        is_read: Whether they have been read.
    """

    def __init__(self, store: Store, run: RunRecord) -> None:
        self._store, self._run = store, run
        self.is_read = False
        self._last: dict[str, Request] = {}
        self._made: dict[str, list[Request]] = {}

    def read(self) -> None:
        """Read them."""
        last: dict[str, Request] = {}
        made: dict[str, list[Request]] = {}
        wanted, cursor, has_more = Filter(run_id=self._run.id, kind="call"), None, True
        while has_more:
            page = self._store.list(wanted, cursor=cursor, limit=_PAGE)
            for request in page.requests:
                if request.place:
                    last[request.place] = request
                elif request.state is State.DONE and request.created_at >= self._run.created_at:
                    made.setdefault(request.call.digest, []).append(request)
            cursor = page.cursor
            has_more = cursor is not None
        self._last, self._made, self.is_read = last, made, True

    def of(self, place: str) -> Request | None:
        """Return the last request that was asked at a place."""
        return self._last.get(place)

    def made(self, digest: str) -> Sequence[Request]:
        """Return the calls with this digest that handlers asked for by themselves and that were made."""
        return self._made.get(digest, ())


def read_proof(frame: Frame) -> Effects[Proof]:
    """Return the requests of a frame's run, read by now."""
    proof, store = frame.journal.proof, frame.journal.store
    if not proof.is_read:
        yield StoreCall(store, proof.read)
    return proof


def borne_out(frame: Frame, known: dict[str, Any]) -> Effects[dict[str, Any]]:
    """Return what is known of a step as far as its request bears it out; else what the request says counts.

    Raises:
        Halt: The call had to be approved, and there is no request that was.
    """
    runnable, journal = frame.runnable, frame.journal
    if runnable.is_free or not journal.is_hearsay(frame.place) or not _is_success(known):
        return known
    request = (yield from read_proof(frame)).of(frame.place)
    if request is not None and request.state is State.DONE:
        return known
    if request is not None and (request.holds or request.state is State.FAILED):
        body = {"waits": request.id, "path": frame.path, "name": runnable.name}
        journal.put(frame.place, body)
        return body
    if runnable.gate.when is True:
        text = f"the run's record says that {frame.path} was done, and no request says so; it is not believed"
        raise Halt(RunStatus(code="error", message=text), error={"type": "AlteredRequestError", "message": text})
    return known  # its rule let it pass


def _is_success(known: dict[str, Any]) -> bool:
    return "status" in known and known["status"]["code"] == "success"


def must_be_of(request: Request, frame: Frame, place: str) -> None:
    """Raise `AlteredRequestError` for a request that was not asked here."""
    if request.run_id != frame.journal.run_id or request.place != place:
        raise AlteredRequestError(request.id, f"it was asked elsewhere than in {frame.path}, which waits for it")
