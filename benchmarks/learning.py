"""What it costs to read a long history of decisions: as samples, as pairs, as a table, and as a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import sayso
from sayso import clock
from sayso.cli.learn import _csv_lines as csv_lines
from sayso.learning import COLUMNS, pairs, report, rows, samples
from sayso.model.canonical.json_tree import dumps
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.testing import frozen_clock, sample_call, sample_question

from .contest import Plan
from .statistic import median
from .table import Row, seconds

__all__ = ["fill", "learning"]

RUNS = 10_000


def learning(plan: Plan) -> list[Row]:
    """Time each on one store of many decisions, as `sayso learn` does it, into nowhere."""
    count, repeats = plan.pick(100_000, 2_000), plan.pick(3, 3)
    store = SqliteStore(plan.new_folder("learning").with_suffix(".db"))
    fill(store, count)
    name = f"learning, {count:,} decisions"
    works: dict[str, Callable[[], int]] = {
        "samples, JSON lines": lambda: _written(map(dumps, samples(store))),
        "pairs, JSON lines": lambda: _written(map(dumps, pairs(store))),
        "table, JSON lines": lambda: _written(map(dumps, rows(store))),
        "table, CSV": lambda: _written(csv_lines(rows(store), COLUMNS)) - 1,  # the names of the columns
        "report": lambda: report(store).decisions,
    }
    found = [_timed(name, who, repeats, work) for who, work in works.items()]
    store.close()
    return found


def fill(store: SqliteStore, count: int) -> None:
    """Decide so many: of ten one is refused with a reason, one is changed, one is a question, one has a secret."""
    store._writer().execute("PRAGMA synchronous = OFF")  # only what stands there is measured
    with frozen_clock(clock.now() - timedelta(days=30)) as now:
        review = sayso.Review(store, reviewer="ada")
        for number in range(count):
            now.tick(seconds=1)
            _decided(store, review, number)


def _decided(store: Store, review: sayso.Review, number: int) -> None:
    run, given = f"run-{number % RUNS}", {"amount": number, "to": f"account {number % 97}"}
    match number % 10:
        case 0:
            review.answer(store.ask(sample_question(run, f"Which account for {number}?")).id, "main")
        case 1:
            review.reject(store.ask(sample_call(run, given, risk="high")).id, f"invoice {number} is not ours")
        case 2:
            review.approve(store.ask(sample_call(run, given)).id, changes={"amount": number + 1})
        case 3:
            review.approve(store.ask(sample_call(run, {**given, "password": f"secret {number}"})).id)
        case _:
            review.approve(store.ask(sample_call(run, given)).id)


def _written(lines: Iterable[str]) -> int:
    return sum(1 for _ in lines)


def _timed(name: str, who: str, repeats: int, work: Callable[[], Any]) -> Row:
    taken, busy, count = list[float](), list[float](), 0
    for _ in range(repeats):
        before, used = time.perf_counter(), time.process_time()
        count = work()
        taken.append(time.perf_counter() - before)
        busy.append(time.process_time() - used)
    note = f"{count:,} {'decisions' if who == 'report' else 'records'}, {seconds(median(busy))} of CPU"
    return Row.of(name, f"sayso: {who}", "sqlite FULL", taken, note=note, cpu=median(busy))
