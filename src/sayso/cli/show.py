"""`show`: one request in full: the call, the program's words, changes, votes, how it went, and what can be done next.

Invariant: whatever the view leaves out is announced with its size, and of a call that is too long for one view the
fingerprint stands only at the end of the whole.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click

from sayso import audit, clock
from sayso.cli.desk import Desk, as_json
from sayso.cli.plain import entry_document, request_document
from sayso.cli.say import document, out, paint
from sayso.model.request import Request, State
from sayso.model.text import escape
from sayso.reviews import schema_of
from sayso.terminal import PROGRAM_GONE, command
from sayso.view import card
from sayso.view.card import changed, outcome_rows, stands
from sayso.view.document import event_rows
from sayso.view.hint import kinds_of
from sayso.view.summary import short

__all__ = ["show"]

_COLOURS = {State.UNKNOWN: "red", State.PENDING: "yellow"}


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--full", is_flag=True, help="Leave nothing out, however long it is.")
@as_json
@click.pass_obj
def show(desk: Desk, request_id: str, full: bool, as_json: bool) -> int:
    """Show a request in full, and what became of it."""
    request = desk.look.get(request_id)
    timeline = list(audit.entries(desk.store, run_id=request.run_id, request_id=request.id))
    is_left = desk.look.program_is_gone(request)
    if as_json:
        document(
            request_document(request, program_gone=is_left) | {"journal": [entry_document(entry) for entry in timeline]}
        )
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    out(*_head(request, width, full=full, is_left=is_left, same_effect=desk.look.same_effect(request)))
    out("", "what happened", *(f"  {row}" for row in event_rows(timeline)))
    out("", *_end(request, command(desk.store), full=full, is_left=is_left))
    return 0


def _head(request: Request, width: int, *, full: bool, is_left: bool, same_effect: Sequence[Request]) -> list[str]:
    now = clock.now()
    state, _, rest = stands(request, now).partition(" ")
    colour = _COLOURS.get(request.state)
    rows = [f"{escape(request.id)}   {state if colour is None else paint(state, colour)} {rest}".rstrip()]
    rows += [f"  {PROGRAM_GONE}"] if is_left else []
    rows += card.ask_rows(request, now, width=max(width, card.NARROW), full=full, same_effect=same_effect)
    if request.state is State.PENDING:
        takes = [f"    {name}: {kind}" for name, kind in kinds_of(schema_of(request)).items()]
        rows += ["  takes:", *takes] if takes else []
    if request.kind == "call" and request.edited is not None:
        changes = changed(request.call, request.edited, request.redact)
        rows += ["  changed by reviewers, from what was asked:", *(f"    {change.line()}" for change in changes)]
    return [*rows, *outcome_rows(request)]


def _end(request: Request, sayso: str, *, full: bool, is_left: bool) -> list[str]:
    rows: list[str] = []
    if full or card.is_whole(request):
        rows.append(f"fingerprint {request.current_fingerprint}")
    else:
        rows.append(f"not all is shown: {sayso} show --full {short(request.id)}")
    return [*rows, *(f"next: {step}" for step in _next(request, f"{sayso} %s {short(request.id)}", is_left=is_left))]


def _next(request: Request, line: str, *, is_left: bool) -> list[str]:
    def typed(verb: str, more: str = "") -> str:
        return (line % verb) + more

    if is_left and request.state is State.PENDING:
        return [typed("cancel", " -m WHY")]
    match request.state, request.kind:
        case State.PENDING, "call":
            return [
                typed("approve"),
                typed("approve", " --set NAME=VALUE"),
                typed("reject", " -m WHY"),
                typed("feedback", " -m WORDS"),
            ]
        case State.PENDING, _:
            return [typed("answer", " VALUE"), typed("reject", " -m WHY")]
        case State.APPROVED, _:
            return [typed("cancel", " -m WHY")]
        case State.UNKNOWN, _:
            return [typed("resolve", " --happened"), typed("resolve", " --did-not")]
        case _:
            return []
