"""Functions as programs write them, whose schemas `test_schema.py` looks at.

Run as a program it prints them, so that other processes and hash seeds can be compared. Annotations are real objects
here; in `test_schema.py` they are texts.
"""

# ruff: noqa: UP006, UP007, UP035, UP045, PYI041, PYI061  # that old ways of writing a type are understood is the point

import datetime as dt
import json
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypedDict, TypeVar, Union
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    PositiveInt,
    RootModel,
    SecretBytes,
    SecretStr,
    StringConstraints,
    conint,
    constr,
    field_validator,
    model_validator,
)
from typing_extensions import NotRequired
from typing_extensions import TypedDict as ExtendedTypedDict

from sayso.model.schema import Schema

T = TypeVar("T")
UserId = NewType("UserId", int)


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
    BLUE = 2
    BACK = "RED"


@named("bank:Line")
@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: Decimal
    count: Annotated[int, Field(ge=1, le=9)] = 1


@named("bank:Basket")
@dataclass
class Basket:
    lines: list[Line]
    notes: dict[str, str] = field(default_factory=dict)
    parent: "Optional[Basket]" = None


@named("bank:Order")
class Order(BaseModel):
    """An order, whose description is in no digest."""

    lines: list[Line] = Field(min_length=1, max_length=3, description="what is bought")
    colour: Colour = Colour.RED
    note: str = Field("", max_length=5, alias="Note")
    parent: Optional["Order"] = None
    tags: list[str] = Field(default_factory=list)


@named("bank:Open")
class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    amount: int


@named("bank:Checked")
class Checked(BaseModel):
    amount: int

    @field_validator("amount")
    @classmethod
    def even(cls, amount: int) -> int:
        if amount % 2:
            raise ValueError(f"{amount} is odd")
        return amount


@named("bank:Span")
class Span(BaseModel):
    first: int
    last: int

    @model_validator(mode="after")
    def ordered(self) -> "Span":
        assert self.first <= self.last, f"{self.first} > {self.last}"
        return self


@named("bank:Raises")
@dataclass
class Raises:
    amount: int

    def __post_init__(self) -> None:
        if self.amount == 13:
            raise LookupError(f"no {self.amount}")


@named("bank:Doubled")
@dataclass
class Doubled:
    amount: int
    factor: InitVar[int] = 2
    total: int = field(init=False)

    def __post_init__(self, factor: int) -> None:
        self.total = self.amount * factor


@named("bank:Names")
class Names(RootModel[list[str]]):
    pass


@named("bank:Box")
class Box(BaseModel, Generic[T]):
    item: T


class Address(TypedDict):
    street: str
    number: "NotRequired[int]"


class Place(ExtendedTypedDict, total=False):
    name: str
    at: tuple[float, float]


def pay(amount: Annotated[int, Field(ge=1, le=500)], to: str, currency: Currency = Currency.EUR) -> None: ...
def kinds(a: int, /, b: int, *c: int, d: int, e: int = 5, **f: float) -> None: ...
def scalars(
    none: None, flag: bool, number: int, ratio: float, text: str, blob: bytes, price: Decimal, at: dt.datetime,
    day: dt.date, clock: dt.time, span: dt.timedelta, key: UUID, where: Path, word: SecretStr, raw: SecretBytes,
) -> None: ...  # fmt: skip
def containers(
    a: list[int], b: tuple[int, ...], c: tuple[int, str], d: dict[str, Decimal], e: Sequence[int], f: Iterable[str],
    g: Mapping[str, list[int]], h: list, i: tuple, j: dict, k: tuple[()], p: typing.List[int], m: typing.Dict[str, int],
    n: Annotated[list[int], Field(min_length=1, max_length=2)], o: dict[Literal["x", "y"], int],
) -> None: ...  # fmt: skip
def unions(
    a: Optional[int], b: Union[int, str], c: int | None, d: list[int] | list[str], e: Line | Basket | None,
    f: Literal["a", 1, True, None], g: Literal[Colour.RED, "z"], h: dt.date | dt.datetime, i: float | int,
) -> None: ...  # fmt: skip
def classes(basket: Basket, order: Order, level: Level = Level.LOW, colour: Colour = Colour.RED) -> None: ...
def limits(
    a: Annotated[int, Field(gt=0, lt=10, multiple_of=2)], b: Annotated[str, Field(pattern="^[a-z]+$", max_length=4)],
    c: Annotated[Decimal, Field(ge=Decimal("0.5"), max_digits=4, decimal_places=2)], d: PositiveInt,
    e: Annotated[str, StringConstraints(strip_whitespace=True, to_upper=True, min_length=1)], f: conint(ge=3),
    g: constr(max_length=2), h: Annotated[int | None, Field(ge=0)],
    i: Annotated[dt.date, Field(ge=dt.date(2026, 1, 1))],
    j: Annotated[str, Field(pattern=re.compile("^[a-z]+$", re.IGNORECASE))],
) -> None: ...  # fmt: skip
def typed_dicts(home: Address, place: Place) -> None: ...
def checked(a: Checked, b: Span, c: Raises) -> None: ...
def computed(a: Doubled) -> None: ...
def beyond(
    even: Annotated[int, AfterValidator(abs)], url: HttpUrl, when: AwareDatetime, ids: set[int], who: UserId,
    clean: Annotated[str, BeforeValidator(str)], box: Box[int], names: Names, loose: Open, anything: Any, bare,
) -> None: ...  # fmt: skip
def secret_default(word: SecretStr = SecretStr("hunter2"), other: int = 1) -> None: ...  # noqa: B008


FUNCTIONS = [
    pay, kinds, scalars, containers, unions, classes, limits, typed_dicts, checked, computed, beyond, secret_default,
]  # fmt: skip


def written() -> str:
    """Return the text of every function's schema, without the names by which this file may be loaded."""
    texts = {function.__name__: Schema.of(function).text for function in FUNCTIONS}
    told = json.dumps(texts, sort_keys=True)
    for name in ("tests.model.schema_samples:", "__main__:"):
        told = told.replace(name, "schema_samples:")
    return told


if __name__ == "__main__":
    print(written())
