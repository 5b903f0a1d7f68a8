"""The count at the end of a demo: what the record promises, against what is on the disk.

Three witnesses must agree: the store (who decided what, and what became of it), the ledger (what the functions say they
did) and the files themselves. `problems` names every disagreement; an empty list is the demo's exit code 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from sayso import audit, reviews
from sayso.cli.demo.place import FILES, Effect, Place
from sayso.model import canonical
from sayso.model.request import Request, State
from sayso.stores.base import Store

__all__ = ["Witnesses", "problems", "rows"]


class Witnesses(NamedTuple):
    """What is compared.

    Attributes:
        requests: Every request of the demo, in the order in which they were asked.
        events: Of each request, by id, what the journal says that happened, in order.
        broken: Where the journal does not hold.
        effects: The lines of the ledger.
        present: The files on the disk.
    """

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
        return cls(requests, events, broken, place.effects(), place.present())

    def times(self, request: Request) -> int:
        """Count the effects of a request's call."""
        return sum(effect.request == request.id for effect in self.effects)


def problems(seen: Witnesses, script: Sequence[tuple[str, ...]] | None) -> list[str]:
    """Return every count that is not as promised.

    Args:
        seen: The witnesses.
        script: What must have happened to each request, in order; None where a person was free to decide.
    """
    found = list(seen.broken)
    for request in seen.requests:
        found += _wrong(seen, request)
    found += _unasked(seen)
    found += _wrong_files(seen)
    if script is not None:
        happened = [tuple(seen.events[request.id]) for request in seen.requests]
        found += [] if happened == list(script) else [f"the journal tells another story: {happened}"]
    return found


def _wrong(seen: Witnesses, request: Request) -> Iterable[str]:
    times, starts = seen.times(request), seen.events[request.id].count("started")
    allowed = {State.DONE: {1}, State.UNKNOWN: {0, 1}}.get(request.state, {0})
    if times not in allowed:
        yield f"{request.id} is {request.state}, and its call had {times} effects"
    if starts > 1:
        yield f"{request.id} was started {starts} times"
    for effect in seen.effects:
        if effect.request == request.id and effect.path != PurePath(_path(request)).as_posix():
            yield f"{request.id} was approved for {_path(request)}, and {effect.path} was deleted"


def _unasked(seen: Witnesses) -> Iterable[str]:
    known = {request.id for request in seen.requests} | {None}
    for effect in seen.effects:
        if effect.request not in known:
            yield f"{effect.did} {effect.path} was done for {effect.request}, which no record knows"
        if effect.request is None and not effect.path.startswith("archive/"):
            yield f"{effect.did} {effect.path} was done, and nobody was asked"


def _wrong_files(seen: Witnesses) -> Iterable[str]:
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


def _path(request: Request) -> str:
    shown = cast("dict[str, Any]", canonical.display(request.effective.shown))
    return str(shown["path"])


def rows(seen: Witnesses) -> Iterable[tuple[str, str, str]]:
    """Yield what is shown: the file, what is on the disk, and what the record says."""
    for effect in seen.effects:
        if effect.request is None:
            yield effect.path, f"{effect.did} 1x", "passed by rule, nobody was asked"
    for request in seen.requests:
        name = _path(request)
        there = "still there" if name in seen.present else "gone"
        yield name, f"{there}, deleted {seen.times(request)}x", " > ".join(seen.events[request.id])
