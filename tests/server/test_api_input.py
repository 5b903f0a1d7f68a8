"""What the HTTP API takes: strict JSON of bounded length, known fields of the right types, and not too often.

The invariant: a body that two readers could take for two things is taken for nothing.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from sayso import errors
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.server import create_app, protection
from sayso.server.api import long_poll, problems
from sayso.server.api.program import message_of
from sayso.server.app import endpoints
from sayso.server.protection import HEADERS, MAX_BODY, Slot
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import state_of
from tests.support.browsing import BASE, browser
from tests.support.calling import asked_message, bearer, bought, caller, code_of
from tests.support.serving import serving


@pytest.fixture
def app(memory: Store, clock: Clock) -> Starlette:
    return create_app(memory)


@pytest.fixture
def ada(app: Starlette) -> TestClient:
    return caller(app)


def sent(client: TestClient, request_id: str, body: bytes | str, kind: str = "application/json") -> Any:
    return client.post(f"/api/v1/requests/{request_id}/reject", content=body, headers={"content-type": kind})


BAD_JSON = {
    "a key twice": '{"comment": "a", "comment": "b"}',
    "a key twice, escaped": '{"comment": "a", "comm\\u0065nt": "b"}',
    "NaN": '{"comment": NaN}',
    "Infinity": '{"x": -Infinity}',
    "an infinite number": '{"x": 1e999}',
    "a long number": f'{{"x": {"9" * 5_000}}}',
    "half of a pair": '{"comment": "\\ud800"}',
    "half of a pair in a key": '{"\\udc00": 1}',
    "not UTF-8": b'{"comment": "\xff"}',
    "UTF-16": '{"comment": "a"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "two documents": "{}{}",
    "nothing but space": "  ",
    "a comment": '{"comment": "a"} // no',
    "a trailing comma": '{"comment": "a",}',
    "single quotes": "{'comment': 'a'}",
    "an end too early": '{"comment": "a',
    "deep lists": '{"x": ' + "[" * 100 + "]" * 100 + "}",
    "deep objects": '{"x":' * 100 + "1" + "}" * 100,
    "very deep lists": "[" * 500_000,
    "a raw line feed in a text": '{"comment": "a\nb"}',
}


@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON)
def test_a_body_that_is_no_strict_json_is_refused(ada: TestClient, body: bytes | str) -> None:
    request_id = bought()
    assert code_of(sent(ada, request_id, body)) == (400, "invalid_json")
    assert state_of(request_id) is State.PENDING


def test_json_as_deep_as_allowed_is_read(ada: TestClient) -> None:
    body = '{"value": ' + "[" * 60 + "]" * 60 + "}"
    answer = ada.post(f"/api/v1/requests/{bought()}/answer", content=body, headers={"content-type": "application/json"})
    assert code_of(answer) == (422, "wrong_kind")


@pytest.mark.parametrize(
    "body",
    ["[]", '"x"', "1", "null", "true", '{"other": 1}', '{"comment": 1}', '{"comment": ["a"]}', '{"Comment": "a"}',
     '{"comment": "' + "x" * 20_001 + '"}', '{"seen": ""}', '{"seen": "' + "0" * 201 + '"}', '{"force": true}'],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_refused(ada: TestClient, body: str) -> None:
    request_id = bought()
    answer = sent(ada, request_id, body)
    assert code_of(answer) == (422, "invalid_input")
    assert answer.json()["problems"]
    assert len(answer.content) < 3_000
    assert state_of(request_id) is State.PENDING


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"]
)
def test_a_body_that_is_not_called_json_is_refused(ada: TestClient, kind: str) -> None:
    request_id = bought()
    assert code_of(sent(ada, request_id, "{}", kind)) == (415, "wrong_content_type")
    assert code_of(sent(ada, request_id, b"{}", "")) == (415, "wrong_content_type")
    assert state_of(request_id) is State.PENDING
    assert sent(ada, request_id, "{}", "application/json; charset=utf-8").status_code == 200


def test_an_empty_body_is_an_empty_object(ada: TestClient) -> None:
    assert ada.post(f"/api/v1/requests/{bought()}/reject").status_code == 200


def test_a_body_that_is_too_long_is_refused(ada: TestClient) -> None:
    request_id = bought()
    body = b'{"comment": "' + b"x" * MAX_BODY + b'"}'
    assert code_of(sent(ada, request_id, body)) == (413, "body_too_large")
    assert code_of(sent(ada, request_id, b" " * (MAX_BODY - 2) + b"{}x")) == (413, "body_too_large")
    assert sent(ada, request_id, b" " * (MAX_BODY - 2) + b"{}").status_code == 200


def test_a_query_where_there_is_none_to_read_is_refused(ada: TestClient) -> None:
    assert code_of(ada.get("/api/v1/me?x=1")) == (422, "invalid_input")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/", (404, "not_found")), ("GET", "/api/v1", (404, "not_found")),
        ("GET", "/api/v2/me", (404, "not_found")), ("POST", "/api/v1/nothing", (404, "not_found")),
        ("GET", "/api/v1/%0A", (404, "not_found")), ("GET", "/api/%0A/me", (404, "not_found")),
        ("GET", "/api/v1/runs/a%0Ab", (404, "run_not_found")),
        ("GET", "/api/v1/me/", (404, "not_found")), ("GET", "/api/v1/requests/", (404, "not_found")),
        ("POST", "/api/v1/me", (405, "method_not_allowed")), ("OPTIONS", "/api/v1/me", (405, "method_not_allowed")),
        ("DELETE", "/api/v1/requests", (405, "method_not_allowed")), ("FOO", "/api/v1/me", (405, "method_not_allowed")),
        ("GET", f"/api/v1/requests/rq_{'0' * 32}/reject", (405, "method_not_allowed")),
    ],
)  # fmt: skip
def test_every_address_below_api_answers_in_problems(
    ada: TestClient, app: Starlette, method: str, path: str, expected: tuple[int, str]
) -> None:
    answer = ada.request(method, path)
    assert code_of(answer) == expected
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "access-control-allow-origin" not in answer.headers
    assert code_of(caller(app, None).request(method, path)) == (401, "not_signed_in")
    if expected[0] == 405:
        assert answer.headers["allow"] in {"GET", "POST"}


def test_no_answer_lets_another_origin_read_it(ada: TestClient) -> None:
    for method in ("GET", "OPTIONS"):
        headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        answer = ada.request(method, "/api/v1/me", headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]


# -- how often ---------------------------------------------------------------------------------------------------


def test_one_who_asks_too_often_waits_and_slows_nobody_else_down(memory: Store) -> None:
    app = create_app(memory, rate="5/hour", stranger_rate="5/hour")
    ada, bob, page = caller(app, name="ada"), caller(app, name="bob"), browser(app, "kim")
    for client in (ada, page):
        assert [client.get("/api/v1/me").status_code for _ in range(5)] == [200] * 5
        answer = client.get("/api/v1/me")
        assert code_of(answer) == (429, "rate_limited")
        assert 3_000 < int(answer.headers["retry-after"]) <= 3_600
        assert code_of(client.post(f"/api/v1/requests/rq_{'0' * 32}/reject")) in {
            (429, "rate_limited"), (403, "not_from_here"),
        }  # fmt: skip
    assert bob.get("/api/v1/me").status_code == 200


def test_strangers_cannot_guess_without_end(memory: Store) -> None:
    app = create_app(memory, stranger_rate="5/hour")
    stranger, ada = TestClient(app, base_url=BASE), caller(app)
    codes = [code_of(stranger.get("/api/v1/me", headers={"authorization": "Bearer sst_x"})) for _ in range(6)]
    assert codes == [(401, "not_signed_in")] * 5 + [(429, "rate_limited")]
    assert ada.get("/api/v1/me").status_code == 200


@pytest.mark.slow
def test_a_token_has_no_limit_of_rate_unless_one_is_set(memory: Store) -> None:
    ada = caller(create_app(memory))
    assert {ada.get("/api/v1/me").status_code for _ in range(700)} == {200}


class Held:
    """A store whose `get` waits inside until it may go on.

    Attributes:
        inside: Released by each call that has come in.
        free: Set when all may go on.
    """

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside, self.free = threading.Semaphore(0), threading.Event()
        real = store.get

        def get(request_id: str) -> Request:
            self.inside.release()
            assert self.free.wait(30)
            return real(request_id)

        monkeypatch.setattr(store, "get", get)

    def until_inside(self, count: int) -> None:
        for _ in range(count):
            assert self.inside.acquire(timeout=60)


def asked_by(program: TestClient) -> str:
    """Ask for a call by the API, and return the id of its request."""
    answer = program.post("/api/v1/program/ask", json={"request": asked_message(sample_call())})
    return str(answer.json()["request"]["id"])


@pytest.mark.parametrize(("way", "slots"), [("get", 2), ("wait", 1)])  # those who wait look one after the other
def test_a_token_has_so_many_requests_under_way_and_others_are_not_held_up(
    memory: Store, monkeypatch: pytest.MonkeyPatch, way: str, slots: int
) -> None:
    app = create_app(memory, in_flight=slots)
    ada, bob = caller(app, "ask", name="ada"), caller(app, "ask", name="bob")
    request_id = asked_by(ada)
    body = {"get": {"request_id": request_id}, "wait": {"seen": {request_id: None}}}[way]
    ask = partial(ada.post, f"/api/v1/program/{way}", json=body)
    held = Held(memory, monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(ask) for _ in range(slots)]
        held.until_inside(slots)
        try:
            refused = ada.get("/api/v1/me")
            assert code_of(refused) == (429, "rate_limited")
            assert refused.headers["retry-after"] == "1"
            assert bob.get("/api/v1/me").status_code == 200
        finally:
            held.free.set()
        assert {one.result(60).status_code for one in under_way} == {200}
    assert ada.get("/api/v1/me").status_code == 200


class Wire:
    """One program that talks to a real server, over as many connections as it has requests."""

    def __init__(self, store: Store, stack: ExitStack, **options: Any) -> None:
        self._stack, self._server = stack, stack.enter_context(serving())
        self._server.of(store, **options)
        self._headers = {**bearer(store, "ask"), "content-type": "application/json"}

    def sent(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> http.client.HTTPConnection:
        """Send a request, whose answer is read later."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=60)
        self._stack.enter_context(closing(connection))
        connection.request(
            method, f"/api/v1{path}", None if body is None else json.dumps(body), headers or self._headers
        )
        return connection

    def asked(self) -> str:
        """Ask for a call, and return the id of its request."""
        answer = self.sent("POST", "/program/ask", {"request": asked_message(sample_call())})
        return str(json.load(answer.getresponse())["request"]["id"])


