"""What both doors of a store have: look at a request, wait for it, write what time has made of it, resolve it."""

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
    """Say whether the lease of a call that runs has ended; `renewed` looks for its renewal, where there may be one."""
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
    """Take away what renewals have left; a short call had none, and pays no look for it."""
    execution = request.execution
    span = None if execution is None else worker.lease_of(execution.worker)
    if execution is None or span is None or now < execution.started_at + span / 4:  # they begin after half of it
        return
    drop_if_there(tx, LEASE, request.id)


def put_lease(tx: Transaction, request: Request, now: datetime) -> None:
    """Renew the lease of a call that runs, for as long as its worker's name says; nothing where that says nothing."""
    span = None if request.execution is None else worker.lease_of(request.execution.worker)
    if span is not None:
        tx.find_record(LEASE, request.id)  # Postgres wants to know whether it is there
        tx.put_record(row_of(Record(LEASE, request.id, {}, now + span)))


def _resolved(tx: Transaction, request_id: str, **options: Any) -> Request | errors.SaysoError:
    found = changed(tx, request_id, lifecycle.resolve, **options)
    if isinstance(found, Request):
        give_back(tx, found)
        drop_lease(tx, found, tx.now())
    return found


class RequestStore(ABC):
    """What both doors have: look at one request, wait for it, and write down what time has made of it.

    Every method may be called from any thread.

    Attributes:
        url: What opens this store again, e.g. `sqlite:///sayso.db`.
        blocks: Whether verbs wait for a disk or network; the async side then runs them in a thread.
        look_again: Seconds until one who waits for a request looks by itself, in case that no `watch` told of a change.
    """

    url: str
    blocks: bool = True
    look_again: float = 5.0

    @abstractmethod
    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        """Run `work(tx, ...)` in one transaction, alone. A fault that it returns is raised after the commit.

        A fault that it raises undoes everything.
        """

    @abstractmethod
    def get(self, request_id: str) -> Request:
        """Return a request as last committed; raises `RequestNotFoundError`."""

    def as_heard(self, request_id: str) -> Request:
        """Return a request for one who waits for it: as `get`, or as the last news said; short, where `get` is not.

        Raises:
            StoreUnavailableError: The store cannot be asked now, which ends no wait.
        """
        return self.get(request_id)

    @abstractmethod
    def by_effect(self, effect: str) -> Sequence[Request]:
        """Return the requests with this effect in the order they were asked, as last committed."""

    @abstractmethod
    def watch(self, request_id: str, wake: Callable[[], None]) -> Unwatch:
        """Call `wake`, from some thread, after any change of this request, by this or another process.

        It may be called without need. Calling what is returned ends it.
        """

    @abstractmethod
    def watch_all(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from some thread, after any change of any request or run, by this or another process.

        It may be called without need. Calling what is returned ends it.
        """

    @abstractmethod
    def sweep(self) -> int:
        """Settle everything that is due, each in its own transaction; return how many requests changed.

        One that was altered, or cannot be read, is left as it is, with a line in the log, and holds up no other.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and threads. Further verbs open them again."""

    @property
    def public_url(self) -> str:
        """`url` as it may be shown: without the password that may stand in it."""
        before, at, rest = self.url.rpartition("@")
        scheme, slashes, user = before.partition("://")
        name, colon, _ = user.partition(":")
        return f"{scheme}{slashes}{name}:***{at}{rest}" if at and slashes and colon else self.url

    def now(self) -> datetime:
        """Return the store's instant, by which its verbs say what has ended: this machine's, or that of a server."""
        return clock.now()

    def settle(self, request_id: str, *, gone: str | None = None) -> Request:
        """In one transaction, write the end that was reached, an escalation, or `unknown` where the worker is gone.

        A worker counts as gone when its process has surely ended, and when the lease of its call was not renewed.
        `gone` is a worker that the caller knows to have ended. A row that does not match the journal is refused.
        """
        return self._transact(_settled, request_id, gone)

    def resolve(
        self, request_id: str, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None,
        channel: str, force: bool = False, token: str | None = None,
    ) -> Request:  # fmt: skip
        """In one transaction, say how a call ended whose outcome is unknown; `roles` is None for a hook.

        `force` also ends one that is recorded as running, on a person's word that its worker is gone. `token` names the
        start that this is about; a later one is not resolved by it.
        """
        self.settle(request_id)
        return self._transact(
            _resolved, request_id, by=by, roles=roles, happened=happened, comment=comment, channel=channel,
            force=force, token=token,
        )  # fmt: skip

    def note(self, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
        """In one transaction, add a row to the journal that is about no request, e.g. a call denied by a rule."""
        self._transact(_noted, run_id, event, by, detail)
