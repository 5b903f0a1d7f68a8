"""The targets that the design sets, each beside what this run measured: hit, missed, or not measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .table import Row, Table, seconds
from .walk import AIMS, MEASURE, TEXTS

__all__ = ["target_table"]

DISK, MEMORY = "pause, decide, resume, on disk", "raise, decide, run, in memory"
PROCESSES, LET = "program and reviewer in two processes", "call let through"
ELSEWHERE = "not measured by this command"


class Figures:
    """The figures of a run: `find` returns one of the first row whose measure, name and store begin so."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def find(self, measure: str, who: str, store: str = "", figure: str = "median") -> float | None:
        for row in self._rows:
            if row.measure.startswith(measure) and row.who.startswith(who) and row.store.startswith(store):
                return row.figures.get(figure)
        return None

    def greatest(self, measure: str, who: str, figure: str) -> float | None:
        """Return the greatest such figure of all rows whose measure and name begin so."""
        rows = [row for row in self._rows if row.measure.startswith(measure) and row.who.startswith(who)]
        return max((row.figures[figure] for row in rows if figure in row.figures), default=None)

    def times(self, measure: str, who: str, other: str, store: str = "") -> float | None:
        """Return how many times the median of `other` that of `who` is."""
        mine, theirs = self.find(measure, who, store), self.find(measure, other, store)
        return mine / theirs if mine is not None and theirs else None


class Target(NamedTuple):
    """What is aimed for: at most `limit`, or at least where `is_floor`; `found` looks for it among the figures."""

    text: str
    limit: float
    found: Callable[[Figures], float | None]
    words: Callable[[float], str] = "{:.2f}x".format
    is_floor: bool = False
    is_by_clock: bool = False  # what waits for a disk or a core that others use as well is no verdict


def _ahead(peer: str) -> Target:
    text = f"on disk, ahead of {peer}: its time over ours"
    return Target(text, 1.0, lambda f: f.times(DISK, peer, "sayso", "sqlite FULL"), is_floor=True, is_by_clock=True)


def _processor(text: str, limit: float, measure: str, rival: str) -> Target:
    return Target(
        text + ", processor time", limit, lambda f: f.find(measure, "sayso", "", f"processor times {rival}")
    )  # fmt: skip


def _clock(text: str, limit: float, measure: str, rival: str, who: str = "sayso") -> Target:
    is_on_disk = measure != MEMORY
    return Target(text, limit, lambda f: f.find(measure, who, "", f"times {rival}"), is_by_clock=is_on_disk)


def _over_timbal(figures: Figures) -> float | None:
    return figures.times("gated tool", "timbal, 100 ", "sayso, 100 ", "sqlite")


def _beside_a_million(figures: Figures) -> float | None:
    """Return what the verb costs most beside a million stored requests that costs most more there."""
    return figures.greatest("Postgres: a verb beside", "sayso, 1,000,000:", "times")


def _packages(figures: Figures) -> float | None:
    return figures.find("install", "sayso", "", "packages")


def _way(name: str, figure: str) -> Target:
    """Return how many calls, or files, a held call may take."""
    limit = dict(zip(("calls", "files"), AIMS[name], strict=True))[figure]
    who = f"sayso: {TEXTS[name]}"
    return Target(f"{TEXTS[name]}: {figure}", limit, lambda f: f.find(MEASURE, who, "", figure), "{:.0f}".format)


BASELINE, ONE = "baseline, by hand", "baseline, by hand, one process"
TARGETS = (
    Target("import, CPU over bare Python", 60e-3, lambda f: f.find("import", "import sayso", "", "least"), seconds),
    Target("packages of an install", 8, _packages, "{:.0f}".format),
    Target(
        "call let through, static", 1e-6, lambda f: f.find(LET, "sayso, gate(when=False)"), seconds, is_by_clock=True
    ),
    Target(
        "call let through, a rule", 10e-6, lambda f: f.find(LET, "sayso, gate(when=a rule"), seconds, is_by_clock=True
    ),
    *(_way(name, figure) for name in AIMS for figure in ("calls", "files")),
    _clock("in memory, beside udspy: `confirm_first`", 2.0, MEMORY, "udspy"),
    _clock("in memory, beside udspy: gate and Review", 2.0, MEMORY, "udspy", "sayso, gate"),
    _clock("on disk, beside four commits by hand (1.8 is the aim)", 2.0, DISK, BASELINE),
    _processor("on disk, beside four commits by hand", 2.0, DISK, BASELINE),
    _clock("on disk, beside holdpoint", 0.6, DISK, "holdpoint"),
    _processor("on disk, beside holdpoint", 0.6, DISK, "holdpoint"),
    *map(_ahead, ("call4agents", "chowki", "ctrlrun")),
    _clock("in two processes, beside four commits by hand in one", 2.5, PROCESSES, ONE),
    _processor("in two processes, beside four commits by hand in one", 2.5, PROCESSES, ONE),
    Target(
        "an agent's pause and resume, SQLite: Timbal's time over ours",
        4.0,
        _over_timbal,
        is_floor=True,
        is_by_clock=True,
    ),
    Target(
        "server: decided there, to running here, p50",
        5e-3,
        lambda f: f.find("decided on a server", ""),
        seconds,
        is_by_clock=True,
    ),
    Target("1,000,000 requests: cost of a verb beside 1,000", 1.3, _beside_a_million),
)
APART = (
    ("server: cycles a second, 2 cores", "at least 500"),
    ("server: a verb's p99, 64 agents, 200 cycles/s", "at most 10.0 ms"),
)


def target_table(rows: Sequence[Row], *, is_busy: bool = False) -> Table:
    """Return a line for each target; a verdict by the clock on a busy machine is marked with `busy`."""
    figures = Figures(rows)
    lines = [_line(target, target.found(figures), is_busy=is_busy) for target in TARGETS]
    lines += [(text, limit, "", ELSEWHERE) for text, limit in APART]
    return Table("targets", ("target", "limit", "measured", "verdict"), lines, right=frozenset({2}))


def _line(target: Target, found: float | None, *, is_busy: bool) -> tuple[str, ...]:
    limit = f"{'at least' if target.is_floor else 'at most'} {target.words(target.limit)}"
    if found is None:
        return target.text, limit, "", "not measured in this run"
    is_hit = found >= target.limit if target.is_floor else found <= target.limit
    verdict = "hit" if is_hit else "missed"
    if is_busy and target.is_by_clock:
        verdict = f"{verdict}, busy"
    return target.text, limit, target.words(found), verdict if is_hit else f"**{verdict}**"
