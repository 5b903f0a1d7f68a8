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
"""How long a hook waits by default: less than the shortest timeout of a host (Gemini CLI, 60 s)."""

# In a command with one of these, a wildcard could match code that the pattern's author did not intend.
_SHELL = frozenset(";&|<>$`(){}\\")
_SEPARATORS = re.compile(r"[;&|<>$`(){}\\\n\r]+")


class Answer(NamedTuple):
    """The answer of a hook: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str = ""


class Options(NamedTuple):
    """The options of the command line.

    Attributes:
        allow, hold: Patterns of calls that pass or wait, as `TOOL` or `TOOL: TEXT`.
        wait: How long to wait for a person before telling the agent to make the call again.
        policy: The policy file; None for the one in the effective settings.
        store: The address of the store; None for the one in the effective settings.
        is_project: Whether the folder's settings apply without a person's trust, because the hook is the folder's own.
    """

    allow: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    wait: str = WAIT
    policy: str | None = None
    store: str | None = None
    is_project: bool = False

    def allows(self, event: HookEvent) -> bool:
        """Return whether a pattern allows the call, which it must match in full, as the host would execute it.

        A wildcard matches only in a single plain command.
        """
        name, beside = EXECUTED.get(event.tool, ("", frozenset[str]()))
        text = event.arguments.get(name)
        if not isinstance(text, str) or event.arguments.keys() - {name} - beside:
            text = None  # other arguments matter, too
        is_plain = name == "command" and text is not None and text.isprintable() and not _SHELL & set(text)
        for tool, rest in map(_split_pattern, self.allow):
            if fnmatchcase(event.tool, tool) and (
                rest is None or rest in (text, _all_json(event)) or (is_plain and fnmatchcase(str(text), rest))
            ):
                return True
        return False

    def holds(self, event: HookEvent) -> bool:
        """Return whether a pattern holds the call: it may match any of the call's texts, or any part of a command."""
        return any(
            fnmatchcase(event.tool, tool)
            and (rest is None or any(fnmatchcase(text, rest) for text in (_all_json(event), *_texts(event.arguments))))
            for tool, rest in map(_split_pattern, self.hold)
        )


def _split_pattern(pattern: str) -> tuple[str, str | None]:
    tool, colon, rest = pattern.partition(": ")
    return tool, rest if colon else None


def _all_json(event: HookEvent) -> str:
    return json.dumps(event.arguments, sort_keys=True, ensure_ascii=False)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield from (" ".join(part.split()) for part in _SEPARATORS.split(value))
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)


def read_options(words: Sequence[str]) -> Options | None:
    """Parse the words of a command line; return None if only the full command line can parse them."""
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
    """Return the hooks' state folder. It is next to `config.default_store_path`, whose import would be too slow."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Application Support")
    else:
        base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "sayso", "hooks")


def shape_of(*parts: object) -> str:
    """Return a digest that is the same for equal calls."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Entry(NamedTuple):
    """One call of a session.

    Attributes:
        path: The entry's file.
        names: The names with which it can be found.
        data: The data for the next hook.
    """

    path: str
    names: list[str]
    data: dict[str, Any]

    def take(self) -> bool:
        """Remove the entry; return True only to the one of several concurrent callers that removed it."""
        try:
            os.unlink(self.path)
        except OSError:
            return False
        return True


class Session:
    """The entries of one session of one host, each in a file that only its owner can read."""

    def __init__(self, host: str, session: str) -> None:
        self._base = state_folder()
        self._folder = os.path.join(self._base, shape_of(host, session)[:32])

    def entries(self, kind: Literal["running", "ticket"], name: str | None = None) -> Iterator[Entry]:
        """Yield the entries of a kind, oldest first; with a name, only those that have it."""
        try:
            files = sorted(file for file in os.listdir(self._folder) if file.startswith(f"{kind}-"))
        except OSError:
            return
        for file in files:
            path = os.path.join(self._folder, file)
            with suppress(OSError, ValueError):  # another hook has removed it
                with open(path, encoding="utf-8") as text:
                    found = cast("dict[str, Any]", json.load(text))
                if name is None or name in found["names"]:
                    yield Entry(path, found["names"], found["data"])

    def add(self, kind: Literal["running", "ticket"], names: list[str], data: dict[str, Any]) -> None:
        """Write an entry atomically."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        mark = new_token()[:16]
        new = os.path.join(self._folder, f"new-{mark}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({"names": names, "data": data}, file)
        os.replace(new, os.path.join(self._folder, f"{kind}-{os.stat(new).st_mtime_ns:020d}-{mark}"))

    def is_first(self, *parts: object) -> bool:
        """Return True to the first caller with these parts in this session or turn, even if several ask at once."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        mark = os.path.join(self._folder, f"asked-{shape_of(*parts)}")
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def clear(self) -> None:
        """Remove the folder if no call will be repeated, and the folders of sessions unused for a month."""
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
    """A settings file has changed since the person trusted it."""


