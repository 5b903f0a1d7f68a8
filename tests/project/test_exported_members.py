"""The names that other people's programs call: they are there, in order, and each module says what is its own."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sayso
from sayso import errors

# What the seeds' programs and the README import. Taking one away breaks a program that runs today.
PROMISED = {
    "ConfirmationRejected",
    "ConfirmationRequired",
    "ResumeState",
    "Review",
    "Reviewer",
    "ToolCall",
    "ask",
    "clear_all_confirmations",
    "clear_confirmation",
    "configure",
    "confirm_first",
    "current_request",
    "gate",
    "get_confirmation_context",
    "get_confirmation_status",
    "respond_to_confirmation",
    "run",
}


def in_order(names: list[str]) -> list[str]:
    """Sort as the linter does: CONSTANTS, then Classes, then functions; numbers within a name count as numbers."""

    def place(name: str) -> tuple[int, list[tuple[int, str]]]:
        rank = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
        parts = re.findall(r"\d+|\D+", name)
        return rank, [(int(part), "") if part.isdigit() else (-1, part) for part in parts]

    return sorted(names, key=place)


def public_modules() -> list[str]:
    found = pkgutil.walk_packages(sayso.__path__, "sayso.")
    return [module.name for module in found if not any(part.startswith("_") for part in module.name.split("."))]


def top_level_names(module: ModuleType) -> set[str]:
    """Return the public functions and classes that a module defines, read from its source.

    An endpoint of a router is reached by its path and a command of a group by its word, not by their names.
    """
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {
        node.name
        for node in tree.body
        if isinstance(node, kinds) and not node.name.startswith("_") and not any(map(is_route, node.decorator_list))
    }


def is_route(decorator: ast.expr) -> bool:
    return (
        isinstance(decorator, ast.Call)
        and re.match(r"(router\.\w+|_document\.\w+|_operation|\w+\.command)\(", ast.unparse(decorator)) is not None
    )


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_all_is_sorted_and_has_no_name_twice() -> None:
    assert in_order(sayso.__all__) == list(sayso.__all__)
    assert len(set(sayso.__all__)) == len(sayso.__all__)


def test_every_promised_name_stands_at_the_top_level() -> None:
    assert set(sayso.__all__) >= PROMISED


def test_exported_names_are_importable() -> None:
    names = sorted({*sayso.__all__, *PROMISED})
    assert [name for name in names if getattr(sayso, name, None) is None] == []
    assert [name for name in names if name not in dir(sayso)] == []


def test_star_import_brings_exactly_the_exported_names() -> None:
    names = set(printed("from sayso import *; print(*dir())").split())
    assert {name for name in names if not name.startswith("__")} == set(sayso.__all__)


def test_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        sayso.no_such_name  # noqa: B018  # the access is the test


def test_exported_modules_are_reachable_from_a_bare_import() -> None:
    for name in ("aio.Review", "errors.PolicyError", "policy.Policy"):
        assert printed(f"import sayso; print(sayso.{name}.__name__)") == name.partition(".")[2]


def test_there_are_public_modules_to_check() -> None:
    assert {"sayso.errors", "sayso.clock", "sayso.gates", "sayso.reviews"} <= set(public_modules())


def test_public_modules_say_in_order_what_is_their_own() -> None:
    modules = [module for name in public_modules() if (module := imported(name)) is not None]
    wrong = [f"{module.__name__} {what}" for module in modules for what in faults_of(module)]
    assert not wrong, "\n".join(wrong)
    assert len(modules) > 100


def imported(name: str) -> ModuleType | None:
    """Import a module; None for an adapter whose framework is not installed here, which says so."""
    try:
        return importlib.import_module(name)
    except errors.ConfigError as error:
        if not name.startswith("sayso.integrations.") or "is not installed: pip install" not in str(error):
            raise
        return None


def faults_of(module: ModuleType) -> list[str]:
    own = top_level_names(module)
    faults = [] if (module.__doc__ or "").strip() else ["has no docstring"]
    if not hasattr(module, "__all__"):
        return faults  # what begins with no underscore is public
    exported = list(module.__all__)
    if in_order(exported) != exported:
        faults.append("exports in another order than the linter's")
    faults += [f"exports {name}, which it has not" for name in exported if not hasattr(module, name)]
    faults += [f"defines {name} and does not export it" for name in sorted(own - set(exported))]
    return faults
