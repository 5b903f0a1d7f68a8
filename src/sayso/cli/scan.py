"""`scan`: finds call sites in Python files that look irreversible and are not behind a gate, without running them.

It resolves names through imports and simple assignments in the same file (`client = stripe.StripeClient(…)`). A call is
behind a gate if its function is gated, or is called only by such functions in the same file. It does not see calls
between files, names created at run time, or the types of parameters.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from sayso import __version__
from sayso.cli.context import echo, echo_err, plural
from sayso.model.text import escape

SEVERITIES = ("low", "medium", "high")
_GATES = ("sayso.gate", "sayso.confirm_first", "sayso.confirmation.*", "sayso.tool", "sayso.Tool", "sayso.runs.*")
_ADAPTERS = "sayso.integrations.*"
_ORDER = "gate-order"
_IGNORE = re.compile(r"#\s*sayso:\s*ignore\[([^\]]*\S[^\]]*)\]")
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "build", "dist"})


@dataclass(frozen=True)
class Pattern:
    """A pattern of calls to look for, from `scan.toml`."""

    id: str
    severity: str
    message: str
    calls: tuple[str, ...] = ()
    methods: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    argument: re.Pattern[str] | None = None

    def matches(self, name: str, method: str | None, texts: Sequence[str]) -> bool:
        """Return whether a call matches, by its qualified name or by the method of an unknown object."""
        is_named = any(fnmatchcase(name, call) for call in self.calls)
        if self.names and name.rpartition(".")[2] not in self.names:
            return False
        if not is_named and method not in self.methods:
            return False
        return self.argument is None or any(self.argument.search(text) for text in texts)


@dataclass(frozen=True)
class Finding:
    """One call site; `ignored` is the reason from its `sayso: ignore` comment, if there is one."""

    path: str
    line: int
    column: int
    call: str
    function: str
    pattern: Pattern
    ignored: str | None = None


def _full_message(pattern: Pattern) -> str:
    return pattern.message if pattern.id == _ORDER else f"{pattern.message} and has no gate"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("scan.toml").read_text("utf-8"))


@cache
def patterns() -> tuple[Pattern, ...]:
    """Return the patterns of `scan.toml`, in order."""
    tables: list[dict[str, Any]] = _data()["pattern"]
    return tuple(
        Pattern(
            one["id"], one["severity"], one["message"], tuple(one.get("calls", ())), frozenset(one.get("methods", ())),
            frozenset(one.get("names", ())), re.compile(one["argument"]) if "argument" in one else None,
        )
        for one in tables
    )  # fmt: skip


def files(path: Path) -> Iterator[Path]:
    """Yield the Python files below a path, in order; skip hidden folders, environments and build output."""
    if path.is_file():
        yield path
        return
    for one in sorted(path.iterdir()):
        if one.is_dir():
            if not one.name.startswith(".") and one.name not in _SKIPPED and not (one / "pyvenv.cfg").exists():
                yield from files(one)
        elif one.suffix == ".py":
            yield one


class _Reader(ast.NodeVisitor):
    """One pass over a file: names, functions, their callers, and the calls that match a pattern."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.functions: dict[str, bool] = {}  # by name: whether all functions of this name are gated
        self.passed: set[str] = set()  # functions that are passed to a gate or to `once`
        self.held: list[str] = []  # names of tools that an adapter holds, with * for any part
        self.tools: set[str] = set()  # functions that an agent uses as tools
        self.called: list[tuple[str, str]] = []  # like `uses`, but only direct calls
        self.uses: list[tuple[str, str]] = []
        self.calls: list[tuple[ast.Call, str, bool]] = []
        self.misplaced: list[tuple[ast.expr, str, str]] = []  # decorators below a gate that get the ungated function
        self._enclosing, self._in_gate = [""], False

    # -- names

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            top = one.name.partition(".")[0]
            self.names[one.asname or top] = one.name if one.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for one in node.names:
            self.names[one.asname or one.name] = f"{node.module or ''}.{one.name}" if not node.level else f".{one.name}"

    def visit_Assign(self, node: ast.Assign) -> None:
        self._bind(node.targets, node.value)
        self.generic_visit(node)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self._bind([item.optional_vars], item.context_expr)
        self.generic_visit(node)

    visit_AsyncWith = visit_With  # noqa: N815  the name that ast requires

    def _bind(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        value = value.value if isinstance(value, ast.Await) else value
        made = self.name_of(value.func) if isinstance(value, ast.Call) else None
        for target in targets:
            name = _dotted(target)
            if name is not None and made is not None and made.partition(".")[0] != name:
                self.names[name] = made

    def name_of(self, node: ast.expr) -> str | None:
        """Return the qualified name of a called expression; None if it has no name."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):  # `boto3.client("s3").delete_object`
            inner = self.name_of(node.value.func)
            return None if inner is None else f"{inner}.{node.attr}"
        name = _dotted(node)
        if name is None:
            return None
        head, parts = name, list[str]()
        while head not in self.names and "." in head:
            head, _, last = head.rpartition(".")
            parts.insert(0, last)
        return ".".join([self.names.get(head, head), *parts])

    # -- functions and calls

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        gates = [place for place, one in enumerate(node.decorator_list) if self._is_gate(one)]
        below = node.decorator_list[gates[-1] + 1 :] if gates else []
        misplaced = [(one, name, node.name) for one in below if (name := self._registering_name(one)) is not None]
        self.misplaced += misplaced
        is_gated = bool(gates) and not misplaced
        self.functions[node.name] = is_gated and self.functions.get(node.name, True)
        if any("tool" in (self._registering_name(one) or "").rpartition(".")[2] for one in node.decorator_list):
            self.tools.add(node.name)
        for one in node.decorator_list:
            self.visit(one)
        self._enclosing.append(node.name)
        for one in node.body:
            self.visit(one)
        self._enclosing.pop()

    visit_FunctionDef = _function  # noqa: N815  the same
    visit_AsyncFunctionDef = _function  # noqa: N815  the same

    def _is_gate(self, node: ast.expr) -> bool:
        name = self.name_of(node.func if isinstance(node, ast.Call) else node)
        return name is not None and (any(fnmatchcase(name, one) for one in _GATES) or fnmatchcase(name, _ADAPTERS))

    def _registering_name(self, node: ast.expr) -> str | None:
        """Return the name of a decorator that registers or stores the function: `app.post`, `agent.tool`, `task`."""
        called = node.func if isinstance(node, ast.Call) else node
        name, whole = _dotted(called), self.name_of(called) or ""
        known: dict[str, list[str]] = _data()["decorators"]
        if name is None or whole.partition(".")[0] in known["wrap"]:
            return None
        return name if _matches_any(whole.rpartition(".")[2], known["take"]) else None

    def _adapter(self, node: ast.Call) -> None:
        """Record which tools an adapter holds: those in its list, or all if there is no list."""
        adapter = self.name_of(node.func) or ""
        if not fnmatchcase(adapter, _ADAPTERS):
            return
        given = [*node.args, *(each.value for each in node.keywords if each.arg == "tools")]
        named = [one for each in given if isinstance(each, _LISTS) for one in each.elts]
        self.held += [name for one in named if (name := _text(one) or _dotted(one)) is not None]
        if not given and adapter.rpartition(".")[2] in _data()["adapters"]["hold_all"]:
            self.held.append("*")

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self._enclosing[-1], self._in_gate))
        self._adapter(node)
        if (called := _dotted(node.func)) is not None:
            self.called.append((called.rpartition(".")[2], self._enclosing[-1]))
        for each in node.keywords:
            if each.arg == "tools" and isinstance(each.value, _LISTS):
                self.tools.update(name for one in each.value.elts if (name := _dotted(one)) is not None)
        passes = self._is_gate(node.func) or fnmatchcase(self.name_of(node.func) or "", "sayso.*.once")
        if isinstance(node.func, ast.Call) and self._is_gate(node.func):  # `gate(quorum=2)(function)`
            passes = True
        before = self._in_gate
        for one in (*node.args, *(each.value for each in node.keywords)):
            if passes and (passed := _dotted(one)) is not None:
                self.passed.add(passed.rpartition(".")[2])
                continue
            self._in_gate = before or (passes and isinstance(one, ast.Lambda))
            self.visit(one)
        self._in_gate = before
        self.visit(node.func)

    def visit_Name(self, node: ast.Name) -> None:
        self.uses.append((node.id, self._enclosing[-1]))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.uses.append((node.attr, self._enclosing[-1]))
        self.visit(node.value)

    def gated(self) -> set[str]:
        """Return the functions behind a gate: gated ones, and those used only by such functions or by a gate."""
        users, callers = dict[str, set[str]](), dict[str, set[str]]()
        for known, pairs in ((users, self.uses), (callers, self.called)):
            for name, by in pairs:
                known.setdefault(name, set()).add(by)
        found = {name for name, is_gated in self.functions.items() if is_gated}
        named = {name for name in self.functions if _matches_any(name, [one for one in self.held if one != "*"])}
        held = (named | self.tools if "*" in self.held else named) & self.functions.keys()
        found |= {name for name in held if callers.get(name, set()) <= {name}}
        while True:
            more = {
                name for name in self.functions.keys() - found
                if users.get(name, set()) <= found | {name} and (name in self.passed or users.get(name, set()) & found)
            }  # fmt: skip
            if not more:
                return found
            found |= more


_LISTS = (ast.List, ast.Tuple, ast.Set)


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, one) for one in patterns)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else None


def scan_text(text: str, path: str) -> list[Finding]:
    """Return the calls in a file that are not behind a gate, in order; raise `SyntaxError` if it cannot be parsed."""
    reader, lines = _Reader(), text.splitlines()
    reader.visit(ast.parse(text, path))
    gated, found = reader.gated(), list[Finding]()

    def reason_at(line: int) -> str | None:
        reason = _IGNORE.search("\n".join(lines[max(0, line - 2) : line]))
        return reason[1].strip() if reason else None

    order = next(one for one in patterns() if one.id == _ORDER)
    for one, name, function in reader.misplaced:
        found.append(Finding(path, one.lineno, one.col_offset + 1, name, function, order, reason_at(one.lineno)))
    for node, function, is_in_gate in reader.calls:
        if is_in_gate or function in gated:
            continue
        name = reader.name_of(node.func) or ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else None
        texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        pattern = next((one for one in patterns() if one.matches(name, method, texts)), None)
        if pattern is not None:
            called = name or f"….{method}"
            found.append(Finding(
                path, node.lineno, node.col_offset + 1, called, function, pattern, reason_at(node.lineno)
            ))  # fmt: skip
    return sorted(found, key=lambda one: (one.line, one.column))


# -- the command ---------------------------------------------------------------------------------------------------

_LEVELS = {"low": "note", "medium": "warning", "high": "error"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0, for code hosts and editors.")
@click.option(
    "--fail-on", type=click.Choice(SEVERITIES), help="Exit with 1 if a call of this severity or higher is found."
)
def scan(paths: Sequence[Path], as_json: bool, as_sarif: bool, fail_on: str | None) -> int:
    """Find calls in Python files that look irreversible and have no gate.

    It looks for payments, deletions, messages, shells, SQL and HTTP writes. Files are read, never run. A comment
    `# sayso: ignore[REASON]` on the line or above it excludes a call.
    """
    if as_json and as_sarif:
        raise click.UsageError("give --json or --sarif, not both")
    found, unreadable, number = list[Finding](), 0, 0
    for file in (file for path in paths for file in files(path)):
        number += 1
        try:
            found += scan_text(file.read_text("utf-8"), file.as_posix())
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            unreadable += 1
            echo_err(f"error: {escape(file.as_posix())} cannot be read ({type(error).__name__}); it was not scanned")
    left = [one for one in found if one.ignored is None]
    if as_json:
        documents = [
            {
                "path": one.path, "line": one.line, "column": one.column, "call": one.call,
                "function": one.function or None, "pattern": one.pattern.id, "severity": one.pattern.severity,
                "ignored": one.ignored,
            }
            for one in found
        ]  # fmt: skip
        echo(json.dumps({"files": number, "findings": documents}, indent=1))
    elif as_sarif:
        echo(json.dumps(sarif(found), indent=1))
    else:
        for one in left:
            place = f"{escape(one.path)}:{one.line}:{one.column}"
            where = f" in {escape(one.function)}" if one.function else ""
            echo(f"{place}: {one.pattern.severity} {one.pattern.id}: {escape(one.call)}{where} {one.pattern.message}")
        misplaced = sum(one.pattern.id == _ORDER for one in left)
        gates = f", {plural(misplaced, 'gate')} above a decorator that takes the function" if misplaced else ""
        ignored = f", {len(found) - len(left)} ignored with a reason" if len(found) > len(left) else ""
        echo(f"{plural(len(left) - misplaced, 'call')} without a gate in {plural(number, 'file')}{gates}{ignored}")
    if unreadable:
        return 1
    most = max((SEVERITIES.index(one.pattern.severity) for one in left), default=-1)
    return int(fail_on is not None and most >= SEVERITIES.index(fail_on))


def sarif(found: Sequence[Finding]) -> dict[str, Any]:
    """Return findings as a SARIF 2.1.0 log; ignored ones are suppressed in the source, with their reason."""
    rules = [
        {
            "id": one.id,
            "shortDescription": {"text": f"A {'decorator' if one.id == _ORDER else 'call'} {_full_message(one)}"},
            "defaultConfiguration": {"level": _LEVELS[one.severity]},
        }
        for one in patterns()
    ]  # fmt: skip
    results: list[dict[str, Any]] = []
    for one in found:
        place = {
            "artifactLocation": {"uri": quote(os.fsencode(one.path))},
            "region": {"startLine": one.line, "startColumn": one.column},
        }
        reason = [] if one.ignored is None else [{"kind": "inSource", "justification": one.ignored}]
        results.append({
            "ruleId": one.pattern.id, "level": _LEVELS[one.pattern.severity],
            "message": {"text": f"{one.call} {_full_message(one.pattern)}"},
            "locations": [{"physicalLocation": place}], "suppressions": reason,
        })  # fmt: skip
    tool = {"driver": {"name": "sayso scan", "version": __version__, "rules": rules}}
    return {
        "$schema": _SCHEMA, "version": "2.1.0",
        "runs": [{"tool": tool, "columnKind": "unicodeCodePoints", "results": results}],
    }  # fmt: skip
