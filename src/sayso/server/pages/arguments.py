"""Renders the arguments of a call for a page, its amounts, and the changes of an edit line by line.

Each argument is drawn by its type, in a box of its own. A plain text has no quotes only if it cannot be mistaken for
anything else; all other values are drawn as elsewhere (`sayso.view.summary`). No value can leave its box, so the lines
of a block need no prefix. Code is highlighted with CSS classes only; a text that the highlighter does not reproduce
exactly is not highlighted.

Amounts are found by the names of arguments, and the largest one is formatted for a list. A program may send a number of
any size, so nothing here does arithmetic: `-` raises `Overflow` for `1e9999999`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from difflib import SequenceMatcher
from functools import cache
from io import StringIO
from itertools import groupby
from typing import Any, NamedTuple, cast

from markupsafe import Markup
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]  its stub is partial
from pygments.token import Token

from sayso.model.canonical import Json
from sayso.model.canonical.json_tree import MASK, children_of, fields_of, items_of, tag_in
from sayso.model.parameters import place
from sayso.model.rendering import Change, as_amount, is_amount, money, parts_of, quoted, value
from sayso.model.request import Call, Request
from sayso.model.text import escape, is_right_to_left, later, say, say_n
from sayso.view.summary import Layout, empty_lines, gathered, is_empty, without_gaps

_IN_CURRENCY = re.compile(r"(?i)(?:^|_)(?:eur|usd|gbp)(?:$|_)")
_CURRENCY = re.compile(r"(?i)(?:^|_)(?:currency|ccy|unit)(?:$|_)")
_UNIT = re.compile("[A-Za-z]{1,4}")
_MOST_DIGITS, _LONGEST_AMOUNT = 15, 40


def names_currency(name: str) -> bool:
    """Return whether the name of an amount contains its currency, as in `total_eur`."""
    return _IN_CURRENCY.search(name.rpartition(".")[2]) is not None


def is_currency(name: str) -> bool:
    """Return whether an argument of this name is the currency of an amount."""
    return _CURRENCY.search(name.rpartition(".")[2]) is not None


def currency_code(value: object) -> str | None:
    """Return a code such as `EUR`, which needs no quotes; None for anything else."""
    return value if isinstance(value, str) and _UNIT.fullmatch(value) else None


def amount_of(request: Request) -> Decimal:
    """Return the largest number among the arguments named as an amount, such as `amount`; 0 if there is none.

    Nothing is taken from a list, because an item's amount is not that of the call: there may be 4,000 of it.
    """
    return _largest(request)[0].copy_abs()


def amount_text(request: Request) -> str:
    """Return the largest amount, with its currency if an argument beside it names one; empty if there is none."""
    number, unit = _largest(request)
    if number == 0 or number.adjusted() > _MOST_DIGITS or number.adjusted() < -_MOST_DIGITS:
        return ""
    return f"{money(number)} {unit}" if unit else money(number)


def _largest(request: Request) -> tuple[Decimal, str | None]:
    is_shown = request.kind == "call" and request.purged_at is None
    amounts = _amounts(request.effective.arguments) if is_shown else ()
    return max(amounts, key=lambda found: found[0].copy_abs(), default=(Decimal(0), None))


def _amounts(value: Any, name: str = "", unit: str | None = None) -> Iterator[tuple[Decimal, str | None]]:
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        codes = (currency_code(inner) for key, inner in inside.items() if is_currency(key))
        unit = next(filter(None, codes), unit)
        for key, inner in inside.items():
            yield from _amounts(inner, key, unit)
    elif isinstance(value, int | float | str) and not isinstance(value, bool) and is_amount(name):
        text = str(value)
        with suppress(InvalidOperation):
            found = Decimal(text if len(text) <= _LONGEST_AMOUNT else "nan")  # a cut text would be another number
            if found.is_finite():
                yield found, unit


# Limits, because highlighting and comparing take longer for longer texts, and an agent may send one made to be slow.
_LONGEST, _MOST_LINES, _CONTEXT = 8_000, 2_000, 3
_MOST_PAIRED = 400  # lines of two arguments up to which their difference is shown on each page view
_NAMED = {
    "sql": "sql", "statement": "sql", "diff": "diff", "patch": "diff", "python": "python", "bash": "shell",
    "shell": "shell", "command": "shell", "cmd": "shell", "json": "json",
}  # fmt: skip
_SQL = re.compile(r"\s*(?:select|insert|update|delete|merge|with|create|alter|drop|truncate|grant)\s", re.IGNORECASE)
_SQL_GOES_ON = re.compile(r"\b(?:from|into|set|table|view|index|as|on|using)\b", re.IGNORECASE)
_DIFF = re.compile(r"(?:diff --git |--- .*\n\+\+\+ )")
_FORMATTER = HtmlFormatter[str](nowrap=True, classprefix="h-")
_EMPTY = Markup('<span class="gap">{}</span>')
_SPACES = '<span class="gap">&lt;U+0020 x {:,}&gt;</span>'


# -- code ------------------------------------------------------------------------------------------------------------


def language_of(name: str, text: str) -> str | None:
    """Return the language of an argument's text, judged by its content and the argument's name; None if plain."""
    if _DIFF.match(text):
        return "diff"
    if _SQL.match(text) and _SQL_GOES_ON.search(text):
        return "sql"
    return next((_NAMED[part] for part in reversed(name.casefold().split("_")) if part in _NAMED), None)


def in_sight(text: str) -> Markup:
    """Escape a text for a page, with long runs of spaces and empty lines collapsed so that they hide nothing."""
    lines = gathered(Markup.escape(text).split("\n"), lambda line: is_empty(line.striptags()))
    return Markup("\n").join(map(_near, lines))


def _near(line: Markup | int) -> Markup:
    """Return a line with its long runs of spaces collapsed, or a note in place of a number of empty lines."""
    if isinstance(line, int):
        return _EMPTY.format(empty_lines(line))
    return Markup(without_gaps(str(line), _SPACES))  # noqa: S704  the line is escaped already


def highlighted(text: str, language: str | None) -> Markup:
    """Escape a text for a page, with keywords, strings, numbers and comments highlighted."""
    if language is None or len(text) > _LONGEST:
        return Markup.escape(text)
    tokens = list(_lexer(language).get_tokens(text))
    if "".join(part for _, part in tokens) != text:
        return Markup.escape(text)
    # The formatter closes each span at the end of its line, and ends the last line.
    drawn = StringIO()
    _FORMATTER.format([*tokens, (Token, "\n")], drawn)
    return Markup(drawn.getvalue()[:-1])  # noqa: S704  the formatter has escaped it


@cache
def _lexer(language: str) -> Lexer:
    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


# -- what an edit changes --------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line of a difference; the sign is `+` (added), `-` (removed), a space (unchanged) or `…` (lines left out)."""

    sign: str
    text: Markup


