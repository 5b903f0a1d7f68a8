"""Exports of the journal for other systems, and purges of old content from the store.

An export has one line for each row, as JSON, as CSV for spreadsheets, or as OCSF for a SIEM. Rows are read page by
page. The journal contains no argument values, so neither does an export. OCSF rows use the class API Activity (6003) of
version 1.3.0. Lines are ASCII, or for CSV free of hidden characters, and no cell is a formula.

A purge removes the content of requests that ended before a given time, the steps of ended runs, and old absences. Each
request is purged in its own transaction, which adds a row to the journal; existing rows stay and still verify. Finally
the removed content is scrubbed from the files. Requests that are pending, approved, running or have an unknown outcome
are never purged, and neither are requests of a run that has not ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from importlib import metadata
from typing import Any, Literal, NamedTuple, cast, get_args

from sayso import errors
from sayso.audit.verifier import entries
from sayso.clock import instant, microseconds, written
from sayso.model.canonical.json_tree import dumps
from sayso.model.journal import KINDS, Entry, ended_at
from sayso.model.request import FINAL, LIVE, Request
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.run import RunState
from sayso.model.text import csv_row
from sayso.stores.base import Filter, Store
from sayso.stores.filter import RunFilter
from sayso.stores.review import requests_in, rows_of

Format = Literal["jsonl", "csv", "ocsf"]
FORMATS: tuple[str, ...] = get_args(Format)

_OCSF = "1.3.0"
_CREATE, _UPDATE, _DELETE, _OTHER = 1, 3, 4, 99
_ACTIVITIES = {
    "asked": _CREATE, "purged": _DELETE, "allowed": _OTHER, "denied": _OTHER, "late": _OTHER, "checkpoint": _OTHER,
    "token_made": _CREATE, "token_revoked": _DELETE,
}  # fmt: skip
_CAPTIONS = {_CREATE: "Create", _UPDATE: "Update", _DELETE: "Delete", _OTHER: "Other"}
_STATUSES = {"done": (1, "Success"), "failed": (2, "Failure"), "denied": (2, "Failure"), "unknown": (0, "Unknown")}
_INFORMATIONAL, _MEDIUM = 1, 3
_CELLS = ("run", "seq", "at", "request", "event", "by", "channel", "tool", "detail", "link")


def exported(
    store: Store, form: Format, *, since: datetime | None = None, until: datetime | None = None,
    run_id: str | None = None,
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of an export, each with its line ending.

    Args:
        since: Only rows at or after this time.
        until: Only rows before this time.

    Raises:
        StoreCorruptError: A row is malformed.
    """
    line = _LINES[form]
    first, end = (None if at is None else microseconds(at) for at in (since, until))
    if form == "csv":
        yield csv_row(_CELLS)
    tools, run = dict[str, str](), ""
    for entry in entries(store, run_id=run_id):
        if entry.run_id != run:  # all rows of a request are in one chain
            tools, run = {}, entry.run_id
        try:
            detail = _detail(entry)
            tool = detail.get("tool")
            if not isinstance(tool, str):
                tool = tools.get(entry.request_id, "")
            elif entry.request_id:
                tools[entry.request_id] = tool
            if (first is None or entry.at >= first) and (end is None or entry.at < end):
                yield line(entry, detail, tool)
        except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as error:
            raise errors.StoreCorruptError(
                f"row {entry.seq!r} of run {entry.run_id!r} has content that sayso never writes; `sayso log --verify`"
                " says more"
            ) from error


