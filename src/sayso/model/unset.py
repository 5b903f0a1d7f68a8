"""Which fields of an object nobody gave, kept through an edit.

pydantic tells a field that was given from one that has its default, and programs act on that
(`model_dump(exclude_unset=True)`). A reviewer's edit arrives as plain values, which would all count as given. The
invariant: a field that nobody gave counts as given only after an edit has changed its value.
"""

from __future__ import annotations

from sayso.model.canonical.tags import Json, dump
from sayso.model.canonical.tree import class_in, fields_of, items_of, with_fields, with_items

__all__ = ["with_unset"]


def with_unset(new: Json, old: Json) -> Json:
    """Return `new` with those fields marked as not given that are so in `old`, and have the same value still.

    Args:
        new: A value as it was edited, in canonical form.
        old: The same as it stood before.
    """
    fields, before = fields_of(new), fields_of(old)
    if fields is not None and before is not None:
        kept = {name: with_unset(part, before[name]) if name in before else part for name, part in fields.items()}
        return _marked(with_fields(new, kept), old, before)
    items, earlier = items_of(new), items_of(old)
    if items is not None and earlier is not None:
        pairs = [with_unset(item, was) for item, was in zip(items, earlier, strict=False)]
        return with_items(new, [*pairs, *items[len(pairs) :]])
    return new


def _marked(new: Json, old: Json, before: dict[str, Json]) -> Json:
    if not isinstance(new, dict) or class_in(new) is None or class_in(new) != class_in(old):
        return new
    match new:
        case {"$model": [str(name), dict(fields), *rest]}:
            more = rest[0] if rest and isinstance(rest[0], dict) else {}
            same = {field for field in _unset(old) if field in fields and dump(fields[field]) == dump(before[field])}
            unset = sorted(same | _unset(new))
            return {"$model": [name, fields, {**more, "unset": list[Json](unset)}]} if unset else new
        case _:
            return new


def _unset(tree: Json) -> set[str]:
    match tree:
        case {"$model": [str(), dict(), {"unset": list(names)}]}:
            return {name for name in names if isinstance(name, str)}
        case _:
            return set()
