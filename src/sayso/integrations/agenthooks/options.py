"""What a hook knows before it answers: its options, the files of its session, and the settings that it follows.

Each hook is a process of its own. A `Session` has what the hooks of one session leave for each other: the tokens that
report how a call ended, and the keys by which a call made again finds its request. What is lost there is asked again,
or ends as `unknown`; the requests are in the store.

A hook follows the folder's own settings only while a person trusts them, as they were then; else the user's. A cloned
folder could otherwise bring rules, a store and standing grants of its own. What is trusted is kept in the user's state
folder, one record for each `sayso.toml`: the digests of it and of the policy file that it names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, cast

from sayso import clock
from sayso.integrations.agenthooks.hosts import EXECUTED, HookEvent
from sayso.model.ids import new_token

WAIT = "50s"
"""How long a hook waits unless it is told otherwise: less than the shortest limit of a host (Gemini CLI, 60 s)."""

# In a command of one of these a pattern with a wildcard could let through what its author never saw.
_SHELL = frozenset(";&|<>$`(){}\\")
_BETWEEN = re.compile(r"[;&|<>$`(){}\\\n\r]+")


class Answer(NamedTuple):
    """What the hook says: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str = ""


class Options(NamedTuple):
    """What the command line says.

    Attributes:
        allow, hold: Patterns of calls, `TOOL` or `TOOL: TEXT`, that pass or wait.
        wait: How long to wait for a person before the agent is told to make the call again.
        policy: The policy file; None for the one of the settings that count.
        store: Address of the store; None for that of the settings that count.
        is_project: The folder's own settings count without a person's trust: the hook itself is the folder's.
    """

    allow: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    wait: str = WAIT
    policy: str | None = None
    store: str | None = None
    is_project: bool = False

    def allows(self, event: HookEvent) -> bool:
        """Say whether a pattern lets the call pass: it names all that the host would execute.

        A wildcard in it fits only a single plain command.
        """
        text, is_shell = _executed(event)
        is_plain = is_shell and text is not None and text.isprintable() and not _SHELL & set(text)
        for tool, rest in map(_parts, self.allow):
            if fnmatchcase(event.tool, tool) and (
                rest is None or rest in (text, _whole(event)) or (is_plain and fnmatchcase(str(text), rest))
            ):
                return True
        return False

    def holds(self, event: HookEvent) -> bool:
        """Say whether the call waits by a pattern: any text of it fits, and any part of a command."""
        return any(
            fnmatchcase(event.tool, tool)
            and (rest is None or any(fnmatchcase(text, rest) for text in (_whole(event), *_strings(event.arguments))))
            for tool, rest in map(_parts, self.hold)
        )


def _parts(pattern: str) -> tuple[str, str | None]:
    tool, colon, rest = pattern.partition(": ")
    return tool, rest if colon else None


def _executed(event: HookEvent) -> tuple[str | None, bool]:
    """Return what the host executes of a call, and whether it is a shell command; None where other arguments count."""
    name, beside = EXECUTED.get(event.tool, ("", frozenset[str]()))
    text = event.arguments.get(name)
    if not isinstance(text, str) or event.arguments.keys() - {name} - beside:
        return None, False
    return text, name == "command"


def _whole(event: HookEvent) -> str:
    return json.dumps(event.arguments, sort_keys=True, ensure_ascii=False)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield from (" ".join(part.split()) for part in _BETWEEN.split(value))
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _strings(item)


def read_options(words: Sequence[str]) -> Options | None:
    """Return what these words of a command line say; None where the whole command line has to look at them."""
    found: dict[str, Any] = {}
    patterns: dict[str, list[str]] = {"allow": [], "hold": []}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        option = name.removeprefix("--")
        if name == "--project" and not equals:
            found["is_project"] = True
            continue
        if not name.startswith("--") or option not in {"allow", "hold", "wait", "policy", "store"}:
            return None
        if not equals:
            if not left:
                return None
            value = left.pop(0)
        if option in patterns:
            patterns[option].append(value)
        else:
            found[option] = value
    return Options(allow=tuple(patterns["allow"]), hold=tuple(patterns["hold"]), **found)


_OLD = 30 * 24 * 3600.0


def state_folder() -> str:
    """Return where hooks leave things, beside `config.default_store_path`; importing that takes longer than a hook."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Application Support")
    else:
        base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "sayso", "hooks")


def shape_of(*parts: object) -> str:
    """Return a digest of what makes two calls equal."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Entry(NamedTuple):
    """One call of a session.

    Attributes:
        path: Its file.
        names: What it is found by.
        data: What the next hook needs.
    """

    path: str
    names: list[str]
    data: dict[str, Any]

    def take(self) -> bool:
        """Remove it; True for the one caller that did, of several at once."""
        try:
            os.unlink(self.path)
        except OSError:
            return False
        return True


