"""Decisions that come in by webhook: only with a signature that fits to the last bit, once, and as its people may."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import standardwebhooks
from starlette.applications import Starlette
from starlette.requests import Request as Http
from starlette.testclient import TestClient

import sayso
from sayso import clock as sayso_clock
from sayso import errors
from sayso.channels.webhook import ID, SIGNATURE, TIMESTAMP, WebhookKeys
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity, Quorum
from sayso.server import create_app
from sayso.server.hooks import Hooks
from sayso.server.hooks import receive as receive_hook
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from tests.conftest import Clock
from tests.support.acting import concurrently
from tests.support.browsing import BASE

SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "B" * 32
KEYS = WebhookKeys([SECRET], source="the test")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("JIRA_SECRET", SECRET)
    monkeypatch.setenv("DESK_SECRET", OTHER)
    return {
        "jira": {"secret_env": "JIRA_SECRET", "reviewers": ["ada", "bob"], "roles": ["finance"]},
        "desk": {"secret_env": "DESK_SECRET", "reviewers": ["ada"]},
    }


@pytest.fixture
def app(store: Store, clock: Clock, tables: dict[str, Any]) -> Starlette:
    return create_app(store, hooks=tables)


@pytest.fixture
def client(app: Starlette) -> TestClient:
    return TestClient(app, base_url=BASE)


@pytest.fixture
def request_(store: Store, clock: Clock) -> Request:
    return store.ask(sample_call(arguments={"amount": 10, "to": "alice", "password": "hunter2"}))


def body_of(request: Request, verb: str = "approve", subject: str = "ada", **more: Any) -> bytes:
    said: dict[str, Any] = {"request_id": request.id, "verb": verb, "reviewer": {"subject": subject}}
    if verb == "approve":
        said["fingerprint"] = request.current_fingerprint
    return json.dumps(said | more).encode()


def signed(body: bytes, message_id: str = "msg_1", keys: WebhookKeys = KEYS) -> dict[str, str]:
    return keys.headers(message_id, sayso_clock.now(), body) | {"content-type": "application/json"}


def send(client: TestClient, body: bytes, message_id: str = "msg_1", keys: WebhookKeys = KEYS) -> Any:
    return client.post("/hooks/decisions", content=body, headers=signed(body, message_id, keys))


def test_a_signed_decision_is_taken_and_says_who_decided(client: TestClient, store: Store, request_: Request) -> None:
    answer = send(client, body_of(request_, comment="fine"))
    assert answer.status_code == 200
    assert answer.json() == {
        "request_id": request_.id, "state": "approved", "fingerprint": request_.fingerprint, "missing_votes": 0,
    }  # fmt: skip
    decision = store.get(request_.id).decision
    assert decision is not None
    assert (decision.by, decision.channel, decision.comment) == (Identity("hook-jira", "ada"), "hook-jira", "fine")


def test_what_another_library_signs_is_taken(store: Store, tables: dict[str, Any]) -> None:
    request = store.ask(sample_call())
    body = body_of(request, "reject")
    now = datetime.now(UTC)
    headers = {ID: "msg_9", TIMESTAMP: str(int(now.timestamp()))}
    headers[SIGNATURE] = standardwebhooks.Webhook(SECRET).sign("msg_9", now, body.decode())
    client = TestClient(create_app(store, hooks=tables), base_url=BASE)
    assert client.post("/hooks/decisions", content=body, headers=headers).status_code == 200
    assert store.get(request.id).state is State.REJECTED


@pytest.mark.parametrize(
    ("verb", "more", "state"),
    [("reject", {"comment": "no"}, "rejected"), ("feedback", {"comment": "less"}, "feedback"),
     ("cancel", {}, "cancelled"), ("approve", {"changes": {"amount": 5}}, "approved")],
)  # fmt: skip
def test_each_verb_does_what_it_says(
    client: TestClient, store: Store, request_: Request, verb: str, more: dict[str, Any], state: str
) -> None:
    assert send(client, body_of(request_, verb, **more)).json()["state"] == state
    after = store.get(request_.id)
    assert after.state == state
    assert after.effective.shown["amount"] == (5 if "changes" in more else 10)


def test_a_question_is_answered(client: TestClient, store: Store, clock: Clock) -> None:
    request = store.ask(sample_question())
    assert send(client, body_of(request, "answer", answer="the second")).status_code == 200
    assert store.get(request.id).answer == "the second"


# -- signatures ------------------------------------------------------------------------------------------------


def flipped(text: bytes) -> list[bytes]:
    return [bytes([*text[:at], text[at] ^ 1 << bit, *text[at + 1 :]]) for at in range(len(text)) for bit in range(8)]


def test_every_flipped_bit_of_20_messages_decides_nothing(memory: Store, clock: Clock, tables: dict[str, Any]) -> None:
    hooks, tried = Hooks(memory, tables), 0
    requests = [memory.ask(sample_call()) for _ in range(20)]
    for number, request in enumerate(requests):
        body = body_of(request, ["approve", "reject", "cancel"][number % 3], comment="x" * number)
        right = KEYS.headers(f"msg_{number}", sayso_clock.now(), body)
        wrong = [(right, one) for one in flipped(body)]
        for name, value in right.items():
            wrong += [(right | {name: one.decode("latin-1")}, body) for one in flipped(value.encode())]
        tried += len(wrong)
        for headers, content in wrong:
            with pytest.raises(Exception, match="the signature is not valid for any hook"):
                hooks.answer(headers, content)
    assert {memory.get(one.id).state for one in requests} == {State.PENDING}
    assert tried > 30_000


@pytest.mark.parametrize("left_out", [ID, TIMESTAMP, SIGNATURE])
def test_a_header_that_is_missing_or_there_twice_decides_nothing(
    client: TestClient, store: Store, request_: Request, left_out: str
) -> None:
    body = body_of(request_)
    headers = signed(body)
    fewer = {name: value for name, value in headers.items() if name != left_out}
    twice = [*headers.items(), (left_out, headers[left_out])]
    for given in (fewer, twice):
        assert client.post("/hooks/decisions", content=body, headers=given).status_code == 401
    assert store.get(request_.id).state is State.PENDING


@pytest.mark.parametrize(("seconds", "status"), [(-301, 401), (-299, 200), (299, 200), (301, 401)])
def test_the_window_is_five_minutes_both_ways(
    client: TestClient, request_: Request, clock: Clock, seconds: int, status: int
) -> None:
    body = body_of(request_)
    headers = signed(body)
    clock.tick(seconds=-seconds)
    assert client.post("/hooks/decisions", content=body, headers=headers).status_code == status


def test_a_secret_of_another_hook_speaks_for_that_hook_only(client: TestClient, store: Store, clock: Clock) -> None:
    desk = WebhookKeys([OTHER], source="the test")
    request = store.ask(sample_call())
    assert send(client, body_of(request, subject="bob"), keys=desk).status_code == 422
    assert send(client, body_of(request, subject="ada"), "msg_2", keys=desk).status_code == 200
    decision = store.get(request.id).decision
    assert decision is not None
    assert decision.by == Identity("hook-desk", "ada")


def test_during_a_change_of_secrets_both_are_taken(
    store: Store, clock: Clock, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JIRA_SECRET", f"whsec_{'C' * 32} {SECRET}")
    client = TestClient(create_app(store, hooks=tables), base_url=BASE)
    new = WebhookKeys([f"whsec_{'C' * 32}"], source="the test")
    for number, keys in enumerate([KEYS, new]):
        assert send(client, body_of(store.ask(sample_call())), f"msg_{number}", keys).status_code == 200


def test_without_hooks_nothing_is_taken(store: Store, request_: Request) -> None:
    client = TestClient(create_app(store), base_url=BASE)
    assert send(client, body_of(request_)).status_code == 401
    assert client.get("/hooks/decisions").status_code == 405
    assert store.get(request_.id).state is State.PENDING


# -- replays ---------------------------------------------------------------------------------------------------


def test_a_repeated_message_has_one_effect_and_one_answer(
    client: TestClient, store: Store, request_: Request, clock: Clock
) -> None:
    body = body_of(request_)
    headers = signed(body)
    first = client.post("/hooks/decisions", content=body, headers=headers)
    journal = list(store.journal())
    clock.tick(seconds=200)
    again = [client.post("/hooks/decisions", content=body, headers=headers) for _ in range(3)]
    assert [(one.status_code, one.json()) for one in again] == [(200, first.json())] * 3
    assert list(store.journal()) == journal


def test_a_repeated_vote_counts_once(client: TestClient, store: Store, clock: Clock) -> None:
    request = store.ask(sample_call(quorum=Quorum(2)))
    body = body_of(request)
    answers = [send(client, body, one).status_code for one in ["msg_1", "msg_1", "msg_2"]]
    assert answers == [200, 200, 409]
    assert store.get(request.id).missing_votes == 1


def test_50_at_once_have_one_effect_and_one_answer(
    store: Store, request_: Request, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks, body = Hooks(store, tables), body_of(request_)
    headers = KEYS.headers("msg_1", sayso_clock.now(), body)
    real, deciding = store.decide, list[int]()

    def slow(*args: Any, **options: Any) -> Request:
        deciding.append(1)
        threading.Event().wait(0.05)  # long enough for the others to come, too
        return real(*args, **options)

    monkeypatch.setattr(store, "decide", slow)
    answers = concurrently(50, lambda: hooks.answer(headers, body))
    assert answers == [answers[0]] * 50
    assert answers[0][0] == 200
    assert [entry.event for entry in store.journal(request_id=request_.id)] == ["asked", "approved"]
    assert deciding == [1]


def test_of_two_servers_that_get_one_message_at_once_one_decides(
    file_store: Store, clock: Clock, tables: dict[str, Any]
) -> None:
    for number in range(10):
        request = file_store.ask(sample_call())
        body = body_of(request)
        headers = KEYS.headers(f"msg_{number}", sayso_clock.now(), body)
        servers = [Hooks(file_store, tables), Hooks(file_store, tables)]
        answers = concurrently(
            2, lambda servers=servers, headers=headers, body=body: servers.pop().answer(headers, body)
        )
        assert 200 in {one[0] for one in answers}
        assert [entry.event for entry in file_store.journal(request_id=request.id)] == ["asked", "approved"]
        assert Hooks(file_store, tables).answer(headers, body)[0] == 200


def test_a_refusal_stays_one_when_it_is_repeated(
    client: TestClient, store: Store, request_: Request, clock: Clock
) -> None:
    store.claim(request_.id, Identity("local", "kim"), roles=(), channel="test")
    body = body_of(request_)
    headers = signed(body)
    refused = client.post("/hooks/decisions", content=body, headers=headers)
    assert refused.status_code == 409
    store.release(request_.id, Identity("local", "kim"), roles=(), force=False, channel="test")
    again = client.post("/hooks/decisions", content=body, headers=headers)
    assert (again.status_code, again.json()) == (409, refused.json())
    assert store.get(request_.id).state is State.PENDING


def test_an_id_that_is_used_for_another_message_decides_nothing(
    client: TestClient, store: Store, request_: Request
) -> None:
    assert send(client, body_of(request_, "reject")).status_code == 200
    other = store.ask(sample_call())
    assert send(client, body_of(other)).status_code == 422
    assert store.get(other.id).state is State.PENDING


def test_what_was_seen_is_forgotten_when_it_could_not_be_signed_for_any_more(
    client: TestClient, store: Store, request_: Request, clock: Clock
) -> None:
    send(client, body_of(request_, "reject"))
    clock.tick(minutes=11)
    send(client, body_of(store.ask(sample_call())), "msg_2")
    assert len(store.records("seen")) == 2
    clock.tick(minutes=10)
    send(client, body_of(store.ask(sample_call())), "msg_3")
    assert [record.key for record in store.records("seen")] == ["hook/jira/msg_2", "hook/jira/msg_3"]


# -- who, and what ---------------------------------------------------------------------------------------------


def test_only_the_people_of_a_hook_are_taken(client: TestClient, store: Store, request_: Request) -> None:
    for number, subject in enumerate(["kim", "Ada", "ada ", "local:ada", "root"]):
        assert send(client, body_of(request_, subject=subject), f"msg_{number}").status_code == 422, subject
    assert store.get(request_.id).state is State.PENDING


def test_who_asked_cannot_decide_by_a_hook(client: TestClient, store: Store, clock: Clock) -> None:
    asked = [
        sample_call(requester=Identity("hook-jira", "ada")),
        sample_call(on_behalf_of=Identity("local", "ada")),
        sample_call(on_behalf_of=Identity("corp", "ada@corp.example")),
    ]
    for number, request in enumerate(map(store.ask, asked)):
        answer = send(client, body_of(request), f"msg_{number}")
        assert (answer.status_code, answer.json()["code"]) == (403, "own_request")
        assert store.get(request.id).state is State.PENDING


def test_roles_come_from_the_settings(client: TestClient, store: Store, clock: Clock) -> None:
    finance, legal = (store.ask(sample_call(quorum=Quorum(1, frozenset({role})))) for role in ("finance", "legal"))
    assert send(client, body_of(finance)).status_code == 200
    assert send(client, body_of(legal), "msg_2").json()["code"] == "missing_role"


def test_an_approval_of_something_else_than_was_seen_decides_nothing(
    client: TestClient, store: Store, request_: Request
) -> None:
    for number, verb in enumerate(["approve", "reject", "cancel"]):
        answer = send(client, body_of(request_, verb, fingerprint="0" * 64), f"msg_{number}")
        assert (answer.status_code, answer.json()["code"]) == (412, "stale_view")
    assert store.get(request_.id).state is State.PENDING


def test_a_second_decision_is_told_of_the_first(client: TestClient, store: Store, request_: Request) -> None:
    sayso.Review(store).reject(request_.id, by="kim")
    answer = send(client, body_of(request_)).json()
    assert (answer["code"], answer["decided_by"], answer["verb"]) == ("already_decided", "kim", "reject")


def odd(request: Request) -> list[bytes]:
    right = json.loads(body_of(request))
    less = [{name: value for name, value in right.items() if name != left} for left in right]
    more = [
        {"verb": "start"}, {"fingerprint": "short"}, {"fingerprint": None}, {"request_id": request.id[:12]},
        {"request_id": 1}, {"reviewer": "ada"}, {"reviewer": {}}, {"reviewer": {"subject": 1}},
        {"reviewer": {"subject": "ada", "roles": ["admin"]}}, {"roles": ["admin"]}, {"changes": [1]},
        {"answer": 1}, {"verb": "feedback"}, {"verb": "answer"}, {"verb": "reject", "changes": {}},
        {"comment": 1}, {"comment": "x" * 10_001}, {"changes": {"amount": "many"}}, {"changes": {"unknown": 1}},
    ]  # fmt: skip
    twice = body_of(request).decode()[:-1] + ', "verb": "approve"}'
    texts = [twice, "[]", "null", "{", "", '{"verb": NaN}', "[" * 100_000]
    return [*(json.dumps(one).encode() for one in [*less, *(right | one for one in more)]), b"\xff",
            *(one.encode() for one in texts)]  # fmt: skip


def test_a_message_that_is_odd_decides_nothing_and_is_no_fault(
    client: TestClient, store: Store, request_: Request
) -> None:
    for number, body in enumerate(odd(request_)):
        answer = send(client, body, f"msg_{number}")
        assert answer.status_code in {400, 422}, (body[:80], answer.status_code)
        assert answer.headers["content-type"] == "application/problem+json"
    assert store.get(request_.id).state is State.PENDING


def test_a_message_that_is_too_long_is_not_read(client: TestClient) -> None:
    body = b'{"comment": "' + b"x" * 2_000_000 + b'"}'
    assert send(client, body).status_code == 413


def test_a_store_that_fails_is_told_and_the_message_may_come_again(
    client: TestClient, store: Store, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise errors.StoreBusyError("it is locked")

    with monkeypatch.context() as broken:
        broken.setattr(type(store), "decide", fail)
        assert send(client, body_of(request_)).status_code == 503
    assert send(client, body_of(request_)).status_code == 200


def test_a_session_of_the_inbox_is_no_signature(client: TestClient, store: Store, request_: Request) -> None:
    answer = client.post("/hooks/decisions", content=body_of(request_), headers={"origin": BASE})
    assert answer.status_code == 401
    assert store.get(request_.id).state is State.PENDING


# -- settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, "reviewers must list"), ({"reviewers": []}, "reviewers must list"), ({"reviewers": "ada"}, "a list"),
     ({"reviewers": ["ada"]}, "secret_env is missing"), ({"reviewers": ["ada\u200b"]}, "cannot be used"),
     ({"reviewers": ["ada"], "issuer": "a:b"}, "cannot be used"),
     ({"reviewers": ["ada"], "secret_env": "NOT_SET"}, "NOT_SET"),
     ({"reviewers": ["ada"], "secret_env": "JIRA_SECRET", "secret": "x"}, "not known"), ("x", "must be a table")],
)  # fmt: skip
def test_a_hook_that_cannot_be_used_is_refused_at_once(
    memory: Store, tables: dict[str, Any], settings: Any, said: str
) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        create_app(memory, hooks={"jira": settings})


def test_the_settings_file_names_hooks(memory: Store, tables: dict[str, Any], place: Any, clock: Clock) -> None:
    text = '[hooks.jira]\nsecret_env = "JIRA_SECRET"\nreviewers = ["ada"]\nissuer = "local"\n'
    (place / "sayso.toml").write_text(text)
    (place / "sayso.toml").chmod(0o600)
    request = memory.ask(sample_call())
    assert send(TestClient(create_app(memory), base_url=BASE), body_of(request)).status_code == 200
    decision = memory.get(request.id).decision
    assert decision is not None
    assert decision.by == Identity("local", "ada")


def test_the_clock_of_the_store_counts_and_not_the_one_of_the_message(
    client: TestClient, store: Store, clock: Clock
) -> None:
    request = store.ask(sample_call(expires_at=sayso_clock.now() + timedelta(seconds=60)))
    body = body_of(request)
    headers = signed(body)
    clock.tick(seconds=60)
    answer = client.post("/hooks/decisions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "request_expired")


def _of_a_connection(app: Starlette, messages: list[dict[str, Any]]) -> list[Any]:
    """Return what is answered to a body that comes in these messages, and then not at all."""
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "app": app, "method": "POST", "path": "/hooks/decisions", "headers": [], "query_string": b"",
    }  # fmt: skip

    async def served() -> None:
        answer = await receive_hook(Http(scope, receive))
        await answer(scope, receive, send)

    asyncio.run(served())
    return sent


def test_who_goes_away_in_the_middle_is_no_failure(app: Starlette, caplog: pytest.LogCaptureFixture) -> None:
    begun = {"type": "http.request", "body": b"{", "more_body": True}
    _of_a_connection(app, [begun, {"type": "http.disconnect"}])
    assert caplog.records == []


def test_a_body_that_does_not_come_is_not_waited_for(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayso.server.hooks._BODY_TIMEOUT", 0.01)
    sent = _of_a_connection(app, [{"type": "http.request", "body": b"{", "more_body": True}])
    assert (sent[0]["status"], json.loads(sent[1]["body"])["code"]) == (408, "body_too_slow")
