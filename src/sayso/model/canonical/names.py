"""Stable names of classes and functions (`module:QualName`), and the notation for a place inside the arguments.

A name is only compared, or looked up among loaded classes; nothing is imported by name. Invariant: a class has the same
name however its program was started.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, cast

_KEY_SHOWN = 40


def _main_name() -> str:
    """Return the name that the main file would have if it were imported, so that both ways give the same name."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    # Not with pathlib, which would be imported just for this.
    return "__main__" if file is None else os.path.splitext(os.path.basename(file))[0]  # noqa: PTH119, PTH122


def _name(thing: Any) -> str:
    given = cast("dict[str, object]", getattr(thing, "__dict__", {})).get("__sayso_name__")
    if isinstance(given, str):
        return given
    module = getattr(thing, "__module__", None) or "builtins"
    return f"{_main_name() if module == '__main__' else module}:{thing.__qualname__}"


@lru_cache(maxsize=1024)
def class_name(cls: type) -> str:
    """Return `module:QualName`, or the `__sayso_name__` that is set on the class itself, as on stand-ins."""
    return _name(cls)


def function_name(function: Callable[..., object]) -> str:
    """Return `module:QualName` of what would run: the function of a partial, the class of a callable object."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)  # pyright: ignore[reportUnknownMemberType]
    return _name(function if hasattr(function, "__qualname__") else type(function))


def place(steps: Sequence[str | int], quote: Callable[[str], str] = json.dumps) -> str:
    """Return the path of a value, e.g. `order.lines[2].price`; the first step is the argument's name.

    A name that is not an identifier is quoted, `order["unit price"]`: in ASCII, unless `quote` does it differently.
    """
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() and (not text or len(step) <= _KEY_SHOWN):
            text += f".{step}" if text else step
        else:
            shown = quote(step if len(step) <= _KEY_SHOWN else step[:_KEY_SHOWN] + "...")
            text += f"[{shown}]" if text else shown
    return text or "arguments"
