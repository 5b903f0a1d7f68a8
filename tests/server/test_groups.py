"""Alike calls: one row of the list, one table, and one decision for all that are ticked.

The invariant: a fold hides no request, and each is decided as the table showed it or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from starlette.applications import Starlette

import sayso
from sayso import clock
from sayso.model.request import State
from sayso.model.reviewer import PROGRAM, Identity, Quorum
from sayso.server.pages import actions, listing
from sayso.server.pages.alike import fold, folded_row, table_of
from sayso.server.pages.listing import alike_to
from sayso.stores import review
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from tests.support.acting import held
from tests.support.browsing import BASE, Browser, browser, fields_of, text_of

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
    common = {column.name: column.cells[0].shown.text for column in table["common"]}
    assert (common["reason"], common["prompt"]) == ("late", "Parcel was late.")
    assert [(column.name, column.cells[0].shown.text) for column in table["hidden"]] == [("password", "***")]
    columns = {column.name: column for column in table["columns"]}
    assert list(columns) == ["order.amount", "currency", "flag", "order.id", "run", "summary"]
    assert columns["order.amount"].totals == ["139.25 EUR", "12 USD"]
    assert [cell.pad for cell in columns["order.amount"].cells] == ["", ".00", "", ".00", ".00", ""]
    assert [bool(columns[name].numbers) for name in ("order.id", "order.amount")] == [False, True]
    notes = {line["request"].id: [cell.note for cell in line["cells"] if cell.note] for line in table["odd"]}
    assert notes == {
        made[0].id: ["all others: 1"], made[3].id: ['all others: "EUR"'], made[4].id: ["7.2 times the median"]
    }  # fmt: skip
    assert [line["request"] for line in table["usual"]] == [made[at] for at in (1, 2, 5)]
    gist = folded_row(made, clock.now())["gist"]
    assert gist.startswith('order.amount 139.25 EUR + 12 USD in total · reason="late"')


def test_amounts_are_compared_with_those_of_their_currency() -> None:
    euros, yen = ["19.90", "24.50", "12", "31", "18.75", "22"], ["8000", "9000", "10000", "11000", "12000"]

    def odd(*prices: tuple[str, str], more: dict[str, Any] | None = None) -> list[tuple[str, list[str]]]:
        calls = [
            sample_call(arguments={"amount": Decimal(amount), "to": {"currency": currency}, **(more or {})})
            for amount, currency in prices
        ]
        table = table_of(calls, clock.now())
        assert folded_row(calls, clock.now())["odd"] == len(table["odd"])
        return [
            (str(line["request"].effective.arguments["amount"]), [cell.note for cell in line["cells"] if cell.note])
            for line in table["odd"]
        ]

    def each(amounts: list[str], currency: str) -> list[tuple[str, str]]:
        return [(amount, currency) for amount in amounts]

    assert odd(*each(euros, "EUR"), *each(yen, "JPY")) == []
    assert odd(*each(euros, "EUR"), *each(["450"], "EUR"), *each(yen, "JPY")) == [("450", ["20.5 times the median"])]
    assert odd(*each(["50"] * 4 + ["70"], "EUR"), *each(yen, "JPY")) == [("70", ["all others: 50"])]
    few = ["only 2 of 7 in this currency"]
    assert odd(*each(yen, "JPY"), *each(["9500", "12"], "EUR")) == [("9500", few), ("12", few)]
    assert odd(*each(euros, "EUR"), ("15000", "JPY")) == [("15000", ['all others: "EUR"'])]
    assert odd(*each(euros[:3], "EUR"), *each(yen[:3], "JPY")) == []  # nothing has enough others to compare
    both = {"fee": {"currency": "USD"}}
    assert odd(*each(euros, "EUR"), *each(yen, "JPY"), more=both) == []


def test_a_text_stands_out_by_its_folder_host_domain_or_form() -> None:
    for usual, other, why in [
        ("/backups/2024/%s", "/var/lib/postgresql/16/main", 'all others: "/backups/2024/…"'),
        ("/backups/2024/%s", "/backups/2024/../../etc/passwd", 'all others: "/backups/2024/…"'),
        ("/backups/2024/%s", "/backups/2024/%2e%2e/7", 'all others: "/backups/2024/…"'),
        ("report %s.csv", "../../etc/shadow", "all others: no sign such as / @ $"),
        ("https://a.example/%s", "https://a.example@b.example/1", 'all others: "https://a.example/…"'),
        ("c%s@a.example", "c@b.example", 'all others: "…@a.example"'),
        ("A-%s", "everything", 'all others: like "A-0"'),
        ("/backups/%s", None, 'all others: "/backups/…"'),
    ]:
        made = [sample_call(arguments={"what": usual.replace("%s", str(at))}) for at in range(11)]
        odd = sample_call(arguments={"what": other})
        table = table_of([*made, odd], clock.now())
        assert [(line["request"], [one.note for one in line["cells"] if one.note]) for line in table["odd"]] == [
            (odd, [why])
        ]
        assert folded_row([*made, odd], clock.now())["odd"] == 1
    words = ["damaged", "arrived late", "box crushed, wet", "3 days late", "no"]
    assert not table_of([sample_call(arguments={"why": one}) for one in words], clock.now())["odd"]


def test_calls_of_which_only_the_function_is_alike_are_not_folded() -> None:
    mails = [("kim@a.example", "Hello"), ("bo@b.example", "Your parcel"), ("li@c.example", "3 things")]
    made = [sample_call(arguments={"to": to, "subject": subject, "cc": None}) for to, subject in mails]
    assert fold(made) == [[one] for one in made]
    alike = [sample_call(arguments={"to": f"{at}@a.example", "subject": one}) for at, (_, one) in enumerate(mails)]
    assert fold(alike) == [alike]


def test_what_stands_out_is_not_ticked_where_it_could_be_approved(store: Store, ada: Browser) -> None:
    ids = asked(store, *pays(4), *pays(1, note="x"))
    row = text_of(ada.get("/").text)
    assert "1 stands out" in row
    page = group_of(ada)
    assert "1 stands out, at the top of its table. Calls that stand out are not ticked." in text_of(page)
    for verb, ticked in (("approve", 4), ("reject", 5)):
        page = ada.get(f"/bulk?verb={verb}&" + "&".join(f"id={one}" for one in ids)).text
        assert len(re.findall(r'name="item"[^>]* checked', page)) == ticked


def test_values_that_differ_under_a_mask_are_not_said_to_be_the_same(store: Store, ada: Browser) -> None:
    alike = {
        "password": "p", "order": {"token": "t", "id": 7}, "at": "https://u:hunter0@shop.example", "note": "***",
        "currency": "***",
    }  # fmt: skip
    given = [{**alike, "amount": 10 + at} for at in range(4)]
    secrets: list[dict[str, Any]] = [
        {}, {"password": "q"}, {"order": {"token": "u", "id": 7}}, {"at": "https://u:hunter1@shop.example"},
    ]  # fmt: skip
    expected = ([], ["password"], ["order.token"], ["at"])
    for changed, hidden in zip(secrets, expected, strict=True):
        made = [sample_call(f"r{at}", {**one, **(changed if at == 2 else {})}) for at, one in enumerate(given)]
        table = table_of(made, clock.now())
        assert [column.name for column in table["hidden"]] == hidden
        same = [column.name for column in table["common"] if column.source == "argument"]
        assert same == [name for name in ("password", "order.token", "order.id", "at", "note", "currency")
                        if name not in hidden]  # fmt: skip
        gist = folded_row(made, clock.now())["gist"]
        assert [
            name for name in ("password", "order.token", "at") if f"{name} masked, not all the same" in gist
        ] == hidden
    asked(store, *[{"amount": at, "password": f"hunter{at}", "flag": True} for at in range(3)])
    page = group_of(ada)
    assert "Masked, and not the same in all 3" in page
    same = text_of(page.partition("The same in all 3")[2].partition("Masked, and not")[0])
    assert ("hunter" in page, "password" in same, "flag" in same) == (False, False, True)
    assert '<bdi dir="ltr">true</bdi>' in page, "in a text from the right, too, a value is read from the left"


def test_a_number_of_any_size_takes_no_page_down(store: Store, ada: Browser) -> None:
    (alone,) = asked(store, {"amount": "1e9999999"})
    for amount in ("9e999999", "-9e999999", "1e-999999", f"1.{'0' * 20_000}"):
        ids = asked(store, *[{"amount": Decimal(one)} for one in (*[amount] * 3, *["1"] * 12)], risk=amount[:9])
        alike = f"/bulk?alike={ids[0]}"
        for path in ("/", "/?sort=amount", "/?fold=no", "/history", f"/r/{ids[0]}", f"/r/{alone}", alike):
            page = ada.get(path)
            assert page.status_code == 200, (amount, path)
            assert len(page.text) < 200_000, (amount, path)
    big = [
        sample_call(arguments={"amount": Decimal(one)}) for one in ("1.5", "9000000000000000.00000000000000000001", "2")
    ]
    (column,) = [one for one in table_of(big, clock.now())["columns"] if one.name == "amount"]
    assert column.totals == ["9,000,000,000,000,003.50000000000000000001"]


@dataclass
class Delete:
    path: str
    days: int = 1


def test_a_table_tells_what_is_ours_from_what_a_program_wrote(store: Store, ada: Browser) -> None:
    script = "echo ok " + "#" * 200 + "\nrm -rf /data"
    named = {"approved by": "bob (finance)", "n" * 100_000: 1, "é" * 80: 1, "order.total": 2, "script": script}

    first = asked(store, *[{"action": Delete(f"/x{at}"), **named} for at in range(3)])[0]
    page = group_of(ada)
    given, table = page.partition("The same in all 3</h3>")[2].partition("<table")[::2]
    ours = table.partition("For all 3</h3>")[2]  # below the calls: those are read first
    assert "<dt>&#34;approved by&#34;</dt>" in given
    assert "<dt>&#34;order.total&#34;</dt>" in given
    assert "asked by <small>recorded</small>" in ours
    assert "approved by" not in ours.partition("</dl>")[0]
    assert "Delete</dd>" in re.sub(
        r"\s+</dd>", "</dd>", given.partition("<dt>action (class)</dt>")[2].partition("<dt>")[0]
    )
    assert "<details" in given.partition("<dt>script</dt>")[2]
    assert re.search(r"<details(?![^>]* open)", given) is None
    assert "action.path" in table.partition("<thead>")[2].partition("</thead>")[0]
    assert len(page) < 40_000
    assert len(ada.get("/").text) < 20_000
    assert first in items_of(page)


def test_calls_whose_effect_is_taken_stand_out_with_what_became_of_the_other(store: Store, ada: Browser) -> None:
    (first,) = asked(store, {"amount": 1, "to": "eve"}, effect="refund:A-1", requester=OTHER)
    taken = asked(store, *pays(3))[0]
    (late,) = asked(store, {"amount": 9, "to": "kim9"}, effect="refund:A-1")
    page = group_of(ada)
    (warned,) = re.findall(rf"the same effect: {first[:11]} [^<]*", page)
    assert warned.startswith(f"the same effect: {first[:11]} pending")
    odd = page.partition(late[:11])[2].partition("</th>")[0]
    assert "the same effect" in odd
    two = ada.get("/bulk", params=[("id", late), ("id", taken)]).text
    assert f"the same effect: {first[:11]}" in two


def test_a_sum_names_a_currency_only_where_it_can_be_no_other() -> None:
    for arguments, totals, pads in (
        ([{"amount": 1}, {"amount": 2.5}, {"amount": 1e20 / 1e10}], ["10,000,000,003.50"], [".00", "", ""]),
        ([{"total_eur": 1, "currency": "USD"}, {"total_eur": 2, "currency": "GBP"}], ["3"], None),
        ([{"price": 1, "unit": "kg", "ccy": "EUR"}, {"price": 2, "unit": "l", "ccy": "EUR"}], [], None),
        ([{"price": 1, "unit": "kg", "ccy": "EUR"}, {"price": 2, "unit": "kg", "ccy": "EUR"}], ["3"], None),
        ([{"price": 1, "ccy": "EUR"}, {"price": 2, "ccy": "EUR"}], ["3 EUR"], None),
        ([{"amount": Decimal("1E+2")}, {"amount": Decimal("1.25")}], ["101.25"], [".00", ""]),
    ):  # fmt: skip
        column = table_of([sample_call(arguments=one) for one in arguments], clock.now())["columns"][0]
        assert list(column.totals) == totals, arguments
        assert pads is None or [cell.pad for cell in column.cells] == pads, arguments


def test_a_table_has_so_many_columns_at_most_and_leaves_out_nothing() -> None:
    wide = {f"k{a}": {f"m{b}": dict.fromkeys("abcdefghij", 1) for b in range(10)} for a in range(3)}
    for arguments, names in (
        ({"a": 1, "wide": wide, "z": {"b": 1}}, ["a", "wide", "z.b"]),
        (dict.fromkeys([f"a{at}" for at in range(41)], 1), ["(all arguments)"]),
    ):
        table = table_of([sample_call(arguments=arguments)] * 3, clock.now())
        assert [one.name for one in table["common"] if one.source == "argument"] == names
        assert len(folded_row([sample_call(arguments=arguments)] * 3, clock.now())["gist"]) < 300


def test_a_group_is_looked_for_once_and_shows_the_newest_comment(
    store: Store, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, looked = asked(store, *pays(3)), list[str]()

    def counted(context: Any, request_id: str, *rest: Any) -> Any:
        looked.append(request_id)
        return alike_to(context, request_id, *rest)

    monkeypatch.setattr(actions, "alike_to", counted)
    page = ada.get("/bulk?" + "&".join(f"alike={one}" for one in ids * 20)).text
    assert (looked, len(items_of(page))) == (ids[:1], 3)
    monkeypatch.setattr(review, "_PAGE", 2)
    rows, journal = 2, store.journal

    def paged(*, limit: int = rows, **wanted: Any) -> Any:
        return journal(limit=min(limit, rows), **wanted)

    monkeypatch.setattr(store, "journal", paged)
    for text in ("one", "two", "the newest"):
        sayso.Review(store, by="bob").comment(ids[0], text)
    assert "bob commented: the newest" in text_of(ada.get(f"/bulk?id={ids[0]}").text)


def test_long_texts_begin_with_what_is_different() -> None:
    made = [sample_call(arguments={"body": f"Dear Kim,\n{'we are sorry. ' * 30}\nYour order {at}"}) for at in range(3)]
    (column,) = [one for one in table_of(made, clock.now())["columns"] if one.name == "body"]
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
    assert "128 of 130 approved" in said
    assert "has changed since you opened it" in said
    assert "It is rejected already, by" in said
    states = [store.get(one).state for one in (*ids, changed)]
    assert states == [State.PENDING] * 2 + [State.APPROVED] * 128 + [State.REJECTED]


def test_a_group_keeps_the_filters_of_its_list_and_offers_what_one_may_decide(store: Store, ada: Browser) -> None:
    late = asked(store, *pays(4))
    asked(store, *pays(4, reason="damaged"))
    store.claim(late[0], Identity("sayso", "bob"), roles=(), channel="web")
    page = group_of(ada, "/?q=late&sort=amount")
    assert list(items_of(page)) == late[:0:-1]
    assert "claimed it" in text_of(page)
    assert 'href="/?q=late&amp;sort=amount"' in page
    done = decided(ada, page, "reject", list(items_of(page).values()))
    assert "3 of 3 rejected" in done
    assert "rejected by" not in done  # the heading says it, once
    assert {store.get(one).state for one in late[1:]} == {State.REJECTED}


def test_a_lot_of_high_risk_is_asked_about_once_more(store: Store, ada: Browser) -> None:
    asked(store, *pays(3), risk="high")
    page = group_of(ada)
    assert re.search(r'<button name="verb" value="approve"[^>]* data-risk="high"', page)
    assert re.search(r'<button name="verb" value="reject"[^>]* data-risk', page) is None


def test_an_amount_has_one_form_on_every_page(app: Starlette, store: Store) -> None:
    pay = sayso.gate(wait="raise", store=store)(transfer)
    ids = [
        held(pay, amount, note).confirmation_id
        for amount, note in ((Decimal("12500.5"), "a"), (Decimal(3), "b"), (Decimal("4.5"), "c"))
    ]
    ada = browser(app, "ada")
    shown = {
        "list": ada.get("/?fold=no").text, "card": ada.get(f"/r/{ids[0]}").text,
        "table": ada.get(f"/bulk?alike={ids[0]}").text, "call": ada.get(f"/bulk?id={ids[0]}").text,
    }  # fmt: skip
    for where, page in shown.items():
        assert "12,500.50" in page, where
        assert "12500.5<" not in page, where
    assert "12,508.00 EUR" in shown["table"]


def transfer(amount: Decimal, note: str, currency: str = "EUR") -> None: ...


def test_rows_that_are_cut_show_where_they_differ(app: Starlette, store: Store) -> None:
    body = "Dear Kim, we are sorry that your parcel was late. " * 9
    for number in (1, 2):
        held(sayso.gate(wait="raise", store=store)(mail), "kim@example.org", f"{body}Case {number} {body}")
    page = text_of(browser(app, "ada").get("/").text)
    assert "Case 1" in page
    assert "Case 2" in page


def mail(to: str, body: str) -> None: ...


def test_what_one_has_approved_is_not_ticked_again_and_is_not_said_to_be_decided(store: Store, ada: Browser) -> None:
    ids = asked(store, *pays(3), quorum=Quorum(2))
    page = group_of(ada)
    done = decided(ada, page, "approve", list(items_of(page).values()))
    assert "Your approvals of 3 are recorded. They still need other reviewers." in done
    page = group_of(ada, "/?q=approved:me")
    assert len(items_of(page)) == 3
    assert not re.search(r'name="item"[^>]* checked', page)
    assert text_of(page).count("You have approved it already; somebody else must approve it, too.") == 3
    page = ada.get("/bulk?verb=reject&" + "&".join(f"id={one}" for one in ids)).text
    assert len(re.findall(r'name="item"[^>]* checked', page)) == 3


def test_the_page_of_one_call_says_what_stands_out_also_beside_what_is_decided(store: Store, ada: Browser) -> None:
    ids = asked(store, *pays(5), {"amount": 4900, "to": "kim5", "reason": "late"})
    assert "stands out" not in text_of(ada.get(f"/r/{ids[0]}").text)
    note = "Warning: amount stands out (392.0 times the median)"
    assert note in text_of(ada.get(f"/r/{ids[-1]}").text)
    for one in ids[:-1]:
        ada.decide(one, "approve")
    assert note in text_of(ada.get(f"/r/{ids[-1]}").text)
    page = ada.get(f"/bulk?verb=approve&id={ids[-1]}").text
    assert note.removeprefix("Warning: ") in text_of(page)
    assert not re.search(r'name="item"[^>]* checked', page)
    assert re.search(r'name="item"[^>]* checked', ada.get(f"/bulk?verb=reject&id={ids[-1]}").text)
    other = store.ask(sample_call(None, {"amount": 4900, "to": "kim5", "reason": "late"}, risk="high"))
    assert "stands out" not in text_of(ada.get(f"/r/{other.id}").text)  # nothing is like it


def test_the_page_of_one_call_compares_its_amount_with_those_of_its_currency(store: Store, ada: Browser) -> None:
    euros = [{"amount": 20 + at, "currency": "EUR"} for at in range(6)]
    yen = [{"amount": 9000 + 1000 * at, "currency": "JPY"} for at in range(5)]
    ids = asked(store, *euros, *yen, {"amount": 9500, "currency": "EUR"}, {"amount": 30, "currency": "USD"})
    pages = [text_of(ada.get(f"/r/{one}").text) for one in ids]
    assert [at for at, page in enumerate(pages) if "stands out" in page] == [11, 12]
    assert "Warning: amount stands out (413.0 times the median)" in pages[11]
    assert "Warning: amount stands out (only 1 of 13 in this currency)" in pages[12]


def ticks(page: str) -> int:
    return len(re.findall(r'name="item" value="[^"]+" checked', page))


def test_a_group_of_high_risk_arrives_not_ticked_unless_it_is_to_be_rejected(store: Store, ada: Browser) -> None:
    for risk, is_ticked in (("high", False), ("severe", False), ("low", True), (None, True)):
        (first, *_) = asked(store, *pays(3), risk=risk)
        for verb in ("", "approve", "reject"):
            page = ada.get(f"/bulk?alike={first}&verb={verb}").text
            assert ticks(page) == (3 if is_ticked or verb == "reject" else 0), (risk, verb)
            assert ("Alike calls of high risk are not ticked" in page) is (not is_ticked and verb != "reject")
    one = asked(store, *pays(1), risk="high")[0]
    assert ticks(ada.get(f"/bulk?id={one}&verb=approve").text) == 1


def test_a_page_has_what_its_script_needs_to_add_up_and_to_ask(store: Store, ada: Browser) -> None:
    units = [
        {"amount": Decimal(text), "currency": unit}
        for text, unit in (("1E+3", "EUR"), ("-0.5", "<b>"), ("2.25", "EUR"))
    ]
    (first, *_) = asked(store, *units, risk="high")
    asked(store, *pays(3))
    page = ada.get(f"/bulk?alike={first}&verb=approve").text
    cells = re.findall(r'data-amount="([^"]+)" data-unit="([^"]*)" data-column="(\d)"', page)
    (column,) = re.findall(r'data-total="(\d)"', page)
    assert cells == [("1000", "EUR", column), ("-0.5", "&#34;&lt;b&gt;&#34;", column), ("2.25", "EUR", column)]
    assert "total of all 3" in page
    assert 'data-of="total of {part} of {whole}"' in page
    assert re.findall(r'data-high="(\w+)" data-line="pay\(amount=([^,]+)', page)[2] == ("high", "2.25")
    assert "data-high" not in ada.get("/bulk?" + "&".join(f"id={one}" for one in asked(store, *pays(2)))).text


def test_the_result_leads_to_the_next_row_of_the_list(app: Starlette, store: Store, ada: Browser) -> None:
    group, alone = asked(store, *pays(3)), asked(store, {"amount": 1}, risk="medium")[0]
    other = asked(store, *pays(4), risk="low")
    sayso.Review(store, by="bob").claim(alone)

    def following(address: str, decided: list[str]) -> tuple[str, str] | None:
        page = ada.get(f"/bulk?{address}").text
        fields = fields_of(page)
        data = {name: fields[name] for name in ("csrf", "in", "then") if name in fields}
        items = [items_of(page)[one] for one in decided]
        done = ada.post("/bulk", data={**data, "verb": "reject", "item": items}, headers={"origin": BASE}).text
        link = re.search(r'data-queued href="([^"]+)"><span>([^<]+)</span>', done)
        return None if link is None else (link[1].replace("&amp;", "&"), text_of(link[2]))

    address = f"alike={group[0]}&in=sort%3Doldest"
    assert following(address, group[:2]) == (f"/bulk?alike={other[0]}&in=sort%3Doldest", "Next: pay, 4 calls")
    sayso.Review(store, by="bob").release(alone)
    next_one = (f"/r/{group[2]}", 'Next: pay amount=12, to="kim2", reason="late"')
    assert following(f"alike={other[0]}", other) == next_one
    assert following(f"id={group[2]}", group[2:]) == (f"/r/{alone}", "Next: pay amount=1")
    assert following(f"id={alone}", [alone]) is None


def test_the_rest_of_a_group_comes_next(store: Store, ada: Browser) -> None:
    group = asked(store, *pays(6))
    asked(store, *pays(4), risk="low")
    sayso.Review(store, by="bob").claim(group[2])  # by whom it is decided is bob's to say
    page = ada.get(f"/bulk?alike={group[0]}").text
    fields, items = fields_of(page), items_of(page)
    data = {name: fields[name] for name in ("csrf", "then", "shown")}
    for some, link, words in (
        (group[:2], f"/bulk?alike={group[3]}", "Next: pay, 4 calls"),
        (group[3:], f"/bulk?alike={fields['then']}", "Next: pay, 4 calls"),
    ):
        sent = {**data, "verb": "reject", "item": [items[one] for one in some]}
        done = ada.post("/bulk", data=sent, headers={"origin": BASE}).text
        found = re.search(r'data-queued href="([^"]+)"><span>([^<]+)</span>', done)
        assert found is not None
        assert (found[1], text_of(found[2])) == (link, words)


def test_what_the_filters_of_the_list_leave_out_comes_next_by_itself(store: Store, ada: Browser) -> None:
    group = asked(store, *pays(5))
    sayso.Review(store, by="ada").snooze(group[4], "1h")
    page = ada.get(f"/bulk?id={group[0]}&id={group[4]}").text
    fields, items = fields_of(page), items_of(page)
    data = {"csrf": fields["csrf"], "shown": fields["shown"], "verb": "reject", "item": [items[group[0]]]}
    done = ada.post("/bulk", data=data, headers={"origin": BASE})
    assert (done.status_code, f'data-queued href="/r/{group[4]}"' in done.text) == (200, True)


def test_a_table_says_which_words_are_those_of_the_gates_author(store: Store, ada: Browser) -> None:
    asked(store, *pays(3), description="Pays a shop.", prompt="the answer to a mail")
    page = text_of(group_of(ada))
    assert "descriptionthe gate's author says" in page.replace(" the gate", "the gate")
    assert "promptthe program says" in page.replace(" the program", "the program")


def test_a_group_is_compared_with_similar_calls_that_are_decided(store: Store, ada: Browser) -> None:
    usual, bob = asked(store, *pays(9)), sayso.Review(store, by="bob")
    asked(store, *[{"amount": 4000 + at, "to": f"kim{at}", "reason": "other"} for at in range(3)])
    page = text_of(group_of(ada))
    assert "compared with" not in page, "all that are alike are in the table"
    for one in usual:
        bob.approve(one)
    page = group_of(ada)
    assert ("3 stand out" in text_of(page), ticks(page)) == (True, 0)
    assert "compared with these and 9 other recent calls like them" in text_of(page)
    assert re.findall(r"([\d.]+) times the median", page) == ["258.1", "258.1", "258.2"]


def test_a_value_of_a_whole_group_stands_out_beside_what_is_decided(store: Store, ada: Browser) -> None:
    for one in asked(store, *pays(40)):
        sayso.Review(store, by="bob").approve(one)
    asked(store, *[{"amount": 10, "to": f"kim{at}", "reason": "a favour"} for at in range(3)])
    page = group_of(ada)
    same = page.partition("The same in all 3")[2].partition("<table")[0]
    assert ("3 stand out" in text_of(page), ticks(page)) == (True, 0)
    assert re.search(r'a favour\s+<small class="warn">40 of 43: &#34;late&#34;</small>', same)


def test_equal_amounts_are_judged_by_their_currencies_beside_what_is_decided() -> None:
    def calls(*prices: tuple[int, str]) -> list[sayso.Request]:
        return [sample_call(arguments={"amount": amount, "currency": currency}) for amount, currency in prices]

    decided = calls(*((20 + at, "EUR") for at in range(8)), *((9000 + at, "JPY") for at in range(8)))
    table = table_of(calls((9000, "EUR"), (9000, "JPY"), (9000, "JPY")), clock.now(), others=decided)
    (column,) = [one for one in table["columns"] if one.name == "amount"]
    assert [cell.note for cell in column.cells] == ["375.0 times the median", "", ""]
    assert (len(table["odd"]), len(table["usual"])) == (1, 2)
    names = [f"{'n' * 50}{end}{'n' * 50}" for end in "ab"]  # they look alike where they are shortened
    large, small = ([sample_call(arguments={names[0]: 1, names[1]: one + at}) for at in range(4)] for one in (9000, 1))
    assert not table_of(large, clock.now(), others=small * 2)["odd"]


def test_what_stands_out_in_a_table_alone_says_so_beside_what_is_decided() -> None:
    made = [sample_call(arguments={"path": f"/backups/{at}"}) for at in range(4)] + [
        sample_call(arguments={"path": "/x"})
    ]
    decided = [sample_call(arguments={"path": name}) for name in "abc"]
    for others, note in (((), 'all others: "/backups/…"'), (decided, 'all others: "/backups/…" (in this table)')):
        (line,) = table_of(made, clock.now(), others=others)["odd"]
        assert [cell.note for cell in line["cells"] if cell.note] == [note]


def test_a_large_group_is_compared_with_itself_alone(
    store: Store, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    asked(store, *pays(49))
    listed, found = list[Any](), store.list
    monkeypatch.setattr(store, "list", lambda wanted, **more: (listed.append(wanted), found(wanted, **more))[1])

    def queries(address: str) -> int:
        listed.clear()
        ada.get(address)
        return sum(one.name is not None and not one.states for one in listed)

    first = re.findall(r"alike=(\w+)", ada.get("/").text)[0]
    assert (queries("/"), queries(f"/bulk?alike={first}")) == (0, 1)
    asked(store, *pays(1))
    assert queries(f"/bulk?alike={first}") == 0
