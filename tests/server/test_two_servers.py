"""Two servers over one Postgres agree: on who is signed in, on tokens, on grants and the stop, and on decisions.

Each has a store, and so connections and a memory, of its own, as two machines have.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

from sayso import Review, errors
from sayso.model.ids import new_token
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.server import create_app
from sayso.server.auth.tokens import Tokens
from sayso.testing import sample_call
from tests.server.test_broadcaster import listener, with_broadcaster
from tests.support.browsing import BASE, Browser, browser, fields_of
from tests.support.calling import asked_message, bearer
from tests.support.postgres import server

pytest.importorskip("psycopg", reason="NOT TESTED with Postgres, because psycopg is not installed")

from sayso.stores.postgres import PostgresStore

PATIENCE = 30
ASK = "/api/v1/program/ask"


class Two(NamedTuple):
    """Two servers and their stores."""

    here: PostgresStore
    there: PostgresStore
    app: Any
    other: Any


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    monkeypatch.setenv("SAYSO_SECRET", "s" * 32)
    database = server()
    url = database.new()
    with closing(PostgresStore(url)) as here, closing(PostgresStore(url)) as there:
        yield Two(here, there, create_app(here), create_app(there))
    database.drop(url)


def test_who_signed_in_at_one_is_signed_in_at_the_other_and_out_at_both(two: Two) -> None:
    request = two.here.ask(sample_call(None))
    ada = browser(two.app)
    again = Browser(two.other, base_url=BASE)
    again.cookies.update(ada.cookies)
    assert request.id in again.get(f"/r/{request.id}").text
    assert again.decide(request.id, "approve").status_code in {200, 303}
    assert two.here.get(request.id).state is State.APPROVED
    assert ada.submit("/logout", csrf=fields_of(ada.get("/").text)["csrf"]).status_code in {200, 303}
    assert again.get(f"/r/{request.id}", follow_redirects=False).status_code in {302, 303, 401}


def test_a_token_counts_at_both_until_one_of_them_revokes_it(two: Two) -> None:
    token = bearer(two.here, "ask", "agent")
    clients = [TestClient(app, base_url=BASE, headers=token) for app in (two.app, two.other)]
    asked = [asked_message(sample_call(None)) for _ in clients]
    answers = [one.post(ASK, json={"request": each}) for one, each in zip(clients, asked, strict=True)]
    assert [one.status_code for one in answers] == [200, 200]
    tokens = Tokens(two.there)
    tokens.revoke(tokens.all()[0].id)
    for one in clients:
        assert one.post(ASK, json={"request": asked[0]}).status_code == 401


def test_a_grant_and_the_stop_of_one_count_at_the_other(two: Two) -> None:
    first = two.here.ask(sample_call(None))
    at_one, at_other = (Review(store=store, reviewer="ada", channel="test") for store in (two.here, two.there))
    at_one.grant(first.id, count=2, lasts="1h")
    request = two.there.ask(sample_call(None))
    assert request.state is State.APPROVED
    at_other.stop(reason="fire")
    with pytest.raises(errors.StoppedError):
        two.here.start(request.id, new_token())
    at_one.go()
    assert two.there.start(request.id, new_token()).state is State.RUNNING


def test_a_decision_at_one_is_heard_by_the_pages_of_the_other(two: Two) -> None:
    request = two.here.ask(sample_call(None))

    async def work(log: Any, broadcaster: Any) -> None:
        reader = listener(log)
        said = asyncio.create_task(broadcaster.next_payload(reader))
        await asyncio.sleep(0)
        Review(store=two.here, reviewer=Reviewer("ada"), channel="test").approve(request.id)
        heard = await asyncio.wait_for(said, PATIENCE)
        assert request.id in (heard or b"").decode()

    with_broadcaster(two.there, work)


def test_who_waits_at_one_is_woken_by_the_other(two: Two) -> None:
    request, woken = two.here.ask(sample_call(None)), threading.Event()
    unwatch = two.there.watch(request.id, lambda: two.there.get(request.id).state is State.APPROVED and woken.set())
    Review(store=two.here, reviewer=Reviewer("ada"), channel="test").approve(request.id)
    assert woken.wait(PATIENCE)
    unwatch()
