"""The shape of the package: which layer may import which, what `import sayso` loads, and what no file contains.

Each guard is shown to bite: a copy of the package with the fault put in must be refused.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "sayso"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Files over 600 lines, with the reason. None may pass 650.
LONG_FILES: dict[str, str] = {}
LONGEST_FILE, LONGEST_EXCUSED, LONGEST_FUNCTION = 600, 650, 60

HEAVY = {
    "_ssl", "annotated_types", "asyncio", "click", "concurrent", "cryptography", "email", "http", "jsonschema_rs",
    "logging", "multiprocessing", "pydantic", "pydantic_core", "sqlite3", "ssl", "tomllib", "unittest", "urllib",
    "zoneinfo",
}  # fmt: skip

# Modules whose reading of data can run code; and calls that run what they are given.
UNSAFE_MODULES = {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
UNSAFE_CALLS = {"__import__", "compile", "eval", "exec", "execfile"}
# The top level and the commands load their own modules late, by names that stand in the file; a worker loads what the
# person who starts it names.
LOADS_BY_NAME = {
    "__init__.py",
    "channels/registry.py",
    "testing/__init__.py",
    "cli/__init__.py",
    "cli/agents.py",
    "integrations/fastmcp.py",
    "integrations/mcp_gateway/streamable_http.py",
    "integrations/tool_calls.py",
    "cli/worker.py",
}


def linted(source: Path) -> subprocess.CompletedProcess[str]:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ["--no-cache", "--no-logo", "--config", str(ROOT / "pyproject.toml")]
    environment = os.environ | {"PYTHONPATH": str(source), "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", command, *options],
        env=environment,
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_go_downward_only() -> None:
    result = linted(PACKAGE.parent)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("model/ids.py", "import sayso.stores.base", "imports go downward only"),
        ("model/ids.py", "import sqlite3", "the model is pure"),
        ("model/ids.py", "import asyncio", "the model is pure"),
        ("model/ids.py", "def late() -> None:\n    import logging", "the model is pure"),
        ("errors.py", "from sayso import model", "imports go downward only"),
        ("gates/gated_call.py", "import sayso.reviews", "the two doors meet in the store"),
        ("reviews/review.py", "from sayso.gates import __doc__", "the two doors meet in the store"),
        ("stores/memory.py", "import sayso.stores.sqlite", "one store does not know another"),
        ("attic.py", "", "imports go downward only"),
    ],
)
def test_an_import_that_breaks_a_contract_is_found(tmp_path: Path, file: str, line: str, broken: str) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "src" / "sayso", ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / file).open("a", encoding="utf-8") as source:
        source.write(f"\n\n{line}\n")
    result = linted(copy.parent)
    assert result.returncode == 1, result.stdout + result.stderr
    assert any(broken in row and "BROKEN" in row for row in result.stdout.splitlines()), result.stdout


@cache
def nodes_of(source: str) -> list[ast.AST]:
    """Return all parts of a module's text, which several tests look through."""
    return list(ast.walk(ast.parse(source)))


def modules_named_by(source: str) -> Iterator[str]:
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_commands_import_the_integrations() -> None:
    callers = {"integrations", "cli", "__main__.py"}
    outside = [path for path in SOURCES if path.relative_to(PACKAGE).parts[0] not in callers]
    assert outside
    for path in outside:
        names = set(modules_named_by(path.read_text(encoding="utf-8")))
        assert not any(name.startswith("sayso.integrations") for name in names), path


def loaded_by(program: str) -> set[str]:
    program += "\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_import_sayso_loads_nothing_heavy() -> None:
    loaded = loaded_by("import sayso") - loaded_by("import json")
    assert "sayso" in loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


def test_commands_that_decide_load_neither_pydantic_nor_the_protocol() -> None:
    loaded = loaded_by("import sayso.cli.decisions, sayso.cli.requests")
    assert "sayso.reviews" in loaded
    assert not loaded & {"pydantic", "sayso.mplp", "sayso.learning", "sayso.runs"}


def test_the_check_for_heavy_imports_sees_them() -> None:
    loaded = loaded_by("import sayso, pydantic, click, asyncio") - loaded_by("import json")
    assert {"pydantic", "click", "asyncio"} <= {name.partition(".")[0] for name in loaded} & HEAVY


def unsafe_in(source: str, *, loads_by_name: bool = False) -> list[str]:
    """Return what in a module's text could run code that a store, a message or a file brings along."""
    found = [name for name in modules_named_by(source) if name.partition(".")[0] in UNSAFE_MODULES]
    for node in nodes_of(source):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in UNSAFE_CALLS or called in {"os.system", "os.popen"}:
            found.append(called)
        if called.endswith("import_module") and not loads_by_name and not isinstance(node.args[0], ast.Constant):
            found.append(called)
        if any(word.arg == "shell" for word in node.keywords):
            found.append(f"{called}(shell=…)")
    return found


def test_nothing_that_is_read_can_run_code() -> None:
    unsafe: list[str] = []
    for path in SOURCES:
        name = str(path.relative_to(PACKAGE))
        found = unsafe_in(path.read_text(encoding="utf-8"), loads_by_name=name in LOADS_BY_NAME)
        unsafe += [f"{name}: {what}" for what in found]
    assert not unsafe, "\n".join(unsafe)


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml; yaml.load(x)",
        "def f():\n    from marshal import loads",
        "import shelve",
        "eval(text)",
        "exec(text)",
        "__import__(name)",
        "compile(text, 'x', 'exec')",
        "importlib.import_module(name)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_code_that_could_be_run_by_data_is_found(line: str) -> None:
    assert unsafe_in(line)


def test_ordinary_code_is_not_called_unsafe() -> None:
    assert unsafe_in("import json\nre.compile('x')\nimportlib.import_module('sayso.cli')\njson.loads(text)") == []


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    documented = 0 if docstring is None else (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return (function.end_lineno or function.lineno) - function.lineno + 1 - documented


def test_no_file_and_no_function_is_too_long_to_read() -> None:
    too_long: list[str] = []
    for path in SOURCES:
        name, source = str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8")
        allowed = LONGEST_EXCUSED if name in LONG_FILES else LONGEST_FILE
        if source.count("\n") > allowed:
            too_long.append(f"{name}: {source.count(chr(10))} lines, at most {allowed}")
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        functions = [node for node in nodes_of(source) if isinstance(node, kinds)]
        too_long += [
            f"{name}, {function.name}: {lines_of(function)} lines, at most {LONGEST_FUNCTION}"
            for function in functions
            if lines_of(function) > LONGEST_FUNCTION
        ]
    assert not too_long, "\n".join(too_long)


def test_every_excuse_for_a_long_file_is_still_needed() -> None:
    needed = [
        str(path.relative_to(PACKAGE))
        for path in SOURCES
        if path.read_text(encoding="utf-8").count("\n") > LONGEST_FILE
    ]
    assert sorted(needed) == sorted(LONG_FILES)
