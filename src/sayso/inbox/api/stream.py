"""The event stream, `/v1/events`: what happens to requests, as server-sent events that can be taken up again.

Each event has an id; a client that comes back with the last one (`Last-Event-ID`, or `?after=`) gets what followed.
Where that is not kept, it gets `reset` first, and looks at the lists anew. The invariant: nothing is left out in
silence, and a token that was revoked hears no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from pydantic import Field
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from sayso import errors
from sayso.inbox.api.happenings import Happening, Happenings
from sayso.inbox.api.look import Query
from sayso.inbox.api.operation import Asked, Operation
from sayso.inbox.api.principal import is_still_good
from sayso.inbox.live import End

__all__ = ["OPERATIONS", "EventsQuery", "events"]

_PING, _CHECK = 20, 30
_FRESH = 0.05
_GRACE = 0.2  # for streams to end by themselves, before they are cut off
_MEDIA_TYPE = "text/event-stream"


class EventsQuery(Query):
    """From where on."""

    after: Annotated[
        str | None, Field(max_length=100, description="Id of the last event seen, where Last-Event-ID cannot be sent.")
    ] = None


class _Stream:
    """The events of one client.

    Attributes:
        over: Set when the server ends.

    Args:
        last: Id of the last event that it saw; None for one that begins.
    """

    def __init__(self, asked: Asked, last: str | None) -> None:
        self._asked = asked
        self._happenings: Happenings = asked.http.app.state.happenings
        self._last = last
        self._bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.over = End(self._bell)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._bell.set)
        except RuntimeError:
            return  # the loop has ended, and with it this stream

    async def events(self) -> AsyncIterator[bytes]:
        """Yield what happens."""
        end = await run_in_threadpool(self._happenings.listen, self._wake)
        try:
            seen = self._begin()
            if seen is None:
                seen = self._happenings.number
                yield self._event(seen, "open" if self._last is None else "reset", "{}")
            while True:
                self._bell.clear()
                found = await self._since(seen)
                # After the look: what happened once somebody was shut out is never sent to them.
                if not await run_in_threadpool(is_still_good, self._asked.http, self._asked.principal):
                    return
                if found is None:
                    seen = self._happenings.number
                    yield self._event(seen, "reset", "{}")
                elif found:
                    seen = found[-1].number
                    if said := b"".join(
                        self._event(one.number, "request", one.told) for one in found if self._is_mine(one)
                    ):
                        yield said  # in one piece: many clients that hear of many things at once are much to send
                await self._rung()
                if self.over.is_set:
                    return
        finally:
            end()

    def _begin(self) -> int | None:
        """Return the number of the event that the client saw last; None where it has none of this server's life."""
        life, _, number = (self._last or "").partition("-")
        is_ours = life == self._happenings.life and number.isascii() and number.isdigit() and len(number) < 18
        return int(number) if is_ours else None

    async def _since(self, seen: int) -> list[Happening] | None:
        try:
            return await run_in_threadpool(self._happenings.since, seen)
        except errors.StoreError:  # the next event, or the next check, looks again
            return []

    def _is_mine(self, happening: Happening) -> bool:
        who = self._asked.principal
        return who.kind != "ask" or happening.is_of(who.requester)

    def _event(self, number: int, event: str, said: str) -> bytes:
        return f"id: {self._happenings.life}-{number}\r\nevent: {event}\r\ndata: {said}\r\n\r\n".encode()

    async def _rung(self) -> None:
        """Wait for an event, the server's end, or until it is time to see whether the client may still hear."""
        with anyio.move_on_after(_CHECK):
            await self._bell.wait()
        if not self.over.is_set:
            await asyncio.sleep(_FRESH)  # a burst is one look


async def events(asked: Asked) -> Response:
    """Stream."""
    if asked.http.method == "HEAD":
        return Response(media_type=_MEDIA_TYPE)
    last = asked.http.headers.get("last-event-id") or asked.said(EventsQuery).after
    stream = _Stream(asked, last)
    over: Any = stream.over  # of anyio's event nothing but `set` is asked
    return EventSourceResponse(stream.events(), ping=_PING, shutdown_event=over, shutdown_grace_period=_GRACE)


OPERATIONS = (
    Operation(
        "GET", "/v1/events", "What happens to requests, as server-sent events", events, query=EventsQuery,
        media_type=_MEDIA_TYPE, headers={"Last-Event-ID": "Id of the last event seen; what followed is sent."},
    ),
)  # fmt: skip
