"""The Postgres store: requests in one database, for any number of processes on any number of machines.

A verb alone is one statement, or one transaction at READ COMMITTED, and is as durable as the database's
`synchronous_commit` says. Verbs that arrive together share one commit; if that fails, each is tried alone. The clock is
the database's. Also here: recovery when a connection is lost, and when somebody keeps a row locked.
The tables are created by `sayso.stores.postgres_database`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import errors as faults
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper

from sayso import clock, errors
from sayso.model.journal import RowDigests
from sayso.model.request import Request
from sayso.model.run import RunUpdate
from sayso.stores.base import GroupCommit, Store, Verb, joined, result_of
from sayso.stores.codec import RequestRow, Seal, digests_of
from sayso.stores.postgres_connection import (
    COMMIT,
    CONNECTIONS,
    Connection,
    Connections,
    fault_of,
    first_line,
    translated,
)
from sayso.stores.postgres_database import CLOCK, SELECTS, Feed, migrate
from sayso.stores.postgres_transaction import NeedsTransaction, PostgresTransaction, RowCache, must_be_absent
from sayso.stores.sql import SqlStore, Stale
from sayso.stores.watching import Bell, Watched
from sayso.stores.workers import forget_after_fork

T = TypeVar("T")

_PATIENCE = 30.0  # seconds for which a verb retries to reach a database that it has reached before
_TRIES = 1000  # attempts of a verb that others overtake; each time, one of them has succeeded
_WIDTH = len(RequestRow._fields)
# A process that is stopped in the middle of a transaction must not keep its locks, because others wait for them. So no
# transaction is a pipeline: in one, the database does not count as idle.
_NOT_IDLE = b"idle_in_transaction_session_timeout = '10s'"
# A database whose machine or network went away without a word would else be waited for by the system: for two minutes
# to connect, and for a quarter of an hour for an answer.
_TIMEOUTS = {
    "connect_timeout": 10, "tcp_user_timeout": 15_000, "keepalives_idle": 5, "keepalives_interval": 5,
    "keepalives_count": 2,
}  # fmt: skip
_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
# Somebody may keep a row locked for hours, e.g. by a transaction that was forgotten in psql. Verbs that do not need
# that row must not wait behind the one that does.
_LOCKED = b"SELECT set_config('lock_timeout', '1s', false) WHERE current_setting('lock_timeout') = '0'"
# Works in a shared commit take their locks in any order. Those of two servers may wait for each other, which Postgres
# finds after a second. After this time each is tried alone, with few locks.
_BRIEF = b"; SET LOCAL lock_timeout = '100ms'"
_TOOK = "SELECT 1 FROM journal WHERE run_id = ? AND seq = ? AND link = ?"
# The last but one for a process that was stopped for too long in a transaction, the last one for a session that was
# reset by somebody between us and the database.
_LOST = (
    psycopg.OperationalError, psycopg.InterfaceError, faults.IdleInTransactionSessionTimeout,
    faults.InvalidSqlStatementName,
)  # fmt: skip
# These are operational errors, too, of a database that is there.
_REFUSED = (faults.QueryCanceled, faults.DiskFull, faults.OutOfMemory)
# With another transaction; nothing was recorded.
_CONFLICTS = (faults.SerializationFailure, faults.DeadlockDetected, faults.LockNotAvailable)
_POOLER = "sayso_pooler"
_SECOND = timedelta(seconds=1)
_SLEPT = 1.0  # seconds by which a clock of this machine must have jumped before the database's is read again
_machine = time.time  # noqa: TID251  only to find out that the monotonic clock stopped, or that somebody set this one
_UNDONE = object()
_MAYBE = "the change may or may not be stored"
_IN_TRANSACTION = {TransactionStatus.INTRANS, TransactionStatus.INERROR}


class PostgresStore(GroupCommit, Watched, SqlStore):
    """The store behind `postgresql://user@host/database`.

    Args:
        url: As for libpq. With `sayso_pooler=transaction` in its query, the store uses nothing that needs a session: no
            prepared statements and no LISTEN; it then polls for changes by other processes.
        key: Encrypts arguments, answers, the recorded parts of decisions and outcomes, and people's words in the
            journal (see `sayso.stores.codec`).

    Raises:
        ConfigError: The address has an invalid sayso setting.
        StoreError: Or a subclass, at the first use and not before.
    """

    selects = SELECTS

    def __init__(self, url: str, *, key: str | None = None) -> None:
        self.url = url
        self._conninfo, self._is_pooled = _parsed(url)
        parts = urlsplit(url)
        self._place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        # Behind a pooler, the next transaction may be on another connection, so each sets its limits.
        self._limits = (b"SET LOCAL " + _NOT_IDLE, b"SET LOCAL lock_timeout = '1s'") if self._is_pooled else ()
        self._begin = b"; ".join((_BEGIN, *self._limits))
        self.seal = Seal(key)
        self._schemas = dict[str, str]()
        self._cache = RowCache()
        # The database's time, when it was read by the monotonic clock, and how far this machine's clock was from that.
        self._clock: tuple[int, float, float] | None = None
        self._is_reached = False
        self._begin_afresh()
        forget_after_fork(self)

    def _begin_afresh(self) -> None:
        self._writing: dict[int, Callable[[str, Sequence[Any]], Any]] = {}  # how a thread reads while it writes
        self._queue: deque[_Verb] = deque()
        self._write_lock = threading.Lock()
        self._connections = Connections(self._connect)
        self._turns = threading.BoundedSemaphore(CONNECTIONS - 1)  # of verbs that try again to lock a row
        self._bell = Bell()
        self._feed = Feed(self._bell, self._connect, listens=not self._is_pooled)

    def after_fork(self) -> None:
        """Drop locks and connections in a forked child, which must neither use nor close its parent's."""
        self._begin_afresh()

    # -- connections -------------------------------------------------------------------------------------------

    def _connect(self) -> Connection:
        given = conninfo_to_dict(self._conninfo)
        timeouts: dict[str, Any] = {name: value for name, value in _TIMEOUTS.items() if name not in given}
        connection = Connection.connect(
            self._conninfo,
            **timeouts,
            autocommit=True,
            prepare_threshold=None if self._is_pooled else 5,
            cursor_factory=psycopg.RawCursor,
            application_name="sayso",
            client_encoding="UTF8",
        )
        connection.can_prepare = not self._is_pooled
        # One type for all values; otherwise one statement would be prepared several times.
        connection.adapters.register_dumper(int, Int8Dumper)
        try:
            if not self._is_pooled:
                connection.execute(b"SET " + _NOT_IDLE + b"; " + _LOCKED)
            if not self._is_reached:
                migrate(connection, self._place)
                self._is_reached = True
            ((micros,),) = connection.run(f"SELECT {CLOCK}")
            self._set_clock(micros)
        except BaseException:
            connection.close()
            raise
        return connection

    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            if (execute := self._writing.get(threading.get_ident())) is not None:
                # A work of several verbs sees its own writes, and those of earlier works in the same commit.
                return execute(sql, values).fetchall()
            return self._patiently(lambda connection: connection.execute(translated(sql), values).fetchall())
        except (faults.DataError, UnicodeEncodeError):  # the value is a text that no row can contain
            return []

    def _patiently(
        self, work: Callable[[Connection], T], verb: _Verb | None = None, *, is_brief: bool = False
    ) -> T:  # fmt: skip
        """Run a work on a connection, and again on another one if the database was lost meanwhile.

        The patience for a verb counts from when it began, so that those behind one lock do not each wait for the
        database in turn. With `is_brief`, a row that somebody else keeps locked is not waited for again.
        """
        deadline = (time.monotonic() if verb is None else verb.began) + _PATIENCE
        turn: AbstractContextManager[Any] = nullcontext()
        while True:
            connection = None
            try:
                with turn, self._connections.one() as connection:
                    return work(connection)
            except _CONFLICTS as error:
                is_locked = isinstance(error, faults.LockNotAvailable)
                if (is_brief and is_locked) or time.monotonic() > deadline:
                    raise fault_of(error, self._place) from error
                turn = self._turns if is_locked else turn
            except _LOST as error:
                # Not by the error alone: there are many more like `_REFUSED`, e.g. for a text too long for an index.
                is_open = connection is not None and not connection.closed
                is_reset = isinstance(error, faults.InvalidSqlStatementName)
                if isinstance(error, _REFUSED) or (is_open and not is_reset):
                    raise fault_of(error, self._place) from error
                self._connections.close()
                if not self._is_reached or time.monotonic() > deadline:
                    undone = "nothing was recorded" if verb is None or not verb.lost else _MAYBE
                    raise errors.StoreUnavailableError(
                        f"{self._place} cannot be reached ({first_line(error)}); {undone}"
                    ) from error
                time.sleep(0.05)
            except faults.DataError:
                raise
            except psycopg.Error as error:
                if isinstance(error, faults.ReadOnlySqlTransaction):
                    self._connections.close()  # its server may have become a standby, and another one is the primary
                raise fault_of(error, self._place) from error

    def close(self) -> None:
        self._connections.close()
        self._bell.ring_all()

    def _listen(self, request_id: str | None, wake: Callable[[], None], /) -> None:
        if self._feed.ensure() and request_id is not None:
            wake()  # the request may have changed before the feed began to listen

    # -- time --------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        if clock.is_replaced():
            return clock.now()
        here = time.monotonic()
        # A suspended machine stops its monotonic clock.
        if self._clock is None or abs(_machine() - here - self._clock[2]) > _SLEPT:
            ((micros,),) = self._query(f"SELECT {CLOCK}", ())
            self._set_clock(micros)
            return clock.instant(micros)
        micros, at, _ = self._clock
        return clock.instant(micros + int((here - at) * 1_000_000))

    def _set_clock(self, micros: int) -> None:
        here = time.monotonic()
        self._clock = micros, here, _machine() - here

    def ask(self, request: Request, saved: RunUpdate | None = None) -> Request:
        # The requester's clock set when it was asked and when it ends; every other time is the database's.
        shift = self.now() - clock.now()
        if abs(shift) > _SECOND:
            created, ends = request.created_at + shift, request.expires_at + shift
            request = replace(request, created_at=created, expires_at=ends)
        return Store.ask(self, request, saved)  # not `super()`: `self` may be a view of this store (`joined`)

    # -- writing -----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        verb = _Verb(lambda tx: work(tx, *args, **options))
        is_alone = not self._queue and not self._write_lock.locked()
        if is_alone:
            with self._write_lock:  # not `acquire`, after which Ctrl-C could leave it locked for ever
                self._done(verb, is_alone=True)
        else:
            self._wait([verb])  # to share a commit with other waiting verbs
            if verb.error is not None:
                raise verb.error
        if verb.result is _UNDONE:
            is_alone = True
            self._done(verb)  # in a transaction, without the lock: what it has to wait for holds up nobody else
        if is_alone:
            self._bell.ring(verb.changed)
        if isinstance(verb.result, errors.SaysoError):
            raise verb.result
        return verb.result

    def _commit(self, batch: Sequence[_Verb]) -> Iterable[str]:
        if len(batch) > 1:
            with suppress(Exception):  # then each is tried alone and gets its own error
                self._patiently(partial(self._together, batch), batch[0], is_brief=True)
            return [request_id for verb in batch for request_id in verb.changed]
        (verb,) = batch
        try:
            # Who waits runs a verb that needs a transaction itself; a server's works wait for no locked row.
            self._done(verb, is_alone=not verb.is_work, is_brief=verb.is_work)
        except Exception as error:  # noqa: BLE001  every exception belongs to this verb's caller
            verb.error = error
        verb.is_done = True
        return verb.changed

    def _transaction(self, execute: Callable[..., Any], **options: Any) -> PostgresTransaction:
        return PostgresTransaction(execute, self._cache, self.seal, self._schema, self.now, **options)

    def together(self, works: Sequence[Callable[[Store], T]]) -> Sequence[T | BaseException]:
        """See `Store.together`: each work is one transaction, and up to 256 share a commit."""
        verbs = [_Verb(_unless_it_failed(joined(self, work)), is_work=True) for work in works]
        self._wait(verbs)
        return [result_of(verb.result) if verb.error is None else verb.error for verb in verbs]

    def _together(self, batch: Sequence[_Verb], connection: Connection) -> None:
        """Run verbs one after the other in one transaction; if one fails, all are rolled back."""
        done: list[tuple[_Verb, PostgresTransaction, Any]] = []
        is_committed, me = False, threading.get_ident()
        try:
            connection.command(self._begin + _BRIEF)
            self._writing[me], absent = connection.run, set[str]()
            done = [
                (verb, *self._in_turn(verb, connection, absent)) for verb in batch if not (verb.lost or verb.is_done)
            ]
            must_be_absent(connection.run, absent)
            try:
                connection.command(COMMIT)
                is_committed = True
                for verb, tx, result in done:
                    self._keep(verb, tx, result)
                    verb.is_done = True
            except BaseException as error:
                if connection.closed or not isinstance(error, Exception):  # it may be committed, also after Ctrl-C
                    for verb, tx, result in done:
                        with suppress(errors.StoreUnavailableError):
                            self._keep_lost(verb, tx, result, error)
                raise
        finally:
            self._writing.pop(me, None)
            if not is_committed:
                self._cache.clear()  # it has what the rolled-back verbs wrote
                if connection.pgconn.transaction_status in _IN_TRANSACTION:
                    connection.command(b"ROLLBACK")

    def _in_turn(self, verb: _Verb, connection: Connection, absent: set[str]) -> tuple[PostgresTransaction, Any]:
        """Run one verb in an open transaction: on remembered rows, or, if that is not enough, on the stored ones."""
        begun = partial(self._transaction, connection.run, is_alone=False, absent=absent)
        tx = begun(may_guess=True)
        try:
            result = verb.work(tx)
            is_sure = tx.has_written or not tx.has_guessed  # else no compare-and-set has confirmed what was remembered
        except Stale:
            if tx.has_written:
                raise
            is_sure, result = False, None
        if not is_sure:
            tx = begun(may_guess=False)
            result = verb.work(tx)
        self._cache.committed(tx)  # for the next verbs
        return tx, result

    def _done(self, verb: _Verb, *, is_alone: bool = False, is_brief: bool = False) -> None:
        """Run a verb; with `is_alone`, leave one that needs a transaction, or has to wait for a row, undone."""
        for _ in range(_TRIES):
            if is_alone and not verb.is_alone:
                return None
            try:
                return self._patiently(partial(self._tried, verb), verb, is_brief=is_brief)
            except Stale:
                verb.guess_less()
            except NeedsTransaction:
                verb.is_alone = verb.may_guess = False
            except errors.StoreUnavailableError:
                raise
            except errors.SaysoError:
                # The conflict may be with its own write, from before the connection was lost.
                if verb.lost and self._patiently(partial(self._was_taken, verb), verb):
                    return None
                if not verb.has_guessed:
                    raise
                verb.guess_less()
            except faults.DataError as error:
                raise fault_of(error, self._place) from error
        raise errors.StoreBusyError(
            f"other processes kept changing the same rows in {self._place}; nothing was recorded, try again"
        )

    def _tried(self, verb: _Verb, connection: Connection) -> None:
        """Run a verb once, in one statement or in a transaction."""
        if verb.lost and self._was_taken(verb, connection):
            return
        tx = self._transaction(connection.run, is_alone=verb.is_alone, may_guess=verb.may_guess)
        me = threading.get_ident()
        is_sent, result = False, None
        try:
            self._writing[me] = connection.run
            is_bare = verb.is_alone and not self._limits
            if not is_bare:
                connection.command(self._begin)
            result = verb.work(tx)
            is_sent = verb.is_alone  # then this sends it
            tx.conclude()
            is_sent = True
            if not is_bare:
                connection.command(COMMIT)
        except BaseException as error:
            if is_sent and (connection.closed or not isinstance(error, Exception)):
                self._keep_lost(verb, tx, result, error)
            if verb.is_alone and isinstance(error, faults.LockNotAvailable):
                raise NeedsTransaction from error
            raise
        finally:
            self._writing.pop(me, None)
            verb.has_guessed = tx.has_guessed
            if connection.pgconn.transaction_status in _IN_TRANSACTION:
                connection.command(b"ROLLBACK")
        # Not looked up if this attempt wrote: the connection may be lost meanwhile, and with it what is known of it.
        if tx.entries or not verb.lost or not self._was_taken(verb, connection):
            self._keep(verb, tx, result)

    def _keep(self, verb: _Verb, tx: PostgresTransaction, result: Any) -> None:
        verb.result, verb.changed = result, tx.changed
        self._cache.committed(tx)
        if tx.server_time is not None:
            self._set_clock(tx.server_time)

    def _keep_lost(self, verb: _Verb, tx: PostgresTransaction, result: Any, error: BaseException) -> None:
        """Remember what may have been committed, so that it can be looked up. If it cannot, the verb has failed."""
        if tx.entries:
            verb.lost.append((tx, result))
        elif tx.has_written and not verb.is_done:
            is_lost = isinstance(error, psycopg.Error)
            what = (
                f"the connection to {self._place} was lost ({first_line(error)})"
                if is_lost
                else "this program was interrupted"
            )
            verb.error, verb.is_done = errors.StoreUnavailableError(f"{what} during a commit; {_MAYBE}"), True
            if is_lost:
                raise verb.error from error

    def _was_taken(self, verb: _Verb, connection: Connection) -> bool:
        """Return whether the database committed what was sent before the connection broke; if so, take its result."""
        for tx, result in verb.lost:
            if any(connection.run(_TOOK, entry[:2] + entry[-1:]) for entry in tx.entries):
                tx.take_pending()
                self._keep(verb, tx, result)
                return True
        return False

    # -- reading -----------------------------------------------------------------------------------------------

    def _row_digests(self, found: tuple[Any, ...]) -> RowDigests:
        return digests_of(found[:_WIDTH], self.seal)

    def scrub(self) -> bool:
        # Runs beside everything else. The guide says what stays in free space, the log and backups.
        vacuum = "VACUUM sayso.asked, sayso.standing, sayso.step, sayso.record"
        self._patiently(lambda connection: connection.execute(vacuum))
        return True


