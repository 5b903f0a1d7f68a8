"""Looking and deciding through the HTTP API: the verbs of the person's door, and how each refusal reads.

The invariant: what is refused says so with a code that stays, and leaves the request as it was.
"""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sayso import errors
from sayso.model.request import Request, State
from sayso.server import create_app
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from sayso.view.as_json import request_document
from tests.conftest import Clock
from tests.support.acting import flaky, unknown
from tests.support.calling import SECRET, bought, caller, code_of
from tests.support.running import paying, started


@pytest.fixture
def app(store: Store, clock: Clock) -> Starlette:
    return create_app(store)


@pytest.fixture
def ada(app: Starlette) -> TestClient:
    return caller(app)


def at(request: Request | str, verb: str = "") -> str:
    request_id = request if isinstance(request, str) else request.id
    return f"/api/v1/requests/{request_id}" + (f"/{verb}" if verb else "")


# -- looking ---------------------------------------------------------------------------------------------------


def test_a_request_is_told_as_the_command_line_tells_it(ada: TestClient, store: Store) -> None:
    for request in (store.get(bought()), store.ask(sample_question())):
        told = ada.get(at(request)).json()
        document = request_document(request, program_gone=False)
        assert {name: told[name] for name in document} == document
        assert {name for name, value in told.items() if value is not None} <= set(document)


def test_a_secret_is_never_told(ada: TestClient) -> None:
    request_id = bought()
    seen = ada.get(at(request_id)).json()["fingerprint"]
    answers = [
        ada.get("/api/v1/requests"), ada.get(at(request_id)), ada.get(at(request_id, "journal")),
        ada.get("/api/v1/journal"),
        ada.post(at(request_id, "approve"), json={"seen": seen, "changes": {"amount": 6, "card_token": 1}}),
        ada.post(at(request_id, "approve"), json={"seen": seen, "changes": {"amount": 6}}), ada.get(at(request_id)),
    ]  # fmt: skip
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 422, 200, 200]
    for answer in answers:
        assert SECRET not in answer.text
    assert '"amount":6' in answers[-1].text


def test_an_answer_is_ascii_so_that_nothing_in_it_deceives_an_eye(ada: TestClient, store: Store) -> None:
    deceiving = "a\u202eb\u001b[2J\U0001f600"
    request = store.ask(sample_call(arguments={"amount": 1, "to": deceiving}))
    answer = ada.get(at(request))
    assert answer.content.isascii()
    assert answer.json()["arguments"]["to"] == deceiving


def test_lists_are_filtered_and_go_on_by_cursor(ada: TestClient, store: Store, clock: Clock) -> None:
    asked = [store.ask(sample_call(f"run_{number % 2}", {"amount": number}, risk="high")).id for number in range(5)]
    question = store.ask(sample_question("run_q")).id

    def ids(**query: Any) -> list[str]:
        return [one["id"] for one in ada.get("/api/v1/requests", params=query).json()["requests"]]

    assert ids() == [*asked, question]
    assert ids(newest="true") == [question, *reversed(asked)]
    assert ids(run="run_1") == [asked[1], asked[3]]
    assert ids(kind="question") == ids(text="WHICH ACC") == [question]
    assert ids(tool="pay", risk="high", kind="call") == asked
    asker = store.get(question).requester
    assert ids(agent=asker.subject) == ids(agent=asker.qualified.upper()) == [*asked, question]
    assert ids(agent="nobody") == ids(older_than="1s") == []
    clock.tick(minutes=2)
    assert ids(older_than="2m", limit=6) == [*asked, question]
    assert ids(state="approved") == []
    assert ids(state=["pending", "approved"]) == ids(state="all") == [*asked, question]
    ada.post(at(asked[2], "claim"))
    assert ids(mine="true") == ids(claimed_by="ada") == ids(claimed_by="local:Ada") == [asked[2]]
    assert ids(mine="true", claimed_by=" ada") == [asked[2]]  # `mine` counts, so the other is not read
    assert ids(claimed_by="corp:ada") == []
    found, cursor = [], None
    for _ in range(3):
        page = ada.get("/api/v1/requests", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        found += [one["id"] for one in page["requests"]]
        cursor = page["cursor"]
    assert (found, cursor) == ([*asked, question], None)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "state=odd", "kind=odd", "cursor=odd", "color=red", "limit=1&limit=2", "run=",
     "claimed_by=%20ada", "claimed_by=a%3Ab%3Ac%E2%80%8B", "text=" + "x" * 1_001, "newest=perhaps",
     "older_than=soon", "tol=pay", "q=a"],
)  # fmt: skip
def test_a_query_that_does_not_fit_is_refused(ada: TestClient, query: str) -> None:
    assert code_of(ada.get(f"/api/v1/requests?{query}")) == (422, "invalid_input")


