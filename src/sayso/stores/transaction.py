"""One store transaction: what it offers, how a request changes inside it, and the verbs that both doors have.

Verbs change a request by `changed`: it loads, verifies, applies a rule of `sayso.model.lifecycle` and updates.
`insert` and `update` also write the records that a change requires: a delivery for each registered channel (sent by
`sayso.channels.outbox`), the time at which a request escalates, and the entry by which a server counts the open
requests of a token. Invariant: a change and its records become durable together, or not at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from sayso import errors
from sayso.model import lifecycle
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State
from sayso.model.reviewer import TOKENS, Identity
from sayso.model.run import RunRecord, RunUpdate, Step
from sayso.stores import worker
from sayso.stores.codec import altered
from sayso.stores.records import Record, RecordTransaction, record_of, row_of

__all__ = [
    "CHANNEL", "ESCALATION", "RESULT", "SUBMISSION", "RequestStore", "Transaction", "Unwatch", "changed",
    "changed_if_any", "delivery_kind", "insert", "save", "update", "waiting_kind",
]  # fmt: skip

T = TypeVar("T")
Unwatch = Callable[[], None]


class Transaction(RecordTransaction, Protocol):
    """What a store offers to the verbs inside one transaction."""

    def now(self) -> datetime:
        """Return the store's instant."""
        ...

    def load(self, request_id: str) -> Request:
        """Return a request; raises `RequestNotFoundError`."""
        ...

    def holder(self, fingerprint: str) -> Request | None:
        """Return the request that holds this fingerprint, if any."""
        ...

    def keyed(self, run_id: str, key: str) -> Request | None:
        """Return the request that was asked with this key in this run, whatever its state."""
        ...

    def with_effect(self, effect: str) -> Sequence[Request]:
        """Return the requests with this effect in the order they were asked.

        Raises `AlteredRequestError` where the row of one does not match the journal.
        """
        ...

    def insert(self, transition: Transition) -> None:
        """Write a new request and its row in the journal, whose detail gets the digests of an `Anchor`."""
        ...

    def update(self, transition: Transition) -> None:
        """Write a changed request and its row in the journal, with the digest `row_digest` of an `Anchor`."""
        ...

    def verify(self, request: Request) -> bool:
        """Say whether the whole row of a request that was loaded matches the journal's newest row about it."""
        ...

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run, if it is kept here."""
        ...

    def put_run(self, run: RunRecord) -> None:
        """Write a run, new or changed."""
        ...

    def add_steps(self, run_id: str, steps: Sequence[Step]) -> None:
        """Add steps after those that are there."""
        ...

    def drop_steps(self, run_id: str) -> None:
        """Take all steps of a run away, and what they wait for."""
        ...


CHANNEL, ESCALATION, RESULT, SUBMISSION = "channel", "escalation", "result", "submission"

# Changes of which no message is made; whatever else may come to be is told.
_SILENT = frozenset({"claimed", "cleared", "released", "started", "suspended", "voted"})


def delivery_kind(channel: str) -> str:
    """Return the kind of record in which a channel's deliveries stand, each under the id of its request."""
    return f"delivery/{channel}"


def waiting_kind(requester: Identity) -> str:
    """Return the kind of record by which the waiting requests of a token's program are counted."""
    return f"waiting/{requester.qualified}"


def insert(tx: Transaction, transition: Transition) -> None:
    """Write a new request, and what is owed for it."""
    tx.insert(transition)
    request = transition.request
    if request.requester.issuer == TOKENS:
        tx.put_record(row_of(Record(waiting_kind(request.requester), request.id, {}, request.expires_at)))
    if request.escalation is not None:
        tx.put_record(row_of(Record(ESCALATION, request.id, {}, request.created_at + request.escalation.after)))
    # A named channel that nobody has registered yet gets its messages when somebody does.
    for channel in request.channels or tx.record_keys(CHANNEL):
        tx.put_record(row_of(Record(delivery_kind(channel), request.id, {"changes": 0, "sent": []}, tx.now())))


def update(tx: Transaction, transition: Transition) -> None:
    """Write a changed request, and that its deliveries are due again."""
    tx.update(transition)
    request = transition.request
    if request.requester.issuer == TOKENS and request.state is not State.PENDING:
        kind = waiting_kind(request.requester)
        if tx.find_record(kind, request.id) is not None:
            tx.drop_record(kind, request.id)
    if transition.event in _SILENT:
        return
    for channel in tx.record_keys(CHANNEL):
        _make_due(tx, channel, request)


def _make_due(tx: Transaction, channel: str, request: Request) -> None:
    row = tx.find_record(delivery_kind(channel), request.id)
    if row is None:
        return  # asked before there was this channel
    record = record_of(row)
    # Who delivers it just now finds by the count that it has changed. Until then it stays theirs, or it would be sent
    # by two; and what was given up stays so.
    is_free = not record.body.keys() & {"holder", "given_up"}
    body = {**record.body, "changes": record.body["changes"] + 1}
    tx.put_record(row_of(replace(record, body=body, due=tx.now() if is_free else record.due)))


def save(tx: Transaction, saved: RunUpdate) -> None:
    """Write what a run's holder saved; raises `RunBusyError` where it does not hold the run any more."""
    known = tx.run(saved.run.id)
    if known is not None and known.holder != saved.run.holder:
        raise errors.RunBusyError(known.id)
    run = saved.run if saved.left is None else saved.run.left(saved.left, tx.now())
    if known != run:
        tx.put_run(run)
    if saved.steps:
        tx.add_steps(saved.run.id, saved.steps)


def changed(
    tx: Transaction, request_id: str, rule: Callable[..., Transition], *, is_start: bool = False, **options: Any
) -> Request | errors.SaysoError:
    """Change a request by a rule of `lifecycle`; return the fault that is to be raised after the commit, if any."""
    request, now = tx.load(request_id), tx.now()
    if not tx.verify(request):
        return altered(request_id, is_start=is_start)
    lapsed = _lapsed(request, now)
    if lapsed is not None:
        update(tx, lapsed)
        request = lapsed.request
    try:
        transition = rule(request, now=now, **options)
    except errors.SaysoError as refusal:
        return refusal  # raised after the commit, so that an expiry met here stays written
    update(tx, transition)
    return transition.request


def changed_if_any(tx: Transaction, request_id: str, rule: Callable[..., Transition | None], **options: Any) -> Request:
    """Change a request by a rule that may find nothing to change, whatever time has made of it."""
    request = tx.load(request_id)
    transition = rule(request, now=tx.now(), **options)
    if transition is None:
        return request
    update(tx, transition)
    return transition.request


def _lapsed(request: Request, now: datetime) -> Transition | None:
    """Return what time alone has made of a request."""
    if lifecycle.is_due(request, now):
        return lifecycle.expire(request, now)
    return None if request.escalation is None else lifecycle.escalate(request, now)


def _noted(tx: Transaction, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
    tx.note(run_id, event, by, "program", detail)


def _settled(tx: Transaction, request_id: str, gone: str | None) -> Request:
    request = tx.load(request_id)
    if not tx.verify(request):
        raise altered(request_id)
    change, execution = _lapsed(request, tx.now()), request.execution
    if change is None and execution is not None:
        is_gone = execution.worker == gone or worker.is_gone(execution.worker)
        change = lifecycle.abandon(request) if is_gone else None
    if change is None:
        return request
    update(tx, change)
    return change.request


def _resolved(tx: Transaction, request_id: str, **options: Any) -> Request | errors.SaysoError:
    from sayso.stores.grants import give_back  # which imports this module

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