class Difference(NamedTuple):
    """A change of an edit; for a text of several lines, with the lines of the difference."""

    change: Change
    lines: Sequence[Line] = ()


def differences(changes: Sequence[Change], before: Call, after: Call) -> list[Difference]:
    """Return the changes of an edit; those of a text of several lines are compared line by line.

    So is a list that got longer or shorter, as one change: after a row that is left out, each other has another number.
    """
    old, new = before.shown, after.shown
    both = old.keys() & new.keys()
    texts = {escape(place([name], quoted)): (old[name], new[name], name) for name in both}
    lists = dict(part for name in both for part in _resized(before.drawn[name], after.drawn[name], (name,)))
    found, listed = list[Difference](), set[str]()
    for change in changes:
        one, other, name = texts.get(change.path, (None, None, ""))
        is_lined = isinstance(one, str) and isinstance(other, str) and "\n" in f"{one}{other}"
        lines = _lines(name, cast("str", one), cast("str", other)) if is_lined else ()
        path = next((path for path in lists if change.path.startswith(f"{path}[")), None)
        if path is None or MASK in f"{change.before}{change.after}":
            found.append(Difference(change, lines))
        elif path not in listed:
            listed.add(path)
            found.append(Difference(Change(path, None, None), lists[path]))
    return found


