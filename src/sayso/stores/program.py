"""The verbs of programs (ask, start, record how a call ended, withdraw, store runs), and those that people share.

`RequestStore` has the shared ones: read a request, wait for it, record what time has changed, resolve it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.lifecycle import Outcome, Transition
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate
from sayso.stores import records, transaction, workers
from sayso.stores.codec import altered
from sayso.stores.filter import RunFilter
from sayso.stores.grants import approved_at_once, give_back, stop_in, take
from sayso.stores.records import Record, row_of_record, verb
from sayso.stores.transaction import Transaction, changed, changed_if_any, save, update

T = TypeVar("T")
Unwatch = Callable[[], None]
_PASSWORD = re.compile(r"(?<=[?&]password=)[^&]+|(?<=[?&]sslpassword=)[^&]+")


def change_due(
    request: Request, now: datetime, renewal: Callable[[], Record | None], gone: str | None = None
) -> Transition | None:
    """Return what time or the end of its worker has changed of a request, if anything.

    Args:
        renewal: Returns the renewal of its lease, if there is one.
        gone: A worker that has certainly ended.
    """
    change, execution = transaction.lapsed(request, now), request.execution
    if change is None and request.state is State.RUNNING and execution is not None:
        is_gone = execution.worker == gone or workers.is_gone(execution.worker)
        span, is_lost = workers.lease_of(execution.worker), False
        if not is_gone and span is not None and now >= execution.started_at + span:
            renewed = renewal()
            is_lost = renewed is None or renewed.due is None or now >= renewed.due
        if is_gone or is_lost:
            change = lifecycle.abandon(request, is_lost=is_lost)
    return change


def drop_lease(tx: Transaction, request: Request, now: datetime) -> None:
    """Remove a lease's renewal. A short call had none, and is spared the look-up."""
    execution = request.execution
    span = None if execution is None else workers.lease_of(execution.worker)
    if execution is None or span is None or now < execution.started_at + span / 4:  # renewals begin after half
        return
    records.drop_if_there(tx, transaction.LEASE, request.id)


def _resolved(tx: Transaction, request_id: str, outcome: Outcome | None, **options: Any) -> Request | errors.SaysoError:
    found = changed(tx, request_id, lifecycle.resolve, outcome=outcome, **options)
    if isinstance(found, Request):
        give_back(tx, found)
        drop_lease(tx, found, tx.now())
        if outcome is not None:
            _keep_result(tx, found, outcome)
    return found


def _keep_result(tx: Transaction, request: Request, outcome: Outcome) -> None:
    if request.execution is not None and request.execution.kept is not None:
        tx.put_record(row_of_record(Record(transaction.RESULT, request.id, {"text": outcome.kept})))


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
        """`url` without its password, if it has one, also as a parameter of a Postgres address."""
        before, at, rest = self.url.rpartition("@")
        scheme, slashes, user = before.partition("://")
        name, colon, _ = user.partition(":")
        shown = f"{scheme}{slashes}{name}:***{at}{rest}" if at and slashes and colon else self.url
        return _PASSWORD.sub("***", shown)

    def now(self) -> datetime:
        """Return the store's time, by which its verbs decide what has ended: this machine's or that of a server."""
        return clock.now()

    @verb
    def settle(tx: Transaction, request_id: str, *, gone: str | None = None) -> Request:
        """In one transaction, record the end of a request, an escalation, or `unknown` if its worker is gone.

        A worker is gone if its process has certainly ended, or if the lease of its call was not renewed. `gone` is a
        worker that the caller knows to have ended, or to have left the call in a thread. A row that does not match the
        journal is refused.
        """
        request = tx.load(request_id)
        if not tx.verify(request):
            raise altered(request_id)
        now = tx.now()

        def renewal() -> Record | None:
            row = tx.find_record(transaction.LEASE, request_id)
            return None if row is None else records.record_of(row)

        change = change_due(request, now, renewal, gone)
        if change is None:
            return request
        update(tx, change)
        if change.event == "unknown":
            drop_lease(tx, change.request, now)
        return change.request

    def resolve(
        self, request_id: str, by: Identity, *, roles: Collection[str] | None, happened: bool, comment: str | None,
        channel: str, force: bool = False, token: str | None = None, start: int = 1, outcome: Outcome | None = None,
    ) -> Request:  # fmt: skip
        """In one transaction, record how a call with an unknown outcome ended; `roles` is None for a hook.

        `force` also resolves a running call, on a person's word that its worker is gone. `token` (of a hook) or
        `start` (of a reviewer) names the start in question; a later start is not resolved. `outcome` has the result, if
        a hook found it.
        """
        self.settle(request_id)
        return self._transact(
            _resolved, request_id, outcome, by=by, roles=roles, happened=happened, comment=comment, channel=channel,
            force=force, token=token, start=start,
        )  # fmt: skip

    @verb
    def note(tx: Transaction, run_id: str, event: str, by: Identity, detail: dict[str, Any]) -> None:
        """In one transaction, add a journal entry that is not about a request, e.g. for a call that a rule denied."""
        tx.note(run_id, event, by, "program", detail)


