"""`scan`: call sites of a code base that look irreversible and are behind no gate, as text, JSON or SARIF."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from sayso import __version__
from sayso.cli.output import complain, out, plural
from sayso.cli.scanning import SEVERITIES, Finding, files, patterns, scan_text
from sayso.model.escaping import escape

__all__ = ["sarif", "scan"]

_LEVELS = {"low": "note", "medium": "warning", "high": "error"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0, for code hosts and editors.")
@click.option(
    "--fail-on", type=click.Choice(SEVERITIES), help="Exit with 1 where something of this severity or above is found."
)
def scan(paths: Sequence[Path], as_json: bool, as_sarif: bool, fail_on: str | None) -> int:
    """Find calls in Python files that look irreversible and are behind no gate.

    Payments, deletions, messages, shells, SQL and HTTP writes. Files are read, and nothing is run. A comment `# sayso:
    ignore[REASON]` on the line or above it leaves a call out. Exit code 1 with --fail-on, 0 without.
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
            complain(f"error: {escape(file.as_posix())} cannot be read ({type(error).__name__}); it was not scanned")
    left = [one for one in found if one.ignored is None]
    if as_json:
        out(json.dumps({"files": number, "findings": [_document(one) for one in found]}, indent=1))
    elif as_sarif:
        out(json.dumps(sarif(found), indent=1))
    else:
        for one in left:
            place = f"{escape(one.path)}:{one.line}:{one.column}"
            where = f" in {escape(one.function)}" if one.function else ""
            out(f"{place}: {one.pattern.severity} {one.pattern.id}: {escape(one.call)}{where} {one.pattern.says}")
        ignored = f", {len(found) - len(left)} ignored with a reason" if len(found) > len(left) else ""
        out(f"{plural(len(left), 'call')} behind no gate in {plural(number, 'file')}{ignored}")
    if unreadable:
        return 1
    most = max((SEVERITIES.index(one.pattern.severity) for one in left), default=-1)
    return int(fail_on is not None and most >= SEVERITIES.index(fail_on))


def _document(one: Finding) -> dict[str, Any]:
    return {
        "path": one.path, "line": one.line, "column": one.column, "call": one.call, "function": one.function or None,
        "pattern": one.pattern.id, "severity": one.pattern.severity, "ignored": one.ignored,
    }  # fmt: skip


def sarif(found: Sequence[Finding]) -> dict[str, Any]:
    """Return findings as a SARIF 2.1.0 log; ignored ones are suppressed in the source, with their reason."""
    rules = [
        {
            "id": one.id, "shortDescription": {"text": f"A call {one.says} and is behind no gate"},
            "defaultConfiguration": {"level": _LEVELS[one.severity]},
        }
        for one in patterns()
    ]  # fmt: skip
    tool = {"driver": {"name": "sayso scan", "version": __version__, "rules": rules}}
    return {
        "$schema": _SCHEMA, "version": "2.1.0",
        "runs": [{"tool": tool, "columnKind": "unicodeCodePoints", "results": [_result(one) for one in found]}],
    }  # fmt: skip


def _result(one: Finding) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": quote(os.fsencode(one.path))},
        "region": {"startLine": one.line, "startColumn": one.column},
    }
    reason = [] if one.ignored is None else [{"kind": "inSource", "justification": one.ignored}]
    return {
        "ruleId": one.pattern.id, "level": _LEVELS[one.pattern.severity],
        "message": {"text": f"{one.call} {one.pattern.says} and is behind no gate"},
        "locations": [{"physicalLocation": place}], "suppressions": reason,
    }  # fmt: skip
