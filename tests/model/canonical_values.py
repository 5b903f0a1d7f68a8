"""Values whose canonical form is written down in `golden/canonical.json`, and their digests in one process.

Run as a program it prints the digests, so that other processes, hash seeds and versions of Python can be compared.
pydantic may be absent: then its values are left out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from sayso.model.canonical import class_name, encode


def named(name: str) -> Any:
    """Give a class a name that does not depend on how this file is loaded."""

    def decorate(cls: Any) -> Any:
        type.__setattr__(cls, "__sayso_name__", name)
        return cls

    return decorate


@named("bank:Currency")
class Currency(StrEnum):
    EUR = "eur"
    USD = "usd"


@named("bank:Level")
class Level(IntEnum):
    LOW = 1
    HIGH = 2


@named("bank:Colour")
class Colour(Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796  # an alias: its name is RED
    BLUE = 2


@named("bank:Line")
@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: Decimal
    count: int = 1


@named("bank:Basket")
@dataclass
class Basket:
    lines: list[Line]
    notes: dict[str, str] = field(default_factory=dict)


@named("shop:Line")
@dataclass
class OtherLine:
    sku: str
    price: Decimal
    count: int = 1


CLASSES: dict[str, type] = {class_name(cls): cls for cls in (Currency, Level, Colour, Line, Basket, OtherLine)}
BERLIN = ZoneInfo("Europe/Berlin")

VALUES: dict[str, Any] = {
    "int": 1,
    "int negative": -1,
    "int zero": 0,
    "int over 2**53": 2**53 + 1,
    "int of 4300 digits": 10**4299,
    "float": 1.0,
    "float zero": 0.0,
    "float negative zero": -0.0,
    "float large": 1e22,
    "float small": 5e-324,
    "float third": 1 / 3,
    "true": True,
    "false": False,
    "none": None,
    "text": "alice",
    "text empty": "",
    "text of a number": "1",
    "text NFC": "\u00e9",
    "text NFD": "e\u0301",
    "text beyond the basic plane": "\U0001f600",
    "text with controls": "a\n\t\x00\x1b[31m\u202e",
    "text with quotes": '"\\/',
    "text that looks like a tag": '{"$int":1}',
    "text with a dollar": "$date",
    "list": [1, "a", None],
    "list empty": [],
    "list nested": [[1], [[]]],
    "tuple": (1, "a", None),
    "tuple empty": (),
    "tuple of one": (1,),
    "dict": {"b": 1, "a": 2},
    "dict empty": {},
    "dict with a dollar key": {"$date": "2026-01-31"},
    "dict with a dollar key among others": {"a": 1, "$b": 2},
    "dict with an empty key": {"": 0},
    "dict with unicode keys": {"\u00e9": 1, "e\u0301": 2},
    "bytes": b"\x00\xff",
    "bytes empty": b"",
    "decimal": Decimal("1.00"),
    "decimal short": Decimal(1),
    "decimal exponent": Decimal("1E+5"),
    "decimal negative zero": Decimal("-0"),  # as an int it would lose its sign
    "date": date(2026, 1, 31),
    "datetime naive": datetime(2026, 1, 31, 12),  # noqa: DTZ001
    "datetime microseconds": datetime(2026, 1, 31, 12, 0, 0, 1),  # noqa: DTZ001
    "datetime utc": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "datetime offset": datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))),
    "datetime named offset": datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1), "CET")),
    "datetime odd name": datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1), "x);fold=1")),
    "datetime zone": datetime(2026, 1, 31, 13, tzinfo=BERLIN),
    "datetime first of two": datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    "datetime second of two": datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "time": time(12, 30),
    "time zone": time(12, 30, tzinfo=BERLIN),
    "time offset": time(12, 30, 0, 5, tzinfo=UTC),
    "timedelta": timedelta(days=1, seconds=2, microseconds=3),
    "timedelta negative": timedelta(microseconds=-1),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "path": Path("a/b.txt"),
    "path empty": Path(),
    "path absolute": Path("/tmp/x y"),
    "enum": Colour.BLUE,
    "enum alias": Colour.CRIMSON,
    "enum of text": Currency.EUR,
    "enum of int": Level.HIGH,
    "dataclass": Line("a-1", Decimal("9.90"), 2),
    "dataclass of another module": OtherLine("a-1", Decimal("9.90"), 2),
    "dataclass nested": Basket([Line("a-1", Decimal(1))], {"to": "bob"}),
    "mixed": {"when": (date(2026, 1, 31), None), "who": [b"x", {"k": Decimal("0.10")}]},
}

try:
    from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretBytes, SecretStr
except ImportError:  # the golden file is also recomputed where nothing is installed
    pass
else:

    @named("bank:Order")
    class Order(BaseModel):
        lines: list[Line]
        colour: Colour = Colour.RED
        note: str | None = None

    @named("bank:Refund")
    class Refund(BaseModel):
        lines: list[Line]
        colour: Colour = Colour.RED
        note: str | None = None

    @named("bank:Open")
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow", frozen=True)
        amount: int = Field(alias="Amount")

    @named("bank:Private")
    class Private(BaseModel):
        amount: int
        _seen: list[int] = PrivateAttr(default_factory=list[int])

    CLASSES |= {class_name(cls): cls for cls in (Order, Refund, Open, Private)}
    VALUES |= {
        "model": Order(lines=[Line("a-1", Decimal(1))], colour=Colour.BLUE, note="x"),
        "model with unset fields": Order(lines=[]),
        "model of another class": Refund(lines=[]),
        "model with extra fields": Open(Amount=1, b=2, a=date(2026, 1, 31)),  # pyright: ignore[reportCallIssue]
        "model with private attributes": Private(amount=1),
        "secret text": SecretStr("s3cret"),
        "secret bytes": SecretBytes(b"s3cret"),
    }

_NAMES_OF_PYDANTIC = ("model", "secret")


def needs_pydantic(name: str) -> bool:
    """Say whether a golden vector can only be computed where pydantic is installed."""
    return name.startswith(_NAMES_OF_PYDANTIC)


def sha(value: object) -> str:
    """Return the digest that a value has under the argument name `value`."""
    return hashlib.sha256(encode({"value": value}).digest_input).hexdigest()


def written() -> dict[str, dict[str, str]]:
    """Return every value's text and digest, as the golden file holds them."""
    return {name: {"text": encode({"value": value}).text, "sha256": sha(value)} for name, value in VALUES.items()}


if __name__ == "__main__":
    print(json.dumps({name: row["sha256"] for name, row in written().items()}, sort_keys=True))
