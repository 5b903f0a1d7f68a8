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


# -- the lists of the reference ------------------------------------------------------------------------------------


def test_every_command_and_option_stands_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/cli.md").read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in page.split("\n### ")[1:]}
    group = cli._sayso
    context = click.Context(group)
    assert sorted(sections) == sorted(group.list_commands(context))
    everywhere = {"--as", "--role", "--json", "--help", "-h"}
    for name, section in sections.items():
        command = group.get_command(context, name)
        assert command is not None
        real = {option for one in command.params if isinstance(one, click.Option) for option in one.opts}
        table = "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
        told = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", table.split("`id`")[0]))
        assert real - everywhere == told - everywhere, name


def test_every_key_of_a_request_stands_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/cli.md").read_text(encoding="utf-8").split("## JSON")[1]
    table = [line for line in page.splitlines() if line.startswith("| `")]
    told = {key for line in table for key in re.findall(r"`(\w+)`", line.split("|")[1])}
    store = MemoryStore()
    call, question = store.open(sample_call("run_a")), store.open(sample_question("run_a"))
    real = {*request_document(call), *request_document(question)}
    assert told == real | {"journal"}


def test_every_fault_and_signal_stands_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/errors.md").read_text(encoding="utf-8")
    for name in {*errors.__all__, *signals.__all__} - {"ToolCall", "SaysoError"}:
        assert f"\n| `{name}` |" in page, name
        assert re.search(rf"[─ ]{name}\b", page), f"{name} is missing from the tree"


def test_every_setting_stands_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/configuration.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (root / "src/sayso").rglob("*.py")]
    for name in {name for source in sources for name in re.findall(r"\bSAYSO_[A-Z]+\b", source)}:
        assert f"`{name}`" in page, name
    assert {f"`{name}`" for name in config._KNOWN} <= set(re.findall(r"`\w+`", page))


def test_every_event_of_the_journal_stands_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/journal.md").read_text(encoding="utf-8").split("## Events")[1].split("## ")[0]
    told = {name for line in page.splitlines() if line.startswith("| `") for name in _words(line.split("|")[1])}
    lifecycle = (root / "src/sayso/model/lifecycle.py").read_text(encoding="utf-8")
    plain = set(re.findall(r"Transition\([^,]+(?:\([^)]*\))?, \"(\w+)\"", lifecycle))
    assert plain <= told
    assert told - plain == {"denied", "rejected", "feedback", "answered", "cancelled", "done", "failed"}


def _words(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)
