"""Schemas that foreign tools bring, as MCP servers and OpenAI tools write them: what fits them and what does not."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sayso
from sayso.errors import ArgumentError, ConfigError
from sayso.model.parameters import place
from sayso.model.schema import Schema, SchemaError
from sayso.model.schema_validation import Checker

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


class Case(NamedTuple):
    """A schema, arguments that fit it, and for each that do not the place that the problem names."""

    schema: dict[str, Any]
    good: list[dict[str, Any]]
    bad: list[tuple[dict[str, Any], str]]


def takes(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["name"],
}
CASES: dict[str, Case] = {
    "no arguments, as MCP says it": Case(
        {"type": "object", "properties": {}, "additionalProperties": False}, [{}], [({"x": 1}, "x")]
    ),
    "no arguments, and nothing more said": Case({"type": "object"}, [{}, {"x": 1}], []),
    "text": Case(takes("path", path={"type": "string"}), [{"path": "a"}], [({}, "path"), ({"path": 5}, "path")]),
    "optional without a default": Case(
        takes("a", a={"type": "string"}, b={"type": "integer"}),
        [{"a": "x"}, {"a": "x", "b": 1}],
        [({"a": "x", "b": None}, "b"), ({"b": 1}, "a")],
    ),
    "nullable by a list of types, as OpenAI's strict mode asks": Case(
        {**takes("a", a={"type": ["string", "null"]}), "additionalProperties": False},
        [{"a": None}, {"a": "x"}],
        [({"a": 1}, "a"), ({}, "a"), ({"a": "x", "b": 1}, "b")],
    ),
    "nullable by anyOf": Case(
        takes(a={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
        [{}, {"a": None}, {"a": 1}],
        [({"a": "x"}, "a")],
    ),
    "bounds of an integer": Case(
        takes("n", n={"type": "integer", "minimum": 1, "maximum": 50}),
        [{"n": 1}, {"n": 50}],
        [({"n": 0}, "n"), ({"n": 51}, "n"), ({"n": 1.5}, "n"), ({"n": True}, "n"), ({"n": "5"}, "n")],
    ),
    "bounds that exclude": Case(
        takes("n", n={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        [{"n": 0.5}],
        [({"n": 0}, "n"), ({"n": 1}, "n")],
    ),
    "a multiple": Case(takes("n", n={"type": "integer", "multipleOf": 5}), [{"n": 10}], [({"n": 7}, "n")]),
    "lengths of a text": Case(
        takes("q", q={"type": "string", "minLength": 2, "maxLength": 3}),
        [{"q": "ab"}, {"q": "äöü"}],
        [({"q": "a"}, "q"), ({"q": "abcd"}, "q")],
    ),
    "a pattern": Case(
        takes("id", id={"type": "string", "pattern": "^[a-z]{2}-\\d+$"}), [{"id": "ab-1"}], [({"id": "AB-1"}, "id")]
    ),
    "a pattern that looks ahead": Case(
        takes("id", id={"type": "string", "pattern": "^(?!admin)[a-z]+$"}), [{"id": "ada"}], [({"id": "admin"}, "id")]
    ),
    "an enum": Case(takes("s", s={"type": "string", "enum": ["open", "all"]}), [{"s": "open"}], [({"s": "shut"}, "s")]),
    "an enum of several types": Case(
        takes("s", s={"enum": ["a", 1, None]}), [{"s": 1}, {"s": None}], [({"s": True}, "s")]
    ),
    "a constant": Case(takes("k", k={"const": "file"}), [{"k": "file"}], [({"k": "dir"}, "k")]),
    "a date": Case(
        takes("d", d={"type": "string", "format": "date"}),
        [{"d": "2026-01-31"}],
        [({"d": "31.1.2026"}, "d"), ({"d": "2026-02-30"}, "d")],
    ),
    "a date and time": Case(
        takes("d", d={"type": "string", "format": "date-time"}),
        [{"d": "2026-01-31T12:00:00Z"}],
        [({"d": "2026-01-31"}, "d")],
    ),
    "an address of mail": Case(
        takes("m", m={"type": "string", "format": "email"}), [{"m": "a@b.example"}], [({"m": "ada"}, "m")]
    ),
    "a uri": Case(
        takes("u", u={"type": "string", "format": "uri"}), [{"u": "https://a.example/x"}], [({"u": "no uri"}, "u")]
    ),
    "a uuid": Case(
        takes("u", u={"type": "string", "format": "uuid"}),
        [{"u": "00000000-0000-0000-0000-000000000005"}],
        [({"u": "5"}, "u")],
    ),
    "an address of the internet": Case(
        takes("ip", ip={"type": "string", "format": "ipv4"}), [{"ip": "10.0.0.1"}], [({"ip": "10.0.0"}, "ip")]
    ),
    "a format that nobody knows": Case(
        takes("x", x={"type": "string", "format": "money"}), [{"x": "anything"}], [({"x": 1}, "x")]
    ),
    "a list": Case(
        takes("p", p={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "uniqueItems": True}),
        [{"p": ["a"]}],
        [
            ({"p": []}, "p"),
            ({"p": ["a", "b", "c"]}, "p"),
            ({"p": ["a", "a"]}, "p"),
            ({"p": ["a", 1]}, "p[1]"),
            ({"p": "a"}, "p"),
        ],
    ),
    "a list of objects": Case(
        takes(
            "edits",
            edits={"type": "array", "items": takes("old", "new", old={"type": "string"}, new={"type": "string"})},
        ),
        [{"edits": [{"old": "a", "new": "b"}]}, {"edits": []}],
        [({"edits": [{"old": "a"}]}, "edits[0].new")],
    ),
    "a tuple of draft 2020-12": Case(
        takes("at", at={"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False}),
        [{"at": [1, "x"]}],
        [({"at": ["x"]}, "at[0]"), ({"at": [1, "x", 2]}, "at[2]")],
    ),
    "a tuple of draft 7": Case(
        {
            "$schema": DRAFT_7,
            **takes(
                "at", at={"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": False}
            ),
        },
        [{"at": [1, "x"]}],
        [({"at": ["x"]}, "at[0]"), ({"at": [1, "x", 2]}, "at")],
    ),
    "objects in objects": Case(
        takes("a", a=takes("b", b=takes("c", c={"type": "boolean"}))),
        [{"a": {"b": {"c": True}}}],
        [({"a": {"b": {}}}, "a.b.c"), ({"a": {"b": {"c": 1}}}, "a.b.c"), ({"a": 1}, "a")],
    ),
    "a map": Case(
        takes("env", env={"type": "object", "additionalProperties": {"type": "string"}}),
        [{"env": {"A": "b"}}, {"env": {}}],
        [({"env": {"A": 1}}, "env.A")],
    ),
    "a map whose names are held to a pattern": Case(
        takes(
            "e", e={"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False}
        ),
        [{"e": {"x-a": 1}}],
        [({"e": {"x-a": "1"}}, 'e["x-a"]'), ({"e": {"a": 1}}, "e.a")],
    ),
    "names of properties": Case(
        takes("e", e={"type": "object", "propertyNames": {"maxLength": 2}}),
        [{"e": {"ab": 1}}],
        [({"e": {"abc": 1}}, "e")],
    ),
    "a reference to $defs": Case(
        {**takes("l", l={"$ref": "#/$defs/line"}), "$defs": {"line": takes("sku", sku={"type": "string"})}},
        [{"l": {"sku": "a"}}],
        [({"l": {}}, "l.sku")],
    ),
    "a reference to definitions of draft 7": Case(
        {
            "$schema": DRAFT_7,
            **takes("l", l={"$ref": "#/definitions/line"}),
            "definitions": {"line": takes("sku", sku={"type": "string"})},
        },
        [{"l": {"sku": "a"}}],
        [({"l": {"sku": 1}}, "l.sku")],
    ),
    "a type that contains itself": Case(
        {**takes("root", root={"$ref": "#/$defs/node"}), "$defs": {"node": TREE}},
        [{"root": {"name": "a", "children": [{"name": "b", "children": []}]}}],
        [({"root": {"name": "a", "children": [{}]}}, "root.children[0].name")],
    ),
    "one of several objects, told apart by a constant": Case(
        takes(
            "s",
            s={
                "oneOf": [
                    takes("kind", "r", kind={"const": "circle"}, r={"type": "number"}),
                    takes("kind", "w", kind={"const": "square"}, w={"type": "number"}),
                ]
            },
        ),
        [{"s": {"kind": "circle", "r": 1}}, {"s": {"kind": "square", "w": 2}}],
        [({"s": {"kind": "oval"}}, "s"), ({"s": 1}, "s")],
    ),
    "one of two that exclude each other": Case(
        takes("n", n={"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]}),
        [{"n": 2}, {"n": 3}],
        [({"n": 6}, "n"), ({"n": 5}, "n")],
    ),
    "all of several": Case(
        takes("n", n={"allOf": [{"type": "integer"}, {"minimum": 1}, {"maximum": 9}]}),
        [{"n": 5}],
        [({"n": 0}, "n"), ({"n": 10}, "n")],
    ),
    "not this": Case(
        takes("b", b={"type": "string", "not": {"enum": ["main"]}}), [{"b": "dev"}], [({"b": "main"}, "b")]
    ),
    "if, then, else": Case(
        {
            **takes("kind", kind={"enum": ["mail", "text"]}, to={"type": "string"}),
            "if": {"properties": {"kind": {"const": "mail"}}},
            "then": {"required": ["to"]},
        },
        [{"kind": "text"}, {"kind": "mail", "to": "a"}],
        [({"kind": "mail"}, "to")],
    ),
    "what depends on another": Case(
        {
            "$schema": DRAFT_2019,
            **takes(user={"type": "string"}, password={"type": "string"}),
            "dependentRequired": {"user": ["password"]},
        },
        [{}, {"user": "a", "password": "b"}],
        [({"user": "a"}, "password")],
    ),
    "either of two": Case(
        {
            **takes(id={"type": "string"}, name={"type": "string"}),
            "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
        },
        [{"id": "a"}, {"name": "b"}],
        [({}, "arguments")],
    ),
    "names that are no identifiers": Case(
        takes("$filter", **{"$filter": {"type": "string"}, "x-request-id": {"type": "string"}}),
        [{"$filter": "a"}],
        [({"$filter": 1}, '"$filter"'), ({}, '"$filter"')],
    ),
    "titles, examples and defaults, as generators write them": Case(
        takes(
            "city",
            city={"type": "string", "title": "City", "examples": ["Rome"], "description": "Where."},
            days={"type": "integer", "default": 3},
        ),
        [{"city": "Rome"}, {"city": "Rome", "days": 1}],
        [({"city": "Rome", "days": "many"}, "days")],
    ),
    "anything at all": Case(takes("x", x={}, y=True), [{"x": [1, {"a": None}], "y": "z"}], [({}, "x")]),
    "nothing at all": Case(takes(x=False), [{}], [({"x": 1}, "x")]),
}


def problems(act: Any) -> list[str]:
    with pytest.raises(SchemaError) as refused:
        act()
    return refused.value.problems


def check(schema: Schema, arguments: dict[str, Any]) -> None:
    """Hold arguments to a schema as they are: here a text is no number."""
    if found := Checker(schema.tree).problems(arguments):
        raise SchemaError([f"{place(where)}: {what}" for where, what in found])


@pytest.mark.parametrize("name", CASES)
def test_arguments_are_held_to_a_foreign_schema(name: str) -> None:
    case = CASES[name]
    for schema in (Schema.of_json(case.schema), Schema.from_text(Schema.of_json(case.schema).text)):
        for good in case.good:
            check(schema, good)
            assert schema.misfits(good) == []
        for bad, where in case.bad:
            found = problems(lambda schema=schema, bad=bad: check(schema, bad))
            assert [one.partition(": ")[0] for one in found] == [where], (bad, found)


@pytest.mark.parametrize("name", CASES)
def test_an_edit_of_a_foreign_call_is_held_to_its_schema(name: str) -> None:
    case = CASES[name]
    schema = Schema.from_text(Schema.of_json(case.schema).text)
    for good in case.good:
        assert json.dumps(schema.fit(good), sort_keys=True) == json.dumps(good, sort_keys=True), "nothing is filled in"
    for bad, _ in case.bad:
        if not re.search('"[15]"', json.dumps(bad)):  # what a person types is read as a number
            problems(lambda bad=bad: schema.fit(bad))


def test_what_a_person_types_is_read_by_a_foreign_schema() -> None:
    schema = Schema.of_json(takes("n", n={"type": "integer"}, on={"type": "boolean"}, q={"type": ["string", "null"]}))
    assert schema.parse("n", "80") == 80
    assert schema.parse("on", "true") is True
    assert schema.parse("q", "80") == "80"
    assert schema.fit({"n": "80", "on": "no"}) == {"n": 80, "on": False}
    assert problems(lambda: schema.parse("n", "eighty")) == ['n: Input is not of type "integer"']


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "strin"}, '"strin"'),
        ({"type": "object", "properties": []}, "properties: "),
        ({"type": "object", "properties": {"a": {"minimum": "1"}}}, "properties/a/minimum: "),
        (takes(a={"type": "string", "pattern": "("}), "properties/a/pattern: "),
        (takes(a={"$ref": "#/$defs/nowhere"}), "/$defs/nowhere"),
        ({"$schema": "https://example.com/own", "type": "object"}, "https://example.com/own"),
        (takes(a={"x-sayso-type": "date"}), "x-sayso-"),
        (takes(a={"default": float("nan")}), "JSON"),
        (takes(a={"default": object()}), "JSON"),
        ("{}", "not str"),
        (None, "not NoneType"),
    ],
    ids=["a type that there is not", "properties as a list", "a bound that is a text", "a broken pattern",
         "a reference to nowhere", "a draft of its own", "our own keywords", "NaN", "an object", "text", "nothing"],
)  # fmt: skip
def test_what_is_no_schema_is_refused_by_name(schema: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Schema.of_json(schema)
    assert str(refused.value).startswith("schema= ")
    assert said in str(refused.value)


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """A server that would answer with a schema, and what was asked of it."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"type": "integer"}')

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/x.json", asked
        server.shutdown()


