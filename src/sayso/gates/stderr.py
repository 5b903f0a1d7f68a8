"""What a program prints on stderr about a pending request: what it is, and where to decide it. Nothing here raises."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress

from sayso import clock, config, errors
from sayso.model.duration import ago
from sayso.model.ids import is_random
from sayso.model.rendering import quote_if_needed
from sayso.model.request import Request
from sayso.model.text import escape
from sayso.stores.base import Store
from sayso.view import full_text
from sayso.view.summary import expiry, short

INDENT = "       "
_NOW = "just now"
_LEFT_OF_MANY = [
    f"{INDENT}those of named runs stay pending: the same calls find them at the next start. Others are withdrawn"
]
_WITHDRAWN_OF_MANY = [f"{INDENT}they are withdrawn; a new start asks again"]


def can_decide(store: Store) -> bool:
    """Return whether a person can decide through this store. A program's token for a server only allows asking."""
    return not store.url.startswith(("https://", "http://"))


def announce(store: Store, request: Request) -> None:
    """Print on stderr what waits and where to decide it, if nobody can be asked here. Never raises."""
    now = clock.now()
    asked, waits = ago(request.created_at, now), expiry(request.expires_at, now)
    call, name = full_text.headline(request), short(request.id)
    print_rows(
        f"sayso  waiting for a person  {call}   {name}   {waits}"
        if asked == _NOW
        else f"sayso  waiting again for a person  {call}   {name}   asked {asked}, {waits}",
        *(f"{INDENT}warning: {warning}" for warning in full_text.cautions(request)),
        *_where_to_read(store, request),
        INDENT + _where(store, request),
    )


def say_what_waits(store: Store, request: Request, *, is_interrupted: bool = False, is_withdrawn: bool = False) -> None:
    """Print on stderr that a request is still pending, how to decide it, and what runs then. Never raises.

    Args:
        store: The request's store.
        request: The pending request.
        is_interrupted: Ctrl-C was pressed, so the terminal shows `^C` at the end of a row.
        is_withdrawn: The program withdraws the request, also in a named run.
    """
    if is_interrupted and _is_shown():
        print_rows()
    print_rows(*(rows_when_left(store, request, is_withdrawn) if is_interrupted else _still_waits(store, request)))


def say_how_many_wait(store: Store, request: Request, count: int, *, is_withdrawn: bool = False) -> None:
    """Print on stderr which of `count` requests stay pending after Ctrl-C in an async program. Never raises."""
    if count == 1:
        say_what_waits(store, request, is_interrupted=True, is_withdrawn=is_withdrawn)
        return
    ways = "" if _is_in_memory(store) or not can_decide(store) else f": {command(store)} ls"
    print_rows(
        *([""] if _is_shown() else []),
        f"sayso  stopped while {count:,} requests waited, {short(request.id)} among them{ways}",
        *(() if _is_in_memory(store) else _WITHDRAWN_OF_MANY if is_withdrawn else _LEFT_OF_MANY),
    )


def rows_when_left(store: Store, request: Request, is_withdrawn: bool = False) -> list[str]:  # noqa: FBT001, FBT002  private
    """Return the rows about a request for which this program no longer waits."""
    if not is_random(request.run_id):
        left = f"sayso  {short(request.id)} was withdrawn, because its program stopped waiting; a new start asks again"
        return [left] if is_withdrawn else _still_waits(store, request)
    what = "call" if request.kind == "call" else "question"
    return [
        f"sayso  {short(request.id)} was withdrawn: its run has no name, so no program could fetch the decision later",
        f'{INDENT}a new start asks again; with sayso.run("a name"): around the {what}, it would find this request',
    ]


def _still_waits(store: Store, request: Request) -> list[str]:
    what = "call" if request.kind == "call" else "question"
    waits = f"sayso  {short(request.id)} still waits, {expiry(request.expires_at, clock.now())}"
    where = _where(store, request)
    if _is_in_memory(store):
        return [waits, INDENT + where]
    if is_random(request.run_id):
        return [
            f"{waits}, and only this process can use the decision, because its run has no name",
            f"{INDENT}until then {where}",
            f'{INDENT}a new start asks again; with sayso.run("a name"): around the {what}, it would find this request',
        ]
    run = quote_if_needed(request.run_id)
    return [
        waits,
        INDENT + where,
        f"{INDENT}then start the program again: the same {what} in the run {run} finds the decision",
    ]


def _is_in_memory(store: Store) -> bool:
    return store.url.startswith("memory:")


def _where(store: Store, request: Request) -> str:
    if _is_in_memory(store):
        return "its store is in memory: only this program can decide it (sayso.Review), and it ends with the program"
    if not can_decide(store):
        return f"decide at {escape(store.url)}/r/{request.id}"
    verb, value = ("approve", "") if request.kind == "call" else ("answer", " VALUE")
    value = value if full_text.is_whole(request) or request.kind == "question" else " --seen FINGERPRINT"
    return f"decide with: {_command_anywhere(store)} {verb} {short(request.id)}{value}"


def _where_to_read(store: Store, request: Request) -> list[str]:
    """Return a row that says how to see all of a request, if its one line is incomplete."""
    if not can_decide(store) or _is_in_memory(store) or full_text.headline(request) == full_text.headline(request, 200):
        return []
    full = "" if full_text.is_whole(request) else " --full"
    return [f"{INDENT}see all of it: {_command_anywhere(store)} show{full} {short(request.id)}"]


def command(store: Store) -> str:
    """Return the `sayso` command that uses this store when it is run here, as shell text."""
    with suppress(errors.ConfigError, OSError, RuntimeError):  # without settings or a home, the address is spelled out
        if config.address_nearby() == store.url:
            return "sayso"
    return f"sayso --store {escape(shlex.quote(store.public_url))}"


def _command_anywhere(store: Store) -> str:
    """Return the `sayso` command for somebody without this program's environment and folder."""
    with suppress(errors.ConfigError, OSError, RuntimeError):
        # An address with a password is not printed: the reviewer needs it in their own settings.
        if store.public_url != store.url or store.url == f"sqlite:///{config.default_store_path()}":
            return command(store)
    return f"sayso --store {escape(shlex.quote(store.public_url))}"


def print_rows(*rows: str) -> None:
    """Print rows on stderr. Never raises."""
    with suppress(AttributeError, OSError, ValueError):  # no stderr, a closed one, or a broken pipe
        sys.stderr.write("".join(f"{row}\n" for row in rows or ("",)))
        sys.stderr.flush()


def _is_shown() -> bool:
    """Return whether stderr is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # no stderr, or a closed one
        return False
