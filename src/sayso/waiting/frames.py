"""Tracebacks that end at the program's own line: the frames inside of sayso are taken off what it raises on purpose.

A fault of sayso itself keeps them. The cause of an error (`__cause__`) is never touched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from sayso.errors import SaysoError, StoreError
from sayso.waiting.signals import ConfirmationRejected, ConfirmationRequired

__all__ = ["say", "trim", "trimmed"]

P = ParamSpec("P")
R = TypeVar("R")

_MEANT = (SaysoError, ConfirmationRequired, ConfirmationRejected, KeyboardInterrupt)
_INSIDE = {"sayso", "asyncio", "concurrent", "functools", "inspect", "selectors", "threading"}


def trim(error: BaseException) -> None:
    """Take off the frames that come before the first one of the program's, or all where it has none.

    Where the program has none, what nobody raises on purpose keeps its frames.
    """
    step = error.__traceback__
    while step is not None and _module(step).partition(".")[0] in _INSIDE:
        step = step.tb_next
    if step is not None or _is_meant(error):
        error.with_traceback(step)  # an error may let nobody set its attributes


def trimmed(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that declares something, whose refusals point at the program's own line."""

    @functools.wraps(function)
    def declare(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (SaysoError, TypeError, ValueError) as error:
            trim(error)
            if error.__traceback__ is None or _is_inside(error.__traceback__):
                error.__traceback__ = None
                say(error)
            raise

    return declare


def say(error: BaseException, what: str = "nothing was run") -> None:
    """Add to a refusal what did not happen, where it does not say so itself."""
    text = str(error)
    if len(error.args) == 1 and "othing was" not in text and "not run" not in text:
        error.args = (f"{text} {what.capitalize()}" if text.endswith("?") else f"{text}; {what}",)


def _is_meant(error: BaseException) -> bool:
    if isinstance(error, StoreError):  # a fault, whose frames say where
        return False
    # By name: where nothing is async, asyncio is not loaded.
    if isinstance(error, _MEANT) or type(error).__name__ == "CancelledError":
        return True
    last = _last(error.__traceback__)
    return isinstance(error, TypeError) and last is not None and _module(last) in {"inspect", "sayso.model.signature"}


def _is_inside(step: TracebackType) -> bool:
    return _module(step).partition(".")[0] in _INSIDE


def _last(step: TracebackType | None) -> TracebackType | None:
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step


def _module(step: TracebackType) -> str:
    return str(step.tb_frame.f_globals.get("__name__"))
