"""Text for people: its language, and escapes that make it safe to show.

Texts are written in English in the code, where each is its own key in a gettext catalogue. `say` translates into the
language that `speaking` chose for the current context, and without one into English. Pages and push notifications
choose one; errors, commands, log lines and stored texts are in English.

`escape` makes invisible, look-alike and direction-changing characters visible. Also `storable` (what a store can keep),
CSV cells that a spreadsheet does not run as formulas, which names are plain, and which one was meant (`closest`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from gettext import NullTranslations

_RIGHT_TO_LEFT_LANGUAGES = frozenset({"ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})


@dataclass(frozen=True)
class Language:
    """A language for pages.

    Attributes:
        tag: Its BCP 47 tag: `de`, `zh-Hans`.
        catalogue: Its translations; None for English.
    """

    tag: str
    catalogue: NullTranslations | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The language's own name."""
        return "English" if self.catalogue is None else self.catalogue.gettext("English")

    @property
    def is_rtl(self) -> bool:
        """Whether it is written from right to left."""
        return self.tag.partition("-")[0] in _RIGHT_TO_LEFT_LANGUAGES


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

    Texts for people are escaped (`sayso.model.text`), so a value cannot end its own isolation.
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


T = TypeVar("T")


class Text(str):
    """A text that other programs' libraries can read as a message. Serialised, it is a plain `str`."""

    __slots__ = ()

    def collect_text(self) -> str:
        """Return the text."""
        return str(self)


# `str.isprintable` is false for the categories Cc, Cf, Cs, Co, Cn, Zl, Zp and every Zs but the space. These are
# by category printable but look like nothing or like a space: fillers, joiners, variation selectors, U+FFFC.
_BLANK = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef"
)
# A literal `<U+` would read as an escape, so its `<` is escaped.
_MARKED = re.compile(rf"<(?=U\+)|[{_BLANK}]")
_ODD = re.compile(rf"<(?=U\+)|[{_BLANK}]|[^\x20-\x7e]")
_BLANK_ONE = re.compile(f"[{_BLANK}]")
_WORD = re.compile(r"[^\W_]+")

_EAST_ASIAN = frozenset(
    {"BOPOMOFO", "CJK", "HALFWIDTH", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA", "KATAKANA-HIRAGANA"}
)
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})
_NO_SCRIPT = frozenset({"FEMININE", "MASCULINE", "MICRO", "MODIFIER", "SUBSCRIPT", "SUPERSCRIPT"})


def escape(text: str, *, block: bool = False) -> str:
    r"""Return `text` with each character that is not plainly visible as an ASCII escape like `<U+202E>`.

    Escaped are control, format, surrogate, private and unassigned characters, every line end and space except U+0020,
    fillers that look like nothing, and a leading combining mark. The result is unique for each text.

    Args:
        text: Anything.
        block: Keep `\n`, for a surface that marks each line as part of the text.
    """
    if block:
        return "\n".join(map(escape, text.split("\n"))) if "\n" in text else escape(text)
    if text.isascii():
        if text.isprintable() and "<U+" not in text:
            return text
    elif unicodedata.category(text[0])[0] == "M":
        # It would combine with whatever is printed before the text, such as an opening quote.
        marks = next((place for place, mark in enumerate(text) if unicodedata.category(mark)[0] != "M"), len(text))
        return "".join(f"<{_name(mark)}>" for mark in text[:marks]) + escape(text[marks:])
    elif text.isprintable() and _MARKED.search(text) is None:
        return text
    return _ODD.sub(_escaped, text)


