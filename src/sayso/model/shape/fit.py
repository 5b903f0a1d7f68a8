"""Values, fitted to a descriptor: what a person typed becomes what the call takes, or a list of problems.

pydantic coerces and checks the scalars (`sayso.model.shape.scalar`) and builds its own models; the walk through
containers, unions and classes is here, because it is the same with a program's classes and with their stand-ins.
The invariant: a problem says where and what, and never holds the value itself, which may be a secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, cast

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, form_of, text_of, value_of
from sayso.model.canonical.decode import is_model
from sayso.model.canonical.names import class_name, place
from sayso.model.shape.limits import Descriptor
from sayso.model.shape.scalar import is_scalar, scalar, spoken

__all__ = ["MISFIT", "Fitter"]

MISFIT: Any = object()
"""What a fitting returns when it added a problem."""

_ANY: Descriptor = {"kind": "any"}
# Their text is taken as it was typed; for the others `1`, `true` and `[...]` are read as JSON first.
_TYPED_AS_TEXT = frozenset(
    {"decimal", "datetime", "date", "time", "timedelta", "uuid", "path", "secret", "bytes", "literal", "enum"}
)


class Fitter:
    """One fitting of some values.

    Attributes:
        problems: What did not fit, one line each.
        is_written: A person wrote the values that are fitted now: `true` is no number there, and `1` no bool.

    Args:
        defs: The definitions that references lead to.
        classes: The classes to build: the program's own, or stand-ins.
        has_code: They are the program's own. A stand-in for a class that checks itself is passed on and never built.
    """

    def __init__(self, defs: Mapping[str, Descriptor], classes: Mapping[str, type], *, has_code: bool) -> None:
        self.problems: list[str] = []
        self.is_written = False
        self._path: list[str | int] = []
        self._defs = defs
        self._classes = classes
        self._has_code = has_code

    def at(self, step: str | int, descriptor: Descriptor, value: object) -> Any:
        """Return the fitted value of a member, or `MISFIT`."""
        self._path.append(step)
        fitted = self._fit(descriptor, value)
        self._path.pop()
        return fitted

    def checked(self, name: str, annotation: Any, value: Any) -> Any:
        """Return a fitted value as pydantic validates it by the program's annotation, if it knows that; or `MISFIT`."""
        if value is MISFIT:
            return value
        import pydantic

        try:
            validate = pydantic.TypeAdapter[Any](annotation).validate_python
        except Exception:  # noqa: BLE001  # an annotation may be anything; one that pydantic does not know has no say
            return value
        self._path.append(name)
        checked = self._ask(validate, value)
        self._path.pop()
        # What has no canonical form (a set, a URL object) cannot be passed as such: the call takes the plain value.
        return value if checked is not MISFIT and _text(checked) is None else checked

    def readings(self, descriptor: Descriptor, text: str) -> Iterator[object]:
        """Yield what a typed text may mean, the likelier first."""
        try:
            parsed: list[object] = [json.loads(text)]
        except (ValueError, RecursionError):
            parsed = []
        parts: list[Descriptor] = descriptor["of"] if descriptor["kind"] == "union" else [descriptor]
        kinds = {self._defs[part["name"]]["kind"] if part["kind"] == "ref" else part["kind"] for part in parts}
        if "str" in kinds:
            others = [part for part in parts if part["kind"] != "str"]
            yield from (item for item in parsed if any(self._is_exact(part, item) for part in others))
            yield text
        elif kinds - {"none"} <= _TYPED_AS_TEXT:
            yield from (item for item in parsed if item is None and "none" in kinds)
            yield text
            yield from parsed
        else:
            yield from parsed
            yield text

    def _fit(self, descriptor: Descriptor, value: object) -> Any:
        match descriptor["kind"]:
            case "any":
                return value
            case "none":
                return None if value is None else self._wrong("Input should be None")
            case "union":
                return self._union(descriptor["of"], value)
            case "literal":
                return self._literal(descriptor["values"], value)
            case "list" | "tuple":
                return self._items(descriptor, value)
            case "dict":
                return self._dict(descriptor, value)
            case "ref":
                return self._ref(descriptor["name"], value)
            case kind:
                if self.is_written and _is_mixed_up(kind, value):
                    wanted = "true or false, not a number" if kind == "bool" else f"a valid {kind}, not true or false"
                    return self._wrong(f"Input should be {wanted}")
                fitted, problem = scalar(descriptor, value)
                return fitted if problem is None else self._wrong(problem)

    def _wrong(self, problem: str, *steps: str | int) -> Any:
        self.problems.append(f"{place([*self._path, *steps])}: {problem}")
        return MISFIT

    # -- containers --------------------------------------------------------------------------------------------

    def _items(self, descriptor: Descriptor, value: object) -> Any:
        kind = descriptor["kind"]
        if not isinstance(value, list | tuple):
            return self._wrong(f"Input should be a valid {kind}")
        items = cast("list[object]", value)
        each: list[Descriptor] = descriptor["each"] if "each" in descriptor else [descriptor["items"]] * len(items)
        if len(each) != len(items):
            return self._wrong(f"Input should have {len(each)} items")
        if not self._has_size(descriptor, len(items)):
            return MISFIT
        fitted = [self.at(index, part, item) for index, (part, item) in enumerate(zip(each, items, strict=True))]
        if any(item is MISFIT for item in fitted):
            return MISFIT
        stays_tuple = kind == "tuple" or (descriptor.get("abstract") and isinstance(value, tuple))
        return tuple(fitted) if stays_tuple else fitted

    def _dict(self, descriptor: Descriptor, value: object) -> Any:
        if not isinstance(value, Mapping):
            return self._wrong("Input should be a valid dictionary")
        given = dict(cast("Mapping[object, object]", value))
        if not all(isinstance(key, str) for key in given):
            return self._wrong("Keys should be strings")
        if not self._has_size(descriptor, len(given)):
            return MISFIT
        keys, values = descriptor.get("keys", _ANY), descriptor["values"]
        fitted = [(self.at(str(key), keys, key), self.at(str(key), values, item)) for key, item in given.items()]
        return MISFIT if any(MISFIT is part for pair in fitted for part in pair) else dict(fitted)

    def _has_size(self, descriptor: Descriptor, size: int) -> bool:
        limits = descriptor.get("limits", {})
        least, most = limits.get("min_length", 0), limits.get("max_length", size)
        if size < least:
            self._wrong(f"Input should have at least {least} items")
        elif size > most:
            self._wrong(f"Input should have at most {most} items")
        return least <= size <= most

    # -- alternatives ------------------------------------------------------------------------------------------

    def _union(self, parts: list[Descriptor], value: object) -> Any:
        """Take the alternative whose type the value has already, else the first that it can be turned into."""
        exact = [part for part in parts if self._is_exact(part, value)]
        heard: list[list[str]] = []
        before = self.problems
        for part in exact or parts:
            self.problems = []
            fitted = self._fit(part, value)
            if fitted is not MISFIT:
                self.problems = before
                return fitted
            if part["kind"] != "none":
                heard.append(self.problems)
        self.problems = before
        if len(heard) != 1:
            return self._wrong(f"Input fits none of {', '.join(map(_word, parts))}")
        # With one alternative that can have been meant, its own problems say more.
        self.problems += heard[0]
        return MISFIT

    def _is_exact(self, part: Descriptor, value: Any) -> bool:
        match part["kind"]:
            case "any":
                return True
            case "none":
                return value is None
            case "union":
                return any(self._is_exact(inner, value) for inner in part["of"])
            case "literal":
                return any(_text(value) == text_of(form) for form in part["values"])
            case "list" | "tuple":
                return self._are_exact(part, value)
            case "dict":
                return type(value) is dict and self._all_exact([part["values"]] * len(_values(value)), _values(value))
            case "ref" if self._defs[part["name"]]["kind"] == "typed_dict":
                return type(value) is dict
            case "ref":
                return self._is_instance(part["name"], value)
            case _:
                return is_scalar(part, value)

    def _are_exact(self, part: Descriptor, value: Any) -> bool:
        cls = tuple if part["kind"] == "tuple" else list
        if type(value) is not cls and not ("abstract" in part and type(value) is tuple):
            return False
        items: list[Any] = list(cast("list[Any]", value))
        each: list[Descriptor] = part["each"] if "each" in part else [part["items"]] * len(items)
        return len(each) == len(items) and self._all_exact(each, items)

    def _all_exact(self, parts: list[Descriptor], values: list[Any]) -> bool:
        return all(map(self._is_exact, parts, values))

    def _literal(self, forms: list[Json], value: object) -> Any:
        found = _picked([(_member(form), form) for form in forms], value)
        if found is None:
            return self._wrong(f"Input should be one of {', '.join(text_of(_member(form)) for form in forms)}")
        return value_of(found[1], self._classes)

    # -- classes -----------------------------------------------------------------------------------------------

    def _ref(self, name: str, value: object) -> Any:
        definition = self._defs[name]
        if definition["kind"] == "typed_dict":
            return self._fields(definition, value)
        if self._is_instance(name, value):
            return value
        cls: Any = self._classes[name]
        if definition["kind"] == "enum":
            return self._enum(cls, definition["members"], value)
        if definition["checked"] and not self._has_code:
            short = name.rpartition(":")[2]
            return self._wrong(f"can only be changed where the program's code is, because {short} checks itself")
        fields = self._fields(definition, {"root": value} if "root" in definition else value)
        return MISFIT if fields is MISFIT else self._build(cls, definition, fields)

    def _is_instance(self, name: str, value: object) -> bool:
        # Stand-ins do not inherit from each other; the definition of a subclass names its bases.
        own = class_name(type(value))
        return isinstance(value, self._classes[name]) or name in self._defs.get(own, {}).get("bases", ())

    def _enum(self, cls: type[Enum], members: list[list[Any]], value: object) -> Any:
        """Take a member by its name, which is how members are displayed, else by its value."""
        found = _picked([(name, form[0] if form else name) for name, *form in members], value)
        if found is None:
            return self._wrong(f"Input should be one of {', '.join(name for name, *_ in members)}")
        return cls[found[0]]

    def _fields(self, definition: Descriptor, value: object) -> Any:
        """Return the fields that are given, by their names; defaults are left to the class."""
        if not isinstance(value, Mapping):
            return self._wrong("Input should be an object")
        given = dict(cast("Mapping[str, object]", value))
        fitted: dict[str, Any] = {}
        for field in definition["fields"]:
            name, alias = field["name"], field.get("alias")
            key = alias if name not in given and alias in given else name
            if key in given:
                fitted[name] = self._field(field, given.pop(key))
            elif field["required"] and field.get("given", True):
                fitted[name] = self._wrong("Field required", name)
            elif not (self._has_code or field.keys() & {"default", "given"} or definition["kind"] == "typed_dict"):
                fitted[name] = self._wrong("has a default that only the program knows; give a value", name)
        for key, item in given.items():
            fitted[key] = item if "extra" in definition else self._wrong("there is no such field", str(key))
        return MISFIT if any(item is MISFIT for item in fitted.values()) else fitted

    def _field(self, field: Descriptor, value: object) -> Any:
        if "given" in field:
            return self._wrong("is set by the class itself; leave it out", field["name"])
        return self.at(field["name"], field["type"], value)

    def _build(self, cls: Any, definition: Descriptor, fields: dict[str, Any]) -> Any:
        if not is_model(cls):
            return self._ask(partial(_called, cls), fields)
        if not self._has_code:
            return self._ask(cls.model_validate, fields)
        if "root" in definition:
            return self._ask(cls.model_validate, fields["root"])
        aliases = {field["name"]: field.get("alias", field["name"]) for field in definition["fields"]}
        return self._ask(cls.model_validate, {aliases.get(name, name): item for name, item in fields.items()})

    def _ask(self, build: Any, given: Any) -> Any:
        """Run code of the program's, whose words are not passed on: they may quote the value."""
        import pydantic

        try:
            return build(given)
        except pydantic.ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False, include_input=False):
                self._wrong(spoken(detail), *detail["loc"])
            return MISFIT
        except Exception as error:  # noqa: BLE001  # user code: whatever it raises means that the value is refused
            return self._wrong(f"is refused by the program's own check ({type(error).__name__})")


