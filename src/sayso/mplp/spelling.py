"""Other spellings of the protocol's documents, read as what they mean, each with a line that says what was changed.

Taken are the spellings of the protocol's own example and their like: field names in the other case, ids with a prefix
or in capitals, times without a zone, fields left null, and fields that there are not, which are dropped. An id that
names the thing itself may be replaced; one that points elsewhere may not. Invariant: whatever is changed is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from sayso.mplp.conformance import Rule
from sayso.mplp.ids import ID_PATTERN, id_of, is_id
from sayso.mplp.part import VERSION
from sayso.mplp.reading import brief_of, pointer

__all__ = ["respelled"]

At = tuple[str | int, ...]

_PREFIXED = re.compile(r"[A-Za-z]{1,20}[-_:](?P<id>[0-9A-Fa-f-]{36})")
_NO_ZONE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?")
_OF_ITSELF = frozenset({"decision_id", "dependencies", "event_id", "step_id"})


def respelled(schema: Rule, document: Mapping[str, Any], changes: list[str]) -> dict[str, Any]:
    """Return a document in the protocol's own spelling; what was changed is added to `changes`."""
    found = _Speller(schema.get("$defs", {}), changes).named(schema, dict(document), ())
    if "meta" in schema.get("required", ()):
        meta = found.setdefault("meta", {})
        for name in ("protocol_version", "schema_version"):
            if isinstance(meta, dict) and name not in meta:
                changes.append(f"{pointer('meta', name)}: filled in as {VERSION}")
                cast("dict[str, Any]", meta)[name] = VERSION
    return found


class _Speller:
    def __init__(self, definitions: Mapping[str, Rule], changes: list[str]) -> None:
        self._definitions, self._changes = definitions, changes

    def value(self, rule: Rule, value: Any, at: At) -> Any:
        if "$ref" in rule:
            rule = self._definitions[rule["$ref"].removeprefix("#/$defs/")]
        if isinstance(value, dict) and "properties" in rule:
            return self.named(rule, cast("dict[str, Any]", value), at)
        if isinstance(value, list) and "items" in rule:
            items = cast("list[Any]", value)
            return [self.value(rule["items"], item, (*at, index)) for index, item in enumerate(items)]
        return self._text(rule, value, at) if isinstance(value, str) else cast("Any", value)

    def named(self, rule: Rule, named: Mapping[str, Any], at: At) -> dict[str, Any]:
        known: Mapping[str, Rule] = rule["properties"]
        by_letters = {_letters(name): name for name in known}
        found: dict[str, Any] = {}
        for given, value in named.items():
            name = given if given in known else by_letters.get(_letters(given), given)
            if name in known and value is None and known[name].get("anyOf") is None:
                self._changes.append(f"{pointer(*at, given)}: was null, and left out")
            elif name in known:
                if name != given and name in named:
                    self._changes.append(f"{pointer(*at, given)}: dropped, {name} is there as well")
                    continue
                if name != given:
                    self._changes.append(f"{pointer(*at, given)}: read as {name}")
                found[name] = self.value(known[name], value, (*at, name))
            elif rule.get("additionalProperties") is False:
                self._changes.append(f"{pointer(*at, given)}: dropped, it is no field of the protocol")
            else:
                found[given] = value
        return found

    def _text(self, rule: Rule, text: str, at: At) -> str:
        said = text
        if rule.get("pattern") == ID_PATTERN:
            said = _id(text, at)
        elif rule.get("format") == "date-time" and _NO_ZONE.fullmatch(text) is not None:
            said = text.replace(" ", "T").upper() + "Z"
        if said != text:
            self._changes.append(f"{pointer(*at)}: {brief_of(text)} was read as {said}")
        return said


def _letters(name: str) -> str:
    return name.replace("_", "").casefold()


def _id(text: str, at: At) -> str:
    prefixed = _PREFIXED.fullmatch(text)
    bare = (text if prefixed is None else prefixed["id"]).lower()
    if is_id(bare):
        return bare
    names = [part for part in at if isinstance(part, str)]
    return id_of("id", text) if names and names[-1] in _OF_ITSELF else text
