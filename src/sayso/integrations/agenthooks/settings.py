"""Adds the hook to the settings of a coding agent, and removes exactly these entries again.

The settings are the user's file: nothing else in it is changed, and a file that cannot be parsed is not written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from sayso.errors import ConfigError
from sayso.model import duration

WAIT = "570s"
"""How long an installed hook waits for a person; the timeout in its entry is half a minute longer."""
_MARGIN = 30
# A hook that is missing, crashes or is killed must block the call. Codex and Gemini CLI allow a call after exit code 2
# without a message, and a host may run hooks in a shell that has no braces.
_OR_BLOCK = "|| sh -c 'echo sayso failed, so the call was not run >&2; exit 2'"

Scope = Literal["user", "project"]


class _Settings(NamedTuple):
    """Where a host has its hooks, and the format of an entry.

    Attributes:
        folder: The settings folder in the home directory and in a project.
        home: The environment variable that overrides the folder in the home directory.
        file: The file in the folder.
        events: The events; the one before a call is first.
        first: Additional fields of the entry before a call.
        every: Additional fields of every entry.
        unit: The number of the timeout's units in a second.
        is_flat: Whether an event has a list of entries instead of a list of groups.
        new: Additional content of a new file.
        note: What else the user must do for the hook to run.
    """

    folder: str
    home: str | None
    file: str
    events: tuple[str, ...]
    first: Mapping[str, Any] = {}
    every: Mapping[str, Any] = {"type": "command"}
    unit: int = 1
    is_flat: bool = False
    new: Mapping[str, Any] = {}
    note: str = ""


_SETTINGS = {
    "claude-code": _Settings(
        ".claude", "CLAUDE_CONFIG_DIR", "settings.json",
        ("PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionEnd"), {"onFailure": "block"},
    ),
    "codex": _Settings(
        ".codex", "CODEX_HOME", "hooks.json", ("PreToolUse", "PostToolUse", "Stop"),
        {"statusMessage": "Waiting for a person in sayso"},
        note="Codex silently skips hooks that you have not trusted, and then nothing is held: start `codex`,"
        " type /hooks, and trust these hooks, again after each change.",
    ),
    "gemini": _Settings(
        ".gemini", None, "settings.json", ("BeforeTool", "AfterTool", "SessionEnd"),
        every={"type": "command", "name": "sayso"}, unit=1000,
    ),
    "cursor": _Settings(
        ".cursor", None, "hooks.json", ("preToolUse", "postToolUse", "postToolUseFailure", "sessionEnd"),
        {"failClosed": True}, every={}, is_flat=True, new={"version": 1},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A planned change to a settings file.

    Attributes:
        path: The file.
        before: Its current text; None if it does not exist.
        after: Its new text; None if it will be removed.
        note: What the user must do after the change.
    """

    path: Path
    before: str | None
    after: str | None
    note: str = ""

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty if nothing changes."""
        old, new = (self.before or "").splitlines(keepends=True), (self.after or "").splitlines(keepends=True)
        return "".join(unified_diff(old, new, str(self.path), str(self.path)))

    def write(self) -> None:
        """Write the change atomically.

        Raises:
            ConfigError: The file has changed since it was read; nothing was written.
        """
        target = self.path.resolve()  # keep a symbolic link into the user's dotfiles
        if _text(target) != self.before:
            raise ConfigError(f"{self.path} has changed in the meantime; nothing was written. Run the command again")
        if self.after is None:
            target.unlink()
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.sayso")
        new.write_text(self.after, encoding="utf-8")
        if self.before is not None:
            new.chmod(target.stat().st_mode & 0o777)
        new.replace(target)


def hook_command(host: str, words: Sequence[str], scope: Scope) -> str:
    """Return the hook's command line, with the full path for a user, or the bare name for a shared project.

    A project's own hook follows the project's own settings.
    """
    if scope == "user":
        return shlex.join([*own_program(), "hook", host, *words])
    return shlex.join(["sayso", "hook", host, "--project", *words])


def own_program() -> list[str]:
    """Return the words that start this sayso from any folder and with any PATH."""
    script = Path(sys.executable).with_name("sayso")
    # Without -P, Python could import a `sayso` from the working directory.
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "sayso"]


def plan_install(host: str, words: Sequence[str], wait: str, scope: Scope) -> Change:
    """Return the change that adds the hook to a host's settings, and replaces earlier entries of ours.

    Raises:
        ConfigError: The file cannot be read as JSON of the expected shape.
    """
    settings, path, before, tree = _read(host, scope)
    seconds = int(duration.parse(wait).total_seconds()) + _MARGIN
    command = hook_command(host, [*words, "--wait", wait], scope)
    tree = _strip_ours(host, tree) if before is not None else dict(settings.new)
    hooks: dict[str, Any] = tree.setdefault("hooks", {})
    for place, event in enumerate(settings.events):
        text = f"{command} {_OR_BLOCK}" if place == 0 else command
        entry = {**settings.every, "command": text, "timeout": seconds * settings.unit}
        entry |= settings.first if place == 0 else {}
        groups = hooks.setdefault(event, [])
        if not isinstance(groups, list):
            raise _unreadable(path, f"hooks.{event} is not a list")
        cast("list[Any]", groups).append(entry if settings.is_flat else {"hooks": [entry]})
    return Change(path, before, _dump(tree, before), settings.note)


def plan_removal(host: str, scope: Scope) -> Change:
    """Return the change that removes our entries from a host's settings; a file with nothing else is removed.

    Raises:
        ConfigError: The file cannot be read as JSON of the expected shape.
    """
    settings, path, before, tree = _read(host, scope)
    if before is None:
        return Change(path, None, None)
    rest = _strip_ours(host, tree)
    if rest == tree:
        return Change(path, before, before)
    return Change(path, before, None if rest == dict(settings.new) else _dump(rest, before))


def _read(host: str, scope: Scope) -> tuple[_Settings, Path, str | None, dict[str, Any]]:
    settings = _SETTINGS[host]
    home = os.environ.get(settings.home) if settings.home and scope == "user" else None
    folder = Path(home) if home else (Path.home() if scope == "user" else Path.cwd()) / settings.folder
    path = folder / settings.file
    before = _text(path)
    try:
        tree: Any = json.loads(before) if before is not None and before.strip() else {}
    except ValueError as error:
        raise _unreadable(path, f"it is not plain JSON: {error}") from None
    if not isinstance(tree, dict) or not isinstance(cast("dict[str, Any]", tree).get("hooks", {}), dict):
        raise _unreadable(path, 'its "hooks" is not an object')
    return settings, path, before, cast("dict[str, Any]", tree)


def _unreadable(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path} was not changed: {why}. Correct the file, or add the entries from the guide by hand")


def _text(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _unreadable(path, f"it is not UTF-8: {error}") from None


def _strip_ours(host: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without our entries, and without containers that only had our entries."""
    rest: dict[str, Any] = dict(tree)
    hooks: dict[str, Any] = {}
    for event, groups in tree.get("hooks", {}).items():
        left: Any = groups
        if isinstance(groups, list):
            cleaned = [_strip_group(host, group) for group in cast("list[Any]", groups)]
            left = [group for group in cleaned if group is not None]
        if left or left == groups:
            hooks[event] = left
    if "hooks" in rest:
        rest["hooks"] = hooks
        if not hooks and tree["hooks"]:
            del rest["hooks"]
    return rest


