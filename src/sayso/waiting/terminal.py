"""Asking on the terminal where the program runs, and saying there what waits.

`sayso.waiting.block` calls these; the conversation itself is `sayso.waiting.talk`. Everything goes to stderr, because
stdout is the program's. Invariant: whatever happens to the terminal, a request is decided by a typed line or not at
all.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress

from sayso import clock, config, errors
from sayso.model.duration import ago
from sayso.model.request import Request, State
from sayso.model.text import escape
from sayso.reviews import Review
from sayso.stores.base import Store
from sayso.view import card
from sayso.view.card import changed, decided
from sayso.view.summary import is_random, short, time_left, token
from sayso.waiting.screen import Gone, Over, Screen, is_there
from sayso.waiting.talk import Talk

__all__ = ["announce", "can_decide", "command", "converse", "is_there", "last_words", "say_goodbye", "turn"]

_LOOK_AGAIN = 0.1
_INDENT = "       "
_NOW = "just now"

# Two conversations at once would take each other's lines.
_turn = threading.Lock()


def _after_fork() -> None:
    global _turn  # noqa: PLW0603  the thread that had the turn is not there any more in a forked child
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def turn() -> threading.Lock:
    """Return the lock that whoever talks to the person at the terminal holds while it does."""
    return _turn


def can_decide(store: Store) -> bool:
    """Say whether a person can decide through this store: not with a program's token for a server, which only asks."""
    return not store.url.startswith(("https://", "http://"))


def announce(store: Store, request: Request) -> None:
    """Say on stderr what waits and where it can be decided, where nobody can be asked here. Never raises."""
    now = clock.now()
    asked, waits = ago(request.created_at, now), f"expires {time_left(request.expires_at, now)}"
    call, name = card.headline(request), short(request.id)
    _say(
        f"sayso  waiting for a person  {call}   {name}   {waits}"
        if asked == _NOW
        else f"sayso  waiting again for a person  {call}   {name}   asked {asked}, {waits}",
        *(f"{_INDENT}warning: {said}" for said in card.cautions(request)),
        _INDENT + _where(store, request),
    )


def converse(
    store: Store, request: Request, is_over: Callable[[], bool], is_left: Callable[[], bool] = lambda: False
) -> Request:
    """Show a request on the terminal and take the person's decision, in the name of the configured reviewer.

    Args:
        store: Where the request lives.
        request: What waits.
        is_over: Whether there is nothing to be asked here any more.
        is_left: Whether the program has stopped waiting for it.

    Returns:
        The request as it stands: decided here or elsewhere, or still pending when the person detached, the terminal
        went away, or `is_over` said that it is time.

    Raises:
        StoreError: The store failed.
    """
    mine = turn()
    while not mine.acquire(timeout=_LOOK_AGAIN):
        if is_over():
            return store.get(request.id)
    try:
        return _converse(store, request, is_over, is_left)
    finally:
        mine.release()


def _converse(store: Store, request: Request, is_over: Callable[[], bool], is_left: Callable[[], bool]) -> Request:
    if is_over():
        return store.get(request.id)
    screen, is_over_elsewhere = Screen(is_over), False
    talk = Talk(
        screen, Review(store, channel="terminal"), request, {"d": "detach"}, lambda: _may_detach(screen, request)
    )
    try:
        after, _ = talk.hold()
    except (Over, Gone) as end:
        after, is_over_elsewhere = store.get(request.id), isinstance(end, Over)
    if is_left():
        _say(*_not_awaited(store, request))
    elif after.state is State.PENDING and is_random(after.run_id) and not is_over_elsewhere:
        _say(f"sayso  {short(after.id)} is withdrawn: its run has no name, so nobody could come back to it")
    elif after.state is State.PENDING:
        say_goodbye(store, after)
    else:
        _say(f"sayso  {short(after.id)} {decided(after, clock.now())}", *_edits(after))
    return after


def _may_detach(screen: Screen, request: Request) -> bool:
    """Ask before a request is left that nobody could come back to: it is withdrawn then."""
    if not is_random(request.run_id):
        return True
    screen.say(
        "  its run has no name, so nobody could come back to it: to detach is to withdraw it",
        '  (with sayso.run("a name"): around the call, it would go on waiting)',
    )
    return screen.ask("withdraw it? [y/N] ").casefold() in {"y", "yes"}


def _edits(request: Request) -> list[str]:
    if request.edited is None:
        return []
    return [f"{_INDENT}{change.line()}" for change in changed(request.call, request.edited, request.redact)]


def say_goodbye(store: Store, request: Request, *, is_interrupted: bool = False) -> None:
    """Say on stderr that a request goes on waiting, how to decide it and what then runs. Never raises.

    Args:
        store: Where the request lives.
        request: What still waits.
        is_interrupted: Ctrl-C was pressed, and the terminal shows it at the end of a row.
    """
    if is_interrupted and Screen.is_shown():
        _say()
    _say(*(_not_awaited if is_interrupted else _still_waits)(store, request))


def last_words(store: Store, request: Request) -> list[str]:
    """Return what is to be said of a request when the program is made to end. Takes no lock."""
    name = short(request.id)
    if _is_in_memory(store) or is_random(request.run_id):
        return [f"sayso  stopped while {name} waited; nobody comes back for it, a new start asks anew"]
    first, *others = _still_waits(store, request)
    return [first.replace("sayso  ", "sayso  stopped; ", 1), *others]


def _not_awaited(store: Store, request: Request) -> list[str]:
    """Return what is said of a request for which this program does not wait any more."""
    if not is_random(request.run_id):
        return _still_waits(store, request)
    what = "call" if request.kind == "call" else "question"
    return [
        f"sayso  {short(request.id)} is withdrawn: nobody waits for it any more, and its run has no name",
        f'{_INDENT}a new start asks anew; with sayso.run("a name"): around the {what}, it would find this one',
    ]


def _still_waits(store: Store, request: Request) -> list[str]:
    what = "call" if request.kind == "call" else "question"
    waits = f"sayso  {short(request.id)} still waits, expires {time_left(request.expires_at, clock.now())}"
    where = _where(store, request)
    if _is_in_memory(store):
        return [waits, _INDENT + where]
    if is_random(request.run_id):
        return [
            f"{waits}, and counts only while this program lives, because its run has no name",
            f"{_INDENT}until then {where}",
            f'{_INDENT}a new start asks anew; with sayso.run("a name"): around the {what}, it would find this one',
        ]
    run = token(request.run_id)
    return [
        waits,
        _INDENT + where,
        f"{_INDENT}then start the program again: the same {what} in the run {run} finds the decision",
    ]


def _is_in_memory(store: Store) -> bool:
    return store.url.startswith("memory:")


def _where(store: Store, request: Request) -> str:
    if _is_in_memory(store):
        return "its store is in memory: only this program can decide it (sayso.Review), and it ends with the program"
    if not can_decide(store):
        return f"decide at {escape(store.url)}/r/{request.id}"
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
