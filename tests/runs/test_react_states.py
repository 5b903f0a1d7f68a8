"""Saved states of `ReAct`: another process goes on from one, it can be shown, and a changed one gives no right.

Also what happens when a state is used twice, or by many at once, and when the work dies between two pauses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import ConfirmationRejected, ConfirmationRequired, errors
from sayso.model.request import State
from sayso.runs.agent import Tool, tool
from sayso.runs.messages import Reply
from sayso.runs.state import in_loop
from sayso.stores.base import Filter, Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from tests.runs.reacting import ANSWER, Script, agent_of, deleter, observed, save
from tests.support.acting import Disk, aheld, forked, running, state_of

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
import sayso
from sayso.runs.react import ReAct
from sayso.runs.agent import tool

sayso.configure(store=sys.argv[1])

@tool(require_confirmation=True)
def delete_file(path: str, password: str = "none") -> str:
    with Path("deleted").open("a") as log:
        log.write(f"{path} {password}\\n")
    return f"Deleted {path}"

turns = json.loads(sys.argv[2])
async def model(messages, tools):
    told = [message["content"] for message in messages if message["role"] == "tool"]
    turn = turns[sum(message["role"] == "assistant" for message in messages)]
    return json.loads(json.dumps(turn).replace("WHAT WAS TOLD", json.dumps(" | ".join(told))[1:-1]))

agent = ReAct("question -> answer", [delete_file], model=model)
try:
    if len(sys.argv) > 3:
        result = agent.resume(sys.argv[3], json.loads(Path("saved.json").read_text()))
    else:
        result = agent(question="Delete /a, then ask, then delete /b")
    print(result.answer)
except sayso.ConfirmationRequired as held:
    Path("saved.json").write_text(json.dumps(held.to_dict()))
    print(held.question)
"""
TURNS = [
    {"calls": [["delete_file", {"path": "/a", "password": "hunter2hunter2"}]]},
    {"calls": [["ask_to_user", {"question": "And /b?"}]]},
    {"calls": [["delete_file", {"path": "/b"}]]},
    {"calls": [["finish", {"answer": "WHAT WAS TOLD"}]]},
]


def test_every_pause_is_gone_on_from_in_another_process(file_store: Store, place: Any) -> None:
    def step(*words: str) -> str:
        return running(forked(PROGRAM, file_store.url, json.dumps(TURNS), *words))

    assert step() == 'Confirm execution of delete_file(path="/a", password=***)?'
    assert "hunter2" not in (place / "saved.json").read_text()
    assert step("yes") == "And /b?"
    assert step("all of it") == 'Confirm execution of delete_file(path="/b", password=***)?'
    last = step('{"path": "/c"}')
    assert last.startswith("Deleted /a | all of it | A person (")
    assert "changed the arguments before delete_file ran" in last
    assert (place / "deleted").read_text() == "/a hunter2hunter2\n/c none\n"


@pytest.fixture
def delete(disk: Disk) -> Tool:
    return deleter(disk)


def paused(agent: Any) -> ConfirmationRequired:
    return asyncio.run(aheld(agent.aforward, question="Delete it"))


@pytest.mark.parametrize("response", ["yes", "rather not that one"])
def test_no_store_that_blocks_is_read_in_the_event_loop(
    file_store: Store, monkeypatch: pytest.MonkeyPatch, response: str
) -> None:
    delete = deleter(Disk())
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    seen, get = list[bool](), type(file_store).get
    monkeypatch.setattr(type(file_store), "get", lambda store, name: seen.append(in_loop()) or get(store, name))
    assert agent_of(Script(ANSWER), delete).resume(response, save(first)).answer == "done"
    assert seen
    assert True not in seen


def test_store_of_a_function_inside_of_a_tool_is_not_used_in_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, inner = Disk(), SqliteStore(tmp_path / "inner.db")
    delete = sayso.gate(disk.delete, name="delete", wait="raise", store=inner)

    def tidy(folder: str) -> str:
        return delete(f"{folder}/old")

    sayso.configure(store=inner)
    call = [("tidy", {"folder": "/srv"})]
    agent = agent_of(Script(call, call, ANSWER), tool(tidy, store=MemoryStore()))
    first, seen = paused(agent), list[tuple[str, bool]]()

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: seen.append((name, in_loop())) or real(*args, **options)

    for name in ("get", "settle"):
        monkeypatch.setattr(SqliteStore, name, noted(name, getattr(SqliteStore, name)))
    assert agent.resume("yes", save(first)).answer == "done"
    assert disk.deleted == ["/srv/old"]
    assert {name for name, _ in seen} == {"get", "settle"}
    assert [name for name, is_in_loop in seen if is_in_loop] == []