def test_programs_that_sleep_take_no_room_and_hear_of_a_change(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, asleep, deliver = 30, threading.Semaphore(0), long_poll._Waiting._deliver

    def noted(waiting: Any, found: Any) -> None:
        deliver(waiting, found)
        asleep.release()

    monkeypatch.setattr(long_poll._Waiting, "_deliver", noted)
    with ExitStack() as stack:
        wire = Wire(memory, stack, in_flight=1)
        request_id = wire.asked()
        seen = {"seen": {request_id: message_of(memory.get(request_id)).etag}, "seconds": 30}
        waiting = list[http.client.HTTPConnection]()
        for _ in range(programs):
            waiting.append(wire.sent("POST", "/program/wait", seen))
            assert asleep.acquire(timeout=30)
        assert wire.sent("GET", "/me").getresponse().status == 200  # they sleep, and nothing is under way
        memory.withdraw(request_id, Identity("tests", "ada"), "not wanted any more")
        answers = [one.getresponse() for one in waiting]
        assert {one.status for one in answers} == {200}
        assert all(request_id in json.load(one)["changed"] for one in answers)
        assert wire.sent("GET", "/me").getresponse().status == 200


def test_a_token_that_takes_all_of_its_slots_leaves_threads_to_the_others(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = 64  # the default, and more than the threads that anyio gives by itself
    with ExitStack() as stack:
        wire, bob = Wire(memory, stack), bearer(memory, name="bob")
        request_id = wire.asked()
        held = Held(memory, monkeypatch)
        under_way = [wire.sent("POST", "/program/get", {"request_id": request_id}) for _ in range(slots)]
        try:
            held.until_inside(slots)
            assert wire.sent("GET", "/me").getresponse().status == 429, "a slot is left"
            assert wire.sent("GET", "/me", headers=bob).getresponse().status == 200
        finally:
            held.free.set()
        assert {one.getresponse().status for one in under_way} == {200}


def test_a_program_that_comes_to_wait_queues_for_a_slot(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    queued, take = threading.Event(), Slot.take

    async def noted(slot: Slot, *, queues: bool) -> None:
        if queues:
            queued.set()
        await take(slot, queues=queues)

    monkeypatch.setattr(protection, "_QUEUE_TIMEOUT", 30)
    monkeypatch.setattr(Slot, "take", noted)
    with ExitStack() as stack:
        wire = Wire(memory, stack, in_flight=1)
        request_id = wire.asked()
        held = Held(memory, monkeypatch)
        first = wire.sent("POST", "/program/get", {"request_id": request_id})
        held.until_inside(1)
        second = wire.sent("POST", "/program/wait", {"seen": {request_id: None}, "seconds": 30})
        try:
            assert queued.wait(30), "refused, though it would have waited"
        finally:
            held.free.set()
        assert (first.getresponse().status, second.getresponse().status) == (200, 200)


def test_a_request_that_waits_for_a_change_is_refused_where_no_slot_gets_free(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protection, "_QUEUE_TIMEOUT", 0.01)
    with ExitStack() as stack:
        wire = Wire(memory, stack, in_flight=1)
        request_id = wire.asked()
        held = Held(memory, monkeypatch)
        first = wire.sent("POST", "/program/get", {"request_id": request_id})
        held.until_inside(1)
        try:
            refused = wire.sent("POST", "/program/wait", {"seen": {request_id: None}}).getresponse()
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        finally:
            held.free.set()
        assert first.getresponse().status == 200


@pytest.mark.parametrize("rate", ["", "often", "5", "x/minute"])
def test_a_limit_that_is_none_is_refused_at_once(memory: Store, rate: str) -> None:
    with pytest.raises(errors.ConfigError, match="600/minute"):
        create_app(memory, rate=rate)


# -- problems and the document -----------------------------------------------------------------------------------


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = [problems.kind_of(getattr(errors, name)) for name in errors.__all__]
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in problems.kinds().values():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
        assert 400 <= kind.status < 600
        assert 5 < len(kind.title) < 120


def test_a_codes_status_never_changes() -> None:
    statuses = {code: kind.status for code, kind in problems.kinds().items()}
    expected = {
        "already_decided": 409, "request_expired": 409, "own_request": 403, "missing_role": 403, "stale_view": 412,
        "invalid_changes": 422, "invalid_answer": 422, "request_not_found": 404, "already_started": 409,
        "store_busy": 503, "store_unavailable": 503, "claimed": 409, "not_claimed": 409, "not_unknown": 409,
        "wrong_kind": 422, "already_voted": 409, "run_not_found": 404,
    }  # fmt: skip
    assert {code: statuses[code] for code in expected} == expected


def test_the_document_tells_of_every_operation_and_refers_to_nothing_that_is_not_there(ada: TestClient) -> None:
    document = ada.get("/api/v1/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    told = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    assert told == {(one.method, one.path.replace(":path", "")) for one in endpoints()}
    refs = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert refs <= set(document["components"]["schemas"])
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    for path in document["paths"].values():
        for each in path.values():
            assert {"401", "403", "422", "429", "500"} <= set(each["responses"])


def test_a_mounted_inbox_answers_below_its_own_path(memory: Store, ada: TestClient) -> None:
    outer = Starlette(routes=[Mount("/inbox", create_app(memory))])
    client = TestClient(outer, base_url=BASE, headers=dict(ada.headers))
    document = client.get("/inbox/api/v1/openapi.json").json()
    assert document["servers"] == [{"url": "/inbox/api"}]
    assert ada.get("/api/v1/openapi.json").json()["servers"] == [{"url": "/api"}]
    request_id = bought()
    assert client.post(f"/inbox/api/v1/requests/{request_id}/reject").status_code == 200
    assert code_of(client.get("/inbox/api/v1/nothing")) == (404, "not_found")
