"""What the forms of a request's page do: decisions, changed arguments of every type, answers, and refusals.

Forms that do not come from a page of the inbox are in `test_guard`. The invariant: what the page showed and the
reviewer changed is what runs, and a form about anything else decides nothing.
"""

from __future__ import annotations

import datetime as dt
import enum
import html
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, Field
from starlette.applications import Starlette

import sayso
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import Pay, flaky, held, payer, state_of, unknown
from tests.support.browsing import Browser, browser, fields_of, text_of


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    id: str
    total: Decimal
    due: dt.datetime
    lines: list[Line]
    api_key: str = "k-real"


naive = dt.datetime.fromisoformat
BERLIN = ZoneInfo("Europe/Berlin")
ORDER = Order(id="A-1", total=Decimal("1.10"), due=dt.datetime(2026, 3, 1, 9, tzinfo=BERLIN), lines=[Line(sku="x")])

# argument: (its type, its value, what a reviewer types, what runs then)
TYPES: dict[str, tuple[Any, Any, dict[str, str], Any]] = {
    "text": (str, "old", {"": "new"}, "new"),
    "empty": (str, "old", {"": ""}, ""),
    "long": (str, "a\nb", {"": "a\nb\nc "}, "a\nb\nc "),
    "hidden": (str, "a\u202eb\tc", {"": '"plain"'}, "plain"),
    "whole": (int, 5, {"": "7"}, 7),
    "bounded": (Annotated[float, Field(ge=0, le=500)], 320.0, {"": "80"}, 80.0),
    "exact": (Decimal, Decimal("1.10"), {"": "1.20"}, Decimal("1.20")),
    "yes": (bool, True, {"": "false"}, False),
    "choice": (Literal["fast", "slow", 3], "fast", {"": "2"}, 3),
    "colour": (Colour, Colour.RED, {"": "1"}, Colour.BLUE),
    "day": (dt.date, dt.date(2026, 1, 2), {"": "2026-01-03"}, dt.date(2026, 1, 3)),
    "moment": (dt.datetime, naive("2026-01-02T03:04"), {"": "2026-01-02T05:06"}, naive("2026-01-02T05:06")),
    "zoned": (
        dt.datetime, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), {"": "2026-01-03T00:00:00+00:00"},
        dt.datetime(2026, 1, 3, tzinfo=dt.UTC),
    ),
    "clock": (dt.time, dt.time(9, 30), {"": "10:45"}, dt.time(10, 45)),
    "texts": (list[str], ["a", "b"], {"": "a\nc\n\nd"}, ["a", "c", "d"]),
    "numbers": (list[int], [1, 2], {"": "1\n3"}, [1, 3]),
    "odd_texts": (list[str], ["a", ""], {"": '["a", "b"]'}, ["a", "b"]),
    "models": (list[Line], [Line(sku="x")], {".0.0": "y", ".0.1": "2"}, [Line(sku="y", count=2)]),
    "models_less": (list[Line], [Line(sku="x"), Line(sku="y")], {".0.way": "absent"}, [Line(sku="y")]),
    "models_more": (list[Line], [Line(sku="x")], {".2.0": "z", ".2.1": "4"}, [Line(sku="x"), Line(sku="z", count=4)]),
    "anything": (Any, {"a": [1, None]}, {"": '{"a": []}'}, {"a": []}),
    "mapping": (dict[str, int], {"a": 1, "b": 5}, {".0": "2"}, {"a": 2, "b": 5}),
    "mapping_less": (dict[str, int], {"a": 1, "b": 5}, {".0.way": "absent"}, {"b": 5}),
    "mapping_more": (dict[str, int], {"a": 1}, {".1.name": " c ", ".1.0": "3"}, {"a": 1, "c": 3}),
    "mapping_deep": (dict[str, Any], {"a": [1]}, {"": '{"a": 2}'}, {"a": 2}),
    "choices": (list[Literal["x", "y", 3]], ["x", "y"], {".0": "2"}, [3, "y"]),
    "choices_less": (list[Literal["x", "y", 3]], ["x", "y"], {".0.way": "absent"}, ["y"]),
    "choices_more": (list[Literal["x", "y", 3]], ["x", "y"], {".4": "1"}, ["x", "y", "y"]),
    "switches": (list[bool], [True, False], {".1": "true"}, [True, True]),
    "maybe": (str | None, None, {"": "x"}, "x"),
    "maybe_empty": (str | None, None, {".way": "value"}, ""),
    "maybe_null": (int | None, 5, {".way": "null"}, None),
    "either": (int | str, 5, {"": '"five"'}, "five"),
    "model": (Order, ORDER, {".0": "B-2"}, ORDER.model_copy(update={"id": "B-2"})),
}  # fmt: skip


def gated(kind: Any, ran: list[Any], **options: Any) -> Callable[..., Any]:
    def act(value: Any, other: int = 3) -> None:
        ran.append((value, other))

    act.__annotations__ = {"value": kind, "other": int, "return": None}
    return sayso.gate(wait="raise", **options)(act)


def test_a_problem_under_an_odd_key_stands_at_its_field_and_names_it_as_json(ada: Browser) -> None:
    request_id = held(gated(dict[str, int], []), {"x-y": 1, "größe z": 2}).confirmation_id
    page = ada.decide(request_id, "approve", **{"f0.0": "five"}).text
    assert re.search(r'id="f0\.0-problem"[^>]*>write a whole number', page)
    assert 'value, "x-y": write a whole number' in text_of(page)
    preview = text_of(ada.decide(request_id, "preview", **{"f0.1": "3"}).text)
    assert re.search(r'value, "größe z"\s*2 → 3', preview)


