"""A program on another machine: its gate waits on a sayso server, a person decides there, and the call runs here.

Real connections, the real server, and the program's own face; what the server refuses is in `test_http_attacks`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import Tool, config, errors, terminal
from sayso.cli.serve import listen, place_of
from sayso.gates import dialog
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.model.run import RunState
from sayso.reviews import Review
from sayso.stores import workers
from sayso.stores.base import Filter, Store
from sayso.stores.filter import RunFilter
from sayso.stores.http import HttpStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import ScriptedModel, frozen_clock, sample_call
from tests.support.evidence import as_somebody_with_the_file
from tests.support.running import agent_of, ids
from tests.support.serving import Serving, new_token, reserved_port, serving

PATIENCE = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as one:
        yield one


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Store]:
    """The store on the server."""
    store = SqliteStore(tmp_path / "server.db")
    yield store
    store.close()


@pytest.fixture
def here(server: Serving, there: Store) -> Iterator[HttpStore]:
    """The same store, as a program with a token has it; it is the program's default one."""
    sayso.configure(store=server.of(there), token=new_token(there, name="support-bot"))
    store = config.default_store()
    assert isinstance(store, HttpStore)
    yield store
    store.close()


def person(store: Store) -> Review:
    return Review(store, reviewer="ada", channel="web")


def waiting(store: Store) -> Request:
    """Return the one request that waits, as soon as it does."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = store.list(Filter(states=frozenset({State.PENDING}))).requests
        if found:
            return found[0]
        time.sleep(0.005)
    raise AssertionError("nothing waits")


def decided_soon(store: Store, act: str) -> threading.Thread:
    """Let a person decide what will wait, in a thread."""
    thread = threading.Thread(target=lambda: getattr(person(store), act)(waiting(store).id))
    thread.start()
    return thread


# -- the same gate, elsewhere ----------------------------------------------------------------------------------


def test_a_call_that_waits_elsewhere_runs_here_with_what_was_approved(here: HttpStore, there: Store) -> None:
    ran: list[tuple[int, str]] = []

    @sayso.gate(wait="raise", name="refund")
    def refund(amount: int, password: str) -> str:
        ran.append((amount, password))
        return f"refunded {amount}"

    with sayso.run("order-4721"):
        with pytest.raises(sayso.ConfirmationRequired) as held:
            refund(90, password="hunter2")
        request = there.get(held.value.confirmation_id)
        assert (request.requester.qualified, str(request.on_behalf_of)) == ("token:support-bot", "support-bot")
        assert "hunter2" not in str(request.call.arguments)
        person(there).approve(request.id, changes={"amount": 50})
        assert refund(90, password="hunter2") == "refunded 50"
    assert ran == [(50, "hunter2")]
    done = there.get(request.id)
    assert done.state is State.DONE
    assert done.execution is not None
    assert done.execution.worker == workers.current()


@pytest.fixture
def verbs(here: HttpStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the program sends from now on."""
    sent, exchange = list[str](), here._transport.exchange

    def noted(connection: Any, path: str, body: bytes) -> Any:
        sent.append(path.strip("/"))
        return exchange(connection, path, body)

    monkeypatch.setattr(here._transport, "exchange", noted)
    return sent


@pytest.mark.parametrize("is_verified", [False, True], ids=["returned", "verified"])
def test_a_result_that_makes_a_message_too_large_is_not_kept_and_the_call_is_done(
    here: HttpStore, there: Store, *, is_verified: bool
) -> None:
    value = '"' * 500_000  # within the megabyte that is kept, and twice as large in a message

    verify = (lambda: sayso.Happened(value)) if is_verified else None

    @sayso.gate(wait="raise", store=here, name="refund", key="{amount}", verify=verify)
    def refund(amount: int) -> str:
        if is_verified:
            raise TimeoutError
        return value

    with sayso.run("order-4721"):
        with pytest.raises(sayso.ConfirmationRequired) as held:
            refund(90)
        person(there).approve(held.value.confirmation_id)
        if is_verified:
            with pytest.raises(TimeoutError):
                refund(90)
        assert refund(90) == value
        with pytest.raises(errors.ValueNotKeptError, match="larger than a server takes"):
            refund(90)
    assert there.get(held.value.confirmation_id).state is State.DONE


