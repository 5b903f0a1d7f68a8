"""Values as text for people: in full, abbreviated, by name, and as a list of changes between two values.

The input is the canonical tree. What JSON has is drawn as JSON; a tuple, a date, a path or an object has a form of its
own, so that values of different types differ, but for a decimal and a number of the same digits. Invisible and
deceptive characters are escaped (`sayso.model.escaping`). Line breaks and widths are in `sayso.view.summary`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypeVar

from sayso.model.canonical.decode import children_of, class_in, fields_of, items_of, tag_in
from sayso.model.canonical.names import place
from sayso.model.canonical.tags import MASK, Json
from sayso.model.escaping import escape
from sayso.model.reviewer import LOCAL, Identity
from sayso.model.words import later, say

_ROOM = 80
_SHORTEST_ISSUER = 12
_PLAIN = re.compile(r"[\w.@:/#+<>-]+")
_CALLS = {"$decimal": "Decimal", "$path": "Path", "$uuid": "UUID"}
_NUMBER = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?(?:E[+-]?[0-9]+)?")
_WORDS: dict[object, str] = {None: "null", True: "true", False: "false"}
_AMOUNT = re.compile(r"(?i)(?:^|[_ ])(?:amount|total|sum|price|cost|eur|usd|gbp)(?:$|[_ ])|[^_]_value$")
_MOST_DIGITS, _LONGEST = 15, 40
_TIMES = {"$date": "date", "$datetime": "datetime", "$time": "time"}
_PLAIN_TIME = re.compile(r"[0-9:.+TZ-]+(?:\[[A-Za-z0-9_+/-]+\])?")
_NESTED = (dict, list)
_ONE = {"items": "item", "entries": "entry", "fields": "field"}
_ENDS = (3, 1)
_Item = TypeVar("_Item")
_Text = TypeVar("_Text", str, bytes)


class Parts(NamedTuple):
    """A container, taken apart for a layout; of its `size` parts, `items` may be only the first and last ones."""

    opening: str
    items: list[tuple[str, Json]]  # each with its name or key, or nothing, in front
    closing: str
    noun: str  # what its parts are called
    size: int


def value(tree: Json) -> str:
    """Return the whole text of a value of the canonical tree, on one line; secrets are `***`, without quotes."""
    if isinstance(tree, str):
        return quoted(tree)
    if not isinstance(tree, _NESTED):
        return repr(tree) if isinstance(tree, int | float) and not isinstance(tree, bool) else _WORDS[tree]
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
        case {"$decimal": str(text)} if _NUMBER.fullmatch(text):
            return clip(text, room, str, "characters")
        case {"$decimal": str(text)} | {"$path": str(text)} | {"$uuid": str(text)}:
            kind = _CALLS[tag_in(tree) or ""]
            return f"{kind}({clip(text, room - len(kind) - 2, quoted, 'characters')})"
        case int():
            return clip(repr(tree), room, str, "characters")
        case _:
            return clip(_leaf(tree), room, quoted, "characters")


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
    """Say whether the name of a number says that it is an amount, as `amount` and `order.total_eur` do."""
    return _AMOUNT.search(name.rpartition(".")[2]) is not None


def as_amount(name: str, tree: Json, *, grouped: bool = True) -> Json:
    """Return a number as it is drawn under a name that says it is an amount: `12500.5` is `12,500.50`.

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
    shown = money(number)
    return {"$decimal": shown if grouped else shown.replace(",", "")}


def money(number: Decimal) -> str:
    """Return an amount in groups of three digits; with decimals, it has two or more."""
    text = f"{number:,f}"
    return f"{text}0" if text[-2:-1] == "." else text


def quoted(text: str) -> str:
    """Return `text` in quotes, escaped; a quote, a backslash and a line feed read as in JSON."""
    shown = escape(text, block=True)
    if "\\" in shown or '"' in shown or "\n" in shown:
        shown = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{shown}"'


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

    A value is whole if the longer ones can still give their sizes; what cannot be whole shares what these leave.
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


def _tagged(tree: dict[str, Json]) -> str | None:
    """Return the text of a tagged scalar, None where there is no such tag or it is malformed."""
    tag = tag_in(tree)
    match tag, None if tag is None else tree[tag]:
        case "$secret", _:
            return MASK
        case "$enum", [str(name), str(member)]:
            text = f"{_short(name)}.{escape(member)}"
            return text if text[0].isupper() else f"<{text}>"  # without its brackets it could be a text on a page
        case "$decimal", str(text) if _NUMBER.fullmatch(text):
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
    for count in range(len(edge)):
        # One by one, `<` is narrower than before `U+`, where it becomes an escape.
        room -= 8 if edge[count : count + 1] == "<" else len(show(edge[count : count + 1])) - len(show(edge[:0]))
        if room < 0:
            return count
    return len(edge)


