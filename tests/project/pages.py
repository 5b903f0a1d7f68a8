"""Markdown pages as programs: finds their fenced blocks and does what they say, in a home of the page's own.

A `python` block is a program; what it prints stands behind its `print` lines, as `print(x)  # what it says`. One whose
first line is a comment with a file name is written down, for the console blocks that follow. A `console` block is what
a person types behind `$ ` and sees. Ids, spans of time, hosts and digests are compared by their place, not by their
value, and `...` stands for anything. An HTML comment above a block may say how it is run; see `NOTES`. A page with the
comment `examples need: MODULE` is executed where that module is installed (`make test-frameworks`), and one with
`examples not executed: REASON` is not.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import warm

NOTES = {
    "not executed": "the reason follows behind a colon",
    "first": "a python block with a file name that is written down before the other blocks are executed",
    "continues": "a python block that goes on where the one before it ended",
    "waits": "a console block whose program waits for a person; the next one is typed in a second terminal",
    "goes on": "what the waiting program says then, until it ends",
    "at a terminal": "a console block whose program asks; what stands behind its prompts is typed",
    "needs": "a program follows behind a colon; without it on this machine, the block is not executed",
}
CHECKED = {"python", "console", "toml", "json"}
PLAIN = {"text", "sql"}
PATIENCE = 60.0

_NOTE = re.compile(r"<!-- example: (?P<kind>[a-z ]+?)(?:: (?P<more>.+?))? -->")
_ALL = re.compile(r"<!-- examples not executed: (?P<more>.+?) -->")
_NEED = re.compile(r"<!-- examples need: (?P<module>[\w.]+) -->")
_FILE = re.compile(r"# (?P<name>[\w./-]+\.(?:py|toml))\n")
_SAID = re.compile(r"^ *print\(.*\)  # (?P<said>.+)$", re.MULTILINE)
_PROMPT = re.compile(r"^(?P<asked>>|.*\]:|.*\[y/[nN]\]|why\? \(.*\)|.* do instead\?)(?: (?P<typed>.*))?$", re.MULTILINE)
_ON_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
# A command that a person answers, or whose end a page shows later, gets an interpreter of its own.
_PROGRAM = f"""#!/bin/sh
set -- {{words}}"$@"
case "$COLD$1" in
  cold*) ;;
  *.py | -m) [ "$1" = -m ] && [ "$2" != sayso ] || exec "{sys.executable}" -I -S "{warm.CLIENT}" "$WARM" "$@" ;;
esac
exec "{sys.executable}" "$@"
"""
_ID = re.compile(r"\brq_[a-z0-9]{4,32}\b")
_PLACES = (
    (re.compile(r"\brun_[0-9a-f]{8,32}\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "DIGEST"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00| UTC)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b"), "TIME"),
    (re.compile(r"\bjust now\b"), "SPAN ago"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|m|min|h|d|days?)\b(?: \d+ ?(?:m|h|s)\b)?"), "SPAN"),
    (re.compile(r"\b[\w.-]+@[\w-]+\b(?!\.)"), "WHO"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    note: str | None
    more: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_executed(self) -> bool:
        return self.language in CHECKED and self.note != "not executed"

    @property
    def file(self) -> str | None:
        found = _FILE.match(self.text) if self.language in {"python", "toml"} else None
        return None if found is None else found["name"]

    @property
    def typed(self) -> list[tuple[str, str]]:
        """What is typed, and what is seen then."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        assert not parts[0].strip() or self.note == "goes on", f"{self} begins with output"
        return [(command, seen) for command, _, seen in (part.partition("\n") for part in parts[1:])]


