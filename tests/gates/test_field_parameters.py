"""Parameters described by pydantic's `Field(...)`: required, default, bounds, description and alias count everywhere.

As a default and in `Annotated`; in `gate`, `confirm_first`, `tool` and `Tool`; in the schema, the form, an edit and
the call. The invariant: no function is ever called with a `Field` in the place of a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, Field, Strict, StrictInt

import sayso
from sayso import errors
from sayso.model.edit import schema_of
from sayso.model.schema import SchemaError
from sayso.server.pages.edits import edit_of
from sayso.server.pages.forms import fields_for
from sayso.view.full_text import kinds_of
from tests.support.acting import held

RAN: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    sayso.configure(store="memory:")
    RAN.clear()


def pay(
    amount: float = Field(gt=0, le=100, description="How much, in euro."),
    to: str = Field(...),
    copies: int = Field(default=3),
    tags: list[str] = Field(default_factory=list),  # noqa: B008  that is how it is written
    sender: str = Field(default="me", alias="from"),
) -> str:
    RAN.append({"amount": amount, "to": to, "copies": copies, "tags": tags, "sender": sender})
    return "paid"


def pay_annotated(
    amount: Annotated[float, Field(gt=0, le=100, description="How much, in euro.")],
    to: Annotated[str, Field()],
    copies: Annotated[int, Field(default=3)],
    tags: Annotated[list[str], Field(default_factory=list)],
    sender: Annotated[str, Field(alias="from")] = "me",
) -> str:
    RAN.append({"amount": amount, "to": to, "copies": copies, "tags": tags, "sender": sender})
    return "paid"


FUNCTIONS = {"as the default": pay, "in Annotated": pay_annotated}
written = pytest.mark.parametrize("written", FUNCTIONS)


def gated(function: Callable[..., Any]) -> Callable[..., Any]:
    return sayso.gate(function, wait="raise")


def as_tool(function: Callable[..., Any]) -> Callable[..., Any]:
    return sayso.tool(function, requires_approval=True).call


HELD: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "gate": gated,
    "confirm_first": sayso.confirm_first,
    "tool": as_tool,
    "Tool": lambda function: sayso.Tool(function, name="pay", requires_approval=True).call,
}
FREE: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "gate that is off": lambda function: sayso.gate(function, when=False),
    "gate with a rule": lambda function: sayso.gate(function, when=lambda copies: copies > 50),
    "tool": lambda function: sayso.tool(function).call,
    "Tool with a rule": lambda function: sayso.Tool(function, requires_approval=lambda copies: copies > 50).call,
    "async gate": lambda function: sayso.gate(_async_of(function), when=lambda copies: copies > 50),
    "async gate that is off": lambda function: sayso.gate(_async_of(function), when=False),
}


def _async_of(function: Callable[..., Any]) -> Any:
    if function is pay:

        async def apay(
            amount: float = Field(gt=0, le=100),
            to: str = Field(...),
            copies: int = Field(default=3),
            tags: list[str] = Field(default_factory=list),  # noqa: B008  that is how it is written
            sender: str = Field(default="me", alias="from"),
        ) -> str:
            return pay(amount, to, copies, tags, sender)

        return apay

    async def apay_annotated(
        amount: Annotated[float, Field(gt=0, le=100)],
        to: Annotated[str, Field()],
        copies: Annotated[int, Field(default=3)],
        tags: Annotated[list[str], Field(default_factory=list)],
        sender: Annotated[str, Field(alias="from")] = "me",
    ) -> str:
        return pay(amount, to, copies, tags, sender)

    return apay_annotated


def result(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    made = call(*args, **kwargs)
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


WHOLE = {"amount": 5, "to": "ada", "copies": 3, "tags": [], "sender": "me"}


# -- calls that wait -------------------------------------------------------------------------------------------------


@written
@pytest.mark.parametrize("way", HELD)
def test_a_held_call_has_the_defaults_of_its_author(way: str, written: str) -> None:
    call = HELD[way](FUNCTIONS[written])
    signal = held(call, 5, "ada")
    assert signal.tool_call is not None
    assert signal.tool_call.args == WHOLE
    sayso.Review().approve(signal.confirmation_id, by="ada")
    assert call(5, "ada") == "paid"
    assert RAN == [WHOLE]


@written
@pytest.mark.parametrize("way", HELD)
def test_what_is_out_of_bounds_is_not_even_asked(way: str, written: str) -> None:
    call = HELD[way](FUNCTIONS[written])
    for amount in (5000, 0, -1):
        with pytest.raises((errors.ArgumentError, SchemaError), match="amount"):
            call(amount, "ada")
    assert sayso.Review().list().requests == ()
    assert RAN == []


@written
@pytest.mark.parametrize("way", HELD)
def test_what_must_be_given_must_be_given(way: str, written: str) -> None:
    with pytest.raises((TypeError, SchemaError), match="to"):
        HELD[way](FUNCTIONS[written])(5)
    assert sayso.Review().list().requests == ()


@written
@pytest.mark.parametrize("way", HELD)
def test_an_alias_is_another_name_of_the_argument(way: str, written: str) -> None:
    call = HELD[way](FUNCTIONS[written])
    first = held(call, 5, "ada", **{"from": "bob"})
    assert first.tool_call is not None
    assert first.tool_call.args == {**WHOLE, "sender": "bob"}
    assert held(call, 5, "ada", sender="bob").confirmation_id == first.confirmation_id
    with pytest.raises((TypeError, SchemaError), match="from"):
        call(5, "ada", sender="bob", **{"from": "eve"})


@written
@pytest.mark.parametrize("way", HELD)
def test_an_edit_keeps_the_bounds_and_takes_the_alias(way: str, written: str) -> None:
    call = HELD[way](FUNCTIONS[written])
    request_id = held(call, 5, "ada").confirmation_id
    with pytest.raises(errors.InvalidChangesError, match="amount"):
        sayso.Review().approve(request_id, changes={"amount": 5000}, by="ada")
    sayso.Review().approve(request_id, changes={"amount": 6, "from": "bob"}, by="ada")
    assert call(5, "ada") == "paid"
    assert RAN == [{**WHOLE, "amount": 6, "sender": "bob"}]


@written
def test_an_edit_of_all_arguments_may_leave_out_what_has_a_default(written: str) -> None:
    call = gated(FUNCTIONS[written])
    request_id = held(call, 5, "ada", 9, ["x"], "eve").confirmation_id
    with pytest.raises(errors.InvalidChangesError, match="to: Field required"):
        sayso.Review().approve(request_id, arguments={"amount": 5}, by="ada")
    sayso.Review().approve(request_id, arguments={"amount": 5, "to": "ada"}, by="ada")
    call(5, "ada", 9, ["x"], "eve")
    assert RAN == [WHOLE]


# -- calls that nobody is asked about --------------------------------------------------------------------------------


@written
@pytest.mark.parametrize("way", FREE)
def test_a_call_that_is_let_through_has_the_defaults_and_the_alias(way: str, written: str) -> None:
    call = FREE[way](FUNCTIONS[written])
    assert result(call, 5, to="ada") == "paid"
    assert result(call, 5, "ada", **{"from": "bob"}) == "paid"
    assert RAN == [WHOLE, {**WHOLE, "sender": "bob"}]
    assert RAN[0]["tags"] is not RAN[1]["tags"]


@written
@pytest.mark.parametrize("way", FREE)
def test_a_bound_counts_for_a_call_that_is_let_through(way: str, written: str) -> None:
    call = FREE[way](FUNCTIONS[written])
    with pytest.raises((errors.ArgumentError, SchemaError), match="amount"):
        result(call, 5000, "ada")
    with pytest.raises((TypeError, SchemaError), match="to"):
        result(call, 5)
    assert RAN == []


def test_a_run_keeps_bounds_and_defaults_as_well() -> None:
    tool = sayso.Tool(pay, name="pay")
    assert tool(amount=5, to="ada", **{"from": "bob"}).run().output == "paid"
    assert RAN == [{**WHOLE, "sender": "bob"}]
    for wrong in ({"amount": 5000, "to": "ada"}, {"amount": 5}):
        assert tool(**wrong).run().status.code == "error"
    flow = sayso.Workflow(name="w").step(pay)
    assert flow(amount=6, to="ada").run().output == {"pay": "paid"}
    assert flow(amount=6).run().status.code == "error"
    assert flow(amount=6000, to="ada").run().status.code == "error"
    assert [each["amount"] for each in RAN] == [5, 6]


def test_bounds_stand_in_annotated_types_and_within_other_types_too() -> None:
    def act(sizes: list[Annotated[int, Field(ge=1)]], rate: Annotated[float, Field(le=1)] | None = None) -> None:
        RAN.append({"sizes": sizes, "rate": rate})

    free = sayso.gate(act, when=False)
    free([1, 2])
    for args in (([0],), ([1], 2.0)):
        with pytest.raises(errors.ArgumentError):
            free(*args)
    assert RAN == [{"sizes": [1, 2], "rate": None}]


def test_a_field_that_must_be_finite_is_not_infinite() -> None:
    def act(rate: float = Field(default=1.0, allow_inf_nan=False)) -> None:
        RAN.append({"rate": rate})

    for call in (sayso.gate(act, when=False), sayso.gate(act, wait="raise")):
        with pytest.raises(errors.ArgumentError, match="rate"):
            call(float("inf"))
    assert RAN == []


_DAY = date(2026, 1, 1)


def strict(
    count: int = Field(gt=0, strict=True),
    rate: float = Field(default=1.0, strict=True),
    sure: Annotated[bool, Strict()] = False,  # noqa: FBT002  the position is not used
    name: Annotated[str, Field(strict=True)] = "ada",
    sizes: list[StrictInt] = Field(default_factory=list),  # noqa: B008  that is how it is written
    day: date = Field(default=_DAY, strict=True),  # noqa: B008  that is how it is written
    odd: Annotated[int, Field(strict=False)] = 1,
) -> None:
    RAN.append(
        {"count": count, "rate": rate, "sure": sure, "name": name, "sizes": sizes, "day": day, "odd": odd}
    )  # fmt: skip


NOT_STRICTLY: dict[str, tuple[str, Any]] = {
    "text for an int": ("count", "5"),
    "True for an int": ("count", True),
    "a float for an int": ("count", 5.0),
    "text for a float": ("rate", "1.5"),
    "a number for a bool": ("sure", 1),
    "text for a bool": ("sure", "true"),
    "bytes for text": ("name", b"ada"),
    "text in a list of ints": ("sizes", ["1"]),
}


@pytest.mark.parametrize("case", NOT_STRICTLY)
def test_a_strict_parameter_takes_no_value_of_another_type(case: str) -> None:
    name, value = NOT_STRICTLY[case]
    given = {"count": 5, name: value}
    for way, call in {**HELD, **{way: FREE[way] for way in ("gate that is off", "tool")}}.items():
        with pytest.raises((errors.ArgumentError, SchemaError), match=name):
            call(strict)(**given)
        assert RAN == [], way
    assert sayso.Review().list().requests == ()
    request_id = held(gated(strict), 5).confirmation_id
    if not isinstance(value, bytes):  # no reviewer can give such
        with pytest.raises(errors.InvalidChangesError, match=name):
            sayso.Review().approve(request_id, changes={name: value}, by="ada")
    assert sayso.Review().get(request_id).state == "pending"


def test_a_strict_parameter_takes_what_a_person_types_and_what_json_has_no_type_for() -> None:
    request_id = held(gated(strict), 5).confirmation_id
    request = sayso.Review().get(request_id)
    shape = schema_of(request)
    typed = {"count": "7", "rate": "1.5", "sure": "true", "name": "7", "sizes": "[1]", "day": "2026-02-01", "odd": "3"}
    changes = {name: shape.parse(name, text) for name, text in typed.items()}
    widgets = fields_for(request)
    sent = {widget.key: typed[widget.name] for widget in widgets if widget.kind in {"number", "bool", "date"}}
    edit = edit_of(request, sent)
    assert (edit.problems, edit.changes["count"], edit.changes["rate"]) == ([], 7, 1.5)
    shape.fit({"count": 5, **edit.changes})
    sayso.Review().approve(request_id, changes={**changes, "day": "2026-02-01", "odd": "3"}, by="ada")
    gated(strict)(5)
    said = {"count": 7, "rate": 1.5, "sure": True, "name": "7", "sizes": [1], "day": date(2026, 2, 1), "odd": 3}
    assert [said] == RAN


def test_without_bounds_a_call_that_is_let_through_gets_the_callers_own_objects() -> None:
    def act(things: Any, count: int = 1) -> Any:
        return things

    mine = [object()]
    assert sayso.gate(act, when=False)(mine, count="many") is mine
    assert sayso.gate(act, when=lambda count: count == "few", wait="raise")(mine, count="many") is mine


# -- what models and reviewers are shown -----------------------------------------------------------------------------


@written
def test_the_schema_says_what_the_author_said(written: str) -> None:
    schema = sayso.Tool(FUNCTIONS[written], name="pay").schema
    assert schema["required"] == ["amount", "to"]
    amount = schema["properties"]["amount"]
    assert (amount["exclusiveMinimum"], amount["maximum"]) == (0, 100)
    assert amount["description"] == "How much, in euro."
    assert schema["properties"]["copies"] == {"type": "integer", "default": 3}
    assert schema["properties"]["tags"]["default"] == []
    assert schema["properties"]["from"] == {"type": "string", "default": "me"}
    assert "sender" not in schema["properties"]


@written
def test_a_model_may_answer_by_the_schema(written: str) -> None:
    tool = sayso.Tool(FUNCTIONS[written], name="pay")
    assert tool.call(**{"amount": "5", "to": "ada", "from": "bob"}) == "paid"
    assert RAN == [{**WHOLE, "sender": "bob"}]


@written
def test_the_form_shows_description_and_bounds_and_takes_the_value(written: str) -> None:
    request = sayso.Review().get(held(gated(FUNCTIONS[written]), 5, "ada").confirmation_id)
    fields = {field.name: field for field in fields_for(request)}
    assert list(fields) == list(WHOLE)
    assert fields["amount"].hint == "number, more than 0, at most 100: How much, in euro."
    assert all(field.can_change for field in fields.values())
    assert kinds_of(schema_of(request))["amount"] == fields["amount"].hint
    assert schema_of(request).parse("from", "bob") == "bob"
    with pytest.raises(SchemaError):
        schema_of(request).parse("amount", "5000")


def test_a_description_does_not_make_another_function_of_it() -> None:
    def first(amount: int = Field(description="One.")) -> None: ...

    def second(amount: int = Field(description="Two.")) -> None: ...

    digests = {sayso.Tool(function, name="act").shape.digest for function in (first, second)}
    assert len(digests) == 1


def test_several_aliases_are_all_taken_and_the_first_is_shown() -> None:
    def act(sender: str = Field(validation_alias=AliasChoices("from", "by"))) -> None:
        RAN.append({"sender": sender})

    tool = sayso.Tool(act)
    assert list(tool.schema["properties"]) == ["from"]
    for name in ("from", "by", "sender"):
        tool.call(**{name: "ada"})
    assert RAN == [{"sender": "ada"}] * 3


# -- the seeds' own examples -----------------------------------------------------------------------------------------


def test_the_seeds_tool_with_a_required_field_holds_and_runs() -> None:
    @sayso.tool(name="delete_file", description="Delete a file", require_confirmation=True)
    def delete_file(path: str = Field(...)) -> str:
        RAN.append({"path": path})
        return f"Deleted {path}"

    with pytest.raises((TypeError, SchemaError), match="path"):
        delete_file.call()
    signal = held(delete_file.call, path="/tmp/test.txt")
    assert signal.question == 'Confirm execution of delete_file(path="/tmp/test.txt")?'
    sayso.respond_to_confirmation(signal.confirmation_id, approved=True)
    assert delete_file.call(path="/tmp/test.txt") == "Deleted /tmp/test.txt"
    assert RAN == [{"path": "/tmp/test.txt"}]
