"""Who stands in for a reviewer who is away: by page, API and command line.

The invariant: attention goes to another person, and no right does.
"""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette

import sayso
from sayso.model.reviewer import LOCAL, Identity
from sayso.stores.base import Store
from sayso.stores.records import Record
from tests.conftest import Clock
from tests.support.acting import held, payer
from tests.support.browsing import BASE, Browser, browser, fields_of, text_of
from tests.support.calling import caller, code_of


def send(person: Browser, verb: str, **fields: str) -> str:
    data = {"csrf": fields_of(person.get("/settings").text)["csrf"], **fields}
    answer = person.post(f"/settings/{verb}", data=data, headers={"origin": BASE})
    return f"{answer.status_code} {text_of(answer.text)}"


def test_who_stands_in_finds_and_decides_what_is_assigned_to_who_is_away(
    app: Starlette, store: Store, ada: Browser, clock: Clock
) -> None:
    bob, carol = browser(app, "bob"), browser(app, "carol", roles={"finance"})
    plain = held(payer(), 5).confirmation_id
    needing = held(payer(roles={"finance"}), 6).confirmation_id
    assert carol.decide(plain, "assign", to="ada").status_code == 200
    assert "bob, stands in" not in send(ada, "away", until="2d", to="bob")
    said = "away until 2026-01-03 12:00Z, bob stands in"
    assert f"You are {said}." in text_of(ada.get("/settings").text)
    assert f"ada is {said}." in text_of(carol.get("/settings").text)
    for person in (ada, bob, carol):
        for address in ("/", f"/r/{plain}"):
            assert f"claimed by ada ({said})" in text_of(person.get(address).text), (person, address)
    for person, has_it in ((ada, True), (bob, True), (carol, False)):
        assert (plain in person.get("/?q=assigned:me").text) is has_it
    page = bob.get(f"/r/{plain}").text
    assert "You stand in for ada: what you decide is your own decision" in page
    assert 'data-me="bob\nada"' in page
    assert "You stand in" not in ada.get(f"/r/{plain}").text
    assert carol.decide(plain, "approve").status_code == 409
    assert bob.decide(plain, "approve").status_code == 200
    assert [vote.by.subject for vote in store.get(plain).votes] == ["bob"]
    assert "on behalf of ada" in text_of(bob.get(f"/r/{plain}").text)
    carol.decide(needing, "comment", comment="look, @ada")
    for person in (ada, bob):
        assert "mentions you" in person.get(f"/r/{needing}").text
        assert needing in person.get("/?q=mentions:me").text
    assert "you need the role finance" in text_of(bob.get(f"/r/{needing}").text)
    assert bob.decide(needing, "approve").status_code == 403
    clock.tick(minutes=2 * 24 * 60)
    assert "is away" not in text_of(carol.get("/settings").text)


def test_somebody_is_away_by_each_door_and_back_before_the_time(app: Starlette, store: Store, ada: Browser) -> None:
    for until, to, why in (
        ("2d", "ADA", "cannot stand in for themselves"), ("soon", "bob", "neither a time like"),
        ("2020-01-01", "bob", "is in the past"), ("2d", "", "empty"),
    ):  # fmt: skip
        assert send(ada, "away", until=until, to=to).startswith("422 "), why
        assert why in send(ada, "away", until=until, to=to)
    api = caller(app, name="bob")
    made = api.post("/api/v1/away", json={"to": "carol", "until": "2099-01-31T09:00+01:00"})
    assert made.json() == {
        "by": "local:bob", "to": "local:carol", "since": made.json()["since"], "until": "2099-01-31T08:00:00Z",
        "warning": "Nobody has signed in as carol, and no settings name them. Is the name right?",
    }  # fmt: skip
    assert "bob is away until 2099-01-31 08:00Z, carol stands in: a stand-in's own stand-in does not count" in send(
        ada, "away", until="2d", to="bob"
    )
    assert [one["by"] for one in api.get("/api/v1/away").json()["away"]] == ["local:ada", "local:bob"]
    assert code_of(api.post("/api/v1/away", json={"to": "bob", "until": "2d"})) == (422, "invalid_input")
    assert [one["by"] for one in api.post("/api/v1/back", json={}).json()["away"]] == ["local:ada"]
    assert "200 " in send(ada, "back")
    rows = [row.event for row in store.journal(run_id=f"sayso:away:{Identity(LOCAL, 'ada').folded}")]
    assert rows == ["delegated", "delegation_ended"]


def test_who_is_known_stands_in_without_a_warning(
    app: Starlette, store: Store, ada: Browser, clock: Clock, place: Path
) -> None:
    browser(app, "bob")
    clock.tick(minutes=9 * 60)  # that session has ended, and he has signed in once
    ada = browser(app, "ada")
    api = caller(app, name="carol")
    store.keep(Record("channel", "desk", {"kind": "Desk", "people": ["local:dora"]}))
    sayso.Review(store).approve(held(payer(), 5).confirmation_id, by="eve")
    (place / "sayso.toml").write_text('[serve]\nreviewers = ["finn"]\n', encoding="utf-8")
    for to in ("bob", "BOB", "carol", "dora", "eve", "finn", "local:bob"):
        assert "Nobody has signed in" not in send(ada, "away", until="2d", to=to), to
    for to in ("bobb", "idp:bob"):
        said = send(ada, "away", until="2d", to=to)
        assert said.startswith("200 "), said
        assert f"Nobody has signed in as {'bob (idp)' if ':' in to else to}, and no settings name them." in said
    assert api.post("/api/v1/away", json={"to": "local:bob", "until": "2d"}).json()["warning"] is None
    assert [str(one.to) for one in store.delegations()] == ["bob (idp)", "bob"]
