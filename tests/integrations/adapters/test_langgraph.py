"""LangGraph and LangChain behind sayso: the common suite, and what is peculiar to them.

Needs `pip install "sayso[langgraph]"`; without it everything here is skipped, unless SAYSO_FRAMEWORKS=required.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar
from uuid import uuid4

import pytest

import sayso
from sayso import errors
from sayso.model.request import Request, State
from sayso.stores.base import Store
from sayso.testing import ScriptedReviewer
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

agents: Any = framework("langchain.agents", "langgraph")
messages: Any = framework("langchain_core.messages", "langgraph")
models: Any = framework("langchain_core.language_models", "langgraph")
outputs: Any = framework("langchain_core.outputs", "langgraph")
tools: Any = framework("langchain_core.tools", "langgraph")
types: Any = framework("langgraph.types", "langgraph")
graphs: Any = framework("langgraph.graph", "langgraph")
graph_errors: Any = framework("langgraph.errors", "langgraph")
prebuilt: Any = framework("langgraph.prebuilt", "langgraph")
memory_saver: Any = framework("langgraph.checkpoint.memory", "langgraph")
from sayso.integrations.langgraph import ApprovalMiddleware, aapprove  # noqa: E402  needs the framework
from sayso.integrations.langgraph import approve as approved_call  # noqa: E402


class Scripted(models.BaseChatModel):  # type: ignore[misc]
    """A model that emits the calls of a scene, turn by turn."""

    scene: Any
    nested: bool = False

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, history: Any, *_: Any, **__: Any) -> Any:
        number = sum(isinstance(message, messages.AIMessage) for message in history)
        calls = self.scene.turn(number, nested=self.nested)
        made = [{"name": call.tool, "args": call.arguments, "id": call.id, "type": "tool_call"} for call in calls]
        message = messages.AIMessage(WORDS if calls else ANSWER, tool_calls=made)
        return outputs.ChatResult(generations=[outputs.ChatGeneration(message=message)])

    async def _agenerate(self, history: Any, *_: Any, **__: Any) -> Any:
        return self._generate(history)


def agent_of(
    scene: Scene, checkpointer: Any = None, *, nested: bool = False, before: Sequence[Any] = (),
    after: Sequence[Any] = (), hold: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Return an agent as a user would make it."""

    async def delegate(task: str) -> str:
        """Let another agent do it."""
        inner = agent_of(scene, nested=True)
        done = await inner.ainvoke({"messages": [messages.HumanMessage(task)]})
        return str(done["messages"][-1].content)

    own = [tools.tool(function) for function in scene.tools]
    return agents.create_agent(
        Scripted(scene=scene, nested=nested),
        own if nested else [*own, tools.tool(delegate)],
        middleware=[*before, ApprovalMiddleware(hold or scene.held, wait=WAITS[scene.mode], **scene.options), *after],
        checkpointer=checkpointer,
    )


WAITS = {"block": "block", "pause": "interrupt"}


class LangGraph:
    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = True
    has_subagents: ClassVar = True

    async def start(self, scene: Scene) -> Outcome:
        saver = memory_saver.InMemorySaver()
        config = {"configurable": {"thread_id": scene.thread}}
        return await self.go(scene, saver, {"messages": [messages.HumanMessage("help")]}, config)

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        saver, paused = saved
        config = {"configurable": {"thread_id": scene.thread}}
        latest = (await agent_of(scene, saver).aget_state(config)).config
        # Where the thread has gone on since, this is a replay from a checkpoint; LangGraph runs its free calls again.
        return await self.go(scene, saver, None, config if latest == paused else paused)

    async def go(self, scene: Scene, saver: Any, given: Any, config: Any) -> Outcome:
        agent = agent_of(scene, saver)
        state = await agent.ainvoke(given, config)
        told = {m.tool_call_id: str(m.content) for m in state["messages"] if isinstance(m, messages.ToolMessage)}
        if state.get("__interrupt__"):
            return Outcome((saver, (await agent.aget_state(config)).config), told, None)
        return Outcome(None, told, str(state["messages"][-1].content))


