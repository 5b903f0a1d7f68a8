"""For which call of a runnable a decision counts: the one with the same input; and a run's name stands for one input.

Handlers note in a list what they did. The one invariant: what a person approved for one input never answers another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import OutputEvent, Tool, Workflow
from sayso.runs.decisions import IgnoredDecisionWarning
from sayso.runs.runnable import Runnable
from sayso.stores.base import Store
from tests.support.running import agent_of, awaited, ids, reason, started, yes


def deploying(ran: list[Any]) -> Tool:
    def deploy(env: str, replicas: float = 1) -> str:
        ran.append(env)
        return f"deployed to {env}"

    return Tool(deploy, requires_approval=True)


def flow_of(ran: list[Any]) -> Workflow:
    return Workflow(name="release").step(deploying(ran))


def nested_flow_of(ran: list[Any]) -> Workflow:
    return Workflow(name="outer").step(flow_of(ran))


def gated_flow_of(ran: list[Any]) -> Workflow:
    def deploy(env: str) -> str:
        ran.append(env)
        return f"deployed to {env}"

    return Workflow(name="release", requires_approval=True).step(Tool(deploy))


def agent_for(ran: list[Any]) -> Runnable:
    """Return an agent that deploys to what its prompt names."""

    def asked(messages: list[dict[str, Any]]) -> Any:
        return [("deploy", {"env": messages[-1]["content"]})]

    return agent_of([deploying(ran)], asked, name="deployer")


def agent_with_a_flow(ran: list[Any]) -> Runnable:
    def asked(messages: list[dict[str, Any]]) -> Any:
        return [("release", {"env": messages[-1]["content"]})]

    return agent_of([flow_of(ran)], asked, name="deployer")


KINDS: dict[str, tuple[Callable[[list[Any]], Runnable], str]] = {
    "tool": (deploying, "env"),
    "workflow": (flow_of, "env"),
    "gated workflow": (gated_flow_of, "env"),
    "nested workflow": (nested_flow_of, "env"),
    "agent": (agent_for, "prompt"),
    "agent with a workflow": (agent_with_a_flow, "prompt"),
}


def on(name: str, env: str) -> dict[str, Any]:
    return {name: env}


@pytest.fixture(params=KINDS, ids=[name.replace(" ", "-") for name in KINDS])
def kind(request: pytest.FixtureRequest, ran: list[Any]) -> tuple[Callable[[], Runnable], str]:
    """What makes a runnable that deploys, and the name of its input."""
    make, name = KINDS[request.param]
    return lambda: make(ran), name


def test_a_decision_for_one_input_does_not_run_it_for_another(
    each_store: Store, ran: list[Any], kind: tuple[Callable[[], Runnable], str]
) -> None:
    make, name = kind
    staging = started(make(), **on(name, "staging"))
    with pytest.warns(IgnoredDecisionWarning, match=f"{staging.run_id}.*staging.*starts a new run.*parent_id"):
        production = make()(**on(name, "production"), approval_decisions=yes(staging)).run()
    assert (reason(production), ran) == (("cancelled", "approval_required"), [])
    assert "production" in str(production.metadata["pending_approvals"][0]["input"])
    assert sayso.Review().get(ids(staging)[0]).state == "pending"
    assert reason(make()(**on(name, "staging"), approval_decisions=yes(staging)).run()) == ("success", None)
    assert ran == ["staging"]


def test_of_two_paused_calls_each_takes_its_own_of_one_dict(
    each_store: Store, ran: list[Any], kind: tuple[Callable[[], Runnable], str]
) -> None:
    make, name = kind
    paused = {env: started(make(), **on(name, env)) for env in ("staging", "production")}
    decisions = yes(paused["staging"]) | yes(paused["production"])
    for env in ("production", "staging"):
        output = make()(**on(name, env), approval_decisions=decisions).run()
        assert (output.run_id, reason(output)) == (paused[env].run_id, ("success", None))
    assert ran == ["production", "staging"]


@awaited
async def test_two_equal_calls_resumed_at_once_with_one_dict_both_run() -> None:
    sayso.configure(store="memory:")
    ran: list[Any] = []
    tool = deploying(ran)
    paused = [await tool(env="staging").collect() for _ in range(2)]
    decisions = yes(paused[0]) | yes(paused[1])
    outputs = await asyncio.gather(*(tool(env="staging", resume=decisions).collect() for _ in paused))
    assert [reason(output) for output in outputs] == [("success", None)] * 2
    assert {output.run_id for output in outputs} == {output.run_id for output in paused}
    assert ran == ["staging", "staging"]


def test_a_default_that_is_given_or_left_out_is_the_same_input(each_store: Store, ran: list[Any]) -> None:
    tool = deploying(ran)
    given: dict[str, Any]
    for given in ({"env": "staging", "replicas": 1}, {"env": "staging", "replicas": 1.0}, {"env": "staging"}, {}):
        paused = started(tool, env="staging")
        output = tool(**given, resume=yes(paused)).run()
        assert (output.run_id, reason(output)) == (paused.run_id, ("success", None)), given
    paused = started(tool, env="staging")
    with pytest.warns(IgnoredDecisionWarning, match="starts a new run"):
        assert tool(env="staging", replicas=2, resume=yes(paused)).run().run_id != paused.run_id


def test_without_input_where_none_is_needed_the_defaults_are_meant(each_store: Store, ran: list[Any]) -> None:
    def deploy(env: str = "staging") -> None:
        ran.append(env)

    tool = Tool(deploy, requires_approval=True)
    paused = started(tool, env="production")
    with pytest.warns(IgnoredDecisionWarning, match="production.*starts a new run"):
        output = tool(resume=yes(paused)).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])


def test_a_decision_of_another_runnable_of_the_same_name_is_not_taken(each_store: Store, ran: list[Any]) -> None:
    def release(env: str) -> None:
        ran.append(env)

    paused = started(flow_of(ran), env="staging")
    tool = Tool(release, requires_approval=True)
    with pytest.warns(IgnoredDecisionWarning, match="of the workflow release"):
        output = tool(env="staging", resume=yes(paused)).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])


def test_what_waits_inside_of_a_workflow_is_not_taken_by_its_tool_alone(each_store: Store, ran: list[Any]) -> None:
    paused = started(flow_of(ran), env="staging")
    with pytest.warns(IgnoredDecisionWarning, match="of the workflow release"):
        output = deploying(ran)(env="staging", resume=yes(paused)).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])


# -- a run's name ----------------------------------------------------------------------------------------------------


def test_a_runs_name_with_other_input_is_refused_and_runs_nothing(
    each_store: Store, ran: list[Any], kind: tuple[Callable[[], Runnable], str]
) -> None:
    make, name = kind
    paused = started(make(), run_id="order-1", **on(name, "staging"))
    for decisions in (None, yes(paused)):
        refused = make()(run_id="order-1", **on(name, "production"), approval_decisions=decisions).run()
        assert (reason(refused), ran) == (("error", "input_changed"), [])
        told = refused.status.message or ""
        for part in ("'order-1'", f'{name}="staging"', f'{name}="production"', "nothing was run", "another run_id="):
            assert part in told, (part, told)
    assert sayso.load_run("order-1").record.state == "paused"
    assert sayso.Review().get(ids(paused)[0]).state == "pending"
    again = make()(run_id="order-1", **on(name, "staging")).run()
    assert (reason(again), ids(again)) == (("cancelled", "approval_required"), ids(paused))
    ended = make()(run_id="order-1", **on(name, "staging"), approval_decisions=yes(paused)).run()
    assert (reason(ended), ran) == (("success", None), ["staging"])
    late = make()(run_id="order-1", **on(name, "production")).run()
    assert (reason(late), ran) == (("error", "input_changed"), ["staging"])
    assert sayso.load_run("order-1").record.state == "ended"


def test_the_refusal_of_other_input_shows_no_secret(each_store: Store) -> None:
    def rotate(service: str, api_key: str) -> None:
        """Rotate a key."""

    tool = Tool(rotate, requires_approval=True)
    started(tool, run_id="order-1", service="mail", api_key="hunter2-the-first")
    refused = tool(run_id="order-1", service="mail", api_key="hunter2-the-second").run()
    assert reason(refused) == ("error", "input_changed")
    assert "hunter2" not in refused.model_dump_json()


def test_a_runs_name_alone_goes_on_with_it(each_store: Store, ran: list[Any]) -> None:
    paused = started(deploying(ran), run_id="order-1", env="staging")
    output: OutputEvent = deploying(ran)(run_id="order-1", resume=yes(paused)).run()
    assert (reason(output), ran) == (("success", None), ["staging"])
