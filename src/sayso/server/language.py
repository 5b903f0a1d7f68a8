"""The languages of the inbox: which one a reader gets, and the translation of sentences made elsewhere.

The person's setting decides, else the browser's Accept-Language, else English. Each language has two files in
`catalogues/`: a `.po` for translators, and the `.mo` compiled from it. Adding a language takes no more than these.

The messages of schemas, grants and reports are English, because they are recorded, compared and read by programs. Here
they are matched against the patterns of `catalogues/sentences.toml`, in which each `%(name)s` stands for any text. A
sentence without a match is unchanged.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from contextlib import suppress
from functools import cache
from gettext import GNUTranslations
from pathlib import Path
from typing import Any

from sayso import errors
from sayso.model.reviewer import Identity
from sayso.model.text import ENGLISH, Language, later, say, spoken
from sayso.stores.base import Store
from sayso.stores.records import Record

_FOLDER, _SCRIPTS = Path(__file__).parent / "catalogues", Path(__file__).parent / "static"
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
    ranges: list[tuple[float, str]] = []
    for part in accepted[:_LONGEST].casefold().split(",")[:_MOST_ASKED]:
        tag, _, quality = (one.strip() for one in part.partition(";"))
        found = _QUALITY.fullmatch(quality.replace(" ", "")) if quality else None
        rank = 1.0 if not quality else 0.0 if found is None else float(found[1])
        if tag and rank > 0:
            ranges.append((rank, tag))
    tags = [tag for _, tag in sorted(ranges, key=lambda one: -one[0])]
    return next(filter(None, map(_closest, tags)), ENGLISH)


def _closest(tag: str) -> Language | None:
    """Return the language that matches a tag, also by prefix: `de-AT` is German, `zh` is `zh-Hans`."""
    known = {name.casefold(): language for name, language in languages().items()}
    while tag:
        found = known.get(tag) or next((one for name, one in known.items() if name.startswith(f"{tag}-")), None)
        if found is not None:
            return found
        tag = tag.rpartition("-")[0]
    return None


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


@cache
def script_words(language: Language) -> dict[str, Any] | None:
    """Return the scripts' texts in a language, keyed by the English text; None for English."""
    if language.catalogue is None:
        return None
    gettext, ngettext = language.catalogue.gettext, language.catalogue.ngettext
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted(_SCRIPTS.glob("*.js")))
    found: dict[str, Any] = {text: gettext(text) for text in map(json.loads, _IN_SCRIPT.findall(source))}
    for one, many in (map(json.loads, pair) for pair in _IN_SCRIPT_N.findall(source)):
        texts = [ngettext(one, many, number) for number in range(_SAMPLE)]
        forms = list(dict.fromkeys(texts))
        found[one] = {"forms": forms, "at": [forms.index(form) for form in texts]}
    return found


# -- sentences made elsewhere --------------------------------------------------------------------------------------

_NESTED = frozenset({"what", "why", "forms"})  # placeholders whose text is translated too
_VALUE = re.compile(r"%\\\((\w+)\\\)s|%\((\w+)\)s")
_COUNTED = re.compile(r"(?<=\\ )(characters|items|properties|bytes|digits|places)\b")
_WORD = re.compile(r"\"?(\w+)\"?")
_ONE = re.compile(r"(?<![\d.,])1 (character|item|field|byte|digit|decimal place)s\b")


@cache
def sentences() -> dict[str, dict[str, str]]:
    """Return the sentences that can be translated, and the kinds in them, each with what an English page writes.

    That is empty where the page writes the same.
    """
    return tomllib.loads((_FOLDER / "sentences.toml").read_text(encoding="utf-8"))


def translated(sentence: str) -> str:
    """Translate a sentence into the current language; return it unchanged if no pattern matches."""
    is_english, kinds = spoken().catalogue is None, sentences()["kinds"]

    def kind(word: str) -> str:
        return say(word) if not is_english and word in kinds else kinds.get(word) or word

    for pattern, form, english in _patterns():
        found = pattern.fullmatch(sentence)
        if found is None:
            continue
        values = found.groupdict()
        for name in values.keys() & _NESTED:
            values[name] = translated(values[name])
        if "kind" in values:
            values["kind"] = _WORD.sub(lambda word: kind(word[1]), values["kind"])
        if not is_english:
            return say(form, **values)
        return _ONE.sub(r"1 \1", english % values) if english else sentence
    if sentence in kinds:
        return kind(sentence)
    first, then, rest = sentence.partition("; ")
    return f"{translated(first)}; {translated(rest)}" if then else sentence


@cache
def _patterns() -> list[tuple[re.Pattern[str], str, str]]:
    """Return each sentence with a regular expression, which also matches its singular, and what English pages write."""
    several = {"characters": "characters?", "properties": "propert(?:y|ies)", "items": "items?", "bytes": "bytes?",
               "digits": "digits?", "places": "places?"}  # fmt: skip
    found: list[tuple[re.Pattern[str], str, str]] = []
    for form, english in sentences()["sentences"].items():
        counted = _COUNTED.sub(lambda word: several[word[1]], re.escape(form))
        named = _VALUE.sub(lambda name: f"(?P<{name[1] or name[2]}>.+?)", counted)
        found.append((re.compile(named, re.DOTALL), form, english))
    return found