def _resized(old: Json, new: Json, steps: tuple[str | int, ...]) -> Iterator[tuple[str, Sequence[Line]]]:
    """Return the path of each list that has another length, and how it differs, unless it is too long to compare."""
    one, other = items_of(old), items_of(new)
    if one is not None and other is not None and len(one) != len(other):
        drawn = ([row for item in items for row in Layout(_WIDTH, None).rows(item)] for items in (one, other))
        lines = _differing(*(list(map(Markup.escape, rows)) for rows in drawn))
        yield from [(escape(place(steps, quoted)), lines)] if lines else []
        return
    inner, others = children_of(old) or {}, children_of(new) or {}
    for step in inner.keys() & others.keys():
        yield from _resized(inner[step], others[step], (*steps, step))


def _lines(name: str, one: str, other: str) -> Sequence[Line]:
    return _differing(*(
        highlighted(escape(text, block=True), language_of(name, text)).split("\n") for text in (one, other)
    ))  # fmt: skip


def _differing(before: list[Markup], after: list[Markup]) -> Sequence[Line]:
    if max(len(before), len(after)) > _MOST_LINES or before == after:
        return ()  # too long, or they differ only in line ends or the like: the caller shows both values
    found, ends = list[Line](), 0
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT):
        found += [Line("…", Markup(""))] if found or group[0][1] else []
        for what, start, end, first, last in group:
            if what == "equal":
                found += [Line(" ", line) for line in before[start:end]]
            else:
                found += [Line("-", line) for line in before[start:end]]
                found += [Line("+", line) for line in after[first:last]]
        ends = group[-1][2]
    found += [Line("…", Markup(""))] if ends < len(before) else []
    return [
        Line(sign, _near(line if isinstance(line, int) else line.text))
        for sign, lines in groupby(found, lambda line: line.sign)
        for line in gathered(lines, lambda line: line.sign != "…" and is_empty(line.text.striptags()))
    ]


# -- time zones ------------------------------------------------------------------------------------------------------

_ZONE = re.compile(r"Z|[+-]\d\d:\d\d|\[")


def zone_warnings(before: Call, after: Call) -> list[str]:
    """Return a warning for each date or time that gained or lost its time zone in an edit."""
    old, new = before.shown, after.shown
    return [warning for name in old if name in new for warning in _zones(escape(name), old[name], new[name])]


def _zones(name: str, before: Json, after: Json) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        tag = tag_in(before)
        if tag in {"$datetime", "$time"} and tag == tag_in(after):
            had, has = (_ZONE.search(str(tree[tag]), 5) is not None for tree in (before, after))
            if had is not has:
                lost = later("%(name)s lost its time zone: it is a different instant on each machine")
                yield say(lost if had else later("%(name)s now has a time zone; it had none"), name=name)
            return
        for key in before.keys() & after.keys():
            yield from _zones(name, before[key], after[key])
    elif isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            yield from _zones(name, one, other)


# Browsers treat a backslash as a slash, so a text with one is not matched: its host might be another.
_HOST = Markup('<span class="h-host">{}</span>')
_WEB = re.compile(
    r"((?:https?|wss?|ftp|s3|git|ssh)://(?:[^\s/?#\\]*@)?)([^\s/?#@:\\]+)((?::\d+)?(?:[/?#][^\s\\]*)?)", re.IGNORECASE
)
_MAIL = re.compile(r"([^\s@/]+@)([^\s@/:\\]+\.[^\s@/:\\]+)()")
_ONE_LINE, _ITEM, _MOST_ITEMS = 160, 40, 24
_CODE = re.compile("[A-Z]{3}")  # of a currency, ISO 4217
_MOST_ROWS, _DEEPEST, _MOST_BRANCHES = 8, 6, 200  # of a value that is drawn as a tree
_WIDTH = 56  # characters that fit into a card; wider lines would wrap anywhere
# What a text without quotes could be taken for: a number, alone or with a currency, a word of ours, a mask, an
# instant, another value's brackets, a value with its kind in front (`Path("/x")`, `b'a'`), a member of an enum.
_MISTAKEN = re.compile(
    r"[-+.\u2010-\u2015\u2212\ufe63\uff0d]?\d[\d.,:eE+TZ_-]*(?: (?-i:[A-Z]{3}))?|none|null|true|false|nan"
    r"|[-+]?inf(inity)?|\*+|\*{3}.*|\d{4}-\d\d-\d\d.*"
    r"|[\[({<'\"].*|\w+\(.*\)|b['\"].*|\w+\.(?-i:[A-Z][A-Z0-9_]*)|(?-i:[A-Z])\w*(?:\.\w+)+",
    re.IGNORECASE,
)


