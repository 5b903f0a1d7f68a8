"""Webhooks in the format of Standard Webhooks 1.0: signing keys, the channel, and the check of destinations.

A signature is HMAC-SHA256 over `id.timestamp.body`. Several keys can be valid during a rotation: an outgoing message is
signed with every key, and an incoming one may be signed with any. Signatures and timestamps are compared as text and
never decoded, so each has exactly one valid spelling. The outbox retries; receivers deduplicate by message id.

`post` sends a body to a `Destination`. It resolves the name once, checks every address against private, local and
reserved networks, and connects to a checked address, which prevents DNS rebinding. It does not follow redirects, reads
no more of the response than `room`, and applies one deadline to the whole exchange.
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
_SKIP = timedelta(minutes=1)
_LONGEST_URL, _LONGEST_HOST = 2_000, 253
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # the last label of an IPv4 address in a non-standard notation
_VISIBLE = re.compile(r"[!-~]+")

# Listed here because the result of `is_global` differs between Python versions.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "168.63.129.16/32",  # a public address that Azure uses for the host of the virtual machine
        "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
    )
)  # fmt: skip
_GLOBAL_6 = ipaddress.ip_network("2000::/3")
# `allow_private` allows these; link-local and metadata addresses are never allowed.
_PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in (
        "10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
_REFUSED = "is a private, local or reserved address (allow_private = true allows private ones)"
# Cloud metadata addresses outside the link-local range: Alibaba, AWS, Google.
_NEVER = tuple(map(ipaddress.ip_network, ("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::254/128")))


class AddressRefusedError(errors.SaysoError):
    """A name resolves to an address that is not allowed; no connection was opened."""


@dataclass(frozen=True)
class Destination:
    """Where a channel posts to.

    Attributes:
        is_tls: Whether the scheme is https.
        host: The name for the Host header and for TLS.
        port: The TCP port.
        path: The path with the query. It may contain a secret, so messages and `repr` leave it out.
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
        """Scheme, host and port: the part of the URL that is safe to show."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str, *, allow_private: bool = False, ports: Collection[int] = ()) -> Destination:
        """Parse a URL.

        Args:
            url: `https://host/path`, in canonical form.
            allow_private: Allow private and loopback addresses, `http`, names without a dot, and any port.
            ports: Allowed ports in addition to 443 and 8443.

        Raises:
            ConfigError: Two URL parsers could read the URL differently, or it names an address that is not allowed. The
                message leaves out the path, which may contain a secret.
        """
        if len(url) > _LONGEST_URL or _VISIBLE.fullmatch(url) is None or "\\" in url:
            raise _bad_url(
                "is too long, or contains spaces, backslashes or non-ASCII characters (write names as xn--…)"
            )
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _bad_url("cannot be read") from None
        if parts.scheme != "https" and not (parts.scheme == "http" and allow_private):
            raise _bad_url("does not begin with https:// (http:// needs allow_private = true)")
        if "@" in parts.netloc or "#" in url or parts.netloc.endswith(":") or ("[" in parts.netloc) != (":" in host):
            raise _bad_url("contains a user, a fragment, or misplaced brackets or colons")
        if port is None:
            port = 443 if parts.scheme == "https" else 80
        if port == 0 or not (allow_private or port in _PORTS or port in ports):
            raise _bad_url(f"names port {port}; allowed are 443 and 8443, or those in `ports = [...]`")
        _check_host(host, allow_private=allow_private)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme == "https", host, port, path, allow_private)

    def resolve(self) -> list[str]:
        """Resolve the name once and return the addresses to connect to.

        Raises:
            AddressRefusedError: One of the addresses is not allowed; none is used then.
            OSError: The name could not be resolved.
        """
        literal = _literal(self.host)
        found = [str(literal)] if literal else list(dict.fromkeys(addresses_of(self.host, self.port)))
        if not found:
            raise AddressRefusedError(f"nothing was sent to {self.host!a}: the name has no address")
        for address in found:
            if not _is_allowed(_literal(address), allow_private=self.allow_private):
                raise AddressRefusedError(f"nothing was sent to {self.host!a}: {address} {_REFUSED}")
        return found


def _bad_url(what: str) -> errors.ConfigError:
    return errors.ConfigError(f"the url of a channel {what}; nothing is sent to it")


def _check_host(host: str, *, allow_private: bool) -> None:
    literal = _literal(host)
    if literal is not None:
        if not _is_allowed(literal, allow_private=allow_private):
            raise _bad_url(f"leads to {host}, which {_REFUSED}")
        return
    if len(host) > _LONGEST_HOST or _HOST.fullmatch(host) is None:
        raise _bad_url("has a host name with invalid characters")
    if _NUMBER.fullmatch(host.rpartition(".")[2]) is not None:
        raise _bad_url("has an address in an unusual form; write it as four decimal numbers")
    if "." not in host and not allow_private:
        raise _bad_url("has a host name without a dot, which is a name in the local network")


def _literal(host: str) -> _Address | None:
    """Parse a host as an IP address; return None if it is a name or an address in a non-standard notation."""
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
        return False  # this includes forms that embed an IPv4 address: mapped, compatible, NAT64
    return not any(address in network for network in _NOT_PUBLIC)


def addresses_of(host: str, port: int) -> list[str]:
    """Resolve a name with the system's resolver."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


