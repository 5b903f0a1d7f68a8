"""How often a page, or a refresh of all open pages, reads the store: as often for many rows as for few."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.model.reviewer import LOCAL, TOKENS, Identity
from sayso.server.app import create_app
from sayso.server.live import PageHub
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.browsing import Browser, browser, text_of
from tests.support.calling import caller

ADA = Identity(LOCAL, "ada")


class Counted(SqliteStore):
    """A store that counts its reads."""

    reads = 0

    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        self.reads += 1
        return super()._query(sql, values)

    def reads_of(self, work: Callable[[], object]) -> int:
        work()  # what is read once and remembered
        before = self.reads
        work()
        return self.reads - before


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    with closing(Counted(tmp_path / "requests.db")) as store:
        yield store


@pytest.fixture
def ada(counted: Counted) -> Browser:
    return browser(create_app(counted), "ada")


def ask(store: Counted, count: int) -> list[str]:
    """Ask, each request in its own run; Ada has claimed all of them and snoozed every second one."""
    review = sayso.Review(store, by="ada")
    ids = [store.ask(sample_call()).id for _ in range(count)]
    for request_id in ids:
        review.claim(request_id)
    for request_id in ids[::2]:
        review.snooze(request_id, "1h")
    return ids


@pytest.mark.parametrize("address", ["/", "/?mine=yes", "/?snoozed=yes", "/history"])
def test_a_page_of_many_requests_reads_as_often_as_one_of_few(counted: Counted, ada: Browser, address: str) -> None:
    def page() -> None:
        assert ada.get(address).status_code == 200

    ask(counted, 4)
    few = counted.reads_of(page)
    ask(counted, 20)
    assert counted.reads_of(page) == few


def test_the_first_page_of_runs_reads_each_plain_run_once(counted: Counted, ada: Browser) -> None:
    def page() -> None:
        assert ada.get("/runs").status_code == 200

    ask(counted, 4)
    few = counted.reads_of(page)
    ask(counted, 20)
    assert counted.reads_of(page) == few + 20


def test_a_page_to_decide_many_reads_as_often_as_one_for_few(counted: Counted, ada: Browser) -> None:
    def page(*words: str) -> None:
        assert ada.get(f"/bulk?verb=approve&{'&'.join(words)}").status_code == 200

    ids = ask(counted, 8)[1::2]
    alone = counted.reads_of(lambda: page(f"alike={ids[0]}"))
    few = counted.reads_of(lambda: page(*(f"id={one}" for one in ids)))
    ids += ask(counted, 40)[1::2]
    assert counted.reads_of(lambda: page(f"alike={ids[0]}")) == alone
    assert counted.reads_of(lambda: page(*(f"id={one}" for one in ids))) == few


def test_requests_that_are_read_together_are_as_they_stand_now(counted: Counted, ada: Browser, clock: Clock) -> None:
    early, late = (counted.ask(sample_call(expires_at=clock() + timedelta(hours=hours))) for hours in (1, 3))
    clock.tick(hours=2)
    text = text_of(ada.get(f"/bulk?verb=approve&id={early.id}&id={late.id[:20]}").text)
    assert "expired" in text
    assert "Approve 1 request" in text
    assert ada.get(f"/bulk?verb=approve&id={late.id}&id=rq_none").status_code == 404


def test_a_program_that_looks_for_many_ids_reads_as_often_as_for_few(counted: Counted) -> None:
    program = caller(create_app(counted), "ask", "bot")

    def match() -> list[str]:
        return program.post("/api/v1/program/match", json={"prefix": "rq_", "limit": 100}).json()["ids"]

    mine = [counted.ask(sample_call(requester=Identity(TOKENS, "bot"))).id for _ in range(3)]
    few = counted.reads_of(match)
    ask(counted, 20)  # of other programs
    assert counted.reads_of(match) == few
    assert sorted(match()) == sorted(mine)


def test_a_refresh_of_many_changed_rows_reads_as_often_as_one_of_few(counted: Counted) -> None:
    ids = ask(counted, 20)
    with closing(asyncio.new_event_loop()) as loop:
        hub = PageHub(counted, loop)
        crowd = {ADA, *(Identity(LOCAL, f"reviewer {number}") for number in range(20))}
        one, all_of_them = (
            counted.reads_of(lambda people=people: hub._look(set(), people)) for people in ({ADA}, crowd)
        )
        assert one == all_of_them
        few, many = (counted.reads_of(lambda rows=rows: hub._look(set(rows), {ADA})) for rows in (ids[:1], ids))
        assert few == many
        _, rows = hub._look({*ids, "rq_none", "rq_\0"}, {ADA})
        assert rows.keys() == set(ids)
