"""Conditions of rules: CEL over `args`, `tool`, `run`, `agent` and `now`, checked against the schema of a tool.

A condition is compiled twice. The first compilation checks it with the types of the schema, where `args.amount` is a
separate variable and a whole number may be compared with a fraction. The second one runs it, on values that were
converted to those types. Invariant: a condition gives exactly true or false; anything else is `UndecidedError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import cache
from math import isfinite
from typing import Any, NamedTuple, cast

from sayso import errors
from sayso.model import canonical
from sayso.model.redaction import MASK
from sayso.model.schema import Schema
from sayso.model.text import closest


class ConditionError(ValueError):
    """A condition does not parse, or does not match the schema of a tool.

    Attributes:
        problems: Line, column (from 1, in the condition) and message of each problem.
    """

    def __init__(self, problems: list[tuple[int, int, str]]) -> None:
        super().__init__(problems[0][2])
        self.problems = problems


class UndecidedError(ValueError):
    """A condition gave neither true nor false for a call.

    Attributes:
        masked: The names of the arguments that it needs whose values are masked.
    """

    def __init__(self, message: str, masked: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.masked = masked


class Facts(NamedTuple):
    """What a condition may use.

    Attributes:
        arguments: By name, as plain JSON (see `Facts.of`), without those that could not be converted.
        refused: Why the missing arguments could not be converted, by name.
        tool: Name of the tool.
        run: Name of the run, if it has one.
        agent: Who asks, if known.
        now: The time, in UTC.
    """

    arguments: Mapping[str, Any]
    refused: Mapping[str, str]
    tool: str
    run: str | None
    agent: str | None
    now: datetime

    @classmethod
    def of(cls, tool: str, arguments: Mapping[str, Any], run: str | None, agent: str | None, now: datetime) -> Facts:
        """Return the facts about a call, with Python values as JSON, as reviewers see them."""
        plain: dict[str, Any] = {}
        refused: dict[str, str] = {}
        for name, value in arguments.items():
            if value is None or type(value) in {str, int, bool} or (type(value) is float and isfinite(value)):
                plain[name] = value
                continue
            try:
                form = canonical.encode({name: value})
            except errors.ArgumentError as error:
                refused[name] = error.reason
            else:
                plain[name] = cast("dict[str, Any]", canonical.display(canonical.load(form.text)))[name]
        return cls(plain, refused, tool, run, agent, now)


# -- types ---------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """The type of an argument: its CEL name, its CEL name if it may be null, and the conversion from JSON."""

    cel: str
    nullable: str
    convert: Callable[[Any], Any]
    may_be_null: bool = False


class _Refused(ValueError):
    """A value does not have the type in the schema."""


_INT64 = 1 << 63
_DIGITS = 15
"""The maximum number of digits with which two different decimals are also different as binary fractions."""


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _Refused("is not a string")
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _Refused("is neither true nor false")
    return value


def _whole(value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise _Refused("is not a whole number")
    if not -_INT64 <= value < _INT64:
        raise _Refused("does not fit into 64 bits")
    return value


def _number(value: Any) -> float:
    if type(value) is int:
        if abs(value) > 1 << 53:
            raise _Refused("is too large to be compared exactly")
        return float(value)
    if type(value) is not float:
        raise _Refused("is not a number")
    return value


def _decimal(value: Any) -> float:
    if type(value) is not str:
        return _number(value)
    try:
        exact = Decimal(value)
    except InvalidOperation:
        raise _Refused("is not a decimal number") from None
    if not exact.is_finite() or len(exact.normalize().as_tuple().digits) > _DIGITS or abs(exact.adjusted()) > 300:
        raise _Refused(f"has more than {_DIGITS} digits and cannot be compared exactly")
    return float(exact)


def _instant(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(_text(value))
    except ValueError:
        raise _Refused("is not a date with a time") from None
    if found.tzinfo is None:
        raise _Refused("is a time without a time zone")
    return found.astimezone(UTC)


def _day(value: Any) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(_text(value)), time(), UTC)
    except ValueError:
        raise _Refused("is not a date") from None


def _span(value: Any) -> Any:
    from datetime import timedelta

    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(timedelta).validate_python(_text(value))
    except ValidationError:
        raise _Refused("is not a duration") from None


def _anything(value: Any) -> Any:
    if type(value) is str and MASK in value:
        raise _Refused(MASK)
    if isinstance(value, dict):
        return {name: _anything(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_anything(item) for item in cast("list[Any]", value)]
    return _whole(value) if type(value) is int else value


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Refused("is not an object")
    return _anything(value)


_STRING = _Kind("string", "google.protobuf.StringValue", _text)
_BOOL = _Kind("bool", "google.protobuf.BoolValue", _bool)
_INT = _Kind("int", "google.protobuf.Int64Value", _whole)
_DOUBLE = _Kind("double", "google.protobuf.DoubleValue", _number)
_DECIMAL = _DOUBLE._replace(convert=_decimal)
_INSTANT = _Kind("timestamp", "timestamp", _instant)
_DAY = _INSTANT._replace(convert=_day)
_SPAN = _Kind("duration", "duration", _span)
_ANY = _Kind("dyn", "dyn", _anything)
_MAP = _Kind("map<string, dyn>", "dyn", _fields)
_BY_TYPE = {"string": _STRING, "boolean": _BOOL, "integer": _INT, "number": _DOUBLE}
_OF_OURS = {"decimal": _DECIMAL, "datetime": _INSTANT, "date": _DAY, "timedelta": _SPAN}
_OF_FORMAT = {"date-time": _INSTANT, "date": _DAY}
_DEEPEST = 6
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)

Path = tuple[str, ...]


def _shape(schema: Schema) -> tuple[dict[Path, _Kind], set[Path]]:
    """Return the kinds of the arguments and of the fields of nested objects, and the paths of these objects."""
    kinds, objects = dict[Path, _Kind](), set[Path]()

    def walk(properties: Mapping[str, Any], place: Path) -> None:
        for name, given in properties.items():
            if _NAME.fullmatch(name) is None:
                continue
            node, is_nullable = _without_null(schema, given)
            here = (*place, name)
            if node.get("properties") and len(here) < _DEEPEST:
                objects.add(here)
                walk(node["properties"], here)
                continue
            kind = _kind_of(schema, node, len(here))
            kinds[here] = kind._replace(cel=kind.nullable, may_be_null=True) if is_nullable else kind

    walk(schema.properties, ())
    return kinds, objects


def _without_null(schema: Schema, given: Any) -> tuple[Mapping[str, Any], bool]:
    """Return the schema of a node without null, and whether null is allowed."""
    node: Mapping[str, Any] = schema.resolved(given)
    types: Any = node.get("type")
    if isinstance(types, list):
        rest = [one for one in cast("list[str]", types) if one != "null"]
        single = {**node, "type": rest[0] if len(rest) == 1 else rest}
        return single, len(rest) < len(cast("list[str]", types))
    parts: list[Any] = [schema.resolved(part) for part in node.get("anyOf") or node.get("oneOf") or ()]
    rest = [part for part in parts if part.get("type") != "null"]
    if not rest:
        return node, False
    return (rest[0] if len(rest) == 1 else {"parts": rest}), len(rest) < len(parts)


def _kind_of(schema: Schema, node: Mapping[str, Any], depth: int) -> _Kind:
    if "parts" in node:
        kinds = [_kind_of(schema, part, depth) for part in node["parts"]]
        if all(kind.cel in {"int", "double"} for kind in kinds):
            return _DECIMAL if _DECIMAL in kinds else _DOUBLE
        return _ANY
    kind = node.get("type")
    ours = str(node.get("x-sayso-type", "")).partition(" ")[0]
    if kind == "string":
        return _OF_OURS.get(ours) or _OF_FORMAT.get(str(node.get("format")), _STRING)
    if kind == "array":
        items = node.get("items")
        item, is_nullable = _without_null(schema, {} if items is None else items)
        return _list_of(_ANY if is_nullable or depth >= _DEEPEST else _kind_of(schema, item, depth + 1))
    if kind == "object":
        return _MAP
    if kind is None and "enum" in node:
        values: list[Any] = node["enum"]
        return _STRING if all(type(value) is str for value in values) else _ANY
    return _BY_TYPE.get(str(kind), _ANY)


def _list_of(item: _Kind) -> _Kind:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _Refused("is not a list")
        return [item.convert(one) for one in cast("list[Any]", value)]

    return _Kind(f"list<{item.cel}>", "dyn", convert)


# -- the expression ------------------------------------------------------------------------------------------------

_LITERALS = re.compile(r'//[^\n]*|[rRbB]{0,2}("""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')')  # fmt: skip  # noqa: E501
_HAS = re.compile(r"(?<![\w.])has\s*\(\s*args((?:\s*\.\s*[A-Za-z_]\w*)+)\s*\)", re.ASCII)
_CHAIN = re.compile(r"(?<![\w.])args((?:\s*\.\s*[A-Za-z_]\w*)+)", re.ASCII)
_PROBLEM = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_STATUS = re.compile(r"^(?:[A-Z_]+: )*(?:<input>:-1:-1: )?| \[[A-Z_]+\]$")
_UNKNOWN_NAME = re.compile(r"undeclared reference to '([^']*)'")
_NO_VALUE = re.compile(r'No value with name "args\.([^"]*)"|Key not found in map : "([^"]*)"')


