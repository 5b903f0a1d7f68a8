"""Grants, budgets and the stop: what starts a call without a person, and what blocks every start.

They are records, read and written in the transaction of `ask`, `start` and `finish`. A store without any of them pays
for one look-up only. `GrantVerbs` are the verbs of people. Invariants: a start that uses a grant or a budget commits
together with what it used; and each record has a chain in the journal whose newest entry has its digest, so that an
altered record lets nothing start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Context, Decimal
from functools import reduce
from typing import Any, NamedTuple, cast

from sayso import clock, errors
from sayso.clock import instant, microseconds
from sayso.model import lifecycle
from sayso.model.grant import Budget, BudgetUse, Grant, Grantor, Taking
from sayso.model.journal import Entry, detail_of
from sayso.model.lifecycle import Transition
from sayso.model.request import Call, Decision, Request, State
from sayso.model.reviewer import Identity, Reviewer
from sayso.stores import records, transaction
from sayso.stores.records import Record, RecordVerbs, record_of, row_of_record, verb
from sayso.stores.transaction import Transaction

GRANT, ENDED_GRANT, BUDGET, STOP = "grant", "grant/ended", "budget", "stop"
CHAIN = "sayso:starts"
"""The journal chain of the stop: who stopped every start, and who allowed them again."""
_DIGITS = 100  # precision of a budget's sum
KINDS = (GRANT, ENDED_GRANT, BUDGET, STOP)
"""The kinds of records whose digest is in a chain."""


class Stop(NamedTuple):
    """Every start is blocked: by whom, when and why."""

    by: Identity
    at: datetime
    reason: str | None


# -- records that the journal vouches for --------------------------------------------------------------------------


def chain_of(kind: str, key: str) -> str:
    """Return the journal chain of a record; a grant keeps its chain when it ends."""
    return CHAIN if kind == STOP else f"sayso:{GRANT if kind == ENDED_GRANT else kind}:{key}"


def digest_in(detail: str) -> str | None:
    """Return the record's digest in a journal entry; None if it has none."""
    digest = detail_of(detail).get("record")
    return digest if isinstance(digest, str) else None


