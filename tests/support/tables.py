"""Collects and reports all rows of a parametrized test function as one test.

This applies to every function with more than two rows. Each row still has its own fixtures, set up and torn down as if
it were alone, and every row runs even if an earlier one failed. The failure message begins with the names of all failed
rows. `pytest --rows` reports each row as a test, and so does selecting one by its id:
`pytest 'tests/model/test_x.py::test_y[row]'`.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from _pytest.runner import runtestprotocol

MOST_APART = 2  # up to this many rows are separate tests


class Table(pytest.Item):
    """One test that consists of the rows of one parametrized function."""

    rows: list[pytest.Function]

    def runtest(self) -> None:
        """Never called: `run` runs the rows."""
        raise NotImplementedError

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Return the location of the function."""
        path, line, name = self.rows[0].reportinfo()
        return path, line, _function(name)


def gathered(made: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items of one function: its rows, or one test for all of them."""
    rows = [row for row in made if isinstance(row, pytest.Function)]
    if len(rows) <= MOST_APART:
        return made
    table = cast("Table", Table.from_parent(cast("Any", rows[0].parent), name=rows[0].originalname))
    table.rows = rows
    table.own_markers = [mark for mark in rows[0].own_markers if mark.name != "parametrize"]
    return [table]


def run(table: Table, nextitem: pytest.Item | None) -> None:
    """Run each row with pytest's own protocol, and report them as one test."""
    table.ihook.pytest_runtest_logstart(nodeid=table.nodeid, location=table.location)
    reports: list[pytest.TestReport] = []
    for row, after in zip(table.rows, [*table.rows[1:], nextitem], strict=True):
        reports += runtestprotocol(row, log=False, nextitem=after)
    for report in _summed(table, reports):
        table.ihook.pytest_runtest_logreport(report=report)
    table.ihook.pytest_runtest_logfinish(nodeid=table.nodeid, location=table.location)


def _function(name: str) -> str:
    return name.partition("[")[0]


def _row(report: pytest.TestReport) -> str:
    return report.nodeid.partition("[")[2].removesuffix("]")


def _summed(table: Table, reports: list[pytest.TestReport]) -> list[pytest.TestReport]:
    """Combine the reports of all rows into the three reports of one test, skipped if every row was skipped."""
    failed = [report for report in reports if report.failed]
    skipped = [report for report in reports if report.skipped]
    outcome, longrepr = "passed", cast("Any", None)
    if failed:
        names = list(dict.fromkeys(_row(report) for report in failed))
        parts = [f"{len(names)} of {len(table.rows)} rows failed: {', '.join(names)}"]
        parts += [f"---- {_row(report)} ({report.when})\n{report.longreprtext}" for report in failed]
        parts += [f"---- {_row(report)}: {title}\n{text}" for report in failed for title, text in report.sections]
        outcome, longrepr = "failed", "\n\n".join(parts)
    elif len(skipped) == len(table.rows):
        outcome, longrepr = "skipped", skipped[0].longrepr
    common: dict[str, Any] = {
        "nodeid": table.nodeid, "location": table.location, "keywords": dict.fromkeys(table.keywords, 1),
        "start": reports[0].start, "stop": reports[-1].stop,
    }  # fmt: skip
    return [
        pytest.TestReport(**common, outcome="passed", longrepr=None, when="setup"),
        pytest.TestReport(
            **common, outcome=outcome, longrepr=longrepr, when="call", duration=sum(one.duration for one in reports)
        ),
        pytest.TestReport(**common, outcome="passed", longrepr=None, when="teardown"),
    ]