SECONDS = 10.0


def post(
    where: Destination, body: bytes, headers: Mapping[str, str], *, ca_file: str | None = None,
    seconds: float = SECONDS, room: int = 0,
) -> tuple[int, bytes]:  # fmt: skip
    """POST a body and return the status and the first bytes of the response.

    If the deadline is reached within the body, they are those that have arrived.

    Args:
        where: The receiver.
        body: The body.
        headers: Headers in addition to those that HTTP itself needs.
        ca_file: A file of CA certificates to trust instead of the system's.
        seconds: The deadline for the whole exchange, name resolution excepted.
        room: The maximum number of bytes of the response body to read.

    Raises:
        AddressRefusedError: The name resolves to an address that is not allowed.
        TimeoutError: There was no response in time.
        OSError: The connection failed, the certificate is not trusted, or the response is not valid HTTP.
    """
    addresses, deadline = where.resolve(), time.monotonic() + seconds
    trust = ssl.create_default_context(cafile=ca_file) if where.is_tls else None
    with closing(http.client.HTTPConnection(where.host, where.port)) as link:
        link.default_port = 443 if where.is_tls else 80  # the port that the Host header omits
        link.sock = plain = _connect(addresses, where.port, deadline)
        with closing(plain.dup()) as duplicate:  # the TLS wrapper takes over the original socket
            # A socket timeout applies to each read, so a receiver that sends a byte a second could hold the line.
            is_over = threading.Event()
            timer = threading.Timer(_seconds_left(deadline), _shut_down, (duplicate, is_over))
            timer.daemon = True
            timer.start()
            try:
                if trust is not None:
                    link.sock = trust.wrap_socket(plain, server_hostname=where.host)
                link.request("POST", where.path, body, {**headers, "connection": "close"})
                with link.getresponse() as answer:
                    return answer.status, _first_bytes(answer, room, is_over)
            except (OSError, http.client.HTTPException) as error:
                if _is_late(error, is_over):
                    raise TimeoutError(f"{where.origin} did not answer in time") from None
                if isinstance(error, http.client.HTTPException):
                    raise OSError(f"{where.origin} did not answer with valid HTTP ({type(error).__name__})") from None
                raise
            finally:
                timer.cancel()


def _first_bytes(answer: http.client.HTTPResponse, room: int, is_over: threading.Event) -> bytes:
    found = b""
    try:
        while len(found) < room and (part := answer.read1(room - len(found))):
            found += part
    except (OSError, http.client.HTTPException) as error:
        if not _is_late(error, is_over):
            raise
    return found


def _is_late(error: Exception, is_over: threading.Event) -> bool:
    """Return whether an error means that the deadline was reached.

    Its shutdown looks like an end that the receiver made, or like a reset if more bytes arrived before that end was
    read. A socket's own timeout is not shorter than the time that was left.
    """
    return is_over.is_set() or isinstance(error, TimeoutError)


