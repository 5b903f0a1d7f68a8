"""The languages of the inbox: which one a reader gets, and the translation of sentences made elsewhere.

The person's setting decides, else the browser's Accept-Language, else English. Each language has two files in
`catalogues/`: a `.po` for translators, and the `.mo` compiled from it. Adding a language takes no more than these.

The messages of schemas, grants and reports are English, because they are recorded, compared and read by programs. Here
they are matched against patterns in which each `%(name)s` stands for any text. A sentence without a match is unchanged.
"""

from __future__ import annotations

import hashlib
import json
import re
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
    return next(filter(None, map(_known, tags)), ENGLISH)


def _known(tag: str) -> Language | None:
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


_FORMS = (
    # problems of values, from `sayso.model` and jsonschema-rs
    later("Field required"), later("there is no such field"), later("there is no such argument (it takes none)"),
    later("there is no such argument (there are %(names)s)"), later("Input is not of type %(kind)s"),
    later("Input is not of types %(kind)s"), later("Input fits none of %(kind)s"),
    later("Input fits several alternatives that exclude each other"), later("Input has a name that is not allowed"),
    later("Input should be one of %(values)s"), later("%(value)s was expected"),
    later("Input is less than the minimum of %(bound)s"), later("Input is greater than the maximum of %(bound)s"),
    later("Input is less than or equal to the minimum of %(bound)s"),
    later("Input is greater than or equal to the maximum of %(bound)s"),
    later("Input is not a multiple of %(bound)s"), later("Input is shorter than %(count)s characters"),
    later("Input is longer than %(count)s characters"), later("Input has less than %(count)s items"),
    later("Input has more than %(count)s items"), later("Input has less than %(count)s properties"),
    later("Input has more than %(count)s properties"), later("Input has non-unique elements"),
    later("Input does not match %(pattern)s"), later("Input is not a %(format)s"),
    later("is refused by the program's own check"), later("Input should be base64 text"),
    later("Input should be a valid date, YYYY-MM-DD"), later("Input should be a valid time, HH:MM:SS"),
    later("Input should be a valid datetime, YYYY-MM-DDTHH:MM:SS with an offset if it has one"),
    later("Input should be a valid duration, as P1DT2H30M or 26:30:00"),
    later("Input is the mask, not a value; leave it out to keep the secret"),
    later("Input cannot be checked here: the limits of its type are not known to pydantic"),
    later("can only be changed in the program itself, because %(name)s has its own validator"),
    later("has a default that only the program knows; enter a value"), later("is too large to be checked"),
    later("arguments: cannot be checked (%(why)s)"),
    later("Input looks like JSON but is not valid; to enter it as text, write it in double quotes"),
    # of pydantic
    later("Input is not valid (%(code)s)"), later("Input should be a finite number"), later("Input should be None"),
    later("Input should be greater than or equal to %(bound)s"), later("Input should be greater than %(bound)s"),
    later("Input should be less than or equal to %(bound)s"), later("Input should be less than %(bound)s"),
    later("Input should be a multiple of %(bound)s"), later("String should match pattern %(pattern)s"),
    later("Input should be a valid integer, unable to parse string as an integer"),
    later("Input should be a valid integer, got a number with a fractional part"),
    later("Input should be a valid number, unable to parse string as a number"),
    later("Input should be a valid boolean, unable to interpret input"), later("Input should be a valid %(kind)s"),
    later("String should have at least %(count)s characters"),
    later("String should have at most %(count)s characters"),
    later("%(what)s should have at least %(count)s items after validation, not %(found)s"),
    later("%(what)s should have at most %(count)s items after validation, not %(found)s"),
    later("Data should have at least %(count)s bytes"), later("Data should have at most %(count)s bytes"),
    later("Decimal input should be an integer, float, string or Decimal object"),
    later("Decimal input should have no more than %(count)s digits in total"),
    later("Decimal input should have no more than %(count)s decimal places"),
    later("Decimal input should have no more than %(count)s digits before the decimal point"),
    later("Date should be in the past"), later("Date should be in the future"), later("Input should be in the past"),
    later("Input should be in the future"), later("Input should have timezone info"),
    later("Input should not have timezone info"), later("Extra inputs are not permitted"),
    later("Datetimes provided to dates should have zero time - e.g. be exact dates"),
    # of JSON
    later("%(what)s: line %(line)s column %(column)s (char %(at)s)"), later("Expecting value"), later("Extra data"),
    later("Expecting property name enclosed in double quotes"), later("Expecting ':' delimiter"),
    later("Expecting ',' delimiter"), later("Unterminated string starting at"), later("Invalid control character at"),
    later("Illegal trailing comma before end of object"), later("Illegal trailing comma before end of array"),
    later("Invalid \\escape"), later("Invalid \\uXXXX escape"), later("an object has a duplicate key"),
    later("%(name)s is not a number in JSON"), later("a number is too large"), later("a number has too many digits"),
    later("a string has a lone surrogate"), later("it is nested deeper than %(count)s levels"),
    # of edits
    later("the arguments of this call cannot be changed: its program runs exactly what it sent; approve it as it is,"
          " or reject it and say what to change"),
    later("is the target of this Confirm and cannot be changed; to use another target, reject this one with a reason"),
    later("no step has a description"), later("is already the id of another step"),
    later("should be a UUID v4 in lower case; leave it out, and the step gets one"),
    later("is not the id of a step in this plan"),
    later("a value with masked parts was added, removed or moved, so it is unclear which secret %(mask)s stands"
          " for; write the secrets out"),
    later("make the arguments larger than %(count)s bytes"),
    # why there can be no grant
    later("its gate requires a person for every call (always=True)"), later("it would end in the past"),
    later("a grant allows 1 to %(most)s calls, not %(count)s"),
    later("the call has no field %(path)s; it has %(known)s"),
    later("the bound of %(path)s must be a number from 0, not %(value)s"),
    later("%(path)s is not a number that the grant limits, so it takes no bound"),
    later("%(path)s was %(value)s in this call, so a grant made from it cannot allow more"),
    later("%(value)s is not a duration; %(forms)s"), later("the duration %(value)s is not positive; %(forms)s"),
    later("the duration %(value)s is over ten years; %(forms)s"),
    later("the record of the grant %(grant)s does not match the journal: it was altered"),
    later("the grant %(grant)s has expired"), later("the grant %(grant)s no longer exists"),
    later("the grant %(grant)s cannot be read"), later("the grant %(grant)s was revoked by %(who)s"),
    later("the grant %(grant)s was revoked in the meantime"), later("the grant %(grant)s has ended"),
    later("the budget %(budget)s has no room for it"),
    later("write a timedelta or a string like '90s', '15m', '24h', '7d', '1h30m', '1.5h' or '500ms'"),
    # what the values of an argument were, in a report on decisions
    later("masked, and not compared"), later("always the same long value"), later("always %(value)s"),
    later("from %(low)s to %(high)s"), later("one of %(values)s"), later("%(count)s or more different values"),
    later("%(count)s different values"),
)  # fmt: skip
"""The patterns of sentences; the first match counts."""

