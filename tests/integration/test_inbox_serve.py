"""`sayso serve` as people start it: where it listens, how one signs in, what open pages are told, and how it ends.

The invariant: only who sits at this machine can open it, and it ends at once however many pages are open.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from starlette.requests import Request as Http
from starlette.testclient import TestClient

import sayso
from sayso import clock as sayso_clock
from sayso import errors
from sayso.cli import main, serve
from sayso.inbox import create_app, live
from sayso.model.reviewer import Reviewer
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.integration.acting import Pay, held, payer
from tests.integration.browsing import browser

Serving = tuple[subprocess.Popen[str], str, str]


@pytest.fixture
def serving(file_store: Store) -> Iterator[Serving]:
    """A server in a process of its own: the process, its address, and the link that signs in."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sayso", "--store", file_store.url, "serve", "--port", "0", "--as", "ada"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert "you decide as ada" in process.stdout.readline()
        link = re.search(r"http\S+", process.stdout.readline())
        assert link is not None
        yield process, link[0].partition("/login")[0], link[0]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def pay(file_store: Store) -> Pay:
    """A gated call of this process; the server is in another one."""
    return payer()


def signed_in(serving: Serving) -> httpx2.Client:
    _, base, link = serving
    client = httpx2.Client(base_url=base, timeout=20, follow_redirects=True)
    assert client.get(link).status_code == 200
    token = link.partition("token=")[2]
    assert client.post("/login", data={"token": token}, headers={"origin": base}).status_code == 200
    return client


@pytest.mark.parametrize(
    "host", [".".join("0000"), "::", "192.168.1.5", "example.com", "", "127.0.0.1.evil.example", "127.1"]
)
def test_it_refuses_to_listen_where_it_cannot_know_who_decides(
    host: str, file_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.create_server", lambda *_, **__: pytest.fail("it listens"))
    assert main(["--store", file_store.url, "serve", "--host", host]) == 1
    said = capsys.readouterr().err
    assert "could not know who decides" in said
    assert "ssh -L" in said


def test_a_port_that_is_taken_is_told_so(
    file_store: Store, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    port = serving[1].rpartition(":")[2]
    assert main(["--store", file_store.url, "serve", "--port", port]) == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err


def decide_in(client: httpx2.Client, base: str, request_id: str) -> None:
    found = dict(re.findall(r'name="(csrf|seen)" value="(\w+)"', client.get(f"/r/{request_id}").text))
    assert client.post(f"/r/{request_id}/approve", data=found, headers={"origin": base}).status_code == 200


def test_a_person_signs_in_and_decides(serving: Serving, file_store: Store, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    with closing(signed_in(serving)) as client:
        decide_in(client, serving[1], request_id)
    decision = file_store.get(request_id).decision
    assert decision is not None
    assert (decision.by.qualified, decision.channel) == ("local:ada", "web")
    assert pay(5) == "paid 5 to alice"


def test_a_stranger_makes_it_print_another_link_and_not_many(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    app = serve._made(store, Reviewer("ada"), "http://localhost:8600")
    client = TestClient(app, base_url="http://localhost:8600")
    for later, count in [(0, 0), (serve._PACE, 1), (1, 0), (1, 0), (serve._PACE, 1)]:
        now[0] += later
        assert client.get("/").status_code == 401
        links = re.findall(r"token=(\w+)", capsys.readouterr().out)
        assert len(links) == count
        assert all(app.state.settings.sessions.begin_by(token) for token in links)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_within_a_second_while_pages_are_open(serving: Serving, end: signal.Signals) -> None:
    process = serving[0]
    client = signed_in(serving)
    heard = threading.Semaphore(0)

    def listen() -> None:
        try:
            with client.stream("GET", "/events") as stream:
                for _ in stream.iter_lines():
                    heard.release()
        except httpx2.HTTPError:
            return

    threads = [threading.Thread(target=listen) for _ in range(5)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert heard.acquire(timeout=20)
    began = time.monotonic()
    process.send_signal(end)
    assert process.wait(10) == 0
    assert time.monotonic() - began < 1
    assert process.stderr is not None
    assert re.search("ASGI|Traceback|Error", process.stderr.read()) is None
    for thread in threads:
        thread.join(10)
    client.close()


def test_an_open_page_is_told_of_what_another_process_did(serving: Serving, file_store: Store) -> None:
    request = file_store.open(sample_call())
    client = signed_in(serving)
    since = (sayso_clock.now()).isoformat()
    lines: list[str] = []

    def until(words: str, stream: Iterator[str]) -> None:
        for line in stream:
            lines.append(line)
            if words in line:
                return
        pytest.fail(f"{words!r} never came: {lines}")

    with client.stream("GET", "/events", params={"since": since, "rows": request.id}) as stream:
        said = stream.iter_lines()
        until('data-pending="1"', said)
        file_store.open(sample_call())
        until("1 new request, show", said)
        sayso.Review(file_store).reject(request.id, by="bob")
        until("rejected by bob", said)
    assert not any("2 new" in line for line in lines)
    client.close()


# -- the stream itself -----------------------------------------------------------------------------------------


def test_the_stream_of_a_session_that_ended_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_CHECK", 0.01)
    app = create_app(store)
    session = app.state.settings.sessions.begin(Reviewer("ada"))

    async def count() -> int:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        events = live._Stream(http, session, None, []).events()
        await anext(events)
        app.state.settings.sessions.end(session)
        return len([event async for event in events])

    assert asyncio.run(asyncio.wait_for(count(), 10)) == 0


def test_many_open_pages_cost_one_look_at_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    count = type(store).count
    monkeypatch.setattr(type(store), "count", lambda *args: looks.append(1) or count(*args))
    monkeypatch.setattr(live, "_FRESH", 60)
    pulse = live.Pulse(store)
    beats = [pulse.beat() for _ in range(200)]
    assert len(looks) == 1
    assert set(beats) == {beats[0]}


def test_a_stream_outlives_a_fault_of_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_CHECK", 0.01)
    app = create_app(store)
    session = app.state.settings.sessions.begin(Reviewer("ada"))
    faults = [errors.StoreBusyError("locked"), errors.StoreBusyError("locked")]
    look = live._Stream._look

    def flaky(stream: live._Stream, changed: set[str]) -> str:
        if faults:
            raise faults.pop()
        return look(stream, changed)

    monkeypatch.setattr(live._Stream, "_look", flaky)

    async def first() -> dict[str, str]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        events = live._Stream(http, session, None, []).events()
        said = await anext(events)
        await events.aclose()
        return said

    assert 'data-pending="0"' in asyncio.run(asyncio.wait_for(first(), 10))["data"]
    assert not faults


@pytest.mark.parametrize("query", ["since=yesterday", "since=2026-01-01T00:00:00"])
def test_a_stream_that_means_nothing_is_told_so(store: Store, query: str) -> None:
    assert browser(create_app(store)).get(f"/events?{query}").status_code == 400


def test_serve_without_its_extra_says_what_to_install(
    file_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("sayso.inbox")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["--store", file_store.url, "serve", "--port", "0"]) == 1
    assert "pip install 'sayso[web]'" in capsys.readouterr().err


def test_serve_may_be_started_before_any_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.cli.serve._run", lambda *_: None)
    assert main(["--store", f"sqlite:///{tmp_path / 'new.db'}", "serve", "--port", "0"]) == 0
    assert "it is made now" in capsys.readouterr().err