class _Verb(Verb):
    """A caller's verb in progress: how it is tried, and its result."""

    __slots__ = ("began", "changed", "has_guessed", "is_alone", "is_work", "lost", "may_guess")

    def __init__(self, work: Callable[[PostgresTransaction], Any], *, is_work: bool = False) -> None:
        super().__init__(work)
        self.result, self.began = _UNDONE, time.monotonic()
        self.is_work, self.is_alone, self.may_guess = is_work, not is_work, True
        self.has_guessed = False
        self.lost: list[tuple[PostgresTransaction, Any]] = []  # sent, but without an answer
        self.changed: list[str] = []

    def guess_less(self) -> None:
        """Next, try it with stored rows; and after that in a transaction, which can only be overtaken by others."""
        self.is_alone = self.is_alone and self.may_guess
        self.may_guess = False


def _unless_it_failed(work: Callable[[PostgresTransaction], T]) -> Callable[[PostgresTransaction], T]:
    """Return a joined work that raises a database error it returned: its transaction is lost, and nothing commits."""

    def raising(tx: PostgresTransaction) -> T:
        result = work(tx)
        error = result_of(result)
        if isinstance(error, psycopg.Error):
            raise error
        return result

    return raising


def _parsed(url: str) -> tuple[str, bool]:
    """Return the address for libpq, and whether a pooler is in front of the database."""
    parts = urlsplit(url)
    settings = [(one.partition("=")[0], one) for one in parts.query.split("&")]
    pooler = [one.partition("=")[2] for name, one in settings if name == _POOLER]
    if pooler not in ([], ["transaction"]):
        raise errors.ConfigError(f"{_POOLER}= takes transaction, not {pooler[0]!r}; nothing was opened")
    # The others stay as they are written, because libpq does not take a `+` for a space.
    rest = "&".join(one for name, one in settings if name != _POOLER)
    return urlunsplit(parts._replace(query=rest)), bool(pooler)
