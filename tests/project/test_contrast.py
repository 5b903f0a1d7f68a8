"""The contrast suite: its runner counts what ran, a guard of sayso that is gone shows, and its page has every line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.contrast import __main__ as command
from benchmarks.contrast.registry import SUBJECTS, packages
from benchmarks.contrast.scenarios import SCENARIOS, Cell

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/contrast.md").read_text(encoding="utf-8")

# Its steps are forks, and tests run beside threads: a process of its own plays them.
PLAY = """
import json, sys
from pathlib import Path
from benchmarks.contrast.drivers.plain import Gate, Plain
from benchmarks.contrast.play import cell
from sayso.model import lifecycle

folder, is_broken, *wanted = sys.argv[1:]
if is_broken == "broken":
    lifecycle.must_have_free_effect = lambda *_: None
print(json.dumps([cell({"Gate": Gate, "Plain": Plain}[who], name, Path(folder) / who / name).text
                  for who, name in (one.split() for one in wanted)]))
"""


def played(folder: Path, *wanted: str, is_broken: bool = False) -> list[str]:
    words = [sys.executable, "-c", PLAY, str(folder), "broken" if is_broken else "whole", *wanted]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def table(name: str, page: str = PAGE) -> list[list[str]]:
    """Return the cells of a table that the command has written between its markers."""
    text = page.partition(f"<!-- benchmark {name}: begin -->")[2].partition(f"<!-- benchmark {name}: end -->")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_runner_counts_what_a_function_alone_does_and_what_a_gate_holds(tmp_path: Path) -> None:
    names = ("approval", "concurrent", "replay", "arguments", "no", "killed")
    alone = played(tmp_path, *(f"Plain {name}" for name in names))
    assert alone == ["yes", "ran 10 times", "ran 3 times", "ran refund of 95.0", "ran", "ran 2 times"]
    assert played(tmp_path, *(f"Gate {name}" for name in names)) == ["yes", *["held"] * 5]


def test_guard_of_sayso_that_is_gone_is_a_red_cell(tmp_path: Path) -> None:
    assert played(tmp_path / "whole", "Gate effect") == ["held"]
    assert played(tmp_path / "broken", "Gate effect", is_broken=True) == ["ran 2 times"]


def test_command_plays_what_is_named_and_writes_it_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "environment", lambda *_: sys.executable)
    page = tmp_path / "page.md"
    page.write_text("<!-- benchmark contrast: begin -->\n<!-- benchmark contrast: end -->\n", encoding="utf-8")
    assert command.main(["plain", "gate", "replay", "--markdown", str(page)]) == 0
    assert [line[1:] for line in table("contrast", page.read_text(encoding="utf-8"))[2:]] == [
        [], ["**3x**"], [], ["held"],
    ]  # fmt: skip
    assert "**3x**" in capsys.readouterr().out


def test_what_was_measured_before_stands_beside_what_is_measured_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "environment", lambda *_: sys.executable)
    assert command.main(["plain", "replay", "--json"]) == 0
    (tmp_path / "before.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert command.main(["gate", "replay", "--also", str(tmp_path / "before.json")]) == 0
    told = capsys.readouterr().out
    assert "**3x**" in told
    assert "the subjects that were not played again" in told


def test_red_cell_of_sayso_is_named_and_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    red = command.Result(SUBJECTS["gate"], cells={"effect": Cell("ran", "ran 2 times", "ran: twice")})
    monkeypatch.setattr(command, "_played", lambda *_: red)
    assert command.main(["gate", "effect"]) == 1
    assert "`sayso.gate`, effect: ran 2 times" in capsys.readouterr().err


def test_subjects_of_one_reason_are_noted_together() -> None:
    cells = {"edit": Cell("n/a", "n/a", "it has no edits"), "no": Cell("held", "held", "")}
    results = [command.Result(SUBJECTS[name], cells=cells) for name in ("gate", "ctrlrun")]
    (line,) = command._notes(results).lines
    assert line == ["edit of the wrong type", "n/a", "it has no edits", "`sayso.gate`, ctrlrun"]
    assert command._as_list(command._notes(results)) == (
        "- edit of the wrong type, n/a: it has no edits (`sayso.gate`, ctrlrun)\n"
    )


def test_a_cell_says_in_one_word_what_ran() -> None:
    texts = ("ran", "ran 10 times", "ran refund of 95.0", "ran payout of 50.0", "unasked")
    assert [command._shown(Cell("ran", text, "")) for text in texts] == [
        "**ran**", "**10x**", "**95.0**", "**payout**", "**unasked**",
    ]  # fmt: skip


def test_subjects_of_sayso_share_a_line_where_their_cells_agree_and_no_others_do() -> None:
    cells = {name: Cell("held", "held", "") for name in SCENARIOS}
    results = [
        command.Result(SUBJECTS[name], cells=cells) for name in ("ctrlrun", "holdpoint", "gate", "sayso-langgraph")
    ]
    red = {**cells, "effect": Cell("ran", "ran", "")}
    results.append(command.Result(SUBJECTS["sayso-dspy"], cells=red))
    heads = [line[0] for line in command._table(results, list(SCENARIOS)).lines]
    shown = [SUBJECTS[name].shown for name in ("gate", "sayso-langgraph", "sayso-dspy")]
    assert heads == ["*peers*", "ctrlrun", "holdpoint", "*with sayso in front*", "; ".join(shown[:2]), shown[2]]


def test_subject_that_cannot_be_installed_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(command, "environment", fail)
    assert command.main(["ctrlrun", "replay"]) == 0
    assert "left out: ctrlrun, not installable here" in capsys.readouterr().out


def test_table_of_the_docs_has_every_subject_and_every_scenario() -> None:
    headings, _, *lines = table("contrast")
    assert headings[1:] == [scenario.heading for scenario in SCENARIOS.values()]
    for entry in SUBJECTS.values():
        names = {name: line for line in lines for name in line[0].split("; ")}
        (line,) = (names[name] for name in names if name == entry.shown or name.startswith(f"{entry.shown} ("))
        assert all(line), f"{entry.shown} has empty cells"
        assert all(f"{name} " in line[0] for name in entry.versions), f"{line[0]} does not say its versions"


def test_scenarios_are_explained_on_the_page_under_the_names_that_the_command_takes() -> None:
    for name, scenario in SCENARIOS.items():
        assert f"- {scenario.heading} (`{name}`): " in PAGE


def test_nothing_runs_with_sayso_in_front() -> None:
    """What the table says; the cells themselves are measured by `make contrast`."""
    *_, short = table("contrast-short", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert (short[0].startswith("**sayso**"), short[1:]) == (True, [str(len(SCENARIOS) - 1), "0", "0"])


def test_each_environment_says_what_it_holds() -> None:
    assert all(packages(entry.environment) for entry in SUBJECTS.values())
