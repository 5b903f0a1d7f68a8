"""The hooks of coding agents, each with payloads of the host (`payloads.json`).

Those of Claude Code, Codex and Gemini CLI are of real runs, in the versions that stand in
`sayso.integrations.agenthooks.hosts`, and `test_coding_agents.py` runs them again; those of Cursor are of its
documented form. FOLDER stands for the working folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import audit, config
from sayso.errors import StoreUnavailableError
from sayso.integrations.agenthooks import answer, handoff
from sayso.integrations.agenthooks.hosts import HOSTS, describe
from sayso.integrations.agenthooks.options import Options, Session, read_options, state_folder
from sayso.model.request import Request, State
from sayso.stores import workers
from sayso.testing import ScriptedReviewer, sample_call

PAYLOADS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "payloads.json").read_text(encoding="utf-8"))
AT_ONCE = Options(wait="1ms")
every_host = pytest.mark.parametrize("name", list(HOSTS))
hosts_that_say_it = pytest.mark.parametrize("name", ["claude-code", "cursor"])


def payload(name: str, event: str, place: Path, **changed: Any) -> str:
    text = json.dumps(PAYLOADS[name][event]).replace("FOLDER", str(place))
    return json.dumps({**json.loads(text), **changed})


def say(name: str, event: str, place: Path, options: Options = AT_ONCE, **changed: Any) -> dict[str, Any]:
    """Run one hook and return its answer."""
    code, out, err = answer(HOSTS[name], payload(name, event, place, **changed), options)
    assert (code, err) == (0, ""), err
    return json.loads(out)


def verdict(name: str, said: dict[str, Any]) -> tuple[str, str]:
    """Return what an answer means to its host, by the host's documentation, and the reason it gives."""
    match name:
        case "claude-code" | "codex":
            own = said.get("hookSpecificOutput", {})
            return own.get("permissionDecision", "none"), own.get("permissionDecisionReason", "")
        case "gemini":
            return said.get("decision", "none"), said.get("reason", "")
        case _:
            assert said["permission"] in {"allow", "deny"}, "an empty answer is an error in Cursor"
            return said["permission"], said.get("agent_message", "")


def only() -> Request:
    (request,) = sayso.Review().list(state="all").requests
    return request


def approve(**changes: Any) -> None:
    sayso.Review().approve(only().id, by="ada", changes=changes or None)


# -- who is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["claude-code", "gemini", "cursor"])
def test_a_tool_that_only_reads_is_left_to_the_host_and_nothing_is_written(name: str, place: Path) -> None:
    assert answer(HOSTS[name], payload(name, "read", place), AT_ONCE).out == HOSTS[name].allow
    assert not list(place.rglob("*.db"))


@every_host
def test_a_shell_command_waits_and_the_person_reads_what_would_run_and_where(name: str, place: Path) -> None:
    decision, reason = verdict(name, say(name, "shell", place))
    request = only()
    assert decision == "deny"
    assert f"Not run yet: a person must approve {request.id}" in reason
    assert request.state is State.PENDING
    assert request.title is not None
    assert request.title.endswith(": rm -rf build")
    assert request.description == f"{HOSTS[name].title} wants to run this in {place}"
    assert request.run_id in {PAYLOADS[name]["shell"].get("session_id"), PAYLOADS[name]["shell"].get("conversation_id")}
    assert HOSTS[name].has_ids is (request.key == PAYLOADS[name]["shell"].get("tool_use_id"))