@pytest.mark.parametrize(
    ("kind", "value", "hint"),
    [(dict[str, Any] | None, {"a": 1}, "named values or nothing (null)"),
     (list[list[int]], [[1]], "list (each: list (each: whole number))"),
     (dt.datetime | None, None, "a date and time, such as 2026-03-31T14:30:00+02:00 or nothing (null)"),
     (list[Line] | None, [Line(sku="a")], "")],
)  # fmt: skip
def test_what_a_field_takes_is_said_in_words_for_people(ada: Browser, kind: Any, value: Any, hint: str) -> None:
    page = ada.get(f"/r/{held(gated(kind, []), value).confirmation_id}").text
    assert re.findall(r'id="f0-hint">([^<]+)<', page) == ([hint] if hint else [])
    if type(None) in get_args(kind):
        assert re.findall(r"<option [^>]*>([^<]+)</option>", page.partition('id="f0-way"')[2])[:2] == [
            "given", "nothing (null)"
        ]  # fmt: skip


def test_a_number_with_a_comma_is_refused_and_not_read_as_another_number(ada: Browser, store: Store) -> None:
    request_id = held(gated(float, []), 4900.0).confirmation_id
    page = ada.get(f"/r/{request_id}").text
    field = re.search(r'<input [^>]*id="f0"[^>]*>', page)
    assert field is not None
    assert 'type="text" inputmode="decimal"' in field[0]  # `type="number"` drops a comma without a word
    for typed in ("49,00", "4,900", "4.900,00", "4'900,5"):
        answer = ada.decide(request_id, "approve", f0=typed)
        assert "a point before its decimals" in text_of(answer.text), typed
        assert store.get(request_id).state is State.PENDING
    assert ada.decide(request_id, "approve", f0="49.00").status_code == 200
    edited = store.get(request_id).edited
    assert edited is not None
    assert edited.arguments["value"] == 49.0


@pytest.mark.parametrize("kind", [float, Decimal])
def test_a_number_that_the_pages_language_writes_for_another_one_is_refused(
    ada: Browser, store: Store, kind: type[Any]
) -> None:
    request_id = held(gated(kind, []), kind("1.125")).confirmation_id
    ada.headers["accept-language"] = "de"  # whose cards write 1.125,00
    answer = ada.decide(request_id, "approve", f0="1.250")
    assert "1250 oder 1.2500" in text_of(answer.text)
    assert store.get(request_id).state is State.PENDING
    assert ada.decide(request_id, "approve", f0="1.2500").status_code == 200
    edited = store.get(request_id).edited
    assert edited is not None
    assert Decimal(str(edited.arguments["value"])) == Decimal("1.25")
    same = held(gated(kind, []), kind("2.125")).confirmation_id
    assert ada.decide(same, "approve", f0="2.125").status_code == 200, "as it was shown"
    ada.headers["accept-language"] = "en"
    other = held(gated(kind, []), kind("3.125")).confirmation_id
    assert ada.decide(other, "approve", f0="1.250").status_code == 200


@pytest.mark.parametrize("kind", [float, Decimal])
def test_a_decimal_comma_counts_on_a_page_that_writes_one_and_only_where_it_can_be_nothing_else(
    ada: Browser, store: Store, kind: type[Any]
) -> None:
    act = gated(kind, [])
    unclear = held(act, kind("7")).confirmation_id
    for language, given in (
        ("de", ("12,500", "1.250", "1.250.000", "1,250.5", "1,2,5", "1 250,5", ",5", "5,")), ("en", ("1250,5",))
    ):  # fmt: skip
        ada.headers["accept-language"] = language
        for typed in given:
            assert ada.decide(unclear, "approve", f0=typed).status_code == 422, typed
    ada.headers["accept-language"] = "de"
    for at, (typed, value) in enumerate(
        [("1250,5", "1250.5"), ("12.500,50", "12500.5"), ("0,125", "0.125"), ("-1250,125", "-1250.125")]
    ):
        request_id = held(act, kind(at)).confirmation_id
        assert ada.decide(request_id, "approve", f0=typed).status_code == 200, typed
        edited = store.get(request_id).edited
        assert edited is not None
        assert Decimal(str(edited.arguments["value"])) == Decimal(value)


def test_a_mask_in_json_says_that_it_stays_and_stays(ada: Browser) -> None:
    ran: list[Any] = []
    login = gated(Any, ran)
    real = {"user": "kim", "password": "hunter22"}
    request_id = held(login, real).confirmation_id
    page = ada.get(f"/r/{request_id}").text
    assert "*** is a masked value; leave it as it is" in text_of(page)
    box = html.unescape(re.search(r'<textarea id="f0"[^>]*>([^<]*)<', page)[1])  # type: ignore[index]
    assert json.loads(box) == {"user": "kim", "password": "***"}
    renamed = ada.decide(request_id, "approve", f0=box.replace('"password"', '"passwd"'))
    assert "unclear which secret *** stands for" in text_of(renamed.text)
    assert ada.decide(request_id, "approve", f0=box.replace("kim", "bob")).status_code == 200
    login(real)
    assert [value for value, *_ in ran] == [{**real, "user": "bob"}]


@pytest.mark.parametrize("name", TYPES)
def test_what_a_reviewer_writes_runs_with_its_type(ada: Browser, name: str) -> None:
    kind, value, typed, wanted = TYPES[name]
    ran: list[Any] = []
    act = gated(kind, ran)
    request_id = held(act, value).confirmation_id
    changed = {f"f0{part}": text for part, text in typed.items()}
    answer = ada.decide(request_id, "approve", **changed)
    assert answer.status_code == 200, text_of(answer.text)
    assert sayso.Review().get(request_id).edited is not None
    act(value)
    assert ran == [(wanted, 3)]
    assert type(ran[0][0]) is type(wanted)


