"""Scalars, fitted by pydantic: its coercion in lax mode, and its checks of limits and patterns.

Text for bytes is base64, as it is displayed. Patterns run on pydantic's linear-time engine only.
The invariant: a problem is told in words that do not depend on the value.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from sayso.model.canonical import MASK, value_of
from sayso.model.shape.limits import Descriptor

__all__ = ["is_scalar", "scalar", "spoken"]

_TEXT_RULES = frozenset({"strip_whitespace", "to_upper", "to_lower"})

# Only these messages of pydantic are passed on: others quote the value, or are the program's own words about it.
_DISCREET = frozenset(
    {
        *("bool_parsing", "bool_type", "bytes_too_long", "bytes_too_short", "bytes_type", "date_from_datetime_inexact"),
        *("date_type", "datetime_type", "decimal_max_digits", "decimal_max_places", "decimal_parsing", "decimal_type"),
        *("decimal_whole_digits", "dict_type", "extra_forbidden", "finite_number", "float_parsing", "float_type"),
        *("greater_than", "greater_than_equal", "int_from_float", "int_parsing", "int_parsing_size", "int_type"),
        *("is_instance_of", "less_than", "less_than_equal", "list_type", "missing", "multiple_of"),
        *("string_pattern_mismatch", "string_too_long", "string_too_short", "string_type", "time_delta_type"),
        *("time_type", "too_long", "too_short", "tuple_type", "uuid_type"),
    }
)
_PLAIN_WORDS = {
    "value_error": "is refused by the program's own check",
    "assertion_error": "is refused by the program's own check",
    "date_parsing": "Input should be a valid date, YYYY-MM-DD",
    "date_from_datetime_parsing": "Input should be a valid date, YYYY-MM-DD",
    "datetime_parsing": "Input should be a valid datetime, YYYY-MM-DDTHH:MM:SS with an offset if it has one",
    "datetime_from_date_parsing": "Input should be a valid datetime, YYYY-MM-DDTHH:MM:SS with an offset if it has one",
    "time_parsing": "Input should be a valid time, HH:MM:SS",
    "time_delta_parsing": "Input should be a valid duration, as P1DT2H30M or 26:30:00",
    "uuid_parsing": "Input should be a valid UUID",
    "path_type": "Input should be a valid path",
}


def spoken(error: Mapping[str, Any]) -> str:
    """Return what a pydantic error may say aloud."""
    kind = str(error["type"])
    return str(error["msg"]) if kind in _DISCREET else _PLAIN_WORDS.get(kind, f"Input is not valid ({kind})")


def is_scalar(descriptor: Descriptor, value: object) -> bool:
    """Say whether a value is of the kind already."""
    kind, cls = descriptor["kind"], type(value)
    if kind == "path":
        return cls.__module__.startswith("pathlib")
    if kind == "secret":
        return cls.__name__ == ("SecretStr" if descriptor["of"] == "str" else "SecretBytes")
    return cls is _annotation(kind)


def scalar(descriptor: Descriptor, value: object) -> tuple[Any, str | None]:
    """Return the fitted value and None, or nothing and the problem."""
    import pydantic

    kind: str = descriptor["kind"]
    name = f"secret {descriptor['of']}" if kind == "secret" else kind
    if kind == "secret" and value == MASK:
        return None, "Input is the mask, not a value; leave it out to keep the secret"
    if name in ("bytes", "secret bytes") and isinstance(value, str):
        try:
            value = binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
        except ValueError:
            return None, "Input should be base64 text"
    limits = descriptor.get("limits")
    try:
        adapter = _adapter(name, "{}" if limits is None else json.dumps(limits))
        return adapter.validate_python(value), None
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return None, "; ".join(spoken(detail) for detail in found)
    except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError, TypeError):
        return None, "Input cannot be checked here: the limits of its type are not known to pydantic"


def _annotation(name: str) -> Any:
    import datetime
    import decimal
    import pathlib
    import uuid

    import pydantic

    found: dict[str, Any] = {
        **{kind.__name__: kind for kind in (bool, int, float, str, bytes)},
        **{kind.__name__: kind for kind in (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)},
        "decimal": decimal.Decimal,
        "uuid": uuid.UUID,
        "path": pathlib.Path,
        "secret str": pydantic.SecretStr,
        "secret bytes": pydantic.SecretBytes,
    }
    return found[name]


def _with(annotation: Any, rule: object) -> Any:
    return Annotated[annotation, rule]


@lru_cache(maxsize=1024)
def _adapter(name: str, limits: str) -> Any:
    from pydantic import Field, StringConstraints, TypeAdapter
    from pydantic_core import SchemaError

    rules = {rule: value_of(form, {}) for rule, form in json.loads(limits).items()}
    text_rules: dict[str, Any] = {rule: rules.pop(rule) for rule in _TEXT_RULES & rules.keys()}
    annotation: Any = _annotation(name)
    if name in ("float", "decimal"):
        rules["allow_inf_nan"] = False
    if text_rules:
        annotation = _with(annotation, StringConstraints(**text_rules))
    if rules:
        options: dict[str, Any] = rules
        annotation = _with(annotation, Field(**options))
    try:
        return TypeAdapter[Any](annotation)
    except SchemaError as error:
        # A pattern that the linear-time engine does not take; another engine would let a pattern hang this process.
        raise TypeError("pattern") from error
