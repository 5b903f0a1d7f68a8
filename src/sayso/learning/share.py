"""A share of what was counted, and how sure one can be of it.

The invariant: few cases never look like certainty.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

__all__ = ["Share"]

_Z = 1.959963984540054  # of the normal distribution, for 95 %


class Share(NamedTuple):
    """So many of so many.

    Attributes:
        part: How many.
        whole: Of how many.
    """

    part: int
    whole: int

    @property
    def low(self) -> float:
        """The lower bound of Wilson's score interval at 95 %: what the share is at least, as far as the cases tell.

        It stays honest where the share is 0 or 1 and where cases are few (E. B. Wilson, 1927).
        """
        if self.whole == 0:
            return 0.0
        n, p, square = self.whole, self.part / self.whole, _Z * _Z
        centre = p + square / (2 * n)
        spread = _Z * sqrt(p * (1 - p) / n + square / (4 * n * n))
        return max(0.0, (centre - spread) / (1 + square / n))

    def __str__(self) -> str:
        return f"{self.part:,} of {self.whole:,} (at least {int(self.low * 100)} %)"
