"""A form of a schema that a stranger wrote has an end."""

from __future__ import annotations

from typing import Any

import sayso
from sayso.server.pages.forms import fields_for
from sayso.stores.base import Store


def fields_of(widgets: Any) -> int:
    return sum(1 + fields_of(widget.parts) for widget in widgets)


def test_a_short_schema_with_any_number_of_parts_has_a_form_with_an_end(store: Store) -> None:
    many = {f"p{n}": {"$ref": "#/$defs/o"} for n in range(60)}
    schema = {"type": "object", "properties": many, "$defs": {"o": {"type": "object", "properties": many}}}
    with sayso.run("forms"):
        held = sayso.hold("build", {}, schema=schema, key="1")
    assert held.request is not None
    assert fields_of(fields_for(held.request)) < 2_000