@pytest.mark.parametrize("name", TYPES)
def test_what_a_reviewer_leaves_alone_stays_to_the_byte(ada: Browser, name: str) -> None:
    kind, value, _, _ = TYPES[name]
    ran: list[Any] = []
    act = gated(kind, ran)
    request_id = held(act, value).confirmation_id
    before = sayso.Review().get(request_id).call.form
    assert ada.decide(request_id, "approve", f1="4").status_code == 200
    edited = sayso.Review().get(request_id).edited
    assert edited is not None
    assert edited.form == before.replace('"other":3', '"other":4')
    act(value)
    assert ran == [(value, 4)]


def test_what_is_added_to_a_dict_needs_a_new_name_and_a_value(ada: Browser) -> None:
    ran: list[Any] = []
    act = gated(dict[str, str], ran)
    request_id = held(act, {"a": "1", "password": "hunter2"}).confirmation_id
    for sent, why in (
        ({"f0.2.name": "a", "f0.2.0": "x"}, "needs a name that is not used yet"),
        ({"f0.2.0": "x"}, "needs a name that is not used yet"),
        ({"f0.2.name": "c"}, "the new argument c needs a value"),
    ):
        refused = ada.decide(request_id, "approve", **sent)
        assert (refused.status_code, why in text_of(refused.text)) == (422, True), sent
    assert "hunter2" not in refused.text
    assert ada.decide(request_id, "approve", **{"f0.2.name": "c", "f0.2.0": "2"}).status_code == 200
    act({"a": "1", "password": "hunter2"})
    assert ran == [({"a": "1", "password": "hunter2", "c": "2"}, 3)]


def test_a_row_of_a_list_of_objects_that_does_not_fit_is_named_and_nothing_is_decided(ada: Browser) -> None:
    request_id = held(gated(list[Line], []), [Line(sku="x")]).confirmation_id
    page = ada.get(f"/r/{request_id}").text
    assert page.count("Add a row") == 3
    assert '<details class="add">' in page
    for sent, why in (
        ({"f0.0.1": "many"}, "value, row 1, count: write a whole number"),
        ({"f0.1.1": "4"}, "value, row 2, sku: is missing"),
    ):
        refused = ada.decide(request_id, "approve", **sent)
        assert (refused.status_code, why in text_of(refused.text)) == (422, True), text_of(refused.text)
        if "f0.1.1" in sent:
            assert '<details class="add" open>' in refused.text
    assert state_of(request_id) is State.PENDING


def test_rows_with_masked_values_keep_them(ada: Browser) -> None:
    class User(BaseModel):
        name: str
        password: str

    given = [User(name="kim", password="hunter22"), User(name="lee", password="swordfish")]
    for typed, wanted in (
        ({"f0.1.0": "bob"}, [("kim", "hunter22"), ("bob", "swordfish")]),
        ({"f0.0.way": "absent"}, [("lee", "swordfish")]),
    ):
        sayso.clear_all_confirmations()
        ran: list[Any] = []
        act = gated(list[User], ran)
        request_id = held(act, given).confirmation_id
        assert "hunter22" not in ada.get(f"/r/{request_id}").text
        assert ada.decide(request_id, "approve", **typed).status_code == 200
        act(given)
        assert [(one.name, one.password) for one in ran[0][0]] == wanted


def test_a_list_of_objects_inside_of_an_added_row_has_rows(ada: Browser) -> None:
    class Box(BaseModel):
        name: str
        lines: list[Line]

    ran: list[Any] = []
    act = gated(list[Box], ran)
    given = [Box(name="a", lines=[Line(sku="x")])]
    request_id = held(act, given).confirmation_id
    new = {"f0.1.0": "b", "f0.1.1.0.0": "y", "f0.1.1.1.0": "z", "f0.1.1.1.1": "4", "f0.2.0": "c"}
    assert ada.decide(request_id, "approve", **new).status_code == 200
    act(given)
    lines = [Line(sku="y"), Line(sku="z", count=4)]
    assert ran == [([*given, Box(name="b", lines=lines), Box(name="c", lines=[])], 3)]


def test_a_question_for_a_list_of_objects_is_answered_by_rows_and_not_with_nothing(ada: Browser) -> None:
    request_id = asked(list[Line])
    empty = ada.decide(request_id, "answer")
    assert (empty.status_code, "write an answer first" in text_of(empty.text)) == (422, True)
    assert ada.decide(request_id, "answer", **{"f0.1.0": "b", "f0.1.1": "7"}).status_code == 200
    assert sayso.Review().get(request_id).answer == [{"sku": "b", "count": 7}]


def test_a_list_in_a_list_in_an_added_row_is_json(ada: Browser) -> None:
    class Node(BaseModel):
        name: str
        parts: list[Node] = []

    Node.model_rebuild(_types_namespace={"Node": Node})
    request_id = held(gated(list[Node], []), [Node(name="a", parts=[Node(name="b")])]).confirmation_id
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    assert fields["f0.0.1.0.0"] == "b"
    assert fields["f0.1.1.0.0"] == ""  # of a row that is added
    assert fields["f0.1.1.0.1"] == ""  # a list there again
    assert len([name for name in fields if name.startswith("f0")]) < 80


def test_a_question_for_several_choices_is_answered_row_by_row(ada: Browser) -> None:
    request_id = asked(list[Literal["x", "y", "z"]])
    assert ada.decide(request_id, "answer", **{"f0.0": "2", "f0.2": "0"}).status_code == 200
    assert sayso.Review().get(request_id).answer == ["z", "x"]


