"""DSPy behind sayso: the common suite with `dspy.ReAct` and `dspy.ReActV2`, and what is peculiar to them.

Needs `pip install "sayso[dspy]"`; without it everything here is skipped, unless SAYSO_FRAMEWORKS=required.
DSPy gives a call no id that its tool sees, so the requests of a run are found by their order.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sayso
from sayso import errors
from sayso.model.request import Request, State
from sayso.stores.base import Store
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import (
    ANSWER,
    WORDS,
    AdapterSuite,
    ModelCall,
    Outcome,
    Scene,
    approve,
    everything,
    pending,
    refund,
    reject,
)

dspy: Any = framework("dspy", "dspy")
from sayso.integrations.dspy import Resumable, Stopped, Suspended, gate  # noqa: E402  needs the framework


def steps_of(scene: Scene, *, nested: bool) -> list[ModelCall]:
    """Return the calls one after the other, as ReAct makes them."""
    return [call for turn in (scene.nested if nested else scene.turns) for call in turn]


EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "dspy_refund.py"


class Model:
    """Stands in for the predictor: it reads from what it is given how far the agent is."""

    def __init__(self, scene: Scene, predictor: Any, *, nested: bool) -> None:
        self._scene, self._nested = scene, nested
        self.signature = predictor.signature

    def __call__(self, **given: Any) -> Any:
        self._scene.models += 1
        if "history" in self.signature.input_fields:
            return self._turn(len(given["history"].messages))
        if "next_tool_name" not in self.signature.output_fields:
            return dspy.Prediction(answer=ANSWER, reasoning="")
        steps, number = steps_of(self._scene, nested=self._nested), given["trajectory"].count("## observation_")
        if number >= len(steps):
            self._scene.models -= 1  # ReAct needs one answer to finish and one for its outputs
            return dspy.Prediction(next_thought="", next_tool_name="finish", next_tool_args={})
        call = steps[number]
        return dspy.Prediction(next_thought=WORDS, next_tool_name=call.tool, next_tool_args=call.arguments)

    def _turn(self, number: int) -> Any:
        turns = self._scene.nested if self._nested else self._scene.turns
        calls = [(c.id, c.tool, c.arguments) for c in turns[number]] if number < len(turns) else []
        made = [{"id": i, "name": n, "args": a} for i, n, a in calls or [(None, "submit", {"answer": ANSWER})]]
        return dspy.Prediction(next_thought=dspy.Reasoning(content=WORDS), tool_calls=dspy.ToolCalls(tool_calls=made))

    async def acall(self, **given: Any) -> Any:
        return self(**given)


def agent_of(kind: Any, scene: Scene, *, nested: bool = False) -> Any:
    """Return an agent as a user would make it; its model is the scene's."""

    async def delegate(task: str) -> str:
        """Let another agent do it."""
        done = await Resumable(agent_of(kind, scene, nested=True)).acall("inner", question=task)
        return str(done.answer)

    own = [gate(tool, **scene.options) if tool.__name__ in scene.held else tool for tool in scene.tools]
    agent = kind("question -> answer", tools=[*own, *([] if nested else [delegate])])
    agent.react = Model(scene, agent.react, nested=nested)
    if hasattr(agent, "extract"):
        agent.extract = Model(scene, agent.extract.predict, nested=nested)
    return agent


class DSPy:
    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = False
    has_subagents: ClassVar = True
    kind: ClassVar[Any] = dspy.ReAct

    async def start(self, scene: Scene) -> Outcome:
        agent = Resumable(agent_of(self.kind, scene), wait="block" if scene.mode == "block" else "suspend")
        return await self.go(scene, agent.acall(scene.thread, question="help"))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        return await self.go(scene, Resumable(agent_of(self.kind, scene)).aresume(json.loads(saved)))

    async def go(self, scene: Scene, run: Any) -> Outcome:
        try:
            done = await run
        except Suspended as waits:
            return Outcome(json.dumps(waits.state), {}, None)
        except Stopped as stop:  # no Exception, so that DSPy lets it through
            raise stop.why from None
        return Outcome(None, self.told(scene, done), done.answer)

    def told(self, scene: Scene, done: Any) -> dict[str, str]:
        steps = steps_of(scene, nested=False)
        return {step.id: str(done.trajectory[f"observation_{number}"]) for number, step in enumerate(steps)}


class DSPyV2(DSPy):
    kind: ClassVar[Any] = getattr(dspy, "ReActV2", None)

    def told(self, scene: Scene, done: Any) -> dict[str, str]:  # noqa: ARG002  as for ReAct
        results = [
            result
            for event in done.history.messages
            for result in event["tool_calls"].tool_call_results.tool_call_results
        ]
        return {result.call_id: str(result.value) for result in results if result.name != "submit"}


class _Suite(AdapterSuite):
    async def waiting(self, store: Store, key: str, task: asyncio.Task[Any] | None = None) -> Request:  # noqa: ARG002
        """Return the request that waits: a run of DSPy has one at a time."""
        await self.until(lambda: len(pending(store)) == 1, task)
        return pending(store)[0]

    def test_reviewer_sees_tool_arguments_and_the_models_words_as_unverified(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()]], mode)
        self.play(scene, {"c1": approve()}, memory)
        (request,) = everything(memory)
        assert (request.call.name, dict(request.call.arguments)) == ("refund", {"order_id": "A-1", "amount": 50.0})
        assert (request.key, request.run_id) == ("call-1", scene.thread)
        assert WORDS in str(request.context)
        assert "unverified" in str(request.context)


