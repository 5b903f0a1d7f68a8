"""The card of a request: what people read of it before a decision and after, on every surface that shows lines of text.

Here is which facts are said, in which order and in which words; values are drawn by `sayso.model.show`, and surfaces
add colour and commands. Invariant: nothing that came from a program or a person leaves here unescaped, the arguments
come before the program's own words, and these stand under a label that says whose they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sayso.model import canonical
from sayso.model.call import Call, Question
from sayso.model.decision import Decision
from sayso.model.duration import ago, left
from sayso.model.literal import brief, word
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.show import Change, changes, escape, line, lines, warnings
from sayso.model.tags import MASK

__all__ = [
    "SHORT",
    "ask_rows",
    "cautions",
    "changed",
    "circumstances",
    "columned",
    "columns",
    "decided",
    "headline",
    "is_random",
    "is_whole",
    "name_of",
    "outcome_rows",
    "padded",
    "short",
    "standing",
    "subject_rows",
    "time_left",
    "words_rows",
]

SHORT = len("rq_") + 8
_COMMENT_ROOM = 300
_NAME_ROOM = 20
_RANDOM_RUN = re.compile("run_[0-9a-z]{26,32}")


def short(request_id: str) -> str:
    """Return the beginning of an id that people type; commands take it where it fits no other."""
    return escape(request_id[:SHORT])


def is_random(run_id: str) -> bool:
    """Say whether nobody named this run, so that no later process can be in it again."""
    return _RANDOM_RUN.fullmatch(run_id) is not None


def time_left(end: datetime, now: datetime) -> str:
    """Return how long it is until `end`, so that 24 hours that have just begun do not read as 23h 59m."""
    return left(end + timedelta(milliseconds=500), now) if now < end else left(end, now)


def name_of(who: Identity) -> str:
    """Return how a person or program is named to people."""
    return escape(str(who))


def headline(request: Request, limit: int = 100) -> str:
    """Return the call that would run, or the question, on one line of about `limit` characters."""
    subject = request.subject
    if isinstance(subject, Question):
        return f"question {brief(subject.text, max(limit - 9, 20))}"
    return line(subject.name, request.effective.shown, max(limit, 60))


def columns(text: str) -> int:
    """Return how many columns of a terminal an escaped text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(one) in "WF" else 0 if unicodedata.combining(one) else 1 for one in text
    )


def padded(text: str, width: int) -> str:
    """Return an escaped text with spaces behind it up to `width` columns."""
    return text + " " * (width - columns(text))


def columned(named: list[tuple[str, str]], indent: int = 2) -> list[str]:
    """Return names and their texts in two columns; the lines of a longer text hang in the second."""
    pad = max((columns(name) for name, _ in named if columns(name) <= _NAME_ROOM), default=0)
    rows: list[str] = []
    for name, text in named:
        first, *rest = text.split("\n")
        if columns(name) > _NAME_ROOM:
            rows.append(f"{'':{indent}}{name}")
            name = ""  # noqa: PLW2901  the value follows on a line of its own
        rows.append(f"{'':{indent}}{padded(name, pad)}  {first}")
        rows += [f"{'':{indent + pad + 2}}{row}" for row in rest]
    return rows


def subject_rows(request: Request, *, width: int, full: bool = False) -> list[str]:
    """Return what would run, drawn from its bound arguments, or what is asked; `width` is the whole line's."""
    subject, inside = request.subject, max(width - _NAME_ROOM - 6, 40)
    if isinstance(subject, Question):
        return columned(lines({"question": subject.text}, width=inside, full=full))
    call = request.effective
    named = lines(call.shown, width=inside, full=full)
    rows = [f"  {word(call.name, 60)}{_from(call)}"]
    return rows + (columned(named, 4) if named else ["    (no arguments)"])


def _from(call: Call) -> str:
    return f"   ({word(call.tool, 80)})"


def is_whole(request: Request) -> bool:
    """Say whether the usual view of a request leaves nothing out of its call or question."""
    return subject_rows(request, width=100) == subject_rows(request, width=100, full=True)


def words_rows(request: Request, *, width: int, full: bool = False) -> list[str]:
    """Return the program's own words about the request, under a label that says whose they are."""
    said: dict[str, Any] = {
        "prompt": request.prompt,
        "description": request.description,
        "held by": request.rule,
        "context": request.context,
    }
    told = {name: words for name, words in said.items() if words is not None}
    if not told:
        return []
    inside = max(width - _NAME_ROOM - 6, 40)
    return ["  the program says, unverified:", *columned(lines(told, width=inside, full=full), 4)]


def cautions(request: Request) -> list[str]:
    """Return what about a request may deceive the eye, one sentence each."""
    subject = request.subject
    named: dict[str, Any] = {
        "run": request.run_id,
        "requester": str(request.requester),
        "risk": request.risk,
        "prompt": request.prompt,
        "description": request.description,
        "rule": request.rule,
        "context": request.context,
    }
    if isinstance(subject, Call):
        named |= {"function": subject.tool}
        found = [f"argument {said}" for said in warnings(request.effective.shown)]
    else:
        found = [f"the question {said}" for said in warnings(subject.text)]
    return found + [f"the {name} {said}" for name, text in named.items() if text for said in warnings(text)]