class TestLangGraph(AdapterSuite):
    driver = LangGraph()


# -- what is peculiar to LangGraph ---------------------------------------------------------------------------------

THREAD = {"configurable": {"thread_id": "thread-1"}}
ASKED = {"messages": [messages.HumanMessage("help")]}


def paused_agent(scene: Scene, saver: Any = None) -> Any:
    agent = agent_of(scene, saver or memory_saver.InMemorySaver())
    assert agent.invoke(ASKED, THREAD)["__interrupt__"]
    return agent


def in_thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def told(state: Any) -> dict[str, str]:
    return {m.tool_call_id: str(m.content) for m in state["messages"] if isinstance(m, messages.ToolMessage)}


def request_of(store: Store, key: str) -> Request:
    return next(request for request in everything(store) if request.key == key)


@pytest.mark.parametrize("answer", [True, False, "rejected", {"decisions": [{"type": "approve"}]}])
def test_what_a_graph_is_resumed_with_decides_nothing(memory: Store, answer: Any) -> None:
    scene = Scene([[refund()]], "pause")
    agent = paused_agent(scene)
    for _ in range(3):
        assert agent.invoke(types.Command(resume=answer), THREAD)["__interrupt__"]
    assert scene.effects == []
    approve()(request_of(memory, "c1"))
    assert told(agent.invoke(types.Command(resume=answer), THREAD)) == {"c1": "refunded 50.00 for A-1"}


def test_interrupts_of_one_turn_can_be_resumed_by_their_ids(memory: Store) -> None:
    scene = Scene([[refund("c1", amount=1.0), refund("c2", amount=2.0)]], "pause")
    agent = agent_of(scene, memory_saver.InMemorySaver())
    interrupts = agent.invoke(ASKED, THREAD)["__interrupt__"]
    assert {one.value["tool_call_id"]: one.value["sayso"] for one in interrupts} == {
        key: request_of(memory, key).id for key in ("c1", "c2")
    }
    reject("no")(request_of(memory, "c1"))
    approve()(request_of(memory, "c2"))
    state = agent.invoke(types.Command(resume={one.id: True for one in interrupts}), THREAD)
    assert scene.refunds == [2.0]  # the decision goes by the call's id, not by its place in the turn
    assert "was not run" in told(state)["c1"]


def test_sync_agent_blocks_and_goes_on(memory: Store) -> None:
    scene = Scene([[refund("c1"), refund("c2")]], "block")
    with ScriptedReviewer(by="ada").approve().reject("once is enough"):
        state = agent_of(scene).invoke(ASKED)  # no thread, no checkpointer
    assert scene.refunds == [50.0]
    assert state["messages"][-1].content == ANSWER


def test_call_of_a_graph_without_a_thread_is_known_in_the_run_around_it(memory: Store) -> None:
    scene = Scene([[refund("c1")]], "block")
    with sayso.run("order-4721"), ScriptedReviewer(by="ada").approve():
        for _ in range(2):
            assert told(agent_of(scene).invoke(ASKED)) == {"c1": "refunded 50.00 for A-1"}
    assert scene.refunds == [50.0]


# -- where the graph keeps its state ---------------------------------------------------------------------------------

CHECKPOINTERS = ["memory", "sqlite", "postgres"]


@pytest.fixture(params=CHECKPOINTERS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AbstractContextManager[Any]]:
    """Opens a checkpointer as a new process would; that in memory is shared."""
    if request.param == "memory":
        return partial(nullcontext, memory_saver.InMemorySaver())
    if request.param == "sqlite":
        sqlite: Any = framework("langgraph.checkpoint.sqlite", "langgraph").SqliteSaver
        return partial(sqlite.from_conn_string, str(tmp_path / "graph.db"))
    saver: Any = framework("langgraph.checkpoint.postgres", "langgraph").PostgresSaver
    opened = partial(saver.from_conn_string, database(request))
    with opened() as one:
        one.setup()
    return opened


