"""The canonical form: exactly one text for each set of arguments. `encode` writes it, `decode` reads it.

`json_tree.py` decodes, walks and displays its tree, and has the scalars that JSON lacks. Parameter types are in
`sayso.model.schema`. Invariant: values that differ in type or content have different forms (`1`, `1.0`, `True`, `"1"`,
a tuple and a list), and a value without a form is rejected.

`strict_loads` reads foreign JSON (RFC 8259) and rejects what two parsers could read differently: a duplicate key, NaN,
a number too large, half of a surrogate pair, and deep nesting.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, cast

from sayso.errors import ArgumentError
from sayso.model.canonical.json_tree import (
    LIMIT_DEPTH,
    MASK,
    Json,
    Reader,
    Unfit,
    dataclass_fields,
    dataclass_parts,
    display,
    dump,
    dump_sorted,
    is_model,
    parts,
    tag_of,
)
from sayso.model.parameters import class_name, function_name, place
from sayso.model.text import Text

__all__ = [
    "LIMIT_BYTES", "LIMIT_DEPTH", "LIMIT_DIGITS", "LIMIT_VALUES", "MASK", "Form", "Json", "check_round_trip",
    "class_name", "decode", "digest_input", "display", "dump", "encode", "form_of", "function_name", "is_same", "load",
    "read", "strict_copy", "strict_loads", "value_of",
]  # fmt: skip


LIMIT_BYTES = 1_048_576
LIMIT_DIGITS = 4300
LIMIT_VALUES = 50_000
_LONGEST_PLACE = 12  # steps of a path that an error message lists

_REFERENCE = "pass a reference (a path, an id) in place of the content"
_TOO_LARGE = f"makes the arguments larger than {LIMIT_BYTES:,} bytes; {_REFERENCE}"
_LONGEST_INT = 10**LIMIT_DIGITS
_LONGEST_NEGATIVE_INT = -_LONGEST_INT
_CONVERTIBLE: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, dict, list, tuple, datetime, date, timedelta)},
    "a sorted list": (set, frozenset),
    "bytes": (bytes, bytearray),
}


class Form(NamedTuple):
    """The canonical form of one call's arguments.

    Attributes:
        text: The stored form: JSON, with the keys in the given order.
        digest_input: The hashed form: the same as UTF-8, with the keys of every object sorted.
    """

    text: str
    digest_input: bytes


@lru_cache(maxsize=1024)
def _is_plain_and_sorted(*keys: str) -> bool | None:
    """Return whether the keys are sorted; None if one of them looks like a tag or is not a text."""
    if any(type(key) is not str or key.startswith("$") for key in keys):
        return None
    return list(keys) == sorted(keys)


def encode(arguments: Mapping[str, object]) -> Form:
    """Return the canonical form of arguments.

    Raises:
        ArgumentError: With the path of the first value that has no canonical form.
    """
    plain: Any = arguments
    # Fast path for the usual case, a few scalars in a dict: no walk. It accepts no subclasses, because these may
    # override order and access. Anything else is left to the walk, which reports what is wrong.
    if type(arguments) is not dict:
        return _encode_any(plain)
    for value in plain.values():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]  # of Any
        if kind is str:
            if len(value) > LIMIT_BYTES:
                return _encode_any(plain)
        elif kind is int:
            if not _LONGEST_NEGATIVE_INT < value < _LONGEST_INT:
                return _encode_any(plain)
        elif kind is not float and kind is not bool and value is not None:
            return _encode_any(plain)
    is_sorted = _is_plain_and_sorted(*plain)
    if is_sorted is None:
        return _encode_any(plain)
    try:
        text = "".join(parts(plain, 0))
        raw = (text if is_sorted else dump_sorted(plain)).encode()
    except ValueError:
        return _encode_any(plain)
    return Form(text, raw) if len(raw) <= LIMIT_BYTES else _encode_any(plain)


def is_same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Return whether arguments have the same canonical form: `1`, `1.0` and `True` do not.

    Raises:
        ArgumentError: A value has no canonical form.
    """
    return encode(one).digest_input == encode(other).digest_input


def _encode_any(arguments: Mapping[str, object]) -> Form:
    writer = _Writer()
    tree = writer.object(dict(arguments))
    text = dump(tree)
    raw = b"" if len(text) > LIMIT_BYTES else dump_sorted(tree).encode()
    if not 0 < len(raw) <= LIMIT_BYTES:
        members = cast("dict[str, Json]", tree.get("$dict", tree))
        raise ArgumentError(place([max(members, key=lambda name: len(dump(members[name])))]), _TOO_LARGE)
    return Form(text, raw)


