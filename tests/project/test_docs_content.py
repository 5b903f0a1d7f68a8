"""The docs contain what their readers look for; `docs_content.toml` lists it page by page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def test_pages_contain_what_their_readers_look_for(root: Path) -> None:
    wanted: dict[str, list[str]] = tomllib.loads((root / "tests/project/docs_content.toml").read_text(encoding="utf-8"))
    lacking = list[str]()
    for page, phrases in wanted.items():
        text = _plain((root / page).read_text(encoding="utf-8"))
        lacking += [f"{page} lacks {phrase!r}" for phrase in phrases if _plain(phrase) not in text]
    assert not lacking, "\n".join(lacking)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()


def test_each_of_the_35_findings_about_the_inbox_has_an_answer(root: Path) -> None:
    findings = (root / "docs/assets/inbox-findings.txt").read_text(encoding="utf-8")
    assert "All are done" in findings
    numbers = re.findall(r"^(\d+)\. \S", findings, re.MULTILINE)
    assert [int(number) for number in numbers] == [*range(1, 36)]


def test_contrast_and_fault_tables_have_a_row_for_each_subject(root: Path) -> None:
    contrast = (root / "docs/explanation/contrast.md").read_text(encoding="utf-8")
    peers = {"ctrlrun", "holdpoint", "call4agents", "awaithumans"}
    assert peers <= set(re.findall(r"^\| (\w+) \(", contrast, re.MULTILINE))
    faults = (root / "docs/reliability.md").read_text(encoding="utf-8").partition("<!-- faults: begin -->")[2]
    rows = [line for line in faults.partition("<!-- faults: end -->")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 13
    assert {row.split("|")[5].strip(" *") for row in rows} == {"0"}
