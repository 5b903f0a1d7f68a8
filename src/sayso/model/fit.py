"""Values, fitted to a descriptor: what a person typed becomes what the call takes, or a list of problems.

pydantic coerces and checks the scalars (`"80"` is 80 for an `int`) and builds its own models; the walk through containers, unions and
classes is here, because it is the same with a program's classes and with their stand-ins.
The invariant: a problem says where and what, and never holds the value itself, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, form_of, value_of
from sayso.model.describe import Descriptor
from sayso.model.names import place
from sayso.model.rebuild import is_model
from sayso.model.scalar import scalar, spoken
from sayso.model.tags import dump

__all__ = ["MISFIT", "Fitter"]

MISFIT: Any = object()
"""What a fitting returns when it added a problem."""

_CONTAINERS: dict[str, type] = {"list": list, "tuple": tuple, "dict": dict, "typed_dict": dict}


class Fitter:
    """One fitting of some values.

    Attributes:
        problems: What did not fit, one line each.

    Args:
        defs: The definitions that refs lead to.
        classes: The classes to build, real ones or stand-ins.
        has_code: The classes are the program's own. Where they are stand-ins, what checks itself can only be passed on.
    """

    def __init__(self, defs: Mapping[str, Descriptor], classes: Mapping[str, type], *, has_code: bool) -> None:
        self.problems: list[str] = []
        self._path: list[str | int] = []
        self._defs = defs
        self._classes = classes
        self._has_code = has_code

    def at(self, step: str | int, descriptor: Descriptor, value: object) -> Any:
        """Return the fitted value of a member, or `MISFIT`."""
        self._path.append(step)
        try:
            return self.fit(descriptor, value)
        finally:
            self._path.pop()

    def wrong(self, problem: str) -> Any:
        """Add a problem at this place."""
        self.problems.append(f"{place(self._path)}: {problem}")
        return MISFIT

    def fit(self, descriptor: Descriptor, value: object) -> Any:
        """Return the fitted value, or `MISFIT`."""
        match descriptor["kind"]:
            case "any":
                return value
            case "absent":
                return self.wrong("Field required")
            case "unknown":
                return self.wrong("there is no such field")
            case "none":
                return None if value is None else self.wrong("Input should be None")
            case "union":
                return self._union(cast("list[Descriptor]", descriptor["of"]), value)
            case "literal":
                return self._literal(cast("list[Json]", descriptor["values"]), value)
            case "list":
                return self._list(descriptor, value)
            case "tuple":
                return self._tuple(descriptor, value)
            case "dict":
                return self._dict(descriptor, value)
            case "ref":
                return self._ref(str(descriptor["name"]), value)
            case _:
                fitted, problem = scalar(descriptor, value)
                return fitted if problem is None else self.wrong(problem)

    # -- containers --------------------------------------------------------------------------------------------

    def _list(self, descriptor: Descriptor, value: object) -> Any:
        if not isinstance(value, list | tuple):
            return self.wrong("Input should be a valid list")
        items = cast("list[object]", value)
        kind = cast(Descriptor, descriptor["items"])
        fitted = [self.at(index, kind, item) for index, item in enumerate(items)]
        return self._sized(descriptor, fitted)

    def _tuple(self, descriptor: Descriptor, value: object) -> Any:
        if not isinstance(value, list | tuple):
            return self.wrong("Input should be a valid tuple")
        items = cast("list[object]", value)
        each = cast("list[Descriptor] | None", descriptor.get("each"))
        if each is None:
            each = [cast(Descriptor, descriptor["items"])] * len(items)
        elif len(each) != len(items):
            return self.wrong(f"Input should have {len(each)} items")
        fitted = [self.at(index, kind, item) for index, (kind, item) in enumerate(zip(each, items, strict=True))]
        sized = self._sized(descriptor, fitted)
        return MISFIT if sized is MISFIT else tuple(fitted)

    def _dict(self, descriptor: Descriptor, value: object) -> Any:
        if not isinstance(value, dict):
            return self.wrong("Input should be a valid dictionary")
        fitted: dict[Any, object] = {}
        keys = cast("Descriptor | None", descriptor.get("keys"))
        values = cast(Descriptor, descriptor["values"])
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                return self.wrong("Keys should be strings")
            fitted[key if keys is None else self.at(key, keys, key)] = self.at(key, values, item)
        return self._sized(descriptor, fitted)

    def _sized(self, descriptor: Descriptor, fitted: Any) -> Any:
        limits = cast("dict[str, int]", descriptor.get("limits", {}))
        least, most = limits.get("min_length", 0), limits.get("max_length")
        if len(fitted) < least:
            return self.wrong(f"Input should have at least {least} items")
        if most is not None and len(fitted) > most:
            return self.wrong(f"Input should have at most {most} items")
        held = fitted.values() if isinstance(fitted, dict) else fitted
        return MISFIT if any(item is MISFIT for item in cast("list[object]", held)) or MISFIT in fitted else fitted

    # -- alternatives ------------------------------------------------------------------------------------------

    def _union(self, parts: list[Descriptor], value: object) -> Any:
        """Take the alternative whose type the value has already, else the first that it can be turned into."""
        exact = [part for part in parts if self._is_exact(part, value)]
        rest = [part for part in parts if part not in exact]
        heard: list[list[str]] = []
        before = self.problems
        for part in exact + rest:
            self.problems = []
            fitted = self.fit(part, value)
            if fitted is not MISFIT:
                self.problems = before
                return fitted
            heard.append(self.problems)
        self.problems = before
        # With one alternative beside None, or one that the value was meant for, its own problems say more.
        meant = heard[0] if len(exact) == 1 or len([part for part in parts if part["kind"] != "none"]) == 1 else None
        if meant is None:
            return self.wrong(f"Input fits none of {', '.join(_word(part) for part in parts)}")
        self.problems += meant
        return MISFIT

    def _is_exact(self, part: Descriptor, value: object) -> bool:
        kind = str(part["kind"])
        match kind:
            case "any":
                return False
            case "none":
                return value is None
            case "ref":
                name = str(part["name"])
                cls = self._classes.get(name)
                if self._defs[name]["kind"] == "typed_dict":
                    return isinstance(value, dict)
                return cls is not None and isinstance(value, cls)
            case "literal":
                return _form(value) in [dump(form) for form in cast("list[Json]", part["values"])]
            case "list" | "tuple" | "dict":
                return type(value) is _CONTAINERS[kind]
            case "path":
                return type(value).__module__.startswith("pathlib")
            case "secret":
                return type(value).__name__.startswith("Secret")
            case "union":
                return False
            case _:
                return type(value).__name__.lower() == kind

    def _literal(self, forms: list[Json], value: object) -> Any:
        wanted = _form(value)
        for form in forms:
            if dump(form) == wanted:
                return value_of(form, self._classes)
        named = [form for form in forms if isinstance(form, dict) and _member(form) == value]
        if named:
            return value_of(named[0], self._classes)
        return self.wrong(f"Input should be one of {', '.join(dump(_member(form)) for form in forms)}")

    # -- classes -----------------------------------------------------------------------------------------------

    def _ref(self, name: str, value: object) -> Any:
        definition, cls = self._defs[name], self._classes.get(name)
        if definition["kind"] == "typed_dict":
            return self._fields(definition, value)
        if cls is None:
            return self.wrong("Input is of a class that is not known here")
        if isinstance(value, cls):
            return value
        if definition["kind"] == "enum":
            return self._enum(cast("type[Enum]", cls), definition, value)
        if definition.get("checked") and not self._has_code:
            short = name.rpartition(":")[2]
            return self.wrong(f"can only be changed where the program's code is, because {short} checks itself")
        given = {"root": value} if definition.get("root") else value
        fields = self._fields(definition, given)
        return MISFIT if fields is MISFIT else self._build(cls, definition, fields)

    def _enum(self, cls: type[Enum], definition: Descriptor, value: object) -> Any:
        """Take a member by its value, else by its name (which is how members are displayed)."""
        members = cast("list[list[Json]]", definition["members"])
        wanted = _form(value)
        for name, *form in members:
            if form and dump(form[0]) == wanted:
                return cls[str(name)]
        if isinstance(value, str) and value in cls.__members__:
            return cls[value]
        return self.wrong(f"Input should be one of {', '.join(str(name) for name, *_ in members)}")

    def _fields(self, definition: Descriptor, value: object) -> Any:
        """Return the fields that are given, by their names; defaults are left to the class."""
        if not isinstance(value, Mapping):
            return self.wrong("Input should be an object")
        given = dict(cast("Mapping[str, object]", value))
        fitted: dict[str, Any] = {}
        for field in cast("list[dict[str, Any]]", definition["fields"]):
            name, alias = field["name"], field.get("alias")
            key = name if name in given or alias not in given else alias
            if key in given and field.get("init", True):
                fitted[name] = self.at(name, field["type"], given.pop(key))
            elif field["required"]:
                fitted[name] = self.at(name, _ABSENT, None)
            elif not self._has_code and "default" not in field and definition["kind"] != "typed_dict":
                self._path.append(name)
                fitted[name] = self.wrong("has a default that only the program knows; give a value")
                self._path.pop()
        for key in given:
            if definition.get("extra"):
                fitted[key] = given[key]
            else:
                fitted[key] = self.at(str(key), _UNKNOWN, None)
        return MISFIT if any(item is MISFIT for item in fitted.values()) else fitted

    def _build(self, cls: Any, definition: Descriptor, fields: dict[str, Any]) -> Any:
        import pydantic

        try:
            if not is_model(cls):
                return cls(**fields)
            aliases = {field["name"]: field.get("alias", field["name"]) for field in cast("Any", definition["fields"])}
            keyed = {aliases.get(name, name): item for name, item in fields.items()} if self._has_code else fields
            return cls.model_validate(fields["root"] if definition.get("root") and self._has_code else keyed)
        except pydantic.ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False, include_input=False):
                where = place([*self._path, *detail["loc"]])
                self.problems.append(f"{where}: {spoken(detail)}")
            return MISFIT
        except Exception as error:  # the program's own initialiser; its words may quote the value
            return self.wrong(f"is refused by {cls.__name__} ({type(error).__name__})")


_ABSENT: Descriptor = {"kind": "absent"}
_UNKNOWN: Descriptor = {"kind": "unknown"}


def _form(value: object) -> str | None:
    try:
        return dump(form_of(value))
    except ArgumentError:
        return None


def _member(form: Json) -> Json:
    """Return the name of an enum member's form; any other form as it is."""
    match form:
        case {"$enum": [_, str(name)]}:
            return name
        case _:
            return form


def _word(part: Descriptor) -> str:
    return str(part["name"]).rpartition(":")[2] if part["kind"] == "ref" else str(part["kind"])
