"""How long values take that nobody sends by mistake, until they are dealt with: the worst, in processor time."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from sayso.errors import ArgumentError
from sayso.model.canonical import encode
from tests.model.abuse import ABUSES

from .contest import Plan
from .statistic import median
from .table import Row, seconds

__all__ = ["abuse"]

_WORST = 5
_AIM = 0.2


def abuse(plan: Plan) -> list[Row]:
    """Encode each of them some times over."""
    taken = {name: [_encoded(make()) for _ in range(plan.pick(20, 3))] for name, make in ABUSES.items()}
    worst = sorted(taken, key=lambda name: median(taken[name]), reverse=True)[:_WORST]
    longest = max(map(max, taken.values()))
    note = f"processor time; aim: each under {seconds(_AIM)}, the longest of all took {seconds(longest)}"
    return [Row.of(f"the worst of {len(taken)} abusive arguments", name, "", taken[name], note=note) for name in worst]


def _encoded(value: Any) -> float:
    begun = time.process_time()
    with suppress(ArgumentError):
        encode({"value": value})
    return time.process_time() - begun
