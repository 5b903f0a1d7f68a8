"""What leaves a store for good: exports of the journal, receipts of single requests, and purged content.

An export has one line for each row, as JSON, as CSV for spreadsheets, or as OCSF for a SIEM. Rows are read page by
page. The journal contains no argument values, so neither does an export. OCSF rows use the class API Activity (6003) of
version 1.3.0. Lines are ASCII, or for CSV free of hidden characters, and no cell is a formula.

A receipt proves what happened to one request to somebody without access to the store: what was shown, who decided what,
and the outcome. It includes the rows of the journal, from the request's first to its last. `verify_receipt` compares
the stated times, names, fingerprints, comments and states with these rows. The rows hold only a digest of what was
shown. The other facts (risk, rule, prompt, context, needed reviewers, answer, error, result) are covered only by the
receipt's digest and signature.

A purge removes the content of requests that ended before a given time, the steps of ended runs, and ended delegations.
Each request is purged in its own transaction, which adds a row to the journal; existing rows stay and still verify.
Finally the removed content is scrubbed from the files. Requests that are pending, approved, running or have an unknown
outcome are never purged, and neither are requests of a run that has not ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from sayso import errors
from sayso.audit import entries, verify
from sayso.audit.checkpoint import first_of, history
from sayso.audit.signing import SignedDocument, Signer, document_text, read_document
from sayso.clock import instant, microseconds, written
from sayso.model import canonical
from sayso.model.canonical.json_tree import dumps
from sayso.model.ids import shown_digest
from sayso.model.journal import KINDS, Entry, Trail, chained, ended_at, first_link, showable
from sayso.model.request import FINAL, LIVE, Call, Question, Request
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
            detail = _entry_detail(entry)
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


def _entry_detail(entry: Entry) -> dict[str, Any]:
    if tuple(map(type, entry)) != KINDS:
        raise TypeError("a value of another kind")
    found: Any = json.loads(entry.detail)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return a row of the journal as JSON values; an altered `at` or `detail` without such a value stays a string."""
    entry = showable(entry)
    try:
        at = written(instant(entry.at))
    except (OverflowError, TypeError):
        at = str(entry.at)
    try:
        detail = json.loads(entry.detail)
    except (RecursionError, TypeError, ValueError):
        detail = entry.detail
    return {
        "run": entry.run_id, "seq": entry.seq, "at": at, "request": entry.request_id or None,
        "event": entry.event, "by": entry.by, "channel": entry.channel, "detail": detail, "link": entry.link,
    }  # fmt: skip


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
    "jsonl": lambda entry, _, tool: dumps(entry_document(entry) | {"tool": tool or None}) + "\n",
    "csv": lambda entry, _, tool: csv_row((*entry[:2], written(instant(entry.at)), *entry[3:7], tool, *entry[7:])),
    "ocsf": _as_ocsf,
}


_PAGE = 200
_COMMENT_FIELDS = ('"comment":"', '"reason":"')


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
        if _purge_unless_needed(store, request, before, by, channel, is_dry=is_dry):
            needed += 1
            continue
        requests += 1
        rows = rows_of(store, run_id=request.run_id, request_id=request.id)
        words += sum(any(word in row.detail for word in _COMMENT_FIELDS) for row in rows)
    runs, cursor = list[str](), None
    while True:
        found, cursor = store.runs(RunFilter(frozenset({RunState.ENDED})), cursor=cursor, limit=_PAGE)
        runs += [run.id for run in found if run.updated_at < before and store.get_run(run.id).steps]
        if cursor is None:
            break
    if not is_dry:
        for run_id in runs:
            store.purge_run(run_id, by, before=before, channel=channel)
    live = store.count(Filter(states=LIVE))
    return Purged(requests, len(runs), live, needed, words, is_dry or store.scrub())


def _purge_unless_needed(
    store: Store, request: Request, before: datetime, by: Identity, channel: str, *, is_dry: bool
) -> bool:
    """Purge a request, or only look; return whether its run still needs it."""
    try:
        if is_dry:
            return store.get_run(request.run_id).run.state is not RunState.ENDED
        store.purge(request.id, by, before=before, channel=channel)
    except errors.PurgeRefusedError:  # only the store knows, inside the transaction, what is still needed
        return True
    except errors.RunNotFoundError:
        pass
    return False