@pytest.mark.parametrize("kind", [list[Literal["x", "y"]], list[str], list[bool]])
def test_an_empty_list_is_an_answer_only_if_the_person_says_so(ada: Browser, kind: Any) -> None:
    request_id = asked(kind)
    unclear = "give at least one, or tick “None (an empty list)”, but not both"
    value = {list[str]: {"f0": "x"}, list[bool]: {"f0.0": "true"}}.get(kind, {"f0.0": "0"})
    assert "None (an empty list)" in text_of(ada.get(f"/r/{request_id}").text)
    for typed in ({}, {"f0.none": "yes", **value}):
        answer = ada.decide(request_id, "answer", **typed)
        assert (answer.status_code, unclear in text_of(answer.text)) == (422, True)
        assert state_of(request_id) is State.PENDING
    assert ada.decide(request_id, "answer", **{"f0.none": "yes"}).status_code == 200
    assert sayso.Review().get(request_id).answer == []


def test_a_list_that_needs_more_than_there_are_choices_has_rows_and_no_way_to_say_none(ada: Browser) -> None:
    request_id = asked(Annotated[list[Literal["x", "y"]], Field(min_length=3)])
    page = ada.get(f"/r/{request_id}").text
    assert ('type="checkbox" name="f0' in page, "None (an empty list)" in page) == (False, False)
    empty = ada.decide(request_id, "answer", **{"f0.none": "yes"})
    assert (empty.status_code, "write an answer first" in text_of(empty.text)) == (422, True)
    assert ada.decide(request_id, "answer", **{"f0.0": "1", "f0.1": "0", "f0.2": "1"}).status_code == 200
    assert sayso.Review().get(request_id).answer == ["y", "x", "y"]


def test_an_untouched_form_is_a_plain_approval(ada: Browser) -> None:
    for kind, value, _, _ in TYPES.values():
        sayso.clear_all_confirmations()
        request_id = held(gated(kind, []), value).confirmation_id
        assert ada.decide(request_id, "approve").status_code == 200
        request = sayso.Review().get(request_id)
        assert (request.state, request.edited) == (State.APPROVED, None), kind


def test_the_other_fields_of_an_object_stay_as_they_really_are(ada: Browser) -> None:
    ran: list[Any] = []
    act = gated(Order, ran)
    request_id = held(act, ORDER).confirmation_id
    page = ada.get(f"/r/{request_id}").text
    assert "k-real" not in page
    assert ada.decide(request_id, "approve", **{"f0.1": "2.00"}).status_code == 200
    act(ORDER)
    ((order, _),) = ran
    assert (order.total, order.api_key) == (Decimal("2.00"), "k-real")
    assert order.due == ORDER.due
    assert str(order.due.tzinfo) == "Europe/Berlin"


def test_what_nobody_gave_counts_as_given_only_once_it_is_changed(ada: Browser) -> None:
    ran: list[Any] = []
    act = gated(Order, ran)
    given = Order(id="A-1", total=Decimal(1), due=naive("2026-01-02T03:04"), lines=[Line(sku="x"), Line(sku="y")])
    request_id = held(act, given).confirmation_id
    assert ada.decide(request_id, "approve", **{"f0.0": "B-2", "f0.3.1.1": "4"}).status_code == 200
    act(given)
    ((order, _),) = ran
    assert order.id == "B-2"
    assert order.model_fields_set == {"id", "total", "due", "lines"}
    assert [line.model_fields_set for line in order.lines] == [{"sku"}, {"sku", "count"}]


def test_an_argument_that_is_left_out_has_its_default(ada: Browser) -> None:
    ran: list[Any] = []
    act = gated(str, ran)
    request_id = held(act, "x", other=9).confirmation_id
    assert "left out (then 3)" in text_of(ada.get(f"/r/{request_id}").text)
    assert ada.decide(request_id, "approve", **{"f1.way": "absent"}).status_code == 200
    act("x", other=9)
    assert ran == [("x", 3)]


def test_secrets_are_masked_and_cannot_be_changed(ada: Browser) -> None:
    ran: list[Any] = []

    @sayso.gate(wait="raise")
    def login(user: str, password: str) -> None:
        ran.append((user, password))

    request_id = held(login, "kim", "hunter2").confirmation_id
    page = ada.get(f"/r/{request_id}").text
    assert "hunter2" not in page
    assert "f1" not in fields_of(page)
    assert ada.decide(request_id, "approve", f0="lee", f1="mine").status_code == 200
    login("kim", "hunter2")
    assert ran == [("lee", "hunter2")]


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("whole", "7.5", "write a whole number"), ("whole", "", "write a whole number"),
        ("bounded", "501", "must be at most 500"),
        ("day", "tomorrow", "must be a date, such as"), ("choice", "9", "choose one"), ("colour", "", "choose one"),
        ("yes", "perhaps", "true or false"), ("anything", "{", "not valid JSON"),
        ("anything", '{"a":1,"a":2}', "duplicate key"),
        ("anything", "NaN", "not valid JSON"), ("numbers", "1\nx", "write a"),
    ],
)  # fmt: skip
def test_a_change_that_does_not_fit_decides_nothing_and_says_where(
    ada: Browser, name: str, typed: str, words: str
) -> None:
    kind, value, _, _ = TYPES[name]
    request_id = held(gated(kind, []), value).confirmation_id
    answer = ada.decide(request_id, "approve", f0=typed, note="my note")
    assert answer.status_code == 422
    assert words in text_of(answer.text)
    assert 'class="problem"' in answer.text
    top = answer.text.partition('<div class="refusal"')[2].partition("</div>")[0]
    assert words in text_of(top)
    assert all(f'id="{key}"' in answer.text for key in re.findall(r'href="#([^"]+)"', top))
    fields = fields_of(answer.text)
    assert fields["note"] == "my note"
    if name not in {"choice", "colour", "yes"}:
        assert fields["f0"] == typed
    assert state_of(request_id) is State.PENDING