@pytest.mark.parametrize("is_held", [False, True], ids=["allowed", "held"])
def test_a_step_whose_result_makes_a_message_too_large_ends_and_its_run_goes_on(
    here: HttpStore, there: Store, *, is_held: bool
) -> None:
    ran: list[str] = []

    def fetch() -> str:
        ran.append("fetch")
        return '"' * 700_000

    def pay(amount: int) -> str:
        ran.append("pay")
        return f"paid {amount}"

    tools = [Tool(fetch, requires_approval=is_held), Tool(pay, requires_approval=True)]
    agent = agent_of(tools, ("fetch", {}), ("pay", {"amount": 5}), store=here)
    output = agent(prompt="go").run()
    for _ in range(1 + is_held):
        (held,) = ids(output)
        person(there).approve(held)
        output = agent(parent_id=output.run_id).run()
    assert (output.status.code, ran) == ("success", ["fetch", "pay"])
    assert "paid 5" in output.output
    assert all(request.state is State.DONE for request in there.list(Filter()).requests)


def test_a_call_that_comes_back_later_costs_four_round_trips(there: Store, verbs: list[str]) -> None:
    @sayso.gate(wait="raise", name="refund")
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    with sayso.run("order-4721"):
        for _ in range(2):
            with pytest.raises(sayso.ConfirmationRequired) as held:
                refund(90)
        assert verbs == ["ask", "find"]
        assert len(there.list(Filter()).requests) == 1
        person(there).approve(held.value.confirmation_id)
        assert refund(90) == "refunded 90"
    assert verbs == ["ask", "find", "find", "start", "finish"]


def test_a_call_whose_gate_calls_hooks_is_looked_for_before_they_are_called_again(
    there: Store, verbs: list[str]
) -> None:
    prompted: list[int] = []

    @sayso.gate(wait="raise", name="refund", prompt=lambda amount: prompted.append(amount) or f"pay {amount}?")
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    with sayso.run("order-4721"):
        for _ in range(2):
            with pytest.raises(sayso.ConfirmationRequired):
                refund(90)
    assert prompted == [90]
    assert verbs == ["find", "ask", "find"]


def test_who_stands_at_the_gate_goes_on_when_it_is_decided_on_the_server(here: HttpStore, there: Store) -> None:
    @sayso.gate(wait="block", name="refund")
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    deciding = decided_soon(there, "approve")
    assert refund(1) == "refunded 1"
    deciding.join()
    deciding = decided_soon(there, "reject")
    with pytest.raises(sayso.ConfirmationRejected):
        refund(2)
    deciding.join()


async def _await_all(count: int, there: Store) -> list[str]:
    @sayso.gate(wait="block", name="refund")
    async def refund(amount: int) -> str:
        return f"refunded {amount}"

    def decide_all() -> None:
        until = time.monotonic() + PATIENCE
        while there.count(Filter(states=frozenset({State.PENDING}))) < count and time.monotonic() < until:
            time.sleep(0.005)
        for request in there.list(Filter()).requests:
            person(there).approve(request.id)

    calls = [asyncio.ensure_future(refund(n)) for n in range(count)]
    await asyncio.to_thread(decide_all)
    return list(await asyncio.gather(*calls))


def test_thirty_who_wait_cost_one_thread_and_all_go_on(here: HttpStore, there: Store) -> None:
    found = asyncio.run(_await_all(15, there))
    assert found == [f"refunded {n}" for n in range(15)]
    listeners = [one for one in threading.enumerate() if one.name == "sayso-listener"]
    assert len(listeners) <= 1


def test_a_question_is_answered_on_the_server(here: HttpStore, there: Store) -> None:
    thread = threading.Thread(target=lambda: person(there).answer(waiting(there).id, 7))
    thread.start()
    assert sayso.ask("How many?", type=int) == 7
    thread.join()


def test_a_no_on_the_server_holds_here(here: HttpStore, there: Store) -> None:
    @sayso.gate(wait="raise", name="refund")
    def refund(amount: int) -> str:
        raise AssertionError("it ran")

    with sayso.run("order-1"):
        with pytest.raises(sayso.ConfirmationRequired) as held:
            refund(90)
        person(there).reject(held.value.confirmation_id, "no")
        for _ in range(2):
            with pytest.raises(sayso.ConfirmationRejected):
                refund(90)


