"""Sessions, the signed tokens of a server, its login links, and the key that it signs with.

A session is a random id in a cookie and a record in the store under the id's digest, so it survives a restart, is valid
on every server of the store, and ends on all of them at once. It has an idle and an absolute timeout. It is invalid if
it began under other sign-in options, or if its person may not review any more. If the surrounding application or a
proxy identifies people (`who=`), nothing is stored: the cookie only ties forms to a browser. A session's id is always
generated here and never taken from a browser (session fixation).

The key is `SAYSO_SECRET`, or a file beside the store's own file, created at first use, so all processes of one machine
that use a store share it. A signed token is valid for one purpose and a limited time. Single-use tokens are marked as
used in the store, so they stay used after a restart and on every server of that store. A key file that another user
could have read or written is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
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
    """Return the secret that all servers of a store share; None if the store is not a file and no secret is set.

    Raises:
        ConfigError: `SAYSO_SECRET` is too short, or the file cannot be read or is accessible to other users.
    """
    given = os.environ.get("SAYSO_SECRET")
    if given:
        if len(given) < _SHORTEST_SECRET:
            raise errors.ConfigError(
                f"SAYSO_SECRET has {len(given)} characters; anyone who guesses it can sign in as anybody,"
                f" so use at least {_SHORTEST_SECRET} random ones (`openssl rand -hex 32`)"
            )
        return given.encode("utf-8", "surrogateescape")
    path = _secret_file(store)
    if path is None:
        return None
    try:
        return _read_secret(path) if path.exists() else _create_secret(path)
    except OSError as error:
        raise errors.ConfigError(
            f"the server's secret {path} cannot be read ({error.strerror}); correct that, or set SAYSO_SECRET"
        ) from error


def _secret_file(store: Store) -> Path | None:
    schemes = (scheme for scheme in ("sqlite:///", "jsonl:") if store.url.startswith(scheme))
    return next((Path(store.url.removeprefix(scheme) + ".secret") for scheme in schemes), None)


def _create_secret(path: Path) -> bytes:
    """Create the secret file and return the secret. Processes that race here all return the first one's secret."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{new_token()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(new_token() + new_token() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)  # atomic, and never replaces the file of another process
    finally:
        draft.unlink()
    return _read_secret(path)


def _read_secret(path: Path) -> bytes:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())  # of the open file: the path could be replaced meanwhile
        text = file.read(1_000).strip()
    if hasattr(os, "geteuid") and (found.st_uid not in {os.geteuid(), 0} or stat.S_IMODE(found.st_mode) & 0o077):
        raise errors.ConfigError(
            f"{path} belongs to another user, or others may read or write it, so they could sign in as"
            " anybody; remove it, and a new one is created (existing login links stop working)"
        )
    if len(text) < _SHORTEST_SECRET:
        raise errors.ConfigError(f"{path} contains no secret; remove it, and a new one is created")
    return text


_MAC = 64  # hexadecimal digits of a SHA-256
_LONGEST = 8_000
_USED_RETENTION = timedelta(days=1)  # beyond the expiry, so that a clock set back does not make a used token valid
_DELETED_AT_ONCE = 100


class TokenSigner:
    """Signs and verifies the tokens of one server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # two concurrent first uses would make two secrets
        self._secret: bytes | None = None

    def sign(self, purpose: str, body: dict[str, Any], lasts: timedelta) -> str:
        """Return an alphanumeric token that contains `body`, not encrypted, and is valid for this long.

        Raises:
            ConfigError: The server's secret cannot be used.
        """
        # Short, because it is part of an address that people copy.
        payload = {**body, "id": new_token()[:16], "until": int((clock.now() + lasts).timestamp())}
        text = json.dumps(payload, separators=(",", ":")).encode().hex()
        return text + self.mac(purpose, text)

    def read(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Return the body of a token; None if it was not signed for this purpose, was altered, or has expired.

        Raises:
            ConfigError: The server's secret cannot be used.
        """
        body = self.signed(purpose, text)
        return None if body is None or clock.now() >= _expiry(body) else body

    def signed(self, purpose: str, text: str) -> dict[str, Any] | None:
        """Return the same as `read`, also for a token that has expired."""
        if not _MAC < len(text) <= _LONGEST:
            return None
        signed, mac = text[:-_MAC], text[-_MAC:]
        # Compare the text, not the bytes: in upper case, hexadecimal digits are another text of the same bytes.
        if not hmac.compare_digest(self.mac(purpose, signed).encode(), mac.encode()):
            return None
        return cast("dict[str, Any]", json.loads(bytes.fromhex(signed)))

    def use_once(self, body: dict[str, Any]) -> bool:
        """Mark a token that was read as used, in one transaction; return False if it was used before."""
        is_first = self._store.keep(Record("link", body["id"], {}, due=_expiry(body) + _USED_RETENTION), only_new=True)
        for old in self._store.records("link", due_by=clock.now(), limit=_DELETED_AT_ONCE):
            self._store.drop(old.kind, old.key)
        return is_first

    def mac(self, purpose: str, text: str) -> str:
        """Return the HMAC-SHA-256 of a text for a purpose, as 64 hexadecimal digits."""
        key = hmac.digest(self._key(), f"sayso {purpose} 1".encode(), hashlib.sha256)
        return hmac.digest(key, text.encode(), hashlib.sha256).hex()

    def _key(self) -> bytes:
        with self._lock:
            if self._secret is None:
                # An in-memory store belongs to this process alone, so its secret may too.
                self._secret = server_secret(self._store) or (new_token() + new_token()).encode()
            return self._secret


