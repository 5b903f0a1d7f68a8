"""A reviewer changes the call before agreeing to it: merged or whole, typed or seen, secrets or not.

What an approval is bound to is in `test_binding`. The invariant: what the reviewer did not change stays what it really
is, to the byte and the type, and what was changed fits the function's own types.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, SecretStr

import sayso
from sayso import audit, errors
from sayso.model import canonical
from sayso.model.ids import call_digest
from sayso.model.request import Decision, State
from sayso.model.reviewer import Identity
from sayso.stores.base import Store
from sayso.view import full_text
from sayso.view.as_json import request_document
from tests.conftest import Clock
from tests.support.acting import forked, held, running
from tests.support.ids import stable


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Line:
    sku: str
    count: int = 1


class Account(BaseModel):
    user: str
    password: str
    pin: SecretStr


@pytest.fixture
def ran() -> list[dict[str, Any]]:
    return []


DEFAULTS: dict[str, Any] = {
    "count": 1, "price": Decimal("1.50"), "when": date(2026, 1, 31), "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "wait": timedelta(hours=1), "size": Size.SMALL, "lines": (Line("x"),), "path": Path("/a"), "key": UUID(int=1),
    "raw": b"\x00", "extra": None,
}  # fmt: skip


@pytest.fixture
def ship(store: Store, ran: list[dict[str, Any]]) -> Callable[..., None]:
    d = DEFAULTS

    @sayso.gate(wait="raise")
    def ship(
        to: str, count: int = d["count"], price: Decimal = d["price"], when: date = d["when"], at: datetime = d["at"],
        wait: timedelta = d["wait"], size: Size = d["size"], lines: tuple[Line, ...] = d["lines"],
        path: Path = d["path"], key: UUID = d["key"], raw: bytes = d["raw"], extra: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        ran.append({name: value for name, value in locals().items() if name == "to" or name in DEFAULTS})

    return ship


EDITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"count": 2}, {"count": 2}),
    ({"count": "2"}, {"count": 2}),
    ({"price": "2.00"}, {"price": Decimal("2.00")}),
    ({"price": Decimal("1.5")}, {"price": Decimal("1.5")}),
    ({"when": "2026-02-01"}, {"when": date(2026, 2, 1)}),
    ({"at": "2026-02-01T00:00:00+01:00"}, {"at": datetime.fromisoformat("2026-02-01T00:00:00+01:00")}),
    ({"wait": "PT2H"}, {"wait": timedelta(hours=2)}),
    ({"size": "LARGE"}, {"size": Size.LARGE}),
    ({"size": Size.LARGE}, {"size": Size.LARGE}),
    ({"lines": [{"sku": "y", "count": 3}]}, {"lines": (Line("y", 3),)}),
    ({"lines": (Line("y", 3), Line("z"))}, {"lines": (Line("y", 3), Line("z"))}),
    ({"lines": []}, {"lines": ()}),
    ({"path": "/b"}, {"path": Path("/b")}),
    ({"key": str(UUID(int=2))}, {"key": UUID(int=2)}),
    ({"raw": "/w=="}, {"raw": b"\xff"}),
    ({"extra": {"a": [1, 1.0, True, "1", None]}}, {"extra": {"a": [1, 1.0, True, "1", None]}}),
    ({"to": "bob", "count": 0}, {"to": "bob", "count": 0}),
]


def typed(values: dict[str, Any]) -> dict[str, tuple[type, Any]]:
    return {name: (type(value), value) for name, value in values.items()}


@pytest.mark.parametrize(("changes", "becomes"), EDITS, ids=stable)
def test_changes_are_merged_over_the_call(
    ship: Callable[..., None], ran: list[dict[str, Any]], changes: dict[str, Any], becomes: dict[str, Any]
) -> None:
    request_id = held(ship, "alice").confirmation_id
    request = sayso.Review().approve(request_id, by="ada", changes=changes)
    assert request.edited is not None
    assert request.call.arguments["to"] == "alice"
    ship("alice")
    assert typed(ran[0]) == typed({"to": "alice", **DEFAULTS, **becomes})


def test_arguments_as_they_are_shown_are_no_change(ship: Callable[..., None], ran: list[dict[str, Any]]) -> None:
    pause = held(ship, "alice")
    assert pause.tool_call is not None
    request = sayso.Review().approve(pause.confirmation_id, by="ada", arguments=pause.tool_call.args)
    assert (request.edited, request.decision is not None and request.decision.edited) == (None, False)
    ship("alice")
    assert typed(ran[0]) == typed({"to": "alice", **DEFAULTS})


def test_one_shown_argument_changed_leaves_the_others_exactly_as_they_were(
    ship: Callable[..., None], ran: list[dict[str, Any]]
) -> None:
    pause = held(ship, "alice", extra={"pair": (1, 2), "raw": b"x", "when": date(2026, 1, 1)})
    assert pause.tool_call is not None
    shown = {**pause.tool_call.args, "count": 9}
    sayso.Review().approve(pause.confirmation_id, by="ada", arguments=shown)
    ship("alice", extra={"pair": (1, 2), "raw": b"x", "when": date(2026, 1, 1)})
    assert ran[0]["count"] == 9
    assert ran[0]["extra"] == {"pair": (1, 2), "raw": b"x", "when": date(2026, 1, 1)}
    assert ran[0]["price"] == Decimal("1.50")


def test_arguments_replace_the_whole_call(ship: Callable[..., None], ran: list[dict[str, Any]]) -> None:
    request_id = held(ship, "alice", 5, size=Size.LARGE).confirmation_id
    sayso.Review().approve(request_id, by="ada", arguments={"to": "bob"})
    ship("alice", 5, size=Size.LARGE)
    assert typed(ran[0]) == typed({"to": "bob", **DEFAULTS})


@pytest.mark.parametrize(
    "edit",
    [
        {"changes": {"nosuch": 1}}, {"changes": {"count": None}}, {"changes": {"count": 1.5}}, {"changes": {"size": 3}},
        {"changes": {"count": True}}, {"arguments": {"to": "x", "count": False}},
        {"changes": {"lines": [{"sku": "x", "price": 1}]}}, {"changes": {"extra": {1, 2}}},
        {"changes": {"to": "\udcff"}},
        {"changes": {"at": "yesterday"}}, {"changes": {"raw": "not base64!"}}, {"changes": {"extra": float("nan")}},
        {"arguments": {}}, {"arguments": {"count": 2}}, {"arguments": {"to": "x", "nosuch": None}},
        {"arguments": {"to": "x"}, "changes": {"count": 2}}, {"changes": {"extra": {"a": object()}}},
    ],
    ids=stable,
)  # fmt: skip
def test_edit_that_does_not_fit_decides_nothing_and_says_where(
    store: Store, ship: Callable[..., None], edit: dict[str, Any]
) -> None:
    request_id = held(ship, "alice").confirmation_id
    before = store.get(request_id)
    with pytest.raises(errors.InvalidChangesError, match="nothing was decided") as caught:
        sayso.Review().approve(request_id, by="ada", **edit)
    assert caught.value.problems
    assert store.get(request_id) == before
    assert len(store.journal(request_id=request_id)) == 1


def test_what_the_program_gave_in_another_type_stays_when_something_else_is_edited(
    ship: Callable[..., None], ran: list[dict[str, Any]]
) -> None:
    request_id = held(ship, "alice", count=True).confirmation_id
    sayso.Review().approve(request_id, by="ada", changes={"to": "bob"})
    ship("alice", count=True)
    assert (ran[0]["to"], ran[0]["count"]) == ("bob", True)
    assert type(ran[0]["count"]) is bool


@pytest.mark.parametrize(
    ("kind", "value"), [(int, True), (float, False), (bool, 1), (bool, "0"), (bool, 0.0)], ids=stable
)
def test_a_bool_is_no_answer_to_a_number_nor_a_number_to_yes_or_no(store: Store, kind: type, value: object) -> None:
    request_id = held(sayso.ask, "Well?", type=kind, wait="raise").confirmation_id
    with pytest.raises(errors.InvalidAnswerError):
        sayso.Review().answer(request_id, value, by="ada")
    assert store.get(request_id).state is State.PENDING


def test_question_takes_no_changed_arguments(store: Store) -> None:
    request_id = held(sayso.ask, "Go on?", type=bool, wait="raise").confirmation_id
    with pytest.raises(errors.WrongKindError):
        sayso.Review().approve(request_id, by="ada", changes={"answer": True})
    assert store.get(request_id).state is State.PENDING


# -- secrets in an edit ----------------------------------------------------------------------------------------------

REAL: dict[str, Any] = {
    "user": "u1", "password": "hunter2-real",
    "account": Account(user="u2", password="nested-real", pin=SecretStr("9876-real")),
    "hosts": [{"name": "h1", "token": "t1-real"}, {"name": "h2", "token": "t2-real"}],
}  # fmt: skip


@pytest.fixture
def login(store: Store, ran: list[dict[str, Any]]) -> Callable[..., None]:
    @sayso.gate(wait="raise")
    def login(user: str, password: str, account: Account, hosts: list[dict[str, str]]) -> None:
        ran.append({"user": user, "password": password, "account": account, "hosts": hosts})

    return login


def test_masked_values_are_kept_when_others_are_changed(login: Callable[..., None], ran: list[dict[str, Any]]) -> None:
    request_id = held(login, **REAL).confirmation_id
    request = sayso.Review().approve(request_id, by="ada", changes={"user": "u9"})
    assert request.edited is not None
    assert request.edited.arguments["password"] == "***"
    login(**REAL)
    assert ran == [{**REAL, "user": "u9"}]


def test_masked_values_are_kept_when_the_shown_arguments_come_back_changed(
    login: Callable[..., None], ran: list[dict[str, Any]]
) -> None:
    pause = held(login, **REAL)
    assert pause.tool_call is not None
    shown = pause.tool_call.args
    assert (shown["password"], shown["account"]["password"], shown["hosts"][1]["token"]) == ("***", "***", "***")
    shown["account"]["user"] = "u9"
    shown["hosts"][1]["name"] = "h9"
    sayso.Review().approve(pause.confirmation_id, by="ada", arguments=shown)
    login(**REAL)
    assert ran[0]["password"] == "hunter2-real"
    assert ran[0]["account"] == Account(user="u9", password="nested-real", pin=SecretStr("9876-real"))
    assert ran[0]["hosts"] == [{"name": "h1", "token": "t1-real"}, {"name": "h9", "token": "t2-real"}]


def test_new_secret_is_used_and_masked_in_its_turn(login: Callable[..., None], ran: list[dict[str, Any]]) -> None:
    request_id = held(login, **REAL).confirmation_id
    request = sayso.Review().approve(request_id, by="ada", changes={"password": "new-secret"})
    assert request.edited is not None
    assert request.edited.arguments["password"] == "***"
    assert "new-secret" not in repr(request)
    login(**REAL)
    assert ran[0]["password"] == "new-secret"


def test_masked_elements_that_were_moved_are_refused(login: Callable[..., None], ran: list[dict[str, Any]]) -> None:
    pause = held(login, **REAL)
    assert pause.tool_call is not None
    moved = [pause.tool_call.args["hosts"][1], {"name": "h3", "token": "***"}]
    with pytest.raises(errors.InvalidChangesError, match="unclear which secret"):
        sayso.Review().approve(pause.confirmation_id, by="ada", changes={"hosts": moved})
    with pytest.raises(sayso.ConfirmationRequired):
        login(**REAL)
    assert ran == []


ADA, BOB = {"to": "ada", "amount": 1, "pin": "ada-real"}, {"to": "bob", "amount": 2, "pin": "bob-real"}
AT_A, AT_B = "https://u:a-real@a.test/1", "https://u:b-real@b.test/2"


@pytest.mark.parametrize(
    ("asked", "edit"),
    [
        ([ADA, BOB], [{"to": "bob", "amount": 3, "pin": "***"}, {"to": "eve", "amount": 5}]),
        ([ADA, BOB], [{"to": "bob", "amount": 3, "pin": "***"}, {"to": "ada", "amount": 9, "pin": "***"}]),
        ([ADA, BOB], [{"to": "ada", "amount": 1, "pin": "***"}, {"to": "ada", "amount": 9, "pin": "***"}]),
        ([ADA, BOB], [{"to": "eve", "amount": 5}, {"to": "ada", "amount": 2, "pin": "***"}]),
        ([AT_A, AT_B], ["https://u:***@b.test/3", "https://c.test/"]),
    ],
    ids=["one removed and one added", "both in the other order", "one copied over the other", "like both", "texts"],
)
def test_a_masked_element_that_was_moved_and_changed_takes_no_secret_of_another(
    store: Store, asked: list[Any], edit: list[Any]
) -> None:
    @sayso.gate(wait="raise")
    def pay(rows: list[Any]) -> None: ...

    request_id = held(pay, asked).confirmation_id
    with pytest.raises(errors.InvalidChangesError, match="unclear which secret"):
        sayso.Review().approve(request_id, by="ada", changes={"rows": edit})


A, B = ADA | {"pin": "***"}, BOB | {"pin": "***"}


@pytest.mark.parametrize(
    ("asked", "edit"),
    [
        ({"source": ADA, "target": BOB}, {"source": B, "target": A}),
        ({"source": {"first": ADA, "second": BOB}}, {"source": {"first": B, "second": A}}),
        ({"source": [{"first": ADA, "second": BOB}]}, {"source": [{"first": A, "second": A | {"amount": 9}}]}),
    ],
    ids=["arguments", "names", "names in a list"],
)
def test_a_masked_value_that_was_moved_to_another_name_takes_no_secret_of_it(
    store: Store, asked: dict[str, Any], edit: dict[str, Any]
) -> None:
    @sayso.gate(wait="raise")
    def pay(source: Any, target: Any = None) -> None: ...

    request_id = held(pay, **asked).confirmation_id
    with pytest.raises(errors.InvalidChangesError, match="unclear which secret"):
        sayso.Review().approve(request_id, by="ada", changes=edit)


@pytest.mark.parametrize(
    ("asked", "edit", "ran"),
    [
        (
            [ADA, BOB],
            [{"to": "ada", "amount": 9, "pin": "***"}, {"to": "bob", "amount": 9, "pin": "***"}],
            [ADA | {"amount": 9}, BOB | {"amount": 9}],
        ),
        (
            [ADA, BOB],
            [{"to": "eve", "amount": 5, "pin": "***"}, BOB | {"pin": "***"}],
            [ADA | {"to": "eve", "amount": 5}, BOB],
        ),
        ([AT_A, AT_B], ["https://u:***@a.test/3", "https://u:***@b.test/2"], ["https://u:a-real@a.test/3", AT_B]),
    ],
    ids=["both", "one", "a text"],
)
def test_a_masked_element_that_was_changed_in_place_keeps_its_secret(
    store: Store, asked: list[Any], edit: list[Any], ran: list[Any]
) -> None:
    @sayso.gate(wait="raise")
    def pay(rows: list[Any]) -> list[Any]:
        return rows

    sayso.Review().approve(held(pay, asked).confirmation_id, by="ada", changes={"rows": edit})
    assert pay(asked) == ran


def test_what_the_gates_own_redactor_hid_is_kept(store: Store, ran: list[dict[str, Any]]) -> None:
    @sayso.gate(wait="raise", redactor=lambda arguments: {"user": arguments["user"], "note": "hidden"})
    def login(user: str, note: str) -> None:
        ran.append({"user": user, "note": note})

    request_id = held(login, "u1", "the real note").confirmation_id
    request = sayso.Review().approve(request_id, by="ada", changes={"user": "u9"})
    assert request.edited is not None
    assert "real" not in str(request.edited.arguments)
    login("u1", "the real note")
    assert ran == [{"user": "u9", "note": "the real note"}]


@pytest.mark.parametrize("redact", [["patient"], {"patient"}])
def test_names_that_the_gate_masks_are_masked_in_an_edit(store: Store, redact: Any) -> None:
    @sayso.gate(wait="raise", redact=redact)
    def admit(patient: str, notes: dict[str, str]) -> None: ...

    request_id = held(admit, "the first one", {"patient": "x", "i": "seen"}).confirmation_id
    changes = {"patient": "the second one", "notes": {"patient": "y", "i": "seen", "t": "seen"}}
    request = sayso.Review().approve(request_id, by="ada", changes=changes)
    assert request.call.arguments == {"patient": "***", "notes": {"patient": "***", "i": "seen"}}
    assert request.effective.arguments == {"patient": "***", "notes": {"patient": "***", "i": "seen", "t": "seen"}}


# -- types ---------------------------------------------------------------------------------------------------------


class Limits(BaseModel):
    most: int = Field(default=5, le=10)


LIMITS = Limits()


@pytest.fixture
def paid() -> list[Any]:
    return []


@pytest.fixture
def pay(paid: list[Any]) -> Callable[..., Any]:
    @sayso.gate(wait="raise")
    def pay(amount: int, to: str) -> None:
        paid.append((amount, to))

    return pay


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
MADE_UP_EDITS = st.dictionaries(st.sampled_from(["amount", "to", "tags", "limits", "other"]), JSON_VALUES, max_size=4)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edit=MADE_UP_EDITS, whole=st.booleans())
def test_edit_runs_only_as_values_of_the_functions_types(edit: dict[str, Any], whole: bool) -> None:
    ran: list[tuple[Any, ...]] = []

    @sayso.gate(wait="raise", store="memory:")
    def pay(
        amount: Annotated[int, Field(ge=0, le=500)],
        to: str,
        tags: list[str] | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        ran.append((amount, to, tags, limits))

    review = sayso.Review("memory:")
    with sayso.run():
        request_id = held(pay, 5, "alice").confirmation_id
        try:
            request = review.approve(request_id, by="ada", **{"arguments" if whole else "changes": edit})
        except errors.InvalidChangesError:
            assert review.get(request_id).state is State.PENDING
            held(pay, 5, "alice")
            assert ran == []
            return
        pay(5, "alice")
    ((amount, to, tags, limits),) = ran
    assert type(amount) is int
    assert 0 <= amount <= 500
    assert type(to) is str
    assert tags is None or (type(tags) is list and all(type(tag) is str for tag in tags))
    assert type(limits) is Limits
    assert limits.most <= 10
    assert set(request.effective.arguments) == {"amount", "to", "tags", "limits"}


def test_edit_is_decided_by_its_own_fingerprint(store: Store, pay: Callable[..., Any], paid: list[Any]) -> None:
    request_id = held(pay, 5, "alice").confirmation_id
    request = sayso.Review().approve(request_id, by="ada", changes={"amount": 4})
    assert request.decision is not None
    assert request.decision.fingerprint == request.current_fingerprint != request.fingerprint
    pay(5, "alice")
    assert paid == [(4, "alice")]


def test_edit_is_not_the_approval_of_the_call_that_it_became(
    store: Store, pay: Callable[..., Any], paid: list[Any]
) -> None:
    request_id = held(pay, 5, "alice").confirmation_id
    sayso.Review().approve(request_id, by="ada", changes={"amount": 4})
    assert held(pay, 4, "alice").confirmation_id != request_id
    assert paid == []


EDIT = """
import json, sys, sayso
sayso.Review(sys.argv[1]).approve(sys.argv[2], by="ada", changes=json.loads(sys.argv[3]))
"""


def test_limits_of_the_types_hold_where_the_program_is_not(file_store: Store) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise")
    def pay(amount: Annotated[int, Field(multiple_of=5)], how: Annotated[str, Field(pattern="^[a-z]+$")]) -> None:
        ran.append(amount)

    request_id = held(pay, 5, "cash").confirmation_id
    for changes in ({"amount": 7}, {"how": "CASH"}):
        process = forked(EDIT, file_store.url, request_id, json.dumps(changes))
        assert "InvalidChangesError" in process.communicate(timeout=60)[1]
    running(forked(EDIT, file_store.url, request_id, '{"amount": "10"}'))
    pay(5, "cash")
    assert ran == [10]


def even(amount: int) -> int:
    if amount % 2:
        raise ValueError(f"{amount} is odd")
    return amount


def test_validators_of_the_program_have_the_last_word_on_an_edit(file_store: Store) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise")
    def pay(amount: Annotated[int, AfterValidator(even)]) -> None:
        ran.append(amount)

    request_id = held(pay, 4).confirmation_id
    with pytest.raises(errors.InvalidChangesError, match="own check"):
        sayso.Review().approve(request_id, by="ada", changes={"amount": 7})
    running(forked(EDIT, file_store.url, request_id, '{"amount": 7}'))
    assert held(pay, 4).confirmation_id == request_id, "what its types refuse goes back to the reviewer"
    after = sayso.Review().get(request_id)
    assert (after.state, after.edited, after.votes, after.decision) == (State.PENDING, None, (), None)
    assert after.returned == "amount: is refused by the program's own check"
    assert [row.event for row in audit.entries(file_store, request_id=request_id)] == ["asked", "approved", "returned"]
    assert ran == []
    sayso.Review().approve(request_id, by="bob", changes={"amount": 8})
    pay(4)
    assert ran == [8]
    assert sayso.Review().get(request_id).state is State.DONE
    again = held(pay, 4).confirmation_id
    running(forked(EDIT, file_store.url, again, '{"amount": 10}'))
    pay(4)
    assert ran == [8, 10]


def test_an_edit_that_came_back_begins_its_votes_and_its_time_anew(file_store: Store, clock: Clock) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise", quorum=2, expires="1h", approval_expires="5h")
    def pay(amount: Annotated[int, AfterValidator(even)]) -> None:
        ran.append(amount)

    request_id = held(pay, 4).confirmation_id
    store, before = file_store, sayso.Review().get(request_id)
    form = canonical.encode({"amount": 7})
    call = replace(
        before.call, form=form.text, digest=call_digest(before.call.tool, before.call.schema_digest, form[1])
    )
    for who in ("ada", "bob"):  # as a process without the validator takes it
        yes = Decision("approve", Identity("local", who), clock(), "test", None, "")
        store.decide(request_id, yes, roles=(), seen=None, edited=call if who == "ada" else None)
    clock.tick(hours=2)
    held(pay, 4)
    after = sayso.Review().get(request_id)
    assert (after.missing_votes, after.expires_at - clock()) == (2, timedelta(hours=1))
    assert "own check" in "\n".join(full_text.ask_rows(after, clock(), width=100))
    assert request_document(after)["returned"] == after.returned
    sayso.Review().approve(request_id, by="bob")
    held(pay, 4)
    sayso.Review().approve(request_id, by="ada")
    pay(4)
    assert ran == [4]
    assert audit.verify(file_store).broken == ()