def clerk(ran: list[int]) -> sayso.Agent:
    def refund(order: int) -> str:
        ran.append(order)
        return "refunded"

    calls = [{"id": "c1", "name": "refund", "arguments": {"order": 7}}]
    script = ScriptedModel([{"calls": calls}, "done"])
    return sayso.Agent(name="clerk", model=script, tools=[sayso.Tool(refund, name="refund", requires_approval=True)])


def test_an_agent_that_waits_on_the_server_goes_on_with_its_run(here: HttpStore, there: Store) -> None:
    ran: list[int] = []
    paused = clerk(ran)(prompt="Refund 7.", run_id="ticket-7").run()
    assert (paused.status.reason, ran) == ("approval_required", [])
    assert [run.id for run in here.runs(RunFilter())[0]] == ["ticket-7"]
    assert list(here.ready_runs(["clerk"])) == []
    person(there).approve(waiting(there).id)
    assert list(here.ready_runs(["clerk"])) == ["ticket-7"]
    output = clerk(ran)(run_id="ticket-7").run()
    assert (output.status.code, ran) == ("success", [7])
    assert here.get_run("ticket-7").run.state is RunState.ENDED


# -- the server is away ----------------------------------------------------------------------------------------


def test_nothing_runs_while_the_server_is_away(there: Store) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise", name="refund")
    def refund(amount: int) -> None:
        ran.append(amount)

    with reserved_port() as port:
        sayso.configure(store=HttpStore(f"http://127.0.0.1:{port}", new_token(there), patience=0.2))
        with pytest.raises(errors.StoreUnavailableError, match="cannot be reached"):
            refund(1)
    assert ran == []


def test_who_waits_misses_nothing_that_is_decided_while_the_line_is_down(there: Store) -> None:
    with ExitStack() as line:
        port = line.enter_context(reserved_port())
        with serving(port) as first:
            here = HttpStore(first.of(there), new_token(there), patience=PATIENCE)
            request = here.ask(sample_call())
            woken = threading.Event()
            unwatch = here.watch(request.id, woken.set)
        woken.clear()
        person(there).approve(request.id)
        line.enter_context(serving(port, there))
        assert woken.wait(PATIENCE)
        assert here.get(request.id).state is State.APPROVED
        unwatch()
        here.close()


def test_a_verb_is_sent_again_when_the_server_comes_back(there: Store) -> None:
    answers: list[Request] = []
    with ExitStack() as line:
        port = line.enter_context(reserved_port())
        with serving(port) as first:
            here = HttpStore(first.of(there), new_token(there), patience=PATIENCE)
            request = here.ask(sample_call())
        asking = threading.Thread(target=lambda: answers.append(here.get(request.id)))
        asking.start()
        line.enter_context(serving(port, there))
        asking.join(PATIENCE)
        here.close()
    assert answers == [request]


class Loses:
    """An ASGI program that does what it is asked, and then breaks the connection instead of answering, once."""

    def __init__(self, app: object, ending: str) -> None:
        self.app, self.ending, self.lost = app, ending, 0

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        async def sent(message) -> None:  # type: ignore[no-untyped-def]
            if self.lost == 0 and scope["path"].endswith(self.ending):
                self.lost += 1
                await send({**message, "headers": [(b"content-length", b"1000000")]})
                raise ConnectionResetError("lost")
            await send(message)

        await self.app(scope, receive, sent)


class Doubles(Loses):
    """An ASGI program that hears a message twice, and answers to the second alone."""

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        async def unheard(_) -> None: ...  # type: ignore[no-untyped-def]

        async def said():  # type: ignore[no-untyped-def]
            return parts.pop(0) if parts else await receive()

        if self.lost == 0 and scope["path"].endswith(self.ending):
            self.lost += 1
            body = [await receive()]
            while body[-1].get("more_body"):
                body.append(await receive())
            for answer in (unheard, send):
                parts = [*body]
                await self.app({**scope, "state": {}}, said, answer)
        else:
            await self.app(scope, receive, send)


