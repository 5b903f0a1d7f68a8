"""`sayso serve` as people start it: how one signs in, what open pages are told, and how it ends.

Where it may listen is in `test_where_it_listens`. The invariant: only who was let in can open it, and it ends at once
however many pages are open.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request as Http
from starlette.testclient import TestClient

import sayso
from sayso import clock as sayso_clock
from sayso import errors
from sayso.cli import main, serve
from sayso.model.reviewer import Quorum, Reviewer
from sayso.server import create_app, live
from sayso.stores.base import Store
from sayso.stores.http import HttpStore
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import Pay, held, payer
from tests.support.browsing import Here, browser, fields_of, session_at
from tests.support.serving import new_token

Serving = tuple[subprocess.Popen[str], str, str]


@contextmanager
def opened(store: Store, port: str = "0") -> Iterator[Serving]:
    """A server in a process of its own: the process, its address, and the link that signs in."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sayso", "--store", store.url, "serve", "--port", port, "--as", "ada"],
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
def serving(file_store: Store) -> Iterator[Serving]:
    with opened(file_store) as one:
        yield one


@pytest.fixture
def pay(file_store: Store) -> Pay:
    """A gated call of this process; the server is in another one."""
    return payer()


def signed_in(serving: Serving) -> httpx2.Client:
    _, base, link = serving
    client = httpx2.Client(base_url=base, timeout=30, follow_redirects=True, transport=Here())
    assert client.get(link).status_code == 200
    token = link.partition("token=")[2]
    assert client.post("/login", data={"token": token}, headers={"origin": base}).status_code == 200
    return client