class Session:
    """The entries of one session of one host, a file each, readable by their owner only."""

    def __init__(self, host: str, session: str) -> None:
        self._base = state_folder()
        self._folder = os.path.join(self._base, shape_of(host, session)[:32])

    def entries(self, kind: Literal["running", "ticket"], name: str | None = None) -> Iterator[Entry]:
        """Yield the entries of a kind, oldest first; with a name, those that are found by it."""
        try:
            files = sorted(file for file in os.listdir(self._folder) if file.startswith(f"{kind}-"))
        except OSError:
            return
        for file in files:
            path = os.path.join(self._folder, file)
            with suppress(OSError, ValueError):  # another hook has taken it
                with open(path, encoding="utf-8") as text:
                    found = cast("dict[str, Any]", json.load(text))
                if name is None or name in found["names"]:
                    yield Entry(path, found["names"], found["data"])

    def add(self, kind: Literal["running", "ticket"], names: list[str], data: dict[str, Any]) -> None:
        """Write an entry; it is whole or not there."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        mark = new_token()[:16]
        new = os.path.join(self._folder, f"new-{mark}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({"names": names, "data": data}, file)
        os.replace(new, os.path.join(self._folder, f"{kind}-{os.stat(new).st_mtime_ns:020d}-{mark}"))

    def is_first(self, *parts: object) -> bool:
        """Say whether nobody has asked this with the same parts, in this session or turn; of several at once, one."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        mark = os.path.join(self._folder, f"asked-{shape_of(*parts)}")
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def clear(self) -> None:
        """Remove the folder if no call is to come again, and what sessions left that nobody has used for a month."""
        with suppress(OSError):
            for file in os.listdir(self._folder):
                if file.startswith("asked-"):
                    os.unlink(os.path.join(self._folder, file))
            os.rmdir(self._folder)
        now = clock.now().timestamp()
        with suppress(OSError):
            for folder in os.scandir(self._base):
                if now - folder.stat().st_mtime > _OLD:
                    for file in os.scandir(folder.path):
                        os.unlink(file.path)
                    os.rmdir(folder.path)


_FILE = "sayso.toml"


class NotTrusted(Exception):
    """A settings file is not as it was when the person trusted it."""


class Settings(NamedTuple):
    """The settings that count for a call.

    Attributes:
        folder: From where their relative paths count.
        path: The file; None where there is none.
        digests: Of each file that may be read only as it was then, by path.
        ignored: The folder's own file, where it is not followed.
    """

    folder: str
    path: str | None
    digests: Mapping[str, str]
    ignored: str | None = None

    @property
    def may_have_rules(self) -> bool:
        """Whether the file may have rules; reading it as TOML would take longer."""
        if self.path is None:
            return False
        with open(self.path, "rb", opener=_at_once) as file:
            text = file.read()
        return b"rules" in text or b"policy" in text


def find_settings(folder: str, *, is_project: bool) -> Settings:
    """Return the settings that count in a folder: the nearest trusted ones upwards, else those of the user's home.

    With `is_project` the nearest ones count, whoever wrote them.

    Raises:
        NotTrusted: The nearest ones were trusted once, and have changed.
    """
    ignored, home = None, os.path.realpath(os.path.expanduser("~"))
    here = start = os.path.realpath(folder if folder and os.path.isdir(folder) else os.getcwd())
    while True:
        path = os.path.join(here, _FILE)
        if is_project and os.path.isfile(path):
            return Settings(start, path, {})
        files = None if is_project else _record(path)
        if files is not None:
            for name, digest in files.items():
                if _digest(name) != digest:
                    raise NotTrusted(
                        f"{name} is not as it was when you trusted {here}; read it and run `sayso hook trust {here}`,"
                        f" or `sayso hook trust --revoke {here}`"
                    )
            return Settings(here, path, files, ignored)
        if ignored is None and here != home and os.path.lexists(path):
            ignored = path
        above = os.path.dirname(here)
        if above == here:
            break
        here = above
    if is_project:
        return Settings(start, None, {})
    own = os.path.join(home, _FILE)
    return Settings(home, own if os.path.isfile(own) else None, {}, ignored)


# -- what is trusted -----------------------------------------------------------------------------------------------


def _base() -> str:
    return os.path.join(os.path.dirname(state_folder()), "trusted")


def _place(path: str) -> str:
    return os.path.join(_base(), hashlib.sha256(os.fsencode(path)).hexdigest()[:32])


def _record(path: str) -> dict[str, str] | None:
    """Return the digests with which a file is trusted; None where it is not."""
    try:
        with open(_place(path), encoding="utf-8") as file:
            found: Any = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict) or path not in found:  # of another file, or no record
        raise NotTrusted(f"what was trusted of {path} cannot be read; run `sayso hook trust` again")
    return cast("dict[str, str]", found)


def _digest(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", opener=_at_once) as file:
            return hashlib.sha256(file.read().encode()).hexdigest()
    except (OSError, ValueError):
        return None


def _at_once(path: str, flags: int) -> int:
    # A pipe would wait for whoever writes into it, and a host lets a call through whose hook takes too long.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def trust(files: Mapping[str, str]) -> None:
    """Trust a `sayso.toml`, the first of these texts by path, and with it the others."""
    os.makedirs(_base(), mode=0o700, exist_ok=True)
    place = _place(next(iter(files)))
    new = f"{place}.{os.getpid()}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}, file)
    os.replace(new, place)


def revoke(folder: str) -> bool:
    """Trust the `sayso.toml` of a folder no more; return whether it was."""
    try:
        os.unlink(_place(os.path.join(os.path.realpath(folder), _FILE)))
    except FileNotFoundError:
        return False
    return True


def trusted() -> Iterator[tuple[str, bool]]:
    """Yield each trusted `sayso.toml`, and whether it still is as it was."""
    with suppress(FileNotFoundError):
        for entry in sorted(os.listdir(_base())):
            with suppress(OSError, ValueError), open(os.path.join(_base(), entry), encoding="utf-8") as file:
                found = cast("dict[str, str]", json.load(file))
                yield next(iter(found)), all(_digest(path) == digest for path, digest in found.items())
