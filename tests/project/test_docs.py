"""The README and every page of the docs: what they show happens, and what they list is all that there is."""

from __future__ import annotations

import asyncio
import inspect
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_overloads

import click
import pytest

import sayso
from sayso import cli, config, errors
from sayso.channels import registry
from sayso.cli import context
from sayso.gates import exceptions
from sayso.gates.gate import HoldOptions
from sayso.runs.definition import Definition
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call, sample_question
from sayso.view.as_json import request_document
from tests.integrations.adapters.installed import framework
from tests.project.pages import CHECKED, NOTES, PLAIN, Block, Place, blocks, module_needed

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GIVEN = (
    ROOT / "examples/guides"
)  # programs that the console blocks of a page run beside its own, in a folder of its name
FIRST_PAGES = [ROOT / "README.md", ROOT / "docs/quickstart.md"]
RUN_BY_A_TEST = {"waiting.py"}  # not in a console block of its page
FEWEST_PROGRAMS, FEWEST_COMMANDS = 54, 70


def executed(page: Path) -> list[Block]:
    return [block for block in blocks(page, ROOT) if block.is_executed]


@pytest.mark.parametrize("page", FIRST_PAGES, ids=lambda page: page.name)
def test_examples_of_the_first_pages_do_what_they_say(page: Path, tmp_path: Path) -> None:
    run_examples(page, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(set(PAGES) - set(FIRST_PAGES)), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_page_do_what_they_say(page: Path, tmp_path: Path) -> None:
    run_examples(page, tmp_path)


def run_examples(page: Path, folder: Path) -> None:
    module = module_needed(page)
    if module is not None:
        framework(module, f"the examples of {page.name}")
    place = Place(folder / "page")
    if (given := GIVEN / page.stem).is_dir():
        shutil.copytree(given, place.folder, dirs_exist_ok=True)
    wanted = [block for block in executed(page) if block.note != "needs" or (block.more and shutil.which(block.more))]
    try:
        for block in sorted(wanted, key=lambda one: one.note != "first"):
            place.run(block)
        assert place.waiting is None, f"{page}: nothing shows how the waiting program went on"
    finally:
        place.finish()
    assert place.ran == len(wanted)


def test_two_clients_of_the_web_example_that_come_back_at_once_get_one_result() -> None:
    pytest.importorskip("fastapi")
    import httpx

    page = next(block for block in blocks(ROOT / "docs/guides/fastapi-and-async.md", ROOT)).text
    effect, ran, both = '    return f"{user} is gone"', list[str](), asyncio.Event()
    assert effect in page
    program = page.partition("client = ")[0].replace(effect, f"    await happens(user)\n{effect}")

    async def happens(user: str) -> None:
        ran.append(user)
        await asyncio.wait_for(both.wait(), 60)

    async def play(app: Any) -> list[tuple[int, str]]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            held = await client.post("/users/kim/close")
            sayso.Review(reviewer="ada").approve(held.json()["waits_for"])
            clients = [asyncio.create_task(client.post("/users/kim/close")) for _ in range(2)]
            for _ in range(500):  # rounds of the loop, in which the second one comes as far as it can
                await asyncio.sleep(0)
            both.set()
            answers = [await one for one in clients] + [await client.post("/users/kim/close")]
            return [(one.status_code, one.text) for one in answers]

    space: dict[str, Any] = {"happens": happens, "__name__": "shop"}
    with config.use(store=MemoryStore()):
        exec(compile(program, "fastapi-and-async.md", "exec"), space)  # noqa: S102  what the page shows
        assert asyncio.run(play(space["app"])) == [(200, '{"result":"kim is gone"}')] * 3
    assert ran == ["kim"]


def test_the_batch_that_waits_pays_each_invoice_once_though_it_is_killed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{place / 'sayso.db'}")
    shutil.copy(GIVEN / "nightly-batch/waiting.py", place)
    review = sayso.Review(f"sqlite:///{place / 'sayso.db'}", reviewer="ada")

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "waiting.py"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    with start() as first:
        assert first.stderr is not None
        assert first.stdout is not None
        said = [first.stderr.readline() for _ in range(4)]
        assert sum("waiting for a person" in line for line in said) == 2
        for request in review.list(text="2001"):
            review.approve(request.id)
        assert first.stdout.readline() == "2001 paid 80\n"
        first.kill()
    for request in review.list(state="pending"):
        review.approve(request.id)
    with start() as second:
        out, _ = second.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["2001 paid 80", "2002 paid 9500"]
    assert Path("bank.txt").read_text().split("\n") == ["2001 80", "2002 9500", ""]


def test_every_block_is_executed_or_says_why_not() -> None:
    every = [block for page in PAGES for block in blocks(page, ROOT)]
    for block in every:
        assert block.language in CHECKED | PLAIN, f"{block} is in {block.language or 'no language'}"
        assert block.note != "not executed" or block.more, f"{block} does not say why it is not executed"
        assert block.note is None or block.note in NOTES, f"{block}: {block.note!r}"


def test_every_file_of_a_page_is_run() -> None:
    left = [f"{page.relative_to(ROOT)}: {name}" for page in PAGES for name in _files_not_run(page)]
    assert not left, "\n".join(left)
    pages = {page.stem for page in PAGES}
    assert [folder.name for folder in GIVEN.iterdir() if folder.name not in pages] == []


def _files_not_run(page: Path) -> list[str]:
    given = [*(GIVEN / page.stem).glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in [page, *given])
    typed = "\n".join(command for block in executed(page) for command, _ in _typed(block))

    def is_run(name: str) -> bool:
        stem = Path(name).stem
        is_collected = "pytest" in typed and (stem == "conftest" or stem.startswith("test_"))
        return is_collected or f"{stem}.py" in typed or f"from {stem} import" in text

    names = [block.file for block in executed(page) if block.language == "python" and block.file is not None]
    names += [path.name for path in given]
    return [name for name in names if name not in RUN_BY_A_TEST and not is_run(name)]


def test_enough_examples_are_executed(capsys: pytest.CaptureFixture[str]) -> None:
    done = [block for page in PAGES for block in executed(page)]
    left = [block for page in PAGES for block in blocks(page, ROOT) if block.note == "not executed"]
    commands = sum(len(_typed(block)) for block in done)
    programs = sum(block.language == "python" for block in done) + len([*GIVEN.glob("*/*.py")])
    with capsys.disabled():
        print(f"\ndocs: {programs} programs and {commands} commands on {len(PAGES)} pages are executed", end="; ")
        print(f"{len(left)} blocks are not: {', '.join(f'{block} ({block.more})' for block in left)}")
    assert programs >= FEWEST_PROGRAMS
    assert commands >= FEWEST_COMMANDS


def _typed(block: Block) -> list[tuple[str, str]]:
    return block.typed if block.language == "console" and block.note != "goes on" else []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page} links to {target}"


