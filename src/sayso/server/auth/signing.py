"""What the server signs: tokens that it recognizes later, and login links; and the key that it signs with.

The key is `SAYSO_SECRET`, or a file beside the store's own file, created at the first use, so every process of one
machine that uses a store has the same one. A signed token is valid for one purpose and a limited time. Tokens that
work once are marked as used in the store, so they stay used after a restart and on every server of that store. A key
file that somebody else could read or have written is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

from sayso import clock, errors
from sayso.model.ids import new_token
from sayso.model.reviewer import LOCAL, Reviewer
from sayso.stores.base import Store
from sayso.stores.records import Record

_SHORTEST_SECRET = 32


def server_secret(store: Store) -> bytes | None:
    """Return the secret that all servers of a store share; None where the store is no file and none is set.

    Raises:
        ConfigError: `SAYSO_SECRET` is too short, or the file is not this user's alone or cannot be read.
    """
    given = os.environ.get("SAYSO_SECRET")
    if given:
        if len(given) < _SHORTEST_SECRET:
            raise errors.ConfigError(
                f"SAYSO_SECRET has {len(given)} characters; who guesses it can sign in as anybody, so it takes"
                f" {_SHORTEST_SECRET} random ones at least (`openssl rand -hex 32`)"
            )
        return given.encode("utf-8", "surrogateescape")
    path = _secret_file(store)
    if path is None:
        return None
    try:
        return _read_secret(path) if path.exists() else _create_secret(path)
    except OSError as error:
        raise errors.ConfigError(
            f"the server's secret {path} cannot be used ({error.strerror}); mend that, or set SAYSO_SECRET"
        ) from error


def _secret_file(store: Store) -> Path | None:
    for scheme in ("sqlite:///", "jsonl:"):
        if store.url.startswith(scheme):
            return Path(store.url.removeprefix(scheme) + ".secret")
    return None


def _create_secret(path: Path) -> bytes:
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
    return _read_secret(path)


def _read_secret(path: Path) -> bytes:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())  # of the file that is read, not of what may stand there by then
        text = file.read(1_000).strip()
    if hasattr(os, "geteuid") and (found.st_uid not in {os.geteuid(), 0} or stat.S_IMODE(found.st_mode) & 0o077):
        raise errors.ConfigError(
            f"{path} belongs to another user, or others may read or write it, so they could sign in as anybody;"
            " remove it, and a new one is made (links that were given out then open nothing)"
        )
    if len(text) < _SHORTEST_SECRET:
        raise errors.ConfigError(f"{path} holds no secret; remove it, and a new one is made")
    return text


_MAC = 64  # hexadecimal digits of a SHA-256
_LONGEST = 8_000
_KEPT_USED = timedelta(days=1)  # longer than any text lasts, for a clock that is set back
_DELETED_AT_ONCE = 100


class TokenSigner:
    """What one server signs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # two first uses at once would make two secrets
        self._secret: bytes | None = None

    def sign(self, purpose: str, body: dict[str, Any], lasts: timedelta) -> str:
        """Return a text of digits and letters that holds `body`, readable by all, for this long.

        Raises:
            ConfigError: The server's secret cannot be used.
        """
        # Kept short, as it is part of an address that people copy.
        payload = {**body, "id": new_token()[:16], "until": int((clock.now() + lasts).timestamp())}
        text = json.dumps(payload, separators=(",", ":")).encode().hex()
        return text + self.mac(purpose, text)

    def read(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Return what was signed for this purpose; None where it was not, was altered, or has ended.

        Raises:
            ConfigError: The server's secret cannot be used.
        """
        body = self.signed(purpose, text)
        return None if body is None or clock.now() >= _end(body) else body

    def signed(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Do as `read`, also with what has ended."""
        if not _MAC < len(text) <= _LONGEST:
            return None
        signed, mac = text[:-_MAC], text[-_MAC:]
        # As text and not as what it decodes to: digits in capitals would be other texts of the same bytes.
        if not hmac.compare_digest(self.mac(purpose, signed).encode(), mac.encode()):
            return None
        return cast("dict[str, Any]", json.loads(bytes.fromhex(signed)))

    def use_once(self, body: dict[str, Any]) -> bool:
        """Mark what was read as used, in one transaction; False where that was done before."""
        is_first = self._store.keep(Record("link", body["id"], {}, due=_end(body) + _KEPT_USED), only_new=True)
        for old in self._store.records("link", due_by=clock.now(), limit=_DELETED_AT_ONCE):
            self._store.drop(old.kind, old.key)
        return is_first

    def label(self, purpose: str) -> str:
        """Return sixteen digits and letters that stay, and that only who has the secret can work out."""
        return self.mac(purpose, "")[:16]

    def mac(self, purpose: str, text: str) -> str:
        """Return 64 digits and letters that only who has the secret can compute, for a text and a purpose."""
        key = hmac.digest(self._key(), f"sayso {purpose} 1".encode(), hashlib.sha256)
        return hmac.digest(key, text.encode(), hashlib.sha256).hex()

    def _key(self) -> bytes:
        with self._lock:
            if self._secret is None:
                # A store in memory is this process's alone, and so may its secret be.
                self._secret = server_secret(self._store) or (new_token() + new_token()).encode()
            return self._secret


def _end(body: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(body["until"], UTC)


# By default, at most, and where it is printed to the terminal of the server itself.
LASTS, LONGEST, PRINTED = timedelta(minutes=15), timedelta(days=1), timedelta(hours=1)
_LINK_PURPOSE = "login link"


class Links:
    """The login links of one store."""

    def __init__(self, signer: TokenSigner) -> None:
        self._signer = signer

    def token(self, reviewer: Reviewer, lasts: timedelta = LASTS) -> str:
        """Return a token that begins one session of this reviewer; raises `ConfigError`."""
        named: dict[str, Any] = {"name": reviewer.subject}
        if reviewer.issuer != LOCAL:
            named["by"] = reviewer.issuer
        if reviewer.roles:
            named["roles"] = sorted(reviewer.roles)
        return self._signer.sign(_LINK_PURPOSE, named, min(lasts, LONGEST))

    def use(self, token: str) -> Reviewer | None:
        """Use a link up; None where it is none, was altered, has ended or was used.

        Raises:
            ConfigError: The server's secret cannot be used.
            StoreError: Whether it was used cannot be known; it begins nothing.
        """
        body = self._signer.read(_LINK_PURPOSE, token)
        if body is None or not self._signer.use_once(body):
            return None
        return Reviewer(body["name"], roles=body.get("roles", ()), issuer=body.get("by", LOCAL))

    def refusal(self, token: str) -> Literal["foreign", "ended", "used"]:
        """Return why `use` returned None: only who holds a link that was signed here learns more than `foreign`."""
        if self._signer.signed(_LINK_PURPOSE, token) is None:
            return "foreign"
        return "ended" if self._signer.read(_LINK_PURPOSE, token) is None else "used"
