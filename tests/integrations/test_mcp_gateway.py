"""The MCP gateway between a server and a client that the test scripts; the promises of docs/guides/mcp.md one by one.

`test_mcp.py` has the servers and clients of others.
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.integrations.mcp_gateway import connection
from sayso.integrations.mcp_gateway.connection import Proxy, parse
from sayso.model.lifecycle import Outcome, result_to_keep
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.integrations.mcp_peers import PATIENCE, READ, WRITE, Client, Server, text
from tests.support.threads import few_threads

PATH = {"path": "/etc/motd", "size": 3}


def bounded(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn an async test into a sync one that ends in time."""

    @functools.wraps(test)
    def plain(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 2 * PATIENCE))

    return plain


@pytest.fixture
def store() -> Store:
    sayso.configure(store="memory:")
    return sayso.config.open_store(None)


def requests(store: Store, *states: State) -> list[sayso.Request]:
    return list(store.list(Filter(states=frozenset(states or State))).requests)


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


async def pending(store: Store, count: int = 1) -> list[sayso.Request]:
    """Return the requests that wait, when there are as many."""
    await until(lambda: len(requests(store, State.PENDING)) >= count)
    return requests(store, State.PENDING)


async def approved(client: Client, store: Store) -> sayso.Request:
    """Make the call of `write`, which waits, and return its request as it was approved."""
    await client.call("write", PATH)
    [request] = requests(store)
    return sayso.Review().approve(request.id, by="ada")


@bounded
async def test_what_the_server_lists_reaches_the_client_byte_for_byte(store: Store) -> None:
    server = Server()
    client = Client(server)
    answer = await client.ask("tools/list")
    assert answer["result"]["tools"] == server.tools
    assert client.lines == [
        json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": server.tools}}, separators=(" , ", " : ")).encode()
    ]
    assert server.seen == [{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}]


@bounded
async def test_a_free_tool_is_not_held_up_while_another_waits(store: Store) -> None:
    server = Server()
    client = Client(server, wait="block")
    _, answer = await client.calling("write", PATH)
    await pending(store)
    assert text(await client.call("read", {"path": "a"})) == 'wrote {"path": "a"}'
    sayso.Review().approve(requests(store)[0].id, by="ada")
    assert text((await answer)["result"]) == 'wrote {"path": "/etc/motd", "size": 3}'
    assert [call["name"] for call in server.calls] == ["read", "write"]


@bounded
async def test_a_call_made_again_finds_its_decision_and_its_edit_and_an_equal_one_after_that_asks_anew(
    store: Store,
) -> None:
    server = Server()
    client = Client(server)
    ticket = await client.call("write", PATH)
    [request] = requests(store)
    assert text(ticket).startswith(
        f"Not run yet: a person must approve {request.id}; call again with the same arguments."
    )
    assert ticket["isError"] is True
    assert ticket["_meta"] == {"sayso/request": request.id}
    assert text(await client.call("write", PATH)) == text(ticket)
    assert server.calls == []
    sayso.Review().approve(request.id, by="ada", changes={"size": 2}, comment="smaller")
    done = text(await client.call("write", PATH))
    assert done.endswith('wrote {"path": "/etc/motd", "size": 2}')
    assert "smaller" in done
    assert "size  3 -> 2" in done
    anew = await client.call("write", PATH)
    assert text(anew).startswith("Not run yet")
    assert len(server.calls) == 1
    [second] = requests(store, State.PENDING)
    assert second.id != request.id
    assert second.context["this call"] == {"equal calls before in this run": 1}


@bounded
async def test_an_edit_is_checked_by_the_schema_of_the_tool(store: Store) -> None:
    client = Client(Server())
    await client.call("write", PATH)
    [request] = requests(store)
    with pytest.raises(errors.InvalidChangesError, match="size"):
        sayso.Review().approve(request.id, by="ada", changes={"size": "many"})
    assert requests(store)[0].state is State.PENDING


@bounded
async def test_arguments_that_do_not_fit_the_schema_may_be_corrected(store: Store) -> None:
    client = Client(Server())
    told = text(await client.call("write", {"path": "/etc/motd", "size": "many"}))
    assert "call it again only if changed" in told
    assert not requests(store)


