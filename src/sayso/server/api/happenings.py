"""What happens to requests, in the order in which this server noticed it: a bounded ring that streams read from.

Every event is a row of the journal. It is noticed when the store rings, whichever process wrote it, and kept with a
number; who comes back with the last number that it saw gets what followed, and where that is not kept any more
(10,000 events, or this server's life) it is told so and looks anew. The invariant: an event is never left out in
silence, and one look at the store serves all streams.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice

from sayso import errors
from sayso.clock import instant, written
from sayso.model.ids import new_token
from sayso.model.journal import Entry
from sayso.model.request import LIVE, Request, State
from sayso.model.reviewer import Identity
from sayso.stores.base import Filter, Store, Unwatch

__all__ = ["Happening", "Happenings"]

_log = logging.getLogger("sayso.server")

KEPT = 10_000
FOLLOWED = 5_000
_PAGE = 500
_LIVE = Filter(states=LIVE)


@dataclass(frozen=True, slots=True)
class Happening:
    """One event.

    Attributes:
        number: Its place in this server's life.
        requester: Who asked for what it is about.
        state: Where that stood when the event was noticed.
        entry: The row of the journal.
    """

    number: int
    requester: Identity  # not the whole request: ten thousand of these stay in memory
    state: State
    entry: Entry

    def is_of(self, requester: Identity) -> bool:
        """Say whether this requester asked for it."""
        return self.requester.is_same(requester)

    @property
    def told(self) -> str:
        """What a stream says of it, as JSON: no argument, and no word of a person."""
        entry = self.entry
        said = {
            "event": entry.event, "request": entry.request_id, "run": entry.run_id, "state": str(self.state),
            "by": entry.by, "channel": entry.channel, "at": written(instant(entry.at)),
        }  # fmt: skip
        return json.dumps(said)


@dataclass(slots=True)
class _Followed:
    """A request that may still change: up to which row it was told, and how to stop watching it."""

    seq: int
    unwatch: Unwatch


class Happenings:
    """The ring of one server.

    Attributes:
        life: Says in the ids of events of which server's life they are.
    """

    def __init__(self, store: Store) -> None:
        self.life = new_token()[:8]
        self._store = store
        self._lock = threading.Lock()  # of many streams that wake together one looks, and the others find it done
        self._kept: deque[Happening] = deque(maxlen=KEPT)
        self._number = 0
        self._followed: dict[str, _Followed] | None = None  # None until somebody listens, and while there are too many
        self._newest: str | None = None
        self._rung: deque[str] = deque()  # ids of requests that changed; added to from any thread
        self._note = self._rung.append
        self._listeners: dict[object, Callable[[], None]] = {}
        self._unwatch: Unwatch | None = None
        self._has_rung = threading.Event()  # since the last look

    # -- listening ---------------------------------------------------------------------------------------------

    def listen(self, wake: Callable[[], None]) -> Unwatch:
        """Call `wake`, from some thread, when something may have happened; reads the store."""
        mine = object()
        with self._lock:
            if self._unwatch is None:
                self._unwatch = self._store.watch_all(self._ring)
                try:
                    self._go_on()
                except BaseException:
                    self._pause()  # so that the next one who listens begins anew
                    raise
            self._listeners[mine] = wake

        def end() -> None:
            with self._lock:
                self._listeners.pop(mine, None)
                if not self._listeners:
                    self._pause()

        return end

    def _ring(self) -> None:
        self._has_rung.set()  # before they wake, so that the first of them looks
        for wake in set(self._listeners.values()):  # many streams are woken by one
            wake()

    def _watch(self, request_id: str) -> Unwatch:
        return self._store.watch(request_id, partial(self._note, request_id))  # smaller than a function for each

    def _go_on(self) -> None:
        self._has_rung.set()
        if self._followed is None:
            self._begin()
            return
        for request_id, followed in self._followed.items():  # what happened while nobody listened is caught up with
            followed.unwatch = self._watch(request_id)
            self._rung.append(request_id)

    def _pause(self) -> None:
        for followed in (self._followed or {}).values():
            followed.unwatch()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _begin(self) -> None:
        """Follow what is open now, if that is not too much."""
        self._followed = None
        newest = self._store.list(Filter(), limit=1, newest=True).requests
        self._newest = newest[0].id if newest else None
        if self._store.count(_LIVE) > FOLLOWED:
            return
        found = dict[str, _Followed]()
        try:
            self._follow_open(found)
        except BaseException:
            for followed in found.values():
                followed.unwatch()
            raise
        self._followed = found  # all of them or none

    def _follow_open(self, found: dict[str, _Followed]) -> None:
        cursor = None
        while True:
            page = self._store.list(_LIVE, cursor=cursor, limit=_PAGE)
            for request in page.requests:
                followed = found[request.id] = _Followed(0, self._watch(request.id))
                followed.seq = max((row.seq for row in self._news(request.id, 0)[1]), default=0)
            cursor = page.cursor
            if cursor is None:
                return

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of the last event that was noticed."""
        return self._number

    def since(self, number: int) -> list[Happening] | None:
        """Return what followed an event, looked up once for all who ask at the same time; None where that is lost."""
        with self._lock:
            if self._has_rung.is_set():
                self._has_rung.clear()  # before the look: what rings meanwhile is looked for again
                try:
                    self._look()
                except BaseException:
                    self._has_rung.set()  # the next one who asks looks again
                    raise
            if not self._number - len(self._kept) <= number <= self._number:
                return None
            newest = list(islice(reversed(self._kept), self._number - number))  # the numbers have no gap
            return newest[::-1]

    def _look(self) -> None:
        if self._followed is None:
            self._lose()
            return
        rung = {self._rung.popleft() for _ in range(len(self._rung))}
        try:
            fresh = self._new(self._followed)
            wanted = {**dict.fromkeys(rung & self._followed.keys()), **fresh}
            found = [news for one in wanted if (news := self._legible(one, self._followed[one].seq)) is not None]
        except BaseException:
            self._rung.extend(rung)
            raise
        for request_id in fresh:
            self._newest = request_id
        for request, row in sorted(
            ((request, row) for request, rows in found for row in rows),
            key=lambda one: (one[1].at, one[1].run_id, one[1].seq),
        ):
            self._followed[request.id].seq = row.seq
            self._number += 1
            self._kept.append(Happening(self._number, request.requester, request.state, row))
        for request, _ in found:
            if request.is_final:
                self._followed.pop(request.id).unwatch()
        if len(self._followed) > FOLLOWED:
            self._lose()

    def _new(self, followed: dict[str, _Followed]) -> dict[str, None]:
        """Return the ids of requests that were asked since, oldest first, and follow them."""
        found: list[str] = []
        cursor, limit = None, 20
        while True:
            page = self._store.list(Filter(), cursor=cursor, limit=limit, newest=True)
            for request in page.requests:
                if request.id == self._newest:
                    return dict.fromkeys(reversed(found))
                if request.id not in followed:
                    followed[request.id] = _Followed(0, self._watch(request.id))
                found.append(request.id)
            cursor, limit = page.cursor, _PAGE
            if cursor is None:
                return dict.fromkeys(reversed(found))

    def _legible(self, request_id: str, seq: int) -> tuple[Request, list[Entry]] | None:
        try:
            return self._news(request_id, seq)
        except errors.StoreCorruptError as fault:  # one damaged row must not keep everybody from hearing of the others
            _log.warning("streams of events are not told of %s, which cannot be read: %s", request_id, fault)
            return None

    def _news(self, request_id: str, seq: int) -> tuple[Request, list[Entry]]:
        # The request first: what happens to it after that rings once more, and is told then.
        request = self._store.get(request_id)
        after = (request.run_id, seq)
        return request, list(self._store.journal(run_id=request.run_id, request_id=request_id, after=after))

    def _lose(self) -> None:
        """Let everybody look anew: more requests are open, or were, than can be followed."""
        self._number += 1
        self._kept.clear()
        for followed in (self._followed or {}).values():
            followed.unwatch()
        self._begin()
