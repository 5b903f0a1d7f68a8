"""What followed a place of the ring, as the bytes that a stream sends: written once for all who stand there.

The invariant: who asks through a token of the kind `ask` is handed what is about their own requests, and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from sayso import errors
from sayso.model.reviewer import Identity
from sayso.server.api.happenings import Happening, Happenings
from sayso.server.api.principal import Principal

__all__ = ["Piece", "Pieces", "written"]

_MOST = 500  # events in one piece, which lies in memory for as long as its reader does not read


class Piece(NamedTuple):
    """What one stream is handed.

    Attributes:
        number: Of the last event that it deals with.
        said: What to send; empty where none of it is for this reader.
        is_all: Whether nothing is left behind it.
    """

    number: int
    said: bytes
    is_all: bool = True


class Pieces:
    """What one look at the ring found.

    Attributes:
        fault: Why the store did not answer, if it did not; nothing is lost by that.
    """

    def __init__(self, happenings: Happenings) -> None:
        self._happenings = happenings
        self._found: dict[int, list[Happening] | int] = {}
        self._written: dict[int, bytes] = {}
        self._pieces: dict[tuple[int, Identity | None], Piece] = {}
        self.fault: errors.StoreError | None = None

    def look(self, seen: int) -> None:
        """Look up what followed an event; reads the store."""
        try:
            found = self._happenings.since(seen)
        except errors.StoreError as fault:
            self._found[seen], self.fault = [], fault
            return
        self._found[seen] = self._happenings.number if found is None else found

    def of(self, seen: int, who: Principal) -> Piece:
        """Return what followed, for this reader; it was looked up."""
        found = self._found[seen]
        if isinstance(found, int):
            return Piece(found, written(self._happenings.life, found, "reset", "{}"))
        if not found:
            return Piece(seen, b"")
        requester = who.requester if who.kind == "ask" else None
        place = seen, requester
        if place not in self._pieces:
            part = found[:_MOST]
            said = b"".join(self._said(one) for one in part if requester is None or one.is_of(requester))
            self._pieces[place] = Piece(part[-1].number, said, len(part) == len(found))
        return self._pieces[place]

    def _said(self, one: Happening) -> bytes:
        if one.number not in self._written:
            self._written[one.number] = written(self._happenings.life, one.number, "request", one.told)
        return self._written[one.number]


def written(life: str, number: int, event: str, said: str) -> bytes:
    """Return one event as a stream says it."""
    return f"id: {life}-{number}\r\nevent: {event}\r\ndata: {said}\r\n\r\n".encode()
