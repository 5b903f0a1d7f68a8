"""One Postgres transaction, and what this process remembers of rows.

A verb first runs on remembered rows, and writes its one change with one statement, which is a compare-and-set (see
`sayso.stores.postgres_statements`). Where another process was faster, the statement writes nothing and the verb runs
again on what it reads (`Stale`). A verb that needs more than that statement runs between BEGIN and COMMIT, at READ
COMMITTED (`NeedsTransaction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors as faults

from sayso import errors
from sayso.clock import microseconds
from sayso.model.canonical.tags import dumps_sorted
from sayso.model.ids import effect_digest, key_digest
from sayso.model.journal import Entry, chained, first_link
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord
from sayso.stores import codec
from sayso.stores.codec import ASKED_COLUMNS, Row, Seal, sealed
from sayso.stores.grants import CHAIN, GRANT, STOP
from sayso.stores.postgres_statements import (
    APPEND,
    ASKED_OF,
    BEGINS,
    BY_EFFECT,
    FIND,
    FIND_KEY,
    FOLLOWS,
    GET,
    LAST,
    LOCK,
    NEW_RECORD,
    STANDING,
    insert_of,
    translated,
    update_of,
)  # fmt: skip
from sayso.stores.records import RecordRow
from sayso.stores.sql_requests import NEWEST
from sayso.stores.sql_tables import SqlTableWrites
from sayso.stores.transaction import CHANNEL, SILENT, Transaction

T = TypeVar("T")
_REMEMBERED = 512
_LOOKED_FOR = (CHANNEL, GRANT, STOP)
_WIDTH, _ASKED_END = len(Row._fields), len(ASKED_COLUMNS)


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


def _put(remembered: dict[str, T], key: str, value: T) -> None:
    """Remember a value, and forget the one that was put longest ago where there are too many."""
    remembered.pop(key, None)
    if len(remembered) >= _REMEMBERED:
        del remembered[next(iter(remembered))]
    remembered[key] = value


class Outbox:
    """Statements of many works in one transaction that are sent together, once somebody needs an answer.

    Those with one text leave together; those about one run leave in the order in which they came.

    Args:
        connection: In a transaction.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._waiting: dict[str, list[tuple[Sequence[Any], list[Any]]]] = {}
        self._runs: dict[str, str] = {}  # which statement about a run waits

    def put(self, run_id: str, sql: str, values: Sequence[Any]) -> list[Any]:
        """Take a statement about a run; return what its answer will be appended to: a row, or None."""
        if self._runs.setdefault(run_id, sql) != sql:
            self.send()  # the place in the run's chain is behind that one
            self._runs[run_id] = sql
        answer: list[Any] = []
        self._waiting.setdefault(sql, []).append((values, answer))
        return answer

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement after those that wait."""
        self.send()
        return self._connection.execute(translated(sql), values)

    def send(self) -> None:
        """Send what waits, and take the answers."""
        waiting, self._waiting = self._waiting, {}
        self._runs.clear()
        for sql, sent in waiting.items():
            cursor = self._connection.cursor()
            # In one go: half of the processor time of a statement is its cursor, and most of its time the way.
            cursor.executemany(translated(sql), [values for values, _ in sent], returning=True)
            for _, answer in sent:
                answer.append(cursor.fetchone())
                cursor.nextset()


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
            _put(self.heads, run_id, (head[0], head[1]))

    def put(self, known: KnownRow) -> None:
        """Remember a row; not one of which nobody knows where it stands."""
        if known.n is None:
            self.rows.pop(known.request.id, None)
            return
        _put(self.rows, known.request.id, known)

    def committed(self, tx: PostgresTransaction) -> None:
        """Remember what a transaction wrote."""
        for known in tx.written:
            self.put(known)
        for run_id, head in tx.heads.items():
            self.keep_head(run_id, head)
        self.kept_schemas |= tx.schemas

    def forget(self, tx: PostgresTransaction) -> None:
        """Forget what a transaction was to have written."""
        for known in tx.written:
            self.rows.pop(known.request.id, None)
        for run_id in tx.heads:
            self.heads.pop(run_id, None)


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
        outbox: Gets what changes requests; `settle` takes the answers. None sends it, and waits.

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
        outbox: Outbox | None = None,
    ) -> None:  # fmt: skip
        self._read_by, self._execute = execute, _not_alone if is_alone else self._noted
        self._memory, self._seal, self._schema = memory, seal, schema
        self._clock, self._is_alone, self._may_guess, self._outbox = now, is_alone, may_guess, outbox
        self._now: datetime | None = None
        self._loaded: KnownRow | None = None  # the last one
        self._pending: tuple[str, tuple[Any, ...], Entry, KnownRow] | None = None
        self._unread: tuple[str, ...] = (CHANNEL,) if is_alone else ()  # kinds of which the statement sees to it itself
        self._missing: set[tuple[str, str]] = set()
        self._absent = set[str]() if absent is None else absent
        self.has_guessed = self.has_written = False
        self._unanswered: list[tuple[list[Any], int]] = []  # answers, and which of `written` each is about
        self._statements = 0  # that write
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
        if known is not None and known.n is None:
            self.settle()
            return self.load(request_id)
        if known is None and self._may_guess and (known := self._memory.rows.get(request_id)) is not None:
            self.has_guessed = True
        if known is not None:
            self._loaded = known
            return known.request
        found = self._read_by(GET, (request_id,)).fetchone()
        if found is None:
            raise errors.RequestNotFoundError(request_id)
        return self._read(found)

    def holder(self, fingerprint: str) -> Request | None:
        if self._may_guess:
            return None  # whoever asks has just looked; if somebody was faster, the statement says so
        found = self._read_by(FIND, (fingerprint,)).fetchone()
        return None if found is None else self._read(found)

    def keyed(self, run_id: str, key: str) -> Request | None:
        if self._may_guess:
            return None  # as for `holder`
        found = self._read_by(FIND_KEY, (key_digest(run_id, key),)).fetchone()
        return None if found is None else self._read(found)

    def with_effect(self, effect: str) -> Sequence[Request]:
        digest = effect_digest(effect)
        # Two starts of one effect, each of which reads before the other writes, would both find it free.
        self._execute(LOCK, (f"effect:{digest}",))
        rows = self._execute(BY_EFFECT, (digest,)).fetchall()
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
        elif self._execute(NEW_RECORD, self.closed(row)).fetchone() is None:
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
        self._execute(LOCK, (f"run:{run_id}",))  # nobody else takes the run, or adds a step, until this is committed
        return super()._found(run_id)

    # -- writing -----------------------------------------------------------------------------------------------

    def insert(self, transition: Transition) -> None:
        request, seal, memory = transition.request, self._seal, self._memory
        schema_id = codec.schema_id(request.subject.schema)
        schema = () if schema_id in memory.kept_schemas else (schema_id, request.subject.schema)
        values, digest = codec.insert_values(request, seal, transition.detail)
        asked, progress = values[:_ASKED_END], values[_ASKED_END:]
        entry, before = self._entry(request.run_id, request.id, *transition[1:])
        row = Row._make((*values, entry.link))
        sql = insert_of(
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
        if self._unanswered and self._loaded is not None and self._loaded.n is None:
            self.settle()  # which says where the row stands
        request, known = transition.request, self._loaded
        if known is None or known.request.id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # they load first
        if not self.verify(known.request):
            raise codec.altered(request.id)
        old = Row._make(known.row)
        again, progress, digest = codec.update_values(
            known.row, known.request, request, self._seal, transition.detail, known.asked
        )
        asked = old._replace(**again)[:_ASKED_END] if again else old[:_ASKED_END]
        entry, before = self._entry(request.run_id, request.id, *transition[1:])
        is_start = entry.event == "started"
        sql = update_of(
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
                *map(values_of.get, ASKED_OF), *map(values_of.get, STANDING), *newest,
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
        append = f"{APPEND} WHERE {BEGINS if len(before) == 1 else FOLLOWS} ON CONFLICT DO NOTHING RETURNING 1"
        if self._execute(append, (*entry, *before)).fetchone() is None:
            raise Stale
        self.entries.append(entry)
        self.heads[run_id] = entry.seq, entry.link

    def newest(self, run_id: str) -> Entry | None:
        if run_id == CHAIN and STOP in (self._unread if self._is_alone else self._absent):
            return None  # the statement looks, or a work before did
        if run_id != CHAIN:  # of two that make a record, the second would find a row of the journal and no record
            self._execute(LOCK, (f"chain:{run_id}",))
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

    def settle(self) -> None:
        """Take the answers to what was written; raises `Stale` where a comparison failed."""
        if self._unanswered and self._outbox is not None:
            self._outbox.send()
        waiting, self._unanswered = self._unanswered, []
        for (found,), place in waiting:
            if found is None:
                raise Stale
            known, (n, self.told, *_) = self.written[place], found
            self.written[place] = settled = known._replace(n=n)
            if self._loaded is known:
                self._loaded = settled

    @property
    def wrote_once(self) -> bool:
        """Whether one statement wrote, which writes nothing where it is stale."""
        return self._statements == 1 and len(self.written) == 1

    def _noted(self, sql: str, values: Sequence[Any]) -> Any:
        if not sql.lstrip().startswith("SELECT"):
            self.has_written = True
            self._statements += 1
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
        self._statements += 1
        if self._outbox is not None:
            self._unanswered.append((self._outbox.put(entry.run_id, sql, values), len(self.written)))
            self._take(entry, written)
            return
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
                head = self._read_by(LAST, (run_id,)).fetchone() or (0, first_link(run_id))
        if not self._seal.is_open:
            detail = sealed(detail, request_id or run_id, self._seal)
        seq, link = head
        at, text = microseconds(self._now or self._clock()), dumps_sorted(detail)
        entry = chained(link, run_id, seq + 1, at, request_id, event, by.qualified, channel, text)
        return entry, (run_id, link) if seq else (run_id,)


def _notifies(event: str) -> bool:
    """Say whether a change is told to other processes at once; a start is found by who looks."""
    return event != "started"


def _not_alone(*_: Any) -> Any:
    raise NeedsTransaction
