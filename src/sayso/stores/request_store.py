"""What both doors of a store have: look at a request, wait for it, write what time has made of it, resolve it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.stores import worker
from sayso.stores.codec import altered
from sayso.stores.grants import give_back
from sayso.stores.transaction import Transaction, changed, lapsed, update

__all__ = ["RequestStore", "Unwatch"]

T = TypeVar("T")
Unwatch = Callable[[], None]


def _noted(tx: Transaction, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
    tx.note(run_id, event, by, "program", detail)


def _settled(tx: Transaction, request_id: str, gone: str | None) -> Request:
    request = tx.load(request_id)
    if not tx.verify(request):
        raise altered(request_id)
    change, execution = lapsed(request, tx.now()), request.execution
    if change is None and execution is not None:
        is_gone = execution.worker == gone or worker.is_gone(execution.worker)
        change = lifecycle.abandon(request) if is_gone else None
    if change is None:
        return request
    update(tx, change)
    return change.request


def _resolved(tx: Transaction, request_id: str, **options: Any) -> Request | errors.SaysoError:
    found = changed(tx, request_id, lifecycle.resolve, **options)
    if isinstance(found, Request):
        give_back(tx, found)
    return found


class RequestStore(ABC):
    """What both doors have: look at one request, wait for it, and write down what time has made of it.

    Every method may be called from any thread.

    Attributes:
        url: What opens this store again, e.g. `sqlite:///sayso.db`.
        blocks: Whether verbs wait for a disk or network; the async side then runs them in a thread.
    """

    url: str
    blocks: bool = True

    @abstractmethod
    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        """Run `work(tx, ...)` in one transaction, alone. A fault that it returns is raised after the commit.

        A fault that it raises undoes everything.
        """

    @abstractmethod
    def get(self, request_id: str) -> Request:
        """Return a request as last committed; raises `RequestNotFoundError`."""

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

    def _change(self, request_id: str, rule: Callable[..., Transition], **options: Any) -> Request:
        return self._transact(changed, request_id, rule, **options)
