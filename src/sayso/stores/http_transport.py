"""The HTTP connection to a sayso server: keep-alive, retries, and error responses as exceptions of `sayso.errors`.

Every message is safe to repeat (asking again finds the request; a start and its end carry a token), so it is retried
when a connection breaks, until `patience` seconds have passed; then `StoreUnavailableError` is raised. After 429 or 503
the client waits as long as the server says. It sends few messages at a time, follows no redirect, and sends the token
only to the server that issued it.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from sayso import errors
from sayso.model.ids import new_token
from sayso.model.text import escape
from sayso.stores.http_messages import Message

_log = logging.getLogger("sayso")

_M = TypeVar("_M", bound=Message)

# -- errors: the server names them by their classes in `sayso.errors`, and sends their attributes ------------------

_NOT_KNOWN, _NOT_LET_IN, _MISDIRECTED = 401, 403, 421
_LONGEST_WORDS = 200  # bytes of an answer that is not a problem document
_INSTANTS = ("at", "expired_at", "until")
_OF_DOCUMENT = ("type", "title", "status", "detail", "code")


def fault_of(status: int, content: bytes, about: str) -> errors.SaysoError:
    """Return the exception for an error response.

    Args:
        status: The response's status.
        content: Its content, which should be problem details (RFC 9457).
        about: The id of the request or run in question; the server does not repeat an id that this token may not see.
    """
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None  # e.g. a proxy's page
    facts = cast("Mapping[str, Any]", problem if isinstance(problem, dict) else {})
    code, detail = str(facts.get("code", "")), str(facts.get("detail", f"HTTP status {status}"))
    match code:
        case "request_not_found":
            return errors.RequestNotFoundError(about)
        case "run_not_found":
            return errors.RunNotFoundError(about)
        case "rate_limited":
            return errors.StoreBusyError(f"the sayso server limits the rate of this token: {detail}")
        case _:
            name = "".join(part.capitalize() for part in code.split("_")) + "Error"
    if name in errors.__all__:
        return _rebuilt(getattr(errors, name), detail, facts)
    if status == _NOT_KNOWN:
        return errors.StoreForbiddenError(
            "the server does not know SAYSO_TOKEN: it was revoked, has expired or is mistyped; nothing ran. Run"
            " `sayso token new` on the server to make another"
        )
    if status == _NOT_LET_IN:
        return errors.StoreForbiddenError(f"the sayso server does not allow this token to do that: {detail}")
    if status >= 500:
        return errors.StoreUnavailableError(f"the sayso server failed ({detail}); no call starts without its answer")
    if not code:
        words = escape(" ".join(content[:_LONGEST_WORDS].decode(errors="replace").split()))
        found = f"{detail}: {words}" if words and not words.startswith("<") else detail  # "<": a proxy's page
        hint = "; set it to the server's base_url, on the server's machine too" if status == _MISDIRECTED else ""
        return errors.StoreError(f"this address is not a sayso server ({found}); check SAYSO_STORE{hint}")
    return errors.StoreError(f"the sayso server rejected the message ({code}: {detail})")


@contextmanager
def beginning_run(run_id: str) -> Generator[None]:
    """Inside a block that may begin a run, say that the run's name belongs to another program, not that it is unknown.

    The server answers both with the same error; an unused name is never refused to a program that begins a run.
    """
    try:
        yield
    except errors.RunNotFoundError as refusal:
        message = (
            f"the run name {run_id!r} cannot be used with this token, and nothing was asked; choose another name (a run"
            " belongs to the program that began it)"
        )
        refusal.args = (message,)
        raise


def _rebuilt(kind: type[errors.SaysoError], detail: str, facts: Mapping[str, Any]) -> errors.SaysoError:
    # The server formatted the message and sent the attributes, so the class's constructor is not used.
    fault = kind.__new__(kind, detail)
    fault.args = (detail,)
    for name, value in facts.items():
        if name not in _OF_DOCUMENT:
            setattr(fault, name, _instant(value) if name in _INSTANTS else value)
    return fault


def _instant(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value


# -- the connection ----------------------------------------------------------------------------------------------

BROKEN = (OSError, HTTPException)
"""The exceptions of a broken connection."""

# The server, or a proxy in front of it, may be retried. Proxies have further statuses of their own above 500, such as
# 520 to 527.
_LATER = frozenset({408, 429, 502, 503, 504})

_API = "/api/v1/program"
_TOO_MANY = 429
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_SLOWED = 20  # times the patience: a server that answers 429 is up, and its limit only slows a program down
_MOST_IDLE = 8
_AT_ONCE = 16  # concurrent verbs of a process, of the 64 that a server allows per token; others queue here
_TIMEOUT = 30.0


class _StaleError(ConnectionError):
    """A kept-alive connection broke."""


class AnswerLostError(Exception):
    """The cause of an error after the answer to an earlier attempt was lost: that attempt may have had its effect."""


class LaterError(Exception):
    """The server asks to be called again after some seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"come again in {seconds} s")
        self.seconds = seconds