def _strip_group(host: str, group: Any) -> Any:
    """Return a group or an entry without ours; None if nothing is left of it."""
    if not isinstance(group, dict):
        return group
    found = cast("dict[str, Any]", group)
    if _is_ours(host, found):
        return None
    entries: list[Any] = found["hooks"] if isinstance(found.get("hooks"), list) else []
    left: list[Any] = [one for one in entries if not (isinstance(one, dict) and _is_ours(host, cast("Any", one)))]
    if left == entries:
        return found
    return {**found, "hooks": left} if left else None


_OURS = re.compile(
    r"(?:'[^']*[/\\]sayso'|\S*[/\\]sayso|sayso|(?:'[^']*'|\S+) -P -m sayso) hook (?P<host>[\w-]+)(?: |$)"
)


def _is_ours(host: str, entry: Mapping[str, Any]) -> bool:
    command = entry.get("command")
    found = _OURS.match(command) if isinstance(command, str) else None
    return found is not None and found["host"] == host


def _dump(tree: Mapping[str, Any], before: str | None) -> str:
    found = re.search(r"^([ \t]+)\S", before or "", re.MULTILINE)
    text = json.dumps(tree, indent=found[1] if found else 2, ensure_ascii=False)
    if "\r\n" in (before or ""):
        text = text.replace("\n", "\r\n")
    return text + (before[len(before.rstrip()) :] if before and before.strip() else "\n")
