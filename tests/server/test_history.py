"""History and figures in the inbox: filters, files, and what a reader of these files can be made to run.

The invariant: a filter never hides what it should show, and a file says what the page says, secrets masked.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from starlette.applications import Starlette

import sayso
from sayso.model.reviewer import PROGRAM, Identity, Quorum
from sayso.server.pages import listing
from sayso.server.pages.listing import COLUMNS
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from tests.conftest import Clock
from tests.support.browsing import Browser, text_of


def shown(text: str) -> list[str]:
    return re.findall(r'<a class="what" href="/r/(\w+)[?"]', text)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def past(store: Store, clock: Clock) -> dict[str, str]:
    """Decide some requests on three days, and return their ids by name."""
    ids: dict[str, str] = {}

    def ask(name: str, agent: str, **fields: Any) -> str:
        ids[name] = store.ask(sample_call(name, requester=Identity(PROGRAM, agent), **fields)).id
        clock.tick(seconds=30)
        return ids[name]

    sayso.Review(store, reviewer="ada", channel="web").approve(ask("approved", "support-bot"), comment="fine")
    clock.tick(days=1)
    sayso.Review(store, reviewer="bob", channel="slack").reject(ask("rejected", "support-bot"), "no")
    clock.tick(days=1)
    shared = ask("shared", "ops-agent", quorum=Quorum(2))
    sayso.Review(store, reviewer="ada", channel="cli").approve(shared)
    sayso.Review(store, reviewer="cleo", channel="cli").approve(shared)
    ids["question"] = store.ask(sample_question()).id
    sayso.Review(store, reviewer="bob", channel="web").answer(ids["question"], "the main one")
    return ids


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", ["question", "shared", "rejected", "approved"]),
        ("by=BOB", ["question", "rejected"]),
        ("by=ada", ["shared", "approved"]),
        ("verb=approve", ["shared", "approved"]),
        ("verb=answer", ["question"]),
        ("channel=web", ["question", "approved"]),
        ("agent=support", ["rejected", "approved"]),
        ("from=2026-01-02", ["question", "shared", "rejected"]),
        ("from=2026-01-02&to=2026-01-02", ["rejected"]),
        ("to=2026-01-01", ["approved"]),
        ("by=bob&channel=slack&verb=reject&tool=pay", ["rejected"]),
        ("by=nobody", []),
    ],
)
def test_history_is_narrowed_by_who_what_where_and_when(
    ada: Browser, store: Store, clock: Clock, query: str, wanted: list[str]
) -> None:
    ids = past(store, clock)
    assert shown(ada.get(f"/history?{query}").text) == [ids[name] for name in wanted]
    lines = ada.get(f"/history.jsonl?{query}").text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [ids[name] for name in wanted]
    assert [row["id"] for row in rows_of(ada.get(f"/history.csv?{query}").text)] == [ids[name] for name in wanted]


@pytest.mark.parametrize("query", ["verb=odd", "from=today", "to=2026-13-01", "from=0001-01-01", "to=9999-12-31"])
def test_a_filter_that_cannot_be_read_is_told_so(ada: Browser, query: str) -> None:
    for page in ("/", "/history", "/history.csv", "/history.jsonl"):
        assert ada.get(f"{page}?{query}").status_code == 400, page


def test_the_inbox_is_narrowed_by_the_agent(ada: Browser, store: Store) -> None:
    ids = [store.ask(sample_call(requester=Identity(PROGRAM, agent))).id for agent in ("one", "other")]
    assert shown(ada.get("/?agent=ONE").text) == ids[:1]
    assert shown(ada.get("/").text) == ids


def test_a_filter_that_keeps_few_ends_a_page_early_and_goes_on_from_there(
    ada: Browser, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOK", 20)
    monkeypatch.setattr(listing, "_CHUNK", 10)
    monkeypatch.setattr(listing, "PAGE", 3)
    wanted: list[str] = []
    for number in range(75):
        request = store.ask(sample_call(f"run-{number}"))
        by = "rare" if number % 15 == 0 or number in {31, 32, 33, 34} else "often"
        sayso.Review(store, reviewer=by).reject(request.id)
        wanted += [request.id] if by == "rare" else []
    found: list[str] = []
    where: str | None = "/history?by=rare"
    pages = 0
    while where:
        text = ada.get(where).text
        assert len(shown(text)) <= 3
        found += shown(text)
        again = re.search(r'<a href="([^"]+)" rel="next">', text)
        where = None if again is None else again[1].replace("&amp;", "&")
        pages += 1
    assert found == wanted[::-1]
    assert pages >= 4
    assert "Looked at 20 for these filters" in text_of(ada.get("/history?by=nobody").text)


# -- files -----------------------------------------------------------------------------------------------------


def test_both_files_say_who_decided_what_and_mask_secrets(ada: Browser, store: Store, clock: Clock) -> None:
    request = store.ask(sample_call("order-1", {"amount": 5, "to": "kim", "password": "hunter2"}, risk="high"))
    clock.tick(seconds=2.5)
    sayso.Review(store, reviewer="bob", channel="slack").approve(request.id, changes={"amount": 4}, comment="half")
    said = json.loads(ada.get("/history.jsonl").text)
    assert tuple(said) == COLUMNS
    assert said["arguments"] == {"amount": 4, "to": "kim", "password": "***"}
    assert [said[name] for name in ("decided_by", "channel", "decision", "changed", "seconds_to_decide")] == [
        "local:bob", "slack", "approve", True, 2.5,
    ]  # fmt: skip
    answer = ada.get("/history.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="history.csv"'
    (row,) = rows_of(answer.text)
    assert [row[name] for name in ("id", "risk", "changed", "comment")] == [request.id, "high", "yes", "half"]
    assert json.loads(row["arguments"]) == said["arguments"]
    assert "hunter2" not in answer.text + ada.get("/history.jsonl").text


FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    " =1+1",
    "\u00a0=1+1",
    "|cmd",
    "%0A",
    "\u200b=1",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_a_table_is_a_formula(ada: Browser, store: Store, text: str) -> None:
    request = store.ask(sample_call(f"{text}", {"amount": 1, "to": text}, risk=text))
    sayso.Review(store, channel=text).reject(request.id, text, by="ada")
    (row,) = rows_of(ada.get("/history.csv").text)
    assert set(row) == set(COLUMNS)
    for name, cell in row.items():
        assert not cell.lstrip().startswith(("=", "+", "-", "@", "|", "%")), (name, cell)


def test_a_file_of_no_decision_and_of_no_kind(ada: Browser) -> None:
    assert ada.get("/history.jsonl").text == ""
    assert rows_of(ada.get("/history.csv").text) == []
    assert ada.get("/history.xlsx").status_code == 404


def test_a_stranger_gets_no_file_and_no_figures(app: Starlette) -> None:
    stranger = Browser(app, base_url="http://localhost:8600")
    for page in ("/history.csv", "/history.jsonl", "/insights", "/settings"):
        assert stranger.get(page).status_code == 401


# -- figures ---------------------------------------------------------------------------------------------------


def test_figures_are_on_the_page_by_tool_and_reviewer(ada: Browser, store: Store, clock: Clock) -> None:
    past(store, clock)
    page = ada.get("/insights?days=7")
    text = re.sub(r"\s+", " ", text_of(page.text))
    assert "approval rate67%" in text
    assert "50 % decided within30 s" in text
    assert page.text.count('<svg class="chart"') == 2
    links = {name: link for link, name in re.findall(r'<th scope="row"><a href="([^"]+)">([^<]+)</a>', page.text)}
    assert {name: ada.get(link).text.count("data-row>") for name, link in links.items()} == {
        "pay": 3, "questions": 1, "ada": 2, "bob": 2, "cleo": 1,
    }  # fmt: skip
    assert ada.get("/insights?days=8").status_code == 400


def test_figures_are_looked_up_once_in_a_minute(
    ada: Browser, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = store.list
    monkeypatch.setattr(store, "list", lambda *args, **options: looks.append(1) or real(*args, **options))
    ada.get("/insights")
    once = len(looks)
    for _ in range(2):
        ada.get("/insights")
    assert len(looks) == once
    clock.tick(seconds=60)
    ada.get("/insights")
    assert len(looks) == 2 * once
