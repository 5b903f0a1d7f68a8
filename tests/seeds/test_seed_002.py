"""The approval face as it is described: each piece of code there runs here with its import root changed.

The words around the code are ours; the code in the tests is the description's own, down to its names. Its models are
replaced by scripted ones, so that nothing leaves the machine. The one invariant: no test changes what the piece says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import sayso
from sayso import load_run
from sayso.runs.agent import Tool as AnyTool
from sayso.runs.messages import Model, ModelCall, Reply
from sayso.testing import ScriptedModel
from tests.conftest import Clock
from tests.support.running import awaited

Turns = list[Any]


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[[Turns], ScriptedModel]:
    """Let every model's name stand for a scripted one."""
    sayso.configure(store="memory:")

    def script(turns: Turns) -> ScriptedModel:
        model = ScriptedModel(turns)
        monkeypatch.setattr("sayso.runs.agent.model_of", lambda _: model)
        return model

    return script


def last_content(messages: list[dict[str, Any]]) -> str:
    return str(messages[-1]["content"])


REFUND: Turns = [[("refund_customer", {"amount": 250})], last_content]
ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def refund_customer(amount: int) -> str:
    ran.append(amount)
    return f"refunded ${amount}"


@awaited
async def test_quick_start(says: Callable[[Turns], Model]) -> None:
    says(REFUND)
    from sayso import Agent, Tool
    from sayso.types.events import ApprovalEvent

    refund = Tool(
        handler=refund_customer,
        requires_approval=lambda amount: amount > 100,
        approval_prompt=lambda amount: f"Approve refunding ${amount}?",
    )

    agent = Agent(
        name="support_agent",
        model="openai/gpt-5",
        tools=[refund],
    )

    approval_id = None
    seen = None
    async for event in agent(prompt="Refund $250"):
        if isinstance(event, ApprovalEvent):
            approval_id = event.approval_id
            seen = event
    assert (event.status.code, event.status.reason) == ("cancelled", "approval_required")
    assert ran == []
    assert seen is not None
    assert (seen.runnable_path, seen.runnable_name) == ("support_agent.refund_customer", "refund_customer")
    assert (seen.runnable_type, seen.input, seen.prompt) == ("Tool", {"amount": 250}, "Approve refunding $250?")
    assert abs(seen.t0 - time.time() * 1000) < 60_000

    result = await agent(
        prompt="Refund $250",
        approval_decisions={approval_id: True},
    ).collect()
    assert (result.status.code, result.output, ran) == ("success", "refunded $250", [250])


@awaited
async def test_configuring_gates(says: Callable[[Turns], Model]) -> None:
    from sayso import Tool

    def deploy_handler(env: str, version: str = "1") -> str:
        ran.append(env)
        return env

    high_risk_deploy = Tool(
        handler=deploy_handler,
        requires_approval=lambda env, **_: env == "production",
        approval_prompt=lambda env, **_: f"Deploy to {env}?",
        approval_description="Deploys ship traffic to the listed environment.",
    )
    sayso.configure(store="memory:")
    assert (await high_risk_deploy(env="staging").collect()).output == "staging"
    result = await high_risk_deploy(env="production").collect()
    (entry,) = result.metadata["pending_approvals"]
    assert entry["prompt"] == "Deploy to production?"
    assert entry["description"] == "Deploys ship traffic to the listed environment."
    assert ran == ["staging"]


@awaited
async def test_description_may_be_a_callable_too(says: Callable[[Turns], Model]) -> None:
    says([])
    tool = AnyTool(
        refund_customer, requires_approval=True, approval_description=lambda amount: f"{amount} leaves the account."
    )
    (entry,) = (await tool(amount=7).collect()).metadata["pending_approvals"]
    assert entry["description"] == "7 leaves the account."


@pytest.mark.parametrize("option", ["requires_approval", "approval_prompt", "approval_description"])
@awaited
async def test_a_failing_callable_is_a_policy_error(says: Callable[[Turns], Model], option: str) -> None:
    says([])

    def fails(amount: int) -> Any:
        raise ValueError("the policy is broken")

    options: dict[str, Any] = {"requires_approval": True, option: fails}
    result = await AnyTool(refund_customer, **options)(amount=7).collect()
    assert (result.status.code, result.status.reason, ran) == ("error", "approval_policy_error", [])


