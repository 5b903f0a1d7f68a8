"""Type checkers see the public names: a misspelt one is an error, and a right use is none.

`tests/typing/wrong.py` marks each line in which both checkers must find an error, `tests/typing/right.py` has none.
Each checker runs once over both.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sayso
from sayso.runs.definition import CommonOptions, RunnableOptions, ToolOptions, options_of

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "tests/typing/right.py", ROOT / "tests/typing/wrong.py"]
SOURCE = Path(sayso.__file__).parent.parent
Lines = dict[tuple[str, int], str]


def marked() -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("  # wrong")
    }


def found_by_pyright(folder: Path) -> Lines:
    pytest.importorskip("pyright", reason="pyright is not installed: `make test` brings it")
    config = folder / "pyrightconfig.json"
    # A use whose value nobody needs, and what follows from a name that is not there, say nothing about the package.
    files = [os.path.relpath(path, folder) for path in FILES]
    config.write_text(
        json.dumps({
            "include": files, "strict": files[:1], "extraPaths": [str(SOURCE)],
            "reportUnusedExpression": False, "reportUnknownVariableType": False, "reportUnknownMemberType": False,
            "reportUnknownArgumentType": False, "reportUnusedCallResult": False, "reportUnusedCoroutine": False,
            "reportUnusedVariable": False, "pythonVersion": "3.11",
        })
    )  # fmt: skip
    command = [
        sys.executable, "-m", "pyright", "--project", str(config), "--outputjson", "--pythonpath", sys.executable,
    ]  # fmt: skip
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"] for one in found}


def found_by_mypy(folder: Path) -> Lines:
    pytest.importorskip("mypy", reason="mypy is not installed: `make test` brings it")
    command = [
        sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--no-pretty",
        "--hide-error-context", "--show-absolute-path", f"--cache-dir={folder}", "--config-file=", *map(str, FILES),
    ]  # fmt: skip
    environment = os.environ | {"MYPYPATH": str(SOURCE)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    found: Lines = {}
    for row in done.stdout.splitlines():
        where, error, message = row.partition(": error: ")
        if error:
            path, _, line = where.rpartition(":")
            found[Path(path).name, int(line)] = message
    return found


@pytest.mark.slow
@pytest.mark.parametrize("check", [found_by_pyright, found_by_mypy], ids=["pyright", "mypy"])
def test_each_wrong_use_is_an_error_and_no_right_one(check: Callable[[Path], Lines], tmp_path: Path) -> None:
    wanted, found = marked(), check(tmp_path)
    assert len(wanted) > 60
    text = {path.name: path.read_text(encoding="utf-8").splitlines() for path in FILES}
    missed = [f"{name}:{line}: {text[name][line - 1].strip()}" for name, line in sorted(wanted - found.keys())]
    more = [f"{name}:{line}: {found[name, line]}" for name, line in sorted(found.keys() - wanted)]
    assert (missed, more) == ([], [])


def test_type_checkers_know_every_option_of_a_tool_an_agent_and_a_workflow() -> None:
    named = {"name", "model", "tools", "system_prompt", "max_iters", "description", "default_params"}
    of_a_call = {"ambiguous", "key", "effect", "title", "summary", "suspends", "on_reject"}
    for kind in (sayso.Tool, sayso.Agent, sayso.Workflow):
        assert CommonOptions.__annotations__.keys() == options_of(kind) - named - of_a_call, kind
    assert ToolOptions.__annotations__.keys() - CommonOptions.__annotations__.keys() == of_a_call
    more = RunnableOptions.__annotations__.keys() - CommonOptions.__annotations__.keys()
    assert more == {"description", "default_params"}


def visible_getattrs(tree: ast.AST) -> Iterator[str]:
    """Yield where a type checker sees a `__getattr__`, by the class that has it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "not TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            yield getattr(tree, "name", "module")
        yield from visible_getattrs(node)


def test_no_getattr_hides_a_misspelt_name_from_type_checkers() -> None:
    found = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted((SOURCE / "sayso").rglob("*.py"))
        for name in visible_getattrs(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == {
        "sayso/stores/base.py: _View",  # which stands for any store
        "sayso/runs/module.py: Prediction",  # whose fields are named by the program's own signature
        "sayso/integrations/langgraph.py: _Once",  # which stands for a tool of LangChain's
    }


def test_a_name_that_there_is_not_is_told_with_the_one_that_was_meant() -> None:
    for name, meant in (("ConfirmationRejceted", "ConfirmationRejected"), ("confrim_first", "confirm_first")):
        program = f"import sayso\nsayso.{name}\n"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert f"module 'sayso' has no attribute {name!r}. Did you mean: {meant!r}?" in done.stderr
