"""The order of the inbox, and the search in arguments.

The invariant: an order changes which request stands where, never which are listed; what is masked is not found.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest

import sayso
from sayso.server.pages import listing
from sayso.server.pages.arguments import amount_of, amount_text
from sayso.stores.base import Filter, Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import held
from tests.support.browsing import Browser, fields_of, text_of


def asked(amount: Any, risk: str | None, expires: str) -> str:
    @sayso.gate(wait="raise", risk=risk, expires=expires)
    def pay(amount: Decimal, to: str = "alice") -> None: ...

    return held(pay, Decimal(amount)).confirmation_id


def ids(ada: Browser, path: str) -> list[str]:
    return re.findall(r'class="what" href="/r/(rq_\w+)', ada.get(path).text)


def test_the_inbox_is_sorted_as_asked_for(store: Store, ada: Browser, clock: Clock) -> None:
    first = asked("5.00", "low", "3h")
    clock.at += clock.at.resolution
    second = asked("1000.00", None, "1h")
    clock.at += clock.at.resolution
    third = asked("20.00", "critical", "2h")
    assert ids(ada, "/") == [third, first, second]
    assert ids(ada, "/?sort=oldest") == [first, second, third]
    assert ids(ada, "/?sort=newest") == [third, second, first]
    assert ids(ada, "/?sort=end") == [second, third, first]
    assert ids(ada, "/?sort=risk") == [third, first, second]
    assert ids(ada, "/?sort=amount") == [second, third, first]
    assert ada.get("/?sort=size").status_code == 400
    beside = re.findall(r'class="one" href="/r/(rq_\w+)', ada.get(f"/r/{second}?in=sort%3Damount").text)
    assert beside == [second, third, first]


def test_words_of_the_search_find_a_risk(ada: Browser) -> None:
    low, none, high = asked("5.00", "low", "3h"), asked("5.00", None, "1h"), asked("7.00", "high", "2h")
    odd = asked("5.00", "Over 9000", "1h")
    assert ids(ada, "/?q=risk:high") == ids(ada, "/?q=7.00+risk:High") == [high]
    assert ids(ada, "/?q=risk:low&fold=no") == [low]
    assert ids(ada, "/?q=risk:nothing") == []
    assert ids(ada, "/?q=risk:&fold=no") == []  # no risk is named: it is looked for as it stands
    assert {low, none, high, odd} == set(ids(ada, "/?fold=no"))
    page = ada.get("/?q=5.00+risk:low").text
    assert 'name="q" value="5.00"' in page
    assert 'href="/?q=5.00">risk: low' in page


def test_a_sorted_list_goes_on_with_the_next_page(store: Store, ada: Browser) -> None:
    wanted = [store.ask(sample_call(None, {"amount": number})).id for number in range(60)]
    page = ada.get("/?sort=amount&fold=no").text
    further = re.search(r'href="([^"]+)" rel="next"', page)
    assert further is not None
    assert [*ids(ada, "/?sort=amount&fold=no"), *ids(ada, further[1].replace("&amp;", "&"))] == wanted[::-1]
    assert ada.get("/?sort=amount&cursor=-1").status_code == 400


def in_order(ada: Browser, path: str) -> dict[str, str]:
    """Return the links of all pages of a list, by request."""
    found, where = dict[str, str](), path
    while where:
        page = ada.get(where).text
        links = re.findall(r'class="what" href="(/r/(rq_\w+)[^"]*)"', page)
        assert not found.keys() & {one for _, one in links}
        found |= {one: link.replace("&amp;", "&") for link, one in links}
        further = re.search(r'href="([^"]+)" rel="next"', page)
        where = "" if further is None else further[1].replace("&amp;", "&")
    return found


RISKS = [None, "low", "high", "medium", "severe", "critical", "high", "Low"]


def test_high_risks_come_first_on_whatever_page_they_would_be(
    store: Store, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    risks = [None] * 60 + [RISKS[at % len(RISKS)] for at in range(100)]
    asked = [store.ask(sample_call(None, {"amount": at}, risk=risk)).id for at, risk in enumerate(risks)]
    monkeypatch.setattr(listing, "_FOLDED", 60)
    first = [one for risk in ("critical", "high") for one, its in zip(asked, risks, strict=True) if its == risk]
    wanted = [*first, *(one for one in asked if one not in first)]
    assert list(in_order(ada, "/?fold=no")) == list(in_order(ada, "/?fold=no&state=pending")) == wanted
    assert list(in_order(ada, "/?fold=no&sort=oldest")) == asked
    assert list(in_order(ada, "/?fold=no&risk=high")) == [one for one in first if risks[asked.index(one)] == "high"]


@pytest.mark.parametrize("sort", ["", "oldest", "newest"])
def test_a_decision_leads_to_the_next_in_the_order_of_the_list_wherever_it_is(
    store: Store, ada: Browser, monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:  # fmt: skip
    monkeypatch.setattr(listing, "LOOK", 70)
    for at in range(150):
        store.ask(sample_call(None, {"amount": at}, risk="high" if at % 50 == 7 else None))
    for at in (3, 69, 70, 120):
        links = in_order(ada, f"/?fold=no&sort={sort}")
        order = list(links)
        fields = fields_of(ada.get(links[order[at]]).text)
        assert fields["then"] == order[at + 1], at
        sent = {name: fields[name] for name in ("csrf", "seen", "in", "then")}
        after = ada.submit(f"/r/{order[at]}/reject", **sent)
        assert after.url.path == f"/r/{order[at + 1]}", at
        now = list(in_order(ada, f"/?fold=no&sort={sort}"))  # windows begin elsewhere after a decision
        assert fields_of(after.text)["then"] == now[now.index(order[at + 1]) + 1], at


def test_a_word_of_the_search_finds_questions(ada: Browser) -> None:
    call = asked("5.00", None, "1h")
    question = held(sayso.ask, "Ship order 4716 today?", type=bool, wait="raise").confirmation_id
    assert ids(ada, "/?q=kind:question") == ids(ada, "/?kind=question&q=ship") == [question]
    assert ids(ada, "/?q=kind:Call&fold=no") == [call]
    assert ids(ada, "/?q=kind:call+ship&fold=no") == []
    assert 'href="/">kind: question' in ada.get("/?kind=question").text
    assert ada.get("/?q=kind:calls").status_code == 400


def test_an_empty_list_names_the_words_that_filter_where_the_search_has_another_one(ada: Browser) -> None:
    hint = (
        "Only these words of a search are filters: risk:high, kind:question, assigned:me, mentions:me, snoozed,"
        " approved:me."
    )
    for search in ("tool:refund", "late run:x"):
        assert hint in text_of(ada.get("/", params={"q": search}).text)
    for search in ("refund", "risk:high", "assigned:me"):
        page = text_of(ada.get("/", params={"q": search}).text)
        assert "Nothing matches these filters." in page
        assert "Only these words" not in page


def test_a_decision_leads_on_past_all_that_others_have(store: Store, ada: Browser) -> None:
    asked = [store.ask(sample_call(None, {"amount": at})).id for at in range(120)]
    for one in asked[40:110]:
        sayso.Review(store, by="bob").claim(one)
    assert fields_of(ada.get(f"/r/{asked[39]}").text)["then"] == asked[110]
    assert fields_of(ada.get(f"/r/{asked[119]}").text)["then"] == asked[0]


@pytest.mark.parametrize(
    ("arguments", "amount"),
    [
        ({"amount": 5, "count": 900}, 5), ({"total_eur": "12.50"}, Decimal("12.50")), ({"order": {"price": 3.5}}, 3.5),
        ({"amount": "5." + "0" * 38 + "e9"}, 0), ({"amount": "1e9999999"}, Decimal("1e9999999")),
        ({"lines": [{"cost": 7, "count": 4000}]}, 0), ({"amount": "many"}, 0), ({"amount": True}, 0), ({"to": "5"}, 0),
        ({"items": [{"price": 12.5, "count": 2}, {"price": 3.2, "count": 10}]}, 0), ({"amount": [5, 7]}, 0),
        ({"total": 57, "items": [{"price": 99}, {"price": 3.2}]}, 57),
    ],
)  # fmt: skip
def test_an_amount_is_a_number_whose_name_says_so(arguments: dict[str, Any], amount: Any) -> None:
    assert amount_of(sample_call(None, arguments)) == Decimal(str(amount))


def test_a_row_shows_the_largest_amount_with_its_currency() -> None:
    for arguments, said in (
        ({"amount": "1234.50", "currency": "EUR"}, "1,234.50 EUR"), ({"total": -7, "currency": "a lot"}, "-7"),
        ({"order": {"price": 9, "ccy": "GBP"}}, "9 GBP"), ({"orders": [{"price": 9, "ccy": "GBP"}]}, ""),
        ({"orders": [{"price": 2, "ccy": "USD"}, {"price": 9, "ccy": "GBP"}]}, ""),
        ({"amount": "1e400"}, ""), ({"amount": "-1e9999999"}, ""), ({"amount": "5." + "0" * 38 + "e9"}, ""),
        ({"amount": 0}, ""), ({"to": "kim"}, ""), ({"amount": "***"}, ""),
    ):  # fmt: skip
        assert amount_text(sample_call(None, arguments)) == said, arguments


def test_arguments_are_found_by_a_part_of_them_and_never_what_is_masked(store: Store) -> None:
    @sayso.gate(wait="raise", redact=["note"])
    def mail(to: str, body: str, note: str, password: str) -> None: ...

    request_id = held(mail, "Kim@Example.org", "Grüße aus Köln", "hidden canary", "hunter2").confirmation_id

    def found(text: str) -> list[str]:
        return [one.id for one in store.list(Filter(text=text)).requests]

    assert found("kim@exam") == found("GRÜSSE") == found("aus k") == [request_id]
    assert found("canary") == found("hunter2") == []
    assert found("kim " * 2_000) == [request_id]
    assert found(" ".join(map(str, range(2_000)))) == []  # a condition for each word would be too long for SQLite
    sayso.Review(store, by="ada").approve(request_id, comment="Kim knows hunter2, and it is RIGHT so.")
    assert found("right SO") == found("kim knows") == [request_id]
    assert found("hunter2") == []