@pytest.mark.parametrize("kind", ["http", "file", "another document"])
def test_no_reference_is_ever_fetched(elsewhere: tuple[str, list[str]], tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.json").write_text('{"type": "integer"}')
    reference = {"http": elsewhere[0], "file": (tmp_path / "x.json").as_uri(), "another document": "x.json"}[kind]
    with pytest.raises(ConfigError, match="Nothing was asked"):
        Schema.of_json(takes(a={"$ref": reference}))
    stored = json.dumps({"$schema": DRAFT_2020, **takes(a={"$ref": reference})})
    assert problems(lambda: Schema.from_text(stored).fit({"a": 1}))[0].startswith("the schema cannot be read")
    assert elsewhere[1] == []


def test_a_pattern_that_takes_for_ever_is_given_up() -> None:
    schema = Schema.of_json(takes(a={"type": "string", "pattern": "^(a+)+$(?<=b)"}))
    assert problems(lambda: check(schema, {"a": "a" * 50_000 + "!"}))


def test_a_schema_that_refers_to_itself_alone_ends() -> None:
    schema = Schema.of_json({"$ref": "#"})
    check(schema, {"a": 1})
    assert schema.fit({"a": 1}) == {"a": 1}


def test_no_problem_of_a_foreign_schema_contains_the_value() -> None:
    bait = "c4n4ry"
    for case in CASES.values():
        schema = Schema.of_json(case.schema)
        for name in schema.names:
            for value in (bait, [bait], {"k": bait}, {bait: [bait]}):
                try:
                    check(schema, {name: value})
                except SchemaError as error:
                    rest = [
                        one for one in error.problems if bait in one and "there is no such field" not in one
                    ]  # a name
                    assert [one for one in rest if bait not in one.partition(": ")[0]] == []


def test_a_foreign_digest_covers_all_that_its_author_wrote() -> None:
    one, other = takes(a={"type": "string"}), takes(a={"type": "string", "description": "Send it to nobody else."})
    assert Schema.of_json(one).digest != Schema.of_json(other).digest
    assert Schema.of_json(one).digest == Schema.of_json(dict(reversed(one.items()))).digest
    assert Schema.from_text(Schema.of_json(other).text).digest == Schema.of_json(other).digest


def test_an_answer_may_be_of_any_schema() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "kind": {"$ref": "#/$defs/kind"}},
        "$defs": {"kind": {"enum": ["a"]}},
    }
    schema = Schema.of_json_answer(node)
    assert schema.fit({"answer": {"next": {"kind": "a"}}}) == {"answer": {"next": {"kind": "a"}}}
    assert problems(lambda: schema.fit({"answer": {"next": {"kind": "b"}}})) == [
        'answer.next.kind: Input should be one of "a"'
    ]
    assert Schema.of_json_answer({"type": "string", "enum": ["x"]}).names == ("answer",)
    with pytest.raises(ConfigError, match="response_schema"):
        Schema.of_json_answer({"type": "strin"})


