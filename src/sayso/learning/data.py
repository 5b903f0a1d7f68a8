"""Decisions as training data: samples of the protocol, preference pairs, and rows of a table."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from sayso import clock
from sayso.errors import ArgumentError
from sayso.model import redaction
from sayso.model.canonical import display
from sayso.model.canonical.tags import dumps
from sayso.model.request import Call, Decision, Request, State
from sayso.mplp import ConfirmRefusedError, NotConformantError
from sayso.mplp.confirm import round_facts
from sayso.mplp.lookup import find_confirm
from sayso.mplp.sample import answer_of, export_of, secrets_of
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

HASTE = timedelta(seconds=3)
"""Who decides sooner than this after a request was asked cannot have read it."""

PAIR_COLUMNS = ("id", "tool", "prompt", "chosen", "rejected", "reason", "decided_at")
COLUMNS = (
    "id", "kind", "run", "tool", "risk", "requester", "asked_at", "decided_at", "seconds", "state", "verb", "label",
    "is_edited", "edited", "reviewer", "channel", "votes", "reason", "question", "proposed", "approved", "answer",
)  # fmt: skip

_DECIDED = frozenset(State) - {State.PENDING}
_REFUSED = frozenset({State.REJECTED, State.FEEDBACK})
_NO_SAMPLE = (ArgumentError, ConfirmRefusedError, NotConformantError, ValueError)

_log = logging.getLogger("sayso")


# -- which decisions -------------------------------------------------------------------------------------------------


def decided(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[Request]:
    """Yield the requests that a person has decided, the one that was asked last first; purged ones are left out.

    Args:
        since: Only those that were asked then or later.
        until: Only those that were asked before.
        tool: Only of this function, by its name or `module:name`.
    """
    for request in requests_in(store, Filter(states=_DECIDED, name=tool), newest=True, since=since):
        if _is_decided(request) and (until is None or request.created_at < until):
            yield request


def _is_decided(request: Request) -> bool:
    return request.decision is not None and not request.decision.is_withdrawal and request.purged_at is None


def decisions_by_person(request: Request) -> Collection[Decision]:
    """Return the last decision or vote of each person about a request."""
    found = {vote.by.folded: vote for vote in request.votes}
    if request.decision is not None and not request.decision.is_withdrawal:
        found[request.decision.by.folded] = request.decision
    return found.values()


def label_of(request: Request) -> str:
    """Return the label that the protocol's learning samples have: `approved`, `rejected` or `not_reviewed`."""
    if request.state is State.CANCELLED or request.decision is None:
        return "not_reviewed"
    is_no = request.state in _REFUSED or (request.state is State.ANSWERED and request.answer is False)
    return "rejected" if is_no else "approved"


def decision_of(request: Request) -> Decision:
    """Return the decision of a request that `decided` yielded."""
    return cast("Decision", request.decision)  # `decided` yields none without


def span_of(request: Request, decision: Decision) -> timedelta:
    """Return the time from asking to the decision."""
    return max(decision.at - request.created_at, timedelta(0))  # clocks of two machines differ


def reason_of(request: Request) -> str:
    """Return the reviewer's comment without secrets of the call; empty where there is none."""
    comment = decision_of(request).comment
    return "" if comment is None else redaction.fit(comment.strip(), secrets_of(request))


def proposed_and_approved(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call as they were proposed and as they were left, as masked canonical trees."""
    before = request.call.shown
    return before, before if request.edited is None else request.edited.shown


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that differ, masked ones as far as that can be seen."""
    missing = object()
    return [name for name in {**before, **after} if before.get(name, missing) != after.get(name, missing)]


def _json(tree: Mapping[str, Any]) -> str:
    return dumps(display(dict(tree)))


# -- samples, pairs and rows -----------------------------------------------------------------------------------------


def samples(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None,
    unread: list[str] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a learning sample of the protocol, as JSON values, for each decision of a person; see `decided`.

    Args:
        store, since, until, tool: As for `decided`.
        unread: Gets the ids of requests that no sample can be made of, because what a program asked for by the name of
            a plan is none; they are left out. Without it each is logged.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        try:
            rounds = (request,) if round_facts(request) is None else _rounds(store, request)
            made = export_of(*rounds) if rounds else None
        except _NO_SAMPLE as error:  # one program's request must not end the export of all
            if unread is None:
                _log.warning("no learning sample can be made of request %s: %s", request.id, error)
            else:
                unread.append(request.id)
            continue
        if made is not None:
            yield made


def _rounds(store: Store, request: Request) -> tuple[Request, ...]:
    """Return the rounds up to this one, if it is the last that was decided; else none: one sample speaks for all."""
    rounds = find_confirm(store, request.id).rounds
    ended = [place for place, one in enumerate(rounds) if _is_decided(one)]
    if not ended or rounds[ended[-1]].id != request.id:
        return ()
    return tuple(one for one in rounds[: ended[-1] + 1] if one.purged_at is None)


def pairs(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, str]]:
    """Yield a preference pair for each approval with changes, as texts by the names of `PAIR_COLUMNS`; see `decided`.

    `chosen` and `rejected` are JSON objects of the arguments, masked; `prompt` is what the program wanted the reviewer
    to read, or the function's description.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        decision = decision_of(request)
        if request.edited is None or decision.verb != "approve" or not isinstance(request.subject, Call):
            continue
        rejected, chosen = map(_json, proposed_and_approved(request))
        if chosen != rejected:
            prompt = request.prompt or request.description or request.call.name
            at = clock.written(decision.at)
            values = (request.id, request.call.tool, prompt, chosen, rejected, reason_of(request), at)
            yield dict(zip(PAIR_COLUMNS, values, strict=True))


def table(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> list[dict[str, Any]]:
    """Return `rows` as a list, for `pandas.DataFrame(...)` and `polars.DataFrame(...)`."""
    return list(rows(store, since=since, until=until, tool=tool))


def rows(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one flat row with `COLUMNS` for each decision of a person; see `decided`."""
    for request in decided(store, since=since, until=until, tool=tool):
        yield _row(request)


def _row(request: Request) -> dict[str, Any]:
    decision = decision_of(request)
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | {
        "id": request.id, "kind": request.kind, "run": request.run_id, "risk": request.risk or "",
        "requester": request.requester.qualified, "asked_at": clock.written(request.created_at),
        "decided_at": clock.written(decision.at), "seconds": span_of(request, decision).total_seconds(),
        "state": str(request.state), "verb": decision.verb, "label": label_of(request),
        "is_edited": request.edited is not None, "reviewer": decision.by.qualified, "channel": decision.channel,
        "votes": max(1, len(request.votes)), "reason": reason_of(request),
    }  # fmt: skip
    if isinstance(request.subject, Call):
        before, after = proposed_and_approved(request)
        row |= {"tool": request.call.tool, "edited": " ".join(changed(before, after)), "proposed": _json(before)}
        if decision.verb == "approve":
            row["approved"] = row["proposed"] if request.edited is None else _json(after)
    else:
        answer = answer_of(request)
        row |= {"question": request.question.text, "answer": "" if answer is None else dumps(answer)}
    return row