class _Writer:
    """Converts values to a canonical tree. `path` is the current position, which a refusal reports."""

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self._room = LIMIT_BYTES
        self._left = LIMIT_VALUES

    def form(self, value: Any) -> Json:
        """Return the form of a value, or raise `ArgumentError`."""
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]  # of Any
        if kind is str:
            return self._text(value)
        if kind is bool or value is None:
            return value
        if kind is int:
            is_short = _LONGEST_NEGATIVE_INT < value < _LONGEST_INT
            return value if is_short else self._refuse(f"has more than {LIMIT_DIGITS} digits")
        if kind is float:
            return value if math.isfinite(value) else self._refuse("is not a finite number")
        if len(self.path) > LIMIT_DEPTH:
            self._refuse(f"is nested deeper than {LIMIT_DEPTH} levels, or contains itself")
        if kind is dict:
            return self.object(value)
        if kind is list:
            return self._items(value)
        if kind is tuple:
            return {"$tuple": self._items(value)}
        try:
            return self._tagged(value, kind)
        except Unfit as unfit:
            self._refuse(str(unfit))

    def object(self, value: dict[str, object]) -> dict[str, Json]:
        """Return the form of a dict, wrapped if one of its keys looks like a tag."""
        is_wrapped = False
        for key in value:
            if type(key) is not str:
                self._refuse(f"has a key of type {type(key).__name__}; keys must be str")
            is_wrapped = is_wrapped or key.startswith("$")
        members = self._members(value)
        return {"$dict": members} if is_wrapped else members

    def _tagged(self, value: Any, kind: type[Any]) -> Json:
        tag = tag_of(kind)
        if tag is not None:
            self._charge(len(tag.name) + 5 + (len(value) if kind is bytes else 0))
            payload = tag.write(value)
            for part in payload if isinstance(payload, list) else [payload]:
                if isinstance(part, str):
                    self._text(part)
            return {tag.name: payload}
        if isinstance(value, Enum):
            name = cast("str | None", value.name)  # a combination of flags may have none
            if name is None or kind.__members__.get(name) is not value:
                what = f"is a combination of {kind.__name__} flags, which has no name of its own; pass its value"
                raise Unfit(what)
            return {"$enum": [self._text(class_name(kind)), self._text(name)]}
        names = dataclass_fields(kind)
        if names is not None:
            return {"$dataclass": [self._text(class_name(kind)), self._members(dataclass_parts(value, names))]}
        if is_model(kind):
            return {"$model": self._model(value, kind)}
        if kind is Text:
            return self._text(str(value))
        plain = next((name for name, builtin in _CONVERTIBLE.items() if issubclass(kind, builtin)), None)
        if plain is not None:
            return self._refuse(f"is a {kind.__name__}; convert it to {plain}")
        advice = "pass plain values, a dataclass or a pydantic model"
        return self._refuse(f"is of class {class_name(kind)}, which has no canonical form; {advice}")

    def _model(self, value: Any, kind: type[Any]) -> list[Json]:
        held: dict[str, object] = value.__dict__
        fields = {name: held[name] for name in kind.model_fields if name in held}
        extra: dict[str, object] = value.__pydantic_extra__ or {}
        private: dict[str, object] = value.__pydantic_private__ or {}
        unset: list[str] = sorted(fields.keys() - value.__pydantic_fields_set__)
        if not (fields.keys().isdisjoint(extra) and private.keys().isdisjoint(extra)):
            # Possible through an alias. A reader would see one value in place of the other.
            raise Unfit(f"is a {kind.__name__} with an extra field that has the same name as one of its fields")
        payload: list[Json] = [self._text(class_name(kind)), self._members(fields)]
        rest: dict[str, Json] = {}
        if extra:
            rest["extra"] = self._members(extra)
        if private:
            rest["private"] = self._members(private)
        if unset:
            rest["unset"] = [*unset]
        return [*payload, rest] if rest else payload

    def _members(self, value: Mapping[str, object]) -> dict[str, Json]:
        self._count(len(value), 4)
        members: dict[str, Json] = {}
        self.path.append("")
        for key, item in value.items():
            self.path[-1] = key
            members[self._text(key)] = self.form(item)
        self.path.pop()
        return members

    def _items(self, values: list[object] | tuple[object, ...]) -> list[Json]:
        self._count(len(values), 2)
        forms: list[Json] = []
        self.path.append(0)
        for index, item in enumerate(values):
            self.path[-1] = index
            forms.append(self.form(item))
        self.path.pop()
        return forms

    def _text(self, value: str) -> str:
        self._room -= len(value)
        if self._room < 0 or not value.isascii():
            self._charge(0)
            try:
                value.encode()
            except UnicodeEncodeError:
                self._refuse("contains a lone surrogate, which is not a character")
        return value

    def _count(self, members: int, least: int) -> None:
        self._left -= members
        if self._left < 0:
            self._refuse(f"brings the number of values above {LIMIT_VALUES:,}; {_REFERENCE}")
        self._charge(least * members)

    def _charge(self, least: int) -> None:
        """Subtract the minimum size of a part from the limit, so that huge values are rejected before the walk."""
        self._room -= least
        if self._room < 0:
            self._refuse(_TOO_LARGE)

    def _refuse(self, reason: str) -> NoReturn:
        where = place(self.path[:_LONGEST_PLACE]) + ("…" if len(self.path) > _LONGEST_PLACE else "")
        raise ArgumentError(where, reason)


