"""Waking programs that wait for a request on a sayso server: one thread of theirs asks, and the server answers late.

The thread sends what was last seen of every request that somebody waits for, and gets an answer as soon as one of
them differs. So nothing is lost while a connection is down: what changed meanwhile differs when it is up again. Who
begins to wait while the thread stands there makes it ask anew, by breaking its connection. The answer brings along how
the changed requests stand, so that many who wait do not each ask for it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

from sayso.stores.http_fault import fault_of
from sayso.stores.http_line import BROKEN, LATER, Line, encoded, jittered
from sayso.stores.watch import Bell

__all__ = ["Listener"]

_WAIT = 25.0
_TURN = 0.25  # where there are too many for one question, each part is asked for no longer than this
_MOST = 2_000
_TOGETHER = 0.005  # who begin to wait at the same time are asked for together
_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # many programs wait for a server that is away, and are to hear soon when it is back


class Listener:
    """One thread that rings the bell when the server says that something changed. It ends when nobody waits.

    Args:
        bell: Who waits.
        line: To the server.
    """

    def __init__(self, bell: Bell, line: Line) -> None:
        self._bell, self._line = bell, line
        self._rows = dict[str, Any]()
        self._lock = threading.Lock()
        self._seen = dict[str, str | None]()
        self._any: str | None = None
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._asking: HTTPConnection | None = None

    def listen(self, request_id: str | None, seen: str | None) -> None:
        """Have the thread ask for a request too, of which the program saw this; None is any change at all."""
        with self._lock:
            if request_id is not None:
                self._seen.setdefault(request_id, seen)
                self._rows.pop(request_id, None)  # of one who has left
            self._break_off()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sayso-listener", daemon=True)
                self._thread.start()

    def heard(self, request_id: str) -> Any:
        """Return the row that came with the last news of a request, once; None where there is none."""
        with self._lock:
            return self._rows.pop(request_id, None)

    def close(self) -> None:
        """Have the thread look whether anybody still waits."""
        with self._lock:
            self._break_off()

    def _break_off(self) -> None:
        self._news.set()
        if self._asking is not None and self._asking.sock is not None:
            with suppress(OSError):  # its answer may just have come
                socket.socket.shutdown(self._asking.sock, socket.SHUT_RDWR)

    def _run(self) -> None:
        pause, connection = _PAUSE, None
        while True:
            with self._lock:  # so that `listen` either finds this thread or starts another, never neither
                if self._bell.is_idle:
                    self._thread = None
                    self._seen.clear()
                    self._rows.clear()
                    break
            if self._news.is_set():
                time.sleep(_TOGETHER)
                self._news.clear()
            try:
                if connection is None or connection.sock is None:
                    connection = self._line.connect(_WAIT + 10)
                self._ask(connection)
                pause = _PAUSE
            except BROKEN:
                connection = _hung_up(connection)
                if not self._news.is_set() and not self._news.wait(jittered(pause)):
                    pause = min(2 * pause, _LONGEST_PAUSE)
            except Exception:  # noqa: BLE001  whatever is wrong, the waiters look for themselves when woken, and hear it
                connection = _hung_up(connection)
                self._bell.ring_all()
                self._news.wait(_LONGEST_PAUSE)
        _hung_up(connection)

    def _ask(self, connection: HTTPConnection) -> None:
        watched = self._bell.watched()
        parts = [watched[first : first + _MOST] for first in range(0, len(watched), _MOST)] or [[]]
        for part in parts:
            with self._lock:
                if self._news.is_set() or self._bell.is_idle:
                    return  # somebody came since `watched` was read, or the last one left with nothing to break off
                self._seen = {one: self._seen.get(one) for one in watched}
                seen = {one: self._seen[one] for one in part}
                self._asking = connection
            wait, began = _WAIT if len(parts) == 1 else _TURN, time.monotonic()
            try:
                is_news = self._heard(self._exchange(connection, seen, wait))
            finally:
                with self._lock:
                    self._asking = None
            if not is_news and time.monotonic() - began < wait / 2:
                self._news.wait(_PAUSE)  # a server that ends, or a proxy, does not let it wait

    def _exchange(self, connection: HTTPConnection, seen: dict[str, str | None], wait: float) -> Any:
        said = {"seen": seen, "wait": wait, "any": (self._any or "") if self._bell.is_for_any else None}
        said["rows"] = True
        status, _, content = self._line.exchange(connection, "POST", "/changes", encoded(said))
        if status in LATER:
            raise HTTPException(f"HTTP status {status}")
        if status >= 300:
            raise fault_of(status, content, "")
        return content

    def _heard(self, content: Any) -> bool:
        changed: dict[str, str] = dict(content["changed"])
        with self._lock:
            self._seen.update(changed)
            for one in changed:
                self._rows.pop(one, None)
            self._rows |= {row["row"]["id"]: row for row in content["requests"]}
        before, self._any = self._any, content["any"]
        is_news = bool(changed) or self._any != before
        if is_news:
            self._bell.ring(changed)
        return is_news


def _hung_up(connection: HTTPConnection | None) -> None:
    if connection is not None:
        connection.close()
