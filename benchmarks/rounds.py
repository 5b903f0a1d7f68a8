"""The contests: raise, decide and run in memory; pause, decide and resume on disk; and 1,000 that wait at once."""

from __future__ import annotations

from collections.abc import Sequence

from .contest import DURABLE, MEMORY, Contest, Entry, Plan
from .statistic import median, percentile, turns
from .table import Row, seconds

__all__ = ["durable", "memory", "thousand"]


def memory(plan: Plan) -> list[Row]:
    """One call at a time, nothing on disk: raised, decided, called again."""
    name = "raise, decide, run, in memory"
    taken, lost = _round_trips(
        name, MEMORY, plan, rounds=plan.pick(30, 10), batch=plan.pick(200, 100), budget=plan.pick(25, 5)
    )
    return _rows(name, MEMORY, taken, lost, rival="udspy", aim=2.0)


def durable(plan: Plan) -> list[Row]:
    """One call at a time, every step on disk before the next."""
    name = "pause, decide, resume, on disk"
    taken, lost = _round_trips(
        name, DURABLE, plan, rounds=plan.pick(30, 8), batch=plan.pick(50, 25), budget=plan.pick(45, 8)
    )
    return _rows(name, DURABLE, taken, lost, rival="baseline, by hand", aim=1.5)


def _round_trips(
    name: str, entries: Sequence[Entry], plan: Plan, *, rounds: int, batch: int, budget: float
) -> tuple[dict[Entry, list[float]], dict[Entry, Row]]:
    """Let the contenders take turns; the first round warms up and is not counted."""
    contest = Contest(name, plan)
    taken: dict[Entry, list[float]] = {}
    number = 0
    with contest.open(entries) as ready:
        for number, entry in turns(ready, rounds + 1, budget=budget):
            nanoseconds = contest.call(entry, "time_round_trips", first=number * batch, count=batch)
            if nanoseconds is not None and number > 0:
                taken.setdefault(entry, []).extend(each / 1e9 for each in nanoseconds)
        for entry in ready:
            if wrong := contest.wrong(entry, (number + 1) * batch):
                contest.lost[entry] = Row(name, entry.who, entry.store, note=wrong)
    return taken, contest.lost


def _rows(
    name: str,
    entries: Sequence[Entry],
    taken: dict[Entry, list[float]],
    lost: dict[Entry, Row],
    *,
    rival: str,
    aim: float,
) -> list[Row]:
    """Make a row of each entry, beside that of `rival` at the same sync setting; `aim` is ours."""
    rows: list[Row] = []
    for entry in entries:
        if entry in lost or entry not in taken:
            rows.append(lost.get(entry) or Row(name, entry.who, entry.store, note="not measured"))
            continue
        values = taken[entry]
        ratio = _ratio(entry, taken, rival)
        if ratio and entry.is_ours:
            ratio += f" (aim: at most {aim:g}x)"
        rows.append(
            Row.of(
                name,
                entry.who,
                entry.store,
                values,
                rate=f"{len(values) / sum(values):,.0f}",
                note="; ".join(part for part in (ratio, entry.note) if part),
                p99=percentile(values, 99),
            )
        )
    return rows


def _ratio(entry: Entry, taken: dict[Entry, list[float]], rival: str) -> str:
    """Say how the median compares with that of `rival` at the same sync setting, where it has one."""
    same = {entry.variant, ""}
    others = [values for other, values in taken.items() if other.who == rival and other.variant in same]
    if entry.who == rival or not others:
        return ""
    return f"{median(taken[entry]) / median(others[0]):.2f}x {rival.partition(',')[0]}"


def thousand(plan: Plan) -> list[Row]:
    """Many that wait at once: all asked, then all decided, then all run, each time in a fresh store and process."""
    count, repeats = plan.pick(1000, 200), plan.pick(5, 2)
    name = f"{count:,} asked, all decided, all run"
    contest = Contest(name, plan)
    runs: dict[Entry, list[dict[str, float]]] = {}
    for _, entry in turns(DURABLE, repeats, least=1, budget=plan.pick(90, 12)):
        with contest.open([entry]) as ready:
            phases = contest.call(entry, "time_phases", count=count) if ready else None
            if phases is None:
                continue
            if wrong := contest.wrong(entry, count):
                contest.lost[entry] = Row(name, entry.who, entry.store, note=wrong)
            runs.setdefault(entry, []).append({**phases, **(contest.call(entry, "account") or {})})
    return [contest.lost.get(entry) or _thousand_row(name, entry, count, runs.get(entry, [])) for entry in DURABLE]


def _thousand_row(name: str, entry: Entry, count: int, runs: Sequence[dict[str, float]]) -> Row:
    """Make the row of one contender from its repeats."""
    if not runs:
        return Row(name, entry.who, entry.store, note="not measured")
    totals = [sum(run[phase] or 0.0 for phase in ("ask", "decide", "run")) for run in runs]
    decides = runs[0]["decide"] is not None
    parts = ("ask", "decide", "run") if decides else ("ask", "run")
    figures = {part: median([run[part] for run in runs]) for part in parts}
    words = ", ".join(f"{part} {seconds(figures[part])}" for part in parts)
    sizes = f"peak {runs[0]['peak_kib'] / 1024:.0f} MB, store {runs[0]['stored_bytes'] / 1e6:.1f} MB"
    return Row(
        name,
        entry.who,
        entry.store,
        median=seconds(median(totals)),
        p95=seconds(percentile(totals, 95)),
        rate=f"{count / median(totals):,.0f}",
        samples=len(totals),
        note=f"{words}{'' if decides else ' (decides too)'}; {sizes}",
        figures={"total": median(totals), **figures, "per_second": count / median(totals)},
    )
