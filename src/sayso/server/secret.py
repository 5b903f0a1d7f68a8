"""The server's secret, by which it knows again what it has signed: login links, and the way to an identity provider.

It is `SAYSO_SECRET`, or stands in a file beside the store's own, made at its first use; so every process of one machine
that uses a store has the same one. The invariant: a file that somebody else could read or have written is not used.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from sayso import errors
from sayso.model.ids import new_token
from sayso.stores.base import Store

__all__ = ["secret_of"]

_SHORTEST = 32


def secret_of(store: Store) -> bytes | None:
    """Return the secret that all servers of a store share; None where the store is no file and none is set.

    Raises:
        ConfigError: `SAYSO_SECRET` is too short, or the file is not this user's alone or cannot be read.
    """
    given = os.environ.get("SAYSO_SECRET")
    if given:
        if len(given) < _SHORTEST:
            raise errors.ConfigError(
                f"SAYSO_SECRET has {len(given)} characters; who guesses it can sign in as anybody, so it takes"
                f" {_SHORTEST} random ones at least (`openssl rand -hex 32`)"
            )
        return given.encode("utf-8", "surrogateescape")
    path = _beside(store)
    if path is None:
        return None
    try:
        return _read(path) if path.exists() else _made(path)
    except OSError as error:
        raise errors.ConfigError(
            f"the server's secret {path} cannot be used ({error.strerror}); mend that, or set SAYSO_SECRET"
        ) from error


def _beside(store: Store) -> Path | None:
    for scheme in ("sqlite:///", "jsonl:"):
        if store.url.startswith(scheme):
            return Path(store.url.removeprefix(scheme) + ".secret")
    return None


def _made(path: Path) -> bytes:
    """Write a secret where there is none; of several processes that do so at once, all return the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{new_token()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(new_token() + new_token() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)  # whole or not at all, and never over one that is there
    finally:
        draft.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())  # of the file that is read, not of what may stand there by then
        text = file.read(1_000).strip()
    if hasattr(os, "geteuid") and (found.st_uid not in {os.geteuid(), 0} or stat.S_IMODE(found.st_mode) & 0o077):
        raise errors.ConfigError(
            f"{path} belongs to another user, or others may read or write it, so they could sign in as anybody;"
            " remove it, and a new one is made (links that were given out then open nothing)"
        )
    if len(text) < _SHORTEST:
        raise errors.ConfigError(f"{path} holds no secret; remove it, and a new one is made")
    return text