async def paused_agent(says: Callable[[Turns], Model], **options: Any) -> tuple[sayso.Agent, str, str]:
    model = says(REFUND)
    refund = AnyTool(handler=refund_customer, requires_approval=True)
    agent = sayso.Agent(name="support_agent", model="openai/gpt-5", tools=[refund], **options)
    assert model is agent.model
    result = await agent(prompt="Refund $250").collect()
    (entry,) = result.metadata["pending_approvals"]
    return agent, result.run_id, entry["approval_id"]


@awaited
async def test_resolution_with_audit_fields(says: Callable[[Turns], Model], clock: Clock) -> None:
    agent, run_id, approval_id = await paused_agent(says)
    from sayso.types.approval import ApprovalResolution

    result = await agent(
        prompt="Refund $250",
        approval_decisions={
            approval_id: ApprovalResolution(
                approved=False,
                reason="Refund exceeds policy limit.",
                approver_id="user_42",
                comment="Customer is outside the refund window.",
            )
        },
    ).collect()
    assert (result.status.code, ran) == ("success", [])
    assert "Refund exceeds policy limit." in result.output
    (span,) = [span for span in load_run(run_id).spans if span.name == "refund_customer"]
    resolution = span.metadata["approval"]["resolution"]
    assert (resolution["approver_id"], resolution["approved"]) == ("user_42", False)
    assert resolution["comment"] == "Customer is outside the refund window."
    assert resolution["reason"] == "Refund exceeds policy limit."
    assert resolution["decided_at"] == int(clock.at.timestamp() * 1000)


@awaited
async def test_denial_of_a_direct_call_cancels_it(says: Callable[[Turns], Model]) -> None:
    says([])
    tool = AnyTool(refund_customer, requires_approval=True)
    (entry,) = (await tool(amount=7).collect()).metadata["pending_approvals"]
    result = await tool(amount=7, approval_decisions={entry["approval_id"]: False}).collect()
    assert (result.status.code, result.status.reason, ran) == ("cancelled", "approval_denied", [])


@awaited
async def test_time_limited_decision(says: Callable[[Turns], Model], clock: Clock) -> None:
    agent, run_id, approval_id = await paused_agent(says)
    now_ms = int(clock.at.timestamp() * 1000)
    from sayso.types.approval import ApprovalResolution

    decision = ApprovalResolution(
        approved=True,
        approver_id="user_42",
        comment="Approved from the support console.",
        expires_at=now_ms + 60_000,  # valid for 60s
    )
    clock.tick(seconds=60)
    result = await agent(prompt="", parent_id=run_id, approval_decisions={approval_id: decision}).collect()
    assert (result.status.reason, ran) == ("approval_required", [])
    (entry,) = result.metadata["pending_approvals"]
    assert entry["metadata"]["approval"]["expired"] is True
    assert result.usage["approvals:expired"] == 1
    clock.tick(seconds=-1)
    result = await agent(prompt="", parent_id=run_id, approval_decisions={entry["approval_id"]: decision}).collect()
    assert (result.status.code, ran) == ("success", [250])


