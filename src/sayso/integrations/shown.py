"""The JSON values that people see of a tool's arguments, and whether they have all that the tool gets.

A framework's own values, such as pydantic models, reach an unchanged call as they are. A model may leave a field out of
its JSON, or change it there, and then nobody would see what runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, cast

from sayso import errors

_NOTHING = object()
_PLAIN = {str, int, float, bool, type(None)}


def plain(value: Any) -> Any:
    """Convert pydantic models, dataclasses and similar values to JSON values; others become their text."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)


def is_shown(value: Any, shown: Any) -> bool:
    """Return whether JSON values have all of the values that the tool gets."""
    try:
        must_be_shown(value, shown)
    except errors.ArgumentError:
        return False
    return True


def must_be_shown(value: Any, shown: Any, place: str = "") -> None:
    """Check that JSON values have all of the values that the tool gets; `place` is the path of the value.

    Raises:
        ArgumentError: A part is missing, or is another one.
    """
    if type(value) in _PLAIN and type(value) is type(shown) and value == shown:
        return
    parts = None if shown is _NOTHING else _parts(value, shown)
    if parts is None and not _is_leaf_shown(value, shown):
        raise errors.ArgumentError(place, "is left out or changed where its model is converted to JSON")
    for name, part, other in parts or ():
        must_be_shown(part, other, f"{place}.{name}" if place and name else place or name)


def _is_leaf_shown(value: Any, shown: Any) -> bool:
    from pydantic import SecretBytes, SecretStr

    if isinstance(value, SecretBytes | SecretStr) and value.get_secret_value():
        return False  # its JSON is a mask, which the tool would get after an edit
    if type(value) in {int, float} and type(shown) in {int, float} and value == shown:
        return True  # the default 0 of a float is shown as 0.0
    return shown is not _NOTHING and json.dumps(plain(value)) == json.dumps(shown)


def _parts(value: Any, shown: Any) -> list[tuple[str, Any, Any]] | None:
    """Return the parts of a value, each with its name and how it is shown; None if it has none."""
    from pydantic import BaseModel, RootModel

    named = cast("dict[str, Any]", shown) if isinstance(shown, dict) else {}
    if isinstance(value, RootModel):
        return [("", cast("Any", value).root, shown)]
    if isinstance(value, BaseModel):
        own = [*type(value).model_fields, *(value.model_extra or ())]
        return _of_fields(value, own, named, value.model_fields_set)
    if is_dataclass(value):
        own = [one.name for one in fields(value)]
        return _of_fields(value, own, named, own)
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value)
        keys = [str(key) for key in plain(dict.fromkeys(pairs))]  # which are converted, too
        if not len(keys) == len(pairs) == len(named):
            return [("", pairs, _NOTHING)]
        return [(key, part, named.get(key, _NOTHING)) for key, part in zip(keys, pairs.values(), strict=True)]
    if isinstance(value, list | tuple | set | frozenset):
        items = [*cast("Iterable[Any]", value)]
        listed = cast("list[Any]", shown) if isinstance(shown, list) else None
        if listed is None or len(listed) != len(items):
            return [("", items, _NOTHING)]
        return [(str(n), *pair) for n, pair in enumerate(zip(items, listed, strict=True))]
    return None


def _of_fields(
    value: object, own: Iterable[str], named: dict[str, Any], given: Iterable[str]
) -> list[tuple[str, Any, Any]]:
    """Return the fields of a model or dataclass; one that is left out and was not given is a default."""
    described, found = cast("dict[str, Any]", getattr(type(value), "__pydantic_fields__", {})), list[Any]()
    for name in own:
        about = described.get(name)
        keys = [name] if about is None else [about.serialization_alias, about.alias, name]
        other = next((named[key] for key in keys if key in named), _NOTHING)
        if other is not _NOTHING or name in given:
            found.append((name, getattr(value, name), other))
    return found
