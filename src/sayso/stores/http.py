"""`HttpStore`: the store of a sayso server, used by programs on other machines through its HTTP API.

Each verb sends one message; the server validates it again and takes the requester from the token. Whether a process on
this machine is alive is checked here, because the server cannot. Decisions are not sent through this store, because
people decide on the server. If the server does not confirm a verb, the verb raises and nothing runs. `Listener` wakes
waiters: one thread keeps a long poll open for all of them.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any, NoReturn, TypeVar

from sayso import errors
from sayso.effects import daemon_thread
from sayso.model.journal import Entry, RowDigests
from sayso.model.lifecycle import Outcome, keepable
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate
from sayso.model.text import storable
from sayso.stores import http_messages as messages
from sayso.stores import workers
from sayso.stores.base import Filter, Page, Store
from sayso.stores.filter import RunFilter, read_cursor
from sayso.stores.http_transport import (
    BROKEN,
    AnswerLostError,
    LaterError,
    Transport,
    beginning_run,
    encoded,
    jittered,
)
from sayso.stores.records import RecordRow
from sayso.stores.review import requests_in
from sayso.stores.watching import Bell, Watched
from sayso.stores.workers import forget_after_fork

T = TypeVar("T")
_M = TypeVar("_M", bound=messages.Message)

_LOOKING_PATIENCE = 5.0
_BRIEF = 2.0
_MAX_ETAGS = 1_024
_MOST_RENEWED = 1_000


class HttpStore(Watched, Store):
    """The requests and runs of one token's program on a sayso server.

    Args:
        address: `https://host`; `http://` only for this machine.
        token: A token of the kind `ask`, from `sayso token new`.
        patience: For how many seconds the verbs of a call are retried while the server is away; each is safe to send
            twice. Reads (lists, the journal) give up after five seconds at most. After a 429 it retries twenty times as
            long. A program that stops waiting withdraws its request within two seconds, or leaves it.

    Raises:
        ConfigError: The address or the token is invalid.
    """

    look_again = 30.0  # the listener reports changes, and polling by many is expensive
    longest_step = messages.LARGEST // 2  # a message has more than one step

    def __init__(self, address: str, token: str, *, patience: float = 60.0) -> None:
        self.url = address.rstrip("/")
        self._transport = Transport(self.url, token)
        self._patience, self._looking_patience = patience, min(patience, _LOOKING_PATIENCE)
        self._etags = dict[str, str]()
        self._holders = dict[str, str]()  # ids of the requests that hold, by fingerprint, as last read here
        self._starts = dict[str, int]()  # how many starts each request had then
        self.after_fork()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """Begin with new locks, threads and connections in a forked child."""
        self._transport.after_fork()
        self._bell = Bell()
        self._listener = Listener(self._bell, self._transport)

    def close(self) -> None:
        self._listener.close()
        self._transport.close()

    # -- what programs do --------------------------------------------------------------------------------------

    def ask(self, request: Request, saved: RunUpdate | None = None) -> Request:
        message = messages.Ask.of(request=messages.AskedRequest.of_request(request), update=saved)
        with beginning_run(request.run_id):
            return self._request(message, request.run_id)

    def settle(self, request_id: str, *, gone: str | None = None) -> Request:
        request = self._request(messages.Settle.of(request_id=request_id, gone=gone))
        execution = request.execution
        if gone is None and request.state is State.RUNNING and execution and workers.is_gone(execution.worker):
            return self.settle(request_id, gone=execution.worker)
        return request

    def sweep(self) -> int:
        changed = self._look(messages.Sweep(), messages.Swept).changed
        for request in requests_in(self, Filter(states=frozenset({State.RUNNING}))):
            changed += self.settle(request.id).state is not State.RUNNING
        return changed

    def withdraw(self, request_id: str, by: Identity, reason: str | None = None, *, is_brief: bool = False) -> Request:
        message = messages.Withdraw.of(request_id=request_id, reason=storable(reason))
        return self._request(message, is_brief=is_brief)

    def send_back(self, request_id: str, by: Identity, problems: Collection[str]) -> Request:
        return self._request(messages.SendBack.of(request_id=request_id, problems=storable(list(problems))))

    def start(self, request_id: str, token: str, *, by: str | None = None, seen: Request | None = None) -> Request:
        me = workers.current() if by is None else by
        starts = self._starts.get(request_id) if seen is None else _starts_of(seen)
        try:
            started = self._request(messages.Start.of(
                request_id=request_id, token=str(token), worker=me, seen=starts
            ))  # fmt: skip
        except errors.AlreadyStartedError:
            started = self.get(request_id)
            execution = started.execution
            if started.state is not State.RUNNING or execution is None or execution.token != token:
                raise
            # Only this process knows the token: the message arrived twice, or its first answer was lost.
        if by is None:
            workers.keep_renewing(self, request_id, token)
        return started

    def renew(self, starts: Sequence[tuple[str, str]], runs: Sequence[tuple[str, str]] = ()) -> Sequence[str]:
        # Not for long: a renewal in time is retried later, and one that is late is lost anyway.
        lost = list[str]()
        for first in range(0, max(len(starts), len(runs)), _MOST_RENEWED):
            part = slice(first, first + _MOST_RENEWED)
            message = messages.Renew.of(starts=list(starts[part]), runs=list(runs[part]))
            lost += self._transport.send(message, messages.Renewed, "", patience=_BRIEF, is_brief=True).lost
        return lost

    def finish(self, request_id: str, token: str, outcome: Outcome, saved: RunUpdate | None = None) -> Request:
        try:
            return self._request(_fitting(
                messages.Finish.of(request_id=request_id, token=token, outcome=_sendable(outcome), update=saved)
            ))  # fmt: skip
        except errors.StartRefusedError as refusal:
            if not isinstance(refusal.__cause__, AnswerLostError):
                raise
            request = self.get(request_id)
            execution = request.execution
            is_ours = execution is not None and (execution.token, execution.resolved_by) == (token, None)
            if is_ours and execution is not None and execution.finished_at is not None:
                return request  # recorded by our own earlier attempt, whose answer was lost
            raise
        finally:
            workers.stop_renewing(self, token)

    def resolve(
        self, request_id: str, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None,
        channel: str, force: bool = False, token: str | None = None, start: int = 1, outcome: Outcome | None = None,
    ) -> Request:  # fmt: skip
        if roles is not None or force:
            _people_decide()
        found = None if outcome is None else _sendable(outcome)
        return self._request(_fitting(
            messages.Verify.of(request_id=request_id, happened=happened, token=token, outcome=found)
        ))  # fmt: skip

    def note(self, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
        with beginning_run(run_id):
            self._send(messages.Note.of(run_id=run_id, event=event, detail=storable(detail)), messages.Done, run_id)

    # -- what programs read ------------------------------------------------------------------------------------

    def get(self, request_id: str) -> Request:
        return self._request(messages.Get.of(request_id=request_id))

    def as_heard(self, request_id: str) -> Request:
        """Return a request for a caller that waits for it: from the last change message, or else from the server.

        It returns within two seconds, so that a cancelled wait ends in time.

        Raises:
            StoreUnavailableError: The server is away or asks this program to come later; neither ends a wait.
        """
        heard = self._listener.heard(request_id)
        if heard is not None:
            return self._noted(heard)
        try:
            return self._request(messages.Get.of(request_id=request_id), is_brief=True)
        except errors.StoreBusyError as limited:
            raise errors.StoreUnavailableError(str(limited)) from limited

    def asks_first(self, fingerprint: str) -> bool:
        # Looking first costs a message, as asking does. But if a copy of an ask that found this request came late, when
        # its call has ended, it would ask for the call anew.
        return fingerprint not in self._holders

    def find(self, fingerprint: str) -> Request | None:
        return self._found(messages.Find.of(fingerprint=fingerprint))

    def find_key(self, run_id: str, key: str) -> Request | None:
        return self._found(messages.FindKey.of(run_id=run_id, key=key), run_id)

    def by_effect(self, effect: str) -> Sequence[Request]:
        return self._send(messages.ByEffect.of(effect=effect), messages.Requests).requests

    def _kept_result(self, request_id: str) -> str | None:
        return self._send(messages.GetResult.of(request_id=request_id), messages.Result, request_id).result

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        return self._look(messages.Match.of(prefix=prefix, limit=limit), messages.Ids).ids

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        read_cursor(cursor)  # raises here as other stores do
        message = messages.List.of(wanted=wanted, cursor=cursor, limit=limit, newest=newest)
        found = self._look(message, messages.Requests)
        return Page(tuple(found.requests), found.cursor)

    def count(self, wanted: Filter) -> int:
        return sum(1 for _ in requests_in(self, wanted))

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        if run_id is None and request_id is None:
            raise _on_the_server("read the journal on the server")
        message = messages.Journal.of(run_id=run_id, request_id=request_id, after=after, limit=limit)
        return self._look(message, messages.Entries, request_id or run_id or "").entries

    def row_digests(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[RowDigests]:
        raise _on_the_server("run `sayso log --verify` on the server")

    def _listen(self, request_id: str | None, wake: Callable[[], None], /) -> None:
        self._listener.listen(request_id, None if request_id is None else self._etags.get(request_id))

    # -- runs: both sides check whether a holder is alive, because each sees only its own processes ----------------

    def get_run(self, run_id: str) -> RunSnapshot:
        return self._snapshot(messages.GetRun.of(run_id=run_id), run_id)

    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        read_cursor(cursor)  # raises here as other stores do
        found = self._look(messages.Runs.of(wanted=wanted, cursor=cursor, limit=limit), messages.RunsPage)
        return found.runs, found.cursor

    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        found = self._look(messages.ReadyRuns.of(names=sorted(names), limit=limit), messages.RunsPage)
        ready = {run.id: run for run in found.runs}
        for name in names:
            cursor, has_more = None, True
            while has_more:
                page, cursor = self.runs(RunFilter(frozenset({RunState.RUNNING}), name), cursor=cursor, limit=200)
                ready |= {run.id: run for run in page if workers.is_free(run.holder)}
                has_more = cursor is not None
        return sorted(ready, key=lambda run_id: ready[run_id].updated_at)[:limit]

    def save_run(self, saved: RunUpdate) -> None:
        with beginning_run(saved.run.id):
            self._send(messages.SaveRun.of(update=saved), messages.Done, saved.run.id)

    def take_run(self, run_id: str, holder: str, *, gone: str | None = None) -> RunSnapshot:
        message = messages.TakeRun.of(run_id=run_id, holder=holder, gone=gone)
        try:
            return self._snapshot(message, run_id)
        except errors.RunBusyError:
            held_by = self.get_run(run_id).run.holder
            if gone is not None or held_by is None or not workers.is_free(held_by):
                raise
            return self.take_run(run_id, holder, gone=held_by)

    def leave_run(self, saved: RunUpdate, state: RunState) -> None:
        self._send(messages.LeaveRun.of(update=saved, state=state), messages.Done, saved.run.id)

    # -- inside ------------------------------------------------------------------------------------------------

    def _send(self, message: messages.Message, answer: type[_M], about: str = "") -> _M:
        return self._transport.send(message, answer, about, patience=self._patience)

    def _look(self, message: messages.Message, answer: type[_M], about: str = "") -> _M:
        return self._transport.send(message, answer, about, patience=self._looking_patience)

    def _request(self, message: Any, about: str | None = None, *, is_brief: bool = False) -> Request:
        patience = min(self._patience, _BRIEF) if is_brief else self._patience
        return self._noted(self._transport.send(
            message, messages.RequestMessage, message.request_id if about is None else about, patience=patience,
            is_brief=is_brief,
        ))  # fmt: skip

    def _found(self, message: messages.Message, about: str = "") -> Request | None:
        found = self._send(message, messages.Found, about).found
        return None if found is None else self._noted(found)

    def _snapshot(self, message: messages.Message, run_id: str) -> RunSnapshot:
        snapshot = self._send(message, messages.RunSnapshotMessage, run_id).snapshot
        return RunSnapshot(snapshot.run, tuple(snapshot.steps))

    def _noted(self, message: messages.RequestMessage) -> Request:
        """Return the request of a message; remember its ETag, whether it holds, and how often it was started."""
        request = message.request
        if len(self._etags) >= _MAX_ETAGS:
            self._etags.clear()
            self._holders.clear()
            self._starts.clear()
        self._etags[request.id] = message.etag
        self._starts[request.id] = _starts_of(request)
        if request.holds:
            self._holders[request.fingerprint] = request.id
        elif self._holders.get(request.fingerprint) == request.id:
            self._holders.pop(request.fingerprint, None)
        return request

    def _due(self) -> Sequence[str]:
        return []  # `sweep` asks the server

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        _people_decide()

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        raise _on_the_server("records can be read on the server only")

    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        raise _on_the_server("records can be read on the server only")


def _starts_of(request: Request) -> int:
    return 0 if request.execution is None else request.execution.starts


def _on_the_server(what: str) -> errors.StoreForbiddenError:
    return errors.StoreForbiddenError(
        f"this store is a sayso server, and a program's token is only for the program's own requests; {what}"
    )


def _sendable(outcome: Outcome) -> Outcome:
    kept, why = (None, None)
    if outcome.kept is not None or outcome.not_kept is not None:
        kept, why = keepable(outcome)
    return outcome._replace(error=storable(outcome.error), kept=kept, not_kept=why)


def _fitting(message: messages.Finish | messages.Verify) -> messages.Finish | messages.Verify:
    """Return a message without the result to keep if a server would refuse it: that the call is done must be recorded.

    A message escapes each quote and backslash of the result once more.
    """
    outcome = message.outcome
    if outcome is None or outcome.kept is None or len(encoded(message)) <= messages.LARGEST:
        return message
    outcome = outcome._replace(kept=None, not_kept="a message with it is larger than a server takes")
    return message.model_copy(update={"outcome": outcome})


def _people_decide() -> NoReturn:
    raise _on_the_server(
        "nothing was decided: people decide in the server's inbox, or with a token of the kind `review` by its HTTP API"
    )


# -- waiting -----------------------------------------------------------------------------------------------------

_WAIT = 25.0
_TURN = 0.25  # if there are too many for one message, each part waits at most this long
_MOST = 2_000
_TOGETHER = 0.005  # callers that begin to wait at the same time share a message
_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # many programs wait for an absent server, and should notice soon that it is back


class Listener:
    """A thread that rings the bell when the server reports a change. It ends when nobody waits.

    It sends the last seen ETag of every request that somebody waits for, and the server answers as soon as one differs.
    So nothing is lost while a connection is down: a change during that time still differs afterwards. A caller that
    begins to wait meanwhile breaks the connection, so that the thread asks again. The answer includes the changed
    requests, so that the waiting callers need not each fetch theirs.

    Args:
        bell: Wakes the callers that wait.
        transport: The connection to the server.
    """

    def __init__(self, bell: Bell, transport: Transport) -> None:
        self._bell, self._transport = bell, transport
        self._requests = dict[str, messages.RequestMessage]()
        self._lock = threading.Lock()
        self._seen = dict[str, str | None]()
        self._version: str | None = None
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._asking: HTTPConnection | None = None

    def listen(self, request_id: str | None, seen: str | None) -> None:
        """Make the thread ask for another request, last seen with this ETag; None means any change at all."""
        with self._lock:
            if request_id is not None:
                self._seen.setdefault(request_id, seen)
                self._requests.pop(request_id, None)  # left over from an earlier caller
            self._break_off()
            if self._thread is None:
                self._thread = daemon_thread("sayso-listener", self._run)

    def heard(self, request_id: str) -> messages.RequestMessage | None:
        """Return the request from the last change message, once; None if there is none."""
        with self._lock:
            return self._requests.pop(request_id, None)

    def close(self) -> None:
        """Make the thread check whether anybody still waits."""
        with self._lock:
            self._break_off()

    def _break_off(self) -> None:
        self._news.set()
        if self._asking is not None and self._asking.sock is not None:
            with suppress(OSError):  # its answer may just have arrived
                socket.socket.shutdown(self._asking.sock, socket.SHUT_RDWR)

    def _run(self) -> None:
        pause, connection = _PAUSE, None
        while True:
            with self._lock:  # so that `listen` either finds this thread or starts another
                if self._bell.is_idle:
                    self._thread = None
                    self._seen.clear()
                    self._requests.clear()
                    break
            if self._news.is_set():
                time.sleep(_TOGETHER)
                self._news.clear()
            try:
                if connection is None or connection.sock is None:
                    connection = self._transport.connect(_WAIT + 10)
                self._ask(connection)
                pause = _PAUSE
                continue
            except LaterError as later:  # send nothing until then, even if more callers wait
                until = time.monotonic() + jittered(later.seconds, never_less=True)
                while not self._bell.is_idle and (left := until - time.monotonic()) > 0:
                    self._news.clear()
                    self._news.wait(left)
            except BROKEN:
                if not self._news.is_set() and not self._news.wait(jittered(pause)):
                    pause = min(2 * pause, _LONGEST_PAUSE)
            except Exception:  # noqa: BLE001  whatever is wrong, the woken waiters look for themselves, and get it
                self._bell.ring_all()
                self._news.wait(_LONGEST_PAUSE)
            connection = _hung_up(connection)
        _hung_up(connection)

    def _ask(self, connection: HTTPConnection) -> None:
        watched = self._bell.watched()
        parts = [watched[first : first + _MOST] for first in range(0, len(watched), _MOST)] or [[]]
        for part in parts:
            with self._lock:
                if self._news.is_set() or self._bell.is_idle:
                    return  # `watched` is out of date: somebody came, or the last one left before a break-off
                self._seen = {one: self._seen.get(one) for one in watched}
                seen = {one: self._seen[one] for one in part}
                self._asking = connection
            wait, began = _WAIT if len(parts) == 1 else _TURN, time.monotonic()
            version = (self._version or "") if self._bell.is_for_any else None
            message = messages.Wait.of(seen=seen, seconds=wait, version=version)
            try:
                is_news = self._heard(self._transport.send_once(connection, message, messages.Changes))
            finally:
                with self._lock:
                    self._asking = None
            if not is_news and time.monotonic() - began < wait / 2:
                self._news.wait(_PAUSE)  # a server that shuts down, or a proxy, answers at once

    def _heard(self, changes: messages.Changes) -> bool:
        with self._lock:
            self._seen.update(changes.changed)
            for one in changes.changed:
                self._requests.pop(one, None)
            self._requests |= {one.request.id: one for one in changes.requests}
        before, self._version = self._version, changes.version
        is_news = bool(changes.changed) or self._version != before
        if is_news:
            self._bell.ring(changes.changed)
        return is_news


def _hung_up(connection: HTTPConnection | None) -> None:
    if connection is not None:
        connection.close()