def _expiry(body: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(body["until"], UTC)


# How long a login link lasts: by default, at most, and when the server prints it to its own terminal.
LASTS, LONGEST, PRINTED = timedelta(minutes=15), timedelta(days=1), timedelta(hours=1)
_LINK_PURPOSE = "login link"


class Links:
    """The login links of one store."""

    def __init__(self, signer: TokenSigner) -> None:
        self._signer = signer

    def token(self, reviewer: Reviewer, lasts: timedelta = LASTS) -> str:
        """Return a single-use token that begins a session of this reviewer; raises `ConfigError`."""
        named: dict[str, Any] = {"name": reviewer.subject}
        if reviewer.issuer != LOCAL:
            named["by"] = reviewer.issuer
        if reviewer.roles:
            named["roles"] = sorted(reviewer.roles)
        return self._signer.sign(_LINK_PURPOSE, named, min(lasts, LONGEST))

    def use(self, token: str) -> Reviewer | Literal["foreign", "ended", "used"]:
        """Use a link and return its reviewer, or why not. A token that was not signed here always gets `foreign`.

        Raises:
            ConfigError: The server's secret cannot be used.
            StoreError: The store cannot tell whether it was used, so no session begins.
        """
        body = self._signer.signed(_LINK_PURPOSE, token)
        if body is None:
            return "foreign"
        if clock.now() >= _expiry(body):
            return "ended"
        if not self._signer.use_once(body):
            return "used"
        return Reviewer(body["name"], roles=body.get("roles", ()), issuer=body.get("by", LOCAL))


IDLE, ABSOLUTE = timedelta(hours=8), timedelta(days=7)
RECORD = "session"
_MOST_ENDED, _MOST_PEOPLE = 1_000, 500
_USE_WRITTEN = timedelta(
    minutes=5
)  # minimum time between two writes of the last use, so that reading pages rarely writes


@dataclass(frozen=True)
class Session:
    """A reviewer signed in at a browser: the cookie, the CSRF token of its forms, and when it ends if unused."""

    id: str = field(repr=False)
    reviewer: Reviewer
    csrf: str = field(repr=False)
    ends: datetime

    def has_csrf(self, csrf: str) -> bool:
        """Return whether a CSRF token belongs to this session. It may be masked (forms) or plain (the API)."""
        if len(csrf) == 2 * len(self.csrf):
            with suppress(ValueError):
                given = bytes.fromhex(csrf)
                half = len(given) // 2
                csrf = bytes(a ^ b for a, b in zip(given[:half], given[half:], strict=True)).hex()
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())

    def masked_csrf(self) -> str:
        """Return the CSRF token under a random mask, so that compressed pages do not reveal it by length (BREACH)."""
        token = bytes.fromhex(self.csrf)
        mask = bytes.fromhex(new_token() + new_token())
        return mask.hex() + bytes(a ^ b for a, b in zip(mask, token, strict=True)).hex()


