"""Reviewers working together: comments and mentions, by page and API.

The invariant: nothing of this decides anything, and what somebody wrote is shown for what it is.
"""

from __future__ import annotations

import re

from starlette.applications import Starlette

import sayso
from sayso.model.request import State
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import Pay, held, payer
from tests.support.browsing import Browser, browser, text_of
from tests.support.calling import caller, code_of


def test_a_comment_is_shown_to_all_and_marked_for_whom_it_mentions(app: Starlette, store: Store, ada: Browser) -> None:
    bob, request_id = browser(app, "bob"), held(payer(), 5).confirmation_id
    hostile = "look, @ADA: <script>alert(1)</script>\u202e\nsecond line"
    answer = bob.decide(request_id, "comment", comment=hostile)
    assert answer.url.fragment == "comments"
    for one, is_to_me in ((ada, True), (bob, False)):
        text = one.get(f"/r/{request_id}").text
        assert "look, @ADA: &lt;script&gt;alert(1)&lt;/script&gt;&lt;U+202E&gt;\nsecond line" in text
        assert ("mentions you" in text) is is_to_me
        assert ("mentions you" in one.get("/").text) is is_to_me
        assert (request_id in one.get("/?mentions=yes").text) is is_to_me
    assert store.get(request_id).state is State.PENDING
    ada.decide(request_id, "comment", comment="seen")
    assert request_id not in ada.get("/?mentions=yes").text
    assert [one.text[:4] for one in sayso.Review().comments(request_id)] == ["look", "seen"]


def test_a_comment_needs_words_and_not_the_newest_look(app: Starlette, store: Store, ada: Browser) -> None:
    request_id = held(payer(), 5).confirmation_id
    empty = ada.decide(request_id, "comment", comment=" \n")
    assert empty.status_code == 422
    assert "a comment has 1 to 20,000 characters" in text_of(empty.text)
    assert ada.decide(request_id, "comment", comment="of an old look", seen="0" * 64).status_code == 200
    sayso.Review().reject(request_id, by="bob")
    assert "of a decided one" in ada.decide(request_id, "comment", comment="of a decided one").text
    assert store.mentions(sayso.Reviewer("ada").identity) == frozenset()


def test_comments_come_by_the_api_too(app: Starlette, pay: Pay) -> None:
    where, monkey = f"/api/v1/requests/{held(pay, 5).confirmation_id}", caller(app)
    assert monkey.post(f"{where}/comment", json={"text": "by api, @bob"}).json()["state"] == "pending"
    assert code_of(monkey.post(f"{where}/comment", json={"text": "  "})) == (422, "invalid_input")
    rows = monkey.get(f"{where}/journal").json()["entries"]
    assert rows[-1]["detail"] == {"comment": "by api, @bob", "mentions": ["bob"], **rows[-1]["detail"]}


def test_a_request_is_assigned_to_a_colleague_and_the_next_one_opens(
    app: Starlette, store: Store, ada: Browser, clock: Clock
) -> None:
    bob, carol = browser(app, "bob", roles={"finance"}), browser(app, "carol")
    first, second = (held(payer(), amount).confirmation_id for amount in (1, 2))
    form = ada.get(f"/r/{first}").text
    assert re.findall('<option value="(bob|carol|ada)">', form) == ["bob", "carol"]
    assert ada.decide(first, "assign", to="Bob", then=second).url.path == f"/r/{second}"
    assert "bob has it" in text_of(ada.get("/").text)
    assert "bob took it on, or was assigned it" in text_of(carol.get(f"/r/{first}").text)
    assert first in bob.get("/?q=assigned:me").text
    assert first not in carol.get("/?q=assigned:me").text
    assert ada.decide(first, "approve").status_code == 409
    assert bob.decide(first, "assign", to="carol").status_code == 200  # and on, by whoever has it
    assert carol.decide(first, "approve").status_code == 200
    assert store.get(first).state is State.APPROVED


def test_nothing_is_assigned_to_whom_it_would_refuse_or_nobody_knows(
    app: Starlette, store: Store, clock: Clock
) -> None:
    ada, bob = browser(app, "ada", roles={"finance"}), browser(app, "bob")
    with sayso.run("order-1", on_behalf_of=sayso.Reviewer("kim")):
        request_id = held(payer(roles={"finance"}), 5).confirmation_id
    for name, status in (("bob", 403), ("kim", 403), ("", 422), (" x\u202e", 422)):
        assert ada.decide(request_id, "assign", to=name).status_code == status, name
    assert bob.decide(request_id, "assign", to="ada").status_code == 403
    assert store.get(request_id).claimed_by is None
    sessions = app.state.settings.sessions
    assert {one.subject: set(one.roles) for one in sessions.people()} == {"ada": {"finance"}, "bob": set()}
    clock.tick(seconds=1)
    browser(app, "bob", roles={"finance"})  # a later session says what counts
    assert ada.decide(request_id, "assign", to="bob").status_code == 200
    where, api = f"/api/v1/requests/{request_id}/assign", caller(app, roles={"finance"})
    assert code_of(api.post(where, json={"to": "idp:zoe"})) == (409, "claimed")
    assert api.post(where, json={"to": "idp:zoe", "force": True}).json()["claimed_by"] == "idp:zoe"
    assert code_of(api.post(where, json={"to": ":b"})) == (422, "invalid_input")
