"""Saved views: searches of the inbox under a name.

The invariant: a view changes what somebody looks at, and nobody's own view is shown to another.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.applications import Starlette

from sayso.stores.base import Store
from sayso.stores.records import RecordRow, record_of
from tests.support.acting import held, payer
from tests.support.browsing import BASE, Browser, browser, fields_of, text_of


def views(person: Browser) -> list[str]:
    return re.findall(r'<li><a href="/\?([^"]+)"', person.get("/").text.partition('aria-label="Saved views"')[2])


def send(person: Browser, verb: str, **fields: str) -> Any:
    data = {"csrf": fields_of(person.get("/grants").text)["csrf"], **fields}
    return person.post(f"/views/{verb}", data=data, headers={"origin": BASE})


def test_a_view_is_saved_opened_and_removed_by_its_owner(app: Starlette, ada: Browser) -> None:
    bob = browser(app, "bob")
    held(payer(), 5)
    page = ada.get("/?q=alice&sort=amount").text
    assert 'name="in" value="q=alice&amp;sort=amount"' in page
    saved = send(ada, "save", name="Large <b> ones", **{"in": "q=alice&sort=amount"})
    assert str(saved.url).endswith("/?q=alice&sort=amount")
    assert "Large <b> ones" in text_of(saved.text)
    assert 'sort=amount" aria-current="page"' in saved.text
    send(ada, "save", name="risky", **{"in": "risk=high"})
    assert (views(ada), views(bob)) == (["q=alice&amp;sort=amount", "risk=high"], [])
    send(ada, "save", name="RISKY", **{"in": "risk=critical"})
    key = fields_of(ada.get("/?q=alice&sort=amount").text)["view"]
    send(bob, "remove", view=key)
    assert len(views(ada)) == 2
    send(ada, "remove", view=key)
    assert views(ada) == ["risk=critical"]
    assert send(ada, "odd", view=key).status_code == 404


def test_what_is_no_view_is_not_saved(ada: Browser) -> None:
    for name, words in (("", "q=a"), ("n" * 41, "q=a"), ("n", ""), ("n", "q=" + "a" * 2_000)):
        assert send(ada, "save", name=name, **{"in": words}).status_code == 400
    for number in range(30):
        assert send(ada, "save", name=f"view {number}", **{"in": "q=a"}).status_code == 200
    assert send(ada, "save", name="one more", **{"in": "q=a"}).status_code == 400
    assert send(ada, "save", name="View  29", **{"in": "q=b"}).status_code == 200
    assert len(views(ada)) == 30


def test_a_view_keeps_filters_only_and_one_that_was_altered_stops_no_list(
    ada: Browser, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(ada, "save", name="mine", **{"in": "q=a&cursor=9.zz&page=2&sort=amount"})
    assert views(ada) == ["q=a&amp;sort=amount"]
    assert send(ada, "save", name="none", **{"in": "cursor=9.zz"}).status_code == 400
    read = store.records

    def altered(kind: str, **wanted: Any) -> Any:
        found = read(kind, **wanted)
        return [record_of(RecordRow(kind, "k", "nonsense", None))] if kind.startswith("view/") else found

    monkeypatch.setattr(store, "records", altered)
    assert (ada.get("/").status_code, views(ada)) == (200, [])
