"""Handlers that ask: questions, ready tools, and gated functions inside of a handler.

Handlers note in a list what they did. The one invariant: what had finished before a
question is not done again where a gate stood before it.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from sayso import Tool, load_run, suspend
from sayso.runs.decisions import IgnoredDecisionWarning, ask_user, ask_user_multi, confirm
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.running import agent_of, answers, ids, questions, reason, started, yes


@pytest.mark.parametrize("gated", [False, True])
def test_a_handler_asks_and_goes_on_with_the_answer(each_store: Store, ran: list[Any], gated: bool) -> None:
    def plan(city: str) -> str:
        day = suspend({"question": "Which day?"}, kind="day", response_schema={"type": "integer", "minimum": 1})
        sure = suspend({"question": "Sure?"}, response_schema={"type": "boolean"})
        ran.append(city)
        return f"{city} {day} {sure}"

    tool = Tool(plan, requires_approval=gated)
    output = started(tool, city="Ulm")
    if gated:
        output = tool(resume=yes(output)).run()
    assert (reason(output), output.usage) == (("cancelled", "input_required"), {"suspends:required": 1})
    (entry,) = output.metadata["pending_interactions"]
    assert (entry["kind"], entry["payload"]) == ("day", {"question": "Which day?"})
    assert load_run(output.run_id).pending_interactions() == [entry]
    with pytest.warns(IgnoredDecisionWarning):
        refused = tool(resume=answers(output, 0)).run()
    assert refused.metadata["pending_interactions"][0]["metadata"]["interaction"]["refused"]
    output = tool(resume=answers(output, 3)).run()
    assert output.metadata["pending_interactions"][0]["payload"] == {"question": "Sure?"}
    sayso.Review().answer(questions(output)[0], True)
    output = tool(parent_id=output.run_id).run()
    assert (reason(output), output.output, ran) == (("success", None), "Ulm 3 True", ["Ulm"])
    if gated:
        assert output.usage == {"approvals:approved": 1}


def test_ready_tools_ask_the_user(each_store: Store) -> None:
    agent = agent_of(
        [ask_user, ask_user_multi, confirm],
        [
            ("ask_user", {"question": "Colour?", "options": ["red", "blue"]}),
            ("ask_user_multi", {"question": "Sizes?", "options": ["s", "m"]}),
            ("confirm", {"action": "Order it?"}),
        ],
    )
    paused = started(agent, prompt="go")
    assert paused.usage["suspends:required"] == 3
    known = {entry["kind"]: entry["interaction_id"] for entry in paused.metadata["pending_interactions"]}
    one, two, three = known["ask_user"], known["ask_user_multi"], known["confirm"]
    with pytest.warns(IgnoredDecisionWarning):
        refused = agent(resume={one: "green"}).run()
    assert set(questions(refused)) == {one, two, three}
    output = agent(resume={one: "blue", two: ["s", "m"], three: False}).run()
    assert output.output == 'blue | ["s", "m"] | false'


def test_a_payload_that_is_no_json_is_an_error_of_the_handler(memory: None) -> None:
    output = Tool(lambda: suspend({"question": "?", "at": object()}), name="asks")().run()
    assert output.status.code == "error"
    assert output.error is not None


def test_questions_outside_of_a_run_are_refused() -> None:
    with pytest.raises(RuntimeError, match="in a run"):
        suspend({"question": "?"})


def test_an_expired_question_is_asked_anew(each_store: Store, clock: Clock) -> None:
    tool = Tool(lambda: suspend({"question": "?"}), name="asks")
    paused = started(tool)
    clock.tick(hours=24)
    again = tool(parent_id=paused.run_id).run()
    assert reason(again) == ("cancelled", "input_required")
    assert questions(again) != questions(paused)
    assert again.metadata["pending_interactions"][0]["metadata"]["interaction"]["expired"] is True
    assert tool(resume=answers(again, "yes")).run().output == "yes"


@pytest.mark.parametrize("gated", [False, True])
def test_a_gated_function_inside_of_a_handler_waits_for_its_own(each_store: Store, ran: list[Any], gated: bool) -> None:
    @sayso.confirm_first
    def delete(path: str) -> str:
        ran.append(path)
        return f"deleted {path}"

    def tidy(paths: list[str]) -> str:
        return ", ".join(delete(path) for path in paths)

    agent = agent_of([Tool(tidy, requires_approval=gated)], [("tidy", {"paths": ["a", "b"]})])
    output = started(agent, prompt="go")
    for _ in range(3 if gated else 2):
        assert reason(output) == ("cancelled", "approval_required")
        assert len(ids(output)) == 1
        output = agent(resume=yes(output)).run()
    assert (output.output, ran) == ("deleted a, deleted b", ["a", "b"])


def test_equal_gated_calls_inside_of_a_handler_wait_one_by_one(each_store: Store, ran: list[Any]) -> None:
    @sayso.confirm_first
    async def delete(path: str) -> None:
        ran.append(path)

    async def tidy() -> str:
        await delete("a")
        await delete("a")
        return suspend({"question": "done?"})

    tool = Tool(tidy)
    output = started(tool)
    for n in (1, 2):
        output = tool(resume=yes(output)).run()
        assert ran == ["a"] * n
    assert tool(resume=answers(output, "yes")).run().output == "yes"
    assert ran == ["a", "a"]


def test_a_no_to_a_function_inside_is_a_no_to_the_handlers_caller(each_store: Store, ran: list[Any]) -> None:
    @sayso.confirm_first
    def delete(path: str) -> None:
        ran.append(path)

    tool = Tool(lambda: delete("a"), name="tidy")
    output = tool(resume=dict.fromkeys(ids(started(tool)), False)).run()
    assert (reason(output), ran) == (("cancelled", "approval_denied"), [])