class Sessions:
    """All sessions of one store.

    Args:
        signer: Derives the CSRF tokens.
        lasts: Absolute lifetime of a session.
        options: Fingerprint of the sign-in options. Sessions that began under other options are invalid.
        admits: Returns whether a person may review.
    """

    def __init__(
        self, store: Store, signer: TokenSigner, *, lasts: timedelta = ABSOLUTE, options: str = "",
        admits: Callable[[Reviewer], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        self._store, self._signer = store, signer
        self._lasts, self._options, self._admits = lasts, options, admits
        self._ended: dict[str, None] = {}  # sessions ended by this server: their pages close without a read

    def begin(self, reviewer: Reviewer) -> Session:
        """Begin a session of a person who has signed in. Durable on return; raises `StoreError`."""
        now, session_id = clock.now(), new_token() + new_token()
        body = {
            "issuer": reviewer.issuer, "subject": reviewer.subject, "roles": sorted(reviewer.roles),
            "options": self._options, "begun": clock.written(now), "used": clock.written(now),
        }  # fmt: skip
        for old in self._store.records(RECORD, due_by=now, limit=_DELETED_AT_ONCE):
            self._store.drop(RECORD, old.key)
        self._store.keep(Record(RECORD, _key(session_id), body, now + self._lasts))
        return self._session(session_id, reviewer, now + min(IDLE, self._lasts))

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie, if it has not ended, and count this as a use. Reads the store."""
        if cookie is None:
            return None
        record = self._store.record(RECORD, _key(cookie))
        session = None if record is None else self._from_record(cookie, record)
        if session is None or record is None:
            return None
        now = clock.now()
        if now >= datetime.fromisoformat(record.body["used"]) + _USE_WRITTEN:
            used = Record(RECORD, record.key, record.body | {"used": clock.written(now)}, record.due)
            with suppress(errors.StoreError):  # the next use writes it instead
                self._store.swap(record, used)  # not `keep`, which would revive a session that ended meanwhile
        return session

    def is_open(self, session: Session) -> bool:
        """Return whether a session is still valid, without counting as a use of it. Reads the store."""
        record = self._store.record(RECORD, _key(session.id))
        return record is not None and self._from_record(session.id, record) is not None

    def people(self) -> list[Reviewer]:
        """Return the people with a recorded session, each once, with the roles of their newest session."""
        found: dict[str, Reviewer] = {}
        records = self._store.records(RECORD, limit=_MOST_PEOPLE)
        for record in sorted(records, key=lambda one: str(one.body.get("begun"))):
            with suppress(errors.StoreCorruptError):
                session = self._from_record("", record)
                if session is not None:
                    found[session.reviewer.identity.folded] = session.reviewer
        return list(found.values())

    def end(self, session: Session) -> None:
        """End a session on every server of the store. Durable on return."""
        self._store.drop(RECORD, _key(session.id))
        self._ended[session.id] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.pop(next(iter(self._ended)), None)

    def has_ended_here(self, session: Session) -> bool:
        """Return whether this server ended a session. Does not read the store."""
        return session.id in self._ended

    def begin_unrecorded(self, reviewer: Reviewer) -> Session:
        """Begin a session, without a record, of a person whom the surrounding application or proxy identifies."""
        nonce = new_token() + new_token()
        cookie = nonce + self._signer.mac(f"session of {_identity_text(reviewer)}", nonce)
        return self._session(cookie, reviewer, clock.now() + IDLE)

    def find_unrecorded(self, cookie: str | None, reviewer: Reviewer) -> Session | None:
        """Return the session of a cookie if it began for this person with these roles. Does not read the store."""
        if cookie is None or not cookie.isascii():
            return None
        nonce, mac = cookie[:64], cookie[64:]
        is_theirs = hmac.compare_digest(self._signer.mac(f"session of {_identity_text(reviewer)}", nonce), mac)
        return self._session(cookie, reviewer, clock.now() + IDLE) if is_theirs else None

    def _from_record(self, cookie: str, record: Record) -> Session | None:
        body = record.body
        try:
            reviewer = Reviewer(body["subject"], roles=body["roles"], issuer=body["issuer"])
            begun, used = datetime.fromisoformat(body["begun"]), datetime.fromisoformat(body["used"])
            is_same = body["options"] == self._options
        except (LookupError, TypeError, ValueError) as error:
            raise errors.StoreCorruptError(f"a session in the store cannot be read ({error}); sign in anew") from error
        ends = min(used + IDLE, begun + self._lasts)
        if not is_same or clock.now() >= ends or not self._admits(reviewer):
            return None
        return self._session(cookie, reviewer, ends)

    def _session(self, session_id: str, reviewer: Reviewer, ends: datetime) -> Session:
        return Session(session_id, reviewer, self._signer.mac("form", f"{session_id} {_identity_text(reviewer)}"), ends)


def _key(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()


def _identity_text(reviewer: Reviewer) -> str:
    return json.dumps([reviewer.identity.folded, *sorted(reviewer.roles)])
