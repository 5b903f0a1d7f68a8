"""API tokens, `sst_ID_SECRET`, of three kinds (ask, review, admin), and the people that a store knows.

`sayso token new` makes one on the server's machine and shows it once. The store has only the SHA-256 of its 256-bit
random secret, from which the secret cannot be recovered. In the same transaction, the journal records in a separate
chain that a token was made or revoked. A revoked or expired token is refused from that instant on.

A store knows the people with a recorded session, and those in whose names tokens review.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from hmac import compare_digest
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from sayso import clock, config, errors
from sayso.channels.settings import allowed_reviewers
from sayso.model import cached_property
from sayso.model.ids import new_token
from sayso.model.request import State
from sayso.model.reviewer import LOCAL, Identity, Reviewer, folded, name_of
from sayso.model.text import say
from sayso.server.auth.sessions import RECORD
from sayso.stores.base import Filter, Store
from sayso.stores.records import Note, Record, records_in
from sayso.stores.transaction import CHANNEL

TokenKind = Literal["ask", "review", "admin"]
KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
LASTS = timedelta(days=90)

CHAIN = "sayso:tokens"
"""The run id of the chain that records which tokens were made and revoked."""

_RECORD = "token"
_ID = 16
_FORM = re.compile(rf"sst_([0-9a-f]{{{_ID}}})_([0-9a-f]{{64}})")
_NOBODY = "0" * 64
_MOST_KNOWN = 4_096


@dataclass(frozen=True)
class Token:
    """One token as stored, without its secret.

    An `ask` token asks and never decides, and the person of its name never decides what was asked with it. `review`
    decides and never starts a call. `admin` manages tokens and outcomes. `used_on` is the last day of use.
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

    def __hash__(self) -> int:
        return hash(self.id)  # a hash of all fields takes ten times as long

    def is_good(self, now: datetime) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked_at is None and now < self.expires_at

    @cached_property
    def reviewer(self) -> Reviewer:
        """The reviewer in whose name it acts."""
        return Reviewer(self.person.subject, roles=self.roles, issuer=self.person.issuer)


class Tokens:
    """The tokens of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._uses: dict[str, str] = {}  # day of last use by id, not written yet: finding a token writes nothing
        self._noted: dict[str, date] = {}  # the same, also of those written
        self._known: dict[str, Token] = {}  # by digest of the token's text; may be revoked or expired since

    def new(
        self, kind: TokenKind, name: str, *, roles: Collection[str] = (), issuer: str = LOCAL, lasts: timedelta = LASTS,
        by: Identity | None = None, channel: str = "python",
    ) -> tuple[Token, str]:  # fmt: skip
        """Make a token, and return it with its full text, which cannot be shown again. Durable on return.

        Args:
            name: The person or program in whose name it acts.
            roles: The roles of a reviewer.
            issuer: Issuer of the name. Must equal the issuer with which the person signs in, or they count as two.
            lasts: Time until it expires.
            by: Who makes it, for the journal; None is the configured reviewer.
            channel: Channel through which it is made, for the journal.

        Raises:
            ValueError: The name, a role or the issuer is invalid. Or the kind is `ask`, and roles or an issuer are
                given, or the name differs from another program's only in case or the like.
        """
        if kind == "ask" and issuer != LOCAL:  # each asks as `token:NAME`, so two issuers' programs would be one
            raise ValueError("a token of the kind 'ask' has no issuer: programs are distinguished only by name")
        if kind == "ask" and roles:
            raise ValueError("a token of the kind 'ask' has no roles: it never decides")
        person, now, secret = Reviewer(name, roles=roles, issuer=issuer), clock.now(), new_token() + new_token()
        for one in self.all() if kind == "ask" else ():  # grants, budgets and own-request checks would mix them
            if one.kind == "ask" and one.person.subject != name and one.person.is_same(person.identity):
                raise ValueError(f"{name!a} looks like the existing program {one.person.subject!a}")
        token = Token(
            new_token()[:_ID], kind, person.identity, frozenset(person.roles), now, now + lasts, digest=_digest(secret)
        )
        record = Record(_RECORD, token.id, _body.dump_python(token, mode="json"))
        self._store.keep(record, note=_note("token_made", token, by, channel))
        return token, f"sst_{token.id}_{secret}"

    def find(self, text: str) -> Token | None:
        """Return the token of this text; None if it is invalid, revoked or expired. Reads the store."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        record = self._store.record(_RECORD, form[1])
        token = None if record is None else _token(record)
        # Compare even without a record, so that timing does not reveal which ids exist.
        is_it = compare_digest(_digest(form[2]), _NOBODY if token is None else token.digest)
        if token is None or not is_it or not token.is_good(clock.now()):
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[_digest(text)] = token
        self._use(token)
        return token

    def recall(self, text: str) -> Token | None:
        """Return what `find` returned for this text before, without reading the store. Check it with `is_good`."""
        token = self._known.get(_digest(text))
        if token is not None:
            self._use(token)
        return token

    def is_good(self, token_id: str, store: Store | None = None) -> bool:
        """Return whether a token that was found before is still valid, without counting as a use of it.

        `store` is a view of the store to read, such as an open transaction.
        """
        record = (store or self._store).record(_RECORD, token_id)
        return record is not None and _token(record).is_good(clock.now())

    def _use(self, token: Token) -> None:
        day = clock.now().date()
        if self._noted.get(token.id) == day:
            return
        with self._lock:
            self._noted[token.id] = day
            if token.used_on != day.isoformat():
                self._uses[token.id] = day.isoformat()

    def all(self) -> list[Token]:
        """Return every token, including revoked and expired ones, in the order of their ids."""
        return [_token(record) for record in records_in(self._store, _RECORD)]

    def revoke(self, token_id: str, *, by: Identity | None = None, channel: str = "python") -> Token | None:
        """Revoke a token and return it; None if there is none with this id. Durable on return."""
        return self._change(
            token_id, lambda body: {"revoked_at": body["revoked_at"] or clock.now().isoformat()},
            lambda token: _note("token_revoked", token, by, channel),
        )  # fmt: skip

    @property
    def has_uses_to_write(self) -> bool:
        """Whether `write_uses` has anything to write. Does not read the store."""
        return bool(self._uses)

    def write_uses(self) -> None:
        """Write the last day of use of each token that was used on this server since the last call."""
        with self._lock:
            uses, self._uses = self._uses, {}
        for token_id, day in uses.items():
            self._change(token_id, lambda body, day=day: {"used_on": max(day, body["used_on"] or "")})

    def _change(
        self, token_id: str, change: Callable[[dict[str, Any]], dict[str, Any]],
        noted: Callable[[Token], Note | None] = lambda _: None,
    ) -> Token | None:  # fmt: skip
        while True:  # compare-and-set, so that a concurrent write of `used_on` never undoes a revocation
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


