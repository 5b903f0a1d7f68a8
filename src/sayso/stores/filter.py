"""Filters, pages and page cursors, with the same meaning in every store."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from sayso.model.lifecycle import is_due
from sayso.model.rendering import ungrouped
from sayso.model.request import Call, Request, State, folded, search_text
from sayso.model.reviewer import Identity
from sayso.model.run import RunState

_WORD = re.compile(r'"([^"]+)"|(\S+)')
_MOST_WORDS = 100  # SQLite takes a condition of at most 1,000 parts
NOT_DECIDED = frozenset({State.PENDING, State.RUNNING, State.UNKNOWN})
"""The states of a request in which a run that waits for it cannot continue."""


@dataclass(frozen=True)
class Filter:
    """Which requests to list; an empty field does not restrict the list.

    Attributes:
        states: Any of these states.
        run_id: Of this run.
        name: Of the function with this name, or this qualified name (`module:function`).
        risk: With this risk word.
        claimed_by: Claimed by this identity, by folded comparison.
        text: With each of these words, or parts of words, in id, run, function name, masked arguments as they were
            asked, title, summary, effect, prompt, question or the notes of decisions; not case-sensitive. Words in
            double quotes are searched for side by side. `12,500.50` and `12.500,50` also find `12500.50`. Only the
            first 4,000 characters of arguments are searched; in an encrypted store, only id, run and function.
        kind: Calls or questions only.
        ids: Any of these requests.
        at: Treat requests as expired that have reached their end at this instant, even if that is not recorded yet.
    """

    states: frozenset[State] = field(default=frozenset[State]())
    run_id: str | None = None
    name: str | None = None
    risk: str | None = None
    claimed_by: Identity | None = None
    text: str | None = None
    kind: Literal["call", "question"] | None = None
    ids: frozenset[str] = frozenset()
    at: datetime | None = None

    @property
    def words(self) -> list[tuple[str, ...]]:
        """The words of `text`, folded, each once, with the other forms in which it is found.

        A text in double quotes is one word, and so is a very long one.
        """
        text = "" if self.text is None else folded(self.text)
        found = list(dict.fromkeys(quoted or plain for quoted, plain in _WORD.findall(text)))
        return list(map(_forms, found)) if len(found) <= _MOST_WORDS else [(text,)]


def _forms(word: str) -> tuple[str, ...]:
    """Return a word, and of an amount as pages write it, such as `12,500.50`, also how arguments hold it."""
    plain = next(filter(None, (ungrouped(word, point) for point in ",.")), word)
    return (word,) if plain == word else (word, plain.rstrip("0").rstrip("."))


@dataclass(frozen=True)
class RunFilter:
    """Which runs to list; an empty field does not restrict the list.

    Attributes:
        states: Any of these states.
        name: Of the runnable with this name.
        ids: Any of these runs.
    """

    states: frozenset[RunState] = field(default=frozenset[RunState]())
    name: str | None = None
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Page:
    """A part of a list, in the order in which the requests were asked.

    Attributes:
        requests: At most as many as were requested.
        cursor: Where the next page begins; None at the end. It stays valid while requests are added and change.
    """

    requests: tuple[Request, ...]
    cursor: str | None


def read_cursor(cursor: str | None) -> int | None:
    """Return the position of a cursor; raises `ValueError` if it is not valid."""
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise ValueError(f"{cursor!r} is not a cursor of this list; begin again without one")
    return int(cursor)


def matches(request: Request, wanted: Filter) -> bool:
    """Return whether a request passes a filter."""
    subject = request.subject
    names = (subject.name, subject.tool) if isinstance(subject, Call) else ()
    is_expired = wanted.at is not None and is_due(request, wanted.at)
    claimed, by, words = request.claimed_by, wanted.claimed_by, wanted.words
    text = search_text(request) if words else ""
    return (
        (not wanted.states or (State.EXPIRED if is_expired else request.state) in wanted.states)
        and (not wanted.ids or request.id in wanted.ids)
        and (wanted.kind is None or request.kind == wanted.kind)
        and (wanted.run_id is None or request.run_id == wanted.run_id)
        and (wanted.name is None or wanted.name in names)
        and (wanted.risk is None or request.risk == wanted.risk)
        and (by is None or (claimed is not None and claimed.is_same(by)))
        and all(any(form in text for form in forms) for forms in words)
    )