def database(request: pytest.FixtureRequest) -> str:
    """Return the connection string of a schema that no other test uses."""
    url, name = request.getfixturevalue("postgres"), f"t_{uuid4().hex}"
    psycopg: Any = framework("psycopg", "langgraph")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
    return str(psycopg.conninfo.make_conninfo(url, options=f"-csearch_path={name}"))


def test_pause_is_resumed_by_another_agent(memory: Store, opened: Callable[[], Any]) -> None:
    scene = Scene([[refund()]], "pause")
    with opened() as saver:
        paused_agent(scene, saver)
    approve()(request_of(memory, "c1"))
    for _ in range(2):
        with opened() as saver:
            assert told(agent_of(scene, saver).invoke(None, THREAD)) == {"c1": "refunded 50.00 for A-1"}
    assert scene.refunds == [50.0]


# LangChain silences its own with filters that are the process's and not the thread's: one thread undoes another one's.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_ten_processes_that_resume_at_once_start_the_call_once(store: Store, opened: Callable[[], Any]) -> None:
    scene = Scene([[refund()]], "pause")
    with opened() as saver:
        paused_agent(scene, saver)
    approve()(request_of(store, "c1"))

    def resumed(_: int) -> dict[str, str]:
        with opened() as saver:
            return told(agent_of(scene, saver).invoke(None, THREAD))

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(resumed, range(10))) == [{"c1": "refunded 50.00 for A-1"}] * 10
    assert scene.refunds == [50.0]