_ENGLISH = {
    "Field required": "is missing", "Extra inputs are not permitted": "there is no such field",
    "Input is not of type %(kind)s": "must be %(kind)s", "Input is not of types %(kind)s": "must be one of: %(kind)s",
    "Input fits none of %(kind)s": "must be one of: %(kind)s", "Input should be a valid %(kind)s": "must be a %(kind)s",
    "Input fits several alternatives that exclude each other": "fits several alternatives that exclude each other",
    "Input should be one of %(values)s": "must be one of %(values)s", "Input should be None": "must be null",
    "Input has a name that is not allowed": "has a name that is not allowed",
    "%(value)s was expected": "must be %(value)s",
    "Input is less than the minimum of %(bound)s": "must be at least %(bound)s",
    "Input is greater than the maximum of %(bound)s": "must be at most %(bound)s",
    "Input is less than or equal to the minimum of %(bound)s": "must be more than %(bound)s",
    "Input is greater than or equal to the maximum of %(bound)s": "must be less than %(bound)s",
    "Input should be greater than or equal to %(bound)s": "must be at least %(bound)s",
    "Input should be less than or equal to %(bound)s": "must be at most %(bound)s",
    "Input should be greater than %(bound)s": "must be more than %(bound)s",
    "Input should be less than %(bound)s": "must be less than %(bound)s",
    "Input is not a multiple of %(bound)s": "must be a multiple of %(bound)s",
    "Input should be a multiple of %(bound)s": "must be a multiple of %(bound)s",
    "Input should be a finite number": "must be a finite number",
    "Input is shorter than %(count)s characters": "must have at least %(count)s characters",
    "Input is longer than %(count)s characters": "must have at most %(count)s characters",
    "String should have at least %(count)s characters": "must have at least %(count)s characters",
    "String should have at most %(count)s characters": "must have at most %(count)s characters",
    "Input has less than %(count)s items": "must have at least %(count)s items",
    "Input has more than %(count)s items": "must have at most %(count)s items",
    "%(what)s should have at least %(count)s items after validation, not %(found)s":
        "must have at least %(count)s items, not %(found)s",
    "%(what)s should have at most %(count)s items after validation, not %(found)s":
        "must have at most %(count)s items, not %(found)s",
    "Input has less than %(count)s properties": "must have at least %(count)s fields",
    "Input has more than %(count)s properties": "must have at most %(count)s fields",
    "Data should have at least %(count)s bytes": "must have at least %(count)s bytes",
    "Data should have at most %(count)s bytes": "must have at most %(count)s bytes",
    "Input has non-unique elements": "must not have the same item twice",
    "Input does not match %(pattern)s": "does not have the required form, %(pattern)s",
    "String should match pattern %(pattern)s": "does not have the required form, %(pattern)s",
    "Input is not a %(format)s": "must be a valid %(format)s", "Input should be base64 text": "must be base64 text",
    "Input should be a valid date, YYYY-MM-DD": "must be a date, such as 2026-03-31",
    "Datetimes provided to dates should have zero time - e.g. be exact dates": "must be a date, such as 2026-03-31",
    "Input should be a valid time, HH:MM:SS": "must be a time, such as 14:30:00",
    "Input should be a valid datetime, YYYY-MM-DDTHH:MM:SS with an offset if it has one":
        "must be a date and time, such as 2026-03-31T14:30:00+02:00",
    "Input should be a valid duration, as P1DT2H30M or 26:30:00": "must be a duration, such as 26:30:00 or P1DT2H30M",
    "Input should be a valid boolean, unable to interpret input": "must be true or false",
    "Decimal input should be an integer, float, string or Decimal object": "must be a number",
    "Decimal input should have no more than %(count)s digits in total": "must have at most %(count)s digits",
    "Decimal input should have no more than %(count)s decimal places": "must have at most %(count)s decimal places",
    "Decimal input should have no more than %(count)s digits before the decimal point":
        "must have at most %(count)s digits before the decimal point",
    "Date should be in the past": "must be in the past", "Input should be in the past": "must be in the past",
    "Date should be in the future": "must be in the future", "Input should be in the future": "must be in the future",
    "Input should have timezone info": "must have a time zone, such as +02:00",
    "Input should not have timezone info": "must not have a time zone",
}  # fmt: skip
"""What a page writes in English for a message that was written for programmers; catalogues translate the message."""