@pytest.mark.parametrize(
    ("tool", "given", "line"),
    [
        ("Bash", {"command": "rm -rf\n  build"}, "Bash: rm -rf build"),
        ("Write", {"file_path": "/etc/motd", "content": "x"}, "Write: /etc/motd"),
        ("WebFetch", {"url": "https://example.org", "prompt": "read"}, "WebFetch: https://example.org"),
        ("mcp__github__create_issue", {"title": "t"}, 'create_issue of github: {"title": "t"}'),
        ("MCP:query", {}, "query"),
        ("Bash", {"command": "x" * 300}, "Bash: " + "x" * 193 + "…"),
    ],
)
def test_a_call_is_told_on_one_line(tool: str, given: dict[str, Any], line: str, place: Path) -> None:
    event = HOSTS["claude-code"].event(
        json.loads(payload("claude-code", "shell", place, tool_name=tool, tool_input=given))
    )
    assert describe(event) == line


@pytest.mark.parametrize(
    ("given", "allow", "hold", "passes"),
    [
        ("git status", ["Bash: git status"], [], True),
        ("git status --short", ["Bash: git status*"], [], True),
        ("git status; rm -rf /", ["Bash: git status*"], [], False),
        ("git status\nrm -rf /", ["Bash: git status*"], [], False),
        ("git status $(rm x)", ["Bash: git *"], [], False),
        ("git push", ["Bash: git status*"], [], False),
        ("anything; at all", ["Bash"], [], True),
        ("git push", ["Bash: git *"], ["Bash: git push*"], False),
        ("git push; ls", ["Bash"], ["*: git push*"], False),
        ("cd x && git  push", ["Bash"], ["Bash: git push*"], False),
        ("git status | sh", ["Bash: git status*"], [], False),
        ("git status `rm x`", ["Bash: git status*"], [], False),
        ("git status \x0brm", ["Bash: git status*"], [], False),
        ("make a && make b", ["Bash: make a && make b"], [], True),
    ],
)
def test_patterns_let_pass_what_they_show_and_nothing_behind_it(
    given: str, allow: list[str], hold: list[str], passes: bool, place: Path
) -> None:
    options = AT_ONCE._replace(allow=tuple(allow), hold=tuple(hold))
    said = say("claude-code", "shell", place, options, tool_input={"command": given})
    assert (said == {}) is passes


@pytest.mark.parametrize(
    ("tool", "given", "allow", "hold", "passes"),
    [
        ("WebFetch", {"url": "https://docs/", "prompt": "sum up"}, ["WebFetch: https://docs/"], [], True),
        ("WebFetch", {"url": "https://evil/", "path": "https://docs/"}, ["WebFetch: https://docs/"], [], False),
        ("WebFetch", {"url": "https://evil/", "file_path": "x"}, ["WebFetch"], ["WebFetch: *evil*"], False),
        ("WebFetch", {"url": "https://ok/?" + "a" * 300 + "evil"}, ["WebFetch"], ["WebFetch: *evil*"], False),
        ("WebFetch", {"url": "https://docs/../x"}, ["WebFetch: https://docs/*"], [], False),
        ("Bash", {"command": "npm test", "dangerouslyDisableSandbox": True}, ["Bash: npm test*"], [], False),
        ("Bash", {"command": "npm test", "timeout": 9}, ["Bash: npm test*"], [], True),
        ("Bash", {"command": ["rm"], "path": "npm test"}, ["Bash: npm test"], [], False),
        ("mcp__db__run", {"command": "npm test"}, ["*: npm test"], [], False),
        ("mcp__db__run", {"b": 1, "a": "x"}, ['mcp__db__run: {"a": "x", "b": 1}'], [], True),
        ("mcp__db__run", {"b": True, "a": "x"}, ['mcp__db__run: {"a": "x", "b": 1}'], [], False),
        ("mcp__db__run", {"all": [{"sql": "drop table x"}]}, ["mcp__db__*"], ["*: drop *"], False),
    ],
)  # fmt: skip
def test_patterns_look_at_what_the_host_executes_and_at_all_of_it(
    tool: str, given: dict[str, Any], allow: list[str], hold: list[str], passes: bool, place: Path
) -> None:
    options = AT_ONCE._replace(allow=tuple(allow), hold=tuple(hold))
    assert (say("claude-code", "shell", place, options, tool_name=tool, tool_input=given) == {}) is passes


