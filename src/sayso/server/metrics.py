"""The OpenTelemetry metrics of a server: open requests, decisions, outcomes of calls, and the health of channels.

`/metrics` serves them to Prometheus (extra `metrics`). `observe` adds the gauges to the process's own meter provider,
if one is loaded, e.g. by `opentelemetry-instrument sayso serve`. Gauges are read from the store. Counters count journal
events since the first scrape, whichever process caused them, so two servers of one store count the same events. Metrics
contain no arguments and no words of people, and a program cannot create label values without bound.
"""

from __future__ import annotations

import hmac
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as Http
from starlette.responses import PlainTextResponse, Response

from sayso import clock, errors
from sayso.channels.registry import health
from sayso.channels.settings import LOOPBACK
from sayso.clock import instant
from sayso.model.request import State
from sayso.server.api.endpoint import bearer_token, principal_of
from sayso.server.api.events import EventLog
from sayso.server.api.problems import Problem
from sayso.server.context import settings_of
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter
    from prometheus_client import CollectorRegistry

TOKEN = "SAYSO_METRICS_TOKEN"  # noqa: S105  the name of a variable
"""The environment variable with a scraper's bearer token, for a server that other machines reach."""

_SHORTEST = 16
_FRESH = timedelta(seconds=5)
_MOST_READ = 10_000
_AGES = {"0s": 0, "1m": 60, "10m": 600, "1h": 3_600, "1d": 86_400}
_BUCKETS = (1, 3, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400)
_VERBS = {
    "approved": "approve", "rejected": "reject", "feedback": "feedback", "answered": "answer", "cancelled": "cancel",
    "voted": "vote",
}  # fmt: skip
_OUTCOMES = ("expired", "unknown", "done", "failed")
_MEDIA = "text/plain; version=0.0.4; charset=utf-8"

Numbers = list[tuple[int, dict[str, str]]]


# -- gauges ----------------------------------------------------------------------------------------------------------


