"""What people decided, as data to learn from: samples of the protocol, preference pairs, and rows of a table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, cast

from sayso import clock
from sayso.errors import ArgumentError
from sayso.learning.rules import changed
from sayso.model import redaction
from sayso.model.canonical import display
from sayso.model.canonical.tags import dumps
from sayso.model.request import Call, Decision, Request, State
from sayso.model.text import storable
from sayso.mplp import ConfirmRefusedError, NotConformantError, sample_of
from sayso.mplp.sample import answer_of, export_of, secrets_of
from sayso.mplp.view import facts_of, group_of
from sayso.stores.base import Filter, Store

__all__ = [
    "COLUMNS",
    "PAIR_COLUMNS",
    "decided",
    "decision_of",
    "is_lesson",
    "label_of",
    "pairs",
    "proposed_and_approved",
    "reason_of",
    "rows",
    "samples",
    "seconds_of",
    "table",
]

_DECIDED = frozenset(State) - {State.PENDING}
_PAGE = 500
_ZERO = timedelta(0)
_NOES = frozenset({State.REJECTED, State.FEEDBACK})


def decided(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[Request]:
    """Yield the requests that a person has decided, the one that was asked last first; what was purged is left out.

    Args:
        store: Where they are.
        since: Only those that were asked then or later.
        until: Only those that were asked before.
        tool: Only of this function, by its name or `module:name`.
    """
    wanted, cursor = Filter(states=_DECIDED, name=tool), None
    while True:
        page = store.list(wanted, cursor=cursor, limit=_PAGE, newest=True)
        recent = [request for request in page.requests if since is None or request.created_at >= since]
        for request in recent:
            if is_lesson(request) and (until is None or request.created_at < until):
                yield request
        cursor = page.cursor
        # Clocks of two programs differ, so only a whole page of older ones is the end.
        if cursor is None or not recent:
            return


def is_lesson(request: Request) -> bool:
    """Say whether a person has decided a request, and it was not purged."""
    return request.decision is not None and not request.decision.is_withdrawal and request.purged_at is None


def decision_of(request: Request) -> Decision:
    """Return the decision that ended the wait; raises `ValueError` where there is none."""
    if request.decision is None:
        raise ValueError(f"request {request.id} was not decided; there is nothing to learn from it")
    return request.decision


def label_of(request: Request) -> str:
    """Return the label that the protocol's learning samples have: `approved`, `rejected` or `not_reviewed`."""
    if request.state is State.CANCELLED or request.decision is None:
        return "not_reviewed"
    is_no = request.state in _NOES or (request.state is State.ANSWERED and request.answer is False)
    return "rejected" if is_no else "approved"


def seconds_of(request: Request, decision: Decision) -> float:
    """Return how long after it was asked a request was decided; clocks of two machines may say less than nothing."""
    return max(decision.at - request.created_at, _ZERO).total_seconds()


def reason_of(request: Request) -> str:
    """Return what the reviewer said, without secrets of the call; empty where nothing was said."""
    words = decision_of(request).comment
    return "" if words is None else redaction.fit(words.strip(), secrets_of(request))