class ProgramStore(RequestStore):
    """What a program does: ask, wait, start, record how a call ended, withdraw, and store its runs.

    Attributes:
        longest_step: How long a step of a run may be, as a string in JSON; None for any length. The result of a longer
            one is left out, so that its end can be stored.
    """

    longest_step: int | None = None

    @property
    def _whole(self) -> ProgramStore:
        """This store, even on a view of it in one transaction, which does not last (see `sayso.stores.base`)."""
        return self

    def asks_first(self, fingerprint: str) -> bool:  # noqa: ARG002  for those that remember
        """Return whether to ask without looking first, because a look costs as much or would probably find nothing."""
        return False

    @abstractmethod
    def find(self, fingerprint: str) -> Request | None:
        """Return the committed request that holds this fingerprint; an approved one may be as it was last seen here."""

    @abstractmethod
    def find_key(self, run_id: str, key: str) -> Request | None:
        """Return the committed request with this key in this run, in any state."""

    def result(self, request_id: str) -> str:
        """Return the canonical form of the real result of a call with a key, for callers that use the key again.

        Raises:
            ValueNotKeptError: The call is not done, or its result was too large, had no canonical form or was purged.
            StoreCorruptError: The result is not the recorded one.
        """
        request = self.get(request_id)
        execution = request.execution
        if request.state is not State.DONE or execution is None:
            raise errors.ValueNotKeptError(request_id, f"is not available: the request is {request.state}")
        if execution.kept is None:
            without_key = (
                "only the result of a call with a key is" if request.key is None else "a person said that it happened"
            )
            raise errors.ValueNotKeptError(request_id, f"was not kept: {execution.not_kept or without_key}")
        text = self._kept_result(request_id)
        if text is None or lifecycle.kept_digest(text) != execution.kept:
            raise errors.StoreCorruptError(
                f"the result of request {request_id} is not the one that was recorded: it was altered or deleted;"
                " the call was not run again. Restore the store from a copy"
            )
        return text

    @abstractmethod
    def _kept_result(self, request_id: str) -> str | None:
        """Return the stored real result of a request as text; None if there is none."""

    def ask(self, request: Request, saved: RunUpdate | None = None) -> Request:
        """In one transaction, find the request that answers this one, or record this one, and save a run.

        A new call that a grant or a budget allows is recorded as approved by it (see `sayso.stores.grants`).

        With a key, the answer is the request with this key in this run, in any state; without a key, the request that
        holds this fingerprint. If the returned id equals that of `request`, this call recorded it. Only then is a run
        released (`RunUpdate.left`). If another request holds, or this one is already approved, the run continues and
        stays held.

        Raises:
            KeyReusedError: The key was used in this run for another call; nothing was recorded.
            StoreCorruptError: The request with this key was altered; nothing was recorded.
            AlteredRequestError: Its row was deleted, but the journal has it; nothing was recorded.
            RunBusyError: Somebody else holds the run; nothing was recorded.
        """
        return self._transact(_asked, request, saved)

    def withdraw(
        self,
        request_id: str,
        by: Identity,
        reason: str | None = None,
        *,
        is_brief: bool = False,  # noqa: ARG002  only a store on another machine can wait for long
    ) -> Request:
        """In one transaction, withdraw a program's request, or forget its rejection; the journal keeps the reason.

        With `is_brief`, a store on another machine gives up within two seconds, so as not to delay a caller that stops.
        """
        return self._transact(changed_if_any, request_id, lifecycle.withdraw, by=by, reason=reason)

    def send_back(self, request_id: str, by: Identity, problems: Collection[str]) -> Request:
        """In one transaction, return an approved edit to its reviewers because the function's own types reject it."""
        return self._transact(changed_if_any, request_id, lifecycle.send_back, by=by, problems=problems)

    def start(self, request_id: str, token: str, *, by: str | None = None, seen: Request | None = None) -> Request:
        """In one transaction, grant the single right to run an approved call; durable on return.

        `token` is a new random one (`sayso.model.ids.new_token`) that `finish` needs. The caller knows it even if this
        call is interrupted, and can then still record that nothing ran. `by` is the worker that runs the call, by
        default this process. `seen` is the request as it was when the caller, e.g. a server, found that it can be
        started; the start is refused if another one began or ended since (to a server: if another one began).

        Raises:
            StartRefusedError: Or a subclass; the call must not run.
        """
        me = workers.current() if by is None else by
        started = self._transact(_started, request_id, me, str(token), seen)  # a record does not keep the object alive
        if by is None:
            workers.keep_renewing(self._whole, request_id, token)
        return started

    def finish(self, request_id: str, token: str, outcome: Outcome, saved: RunUpdate | None = None) -> Request:
        """In one transaction, record how a started call ended, and save a run; needs the token of the start.

        If the call is `unknown` because its lease was lost, its outcome is recorded like any other.

        Raises:
            StartRefusedError: It has already ended, or another worker started it; nothing was recorded. If a person or
                hook has resolved it, the journal gets an entry `late` with the worker's outcome.
            RunBusyError: Somebody else holds the run. The outcome of the call is recorded nevertheless.
        """
        try:
            return self._transact(_finished, request_id, token, outcome, saved)
        finally:  # even if the store failed: nobody retries, and the call becomes `unknown`
            workers.stop_renewing(self._whole, token)

    @verb
    def renew(
        tx: Transaction, starts: Sequence[tuple[str, str]], runs: Sequence[tuple[str, str]] = ()
    ) -> Sequence[str]:
        """In one transaction, renew leases of calls and runs; `sayso.stores.workers` does so for this process.

        A call whose worker's name has a lease is running for that time after its start and after each renewal. Then
        `settle` records it as `unknown`, until its outcome comes or somebody resolves it. Programs start it again only
        as its gate allows, and not while it is seen to run (`sayso.stores.workers.running_at`). A run that was not
        renewed for that time can be taken from another machine.

        Args:
            starts: Ids of requests, each with the token of its start.
            runs: Ids of runs, each with its holder.

        Returns:
            The ids of those whose lease was lost: calls that are `unknown`, were resolved, or were started by another
            worker, and runs that somebody else holds or has left.
        """
        lost, now = list[str](), tx.now()
        for request_id, token in starts:
            try:
                request = tx.load(request_id)
            except (errors.RequestNotFoundError, errors.StoreCorruptError):  # costs no other call its lease
                continue
            execution = request.execution
            if execution is None or execution.token != token or execution.resolved_by is not None:
                lost.append(request_id)
            elif request.state is State.RUNNING:
                span = workers.lease_of(execution.worker)
                if span is not None:
                    tx.find_record(transaction.LEASE, request_id)  # Postgres' `put_record` must know whether it exists
                    tx.put_record(row_of_record(Record(transaction.LEASE, request_id, {}, now + span)))
            elif execution.finished_at is None:
                lost.append(request_id)
        return [*lost, *_renew_runs(tx, runs, now)]

    # -- runs ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def get_run(self, run_id: str) -> RunSnapshot:
        """Return a committed run and its steps; raises `RunNotFoundError`."""

    @abstractmethod
    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        """Return runs, newest first, and the `cursor` for those that follow; None at the end."""

    @abstractmethod
    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        """Return the ids of runs that can continue: paused ones that wait only for decided requests, and broken ones.

        A run waits for the requests that its steps name (`Step.waits`). A request is decided if it is neither `pending`
        nor in progress (`running`, `unknown`). A run whose holder is gone, or has lost its lease, counts as broken.
        Only runs of runnables with one of these names are returned, the least recently updated first.
        """

    def save_run(self, saved: RunUpdate) -> None:
        """In one transaction, save what the holder of a run writes.

        Raises:
            RunBusyError: Somebody else holds the run; nothing was written.
        """
        self._transact(save, saved)

    def take_run(self, run_id: str, holder: str, *, gone: str | None = None) -> RunSnapshot:
        """In one transaction, take hold of a run, and return it as it was before. An ended run is only returned.

        Args:
            run_id: The run.
            holder: Who takes it.
            gone: A holder that the caller, on the same machine, knows to have released it.

        Raises:
            RunNotFoundError: No run has this id.
            RunBusyError: Somebody else holds it, and may still be alive or has renewed its lease.
        """
        before = self._transact(_taken, run_id, holder, gone)
        return RunSnapshot(before, self.get_run(run_id).steps)

    @verb
    def leave_run(tx: Transaction, saved: RunUpdate, state: RunState) -> None:
        """In one transaction, save the rest of a run and release it; does nothing if somebody else holds it."""
        with suppress(errors.RunBusyError):
            save(tx, saved._replace(left=state))


