"""Finds the amounts in a call by the names of its arguments, and formats the largest one for a list.

A program may send a number of any size, so nothing here does arithmetic: `-` raises `Overflow` for `1e9999999`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from sayso.model.rendering import is_amount, money
from sayso.model.request import Request

_IN_CURRENCY = re.compile(r"(?i)(?:^|_)(?:eur|usd|gbp)(?:$|_)")
_CURRENCY = re.compile(r"(?i)(?:^|_)(?:currency|ccy|unit)(?:$|_)")
_CODE = re.compile("[A-Za-z]{1,4}")
_MOST_DIGITS, _LONGEST = 15, 40


def names_currency(name: str) -> bool:
    """Return whether the name of an amount contains its currency, as in `total_eur`."""
    return _IN_CURRENCY.search(name.rpartition(".")[2]) is not None


def is_currency(name: str) -> bool:
    """Return whether an argument of this name is the currency of an amount."""
    return _CURRENCY.search(name.rpartition(".")[2]) is not None


def currency_code(value: object) -> str | None:
    """Return a code such as `EUR`, which needs no quotes; None for anything else."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) else None


def amount_of(request: Request) -> Decimal:
    """Return the largest number among the arguments named as an amount, such as `amount`; 0 if there is none."""
    return max((number.copy_abs() for number, _ in _found(request)), default=Decimal(0))


def amount_text(request: Request) -> str:
    """Return the largest amount, with its currency if an argument beside it names one; empty if there is none."""
    number, unit = max(_found(request), key=lambda found: found[0].copy_abs(), default=(Decimal(0), None))
    if number == 0 or number.adjusted() > _MOST_DIGITS or number.adjusted() < -_MOST_DIGITS:
        return ""
    return f"{money(number)} {unit}" if unit else money(number)


def _found(request: Request) -> Iterator[tuple[Decimal, str | None]]:
    if request.kind == "call" and request.purged_at is None:
        yield from _amounts(request.effective.arguments)


def _amounts(value: Any, name: str = "", unit: str | None = None) -> Iterator[tuple[Decimal, str | None]]:
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        codes = (currency_code(inner) for key, inner in inside.items() if is_currency(key))
        unit = next(filter(None, codes), unit)
        for key, inner in inside.items():
            yield from _amounts(inner, key, unit)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _amounts(inner, name, unit)
    elif isinstance(value, int | float | str) and not isinstance(value, bool) and is_amount(name):
        text = str(value)
        with suppress(InvalidOperation):
            found = Decimal(text if len(text) <= _LONGEST else "nan")  # a cut text would be another number
            if found.is_finite():
                yield found, unit
