"""The code of the seed's description that is about modules and agents, with the import root changed: one test a block.

The words around it are ours; the blocks themselves are the description's, as far as they are programs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sayso import (
    ConfirmationRejected,
    ConfirmationRequired,
    ResumeState,
    clear_all_confirmations,
    confirm_first,
    get_confirmation_context,
    get_confirmation_status,
    respond_to_confirmation,
)
from sayso.runs.agent import Tool, tool
from sayso.runs.module import Module, Prediction
from sayso.runs.react import ReAct
from sayso.stores.base import Store
from tests.runs.reacting import ANSWER, Script, agent_of, deleter
from tests.support.acting import Disk


@pytest.fixture
def agent(disk: Disk) -> ReAct:
    return agent_of(Script([("delete_file", {"path": "/tmp/test.txt"})], ANSWER), deleter(disk))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Let a person type these lines, and nothing more."""

    def type_(*lines: str) -> list[str]:
        left, seen = iter(lines), list[str]()
        monkeypatch.setattr("builtins.input", lambda prompt="": (seen.append(prompt), next(left))[1])
        return seen

    return type_


def test_explicit_aresume(agent: ReAct, disk: Disk) -> None:
    async def main() -> Any:
        try:
            result = await agent.aforward(question="Delete files")
        except ConfirmationRequired as e:
            result = await agent.aresume("yes", e)
        return result

    assert asyncio.run(main()).answer == "done"
    assert disk.deleted == ["/tmp/test.txt"]


def test_loop_with_resume_state(agent: ReAct, disk: Disk, typed: Callable[..., Any]) -> None:
    seen = typed("yes")

    async def main() -> Any:
        resume_state = None

        while True:
            try:
                result = await agent.aforward(question="Delete files", resume_state=resume_state)
                break
            except ConfirmationRequired as e:
                user_response = input(f"{e.question} (yes/no): ")  # noqa: ASYNC250  the description's
                resume_state = ResumeState(e, user_response)
        return result

    assert asyncio.run(main()).answer == "done"
    assert seen == ['Confirm execution of delete_file(path="/tmp/test.txt")? (yes/no): ']
    assert disk.deleted == ["/tmp/test.txt"]


def test_state_in_the_context(agent: ReAct) -> None:
    with pytest.raises(ConfirmationRequired) as caught:
        agent(question="Delete files")
    assert {"trajectory", "iteration", "input_args"} <= caught.value.context.keys()
    assert caught.value.context["trajectory"]["tool_calls_0"] == [
        {"id": "call_1_1", "name": "delete_file", "args": {"path": "/tmp/test.txt"}}
    ]


def test_confirmable_tool(disk: Disk) -> None:
    @tool(name="delete_file", require_confirmation=True)
    def delete_file(path: str) -> str:
        return disk.delete(path)

    assert isinstance(delete_file, Tool)
    with pytest.raises(ConfirmationRequired) as caught:
        delete_file.call(path="/tmp/a")
    respond_to_confirmation(caught.value.confirmation_id, approved=True)
    assert delete_file.call(path="/tmp/a") == "Deleted /tmp/a"


def test_two_kinds_of_exception(agent: ReAct, disk: Disk) -> None:
    said: list[str] = []
    state: Any = None
    for _ in range(2):
        try:
            agent(question="Delete production data", resume_state=state)
        except ConfirmationRequired as e:
            said.append("required")
            state = ResumeState(e, "no")
        except ConfirmationRejected:
            said.append("rejected")
    assert said == ["required", "rejected"]
    assert disk.deleted == []


def test_ten_agents_concurrently(disk: Disk) -> None:
    async def run_agent(agent_id: int) -> Any:
        agent = agent_of(Script([("delete_file", {"path": f"/{agent_id}"})], ANSWER), deleter(disk))
        try:
            return await agent.aforward(question=f"Task {agent_id}")
        except ConfirmationRequired as e:
            respond_to_confirmation(e.confirmation_id, approved=True)
            return await agent.aforward(question=f"Task {agent_id}", resume_state=e, user_response="yes")

    async def main() -> list[Any]:
        return await asyncio.gather(*[run_agent(i) for i in range(10)])

    assert [result.answer for result in asyncio.run(main())] == ["done"] * 10
    assert sorted(disk.deleted) == sorted(f"/{n}" for n in range(10))


