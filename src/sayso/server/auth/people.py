"""Whose roles a store knows: those who are signed in by a recorded session, and in whose names tokens review."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from sayso import clock, errors
from sayso.model.reviewer import Identity, Reviewer
from sayso.server.auth.sessions import IDLE, RECORD
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Store

_MOST = 500


def with_roles(store: Store, who: Identity) -> Reviewer | None:
    """Return somebody with all roles that they have in a session or by a token that counts now; None where none does.

    Nobody else is asked: an OpenID provider or a proxy says the roles of who comes, and of no one else.
    """
    roles = [one.roles for one in _known(store) if one.identity.is_same(who)]
    every = {role for some in roles for role in some}
    return Reviewer(who.subject, roles=every, issuer=who.issuer) if roles else None


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
