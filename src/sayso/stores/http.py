"""A sayso server as a store: programs on other machines ask, wait, start and say how it ended, over its HTTP API.

Each verb is one request to the server, which checks everything again and takes who asks from the token. What only this
machine can know is known here: whether a worker or the holder of a run, named by a process of this machine, still
lives. Nobody decides through this store; people do, on the server. The invariant: where the server does not say yes,
the verb raises, and nothing runs.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

from sayso import errors
from sayso.model.entry import Anchor, Entry
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import Saved
from sayso.model.show.escape import storable
from sayso.stores import worker
from sayso.stores.base import Filter, Page, Store, Transaction, Unwatch
from sayso.stores.http_fault import beginning
from sayso.stores.http_line import Line, LostError
from sayso.stores.http_runs import HttpRuns
from sayso.stores.http_watch import Listener
from sayso.stores.http_wire import asked_wire, entry_of, mark_of, readable, request_from, saved_wire
from sayso.stores.select import read_cursor
from sayso.stores.slip import SlipRow
from sayso.stores.watch import Bell

__all__ = ["HttpStore"]

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

    def open(self, request: Request, saved: Saved | None = None) -> Request:
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

    def clear(self, request_id: str, by: Identity, reason: str | None = None) -> Request:
        return self._done(request_id, "clear", {"reason": None if reason is None else storable(reason)}, self._late)

    def withdraw(self, request_id: str, by: Identity, reason: str) -> Request:
        """As `clear`, for a program that stops waiting and must not be held up: it gives up within two seconds."""
        patience = min(self._late, _BRIEF)
        return self._done(request_id, "clear", {"reason": storable(reason)}, patience, is_brief=True)

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

    def finish(self, request_id: str, token: str, outcome: Outcome, saved: Saved | None = None) -> Request:
        said = {"state": outcome.state, "result": outcome.result}
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

    def _slip_row(self, kind: str, key: str) -> SlipRow | None:
        raise _on_the_server("what it keeps beside its requests stays there")

    def _slip_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[SlipRow]:
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