# -- inside of a transaction ---------------------------------------------------------------------------------------


def _asked(tx: Transaction, request: Request, saved: RunUpdate | None) -> Request:
    if request.key is None:
        held = tx.holder(request.fingerprint)
    else:
        held = tx.keyed(request.run_id, request.key)
        if held is not None:
            if not tx.verify(held):
                raise altered(held.id)
            lifecycle.must_be_same(held, request)
    if held is not None and held.id == request.id:
        return held  # sent again because the answer was lost; it was complete the first time
    expired = None if held is None else lifecycle.expire(held, tx.now())
    met = held if expired is None else None
    if expired is not None:
        update(tx, expired)
        met = expired.request if request.key is not None or expired.request.holds else None
    approvals: Sequence[Transition] = ()
    if met is None:
        request, approvals = approved_at_once(tx, request)
        transaction.insert(tx, lifecycle.asked(request))
        for approval in approvals:
            update(tx, approval)
            request = approval.request
    if saved is not None:  # a run that need not wait is not released
        save(tx, saved if met is None and not approvals else saved._replace(left=None))
    return met or request


def _started(
    tx: Transaction, request_id: str, by: str, token: str, seen: Request | None
) -> Request | errors.SaysoError:
    def rule(request: Request, now: datetime) -> Transition:
        # Read in this transaction, so that of two starts of one effect the second sees the first.
        same = () if request.effect is None else tx.with_effect(request.effect)
        started = lifecycle.start(request, worker=by, token=token, now=now, same_effect=same, seen=seen)
        stop = stop_in(tx)
        if stop is not None:
            raise errors.StoppedError(request.id, by=str(stop.by), at=stop.at, reason=stop.reason)
        if request.decision is not None and request.decision.under is not None:
            take(tx, request, request.decision.under, now)
            started.detail["grant"] = request.decision.under
        return started

    return changed(tx, request_id, rule, is_start=True)


