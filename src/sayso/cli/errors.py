"""What a fault reads like at the command line: what happened, in short ids, and what to do about it.

The exit codes are `sayso.cli.output`'s. Invariant: "nothing was decided" is said to those only who wanted to decide.
"""

from __future__ import annotations

import shlex
from difflib import get_close_matches

import click

from sayso import errors
from sayso.cli.context import Desk, NoRunError
from sayso.cli.output import code_of, complain
from sayso.model.text import escape
from sayso.view.summary import in_short, short

__all__ = ["meant", "report"]

_HINTS: tuple[tuple[type[errors.SaysoError], str], ...] = (
    (errors.AlreadyDecidedError, "`{sayso} show {id}` tells what became of it"),
    (errors.RequestExpiredError, "nothing runs without a decision in time; `{sayso} ls` lists what waits now"),
    (errors.MissingRoleError, "if you have it, say so with --role {role}; sayso keeps no list of who else has it"),
    (errors.AlreadyVotedError, "nothing changed"),
    (errors.InvalidChangesError, "`{sayso} show {id}` shows what it takes; correct the values and try again"),
    (errors.InvalidAnswerError, "`{sayso} show {id}` shows what it takes"),
    (errors.ReasonMissingError, '`{sayso} reject {id} -m "what is wrong with it"`'),
    (errors.StaleViewError, "`{sayso} show {id}` shows it as it stands"),
    (errors.NotUnknownError, "`{sayso} show {id}` tells where it stands"),
    (errors.StoreError, "`sayso doctor` looks closer; --store ADDRESS or SAYSO_STORE names another store"),
)
_UNDECIDED = "nothing was decided"
# Faults that do not say so themselves, because they also meet those who only look.
_UNTOLD = (
    errors.RequestNotFoundError, errors.AmbiguousIdError, errors.OwnRequestError, errors.ConfigError, NoRunError,
)  # fmt: skip


def report(fault: errors.SaysoError) -> int:
    """Say on stderr what happened and what to do; return the exit code."""
    hint = _hint(fault)
    complain(f"error: {escape(_spoken(fault))}", *([hint] if hint else []))
    return code_of(fault)


def _spoken(fault: errors.SaysoError) -> str:
    """Return what a fault says, with ids as `ls` shows them."""
    if isinstance(fault, errors.AmbiguousIdError):
        return str(fault)  # their beginnings are what does not tell them apart
    return in_short(str(fault))


def _hint(fault: errors.SaysoError) -> str:
    if isinstance(fault, errors.RequestNotFoundError):
        words = _did_you_mean(fault.request_id)
    else:
        words = next((hint for kind, hint in _HINTS if isinstance(fault, kind)), "")
    role = next(iter(getattr(fault, "roles", ())), "")
    said = words.format(sayso=_typed(), id=short(getattr(fault, "request_id", "")), role=escape(shlex.quote(role)))
    if isinstance(fault, errors.InvalidAnswerError) and "valid list" in str(fault):
        said += """; a list is written as JSON, '["a", "b"]'"""
    undecided = _UNDECIDED if isinstance(fault, _UNTOLD) and _decides() else ""
    return "; ".join(filter(None, [undecided, said]))


def _decides() -> bool:
    """Say whether the command is one that decides: those take roles."""
    context = click.get_current_context(silent=True)
    if context is None:
        return False
    command: click.Command | None = context.command
    if isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    return command is not None and any(param.name == "roles" for param in command.params)


def _typed() -> str:
    """Return how the next command is to begin so that it finds the same store."""
    desk = _desk()
    if desk is None or desk.address is None:
        return "sayso"
    return f"sayso --store {escape(shlex.quote(desk.address))}"


def _desk() -> Desk | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_object(Desk)


def _did_you_mean(request_id: str) -> str:
    desk = _desk()
    if desk is None:
        return ""
    try:
        known = [short(request.id) for request in desk.look.list(limit=200).requests]
    except errors.SaysoError:
        return ""  # the fault that is being told is enough
    wanted = request_id if request_id.startswith("rq_") else f"rq_{request_id}"
    return meant(short(wanted), known)


def meant(word: str, known: list[str]) -> str:
    """Return which of the known words was probably meant, as a question; empty where none comes near."""
    found = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]}?" if found else ""
