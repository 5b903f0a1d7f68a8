"""The language of texts for people: that of the page's reader in the inbox, English everywhere else.

Texts are written in English in the code, where each is its own key in a gettext catalogue. `say` translates into the
language that `speaking` chose for the current context. Only the inbox chooses one, while it renders a page: errors,
commands, log lines, and whatever is stored or sent are in English.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

_RIGHT_TO_LEFT = frozenset({"ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})


class Catalogue(Protocol):
    """The interface of a catalogue; `gettext.GNUTranslations` is one."""

    def gettext(self, message: str) -> str:
        """Return the translation of a text."""
        ...

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        """Return the translation of a text in the plural form for a number."""
        ...


@dataclass(frozen=True)
class Language:
    """A language for pages.

    Attributes:
        tag: Its BCP 47 tag: `de`, `zh-Hans`.
        catalogue: Its translations; None for English.
    """

    tag: str
    catalogue: Catalogue | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The language's own name."""
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
    """Switch to another language until the enclosing `speaking` block ends."""
    _spoken.set(language)


@contextmanager
def speaking(language: Language) -> Generator[None]:
    """Use a language inside the block."""
    token = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(token)


def say(message: str, /, **values: object) -> str:
    """Translate a text and fill in its named values, `%(name)s`."""
    catalogue = _spoken.get().catalogue
    return (message if catalogue is None else catalogue.gettext(message)) % isolated(values)


def say_n(one: str, many: str, num: int, /, **values: object) -> str:
    """Translate a text with a number, `%(num)s`, in the plural form of the language, and fill in its named values."""
    catalogue = _spoken.get().catalogue
    found = (one if num == 1 else many) if catalogue is None else catalogue.ngettext(one, many, num)
    return found % isolated({"num": num, **values})


def later(message: str) -> str:
    """Mark a text for the catalogue and return it unchanged; `say` translates it later."""
    return message


def isolated(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return values for insertion into right-to-left text, isolated so that neither changes the other's direction.

    Texts for people are escaped (`sayso.model.escaping`), so a value cannot end its own isolation.
    """
    if not _spoken.get().is_rtl:
        return values
    return {
        name: "\u2068" + value + "\u2069" if isinstance(value, str) and not value.isdecimal() else value
        for name, value in values.items()
    }


def unisolated(text: str) -> str:
    """Remove the isolation characters from a text of `say`, for a place that would escape them."""
    return text.replace("\u2068", "").replace("\u2069", "")