def _parts(chain: str) -> Path:
    return tuple(part.strip() for part in chain.split(".")[1:])


class Condition:
    """A condition, compiled for the arguments of one tool.

    Args:
        text: The CEL expression.
        schema: The schema of the tool's arguments. If it is None (unknown), `args` is an untyped map.
        tool: The tool's name, for messages.

    Raises:
        ConditionError: The text does not parse, or does not match the schema.
        ConfigError: The CEL library is not installed.
    """

    def __init__(self, text: str, schema: Schema | None, tool: str = "the tool") -> None:
        self.text, self._tool = text, tool
        kinds, objects = _shape(schema) if schema is not None and schema.properties else (None, set[Path]())
        self._is_typed = kinds is not None
        self._kinds: dict[Path, _Kind] = {("args",): _ANY} if kinds is None else kinds
        self._names = [".".join(path) for path in self._kinds]
        code, self._given = self._with_presence(objects)
        bare = _LITERALS.sub(lambda found: " " * len(found[0]), text)
        chains = [_parts(found[1]) for found in _CHAIN.finditer(bare)]
        if self._is_typed:
            self._kinds = {
                path: kind for path, kind in self._kinds.items() if any(c[: len(path)] == path for c in chains)
            }
        self._wanted = [(".".join(path), path, kind) for path, kind in self._kinds.items()]
        # Pass only the variables that are used: each costs half a microsecond of the four that an evaluation takes.
        self._beside = [name for name in ("tool", "run", "agent", "now") if re.search(rf"\b{name}\b", bare)]
        self._program = self._compiled(code)

    def _with_presence(self, objects: set[Path]) -> tuple[str, dict[str, Path]]:
        """Return the expression with each `has(args.x)` replaced by a variable of the same length, and their paths.

        CEL does not support `has()` on a variable with a dotted name.
        """
        given: dict[str, Path] = {}
        problems: list[tuple[int, int, str]] = []
        spans = [found.span() for found in _LITERALS.finditer(self.text)]

        def variable(found: re.Match[str]) -> str:
            if any(begin <= found.start() < end for begin, end in spans):
                return found[0]
            path = _parts(found[1])
            if self._is_typed and path not in self._kinds and path not in objects:
                before = self.text[: found.start()]
                at = before.count("\n") + 1, found.start() - (before.rfind("\n") + 1) + 1
                problems.append((*at, self._no_argument(".".join(path))))
            lines = found[0].count("\n")
            name = f"_h{len(given)}".ljust(len(found[0]) - lines, "_")
            given[name] = path
            return name + "\n" * lines

        code = _HAS.sub(variable, self.text)
        if problems:
            raise ConditionError(problems)
        return code, given

    def _no_argument(self, name: str) -> str:
        near = closest(name, self._names)
        meant = f" (there are {', '.join(self._names)})" if near is None else f"; did you mean args.{near}?"
        return f"{self._tool} has no argument {name!r}{meant}"

    def _compiled(self, code: str) -> Any:
        cel = library()
        known = {name: cel.Type("bool") for name in self._given}
        known |= {"tool": cel.Type("string"), "now": cel.Type("timestamp")}
        known |= {name: cel.Type("google.protobuf.StringValue") for name in ("run", "agent")}
        loose = dict.fromkeys(known, cel.Type("dyn")) | {"now": known["now"]}
        if self._is_typed:
            typed = {f"args.{'.'.join(path)}": cel.Type(kind.cel) for path, kind in self._kinds.items()}
        else:
            typed = {"args": cel.Type("map<string, dyn>")}
        try:
            checked = cel.NewEnv(variables=known | typed, config=_lenient()).compile(code)
            result = checked.return_type().name()
            if result not in {"BOOL", "DYN"}:
                raise ConditionError([(1, 1, f"gives {result.lower()}, but a condition must be true or false")])
            # Timestamps and durations keep their own type; any other value may also be null.
            timed = {
                name: kind for name, kind in typed.items() if "TIMESTAMP" in kind.name() or "DURATION" in kind.name()
            }
            return cel.NewEnv(variables=loose | dict.fromkeys(typed, cel.Type("dyn")) | timed).compile(code)
        except RuntimeError as error:
            found = [self._in_words(int(line), int(at), text) for line, at, text in _PROBLEM.findall(str(error))]
            raise ConditionError(found or [(1, 1, _STATUS.sub("", str(error).splitlines()[0]))]) from None

    def _in_words(self, line: int, column: int, text: str) -> tuple[int, int, str]:
        unknown = _UNKNOWN_NAME.search(text)
        if unknown is not None:
            name = unknown[1]
            column = max(1, column - len(name.rpartition(".")[0]))
            if self._is_typed and name.startswith("args."):
                return line, column, self._no_argument(name.removeprefix("args."))
            if self._is_typed and name == "args":
                return line, column, f"args cannot be used as a whole where the arguments of {self._tool} are known"
            return line, column, f"unknown name {name!r}; a condition can use args, tool, run, agent and now"
        if "no matching overload" in text and re.search(r"'_[-+*/%]_'.*(int, double|double, int)", text):
            text += "; write 2.0 for 2 where a number may be a fraction"
        return line, column, _STATUS.sub("", text.replace("Syntax error: ", ""))

    def decide(self, facts: Facts) -> bool:
        """Evaluate the condition for a call.

        Raises:
            UndecidedError: The result is neither true nor false, or a value is missing, masked or not of its type.
        """
        values: dict[str, Any] = {name: getattr(facts, name) for name in self._beside}
        missing: dict[str, str] = {}
        if self._is_typed:
            self._add(values, missing, facts)
        else:
            values["args"] = made = dict[str, Any]()
            missing |= facts.refused
            for name, value in facts.arguments.items():
                try:
                    made[name] = None if value is None else _anything(value)
                except _Refused as error:
                    missing[name] = str(error)
        for name, path in self._given.items():
            values[name] = _at(facts.arguments, path) is not None or path[0] in facts.refused
        try:
            result = self._program.eval(data=values)
        except RuntimeError as error:  # CEL ends an evaluation that takes too many steps
            is_long = "budget" in str(error)
            raise UndecidedError("looks at too many values" if is_long else "could not be evaluated") from None
        value = result.value()
        if value is True or value is False:
            return value
        raise self._undecided(result, missing)

    def _add(self, values: dict[str, Any], missing: dict[str, str], facts: Facts) -> None:
        """Add the arguments that the condition uses, converted to their types, or the reasons why they are missing."""
        for name, path, kind in self._wanted:
            found = _at(facts.arguments, path)
            if path[0] in facts.refused:
                missing[name] = facts.refused[path[0]]
            elif type(found) is str and MASK in found:
                missing[name] = MASK
            elif found is not None:
                try:
                    values[f"args.{name}"] = kind.convert(found)
                except _Refused as error:
                    is_masked = isinstance(found, dict | list) and MASK in str(cast("object", found))
                    missing[name] = MASK if is_masked else str(error)
            elif not isinstance(here := _at(facts.arguments, path[:-1]), dict) or path[-1] not in here:
                continue  # not given
            elif (kind.may_be_null or kind.cel == "dyn") and kind.cel not in {"timestamp", "duration"}:
                values[f"args.{name}"] = None
            else:
                missing[name] = f"is null; test has(args.{name}) first"

    def _undecided(self, result: Any, missing: Mapping[str, str]) -> UndecidedError:
        text = str(result.value())
        masked = tuple(name for name, reason in missing.items() if reason == MASK)
        for name, reason in missing.items():
            if reason != MASK:
                return UndecidedError(f"args.{name} {reason}", masked)
        if masked:
            return UndecidedError(f"args.{masked[0]} is masked", masked)
        absent = _NO_VALUE.search(text)
        if absent is not None:
            name = absent[1] or absent[2]
            return UndecidedError(f"{name!r} was not given; test has(args.{name}) first")
        if result.type().name() != "ERROR":
            return UndecidedError(f"gave a {result.type().name().lower()}, but a condition must be true or false")
        # CEL's own message may quote a value; these two never do.
        safe = "divide by zero" in text or "No matching overload" in text
        return UndecidedError(text if safe else f"could not be evaluated ({text.partition(':')[0]})")


