"""The arguments of a call as people read them on a page: each drawn by its type, in a box of its own.

A plain text stands without quotes only where it cannot be taken for anything else; all other values are drawn as
everywhere (`sayso.view.layout`). No value can leave its box, so a block of text needs no marks before its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, cast

from markupsafe import Markup

from sayso.model.canonical import Json, display
from sayso.model.canonical.decode import fields_of, items_of, tag_in
from sayso.model.escaping import escape
from sayso.model.rendering import value
from sayso.server.pages.code import highlighted, language_of
from sayso.view.layout import Layout

__all__ = ["Argument", "arguments_of"]

_ONE_LINE, _ITEM, _MOST_ITEMS = 160, 40, 24
_WIDTH = 96
# What a text without quotes could be taken for: a number, a word of ours, an instant, another value's brackets.
_MISTAKEN = re.compile(
    r"[-+.]?\d[\d.,:eE+TZ_-]*|none|null|true|false|nan|[-+]?inf(inity)?|\*+|[\[({<'\"].*", re.IGNORECASE
)


class Argument(NamedTuple):
    """One argument.

    Attributes:
        name: As people see it.
        kind: How it is drawn: `text`, `number`, `code`, `block` or `list`.
        text: The whole value, escaped.
        size: For a block, how long it is.
        items: For a list of short values, each of them.
        key: What its field is called in the form; empty where it has none.
        code: The text with its parts marked, where it is code.
        language: Which.
    """

    name: str
    kind: str
    text: str
    size: str = ""
    items: tuple[str, ...] = ()
    key: str = ""
    code: Markup | None = None
    language: str = ""


def arguments_of(shown: dict[str, Json], names: Iterable[str] = ()) -> list[Argument]:
    """Return the arguments of a call, as its masked form shows them; `names` are those of its schema, in order."""
    keys = {name: f"f{at}" for at, name in enumerate(names)}
    named = fields_of(cast("Json", shown)) or {}
    return [_drawn(escape(name), tree)._replace(key=keys.get(name, "")) for name, tree in named.items()]


def _drawn(name: str, tree: Json) -> Argument:
    if isinstance(tree, str):
        return _text(name, tree)
    items = items_of(tree)
    if items is not None and 0 < len(items) <= _MOST_ITEMS and all(map(_is_short, items)):
        return Argument(name, "list", value(tree), items=tuple(_in_few(item) for item in items))
    if tag_in(tree) == "$decimal":
        return Argument(name, "number", escape(str(display(tree))))
    is_number = isinstance(tree, int | float) and not isinstance(tree, bool)
    rows = Layout(_WIDTH, None).rows(tree)
    if len(rows) > 1:
        return Argument(name, "block", "\n".join(rows), f"{len(rows):,} lines")
    return Argument(name, "number" if is_number else "code", rows[0] if rows else "")


def _text(name: str, text: str) -> Argument:
    language = language_of(name, text)
    if "\n" in text or len(text) > _ONE_LINE:
        drawn = escape(text, block=True)
        found = Argument(name, "block", drawn, f"{len(text):,} characters")
        return found if language is None else found._replace(code=highlighted(drawn, language), language=language)
    if not _is_plain(text):
        return Argument(name, "code", value(text))
    return Argument(name, "text", text, code=None if language is None else highlighted(text, language))


def _is_plain(text: str) -> bool:
    """Say whether a text can stand without quotes: nothing is hidden in it, at its ends or between its words."""
    return bool(text) and text == escape(text) == " ".join(text.split()) and not _MISTAKEN.fullmatch(text)


def _is_short(tree: Json) -> bool:
    return not isinstance(tree, dict | list) and len(str(tree)) <= _ITEM


def _in_few(tree: Json) -> str:
    return tree if isinstance(tree, str) and _is_plain(tree) and "," not in tree else value(tree)
