"""Grants and the stop on the pages and in the API of a server."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sayso import errors
from sayso.model.request import State
from sayso.model.reviewer import Quorum
from sayso.reviews import Review
from sayso.server import create_app
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.browsing import BASE, Browser, fields_of, text_of
from tests.support.calling import caller, code_of


@pytest.fixture
def api(store: Store, clock: Clock) -> TestClient:
    app: Starlette = create_app(store)
    return caller(app)


def submit(ada: Browser, page: str, **fields: str) -> None:
    csrf = fields_of(ada.get("/grants").text)["csrf"]
    assert ada.submit(page, csrf=csrf, **fields).status_code == 200


def like(store: Store, amount: int = 5, to: str = "alice") -> State:
    return store.ask(sample_call(None, {"amount": amount, "to": to})).state


def test_a_grant_is_made_listed_and_revoked_by_the_api(api: TestClient, store: Store) -> None:
    request = store.ask(sample_call())
    at, terms = f"/api/v1/requests/{request.id}/grant", {"count": 5, "lasts": "1h", "at_most": {"amount": 8}}
    assert code_of(api.post(at, json=terms))[1] == "seen_required"
    terms["seen"] = request.fingerprint
    assert code_of(api.post(at, json={**terms, "without": ["nothing"]}))[1] == "grant_refused"
    assert code_of(api.post(at, json={**terms, "lasts": "soon"}))[1] == "invalid_input"
    made = api.post(at, json=terms).json()
    assert (made["left"], made["fields"]) == (5, ["amount is at most 8", 'to is "alice"'])
    assert [like(store, 8), like(store, 9)] == [State.APPROVED, State.PENDING]
    assert [one["id"] for one in api.get("/api/v1/grants").json()["grants"]] == [made["id"]]
    assert api.post(f"/api/v1/grants/{made['id']}/revoke", json={"reason": "enough"}).json()["ended"] == "revoked"
    assert api.get("/api/v1/grants").json() == {"grants": [], "budgets": []}
    assert like(store) is State.PENDING
    assert code_of(api.post("/api/v1/grants/gr_none/revoke", json={}))[1] == "grant_not_found"


def test_the_api_lists_what_is_used_of_budgets(api: TestClient, store: Store) -> None:
    limit = "sum(args.amount) <= 100 per 24h per run"
    asked = store.ask(sample_call("night", {"amount": 42, "to": "bob"}, budgets=((limit, "payouts"),)))
    store.start(asked.id, "token")
    account = {"budget": limit, "used": "42", "rule": "payouts", "tool": asked.call.name, "agent": None, "run": "night"}
    assert api.get("/api/v1/grants").json() == {"grants": [], "budgets": [account]}


def test_every_start_is_stopped_by_the_api(api: TestClient, store: Store) -> None:
    assert api.get("/api/v1/stop").json()["stopped"] is False
    assert api.post("/api/v1/stop", json={"reason": "fire"}).json()["reason"] == "fire"
    assert api.get("/api/v1/stop").json()["stopped"] is True
    assert store.stopped() is not None
    assert api.post("/api/v1/go", json={}).json()["stopped"] is False
    assert store.stopped() is None


def test_a_reviewer_grants_on_the_page_and_revokes_on_the_list(ada: Browser, store: Store) -> None:
    store.ask(sample_call(None, {"amount": 9, "to": "alice"}))
    request = store.ask(sample_call())
    assert "would have let through" not in text_of(ada.get(f"/r/{request.id}").text)  # it is counted when it is asked
    page = text_of(ada.decide(request.id, "preview-grant").text)
    assert "would have let through 1 earlier call in the last 30 days" in page
    assert ada.decide(request.id, "grant", count="x", lasts="1h").status_code == 422
    done = ada.decide(request.id, "grant", count="5", lasts="1h", without="to")
    assert done.status_code == 200
    assert "similar calls start without asking" in text_of(done.text)
    assert [like(store, 8), like(store, 8, "bob"), like(store, 11)] == [State.APPROVED, State.APPROVED, State.PENDING]
    grant = store.grants()[0]
    assert "5 of 5 left" in text_of(ada.get("/grants").text)
    submit(ada, f"/grants/{grant.id}/revoke")
    assert store.grants() == []
    assert "revoked by ada" in text_of(ada.get("/grants").text)


@pytest.mark.parametrize("ticked", [{"without": "to"}, {"exactly": "amount"}, {"here": "yes"}])
def test_an_approval_with_ticked_terms_of_a_grant_is_none_and_says_so(
    ada: Browser, store: Store, ticked: dict[str, str]
) -> None:
    request = store.ask(sample_call(risk="high"))
    answer = ada.decide(request.id, "approve", sure="yes", **ticked)
    assert answer.status_code == 422
    assert "Terms of a grant are ticked, and “Approve” makes none." in text_of(answer.text)
    assert store.get(request.id).state is State.PENDING
    for name, value in ticked.items():
        assert re.search(rf'name="{name}" value="{value}" checked', answer.text)
    assert '<details class="told grant" data-grant open>' in answer.text
    assert ada.decide(request.id, "approve", sure="yes").status_code == 200
    assert (store.get(request.id).state, store.grants()) == (State.APPROVED, [])


def test_a_grant_lists_what_it_let_through(ada: Browser, store: Store) -> None:
    request, other = store.ask(sample_call()), store.ask(sample_call(None, {"amount": 6, "to": "bob"}))
    assert ada.decide(request.id, "grant", count="2", lasts="1h").status_code == 200
    assert ada.decide(other.id, "approve").status_code == 200
    assert "It let" not in ada.get("/grants").text
    through = [store.ask(sample_call(None, {"amount": amount, "to": "alice"})) for amount in (3, 4)]
    for one, said in zip(through, ("It let 1 call through", "It let 2 calls through"), strict=True):
        store.start(one.id, "token")
        page = ada.get("/grants").text
        (link,) = re.findall(rf'<a href="([^"]+)">{said}</a>', page)
    assert "used up" in page
    shown = ada.get(link.replace("&amp;", "&")).text
    assert re.findall(r'class="what" href="/r/(rq_\w+)', shown) == [one.id for one in reversed(through)]
    assert "let through by the grant: gr_" in text_of(shown)


def test_a_reviewer_makes_a_grant_narrower_on_the_page_and_counts(ada: Browser, store: Store) -> None:
    for amount in (4, 9, 10):
        store.ask(sample_call(None, {"amount": amount, "to": "alice"}))
    request = store.ask(sample_call())
    assert "would have let through 3 earlier calls" in text_of(ada.decide(request.id, "preview-grant").text)
    narrower = {"at_most:amount": "5", "count": "2", "lasts": "30m", "here": "yes"}
    found = ada.decide(request.id, "preview-grant", **{**narrower, "here": ""})
    page = text_of(found.text)
    assert "would have let through 1 earlier call in the last 30 days of 3" in page
    assert 'The terms: amount is at most 5; to is "alice".' in page
    assert fields_of(found.text) | {**narrower, "here": ""} == fields_of(found.text) | {"here": ""}
    assert "only in this run" in ada.decide(request.id, "preview-grant", **narrower).text
    assert store.grants() == []
    for wrong in ("11", "-1", "NaN", "1e9", "five"):
        assert ada.decide(request.id, "grant", **{**narrower, "at_most:amount": wrong}).status_code in {409, 422}, wrong
    assert store.get(request.id).state is State.PENDING
    assert ada.decide(request.id, "grant", **narrower).status_code == 200
    (grant,) = store.grants()
    assert grant.lines() == ["amount is at most 5", 'to is "alice"']
    assert (grant.count, grant.until - grant.created_at, grant.run) == (2, timedelta(minutes=30), request.run_id)


def test_an_upper_bound_is_taken_as_the_pages_language_writes_numbers(ada: Browser, store: Store) -> None:
    request, at_most = store.ask(sample_call(None, {"amount": 1250.5, "to": "alice"})), "at_most:amount"
    assert ada.decide(request.id, "grant", **{at_most: "1000,5"}).status_code == 422
    ada.headers["accept-language"] = "de"
    (pattern,) = re.findall(r'name="at_most:amount"[^>]* pattern="([^"]+)"', ada.get(f"/r/{request.id}").text)
    assert [re.fullmatch(pattern, one) is not None for one in ("1250.5", "1.000,5", "1,000.5")] == [True, True, False]
    refused = ada.decide(request.id, "grant", **{at_most: "1.250"})
    assert (refused.status_code, "amount: 1.250 ist hier zweideutig" in text_of(refused.text)) == (422, True)
    assert ada.decide(request.id, "grant", **{at_most: "1.000,5", "count": "5", "lasts": "1h"}).status_code == 200
    (grant,) = store.grants()
    assert grant.lines()[0] == "amount is at most 1000.5"


def test_what_differs_from_call_to_call_is_offered_apart_and_stays_equal_until_somebody_ticks_it(
    ada: Browser, store: Store
) -> None:
    def mail(number: int, to: str = "kim") -> str:
        return store.ask(sample_call(None, {"to": to, "body": f"Dear {number}", "ref": f"T-{number}"})).id

    earlier = [mail(number) for number in range(4)] + [mail(9, "bob")]
    ada.decide(earlier[0], "reject", note="no")
    request_id = mail(5)

    def offered(*ticked: str, step: str = "preview-grant") -> tuple[str, str, str]:
        form = fields_of(ada.get(f"/r/{request_id}").text)
        sent = {"count": "5", "lasts": "1h", "csrf": form["csrf"], "seen": form["seen"], "without": list(ticked)}
        page = ada.post(f"/r/{request_id}/{step}", data=sent, headers={"origin": BASE}).text
        free, _, kept = page.partition("Stays as it is here")
        return free.partition("Differs from call to call")[2], kept, text_of(page)

    form = ada.get(f"/r/{request_id}").text
    assert (
        "Differs from call to call" in form,
        " checked" in form.partition("data-terms")[2].partition("data-picture")[0],
    ) == (True, False)
    free, kept, page = offered()
    assert ('value="body"' in free, 'value="ref"' in free, 'value="to"' in kept) == (True, True, True)
    assert "would have let through 0 earlier calls in the last 30 days of 5" in page
    assert "the same in 4 of 5 earlier calls" in kept
    assert "the same in 0 of 5 earlier calls" in free
    *_, page = offered("body", "ref")
    assert "would have let through 4 earlier calls in the last 30 days of 5" in page
    assert "People refused or changed 1 of them." in page
    assert 'to is "kim"; body may be anything; ref may be anything' in page
    assert store.grants() == []
    offered("body", "ref", step="grant")
    (grant,) = store.grants()
    assert (set(grant.without), set(grant.conditions)) == ({"body", "ref"}, {"to"})


def test_nobody_finds_a_masked_value_by_typing_guesses(ada: Browser, store: Store) -> None:
    """Neither by what a grant would have let through, nor by what an edit would change."""
    given = {"meta": {"user": "kim", "password": "hunter2"}, "link": "https://u:hunter2@shop.example", "note": "a"}
    for _ in range(3):
        store.ask(sample_call(None, given))
    request = store.ask(sample_call(None, given))
    form = fields_of(ada.get(f"/r/{request.id}").text)
    meta, link = (next(key for key, text in form.items() if hint in text) for hint in ("kim", "https"))

    def seen(verb: str, **typed: str) -> str:
        page = ada.decide(request.id, verb, **typed)
        assert (page.status_code, "hunter3" in text_of(page.text)) == (200, False)
        part = page.text.partition("data-picture" if verb == "preview-grant" else "data-previewed")[2]
        return text_of(part.partition('class="buttons"' if verb == "preview-grant" else "data-live-diff")[0])

    for key, text in ((meta, '{"user": "kim", "password": "%s"}'), (link, '"https://u:%s@shop.example"')):
        right, wrong = ({key: text % guess} for guess in ("hunter2", "hunter9"))
        for verb, said in (("preview-grant", "Earlier calls cannot be counted"), ("preview", "*** → *** (new value)")):
            assert (told := seen(verb, **right)) == seen(verb, **wrong), verb
            assert said in told, verb
    assert "would have let through 3 earlier calls" in seen("preview-grant")
    assert "would have let through 0 earlier calls" in seen("preview-grant", f2='"b"'), "what is not masked is counted"
    kept = seen("preview", **{meta: '{"user": "bob", "password": "***"}'})
    assert ("bob" in kept, "written anew" in kept) == (True, False)


def test_a_number_that_must_stay_equal_is_equal(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call())
    assert ada.decide(request.id, "grant", count="5", lasts="1h", exactly="amount").status_code == 200
    assert store.grants()[0].lines() == ["amount is 10", 'to is "alice"']


@pytest.mark.parametrize(("edited", "bound"), [("20", "10"), ("7", "7"), ("10", "10")])
def test_a_grant_of_a_changed_call_is_never_wider_than_the_bound_that_was_shown(
    ada: Browser, store: Store, edited: str, bound: str
) -> None:
    request = store.ask(sample_call())
    done = ada.decide(request.id, "grant", count="5", lasts="1h", f0=edited)
    assert done.status_code == 200
    assert store.grants()[0].lines()[0] == f"amount is at most {bound}"


def test_a_field_whose_name_cannot_be_seen_is_shown_escaped_and_can_be_left_out(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call(None, {"to": "alice", "t\u200bo": "bob"}))
    page = ada.get(f"/r/{request.id}").text
    assert "\u200b" not in page
    assert 'name="without" value="t&lt;U+200B&gt;o"' in page
    assert ada.decide(request.id, "grant", count="5", lasts="1h", without="t<U+200B>o").status_code == 200
    (grant,) = store.grants()
    assert grant.without == ("t\u200bo",)
    assert grant.lines() == ['to is "alice"', "t<U+200B>o may be anything"]


def test_a_stop_is_said_on_every_page(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call())
    submit(ada, "/stop", note="fire")
    for page in ("/", "/history", "/runs", "/insights", "/settings", "/grants", f"/r/{request.id}"):
        assert "ada stopped every start" in text_of(ada.get(page).text), page
    ada.decide(request.id, "approve")
    with pytest.raises(errors.StoppedError):
        store.start(request.id, "t")
    asked = text_of(ada.get("/go").text)
    assert "1 approved call waits, and can start at once." in asked
    assert "Let 1 call start" in asked
    assert store.stopped() is not None  # to look changes nothing
    assert 'action="/go"' not in ada.get("/").text  # no page lets calls start without saying which
    seen = fields_of(ada.get("/go").text)["seen"]
    late = store.ask(sample_call("run_9"))
    Review(store, reviewer="bob").approve(late.id)
    csrf = fields_of(ada.get("/grants").text)["csrf"]
    for old in ({}, {"seen": seen}):  # what would start is not what was seen
        again = ada.submit("/go", csrf=csrf, **old)
        assert (again.status_code, "Other calls wait now" in again.text) == (409, True)
        assert "Let 2 calls start" in text_of(again.text)
        assert store.stopped() is not None
    submit(ada, "/go", seen=fields_of(again.text)["seen"])
    assert "stopped every start" not in text_of(ada.get("/").text)
    assert store.start(request.id, "t").state is State.RUNNING


def test_an_approval_says_of_its_grant_whether_calls_start_by_it(ada: Browser, store: Store) -> None:
    for count, says in ((1, "similar calls start without asking"), (2, "another reviewer must approve its grant")):
        request = store.ask(sample_call(f"run-{count}", quorum=Quorum(count)))
        Review(store, reviewer="bob").grant(request.id, count=5, lasts="1h", seen=request.fingerprint)
        if count == 2:
            Review(store, reviewer="cleo").approve(request.id)
        assert says in text_of(ada.get(f"/r/{request.id}").text), count


def test_who_comes_second_sees_the_grant_that_the_first_proposed_and_agrees_to_it(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call("run-2", {"amount": 9, "to": "alice"}, quorum=Quorum(2)))
    terms: dict[str, Any] = {"count": 5, "lasts": "1h", "at_most": {"amount": 7}, "without": ["to"]}
    bob = Review(store, reviewer="bob")
    bob.grant(request.id, seen=request.fingerprint, here=True, **terms)
    page = text_of(ada.get(f"/r/{request.id}").text)
    for said in (
        "Proposed with it: a grant 5 of 5 left, expires in 1h", "bob wants the next calls like this one to start",
        "amount is at most 7", "to may be anything", "only in this run", "1 more reviewer must agree",
    ):  # fmt: skip
        assert said in page, said
    grant = store.grants()[0]
    csrf = fields_of(ada.get("/grants").text)["csrf"]
    answer = ada.submit(f"/grants/{grant.id}/agree", csrf=csrf, request=request.id)
    assert str(answer.url).endswith(f"/r/{request.id}")
    assert "Proposed with it" not in answer.text
    assert [one.by.subject for one in store.find_grant(grant.id).grantors] == ["bob", "ada"]
    assert store.get(request.id).state is State.PENDING, "the call itself is not approved by that"
    other = store.ask(sample_call("run-3", quorum=Quorum(2)))
    bob.approve(other.id)
    assert "Proposed with it" not in ada.get(f"/r/{other.id}").text


def test_a_field_for_a_bound_says_the_most_that_it_takes(ada: Browser, store: Store) -> None:
    page = ada.get(f"/r/{store.ask(sample_call()).id}").text
    assert 'data-most="10"' in page
    assert "no more than 10, its value here" in text_of(page)


def test_stop_everything_is_one_click_away_from_every_page(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call())
    link = '<a class="stop" href="/grants#stop">Stop everything</a>'
    for page in ("/", "/history", "/runs", "/insights", "/settings", "/grants", f"/r/{request.id}"):
        assert link in ada.get(page).text, page
    assert '<h2 id="stop">' in ada.get("/grants").text
    submit(ada, "/stop", note="fire")
    assert link not in ada.get("/").text  # there is nothing left to stop


def test_a_grant_is_to_be_agreed_to_only_where_it_needs_more_people(ada: Browser, store: Store) -> None:
    for count, says in ((1, False), (2, True)):
        request = store.ask(sample_call(f"run-{count}", quorum=Quorum(count)))
        Review(store, reviewer="bob").grant(request.id, count=5, lasts="1h", seen=request.fingerprint)
        page = ada.get("/grants").text
        assert ("1 more reviewer must agree" in page, "/agree" in page) == (says, says), count
    submit(ada, f"/grants/{store.grants()[0].id}/agree")
    page = ada.get("/grants").text
    assert ("must agree" in page, "/agree" in page) == (False, False)
