"""The canonical form: different acts differ, equal ones are equal everywhere, all comes back, the rest is refused."""

from __future__ import annotations

import decimal
import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from functools import cached_property
from pathlib import Path, PurePosixPath
from random import Random
from types import FrameType, MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr, SecretBytes, SecretStr, TypeAdapter

from sayso.errors import ArgumentError
from sayso.model import canonical
from sayso.model.canonical import (
    LIMIT_BYTES,
    LIMIT_DEPTH,
    LIMIT_VALUES,
    check_round_trip,
    class_name,
    decode,
    digest_input,
    display,
    encode,
    function_name,
    load,
    read,
)
from sayso.model.canonical.json_tree import MASK, dump, fields_of, with_fields
from tests.model import canonical_values
from tests.model.abuse import ABUSES, circle, deep
from tests.model.canonical_values import (
    CLASSES,
    VALUES,
    Basket,
    Colour,
    Level,
    Line,
    Open,
    Order,
    OtherLine,
    Private,
    Refund,
)
from tests.support.ids import stable
from tests.support.rounds import rounds

HERE = Path(__file__).resolve().parent
GOLDEN: dict[str, dict[str, str]] = json.loads((HERE / "golden" / "canonical.json").read_text(encoding="utf-8"))
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001


def same(one: object, other: object) -> bool:
    return encode({"value": one}).digest_input == encode({"value": other}).digest_input


# -- different acts --------------------------------------------------------------------------------------------

PAIRS: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (1.0, True),
    (0, False),
    (0, None),
    (1, "1"),
    (True, "true"),
    (None, "null"),
    (None, ""),
    (0, -0.0),
    (0.0, -0.0),
    (2**53, 2**53 + 1),
    (2**53, float(2**53)),
    (10**22, 1e22),
    (0.1, 0.1 + 2**-56),
    (1e-7, "1e-07"),
    ("\u00e9", "e\u0301"),
    ("a", "\u0430"),
    ("a", "a\u200b"),
    ("a", "A"),
    ("a ", "a"),
    ("a\n", "a\r\n"),
    ("\\u00e9", "\u00e9"),
    ([], ()),
    ([1], (1,)),
    ([1, 2], [2, 1]),
    ([[1], 2], [[1, 2]]),
    ([], {}),
    ([], None),
    ([1], 1),
    (["ab"], ["a", "b"]),
    ({"a": 1}, {"a": 1.0}),
    ({"a": 1}, {"A": 1}),
    ({"a": None}, {}),
    ({"a": {"b": 1}}, {"a": 1, "b": 1}),
    ({"1": "a"}, ["a"]),
    ({"\u00e9": 1}, {"e\u0301": 1}),
    (b"a", "a"),
    (b"a", "YQ=="),
    (b"", ""),
    (Decimal("1.0"), Decimal("1.00")),
    (Decimal(1), 1),
    (Decimal("1.5"), 1.5),
    (Decimal("1.5"), "1.5"),
    (Decimal(0), Decimal("-0")),
    (Decimal("1E+2"), Decimal(100)),
    (date(2026, 1, 31), "2026-01-31"),
    (date(2026, 1, 31), datetime(2026, 1, 31)),  # noqa: DTZ001
    (NOON, NOON.replace(tzinfo=UTC)),
    (NOON.replace(tzinfo=UTC), NOON.replace(hour=13, tzinfo=timezone(timedelta(hours=1)))),
    (NOON.replace(tzinfo=BERLIN), NOON.replace(tzinfo=timezone(timedelta(hours=1)))),
    (NOON.replace(tzinfo=BERLIN), NOON.replace(tzinfo=ZoneInfo("Europe/Paris"))),
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)),
    (NOON, NOON.isoformat()),
    (NOON.time(), NOON.time().isoformat()),
    (timedelta(days=1), timedelta(hours=25)),
    (timedelta(seconds=1), 1.0),
    (UUID(int=5), str(UUID(int=5))),
    (UUID(int=5), 5),
    (Path("a"), "a"),
    (Path("a"), Path("./a/b").parent / "x"),
    (Colour.RED, "r"),
    (Colour.RED, "RED"),
    (Colour.BLUE, 2),
    (Level.LOW, 1),
    (Level.LOW, Level.HIGH),
    (Level.HIGH, Colour.BLUE),
    (Line("a", Decimal(1)), OtherLine("a", Decimal(1))),
    (Line("a", Decimal(1)), {"sku": "a", "price": Decimal(1), "count": 1}),
    (Order(lines=[]), Refund(lines=[])),
    (Order(lines=[]), Order(lines=[], note=None)),
    (Order(lines=[]), Order(lines=[]).model_dump()),
    (Open(Amount=1), Open(Amount=1, b=1)),  # pyright: ignore[reportCallIssue]
    (SecretStr("a"), "a"),
    (SecretStr("a"), SecretStr("b")),
    # What a tag looks like, written out by hand, is not what it stands for.
    (date(2026, 1, 31), {"$date": "2026-01-31"}),
    ((1,), {"$tuple": [1]}),
    ({"$tuple": [1]}, {"$dict": {"$tuple": [1]}}),
    (Colour.RED, {"$enum": ["bank:Colour", "RED"]}),
    (b"a", {"$bytes": "YQ=="}),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda value: repr(value)[:40])
