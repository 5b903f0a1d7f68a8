"""Refusing a keyword that a function does not have, with the one that was probably meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["checks_keywords", "unknown_keyword"]

P = ParamSpec("P")
R = TypeVar("R")

# What people type who know another library, or another face of this one.
_OTHER_WORDS = {
    "approver": "by", "as_": "by", "reviewer": "by", "user": "by", "who": "by",
    "message": "comment", "note": "comment", "reason": "comment",
    "args": "arguments", "edited": "arguments", "edits": "changes",
    "function": "tool", "q": "text", "requester": "agent", "search": "text", "states": "state", "status": "state",
}  # fmt: skip


def checks_keywords(*, name: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function refuse an unknown keyword by name; Python itself only suggests one from 3.13 on.

    Args:
        name: What people call the function, where it is not its own name.

    Raises:
        TypeError: From the decorated function: it has no such keyword. It did not run.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        known = frozenset(
            one
            for one, parameter in inspect.signature(function).parameters.items()
            if parameter.kind in {parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD} and one != "self"
        )
        called = name or function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if not kwargs.keys() <= known:
                raise unknown_keyword(called, min(kwargs.keys() - known), known)
            return function(*args, **kwargs)

        return checked

    return decorated


def unknown_keyword(name: str, given: str, known: Collection[str]) -> TypeError:
    """Return the error for a keyword that a function does not have; `name` is what people call it."""
    from difflib import get_close_matches

    meant = _OTHER_WORDS.get(given, "")
    near = [meant] if meant in known else get_close_matches(given, sorted(known), 1)
    hint = f"did you mean {near[0]}=?" if near else f"it takes {', '.join(sorted(known))}."
    return TypeError(f"{name}() has no {given}=; {hint} Nothing was done")
