"""Saved views: searches of the inbox under a name.

The invariant: a view changes what somebody looks at, and nobody's own view is shown to another.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.applications import Starlette

from sayso.stores.base import Store
from sayso.stores.records import Record, RecordRow, record_of
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
    send(ada, "save", name="risky", shared="yes", **{"in": "risk=high"})
    assert views(ada) == ["q=alice&amp;sort=amount", "risk=high"]
    assert views(bob) == ["risk=high"]
    send(ada, "save", name="RISKY", shared="yes", **{"in": "risk=critical"})
    assert views(bob) == ["risk=critical"]
    key = fields_of(ada.get("/?q=alice&sort=amount").text)["view"]
    send(bob, "remove", view=key)
    assert len(views(ada)) == 2
    send(ada, "remove", view=key)
    assert views(ada) == ["risk=critical"]


def test_a_shared_view_is_changed_by_who_shared_it_or_by_a_lead(app: Starlette, ada: Browser) -> None:
    bob, lead = browser(app, "bob"), browser(app, "carol", roles={"lead"})
    for name in ("risky", "small"):
        send(ada, "save", name=name, shared="yes", **{"in": f"q={name}"})
    keys = [fields_of(ada.get(f"/?q={name}").text)["view"] for name in ("risky", "small")]
    assert "Remove the view" not in bob.get("/?q=risky").text
    assert send(bob, "remove", view=keys[0], shared="yes").status_code == 403
    taken = send(bob, "save", name="Risky", shared="yes", **{"in": "q=other"})
    assert (taken.status_code, "people with the role lead" in text_of(taken.text)) == (403, True)
    assert send(bob, "save", name="Risky", **{"in": "q=other"}).status_code == 200  # under their own kind
    assert views(ada) == ["q=risky", "q=small"]
    assert "Remove the view" in lead.get("/?q=risky").text
    assert send(lead, "remove", view=keys[0], shared="yes").status_code == 200
    assert send(ada, "remove", view=keys[1], shared="yes").status_code == 200
    assert (views(ada), views(bob)) == ([], ["q=other"])


@pytest.mark.parametrize("was_there", [False, True])
def test_of_two_who_save_one_shared_view_at_once_one_wins_and_the_other_is_told(
    app: Starlette, ada: Browser, store: Store, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    bob, read = browser(app, "bob", roles={"lead"}), store.record
    if was_there:
        send(ada, "save", name="risky", shared="yes", **{"in": "q=old"})

    def read_before_another_saves(kind: str, key: str) -> Any:
        found = read(kind, key)
        if kind == "view":
            monkeypatch.undo()
            assert send(ada, "save", name="risky", shared="yes", **{"in": "q=first"}).status_code == 200
        return found

    monkeypatch.setattr(store, "record", read_before_another_saves)
    late = send(bob, "save", name="Risky", shared="yes", **{"in": "q=second"})
    assert (late.status_code, "nothing was saved" in text_of(late.text)) == (409, True)
    assert views(bob) == ["q=first"]
    assert send(bob, "save", name="Risky", shared="yes", **{"in": "q=second"}).status_code == 200
    assert views(ada) == ["q=second"]


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
    store.keep(Record("view", "k", {"name": "old", "words": "risk=low&cursor=9.zz"}))
    assert views(ada) == ["q=a&amp;sort=amount", "risk=low"]
    assert send(ada, "save", name="none", **{"in": "cursor=9.zz"}).status_code == 400
    read = store.records

    def altered(kind: str, **wanted: Any) -> Any:
        return read(kind, **wanted) if kind != "view" else [record_of(RecordRow("view", "k", "nonsense", None))]

    monkeypatch.setattr(store, "records", altered)
    assert views(ada) == ["q=a&amp;sort=amount"]
