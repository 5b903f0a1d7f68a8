"""Strict JSON (RFC 8259): rejects what two parsers could read differently.

That is a duplicate key, NaN, a number too large, half of a surrogate pair, and deep nesting.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn, cast

_MAX_DEPTH = 64
_TOO_DEEP = f"it is nested deeper than {_MAX_DEPTH} levels"
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(text: str) -> Any:
    """Parse a text; raises `ValueError` with the reason if it is not valid."""
    try:
        content = _decoder.decode(text)
    except RecursionError:
        raise _NotStrict(_TOO_DEEP) from None
    except (json.JSONDecodeError, _NotStrict):
        raise
    except ValueError:  # Python's own message names a setting of this process
        raise _NotStrict("a number has too many digits") from None
    # A quick test first: deep nesting needs many brackets, and half of a surrogate pair an escape or a non-ASCII text.
    if not text.isascii() or "\\u" in text or text.count("{") + text.count("[") > _MAX_DEPTH:
        _check_values(content)
    return content


def copy_of(value: Any) -> Any:
    """Return a value as `loads` would parse it; raises as it does, and `TypeError` for what JSON cannot express."""
    try:
        return loads(json.dumps(value, allow_nan=False, default=_dict))
    except RecursionError:
        raise _NotStrict(_TOO_DEEP) from None


def _dict(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


class _NotStrict(ValueError):
    """JSON that parsers reject or read differently."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotStrict("an object has a duplicate key")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is not a number in JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrict("a number is too large")
    return number


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite)


def _check_values(content: Any) -> None:
    """Reject deep nesting and invalid Unicode. Not recursive, because deep nesting would exhaust the stack."""
    level: list[Any] = [content]
    for _ in range(_MAX_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            match value:
                case dict():
                    below += [*value.keys(), *value.values()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
                case list():
                    below += value
                case str() if _SURROGATE.search(value):
                    raise _NotStrict("a string has a lone surrogate")
                case _:
                    pass
        if not below:
            return
        level = below
    raise _NotStrict(_TOO_DEEP)
