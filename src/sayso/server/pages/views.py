"""Saved views: named searches of the inbox, each of one reviewer.

A view is only the query string of a list: it grants no rights and is not in the journal. Views are records of the
store; each person's have a kind of their own.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
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
_MOST, _LONGEST_NAME, _LONGEST_WORDS = 30, 40, 2_000


def views_of(context: RequestContext) -> list[dict[str, str]]:
    """Return a person's views, sorted by name; none if a record was altered."""
    found: list[dict[str, str]] = []
    with suppress(errors.StoreCorruptError):
        found = [
            {
                "key": record.key, "name": escape(str(record.body.get("name"))),
                "words": _filters(str(record.body.get("words"))),  # the query string of the list
            }
            for record in context.settings.store.records(_kind(context), limit=_MOST)
        ]  # fmt: skip
    return sorted(found, key=lambda view: view["name"].casefold())


def change_view(context: RequestContext) -> Response:
    """Save a view, replacing one of the same name, or remove one."""
    verb, store, kind = context.http.path_params["verb"], context.settings.store, _kind(context)
    if verb == "remove":
        store.drop(kind, context.form.get("view", "") or "-")
        return redirect(context.path())
    if verb != "save":
        raise HTTPException(404, say("there is no such action"))
    name, words = " ".join(storable(context.field("name") or "").split()), _filters(context.form.get("in", ""))
    if not 0 < len(name) <= _LONGEST_NAME or not 0 < len(words) <= _LONGEST_WORDS:
        refusal = later("a view has a name of 1 to %(most)s characters, and a filter; nothing was saved")
        raise HTTPException(400, say(refusal, most=_LONGEST_NAME))
    key = hashlib.sha256(name.casefold().encode()).hexdigest()[:32]  # keys of records are not sealed
    if store.record(kind, key) is None and store.count_records(kind, _MOST) >= _MOST:
        refusal = say("there are %(most)s views already; remove one first. Nothing was saved", most=_MOST)
        raise HTTPException(400, refusal)
    store.keep(Record(kind, key, {"name": name, "words": words}))
    return redirect(f"{context.path()}?{words}")


def _filters(words: str) -> str:
    """Return only the filters of a query string, without the cursor, which belongs to one visit of the list."""
    return urlencode([(name, text) for name, text in parse_qsl(words) if name in FILTERS])


def _kind(context: RequestContext) -> str:
    return f"view/{context.reviewer.identity.folded}"
