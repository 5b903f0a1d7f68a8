"""The Agent Approval Protocol: its official client and gate against a server of ours, and raw requests beside them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
import uvicorn

from sayso import audit, errors
from sayso import clock as sayso_clock
from sayso.channels.outbox import delivering
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, State
from sayso.model.reviewer import Identity
from sayso.reviews import Review
from sayso.runs.state import in_loop
from sayso.server.api import aap
from sayso.server.api.aap import Webhooks
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Filter, Store
from sayso.testing.doubles import Clock
from tests.support.browsing import Browser
from tests.support.ports import free_port
from tests.support.serving import Serving, new_token, serving

protocol = pytest.importorskip("agentapprovalprotocol", reason="the official client is in the extra `test`")
httpx = pytest.importorskip("httpx", reason="the official client brings it")

BODY = {"tool": "refund", "arguments": {"order": "4721", "amount": 90.5}, "timeout": "10m"}
CALL = protocol.Call(key="run-1:call-1", tool="refund", arguments={"order": "4721", "amount": 90.5}, server="shop")


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as one:
        yield one


_clients: list[Any] = []


class Program:
    """A program with a token: raw requests, and the official client."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = f"{url}/api/aap", token
        self.client = protocol.Client(self.url, token, retry_budget=1.0)
        _clients.append(self.client)
        self.gate = protocol.Gate(self.client, wait_limit=20.0)

    def send(self, method: str, path: str, body: Any = None, key: str | None = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.token}", **({"idempotency-key": key} if key else {})}
        if body is None:
            return httpx2.request(method, self.url + path, headers=headers)
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        headers["content-type"] = "application/json"
        return httpx2.request(method, self.url + path, headers=headers, content=text)

    def submit(self, body: Any = None, key: str = "k1") -> dict[str, Any]:
        response = self.send("POST", "/v1/requests", BODY if body is None else body, key)
        assert response.status_code in {200, 201}, response.text
        return response.json()


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    for one in _clients:
        one.close()
    _clients.clear()


@pytest.fixture
def program(server: Serving, store: Store) -> Program:
    return Program(server.of(store), new_token(store, name="bot"))


def ours(aap_id: str) -> str:
    return f"rq_{UUID(aap_id).hex}"


@contextmanager
def deciding(store: Store, decide: Callable[[Review, str], object], number: int = 1) -> Iterator[None]:
    """A person who decides what comes, while the block runs."""
    review, asked = Review(store, reviewer="ada"), threading.Event()
    unwatch = store.watch_all(asked.set)

    def work() -> None:
        done = set[str]()
        while len(done) < number:
            asked.clear()
            for one in review.list(state="pending"):
                decide(review, one.id)
                done.add(one.id)
            if len(done) < number:
                asked.wait(10)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)
        unwatch()


