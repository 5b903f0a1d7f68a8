"""The contract of a store, and the verbs that all stores share.

A verb is one transaction: it reads, checks with `sayso.model.lifecycle`, and writes the change and its journal row. The
change is durable when the verb returns. If the verb raises `DecisionRefusedError` or `StartRefusedError`, nothing has
changed, with one exception: a request found past its end is stored as `expired`. Times are compared inside the
transaction, by the store's clock (`Transaction.now`).

A new store implements `Transaction`, `_transact` and the readers, and must pass `sayso.testing.StoreContract`. No verb
takes SQL or a predicate.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.journal import Anchor, Entry, Head, purged
from sayso.model.lifecycle import Outcome, Transition
from sayso.model.request import Call, Decision, Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate
from sayso.stores import worker
from sayso.stores.codec import altered
from sayso.stores.filter import Filter, Page, RunFilter
from sayso.stores.records import Record, RecordTransaction, RecordVerbs, row_of
from sayso.stores.transaction import CHANNEL, ESCALATION, RESULT, Transaction, delivery_kind, insert, save, update

__all__ = ["Filter", "Page", "ProgramStore", "RequestStore", "ReviewStore", "Store", "Transaction", "Unwatch"]

T = TypeVar("T")
Unwatch = Callable[[], None]
Change = Callable[[Request, datetime], Transition]

_PAGE = 1000


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
    def _transact(self, work: Callable[[Transaction], T | errors.SaysoError]) -> T:
        """Run `work` in one transaction, alone. A fault that it returns is raised after the commit.

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
    def close(self) -> None:
        """Release files and threads. Further verbs open them again."""

    def settle(self, request_id: str, *, gone: str | None = None) -> Request:
        """In one transaction, write the end that was reached, an escalation, or `unknown` where the worker is gone.

        `gone` is a worker that the caller knows to have ended. A row that does not match the journal is refused.
        """

        def work(tx: Transaction) -> Request:
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

        return self._transact(work)

    def resolve(
        self, request_id: str, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None,
        channel: str, force: bool = False, token: str | None = None,
    ) -> Request:  # fmt: skip
        """In one transaction, say how a call ended whose outcome is unknown; `roles` is None for a hook.

        `force` also ends one that is recorded as running, on a person's word that its worker is gone. `token` names the
        start that this is about; a later one is not resolved by it.
        """

        def change(request: Request, now: datetime) -> Transition:
            return lifecycle.resolve(
                request, by, roles=roles, happened=happened, comment=comment, channel=channel, force=force, token=token,
                now=now,
            )  # fmt: skip

        self.settle(request_id)
        return self._change(request_id, change)

    def note(self, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
        """In one transaction, add a row to the journal that is about no request, e.g. a call denied by a rule."""
        self._transact(lambda tx: tx.note(run_id, event, by, "program", detail))

    def _change(self, request_id: str, change: Change) -> Request:
        return self._transact(lambda tx: _changed(tx, request_id, change))


class ProgramStore(RequestStore):
    """What a program does: ask, wait, start, say how it ended, take back, and keep its runs."""

    @abstractmethod
    def find(self, fingerprint: str) -> Request | None:
        """Return the request that holds this fingerprint, as last committed."""

    @abstractmethod
    def find_key(self, run_id: str, key: str) -> Request | None:
        """Return the request that was asked with this key in this run, whatever its state, as last committed."""

    @abstractmethod
    def versions(self, run_id: str, tool: str) -> Sequence[tuple[str, str]]:
        """Return the ids of a function's requests that wait or were approved in a run, each with its schema digest."""

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

    @abstractmethod
    def _kept_result(self, request_id: str) -> str | None:
        """Return the text that was kept as the real result of a request; None where there is none."""

    def ask(self, request: Request, saved: RunUpdate | None = None) -> Request:
        """In one transaction, find the request that answers for this one, or record it, and save a run.

        With a key, the request with this key in this run answers, whatever has become of it; without one, the request
        that holds this fingerprint. An equal id says that it was recorded by this call. Only with that one
        is a run handed back (`RunUpdate.left`); where another holds, the run has to look at it, and stays in hand.

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
                update(tx, expired)
                met = expired.request if request.key is not None else None
            if met is None:
                insert(tx, lifecycle.asked(request))
            if saved is not None:
                save(tx, saved if met is None else saved._replace(left=None))
            return met or request

        return self._transact(work)

    def withdraw(
        self,
        request_id: str,
        by: Identity,
        reason: str | None = None,
        *,
        is_brief: bool = False,  # noqa: ARG002  only a store on another machine can wait for long
    ) -> Request:
        """In one transaction, let the program take back what it asked, or forget a no; the journal keeps the reason.

        With `is_brief`, a store on another machine gives up within two seconds: who stops waiting is not held up.
        """

        def work(tx: Transaction) -> Request:
            request = tx.load(request_id)
            change = lifecycle.withdraw(request, by, tx.now(), reason)
            if change is None:
                return request
            update(tx, change)
            return change.request

        return self._transact(work)

    def send_back(self, request_id: str, by: Identity, problems: Collection[str]) -> Request:
        """In one transaction, let an approved edit wait anew that the function's own types refuse; nothing ran."""

        def work(tx: Transaction) -> Request:
            request = tx.load(request_id)
            change = lifecycle.send_back(request, by, problems, tx.now())
            if change is None:
                return request
            update(tx, change)
            return change.request

        return self._transact(work)

    def start(self, request_id: str, token: str, *, by: str | None = None, seen: Request | None = None) -> Request:
        """In one transaction, take the single right to run an approved call; durable before this returns.

        `token` is a new random one (`sayso.model.ids.new_token`); `finish` wants it back. Its maker knows it even
        when this call is broken off, and can then still say that nothing ran. `by` names the worker that runs the
        call; by default it is this process. `seen` is the request as it was when the caller, such
        as a server, found that a start is due: it is not given out where another came, or ended, since.

        Raises:
            StartRefusedError: One of its kinds; the call must not run.
        """
        me = worker.current() if by is None else by

        def work(tx: Transaction) -> Request | errors.SaysoError:
            def change(request: Request, now: datetime) -> Transition:
                # Read in this transaction, so that of two starts of one effect the second sees the first.
                same = () if request.effect is None else tx.with_effect(request.effect)
                return lifecycle.start(request, worker=me, token=token, now=now, same_effect=same, seen=seen)

            return _changed(tx, request_id, change, is_start=True)

        return self._transact(work)

    def finish(self, request_id: str, token: str, outcome: Outcome, saved: RunUpdate | None = None) -> Request:
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
                tx.put_record(row_of(Record(RESULT, request_id, {"text": outcome.kept})))
            try:
                if saved is not None:
                    save(tx, saved)
            except errors.RunBusyError as refusal:
                return refusal
            return found

        return self._transact(work)

    # -- runs ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def get_run(self, run_id: str) -> RunSnapshot:
        """Return a run and its steps as last committed; raises `RunNotFoundError`."""

    @abstractmethod
    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        """Return runs, newest first, and what to give back as `cursor` to get those that follow; None at the end."""

    @abstractmethod
    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        """Return the ids of runs that could go on: paused ones that wait for something decided, and broken ones.

        A run waits for the requests that its steps name (`Step.waits`). One is decided when it neither waits for a
        person (`pending`) nor is under way (`running`, `unknown`). A run whose holder is gone counts as broken.
        Those that nobody touched for longest come first; only runs of runnables with one of these names.
        """

    def save_run(self, saved: RunUpdate) -> None:
        """In one transaction, write what its holder saved of a run.

        Raises:
            RunBusyError: Somebody else has the run in hand; nothing was written.
        """
        self._transact(lambda tx: save(tx, saved))

    def take_run(self, run_id: str, holder: str, *, gone: str | None = None) -> RunSnapshot:
        """In one transaction, take a run in hand and return it as it was before; an ended one is only returned.

        Args:
            run_id: Which run.
            holder: Who takes it.
            gone: A holder of which the caller knows that it has let go, because it is on the holder's machine.

        Raises:
            RunNotFoundError: There is no such run.
            RunBusyError: Somebody else has it in hand, and may still live.
        """

        def work(tx: Transaction) -> RunRecord:
            run = tx.run(run_id)
            if run is None:
                raise errors.RunNotFoundError(run_id)
            if run.state is RunState.ENDED:
                return run
            if run.holder not in {holder, gone} and not worker.is_free(run.holder):
                raise errors.RunBusyError(run_id)
            tx.put_run(run.held_by(holder, tx.now()))
            return run

        before = self._transact(work)
        return RunSnapshot(before, self.get_run(run_id).steps)

    def leave_run(self, saved: RunUpdate, state: RunState) -> None:
        """In one transaction, write what is left to save, and hand the run back; does nothing to one held elsewhere."""

        def work(tx: Transaction) -> None:
            with suppress(errors.RunBusyError):
                save(tx, saved._replace(left=state))

        self._transact(work)


class ReviewStore(RequestStore):
    """What people do, and those who look after a store: list, decide, read the journal, let go of what is old."""

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

    def heads(self) -> Iterator[Head]:
        """Yield the newest row of every chain, ordered by run."""
        last: Head | None = None
        while True:
            page = self.journal(after=None if last is None else last[:2], limit=_PAGE)
            for entry in page:
                if last is not None and entry.run_id != last.run_id:
                    yield last
                last = Head(entry.run_id, entry.seq, entry.link)
            if len(page) < _PAGE:
                break
        if last is not None:
            yield last

    def purge(self, request_id: str, by: Identity, *, before: datetime, channel: str) -> Request:
        """In one transaction, remove what a request was about that ended before; see `sayso.model.journal`.

        The bytes may stay in the files until `scrub`. Does nothing to one that was purged already.

        Raises:
            RequestNotFoundError: There is no such request.
            PurgeRefusedError: Something can still happen to it, its run still needs it, or it ended later.
        """

        def work(tx: Transaction) -> Request:
            request = tx.load(request_id)
            run = tx.run(request.run_id)
            if run is not None and run.state is not RunState.ENDED:
                raise errors.PurgeRefusedError(request_id, f"is needed by its run, which is {run.state}")
            change = purged(request, by, before=before, channel=channel, now=tx.now())
            if change is None:
                return request
            tx.update(change)
            for name in tx.record_keys(CHANNEL):
                if tx.find_record(delivery_kind(name), request_id) is not None:
                    tx.drop_record(delivery_kind(name), request_id)
            if tx.find_record(RESULT, request_id) is not None:
                tx.drop_record(RESULT, request_id)
            return change.request

        return self._transact(work)

    def purge_run(self, run_id: str, by: Identity, *, before: datetime, channel: str) -> None:
        """In one transaction, remove all steps of a run that ended before; it is never begun again.

        Raises:
            RunNotFoundError: There is no such run.
            PurgeRefusedError: It has not ended, or later.
        """

        def work(tx: Transaction) -> None:
            run = tx.run(run_id)
            if run is None:
                raise errors.RunNotFoundError(run_id)
            if run.state is not RunState.ENDED or run.updated_at >= before:
                raise errors.PurgeRefusedError(run_id, f"is {run.state} since {run.updated_at:%Y-%m-%d %H:%M:%S}Z")
            tx.drop_steps(run_id)
            tx.note(run_id, "purged", by, channel, {"what": "steps", "before": clock.written(before)})

        self._transact(work)

    def scrub(self) -> bool:
        """Let nothing of what was removed remain in the files of the store.

        Returns:
            Whether nothing remains; where not, others were reading meanwhile, and it is to be tried again.
        """
        return True


class Store(ProgramStore, ReviewStore, RecordVerbs):
    """Where requests and runs live: both doors, and small rows beside them."""

    def _transact_records(self, work: Callable[[RecordTransaction], T]) -> T:
        return self._transact(work)

    @abstractmethod
    def _due(self) -> Sequence[str]:
        """Return the ids of requests whose end is reached, and of all that are running."""

    def versions(self, run_id: str, tool: str) -> Sequence[tuple[str, str]]:
        """Return the ids of a function's requests that wait or were approved in a run, each with its schema digest."""
        states = frozenset({State.PENDING, State.APPROVED})
        found = self.list(Filter(states=states, run_id=run_id, name=tool)).requests
        return [(request.id, request.subject.schema_digest) for request in found]

    def _kept_result(self, request_id: str) -> str | None:
        record = self.record(RESULT, request_id)
        text = None if record is None else record.body.get("text")
        return text if isinstance(text, str) else None

    def sweep(self) -> int:
        """Settle everything that is due, each in its own transaction; return how many requests changed.

        One that was altered, or cannot be read, is left as it is, with a line in the log, and holds up no other.
        """
        changed = 0
        for request_id in self._due():
            with _leaving_altered("settled"):
                before = self.get(request_id)
                changed += self.settle(request_id).state is not before.state
        for record in self.records(ESCALATION, due_by=clock.now()):
            with _leaving_altered("escalated"):
                changed += self._escalate(record.key)
        return changed

    def _escalate(self, request_id: str) -> bool:
        before, now = self.get(request_id), self.settle(request_id)
        self.drop(ESCALATION, request_id)  # only after it is written: who is broken off here does it again
        return now.escalated_at is not before.escalated_at


def _changed(
    tx: Transaction, request_id: str, change: Change, *, is_start: bool = False
) -> Request | errors.SaysoError:
    """Change a request in a transaction; return the fault that is to be raised after its commit, if there is one."""
    request, now = tx.load(request_id), tx.now()
    if not tx.verify(request):
        return altered(request_id, is_start=is_start)
    lapsed = _lapsed(request, now)
    if lapsed is not None:
        update(tx, lapsed)
        request = lapsed.request
    try:
        transition = change(request, now)
    except errors.SaysoError as refusal:
        return refusal  # raised after the commit, so that an expiry met here stays written
    update(tx, transition)
    return transition.request


def _known(tx: Transaction, request: Request) -> Request | None:
    """Return the request that answers for one that is asked now."""
    if request.key is None:
        return tx.holder(request.fingerprint)
    known = tx.keyed(request.run_id, request.key)
    if known is not None:
        if not tx.verify(known):
            raise altered(known.id)
        lifecycle.must_be_same(known, request)
    return known


def _lapsed(request: Request, now: datetime) -> Transition | None:
    """Return what time alone has made of a request."""
    if request.state is not State.PENDING and request.state is not State.APPROVED:
        return None  # only what waits has an end
    return lifecycle.expire(request, now) or lifecycle.escalate(request, now)


@contextmanager
def _leaving_altered(done: str) -> Generator[None]:
    """Leave a request as it is, with a line in the log, whose row was altered or cannot be read."""
    try:
        yield
    except errors.StoreCorruptError as error:
        logging.getLogger("sayso").warning("not %s: %s", done, error)
