"""The contests: raise, decide and run in memory; pause, decide and resume on disk; and 1,000 that wait at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .contest import DURABLE, MEMORY, Contest, Entry, Plan
from .statistic import median, percentile, turns
from .table import Row, seconds

__all__ = ["Times", "durable", "memory", "report", "round_trips", "thousand"]


class Times(NamedTuple):
    """Seconds of round trips: by the clock, and of the contender's own processor time."""

    clock: list[float]
    processor: list[float]


Taken = dict[Entry, Times]


def memory(plan: Plan) -> list[Row]:
    """One call at a time, nothing on disk: raised, decided, called again."""
    contest = Contest("raise, decide, run, in memory", plan)
    taken = round_trips(
        contest, MEMORY, rounds=plan.pick(30, 10), batch=plan.pick(200, 100), budget=plan.pick(25, 5)
    )  # fmt: skip
    return report(contest, MEMORY, taken, {"udspy": 2.0})


def durable(plan: Plan) -> list[Row]:
    """One call at a time, every step on disk before the next."""
    contest = Contest("pause, decide, resume, on disk", plan)
    taken = round_trips(
        contest, DURABLE, rounds=plan.pick(30, 8), batch=plan.pick(50, 25), budget=plan.pick(60, 15)
    )  # fmt: skip
    return report(contest, DURABLE, taken, {"baseline, by hand": 2.0, "holdpoint": 0.6})


def round_trips(contest: Contest, entries: Sequence[Entry], *, rounds: int, batch: int, budget: float) -> Taken:
    """Let the contenders take turns; the first round warms up and is not counted."""
    taken: Taken = {}
    number = 0
    with contest.open(entries) as ready:
        for number, entry in turns(ready, rounds + 1, budget=budget):
            pairs = contest.call(entry, "time_round_trips", first=number * batch, count=batch)
            if pairs is not None and number > 0:
                times = taken.setdefault(entry, Times([], []))
                times.clock.extend(clock / 1e9 for clock, _ in pairs)
                times.processor.extend(processor / 1e9 for _, processor in pairs)
        for entry in ready:
            if wrong := contest.wrong(entry, (number + 1) * batch):
                contest.lost[entry] = Row(contest.measure, entry.who, entry.store, note=wrong)
    return taken


def report(contest: Contest, entries: Sequence[Entry], taken: Taken, aims: Mapping[str, float | None]) -> list[Row]:
    """Make a row of each entry.

    `aims` names the rivals at the same sync setting and how many times their median ours may be at most. Everybody is
    compared with the first of them, sayso with each.
    """
    rows: list[Row] = []
    for entry in entries:
        if entry in contest.lost or entry not in taken:
            lost = contest.lost.get(entry)
            rows.append(lost or Row(contest.measure, entry.who, entry.store, note="not measured"))
            continue
        values, ratios = taken[entry].clock, _ratios(entry, taken, aims)
        notes = [_ratio_text(entry, rival, ratios[rival], aims[rival]) for rival in ratios]
        processor = median(taken[entry].processor)
        rows.append(
            Row.of(
                contest.measure,
                entry.who,
                entry.store,
                values,
                rate=f"{len(values) / sum(values):,.0f}",
                note="; ".join(part for part in (*notes, f"processor {seconds(processor)}", entry.note) if part),
                p99=percentile(values, 99),
                processor=processor,
                **{f"times {rival}": ratio.clock for rival, ratio in ratios.items()},
                **{f"processor times {rival}": ratio.processor for rival, ratio in ratios.items()},
            )
        )
    return rows


class _Ratio(NamedTuple):
    clock: float
    processor: float


def _ratios(entry: Entry, taken: Taken, rivals: Mapping[str, object]) -> dict[str, _Ratio]:
    """Return how many times the median of each rival at the same sync setting this one's is."""
    found: dict[str, _Ratio] = {}
    mine = [median(times) for times in taken[entry]]
    for place, rival in enumerate(rivals):
        same = [times for other, times in taken.items() if other.who == rival and other.sync in {entry.sync, ""}]
        if same and entry.who != rival and (place == 0 or entry.is_ours):
            found[rival] = _Ratio(*(value / median(theirs) for value, theirs in zip(mine, same[0], strict=True)))
    return found


def _ratio_text(entry: Entry, rival: str, ratio: _Ratio, aim: float | None) -> str:
    text = f"{ratio.clock:.2f}x {rival.replace(', by hand', '')}, processor {ratio.processor:.2f}x"
    return f"{text} (aim: at most {aim:g}x)" if entry.is_ours and aim is not None else text


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
