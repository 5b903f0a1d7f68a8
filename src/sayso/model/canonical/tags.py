"""The scalars that JSON lacks, each written under a tag (`$bytes`, `$date`, `$decimal`, ...), and a fast JSON encoder.

Containers and classes are in `sayso.model.canonical`. Invariant: a payload that `read` accepts is exactly what `write`
returns for the value read.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any, NamedTuple, TypeAlias, cast

quote: Callable[[str], str] = json.encoder.encode_basestring_ascii  # pyright: ignore[reportAttributeAccessIssue]  # not in the stub


def _encoder(*, ascii_only: bool, sort_keys: bool) -> Callable[[object], str]:
    """Return an encoder that is built only once: `json.JSONEncoder.encode` builds a C encoder for each call."""
    plain = json.JSONEncoder(
        ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False, check_circular=False, sort_keys=sort_keys
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    text: Any = quote if ascii_only else json.encoder.encode_basestring  # pyright: ignore[reportAttributeAccessIssue]  # as above
    write: Callable[[object, int], tuple[str, ...]] = make(
        None, plain.default, text, None, ":", ",", sort_keys, False, False
    )
    return lambda tree: "".join(write(tree, 0))


dump = _encoder(ascii_only=False, sort_keys=False)
"""Returns the text of a tree as the canonical form is stored."""
dump_sorted = _encoder(ascii_only=False, sort_keys=True)
dumps = _encoder(ascii_only=True, sort_keys=False)
"""Escapes non-ASCII characters, because databases reject the lone surrogates that an error message may contain."""
dumps_sorted = _encoder(ascii_only=True, sort_keys=True)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MASK = "***"
"""Stands for a secret wherever people can see it."""


class Unfit(Exception):
    """A value has no canonical form, or a payload is malformed. The text says why, and never contains the value."""


class Tag(NamedTuple):
    """One scalar type: its class by module and name, and how to write, read and show it."""

    name: str
    module: str
    attribute: str
    write: Callable[[Any], Json]
    read: Callable[[Any], object]
    show: Callable[[Any], Json] = lambda payload: payload

    def shown(self, payload: Any) -> Json:
        """Return a payload as plain JSON; unchanged if it is malformed."""
        try:
            return self.show(payload)
        except (ValueError, TypeError, ArithmeticError):
            return payload

    def value(self, payload: Json) -> object:
        """Return the value of a payload; raises `Unfit` if `write` would not have produced it."""
        try:
            value = self.read(payload)
            row = tag_of(type(value))
            exact = row is not None and row.name == self.name and dump(row.write(value)) == dump(payload)
        except (ValueError, TypeError, ArithmeticError, AttributeError, KeyError) as error:
            raise Unfit(f"has a malformed {self.name}") from error
        if not exact:
            raise Unfit(f"has a {self.name} that is not in canonical form")
        return value


def _write_bytes(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _read_bytes(payload: str) -> bytes:
    return binascii.a2b_base64(payload.encode("ascii"), strict_mode=True)


def _write_decimal(value: Any) -> str:
    if not value.is_finite():
        raise Unfit("is a Decimal that is not a finite number")
    # The thread's decimal context decides between `1e+5` and `1E+5`; the form must not depend on it.
    return str(value).upper()


def _read_decimal(payload: str) -> object:
    from decimal import Decimal

    return Decimal(payload)


_ZONED = re.compile(
    r"(?P<iso>[^\[(;]*)(?:\[(?P<key>[A-Za-z0-9_+/-]+)\]|\((?P<name>.*)\))?(?P<fold>;fold=1)?", re.DOTALL
)


def _zone(zone: tzinfo | None) -> str:
    """Return what the offset does not tell about a time zone: the key of a `ZoneInfo`, the name of a named offset."""
    if zone is None:
        return ""
    kind = type(zone)
    if kind is timezone:
        name = zone.tzname(None)
        return "" if name == timezone(zone.utcoffset(None) or timedelta()).tzname(None) else f"({name})"
    if kind is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None):
        key: str | None = getattr(zone, "key", None)
        if key is None:
            raise Unfit("has a ZoneInfo without a key")
        return f"[{key}]"
    if kind is getattr(sys.modules.get("pydantic_core"), "TzInfo", None):
        return ""
    raise Unfit(f"has a time zone of class {kind.__name__}; convert it with .astimezone(datetime.UTC) or use zoneinfo")


def _write_instant(value: datetime | time) -> str:
    return value.isoformat() + _zone(value.tzinfo) + (";fold=1" if value.fold else "")


def _read_instant(parse: Callable[[str], Any]) -> Callable[[str], object]:
    def read(payload: str) -> object:
        parts = _ZONED.fullmatch(payload)
        if parts is None:
            raise ValueError(payload)
        value = parse(parts["iso"])
        zone: tzinfo | None = value.tzinfo
        if parts["key"] is not None:
            from zoneinfo import ZoneInfo

            zone = ZoneInfo(parts["key"])
        elif parts["name"] is not None:
            zone = timezone(value.utcoffset(), parts["name"])
        return value.replace(tzinfo=zone, fold=1 if parts["fold"] else 0)

    return read


def _show_instant(payload: str) -> str:
    parts = _ZONED.fullmatch(payload)
    return payload if parts is None else parts["iso"]


def _show_timedelta(payload: list[int]) -> str:
    """Return the ISO 8601 duration, e.g. `P1DT2H0.5S`; a minus sign goes in front, as pydantic reads it."""
    span = timedelta(*payload)
    sign, span = ("-", -span) if span < timedelta() else ("", span)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if seconds or fraction:
        clock += f"{seconds}{fraction}S"
    days = f"{span.days}D" if span.days else ""
    return f"{sign}P{days}{'T' + clock if clock else ''}" if days or clock else "PT0S"


def _read_path(payload: str) -> object:
    from pathlib import Path

    return Path(payload)


def _read_uuid(payload: str) -> object:
    from uuid import UUID

    return UUID(payload)


def _read_secret(payload: list[str]) -> object:
    from pydantic import SecretBytes, SecretStr

    kind, content = payload
    if kind == "bytes":
        return SecretBytes(_read_bytes(content))
    if kind == "str" and type(content) is str:
        return SecretStr(content)
    raise ValueError(kind)


def _write_timedelta(value: timedelta) -> list[Json]:
    return [value.days, value.seconds, value.microseconds]


def _read_timedelta(payload: list[int]) -> object:
    return timedelta(*payload)


def _write_path(value: Any) -> str:
    # Forward slashes on every system, so that the same relative path has the same form everywhere.
    return value.as_posix()


def _write_secret_str(value: Any) -> list[Json]:
    return ["str", value.get_secret_value()]


def _write_secret_bytes(value: Any) -> list[Json]:
    return ["bytes", _write_bytes(value.get_secret_value())]


def _show_secret(_: Json) -> str:
    return MASK


_PATH = "WindowsPath" if os.name == "nt" else "PosixPath"
_ROWS = (
    Tag("$bytes", "builtins", "bytes", _write_bytes, _read_bytes),
    Tag("$decimal", "decimal", "Decimal", _write_decimal, _read_decimal),
    Tag("$datetime", "datetime", "datetime", _write_instant, _read_instant(datetime.fromisoformat), _show_instant),
    Tag("$date", "datetime", "date", date.isoformat, date.fromisoformat),
    Tag("$time", "datetime", "time", _write_instant, _read_instant(time.fromisoformat), _show_instant),
    Tag("$timedelta", "datetime", "timedelta", _write_timedelta, _read_timedelta, _show_timedelta),
    Tag("$uuid", "uuid", "UUID", str, _read_uuid),
    Tag("$path", "pathlib", _PATH, _write_path, _read_path),
    Tag("$secret", "pydantic.types", "SecretStr", _write_secret_str, _read_secret, _show_secret),
    Tag("$secret", "pydantic.types", "SecretBytes", _write_secret_bytes, _read_secret, _show_secret),
)

TAGS = {row.name: row for row in _ROWS if row.attribute != "SecretBytes"}
"""Each tag's row, for reading."""

_by_type: dict[type, Tag] = {}


def tag_of(kind: type) -> Tag | None:
    """Return the row of a scalar's exact class; None if it has no tag."""
    known = _by_type.get(kind)
    if known is not None:
        return known
    for row in _ROWS:
        if (
            kind.__name__ == row.attribute
            and cast(object, getattr(sys.modules.get(row.module), row.attribute, None)) is kind
        ):
            return _by_type.setdefault(kind, row)
    return None