def test_a_reading_tool_waits_where_a_pattern_says_so(place: Path) -> None:
    assert verdict("claude-code", say("claude-code", "read", place, AT_ONCE._replace(hold=("Read",))))[0] == "deny"


# -- a call that is made again --------------------------------------------------------------------------------------


@every_host
def test_the_call_made_again_finds_the_decision_and_runs_as_a_person_changed_it(name: str, place: Path) -> None:
    say(name, "shell", place)
    approve(command="rm -rf build/tmp")
    said = say(name, "again", place)
    request = only()
    given = PAYLOADS[name]["shell"]["tool_input"] | {"command": "rm -rf build/tmp"}
    given = json.loads(json.dumps(given).replace("FOLDER", str(place)))
    assert verdict(name, said)[0] == "allow"
    match name:
        case "claude-code" | "codex":
            assert said["hookSpecificOutput"]["updatedInput"] == given
        case "gemini":
            assert said["hookSpecificOutput"]["tool_input"] == given
        case _:
            assert said["updated_input"] == given
    assert request.state is State.RUNNING, "it has not run yet"


@every_host
def test_an_approval_without_a_change_changes_nothing(name: str, place: Path) -> None:
    say(name, "shell", place)
    approve()
    said = say(name, "again", place)
    # Codex calls `allow` without a changed input an error, and lets a call pass where nothing is said.
    assert verdict(name, said)[0] == ("none" if name == "codex" else "allow")
    assert "pdate" not in json.dumps(said)


@every_host
def test_a_no_is_told_once_decided_and_the_same_call_is_not_asked_again(name: str, place: Path) -> None:
    say(name, "shell", place)
    sayso.Review().reject(only().id, by="ada", comment="build is shared")
    for _ in range(2):
        decision, reason = verdict(name, say(name, "again", place))
        assert decision == "deny"
        assert "build is shared" in reason
        assert "do not repeat" in reason
    assert only().state is State.REJECTED


def test_the_same_command_in_another_folder_is_another_call(place: Path) -> None:
    say("claude-code", "shell", place)
    approve()
    (place / "other").mkdir()
    assert verdict("claude-code", say("claude-code", "again", place, cwd=str(place / "other")))[0] == "deny"
    assert sayso.Review().count(state="all") == 2


def test_a_grant_counts_in_the_folder_that_was_shown(place: Path) -> None:
    (place / "other").mkdir()
    say("claude-code", "shell", place)
    sayso.Review().grant(only().id, by="ada", count=5, lasts="1h")
    there = say("claude-code", "shell", place, tool_use_id="toolu_there", cwd=str(place / "other"))
    here = say("claude-code", "shell", place, tool_use_id="toolu_here")
    assert [verdict("claude-code", said)[0] for said in (there, here)] == ["deny", "allow"]


def test_two_equal_calls_of_one_turn_wait_twice_and_each_is_found_again(place: Path) -> None:
    say("claude-code", "shell", place)
    tickets = [(entry, entry.take()) for entry in Session("claude-code", only().run_id).entries("ticket")]
    say("claude-code", "shell", place, tool_use_id="toolu_parallel")  # while the hook of the first one still waits
    for entry, _ in tickets:
        Session("claude-code", only_run()).add("ticket", entry.names, entry.data)
    requests = sayso.Review().list().requests
    assert [request.key for request in requests] == ["toolu_01ShellOne", "toolu_parallel"]
    for request in requests:
        sayso.Review().approve(request.id, by="ada")
    for again in ("toolu_3", "toolu_4"):
        assert verdict("claude-code", say("claude-code", "shell", place, tool_use_id=again))[0] == "allow"
    assert verdict("claude-code", say("claude-code", "shell", place, tool_use_id="toolu_5"))[0] == "deny"
    assert [request.state for request in sayso.Review().list(state="all").requests].count(State.RUNNING) == 2


