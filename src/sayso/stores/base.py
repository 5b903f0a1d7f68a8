"""The contract of a store: where requests live, and the only place where they change.

Every verb is one transaction that reads, checks by `sayso.model.lifecycle` and writes together, so that of two
processes that try the same, one is told that it came second. When a verb returns, its change is durable. When it
raises a `DecisionRefusedError` or `StartRefusedError` nothing changed, with one exception: an end that was reached is
written as `expired` by whoever meets it first, and then the refusal is raised.

Each change adds its row to the journal in the same transaction, chained to the row before it in the same run.
Time is compared inside the transaction, with the store's clock (`Transaction.now`).

A new store implements `Transaction` (a handful of small operations), `_transact` and the readers; the verbs come from
here. `sayso.testing.StoreContract` is the test suite that every store must pass. No verb takes SQL or a predicate.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.journal import Anchor, Entry
from sayso.model.lifecycle import Outcome, Transition
from sayso.model.request import Call, Decision, Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import Saved
from sayso.stores import outbox, worker
from sayso.stores.codec import altered
from sayso.stores.evidence_verbs import EvidenceVerbs
from sayso.stores.filter import Filter, Page
from sayso.stores.records import Slip, SlipTransaction, SlipVerbs, row_of
from sayso.stores.run_verbs import RunTransaction, RunVerbs, save

__all__ = ["Filter", "Page", "Store", "Transaction", "Unwatch"]

T = TypeVar("T")
Unwatch = Callable[[], None]


class Transaction(RunTransaction, SlipTransaction, Protocol):
    """What a store offers to the verbs inside one transaction."""

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
        """Write a changed request and its row in the journal, with the digest `stands` of an `Anchor`."""
        ...

    def stands(self, request: Request) -> bool:
        """Say whether the whole row of a request that was loaded matches the journal's newest row about it."""
        ...


Work = Callable[[Transaction], "T | errors.SaysoError"]
Change = Callable[[Request, datetime], Transition]


