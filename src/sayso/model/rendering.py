"""Values as text for people: in full, abbreviated, by name, and as a list of changes between two values.

The input is the canonical tree. JSON values are drawn as JSON; a tuple, a date, a path or an object has its own form,
so that values of different types look different, except a decimal and a number with the same digits. A number whose
name marks it as an amount is grouped as the reader's language does (`12,500.50`), and read back so. Invisible and
deceptive characters are escaped (`sayso.model.text`). Line breaks and widths are in `sayso.view.summary`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypeVar

from sayso.model.canonical.json_tree import MASK, Json, children_of, class_in, fields_of, items_of, tag_in
from sayso.model.parameters import place
from sayso.model.text import escape, later, say

_ROOM = 80
_PLAIN = re.compile(r"[\w.@:/#+<>-]+")
_CALLS = {"$decimal": "Decimal", "$path": "Path", "$uuid": "UUID"}
_NUMBER = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?(?:E[+-]?[0-9]+)?")
_WORDS: dict[object, str] = {None: "null", True: "true", False: "false"}
_AMOUNT = re.compile(r"(?i)(?:^|[_ ])(?:amount|total|sum|price|cost|eur|usd|gbp)(?:$|[_ ])|[^_]_value$")
_MOST_DIGITS, _LONGEST = 15, 40
# translators: this number with the separators of your language, each one character; it is no text: 1.234,5
_SAMPLE, _SEPARATORS = later("1,234.5"), re.compile(r"1(\D)234(\D)5")
_POINTED = {
    ",": re.compile(r"-?(?:[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3})+),[0-9]+"),
    ".": re.compile(r"-?(?:[0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)\.[0-9]+"),
}  # fmt: skip
_UNCLEAR = re.compile(r"-?[1-9][0-9]{0,2}[.,][0-9]{3}")
_TIMES = {"$date": "date", "$datetime": "datetime", "$time": "time"}
_PLAIN_TIME = re.compile(r"[0-9:.+TZ-]+(?:\[[A-Za-z0-9_+/-]+\])?")
_NESTED = (dict, list)
_ONE = {"items": "item", "entries": "entry", "fields": "field"}
_ENDS = (3, 1)
_Item = TypeVar("_Item")
_Text = TypeVar("_Text", str, bytes)
# The characters that every way of showing a text shows as themselves.
_NARROW = frozenset(map(chr, range(0x20, 0x7F))) - set("\"'<\\")


class Parts(NamedTuple):
    """The parts of a container, for a layout. `items` may have only the first and last ones of its `size` parts."""

    opening: str
    items: list[tuple[str, Json]]  # each with a prefix: its name or key, or nothing
    closing: str
    noun: str  # the word for the parts, in the plural
    size: int


def value(tree: Json) -> str:
    """Return the full text of a value, on one line; a secret is `***`, without quotes."""
    if isinstance(tree, str):
        return quoted(tree)
    if not isinstance(tree, _NESTED):
        return repr(tree) if isinstance(tree, int | float) and not isinstance(tree, bool) else _WORDS[tree]
    parts = parts_of(tree)
    if parts is None:
        return _leaf(tree)
    return parts.opening + ", ".join([prefix + value(item) for prefix, item in parts.items]) + parts.closing


def brief(tree: Json, room: int) -> str:
    """Return the text of a value in about `room` characters; of a long one its head, its tail and its size."""
    if is_light(tree, 8 * room):
        text = value(tree)
        if len(text) <= room:
            return text
    parts = parts_of(tree, ends=_ENDS, key_room=room)
    if parts is not None:
        count, items = parts.size, parts.items
        nothing = f"{parts.opening}… ({count:,} {parts.noun if count != 1 else _ONE[parts.noun]}){parts.closing}"
        note = f"… ({count:,} {parts.noun}) …" if len(items) < count else ""
        left = room - len(parts.opening) - len(parts.closing) - len(note) - 2 * (len(items) - (0 if note else 1))
        if left < 6 * len(items):
            return nothing
        texts = fill(items, left)
        text = parts.opening + ", ".join([*texts[:-1], note, texts[-1]] if note else texts) + parts.closing
        return text if len(text) <= room else nothing
    if isinstance(tree, str):
        return clip(tree, room, quoted, "characters")
    data = bytes_of(tree)
    if data is not None:
        return clip(data, room, repr, "bytes")
    match tree:
        case {"$decimal": str(text)} if _is_number(text):
            return clip(text, room, str, "characters")
        case {"$decimal": str(text)} | {"$path": str(text)} | {"$uuid": str(text)}:
            kind = _CALLS[tag_in(tree) or ""]
            return f"{kind}({clip(text, room - len(kind) - 2, quoted, 'characters')})"
        case int():
            return clip(repr(tree), room, str, "characters")
        case _:
            return clip(_leaf(tree), room, quoted, "characters")


def parts_of(tree: Json, *, ends: tuple[int, int] | None = None, key_room: int | None = None) -> Parts | None:
    """Return a container's parts with their names as shown; None for a value without parts.

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
    # A malformed tag is shown as a plain dict, so that it cannot hide anything.
    named = _picked(list((tree if fields is None else fields).items()), ends)
    if fields is not None and name is not None:
        # An extra field may have any name; one that is no identifier is quoted, as it could look like another field.
        members = [
            (f"{escape(field) if field.isidentifier() else quoted(field)}=", as_amount(field, item))
            for field, item in named
        ]
        return Parts(f"{_short(name)}(", members, ")", "fields", len(fields))
    keyed = [
        ((quoted(key) if key_room is None else brief(key, key_room)) + ": ", as_amount(key, item))
        for key, item in named
    ]
    return Parts("{", keyed, "}", "entries", len(tree if fields is None else fields))


