"""What commands print: answers on stdout, complaints on stderr, tables, JSON, files, and exit codes.

Colour is only put around our own words, and only on a terminal. Invariant: a reader that goes away (`sayso ls | head`)
neither stops a command half-way nor makes noise; a shortened cell is marked, and so is a row with deceptive characters.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

import click

from sayso import clock, errors
from sayso.model.duration import text as span
from sayso.model.escaping import escape
from sayso.model.ids import is_random
from sayso.model.request import Request, State
from sayso.terminal import PROGRAM_GONE
from sayso.view import card
from sayso.view.summary import RUN_ROOM, SHORT, columns, padded, short, time_left, token

WRONG, DECIDED, EXPIRED = 1, 3, 4
_CODES: tuple[tuple[type[errors.SaysoError], int], ...] = (
    (errors.RequestExpiredError, EXPIRED),
    (errors.ApprovalExpiredError, EXPIRED),
    (errors.AlreadyDecidedError, DECIDED),
    (errors.NotUnknownError, DECIDED),
    (errors.StaleViewError, DECIDED),
)
_gone: list[bool] = []  # holds something once nobody reads stdout any more


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


def print_json(content: Any) -> None:
    """Print a JSON document; everything that is not plain ASCII is written as a JSON escape."""
    out(json.dumps(content, indent=2))


def complain(*rows: str) -> None:
    """Print rows on stderr, further ones indented."""
    try:
        for number, row in enumerate(rows):
            click.echo(row if number == 0 else f"       {row}", err=True)
    except (OSError, ValueError):
        return  # stderr is gone; the exit code says it as well


def confirmed(question: str, **options: Any) -> bool:
    """Ask on stderr; Ctrl-C and the end of the input are a no."""
    try:
        return click.confirm(question, err=True, **options)
    except click.Abort:
        complain("")
        return False


def paint(text: str, colour: str) -> str:
    """Return our own words in a colour, where stdout is a terminal that wants it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return text
    return click.style(text, fg=colour, bold=True)


def exit_code(fault: errors.SaysoError) -> int:
    """Return the exit code that a fault means."""
    return next((code for kind, code in _CODES if isinstance(fault, kind)), WRONG)


def plural(count: int, what: str) -> str:
    """Return a count and its noun: `1 row`, `2 rows`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


@contextmanager
def file_to_write(path: Path, *, may_replace: bool = True) -> Generator[IO[str]]:
    """Open a file for writing, readable by its owner alone; it is complete in the end, or not there at all.

    A path that is no regular file, as `/dev/null` or a pipe, is written to in place.

    Raises:
        ConfigError: It cannot be written.
    """
    path = path.expanduser()
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    part = path.with_name(f"{path.name}.part")
    try:
        if not may_replace and path.exists():
            raise errors.ConfigError(f"{path} is there already, and is not written over; nothing was written")
        with suppress(FileNotFoundError):
            part.unlink()
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be written ({error.strerror}); nothing was written") from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_lines(lines: Iterable[str], output: Path | None, what: str, *, headers: int = 0) -> None:
    """Write lines, with their ends, to stdout or to a file, and say how many of `what` they were."""
    if output is None:
        for line in lines:
            out(line.removesuffix("\n").removesuffix("\r"))
            if _gone:
                break
        return
    count = -headers
    with file_to_write(output) as file:
        for line in lines:
            file.write(line)
            count += 1
    complain(f"{plural(count, what)} written to {escape(str(output))}")


# -- tables --------------------------------------------------------------------------------------------------------

_PIPED_WIDTH = 140
_NARROWEST_CALL, _WIDEST_CALL = 60, 120
_GONE = PROGRAM_GONE.partition(":")[0]
_FROM_ROOM, _RISK_ROOM, _WORDS_ROOM = 36, 12, 100
COLOURS = {State.UNKNOWN: "red", State.PENDING: "yellow"}
"""Of the states that want attention."""


def text_table(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return rows in which every cell but the last has the width of its column."""
    pads = [max(columns(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [[*(padded(cell, pad) for cell, pad in zip(row, pads, strict=False)), row[-1]] for row in rows]


def table(
    requests: Sequence[Request], *, cursor: str | None, pending: int = 0, oldest: Request | None = None,
    unknown: int = 0, gone: Collection[str] = (),
) -> list[str]:  # fmt: skip
    """Return the rows of a list.

    Args:
        requests: One page; not empty.
        cursor: Where the next page begins.
        pending: How many requests wait in all.
        oldest: The one that has waited longest.
        unknown: How many outcomes are unknown in all.
        gone: Ids of those whose program has ended without anybody to come back for them.
    """
    now = clock.now()
    has_states = any(request.state is not State.PENDING for request in requests)
    before = [_cells(request, now, has_states=has_states, is_gone=request.id in gone) for request in requests]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH
    taken = sum(max(columns(row[place]) for row in before) + 2 for place in range(4))
    room = min(max(width - taken - _FROM_ROOM, _NARROWEST_CALL), _WIDEST_CALL)
    cells = [("ID", "AGE", "STATE" if has_states else "EXPIRES", "RISK", "CALL", "FROM")]
    for row, one in zip(before, requests, strict=True):
        run = f"{one.run_id[:12]}…" if is_random(one.run_id) else token(one.run_id, RUN_ROOM)
        call = card.headline(one, room) + (" !" if card.cautions(one) else "")
        cells.append((*row, call, f"{token(one.requester.subject, _FROM_ROOM)}/{run}"))
    first, *others = text_table(cells)
    rows = ["  ".join(first)]
    for request, row in zip(requests, others, strict=True):
        if has_states and request.state in COLOURS:
            row[2] = paint(row[2], COLOURS[request.state])
        rows.append("  ".join(row).rstrip())
        words = card.program_words(request, _WORDS_ROOM)
        rows += [f"{'':{SHORT}}  the program says {words}"] if words else []
    return [*rows, *_notes(requests, cursor, pending, oldest, unknown, gone, now)]


def _cells(request: Request, now: datetime, *, has_states: bool, is_gone: bool) -> tuple[str, str, str, str]:
    match request.state:
        case State.PENDING:
            rest = _GONE if is_gone else time_left(request.expires_at, now)
            state_text = f"pending, {rest}" if has_states else rest
        case State.UNKNOWN:
            state_text = "UNKNOWN"
        case state:
            state_text = f"{state}, {_GONE}" if is_gone else str(state)
    risk = "-" if request.risk is None else token(request.risk, _RISK_ROOM)
    return short(request.id), _age(request, now), state_text, risk


def _age(request: Request, now: datetime) -> str:
    return span(timedelta(seconds=max(0, (now - request.created_at) // timedelta(seconds=1))))


def _notes(
    requests: Sequence[Request], cursor: str | None, pending: int, oldest: Request | None, unknown: int,
    gone: Collection[str], now: datetime,
) -> list[str]:  # fmt: skip
    rows: list[str] = []
    if pending:
        rows.append(f"{pending:,} pending" + ("" if oldest is None else f" - oldest {_age(oldest, now)}"))
    if unknown:
        count = f"{plural(unknown, 'outcome')} unknown"
        rows.append(f"{paint(count, 'red')}: find out, then `sayso resolve ID --happened` or `--did-not`")
    if gone:
        rows.append(f"{PROGRAM_GONE}; `sayso cancel ID` clears it away")
    if any(card.cautions(request) for request in requests):
        rows.append("! holds hidden or look-alike characters; `sayso show ID` names them")
    if cursor is not None:
        rows.append(f"{len(requests):,} shown; go on with --cursor {cursor}")
    return rows
