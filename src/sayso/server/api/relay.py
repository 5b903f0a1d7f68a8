"""Who hears what happens: one look at the ring, in one thread, for all streams that wait in one event loop.

When something happened, the ring is looked at, then whether each reader may still hear, and then what they are handed
is written. Who is still sending does not wait, and nothing is kept for them: when they come back they are handed what
followed, a bounded piece at a time. The invariant: nobody is handed what was looked up after they were last let in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
from starlette.concurrency import run_in_threadpool

from sayso import errors
from sayso.server.api.happenings import Happenings
from sayso.server.api.piece import Piece, Pieces
from sayso.server.api.principal import Principal

__all__ = ["Listener", "Relay", "Relays"]

_log = logging.getLogger("sayso.server")

_CHECK = 30
_FRESH = 0.05
_AGAIN = 1.0  # until a store that did not answer is looked at again


@dataclass(eq=False)
class Listener:
    """One stream, which waits or sends.

    Attributes:
        who: Who reads it.
        is_good: Says whether they still may; reads the store.
        seen: Number of the last event that it dealt with.
        bell: Wakes it.
        found: What it is handed; None is the end.
        turn: The last look that was for it too.
    """

    who: Principal
    is_good: Callable[[], bool]
    seen: int
    bell: asyncio.Event
    found: bytes | None = None
    turn: int = -1

    @property
    def door(self) -> tuple[str | None, int]:
        """By what the reader was let in; streams of one token, or of one session, are shut out together."""
        return self.who.token_id, id(self.who.session)


class Relay:
    """The streams of one event loop.

    Everything here is done in that loop, apart from `ring`, which any thread calls, and `_look`, which has its own.
    """

    def __init__(self, happenings: Happenings, loop: asyncio.AbstractEventLoop) -> None:
        self._happenings, self._loop = happenings, loop
        self._open = 0
        self._waiting: dict[Listener, None] = {}
        self._rung, self._is_rung = asyncio.Event(), False
        self._turn = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_left(self) -> bool:
        """Whether no stream is open any more."""
        return self._open == 0

    def ring(self) -> None:
        """Have it looked again; called after a change, by any thread."""
        if self._is_rung:
            return  # of many changes at once one wakes the loop, and the look that follows sees them all
        self._is_rung = True
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:
            return  # the loop has ended, and with it every stream

    @contextmanager
    def open(self) -> Generator[None]:
        """Look after one stream more while the block runs."""
        self._open += 1
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        try:
            yield
        finally:
            self._open -= 1
            if self.is_left:
                self._end()

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def heard(self, one: Listener) -> bytes | None:
        """Wait for what this stream sends next; None where its reader is shut out, or who has its bell rang it."""
        if one.turn != self._turn:
            self._rung.set()  # it has just begun, or a look went by while it sent
        self._waiting[one] = None
        try:
            await one.bell.wait()
        finally:
            self._waiting.pop(one, None)
        one.bell.clear()
        said, one.found = one.found, None  # the stream's alone from now on
        return said

    async def _run(self) -> None:
        while True:
            with anyio.move_on_after(_CHECK):
                await self._rung.wait()
            await asyncio.sleep(_FRESH)  # a burst is one look
            # Before the look: what happens while it looks is looked for again.
            self._rung.clear()
            self._is_rung = False
            self._turn += 1
            asked = list(self._waiting)
            for one in asked:
                one.turn = self._turn
            if asked:
                await self._serve(asked)

    async def _serve(self, asked: Sequence[Listener]) -> None:
        found: Sequence[Piece | None]
        try:
            found, fault = await run_in_threadpool(self._look, asked)
        except Exception:  # noqa: BLE001  one line for all: streams that end are taken up again, and silence is not noticed
            _log.exception("streams of events could not be told what happened, and end")
            found, fault = [None] * len(asked), None
        for one, piece in zip(asked, found, strict=True):
            if one in self._waiting:  # and has not gone meanwhile
                self._hand(one, piece)
        if fault is not None:
            _log.warning("streams of events could not be told what happened (%s); it is tried again", fault)
            self._loop.call_later(_AGAIN, self._rung.set)

    def _hand(self, one: Listener, piece: Piece | None) -> None:
        if piece is not None:
            one.seen = piece.number
            if not piece.is_all:
                one.turn = -1  # when it comes back, the rest is looked up at once
            if not piece.said:
                if not piece.is_all:
                    self._rung.set()
                return
        del self._waiting[one]  # now and not when it wakes: what it was handed must not be replaced
        one.found = None if piece is None else piece.said
        one.bell.set()

    def _look(self, asked: Sequence[Listener]) -> tuple[Sequence[Piece | None], errors.StoreError | None]:
        """Return what to hand to each, None to who may hear no more, and why the store did not answer."""
        pieces = Pieces(self._happenings)
        for seen in {one.seen for one in asked}:
            pieces.look(seen)
        # After the look: what happened once somebody was shut out is never sent to them.
        doors = {door: _is_open(one) for door, one in {one.door: one for one in asked}.items()}

        def handed(one: Listener) -> Piece | None:
            is_open = doors[one.door]
            if isinstance(is_open, errors.StoreError):
                return Piece(one.seen, b"")  # nothing, while nobody can say whether they may hear it
            return pieces.of(one.seen, one.who) if is_open else None

        faults = (said for said in doors.values() if isinstance(said, errors.StoreError))
        return [handed(one) for one in asked], next(faults, pieces.fault)


def _is_open(one: Listener) -> bool | errors.StoreError:
    try:
        return one.is_good()
    except errors.StoreError as fault:
        return fault


class Relays:
    """The relays of one server, one for each event loop."""

    def __init__(self, happenings: Happenings) -> None:
        self._happenings = happenings
        self._relays: dict[asyncio.AbstractEventLoop, Relay] = {}

    def here(self) -> Relay:
        """Return the relay of the running loop."""
        loop = asyncio.get_running_loop()
        for other, relay in list(self._relays.items()):  # other loops do the same in their threads
            if relay.is_left or other.is_closed():
                self._relays.pop(other, None)
        return self._relays.setdefault(loop, Relay(self._happenings, loop))