def only_run() -> str:
    return str(PAYLOADS["claude-code"]["shell"]["session_id"])


def test_two_hooks_of_one_call_both_let_it_through_and_no_call_whose_id_comes_again(place: Path) -> None:
    say("claude-code", "shell", place)
    approve()
    hooks = AT_ONCE, AT_ONCE._replace(wait="2ms")  # one in the user's settings, one in another file
    asked = [verdict("claude-code", say("claude-code", "shell", place, hook))[0] for hook in hooks * 2]
    assert asked == ["allow", "allow", "deny", "deny"]
    assert only().state is State.RUNNING
    say("claude-code", "end", place)
    assert list(Path(state_folder()).rglob("asked-*")) == []


@every_host
@pytest.mark.parametrize(("given", "edited"), [(0, False), (1, True), (1, 1.0)])
def test_a_change_to_an_equal_value_of_another_type_reaches_the_host(
    name: str, given: object, edited: object, place: Path
) -> None:
    changed = {"tool_name": "wipe", "tool_input": {"limit": given}}
    say(name, "shell", place, **changed)
    sayso.Review().approve(only().id, by="ada", changes={"limit": edited})
    assert f'{{"limit": {json.dumps(edited)}}}' in json.dumps(say(name, "again", place, **changed))


@pytest.mark.parametrize("event", ["preToolUse", "PreToolUse"])
def test_cursor_that_runs_the_hook_of_claude_code_waits_and_shares_the_decision_with_its_own(
    event: str, place: Path
) -> None:
    def through_claudes() -> dict[str, Any]:
        text = "\ufeff\ufeff" + payload("cursor", "shell", place, hook_event_name=event)  # as Cursor on Windows writes
        return json.loads(answer(HOSTS["claude-code"], text.encode(), AT_ONCE).out)

    said = through_claudes()
    assert verdict("cursor", said)[0] == verdict("claude-code", said)[0] == "deny"
    approve(command="ls build")
    said = through_claudes()
    assert verdict("cursor", said)[0] == verdict("claude-code", said)[0] == "allow"
    assert said["updated_input"] == said["hookSpecificOutput"]["updatedInput"]
    assert said["updated_input"]["command"] == "ls build"
    assert verdict("cursor", say("cursor", "shell", place, AT_ONCE._replace(wait="2ms")))[0] == "allow"
    assert only().state is State.RUNNING


def test_a_call_id_that_comes_again_after_it_ran_does_not_run_again(place: Path) -> None:
    say("claude-code", "shell", place)
    approve()
    say("claude-code", "shell", place)
    say("claude-code", "done", place)
    assert verdict("claude-code", say("claude-code", "shell", place))[0] == "deny"
    assert only().state is State.DONE


def test_a_call_is_let_through_while_it_waits(place: Path) -> None:
    with ScriptedReviewer().approve():
        said = say("claude-code", "shell", place, Options(wait="1m"))
    assert said["hookSpecificOutput"]["permissionDecision"] == "allow"


# -- what became of it ----------------------------------------------------------------------------------------------


@every_host
def test_a_request_is_done_when_the_host_says_so_and_not_before(name: str, place: Path) -> None:
    say(name, "shell", place)
    approve()
    again: dict[str, Any] = {} if name == "gemini" else {"tool_use_id": PAYLOADS[name]["shell"]["tool_use_id"]}
    say(name, "again", place, **again)
    assert only().state is State.RUNNING
    say(name, "done", place)
    assert only().state is State.DONE
    assert audit.verify(config.open_store(None)).broken == ()


