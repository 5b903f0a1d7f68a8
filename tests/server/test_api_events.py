"""The event stream of the HTTP API: what happens is heard once, in order, and a stream that broke off misses nothing.

A real server answers on a loopback port, because a stream that never ends needs one. The invariant: where something
may have been missed, the client is told to look anew.

Where the store fails, is damaged or is slow, the log of events leaves out nothing in silence.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import uvicorn
from starlette.applications import Starlette

import sayso
from sayso import errors
from sayso.model.request import Request
from sayso.model.reviewer import Identity, Reviewer
from sayso.server import create_app
from sayso.server.api import events
from sayso.server.api.endpoint import Principal
from sayso.server.api.events import Broadcaster, ClientStream, EventLog, LoggedEvent, _events
from sayso.server.auth.tokens import Tokens
from sayso.server.live import PerLoop
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call
from tests.support.calling import bearer


class Event(NamedTuple):
    """What a client heard."""

    id: str
    event: str
    data: dict[str, str]


class Client:
    """A client of the stream that reads event by event."""

    def __init__(self, port: int, headers: dict[str, str], query: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._connection.request("GET", f"/api/v1/events{query}", headers=headers)
        self.answer = self._connection.getresponse()

    def next(self) -> Event | None:
        """Return the next event, or None at the stream's end."""
        found: dict[str, str] = {}
        while line := self.answer.readline().decode().rstrip("\r\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        return Event(found["id"], found["event"], json.loads(found["data"])) if "id" in found else None

    def take(self, count: int) -> list[Event]:
        """Return so many events."""
        return [event for event in (self.next() for _ in range(count)) if event is not None]

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


class Server(NamedTuple):
    """A server, and how to reach it."""

    app: Starlette
    port: int


@contextmanager
def served(app: Starlette) -> Iterator[Server]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
    thread.start()
    try:
        yield Server(app, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


@pytest.fixture
def server(file_store: Store) -> Iterator[Server]:
    with served(create_app(file_store, stranger_rate=None)) as one:
        yield one


@contextmanager
def stream(
    server: Server, *, kind: Any = "review", name: str = "ada", last: str = "", query: str = ""
) -> Iterator[Client]:
    headers = bearer(server.app.state.settings.store, kind, name) | ({"last-event-id": last} if last else {})
    client = Client(server.port, headers, query)
    try:
        yield client
    finally:
        client.close()


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.data["event"], event.data["request"]) for event in events]


def test_what_happens_is_heard_in_order_whichever_process_did_it(server: Server, file_store: Store) -> None:
    before = file_store.ask(sample_call()).id
    with stream(server) as client:
        (begun,) = client.take(1)
        assert (begun.event, begun.data) == ("open", {})
        request_id = file_store.ask(sample_call()).id
        assert told(client.take(1)) == [("asked", request_id)]
        reject = [sys.executable, "-m", "sayso", "--store", file_store.url, "reject", before, request_id]
        subprocess.run([*reject, "--as", "bob"], check=True, capture_output=True, timeout=60)
        heard = client.take(2)
        assert told(heard) == [("rejected", before), ("rejected", request_id)]
        assert {(one.data["by"], one.data["channel"], one.data["state"]) for one in heard} == {
            ("local:bob", "cli", "rejected")
        }
    assert len({event.id for event in heard}) == 2


def test_a_stream_that_broke_off_is_taken_up_without_loss(server: Server, file_store: Store) -> None:
    with stream(server) as client:
        assert client.take(1)[0].event == "open"  # what was asked before that is in the lists, and in no event
        first = file_store.ask(sample_call()).id
        (last,) = client.take(1)
        assert told([last]) == [("asked", first)]
    # Nobody listens now, and what happens is caught up with.
    review = sayso.Review(file_store, reviewer="ada")
    review.reject(first)
    second = file_store.ask(sample_call()).id
    review.reject(second)
    expected = [("rejected", first), ("asked", second), ("rejected", second)]
    with stream(server, last=last.id) as client:
        assert told(client.take(3)) == expected
    with stream(server, query=f"?after={last.id}") as client:
        assert told(client.take(3)) == expected


def test_every_client_hears_every_event_once(server: Server, file_store: Store) -> None:
    clients = [Client(server.port, bearer(file_store)) for _ in range(8)]
    try:
        for client in clients:
            assert client.take(1)[0].event == "open"
        asked = [file_store.ask(sample_call()).id for _ in range(40)]
        for client in clients:
            assert told(client.take(40)) == [("asked", one) for one in asked]
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("last", ["x", "00000000-3", "-", "life-0"])
def test_what_cannot_be_taken_up_is_said(server: Server, file_store: Store, last: str) -> None:
    file_store.ask(sample_call())
    with stream(server, last=last) as client:
        (begun,) = client.take(1)
        assert (begun.event, begun.data) == ("reset", {})
        request_id = file_store.ask(sample_call()).id
        assert told(client.take(1)) == [("asked", request_id)]


def test_a_number_that_was_not_given_yet_is_not_taken_up(server: Server) -> None:
    with stream(server) as client:
        life = client.take(1)[0].id.partition("-")[0]
    with stream(server, last=f"{life}-999") as client:
        assert client.take(1)[0].event == "reset"


