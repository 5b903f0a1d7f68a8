"""Sayso in the Claude Agent SDK: tool calls wait for a person (extra `claude`).

The SDK's command line runs the tools, not this process. The start of a call is recorded before the SDK is told to run
it, and the PostToolUse hook reports its outcome. Invariant: a call is never `done` before it has run, and a call that
never reports is `unknown` when the session ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self, cast

from sayso import aio, errors
from sayso.gates.exceptions import ConfirmationRejected, trimmed
from sayso.gates.gate import HoldOptions
from sayso.integrations.agenthooks.hosts import HOSTS, HookEvent, describe, hook_output
from sayso.integrations.tool_calls import ask_call, framework, start_call
from sayso.model import canonical
from sayso.stores.base import Store

_HOST = HOSTS["claude-code"]
_NOT_REPORTED = "the session ended, and the SDK did not report how the call ended"


class ClaudeApprovals:
    """Holds the tool calls of the sessions of one program.

    `block` waits inside `can_use_tool`, without a limit; a PreToolUse hook sends every held call there, even those that
    `allowed_tools` would allow. `defer` ends the run instead (`ResultMessage.deferred_tool_use`): resume the session
    in any process when the person has decided, and the call continues.

    Use it as an async context manager around the session. On exit, waiting calls are withdrawn (except deferred ones),
    and calls that never reported become `unknown`.

    Example:
        ```python
        async with ClaudeApprovals() as approvals:
            async with ClaudeSDKClient(approvals.options(ClaudeAgentOptions(cwd="site"))) as client:
                ...
        ```

    Args:
        mode: `block` or `defer`.
        when: As for `sayso.hold`; by default, read-only tools pass and all others wait.
        store: As for `sayso.hold`, like `quorum`, `roles`, `redact`, `expires` and `approval_expires`.
    """

    @trimmed
    def __init__(
        self, *, mode: Literal["block", "defer"] = "block", when: bool | Callable[..., Any] | None = None,
        store: Store | str | None = None, **hold: Any,
    ) -> None:  # fmt: skip
        unknown = ", ".join(sorted(hold.keys() - {"quorum", "roles", "redact", "expires", "approval_expires"}))
        if unknown:
            raise TypeError(f"ClaudeApprovals has no option {unknown}=")
        if mode not in {"block", "defer"}:
            raise errors.ConfigError(f"mode= is 'block' or 'defer', not {mode!r}")
        self._sdk: Any = framework("claude_agent_sdk", "claude", "The Claude Agent SDK")
        self._mode, self._when = mode, when
        self._options: dict[str, Any] = {"store": store, **hold}
        self._asked = dict[str, HookEvent]()  # by tool use id: calls sent to `can_use_tool`
        self._running = dict[str, aio.Held]()

    def options(self, options: Any = None) -> Any:
        """Return a copy of `ClaudeAgentOptions` with the hooks, and in block mode `can_use_tool`, set.

        Raises:
            ConfigError: The options already have a `can_use_tool`, which would decide instead of a person.
        """
        given = self._sdk.ClaudeAgentOptions() if options is None else options
        if given.can_use_tool is not None and self._mode == "block":
            raise errors.ConfigError("can_use_tool is already set; leave it out, or use mode='defer'")
        own = cast("Mapping[str, list[Any]]", given.hooks or {})
        hooks = {event: list(matchers) for event, matchers in own.items()}
        for event, matchers in self.hooks().items():
            hooks.setdefault(event, []).extend(matchers)
        more = {"can_use_tool": self.can_use_tool} if self._mode == "block" else {}
        return replace(given, hooks=hooks, **more)

    def hooks(self) -> dict[str, list[Any]]:
        """Return the hooks for `ClaudeAgentOptions.hooks`; a failure of the PreToolUse hook blocks the call."""
        matcher = self._sdk.HookMatcher
        return {
            "PreToolUse": [matcher(hooks=[self.pre_tool_use], timeout=60.0, on_failure="block")],
            "PostToolUse": [matcher(hooks=[self.post_tool_use], timeout=60.0)],
            "PostToolUseFailure": [matcher(hooks=[self.post_tool_use], timeout=60.0)],
        }

    # -- before a call ---------------------------------------------------------------------------------------------

    async def pre_tool_use(self, data: Mapping[str, Any], tool_use_id: str | None, context: object) -> dict[str, Any]:  # noqa: ARG002  the SDK's signature
        """Answer a PreToolUse hook: pass, send to `can_use_tool`, defer, allow, or deny with the reason."""
        try:
            call_id = data.get("tool_use_id") or tool_use_id
            event = _HOST.event({**data, "hook_event_name": "PreToolUse", "tool_use_id": call_id})
            if self._when is None and event.tool in _HOST.reading:
                return {}
            if self._mode == "block":
                self._asked[cast("str", event.call_id)] = event
                return _pre_tool_use_output("ask", f"{_HOST.title} wants to run {describe(event)}")
            held = await self._hold(event)
            if held.state == "pending":
                return _pre_tool_use_output("defer", f"a person must approve {held.id}")
            if held.state == "allowed":
                return {}
            changed, note = await self._start(event, held)
        except ConfirmationRejected as no:
            return _pre_tool_use_output("deny", no.message_for_model)
        except Exception as error:  # noqa: BLE001  an error would let the call through
            return _pre_tool_use_output("deny", _not_run(error))
        return _pre_tool_use_output("allow", None, updatedInput=changed, additionalContext=note)

    async def can_use_tool(self, name: str, arguments: dict[str, Any], context: Any) -> Any:
        """Wait for the decision on a call, and return the SDK's `PermissionResult`."""
        call_id = cast("str | None", context.tool_use_id)
        asked, held = self._asked.pop(call_id or "", None), None
        try:
            if asked is None or asked.tool != name or not canonical.is_same(asked.arguments, arguments):
                missed = errors.ConfigError(f"{name} did not pass through the PreToolUse hook of these options")
                return self._sdk.PermissionResultDeny(message=_not_run(missed))
            held = await self._hold(asked)
            if held.state == "allowed":
                return self._sdk.PermissionResultAllow()
            await held.wait()
            changed, _ = await self._start(asked, held)
        except asyncio.CancelledError:
            if held is not None:
                await asyncio.shield(held.withdraw("the session ended before a decision"))
            raise
        except ConfirmationRejected as no:
            return self._sdk.PermissionResultDeny(message=no.message_for_model)
        except Exception as error:  # noqa: BLE001  deny whatever the SDK does with an exception in a callback
            return self._sdk.PermissionResultDeny(message=_not_run(error))
        return self._sdk.PermissionResultAllow(updated_input=changed)

    async def _hold(self, event: HookEvent) -> aio.Held:
        options: dict[str, Any] = {**_HOST.about(event), "when": True if self._when is None else self._when}
        options |= {"key": event.call_id, "run": event.session, "withdraw_on_exit": self._mode == "block"}
        return await ask_call(event.tool, event.arguments, cast("HoldOptions", {**options, **self._options}))

    async def _start(self, event: HookEvent, held: aio.Held) -> tuple[dict[str, Any] | None, str]:
        """Record the start of an approved call; return its input if a person changed it, and a note for the model."""
        note = held.message_for_model()
        arguments = await start_call(held)
        self._running[cast("str", event.call_id)] = held
        return None if canonical.is_same(arguments, event.arguments) else arguments, note

    # -- outcomes --------------------------------------------------------------------------------------------------

    async def post_tool_use(self, data: Mapping[str, Any], tool_use_id: str | None, context: object) -> dict[str, Any]:  # noqa: ARG002  the SDK's signature
        """Record a call's outcome from a PostToolUse or PostToolUseFailure hook; tell the model what was changed."""
        held = self._running.pop(str(data.get("tool_use_id") or tool_use_id), None)
        if held is None:
            return {}
        error = str(data.get("error") or "the SDK reported an error")
        if data.get("hook_event_name") == "PostToolUse":
            await held.finish()
        elif data.get("is_interrupt") is True:
            await held.unknown(error)
        else:
            await held.fail(error)
        note = held.message_for_model() if self._mode == "block" else ""
        return hook_output(str(data["hook_event_name"]), additionalContext=note) if note else {}

    async def close(self) -> None:
        """End the session, and record started calls that never reported as `unknown`."""
        while self._running:
            _, held = self._running.popitem()
            await held.unknown(_NOT_REPORTED)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _pre_tool_use_output(decision: str, reason: str | None, **more: Any) -> dict[str, Any]:
    return hook_output("PreToolUse", permissionDecision=decision, permissionDecisionReason=reason, **more)


def _not_run(error: Exception) -> str:
    return f"The call was not run: {' '.join((str(error) or type(error).__name__).split())}. Do not work around it."
