"""One suite for every framework: what each adapter promises, whatever runs the agent.

A framework comes in as a `Driver`, and its test module is a subclass of `AdapterSuite` that names it. A driver makes an
agent whose scripted model emits the calls of a `Scene`, runs it, and resumes it from what the framework itself has
persisted. Two modes: in `block` the run waits for the person, in `pause` it ends and is resumed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import pytest

import sayso
from sayso import config, errors
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.support.threads import few_threads

PATIENCE = 200.0
ANSWER = "done"  # what the scripted model says when its turns are over
WORDS = "The customer was charged twice."  # what it says before its calls
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
HELD = ("refund", "fail")  # the tools that wait for a person; `lookup` and `delegate` are free


class ModelCall(NamedTuple):
    """One tool call that the scripted model emits."""

    id: str
    tool: str
    arguments: dict[str, Any]


def refund(id: str = "c1", order_id: str = "A-1", amount: float = 50.0) -> ModelCall:  # noqa: A002  as the field is called
    return ModelCall(id, "refund", {"order_id": order_id, "amount": amount})


@dataclass
class Scene:
    """What the scripted model does, and what its tools did.

    Attributes:
        turns: The calls of each turn; after the last one the model answers `ANSWER`.
        nested: The turns of a sub-agent that the tool `delegate` runs.
        mode: `block` or `pause`.
        thread: Name of the conversation.
        options: What the adapter is given beside the tools that it holds: `when=`, `redact=`, …
        held: Names of the tools that wait for a person.
        effects: What the tools did, in order: the tool and its arguments.
        models: How often a model was asked.
    """

    turns: Sequence[Sequence[ModelCall]]
    mode: str
    nested: Sequence[Sequence[ModelCall]] = ()
    thread: str = "thread-1"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    held: Sequence[str] = HELD
    effects: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    models: int = 0

    def turn(self, number: int, *, nested: bool = False) -> Sequence[ModelCall]:
        """Return the calls of a turn, counted from 0; none when the model is to answer `ANSWER`."""
        self.models += 1
        turns = self.nested if nested else self.turns
        return turns[number] if number < len(turns) else ()

    def id_of(self, request: Request, taken: set[str]) -> str:
        """Return the id of the call that a request is of; which of two equal calls it is makes no difference."""
        calls = [call for turn in (*self.turns, *self.nested) for call in turn if call.id not in taken]
        tool, arguments = request.call.name.rpartition("-")[2], dict(request.call.arguments)
        same = [call for call in calls if call.tool == tool]  # whose arguments may be masked in a request
        return next((call.id for call in same if call.arguments == arguments), same[0].id)

    # The tools. A driver gives them to its framework, wrapped as its users would do it.

    @property
    def tools(self) -> list[Callable[..., str]]:
        return [self.refund, self.fail, self.lookup]

    def refund(self, order_id: str, amount: float) -> str:
        """Refund an order."""
        self.effects.append(("refund", {"order_id": order_id, "amount": amount}))
        return f"refunded {amount:.2f} for {order_id}"

    def fail(self, order_id: str) -> str:
        """Refund an order at a bank that is closed."""
        self.effects.append(("fail", {"order_id": order_id}))
        raise ValueError("the bank is closed")

    def lookup(self, order_id: str) -> str:
        """Look an order up."""
        self.effects.append(("lookup", {"order_id": order_id}))
        return f"{order_id} was paid twice"

    @property
    def refunds(self) -> list[float]:
        """The amounts that were refunded, in order."""
        return [arguments["amount"] for tool, arguments in self.effects if tool == "refund"]


class Outcome(NamedTuple):
    """How a run of an agent ended, or where it paused.

    Attributes:
        saved: What the framework persisted at the pause, for `Driver.resume`; None at the end.
        told: What the model was given as the result of each call, by call id; a nested agent's calls are left out.
        answer: What the agent answered; None at a pause.
    """

    saved: Any
    told: dict[str, str]
    answer: str | None


class Driver(Protocol):
    """How the suite uses a framework.

    Attributes:
        modes: `("block",)`, or `("block", "pause")` where the framework can pause.
        is_parallel: Whether the calls of one turn run at once; else the first must end before the second begins.
        has_subagents: Whether an agent can be the tool of another one, as `delegate`.

    It may also have `cannot`, the reason why the framework cannot do what a case asks, by the case's name without
    `test_`, or that and a mode, as in `name[pause]`; a list in `docs/guides/frameworks.md` has each reason. Where
    the framework does not tell a tool the model's id of its call, it has a `scene`, the one that it was started with
    last, and calls are known by their arguments.
    """

    modes: ClassVar[tuple[str, ...]]
    is_parallel: ClassVar[bool]
    has_subagents: ClassVar[bool]

    async def start(self, scene: Scene) -> Outcome:
        """Make an agent in a new place and run it until it ends or pauses; sayso holds the tools `scene.held`."""
        ...

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        """Make a new agent, as a new process would, and resume it from what the framework persisted."""
        ...


class BlockingDriver:
    """What most drivers share: a framework that cannot pause, runs calls at once, and has agents as tools."""

    modes: ClassVar[tuple[str, ...]] = ("block",)
    is_parallel: ClassVar[bool] = True
    has_subagents: ClassVar[bool] = True

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        raise NotImplementedError


Person = Callable[[Request], Any]


def approve(**options: Any) -> Person:
    return lambda request: sayso.Review(by="ada").approve(request.id, **options)


def reject(comment: str) -> Person:
    return lambda request: sayso.Review(by="ada").reject(request.id, comment)


def feedback(comment: str) -> Person:
    return lambda request: sayso.Review(by="ada").feedback(request.id, comment)


def cancel(comment: str) -> Person:
    return lambda request: sayso.Review(by="ada").cancel(request.id, comment)


class AdapterSuite:
    """The cases. A subclass names its driver; `mode` takes each mode of the driver."""

    driver: ClassVar[Driver]

    @pytest.fixture(autouse=True)
    def _reason(self, request: pytest.FixtureRequest) -> None:
        case = request.node.originalname.removeprefix("test_")
        cannot: dict[str, str] = getattr(self.driver, "cannot", {})
        if reason := cannot.get(case) or cannot.get(request.node.name.removeprefix("test_")):
            pytest.skip(reason)

    # -- how a scene is played ---------------------------------------------------------------------------------

    def play(self, scene: Scene, person: dict[str, Person], store: Store) -> Outcome:
        """Run a scene to its end; the person decides each call by its id, in this order."""
        return asyncio.run(self._played(scene, person, store))

    async def _played(self, scene: Scene, person: dict[str, Person], store: Store) -> Outcome:
        left = dict(person)
        if scene.mode == "block":
            async with self.running(scene) as task:
                for key, decide in left.items():
                    decide(await self.waiting(store, key, task))
            return task.result()
        outcome = await self.driver.start(scene)
        for key, decide in left.items():
            assert outcome.saved is not None, f"the run ended before {key} was decided: {outcome}"
            decide(await self.waiting(store, key))
            outcome = await self.driver.resume(scene, outcome.saved)
        assert outcome.saved is None, f"the run still waits: {outcome}"
        return outcome

    @asynccontextmanager
    async def running(self, scene: Scene) -> AsyncIterator[asyncio.Task[Outcome]]:
        """Run a scene as a task; on leaving the block, wait for its end."""
        task = asyncio.ensure_future(self.driver.start(scene))
        try:
            yield task
            async with asyncio.timeout(PATIENCE):
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def waiting(self, store: Store, key: str, task: asyncio.Task[Any] | None = None) -> Request:
        """Return the request of a call, once it waits."""
        await self.until(lambda: key in self.waiting_by_id(store), task)
        return self.waiting_by_id(store)[key]

    def waiting_by_id(self, store: Store) -> dict[str | None, Request]:
        """Return the requests that wait by the model's id of their call."""
        found = pending(store)
        scene: Scene | None = getattr(self.driver, "scene", None)
        if scene is not None:
            known: dict[str, str] = self.__dict__.setdefault("ids", {}).setdefault(id(scene), {})
            for request in found:
                if request.id not in known:
                    known[request.id] = scene.id_of(request, {*known.values()})
            return {known[request.id]: request for request in found}
        return {request.key: request for request in found}

    async def until(self, is_so: Callable[[], bool], task: asyncio.Task[Any] | None = None) -> None:
        """Wait until something is so, or the task that should make it so has ended."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                assert task is None or not task.done(), f"it ended: {task}"
                await asyncio.sleep(0.005)

    async def paused(self, scene: Scene) -> Any:
        """Run a scene to its first pause and return what the framework persisted."""
        outcome = await self.driver.start(scene)
        assert outcome.saved is not None
        return outcome.saved

    # -- one call ----------------------------------------------------------------------------------------------

    def test_approved_call_runs_once_and_its_result_is_told(self, mode: str, store: Store) -> None:
        scene = Scene([[refund()]], mode)
        outcome = self.play(scene, {"c1": approve()}, store)
        assert scene.effects == [("refund", {"order_id": "A-1", "amount": 50.0})]
        assert (outcome.told, outcome.answer) == ({"c1": "refunded 50.00 for A-1"}, ANSWER)
        assert [request.state for request in everything(store)] == [State.DONE]

    def test_reviewer_sees_tool_arguments_and_the_models_words_as_unverified(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()]], mode)
        self.play(scene, {"c1": approve()}, memory)
        (request,) = everything(memory)
        assert request.call.name == f"{getattr(self.driver, 'prefix', '')}refund"
        assert dict(request.call.arguments) == {"order_id": "A-1", "amount": 50.0}
        if getattr(self.driver, "scene", None) is None:
            assert (request.key, scene.thread in request.run_id) == ("c1", True)
        if "the_models_words" not in getattr(self.driver, "cannot", {}):
            assert "unverified" in str(request.context)
            assert WORDS in str(request.context)

    def test_changed_call_runs_changed_and_the_model_is_told_so(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()]], mode)
        outcome = self.play(scene, {"c1": approve(changes={"amount": 20.0}, comment="half of it")}, memory)
        assert scene.refunds == [20.0]
        assert "ada" in outcome.told["c1"]
        assert "changed the arguments" in outcome.told["c1"]
        assert "half of it" in outcome.told["c1"]
        assert "refunded 20.00 for A-1" in outcome.told["c1"]
        assert outcome.answer == ANSWER

    def test_change_that_does_not_fit_the_tool_is_refused(self, mode: str, memory: Store) -> None:
        def bungle(request: Request) -> None:
            with pytest.raises(errors.SaysoError):
                sayso.Review(by="ada").approve(request.id, changes={"amount": "much"})
            approve()(request)

        scene = Scene([[refund()]], mode)
        self.play(scene, {"c1": bungle}, memory)
        assert scene.refunds == [50.0]

    def test_no_is_told_and_neither_crashes_nor_loops(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()]], mode)
        outcome = self.play(scene, {"c1": reject("over the limit")}, memory)
        (request,) = everything(memory)
        assert scene.effects == []
        said, told = request.message_for_model(), outcome.told["c1"]
        assert said in told or json.dumps(said)[1:-1] in told
        assert "over the limit" in outcome.told["c1"]
        assert (outcome.answer, scene.models) == (ANSWER, 2)

    def test_feedback_is_told_and_the_corrected_call_waits_anew(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()], [refund("c2", amount=20.0)]], mode)
        outcome = self.play(scene, {"c1": feedback("at most 20"), "c2": approve()}, memory)
        assert scene.refunds == [20.0]
        assert "at most 20" in outcome.told["c1"]

    def test_request_that_expires_is_a_no(self, mode: str, memory: Store, clock: Clock) -> None:
        def be_late(request: Request) -> None:
            clock.tick(hours=25)
            memory.sweep()

        scene = Scene([[refund()]], mode)
        outcome = self.play(scene, {"c1": be_late}, memory)
        assert scene.effects == []
        assert "was not run" in outcome.told["c1"]
        assert outcome.answer == ANSWER

    def test_cancelled_request_starts_nothing(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()]], mode)
        outcome = self.play(scene, {"c1": cancel("closed")}, memory)
        assert scene.effects == []
        assert "closed" in outcome.told["c1"]

    def test_call_that_a_rule_allows_asks_nobody(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()]], mode, options={"when": lambda amount: amount > 100})
        outcome = self.play(scene, {}, memory)
        assert (scene.refunds, everything(memory)) == ([50.0], [])
        assert outcome.told == {"c1": "refunded 50.00 for A-1"}

    def test_call_that_a_rule_denies_is_told_and_asks_nobody(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund()]], mode, options={"when": lambda: sayso.deny("no refunds today")})
        outcome = self.play(scene, {}, memory)
        assert (scene.effects, pending(memory)) == ([], [])
        assert "no refunds today" in outcome.told["c1"]
        assert outcome.answer == ANSWER

    def test_secrets_are_masked_for_the_reviewer_and_run_as_they_are(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund(order_id="top-secret-7")]], mode, options={"redact": ["order_id"]})
        self.play(scene, {"c1": approve()}, memory)
        (request,) = everything(memory)
        assert "top-secret-7" not in str(request.call.shown)
        assert scene.effects[0][1]["order_id"] == "top-secret-7"

    def test_call_that_fails_is_recorded_and_not_run_again(self, mode: str, memory: Store) -> None:
        scene = Scene([[ModelCall("c1", "fail", {"order_id": "A-1"})]], mode)
        try:
            outcome = self.play(scene, {"c1": approve()}, memory)
        except ValueError as error:  # a framework that ends the run when a tool fails does so with sayso, too
            assert "the bank is closed" in str(error)  # noqa: PT017  either of two ways is right
        else:
            assert "the bank is closed" in outcome.told["c1"]
        assert [tool for tool, _ in scene.effects] == ["fail"]
        assert [request.state for request in everything(memory)] == [State.FAILED]

    def test_call_whose_effect_another_run_had_is_told_and_not_run(self, mode: str, memory: Store) -> None:
        options = {"effect": "refund:{order_id}"}
        self.play(Scene([[refund()]], mode, options=options), {"c1": approve()}, memory)
        scene = Scene([[refund("c2")]], mode, thread="thread-2", options=options)
        outcome = self.play(scene, {"c2": approve()}, memory)
        assert scene.effects == []
        assert "was not run" in outcome.told["c2"]
        assert outcome.answer == ANSWER

    # -- several calls -----------------------------------------------------------------------------------------

    def test_two_equal_calls_of_one_turn_are_two_requests(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund("c1"), refund("c2")]], mode)
        outcome = self.play(scene, {"c1": approve(), "c2": reject("once is enough")}, memory)
        assert scene.refunds == [50.0]
        has_run, was_refused = sorted(outcome.told.values(), key=lambda words: "once is enough" in words)
        assert has_run == "refunded 50.00 for A-1"
        assert "once is enough" in was_refused
        if getattr(self.driver, "scene", None) is None:
            assert was_refused == outcome.told["c2"]

    def test_call_runs_while_another_of_its_turn_still_waits(self, mode: str, memory: Store) -> None:
        if not self.driver.is_parallel:
            pytest.skip("this framework runs the calls of a turn one after the other")
        scene = Scene([[refund("c1", amount=1.0), refund("c2", amount=2.0)]], mode)

        async def main() -> Outcome:
            if mode == "block":
                async with self.running(scene) as task:
                    approve()(await self.waiting(memory, "c2", task))
                    await self.until(lambda: scene.refunds == [2.0], task)
                    approve()(await self.waiting(memory, "c1", task))
                return task.result()
            saved = await self.paused(scene)
            assert self.waiting_by_id(memory).keys() == {"c1", "c2"}
            approve()(await self.waiting(memory, "c2"))
            outcome = await self.driver.resume(scene, saved)
            assert (scene.refunds, outcome.saved is None) == ([2.0], False)
            approve()(await self.waiting(memory, "c1"))
            return await self.driver.resume(scene, outcome.saved)

        outcome = asyncio.run(main())
        assert scene.refunds == [2.0, 1.0]
        assert outcome.told == {"c1": "refunded 1.00 for A-1", "c2": "refunded 2.00 for A-1"}

    def test_free_call_is_not_held_up(self, mode: str, memory: Store) -> None:
        scene = Scene([[ModelCall("c0", "lookup", {"order_id": "A-1"}), refund("c1")]], mode)

        async def main() -> Outcome:
            if mode == "block":
                async with self.running(scene) as task:
                    request = await self.waiting(memory, "c1", task)
                    await self.until(lambda: [tool for tool, _ in scene.effects] == ["lookup"], task)
                    approve()(request)
                return task.result()
            saved = await self.paused(scene)
            assert [tool for tool, _ in scene.effects] == ["lookup"]
            approve()(await self.waiting(memory, "c1"))
            return await self.driver.resume(scene, saved)

        outcome = asyncio.run(main())
        assert [tool for tool, _ in scene.effects] == ["lookup", "refund"]
        assert outcome.told["c0"] == "A-1 was paid twice"

    def test_calls_of_two_turns_wait_one_after_the_other(self, mode: str, memory: Store) -> None:
        scene = Scene([[refund("c1", amount=1.0)], [refund("c2", amount=2.0)]], mode)
        outcome = self.play(scene, {"c1": approve(), "c2": approve()}, memory)
        assert (scene.refunds, outcome.answer) == ([1.0, 2.0], ANSWER)

    def test_calls_of_a_subagent_are_held(self, mode: str, memory: Store) -> None:
        if not self.driver.has_subagents:
            pytest.skip("this framework has no agents as tools")
        turns = [[ModelCall("d1", "delegate", {"task": "refund A-1"})]]
        scene = Scene(turns, mode, nested=[[refund("n1"), refund("n2", "A-2")]])
        outcome = self.play(scene, {"n1": approve(), "n2": reject("not this one")}, memory)
        assert (scene.refunds, outcome.answer) == ([50.0], ANSWER)
        assert outcome.told == {"d1": ANSWER}

    def test_program_of_the_framework_runs_what_was_approved_and_prints_a_rejection(self, place: Path) -> None:
        printed = run_of(self.program(), place, approve(changes={"amount": 30.0}))
        assert "refunded 30.00 for A-4721" in printed  # not a line: CrewAI prints from other threads meanwhile
        printed = run_of(self.program(), place, reject("over-the-limit"))  # started again, it asks again
        assert "over-the-limit" in printed
        assert "refunded" not in printed

    def program(self) -> str:
        """Return the path of the framework's program in `examples`."""
        name = type(self.driver).__module__.rpartition(".")[2].removeprefix("test_")
        if not (EXAMPLES / f"frameworks/{name}_refund.py").exists():
            pytest.skip("its programs are run by tests of their own")
        return f"frameworks/{name}_refund.py"

    # -- again, at once, and too late --------------------------------------------------------------------------

    def test_ten_concurrent_resumes_start_once_and_tell_the_same(self, store: Store) -> None:
        self.must_pause()
        scene = Scene([[refund()]], "pause")

        async def main() -> list[Outcome]:
            saved = await self.paused(scene)
            approve()(await self.waiting(store, "c1"))
            return await asyncio.gather(*(self.driver.resume(scene, saved) for _ in range(10)))

        outcomes = asyncio.run(main())
        assert scene.refunds == [50.0]
        assert [outcome.told for outcome in outcomes] == [{"c1": "refunded 50.00 for A-1"}] * 10
        assert len(everything(store)) == 1

    def test_ten_concurrent_replays_start_once_and_tell_the_same(self, memory: Store) -> None:
        scene = Scene([[refund()]], "block")

        async def main() -> list[Outcome]:
            tasks = [asyncio.ensure_future(self.driver.start(scene)) for _ in range(10)]
            approve()(await self.waiting(memory, "c1", tasks[0]))
            async with asyncio.timeout(PATIENCE):
                first = await asyncio.gather(*tasks)
                return [*first, await self.driver.start(scene)]

        outcomes = asyncio.run(main())
        assert scene.refunds == [50.0]
        assert [outcome.told for outcome in outcomes] == [{"c1": "refunded 50.00 for A-1"}] * 11
        assert len(everything(memory)) == 1

    def test_replay_after_the_end_runs_nothing_and_asks_nobody(self, store: Store) -> None:
        self.must_pause()
        scene = Scene([[refund()]], "pause")

        async def main() -> list[Outcome]:
            saved = await self.paused(scene)
            approve(changes={"amount": 20.0})(await self.waiting(store, "c1"))
            return [await self.driver.resume(scene, saved) for _ in range(3)]

        first, *others = asyncio.run(main())
        assert (scene.refunds, len(everything(store))) == ([20.0], 1)
        assert [outcome.told for outcome in others] == [first.told] * 2

    def test_resume_before_the_decision_pauses_again_and_asks_nobody_twice(self, store: Store) -> None:
        self.must_pause()
        scene = Scene([[refund()]], "pause")

        async def main() -> Outcome:
            outcome = await self.driver.start(scene)
            for _ in range(3):
                outcome = await self.driver.resume(scene, outcome.saved)
                assert outcome.saved is not None
            approve()(await self.waiting(store, "c1"))
            return await self.driver.resume(scene, outcome.saved)

        outcome = asyncio.run(main())
        assert (scene.refunds, len(everything(store)), outcome.answer) == ([50.0], 1, ANSWER)

    def test_swapped_arguments_are_refused(self, mode: str, memory: Store) -> None:
        self.play(Scene([[refund()]], mode), {"c1": approve()}, memory)
        swapped = Scene([[refund(amount=5_000.0)]], mode)
        outcome = self.outcome_or_error(swapped)
        assert swapped.effects == []
        assert len(everything(memory)) == 1
        assert "50.00" not in str(outcome)

    def test_call_id_of_another_conversation_is_another_call(self, mode: str, memory: Store) -> None:
        for thread in ("thread-1", "thread-2"):
            scene = Scene([[refund()]], mode, thread=thread)
            self.play(scene, {"c1": approve()}, memory)
            assert scene.refunds == [50.0]
        assert len(everything(memory)) == 2

    def test_nothing_runs_if_the_request_cannot_be_recorded(
        self, mode: str, memory: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise errors.StoreFullError(memory.url)

        monkeypatch.setattr(memory, "ask", fail)
        scene = Scene([[refund()]], mode)
        self.outcome_or_error(scene)
        assert scene.effects == []

    def test_cancelled_run_withdraws_and_starts_nothing(self, memory: Store) -> None:
        scene = Scene([[refund()]], "block")

        async def main() -> Request:
            task = asyncio.ensure_future(self.driver.start(scene))
            request = await self.waiting(memory, "c1", task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.until(lambda: not pending(memory))
            return request

        request = asyncio.run(main())
        assert memory.get(request.id).state is State.CANCELLED
        with pytest.raises(errors.SaysoError):
            approve()(request)
        assert scene.effects == []

    def test_cancelled_while_the_request_is_recorded_leaves_nothing_in_the_inbox(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = config.open_store(f"sqlite:///{place / 'cancelled.db'}")
        scene = Scene([[refund()]], "block", options={"store": store})

        async def main() -> None:
            loop, ask = asyncio.get_running_loop(), store.ask
            task = asyncio.ensure_future(self.driver.start(scene))

            def cancel_and_ask(*words: Any, **more: Any) -> Any:
                loop.call_soon_threadsafe(task.cancel)
                return ask(*words, **more)

            monkeypatch.setattr(store, "ask", cancel_and_ask)
            await asyncio.gather(task, return_exceptions=True)
            await self.until(lambda: bool(everything(store)) and not pending(store))

        asyncio.run(main())
        assert [request.state for request in everything(store)] == [State.CANCELLED]
        assert scene.effects == []

    def test_fifty_waiting_runs_use_no_thread_each_and_wait_in_the_inbox_at_once(self, memory: Store) -> None:
        scenes = [Scene([[refund()]], "block", thread=f"thread-{number}") for number in range(50)]

        async def main() -> tuple[list[str], list[Outcome]]:
            with few_threads() as begun:
                tasks = [asyncio.ensure_future(self.driver.start(scene)) for scene in scenes]
                await self.until(lambda: len(pending(memory)) == 50)
                for request in pending(memory):
                    approve()(request)
                async with asyncio.timeout(PATIENCE):
                    return begun, await asyncio.gather(*tasks)

        begun, outcomes = asyncio.run(main())
        assert len(begun) < 20
        assert [scene.refunds for scene in scenes] == [[50.0]] * 50
        assert {outcome.answer for outcome in outcomes} == {ANSWER}

    # -- help --------------------------------------------------------------------------------------------------

    def must_pause(self) -> None:
        if "pause" not in self.driver.modes:
            pytest.skip("this framework cannot pause")

    def outcome_or_error(self, scene: Scene) -> Outcome | Exception:
        """Run a scene that nobody decides; return how it ended, whether or not the framework lets errors through."""

        async def main() -> Outcome:
            async with asyncio.timeout(PATIENCE):
                return await self.driver.start(scene)

        try:
            return asyncio.run(main())
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  each framework has its own; what counts is that nothing ran
            return error


def run_of(program: str, place: Path, decide: Person) -> str:
    """Run a program of `examples` until it waits, decide the call, and return what it prints to its end."""
    url = f"sqlite:///{place / 'sayso.db'}"
    sayso.configure(store=url)
    store = config.open_store(None)
    command, env = [sys.executable, str(EXAMPLES / program)], {**os.environ, "SAYSO_STORE": url}
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=place, env=env, text=True, **streams) as process:
        try:
            asyncio.run(AdapterSuite().until(lambda: bool(pending(store)) or process.poll() is not None))
            waiting = pending(store)
            assert waiting, process.communicate(timeout=PATIENCE)
            decide(waiting[0])
            printed, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return printed


def everything(store: Store) -> list[Request]:
    return list(store.list(Filter()).requests)


def pending(store: Store) -> list[Request]:
    return list(store.list(Filter(states=frozenset({State.PENDING})), limit=100).requests)
