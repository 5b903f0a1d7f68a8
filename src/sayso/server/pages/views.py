"""Saved views: named searches of the inbox, for one reviewer or for everybody who signs in.

A view is only the query string of a list: it grants no rights and is not in the journal. Views are records of the
store; each person's have a kind of their own. A shared view can be changed and removed by the person who shared it, or
by anybody with the role `lead`.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import errors
from sayso.model.text import escape, later, say, storable
from sayso.server.context import RequestContext, redirect
from sayso.stores.records import Record

FILTERS = (
    "q", "state", "kind", "tool", "run", "risk", "mine", "assigned", "mentions", "snoozed", "voted", "agent", "by",
    "verb", "channel", "from", "to", "grant", "sort", "fold",
)  # fmt: skip
_KIND, _LEAD = "view", "lead"
_MOST, _LONGEST_NAME, _LONGEST_WORDS = 30, 40, 2_000


def views_of(context: RequestContext) -> list[dict[str, Any]]:
    """Return a person's views and the shared ones, sorted by name. Records that were altered are left out."""
    found: list[dict[str, Any]] = []
    for is_shared in (False, True):
        with suppress(errors.StoreCorruptError):
            found += [
                {
                    "key": record.key, "name": escape(str(record.body.get("name"))), "is_shared": is_shared,
                    "words": _filters(str(record.body.get("words"))),  # the query string of the list
                    "is_removable": _may_change(context, record, is_shared=is_shared),
                }
                for record in context.settings.store.records(_kind(context, is_shared=is_shared), limit=_MOST)
            ]  # fmt: skip
    return sorted(found, key=lambda view: view["name"].casefold())


def change_view(context: RequestContext) -> Response:
    """Save a view, replacing one of the same name, or remove one."""
    verb, store, form = context.http.path_params["verb"], context.settings.store, context.form
    is_shared, words = form.get("shared") == "yes", _filters(form.get("in", ""))
    kind, key, who = _kind(context, is_shared=is_shared), form.get("view", "") or "-", context.reviewer
    name = " ".join(storable(context.field("name") or "").split())
    if verb == "save":
        if not 0 < len(name) <= _LONGEST_NAME or not 0 < len(words) <= _LONGEST_WORDS:
            refusal = later("a view has a name of 1 to %(most)s characters, and a filter; nothing was saved")
            raise HTTPException(400, say(refusal, most=_LONGEST_NAME))
        key = hashlib.sha256(name.casefold().encode()).hexdigest()[:32]  # keys of records are not sealed
    elif verb != "remove":
        raise HTTPException(404, say("there is no such action"))
    known = store.record(kind, key)
    if known is not None and not _may_change(context, known, is_shared=is_shared):
        raise HTTPException(403, say(
            "somebody else shared it: only they, or people with the role %(role)s, can change it. Nothing was changed",
            role=_LEAD,
        ))  # fmt: skip
    if verb == "remove":
        if known is not None:
            store.drop(kind, known.key)
        return redirect(context.path())
    if known is None and store.count_records(kind, _MOST) >= _MOST:
        refusal = say("there are %(most)s views already; remove one first. Nothing was saved", most=_MOST)
        raise HTTPException(400, refusal)
    view = Record(kind, key, {"name": name, "words": words, "by": who.identity.folded})
    if not (store.keep(view, only_new=True) if known is None else store.swap(known, view)):
        raise HTTPException(409, say("somebody saved or removed a view of this name just now; nothing was saved"))
    return redirect(f"{context.path()}?{words}")


def _may_change(context: RequestContext, record: Record, *, is_shared: bool) -> bool:
    who = context.reviewer
    return not is_shared or record.body.get("by") == who.identity.folded or _LEAD in who.roles


def _filters(words: str) -> str:
    """Return only the filters of a query string, without the cursor, which belongs to one visit of the list."""
    return urlencode([(name, text) for name, text in parse_qsl(words) if name in FILTERS])


def _kind(context: RequestContext, *, is_shared: bool) -> str:
    return _KIND if is_shared else f"{_KIND}/{context.reviewer.identity.folded}"
