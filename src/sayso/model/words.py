"""The language of texts for people: that of a page's reader; everywhere else English.

A text stands in the code in English, and is its own key in a catalogue of gettext. `say` looks it up in the language
that `speaking` chose for the current context. Only the inbox chooses one, for the time of one page: messages of
errors, commands, log lines, and whatever is stored or sent are English.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

_RIGHT_TO_LEFT = frozenset({"ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})


class Catalogue(Protocol):
    """What is asked of a catalogue; `gettext.GNUTranslations` is one."""

    def gettext(self, message: str) -> str:
        """Return a text in the language of the catalogue."""
        ...

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        """Return the form of a text that goes with a number."""
        ...


@dataclass(frozen=True)
class Language:
    """A language in which pages can be read.

    Attributes:
        tag: As pages and browsers name it: `de`, `zh-Hans`.
        catalogue: None for English.
    """

    tag: str
    catalogue: Catalogue | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What the language calls itself."""
        return "English" if self.catalogue is None else self.catalogue.gettext("English")

    @property
    def is_rtl(self) -> bool:
        """Whether it is written from right to left."""
        return self.tag.partition("-")[0] in _RIGHT_TO_LEFT


ENGLISH = Language("en")
_spoken: ContextVar[Language] = ContextVar("language", default=ENGLISH)


def spoken() -> Language:
    """Return the language of the current context."""
    return _spoken.get()


def choose(language: Language) -> None:
    """Speak another language from here on, until the block of `speaking` around ends."""
    _spoken.set(language)


@contextmanager
def speaking(language: Language) -> Generator[None]:
    """Speak a language while the block runs."""
    token = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(token)


def say(message: str, /, **values: object) -> str:
    """Return a text with its named values, `%(name)s`, in the language of the context."""
    catalogue = _spoken.get().catalogue
    return (message if catalogue is None else catalogue.gettext(message)) % isolated(values)


def say_n(one: str, many: str, num: int, /, **values: object) -> str:
    """Return a text that goes with a number, `%(num)s`; other languages have other forms than one and many."""
    catalogue = _spoken.get().catalogue
    found = (one if num == 1 else many) if catalogue is None else catalogue.ngettext(one, many, num)
    return found % isolated({"num": num, **values})


def later(message: str) -> str:
    """Return a text as it is: it goes into the catalogue, and somebody else says it."""
    return message


def isolated(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return values as they stand within a text that is written from right to left: neither turns the other.

    Texts that people are shown are escaped (`sayso.model.escaping`), so none of them can end its isolation.
    """
    if not _spoken.get().is_rtl:
        return values
    return {
        name: "\u2068" + value + "\u2069" if isinstance(value, str) and not value.isdecimal() else value
        for name, value in values.items()
    }


def unisolated(text: str) -> str:
    """Return a text of `say` for a place that escapes all of it, isolations too."""
    return text.replace("\u2068", "").replace("\u2069", "")