def code_of(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_no_submission_is_read_in_the_event_loop(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, seen, shown = program.submit(), list[bool](), aap._shown
    monkeypatch.setattr(aap, "_shown", lambda *given: seen.append(in_loop()) or shown(*given))
    assert program.send("GET", f"/v1/requests/{asked['id']}").json() == asked
    assert seen == [False]


# -- with the official client and its gate -------------------------------------------------------------------------


def test_the_gate_runs_an_approved_call_once_and_reports_its_end(program: Program, store: Store) -> None:
    with deciding(store, lambda review, one: review.approve(one)), program.gate.guard(CALL) as verdict:
        assert verdict
        assert store.get(ours(verdict.request_id)).state is State.RUNNING
    request = store.get(ours(verdict.request_id))
    assert request.state is State.DONE
    assert str(request.requester) == "bot (token)" or request.requester.subject == "bot"
    again = program.gate.check(CALL)
    assert not again
    assert again.status == "consumed"
    assert audit.verify(store).broken == ()


def test_the_gate_tells_the_model_what_a_reviewer_wrote(program: Program, store: Store) -> None:
    with deciding(store, lambda review, one: review.reject(one, "not this customer")):
        verdict = program.gate.check(CALL)
    assert (bool(verdict), verdict.status) == (False, "denied")
    assert "not this customer" in verdict.reason


def test_what_was_sent_back_with_feedback_is_a_no_with_a_note(program: Program, store: Store) -> None:
    with deciding(store, lambda review, one: review.feedback(one, "at most 50")):
        assert "at most 50" in program.gate.check(CALL).reason


def test_a_failure_is_recorded(program: Program, store: Store) -> None:
    with (
        deciding(store, lambda review, one: review.approve(one)), pytest.raises(OSError, match="no route"),
        program.gate.guard(CALL) as verdict,
    ):  # fmt: skip
        raise OSError("no route")
    assert store.get(ours(verdict.request_id)).state is State.FAILED


def test_a_gate_that_pauses_finds_its_decision_later(program: Program, store: Store) -> None:
    gate = protocol.Gate(program.client, mode="async")
    pending = gate.check(CALL)
    assert isinstance(pending, protocol.Pending)
    Review(store, reviewer="ada").approve(ours(pending.request_id))
    assert gate.check(CALL)
    assert not gate.check(CALL)


def test_the_async_gate_does_the_same(program: Program, store: Store) -> None:
    async def run() -> Any:
        async with httpx.AsyncClient() as http:
            client = protocol.AsyncClient(program.url, program.token, http=http)
            async with protocol.AsyncGate(client, wait_limit=20.0).guard(CALL) as verdict:
                return verdict

    with deciding(store, lambda review, one: review.approve(one)):
        verdict = asyncio.run(run())
    assert store.get(ours(verdict.request_id)).state is State.DONE


def test_a_gate_that_waited_long_enough_cancels_its_request(program: Program, store: Store) -> None:
    verdict = protocol.Gate(program.client, wait_limit=0.0).check(CALL)
    assert verdict.status == "expired"
    assert store.get(ours(verdict.request_id)).state is State.CANCELLED


def test_fifty_calls_wait_at_once_and_all_stand_in_the_inbox(program: Program, store: Store, server: Serving) -> None:
    server.app.state.in_flight.threads.total_tokens = 2  # whoever kept one while it waits would leave none for the rest

    async def run() -> list[Any]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as http:
            gate = protocol.AsyncGate(protocol.AsyncClient(program.url, program.token, http=http), wait_limit=30.0)
            calls = [protocol.Call(key=f"c{n}", tool="refund", arguments={"n": n}) for n in range(50)]
            checks = [asyncio.ensure_future(gate.check(call)) for call in calls]
            waiting, changed, loop = (
                Filter(states=frozenset({State.PENDING})),
                asyncio.Event(),
                asyncio.get_running_loop(),
            )
            unwatch = store.watch_all(lambda: loop.call_soon_threadsafe(changed.set))
            async with asyncio.timeout(60):
                while store.count(waiting) < 50:
                    await changed.wait()
                    changed.clear()
            unwatch()
            for one in store.list(waiting, limit=50).requests:
                await asyncio.to_thread(Review(store, reviewer="ada").approve, one.id)
            return await asyncio.gather(*checks)

    assert all(asyncio.run(run()))


# -- submissions ---------------------------------------------------------------------------------------------------


def test_a_submission_comes_back_as_it_was_and_people_see_it_masked(program: Program, store: Store) -> None:
    text = (
        '{"timeout":"90s", "tool":"net.post","arguments":{"password":"hunter2","n":1.50,"big":12345678901234567890123,'
        '"text":"h\\u00e9 \\u202e","deep":[{"api_key":"k-123"}],"$x":null},"context":{"token":"t-1","call_id":"a:b"},'
        '"server":"web","agent_reasoning":"because hunter2"}'
    )
    found = program.send("POST", "/v1/requests", text, "k1")
    assert found.status_code == 201
    assert found.text.startswith(text[:-1])
    assert program.send("GET", f"/v1/requests/{found.json()['id']}").text == found.text
    request = store.get(ours(found.json()["id"]))
    assert request.call.arguments["password"] == request.call.arguments["deep"][0]["api_key"] == "***"
    assert request.context == {"token": "***", "call_id": "a:b", "server": "web"}
    assert "hunter2" not in str(request.prompt)
    assert request.key == "k1"


def test_the_same_key_finds_the_same_request(program: Program) -> None:
    first = program.submit()
    spaced = json.dumps(dict(reversed(BODY.items())), indent=1)
    assert program.submit(spaced)["id"] == first["id"]
    assert program.submit(key="k2")["id"] != first["id"]


def test_a_submission_that_was_swapped_under_its_key_is_refused(program: Program, store: Store) -> None:
    program.submit()
    swaps: list[dict[str, Any]] = [
        {"tool": "delete"}, {"arguments": {"order": "4721", "amount": 91.5}}, {"timeout": "11m"}, {"server": "other"},
        {"agent_reasoning": "trust me"}, {"context": {"run": "2"}}, {"arguments": {"order": 4721, "amount": 90.5}},
    ]  # fmt: skip
    for swap in swaps:
        assert code_of(program.send("POST", "/v1/requests", BODY | swap, "k1")) == (409, "idempotency_conflict"), swap
    assert store.count(Filter()) == 1


def test_ten_submissions_at_once_are_one_request(program: Program, store: Store) -> None:
    with ThreadPoolExecutor(10) as pool:
        found = {one["id"] for one in pool.map(lambda _: program.submit(), range(10))}
    assert len(found) == store.count(Filter()) == 1


def test_another_programs_request_is_not_there(program: Program, server: Serving, store: Store) -> None:
    other = Program(server.url, new_token(store, name="other"))
    mine = program.submit()["id"]
    Review(store, reviewer="ada").approve(ours(mine))
    for method, path, body in [
        ("GET", "", None), ("DELETE", "", None), ("POST", "/consume", None), ("POST", "/outcome", {"status": "failed"}),
    ]:  # fmt: skip
        assert other.send(method, f"/v1/requests/{mine}{path}", body, "c").status_code == 404
    assert other.submit()["id"] != mine
    with pytest.raises(protocol.NotFound):
        other.client.get(mine)


def test_another_program_cannot_begin_the_run_of_a_call(program: Program, server: Serving, store: Store) -> None:
    run = store.get(ours(program.submit()["id"])).run_id
    note = {"run_id": run, "event": "denied", "detail": {}}
    url, stranger = f"{server.url}/api/v1/program/note", new_token(store, name="other")
    found = httpx2.post(url, headers={"authorization": f"Bearer {stranger}"}, json=note)
    assert found.status_code == 404


def test_what_is_no_submission_is_refused_in_the_protocols_words(program: Program, store: Store) -> None:
    wrong: list[tuple[Any, int]] = [
        ({}, 422), (BODY | {"more": 1}, 422), (BODY | {"server": None}, 422), (BODY | {"timeout": "soon"}, 422),
        (BODY | {"timeout": "31d"}, 422), (BODY | {"timeout": "0s"}, 422), (BODY | {"tool": ""}, 422),
        ([], 422), ("{", 400), ('{"tool":"a","tool":"b"}', 400), (b"\xff", 400), (BODY | {"tool": "a\u202eb"}, 422),
        ('{"tool":"a","timeout":"9s","arguments":{"x":0.12345678901234567890123}}', 422),
        ('{"tool":"a","timeout":"9s","arguments":{"x":1e999}}', 400),
        ('{"tool":"a","timeout":"9s","arguments":{"x":1e-99999999999999999999}}', 422),
    ]  # fmt: skip
    for body, status in wrong:
        found = program.send("POST", "/v1/requests", body, "k")
        assert (found.status_code, set(found.json()["error"])) == (status, {"type", "code", "message", "request_id"})
    assert code_of(program.send("POST", "/v1/requests", BODY)) == (400, "missing_idempotency_key")
    assert code_of(program.send("POST", "/v1/requests", BODY, "k" * 201)) == (400, "invalid_idempotency_key")
    assert store.count(Filter()) == 0
    assert list(store.records("submission")) == []


def test_only_a_program_may(program: Program, server: Serving, store: Store) -> None:
    for kind in ("review", "admin"):
        person = Program(server.url, new_token(store, kind, "ada"))  # pyright: ignore[reportArgumentType]
        assert person.send("POST", "/v1/requests", BODY, "k").status_code == 403
    assert code_of(Program(server.url, "nonsense").send("POST", "/v1/requests", BODY, "k")) == (401, "not_signed_in")
    assert program.send("POST", "/v1/instances", {}, "k").status_code == 403
    with pytest.raises(protocol.CredentialRefused):
        Program(server.url, "nonsense").client.create(BODY, "k")


def test_ids_that_are_none_are_not_there(program: Program, store: Store) -> None:
    from sayso.testing import sample_call

    elsewhere = store.ask(sample_call()).id.removeprefix("rq_")
    for one in ("x", str(UUID(int=1)), str(UUID(elsewhere))):
        assert program.send("GET", f"/v1/requests/{one}").status_code == 404


def test_a_purge_removes_the_submission(program: Program, store: Store) -> None:
    found = program.submit()
    review = Review(store, reviewer="ada")
    review.reject(ours(found["id"]), "no")
    store.purge(
        ours(found["id"]), Identity("local", "ada"), before=sayso_clock.now() + timedelta(days=1), channel="test"
    )
    assert program.send("GET", f"/v1/requests/{found['id']}").status_code == 404
    assert list(store.records("submission")) == []


def test_a_submission_that_was_altered_in_the_store_is_found_before_a_start(program: Program, store: Store) -> None:
    found = program.submit()
    record = store.record("submission", ours(found["id"]))
    assert record is not None
    altered = record.body["text"].replace("90.5", "99.5")
    store.keep(type(record)(record.kind, record.key, {"text": altered}))
    Review(store, reviewer="ada").approve(ours(found["id"]))
    assert program.send("POST", f"/v1/requests/{found['id']}/consume", key="c").status_code == 500
    assert store.get(ours(found["id"])).state is State.APPROVED


# -- decisions -----------------------------------------------------------------------------------------------------


def test_nobody_can_change_the_arguments(program: Program, store: Store, ada: Browser) -> None:
    request_id, review = ours(program.submit()["id"]), Review(store, reviewer="ada")
    with pytest.raises(errors.InvalidChangesError, match="cannot be changed"):
        review.approve(request_id, changes={"amount": 50})
    page = ada.get(f"/r/{request_id}").text
    assert "Its arguments cannot be changed" in page
    assert "See what changes" not in page
    assert store.get(request_id).state is State.PENDING
    review.approve(request_id, changes={"amount": 90.5})  # which changes nothing
    assert store.get(request_id).edited is None


def test_no_store_takes_changed_arguments(program: Program, store: Store) -> None:
    request = store.get(ours(program.submit()["id"]))
    edited = replace(request.call, form=request.call.form.replace("90.5", "50"), digest="0" * 64)
    decision = Decision("approve", Identity("local", "ada"), sayso_clock.now(), "python", None, "", edited=True)
    with pytest.raises(errors.InvalidChangesError, match="cannot be changed"):
        store.decide(request.id, decision, roles=(), seen=None, edited=edited)
    assert store.get(request.id) == request


def test_a_poll_ends_with_the_decision(program: Program, store: Store) -> None:
    found = program.client.create(BODY, "k1")
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(program.client.get, found.id, wait=25)
        Review(store, reviewer="ada").approve(ours(found.id), comment="fine")
        assert (polled.result().status, polled.result().decision.note) == ("approved", "fine")
    assert program.client.get(found.id).status == "approved"


def test_a_deadline_stays_when_a_reviewer_gives_more_time(program: Program, store: Store) -> None:
    found = program.client.create(BODY, "k1")
    Review(store, reviewer="ada").extend(ours(found.id), "2h")
    assert program.client.get(found.id).deadline_at == found.deadline_at


def test_what_nobody_decides_expires(program: Program, store: Store, clock: Clock) -> None:
    found = program.client.create(BODY, "k1")
    clock.tick(minutes=11)
    assert program.client.get(found.id).status == "expired"
    with pytest.raises(protocol.ConflictError, match="already_terminal"):
        program.client.cancel(found.id)


def test_a_cancelled_request_is_decided_by_nobody(program: Program, store: Store) -> None:
    found = program.client.create(BODY, "k1")
    assert program.client.cancel(found.id).status == program.client.cancel(found.id).status == "cancelled"
    with pytest.raises(errors.DecisionRefusedError):
        Review(store, reviewer="ada").approve(ours(found.id))


# -- consume and outcome -------------------------------------------------------------------------------------------


def approved(program: Program, store: Store) -> str:
    found = program.submit()["id"]
    Review(store, reviewer="ada").approve(ours(found))
    return found


def test_of_ten_consumes_at_once_one_gets_the_call(program: Program, store: Store) -> None:
    found = approved(program, store)
    with ThreadPoolExecutor(10) as pool:
        answers = list(
            pool.map(lambda n: program.send("POST", f"/v1/requests/{found}/consume", key=f"c{n}"), range(10))
        )
    assert sorted(one.status_code for one in answers) == [200, *[409] * 9]
    assert {code_of(one)[1] for one in answers if one.status_code == 409} == {"already_consumed"}
    execution = store.get(ours(found)).execution
    assert execution is not None
    assert execution.attempt == 1


def test_a_consume_that_is_sent_again_gets_the_same_answer(program: Program, store: Store) -> None:
    found = approved(program, store)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: program.send("POST", f"/v1/requests/{found}/consume", key="c"), range(10)))
    assert {one.text for one in answers} == {answers[0].text}
    assert answers[0].json()["consumption"]["consumed_at"]
    execution = store.get(ours(found)).execution
    assert execution is not None
    assert execution.attempt == 1


