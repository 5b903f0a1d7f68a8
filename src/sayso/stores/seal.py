"""Sealing what a store keeps: AES-256-GCM with the key in `SAYSO_KEY`, or nothing when there is no key.

Each text is bound to its request's id, so that sealed texts cannot be moved from one request to another.
The extra `crypto` brings the cipher.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

from sayso import errors

__all__ = ["Seal"]

_MARK = "sealed:1:"
_NONCE = 12


class Seal:
    """Closes and opens texts; without a key it lets them through as they are."""

    def __init__(self, key: str | None = None) -> None:
        self.is_open = key is None
        self._cipher: Any = None if key is None else _cipher(key)

    def close(self, text: str, request_id: str) -> str:
        """Return what may be written to disk."""
        if self.is_open:
            return text
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, text.encode(), request_id.encode())
        return _MARK + base64.b64encode(nonce + sealed).decode("ascii")

    def open(self, text: str, request_id: str) -> str:
        """Return what was closed.

        Raises:
            StoreSealedError: It was sealed with another key, for another request, or there is no key here.
        """
        if not text.startswith(_MARK):
            return text
        if self.is_open:
            raise errors.StoreSealedError(f"request {request_id} is sealed; set SAYSO_KEY to the key of this store")
        packed = base64.b64decode(text[len(_MARK) :])
        try:
            return self._cipher.decrypt(packed[:_NONCE], packed[_NONCE:], request_id.encode()).decode()
        except Exception as error:  # the cipher's own error class must not be imported without the extra
            raise errors.StoreSealedError(
                f"request {request_id} does not open with this SAYSO_KEY: another key sealed it, or it was altered"
            ) from error


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
