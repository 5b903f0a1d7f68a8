"""Which requests were decided by a person, and what may be said of them outside.

The invariant: a reviewer's words that quote a secret of the call leave without it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any, cast

from sayso.model import canonical, told
from sayso.model.call import Call
from sayso.model.decision import Decision
from sayso.model.request import Request, State
from sayso.mplp.sample import redaction_of
from sayso.stores.base import Filter, Store

__all__ = [
    "decided", "decision_of", "label_of", "proposed_and_approved", "reason_of", "seconds_of",
    "without_secrets",
]  # fmt: skip

_DECIDED = frozenset(State) - {State.PENDING}
_PAGE = 500
_ZERO = timedelta(0)
_BETWEEN = "\0"
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


def reason_of(request: Request) -> str:
    """Return what the reviewer said, without secrets of the call; empty where nothing was said."""
    words = decision_of(request).comment
    return "" if words is None else told.fit(words.strip(), _secrets_of(request))


def proposed_and_approved(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call as they were proposed and as they were left, as masked trees."""
    before = request.call.shown
    return before, before if request.edited is None else request.edited.shown


def without_secrets(request: Request, content: dict[str, Any], parts: Collection[str]) -> dict[str, Any]:
    """Return JSON values with the secrets of a request's call taken out of every text in some of their parts.

    Args:
        request: Whose call.
        content: The values.
        parts: Under which names what people and programs brought stands; the rest is ours, and quotes nothing.
    """
    secrets = _secrets_of(request)
    if not secrets:
        return content
    texts: list[str] = []
    for name in parts:
        _gather(content[name], texts)
    # All texts are cleaned as one, which is quicker by far, and most have nothing to be cleaned of.
    together = _BETWEEN.join(texts)
    clean = told.fit(together, secrets)
    if clean == together:
        return content
    pieces = clean.split(_BETWEEN)
    if len(pieces) != len(texts) or any(_BETWEEN in secret for secret in secrets):
        pieces = [told.fit(text, secrets) for text in texts]
    fitted = iter(pieces)
    return content | {name: _replaced(content[name], fitted) for name in parts}


def _gather(content: Any, texts: list[str]) -> None:
    """Add the texts that stand in JSON values; names are none."""
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, dict | list):
        parts = cast("dict[str, Any] | list[Any]", content)
        for held in parts.values() if isinstance(parts, dict) else parts:
            _gather(held, texts)


def _replaced(content: Any, texts: Iterator[str]) -> Any:
    """Return JSON values with other texts, in the order in which `_gather` found them."""
    match content:
        case str():
            return next(texts)
        case dict():
            return {name: _replaced(held, texts) for name, held in cast("dict[str, Any]", content).items()}
        case list():
            return [_replaced(held, texts) for held in cast("list[Any]", content)]
        case _:
            return content


def _secrets_of(request: Request) -> frozenset[str]:
    """Return the texts of a call that nobody may see: what a name marks, and what the gate's redactor took out."""
    found = frozenset[str]()
    for call in (request.subject, request.edited):
        if not isinstance(call, Call) or call.masked is None:
            continue
        redaction, tree, shown = redaction_of(request.redact), canonical.load(call.form), call.masked
        found |= redaction.secrets(tree) | {text for text in redaction.texts(tree) if not _stands_in(shown, text)}
    return found


def _stands_in(form: str, text: str) -> bool:
    """Say whether a text stands in a canonical form, which has quotes, backslashes and line feeds as JSON has them."""
    return text in form or json.dumps(text, ensure_ascii=False)[1:-1] in form
