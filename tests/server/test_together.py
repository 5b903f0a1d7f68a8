"""Reviewers working together: comments and mentions, by page and API.

The invariant: nothing of this decides anything, and what somebody wrote is shown for what it is.
"""

from __future__ import annotations

from starlette.applications import Starlette

import sayso
from sayso.model.request import State
from sayso.stores.base import Store
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
