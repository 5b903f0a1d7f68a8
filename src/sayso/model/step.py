"""What the steps of a plan have to be like after an edit, beside their types.

A reviewer's process need not know the protocol (`sayso.mplp`), and must all the same take no edit that could not be
carried out: the approval would be spent on it. Invariant: what is let through here, and fits the types of the call, is
a plan of the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

__all__ = ["ID_PATTERN", "wrong_steps"]

ID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_ID = re.compile(ID_PATTERN.removeprefix("^").removesuffix("$"))


def wrong_steps(arguments: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the steps in a plan's arguments, which are plain JSON values: `where: what`."""
    match arguments:
        case {"steps": [*steps]}:
            # A program on another machine may ask with types of its own, and then anything may stand there.
            return list(_wrong([step if isinstance(step, dict) else {} for step in steps]))
        case _:
            return []


def _wrong(steps: list[dict[str, Any]]) -> Iterator[str]:
    if not any(str(step.get("description", "")).strip() for step in steps):
        yield "steps: no step says what is to be done"
    known = [step.get("step_id") for step in steps]
    for index, step in enumerate(steps):
        own, needs = step.get("step_id"), step.get("dependencies")
        if own is not None and _ID.fullmatch(str(own)) is None:
            yield f"steps[{index}].step_id: should be a UUID v4 in lower case; leave it out, and the step gets one"
        if own is not None and own in known[:index]:
            yield f"steps[{index}].step_id: is the id of another step already"
        for place, needed in enumerate(cast("list[Any]", needs) if isinstance(needs, list) else ()):
            if needed not in known:
                yield f"steps[{index}].dependencies[{place}]: there is no such step in this plan"
