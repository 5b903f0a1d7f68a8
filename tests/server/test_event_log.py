"""The log of events where the store fails, is damaged or is slow: nothing is left out in silence.

What streams hear of it is in `test_broadcaster` and `test_api_events`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import Request
from sayso.model.reviewer import Reviewer
from sayso.server.api import events
from sayso.server.api.endpoint import Principal
from sayso.server.api.events import Broadcaster, EventLog, Listener, _events
from sayso.server.events import PerLoop
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call


class Failing(MemoryStore):
    """A store of which some look fails, once."""

    fails_at = 0

    def get(self, request_id: str) -> Request:
        self.fails_at -= 1
        if self.fails_at == 0:
            raise errors.StoreBusyError("busy")
        return super().get(request_id)


def changed(store: Store, ids: Sequence[str]) -> list[str]:
    """Have each of these claimed, and return their ids as a log should tell of them."""
    for request_id in ids:
        sayso.Review(store).claim(request_id, by="ada")
    return list(ids)


def test_a_first_look_that_fails_half_way_loses_nothing_afterwards() -> None:
    store = Failing()
    ids = [store.ask(sample_call()).id for _ in range(5)]
    log = EventLog(store)
    store.fails_at = 3
    with pytest.raises(errors.StoreBusyError):
        log.listen(lambda: None)
    end = log.listen(lambda: None)
    changed(store, ids)
    assert [one.entry.request_id for one in log.since(0) or ()] == ids
    end()
    assert store._bell.is_idle  # nobody is left who listens


def test_a_look_anew_that_fails_is_made_again_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_TRACKED", 4)
    store = Failing()
    ids = [store.ask(sample_call()).id for _ in range(5)]
    log = EventLog(store)
    log.listen(lambda: None)
    monkeypatch.setattr(events, "MAX_TRACKED", 5)  # what was too much is not any more
    store.fails_at = 3
    with pytest.raises(errors.StoreBusyError):
        log.since(0)
    assert log.since(0) is None  # so everybody looks anew
    begun = log.number
    changed(store, ids)
    assert [one.entry.request_id for one in log.since(begun) or ()] == ids


def test_a_request_that_cannot_be_read_keeps_nobody_from_hearing_of_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    damaged, sound = (store.ask(sample_call()).id for _ in range(2))
    log = EventLog(store)
    log.listen(lambda: None)
    get = store.get

    def broken(request_id: str) -> Request:
        if request_id == damaged:
            raise errors.StoreCorruptError("damaged")
        return get(request_id)

    changed(store, [damaged, sound])
    monkeypatch.setattr(store, "get", broken)
    assert [one.entry.request_id for one in log.since(0) or ()] == [sound]
    assert damaged in caplog.text


def test_a_stream_that_closes_while_the_store_is_slow_holds_up_no_loop() -> None:
    log = EventLog(MemoryStore())
    state = SimpleNamespace(event_log=log, broadcasters=PerLoop(partial(Broadcaster, log)))
    asked: Any = SimpleNamespace(http=SimpleNamespace(app=SimpleNamespace(state=state)))
    listener = Listener(Principal("review", Reviewer("ada"), "token", "api"), lambda: True, 0)
    held = list[str]()

    class Watched:
        """The log's lock, which somebody may hold for as long as the store takes."""

        def __enter__(self) -> None:
            held.append(threading.current_thread().name)

        def __exit__(self, *_: object) -> None: ...

    async def main() -> None:
        events = _events(asked, listener, None)
        await anext(events)
        lock: Any = Watched()
        log._lock = lock
        await events.aclose()
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(main())
    assert log._listeners == {}
    assert held
    assert threading.main_thread().name not in held
