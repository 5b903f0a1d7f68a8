"""sayso on Postgres beside a table written by hand: one cycle at a time, bursts, waking, a million rows.

The server is one as the tests start it (`tests.support.postgres`), which syncs each commit. All contenders take turns.
Processor time is the program's and the server's together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .browsers import Inbox, Pages, serving
from .contest import Contest, Entry, Plan
from .core import all_cores
from .inbox import stream_path
from .ours_postgres import PIECES
from .rounds import Times, report
from .statistic import median, percentile, turns
from .table import Row, seconds
from .worker import AbsentError, Worker, WorkerFailedError

__all__ = ["postgres"]

FLOOR, VERBS, GATE = "table by hand", "sayso, the verbs of its store", "sayso, gate and Review"
ONE, BURST, WAKE = (
    "Postgres: one cycle at a time",
    "Postgres: bursts of 256",
    "Postgres: decided in another process, to heard",
)
_STEADY = 400
PAGE = "Postgres: decided on one server, to a page of another"
COST = "Postgres: one cycle without a piece"


def postgres(plan: Plan) -> list[Row]:
    """Measure on the newest server of this machine, or on that of the package index."""
    try:
        from tests.support.postgres import Server, installed
    except ModuleNotFoundError as absent:
        return [Row(ONE, "sayso", "Postgres", note=f"not measured: {absent}")]
    if not installed():
        return [Row(ONE, "sayso", "Postgres", note="not measured: there is no Postgres")]
    with all_cores():  # a program and its database are two processes
        server = Server(installed()[0], is_durable=True)
        try:
            return _Run(plan, server, f"Postgres {server.version}").rows()
        finally:
            server.end()


class _Run:
    def __init__(self, plan: Plan, server: Any, store: str) -> None:
        self._plan, self._server, self._store = plan, server, store

    def rows(self) -> list[Row]:
        """Return the rows of all measures on one server."""
        return [
            *self._one_at_a_time(), *self._bursts(), *self._waking(), *self._on_pages(), *self._pieces(),
            *self._many_stored(),
        ]  # fmt: skip

    def _entries(self) -> list[Entry]:
        return [
            Entry(FLOOR, "ours_postgres:Floor", self._new("floor"), self._store, "four statements, NOTIFY, no journal"),
            Entry(
                VERBS,
                "ours_postgres:Cycle",
                self._new("verbs"),
                self._store,
                f"ask, decide, start, finish; in turns of {_STEADY} cycles",
            ),
            Entry(GATE, "ours_postgres:Gate", self._new("gate"), self._store, "with three looks more"),
        ]

    def _new(self, name: str) -> str:
        number = self._server.execute("SELECT count(*) FROM pg_database")[0][0]
        self._server.execute(f"CREATE DATABASE {name}_{number}")
        return self._server.url(f"{name}_{number}")

    def _one_at_a_time(self) -> list[Row]:
        contest, entries = Contest(ONE, self._plan), self._entries()
        # A rate: for the first cycles after another contender's turn, a processor's caches are filled again.
        taken = self._cycles(
            contest, entries, batch=_STEADY, rounds=self._plan.pick(60, 10), budget=self._plan.pick(90, 20)
        )
        # Each address is another one, and a rival is looked for at the same.
        same = {entry: Entry(entry.who, entry.path, "", entry.store, entry.note) for entry in entries}
        contest.lost = {same[entry]: row for entry, row in contest.lost.items()}
        return report(
            contest, list(same.values()), {same[entry]: times for entry, times in taken.items()}, {FLOOR: 1 / 0.6}
        )

    def _cycles(
        self, contest: Contest, entries: Sequence[Entry], *, batch: int, rounds: int, budget: float
    ) -> dict[Entry, Times]:  # fmt: skip
        """Let the contenders take turns, so many cycles each; the first round warms up."""
        taken: dict[Entry, Times] = {}
        number = 0
        with contest.open(entries) as ready:
            for number, entry in turns(ready, rounds + 1, budget=budget):
                with self._processor() as spent:
                    pairs = contest.call(entry, "time_round_trips", first=number * batch, count=batch)
                if pairs is not None and number > 0:
                    times = taken.setdefault(entry, Times([], []))
                    times.clock.extend(clock / 1e9 for clock, _ in pairs)
                    times.processor.append(sum(own for _, own in pairs) / 1e9 / batch + spent[0] / batch)
            for entry in ready:
                if wrong := contest.wrong(entry, (number + 1) * batch):
                    contest.lost[entry] = Row(contest.measure, entry.who, entry.store, note=wrong)
        return taken

    @contextmanager
    def _processor(self) -> Iterator[list[float]]:
        """Yield a list that gets the processor seconds of the server's processes that were there all the time."""
        before, spent = self._spent(), list[float]()
        yield spent
        spent.append(sum(now - before.get(pid, now) for pid, now in self._spent().items()))

    def _spent(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if status.read_text().rpartition(")")[2].split()[1] == str(self._server.pid):
                    found[status.parent.name] = int((status.parent / "schedstat").read_text().split()[0]) / 1e9
        return found

    def _bursts(self) -> list[Row]:
        count, rows = self._plan.pick(2048, 512), list[Row]()
        contest, entries, taken = Contest(BURST, self._plan), self._entries()[:2], dict[Entry, list[float]]()
        with contest.open(entries) as ready:
            for number, entry in turns(ready, self._plan.pick(8, 3), least=2, budget=self._plan.pick(60, 20)):
                found = contest.call(entry, "burst", first=number * count, count=count)
                if found is not None and number > 0:
                    taken.setdefault(entry, []).append(found / count)
        for entry, values in taken.items():
            aim = "; aim: at least 2,000 a second" if entry.is_ours else ""
            best = f"best round {1 / min(values):,.0f} a second{aim}"
            rows.append(Row.of(BURST, entry.who, entry.store, values, rate=f"{1 / median(values):,.0f}", note=best))
        return [*contest.lost.values(), *rows]

    def _waking(self) -> list[Row]:
        contest, address = Contest(WAKE, self._plan), self._new("wake")
        entries = [Entry(who, "ours_postgres:Cycle", address, self._store) for who in ("sayso, who decides", "sayso")]
        found = list[float]()
        with contest.open(entries) as ready:
            if len(ready) == 2:
                decider, listener = (contest.workers[entry] for entry in ready)
                for number in range(self._plan.pick(400, 60)):
                    request_id = decider.step("asked", amount=number)
                    listener.step("wait", request_id=request_id)
                    if number == 0:
                        time.sleep(0.5)  # until it listens
                    before, after = decider.step("decided", request_id=request_id)
                    found.append((listener.step("heard", since=before) - after) / 1e9)
        found = [max(0.0, one) for one in found[5:]]
        note = f"after the commit was answered; p99 {seconds(percentile(found, 99))} (aim: under 3 ms)" if found else ""
        rows = [Row.of(WAKE, "sayso", self._store, found, note=note, p99=percentile(found, 99))] if found else []
        return [*contest.lost.values(), *rows]

    def _on_pages(self) -> list[Row]:
        """Decide on one server, and look at the pages that another one shows."""
        url, contest = self._new("pages"), Contest(PAGE, self._plan)
        entry = Entry("sayso serve", "ours_postgres:Cycle", url, self._store)
        try:
            with contest.open([entry]) as ready, serving(url) as here, serving(url) as there:
                worker = contest.workers[ready[0]]
                found = asyncio.run(_seen(worker, here, there, self._plan.pick(100, 20)))
        except (AbsentError, WorkerFailedError, TimeoutError, OSError, IndexError) as failure:
            return [Row(PAGE, entry.who, self._store, note=f"not measured: {type(failure).__name__} {failure}")]
        note = f"from before the approval is sent; p99 {seconds(percentile(found, 99))} (aim: within 50 ms)"
        return [Row.of(PAGE, entry.who, self._store, found, note=note, p99=percentile(found, 99))]

    def _pieces(self) -> list[Row]:
        """What the promises cost: the cycle without a piece less the whole one, as in `benchmarks.costs`."""
        contest = Contest(COST, self._plan)
        names = ["", " ", *(f" {name}" for name in PIECES)]
        entries = [
            Entry(f"without {name.strip()}", "ours_postgres:Cycle", self._new("piece") + name, self._store)
            for name in names
        ]
        taken = self._cycles(contest, entries, batch=20, rounds=self._plan.pick(60, 6), budget=self._plan.pick(120, 15))
        if entries[0] not in taken:
            return list(contest.lost.values())
        whole = [median(times) for times in taken[entries[0]]]
        rows = [Row(COST, "sayso, the whole cycle", self._store, median=seconds(whole[0]),
                    note=f"processor {seconds(whole[1])}")]  # fmt: skip
        for entry, name in zip(entries[1:], names[1:], strict=True):
            if entry in taken:
                clock, processor = (all_ - median(one) for all_, one in zip(whole, taken[entry], strict=True))
                rows.append(Row(COST, f"less without: {name.strip() or 'nothing, for comparison'}", self._store,
                                median=seconds(clock), note=f"processor {seconds(processor)}"))  # fmt: skip
        return [*contest.lost.values(), *rows]

    def _many_stored(self) -> list[Row]:
        sizes = [1_000, self._plan.pick(1_000_000, 20_000)]
        name = f"Postgres: a verb beside {sizes[0]:,} or {sizes[1]:,} stored"
        contest, batch = Contest(name, self._plan), 20
        entries = {
            Entry(f"sayso, {size:,}", "ours_postgres:Cycle", self._new("rows"), self._store): size for size in sizes
        }
        taken: dict[Entry, dict[str, list[float]]] = {entry: {} for entry in entries}
        with contest.open(entries) as ready:
            for entry in ready:
                contest.call(entry, "fill", rows=entries[entry])
            for number, entry in turns(ready, self._plan.pick(30, 8), budget=self._plan.pick(90, 20)):
                found = contest.call(entry, "verbs", first=1 + number * batch, count=batch)
                for verb, values in (found or {}).items():
                    taken[entry].setdefault(verb, []).extend(values if number > 0 else [])
        few, many = taken.values()
        rows = list(contest.lost.values())
        for verb in few:
            for entry in entries:
                values = taken[entry].get(verb, [])
                who, times = f"{entry.who}: {verb}", median(values) / median(few[verb])
                ratio = f"{times:.2f}x that beside {sizes[0]:,} (aim: at most 1.3x)"
                compared = {} if values is few[verb] else {"note": ratio, "times": times}
                rows.append(Row.of(name, who, self._store, values, **compared))
        assert many is not few
        return rows


async def _seen(worker: Worker, here: Inbox, there: Inbox, count: int) -> list[float]:
    """Return the seconds from a decision on `here` until a page of `there` shows it, so many times."""
    pages, taken = Pages(there), list[float]()
    await pages.open(1, stream_path())
    for number in range(count):
        request_id = await asyncio.to_thread(worker.call, "asked", amount=number)
        await pages.until(1)
        before = await asyncio.to_thread(here.approve, request_id)
        taken.append(await pages.until(0) - before)
    await pages.close()
    return taken