def is_amount(name: str) -> bool:
    """Return whether a number's name marks it as an amount, as `amount` and `order.total_eur` do."""
    return _AMOUNT.search(name.rpartition(".")[2]) is not None


def as_amount(name: str, tree: Json, *, grouped: bool = True) -> Json:
    """Return a number as drawn under a name that marks it as an amount: `12500.5` becomes `12,500.50`.

    Without `grouped` it has no commas, as a person would type it.
    """
    match tree:
        case bool():
            return tree
        case int() | float():
            text = repr(tree)
        case {"$decimal": str(text)} if len(tree) == 1:
            pass
        case _:
            return tree
    if not is_amount(name) or len(text) > _LONGEST or _NUMBER.fullmatch(text.upper()) is None:
        return tree
    number = Decimal(text)
    if abs(number.adjusted()) > _MOST_DIGITS:
        return tree
    return {"$decimal": money(number) if grouped else _money(number).replace(",", "")}


def money(number: Decimal) -> str:
    """Return an amount in groups of three digits, as the reader's language writes it: `1,250.50`, `1.250,50`.

    If it has decimals, then at least two.
    """
    group, point = separators()
    return _money(number).translate({ord(","): group, ord("."): point})


def separators() -> tuple[str, str]:
    """Return what stands between groups of digits and before decimals in the reader's language."""
    found = _SEPARATORS.fullmatch(say(_SAMPLE))
    return (",", ".") if found is None else (found[1], found[2])


def ungrouped(text: str, point: str) -> str | None:
    """Return a number as JSON writes it, from one with `point` before its decimals: `12.500,50` becomes `12500.50`.

    None if it is not written so, or may be another number: the comma in `1,250` may also stand between thousands.
    """
    if _POINTED[point].fullmatch(text) is None or _UNCLEAR.fullmatch(text) is not None:
        return None
    return "".join("." if sign == point else sign for sign in text if sign == point or sign not in ".,")


def _money(number: Decimal) -> str:
    text = f"{number:,f}"
    return f"{text}0" if text[-2:-1] == "." else text


