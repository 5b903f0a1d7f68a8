"""Conditions in CEL: the types of a schema count, whole numbers fit fractions, and nothing but a bool is an answer."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from sayso.model.redaction import MASK
from sayso.model.schema import Schema
from sayso.policy.condition import Condition, ConditionError, Facts, UndecidedError

pytest.importorskip("cel_expr_python")

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def refund(
    order: str, amount: float, count: int = 1, note: str | None = None, price: Decimal = Decimal(1),
    due: datetime | None = None, day: date = date(2026, 1, 1), wait: timedelta = timedelta(0),
    tags: list[str] = [], extra: dict[str, Any] | None = None,  # noqa: B006  a schema is made of it, nothing else
    *, flag: bool = False,
) -> None: ...  # fmt: skip


SCHEMA = Schema.of(refund)
NESTED = Schema.of_json({
    "type": "object",
    "properties": {
        "to": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": ["integer", "null"]}}},
        "at": {"type": "string", "format": "date-time"},
    },
})  # fmt: skip


def decide(text: str, schema: Schema | None = SCHEMA, *, run: str | None = None, **arguments: Any) -> bool:
    return Condition(text, schema, "refund").decide(Facts.of("refund", arguments, run, None, NOW))


def problem(text: str, schema: Schema | None = SCHEMA) -> tuple[int, int, str]:
    with pytest.raises(ConditionError) as caught:
        Condition(text, schema, "refund")
    return caught.value.problems[0]


@pytest.mark.parametrize(("text", "arguments"), [
    ("args.amount <= 50", {"amount": 50}),
    ("args.amount <= 50", {"amount": 49.5}),
    ("args.amount == 40 && args.count != 2.0", {"amount": 40, "count": 1}),
    ("args.amount in [40, 50]", {"amount": 40.0}),
    ("args.price <= 49.95", {"price": Decimal("49.95")}),
    ("args.due < now", {"due": NOW - timedelta(hours=1)}),
    ("args.day == timestamp('2026-01-31T00:00:00Z')", {"day": date(2026, 1, 31)}),
    ("args.wait < duration('1h')", {"wait": timedelta(minutes=59)}),
    ("'vip' in args.tags && size(args.tags) < 3", {"tags": ["vip"]}),
    ("args.note == null", {"note": None}),
    ("!has(args.note)", {"note": None}),
    ("!has(args.note)", {}),
    ("has(args.note) && args.note.startsWith('x')", {"note": "xy"}),
    ("has(\n  args.extra\n)", {"extra": {}}),
    ("has(\n  args.flag\n)", {"flag": False}),
    ("args.extra.depth < 3", {"extra": {"depth": 2}}),
    ("run == null || run == 'prod'", {}),
    ("'has(args.nothing)' != tool", {}),
])  # fmt: skip
def test_a_condition_that_holds_is_true(text: str, arguments: dict[str, Any]) -> None:
    assert decide(text, **arguments)


def test_fields_of_nested_objects_are_checked_and_read() -> None:
    assert decide("args.to.city == 'Bonn' && args.to.zip == 53111", NESTED, to={"city": "Bonn", "zip": 53111})
    assert not decide("has(args.to) && has(args.to.zip)", NESTED, to={"city": "Bonn", "zip": None})
    assert decide("args.at < now", NESTED, at="2026-01-01T00:00:00Z")
    assert (
        problem("args.to.citty == 'Bonn'", NESTED)[2] == "refund has no argument 'to.citty'; did you mean args.to.city?"
    )


def test_without_a_schema_the_arguments_are_a_map_of_anything() -> None:
    assert decide("args.amount <= 50", None, amount=40)
    assert decide("!has(args.note) && args['amount'] == 40.0", None, amount=40)


@pytest.mark.parametrize(("text", "column", "message"), [
    ("args.amount <= '50'", 13, "found no matching overload for '_<=_' applied to '(double, string)'"),
    ("true && args.amont < 3", 9, "refund has no argument 'amont'; did you mean args.amount?"),
    ("true || has(args.foo)", 9, "refund has no argument 'foo' (there are order"),
    ("amount < 3", 1, "unknown name 'amount'; a condition can use args, tool, run, agent and now"),
    ("args.amount * 2 < 3", 13, "write 2.0 for 2"),
    ("args.amount", 1, "gives double, but a condition must be true or false"),
    ("args.order == 3", 12, "found no matching overload"),
    ("args.amount <", 14, "mismatched input"),
])  # fmt: skip
def test_a_condition_that_does_not_fit_is_refused_with_its_column(text: str, column: int, message: str) -> None:
    found = problem(text)
    assert found[:2] == (1, column)
    assert message in found[2]


@pytest.mark.parametrize(("text", "arguments", "message"), [
    ("args.note == 'x'", {}, "'note' was not given; test has(args.note) first"),
    ("args.amount <= 50", {"amount": "40"}, "args.amount is not a number"),
    ("args.amount <= 50", {"amount": True}, "args.amount is not a number"),
    ("args.amount <= 50", {"amount": None}, "args.amount is null; test has(args.amount) first"),
    ("args.due < now", {"due": datetime(2026, 1, 1)}, "args.due is a time without a time zone"),  # noqa: DTZ001
    ("args.price <= 50", {"price": Decimal("50.00000000000000001")}, "more than 15 digits"),
    ("args.count < 3", {"count": 1 << 70}, "does not fit into 64 bits"),
    ("args.count / 0 == 1", {"count": 1}, "divide by zero"),
    ("args.extra.a < 3", {"extra": {"a": "x"}}, "No matching overload"),
    ("args.note < 'x'", {"note": None}, "No matching overload"),
    ("args.amount > 100", {"amount": float("nan")}, "args.amount is not a finite number"),
    ("args.amount > 100", {"amount": -float("inf")}, "args.amount is not a finite number"),
])  # fmt: skip
def test_what_gives_neither_true_nor_false_is_an_error(text: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UndecidedError, match=message.replace("(", r"\(").replace(")", r"\)")):
        decide(text, **arguments)


def test_a_value_that_is_no_bool_is_no_answer_though_the_checker_could_not_know() -> None:
    for value in (1, "yes", [1], None):
        with pytest.raises(UndecidedError):
            decide("args.flag", None, flag=value)
    assert decide("args.flag", None, flag=True)


def test_a_masked_value_is_uncertain_only_where_it_matters() -> None:
    assert not decide("args.order.startsWith('A') && args.amount < 3", order=MASK, amount=5)
    with pytest.raises(UndecidedError) as caught:
        decide("args.order.startsWith('A') && args.amount < 3", order=MASK, amount=1)
    assert caught.value.masked == ("order",)
    with pytest.raises(UndecidedError):
        decide("args.key == '***'", None, key=MASK)


def test_an_error_quotes_no_value() -> None:
    with pytest.raises(UndecidedError) as caught:
        decide("timestamp(args.order) < now", order="hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "args.many.all(a, args.many.all(b, a + b >= 0))",
        "args.many.map(a, args.many.map(b, args.many)).size() > 0",
        "[1,2,3,4,5,6,7,8,9].all(a, args.many.all(b, args.many.all(c, true)))",
        "args.name.matches('(x{1000}){1000}')",
    ],
)
def test_a_condition_that_takes_too_long_is_an_error_and_no_answer(text: str) -> None:
    with pytest.raises(UndecidedError, match=r"too many values|could not be evaluated"):
        decide(text, None, many=list(range(300)), name="x" * 1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" || ".join(["args.amount == 1"] * 20_000), "expression size exceeds codepoint limit"),
        (f"{'(' * 5_000}true{')' * 5_000}", "recursion limit exceeded. limit: 32"),
        (f"{'+'.join(['1'] * 30_000)} > 1", "Exceeded max recursion depth of 32"),
        ("\x00", "token recognition error"),
    ],
)
def test_a_condition_that_is_too_long_or_too_deep_is_refused(text: str, message: str) -> None:
    line, column, said = problem(text, None)
    assert (line, column) == (1, 1)
    assert message in said
    assert "INVALID_ARGUMENT" not in said