# -- used twice ----------------------------------------------------------------------------------------------------


def test_state_that_is_used_twice_runs_its_call_once_and_asks_once(disk: Disk, delete: Tool, store: Store) -> None:
    call = [("delete_file", {"path": "/a"})]
    first = paused(agent_of(Script(call, ANSWER), delete))
    assert agent_of(Script(ANSWER), delete).resume("yes", save(first)).answer == "done"
    model = Script(ANSWER)
    assert agent_of(model, delete).resume("yes", save(first)).answer == "done"
    assert disk.deleted == ["/a"]
    assert observed(model) == ["Deleted /a"]  # from the record
    assert [request.id for request in store.list(Filter()).requests] == [first.confirmation_id]


def test_call_that_failed_is_not_made_again_by_its_old_state(store: Store) -> None:
    ran: list[str] = []

    @tool(require_confirmation=True)
    def fail(path: str) -> str:
        ran.append(path)
        raise OSError(f"{path} is locked")

    first = paused(agent_of(Script([("fail", {"path": "/a"})]), fail))
    for _ in range(2):
        model = Script(ANSWER)
        agent_of(model, fail).resume("yes", save(first))
        assert "OSError: /a is locked" in observed(model)[0]
    assert ran == ["/a"]


def test_model_that_fails_after_an_approved_call_does_not_cost_the_call(disk: Disk, delete: Tool) -> None:
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    with pytest.raises(ConnectionError):
        agent_of(Script(ConnectionError("no network")), delete).resume("yes", save(first))
    assert disk.deleted == ["/a"]
    assert agent_of(Script(ANSWER), delete).resume(None, save(first)).answer == "done"
    assert disk.deleted == ["/a"]


def test_many_that_go_on_at_once_run_the_call_once(disk: Disk, delete: Tool) -> None:
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))

    async def one() -> Any:
        try:
            return (await agent_of(Script(ANSWER), delete).aresume("yes", save(first))).answer
        except errors.StartRefusedError as refused:
            return type(refused)

    async def main() -> list[Any]:
        return await asyncio.gather(*[one() for _ in range(20)])

    ends = asyncio.run(main())
    assert disk.deleted == ["/a"]
    assert "done" in ends
    assert set(ends) <= {"done", errors.AlreadyStartedError}


def test_call_whose_end_nobody_saw_is_not_made_again(store: Store) -> None:
    ran: list[str] = []
    began = asyncio.Event()

    @tool(require_confirmation=True)
    async def delete_file(path: str) -> str:
        ran.append(path)
        began.set()
        await asyncio.sleep(60)
        return "never"

    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete_file))

    async def broken_off() -> None:
        work = asyncio.ensure_future(agent_of(Script(ANSWER), delete_file).aresume("yes", save(first)))
        await began.wait()
        work.cancel()
        await asyncio.wait([work])
        assert work.cancelled()

    asyncio.run(broken_off())
    assert state_of(first.confirmation_id) is State.UNKNOWN
    with pytest.raises(errors.OutcomeUnknownError):
        agent_of(Script(ANSWER), delete_file).resume("yes", save(first))
    sayso.Review().resolve(first.confirmation_id, happened=True, by="ada")
    assert agent_of(Script(ANSWER), delete_file).resume("yes", save(first)).answer == "done"
    assert ran == ["/a"]


# -- changed on its way --------------------------------------------------------------------------------------------


def changed(signal: ConfirmationRequired, change: Callable[[dict[str, Any]], Any]) -> ConfirmationRequired:
    saved = json.loads(json.dumps(signal.to_dict()))
    change(saved)
    return ConfirmationRequired.from_dict(saved)


def _rewrite(saved: dict[str, Any]) -> None:
    """Put other arguments wherever the context names some."""
    context = saved["context"]
    context["pending_tool_call"]["args"] = {"path": "/etc/passwd"}
    context["trajectory"]["tool_calls_0"][0]["args"] = {"path": "/etc/passwd"}
    for message in context["messages"]:
        for call in message.get("tool_calls", []):
            call["arguments"] = {"path": "/etc/passwd"}


def test_changed_context_does_not_change_what_runs(disk: Disk, delete: Tool) -> None:
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    assert agent_of(Script(ANSWER), delete).resume("yes", changed(first, _rewrite)).answer == "done"
    assert disk.deleted == ["/a"]


