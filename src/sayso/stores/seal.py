"""Sealing what a store keeps: AES-256-GCM with the key in `SAYSO_KEY`, or nothing when there is no key.

Each text is bound to its request and to the column it stands in, so that a sealed text can be moved to no other
place. With a key nothing but sealed text is taken: what somebody wrote in by hand is refused. Rows from before the
key was set are sealed by `sayso doctor --seal` (`sayso.stores.reseal`), and by nothing else.
The extra `crypto` brings the cipher.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

from sayso import errors

__all__ = ["Seal"]

_MARK = "sealed:2:"
_ANY = "sealed:"
_NONCE = 12
_HOW = "`sayso doctor --seal` seals what was written before the key was set, if nobody else wrote it"


class Seal:
    """Closes and opens texts; without a key it lets them through as they are."""

    def __init__(self, key: str | None = None) -> None:
        self.is_open = key is None
        self._cipher: Any = None if key is None else _cipher(key)

    def close(self, text: str, owner: str, column: str) -> str:
        """Return what may be written to disk in this column of this request (of this run, where there is none)."""
        if self.is_open:
            return text
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, text.encode(), _place(owner, column).encode())
        return _MARK + base64.b64encode(nonce + sealed).decode("ascii")

    def open(self, text: str, owner: str, column: str) -> str:
        """Return what was closed.

        Raises:
            StoreSealedError: It was sealed with another key, or for another place; it is not sealed though there is
                a key; or there is no key here.
        """
        if self.is_open:
            if text.startswith(_ANY):
                raise errors.StoreSealedError(f"request {owner} is sealed; set SAYSO_KEY to the key of this store")
            return text
        if not text.startswith(_MARK):
            raise errors.StoreSealedError(f"{column} of request {owner} is not sealed, and SAYSO_KEY is set; {_HOW}")
        return self._opened(text, _place(owner, column), owner)

    def open_earlier(self, text: str, owner: str, column: str) -> str:
        """Return what was closed, or written without a seal, by any version; for `sayso.stores.reseal` alone."""
        if text.startswith("sealed:1:"):
            return self._opened(text, owner, owner)
        return self.open(text, owner, column) if text.startswith(_ANY) else text

    def _opened(self, text: str, bound_to: str, owner: str) -> str:
        try:
            packed = base64.b64decode(text[len(_MARK) :], validate=True)
            return self._cipher.decrypt(packed[:_NONCE], packed[_NONCE:], bound_to.encode()).decode()
        except Exception as error:  # the cipher's own error class must not be imported without the extra
            raise errors.StoreSealedError(
                f"request {owner} does not open with this SAYSO_KEY: another key sealed it, or it was altered"
            ) from error


def _place(owner: str, column: str) -> str:
    return f"{owner}/{column}"


def _cipher(key: str) -> Any:
    try:
        raw = base64.b64decode(key, altchars=b"-_", validate=True)  # a mistyped key must not become another one
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 32:
        raise errors.ConfigError(
            "SAYSO_KEY must be 32 random bytes in URL-safe base64, e.g. from "
            '`python -c "import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())"`'
        )
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise errors.ConfigError('SAYSO_KEY needs the extra `crypto`: pip install "sayso[crypto]"') from None
    return AESGCM(raw)
