"""A call's arguments as people see them: values as Python writes them, laid out to a width."""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from sayso.model.canonical.decode import class_in, fields_of, items_of, tag_in
from sayso.model.canonical.tags import MASK, Json
from sayso.model.text import escape

__all__ = [
    "NARROWEST",
    "Layout",
    "Parts",
    "brief",
    "bytes_of",
    "clip",
    "fill",
    "is_light",
    "parts_of",
    "quoted",
    "value",
    "word",
    "wrapped",
]

_CALLS = {"$decimal": "Decimal", "$path": "Path", "$uuid": "UUID"}
_TIMES = {"$date": "date", "$datetime": "datetime", "$time": "time"}
_PLAIN_TIME = re.compile(r"[0-9:.+TZ-]+(?:\[[A-Za-z0-9_+/-]+\])?")
_NESTED = (dict, list)
_ONE = {"items": "item", "entries": "entry", "fields": "field"}
_ENDS = (3, 1)
_Item = TypeVar("_Item")
_Text = TypeVar("_Text", str, bytes)


class Parts(NamedTuple):
    """A container, taken apart for a layout.

    Attributes:
        opening: What stands before its parts.
        items: Its parts, each with what stands before it: a name, a key or nothing.
        closing: What stands after them.
        noun: What its parts are called, many of them.
        size: How many it has; `items` may be only the first and last of them.
    """

    opening: str
    items: list[tuple[str, Json]]
    closing: str
    noun: str
    size: int


def value(tree: Json) -> str:
    """Return the whole text of a value of the canonical tree, on one line; secrets are `***`."""
    if isinstance(tree, str):
        return quoted(tree)
    if not isinstance(tree, _NESTED):
        return repr(tree)
    parts = parts_of(tree)
    if parts is None:
        return _leaf(tree)
    return parts.opening + ", ".join([prefix + value(item) for prefix, item in parts.items]) + parts.closing


def brief(tree: Json, room: int) -> str:
    """Return the text of a value in about `room` characters: head, tail and the size of what is too long."""
    if is_light(tree, 8 * room):
        text = value(tree)
        if len(text) <= room:
            return text
    parts = parts_of(tree, ends=_ENDS, key_room=room)
    if parts is not None:
        return _brief_parts(parts, room)
    if isinstance(tree, str):
        return clip(tree, room, quoted, "characters")
    data = bytes_of(tree)
    if data is not None:
        return clip(data, room, repr, "bytes")
    return _brief_leaf(tree, room)


def parts_of(tree: Json, *, ends: tuple[int, int] | None = None, key_room: int | None = None) -> Parts | None:
    """Return a container's parts, names as they are shown; None for a value without any.

    Args:
        tree: A value.
        ends: How many parts to keep from the head and from the tail; None keeps all.
        key_room: Shorten the keys of dicts to this; None keeps them whole.
    """
    items = items_of(tree)
    if items is not None:
        unnamed: list[tuple[str, Json]] = [("", item) for item in _picked(items, ends)]
        opening, closing = ("[", "]") if isinstance(tree, list) else ("(", ",)" if len(items) == 1 else ")")
        return Parts(opening, unnamed, closing, "items", len(items))
    fields, name = fields_of(tree), class_in(tree)
    if not isinstance(tree, dict) or (fields is None and _tagged(tree) is not None):
        return None
    # A malformed tag is shown as the dict that it is, so that nothing is hidden behind it.
    named = _picked(list((tree if fields is None else fields).items()), ends)
    if fields is not None and name is not None:
        # An extra field may have any name; one that could go on as another field stands in quotes.
        members = [(f"{escape(field) if field.isidentifier() else quoted(field)}=", item) for field, item in named]
        return Parts(f"{_short(name)}(", members, ")", "fields", len(fields))
    keyed = [((quoted(key) if key_room is None else brief(key, key_room)) + ": ", item) for key, item in named]
    return Parts("{", keyed, "}", "entries", len(tree if fields is None else fields))


