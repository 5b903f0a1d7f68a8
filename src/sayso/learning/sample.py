"""Decisions as learning samples of the protocol's core schema, one for each final decision.

Plans give samples of the family `intent_resolution`, one for all rounds of a plan; calls and questions give
`confirm_decision`. The samples themselves are made by `sayso.mplp.sample`. The invariant: what leaves here fits the
protocol's schema, and holds no value that people may not see.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

from sayso.errors import ArgumentError
from sayso.learning.lesson import decided, is_lesson
from sayso.model.request import Request
from sayso.model.text import storable
from sayso.mplp import ConfirmRefusedError, NotConformantError, sample_of
from sayso.mplp.group import group_of
from sayso.mplp.sample import export_of
from sayso.mplp.view import facts_of
from sayso.stores.base import Store

__all__ = ["samples"]

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
