"""Trees of the canonical form, as redaction and display walk them.

Here is what every walk needs: which dicts are tags, and the named or listed parts of a tagged value. What the tags
mean as Python values is `sayso.model.canonical`. Invariant: no part of a value is outside both, and a walk never
fails on a malformed tag: it meets a leaf.
"""

from __future__ import annotations

from sayso.model.canonical.tags import Json

__all__ = ["class_in", "fields_of", "items_of", "tag_in", "with_fields", "with_items"]

_MORE = ("extra", "private")


def tag_in(tree: Json) -> str | None:
    """Return the tag of a tagged value (`"$tuple"`), None for a plain dict and all else."""
    if not isinstance(tree, dict) or len(tree) != 1:
        return None
    (name,) = tree
    return name if name.startswith("$") else None


def class_in(tree: Json) -> str | None:
    """Return the `module:QualName` of a dataclass or model, None for all else."""
    match tree:
        case {"$dataclass": [str(name), dict(), *_]} | {"$model": [str(name), dict(), *_]} if len(tree) == 1:
            return name
        case _:
            return None


def fields_of(tree: Json) -> dict[str, Json] | None:
    """Return the named parts of a dict, dataclass or model (its extra and private ones too); None for all else.

    None, too, where one name stands for two parts: whoever looked would see one of them, and the other could run.
    """
    if not isinstance(tree, dict):
        return None
    match tag_in(tree):
        case None:
            return tree
        case "$dict":
            body = tree["$dict"]
            return body if isinstance(body, dict) else None
        case "$dataclass" | "$model" as tag:
            return _members(tag, tree[tag])
        case _:
            return None


def items_of(tree: Json) -> list[Json] | None:
    """Return the parts of a list or tuple; None for all else."""
    if isinstance(tree, dict):
        body = tree["$tuple"] if tag_in(tree) == "$tuple" else None
        return body if isinstance(body, list) else None
    return tree if isinstance(tree, list) else None


def with_fields(tree: Json, fields: dict[str, Json]) -> Json:
    """Return the same kind of value as `tree`, which `fields_of` takes apart, with other values under its names."""
    match tree:
        case {"$dict": dict()} if len(tree) == 1:
            return {"$dict": fields}
        case {"$dataclass": [str(name), dict()]} if len(tree) == 1:
            return {"$dataclass": [name, fields]}
        case {"$model": [str(name), dict(own), *rest]} if len(tree) == 1:
            return {"$model": [name, {field: fields[field] for field in own}, *(_rest(part, fields) for part in rest)]}
        case _:
            return fields


def with_items(tree: Json, items: list[Json]) -> Json:
    """Return the same kind of value as `tree`, a list or tuple, with other parts."""
    return {"$tuple": items} if isinstance(tree, dict) else items


def _members(tag: str, payload: Json) -> dict[str, Json] | None:
    match payload:
        case [str(), dict(fields)]:
            return fields
        case [str(), dict(fields), dict(rest)] if tag == "$model" and rest.keys() <= {*_MORE, "unset"}:
            parts = [fields, *_more(rest).values()]
            named = {name: value for part in parts for name, value in part.items()}
            is_whole = len(parts) == 1 + len(rest.keys() & _MORE) and len(named) == sum(map(len, parts))
            return named if is_whole else None
        case _:
            return None


def _more(rest: dict[str, Json]) -> dict[str, dict[str, Json]]:
    # These are never wrapped: a name in them that looks like a tag is a name.
    parts = {part: rest.get(part) for part in _MORE}
    return {part: named for part, named in parts.items() if isinstance(named, dict)}


def _rest(rest: Json, fields: dict[str, Json]) -> Json:
    if not isinstance(rest, dict):
        return rest
    return {**rest, **{part: {name: fields[name] for name in named} for part, named in _more(rest).items()}}