def test_replay_from_the_checkpoint_of_the_pause_runs_nothing_again(memory: Store, opened: Callable[[], Any]) -> None:
    scene = Scene([[refund()]], "pause")
    with opened() as saver:
        paused = paused_agent(scene, saver).get_state(THREAD).config
    approve(changes={"amount": 20.0})(request_of(memory, "c1"))
    states: list[Any] = []
    for config in (THREAD, paused, paused):
        with opened() as saver:
            states.append(told(agent_of(scene, saver).invoke(None, config)))
    assert (scene.refunds, len(everything(memory))) == ([20.0], 1)
    assert states == [states[0]] * 3


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_async_checkpointer_pauses_and_is_resumed(
    kind: str, memory: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    module: Any = framework(f"langgraph.checkpoint.{kind}.aio", "langgraph")
    url = str(tmp_path / "graph.db") if kind == "sqlite" else database(request)
    saver_class = module.AsyncSqliteSaver if kind == "sqlite" else module.AsyncPostgresSaver
    scene = Scene([[refund("c1"), refund("c2", amount=2.0)]], "pause")

    async def resumed(given: Any) -> Any:
        async with saver_class.from_conn_string(url) as saver:
            await saver.setup()
            return await agent_of(scene, saver).ainvoke(given, THREAD)

    assert asyncio.run(resumed(ASKED))["__interrupt__"]
    approve()(request_of(memory, "c1"))
    assert asyncio.run(resumed(None))["__interrupt__"]
    reject("no")(request_of(memory, "c2"))
    state = asyncio.run(resumed(None))
    assert scene.refunds == [50.0]
    assert "was not run" in told(state)["c2"]


def test_second_middleware_that_asks_makes_two_pauses(memory: Store) -> None:
    """Why the page says to name each tool in one of the two; if this turns red, LangChain has changed."""
    scene = Scene([[refund()]], "pause")
    stock = agents.middleware.HumanInTheLoopMiddleware({"refund": True})
    agent = agent_of(scene, memory_saver.InMemorySaver(), before=[stock])
    assert "action_requests" in agent.invoke(ASKED, THREAD)["__interrupt__"][0].value
    assert everything(memory) == []
    state = agent.invoke(types.Command(resume={"decisions": [{"type": "approve"}]}), THREAD)
    assert state["__interrupt__"][0].value["tool_call_id"] == "c1"
    assert scene.effects == []


def test_middleware_that_tries_again_does_not_run_the_call_twice(memory: Store) -> None:
    class Retry(agents.middleware.AgentMiddleware):  # type: ignore[misc,name-defined]
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            handler(request)
            return handler(request)

    for number, (before, after) in enumerate([([Retry()], []), ([], [Retry()])]):
        scene = Scene([[refund()]], "block", thread=f"thread-{number}")
        agent = agent_of(scene, memory_saver.InMemorySaver(), before=before, after=after)
        with ScriptedReviewer(by="ada").approve(), suppress(errors.SaysoError):
            agent.invoke(ASKED, {"configurable": {"thread_id": scene.thread}})
        assert scene.refunds == [50.0], (before, after)


def test_middleware_that_changes_approved_arguments_runs_nothing(memory: Store) -> None:
    class Change(agents.middleware.AgentMiddleware):  # type: ignore[misc,name-defined]
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            call = request.tool_call
            return handler(request.override(tool_call={**call, "args": {**call["args"], "amount": 5_000.0}}))

    scene = Scene([[refund()]], "block")
    with ScriptedReviewer(by="ada").approve(), pytest.raises(errors.SaysoError, match="other arguments"):
        agent_of(scene, after=[Change()]).invoke(ASKED)
    assert scene.effects == []


@pytest.mark.parametrize("change", [{"note": "not shown"}, {"days": 1}], ids=["one more", "1 for true"])
def test_handler_below_the_middleware_that_changes_what_was_shown_runs_nothing(
    memory: Store, change: dict[str, Any]
) -> None:
    ran, held = list[Any](), ApprovalMiddleware(wait="interrupt")

    @tools.tool
    def pay(days: Any, note: str = "") -> str:
        """Pay."""
        ran.append((days, note))
        return "paid"

    def wrapped(request: Any, handler: Any) -> Any:
        def changed(request: Any) -> Any:
            call = request.tool_call
            return handler(request.override(tool_call={**call, "args": {**call["args"], **change}}))

        return held.wrap_tool_call(request, changed)

    graph = graph_of(prebuilt.ToolNode([pay], wrap_tool_call=wrapped))
    graph.invoke(emitting(ModelCall("c1", "pay", {"days": True})), THREAD)
    approve()(request_of(memory, "c1"))
    with pytest.raises(errors.SaysoError, match="other arguments"):
        graph.invoke(None, THREAD)
    assert ran == []


def test_tool_that_is_not_there_is_refused_when_it_is_to_be_held(memory: Store) -> None:
    scene = Scene([[ModelCall("c1", "lookup", {"order_id": "A-1"})]], "block")
    agent = agent_of(scene, hold=["refnud"])
    with pytest.raises(errors.ConfigError, match="refnud"):
        agent.invoke(ASKED)
    assert scene.effects == []


def test_name_is_warned_about_and_stops_a_similar_call_where_the_tools_are_not_listed(memory: Store) -> None:
    def not_reached(_: Any) -> Any:
        raise AssertionError("the call was passed on")

    request = SimpleNamespace(tool_call={"name": "refund", "args": {}, "id": "c1"}, runtime=SimpleNamespace(tools=[]))
    with (
        pytest.warns(RuntimeWarning, match="no known tool matches 'refnud'"),
        pytest.raises(errors.ConfigError, match="refund is not among the tools to hold, but 'refnud' is"),
    ):
        ApprovalMiddleware(["refnud"]).wrap_tool_call(request, not_reached)


def test_pattern_holds_the_tools_that_it_matches(memory: Store) -> None:
    scene = Scene([[refund(), ModelCall("c0", "lookup", {"order_id": "A-1"})]], "block", held=["ref*"])
    TestLangGraph().play(scene, {"c1": approve()}, memory)
    assert (scene.refunds, len(scene.effects), len(everything(memory))) == ([50.0], 2, 1)


def test_pause_without_a_thread_is_refused(memory: Store) -> None:
    scene = Scene([[refund()]], "pause")
    with pytest.raises(errors.ConfigError, match="thread_id"):
        agent_of(scene).invoke(ASKED)
    assert everything(memory) == []


def test_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="'key'"):
        ApprovalMiddleware(key="mine")  # type: ignore[call-arg]
    with pytest.raises(errors.ConfigError, match="pause"):
        ApprovalMiddleware(wait="pause")  # type: ignore[arg-type]


