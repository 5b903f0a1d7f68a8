"""What commands print: answers on stdout, complaints on stderr, tables, JSON documents, and exit codes.

Colour is only put around our own words, and only on a terminal. Invariant: a reader that goes away (`sayso ls | head`)
neither stops a command half-way nor makes noise; a shortened cell is marked, and so is a row with deceptive characters.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from sayso import clock, errors
from sayso.model.duration import text as span
from sayso.model.request import Request, State
from sayso.terminal import PROGRAM_GONE
from sayso.view import card
from sayso.view.summary import RUN_ROOM, columns, is_random, padded, short, time_left, token

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
    "table",
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


_PIPED_WIDTH = 140
_NARROWEST_CALL, _WIDEST_CALL = 60, 120
_LEFT = PROGRAM_GONE.partition(":")[0]
_FROM_ROOM, _RISK_ROOM = 36, 12
_COLOURS = {State.UNKNOWN: "red", State.PENDING: "yellow"}


def table(
    requests: Sequence[Request],
    *,
    cursor: str | None,
    pending: int = 0,
    oldest: Request | None = None,
    unknown: int = 0,
    left: Collection[str] = (),
) -> list[str]:
    """Return the rows of a list.

    Args:
        requests: One page; not empty.
        cursor: How the list goes on.
        pending: How many wait in all.
        oldest: The one that has waited longest.
        unknown: How many outcomes are unknown in all.
        left: Ids of those whose program has ended without anybody to come back for them.
    """
    now = clock.now()
    has_states = any(request.state is not State.PENDING for request in requests)
    head = ("ID", "AGE", "STATE" if has_states else "EXPIRES", "RISK", "CALL", "FROM")
    cells = [head, *(_cells(request, now, has_states=has_states, is_left=request.id in left) for request in requests)]
    pads = [max(columns(row[column]) for row in cells) for column in range(len(head) - 2)]
    room = _call_room(sum(pads) + 2 * len(pads))
    calls = ["CALL", *(_call(request, room) for request in requests)]
    pads.append(max(map(columns, calls)))
    rows: list[str] = []
    for number, (row, call) in enumerate(zip(cells, calls, strict=True)):
        parts = [padded(text, pad) for text, pad in zip((*row[:4], call), pads, strict=True)]
        if number:
            colour = _COLOURS.get(requests[number - 1].state)
            parts[2] = parts[2] if colour is None or not has_states else paint(parts[2], colour)
        rows.append("  ".join([*parts, row[5]]).rstrip())
    return [*rows, *_foot(pending, oldest, unknown, now), *_notes(requests, cursor, left)]


def _call_room(before: int) -> int:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH
    return min(max(width - before - _FROM_ROOM, _NARROWEST_CALL), _WIDEST_CALL)


def _cells(request: Request, now: datetime, *, has_states: bool, is_left: bool) -> tuple[str, ...]:
    match request.state:
        case State.PENDING:
            left = _LEFT if is_left else time_left(request.expires_at, now)
            stands = f"pending, {left}" if has_states else left
        case State.UNKNOWN:
            stands = "UNKNOWN"
        case state:
            stands = f"{state}, {_LEFT}" if is_left else str(state)
    risk = "-" if request.risk is None else token(request.risk, _RISK_ROOM)
    return short(request.id), _age(request, now), stands, risk, "", _from(request)


def _age(request: Request, now: datetime) -> str:
    return span(timedelta(seconds=max(0, (now - request.created_at) // timedelta(seconds=1))))


def _from(request: Request) -> str:
    run = f"{request.run_id[:12]}…" if is_random(request.run_id) else token(request.run_id, RUN_ROOM)
    return f"{token(request.requester.subject, _FROM_ROOM)}/{run}"


def _call(request: Request, room: int) -> str:
    return card.headline(request, room) + (" !" if card.cautions(request) else "")


def _foot(pending: int, oldest: Request | None, unknown: int, now: datetime) -> list[str]:
    rows: list[str] = []
    if pending:
        rows.append(f"{pending:,} pending" + ("" if oldest is None else f" - oldest {_age(oldest, now)}"))
    if unknown:
        count = f"{unknown:,} outcome{'' if unknown == 1 else 's'} unknown"
        rows.append(f"{paint(count, 'red')}: find out, then `sayso resolve ID --happened` or `--did-not`")
    return rows


def _notes(requests: Sequence[Request], cursor: str | None, left: Collection[str]) -> list[str]:
    rows: list[str] = []
    if left:
        rows.append(f"{PROGRAM_GONE}; `sayso cancel ID` clears it away")
    if any(card.cautions(request) for request in requests):
        rows.append("! holds hidden or look-alike characters; `sayso show ID` names them")
    if cursor is not None:
        rows.append(f"{len(requests):,} shown; go on with --cursor {cursor}")
    return rows