@awaited
async def test_redacted_keys(says: Callable[[Turns], Model]) -> None:
    says([])
    from sayso import Tool

    def rotate_key_impl(api_key: str, password: str, customer_email: str) -> str:
        ran.append((api_key, password, customer_email))
        return "rotated"

    rotate_key = Tool(
        handler=rotate_key_impl,
        requires_approval=True,
        approval_prompt="Rotate this API key?",
        approval_redact_keys=["api_key", "password"],
    )
    given = {"api_key": "sk-1", "password": "pw-1", "customer_email": "ada@example.org"}
    result = await rotate_key(**given).collect()
    (entry,) = result.metadata["pending_approvals"]
    assert entry["input"] == {"api_key": "***", "password": "***", "customer_email": "ada@example.org"}
    assert result.input == entry["input"]
    (span,) = load_run(result.run_id).spans
    assert span.input == span.metadata["approval"]["input"] == entry["input"]
    await rotate_key(**given, approval_decisions={entry["approval_id"]: True}).collect()
    assert ran == [("sk-1", "pw-1", "ada@example.org")]

    rotate_key = Tool(
        handler=rotate_key_impl,
        requires_approval=True,
        approval_redactor=lambda input: {  # noqa: A006  the description's own word
            **input,
            "api_key": "***",
            "customer_email": input["customer_email"].split("@")[0] + "@***",
        },
    )
    (entry,) = (await rotate_key(**given).collect()).metadata["pending_approvals"]
    assert entry["input"] == {"api_key": "***", "password": "***", "customer_email": "ada@***"}


@pytest.mark.parametrize("redactor", [lambda given: given["nothing"], lambda given: [given], lambda _: None])
@awaited
async def test_a_bad_redactor_shows_a_placeholder(says: Callable[[Turns], Model], redactor: Any) -> None:
    says([])

    def rotate(name: str) -> str:
        ran.append(name)
        return name

    tool = AnyTool(rotate, requires_approval=True, approval_redactor=redactor)
    result = await tool(name="hush").collect()
    assert "hush" not in result.model_dump_json()
    (entry,) = result.metadata["pending_approvals"]
    await tool(name="hush", resume={entry["approval_id"]: True}).collect()
    assert ran == ["hush"]


@awaited
async def test_a_fresh_decision_for_every_call(says: Callable[[Turns], Model]) -> None:
    says([])

    def wire(amount: int, idempotency_key: str) -> str:
        ran.append((amount, idempotency_key))
        return "wired"

    tool = AnyTool(wire, requires_approval=True, default_params={"idempotency_key": lambda: str(uuid4())})
    first, second = await tool(amount=5000).collect(), await tool(amount=5000).collect()
    ids = [output.metadata["pending_approvals"][0]["approval_id"] for output in (first, second)]
    keys = [output.metadata["pending_approvals"][0]["input"]["idempotency_key"] for output in (first, second)]
    assert len(set(ids)) == len(set(keys)) == 2
    await tool(amount=5000, approval_decisions={ids[1]: True}).collect()
    assert ran == [(5000, keys[1])]


@awaited
async def test_workflow(says: Callable[[Turns], Model]) -> None:
    says([])
    from sayso import Tool, Workflow

    def deploy_staging() -> str:
        ran.append("staging")
        return "staged"

    def deploy_prod_impl() -> str:
        ran.append("prod")
        return "promoted"

    def announce() -> str:
        ran.append("announce")
        return "announced"

    deploy_prod = Tool(
        name="deploy_prod",
        handler=deploy_prod_impl,
        requires_approval=True,
        approval_prompt="Promote to prod?",
    )

    workflow = (
        Workflow(name="release_pipeline")
        .step(deploy_staging)
        .step(deploy_prod)
        .step(announce, depends_on=["deploy_prod"])
    )
    result = await workflow().collect()
    assert (result.status.reason, ran) == ("approval_required", ["staging"])
    (entry,) = result.metadata["pending_approvals"]
    assert (entry["runnable_path"], entry["prompt"]) == ("release_pipeline.deploy_prod", "Promote to prod?")
    result = await workflow(approval_decisions={entry["approval_id"]: True}).collect()
    assert (result.status.code, ran) == ("success", ["staging", "prod", "announce"])


@awaited
async def test_a_subset_of_decisions_advances_only_its_steps(says: Callable[[Turns], Model]) -> None:
    says([])
    one, two = (
        AnyTool(lambda name=name: ran.append(name), name=name, requires_approval=True) for name in ("one", "two")
    )
    workflow = sayso.Workflow(name="both").step(one).step(two)
    result = await workflow().collect()
    ids = {entry["runnable_name"]: entry["approval_id"] for entry in result.metadata["pending_approvals"]}
    assert set(ids) == {"one", "two"}
    result = await workflow(approval_decisions={ids["two"]: True}).collect()
    assert (result.status.reason, ran) == ("approval_required", ["two"])
    assert [entry["approval_id"] for entry in result.metadata["pending_approvals"]] == [ids["one"]]


