"""What people see of a call: nothing hides, nothing is cut in silence, nothing passes for what it is not."""

from __future__ import annotations

import json
import random
import re
import sys
import unicodedata
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from sayso import view
from sayso.model import canonical
from sayso.model.canonical.json_tree import fields_of
from sayso.model.redaction import Redaction
from sayso.model.rendering import as_amount
from sayso.model.text import hidden_in, mixed_script
from sayso.view.summary import Layout

ESCAPE = re.compile(r"<U\+([0-9A-F]{4,6})>")
FILLERS = {
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0, 0xFFFC,
    *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),
}  # fmt: skip
HOSTILE = "a' \\n\"<U+202E>=,()[]{}|:…\n\r\t\x00\x1b\x9b\u200b\u202e\u2066\u00a0\u3164\ufe0f\U000e0041\u0301\u0430é漢😀"


class Colour(Enum):
    RED = 1


class colour(Enum):  # noqa: N801  what programs have
    red = 1


@dataclass(frozen=True)
class Line:
    price: Any
    note: str = ""


class Order(BaseModel):
    id: str
    lines: list[Line]


def tree_of(**arguments: Any) -> dict[str, Any]:
    return canonical.load(canonical.encode(arguments).text)


def lines(
    tree: dict[str, Any], *, limit: int = 2_000, width: int = 96, full: bool = False
) -> list[tuple[str, str]]:  # fmt: skip
    """Each argument's name, and its text on as many lines as it needs."""
    layout, named = Layout(width, None if full else limit), fields_of(tree) or {}
    return [(name, "\n".join(layout.rows(as_amount(name, item)))) for name, item in named.items()]


def must_not_be_raw(character: str) -> bool:
    category = unicodedata.category(character)
    return category in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} or (category == "Zs" and character != " ")


@cache
def raw() -> set[str]:
    return {c for c in map(chr, range(sys.maxunicode + 1)) if must_not_be_raw(c) or ord(c) in FILLERS}


def unescape(text: str) -> str:
    return ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


# Escape


@pytest.mark.slow
def test_no_code_point_hides() -> None:
    assert len(raw()) > 900_000
    shown, seen = 0, 0
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        text = view.escape(f"a{character}b")
        seen += 1
        if character in raw():
            assert text == f"a<U+{code:04X}>b"
        elif text == f"a{character}b":
            shown += 1
        else:
            assert text == f"a<U+{code:04X}>b"
    assert seen == 1_114_112
    assert shown > 130_000


@pytest.mark.slow
def test_all_code_points_together_come_back_and_none_is_raw() -> None:
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    for block in (False, True):
        shown = view.escape(text, block=block)
        assert set(shown) & raw() == ({"\n"} if block else set())
        assert unescape(shown) == text


def test_text_without_anything_odd_is_shown_as_it_is() -> None:
    for text in (
        "",
        "plain",
        "naïve café",
        "Привет, мир",
        "漢字かな交じり文",
        "שלום",
        "a<b>U+0041",
        "<U",
        "x < U+1",
        "e\u0301",
        "😀",
    ):
        assert view.escape(text) == text
        assert not hidden_in(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay\u202e001", "pay<U+202E>001"),
        ("<U+202E>", "<U+003C>U+202E>"),
        ("<<U+", "<<U+003C>U+"),
        ("\x1b[2J", "<U+001B>[2J"),
        ("a\nb", "a<U+000A>b"),
        ("\u0301x", "<U+0301>x"),
        ("\u0301\u0301", "<U+0301><U+0301>"),
        ("\ud800", "<U+D800>"),
        ("\U000e0041", "<U+E0041>"),
        ("\U0010ffff", "<U+10FFFF>"),
    ],
)
def test_what_hides_is_written_out(text: str, shown: str) -> None:
    assert view.escape(text) == shown
    assert unescape(shown) == text


def test_block_keeps_line_feeds_and_nothing_else() -> None:
    assert view.escape("a\r\nb\x0b\n\u2028c\n\u0301", block=True) == "a<U+000D>\nb<U+000B>\n<U+2028>c\n<U+0301>"


