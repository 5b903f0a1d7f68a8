"""What one argument of a function was, over many calls: always the same, one of few, within bounds, or anything.

The invariant: a value that people may not see is neither compared nor kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from sayso.model.canonical.tags import MASK, dumps

__all__ = ["Field", "Scalar", "changed", "is_number"]

Scalar = str | int | float | bool | None

_FEW = 5
_MOST = 1_000
_LONG = 120
_MASKED = dumps(MASK)
_MISSING = object()


def is_number(value: object) -> TypeGuard[int | float]:
    """Say whether a value of a canonical tree is a plain number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass
class Field:
    """One argument, as it was in some calls.

    Attributes:
        seen: In how many calls it stood.
        values: The different values that it had, as JSON, with one that stands for each; at most a thousand.
        is_masked: Some value was masked; then nothing is said of it.
        low, high: The bounds, where all values are plain numbers.
    """

    seen: int = 0
    values: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    is_masked: bool = False
    low: float | None = None
    high: float | None = None
    _is_numeric: bool = True

    def add(self, value: Any) -> None:
        """Count a value, which is a part of a masked canonical tree."""
        self.seen += 1
        text = dumps(value)
        if self.is_masked or _MASKED in text:
            self.is_masked, self.values, self.low, self.high = True, {}, None, None
            return
        if len(self.values) < _MOST:
            self.values.setdefault(text, value)
        self._is_numeric = self._is_numeric and is_number(value)
        if self._is_numeric:
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)
        else:
            self.low = self.high = None

    def is_always(self, calls: int) -> bool:
        """Say whether it was the same in so many calls."""
        return not self.is_masked and self.seen == calls and len(self.values) == 1

    @property
    def few(self) -> list[Scalar] | None:
        """The values, where there are few and all are plain and short; else None."""
        found = list(self.values.values())
        is_plain = all(value is None or isinstance(value, str | int | float | bool) for value in found)
        if self.is_masked or not found or len(found) > _FEW or not is_plain or any(map(_is_long, found)):
            return None
        return found

    def said(self) -> str:
        """Return in words of ours what it was; values are ASCII."""
        few = self.few
        if self.is_masked:
            return "masked, and not compared"
        if few is not None and len(few) == 1:
            return f"always {dumps(few[0])}"
        if self.low is not None:
            return f"from {dumps(self.low)} to {dumps(self.high)}"
        if few is not None:
            return f"one of {', '.join(map(dumps, few))}"
        count = len(self.values)
        if count == 1:
            (text,) = self.values
            return f"always {text}" if len(text) <= _LONG else "always the same, which is long"
        return f"{count:,}{'' if count < _MOST else ' or more'} different values"


def _is_long(value: Scalar) -> bool:
    return isinstance(value, str) and len(value) > _LONG


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that differ, masked ones only as far as it can be seen."""
    return [name for name in {**before, **after} if before.get(name, _MISSING) != after.get(name, _MISSING)]