class Settings(NamedTuple):
    """The effective settings for a call.

    Attributes:
        folder: The folder to which their relative paths refer.
        path: The settings file; None if there is none.
        digests: By path: the digest that a trusted file must still have when it is read.
        ignored: The folder's own file, if it is not followed.
    """

    folder: str
    path: str | None
    digests: Mapping[str, str]
    ignored: str | None = None

    @property
    def may_have_rules(self) -> bool:
        """Whether the file may have rules, by a text search that is faster than parsing TOML."""
        if self.path is None:
            return False
        with open(self.path, "rb", opener=_open_nonblocking) as file:
            text = file.read()
        return b"rules" in text or b"policy" in text


def find_settings(folder: str, *, is_project: bool) -> Settings:
    """Return the effective settings of a folder: the nearest trusted ones upwards, or else those of the user's home.

    With `is_project`, the nearest ones apply even if they are not trusted.

    Raises:
        NotTrusted: The nearest ones were trusted, but have changed since.
    """
    ignored, home = None, os.path.realpath(os.path.expanduser("~"))
    here = start = os.path.realpath(folder if folder and os.path.isdir(folder) else os.getcwd())
    while True:
        path = os.path.join(here, _FILE)
        if is_project and os.path.isfile(path):
            return Settings(start, path, {})
        files = None if is_project else _trust_record(path)
        if files is not None:
            for name, digest in files.items():
                if _digest(name) != digest:
                    raise NotTrusted(
                        f"{name} has changed since you trusted {here}; read it and run `sayso hook trust"
                        f" {here}`, or `sayso hook trust --revoke {here}`"
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


# -- trust ---------------------------------------------------------------------------------------------------------


def _trust_folder() -> str:
    return os.path.join(os.path.dirname(state_folder()), "trusted")


def _record_path(path: str) -> str:
    return os.path.join(_trust_folder(), hashlib.sha256(os.fsencode(path)).hexdigest()[:32])


def _trust_record(path: str) -> dict[str, str] | None:
    """Return the digests with which a file is trusted; None if it is not trusted."""
    try:
        with open(_record_path(path), encoding="utf-8") as file:
            found: Any = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict) or path not in found:  # invalid, or the record of another file
        raise NotTrusted(f"the trust record of {path} cannot be read; run `sayso hook trust` again")
    return cast("dict[str, str]", found)


def _digest(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", opener=_open_nonblocking) as file:
            return hashlib.sha256(file.read().encode()).hexdigest()
    except (OSError, ValueError):
        return None


def _open_nonblocking(path: str, flags: int) -> int:
    # Opening a pipe would block until a writer opens it, and hosts allow a call if its hook times out.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def trust(files: Mapping[str, str]) -> None:
    """Trust a `sayso.toml`, which is the first of these texts by path, together with the other files."""
    os.makedirs(_trust_folder(), mode=0o700, exist_ok=True)
    place = _record_path(next(iter(files)))
    new = f"{place}.{os.getpid()}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}, file)
    os.replace(new, place)


def revoke(folder: str) -> bool:
    """Stop trusting the `sayso.toml` of a folder; return whether it was trusted."""
    try:
        os.unlink(_record_path(os.path.join(os.path.realpath(folder), _FILE)))
    except FileNotFoundError:
        return False
    return True


def list_trusted() -> Iterator[tuple[str, bool]]:
    """Yield each trusted `sayso.toml`, and whether it is unchanged."""
    with suppress(FileNotFoundError):
        for entry in sorted(os.listdir(_trust_folder())):
            with suppress(OSError, ValueError), open(os.path.join(_trust_folder(), entry), encoding="utf-8") as file:
                found = cast("dict[str, str]", json.load(file))
                yield next(iter(found)), all(_digest(path) == digest for path, digest in found.items())
