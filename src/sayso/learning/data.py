"""Exports decisions as training data: the protocol's samples, preference pairs, and table rows."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from sayso import clock
from sayso.errors import ArgumentError
from sayso.model import redaction
from sayso.model.canonical import display
from sayso.model.canonical.json_tree import dumps
from sayso.model.request import Call, Decision, Request, State
from sayso.mplp import ConfirmRefusedError, NotConformantError
from sayso.mplp.confirm import round_facts
from sayso.mplp.lookup import find_confirm
from sayso.mplp.sample import answer_of, export_of, secrets_of
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

HASTE = timedelta(seconds=3)
"""A decision that follows the request faster than this cannot be based on reading it."""

PAIR_COLUMNS = ("id", "tool", "prompt", "chosen", "rejected", "reason", "decided_at")
COLUMNS = (
    "id", "kind", "run", "tool", "risk", "requester", "asked_at", "decided_at", "seconds", "state", "verb", "label",
    "is_edited", "edited", "reviewer", "channel", "votes", "reason", "question", "proposed", "approved", "answer",
)  # fmt: skip

_DECIDED = frozenset(State) - {State.PENDING}
_REFUSED = frozenset({State.REJECTED, State.FEEDBACK})
_NO_SAMPLE = (ArgumentError, ConfirmRefusedError, NotConformantError, ValueError)

_log = logging.getLogger("sayso")


# -- the decisions ---------------------------------------------------------------------------------------------------


def decided(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[Request]:
    """Yield the requests that a person has decided, most recently asked first; purged ones are skipped.

    Args:
        since: Only requests asked at or after this time.
        until: Only requests asked before this time.
        tool: Only requests for this function, given as its name or `module:name`.
    """
    for request in requests_in(store, Filter(states=_DECIDED, name=tool), newest=True, since=since):
        if _is_decided(request) and (until is None or request.created_at < until):
            yield request


def _is_decided(request: Request) -> bool:
    return request.decision is not None and not request.decision.is_withdrawal and request.purged_at is None


def decisions_by_person(request: Request) -> Collection[Decision]:
    """Return each person's last decision or vote on a request."""
    found = {vote.by.folded: vote for vote in request.votes}
    if request.decision is not None and not request.decision.is_withdrawal:
        found[request.decision.by.folded] = request.decision
    return found.values()


def label_of(request: Request) -> str:
    """Return the label for the protocol's learning samples: `approved`, `rejected` or `not_reviewed`."""
    if request.state is State.CANCELLED or request.decision is None:
        return "not_reviewed"
    is_no = request.state in _REFUSED or (request.state is State.ANSWERED and request.answer is False)
    return "rejected" if is_no else "approved"


def decision_of(request: Request) -> Decision:
    """Return the decision of a request that `decided` yielded."""
    return cast("Decision", request.decision)  # always set on what `decided` yields


def span_of(request: Request, decision: Decision) -> timedelta:
    """Return the time from the request to the decision, at least zero."""
    return max(decision.at - request.created_at, timedelta(0))  # clocks of two machines can differ


def reason_of(request: Request) -> str:
    """Return the reviewer's comment with the call's secrets masked; empty if there is none."""
    comment = decision_of(request).comment
    return "" if comment is None else redaction.fit(comment.strip(), secrets_of(request))


def proposed_and_approved(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a call's proposed and final arguments, as masked canonical trees."""
    before = request.call.shown
    return before, before if request.edited is None else request.edited.shown


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that differ. Masked values can differ without being detected."""
    missing = object()
    return [name for name in {**before, **after} if before.get(name, missing) != after.get(name, missing)]


def _json(tree: Mapping[str, Any]) -> str:
    return dumps(display(dict(tree)))


# -- samples, pairs and rows -----------------------------------------------------------------------------------------


def samples(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None,
    unread: list[str] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield one of the protocol's learning samples, as JSON values, for each decision of a person; see `decided`.

    Args:
        store, since, until, tool: As for `decided`.
        unread: Receives the ids of skipped requests whose plan is invalid, so that no sample can be made. Without it,
            each one is logged.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        try:
            rounds = (request,) if round_facts(request) is None else _rounds(store, request)
            made = export_of(*rounds) if rounds else None
        except _NO_SAMPLE as error:  # one invalid request must not end the whole export
            if unread is None:
                _log.warning("no learning sample can be made from request %s: %s", request.id, error)
            else:
                unread.append(request.id)
            continue
        if made is not None:
            yield made


def _rounds(store: Store, request: Request) -> tuple[Request, ...]:
    """Return all rounds up to this one if it is the last decided one; otherwise none: one sample covers all rounds."""
    rounds = find_confirm(store, request.id).rounds
    ended = [place for place, one in enumerate(rounds) if _is_decided(one)]
    if not ended or rounds[ended[-1]].id != request.id:
        return ()
    return tuple(one for one in rounds[: ended[-1] + 1] if one.purged_at is None)


def pairs(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, str]]:
    """Yield a preference pair for each approval with changes, as texts by the names in `PAIR_COLUMNS`; see `decided`.

    `chosen` and `rejected` are JSON objects of the masked arguments. `prompt` is the program's prompt for the reviewer,
    or else the function's description.
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
    """Yield one flat row with the columns `COLUMNS` for each decision of a person; see `decided`."""
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
