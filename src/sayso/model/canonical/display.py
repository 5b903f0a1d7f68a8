"""Canonical trees as plain JSON, for people and web frameworks.

What is shown to a reviewer character by character is drawn elsewhere; this is for places that take JSON as it is.
The invariant: a secret is never in it, at any depth.
"""

from __future__ import annotations

from collections.abc import Iterable

from sayso.model.canonical.tags import TAGS, Json
from sayso.model.canonical.tree import fields_of

__all__ = ["display"]


def display(tree: Json) -> Json:
    """Return plain JSON for people and web frameworks: what `load` gives, without tags and with secrets masked.

    Dates become ISO text, bytes base64, enum members their name, dataclasses and models objects of their fields,
    tuples lists.
    Types are lost: this is to look at, and to edit (`Shape.validate` takes it back), never to run from.
    """
    match tree:
        case list():
            return [display(item) for item in tree]
        case dict() if len(tree) == 1 and (tag := next(iter(tree))).startswith("$"):
            return _display_tagged(tag, tree[tag])
        case dict():
            return {key: display(item) for key, item in tree.items()}
        case _:
            return tree


def _display_tagged(tag: str, payload: Json) -> Json:
    match tag, payload:
        case "$tuple", list():
            return display(payload)
        case "$dict", dict():
            return {key: display(item) for key, item in payload.items()}
        case "$enum", [_, str(member)]:
            return member
        case (("$dataclass" | "$model"), [_, dict(fields), *rest]) if fields_of({tag: payload}) is not None:
            return _display_fields(fields, rest)
        case _ if tag in TAGS:
            return TAGS[tag].shown(payload)
        case _:
            return {tag: display(payload)}


def _display_fields(fields: dict[str, Json], rest: Iterable[Json]) -> Json:
    shown = {key: display(item) for key, item in fields.items()}
    for more in rest:
        extra = more.get("extra") if isinstance(more, dict) else None
        shown |= {key: display(item) for key, item in extra.items()} if isinstance(extra, dict) else {}
    return shown