def circumstances(request: Request, now: datetime) -> list[str]:
    """Return who asked, when and in which run, and what an approval needs."""
    asked = f"asked by {name_of(request.requester)} {ago(request.created_at, now)}, run {word(request.run_id, 60)}"
    if request.on_behalf_of is not None:
        asked += f", on behalf of {name_of(request.on_behalf_of)}"
    rows = [f"  {asked}"]
    if request.risk is not None:
        rows.append(f"  risk: {word(request.risk, 60)}")
    needs = request.quorum
    if needs.count > 1 or needs.roles:
        roles = " or ".join(word(role, 40) for role in sorted(needs.roles))
        people = "1 reviewer" if needs.count == 1 else f"{needs.count} different reviewers"
        rows.append(f"  needs {people}{f' with the role {roles}' if roles else ''}")
    votes = request.votes if request.state is State.PENDING else ()
    rows += [f"  approved so far: {_by(vote, now)}" for vote in votes]
    if request.claimed_by is not None and request.claimed_at is not None:
        rows.append(f"  claimed by {name_of(request.claimed_by)} {ago(request.claimed_at, now)}")
    return rows


def ask_rows(request: Request, now: datetime, *, width: int, full: bool = False) -> list[str]:
    """Return all that somebody who decides has to see: the call, warnings, the program's words, the circumstances."""
    end = f"  expires {time_left(request.expires_at, now)}; no answer is a no" if request.state is State.PENDING else ""
    return [
        *subject_rows(request, width=width, full=full),
        *(f"  warning: {said}" for said in cautions(request)),
        *words_rows(request, width=width, full=full),
        *circumstances(request, now),
        *([end] if end else []),
    ]


# -- what became of it -----------------------------------------------------------------------------------------


def _by(decision: Decision, now: datetime) -> str:
    return f"{name_of(decision.by)} ({escape(decision.channel)}, {ago(decision.at, now)})"


def decided(request: Request, now: datetime) -> str:
    """Return who decided what, when and through which channel; or that nobody did."""
    decision = request.decision
    if request.state is State.EXPIRED:
        end = request.expires_at if request.approval_expires_at is None else request.approval_expires_at
        what = "nobody decided" if decision is None else f"approved by {_by(decision, now)} and not used in time"
        return f"expired {ago(end, now)}; {what}"
    if decision is None:
        return str(request.state)
    match decision.verb:
        case "approve":
            verb = "approved" if request.edited is None else "approved with changes"
        case "feedback":
            verb = "sent back with feedback"
        case "answer":
            verb = f"answered {_answer(decision)}"
        case "reject" | "cancel":
            verb = str(request.state)
    words = "" if decision.comment is None else f": {brief(decision.comment, _COMMENT_ROOM)}"
    return f"{verb} by {_by(decision, now)}{words}"


def standing(request: Request, now: datetime) -> str:
    """Return where a request stands, in one line."""
    if request.state is State.PENDING:
        missing = f", {_more(request)}" if request.votes else ""
        return f"pending, expires {time_left(request.expires_at, now)}{missing}"
    is_granted = (
        request.state is not State.EXPIRED and request.decision is not None and request.decision.verb == "approve"
    )
    return decided(request, now) + (f"; {_progress(request, now)}" if is_granted else "")


def _answer(decision: Decision) -> str:
    return brief(canonical.load(decision.answer or "{}").get("answer"), _COMMENT_ROOM)


def _more(request: Request) -> str:
    count = request.missing_votes
    return f"{count} more reviewer{'' if count == 1 else 's'} must approve"


def _progress(request: Request, now: datetime) -> str:
    execution = request.execution
    end = request.approval_expires_at
    match request.state:
        case State.APPROVED:
            what = (
                "not started yet" if execution is None else f"attempt {execution.attempt} failed, it may be tried again"
            )
            return what if end is None else f"{what}, the approval ends {time_left(end, now)}"
        case State.RUNNING if execution is not None:
            return f"running, started {ago(execution.started_at, now)} (attempt {execution.attempt})"
        case State.UNKNOWN if execution is not None:
            return f"started {ago(execution.started_at, now)}, OUTCOME UNKNOWN"
        case _:
            when = "" if execution is None or execution.finished_at is None else f" {ago(execution.finished_at, now)}"
            return f"{request.state}{when}"


def outcome_rows(request: Request) -> Iterator[str]:
    """Yield what the call returned or how it failed, and who said so where the program could not."""
    execution = request.execution
    if execution is None:
        return
    if execution.result is not None:
        yield f"  returned {brief(canonical.load(execution.result).get('result'), 1_000)}"
    if execution.error is not None:
        yield f"  error {brief(execution.error, 1_000)}"
    if execution.resolved_by is not None:
        yield f"  resolved by {name_of(execution.resolved_by)}"


def changed(before: Call, after: Call) -> list[Change]:
    """Return what an edit changes, as it may be shown: a masked value that changed is named and stays masked."""
    found: list[Change] = []
    old, new = canonical.load(before.form), canonical.load(after.form)
    seen, will = before.shown, after.shown
    for name in {**old, **new}:
        was = {name: old[name]} if name in old else {}
        now = {name: new[name]} if name in new else {}
        if not changes(was, now):
            continue  # also where a redactor draws an unchanged value in another way
        visible = changes(_only(seen, name), _only(will, name))
        found += visible or [Change(escape(name), MASK, f"{MASK} (changed)")]
    return found


def _only(tree: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: tree[name]} if name in tree else {}