_STEP = re.compile(r'\[([0-9]+)\]|(?:^|\[)("(?:[^"\\]|\\.)*")\]?|(?:^|\.)([^.\[\]"]+)')


def in_words(path: str) -> str:
    """Return the path of a value for people: `items, row 1, count` for `items[0].count`."""
    steps, ends = list[str](), 0
    for found in _STEP.finditer(path):
        if found.start() != ends:
            return path
        row, quoted_name, name = found.groups()
        steps.append(say("row %(number)s", number=int(row) + 1) if row else quoted_name or name)
        ends = found.end()
    return ", ".join(steps) if ends == len(path) else path


class Branch(NamedTuple):
    """A part of a nested value: a text, or parts of its own that can be folded.

    Attributes:
        label: Its name or key, as it is drawn in front of its value.
        text: The whole value, escaped; of one with parts, its brackets.
        parts: Its parts.
        size: How many values they hold.
        is_open: Whether the parts are in sight at first: something in them was changed.
    """

    label: str
    text: str
    parts: tuple[Branch, ...] = ()
    size: str = ""
    is_open: bool = True


class Argument(NamedTuple):
    """One argument.

    Attributes:
        name: As people see it.
        kind: How it is drawn: `text`, `number`, `code`, `block`, `tree`, `list`, `lines` or `masked`.
        text: The whole value, escaped.
        size: For a block, how long it is.
        items: For a list of short values, each of them.
        key: What its field is called in the form; empty where it has none.
        code: The text with its parts marked, where it is code.
        language: Which.
        lines: How two arguments differ, the old text and the new one; a row of its own in front of them.
        is_rtl: Whether it is a text that is read from the right.
        branches: For a tree, its parts.
        unit: For an amount, which other argument holds its currency, which stands beside it; escaped.
        is_value: For a block, whether it is a value on several lines, and no text.
    """

    name: str
    kind: str
    text: str
    size: str = ""
    items: tuple[str, ...] = ()
    key: str = ""
    code: Markup | None = None
    language: str = ""
    lines: Sequence[Line] = ()
    is_rtl: bool = False
    branches: tuple[Branch, ...] = ()
    unit: str = ""
    is_value: bool = False


def arguments_of(shown: dict[str, Json], names: Iterable[str] = (), changes: Collection[str] = ()) -> list[Argument]:
    """Return the arguments of a call, as its masked form shows them.

    `names` are those of its schema, in order, and `changes` the paths of what reviewers changed, which stays in sight.
    """
    keys = {name: f"f{at}" for at, name in enumerate(names)}
    named = fields_of(cast("Json", shown)) or {}
    unit = _currency_among(named)
    found = list[Argument]()
    for name, tree in named.items():
        if name == unit:
            continue
        other = f"new{name.removeprefix('old')}"
        after = named.get(other) if name == "old" or name.startswith("old_") else None
        is_pair = isinstance(tree, str) and isinstance(after, str) and 0 < f"{tree}{after}".count("\n") < _MOST_PAIRED
        lines = _lines(name, cast("str", tree), cast("str", after)) if is_pair else ()
        if lines:
            found.append(Argument(f"{escape(name)} → {escape(other)}", "lines", "", lines=lines))
        whole = _branch("", tree, (name,), changes) if children_of(tree) else None
        found.append(draw(escape(name), tree)._replace(key=keys.get(name, "")))
        if whole is not None and whole.parts:
            found[-1] = found[-1]._replace(kind="tree", branches=whole.parts, size=whole.size)
        if unit is not None and _has_currency(name, tree):
            key = f"{found[-1].key or '-'} {keys.get(unit, '-')}"
            found[-1] = found[-1]._replace(text=f"{found[-1].text} {named[unit]}", unit=escape(unit), key=key)
    return found


