"""Calling a tool, an agent or a workflow: wrong arguments, awaiting, and runs that nobody begins.

The one invariant: what was written and does nothing says so.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from sayso import Agent, OutputEvent, Tool, Workflow, tool
from sayso.runs.runnable import Runnable
from sayso.stores.base import Store
from tests.support.running import agent_of, awaited, ids, reason, yes


def tool_of(ran: list[Any]) -> Tool:
    def pay(amount: int, to: str = "alice") -> str:
        ran.append(amount)
        return f"paid {amount} to {to}"

    return Tool(pay, requires_approval=True)


def workflow_of(ran: list[Any]) -> Workflow:
    return Workflow(name="flow").step(tool_of(ran))


def paying_agent(ran: list[Any]) -> Agent:
    return agent_of([tool_of(ran)], [("pay", {"amount": 1})])


KINDS: dict[str, tuple[Callable[[list[Any]], Runnable], dict[str, Any]]] = {
    "tool": (tool_of, {"amount": 1}),
    "agent": (paying_agent, {"prompt": "go"}),
    "workflow": (workflow_of, {"amount": 1}),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, memory: Store, ran: list[Any]) -> tuple[Runnable, dict[str, Any]]:
    """A runnable that waits, and its input."""
    make, given = KINDS[request.param]
    return make(ran), given


# -- wrong arguments -------------------------------------------------------------------------------------------------


def test_a_wrong_keyword_is_refused_at_the_call(kind: tuple[Runnable, dict[str, Any]], ran: list[Any]) -> None:
    runnable, given = kind
    (name,) = given
    decided: Any = {"approval_decision": {}}
    wrong: Any = {name[:-1]: given[name]}
    with pytest.raises(TypeError, match=rf"{runnable.name}\(\) has no {name[:-1]}=; did you mean {name}=\?"):
        runnable(**wrong)
    with pytest.raises(TypeError, match="no approval_decision=; did you mean approval_decisions="):
        runnable(**given, **decided)
    odd: Any = {"colour": "red"}
    with pytest.raises(TypeError, match=f"no colour=; it takes .*{name}"):
        runnable(**given, **odd)
    with pytest.raises(TypeError, match=f"{runnable.name} was not called: .*too many"):
        runnable(1, 2, 3, 4)
    with pytest.raises(TypeError, match=f"{runnable.name} was not called: .*(multiple values|too many)"):
        runnable(given[name], **given)
    assert ran == []


def test_what_takes_any_argument_takes_any(memory: Store) -> None:
    def note(text: str, **more: str) -> list[str]:
        return [text, *more]

    assert Tool(note)(text="a", colour="red").run().output == ["a", "colour"]


# -- awaiting --------------------------------------------------------------------------------------------------------


@awaited
async def test_awaiting_a_call_gives_its_output() -> None:
    ran: list[Any] = []
    for make, given in KINDS.values():
        runnable = make(ran)
        paused = await runnable(**given)
        assert isinstance(paused, OutputEvent)
        assert reason(paused) == ("cancelled", "approval_required")
        assert reason(await runnable(parent_id=paused.run_id, resume=yes(paused))) == ("success", None)
    first, second = await asyncio.gather(tool_of(ran)(amount=2), tool_of(ran)(amount=3))
    assert ids(first) != ids(second)


@awaited
async def test_collecting_after_the_events_gives_the_same_output() -> None:
    run = tool_of([])(amount=1)
    *_, last = [event async for event in run]
    assert await run.collect() is last
    assert await run is last
    with pytest.raises(RuntimeError, match="already executed"):
        async for _ in run:
            pass


# -- runs that nobody begins -----------------------------------------------------------------------------------------


def thrown_away(runnable: Runnable, given: dict[str, Any]) -> None:
    runnable(**given)
    gc.collect()


def test_a_run_that_is_thrown_away_before_it_began_warns_at_its_line(
    kind: tuple[Runnable, dict[str, Any]], ran: list[Any]
) -> None:
    runnable, given = kind
    with pytest.warns(
        RuntimeWarning, match=f"the run of {runnable.name!r} was never started.*nothing was called"
    ) as told:
        thrown_away(runnable, given)
    (warning,) = told
    line = thrown_away.__code__.co_firstlineno + 1
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert ran == []


def test_each_line_that_throws_a_run_away_warns_once(memory: Store, recwarn: pytest.WarningsRecorder) -> None:
    tool = tool_of([])
    warnings.simplefilter("default")
    for _ in range(3):
        tool(amount=1)
    tool(amount=1)
    assert len([warning for warning in recwarn if warning.category is RuntimeWarning]) == 2


@awaited
async def test_a_run_that_was_begun_does_not_warn() -> None:
    tool = tool_of([])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = tool(amount=1)
        async for _ in run:
            break
        del run
        await tool(amount=1)
        await tool(amount=1).collect()
        await asyncio.to_thread(lambda: tool(amount=1).run())
        made = tool(amount=1).collect()
        await asyncio.ensure_future(made)
        kept = [tool(amount=1)]
        gc.collect()
        await kept.pop()
        gc.collect()


def test_a_run_that_was_refused_in_a_loop_does_not_warn_as_well(memory: Store) -> None:
    async def wrong() -> None:
        with pytest.raises(RuntimeError, match="collect"):
            tool_of([])(amount=1).run()

    asyncio.run(wrong())
    gc.collect()


# -- what a decorated function keeps ---------------------------------------------------------------------------------


def test_a_tool_keeps_the_name_the_docstring_and_the_signature_of_its_function(memory: Store) -> None:
    def pay(amount: int, to: str = "alice") -> str:
        """Send money."""
        return f"paid {amount} to {to}"

    async def apay(amount: int) -> str:
        """Send money later."""
        return f"paid {amount}"

    for function in (pay, apay):
        for made in (tool(function), tool(require_confirmation=True, name="named")(function), Tool(function)):
            assert inspect.signature(made) == inspect.signature(function)
            assert (made.__name__, made.__doc__) == (function.__name__, function.__doc__)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            assert inspect.unwrap(made) is function
            assert made.__module__ == __name__
    assert tool(pay).call(5) == tool(pay)(amount=5).run().output == "paid 5 to alice"
    partial = Tool(functools.partial(pay, to="bob"), name="pay_bob")
    assert inspect.signature(partial) == inspect.signature(functools.partial(pay, to="bob"))
    assert partial(amount=1).run().output == "paid 1 to bob"
