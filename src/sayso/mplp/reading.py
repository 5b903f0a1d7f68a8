"""JSON that somebody sent, made into values: texts, numbers, lists and dicts, and nothing that could mean two things.

Refused are documents that are too large or too deep, keys that stand twice, numbers that JSON does not have and halves
of characters. Invariant: what comes back can be written as JSON again, and says the same then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

__all__ = ["LIMIT_BYTES", "LIMIT_DEPTH", "UnreadableError", "brief_of", "is_sound", "pointer", "read"]

LIMIT_BYTES = 4_194_304
LIMIT_DEPTH = 64
_MOST = 100
_ROOM = 60
_LONGEST = 1024


class UnreadableError(ValueError):
    """A text is no JSON document that is taken here; its words are the problems, one line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def pointer(*parts: str | int) -> str:
    """Return a JSON pointer (RFC 6901), in plain ASCII."""
    shown = (ascii(part[:_ROOM])[1:-1] if isinstance(part, str) else str(part) for part in parts)
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in shown) or "/"


def brief_of(value: object) -> str:
    """Return a value as a message may quote it: in plain ASCII, and cut where it is long."""
    if isinstance(value, str):
        whole = ascii(value[:_ROOM])
        return whole if len(value) <= _ROOM else f"{whole}... ({len(value):,} characters)"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else json.dumps(value)[:_ROOM]


def read(given: str | bytes | bytearray | Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as JSON values.

    Args:
        given: JSON text (UTF-8, where it is bytes), or values that are JSON already.

    Raises:
        UnreadableError: It is none that is taken.
    """
    document: object = _parsed(given) if isinstance(given, str | bytes | bytearray) else given
    if not isinstance(document, Mapping):
        raise UnreadableError(f"/: is {brief_of(document)}, not an object")
    problems = _first(_faults(cast("object", document), ()), _MOST)
    if problems:
        raise UnreadableError(*problems)
    return cast("dict[str, Any]", _plain(document))


def is_sound(value: Any, depth: int) -> bool:
    """Say quickly of a part of JSON values that `read` refuses nothing in it; a no says that it might."""
    kind = cast("type[Any]", type(value))
    if kind is str:
        return value.isascii() or not any(_half(value, ()))
    if kind is dict or kind is list:
        for part in value.values() if kind is dict else value:
            if depth == LIMIT_DEPTH or not is_sound(part, depth + 1):
                return False
        return kind is list or is_sound("".join(value), depth)
    if kind is int:
        return value.bit_length() <= _LONGEST
    return kind is bool or value is None or (kind is float and math.isfinite(value))


def _parsed(given: str | bytes | bytearray) -> object:
    if len(given) > LIMIT_BYTES:
        raise UnreadableError(f"/: is larger than {LIMIT_BYTES:,} bytes ({len(given):,})")
    try:
        text = given if isinstance(given, str) else given.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except RecursionError:
        raise UnreadableError(f"/: is nested deeper than {LIMIT_DEPTH} levels") from None
    except UnicodeDecodeError as error:
        raise UnreadableError(f"/: is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"/: is not JSON ({error.msg}, line {error.lineno} column {error.colno})") from None
    except UnreadableError:
        raise
    except ValueError:  # a number of more digits than Python reads
        raise UnreadableError("/: holds a number that is too long") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UnreadableError(f"/: an object has the key {brief_of(twice)} twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise UnreadableError(f"/: holds {word}, which is no JSON number")


def _faults(value: object, at: tuple[str | int, ...]) -> Iterator[str]:
    if len(at) > LIMIT_DEPTH:
        yield f"{pointer(*at[:3])}: is nested deeper than {LIMIT_DEPTH} levels"
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            if isinstance(key, str):
                yield from _half(key, at)
                yield from _faults(item, (*at, key))
            else:
                yield f"{pointer(*at)}: has a key that is no text"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _faults(item, (*at, index))
    else:
        yield from _misfits(value, at)


def _misfits(value: object, at: tuple[str | int, ...]) -> Iterator[str]:
    match value:
        case str():
            yield from _half(value, at)
        case None | bool():
            return
        case int():
            if value.bit_length() > _LONGEST:
                yield f"{pointer(*at)}: is a number of more than {_LONGEST} bits"
        case float():
            if not math.isfinite(value):
                yield f"{pointer(*at)}: {value} is no JSON number"
        case _:
            yield f"{pointer(*at)}: is a {type(value).__name__}, which JSON does not have"


def _half(text: str, at: tuple[str | int, ...]) -> Iterator[str]:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            yield f"{pointer(*at)}: holds half of a character (a lone surrogate)"


def _first(found: Iterator[str], most: int) -> list[str]:
    problems: list[str] = []
    for problem in found:
        problems.append(problem)
        if len(problems) == most:
            break
    return problems


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast("Mapping[str, Any]", value).items()}
    return [_plain(item) for item in cast("list[Any]", value)] if isinstance(value, list | tuple) else value
