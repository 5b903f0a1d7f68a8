"""Finds the requests of a Confirm in a store, by any id that names it. It writes nothing.

The requests of a target are in the run `plan:ID` (or `extension:ID`, ...). The events of a Confirm are in the journal
of the run `confirm:ID`, whose first row names the target. The Confirm of any other request has an id derived from the
request's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.journal import detail_of
from sayso.model.request import Request, State
from sayso.mplp.confirm import Confirm, confirm_id_of, confirm_of, plan_of, round_facts, run_of
from sayso.mplp.document import Plan
from sayso.mplp.schema import ConfirmNotFoundError, is_id
from sayso.reviews import Review
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in, rows_of

_SURE = 12  # the hexadecimal digits of a derived id that equal those of the request's id


class StoredConfirm(NamedTuple):
    """One Confirm in a store.

    Attributes:
        rounds: Its requests in their current state, oldest first; at least one.
        names: The ids and roles that programs gave its decisions.
        recorded_events: The ids of its events in the journal.
    """

    rounds: tuple[Request, ...]
    names: Mapping[str, tuple[str, str]]
    recorded_events: frozenset[str]

    @property
    def last(self) -> Request:
        """The request of the newest round."""
        return self.rounds[-1]

    @property
    def confirm(self) -> Confirm:
        """The Confirm."""
        return confirm_of(self.rounds, self.names)

    @property
    def plan(self) -> Plan:
        """The plan; raises `ValueError` if the target is not a plan."""
        return plan_of(self.rounds)


def journal_run_of(confirm_id: str) -> str:
    """Return the id of the run whose journal has the events of a Confirm."""
    return f"confirm:{confirm_id}"


def requests_of(store: Store, run_id: str) -> list[Request]:
    """Return all requests of a run, oldest first; overdue ones are expired even if that is not recorded yet."""
    return [_as_of_now(request) for request in requests_in(store, Filter(run_id=run_id))]


def find_confirm(store: Store, wanted: str) -> StoredConfirm:
    """Return the Confirm with this id, or whose plan or request has this id.

    Raises:
        ConfirmNotFoundError: There is no such Confirm.
        AmbiguousIdError: The prefix of a request's id matches several requests.
    """
    if is_id(wanted):
        targets = ((detail.get("target_type"), detail.get("target_id")) for _, detail in _rows(store, wanted))
        run_id = next((run_of(a, b) for a, b in targets if isinstance(a, str) and isinstance(b, str)), None)
        request = next(_by_digits(store, wanted), None) if run_id is None else None
    else:
        try:
            run_id, request = None, _as_of_now(store.get(Review(store).find(wanted)))
        except errors.RequestNotFoundError:
            raise ConfirmNotFoundError(wanted) from None
    if request is not None and round_facts(request) is None:
        return StoredConfirm((request,), {}, frozenset())
    if request is not None:
        wanted, run_id = confirm_id_of(request), request.run_id
    if run_id is None:
        return find_plan(store, wanted)
    found = _of(requests_of(store, run_id), wanted)
    if not found:
        raise ConfirmNotFoundError(wanted)
    return _whole(store, found)


def find_plan(store: Store, plan_id: str) -> StoredConfirm:
    """Return the newest Confirm about a plan; raise `ConfirmNotFoundError` if the plan was never submitted."""
    found = find_target(store, "plan", plan_id)
    if found is None:
        raise ConfirmNotFoundError(plan_id)
    return found


def find_target(store: Store, target_type: str, target_id: str) -> StoredConfirm | None:
    """Return the newest Confirm about a target; None if the target was never submitted."""
    rounds = [
        request for request in requests_of(store, run_of(target_type, target_id)) if round_facts(request) is not None
    ]
    return _whole(store, _of(rounds, confirm_id_of(rounds[-1]))) if rounds else None


def _whole(store: Store, rounds: list[Request]) -> StoredConfirm:
    names: dict[str, tuple[str, str]] = {}
    recorded = set[str]()
    for event, detail in _rows(store, confirm_id_of(rounds[0])):
        match event, detail:
            # A server does not accept such rows from programs, which could change the role of a person's decision.
            case "confirm.decision", {"of": str(own), "decision_id": str(decision_id), "decided_by_role": str(role)}:
                names[own] = decision_id, role
            case _:
                recorded.add(str(detail.get("event_id")))
    return StoredConfirm(tuple(rounds), names, frozenset(recorded))


def _of(requests: list[Request], confirm_id: str) -> list[Request]:
    """Return the rounds of a Confirm, without requests withdrawn in favour of another one of the same round."""
    rounds: dict[str, Request] = {}
    for request in requests:
        if round_facts(request) is None or confirm_id_of(request) != confirm_id:
            continue
        other = rounds.get(request.place)
        if other is None or _is_withdrawn(other) or not _is_withdrawn(request):
            rounds[request.place] = request
    return list(rounds.values())


def _is_withdrawn(request: Request) -> bool:
    return request.state is State.CANCELLED and not request.holds


def _as_of_now(request: Request) -> Request:
    change = lifecycle.expire(request, clock.now())
    return request if change is None else change.request


def _by_digits(store: Store, confirm_id: str) -> Iterator[Request]:
    for request_id in store.match(f"rq_{confirm_id.replace('-', '')[:_SURE]}"):
        request = store.get(request_id)
        if confirm_id_of(request) == confirm_id:
            yield _as_of_now(request)


def _rows(store: Store, confirm_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with suppress(errors.RunNotFoundError):  # a server hides runs that another program created
        for entry in rows_of(store, run_id=journal_run_of(confirm_id)):
            if detail := detail_of(entry.detail):  # skip altered rows, which `sayso log --verify` finds
                yield entry.event, detail