def test_a_start_that_its_program_gave_back_without_a_persons_answer_is_not_consumed_again(
    program: Program, store: Store
) -> None:
    found = approved(program, store)
    assert program.send("POST", f"/v1/requests/{found}/consume", key="c1").status_code == 200
    execution = store.get(ours(found)).execution
    assert execution is not None
    store.finish(ours(found), execution.token, Outcome("suspended"))  # by the API for programs of sayso
    assert code_of(program.send("POST", f"/v1/requests/{found}/consume", key="c2")) == (409, "already_consumed")
    assert store.get(ours(found)).state is State.APPROVED


def test_what_is_not_approved_is_not_consumed(program: Program, store: Store) -> None:
    found = program.submit()["id"]
    assert code_of(program.send("POST", f"/v1/requests/{found}/consume", key="c")) == (409, "not_approved")
    assert code_of(program.send("POST", f"/v1/requests/{found}/consume")) == (400, "missing_idempotency_key")
    assert code_of(program.send("POST", f"/v1/requests/{found}/outcome", {"status": "failed"})) == (409, "not_consumed")
    Review(store, reviewer="ada").reject(ours(found), "no")
    assert code_of(program.send("POST", f"/v1/requests/{found}/consume", key="c")) == (409, "not_approved")


def test_an_approval_that_has_ended_is_not_consumed(program: Program, store: Store, clock: Clock) -> None:
    found = approved(program, store)
    clock.tick(minutes=11)
    assert program.send("GET", f"/v1/requests/{found}").json()["status"] == "approved"
    for _ in range(2):
        answer = program.send("POST", f"/v1/requests/{found}/consume", key="c")
        assert code_of(answer) == (409, "approval_expired")