def test_fifty_thousand_pairs_of_different_texts_look_different() -> None:
    chance = random.Random(20260101)
    alphabet = [
        "<",
        "U",
        "+",
        "2",
        "0",
        "E",
        ">",
        "\u202e",
        "\u200b",
        "\n",
        "a",
        "\u0301",
        "<U+",
        "<U+202E>",
        "<U+003C>",
    ]
    for block in (False, True):
        known: dict[str, str] = {}
        for _ in range(50_000):
            text = "".join(chance.choices(alphabet, k=chance.randrange(1, 7)))
            assert known.setdefault(view.escape(text, block=block), text) == text
        assert len(known) > 20_000


@settings(max_examples=1_000)
@given(st.text(st.characters() | st.sampled_from("<U+0123456789ABCDEF>\n"), max_size=30))
def test_escaped_text_comes_back(text: str) -> None:
    for block in (False, True):
        assert unescape(view.escape(text, block=block)) == text
    assert bool(hidden_in(text)) == any(character in raw() for character in text if character not in "\n\t")


def test_mark_by_mark_text_of_a_million_is_escaped() -> None:
    assert view.escape("\u0301" * 1_000_000) == "<U+0301>" * 1_000_000


# Warnings


def test_hidden_characters_and_mixed_words_are_named() -> None:
    assert view.warnings("pay\u202e\u200bpal\u202e") == ["contains hidden characters (U+202E, U+200B)"]
    assert view.warnings("go to p\u0430ypal.com") == ['the word "p\u0430ypal" mixes Latin and Cyrillic letters']
    assert view.warnings("".join(map(chr, range(0x2060, 0x2070)))) == [
        "contains hidden characters (U+2060, U+2061, U+2062, U+2063, U+2064, U+2065 and 10 more)"
    ]
    assert view.warnings("plain\n\ttext, naïve, Привет, 東京タワー, Tシャツ, 5 µm") == []


def test_warning_says_where_in_the_arguments() -> None:
    tree = tree_of(
        order={"lines": [{"note": "a\u200bb"}], "k\u2060": 1},
        to=Path("\u0455mith"),
        who="sm\u0456th",
        ok="fine",
        s=SecretStr("\u200b"),
    )
    assert view.warnings(tree) == [
        "order.lines[0].note: contains hidden characters (U+200B)",
        "order: contains hidden characters (U+2060)",
        'to: the word "\u0455mith" mixes Latin and Cyrillic letters',
        'who: the word "sm\u0456th" mixes Latin and Cyrillic letters',
    ]


@pytest.mark.parametrize(
    ("word", "scripts"),
    [
        ("p\u0430ypal", ["Latin", "Cyrillic"]),
        ("\u039f\u041f", ["Cyrillic", "Greek"]),
        ("\uff41bc", ["Latin", "Fullwidth"]),
        ("\U0001d41aBC", ["Latin", "Mathematical"]),
        ("\u0561bc", ["Latin", "Armenian"]),
        ("\u13aabc", ["Latin", "Cherokee"]),
        ("漢\u0430", ["Cyrillic", "East Asian"]),
    ],
)
def test_word_of_several_scripts_is_found(word: str, scripts: list[str]) -> None:
    assert mixed_script(f"the {word} and {word}, too") == {word: scripts}


def test_many_mixed_words_are_counted() -> None:
    found = view.warnings(" ".join(f"\u0430{'x' * n}" for n in range(1, 21)))
    assert len(found) == 7
    assert found[-1] == "14 more words mix scripts"


