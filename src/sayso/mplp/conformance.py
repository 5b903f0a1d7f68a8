"""Whether a document fits a schema of this package, and where it does not.

These are the keywords that the protocol's schemas use and no more; the schemas themselves are made from the models
(`sayso.mplp.schema`). Invariant: a document without a problem here has none under the protocol's frozen schemas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

from sayso.mplp.ids import ID_PATTERN
from sayso.mplp.reading import brief_of, pointer

__all__ = ["Json", "Rule", "problems_of"]

Rule = Mapping[str, Any]
Json = Any
At = tuple[str | int, ...]

_MOST = 100
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_IS: dict[str, Callable[[Json], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}
_CALLED = {"object": "an object", "array": "a list", "string": "a text", "integer": "a whole number"}


def problems_of(schema: Rule, document: Json) -> list[str]:
    """Return what does not fit, at most a hundred lines: a JSON pointer, and what is wrong there."""
    found: list[str] = []
    for problem in _Check(schema.get("$defs", {})).value(schema, document, ()):
        found.append(problem)
        if len(found) == _MOST:
            break
    return found


class _Check:
    def __init__(self, definitions: Mapping[str, Rule]) -> None:
        self._definitions = definitions

    def value(self, rule: Rule, value: Json, at: At) -> Iterator[str]:
        if "$ref" in rule:
            rule = self._definitions[rule["$ref"].removeprefix("#/$defs/")]
        if "anyOf" in rule:
            if all(any(True for _ in self.value(one, value, at)) for one in rule["anyOf"]):
                yield f"{pointer(*at)}: {brief_of(value)} is neither {_either(rule['anyOf'])}"
            return
        kind = rule.get("type")
        if kind is not None and not _IS[kind](value):
            yield f"{pointer(*at)}: is {brief_of(value)}, not {_CALLED.get(kind, kind)}"
        elif isinstance(value, dict):
            yield from self._object(rule, cast("dict[str, Json]", value), at)
        elif isinstance(value, list):
            yield from self._list(rule, cast("list[Json]", value), at)
        else:
            yield from (f"{pointer(*at)}: {wrong}" for wrong in _scalar(rule, value))

    def _object(self, rule: Rule, named: dict[str, Json], at: At) -> Iterator[str]:
        known: Mapping[str, Rule] = rule.get("properties", {})
        for name in rule.get("required", ()):
            if name not in named:
                yield f"{pointer(*at, name)}: is missing"
        for name, value in named.items():
            if name in known:
                yield from self.value(known[name], value, (*at, name))
            elif rule.get("additionalProperties") is False:
                yield f"{pointer(*at, name)}: is no field of the protocol"

    def _list(self, rule: Rule, items: list[Json], at: At) -> Iterator[str]:
        if len(items) < rule.get("minItems", 0):
            yield f"{pointer(*at)}: has {len(items)} entries, and needs {rule['minItems']}"
        if rule.get("uniqueItems"):
            twice = next((item for place, item in enumerate(items) if item in items[:place]), None)
            if twice is not None:
                yield f"{pointer(*at)}: has {brief_of(twice)} twice"
        for index, item in enumerate(items):
            yield from self.value(rule.get("items", {}), item, (*at, index))


def _either(rules: list[Rule]) -> str:
    return " nor ".join(_CALLED.get(rule.get("type", ""), str(rule.get("type", "what is wanted"))) for rule in rules)


def _scalar(rule: Rule, value: Json) -> Iterator[str]:
    if "enum" in rule and value not in rule["enum"]:
        yield f"{brief_of(value)} is none of {', '.join(map(str, rule['enum']))}"
    if "minimum" in rule and value < rule["minimum"]:
        yield f"{brief_of(value)} is below {rule['minimum']}"
    if "maximum" in rule and value > rule["maximum"]:
        yield f"{brief_of(value)} is above {rule['maximum']}"
    if isinstance(value, str):
        yield from _text(rule, value)


def _text(rule: Rule, text: str) -> Iterator[str]:
    if len(text) < rule.get("minLength", 0):
        yield "is empty"
    pattern = rule.get("pattern")
    if pattern is not None and _whole(pattern).fullmatch(text) is None:
        wanted = "a UUID v4 in lower case" if pattern == ID_PATTERN else f"of the form {pattern}"
        yield f"{brief_of(text)} is not {wanted}"
    if rule.get("format") == "date-time":
        yield from _time(text)


@lru_cache(maxsize=64)
def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.removeprefix("^").removesuffix("$"))


def _time(text: str) -> Iterator[str]:
    parts = _TIME.fullmatch(text)
    if parts is None:
        yield f"{brief_of(text)} is no date and time of the form 2025-12-01T12:00:00.000Z"
    elif parts["zone"] is None:
        yield f"{brief_of(text)} has no time zone; write Z at its end for UTC"
    else:
        try:
            datetime.fromisoformat(text.upper())
        except ValueError:
            yield f"{brief_of(text)} is no instant that there is"