@bounded
async def test_a_blocked_call_reports_progress_and_ends_with_the_result(store: Store) -> None:
    server = Server()
    client = Client(server)
    _, answer = await client.calling("write", PATH, progressToken="p1")
    [request] = await pending(store)
    beat = await client.notice("notifications/progress")
    assert beat["params"] == {"progressToken": "p1", "progress": 1e-06, "message": "waiting for a person"}
    sayso.Review().approve(request.id, by="ada")
    assert (await answer)["result"]["content"] == [{"type": "text", "text": 'wrote {"path": "/etc/motd", "size": 3}'}]
    assert server.calls[0]["_meta"] == {"progressToken": "p1"}


@bounded
async def test_a_call_that_blocked_for_long_gets_a_ticket_and_the_call_made_again_its_result(store: Store) -> None:
    server = Server()
    client = Client(server, patience=0.0)
    assert text(await client.call("write", PATH, progressToken=1)).startswith("Not run yet")
    sayso.Review().approve(requests(store)[0].id, by="ada")
    assert text(await client.call("write", PATH, progressToken=2)).startswith("wrote")
    assert len(requests(store)) == len(server.calls) == 1


@bounded
async def test_a_no_is_a_result_in_words_that_stop_retries_and_a_retry_asks_nobody(store: Store) -> None:
    server = Server()
    client = Client(server)
    await client.call("write", PATH)
    sayso.Review().reject(requests(store)[0].id, "not on a Sunday", by="ada")
    for _ in range(2):
        no = await client.call("write", PATH)
        assert no["isError"] is True
        assert 'ada rejected it: "not on a Sunday"' in text(no) or "not on a Sunday" in text(no)
        assert "This is final: do not repeat this call." in text(no)
        assert "Traceback" not in text(no)
    assert server.calls == []
    assert len(requests(store)) == 1


@bounded
async def test_a_call_that_is_cancelled_while_it_is_recorded_is_withdrawn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking, may_go_on, ask = threading.Event(), threading.Event(), store.ask

    def slow(*args: Any, **options: Any) -> Any:
        asking.set()
        may_go_on.wait(30)
        return ask(*args, **options)

    monkeypatch.setattr(store, "ask", slow)

    client = Client(Server(), wait="block")
    number, _ = await client.calling("write", PATH)
    task = client.gateway._calls[number]
    assert await asyncio.to_thread(asking.wait, 30)
    await client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    may_go_on.set()
    await asyncio.wait([task], timeout=30)
    assert [request.state for request in requests(store)] == [State.CANCELLED]
    await client.gateway.close()


@bounded
async def test_a_client_that_cancels_withdraws_and_nothing_starts_later(store: Store) -> None:
    server = Server()
    client = Client(server, wait="block")
    number, _ = await client.calling("write", PATH)
    [request] = await pending(store)
    task = client.gateway._calls[number]
    await client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    await asyncio.wait([task])
    assert store.get(request.id).state is State.CANCELLED
    with pytest.raises(errors.AlreadyDecidedError):
        sayso.Review().approve(request.id, by="ada")
    assert server.calls == []
    assert all(message.get("method") != "notifications/cancelled" for message in server.seen)
    # An equal call is not the one that was given up.
    await client.calling("write", PATH)
    [second] = await pending(store)
    assert second.id != request.id
    await client.gateway.close()


@pytest.mark.parametrize("wait", ["block", "ticket"])
@bounded
async def test_a_session_that_ends_withdraws_what_waits_and_what_was_approved(store: Store, wait: Any) -> None:
    server = Server()
    client = Client(server, wait=wait)
    for size in (1, 2):
        await client.calling("write", {"path": "a", "size": size})
    first, _ = await pending(store, 2)
    if wait == "ticket":
        sayso.Review().approve(first.id, by="ada")
    await client.gateway.close()
    assert {request.state for request in requests(store)} == {State.CANCELLED}
    assert server.calls == []


@bounded
async def test_with_a_named_run_a_ticket_is_found_by_the_next_session(store: Store) -> None:
    server = Server()
    client = Client(server, run="nightly")
    await client.call("write", PATH)
    await client.gateway.close()
    sayso.Review().approve(requests(store)[0].id, by="ada")
    later = Client(server, run="nightly")
    assert text(await later.call("write", PATH)).startswith("wrote")
    assert len(requests(store)) == len(server.calls) == 1