_KIND = "receipt"
_LIMIT = 64 << 20
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_VERBS = {
    "approved": "approve", "rejected": "reject", "feedback": "feedback", "answered": "answer", "cancelled": "cancel",
    "withdrawn": "withdraw",
}  # fmt: skip
_REVERSED = frozenset({"returned", "undone"})
_AFTERWARDS = frozenset({"cleared", "commented", "extended", "purged"})


# -- writing ---------------------------------------------------------------------------------------------------------


def receipt_text(store: Store, request_id: str, signer: Signer | None = None) -> str:
    """Return the text of a request's receipt; raises the same errors as `receipt_of`."""
    return document_text(_KIND, receipt_of(store, request_id), signer)


def receipt_of(store: Store, request_id: str) -> dict[str, Any]:
    """Return the unsigned body of a receipt, as JSON values.

    Raises:
        RequestNotFoundError: There is no such request.
        EvidenceError: The request is not final, its content was purged, or its run or the checkpoints do not verify.
    """
    run_id, past = store.get(request_id).run_id, history(store)
    broken = [*past.broken, *(found.reason for found in verify(store, run_id=run_id, known=past.known).broken)]
    if broken:
        raise errors.EvidenceError(
            f"the journal of run {run_id!r} is broken: {first_of(broken)}; see `sayso log --verify`"
        )
    request = store.settle(request_id)
    if not request.is_final:
        raise errors.EvidenceError(f"{request_id} is {request.state}: a receipt can be made once the request has ended")
    if request.purged_at is not None:
        raise errors.EvidenceError(
            f"the content of {request_id} was removed on {request.purged_at:%Y-%m-%d}: make a receipt before a purge"
        )
    try:
        body = _body(store, request)
        _check(body)
    except _DAMAGED as error:
        raise errors.EvidenceError(
            f"the rows of {request_id} do not have the expected content ({type(error).__name__}), so there is nothing"
            " to prove; see `sayso log --verify`"
        ) from error
    return body


def _body(store: Store, request: Request) -> dict[str, Any]:
    own = list(rows_of(store, run_id=request.run_id, request_id=request.id))
    facts, first, last = _facts(own), own[0].seq, own[-1].seq
    rows = list(
        takewhile(
            lambda row: row.seq <= last,
            rows_of(store, run_id=request.run_id, after=(request.run_id, max(first - 2, 0))),
        )
    )
    before = rows.pop(0).link if first > 1 else first_link(request.run_id)
    execution, decision = request.execution, request.decision
    return {
        "format": "sayso/receipt/1",
        "request": facts["request"] | {
            "risk": request.risk, "rule": request.rule, "prompt": request.prompt, "description": request.description,
            "context": request.context,
            "needs": {"count": request.quorum.count, "roles": sorted(request.quorum.roles)},
        },
        "shown": _shown(request.subject),
        "edited": None if request.edited is None else _shown(request.edited),
        "votes": facts["votes"],
        "decision": facts["decision"] and facts["decision"] | {
            "comment": None if decision is None else decision.comment, "answer": request.answer,
        },
        "outcome": facts["outcome"] | {
            "state": str(request.state),
            "returned": None if execution is None or execution.result is None
            else cast("Any", canonical.display(canonical.load(execution.result)))["result"],
            "error": None if execution is None else execution.error,
        },
        "chain": {"before": before, "rows": [list(row) for row in rows]},
    }  # fmt: skip


def _shown(subject: Call | Question) -> dict[str, Any]:
    if isinstance(subject, Question):
        return {"question": subject.text, "text": subject.text}
    return {"arguments": subject.arguments, "text": subject.shown_text}


def _facts(own: list[Entry]) -> dict[str, Any]:
    """Return the facts that the rows of a request record, by the part of the receipt that states them."""
    asked, first = own[0], _detail(own[0])
    ended = _decision_row(own)
    started = [row for row in own if row.event == "started"]
    resolved = [row for row in own if row.event == "resolved"]
    return {
        "request": {
            "id": asked.request_id, "kind": first["kind"], "run": asked.run_id, "fingerprint": first["fingerprint"],
            "tool": first.get("tool"), "requester": asked.by, "on_behalf_of": first.get("on_behalf_of"),
            "asked_at": _at(asked),
        },
        "votes": [
            {**_decision_facts(row), "edited": bool(_detail(row).get("edited"))} for row in own if row.event == "voted"
        ],
        "decision": None if ended is None else {"verb": _VERBS[ended.event], **_decision_facts(ended)},
        "outcome": {
            "started_at": _at(started[-1]) if started else None,
            "at": _at([row for row in own if row.event not in _AFTERWARDS][-1]),
            "resolved_by": resolved[-1].by if resolved else None,
        },
    }  # fmt: skip


