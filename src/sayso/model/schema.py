"""Which arguments a call takes, or what a question's answer may be: a JSON Schema of draft 2020-12.

One kind of schema for everybody. pydantic makes it of a function's signature at the first held call
(`Schema.of`; `sayso.model.python_types`), or a foreign tool brings its own, of draft 2020-12, 2019-09 or 7
(`Schema.of_json`). Its text is stored beside the request, its digest is in the call's. A reviewer's process checks an
edit by the text alone and writes it in canonical form; the process that has the code checks it by the function's own
types as well. Nothing is imported by a name in a text, and nothing is fetched for a `$ref`.

What JSON has no word for stands in keywords of our own, in schemas of signatures alone:

- `x-sayso-type`: a JSON text is a `date`, `datetime`, `time`, `timedelta`, `decimal`, `uuid`, `path`, `bytes` (base64),
  `secret str`, `secret bytes` or a `str` that is changed when it is read, and a number is a `float`; an array is a
  `tuple` or a `set`; an object is a `model`, `dataclass` or `root` with the name of its class.
- `x-sayso-limits`: what pydantic holds such a text to, in canonical form.
- `x-sayso-values`: the canonical form of each value of `enum`; `x-sayso-also`: what else is taken for it.
- `x-sayso-strict`: no text is taken for a number, nor `5.0` for an integer.
- `x-sayso-alias`: other names of a property. `x-sayso-code`: the program's code says more of it; an object of such a
  class is only built there.
- At the top `x-sayso-signature`, the names and kinds of the parameters; `x-sayso-function`, where its code says more;
  `x-sayso-around`, the digest of the values around it.

The invariant: what fits in a reviewer's process is what the function's own types are given, to the byte.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, check_round_trip, encode, form_of, text_of, value_of
from sayso.model.canonical.names import place
from sayso.model.canonical.tags import dump
from sayso.model.json_schema import (
    DRAFT,
    UNKNOWN,
    Node,
    Problem,
    compiled,
    foreign,
    foreign_answer,
    lookup,
    mapped,
    problems_of,
)

if TYPE_CHECKING:
    import jsonschema_rs

    from sayso.model.python_types import PythonTypes
    from sayso.model.schema_fit import Fitter

__all__ = ["Schema", "SchemaError"]

_WORDS = frozenset({"title", "description", "examples", "deprecated", "$comment"})
_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "x-sayso-limits", "x-sayso-strict"}
)
# pydantic reads the texts of these, and takes more than the formats do: a time without an offset.
_OWN_FORMATS = ("date", "date-time", "time", "duration", "uuid", "path", "password", "binary")
_QUICK: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
_ABSENT: Any = object()


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
            from sayso.model.python_types import of_function

            return of_function(function, redact)

        return cls(read)

    @classmethod
    def of_type(cls, annotation: Any) -> Schema:
        """Return the schema of an answer of this type."""

        def read() -> PythonTypes:
            from sayso.model.python_types import of_type

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
        told_of = mapped(self.tree, _without_words) if self.is_own else self.tree
        digest = hashlib.sha256(json.dumps(told_of, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
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
        for _ in range(50):
            if not isinstance(node, dict) or not str(cast("Node", node).get("$ref", "")).startswith("#/"):
                break
            node = lookup(self.tree, cast("Node", node)["$ref"])
        return cast("Node", node) if isinstance(node, dict) else {}

    @cached_property
    def validators(self) -> tuple[jsonschema_rs.Validator, jsonschema_rs.ValidatorMap]:
        """What checks all arguments, and parts of them by JSON pointer; `ValueError` where the text is no schema."""
        return compiled(self.tree, formats=_OWN_FORMATS if self.is_own else ())

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, without the keywords of ours."""
        return cast("dict[str, Any]", mapped(self.tree, _without_ours))

    # -- values ------------------------------------------------------------------------------------------------

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Refuse JSON values that do not fit as they are: here a text is no number.

        Raises:
            SchemaError: With every problem found.
        """
        try:
            self._raise(list(problems_of(self.validators[0].iter_errors(dict(arguments)), self.tree)))
        except SchemaError:
            raise
        except ValueError as error:  # nested too deeply
            raise SchemaError([f"arguments: cannot be checked ({error})"]) from None

    def fit(self, values: Mapping[str, Json], *, kept: Collection[str] = ()) -> dict[str, Json]:
        """Return the arguments of a call in canonical form, in the order of its parameters, with defaults filled in.

        Text becomes what the type says (`"80"` an integer, ISO text a date, base64 text bytes), objects become
        dataclasses and models, enum members go by name or by value. Where the code is at hand, the function's own
        types check them too.

        Args:
            values: By name, in canonical form or as plain JSON.
            kept: Those that nobody changed; they stay to the byte, whatever their types say of them.

        Raises:
            SchemaError: With every problem found: unknown or missing names, wrong types, broken limits.
        """
        fitted, problems = self._fitted(self.by_name(values), kept)
        if self.python is not None:
            wrong = {problem[0][:1] for problem in problems}
            for name in [name for name in fitted if name in values and name not in kept and (name,) not in wrong]:
                value, found = self._own(name, fitted[name])
                problems += found
                fitted[name] = fitted[name] if found else form_of(value)
        self._raise(problems)
        return fitted

    def validate(self, values: Mapping[str, object], *, kept: Collection[str] = ()) -> dict[str, object]:
        """Return values as the function takes them, in the order of its parameters, with defaults filled in.

        Values that have their type already are left alone, JSON values become what the types say.

        Args:
            values: By name.
            kept: Those that nobody changed; they stay, whatever their types say of them.

        Raises:
            SchemaError: With every problem found, as in `fit`; what has no canonical form is one.
        """
        values, forms, problems = self.by_name(values), dict[str, Json](), list[Problem]()
        for name, value in values.items():
            try:
                forms[name] = form_of(value)
            except ArgumentError as error:
                forms[name] = None
                problems.append(((name, *_steps(error.argument)), error.reason))
        fitted, found = self._fitted(forms, {*kept, *(str(problem[0][0]) for problem in problems)})
        problems += found
        made: dict[str, object] = {}
        wrong = {problem[0][:1] for problem in problems}
        for name, form in ((name, form) for name, form in fitted.items() if (name,) not in wrong):
            is_same = name in values and dump(form) == dump(forms[name])
            made[name], found = self._own(name, form, values[name] if is_same else _ABSENT)
            if name in kept:
                made[name], found = values[name], []
            problems += found
        self._raise(problems)
        try:
            check_round_trip(encode(made), self.classes)
        except ArgumentError as error:
            raise SchemaError([f"{error.argument}: {error.reason}"]) from None
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
        from sayso.model.schema_fit import is_torn, readings

        name = self._by_alias.get(name, name)
        if name not in self.properties and self.tree.get("additionalProperties", True) is False:
            raise SchemaError([self._line(((name,), UNKNOWN))])
        node = self.properties.get(name, {})
        if not self.resolved(node).keys() - _WORDS - {"default", "x-sayso-code", "x-sayso-alias"} and is_torn(text):
            raise SchemaError([f"{name}: Input begins like JSON and is none; give such a text in JSON's own quotes"])
        first: list[Problem] = []
        for reading in readings(self, name, text):
            problems = self._found_in(name, reading)
            if not problems:
                return reading
            first = first or problems
        raise SchemaError([self._line(problem) for problem in first])

    def by_name(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values by the names of the arguments, where some are given by an alias.

        One that is given twice keeps its alias, by which it will be refused.
        """
        if not self._by_alias.keys() & values.keys():
            return values
        named = {name: value for name, value in values.items() if name not in self._by_alias}
        for alias, name in self._by_alias.items():
            if alias in values:
                named[alias if name in named else name] = values[alias]
        return named

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
        told = {
            name: {k: v for k, v in node.items() if k not in {*_WORDS, "default"}} for name, node in self._nodes.items()
        }
        return {
            name: _QUICK[node["type"]]
            for name, node in told.items()
            if node.keys() == {"type"} and node["type"] in _QUICK
        }

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
        try:
            form = form_of(value)
        except ArgumentError as error:
            return [((name, *_steps(error.argument)), error.reason)]
        if self._is_default(name, form):
            return []
        fitter = self._fitter()
        fitted = fitter.at(name, form)
        fitter.check_one(name, fitted)
        return fitter.problems or ([] if self.python is None else self._own(name, fitted)[1])

    def _own(self, name: str, form: Json, value: object = _ABSENT) -> tuple[object, list[Problem]]:
        """Return an argument as a Python value, checked by its own type where that is here."""
        if value is _ABSENT:
            try:
                value = value_of(form, self.classes)
            except ArgumentError as error:
                return None, [((name, *_steps(error.argument)), error.reason)]
        if self.python is None or self._is_default(name, form):
            return value, []
        return self.python.check(name, value)

    def _fitted(self, values: Mapping[str, Json], kept: Collection[str]) -> tuple[dict[str, Json], list[Problem]]:
        fitter, fitted, spared = self._fitter(), dict[str, Json](), set(kept)
        for name in [*self.properties, *(name for name in values if name not in self.properties)]:
            if name in values and (name in kept or self._is_default(name, values[name])):
                fitted[name] = values[name] if name in kept else fitter.default(name, values[name])
                spared.add(name)  # `limit: int = None` is no mistake of whoever leaves it out
            elif name not in self.properties and self.tree.get("additionalProperties") is False:
                fitter.problems.append(((name,), UNKNOWN))
            elif name in values:
                fitted[name] = fitter.at(name, values[name])
            elif name not in self.required and self.is_own:
                spared.add(name)
                try:
                    fitted[name] = self._default(name, fitted)
                except ArgumentError as error:
                    fitter.problems.append(((name,), error.reason))
        fitter.check(fitted, spared)
        return fitted, fitter.problems

    def _fitter(self) -> Fitter:
        from sayso.model.schema_fit import Fitter

        try:
            _ = self.validators
        except ValueError as error:
            raise SchemaError([f"the schema cannot be read ({error})"]) from None
        return Fitter(self, builds=self.python is None)

    def _default(self, name: str, given: Mapping[str, Json]) -> Json:
        if self.python is not None:
            before = partial(self._values, given)
            return form_of(self.python.default(name, before))
        if "default" not in self.properties[name]:
            raise ArgumentError(name, "has a default that only the program knows; give a value")
        return self._fitter().default(name, self.properties[name]["default"])

    def _values(self, forms: Mapping[str, Json]) -> dict[str, object]:
        return {name: value_of(form, self.classes) for name, form in forms.items()}

    def _is_default(self, name: str, form: Json) -> bool:
        if self.python is not None:
            if name not in self.python.defaults:
                return False
            try:
                return dump(form) == dump(form_of(self.python.defaults[name]))
            except ArgumentError:
                return False
        node = self._nodes.get(name, {})
        if "default" not in node or not self.is_own:
            return False
        return dump(form) in {dump(node["default"]), dump(self._fitter().default(name, node["default"]))}

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


def _steps(argument: str) -> tuple[str, ...]:
    # `form_of` calls what it is given `value`; what is in it comes after.
    rest = argument.removeprefix("value")
    return () if not rest else (rest,)


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