def _connect(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    """Connect to the first of these checked addresses that accepts it."""
    *others, last = addresses
    for address in others:
        with suppress(OSError):
            return socket.create_connection((address, port), _seconds_left(deadline) / 2)
    return socket.create_connection((last, port), _seconds_left(deadline))


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("there was no answer in time")
    return left


def _shut_down(line: socket.socket, is_over: threading.Event) -> None:
    is_over.set()  # before the shutdown, whose effects are judged by it
    with suppress(OSError):  # already closed
        line.shutdown(socket.SHUT_RDWR)


class Receivers:
    """Posts to several receivers; skips a slow one for a minute so that it does not delay the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._skipped_until: dict[str, datetime] = {}

    def post(
        self, where: Destination, body: bytes, headers: Mapping[str, str], *, ca_file: str | None = None
    ) -> tuple[int, bytes]:  # fmt: skip
        """Call `post`; raise `OSError` at once if an exchange in the last minute took half of the deadline or more."""
        who, now = f"{where.origin}{where.path}", clock.now()
        with self._lock:
            self._skipped_until = {one: until for one, until in self._skipped_until.items() if now < until}
            if who in self._skipped_until:
                raise TimeoutError(f"{where.origin} timed out recently; it is tried again in a minute")
        begun = time.monotonic()
        try:
            return post(where, body, headers, ca_file=ca_file)
        finally:
            if time.monotonic() - begun >= SECONDS / 2:
                with self._lock:
                    self._skipped_until[who] = now + _SKIP


ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
WINDOW = timedelta(minutes=5)

_SHORTEST, _LONGEST = 24, 64  # bytes, from the standard
_PREFIX = "whsec_"
# No dots: a dot in an id could be read as the separator before the timestamp.
_IDS = re.compile(r"[!-\-/-~]{1,256}")
_INSTANTS = re.compile(r"[1-9][0-9]{8,11}")
_MOST_SIGNATURES = 10


class WebhookKeys:
    """The secrets of one webhook.

    Args:
        secrets: Each is `whsec_` and the base64 of 24 to 64 random bytes.
        source: The source to name in errors, e.g. the environment variable.

    Raises:
        ConfigError: There is no secret, or one is malformed; the message does not quote it.
    """

    def __init__(self, secrets: Collection[str], *, source: str) -> None:
        self._keys = list[bytes]()
        for secret in secrets:
            try:
                key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
            except ValueError:
                key = b""
            if not secret.startswith(_PREFIX) or not _SHORTEST <= len(key) <= _LONGEST:
                raise errors.ConfigError(
                    f"{source} does not contain a valid webhook secret; it must be whsec_ and 24 to 64 random bytes"
                    " in base64; separate several secrets with spaces"
                )
            self._keys.append(key)
        if not self._keys:
            raise errors.ConfigError(
                f"{source} contains no secret; set one like whsec_… (24 to 64 random bytes, base64)"
            )

    def headers(self, message_id: str, at: datetime, body: bytes) -> dict[str, str]:
        """Return the headers that sign a message."""
        seconds = str(clock.microseconds(at) // 1_000_000)
        signatures = " ".join(_signature(key, message_id, seconds, body) for key in self._keys)
        return {ID: message_id, TIMESTAMP: seconds, SIGNATURE: signatures}

    def signed(self, message_id: str, message: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
        """Return a message as the body of a POST that is sent now, and its headers with the signature."""
        body = json.dumps(message, allow_nan=False).encode()
        headers = {"content-type": "application/json", "user-agent": "sayso"}
        return body, headers | self.headers(message_id, clock.now(), body)

    def has_signed(self, message_id: str, seconds: str, signatures: str, body: bytes, *, now: datetime) -> bool:
        """Return whether one of the secrets signed this and its timestamp is within five minutes of now."""
        if _IDS.fullmatch(message_id) is None or _INSTANTS.fullmatch(seconds) is None:
            return False
        # Compared as numbers: the sender is not authenticated yet, and a number may be out of range for a datetime.
        if abs(int(seconds) * 1_000_000 - clock.microseconds(now)) > WINDOW // timedelta(microseconds=1):
            return False
        given = [one.encode() for one in signatures.split(" ")[:_MOST_SIGNATURES]]
        right = [_signature(key, message_id, seconds, body).encode() for key in self._keys]
        # Compare every pair, so that the response time does not reveal which one matched.
        return any([hmac.compare_digest(one, other) for one in given for other in right])  # noqa: C419


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
    """A channel that posts signed messages to one URL.

    Args:
        name: The channel's name.
        where: The receiver.
        keys: The secrets that sign the messages.
        ca_file: A file of CA certificates to trust instead of the system's.
        people: The people whom it reaches personally.
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
            UndeliverableError: The receiver answered 410 Gone.
            DeliveryError: The receiver answered with any other status outside 2xx.
            AddressRefusedError: The receiver's name resolves to an address that is not allowed.
            OSError: The receiver could not be reached, or did not answer in time.
        """
        body, headers = self._keys.signed(notification.id, document(notification))
        status, _ = post(self._where, body, headers, ca_file=self._ca_file)
        if status == _GONE:
            raise UndeliverableError(f"{self._where.origin} is gone (410); nothing more is sent to it")
        if not 200 <= status < 300:
            raise DeliveryError(f"{self._where.origin} answered {status}; the message is retried later")


def document(notification: Notification) -> dict[str, Any]:
    """Return the JSON body for a notification: `type`, `timestamp` and `data`."""
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
    """Create the channel from its table in `sayso.toml`.

    Raises:
        ConfigError: A setting is missing, unknown or invalid.
    """
    table = Table(f"channels.{name}", settings, known=_KNOWN)
    url = table.secret("url_env") if "url_env" in settings else table.text("url")
    ports: list[Any] = table.get("ports", list, [])
    if not all(type(port) is int for port in ports):
        raise table.error("ports", "must be a list of numbers")
    keys = WebhookKeys(table.secret("secret_env").split(), source=f"[{table.where}] secret_env")
    where = Destination.parse(url, allow_private=table.get("allow_private", bool, False), ports=ports)
    return WebhookChannel(
        name, where, keys, ca_file=table.file("ca_file") if "ca_file" in settings else None,
        people=table.people("people"),
    )  # fmt: skip
