"""Texts that this server signed: who brings one back did not write it, and each may be used up once.

Signed with a key of its own for each purpose, so that a text for one is none for another. What was used up is a record
in the store, so it stays so over restarts and for every server of that store. The invariant: a text is read only
after its whole signature was compared, in constant time, and never after its end.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from sayso import clock
from sayso.model.ids import new_token
from sayso.server.secret import secret_of
from sayso.stores.base import Store
from sayso.stores.records import Record

__all__ = ["Stamps"]

_MAC = 64  # hexadecimal digits of a SHA-256
_LONGEST = 8_000
_KEPT = timedelta(days=1)  # longer than any text lasts, for a clock that is set back
_SWEPT = 100


class Stamps:
    """What one server signs.

    Args:
        store: Beside whose requests it is kept what was used up.
    """

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
        said = {**body, "id": new_token()[:16], "until": int((clock.now() + lasts).timestamp())}
        text = json.dumps(said, separators=(",", ":")).encode().hex()
        return text + self._mac(purpose, text)

    def read(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Return what was signed for this purpose; None where it was not, was altered, or has ended.

        Raises:
            ConfigError: The server's secret cannot be used.
        """
        if not _MAC < len(text) <= _LONGEST:
            return None
        signed, mac = text[:-_MAC], text[-_MAC:]
        # As text and not as what it decodes to: digits in capitals would be other texts of the same bytes.
        if not hmac.compare_digest(self._mac(purpose, signed).encode(), mac.encode()):
            return None
        body = cast("dict[str, Any]", json.loads(bytes.fromhex(signed)))
        return None if clock.now() >= _end(body) else body

    def spend(self, body: dict[str, Any]) -> bool:
        """Use up what was read, in one transaction; False where that was done before."""
        is_first = self._store.keep(Record("link", body["id"], {}, due=_end(body) + _KEPT), only_new=True)
        for old in self._store.records("link", due_by=clock.now(), limit=_SWEPT):
            self._store.drop(old.kind, old.key)
        return is_first

    def label(self, purpose: str) -> str:
        """Return sixteen digits and letters that stay, and that only who has the secret can work out."""
        return self._mac(purpose, "")[:16]

    def _mac(self, purpose: str, text: str) -> str:
        key = hmac.digest(self._key(), f"sayso {purpose} 1".encode(), hashlib.sha256)
        return hmac.digest(key, text.encode(), hashlib.sha256).hex()

    def _key(self) -> bytes:
        with self._lock:
            if self._secret is None:
                # A store in memory is this process's alone, and so may its secret be.
                self._secret = secret_of(self._store) or (new_token() + new_token()).encode()
            return self._secret


def _end(body: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(body["until"], UTC)