# Values


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, "1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (True, "true"),
        (None, "null"),
        ("x", '"x"'),
        ('say "so"', r'"say \"so\""'),
        ("a\\nb", r'"a\\nb"'),
        ("a\nb", r'"a\nb"'),
        ("a\tb", '"a<U+0009>b"'),
        ("<U+0009>", '"<U+003C>U+0009>"'),
        ([], "[]"),
        ([1, "a"], '[1, "a"]'),
        ((), "()"),
        ((1,), "(1,)"),
        ((1, 2), "(1, 2)"),
        ({}, "{}"),
        ({"a b": {"c": [1]}}, '{"a b": {"c": [1]}}'),
        ({"$tuple": [1]}, '{"$tuple": [1]}'),
        (b"a'\x00", repr(b"a'\x00")),
        (Decimal("1.00"), "1.00"),
        (Decimal("-1E+9"), "-1E+9"),
        (Path("/tmp/x y"), 'Path("/tmp/x y")'),
        (UUID(int=1), 'UUID("00000000-0000-0000-0000-000000000001")'),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")), "2026-01-02T00:00:00+01:00[Europe/Berlin]"),
        (
            datetime(2026, 1, 2, tzinfo=timezone(timedelta(0), "x, amount=1")),
            'datetime("2026-01-02T00:00:00+00:00(x, amount=1)")',
        ),
        (time(1, 2), "01:02:00"),
        (timedelta(days=-1, seconds=5), "timedelta(days=-1, seconds=5)"),
        (timedelta(0), "timedelta(0)"),
        (Colour.RED, "Colour.RED"),
        (colour.red, "<colour.red>"),
        (Line(1), 'Line(price=1, note="")'),
        (Order(id="A", lines=[Line(Decimal(1))]), 'Order(id="A", lines=[Line(price=1, note="")])'),
        (SecretStr("bait"), "***"),
        ("***", '"***"'),
        ({"amount": 320.0, "rate": 0.5, "Total": 1e22}, '{"amount": 320.00, "rate": 0.5, "Total": 1e+22}'),
        (Line(320.0), 'Line(price=320.00, note="")'),
        ({"price": 19.999, "count": 3.0, "cost": 7}, '{"price": 19.999, "count": 3.0, "cost": 7}'),
    ],
)
def test_value_reads_like_json_and_types_differ(value: Any, shown: str) -> None:
    assert view.value(tree_of(v=value)["v"]) == shown


@settings(max_examples=500)
@given(st.text(st.sampled_from(HOSTILE) | st.characters(exclude_categories=["Cs"])))
def test_quoted_text_is_one_json_text_that_means_the_text(text: str) -> None:
    shown = view.value(text)
    assert unescape(json.loads(shown)) == text
    assert not set(shown) & raw()


@pytest.mark.parametrize(
    "broken",
    [{"$tuple": 1}, {"$bytes": "%"}, {"$dataclass": ["x"]}, {"$later": "\u202e"}, {"$enum": [1]}, {"$dict": 3}],
)
def test_malformed_tag_is_shown_and_never_fails(broken: Any) -> None:
    shown = view.value(broken)
    assert shown.startswith('{"$')
    assert not set(shown) & raw()
    assert view.line("f", {"a": broken}).startswith('f(a={"$')
    assert lines({"a": broken})[0][1].startswith('{"$')
    assert view.changes({"a": broken}, {"a": 1}) != []


# A call on one line


def test_call_that_fits_is_shown_whole() -> None:
    assert view.line("refund", tree_of(order_id="A-4721", amount=320.0)) == 'refund(order_id="A-4721", amount=320.00)'
    assert view.line("stop", {}) == "stop()"
    assert view.line("f", tree_of(**{"$a": 1})) == "f($a=1)"
    assert view.line("rm\u202e", tree_of(a="b")) == 'rm<U+202E>(a="b")'


def test_long_value_shows_head_size_and_tail_outside_the_quotes() -> None:
    body = "Dear Kim, " + "x" * 2_300 + " yours"
    shown = view.line("send", tree_of(to="kim@ex.org", body=body), 120)
    assert re.fullmatch(r'send\(to="kim@ex.org", body="Dear Kim, x+" … \(2,316 characters\) … "x+ yours"\)', shown)
    assert len(shown) <= 120
    # A long value takes no room from a short one: that one is whole wherever the long one can give its size.
    mail = view.line("send", tree_of(to="ngozi@example.org", subject="Your order has left", body="x" * 900), 85)
    assert mail == 'send(to="ngozi@example.org", subject="Your order has left", body=… (900 characters))'


