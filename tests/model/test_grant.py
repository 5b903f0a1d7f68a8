"""What a grant and a budget say of a call, apart from any store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from sayso import clock, errors
from sayso.model.grant import Budget, Grant
from sayso.model.request import Request
from sayso.testing import sample_call

HOUR = timedelta(hours=1)


def grant_of(arguments: dict[str, Any], **terms: Any) -> Grant:
    request, now = sample_call(None, arguments), clock.now()
    return Grant.of(request, request.call, count=1, until=now + HOUR, now=now, **terms)


def fits(grant: Grant, arguments: dict[str, Any]) -> bool:
    return grant.lacks(sample_call(None, arguments)) is None


def test_the_number_of_a_customer_is_no_amount() -> None:
    grant = grant_of({"customer_id": 4711, "orderId": 5, "amount": 30})
    assert fits(grant, {"customer_id": 4711, "orderId": 5, "amount": 1})
    assert not fits(grant, {"customer_id": 4710, "orderId": 5, "amount": 1})
    assert not fits(grant, {"customer_id": 4711, "orderId": 4, "amount": 1})


@pytest.mark.parametrize(
    "name",
    ["id", "orderId", "orderID", "accountNumber", "userid", "pid", "uid", "order_id", "order-id", "ref", "customer"],
)
def test_the_last_part_of_a_path_says_whether_it_is_an_id(name: str) -> None:
    for before, after in (({name: 4711}, {name: 12}), ({"it": {name: 4711}}, {"it": {name: 12}})):
        grant = grant_of(before)
        assert fits(grant, before)
        assert not fits(grant, after)


def test_an_amount_inside_of_an_order_is_no_id() -> None:
    for name in ("amount", "total", "paid", "valid", "totalUSD"):
        assert fits(grant_of({"order": {name: 30}}), {"order": {name: 5}}), name


def test_fields_inside_of_fields_are_looked_at() -> None:
    before = {"order": {"total": 30, "currency": "EUR", "lines": [1, 2]}}
    grant = grant_of(before)
    assert sorted(grant.conditions) == ["order.currency", "order.lines", "order.total"]
    assert fits(grant, {"order": {"total": 5, "currency": "EUR", "lines": [1, 2]}})
    for order in (
        {"total": 5, "currency": "USD", "lines": [1, 2]}, {"total": 5, "currency": "EUR", "lines": [1]},
        {"total": 5, "currency": "EUR", "lines": [1, 2], "rush": True}, {"total": 5, "currency": "EUR"}, 5,
    ):  # fmt: skip
        assert not fits(grant, {"order": order}), order
    assert fits(grant_of(before, without=["order"]), {"order": {"anything": 1}})


def test_a_dict_whose_keys_look_like_paths_is_one_field() -> None:
    grant = grant_of({"data": {"a.b": 5}})
    assert list(grant.conditions) == ["data"]
    assert not fits(grant, {"data": {"a.b": 4}})
    assert not fits(grant, {"data": {"a": {"b": 5}}})


def test_decimals_are_numbers_and_negative_numbers_are_kept_equal() -> None:
    assert fits(grant_of({"amount": Decimal("10.50")}), {"amount": Decimal("10.5")})
    assert not fits(grant_of({"amount": Decimal("10.50")}), {"amount": Decimal("10.51")})
    assert not fits(grant_of({"amount": -5}), {"amount": -6})
    assert not fits(grant_of({"amount": -5}), {"amount": 0})
    assert not fits(grant_of({"amount": 5}, exactly=["amount"]), {"amount": 4})


DUE = datetime(2026, 1, 31, 10, tzinfo=UTC)
BEFORE: dict[str, Any] = {
    "amount": 30, "currency": "EUR", "unit": "cents", "due": DUE, "lines": [{"price": 5}], "note": None,
    "fee": Decimal(2), "back": -5, "ratio": 0.5, "is_test": True,
}  # fmt: skip
NEARLY: list[tuple[str, Any]] = [
    ("amount", "30"), ("amount", "5"), ("amount", -1), ("amount", 30.000000001), ("amount", Decimal("30.0000000001")),
    ("amount", Decimal("NaN")), ("amount", Decimal("Infinity")), ("amount", float("nan")), ("amount", float("inf")),
    ("amount", True), ("amount", None), ("amount", [5]), ("amount", {"value": 5}), ("amount", {"$decimal": "5"}),
    ("amount", b"5"), ("amount", 10**400), ("amount", ...), ("amount", timedelta(5)), ("amount", "٣"),
    ("fee", Decimal("2.01")), ("fee", "1"), ("fee", Decimal("-0.01")), ("fee", Decimal("sNaN")),
    ("currency", "USD"), ("currency", "eur"), ("currency", "EUR "), ("currency", "\u0415UR"), ("currency", ...),
    ("unit", "euros"), ("unit", None), ("note", ...), ("note", ""), ("note", "x"), ("tip", 1), ("tip", None),
    ("due", DUE.astimezone(timezone(timedelta(hours=1)))), ("due", DUE.replace(tzinfo=None)), ("due", DUE.isoformat()),
    ("due", DUE.replace(tzinfo=timezone(timedelta(hours=5)))), ("due", DUE - timedelta(1)),
    ("lines", [{"price": 4}]), ("lines", []), ("lines", [{"price": 5}] * 2), ("lines", ({"price": 5},)),
    ("lines", [{"price": 5, "rush": True}]), ("back", -4), ("back", -6), ("back", 5), ("back", 0),
    ("ratio", "0.1"), ("ratio", 0.51), ("is_test", False), ("is_test", 1), ("is_test", "true"),
]  # fmt: skip


def test_nothing_fits_that_is_wider_than_what_the_reviewer_saw() -> None:
    grant, wider = grant_of(BEFORE), list[Any]()
    for name, value in NEARLY:
        arguments = {**BEFORE, name: value}
        if value is ...:
            del arguments[name]
        try:
            request = sample_call(None, arguments)
        except errors.ArgumentError:
            continue  # it cannot be asked at all
        # As if the tool took anything, so that the types are not what refuses it.
        request = replace(request, subject=replace(request.call, schema_digest=grant.schema_digest))
        if grant.lacks(request) not in {f"{name} differs", f"{name} is new"}:
            wider.append((name, value, grant.lacks(request)))
    assert wider == []
    for name, value in (("amount", 0), ("amount", 30.0), ("amount", Decimal("29.99")), ("ratio", 0), ("fee", 1)):
        request = sample_call(None, {**BEFORE, name: value})
        assert grant.lacks(replace(request, subject=replace(request.call, schema_digest=grant.schema_digest))) is None


def test_a_bound_that_is_no_number_is_refused() -> None:
    for bound in ("5", -1, True, None, float("nan"), Decimal("Infinity"), [5], 30.01):
        with pytest.raises(errors.GrantRefusedError):
            grant_of({"amount": 30}, at_most={"amount": bound})


def test_a_call_that_cannot_be_told_field_by_field_fits_only_as_a_whole() -> None:
    whole = {"$filter": "id eq 1", "table": "scratch"}
    assert fits(grant_of(whole), whole)
    assert not fits(grant_of(whole), {**whole, "table": "customers"})
    assert not fits(grant_of({}), {"a.b": 1, "table": "customers"})


def test_a_grant_for_one_place_says_nothing_of_another() -> None:
    def asked(context: dict[str, Any] | None) -> Request:
        return sample_call(None, {"table": "x"}, context=context)

    now, test = clock.now(), {"server": "staging", "tenant": {"id": 7}, "this call": {"equal calls before": 1}}
    request = asked(test)
    grant = Grant.of(request, request.call, count=1, until=now + HOUR, now=now)
    assert 'context:server is "staging"' in grant.lines()
    for fitting in (test, {**test, "this call": {"equal calls before": 2}}, {"server": "staging", "tenant": {"id": 7}}):
        assert grant.lacks(asked(fitting)) is None
    others = [
        None, {}, {"server": "production", "tenant": {"id": 7}}, {"server": "staging", "tenant": {"id": 6}},
        {"server": "staging"}, {**test, "region": "eu"}, {"server": "staging", "tenant": {"id": 7.0}},
    ]  # fmt: skip
    assert [other for other in others if grant.lacks(asked(other)) is None] == []
    wider = Grant.of(request, request.call, count=1, until=now + HOUR, now=now, without=["context:tenant"])
    assert wider.lacks(asked({"server": "staging", "tenant": {"id": 6}})) is None
    assert wider.lacks(asked({"server": "production", "tenant": {"id": 6}})) is not None


def test_a_hidden_fact_of_a_context_is_never_the_same() -> None:
    request, now = sample_call(None, {"table": "x"}, context={"tenant key": "***"}), clock.now()
    assert Grant.of(request, request.call, count=1, until=now + HOUR, now=now).lacks(request) is not None
    by_hand = Grant.of(request, request.call, count=1, until=now + HOUR, now=now, without=["context:tenant key"])
    assert by_hand.lacks(request) is None


def test_no_argument_is_taken_for_a_fact_of_the_context() -> None:
    request, now = sample_call(None, {"context:server": "staging"}, context={"server": "staging"}), clock.now()
    grant = Grant.of(request, request.call, count=1, until=now + HOUR, now=now, without=["context:server"])
    other = sample_call(None, {"context:server": "production"}, context={"server": "staging"})
    assert grant.lacks(other) is not None


def test_a_grant_is_of_exactly_one_version_of_the_tool() -> None:
    grant, request = grant_of({"amount": 5}), sample_call(None, {"amount": 5})
    changed: Request = replace(request, subject=replace(request.call, schema_digest="0" * 64))
    assert grant.lacks(request) is None
    assert grant.lacks(changed) == "the tool has changed since"


def test_a_grant_comes_back_from_its_record_equal() -> None:
    grant = grant_of({"amount": 5, "password": "x"}, without=["amount"], comment="ok", here=True)
    assert Grant.from_body(grant.id, grant.body()) == grant
    with pytest.raises(errors.StoreCorruptError):
        Grant.from_body(grant.id, {**grant.body(), "until": "soon"})


@pytest.mark.parametrize(
    ("text", "path", "span", "per"),
    [
        ("sum(args.amount) <= 1000 per 24h per agent", "amount", timedelta(hours=24), "agent"),
        ("sum( args.order.total )<=10.5 per 7d", "order.total", timedelta(days=7), None),
        ("count() <= 20 per 1h per run", None, HOUR, "run"),
    ],
)
def test_a_budget_is_read(text: str, path: str | None, span: timedelta, per: str | None) -> None:
    budget = Budget(text)
    assert (budget.path, budget.span, budget.per) == (path, span, per)


def test_what_says_no_budget_is_refused() -> None:
    endings = ("", "< 5 per 1h", "<= 5", "<= -1 per 1h", "<= 5 per 1h per day", "<= 5 per soon")
    for text in ("", "sum(amount) <= 5 per 1h", *(f"count() {ending}" for ending in endings)):
        with pytest.raises(errors.ConfigError):
            Budget(text)
