"""Texts with lines: code with its parts marked, what an edit changes line by line, and time zones that an edit moves.

Whatever is shown is escaped here or before, and marked by classes alone. A text that the highlighter would draw in any
other way than it stands is drawn without marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Any, NamedTuple, cast

from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]  its stub is partial
from pygments.token import Comment, Keyword, Name, Number, String, Token

from sayso.model.canonical import Json
from sayso.model.canonical.decode import tag_in
from sayso.model.escaping import escape
from sayso.model.rendering import Change
from sayso.model.request import Call

__all__ = ["Difference", "Line", "differences", "highlighted", "language_of", "zone_warnings"]

# How long a text can take to be marked grows with it; an agent may send one that is made to be slow.
_LONGEST, _MOST_LINES, _CONTEXT = 8_000, 2_000, 3
_NAMED = {
    "sql": "sql", "statement": "sql", "diff": "diff", "patch": "diff", "python": "python", "bash": "shell",
    "shell": "shell", "command": "shell", "cmd": "shell", "json": "json",
}  # fmt: skip
_SQL = re.compile(r"\s*(?:select|insert|update|delete|merge|with|create|alter|drop|truncate|grant)\s", re.IGNORECASE)
_SQL_GOES_ON = re.compile(r"\b(?:from|into|set|table|view|index|as|on|using)\b", re.IGNORECASE)
_DIFF = re.compile(r"(?:diff --git |--- .*\n\+\+\+ )")
_CLASSES = (
    (Comment, "h-comment"), (Keyword, "h-keyword"), (String, "h-string"), (Number, "h-number"),
    (Name.Builtin, "h-name"), (Name.Function, "h-name"), (Name.Tag, "h-name"),
)  # fmt: skip


# -- code ------------------------------------------------------------------------------------------------------------


def language_of(name: str, text: str) -> str | None:
    """Return the language of a text that an argument of this name has; None where it is plain."""
    if _DIFF.match(text):
        return "diff"
    if _SQL.match(text) and _SQL_GOES_ON.search(text):
        return "sql"
    return next((_NAMED[part] for part in reversed(name.casefold().split("_")) if part in _NAMED), None)


def highlighted(text: str, language: str | None) -> Markup:
    """Return a text, escaped for a page, with its keywords, strings, numbers and comments marked."""
    if language is None or len(text) > _LONGEST:
        return Markup.escape(text)
    if language == "diff":
        return Markup("\n").join(map(_line_of_diff, text.split("\n")))
    found = [(kind, part) for kind, part in _lexer(language).get_tokens(text) if part]
    if "".join(part for _, part in found) != text:
        return Markup.escape(text)
    return Markup("").join(_marked(kind, part) for kind, part in found)


_OF_DIFF = {"+": "h-inserted", "-": "h-deleted", "@": "h-comment"}


def _line_of_diff(line: str) -> Markup:
    known = _OF_DIFF.get(line[:1])
    return Markup.escape(line) if known is None else _span(known, line)


@cache
def _lexer(language: str) -> Lexer:
    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


def _marked(kind: Any, part: str) -> Markup:
    known = next((name for parent, name in _CLASSES if kind in parent), None)
    if known is None or kind is Token:
        return Markup.escape(part)
    # A mark never reaches over the end of a line, so that a line can be taken out.
    return Markup("\n").join(_span(known, one) if one else Markup("") for one in part.split("\n"))


def _span(known: str, text: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(known, text)


# -- what an edit changes --------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line of a difference: `+` where it is new, `-` where it goes, a space where it stays, `…` for those between."""

    sign: str
    text: Markup


class Difference(NamedTuple):
    """What an edit changes in one place; of a text with lines, these."""

    change: Change
    lines: Sequence[Line] = ()


def differences(changes: Sequence[Change], before: Call, after: Call) -> list[Difference]:
    """Return what an edit changes, by lines where an argument is a text of several."""
    old, new = before.shown, after.shown
    texts = {escape(name): (old[name], new[name], name) for name in old.keys() & new.keys()}
    found: list[Difference] = []
    for change in changes:
        one, other, name = texts.get(change.path, (None, None, ""))
        is_lined = isinstance(one, str) and isinstance(other, str) and "\n" in f"{one}{other}"
        lines = _lines(name, cast("str", one), cast("str", other)) if is_lined else ()
        found.append(Difference(change, lines))
    return found


def _lines(name: str, one: str, other: str) -> Sequence[Line]:
    before, after = (_drawn(name, text) for text in (one, other))
    if max(len(before), len(after)) > _MOST_LINES or before == after:
        return ()  # only the ends of lines differ, or what no line shows: the whole values say it
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
    return [*found, Line("…", Markup(""))] if ends < len(before) else found


def _drawn(name: str, text: str) -> list[Markup]:
    return highlighted(escape(text, block=True), language_of(name, text)).split("\n")


# -- time zones ------------------------------------------------------------------------------------------------------

_ZONE = re.compile(r"Z|[+-]\d\d:\d\d|\[")


def zone_warnings(before: Call, after: Call) -> list[str]:
    """Return of each date and time that got a zone by an edit, or lost the one that it had, that this is so."""
    old, new = before.shown, after.shown
    return [said for name in old if name in new for said in _zones(escape(name), old[name], new[name])]


def _zones(name: str, before: Json, after: Json) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        tag = tag_in(before)
        if tag in {"$datetime", "$time"} and tag == tag_in(after):
            had, has = (_ZONE.search(str(tree[tag]), 5) is not None for tree in (before, after))
            if had is not has:
                lost = "had a time zone and has none any more: it is another instant on each machine"
                yield f"{name} {lost if had else 'had no time zone and has one now'}"
            return
        for key in before.keys() & after.keys():
            yield from _zones(name, before[key], after[key])
    elif isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            yield from _zones(name, one, other)