def test_sizes_of_every_kind_are_told() -> None:
    def of(value: Any, limit: int = 60) -> str:
        return view.line("f", tree_of(a=value), limit)

    assert of(list(range(1_000))) == "f(a=[0, 1, 2, … (1,000 items) …, 999])"
    assert of({f"key{n}": "v" * 50 for n in range(9)}, 60).endswith("(9 entries)})")
    assert "(12,288 bytes)" in of(b"x" * 12_288)
    assert "(4,001 characters)" in of(10**4_000)
    assert "characters)" in of(Path("/long/" * 100))
    assert of(Path("/long/" * 100)).startswith('f(a=Path("/long')
    assert "1,000 items" in of({"deep": [Line(list(range(1_000)))]}, 90)
    assert of([["x" * 100]]) == 'f(a=[["xxxxxxxxxxxxxxxxx" … (100 characters) … "xxxxxxxx"]])'


def test_arguments_without_room_are_counted() -> None:
    shown = view.line("f", tree_of(**{f"a{n}": n for n in range(200)}))
    assert re.search(r"… \(\d+ more arguments\)\)$", shown)
    assert shown.startswith("f(a0=0, a1=1, ")
    assert shown.count("=") + int(re.search(r"\((\d+) more", shown)[1]) == 200  # type: ignore[index]
    long_name = view.line("g" * 500, tree_of(a="x" * 500))
    assert "(500 characters)" in long_name
    assert len(long_name) <= 100


# The full view


def test_short_values_stand_on_one_line_each() -> None:
    assert lines(tree_of(order_id="A-4721", amount=320.0, lines=[Line(1)])) == [
        ("order_id", '"A-4721"'),
        ("amount", "320.00"),
        ("lines", '[Line(price=1, note="")]'),
    ]


def test_text_of_several_lines_is_a_marked_block() -> None:
    assert lines(tree_of(body="Dear Kim\n\namount = 80.0 \n| x\n")) == [
        ("body", "(29 characters)\n| Dear Kim\n| \n| amount = 80.0<U+0020>\n| | x\n| ")
    ]


def test_container_of_long_values_is_laid_out() -> None:
    shown = lines(
        tree_of(order=Order(id="A" * 100, lines=[Line(n, "note") for n in range(4)]), n=list(range(40))), width=60
    )
    assert dict(shown)["order"].splitlines() == [
        "Order(",
        "  id=(100 characters)",
        *(f"  {mark} {'A' * count}" for mark, count in (("|", 48), (":", 48), (":", 4))),
        "  lines=[",
        *(f'    Line(price={n}, note="note")' for n in range(4)),
        "  ]",
        ")",
    ]
    assert dict(shown)["n"].splitlines()[:2] == ["[", "  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,"]


def texts_at(position: float, size: int) -> str:
    filler = "lorem ipsum dolor " * (size // 18 + 1)
    start = int((size - len(MARKER)) * position)
    return (filler[:start] + MARKER + filler)[:size]


MARKER = " MARKER-7f3a "
POSITIONS = (0, 0.1, 0.25, 0.5, 0.9, 1)
SHAPES = {
    "text": str,
    "rows": lambda text: text.replace("dolor ", "dolor\n"),
    "words": str.split,
    "nested": lambda text: {"a": [{"b": Line(1, text)}]},
    "keys": lambda text: {word + str(n): n for n, word in enumerate(text.split())},
    "key": lambda text: {"a": {text: 1}},
    "bytes": lambda text: text.encode(),
    "path": Path,
}


def tell(text: str) -> bool:
    """Whether something is announced as not shown, with its size."""
    return (
        re.search(
            r"… \([\d,]+ (character|byte|item|entr|field|more argument)|\(… [\d,]+ of [\d,]+ .* not shown …\)", text
        )
        is not None
    )


# A megabyte of words has more values than the canonical form takes.
CASES = [
    (shape, size)
    for size in (1_000, 10_000, 100_000, 1_000_000)
    for shape in SHAPES
    if size < 1_000_000 or shape not in {"keys", "words"}
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "size"), CASES)
def test_nothing_is_cut_in_silence(shape: str, size: int) -> None:
    visible = 0
    for position in POSITIONS:
        text = texts_at(position, size)
        assert text.count(MARKER.strip()) == 1
        tree = {
            "before": 1,
            "value": canonical.form_of(SHAPES[shape](text)) if size < 1_000_000 else huge(shape, text),
            "after": 2,
        }
        one = view.line("send", tree)
        assert MARKER.strip() in one or tell(one)
        assert len(one) <= 100
        views = dict(lines(tree))
        assert MARKER.strip() in views["value"] or tell(re.sub(r"\n\s*: ", "", views["value"]))
        visible += MARKER.strip() in views["value"]
        assert len(views["value"].splitlines()) <= 120
        full = dict(lines(tree, full=True))
        assert MARKER.strip() in full["value"]
        assert "not shown" not in full["value"]
        assert (full["before"], full["after"]) == ("1", "2")
    assert visible >= 2 or shape == "keys"


