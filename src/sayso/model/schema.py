"""The schema of a call's arguments or of a question's answer: JSON Schema of draft 2020-12.

pydantic generates it from a function's signature at the first held call (`Schema.of`, `schema_of_types.py`), or
a foreign tool supplies its own, of draft 2020-12, 2019-09 or 7 (`Schema.of_json`). Its text is stored beside the
request, and its digest is part of the call's. A reviewer's process validates an edit by this text alone; the program
validates it by the function's own types as well. Names in a schema are never imported, and `$ref` is never fetched.

Schemas of signatures have keywords of our own for what JSON Schema cannot express:

- `x-sayso-type`: a JSON text is a `date`, `datetime`, `time`, `timedelta`, `decimal`, `uuid`, `path`, `bytes` (base64),
  `secret str`, `secret bytes` or a `str` that is changed when it is read, and a number is a `float`; an array is a
  `tuple` or a `set`; an object is a `model`, `dataclass` or `root` with the name of its class.
- `x-sayso-limits`: pydantic's bounds for such a text, in canonical form.
- `x-sayso-values`: the canonical form of each value of `enum`; `x-sayso-also`: other values that are accepted for it.
- `x-sayso-strict`: a text is not accepted for a number, nor `5.0` for an integer.
- `x-sayso-alias`: other names of an argument. `x-sayso-code`: the program's code checks more than the schema; an object
  of such a class is only built in the program.
- At the top: `x-sayso-signature`, the names and kinds of the parameters; `x-sayso-function`, where the function's code
  checks more; `x-sayso-around`, the digest of the values that the function captures.

Invariant: values that fit in a reviewer's process are passed to the function unchanged, to the byte.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, cast
from weakref import WeakValueDictionary

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, check_round_trip, encode, form_of, text_of, value_of
from sayso.model.canonical.names import place
from sayso.model.canonical.tags import dump
from sayso.model.json_convert import SCALARS, Converter, Misfit, own_checker, plain_json
from sayso.model.parameters import by_name
from sayso.model.schema_validation import (
    DRAFT,
    UNKNOWN,
    Checker,
    Node,
    Problem,
    foreign,
    foreign_answer,
    mapped,
    resolved,
)

if TYPE_CHECKING:
    from sayso.model.schema_of_types import PythonTypes

__all__ = ["Schema", "SchemaError"]

_WORDS = frozenset({"title", "description", "examples", "deprecated", "$comment"})
_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "x-sayso-limits", "x-sayso-strict"}
)
_QUICK: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
_STEP = re.compile(r"\[(\d+)\]|\.(\w+)")


class SchemaError(ValueError):
    """Values do not fit a schema. No problem contains a value.

    Attributes:
        problems: One line each, `where: what is wrong`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class Schema:
    """Which arguments a call takes, or what a question's answer may be (one property named `answer`).

    A signature is read on first use, so its schema costs nothing where nothing is held.
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
            redact: Names that mark a secret, besides the usual ones: a default under them is not written down.
        """

        def read() -> PythonTypes:
            from sayso.model.schema_of_types import of_function

            return of_function(function, redact)

        return cls(read)

    @classmethod
    def of_type(cls, annotation: Any) -> Schema:
        """Return the schema of an answer of this type."""

        def read() -> PythonTypes:
            from sayso.model.schema_of_types import of_type

            return of_type(annotation)

        return cls(read)

    @classmethod
    def of_json(cls, schema: Mapping[str, Any], *, option: str = "schema=") -> Schema:
        """Return the schema of a foreign tool's arguments, as its author wrote it.

        Args:
            schema: JSON Schema of draft 2020-12 (the default), 2019-09 or 7, of an object.
            option: What the caller calls it, for the error.

        Raises:
            ConfigError: It is no such schema, or refers to one that is not in it. Nothing was fetched.
        """
        return cls(None, foreign(schema, option))

    @classmethod
    def of_json_answer(cls, schema: Mapping[str, Any], *, option: str = "response_schema") -> Schema:
        """Return the schema of an answer that a JSON Schema describes; raises as `of_json` does."""
        return cls(None, foreign_answer(schema, option))

    @classmethod
    def from_text(cls, text: str) -> Schema:
        """Return the schema that was stored as `text`; nothing is imported.

        Raises:
            ValueError: It is not the text of a schema.
        """
        return _from_text(text)

    @classmethod
    def live(cls, digest: str) -> Schema | None:
        """Return the schema with this digest whose code lives in this process, if it was used here."""
        return _live.get(digest)

    def among(self, around: str) -> Schema:
        """Return the schema of the same live function when other values stand around it; it has another digest.

        Args:
            around: Digest of these values (see `sayso.model.fingerprint`).
        """
        return Schema(lambda: cast("PythonTypes", self.python), around=around)

    @cached_property
    def python(self) -> PythonTypes | None:
        """The function's own types, where its code lives in this process."""
        return None if self._read is None else self._read()

    @cached_property
    def tree(self) -> Node:
        """The schema, with the keywords of ours."""
        if self.python is None:
            return cast("Node", self._given)
        around = {} if self._around is None else {"x-sayso-around": self._around}
        return {"$schema": DRAFT, **around, **self.python.tree}

    @cached_property
    def text(self) -> str:
        """The schema as JSON, to be stored beside a request."""
        return text_of(self.tree)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex: of a signature's schema without titles and descriptions; of a foreign one, of all of it."""
        covered = mapped(self.tree, _without_words) if self.is_own else self.tree
        digest = hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        if self._read is not None:
            _live[digest] = self
        return digest

    @property
    def is_own(self) -> bool:
        """Whether it was made of a Python signature."""
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
        """The names of those that must be given."""
        return cast("list[str]", self.tree.get("required", ()))

    @property
    def classes(self) -> Mapping[str, type]:
        """The classes that may appear, by `module:QualName`: those of the annotations, and their known subclasses."""
        return {} if self.python is None else self.python.classes

    def resolved(self, node: Any) -> Node:
        """Return the schema that a node refers to, or itself."""
        return resolved(self.tree, node)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, without the keywords of ours."""
        return cast("dict[str, Any]", mapped(self.tree, _without_ours))

    # -- values ------------------------------------------------------------------------------------------------

    def fit(self, values: Mapping[str, Json], *, kept: Collection[str] = ()) -> dict[str, Json]:
        """Return the arguments of a call in canonical form, in the order of its parameters, with defaults filled in.

        JSON becomes what the types say: ISO text a date, base64 text bytes, an object a dataclass or model; enum
        members go by name or by value. A text where no text fits is read as a person types it (`"80"` is an integer).
        Where the code is at hand, the function's own types check and convert them too.

        Args:
            values: By name, in canonical form or as plain JSON.
            kept: Those that nobody changed; they stay to the byte, whatever their types say of them.

        Raises:
            SchemaError: With the problems found: unknown or missing names, wrong types, broken limits.
        """
        return self._fitted(self._as_typed(self.by_name(values), kept), kept)

    def _fitted(self, given: Mapping[str, Json], kept: Collection[str]) -> dict[str, Json]:
        # `limit: int = None` is no mistake of whoever leaves it out.
        spared = {name for name, form in given.items() if name in kept or self._is_default(name, form)}
        problems = [found for found in self._problems(given) if str((*found[0], "")[0]) not in spared]
        wrong = {str(where[0]) for where, _ in problems if where}
        fitted: dict[str, Json] = {}
        for name in [*self.properties, *(name for name in given if name not in self.properties)]:
            if name in given and (name in kept or name in wrong):
                fitted[name] = given[name]
            elif name in given:
                fitted[name], found = self._converted(name, given[name])
                problems += found
            elif name not in self.required and self.is_own:
                try:
                    fitted[name] = self._default(name, fitted)
                except ArgumentError as error:
                    problems.append(((name,), error.reason))
        self._raise(problems)
        return fitted

    def validate(self, values: Mapping[str, object], *, kept: Collection[str] = ()) -> dict[str, object]:
        """Return values as the function takes them, in the order of its parameters, with defaults filled in.

        Args:
            values: By name; values that have their type already, or JSON values.
            kept: Those that nobody changed; they stay, whatever their types say of them.

        Raises:
            SchemaError: With the problems found, as in `fit`; what has no canonical form is one.
        """
        forms, problems = dict[str, Json](), list[Problem]()
        for name, value in self.by_name(values).items():
            try:
                forms[name] = form_of(value)
            except ArgumentError as error:
                problems.append(_refused(name, error))
        self._raise(problems)
        made = dict[str, object]()
        # A foreign tool gets what the program gives: there a text is no number.
        given = self._as_typed(forms, kept) if self.is_own else forms
        for name, form in self._fitted(given, kept).items():
            try:
                made[name] = value_of(form, self.classes)
                check_round_trip(encode({name: made[name]}), self.classes)
            except ArgumentError as error:
                raise SchemaError([self._line(_refused(name, error))]) from None
        return made

    def misfits(self, values: Mapping[str, object]) -> list[str]:
        """Return what would keep a call with these values from being edited; cheap where they have their types."""
        quick = self._quick
        if all(type(value) is quick.get(name) or self._has_type(name, value) for name, value in values.items()):
            return []
        try:
            self.validate(values)
        except SchemaError as error:
            return error.problems
        return []

    @cached_property
    def has_bounds(self) -> bool:
        """Whether an argument has bounds beside its type."""
        # Whoever wrote bounds has imported one of these; without them nothing needs to be read.
        return bool(sys.modules.keys() & {"pydantic", "annotated_types"}) and bool(self._bounded)

    def out_of_bounds(self, values: Mapping[str, object]) -> list[str]:
        """Return what is wrong with those values whose author wrote bounds for them; nothing for the others."""
        if not self.has_bounds:
            return []
        checked = {name: values[name] for name in self._bounded if name in values}
        problems: list[Problem] = []
        for name, value in checked.items():
            if not self._has_type(name, value):
                problems += self._found_in(name, value)
        return [self._line(problem) for problem in problems]

    def parse(self, name: str, text: str) -> object:
        """Return the JSON value that a person typed for one argument, e.g. `80`, `"2026-01-31"`, `["a"]` or None.

        Raises:
            SchemaError: There is no such argument, or the text does not fit its type.
        """
        name = self._by_alias.get(name, name)
        if name not in self.properties and self.tree.get("additionalProperties", True) is False:
            self._raise([((name,), UNKNOWN)])
        try:
            parsed: list[Any] = [json.loads(text, parse_constant=_refuse)]
        except (ValueError, RecursionError):
            parsed = []
        node = self.resolved(self.properties.get(name, {}))
        parts = [node, *map(self.resolved, node.get("anyOf") or node.get("oneOf") or ())]
        if not node.keys() - _WORDS - {"default", "x-sayso-code", "x-sayso-alias"}:  # it may be anything
            if not parsed and text.strip()[:1] in {"{", "[", '"'}:
                raise SchemaError(
                    [f"{name}: Input begins like JSON and is none; give such a text in JSON's own quotes"]
                )
            readings = [*parsed, text]
        elif any(str(part.get("x-sayso-type", "")).partition(" ")[0] in SCALARS for part in parts):
            readings = [text, *parsed]  # `1.10` for a decimal is no float
        else:  # `80` for `int | str` is a number, and `"80"` with its quotes a text
            readings = [*(one for one in parsed if not isinstance(one, str)), text, *parsed]
        first: list[Problem] = []
        # A text inside of what was read may mean a number as well: `{"zip": "10435"}`.
        for reading in [*readings, *(self._as_typed({name: one}, ())[name] for one in [*parsed, text])]:
            problems = self._found_in(name, reading)
            if not problems:
                return reading
            first = first or problems
        raise SchemaError([self._line(problem) for problem in first])

    def by_name(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values by the names of the arguments, where some are given by an alias."""
        return by_name(values, self._by_alias)

    # -- inside ------------------------------------------------------------------------------------------------

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
        """The arguments of which nothing but one plain type is asked; looked up first, because most are."""
        plain = {name: node for name, node in self._nodes.items() if node.keys() - _WORDS - {"default"} == {"type"}}
        return {name: _QUICK[node["type"]] for name, node in plain.items() if node["type"] in _QUICK}

    @cached_property
    def _bounded(self) -> list[str]:
        python = self.python
        return [
            name for name, node in self.properties.items()
            if _has_bounds(node) or (python is not None and python.says_more(name))
        ]  # fmt: skip

    def _has_type(self, name: str, value: object) -> bool:
        if type(value) is self._quick.get(name):
            return True
        python = self.python
        if python is None or name not in self.properties:
            return False
        if name in python.defaults and value is python.defaults[name]:
            return True
        # Whatever they make of it: the call keeps the value that it was given.
        return not python.check(name, value)[1]

    def _found_in(self, name: str, value: object) -> list[Problem]:
        """Return what is wrong with one argument."""
        try:
            form = form_of(value)
        except ArgumentError as error:
            return [_refused(name, error)]
        if self._is_default(name, form):
            return []
        found = [problem for problem in self._problems({name: form}) if problem[0][:1] == (name,)]
        return found or self._converted(name, form)[1]

    def _as_typed(self, values: Mapping[str, Json], kept: Collection[str]) -> dict[str, Json]:
        """Return values in which a text is the number, truth value or null that its place takes."""
        given = dict(values)
        plain = {name: form for name, form in values.items() if name not in kept and plain_json(form) == form}
        for (name, *steps), new in self._checked(self._checker.readings, plain):
            given[str(name)] = _replaced(given[str(name)], steps, new)
        return given

    def _problems(self, forms: Mapping[str, Json]) -> list[Problem]:
        return self._checked(self._checker.problems, {name: plain_json(form) for name, form in forms.items()})

    def _checked(self, look: Callable[[Any], list[Any]], value: Any) -> list[Any]:
        try:
            return look(value)
        except (ValueError, RecursionError) as error:
            raise SchemaError([f"arguments: cannot be checked ({error})"]) from None

    @cached_property
    def _checker(self) -> Checker:
        return self._checker_of(self.tree)

    def _checker_of(self, tree: Node) -> Checker:
        try:
            return own_checker(tree) if self.is_own else Checker(tree)
        except ValueError as error:
            raise SchemaError([f"the schema cannot be read ({error})"]) from None

    @cached_property
    def _parts(self) -> dict[str, Checker]:
        return {}

    def _fits(self, part: Any, value: Any) -> bool:
        """Say whether a JSON value fits one of several alternatives."""
        text = json.dumps(part)
        if text not in self._parts:
            self._parts[text] = self._checker_of({"$defs": self.tree.get("$defs", {}), "allOf": [part]})
        return not self._checked(self._parts[text].problems, value)

    def _converter(self) -> Converter:
        return Converter(self.tree, self.python is None, self._fits)

    def _converted(self, name: str, form: Json) -> tuple[Json, list[Problem]]:
        """Return an argument that fits in canonical form, checked by its own type where that is here."""
        if not self.is_own:
            return form, []
        is_default = self._is_default(name, form)
        node = self.properties.get(name, self.tree.get("additionalProperties", {}))
        try:
            made = self._converter().convert(node, form, (name,))
        except Misfit as misfit:
            return form, [] if is_default else [*misfit.problems]
        if self.python is None or is_default:
            return made, []
        try:
            value, problems = self.python.check(name, value_of(made, self.classes))
        except ArgumentError as error:
            return made, [_refused(name, error)]
        return made if problems else form_of(value), problems

    def _default(self, name: str, given: Mapping[str, Json]) -> Json:
        if self.python is not None:
            return form_of(self.python.default(name, partial(self._values, given)))
        if "default" not in self.properties[name]:
            raise ArgumentError(name, "has a default that only the program knows; give a value")
        return self._converter().default(self.properties[name], (name,))

    def _values(self, forms: Mapping[str, Json]) -> dict[str, object]:
        return {name: value_of(form, self.classes) for name, form in forms.items()}

    def _is_default(self, name: str, form: Json) -> bool:
        return name in self._defaults and dump(form) in self._defaults[name]

    @cached_property
    def _defaults(self) -> dict[str, set[str]]:
        """The texts of the default values that are known here."""
        if self.python is not None:
            found = dict[str, set[str]]()
            for name, value in self.python.defaults.items():
                with suppress(ArgumentError):
                    found[name] = {dump(form_of(value))}
            return found
        if not self.is_own:
            return {}
        named = {name: node for name, node in self._nodes.items() if "default" in node}
        written = self._converter().default
        return {name: {dump(node["default"]), dump(written(node, (name,)))} for name, node in named.items()}

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
        more = f"; give the whole of {whole} as JSON" if whole != name and whole in self.properties else ""
        return f"{ascii(name)[1:-1]}: there is no such argument ({listed}){more}"