def _currency_among(named: Mapping[str, Json]) -> str | None:
    """Return the argument that holds the currency of the amounts beside it; None where there is no one such."""
    names = [name for name in named if is_currency(name)]
    tree = named[names[0]] if len(names) == 1 else None
    is_code = isinstance(tree, str) and _CODE.fullmatch(tree) is not None
    return names[0] if is_code and any(_has_currency(name, one) for name, one in named.items()) else None


def _has_currency(name: str, tree: Json) -> bool:
    """Say whether a number is an amount whose currency is not in its own name."""
    is_number = isinstance(tree, int | float) and not isinstance(tree, bool)
    return is_amount(name) and not names_currency(name) and (is_number or tag_in(tree) == "$decimal")


def _branch(label: str, tree: Json, steps: tuple[str | int, ...], changes: Collection[str]) -> Branch:
    """Return a value as a tree; without parts where it is short, or too large or deep."""
    parts, inner, rows = parts_of(tree), children_of(tree), Layout(_WIDTH, None).rows(tree)
    is_short = len(steps) > _DEEPEST or len(rows) <= _MOST_ROWS
    if parts is None or inner is None or is_short or not 0 < len(inner) <= _MOST_BRANCHES:
        return Branch(label, "\n".join(rows))
    where, pairs = escape(place(steps, quoted)), zip(parts.items, inner, strict=True)
    branches = tuple(_branch(prefix, part, (*steps, step), changes) for (prefix, part), step in pairs)
    is_changed = any(path == where or path.startswith((f"{where}.", f"{where}[")) for path in changes)
    size = say_n("%(num)s value", "%(num)s values", _leaves(tree))
    return Branch(label, f"{parts.opening}…{parts.closing}", branches, size, is_changed)


def _leaves(tree: Json) -> int:
    """Return how many values without parts a value holds; an empty list counts as one."""
    inner = children_of(tree)
    return sum(map(_leaves, inner.values())) if inner else 1


def draw(name: str, tree: Json) -> Argument:
    """Return one value as an argument to display; `name` must be escaped."""
    if isinstance(tree, str):
        return _text(name, tree)
    if tag_in(tree) == "$secret":
        return Argument(name, "masked", value(tree))
    tree = as_amount(name, tree)
    items = items_of(tree) or []
    if 0 < len(items) <= _MOST_ITEMS and not any(
        isinstance(item, dict | list) or len(str(item)) > _ITEM for item in items
    ):
        few = (item if isinstance(item, str) and is_plain(item) and "," not in item else value(item) for item in items)
        return Argument(name, "list", value(tree), items=tuple(few))
    if tag_in(tree) == "$decimal":
        return Argument(name, "number", value(tree))
    is_number = isinstance(tree, int | float) and not isinstance(tree, bool)
    rows = Layout(_WIDTH, None).rows(tree)
    if len(rows) > 1:
        return Argument(name, "block", "\n".join(rows), say("%(count)s lines", count=f"{len(rows):,}"), is_value=True)
    return Argument(name, "number" if is_number else "code", rows[0] if rows else "")


def _text(name: str, text: str) -> Argument:
    language = language_of(name, text)
    if "\n" in text or len(text) > _ONE_LINE:
        drawn = escape(text, block=True)
        found = Argument(name, "block", drawn, say("%(count)s characters", count=f"{len(text):,}"))
        if language is None:
            return found._replace(is_rtl=is_right_to_left(text))
        return found._replace(code=highlighted(drawn, language), language=language)
    if not is_plain(text):
        return Argument(name, "code", value(text))
    if language is not None:
        return Argument(name, "text", text, code=highlighted(text, language))
    found = _WEB.fullmatch(text) or _MAIL.fullmatch(text)
    if found is None:
        return Argument(name, "text", text, is_rtl=is_right_to_left(text))
    before, host, rest = found.groups()  # of a URL or mail address, the host is highlighted
    return Argument(name, "text", text, code=Markup.escape(before) + _HOST.format(host) + Markup.escape(rest))


def is_plain(text: str) -> bool:
    """Return whether a text needs no quotes: it hides nothing, has no extra spaces, and cannot be mistaken."""
    return bool(text) and text == escape(text) == " ".join(text.split()) and not _MISTAKEN.fullmatch(text)