class _Answer(NamedTuple):
    status: int
    retry_after: float
    content: bytes

    @property
    def is_for_later(self) -> bool:
        """Whether the same message may get another answer soon."""
        return self.status in _LATER or (self.status >= 500 and not self.content.startswith(b"{"))


class Transport:
    """The connections of a process to one server, for all its threads.

    Args:
        address: `https://host`, optionally with a port and a path; `http://` only for this machine.
        token: A token of the kind `ask`.

    Raises:
        ConfigError: The address or the token is invalid.
    """

    def __init__(self, address: str, token: str) -> None:
        parts = urlsplit(address)
        self._host, self._path = parts.netloc, parts.path.rstrip("/") + _API
        self._is_tls = _must_be_safe(address)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise errors.ConfigError("the token was not made by `sayso token new`; nothing was sent")
        self._url = address
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "sayso"}
        self._headers["Content-Type"] = "application/json"
        if not self._is_tls and _is_local_name(parts.hostname or ""):  # browsers resolve it, not every system does
            self._headers["Host"] = parts.netloc
            self._host = f"127.0.0.1:{parts.port or 80}"
        self._idle: list[HTTPConnection] = []
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self._tls: ssl.SSLContext | None = None
        self._is_away = False  # whether it was logged that the server cannot be reached; not again until it answers

    def after_fork(self) -> None:
        """Drop the parent's connections: two processes on one connection would read each other's answers."""
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self.close()

    def close(self) -> None:
        """Close the idle connections; a verb in progress closes its own."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        for connection in self.__dict__.get("_idle", ()):  # a collected store leaves no connection open
            connection.close()

    # -- one message -------------------------------------------------------------------------------------------

    def send(
        self, message: Message, answer: type[_M], about: str = "", *, patience: float = 5.0, is_brief: bool = False
    ) -> _M:
        """Send a message, and return the server's answer.

        Args:
            message: Its class determines the endpoint.
            answer: The class of the answer.
            about: The id of the request or run that it is about.
            patience: For how many seconds to retry while the server cannot be reached.
            is_brief: Give up after that time in any case, even if the server answers that there are too many messages,
                or accepts the connection and does not answer.

        Raises:
            StoreError: The server is away, or does not allow this token to do that.
            SaysoError: The error that the store's verb raised on the server.
        """
        return _read(answer, self.post(message.path(), encoded(message), about, patience=patience, is_brief=is_brief))

    def post(self, path: str, body: bytes, about: str = "", *, patience: float = 5.0, is_brief: bool = False) -> bytes:
        """Send a body to a path below the API for programs; otherwise as `send`."""
        began, pause, lost = time.monotonic(), _PAUSE, None
        slowed = patience if is_brief else _SLOWED * patience
        while True:
            wait = jittered(pause)
            left = max(_PAUSE, began + patience - time.monotonic())
            try:
                answer = self._exchanged(path, body, began + slowed, left if is_brief else _TIMEOUT)
                self._is_away = False
                if answer.status < 300:
                    return answer.content
                wait = max(wait, jittered(answer.retry_after, never_less=True))
                # Without an answer the state is unknown; 429 means that the server is up and did nothing.
                until = began + (slowed if answer.status == _TOO_MANY else patience)
                # A 429 without a time is about too many pending requests, not about too many messages.
                is_for_later = answer.is_for_later and (answer.status != _TOO_MANY or answer.retry_after > 0)
                if not is_for_later or time.monotonic() + wait > until:
                    raise fault_of(answer.status, answer.content, about) from lost
                lost = lost if answer.status == _TOO_MANY else AnswerLostError(f"HTTP status {answer.status}")
            except BROKEN as error:
                if time.monotonic() + wait > began + patience or isinstance(error, ssl.SSLCertVerificationError):
                    raise errors.StoreUnavailableError(
                        f"the sayso server {self._url} cannot be reached ({error or type(error).__name__}); no call"
                        " starts without its answer. Try again when it can be reached"
                    ) from error
                if pause == _LONGEST_PAUSE and not self._is_away:  # for about two seconds
                    self._is_away = True
                    why = error or type(error).__name__
                    _log.warning("sayso server %s cannot be reached (%s); retrying for %.0f s", self._url, why, left)
                lost = AnswerLostError(str(error))
                if isinstance(error, _StaleError):
                    self.close()  # the server has restarted: the other idle connections are broken too; try a new one
                    continue
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def send_once(self, connection: HTTPConnection, message: Message, answer: type[_M]) -> _M:
        """Send a message over a connection, without retrying.

        Raises:
            LaterError: The server says when to try again.
            OSError: The connection broke or the server is away; like `HTTPException`, one of `BROKEN`.
            SaysoError: The error that the server answered.
        """
        found = self.exchange(connection, message.path(), encoded(message))
        if found.is_for_later:
            raise LaterError(found.retry_after) if found.retry_after else HTTPException(f"HTTP status {found.status}")
        if found.status >= 300:
            raise fault_of(found.status, found.content, "")
        return _read(answer, found.content)

    def _exchanged(self, path: str, body: bytes, until: float, timeout: float) -> _Answer:
        if not self._room.acquire(timeout=max(0.0, until - time.monotonic())):
            raise TimeoutError("too many operations of this program are in progress")
        try:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            connection = kept or self.connect(timeout)
            try:
                if connection.sock is not None:
                    connection.sock.settimeout(timeout)  # a kept-alive one may have another timeout
                answer = self.exchange(connection, path, body)
            except BaseException as error:
                connection.close()  # interrupted: the answer to this message must not be read as another's
                if kept is not None and isinstance(error, BROKEN):
                    raise _StaleError(str(error) or type(error).__name__) from error
                raise
            with self._lock:
                is_kept = connection.sock is not None and len(self._idle) < _MOST_IDLE
                if is_kept:
                    self._idle.append(connection)
            if not is_kept:
                connection.close()
            return answer
        finally:
            self._room.release()

    # -- connections -------------------------------------------------------------------------------------------

    def connect(self, timeout: float = _TIMEOUT) -> HTTPConnection:
        """Open a new connection; raises one of `BROKEN`."""
        if not self._is_tls:
            connection = HTTPConnection(self._host, timeout=timeout)
        else:
            self._tls = self._tls or ssl.create_default_context()
            connection = HTTPSConnection(self._host, timeout=timeout, context=self._tls)
        connection.connect()
        return connection

    def exchange(self, connection: HTTPConnection, path: str, body: bytes) -> _Answer:
        """Send one HTTP request over a connection and return its response; raises one of `BROKEN`."""
        connection.request("POST", self._path + path, body, self._headers)
        response = connection.getresponse()
        content = response.read()
        if response.status < 300 and not content.startswith(b"{"):  # e.g. a proxy's page
            raise HTTPException("this address is not a sayso server")
        later = response.getheader("retry-after") or ""
        seconds = float(later) if later.isdecimal() and len(later) < 6 else 0.0
        return _Answer(response.status, seconds, content)


def encoded(message: Message) -> bytes:
    """Return a message as JSON; with half of a surrogate pair in it, it becomes one that the server rejects."""
    try:
        return message.model_dump_json().encode()
    except PydanticSerializationError:
        text = json.dumps(message.model_dump(mode="json"), ensure_ascii=False)
        return text.encode(errors="surrogatepass")


def _read(answer: type[_M], content: bytes) -> _M:
    try:
        return answer.model_validate_json(content)
    except ValidationError as error:
        raise errors.StoreCorruptError(
            f"this address is not a sayso server of this version ({error.error_count()} problems in its answer);"
            " nothing ran. Check SAYSO_STORE, and the versions of the server and of this program"
        ) from error


def jittered(seconds: float, *, never_less: bool = False) -> float:
    """Return a random pause of about this length, so that programs that were put off do not all return at once."""
    return seconds * ((1 if never_less else 0.5) + int(new_token()[:8], 16) / (1 << 32))


def _must_be_safe(address: str) -> bool:
    """Return whether an address is https; raises `ConfigError` if others could read a token that is sent to it."""
    parts = urlsplit(address)
    try:
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.username or parts.query or parts.fragment or parts.scheme not in {"http", "https"}:
        shown = re.sub("//[^/]*@", "//", address)  # this part may be a token
        raise errors.ConfigError(
            f"{shown!r} is not the address of a sayso server; give one like https://approvals.example"
        )
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host.casefold() == "localhost" or _is_local_name(host)
    if parts.scheme == "http" and not is_here:
        raise errors.ConfigError(
            f"{address!r} would send the token and the arguments unencrypted; use https:// for other machines,"
            " and http://127.0.0.1 for this one"
        )
    return parts.scheme == "https"


def _is_local_name(host: str) -> bool:
    return host.casefold().endswith(".localhost")
