"""Messages to a program of yours: signed JSON, posted to one address, in the format of Standard Webhooks 1.0.

The receiver checks the signature with any library for that format, and tells a repeated message by its id. Whether and
when a message is tried again is the outbox's business. Invariant: nothing leaves unsigned, nothing is sent to an
address that `sayso.channels.outbound_address` refuses, and nothing that comes back is believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sayso import clock
from sayso.channels.notice import Notice, UndeliverableError
from sayso.channels.outbound_address import Destination, Resolve
from sayso.channels.post import NotTakenError, post
from sayso.channels.setting import Table
from sayso.channels.webhook_key import WebhookKeys

__all__ = ["WebhookOutlet", "document", "make"]

_KNOWN = ("allow_private", "ca_file", "ports", "secret_env", "type", "url", "url_env")
_TYPES = {
    "asked": "request.asked", "reminder": "request.reminder", "escalated": "request.escalated", "test": "test",
}  # fmt: skip
_ENDED = {"done": "request.ended", "failed": "request.ended", "unknown": "request.ended", "expired": "request.expired"}
_GONE = 410


class WebhookOutlet:
    """A channel that posts to one address.

    Args:
        name: The channel's name.
        where: To whom.
        keys: With which secrets messages are signed.
        ca_file: Certificates that are trusted, in place of the system's.
        resolve: Finds addresses, in place of the system.
    """

    def __init__(
        self, name: str, where: Destination, keys: WebhookKeys, *, ca_file: str | None = None,
        resolve: Resolve | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._where, self._keys, self._ca_file, self._resolve = where, keys, ca_file, resolve

    def __repr__(self) -> str:
        return f"WebhookOutlet({self.name!r}, {self._where!r})"

    def send(self, notice: Notice) -> None:
        """Post a notice once.

        Raises:
            UndeliverableError: The receiver said that it is gone for good (410).
            NotTakenError: It said anything else than yes.
            AddressRefusedError: Its name leads where no message may go.
            OSError: It could not be reached, or did not answer in time.
        """
        body = json.dumps(document(notice), ensure_ascii=True, allow_nan=False).encode()
        headers = {
            "content-type": "application/json", "user-agent": "sayso",
            **self._keys.headers(notice.id, clock.now(), body),
        }  # fmt: skip
        status = post(self._where, body, headers, resolve=self._resolve, ca_file=self._ca_file)
        if status == _GONE:
            raise UndeliverableError(f"{self._where.origin} is gone for good (410); nothing more is sent there")
        if not 200 <= status < 300:
            raise NotTakenError(f"{self._where.origin} answered {status}; it is tried again later")

    def follow_up(self, notice: Notice, reference: str | None) -> None:  # noqa: ARG002  each message stands for itself
        """Post the outcome."""
        self.send(notice)


def document(notice: Notice) -> dict[str, Any]:
    """Return a notice as it is sent: `type`, `timestamp` and `data`."""
    data: dict[str, Any] = {
        "id": notice.request_id, "kind": notice.kind, "tool": notice.tool, "run_id": notice.run_id,
        "risk": notice.risk, "state": notice.state, "fingerprint": notice.fingerprint, "title": notice.title,
        "line": notice.line, "link": notice.link, "asked_at": clock.written(notice.asked_at),
        "expires_at": clock.written(notice.expires_at),
    }  # fmt: skip
    if notice.outcome is not None:
        data["outcome"] = notice.outcome
    if notice.arguments is not None:
        data["arguments"] = notice.arguments
    kind = _TYPES.get(notice.event) or _ENDED.get(notice.state, "request.decided")
    return {"type": kind, "timestamp": clock.written(clock.now()), "data": data}


def make(name: str, settings: Mapping[str, Any]) -> WebhookOutlet:
    """Return the channel that a table of `sayso.toml` describes.

    Raises:
        ConfigError: A setting is missing, is not known, or cannot be used.
    """
    table = Table(f"channels.{name}", settings, known=_KNOWN)
    url = table.secret("url_env") if "url_env" in settings else table.text("url")
    ports: list[Any] = table.get("ports", list, [])
    if not all(type(port) is int for port in ports):
        raise table.fault("ports", "must be a list of numbers")
    keys = WebhookKeys(table.secret("secret_env").split(), whose=f"[{table.where}] secret_env")
    where = Destination.parse(url, allow_private=table.get("allow_private", bool, False), ports=ports)
    return WebhookOutlet(name, where, keys, ca_file=table.get("ca_file", str, "") or None)