def _at(arguments: Mapping[str, Any], path: Path) -> Any:
    """Return the value at a path; None if it is null or missing."""
    here: Any = arguments
    for name in path:
        if not isinstance(here, dict):
            return None
        here = cast("dict[str, Any]", here).get(name)
    return here


# -- the library ---------------------------------------------------------------------------------------------------


@cache
def library() -> Any:
    """Return the CEL library; raises `ConfigError` if it is not installed."""
    try:
        from cel_expr_python import cel  # pyright: ignore[reportMissingTypeStubs]  it has none
    except ImportError:
        raise errors.ConfigError(
            'conditions of a policy need the extra `policy`: pip install "sayso[policy]"'
        ) from None
    return cel


_COMPARED = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
_ORDERED = {
    "bool": "bool", "int64": "int", "uint64": "uint", "double": "double", "string": "string", "bytes": "bytes",
    "timestamp": "timestamp", "duration": "duration",
}  # fmt: skip
_A = "{type_name: A, is_type_param: true}"
_MIXED = (("double", "int"), ("int", "double"))


@cache
def _lenient() -> Any:
    """Return the standard functions, with the comparisons between whole numbers and fractions that CEL can run.

    CEL's type checker rejects `args.amount <= 50` for a fraction, so people would have to write `50.0`.
    """
    named = {
        name: [(f"{word}_{k}", _type(t), _type(t)) for k, t in _ORDERED.items()] for name, word in _COMPARED.items()
    }
    named |= {"_==_": [("equals", _A, _A)], "_!=_": [("not_equals", _A, _A)]}
    for overloads in named.values():
        overloads += [(f"{overloads[0][0]}_{a}_{b}", _type(a), _type(b)) for a, b in _MIXED]
    named["@in"] = [
        ("in_list", _A, _list(_A)),
        ("in_map", _A, f"{{type_name: map, params: [{_A}, {_A.replace('A', 'B', 1)}]}}"),
    ]
    named["@in"] += [(f"in_{a}_{b}", _type(a), _list(_type(b))) for a, b in _MIXED]
    lines = ["name: sayso", "stdlib:\n  exclude_functions:", *(f'  - name: "{name}"' for name in named), "functions:"]
    for name, overloads in named.items():
        lines.append(f'- name: "{name}"\n  overloads:')
        for identity, left, right in overloads:
            lines.append(f"  - id: {identity}\n    args: [{left}, {right}]\n    return: {{type_name: bool}}")
    return library().NewEnvConfigFromYaml("\n".join(lines))


def _type(name: str) -> str:
    return f"{{type_name: {name}}}"


def _list(item: str) -> str:
    return f"{{type_name: list, params: [{item}]}}"
