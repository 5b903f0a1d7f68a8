"""The verbs that programs and people share: read a request, wait for it, record what time has changed, resolve it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.stores import worker
from sayso.stores.codec import altered
from sayso.stores.grants import give_back
from sayso.stores.records import Record, drop_if_there, record_of, row_of
from sayso.stores.transaction import LEASE, Transaction, changed, lapsed, update

T = TypeVar("T")
Unwatch = Callable[[], None]


def _noted(tx: Transaction, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
    tx.note(run_id, event, by, "program", detail)


def _settled(tx: Transaction, request_id: str, gone: str | None) -> Request:
    request = tx.load(request_id)
    if not tx.verify(request):
        raise altered(request_id)
    now = tx.now()
    change, execution = lapsed(request, now), request.execution
    if change is None and request.state is State.RUNNING and execution is not None:
        is_gone = execution.worker == gone or worker.is_gone(execution.worker)
        if is_gone or is_lost(request, now, partial(_renewal, tx, request_id)):
            change = lifecycle.abandon(request, is_lost=not is_gone)
    if change is None:
        return request
    update(tx, change)
    if change.event == "unknown":
        drop_lease(tx, change.request, now)
    return change.request


def is_lost(request: Request, now: datetime, renewed: Callable[[], Record | None]) -> bool:
    """Return whether the lease of a running call has ended; `renewed` returns its renewal, if there may be one."""
    execution = request.execution
    span = None if execution is None else worker.lease_of(execution.worker)
    if span is None or execution is None or now < execution.started_at + span:
        return False
    renewal = renewed()
    return renewal is None or renewal.due is None or now >= renewal.due


def _renewal(tx: Transaction, request_id: str) -> Record | None:
    row = tx.find_record(LEASE, request_id)
    return None if row is None else record_of(row)


def drop_lease(tx: Transaction, request: Request, now: datetime) -> None:
    """Remove a lease's renewal. A short call had none, and is spared the look-up."""
    execution = request.execution
    span = None if execution is None else worker.lease_of(execution.worker)
    if execution is None or span is None or now < execution.started_at + span / 4:  # renewals begin after half
        return
    drop_if_there(tx, LEASE, request.id)


def put_lease(tx: Transaction, request: Request, now: datetime) -> None:
    """Renew the lease of a running call for the span in its worker's name; does nothing if there is none."""
    span = None if request.execution is None else worker.lease_of(request.execution.worker)
    if span is not None:
        tx.find_record(LEASE, request.id)  # on Postgres, `put_record` must know whether it exists
        tx.put_record(row_of(Record(LEASE, request.id, {}, now + span)))


def _resolved(tx: Transaction, request_id: str, **options: Any) -> Request | errors.SaysoError:
    found = changed(tx, request_id, lifecycle.resolve, **options)
    if isinstance(found, Request):
        give_back(tx, found)
        drop_lease(tx, found, tx.now())
    return found


class RequestStore(ABC):
    """The verbs that programs and people share: read a request, wait for it, and record what time has changed.

    Every method may be called from any thread.

    Attributes:
        url: The address that opens this store again, e.g. `sqlite:///sayso.db`.
        blocks: Whether verbs wait for a disk or network; async callers then run them in a thread.
        look_again: Seconds after which a waiting caller reads its request again, in case `watch` missed a change.
    """

    url: str
    blocks: bool = True
    look_again: float = 5.0

    @abstractmethod
    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        """Run `work(tx, ...)` in one transaction, alone. An error that it returns is raised after the commit.

        An error that it raises rolls the transaction back.
        """

    @abstractmethod
    def get(self, request_id: str) -> Request:
        """Return a committed request; raises `RequestNotFoundError`."""

    def as_heard(self, request_id: str) -> Request:
        """Return a request for a caller that waits for it: as `get`, or from the last change message; returns soon.

        Raises:
            StoreUnavailableError: The store cannot be reached now, which does not end a wait.
        """
        return self.get(request_id)

    @abstractmethod
    def by_effect(self, effect: str) -> Sequence[Request]:
        """Return the committed requests with this effect in the order in which they were asked."""

    @abstractmethod
    def watch(self, request_id: str, wake: Callable[[], None]) -> Unwatch:
        """Call `wake`, from some thread, after any change of this request by this or another process.

        It may also be called without a change. The returned function ends it.
        """

    @abstractmethod
    def watch_all(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from some thread, after any change of any request or run by this or another process.

        It may also be called without a change. The returned function ends it.
        """

    @abstractmethod
    def sweep(self) -> int:
        """Settle everything that is due, each request in its own transaction; return how many requests changed.

        A request that was altered or cannot be read is skipped with a warning in the log.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and threads. Further verbs open them again."""

    @property
    def public_url(self) -> str:
        """`url` without its password, if it has one."""
        before, at, rest = self.url.rpartition("@")
        scheme, slashes, user = before.partition("://")
        name, colon, _ = user.partition(":")
        return f"{scheme}{slashes}{name}:***{at}{rest}" if at and slashes and colon else self.url

    def now(self) -> datetime:
        """Return the store's time, by which its verbs decide what has ended: this machine's or that of a server."""
        return clock.now()

    def settle(self, request_id: str, *, gone: str | None = None) -> Request:
        """In one transaction, record the end of a request, an escalation, or `unknown` if its worker is gone.

        A worker is gone if its process has certainly ended, or if the lease of its call was not renewed. `gone` is a
        worker that the caller knows to have ended. A row that does not match the journal is refused.
        """
        return self._transact(_settled, request_id, gone)

    def resolve(
        self, request_id: str, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None,
        channel: str, force: bool = False, token: str | None = None,
    ) -> Request:  # fmt: skip
        """In one transaction, record how a call with an unknown outcome ended; `roles` is None for a hook.

        `force` also resolves a running call, on a person's word that its worker is gone. `token` names the start in
        question; a later start is not resolved.
        """
        self.settle(request_id)
        return self._transact(
            _resolved, request_id, by=by, roles=roles, happened=happened, comment=comment, channel=channel,
            force=force, token=token,
        )  # fmt: skip

    def note(self, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
        """In one transaction, add a journal entry that is not about a request, e.g. for a call that a rule denied."""
        self._transact(_noted, run_id, event, by, detail)
