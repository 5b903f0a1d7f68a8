"""Sessions: who is signed in at which browser.

A session is a random id in a cookie and a record in the store under the id's digest, so it survives a restart, is known
to every server of the store, and ends everywhere at once. It also ends when it is not used for a while, and at last for
good; sessions that began under other sign-in options, or of people who may not review any more, do not count. Where a
program or proxy around the server says who it is (`who=`), nothing is stored: the cookie only ties forms to a browser.
An id is made here when a session begins and never taken from a browser.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest

from sayso import clock, errors
from sayso.model.ids import new_token
from sayso.model.reviewer import Reviewer
from sayso.server.auth.signing import TokenSigner
from sayso.stores.base import Store
from sayso.stores.records import Record

IDLE, ABSOLUTE = timedelta(hours=8), timedelta(days=7)
RECORD = "session"
_NOTED = timedelta(minutes=5)  # how long a use goes unwritten: a page that only shows something seldom writes
_DELETED_AT_ONCE, _MOST_ENDED, _MOST_PEOPLE = 100, 1_000, 500


@dataclass(frozen=True)
class Session:
    """One browser at which one reviewer is signed in: its cookie, what its forms carry, and when it ends if unused."""

    id: str = field(repr=False)
    reviewer: Reviewer
    csrf: str = field(repr=False)
    ends: datetime

    def is_mine(self, csrf: str) -> bool:
        """Say whether a form was made for this session; its token is masked, or as programs get it."""
        if len(csrf) == 2 * len(self.csrf):
            with suppress(ValueError):
                given = bytes.fromhex(csrf)
                half = len(given) // 2
                csrf = bytes(a ^ b for a, b in zip(given[:half], given[half:], strict=True)).hex()
        return compare_digest(self.csrf.encode(), csrf.encode())

    def masked_csrf(self) -> str:
        """Return what a form carries: other digits on every page, so that its length, compressed, tells nothing."""
        token = bytes.fromhex(self.csrf)
        mask = bytes.fromhex(new_token() + new_token())
        return mask.hex() + bytes(a ^ b for a, b in zip(mask, token, strict=True)).hex()


class Sessions:
    """All sessions of one store.

    Args:
        store: Where they are recorded.
        signer: Derives the tokens of forms.
        lasts: When a session ends for good.
        options: Under which sign-in options they begin; those that began under others do not count.
        admits: Says who may review.
    """

    def __init__(
        self, store: Store, signer: TokenSigner, *, lasts: timedelta = ABSOLUTE, options: str = "",
        admits: Callable[[Reviewer], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        self._store, self._signer = store, signer
        self._lasts, self._options, self._admits = lasts, options, admits
        self._ended: dict[str, None] = {}  # those that ended here, so that their open pages are closed without a look

    def begin(self, reviewer: Reviewer) -> Session:
        """Begin a session of somebody who has signed in. Durable on return; raises `StoreError`."""
        now, session_id = clock.now(), new_token() + new_token()
        body = {
            "issuer": reviewer.issuer, "subject": reviewer.subject, "roles": sorted(reviewer.roles),
            "options": self._options, "begun": clock.written(now), "used": clock.written(now),
        }  # fmt: skip
        for old in self._store.records(RECORD, due_by=now, limit=_DELETED_AT_ONCE):
            self._store.drop(RECORD, old.key)
        self._store.keep(Record(RECORD, _key(session_id), body, now + self._lasts))
        return Session(session_id, reviewer, self._csrf(session_id, reviewer), now + min(IDLE, self._lasts))

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie, if it has not ended, and count this as a use of it. Reads the store."""
        if cookie is None:
            return None
        record = self._store.record(RECORD, _key(cookie))
        session = None if record is None else self._open(cookie, record)
        if session is None or record is None:
            return None
        now = clock.now()
        if now >= datetime.fromisoformat(record.body["used"]) + _NOTED:
            used = Record(RECORD, record.key, record.body | {"used": clock.written(now)}, record.due)
            with suppress(errors.StoreError):  # the next use is written instead
                self._store.swap(record, used)  # and not kept: a session that ended meanwhile stays ended
        return session

    def is_open(self, session: Session) -> bool:
        """Say whether a session still lasts; this is no use of it. Reads the store."""
        record = self._store.record(RECORD, _key(session.id))
        return record is not None and self._open(session.id, record) is not None

    def people(self) -> list[Reviewer]:
        """Return who is signed in by a recorded session, each once, with the roles of the one that began last."""
        found: dict[str, tuple[str, Reviewer]] = {}
        for record in self._store.records(RECORD, limit=_MOST_PEOPLE):
            with suppress(errors.StoreCorruptError):
                session, begun = self._open("", record), str(record.body.get("begun"))
                if session is not None:
                    who = session.reviewer.identity.folded
                    found[who] = max(found.get(who, ("", session.reviewer)), (begun, session.reviewer), key=_begun)
        return [reviewer for _, reviewer in found.values()]

    def end(self, session: Session) -> None:
        """End a session, for every server of the store. Durable on return."""
        self._store.drop(RECORD, _key(session.id))
        self._ended[session.id] = None
        if len(self._ended) > _MOST_ENDED:
            self._ended.pop(next(iter(self._ended)), None)

    def has_ended_here(self, session: Session) -> bool:
        """Say whether this server ended a session; reads nothing."""
        return session.id in self._ended

    def begin_unrecorded(self, reviewer: Reviewer) -> Session:
        """Begin a session of somebody whom a program or proxy around has signed in; each request of theirs says so."""
        nonce = new_token() + new_token()
        return self._unrecorded(nonce + self._signer.mac(f"session of {_person(reviewer)}", nonce), reviewer)

    def find_unrecorded(self, cookie: str | None, reviewer: Reviewer) -> Session | None:
        """Return the session of a cookie, if it began for this person with these roles; reads nothing."""
        if cookie is None or not cookie.isascii():
            return None
        nonce, mac = cookie[:64], cookie[64:]
        is_theirs = compare_digest(self._signer.mac(f"session of {_person(reviewer)}", nonce), mac)
        return self._unrecorded(cookie, reviewer) if is_theirs else None

    def _unrecorded(self, cookie: str, reviewer: Reviewer) -> Session:
        return Session(cookie, reviewer, self._csrf(cookie, reviewer), clock.now() + IDLE)

    def _open(self, cookie: str, record: Record) -> Session | None:
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
        return Session(cookie, reviewer, self._csrf(cookie, reviewer), ends)

    def _csrf(self, session_id: str, reviewer: Reviewer) -> str:
        return self._signer.mac("form", f"{session_id} {_person(reviewer)}")


def _begun(session: tuple[str, Reviewer]) -> str:
    return session[0]


def _key(session_id: str) -> str:
    return hashlib.sha256(session_id.encode()).hexdigest()


def _person(reviewer: Reviewer) -> str:
    return json.dumps([reviewer.identity.folded, *sorted(reviewer.roles)])
