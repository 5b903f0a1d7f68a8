"""`/metrics` for Prometheus: what waits and for how long, what was decided, what expired or is unknown, and channels.

Gauges are read from the store, at most every five seconds however often somebody asks. Counters count what this server
noticed since it was first asked, whichever program or person did it; two servers of one store count the same things.
It takes the extra `metrics`. The invariant: there is no argument in it, no word of a person, and no label whose values
a program could make up without end.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as Http
from starlette.responses import PlainTextResponse, Response

from sayso import clock, errors
from sayso.channels.outbox import health
from sayso.clock import instant
from sayso.model.request import State
from sayso.server.api.endpoint import principal_of
from sayso.server.api.events import EventLog, LoggedEvent
from sayso.server.api.problems import Problem
from sayso.server.guard import LOOPBACK
from sayso.server.visit import Settings
from sayso.stores.base import Filter, Store, Unwatch

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["TOKEN", "Metrics", "by_age", "by_state", "metrics"]

TOKEN = "SAYSO_METRICS_TOKEN"  # noqa: S105  the name of a variable
"""Names the variable with what a scraper sends as its bearer token, for a server that other machines reach."""

_SHORTEST = 16
_FRESH = timedelta(seconds=5)
_LINGER = 600.0  # seconds; scrapers come every minute or oftener
_PAGE, _MOST = 500, 20
_AGES = {"0s": 0, "1m": 60, "10m": 600, "1h": 3_600, "1d": 86_400}
_BUCKETS = (1, 3, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400)
_VERBS = {
    "approved": "approve", "rejected": "reject", "feedback": "feedback", "answered": "answer", "cancelled": "cancel",
    "voted": "vote",
}  # fmt: skip
_ENDS = ("expired", "unknown", "done", "failed")
_MEDIA = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The numbers of one server.

    Args:
        store: Where the requests are.
        event_log: What happens to them.

    Attributes:
        token: What a scraper may send; None where none is set.

    Raises:
        ConfigError: The one that is set is too short.
    """

    def __init__(self, store: Store, event_log: EventLog) -> None:
        self.token = _token()
        self._store, self._event_log = store, event_log
        self._lock = threading.Lock()  # of scrapers that ask at once, one looks and the others get what it found
        self._number = 0  # of the last event that was counted
        self._end: Unwatch | None = None  # None while nothing is noticed
        self._has_begun = self._is_heeding = False
        self._asked_at = 0.0
        self._kept: tuple[datetime, bytes] | None = None
        self._decisions, self._ends = Counter[str](dict.fromkeys(_VERBS.values(), 0)), Counter[str]()
        self._spans: Counter[int] = Counter()
        self._seconds = 0.0
        self._lost = 0

    def heed(self) -> None:
        """Notice what happens from the next look on, until long nobody has asked or the running event loop ends."""
        self._asked_at = time.monotonic()
        if not self._is_heeding:
            self._is_heeding = True
            # A task and no timer: a loop that ends cancels its tasks, and forgets its timers.
            asyncio.get_running_loop().create_task(self._linger()).add_done_callback(self._rest)

    async def _linger(self) -> None:
        left = _LINGER
        while left > 0:
            await asyncio.sleep(left)
            left = self._asked_at + _LINGER - time.monotonic()

    def _rest(self, _: asyncio.Task[None]) -> None:
        """Have nothing watched any more; what happens meanwhile is caught up with."""
        self._is_heeding, end, self._end = False, self._end, None
        if end is not None:
            end()

    def text(self) -> bytes:
        """Return everything in Prometheus' text format; reads the store.

        Raises:
            ModuleNotFoundError: The extra is not installed.
        """
        from prometheus_client import CollectorRegistry, generate_latest

        with self._lock:
            now = clock.now()
            if self._kept is None or not self._kept[0] <= now < self._kept[0] + _FRESH:
                self._count()
                registry = CollectorRegistry()
                registry.register(_Collected(list(self._families(now))))
                self._kept = now, generate_latest(registry)
            return self._kept[1]

    def _count(self) -> None:
        if self._end is None:
            self._end = self._event_log.listen(lambda: None)  # from now on it notices
            if not self._has_begun:
                self._has_begun, self._number = True, self._event_log.number
        found = self._event_log.since(self._number)
        if found is None:
            self._lost += 1
            self._number = self._event_log.number
            return
        for one in found:
            self._add(one)
            self._number = one.number  # and not the newest there is: that may have come after this look

    def _add(self, happened: LoggedEvent) -> None:
        entry, event = happened.entry, happened.entry.event
        if event in _ENDS:
            self._ends[event] += 1
        if event not in _VERBS:
            return
        if event != "voted":
            asked_at = self._store.get(entry.request_id).created_at  # where it fails, nothing of this was counted yet
            seconds = max(0.0, (instant(entry.at) - asked_at).total_seconds())
            self._seconds += seconds
            self._spans[next((place for place, end in enumerate(_BUCKETS) if seconds <= end), len(_BUCKETS))] += 1
        self._decisions[_VERBS[event]] += 1

    def _families(self, now: datetime) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        waiting = GaugeMetricFamily(
            "sayso_pending", "Requests that wait and are older than this.", labels=["older_than"]
        )
        for age, count in by_age(self._store, now).items():
            waiting.add_metric([age], count)
        yield waiting
        states = GaugeMetricFamily("sayso_requests", "Requests in this state.", labels=["state"])
        for state, count in by_state(self._store, now).items():
            states.add_metric([state], count)
        yield states
        decisions = CounterMetricFamily("sayso_decisions", "Decisions and votes of people.", labels=["verb"])
        for verb, count in self._decisions.items():
            decisions.add_metric([verb], count)
        yield decisions
        ends = CounterMetricFamily("sayso_ends", "Requests that expired, and calls by how they ended.", labels=["end"])
        for end in _ENDS:
            ends.add_metric([end], self._ends[end])
        yield ends
        total, buckets = 0, list[tuple[str, float]]()
        for place, edge in enumerate((*map(str, _BUCKETS), "+Inf")):
            total += self._spans[place]
            buckets.append((edge, total))
        span = HistogramMetricFamily("sayso_time_to_decide_seconds", "From asking to the decision.")
        span.add_metric([], buckets, self._seconds)
        yield span
        yield CounterMetricFamily("sayso_lost_looks", "Looks at which events had been lost.", self._lost)
        yield from _of_channels(self._store)


