"""Inspect through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
import gc
import tomllib
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sayso.model.request import State
from sayso.stores.base import Store
from tests.integrations.adapters import suite
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
)
from tests.integrations.adapters.suite import refund as refund_call
from tests.support.threads import few_threads

framework("inspect_ai", "inspect_ai")
from inspect_ai import Task, eval_async  # noqa: E402
from inspect_ai.agent import as_tool, react  # noqa: E402
from inspect_ai.approval import ApprovalPolicy, auto_approver  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageTool,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.solver import generate, use_tools  # noqa: E402
from inspect_ai.tool import ToolCall, ToolDef, ToolError  # noqa: E402
from inspect_ai.util._display import init_display_type  # noqa: E402

from sayso.integrations.inspect_ai import approval  # noqa: E402

init_display_type("none")
pytestmark = pytest.mark.filterwarnings("ignore")  # Inspect leaves streams of its own open
TOLD = dict[str, str]()  # what the model was last told of each call
NO_SCHEMA = "a change is not checked before it is saved"
EACH_RUN_IS_NEW = "a retry asks again"


def model_of(scene: Scene, *, nested: bool = False) -> Any:
    """Return a model that emits the turns of a scene, by what the messages say is done."""

    def respond(messages: Any, *_: Any) -> Any:
        for each in () if nested else messages:
            if isinstance(each, ChatMessageTool):
                TOLD[each.tool_call_id or ""] = each.error.message if each.error else each.text
        turn = sum(isinstance(message, ChatMessageAssistant) for message in messages)
        calls = scene.turn(turn, nested=nested)
        made = [ToolCall(id=call.id, function=call.tool, arguments=dict(call.arguments)) for call in calls]
        if nested and not calls:
            made = [ToolCall(id="submit", function="submit", arguments={"answer": ANSWER})]
        message = ChatMessageAssistant(content=WORDS if calls else "" if nested else ANSWER, tool_calls=made or None)
        usage = ModelUsage(
            input_tokens=1, output_tokens=1, total_tokens=2
        )  # or it would count, with a table it downloads
        return ModelOutput(model="mockllm", choices=[ChatCompletionChoice(message=message)], usage=usage)

    return get_model("mockllm/model", custom_outputs=respond, memoize=False)


def tools_of(scene: Scene) -> list[Any]:
    async def refund(order_id: str, amount: float) -> str:
        return scene.refund(order_id, amount)

    async def fail(order_id: str) -> str:
        try:
            return scene.fail(order_id)
        except ValueError as error:
            raise ToolError(str(error)) from error

    async def lookup(order_id: str) -> str:
        return scene.lookup(order_id)

    order = {"order_id": "The order."}
    tools = [ToolDef(each, description="A tool.", parameters=order, parallel=True).as_tool() for each in (fail, lookup)]
    tools.append(
        ToolDef(refund, description="A tool.", parameters={**order, "amount": "How much."}, parallel=True).as_tool()
    )
    if not scene.nested:
        return tools
    inner = react(name="delegate", description="Another agent.", tools=tools, model=model_of(scene, nested=True))

    async def delegate(task: str) -> str:
        return str(await as_tool(inner)(input=task))

    return [*tools, ToolDef(delegate, description="Another agent.", parameters={"task": "The task."}).as_tool()]


async def evaluated(scene: Scene, samples: int = 1) -> Any:
    policies = [ApprovalPolicy(approval(**scene.options), list(scene.held)), ApprovalPolicy(auto_approver(), "*")]
    task = Task(
        dataset=[Sample(input="go", target="") for _ in range(samples)], approval=policies,
        solver=[use_tools(tools_of(scene)), generate()],
    )  # fmt: skip
    (log,) = await eval_async(task, model=model_of(scene), max_samples=samples, log_dir=str(Path.cwd()), score=False)
    return log


class InspectDriver(suite.BlockingDriver):
    """An evaluation with one sample."""

    cannot: ClassVar = {
        "reviewer_sees_tool_arguments_and_the_models_words_as_unverified": EACH_RUN_IS_NEW,
        "change_that_does_not_fit_the_tool_is_refused": NO_SCHEMA,
        "swapped_arguments_are_refused": EACH_RUN_IS_NEW,
        "ten_concurrent_replays_start_once_and_tell_the_same": EACH_RUN_IS_NEW,
        "fifty_waiting_runs_use_no_thread_each_and_wait_in_the_inbox_at_once": "one evaluation runs at a time",
    }

    async def start(self, scene: Scene) -> Outcome:
        TOLD.clear()
        log = await evaluated(scene)
        (sample,) = log.samples
        return Outcome(None, dict(TOLD), sample.output.completion)


class TestInspect(AdapterSuite):
    driver: ClassVar = InspectDriver()

    @pytest.fixture(autouse=True)
    def _collected(self) -> Iterator[None]:
        yield
        gc.collect()  # what Inspect leaves open is ignored here; at the end of the session it would be an error

    def test_reviewer_sees_the_models_words_and_the_sample(self, memory: Store) -> None:
        self.play(Scene([[refund_call()]], "block"), {"c1": approve()}, memory)
        (request,) = everything(memory)
        assert WORDS in str(request.context)
        assert request.context["sample"] == request.run_id

    def test_changed_call_runs_changed(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")
        outcome = self.play(scene, {"c1": approve(changes={"amount": 20.0})}, memory)
        assert scene.refunds == [20.0]
        assert outcome.told["c1"].endswith("\n\nrefunded 20.00 for A-1")
        assert outcome.told["c1"].count("changed the arguments") == 1

    def test_change_that_does_not_fit_the_tool_runs_nothing_and_is_recorded(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")
        self.play(scene, {"c1": approve(changes={"amount": "much"})}, memory)
        assert scene.effects == []
        assert [request.state for request in everything(memory)] == [State.FAILED]

    def test_call_whose_effect_is_taken_is_told_and_withdrawn(self, memory: Store) -> None:
        turns = [[refund_call()], [refund_call("c2")]]
        scene = Scene(turns, "block", options={"effect": "refund:{order_id}"})
        outcome = self.play(scene, {"c1": approve(), "c2": approve()}, memory)
        assert scene.refunds == [50.0]
        assert "refund was not run: its effect 'refund:A-1' is taken by rq_" in outcome.told["c2"]
        assert "--again" not in outcome.told["c2"]
        assert [request.state for request in everything(memory)] == [State.DONE, State.CANCELLED]

    def test_call_that_ends_its_sample_is_unknown(self, memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        scene = Scene([[refund_call()]], "block")

        def break_down(*_: object) -> str:
            raise RuntimeError("the till is gone")

        monkeypatch.setattr(scene, "refund", break_down)

        async def main() -> None:
            task = asyncio.ensure_future(evaluated(scene))
            approve()(await self.waiting(memory, "c1", task))
            await task

        asyncio.run(main())
        assert [request.state for request in everything(memory)] == [State.UNKNOWN]

    def test_fifty_waiting_samples_use_no_thread_each(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")

        async def main() -> list[str]:
            with few_threads() as begun:
                task = asyncio.ensure_future(evaluated(scene, samples=50))
                await self.until(lambda: len(pending(memory)) == 50, task)
                for request in pending(memory):
                    approve()(request)
                await task
                return begun

        assert len(asyncio.run(main())) < 20
        assert scene.refunds == [50.0] * 50

    def test_name_like_that_of_a_tool_ends_the_sample_before_the_first_model_call(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block", held=["fail", "refnd(order_id*"])
        with pytest.warns(RuntimeWarning, match=r"no known tool matches 'refnd\*'.* are fail, lookup, refund"):
            log = asyncio.run(evaluated(scene))
        assert log.samples[0].limit.type == "custom"
        assert (scene.models, scene.effects, everything(memory)) == (0, [], [])

    def test_name_that_a_later_agent_may_have_is_only_warned_about(self, memory: Store) -> None:
        turns = [[ModelCall("c1", "lookup", {"order_id": "A-1"})]]
        with pytest.warns(RuntimeWarning, match=r"no known tool matches 'pay\*'"):
            asyncio.run(evaluated(Scene(turns, "block", held=["pay"])))
        scene = Scene(turns, "block", held=["fail, ref", "look*"])
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "no known tool matches")
            self.play(scene, {"c1": approve()}, memory)
        assert [name for name, _ in scene.effects] == ["lookup"]
        scene = Scene(turns, "block", held=["pay"])
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "no known tool matches")
            asyncio.run(evaluated(scene))
        assert scene.models == 0

    def test_policy_file_names_the_approver(self, memory: Store, place: Path) -> None:
        root = Path(__file__).resolve().parents[3]
        points = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
        (value,) = points["inspect_ai"].values()
        assert EntryPoint("sayso", value, "inspect_ai").load().approval is approval
        (place / "approval.yaml").write_text(
            "approvers:\n"
            "  - name: sayso/approval\n    tools: refund\n    quorum: 2\n    roles: [finance]\n"
            "  - name: auto\n    tools: '*'\n"
        )
        scene = Scene([[ModelCall("c0", "lookup", {"order_id": "A-1"}), refund_call()]], "block")
        task = Task(dataset=[Sample(input="go", target="")], approval=str(place / "approval.yaml"),
                    solver=[use_tools(tools_of(scene)), generate()])  # fmt: skip

        async def main() -> Any:
            run = asyncio.ensure_future(eval_async(task, model=model_of(scene), log_dir=str(place), score=False))
            request = await self.waiting(memory, "c1", run)
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            return request.quorum

        assert "2" in str(asyncio.run(main()))
        assert [tool for tool, _ in scene.effects] == ["lookup"]