def test_login_without_a_name_prints_another_link_to_a_plain_server(
    file_store: Store, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    process, base, _ = serving
    login = ["--store", file_store.url, "login"]
    assert main([*login, "--port", base.rpartition(":")[2]]) == 0
    link = capsys.readouterr().out.strip()
    assert link.partition("/login")[0] == base
    signed_in((process, base, link)).close()
    assert main([*login, "--role", "finance"]) == 2
    assert "--role needs NAME" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_so(
    file_store: Store, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    port = serving[1].rpartition(":")[2]
    assert main(["--store", file_store.url, "serve", "--port", port]) == 1
    assert capsys.readouterr().err == (
        f"error: cannot listen on 127.0.0.1, port {port}: Address already in use; use another --port\n"
    )


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


def test_a_person_stays_signed_in_when_the_process_is_killed_and_begins_anew(file_store: Store, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    with opened(file_store) as serving:
        client = signed_in(serving)
    with closing(client), opened(file_store, serving[1].rpartition(":")[2]) as (_, base, _):
        assert base == serving[1]
        decide_in(client, base, request_id)
    decision = file_store.get(request_id).decision
    assert decision is not None
    assert decision.by.qualified == "local:ada"


def test_a_stranger_makes_it_print_another_link_and_not_many(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    app, _ = serve._app_for_one(store, Reviewer("ada"), None, "http://localhost:8600", None)
    capsys.readouterr()
    client = TestClient(app, base_url="http://localhost:8600")
    for later, count in [(0, 0), (serve._SECONDS_BETWEEN_LINKS, 1), (1, 0), (1, 0), (serve._SECONDS_BETWEEN_LINKS, 1)]:
        now[0] += later
        assert client.get("/").status_code == 401
        links = re.findall(r"token=(\w+)", capsys.readouterr().out)
        assert len(links) == count
        assert all(app.state.settings.links.use(token) == Reviewer("ada") for token in links)


def ended_with_pages(store: Store, end: signal.Signals) -> set[str]:
    """End a server to which five pages listen; return how they heard of it, and what it complained of."""
    heard, ends = threading.Semaphore(0), set[str]()

    def listen() -> None:
        try:
            with client.stream("GET", "/events") as stream:
                for _ in stream.iter_lines():
                    heard.release()
        except httpx2.HTTPError as error:
            ends.add(repr(error))
        else:
            ends.add("told")

    with opened(store) as serving, closing(signed_in(serving)) as client:
        process = serving[0]
        threads = [threading.Thread(target=listen) for _ in range(5)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert heard.acquire(timeout=60)
        process.send_signal(end)
        assert process.wait(60) == 0
        for thread in threads:
            thread.join(60)
        assert process.stderr is not None
        return ends | set(re.findall("ASGI|Traceback|Error", process.stderr.read()))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_without_cutting_off_the_pages_that_listen(file_store: Store, place: Path, end: signal.Signals) -> None:
    (place / "sayso.toml").write_text('[channels.ops]\ntype = "terminal"\n')  # so that it delivers meanwhile
    # On a machine that stands still for a moment, who was about to end by itself is cut off.
    assert {"told"} in (ended_with_pages(file_store, end) for _ in range(5))


def test_it_delivers_to_channels_while_it_serves(file_store: Store, place: Path) -> None:
    (place / "sayso.toml").write_text('[channels.ops]\ntype = "terminal"\n')
    with opened(file_store) as (process, base, _):
        request = file_store.ask(sample_call())
        assert process.stderr is not None
        said = ""
        while request.id not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
    assert f"{base}/r/{request.id}" in said


def test_an_open_page_is_told_of_what_another_process_did(serving: Serving, file_store: Store) -> None:
    request = file_store.ask(sample_call())
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
        file_store.ask(sample_call())
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

    async def count() -> list[dict[str, str]]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        events = live._Page(http, session, {}, []).events()
        await anext(events)
        app.state.settings.sessions.end(session)
        return [event async for event in events]

    assert asyncio.run(asyncio.wait_for(count(), 30)) == [{"event": "signed-out", "data": ""}]


def test_who_signs_out_ends_the_streams_of_every_tab_at_once(store: Store) -> None:
    app = create_app(store)
    ada = browser(app)

    async def told() -> list[dict[str, str]]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        events = live._Page(http, session_at(app, ada), {}, []).events()
        await anext(events)
        csrf = fields_of((await asyncio.to_thread(ada.get, "/")).text)["csrf"]
        await asyncio.to_thread(ada.submit, "/logout", csrf=csrf)
        return [event async for event in events]

    # Half of the time after which a stream would look by itself.
    assert asyncio.run(asyncio.wait_for(told(), live._CHECK / 2)) == [{"event": "signed-out", "data": ""}]


def test_one_stream_tells_each_page_what_is_new_to_it(store: Store, clock: Clock) -> None:
    app = create_app(store)
    session = app.state.settings.sessions.begin(Reviewer("ada"))
    made = {}
    for count in range(3):
        made[str(count)] = sayso_clock.now()
        clock.tick(seconds=1)
        store.ask(sample_call(None, {"amount": count, "to": "kim"}))

    async def first() -> str:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        events = live._Page(http, session, made, []).events()
        said = await anext(events)
        await events.aclose()
        return said["data"]

    said = asyncio.run(asyncio.wait_for(first(), 30))
    told = dict(re.findall(r'<p data-news="(\d)"><a [^>]*>(\d)', said))
    assert told == {"0": "3", "1": "2", "2": "1"}


def test_each_is_told_the_number_of_their_own_list(store: Store, clock: Clock) -> None:
    app, since = create_app(store), sayso_clock.now()
    clock.tick(seconds=1)
    request, _ = (store.ask(sample_call(f"run_{at}", quorum=Quorum(2))) for at in range(2))

    async def told() -> list[list[str]]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        people = (app.state.settings.sessions.begin(Reviewer(name)) for name in ("ada", "bob"))
        streams = [live._Page(http, one, {"then": since}, []).events() for one in people]
        before = [(await anext(stream))["data"] for stream in streams]
        await asyncio.to_thread(sayso.Review(store).approve, request.id, by="ada")
        after = [(await anext(streams[0]))["data"], before[1]]
        await asyncio.to_thread(sayso.Review(store).reject, request.id, by="bob")
        last = [(await anext(stream))["data"] for stream in streams[1:]]
        for stream in streams:
            await stream.aclose()
        return [before, after, last]

    said = asyncio.run(asyncio.wait_for(told(), 30))
    seen = [[re.findall(r'data-pending="(\d)"|<a id="news-link" [^>]*>(\d)', one) for one in each] for each in said]
    two, one = [("2", ""), ("", "2")], [("1", ""), ("", "1")]
    assert seen == [[two, two], [one, two], [one]]


def test_who_has_snoozed_a_request_is_told_a_number_without_it(store: Store) -> None:
    app, review = create_app(store), sayso.Review(store)
    requests = [store.ask(sample_call(f"run_{at}", quorum=Quorum(2))) for at in range(4)]
    for request in requests[:3]:
        review.snooze(request.id, "1h", by="ada")
    review.approve(requests[0].id, by="ada")  # which takes it out of her list as well
    review.reject(requests[1].id, by="bob")

    async def told() -> list[str]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        people = (app.state.settings.sessions.begin(Reviewer(name)) for name in ("ada", "bob"))
        streams = [live._Page(http, one, {}, []).events() for one in people]
        found = [(await anext(stream))["data"] for stream in streams]
        for stream in streams:
            await stream.aclose()
        return found

    said = asyncio.run(asyncio.wait_for(told(), 30))
    assert [re.findall(r'data-pending="(\d)"', one) for one in said] == [["1"], ["3"]]


def test_a_change_costs_one_look_at_the_store_however_many_pages_are_open(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(store)
    session = app.state.settings.sessions.begin(Reviewer("ada"))
    request = store.ask(sample_call())
    looks: list[str] = []
    for name in ("count", "get", "list"):
        real = getattr(type(store), name)
        monkeypatch.setattr(
            type(store), name, lambda *args, name=name, real=real, **how: looks.append(name) or real(*args, **how)
        )  # fmt: skip

    async def both_told() -> list[list[dict[str, str]]]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        streams = [live._Page(http, session, {}, [request.id]).events() for _ in range(200)]
        first = await asyncio.gather(*map(anext, streams))
        begun = len(looks)
        await asyncio.to_thread(sayso.Review(store).reject, request.id, by="bob")
        second = await asyncio.gather(*map(anext, streams))
        assert len(looks) - begun < 20, looks[begun:]  # a few, for 200 pages: one or two, and those of the decision
        for stream in streams:
            await stream.aclose()
        assert app.state.live_pages.here().is_idle
        return [first, second]

    first, second = asyncio.run(asyncio.wait_for(both_told(), 30))
    assert all('data-pending="1"' in said["data"] for said in first)
    assert all("rejected by bob" in said["data"] for said in second)


def test_a_page_that_is_left_is_watched_no_more(store: Store) -> None:
    app = create_app(store)
    session = app.state.settings.sessions.begin(Reviewer("ada"))
    ids = [store.ask(sample_call()).id for _ in range(3)]

    async def leave() -> tuple[int, int]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        one, other = (live._Page(http, session, {}, rows).events() for rows in (ids[:2], ids[1:]))
        await anext(one)
        await anext(other)
        await one.aclose()
        watched = len(app.state.live_pages.here()._unwatch)
        await other.aclose()
        await asyncio.sleep(0)
        return watched, len(app.state.live_pages.here()._unwatch)

    assert asyncio.run(asyncio.wait_for(leave(), 30)) == (2, 0)
    assert store._bell.is_idle


def test_a_stream_outlives_a_fault_of_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_RETRY", 0.01)
    app = create_app(store)
    session = app.state.settings.sessions.begin(Reviewer("ada"))
    request = store.ask(sample_call())
    sayso.Review(store).claim(request.id, by="bob")
    faults: list[Exception] = [errors.StoreBusyError("locked"), ValueError("a row that cannot be read")]
    look = live.PageHub._look

    def flaky(hub: live.PageHub, *args: Any) -> Any:
        if faults:
            raise faults.pop()
        return look(hub, *args)

    monkeypatch.setattr(live.PageHub, "_look", flaky)

    async def first() -> dict[str, str]:
        http = Http({"type": "http", "app": app, "path": "/events", "headers": [], "query_string": b""})
        events = live._Page(http, session, {}, [request.id]).events()
        said = await anext(events)
        await events.aclose()
        return said

    said = asyncio.run(asyncio.wait_for(first(), 30))["data"]
    assert 'data-pending="1"' in said
    assert "claimed by bob" in said  # what changed before the fault is not forgotten
    assert not faults


@pytest.mark.parametrize("query", ["since=yesterday", "since=2026-01-01T00:00:00"])
def test_a_stream_that_means_nothing_is_told_so(store: Store, query: str) -> None:
    assert browser(create_app(store)).get(f"/events?{query}").status_code == 400


def test_serve_without_its_extra_says_what_to_install(
    file_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("sayso.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["--store", file_store.url, "serve", "--port", "0"]) == 1
    assert "pip install 'sayso[web]'" in capsys.readouterr().err


def test_serve_may_be_started_before_any_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.cli.serve._run", lambda *_: None)
    assert main(["--store", f"sqlite:///{tmp_path / 'new.db'}", "serve", "--port", "0"]) == 0
    assert "a new one is created" in capsys.readouterr().err


def test_a_program_reaches_the_server_at_the_address_that_it_prints(file_store: Store, serving: Serving) -> None:
    """Browsers find `NAME.localhost` by themselves, and not every system does."""
    _, base, _ = serving
    assert ".localhost:" in base
    program = HttpStore(base, new_token(file_store, name="bot"))
    asked = program.ask(sample_call())
    program.close()
    assert file_store.get(asked.id).call == asked.call
