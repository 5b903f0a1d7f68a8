"""Looking changes nothing: not one byte of the store, at whatever address, by GET, HEAD or OPTIONS.

What is due is told as it stands all the same; the server writes it down by itself. The invariant: a link scanner,
a browser that reads ahead and a page that is left open leave the record alone.
"""

from __future__ import annotations

import hashlib
import http.client
import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.routing import BaseRoute, Mount, Route

import sayso
from sayso.model.ids import new_token
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.server import create_app
from sayso.server.api import aap
from sayso.server.app import endpoints
from sayso.stores import workers
from sayso.stores.base import Filter, Store
from sayso.testing import sample_call, sample_question
from tests.conftest import Clock
from tests.server.test_api_events import served
from tests.support.browsing import browser, text_of
from tests.support.calling import bearer, caller
from tests.support.running import paying, started


def due(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Fill a store with what waits, what is due, and what was broken off; return ids by what they are."""
    review = Review(store, reviewer="ada")
    found = {"waits": store.ask(sample_call(expires_at=clock() + timedelta(days=9))).id}
    found["too late"] = store.ask(sample_call()).id
    found["question"] = store.ask(sample_question()).id
    found["approval too late"] = store.ask(sample_call()).id
    review.approve(found["approval too late"])
    found["broken off"] = store.ask(sample_call()).id
    review.approve(found["broken off"])
    store.start(found["broken off"], new_token())
    found["run"] = started(paying([]), amount=5).run_id
    clock.tick(days=2)
    monkeypatch.setattr(workers, "is_gone", lambda _: True)
    return found


def addresses(routes: Iterable[BaseRoute], ids: dict[str, str]) -> list[str]:
    """Return where pages and the API answer, with ids that are there."""
    found: set[str] = set()
    pages = [route.path for route in routes if isinstance(route, Mount | Route)]
    ends = [*endpoints(), *aap.router.endpoints]
    for path in [*pages, *(f"/api{one.path}" for one in ends)]:
        for request_id in (ids["too late"], ids["broken off"]):
            known = re.sub(r"{run_id(:path)?}", ids["run"], path)
            known = known.replace("{request_id}", request_id).replace("{verb}", "approve")
            found.add(re.sub(r"{\w+(:\w+)?}", "0000", known))
    return sorted(found)


def digest(store: Store) -> str:
    path = Path(store.url.removeprefix("sqlite:///"))
    files = [file for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@pytest.mark.slow
def test_no_route_writes_anything_for_who_only_looks(
    file_store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = due(file_store, clock, monkeypatch)
    app = create_app(file_store, stranger_rate=None)
    tokens = [bearer(file_store, kind) for kind in ("ask", "review", "admin")]
    session = app.state.settings.sessions.begin(Reviewer("ada"))
    asked = 0
    with served(app) as server:
        cookie = {"cookie": f"sayso-{server.port}={session.id}"}
        before = digest(file_store)
        for method in ("GET", "HEAD", "OPTIONS"):
            for path in addresses(app.routes, ids):
                for headers in ({}, cookie, *tokens):
                    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
                    query = "?verb=approve&state=expired" if path in {"/bulk", "/", "/history"} else ""
                    connection.request(method, path + query, headers=headers)
                    answer = connection.getresponse()
                    answer.readline()  # of a stream, the first; the rest would never end
                    assert answer.status < 500, (method, path)
                    assert digest(file_store) == before, (method, path, list(headers))
                    connection.close()
                    asked += 1
    assert asked > 3 * 5 * 35
    assert {file_store.get(ids[one]).state for one in ("too late", "approval too late", "broken off")} == {
        State.PENDING, State.APPROVED, State.RUNNING,
    }  # fmt: skip


def test_what_is_due_is_told_as_it_stands_on_pages_and_by_the_api(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = due(store, clock, monkeypatch)
    app = create_app(store)
    ada, client = browser(app, "ada"), caller(app)
    inbox = ada.get("/").text
    assert f"/r/{ids['waits']}" in inbox
    assert ids["too late"] not in inbox
    assert "Inbox (1)" in " ".join(text_of(inbox).split())
    assert f"/r/{ids['too late']}" in ada.get("/history?state=expired").text
    assert "expired" in text_of(ada.get(f"/r/{ids['too late']}").text)
    assert "unknown" in text_of(ada.get(f"/r/{ids['broken off']}").text).casefold()
    expected = {"too late": "expired", "approval too late": "expired", "broken off": "unknown", "waits": "pending"}
    listed = {one["id"]: one["state"] for one in client.get("/api/v1/requests?state=all").json()["requests"]}
    for name, state in expected.items():
        assert listed[ids[name]] == client.get(f"/api/v1/requests/{ids[name]}").json()["state"] == state


def test_what_is_due_is_decided_by_as_it_stands(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = due(store, clock, monkeypatch)
    app = create_app(store)
    seen = store.get(ids["too late"]).current_fingerprint
    answer = browser(app, "ada").decide(ids["too late"], "approve", seen=seen)
    assert answer.status_code == 409
    assert store.get(ids["too late"]).state is State.EXPIRED
    resolved = caller(app).post(f"/api/v1/requests/{ids['broken off']}/resolve", json={"happened": False})
    assert resolved.status_code == 200


def test_a_review_sweeps_unless_it_is_told_not_to(each_store: Store, clock: Clock) -> None:
    request_id = each_store.ask(sample_call()).id
    clock.tick(days=2)
    looking = Review(each_store, reviewer="ada", sweeps=False)
    assert looking.list().requests == ()
    assert [one.state for one in looking.list(state="expired").requests] == [State.EXPIRED]
    assert looking.get(request_id).state is State.EXPIRED
    assert each_store.get(request_id).state is State.PENDING
    assert sayso.Review(each_store, reviewer="ada").list().requests == ()
    assert each_store.get(request_id).state is State.EXPIRED


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({State.PENDING}, ["fresh"]), ({State.APPROVED}, ["granted"]),
        ({State.EXPIRED}, ["late", "spent", "old"]), (set(), ["old", "late", "spent", "fresh", "granted", "no"]),
        ({State.PENDING, State.EXPIRED}, ["old", "late", "spent", "fresh"]),
        ({State.EXPIRED, State.REJECTED}, ["old", "late", "spent", "no"]), ({State.REJECTED}, ["no"]),
        ({State.APPROVED, State.REJECTED}, ["granted", "no"]),
    ],
)  # fmt: skip
def test_a_filter_at_an_instant_counts_what_is_due_as_expired(
    each_store: Store, clock: Clock, states: set[State], expected: list[str]
) -> None:
    review = Review(each_store, reviewer="ada")
    late = clock() + timedelta(hours=48)
    names = {each_store.ask(sample_call()).id: "old"}
    clock.tick(days=1)
    each_store.sweep()
    for name in ("late", "spent", "fresh", "granted", "no"):
        ends = late if name in {"fresh", "granted"} else clock() + timedelta(hours=1)
        request = each_store.ask(sample_call(expires_at=ends, approval_window=ends - clock()))
        names[request.id] = name
        if name in {"spent", "granted"}:
            review.approve(request.id)
        if name == "no":
            review.reject(request.id)
    clock.tick(hours=1)
    wanted = Filter(states=frozenset(states), at=clock())
    assert sorted(names[one.id] for one in each_store.list(wanted).requests) == sorted(expected)
    assert sorted(names[one.id] for one in each_store.list(wanted, newest=True).requests) == sorted(expected)
    assert each_store.count(wanted) == len(expected)


@pytest.fixture(autouse=True)
def no_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a call that a test left running would renew its lease, which is a write."""
    monkeypatch.setattr("sayso.stores.workers.keep_renewing", lambda *_: None)