def _pending(store: Store) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of pending requests by minimum age. Only the 10,000 oldest are read; the rest count as new."""
    now = clock.now()
    wanted, found = Filter(states=frozenset({State.PENDING}), at=now), dict.fromkeys(_AGES, 0)
    found["0s"] = store.count(wanted)
    for request in islice(requests_in(store, wanted), _MOST_READ):
        seconds = (now - request.created_at).total_seconds()
        for age, least in _AGES.items():
            found[age] += least > 0 and seconds >= least
    yield from ((count, {"sayso.older_than": age}) for age, count in found.items())


def _states(store: Store) -> Iterator[tuple[int, dict[str, str]]]:
    now = clock.now()
    found = {state: store.count(Filter(states=frozenset({state}))) for state in State}
    for state in (State.PENDING, State.APPROVED):  # only these can be past their expiry before the store records it
        still = store.count(Filter(states=frozenset({state}), at=now))
        found[State.EXPIRED] += found[state] - still
        found[state] = still
    yield from ((count, {"sayso.state": str(state)}) for state, count in found.items())


def _messages(store: Store) -> Iterator[tuple[int, dict[str, str]]]:
    for one in health(store):
        for status, count in (("waiting", one.waiting), ("failing", one.failing), ("given_up", one.given_up)):
            yield count, {"sayso.channel": one.name, "sayso.status": status}


_GAUGES: dict[str, tuple[str, str, Callable[[Store], Iterator[tuple[int, dict[str, str]]]]]] = {
    "sayso.pending": ("{request}", "Pending requests older than this.", _pending),
    "sayso.states": ("{request}", "Requests in this state.", _states),
    "sayso.channel.messages": ("{message}", "Messages that are waiting, failing or given up.", _messages),
}


def _add_gauges(meter: Meter, read: Callable[[str], Numbers]) -> None:
    from opentelemetry.metrics import Observation

    def observed(name: str, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count, attributes) for count, attributes in read(name)]

    for name, (unit, description, _) in _GAUGES.items():
        meter.create_observable_gauge(name, [partial(observed, name)], unit, description)


def observe(store: Store) -> None:
    """Add a store's gauges to the process's meter provider, if OpenTelemetry is loaded. Call it once per process."""
    if "opentelemetry.metrics" not in sys.modules:
        return

    def read(name: str) -> Numbers:
        try:
            return list(_GAUGES[name][2](store))
        except errors.StoreError:  # omit these numbers rather than fail the whole export
            return []

    with suppress(Exception):  # a provider may be any code; its failure must not stop the server
        from opentelemetry import metrics as api

        _add_gauges(api.get_meter("sayso"), read)


# -- the instruments of one server -----------------------------------------------------------------------------------


class _Instruments:
    """The gauges, counters and histogram of one server, in a separate meter provider that Prometheus reads.

    Raises:
        ModuleNotFoundError: The extra is not installed.
    """

    def __init__(self) -> None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import CollectorRegistry

        self.registry: CollectorRegistry = CollectorRegistry()
        self.observed: dict[str, Numbers] = {}
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self.registry)
        meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("sayso")
        _add_gauges(meter, lambda name: self.observed[name])
        self.decisions = meter.create_counter("sayso.decisions", "{decision}", "Decisions and votes.")
        self.outcomes = meter.create_counter("sayso.ends", "{request}", "Expired requests, and calls by outcome.")
        self.lost = meter.create_counter("sayso.events.lost", "{scrape}", "Scrapes that found events missing.")
        self.decision_time = meter.create_histogram(
            "sayso.decision.duration", "s", "Time from the request to the decision.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )  # fmt: skip
        for verb in _VERBS.values():
            self.decisions.add(0, {"sayso.decision.verb": verb})
        for outcome in _OUTCOMES:
            self.outcomes.add(0, {"sayso.outcome": outcome})
        self.lost.add(0)


class Metrics:
    """The metrics of one server. Raises `ConfigError` if the scraper's token is too short."""

    def __init__(self, store: Store, event_log: EventLog) -> None:
        text = os.environ.get(TOKEN, "")
        if text and len(text) < _SHORTEST:
            raise errors.ConfigError(
                f"{TOKEN} has {len(text)} characters; anyone who guesses it can read /metrics, so use at least"
                f" {_SHORTEST} random ones"
            )
        self.token = text.encode("utf-8", "replace") or None
        self._store, self._event_log = store, event_log
        self._lock = threading.Lock()  # of concurrent scrapes, one reads the store and the others return its text
        self._number: int | None = None  # of the last event that was counted; None before the first scrape
        self._cached: tuple[datetime, bytes] | None = None
        self._instruments: _Instruments | None = None

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format. Reads the store at most every five seconds.

        Raises:
            ModuleNotFoundError: The extra is not installed.
            StoreError: The store could not be read.
        """
        from prometheus_client import generate_latest

        with self._lock:
            now = clock.now()
            if self._cached is None or not self._cached[0] <= now < self._cached[0] + _FRESH:
                found = self._instruments = self._instruments or _Instruments()
                # Read here, not in the callbacks: OpenTelemetry would swallow an error of the store there.
                found.observed = {name: list(read(self._store)) for name, (_, _, read) in _GAUGES.items()}
                self._count_events(found)
                self._cached = now, generate_latest(found.registry)
            return self._cached[1]

    def _count_events(self, found: _Instruments) -> None:
        # Nothing is watched between scrapes. Listening makes the log catch up with what happened in between.
        end = self._event_log.listen(lambda: None)
        try:
            if self._number is None:
                self._number = self._event_log.number
            events = self._event_log.since(self._number)
        finally:
            end()
        if events is None:
            found.lost.add(1)
            self._number = self._event_log.number
            return
        for logged in events:
            entry, event = logged.entry, logged.entry.event
            if event in _OUTCOMES:
                found.outcomes.add(1, {"sayso.outcome": event})
            if event in _VERBS:
                if event != "voted":
                    asked_at = self._store.get(entry.request_id).created_at  # if it raises, nothing is counted twice
                    found.decision_time.record(max(0.0, (instant(entry.at) - asked_at).total_seconds()))
                found.decisions.add(1, {"sayso.decision.verb": _VERBS[event]})
            self._number = logged.number  # not the log's newest number: events may have followed `since`


# -- the page --------------------------------------------------------------------------------------------------------


async def metrics(http: Http) -> Response:
    """Serve the metrics to a scraper that is authorized."""
    found: Metrics = http.app.state.metrics
    try:
        return await run_in_threadpool(_answer, http, found.text)
    except Problem as problem:
        return PlainTextResponse(f"{problem.detail}\n", problem.kind.status, headers={"www-authenticate": "Bearer"})
    except ModuleNotFoundError:
        return PlainTextResponse("/metrics needs the extra `metrics`: pip install 'sayso[metrics]'\n", 501)


def _answer(http: Http, text: Callable[[], bytes]) -> Response:
    settings = settings_of(http)
    # Behind a proxy on this machine every client looks local. An ASGI server that trusts X-Forwarded-For lets a client
    # choose its own address.
    serves_machine = settings.base_url is None and settings.who is None and "x-forwarded-for" not in http.headers
    is_at_home = serves_machine and http.client is not None and http.client.host in LOOPBACK
    wanted: bytes | None = http.app.state.metrics.token
    shown = (bearer_token(http) or "").encode("utf-8", "replace")
    is_scraper = wanted is not None and hmac.compare_digest(shown, wanted)
    if not (is_at_home or is_scraper) and principal_of(http).kind == "ask":
        return PlainTextResponse("a token of the kind `ask` may not read /metrics\n", 403)
    return Response(text(), media_type=_MEDIA)
