"""The dialog with a person at the terminal, as a call that blocks knows it.

The dialog takes decisions, so it stands above the gate, in `sayso.terminal`. `sayso/__init__.py`, which runs before any
other module of the package, offers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