def test_response_to_something_else_than_what_waits_decides_nothing(disk: Disk, delete: Tool) -> None:
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    other = paused(agent_of(Script([("delete_file", {"path": "/b"})]), delete))

    def show_less(saved: dict[str, Any]) -> None:
        saved["tool_call"]["args"] = {"path": "/tmp/harmless"}

    def show_none(saved: dict[str, Any]) -> None:
        saved["tool_call"] = None

    def name_another(saved: dict[str, Any]) -> None:
        saved["confirmation_id"] = other.confirmation_id

    def wait_for_another(saved: dict[str, Any]) -> None:
        saved["context"]["waiting"][0]["request"] = other.confirmation_id

    def swap_both(saved: dict[str, Any]) -> None:
        name_another(saved)
        wait_for_another(saved)

    for change in (show_less, show_none, name_another, wait_for_another, swap_both):
        with pytest.raises(errors.SaysoError, match="nothing was decided"):
            agent_of(Script(), delete).resume("yes", changed(first, change))
    assert {state_of(one.confirmation_id) for one in (first, other)} == {State.PENDING}
    assert disk.deleted == []


def test_state_with_another_run_uses_no_approval_of_that_run(disk: Disk, delete: Tool) -> None:
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    other = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    sayso.Review().approve(other.confirmation_id, by="ada")

    def in_another_run(saved: dict[str, Any]) -> None:
        saved["context"]["run_id"] = other.context["run_id"]

    with pytest.raises(errors.ConfigError, match="another run"):
        agent_of(Script(ANSWER), delete).resume(None, changed(first, in_another_run))
    assert disk.deleted == []


def test_changed_tool_name_runs_nothing(disk: Disk, delete: Tool) -> None:
    wiped: list[str] = []

    def wipe(path: str) -> str:
        wiped.append(path)
        return "wiped"

    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete, wipe))

    def to_wipe(saved: dict[str, Any]) -> None:
        saved["context"]["waiting"][0]["tool"] = "wipe"

    model = Script(ANSWER)
    agent_of(model, delete, wipe).resume("yes", changed(first, to_wipe))
    assert (wiped, disk.deleted) == ([], [])


@pytest.mark.parametrize(
    "context",
    [
        {}, {"waiting": []}, {"run_id": "x", "waiting": 7}, {"messages": [{}]},
        {"run_id": "r", "input_args": {}, "messages": [], "waiting": [], "occasions": {}},
    ],
)  # fmt: skip
def test_what_react_did_not_save_is_refused(context: dict[str, Any], delete: Tool) -> None:
    agent = agent_of(Script(), delete)
    for wrong in (ConfirmationRequired("Go on?", context=context), None, {"nothing": 1}, "rq_1"):
        with pytest.raises(errors.ConfigError):
            agent.resume("yes", wrong)


def test_tool_that_is_gone_is_named_and_nothing_is_decided(disk: Disk, delete: Tool) -> None:
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    with pytest.raises(errors.ConfigError, match="'delete_file' of this pause no longer exists"):
        agent_of(Script()).resume("yes", save(first))
    assert state_of(first.confirmation_id) is State.PENDING


def test_call_that_an_edit_changed_meanwhile_is_shown_before_it_counts(store: Store) -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    paying = Tool(pay, requires_approval=True, quorum=2)
    first = paused(agent_of(Script([("pay", {"amount": 5})]), paying))
    sayso.Review().approve(first.confirmation_id, by="grace", changes={"amount": 500})
    with pytest.raises(errors.DecisionRefusedError, match="look again"):
        agent_of(Script(), paying).resume("yes", save(first))
    with pytest.raises(ConfirmationRequired) as again:
        agent_of(Script(), paying).resume(None, save(first))
    assert again.value.question == "Confirm execution of pay(amount=500)?"
    assert again.value.tool_call is not None
    assert again.value.tool_call.args == {"amount": 500}
    agent_of(Script(ANSWER), paying).resume("yes", save(again.value))
    assert ran == [500]


# -- secrets -------------------------------------------------------------------------------------------------------

CANARIES = [f"canary-{number:02d}-kept-secret" for number in range(12)]