class _NotStrict(ValueError):
    """JSON that parsers reject or read differently."""


def _no_constant(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is not a number in JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # 1e999, which `encode` does not write
        raise _NotStrict("a number is too large")
    return number


_decoder: Any = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)  # the stub does not know `scan_once`
_scan: Callable[[str, int], tuple[object, int]] = _decoder.scan_once


def load(text: str) -> dict[str, Json]:
    """Parse a stored text into its tree, with its tags.

    Raises:
        ArgumentError: The text is not JSON, or not an object.
    """
    try:
        tree, end = _scan(text, 0)  # `decode` would skip white space, which stored texts do not have
    except (ValueError, RecursionError, StopIteration) as error:
        raise ArgumentError("arguments", "are stored as text that is not JSON") from error
    if end != len(text):
        raise ArgumentError("arguments", "are stored as text with trailing data")
    if type(tree) is not dict:
        raise ArgumentError("arguments", "are stored as JSON that is not an object")
    return tree  # pyright: ignore[reportUnknownVariableType]  # a cast would be a function call, in each start


def read(text: str, classes: Callable[[], Mapping[str, type]]) -> tuple[dict[str, object], bytes]:
    """Return `decode` and `digest_input` of a text, parsing it once. `classes` is called only if needed."""
    tree: Any = load(text)
    # One object with sorted keys is already its digest input. If the text was altered, its digest is another one.
    is_sorted = text.count("{") == 1 and _is_plain_and_sorted(*tree)
    raw = (text if is_sorted else dump_sorted(tree)).encode()
    return tree if '"$' not in text else decode(text, classes()), raw


def digest_input(text: str) -> bytes:
    """Return the `Form.digest_input` of a stored text."""
    return dump_sorted(load(text)).encode()


def decode(text: str, classes: Mapping[str, type]) -> dict[str, object]:
    """Read arguments back as equal Python values, in the given order.

    Initialisers and validators of classes do not run. pydantic's aware datetimes come back with a `datetime.timezone`.

    Args:
        text: A `Form.text`.
        classes: The enums, dataclasses and models that may occur, by `module:QualName` (see `Schema.classes`).
            Nothing is imported.

    Raises:
        ArgumentError: A class is missing in `classes` or has changed, or the text was not written by `encode`.
    """
    tree: Any = load(text)
    if '"$' not in text:
        return tree
    reader = Reader(classes)
    values = reader.value(tree)
    return cast("dict[str, object]", values) if type(values) is dict else reader.refuse("are not an object")


def form_of(value: object) -> Json:
    """Return the canonical tree of a single value; raises as `encode`."""
    return load(encode({"value": value}).text)["value"]


def value_of(form: Json, classes: Mapping[str, type]) -> object:
    """Return the value of a single canonical tree; raises as `decode`."""
    return decode(dump({"value": form}), classes)["value"]


def check_round_trip(form: Form, classes: Mapping[str, type]) -> None:
    """Check that another process, given only `classes`, decodes equal arguments. Cheap if no class occurs.

    Raises:
        ArgumentError: With the name of the argument that would change.
    """
    text = form.text
    if '{"$enum"' not in text and '{"$dataclass"' not in text and '{"$model"' not in text:
        return
    values = decode(text, classes)
    if encode(values).text == text:
        return
    tree = load(text)
    members = cast("dict[str, Json]", tree.get("$dict", tree))
    for (name, value), before in zip(values.items(), members.values(), strict=True):
        if dump(form_of(value)) != dump(before):
            raise ArgumentError(place([name]), "cannot be restored unchanged from its stored form")


_MAX_DEPTH = 64
_TOO_DEEP = f"it is nested deeper than {_MAX_DEPTH} levels"
_SURROGATE = re.compile("[\ud800-\udfff]")


def strict_loads(text: str) -> Any:
    """Parse a text; raises `ValueError` with the reason if it is not valid."""
    try:
        content = _strict_decoder.decode(text)
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


def strict_copy(value: Any) -> Any:
    """Return a value as `loads` would parse it; raises as it does, and `TypeError` for what JSON cannot express."""
    try:
        return strict_loads(json.dumps(value, allow_nan=False, default=_dict))
    except RecursionError:
        raise _NotStrict(_TOO_DEEP) from None


def _dict(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotStrict("an object has a duplicate key")
    return found


_strict_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite)


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
