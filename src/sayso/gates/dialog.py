"""The gate's way to the terminal dialog: whether a person can be asked here, and starting the dialog.

The dialog makes decisions, so it is a layer above the gate, in `sayso.terminal`. `sayso/__init__.py`, which runs before
every other module of the package, registers it here with `offer`. It starts at once (`converse`), or after those of
other tasks (`in_turn`).
"""

from __future__ import annotations

import contextvars
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from sayso.model.request import Request
    from sayso.stores.base import Store

    Converse = Callable[[Store, Request, Callable[[], bool], Callable[[], bool]], Request]

_load: Callable[[], Converse]


def offer(load: Callable[[], Converse]) -> None:
    """Register how to load the dialog, for the whole process."""
    global _load  # noqa: PLW0603  one terminal for the process
    _load = load


def person_is_at_terminal() -> bool:
    """Return whether a person can be asked here: stdin and stderr are a terminal with this program in front."""
    try:
        # The descriptor of stderr, as Textual replaces the stream by one that pretends, and reads the keys itself.
        if not (sys.stdin.isatty() and os.isatty(sys.stderr.fileno())):
            return False
        if sys.platform == "win32":
            return True
        # A background program that reads from the terminal is stopped by the system.
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no stdin, a closed one, or a replacement for it
        return False


def converse(store: Store, request: Request, is_over: Callable[[], bool], is_left: Callable[[], bool]) -> Request:
    """Ask the person at the terminal, and return the request as it is then; see `sayso.terminal.converse`."""
    return _load()(store, request, is_over, is_left)


def in_turn(
    store: Store, request: Request, is_over: Callable[[], bool], is_left: Callable[[], bool]
) -> Future[Request]:  # fmt: skip
    """Run `converse` in a separate thread, after the dialogs that tasks of this process requested earlier.

    Until its turn comes, the future can be cancelled and uses no thread.
    """
    return _thread().submit(contextvars.copy_context().run, converse, store, request, is_over, is_left)


@cache
def _thread() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix="sayso-dialog")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.cache_clear)  # a forked child has the pool without its thread
