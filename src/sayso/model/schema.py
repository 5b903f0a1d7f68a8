"""The schema of a call's arguments or of a question's answer: JSON Schema of draft 2020-12.

pydantic generates it from a function's signature at the first held call (`Schema.of`, `schema_of_types.py`), or
a foreign tool supplies its own, of draft 2020-12, 2019-09 or 7 (`Schema.of_json`). Its text is stored beside the
request, and its digest is part of the call's. A reviewer's process validates an edit by this text alone; the program
also validates it by the function's own types. Names in a schema are never imported, and `$ref` is never fetched.

`docs/reference/schema.md` lists sayso's own keywords, `x-sayso-...`, for what JSON Schema cannot express. Invariant:
values that are valid in a reviewer's process are passed to the function unchanged, to the byte.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from sayso.errors import ArgumentError
from sayso.model import cached_property
from sayso.model.canonical import Json, check_round_trip, decode, display, encode, form_of, value_of
from sayso.model.canonical.json_tree import dump
from sayso.model.parameters import by_name, place
from sayso.model.schema_validation import (
    DRAFT,
    UNKNOWN,
    Node,
    Problem,
    SchemaError,
    all_in_place,
    foreign,
    foreign_answer,
    mapped,
    no_number,
    resolved,
)

if TYPE_CHECKING:
    from sayso.model.json_edits import JsonEdits
    from sayso.model.schema_of_types import PythonTypes

_WORDS = frozenset({"title", "description", "examples", "deprecated", "$comment"})
_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "x-sayso-limits", "x-sayso-strict"}
)
_MORE_NAMES = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties"})
_QUICK: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
_STEP = re.compile(r"\[(\d+)\]|\.(\w+)")


class Schema:
    """The types of a call's arguments, or of a question's answer (one property named `answer`).

    A signature is read at the first use, so that a gate that holds nothing does not pay for its schema.
    """

    def __init__(
        self, read: Callable[[], PythonTypes] | None, tree: Node | None = None, *, around: str | None = None
    ) -> None:
        self._read = read
        self._given = tree
        self._around = around

    @classmethod
    def of(cls, function: Callable[..., object], *, redact: Collection[str] = ()) -> Schema:
        """Return the schema of a function's arguments.

        Args:
            function: Any callable.
            redact: Names that mark a secret, in addition to the default ones; their defaults are not in the schema.
        """
        return cls(lambda: _types().of_function(function, redact))

    @classmethod
    def of_type(cls, annotation: Any) -> Schema:
        """Return the schema of an answer of this type."""
        return cls(lambda: _types().of_type(annotation))

    @classmethod
    def of_json(cls, schema: Mapping[str, Any]) -> Schema:
        """Return the schema of a foreign tool's arguments, as written by its author.

        Args:
            schema: JSON Schema of draft 2020-12 (the default), 2019-09 or 7, of an object.

        Raises:
            ConfigError: It is not a valid schema, or refers to one outside itself. Nothing is fetched.
        """
        return cls(None, foreign(schema, "schema="))

    @classmethod
    def of_json_answer(cls, schema: Mapping[str, Any]) -> Schema:
        """Return the schema of an answer that a JSON Schema describes; raises as `of_json` does."""
        return cls(None, foreign_answer(schema))

    @classmethod
    @lru_cache(maxsize=128)  # compiling validators is slow, and a list of requests uses the same few schemas
    def from_text(cls, text: str) -> Schema:
        """Return the schema with this stored text, without importing anything.

        Raises:
            ValueError: The text is not a schema.
        """
        given = json.loads(text)
        if not isinstance(given, dict) or "$schema" not in given:
            raise ValueError("this is not a schema that this version of sayso can read")
        return cls(None, cast("Node", given))

    @classmethod
    def live(cls, digest: str) -> Schema | None:
        """Return the schema with this digest that was made in this process from code; None if there is none."""
        return _live.get(digest)

    def among(self, around: str) -> Schema:
        """Return the schema of the same function with other captured values; its digest differs.

        Args:
            around: Digest of these values (see `sayso.model.ids`).
        """
        return Schema(lambda: cast("PythonTypes", self.python), around=around)

    @cached_property
    def python(self) -> PythonTypes | None:
        """The function's own types; None if its code is not in this process."""
        return None if self._read is None else self._read()

    @cached_property
    def tree(self) -> Node:
        """The schema, including sayso's own keywords."""
        if self.python is None:
            return cast("Node", self._given)
        around = {} if self._around is None else {"x-sayso-around": self._around}
        return {"$schema": DRAFT, **around, **self.python.tree}

    @cached_property
    def text(self) -> str:
        """The schema as JSON text, which is stored beside a request."""
        return dump(self.tree)

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex: of a signature's schema without titles and descriptions, or of all of a foreign schema."""
        covered = mapped(self.tree, _without_words) if self.is_own else self.tree
        digest = hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        if self._read is not None:
            _live[digest] = self
        return digest

    @property
    def is_own(self) -> bool:
        """Whether it was made from a Python signature."""
        return "x-sayso-signature" in self.tree

    @property
    def properties(self) -> dict[str, Any]:
        """The schema of each argument, by name, in order."""
        return cast("dict[str, Any]", self.tree.get("properties", {}))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments, in order."""
        return tuple(self.properties)

    @property
    def required(self) -> Collection[str]:
        """The names of the required arguments."""
        return cast("list[str]", self.tree.get("required", ()))

    @property
    def classes(self) -> Mapping[str, type]:
        """The classes that may occur, by `module:QualName`: those in the annotations and their known subclasses."""
        return {} if self.python is None else self.python.classes

    def decode(self, text: str) -> dict[str, Any]:
        """Return arguments in their stored form as equal Python values; raises as `canonical.decode`."""
        return decode(text, self.classes if '"$' in text else {})  # only a tagged value has a class

    def resolved(self, node: Any) -> Node:
        """Return the schema that a node refers to, or itself."""
        return resolved(self.tree, node)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, without sayso's own keywords."""
        return cast("dict[str, Any]", mapped(self.tree, _without_ours))

    # -- values ------------------------------------------------------------------------------------------------

    def fit(self, values: Mapping[str, Json], *, kept: Collection[str] = ()) -> dict[str, Json]:
        """Return the arguments of a call in canonical form, in the order of its parameters, with defaults filled in.

        JSON values are converted to the declared types: ISO text to a date, base64 text to bytes, an object to a
        dataclass or model; enum members go by name or value. If no text is valid, a text is parsed as a person would
        type it (`"80"` is an integer). If the function is in this process, its types check and convert too.

        Args:
            values: By name, in canonical form or as plain JSON.
            kept: The names of unchanged values, which stay identical to the byte even if they do not fit their types.

        Raises:
            SchemaError: With the problems found: unknown or missing names, wrong types, violated limits.
        """
        given = self._edits.typed(self.by_name(values), kept)
        # Leaving out an argument like `limit: int = None` must not fail because its default does not fit its type.
        spared = {name for name, form in given.items() if name not in kept and self._is_default(name, form)}
        found = self._edits.problems(given)
        wrong = {str(where[0]) for where, _ in found if where} - {*kept}
        problems = [one for one in found if str((*one[0], "")[0]) not in {*kept, *spared}]
        fitted: dict[str, Json] = {}
        for name in dict.fromkeys((*self.properties, *given)):
            if name in kept or (name in wrong and name not in spared):
                fitted |= {name: given[name]} if name in given else {}
                continue
            if name in given and name not in wrong:
                form, found = self._written(name, given[name])
                if not (found and name in spared):
                    fitted[name] = form
                    problems += found
                    continue
            if self.is_own:
                try:
                    fitted[name] = self._default(name, fitted)
                except ArgumentError as error:
                    problems.append(((name,), error.reason))
        self._raise(problems)
        return fitted

    def validate(self, values: Mapping[str, object], *, kept: Collection[str] = ()) -> dict[str, object]:
        """Return values as the function takes them: checked by its own types, with defaults filled in.

        Args:
            values: By name, with their types in the program; as JSON for a foreign schema.
            kept: The names of unchanged values, which are returned as they are even if they do not fit their types.

        Raises:
            SchemaError: With the problems found, as in `fit`, including values without a canonical form.
        """
        given, problems = self.by_name(values), list[Problem]()
        made = dict[str, object]()
        for name in dict.fromkeys((*self.properties, *given)):
            if name not in given and self.python is not None and name not in self.required:
                made[name] = self.python.default(name, lambda: made)
            elif name not in given:
                problems += [((name,), "Field required")] if name in self.required else []
            elif name in kept or self.python is None:
                made[name] = given[name]
            elif name in self.properties:
                made[name], found = self.python.check(name, given[name])
                problems += found
            else:
                problems.append(((name,), UNKNOWN))
        forms = dict[str, Json]()
        for name, value in made.items():
            try:
                forms[name] = form_of(value)
                check_round_trip(encode({name: value}), self.classes)
            except ArgumentError as error:
                problems.append(_refused(name, error))
        if self.python is None and not problems:
            problems = self._edits.problems(forms)
        self._raise(problems)
        return made

    def misfits(self, values: Mapping[str, object]) -> list[str]:
        """Return the problems that would prevent a reviewer from editing these values. Cheap for correct types."""
        problems: list[Problem] = []
        for name, value in values.items():
            if type(value) is self._quick.get(name):  # most values have the right plain type
                continue
            # The result of the check does not matter: the call keeps the value that it was given.
            if self.python and self.python.check(name, value)[1]:
                problems += self._found_in(name, value)
        return list(map(self._line, problems))

    @cached_property
    def has_bounds(self) -> bool:
        """Whether an argument has bounds in addition to its type."""
        # Bounds come from one of these modules; if none is imported, the schema need not be generated.
        return bool(sys.modules.keys() & {"pydantic", "annotated_types"}) and bool(self._bounded)

    def out_of_bounds(self, values: Mapping[str, object]) -> list[str]:
        """Return the problems of those values that have bounds."""
        return self.misfits({name: values[name] for name in self._bounded if name in values}) if self.has_bounds else []

    def parse(self, name: str, text: str) -> object:
        """Return the JSON value that a person typed for one argument, e.g. `80`, `"2026-01-31"`, `["a"]` or None.

        Raises:
            SchemaError: There is no such argument, or the text does not fit its type.
        """
        name = self._by_alias.get(name, name)
        if name not in self.properties and self.tree.get("additionalProperties", True) is False:
            self._raise([((name,), UNKNOWN)])
        try:
            parsed: list[Any] = [json.loads(text, parse_constant=no_number)]
        except (ValueError, RecursionError):
            parsed = []
        node = self.resolved(self.properties.get(name, {}))
        parts = [node, *map(self.resolved, node.get("anyOf") or node.get("oneOf") or ())]
        if not node.keys() - _WORDS - {"default", "x-sayso-code", "x-sayso-alias"}:  # it may be anything
            if not parsed and text.strip()[:1] in {"{", "[", '"'}:
                raise SchemaError(
                    [f"{name}: Input looks like JSON but is not valid; to enter it as text, write it in double quotes"]
                )
            readings = [*parsed, text]
        elif any(part.get("type") == "string" and "x-sayso-type" in part for part in parts):
            readings = [text, *parsed]  # `1.10` for a decimal is no float
        else:  # `80` for `int | str` is a number, and `"80"` with its quotes a text
            readings = [*(one for one in parsed if not isinstance(one, str)), text, *parsed]
        first: list[Problem] = []
        # A text inside the parsed value may stand for a number as well: `{"zip": "10435"}`.
        for reading in [*readings, *(self._edits.typed({name: one}, ())[name] for one in [*parsed, text])]:
            problems = self._found_in(name, reading)
            if not problems:
                return reading
            first = first or problems
        raise SchemaError([self._line(problem) for problem in first])

    def must_know(self, names: Iterable[str]) -> None:
        """Check the names of single changes: a misspelt one would leave the value that it was meant for unchanged.

        A schema that says nothing about more arguments allows them, but only as part of all arguments of a call.

        Raises:
            SchemaError: The schema neither has one of the names nor says that there may be others.
        """
        nodes = all_in_place(self.tree)
        if not any(node.keys() & _MORE_NAMES for node in nodes):
            known = {name for node in nodes for name in node.get("properties", ())}
            self._raise([((name,), UNKNOWN) for name in names if name not in known])

    def by_name(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values by argument name, resolving aliases."""
        return by_name(values, self._by_alias)

    # -- inside ------------------------------------------------------------------------------------------------

    @cached_property
    def _edits(self) -> JsonEdits:
        from sayso.model.json_edits import JsonEdits

        return JsonEdits(self.tree, is_own=self.is_own, builds=self.python is None)

    @cached_property
    def _by_alias(self) -> dict[str, str]:
        aliases = {name: node.get("x-sayso-alias", ()) for name, node in self._nodes.items()}
        found = {alias: name for name, others in aliases.items() for alias in others}
        return {alias: name for alias, name in found.items() if alias not in self.properties}

    @property
    def _nodes(self) -> dict[str, Node]:
        return {name: node for name, node in self.properties.items() if isinstance(node, dict)}

    @cached_property
    def _quick(self) -> dict[str, type]:
        """The arguments whose schema is a single plain type."""
        plain = {name: node for name, node in self._nodes.items() if node.keys() - _WORDS - {"default"} == {"type"}}
        kinds = {name: str(node["type"]) for name, node in plain.items()}  # a foreign schema may list several
        return {name: _QUICK[kind] for name, kind in kinds.items() if kind in _QUICK}

    @cached_property
    def _bounded(self) -> list[str]:
        python = self.python
        return [
            name for name, node in self.properties.items()
            if _has_bounds(node) or (python is not None and python.says_more(name))
        ]  # fmt: skip

    def _found_in(self, name: str, value: object) -> list[Problem]:
        """Return the problems of one argument."""
        try:
            form = form_of(value)
        except ArgumentError as error:
            return [_refused(name, error)]
        if self._is_default(name, form):
            return []
        found = [problem for problem in self._edits.problems({name: form}) if problem[0][:1] == (name,)]
        return found or self._written(name, form)[1]

    def _written(self, name: str, form: Json) -> tuple[Json, list[Problem]]:
        """Convert a valid argument to canonical form, and check it by its own type if that is in this process."""
        from sayso.model.json_edits import Misfit

        try:
            made = self._edits.write(name, form)
        except Misfit as misfit:
            return form, [*misfit.problems]
        if self.python is None:
            return made, []
        try:
            value, problems = self.python.check(name, value_of(made, self.classes))
        except ArgumentError as error:
            return made, [_refused(name, error)]
        return made if problems else form_of(value), problems

    def _default(self, name: str, given: Mapping[str, Json]) -> Json:
        if self.python is not None:
            return form_of(self.python.default(name, lambda: {n: value_of(f, self.classes) for n, f in given.items()}))
        if "default" not in self.properties[name]:
            raise ArgumentError(name, "has a default that only the program knows; enter a value")
        return self._edits.default(self.properties[name], (name,))

    def _is_default(self, name: str, form: Json) -> bool:
        """Return whether a value looks like the default; if it does not fit its type, it is treated as the default."""
        node: Node = self.properties.get(name, {}) if self.is_own else {}
        return "default" in node and dump(display(form)) == dump(node["default"])

    def _raise(self, problems: list[Problem]) -> None:
        if problems:
            places = {name: place for place, name in enumerate(self.properties)}
            problems.sort(key=lambda problem: places.get(str((*problem[0], "")[0]), len(places)))
            raise SchemaError(list(dict.fromkeys(map(self._line, problems))))

    def _line(self, problem: Problem) -> str:
        where, what = problem
        if what != UNKNOWN or len(where) != 1:
            return f"{place(where)}: {what}"
        name, whole = str(where[0]), str(where[0]).partition(".")[0]
        listed = f"there are {', '.join(self.names)}" if self.names else "it takes none"
        more = f"; give all of {whole} as JSON" if whole != name and whole in self.properties else ""
        return f"{ascii(name)[1:-1]}: there is no such argument ({listed}){more}"


def _types() -> ModuleType:
    from sayso.model import schema_of_types  # imports pydantic, which most programs need only at a held call

    return schema_of_types


def _refused(name: str, error: ArgumentError) -> Problem:
    # `form_of` names its argument `value`; the path inside it follows.
    steps = _STEP.findall(error.argument.removeprefix("value").removeprefix(name))
    return (name, *(int(place) if place else field for place, field in steps)), error.reason


def _without_words(node: Node) -> Node:
    found = {key: part for key, part in node.items() if key not in _WORDS}
    return {**found, "anyOf": sorted(found["anyOf"], key=dump)} if "anyOf" in found else found


def _without_ours(node: Node) -> Node:
    return {key: part for key, part in node.items() if not key.startswith("x-sayso-")}


def _has_bounds(node: Any) -> bool:
    found: list[Node] = []
    mapped(node, lambda one: found.append(one) or one)
    # A decimal always has a pattern, which is no bound.
    return any(one.keys() & _BOUNDS - ({"pattern"} if one.get("x-sayso-type") == "decimal" else set()) for one in found)


_live: WeakValueDictionary[str, Schema] = WeakValueDictionary()
