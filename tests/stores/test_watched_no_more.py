"""Who waited and has gone leaves nothing watched: a program that was answered, and a server that ends meanwhile.

Watching is a thread that looks at the store again and again, for as long as anybody seems to wait. The invariant: when
nobody waits any more that thread ends, whoever went first.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.prometheus")

from sayso.server.api import long_poll
from sayso.stores.http import HttpStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from tests.support.serving import Serving, new_token, serving

SOON = 30.0  # seconds; far more than any wait here takes


class Leaving(threading.Event):
    """Stands for what a listener is told by; calls this when the listener has taken note, and before it clears it."""

    def __init__(self, leave: Callable[[], None]) -> None:
        super().__init__()
        self._leave = leave

    def clear(self) -> None:
        self._leave()
        super().clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "server.db")) as one:
        yield one


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def asked(server: Serving, path: str, body: str | None = None, **headers: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SOON)
    connection.request("GET" if body is None else "POST", path, body, headers)
    return connection


def program(server: Serving, store: SqliteStore) -> HttpStore:
    return HttpStore(server.url, new_token(store))


@contextmanager
def wait_for_any(server: Serving, store: SqliteStore) -> Generator[None]:
    with closing(program(server, store)) as here:
        unwatch = here.watch_all(lambda: None)
        yield
        unwatch()


@contextmanager
def wait_for_one(server: Serving, store: SqliteStore) -> Generator[None]:
    with closing(program(server, store)) as here:
        unwatch = here.watch(here.ask(sample_call()).id, lambda: None)
        yield
        unwatch()


def ask_once(server: Serving, store: SqliteStore) -> Any:
    body = json.dumps({"seen": {}, "seconds": 0, "version": ""})
    headers = {"authorization": f"Bearer {new_token(store)}", "content-type": "application/json"}
    return closing(asked(server, "/api/v1/program/wait", body, **headers))


def read_the_stream(server: Serving, store: SqliteStore) -> Any:
    return closing(asked(server, "/api/v1/events", authorization=f"Bearer {new_token(store, 'review')}"))


@pytest.mark.parametrize("begin", [wait_for_any, wait_for_one, read_the_stream])
def test_a_server_that_ends_leaves_nothing_watched(begin: Callable[..., Any], store: SqliteStore) -> None:
    with serving(store=store) as server, begin(server, store):
        until(lambda: not store._bell.is_idle)
        server.end()
        until(lambda: store._bell.is_idle)


def test_what_is_watched_for_a_while_longer_is_not_watched_for_ever(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, watch_all = list[Callable[[], None]](), store.watch_all

    def noted(wake: Callable[[], None]) -> Callable[[], None]:
        watched.append(wake)
        return watch_all(wake)

    monkeypatch.setattr(long_poll, "_LINGER", 0.05)
    monkeypatch.setattr(store, "watch_all", noted)
    with serving(store=store) as server, ask_once(server, store) as connection:
        assert connection.getresponse().status == 200
        assert watched
        until(lambda: store._bell.is_idle)


def test_a_program_that_leaves_while_it_is_about_to_ask_asks_no_more(store: SqliteStore) -> None:
    with serving(store=store) as server:
        here = program(server, store)
        unwatch, is_there = list[Callable[[], None]](), threading.Event()

        def leave() -> None:
            is_there.wait(SOON)
            unwatch.pop()()
            here.close()

        here._listener._news = Leaving(leave)
        unwatch.append(here.watch(here.ask(sample_call()).id, lambda: None))
        is_there.set()
        until(lambda: here._listener._thread is None)
        here.close()