def _refused(name: str, error: ArgumentError) -> Problem:
    # `form_of` calls what it is given `value`; what is in it comes after.
    steps = _STEP.findall(error.argument.removeprefix("value").removeprefix(name))
    return (name, *(int(place) if place else field for place, field in steps)), error.reason


def _replaced(tree: Any, steps: list[str | int], new: Json) -> Json:
    if not steps:
        return new
    copy = tree.copy()
    copy[steps[0]] = _replaced(tree[steps[0]], steps[1:], new)
    return copy


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _without_words(node: Node) -> Node:
    found = {key: part for key, part in node.items() if key not in _WORDS}
    return {**found, "anyOf": sorted(found["anyOf"], key=dump)} if "anyOf" in found else found


def _without_ours(node: Node) -> Node:
    return {key: part for key, part in node.items() if not key.startswith("x-sayso-")}


def _has_bounds(node: Any) -> bool:
    found: list[Node] = []
    mapped(node, lambda one: found.append(one) or one)
    # The pattern of a decimal is that of all decimals.
    return any(one.keys() & _BOUNDS - ({"pattern"} if one.get("x-sayso-type") == "decimal" else set()) for one in found)


@lru_cache(maxsize=128)
def _from_text(text: str) -> Schema:
    # Kept, because validators are compiled and a list of requests asks for the same few schemas.
    given = json.loads(text)
    if not isinstance(given, dict) or "$schema" not in given:
        raise ValueError("this is not the text of a schema that this version of sayso knows")
    return Schema(None, cast("Node", given))


_live: WeakValueDictionary[str, Schema] = WeakValueDictionary()