def huge(shape: str, text: str) -> Any:
    """The form of a megabyte, which `encode` refuses together with anything else."""
    made = SHAPES[shape](text)
    match made:
        case bytes():
            return {"$bytes": b64encode(made).decode()}
        case Path():
            return {"$path": str(made)}
        case {"a": [{"b": Line()}]}:
            return {"a": [{"b": {"$dataclass": ["m:Line", {"price": 1, "note": text}]}}]}
        case _:
            return made


HOSTILE_TEXTS = st.text(st.sampled_from(HOSTILE), max_size=300)
VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | HOSTILE_TEXTS
    | st.binary(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(HOSTILE_TEXTS, inner, max_size=4)
        | st.tuples(inner)
        | st.builds(Line, inner, HOSTILE_TEXTS)
    ),
    max_leaves=25,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["amount", "note", "order"]), VALUES), st.integers(40, 120), st.booleans())
def test_every_line_is_ours_and_none_is_wider_than_asked_for(arguments: dict[str, Any], width: int, full: bool) -> None:
    tree = tree_of(**arguments)
    for _, shown in lines(tree, limit=100, width=width, full=full):
        for row in shown.split("\n"):
            assert len(row) <= width
            assert not set(row) & raw()
            assert not re.match(r"\s*(amount|note|order)\b", row) or "Line(" in shown
    one = view.line("f", tree, max(width, 60))
    assert len(one) <= max(width, 60)
    assert not set(one) & raw()
    assert not set("".join(view.warnings(tree))) & raw()


def test_deep_text_cannot_reach_the_left_edge() -> None:
    value: Any = "amount = 80.0 " * 40
    for _ in range(60):
        value = [value]
    rows = lines(tree_of(a=value), width=80, full=True)[0][1].split("\n")
    assert max(map(len, rows)) <= 80
    assert all(row.strip()[0] in "|:" for row in rows if "amount" in row)
    assert sum("amount" in row for row in rows) > 5


def test_wide_letters_count_twice() -> None:
    rows = lines(tree_of(a="漢" * 200), width=60)[0][1].split("\n")
    assert max(row.count("漢") for row in rows) <= 29
    assert "".join(rows).count("漢") == 200


# Changes


def paths(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    return {c.path: (c.before, c.after) for c in view.changes(tree_of(**before), tree_of(**after))}


def test_every_changed_leaf_is_listed_with_its_place() -> None:
    before = {
        "order": Order(id="A", lines=[Line(1.0), Line(2.0), Line(3.0)]),
        "d": {"x-y": 1, "k": (1, 2)},
        "same": [1],
    }
    after = {
        "order": Order(id="A", lines=[Line(1.0), Line(2.5), Line(3.0, "n")]),
        "d": {"x-y": 2, "k": (1,)},
        "same": [1],
    }
    assert paths(before, after) == {
        "order.lines[1].price": ("2.00", "2.50"),
        "order.lines[2].note": ('""', '"n"'),
        'd["x-y"]': ("1", "2"),
        "d.k[1]": ("2", None),
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 1.0), (1, True), (0, False), (0.0, -0.0), ("1", 1), ([1], (1,)), ({}, []), (None, "None"), ([], None),
        (Decimal("1.0"), Decimal("1.00")), (date(2026, 1, 1), "2026-01-01"), (Line(1), {"price": 1, "note": ""}),
        (Path("a"), "a"), (b"a", "a"), ({"$a": 1}, {"$b": 1}),
    ],
)  # fmt: skip
def test_change_of_type_alone_is_a_change(before: Any, after: Any) -> None:
    found = view.changes(tree_of(v=before), tree_of(v=after))
    assert found
    assert all(change.before != change.after for change in found)