def test_arguments_that_do_not_fit_are_told_to_the_model_and_nobody_is_asked(memory: Store) -> None:
    call = ModelCall("c1", "refund", {"order_id": "A-1", "amount": "all"})
    scene = Scene([[call], [refund("c2")]], "block")
    with ScriptedReviewer(by="ada").approve():
        state = agent_of(scene).invoke(ASKED)
    assert "amount" in told(state)["c1"]
    assert (scene.refunds, len(everything(memory))) == ([50.0], 1)


# -- tools that give more than words, and tools that pause ---------------------------------------------------------


def node(own: Sequence[Any], mode: str = "interrupt", **options: Any) -> Any:
    """Return a graph of one ToolNode, as somebody writes it who does not use LangChain's agents."""
    held = ApprovalMiddleware(wait=mode, **options)
    tool_node = prebuilt.ToolNode(
        own, wrap_tool_call=held.wrap_tool_call, awrap_tool_call=held.awrap_tool_call, handle_tool_errors=True
    )
    return graph_of(tool_node)


def graph_of(function: Any) -> Any:
    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("tools", function)
    graph.add_edge(graphs.START, "tools")
    return graph.compile(checkpointer=memory_saver.InMemorySaver())


def emitting(*calls: ModelCall) -> dict[str, Any]:
    made = [{"name": call.tool, "args": call.arguments, "id": call.id, "type": "tool_call"} for call in calls]
    return {"messages": [messages.AIMessage(WORDS, tool_calls=made)]}


def replayed(graph: Any, given: Any, store: Store, **options: Any) -> list[Any]:
    """Pause, approve, and resume twice: from the thread, and from the checkpoint of the pause."""
    graph.invoke(given, THREAD)
    paused = graph.get_state(THREAD).config
    approve(**options)(request_of(store, "c1"))
    return [graph.invoke(None, THREAD), graph.invoke(None, paused)]


def test_tool_that_gives_an_artifact_or_a_command_gives_it_again(memory: Store) -> None:
    ran: list[str] = []

    @tools.tool(response_format="content_and_artifact")
    def chart(name: str) -> tuple[str, dict[str, Any]]:
        """Draw a chart."""
        ran.append(name)
        return "drawn", {"points": [1, 2]}

    @tools.tool
    def hand_over(name: str, tool_call_id: Annotated[str, tools.InjectedToolCallId]) -> Any:
        """Hand over."""
        ran.append(name)
        return types.Command(update={"messages": [messages.ToolMessage(f"to {name}", tool_call_id=tool_call_id)]})

    for thread, tool in enumerate((chart, hand_over)):
        graph = node([tool])
        graph.invoke(emitting(ModelCall("c1", tool.name, {"name": "x"})), in_thread(str(thread)))
        paused = graph.get_state(in_thread(str(thread))).config
        approve(comment="fine")(pending(memory)[0])
        first, again = graph.invoke(None, in_thread(str(thread))), graph.invoke(None, paused)
        assert told(first) == told(again)
        assert "fine" in told(first)["c1"]
        assert first["messages"][-1].artifact == again["messages"][-1].artifact
    assert ran == ["x", "x"]


