"""The calls that programs of a schedule want to make, and their functions' errors and types."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator

from tests.simulation.promises import Terms

__all__ = ["SCHEMA", "Boom", "Job", "Odd", "Paused", "job_by_chance"]

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["to", "amount"],
    "additionalProperties": False,
}


class Boom(Exception):
    """What a gated function raises."""


class Paused(Exception):
    """By which a gated function pauses half-way, for a framework."""


def _must_be_odd(amount: int) -> int:
    if amount % 2 == 0:
        raise ValueError("an even amount")
    return amount


Odd = Annotated[int, AfterValidator(_must_be_odd)]
"""A type that refuses values that its JSON Schema, by which a reviewer's edit is checked, lets pass."""


@dataclass
class Job:
    """One call that programs want to make, perhaps several of them at once.

    Attributes:
        ends: How the function ends; `sometimes fails` is by chance, at each attempt.
        expires: How long its request waits.
        way: By `hold` and `once`, by `hold` with its start and end taken by hand, by `hold` in a `with` block that
            withdraws, or by a gate before a function.
        calls: How often a gate's program makes it, one after the other, each with a key of its own if it has one.
        step: By how much the amount of each further call is larger.
        retries: Further starts after a failure, of a gate.
        idempotent: Whether a gate lets it start again after an unknown outcome.
        verifies: Whether a gate has a hook that looks whether it happened.
        is_odd: Whether a gated function's own types refuse an even amount.
        is_slow: Whether it may run for longer than its lease.
        pauses: How often a gated function, or that of a `with` block, may pause half-way.
        waits: Whether a gate blocks for a while, and raises then, instead of raising at once.
        tool: The name of a gated function.
        is_nested: Whether a step is in a workflow of its own.
        asks: Whether a step asks a person something before it makes the call.
    """

    run: str
    key: str | None
    arguments: dict[str, Any]
    effect: str | None
    quorum: int
    lasts: str
    ends: str
    expires: str = "24h"
    way: str = "once"
    calls: int = 1
    step: int = 0
    retries: int = 0
    idempotent: bool = False
    verifies: bool = False
    is_odd: bool = False
    is_slow: bool = False
    pauses: int = 0
    waits: bool = False
    tool: str = "pay"
    is_nested: bool = False
    asks: bool = False

    @property
    def terms(self) -> Terms:
        """How often it may start again."""
        return Terms(self.retries, self.idempotent, self.pauses)


def job_by_chance(n: int, rng: random.Random, ways: tuple[str, ...], *, may_pause: bool) -> Job:
    """Return a job by chance, the n-th of its schedule."""
    has_gates = "once" not in ways
    key = f"key{n}" if rng.random() < 0.7 else None
    effect = "pay:{to}" if rng.random() < (0.5 if has_gates else 0.25) else None
    arguments = {"to": "mill", "amount": 15 + n}
    ends = rng.choice(("done", "done", "done", "fails", "times out", "did not run"))
    lasts = rng.choice(("30s", "1h", "24h"))
    job = Job(f"order-{n}", key, arguments, effect, 2 if rng.random() < 0.3 else 1, lasts, ends)
    job.way = rng.choice(ways)
    job.is_slow = rng.random() < 0.2
    if job.way in {"gate", "block"} and has_gates:
        job.expires = rng.choice(("40s", "24h", "24h"))
    if job.way in {"gate", "block"} and may_pause:
        job.pauses = rng.choice((0, 0, 1, 2))
    if job.way == "gate":
        job.retries, job.idempotent = rng.choice((0, 1, 2)), rng.random() < 0.3
        job.lasts = rng.choice(("1h", "24h"))  # else one that always fails is asked anew for ever
        job.ends = rng.choice(("done", "sometimes fails") + (() if job.idempotent else ("fails", "times out")))
        job.waits, job.verifies, job.is_odd = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.2
        job.calls = rng.choice((1, 1, 2, 4)) if effect is None and has_gates else 1
        job.step = rng.choice((-2, 0, 2))
    if job.is_odd:
        job.arguments["amount"] = 15 + 2 * n
    return job
