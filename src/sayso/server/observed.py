"""What a store looks like, for OpenTelemetry: what waits and for how long, states, and messages of channels.

These gauges are read by whoever exports, at its own pace, and only in a server that has loaded OpenTelemetry (as by
`opentelemetry-instrument sayso serve`). The invariant: a store that fails gives no numbers, and stops no export.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from sayso import clock, errors
from sayso.channels.outbox import health
from sayso.server.metrics import by_age, by_state
from sayso.stores.base import Store

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

__all__ = ["observe"]

Numbers = Callable[[Store], Iterator[tuple[int, dict[str, str]]]]


def observe(store: Store) -> None:
    """Let OpenTelemetry read a store, where it is loaded; once in a process."""
    if "opentelemetry.metrics" not in sys.modules:
        return
    with suppress(Exception):  # a provider is somebody's code, and no server fails because of it
        from opentelemetry import metrics

        meter = metrics.get_meter("sayso")
        meter.create_observable_gauge("sayso.pending", [_read(store, _ages)], "{request}", "Requests that wait.")
        meter.create_observable_gauge("sayso.states", [_read(store, _states)], "{request}", "Requests by state.")
        meter.create_observable_gauge(
            "sayso.channel.messages",
            [_read(store, _messages)],
            "{message}",
            "Messages that wait, fail or were given up.",
        )


def _read(store: Store, numbers: Numbers) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def look(_: CallbackOptions) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        try:
            return [Observation(count, about) for count, about in numbers(store)]
        except errors.StoreError:
            return []

    return look


def _ages(store: Store) -> Iterator[tuple[int, dict[str, str]]]:
    for age, count in by_age(store, clock.now()).items():
        yield count, {"sayso.older_than": age}


def _states(store: Store) -> Iterator[tuple[int, dict[str, str]]]:
    for state, count in by_state(store, clock.now()).items():
        yield count, {"sayso.state": state}


def _messages(store: Store) -> Iterator[tuple[int, dict[str, str]]]:
    for one in health(store):
        for status, count in (("waiting", one.waiting), ("failing", one.failing), ("given_up", one.given_up)):
            yield count, {"sayso.channel": one.name, "sayso.status": status}
