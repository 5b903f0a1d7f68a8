"""Webhooks in the format of Standard Webhooks 1.0: keys, the channel that posts messages, and where they may go.

A signature is HMAC-SHA256 over `id.timestamp.body`. Several keys are valid at once while one replaces another: an
outgoing message is signed with each, an incoming one may be signed with any. Signatures and timestamps are compared as
text and never decoded, so that each has one spelling. The outbox decides about retries; a receiver recognizes a
repeated message by its id.

`post` sends a body to a `Destination`. Its name is resolved once, every address is checked against private, local and
reserved networks, and the connection goes to a checked address, so that a name that resolves differently the second
time changes nothing. Redirects are not followed, the body of the answer is not read, and the whole exchange has one
deadline.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sayso import clock, errors
from sayso.channels.registry import Channel, DeliveryError, Notification, UndeliverableError
from sayso.channels.settings import Table
from sayso.model.reviewer import Identity

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORTS = frozenset({443, 8443})
_REST = timedelta(minutes=1)
_LONGEST_URL, _LONGEST_HOST = 2_000, 253
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # the last label of an address in an unusual spelling
_VISIBLE = re.compile(r"[!-~]+")

# Written out, because `is_global` differs between versions of Python.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "168.63.129.16/32",  # a public address, which in Azure is the host of the machine
        "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
    )
)  # fmt: skip
_GLOBAL_6 = ipaddress.ip_network("2000::/3")
# `allow_private` takes these; link-local and metadata addresses are never taken.
_PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in (
        "10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
_REFUSED = "is a private, local or reserved address (allow_private = true takes private ones)"
# Those of clouds that are no link-local ones: Alibaba, AWS, Google.
_NEVER = tuple(map(ipaddress.ip_network, ("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::254/128")))


class AddressRefusedError(errors.SaysoError):
    """A name resolves to an address that is not allowed; there was no connection."""


@dataclass(frozen=True)
class Destination:
    """Where a channel posts to.

    Attributes:
        is_tls: Whether it is https.
        host: As in the Host header and for TLS.
        port: The port.
        path: The path with the query. It may hold a secret, so it is in no message and no `repr`.
        allow_private: Whether private networks and plain http are allowed.
    """

    is_tls: bool
    host: str
    port: int
    path: str
    allow_private: bool

    def __repr__(self) -> str:
        return f"Destination({self.origin!r})"

    @property
    def origin(self) -> str:
        """The part of the URL that may be shown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str, *, allow_private: bool = False, ports: Collection[int] = ()) -> Destination:
        """Return the destination of a URL.

        Args:
            url: `https://host/path`, in its plain spelling.
            allow_private: Take private and loopback addresses, `http`, names without a dot, and any port.
            ports: Further ports, beside 443 and 8443.

        Raises:
            ConfigError: Two programs could read it as two places, or it leads to an address that is not allowed. The
                message leaves out the path, which may hold a secret.
        """
        if len(url) > _LONGEST_URL or _VISIBLE.fullmatch(url) is None or "\\" in url:
            raise _fault("is too long, or has spaces, backslashes or characters beyond ASCII (write names as xn--…)")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _fault("cannot be read") from None
        if parts.scheme != "https" and not (parts.scheme == "http" and allow_private):
            raise _fault("does not begin with https:// (http:// needs allow_private = true)")
        if "@" in parts.netloc or "#" in url or parts.netloc.endswith(":") or ("[" in parts.netloc) != (":" in host):
            raise _fault("names a user or a fragment, or has brackets or colons that mean nothing")
        if port is None:
            port = 443 if parts.scheme == "https" else 80
        if port == 0 or not (allow_private or port in _PORTS or port in ports):
            raise _fault(f"names port {port}; 443 and 8443 are taken, or what `ports = [...]` names")
        _check_host(host, allow_private=allow_private)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme == "https", host, port, path, allow_private)

    def resolve(self) -> list[str]:
        """Return the addresses to connect to; the name is resolved once.

        Raises:
            AddressRefusedError: One of them is not allowed, so none is used.
            OSError: The name cannot be resolved now.
        """
        literal = _literal(self.host)
        found = [str(literal)] if literal else list(dict.fromkeys(addresses_of(self.host, self.port)))
        if not found:
            raise AddressRefusedError(f"nothing was sent to {self.host!a}: its name has no address")
        for address in found:
            if not _is_allowed(_literal(address), allow_private=self.allow_private):
                raise AddressRefusedError(f"nothing was sent to {self.host!a}: {address} {_REFUSED}")
        return found


def _fault(what: str) -> errors.ConfigError:
    return errors.ConfigError(f"the url of a channel {what}; nothing is sent there")


