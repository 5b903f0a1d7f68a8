"""Tokens of programs, `sst_ID_SECRET`: who may ask, who may review, and who may administer; and whom a store knows.

`sayso token new` makes them on the server's machine and shows them once; the store keeps the SHA-256 of a secret of 256
random bits, which is of no use to a reader. The journal records in a chain of its own, in the same transaction, that a
token was made or revoked. A token that was revoked or has expired is refused from that instant on.

A store knows who is signed in by a recorded session, and in whose names tokens review.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from sayso import clock, config, errors
from sayso.channels.settings import allowed_reviewers
from sayso.model.cached import cached_property
from sayso.model.ids import new_token
from sayso.model.rendering import name_of
from sayso.model.request import State
from sayso.model.reviewer import LOCAL, Identity, Reviewer
from sayso.model.words import say
from sayso.server.auth.sessions import IDLE, RECORD
from sayso.stores.base import Filter, Store
from sayso.stores.records import Note, Record, RecordRow, record_of
from sayso.stores.transaction import CHANNEL

TokenKind = Literal["ask", "review", "admin"]
KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
LASTS = timedelta(days=90)

CHAIN = "sayso:tokens"
"""The run id of the chain in which it stands what tokens were made and revoked."""

_RECORD = "token"
_ID = 16
_FORM = re.compile(rf"sst_([0-9a-f]{{{_ID}}})_([0-9a-f]{{64}})")
_NOBODY = "0" * 64
_MOST_KNOWN = 4_096


@dataclass(frozen=True)
class Token:
    """One token as it is kept, without its secret.

    An `ask` token asks and never decides, and who has its name never decides what was asked through it; `review`
    decides and never starts; `admin` looks after tokens and outcomes. `used_on` is the last day on which it was used.
    """

    id: str
    kind: TokenKind
    person: Identity
    roles: frozenset[str]
    made_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    used_on: str | None = None
    digest: str = field(default="", repr=False)

    def is_good(self, now: datetime) -> bool:
        """Say whether it opens anything at this instant."""
        return self.revoked_at is None and now < self.expires_at

    @cached_property
    def reviewer(self) -> Reviewer:
        """The person in whose name it acts."""
        return Reviewer(self.person.subject, roles=self.roles, issuer=self.person.issuer)


class Tokens:
    """The tokens of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._uses: dict[str, str] = {}  # not written yet: finding a token writes nothing
        self._written: dict[str, str] = {}
        self._read: dict[str, tuple[RecordRow, Token]] = {}  # by id, with the row that it was read from
        self._known: dict[str, Token] = {}  # by the digests of their texts; whether one is still good is no part of it

    def new(
        self, kind: TokenKind, name: str, *, roles: Collection[str] = (), issuer: str = LOCAL, lasts: timedelta = LASTS,
        by: Identity | None = None, channel: str = "python",
    ) -> tuple[Token, str]:  # fmt: skip
        """Make a token, and return it with its whole text, which nothing can show again. Durable on return.

        Args:
            kind: What it may do.
            name: In whose name.
            roles: The roles of a reviewer.
            issuer: Who vouches for the name: the same as where this person signs in, or one person counts as two.
            lasts: How long.
            by: Who makes it, for the journal; None is the configured reviewer.
            channel: Through which channel.

        Raises:
            ValueError: The name, a role or the issuer cannot be one; a program's name has an issuer, or differs from
                that of another program only in case or such.
        """
        if kind == "ask" and issuer != LOCAL:  # or two programs of one name would be one, as each asks as `token:NAME`
            raise ValueError("a token of the kind 'ask' takes no issuer: programs are told apart by their names alone")
        person, now, secret = Reviewer(name, roles=roles, issuer=issuer), clock.now(), new_token() + new_token()
        for one in self.all() if kind == "ask" else ():  # grants, budgets and bars take the two for one
            if one.kind == "ask" and one.person.subject != name and one.person.is_same(person.identity):
                raise ValueError(f"there is a program named {one.person.subject!a} already, which {name!a} looks like")
        token = Token(
            new_token()[:_ID], kind, person.identity, frozenset(person.roles), now, now + lasts, digest=_digest(secret)
        )
        self._store.keep(_record(token), note=_note("token_made", token, by, channel))
        return token, f"sst_{token.id}_{secret}"

    def find(self, text: str) -> Token | None:
        """Return the token of this text; None where it is none, was revoked or has ended."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        record = self._store.record(_RECORD, form[1])
        token = None if record is None else _token(record)
        # Compared also where there is none, so that the time it takes does not tell which ids there are.
        is_it = compare_digest(_digest(form[2]), _NOBODY if token is None else token.digest)
        if token is None or not is_it or not token.is_good(clock.now()):
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[_digest(text)] = token
        self._use(token)
        return token

    def recall(self, text: str) -> Token | None:
        """Return what `find` returned for this text before, and read no store: `is_good` has to say the rest."""
        token = self._known.get(_digest(text))
        if token is not None:
            self._use(token)
        return token

    def is_good(self, token_id: str, store: Store | None = None) -> bool:
        """Say whether a token that was found before still opens anything; this is no use of it.

        Args:
            token_id: Which.
            store: A view of the store in which this is asked, such as an open transaction.
        """
        row = (store or self._store).record_row(_RECORD, token_id)
        if row is None:
            return False
        known = self._read.get(token_id)
        if known is None or known[0] != row:
            known = self._read[token_id] = row, _token(record_of(row))
        return known[1].is_good(clock.now())

    def _use(self, token: Token) -> None:
        day = clock.now().date().isoformat()
        with self._lock:
            if self._written.get(token.id, token.used_on) != day:
                self._uses[token.id] = day

    def all(self) -> list[Token]:
        """Return every token, also those that open nothing any more, by id."""
        found: list[Record] = []
        while True:
            page = self._store.records(_RECORD, after=found[-1].key if found else "")
            found += page
            if not page:
                return [_token(record) for record in found]

    def revoke(self, token_id: str, *, by: Identity | None = None, channel: str = "python") -> Token | None:
        """End a token at once, and return it; None where there is none of this id. Durable on return."""
        return self._change(
            token_id, lambda body: {"revoked_at": body["revoked_at"] or clock.now().isoformat()},
            lambda token: _note("token_revoked", token, by, channel),
        )  # fmt: skip

    @property
    def has_uses_to_write(self) -> bool:
        """Whether `write_uses` would write something; reads no store."""
        return bool(self._uses)

    def write_uses(self) -> None:
        """Write down on which day the tokens were used last that `find` found here."""
        with self._lock:
            uses, self._uses = self._uses, {}
            self._written |= uses
        for token_id, day in uses.items():
            self._change(token_id, lambda body, day=day: {"used_on": max(day, body["used_on"] or "")})

    def _change(
        self, token_id: str, change: Callable[[dict[str, Any]], dict[str, Any]],
        noted: Callable[[Token], Note | None] = lambda _: None,
    ) -> Token | None:  # fmt: skip
        while True:  # until nobody changes it in between, so that what is written last never undoes a revocation
            before = self._store.record(_RECORD, token_id)
            if before is None:
                return None
            after = Record(_RECORD, token_id, before.body | change(before.body))
            token = _token(after)
            if after == before or self._store.swap(before, after, note=noted(token)):
                return token


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _note(event: str, token: Token, by: Identity | None, channel: str) -> Note:
    detail = {
        "token_id": token.id, "token_kind": token.kind, "subject": token.person.qualified,
        "roles": sorted(token.roles), "expires_at": clock.written(token.expires_at),
    }  # fmt: skip
    return Note(CHAIN, event, config.default_reviewer().identity if by is None else by, channel, detail)


_body = TypeAdapter(Token)


def _record(token: Token) -> Record:
    return Record(_RECORD, token.id, _body.dump_python(token, mode="json"))


def _token(record: Record) -> Token:
    try:
        return _body.validate_python(record.body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise errors.StoreCorruptError(
            f"token {record.key!r} cannot be read ({problem}); revoke it by a new one"
        ) from error


_MOST, _MOST_DECIDED = 500, 200
_DECIDED = frozenset(State) - {State.PENDING}


def with_roles(store: Store, who: Identity) -> Reviewer | None:
    """Return somebody with all roles that they have in a session or by a token that counts now; None where none does.

    Nobody else is asked: an OpenID provider or a proxy says the roles of who comes, and of no one else.
    """
    roles = [one.roles for one in _known(store) if one.identity.is_same(who)]
    every = {role for some in roles for role in some}
    return Reviewer(who.subject, roles=every, issuer=who.issuer) if roles else None


def doubt_about(store: Store, who: Identity) -> str | None:
    """Return a warning where nothing here speaks of somebody, whose name may be wrong; None where something does.

    That is a session, also one that was long not used, a token, a channel's settings, the `reviewers` of `[serve]`, or
    a decision among the newest ones: a proxy signs people in without a record.
    """
    if _is_known(store, who):
        return None
    return say("Nobody has signed in as %(name)s, and no settings name them. Is the name right?", name=name_of(who))


def _is_known(store: Store, who: Identity) -> bool:
    with suppress(errors.ConfigError):
        if not {who.subject, who.qualified}.isdisjoint(allowed_reviewers().reviewers or ()):
            return True
    with suppress(errors.StoreCorruptError):
        for session in store.records(RECORD, limit=_MOST):
            if who.goes_by(f"{session.body.get('issuer')}:{session.body.get('subject')}"):
                return True
    with suppress(errors.StoreCorruptError):
        if any(who.goes_by(str(name)) for channel in store.records(CHANNEL) for name in channel.body.get("people", ())):
            return True
    with suppress(errors.StoreCorruptError):
        if any(one.kind == "review" and one.person.is_same(who) for one in Tokens(store).all()):
            return True
    newest = store.list(Filter(states=_DECIDED), limit=_MOST_DECIDED, newest=True).requests
    return any(one is not None and one.by.is_same(who) for each in newest for one in (each.decision, *each.votes))


def _known(store: Store) -> list[Reviewer]:
    now, found = clock.now(), list[Reviewer]()
    with suppress(errors.StoreCorruptError):
        for record in store.records(RECORD, limit=_MOST):
            with suppress(LookupError, TypeError, ValueError):
                body, ends = record.body, record.due
                if ends is not None and now < min(ends, datetime.fromisoformat(body["used"]) + IDLE):
                    found.append(Reviewer(body["subject"], roles=body["roles"], issuer=body["issuer"]))
    with suppress(errors.StoreCorruptError):
        found += [one.reviewer for one in Tokens(store).all() if one.kind == "review" and one.is_good(now)]
    return found
