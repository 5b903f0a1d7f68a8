"""What a model is told of a call: its result, how it failed, or why it was not made.

Invariant: what is told of a call that ended before comes from its record, where secrets are masked.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from sayso.model import canonical
from sayso.model.request import Request, State
from sayso.model.show.standing import changed
from sayso.runs.values import plain

__all__ = ["Observation", "approval_of", "nested", "recorded", "text_of"]


class Observation(NamedTuple):
    """What became of a call, in words."""

    text: str
    is_error: bool = False


def text_of(value: Any) -> str:
    """Return a value as a model reads it: text as it is, else JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)


def recorded(request: Request) -> Observation:
    """Return how a call ended that was made before; it is not made again."""
    done = request.execution
    if request.state is State.FAILED:
        return Observation(
            approval_of(request) + (done.error if done is not None and done.error else "it failed"), is_error=True
        )
    if done is None or done.result is None:
        return Observation(approval_of(request) + "it was run; what it returned is not kept")
    return Observation(
        approval_of(request) + text_of(cast("Any", canonical.display(canonical.load(done.result)))["result"])
    )


def approval_of(request: Request) -> str:
    """Return what the model should know about how its call was approved, for the line before the result."""
    told: list[str] = []
    if request.edited is not None:
        listed = "; ".join(change.line() for change in changed(request.call, request.edited, request.redact))
        told.append(f"the reviewer changed the arguments before it ran: {listed}")
    if request.decision is not None and request.decision.comment:
        told.append(f"the reviewer's comment: {request.decision.comment}")
    return f"({'; '.join(told)})\n" if told else ""


def nested() -> Observation:
    """Return what is told where a function inside of the tool's own waited: where it stood is not kept."""
    return Observation("what this call waited for was decided; make the same call again to go on", is_error=True)