@pytest.mark.parametrize("fault", [Loses, Doubles])
@pytest.mark.parametrize("ending", ["/ask", "/start", "/finish"])
def test_a_lost_answer_starts_nothing_twice_and_loses_no_outcome(
    server: Serving, there: Store, ending: str, fault: type[Loses], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []
    with caplog.at_level("CRITICAL"):
        here = HttpStore(server.of(there), new_token(there))
        server.app = losing = fault(server.app, ending)
        sayso.configure(store=here)

        @sayso.gate(wait="raise", name="refund")
        def refund(amount: int) -> None:
            ran.append(amount)

        with sayso.run("order-1"):
            with pytest.raises(sayso.ConfirmationRequired) as held:
                refund(90)
            person(there).approve(held.value.confirmation_id)
            refund(90)
        here.close()
    assert losing.lost == 1
    assert ran == [90]
    assert there.get(held.value.confirmation_id).state is State.DONE
    assert there.count(Filter()) == 1


def test_a_row_that_was_altered_on_the_server_starts_nothing(here: HttpStore, there: Store, tmp_path: Path) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise", name="refund", idempotent=False)
    def refund(amount: int) -> None:
        ran.append(amount)

    with sayso.run("order-4721"):
        with pytest.raises(sayso.ConfirmationRequired) as held:
            refund(90)
        request = person(there).approve(held.value.confirmation_id)
        here.start(request.id, "its token")
        here.finish(request.id, "its token", Outcome("unknown"))
        with as_somebody_with_the_file(tmp_path / "server.db") as connection:
            connection.execute("UPDATE request SET asked = json_set(asked, '$.idempotent', json('true'))")
        with pytest.raises(errors.StoreError, match="does not match the journal"):
            refund(90)
    with pytest.raises(errors.AlteredRequestError, match="does not match the journal"):
        here.start(request.id, "another token")
    assert ran == []


# -- what only this machine can know ---------------------------------------------------------------------------


def test_a_call_of_another_machine_is_not_given_up_by_the_server(here: HttpStore, there: Store) -> None:
    request = here.ask(sample_call())
    person(there).approve(request.id)
    mine = workers.current().split("/")
    elsewhere = "/".join(["another-host", *mine[1:4], "999999", *mine[5:]])
    here.start(request.id, "t", by=elsewhere)
    assert there.sweep() == 0
    assert here.settle(request.id).state is State.RUNNING
    assert person(there).get(request.id).state is State.RUNNING


def test_a_dead_call_is_given_up_by_who_is_on_its_machine(here: HttpStore, there: Store) -> None:
    request = here.ask(sample_call())
    person(there).approve(request.id)
    here.start(request.id, "t", by="far/boot/space/1/1/m")
    assert here.settle(request.id, gone="near/boot/space/1/1/m").state is State.RUNNING
    assert here.settle(request.id, gone="far/boot/space/1/1/m").state is State.UNKNOWN
    with pytest.raises(errors.OutcomeUnknownError):
        here.start(request.id, "u")


# -- addresses and tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["http://example.com", "http://10.0.0.1:8600", "http://127.0.0.1.example.com"])
def test_a_token_is_never_sent_in_the_clear_to_another_machine(address: str) -> None:
    with pytest.raises(errors.ConfigError, match="unencrypted"):
        HttpStore(address, "sst_x")


def test_a_token_that_stands_in_the_address_is_not_shown() -> None:
    with pytest.raises(errors.ConfigError, match="not the address of a sayso server") as refused:
        HttpStore("https://ask:sst_secret@approvals.example", "sst_x")
    assert "sst_secret" not in str(refused.value)
    assert "approvals.example" in str(refused.value)


@pytest.mark.parametrize(
    "address", ["https://", "https://user@host", "https://host?a=1", "https://host:port", "http://"]
)
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(errors.ConfigError):
        HttpStore(address, "sst_x")


@pytest.mark.parametrize("token", ["a b", "a\r\nX-Other: 1", "é", ""])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(errors.ConfigError):
        HttpStore("https://host", token)


def test_a_server_without_a_token_is_refused_and_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.ConfigError, match="sayso token new"):
        sayso.configure(store="https://host")
    monkeypatch.setenv("SAYSO_TOKEN", "sst_x")
    sayso.configure(store="https://host")


def test_a_token_goes_to_the_server_that_it_was_given_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sayso.configure(store="https://one.example", token="sst_x")
    with pytest.raises(errors.ConfigError, match="needs a token"):
        config.open_store("https://two.example")
    with pytest.raises(errors.ConfigError, match="give its address"):
        sayso.configure(token="sst_x")