def test_different_acts_have_different_digests(one: object, other: object) -> None:
    assert not same(one, other)
    assert not same([one], [other])
    assert not same({"k": (one,)}, {"k": (other,)})


def test_there_are_at_least_sixty_pairs_of_different_acts() -> None:
    assert len(PAIRS) >= 60


def test_all_golden_values_differ_from_each_other() -> None:
    digests = Counter(row["sha256"] for name, row in GOLDEN.items() if name != "enum alias")
    assert [digest for digest, count in digests.items() if count > 1] == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x": [{"a": 1, "b": {"c": 1, "d": 2}}]}, {"x": [{"b": {"d": 2, "c": 1}, "a": 1}]}),
        ({"$a": 1, "b": 2}, {"b": 2, "$a": 1}),
        (Path("a/b"), Path("a//./b")),
        (Colour.RED, Colour.CRIMSON),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=timezone(timedelta(0)))),
        (datetime(2026, 1, 1, tzinfo=UTC), TypeAdapter(datetime).validate_python("2026-01-01T00:00:00Z")),
        (Open(Amount=1, b=1, c=2), Open(Amount=1, c=2, b=1)),  # pyright: ignore[reportCallIssue]
    ],
    ids=stable,
)
def test_equal_acts_have_equal_digests(one: object, other: object) -> None:
    assert same(one, other)


def test_the_order_of_keys_is_kept_in_the_text_and_left_out_of_the_digest() -> None:
    one, other = encode({"to": "bob", "amount": 1}), encode({"amount": 1, "to": "bob"})
    assert one.text == '{"to":"bob","amount":1}'
    assert other.text == '{"amount":1,"to":"bob"}'
    assert one.digest_input == other.digest_input == b'{"amount":1,"to":"bob"}'


def test_the_names_of_arguments_are_part_of_the_digest() -> None:
    assert encode({"a": 1}).digest_input != encode({"b": 1}).digest_input


def test_the_context_of_decimals_has_no_say() -> None:
    with decimal.localcontext() as context:
        context.capitals = 0
        context.prec = 3
        assert encode({"value": Decimal("1.2345E+10")}).text == '{"value":{"$decimal":"1.2345E+10"}}'
        assert decode('{"value":{"$decimal":"1.2345E+10"}}', {}) == {"value": Decimal("1.2345E+10")}


# -- golden vectors --------------------------------------------------------------------------------------------


def test_there_are_at_least_sixty_golden_vectors() -> None:
    assert len(GOLDEN) >= 60
    assert set(GOLDEN) == set(VALUES)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_golden_vector_is_written_as_it_was(name: str) -> None:
    form = encode({"value": VALUES[name]})
    assert form.text == GOLDEN[name]["text"]
    assert hashlib.sha256(form.digest_input).hexdigest() == GOLDEN[name]["sha256"]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_golden_vector_is_read_as_it_was(name: str) -> None:
    text = GOLDEN[name]["text"]
    value = decode(text, CLASSES)["value"]
    assert type(value) is type(VALUES[name])
    assert identity(value) == identity(VALUES[name])
    assert encode({"value": value}).text == text
    assert hashlib.sha256(digest_input(text)).hexdigest() == GOLDEN[name]["sha256"]


@pytest.mark.slow
def test_digests_are_the_same_under_every_hash_seed() -> None:
    expected = {name: row["sha256"] for name, row in GOLDEN.items()}
    for seed in range(rounds(4, 20)):
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        command = [sys.executable, canonical_values.__file__]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert json.loads(found.stdout) == expected


# -- generated trees -------------------------------------------------------------------------------------------


