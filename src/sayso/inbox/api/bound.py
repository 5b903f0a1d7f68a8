"""Whether the arguments that a program asks with are such as a gate binds them: all of them, written in one way.

A gate writes down every parameter, with its default where none was given, in the one text that these values have. A
program that is no gate could leave one out, or write it so that people read another value than what runs. The
invariant: the text that passes is, to the byte, what `encode` writes for the values that `decode` makes of it.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

from sayso import errors
from sayso.model import canonical
from sayso.model.canonical.decode import fields_of, items_of
from sayso.model.canonical.tags import Json, dump
from sayso.model.shape import Shape, ShapeError

__all__ = ["LARGEST", "MOST_CLASSES", "MOST_VALUES", "must_be_bound", "must_be_small"]

LARGEST = 65_536
"""The most bytes of a call, or of what is said beside it, that a token asks with; every list of requests reads them."""

MOST_VALUES = 2_000
"""The most values in them, nested ones counted."""

MOST_CLASSES = 200
"""The most classes that the shape of such a call describes; each is built anew to read the arguments."""


def must_be_bound(form: str, shape_text: str) -> dict[str, Json]:
    """Return the tree of a call's arguments.

    Args:
        form: Their canonical form.
        shape_text: The parameters of the function.

    Raises:
        AskRefusedError: They are too many, not in canonical form, or not what a gate of this function binds.
    """
    tree = canonical.load(form)
    _must_be_few(tree)
    told = canonical.load(shape_text)
    if len(cast("dict[str, Any]", told["defs"])) + len(cast("dict[str, Any]", told.get("more", {}))) > MOST_CLASSES:
        _refuse(f"the shape describes more than {MOST_CLASSES} classes")
    shape = _told(cast("dict[str, Any]", told), fields_of(tree) or {})
    _must_fit(_values(form, shape), tree, shape)
    return tree


def must_be_small(**texts: str) -> None:
    """Refuse a request of which a text is so large that it would hold up the lists that it is in.

    Raises:
        AskRefusedError: With the name of the text.
    """
    for name, text in texts.items():
        if len(text.encode(errors="replace")) > LARGEST:
            _refuse(f"`{name}` is larger than {LARGEST:,} bytes; pass a reference in place of the content")


def _must_be_few(tree: Json) -> None:
    left, waiting = MOST_VALUES, [tree]
    while waiting:
        item = waiting.pop()
        parts = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
        left -= len(parts)
        if left < 0:
            _refuse(f"the arguments hold more than {MOST_VALUES:,} values; pass a reference in place of the content")
        waiting += parts


def _values(form: str, shape: Shape) -> dict[str, object]:
    try:
        values = canonical.decode(form, shape.classes)
        written = canonical.encode(values).text
    except errors.ArgumentError as error:
        _refuse(f"the arguments are not in their canonical form ({error.argument} {error.reason})")
    if written != form:
        _refuse("the arguments are not in their canonical form")
    return values


def _told(told: dict[str, Any], named: dict[str, Json]) -> Shape:
    """Return the shape of what can be judged here.

    A default that only the program knows may be None whatever the annotation says, as in `token: str = None`.
    """
    if named.keys() != {field["name"] for field in told["fields"]}:
        _refuse("the arguments are not those of the function's parameters, all of them and no other")
    judged = [
        field for field in told["fields"]
        if field["required"] or "default" in field or named[field["name"]] is not None
    ]  # fmt: skip
    return Shape.from_text(dump({**told, "fields": judged}))


def _must_fit(values: dict[str, object], tree: dict[str, Json], shape: Shape) -> None:
    given = {name: values[name] for name in shape.names}
    try:
        fitted = shape.validate(given)
    except ShapeError as error:
        _refuse(f"the arguments do not fit the function's types ({error.problems[0]})")
    named, read = fields_of(tree) or {}, fields_of(canonical.load(canonical.encode(fitted).text)) or {}
    other = next((name for name in given if _is_other(named[name], read[name])), None)
    if other is not None:
        _refuse(f"the argument {other!a} is written as another type than the function's own")


def _is_other(given: Json, fitted: Json) -> bool:
    """Say whether what a person reads as true, false or a number is a text, or the other way round."""
    if isinstance(fitted, bool | int | float) and isinstance(given, str | bool | int | float):
        return isinstance(given, str) or isinstance(given, bool) is not isinstance(fitted, bool)
    parts, others = _parts(given), _parts(fitted)
    return parts.keys() == others.keys() and any(_is_other(part, others[step]) for step, part in parts.items())


def _parts(tree: Json) -> dict[str, Json]:
    items = items_of(tree)
    named = fields_of(tree) if items is None else {str(at): item for at, item in enumerate(items)}
    return named or {}


def _refuse(reason: str) -> NoReturn:
    raise errors.AskRefusedError(reason)