def test_an_outcome_is_recorded_once(program: Program, store: Store) -> None:
    found = approved(program, store)
    program.client.consume(found, "c")
    first = program.client.report_outcome(found, "succeeded", "r-77")
    assert (first.consumption.outcome.status, first.consumption.outcome.note) == ("succeeded", "r-77")
    assert program.client.report_outcome(found, "succeeded", "r-77") == first
    for other in (("failed", None), ("succeeded", None), ("succeeded", "r-78")):
        with pytest.raises(protocol.ConflictError, match="outcome_conflict"):
            program.client.report_outcome(found, *other)
    assert store.get(ours(found)).state is State.DONE


def test_a_secret_in_a_note_is_masked_for_people(program: Program, store: Store) -> None:
    found = program.submit(BODY | {"arguments": {"password": "hunter2secret"}})["id"]
    Review(store, reviewer="ada").approve(ours(found))
    program.client.consume(found, "c")
    said = program.client.report_outcome(found, "failed", "login with hunter2secret refused")
    assert said.consumption.outcome.note == "login with hunter2secret refused"
    execution = store.get(ours(found)).execution
    assert execution is not None
    assert "hunter2secret" not in str(execution.error)


def test_a_person_who_said_how_it_ended_is_not_contradicted(program: Program, store: Store) -> None:
    found = approved(program, store)
    program.client.consume(found, "c")
    Review(store, reviewer="ada").resolve(ours(found), happened=False, force=True)
    with pytest.raises(protocol.ConflictError, match="outcome_conflict"):
        program.client.report_outcome(found, "succeeded")
    assert store.get(ours(found)).state is State.FAILED


