"""Claude Code, Codex and Gemini CLI, with the hook that `sayso hook install` writes and a model that the test scripts.

They come from npm, in the versions of `frameworks.toml`, and `NODE_MODULES` names their folder (`make test-frameworks
FRAMEWORK=coding_agents`). Cursor cannot be run without its editor and an account.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.model.request import Request, State
from tests.integrations.adapters.installed import absent
from tests.integrations.hooks.model_server import Call, Turn, model
from tests.support import commands

pytestmark = pytest.mark.slow
AGENTS = Path(os.environ.get("NODE_MODULES", "/nowhere"))
LIMIT = 120.0
PAYLOADS = json.loads((Path(__file__).parent / "payloads.json").read_text(encoding="utf-8"))
BEFORE = {"claude-code": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool"}
FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
}
PROGRAMS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini"}
MOVE = {
    "claude-code": Call("Bash", {"command": "mv build gone", "description": "Rename the build folder"}),
    "codex": Call("exec_command", {"cmd": "mv build gone"}),
    "gemini": Call("run_shell_command", {"command": "mv build gone", "description": "Rename the build folder"}),
}
every_host = pytest.mark.parametrize("host", [*PROGRAMS])


def program(host: str) -> list[str]:
    path = AGENTS / ".bin" / PROGRAMS[host]
    if shutil.which("node") is None or not path.exists():
        absent(f"{host} itself")
    return [str(path)]


def prepare(host: str, place: Path, change: Callable[[str], str] = str) -> None:
    """Install the hook with a wait that is over at once; what the host sends is written into `sent`."""
    (place / "home" / FILES[host]).parent.mkdir()
    if host == "gemini":
        quiet = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": False}}
        (place / "home" / FILES[host]).write_text(json.dumps(quiet), encoding="utf-8")
    assert commands.sayso("hook", "install", host, "--yes", "--wait", "1ms").code == 0
    path = place / "home" / FILES[host]
    settings = json.loads(path.read_text(encoding="utf-8"))
    (place / "sent").mkdir()
    for groups in settings["hooks"].values():
        for group in groups:
            (entry,) = group["hooks"]
            entry["command"] = f"tee {shlex.quote(str(place))}/sent/$(date +%s%N) | {change(entry['command'])}"
    path.write_text(json.dumps(settings), encoding="utf-8")
    (place / "work" / "build").mkdir(parents=True)


def drive(host: str, place: Path, turns: Sequence[Turn], *, trusted: bool = True) -> None:
    """Let the agent work until the model has nothing more to say."""
    own = {"SAYSO_STORE": address(place), "HOME": str(place / "home")}
    with model(turns) as url:
        if host == "codex":
            provider = f'{{name="m", base_url="{url}/v1", wire_api="responses", stream_max_retries=0}}'
            words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
            words += ["--dangerously-bypass-hook-trust"] if trusted else []
            words += ["-c", 'model="m"', "-c", 'model_provider="m"', "-c", f"model_providers.m={provider}"]
        elif host == "claude-code":
            own |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1"}
            own |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
            words = ["--allowedTools", "Bash", "--model", "m", "-p"]
        else:
            own |= {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
            words = ["-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p"]
        subprocess.run(
            [*program(host), *words, "Rename the build folder."],
            cwd=place / "work", env=os.environ | own, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT,
            check=True,
        )  # fmt: skip


def address(place: Path) -> str:
    return f"sqlite:///{place / 'sayso.db'}"


def requests(place: Path) -> list[Request]:
    return list(sayso.Review(address(place)).list(state="all").requests)


def moved(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "work").iterdir())


def shape(value: Any) -> Any:
    """Return a payload without its values."""
    return {name: shape(one) for name, one in value.items()} if isinstance(value, dict) else type(value).__name__


@every_host
def test_a_held_call_does_not_run_and_the_approved_one_runs_once_and_is_reported(host: str, place: Path) -> None:
    program(host)
    prepare(host, place)

    def again(conversation: str) -> Call:
        [request] = requests(place)
        assert moved(place) == ["build"]
        assert request.id in conversation, "the model was told"
        sayso.Review(address(place)).approve(request.id, by="ada")
        return MOVE[host]

    drive(host, place, [lambda _: MOVE[host], again])
    assert moved(place) == ["gone"]
    [request] = requests(place)
    assert request.state is State.DONE
    sent = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((place / "sent").iterdir())]
    kinds = ["shell", "again", "done", "end"]
    assert [shape(one) for one in sent] == [shape(PAYLOADS[host][kind]) for kind in kinds]
    assert [one["hook_event_name"] for one in sent[:2]] == [BEFORE[host]] * 2


@every_host
def test_what_a_person_changed_is_what_runs_and_a_no_reaches_the_model(host: str, place: Path) -> None:
    program(host)
    prepare(host, place)
    heard: list[str] = []

    def changed(_: str) -> Call:
        sayso.Review(address(place)).approve(requests(place)[0].id, by="ada", changes={"command": "mv build kept"})
        return MOVE[host]

    def rejected(_: str) -> Call:
        (request,) = sayso.Review(address(place)).list().requests
        sayso.Review(address(place)).reject(request.id, "not on a Sunday", by="ada")
        return MOVE[host]

    def hears(conversation: str) -> str:
        heard.append(conversation)
        return "done"

    drive(host, place, [lambda _: MOVE[host], changed, lambda _: MOVE[host], rejected, hears])
    assert moved(place) == ["kept"]
    assert "not on a Sunday" in heard[0]
    assert "mv build kept" in heard[0], "the model was told of the change"


@every_host
def test_a_hook_that_fails_without_a_word_keeps_the_call_from_running(host: str, place: Path) -> None:
    program(host)
    prepare(host, place, lambda command: f"false ||{command.partition('||')[2]}" if "||" in command else command)
    drive(host, place, [lambda _: MOVE[host]])
    assert moved(place) == ["build"]


def test_codex_skips_a_hook_that_nobody_has_trusted(place: Path) -> None:
    program("codex")
    prepare("codex", place)
    drive("codex", place, [lambda _: MOVE["codex"]], trusted=False)
    assert moved(place) == ["gone"], "if this fails, the warnings in the guide and in `sayso hook install` can go"
