"""The input and output formats of each coding agent's hooks, and descriptions of its tool calls for people.

Sources: Claude Code 2.1.330 (hooks reference, and the types of claude-agent-sdk 0.2.187), Codex 0.169.0 and Gemini CLI
0.61.0 (both run with a scripted model), Cursor 3.13 (hooks page; checked against reports of users up to 3.18). This
module is loaded before every tool call, so it imports little.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, cast

Kind = Literal["before", "done", "failed", "unknown", "end", "other"]
_LONGEST = 200
_AMBIGUOUS = {"unknown", "unhandled_exception", "mcp_tool_error", "shell_execute_error"}  # error types of Gemini CLI


class MalformedInput(ValueError):
    """The host's input does not match its documentation."""


class HookEvent(NamedTuple):
    """An event that a host reports to a hook.

    Attributes:
        kind: `before` a tool call; the outcome of one (`done`, `failed`, `unknown`); the `end` of the session or turn,
            after which none of its calls reports; or `other`.
        session: The id of the session, which is the run.
        tool: The host's name of the tool.
        arguments: The input of the tool.
        call_id: The host's id of this call; None if the host has none (Gemini CLI).
        folder: The working directory.
        agent: The sub-agent that makes the call; None for the main agent.
        error: The error of a failed call.
    """

    kind: Kind
    session: str
    tool: str
    arguments: dict[str, Any]
    call_id: str | None
    folder: str
    agent: str | None = None
    error: str | None = None


class Host(NamedTuple):
    """One coding agent.

    Attributes:
        name: The name on the command line.
        title: The name for people.
        kinds: The meaning of its events.
        reading: Its tools that only read or plan; they pass unless a policy holds them.
        approve: Creates the answer for an approved call from the changed input (or None) and a note for the model.
        deny: Creates the answer that blocks a call from the reason.
        add_context: Creates the answer after a call from a text for the model; the default answer is empty.
        allow: The answer for a call that needs no person, which leaves it to the host's own rules.
        session_keys: The fields that may have the session's id; the first present one is used.
        has_ids: Whether its tool calls have ids.
        merges: Whether a changed input is merged into the model's input, so that no argument can be removed.
    """

    name: str
    title: str
    kinds: Mapping[str, Kind]
    reading: frozenset[str]
    approve: Callable[[dict[str, Any] | None, str], str]
    deny: Callable[[str], str]
    add_context: Callable[[str], str] = lambda _: "{}"  # for hosts that can tell the model before the call
    allow: str = "{}"
    session_keys: tuple[str, ...] = ("session_id",)
    has_ids: bool = True
    merges: bool = False

    def event(self, given: Mapping[str, Any]) -> HookEvent:
        """Return the event in a parsed payload; raise `MalformedInput` if it lacks a field that a decision needs."""
        name = given.get("hook_event_name")
        if not isinstance(name, str):
            raise MalformedInput("the hook's input has no hook_event_name")
        kind, error = _outcome(self.kinds.get(name, "other"), given)
        session = next((given[key] for key in self.session_keys if given.get(key)), None)
        if kind == "other":
            return HookEvent(kind, str(session or ""), "", {}, None, "")
        if not isinstance(session, str):
            raise MalformedInput(f"the hook's input has no {self.session_keys[0]}")
        roots = given.get("workspace_roots")  # Cursor, for tools without their own folder
        first = cast("list[object]", roots)[:1] if isinstance(roots, list) else []
        folder = next((place for place in (given.get("cwd"), *first) if isinstance(place, str) and place), "")
        if kind == "end":
            return HookEvent(kind, session, "", {}, None, folder)
        tool, arguments, call_id = given.get("tool_name"), given.get("tool_input"), given.get("tool_use_id")
        if not isinstance(tool, str) or not tool or not isinstance(arguments, dict):
            raise MalformedInput("the hook's input names no tool_name with a tool_input")
        if self.has_ids and (not isinstance(call_id, str) or not call_id):
            raise MalformedInput("the hook's input has no tool_use_id")
        agent = given.get("agent_type") or given.get("agent_id")
        return HookEvent(
            kind, session, tool, cast("dict[str, Any]", arguments), call_id if self.has_ids else None, folder,
            agent if isinstance(agent, str) else None, error,
        )  # fmt: skip

    def about(self, event: HookEvent) -> dict[str, Any]:
        """Return the options of `sayso.hold` that describe a call to people."""
        return {
            "title": describe(event).replace("{", "{{").replace("}", "}}"),
            "description": f"{self.title} wants to run this in {event.folder or 'an unknown folder'}",
            "context": {"host": self.name, "folder": event.folder, "agent": event.agent},
        }


