"""The address of a group after it was decided, as the browser's Back opens it.

The invariant: the page offers what is still to be decided and nothing else, and says what became of the rest.
"""

from __future__ import annotations

import re

from starlette.applications import Starlette

import sayso
from sayso.model.request import State
from sayso.server import create_app
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.server.test_groups import asked, decided, items_of, pays, ticks
from tests.support.browsing import BASE, Browser, browser, fields_of, text_of


def section_of(page: str) -> str:
    return page.partition('aria-labelledby="decided"')[2].partition("</section>")[0]


def test_a_decided_group_says_who_decided_what_and_leads_on(store: Store, ada: Browser) -> None:
    ids = asked(store, *pays(4))
    other = asked(store, *pays(3), risk="low")
    address = f"/bulk?alike={ids[0]}&in=risk%3D"
    page = ada.get(address).text
    decided(ada, page, "reject", list(items_of(page).values()))
    page = ada.get(address).text
    assert "<h1>There is nothing to decide here</h1>" in page
    assert not items_of(page)
    assert f'data-queued href="/bulk?alike={other[0]}&amp;in=risk%3D"><span>Next: ' in page
    assert '<a href="/?risk=">To the inbox</a>' in page
    section = section_of(page)
    assert '<h2 id="decided">4 rejected by ada</h2>' in section
    assert re.findall(r'<li><a href="/r/(\w+)">', section) == ids
    assert section.count("rejected by ada (web, just now)") == 4
    history = re.findall(r'href="(/history\?[^"]+)"', section)
    assert [one in ada.get(history[0]).text for one in ids] == [True] * 4
    assert f'href="/r/{other[0]}"' not in ada.get(history[0]).text


def test_the_address_of_a_group_whose_first_call_is_decided_shows_the_others(
    app: Starlette, store: Store, ada: Browser, clock: Clock
) -> None:
    ids, bob = asked(store, *pays(6)), sayso.Review(store, by="bob")
    bob.approve(ids[5])  # by somebody else
    clock.tick(minutes=2)
    sayso.Review(store, by="ada").approve(ids[4])  # long before
    clock.tick(minutes=2)
    page = ada.get(f"/bulk?alike={ids[0]}").text
    decided(ada, page, "approve", [items_of(page)[one] for one in ids[:1]])
    page = ada.get(f"/bulk?alike={ids[0]}").text
    assert set(items_of(page)) == set(ids[1:4])
    assert "Approve or reject 3 requests?" in text_of(page)
    assert '<h2 id="decided">1 approved by ada</h2>' in section_of(page)
    page = ada.get("/bulk?" + "&".join(f"id={one}" for one in ids)).text  # those that were asked for by name
    assert set(items_of(page)) == set(ids[1:4])
    assert '<h2 id="decided">2 approved by ada · 1 approved by bob</h2>' in section_of(page)


def test_the_address_of_a_group_whose_first_call_is_left_shows_what_the_reader_decided(
    store: Store, ada: Browser, clock: Clock
) -> None:
    ids = asked(store, *pays(5))
    address = f"/bulk?alike={ids[0]}"
    page = ada.get(address).text
    sayso.Review(store, by="bob").approve(ids[4])
    decided(ada, page, "approve", [items_of(page)[one] for one in ids[1:3]])
    page = ada.get(address).text
    assert set(items_of(page)) == {ids[0], ids[3]}
    assert '<h2 id="decided">2 approved by ada</h2>' in section_of(page)
    assert not section_of(ada.get(f"{address}&id={asked(store, *pays(1), risk='low')[0]}").text)
    clock.tick(minutes=2)
    assert not section_of(ada.get(address).text)


def test_what_is_left_of_a_group_is_not_ticked(store: Store, ada: Browser) -> None:
    ids = asked(store, *[{**one, "amount": 4900} if at == 3 else one for at, one in enumerate(pays(5))])
    address = f"/bulk?alike={ids[0]}"
    page = ada.get(address).text
    assert ticks(page) == 4
    decided(ada, page, "approve", [items_of(page)[one] for one in (*ids[:2], ids[4])])
    page = ada.get(address).text
    assert (set(items_of(page)), ticks(page)) == (set(ids[2:4]), 0)
    assert "What is left of a group is not ticked" in text_of(page)
    assert ticks(ada.get(f"{address}&verb=reject").text) == 2
    chosen = ada.get(f"/bulk?id={ids[2]}").text  # by itself
    assert (ticks(chosen), "What is left" in text_of(chosen)) == (1, False)
    chosen = ada.get(f"/bulk?id={ids[3]}").text
    assert (ticks(chosen), "Calls that stand out are not ticked." in text_of(chosen)) == (0, True)


def test_what_ended_without_a_person_says_so(store: Store, ada: Browser, clock: Clock) -> None:
    ids = asked(store, *pays(3))
    clock.tick(days=2)
    store.sweep()
    page = ada.get(f"/bulk?alike={ids[0]}").text
    assert (store.get(ids[0]).state, items_of(page)) == (State.EXPIRED, {})
    assert '<h2 id="decided">1 expired</h2>' in section_of(page)


def test_back_within_the_time_for_undo_takes_all_back(store: Store) -> None:
    ada, ids = browser(create_app(store, undo="5s")), asked(store, *pays(4))
    address = f"/bulk?alike={ids[0]}"
    page = ada.get(address).text
    decided(ada, page, "approve", list(items_of(page).values()))
    section = section_of(ada.get(address).text)
    assert 'data-key="z"' in section
    fields, items = fields_of(section), re.findall(r'name="item" value="([^"]+)"', section)
    ada.post("/bulk", data={"csrf": fields["csrf"], "verb": "undo", "item": items}, headers={"origin": BASE})
    assert {store.get(one).state for one in ids} == {State.PENDING}
    assert ticks(ada.get(address).text) == 4
    page = ada.get(address).text
    decided(ada, page, "approve", list(items_of(page).values()))
    sayso.Review(store, by="bob").cancel(ids[3])
    section = section_of(ada.get("/bulk?" + "&".join(f"id={one}" for one in ids)).text)
    assert ("3 approved by ada · 1 cancelled by bob" in section, "Undo all" in section) == (True, False)


def test_the_results_have_an_address_that_shows_the_same(store: Store, ada: Browser) -> None:
    group, others = asked(store, *pays(4)), asked(store, *pays(2), risk="low")
    (high,) = asked(store, *pays(1), risk="high")
    page = ada.get("/bulk?" + "&".join(f"id={one}" for one in (high, *group, *others))).text
    data = {"csrf": fields_of(page)["csrf"], "in": "q=pay", "verb": "approve", "item": list(items_of(page).values())}
    done = ada.post("/bulk", data=data, headers={"origin": BASE}).text
    address = re.findall('data-address="([^"]+)"', done)[0].replace("&amp;", "&")
    assert address == f"/bulk?alike={group[0]}&id={others[0]}&id={others[1]}&id={high}&in=q%3Dpay"
    page = ada.get(address).text
    assert '<h2 id="decided">6 approved by ada</h2>' in section_of(page)
    assert set(items_of(page)) == {high}, "it was not approved without a word about its risk"
