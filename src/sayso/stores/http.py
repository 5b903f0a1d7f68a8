"""Runs on a sayso server: the part of `sayso.stores.http` that is about them.

Whether a run's holder still lives is judged on both sides, because the server sees its own processes alone and this
machine its own. The invariant: a run is taken from a holder only by who is on the holder's machine and saw it gone.

Waking programs that wait for a request on a sayso server: one thread of theirs asks, and the server answers late.

The thread sends what was last seen of every request that somebody waits for, and gets an answer as soon as one of
them differs. So nothing is lost while a connection is down: what changed meanwhile differs when it is up again. Who
begins to wait while the thread stands there makes it ask anew, by breaking its connection. The answer brings along how
the changed requests stand, so that many who wait do not each ask for it.

A sayso server as a store: programs on other machines ask, wait, start and say how it ended, over its HTTP API.

Each verb is one request to the server, which checks everything again and takes who asks from the token. What only this
machine can know is known here: whether a worker or the holder of a run, named by a process of this machine, still
lives. Nobody decides through this store; people do, on the server. The invariant: where the server does not say yes,
the verb raises, and nothing runs.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

from sayso import errors
from sayso.model.journal import Anchor, Entry
from sayso.model.lifecycle import Outcome, keepable
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate
from sayso.model.text import storable
from sayso.stores import worker
from sayso.stores.base import Filter, Page, Store, Transaction, Unwatch
from sayso.stores.filter import RunFilter, read_cursor
from sayso.stores.http_transport import (
    BROKEN,
    LATER,
    Line,
    LostError,
    asked_wire,
    beginning,
    encoded,
    entry_of,
    fault_of,
    jittered,
    kept_of,
    mark_of,
    readable,
    request_from,
    run_from,
    saved_wire,
)
from sayso.stores.records import RecordRow
from sayso.stores.watch import Bell

__all__ = ["HttpRuns", "HttpStore", "Listener"]


class HttpRuns:
    """The verbs about runs, over a line to the server."""

    _line: Line
    _late: float
    _soon: float

    def get_run(self, run_id: str) -> RunSnapshot:
        return kept_of(self._line.get("/runs/kept", run_id, patience=self._late, run_id=run_id))

    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        read_cursor(cursor)  # raises here what a store raises
        asked: dict[str, Any] = {"state": sorted(wanted.states), "name": wanted.name, "cursor": cursor, "limit": limit}
        found = self._line.get("/runs", patience=self._soon, **asked)
        with readable():
            return [*map(run_from, found["runs"])], found["cursor"]

    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        found = self._line.post("/runs/ready", {"names": sorted(names), "limit": limit}, patience=self._soon)
        with readable():
            ready = {run.id: run for run in map(run_from, found["runs"])}
        for name in names:
            ready |= {run.id: run for run in self._running(name) if worker.is_free(run.holder)}
        return sorted(ready, key=lambda run_id: ready[run_id].updated_at)[:limit]

    def save_run(self, saved: RunUpdate) -> None:
        with beginning(saved.run.id):
            self._line.post("/runs/save", {"saved": saved_wire(saved)}, saved.run.id, patience=self._late)

    def take_run(self, run_id: str, holder: str, *, gone: str | None = None) -> RunSnapshot:
        body = {"run_id": run_id, "holder": holder, "gone": gone}
        try:
            return kept_of(self._line.post("/runs/take", body, run_id, patience=self._late))
        except errors.RunBusyError:
            held_by = self.get_run(run_id).run.holder
            if gone is not None or held_by is None or not worker.is_free(held_by):
                raise
            return self.take_run(run_id, holder, gone=held_by)

    def leave_run(self, saved: RunUpdate, state: RunState) -> None:
        body = {"saved": saved_wire(saved), "state": state.value}
        self._line.post("/runs/leave", body, saved.run.id, patience=self._late)

    def _running(self, name: str) -> Sequence[RunRecord]:
        found: list[RunRecord] = []
        cursor, has_more = None, True
        while has_more:
            page, cursor = self.runs(RunFilter(frozenset({RunState.RUNNING}), name), cursor=cursor, limit=200)
            found += page
            has_more = cursor is not None
        return found


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


T = TypeVar("T")

_MARKS = 1_024
_SOON = 5.0
_BRIEF = 2.0


class HttpStore(HttpRuns, Store):
    """The requests and runs of one token's program on a sayso server.

    Args:
        address: `https://host`; `http://` on this machine alone.
        token: Of the kind `ask`, from `sayso token new`.
        patience: For how many seconds a call's verbs try again while the server is away; each may be sent twice without
            harm. What only looks around (lists, the journal) gives up after five at most. A server that answers 429 is
            asked for twenty times as long. Who stops waiting withdraws its request within two seconds, or leaves it.

    Raises:
        ConfigError: The address or the token cannot be one.
    """

    look_again = 30.0
    """Seconds until one who waits looks by itself; the listener says what changed, and many who look cost much."""

    def __init__(self, address: str, token: str, *, patience: float = 60.0) -> None:
        self.url = address.rstrip("/")
        self._line = Line(self.url, token)
        self._late, self._soon = patience, min(patience, _SOON)
        self._marks = dict[str, str]()
        self._begin_afresh()
        _stores.add(self)

    def _begin_afresh(self) -> None:
        self._bell = Bell()
        self._listener = Listener(self._bell, self._line)

    def after_fork(self) -> None:
        """Forget locks, threads and connections in a forked child."""
        self._line.after_fork()
        self._begin_afresh()

    def close(self) -> None:
        self._listener.close()
        self._line.close()

    # -- what programs do --------------------------------------------------------------------------------------

    def ask(self, request: Request, saved: RunUpdate | None = None) -> Request:
        body = {"request": asked_wire(request), "saved": saved_wire(saved)}
        with beginning(request.run_id):
            return self._read(self._line.post("/requests", body, request.run_id, patience=self._late))

    def settle(self, request_id: str, *, gone: str | None = None) -> Request:
        request = self._done(request_id, "settle", {"gone": gone}, self._late)
        execution = request.execution
        if gone is None and request.state is State.RUNNING and execution and worker.is_gone(execution.worker):
            return self.settle(request_id, gone=execution.worker)
        return request

    def sweep(self) -> int:
        found = self._line.post("/sweep", {}, patience=self._soon)
        with readable():
            changed = int(found["changed"])
        for request in self._every(Filter(states=frozenset({State.RUNNING}))):
            changed += self.settle(request.id).state is not State.RUNNING
        return changed

    def withdraw(self, request_id: str, by: Identity, reason: str | None = None, *, is_brief: bool = False) -> Request:
        body = {"reason": None if reason is None else storable(reason)}
        patience = min(self._late, _BRIEF) if is_brief else self._late
        return self._done(request_id, "withdraw", body, patience, is_brief=is_brief)

    def send_back(self, request_id: str, by: Identity, problems: Collection[str]) -> Request:
        return self._done(request_id, "return", {"problems": [storable(one) for one in problems]}, self._late)

    def start(self, request_id: str, token: str, *, by: str | None = None) -> Request:
        body = {"token": token, "worker": worker.current() if by is None else by}
        try:
            return self._done(request_id, "start", body, self._late)
        except errors.AlreadyStartedError as refusal:
            request = self._after_loss(refusal, request_id)
            execution = request.execution
            if request.state is State.RUNNING and execution is not None and execution.token == token:
                return request  # by our own try, whose answer was lost: the token is known to nobody else
            raise

    def finish(self, request_id: str, token: str, outcome: Outcome, saved: RunUpdate | None = None) -> Request:
        said = {"state": outcome.state, "result": outcome.result}
        if outcome.kept is not None or outcome.not_kept is not None:
            said["kept"], said["not_kept"] = keepable(outcome)
        said["error"] = None if outcome.error is None else storable(outcome.error)
        body = {"token": token, "outcome": said, "saved": saved_wire(saved)}
        try:
            return self._done(request_id, "finish", body, self._late)
        except errors.StartRefusedError as refusal:
            request = self._after_loss(refusal, request_id)
            execution = request.execution
            if execution is not None and execution.token == token and execution.finished_at is not None:
                return request
            raise

    def resolve(
        self, request_id: str, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None,
        channel: str, force: bool = False,
    ) -> Request:  # fmt: skip
        if roles is not None or force:
            _people_decide()
        return self._done(request_id, "verify", {"happened": happened, "hook": by.subject}, self._late)

    def note(self, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
        words = {name: storable(value) if isinstance(value, str) else value for name, value in detail.items()}
        body = {"run_id": run_id, "event": event, "detail": words}
        with beginning(run_id):
            self._line.post("/notes", body, run_id, patience=self._late)

    # -- what programs read ------------------------------------------------------------------------------------

    def get(self, request_id: str) -> Request:
        return self._read(self._line.get(f"/requests/{quote(request_id, safe='')}", request_id, patience=self._late))

    def as_heard(self, request_id: str) -> Request:
        """Return how a request stands, for one who watches it: as the last news said, or else as `get` does."""
        wire = self._listener.heard(request_id)
        return self.get(request_id) if wire is None else self._read(wire)

    def find(self, fingerprint: str) -> Request | None:
        found = self._line.get("/find", patience=self._late, fingerprint=fingerprint)
        with readable():
            wire = found["request"]
        return None if wire is None else self._read(wire)

    def find_key(self, run_id: str, key: str) -> Request | None:
        found = self._line.post("/find-key", {"run_id": run_id, "key": key}, run_id, patience=self._late)
        with readable():
            wire = found["request"]
        return None if wire is None else self._read(wire)

    def by_effect(self, effect: str) -> Sequence[Request]:
        found = self._line.post("/by-effect", {"effect": effect}, patience=self._late)
        with readable():
            return [*map(self._read, found["requests"])]

    def _kept_result(self, request_id: str) -> str | None:
        path = f"/requests/{quote(request_id, safe='')}/result"
        found = self._line.get(path, request_id, patience=self._late)
        with readable():
            return str(found["result"])

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        found = self._line.get("/match", patience=self._soon, prefix=prefix, limit=limit)
        with readable():
            return [*map(str, found["ids"])]

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        read_cursor(cursor)  # raises here what a store raises
        body = {"wanted": _filter(wanted), "cursor": cursor, "limit": limit, "newest": newest}
        found = self._line.post("/list", body, patience=self._soon)
        with readable():
            return Page(tuple(map(self._read, found["requests"])), found["cursor"])

    def count(self, wanted: Filter) -> int:
        return sum(1 for _ in self._every(wanted))

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        if run_id is None and request_id is None:
            raise _on_the_server("the whole journal is read there")
        run, seq = after or (None, None)
        about = request_id or run_id or ""
        asked = {"run_id": run_id, "request_id": request_id, "after_run": run, "after_seq": seq, "limit": limit}
        found = self._line.get("/journal", about, patience=self._soon, **asked)
        with readable():
            return [*map(entry_of, found["entries"])]

    def anchors(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[Anchor]:
        raise _on_the_server("whether its journal is whole is looked into there, with `sayso log --verify`")

    def watch(self, request_id: str, wake: Callable[[], None]) -> Unwatch:
        remove = self._bell.add(request_id, wake)
        self._listener.listen(request_id, self._marks.get(request_id))
        return remove

    def watch_all(self, wake: Callable[[], None]) -> Unwatch:
        remove = self._bell.add_for_any(wake)
        self._listener.listen(None, None)
        return remove

    # -- inside ------------------------------------------------------------------------------------------------

    def _done(
        self, request_id: str, verb: str, body: Mapping[str, Any], patience: float, *, is_brief: bool = False
    ) -> Request:
        path = f"/requests/{quote(request_id, safe='')}/{verb}"
        return self._read(self._line.post(path, body, request_id, patience=patience, is_brief=is_brief))

    def _read(self, wire: Any) -> Request:
        request = request_from(wire)
        if len(self._marks) >= _MARKS:
            self._marks.clear()
        self._marks[request.id] = mark_of(request)
        return request

    def _every(self, wanted: Filter) -> list[Request]:
        found: list[Request] = []
        cursor, has_more = None, True
        while has_more:
            page = self.list(wanted, cursor=cursor, limit=200)
            found += page.requests
            cursor = page.cursor
            has_more = cursor is not None
        return found

    def _after_loss(self, refusal: errors.StartRefusedError, request_id: str) -> Request:
        """Return what a request became; raises the refusal again unless the answer to an earlier try was lost."""
        if not isinstance(refusal.__cause__, LostError):
            raise refusal
        return self.get(request_id)

    def _due(self) -> Sequence[str]:
        return []  # `sweep` asks the server

    def _transact(self, work: Callable[[Transaction], T | errors.SaysoError]) -> T:
        _people_decide()

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        raise _on_the_server("what it keeps beside its requests stays there")

    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        raise _on_the_server("what it keeps beside its requests stays there")


def _filter(wanted: Filter) -> dict[str, Any]:
    claimed = wanted.claimed_by
    return {
        "states": sorted(wanted.states), "run_id": wanted.run_id, "name": wanted.name, "risk": wanted.risk,
        "text": wanted.text, "kind": wanted.kind,
        "claimed_by": None if claimed is None else [claimed.issuer, claimed.subject],
    }  # fmt: skip


def _on_the_server(what: str) -> errors.StoreForbiddenError:
    return errors.StoreForbiddenError(
        f"this store is a sayso server, and a program's token opens its own requests; {what}"
    )


def _people_decide() -> NoReturn:
    raise _on_the_server(
        "nothing was decided: people decide in the server's inbox, or with a token of the kind `review` by its HTTP API"
    )


_stores: weakref.WeakSet[HttpStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