class TestReAct(_Suite):
    driver = DSPy()


@pytest.mark.skipif(not hasattr(dspy, "ReActV2"), reason="this version of DSPy has no ReActV2")
class TestReActV2(_Suite):
    driver = DSPyV2()


def saved(scene: Scene) -> dict[str, Any]:
    """Run an agent without an event loop to its first pause."""
    with pytest.raises(Suspended) as waits:
        Resumable(agent_of(dspy.ReAct, scene))(scene.thread, question="help")
    assert sayso.Review(by="ada").get(waits.value.id).state is State.PENDING
    return json.loads(json.dumps(waits.value.state))


def test_agent_without_a_loop_suspends_and_resumes(memory: Store) -> None:
    scene = Scene([[refund("c1")], [refund("c2", amount=20.0)]], "pause")
    state = saved(scene)
    approve()(pending(memory)[0])
    with pytest.raises(Suspended) as waits:
        Resumable(agent_of(dspy.ReAct, scene)).resume(state)
    reject("once is enough")(pending(memory)[0])
    done = Resumable(agent_of(dspy.ReAct, scene)).resume(waits.value.state)
    assert (scene.refunds, done.answer) == ([50.0], ANSWER)
    assert done.trajectory["observation_0"] == "refunded 50.00 for A-1"
    assert "once is enough" in done.trajectory["observation_1"]
    assert done.trajectory["tool_args_1"] == {"order_id": "A-1", "amount": 20.0}


def test_resume_asks_no_model_and_runs_no_free_tool_again(memory: Store) -> None:
    scene = Scene([[ModelCall("c0", "lookup", {"order_id": "A-1"})], [refund()]], "pause")
    state = saved(scene)
    assert (scene.models, [tool for tool, _ in scene.effects]) == (2, ["lookup"])
    for _ in range(3):
        with pytest.raises(Suspended):
            Resumable(agent_of(dspy.ReAct, scene)).resume(state)
    assert (scene.models, [tool for tool, _ in scene.effects]) == (2, ["lookup"])


def test_free_tool_that_failed_is_told_as_failed_and_not_run_again(memory: Store) -> None:
    def look(order_id: str) -> str:
        scene.effects.append(("look", {}))
        raise OSError("no line")

    def agent() -> Any:
        made = dspy.ReAct("question -> answer", tools=[gate(scene.refund), look])
        made.react, made.extract = (Model(scene, p, nested=False) for p in (made.react, made.extract.predict))
        return Resumable(made)

    scene = Scene([[ModelCall("c0", "look", {"order_id": "A-1"})], [refund()]], "pause")
    with pytest.raises(Suspended) as waits:
        agent()("thread-1", question="help")
    approve()(pending(memory)[0])
    done = agent().resume(waits.value.state)
    assert [tool for tool, _ in scene.effects] == ["look", "refund"]
    assert "no line" in done.trajectory["observation_0"]


def test_gated_tool_without_a_resumable_waits_in_place(memory: Store) -> None:
    async def main() -> Any:
        scene = Scene([[refund()]], "block")
        task = asyncio.ensure_future(gate(scene.refund).acall(order_id="A-1", amount=5))
        await TestReAct().until(lambda: bool(pending(memory)), task)
        approve(changes={"amount": 4.0}, comment="less")(pending(memory)[0])
        return await task

    told = asyncio.run(main())
    assert "less" in told
    assert told.endswith("refunded 4.00 for A-1")


def test_call_without_await_in_a_loop_does_not_block_it(memory: Store) -> None:
    async def main() -> None:
        gate(Scene([], "block").refund)(order_id="A-1", amount=5.0)

    with pytest.raises(Stopped, match="acall"):
        asyncio.run(main())
    assert everything(memory) == []


def test_arguments_that_do_not_fit_are_told_and_ask_nobody(memory: Store) -> None:
    scene = Scene([[ModelCall("c1", "refund", {"order_id": "A-1"})]], "pause")
    done = Resumable(agent_of(dspy.ReAct, scene))("thread-1", question="help")
    assert "was not run" in done.trajectory["observation_0"]
    assert (scene.effects, everything(memory)) == ([], [])


def test_what_cannot_be_resumed_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="ReAct"):
        Resumable(object())
    with pytest.raises(errors.ConfigError, match="state"):
        Resumable(agent_of(dspy.ReAct, Scene([], "pause"))).resume({})
    with pytest.raises(TypeError, match="quorums"):
        gate(Scene([], "block").refund, quorums=2)


def test_example_stops_resumes_and_refunds_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{place / 'sayso.db'}")

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    waits = run(str(EXAMPLE))
    (found,) = re.findall(r"rq_\w+", waits)
    run("-m", "sayso", "approve", found, "--set", "amount=30")
    first, second = run(str(EXAMPLE)), run(str(EXAMPLE))
    assert "sent 30.00 to the customer of A-4721" in first
    assert "refunded 30.00 for A-4721" in second
    assert "sent" not in second
