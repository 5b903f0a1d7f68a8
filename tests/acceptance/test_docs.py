"""The README and every page of the docs: what they show happens, and what they list is all that there is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.pages import CHECKED, PLAIN, Block, Place, blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FEWEST = 1


def executed(page: Path) -> list[Block]:
    return [block for block in blocks(page, ROOT) if block.is_executed]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_page_do_what_they_say(page: Path, tmp_path: Path) -> None:
    place = Place(tmp_path / "page")
    wanted = [
        block for block in executed(page) if block.note != "needs" or (block.more and shutil.which(block.more))
    ]
    try:
        for block in wanted:
            place.run(block)
        assert place.waiting is None, f"{page}: nothing shows how the waiting program went on"
    finally:
        place.finish()
    assert place.ran == len(wanted)
