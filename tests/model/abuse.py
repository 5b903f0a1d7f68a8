"""What nobody sends by mistake: values that are huge, deep or without an end, for the tests and for the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

from sayso.model.canonical import LIMIT_BYTES, LIMIT_DEPTH
from tests.model.canonical_values import Line

__all__ = ["ABUSES", "circle", "deep"]


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def circle() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def bomb(width: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(LIMIT_DEPTH - 2):
        value = [value] * width
    return value


ABUSES: dict[str, Callable[[], Any]] = {
    "10 million numbers": lambda: [0] * 10**7,
    "10 million in a tuple": lambda: (None,) * 10**7,
    "a list of 1 million lists": lambda: [[]] * 10**6,
    "1,000 lists of 1,000": lambda: [[0] * 1000] * 1000,
    "doubled 62 times": lambda: bomb(2),
    "tripled 62 times": lambda: bomb(3),
    "100 MB of text": lambda: "x" * 10**8,
    "100 MB of text beyond ASCII": lambda: "\u20ac" * (10**8 // 3),
    "100 MB of bytes": lambda: b"x" * 10**8,
    "1,000 texts of 100 kB": lambda: ["x" * 10**5] * 1000,
    "a key of 10 MB": lambda: {"k" * 10**7: 1},
    "300,000 keys": lambda: dict.fromkeys(map(str, range(300_000))),
    "49,000 keys of 20": lambda: dict.fromkeys(f"{n:020}" for n in range(49_000)),
    "a number of 10 million bits": lambda: 1 << 10**7,
    "a decimal of 1 million digits": lambda: Decimal((0, (1,) * 2 * 10**6, 0)),
    "circle": circle,
    "100,000 levels": lambda: deep(100_000),
    "49,000 dates": lambda: [date(2026, 1, 31)] * 49_000,
    "49,000 empty dicts": lambda: [{}] * 49_000,
    "20,000 dataclasses": lambda: [Line("a", Decimal(1))] * 20_000,
    "49,000 surrogates": lambda: ["\u20ac"] * 49_000 + ["\ud800"],
    "1 MB of controls": lambda: "\x00" * (LIMIT_BYTES - 100),
}
