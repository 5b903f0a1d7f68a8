"""Lines of text about a request: short ids, names, risks, columns, and warnings about misleading characters.

`line` draws a call on one line, and `Layout` a value at a given width on as many as it needs. No part of a value can be
mistaken for a separate line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import TypeVar

from sayso.model.canonical.json_tree import Json, children_of, fields_of, tag_in
from sayso.model.duration import left
from sayso.model.ids import ID_LENGTH
from sayso.model.parameters import place
from sayso.model.rendering import (
    Parts,
    as_amount,
    bytes_of,
    fill,
    is_light,
    parts_of,
    quote_if_needed,
    quoted,
    value,
    word,
)
from sayso.model.reviewer import Delegation, Identity, name_of
from sayso.model.text import escape, hidden_in, later, mixed_direction, mixed_script, say, say_n

NARROWEST = 40
_SHORT = 24
_HEAD, _TAIL = 80, 40  # lines of a long argument that are shown
_MARK, _GOES_ON = "| ", ": "
_SPACE = "<U+0020>"
# Pieces are short enough to fit into the narrowest line, and an escape sequence is never split.
_TOKEN = re.compile(r"<U\+[0-9A-F]{4,6}(?: x [0-9,]+)?>| {1,12}|[^ <]{1,12}|<")
# What pushes the rest of a text out of sight; code is hardly ever indented as far, nor parted by as many lines.
_GAP, _MOST_EMPTY = re.compile(" {40,}"), 3
_Line = TypeVar("_Line")


def columns(text: str) -> int:
    """Return the maximum number of terminal columns that an escaped text takes."""
    if text.isascii():
        return len(text)
    return len(text) + sum(unicodedata.east_asian_width(one) in "WF" for one in text)


def gathered(lines: Iterable[_Line], is_empty: Callable[[_Line], bool]) -> Iterator[_Line | int]:
    """Yield lines, but replace many consecutive empty lines by their number, so that they push nothing out of view."""
    for empty, group in groupby(lines, is_empty):
        found = list(group)
        if empty and len(found) > _MOST_EMPTY:
            yield len(found)
        else:
            yield from found


def empty_lines(count: int) -> str:
    """Return the note that replaces `count` empty lines."""
    return say_n("(%(num)s empty line)", "(%(num)s empty lines)", count)


def is_empty(line: str) -> bool:
    """Return whether a line of escaped text shows nothing."""
    return not line.strip(" ")


def without_gaps(line: str, mark: str = "<U+0020 x {:,}>") -> str:
    """Replace each long run of spaces in a line of escaped text by an escape such as `<U+0020 x 400>`."""
    return _GAP.sub(lambda found: mark.format(len(found[0])), line)


@dataclass(frozen=True)
class Layout:
    """How much of a value is shown, and at which width.

    A text with several lines, or longer than `width`, becomes a block: its size, then each line after `| `, and its
    continuations after `: `. So no part of it can pass for another argument, unless a display wraps below `width`.

    Attributes:
        width: The maximum line length, in terminal columns; 40 or more.
        limit: The maximum number of characters of a text, or bytes of a bytes value; None for all.
    """

    width: int
    limit: int | None

    def rows(self, tree: Json) -> list[str]:
        """Return the lines of one argument; with a `limit`, at most 120."""
        rows = self._rows(tree, max(self.width, NARROWEST))
        if self.limit is None or len(rows) <= _HEAD + _TAIL:
            return rows
        left_out = rows[_HEAD - 1 : -_TAIL]
        # The omitted lines may themselves contain a note about omitted content.
        more = ", including their own gaps," if any(row.lstrip().startswith("(…") for row in left_out) else ""
        note = f"(… {len(left_out):,} of {len(rows):,} lines{more} not shown …)"
        return [*rows[: _HEAD - 1], note, *rows[-_TAIL:]]

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
        ends = None if self.limit is None else (_HEAD - 3, _TAIL - 3)
        parts = parts_of(tree, ends=ends, key_room=None if self.limit is None else 2 * width)
        if parts is None:
            return list(wrapped(value(tree), width))
        # Deep values are not indented further; otherwise a narrow display would wrap the lines, and text at its left
        # edge would lack our mark.
        indent = "  " if width > NARROWEST else ""
        inside = width - len(indent)
        rows = self._items(parts, inside, 0 if ends is None else ends[0])
        begin = [parts.opening] if columns(parts.opening) <= width else wrapped(parts.opening, width)
        return [*begin, *(indent + row for row in rows), parts.closing]

    def _items(self, parts: Parts, width: int, head: int) -> list[str]:
        missing = parts.size - len(parts.items)
        if not missing:
            return self._run(parts.items, width)
        note = f"(… {missing:,} of {parts.size:,} {parts.noun} not shown …)"
        return [*self._run(parts.items[:head], width), note, *self._run(parts.items[head:], width)]

    def _run(self, items: list[tuple[str, Json]], width: int) -> list[str]:
        """Lay out a list of short plain values with several on a line, and any other items one below the other."""
        is_packed = not any(
            prefix or isinstance(item, dict | list) or not is_light(item, _SHORT) or _is_tall(item)
            for prefix, item in items
        )
        rows = [""] if items else list[str]()
        for index, (_, item) in enumerate(items if is_packed else ()):
            text = value(item) + ("," if index < len(items) - 1 else "")
            if rows[-1] and columns(rows[-1]) + 1 + columns(text) > width:
                rows.append("")
            rows[-1] += f" {text}" if rows[-1] else text
        if is_packed and all(columns(row) <= width for row in rows):
            return rows
        return [row for prefix, item in items for row in self._named(prefix, item, width)]

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
    if isinstance(content, bytes):
        return list(wrapped(repr(content), width))
    rows = list[str]()
    for line in gathered(map(escape, content.split("\n")), is_empty):
        # The note about empty lines has no mark, which distinguishes it from the lines of the text.
        rows += [empty_lines(line)] if isinstance(line, int) else wrapped(without_gaps(line), width)
    return rows


def wrapped(text: str, width: int) -> Iterator[str]:
    """Wrap one line of escaped text, before spaces if possible; each line starts with our mark."""
    if columns(text) <= width - len(_MARK) and not text.endswith(" "):
        yield _MARK + text
        return
    room = width - len(_MARK) - len(_SPACE)
    mark, row, used, gap = _MARK, list[str](), 0, 0
    for piece in _TOKEN.findall(text):
        size = columns(piece)
        while row and used + size > room:
            cut = gap or len(row)
            yield mark + _closed("".join(row[:cut]))
            row, mark, gap = row[cut:], _GOES_ON, 0
            used = sum(map(columns, row))
        if piece[0] == " " and row:
            gap = len(row)
        row.append(piece)
        used += size
    yield mark + _closed("".join(row))


def _closed(row: str) -> str:
    # A trailing space would be invisible.
    return row[:-1] + _SPACE if row.endswith(" ") else row


def _is_tall(tree: Json) -> bool:
    if isinstance(tree, str):
        return "\n" in tree
    parts = parts_of(tree)
    return parts is not None and any(_is_tall(item) for _, item in parts.items)


SHORT = len("rq_") + 8
RUN_ROOM = 48
"""The columns that a list reserves for a run id: people copy it, and `confirm:` with a UUID has 44 characters."""

RISKS = (later("critical"), later("high"), later("medium"), later("low"))
"""The usual words for a risk, the highest first; a gate can use any other word, which is not translated."""
_RANKS = {"none": 1, "minor": 1, "low": 1, "moderate": 2, "medium": 2, "critical": 4}  # any other word counts as `high`
_CHANNELS = frozenset({
    later("web"), later("terminal"), later("cli"), later("push"), later("program"), later("clock"), later("sweep"),
    later("grant"), later("policy"), later("console"), later("queue"), later("verify"), later("resume"),
    later("script"), later("test"),
})  # fmt: skip
"""Our channels whose names are words and can be translated; the others are proper names: `api`, `slack`, `mcp`."""
_WHOLE_ID = re.compile(rf"\brq_[0-9a-z]{{{ID_LENGTH - 3}}}\b")


def short(request_id: str) -> str:
    """Return the prefix of an id that people type; commands accept it if it is unambiguous."""
    return escape(request_id[:SHORT])


def in_short(text: str) -> str:
    """Shorten every id in one of our messages to the prefix that people type."""
    return _WHOLE_ID.sub(lambda found: found[0][:SHORT], text)


def is_high(risk: str | None) -> bool:
    """Return whether a risk is high. Every word that does not mean low risk counts, because gates can use any word."""
    return risk_rank(risk) > _RANKS["medium"]


def risk_rank(risk: str | None) -> int:
    """Return a number by which risks are compared; an unknown word counts as `high`."""
    return 0 if risk is None else _RANKS.get(risk.strip().casefold(), 3)


def time_left(end: datetime, now: datetime) -> str:
    """Return the time until `end`, rounded so that 24 hours that have just begun do not read as 23h 59m."""
    return left(end + timedelta(milliseconds=500), now) if now < end else left(end, now)


def expiry(end: datetime, now: datetime) -> str:
    """Return `expires in 13m`, or `expired` from the very instant `end` on."""
    return say("expires %(when)s", when=time_left(end, now)) if now < end else say("expired")


def channel_name(channel: str) -> str:
    """Return the display name of a channel; a channel that is not ours keeps its own name."""
    return say(channel) if channel in _CHANNELS else quote_if_needed(channel)


def absence(who: Identity | None, away: Iterable[Delegation]) -> str:
    """Describe somebody's absence: `away until 2026-11-27 09:00Z, bob stands in`; empty if they are not away.

    `away` has the delegations that are in effect now.
    """
    for one in away:
        if who is not None and one.by.is_same(who):
            return say(
                "away until %(when)s, %(who)s stands in", when=f"{one.until:%Y-%m-%d %H:%M}Z", who=name_of(one.to, 30)
            )
    return ""


def padded(text: str, width: int) -> str:
    """Pad an escaped text with spaces on the right to `width` columns."""
    return text + " " * (width - columns(text))


_LISTED = 6
_MOST = 20


def warnings(tree: Json) -> list[str]:
    """Return warnings about misleading characters in a text, or in the names and texts of a tree.

    For a text, `contains hidden characters (U+202E, U+200B)`; for a tree, with the path in front: `note: contains …`.
    It stops after twenty and says so: nobody reads more, and a tree full of them would slow down every list.
    """
    found: dict[str, None] = {}
    if isinstance(tree, str) and tree.isascii() and tree.isprintable():
        return []
    for steps, what in ((steps, what) for steps, text in _texts(tree, ()) for what in _warnings(text)):
        if len(found) == _MOST:
            return [*found, say("and there may be more like these; the rest was not checked")]
        found[f"{escape(place(steps, quoted))}: {what}" if steps else what] = None
    return list(found)


def line(name: str, arguments: dict[str, Json], limit: int = 100) -> str:
    """Return a call on one line of at most `limit` characters (60 or more): `refund(order_id="A-4721", amount=320.00)`.

    If it does not fit, long values are shortened to head, size and tail, and finally arguments are only counted.
    """
    named = {key: as_amount(key, item) for key, item in (fields_of(arguments) or {}).items()}
    if is_light(arguments, 8 * limit):
        whole = f"{escape(name)}({', '.join([f'{escape(key)}={value(item)}' for key, item in named.items()])})"
        if len(whole) <= limit:
            return whole
    start = f"{word(name, limit // 2)}("
    for shown in range(min(len(named), limit // 8), 0, -1):
        missing = len(named) - shown
        more = say_n("%(num)s more argument", "%(num)s more arguments", missing)
        end = f", … ({more}))" if missing else ")"
        items = [(f"{escape(key)}=", item) for key, item in list(named.items())[:shown]]
        text = start + ", ".join(fill(items, limit - len(start) - len(end) - 2 * (shown - 1))) + end
        if len(text) <= limit:
            return text
    return start + "… (" + say_n("%(num)s argument", "%(num)s arguments", len(named)) + "))"


def _texts(tree: Json, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every text from the program, including names, with its path."""
    if isinstance(tree, str):
        yield steps, tree
        return
    parts = children_of(tree)
    if parts is not None:
        for step, part in parts.items():
            if isinstance(step, str):
                yield steps, step
            yield from _texts(part, (*steps, step))
    elif isinstance(tree, dict) and tag_in(tree) not in {"$secret", "$bytes"}:
        yield from ((steps, text) for text in _payload_texts(tree))


def _payload_texts(tree: Json) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict | list):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _payload_texts(part)


def _warnings(text: str) -> Iterator[str]:
    hidden = hidden_in(text)
    if hidden:
        more = " " + say("and %(count)s more", count=f"{len(hidden) - _LISTED:,}") if len(hidden) > _LISTED else ""
        yield say("contains hidden characters (%(found)s)", found=", ".join(hidden[:_LISTED]) + more)
    turned = mixed_direction(text)
    if turned is not None:
        yield say(
            "mixes right-to-left letters (%(letter)s) with others, and may not be drawn in its order",
            letter=f"U+{ord(turned):04X}",
        )
    mixed = mixed_script(text)
    for found, scripts in list(mixed.items())[:_LISTED]:
        shown = quoted(found) if len(found) <= 60 else word(found, 60)
        yield say("the word %(word)s mixes %(scripts)s letters", word=shown, scripts=say(" and ").join(scripts))
    if len(mixed) > _LISTED:
        yield say("%(count)s more words mix scripts", count=f"{len(mixed) - _LISTED:,}")
