"""What is refused where a tool, an agent or a workflow is declared, because it would go wrong at a later call.

Options of the wrong type, options that there are not, and hooks and secrets that ask for arguments which the function
does not take. What else a gate refuses is in `sayso.gates.options`. The invariant: what is refused here has not been
called, and nothing was written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, cast

from pydantic import BaseModel

from sayso.errors import ConfigError
from sayso.gates.options import check_hook, check_redact
from sayso.model.quorum import Escalation
from sayso.model.reviewer import Reviewer
from sayso.model.signature import method_refusal

__all__ = ["WORDS", "check_asked", "check_defaults", "check_handler", "check_options", "options_of", "telling"]

WORDS: Mapping[str, str] = MappingProxyType({
    "when": "requires_approval", "prompt": "approval_prompt", "redact": "approval_redact_keys",
    "redactor": "approval_redactor",
})  # fmt: skip
"""What a tool's author calls the options of its gate."""

_TEXTS = {"description", "approval_kind", "risk"}
_HOOKS = {"approval_redactor", "verify"}
_TEXTS_OR_HOOKS = {"approval_prompt", "approval_description"}


def check_handler(handler: Callable[..., Any]) -> None:
    """Refuse what is no function whose call begins and ends.

    Raises:
        TypeError: It is a generator, or an object that is called async.
        ConfigError: It is none at all, or Python cannot tell its arguments.
    """
    if isinstance(handler, classmethod):
        raise TypeError(method_refusal(cast("object", handler)))
    if not callable(handler):
        raise ConfigError(f"a tool takes a function, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError("handler is a generator, which runs after its call has ended; return a list, or the last value")
    if not inspect.iscoroutinefunction(handler) and inspect.iscoroutinefunction(type(handler).__call__):
        raise TypeError("handler is an object with an async __call__; give that method itself, with name=")
    try:
        inspect.signature(handler)
    except ValueError:
        raise ConfigError(f"Python cannot tell the arguments of {handler!r}; wrap it in a function") from None


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options whose values cannot be used.

    Raises:
        ConfigError: There is one; None stands for an option that is not given.
    """
    for name, value in options.items():
        expected = _expected(name, value)
        if expected is not None:
            raise ConfigError(f"{name}= takes {expected}, not {value!r}")


def _expected(name: str, value: Any) -> str | None:
    """Return what an option takes, where it is not what it was given."""
    is_text, is_hook = isinstance(value, str), callable(value)
    if name == "idempotent":
        return None if isinstance(value, bool) else "True or False"
    if name == "approval_redact_keys":
        return None if isinstance(value, Collection) and not is_text else "a collection of names"
    if value is None:
        return None
    if name in _TEXTS:
        return None if is_text else "a text"
    if name in _HOOKS:
        return None if is_hook else "a callable"
    if name in _TEXTS_OR_HOOKS:
        return None if is_text or is_hook else "a text or a callable"
    if name == "default_params":
        return None if isinstance(value, Mapping) else "a dict of arguments by name"
    return None if is_hook or isinstance(value, dict | BaseModel) else "a dict, a pydantic model or a callable"


def telling(
    after: timedelta | str | None, to: Collection[str | Reviewer], *, notify_arguments: bool
) -> dict[str, Any]:  # fmt: skip
    """Return a gate's options about who is told, and who may decide later.

    Raises:
        ConfigError: One of them cannot be used.
    """
    if not isinstance(notify_arguments, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"notify_arguments= takes True or False, not {notify_arguments!r}")
    return {"escalation": Escalation.of(after, to), "notify_arguments": notify_arguments}


def check_asked(
    tool: str, function: Callable[..., Any], names: Collection[str], hooks: Mapping[str, Any], redact: Collection[str]
) -> None:  # fmt: skip
    """Refuse hooks that ask for arguments, and secrets that are none, of a function that takes these names.

    Raises:
        ConfigError: There is one.
    """
    for option, hook in hooks.items():
        check_hook(option, hook, tool, names)
    check_redact(function, redact, tool, "approval_redact_keys=")


def options_of(runnable: type) -> frozenset[str]:
    """Return the options that a tool, an agent or a workflow takes by name."""
    starts = [vars(base)["__init__"] for base in runnable.__mro__ if "__init__" in vars(base) and base is not object]
    found = [parameter for start in starts for parameter in inspect.signature(start).parameters.values()]
    return frozenset(p.name for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY) - {"function"}


def check_defaults(tool: str, params: Mapping[str, Any]) -> None:
    """Refuse default parameters that cannot be made, because they ask for arguments themselves.

    Raises:
        ConfigError: There is one.
    """
    for name, value in params.items():
        needed = _needed(value) if callable(value) else None
        if needed is not None:
            raise ConfigError(
                f"default_params[{name!r}] of {tool} is called without arguments, and its parameter {needed!r} needs"
                " one; give a value, or a callable that needs none (`lambda: ...`)"
            )


def _needed(made: Callable[..., Any]) -> str | None:
    """Return the first parameter that a call without arguments leaves without a value."""
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):  # of a builtin, Python may not know
        return None
    variable = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return next((p.name for p in parameters if p.default is p.empty and p.kind not in variable), None)