def blocks(page: Path, root: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    note, opened = None, None
    text = page.read_text(encoding="utf-8")
    every = None if (all_of := _ALL.search(text)) is None else all_of["more"]
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if opened is not None:
            if line.startswith("```"):
                start, language, lines = opened
                kind, more = (None, None) if note is None else (note["kind"], note["more"])
                if every is not None:
                    kind, more = "not executed", every
                found.append(Block(str(page.relative_to(root)), start, language, "".join(lines), kind, more))
                note, opened = None, None
            else:
                opened[2].append(line)
        elif line.startswith("```"):
            opened = (number, line[3:].strip(), list[str]())
        elif line.strip():
            note = _NOTE.fullmatch(line.strip())
    assert opened is None, f"{page} ends inside a block"
    return found


def module_needed(page: Path) -> str | None:
    """Return the module without which the blocks of a page cannot be executed."""
    found = _NEED.search(page.read_text(encoding="utf-8"))
    return None if found is None else found["module"]


class Names:
    """Ids in the order in which they appear: those that the page shows, and those that there really are."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._real: dict[str, str] = {}
        self._longest: dict[str, str] = {}

    @staticmethod
    def _label(known: dict[str, str], name: str) -> str:
        same = (label for one, label in known.items() if one.startswith(name) or name.startswith(one))
        return next(same, None) or known.setdefault(name, f"rq_<{len(known) + 1}>")

    def shown(self, text: str) -> str:
        """Return text of the page, with each id replaced by its place."""
        return _placed(_ID.sub(lambda m: self._label(self._shown, m[0]), text))

    def real(self, text: str) -> str:
        """Return what a program said, with each id replaced by its place."""
        for name in _ID.findall(text):
            label = self._label(self._real, name)
            self._longest[label] = max(self._longest.get(label, ""), name, key=len)
        return _placed(_ID.sub(lambda m: self._label(self._real, m[0]), text))

    def typed(self, command: str) -> str:
        """Return a command of the page, with the real ids in it."""
        return _ID.sub(self._typed_id, command)

    def _typed_id(self, found: re.Match[str]) -> str:
        label = self._label(dict(self._shown), found[0])
        assert label in self._longest, f"{found[0]} is typed and was not shown before"
        return self._longest[label]


def _placed(text: str) -> str:
    for pattern, place in _PLACES:
        text = pattern.sub(place, text)
    return "\n".join(line.strip() for line in text.splitlines()).strip()


def is_as_shown(shown: str, real: str) -> bool:
    """Say whether a program said what the page shows, `...` standing for anything."""
    parts = (re.escape(part.strip("\n")) for part in shown.split("..."))
    return re.fullmatch(r"\s*.*?\s*".join(parts), real, re.DOTALL) is not None


def _listen(terminal: int, said: str, is_enough: Callable[[str], bool], begin: int) -> str:
    """Return what was said so far and what is said until it is enough, or until the program ends."""
    until = time.monotonic() + PATIENCE
    while not is_enough(said[begin:]) and time.monotonic() < until:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            heard = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            heard = b""
        if not heard:
            break
        said += heard.decode(errors="replace").replace("\r\n", "\n")
    return said


@dataclass
class Place:
    """Where the blocks of one page are run: a home, a working folder, a shell's environment."""

    home: Path
    ran: int = 0
    names: Names = field(default_factory=Names)
    before: str = ""
    waiting: tuple[Block, subprocess.Popen[bytes], Path] | None = None
    code: int = 0

    def __post_init__(self) -> None:
        self.folder = self.home / "work"
        programs = self.home / "bin"
        for folder in (self.folder, programs):
            folder.mkdir(parents=True)
        for name in ("python", "python3", "sayso"):
            program = programs / name
            program.write_text(_PROGRAM.format(words="-m sayso " if name == "sayso" else ""))
            program.chmod(0o755)
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "LANG", "LC_ALL") if name in os.environ}
        path = f"{programs}:{os.environ['PATH']}"
        self.environment = kept | {"HOME": str(self.home), "PATH": path, "COLUMNS": "120", "WARM": warm.address()}
        self._exported = self.home / "exported"
        self._exported.touch()

    def run(self, block: Block) -> None:
        """Do what a block says, and compare."""
        assert block.note is None or block.note in NOTES, f"{block}: {block.note!r} is not among {sorted(NOTES)}"
        match block.language:
            case "toml" | "json" if block.file is None:
                tomllib.loads(block.text) if block.language == "toml" else json.loads(block.text)
            case "console":
                self._console(block)
            case _ if block.file is not None:
                (self.folder / block.file).write_text(block.text, encoding="utf-8")
            case _:
                self._python(block)
        self.ran += 1

    def finish(self) -> None:
        """Leave nothing running."""
        if self.waiting is not None:
            os.killpg(self.waiting[1].pid, signal.SIGKILL)
            self.waiting[1].wait()

    def _python(self, block: Block) -> None:
        self.before = self.before + "\n" + block.text if block.note == "continues" else block.text
        fresh = self.home / f"python-{block.line}"
        fresh.mkdir()
        program = fresh / "example.py"
        program.write_text(self.before, encoding="utf-8")
        environment = {**self.environment, "HOME": str(fresh)}
        code, out, err = warm.run(["-W", "error", str(program)], environment, folder=fresh)
        assert code == 0, f"{block} ended with {code}\n{out.decode()}{err.decode()}"
        said = "\n".join(found["said"] for found in _SAID.finditer(self.before))
        self._compare(f"{block}", Names().shown(said), Names().real(out.decode()), (out + err).decode())

    def _console(self, block: Block) -> None:
        if block.note == "goes on":
            self._go_on(block)
            return
        for command, seen in block.typed:
            if block.note == "waits":
                self._begin_to_wait(block, command)
                self.names.shown(seen)
                continue
            said = self._converse(block, command, seen) if block.note == "at a terminal" else self._shell(command)
            self._compare(f"{block}: {command}", self.names.shown(seen), self.names.real(said), said)
            is_told = "error" in seen or f"{command}\n{seen}$ echo $?\n" in block.text
            assert self.code == 0 or is_told, f"{block}: {command} ended with {self.code}, and the page does not say so"

    def _shell(self, command: str) -> str:
        with subprocess.Popen(
            self._words(command, is_cold=False), text=True, cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        ) as program:  # fmt: skip
            try:
                said, _ = program.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                raise AssertionError(f"{command} did not end\n{program.communicate()[0]}") from None
        self.code = program.returncode
        return said

    def _words(self, command: str, *, is_cold: bool = True) -> list[str]:
        # One shell for each command; what it exports, and the code it ended with, are there for the next one.
        kept = f"'{self._exported}'"  # whole, for a shell that reads it while the one of a waiting program ends
        end = f"\ncode=$?; export -p > {kept}.$$; mv {kept}.$$ {kept}; exit $code"
        begin = f". '{self._exported}'; export COLD={'cold' * is_cold}; (exit {self.code})"
        return ["bash", "-c", f"{begin}\n{self.names.typed(command)}{end}"]

    def _converse(self, block: Block, command: str, seen: str) -> str:
        ours, theirs = os.openpty()
        program = subprocess.Popen(
            [sys.executable, "-c", _ON_A_TERMINAL, *self._words(command)], cwd=self.folder, env=self.environment,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        said, begin = "", 0
        try:
            for prompt in _PROMPT.finditer(seen):
                said = _listen(ours, said, lambda text, asked=prompt["asked"]: text.endswith(f"{asked} "), begin)
                assert said.endswith(f"{prompt['asked']} "), f"{block}: {prompt['asked']!r} was not asked\n{said}"
                begin = len(said)
                os.write(ours, (prompt["typed"] or "").encode() + b"\n")
            said = _listen(ours, said, lambda _: False, begin)
            self.code = program.wait(PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            os.close(ours)
        return said

    def _begin_to_wait(self, block: Block, command: str) -> None:
        assert self.waiting is None, f"{block}: another program waits already"
        said = self.home / f"said-{block.line}"
        with said.open("wb") as out:
            program = subprocess.Popen(
                self._words(command), cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.waiting = (block, program, said)
        until = time.monotonic() + PATIENCE
        while not _ID.search(said.read_text()):
            assert program.poll() is None, f"{block} ended instead of waiting\n{said.read_text()}"
            assert time.monotonic() < until, f"{block} says nothing of a request\n{said.read_text()}"
            time.sleep(0.02)
        self.names.real(said.read_text())

    def _go_on(self, block: Block) -> None:
        assert self.waiting is not None, f"{block}: nothing waits"
        began, program, said = self.waiting
        try:
            self.code = program.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{began} still waits\n{said.read_text()}") from None
        self.waiting = None
        text = said.read_text()
        shown = "".join(seen for _, seen in began.typed) + block.text
        self._compare(f"{began} and {block}", self.names.shown(shown), self.names.real(text), text)
        assert self.code == 0 or "Traceback" in text, f"{began} ended with {self.code}"

    @staticmethod
    def _compare(where: str, shown: str, real: str, raw: str) -> None:
        assert is_as_shown(shown, real), f"{where}\n--- the page\n{shown}\n--- real\n{real}\n--- as it was\n{raw}"
