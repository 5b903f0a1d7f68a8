"""What cannot be used is refused where it is written, by the name that it was written with, and nothing was run.

The invariant: no refusal names an option that its reader has not written.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import channels, errors
from sayso.runs.runnable import Runnable
from tests.support.acting import held


@pytest.fixture(autouse=True)
def in_memory() -> None:
    sayso.configure(store="memory:")


def pay(amount: int, to: str = "alice") -> str:
    """Pay."""
    raise AssertionError


def elsewhere(amuont: int) -> bool:
    raise AssertionError


SHARED: dict[str, list[Any]] = {
    "expires": ["soon", 5, "0s", None, "99999d"], "approval_expires": ["soon", -1], "quorum": [0, True, "2", 1.5, None],
    "roles": ["finance", {5}, None, {""}], "risk": [5], "idempotent": ["no", None, 1], "verify": [True, elsewhere],
    "store": ["nonsense:x", 5, object()], "escalate_after": ["1h", "x", 5], "escalate_to": [{"boss"}, "boss", 5],
    "notify_arguments": ["yes", None], "name": ["", 5, " a", "p\x1b"], "description": [5],
}  # fmt: skip
GATE: dict[str, list[Any]] = SHARED | {
    "when": [None, 1, "no", elsewhere], "prompt": [5, elsewhere], "redact": ["to", 5, {""}, {"iban"}, None],
    "redactor": ["x", 5], "retries": [-1, True, "1", None], "wait": ["never", None, True], "timeout": ["x", 5, "0s"],
    "on_expiry": ["approve", None], "always": ["yes", None],
}  # fmt: skip
TOOL: dict[str, list[Any]] = SHARED | {
    "requires_approval": GATE["when"], "approval_prompt": GATE["prompt"], "approval_description": [5],
    "approval_redact_keys": GATE["redact"], "approval_redactor": GATE["redactor"],
    "default_params": [5, {"zz": 1}, "x"], "tracing_provider": SHARED["store"],
}  # fmt: skip
RUNNABLE = {name: values for name, values in TOOL.items() if name not in {"verify", "default_params"}} | {
    "requires_approval": ["no", 1], "approval_prompt": [5], "approval_redact_keys": ["to", 5],
}  # fmt: skip
HUMAN = {name: SHARED[name] for name in ("name", "description", "expires", "roles", "risk", "store")}
PLACES: dict[str, tuple[Callable[..., Any], dict[str, list[Any]]]] = {
    "gate": (lambda **options: sayso.gate(pay, **options), GATE),
    "confirm_first": (
        lambda **options: sayso.confirm_first(pay, **options),
        {name: values for name, values in GATE.items() if name not in {"wait", "timeout", "on_expiry"}},
    ),
    "tool": (lambda **options: sayso.tool(pay, **options), TOOL | {"require_confirmation": ["yes", None]}),
    "Tool": (lambda **options: sayso.Tool(pay, **options), TOOL),
    "Agent": (
        lambda **options: sayso.Agent(**{"model": answer, **options}),
        RUNNABLE | {"tools": [pay, "pay"], "system_prompt": [5], "max_iters": [0, "3", None, True]},
    ),
    "Workflow": (sayso.Workflow, {name: values for name, values in RUNNABLE.items() if name != "description"}),
    "step": (
        lambda **options: sayso.Workflow(name="w").step(pay, **options),
        {"name": [5, "a b"], "depends_on": [5]},
    ),
    "human_in_the_loop": (lambda **options: channels.human_in_the_loop(carry, **options), HUMAN),
    "ask": (
        lambda **options: sayso.ask("Which?", **{"wait": "raise", **options}),
        {
            "type": [5, "int"], "choices": ["abc", [], 5], "expires": ["x"], "roles": ["finance", 5], "risk": [5],
            "wait": ["x"], "on_expiry": ["x"], "store": ["x", 5],
        },
    ),
    "configure": (sayso.configure, {"store": ["nonsense", 5], "reviewer": [5]}),
}  # fmt: skip
INTERNAL = re.compile(r"\b(when|prompt|context|redact|redactor|named)=")


async def answer(messages: Any, tools: Any) -> str:
    raise AssertionError


async def carry(request: channels.HumanInputRequest) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("place", "option"), [(place, option) for place, (_, table) in PLACES.items() for option in table]
)
def test_a_value_that_cannot_be_used_is_refused_by_the_name_that_was_written(place: str, option: str) -> None:
    make, table = PLACES[place]
    for value in table[option]:
        with pytest.raises((errors.ConfigError, TypeError)) as refused:
            make(**{option: value})
        text = str(refused.value)
        assert f"{option}=" in text, (value, text)
        assert "othing was" in text, (value, text)
        strange = {f"{name}=" for name in INTERNAL.findall(text)} - {f"{name}=" for name in GATE if name == option}
        assert place in {"gate", "confirm_first"} or not strange, (value, text)
    assert sayso.Review().list(state="all").requests == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda: sayso.ask(5, wait="raise"),  # type: ignore[call-overload]
        lambda: sayso.Workflow(name="w").step(5),  # type: ignore[arg-type]
        lambda: channels.human_in_the_loop(None),  # type: ignore[arg-type]
        lambda: sayso.Agent(model=5),
        lambda: sayso.Agent(model=answer, tools=[5]),  # type: ignore[list-item]
        lambda: sayso.ReAct("q -> a", model=answer, max_itres=3),  # type: ignore[call-arg]
        lambda: sayso.Agent(model=answer, max_itres=3),
        lambda: sayso.Workflow(nmae="w"),
        lambda: sayso.configure(stroe="memory:"),  # type: ignore[call-arg]
        lambda: sayso.ask("Which?", chioces=["a"]),  # type: ignore[call-overload]
    ],
    ids=["ask", "step", "human", "model", "tools", "ReAct", "Agent", "Workflow", "configure", "ask's options"],
)
def test_what_is_no_argument_at_all_is_refused_and_nothing_was_run(call: Callable[[], Any]) -> None:
    with pytest.raises((errors.ConfigError, TypeError), match=r"othing was|did you mean|unexpected keyword"):
        call()


# -- hooks that fail at the call -------------------------------------------------------------------------------------


def boom(**_: Any) -> Any:
    raise ValueError("boom")


async def boom_later(**_: Any) -> Any:
    raise ValueError("boom")


HOOKS: dict[str, list[Callable[..., Any]]] = {
    "requires_approval": [boom, boom_later, lambda: None, lambda: {"required": "perhaps"}],
    "approval_prompt": [boom, boom_later, lambda: 5],
    "approval_description": [boom, lambda: 5],
}


@pytest.mark.parametrize("option", HOOKS)
def test_a_hook_that_fails_is_named_as_it_was_given(option: str) -> None:
    for hook in HOOKS[option]:
        tool = sayso.Tool(pay, **{"requires_approval": True, option: hook})
        with pytest.raises(errors.PolicyError) as refused:
            asyncio.run(tool.acall(5))
        assert str(refused.value).startswith(f"{option}=")
        assert "the call was not run" in str(refused.value)
        assert INTERNAL.findall(str(refused.value)) == []
        output = tool(amount=5).run()
        assert output.status.reason == "approval_policy_error"
        assert f"{option}=" in output.status.message
        assert INTERNAL.findall(output.status.message) == []
    assert sayso.Review().list(state="all").requests == ()


@pytest.mark.parametrize("made", ["Agent", "Workflow"])
def test_agents_and_workflows_name_their_hooks_so_too(made: str) -> None:
    runnable: Runnable = (
        sayso.Agent(model=answer, requires_approval=boom)
        if made == "Agent"
        else sayso.Workflow(name="w", requires_approval=boom).step(pay)
    )
    output = (runnable(prompt="Go.") if made == "Agent" else runnable(amount=5)).run()
    assert output.status.message.startswith("requires_approval=boom of ")


def test_a_reviewer_reads_the_rule_as_it_was_given() -> None:
    def is_large(amount: int) -> bool:
        return amount > 3

    request_id = held(sayso.Tool(pay, requires_approval=is_large).call, 5).confirmation_id
    assert sayso.Review().get(request_id).rule == "requires_approval=is_large"
    request_id = held(sayso.gate(pay, when=is_large, wait="raise"), 6).confirmation_id
    assert sayso.Review().get(request_id).rule == "when=is_large"


def test_a_denial_without_a_reason_names_the_rule_as_it_was_given() -> None:
    def never(amount: int) -> Any:
        return sayso.Verdict("deny")

    with pytest.raises(sayso.ConfirmationDenied, match="requires_approval=never denies pay"):
        sayso.Tool(pay, requires_approval=never).call(5)
