"""What a gate costs when it lets the call through: over a bare call, nothing asked and nothing written."""

from __future__ import annotations

from .contest import Contest, Entry, Plan
from .statistic import median, turns
from .table import Row, seconds

__all__ = ["allow"]

KINDS = {
    "static": ("sayso, gate(when=False)", 1e-6),
    "rule": ("sayso, gate(when=a rule over arguments)", 10e-6),
    "policy": ("sayso, gate(when=a policy file of 11 rules)", 40e-6),
}


def allow(plan: Plan) -> list[Row]:
    """Time bare, static and rule calls in turns, and take the bare call of the same round off the others."""
    name = "call let through, over a bare call"
    entry = Entry("sayso", "ours:Letting", "FULL", "sqlite, not written")
    contest = Contest(name, plan)
    rounds, count = plan.pick(60, 15), plan.pick(20_000, 5_000)
    taken: dict[str, list[float]] = {"bare": [], **{kind: [] for kind in KINDS}}
    with contest.open([entry]) as ready:
        for number, kind in turns([*taken] if ready else [], rounds + 1, budget=plan.pick(15, 3)):
            nanoseconds = contest.call(entry, "time_calls", kind=kind, count=count)
            if nanoseconds is not None and number > 0:
                taken[kind].append(nanoseconds / 1e9)
        written = contest.call(entry, "written")
    if entry in contest.lost:
        return [contest.lost[entry]]
    return [_row(name, entry.store, kind, taken, written) for kind in KINDS]


def _row(name: str, store: str, kind: str, taken: dict[str, list[float]], written: int) -> Row:
    who, aim = KINDS[kind]
    over = [gated - bare for gated, bare in zip(taken[kind], taken["bare"], strict=True)]
    notes = [f"aim: at most {seconds(aim)}", f"a bare call takes {seconds(median(taken['bare']))}"]
    if written:
        notes.append(f"WRONG: {written} requests were written")
    return Row.of(name, who, store, over, note="; ".join(notes), bare=median(taken["bare"]))
