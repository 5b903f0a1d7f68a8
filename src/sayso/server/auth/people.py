"""Whom a store knows: those who are signed in by a recorded session, and in whose names tokens review."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from sayso import clock, errors
from sayso.channels.settings import allowed_reviewers
from sayso.model.rendering import name_of
from sayso.model.request import State
from sayso.model.reviewer import Identity, Reviewer
from sayso.model.words import say
from sayso.server.auth.sessions import IDLE, RECORD
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Filter, Store
from sayso.stores.transaction import CHANNEL

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
