"""The Claude Agent SDK through the common suite, and its adapter with the payloads that its command line 2.1.330 sent.

Claude Code runs the tools, so a script plays it and its model behind the SDK's own client.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sayso
from sayso import aio, config
from sayso.errors import ConfigError, StoreUnavailableError
from sayso.integrations.claude_agent import ClaudeApprovals
from sayso.model.request import State
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, AdapterSuite, ModelCall, Outcome, Scene, reject, run_of

sdk: Any = framework("claude_agent_sdk", "claude_agent")

NO_SCHEMA = "a change is not checked before it is saved"
ALONE = "only a call that is alone in its turn is deferred, a rule of Claude Code"
OWN_RESULT = "a replay is told that the call has run, but not its result, which Claude Code keeps"


class Script(sdk.Transport):
    """Plays Claude Code and its model from a turn and call of a scene on; calls of a turn run one after the other.

    Attributes:
        told: What the model was given as the result of each call.
        deferred: The turn and call at which the session ended, because a hook deferred it.
    """

    def __init__(self, scene: Scene, turn: int, call: int, told: dict[str, str], calls: Any = None) -> None:
        self._scene, self._turn, self._first, self.told = scene, turn, call, told
        self._calls = scene.turn(0) if calls is None else calls
        self._written = asyncio.Queue[dict[str, Any]]()
        self._hooks: dict[str, Any] = {}
        self.deferred: tuple[int, int, dict[str, str], Any] | None = None

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        first = await self._written.get()
        self._hooks = first["request"]["hooks"]
        done = {"hook_on_failure_supported": True, "hooks_applied": True}
        given = {"subtype": "success", "request_id": first["request_id"], "response": done}
        yield {"type": "control_response", "response": given}
        await self._written.get()  # the prompt
        while self._calls:
            for number, call in list(enumerate(self._calls))[self._first :]:
                async for message in self._played(call):
                    yield message
                if call.id not in self.told:
                    self.deferred = self._turn, number, dict(self.told), self._calls
                    yield self._end("")
                    return
            self._turn, self._first = self._turn + 1, 0
            self._calls = self._scene.turn(self._turn)
        yield self._end(ANSWER)

    async def _played(self, call: ModelCall) -> AsyncIterator[dict[str, Any]]:
        """Ask the hooks and the callback, run the tool and report it; a deferred call is told nothing."""
        name, arguments = "Read" if call.tool == "lookup" else f"mcp__shop__{call.tool}", call.arguments
        about = {"tool_name": name, "tool_use_id": call.id}
        yield self._hook("PreToolUse", about, tool_input=arguments)
        before = (await self._answer()).get("hookSpecificOutput", {})
        decision, notes = before.get("permissionDecision"), [before.get("additionalContext")]
        arguments = before.get("updatedInput", arguments)
        if decision == "ask":
            yield _request({"subtype": "can_use_tool", "input": arguments, **about})
            permission = await self._answer()
            arguments = permission.get("updatedInput", arguments)
            if permission["behavior"] == "deny":
                self.told[call.id] = permission["message"]
                return
        elif decision == "deny":
            self.told[call.id] = before["permissionDecisionReason"]
        if decision in {"deny", "defer"}:
            return
        try:
            text, event = getattr(self._scene, call.tool)(**arguments), "PostToolUse"
        except ValueError as error:
            text, event = str(error), "PostToolUseFailure"
        yield self._hook(event, about, tool_input=arguments, tool_response=text, error=text)
        after = (await self._answer()).get("hookSpecificOutput", {})
        self.told[call.id] = "\n\n".join(filter(None, [*notes, after.get("additionalContext"), text]))

    def _hook(self, event: str, about: dict[str, Any], **fields: Any) -> dict[str, Any]:
        data = {**call(event), **about, "session_id": self._scene.thread, **fields}
        called = {"callback_id": self._hooks[event][0]["hookCallbackIds"][0], "tool_use_id": about["tool_use_id"]}
        return _request({"subtype": "hook_callback", "input": data, **called})

    def _end(self, answer: str) -> dict[str, Any]:
        return {
            "type": "result", "subtype": "success", "is_error": False, "result": answer, "num_turns": 1,
            "session_id": self._scene.thread, "duration_ms": 1, "duration_api_ms": 1,
        }  # fmt: skip

    async def _answer(self) -> dict[str, Any]:
        return dict((await self._written.get())["response"]["response"])

    async def write(self, data: str) -> None:
        self._written.put_nowait(json.loads(data))

    async def connect(self) -> None: ...
    async def end_input(self) -> None: ...
    async def close(self) -> None: ...

    def is_ready(self) -> bool:
        return True


def _request(request: dict[str, Any]) -> dict[str, Any]:
    return {"type": "control_request", "request_id": f"ask-{request['subtype']}", "request": request}


class ClaudeAgent:
    """A session; `deferred` of its script is what Claude Code keeps of one that ended at a deferred call."""

    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = False
    has_subagents: ClassVar = False
    prefix: ClassVar = "mcp__shop__"
    cannot: ClassVar[dict[str, str]] = {
        "the_models_words": "reviewers do not see what the model wrote",
        "change_that_does_not_fit_the_tool_is_refused": NO_SCHEMA,
        "call_whose_effect_another_run_had_is_told_and_not_run": "no `effect=`, as the options are for all tools",
        "two_equal_calls_of_one_turn_are_two_requests[pause]": ALONE,
        "free_call_is_not_held_up[pause]": ALONE,
        "ten_concurrent_resumes_start_once_and_tell_the_same": OWN_RESULT,
        "ten_concurrent_replays_start_once_and_tell_the_same": OWN_RESULT,
        "replay_after_the_end_runs_nothing_and_asks_nobody": OWN_RESULT,
    }

    async def start(self, scene: Scene) -> Outcome:
        return await self.go(scene, Script(scene, 0, 0, {}))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        turn, number, told, calls = saved
        return await self.go(scene, Script(scene, turn, number, dict(told), calls))

    async def go(self, scene: Scene, script: Script) -> Outcome:
        mode = "block" if scene.mode == "block" else "defer"
        async with (
            ClaudeApprovals(mode=mode, **scene.options) as approvals,
            sdk.ClaudeSDKClient(approvals.options(), transport=script) as client,
        ):
            await client.query("help")
            (answer,) = [m.result async for m in client.receive_response() if isinstance(m, sdk.ResultMessage)]
        return Outcome(script.deferred, script.told, None if script.deferred else answer)


class TestClaudeAgent(AdapterSuite):
    driver = ClaudeAgent()


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
    while await review.count(state="pending") < count:  # noqa: ASYNC110  the count is in the store
        await asyncio.sleep(0)
    async for request in review.list(state="pending"):
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
    with pytest.raises(ConfigError, match="can_use_tool is already set"):
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
async def test_a_call_whose_effect_a_rule_says_is_taken_is_told_and_withdrawn() -> None:
    async with ClaudeApprovals(mode="defer", when=lambda: sayso.policy.hold(effect="build")) as approvals:
        for call_id in ("toolu_1", "toolu_2"):
            await before(approvals, call(call_id=call_id))
            await decided("approve")
            answer = await before(approvals, call(call_id=call_id))
    assert answer["permissionDecision"] == "deny"
    assert "The call was not run: its effect 'build' is taken by rq_" in answer["permissionDecisionReason"]
    assert sorted(states()) == [State.CANCELLED, State.UNKNOWN]


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


def test_program_says_what_was_not_run(place: Path) -> None:
    told = run_of("frameworks/claude_agent_refund.py", place, reject("ask the shop first"))
    assert "ask the shop first" in told
    assert "refunded" not in told