def test_another_token_for_the_same_server_takes_the_place_of_the_first(server: Serving, there: Store) -> None:
    url, first = server.of(there), new_token(there, name="one")
    sayso.configure(store=url, token=first)
    old = config.default_store()
    sayso.configure(store=url, token=new_token(there, name="two"))
    request = config.default_store().ask(sample_call())
    assert request.requester.subject == "two"
    old.close()


def test_a_folder_cannot_name_the_server_that_decides(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "sayso.toml").write_text('store = "https://host"')
    monkeypatch.setenv("SAYSO_TOKEN", "sst_x")
    with pytest.raises(errors.ConfigError, match="whoever can write this file"):
        config.default_store()


def test_a_token_that_ended_opens_nothing_and_the_program_is_told(server: Serving, there: Store) -> None:
    here = HttpStore(server.of(there), "sst_" + "0" * 16 + "_" + "0" * 64)
    with pytest.raises(
        errors.StoreForbiddenError, match="does not know SAYSO_TOKEN: it was revoked, has expired or is mistyped"
    ) as no:
        here.ask(sample_call())
    assert "Authorization" not in str(no.value)
    assert "sst_" not in repr(here) + repr(vars(here)["url"])
    here.close()


def test_what_answers_there_is_no_server_is_a_fault_and_no_yes(server: Serving, there: Store) -> None:
    async def page(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"<p>approved"})

    here = HttpStore(server.url, "sst_x", patience=0.1)
    server.app = page
    with pytest.raises(errors.StoreUnavailableError, match="is not a sayso server"):
        here.get("rq_" + "0" * 32)
    here.close()


