"""Gated functions for browser tests: one for each kind of argument, and some simple ones."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

import sayso

__all__ = ["FIELDS", "Line", "pay", "taking", "wipe"]


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Line(BaseModel):
    sku: str
    count: int = 1


@sayso.gate(wait="raise")
def pay(amount: int, to: str = "alice") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@sayso.gate(wait="raise", risk="high", prompt="The customer sent a photo.")
def wipe(disk: str) -> str:
    return f"wiped {disk}"


# argument: (its type, its value, how a person changes it, the value that then runs)
FILL, PICK = "fill", "select_option"
FIELDS: dict[str, tuple[Any, Any, tuple[str, Any], Any]] = {
    "text": (str, "old", (FILL, "new"), "new"),
    "long": (str, "a\nb", (FILL, "a\n\nb "), "a\n\nb "),
    "whole": (int, 5, (FILL, "-7"), -7),
    "bounded": (Annotated[float, Field(ge=0, le=500)], 320.0, (FILL, "80.5"), 80.5),
    "exact": (Decimal, Decimal("1.10"), (FILL, "1.20"), Decimal("1.20")),
    "yes": (bool, True, (PICK, "false"), False),
    "word": (Literal["damaged", "late"], "damaged", (PICK, "1"), "late"),
    "colour": (Colour, Colour.RED, (PICK, "1"), Colour.BLUE),
    "day": (dt.date, dt.date(2026, 3, 1), (FILL, "2026-03-02"), dt.date(2026, 3, 2)),
    "at": (dt.datetime, dt.datetime.fromisoformat("2026-03-01T09:30"), (FILL, "2026-03-02T10:00:00"),
           dt.datetime.fromisoformat("2026-03-02T10:00")),
    "time": (dt.time, dt.time(9, 30, 15), (FILL, "10:00:01"), dt.time(10, 0, 1)),
    "items": (list[str], ["a", "b"], (FILL, "a\nc\nd"), ["a", "c", "d"]),
    "numbers": (list[int], [1, 2], (FILL, "3"), [3]),
    "maybe": (int | None, None, (FILL, "4"), 4),
    "line": (Line, Line(sku="x", count=3), (FILL, "y"), Line(sku="y", count=3)),
    "many": (list[Line], [Line(sku="x")], (FILL, "z"), [Line(sku="z")]),
    "any": (dict[str, Any], {"k": [1]}, (FILL, '{"k": [1.0, null, "1"]}'), {"k": [1.0, None, "1"]}),
}  # fmt: skip


def taking(kinds: dict[str, Any], ran: list[dict[str, Any]], **options: Any) -> Callable[..., Any]:
    """Return a gated function with these arguments that records the values it ran with."""

    def take(**given: Any) -> str:
        ran.append(given)
        return "ran"

    names: dict[str, Any] = {"take": take}
    said = ", ".join(kinds)
    passed = ", ".join(f"{name}={name}" for name in kinds)
    exec(f"def made({said}):\n    return take({passed})", names)  # noqa: S102  creates a function with this signature
    made = names["made"]
    made.__module__, made.__annotations__ = __name__, kinds
    return sayso.gate(wait="raise", **options)(made)