def quoted(text: str) -> str:
    """Return `text` in quotes, escaped; a line feed reads as in Python."""
    shown = escape(text, block=True)
    if "\\" in shown or "'" in shown or "\n" in shown:
        shown = shown.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{shown}'"


def clip(whole: _Text, room: int, show: Callable[[_Text], str], unit: str) -> str:
    """Return head and tail of a text or of bytes that have no room as a whole, with the size of the whole between."""
    note = f"({len(whole):,} {unit})"
    left = room - len(note) - 6 - 2 * len(show(whole[:0]))
    if left < 8:
        return f"… {note}"
    head = show(whole[: _fit(whole, left - left // 3, show, 1)])
    tail = whole[len(whole) - _fit(whole, left // 3, show, -1) :]
    return f"{head} … {note} … {show(tail)}" if tail else f"{head} … {note}"


def fill(items: list[tuple[str, Json]], room: int) -> list[str]:
    """Return the texts of values, prefixes in front, in about `room` characters in all.

    Short values are whole; the others share what these leave.
    """
    left = room - sum(len(prefix) for prefix, _ in items)
    texts = [brief(item, max(left, 1)) for _, item in items]
    by_need = sorted(range(len(items)), key=lambda index: len(texts[index]))
    for rank, index in enumerate(by_need):
        share = max(left, 0) // (len(items) - rank)
        if len(texts[index]) > share:
            texts[index] = brief(items[index][1], share)
        left -= len(texts[index])
    return [prefix + text for (prefix, _), text in zip(items, texts, strict=True)]


def word(name: str, room: int) -> str:
    """Return a name, escaped; one that is too long with its head and size."""
    shown = escape(name)
    return shown if len(shown) <= room else clip(name, room, quoted, "characters")


def is_light(tree: Json, room: int) -> bool:
    """Return whether a tree has no more than about `room` characters, without reading it to the end."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            room -= 2 * len(item)
        elif isinstance(item, dict):
            room -= sum(map(len, item)) + 4 * len(item)
        else:
            room -= len(item) if isinstance(item, str) else 1
        if room < 0:
            return False
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            waiting += item.values()
    return True


def bytes_of(tree: Json) -> bytes | None:
    """Return the content of a bytes value, None for all else."""
    match tree:
        case {"$bytes": str(encoded)} if len(tree) == 1:
            try:
                return b64decode(encoded, validate=True)
            except ValueError:
                return None
        case _:
            return None


def _leaf(tree: Json) -> str:
    shown = _tagged(tree) if isinstance(tree, dict) else None
    return escape(repr(tree)) if shown is None else shown


def _brief_leaf(tree: Json, room: int) -> str:
    match tree:
        case {"$decimal": str(text)} | {"$path": str(text)} | {"$uuid": str(text)}:
            kind = _CALLS[tag_in(tree) or ""]
            return f"{kind}({clip(text, room - len(kind) - 2, quoted, 'characters')})"
        case int():
            return clip(repr(tree), room, str, "characters")
        case _:
            return clip(_leaf(tree), room, quoted, "characters")


def _tagged(tree: dict[str, Json]) -> str | None:
    """Return the text of a tagged scalar, None where there is no such tag or it is malformed."""
    tag = tag_in(tree)
    match tag, None if tag is None else tree[tag]:
        case "$secret", _:
            return MASK
        case "$enum", [str(name), str(member)]:
            return f"{_short(name)}.{escape(member)}"
        case ("$decimal" | "$path" | "$uuid") as known, str(text):
            return f"{_CALLS[known]}({quoted(text)})"
        case ("$date" | "$datetime" | "$time") as known, str(text):
            return text if _PLAIN_TIME.fullmatch(text) else f"{_TIMES[known]}({quoted(text)})"
        case "$timedelta", [int(days), int(seconds), int(microseconds)]:
            parts = {"days": days, "seconds": seconds, "microseconds": microseconds}
            return f"timedelta({', '.join(f'{unit}={count}' for unit, count in parts.items() if count) or '0'})"
        case "$bytes", _:
            data = bytes_of(tree)
            return None if data is None else repr(data)
        case _:
            return None


def _brief_parts(parts: Parts, room: int) -> str:
    count, items = parts.size, parts.items
    nothing = f"{parts.opening}… ({count:,} {parts.noun if count != 1 else _ONE[parts.noun]}){parts.closing}"
    note = f"… ({count:,} {parts.noun}) …" if len(items) < count else ""
    left = room - len(parts.opening) - len(parts.closing) - len(note) - 2 * (len(items) - (0 if note else 1))
    if left < 6 * len(items):
        return nothing
    texts = fill(items, left)
    text = parts.opening + ", ".join([*texts[:-1], note, texts[-1]] if note else texts) + parts.closing
    return text if len(text) <= room else nothing


def _picked(items: list[_Item], ends: tuple[int, int] | None) -> list[_Item]:
    if ends is None or len(items) <= sum(ends):
        return items
    head, tail = ends
    return [*items[:head], *items[-tail:]]


def _fit(whole: _Text, room: int, show: Callable[[_Text], str], step: int) -> int:
    """Return how many elements from the head (or, with step -1, the tail) are shown in `room` characters."""
    edge = whole[:room] if step > 0 else whole[::-1][:room]
    for count in range(len(edge)):
        # One by one, `<` is narrower than before `U+`, where it becomes an escape.
        room -= 8 if edge[count : count + 1] == "<" else len(show(edge[count : count + 1])) - len(show(edge[:0]))
        if room < 0:
            return count
    return len(edge)


def _short(name: str) -> str:
    return escape(name.rpartition(":")[2].rpartition("<locals>.")[2])


NARROWEST = 40
_SHORT = 24
_MARK, _GOES_ON = "| ", ": "
_SPACE = "<U+0020>"
# Short pieces, so that any of them fits into the narrowest line, and an escape is never broken.
_TOKEN = re.compile(r"<U\+[0-9A-F]{4,6}>| {1,12}|[^ <]{1,12}|<")


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
            return [text] if _columns(text) <= width else list(wrapped(text, width))
        data = bytes_of(tree)
        if data is not None and len(data) > width // 4:
            return self._block(data, "bytes", width)
        if is_light(tree, 8 * width) and not _is_tall(tree):
            text = value(tree)
            if _columns(text) <= width:
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
        if _columns(prefix) > width // 2:
            return [*wrapped(prefix.rstrip(), width), *self._rows(item, width)]
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
    return [row for text in texts for row in wrapped(text, width)]


def wrapped(text: str, width: int) -> Iterator[str]:
    """Yield one line of escaped text behind our marks, broken before spaces where that is possible."""
    if _columns(text) <= width - len(_MARK) and not text.endswith(" "):
        yield _MARK + text
        return
    room = width - len(_MARK) - len(_SPACE)
    mark, row, used, gap = _MARK, list[str](), 0, 0
    for token in _TOKEN.findall(text):
        size = _columns(token)
        while row and used + size > room:
            cut = gap or len(row)
            yield mark + _closed("".join(row[:cut]))
            row, mark, gap = row[cut:], _GOES_ON, 0
            used = sum(map(_columns, row))
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
        if rows[-1] and _columns(rows[-1]) + 1 + _columns(text) > width:
            rows.append("")
        rows[-1] += f" {text}" if rows[-1] else text
    return rows if all(_columns(row) <= width for row in rows) else None


def _fitting(text: str, width: int) -> list[str]:
    return [text] if _columns(text) <= width else list(wrapped(text, width))


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _is_tall(tree: Json) -> bool:
    if isinstance(tree, str):
        return "\n" in tree
    parts = parts_of(tree)
    return parts is not None and any(_is_tall(item) for _, item in parts.items)