def each_leaf(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return JSON values with each name and each value that has no parts changed."""
    if isinstance(tree, dict):
        return {change(name): each_leaf(part, change) for name, part in cast("dict[str, Any]", tree).items()}
    if isinstance(tree, list | tuple):
        return [each_leaf(part, change) for part in cast("list[Any]", tree)]
    return change(tree)


def storable(value: T) -> T:
    r"""Return a text or JSON values with lone surrogates (from file names; not valid UTF-8) written as `\udcff`."""
    return each_leaf(value, _without_surrogates)


def _without_surrogates(leaf: Any) -> Any:
    return leaf.encode(errors="backslashreplace").decode() if isinstance(leaf, str) and not leaf.isascii() else leaf


def hidden_in(text: str) -> list[str]:
    """Return the hidden characters of `text`, as `U+202E`, each once. Line feeds and tabs do not count."""
    if text.isprintable() and (text.isascii() or _BLANK_ONE.search(text) is None):
        return []
    return [_name(character) for character in dict.fromkeys(text) if character not in "\n\t" and _is_hidden(character)]


def is_blank(text: str) -> bool:
    """Return whether `text` has no visible character."""
    return all(character.isspace() or _is_hidden(character) for character in text)


def is_plain_name(given: object, longest: int = 200) -> bool:
    """Return whether this is a text of 1 to `longest` printable characters without surrounding spaces."""
    return isinstance(given, str) and 0 < len(given) <= longest and given.isprintable() and given == given.strip()


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant by a misspelt one; None if none is close."""
    from difflib import get_close_matches  # only an error needs it

    return next(iter(get_close_matches(name, list(known), 1)), None)


def mixed_script(text: str) -> dict[str, list[str]]:
    r"""Return the words of `text` that mix scripts, with their scripts: `{"p\u0430ypal": ["Latin", "Cyrillic"]}`.

    Latin beside East Asian letters is common and does not count. A word in a single script that looks like a word in
    another is not detected.
    """
    if text.isascii():
        return {}
    words = (word for word in dict.fromkeys(_WORD.findall(text)) if not word.isascii())
    scripts = {word: {_script(letter) for letter in word if letter.isalpha()} - {""} for word in words}
    mixed = {word: found for word, found in scripts.items() if len(found) > 1 and found != {"Latin", "East Asian"}}
    return {word: sorted(found, key=lambda script: (script != "Latin", script)) for word, found in mixed.items()}


def mixed_direction(text: str) -> str | None:
    """Return the first right-to-left letter of a text that also has left-to-right letters; None for any other text.

    A terminal or browser draws the parts of such a text in a different order than they are stored.
    """
    if text.isascii():
        return None
    ways = {letter: unicodedata.bidirectional(letter) for letter in dict.fromkeys(text)}
    first = next((letter for letter, way in ways.items() if way in _RIGHT_TO_LEFT), None)
    return first if first is not None and "L" in ways.values() else None


def is_right_to_left(text: str) -> bool:
    """Return whether most letters of a text run from right to left, so that it is laid out from the right.

    Browsers look at the first letter only, so a single letter could turn a whole text around.
    """
    if text.isascii():
        return False
    ways = [unicodedata.bidirectional(letter) for letter in text]
    return sum(way in _RIGHT_TO_LEFT for way in ways) > ways.count("L")


def _is_hidden(character: str) -> bool:
    return not character.isprintable() or _BLANK_ONE.match(character) is not None


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return f"<{_name(character)}>" if character == "<" or _is_hidden(character) else character


def _name(character: str) -> str:
    return f"U+{ord(character):04X}"


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    first = unicodedata.name(letter, "").partition(" ")[0]
    if first in _EAST_ASIAN:
        return "East Asian"
    return "" if first in _NO_SCRIPT else first.title()


# Characters that begin a formula in a spreadsheet, also in full width and after blanks.
_FORMULA = tuple("=+-@|%\t\r\n＝＋－＠")  # noqa: RUF001  these very letters
# Where the decimal separator is a comma, spreadsheets split a line at semicolons and interpret quotes themselves.
_BEHIND = re.compile(rf';(?=[\s"]*[{re.escape("".join(_FORMULA))}])')


def csv_row(cells: Iterable[Any]) -> str:
    """Return a line of CSV with its line end; texts are escaped by `cell`."""
    import csv  # few importers of this module need it
    import io

    line = io.StringIO()
    csv.writer(line).writerow([cell(one) if isinstance(one, str) else one for one in cells])
    return line.getvalue()


def cell(text: str) -> str:
    """Return a text that a spreadsheet displays and does not run: escaped, and with an apostrophe before a formula."""
    shown = _BEHIND.sub(";'", escape(text))
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
