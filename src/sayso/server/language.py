"""Chooses the language of the inbox: the person's setting, else the browser's Accept-Language, else English.

Each language has two files in `catalogues/`: a `.po` for translators, and the `.mo` compiled from it. Adding a language
takes no more than these.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from gettext import GNUTranslations
from pathlib import Path
from typing import Any

from sayso import errors
from sayso.model.reviewer import Identity
from sayso.model.text import ENGLISH, Language, later, say, spoken
from sayso.stores.base import Store
from sayso.stores.transaction import Record

_FOLDER, _SCRIPT = Path(__file__).parent / "catalogues", Path(__file__).parent / "static" / "app.js"
_KIND, _MOST_ASKED, _LONGEST = "language", 20, 400
_QUALITY = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
_IN_SCRIPT = re.compile(r'\bsay\(\s*("(?:[^"\\]|\\.)*")')
_IN_SCRIPT_N = re.compile(r'\bsayN\(\s*("(?:[^"\\]|\\.)*"),\s*("(?:[^"\\]|\\.)*")')
_SAMPLE = 200  # a number from 200 has the plural form of 100 plus its last two digits

later("English")  # translators: what your language calls itself: Deutsch, 简体中文


@cache
def languages() -> dict[str, Language]:
    """Return the available languages by tag, English first."""
    found = {ENGLISH.tag: ENGLISH}
    for path in sorted(_FOLDER.glob("*.mo")):
        with path.open("rb") as file:
            tag = path.stem.replace("_", "-")
            found[tag] = Language(tag, GNUTranslations(file))
    return found


def asked_for(accepted: str) -> Language:
    """Return the available language that an Accept-Language header prefers, else English."""
    return next(filter(None, map(_known, _wanted(accepted[:_LONGEST].casefold()))), ENGLISH)


def _known(tag: str) -> Language | None:
    """Return the language that matches a tag, also by prefix: `de-AT` is German, `zh` is `zh-Hans`."""
    known = {name.casefold(): language for name, language in languages().items()}
    while tag:
        found = known.get(tag) or next((one for name, one in known.items() if name.startswith(f"{tag}-")), None)
        if found is not None:
            return found
        tag = tag.rpartition("-")[0]
    return None


def _wanted(accepted: str) -> Iterator[str]:
    """Yield the tags of an Accept-Language header, highest quality first."""
    ranges: list[tuple[float, str]] = []
    for part in accepted.split(",")[:_MOST_ASKED]:
        tag, _, quality = (one.strip() for one in part.partition(";"))
        found = _QUALITY.fullmatch(quality.replace(" ", "")) if quality else None
        rank = 1.0 if not quality else 0.0 if found is None else float(found[1])
        if tag and rank > 0:
            ranges.append((rank, tag))
    yield from (tag for _, tag in sorted(ranges, key=lambda one: -one[0]))


def language_of(store: Store, person: Identity) -> Language | None:
    """Return the language that a person chose; None if they leave it to the browser. Reads the store."""
    with suppress(errors.StoreCorruptError):
        record = store.record(_KIND, _key(person))
        return None if record is None else languages().get(str(record.body.get("tag")))
    return None


def choose_language(store: Store, person: Identity, tag: str) -> None:
    """Store a person's language; an unknown tag leaves the choice to the browser. Durable on return."""
    if tag in languages():
        store.keep(Record(_KIND, _key(person), {"tag": tag}))
    else:
        store.drop(_KIND, _key(person))


def _key(person: Identity) -> str:
    return hashlib.sha256(person.folded.encode()).hexdigest()[:32]  # because keys of records are not sealed


# -- the texts of scripts ------------------------------------------------------------------------------------------


def script_words() -> dict[str, Any] | None:
    """Return the scripts' texts in the current language, keyed by the English text; None for English."""
    language = spoken()
    return None if language.catalogue is None else _script_words(language)


@cache
def _script_words(language: Language) -> dict[str, Any]:
    assert language.catalogue is not None  # noqa: S101  the caller returns early for English
    gettext, ngettext = language.catalogue.gettext, language.catalogue.ngettext
    source = _SCRIPT.read_text(encoding="utf-8")
    found: dict[str, Any] = {text: gettext(text) for text in map(json.loads, _IN_SCRIPT.findall(source))}
    for one, many in (map(json.loads, pair) for pair in _IN_SCRIPT_N.findall(source)):
        texts = [ngettext(one, many, number) for number in range(_SAMPLE)]
        forms = list(dict.fromkeys(texts))
        found[one] = {"forms": forms, "at": [forms.index(form) for form in texts]}
    return found


def language_choices() -> list[tuple[str, str]]:
    """Return the choices for the settings page: each tag, with the language's own name."""
    return [("", say("as in the browser")), *((one.tag, one.name) for one in languages().values())]