def _finished(
    tx: Transaction, request_id: str, token: str, outcome: Outcome, saved: RunUpdate | None
) -> Request | errors.SaysoError:
    found = changed(tx, request_id, lifecycle.finish, token=token, outcome=outcome)
    if isinstance(found, errors.SaysoError):
        # The outcome of a worker whose call a person or hook has resolved; the request does not change.
        request = tx.load(request_id)
        execution = request.execution
        if execution is not None and execution.token == token and execution.resolved_by is not None:
            detail = {"request": request_id, "state": outcome.state, "agrees": outcome.state == request.state.value}
            tx.note(request.run_id, "late", request.requester, "program", detail)
        return found
    execution = found.execution
    ended = None if execution is None else execution.finished_at
    if execution is not None and ended is not None and ended - execution.started_at >= workers.SOONEST_RENEWAL:
        drop_lease(tx, found, ended)
    if outcome.not_run:
        give_back(tx, found)
    if outcome.kept is not None:
        _keep_result(tx, found, outcome)
    try:
        if saved is not None:
            save(tx, saved)
    except errors.RunBusyError as refusal:
        return refusal
    return found


def _renew_runs(tx: Transaction, runs: Sequence[tuple[str, str]], now: datetime) -> list[str]:
    lost = list[str]()
    for run_id, holder in sorted(runs):  # in one order, against deadlocks
        try:
            run = tx.run(run_id)
        except errors.StoreCorruptError:
            continue
        if run is not None and run.holder == holder:
            tx.put_run(run.held_by(holder, now))
        elif run is not None:
            lost.append(run_id)
    return lost


def _taken(tx: Transaction, run_id: str, holder: str, gone: str | None) -> RunRecord:
    run = tx.run(run_id, skip_locked=True)
    if run is None:
        raise errors.RunNotFoundError(run_id)
    if run.state is RunState.ENDED:
        return run
    now = tx.now()
    if run.holder not in {holder, gone} and not workers.may_take(run.holder, run.updated_at, now):
        raise errors.RunBusyError(run_id)
    tx.put_run(run.held_by(holder, now))
    return run