def identity(value: Any) -> Any:
    """Return what makes a value the act that it is, worked out in another way than by its form."""
    match value:
        case dict():
            return "dict", frozenset((key, identity(item)) for key, item in value.items())
        case list() | tuple():
            return type(value).__name__, tuple(identity(item) for item in value)
        case float():
            return "float", value.hex()
        case Decimal():
            return "Decimal", value.as_tuple()
        case datetime():
            zone = value.tzinfo
            return (
                "datetime",
                value.replace(tzinfo=None).isoformat(),
                value.utcoffset(),
                zone_identity(zone),
                value.fold,
            )
        case time():
            return "time", value.isoformat(), zone_identity(value.tzinfo), value.fold
        case SecretStr() | SecretBytes():
            return type(value), value.get_secret_value()
        case Line() | OtherLine() | Basket():
            return type(value), tuple(identity(getattr(value, member.name)) for member in fields(value))
        case BaseModel():
            extra = value.__pydantic_extra__ or {}
            private = value.__pydantic_private__ or {}
            held = {**vars(value), **extra}
            return type(value), identity(held), frozenset(value.model_fields_set), identity(private)
        case _:
            return type(value), value


def zone_identity(zone: tzinfo | None) -> object:
    return (type(zone), zone.key if isinstance(zone, ZoneInfo) else zone and zone.tzname(None))


ZONES = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=-3, minutes=-30)), timezone(timedelta(hours=1), "CET"), BERLIN]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["$date", "$tuple", "1", "é"])
MOMENTS = st.datetimes(timezones=ZONES, allow_imaginary=False)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, 1e22]),
    TEXTS,
    st.binary(max_size=4),
    st.decimals(allow_nan=False, allow_infinity=False),
    MOMENTS,
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([Path("a"), Path("a/b"), Path()]),
    st.sampled_from([Colour.RED, Colour.BLUE, Level.LOW, Level.HIGH]),
    st.builds(Line, TEXTS, st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 2)),
    st.builds(SecretStr, TEXTS),
    st.builds(Refund, lines=st.just([]), note=st.none() | TEXTS),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(TEXTS, inner, max_size=4),
    ),
    max_leaves=12,
)


def comes_back(arguments: dict[str, Any]) -> bytes:
    form = encode(arguments)
    back = decode(form.text, CLASSES)
    assert list(back) == list(arguments)
    assert identity(back) == identity(arguments)
    assert encode(back) == form
    assert digest_input(form.text) == form.digest_input
    again, raw = read(form.text, lambda: CLASSES)
    assert (identity(again), raw) == (identity(back), form.digest_input)
    assert dump(load(form.text)) == form.text
    check_round_trip(form, CLASSES)
    return form.digest_input


@pytest.mark.parametrize("text", ['{"b":1,"a":2}', '{"a":{"c":1,"b":2}}', '{"a":[{"c":1,"b":2}]}', '{"a":"{","b":1}'])
def test_a_stored_text_is_digested_with_sorted_keys(text: str) -> None:
    assert read(text, dict) == (load(text), digest_input(text))


def test_a_text_that_was_written_in_another_way_has_another_digest_input() -> None:
    assert read('{"a": 1}', dict)[1] != encode({"a": 1}).digest_input


@given(arguments=st.dictionaries(TEXTS, TREES, max_size=3))
def test_a_generated_tree_comes_back(arguments: dict[str, Any]) -> None:
    comes_back(arguments)


