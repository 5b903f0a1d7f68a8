"""The Claude Agent SDK's adapter, with the SDK's own types and the payloads that its command line 2.1.330 sent."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import aio, config
from sayso.errors import ConfigError, StoreUnavailableError
from sayso.integrations.claude_agent import ClaudeApprovals
from sayso.model.request import State
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import approve, reject, run_of

sdk: Any = framework("claude_agent_sdk", "claude_agent")

SESSION = "7d333a07-b16b-47ea-8522-6cf2ce854682"


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*words: Any, **given: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*words, **given), 60))

    return run


def call(
    event: str = "PreToolUse", call_id: str = "toolu_1", command: str = "rm -rf build", **more: Any
) -> dict[str, Any]:
    return {
        "session_id": SESSION, "transcript_path": "/t.jsonl", "cwd": "/site", "permission_mode": "default",
        "effort": {"level": "medium"}, "hook_event_name": event, "tool_name": "Bash",
        "tool_input": {"command": command, "description": "Remove the build"}, "tool_use_id": call_id, **more,
    }  # fmt: skip


async def before(approvals: ClaudeApprovals, data: dict[str, Any]) -> dict[str, Any]:
    given = await approvals.pre_tool_use(data, data.get("tool_use_id"), {"signal": None})
    return given.get("hookSpecificOutput", {})


async def permission(approvals: ClaudeApprovals, data: dict[str, Any]) -> Any:
    context = sdk.ToolPermissionContext(tool_use_id=data["tool_use_id"])
    return await approvals.can_use_tool(data["tool_name"], data["tool_input"], context)


async def decided(verb: str, count: int = 1, **options: Any) -> None:
    """Decide what waits, as soon as so many wait."""
    review = aio.Review(by="ada")
    while await review.count() < count:  # noqa: ASYNC110  the count is in the store
        await asyncio.sleep(0)
    async for request in review.list():
        await getattr(review, verb)(request.id, **options)


def states() -> list[State]:
    return [request.state for request in sayso.Review().list(state="all").requests]


@pytest.mark.usefixtures("place")
def test_options_get_the_hooks_and_keep_their_own() -> None:
    async def mine(*_: object) -> dict[str, Any]:
        return {}

    own = sdk.ClaudeAgentOptions(cwd="/site", hooks={"PreToolUse": [sdk.HookMatcher(hooks=[mine])]})
    given = ClaudeApprovals().options(own)
    assert [len(given.hooks[event]) for event in ("PreToolUse", "PostToolUse", "PostToolUseFailure")] == [2, 1, 1]
    assert given.hooks["PreToolUse"][1].on_failure == "block"
    assert given.can_use_tool is not None
    assert ClaudeApprovals(mode="defer").options(own).can_use_tool is None
    assert (own.can_use_tool, len(own.hooks["PreToolUse"])) == (None, 1)
    with pytest.raises(ConfigError, match="can_use_tool is set already"):
        ClaudeApprovals().options(dataclasses.replace(own, can_use_tool=mine))
    with pytest.raises(ConfigError, match="'block' or 'defer'"):
        ClaudeApprovals(mode="later")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="quorums"):
        ClaudeApprovals(quorums=2)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("mode", ["block", "defer"])
@in_a_loop
async def test_a_tool_that_only_reads_passes_and_a_rule_may_say_otherwise(mode: Any) -> None:
    read = call(tool_name="Read", tool_input={"file_path": "/a"})
    assert await ClaudeApprovals(mode=mode).pre_tool_use(read, "toolu_1", None) == {}
    assert (await before(ClaudeApprovals(mode=mode, when=True), read))["permissionDecision"] in {"ask", "defer"}
    assert await ClaudeApprovals(mode="defer", when=lambda command: "rm" in command).pre_tool_use(
        call(call_id="toolu_2", command="ls"), "toolu_2", None
    ) == {}  # fmt: skip


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_block_mode_waits_and_runs_what_the_person_made_of_it() -> None:
    async with ClaudeApprovals() as approvals:
        assert (await before(approvals, call()))["permissionDecision"] == "ask"
        result, _ = await asyncio.gather(
            permission(approvals, call()), decided("approve", changes={"command": "ls build"}, comment="look first")
        )
        assert isinstance(result, sdk.PermissionResultAllow)
        assert result.updated_input == {"command": "ls build", "description": "Remove the build"}
        assert states() == [State.RUNNING], "the command line has not run it yet"
        told = await approvals.post_tool_use(call("PostToolUse", command="ls build", tool_response={}), "toolu_1", None)
        assert "look first" in told["hookSpecificOutput"]["additionalContext"]
    assert states() == [State.DONE]


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_a_no_is_told_in_words_that_stop_retries() -> None:
    async with ClaudeApprovals() as approvals:
        await before(approvals, call())
        result, _ = await asyncio.gather(permission(approvals, call()), decided("reject", comment="build is shared"))
    assert isinstance(result, sdk.PermissionResultDeny)
    assert "build is shared" in result.message
    assert "do not repeat" in result.message


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_defer_ends_the_run_and_the_resumed_call_goes_on_in_another_process() -> None:
    first = await before(ClaudeApprovals(mode="defer"), call())
    assert first["permissionDecision"] == "defer"
    await decided("approve")
    async with ClaudeApprovals(mode="defer") as approvals:
        assert (await before(approvals, call()))["permissionDecision"] == "allow"
        assert states() == [State.RUNNING]
        await approvals.post_tool_use(call("PostToolUse", tool_response={}), "toolu_1", None)
        assert (await before(approvals, call()))["permissionDecision"] == "deny", "it has run"
    assert states() == [State.DONE]


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_ten_resumes_at_once_start_it_once() -> None:
    await before(ClaudeApprovals(mode="defer"), call())
    await decided("approve")
    answers = await asyncio.gather(*(before(ClaudeApprovals(mode="defer"), call()) for _ in range(10)))
    assert sorted(answer["permissionDecision"] for answer in answers) == ["allow"] + ["deny"] * 9


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_swapped_arguments_are_refused() -> None:
    await before(ClaudeApprovals(mode="defer"), call())
    await decided("approve")
    assert (await before(ClaudeApprovals(mode="defer"), call(command="rm -rf /")))["permissionDecision"] == "deny"
    approvals = ClaudeApprovals()
    await before(approvals, call(call_id="toolu_2"))
    assert isinstance(
        await permission(approvals, call(call_id="toolu_2", command="rm -rf /")), sdk.PermissionResultDeny
    )
    assert State.RUNNING not in states()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"hook_event_name": "PostToolUseFailure", "error": "Exit code 3", "is_interrupt": False}, State.FAILED),
        ({"hook_event_name": "PostToolUseFailure", "error": "stopped", "is_interrupt": True}, State.UNKNOWN),
        (None, State.UNKNOWN),
    ],
)
@in_a_loop
async def test_what_the_sdk_says_of_the_end_is_recorded_and_silence_is_unknown(
    told: dict[str, Any] | None, state: State
) -> None:
    await before(ClaudeApprovals(mode="defer"), call())
    await decided("approve")
    async with ClaudeApprovals(mode="defer") as approvals:
        await before(approvals, call())
        if told is not None:
            await approvals.post_tool_use({**call(), **told}, "toolu_1", None)
    assert states() == [state]


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_a_session_that_is_cancelled_withdraws_what_waits() -> None:
    approvals = ClaudeApprovals()
    await before(approvals, call())
    waiting = asyncio.create_task(permission(approvals, call()))
    while not await aio.Review().count():  # noqa: ASYNC110  the count is in the store
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert states() == [State.CANCELLED]


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_fifty_calls_wait_at_once() -> None:
    approvals = ClaudeApprovals()
    calls = [call(call_id=f"toolu_{number}") for number in range(50)]
    for data in calls:
        await before(approvals, data)
    results, _ = await asyncio.gather(
        asyncio.gather(*(permission(approvals, data) for data in calls)), decided("approve", count=50)
    )
    assert all(isinstance(result, sdk.PermissionResultAllow) for result in results)
    await approvals.close()
    assert set(states()) == {State.UNKNOWN}


@pytest.mark.usefixtures("place")
@in_a_loop
async def test_nothing_runs_where_sayso_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise StoreUnavailableError("the store is away")

    monkeypatch.setattr(config, "open_store", unreachable)
    assert (await before(ClaudeApprovals(mode="defer"), call()))["permissionDecision"] == "deny"
    approvals = ClaudeApprovals()
    await before(approvals, call())
    refused = await permission(approvals, call())
    assert isinstance(refused, sdk.PermissionResultDeny)
    assert "the store is away" in refused.message
    assert (await before(approvals, {"hook_event_name": "PreToolUse"}))["permissionDecision"] == "deny"


def test_the_types_of_the_installed_sdk_have_what_is_used() -> None:
    types = sdk.types
    assert "defer" in str(types.PreToolUseHookSpecificOutput.__annotations__["permissionDecision"])
    assert {"tool_use_id", "tool_input"} <= set(types.PreToolUseHookInput.__annotations__)
    assert {"error", "is_interrupt"} <= set(types.PostToolUseFailureHookInput.__annotations__)
    assert "deferred_tool_use" in {field.name for field in dataclasses.fields(sdk.ResultMessage)}


def test_program_waits_for_a_person(place: Path) -> None:
    told = run_of("frameworks/claude_agent_refund.py", place, approve(changes={"amount": 30.0}))
    assert told == "refunded 30.00 for A-4721\n"


def test_program_says_what_was_not_run(place: Path) -> None:
    told = run_of("frameworks/claude_agent_refund.py", place, reject("ask the shop first"))
    assert "ask the shop first" in told
    assert "refunded" not in told
