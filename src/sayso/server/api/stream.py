"""The event stream, `/v1/events`: what happens to requests, as server-sent events that can be taken up again.

Each event has an id; a client that comes back with the last one (`Last-Event-ID`, or `?after=`) gets what followed.
Where that is not kept, it gets `reset` first, and looks at the lists anew. The invariant: nothing is left out in
silence, and a token that was revoked hears no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from sayso.server.api.happenings import Happenings
from sayso.server.api.look import Query
from sayso.server.api.operation import Asked, Operation
from sayso.server.api.piece import written
from sayso.server.api.principal import is_still_good
from sayso.server.api.relay import Listener, Relays
from sayso.server.live import End

__all__ = ["OPERATIONS", "EventsQuery", "events"]

_PING = 20
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
        self._relays: Relays = asked.http.app.state.relays
        self._last = last
        self._bell = asyncio.Event()
        self.over = End(self._bell)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield what happens, many events in one piece: many clients that hear of many things are much to send."""
        relay = self._relays.here()
        with relay.open():
            end = await run_in_threadpool(self._happenings.listen, relay.ring)
            try:
                seen = self._begin()
                if seen is None:
                    seen = self._happenings.number
                    yield written(self._happenings.life, seen, "open" if self._last is None else "reset", "{}")
                is_good = partial(is_still_good, self._asked.http, self._asked.principal)
                listener = Listener(self._asked.principal, is_good, seen, self._bell)
                while (said := await relay.heard(listener)) is not None and not self.over.is_set:
                    yield said
            finally:
                # In a thread, and not waited for: a look that is under way may take as long as the store does.
                asyncio.get_running_loop().run_in_executor(None, end)

    def _begin(self) -> int | None:
        """Return the number of the event that the client saw last; None where it has none of this server's life."""
        life, _, number = (self._last or "").partition("-")
        is_ours = life == self._happenings.life and number.isascii() and number.isdigit() and len(number) < 18
        return int(number) if is_ours else None


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
