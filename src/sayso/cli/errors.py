"""Error messages of the command line: what happened, with short ids, and what to do next.

The exit codes are in `sayso.cli.output`. Invariant: only a command that decides says "nothing was decided".
"""

from __future__ import annotations

import shlex
from difflib import get_close_matches

import click

from sayso import errors
from sayso.cli.context import CliContext, NoRunError
from sayso.cli.output import complain, exit_code
from sayso.model.escaping import escape
from sayso.view.summary import in_short, short

_HINTS: tuple[tuple[type[errors.SaysoError], str], ...] = (
    (errors.AlreadyDecidedError, "`{sayso} show {id}` shows what became of it"),
    (errors.RequestExpiredError, "nothing runs without a decision in time; `{sayso} ls` lists what waits now"),
    (errors.MissingRoleError, "if you have it, say so with --role {role}; sayso keeps no list of who else has it"),
    (errors.AlreadyVotedError, "nothing changed"),
    (errors.InvalidChangesError, "`{sayso} show {id}` shows what it takes; correct the values and try again"),
    (errors.InvalidAnswerError, "`{sayso} show {id}` shows what it takes"),
    (errors.ReasonMissingError, '`{sayso} reject {id} -m "what is wrong with it"`'),
    (errors.StaleViewError, "`{sayso} show {id}` shows its current state"),
    (errors.NotUnknownError, "`{sayso} show {id}` shows its state"),
    (errors.StoreError, "`sayso doctor` looks closer; --store ADDRESS or SAYSO_STORE names another store"),
)
_UNDECIDED = "nothing was decided"
# Errors that do not say so themselves, because commands that only read raise them, too.
_ALSO_OF_READERS = (
    errors.RequestNotFoundError, errors.AmbiguousIdError, errors.OwnRequestError, errors.ConfigError, NoRunError,
)  # fmt: skip


def report(fault: errors.SaysoError) -> int:
    """Print an error, with ids as `ls` shows them, and what to do next to stderr; return the exit code."""
    text = str(fault)
    hint = _hint(fault, text)
    if not isinstance(fault, errors.AmbiguousIdError):  # the beginnings of its ids are what does not tell them apart
        text = in_short(text)
    complain(f"error: {escape(text)}", *([hint] if hint else []))
    return exit_code(fault)


def _hint(fault: errors.SaysoError, text: str) -> str:
    context = click.get_current_context(silent=True)
    cli = None if context is None else context.find_object(CliContext)
    if isinstance(fault, errors.RequestNotFoundError):
        words = "" if cli is None else _similar_id(cli, fault.request_id) or _which_store(cli)
    else:
        words = next((hint for kind, hint in _HINTS if isinstance(fault, kind)), "")
    # The next command has to find the same store.
    sayso = "sayso" if cli is None or cli.address is None else f"sayso --store {escape(shlex.quote(cli.address))}"
    role = next(iter(getattr(fault, "roles", ())), "")
    hint = words.format(sayso=sayso, id=short(getattr(fault, "request_id", "")), role=escape(shlex.quote(role)))
    # The words of pydantic, and those of the validator of JSON Schemas.
    if isinstance(fault, errors.InvalidAnswerError) and any(one in text for one in ("valid list", 'type "array"')):
        hint += """; a list is written as JSON, '["a", "b"]'"""
    undecided = _UNDECIDED if isinstance(fault, _ALSO_OF_READERS) and _decides(context) else ""
    return "; ".join(filter(None, [undecided, hint]))


def _decides(context: click.Context | None) -> bool:
    """Say whether this command decides; such a command takes roles."""
    if context is None:
        return False
    command: click.Command | None = context.command
    if isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    return command is not None and any(param.name == "as_roles" for param in command.params)


def _similar_id(cli: CliContext, request_id: str) -> str:
    try:
        known = [short(request.id) for request in cli.reader.list(limit=200).requests]
    except errors.SaysoError:
        return ""  # the first error is enough
    wanted = request_id if request_id.startswith("rq_") else f"rq_{request_id}"
    return did_you_mean(short(wanted), known)


def _which_store(cli: CliContext) -> str:
    return f"this is {escape(cli.store.public_url)}; if the program uses another store, add --store ADDRESS"


def did_you_mean(word: str, known: list[str]) -> str:
    """Return which of the known words was probably meant, as a question; empty where none comes near."""
    found = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]}?" if found else ""