def grown(random: Random, depth: int = 0) -> Any:
    """Grow a tree out of few different leaves, so that trees are often nearly equal."""
    kind = random.randrange(9 if depth < 4 else 6)
    if kind < 6:
        return random.choice(LEAVES)
    branches = [grown(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == 6:
        return branches
    return tuple(branches) if kind == 7 else dict(zip(random.sample(KEYS, len(branches)), branches, strict=True))


KEYS = ["a", "b", "$date", "$tuple", "$dict", "\u00e9", "e\u0301", ""]
LEAVES = [value for value in VALUES.values() if len(repr(value)) < 200]


TREES = rounds(1_500, 5_000)


@pytest.mark.slow
def test_generated_trees_come_back_and_do_not_collide() -> None:
    seen: dict[bytes, object] = {}
    drawn = 0

    # Hypothesis hands out seeds: trees grown by its own strategies take it ten times as long.
    @settings(max_examples=TREES, deadline=None, database=None, phases=[Phase.generate])
    @given(st.integers(0, 2**64))
    def draw(seed: int) -> None:
        nonlocal drawn
        drawn += 1
        random = Random(seed)
        arguments = {key: grown(random) for key in random.sample(KEYS, random.randrange(1, 4))}
        digest = comes_back(arguments)
        assert seen.setdefault(digest, identity(arguments)) == identity(arguments)

    draw()
    assert drawn >= TREES
    assert len(seen) == len(set(seen.values())) > TREES * 4 // 5


@given(arguments=st.dictionaries(TEXTS, SCALARS, max_size=5))
def test_the_short_way_and_the_walk_write_the_same(arguments: dict[str, Any]) -> None:
    assert encode(arguments) == canonical._encode_any(arguments)


# -- refusals --------------------------------------------------------------------------------------------------


class UserId(str):
    __slots__ = ()


class Count(int):
    pass


class Perm(Flag):
    READ = 1
    WRITE = 2


Point = namedtuple("Point", "x y")  # noqa: PYI024


@dataclass
class Cache:
    size: int
    rows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.handle = object()


@dataclass
class Memo:
    size: int

    @cached_property
    def double(self) -> int:
        return self.size * 2


@dataclass
class Unset:
    size: int = field(init=False)


@dataclass
class Fault(Exception):
    code: int


class Stamp(datetime):
    pass


class Day(date):
    pass


class Zone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=1)


class Hidden(BaseModel):
    amount: int
    _handle: Any = PrivateAttr(default_factory=object)


REFUSED: list[tuple[str, Any, str]] = [
    ("nan", float("nan"), "is not a finite number"),
    ("infinity", float("inf"), "is not a finite number"),
    ("minus infinity", float("-inf"), "is not a finite number"),
    ("decimal nan", Decimal("NaN"), "is a Decimal that is not a finite number"),
    ("decimal snan", Decimal("sNaN"), "is a Decimal that is not a finite number"),
    ("decimal infinity", Decimal("-Infinity"), "is a Decimal that is not a finite number"),
    ("set", {1}, "is a set; convert it to a sorted list"),
    ("frozenset", frozenset({1}), "is a frozenset; convert it to a sorted list"),
    ("lone surrogate", "a\ud800", "contains a lone surrogate"),
    ("surrogate in a secret", SecretStr("a\ud800"), "contains a lone surrogate"),
    ("surrogate in a zone", NOON.replace(tzinfo=timezone(timedelta(0), "\ud800")), "contains a lone surrogate"),
    ("long secret", SecretStr("x" * LIMIT_BYTES), "makes the arguments larger than 1,048,576 bytes"),
    ("surrogate in a path", Path(os.fsdecode(b"\xff")), "contains a lone surrogate"),
    ("int key", {1: 2}, "has a key of type int; keys must be str"),
    ("none key", {None: 2}, "has a key of type NoneType; keys must be str"),
    ("tuple key", {(1,): 2}, "has a key of type tuple; keys must be str"),
    ("enum key", {Colour.RED: 2}, "has a key of type Colour; keys must be str"),
    ("str subclass key", {UserId("a"): 2}, "has a key of type UserId; keys must be str"),
    ("object", object(), "is of class builtins:object, which has no canonical form"),
    ("class", Line, "is of class builtins:type, which has no canonical form"),
    ("function", print, "which has no canonical form"),
    ("generator", (n for n in [1]), "which has no canonical form"),
    ("fraction", Fraction(1, 3), "is of class fractions:Fraction, which has no canonical form"),
    ("complex", 1j, "is of class builtins:complex, which has no canonical form"),
    ("namespace", SimpleNamespace(a=1), "is of class types:SimpleNamespace, which has no canonical form"),
    ("mapping proxy", MappingProxyType({}), "which has no canonical form"),
    ("pure path", PurePosixPath("a"), ":PurePosixPath, which has no canonical form"),
    ("bytearray", bytearray(b"a"), "is a bytearray; convert it to bytes"),
    ("memoryview", memoryview(b"a"), "which has no canonical form"),
    ("str subclass", UserId("a"), "is a UserId; convert it to str"),
    ("int subclass", Count(1), "is a Count; convert it to int"),
    ("datetime subclass", Stamp(2026, 1, 31), "is a Stamp; convert it to datetime"),
    ("date subclass", Day(2026, 1, 31), "is a Day; convert it to date"),
    ("ordered dict", OrderedDict(a=1), "is a OrderedDict; convert it to dict"),
    ("default dict", defaultdict(int), "is a defaultdict; convert it to dict"),
    ("counter", Counter("a"), "is a Counter; convert it to dict"),
    ("named tuple", Point(1, 2), "is a Point; convert it to tuple"),
    ("flags", Perm.READ | Perm.WRITE, "is a combination of Perm flags"),
    ("no flags", Perm(0), "is a combination of Perm flags"),
    ("int of 4301 digits", 10**4300, "has more than 4300 digits"),
    ("secret text of bytes", SecretStr(b"a"), "is a SecretStr that contains bytes"),  # type: ignore[arg-type]
    ("secret bytes of text", SecretBytes("a"), "is a SecretBytes that contains str"),  # type: ignore[arg-type]
    ("foreign time zone", datetime(2026, 1, 1, tzinfo=Zone()), "has a time zone of class Zone; convert it with"),
    ("dataclass with more", Cache(1), "is a Cache with the attribute 'handle', which is not one of its fields"),
    ("dataclass with less", Unset(), "is a Unset without a value in its field 'size'"),
    ("private attribute", Hidden(amount=1), "is of class builtins:object, which has no canonical form"),
    ("too deep", deep(LIMIT_DEPTH + 1), f"is nested deeper than {LIMIT_DEPTH} levels"),
    ("circle", circle(), f"is nested deeper than {LIMIT_DEPTH} levels, or contains itself"),
    ("too long", "x" * LIMIT_BYTES, "makes the arguments larger than 1,048,576 bytes"),
    ("too long in utf-8", "\u20ac" * (LIMIT_BYTES // 3), "makes the arguments larger than 1,048,576 bytes"),
    ("too long when escaped", "\x00" * (LIMIT_BYTES // 6), "makes the arguments larger than 1,048,576 bytes"),
    ("too many", [0] * (LIMIT_VALUES + 1), "brings the number of values above 50,000"),
]


@pytest.mark.parametrize(("value", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_has_no_form_is_refused_by_the_name_of_its_argument(value: Any, reason: str) -> None:
    for arguments in ({"ok": 1, "bad": value}, {"bad": value, "date": date(2026, 1, 1)}):
        with pytest.raises(ArgumentError, match="the call was neither recorded nor run") as refused:
            encode(arguments)
        assert refused.value.argument.startswith("bad")
        assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"order": {"lines": [1, 2, {"price": float("nan")}]}}, "order.lines[2].price"),
        ({"order": {"unit price": ({1},)}}, 'order["unit price"][0]'),
        ({"order": {"a\ud800": 1}}, r'order["a\ud800"]'),
        ({"order": {"\u00e9": {1}}}, "order.\u00e9"),
        ({"line": Line("a", Decimal("NaN"))}, "line.price"),
        ({"basket": Order.model_construct(lines=[Line("a", UserId("x"))])}, "basket.lines[0].price"),  # type: ignore[arg-type]
        ({"x": {"k" * 100: {1}}}, 'x["' + "k" * 40 + '..."]'),
        ({"\ud800": 1}, r'"\ud800"'),
        ({"a": 1, "b": {"c": {1: 2}}}, "b.c"),
        ({"small": "x" * 10, "large": "\u20ac" * LIMIT_BYTES}, "large"),
        ({"small": "x" * 10, "large": ["\u20ac" * 90_000] * 5}, "large"),
        ({"a": 1, "$b": "\u20ac" * 400_000}, '"$b"'),
        ({"a": circle()}, "a" + "[0]" * 11 + "…"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_says_where_the_value_stands(arguments: dict[str, Any], place: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        encode(arguments)
    assert refused.value.argument == place


def test_names_of_arguments_must_be_texts() -> None:
    for arguments in ({1: 2}, {None: 1}, {b"a": 1}, {"a": 1, 2: 3}):
        with pytest.raises(ArgumentError, match="keys must be str"):
            encode(arguments)  # pyright: ignore[reportArgumentType]


def test_a_refusal_never_contains_the_value() -> None:
    bait = "c4n4ry"
    for value in (UserId(bait), {bait.encode()}, [bait + "\ud800"], SimpleNamespace(a=bait), Point(bait, bait)):
        with pytest.raises(ArgumentError) as refused:
            encode({"value": value})
        assert bait not in str(refused.value)


def test_the_limits_themselves_are_allowed() -> None:
    text = "x" * (LIMIT_BYTES - len('{"a":""}'))
    assert len(encode({"a": text}).text) == LIMIT_BYTES
    assert decode(encode({"a": deep(LIMIT_DEPTH)}).text, {}) == {"a": deep(LIMIT_DEPTH)}
    assert len(load(encode({"a": [0] * (LIMIT_VALUES - 1)}).text)["a"]) == LIMIT_VALUES - 1  # type: ignore[arg-type]
    encode({"a": Memo(1)})
    memo = Memo(1)
    assert memo.double == 2
    assert encode({"a": memo}) == encode({"a": Memo(1)})


def no_more_calls_than(most: int, work: Callable[[], object]) -> None:
    """Do some work; fail as soon as it calls so many functions, Python's own included."""
    left = most

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal left
        left -= event in {"call", "c_call"}
        if left < 0:
            pytest.fail(f"more than {most:,} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)


def room_taken(work: Callable[[], object]) -> int:
    """Do some work; return how many bytes it took at the most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# An input may be as large as memory; what is done with it may grow only with what a request may hold. Today the worst
# take 13 calls for each value that it may hold, and 12 bytes for each byte. `benchmarks` says how long that is.
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ABUSES))
def test_an_abusive_input_is_refused_before_the_work_grows_with_it(name: str) -> None:
    value = ABUSES[name]()

    def work() -> None:
        with nullcontext() if name == "49,000 empty dicts" else pytest.raises(ArgumentError):
            encode({"value": value})

    no_more_calls_than(30 * LIMIT_VALUES, work)
    assert room_taken(work) < 30 * LIMIT_BYTES


def test_there_are_at_least_twenty_abusive_inputs() -> None:
    assert len(ABUSES) >= 20


# -- reading ---------------------------------------------------------------------------------------------------

MALFORMED = [
    "",
    "null",
    "[]",
    "1",
    '{"a":NaN}',
    '{"a":Infinity}',
    '{"a":1e999}',
    '{"a":[-1e999,{"$tuple":[]}]}',
    '{"a":1} ',
    '{"a":[{"$tuple":1}]}',
    '{"a":{"$date":"20260131"}}',
    '{"a":{"$date":5}}',
    '{"a":{"$date":"yesterday"}}',
    '{"a":{"$datetime":"2026-01-31 12:00:00"}}',
    '{"a":{"$datetime":"2026-01-31T12:00:00+01:00[../../etc/passwd]"}}',
    '{"a":{"$datetime":"2026-01-31T12:00:00+01:00[No/Where]"}}',
    '{"a":{"$datetime":"2026-01-31T12:00:00+05:00[Europe/Berlin]"}}',
    '{"a":{"$datetime":"2026-01-31T12:00:00[Europe/Berlin]"}}',
    '{"a":{"$datetime":"2026-01-31T12:00:00(CET)"}}',
    '{"a":{"$time":"12:30"}}',
    '{"a":{"$timedelta":[0,0,1000000]}}',
    '{"a":{"$timedelta":[true,0,0]}}',
    '{"a":{"$timedelta":[1e999,0,0]}}',
    '{"a":{"$timedelta":"1 day"}}',
    '{"a":{"$decimal":"NaN"}}',
    '{"a":{"$decimal":"1_0"}}',
    '{"a":{"$decimal":" 1"}}',
    '{"a":{"$decimal":1}}',
    '{"a":{"$bytes":"YQ="}}',
    '{"a":{"$bytes":"Y Q=="}}',
    '{"a":{"$bytes":["YQ=="]}}',
    '{"a":{"$uuid":"{12345678-1234-5678-1234-567812345678}"}}',
    '{"a":{"$path":"a//b"}}',
    '{"a":{"$path":["a"]}}',
    '{"a":{"$secret":["int",5]}}',
    '{"a":{"$secret":["str",5]}}',
    '{"a":{"$secret":"x"}}',
    '{"a":{"$dict":{"b":1}}}',
    '{"a":{"$dict":[]}}',
    '{"a":{"$int":1}}',
    '{"a":{"$a":1,"$b":2}}',
    '{"a":{"$tuple":[],"b":2}}',
    '{"$tuple":[]}',
    '{"$date":"2026-01-31"}',
    '{"a":{"$enum":["bank:Colour","r"]}}',
    '{"a":{"$enum":["bank:Line","sku"]}}',
    '{"a":{"$enum":"bank:Colour"}}',
    '{"a":{"$dataclass":["bank:Line",{"sku":"a"}]}}',
    '{"a":{"$dataclass":["bank:Line",{"sku":"a","price":1,"count":1,"__class__":1}]}}',
    '{"a":{"$dataclass":["bank:Order",{"lines":[]}]}}',
    '{"a":{"$dataclass":["bank:Colour",{}]}}',
    '{"a":{"$model":["bank:Order",{"lines":[],"__class__":1}]}}',
    '{"a":{"$model":["bank:Line",{"sku":"a","price":1,"count":1}]}}',
    '{"a":{"$model":["bank:Order",{"lines":[]},{}]}}',
    '{"a":{"$model":["bank:Order",{"lines":[]},{"unset":["nothing"]}]}}',
    '{"a":{"$model":["bank:Order",{"lines":[]},{"extra":5}]}}',
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"a":' + "[" * 70 + '{"$date":"2026-01-31"}' + "]" * 70 + "}",
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:60])
def test_what_was_not_written_by_encode_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        decode(text, CLASSES)


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:60])
def test_what_was_not_written_by_encode_can_be_displayed_all_the_same(text: str) -> None:
    try:
        tree = load(text)
    except ArgumentError:
        return
    json.dumps(display(tree))


GADGETS = [
    f'{{"a":{{"{tag}":["{name}",{body}]}}}}'
    for tag in ("$dataclass", "$model", "$enum", "$object", "$type")
    for name in ("os:system", "subprocess:Popen", "builtins:eval", "antigravity:fly", "posix:system", "a" * 5000)
    for body in ('{"args":["id"]}', '"__init__"')
] + [
    '{"a":{"py/object":"antigravity.x","$py":1}}',
    '{"a":{"$ref":"https://example.com/x"}}',
    '{"a":{"$dataclass":["bank:Line.__init__",{}]}}',
    '{"a":{"$enum":["bank:Colour","__class__"]}}',
    '{"a":{"$enum":["bank:Colour","mro"]}}',
]


@pytest.mark.parametrize("text", GADGETS, ids=lambda text: text[:60])
def test_no_name_in_a_stored_text_is_imported_or_run(text: str) -> None:
    before = set(sys.modules)
    with pytest.raises(ArgumentError):
        decode(text, CLASSES)
    assert set(sys.modules) == before
    display(load(text))


def test_there_are_at_least_forty_gadgets() -> None:
    assert len(GADGETS) >= 40


def test_a_class_comes_from_the_given_ones_only() -> None:
    text = encode({"line": Line("a", Decimal(1))}).text
    assert decode(text, {"bank:Line": OtherLine})["line"] == OtherLine("a", Decimal(1))
    with pytest.raises(ArgumentError, match="annotate the parameter with it") as refused:
        decode(text, {})
    assert refused.value.argument == "line"
    assert "bank:Line" in refused.value.reason


class Loud(BaseModel):
    amount: int
    _log: list[str] = PrivateAttr(default_factory=list[str])

    def model_post_init(self, _: Any) -> None:
        self._log.append("built")


@dataclass(frozen=True)
class Grows:
    amount: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "amount", self.amount + 1)


def test_reading_runs_no_initialiser_and_no_validator() -> None:
    form = encode({"loud": Loud(amount=1), "grows": Grows(1)})
    back = decode(form.text, {class_name(Loud): Loud, class_name(Grows): Grows})
    assert back == {"loud": Loud(amount=1), "grows": Grows(1)}
    assert back["loud"]._log == ["built"]  # pyright: ignore[reportAttributeAccessIssue]
    assert back["grows"].amount == 2  # pyright: ignore[reportAttributeAccessIssue]


def test_a_model_comes_back_whole() -> None:
    before = Open(Amount=1, b=2)  # pyright: ignore[reportCallIssue]
    after: Any = decode(encode({"x": before}).text, CLASSES)["x"]
    assert after == before
    assert after.model_fields_set == {"amount", "b"}
    assert after.model_extra == {"b": 2}
    assert after.model_dump(exclude_unset=True) == before.model_dump(exclude_unset=True)
    private: Any = decode(encode({"x": Private(amount=1)}).text, CLASSES)["x"]
    private._seen.append(1)
    assert private._seen == [1]
    bare: Any = decode(encode({"x": Open(Amount=1)}).text, CLASSES)["x"]
    assert bare.model_copy(update={"c": 1}).model_extra == {"c": 1}


# -- what survives ---------------------------------------------------------------------------------------------


def test_classes_that_annotations_do_not_lead_to_are_refused_when_asked() -> None:
    form = encode({"amount": 1, "order": {"line": Line("a", Decimal(1))}})
    check_round_trip(form, CLASSES)
    with pytest.raises(ArgumentError, match="annotate the parameter with it") as refused:
        check_round_trip(form, {})
    assert refused.value.argument == "order.line"


def test_a_dataclass_that_cannot_be_put_together_is_refused_when_asked() -> None:
    form = encode({"fault": Fault(1)})
    with pytest.raises(ArgumentError, match="extends a builtin"):
        check_round_trip(form, {class_name(Fault): Fault})


@dataclass
class Sly:
    amount: int

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return value + 1 if name == "amount" else value


def test_a_value_that_comes_back_otherwise_is_refused_when_asked() -> None:
    with pytest.raises(ArgumentError, match="cannot be restored unchanged from its stored form") as refused:
        check_round_trip(encode({"fine": Colour.RED, "sly": Sly(1)}), {**CLASSES, class_name(Sly): Sly})
    assert refused.value.argument == "sly"


# -- names -----------------------------------------------------------------------------------------------------


def test_names_are_module_and_qualified_name() -> None:
    class Inner:
        def method(self) -> None: ...

        def __call__(self) -> None: ...

    from functools import partial

    assert class_name(Decimal) == "decimal:Decimal"
    assert class_name(Inner) == f"{__name__}:test_names_are_module_and_qualified_name.<locals>.Inner"
    assert function_name(Inner().method).endswith("Inner.method")
    assert function_name(Inner()).endswith("<locals>.Inner")
    assert function_name(partial(partial(same, 1), 2)) == f"{__name__}:same"
    assert class_name(Line) == "bank:Line"


def test_a_stand_ins_name_is_not_inherited() -> None:
    class Sub(OtherLine):
        pass

    assert class_name(Sub).endswith("<locals>.Sub")


def test_a_script_has_one_name_however_it_is_started(tmp_path: Path) -> None:
    program = "from sayso.model.canonical import class_name\nclass Pay: ...\nprint(class_name(Pay))\n"
    (tmp_path / "payroll.py").write_text(program, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent.parent / "src"), str(tmp_path)])}
    starts = (["payroll.py"], ["-m", "payroll"], ["-c", "import payroll"], [str(tmp_path / "payroll.py")])
    for arguments in starts:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == "payroll:Pay\n"


# -- display ---------------------------------------------------------------------------------------------------


def shown(value: object) -> Any:
    return display(load(encode({"value": value}).text))["value"]  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (1.5, 1.5),
        (None, None),
        ((1, (2,)), [1, [2]]),
        ({"$date": 1}, {"$date": 1}),
        (b"a", "YQ=="),
        (Decimal("1.00"), "1.00"),
        (date(2026, 1, 31), "2026-01-31"),
        (NOON, "2026-01-31T12:00:00"),
        (NOON.replace(tzinfo=BERLIN), "2026-01-31T12:00:00+01:00"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), "2026-10-25T02:30:00+01:00"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4.5), "P1DT2H3M4.5S"),
        (timedelta(hours=-1), "-PT1H"),
        (timedelta(), "PT0S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        (Colour.RED, "RED"),
        (Line("a", Decimal("1.0")), {"sku": "a", "price": "1.0", "count": 1}),
        (Order(lines=[]), {"lines": [], "colour": "RED", "note": None}),
        (Open(Amount=1, b=SecretStr("x")), {"amount": 1, "b": "***"}),  # pyright: ignore[reportCallIssue]
        (SecretStr("x"), "***"),
        ([{"k": SecretStr("x")}], [{"k": "***"}]),
    ],
    ids=stable,
)
def test_display_is_plain_json(value: object, expected: object) -> None:
    assert shown(value) == expected
    json.dumps(shown(value), allow_nan=False)


@given(span=st.timedeltas())
def test_a_displayed_duration_is_read_by_pydantic(span: timedelta) -> None:
    assert TypeAdapter(timedelta).validate_python(shown(span)) == span


def secrets(depth: int) -> Iterator[Any]:
    bait = SecretStr(f"canary-{depth}")
    for wrap in (lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: {"$k": v}, lambda v: Open(Amount=1, s=v)):
        value: Any = bait
        for _ in range(depth):
            value = wrap(value)  # type: ignore[no-untyped-call]
        yield value


@pytest.mark.parametrize("depth", range(6))
def test_no_secret_is_displayed_at_any_depth(depth: int) -> None:
    for value in secrets(depth):
        assert f"canary-{depth}" in encode({"value": value}).text
        assert "canary" not in json.dumps(shown(value))


class Mode(Enum):
    FAST = SecretStr


def test_a_class_as_the_value_of_a_member_is_no_matter() -> None:
    assert encode({"mode": Mode.FAST}).text == f'{{"mode":{{"$enum":["{__name__}:Mode","FAST"]}}}}'


@pytest.mark.parametrize("part", ["extra", "private"])
def test_a_model_with_one_name_for_two_values_has_no_parts_to_draw(part: str) -> None:
    tree: Any = {"$model": ["m:Step", {"text": "EVIL"}, {part: {"text": "fine"}}]}
    assert fields_of(tree) is None
    assert display(tree) == {"$model": ["m:Step", {"text": "EVIL"}, {part: {"text": "fine"}}]}


def test_extra_fields_whose_name_looks_like_a_tag_are_fields() -> None:
    tree: Any = {"$model": ["m:Step", {"text": "a"}, {"extra": {"$dict": {"text": "b"}}}]}
    assert fields_of(tree) == {"text": "a", "$dict": {"text": "b"}}
    assert with_fields(tree, {"text": "c", "$dict": MASK}) == {
        "$model": ["m:Step", {"text": "c"}, {"extra": {"$dict": MASK}}]
    }
    assert fields_of({"$dataclass": ["m:Step", {"text": "a"}, {"extra": {"b": 1}}]}) is None