@bounded
async def test_a_replay_by_another_session_gets_the_result_for_ten_minutes_and_then_asks_anew(
    store: Store, clock: Clock
) -> None:
    server = Server()
    first = Client(server, run="nightly")
    await approved(first, store)
    done = await first.call("write", PATH)
    clock.tick(minutes=9)
    assert await Client(server, run="nightly").call("write", PATH) == done
    clock.tick(minutes=2)
    assert text(await Client(server, run="nightly").call("write", PATH)).startswith("Not run yet")
    assert len(server.calls) == 1


@bounded
async def test_a_key_of_the_clients_own_is_the_same_call_for_ever(store: Store) -> None:
    server = Server()
    client = Client(server, run="nightly")
    key = {"sayso/key": "call_1"}
    await client.call("write", PATH, **key)
    sayso.Review().approve(requests(store)[0].id, by="ada")
    done = await client.call("write", PATH, **key)
    assert await client.call("write", PATH, **key) == done
    assert await Client(server, run="nightly").call("write", PATH, **key) == done
    swapped = await client.call("write", {"path": "/etc/passwd"}, **key)
    assert swapped["isError"] is True
    assert "was not run" in text(swapped)
    assert len(server.calls) == 1


@bounded
async def test_of_ten_calls_made_again_at_once_one_starts_and_all_get_its_result(store: Store) -> None:
    server, release = Server(), asyncio.Event()

    async def slowly(params: dict[str, Any]) -> dict[str, Any]:
        await release.wait()
        return {"content": [{"type": "text", "text": f"number {len(server.calls)}"}]}

    other = Server()
    other.calls, other.answer, server.answer = server.calls, slowly, slowly
    clients = [Client(server, run="nightly"), Client(other, run="nightly")]
    await approved(clients[0], store)
    answers = [(await clients[number % 2].calling("write", PATH))[1] for number in range(10)]
    await until(lambda: bool(server.calls) and all(len(client.gateway._calls) == 5 for client in clients))
    release.set()
    results = await asyncio.gather(*answers)
    assert {text(answer["result"]) for answer in results} == {"number 1"}
    assert len(server.calls) == len(requests(store)) == 1


@bounded
async def test_two_equal_calls_at_once_wait_twice_and_one_is_decided_before_the_other(store: Store) -> None:
    server = Server()
    client = Client(server, wait="block")
    _, one = await client.calling("write", PATH)
    [first] = await pending(store)
    _, two = await client.calling("write", PATH)
    second = next(request for request in await pending(store, 2) if request.id != first.id)
    sayso.Review().reject(second.id, "once is enough", by="ada")
    assert "once is enough" in text((await two)["result"])
    sayso.Review().approve(first.id, by="ada")
    assert text((await one)["result"]).startswith("wrote")
    assert len(server.calls) == 1


@bounded
async def test_fifty_calls_at_once_are_all_in_the_inbox_and_need_no_thread_each(store: Store) -> None:
    server = Server()
    client = Client(server, wait="block")
    with few_threads() as begun:
        answers = [(await client.calling("write", {"path": str(number)}))[1] for number in range(50)]
        for request in await pending(store, 50):
            sayso.Review().approve(request.id, by="ada")
        results = await asyncio.gather(*answers)
    assert len(begun) < 20
    assert [text(answer["result"]) for answer in results] == [f'wrote {{"path": "{n}"}}' for n in range(50)]


@bounded
async def test_where_the_store_cannot_be_reached_nothing_runs_and_the_result_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    client = Client(server)

    def gone(*_: object, **__: object) -> None:
        raise errors.StoreUnavailableError("the disk is gone")

    monkeypatch.setattr(store, "find_key", gone)
    result = await client.call("write", PATH)
    assert result["isError"] is True
    assert "write was not run: nobody could be asked (the disk is gone" in text(result)
    monkeypatch.undo()
    await approved(client, store)
    monkeypatch.setattr(store, "start", gone)
    result = await client.call("write", PATH)
    assert "was not run" in text(result)
    assert server.calls == []


@bounded
async def test_a_fault_of_the_gateway_itself_is_answered_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    client = Client(server)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(store, "find_key", broken)
    answer = await (await client.calling("write", PATH))[1]
    assert answer["error"]["code"] == -32603
    assert server.calls == []


