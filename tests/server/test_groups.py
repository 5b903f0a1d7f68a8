"""Alike calls: one row of the list, one table, and one decision for all that are ticked.

The invariant: a fold hides no request, and each is decided as the table showed it or not at all.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest

import sayso
from sayso import clock
from sayso.model.request import State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.server.pages import listing
from sayso.server.pages.alike import fold, folded_row, table_of
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from tests.support.browsing import BASE, Browser, fields_of, text_of

OTHER = Identity(PROGRAM, "other-bot")


def asked(store: Store, *arguments: dict[str, Any], **fields: Any) -> list[str]:
    return [store.ask(sample_call(None, one, **fields)).id for one in arguments]


def pays(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"amount": 10 + at, "to": f"kim{at}", "reason": "late", **more} for at in range(count)]


def items_of(page: str) -> dict[str, str]:
    """Return what the ticks of a page send, by request."""
    return {one.partition(":")[0]: one for one in re.findall(r'name="item" value="([^"]+)"', page)}


def group_of(ada: Browser, path: str = "/") -> str:
    """Return the page of the one group in a list."""
    (link,) = re.findall(r'class="what" href="(/bulk\?alike=[^"]+)"', ada.get(path).text)
    return ada.get(link.replace("&amp;", "&")).text


def decided(ada: Browser, page: str, verb: str, items: list[str]) -> str:
    data = {"csrf": fields_of(page)["csrf"], "verb": verb, "item": items}
    return text_of(ada.post("/bulk", data=data, headers={"origin": BASE}).text)


def test_calls_are_alike_by_function_requester_and_risk() -> None:
    alike = [sample_call(arguments=one) for one in pays(3)]
    two_others = [sample_call(requester=OTHER), sample_call(requester=OTHER)]
    risky, question = sample_call(risk="high"), sample_question()
    groups = fold([alike[0], two_others[0], risky, alike[1], question, two_others[1], alike[2]])
    assert groups == [alike, [two_others[0]], [risky], [question], [two_others[1]]]


def test_a_list_folds_alike_calls_and_hides_none(
    store: Store, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(listing, "_FOLDED", 60)
    many = asked(store, *pays(70))
    asked(store, *[{"amount": 1}] * 2, risk="low")
    seen, folded, where = set[str](), list[str](), "/"
    while where:
        page = ada.get(where).text
        folded += re.findall(r'<span class="calls">(\d+) calls', page)
        for link in re.findall(r'class="what" href="/bulk\?alike=(\w+)', page):
            seen |= items_of(ada.get(f"/bulk?alike={link}").text).keys()
        seen |= set(re.findall(r'class="what" href="/r/(\w+)', page))
        further = re.search(r'<a href="([^"]+)" rel="next">', page)
        where = "" if further is None else further[1].replace("&amp;", "&")
    assert folded == ["60", "10"]  # each window of the list folds what it holds; the table always has all
    assert len(seen) == 72
    assert seen > set(many)
    assert "calls</span>" not in ada.get("/?fold=no").text


def test_a_table_folds_what_is_the_same_and_marks_what_stands_out() -> None:
    amounts = ["12.50", "13", "11.25", "12", "90", "12.5"]
    made = [
        sample_call(
            f"customer-{at}",
            {"order": {"id": 700 + at * 50, "amount": Decimal(amount)}, "currency": "USD" if at == 3 else "EUR",
             "reason": "late", "flag": 1 if at else True, "password": f"hunter{at}"},
            prompt="Parcel was late.", summary=f"Refund {at}",
        )
        for at, amount in enumerate(amounts)
    ]  # fmt: skip
    table = table_of(made, clock.now())
    common = {column.name: column.cells[0].shown.text for column in table.common}
    assert (common["reason"], common["prompt"]) == ("late", "Parcel was late.")
    assert "***" in common["password"]
    columns = {column.name: column for column in table.columns}
    assert list(columns) == ["order.id", "order.amount", "currency", "flag", "run", "summary"]
    assert columns["order.amount"].totals == ["139.25 EUR", "12 USD"]
    assert [cell.pad for cell in columns["order.amount"].cells] == ["", ".00", "", ".00", ".00", "0"]
    assert [bool(columns[name].numbers) for name in ("order.id", "order.amount")] == [False, True]
    notes = {line.request.id: [cell.note for cell in line.cells if cell.note] for line in table.odd}
    assert notes == {
        made[0].id: ["all others: 1"], made[3].id: ["all others: 'EUR'"], made[4].id: ["7.2 times the median"]
    }  # fmt: skip
    assert [line.request for line in table.usual] == [made[at] for at in (1, 2, 5)]
    gist = folded_row(made, clock.now()).gist
    assert gist.startswith("order.amount 139.25 EUR + 12 USD in total · reason='late'")


def test_a_number_of_any_size_takes_no_page_down(store: Store, ada: Browser) -> None:
    (alone,) = asked(store, {"amount": "1e9999999"})
    for amount in ("9e999999", "-9e999999", "1e-999999", f"1.{'0' * 20_000}"):
        ids = asked(store, *[{"amount": Decimal(one)} for one in (amount, amount, amount, "1")], risk=amount[:9])
        alike = f"/bulk?alike={ids[0]}"
        for path in ("/", "/?sort=amount", "/?fold=no", "/history", f"/r/{ids[0]}", f"/r/{alone}", alike):
            page = ada.get(path)
            assert page.status_code == 200, (amount, path)
            assert len(page.text) < 200_000, (amount, path)
    big = [
        sample_call(arguments={"amount": Decimal(one)}) for one in ("1.5", "9000000000000000.00000000000000000001", "2")
    ]
    (column,) = [one for one in table_of(big, clock.now()).columns if one.name == "amount"]
    assert column.totals == ["9,000,000,000,000,003.50000000000000000001"]


def test_long_texts_begin_with_what_is_different() -> None:
    made = [sample_call(arguments={"body": f"Dear Kim,\n{'we are sorry. ' * 30}\nYour order {at}"}) for at in range(3)]
    (column,) = [one for one in table_of(made, clock.now()).columns if one.name == "body"]
    assert [cell.head for cell in column.cells] == [f"… Your order {at}" for at in range(3)]


def test_all_but_those_ticked_out_are_decided_as_they_were_shown(store: Store, ada: Browser) -> None:
    ids = asked(store, *pays(130))
    changed = asked(store, *pays(1, note="x"))[0]
    sayso.Review(store, by="bob").comment(ids[5], "Wait for me, @ada.")
    page = group_of(ada)
    assert "bob commented: Wait for me, @ada." in text_of(page)
    assert "2 stand out" in text_of(page)
    assert "mentions you" in text_of(ada.get("/").text)
    assert "Approve or reject 131 requests?" in text_of(page)
    items = items_of(page)
    assert set(items) == {*ids, changed}
    ada.decide(changed, "reject")
    stale = f"{ids[1]}:{'0' * 64}"
    said = decided(ada, page, "approve", [stale if one == ids[1] else items[one] for one in items if one != ids[0]])
    assert "128 of 130 decided" in said
    assert "was changed since you looked" in said
    assert "already rejected by" in said
    states = [store.get(one).state for one in (*ids, changed)]
    assert states == [State.PENDING] * 2 + [State.APPROVED] * 128 + [State.REJECTED]


def test_a_group_keeps_the_filters_of_its_list_and_offers_what_one_may_decide(store: Store, ada: Browser) -> None:
    late = asked(store, *pays(4))
    asked(store, *pays(4, reason="damaged"))
    store.claim(late[0], Identity("sayso", "bob"), roles=(), channel="web")
    page = group_of(ada, "/?q=late&sort=amount")
    assert list(items_of(page)) == late[:0:-1]
    assert "took it on" in text_of(page)
    assert 'href="/?q=late&amp;sort=amount"' in page
    done = decided(ada, page, "reject", list(items_of(page).values()))
    assert "3 of 3 decided" in done
    assert {store.get(one).state for one in late[1:]} == {State.REJECTED}


def test_a_lot_of_high_risk_is_asked_about_once_more(store: Store, ada: Browser) -> None:
    asked(store, *pays(3), risk="high")
    page = group_of(ada)
    assert re.search(r'<button name="verb" value="approve"[^>]* data-risk="high"', page)
    assert re.search(r'<button name="verb" value="reject"[^>]* data-risk', page) is None
