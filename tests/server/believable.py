"""A store with a day's work in it, for pictures: what a shop's agents want to do, and what was decided before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

import sayso
from sayso import clock
from sayso.model.lifecycle import Outcome
from sayso.model.reviewer import PROGRAM, Identity
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore

__all__ = ["REFUND", "fill"]

REFUND = "refund"


def refund(order_id: str, amount: float, reason: Literal["damaged", "late", "other"] = "other") -> None:
    """Pay money back to a customer."""


def send_email(to: str, subject: str, body: str) -> None:
    """Send an e-mail in the shop's name."""


def delete_files(path: str, older_than_days: int) -> None:
    """Remove files for good."""


def deploy(service: str, version: str, replicas: int = 2) -> None:
    """Put a version of a service into production."""


for one in (refund, send_email, delete_files, deploy):
    one.__module__ = "shop"

_DAY = (
    (refund, ("A-4721", 320.0, "damaged"), "support-bot", "order-4721", 2, {
        "risk": "high", "description": "Pays from the shop's own account. Up to 500.00 for one order.",
        "rule": "amount > 100", "summary": "Refund €{amount:.2f} for {order_id}",
        "context": {"customer": "C-17, since 2019", "order total": 320.0, "refunds this year": 0},
        "prompt": "The customer sent a photo of the broken lid and asks for the whole price.",
    }),
    (send_email, ("kim@example.org", "Re: late delivery", "Dear Kim,\nit is on its way."), "support-bot", "order-4716",
     9, {"prompt": "The answer to the mail of this morning."}),
    (delete_files, ("/backups/2024", 365), "ops-agent", "cleaning-the-backups", 24, {"risk": "high"}),
    (deploy, ("checkout", "2.14.0"), "release-agent", "release-2.14.0", 41, {"risk": "medium"}),
)  # fmt: skip
_BEFORE: tuple[tuple[int, float, str], ...] = tuple(
    (day, seconds, verb)
    for day in range(30)
    for seconds, verb in [(40 + 7 * day % 90, "approve"), (12 + 31 * day % 300, "approve"), (2 + day, "approve"),
                          *([(95, "reject")] if day % 3 else []), *([(600, "feedback")] if day % 7 == 2 else [])]
)  # fmt: skip


def _asked(function: Callable[..., Any], args: tuple[Any, ...], who: str, run: str, **fields: Any) -> sayso.Request:
    """Return the request of a call that is held, as if another program had asked; it is in no store yet."""
    aside = MemoryStore()
    words = {name: fields.pop(name) for name in ("description", "prompt", "risk", "summary") if name in fields}
    gated = sayso.gate(wait="raise", store=aside, **words)(function)
    with sayso.run(run):
        try:
            gated(*args)
        except sayso.ConfirmationRequired as held:
            return replace(aside.get(held.confirmation_id), requester=Identity(PROGRAM, who), process=None, **fields)
    raise AssertionError(f"{function} was not held")


def _question(at: datetime) -> sayso.Request:
    """Return a question that a planner asks."""
    aside = MemoryStore()
    with sayso.run("restock-june"):
        try:
            sayso.ask("Which warehouse sends it?", choices=["berlin", "lyon"], wait="raise", store=aside)
        except sayso.ConfirmationRequired as held:
            asked = aside.get(held.confirmation_id)
            who = Identity(PROGRAM, "planner")
            return replace(asked, requester=who, process=None, created_at=at, expires_at=at + timedelta(hours=8))
    raise AssertionError("nothing was asked")


def fill(store: Store) -> None:
    """Let the past be decided, and today's calls wait."""
    now = clock.now()
    for number, (day, seconds, verb) in enumerate(reversed(_BEFORE)):
        at = now - timedelta(days=day, hours=2, minutes=number % 50)
        function, args, who, *_ = _DAY[number % len(_DAY)]
        request = _asked(function, args, who, f"before-{number}", created_at=at, expires_at=at + timedelta(days=1))
        with clock.use(lambda at=at: at):
            store.ask(request)
        with clock.use(lambda at=at, seconds=seconds: at + timedelta(seconds=seconds)):
            review = sayso.Review(
                store, reviewer=("ada", "grace", "linus")[number % 3], channel=("web", "cli")[number % 2]
            )
            match verb:
                case "approve":
                    review.approve(request.id)
                    store.start(request.id, request.id)
                    store.finish(request.id, request.id, Outcome("done"))
                case "reject":
                    review.reject(request.id, "not this one")
                case _:
                    review.feedback(request.id, "ask the customer first")
    sayso.Review(store).claim(store.ask(_question(now - timedelta(hours=1))).id, by="grace")
    for function, args, who, run, minutes, fields in reversed(_DAY):
        at = now - timedelta(minutes=minutes)
        ends = at + timedelta(minutes=55)
        store.ask(_asked(function, args, who, run, created_at=at, expires_at=ends, **fields))