def test_added_and_removed_values_are_listed_by_leaf() -> None:
    assert paths({"a": 1, "gone": {"x": [1, {}]}}, {"a": 1, "new": [(), "t"]}) == {
        "gone.x[0]": ("1", None), "gone.x[1]": ("{}", None), "new[0]": (None, "()"), "new[1]": (None, '"t"'),
    }  # fmt: skip
    assert view.Change("a", None, "1").line() == "a  (nothing) -> 1"
    assert view.Change("amount", "320.0", "80.0").line() == "amount  320.0 -> 80.0"


def test_change_inside_a_long_text_is_shown_with_what_is_around_it() -> None:
    text = "x" * 5_000
    [change] = view.changes({"body": text + "old" + text}, {"body": text + "new" + text})
    assert change.before == f'(… 4,980 characters …) "{"x" * 20}old{"x" * 20}" (… 4,980 characters …)'
    assert change.after == f'(… 4,980 characters …) "{"x" * 20}new{"x" * 20}" (… 4,980 characters …)'
    [change] = view.changes({"body": text}, {"body": text + "y" * 900 + "\u202e"})
    assert change.after is not None
    assert "(921 characters)" in change.after
    assert "<U+202E>" in change.after


def test_change_that_is_not_shown_is_told() -> None:
    data = b"x" * 5_000
    [change] = view.changes(tree_of(a=data + b"1" + data), tree_of(a=data + b"2" + data))
    assert change.after == f"{change.before} (changed where it is not shown)"
    [change] = view.changes(tree_of(a=SecretStr("one")), tree_of(a=SecretStr("two")))
    assert (change.before, change.after) == ("***", "*** (changed)")


def test_changed_secret_is_listed_and_not_shown() -> None:
    before = {
        "password": "bait-1",
        "db": {"api_key": ["bait-2"]},
        "old": {"secret": "bait-3"},
        "kept": {"secret": "bait-4"},
    }
    after = {
        "password": "bait-5",
        "db": {"api_key": ["bait-6"]},
        "new": {"secret": "bait-7"},
        "kept": {"secret": "bait-4"},
        "token": "bait-8",
    }
    found = view.changes(tree_of(**before), tree_of(**after), is_secret=Redaction().is_secret)
    assert [change.line() for change in found] == [
        "password  *** -> *** (changed)",
        "db.api_key  *** -> *** (changed)",
        "old.secret  *** -> (nothing)",
        "new.secret  (nothing) -> ***",
        "token  (nothing) -> ***",
    ]


def leaves(tree: Any, steps: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else []
    yield from (leaf for step, item in inner for leaf in leaves(item, (*steps, step)))
    if not inner or not tree:
        yield steps


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.floats(0, 2) | st.sampled_from(["", "x", "1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3),
    max_leaves=15,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["x", "y", "z"]), PLAIN, max_size=3)


@pytest.mark.slow
@settings(max_examples=500)
@given(ARGUMENTS, ARGUMENTS)
def test_trees_have_no_changes_exactly_when_their_fingerprints_agree(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    found = view.changes(tree_of(**before), tree_of(**after))
    assert (found == []) == (canonical.encode(before).digest_input == canonical.encode(after).digest_input)
    assert len({change.path for change in found}) == len(found)
    assert all(change.before != change.after for change in found)
    assert view.changes(tree_of(**before), tree_of(**before)) == []


@settings(max_examples=300)
@given(ARGUMENTS.filter(bool), st.data())
def test_edit_of_one_leaf_is_the_one_change(arguments: dict[str, Any], data: st.DataObject) -> None:
    tree = tree_of(**arguments)
    steps = data.draw(st.sampled_from(list(leaves(tree))))
    edited = tree_of(**arguments)
    here: Any = edited
    for step in steps[:-1]:
        here = here[step]
    here[steps[-1]] = "edited"
    [change] = view.changes(tree, edited)
    assert change.after == '"edited"'
    assert change.path.startswith(str(steps[0]))


def test_a_tree_full_of_traps_is_not_looked_at_to_its_end() -> None:
    found = view.warnings({f"k{n}": "\u202e" for n in range(1_000)})
    assert len(found) == 21
    assert found[-1] == "and there may be more like these; the rest was not checked"
    assert len(view.warnings({f"k{n}": "\u202e" for n in range(20)})) == 20
