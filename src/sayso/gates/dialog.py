"""The dialog with a person at the terminal, as a call that blocks knows it.

The dialog takes decisions, so it stands above the gate, in `sayso.terminal`. `sayso/__init__.py`, which runs before any
other module of the package, offers it.
"""

from __future__ import annotations

import contextvars
import os
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
    """Say how the dialog is loaded, for the whole process."""
    global _load  # noqa: PLW0603  one terminal for the process
    _load = load


def converse(store: Store, request: Request, is_over: Callable[[], bool], is_left: Callable[[], bool]) -> Request:
    """Ask the person at the terminal, and return the request as it stands then; `sayso.terminal.converse` says more."""
    return _load()(store, request, is_over, is_left)


def in_turn(
    store: Store, request: Request, is_over: Callable[[], bool], is_left: Callable[[], bool]
) -> Future[Request]:  # fmt: skip
    """Do as `converse` in a thread of its own, after the dialogs that tasks of this process asked for before.

    Until its turn comes the future can be cancelled, and takes no thread.
    """
    return _thread().submit(contextvars.copy_context().run, converse, store, request, is_over, is_left)


@cache
def _thread() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix="sayso-dialog")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.cache_clear)  # a forked child has the pool and not its thread
