"""Lays values out in lines of a given width. No part of a value can be mistaken for a line of its own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from sayso.model.canonical.tags import Json
from sayso.model.escaping import escape
from sayso.model.rendering import Parts, bytes_of, is_light, parts_of, value

NARROWEST = 40
_SHORT = 24
_MARK, _GOES_ON = "| ", ": "
_SPACE = "<U+0020>"
# Short pieces, so that any of them fits into the narrowest line, and an escape is never broken.
_TOKEN = re.compile(r"<U\+[0-9A-F]{4,6}>| {1,12}|[^ <]{1,12}|<")


def columns(text: str) -> int:
    """Return how many columns of a terminal an escaped text takes at most."""
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(one) in "WF" for one in text)


@dataclass(frozen=True)
class Layout:
    """How much of a value is shown, and how wide.

    Attributes:
        width: The longest line, in columns of a terminal.
        limit: The most characters of one text, or bytes of one bytes value; None for all.
        height: The most lines of one argument; counted only where there is a limit.
    """

    width: int
    limit: int | None
    height: int = 120

    def rows(self, tree: Json) -> list[str]:
        """Return the lines of one argument."""
        rows = self._rows(tree, max(self.width, NARROWEST))
        if self.limit is None or len(rows) <= self.height:
            return rows
        head, tail = self.height * 2 // 3, self.height // 3
        left_out = rows[head - 1 : -tail]
        # Lines that are left out may announce what they leave out themselves.
        more = ", with what they leave out," if any(row.lstrip().startswith("(…") for row in left_out) else ""
        note = f"(… {len(left_out):,} of {len(rows):,} lines{more} not shown …)"
        return [*rows[: head - 1], note, *rows[-tail:]]

    def _rows(self, tree: Json, width: int) -> list[str]:
        if isinstance(tree, str):
            text = value(tree) if len(tree) <= width - 2 and "\n" not in tree else None
            if text is None:
                return self._block(tree, "characters", width)
            return [text] if columns(text) <= width else list(wrapped(text, width))
        data = bytes_of(tree)
        if data is not None and len(data) > width // 4:
            return self._block(data, "bytes", width)
        if is_light(tree, 8 * width) and not _is_tall(tree):
            text = value(tree)
            if columns(text) <= width:
                return [text]
        ends = None if self.limit is None else (self.height * 2 // 3 - 3, self.height // 3 - 3)
        parts = parts_of(tree, ends=ends, key_room=None if self.limit is None else 2 * width)
        if parts is None:
            return list(wrapped(value(tree), width))
        # Deep values stop moving to the right, or a surface would break the lines, and what then stands at its left
        # edge would not carry our mark.
        indent = "  " if width > NARROWEST else ""
        inside = width - len(indent)
        rows = self._items(parts, inside, 0 if ends is None else ends[0])
        return [*_fitting(parts.opening, width), *(indent + row for row in rows), parts.closing]

    def _items(self, parts: Parts, width: int, head: int) -> list[str]:
        missing = parts.size - len(parts.items)
        if not missing:
            return self._run(parts.items, width)
        note = f"(… {missing:,} of {parts.size:,} {parts.noun} not shown …)"
        return [*self._run(parts.items[:head], width), note, *self._run(parts.items[head:], width)]

    def _run(self, items: list[tuple[str, Json]], width: int) -> list[str]:
        rows = _packed(items, width)
        return [row for prefix, item in items for row in self._named(prefix, item, width)] if rows is None else rows

    def _named(self, prefix: str, item: Json, width: int) -> list[str]:
        if columns(prefix) > width // 2:
            return [*wrapped(prefix.rstrip(), width), *self._rows(item, width)]
        first, *rest = self._rows(item, width)
        return [prefix + first, *rest] if columns(prefix + first) <= width else [prefix.rstrip(), first, *rest]

    def _block(self, content: str | bytes, unit: str, width: int) -> list[str]:
        size = len(content)
        header = f"({size:,} {unit})"
        if self.limit is None or size <= self.limit:
            return [header, *_block_lines(content, width)]
        head, tail = self.limit - self.limit // 2, self.limit // 2
        note = f"(… {size - head - tail:,} of {size:,} {unit} not shown …)"
        return [header, *_block_lines(content[:head], width), note, *_block_lines(content[size - tail :], width)]


def _block_lines(content: str | bytes, width: int) -> list[str]:
    texts = [repr(content)] if isinstance(content, bytes) else map(escape, content.split("\n"))
    return [row for text in texts for row in wrapped(text, width)]


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield one line of escaped text behind our marks, broken before spaces where that is possible."""
    if columns(text) <= width - len(_MARK) and not text.endswith(" "):
        yield _MARK + text
        return
    room = width - len(_MARK) - len(_SPACE)
    mark, row, used, gap = _MARK, list[str](), 0, 0
    for token in _TOKEN.findall(text):
        size = columns(token)
        while row and used + size > room:
            cut = gap or len(row)
            yield mark + _closed("".join(row[:cut]))
            row, mark, gap = row[cut:], _GOES_ON, 0
            used = sum(map(columns, row))
        if token[0] == " " and row:
            gap = len(row)
        row.append(token)
        used += size
    yield mark + _closed("".join(row))


def _closed(row: str) -> str:
    # A space at the end of a line cannot be seen.
    return row[:-1] + _SPACE if row.endswith(" ") else row


def _packed(items: list[tuple[str, Json]], width: int) -> list[str] | None:
    """Return a list of short plain values with many of them on a line, None for any other container."""
    if any(
        prefix or isinstance(item, dict | list) or not is_light(item, _SHORT) or _is_tall(item)
        for prefix, item in items
    ):
        return None
    if not items:
        return []
    rows = [""]
    for index, (_, item) in enumerate(items):
        text = value(item) + ("," if index < len(items) - 1 else "")
        if rows[-1] and columns(rows[-1]) + 1 + columns(text) > width:
            rows.append("")
        rows[-1] += f" {text}" if rows[-1] else text
    return rows if all(columns(row) <= width for row in rows) else None


def _fitting(text: str, width: int) -> list[str]:
    return [text] if columns(text) <= width else list(wrapped(text, width))


def _is_tall(tree: Json) -> bool:
    if isinstance(tree, str):
        return "\n" in tree
    parts = parts_of(tree)
    return parts is not None and any(_is_tall(item) for _, item in parts.items)
