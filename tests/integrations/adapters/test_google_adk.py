"""Google ADK through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from sayso.model.request import State
from sayso.stores.base import Store
from tests.integrations.adapters import suite
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, WORDS, AdapterSuite, Outcome, Scene, approve, everything
from tests.integrations.adapters.suite import refund as refund_call

framework("google.adk", "google_adk")
from google.adk.agents import LlmAgent, SequentialAgent  # noqa: E402
from google.adk.apps import App  # noqa: E402
from google.adk.models.base_llm import BaseLlm  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.runners import Runner  # noqa: E402
from google.adk.sessions import InMemorySessionService  # noqa: E402
from google.adk.tools.agent_tool import AgentTool  # noqa: E402
from google.adk.workflow import START, Workflow  # noqa: E402
from google.genai import types  # noqa: E402

from sayso.integrations.google_adk import ApprovalPlugin  # noqa: E402

# AgentTool makes its runner in a way that ADK itself has deprecated, and calls parts experimental.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class ScriptedModel(BaseLlm):
    """A model that emits the turns of a scene, by what the messages say is done."""

    scene: Any
    is_nested: bool = False

    async def generate_content_async(self, llm_request: Any, *_: Any, **__: Any) -> Any:
        turn = sum(content.role == "model" for content in llm_request.contents)
        calls = self.scene.turn(turn, nested=self.is_nested)
        parts = [types.Part(text=WORDS if calls else ANSWER)]
        made = [types.FunctionCall(id=call.id, name=call.tool, args=call.arguments) for call in calls]
        parts += [types.Part(function_call=each) for each in made]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def agent_of(scene: Scene, *, nested: bool = False, **options: Any) -> Any:
    tools: list[Any] = [scene.refund, scene.fail, scene.lookup]
    if scene.nested and not nested:
        tools.append(AgentTool(agent_of(scene, nested=True)))
    model = ScriptedModel(model="scripted", scene=scene, is_nested=nested)
    return LlmAgent(name="delegate" if nested else "shop", model=model, tools=tools, **options)


def told_of(events: list[Any]) -> dict[str, str]:
    responses = [each for event in events for each in event.get_function_responses()]
    return {each.id: str(each.response.get("result", each.response.get("error"))) for each in responses}


async def run(scene: Scene, agent: Any) -> Outcome:
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="shop", user_id="u", session_id=scene.thread)
    plugin = ApprovalPlugin(scene.held, **scene.options)
    runner = Runner(app=App(name="shop", root_agent=agent, plugins=[plugin]), session_service=sessions)
    message = types.Content(role="user", parts=[types.Part(text="go")])
    events = [each async for each in runner.run_async(user_id="u", session_id=scene.thread, new_message=message)]
    return Outcome(None, told_of(events), events[-1].content.parts[0].text)


class GoogleAdkDriver(suite.BlockingDriver):
    """A runner whose session is the conversation."""

    async def start(self, scene: Scene) -> Outcome:
        return await run(scene, agent_of(scene))


class TestGoogleAdk(AdapterSuite):
    driver: ClassVar = GoogleAdkDriver()

    def test_agents_own_callback_sees_what_was_approved_and_may_answer_it(self, memory: Store) -> None:
        scene, seen = Scene([[refund_call()]], "block"), list[Any]()

        def guard(tool: Any, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
            seen.append(args["amount"])
            return {"result": "the shop is closed"}

        async def main() -> Outcome:
            task = asyncio.ensure_future(run(scene, agent_of(scene, before_tool_callback=guard)))
            approve(changes={"amount": 20.0})(await self.waiting(memory, "c1", task))
            return await task

        assert asyncio.run(main()).told == {"c1": "the shop is closed"}
        assert (scene.refunds, seen) == ([], [20.0])
        assert [request.state for request in everything(memory)] == [State.FAILED]

    def test_tool_that_returns_nothing_runs_once(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")
        refunds = scene.refund
        scene.refund = lambda order_id, amount: refunds(order_id, amount) and None  # type: ignore[method-assign]
        scene.refund.__name__ = "refund"
        scene.refund.__annotations__ = {"order_id": str, "amount": float}
        outcome = self.play(scene, {"c1": approve()}, memory)
        assert (scene.refunds, outcome.told) == ([50.0], {"c1": "None"})

    def test_name_that_no_tool_has_is_refused_before_the_first_model_call(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block", held=["refnd"])
        agent = SequentialAgent(name="shop", sub_agents=[agent_of(scene, nested=True)])
        with pytest.raises(RuntimeError, match="no tool 'refnd' to hold, only fail, lookup, refund"):
            asyncio.run(run(scene, agent))
        assert (scene.effects, scene.models, everything(memory)) == ([], 0, [])

    @pytest.mark.filterwarnings("error::RuntimeWarning")
    @pytest.mark.usefixtures("memory")
    def test_tool_of_a_later_agent_is_known(self) -> None:
        scene = Scene([[]], "block", nested=[[refund_call()]])
        first = LlmAgent(name="first", model=ScriptedModel(model="scripted", scene=scene), tools=[scene.lookup])
        agent = SequentialAgent(name="shop", sub_agents=[first, agent_of(scene)])
        assert asyncio.run(run(scene, agent)).answer == ANSWER

    def test_name_that_may_be_of_a_later_step_of_a_workflow_is_warned_about(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block", held=["refnd"])
        workflow = Workflow(name="shop", edges=[(START, agent_of(scene))])
        with pytest.warns(RuntimeWarning, match="no known tool matches 'refnd'"), pytest.raises(RuntimeError) as raised:
            asyncio.run(run(scene, workflow))
        assert "refund is not among the tools to hold, but 'refnd' is" in str(raised.value)
        assert (scene.effects, everything(memory)) == ([], [])
