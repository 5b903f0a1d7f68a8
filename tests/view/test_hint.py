"""What a value may be, in a few words, for people."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sayso.model.schema import Schema
from sayso.view.card import kinds_of


def test_a_short_schema_with_any_number_of_parts_is_described_in_a_few_words() -> None:
    many: dict[str, Any] = {f"p{n}": {"$ref": "#/$defs/o"} for n in range(60)}
    schema = Schema.of_json(
        {"type": "object", "properties": many, "$defs": {"o": {"properties": many, "type": "object"}}}
    )
    described = kinds_of(schema)
    assert len(described) == 60
    assert max(map(len, described.values())) < 20_000
    alternatives = {"anyOf": [{"$ref": "#/$defs/a"}] * 500}
    schema = Schema.of_json({"type": "object", "properties": {"x": alternatives}, "$defs": {"a": alternatives}})
    assert kinds_of(schema)["x"].count("…") < 1_000


def test_a_pattern_is_for_programmers_alone() -> None:
    def act(code: Annotated[str, Field(pattern="^[A-Z]{3}$", max_length=3)]) -> None: ...

    schema = Schema.of(act)
    assert kinds_of(schema) == {"code": 'string, length at most 3, matching "^[A-Z]{3}$"'}
    assert kinds_of(schema, patterns=False) == {"code": "string, length at most 3, in a special format"}
