"""One row of the journal: a transition that happened, chained by hash to the one before it in the same run.

The hash is SHA-256 over the JSON array of the link before and every field but the link, in the order of `Entry`,
without spaces, as UTF-8. Changing, removing, swapping or inserting a row inside a chain
shows when the chain is walked (`sayso.audit.verify`); a chain that was cut at its end needs an outside witness.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from sayso.model.canonical.compact import quote

__all__ = ["KINDS", "Anchor", "Entry", "Head", "chained", "first_link"]


class Entry(NamedTuple):
    """A transition, as it is kept.

    Attributes:
        run_id: The chain it stands in.
        seq: Its place there, from 1.
        at: Microseconds since 1970, UTC, by the store's clock.
        request_id: Which request.
        event: What happened: `asked`, `voted`, `approved`, `started`, …
        by: `issuer:subject` of whoever did it.
        channel: Through which channel.
        detail: A JSON object as text; never holds the value of an argument.
        link: Hash over all of the above and the link before.
    """

    run_id: str
    seq: int
    at: int
    request_id: str
    event: str
    by: str
    channel: str
    detail: str
    link: str


KINDS = (str, int, int, str, str, str, str, str, str)
"""Of what is written; a database takes other values as well."""


class Head(NamedTuple):
    """A place in a chain, usually its newest row.

    Attributes:
        run_id: Which chain.
        seq: Which row.
        link: Of that row; it stands for all rows up to there.
    """

    run_id: str
    seq: int
    link: str


class Anchor(NamedTuple):
    """How the row of a request is tied to the journal, for `sayso.audit`.

    Attributes:
        request_id: Which request.
        run_id: In which chain its rows stand.
        state: The state that the row says.
        link: Of the journal's row that made this row what it is.
        asked: Digest of what never changes, computed from the row (see `sayso.stores.row.asked_digest`); the
            journal's `asked` row carries the one of then. None where it is sealed and there is no key to open it.
        stands: Digest of the whole row, computed from it (see `sayso.stores.row.stands_digest`); every row
            of the journal about it carries the one of then. None as for `asked`, and where nobody could change it.
    """

    request_id: str
    run_id: str
    state: str
    link: str
    asked: str | None
    stands: str | None = None


def first_link(run_id: str) -> str:
    """Return what stands before the first row of a chain."""
    return hashlib.sha256(b"sayso/journal/1:" + run_id.encode()).hexdigest()


def chained(
    before: str, run_id: str, seq: int, at: int, request_id: str, event: str, by: str, channel: str, detail: str
) -> Entry:
    """Return the row that follows the link `before`."""
    texts = quote(request_id), quote(event), quote(by), quote(channel), quote(detail)
    content = f"[{quote(before)},{quote(run_id)},{seq},{at},{','.join(texts)}]"
    link = hashlib.sha256(content.encode()).hexdigest()
    return Entry(run_id, seq, at, request_id, event, by, channel, detail, link)
