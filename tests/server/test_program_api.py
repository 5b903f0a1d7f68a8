"""What the programs' half of the API does in one round trip: an ask that waits, or takes a start, and batches."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import sayso
from sayso.model.ids import new_request_id
from sayso.model.reviewer import Escalation, Quorum
from sayso.reviews import Review
from sayso.server import create_app
from sayso.server.api.endpoint import encoded
from sayso.server.api.program import message_of
from sayso.stores.base import Store
from sayso.stores.http_messages import RequestMessage
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import waiting_in
from tests.support.calling import asked_message, caller, code_of

TOKEN = "t" * 32


@pytest.fixture
def program(app: Starlette) -> TestClient:
    return caller(app, "ask", "bot")


def sent(program: TestClient, verb: str, **body: Any) -> Any:
    answer = program.post(f"/api/v1/program/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def again(asked: dict[str, Any]) -> dict[str, Any]:
    """The same call, asked once more."""
    return {**asked, "id": new_request_id()}


def start(token: str = TOKEN) -> dict[str, str]:
    return {"token": token, "worker": "w"}


def person(app: Starlette) -> Review:
    return sayso.Review(app.state.settings.store, reviewer="ada")


def test_an_ask_that_waits_is_answered_with_the_decision_and_its_start(app: Starlette, program: TestClient) -> None:
    asked, review = asked_message(sample_call()), person(app)
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(sent(program, "ask", request=asked, seconds=30, start=start()))
    )
    thread.start()
    waiting_in(review.store)
    review.approve(asked["id"])
    thread.join(30)
    [answer] = answers
    assert answer["request"]["state"] == "running"
    assert answer["request"]["execution"]["token"] == TOKEN


def test_an_ask_that_nobody_decides_is_answered_when_its_time_is_over(program: TestClient) -> None:
    asked = asked_message(sample_call())
    assert sent(program, "ask", request=asked, seconds=0.05)["request"]["state"] == "pending"


def test_an_ask_takes_the_start_of_what_was_approved_once(app: Starlette, program: TestClient) -> None:
    asked = asked_message(sample_call())
    assert sent(program, "ask", request=asked, start=start())["request"]["state"] == "pending"
    person(app).approve(asked["id"])
    found = sent(program, "ask", request=again(asked), start=start())["request"]
    assert (found["id"], found["state"]) == (asked["id"], "running")
    other = sent(program, "ask", request=again(asked), start=start("u" * 32))["request"]
    assert other["execution"]["token"] == TOKEN


@pytest.mark.parametrize("change", ["it asks for more", "it wants a person", "a person changed it"])
def test_an_ask_takes_no_start_of_another_approval(app: Starlette, program: TestClient, change: str) -> None:
    call, review = sample_call(), person(app)
    asked = asked_message(call)
    sent(program, "ask", request=asked)
    if change == "it asks for more":
        review.approve(asked["id"])
        asked = asked_message(replace(call, quorum=Quorum(2)))
    elif change == "it wants a person":  # where a grant, or a budget, may have approved it
        review.approve(asked["id"])
        asked = asked_message(replace(call, always=True))
    else:
        name, value = next(iter(review.get(asked["id"]).call.arguments.items()))
        review.approve(asked["id"], changes={name: value * 2})
    found = sent(program, "ask", request=again(asked), start=start())["request"]
    assert found["state"] == "approved"
    assert found["execution"] is None


@pytest.mark.parametrize("options", [{"retries": 5}, {"idempotent": True}], ids=["retries", "idempotent"])
def test_an_ask_that_comes_again_after_later_starts_starts_nothing(
    app: Starlette, program: TestClient, options: dict[str, Any]
) -> None:
    asked = asked_message(sample_call(**options))
    sent(program, "ask", request=asked)
    person(app).approve(asked["id"])
    for number, token in enumerate((TOKEN, "u" * 32)):
        if number == 0:
            sent(program, "ask", request=again(asked), start=start(token))
        else:
            sent(program, "start", request_id=asked["id"], **start(token), seen=number)
        failed = ["failed", None, "ValueError: not now", None, None, False]
        sent(program, "finish", request_id=asked["id"], token=token, outcome=failed)
    found = sent(program, "ask", request=again(asked), start=start())["request"]
    assert (found["state"], found["execution"]["token"]) == ("approved", "u" * 32)
    assert sent(program, "start", request_id=asked["id"], **start("v" * 32), seen=2)["request"]["state"] == "running"


@pytest.mark.parametrize("way", ["ask", "start"])
def test_a_start_whose_effect_another_program_has_is_not_told_its_request(
    app: Starlette, program: TestClient, way: str
) -> None:
    review, effect, theirs = person(app), "refund:A-4721", caller(app, "ask", "another")
    asked = [asked_message(sample_call(run_id, effect=effect)) for run_id in ("order-1", "order-2")]
    for client, one in zip((theirs, program), asked, strict=True):
        sent(client, "ask", request=one)
        review.approve(one["id"])
    sent(theirs, "start", request_id=asked[0]["id"], **start())
    body = {"request": again(asked[1]), "start": start()} if way == "ask" else {"request_id": asked[1]["id"], **start()}
    answer = program.post(f"/api/v1/program/{way}", json=body)
    assert code_of(answer) == (409, "effect_taken")
    assert (answer.json()["other"], answer.json()["state"]) == (None, "running")
    assert asked[0]["id"] not in answer.text


def test_each_operation_of_a_batch_is_answered_for_itself(program: TestClient) -> None:
    asked = [asked_message(replace(sample_call(), id=new_request_id())) for _ in range(1)]
    operations = [
        {"verb": "ask", "body": {"request": asked[0]}},
        {"verb": "get", "body": {"request_id": "rq_" + "0" * 32}},
        {"verb": "ask", "body": {"request": {**asked[0], "more": 1}}},
        {"verb": "batch", "body": {"operations": []}},
        {"verb": "note", "body": {"run_id": "order-1", "event": "denied", "detail": {}}},
    ]
    answers = sent(program, "batch", operations=operations)["answers"]
    assert [one["status"] for one in answers] == [200, 404, 422, 404, 200]
    assert answers[0]["body"]["request"]["id"] == asked[0]["id"]
    assert [one["body"].get("code") for one in answers[1:4]] == ["request_not_found", "invalid_input", "not_found"]


def test_a_batch_counts_each_operation_against_the_limit(memory: Any) -> None:
    program = caller(create_app(memory, rate="3/minute"), "ask", "bot")
    note = {"verb": "note", "body": {"run_id": "order-1", "event": "denied", "detail": {}}}
    answers = sent(program, "batch", operations=[note] * 4)["answers"]
    assert sorted(one["status"] for one in answers) == [200, 200, 429, 429]


def test_an_answer_is_ascii_that_says_what_pydantic_reads(store: Store) -> None:
    request = store.ask(sample_call(context={"plain": 1}, escalation=Escalation(timedelta(hours=1), roles=["lead"])))
    for context in ({"plain": [1.5, None, True]}, {"name": "M\u00fcller \u202e\U0001f600\x7f"}, {"large": 2**80}):
        message = message_of(replace(request, context=context))
        text = encoded(message)
        assert RequestMessage.model_validate_json(text) == message
        assert text.isascii()


def test_an_etag_differs_where_what_stands_does(store: Store) -> None:
    request, review = store.ask(sample_call()), sayso.Review(store, reviewer="ada")
    first, seen = message_of(request).etag, list[str]()
    for change in (store.get, review.claim, review.release, review.approve):
        change(request.id)
        seen.append(message_of(store.get(request.id)).etag)
    assert [one == first for one in seen] == [True, False, True, False]
    assert seen[1] != seen[3]


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00"])
def test_a_run_with_an_impossible_date_hides_no_other_run(each_store: Store, clock: Clock, at: str) -> None:
    app = create_app(each_store)
    mine, other, reviewer = (caller(app, kind, name) for kind, name in (("ask", "a"), ("ask", "b"), ("review", "ada")))
    for program, run_id, date in ((mine, "order-1", at), (other, "order-2", "2026-01-01T00:00:00Z")):
        run = {"id": run_id, "name": "clerk", "kind": "agent", "holder": "w", "state": "running"}
        run |= {"created_at": date, "updated_at": date}
        sent(program, "save-run", update=[run, [], "broken"])
        clock.tick(seconds=1)
    assert [one["id"] for one in reviewer.get("/api/v1/runs").json()["runs"]] == ["order-2", "order-1"]
    assert [one["id"] for one in sent(other, "ready-runs", names=["clerk"])["runs"]] == ["order-2"]


@pytest.mark.parametrize("result", [r'"\ud800"', f"{'[' * 300}{']' * 300}"], ids=["lone surrogate", "300 levels"])
def test_a_result_that_no_answer_can_have_is_refused(app: Starlette, program: TestClient, result: str) -> None:
    asked = asked_message(sample_call(title="Pay M\u00fcller"))
    sent(program, "ask", request=asked)
    person(app).approve(asked["id"])
    sent(program, "start", request_id=asked["id"], **start())
    outcome = ["done", f'{{"result":{result}}}', None, None, None, False]
    body = {"request_id": asked["id"], "token": TOKEN, "outcome": outcome}
    assert code_of(program.post("/api/v1/program/finish", json=body)) == (422, "argument")
    assert caller(app).get("/api/v1/requests?state=all").status_code == 200


@pytest.mark.parametrize("run_id", ["aap:x", "aap:", "aap::x", "aap:other:x"])
def test_a_run_below_the_name_of_no_program_or_another_one_is_not_found(program: TestClient, run_id: str) -> None:
    for verb, body in (("get-run", {}), ("journal", {}), ("note", {"event": "denied", "detail": {}})):
        answer = program.post(f"/api/v1/program/{verb}", json={"run_id": run_id, **body})
        assert code_of(answer) == (404, "run_not_found")


def test_an_escalation_after_the_end_of_the_calendar_is_refused(program: TestClient) -> None:
    asked = asked_message(sample_call(escalation=Escalation(timedelta(days=9_999_999), roles=["lead"])))
    assert code_of(program.post("/api/v1/program/ask", json={"request": asked})) == (422, "ask_refused")


def test_a_note_that_would_swell_the_lists_of_the_journal_is_refused(app: Starlette, program: TestClient) -> None:
    note = {"run_id": "order-1", "event": "denied", "detail": {"reason": "x" * 65_536}}
    assert code_of(program.post("/api/v1/program/note", json=note)) == (422, "invalid_input")
    assert caller(app).get("/api/v1/journal", params={"run": "order-1"}).json()["entries"] == []
    assert sent(program, "note", **{**note, "detail": {"reason": "x" * 60_000}}) == {}
