"""One SQLite transaction, and the cache of rows that this process has seen.

A verb that changes one request and nothing else is a single statement without BEGIN and COMMIT: the row carries its
newest journal entry, and a trigger copies that into the journal. The verb runs on the cached row, and its write is a
compare-and-set on `link`, the hash of that entry: if another process has changed the row, nothing is written and the
verb runs again in a transaction (`Stale`). A transaction uses a cached row only if nobody else has written since.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from sayso import errors
from sayso.model.journal import Entry
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.stores import codec
from sayso.stores.codec import ASKED_COLUMNS, PROGRESS_COLUMNS, RequestRow, Seal
from sayso.stores.grants import CHAIN, GRANT, STOP
from sayso.stores.records import RecordRow
from sayso.stores.sql import Selects, SqlTransaction, Stale, none_of
from sayso.stores.transaction import CHANNEL, ENDS_OF_CALLS

# Columns of the newest journal entry of the request; a trigger copies them into the journal.
ENTRY_COLUMNS = ("seq", "at", "event", "by", "channel", "detail")
_FIELDS = (*RequestRow._fields, *ENTRY_COLUMNS)
COLUMNS = ", ".join(_FIELDS)
WIDTH, _LINK = len(RequestRow._fields), RequestRow._fields.index("link")
_ASKED_END = len(ASKED_COLUMNS)
# The request's newest journal entry, which its row must match. No index on requests, because a run has few entries.
_LOAD = f"""
SELECT {", ".join(f"r.{name}" for name in _FIELDS)}, j.link, {", ".join(f"j.{name}" for name in ENTRY_COLUMNS)}
FROM request AS r LEFT JOIN journal AS j ON j.run_id = r.run_id AND j.seq = (
    SELECT seq FROM journal WHERE run_id = r.run_id AND request_id = r.id ORDER BY seq DESC LIMIT 1
) WHERE """


def _asked_with(name: str) -> str:
    """Return the condition that an entry of the journal asks with a key or an effect."""
    return f"""event = 'asked' AND instr(detail, '"{name}":"') > 0 AND json_extract(detail, '$.{name}') = ?1"""


SELECTS = Selects.of(
    COLUMNS, _LOAD, *(
        f"SELECT id FROM request WHERE {name}_digest = ?1"
        f" UNION SELECT request_id FROM journal WHERE {_asked_with(name)}"
        for name in ("key", "effect")
    )
)  # fmt: skip
_VALUES = ", ".join("?" * len(_FIELDS))
_KEY_IS_NEW = f"NOT EXISTS (SELECT 1 FROM journal WHERE {_asked_with('key').replace('?1', '?')})"
_ENTRY = ", ".join(("link", *ENTRY_COLUMNS))
_UNCHANGED = f""" AND ({COLUMNS}) IS ({_VALUES}) AND ({_ENTRY}) IS (
    SELECT {_ENTRY} FROM journal WHERE run_id = request.run_id AND request_id = request.id ORDER BY seq DESC LIMIT 1
)"""
_ADD_SCHEMA = "INSERT OR IGNORE INTO schema_text (id, text) VALUES (?, ?)"
_APPEND = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
VERSION = "PRAGMA data_version"  # the number changes with a commit by another connection
_REMEMBERED = 512

# Temporary triggers: somebody with access to the file could remove stored ones, and these write the journal.
JOURNAL_TRIGGERS = tuple(
    f"""
    CREATE TEMP TRIGGER {name} AFTER {change} ON main.request BEGIN
        INSERT INTO journal
        VALUES (NEW.run_id, NEW.seq, NEW.at, NEW.id, NEW.event, NEW.by, NEW.channel, NEW.detail, NEW.link);
    END
    """
    for name, change in (("request_is_journalled", "INSERT"), ("change_is_journalled", "UPDATE OF link"))
)


class Write(NamedTuple):
    """A statement that writes a row of a request.

    Attributes:
        columns: The columns that it sets besides the newest entry; all of them for a new row.
        compares: Whether all other columns, and the newest journal entry, must also be as last seen here.
        has_key: Whether it writes nothing if the journal has the key of the new row.
    """

    columns: tuple[str, ...]
    compares: bool = False
    has_key: bool = False


_INSERT, _INSERT_KEYED = Write(()), Write((), has_key=True)


@cache
def _sql(write: Write, kinds: tuple[str, ...] = ()) -> str:
    """Return its SQL; it writes nothing while there are records of these kinds."""
    columns, compares, has_key = write
    guard = none_of(kinds) if kinds else "TRUE"
    if not columns:
        guard += f" AND {_KEY_IS_NEW}" * has_key
        # The table refuses a row without id. INSERT ... SELECT would first copy the row into a temporary table.
        return f"INSERT INTO request ({COLUMNS}) VALUES (CASE WHEN {guard} THEN ? END{_VALUES[1:]})"
    written = " = ?, ".join((*columns, "link", *ENTRY_COLUMNS))
    return f"UPDATE request SET {written} = ? WHERE id = ? AND link = ?{_UNCHANGED * compares} AND {guard}"


# Indexed columns are written only if they change: each would add two pages to every commit.
_UNINDEXED = tuple(name for name in PROGRESS_COLUMNS if name not in {"holds", "live"})
_CHANGE, _COMPARED = Write(_UNINDEXED), Write(_UNINDEXED, compares=True)


class CachedRow(NamedTuple):
    """A row as this process last saw it.

    Attributes:
        row: All its columns.
        request: Their request.
        newest: Link and entry columns of the request's newest journal entry; empty if it was not read. None for a row
            that was written here, which needs no verification.
        asked: Digest of what never changes, if it is known; computing it is slow for long requests.
    """

    row: tuple[Any, ...]
    request: Request
    newest: tuple[Any, ...] | None
    asked: str | None = None


class RowCache:
    """The rows of requests that this process last saw, the ends of chains, and the texts of schemas.

    Attributes:
        rows: By request id.
        certain: Those that are current while the file has this `version`: read or written over the writing connection,
            by verbs that were not rolled back.
        version: The last known number of the file, which changes with a commit by another connection.
        holders: Ids of the requests that hold, by fingerprint.
        heads: Position and link of the last entry of a chain, by run.
        schemas: Texts by id; `kept_schemas` are those that are certainly committed.
        has_channels: Whether a transaction last found channels, so that most verbs need more than one statement.
    """

    def __init__(self) -> None:
        self.rows: dict[str, CachedRow] = {}
        self.certain: dict[str, CachedRow] = {}
        self.version = 0
        self.holders: dict[str, str] = {}
        self.heads: dict[str, tuple[int, str]] = {}
        self.schemas: dict[str, str] = {}
        self.kept_schemas: set[str] = set()
        self.has_channels = False

    def read(self, found: tuple[Any, ...], seal: Seal, schema: Callable[[str], str]) -> CachedRow:
        """Return what `GET` found, or a row alone. The request object is the same as long as its row is."""
        row = found[: len(_FIELDS)]
        known = self.rows.get(row[0])
        if known is not None and known.row == row:
            if len(found) == len(row) or (known.newest is None and found[len(row) :] == (row[_LINK], *row[WIDTH:])):
                return known
            request = known.request
        else:
            request = codec.request_of(RequestRow._make(row[:WIDTH]), seal, schema)
        read = CachedRow(row, request, found[len(_FIELDS) :])
        self.put(read)
        seq, link = row[WIDTH], row[_LINK]
        head = self.heads.get(request.run_id)
        if type(seq) is int and (head is None or head[0] < seq):
            self.heads[request.run_id] = seq, link
        return read

    def put(self, read: CachedRow) -> None:
        """Remember a row."""
        if max(len(self.rows), len(self.heads)) >= _REMEMBERED:
            self.forget()
        request = read.request
        self.rows[request.id] = read
        if request.holds:
            self.holders[request.fingerprint] = request.id
        elif self.holders.get(request.fingerprint) == request.id:
            del self.holders[request.fingerprint]

    def forget(self) -> None:
        """Forget all rows and ends of chains, because there are too many."""
        for remembered in (self.rows, self.certain, self.holders, self.heads):
            remembered.clear()

    def move_to(self, version: int) -> None:
        """Forget which rows are certain, because another connection has written; the file has this version now."""
        self.certain.clear()
        self.version = version


class SqliteTransaction(SqlTransaction):
    """The verbs' view of the writing connection.

    Args:
        connection: In a transaction; in none for `SingleStatement`.
        cache: The remembered rows.
        seal: Encrypts and decrypts texts.
        schema: Returns a schema's text.

    Attributes:
        changed: Ids of the written requests.
    """

    selects = SELECTS
    # Whether it runs on any remembered row and writes at its end, in one statement, whose comparison then decides.
    _may_guess = False
    # Kinds of records that the next statement checks, which writes nothing if there are any.
    _unread: tuple[str, ...] = ()
    _loaded: CachedRow | None = None
    _verified: CachedRow | None = None

    def __init__(
        self, connection: sqlite3.Connection, cache: RowCache, seal: Seal, schema: Callable[[str], str]
    ) -> None:
        self._connection, self._execute, self._read_by = connection, connection.execute, connection.execute
        self._cache, self._seal, self._schema, self._remembered = cache, seal, schema, cache.certain
        self._pending: list[tuple[Write | None, tuple[Any, ...], Entry, CachedRow | None]] = []
        self.changed: list[str] = []
        self.changed_runs, self._runs = list[str](), {}
        self.heads: dict[str, tuple[int, str]] = {}
        self.schemas: set[str] = set()

    def load(self, request_id: str) -> Request:
        known = self._remembered.get(request_id)
        if known is None:
            return super().load(request_id)
        self._loaded = known
        return known.request

    def _read(self, found: tuple[Any, ...]) -> Request:
        request = super()._read(found)
        self._cache.certain[request.id] = self._loaded
        return request

    def record_keys(self, kind: str) -> Sequence[str]:
        found = super().record_keys(kind)
        if kind == CHANNEL:
            self._cache.has_channels = bool(found)
        return found

    def insert(self, transition: Transition) -> None:
        request, seal, cache = transition.request, self._seal, self._cache
        subject = request.subject
        key = codec.schema_id(subject.schema)
        if key not in cache.kept_schemas:
            self._execute(_ADD_SCHEMA, (key, subject.schema))
            cache.schemas[key] = subject.schema  # not earlier: an altered text is detected when its row is read
            self.schemas.add(key)
        values, digest = codec.insert_values(request, seal, transition.detail)
        entry, _ = self._entry(request.run_id, request.id, *transition[1:])
        written = (*values, entry.link, *entry[1:3], *entry[4:8])
        used = RequestRow._make((*values, entry.link)).key_digest
        write, bound = (_INSERT, written) if used is None else (_INSERT_KEYED, (used, *written))
        self._pending.append((write, bound, entry, CachedRow(written, request, None, digest)))
        if not self._may_guess:
            self.flush()

    def update(self, transition: Transition) -> None:
        request, before = transition.request, self._loaded
        if before is None or before.request.id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # verbs load first
        if self._verified is not before and not self.verify(before.request):
            raise codec.altered(request.id)
        old = before.row
        again, progress, digest = codec.update_values(
            old, before.request, request, self._seal, transition.detail, before.asked
        )
        asked = RequestRow._make(old[:WIDTH])._replace(**again)[:_ASKED_END] if again else old[:_ASKED_END]
        entry, _ = self._entry(request.run_id, request.id, *transition[1:])
        newest = entry.link, *entry[1:3], *entry[4:8]  # the `link` of the row, and its `ENTRY_COLUMNS`
        compares = transition.event not in ENDS_OF_CALLS
        if (progress[0], progress[2]) == (old[_ASKED_END], old[_ASKED_END + 2]):
            write, changed = _COMPARED if compares else _CHANGE, (progress[1], *progress[3:])
        else:
            write, changed = Write(PROGRESS_COLUMNS, compares), progress
        if again:
            write = Write((*again, *write.columns), compares)
        values = (*again.values(), *changed, *newest, request.id, old[_LINK], *(old if compares else ()))
        self._pending.append((write, values, entry, CachedRow((*asked, *progress, *newest), request, None, digest)))
        if not self._may_guess:
            self.flush()

    def verify(self, request: Request) -> bool:
        read = self._loaded
        if read is None or read.request.id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # verbs load first
        if self._verified is not read:
            if read.newest is not None and not self._is_intact(read):
                if self._may_guess:
                    raise Stale
                return False
            self._verified = read
        return True

    def _is_intact(self, known: CachedRow) -> bool:
        if known.newest is None:
            return True
        if not known.newest:
            return False
        link, *entry = known.newest
        row = known.row
        return tuple(entry) == row[WIDTH:] and codec.verify_row(row[:WIDTH], (link, row[-1]), self._seal)

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        entry, _ = self._entry(run_id, "", event, by, channel, detail)
        self._pending.append((None, entry, entry, None))
        self.flush()

    def flush(self) -> None:
        """Write the pending journal entry, with the row of its request if there is one, and remember them.

        Raises:
            Stale: Nothing is pending, so that no compare-and-set confirms the verb's result, or more than one statement
                can write; or a row or its chain was changed meanwhile.
        """
        if len(self._pending) != 1:
            raise Stale
        write, values, entry, written = self._pending.pop()
        if written is not None:
            # Ctrl-C may arrive when it is stored and not yet remembered; then the next verb must read it.
            self._cache.certain.pop(written.request.id, None)
        try:
            sql = _APPEND if write is None else _sql(write, self._unread)
            if self._connection.execute(sql, values).rowcount != 1:
                if not self._may_guess:
                    raise errors.StoreCorruptError(
                        "the store did not accept a change of a row that was read under its lock: somebody altered its"
                        " file; nothing was recorded and nothing ran. `sayso log --verify` names what differs"
                    )
                raise Stale
        except sqlite3.IntegrityError:
            # Another process has taken this position in the chain, or holds this fingerprint, or there are records.
            if not self._may_guess:
                raise
            raise Stale from None
        self.heads[entry.run_id] = entry.seq, entry.link
        if written is not None:
            self._cache.put(written)
            self._loaded = self._verified = self._cache.certain[written.request.id] = written
            self.changed.append(written.request.id)


class SingleStatement(SqliteTransaction):
    """A transaction that writes one row of a request, in one statement at its end; anything else raises `Stale`.

    It reads only that row, and only if it is not remembered; the statement detects whether it is still the same. Most
    verbs ask whether there are channels, grants or a stop, and usually there are none: here the answer is no, and the
    statement checks it (`none_of`).
    """

    _may_guess = True

    def __init__(
        self, connection: sqlite3.Connection, cache: RowCache, seal: Seal, schema: Callable[[str], str]
    ) -> None:
        self._connection, self._cache, self._seal, self._schema = connection, cache, seal, schema
        self._execute, self._read_by, self._remembered = _stale, connection.execute, cache.rows
        self._runs, self._pending, self.changed = {}, [], []
        self.heads = cache.heads  # shared, because they are committed as soon as they are written

    def keyed(self, run_id: str, key: str) -> Request | None:  # noqa: ARG002
        return None  # as in `holder`; the statement also looks for the key in the journal

    def record_keys(self, kind: str) -> Sequence[str]:
        if kind not in {CHANNEL, GRANT}:
            raise Stale
        self._unread = (*self._unread, kind)
        return ()

    def find_record(self, kind: str, key: str) -> RecordRow | None:  # noqa: ARG002
        if kind != STOP:
            raise Stale
        self._unread = (*self._unread, kind)
        return None

    def newest(self, run_id: str) -> Entry | None:
        if run_id != CHAIN or STOP not in self._unread:
            raise Stale
        return None  # the statement checks that too

    def note(self, *_: Any, **__: Any) -> None:
        raise Stale


def _stale(*_: Any) -> Any:
    raise Stale
