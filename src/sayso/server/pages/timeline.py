"""The timeline of a request: its rows of the journal as sentences.

The page of the run, `sayso show` and `sayso log` print the rows themselves (`sayso.view.document.event_rows`), with
every detail. A row that this page does not know, or that was altered, is shown as there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from sayso.clock import instant, written
from sayso.model.journal import Entry
from sayso.model.reviewer import LOCAL
from sayso.model.teamwork import COMMENTED
from sayso.model.text import escape, later, say, say_n
from sayso.view.document import event_rows, moment
from sayso.view.summary import channel_name, token

_OF_PROGRAM = frozenset({"program", "clock", "sweep", "grant", "policy"})  # channels that no person used
_SENTENCES = {
    "asked": later("%(who)s asked"), "voted": later("%(who)s approved"), "approved": later("%(who)s approved"),
    "rejected": later("%(who)s rejected it"), "feedback": later("%(who)s sent it back"),
    "answered": later("%(who)s answered"), "cancelled": later("%(who)s cancelled the run"),
    "claimed": later("%(who)s claimed it"), "assigned": later("%(who)s assigned it to %(to)s"),
    "released": later("%(who)s unclaimed it"), "undone": later("%(who)s undid the approval; it is pending again"),
    "escalated": later("Nobody decided in time, so %(to)s may decide, too"),
    "returned": later("It is pending again"), "withdrawn": later("The program withdrew it"),
    "started": later("The call started"), "suspended": later("The call stopped to ask something else"),
    "done": later("The call is done"), "failed": later("The call failed"),
    "unknown": later("The outcome of the call is unknown"),
    "cleared": later("The program may ask for the same again"), "purged": later("The arguments were removed"),
}  # fmt: skip
_CHANGED = later("%(who)s approved with changes")
_BY_RULE = {
    "grant": later("A grant let it start without asking"), "policy": later("A budget let it start without asking"),
}  # fmt: skip
_ENDS = {
    "expires_at": later("%(who)s extended it"), "approval_expires_at": later("%(who)s extended the approval"),
    "request": later("It expired, and nobody decided"),
    "approval": later("The approval expired before the call started"),
}  # fmt: skip
_FREED = later("%(who)s unclaimed it for %(whom)s")


class Happened(NamedTuple):
    """One sentence of a timeline.

    Attributes:
        at: When, in ISO 8601; `utc` is the same for people who have no scripts.
        text: The sentence, escaped.
        channel: By which channel a person did it; empty for what a program or the clock did.
        until: For an extension, the new end in ISO 8601.
        words: What the person or program wrote, escaped; of several lines.
    """

    at: str
    utc: str
    text: str
    channel: str = ""
    until: str = ""
    words: str = ""


def timeline(entries: Iterable[Entry]) -> list[Happened]:
    """Return what happened to a request, oldest first, without the comments, which the page shows apart."""
    return [_happened(entry) for entry in entries if entry.event != COMMENTED]


def last_undone(entries: Iterable[Entry]) -> Happened | None:
    """Return the undoing of an approval if nobody has decided since."""
    last = None
    for entry in entries:
        if entry.event in {"undone", "voted", "approved", "rejected", "feedback", "cancelled"}:
            last = entry
    return None if last is None or last.event != "undone" else _happened(last)


def _happened(entry: Entry) -> Happened:
    try:
        at, detail = instant(entry.at), json.loads(entry.detail)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return _as_row(entry)
    sentence = _sentence(entry, cast("dict[str, Any]", detail)) if isinstance(detail, dict) else None
    if sentence is None:
        return _as_row(entry)
    names: Mapping[str, Any] = cast("dict[str, Any]", detail)
    words = names.get("comment") or names.get("reason")
    return Happened(
        written(at), moment(at), sentence, "" if entry.channel in _OF_PROGRAM else channel_name(entry.channel),
        _moment(names.get("until")), escape(words, block=True) if isinstance(words, str) else "",
    )  # fmt: skip


def _sentence(entry: Entry, detail: Mapping[str, Any]) -> str | None:
    who = _name(entry.by)
    parts: list[str] = []
    match entry.event:
        case "approved" if entry.channel in _BY_RULE:
            parts.append(say(_BY_RULE[entry.channel]))
        case "approved" | "voted" if detail.get("edited") is True:
            parts.append(say(_CHANGED, who=who))
        case "released" if isinstance(detail.get("claimed_by"), str):
            parts.append(say(_FREED, who=who, whom=_name(detail["claimed_by"])))
        case "extended" | "expired":
            form = _ENDS.get(str(detail.get("what")))
            if form is None:
                return None
            parts.append(say(form, who=who))
        case "resolved":
            happened = later("%(who)s recorded that the call happened")
            not_happened = later("%(who)s recorded that the call did not happen")
            parts.append(say(happened if detail.get("happened") is True else not_happened, who=who))
        case event if event in _SENTENCES:
            to = detail.get("to")
            parts.append(say(_SENTENCES[event], who=who, to=_name(to) if isinstance(to, str) else ""))
        case _:
            return None
    parts += _more(entry, detail)
    return "; ".join(parts)


def _more(entry: Entry, detail: Mapping[str, Any]) -> list[str]:
    """Return what a sentence goes on to say."""
    found: list[str] = []
    missing, attempt = detail.get("missing"), detail.get("attempt")
    if entry.event == "voted" and isinstance(missing, int):
        found.append(say_n("%(num)s more reviewer must approve", "%(num)s more reviewers must approve", missing))
    if isinstance(detail.get("on_behalf_of"), str):
        found.append(say("on behalf of %(who)s", who=", ".join(map(_name, detail["on_behalf_of"].split(", ")))))
    if detail.get("again") is True:
        found.append(say("although its effect has already happened or is pending"))
    if isinstance(detail.get("votes_reset"), int):
        found.append(say("the approvals before no longer count"))
    if entry.event == "started" and isinstance(attempt, int) and attempt > 1:
        found.append(say("attempt %(attempt)s", attempt=attempt))
    if detail.get("may_try_again") is True:
        found.append(say("it may start again"))
    return found


def _name(identity: str) -> str:
    return token(identity.removeprefix(f"{LOCAL}:").removeprefix("program:"))


def _moment(text: object) -> str:
    with suppress(TypeError, ValueError):
        return written(datetime.fromisoformat(cast("str", text)).astimezone(UTC))
    return ""


def _as_row(entry: Entry) -> Happened:
    (row,) = event_rows([entry])
    at, _, rest = row.partition("  ")
    return Happened(at.replace(" ", "T"), at, " ".join(rest.split()))
