"""A pseudo-language for tests: each Latin letter of our texts becomes a Hebrew one.

Texts of programs and people in these tests are Greek. Invariant: a Latin letter on a page, except those that
`OURS_ANYWAY` allows, belongs to one of our texts that is missing in the catalogue.
"""

from __future__ import annotations

import re
from gettext import NullTranslations
from html.parser import HTMLParser

from sayso.model.text import Language

__all__ = ["HEBREW", "latin_in", "left_in_latin"]

_LETTERS = {ord("a") + at: 0x5D0 + at for at in range(26)}
_KEPT = re.compile(r"(%\(\w+\)s|%%|<[^>]*>|&\w+;)")
_NAMES = {"aria-label", "placeholder", "title", "alt", "data-counts", "data-risk"}
_SILENT = {"script", "style", "kbd"}
# Names, not words: the product, formats, ids, times, text to type, notes inside rendered values.
OURS_ANYWAY = re.compile(
    r"\\n|\b3d, |sqlite:\S+|(?:\b__main__\.py|-c\b)"
    r"|\b(?:rq|run|gr|tok)_\w+\b|\b[0-9a-f]{16,}\b|\d{4}-\d\d-\d\d[T ][\d:.+]+Z?|U\+[0-9A-F]+"
    r"|\b(?:sayso|CSV|JSONL|JSON|null|true|false|None|UTC|ID|python|local|characters|memory|English|Deutsch"
    r"|NAME|ISSUER)\b"
)


def _said(text: str) -> str:
    parts = _KEPT.split(text)
    return "".join(part if at % 2 else part.casefold().translate(_LETTERS) for at, part in enumerate(parts))


class _Pseudo(NullTranslations):
    def gettext(self, message: str) -> str:
        return _said(message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return _said(msgid1 if n == 1 else msgid2)


HEBREW = Language("he", _Pseudo())


def latin_in(text: str) -> str:
    """Return the Latin words of a text that are not names."""
    return " ".join(re.findall(r"[A-Za-z][A-Za-z'-]*", OURS_ANYWAY.sub("", text)))


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_silent = tag in _SILENT or (tag != "html" and "lang" in given) or given.get("translate") == "no"
        if not any(silent for _, silent in self._open) and not is_silent:
            self.found += [value or "" for name, value in attrs if name in _NAMES]
        if tag not in {"meta", "link", "input", "br", "hr", "line", "rect"}:
            self._open.append((tag, is_silent))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not any(silent for _, silent in self._open):
            self.found.append(data)


def left_in_latin(page: str) -> list[str]:
    """Return the texts of a page, visible or for screen readers, that contain Latin words."""
    texts = _Texts()
    texts.feed(page)
    return [" ".join(text.split()) for text in texts.found if latin_in(text)]