_ENGLISH_KINDS = {
    "string": "text", "integer": "whole number", "boolean": "true or false", "array": "list", "dictionary": "object",
    "tuple": "list", "decimal": "number", "datetime": "date and time",
}  # fmt: skip
_KINDS = frozenset({
    later("string"), later("number"), later("integer"), later("boolean"), later("array"), later("object"),
    later("list"), later("dictionary"), later("tuple"), later("set"), later("date"), later("datetime"), later("time"),
    later("decimal"), later("path"), later("String"), later("List"), later("Dictionary"), later("Tuple"), later("Set"),
})  # fmt: skip
_NESTED = frozenset({"what", "why", "forms"})  # placeholders whose text is translated too
_VALUE = re.compile(r"%\\\((\w+)\\\)s|%\((\w+)\)s")
_COUNTED = re.compile(r"(?<=\\ )(characters|items|properties|bytes|digits|places)\b")
_WORD = re.compile(r"\"?(\w+)\"?")
_ONE = re.compile(r"(?<![\d.,])1 (character|item|field|byte|digit|decimal place)s\b")


def translated(sentence: str) -> str:
    """Translate a sentence into the current language; return it unchanged if no pattern matches."""
    is_english = spoken().catalogue is None
    for pattern, form in _patterns():
        found = pattern.fullmatch(sentence)
        if found is None:
            continue
        values = found.groupdict()
        for name in values.keys() & _NESTED:
            values[name] = translated(values[name])
        if "kind" in values:
            values["kind"] = _WORD.sub(lambda word: _kind(word[1]) if word[1] in _KINDS else word[1], values["kind"])
        if not is_english:
            return say(form, **values)
        return _ONE.sub(r"1 \1", _ENGLISH[form] % values) if form in _ENGLISH else sentence
    if sentence in _KINDS:
        return _kind(sentence)
    first, then, rest = sentence.partition("; ")
    return f"{translated(first)}; {translated(rest)}" if then else sentence


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return each pattern with a regular expression, which also matches its singular."""
    several = {"characters": "characters?", "properties": "propert(?:y|ies)", "items": "items?", "bytes": "bytes?",
               "digits": "digits?", "places": "places?"}  # fmt: skip
    found: list[tuple[re.Pattern[str], str]] = []
    for form in _FORMS:
        counted = _COUNTED.sub(lambda word: several[word[1]], re.escape(form))
        named = _VALUE.sub(lambda name: f"(?P<{name[1] or name[2]}>.+?)", counted)
        found.append((re.compile(named, re.DOTALL), form))
    return found


def _kind(word: str) -> str:
    return _ENGLISH_KINDS.get(word.lower(), word) if spoken().catalogue is None else say(word)