def _check_host(host: str, *, allow_private: bool) -> None:
    literal = _literal(host)
    if literal is not None:
        if not _is_allowed(literal, allow_private=allow_private):
            raise _fault(f"leads to {host}, which {_REFUSED}")
        return
    if len(host) > _LONGEST_HOST or _HOST.fullmatch(host) is None:
        raise _fault("has a host that is no plain name")
    if _NUMBER.fullmatch(host.rpartition(".")[2]) is not None:
        raise _fault("has an address in an odd spelling; write it as four decimal numbers")
    if "." not in host and not allow_private:
        raise _fault("has a host without a dot, which is a name of the own network")


def _literal(host: str) -> _Address | None:
    """Return the address that a host is; None where it is a name, or an unusual spelling of an address."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_allowed(address: _Address | None, *, allow_private: bool) -> bool:
    if address is None or any(address in network for network in _NEVER):
        return False
    if allow_private and any(address in network for network in _PRIVATE):
        return True
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_6:
        return False  # among them those that stand for an IPv4 address: mapped, compatible, NAT64
    return not any(address in network for network in _NOT_PUBLIC)


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses that the system finds for a name."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


SECONDS = 10.0


def post(
    where: Destination, body: bytes, headers: Mapping[str, str], *, ca_file: str | None = None,
    seconds: float = SECONDS, room: int = 0,
) -> tuple[int, bytes]:  # fmt: skip
    """Send a body and return the status of the answer and its first bytes.

    Args:
        where: The receiver.
        body: The body.
        headers: The headers, beside those of HTTP itself.
        ca_file: Certificates that are trusted, in place of the system's.
        seconds: The deadline for all but resolving the name.
        room: How much of the answer is read at most.

    Raises:
        AddressRefusedError: The name resolves to an address that is not allowed.
        OSError: There was no connection, no trusted certificate, or no answer in time.
    """
    link = _Pinned(where, where.resolve(), ca_file, time.monotonic() + seconds)
    with closing(link):
        try:
            link.request("POST", where.path, body, {**headers, "connection": "close"})
            with link.getresponse() as answer:
                return answer.status, answer.read(room) if room else b""
        except http.client.HTTPException as error:
            raise OSError(f"{where.origin} did not answer as HTTP does ({type(error).__name__})") from None


class Receivers:
    """Posts to receivers of which one must not hold up the others: one that hung is not asked again for a minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resting: dict[str, datetime] = {}  # until when

    def post(
        self, where: Destination, body: bytes, headers: Mapping[str, str], *, ca_file: str | None = None
    ) -> tuple[int, bytes]:  # fmt: skip
        """Do as `post`; raises `OSError` at once where the last exchange took half of its deadline, within a minute."""
        who, now = f"{where.origin}{where.path}", clock.now()
        with self._lock:
            self._resting = {one: until for one, until in self._resting.items() if now < until}
            if who in self._resting:
                raise TimeoutError(f"{where.origin} took too long a moment ago; it is asked again in a minute")
        begun = time.monotonic()
        try:
            return post(where, body, headers, ca_file=ca_file)
        finally:
            if time.monotonic() - begun >= SECONDS / 2:
                with self._lock:
                    self._resting[who] = now + _REST


class _Pinned(http.client.HTTPConnection):
    """A connection to checked addresses, which is shut down at a deadline."""

    def __init__(self, where: Destination, addresses: Sequence[str], ca_file: str | None, deadline: float) -> None:
        super().__init__(where.host, where.port)
        self._where, self._addresses, self._deadline = where, addresses, deadline
        self._trust = ssl.create_default_context(cafile=ca_file) if where.is_tls else None
        self.default_port = 443 if where.is_tls else 80  # what the Host header leaves out
        self._duplicate: socket.socket | None = None
        self._timer: threading.Timer | None = None

    def connect(self) -> None:
        self.sock = plain = self._first()
        # A socket's timeout counts for each read: a receiver that sends one byte a second would hold it for a day.
        self._duplicate = plain.dup()  # the TLS handshake takes the first one over
        self._timer = threading.Timer(self._left(), _shut_down, (self._duplicate,))
        self._timer.daemon = True
        self._timer.start()
        if self._trust is not None:
            self.sock = self._trust.wrap_socket(plain, server_hostname=self._where.host)

    def _first(self) -> socket.socket:
        *others, last = self._addresses
        for address in others:
            with suppress(OSError):
                return socket.create_connection((address, self._where.port), self._left() / 2)
        return socket.create_connection((last, self._where.port), self._left())

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("there was no answer in time")
        return left

    def close(self) -> None:
        super().close()
        if self._timer is not None:
            self._timer.cancel()
        if self._duplicate is not None:
            self._duplicate.close()


def _shut_down(line: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        line.shutdown(socket.SHUT_RDWR)


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