def test_the_journal_goes_on_by_cursor(ada: TestClient, store: Store) -> None:
    for number in range(3):
        store.ask(sample_call("run_a:b.c", {"amount": number}))
    request = store.ask(sample_call("run_d"))
    found, cursor = list[Any](), None
    while True:
        page = ada.get("/api/v1/journal", params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        found += page["entries"]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert [(row["run"], row["seq"]) for row in found] == [(row.run_id, row.seq) for row in store.journal()]
    assert len(ada.get("/api/v1/journal", params={"run": "run_a:b.c"}).json()["entries"]) == 3
    (row,) = ada.get(at(request, "journal")).json()["entries"]
    assert (row["event"], row["request"]) == ("asked", request.id)
    for wrong in ("x", ".", "1", "-1.run", "9" * 30 + ".run"):
        assert code_of(ada.get("/api/v1/journal", params={"cursor": wrong})) == (422, "invalid_input")


def test_runs_are_listed_and_shown_without_who_has_them_in_hand(ada: TestClient) -> None:
    run_id = started(paying([]), amount=5).run_id
    (told,) = ada.get("/api/v1/runs").json()["runs"]
    assert (told["id"], told["name"], told["state"], told["in_hand"]) == (run_id, "pay", "paused", False)
    assert ada.get(f"/api/v1/runs/{run_id}").json() == told
    assert "holder" not in told
    assert ada.get("/api/v1/runs", params={"state": "ended"}).json()["runs"] == []
    assert ada.get("/api/v1/runs", params={"name": "pay"}).json()["runs"] == [told]
    assert code_of(ada.get("/api/v1/runs/a/b")) == (404, "run_not_found")
    assert code_of(ada.get("/api/v1/runs", params={"cursor": "odd"})) == (422, "invalid_input")


@pytest.mark.parametrize("wrong", ["rq_" + "0" * 32, "rq_0", "nothing", "rq_%2e%2e", "rq_" + "A" * 32])
def test_an_id_is_taken_whole_or_not_at_all(ada: TestClient, wrong: str) -> None:
    request_id = bought()
    for request in (wrong, request_id[:10]):
        answers = [ada.get(at(request)), ada.get(at(request, "journal")), ada.post(at(request, "reject"))]
        assert [code_of(answer) for answer in answers] == [(404, "request_not_found")] * 3
        assert len({answer.text for answer in answers}) == 1
        assert "rq_" not in answers[0].text


def test_a_tag_says_whether_anything_has_changed(ada: TestClient, app: Starlette) -> None:
    request_id = bought()
    tag = ada.get(at(request_id)).headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}'):
        answer = ada.get(at(request_id), headers={"if-none-match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert ada.get(at(request_id), headers={"if-none-match": '"x"'}).status_code == 200
    caller(app, name="bob").post(at(request_id, "claim"))
    assert ada.get(at(request_id), headers={"if-none-match": tag}).status_code == 200


# -- deciding --------------------------------------------------------------------------------------------------


def test_an_approval_says_what_was_seen(ada: TestClient) -> None:
    request_id = bought()
    told = ada.get(at(request_id))
    for headers in ({}, {"if-match": "*"}, {"if-match": ""}):
        assert code_of(ada.post(at(request_id, "approve"), headers=headers)) == (428, "seen_required")
    for headers in ({"if-match": '"x"'}, {"if-match": f'"{"0" * 64}.pending.x"'}):
        assert code_of(ada.post(at(request_id, "approve"), headers=headers)) == (412, "stale_view")
    assert code_of(ada.post(at(request_id, "approve"), json={"seen": "x"})) == (412, "stale_view")
    differs = {"json": {"seen": "x"}, "headers": {"if-match": told.headers["etag"]}}
    assert code_of(ada.post(at(request_id, "approve"), **differs)) == (422, "invalid_input")
    answer = ada.post(at(request_id, "approve"), headers={"if-match": told.headers["etag"]})
    assert (answer.status_code, answer.json()["state"]) == (200, "approved")
    assert answer.headers["etag"] != told.headers["etag"]


def test_what_was_changed_since_it_was_seen_is_not_approved(app: Starlette, ada: TestClient, store: Store) -> None:
    request_id = bought(quorum=2)
    tag = ada.get(at(request_id)).headers["etag"]
    bob = caller(app, name="bob")
    edit = {"changes": {"amount": 6}}
    assert bob.post(at(request_id, "approve"), json=edit, headers={"if-match": tag}).json()["arguments"]["amount"] == 6
    for verb, body in [("approve", {}), ("reject", {}), ("feedback", {"comment": "no"})]:
        answer = ada.post(at(request_id, verb), json=body, headers={"if-match": tag})
        assert code_of(answer) == (412, "stale_view")
    assert answer.json()["current"] == store.get(request_id).current_fingerprint
    assert store.get(request_id).state is State.PENDING


def test_a_second_decision_hears_of_the_first(app: Starlette, ada: TestClient, clock: Clock) -> None:
    for amount, (verb, state) in enumerate([("reject", "rejected"), ("feedback", "feedback"), ("cancel", "cancelled")]):
        request_id = bought(amount)
        body = {"comment": "no"}
        assert ada.post(at(request_id, verb), json=body).json()["state"] == state
        clock.tick(minutes=1)
        answer = caller(app, name="bob").post(at(request_id, "reject"))
        assert code_of(answer) == (409, "already_decided")
        told = {name: answer.json()[name] for name in ("decided_by", "channel", "verb", "state", "request_id")}
        expected = {"decided_by": "ada", "channel": "api", "verb": verb, "state": state, "request_id": request_id}
        assert told == expected
        assert answer.json()["decided_at"].startswith("2026-01-01T12:0")


def test_a_bad_change_decides_nothing_and_says_where_it_is_wrong(ada: TestClient, store: Store) -> None:
    request_id = bought()
    seen = store.get(request_id).current_fingerprint
    for body in ({"changes": {"amount": "many"}}, {"arguments": {}}, {"changes": {"other": 1}},
                 {"changes": {}, "arguments": {}}):  # fmt: skip
        answer = ada.post(at(request_id, "approve"), json={**body, "seen": seen})
        assert code_of(answer) == (422, "invalid_changes"), body
        assert answer.json()["problems"]
    assert store.get(request_id).state is State.PENDING


def test_a_question_is_answered_by_a_value_of_its_type(ada: TestClient, store: Store) -> None:
    question = store.ask(sample_question())
    assert code_of(ada.post(at(question, "answer"), json={})) == (422, "invalid_input")
    assert code_of(ada.post(at(question, "answer"), json={"value": [1]})) == (422, "invalid_answer")
    assert code_of(ada.post(at(question, "approve"), json={"seen": "x"})) == (422, "wrong_kind")
    told = ada.post(at(question, "answer"), json={"value": "the second", "comment": "sure"}).json()
    assert (told["state"], told["answer"], told["decision"]["comment"]) == ("answered", "the second", "sure")
    assert code_of(ada.post(at(bought(), "answer"), json={"value": 1})) == (422, "wrong_kind")


def test_claims_are_taken_released_and_forced_free(app: Starlette, ada: TestClient) -> None:
    request_id, bob = bought(), caller(app, name="bob")
    assert code_of(ada.post(at(request_id, "release"))) == (409, "not_claimed")
    assert ada.post(at(request_id, "claim")).json()["claimed_by"] == "local:ada"
    answer = bob.post(at(request_id, "reject"))
    assert (code_of(answer), answer.json()["by"]) == ((409, "claimed"), "ada")
    assert code_of(bob.post(at(request_id, "release"), json={"force": False})) == (409, "claimed")
    assert bob.post(at(request_id, "release"), json={"force": True}).json()["claimed_by"] is None
    ada.post(at(request_id, "claim"))
    freed = caller(app, "admin", "boss").post(at(request_id, "release"), json={"force": True})
    assert freed.json()["claimed_by"] is None


def test_an_end_is_moved(ada: TestClient) -> None:
    request_id = bought()
    assert ada.post(at(request_id, "extend"), json={"span": "2d"}).json()["expires_at"] == "2026-01-03T12:00:00Z"
    for span in ("", "soon", "-1h", "99999d", "0s"):
        assert code_of(ada.post(at(request_id, "extend"), json={"span": span})) == (422, "invalid_input")


@pytest.mark.parametrize("kind", ["review", "admin"])
def test_an_unknown_outcome_is_resolved_on_a_persons_word(app: Starlette, store: Store, kind: Any) -> None:
    request_id = unknown(flaky([], [KeyboardInterrupt()]))
    client = caller(app, kind, "boss")
    for body in ({}, {"happened": "yes"}, {"happened": 1}, {"happened": None}):
        assert code_of(client.post(at(request_id, "resolve"), json=body)) == (422, "invalid_input")
    told = client.post(at(request_id, "resolve"), json={"happened": True, "comment": "saw it"}).json()
    assert (told["state"], told["execution"]["resolved_by"]) == ("done", "local:boss")
    answer = client.post(at(request_id, "resolve"), json={"happened": True})
    assert code_of(answer) == (409, "not_unknown")


def test_an_outcome_is_resolved_of_the_start_that_was_examined_only(ada: TestClient) -> None:
    act = flaky([], [KeyboardInterrupt(), KeyboardInterrupt()], idempotent=True)
    request_id = unknown(act)
    assert ada.get(at(request_id)).json()["execution"]["unresolved"] is False
    with pytest.raises(KeyboardInterrupt):
        act(1)
    for body in ({}, {"start": 1}, {"start": 3}):
        answer = ada.post(at(request_id, "resolve"), json={"happened": False, **body})
        assert code_of(answer) == (412, "stale_view")
    execution = ada.get(at(request_id)).json()["execution"]
    assert execution["unresolved"] is True
    told = ada.post(at(request_id, "resolve"), json={"happened": False, "start": execution["starts"]})
    assert (told.status_code, execution["starts"]) == (200, 2)
    assert told.json()["execution"]["unresolved"] is False


def test_an_expired_request_is_told_as_expired_and_cannot_be_decided(
    ada: TestClient, store: Store, clock: Clock
) -> None:
    request_id = bought(expires="1h")
    clock.tick(hours=1)
    assert ada.get(at(request_id)).json()["state"] == "expired"
    assert ada.get("/api/v1/requests").json()["requests"] == []
    (told,) = ada.get("/api/v1/requests", params={"state": "expired"}).json()["requests"]
    assert (told["id"], told["state"]) == (request_id, "expired")
    assert ada.get("/api/v1/requests", params={"state": "pending"}).json()["requests"] == []
    assert store.get(request_id).state is State.PENDING  # looking wrote nothing
    answer = ada.post(at(request_id, "reject"))
    assert code_of(answer) == (409, "request_expired")
    assert answer.json()["expired_at"] == "2026-01-01T13:00:00Z"
    assert store.get(request_id).state is State.EXPIRED


def test_a_store_that_does_not_answer_decides_nothing_and_says_nothing_of_itself(
    app: Starlette, ada: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = bought()

    def broken(*_: Any, **__: Any) -> Any:
        raise errors.StoreFullError("/secret/place is full")

    monkeypatch.setattr(type(app.state.settings.store), "decide", broken)
    answer = ada.post(at(request_id, "reject"))
    assert code_of(answer) == (503, "store_full")
    assert "/secret" not in answer.text


def test_a_fault_that_nobody_foresaw_says_nothing(
    app: Starlette, ada: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("hunter2")

    monkeypatch.setattr(type(app.state.settings.store), "list", broken)
    answer = ada.get("/api/v1/requests")
    assert code_of(answer) == (500, "internal")
    assert "hunter2" not in answer.text