def test_an_ask_token_hears_of_its_own_requests_only(server: Server, file_store: Store) -> None:
    with stream(server, kind="ask", name="bot") as client:
        client.take(1)
        file_store.ask(sample_call(requester=Identity("token", "other")))
        file_store.ask(sample_call(requester=Identity("local", "bot")))
        file_store.ask(sample_call(requester=Identity("token", "Bot")))
        mine = file_store.ask(sample_call(requester=Identity("token", "bot"))).id
        assert told(client.take(1)) == [("asked", mine)]
        sayso.Review(file_store).comment(mine, "is that so?", by="ada")
        sayso.Review(file_store).reject(mine, by="ada")
        assert told(client.take(1)) == [("rejected", mine)]


def test_an_event_tells_no_argument_and_no_word_of_a_person(server: Server, file_store: Store) -> None:
    with stream(server) as client:
        client.take(1)
        request = file_store.ask(sample_call(arguments={"amount": 1, "to": "canary"}))
        sayso.Review(file_store, reviewer="ada").reject(request.id, "canary")
        for event in client.take(2):
            assert "canary" not in json.dumps(event.data)


def test_a_revoked_token_hears_no_more(server: Server, file_store: Store) -> None:
    with stream(server) as client:
        client.take(1)
        (token,) = Tokens(file_store).all()
        Tokens(file_store).revoke(token.id)
        file_store.ask(sample_call())
        assert client.next() is None


def test_what_happens_while_a_token_is_revoked_is_not_told(
    server: Server, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = EventLog.since

    def revoked_meanwhile(log: EventLog, number: int) -> list[LoggedEvent] | None:
        for token in Tokens(file_store).all():
            Tokens(file_store).revoke(token.id)
        file_store.ask(sample_call())
        return since(log, number)

    with stream(server) as client:
        client.take(1)
        monkeypatch.setattr(EventLog, "since", revoked_meanwhile)
        file_store.ask(sample_call())  # so that it looks
        assert client.next() is None


def test_a_head_of_the_stream_ends_at_once(server: Server, file_store: Store) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("HEAD", "/api/v1/events", headers=bearer(file_store))
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    connection.close()


def test_the_server_ends_with_streams_open(file_store: Store) -> None:
    with served(create_app(file_store)) as server:
        clients = [Client(server.port, bearer(file_store)) for _ in range(3)]
        for client in clients:
            client.take(1)
    for client in clients:
        assert client.next() is None
        client.close()


# -- the log ----------------------------------------------------------------------------------------------------


@pytest.fixture
def log(each_store: Store) -> Iterator[EventLog]:
    log = EventLog(each_store)
    end = log.listen(lambda: None)
    yield log
    end()


def test_the_ring_forgets_the_oldest_and_says_so(each_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 10)
    log = EventLog(each_store)
    end = log.listen(lambda: None)
    for number in range(12):
        each_store.ask(sample_call())
        assert [one.number for one in log.since(number) or []] == [number + 1]
    assert log.since(1) is None
    assert [one.number for one in log.since(2) or []] == list(range(3, 13))
    end()


def test_more_open_requests_than_can_be_followed_are_no_silent_loss(
    each_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_TRACKED", 3)
    log = EventLog(each_store)
    end = log.listen(lambda: None)
    asked = [each_store.ask(sample_call()).id for _ in range(5)]
    assert log.since(0) is None
    review = sayso.Review(each_store, reviewer="ada")
    number = log.number
    review.reject(asked[0])
    assert log.since(number) is None  # still too many: everybody looks anew after each change
    review.reject(asked[1])
    log.since(number)
    number = log.number
    review.reject(asked[2])
    assert [one.entry.event for one in log.since(number) or []] == ["rejected"]
    end()


def test_a_store_that_did_not_answer_loses_no_event(
    log: EventLog, each_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = each_store.ask(sample_call()).id
    assert len(log.since(0) or []) == 1
    sayso.Review(each_store, reviewer="ada").reject(request_id)
    each_store.ask(sample_call())

    def broken(*_: Any, **__: Any) -> Any:
        raise errors.StoreBusyError("busy")

    with monkeypatch.context() as patch:
        patch.setattr(type(each_store), "journal", broken)
        with pytest.raises(errors.StoreBusyError):
            log.since(1)
    assert [one.entry.event for one in log.since(1) or []] == ["rejected", "asked"]


def test_what_is_final_is_not_followed_any_more(log: EventLog, each_store: Store) -> None:
    for _ in range(5):
        sayso.Review(each_store, reviewer="ada").reject(each_store.ask(sample_call()).id)
    assert len(log.since(0) or []) == 10
    assert log._tracked == {}


def test_what_happened_while_nobody_listened_is_caught_up_with(each_store: Store) -> None:
    log, request_id = EventLog(each_store), each_store.ask(sample_call()).id
    log.listen(lambda: None)()
    sayso.Review(each_store, reviewer="ada").reject(request_id)
    each_store.ask(sample_call())
    end = log.listen(lambda: None)
    assert [one.entry.event for one in log.since(0) or []] == ["rejected", "asked"]
    end()


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
    listener = ClientStream(Principal("review", Reviewer("ada"), "token", "api"), lambda: True, 0)
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
