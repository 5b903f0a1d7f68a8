"""One Postgres transaction, the statements of it, and what this process remembers of rows.

A verb first runs on remembered rows, and writes its one change with one statement: a compare-and-set on `link`, the
hash of the row's newest journal entry, and on the place in the run's chain, which is the primary key of the journal.
Where another process was faster, the statement writes nothing and the verb runs again on what it reads (`Stale`). A
verb that needs more than that statement runs between BEGIN and COMMIT, at READ COMMITTED (`NeedsTransaction`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

from psycopg import errors as faults

from sayso import errors
from sayso.clock import microseconds
from sayso.model.canonical.tags import dumps_sorted
from sayso.model.fingerprint import effect_digest, key_digest
from sayso.model.journal import Entry, chained, first_link
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord
from sayso.stores import codec
from sayso.stores.codec import ASKED_COLUMNS, PROGRESS_COLUMNS, Row, Seal, asked_digest, sealed
from sayso.stores.grants import CHAIN, GRANT, STOP
from sayso.stores.records import RecordRow
from sayso.stores.sql_requests import NEWEST, Selects, none_of
from sayso.stores.sql_tables import SqlTableWrites
from sayso.stores.transaction import CHANNEL, SILENT, Transaction

T = TypeVar("T")
_DIALECT = (
    ("instr(", "strpos("),
    ("json_each(?)", "json_array_elements_text(CAST(? AS json))"),
    ("live IS NULL AND state IN", "final_state IN"),
    ("link = excluded.link", "link = excluded.link, tx = pg_current_xact_id()"),
)
_TABLE = re.compile(r"\b(FROM|JOIN|INTO|UPDATE) (asked|journal|record|request|run|schema_text|standing|step|wait)\b")


@lru_cache(maxsize=1024)
def translated(sql: str) -> bytes:
    """Return a statement of the SQL stores as Postgres wants it: `$1` for `?`, and each table with its schema."""
    for ours, theirs in _DIALECT:
        sql = sql.replace(ours, theirs)
    first, *rest = _TABLE.sub(r"\1 sayso.\2", sql).split("?")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))).encode()


CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_COLUMNS, _ENTRY = ", ".join(Row._fields), ", ".join(Entry._fields)
_WIDTH, _LINK, _ASKED_END = len(Row._fields), Row._fields.index("link"), len(ASKED_COLUMNS)
# With the newest row of the journal about the request, with which its row has to agree, and the end of its chain.
_LOAD = f"""
SELECT {", ".join([*(f"r.{name}" for name in Row._fields), *(f"j.{name}" for name in Entry._fields)])},
h.seq, h.link, r.n
FROM request AS r LEFT JOIN LATERAL (
    SELECT {_ENTRY} FROM journal WHERE run_id = r.run_id AND request_id = r.id ORDER BY seq DESC LIMIT 1
) AS j ON TRUE LEFT JOIN LATERAL (
    SELECT seq, link FROM journal WHERE run_id = r.run_id ORDER BY seq DESC LIMIT 1
) AS h ON TRUE WHERE """
# Also those of which the journal alone still says the effect: their rows were altered, which `verify` finds.
_BY_EFFECT = f"""{_LOAD} r.id IN (
    SELECT id FROM asked WHERE effect_digest = $1 UNION SELECT request_id FROM journal
    WHERE event = 'asked' AND detail LIKE '%"effect":"%' AND substring(detail FROM '"effect":"([^"]*)"') = $1
) ORDER BY r.n"""
SELECTS = Selects(_COLUMNS, _LOAD, _BY_EFFECT)
_GET, _FIND, _FIND_KEY = f"{_LOAD}r.id = ?", f"{_LOAD}r.fingerprint = ? AND r.holds = 1", f"{_LOAD}r.key_digest = ?"
_LAST = "SELECT seq, link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"

# A place in the chain is taken once, and only behind the row that the link is computed from.
_FOLLOWS = "(SELECT link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1) = ?"
_BEGINS = "NOT EXISTS (SELECT 1 FROM journal WHERE run_id = ?)"
_APPEND = f"INSERT INTO journal ({_ENTRY}) SELECT {', '.join('?' * len(Entry._fields))}"
_NOTIFY = ", pg_notify('sayso', ?)"
_ASKED_OF = tuple(name for name in ASKED_COLUMNS if name != "fingerprint")
_STANDING = ("fingerprint", *PROGRESS_COLUMNS)
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))"
_NEW_RECORD = "INSERT INTO record (kind, key, body, due) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_REMEMBERED = 512
_LOOKED_FOR = (CHANNEL, GRANT, STOP)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


@cache
def _insert(*, is_first: bool, kinds: tuple[str, ...], has_key: bool, with_schema: bool, notifies: bool) -> str:
    # Looked for here, so that only who is overtaken at this very moment meets a unique index, and fails.
    guards = [
        _BEGINS if is_first else _FOLLOWS,
        "NOT EXISTS (SELECT 1 FROM standing WHERE fingerprint = ? AND holds = 1)",
    ]
    guards += ["NOT EXISTS (SELECT 1 FROM asked WHERE key_digest = ?)"] * has_key + [none_of(kinds)] * bool(kinds)
    schema = "known AS (INSERT INTO schema_text (id, text) VALUES (?, ?) ON CONFLICT DO NOTHING)," * with_schema
    return f"""WITH {schema} new AS (
        INSERT INTO asked ({", ".join(_ASKED_OF)}) SELECT {_marks(len(_ASKED_OF))} WHERE {" AND ".join(guards)}
        RETURNING n
    ), written AS (
        INSERT INTO standing (n, id, fingerprint, {", ".join(PROGRESS_COLUMNS)}, link)
        SELECT new.n, {_marks(len(PROGRESS_COLUMNS) + 3)} FROM new RETURNING n
    ) {_journal(notifies=notifies)}"""


def _journal(*, notifies: bool) -> str:
    """Return the end of a statement: the row of the journal, if a row of a request was written."""
    return f"{_APPEND} FROM written RETURNING (SELECT n FROM written), {CLOCK}{_NOTIFY * notifies}"


@cache
def _update(again: tuple[str, ...], *, is_first: bool, kinds: tuple[str, ...], is_start: bool, notifies: bool) -> str:
    source, guards = "", ["s.n = ?", "s.id = ?", "s.link = ?", _BEGINS if is_first else _FOLLOWS]
    if is_start:
        # What a hand changed since this process saw the row is found before the call: at the start, all of it counts,
        # and so does the newest row of the journal.
        source = " FROM asked AS a CROSS JOIN journal AS j"
        guards += [
            "a.n = s.n", *_same("a", _ASKED_OF), *_same("s", _STANDING), *_same("j", Entry._fields),
            "NOT EXISTS (SELECT 1 FROM journal WHERE run_id = ? AND seq > ? AND request_id = ?)",
        ]  # fmt: skip
    guards += [none_of(kinds)] * bool(kinds)
    bare = f", bare AS (UPDATE asked SET {_set(again)} FROM written AS w WHERE asked.n = w.n)" if again else ""
    return f"""WITH written AS (
        UPDATE standing AS s SET {_set((*PROGRESS_COLUMNS, "link"))}{source} WHERE {" AND ".join(guards)} RETURNING s.n
    ){bare} {_journal(notifies=notifies)}"""


_OPTIONAL = {"risk", "masked", "key_digest", "effect_digest", "holds", "live", "ends_at", "claimed_by"}


def _same(table: str, names: Sequence[str]) -> tuple[str, ...]:
    # Only `=` finds a row by an index.
    return tuple(f"{table}.{name} {'IS NOT DISTINCT FROM' if name in _OPTIONAL else '='} ?" for name in names)


def _set(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in names)


class Stale(Exception):
    """What was remembered, or read, is not what the store holds any more; nothing was written."""


class NeedsTransaction(Exception):
    """The verb needs more than one statement; nothing was written."""


class KnownRow(NamedTuple):
    """A row as this process last saw it.

    Attributes:
        row: The columns of `Row`.
        request: What they mean.
        newest: The newest row of the journal about the request; None where there is none.
        is_ours: Whether this process wrote both, which then need no other witness.
        asked: Digest of what never changes, where it is known; what was asked may be long.
        n: Its place in the order in which requests were asked; None where the answer that said so was lost.
    """

    row: tuple[Any, ...]
    request: Request
    newest: Entry | None
    is_ours: bool = False
    asked: str | None = None
    n: int | None = None


class Memory:
    """What this process last saw: rows of requests, ends of chains, which kinds of records there are, kept schemas.

    The schemas are surely committed. Of everything else the statements find out when it is not so any more.
    """

    def __init__(self) -> None:
        self.rows: dict[str, KnownRow] = {}
        self.heads: dict[str, tuple[int, str]] = {}
        self.kept_schemas: set[str] = set()
        self.present: set[str] = set()

    def clear(self) -> None:
        """Forget all of it: it may not be so."""
        self.__init__()

    def read(self, found: tuple[Any, ...], seal: Seal, schema: Callable[[str], str]) -> KnownRow:
        """Return what `SELECTS.load` found, or a row alone; the same request as before while its row is the same."""
        if len(found) == _WIDTH:
            known = self.rows.get(found[0])
            if known is not None and known.row == found:
                return known
            return KnownRow(found, codec.request_of(Row._make(found), seal, schema), None)
        row, entry, head = found[:_WIDTH], found[_WIDTH : _WIDTH + len(Entry._fields)], found[-3:-1]
        newest = None if entry[0] is None else Entry._make(entry)
        known = self.rows.get(row[0])
        if known is not None and known.row == row:
            if known.newest == newest:
                self.keep_head(known.request.run_id, head)
                return known
            request = known.request
        else:
            request = codec.request_of(Row._make(row), seal, schema)
        read = KnownRow(row, request, newest, n=found[-1])
        self.put(read)
        self.keep_head(request.run_id, head)
        return read

    def keep_head(self, run_id: str, head: tuple[Any, ...]) -> None:
        """Remember the end of a chain."""
        if head[0] is not None and self.heads.get(run_id, (0, ""))[0] < head[0]:
            if len(self.heads) >= _REMEMBERED:
                self.heads.clear()
            self.heads[run_id] = head[0], head[1]

    def put(self, known: KnownRow) -> None:
        """Remember a row; not one of which nobody knows where it stands."""
        if known.n is None:
            self.rows.pop(known.request.id, None)
            return
        if len(self.rows) >= _REMEMBERED:
            self.rows.clear()
        self.rows[known.request.id] = known

    def committed(self, tx: PostgresTransaction) -> None:
        """Remember what a transaction wrote."""
        for known in tx.written:
            self.put(known)
        for run_id, head in tx.heads.items():
            self.keep_head(run_id, head)
        self.kept_schemas |= tx.schemas


def verify_known(known: KnownRow, seal: Seal) -> bool:
    """Say whether all columns of a row match the newest journal row about its request."""
    if known.is_ours:
        return True
    newest = known.newest
    return newest is not None and codec.verify_row(known.row, (newest.link, newest.detail), seal)


class PostgresTransaction(SqlTableWrites, Transaction):
    """The verbs' view of one connection.

    Args:
        execute: Runs a statement of the SQL stores, in a transaction; in none with `is_alone`.
        memory: What is remembered.
        seal: Seals and opens texts.
        schema: Looks a schema's text up.
        now: Tells the store's instant.
        is_alone: Write one row of a request, in `commit_alone`; what else is wanted is `NeedsTransaction`.
        may_guess: Take rows from memory.
        absent: Kinds of `_LOOKED_FOR` of which the works before in the same commit found nothing; each adds to it.

    Attributes:
        written: The rows of requests that were written, in order.
        changed_runs: Ids of runs that were written.
        entries: The rows of the journal that were written.
        heads, schemas: For `Memory.committed`.
        has_guessed: Whether something was taken from memory, or taken to be absent.
        has_written: Whether a statement wrote something.
        told: The database's clock at its last answer, in microseconds.
    """

    find_by = f"{SqlTableWrites.find_by} FOR UPDATE"  # nobody changes it before what is written because of this look

    def __init__(
        self, execute: Callable[[str, Sequence[Any]], Any], memory: Memory, seal: Seal, schema: Callable[[str], str],
        now: Callable[[], datetime], *, is_alone: bool, may_guess: bool, absent: set[str] | None = None,
    ) -> None:  # fmt: skip
        self._read_by, self._execute = execute, _not_alone if is_alone else self._noted
        self._memory, self._seal, self._schema = memory, seal, schema
        self._clock, self._is_alone, self._may_guess = now, is_alone, may_guess
        self._now: datetime | None = None
        self._loaded: KnownRow | None = None  # the last one
        self._pending: tuple[str, tuple[Any, ...], Entry, KnownRow] | None = None
        self._unread: tuple[str, ...] = (CHANNEL,) if is_alone else ()  # kinds of which the statement sees to it itself
        self._missing: set[tuple[str, str]] = set()
        self._absent = set[str]() if absent is None else absent
        self.has_guessed = self.has_written = False
        self.written: list[KnownRow] = []
        self.changed_runs = list[str]()
        self.entries: list[Entry] = []
        self.heads: dict[str, tuple[int, str]] = {}
        self.schemas: set[str] = set()
        self.told: int | None = None

    @property
    def is_read_only(self) -> bool:
        """Whether nothing was written, nor could have been."""
        return not self.has_written and self._pending is None

    @property
    def changed(self) -> list[str]:
        """Ids of requests and runs that were written."""
        return [known.request.id for known in self.written] + self.changed_runs

    def now(self) -> datetime:
        self._now = self._clock()
        return self._now

    def load(self, request_id: str) -> Request:
        known = next((one for one in reversed(self.written) if one.request.id == request_id), None)
        if known is None and self._may_guess and (known := self._memory.rows.get(request_id)) is not None:
            self.has_guessed = True
        if known is not None:
            self._loaded = known
            return known.request
        found = self._read_by(_GET, (request_id,)).fetchone()
        if found is None:
            raise errors.RequestNotFoundError(request_id)
        return self._read(found)

    def holder(self, fingerprint: str) -> Request | None:
        if self._may_guess:
            return None  # whoever asks has just looked; if somebody was faster, the statement says so
        found = self._read_by(_FIND, (fingerprint,)).fetchone()
        return None if found is None else self._read(found)

    def keyed(self, run_id: str, key: str) -> Request | None:
        if self._may_guess:
            return None  # as for `holder`
        found = self._read_by(_FIND_KEY, (key_digest(run_id, key),)).fetchone()
        return None if found is None else self._read(found)

    def with_effect(self, effect: str) -> Sequence[Request]:
        digest = effect_digest(effect)
        # Two starts of one effect, each of which reads before the other writes, would both find it free.
        self._execute(_LOCK, (f"effect:{digest}",))
        rows = self._execute(_BY_EFFECT, (digest,)).fetchall()
        read = [self._memory.read(found, self._seal, self._schema) for found in rows]
        for one in read:
            if not verify_known(one, self._seal):
                raise codec.altered(one.request.id, is_start=True)
        return [one.request for one in read]

    def _read(self, found: tuple[Any, ...]) -> Request:
        self._loaded = self._memory.read(found, self._seal, self._schema)
        return self._loaded.request

    # -- records and runs --------------------------------------------------------------------------------------

    def record_keys(self, kind: str) -> Sequence[str]:
        # Whether there is a channel, which is asked of every change, is looked for by the statement itself; and whether
        # there are grants, which is asked of what is new.
        if self._is_unread(kind, GRANT) or kind in self._absent:
            return ()
        found = super().record_keys(kind)
        if not found and kind in _LOOKED_FOR:
            self._absent.add(kind)
        return self._looked(kind, found)

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        if self._is_unread(kind, STOP) or kind in self._absent:
            return None
        try:
            found = super().find_record(kind, key)
        except faults.DataError:  # a text with a zero byte, which no row can hold
            return None
        if found is None:
            self._missing.add((kind, key))
        return self._looked(kind, found)

    def put_record(self, row: RecordRow) -> None:
        if (row.kind, row.key) not in self._missing:
            super().put_record(row)
        elif self._execute(_NEW_RECORD, self.closed(row)).rowcount != 1:
            raise Stale  # somebody made it since this verb looked
        self._missing.discard((row.kind, row.key))

    def _is_unread(self, kind: str, other: str) -> bool:
        """Say whether the statement alone looks for a kind of record; from then on it does."""
        if not self._is_alone or (kind not in self._unread and (kind != other or self._pending is not None)):
            return False
        if kind in self._memory.present:
            raise NeedsTransaction
        if kind not in self._unread:
            self._unread = (*self._unread, kind)
        self.has_guessed = True
        return True

    def _looked(self, kind: str, found: T) -> T:
        """Remember whether there is a record of a kind that statements look for; return what was found."""
        if kind in _LOOKED_FOR:
            (self._memory.present.add if found else self._memory.present.discard)(kind)
        return found

    def _found(self, run_id: str) -> tuple[RunRecord, int, str | None] | None:
        self._execute(_LOCK, (f"run:{run_id}",))  # nobody else takes the run, or adds a step, until this is committed
        return super()._found(run_id)

    # -- writing -----------------------------------------------------------------------------------------------

    def insert(self, transition: Transition) -> None:
        request, seal, memory = transition.request, self._seal, self._memory
        schema_id = codec.schema_id(request.subject.schema)
        schema = () if schema_id in memory.kept_schemas else (schema_id, request.subject.schema)
        asked, progress = codec.asked_values(request, seal), codec.progress_values(request, seal)
        digest = transition.detail["asked"] = asked_digest(asked, seal)
        transition.detail["row_digest"] = codec.row_digest((*asked, *progress), seal, digest)
        entry, before = self._entry(request.run_id, request.id, *transition[1:])
        row = Row._make((*asked, *progress, entry.link))
        sql = _insert(
            is_first=len(before) == 1, kinds=self._unread, has_key=row.key_digest is not None, with_schema=bool(schema),
            notifies=_notifies(entry.event),
        )  # fmt: skip
        unique = (row.fingerprint,) if row.key_digest is None else (row.fingerprint, row.key_digest)
        new = (value for name, value in zip(ASKED_COLUMNS, asked, strict=True) if name != "fingerprint")
        values = (*schema, *new, *before, *unique, row.id, row.fingerprint, *progress, entry.link, *entry)
        self._write(sql, values, entry, KnownRow(row, request, entry, is_ours=True, asked=digest))
        if schema:
            self.schemas.add(schema_id)

    def update(self, transition: Transition) -> None:
        request, known = transition.request, self._loaded
        if known is None or known.request.id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # they load first
        if not self.verify(known.request):
            raise codec.altered(request.id)
        detail, seal, old = transition.detail, self._seal, Row._make(known.row)
        again = codec.asked_again(known.request, request, seal, detail)
        asked = old._replace(**again)[:_ASKED_END]
        digest = detail["asked"] if "asked" in again else known.asked or asked_digest(asked, seal)
        progress = codec.progress_values(request, seal)
        detail["row_digest"] = codec.row_digest((*asked, *progress), seal, digest)
        entry, before = self._entry(request.run_id, request.id, *transition[1:])
        is_start = entry.event == "started"
        sql = _update(
            tuple(again),
            is_first=len(before) == 1,
            kinds=self._unread if entry.event not in SILENT else self._unread[1:],
            is_start=is_start,
            notifies=_notifies(entry.event),
        )
        compared: tuple[Any, ...] = ()
        if is_start and known.newest is not None:
            newest = known.newest
            values_of = old._asdict()
            compared = (
                *map(values_of.get, _ASKED_OF), *map(values_of.get, _STANDING), *newest,
                newest.run_id, newest.seq, newest.request_id,
            )  # fmt: skip
        values = (
            *progress, entry.link, known.n, request.id, old.link, *before, *compared, *again.values(), *entry
        )  # fmt: skip
        row = (*asked, *progress, entry.link)
        self._write(sql, values, entry, KnownRow(row, request, entry, is_ours=True, asked=digest, n=known.n))

    def verify(self, request: Request) -> bool:
        known = self._loaded
        if known is None or known.request.id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # they load first
        if verify_known(known, self._seal):
            self._loaded = known._replace(is_ours=True)
            return True
        if self.has_guessed:
            raise Stale
        return False

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        if self._is_alone:
            raise NeedsTransaction
        entry, before = self._entry(run_id, "", event, by, channel, detail)
        append = f"{_APPEND} WHERE {_BEGINS if len(before) == 1 else _FOLLOWS} ON CONFLICT DO NOTHING"
        if self._execute(append, (*entry, *before)).rowcount != 1:
            raise Stale
        self.entries.append(entry)
        self.heads[run_id] = entry.seq, entry.link

    def newest(self, run_id: str) -> Entry | None:
        if run_id == CHAIN and STOP in (self._unread if self._is_alone else self._absent):
            return None  # the statement looks, or a work before did
        if run_id != CHAIN:  # of two that make a record, the second would find a row of the journal and no record
            self._execute(_LOCK, (f"chain:{run_id}",))
        found = self._execute(NEWEST, (run_id,)).fetchone()
        newest = None if found is None else Entry._make(found)
        if run_id == CHAIN and (newest is None or newest.event != "stopped"):
            self._absent.add(STOP)  # asked where there is no record of it
        return newest

    @property
    def statement(self) -> tuple[str, tuple[Any, ...]] | None:
        """The one statement that is to be run, with its values; None where nothing is to be written."""
        return None if self._pending is None else self._pending[:2]

    def commit_alone(self) -> None:
        """Write the one row in a statement of its own, which is a transaction."""
        if self._pending is not None:
            self._run(*self._pending)
        elif self.has_guessed:
            raise Stale  # an answer from memory that no compare-and-set has confirmed

    def answered(self, found: tuple[Any, ...] | None) -> None:
        """Take what the one statement answered, which somebody else ran."""
        if self._pending is not None:
            self._answered(found, *self._pending[2:])

    def take_pending(self) -> None:
        """Take the one row for written, of which the answer was lost."""
        if self._pending is not None:
            self._take(*self._pending[2:])

    def _noted(self, sql: str, values: Sequence[Any]) -> Any:
        self.has_written = self.has_written or not sql.lstrip().startswith("SELECT")
        return self._read_by(sql, values)

    def _write(self, sql: str, values: tuple[Any, ...], entry: Entry, written: KnownRow) -> None:
        if _notifies(entry.event):
            values = (*values, written.request.id)
        self.entries.append(entry)  # before the answer, which may be lost on its way
        if not self._is_alone:
            self._run(sql, values, entry, written)
        elif self._pending is None:
            self._pending = sql, values, entry, written
        else:
            raise NeedsTransaction

    def _run(self, sql: str, values: tuple[Any, ...], entry: Entry, written: KnownRow) -> None:
        try:
            found = self._read_by(sql, values).fetchone()
        except faults.UniqueViolation:
            raise Stale from None  # somebody else asked the same at this moment
        self._answered(found, entry, written)

    def _answered(self, found: tuple[Any, ...] | None, entry: Entry, written: KnownRow) -> None:
        if found is None:
            raise Stale
        n, self.told, *_ = found
        self._take(entry, written._replace(n=n))

    def _take(self, entry: Entry, written: KnownRow) -> None:
        self.heads[entry.run_id] = entry.seq, entry.link
        self._loaded = written
        self.written.append(written)
        self.has_written = True

    def _entry(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> tuple[Entry, tuple[Any, ...]]:
        """Return the next row of a run's chain, its run, and the link of the one before it if there is one."""
        head = self.heads.get(run_id)
        if head is None:
            head = self._memory.heads.get(run_id) if self._may_guess else None
            if head is None and event == "asked" and self._may_guess:
                head = 0, first_link(run_id)  # most begin their run; where not, the place is taken
            if head is None:
                head = self._read_by(_LAST, (run_id,)).fetchone() or (0, first_link(run_id))
        if not self._seal.is_open:
            detail = sealed(detail, request_id or run_id, self._seal)
        seq, link = head
        at, text = microseconds(self._now or self._clock()), dumps_sorted(detail)
        entry = chained(link, run_id, seq + 1, at, request_id, event, by.qualified, channel, text)
        return entry, (run_id, link) if seq else (run_id,)


def _notifies(event: str) -> bool:
    """Say whether a change is told to other processes at once; the others are found by who looks."""
    return event not in {"asked", "started"}


def _not_alone(*_: Any) -> Any:
    raise NeedsTransaction