@hosts_that_say_it
def test_a_failed_call_is_failed_and_a_broken_off_one_is_unknown(name: str, place: Path) -> None:
    say(name, "shell", place)
    approve()
    say(name, "shell", place)
    say(name, "failed", place)
    request = only()
    assert request.state is (State.FAILED if name == "claude-code" else State.UNKNOWN)
    assert request.execution is not None
    assert request.execution.error == PAYLOADS[name]["failed"].get("error", "Command timed out after 30s")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        ("edit_no_occurrence_found", State.FAILED),
        ("mcp_tool_error", State.UNKNOWN),
        ("shell_execute_error", State.UNKNOWN),
    ],
)
def test_gemini_says_in_the_response_that_a_call_failed(error: str, state: State, place: Path) -> None:
    say("gemini", "replace", place)
    approve()
    say("gemini", "replace", place)
    response = json.loads(json.dumps(PAYLOADS["gemini"]["failed"]["tool_response"]))
    response["error"]["type"] = error
    say("gemini", "failed", place, tool_response=response)
    request = only()
    assert request.state is state
    assert request.execution is not None
    assert "Could not find an exact match" in str(request.execution.error)


@every_host
def test_what_never_reports_is_unknown_at_the_end_of_the_session(name: str, place: Path) -> None:
    say(name, "shell", place)
    approve()
    say(name, "again", place)
    say(name, "end", place)
    assert only().state is State.UNKNOWN


def test_what_never_reports_is_unknown_when_the_host_is_gone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as host:
        monkeypatch.setattr(handoff, "_host_process", lambda _: workers.named(host.pid))
        say("claude-code", "shell", place)
        approve()
        say("claude-code", "shell", place)
        assert config.open_store(None).settle(only().id).state is State.RUNNING
        host.kill()
    assert config.open_store(None).settle(only().id).state is State.UNKNOWN


def test_the_start_is_held_by_the_host_and_not_by_the_shell_around_the_hook(place: Path) -> None:
    words = [sys.executable, "-m", "sayso", "hook", "claude-code", "--wait", "1ms"]
    shell = ["/bin/sh", "-c", f"{' '.join(words)} || exit 2"]

    def run() -> dict[str, Any]:
        done = subprocess.run(
            shell, input=payload("claude-code", "shell", place), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    run()
    approve()
    assert verdict("claude-code", run())[0] == "allow"
    request = only()
    assert request.execution is not None
    assert request.execution.worker == workers.named(os.getpid())  # it renews no lease
    assert "claude-code" in str(request.requester)


@pytest.mark.parametrize("name", ["gemini", "cursor"])
def test_the_model_hears_of_a_change_after_the_call_where_the_host_has_no_word_before(name: str, place: Path) -> None:
    say(name, "shell", place)
    approve(command="ls build")
    say(name, "again", place)
    changed = PAYLOADS[name]["done"]["tool_input"] | {"command": "ls build"}
    given: dict[str, Any] = {"tool_input": changed} | ({} if name == "gemini" else {"tool_use_id": "tc_shell_2"})
    said = say(name, "done", place, **given)
    text = said["hookSpecificOutput"]["additionalContext"] if name == "gemini" else said["additional_context"]
    assert "command" in text


def test_gemini_is_not_given_a_call_that_it_would_fill_up_again(place: Path) -> None:
    say("gemini", "shell", place)
    sayso.Review().approve(only().id, by="ada", arguments={"command": "ls"})
    decision, reason = verdict("gemini", say("gemini", "again", place))
    assert (decision, only().state) == ("deny", State.CANCELLED)
    assert "a person removed description" in reason


# -- nothing runs where something is wrong --------------------------------------------------------------------------


@every_host
@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"hook_event_name": 3}', b"[" * 100_000])
def test_malformed_input_is_a_no_in_the_format_of_the_host(name: str, text: bytes, place: Path) -> None:
    code, out, _ = answer(HOSTS[name], text, AT_ONCE)
    decision, reason = verdict(name, json.loads(out))
    assert (code, decision) == (0, "deny")
    assert "The call was not run" in reason


