"""Asking on the terminal where the program runs, and saying there what waits.

`sayso.waiting.block` calls these; the conversation itself is `sayso.waiting.talk`. Everything goes to stderr, because
stdout is the program's. Invariant: whatever happens to the terminal, a request is decided by a typed line or not at
all.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from contextlib import suppress

from sayso import clock, config, errors
from sayso.model.request import Request, State
from sayso.model.show import card
from sayso.model.show.escape import escape
from sayso.model.show.label import is_random, short, time_left, token
from sayso.model.show.standing import changed, decided
from sayso.reviews import Review
from sayso.stores.base import Store
from sayso.waiting.screen import Gone, Over, Screen, is_there
from sayso.waiting.talk import Talk

__all__ = ["announce", "command", "converse", "is_there", "say_goodbye"]

_LOOK_AGAIN = 0.1
_INDENT = "       "

# Two conversations at once would take each other's lines.
_turn = threading.Lock()


def announce(store: Store, request: Request) -> None:
    """Say on stderr what waits and where it can be decided, where there is no terminal. Never raises."""
    waits = f"expires {time_left(request.expires_at, clock.now())}"
    _say(
        f"sayso  waiting for a person  {card.headline(request)}   {short(request.id)}   {waits}",
        *(f"{_INDENT}warning: {said}" for said in card.cautions(request)),
        _INDENT + _where(store, request),
    )


def converse(store: Store, request: Request, is_over: Callable[[], bool]) -> Request:
    """Show a request on the terminal and take the person's decision, in the name of the configured reviewer.

    Returns:
        The request as it stands: decided here or elsewhere, or still pending when the person detached, the terminal
        went away, or `is_over` said that it is time.

    Raises:
        StoreError: The store failed.
    """
    while not _turn.acquire(timeout=_LOOK_AGAIN):
        if is_over():
            return store.get(request.id)
    try:
        return _converse(store, request, is_over)
    finally:
        _turn.release()


def _converse(store: Store, request: Request, is_over: Callable[[], bool]) -> Request:
    if is_over():
        return store.get(request.id)
    try:
        after, _ = Talk(Screen(is_over), Review(store, channel="terminal"), request, {"d": "detach"}).hold()
    except (Over, Gone):
        after = store.get(request.id)
    if after.state is State.PENDING:
        say_goodbye(store, after)
    else:
        _say(f"sayso  {short(after.id)} {decided(after, clock.now())}", *_edits(after))
    return after


def _edits(request: Request) -> list[str]:
    if request.edited is None:
        return []
    return [f"{_INDENT}{change.line()}" for change in changed(request.call, request.edited, request.redact)]


def say_goodbye(store: Store, request: Request) -> None:
    """Say on stderr that a request goes on waiting, how to decide it and how to go on. Never raises."""
    waits = f"expires {time_left(request.expires_at, clock.now())}"
    rows = [f"sayso  {short(request.id)} still waits, {waits}", _INDENT + _where(store, request)]
    if not store.url.startswith("memory:"):
        rows.append(_INDENT + _how_to_go_on(request))
    _say(*rows)


def _how_to_go_on(request: Request) -> str:
    if is_random(request.run_id):
        return 'a new start asks anew; a run with a name, `with sayso.run("…"):`, would find the decision'
    return f"go on with: the same call in the run {token(request.run_id)}, in any process, finds the decision"


def _where(store: Store, request: Request) -> str:
    if store.url.startswith("memory:"):
        return "its store is in memory: only this program can decide it (sayso.Review), and it ends with the program"
    return f"decide with: {_decide_with(store, request)}"


def _decide_with(store: Store, request: Request) -> str:
    verb = "approve" if request.kind == "call" else "answer"
    value = "" if request.kind == "call" else " VALUE"
    return f"{command(store)} {verb} {short(request.id)}{value}"


def command(store: Store) -> str:
    """Return how `sayso` is called so that it finds this store, as text for a shell."""
    with suppress(errors.ConfigError, OSError, RuntimeError):  # no settings to read, no home: then it is spelled out
        if config.address_nearby() == store.url:
            return "sayso"
    return f"sayso --store {escape(shlex.quote(store.url))}"


def _say(*rows: str) -> None:
    with suppress(Gone):
        Screen(lambda: False).say(*rows)
