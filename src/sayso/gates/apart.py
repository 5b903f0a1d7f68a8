"""Two functions that are gated as one tool, and do not have the same objects around them, are kept apart.

Which function asked for a request is remembered here, for this process and weakly; another process cannot know it.
What is remembered goes when the gate does, when the call was executed, and at the latest when the request has ended.
The invariant: a gate never uses a request of which it is known that a different function asked for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from weakref import ref

from sayso import clock
from sayso.errors import ConfigError
from sayso.gates.around import is_same
from sayso.gates.gate import Gate
from sayso.model.request import Request

__all__ = ["forget", "keep_apart"]

_FEW = 64


class _Asked(NamedTuple):
    gate: ref[Gate]
    until: datetime


_asked: dict[str, _Asked] = {}
_room = [_FEW]


def keep_apart(gate: Gate, request: Request) -> None:
    """Remember that a gate met a request, if nobody else has before.

    Raises:
        ConfigError: A live gate of the same tool met it before, whose function has other objects around it.
    """
    if gate.stands_alone:
        return
    known = _asked.get(request.id)
    other = None if known is None else known.gate()
    if other is gate:
        return
    if other is not None and not is_same(other.surroundings, gate.surroundings):
        raise ConfigError(
            f"two functions are gated as {gate.tool!r}, with different objects around them, and the other one asked"
            f" for {request.id}; give each a name= of its own. The call was not run"
        )
    if other is None:
        _asked[request.id] = _Asked(ref(gate), request.expires_at + request.approval_window)
        _tidy()


def forget(request_id: str) -> None:
    """Drop what is remembered of a request whose call was executed."""
    _asked.pop(request_id, None)


def _tidy() -> None:
    if len(_asked) <= _room[0]:
        return
    now = clock.now()
    for request_id, asked in list(_asked.items()):
        if asked.gate() is None or asked.until <= now:
            _asked.pop(request_id, None)
    # Twice what had to stay, so that looking at all of them is rare however many there are.
    _room[0] = max(_FEW, 2 * len(_asked))
