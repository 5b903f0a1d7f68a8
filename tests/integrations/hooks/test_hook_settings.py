"""What `sayso hook install` writes into the settings of each host, and that `remove` takes exactly that out again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sayso.errors import ConfigError
from sayso.integrations.agenthooks import settings
from sayso.integrations.agenthooks.hosts import HOSTS
from tests.support.commands import sayso

FILES = {
    "claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
}  # fmt: skip
BEFORE = {"claude-code": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool", "cursor": "preToolUse"}
every_host = pytest.mark.parametrize("host", list(HOSTS))


def file_of(host: str, place: Path) -> Path:
    return place / "home" / FILES[host]


def entries(path: Path, event: str) -> list[dict[str, Any]]:
    groups = json.loads(path.read_text(encoding="utf-8"))["hooks"][event]
    return [entry for group in groups for entry in group.get("hooks", [group])]


@every_host
def test_the_change_is_shown_first_and_not_written_where_nobody_is_asked(host: str, place: Path) -> None:
    done = sayso("hook", "install", host)
    assert done.code == 1
    assert f"+++ {file_of(host, place)}" in done.out
    assert "use --yes" in done.err
    assert not file_of(host, place).exists()


@every_host
def test_install_writes_a_hook_that_blocks_where_it_fails_and_ends_before_its_host_gives_up(
    host: str, place: Path
) -> None:
    assert sayso("hook", "install", host, "--yes", "--allow", "Bash: git status").code == 0
    (entry,) = entries(file_of(host, place), BEFORE[host])
    assert f"hook {host} --allow 'Bash: git status' --wait 570s || sh -c " in entry["command"]
    failed = subprocess.run(
        ["/bin/sh", "-c", f"false {entry['command'][entry['command'].index('||') :]}"], capture_output=True, check=False
    )
    assert (failed.returncode, failed.stderr) == (2, b"sayso failed, so the call was not run\n")
    assert entry["timeout"] == (600_000 if host == "gemini" else 600)
    assert entry.get("onFailure") == ("block" if host == "claude-code" else None)
    assert entry.get("failClosed") == (True if host == "cursor" else None)


@every_host
def test_what_install_wrote_is_what_remove_takes_out_and_a_file_of_ours_alone_goes(host: str, place: Path) -> None:
    assert sayso("hook", "install", host, "--yes").code == 0
    assert sayso("hook", "remove", host, "--yes").code == 0
    assert not file_of(host, place).exists()
    assert "nothing to change" in sayso("hook", "remove", host).out


@every_host
@pytest.mark.parametrize("indent", ["  ", "    ", "\t"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_everything_else_in_the_settings_stays_byte_for_byte(host: str, indent: str, end: str, place: Path) -> None:
    theirs: dict[str, Any] = {"command": "./audit.sh # sayso hook is not this"}
    group: dict[str, Any] = theirs if host == "cursor" else {"matcher": "Write", "hooks": [theirs]}
    tree = {"z": 1, "hooks": {BEFORE[host]: [group], "other": []}, "a": ["ä", {"b": None}]}
    path = file_of(host, place)
    path.parent.mkdir()
    text = json.dumps(tree, indent=indent, ensure_ascii=False) + end
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    assert sayso("hook", "install", host, "--yes").code == 0
    assert sayso("hook", "install", host, "--yes", "--wait", "2m").code == 0, "again: in place of the first"
    assert [theirs in entries(path, BEFORE[host]), len(entries(path, BEFORE[host]))] == [True, 2]
    assert path.stat().st_mode & 0o777 == 0o600
    assert sayso("hook", "remove", host, "--yes").code == 0
    assert path.read_text(encoding="utf-8") == text


def test_who_installs_for_codex_is_told_to_trust_the_hook() -> None:
    assert "type /hooks, and trust" in sayso("hook", "install", "codex", "--yes").out
    assert "trust" not in sayso("hook", "remove", "codex", "--yes").out


def test_a_link_stays_a_link(place: Path) -> None:
    real = place / "dotfiles.json"
    real.write_text("{}\n", encoding="utf-8")
    path = file_of("claude-code", place)
    path.parent.mkdir()
    path.symlink_to(real)
    assert sayso("hook", "install", "claude-code", "--yes").code == 0
    assert path.is_symlink()
    assert "hooks" in json.loads(real.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["{ // mine\n}", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}'])
def test_settings_that_cannot_be_read_are_not_touched(text: str, place: Path) -> None:
    path = file_of("claude-code", place)
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    done = sayso("hook", "install", "claude-code", "--yes")
    assert (done.code, path.read_text(encoding="utf-8")) == (1, text)
    assert "was not changed" in done.err


def test_a_project_names_the_program_and_not_a_path_of_one_machine(place: Path) -> None:
    assert sayso("hook", "install", "claude-code", "--project", "--yes").code == 0
    (entry,) = entries(place / ".claude/settings.json", "PreToolUse")
    assert entry["command"].startswith("sayso hook claude-code ")


def test_without_a_script_the_folder_of_the_agent_brings_no_sayso_of_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(place / "bin/python"))
    assert settings.hook_command("codex", [], "user") == f"{place}/bin/python -P -m sayso hook codex"


def test_settings_that_changed_since_they_were_shown_are_not_written(place: Path) -> None:
    change = settings.plan_install("gemini", [], "1m", "user")
    path = file_of("gemini", place)
    path.parent.mkdir()
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="has changed in the meantime"):
        change.write()
    assert path.read_text(encoding="utf-8") == "{}"
