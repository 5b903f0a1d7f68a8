"""Which settings a hook follows: the folder's own only while a person trusts them, as they were then; else the user's.

A cloned folder could otherwise bring rules, a store and standing grants of its own. What is trusted is kept in the
user's state folder, one record for each `sayso.toml`: the digests of it and of the policy file that it names. This is
looked at before every tool call, so it imports little.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from sayso.integrations.agenthooks.session import state_folder

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