@bounded
async def test_a_message_that_cannot_be_passed_on_ends_no_session(store: Store) -> None:
    server = Server()
    client = Client(server)
    for method in ("ping", "tools/call"):
        params = {"name": "read", "arguments": {"a": float("inf")}}  # 1e999, of which JSON cannot be made again
        line = json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params})
        await client.say(line.replace("Infinity", "1e999").encode())
        await until(lambda: len(client.lines) > 0)
        assert "cannot be forwarded" in json.loads(client.lines.pop())["error"]["message"]
    for number in ([1], {"a": 1}, 1.5, None):
        await server.say({"jsonrpc": "2.0", "id": number, "result": {}})
    assert "error" not in await client.ask("ping")
    assert server.starts == 1


@bounded
async def test_a_changed_schema_is_told_to_the_reviewer_and_an_approval_of_the_old_one_does_not_run(
    store: Store,
) -> None:
    server = Server()
    client = Client(server)
    request = await approved(client, store)
    shape = json.loads(json.dumps(WRITE["inputSchema"]))
    shape["properties"]["owner"] = {"type": "string"}
    server.tools = [{**WRITE, "inputSchema": shape}]  # without a word
    result = await client.call("write", PATH)
    assert "was not run: the server has changed the tool (new: owner; fields: inputSchema)" in text(result)
    assert store.get(request.id).state is State.CANCELLED
    await client.call("write", PATH)
    [second] = requests(store, State.PENDING)
    assert second.context["this call"]["tool changed"] == "new: owner; fields: inputSchema"
    assert server.calls == []


@bounded
async def test_a_tool_that_was_removed_and_comes_back_changed_is_told_as_a_changed_one(store: Store) -> None:
    server = Server()
    client = Client(server)
    await client.call("write", PATH)
    [request] = requests(store)
    for tools in ([READ], [{**WRITE, "description": "Write anything."}, READ]):
        server.tools = tools
        await client.gateway._proxy.list()
    await client.call("write", {**PATH, "size": 4})
    [second] = [one for one in requests(store, State.PENDING) if one.id != request.id]
    assert second.context["this call"]["tool changed"] == "fields: description"


@bounded
async def test_a_call_of_a_changed_tool_does_not_run_where_its_approval_cannot_be_withdrawn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_options: Any) -> Any:
        raise errors.StoreError("locked")

    server = Server()
    client = Client(server)
    await approved(client, store)
    monkeypatch.setattr(type(store), "withdraw", broken)
    server.tools = [{**WRITE, "inputSchema": {"type": "object"}}]
    refused = await client.call("write", PATH)
    assert refused["isError"] is True
    assert "write was not run: the server has changed the tool" in text(refused)
    assert server.calls == []


@bounded
async def test_a_call_of_a_changed_tool_that_another_process_has_just_started_is_not_told_as_not_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answers(outcome: Outcome | None) -> str:
        server = Server()
        client = Client(server, timeout=0.2)
        await client.call("write", PATH)
        [request] = requests(store, State.PENDING)
        sayso.Review().approve(request.id, by="ada")

        def after_a_start(*_args: Any, **_options: Any) -> Any:
            store.start(request.id, "t")
            return store.get(request.id) if outcome is None else store.finish(request.id, "t", outcome)

        monkeypatch.setattr(store, "withdraw", after_a_start)
        server.tools = [{**WRITE, "inputSchema": {"type": "object"}}]
        result = await client.call("write", PATH)
        assert server.calls == []
        return text(result)

    kept, _ = result_to_keep({"content": [{"type": "text", "text": "wrote"}]})
    assert await answers(Outcome("done", kept=kept)) == "wrote"
    assert "write was run, and failed" in await answers(Outcome("failed", error="no room"))
    assert "nobody knows whether it took effect" in await answers(Outcome("unknown", error="gone"))
    assert "is still running. Do not repeat it" in await answers(None)


@bounded
async def test_a_changed_list_passes_on_and_a_waiting_call_of_a_changed_tool_ends(store: Store) -> None:
    server = Server()
    client = Client(server, wait="block")
    _, answer = await client.calling("write", PATH)
    await pending(store)
    server.tools = [{**WRITE, "inputSchema": {"type": "object"}}]
    await server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    await client.notice("notifications/tools/list_changed")
    assert "the server has changed the tool (removed: path, size; fields: inputSchema)" in text(
        (await answer)["result"]
    )
    assert requests(store)[0].state is State.CANCELLED