def test_clean_up_after_an_error(disk: Disk) -> None:
    agent = agent_of(
        Script([("delete_file", {"path": "/a"})], [("delete_file", {"path": "/b"})], OSError("down")), deleter(disk)
    )
    state: Any = None
    for _ in range(2):
        with pytest.raises(ConfirmationRequired) as caught:
            agent(question="...", resume_state=state)
        state = ResumeState(caught.value, "yes")

    def call() -> None:
        try:
            agent(question="...", resume_state=state)
        except Exception:
            clear_all_confirmations()  # Reset on error
            raise

    with pytest.raises(OSError, match="down"):
        call()
    assert get_confirmation_context() == {}


def test_limited_rounds(disk: Disk) -> None:
    agent = agent_of(Script(*[[("delete_file", {"path": f"/{n}"})] for n in range(9)]), deleter(disk))
    state = None

    def call() -> None:
        nonlocal state
        for _attempt in range(5):
            try:
                agent(question="...", resume_state=state)
                break
            except ConfirmationRequired as e:
                state = ResumeState(e, "yes")
        else:
            raise RuntimeError("Too many confirmation requests")

    with pytest.raises(RuntimeError, match="Too many"):
        call()
    assert disk.deleted == ["/0", "/1", "/2", "/3"]


def test_validated_responses(agent: ReAct, disk: Disk, typed: Callable[..., Any]) -> None:
    typed("maybe", "YES")
    state: Any = None
    user_response: str | None = None
    result: Any = None
    while result is None:
        try:
            result = agent(question="...", resume_state=state, user_response=user_response)
        except ConfirmationRequired as e:
            response = input(f"{e.question} (yes/no/edit): ").lower()
            if response not in {"yes", "no", "edit"}:
                state, user_response = e, None
                continue
            state = e
            user_response = response
    assert (result.answer, disk.deleted) == ("done", ["/tmp/test.txt"])


def test_context_for_the_user(agent: ReAct) -> None:
    with pytest.raises(ConfirmationRequired) as caught:
        agent(question="...")
    e = caught.value
    assert e.tool_call is not None
    assert e.tool_call.name == "delete_file"
    assert json.dumps(e.tool_call.args, indent=2) == '{\n  "path": "/tmp/test.txt"\n}'


def test_web_api_with_session_state(agent: ReAct, disk: Disk) -> None:
    sessions: dict[str, str] = {}

    def save_state(e: ConfirmationRequired) -> str:
        sessions["s1"] = json.dumps(e.to_dict())
        return "s1"

    def load_state(session_id: str) -> ConfirmationRequired:
        return ConfirmationRequired.from_dict(json.loads(sessions[session_id]))

    async def start_agent(question: str) -> dict[str, Any]:
        try:
            result = await agent.aforward(question=question)
            return {"status": "completed", "result": result.answer}  # noqa: TRY300  the description's
        except ConfirmationRequired as e:
            session_id = save_state(e)
            return {
                "status": "confirmation_required",
                "session_id": session_id,
                "question": e.question,
                "tool_call": e.tool_call,
            }

    async def resume_agent(session_id: str, user_response: str) -> dict[str, Any]:
        exception = load_state(session_id)
        resume_state = ResumeState(exception, user_response)
        result = await agent.aforward(question=exception.context["original_question"], resume_state=resume_state)
        return {"status": "completed", "result": result.answer}

    started = asyncio.run(start_agent("Delete it"))
    assert json.loads(json.dumps(started))["tool_call"]["args"] == {"path": "/tmp/test.txt"}
    assert asyncio.run(resume_agent(started["session_id"], "yes")) == {"status": "completed", "result": "done"}
    assert disk.deleted == ["/tmp/test.txt"]


