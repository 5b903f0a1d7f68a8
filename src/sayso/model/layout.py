"""A value over as many lines as it needs, for the full view of a call.

Here are blocks, indentation and where lines break; values on one line are `sayso.model.literal`. Invariant: every line
that holds text of a block begins with a mark of ours, no line is wider than asked for, and what is left out is
announced with its size.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from sayso.model.escape import escape
from sayso.model.literal import bytes_of, is_light, parts_of, value
from sayso.model.tags import Json

__all__ = ["NARROWEST", "Layout"]

NARROWEST = 40
_LONG_NAME = 12
_MARK, _GOES_ON = "| ", ": "
_TOKEN = re.compile(r"<U\+[0-9A-F]{4,6}>|\s+|.", re.DOTALL)


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
        return rows if self.limit is None else _middle_out(rows, self.height, "lines")

    def _rows(self, tree: Json, width: int) -> list[str]:
        if isinstance(tree, str) and ("\n" in tree or len(tree) > width - 2):
            return self._block(tree, "characters", width)
        data = bytes_of(tree)
        if data is not None and len(data) > width // 4:
            return self._block(data, "bytes", width)
        if is_light(tree, 8 * width) and not _is_tall(tree):
            text = value(tree)
            if _columns(text) <= width:
                return [text]
        parts = parts_of(tree)
        if parts is None:
            return list(_wrapped(value(tree), width))
        # Deep values stop moving to the right, or a surface would break the lines, and what then stands at its left
        # edge would not carry our mark.
        indent = "  " if width > NARROWEST else ""
        inside = width - len(indent)
        return [
            *_fitting(parts.opening, width),
            *(indent + row for prefix, item in parts.items for row in self._named(prefix, item, inside)),
            parts.closing,
        ]

    def _named(self, prefix: str, item: Json, width: int) -> list[str]:
        if _columns(prefix) > width // 2:
            name = list(_wrapped(prefix, width))
            return [*(name if self.limit is None else _middle_out(name, _LONG_NAME, "lines of a name"))] + self._rows(
                item, width
            )
        first, *rest = self._rows(item, width)
        return [prefix + first, *rest] if _columns(prefix + first) <= width else [prefix.rstrip(), first, *rest]

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
    return [row for text in texts for row in _wrapped(text, width)]


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Yield one line of escaped text behind our marks, broken before spaces where that is possible."""
    room = width - len(_MARK)
    mark, row, used, last_gap = _MARK, list[str](), 0, 0
    if _columns(text) <= room and not text.endswith(" "):
        yield mark + text
        return
    for token in _TOKEN.findall(text):
        pieces = [token]
        if len(token) > room:
            pieces = [token[start : start + room] for start in range(0, len(token), room)]
        for piece in pieces:
            size = _columns(piece)
            if used + size > room:
                cut = last_gap or len(row)
                yield mark + _closed("".join(row[:cut]))
                row, mark = row[cut:], _GOES_ON
                used, last_gap = sum(map(_columns, row)), 0
            if piece[0] == " " and row:
                last_gap = len(row)
            row.append(piece)
            used += size
    yield mark + _closed("".join(row))


def _closed(row: str) -> str:
    # A space at the end of a line cannot be seen.
    return f"{row[:-1]}<U+0020>" if row.endswith(" ") else row


def _fitting(text: str, width: int) -> list[str]:
    return [text] if _columns(text) <= width else list(_wrapped(text, width))


def _middle_out(rows: list[str], height: int, noun: str) -> list[str]:
    if len(rows) <= height:
        return rows
    head, tail = height - height // 3 - 1, height // 3
    return [*rows[:head], f"(… {len(rows) - head - tail:,} of {len(rows):,} {noun} not shown …)", *rows[-tail:]]


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _is_tall(tree: Json) -> bool:
    if isinstance(tree, str):
        return "\n" in tree
    parts = parts_of(tree)
    return parts is not None and any(_is_tall(item) for _, item in parts.items)
