"""The approval options of a runnable, as its gate takes them: the rule, and the facts for a front end's card."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from sayso import errors
from sayso.gates import Gate
from sayso.gates.check import HookError
from sayso.model import canonical, redaction
from sayso.policy import Verdict, allow
from sayso.runs.resolution import ApprovalPolicyDecision
from sayso.runs.values import plain

__all__ = ["Approval", "by_name", "rest_of"]

_FLAT = (str, int, float, bool, type(None))


class Approval:
    """What a runnable says about approval.

    Attributes:
        rule: For the gate: True, False, or a callable that returns a bool or a verdict.
        context: For the gate: what makes the facts for a card out of the masked arguments; None where there are none.
    """

    def __init__(
        self, required: object, ui: Any, kind: str | None, description: Callable[..., Any] | None = None
    ) -> None:  # fmt: skip
        if not isinstance(required, bool) and not callable(required):
            raise errors.ConfigError(f"requires_approval= takes True, False or a callable, not {required!r}")
        self.rule: bool | Callable[..., Any] = required if isinstance(required, bool) else _ruled(required)
        self._ui, self._kind, self._description = ui, kind, description
        has_facts = not (ui is None and kind is None and description is None)
        self.context: Callable[[dict[str, Any]], Any] | None = self._facts if has_facts else None

    def _facts(self, masked: dict[str, Any]) -> Any:
        """Return the facts, or a coroutine that does; `masked` are the arguments as people may see them."""
        facts: dict[str, Any] = {"kind": self._kind} if self._kind is not None else {}
        if self._description is not None:
            with _named("approval_description"):
                facts["description"] = _text(self._description(**_chosen(self._description, masked)))
        if self._ui is None:
            return facts
        with _named("approval_ui"):
            ui: Any = self._ui
            if callable(ui) and not isinstance(ui, BaseModel):
                ui = ui(**_chosen(ui, masked))
            if inspect.isawaitable(ui):
                return _awaited(facts, ui)
            return {**facts, "ui": _card(ui)}

    def shown(self, gate: Gate, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as people may see them, where nothing is held."""
        if gate.redactor is not None:
            return plain(redaction.shown_by(gate.redactor, dict(arguments)))
        if all(isinstance(value, _FLAT) for value in arguments.values()):
            is_secret = gate.redaction.is_secret
            return {name: redaction.MASK if is_secret(name) else value for name, value in arguments.items()}
        try:
            tree = canonical.load(canonical.encode(dict(arguments)).text)
        except errors.ArgumentError:
            tree = cast("dict[str, Any]", plain(dict(arguments)))
            return cast("dict[str, Any]", gate.redaction.mask(tree))
        return cast("dict[str, Any]", canonical.display(cast("Any", gate.redaction.mask(tree))))


async def _awaited(facts: dict[str, Any], ui: Any) -> dict[str, Any]:
    with _named("approval_ui"):
        return {**facts, "ui": _card(await ui)}


@contextmanager
def _named(option: str) -> Generator[None]:
    """Let an error of a hook say which option it was given as."""
    try:
        yield
    except Exception as error:
        raise HookError(option, error) from error


def _text(description: Any) -> str:
    if not isinstance(description, str):
        raise TypeError(f"approval_description gives a text, not {type(description).__name__}")
    return description


def _card(ui: Any) -> Any:
    if ui is not None and not isinstance(ui, BaseModel | dict):
        raise TypeError(f"approval_ui gives a dict or a pydantic model, not {type(ui).__name__}")
    return plain(ui)


def _chosen(hook: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(hook).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return dict(arguments)
    return {p.name: arguments[p.name] for p in parameters if p.name in arguments}


def rest_of(function: Callable[..., Any]) -> str | None:
    """Return the name of a function's `**arguments`, if it takes such."""
    parameters = inspect.signature(function).parameters.values()
    return next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)


def by_name(hook: Any, rest: str | None) -> Any:
    """Return a hook that gets what stands under `rest` by its own names, as the handler does."""
    if rest is None or not callable(hook) or isinstance(hook, BaseModel):
        return hook

    @functools.wraps(hook)
    def flat(**arguments: Any) -> Any:
        more = arguments.pop(rest, {})
        return hook(**_chosen(hook, {**arguments, **more}))

    flat.__dict__.pop("__wrapped__", None)  # its parameters are not the hook's
    return flat


def _ruled(policy: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule that a `requires_approval` callable is; its parameters stay those of the callable."""
    if inspect.iscoroutinefunction(policy):

        @functools.wraps(policy)
        async def rule_async(*args: Any, **kwargs: Any) -> Any:
            return _verdict(await policy(*args, **kwargs))

        return rule_async

    @functools.wraps(policy)
    def rule(*args: Any, **kwargs: Any) -> Any:
        answer = policy(*args, **kwargs)
        return _later(answer) if inspect.isawaitable(answer) else _verdict(answer)

    return rule


async def _later(answer: Any) -> Any:
    return _verdict(await answer)


def _verdict(answer: Any) -> Any:
    """Return a decision as the verdict that it means; anything else as it is, for the gate to judge."""
    if isinstance(answer, dict):
        try:
            answer = ApprovalPolicyDecision.model_validate(answer, strict=True)
        except ValidationError as error:
            raise TypeError(
                f"returned a dict that is no ApprovalPolicyDecision: {error.error_count()} problem(s)"
            ) from None
    if not isinstance(answer, ApprovalPolicyDecision):
        return answer
    if not answer.required:
        return allow()
    facts = answer.model_dump(include={"description", "kind", "ui", "metadata"}, exclude_none=True)
    return Verdict("hold", prompt=answer.prompt, context={name: value for name, value in facts.items() if value})
