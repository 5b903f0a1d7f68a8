"""What a model is told of a call: its result, how it failed, or why it was not made.

Invariant: what is told of a call that ended before comes from its record, where secrets are masked.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from sayso.model import canonical
from sayso.model.request import Request, State
from sayso.runs.values import plain

__all__ = ["Observation", "nested", "recorded", "text_of", "with_words"]


class Observation(NamedTuple):
    """What became of a call, in words."""

    text: str
    is_error: bool = False


def text_of(value: Any) -> str:
    """Return a value as a model reads it: text as it is, else JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)


def recorded(request: Request) -> Observation:
    """Return how a call ended that was made before; it is not made again."""
    done, words = request.execution, request.message_for_model()
    if request.state is State.FAILED:
        return Observation(words, is_error=True)
    if done is not None and done.resolved_by is not None:
        return Observation(words)
    if done is None or done.result is None:
        return _below(words, "it was run; what it returned is not kept")
    return _below(words, text_of(cast("Any", canonical.display(canonical.load(done.result)))["result"]))


def with_words(request: Request, got: Observation) -> Observation:
    """Return what a call gave that was made now, below what a person wrote or changed (`Request.message_for_model`)."""
    return recorded(request) if request.state is State.FAILED else _below(request.message_for_model(), *got)


def _below(words: str, text: str, is_error: bool = False) -> Observation:  # noqa: FBT001, FBT002  an observation's parts
    return Observation(f"{words}\n{text}" if words else text, is_error)


def nested() -> Observation:
    """Return what is told where a function inside of the tool's own waited: where it stood is not kept."""
    return Observation("what this call waited for was decided; make the same call again to go on", is_error=True)