def _token(record: Record) -> Token:
    try:
        return _body.validate_python(record.body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise errors.StoreCorruptError(
            f"token {record.key!r} cannot be read ({problem}); replace it with a new one"
        ) from error


_MOST, _MOST_DECIDED = 500, 200
_DECIDED = frozenset(State) - {State.PENDING}


def with_roles(store: Store, signed_in: Iterable[Reviewer], who: Identity) -> Reviewer | None:
    """Return a person with all roles of their session and of their valid tokens; None if they have neither.

    There is nobody else to ask: an OpenID provider or a proxy reports roles only when the person signs in.
    """
    now, found = clock.now(), list(signed_in)
    with suppress(errors.StoreCorruptError):
        found += [one.reviewer for one in Tokens(store).all() if one.kind == "review" and one.is_good(now)]
    roles = [one.roles for one in found if one.identity.is_same(who)]
    return Reviewer(who.subject, roles=frozenset[str]().union(*roles), issuer=who.issuer) if roles else None


def doubt_about(store: Store, who: Identity) -> str | None:
    """Return a warning if nothing here names a person, so that the name may be mistyped; None if something does."""
    if not _known_people(store).isdisjoint(who.names):
        return None
    return say("Nobody has signed in as %(name)s, and no settings name them. Is the name right?", name=name_of(who))


def unknown_names(store: Store, names: Collection[str]) -> list[str]:
    """Return those of the names that a comment mentions by which nobody is known."""
    if not names:
        return []
    known = {name for one in _known_people(store) for name in (one, one.partition(":")[2])}
    return [name for name in names if folded(name) not in known]


def _known_people(store: Store) -> set[str]:
    """Return everybody who is known here, as `issuer:subject`, folded; without issuer if the settings have none.

    That is by a session (even one long unused), a token, a channel's settings, the `reviewers` of `[serve]`, or one of
    the newest decisions, because a proxy signs people in without a record.
    """
    found = list[str]()
    with suppress(errors.ConfigError):
        found += allowed_reviewers().reviewers or ()
    with suppress(errors.StoreCorruptError):
        found += [f"{one.body.get('issuer')}:{one.body.get('subject')}" for one in store.records(RECORD, limit=_MOST)]
        found += [str(name) for channel in store.records(CHANNEL) for name in channel.body.get("people", ())]
    with suppress(errors.StoreCorruptError):
        found += [one.person.qualified for one in Tokens(store).all() if one.kind == "review"]
    newest = store.list(Filter(states=_DECIDED), limit=_MOST_DECIDED, newest=True).requests
    found += [one.by.qualified for each in newest for one in (each.decision, *each.votes) if one is not None]
    return set(map(folded, found))