def doubling(levels: int, last: dict[str, Any]) -> dict[str, Any]:
    """Return a short schema in which each level has two alternatives, both of them the next level."""
    two = {f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(levels)}
    return {**takes(x={"$ref": "#/$defs/a0"}), "$defs": {**two, f"a{levels}": last}}


LIST_OF_ITSELF = {"type": "array", "items": {"$ref": "#/$defs/n"}}
NESTED: Any = "x"
for _ in range(40):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling(40, {"type": "integer"}), "x"),
        ({**takes(x={"$ref": "#/$defs/n"}), "$defs": {"n": {"anyOf": [LIST_OF_ITSELF, LIST_OF_ITSELF]}}}, NESTED),
        (
            {
                **takes(x={"$ref": "#/$defs/n"}),
                "$defs": {"n": {"items": {"$ref": "#/$defs/n"}, "contains": {"$ref": "#/$defs/n"}}},
            },
            NESTED,
        ),
        (takes(x={"type": "array", "items": {"anyOf": [{"const": n} for n in range(1000)]}}), ["x"] * 1000),
    ],
    ids=["alternatives of alternatives", "a list of itself, twice", "items and contains", "many of many"],
)
def test_a_check_that_would_take_for_ever_is_refused_at_once(schema: dict[str, Any], value: Any) -> None:
    for one in (Schema.of_json(schema), Schema.from_text(Schema.of_json(schema).text)):
        assert problems(lambda one=one: one.fit({"x": value})) == [
            "arguments: cannot be checked (it has too many nested alternatives)"
        ]
        with pytest.raises(SchemaError):
            one.parse("x", json.dumps(value))


