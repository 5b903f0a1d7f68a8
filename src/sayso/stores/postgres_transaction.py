"""One Postgres transaction, and the rows that this process remembers.

A verb first runs on remembered rows, and writes its one change with one statement, which is a compare-and-set (see
`sayso.stores.postgres_database`). If another process was faster, the statement writes nothing and the verb runs again
on stored rows (`Stale`). A verb that needs more than that statement runs between BEGIN and COMMIT, at READ COMMITTED
(`NeedsTransaction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from psycopg import errors as faults

from sayso import errors
from sayso.model.ids import effect_digest
from sayso.model.journal import Entry
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.stores import codec, postgres_database
from sayso.stores.codec import ASKED_COLUMNS, RequestRow, Seal
from sayso.stores.grants import CHAIN, GRANT, STOP
from sayso.stores.postgres_database import LOCK, SELECTS
from sayso.stores.records import RecordRow
from sayso.stores.sql import SqlTransaction, Stale, StoredRun, stored_run
from sayso.stores.transaction import CHANNEL, ENDS_OF_CALLS, SILENT

T = TypeVar("T")
_REMEMBERED = 512
_LOOKED_FOR = (CHANNEL, GRANT, STOP)
_WIDTH, _ASKED_END = len(RequestRow._fields), len(ASKED_COLUMNS)


class NeedsTransaction(Exception):
    """The verb needs more than one statement; nothing was written."""


class KnownRow(NamedTuple):
    """A row as this process last saw it.

    Attributes:
        row: The columns of `RequestRow`.
        request: Their request.
        newest: The newest journal entry of the request; None if there is none.
        is_ours: Whether this process wrote both, so that they need no verification.
        asked: Digest of what never changes, if it is known; computing it is slow for long requests.
        n: Its position in the order of asking; None until the answer to its insertion is read.
        versions: Those of its rows in `asked` and `standing` and of `newest`; empty until the answer to what wrote them
            is read.
    """

    row: tuple[Any, ...]
    request: Request
    newest: Entry | None
    is_ours: bool = False
    asked: str | None = None
    n: int | None = None
    versions: tuple[str, str, str] = ("", "", "")

    def answered(self, found: tuple[Any, ...]) -> KnownRow:
        """Return it with what the statement that wrote it returned."""
        _, version, *more = found
        versions = (self.versions[0] or version, version, version)
        return KnownRow(*self[:5], more[0] if self.n is None else self.n, versions)


def _put(remembered: dict[str, T], key: str, value: T) -> None:
    """Remember a value, and forget the oldest one if there are too many."""
    remembered.pop(key, None)
    while len(remembered) >= _REMEMBERED:
        with suppress(KeyError, RuntimeError):  # a thread that reads may remember and forget at the same moment
            del remembered[next(iter(remembered))]
    remembered[key] = value


class RowCache:
    """What this process last saw: rows of requests, ends of chains, which kinds of records exist, stored schemas.

    The statements detect if anything of it is out of date, e.g. because an older copy of the database was restored.

    Attributes:
        holders: Ids of the requests that hold, by fingerprint.
    """

    def __init__(self) -> None:
        self.rows: dict[str, KnownRow] = {}
        self.holders: dict[str, str] = {}
        self.heads: dict[str, tuple[int, str]] = {}
        self.kept_schemas: set[str] = set()
        self.present: set[str] = set()

    def clear(self) -> None:
        """Forget everything, because it may be wrong."""
        self.__init__()

    def read(self, found: tuple[Any, ...], seal: Seal, schema: Callable[[str], str]) -> KnownRow:
        """Return what `SELECTS.load` found, or a row alone. The request object is the same as long as its row is."""
        if len(found) == _WIDTH:
            known = self.rows.get(found[0])
            if known is not None and known.row == found:
                return known
            return KnownRow(found, codec.request_of(RequestRow._make(found), seal, schema), None)
        row, entry, (*head, n), versions = found[:_WIDTH], found[_WIDTH:-6], found[-6:-3], found[-3:]
        newest = None if entry[0] is None else Entry._make(entry)
        known = self.rows.get(row[0])
        if known is not None and known.row == row:
            if known.newest == newest and known.versions == versions:
                self.keep_head(known.request.run_id, head)
                return known
            request = known.request
        else:
            request = codec.request_of(RequestRow._make(row), seal, schema)
        read = KnownRow(row, request, newest, n=n, versions=versions)
        self.put(read)
        self.keep_head(request.run_id, head)
        return read

    def keep_head(self, run_id: str, head: Sequence[Any]) -> None:
        """Remember the end of a chain."""
        if head[0] is not None and self.heads.get(run_id, (0, ""))[0] < head[0]:
            _put(self.heads, run_id, (head[0], head[1]))

    def put(self, known: KnownRow) -> None:
        """Remember a row, unless its position or version is unknown."""
        request = known.request
        if not known.versions[1]:
            self.rows.pop(request.id, None)
            return
        _put(self.rows, request.id, known)
        if request.holds:
            _put(self.holders, request.fingerprint, request.id)
        elif self.holders.get(request.fingerprint) == request.id:
            self.holders.pop(request.fingerprint, None)

    def committed(self, tx: PostgresTransaction) -> None:
        """Remember what a transaction wrote."""
        for known in tx.written:
            self.put(known)
        for run_id, head in tx.heads.items():
            self.keep_head(run_id, head)
        self.kept_schemas |= tx.schemas


class PostgresTransaction(SqlTransaction):
    """The verbs' view of one connection.

    Args:
        execute: Runs a statement of the SQL stores: in a transaction, or in none with `is_alone`.
        cache: The remembered rows.
        seal: Encrypts and decrypts texts.
        schema: Returns a schema's text.
        now: Returns the store's time.
        is_alone: Write one row of a request, in `conclude`; anything else raises `NeedsTransaction`.
        may_guess: Whether rows may come from the cache.
        absent: Kinds of `_LOOKED_FOR` of which earlier works in the same commit found no record; works add to it.

    Attributes:
        written: The written rows of requests, in order.
        entries: The written journal entries.
        has_guessed: Whether something came from the cache, or was assumed to be absent.
        has_written: Whether a statement wrote something.
        server_time: The database's clock at its last answer, in microseconds.
    """

    selects = SELECTS
    find_by = f"{SqlTransaction.find_by} FOR UPDATE"  # nobody changes it before what is written because of it
    _loaded: KnownRow | None = None
    _pending: tuple[str, tuple[Any, ...], Entry, KnownRow] | None = None
    has_guessed = has_written = False
    server_time: int | None = None

    def __init__(
        self, execute: Callable[[str, Sequence[Any]], Any], cache: RowCache, seal: Seal, schema: Callable[[str], str],
        now: Callable[[], datetime], *, is_alone: bool, may_guess: bool, absent: set[str] | None = None,
    ) -> None:  # fmt: skip
        self._read_by, self._execute = execute, _not_alone if is_alone else self._noted
        self._cache, self._seal, self._schema = cache, seal, schema
        self._clock, self._is_alone, self._may_guess = now, is_alone, may_guess
        self._unread: tuple[str, ...] = (CHANNEL,) if is_alone else ()  # kinds that the statement itself checks
        self._missing: set[tuple[str, str]] = set()
        self._absent = set[str]() if absent is None else absent
        self.written: list[KnownRow] = []
        self.changed_runs, self._runs = list[str](), {}
        self.entries: list[Entry] = []
        self.heads: dict[str, tuple[int, str]] = {}
        self.schemas: set[str] = set()

    @property
    def changed(self) -> list[str]:
        """Ids of the written requests and runs."""
        return [known.request.id for known in self.written] + self.changed_runs

    def now(self) -> datetime:
        self._now = self._clock()
        return self._now

    def load(self, request_id: str) -> Request:
        known = next((one for one in reversed(self.written) if one.request.id == request_id), None)
        if known is None and self._may_guess and (known := self._cache.rows.get(request_id)) is not None:
            self.has_guessed = True
        if known is not None:
            self._loaded = known
            return known.request
        return super().load(request_id)

    def _read(self, found: tuple[Any, ...]) -> Request:
        request = super()._read(found)
        seq, link = found[-6:-4]
        if seq is not None:  # a statement that goes on from an older end writes nothing
            self.heads.setdefault(request.run_id, (seq, link))
        return request

    def keyed(self, run_id: str, key: str) -> Request | None:
        return None if self._may_guess else super().keyed(run_id, key)  # as in `holder`

    def with_effect(self, effect: str) -> Sequence[Request]:
        # Without the lock, two starts of one effect that both read before either writes would both find it free.
        self._execute(LOCK, (f"effect:{effect_digest(effect)}",))
        return super().with_effect(effect)

    # -- records and runs --------------------------------------------------------------------------------------

    def record_keys(self, kind: str) -> Sequence[str]:
        # The statement itself checks whether there is a channel (asked for every change) and whether there are grants
        # (asked for every new request).
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
        except faults.DataError:  # a text with a zero byte, which no row can contain
            return None
        if found is None:
            self._missing.add((kind, key))
        return self._looked(kind, found)

    def put_record(self, row: RecordRow) -> None:
        if row.kind in self._absent:
            self._absent = self._absent.difference({row.kind})  # a copy: earlier works did not find this one
        if (row.kind, row.key) not in self._missing:
            super().put_record(row)
        elif self._execute(postgres_database.NEW_RECORD, self.closed(row)).fetchone() is None:
            raise Stale  # somebody created it since this verb looked
        self._missing.discard((row.kind, row.key))

    def _is_unread(self, kind: str, other: str) -> bool:
        """Return whether the statement itself checks a kind of record; if so, register the kind for that."""
        if not self._is_alone or (kind not in self._unread and (kind != other or self._pending is not None)):
            return False
        if kind in self._cache.present:
            raise NeedsTransaction
        if kind not in self._unread:
            self._unread = (*self._unread, kind)
        self.has_guessed = True
        return True

    def _looked(self, kind: str, found: T) -> T:
        """Remember whether there is a record of a kind that statements check; return `found`."""
        if kind in _LOOKED_FOR:
            (self._cache.present.add if found else self._cache.present.discard)(kind)
        return found

    def _read_run(self, run_id: str, *, skip_locked: bool) -> StoredRun | None:
        if not skip_locked:
            return super()._read_run(run_id, skip_locked=False)
        found = self._execute(postgres_database.TAKE_RUN, (run_id,)).fetchone()
        if found is not None:
            with suppress(errors.StoreCorruptError):  # the lock is on a newer row than the step that was read with it
                return stored_run(found)
        known = super()._read_run(run_id, skip_locked=False)
        if found is None and known is not None:
            raise errors.RunBusyError(run_id)
        return known

    def _write_run(self, values: tuple[Any, ...], before: str | None) -> None:
        if self._execute(postgres_database.PUT_RUN, (*values, before)).fetchone() is None:
            raise Stale  # somebody else has taken the run or added a step since this transaction read it

    # -- writing -----------------------------------------------------------------------------------------------

    def insert(self, transition: Transition) -> None:
        request, seal, cache = transition.request, self._seal, self._cache
        schema_id = codec.schema_id(request.subject.schema)
        is_kept = self._may_guess and schema_id in cache.kept_schemas
        schema = () if is_kept else (schema_id, request.subject.schema)
        values, digest = codec.insert_values(request, seal, transition.detail)
        asked, progress = values[:_ASKED_END], values[_ASKED_END:]
        entry, before = self._entry(request.run_id, request.id, *transition[1:])
        row = RequestRow._make((*values, entry.link))
        sql = postgres_database.insert_of(
            is_first=entry.seq == 1, kinds=self._unread, has_key=row.key_digest is not None, with_schema=bool(schema),
            notifies=_notifies(entry.event),
        )  # fmt: skip
        unique = (row.fingerprint,) if row.key_digest is None else (row.fingerprint, row.key_digest, row.key_digest)
        unique += (schema_id,) if is_kept else ()
        new = (value for name, value in zip(ASKED_COLUMNS, asked, strict=True) if name != "fingerprint")
        guard = _guard(entry, before)
        values = (*schema, *new, *guard, *unique, row.id, row.fingerprint, *progress, entry.link, *entry)
        self._write(sql, values, entry, KnownRow(row, request, entry, is_ours=True, asked=digest))
        if schema:
            self.schemas.add(schema_id)

    def update(self, transition: Transition) -> None:
        request, known = transition.request, self._loaded
        if known is None or known.request.id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # verbs load first
        if not self.verify(known.request):
            raise codec.altered(request.id)
        again, progress, digest = codec.update_values(
            known.row, known.request, request, self._seal, transition.detail, known.asked
        )
        asked = (RequestRow._make(known.row)._replace(**again) if again else known.row)[:_ASKED_END]
        entry, before = self._entry(request.run_id, request.id, *transition[1:])
        compares = entry.event not in ENDS_OF_CALLS
        sql = postgres_database.update_of(
            tuple(again),
            is_first=entry.seq == 1,
            kinds=self._unread if entry.event not in SILENT else self._unread[1:],
            compares=compares,
            notifies=_notifies(entry.event),
        )
        first, second, third = known.versions
        compared: tuple[Any, ...] = (first,) if again or compares else ()
        if compares and (newest := known.newest) is not None:
            run_id, seq = newest.run_id, newest.seq
            compared += (run_id, seq, third, run_id, seq, newest.request_id)
        guard = (known.n, request.id, known.row[-1], second, *_guard(entry, before))
        again_values = (*again.values(), first) if again else ()
        values = (*progress, entry.link, *guard, *compared, *again_values, *entry)
        row = (*asked, *progress, entry.link)
        versions = ("" if again else known.versions[0], "", "")
        known = KnownRow(row, request, entry, is_ours=True, asked=digest, n=known.n, versions=versions)
        self._write(sql, values, entry, known)

    def verify(self, request: Request) -> bool:
        known = self._loaded
        if known is None or known.request.id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # verbs load first
        if known.is_ours:
            return True
        if self._is_intact(known):
            self._loaded = known._replace(is_ours=True)
            return True
        if self.has_guessed:
            raise Stale
        return False

    def _is_intact(self, known: KnownRow) -> bool:
        if known.is_ours:
            return True
        newest = known.newest
        return newest is not None and codec.verify_row(known.row, (newest.link, newest.detail), self._seal)

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        if self._is_alone:
            raise NeedsTransaction
        entry, before = self._entry(run_id, "", event, by, channel, detail)
        append = postgres_database.append_of(is_first=entry.seq == 1)
        if self._execute(append, (*entry, *_guard(entry, before))).fetchone() is None:
            raise Stale
        self.entries.append(entry)
        self.heads[run_id] = entry.seq, entry.link

    def newest(self, run_id: str) -> Entry | None:
        if run_id == CHAIN and STOP in (self._unread if self._is_alone else self._absent):
            return None  # the statement checks it, or an earlier work did
        if run_id != CHAIN:  # else the second of two that create a record would see an entry and no record
            self._execute(LOCK, (f"chain:{run_id}",))
        newest = super().newest(run_id)
        if run_id == CHAIN and (newest is None or newest.event != "stopped"):
            self._absent.add(STOP)  # the caller asks because there is no record of it
        return newest

    def conclude(self) -> None:
        """Write the one row of a verb alone, in a single statement; before any other COMMIT, check what was absent.

        Raises `Stale` also for a result from the cache that no compare-and-set has confirmed.
        """
        if self._pending is not None:
            self._run(*self._pending)
        elif self.has_written:
            must_be_absent(self._read_by, self._absent)
        elif self.has_guessed:
            raise Stale

    def take_pending(self) -> None:
        """Treat the one row as written, although the answer was lost."""
        if self._pending is not None:
            self._take(*self._pending[2:])

    def _noted(self, sql: str, values: Sequence[Any]) -> Any:
        if not sql.lstrip().startswith("SELECT"):
            self.has_written = True
        return self._read_by(sql, values)

    def _write(self, sql: str, values: tuple[Any, ...], entry: Entry, written: KnownRow) -> None:
        if _notifies(entry.event):
            values = (*values, written.request.id)
        self.entries.append(entry)  # before the answer, which may be lost
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
            raise Stale from None  # another process asked the same at this moment
        if found is None:
            raise Stale
        self.server_time = found[0]
        self._take(entry, written.answered(found))

    def _take(self, entry: Entry, written: KnownRow) -> None:
        self.heads[entry.run_id] = entry.seq, entry.link
        self._loaded = written
        self.written.append(written)
        self.has_written = True


def must_be_absent(execute: Callable[[str, Sequence[Any]], Any], kinds: set[str]) -> None:
    """Raise `Stale` if there is a record of kinds of which a verb found none."""
    sql = f"SELECT 1 FROM record WHERE kind IN ({', '.join('?' * len(kinds))}) LIMIT 1"
    if kinds and execute(sql, sorted(kinds)):
        raise Stale  # a channel, grant or stop was created since


def _guard(entry: Entry, before: str) -> tuple[str, ...]:
    """Return the values of an entry's guard: the run, and any previous link."""
    return (entry.run_id,) if entry.seq == 1 else (entry.run_id, before)


def _notifies(event: str) -> bool:
    """Return whether other processes are notified of a change; a start is found by polling."""
    return event != "started"


def _not_alone(*_: Any) -> Any:
    raise NeedsTransaction