class _Collected:
    """What a registry reads: families that were made already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def by_age(store: Store, now: datetime) -> dict[str, int]:
    """Return how many wait that are older; beyond ten thousand, what was asked last counts as new."""
    wanted, cursor = Filter(states=frozenset({State.PENDING}), at=now), None
    found = dict.fromkeys(_AGES, 0)
    found["0s"] = store.count(wanted)
    for _ in range(_MOST):
        page = store.list(wanted, cursor=cursor, limit=_PAGE)
        for request in page.requests:
            seconds = (now - request.created_at).total_seconds()
            for age, least in _AGES.items():
                found[age] += least > 0 and seconds >= least
        cursor = page.cursor
        if cursor is None:
            break
    return found


def by_state(store: Store, now: datetime) -> dict[str, int]:
    """Return how many requests there are in each state."""
    found = {str(state): store.count(Filter(states=frozenset({state}))) for state in State}
    for state in (State.PENDING, State.APPROVED):  # the only ones that may have ended without anybody writing it down
        still = store.count(Filter(states=frozenset({state}), at=now))
        found[State.EXPIRED] += found[state] - still
        found[state] = still
    return found


def _of_channels(store: Store) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    messages = GaugeMetricFamily(
        "sayso_channel_messages", "Messages that wait, fail or were given up.", labels=["channel", "status"]
    )
    for one in health(store):
        for status, count in (("waiting", one.waiting), ("failing", one.failing), ("given_up", one.given_up)):
            messages.add_metric([one.name, status], count)
    yield messages


async def metrics(http: Http) -> Response:
    """Answer a scraper that may know."""
    found: Metrics = http.app.state.metrics
    found.heed()
    try:
        return await run_in_threadpool(_answer, http, found.text)
    except Problem as problem:
        return PlainTextResponse(f"{problem.detail}\n", problem.kind.status, headers={"www-authenticate": "Bearer"})
    except ModuleNotFoundError:
        return PlainTextResponse("/metrics needs the extra `metrics`: pip install 'sayso[metrics]'\n", 501)


def _answer(http: Http, text: Callable[[], bytes]) -> Response:
    if not (_is_at_home(http) or _has_scrapers_token(http)) and principal_of(http).kind == "ask":
        return PlainTextResponse("a token of the kind `ask` may not read /metrics\n", 403)
    return Response(text(), media_type=_MEDIA)


def _is_at_home(http: Http) -> bool:
    """Say whether somebody on this machine asks a server that is for this machine alone."""
    settings: Settings = http.app.state.settings
    # Where people reach it from elsewhere, a proxy on this machine would make everybody look as if they sat here.
    return (
        settings.base_url is None and settings.who is None and http.client is not None and http.client.host in LOOPBACK
    )


def _has_scrapers_token(http: Http) -> bool:
    wanted: bytes | None = http.app.state.metrics.token
    scheme, _, given = http.headers.get("authorization", "").partition(" ")
    return (
        wanted is not None
        and scheme.casefold() == "bearer"
        and hmac.compare_digest(given.strip().encode("utf-8", "replace"), wanted)
    )


def _token() -> bytes | None:
    text = os.environ.get(TOKEN)
    if not text:
        return None
    if len(text) < _SHORTEST:
        raise errors.ConfigError(
            f"{TOKEN} has {len(text)} characters, and who guesses it reads /metrics; it takes {_SHORTEST} random ones"
        )
    return text.encode("utf-8", "replace")
