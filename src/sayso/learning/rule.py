"""A rule that people may want, as text to paste: it lets through what was always approved, and holds all else.

It is written only over what never varied, over few values, and over bounds of numbers; what varied freely is named in
it as what it does not look at. Where something that never varied cannot be written down there is no rule. Values stand
in it as Python literals in ASCII. The invariant: nothing that came from a program can end a line or a literal of that
text, and nothing here puts a rule into force.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any, cast

from sayso.learning.field import Field, Scalar
from sayso.model.canonical.decode import items_of, tag_in

__all__ = ["rule_text"]

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
    for argument, field in fields.items():
        if field.is_always(calls) and _literal(field) is None:
            return None  # a rule that looked away would let through what nobody has seen
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
