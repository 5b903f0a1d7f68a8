"""The tables of the benchmark: each written between its own markers of a page, and the verdict on each target."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import MEASURES, ON_A_PAGE, main
from benchmarks.capacity import MEASURE, capacity_table
from benchmarks.costs import COSTS, cost_table
from benchmarks.table import Row, Table, as_markdown, as_text, brief, facts_of, fill, table_of
from benchmarks.targets import DISK, target_table

PAGE = """# Speed
<!-- benchmark table: begin -->
old
<!-- benchmark table: end -->
words of mine
<!-- benchmark costs: begin -->
older
<!-- benchmark costs: end -->
"""


def test_a_table_is_written_between_its_own_markers_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert fill(page, "costs", as_markdown(Table("costs", ("piece",), [("a | b",)]), ["date: today"]))
    assert page.read_text(encoding="utf-8") == PAGE.replace(
        "older\n", "- date: today\n\n| piece |\n| --- |\n| a \\| b |\n"
    )
    assert not fill(page, "targets", "never written\n")
    assert "never written" not in page.read_text(encoding="utf-8")


def test_a_page_that_is_missing_ends_a_run_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MEASURES, "walk", lambda _: pytest.fail("it measured"))
    with pytest.raises(SystemExit):
        main(["walk", "--markdown", str(tmp_path / "page.md")])
    assert "there is no file" in capsys.readouterr().err


def test_the_machine_is_described_once_above_the_tables_of_a_run() -> None:
    costs, targets = (Table(name, (), ()) for name in ("costs", "targets"))
    machine, busy = ["date: today", "machine: this", "busy"], ["busy"]
    assert facts_of(targets, [costs, targets], machine, busy) == facts_of(costs, [costs], machine, busy) == machine
    assert facts_of(costs, [costs, targets], machine, busy) == ["date: today; the machine was busy"]


def test_a_group_is_named_on_its_first_row_and_parted_from_the_next_one() -> None:
    rows = [Row("one", "a"), Row("one", "b"), Row("two", "c")]
    assert [line[0] for line in table_of("table", rows).lines] == ["one", "", "two"]
    assert as_text(table_of("table", rows)).splitlines()[4] == ""


def test_a_page_has_medians_and_what_compares_them_or_why_there_is_none() -> None:
    note = "2.10x a, processor 2.50x (aim: at most 2x); 1.20x c; processor 3 ms; its default"
    rows = [Row("one", "b", "file", "2 ms", "3 ms", "9", 5, note), Row("one", "d", "file", note="not possible")]
    page = brief(table_of("table", rows))
    assert page.headings == ["measure", "who", "median", "beside others"]
    assert page.lines == [["one", "b", "2 ms", "2.10x a, processor 2.50x; 1.20x c"], ["", "d", "", "not possible"]]


def test_constants_of_the_stores_stand_side_by_side() -> None:
    rows = [Row(MEASURE, *rest) for rest in (("rows", "file", "1"), ("bytes", "file", "9"), ("rows", "server", "2"))]
    table = capacity_table([*rows, Row(MEASURE, "log", "server", note="not measured")])
    assert table.headings == (MEASURE, "file", "server")
    assert table.lines == [("rows", "1", "2"), ("bytes", "9", ""), ("log", "", "not measured")]
    assert facts_of(table, [table], ["date: today", "machine: this"], []) == ["date: today"]


def test_a_page_has_only_what_it_is_to_show_and_what_syncs_each_commit() -> None:
    stores = ("sqlite FULL", "sqlite NORMAL")
    rows = [Row(measure, "sayso", store) for measure in (f"{DISK}, long", "two") for store in stores]
    assert [line[:2] for line in brief(table_of("table", rows), (DISK,)).lines] == [[f"{DISK}, long", "sayso"]]
    printed = (Path(__file__).resolve().parents[2] / "docs/assets/benchmarks.txt").read_text(encoding="utf-8")
    gone = [one for one in ON_A_PAGE if f"\n{one}" not in printed]
    assert gone == []  # no group is missed because its measure got another name


def test_a_target_is_hit_missed_or_not_measured() -> None:
    rows = [
        Row("import, CPU over bare python", "import sayso", figures={"least": 0.05}),
        Row("pause, decide, resume, on disk", "sayso", "sqlite FULL", figures={"median": 2.0, "times holdpoint": 0.7}),
        Row("pause, decide, resume, on disk", "chowki", "sqlite FULL", figures={"median": 3.0}),
        Row("pause, decide, resume, on disk", "chowki", "sqlite NORMAL", figures={"median": 0.1}),
    ]
    verdicts = {text: (found, verdict) for text, _, found, verdict in target_table(rows).lines}
    assert verdicts["import, CPU over bare Python"] == ("50.0 ms", "hit")
    assert verdicts["on disk, beside holdpoint"] == ("0.70x", "**missed**")
    assert verdicts["on disk, ahead of chowki: its time over ours"] == ("1.50x", "hit")
    late = [Row("decided on a server, to running", "sayso", figures={"median": 0.02})]
    assert ("20.0 ms", "**missed, busy**") in {line[2:] for line in target_table(late, is_busy=True).lines}
    assert verdicts["packages of an install"] == ("", "not measured in this run")


def test_a_piece_has_its_cost_on_disk_beside_that_in_memory() -> None:
    rows = [
        Row(COSTS, "redaction", "sqlite FULL", figures={"median": 12e-6, "processor": 10e-6}),
        Row(COSTS, "redaction", "memory", figures={"median": 11e-6, "processor": 9e-6}),
        Row(COSTS, "each commit synced", "sqlite FULL", figures={"median": 300e-6, "processor": 90e-6}),
    ]
    assert [line[:5] for line in cost_table(rows).lines] == [
        ("each commit synced", "300", "90", "", ""),
        ("redaction", "12", "10", "11", "9"),
    ]
    page = brief(cost_table(rows))
    assert (page.lines[1], page.right) == (["redaction", "12", "11"], frozenset({1, 2}))