@bounded
async def test_a_tool_that_changes_while_its_call_is_being_recorded_ends_that_call_and_no_newer_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, may_go_on, ask = threading.Event(), threading.Event(), store.ask

    def slow(*args: Any, **options: Any) -> Any:
        request = ask(*args, **options)
        recorded.set()
        assert may_go_on.wait(PATIENCE)
        return request

    server = Server()
    client = Client(server, wait="block")
    await client.ask("tools/list")
    await client.gateway._proxy.list()
    monkeypatch.setattr(store, "ask", slow)
    _, answer = await client.calling("write", PATH)
    assert await asyncio.to_thread(recorded.wait, PATIENCE)
    server.tools = [{**WRITE, "inputSchema": {"type": "object"}}]
    listing = asyncio.ensure_future(client.gateway._proxy.list())
    await until(lambda: client.gateway._proxy.tools["write"] == server.tools[0])
    _, newer = await client.calling("write", PATH)
    may_go_on.set()
    await listing
    assert "the server has changed the tool" in text((await answer)["result"])
    await pending(store)
    await client.gateway._occasions.on_change("write", WRITE, server.tools[0])  # after other tools, and so late
    assert sorted(request.state for request in requests(store)) == [State.CANCELLED, State.PENDING]
    sayso.Review().approve(requests(store, State.PENDING)[0].id, by="ada")
    assert text((await newer)["result"]) == 'wrote {"path": "/etc/motd", "size": 3}'


@bounded
async def test_a_server_that_ends_during_a_call_leaves_it_unknown_and_it_is_not_repeated(store: Store) -> None:
    server, entered = Server(), asyncio.Event()
    server.answer = lambda _: entered.set()
    client = Client(server)
    await approved(client, store)
    _, answer = await client.calling("write", PATH)
    await asyncio.wait_for(entered.wait(), PATIENCE)
    await server.end()
    for result in ((await answer)["result"], await client.call("write", PATH)):
        assert "nobody knows whether it took effect" in text(result)
    assert requests(store)[0].state is State.UNKNOWN
    assert len(server.calls) == 1


@bounded
async def test_a_server_that_hangs_leaves_an_unknown_outcome_after_the_timeout(store: Store) -> None:
    server = Server()
    server.answer = lambda _: None
    client = Client(server, timeout=0.01)
    await approved(client, store)
    assert "nobody knows whether it took effect" in text(await client.call("write", PATH))
    assert [message["method"] for message in server.seen][-1] == "notifications/cancelled"


@bounded
async def test_a_server_that_hangs_before_a_call_is_told_and_the_call_made_again_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: Any) -> None: ...

    server = Server()
    client = Client(server)
    await approved(client, store)
    monkeypatch.setattr(connection, "_LISTING", 0.01)
    monkeypatch.setattr(server, "_respond", silent)
    told = text(await client.call("write", PATH))
    assert "Not run yet: the server cannot be reached (it did not answer tools/list within 0.01 s)" in told
    monkeypatch.undo()
    assert "wrote" in text(await client.call("write", PATH))
    assert (len(server.calls), requests(store)[0].state) == (1, State.DONE)


@bounded
async def test_a_server_that_ended_is_started_again_and_greeted_as_the_client_did(store: Store) -> None:
    server = Server()
    client = Client(server)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    await client.ask("initialize", hello)
    await client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    server.answer = lambda _: None
    _, answer = await client.calling("read", {})
    await until(lambda: bool(server.calls))
    await server.end()
    assert (await answer)["error"]["code"] == -32000
    server.answer = lambda _: {"content": []}
    assert await client.call("read", {}) == {"content": []}
    assert server.starts == 2
    methods = [message["method"] for message in server.seen]
    assert methods[-3:] == ["initialize", "notifications/initialized", "tools/call"]
    assert server.seen[-3]["params"] == hello
    await client.notice("notifications/tools/list_changed")


@bounded
async def test_how_the_server_answers_a_started_call_is_how_it_is_recorded(store: Store) -> None:
    cases: list[tuple[dict[str, Any], State, str]] = [
        ({"isError": True, "content": [{"type": "text", "text": "disk full"}]}, State.FAILED, "disk full"),
        ({"error": {"code": -32602, "message": "no such path"}}, State.FAILED, "no such path"),
        ({"error": {"code": -32603, "message": "internal"}}, State.UNKNOWN, "nobody knows"),
    ]

    for number, (answer, state, words) in enumerate(cases):
        server = Server()
        server.answer = lambda _, answer=answer: answer
        client = Client(server)
        arguments = {"path": str(number)}
        await client.call("write", arguments)
        [request] = requests(store, State.PENDING)
        sayso.Review().approve(request.id, by="ada")
        assert words in text(await client.call("write", arguments))
        assert store.get(request.id).state is state


