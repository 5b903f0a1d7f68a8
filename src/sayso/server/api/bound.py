"""Whether the arguments that a program asks with are such as a gate binds them: all of them, written in one way.

A gate writes down every parameter, with its default where none was given, in the one text that these values have. A
program that is no gate could leave one out, or write it so that people read another value than what runs. The
invariant: the text that passes is, to the byte, what `encode` writes for the values that `decode` makes of it.
"""

from __future__ import annotations

from typing import NoReturn

from sayso import errors
from sayso.model import canonical
from sayso.model.canonical.decode import fields_of, items_of, tag_in
from sayso.model.canonical.tags import TAGS, Json, Unfit
from sayso.model.schema import Schema, SchemaError

__all__ = ["LARGEST", "MOST_CLASSES", "MOST_VALUES", "must_be_bound", "must_be_canonical", "must_be_small"]

LARGEST = 65_536
"""The most bytes of a call, or of what is said beside it, that a token asks with; every list of requests reads them."""

MOST_VALUES = 2_000
"""The most values in them, nested ones counted."""

MOST_CLASSES = 200
"""The most classes that the schema of such a call describes; validators are compiled of each."""


def must_be_bound(form: str, schema_text: str) -> dict[str, Json]:
    """Return the tree of a call's arguments.

    Args:
        form: Their canonical form.
        schema_text: The JSON Schema of the function's arguments.

    Raises:
        AskRefusedError: They are too many, not in canonical form, or not what a gate of this function binds.
    """
    tree = canonical.load(form)
    _must_be_few(tree)
    if len(canonical.load(schema_text).get("$defs", ())) > MOST_CLASSES:  # pyright: ignore[reportArgumentType]
        _refuse(f"the schema describes more than {MOST_CLASSES} classes")
    if canonical.text_of(tree) != form:
        _refuse("the arguments are not in their canonical form")
    try:
        must_be_canonical(tree)
    except errors.ArgumentError as error:
        _refuse(f"the arguments are not in their canonical form ({error.argument} {error.reason})")
    _must_fit(fields_of(tree) or {}, Schema.from_text(schema_text))
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


def _must_fit(named: dict[str, Json], schema: Schema) -> None:
    if named.keys() != schema.properties.keys():
        _refuse("the arguments are not those of the function's parameters, all of them and no other")
    # A default that only the program knows may be None whatever the annotation says, as in `token: str = None`.
    free = {
        name for name, form in named.items()
        if form is None and name not in schema.required and "default" not in schema.properties[name]
    }  # fmt: skip
    try:
        fitted = schema.fit(named, kept=free)
    except SchemaError as error:
        _refuse(f"the arguments do not fit the function's types ({error.problems[0]})")
    other = next((name for name in named if _is_other(named[name], fitted[name])), None)
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


def must_be_canonical(tree: Json) -> None:
    """Refuse a tree that `encode` would not have written, whatever its classes are: they are not here.

    Raises:
        ArgumentError: With the reason.
    """
    named, items = fields_of(tree), items_of(tree)
    match tree:
        case {"$tuple": list()} | {"$enum": [str(), str()]} | {"$dataclass": [str(), dict()]} if len(tree) == 1:
            pass
        case {"$dict": dict(body)} if len(tree) == 1 and any(name.startswith("$") for name in body):
            pass
        case {"$model": [str(), dict(own), *rest]} if len(tree) == 1 and named is not None:
            _must_be_a_model(own, rest)
        case {"$model": [str(), dict(), dict()]} if len(tree) == 1:
            raise errors.ArgumentError("a value", "has one name for two values, or a part that there is not")
        case dict() if any(name.startswith("$") for name in tree):
            tag = tag_in(tree)
            if tag not in TAGS:
                raise errors.ArgumentError("a value", "has an unknown or malformed tag")
            try:
                TAGS[tag].value(tree[tag])
            except Unfit as unfit:
                raise errors.ArgumentError("a value", str(unfit)) from None
        case _:
            pass
    for part in [*(named or {}).values(), *(items or ())]:
        must_be_canonical(part)


def _must_be_a_model(own: dict[str, Json], rest: list[Json]) -> None:
    more = rest[0] if rest else {}
    if isinstance(more, dict) and bool(rest) is bool(more):
        unset, private = more.get("unset", []), more.get("private", {})
        is_ordered = [*more] == [name for name in ("extra", "private", "unset") if more.get(name)]
        names = [name for name in unset if isinstance(name, str) and name in own] if isinstance(unset, list) else [""]
        are_private = isinstance(private, dict) and all(name.startswith("_") for name in private)
        if is_ordered and are_private and names == unset == sorted(names):
            return
    raise errors.ArgumentError("a value", "has a malformed $model")


def _refuse(reason: str) -> NoReturn:
    raise errors.AskRefusedError(reason)