def _is_number(text: str) -> bool:
    """Return whether the text of a decimal is one, or an amount as the reader's language writes it."""
    group, point = separators()
    in_english = text.translate({ord(group): ",", ord(point): "."})
    return _NUMBER.fullmatch(text) is not None or _NUMBER.fullmatch(in_english) is not None


def quoted(text: str) -> str:
    """Return `text` quoted and escaped; a quote, a backslash and a line feed are written as in JSON."""
    shown = escape(text, block=True)
    if "\\" in shown or '"' in shown or "\n" in shown:
        shown = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{shown}"'


def clip(whole: _Text, room: int, show: Callable[[_Text], str], unit: str) -> str:
    """Return the head and the tail of a text or bytes too long for `room`, with the total size between them."""
    note = f"({len(whole):,} {unit})"
    left = room - len(note) - 6 - 2 * len(show(whole[:0]))
    if left < 8:
        return f"… {note}"
    head = show(whole[: _fit(whole, left - left // 3, show, 1)])
    tail = whole[len(whole) - _fit(whole, left // 3, show, -1) :]
    return f"{head} … {note} … {show(tail)}" if tail else f"{head} … {note}"


def fill(items: list[tuple[str, Json]], room: int) -> list[str]:
    """Return the texts of values with their prefixes, in about `room` characters in total.

    A value is shown in full if the longer ones can still show their sizes; the shortened ones share the rest.
    """
    left = room - sum(len(prefix) for prefix, _ in items)
    texts = [brief(item, max(left, 1)) for _, item in items]
    by_need = sorted(range(len(items)), key=lambda index: len(texts[index]))
    least = [min(len(texts[index]), len(brief(items[index][1], 1))) for index in by_need]
    for rank, index in enumerate(by_need):
        share = max(left, 0) // (len(items) - rank)
        if len(texts[index]) > max(share, left - sum(least[rank + 1 :])):
            texts[index] = brief(items[index][1], share)
        left -= len(texts[index])
    return [prefix + text for (prefix, _), text in zip(items, texts, strict=True)]


def word(name: str, room: int) -> str:
    """Return an escaped name; if it is too long, its head and size."""
    shown = escape(name)
    return shown if len(shown) <= room else clip(name, room, quoted, "characters")


def is_light(tree: Json, room: int) -> bool:
    """Return whether a tree has at most about `room` characters, without reading all of it."""
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
    """Return the content of a bytes value; None for any other value."""
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


def _tagged(tree: dict[str, Json]) -> str | None:
    """Return the text of a tagged scalar; None if the tag is unknown or malformed."""
    tag = tag_in(tree)
    match tag, None if tag is None else tree[tag]:
        case "$secret", _:
            return MASK
        case "$enum", [str(name), str(member)]:
            text = f"{_short(name)}.{escape(member)}"
            return text if text[0].isupper() else f"<{text}>"  # without brackets it would look like a plain word
        case "$decimal", str(text) if _is_number(text):
            return text
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


def _picked(items: list[_Item], ends: tuple[int, int] | None) -> list[_Item]:
    if ends is None or len(items) <= sum(ends):
        return items
    head, tail = ends
    return [*items[:head], *items[-tail:]]


def _fit(whole: _Text, room: int, show: Callable[[_Text], str], step: int) -> int:
    """Return how many elements from the head (or, with step -1, the tail) are shown in `room` characters."""
    edge = whole[:room] if step > 0 else whole[::-1][:room]
    if isinstance(edge, str) and _NARROW.issuperset(edge):
        return len(edge)  # lists of requests shorten thousands of texts: this made their pages twice as fast
    for count in range(len(edge)):
        one = edge[count : count + 1]
        # A single `<` is narrower than one before `U+`, which becomes an escape.
        room -= 1 if one in _NARROW else 8 if one == "<" else len(show(one)) - len(show(edge[:0]))
        if room < 0:
            return count
    return len(edge)


def _short(name: str) -> str:
    return escape(name.rpartition(":")[2].rpartition("<locals>.")[2])


def quote_if_needed(text: str, room: int = _ROOM) -> str:
    """Return a name for one line of output: unchanged if it is a plain word, else quoted, escaped and shortened."""
    if len(text) <= room and _PLAIN.fullmatch(text) is not None and text == escape(text):
        return text
    return brief(text, room)


# -- what differs -----------------------------------------------------------------------------------------------------

_CHANGE_ROOM = 160
_CONTEXT = 20
_ABSENT: Json = {"$absent": None}


@dataclass(frozen=True)
class Change:
    """One value that differs between two argument trees, as texts; None if there is no value on that side."""

    path: str  # e.g. `order.lines[2].price`
    before: str | None
    after: str | None

    def line(self) -> str:
        """Return `amount  320.00 -> 80.00`; a missing side reads `(nothing)`."""
        before, after = ("(nothing)" if text is None else text for text in (self.before, self.after))
        return f"{self.path}  {before} -> {after}"


def changes(
    before: dict[str, Json], after: dict[str, Json], *, is_secret: Callable[[str], bool] | None = None
) -> list[Change]:
    """Return every changed, added or removed leaf between two argument trees; types count, the order of keys does not.

    Args:
        before: The arguments before the change.
        after: The arguments after it.
        is_secret: Which names hide their values (`Redaction.is_secret`). With it, pass the real trees: a changed secret
            is then listed but not shown. Masked trees do not need it, and do not reveal whether a secret changed.
    """
    return list(_changes(before, after, (), is_secret))


def _changes(
    before: Json, after: Json, steps: tuple[str | int, ...], is_secret: Callable[[str], bool] | None
) -> Iterator[Change]:
    where = escape(place(steps, quoted))
    if is_secret is not None and steps and isinstance(steps[-1], str) and is_secret(steps[-1]):
        if repr(before) != repr(after):
            changed = f"{MASK} (changed)" if before is not _ABSENT else MASK
            yield Change(where, None if before is _ABSENT else MASK, None if after is _ABSENT else changed)
        return
    old, new = children_of(before), children_of(after)
    is_one_side = (before is _ABSENT and bool(new)) or (after is _ABSENT and bool(old))
    if is_one_side or (old is not None and new is not None and _kind(before) == _kind(after)):
        old, new = old or {}, new or {}
        for step in {**old, **new}:
            yield from _changes(old.get(step, _ABSENT), new.get(step, _ABSENT), (*steps, step), is_secret)
    elif repr(before) != repr(after):  # as text, because 1 == 1.0 == True and -0.0 == 0.0, but they differ
        name = steps[-1] if steps else ""
        yield Change(where, *_pair(before, after, name if isinstance(name, str) else ""))


def _kind(tree: Json) -> tuple[str, str | None]:
    if fields_of(tree) is not None:
        return "fields", class_in(tree)
    return ("list" if isinstance(tree, list) else "tuple"), None


def _pair(before: Json, after: Json, name: str) -> tuple[str | None, str | None]:
    if isinstance(before, str) and isinstance(after, str) and max(len(before), len(after)) > _CHANGE_ROOM - 2:
        start = shared_prefix(before, after)
        end = shared_prefix(before[start:][::-1], after[start:][::-1])
        return _around(before, start, end), _around(after, start, end)
    old, new = (None if tree is _ABSENT else brief(as_amount(name, tree), _CHANGE_ROOM) for tree in (before, after))
    return old, f"{new} (changed{'' if new == MASK else ' where it is not shown'})" if old == new else new


def shared_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _around(text: str, start: int, end: int) -> str:
    first, last = max(start - _CONTEXT, 0), min(len(text) - end + _CONTEXT, len(text))
    head = f"(… {first:,} characters …) " if first else ""
    tail = f" (… {len(text) - last:,} characters …)" if last < len(text) else ""
    cut = text[first:last]
    return f"{head}{quoted(cut) if len(cut) <= _CHANGE_ROOM else brief(cut, _CHANGE_ROOM)}{tail}"