def proposed_and_approved(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call as they were proposed and as they were left, as masked trees."""
    before = request.call.shown
    return before, before if request.edited is None else request.edited.shown


_log = logging.getLogger("sayso")
_UNREADABLE = (ArgumentError, ConfirmRefusedError, NotConformantError, ValueError)
_LONGEST = 1_024  # bits of a number


def samples(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None,
    unread: list[str] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a learning sample, as JSON values, for each decision of a person, the newest request first.

    Args:
        store: Where the requests are.
        since: Only what was asked then or later.
        until: Only what was asked before.
        tool: Only of this function, by its name or `module:name`.
        unread: Gets the ids of requests that no sample can be made of, because what a program asked for by the name of
            a plan is none; they are left out. The log is told of each where nobody takes them.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        try:
            rounds = (request,) if facts_of(request) is None else _rounds(store, request)
            made = _exported(rounds) if rounds else None
        except _UNREADABLE as error:  # one program's request must not end the export of all
            if unread is None:
                _log.warning("no learning sample can be made of request %s: %s", request.id, error)
            else:
                unread.append(request.id)
            continue
        if made is not None:
            yield made


def _exported(rounds: tuple[Request, ...]) -> dict[str, Any]:
    try:
        return export_of(*rounds)
    except NotConformantError:  # one call with a number that the protocol does not take must not end an export
        sample = sample_of(*rounds)
        return sample.model_copy(
            update={
                "input": _fitted(sample.input),
                "output": _fitted(sample.output),
                "feedback": _fitted(sample.feedback),
            }
        ).export()


def _fitted(content: Any) -> Any:
    """Return JSON values as the protocol takes them: half a character written out, a very long number as text."""
    match content:
        case str():
            return storable(content)
        case int() if content.bit_length() > _LONGEST:
            return f"{content:#x}"
        case dict():
            named = cast("dict[str, Any]", content)
            return {storable(name): _fitted(held) for name, held in named.items()}
        case list():
            return [_fitted(held) for held in cast("list[Any]", content)]
        case _:
            return content


def _rounds(store: Store, request: Request) -> tuple[Request, ...]:
    """Return the rounds up to this one, where it is the last that was decided; else none: one sample speaks for all."""
    rounds = group_of(store, request.id).rounds
    ended = [place for place, one in enumerate(rounds) if is_lesson(one)]
    if not ended or rounds[ended[-1]].id != request.id:
        return ()
    return tuple(one for one in rounds[: ended[-1] + 1] if one.purged_at is None)


PAIR_COLUMNS = ("id", "tool", "prompt", "chosen", "rejected", "reason", "decided_at")


def pairs(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, str]]:
    """Yield a pair for each approval with changes, all values texts by the names of `PAIR_COLUMNS`.

    `chosen` and `rejected` are JSON objects of the arguments, masked; `prompt` is what the program wanted the reviewer
    to read, or what the function says of itself.

    Args:
        store: Where the requests are.
        since: Only what was asked then or later.
        until: Only what was asked before.
        tool: Only of this function, by its name or `module:name`.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        if request.edited is not None and decision_of(request).verb == "approve" and isinstance(request.subject, Call):
            found = _pair(request)
            if found["chosen"] != found["rejected"]:
                yield found


def _pair(request: Request) -> dict[str, str]:
    before, after = proposed_and_approved(request)
    return {
        "id": request.id,
        "tool": request.call.tool,
        "prompt": request.prompt or request.description or request.call.name,
        "chosen": dumps(display(dict(after))),
        "rejected": dumps(display(dict(before))),
        "reason": reason_of(request),
        "decided_at": clock.written(decision_of(request).at),
    }


COLUMNS = (
    "id", "kind", "run", "tool", "risk", "requester", "asked_at", "decided_at", "seconds", "state", "verb", "label",
    "is_edited", "edited", "reviewer", "channel", "votes", "reason", "question", "proposed", "approved", "answer",
)  # fmt: skip


def table(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> list[dict[str, Any]]:
    """Return `rows` as a list, for `pandas.DataFrame(...)` and `polars.DataFrame(...)`."""
    return list(rows(store, since=since, until=until, tool=tool))


def rows(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one flat row for each decision of a person, the newest request first.

    Args:
        store: Where the requests are.
        since: Only what was asked then or later.
        until: Only what was asked before.
        tool: Only of this function, by its name or `module:name`.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        yield _row(request)


def _row(request: Request) -> dict[str, Any]:
    decision = decision_of(request)
    return {
        "id": request.id,
        "kind": request.kind,
        "run": request.run_id,
        "tool": "",
        "risk": request.risk or "",
        "requester": request.requester.qualified,
        "asked_at": clock.written(request.created_at),
        "decided_at": clock.written(decision.at),
        "seconds": seconds_of(request, decision),
        "state": str(request.state),
        "verb": decision.verb,
        "label": label_of(request),
        "is_edited": request.edited is not None,
        "edited": "",
        "reviewer": decision.by.qualified,
        "channel": decision.channel,
        "votes": max(1, len(request.votes)),
        "reason": reason_of(request),
        "question": "",
        "proposed": "",
        "approved": "",
        "answer": "",
        **(_of_call(request) if isinstance(request.subject, Call) else _of_question(request)),
    }


def _of_call(request: Request) -> dict[str, Any]:
    before, after = proposed_and_approved(request)
    proposed = dumps(display(dict(before)))
    is_yes = decision_of(request).verb == "approve"
    return {
        "tool": request.call.tool,
        "edited": " ".join(changed(before, after)),
        "proposed": proposed,
        "approved": "" if not is_yes else proposed if request.edited is None else dumps(display(dict(after))),
    }


def _of_question(request: Request) -> dict[str, Any]:
    answer = answer_of(request)
    return {"question": request.question.text, "answer": "" if answer is None else dumps(answer)}