def run_interactive(agent: ReAct, question: str) -> Any:
    resume_state = None

    while True:
        try:
            result = agent(question=question, resume_state=resume_state)
            print(f"\n✓ {result.answer}")
            return result  # noqa: TRY300  the description's

        except ConfirmationRequired as e:
            print(f"\n⚠️  {e.question}")

            if e.tool_call:
                print(f"   Tool: {e.tool_call.name}({e.tool_call.args})")

            response = input("\n[yes/no/edit]: ").strip()

            if response == "edit" and e.tool_call:
                print("Enter new args as JSON:")
                new_args = input("> ")
                resume_state = ResumeState(e, new_args)
            else:
                resume_state = ResumeState(e, response)

        except ConfirmationRejected as e:
            print(f"\n✗ Rejected: {e.message}")
            return None


@pytest.mark.parametrize(
    ("lines", "deleted", "says"),
    [
        (["yes"], ["/tmp/test.txt"], "✓ done"),
        (["no"], [], "✗ Rejected: the call delete_file was rejected"),
        (["edit", '{"path": "/tmp/safe.txt"}'], ["/tmp/safe.txt"], "✓ done"),
    ],
)
def test_interactive_loop(
    lines: list[str], deleted: list[str], says: str, agent: ReAct, disk: Disk, typed: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    typed(*lines)
    run_interactive(agent, "Delete it")
    assert disk.deleted == deleted
    assert says in capsys.readouterr().out


def test_batch_with_selective_confirmation(store: Store) -> None:
    ran: list[int] = []
    asked: list[Any] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        ran.append(amount)
        return f"paid {amount}"

    async def model(messages: list[dict[str, Any]], tools: list[Any]) -> Any:
        if any(message["role"] == "tool" for message in messages):
            return ANSWER
        return [("pay", {"amount": int(messages[1]["content"].split()[-1])})]

    def is_low_risk(tool_call: Any) -> bool:
        return tool_call.args["amount"] < 100

    async def get_human_approval(e: ConfirmationRequired) -> str:
        assert e.tool_call is not None
        asked.append(e.tool_call.args["amount"])
        return "yes"

    async def process_batch(items: Iterator[int], agent: ReAct) -> list[Any]:
        results: list[Any] = []

        for item in items:
            resume_state = None
            attempts = 0

            while attempts < 3:
                try:
                    result = await agent.aforward(question=f"Process {item}", resume_state=resume_state)
                    results.append(result)
                    break

                except ConfirmationRequired as e:
                    response = "yes" if is_low_risk(e.tool_call) else await get_human_approval(e)

                    resume_state = ResumeState(e, response)
                    attempts += 1

        return results

    results = asyncio.run(process_batch(iter([5, 500, 50]), agent_of(model, pay)))
    assert [result.answer for result in results] == ["done"] * 3
    assert (ran, asked) == ([5, 500, 50], [500])


# -- of the API's description --------------------------------------------------------------------------------------


def test_example_module(store: Store) -> None:
    class MyModule(Module):
        def forward(self, input: str) -> Prediction:  # noqa: A002
            raise ConfirmationRequired(
                question="Please confirm",
                context={"current_step": 5, "partial_result": "...", "input": input},
            )

        def resume(self, user_response: str, saved_state: ConfirmationRequired) -> Prediction:
            partial_result = saved_state.context["partial_result"]
            if user_response.lower() == "yes":
                return Prediction(output="final result")
            return Prediction(output=partial_result)

    module = MyModule()
    with pytest.raises(ConfirmationRequired) as caught:
        module(input="work")
    assert module.resume("yes", caught.value).output == "final result"


def test_status_after_the_user_responded(agent: ReAct) -> None:
    try:
        agent(question="Delete files")
    except ConfirmationRequired as e:
        status = get_confirmation_status(e.confirmation_id)
        assert status == "pending"

        agent.resume("yes", e)
        status = get_confirmation_status(e.confirmation_id)
        assert status == "approved"
    else:
        pytest.fail("nothing was asked")


def test_function_with_confirm_first_is_a_tool(disk: Disk) -> None:
    @confirm_first
    def delete_file(path: str) -> str:
        return disk.delete(path)

    agent = agent_of(Script([("delete_file", {"path": "/a"})], ANSWER), delete_file)
    with pytest.raises(ConfirmationRequired) as caught:
        agent(question="?")
    assert agent(question="?", resume_state=ResumeState(caught.value, "yes")).answer == "done"
    assert disk.deleted == ["/a"]