@bounded
async def test_a_started_call_whose_client_goes_away_keeps_its_result_for_the_call_made_again(store: Store) -> None:
    server, release = Server(), asyncio.Event()

    async def slowly(params: dict[str, Any]) -> dict[str, Any]:
        await release.wait()
        return {"content": [{"type": "text", "text": "done"}]}

    server.answer = slowly
    client = Client(server)
    await approved(client, store)
    number, _ = await client.calling("write", PATH)
    await until(lambda: bool(server.calls))
    await client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    release.set()
    assert text(await client.call("write", PATH)) == "done"
    assert len(server.calls) == 1


@bounded
async def test_no_spelling_of_a_message_gets_a_held_call_past_the_gateway(store: Store) -> None:
    good = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"path":"a"}}}'
    assert parse(good)["params"]["name"] == "write"
    bad = [
        b"[" + good + b"]",
        good.replace(b'"method"', b'"method":"ping","method"'),
        good.replace(b'"method":"tools/call"', b'"method":"ping","Method":"tools/call"'),
        good.replace(b'"name":"write"', b'"name":"read","Name":"write"'),
        good.replace(b'"name":"write"', b'"name":"read","name":"write"'),
        good.replace(b'"arguments"', b'"Arguments"'),
        good.replace(b'"arguments"', b'"_META":{},"arguments"'),
        good.replace(b'"params"', '"params":{},"param\u017f"'.encode()),
        good.replace(b'"method":"tools/call"', b'"METHOD":"tools/call"'),
        good.replace(b'"id":1', b'"id":NaN'),
        good.replace(b'"method":"tools/call"', b'"method":["tools/call"]'),
        good + good,
        b"\xff" + good,
        b"{",
        good.replace(b'"a"', b"[" * 100_000 + b"]" * 100_000),
    ]

    server = Server()
    client = Client(server)
    for line in bad:
        await client.say(line)
        assert json.loads(client.lines.pop())["error"]["code"] == -32700
    await client.say(good.replace(b'"id":1,', b""))  # a call that wants no answer
    assert json.loads(client.lines.pop())["error"]["code"] == -32600
    assert server.calls == server.seen == []


@bounded
async def test_a_held_call_reaches_the_server_with_nothing_that_nobody_was_asked_about(store: Store) -> None:
    more = {"task": {"ttl": 9}, "force": True, "requestState": "s", "_meta": {"a": 1}}

    server = Server()
    client = Client(server)
    params = {"name": "write", "arguments": PATH, **more}
    await client.ask("tools/call", params)
    [request] = requests(store)
    sayso.Review().approve(request.id, by="ada")
    await client.ask("tools/call", params)
    assert server.calls == [{"name": "write", "arguments": PATH, "requestState": "s", "_meta": {"a": 1}}]


@bounded
async def test_which_tools_wait_without_rules(store: Store) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("get_a", "get_b", "put")]
    tools[1]["annotations"] = {"readOnlyHint": "true"}  # no boolean

    async def waits(**settings: Any) -> list[str]:
        server = Server(*tools, {**tools[0], "name": "see", "annotations": {"readOnlyHint": True}})
        client = Client(server, wait="ticket", **settings)
        return [tool["name"] for tool in server.tools if "isError" in await client.call(tool["name"], {})]

    assert await waits() == ["get_a", "get_b", "put"]
    assert await waits(allow=("get_*",)) == ["put"]
    assert await waits(allow=("fs/get_*",), hold=("get_b", "see")) == ["get_b", "put", "see"]


@bounded
async def test_a_tool_that_the_server_does_not_list_is_unknown(store: Store) -> None:
    server = Server()
    client = Client(server)
    answer = await (await client.calling("wipe", {}))[1]
    assert answer["error"] == {"code": -32602, "message": "Unknown tool: wipe"}
    assert server.calls == []


@bounded
async def test_a_rule_that_denies_says_why_and_asks_nobody(store: Store) -> None:
    server = Server()
    client = Client(
        server, policy=lambda path: sayso.policy.deny("never there") if path == "/" else sayso.policy.allow()
    )
    assert "never there" in text(await client.call("write", {"path": "/"}))
    assert text(await client.call("write", {"path": "a"})) == 'wrote {"path": "a"}'
    assert len(server.calls) == 1
    assert requests(store, State.PENDING) == []