def anchors_of(page: Path) -> set[str]:
    docstrings = re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
    headings = re.findall(
        r"^#{1,6} +(.+)$",
        re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower() for heading in headings]
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain} | {*docstrings}


def test_no_empty_line_cuts_a_table_or_a_list_in_two() -> None:
    cut: list[str] = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        lines = page.read_text(encoding="utf-8").splitlines()
        for number, (before, empty, line) in enumerate(zip(lines, lines[1:], lines[2:], strict=False), 3):
            if empty == "" and before[:2] == line[:2] and line[:2] in {"| ", "- "}:
                cut.append(f"{page.relative_to(ROOT)}:{number}")
    assert cut == []


def test_links_to_a_heading_lead_to_one() -> None:
    wrong: list[str] = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            other = (page.parent / target).resolve() if target else page
            if other.suffix == ".md" and anchor not in anchors_of(other):
                wrong.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert not wrong, "\n".join(wrong)


def test_every_page_stands_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f": {page.relative_to(ROOT / 'docs')}\n" in navigation, page


WRONG = {
    "a program that prints something else": "```python\nprint(1 + 1)  # 3\n```\n",
    "a program that prints what the page does not show": "```python\nprint(1 + 1)\n```\n",
    "a program that fails": "```python\nraise SystemExit(1)\n```\n",
    "a command that says something else": "```console\n$ echo two\none\n```\n",
    "a command that says more": "```console\n$ printf 'one\\ntwo\\n'\none\n```\n",
    "a command that fails in silence": "```console\n$ false\n```\n",
    "a note that there is not": "<!-- example: later -->\n```console\n$ true\n```\n",
    "an id that was not shown": "```console\n$ echo rq_7a3f19c2\nrq_7a3f19c2\n```\n",
    "no JSON": "```json\n{,}\n```\n",
    "a question that is not asked": "<!-- example: at a terminal -->\n```console\n$ echo done\n> yes\ndone\n```\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_page_that_does_not_do_what_it_says_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    (block,) = blocks(page, tmp_path)
    with pytest.raises((AssertionError, ValueError)):
        Place(tmp_path / "page").run(block)


@pytest.mark.parametrize(("shown", "is_right"), [("rq_aaaa1 rq_bbbb2", True), ("rq_aaaa1 rq_aaaa1", False)])
def test_ids_are_compared_by_their_place(shown: str, is_right: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```console\n$ for n in 0000f 1111e; do printf rq_; echo $n; done | xargs\n{shown}\n```\n")
    with nullcontext() if is_right else pytest.raises(AssertionError):
        Place(tmp_path / "page").run(*blocks(page, tmp_path))


def test_what_the_security_page_names_is_there() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    files = re.findall(r"tests/[\w/]+\.py", page)
    assert all((ROOT / file).is_file() for file in files), files
    tested = {int(file.name.split("_")[1]) for file in (ROOT / "tests/promises").glob("test_*.py")}
    assert {int(number) for number in re.findall(r"^(\d+)\. ", page, re.MULTILINE)} == tested


def test_files_to_read_are_there_and_as_long_as_the_security_page_says() -> None:
    part = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8").split("\n## Read the code yourself\n")[1]
    part = part.split("\n## ")[0]
    rows = re.findall(r"^- (`[^(]+) \(([\d,]+) lines\)[:,] ", part, re.MULTILINE)
    told = {cell: int(lines.replace(",", "")) for cell, lines in rows}
    real = {cell: sum(len(_source(file).splitlines()) for file in re.findall(r"`([^`]+)`", cell)) for cell in told}
    off = {cell: real[cell] for cell in told if abs(told[cell] - real[cell]) > 0.15 * real[cell]}
    assert len(told) > 10
    assert off == {}
    for half in part.split("\n### ")[1:]:
        (total,) = re.findall(r"about ([\d,]+) lines", half)
        lines = sum(real[cell] for cell in real if cell in half)
        assert abs(int(total.replace(",", "")) - lines) < 0.1 * lines


def _source(file: str) -> str:
    return (ROOT / "src/sayso" / file).read_text(encoding="utf-8")


# -- the lists of the reference ------------------------------------------------------------------------------------


def test_every_command_is_on_the_page_and_says_what_its_options_mean(root: Path) -> None:
    page = (root / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert "\n::: mkdocs-click\n    :module: sayso.cli\n    :command: _sayso\n" in page  # the site shows the help texts
    table = [line for line in page.split("\n## ")[0].splitlines() if line.startswith("|")]
    group, silent = cli._sayso, list[str]()
    context = click.Context(group)
    names = group.list_commands(context)
    assert sorted(names) == sorted(re.findall(r"`([\w-]+)`", "".join(table)))
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        for each in [command, *(command.commands.values() if isinstance(command, click.Group) else ())]:
            silent += [f"{name} {each.name}"] if not each.help else []
            options = [param for param in each.params if isinstance(param, click.Option) and not param.hidden]
            silent += [f"{name} {each.name} {option.name}" for option in options if not option.help]
    assert silent == []


def test_every_key_of_a_request_stands_in_the_schema_that_the_reference_names(root: Path) -> None:
    pytest.importorskip("starlette")
    from sayso.server.app import document, endpoints

    page = (root / "docs/reference/cli.md").read_text(encoding="utf-8").split("\n## JSON\n")[1]
    assert "the schema `Request` in the [OpenAPI document](http-api.md)" in page
    store = MemoryStore()
    call, question = store.ask(sample_call("run_a")), store.ask(sample_question("run_a"))
    real = {*request_document(call), *request_document(question)}
    assert {*document(endpoints())["components"]["schemas"]["Request"]["properties"]} == real | {"program_gone"}


def test_every_signal_stands_in_the_reference_and_every_fault_in_the_tree_that_it_shows(root: Path) -> None:
    page = (root / "docs/reference/errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- `(\w+)`: ", page.split("\n## Signals\n")[1].split("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == sorted(name for name in vars(exceptions) if name.startswith("Confirmation"))
    assert "\n::: sayso.errors\n" in page
    above: list[str] = []
    drawn: set[tuple[str, str]] = set()
    for bars, name in re.findall(r"^    ([│├└─ ]*)(\w+Error)", errors.__doc__ or "", re.MULTILINE):
        above = [*above[: len(bars) // 4], name]
        drawn |= {(name, above[-2])} if bars else set()
    kinds = {kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)} - {sayso.SaysoError}
    assert drawn == {(kind.__name__, _public_base(kind)) for kind in kinds}
    told = page.split("\n## Faults\n")[1]
    assert set(re.findall(r"`(\w+Error)`", told)) <= {*errors.__all__}


def _public_base(kind: type) -> str:
    return next(base.__name__ for base in kind.__mro__[1:] if not base.__name__.startswith("_"))


def test_exit_codes_of_the_reference_are_those_of_the_command_line(root: Path) -> None:
    page = (root / "docs/reference/errors.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith("Commands end with 1 on these faults, "))
    told = {
        name: int(code)
        for code, names in re.findall(r"with (\d) on ((?:[^w]|w(?!ith))+)", line)
        for name in _words(names)
    }
    refused = {kind.__name__: code for kind, code in context._CODES if issubclass(kind, errors.DecisionRefusedError)}
    assert told == refused


def test_every_setting_stands_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/configuration.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (root / "src/sayso").rglob("*.py")]
    for name in {name for source in sources for name in re.findall(r"\bSAYSO_[A-Z]+\b", source)}:
        assert f"`{name}`" in page, name
    assert {f"`{name}`" for name in config._TEXTS} <= set(re.findall(r"`\w+`", page))
    assert [name for name in config._TABLES if not re.search(rf"\[{name}[.\]]", page)] == []
    channels = page.split("## Channels")[1].split("## ")[0]
    assert [kind for kind in registry._TYPES if f"`{kind}`" not in channels] == [], "types of channels"


def test_every_event_of_the_journal_stands_in_the_reference(root: Path) -> None:
    page = (root / "docs/reference/journal.md").read_text(encoding="utf-8").split("## Events")[1].split("## ")[0]
    starts = [re.match(r"- (?:`\w+`(?:, )?)+", line) for line in page.partition("\n\\*")[0].splitlines()]
    told = {name for start in starts if start is not None for name in _words(start[0])}
    rules = "".join(_source(f"model/{name}.py") for name in ("lifecycle", "teamwork"))
    plain = set(re.findall(r"Transition\([^,]+(?:\([^)]*\))?, \"(\w+)\"", rules))
    assert plain <= told
    elsewhere = {"allowed", "commented", "denied", "purged", "checkpoint", "late", "token_made", "token_revoked"}
    elsewhere |= {"granted", "grant_revoked", "stopped", "went_on", "delegated", "delegation_ended"}
    elsewhere |= {"grant_used", "grant_expired", "budget_taken", "budget_given_back"}
    assert told - plain == {"rejected", "feedback", "answered", "cancelled", "done", "failed"} | elsewhere


def _words(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_every_public_name_is_on_the_api_page_and_its_docstring_has_every_parameter(root: Path) -> None:
    page = (root / "docs/reference/api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: sayso\.([\w.]+)$", page, re.MULTILINE))
    modules = {name for name in sayso.__all__ if inspect.ismodule(getattr(sayso, name))}
    assert shown == {*sayso.__all__} - modules | {"policy.hold", "policy.Policy", "runs.definition.Definition"}
    assert [name for name in sayso.__all__ if f"[`{name}`](" not in page] == []
    of_all = inspect.getdoc(Definition) or ""  # what tools, agents and workflows take
    missing: list[str] = []
    for name in sorted(shown & {*sayso.__all__}):
        thing = getattr(sayso, name)
        text = (inspect.getdoc(thing) or "") + of_all * (name in {"Tool", "Agent", "Workflow", "tool"})
        text += (inspect.getdoc(sayso.StartEvent) or "") * name.endswith("Event")
        missing += [f"{name}: {one}" for one in sorted(_parameters(thing)) if not re.search(rf"\b{one}\b", text)]
    assert missing == []
    assert [verb for verb, function in _verbs(sayso.Review).items() if not inspect.getdoc(function)] == []


def _parameters(thing: Any) -> set[str]:
    if thing in (sayso.gate, sayso.ask):
        return {name for one in get_overloads(thing) for name in inspect.signature(one).parameters} - {
            "function", "options",
        }  # fmt: skip
    if thing is sayso.hold:
        return {"tool", "arguments", *HoldOptions.__annotations__}
    if not callable(thing) or thing in (sayso.SaysoError, sayso.Prediction, sayso.Held) or _is_a_no(thing):
        return set()
    return set(inspect.signature(thing).parameters) - {"func", "args", "kwargs"}


def _is_a_no(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, sayso.ConfirmationRejected)


def _verbs(door: type) -> dict[str, Any]:
    return {name: verb for name, verb in vars(door).items() if not name.startswith("_") and callable(verb)}