class Store(RunVerbs, SlipVerbs, EvidenceVerbs):
    """Where requests and runs live. Every method may be called from any thread.

    Attributes:
        url: What opens this store again, e.g. `sqlite:///sayso.db`.
        blocks: Whether verbs wait for a disk or network; the async side then runs them in a thread.
    """

    url: str
    blocks: bool = True

    # -- for implementers --------------------------------------------------------------------------------------

    @abstractmethod
    def _transact(self, work: Callable[[Transaction], T | errors.SaysoError]) -> T:
        """Run `work` in one transaction, alone. A fault that it returns is raised after the commit.

        A fault that it raises undoes everything.
        """

    def _transact_run(self, work: Callable[[RunTransaction], T]) -> T:
        return self._transact(work)

    def _transact_slips(self, work: Callable[[SlipTransaction], T]) -> T:
        return self._transact(work)

    def _kept_result(self, request_id: str) -> str | None:
        slip = self.slip(outbox.RESULT, request_id)
        text = None if slip is None else slip.body.get("text")
        return text if isinstance(text, str) else None

    @abstractmethod
    def _due(self) -> Sequence[str]:
        """Return the ids of requests whose end is reached, and of all that are running."""

    # -- readers -----------------------------------------------------------------------------------------------

    @abstractmethod
    def get(self, request_id: str) -> Request:
        """Return a request as last committed; raises `RequestNotFoundError`."""

    @abstractmethod
    def find(self, fingerprint: str) -> Request | None:
        """Return the request that holds this fingerprint, as last committed."""

    @abstractmethod
    def find_key(self, run_id: str, key: str) -> Request | None:
        """Return the request that was asked with this key in this run, whatever its state, as last committed."""

    @abstractmethod
    def by_effect(self, effect: str) -> Sequence[Request]:
        """Return the requests with this effect in the order they were asked, as last committed."""

    def result(self, request_id: str) -> str:
        """Return the canonical form of what a call with a key really returned, for who asks with its key again.

        Raises:
            ValueNotKeptError: The call is not done, or its result was too large, had no canonical form or was purged.
            StoreCorruptError: The result is not the one that was recorded.
        """
        request = self.get(request_id)
        execution = request.execution
        if request.state is not State.DONE or execution is None:
            raise errors.ValueNotKeptError(request_id, f"is not there: the request is {request.state}")
        if execution.kept is None:
            without_key = (
                "only that of a call with a key is" if request.key is None else "a person said that it happened"
            )
            raise errors.ValueNotKeptError(request_id, f"was not kept: {execution.not_kept or without_key}")
        text = self._kept_result(request_id)
        if text is None or lifecycle.kept_digest(text) != execution.kept:
            raise errors.StoreCorruptError(
                f"the result of request {request_id} is not the one that was recorded: it was altered or taken away;"
                " nothing ran again. Restore the store from a copy"
            )
        return text

    def versions(self, run_id: str, tool: str) -> Sequence[tuple[str, str]]:
        """Return the ids of a function's requests that wait or were approved in a run, each with its shape's digest."""
        states = frozenset({State.PENDING, State.APPROVED})
        found = self.list(Filter(states=states, run_id=run_id, name=tool)).requests
        return [(request.id, request.subject.shape_digest) for request in found]

    @abstractmethod
    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        """Return the ids that begin with `prefix`, at most `limit`."""

    @abstractmethod
    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        """Return a page of requests in the order they were asked, or the other way round with `newest`.

        Raises:
            ValueError: The cursor is not one of this list.
        """

    @abstractmethod
    def count(self, wanted: Filter) -> int:
        """Return how many requests a list would hold."""

    @abstractmethod
    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        """Return rows of the journal, ordered by run and place; `after` is the (run, seq) of the last one seen."""

    @abstractmethod
    def anchors(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[Anchor]:
        """Return how requests are tied to the journal, ordered by id; `after` is the last id seen."""

    def legible(self, entry: Entry) -> Entry:
        """Return a row of the journal with its words opened, where they are sealed; the link covers the sealed ones."""
        return entry

    @abstractmethod
    def watch(self, request_id: str, wake: Callable[[], None]) -> Unwatch:
        """Call `wake`, from some thread, after any change of this request, by this or another process.

        It may be called without need. Calling what is returned ends it.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and threads. Further verbs open them again."""

    # -- verbs -------------------------------------------------------------------------------------------------

    def open(self, request: Request, saved: Saved | None = None) -> Request:
        """In one transaction, find the request that answers for this one, or record it, and save a run.

        With a key, the request with this key in this run answers, whatever has become of it; without one, the request
        that holds this fingerprint. An equal id says that it was recorded by this call. Only with that one
        is a run handed back (`Saved.left`); where another holds, the run has to look at it, and stays in hand.

        Raises:
            KeyReusedError: The key was used in this run for another call; nothing was recorded.
            StoreCorruptError: The request with this key was altered; nothing was recorded.
            RunBusyError: Somebody else has the run in hand; nothing was recorded.
        """

        def work(tx: Transaction) -> Request:
            held = _known(tx, request)
            if held is not None and held.id == request.id:
                return held  # sent again, because the answer was lost: all of it was done the first time
            expired = None if held is None else lifecycle.expire(held, tx.now())
            met = held if expired is None else None
            if expired is not None:
                outbox.update(tx, expired)
                met = expired.request if request.key is not None else None
            if met is None:
                outbox.insert(tx, lifecycle.asked(request))
            if saved is not None:
                save(tx, saved if met is None else saved._replace(left=None))
            return met or request

        return self._transact(work)

    def settle(self, request_id: str, *, gone: str | None = None) -> Request:
        """In one transaction, write the end that was reached, an escalation, or `unknown` where the worker is gone.

        `gone` is a worker that the caller knows to have ended. A row that does not match the journal is refused.
        """

        def work(tx: Transaction) -> Request:
            request = tx.load(request_id)
            if not tx.stands(request):
                raise altered(request_id)
            change, execution = _lapsed(request, tx.now()), request.execution
            if change is None and execution is not None:
                is_gone = execution.worker == gone or worker.is_gone(execution.worker)
                change = lifecycle.abandon(request) if is_gone else None
            if change is None:
                return request
            outbox.update(tx, change)
            return change.request

        return self._transact(work)

    def sweep(self) -> int:
        """Settle everything that is due, each in its own transaction; return how many requests changed.

        One that was altered, or cannot be read, is left as it is, with a line in the log, and holds up no other.
        """
        changed = 0
        for request_id in self._due():
            with outbox.leaving_altered("settled"):
                before = self.get(request_id)
                changed += self.settle(request_id).state is not before.state
        for slip in self.slips(outbox.ESCALATION, due_by=clock.now()):
            with outbox.leaving_altered("escalated"):
                changed += self._escalate(slip.key)
        return changed

    def _escalate(self, request_id: str) -> bool:
        before, now = self.get(request_id), self.settle(request_id)
        self.drop(outbox.ESCALATION, request_id)  # only after it is written: who is broken off here does it again
        return now.escalated_at is not before.escalated_at

    def decide(
        self,
        request_id: str,
        decision: Decision,
        *,
        roles: Collection[str],
        seen: str | None,
        edited: Call | None = None,
    ) -> Request:
        """In one transaction, take a decision; its `at` is the store's instant, its `fingerprint` what it is about.

        Raises:
            RequestNotFoundError: There is no such request.
            DecisionRefusedError: One of its kinds; nothing changed.
        """

        def change(request: Request, now: datetime) -> Transition:
            return lifecycle.decide(request, decision, roles=roles, seen=seen, edited=edited, now=now)

        return self._change(request_id, change)

    def claim(self, request_id: str, by: Identity, *, roles: Collection[str], channel: str) -> Request:
        """In one transaction, let a reviewer take a pending request on."""
        return self._change(
            request_id, lambda request, now: lifecycle.claim(request, by, roles=roles, channel=channel, now=now)
        )

    def release(self, request_id: str, by: Identity, *, roles: Collection[str], force: bool, channel: str) -> Request:
        """In one transaction, give a claimed request back."""
        return self._change(
            request_id,
            lambda request, now: lifecycle.release(request, by, roles=roles, force=force, channel=channel, now=now),
        )

    def extend(
        self, request_id: str, by: Identity, *, roles: Collection[str], span: timedelta, channel: str
    ) -> Request:
        """In one transaction, move the request's or approval's end to `span` from now."""
        return self._change(
            request_id,
            lambda request, now: lifecycle.extend(request, by, roles=roles, span=span, channel=channel, now=now),
        )

    def resolve(
        self, request_id: str, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None,
        channel: str, force: bool = False,
    ) -> Request:  # fmt: skip
        """In one transaction, say how a call ended whose outcome is unknown; `roles` is None for a hook.

        `force` also ends one that is recorded as running, on a person's word that its worker is gone.
        """

        def change(request: Request, now: datetime) -> Transition:
            return lifecycle.resolve(
                request, by, roles=roles, happened=happened, comment=comment, channel=channel, force=force, now=now
            )

        self.settle(request_id)
        return self._change(request_id, change)

    def clear(self, request_id: str, by: Identity, reason: str | None = None) -> Request:
        """In one transaction, let the program take back what it asked, or forget a no; the journal keeps the reason."""

        def work(tx: Transaction) -> Request:
            request = tx.load(request_id)
            change = lifecycle.clear(request, by, tx.now(), reason)
            if change is None:
                return request
            outbox.update(tx, change)
            return change.request

        return self._transact(work)

    def send_back(self, request_id: str, by: Identity, problems: Collection[str]) -> Request:
        """In one transaction, let an approved edit wait anew that the function's own types refuse; nothing ran."""

        def work(tx: Transaction) -> Request:
            request = tx.load(request_id)
            change = lifecycle.send_back(request, by, problems, tx.now())
            if change is None:
                return request
            outbox.update(tx, change)
            return change.request

        return self._transact(work)

    def start(self, request_id: str, token: str, *, by: str | None = None) -> Request:
        """In one transaction, take the single right to run an approved call; durable before this returns.

        `token` is a new random one (`sayso.model.ids.new_token`); `finish` wants it back. Its maker knows it even
        when this call is broken off, and can then still say that nothing ran. `by` names the worker that runs the
        call; by default it is this process.

        Raises:
            StartRefusedError: One of its kinds; the call must not run.
        """
        me = worker.current() if by is None else by

        def work(tx: Transaction) -> Request | errors.SaysoError:
            def change(request: Request, now: datetime) -> Transition:
                # Read in this transaction, so that of two starts of one effect the second sees the first.
                same = () if request.effect is None else tx.with_effect(request.effect)
                return lifecycle.start(request, worker=me, token=token, now=now, same_effect=same)

            return _changed(tx, request_id, change, is_start=True)

        return self._transact(work)

    def finish(self, request_id: str, token: str, outcome: Outcome, saved: Saved | None = None) -> Request:
        """In one transaction, record how the started call ended, and save a run; only the token's holder may.

        Raises:
            StartRefusedError: It has ended already, or was started by somebody else; nothing was recorded.
            RunBusyError: Somebody else has the run in hand. How the call ended is recorded all the same.
        """

        def work(tx: Transaction) -> Request | errors.SaysoError:
            found = _changed(tx, request_id, lambda request, now: lifecycle.finish(request, token, outcome, now))
            if isinstance(found, errors.SaysoError):
                return found
            if found.execution is not None and found.execution.kept is not None:
                tx.put_slip(row_of(Slip(outbox.RESULT, request_id, {"text": outcome.kept})))
            try:
                if saved is not None:
                    save(tx, saved)
            except errors.RunBusyError as refusal:
                return refusal
            return found

        return self._transact(work)

    def note(self, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
        """In one transaction, add a row to the journal that is about no request, e.g. a call denied by a rule."""
        self._transact(lambda tx: tx.note(run_id, event, by, "program", detail))

    def _change(self, request_id: str, change: Change) -> Request:
        return self._transact(lambda tx: _changed(tx, request_id, change))


def _changed(
    tx: Transaction, request_id: str, change: Change, *, is_start: bool = False
) -> Request | errors.SaysoError:
    """Change a request in a transaction; return the fault that is to be raised after its commit, if there is one."""
    request, now = tx.load(request_id), tx.now()
    if not tx.stands(request):
        return altered(request_id, is_start=is_start)
    lapsed = _lapsed(request, now)
    if lapsed is not None:
        outbox.update(tx, lapsed)
        request = lapsed.request
    try:
        transition = change(request, now)
    except errors.SaysoError as refusal:
        return refusal  # raised after the commit, so that an expiry met here stays written
    outbox.update(tx, transition)
    return transition.request


def _known(tx: Transaction, request: Request) -> Request | None:
    """Return the request that answers for one that is asked now."""
    if request.key is None:
        return tx.holder(request.fingerprint)
    known = tx.keyed(request.run_id, request.key)
    if known is not None:
        if not tx.stands(known):
            raise altered(known.id)
        lifecycle.must_be_same(known, request)
    return known


def _lapsed(request: Request, now: datetime) -> Transition | None:
    """Return what time alone has made of a request."""
    return lifecycle.expire(request, now) or lifecycle.escalate(request, now)