def every_read(here: HttpStore) -> dict[str, Callable[[], object]]:
    request = sample_call()
    return {
        "ask": lambda: here.ask(request),
        "get": lambda: here.get(request.id),
        "settle": lambda: here.settle(request.id),
        "start": lambda: here.start(request.id, "t"),
        "find": lambda: here.find(request.fingerprint),
        "match": lambda: here.match("rq_"),
        "list": lambda: here.list(Filter()),
        "count": lambda: here.count(Filter()),
        "journal": lambda: here.journal(request_id=request.id),
        "sweep": here.sweep,
        "get_run": lambda: here.get_run("run_a"),
        "take_run": lambda: here.take_run("run_a", "me"),
        "runs": lambda: here.runs(RunFilter()),
        "ready_runs": lambda: here.ready_runs(["agent"]),
    }


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (204, b""), (200, b"<p>approved"), (200, b"[]"), (200, b'"ok"'), (200, b"{}"), (404, b"<p>not here"),
        (200, b'{"request": 5, "etag": "x"}'), (200, b'{"request": {}, "etag": "x"}'), (200, b'{"found": {}}'),
        (200, b'{"requests": [5], "cursor": null}'), (200, b'{"runs": [{}]}'), (200, b'{"entries": [5]}'),
        (200, b'{"ids": null}'), (200, b'{"changed": "x"}'), (200, b'{"snapshot": {}}'), (200, b'{"broken"'),
    ],
)  # fmt: skip
def test_another_servers_answer_is_a_fault_of_the_store_in_every_verb(
    server: Serving, status: int, content: bytes
) -> None:
    async def other(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": content})

    here = HttpStore(server.url, "sst_x", patience=0)
    server.app = other
    for name, verb in every_read(here).items():
        with pytest.raises(errors.StoreError) as fault:
            verb()
        assert "this address is not a sayso server" in str(fault.value), name
    here.close()


def test_who_asks_in_a_run_that_another_began_is_told_to_take_another_name(here: HttpStore, there: Store) -> None:
    there.ask(sample_call("o-1"))

    @sayso.gate(wait="raise", name="refund")
    def refund(amount: int) -> int:
        return amount

    @sayso.gate(when=lambda amount: sayso.deny(f"{amount} is never paid"), name="pay")
    def pay(amount: int) -> int:
        return amount

    for call in (refund, pay):
        with (
            sayso.run("o-1"),
            pytest.raises(
                errors.RunNotFoundError, match="the run name 'o-1' cannot be used with this token"
            ) as refused,
        ):
            call(1)
        assert "choose another name" in str(refused.value)
        assert refused.value.run_id == "o-1"
    with pytest.raises(errors.RunNotFoundError, match="no run 'o-1' is in this store"):
        here.get_run("o-1")


def test_a_gate_names_the_servers_page_and_asks_nothing_that_the_token_cannot_do(
    here: HttpStore, there: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @sayso.gate(name="refund")
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    @sayso.gate(name="refund")
    async def arefund(amount: int) -> str:
        return f"refunded {amount}"

    def unwanted(*_: object) -> Request:
        raise AssertionError("a person was asked at the program's terminal")

    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: True)
    monkeypatch.setattr(terminal, "converse", unwanted)
    for call in (lambda: refund(1), lambda: asyncio.run(arefund(2))):
        deciding = decided_soon(there, "approve")
        assert call().startswith("refunded")
        deciding.join()
    said = capsys.readouterr().err
    for request in there.list(Filter()).requests:
        assert f"decide at {here.url}/r/{request.id}\n" in said
    assert "sayso approve" not in said
    assert "--store" not in said


def test_a_redirect_is_not_followed(server: Serving) -> None:
    asked: list[str] = []

    async def elsewhere(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        asked.append(scope["path"])
        headers = [(b"location", f"{server.url}/elsewhere".encode())]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    here = HttpStore(server.url, "sst_x", patience=0.1)
    server.app = elsewhere
    with pytest.raises(errors.StoreError):
        here.get("rq_" + "0" * 32)
    assert asked == ["/api/v1/program/get"]
    here.close()


def test_deciding_through_a_programs_store_is_refused_before_anything_is_sent(here: HttpStore, there: Store) -> None:
    request = here.ask(sample_call())
    verbs = (
        lambda: Review(here, reviewer="eve").approve(request.id),
        lambda: Review(here, reviewer="eve").reject(request.id),
        lambda: Review(here, reviewer="eve").claim(request.id),
        lambda: Review(here, reviewer="eve").resolve(request.id, happened=True, force=True),
        here.journal,
        here.row_digests,
        lambda: here.records("token"),
    )
    for verb in verbs:
        with pytest.raises(errors.StoreForbiddenError, match="this store is a sayso server"):
            verb()
    assert there.get(request.id) == request


def test_a_forked_child_shares_no_connection_with_its_parent(here: HttpStore) -> None:
    request = here.ask(sample_call())
    idle = set(map(id, here._transport._idle))
    assert idle
    here.after_fork()
    assert here._transport._idle == []
    assert here.get(request.id) == request


def test_a_program_whose_clock_is_ahead_asks_the_server_calmly(
    here: HttpStore, there: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    asked = here.ask

    def ask_and_run_ahead(request: Request) -> Request:
        found = asked(request)
        clock.tick("25h")
        return found

    def settle(request_id: str) -> Request:
        looks.append(request_id)  # the server says that it still waits
        return there.get(request_id)

    @sayso.gate(wait="block", name="refund", timeout="0.3s")
    def refund(amount: int) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr(here, "ask", ask_and_run_ahead)
    monkeypatch.setattr(here, "settle", settle)
    with frozen_clock() as clock, pytest.raises(sayso.ConfirmationRequired):
        refund(1)
    assert len(looks) < 12


def test_a_store_that_is_closed_leaves_no_thread_behind(here: HttpStore) -> None:
    request = here.ask(sample_call())
    unwatch = here.watch(request.id, lambda: None)
    thread = next(one for one in threading.enumerate() if one.name == "sayso-listener" and one.is_alive())
    unwatch()
    here.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_what_sayso_serve_listens_with_answers_without_a_pause() -> None:
    with listen(place_of("127.0.0.1", 0, None)) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_outcome_with_half_a_character_is_recorded(here: HttpStore, there: Store) -> None:
    request = here.ask(sample_call())
    person(there).approve(request.id)
    here.start(request.id, "t")
    failed = here.finish(request.id, "t", Outcome("failed", error="no file \udcff"))
    assert failed.execution is not None
    assert failed.execution.error == "no file \\udcff"


def test_memory_behind_the_server_serves_as_well(server: Serving) -> None:
    behind = MemoryStore()
    here = HttpStore(server.of(behind), new_token(behind))
    request = here.ask(sample_call())
    assert behind.get(request.id) == request
    here.close()


# -- a call that is no function -------------------------------------------------------------------------------------


def foreign(key: str = "call_1", run: str = "thread-1", **options: Any) -> sayso.Held:
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}}}
    arguments = {"order_id": "A-4721", "amount": 320.0}
    return sayso.hold("shop/refund", arguments, schema=schema, run=run, key=key, **options)


