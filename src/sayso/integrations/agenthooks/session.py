"""What the hooks of one session leave for each other: calls that the host runs by now, and calls to be made again.

Each hook is a process of its own. The requests are in the store; here are only the tokens that report how a call ended
and the keys by which a call made again finds its request. What is lost here is asked again, or ends as `unknown`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast

from sayso import clock
from sayso.model.ids import new_token

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
