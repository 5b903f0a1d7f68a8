"""The options of tools, agents and workflows: what type checkers see, what is refused, and what a gate makes of them.

`sayso.runs.definition.Definition` explains each. What would go wrong at a later call is refused where the tool, agent
or workflow is declared.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypedDict, cast

from pydantic import BaseModel, Field, StrictBool, ValidationError

from sayso import errors
from sayso.errors import ConfigError
from sayso.gates import Gate
from sayso.gates.masking import HookError
from sayso.gates.options import check_hook, check_redact, check_text
from sayso.gating import OnReject
from sayso.model import canonical, redaction
from sayso.model.parameters import Signature, method_refusal
from sayso.model.reviewer import Escalation, Reviewer
from sayso.policy import Verdict, allow
from sayso.runs.events import plain
from sayso.stores.base import Store

__all__ = [
    "WORDS", "Approval", "ApprovalPolicyDecision", "CommonOptions", "RunnableOptions", "ToolOptions", "by_name",
    "call_words", "check_asked", "check_defaults", "check_handler", "check_options", "escalation_options", "options_of",
    "rest_of",
]  # fmt: skip


class ApprovalPolicyDecision(BaseModel):
    """What a `requires_approval` callable may answer, instead of a bool.

    Attributes:
        required: Whether a person must approve the call.
        prompt, description, kind, ui: For this call, instead of the tool's own.
        metadata: Of yours; on the event.
    """

    required: StrictBool
    prompt: str | None = None
    description: str | None = None
    kind: str | None = None
    ui: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class CommonOptions(TypedDict, total=False):
    """What all of them take, beside what each names itself."""

    requires_approval: bool | Callable[..., Any]
    approval_prompt: str | Callable[..., Any] | None
    approval_description: str | Callable[..., Any] | None
    approval_redact_keys: Collection[str]
    approval_redactor: Callable[[dict[str, Any]], Any] | None
    approval_ui: Any
    approval_kind: str | None
    expires: timedelta | str
    approval_expires: timedelta | str
    quorum: int
    roles: Collection[str]
    risk: str | None
    idempotent: bool
    verify: Callable[..., Any] | None
    store: Store | str | None
    tracing_provider: Any
    escalate_after: timedelta | str | None
    escalate_to: Collection[str | Reviewer]
    notify_arguments: bool


class ToolOptions(CommonOptions, total=False):
    """What tools take; `default_params` is apart, because it changes which arguments a call needs."""

    ambiguous: type[BaseException] | Collection[type[BaseException]]
    key: str | Callable[..., Any] | None
    effect: str | Callable[..., Any] | None
    title: str | Callable[..., Any] | None
    summary: str | Callable[..., Any] | None
    suspends: type[BaseException] | Collection[type[BaseException]]
    on_reject: OnReject


class RunnableOptions(CommonOptions, total=False):
    """What agents and workflows take."""

    description: str | None
    default_params: Mapping[str, Any] | None


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


def escalation_options(
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


def call_words(
    tool: str, signature: Signature, is_secret: Callable[[str], bool], rest: str | None, words: Mapping[str, Any]
) -> dict[str, Any]:  # fmt: skip
    """Return a gate's `key=`, `effect=`, `title=` and `summary=`, checked where the tool is declared.

    Raises:
        ConfigError: One names an argument that the tool does not take, or a secret one.
    """
    for option, given in words.items():
        check_hook(option, given, tool, signature.names)
        if not signature.takes_any:
            shown = is_secret if option in {"key", "effect"} else None
            check_text(option, given, tool, signature.names, is_secret=shown)
    return {option: by_name(given, rest) for option, given in words.items()}


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
        self.rule: bool | Callable[..., Any] = required if isinstance(required, bool) else _as_rule(required)
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


def _as_rule(policy: Callable[..., Any]) -> Callable[..., Any]:
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