@bounded
async def test_a_call_whose_effect_is_taken_is_told_and_asked_anew_when_it_is_made_again(store: Store) -> None:
    server, review = Server(), sayso.Review()
    client = Client(server, policy=lambda: sayso.policy.hold(effect="write:{path}"))
    for what in ("runs", "is told"):
        await client.call("write", PATH)
        [request] = requests(store, State.PENDING)
        review.approve(request.id, by="ada")
        answer = text(await client.call("write", PATH))
        assert ("its effect 'write:/etc/motd' is taken by" in answer) is (what == "is told")
    assert store.get(request.id).state is State.CANCELLED
    await client.call("write", PATH)
    [request] = requests(store, State.PENDING)
    review.approve(request.id, by="ada", again=True, comment="it was overwritten")
    assert text(await client.call("write", PATH)).endswith('wrote {"path": "/etc/motd", "size": 3}')
    assert len(server.calls) == 2


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "ide"}}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"action": "accept", "content": {"decision": "approve"}}, State.DONE),
        ({"action": "accept", "content": {"decision": "reject", "reason": "no"}}, State.REJECTED),
        ({"action": "decline"}, State.REJECTED),
        ({"action": "cancel"}, State.PENDING),
        ({"action": "accept", "content": {"decision": True}}, State.PENDING),
        ({"action": "accept"}, State.PENDING),
    ],
)
@bounded
async def test_the_clients_own_user_is_asked_where_the_gateway_was_told_to(
    store: Store, answer: Any, state: State
) -> None:
    server = Server()
    client = Client(server, elicit_as="ada")
    await client.ask("initialize", HELLO)
    _, result = await client.calling("write", PATH)
    question = await client.notice("elicitation/create")
    assert "/etc/motd" in question["params"]["message"]
    await client.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})
    await result
    [request] = requests(store)
    assert request.state is state
    if request.decision is not None:
        assert (request.decision.by.subject, request.decision.channel) == ("ada", "mcp")
    assert len(server.calls) == (state is State.DONE)


@bounded
async def test_without_being_told_to_the_gateway_takes_no_decision_from_a_client(store: Store) -> None:
    client = Client(Server())
    await client.ask("initialize", HELLO)
    assert text(await client.call("write", PATH)).startswith("Not run yet")
    assert client.notices.empty()


@bounded
async def test_a_decision_elsewhere_closes_the_dialog_of_the_client(store: Store) -> None:
    client = Client(Server(), elicit_as="ada")
    await client.ask("initialize", HELLO)
    _, result = await client.calling("write", PATH)
    question = await client.notice("elicitation/create")
    sayso.Review().approve(requests(store)[0].id, by="bob")
    assert text((await result)["result"]).startswith("wrote")
    cancelled = await client.notice("notifications/cancelled")
    assert cancelled["params"]["requestId"] == question["id"]


@bounded
async def test_a_client_of_the_stateless_protocol_answers_with_the_call_made_again(store: Store) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    yes = {"sayso": {"action": "accept", "content": {"decision": "approve"}}}

    server = Server()
    client = Client(server, elicit_as="ada")
    asked = await client.call("write", PATH, **meta)
    [request] = requests(store)
    assert asked["resultType"] == "input_required"
    state = asked["requestState"]
    assert state.startswith(request.id)
    assert asked["inputRequests"]["sayso"]["method"] == "elicitation/create"
    params = {"name": "write", "arguments": PATH, "_meta": meta, "inputResponses": yes}
    # The answer to another request is none to this one.
    other = await client.ask("tools/call", {**params, "requestState": "rq_other"})
    assert other["result"]["resultType"] == "input_required"
    swapped = await client.ask("tools/call", {**params, "arguments": {"path": "b"}, "requestState": state})
    assert swapped["result"]["resultType"] == "input_required"
    assert server.calls == []
    done = await client.ask("tools/call", {**params, "requestState": state})
    assert text(done["result"]).startswith("wrote")
    assert server.calls == [{"name": "write", "arguments": PATH, "_meta": meta}]


def test_a_long_session_does_not_remember_every_request_that_asked_for_progress() -> None:
    proxy = Proxy(lambda: None, None, None)  # type: ignore[arg-type]
    for number in range(3_000):
        proxy.record_client({"id": number, "params": {"_meta": {"progressToken": f"t{number}"}}})
    assert [proxy._progress.get(token) for token in ("t0", "t2999")] == [None, 2999]
