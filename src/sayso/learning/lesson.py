"""Which requests were decided by a person, and what may be said of them outside.

The invariant: a reviewer's words that quote a secret of the call leave without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, cast

from sayso.model import canonical, told
from sayso.model.call import Call
from sayso.model.decision import Decision
from sayso.model.redaction import Redaction
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store

__all__ = [
    "answer_of", "decided", "decision_of", "label_of", "proposed_and_approved", "reason_of", "seconds_of",
    "without_secrets",
]  # fmt: skip

_DECIDED = frozenset(State) - {State.PENDING}
_PAGE = 500
_ZERO = timedelta(0)
_NOES = frozenset({State.REJECTED, State.FEEDBACK})
_NEITHER = frozenset({State.CANCELLED, State.EXPIRED})


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
            if request.decision is None or request.purged_at is not None:
                continue
            if until is None or request.created_at < until:
                yield request
        cursor = page.cursor
        # Clocks of two programs differ, so only a whole page of older ones is the end.
        if cursor is None or not recent:
            return


def decision_of(request: Request) -> Decision:
    """Return the decision that ended the wait; raises `ValueError` where there is none."""
    if request.decision is None:
        raise ValueError(f"request {request.id} was not decided; there is nothing to learn from it")
    return request.decision


def label_of(request: Request) -> str:
    """Return the label that the protocol's learning samples have: `approved`, `rejected` or `not_reviewed`."""
    if request.state in _NEITHER:
        return "not_reviewed"
    is_no = request.state in _NOES or (request.state is State.ANSWERED and request.answer is False)
    return "rejected" if is_no else "approved"


def seconds_of(request: Request, decision: Decision) -> float:
    """Return how long after it was asked a request was decided; clocks of two machines may say less than nothing."""
    return max(decision.at - request.created_at, _ZERO).total_seconds()


def answer_of(request: Request) -> Any:
    """Return the answer as plain JSON values, masked; None where there is none."""
    text = decision_of(request).answer
    if text is None:
        return None
    tree: Any = canonical.display(_redaction(request.redact).mask(canonical.load(text)))
    return tree["answer"]


def reason_of(request: Request) -> str:
    """Return what the reviewer said, without secrets of the call; empty where nothing was said."""
    words = decision_of(request).comment
    return "" if words is None else told.fit(words.strip(), _secrets_of(request))


def proposed_and_approved(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call as they were proposed and as they were left, as masked trees."""
    before = request.call.shown
    return before, before if request.edited is None else request.edited.shown


def without_secrets(request: Request, content: Any) -> Any:
    """Return JSON values with the secrets of a request's call taken out of every text."""
    secrets = _secrets_of(request)
    return _scrubbed(content, secrets) if secrets else content


def _scrubbed(content: Any, secrets: frozenset[str]) -> Any:
    match content:
        case str():
            return told.fit(content, secrets)
        case dict():
            return {name: _scrubbed(held, secrets) for name, held in cast("dict[str, Any]", content).items()}
        case list():
            return [_scrubbed(held, secrets) for held in cast("list[Any]", content)]
        case _:
            return content


def _secrets_of(request: Request) -> frozenset[str]:
    """Return the texts of a call that nobody may see: what a name marks, and what the gate's redactor took out."""
    if not isinstance(request.subject, Call):
        return frozenset()
    redaction, found = _redaction(request.redact), frozenset[str]()
    for call in (request.subject, request.edited):
        if call is None or call.masked is None:
            continue
        tree, shown = canonical.load(call.form), call.masked
        found |= redaction.secrets(tree) | {text for text in redaction.texts(tree) if text not in shown}
    return found


@lru_cache(maxsize=256)
def _redaction(keys: tuple[str, ...]) -> Redaction:
    return Redaction(keys)
