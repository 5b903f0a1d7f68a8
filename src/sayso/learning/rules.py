"""What the arguments of a function were over many calls, and the rule that lets the usual ones through."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from sayso.model.canonical.decode import items_of, tag_in
from sayso.model.canonical.tags import MASK, dumps

__all__ = ["Field", "Scalar", "changed", "is_number", "rule_text"]

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


_TAKEN = frozenset({"sayso", "__debug__"})
_ROOM = 500
_SINGLE = frozenset({"None", "True", "False"})


def rule_text(name: str, fields: Mapping[str, Field], calls: int, evidence: str) -> str | None:
    """Return a rule for `when=`; None where it would have to let through what is unlike these calls.

    Args:
        name: Of the function.
        fields: What its arguments were.
        calls: In how many calls.
        evidence: What speaks for it, in one line of ours.
    """
    tests: dict[str, str] = {}
    for argument, known in fields.items():
        if known.is_always(calls) and _literal(known) is None:
            return None  # a rule that looked away would let through what nobody has seen
        test = _test(argument, known) if known.seen == calls else None  # a rule cannot ask for what may be missing
        if test is not None:
            tests[argument] = test
    if not tests:
        return None
    free = [f"{_quoted(argument)} ({field.said()})" for argument, field in fields.items() if argument not in tests]
    lines = [f"def {_function(name)}({', '.join(tests)}):", f"    # {evidence}"]
    if free:
        lines.append(f"    # It does not look at {', '.join(free)}.")
    lines.append(f"    if {' and '.join(tests.values())}:")
    return "\n".join([*lines, "        return sayso.allow()", "    return sayso.policy.hold()", ""])


def _test(argument: str, field: Field) -> str | None:
    """Return a condition that holds for what an argument was; None where it can be none."""
    few = field.few
    if argument in _TAKEN or not argument.isidentifier() or not argument.isascii() or keyword.iskeyword(argument):
        return None
    if len(field.values) == 1:
        literal = _literal(field)
        return None if literal is None else f"{argument} {'is' if literal in _SINGLE else '=='} {literal}"
    if field.low is not None:
        return f"{field.low!r} <= {argument} <= {field.high!r}"
    return None if few is None else f"{argument} in ({', '.join(map(ascii, few))})"


def _literal(field: Field) -> str | None:
    """Return the one value of an argument as Python; None where it is too long, or of a type that is no literal."""
    (tree,) = field.values.values()
    try:
        literal = ascii(_value(tree))
    except ValueError:
        return None
    return literal if len(literal) <= _ROOM else None


def _value(tree: Any) -> Scalar | list[Any] | tuple[Any, ...] | dict[str, Any]:
    """Return what a canonical tree stands for; raises `ValueError` where that is no text, number, list or dict."""
    items = items_of(tree)
    if items is not None:
        values = [_value(item) for item in items]
        return tuple(values) if isinstance(tree, dict) else values
    if not isinstance(tree, dict):
        return tree
    named = cast("dict[str, Any]", tree)
    if tag_in(named) is not None:
        raise ValueError("no literal")
    return {name: _value(held) for name, held in named.items()}


def _function(name: str) -> str:
    return f"rule_for_{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_') or 'calls'}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else ascii(name)
