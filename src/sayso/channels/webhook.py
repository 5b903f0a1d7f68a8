"""Webhooks in the format of Standard Webhooks 1.0: the keys that sign and verify, and the channel that posts messages.

A signature is HMAC-SHA256 over `id.timestamp.body`. Several keys are valid at once while one replaces another: an
outgoing message is signed with each, an incoming one may be signed with any. Signatures and timestamps are compared as
text and never decoded, so that each has one spelling. The outbox decides about retries; a receiver recognizes a
repeated message by its id. `sayso.channels.http_post` decides where a message may go.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sayso import clock, errors
from sayso.channels.http_post import Destination, post
from sayso.channels.notification import Channel, DeliveryError, Notification, UndeliverableError
from sayso.channels.settings import Table
from sayso.model.reviewer import Identity

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
        signatures = " ".join(_signature(key, message_id, seconds, body) for key in self._keys)
        return {ID: message_id, TIMESTAMP: seconds, SIGNATURE: signatures}

    def has_signed(self, message_id: str, seconds: str, signatures: str, body: bytes, *, now: datetime) -> bool:
        """Say whether one of the secrets signed this, at most five minutes ago or ahead."""
        if _IDS.fullmatch(message_id) is None or _INSTANTS.fullmatch(seconds) is None:
            return False
        # As a number: who sends this is not known, and not every number is an instant.
        if abs(int(seconds) * 1_000_000 - clock.microseconds(now)) > WINDOW // timedelta(microseconds=1):
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


_KNOWN = ("allow_private", "ca_file", "people", "ports", "secret_env", "type", "url", "url_env")
_TYPES = {
    "asked": "request.asked", "reminder": "request.reminder", "escalated": "request.escalated",
    "mentioned": "request.mentioned", "assigned": "request.assigned", "test": "test",
}  # fmt: skip
_ENDED = {"done": "request.ended", "failed": "request.ended", "unknown": "request.ended", "expired": "request.expired"}
_GONE = 410


class WebhookChannel(Channel):
    """A channel that posts to one address.

    Args:
        name: The channel's name.
        where: To whom.
        keys: With which secrets messages are signed.
        ca_file: Certificates that are trusted, in place of the system's.
        people: Whom it reaches in person.
    """

    def __init__(
        self, name: str, where: Destination, keys: WebhookKeys, *, ca_file: str | None = None,
        people: Sequence[Identity] = (),
    ) -> None:  # fmt: skip
        self.people = people
        self.name, self._where, self._keys, self._ca_file = name, where, keys, ca_file

    def __repr__(self) -> str:
        return f"WebhookChannel({self.name!r}, {self._where!r})"

    def send(self, notification: Notification) -> None:
        """Post a notification once.

        Raises:
            UndeliverableError: The receiver said that it is gone for good (410).
            DeliveryError: It said anything else than yes.
            AddressRefusedError: Its name leads where no message may go.
            OSError: It could not be reached, or did not answer in time.
        """
        body = json.dumps(document(notification), ensure_ascii=True, allow_nan=False).encode()
        headers = {
            "content-type": "application/json", "user-agent": "sayso",
            **self._keys.headers(notification.id, clock.now(), body),
        }  # fmt: skip
        status, _ = post(self._where, body, headers, ca_file=self._ca_file)
        if status == _GONE:
            raise UndeliverableError(f"{self._where.origin} is gone for good (410); nothing more is sent there")
        if not 200 <= status < 300:
            raise DeliveryError(f"{self._where.origin} answered {status}; it is tried again later")


def document(notification: Notification) -> dict[str, Any]:
    """Return a notification as it is sent: `type`, `timestamp` and `data`."""
    data: dict[str, Any] = {
        "id": notification.request_id, "kind": notification.kind, "tool": notification.tool,
        "run_id": notification.run_id, "risk": notification.risk, "state": notification.state,
        "fingerprint": notification.fingerprint, "title": notification.title, "line": notification.line,
        "link": notification.link, "asked_at": clock.written(notification.asked_at),
        "expires_at": clock.written(notification.expires_at),
    }  # fmt: skip
    program = {"title": notification.program_title, "summary": notification.summary}
    more = {
        "outcome": notification.outcome,
        "to": notification.to,
        "arguments": notification.arguments,
        "program_says": {name: text for name, text in program.items() if text is not None} or None,
    }
    data |= {name: value for name, value in more.items() if value is not None}
    kind = _TYPES.get(notification.event) or _ENDED.get(notification.state, "request.decided")
    return {"type": kind, "timestamp": clock.written(clock.now()), "data": data}


def make(name: str, settings: Mapping[str, Any]) -> WebhookChannel:
    """Return the channel that a table of `sayso.toml` describes.

    Raises:
        ConfigError: A setting is missing, is not known, or cannot be used.
    """
    table = Table(f"channels.{name}", settings, known=_KNOWN)
    url = table.secret("url_env") if "url_env" in settings else table.text("url")
    ports: list[Any] = table.get("ports", list, [])
    if not all(type(port) is int for port in ports):
        raise table.error("ports", "must be a list of numbers")
    keys = WebhookKeys(table.secret("secret_env").split(), whose=f"[{table.where}] secret_env")
    where = Destination.parse(url, allow_private=table.get("allow_private", bool, False), ports=ports)
    return WebhookChannel(
        name, where, keys, ca_file=table.file("ca_file") if "ca_file" in settings else None,
        people=table.people("people"),
    )  # fmt: skip
