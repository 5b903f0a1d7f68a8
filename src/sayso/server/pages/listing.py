"""The inbox and the history: filters and cursor from the address, a page of requests, saved views, and the export.

The inbox lists unknown outcomes first, then pending requests, high risks first, then other open ones, each oldest
first; the history lists decided ones, newest first. Some filters (who asked, who decided, how) are applied here and not
by the store, where those columns may be sealed. The cost of a page does not grow with the store: if a filter matches
few requests, the page ends after a fixed number was read, and its cursor continues there. Sorted or folded lists are
read in windows of a fixed size, each of which has its own pages. An empty field filters nothing; an invalid field is an
error, never an empty list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, get_args
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from sayso import clock, errors
from sayso.model.canonical import display
from sayso.model.request import LIVE, Request, State, Verb
from sayso.model.reviewer import Identity
from sayso.model.text import ENGLISH, csv_row, escape, later, say, speaking, storable
from sayso.reviews.search import RequestPage
from sayso.server.context import RequestContext, pending_filter, redirect
from sayso.server.pages.alike import fold as folded
from sayso.server.pages.alike import folded_row, group_key, pending_group_key
from sayso.server.pages.arguments import amount_of
from sayso.server.pages.rendering import list_rows, render
from sayso.stores.base import Page
from sayso.stores.records import Record
from sayso.stores.review import page_in_sequence, page_where, requests_with
from sayso.view import full_text
from sayso.view.summary import RISKS, channel_name

PAGE, LOOK = 50, 2_000
_FOLDED = 1_000  # requests in which alike calls are searched for, which takes 40 ms
_CHUNK, _MOST_AT_ONCE = 200, 1_000
_TOGETHER = timedelta(minutes=1)
_VERBS: tuple[str, ...] = get_args(Verb)
SORTS = {
    "": later("High risk first"), "oldest": later("Oldest first"), "newest": later("Newest first"),
    "end": later("Expiring soonest"), "risk": later("Highest risk"), "amount": later("Largest amount"),
}  # fmt: skip
KINDS = (later("call"), later("question"))
_SEARCH_WORDS = {"mentions:me": "mentions", "snoozed": "snoozed", "approved:me": "voted"}
_ABOUT_ME = {"mine", "mentions", "snoozed", "voted"}
_NOBODY = "nobody"
_CHIPS = {
    "q": later("search"), "state": later("state"), "kind": later("kind"), "tool": later("function"),
    "run": later("run"), "risk": later("risk"), "mine": later("claimed by me"), "assigned": later("assigned to"),
    "mentions": later("mentions me"), "snoozed": later("snoozed"), "voted": later("approved by me"),
    "agent": later("asked by"), "by": later("by"), "verb": later("verb"), "channel": later("channel"),
    "from": later("from"), "to": later("to"), "grant": later("let through by the grant"),
}  # fmt: skip
_ORDERS = ("sort", "fold")
FILTERS = (*_CHIPS, *_ORDERS)
_FIRST, _REST = RISKS[:2], ""

Lists = tuple[frozenset[State], ...]
WAITING: Lists = (frozenset({State.PENDING}),)
OPEN: Lists = (frozenset({State.UNKNOWN}), *WAITING, LIVE - {State.PENDING, State.UNKNOWN})
DECIDED: Lists = (frozenset(State) - {State.PENDING},)


class _Stage(NamedTuple):
    """A part of a list, all of which is listed before the next part: requests in some states, oldest first.

    Attributes:
        name: Begins the cursors in it.
        risk: Only those of this risk; `_REST` for all but those of `_FIRST`, None for any.
    """

    name: str
    states: frozenset[State]
    risk: str | None


@dataclass(frozen=True)
class Listing:
    """A page of a list.

    Attributes:
        groups: Its rows; each is a list of alike calls, or of one request.
        next_page: Address of the next page; None at the end.
        asked: The filters of the address, including empty ones.
        states: The states that can be chosen.
        looked: Number of requests that were read for it.
        cursor: Cursor of the next page; None at the end.
        start: Cursor of the window in which it lies, or of the page itself; empty for the first.
    """

    groups: list[list[Request]]
    next_page: str | None
    asked: dict[str, str]
    states: list[str]
    looked: int
    cursor: str | None
    start: str

    @property
    def requests(self) -> list[Request]:
        """All requests on the page."""
        return [request for group in self.groups for request in group]

    def __contains__(self, request_id: str) -> bool:
        return any(one.id == request_id for one in self.requests)

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
        return any(value for name, value in self.asked.items() if name not in _ORDERS)

    @property
    def hint(self) -> str:
        """Which words of a search are filters, if it has another word like them, such as `tool:refund`; else empty."""
        known = ", ".join(("risk:high", "kind:question", "assigned:me", *_SEARCH_WORDS))
        hint = say("Only these words of a search are filters: %(known)s. “Filters” has all others.", known=known)
        return hint if ":" in self.asked["q"] else ""

    @property
    def is_short(self) -> bool:
        """Whether the page ended before it was full, because the limit of requests to read was reached."""
        return self.next_page is not None and len(self.groups) < PAGE

    @property
    def words(self) -> str:
        """The filters that are set, as a query string."""
        return _address(self.asked)

    @property
    def here(self) -> str:
        """The filters that are set and `start`, as a query string; `queue_of` reads it."""
        return _address(self.asked | {"cursor": self.start})

    def chips(self) -> list[tuple[str, str, str]]:
        """Return for each filter that is set its name, its value, and the query string without it."""
        set_now = {name: value for name, value in self.asked.items() if value}
        return [
            (_CHIPS.get(name, name), "" if name in _ABOUT_ME else value,
             _address({other: kept for other, kept in set_now.items() if other != name}))
            for name, value in set_now.items() if name not in _ORDERS
        ]  # fmt: skip

    def offered(self) -> dict[str, list[str]]:
        """Return the suggestions for some fields: the values on the page."""
        decisions = [one.decision for one in self.requests if one.decision is not None]
        owners = {one.claimed_by.subject for one in self.requests if one.claimed_by is not None}
        return {
            "tools": sorted({one.call.name for one in self.requests if one.kind == "call"}),
            "agents": sorted({one.requester.subject for one in self.requests}),
            "reviewers": sorted({one.by.subject for one in decisions}),
            "channels": sorted({one.channel for one in decisions}),
            "assigned": [*sorted(owners), _NOBODY],
        }


def _address(asked: dict[str, str]) -> str:
    return urlencode({name: value for name, value in asked.items() if value})


def _filters_of(address: str) -> tuple[dict[str, str], str | None]:
    """Return the filters and the cursor of an address (`Listing.here`)."""
    given = dict(parse_qsl(address))
    return {name: given.get(name, "") for name in FILTERS}, given.get("cursor")


def inbox(context: RequestContext) -> Response:
    """Show the open requests: unknown outcomes, then pending ones, high risks first, then others; each oldest first."""
    listing, now = _listing(context, OPEN, fold=True), clock.now()
    alone = [group[0] for group in listing.groups if len(group) == 1]
    rows, to_me = list_rows(context.review, alone, now, context.reviewer), context.review.mentions()
    by_id, pending = {row["id"]: row for row in rows}, [row["id"] for row in rows if row["expires"]]
    return render(
        context, "inbox.html", listing=listing, verbs=_VERBS, kinds=KINDS, sorts=SORTS, views=views_of(context),
        has_snoozed=bool(context.snoozed) and not listing.asked["snoozed"], mine=_count_of_mine(context),
        voted=0 if listing.asked["voted"] else len(context.approved),
        rows=[
            by_id[group[0].id] if len(group) == 1 else folded_row(group, now, to_me, context.reviewer)
            for group in listing.groups
        ],
        stream=context.path("events", since=now.isoformat(), rows=",".join(pending)),
    )  # fmt: skip


def _count_of_mine(context: RequestContext) -> int:
    """Return how many pending requests this person, or one for whom they stand in, has claimed or was assigned.

    Without those that they have snoozed.
    """
    people, store = (context.reviewer.identity, *context.stood_in_for), context.settings.store
    count = sum(store.count(replace(pending_filter(), claimed_by=one)) for one in people)
    return count - sum(map(context.has_claimed, requests_with(store, context.snoozed)))


def history(context: RequestContext) -> Response:
    """Show decided requests, newest first."""
    listing = _listing(context, DECIDED, "history", newest=True)
    return render(
        context, "history.html", rows=list_rows(context.review, listing.requests, clock.now()), listing=listing,
        verbs=_VERBS, kinds=KINDS,
        exports=[(kind, context.path(f"history.{kind}", **listing.asked)) for kind in ("csv", "jsonl")],
    )  # fmt: skip


def queue_of(
    context: RequestContext, address: str, request_id: str, can_follow: Callable[[Request], bool], *,
    fold: bool = False,
) -> Listing:  # fmt: skip
    """Return the pending requests by an inbox's address (`Listing.here`), up to the pages around a request.

    It goes on until it has one after the request that `can_follow` accepts. If the request is not among the first
    2,000 from the start of the address and the page after them, or `request_id` is empty, that is the first page.
    """
    asked, cursor = _filters_of(address)
    first = found = _listing(context, WAITING, asked=asked, fold=fold, cursor=cursor, size=LOOK)
    while request_id and found.cursor is not None:
        after = [one.id for one in found.requests].index(request_id) + 1 if request_id in found else 0
        rest = found.requests[after:] if after else []
        if found.looked > (2 * LOOK if after else LOOK) or (len(rest) >= PAGE // 2 and any(map(can_follow, rest))):
            break
        page = _listing(context, WAITING, asked=asked, cursor=found.cursor, size=LOOK)
        start = page.start if request_id in page and found.looked >= LOOK else found.start
        found = replace(page, groups=found.groups + page.groups, looked=found.looked + page.looked, start=start)
    return found if request_id in found else first


def alike_to(context: RequestContext, request_id: str, address: str, most: int) -> list[Request]:
    """Return the pending requests alike to one, with the filters and in the order of an inbox's address.

    Of one that is decided by now, they are what is left of its group.
    """
    request = context.review.get(request_id)
    key = group_key(request)
    if key is None:
        return [request]
    asked, _ = _filters_of(address)
    search = _searched(context, WAITING, asked | {"tool": request.call.tool, "state": "pending"})
    found = list(islice((one for one in search.every() if pending_group_key(one) == key), most))
    return sorted(found, key=_KEYS[search.order]) if search.order else found


def decided_with(context: RequestContext, request_id: str, *, is_alone: bool) -> list[Request]:
    """Return a decided request, and calls like it that the same person decided within a minute of it.

    They are among the newest 1,000 decided calls. A group has one address, so the way back to it leads here. Of one
    that is pending, they are what the reader decided in the last minute, if the address names it alone (`is_alone`):
    reading them takes some 20 ms.
    """
    request = context.review.get(request_id)
    decision, key, first = request.decision, group_key(request), [request]
    by, at = (None, None) if decision is None else (decision.by, decision.at)
    if request.state is State.PENDING:
        first, by, at = [], context.reviewer.identity if is_alone else None, clock.now()
    if by is None or at is None or key is None:
        return first
    newest = context.review.list(state=DECIDED[0], kind="call", limit=_MOST_AT_ONCE, newest=True).requests
    others = (
        one for one in reversed(newest)
        if one.id != request.id and group_key(one) == key and one.decision is not None
        and one.decision.by.is_same(by) and abs(one.decision.at - at) <= _TOGETHER
    )  # fmt: skip
    return [*first, *others]


def _listing(
    context: RequestContext, lists: Lists, *page: str, newest: bool = False, asked: dict[str, str] | None = None,
    fold: bool = False, cursor: str | None = None, size: int = PAGE,
) -> Listing:  # fmt: skip
    """Return the page of a list that the address asks for; raises `HTTPException` for an invalid filter or cursor.

    `size` is the length of a page of a window, which is read in any case.
    """
    search = _searched(context, lists, asked or _asked(context), newest=newest)
    cursor = context.query("cursor") if asked is None else cursor
    start = (cursor or "").partition(":")[0]
    try:
        if search.order or (fold and search.folds):
            found, cursor = search.window_page(cursor or ".", size, fold=fold and search.folds)
        else:
            first = search.page(cursor or ".", PAGE)
            found, cursor = [[request] for request in first.requests], first.cursor
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    next_page = None if cursor is None else context.path(*page, cursor=cursor, **search.asked)
    offered = frozenset[State]().union(*lists)
    return Listing(
        found, next_page, search.asked, [str(state) for state in State if state in offered], search.looked, cursor,
        "" if start == "." else start,
    )  # fmt: skip


def _searched(context: RequestContext, lists: Lists, asked: dict[str, str], *, newest: bool = False) -> _Search:
    try:
        return _Search(context, lists, asked, newest=newest)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None


def _asked(context: RequestContext) -> dict[str, str]:
    """Return the filters of an address. Words of the search such as `risk:high` set the filter that they stand for."""
    asked = {name: context.query(name) for name in FILTERS}
    left = list[str]()
    for word in asked["q"].split():
        name, _, value = word.partition(":")
        if word in _SEARCH_WORDS:
            asked[_SEARCH_WORDS[word]] = "yes"
        elif name == "risk" and value:
            asked["risk"] = value.casefold() if value.casefold() in RISKS else value
        elif name in {"assigned", "kind"} and value:
            asked[name] = value
        else:
            left.append(word)
    if asked["assigned"].casefold() == "me":
        asked |= {"assigned": "", "mine": "yes"}
    return asked if len(left) == len(asked["q"].split()) else asked | {"q": " ".join(left)}


class _Search:
    """A search with the filters of one address in several lists, one after another; raises `ValueError`."""

    def __init__(self, context: RequestContext, lists: Lists, asked: dict[str, str], *, newest: bool) -> None:
        self.asked = asked
        self._lists = (frozenset({State(asked["state"])}),) if asked["state"] else lists
        # High risks are parts of their own in the store's list: sorting would have to read all that wait.
        is_by_risk = not (newest or asked["sort"] or asked["risk"])
        self._stages = [
            _Stage(risk or str(min(states)), states, risk)
            for states in self._lists
            for risk in ((*_FIRST, _REST) if is_by_risk and states in WAITING else (None,))
        ]
        self._tests, absent = _tests(context, asked), context.stood_in_for
        self._newest, self._review = newest, context.review
        sort = "" if newest else asked["sort"]
        _must_be_among(sort, SORTS, later("%(given)s is not a sort order; use one of %(known)s"))
        self.order = sort if sort in _KEYS else ""
        self.folds, kind = asked["fold"] != "no", asked["kind"].casefold()
        if kind:
            _must_be_among(kind, KINDS, later("%(given)s is not a kind; use one of %(known)s"))
        self._filters: dict[str, Any] = {
            "text": asked["q"] or None, "tool": asked["tool"] or None, "run": asked["run"] or None,
            "kind": kind or None,
            "risk": asked["risk"] or None, "claimed_by": context.reviewer if asked["mine"] and not absent else None,
        }  # fmt: skip
        self.looked = 0

    def page(self, cursor: str, size: int) -> Page:
        """Return one page. A cursor of a stage that other lists have, but not this one, means its beginning."""
        name, dot, _ = cursor.partition(".")
        if not dot or name not in {"", *_FIRST, _REST, *map(str, State)}:
            raise ValueError(say("this is not a cursor of this list; start again without one"))
        stages = {stage.name: partial(self._page, stage) for stage in self._stages}
        return page_in_sequence(stages, cursor if name in stages else None, size)

    def window_page(self, cursor: str, size: int, *, fold: bool) -> tuple[list[list[Request]], str | None]:
        """Return one page of a window of requests that are read, sorted and folded together, and the next cursor.

        The cursor is that of the window and an offset in it. Windows adjoin, so every request is on some page.
        """
        start, colon, begin = cursor.partition(":")
        begin = begin if colon else "0"
        if not begin.isascii() or not begin.isdigit() or len(begin) > len(str(LOOK)):
            raise ValueError(say("this is not a cursor of this list; start again without one"))
        page = self.page(start, LOOK if self.order else _FOLDED)
        found = list(page.requests)
        if self.order:
            key, place = _KEYS[self.order], {state: at for at, states in enumerate(self._lists) for state in states}
            found.sort(key=lambda request: (place.get(request.state, len(place)), key(request)))
        groups = folded(found) if fold else [[request] for request in found]
        ends = int(begin) + size
        if ends < len(groups):
            return groups[int(begin) : ends], f"{start}:{ends}"
        return groups[int(begin) : ends], None if page.cursor is None else f"{page.cursor}:0"

    def every(self) -> Iterator[Request]:
        return (one for stage in self._stages for one in self._list(stage) if self._matches(stage, one))

    def _page(self, stage: _Stage, *, cursor: str | None, limit: int) -> Page:
        page, looked = page_where(
            partial(self._list, stage), partial(self._matches, stage), cursor=cursor, limit=limit,
            chunk=_CHUNK if self._tests else 0, most=LOOK - self.looked,
        )  # fmt: skip
        self.looked += looked
        return page

    def _list(self, stage: _Stage, *, cursor: str | None = None, limit: int | None = None) -> RequestPage:
        wanted: dict[str, Any] = self._filters if not stage.risk else self._filters | {"risk": stage.risk}
        limit = None if limit is None else min(limit, _MOST_AT_ONCE)
        return self._review.list(state=stage.states, cursor=cursor, limit=limit, newest=self._newest, **wanted)

    def _matches(self, stage: _Stage, request: Request) -> bool:
        is_listed_before = stage.risk == _REST and request.risk in _FIRST
        return not is_listed_before and all(test(request) for test in self._tests)


def _must_be_among(given: str, known: Collection[str], words: str) -> None:
    if given not in known:
        raise ValueError(say(words, given=repr(given), known=", ".join(filter(None, known))))


def _tests(context: RequestContext, asked: dict[str, str]) -> list[Callable[[Request], bool]]:
    """Return the tests for the filters that a store does not have; raises `ValueError` for an invalid field."""
    agent, owner, by, verb, channel = (asked[name] for name in ("agent", "assigned", "by", "verb", "channel"))
    since, until = _day(asked["from"] or "1970-01-01"), _day(asked["to"] or "9000-12-31") + timedelta(days=1)
    if verb:
        _must_be_among(verb, _VERBS, later("%(given)s is not a decision; use one of %(known)s"))
    snoozed, to_me = context.snoozed, context.review.mentions() if asked["mentions"] else ()
    is_of_nobody = owner.casefold() == _NOBODY
    is_about_me = any(asked[name] for name in ("q", "assigned", *_ABOUT_ME))
    tests: tuple[tuple[object, Callable[[Request], bool]], ...] = (
        (agent, lambda request: _is_named(request.requester, agent)),
        (is_of_nobody, lambda request: request.claimed_by is None and request.state is State.PENDING),
        (owner and not is_of_nobody,
         lambda request: request.claimed_by is not None and request.claimed_by.goes_by(owner)),
        (by, lambda request: any(
            _is_named(vote.by, by) for vote in (*request.votes, request.decision) if vote is not None
        )),
        (verb, lambda request: request.decision is not None and request.decision.verb == verb),
        (channel, lambda request: request.decision is not None and channel.casefold() in {
            request.decision.channel.casefold(), channel_name(request.decision.channel).casefold()
        }),
        (asked["grant"], lambda request: request.decision is not None and request.decision.under == asked["grant"]),
        (asked["from"], lambda request: _decided_at(request) >= since),
        (asked["to"], lambda request: _decided_at(request) < until),
        (asked["snoozed"], lambda request: request.id in snoozed),
        # A text search finds snoozed requests too.
        (snoozed and not asked["snoozed"] and not asked["q"], lambda request: request.id not in snoozed),
        (asked["voted"], lambda request: request.id in context.approved),
        # Nobody but others can bring it on. It is found by any filter that asks for it.
        (context.approved and not is_about_me, lambda request: request.id not in context.approved),
        (asked["mentions"], lambda request: request.id in to_me),
        (asked["mine"] and context.stood_in_for, context.has_claimed),
    )  # fmt: skip
    return [test for is_set, test in tests if is_set]


_NEVER = datetime.max.replace(tzinfo=UTC)
_KEYS: dict[str, Callable[[Request], Any]] = {
    "newest": lambda request: -request.created_at.timestamp(),
    "end": lambda request: request.expires_at if request.state is State.PENDING
    else request.approval_expires_at or _NEVER,
    "risk": lambda request: RISKS.index(request.risk) if request.risk in RISKS else len(RISKS),
    "amount": lambda request: amount_of(request).copy_negate(),
}  # fmt: skip


def _day(text: str) -> datetime:
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        day = None
    if day is None or not 1970 <= day.year <= 9000:
        raise ValueError(say("%(given)s is not a date; write it as 2026-01-31", given=repr(text)))
    return day


def _is_named(who: Identity, part: str) -> bool:
    return part.casefold() in who.qualified.casefold()


def _decided_at(request: Request) -> datetime:
    """Return when a request was decided; if it was not, when it expires."""
    return request.expires_at if request.decision is None else request.decision.at


# -- saved views ---------------------------------------------------------------------------------------------------
# A view is the query string of a list under a name: it grants no rights and is not in the journal. Each person's views
# are records of a kind of their own.

_MOST_VIEWS, _LONGEST_NAME, _LONGEST_WORDS = 30, 40, 2_000


def views_of(context: RequestContext) -> list[dict[str, str]]:
    """Return a person's views, sorted by name; none if a record was altered."""
    found: list[dict[str, str]] = []
    with suppress(errors.StoreCorruptError):
        found = [
            {
                "key": record.key, "name": escape(str(record.body.get("name"))),
                "words": _address(_filters_of(str(record.body.get("words")))[0]),  # the query string of the list
            }
            for record in context.settings.store.records(_kind(context), limit=_MOST_VIEWS)
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
    name, (asked, _) = " ".join(storable(context.field("name") or "").split()), _filters_of(context.form.get("in", ""))
    words = _address(asked)
    if not 0 < len(name) <= _LONGEST_NAME or not 0 < len(words) <= _LONGEST_WORDS:
        refusal = later("a view has a name of 1 to %(most)s characters, and a filter; nothing was saved")
        raise HTTPException(400, say(refusal, most=_LONGEST_NAME))
    key = hashlib.sha256(name.casefold().encode()).hexdigest()[:32]  # keys of records are not sealed
    if store.record(kind, key) is None and store.count_records(kind, _MOST_VIEWS) >= _MOST_VIEWS:
        refusal = say("there are %(most)s views already; remove one first. Nothing was saved", most=_MOST_VIEWS)
        raise HTTPException(400, refusal)
    store.keep(Record(kind, key, {"name": name, "words": words}))
    return redirect(f"{context.path()}?{words}")


def _kind(context: RequestContext) -> str:
    return f"view/{context.reviewer.identity.folded}"


# -- the history as a file -----------------------------------------------------------------------------------------
# Both formats have the same columns and mask what a page masks. The file is streamed, so memory does not grow with its
# length. No cell of the CSV can be taken for a formula by the program that opens it.

COLUMNS = (
    "id", "kind", "run", "tool", "call", "arguments", "risk", "requester", "on_behalf_of", "asked_at", "state",
    "decision", "changed", "decided_by", "channel", "decided_at", "seconds_to_decide", "answer", "comment",
    "approved_by",
)  # fmt: skip
_MEDIA = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
_MOST_EXPORTED = 100_000
_BATCH = 500
_CALL_ROOM = 500


def export(context: RequestContext) -> Response:
    """Send the history with the filters of the address as a file, newest first, at most 100,000 requests."""
    kind: str = context.http.path_params["kind"]
    if kind not in _MEDIA:
        raise HTTPException(404, say("the history can be downloaded as csv or jsonl"))
    found = _searched(context, DECIDED, _asked(context), newest=True).every()
    rows = map(_row, islice(found, _MOST_EXPORTED))
    # ASCII only: invisible and bidirectional characters appear as JSON escapes.
    cells = ([_cell(value) for value in row] for row in rows)
    lines = (
        (json.dumps(dict(zip(COLUMNS, row, strict=True)), allow_nan=False) + "\n" for row in rows)
        if kind == "jsonl"
        else map(csv_row, chain([COLUMNS], cells))
    )
    headers = {"content-disposition": f'attachment; filename="history.{kind}"'}
    batches = iter(lambda: "".join(islice(lines, _BATCH)), "")
    return StreamingResponse(batches, media_type=_MEDIA[kind], headers=headers)


def _row(request: Request) -> list[Any]:
    """Return a request as a row of JSON values, in the order of `COLUMNS`."""
    decision, is_call = request.decision, request.kind == "call"
    with speaking(ENGLISH):  # programs read the file
        headline = full_text.headline(request, _CALL_ROOM)
    asked = [
        request.id, request.kind, request.run_id, request.call.tool if is_call else None,
        headline,
        {name: display(tree) for name, tree in request.effective.shown.items()} if is_call else None, request.risk,
        request.requester.qualified, [who.qualified for who in request.acts_for], clock.written(request.created_at),
        str(request.state),
    ]  # fmt: skip
    if decision is None:
        return [*asked, *[None] * (len(COLUMNS) - len(asked))]
    return [
        *asked, decision.verb, is_call and request.edited is not None, decision.by.qualified, decision.channel,
        clock.written(decision.at), round((decision.at - request.created_at).total_seconds(), 3), request.answer,
        decision.comment, [vote.by.qualified for vote in request.votes],
    ]  # fmt: skip


def _cell(value: Any) -> Any:
    match value:
        case bool():
            return "yes" if value else "no"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False) if value else ""
        case _:
            return value