def _decision_row(own: list[Entry]) -> Entry | None:
    """Return the row of the decision; None if there is none, or it was undone or returned."""
    last = next((row for row in reversed(own) if row.event in _VERBS or row.event in _REVERSED), None)
    return None if last is None or last.event in _REVERSED else last


def _decision_facts(row: Entry) -> dict[str, Any]:
    return {"by": row.by, "channel": row.channel, "at": _at(row), "fingerprint": _detail(row).get("fingerprint")}


def _detail(row: Entry) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(row.detail))


def _at(row: Entry) -> str:
    return written(instant(row.at))


# -- verifying -------------------------------------------------------------------------------------------------------


def verify_receipt(source: bytes | Path, *, trusted: str | None = None) -> SignedDocument:
    """Parse and verify a receipt. This needs no store.

    Args:
        source: The whole file, or its path.
        trusted: The public key that must have signed it; None accepts the key that the receipt names.

    Raises:
        EvidenceError: It cannot be read, is not a receipt, was changed or truncated, contradicts itself, or is not
            signed by that key.
    """
    found = read_document(_KIND, source, limit=_LIMIT, trusted=trusted)
    try:
        _check(found.body)
    except _DAMAGED as error:
        raise errors.EvidenceError(
            f"the receipt does not have the content of a receipt ({type(error).__name__})"
        ) from error
    return found


def _check(body: dict[str, Any]) -> None:
    """Check that the rows form a chain and agree with what the receipt states."""
    own = _own_rows(body)
    _check_shown(body, own)
    trail = Trail()
    for row in own:
        trail, problem = trail.after(row.event, row.detail)
        if problem is not None:
            raise errors.EvidenceError(f"row {row.seq} in the receipt is not possible there: the request was {problem}")
    if body["outcome"]["state"] not in trail.states:
        raise errors.EvidenceError("outcome.state of the receipt does not match its rows")
    facts = _facts(own)
    ended = _decision_row(own)
    if ended is not None and ended.event != "withdrawn":
        detail = _detail(ended)
        comment = detail.get("comment", detail.get("reason"))
        if not str(comment).startswith("sealed:"):
            facts["decision"]["comment"] = comment
    for part, fact in facts.items():
        found = body[part]
        if isinstance(fact, dict):
            names = cast("dict[str, Any]", fact)
            found = {name: found[name] for name in names}
        if json.dumps(found) != json.dumps(fact):
            raise errors.EvidenceError(f"{part} of the receipt does not match its rows")


def _own_rows(body: dict[str, Any]) -> list[Entry]:
    """Return the rows of the request, after checking that each row links to the one before."""
    rows = [Entry(*row) for row in body["chain"]["rows"]]
    run_id, before = body["request"]["run"], body["chain"]["before"]
    if rows[0].seq == 1 and before != first_link(run_id):
        raise errors.EvidenceError("the rows in the receipt do not connect to the beginning of their chain")
    for place, row in enumerate(rows, rows[0].seq):
        if (row.run_id, row.seq) != (run_id, place) or chained(before, *row[:-1]) != row:
            raise errors.EvidenceError(f"row {place} in the receipt does not follow from the one before")
        before = row.link
    own = [row for row in rows if row.request_id == body["request"]["id"]]
    if not own or own[0] != rows[0] or own[0].event != "asked":
        raise errors.EvidenceError("the rows in the receipt do not begin where its request was asked")
    return own


def _check_shown(body: dict[str, Any], own: list[Entry]) -> None:
    details = [_detail(row) for row in own]
    # A returned edit was not the call shown last, and after an undone approval an earlier edit may be the current one.
    back = max(
        (n for n, row in enumerate(own) if row.event == "returned" or (row.event == "undone" and details[n])), default=0
    )
    first, *edits = [detail["shown"] for n, detail in enumerate(details) if "shown" in detail and not 0 < n < back]
    wanted = {"shown": first}
    if edits or body["edited"] is not None:
        wanted["edited"] = edits[-1] if edits else None
    for part, digest in wanted.items():
        found, text = body[part], body[part]["text"]
        if shown_digest(text) != digest:
            raise errors.EvidenceError(f"{part} of the receipt does not match its rows")
        expected = {"question": text} if "question" in found else {"arguments": canonical.display(canonical.load(text))}
        if json.dumps({**expected, "text": text}) != json.dumps(found):
            raise errors.EvidenceError(f"{part} of the receipt does not match its text")