def _short(name: str) -> str:
    return escape(name.rpartition(":")[2].rpartition("<locals>.")[2])


def token(text: str, room: int = _ROOM) -> str:
    """Return a name for a line of ours: as it is where it is one plain word, else in quotes, escaped and shortened."""
    if len(text) <= room and _PLAIN.fullmatch(text) is not None and text == escape(text):
        return text
    return brief(text, room)


_OURS = {later("program"), later("token"), later("policy")}
"""Issuers whose names are words."""


def name_of(who: Identity, room: int = _ROOM) -> str:
    """Return how a person or program is named to people; the issuer is left out for people of this machine."""
    if who.issuer == LOCAL:
        return token(who.subject, room)
    issuer = token(who.issuer, max(room // 2, _SHORTEST_ISSUER)) if who.issuer not in _OURS else say(who.issuer)
    return f"{token(who.subject, max(room - len(issuer) - 3, _SHORTEST_ISSUER))} ({issuer})"


# -- what differs -----------------------------------------------------------------------------------------------------

_CHANGE_ROOM = 160
_CONTEXT = 20
_ABSENT: Json = {"$absent": None}


@dataclass(frozen=True)
class Change:
    """The texts of one value that differs between two argument trees; None where there is no value."""

    path: str  # e.g. `order.lines[2].price`
    before: str | None
    after: str | None

    def line(self) -> str:
        """Return `amount  320.00 -> 80.00`; what was or is not there reads `(nothing)`."""
        before, after = ("(nothing)" if text is None else text for text in (self.before, self.after))
        return f"{self.path}  {before} -> {after}"


def changes(
    before: dict[str, Json], after: dict[str, Json], *, is_secret: Callable[[str], bool] | None = None
) -> list[Change]:
    """Return every changed, added or removed leaf between two argument trees; types count, the order of keys does not.

    Args:
        before: The arguments as they were.
        after: The arguments as they would be.
        is_secret: Which names hide their values (`Redaction.is_secret`). Given the real trees, a secret that was
            changed is then listed and not shown; masked trees need none, and do not tell.
    """
    return list(_changes(before, after, (), is_secret))


_Steps = tuple[str | int, ...]
_IsSecret = Callable[[str], bool] | None


def _changes(before: Json, after: Json, steps: _Steps, is_secret: _IsSecret) -> Iterator[Change]:
    where = escape(place(steps, quoted))
    if is_secret is not None and steps and isinstance(steps[-1], str) and is_secret(steps[-1]):
        if _exact(before) != _exact(after):
            changed = f"{MASK} (changed)" if before is not _ABSENT else MASK
            yield Change(where, None if before is _ABSENT else MASK, None if after is _ABSENT else changed)
        return
    old, new = children_of(before), children_of(after)
    is_one_side = (before is _ABSENT and bool(new)) or (after is _ABSENT and bool(old))
    if is_one_side or (old is not None and new is not None and _kind(before) == _kind(after)):
        old, new = old or {}, new or {}
        for step in {**old, **new}:
            yield from _changes(old.get(step, _ABSENT), new.get(step, _ABSENT), (*steps, step), is_secret)
    elif _exact(before) != _exact(after):
        name = steps[-1] if steps else ""
        yield Change(where, *_pair(before, after, name if isinstance(name, str) else ""))


def _kind(tree: Json) -> tuple[str, str | None]:
    if fields_of(tree) is not None:
        return "fields", class_in(tree)
    return ("list" if isinstance(tree, list) else "tuple"), None


def _exact(tree: Json) -> str:
    # As text, because 1 == 1.0 == True and -0.0 == 0.0, and they are different arguments.
    return repr(tree)


def _pair(before: Json, after: Json, name: str) -> tuple[str | None, str | None]:
    if isinstance(before, str) and isinstance(after, str) and max(len(before), len(after)) > _CHANGE_ROOM - 2:
        start = _shared(before, after)
        end = _shared(before[start:][::-1], after[start:][::-1])
        return _around(before, start, end), _around(after, start, end)
    old, new = (None if tree is _ABSENT else brief(as_amount(name, tree), _CHANGE_ROOM) for tree in (before, after))
    return old, f"{new} (changed{'' if new == MASK else ' where it is not shown'})" if old == new else new


def _shared(one: str, other: str) -> int:
    """Return how many characters two texts share at their heads."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _around(text: str, start: int, end: int) -> str:
    first, last = max(start - _CONTEXT, 0), min(len(text) - end + _CONTEXT, len(text))
    head = f"(… {first:,} characters …) " if first else ""
    tail = f" (… {len(text) - last:,} characters …)" if last < len(text) else ""
    cut = text[first:last]
    return f"{head}{quoted(cut) if len(cut) <= _CHANGE_ROOM else brief(cut, _CHANGE_ROOM)}{tail}"