@every_host
@pytest.mark.parametrize("missing", ["session", "tool_name", "tool_input", "tool_use_id"])
def test_a_payload_without_what_decides_it_is_a_no(name: str, missing: str, place: Path) -> None:
    given = json.loads(payload(name, "shell", place))
    for key in ("session_id", "conversation_id") if missing == "session" else (missing,):
        given.pop(key, None)
    decision, _ = verdict(name, json.loads(answer(HOSTS[name], json.dumps(given), AT_ONCE).out))
    assert decision == "deny"


@every_host
def test_a_store_that_cannot_be_reached_is_a_no(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise StoreUnavailableError("the store is away")

    monkeypatch.setattr(handoff.config, "open_store", unreachable)
    decision, reason = verdict(name, say(name, "shell", place))
    assert decision == "deny"
    assert "the store is away" in reason


@every_host
def test_a_call_whose_start_is_refused_is_a_no(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(name, "shell", place)
    approve()

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Session, "add", broken)
    assert verdict(name, say(name, "again", place))[0] == "deny"
    assert only().state is State.FAILED, "the start was taken, and surely nothing ran"


@every_host
def test_a_call_whose_effect_is_taken_is_told_and_keeps_no_other_from_it(name: str, place: Path) -> None:
    rules = place / "home" / "sayso.toml"
    rules.write_text("[[rules]]\ntool = '*'\nverdict = 'hold'\neffect = 'build'\n", encoding="utf-8")
    rules.chmod(0o600)
    store = config.open_store(None)
    other = store.ask(sample_call("run_1", effect="build"))
    sayso.Review().approve(other.id, by="ada")
    store.start(other.id, "t")
    say(name, "shell", place)
    (request,) = sayso.Review().list(state="pending").requests
    sayso.Review().approve(request.id, by="ada")
    decision, reason = verdict(name, say(name, "again", place))
    assert decision == "deny"
    assert f"its effect 'build' is taken by {other.id}, which is running" in reason
    assert store.get(request.id).state is State.CANCELLED


def test_a_policy_file_that_cannot_be_read_is_a_no(place: Path) -> None:
    (place / "home" / "sayso.toml").write_text("[[rules]]\nwhat = 1\n", encoding="utf-8")
    assert verdict("claude-code", say("claude-code", "read", place))[0] == "deny"


RULES = """
[[rules]]
name = "reading"
tool = "{read}"
verdict = "allow"
log = true

[[rules]]
name = "a few commands"
tool = "{shell}"
verdict = "allow"
budget = "count() <= 1 per 1h"

[[rules]]
tool = "*"
verdict = "deny"
reason = "not here"
"""


@every_host
def test_a_call_made_again_has_its_answer_though_the_rules_let_it_through_by_then(name: str, place: Path) -> None:
    rules = place / "home" / "sayso.toml"
    rules.write_text("[[rules]]\ntool = '*'\nverdict = 'hold'\n", encoding="utf-8")
    rules.chmod(0o600)
    say(name, "shell", place)
    rules.write_text("[[rules]]\ntool = '*'\nverdict = 'allow'\n", encoding="utf-8")
    assert verdict(name, say(name, "again", place))[0] == "deny"  # nobody has decided
    sayso.Review().reject(only().id, by="ada", comment="build is shared")
    assert "build is shared" in verdict(name, say(name, "again", place))[1]
    assert verdict(name, say(name, "again", place, tool_input={"command": "ls"}))[0] in {"allow", "none"}
    assert only().state is State.REJECTED


def test_a_call_made_again_that_nobody_answered_follows_the_rules(place: Path) -> None:
    rules = place / "home" / "sayso.toml"
    rules.write_text("[[rules]]\ntool = '*'\nverdict = 'hold'\n", encoding="utf-8")
    rules.chmod(0o600)
    say("claude-code", "shell", place)
    config.open_store(None).withdraw(only().id, only().requester, "the session was put aside")
    rules.write_text("[[rules]]\ntool = '*'\nverdict = 'allow'\n", encoding="utf-8")
    assert say("claude-code", "again", place) == {}
    assert only().state is State.CANCELLED


@pytest.mark.parametrize("name", ["claude-code", "gemini", "cursor"])  # Codex reports no reading
def test_the_policy_file_allows_notes_counts_and_denies(name: str, place: Path) -> None:
    pytest.importorskip("cel_expr_python")
    read, shell = (HOSTS[name].event(json.loads(payload(name, what, place))).tool for what in ("read", "shell"))
    (place / "home" / "sayso.toml").write_text(RULES.format(read=read, shell=shell), encoding="utf-8")
    (place / "home" / "sayso.toml").chmod(0o600)
    assert verdict(name, say(name, "read", place))[0] in {"allow", "none"}
    assert sayso.Review().list(state="all").requests == ()
    assert "allowed" in {row.event for row in config.open_store(None).journal(limit=100)}
    assert verdict(name, say(name, "shell", place))[0] in {"allow", "none"}
    assert only().state is State.RUNNING
    assert only().decision is not None
    assert only().decision.channel == "policy"


def test_what_is_no_call_is_answered_with_nothing(place: Path) -> None:
    given = payload("claude-code", "shell", place, hook_event_name="Notification")
    assert answer(HOSTS["claude-code"], given, AT_ONCE) == (0, "{}", "")


def test_an_outcome_that_cannot_be_recorded_is_told_and_blocks_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("claude-code", "shell", place)
    approve()
    say("claude-code", "shell", place)

    def unreachable(*_: object) -> None:
        raise StoreUnavailableError("the store is away")

    monkeypatch.setattr(handoff.config, "open_store", unreachable)
    code, out, err = answer(HOSTS["claude-code"], payload("claude-code", "done", place), AT_ONCE)
    assert (code, out) == (1, "")
    assert "the store is away" in err


def test_a_hook_that_its_host_stops_withdraws_what_it_asked(place: Path) -> None:
    words = [sys.executable, "-m", "sayso", "hook", "claude-code", "--wait", "1m"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as hook:
        assert hook.stdin is not None
        assert hook.stderr is not None
        hook.stdin.write(payload("claude-code", "shell", place))
        hook.stdin.close()
        assert "waiting for a person" in hook.stderr.readline()
        hook.send_signal(signal.SIGTERM)
        assert hook.wait(60) == 2
    assert only().state is State.CANCELLED


# -- the command ----------------------------------------------------------------------------------------------------


def test_options_are_read_without_the_command_line_and_others_are_left_to_it() -> None:
    words = ["--allow", "Bash: ls", "--allow=Read", "--hold", "mcp__*", "--wait", "2m", "--policy", "p.toml"]
    assert read_options(["--project"]) == Options(is_project=True)
    assert read_options(words) == Options(("Bash: ls", "Read"), ("mcp__*",), "2m", "p.toml")
    assert [read_options(one) for one in (["--help"], ["--allow"], ["x"])] == [None, None, None]


def test_a_call_that_nobody_is_asked_about_loads_neither_store_nor_command_line(place: Path) -> None:
    program = (
        "import sys; from sayso.__main__ import main; sys.argv[1:] = ['hook', 'claude-code']; code = main();"
        " heavy = {'click', 'pydantic', 'sqlite3', 'asyncio', 'inspect', 'pathlib', 'sayso.config',"
        " 'sayso.gates.gated_call'};"
        " print(code, sorted(heavy & set(sys.modules)))"
    )
    for event in ("read", "done", "end"):
        done = subprocess.run(
            [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
            input=payload("claude-code", event, place), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines() == ["{}", "0 []"], done.stdout


def test_what_hooks_leave_for_each_other_lies_beside_the_default_store(place: Path) -> None:
    assert Path(state_folder()) == config.default_store_path().parent / "hooks"
    say("claude-code", "shell", place)
    files = [path for path in Path(state_folder()).rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if path.stat().st_mode & 0o077] == []
    assert files[0].parent.stat().st_mode & 0o077 == 0
