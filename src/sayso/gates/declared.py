"""What is refused where a gate is declared, because it would go wrong, or unnoticed, at a later call.

Functions that have no name of their own, names that cannot be shown, secrets that no argument can have, hooks that
want what there is not. The options' own types are checked in `sayso.waiting.passage`. The invariant: what is refused
here has not been called, and nothing was written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta
from functools import partial
from types import MethodType, ModuleType
from typing import Any, cast

from sayso.errors import ConfigError
from sayso.model import canonical, duration
from sayso.model.json_schema import mapped
from sayso.model.keywords import unknown_keyword
from sayso.model.quorum import Quorum
from sayso.model.redaction import marks
from sayso.model.schema import Schema
from sayso.model.signature import hints_of, method_refusal

__all__ = ["check_hook", "check_known", "check_redact", "has_own_name", "quorum_of", "span_of", "tool_of"]

_LONGEST_NAME = 200
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def tool_of(function: Callable[..., Any], name: str | None) -> str:
    """Return what a gate's calls are told apart by: the name that it was given, or the function's own.

    Raises:
        TypeError: The function is a class, or has no name of its own and was given none.
        ConfigError: The name cannot be shown as it is.
    """
    if isinstance(function, classmethod):
        raise TypeError(method_refusal(cast("object", function)))
    if not callable(function):
        raise TypeError(f"a gate takes a function, not {function!r}; nothing was gated")
    if isinstance(function, type):
        raise TypeError(f"{function.__name__} is a class, and a gate holds calls; gate a function that builds one")
    if inspect.iscoroutinefunction(type(function).__call__):
        raise TypeError("an object with an async __call__ looks like a plain function; gate its __call__, with name=")
    if name is None:
        kind = _nameless(function)
        if kind is not None:
            raise TypeError(f"{kind}, so two of them look the same; {_way_out(function)}. Nothing was gated")
        return canonical.function_name(function)
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"name= takes a text of 1 to {_LONGEST_NAME} characters, not {name!r}")
    if not name.isprintable() or name != name.strip():
        raise ConfigError(f"name= takes characters that can be seen, without spaces around them, not {name!r}")
    return name


def has_own_name(function: Callable[..., Any]) -> bool:
    """Say whether a callable has a name that tells it apart: a lambda, a partial or a bound method has none."""
    return _nameless(function) is None


def _way_out(function: Callable[..., Any]) -> str:
    if not _is_bound(function):
        return "gate a plain function, or say name="
    name = getattr(function, "__name__", "method")
    return f"say which object it is: sayso.gate(obj.{name}, name='…') or sayso.Tool(obj.{name}, name='…')"


def _nameless(function: Callable[..., Any]) -> str | None:
    if isinstance(function, partial):
        return "a partial hides arguments that a reviewer must see, and has no name of its own"
    if _is_bound(function):
        return "a bound method hides its object, and has no name of its own"
    last = getattr(function, "__qualname__", "").rpartition(".")[2]
    if last == "<lambda>":
        return "a lambda has no name of its own"
    return None if last else f"an object of class {type(function).__name__} has no name of its own"


def _is_bound(function: Callable[..., Any]) -> bool:
    if isinstance(function, MethodType):
        return True
    hidden = getattr(function, "__self__", None)  # of a builtin, its module
    return inspect.isbuiltin(function) and hidden is not None and not isinstance(hidden, ModuleType)


def check_known(what: str, options: Iterable[str], known: Collection[str]) -> None:
    """Refuse an option that there is not, with the one that was probably meant.

    Raises:
        TypeError: There is one.
    """
    for option in options:
        if option not in known:
            raise unknown_keyword(what, option, known)


def span_of(option: str, value: timedelta | str) -> timedelta:
    """Return the span of time that an option gives.

    Raises:
        ConfigError: It is none.
    """
    try:
        return duration.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{option}= takes a span of time: {error}") from None


def quorum_of(quorum: int, roles: Collection[str]) -> Quorum:
    """Return what the options `quorum=` and `roles=` ask for.

    Raises:
        ConfigError: One of them cannot be used.
    """
    if type(quorum) is not int or quorum < 1:
        raise ConfigError(f"quorum= takes a number of people from 1, not {quorum!r}")
    if isinstance(roles, str) or not isinstance(roles, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"roles= takes a collection of texts, such as {{'finance'}}, not {roles!r}")
    strange = [role for role in roles if not isinstance(role, str) or not role or role != role.strip()]  # pyright: ignore[reportUnnecessaryIsInstance]
    if strange:
        raise ConfigError(f"roles= takes texts without spaces around them, not {strange[0]!r}")
    return Quorum(quorum, roles)


def check_hook(option: str, hook: object, tool: str, names: Collection[str]) -> None:
    """Refuse a rule, prompt or hook that asks for an argument that a call never has.

    Raises:
        ConfigError: It names a parameter that the function has not, or takes one without its name.
    """
    if isinstance(hook, bool) or not callable(hook):
        return
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):  # some builtins tell none
        return
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return
    for parameter in parameters:
        if parameter.default is not inspect.Parameter.empty or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        if parameter.name not in names:
            raise ConfigError(
                f"{option}= asks for {parameter.name!r}, which {tool} does not take ({_there_are(names)})"
                f"{_meant(parameter.name, names)}"
            )
        if parameter.kind not in _BY_NAME:
            raise ConfigError(f"{option}= gets its arguments by name and takes {parameter.name!r} by place alone")


def check_redact(function: Callable[..., Any], redact: Collection[str], tool: str, option: str = "redact=") -> None:
    """Refuse the name of a secret that nothing in the function's arguments or result can have.

    Where a value may be anything (`Any`, a dict, `**kwargs`, no annotation), so may the names in it.

    Raises:
        ConfigError: A name fits none of the parameters, nor the fields of their types.
    """
    if not redact:
        return
    names = list(dict.fromkeys(_names(function)))
    for key in redact:
        if "" not in names and not any(marks(key, name.removeprefix(".")) for name in names):
            raise ConfigError(
                f"{option} names {key!r}, which nothing in {tool} is called ({_there_are(names)}){_meant(key, names)}"
            )


def _names(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the names under which a value can stand, fields with a dot before them; "" where any name can be."""
    # Read anew, and not from the gate's schema: that one is read at the first call, when every annotation can be.
    schemas = [Schema.of(function)]
    yield from schemas[0].names
    plain = inspect.unwrap(function)
    # Without an annotation there is nothing to say of the result; with one that cannot be read yet it may be anything.
    if "return" in getattr(plain, "__annotations__", {}):
        schemas.append(Schema.of_type(hints_of(plain).get("return", Any)))
    found: list[str] = []
    for schema in schemas:
        for part in [*schema.properties.values(), *schema.tree.get("$defs", {}).values()]:
            mapped(part, partial(_gathered, found))
        for cls in schema.classes.values():
            found += [f".{name}" for name in getattr(cls, "__private_attributes__", ())]
            found += [f".{name}" for name in getattr(cls, "__dataclass_fields__", getattr(cls, "model_fields", ()))]
    yield from found


def _gathered(found: list[str], node: dict[str, Any]) -> dict[str, Any]:
    is_open = node.get("type", "object") == "object" and node.get("additionalProperties", True) is not False
    if is_open and not node.keys() & {"$ref", "anyOf", "oneOf", "enum", "not"}:
        found.append("")
    found += [f".{name}" for name in node.get("properties", ())]
    return node


def _there_are(names: Collection[str]) -> str:
    shown = [name.removeprefix(".") for name in names]
    return f"there are {', '.join(dict.fromkeys(shown))}" if shown else "it takes none"


def _meant(name: str, names: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [known.removeprefix(".") for known in names], 1)
    return f"; did you mean {near[0]!r}?" if near else ""