def test_a_call_whose_schema_would_take_for_ever_to_check_is_not_asked() -> None:
    with pytest.raises(ArgumentError, match="too many nested alternatives"):
        sayso.hold("send", {"x": "y"}, schema=doubling(15, {"type": "integer"}), store="memory:")


def test_a_text_that_a_program_gives_is_no_number() -> None:
    with pytest.raises(ArgumentError, match="is not of type"):
        sayso.hold("send", {"n": "80"}, schema=takes(n={"type": "integer"}), store="memory:")


def test_deep_and_wide_schemas_that_are_no_trap_are_taken() -> None:
    any_json: dict[str, Any] = {
        "anyOf": [
            {"type": ["string", "number", "boolean", "null"]},
            {"type": "array", "items": {"$ref": "#/$defs/any"}},
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}},
        ]
    }
    schema = Schema.of_json({**takes(x={"$ref": "#/$defs/any"}), "$defs": {"any": any_json}})
    check(schema, {"x": NESTED})
    check(schema, {"x": [{"a": [1, None, {"b": "c"}]}] * 100})


def test_a_schema_that_is_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match="the maximum is 262,144"):
        Schema.of_json(takes(x={"description": "x" * 300_000}))


@pytest.mark.parametrize("word", ["$dynamicRef", "$recursiveRef"])
def test_a_reference_whose_end_depends_on_the_way_is_refused_by_name(word: str) -> None:
    with pytest.raises(ConfigError, match=rf"\{word} is not supported"):
        Schema.of_json(takes(x={word: "#"}))


def test_a_reference_may_be_to_an_anchor() -> None:
    schema = Schema.of_json({**takes(x={"$ref": "#n"}), "$defs": {"a": {"$anchor": "n", "type": "integer"}}})
    check(schema, {"x": 1})
    assert problems(lambda: check(schema, {"x": "y"}))