def _is_mixed_up(kind: str, value: object) -> bool:
    """Say whether a number stands where true or false belongs, or the other way round; pydantic would take either."""
    if kind == "bool":
        return (isinstance(value, int | float) and not isinstance(value, bool)) or value in ("0", "1")
    return isinstance(value, bool)


def _called(cls: Any, fields: dict[str, Any]) -> Any:
    return cls(**fields)


def _values(value: Any) -> list[Any]:
    return list(value.values())


def _text(value: object) -> str | None:
    try:
        return text_of(form_of(value))
    except ArgumentError:
        return None


def _picked(named: list[tuple[Any, Json]], value: object) -> tuple[Any, Json] | None:
    """Return which of some named forms a value means: by name, by form, or by the form's text (web forms send it)."""
    wanted = _text(value)
    by_form = (item for item in named if text_of(item[1]) == wanted)
    by_name = (item for item in named if isinstance(value, str) and item[0] == value)
    by_text = (item for item in named if isinstance(value, str) and text_of(item[1]) == value)
    return next(by_name, None) or next(by_form, None) or next(by_text, None)


def _member(form: Json) -> Json:
    """Return the name of an enum member's form; any other form as it is."""
    match form:
        case {"$enum": [_, str(name)]}:
            return name
        case _:
            return form


def _word(part: Descriptor) -> str:
    return str(part["name"]).rpartition(":")[2] if part["kind"] == "ref" else str(part["kind"])