def test_no_secret_stands_in_what_is_saved_and_the_call_gets_the_real_ones(store: Store) -> None:
    got: list[Any] = []

    def login(user: str, password: str, more: dict[str, Any]) -> str:
        got.append((user, password, more))
        return f"logged in with {password}"

    def sign(text: str, pepper: str) -> str:
        got.append((text, pepper))
        return f"signed with {pepper}"

    async def model(messages: list[Any], tools: list[Any]) -> Any:
        if any(message["role"] == "assistant" for message in messages):
            return [("finish", {"answer": "done"})]
        calls: list[Any] = [
            ("look", {"token": CANARIES[0], "where": "/"}),
            ("login", {"user": "ada", "password": CANARIES[1], "more": {"api_key": [CANARIES[2]], "n": 1}}),
            ("sign", {"text": "a", "pepper": CANARIES[3]}),
        ]
        provider = {"parts": [{"args": json.dumps({"password": CANARIES[1]})}, {"thinking": CANARIES[0]}]}
        text = f"I will use {CANARIES[1]}"
        return Reply(text, [sayso_call(name, arguments) for name, arguments in calls], {}, provider)

    def look(token: str, where: str) -> str:
        return f"{where} with {token}"

    tools = [
        look,
        Tool(login, requires_approval=True),
        Tool(sign, requires_approval=True, approval_redact_keys=["pepper"]),
    ]
    agent = sayso_agent(model, tools)
    first = asyncio.run(aheld(agent.aforward, question="?", secret=CANARIES[4]))
    second = asyncio.run(aheld(agent.aresume, "yes", save(first)))
    for signal in (first, second):
        text = json.dumps(signal.to_dict()) + repr(signal) + str(signal)
        assert [canary for canary in CANARIES if canary in text] == []
        assert "provider" not in signal.context["messages"][2]  # with gaps in it, it is not the provider's own any more
    result = agent.resume("yes", save(second))
    assert [canary for canary in CANARIES if canary in json.dumps(result)] == []
    assert got == [("ada", CANARIES[1], {"api_key": [CANARIES[2]], "n": 1}), ("a", CANARIES[3])]
    for request in store.list(Filter()).requests:
        assert [canary for canary in CANARIES if canary in repr(request)] == []


def test_secret_too_short_to_be_found_in_a_text_is_masked_by_its_name(store: Store) -> None:
    def login(password: str) -> str:
        return "in"

    first = paused(agent_of(Script([("login", {"password": "abc"})]), Tool(login, requires_approval=True)))
    assert first.context["trajectory"]["tool_calls_0"][0]["args"] == {"password": "***"}
    assert first.context["messages"][2]["tool_calls"][0]["arguments"] == {"password": "***"}


def sayso_call(name: str, arguments: dict[str, Any]) -> Any:
    from sayso.runs.messages import ModelCall

    return ModelCall(f"id_{name}", name, arguments)


def sayso_agent(model: Any, tools: list[Any]) -> Any:
    from sayso.runs.react import ReAct

    return ReAct("question, secret -> answer", tools, model=model)


def test_what_a_provider_wants_back_unchanged_survives_a_pause(disk: Disk, delete: Tool) -> None:
    provider = {"parts": [{"kind": "thinking", "signature": "c2lnbmVk"}]}
    first = paused(agent_of(Script(Reply("", [sayso_call("delete_file", {"path": "/a"})], {}, provider)), delete))
    model = Script(ANSWER)
    agent_of(model, delete).resume("yes", save(first))
    assert [m["provider"] for m in model.heard[0] if m["role"] == "assistant"] == [provider]


# -- whom it acts for ----------------------------------------------------------------------------------------------


def test_person_for_whom_it_acts_is_barred_in_every_process(disk: Disk, delete: Tool) -> None:
    call = [("delete_file", {"path": "/a"})]
    with sayso.run(on_behalf_of="ada"):
        first = paused(agent_of(Script(call), delete))
    sayso.Review().approve(first.confirmation_id, by="grace")
    with pytest.raises(ConfirmationRequired) as second:
        agent_of(Script(call), delete).resume(None, save(first))
    for signal in (first, second.value):
        assert str(sayso.Review().get(signal.confirmation_id).on_behalf_of) == "ada"
    with pytest.raises(errors.OwnRequestError):
        sayso.Review().approve(second.value.confirmation_id, by="ada")


def test_function_inside_of_a_tool_is_asked_for_and_then_found_again(disk: Disk) -> None:
    @sayso.confirm_first
    def delete_file(path: str) -> str:
        return disk.delete(path)

    def tidy(folder: str) -> str:
        return delete_file(f"{folder}/old")

    call = [("tidy", {"folder": "/srv"})]
    first = paused(agent_of(Script(call), tidy))
    assert first.tool_call is not None
    assert first.tool_call.args == {"path": "/srv/old"}
    model = Script(call, ANSWER)
    assert agent_of(model, tidy).resume("yes", save(first)).answer == "done"
    assert disk.deleted == ["/srv/old"]
    assert "was decided; make the same call again" in observed(model)[0]
    assert observed(model)[1] == "Deleted /srv/old"


def test_rejection_ends_the_run_again_however_often_its_state_is_used(disk: Disk, delete: Tool) -> None:
    first = paused(agent_of(Script([("delete_file", {"path": "/a"})]), delete))
    for response in ("no", "yes", None):
        with pytest.raises(ConfirmationRejected):
            agent_of(Script(), delete).resume(response, save(first))
    assert disk.deleted == []
