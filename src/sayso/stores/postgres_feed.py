"""Wakes callers that wait for changes by any process: one thread and one connection per process and store.

Asking and deciding send a notification in their own transaction, which LISTEN receives at once. Everything else, such
as starts and runs, is found by polling: journal rows carry the transaction that wrote them, and each poll reads those
that the snapshot of the previous poll did not include. Ordering by time or number would miss a transaction that began
earlier and committed later. The next poll also finds what a lost connection missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg

from sayso.stores.postgres_statements import translated
from sayso.stores.watch import BUSY, IDLE, Bell, started

_log = logging.getLogger("sayso")
_SINCE = "tx >= pg_snapshot_xmin(CAST(? AS pg_snapshot)) AND NOT pg_visible_in_snapshot(tx, CAST(? AS pg_snapshot))"
# Not from the future: rows restored from another server's dump carry that server's transaction ids.
_PAST = "tx < pg_snapshot_xmax(pg_current_snapshot())"
_CHANGES = f"""SELECT pg_current_snapshot()::text,
ARRAY(SELECT DISTINCT request_id FROM journal WHERE {_SINCE} AND {_PAST} AND request_id <> ''),
EXISTS (SELECT 1 FROM run WHERE {_SINCE} AND {_PAST})"""
_SECOND = 1.0
_LINGER = 100  # polls at the busy pace after the last change, before it slows down


class Changes(NamedTuple):
    """The result of one poll.

    Attributes:
        mark: Pass it to the next poll.
        requests: Ids of requests with new journal entries; each entry is reported once.
        has_runs: Whether a run was written.
    """

    mark: str
    requests: list[str]
    has_runs: bool


def changes_since(connection: psycopg.Connection[Any], mark: str | None) -> Changes:
    """Return what was committed since a mark; without a mark, only the first mark."""
    if mark is None:
        ((now,),) = connection.execute("SELECT pg_current_snapshot()::text").fetchall()
        return Changes(now, [], has_runs=False)
    (found,) = connection.execute(translated(_CHANGES), (mark,) * 4).fetchall()
    return Changes._make(found)


class Feed:
    """The thread that rings the bell. It ends when nobody waits.

    Args:
        bell: Wakes the callers that wait.
        connect: Opens a connection.
        listens: Whether sessions last long enough for LISTEN. If not, it polls as often as for a file.
    """

    def __init__(self, bell: Bell, connect: Callable[[], psycopg.Connection[Any]], *, listens: bool) -> None:
        self._bell, self._connect, self._listens = bell, connect, listens
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_listening = False
        self._nudge = threading.Event()

    def ensure(self) -> bool:
        """Start the thread if needed. Return whether it already listens; if not, everybody is woken when it begins."""
        with self._lock:
            is_listening = self._is_listening
            if self._thread is None:
                self._thread = started("sayso-feed", self._run)
        self._nudge.set()
        return is_listening

    def _run(self) -> None:
        while not self._has_ended():
            connection = None
            try:
                connection = self._connect()
                if self._listens:
                    connection.execute("LISTEN sayso")
                self._follow(connection)
            except Exception:  # noqa: BLE001  whatever is wrong with the store, the waiters get the error when woken
                _log.debug("the feed of changes of a store starts over", exc_info=True)
                self._is_listening = False
                self._bell.ring_all()
                self._nudge.clear()
                self._nudge.wait(IDLE)
            finally:
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()

    def _has_ended(self) -> bool:
        with self._lock:  # so that `ensure` either finds this thread or starts another
            if not self._bell.is_idle:
                return False
            self._thread, self._is_listening = None, False
            return True

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        mark = changes_since(connection, None).mark
        with self._lock:
            self._is_listening = True
        self._bell.ring_all()  # for changes before the mark
        quiet, looked = 0, time.monotonic()
        while not self._bell.is_idle:
            if self._listens:
                # A caller that waits for any change should soon see those without a notification too.
                pause = looked + (IDLE if self._bell.is_for_any else _SECOND) - time.monotonic()
                if pause > 0 and (heard := {one.payload for one in connection.notifies(timeout=pause, stop_after=1)}):
                    self._bell.ring(heard)
                    continue
            else:
                quiet = min(quiet + 1, 2 * _LINGER)
                self._nudge.wait(BUSY if quiet < _LINGER else min(IDLE, BUSY * 1.1 ** (quiet - _LINGER)))
                self._nudge.clear()
            looked = time.monotonic()
            mark, requests, has_runs = changes_since(connection, mark)
            if requests or has_runs:
                self._bell.ring(requests)
                quiet = 0
