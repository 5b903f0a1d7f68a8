"""The rows of a table are one test, which is red as soon as one row is, and names each row that is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LEAN = ["-p", "no:cacheprovider", "-p", "no:schemathesis"]  # the second takes as long to load as the rest of pytest
PROGRAM = """
import pytest

@pytest.fixture
def ran():
    return []

@pytest.mark.parametrize("name", ["one", "two", "three", "four", "five"])
def test_a_row(name, ran):
    ran.append(name)
    assert ran == [name]
    assert "o" in name
"""


def output_of(root: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", *LEAN, "-q", *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout


def test_a_table_is_one_test_that_names_each_row_that_failed(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(PROGRAM, encoding="utf-8")
    together = output_of(root, str(file))
    assert "2 of 5 rows failed: three, five" in together
    assert together.splitlines()[-1].startswith("1 failed in")
    assert output_of(root, str(file), "--rows").splitlines()[-1].startswith("2 failed, 3 passed in")
    assert output_of(root, f"{file}::test_a_row[one]").splitlines()[-1].startswith("1 passed in")
