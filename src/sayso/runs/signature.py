"""`Signature`: the names and types that a module takes and gives, from one line of text or from two pydantic models.

`Prediction` holds the outputs by name, as attributes and as items. Text is read by Python's grammar for parameter lists
and is never evaluated: a type is looked up by its name among those that are listed here.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, Optional, Union, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sayso.errors import ConfigError
from sayso.model.schema import SchemaError

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # pydantic asks for it before 3.12, and brings it


class Prediction(dict[str, Any]):
    """The outputs of a module, e.g. `prediction.answer` or `prediction["answer"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            there = ", ".join(self) or "none"
            raise AttributeError(f"this prediction has no field {name!r}; there are: {there}", name=name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"Prediction({', '.join(f'{name}={value!r}' for name, value in self.items())})"


_PLAIN_TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, bytes, list, dict, tuple, set)},
    "Any": Any,
    "None": None,
}
_MOST, _DEEPEST = 2_000, 12  # characters, and brackets in brackets: more is no signature


class Fields:
    """The names and types of one side.

    Args:
        kind: A pydantic model, or a typed dict.
        names: Its fields, in order.
    """

    def __init__(self, kind: Any, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._kind = kind
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    @classmethod
    def of_model(cls, model: type[BaseModel]) -> Fields:
        """Return the fields of a pydantic model."""
        return cls(model, model.model_fields)

    @classmethod
    def of_types(cls, types: Mapping[str, Any]) -> Fields:
        """Return fields of these names and types."""
        kind = cast("Any", TypedDict)("Fields", dict(types))
        kind.__pydantic_config__ = ConfigDict(extra="forbid")
        return cls(kind, types)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of an object with these fields."""
        schema = self._adapter.json_schema()
        schema.pop("title", None)
        return schema

    @property
    def words(self) -> str | None:
        """What the pydantic model's author wrote about it."""
        return self._kind.__doc__ if isinstance(self._kind, type) and issubclass(self._kind, BaseModel) else None

    @property
    def single_text(self) -> str | None:
        """The name of the only field, where there is one and it is text."""
        properties = cast("dict[str, Any]", self.schema.get("properties", {}))
        (only, *others) = [*self.names, ""]
        return only if others == [""] and properties.get(only, {}).get("type") == "string" else None

    def validate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by name, as their types.

        Raises:
            SchemaError: They do not fit; no problem contains a value.
        """
        try:
            fitted = self._adapter.validate_python(dict(values))
        except ValidationError as error:
            raise SchemaError([_problem(one) for one in error.errors(include_input=False, include_url=False)]) from None
        return {name: fitted[name] if isinstance(fitted, dict) else getattr(fitted, name) for name in self.names}

    def plain(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as JSON has them; what it has no form for becomes its `str`."""
        from pydantic_core import to_json

        return json.loads(to_json(dict(values), fallback=str, inf_nan_mode="strings"))


def _problem(error: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"])
    # A validator's own words may quote the value; those of pydantic do not.
    says = "is refused by its own validator" if error["type"] in {"value_error", "assertion_error"} else error["msg"]
    return f"{where}: {says}" if where else str(says)


@dataclass(frozen=True)
class Signature:
    """What a module takes and what it gives."""

    inputs: Fields
    outputs: Fields

    @classmethod
    def of(cls, given: object) -> Signature:
        """Return what is meant.

        Args:
            given: Text such as `question, context -> answer: str, score: float`, where a field without a type is text
                and types are `str`, `int`, `float`, `bool`, `bytes`, `None`, `Any`, `list[…]`, `dict[…]`, `tuple[…]`,
                `set[…]`, `Optional[…]`, `Union[…]`, `Literal[…]` and `a | b`; or a pair of pydantic models.

        Raises:
            ConfigError: It is neither, or names what there is not.
        """
        if isinstance(given, Signature):
            return given
        if isinstance(given, str):
            takes, gives = _sides(given)
            return cls(Fields.of_types(takes), Fields.of_types(gives))
        pair = tuple(cast("list[object]", given)) if isinstance(given, tuple | list) else ()
        models = [one for one in pair if isinstance(one, type) and issubclass(one, BaseModel)]
        if len(pair) != 2 or len(models) != 2:
            raise ConfigError(f"a signature is text or a pair of pydantic models, not {given!r}")
        if not all(model.model_fields for model in models):
            raise ConfigError("a signature needs at least one field on each side")
        return cls(Fields.of_model(models[0]), Fields.of_model(models[1]))


def _sides(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields on either side of the arrow; `->` may also stand inside of a `Literal`."""
    depth = max(accumulate((letter in "([{") - (letter in ")]}") for letter in text), default=0)
    if len(text) > _MOST or depth > _DEEPEST:
        raise ConfigError(f"a signature has at most {_MOST:,} characters, and {_DEEPEST} brackets in each other")
    refusal: ConfigError | None = None
    for arrow in (place for place in range(len(text)) if text.startswith("->", place)):
        try:
            takes, gives = _fields(text[:arrow], text), _fields(text[arrow + 2 :], text)
        except ConfigError as error:
            # The first cut says what is wrong; one inside of quotes leaves no grammar at all.
            refusal = refusal or error
            continue
        both = sorted(takes.keys() & gives.keys())
        if both:
            raise ConfigError(f"the signature {text!r} has {both[0]!r} on both sides")
        return takes, gives
    raise refusal or ConfigError(f"the signature {text!r} has no '->' between what goes in and what comes out")


def _fields(side: str, text: str) -> dict[str, Any]:
    near = f"near {side.strip()!r}"
    try:
        # Parsed and looked at; never compiled, never evaluated.
        body = ast.parse(f"def side({' '.join(side.split())}): ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"the signature {text!r} cannot be read {near}") from error
    function = body[0]
    if len(body) != 1 or not isinstance(function, ast.FunctionDef) or len(function.body) != 1:
        raise ConfigError(f"the signature {text!r} cannot be read {near}")
    given = function.args
    others = [given.vararg, given.kwarg, *given.kwonlyargs, *given.posonlyargs, *given.defaults, function.returns]
    if any(one is not None for one in others) or not given.args:
        raise ConfigError(f"the signature {text!r} needs plain fields, `name` or `name: type`, {near}")
    if any(one.arg.startswith("_") for one in given.args):
        raise ConfigError(f"the signature {text!r} has a field whose name begins with an underscore")
    if len({one.arg for one in given.args}) < len(given.args):
        raise ConfigError(f"the signature {text!r} has a name twice {near}")
    return {one.arg: str if one.annotation is None else _type(one.annotation) for one in given.args}


def _type(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name) if name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_type(left), _type(right)]  # noqa: UP007  a union of None and None is no `|`
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            return Literal[tuple(map(_constant, _parts(inside)))]
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[one, ast.Constant(value=value)])) if (
            value is ...
        ):
            return tuple[_type(one), ...]
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            kinds = tuple(map(_type, _parts(inside)))
            if len(kinds) not in _GENERICS.get(name, (None, ()))[1]:
                raise ConfigError(f"the type {name}[…] cannot be used with {len(kinds)} types in a signature's text")
            return _GENERICS[name][0][kinds[0] if len(kinds) == 1 else kinds]
        case _:
            raise _unknown(node)


_SOME = range(1, _MOST)
_GENERICS: dict[str, tuple[Any, Collection[int]]] = {
    **dict.fromkeys(("list", "List"), (list, {1})), **dict.fromkeys(("set", "Set"), (set, {1})),
    **dict.fromkeys(("dict", "Dict"), (dict, {2})), **dict.fromkeys(("tuple", "Tuple"), (tuple, _SOME)),
    "Optional": (Optional, {1}), "Union": (Union, _SOME),
}  # fmt: skip
"""What may have types in brackets, and how many."""


def _parts(inside: ast.expr) -> list[ast.expr]:
    return inside.elts if isinstance(inside, ast.Tuple) else [inside]


def _constant(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | bool() | int() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
        case _:
            raise _unknown(node)


def _unknown(node: ast.expr) -> ConfigError:
    return ConfigError(
        f"the type {ast.unparse(node)!r} is not known in a signature's text; there are {', '.join(_PLAIN_TYPES)},"
        " containers of them, Optional, Union and Literal. For types of your own, give a pair of pydantic models"
    )
