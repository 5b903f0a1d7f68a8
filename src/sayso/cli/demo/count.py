"""The count at the end of a demo: what the record promises, against what is on the disk.

Three witnesses must agree: the store (who decided what, and what became of it), the ledger (what the functions say they
did) and the files themselves. `problems` names every disagreement; only an empty list lets the demo exit with 0.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast

from sayso import audit, reviews
from sayso.cli.demo.place import FILES, Effect, Place
from sayso.model import canonical
from sayso.model.request import Request, State
from sayso.stores.base import Store

__all__ = ["Row", "Witnesses", "problems", "rows"]

_DONE = {"delete": "deleted", "move": "moved", "write": "written"}


class Row(NamedTuple):
    """What is shown of one file.

    Attributes:
        name: The file.
        disk: What the disk says.
        record: What the store says.
    """

    name: str
    disk: str
    record: str


class Witnesses(NamedTuple):
    """What is compared.

    Attributes:
        files: The folder that was tidied.
        requests: Every request of the demo, in the order in which they were asked.
        events: Of each request, by id, what the journal says that happened, in order.
        broken: Where the journal does not hold.
        effects: The lines of the ledger.
        present: The files on the disk.
    """

    files: Path
    requests: Sequence[Request]
    events: dict[str, list[str]]
    broken: Sequence[str]
    effects: Sequence[Effect]
    present: set[str]

    @classmethod
    def heard(cls, store: Store, place: Place) -> Witnesses:
        """Read the store, the ledger and the disk."""
        requests = reviews.Review(store).list(state="all").requests
        events: dict[str, list[str]] = {request.id: [] for request in requests}
        for entry in audit.entries(store):
            events.setdefault(entry.request_id, []).append(entry.event)
        broken = [f"run {where.run_id}: {where.reason}" for where in audit.verify(store).broken]
        return cls(place.files, requests, events, broken, place.effects(), place.present())

    def times(self, request: Request) -> int:
        """Count the effects of a request's call."""
        return sum(effect.request == request.id for effect in self.effects)

    def name(self, request: Request) -> str:
        """Return the file that a request is about, as the ledger would write it."""
        shown = cast("dict[str, Any]", canonical.display(request.effective.shown))
        return PurePath(os.path.relpath(self.files / str(shown["path"]), self.files)).as_posix()


def problems(seen: Witnesses, promised: Sequence[Row] | None) -> list[str]:
    """Return every count that is not as promised.

    Args:
        seen: The witnesses.
        promised: The rows that must be there; None where a person was free to decide.
    """
    found = list(seen.broken)
    for request in seen.requests:
        found += _wrong(seen, request)
    found += _unasked(seen)
    found += _wrong_files(seen)
    for row in sorted(set(promised or ()) - set(rows(seen))):
        found.append(f"not so: {row.name} {row.disk}, {row.record}")
    return found


def _wrong(seen: Witnesses, request: Request) -> Iterator[str]:
    times, starts = seen.times(request), seen.events[request.id].count("started")
    allowed = {State.DONE: {1}, State.UNKNOWN: {0, 1}}.get(request.state, {0})
    if times not in allowed:
        yield f"{request.id} is {request.state}, and its call had {times} effects"
    if starts > 1:
        yield f"{request.id} was started {starts} times"
    for effect in seen.effects:
        if effect.request == request.id and effect.path != seen.name(request):
            yield f"{request.id} was approved for {seen.name(request)}, and {effect.path} was {_DONE[effect.did]}"


def _unasked(seen: Witnesses) -> Iterator[str]:
    known = {request.id for request in seen.requests} | {None}
    for effect in seen.effects:
        if effect.request not in known:
            yield f"{effect.did} {effect.path} was done for {effect.request}, which no record knows"
        if effect.request is None and not effect.path.startswith("archive/"):
            yield f"{effect.did} {effect.path} was done, and nobody was asked"


def _wrong_files(seen: Witnesses) -> Iterator[str]:
    expected = set(FILES)
    for effect in seen.effects:
        if effect.did == "delete":
            expected.discard(effect.path)
        else:
            expected.add(effect.path)
            expected.discard(effect.source or "")
    for name in sorted(expected ^ seen.present):
        yield f"{name} is {'gone' if name in expected else 'there'}, and the ledger does not say so"
    twice = Counter((effect.did, effect.path) for effect in seen.effects if effect.request is None)
    for (did, name), times in twice.items():
        if times > 1:
            yield f"{did} {name} was done {times} times"


def rows(seen: Witnesses) -> Iterator[Row]:
    """Yield what is shown, one file each."""
    for effect in seen.effects:
        if effect.request is None:
            yield Row(effect.path, f"{effect.did} 1x", "passed by rule, nobody was asked")
    for request in seen.requests:
        name = seen.name(request)
        is_deletion = request.call.name == "delete"
        there = "still there" if is_deletion else "there"
        disk = f"{there if name in seen.present else 'gone' if is_deletion else 'not there'}, "
        disk += f"{_DONE[request.call.name]} {seen.times(request)}x"
        events = seen.events[request.id]
        yield Row(name, disk, " > ".join([*events, *({str(request.state)} - {events[-1]})]))