def parse(text: str | bytes) -> dict[str, Any]:
    """Parse a host's input; raise `MalformedInput` if it is not a JSON object."""
    try:
        # On Windows, Cursor writes one or two byte order marks before it.
        payload: Any = json.loads(text.lstrip("\ufeff") if isinstance(text, str) else text.lstrip(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"the hook's input is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise MalformedInput(f"the hook's input is a {type(payload).__name__}, not an object")
    return cast("dict[str, Any]", payload)


def _outcome(kind: Kind, given: Mapping[str, Any]) -> tuple[Kind, str | None]:
    """Return a call's outcome and error from an event; with outcome `unknown`, the call may have had its effect."""
    error: Any = given.get("error") or given.get("error_message")
    response: Any = given.get("tool_response")
    broken_off = given.get("is_interrupt") is True or given.get("failure_type") == "timeout"
    if given.get("hook_event_name") == "AfterTool" and isinstance(response, dict):  # Gemini CLI has no failure event
        inner: Any = cast("dict[str, Any]", response).get("error")
        if isinstance(inner, dict):
            found = cast("dict[str, Any]", inner)
            kind, error, broken_off = "failed", found.get("message"), found.get("type") in _AMBIGUOUS
    if kind == "failed" and broken_off:
        kind = "unknown"
    return kind, error if isinstance(error, str) else None


EXECUTED: dict[str, tuple[str, frozenset[str]]] = {
    "Bash": ("command", frozenset({"description", "timeout", "run_in_background"})),
    "run_shell_command": ("command", frozenset({"description"})),
    "Shell": ("command", frozenset({"description", "timeout"})),
    "WebFetch": ("url", frozenset({"prompt"})),
    "WebSearch": ("query", frozenset()),
}
"""By tool: the argument that the host executes, and the other arguments that do not affect what it executes."""


# -- for people ----------------------------------------------------------------------------------------------------

_DESCRIBED_BY = ("command", "file_path", "notebook_path", "dir_path", "path", "url", "query", "prompt", "pattern")


def describe(event: HookEvent) -> str:
    """Describe a tool call on one line: `Bash: rm -rf build`."""
    name = event.tool
    if name.startswith("mcp__"):
        server, _, tool = name[5:].partition("__")
        name = f"{tool} of {server}"
    elif name.startswith("MCP:"):
        name = name[4:]
    keys = (EXECUTED[event.tool][0], *_DESCRIBED_BY) if event.tool in EXECUTED else _DESCRIBED_BY
    what = next((event.arguments[key] for key in keys if isinstance(event.arguments.get(key), str)), None)
    if what is None:
        what = json.dumps(event.arguments, ensure_ascii=False) if event.arguments else ""
    line = " ".join(f"{name}: {what}".split()) if what else name
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


# -- the answers of each host --------------------------------------------------------------------------------------


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=True)  # independent of the terminal's encoding


def hook_output(event: str, **fields: Any) -> dict[str, Any]:
    """Return the answer to an event in the form of Claude Code, without empty fields."""
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return {"hookSpecificOutput": {"hookEventName": event, **given}}


def _pre_tool_use(changed: dict[str, Any] | None, note: str) -> str:
    return _json(hook_output("PreToolUse", permissionDecision="allow", updatedInput=changed, additionalContext=note))


def _approve_codex(changed: dict[str, Any] | None, note: str) -> str:
    # In Codex, `allow` without `updatedInput` is an error; an empty answer leaves the call to the host's own rules.
    if changed is None:
        return _json(hook_output("PreToolUse", additionalContext=note)) if note else "{}"
    return _pre_tool_use(changed, note)


def _deny_pre_tool_use(reason: str) -> str:
    return _json(hook_output("PreToolUse", permissionDecision="deny", permissionDecisionReason=reason))


def _approve_gemini(changed: dict[str, Any] | None, note: str) -> str:  # noqa: ARG001  told after the call
    return _json({"decision": "allow"} | ({} if changed is None else hook_output("BeforeTool", tool_input=changed)))


def _add_context_gemini(text: str) -> str:
    return _json(hook_output("AfterTool", additionalContext=text))


def _approve_cursor(changed: dict[str, Any] | None, note: str) -> str:  # noqa: ARG001  the same
    return _json({"permission": "allow"} | ({} if changed is None else {"updated_input": changed}))


def _answer_with(*names: str, **fixed: str) -> Callable[[str], str]:
    """Return a function that creates an answer with a text under these names, in addition to fixed fields."""
    return lambda text: _json({**fixed, **dict.fromkeys(names, text)})


_ALL = (
    Host(
        "claude-code", "Claude Code",
        {"PreToolUse": "before", "PostToolUse": "done", "PostToolUseFailure": "failed", "SessionEnd": "end"},
        frozenset({
            "Read", "Glob", "Grep", "LS", "NotebookRead", "TodoRead", "TodoWrite", "TaskCreate", "TaskGet",
            "TaskList", "TaskUpdate", "TaskOutput", "BashOutput", "ToolSearch", "AskUserQuestion", "EnterPlanMode",
            "ExitPlanMode", "Task", "Agent",
        }),
        approve=_pre_tool_use, deny=_deny_pre_tool_use,
    ),
    Host(
        "codex", "Codex",
        {"PreToolUse": "before", "PostToolUse": "done", "Stop": "end"},
        frozenset({"update_plan", "view_image"}),
        approve=_approve_codex, deny=_deny_pre_tool_use,
    ),
    Host(
        "gemini", "Gemini CLI",
        {"BeforeTool": "before", "AfterTool": "done", "SessionEnd": "end"},
        frozenset({
            "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content",
            "write_todos", "get_internal_docs", "ask_user", "enter_plan_mode", "exit_plan_mode", "update_topic",
            "complete_task",
        }),
        has_ids=False, merges=True, approve=_approve_gemini,
        deny=_answer_with("reason", decision="deny"), add_context=_add_context_gemini,
    ),
    Host(
        "cursor", "Cursor",
        {"preToolUse": "before", "postToolUse": "done", "postToolUseFailure": "failed", "sessionEnd": "end"},
        frozenset({"Read", "Grep", "Task"}), session_keys=("conversation_id", "session_id"),
        allow=_json({"permission": "allow"}),  # an empty answer is an error in the IDE
        approve=_approve_cursor, deny=_answer_with("user_message", "agent_message", permission="deny"),
        add_context=_answer_with("additional_context"),
    ),
)  # fmt: skip
HOSTS = {host.name: host for host in _ALL}
"""The hosts by their name on the command line."""


def host_of(named: Host, given: Mapping[str, Any]) -> Host:
    """Return the host that sent a payload: Cursor also runs the hooks of Claude Code, with its own payloads."""
    if named.name != "claude-code" or "cursor_version" not in given:
        return named
    cursor = HOSTS["cursor"]

    # Which form it reads is documented nowhere, so each answer has both.
    def approve(changed: dict[str, Any] | None, note: str) -> str:
        return _json({**json.loads(cursor.approve(changed, note)), **json.loads(named.approve(changed, note))})

    def deny(reason: str) -> str:
        return _json({**json.loads(cursor.deny(reason)), **json.loads(named.deny(reason))})

    return cursor._replace(kinds={**named.kinds, **cursor.kinds}, approve=approve, deny=deny)
