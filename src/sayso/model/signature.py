"""A function's parameters: from a call to arguments by name, and back.

`*args` stand as a tuple, and `**kwargs` as a dict, under their own names; defaults are filled in. Which callables may
be gated at all is in `sayso.gates.declared`. The invariant: what `bind` returned, `spread` calls the function with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Signature", "chosen"]

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_PLAIN = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


class Signature:
    """How a function is called.

    Raises:
        TypeError: The function is one of a class, without its object, or a generator function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator has no single moment to hold; gate the functions that it calls")
        self._signature = inspect.signature(function)
        if next(iter(self._signature.parameters), None) in {"self", "cls"}:
            raise TypeError("a method hides its object; gate a plain function that takes what tells the object apart")
        parameters = self._signature.parameters.values()
        self.names = tuple(self._signature.parameters)
        self._known = frozenset(self.names)
        self._positional = tuple(p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        self._is_plain = all(p.kind in _PLAIN for p in parameters)
        self._is_positional = self._positional == self.names
        star = next((p.name for p in parameters if p.kind is _VAR_POSITIONAL), None)
        self._leading = tuple(p.name for p in parameters if p.kind is _POSITIONAL_ONLY)
        if star is not None:
            self._leading += self._positional
        self._star = star
        self._stars = next((p.name for p in parameters if p.kind is _VAR_KEYWORD), None)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, in the order of the parameters, defaults filled in.

        Raises:
            TypeError: The call does not fit, with Python's own message.
        """
        if not kwargs and len(args) == len(self.names) and self._is_positional:
            return dict(zip(self.names, args, strict=True))
        # `Signature.bind` costs more than everything else a rule needs; most calls do not need it.
        if self._is_plain and len(args) <= len(self._positional):
            given = dict(zip(self._positional, args, strict=False))
            if not given.keys() & kwargs.keys():
                given.update(kwargs)
                bound = {
                    n: given[n] if n in given else self._defaults[n]
                    for n in self.names
                    if n in given or n in self._defaults
                }
                if len(bound) == len(self.names) and given.keys() <= bound.keys():
                    return bound
        found = self._signature.bind(*args, **kwargs)
        found.apply_defaults()
        return dict(found.arguments)

    @property
    def takes_any(self) -> bool:
        """Whether it takes arguments of any name."""
        return self._stars is not None

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a call gives by name, no defaults filled in; what is missing may come from elsewhere.

        Raises:
            TypeError: There are more arguments than places, or one is given twice, with Python's own message.
        """
        if not args and self._is_plain and kwargs.keys() <= self._known:
            return {name: kwargs[name] for name in self.names if name in kwargs}
        return dict(self._signature.bind_partial(*args, **kwargs).arguments)

    def spread(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what to call the function with for these arguments."""
        if self._is_plain:
            return (), dict(arguments)
        rest = dict(arguments)
        args = tuple(rest.pop(name) for name in self._leading if name in rest)
        if self._star is not None:
            args += tuple(rest.pop(self._star, ()))
        if self._stars is not None:
            more = rest.pop(self._stars, {})
            if not rest.keys().isdisjoint(more):
                raise TypeError(f"{self._stars} holds a name that is a parameter of its own")
            rest |= more
        return args, rest


def chosen(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return what picks from a call's arguments those that a rule, prompt or hook names; all of them for `**kwargs`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict
    if any(p.kind is _VAR_KEYWORD for p in parameters):
        return dict
    names = tuple(p.name for p in parameters)
    return lambda arguments: {name: arguments[name] for name in names if name in arguments}
