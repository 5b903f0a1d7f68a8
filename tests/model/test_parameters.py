"""Signatures: what their text means, that it runs nothing, and that values are held to their types."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from sayso import errors
from sayso.model.schema import SchemaError
from sayso.runs.module import Prediction, Signature


def types_of(text: str) -> dict[str, Any]:
    """What pydantic makes of the fields that come out."""
    return dict(Signature.of(text).outputs.schema["properties"])


def test_field_without_a_type_is_text() -> None:
    signature = Signature.of("question, context -> answer")
    assert signature.inputs.names == ("question", "context")
    assert signature.outputs.names == ("answer",)
    assert types_of("question -> answer")["answer"]["type"] == "string"
    with pytest.raises(SchemaError, match="answer"):
        signature.outputs.validate({"answer": 7})


@pytest.mark.parametrize(
    ("written", "fits", "does_not"),
    [
        ("str", "a", 1),
        ("int", 3, "three"),
        ("float", 0.5, "half"),
        ("bool", True, "perhaps"),
        ("list[str]", ["a", "b"], ["a", 1]),
        ("list", [1, "a"], "a"),
        ("dict[str, list[int]]", {"a": [1]}, {"a": ["x"]}),
        ("tuple[int, str]", (1, "a"), (1, 2, 3)),
        ("tuple[int, ...]", (1, 2, 3), ("x",)),
        ("set[int]", {1, 2}, {"x"}),
        ("Optional[int]", None, "x"),
        ("int | None", None, "x"),
        ("Union[int, list[int]]", [1], "x"),
        ("Literal['yes', 'no']", "yes", "perhaps"),
        ("Literal[-1, 1, True, None]", -1, 2),
        ("Literal['a->b', 'c,d: e']", "a->b", "a"),
        ("list[Literal['low', 'high'] | None]", ["low", None], ["middle"]),
        ("Any", object, ...),
    ],
)
def test_type_in_the_text_is_the_type_that_counts(written: str, fits: Any, does_not: Any) -> None:
    outputs = Signature.of(f"question -> answer: {written}").outputs
    assert outputs.validate({"answer": fits}) == {"answer": fits}
    if does_not is not ...:
        with pytest.raises(SchemaError):
            outputs.validate({"answer": does_not})


def test_commas_and_later_arrows_inside_of_a_literal_are_its_own() -> None:
    signature = Signature.of("way: Literal['a', 'c, d'] -> next: Literal['x -> y']")
    assert signature.inputs.names == ("way",)
    assert signature.outputs.validate({"next": "x -> y"}) == {"next": "x -> y"}


def test_names_that_models_use_themselves_are_plain_fields() -> None:
    names = ("schema", "json", "copy", "model_config", "items")
    outputs = Signature.of(f"question -> {', '.join(names)}").outputs
    assert outputs.validate(dict.fromkeys(names, "x")) == dict.fromkeys(names, "x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("question", "no '->'"),
        ("", "no '->'"),
        ("->", "near ''"),
        ("question ->", "near ''"),
        ("-> answer", "near ''"),
        ("a, a -> b", "a name twice"),
        ("a -> a", "both sides"),
        ("class -> answer", "cannot be read"),
        ("_secret -> answer", "underscore"),
        ("a=1 -> answer", "plain fields"),
        ("*a -> answer", "plain fields"),
        ("a, /, b -> answer", "plain fields"),
        ("a -> answer: Foo", "'Foo' is not known"),
        ("a -> answer: typing.List", "not known"),
        ("a -> answer: list[int, str]", "with 2 types"),
        ("a -> answer: Optional[int, str]", "with 2 types"),
        ("a -> answer: Literal[1 + 1]", "not known"),
        ("a -> answer: int[str]", "int"),
        ("a -> answer: " + "list[" * 300 + "int" + "]" * 300, "cannot be read"),
    ],
)
def test_text_that_is_no_signature_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(errors.ConfigError, match=why):
        Signature.of(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: __import__('pathlib').Path('ran').touch() -> b",
        "a: (lambda: open('ran', 'w'))() -> b",
        "a): open('ran', 'w')\ndef g(c -> b",
        "a: [open('ran', 'w') for _ in (1,)] -> b",
        "a: Literal[open('ran', 'w')] -> b",
        "a = open('ran', 'w') -> b",
        "a -> b: open('ran', 'w').__class__",
        "a: f'{open(chr(114))}' -> b",
    ],
)
def test_nothing_in_the_text_runs(text: str, place: Path) -> None:
    before = sorted(place.iterdir())
    with pytest.raises(errors.ConfigError):
        Signature.of(text)
    assert sorted(place.iterdir()) == before


@given(st.text(max_size=60))
def test_any_text_is_a_signature_or_is_refused(text: str) -> None:
    try:
        signature = Signature.of(text)
    except errors.ConfigError:
        return
    assert signature.inputs.names
    assert signature.outputs.names


class Ticket(BaseModel):
    """What a customer wrote."""

    subject: str
    tags: list[str] = []


class Triage(BaseModel):
    """Where it goes."""

    team: str = Field(max_length=10)
    urgency: int = Field(ge=0, le=9)

    @field_validator("team")
    @classmethod
    def is_known(cls, team: str) -> str:
        if team == "hunter2":
            raise ValueError(f"{team} is nobody")
        return team


def test_pair_of_models_says_names_types_and_limits() -> None:
    signature = Signature.of((Ticket, Triage))
    assert signature.inputs.names == ("subject", "tags")
    assert signature.inputs.validate({"subject": "help"}) == {"subject": "help", "tags": []}
    assert signature.outputs.validate({"team": "ops", "urgency": "3"}) == {"team": "ops", "urgency": 3}
    with pytest.raises(SchemaError) as refused:
        signature.outputs.validate({"team": "ops", "urgency": 12})
    assert "urgency" in str(refused.value)
    assert signature.inputs.words == "What a customer wrote."


def test_problem_never_quotes_the_value() -> None:
    outputs = Signature.of((Ticket, Triage)).outputs
    for wrong in ({"team": "hunter2", "urgency": 1}, {"team": "hunter2hunter2", "urgency": 1}):
        with pytest.raises(SchemaError) as refused:
            outputs.validate(wrong)
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("wrong", [7, None, (Ticket,), (Ticket, Triage, Ticket), (Ticket, int), ["a", "b"], Ticket])
def test_neither_text_nor_a_pair_is_refused(wrong: Any) -> None:
    with pytest.raises(errors.ConfigError, match="pair of pydantic models"):
        Signature.of(wrong)


def test_model_without_fields_is_refused() -> None:
    class Empty(BaseModel):
        pass

    with pytest.raises(errors.ConfigError, match="at least one field"):
        Signature.of((Empty, Triage))


def test_only_a_single_text_can_be_said_plainly() -> None:
    assert Signature.of("question -> answer").outputs.single_text == "answer"
    for more in ("answer, why", "score: float", "answer: str | None", "answers: list[str]"):
        assert Signature.of(f"question -> {more}").outputs.single_text is None


# -- predictions ---------------------------------------------------------------------------------------------------


def test_prediction_is_reached_by_attribute_and_by_item() -> None:
    prediction = Prediction(answer="4", score=0.5)
    assert (prediction.answer, prediction["score"]) == ("4", 0.5)
    prediction.answer = "5"
    assert prediction["answer"] == "5"
    del prediction["score"]
    assert "score" not in prediction
    assert json.loads(json.dumps(prediction)) == {"answer": "5"}
    assert pickle.loads(pickle.dumps(prediction)) == prediction


def test_field_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"'reply'; there are: answer"):
        _ = Prediction(answer="4").reply
    assert getattr(Prediction(), "answer", "none") == "none"
    with pytest.raises(AttributeError):
        del Prediction().answer