def _put(tx: Transaction, record: Record, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
    row = row_of_record(record)
    tx.put_record(row)
    detail = {**detail, "record": records.digest_of(row)}
    tx.note(chain_of(record.kind, record.key), event, by, channel, detail)


def _is_as_written(tx: Transaction, kind: str, key: str) -> bool:
    """Return whether a record, or its absence, matches the newest entry of its chain."""
    newest = tx.newest(chain_of(kind, key))  # first, because it blocks others who write both at the same moment
    row = tx.find_record(kind, key)
    digest = None if row is None else records.digest_of(row)
    return digest == (None if newest is None else digest_in(newest.detail))


# -- in the transaction of `ask` -----------------------------------------------------------------------------------


def approved_at_once(tx: Transaction, request: Request) -> tuple[Request, Sequence[Transition]]:
    """Return a new request, and the approvals that a budget or a grant gives it.

    If a budget is used up, the request waits for a person, who is told why.
    """
    if request.always or request.kind != "call":
        return request, ()
    grants = tx.record_keys(GRANT)
    if not (grants or request.budgets) or lifecycle.is_due(request, tx.now()):
        return request, ()
    if request.budgets:
        now = tx.now()
        why = _no_room(tx, request, now)
        if why is None:
            return request, (lifecycle.allow_within(request, " and ".join(text for text, _ in request.budgets), now),)
        request = replace(request, rule=why if request.rule is None else f"{request.rule}; {why}")
    for grant_id in grants:
        grant = _standing(tx, grant_id)
        if grant is None or grant.left < 1 or (grant.lacks(request) is not None and tx.now() < grant.until):
            continue
        if not _is_as_written(tx, GRANT, grant_id) or _ended_by_time(tx, grant):
            continue
        approvals = _approvals(tx, grant, request)
        if approvals:
            return request, approvals
    return request, ()


def _approvals(tx: Transaction, grant: Grant, request: Request) -> Sequence[Transition]:
    """Return the votes of a grant's grantors if they approve the request, else none.

    Each vote is checked as if they decided now, so that nobody approves their own request, and roles and quorum apply.
    """
    found: list[Transition] = []
    for grantor in grant.grantors:
        now = tx.now()
        try:
            transition = lifecycle.decide(
                request, grant.vote(grantor, now), roles=grantor.roles, seen=None, edited=None, now=now
            )
        except errors.DecisionRefusedError:
            continue
        found.append(transition)
        request = transition.request
        if request.state is State.APPROVED:
            return found
    return ()


def _standing(tx: Transaction, grant_id: str) -> Grant | None:
    """Return a grant that has not ended; None if it has, or cannot be read, so that a person decides."""
    try:
        row = tx.find_record(GRANT, grant_id)
        return None if row is None else Grant.from_body(grant_id, record_of(row).body)
    except errors.StoreCorruptError:
        return None


def _ended_by_time(tx: Transaction, grant: Grant) -> bool:
    now = tx.now()
    if now < grant.until:
        return False
    _end(tx, replace(grant, ended="expired", ended_at=grant.until), "grant_expired", grant.requester, "program", {})
    return True


def _end(tx: Transaction, grant: Grant, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
    # Under another kind, so that `ask` and `start` read only grants in force.
    tx.drop_record(GRANT, grant.id)
    _put(tx, Record(ENDED_GRANT, grant.id, grant.body()), event, by, channel, {"grant": grant.id, **detail})


# -- in the transaction of `start` ---------------------------------------------------------------------------------


def take(tx: Transaction, request: Request, under: str, now: datetime) -> None:
    """Charge the start of a call to the grant or the budgets that approved it (see `Decision.under`).

    Raises:
        GrantEndedError: They no longer approve it. The call now waits for a person, unless it was started before.
    """
    why = _take_budgets(tx, request, now) if under == "budget" else _take_from_grant(tx, request, under, now)
    if why is None:
        return
    state = request.state
    if state is State.APPROVED:
        change = lifecycle.ask_again(request, why, now)
        transaction.update(tx, change)  # committed although the start is refused
        state = change.request.state
    raise errors.GrantEndedError(request.id, state=str(state), reason=why)


def _take_from_grant(tx: Transaction, request: Request, grant_id: str, now: datetime) -> str | None:
    grant, is_first = _standing(tx, grant_id), request.execution is None
    if not _is_as_written(tx, GRANT if grant is not None else ENDED_GRANT, grant_id):
        return f"the record of the grant {grant_id} does not match the journal: it was altered"
    if grant is None:
        return _why_ended(tx, grant_id, now, is_first=is_first)
    if _ended_by_time(tx, grant):
        return f"the grant {grant_id} has expired"
    if is_first:  # a retry under the same approval is the same call
        after, by = replace(grant, used=grant.used + 1), request.requester
        detail = {"grant": grant_id, "request": request.id, "left": after.left}
        if after.left < 1:
            _end(tx, replace(after, ended="used up", ended_at=now), "grant_used", by, "program", detail)
        else:
            _put(tx, Record(GRANT, grant_id, after.body(), after.until), "grant_used", by, "program", detail)
    return None


def _why_ended(tx: Transaction, grant_id: str, now: datetime, *, is_first: bool) -> str | None:
    row = tx.find_record(ENDED_GRANT, grant_id)
    if row is None:
        return f"the grant {grant_id} no longer exists"
    try:
        grant = Grant.from_body(grant_id, record_of(row).body)
    except errors.StoreCorruptError:
        return f"the grant {grant_id} cannot be read"
    if grant.ended == "used up" and not is_first and now < grant.until:
        return None  # this approval was charged at its first start
    by = f"by {grant.ended_by}" if grant.ended_by is not None else "meanwhile"
    return f"the grant {grant_id} was revoked {by}" if grant.ended == "revoked" else f"the grant {grant_id} has ended"


# -- budgets -------------------------------------------------------------------------------------------------------


def _no_room(tx: Transaction, request: Request, now: datetime) -> str | None:
    """Return why a call has no room in a budget; None if it has in each, or was charged already."""
    for budget in _budgets(request):
        takings, amount = _takings(tx, budget, budget.account(request), now), budget.amount(request)
        if takings is None:
            return f"the account of the budget {budget} does not match the journal, or cannot be read"
        if amount is None:
            return f"the budget {budget} needs a number from 0 in args.{budget.path}"
        if not _has_taken(takings, request) and _sum(takings, amount) > budget.limit:
            return f"the budget {budget} has no room for it"
    return None


def _take_budgets(tx: Transaction, request: Request, now: datetime) -> str | None:
    why = _no_room(tx, request, now)
    if why is not None:  # in one of them; then nothing is taken from the others
        return why
    for budget in _budgets(request):
        takings, amount = _takings(tx, budget, budget.account(request), now), budget.amount(request)
        if takings is not None and amount is not None and not _has_taken(takings, request):
            _write(tx, budget, request, [*takings, Taking(request.id, microseconds(now), amount)], "budget_taken")
    return None


def give_back(tx: Transaction, request: Request) -> None:
    """Give back to the budgets what a call took that certainly had no effect and was started only once."""
    is_only_start = request.execution is not None and request.execution.starts == 1
    is_budget = request.decision is not None and request.decision.under == "budget"
    if request.state is State.FAILED and is_only_start and is_budget:
        for budget in _budgets(request):
            takings = _takings(tx, budget, budget.account(request), tx.now())
            if takings is not None and _has_taken(takings, request):
                rest = [one for one in takings if one.request_id != request.id]
                _write(tx, budget, request, rest, "budget_given_back")


def _budgets(request: Request) -> Iterator[Budget]:
    return (Budget(text, name) for text, name in request.budgets)


def _has_taken(takings: Sequence[Taking], request: Request) -> bool:
    return any(one.request_id == request.id for one in takings)


def _sum(takings: Sequence[Taking], more: Decimal = Decimal(0)) -> Decimal:
    """Return the sum of what was taken and `more`. Too many digits are rounded up, so that no budget is exceeded."""
    exact = Context(prec=_DIGITS, rounding=ROUND_CEILING)  # the program's own decimal context may have fewer digits
    return reduce(exact.add, (one.amount for one in takings), more)


def _takings(tx: Transaction, budget: Budget, account: str, now: datetime) -> Sequence[Taking] | None:
    """Return what was taken inside the span; None if it cannot be read, and then nothing is allowed."""
    if not _is_as_written(tx, BUDGET, account):
        return None
    row = tx.find_record(BUDGET, account)
    if row is None:
        return []
    try:
        body = record_of(row).body
        takings = [Taking(str(one), int(at), Decimal(amount)) for one, at, amount in body["takings"]]
    except (errors.StoreCorruptError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    since = microseconds(now - budget.span)
    return [one for one in takings if one.at > since]


def _write(tx: Transaction, budget: Budget, request: Request, takings: Sequence[Taking], event: str) -> None:
    rows = [[one.request_id, one.at, str(one.amount)] for one in takings]
    record = Record(BUDGET, budget.account(request), {"budget": str(budget), "takings": rows})
    _put(tx, record, event, request.requester, "program", {"budget": str(budget), "request": request.id})


# -- what people do ------------------------------------------------------------------------------------------------


class GrantVerbs(RecordVerbs):
    """The verbs of `sayso.stores.base.Store` for grants, budgets and the stop."""

    @abstractmethod
    def get(self, request_id: str) -> Request:
        """See `RequestStore.get`."""

    @verb
    def grant(
        tx: Transaction, request_id: str, decision: Decision, *, who: Reviewer, seen: str | None, edited: Call | None,
        lasts: timedelta, **terms: Any,
    ) -> tuple[Request, Grant] | errors.SaysoError:  # fmt: skip
        """In one transaction, record an approval, and create a grant that is derived from the call, or agree to it.

        `terms` are those of `Grant.of`. If another reviewer has created a grant from this request with the same terms,
        this reviewer agrees to that one.

        Raises:
            GrantRefusedError: The terms are invalid; nothing was decided.
            DecisionRefusedError: Or another subclass; nothing was decided.
        """
        found = transaction.changed(
            tx, request_id, lifecycle.decide, decision=decision, roles=who.roles, seen=seen, edited=edited,
            person=decision.by, has_grant=True,
        )  # fmt: skip
        if isinstance(found, errors.SaysoError):
            return found
        now, grantor = tx.now(), Grantor(who.identity, tuple(sorted(who.roles)), decision.channel)
        drawn = Grant.of(found, found.effective, until=now + lasts, now=now, comment=decision.comment, **terms)
        standing = (_standing(tx, grant_id) for grant_id in tx.record_keys(GRANT))
        others = (one for one in standing if one is not None and now < one.until and not one.is_by(who.identity))
        same = next((one for one in others if one.has_same_terms(drawn, found)), None)
        if same is not None and not _is_as_written(tx, GRANT, same.id):
            raise _altered(same.id)  # this also undoes the decision
        return found, _agree(tx, (same or drawn).agreed_by(grantor), grantor)

    @verb
    def agree(tx: Transaction, grant_id: str, who: Reviewer, *, channel: str) -> Grant:
        """In one transaction, add a grantor to a grant; raises `DecisionRefusedError` if they may not approve it."""
        grant = _standing(tx, grant_id)
        if grant is not None and not _is_as_written(tx, GRANT, grant_id):
            raise _altered(grant_id)
        if grant is None or _ended_by_time(tx, grant):
            raise errors.GrantNotFoundError(grant_id)
        request, by = tx.load(grant.request_id), who.identity
        if by.is_same(grant.requester) or any(by.may_be(person) for person in grant.acts_for):
            raise errors.OwnRequestError(request.id, by=str(by))
        if not request.admits(by, who.roles):
            raise errors.MissingRoleError(request.id, by=str(by), roles=sorted(request.wanted_roles))
        if grant.is_by(by):
            raise errors.AlreadyVotedError(
                request.id, by=str(by), missing=request.quorum.missing([one.by for one in grant.grantors])
            )
        grantor = Grantor(by, tuple(sorted(who.roles)), channel)
        return _agree(tx, grant.agreed_by(grantor), grantor)

    @verb
    def revoke_grant(tx: Transaction, grant_id: str, by: Identity, *, channel: str, reason: str | None = None) -> Grant:
        """In one transaction, end a grant. Calls that it approved and that have not started wait for a person.

        Does nothing if it has already ended; raises `GrantNotFoundError`.
        """
        row = tx.find_record(GRANT, grant_id)
        if row is None:
            ended = tx.find_record(ENDED_GRANT, grant_id)
            if ended is None:
                raise errors.GrantNotFoundError(grant_id)
            return Grant.from_body(grant_id, record_of(ended).body)
        grant = replace(Grant.from_body(grant_id, record_of(row).body), ended="revoked", ended_by=by, ended_at=tx.now())
        detail: dict[str, Any] = {"used": grant.used, "left": grant.count - grant.used}
        if not _is_as_written(tx, GRANT, grant_id):
            detail["altered"] = True  # otherwise the next entry's digest would hide it
        if reason is not None:
            detail["reason"] = reason
        _end(tx, grant, "grant_revoked", by, channel, detail)
        return grant

    def grants(self, *, ended: bool = False) -> Sequence[Grant]:
        """Return the grants in force, newest first; with `ended`, also those that have ended."""
        now, found = clock.now(), list[Grant]()
        for kind in (GRANT, ENDED_GRANT) if ended else (GRANT,):
            for record in records.records_in(self, kind):
                grant = Grant.from_body(record.key, record.body)
                if grant.ended is None and now >= grant.until:
                    grant = replace(grant, ended="expired", ended_at=grant.until)
                if ended or grant.ended is None:
                    found.append(grant)
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    def find_grant(self, grant_id: str) -> Grant:
        """Return a grant by its id or a unique prefix of it; raises `GrantNotFoundError`."""
        wanted = grant_id if grant_id.startswith("gr_") else f"gr_{grant_id}"
        found = [grant for grant in self.grants(ended=True) if grant.id.startswith(wanted)]
        if len(found) > 1 and len(wanted) > len("gr_"):
            raise errors.AmbiguousIdError(grant_id, [grant.id for grant in found[:10]])
        if len(found) != 1 or wanted == "gr_":
            raise errors.GrantNotFoundError(grant_id)
        return found[0]

    @verb
    def budget_used(tx: Transaction, budget: Budget, account: str) -> Decimal | None:
        """Return how much of an account is used now, without writing; None if a call would be held because of it.

        That is so if its record cannot be read or does not match the journal. `account` is from `Budget.account_of`.
        """
        takings = _takings(tx, budget, account, tx.now())
        return None if takings is None else _sum(takings)

    def budgets(self) -> Iterator[BudgetUse]:
        """Yield each used account, with how much of it is used now, without writing."""
        for record in records.records_in(self, BUDGET):
            takings = cast("list[list[Any]]", record.body.get("takings") or [])
            try:
                budget = Budget(str(record.body.get("budget")))
            except errors.ConfigError:  # the record was altered
                continue
            newest = None
            with suppress(errors.RequestNotFoundError, errors.StoreCorruptError):  # one bad row fails no list
                newest = self.get(str(takings[-1][0])) if takings else None
            yield BudgetUse(budget, self.budget_used(budget, record.key), newest)

    @verb
    def stop(tx: Transaction, by: Identity, *, channel: str, reason: str | None = None) -> Stop:
        """In one transaction, block every start; if they are already blocked, return that earlier stop."""
        stop = stop_in(tx)
        if stop is not None:
            return stop
        stop = Stop(by, tx.now(), reason)
        body = {"by": [by.issuer, by.subject], "at": microseconds(stop.at), "reason": reason}
        _put(tx, Record(STOP, STOP, body), "stopped", by, channel, {} if reason is None else {"reason": reason})
        return stop

    @verb
    def go(tx: Transaction, by: Identity, *, channel: str, reason: str | None = None) -> bool:
        """In one transaction, allow starts again; return whether they were blocked."""
        if stop_in(tx) is None:
            return False
        records.drop_if_there(tx, STOP, STOP)
        tx.note(CHAIN, "went_on", by, channel, {} if reason is None else {"reason": reason})
        return True


def _altered(grant_id: str) -> errors.StoreCorruptError:
    return errors.StoreCorruptError(
        f"the record of the grant {grant_id} does not match the journal: it was altered; nothing was agreed to."
        f" Revoke it (`sayso grants revoke {grant_id}`) and make a new one"
    )


def _agree(tx: Transaction, grant: Grant, grantor: Grantor) -> Grant:
    detail: dict[str, Any] = {
        "grant": grant.id, "request": grant.request_id, "tool": grant.tool, "count": grant.count,
        "until": clock.written(grant.until), "fields": sorted(grant.conditions), "without": sorted(grant.without),
        "run": grant.run, "requester": grant.requester.qualified, "people": len(grant.grantors),
    }  # fmt: skip
    record = Record(GRANT, grant.id, grant.body(), grant.until)
    _put(tx, record, "granted", grantor.by, grantor.channel, detail)
    return grant


def stop_in(tx: Transaction) -> Stop | None:
    """Return the stop from its record, or from the journal if the record was deleted."""
    row = tx.find_record(STOP, STOP)
    if row is not None:
        return stop_of(record_of(row))
    return stop_in_entry(tx.newest(CHAIN))


def stop_in_entry(newest: Entry | None) -> Stop | None:
    """Return the stop that its chain's newest entry records, if it is one."""
    if newest is None or newest.event != "stopped":
        return None
    reason = "its record was deleted by hand; `sayso go` ends the stop, and `sayso log --verify` names what differs"
    return Stop(Identity.named(newest.by), instant(newest.at), reason)


def stop_of(record: Record) -> Stop:
    """Return the stop of a record. Starts are blocked even if its content is invalid."""
    try:
        body = record.body
        return Stop(Identity(*body["by"]), instant(body["at"]), cast("str | None", body["reason"]))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return Stop(Identity("store", "an unreadable record"), clock.now(), None)