def test_error_that_a_tool_node_turns_into_words_is_recorded_as_what_it_was(memory: Store) -> None:
    @tools.tool
    def pay(name: str) -> str:
        """Pay."""
        raise TimeoutError("no answer from the bank")

    first, again = replayed(node([pay]), emitting(ModelCall("c1", "pay", {"name": "x"})), memory)
    assert request_of(memory, "c1").state is State.UNKNOWN
    assert "no answer from the bank" in told(first)["c1"]
    assert "may or may not have happened" in told(again)["c1"]


def test_approved_tool_that_interrupts_by_itself_is_run_when_it_is_answered(memory: Store) -> None:
    ran: list[Any] = []

    @tools.tool
    def book(name: str) -> str:
        """Book a room."""
        ran.append(types.interrupt("which room?"))
        return f"{ran[-1]} for {name}"

    graph = node([book])
    graph.invoke(emitting(ModelCall("c1", "book", {"name": "ada"})), THREAD)
    approve()(request_of(memory, "c1"))
    asked = graph.invoke(None, THREAD)["__interrupt__"]
    assert (asked[0].value, ran) == ("which room?", [])
    assert told(graph.invoke(types.Command(resume="the blue one"), THREAD))["c1"].endswith("for ada")
    assert len(ran) == 1
    assert request_of(memory, "c1").state is State.DONE


def test_gate_inside_a_tool_lets_the_tool_interrupt(memory: Store) -> None:
    ran: list[Any] = []

    @tools.tool
    def book(name: str) -> str:
        """Book a room."""
        return gated(name)

    @sayso.gate(wait="block", key=lambda name: name, suspends=(graph_errors.GraphInterrupt,))
    def gated(name: str) -> str:
        ran.append(types.interrupt("which room?"))
        return f"{ran[-1]} for {name}"

    graph = graph_of(prebuilt.ToolNode([book]))
    with sayso.run("thread-1"), ScriptedReviewer(by="ada").approve():
        assert graph.invoke(emitting(ModelCall("c1", "book", {"name": "ada"})), THREAD)["__interrupt__"]
        state = graph.invoke(types.Command(resume="blue"), THREAD)
    assert told(state) == {"c1": "blue for ada"}
    assert ran == ["blue"]


# -- a node of one's own -------------------------------------------------------------------------------------------


def test_node_of_ones_own_holds_each_call(memory: Store) -> None:
    scene = Scene([], "pause")
    tool = tools.tool(scene.refund)

    def run_tools(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls
        return {"messages": [approved_call(call, tool, state=state) for call in calls]}

    graph = graph_of(run_tools)
    graph.invoke(emitting(refund("c1", amount=1.0), refund("c2", amount=2.0)), THREAD)
    assert [request.key for request in pending(memory)] == ["c1"]  # the node stops at its first call
    assert WORDS in str(request_of(memory, "c1").context)
    approve(changes={"amount": 0.5})(request_of(memory, "c1"))
    assert graph.invoke(types.Command(resume="anything"), THREAD)["__interrupt__"]
    reject("enough")(request_of(memory, "c2"))
    state = graph.invoke(None, THREAD)
    assert scene.refunds == [0.5]
    assert "refunded 0.50" in told(state)["c1"]
    assert "enough" in told(state)["c2"]


def test_node_of_ones_own_holds_a_function_in_async_code(memory: Store) -> None:
    ran: list[Any] = []

    async def deploy(arguments: dict[str, Any]) -> dict[str, Any]:
        ran.append(arguments)
        return {"deployed": arguments["to"]}

    async def step(state: Any) -> Any:
        call = {"name": "deploy", "args": {"to": "production"}, "id": "release-7"}
        return {"messages": [await aapprove(call, deploy, quorum=2)]}

    async def main() -> Any:
        graph = graph_of(step)
        assert (await graph.ainvoke(ASKED, THREAD))["__interrupt__"]
        for name in ("ada", "grace"):
            sayso.Review(by=name).approve(request_of(memory, "release-7").id)
        return await graph.ainvoke(None, THREAD)

    state = asyncio.run(main())
    assert ran == [{"to": "production"}]
    assert "production" in told(state)["release-7"]
