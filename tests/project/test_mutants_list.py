"""The list of mutants keeps up with the code: every guard's text stands once, and every named test is there.

That each mutant turns its test red is what `make mutants` shows, which takes minutes; this takes a moment.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from pathlib import Path

from tests.mutants.guards import MUTANTS, Mutant

# Where a call is held, decided, started and recorded. Pages, documents and commands have tests, and no mutants.
CORE = {
    "audit/__init__.py",
    "gates/gated_call.py",
    "gates/find_or_ask.py",
    "gates/execution.py",
    "gates/ambiguous.py",
    "gates/scope.py",
    "model/canonical/__init__.py",
    "model/edit.py",
    "model/ids.py",
    "model/lifecycle.py",
    "model/redaction.py",
    "model/reviewer.py",
    "reviews/review.py",
    "stores/program.py",
    "stores/transaction.py",
    "stores/jsonl_file.py",
    "stores/memory.py",
    "stores/sqlite.py",
    "stores/sqlite_transaction.py",
    "stores/workers.py",
    "gates/wait.py",
}


def test_every_guard_stands_once_and_its_test_exists(root: Path) -> None:
    files = {mutant.file: (root / "src" / "sayso" / mutant.file).read_text(encoding="utf-8") for mutant in MUTANTS}
    wrong = [f"{mutant.guard} ({mutant.file}): {what}" for mutant in MUTANTS for what in faults_of(mutant, files)]
    assert not wrong, "\n".join(wrong)


def faults_of(mutant: Mutant, files: dict[str, str]) -> Iterator[str]:
    text = files[mutant.file]
    if text.count(mutant.old) != 1:
        yield f"its text stands {text.count(mutant.old)} times in its file"
    try:
        ast.parse(text.replace(mutant.old, mutant.new))
    except SyntaxError as error:
        yield f"without it the file is no Python: {error}"
    path, *names = mutant.test.split("::")
    try:
        reduce(getattr, names, import_module(f"tests.{path.removesuffix('.py').replace('/', '.')}"))
    except (ImportError, AttributeError):
        yield f"its test {mutant.test} is not there"


def test_no_mutant_stands_twice() -> None:
    assert Counter((m.file, m.old, m.new, m.test) for m in MUTANTS).most_common(1)[0][1] == 1
    assert Counter(m.guard for m in MUTANTS).most_common(1)[0][1] == 1


def test_every_part_of_the_core_has_its_mutants_and_nothing_outside_of_it_has() -> None:
    files = {mutant.file for mutant in MUTANTS}
    assert CORE - files == set()
    outside = {"channels", "cli", "integrations", "learning", "mplp", "server", "testing", "view"}
    assert {file for file in files if file.partition("/")[0] in outside} == set()
