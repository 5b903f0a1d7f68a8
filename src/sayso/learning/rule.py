"""A rule that people may want, as text to paste: it lets through what was always approved, and holds all else.

It is written only over what never varied, over few values, and over bounds of numbers; what varied freely is named in
it as what it does not look at. Values stand in it as Python literals in ASCII. The invariant: nothing that came from a
program can end a line or a literal of that text, and nothing here puts a rule into force.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping

from sayso.learning.field import Field, Scalar

__all__ = ["rule_text"]

_TAKEN = frozenset({"sayso"})


def rule_text(name: str, fields: Mapping[str, Field], calls: int, evidence: str) -> str | None:
    """Return a rule for `when=`; None where it would have to let every call through.

    Args:
        name: Of the function.
        fields: What its arguments were.
        calls: In how many calls.
        evidence: What speaks for it, in one line of ours.
    """
    tests: dict[str, str] = {}
    for argument, field in fields.items():
        test = _test(argument, field) if field.seen == calls else None  # a rule cannot ask for what may be missing
        if test is not None:
            tests[argument] = test
    if not tests:
        return None
    free = [f"{_quoted(argument)} ({field.said()})" for argument, field in fields.items() if argument not in tests]
    lines = [f"def {_function(name)}({', '.join(tests)}):", f"    # {evidence}"]
    if free:
        lines.append(f"    # It does not look at {', '.join(free)}.")
    lines.append(f"    if {' and '.join(tests.values())}:")
    return "\n".join([*lines, "        return sayso.allow()", "    return sayso.hold()", ""])


def _test(argument: str, field: Field) -> str | None:
    """Return a condition that holds for what an argument was; None where it can be none."""
    few = field.few
    if argument in _TAKEN or not argument.isidentifier() or not argument.isascii() or keyword.iskeyword(argument):
        return None
    if few is not None and len(few) == 1:
        return _is(argument, few[0])
    if field.low is not None:
        return f"{field.low!r} <= {argument} <= {field.high!r}"
    return None if few is None else f"{argument} in ({', '.join(map(ascii, few))})"


def _is(argument: str, value: Scalar) -> str:
    sign = "is" if value is None or isinstance(value, bool) else "=="
    return f"{argument} {sign} {value!a}"


def _function(name: str) -> str:
    return f"rule_for_{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_') or 'calls'}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else ascii(name)
