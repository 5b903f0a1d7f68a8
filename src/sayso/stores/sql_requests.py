"""Reads of requests and of the journal, shared by all stores with SQL tables.

The SQL is SQLite's; other stores translate it. LIMIT is written as a literal, because a Postgres plan for a parameter
reads far too many rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from sayso import errors
from sayso.clock import microseconds
from sayso.model.ids import effect_digest, key_digest
from sayso.model.journal import Anchor, Entry
from sayso.model.request import LIVE, Request, State
from sayso.stores.base import Store
from sayso.stores.codec import Seal, legible
from sayso.stores.filter import Filter, Page, read_cursor
from sayso.stores.grants import CHAIN, STOP

NEWEST = f"SELECT {', '.join(Entry._fields)} FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"


def none_of(kinds: Sequence[str]) -> str:
    """Return the condition that there is no record of these kinds and, for the stop, none in the journal either."""
    # One condition per kind: for a list of values, SQLite would build a table in every statement.
    parts = [f"NOT EXISTS (SELECT 1 FROM record WHERE kind = {kind!r})" for kind in kinds]
    if STOP in kinds:
        newest = f"SELECT event FROM journal WHERE run_id = '{CHAIN}' ORDER BY seq DESC LIMIT 1"
        parts.append(f"coalesce(({newest}), '') <> 'stopped'")
    return " AND ".join(parts)


def where_of(wanted: Filter) -> tuple[list[str], list[Any]]:
    """Return the terms of an AND condition, and the values bound in them."""
    parts: list[str] = []
    values: list[Any] = []
    if wanted.states:
        part, values = _in_states(wanted)
        parts.append(part)
    for column, value in (("run_id", wanted.run_id), ("risk", wanted.risk), ("kind", wanted.kind)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if wanted.name is not None:
        parts.append("? IN (name, tool)")
        values.append(wanted.name)
    if wanted.claimed_by is not None:
        parts.append("claimed_by = ?")
        values.append(wanted.claimed_by.folded)
    if wanted.text is not None:
        parts.append("instr(search, ?) > 0")
        values.append(wanted.text.casefold())
    return parts, values


def _in_states(wanted: Filter) -> tuple[str, list[Any]]:
    part, values = f"state IN ({', '.join('?' * len(wanted.states))})", list[Any](sorted(wanted.states))
    if wanted.states <= LIVE:
        part = f"live = 1 AND {part}"
    elif not wanted.states & LIVE:
        part = f"live IS NULL AND {part}"
    if wanted.at is None:
        return part, values
    at = microseconds(wanted.at)
    # Only live requests have an end.
    part, values = f"{part} AND (ends_at IS NULL OR ends_at > ?)", [*values, at]
    if State.EXPIRED in wanted.states:
        part, values = f"({part} OR (live = 1 AND ends_at <= ?))", [*values, at]
    return part, values


_ENTRY = ", ".join(Entry._fields)
_MATCH = "SELECT id FROM request WHERE id >= ? AND id < ? ORDER BY id"
_DUE = "SELECT id FROM request WHERE live = 1 AND (ends_at <= ? OR state = ?)"
_SCHEMA = "SELECT text FROM schema_text WHERE id = ?"
_JOURNAL = f"SELECT {_ENTRY} FROM journal WHERE (run_id, seq) > (?, ?) ORDER BY run_id, seq"
_JOURNAL_OF = (
    f"SELECT {_ENTRY} FROM journal WHERE run_id = ? AND seq > ? AND (CAST(? AS TEXT) IS NULL OR request_id = ?)"
    " ORDER BY seq"
)
_RUN_OF = "SELECT run_id FROM request WHERE id = ?"


class Selects(NamedTuple):
    """The statements with which a store reads requests together with their newest journal entries.

    Attributes:
        columns: The columns of a request's row, for a list.
        load: Reads them and the newest journal entry; a condition must be appended.
        by_effect: Reads the requests with an effect.
    """

    columns: str
    load: str
    by_effect: str


class SqlRequestReads(Store):
    """The part of a store that reads requests and the journal."""

    seal: Seal
    selects: ClassVar[Selects]
    _schemas: dict[str, str]
    """The known texts of schemas, by id."""

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows."""

    @abstractmethod
    def request_of(self, found: tuple[Any, ...]) -> Request:
        """Return the request of a row."""

    @abstractmethod
    def _anchor(self, found: tuple[Any, ...]) -> Anchor:
        """Return how a row, given with its newest journal entry, is tied to the journal."""

    def _schema(self, digest: str) -> str:
        text = self._schemas.get(digest)
        if text is None:
            found = self._query(_SCHEMA, (digest,))
            if not found:
                raise errors.StoreCorruptError(f"{self._place}: the schema {digest[:12]} of a request is missing")
            text = self._schemas[digest] = found[0][0]
        return text

    @property
    @abstractmethod
    def _place(self) -> str:
        """The store's name in errors."""

    def get(self, request_id: str) -> Request:
        found = self._query(f"{self.selects.load}r.id = ?", (request_id,))
        if not found:
            raise errors.RequestNotFoundError(request_id)
        return self.request_of(found[0])

    def find(self, fingerprint: str) -> Request | None:
        found = self._query(f"{self.selects.load}r.fingerprint = ? AND r.holds = 1", (fingerprint,))
        return self.request_of(found[0]) if found else None

    def find_key(self, run_id: str, key: str) -> Request | None:
        found = self._query(f"{self.selects.load}r.key_digest = ?", (key_digest(run_id, key),))
        return self.request_of(found[0]) if found else None

    def by_effect(self, effect: str) -> Sequence[Request]:
        return [self.request_of(row) for row in self._query(self.selects.by_effect, (effect_digest(effect),))]

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        found = self._query(f"{_MATCH} LIMIT {limit:d}", (prefix, prefix + "\U0010ffff"))
        return [request_id for (request_id,) in found]

    def _due(self) -> Sequence[str]:
        return [found for (found,) in self._query(_DUE, (microseconds(self.now()), State.RUNNING.value))]

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        where, values = where_of(wanted)
        after = read_cursor(cursor)
        if after is not None:
            where.append("n < ?" if newest else "n > ?")
            values.append(after)
        order = "DESC" if newest else "ASC"
        condition = " AND ".join(where) or "TRUE"
        sql = f"SELECT n, {self.selects.columns} FROM request WHERE {condition} ORDER BY n {order} LIMIT {limit + 1:d}"
        found = self._query(sql, values)
        more = len(found) > limit
        return Page(
            tuple(self.request_of(row[1:]) for row in found[:limit]), str(found[limit - 1][0]) if more else None
        )

    def count(self, wanted: Filter) -> int:
        where, values = where_of(wanted)
        return int(self._query(f"SELECT count(*) FROM request WHERE {' AND '.join(where) or 'TRUE'}", values)[0][0])

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        if request_id is not None and run_id is None:
            # The journal is ordered by run, and all entries of a request are in its run's chain.
            found = self._query(_RUN_OF, (request_id,))
            if not found:
                return []
            run_id = found[0][0]
        run, seq = after or ("", 0)
        if run_id is None:
            found = self._query(f"{_JOURNAL} LIMIT {limit:d}", (run, seq))
        elif run > run_id:
            found = []
        else:
            values = (run_id, seq if run == run_id else 0, request_id, request_id)
            found = self._query(f"{_JOURNAL_OF} LIMIT {limit:d}", values)
        return [Entry._make(row) for row in found]

    def anchors(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[Anchor]:
        of_run, values = (" AND r.run_id = ?", (after, run_id)) if run_id is not None else ("", (after,))
        sql = f"{self.selects.load}r.id > ?{of_run} ORDER BY r.id LIMIT {limit:d}"
        return [self._anchor(row) for row in self._query(sql, values)]

    def legible(self, entry: Entry) -> Entry:
        return legible(entry, self.seal)