# -- instances -----------------------------------------------------------------------------------------------------


@pytest.fixture
def operator(server: Serving, store: Store) -> Program:
    return Program(server.of(store), new_token(store, "admin", "root"))


class Receiver:
    """The official receiver, served; `woken` gets the ids of requests for which it was told to go on."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.called, self.answers = threading.Event(), 0
        self.receiver = protocol.Receiver(resumers={"test": self._resume})
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/aap/events"
        config = uvicorn.Config(self.receiver.asgi(), log_config=None, lifespan="off", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()

    def _resume(self, _: Any, request: Any) -> None:
        self.woken.append(request.id)
        self.called.set()

    def provision(self, operator: Program, **options: Any) -> Any:
        made = asyncio.run(
            self.receiver.provision(
                provider_url=operator.url, provisioner_token=operator.token, url=self.url, **options
            )
        )
        self.receiver.client = None  # the loop that it was made in has ended
        return made

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.end()


def test_an_instance_is_told_of_a_decision(
    operator: Program, receiver: Receiver, server: Serving, store: Store
) -> None:
    made = receiver.provision(operator, instance_name="support")
    assert made.instance_name == "support"
    http = httpx.AsyncClient(headers={"connection": "close"})
    receiver.receiver.client = protocol.AsyncClient(operator.url, made.token, http=http)
    program = Program(server.url, made.token)
    found = program.submit(BODY | {"context": {"resume": {"framework": "test"}}})
    with delivering(store, also=[Webhooks(store)]):
        Review(store, reviewer="ada").approve(ours(found["id"]))
        assert receiver.called.wait(30)
    assert receiver.woken == [found["id"]]


def test_a_webhook_is_sent_once_for_each_decision(operator: Program, receiver: Receiver, store: Store) -> None:
    made = receiver.provision(operator)
    program = Program(operator.url.removesuffix("/api/aap"), made.token)
    found = program.submit()["id"]
    with delivering(store, also=[Webhooks(store)], runs=False) as [*_, deliverer]:
        sent: list[str] = []
        deliverer.channel._store = store  # pyright: ignore[reportAttributeAccessIssue]
        send = deliverer.channel.send
        deliverer.channel.send = lambda said: sent.append(said.state) or send(said)  # type: ignore[method-assign]
        deliverer.deliver_due()
        Review(store, reviewer="ada").approve(ours(found))
        deliverer.deliver_due()
        program.client.consume(found, "c")
        deliverer.deliver_due()
        program.client.report_outcome(found, "succeeded")
        deliverer.deliver_due()
    assert deliverer.failed == 0
    assert sent.count("approved") == 1


def test_a_receiver_that_is_not_there_gets_no_instance(operator: Program, receiver: Receiver, store: Store) -> None:
    with pytest.raises(protocol.WebhookVerificationFailed):
        asyncio.run(
            protocol.Receiver(resumers={}).provision(
                provider_url=operator.url, provisioner_token=operator.token, url=receiver.url
            )
        )
    for url in ("http://192.0.2.1/x", "ftp://127.0.0.1/x", "https://169.254.169.254/latest"):
        delivery = {"type": "webhook", "url": url, "registration_id": "r", "signing_secret": "whsec_" + "A" * 44}
        found = operator.send("POST", "/v1/instances", {"delivery": delivery}, url)
        assert code_of(found) == (422, "webhook_verification_failed"), url
    assert list(store.records("aap_instance")) == []
    assert operator.send("POST", "/v1/instances", {"instance_name": "x"}).status_code == 400


def test_an_instance_that_is_asked_for_again_gets_a_new_token_in_place_of_the_first(operator: Program) -> None:
    first = operator.send("POST", "/v1/instances", {"instance_name": "support"}, "k")
    again = operator.send("POST", "/v1/instances", {"instance_name": "support"}, "k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["instance"] == again.json()["instance"]
    url = operator.url.removesuffix("/api/aap")
    old, new = (Program(url, one.json()["credential"]["token"]) for one in (first, again))
    assert old.send("POST", "/v1/requests", BODY, "k").status_code == 401
    assert new.send("POST", "/v1/requests", BODY, "k").status_code == 201
    other = operator.send("POST", "/v1/instances", {"instance_name": "else"}, "k")
    assert code_of(other) == (409, "idempotency_conflict")


def test_no_instance_gets_the_name_of_another_program(operator: Program, store: Store) -> None:
    new_token(store, name="bot")
    for name in ("bot", "Bot", "\uff42ot"):  # which grants and budgets take for one
        found = operator.send("POST", "/v1/instances", {"instance_name": name}, f"k {name!a}")
        assert code_of(found) == (409, "instance_name_taken")
    for name in ("a\u202eb", " bob", "a\nb"):
        found = operator.send("POST", "/v1/instances", {"instance_name": name}, f"k {name!a}")
        assert code_of(found) == (422, "invalid_input")
    assert [one.person.subject for one in Tokens(store).all() if one.kind == "ask"] == ["bot"]


# -- a real server, killed -----------------------------------------------------------------------------------------


@contextmanager
def process(store: Store, port: int) -> Iterator[subprocess.Popen[str]]:
    """`sayso serve` on this port, until the block ends."""
    command = [sys.executable, "-m", "sayso", "--store", store.url, "serve", "--port", str(port), "--as", "ada"]
    one = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1)
    try:
        assert one.stdout is not None
        assert "you decide as ada" in one.stdout.readline()
        assert "http" in one.stdout.readline()
        yield one
    finally:
        one.kill()
        one.communicate()


def test_a_server_that_is_killed_between_consume_and_outcome_loses_nothing(file_store: Store) -> None:
    port = free_port()
    token, review = new_token(file_store, name="bot"), Review(file_store, reviewer="ada")
    program = Program(f"http://127.0.0.1:{port}", token)
    with process(file_store, port) as first:
        with deciding(file_store, lambda _, one: review.approve(one)):
            verdict = program.gate.check(CALL)
        assert verdict
        found = program.submit(key="second")["id"]
        review.approve(ours(found))
        consumed = program.send("POST", f"/v1/requests/{found}/consume", key="c")
        first.kill()
        first.wait()
    with process(file_store, port):
        file_store.sweep()
        assert program.client.get(verdict.request_id).consumption is not None
        assert not program.gate.check(CALL)
        assert program.send("POST", f"/v1/requests/{found}/consume", key="c").text == consumed.text
        assert code_of(program.send("POST", f"/v1/requests/{found}/consume", key="d")) == (409, "already_consumed")
        assert verdict.report("succeeded")
        assert program.client.report_outcome(found, "failed", "r").consumption.outcome.note == "r"
    assert file_store.get(ours(verdict.request_id)).state is State.DONE
    assert file_store.get(ours(found)).state is State.FAILED
    assert audit.verify(file_store).broken == ()
