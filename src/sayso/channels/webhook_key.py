"""The keys of a webhook: they sign what leaves, and check what comes in, as Standard Webhooks 1.0 says.

Signed is `id.timestamp.body`, by HMAC-SHA256. Several keys stand side by side while one replaces another: what leaves
is signed with each, and what comes in may be signed with any. What comes in is compared as it is written and never
decoded, so that no second spelling of a signature or an instant is taken. Invariant: what does not fit to the last bit
is refused, whatever is wrong with it, in the same words.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Collection
from datetime import datetime, timedelta

from sayso import clock, errors

__all__ = ["ID", "SIGNATURE", "TIMESTAMP", "WINDOW", "WebhookKeys"]

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
WINDOW = timedelta(minutes=5)

_SHORTEST, _LONGEST = 24, 64  # bytes, as the standard has it
_PREFIX = "whsec_"
# An id with a dot in it could be read as an id and the beginning of an instant.
_IDS = re.compile(r"[!-\-/-~]{1,256}")
_INSTANTS = re.compile(r"[1-9][0-9]{8,11}")
_MOST_SIGNATURES = 10


class WebhookKeys:
    """The secrets of one webhook.

    Args:
        secrets: Each `whsec_` and base64 of 24 to 64 random bytes.
        whose: What a fault names, e.g. the variable that they came from.

    Raises:
        ConfigError: There is none, or one is none; the fault does not quote it.
    """

    def __init__(self, secrets: Collection[str], *, whose: str) -> None:
        self._keys = tuple(_key(secret, whose) for secret in secrets)
        if not self._keys:
            raise errors.ConfigError(f"{whose} holds no secret; give one like whsec_… (24 to 64 random bytes, base64)")

    def headers(self, message_id: str, at: datetime, body: bytes) -> dict[str, str]:
        """Return the headers that sign a message."""
        seconds = str(clock.microseconds(at) // 1_000_000)
        said = " ".join(_signature(key, message_id, seconds, body) for key in self._keys)
        return {ID: message_id, TIMESTAMP: seconds, SIGNATURE: said}

    def has_signed(self, message_id: str, seconds: str, signatures: str, body: bytes, *, now: datetime) -> bool:
        """Say whether one of the secrets signed this, at most five minutes ago or ahead."""
        if _IDS.fullmatch(message_id) is None or _INSTANTS.fullmatch(seconds) is None:
            return False
        if abs(clock.instant(int(seconds) * 1_000_000) - now) > WINDOW:
            return False
        given = [one.encode() for one in signatures.split(" ")[:_MOST_SIGNATURES]]
        right = [_signature(key, message_id, seconds, body).encode() for key in self._keys]
        # Every pair is compared, so that the time says nothing about which one fits.
        return any([hmac.compare_digest(one, other) for one in given for other in right])  # noqa: C419


def _key(secret: str, whose: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
        raise errors.ConfigError(
            f"{whose} holds what is no secret of a webhook; give whsec_ and the base64 of 24 to 64 random bytes,"
            " several of them with a space between"
        )
    return key


def _signature(key: bytes, message_id: str, seconds: str, body: bytes) -> str:
    made = hmac.new(key, f"{message_id}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(made).decode()}"
