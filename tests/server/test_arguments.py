"""How the arguments of a call are drawn on its page.

The invariant: what stands without quotes is a text that cannot be taken for anything else, and no value leaves its box.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pytest

from sayso.server.pages.arguments import Argument, arguments_of, draw, in_words
from tests.support.gated import taking
from tests.support.surfing import held, stands


def drawn(value: Any) -> Argument:
    """Return how a value is drawn that somebody asks to run with."""
    call = stands(held(taking({"value": Any}, []), value)).effective
    (argument,) = arguments_of(call.shown, ["value"])
    return argument


@pytest.mark.parametrize(
    "text", ["alice", "kim@example.org", "/backups/2024", "Dear Kim (1), it is on its way.", "A-4721", "日本", "a.org"]
)
def test_a_plain_text_stands_without_quotes(text: str) -> None:
    assert drawn(text)._replace(code=None) == Argument("value", "text", text, key="f0")


@pytest.mark.parametrize(
    "text",
    ["320", "-1.5", "1,000", "1e9", ".5", "2026-11-22", "2026-11-22T10:00:00", "true", "False", "None", "null", "nan",
     "-inf", "***", "", " alice", "alice ", "a  b", "'alice'", '"x"', "[1]", "{}", "(nothing)", "<U+202E>", "a\tb",
     "a\u200bb", "*** masked", "\u22125", "2026-11-22 Sunday", "2026-11-22T10:00+01:00[Europe/Paris]",
     'Path("/x")', "timedelta(days=1)", "b'a'", "Colour.RED",
     "12,500.50 EUR", "Role.admin", "Shop.Role.admin", "<colour.red>"],
)  # fmt: skip
def test_a_text_that_could_be_taken_for_something_else_keeps_its_quotes(text: str) -> None:
    found = drawn(text)
    assert found.kind == "code"
    assert found.text[0] in "'\""
    assert found.text != text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (320.0, "number", "320.0"), ({"price": 320.0}, "code", '{"price": 320.00}'),
        (7, "number", "7"), (Decimal("1.10"), "number", "1.10"), (True, "code", "true"),
        (None, "code", "null"), (dt.date(2026, 11, 22), "code", "2026-11-22"), ({"a": 1}, "code", '{"a": 1}'),
    ],
)  # fmt: skip
def test_other_values_are_drawn_by_their_type(value: Any, kind: str, text: str) -> None:
    assert drawn(value)[1:3] == (kind, text)


def test_a_masked_value_is_marked_and_a_text_of_three_stars_is_a_text() -> None:
    call = stands(held(taking({"password": str, "note": str, "keys": list, "deep": dict}, []),
                       "hunter2", "***", ["***", "x"], {"token": "t1", "a": ["***"]})).effective  # fmt: skip
    found = {one.name: (one.kind, one.text) for one in arguments_of(call.drawn)}
    assert found == {
        "password": ("masked", "***"), "note": ("code", '"***"'), "keys": ("list", '["***", "x"]'),
        "deep": ("code", '{"token": ***, "a": ["***"]}'),
    }  # fmt: skip


def test_a_long_text_is_whole_in_a_box_of_its_own_and_says_how_long_it_is() -> None:
    text = "\n".join(f"line {number}\u202e" for number in range(300))
    found = drawn(text)
    assert found.kind == "block"
    assert found.text == text.replace("\u202e", "<U+202E>")
    assert found.size == f"{len(text):,} characters"


def test_a_short_list_has_its_items_apart_and_a_long_one_is_drawn_as_it_is() -> None:
    assert drawn(["lid", "12", "a, b"]).items == ("lid", '"12"', '"a, b"')
    assert drawn(list(range(25))).items == ()
    assert drawn([["lid"]]).items == ()


def test_a_text_is_read_from_the_right_if_most_of_its_letters_are() -> None:
    letter = "שלום קים,\nההזמנה יצאה היום מהמחסן ותגיע בעוד שלושה ימים. T-9"
    for text, is_rtl in (
        (letter, True), ("תודה רבה", True), ("ש Dear Kim, it is on its way", False), (f"{letter}\u202e", True),
        ("Dear Kim", False), ("ש, " + "pay bob " * 30, False), ("12 30", False),
    ):  # fmt: skip
        found = drawn(text)
        assert found.is_rtl is is_rtl, text
        assert "\u202e" not in found.text


def test_of_an_old_and_a_new_text_the_lines_that_differ_stand_in_front() -> None:
    old, new = "keep\ndrop\nend", "keep\nadd\nend"
    call = {"path": "a.py", "old_string": old, "new_string": new, "old": "x", "new": "y"}
    found = arguments_of(call, list(call))
    names = ["path", "old_string → new_string", "old_string", "new_string", "old", "new"]
    assert [one.name for one in found] == names  # of one line each, both are read at once
    assert [(line.sign, str(line.text)) for line in found[1].lines] == [
        (" ", "keep"), ("-", "drop"), ("+", "add"), (" ", "end"),
    ]  # fmt: skip
    assert [one.key for one in found] == ["f0", "", "f1", "f2", "f3", "f4"]
    assert len(arguments_of({"old": "x\n" * 300, "new": "y\n" * 300})) == 2  # too long to be compared for each page


def test_of_an_address_the_host_is_marked_that_it_leads_to() -> None:
    for text, host in (
        ("https://shop.example/orders?id=5", "shop.example"),
        ("https://bank.example@evil.example:8443/pay", "evil.example"),
        ("https://bank.example:x@evil.example#bank.example", "evil.example"),
        ("https://evil.example?at=x@bank.example", "evil.example"),
        ("kim@example.org", "example.org"),
        ("https://bank.example\\@evil.example", None),  # browsers do not agree
        ("https://a@b@c.example", "c.example"),
        ("mailto", None),
        ("see https://shop.example", None),
    ):
        found = re.findall(r'<span class="h-host">([^<]*)</span>', draw("to", text).code or "")
        assert found == ([] if host is None else [host]), text


def _order(note: str = "") -> dict[str, Any]:
    lines = [{"sku": f"part-{at:03}", "name": "a long name of a part", "count": at} for at in range(12)]
    return {"customer": "C-5", "address": {"city": "Bern", "note": note}, "lines": lines}


def test_a_nested_value_is_a_tree_whose_long_parts_are_folded_and_say_how_many_values_they_hold() -> None:
    (found,) = arguments_of({"order": _order()})
    assert (found.kind, found.size) == ("tree", "39 values")
    customer, address, lines = found.branches
    assert (customer.label + customer.text, customer.parts) == ('"customer": "C-5"', ())
    assert (address.label + address.text, address.parts) == ('"address": {"city": "Bern", "note": ""}', ())
    assert (lines.label, lines.text, lines.size, lines.is_open) == ('"lines": ', "[…]", "36 values", False)
    assert [re.findall(r"part-\d+", part.text) for part in lines.parts] == [[f"part-{at:03}"] for at in range(12)]
    (small,) = arguments_of({"order": {"a": ["x" * 50] * 2, "b": 1}})
    assert (small.kind, small.branches) == ("block", ())  # of eight lines at most, all is in sight


@pytest.mark.parametrize(
    ("path", "words"),
    [("amount", "amount"), ("items[0].count", "items, row 1, count"), ("grid[1][12]", "grid, row 2, row 13"),
     ('order["unit price"].net', 'order, "unit price", net'), ('"a.b[0]"[2]', '"a.b[0]", row 3'),
     ('x["say \\"]\\" now"]', 'x, "say \\"]\\" now"'), ("tags (new 1)", "tags (new 1)"), ("a..b", "a..b"), ("", "")],
)  # fmt: skip
def test_a_path_is_written_in_words(path: str, words: str) -> None:
    assert in_words(path) == words


def test_a_part_that_was_changed_is_not_folded() -> None:
    for path, is_open in (("order.lines[3].count", True), ("order.lines", True), ("order.lines2", False)):
        (found,) = arguments_of({"order": _order()}, changes=[path])
        assert found.branches[2].is_open is is_open, path


def test_what_is_too_deep_or_too_long_for_a_tree_is_drawn_whole() -> None:
    deep: Any = _order()
    for _ in range(9):
        deep = {"in": deep, "by": list(range(200))}
    long: Any = [{"sku": "x" * 60}] * 300
    for value in (deep, long):
        (found,) = arguments_of({"order": value})
        whole, waiting = found.text if not found.branches else "", list(found.branches)
        while waiting:
            one = waiting.pop()
            waiting += one.parts
            whole += one.text
        assert whole.count("sku") == (12 if value is deep else 300)


def test_an_amount_and_its_currency_are_one() -> None:
    def rows(**given: Any) -> list[tuple[str, str, str, str]]:
        call = stands(held(taking(dict.fromkeys(given, Any), []), *given.values())).effective
        return [(one.name, one.unit, one.text, one.key) for one in arguments_of(call.drawn, list(given))]

    assert rows(to="kim", currency="EUR", amount=12500.5) == [
        ("to", "", "kim", "f0"), ("amount", "currency", "12,500.50 EUR", "f2 f1"),
    ]  # fmt: skip
    assert rows(amount=Decimal("3.10"), fee_total=1, order_currency="CHF") == [
        ("amount", "order_currency", "3.10 CHF", "f0 f2"), ("fee_total", "order_currency", "1 CHF", "f1 f2"),
    ]  # fmt: skip
    call = stands(held(taking({"amount": float, "currency": str}, []), 5.0, "EUR")).effective
    for known, key in (["amount"], "f0 -"), (["currency"], "- f0"):  # which of the two has no field stays known
        assert [one.key for one in arguments_of(call.drawn, known)] == [key]
    for apart in (
        {"amount": 5, "currency": "euro"}, {"amount": 5, "currency": "EUR", "to_currency": "USD"},
        {"amount_usd": 5, "currency": "EUR"}, {"amount": "5", "currency": "EUR"}, {"count": 5, "currency": "EUR"},
        {"amount": 5, "currency": "<U"}, {"amount": True, "currency": "EUR"},
    ):  # fmt: skip
        assert [unit for _, unit, _, _ in rows(**apart)] == [""] * len(apart), apart
