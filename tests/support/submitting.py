"""Short steps for a plan or another target: submit, decide, edit, start and reload it.

A step of a random history may be refused, and then nothing may have changed. Invariant, checked after every step:
everything that was started had an approved Confirm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import sayso
from sayso import clock, errors
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Identity
from sayso.mplp import (
    Confirm,
    Decision,
    Governance,
    Plan,
    PlanStep,
    TargetType,
    add_decision,
    create_confirm,
    document_of,
    process_decision,
    read_confirm,
    read_plan,
    refresh,
    start,
    submit_for_approval,
    submit_plan_for_approval,
)
from sayso.mplp.confirm import run_of
from sayso.mplp.history import requests_of
from sayso.mplp.schema import id_of
from sayso.stores.base import Store

__all__ = ["STEPS", "World", "plan_of_three", "reviewer", "submitted", "told", "yes"]

PLAN = id_of("test", "plan")
STEPS = [
    "submit", "change", "approve", "edit", "reject", "mute", "feedback", "cancel", "withdraw", "process_approved",
    "process_rejected", "process_cancelled", "add_approved", "lock", "unlock", "hours", "day", "carry", "fail",
    "break_off", "read", "second",
]  # fmt: skip


def plan_of_three(**fields: Any) -> Plan:
    """Return a draft."""
    steps = [PlanStep(step_id=id_of("step", n), description=f"step {n}") for n in range(3)]
    return Plan(**{"plan_id": PLAN, "title": "Move the data", "objective": "No downtime", "steps": steps, **fields})


def submitted(**options: Any) -> tuple[Plan, Confirm, Request]:
    """Submit a draft; return it, its Confirm, and the pending request."""
    plan = plan_of_three()
    confirm = submit_plan_for_approval(plan, "agent", **options)
    (request,) = sayso.Review(options.get("store")).list().requests
    return plan, confirm, request


def reviewer() -> sayso.Review:
    return sayso.Review(reviewer="ada")


def yes(role: str = "dba", **fields: Any) -> Decision:
    return Decision(status="approved", decided_by_role=role, **fields)


class World:
    """One target in one store.

    Attributes:
        started: The Confirm's status at each start.
        judge: Called with every document that can be read.
    """

    def __init__(self, store: Store, kind: TargetType, judge: Callable[[str, Any], Any], quorum: int = 1) -> None:
        self.store, self.kind, self.judge, self.quorum = store, kind, judge, quorum
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        self.started: list[str] = []
        self.plan = plan_of_three()
        self.confirm: Confirm | None = None if kind is TargetType.PLAN else create_confirm(kind, PLAN, "agent")
        self.review = sayso.Review(store)

    def take(self, step: str) -> bool:
        """Take a step; return whether it was accepted."""
        self.now += timedelta(minutes=1)
        with clock.use(lambda: self.now):
            before, is_refused = self.documents(), False
            with suppress(RuntimeError, KeyboardInterrupt):  # raised by the action itself
                try:
                    getattr(self, step)()
                except errors.SaysoError:
                    is_refused = True
            assert not is_refused or before == self.documents(), step
            self.check()
        return not is_refused

    # -- steps -------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        if self.kind is TargetType.PLAN:
            self.confirm = submit_plan_for_approval(self.plan, "agent", store=self.store, quorum=self.quorum)
        else:
            assert self.confirm is not None
            submit_for_approval(self.confirm, store=self.store, quorum=self.quorum)

    def change(self) -> None:
        self.plan.title += "!"

    def approve(self) -> None:
        self.review.approve(self.last.id, by="ada", comment="fine")

    def second(self) -> None:
        self.review.approve(self.last.id, by="bob")

    def edit(self) -> None:
        changes = {"title": "As reviewed"} if self.kind is TargetType.PLAN else {"reason": "as reviewed"}
        self.review.approve(self.last.id, by="ada", changes=changes)

    def reject(self) -> None:
        self.review.reject(self.last.id, "no", by="ada")

    def mute(self) -> None:
        self.review.reject(self.last.id, by="ada")

    def feedback(self) -> None:
        self.review.feedback(self.last.id, "add a way back", by="ada")

    def cancel(self) -> None:
        self.review.cancel(self.last.id, by="ada")

    def withdraw(self) -> None:
        self.store.withdraw(self.last.id, Identity(LOCAL, "program"))

    def process_approved(self) -> None:
        process_decision(self.sure, Decision(status="approved", decided_by_role="dba"), store=self.store)

    def process_rejected(self) -> None:
        process_decision(self.sure, Decision(status="rejected", decided_by_role="dba", reason="no"), store=self.store)

    def process_cancelled(self) -> None:
        process_decision(self.sure, Decision(status="cancelled", decided_by_role="dba"), store=self.store)

    def add_approved(self) -> None:
        if self.sure.origin.store is not None:  # a document that is in no store can state anything
            add_decision(self.sure, "approved", "dba")

    def lock(self) -> None:
        self.sure.governance = Governance(locked=True)

    def unlock(self) -> None:
        self.sure.governance = None

    def hours(self) -> None:
        self.now += timedelta(hours=5)

    def day(self) -> None:
        self.now += timedelta(hours=25)

    def carry(self) -> None:
        self._start(lambda: None)

    def fail(self) -> None:
        def deed() -> None:
            raise RuntimeError("no room")

        self._start(deed)

    def break_off(self) -> None:
        def deed() -> None:
            raise KeyboardInterrupt

        self._start(deed)

    def read(self) -> None:
        read_confirm(self.sure.confirm_id, store=self.store)
        if self.sure.origin.store is not None:
            refresh(self.sure)

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def sure(self) -> Confirm:
        if self.confirm is None:
            raise errors.RequestNotFoundError("none")
        return self.confirm

    @property
    def last(self) -> Request:
        rounds = requests_of(self.store, run_of(self.kind, PLAN))
        if not rounds:
            raise errors.RequestNotFoundError("none")
        return self.store.settle(rounds[-1].id)

    def documents(self) -> list[Any]:
        """Return the Confirms of all requests, as any program reads them."""
        requests = requests_of(self.store, run_of(self.kind, PLAN))
        return [document_of(self.store, request.id) for request in requests]

    def check(self) -> None:
        """Check the invariants after a step."""
        assert set(self.started) <= {"approved"}
        documents = self.documents()
        for document, request in zip(documents, requests_of(self.store, run_of(self.kind, PLAN)), strict=True):
            self.judge("mplp-confirm", document)
            if request.execution is not None:
                assert document["status"] == "approved" or request is not self._newest(document)
            assert document["decisions" if document["status"] != "pending" else "status"]
            assert all(one["reason"].strip() for one in document.get("decisions", ()))
        if self.kind is TargetType.PLAN and documents:
            plan = read_plan(PLAN, store=self.store).export()
            self.judge("mplp-plan", plan)
            wanted = {"pending": {"proposed"}, "approved": {"approved", "in_progress", "completed", "failed"}}
            assert plan["status"] in wanted.get(documents[-1]["status"], {"draft"})

    def _newest(self, document: Any) -> Request:
        rounds = requests_of(self.store, run_of(self.kind, PLAN))
        return [one for one in rounds if document_of(self.store, one.id)["confirm_id"] == document["confirm_id"]][-1]

    def _start(self, deed: Callable[[], None]) -> None:
        def do(_: Any) -> None:
            self.started.append(document_of(self.store, self.last.id)["status"])
            assert self.last.state is State.RUNNING
            deed()

        target = self.plan if self.kind is TargetType.PLAN else self.sure
        start(target, do, store=self.store)


@contextmanager
def told() -> Iterator[list[Any]]:
    """Collect the events that are published inside the block."""
    from sayso.mplp import subscribe

    heard: list[Any] = []
    unsubscribe = subscribe(heard.append)
    try:
        yield heard
    finally:
        unsubscribe()
