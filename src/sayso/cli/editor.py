"""Editing a call's arguments in $EDITOR: JSON under a few lines of comment.

Invariant: the editor gets masked arguments only, with hidden characters as JSON escapes; what comes back is validated
by the function's types before anything is decided.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, cast

import click

from sayso import errors
from sayso.cli.output import complain
from sayso.model.escaping import escape, hidden_in
from sayso.model.request import Request
from sayso.reviews import edited_call, schema_of
from sayso.view.hint import kinds_of

__all__ = ["edited"]


def edited(request: Request) -> Mapping[str, Any]:
    """Return the arguments as the person wrote them, valid for the function; with a terminal, ask again until they are.

    Raises:
        InvalidChangesError: They do not fit, or nothing was saved.
        ConfigError: The editor did not run, or failed.
    """
    text = _text(request)
    while True:
        written = _edit(request, text)
        if written is None:
            raise errors.InvalidChangesError(request.id, ["nothing was saved in the editor"])
        try:
            arguments = _read(request, written)
            edited_call(request, arguments=arguments)
        except errors.InvalidChangesError as refusal:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                raise
            complain(f"error: {escape(str(refusal))}")
            if not click.confirm("edit again?", default=True, err=True):
                raise
            text = written
        else:
            return arguments


def _edit(request: Request, text: str) -> str | None:
    try:
        return click.edit(text, extension=".json")
    except UnicodeDecodeError:
        raise errors.InvalidChangesError(request.id, ["what the editor saved is not UTF-8"]) from None
    except (click.ClickException, ValueError) as error:  # the latter where quotes in EDITOR do not close
        cause = error.__cause__ if isinstance(error, click.ClickException) else error
        why = (
            cause.strerror if isinstance(cause, OSError) else "it ended with an error" if cause is None else str(cause)
        )
        raise errors.ConfigError(
            f"the editor failed ({why}); set EDITOR to one that runs, or change arguments with --set NAME=VALUE"
        ) from error


def _text(request: Request) -> str:
    call = request.effective
    heads = [f"{escape(call.name)}: save and close to approve it with these arguments; *** stays what it is."]
    heads += [f"  {name}: {kind}" for name, kind in kinds_of(schema_of(request)).items()]
    return (
        "".join(f"// {head}\n" for head in heads)
        + _visible(json.dumps(call.arguments, indent=2, ensure_ascii=False))
        + "\n"
    )


def _visible(text: str) -> str:
    for name in hidden_in(text):
        character = chr(int(name.removeprefix("U+"), 16))
        text = text.replace(character, json.dumps(character)[1:-1])
    return text


def _read(request: Request, written: str) -> dict[str, Any]:
    lines = written.split("\n")
    for number, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith("//"):
            break
        lines[number] = ""  # a blank line, so that the numbers in error messages are the editor's
    try:
        arguments = json.loads("\n".join(lines), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidChangesError(request.id, [f"this is no JSON: {error}"]) from None
    if not isinstance(arguments, dict):
        raise errors.InvalidChangesError(request.id, ["a JSON object with the arguments is needed"])
    return cast("dict[str, Any]", arguments)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice in one object")
    return dict(pairs)