def _detail(entry: Entry) -> dict[str, Any]:
    if tuple(map(type, entry)) != KINDS:
        raise TypeError("a value of another kind")
    found: Any = json.loads(entry.detail)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return a row of the journal as JSON values; an altered `detail` that is not JSON stays a string."""
    try:
        detail = json.loads(entry.detail)
    except ValueError:
        detail = entry.detail
    return {
        "run": entry.run_id, "seq": entry.seq, "at": written(instant(entry.at)), "request": entry.request_id or None,
        "event": entry.event, "by": entry.by, "channel": entry.channel, "detail": detail, "link": entry.link,
    }  # fmt: skip


def _as_json(entry: Entry, _: dict[str, Any], tool: str) -> str:
    return dumps(entry_document(entry) | {"tool": tool or None}) + "\n"


def _as_csv(entry: Entry, _: dict[str, Any], tool: str) -> str:
    at = written(instant(entry.at))
    return csv_row((*entry[:2], at, *entry[3:7], tool, *entry[7:]))


def _as_ocsf(entry: Entry, detail: dict[str, Any], tool: str) -> str:
    activity = _ACTIVITIES.get(entry.event, _UPDATE)
    status, word = _STATUSES.get(entry.event, (None, None))
    issuer, _, subject = entry.by.partition(":")
    who = {"app_name": subject} if issuer == PROGRAM else {"user": {"name": subject, "domain": issuer, "uid": entry.by}}
    found: dict[str, Any] = {
        "class_uid": 6003, "class_name": "API Activity", "category_uid": 6, "category_name": "Application Activity",
        "activity_id": activity, "activity_name": _CAPTIONS[activity], "type_uid": 600_300 + activity,
        "time": entry.at // 1000,
        "severity_id": _MEDIUM if entry.event == "unknown" else _INFORMATIONAL,
        "message": f"{tool or 'request' if entry.request_id else 'journal'}: {entry.event}",
        "metadata": {
            "version": _OCSF, "product": {"name": "sayso", "vendor_name": "sayso", "version": _own_version()},
            "uid": entry.link, "sequence": entry.seq, "correlation_uid": entry.run_id, "event_code": entry.event,
        },
        "actor": who,
        "api": {
            "operation": tool or entry.event, "service": {"name": "sayso"},
            "request": {"uid": entry.request_id or entry.run_id},
        },
        "src_endpoint": {"name": entry.channel},
        "unmapped": {"detail": detail},
    }  # fmt: skip
    if status is not None:
        found |= {"status_id": status, "status": word}
    return dumps(found) + "\n"


@cache
def _own_version() -> str:
    return metadata.version("sayso")


_LINES: dict[str, Callable[[Entry, dict[str, Any], str], str]] = {
    "jsonl": _as_json, "csv": _as_csv, "ocsf": _as_ocsf,
}  # fmt: skip


_PAGE = 200
_WORDS = ('"comment":"', '"reason":"')


class Purged(NamedTuple):
    """The result of a purge, or of a dry run.

    Attributes:
        requests: The number of purged requests.
        runs: The number of purged runs.
        live: The number of requests skipped because they are not final.
        needed: The number of final requests skipped because their run has not ended.
        words: The number of journal rows that keep people's words about these requests; rows are never rewritten.
        is_scrubbed: Whether no purged content remains in the files.
    """

    requests: int
    runs: int
    live: int
    needed: int
    words: int
    is_scrubbed: bool


def purge(store: Store, *, before: datetime, by: Identity, channel: str, is_dry: bool = False) -> Purged:
    """Remove the content of requests and runs that ended before a time; with `is_dry`, only count.

    Raises:
        StoreError: The store failed. What was already removed stays removed, and the next purge continues.
    """
    if not is_dry:
        store.sweep()
        store.drop_delegations(before=min(before, store.now()))
    requests = needed = words = 0
    for request in requests_in(store, Filter(states=FINAL)):
        if request.purged_at is not None or ended_at(request) >= before:
            continue
        if _is_needed(store, request.run_id) if is_dry else not _is_gone(store, request, before, by, channel):
            needed += 1
            continue
        requests += 1
        rows = rows_of(store, run_id=request.run_id, request_id=request.id)
        words += sum(any(word in row.detail for word in _WORDS) for row in rows)
    runs = 0
    for run_id in list(_old_runs(store, before)):
        runs += 1
        if not is_dry:
            store.purge_run(run_id, by, before=before, channel=channel)
    live = store.count(Filter(states=LIVE))
    return Purged(requests, runs, live, needed, words, is_dry or store.scrub())


def _is_gone(store: Store, request: Request, before: datetime, by: Identity, channel: str) -> bool:
    try:
        store.purge(request.id, by, before=before, channel=channel)
    except errors.PurgeRefusedError:  # only the store knows, inside the transaction, what is still needed
        return False
    return True


def _is_needed(store: Store, run_id: str) -> bool:
    try:
        return store.get_run(run_id).run.state is not RunState.ENDED
    except errors.RunNotFoundError:
        return False


def _old_runs(store: Store, before: datetime) -> Iterator[str]:
    cursor: str | None = None
    while True:
        found, cursor = store.runs(RunFilter(frozenset({RunState.ENDED})), cursor=cursor, limit=_PAGE)
        yield from (run.id for run in found if run.updated_at < before and store.get_run(run.id).steps)
        if cursor is None:
            return
