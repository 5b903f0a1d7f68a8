"""What runs cost: a tool call that waits for nobody, the round trip of a gated one, and resuming after many steps."""

from __future__ import annotations

from collections.abc import Sequence

from .contest import Contest, Entry, Plan
from .statistic import median, turns
from .table import Row, seconds

__all__ = ["call", "resume", "trip"]

CALLING = (
    Entry("sayso", "ours_runs:SaysoCalling", "", "sqlite, not written"),
    Entry("timbal", "peers.timbal:TimbalCalling", "", "memory"),
)
WAYS = {
    "collect": "`collect()`",
    "iterate": "events iterated",
    "acall": "`acall()`, the value and no events",
    "thread": "`collect()`, a plain function in a thread",
}
RUNNING = (
    ("sayso", "ours_runs:SaysoRunning", "sqlite", "sqlite FULL"),
    ("timbal", "peers.timbal:TimbalRunning", "sqlite", "sqlite FULL"),
    ("sayso", "ours_runs:SaysoRunning", "jsonl", "jsonl, synced"),
    ("timbal", "peers.timbal:TimbalRunning", "jsonl", "jsonl, not synced"),
)


def call(plan: Plan) -> list[Row]:
    """Time a tool call that waits for nobody, in turns with a bare call of its function, which is taken off."""
    name = "tool call that waits for nobody, over a bare call"
    contest, count = Contest(name, plan), plan.pick(500, 200)
    taken: dict[tuple[Entry, str], list[float]] = {}
    with contest.open(CALLING) as ready:
        whole = [(entry, way) for way in ("bare", *WAYS) for entry in ready if way != "acall" or entry.who == "sayso"]
        for number, (entry, way) in turns(whole, plan.pick(20, 6) + 1, budget=plan.pick(20, 4)):
            nanoseconds = contest.call(entry, "time_calls", way=way, count=count)
            if nanoseconds is not None and number > 0:
                taken.setdefault((entry, way), []).append(nanoseconds / 1e9)
        written = contest.call(CALLING[0], "written") if CALLING[0] in ready else 0
    rows = list(contest.lost.values())
    for way, words in WAYS.items():
        rows += [
            _call_row(name, entry, words, taken[entry, way], taken[entry, "bare"], written if entry.is_ours else 0)
            for entry in CALLING
            if (entry, way) in taken and entry not in contest.lost
        ]
    return rows


def _call_row(name: str, entry: Entry, words: str, taken: list[float], bare: list[float], written: int) -> Row:
    over = [each - least for each, least in zip(taken, bare, strict=True)]
    note = f"a bare call takes {seconds(median(bare))}"
    if written:
        note += f"; WRONG: {written} bytes were written"
    return Row.of(name, f"{entry.who}, {words}", entry.store, over, note=note, bare=median(bare))


def trip(plan: Plan) -> list[Row]:
    """Pause a gated tool, decide, go on, with few and with many ended runs in the store."""
    sizes = [100, plan.pick(10_000, 200)]
    name = "gated tool: pause, decide, resume"
    entries = {
        Entry(f"{who}, {size:,} stored runs", path, variant, store): size
        for who, path, variant, store in RUNNING
        for size in sizes
    }
    contest = Contest(name, plan)
    taken: dict[Entry, list[float]] = {}
    with contest.open(entries) as ready:
        for entry in ready:
            contest.call(entry, "fill", runs=entries[entry])
        done = dict.fromkeys(ready, 0)
        for number, entry in turns(ready, plan.pick(20, 4) + 1, least=4, budget=plan.pick(60, 8)):
            # A slow one gets fewer samples: what it takes for one trip is known from the round that warms up.
            count = 2 if number == 0 else _batch(taken[entry][0]) if entry in taken else 1
            found = contest.call(entry, "time_round_trips", first=done[entry], count=count)
            if found is not None:
                done[entry] += count
                values = [each / 1e9 for each in found]
                taken.setdefault(entry, []).extend(values[-1:] if number == 0 else values)
    for entry in [entry for entry in taken if entry not in contest.lost]:
        taken[entry] = taken[entry][1:]
    return [contest.lost.get(entry) or _trip_row(name, entry, taken) for entry in entries]


def _batch(one: float) -> int:
    return max(1, min(20, int(0.5 / one)))


def _trip_row(name: str, entry: Entry, taken: dict[Entry, list[float]]) -> Row:
    values = taken.get(entry)
    if not values:
        return Row(name, entry.who, entry.store, note="not measured")
    who, _, size = entry.who.partition(", ")
    rival = _of(taken, f"timbal, {size}", entry.variant)
    few = _of(taken, f"{who}, 100 stored runs", entry.variant)
    notes: list[str] = []
    if entry.is_ours and rival:
        aim = " (aim: at least 4x)" if entry.variant == "sqlite" else ""
        notes.append(f"{median(rival) / median(values):.1f}x faster than timbal{aim}")
    if few and few is not values:
        aim = " (aim: does not grow)" if entry.is_ours else ""
        notes.append(f"{median(values) / median(few):.2f}x that with 100{aim}")
    return Row.of(name, entry.who, entry.store, values, rate=f"{len(values) / sum(values):,.0f}", note="; ".join(notes))


def _of(taken: dict[Entry, list[float]], who: str, variant: str) -> list[float]:
    return next((values for entry, values in taken.items() if (entry.who, entry.variant) == (who, variant)), [])


def resume(plan: Plan) -> list[Row]:
    """Go on with a run after one finished step, and after 200."""
    many = plan.pick(200, 50)
    name = f"resume of a decided run after 1 or {many} finished steps"
    contest = Contest(name, plan)
    entry = Entry("sayso", "ours_runs:Finished", "FULL", "sqlite FULL")
    taken: dict[tuple[str, int], list[float]] = {}
    with contest.open([entry]) as ready:
        cases = [(kind, steps) for kind in ("workflow", "agent") for steps in (1, many)] if ready else []
        for number, (kind, steps) in turns(cases, plan.pick(10, 3) + 1, budget=plan.pick(30, 6)):
            found = contest.call(entry, "time_resumes", kind=kind, steps=steps, count=3)
            if found is not None and number > 0:
                taken.setdefault((kind, steps), []).extend(each / 1e9 for each in found)
    if entry in contest.lost:
        return [contest.lost[entry]]
    return [_resume_row(name, entry, *case, taken[case], taken[case[0], 1]) for case in cases]


def _resume_row(
    name: str, entry: Entry, kind: str, steps: int, values: Sequence[float], one: Sequence[float]
) -> Row:  # fmt: skip
    each = (median(values) - median(one)) / max(1, steps - 1)
    return Row.of(
        name,
        f"sayso, {kind}, {steps} finished",
        entry.store,
        values,
        note="" if values is one else f"{seconds(each)} for each finished step more; none was taken twice",
    )
