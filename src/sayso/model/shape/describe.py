"""Annotations, read into a descriptor: plain JSON that says which values are taken.

A type is `{"kind": ...}` with its parts; a class of the program's is `{"kind": "ref", "name": ...}` and stands under
that name in the definitions (`sayso.model.shape.define`), so recursion is no matter. What cannot be put into words is
`any`. pydantic is not imported.
The invariant: two ways of writing the same type have the same descriptor.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections import abc
from collections.abc import Iterable
from enum import Enum
from typing import Any, cast

from sayso.errors import ArgumentError
from sayso.model.canonical import class_name, form_of
from sayso.model.canonical.tags import dump
from sayso.model.redaction import Redaction
from sayso.model.shape.define import define, is_definable
from sayso.model.shape.limits import Descriptor, limited

__all__ = ["Describer"]

_SCALARS = {
    **{("builtins", name): name for name in ("bool", "int", "float", "str", "bytes")},
    ("builtins", "NoneType"): "none",
    ("decimal", "Decimal"): "decimal",
    **{("datetime", name): name for name in ("datetime", "date", "time", "timedelta")},
    ("uuid", "UUID"): "uuid",
    **{("pathlib", name): "path" for name in ("Path", "PosixPath", "WindowsPath", "PurePath")},
}
# These say more than their kind, so the program's own annotation is asked as well, where it is at hand.
_SAYING_MORE = {
    **{("pydantic.types", f"{when}Datetime"): "datetime" for when in ("Aware", "Naive", "Past", "Future")},
    **{("pydantic.types", f"{when}Date"): "date" for when in ("Past", "Future")},
    **{("pydantic.networks", name): "str" for name in ("EmailStr", "IPvAnyAddress", "IPvAnyNetwork")},
    **{("pydantic_core", name): "str" for name in ("Url", "MultiHostUrl")},
    **{("ipaddress", f"IPv{n}{of}"): "str" for n in (4, 6) for of in ("Address", "Network", "Interface")},
}
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})
_ABSTRACT_LISTS: tuple[Any, ...] = (abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection, abc.Reversible)
_DICTS: tuple[Any, ...] = (dict, abc.Mapping, abc.MutableMapping)
# A typed text that fits several alternatives becomes the first of these; a text stays text where text is one of them.
_RANKS = (
    *("int", "float", "decimal", "bool", "date", "datetime", "time", "timedelta", "uuid", "literal", "ref"),
    *("list", "tuple", "dict", "path", "bytes", "secret", "any", "str", "none"),
)


class Describer:
    """Walks annotations and gathers what they lead to.

    Attributes:
        defs: The definition of each class, by name.
        classes: The class itself, by name.
        roots: Plain classes that were met (abstract bases, protocols): instances of their subclasses may be passed.
        is_whole: The descriptors say all that the annotations say; false after a validator, or a type without a kind.
    """

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self.defs: dict[str, Descriptor] = {}
        self.classes: dict[str, type] = {}
        self.roots: list[type] = []
        self.is_whole = True
        self._open: list[object] = []

    def describe(self, annotation: Any) -> Descriptor:
        """Return the descriptor of an annotation, whatever it is."""
        try:
            return self._type(annotation)
        except (ArgumentError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # An annotation may be any object at all. One that does not behave is not understood, and no reason to fail.
            return self._unknown()

    def default(self, name: str, value: object) -> Descriptor:
        """Return `{"default": form}`, or nothing if it cannot be written down, or holds a secret."""
        try:
            told = {name: form_of(value)}
        except ArgumentError:
            return {}
        return {"default": told[name]} if self._redaction.mask(told) is told else {}

    def limited(self, descriptor: Descriptor, metadata: Iterable[object]) -> Descriptor:
        """Return the descriptor with the limits that stand in the metadata of `Annotated` or of a pydantic field."""
        found, is_whole = limited(descriptor, metadata)
        self.is_whole = self.is_whole and is_whole
        return found

    def _type(self, annotation: Any) -> Descriptor:
        if annotation is None:
            return {"kind": "none"}
        if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
            return {"kind": "any"}
        origin = typing.get_origin(annotation)
        if origin is not None:
            return self._generic(annotation, origin)
        if isinstance(annotation, typing.NewType):
            return self._type(annotation.__supertype__)
        if isinstance(annotation, typing.TypeVar):
            bounds: tuple[Any, ...] = annotation.__constraints__ or (annotation.__bound__ or Any,)
            return _union([self._type(bound) for bound in bounds])
        if type(annotation).__name__ == "TypeAliasType":
            return self._alias(annotation)
        return self._class(annotation) if isinstance(annotation, type) else self._unknown()

    def _unknown(self) -> Descriptor:
        self.is_whole = False
        return {"kind": "any"}

    def _alias(self, alias: Any) -> Descriptor:
        """Return what a `type X = ...` statement names; where it names itself, anything goes."""
        if any(alias is other for other in self._open):
            return self._unknown()
        self._open.append(alias)
        try:
            return self._type(alias.__value__)
        except NameError:  # the right side is evaluated now, and may name what is not there
            return self._unknown()
        finally:
            self._open.pop()

    def _generic(self, annotation: Any, origin: Any) -> Descriptor:
        args = typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.limited(self._type(args[0]), annotation.__metadata__)
        if origin is typing.Union or origin is types.UnionType:
            return _union([self._type(arg) for arg in args])
        if origin is typing.Literal:
            return self._literal(args)
        if origin is tuple and hasattr(annotation, "__args__"):
            return self._tuple(args)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self._type(args[0])
        return self._container(origin, args) or (
            self._own(cast("Any", origin)) if isinstance(origin, type) else self._unknown()
        )

    def _container(self, origin: object, args: tuple[Any, ...]) -> Descriptor | None:
        parts = [self._type(arg) for arg in args]
        if origin is tuple:
            return {"kind": "tuple", "items": {"kind": "any"}}
        if origin is list or origin in _ABSTRACT_LISTS:
            found: Descriptor = {"kind": "list", "items": parts[0] if parts else {"kind": "any"}}
            return found if origin is list else {**found, "abstract": True}
        if origin not in _DICTS:
            return None
        keys, values = parts or ({"kind": "str"}, {"kind": "any"})
        is_free = keys["kind"] in {"str", "any"} and "limits" not in keys
        return {"kind": "dict", "values": values, **({} if is_free else {"keys": keys})}

    def _tuple(self, args: tuple[Any, ...]) -> Descriptor:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"kind": "tuple", "items": self._type(args[0])}
        return {"kind": "tuple", "each": [self._type(arg) for arg in args]}

    def _literal(self, args: tuple[Any, ...]) -> Descriptor:
        for arg in args:
            if isinstance(arg, Enum):
                self._own(type(arg))
        return {"kind": "literal", "values": [form_of(arg) for arg in args]}

    def _class(self, cls: type[Any]) -> Descriptor:
        place = (cls.__module__.partition("._")[0], cls.__name__)
        if place in _SCALARS:
            return {"kind": _SCALARS[place]}
        if place[0] == "pydantic.types" and place[1] in {"SecretStr", "SecretBytes"}:
            return {"kind": "secret", "of": "str" if place[1] == "SecretStr" else "bytes"}
        if place in _SAYING_MORE or (place[0] == "pydantic.networks" and place[1].endswith(("Url", "Dsn"))):
            self.is_whole = False
            return {"kind": _SAYING_MORE.get(place, "str")}
        return self._container(cls, ()) or self._own(cls)

    def _own(self, cls: type[Any]) -> Descriptor:
        """Return a reference to a class of the program's; plain ones are remembered for their subclasses."""
        if not is_definable(cls):
            self.roots.append(cls)
            return self._unknown()
        name = class_name(cls)
        if name not in self.defs:
            self.defs[name], self.classes[name] = {}, cls
            # A class checks itself when it is built: what its definition leaves out does not concern who refers to it.
            outside, self.is_whole = self.is_whole, True
            self.defs[name] = define(cls, self)
            self.is_whole = outside
        return {"kind": "ref", "name": name}


def _union(parts: list[Descriptor]) -> Descriptor:
    flat: list[Descriptor] = []
    for part in parts:
        flat.extend(part["of"] if part["kind"] == "union" else [part])
    by_text = {dump(part): part for part in flat}
    unique = sorted(by_text, key=lambda text: (_RANKS.index(by_text[text]["kind"]), text))
    return by_text[unique[0]] if len(unique) == 1 else {"kind": "union", "of": [by_text[text] for text in unique]}