@awaited
async def test_durable_resume(says: Callable[[Turns], Model], tmp_path: Path) -> None:
    says(REFUND)
    refund = AnyTool(handler=refund_customer, requires_approval=True)
    from sayso import Agent
    from sayso.state.tracing.providers import JsonlTracingProvider

    provider = JsonlTracingProvider.configured(_path=Path("traces.jsonl"))

    agent = Agent(
        name="support_agent",
        model="openai/gpt-5",
        tools=[refund],
        tracing_provider=provider,
    )
    paused = await agent(prompt="Refund $250").collect()
    paused_run_id, approval_id = paused.run_id, paused.metadata["pending_approvals"][0]["approval_id"]
    assert Path("traces.jsonl").exists()  # noqa: ASYNC240

    result = await agent(
        prompt="Refund $250",
        parent_id=paused_run_id,
        approval_decisions={approval_id: True},
    ).collect()
    assert (result.status.code, result.output, ran) == ("success", "refunded $250", [250])


@awaited
async def test_a_second_worker_is_told_so(says: Callable[[Turns], Model]) -> None:
    agent, paused_run_id, approval_id = await paused_agent(says)
    await agent(prompt="Refund $250", parent_id=paused_run_id, approval_decisions={approval_id: True}).collect()
    result = await agent(
        prompt="Refund $250",
        parent_id=paused_run_id,
        approval_decisions={approval_id: True},
    ).collect()
    assert result.status.reason == "approval_already_claimed"
    assert ran == [250]


@awaited
async def test_pending_approvals_can_be_listed(says: Callable[[Turns], Model]) -> None:
    says([[("refund_customer", {"amount": 1}), ("refund_customer", {"amount": 2})], "both"])
    refund = AnyTool(handler=refund_customer, requires_approval=True)
    agent = sayso.Agent(name="support_agent", model="openai/gpt-5", tools=[refund])
    from sayso import ApprovalEvent

    pending = []
    async for event in agent(prompt="..."):
        if isinstance(event, ApprovalEvent):
            pending.append(event)  # noqa: PERF401  the description's own words
    assert [event.input for event in pending] == [{"amount": 1}, {"amount": 2}]

    result = await agent(prompt="...").collect()
    lines = []
    if result.status.reason == "approval_required":
        for entry in result.metadata["pending_approvals"]:
            line = (entry["approval_id"], entry["runnable_path"], entry["prompt"], entry["input"])
            lines.append(line)
    assert [line[1:] for line in lines] == [
        ("support_agent.refund_customer", None, {"amount": 1}),
        ("support_agent.refund_customer", None, {"amount": 2}),
    ]
    assert load_run(result.run_id).pending_approvals() == result.metadata["pending_approvals"]

    paused_run_id = result.run_id
    decisions = {entry["approval_id"]: True for entry in result.metadata["pending_approvals"]}
    result = await agent(prompt="...", parent_id=paused_run_id, approval_decisions=decisions).collect()
    assert (result.output, sorted(ran)) == ("both", [1, 2])


@awaited
async def test_counters_of_nested_runs_are_summed(says: Callable[[Turns], Model]) -> None:
    agent, run_id, approval_id = await paused_agent(says)
    outer = sayso.Workflow(name="desk").step(agent, prompt="Refund $250")
    paused = await outer().collect()
    assert paused.usage == {"turns": 1, "approvals:required": 1}
    decisions = {entry["approval_id"]: False for entry in paused.metadata["pending_approvals"]}
    result = await outer(approval_decisions=decisions).collect()
    assert result.usage == {"turns": 1, "approvals:denied": 1}
    assert load_run(run_id).pending_approvals()[0]["approval_id"] == approval_id  # another run's gate still waits
    assert Reply("", [ModelCall("1", "x", {})]).message["role"] == "assistant"
