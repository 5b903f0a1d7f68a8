"""The journal for other systems: a line for each row, as JSON, as CSV for spreadsheets, or as OCSF for a SIEM.

Rows are read page by page. The journal holds no value of an argument, so no export does. OCSF is the class API Activity
(6003) of version 1.3.0. Every line is plain ASCII, or for CSV free of hidden characters, and no cell is a formula.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from importlib import metadata
from typing import Any, Literal, cast, get_args

from sayso import errors
from sayso.audit.verifier import entries
from sayso.clock import instant, microseconds, written
from sayso.model.canonical.tags import dumps
from sayso.model.escaping import csv_row
from sayso.model.journal import KINDS, Entry
from sayso.model.reviewer import PROGRAM
from sayso.stores.base import Store

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
    """Yield the lines of an export, each with its end.

    Args:
        since: Only rows of this instant or later.
        until: Only rows before this instant.

    Raises:
        StoreCorruptError: A row holds what is never written.
    """
    line = _LINES[form]
    first, end = (None if at is None else microseconds(at) for at in (since, until))
    if form == "csv":
        yield csv_row(_CELLS)
    tools, run = dict[str, str](), ""
    for entry in entries(store, run_id=run_id):
        if entry.run_id != run:  # a request's rows all stand in one chain
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
                f"row {entry.seq!r} of run {entry.run_id!r} holds what is never written; `sayso log --verify` says more"
            ) from error


def _detail(entry: Entry) -> dict[str, Any]:
    if tuple(map(type, entry)) != KINDS:
        raise TypeError("a value of another kind")
    found: Any = json.loads(entry.detail)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return a row of the journal as JSON values; a `detail` that was altered so that it is no JSON stays a text."""
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