@pytest.mark.usefixtures("here")
def test_ten_who_hold_one_key_over_a_server_start_it_once_and_have_one_result(there: Store) -> None:
    first, started, results = foreign(), list[Any](), list[Any]()
    person(there).approve(str(first.id), changes={"amount": 160.0})

    def once() -> None:
        results.append(foreign().once(lambda arguments: started.append(arguments) or f"paid {arguments['amount']}"))

    threads = [threading.Thread(target=once) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert started == [{"order_id": "A-4721", "amount": 160.0}]
    assert results == ["paid 160.0"] * 10


@pytest.mark.usefixtures("here")
def test_a_call_is_done_on_a_server_although_its_result_has_a_type_with_a_long_name(there: Store) -> None:
    call, kind = foreign(), type(f"Page[{'list[dict[str, Any]], ' * 30}]", (), {})  # as pydantic names its generics
    person(there).approve(str(call.id))
    assert isinstance(call.once(lambda _: kind()), kind)
    assert there.get(str(call.id)).state is State.DONE
    with pytest.raises(errors.ValueNotKeptError, match="no canonical form"):
        foreign().result()


@pytest.mark.usefixtures("here")
def test_a_key_with_other_arguments_is_refused_by_a_server(there: Store) -> None:
    call = foreign()
    with pytest.raises(errors.KeyReusedError, match=str(call.id)):
        sayso.hold("shop/refund", {"order_id": "A-4722"}, schema={"type": "object"}, run="thread-1", key="call_1")
    assert there.count(Filter()) == 1


@pytest.mark.parametrize(
    ("schema", "given", "changes"),
    [
        (None, {"path": "/tmp/notes", "lines": [1, {"text": None}]}, {"path": "/tmp/other"}),
        ({"properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}, {"path": "/tmp/notes"}, {"n": 3}),
        ({"properties": {"path": {"type": "string"}}}, {"path": "/tmp/notes", "more": 1.5}, {"path": "/tmp/other"}),
    ],
    ids=["no schema", "an optional argument left out", "an argument that the schema does not name"],
)
@pytest.mark.usefixtures("here")
def test_a_foreign_tool_has_the_arguments_over_a_server_that_its_schema_allows(
    there: Store, schema: dict[str, Any] | None, given: dict[str, Any], changes: dict[str, Any]
) -> None:
    shape = None if schema is None else {"type": "object", "required": ["path"], **schema}
    for key, changed in ("call_1", {}), ("call_2", changes):
        call = sayso.hold("fs/read", given, schema=shape, run="thread-1", key=key)
        person(there).approve(str(call.id), changes=changed or None)
        assert call.once(dict) == {**given, **changed}


@pytest.mark.usefixtures("here")
def test_an_effect_starts_once_for_two_runs_on_a_server(there: Store) -> None:
    first, second = foreign(effect="refund:{order_id}"), foreign("call_9", "thread-2", effect="refund:{order_id}")
    for call in (first, second):
        person(there).approve(str(call.id))
    assert first.once(lambda _: "paid") == "paid"
    with pytest.raises(errors.EffectTakenError, match=str(first.id)):
        second.once(lambda _: pytest.fail("the effect was there already"))


def test_the_words_of_another_server_are_passed_on_harmlessly_and_in_short(server: Serving) -> None:
    async def other(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        await send({"type": "http.response.start", "status": 421, "headers": []})
        body = b"this server is not known by that name\x1b[31m\n" + b"x" * 1_000
        await send({"type": "http.response.body", "body": body})

    here = HttpStore(server.url, "sst_x", patience=0)
    server.app = other
    with pytest.raises(errors.StoreError, match="not known by that name") as fault:
        here.get("rq_1")
    assert "base_url" in str(fault.value)
    assert "\x1b" not in str(fault.value)
    assert len(str(fault.value)) < 500
    here.close()
