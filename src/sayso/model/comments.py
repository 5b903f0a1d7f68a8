"""Comments: what reviewers say to each other about a request, kept as rows of the journal.

A comment changes nothing of its request, gives no right, and is not told to the program. `@name` in it mentions
somebody. Invariant: what is masked in the call is masked in a comment before it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, cast

from sayso import clock
from sayso.model.journal import Entry
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, without_secrets
from sayso.model.reviewer import Identity

EVENT = "commented"
LONGEST, _MOST_MENTIONS = 20_000, 20
_MENTION = re.compile(r"(?<![\w.@:/+-])@(\w(?:[\w.+:@-]{0,198}\w)?)")


class Comment(NamedTuple):
    """What somebody said about a request.

    Attributes:
        at: When, in UTC, by the store's clock.
        by: `issuer:subject` of who said it.
        channel: Through which channel.
        text: The words; empty where they were sealed and do not open.
        mentions: The names in it after an `@`, as they were written.
    """

    at: datetime
    by: str
    channel: str
    text: str
    mentions: tuple[str, ...] = ()


def mentions_in(text: str) -> tuple[str, ...]:
    """Return the names that a text mentions, each once: those of `@ada`, `@ada@corp.example` and `@issuer:ada`."""
    return tuple(dict.fromkeys(_MENTION.findall(text)))[:_MOST_MENTIONS]


def comment(request: Request, by: Identity, *, text: str, channel: str, now: datetime) -> Transition:  # noqa: ARG001  as each rule
    """Write a comment into the journal of a request, in whatever state; the request stays as it is."""
    words = without_secrets(request, text)
    mentions = mentions_in(words)
    return Transition(request, EVENT, by, channel, {"comment": words, **({"mentions": mentions} if mentions else {})})


def comments_in(entries: Iterable[Entry]) -> list[Comment]:
    """Return the comments among rows of the journal, in their order; a row that somebody altered has no words."""
    return [_read(entry) for entry in entries if entry.event == EVENT]


def _read(entry: Entry) -> Comment:
    try:
        found: Any = json.loads(entry.detail)
        detail = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    except (ValueError, RecursionError):
        detail = {}
    text, names = detail.get("comment"), detail.get("mentions")
    mentions = tuple(str(name) for name in cast("list[Any]", names)) if isinstance(names, list) else ()
    try:
        at = clock.instant(entry.at)
    except (OverflowError, TypeError, ValueError):
        at = clock.instant(0)
    return Comment(at, entry.by, entry.channel, text if isinstance(text, str) else "", mentions)
