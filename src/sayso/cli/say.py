"""What commands print, and where: answers on stdout, complaints on stderr, and the exit code that a fault means.

Colour is only put around our own words, and only on a terminal. Invariant: a reader that goes away (`sayso ls | head`)
neither stops a command half-way nor makes noise.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from sayso import errors

__all__ = [
    "DECIDED",
    "EXPIRED",
    "WRONG",
    "code_of",
    "complain",
    "document",
    "is_reader_gone",
    "out",
    "paint",
    "silence",
]

WRONG, DECIDED, EXPIRED = 1, 3, 4
_CODES: tuple[tuple[type[errors.SaysoError], int], ...] = (
    (errors.RequestExpiredError, EXPIRED),
    (errors.ApprovalExpiredError, EXPIRED),
    (errors.AlreadyDecidedError, DECIDED),
    (errors.NotUnknownError, DECIDED),
    (errors.StaleViewError, DECIDED),
)
_gone: list[bool] = []


def is_reader_gone() -> bool:
    """Say whether nobody reads stdout any more."""
    return bool(_gone)


def out(*rows: str) -> None:
    """Print rows on stdout."""
    try:
        for row in rows:
            click.echo(row)
    except BrokenPipeError:
        silence()


def silence() -> None:
    """Let everything further on stdout go nowhere, because its reader is gone."""
    _gone.append(True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def document(content: Any) -> None:
    """Print a JSON document; everything that is not plain ASCII is written as a JSON escape."""
    out(json.dumps(content, indent=2))


def complain(*rows: str) -> None:
    """Print rows on stderr, further ones indented."""
    try:
        for number, row in enumerate(rows):
            click.echo(row if number == 0 else f"       {row}", err=True)
    except (OSError, ValueError):
        return  # nobody is there to be told; the exit code says it as well


def paint(text: str, colour: str) -> str:
    """Return our own words in a colour, where stdout is a terminal that wants it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return text
    return click.style(text, fg=colour, bold=True)


def code_of(fault: errors.SaysoError) -> int:
    """Return the exit code that a fault means."""
    return next((code for kind, code in _CODES if isinstance(fault, kind)), WRONG)