def test_a_value_beside_null_is_not_guessed_at(ada: Browser) -> None:
    request_id = held(gated(int | None, []), 5).confirmation_id
    answer = ada.decide(request_id, "approve", **{"f0": "6", "f0.way": "null"})
    assert answer.status_code == 422
    assert "choose one of them" in text_of(answer.text)
    assert state_of(request_id) is State.PENDING


def test_what_changes_can_be_seen_before_anything_is_decided(ada: Browser, pay: Pay, store: Store) -> None:
    request_id = held(pay, 5).confirmation_id
    before = list(store.journal())
    answer = ada.decide(request_id, "preview", f0="8")
    assert answer.status_code == 200
    assert "Approve with 1 change" in answer.text
    assert fields_of(answer.text)["f0"] == "8"
    assert "amount" in answer.text.partition('class="diff"')[2]
    assert list(store.journal()) == before
    assert ada.decide(request_id, "preview", f0="x").status_code == 422


def test_a_long_part_of_a_nested_value_is_folded_until_it_is_changed(ada: Browser) -> None:
    act, order = gated(Any, []), {"to": "kim", "lines": [{"sku": f"part-{at}" * 5, "count": at} for at in range(20)]}
    request_id = held(act, order).confirmation_id
    folded = "<details><summary><code>&#34;lines&#34;: […]</code> <small>40 values</small></summary>"
    card = ada.get(f"/r/{request_id}").text.partition('id="call"')[2].partition("</dl>")[0]
    assert folded in card
    assert all(f"part-{at}part" in card for at in range(20))
    order["lines"][3]["count"] = 7  # type: ignore[index]
    assert ada.decide(request_id, "approve", f0=json.dumps(order)).status_code == 200
    card = ada.get(f"/r/{request_id}").text.partition('id="call"')[2].partition("</dl>")[0]
    assert folded.replace("<details>", "<details open>") in card


def test_enter_in_a_field_only_previews(ada: Browser, pay: Pay) -> None:
    page = (
        ada.get(f"/r/{held(pay, 5).confirmation_id}")
        .text.partition("data-decide ")[2]
        .partition("Edit the arguments")[2]
    )
    assert page.partition("<button")[2].startswith(' class="secondary" formnovalidate>See what changes')
    assert "/preview" in ada.get(f"/r/{held(pay, 6).confirmation_id}").text.partition("data-decide ")[0][-200:]


# -- the other decisions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "state"), [("reject", State.REJECTED), ("feedback", State.FEEDBACK), ("cancel", State.CANCELLED)]
)
def test_a_no_reaches_the_program_with_the_note(ada: Browser, pay: Pay, verb: str, state: State) -> None:
    request_id = held(pay, 5).confirmation_id
    assert ada.decide(request_id, verb, note="not\nnow").status_code == 200
    request = sayso.Review().get(request_id)
    assert request.state is state
    assert request.decision is not None
    assert (request.decision.comment, request.decision.channel) == ("not\nnow", "web")
    assert request.decision.by.subject == "ada"
    with pytest.raises(sayso.ConfirmationRejected, match="not\nnow"):
        pay(5)


def test_a_list_that_got_shorter_is_one_change_that_shows_the_new_list(ada: Browser) -> None:
    @sayso.gate(wait="raise")
    def send(lines: list[Line], tags: list[str], api_keys: list[str]) -> None: ...

    request_id = held(send, [Line(sku=sku) for sku in "abc"], ["x", "y"], ["k1", "k2"]).confirmation_id
    typed = {"f0.0.way": "absent", "f1": "x"}
    shown = 'lines- Line(sku="a", count=1)  Line(sku="b", count=1)  Line(sku="c", count=1)tags  "x"- "y"'
    preview = ada.decide(request_id, "preview", **typed).text
    assert "Approve with 2 changes" in text_of(preview)
    assert shown in text_of(preview.partition("data-previewed")[2])
    page = ada.decide(request_id, "approve", **typed).text
    assert shown in text_of(page.partition('id="changed"')[2])


def test_what_is_sent_back_says_first_that_it_leaves_an_edit_out_and_offers_it_as_text(
    ada: Browser, store: Store
) -> None:
    act, typed = gated(dict[str, Any], []), {"f0": '{"a": [3], "b": []}'}
    requests = [held(act, {"a": [number]}).confirmation_id for number in (1, 2, 4)]
    for request_id, edits, note, sent in (
        (requests[0], {}, "less", None), (requests[0], {"edits": "left out"}, "less", "less"),
        (requests[1], {"edits": "added"}, "less", "less\nvalue.a[0]: 2 → 3\nvalue.b: (nothing) → []"),
        (requests[2], {"edits": "added"}, "", "value.a[0]: 4 → 3\nvalue.b: (nothing) → []"),
    ):  # fmt: skip
        answer = ada.decide(request_id, "feedback", **typed, **edits, note=note)
        decision = store.get(request_id).decision
        assert (None if decision is None else decision.comment) == sent
        if sent is None:
            assert answer.status_code == 422
            page = text_of(answer.text)
            assert "“Send back” sends only your note, without your changes." in page
            assert "Add my changes to the note, as text" in page
            assert fields_of(answer.text)["f0"] == typed["f0"]
    assert ada.decide(held(gated(int, []), 5).confirmation_id, "feedback", note="less").status_code == 200


