"""The list of mutants keeps up with the code: every guard's text stands once, and every named test is there.

That each mutant turns its test red is what `make mutants` shows, which takes minutes; this takes a moment.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

from tests.mutants.guards import MUTANTS, Mutant

AUDITED = {
    "audit/anchor.py", "audit/checkpoint.py", "audit/paper.py", "audit/receipt.py", "audit/statement.py",
    "audit/walk.py", "drive.py", "gates/check.py", "gates/execute.py", "gates/words.py", "model/canonical/form.py",
    "model/edit.py", "model/entry.py", "model/show/escape.py", "model/lifecycle.py", "model/quorum.py",
    "model/purge.py", "model/redaction.py",
    "model/reviewer.py", "policy.py", "reviews.py", "runs/decide.py", "runs/frame.py", "runs/inner.py",
    "runs/interaction.py", "runs/journal.py", "runs/leg.py", "runs/proof.py", "runs/resolution.py", "runs/step.py",
    "stores/base.py", "stores/lease.py", "stores/memory.py", "stores/run_verbs.py", "stores/seal.py",
    "stores/sqlite.py", "stores/sqlite_transaction.py", "stores/worker.py", "waiting/scope.py", "waiting/signals.py",
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guard)
def test_guard_stands_once_and_its_test_exists(mutant: Mutant, root: Path) -> None:
    text = (root / "src" / "sayso" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    path, *names = mutant.test.split("::")
    module = import_module(f"tests.{path.removesuffix('.py').replace('/', '.')}")
    assert callable(reduce(getattr, names, module))


def test_no_mutant_stands_twice() -> None:
    assert Counter((m.file, m.old, m.new, m.test) for m in MUTANTS).most_common(1)[0][1] == 1
    assert Counter(m.guard for m in MUTANTS).most_common(1)[0][1] == 1


def test_every_part_that_decides_whether_a_call_runs_has_its_mutants() -> None:
    assert {mutant.file for mutant in MUTANTS} >= AUDITED