def test_feedback_without_words_decides_nothing(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    answer = ada.decide(request_id, "feedback", f0="8", note=" ")
    assert answer.status_code == 422
    assert fields_of(answer.text)["f0"] == "8"
    assert state_of(request_id) is State.PENDING


ANSWERS: list[tuple[Any, dict[str, str], Any]] = [
    (str, {"f0": "Lyon"}, "Lyon"),
    (bool, {"f0": "false"}, False),
    (int, {"f0": "7"}, 7),
    (Literal["a", "b"], {"f0": "1"}, "b"),
    (int | str, {"f0": "seven"}, "seven"),
    (Line, {"f0.0": "x", "f0.1": "2", "f0.1.way": "value"}, {"sku": "x", "count": 2}),
    (Line, {"f0.0": "x"}, {"sku": "x", "count": 1}),
    (list[int], {"f0": "1\n2"}, [1, 2]),
    (int | None, {"f0.way": "null"}, None),
    (str, {"f0": " a\nb"}, " a\nb"),
    (Annotated[str, Field(min_length=0)], {"f0": ""}, ""),
]


def asked(kind: Any) -> str:
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        sayso.ask("Which?", type=kind, wait="raise")
    return caught.value.confirmation_id


@pytest.mark.parametrize(("kind", "typed", "wanted"), ANSWERS)
def test_an_answer_has_the_type_of_its_question(ada: Browser, kind: Any, typed: dict[str, str], wanted: Any) -> None:
    request_id = asked(kind)
    answer = ada.decide(request_id, "answer", **typed)
    assert answer.status_code == 200, text_of(answer.text)
    request = sayso.Review().get(request_id)
    assert (request.state, request.answer) == (State.ANSWERED, wanted)


def test_a_missing_answer_is_asked_for_in_the_words_of_the_buttons(ada: Browser) -> None:
    request_id = asked(bool)
    assert "answer: choose yes or no" in text_of(ada.decide(request_id, "answer").text)
    held_id = held(gated(bool, []), True).confirmation_id
    assert "value: choose true or false" in text_of(ada.decide(held_id, "approve", f0="x").text)
    ada.headers["accept-language"] = "de"
    assert "wählen Sie ja oder nein" in text_of(ada.decide(request_id, "answer").text)


OPEN = [
    (int, {"f0": "x"}),
    (bool, {"f0": ""}),
    (int, {}),
    (Line, {}),
    (str, {}),
    (str, {"f0": " \n"}),
    (Any, {"f0": ""}),
]


@pytest.mark.parametrize(("kind", "typed"), OPEN)
def test_an_answer_that_does_not_fit_leaves_the_question_open(ada: Browser, kind: Any, typed: dict[str, str]) -> None:
    request_id = asked(kind)
    answer = ada.decide(request_id, "answer", **typed)
    assert answer.status_code == 422
    assert 'class="problem"' in answer.text
    assert state_of(request_id) is State.PENDING


def test_claim_release_and_extend(app: Starlette, ada: Browser, pay: Pay, clock: Clock) -> None:
    request_id = held(pay, 5).confirmation_id
    bob = browser(app, "bob")
    assert ada.decide(request_id, "claim").status_code == 200
    assert "claimed by ada" in text_of(bob.get("/").text)
    refused = bob.decide(request_id, "approve")
    assert refused.status_code == 409
    assert "ada claimed it, or was assigned it" in text_of(refused.text)
    assert bob.decide(request_id, "release").status_code == 409
    assert bob.decide(request_id, "release", force="yes").status_code == 200
    assert bob.decide(request_id, "extend", span="7d").status_code == 200
    assert sayso.Review().get(request_id).expires_at == clock.at + dt.timedelta(days=7)
    assert bob.decide(request_id, "extend", span="soon").status_code == 422
    assert bob.decide(request_id, "approve").status_code == 200


def test_a_claim_leaves_half_of_an_approval_by_two_people_to_others(app: Starlette, ada: Browser) -> None:
    @sayso.gate(wait="raise", quorum=2)
    def wire(amount: int) -> None: ...

    request_id, bob = held(wire, 5).confirmation_id, browser(app, "bob")
    ada.decide(request_id, "claim")
    page = bob.get(f"/r/{request_id}").text
    buttons = {verb: re.search(rf'formaction="/r/{request_id}/{verb}"[^>]*>', page) for verb in ("approve", "reject")}
    assert {verb: "disabled" in found[0] for verb, found in buttons.items() if found} == {
        "approve": False, "reject": True,
    }  # fmt: skip
    assert "You can approve it as it is" in text_of(page)
    assert "data-edit" not in page
    assert bob.decide(request_id, "reject").status_code == 409
    assert bob.decide(request_id, "approve").status_code == 200
    page = browser(app, "carol").get(f"/r/{request_id}").text
    assert "You can approve it as it is" not in text_of(page), "what is missing is ada's"
    assert "ada claimed it" in text_of(page)
    assert ada.decide(request_id, "approve").status_code == 200
    assert state_of(request_id) is State.APPROVED


def test_no_page_ends_a_request_earlier(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    ends = sayso.Review().get(request_id).expires_at
    assert 'value="1h"' not in ada.get(f"/r/{request_id}").text.partition('id="span"')[2].partition("</select>")[0]
    assert ada.decide(request_id, "extend", span="1h").status_code == 422
    assert sayso.Review().get(request_id).expires_at == ends


def test_a_decision_leads_to_the_next_request_that_waits(ada: Browser, pay: Pay, clock: Clock) -> None:
    first, second, third = (held(pay, amount).confirmation_id for amount in (1, 2, 3))
    page = ada.get(f"/r/{second}?in=tool%3Dpay").text
    assert f'name="then" value="{third}"' in page
    then = ada.decide(second, "approve", then=third, **{"in": "tool=pay"})
    assert (then.url.path, then.url.params["done"], then.url.params["in"]) == (f"/r/{third}", second, "tool=pay")
    assert "approved by ada" in text_of(then.text)
    sayso.Review().reject(first, by="bob")
    assert ada.decide(third, "reject", then=first).url.path == f"/r/{third}", "the next one does not wait any more"


@pytest.mark.parametrize("then", ["rq_0", "", "//evil.example", "https://evil.example/"])
def test_a_decision_leads_nowhere_else(ada: Browser, pay: Pay, then: str) -> None:
    request_id = held(pay, 5).confirmation_id
    answer = ada.decide(request_id, "reject", then=then, **{"in": "//evil.example?x=1&q="})
    assert (answer.url.host, answer.url.path) == ("localhost", f"/r/{request_id}")


def test_a_vote_that_is_not_enough_leads_on_and_is_seen_in_the_list(app: Starlette, ada: Browser) -> None:
    shared = payer(quorum=2)
    first, second = held(shared, 1).confirmation_id, held(shared, 2).confirmation_id
    then = ada.decide(first, "approve", then=second)
    assert then.url.path == f"/r/{second}"
    assert "your approval is recorded; 1 more reviewer must approve" in text_of(then.text)
    for address in ("/?q=approved:me", "/?q=pay"):
        assert "1 of 2 approvals" in text_of(ada.get(address).text)
    assert "1 of 2 approvals" in text_of(browser(app, "bob").get("/").text)


def test_an_unknown_outcome_has_its_ways_out(ada: Browser, store: Store) -> None:
    for said, state in [("yes", State.DONE), ("no", State.FAILED)]:
        request_id = unknown(flaky([], [KeyboardInterrupt()]))
        page = text_of(ada.get(f"/r/{request_id}").text)
        for words in (
            "Started, outcome unknown",
            "It happened",
            "It did not happen: a new request is needed",
            "Not known yet",
        ):
            assert words in page
        assert ada.decide(request_id, "resolve").status_code == 422
        assert ada.decide(request_id, "resolve", happened=said, note="looked").status_code == 200
        assert state_of(request_id) is state
        sayso.clear_all_confirmations()


def test_what_was_found_out_about_a_start_is_not_recorded_of_a_later_one(ada: Browser) -> None:
    act = flaky([], [KeyboardInterrupt(), KeyboardInterrupt()], idempotent=True)
    request_id = unknown(act)
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    with pytest.raises(KeyboardInterrupt):
        act(1)
    sent = {name: fields[name] for name in ("csrf", "seen", "start")}
    late = ada.submit(f"/r/{request_id}/resolve", **sent, happened="no")
    assert late.status_code == 412
    assert "It has changed since you opened it. Nothing was decided" in text_of(late.text)
    assert state_of(request_id) is State.UNKNOWN
    assert "(start 2), OUTCOME UNKNOWN" in text_of(late.text)
    assert ada.decide(request_id, "resolve", happened="no").status_code == 200


# -- too late, or about something else -------------------------------------------------------------------------


def test_of_two_tabs_the_second_is_told_what_the_first_did(ada: Browser, pay: Pay, clock: Clock) -> None:
    request_id = held(pay, 5).confirmation_id
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    assert ada.decide(request_id, "reject").status_code == 200
    late = ada.submit(f"/r/{request_id}/approve", csrf=fields["csrf"], seen=fields["seen"])
    assert late.status_code == 409
    assert "It is rejected already, by ada (web, just now). Nothing was changed." in text_of(late.text)
    assert "data-decide " not in late.text
    assert state_of(request_id) is State.REJECTED


@pytest.mark.parametrize("verb", ["approve", "reject", "feedback", "cancel", "claim"])
def test_a_stale_form_decides_nothing(app: Starlette, ada: Browser, clock: Clock, verb: str) -> None:
    pay = payer(quorum=2)
    request_id = held(pay, 5).confirmation_id
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    assert browser(app, "bob").decide(request_id, "approve", f0="900").status_code == 200
    before = sayso.Review().get(request_id)
    stale = ada.submit(f"/r/{request_id}/{verb}", csrf=fields["csrf"], seen=fields["seen"], f0="5", note="x")
    assert stale.status_code == 412
    assert "has changed since you opened it" in text_of(stale.text)
    assert "900" in text_of(stale.text)
    assert fields_of(stale.text)["seen"] == before.current_fingerprint != fields["seen"]
    assert sayso.Review().get(request_id) == before


def test_an_expired_request_is_not_decided(ada: Browser, clock: Clock) -> None:
    request_id = held(payer(expires="1h"), 5).confirmation_id
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    clock.tick(hours=1)
    late = ada.submit(f"/r/{request_id}/approve", csrf=fields["csrf"], seen=fields["seen"])
    assert late.status_code == 409
    assert "expired" in text_of(late.text)
    assert state_of(request_id) is State.EXPIRED


def test_a_form_without_a_fingerprint_or_for_a_beginning_of_an_id_decides_nothing(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    assert ada.submit(f"/r/{request_id}/approve", csrf=fields["csrf"]).status_code == 400
    assert ada.submit(f"/r/{request_id[:9]}/approve", csrf=fields["csrf"], seen=fields["seen"]).status_code == 400
    assert ada.submit(f"/r/{request_id}/run", csrf=fields["csrf"], seen=fields["seen"]).status_code == 404
    assert state_of(request_id) is State.PENDING


def test_who_may_not_decide_is_told_why(app: Starlette, store: Store, clock: Clock) -> None:
    request_id = held(payer(roles={"finance"}), 5).confirmation_id
    refused = browser(app, "ada").decide(request_id, "approve")
    assert refused.status_code == 403
    assert "you need the role finance" in text_of(refused.text)
    assert f"/r/{request_id}/claim" not in browser(app, "ada").get(f"/r/{request_id}").text
    assert f"/r/{request_id}/claim" in browser(app, "kim", roles={"finance"}).get(f"/r/{request_id}").text
    with sayso.run("order", on_behalf_of=Reviewer("kim")):
        own = held(payer(), 5).confirmation_id
    assert browser(app, "kim").decide(own, "approve").status_code == 403
    assert browser(app, "lee", roles={"finance"}).decide(request_id, "approve").status_code == 200


# -- several at once -------------------------------------------------------------------------------------------


def items_of(text: str) -> list[str]:
    return [part.partition('"')[0] for part in text.split('name="item" value="')[1:]]


@pytest.mark.parametrize(("verb", "state"), [("approve", State.APPROVED), ("reject", State.REJECTED)])
def test_several_are_decided_after_each_was_shown_in_full(ada: Browser, verb: str, state: State, pay: Pay) -> None:
    ids = [held(pay, amount, to="x" * 3000 + f"tail{amount}").confirmation_id for amount in (1, 2)]
    page = ada.get(f"/bulk?verb={verb}&" + "&".join(f"id={one}" for one in ids))
    assert page.status_code == 200
    assert all(f"tail{amount}" in page.text.replace("\n", "") for amount in (1, 2))
    assert {state_of(one) for one in ids} == {State.PENDING}
    data = {"csrf": fields_of(page.text)["csrf"], "verb": verb, "item": items_of(page.text)}
    done = ada.post("/bulk", data=data, headers={"origin": "http://localhost:8600"})
    assert f"2 of 2 {state}" in text_of(done.text)
    assert {state_of(one) for one in ids} == {state}


def test_several_leave_out_what_changed_since_the_page_was_shown(app: Starlette, ada: Browser, store: Store) -> None:
    pay = payer(quorum=2)
    ids = [held(pay, amount).confirmation_id for amount in (1, 2, 3)]
    page = ada.get("/bulk?verb=approve&" + "&".join(f"id={one}" for one in ids)).text
    assert browser(app, "bob").decide(ids[0], "approve", f0="900").status_code == 200
    assert browser(app, "bob").decide(ids[1], "reject").status_code == 200
    data = {"csrf": fields_of(page)["csrf"], "verb": "approve", "item": items_of(page)}
    done = text_of(ada.post("/bulk", data=data, headers={"origin": "http://localhost:8600"}).text)
    assert "1 of 3 approved" in done
    assert "1 more reviewer must approve" in done
    assert "has changed since you opened it" in done
    assert "It is rejected already, by" in done
    votes = [[vote.by.subject for vote in store.get(one).votes] for one in ids]
    assert votes == [["bob"], [], ["ada"]]


def test_questions_are_left_out_of_an_approval(ada: Browser, pay: Pay) -> None:
    question = asked(str)
    page = ada.get(f"/bulk?verb=approve&id={question}&id={held(pay, 5).confirmation_id}").text
    assert "Approve 1 request?" in text_of(page)
    assert "is a question and needs an answer" in text_of(page)
    assert len(items_of(page)) == 1


@pytest.mark.parametrize(
    "query",
    ["verb=approve", "verb=cancel&id=rq_1", "verb=approve&" + "&".join(f"id={n}" for n in range(1_001))],
)
def test_several_are_between_one_and_a_thousand_to_approve_or_reject(ada: Browser, query: str) -> None:
    assert ada.get(f"/bulk?{query}").status_code == 400


def test_a_high_risk_is_approved_only_by_who_says_that_they_are_sure(ada: Browser, store: Store) -> None:
    for risk, sent, state in (
        ("high", {}, State.PENDING), ("critical", {"sure": "no"}, State.PENDING), ("medium", {}, State.APPROVED),
        ("high", {"sure": "yes"}, State.APPROVED), ("High ", {}, State.PENDING), ("severe", {}, State.PENDING),
        (" Low", {}, State.APPROVED), (None, {}, State.APPROVED),
    ):  # fmt: skip
        for verb, more in (("approve", {}), ("grant", {"count": "2", "lasts": "1h"}), ("bulk", {})):
            request = store.ask(sample_call(f"{risk} {sent} {verb}", {"amount": 5}, risk=risk))
            form = {**fields_of(ada.get(f"/r/{request.id}").text), **more, **sent, "note": "as agreed"}
            if verb == "bulk":
                one = {"item": f"{request.id}:{request.fingerprint}", "verb": "approve", "csrf": form["csrf"], **sent}
                ada.submit("/bulk", **one)
            else:
                page = ada.submit(f"/r/{request.id}/{verb}", **form).text
                if state is State.PENDING:  # whose script did not come ticks the box now, and writes nothing twice
                    assert "<noscript><label" not in page
                    assert 'name="sure"' in page
                    assert "as agreed</textarea>" in page
            assert store.get(request.id).state is state, (risk, sent, verb)
        page = ada.get(f"/r/{request.id}").text
        assert ('name="sure"' in page) == (state is State.PENDING), risk  # for browsers without scripts
        if state is State.PENDING:  # what nobody has to be sure of leaves the dialog, and what is folded, as they are
            page = ada.submit(f"/r/{request.id}/feedback", **{**fields_of(page), "count": "5", "note": ""}).text
            assert "write in the note" in page
            assert "<noscript><label" in page
            assert "data-grant open" not in page


def test_enter_in_a_form_that_decides_presses_no_button_that_does(ada: Browser) -> None:
    @sayso.gate(wait="raise")
    def wipe_all() -> None: ...

    pending, lost = held(wipe_all).confirmation_id, unknown(flaky([], [KeyboardInterrupt()]))
    for path in (f"/r/{pending}", f"/r/{lost}", f"/bulk?id={pending}"):
        forms = [form for form in ada.get(path).text.split("<form ")[1:] if "data-decides" in form]
        first = [re.search("<button[^>]*>", form) for form in forms]
        assert [one and one[0] for one in first] == ['<button hidden formmethod="dialog" formnovalidate>'], path
