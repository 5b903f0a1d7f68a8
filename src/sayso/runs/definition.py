"""The declaration of a tool, agent or workflow: its options, gate and schema, and its completed and masked arguments.

Errors that a later call would cause are raised when the tool, agent or workflow is declared.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, cast

from pydantic import BaseModel, Field, StrictBool, ValidationError

from sayso import config
from sayso.effects import HookCall, Operations
from sayso.errors import ArgumentError, ConfigError
from sayso.gates.captured_values import ENTERED
from sayso.gates.exceptions import ConfirmationRequired
from sayso.gates.gate import CallOptions, OnReject, RequestOptions
from sayso.gates.hooks import HookError
from sayso.gates.options import Gate, check_hook, check_known, has_own_name, quorum_of, redact_names
from sayso.model import cached_property, canonical, duration, redaction
from sayso.model.parameters import Signature, annotated, chosen, hints_of, method_refusal, runs_later
from sayso.model.redaction import Redaction
from sayso.model.reviewer import Escalation
from sayso.model.schema import Schema, SchemaError
from sayso.policy import Policy, Verdict, allow
from sayso.runs import compat
from sayso.runs.events import Failed, NestedCallHeld, plain
from sayso.stores.base import Store

RESERVED = ("parent_id", "run_id", "resume", "approval_decisions")


class ApprovalPolicyDecision(BaseModel):
    """A result that a `requires_approval` callable can return instead of a bool.

    Attributes:
        required: Whether a person must approve the call.
        prompt, description, kind, ui: Values for this call that replace the tool's own.
        metadata: Your own data, which appears on the event.
    """

    required: StrictBool
    prompt: str | None = None
    description: str | None = None
    kind: str | None = None
    ui: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class CommonOptions(RequestOptions, total=False):
    """The options of tools, agents and workflows, except those that each class declares itself."""

    requires_approval: bool | Callable[..., Any] | Policy
    approval_prompt: str | Callable[..., Any] | None
    approval_description: str | Callable[..., Any] | None
    approval_redact_keys: Collection[str]
    approval_redactor: Callable[[dict[str, Any]], Any] | None
    tracing_provider: Any


class ToolOptions(CommonOptions, CallOptions, total=False):
    """The options of tools, except `default_params`, which changes the arguments that a call needs."""

    on_reject: OnReject


class RunnableOptions(CommonOptions, total=False):
    """The options of agents and workflows."""

    description: str | None
    default_params: Mapping[str, Any] | None


WORDS: Mapping[str, str] = MappingProxyType({
    "when": "requires_approval", "prompt": "approval_prompt", "redact": "approval_redact_keys",
    "redactor": "approval_redactor",
})  # fmt: skip
"""The names of the gate's options in a tool's declaration."""


class _Option(NamedTuple):
    """The accepted types of an option that has no parser of its own, and whether it can be a callable."""

    default: Any
    takes: str = ""
    types: Any = object
    or_callable: bool = False


_OPTIONS: Mapping[str, _Option] = MappingProxyType({
    "description": _Option(None, "a string", str | None),
    "requires_approval": _Option(False, "True, False, a callable or a sayso.policy.Policy", bool | Policy, True),
    "always": _Option(False, "True or False", bool),
    "approval_prompt": _Option(None, "a string or a callable", str | None, True),
    "approval_description": _Option(None, "a string or a callable", str | None, True),
    "approval_redact_keys": _Option(()),
    "approval_redactor": _Option(None, "a callable", type(None), True),
    "default_params": _Option(None, "a dict of arguments by name", Mapping | None),
    "expires": _Option("24h"), "approval_expires": _Option("24h"), "quorum": _Option(1), "roles": _Option(()),
    "risk": _Option(None, "a string", str | None),
    "idempotent": _Option(False, "True or False", bool),
    "verify": _Option(None, "a callable", type(None), True),
    "store": _Option(None), "tracing_provider": _Option(None),
    "escalate_after": _Option(None), "escalate_to": _Option(()),
    "notify_arguments": _Option(False, "True or False", bool),
})  # fmt: skip
"""The options of all three; `Definition` documents them."""


def check_handler(handler: Callable[..., Any]) -> None:
    """Check that a handler is a function whose call has a start and an end.

    Raises:
        TypeError: It is a generator, a context manager made from one, or an object with an async `__call__`.
        ConfigError: It is not callable, or Python cannot determine its parameters.
    """
    if isinstance(handler, classmethod):
        raise TypeError(method_refusal(cast("object", handler)))
    if not callable(handler):
        raise ConfigError(f"a tool takes a function, not {handler!r}")
    if runs_later(handler):
        raise TypeError("handler is a generator, which runs after its call has ended; return a list, or the last value")
    if not inspect.iscoroutinefunction(handler) and inspect.iscoroutinefunction(type(handler).__call__):
        raise TypeError("handler is an object with an async __call__; give that method itself, with name=")
    try:
        inspect.signature(handler)
    except ValueError:
        raise ConfigError(f"the parameters of {handler!r} cannot be determined; wrap it in a function") from None


def options_of(runnable: type) -> frozenset[str]:
    """Return the names of the options of a tool, agent or workflow class."""
    starts = [vars(base)["__init__"] for base in runnable.__mro__ if "__init__" in vars(base) and base is not object]
    found = [parameter for start in starts for parameter in inspect.signature(start).parameters.values()]
    own = {p.name for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY}
    return frozenset(_OPTIONS) | own - {"function", "tool_options"}


class Definition:
    """The declaration of a tool, agent or workflow.

    Args:
        name: The name for people and models: up to 64 letters, digits, `_` and `-`.
        description: The description for models and reviewers.
        requires_approval: Whether a person must approve a call: True, False (the default), or a sync or async callable
            that takes the arguments and returns a bool or an `ApprovalPolicyDecision`, or a `sayso.policy.Policy`.
        always: Whether a person decides each call even without `requires_approval`: no rule, grant or budget can allow
            it instead.
        approval_prompt, approval_description: Texts for the reviewer. Either can be a callable: the prompt's takes the
            arguments, the description's takes the masked arguments.
        approval_redact_keys: Additional names of arguments and fields to mask, at every depth.
        approval_redactor: A function that takes a copy of the arguments and returns what people may see.
        default_params: Values for arguments that the caller omits; a sync or async callable without parameters is
            called once for each call.
        expires, approval_expires: How long a request stays pending, and how long an approval is valid.
        quorum, roles, risk, idempotent, verify, escalate_after, escalate_to, notify_arguments: As for `sayso.gate`.
        store: The store for runs and requests instead of the configured one; `tracing_provider` is an alias.

    Raises:
        ConfigError: An option is invalid.
    """

    kind: ClassVar[str]
    needs_values: ClassVar[bool] = False
    on_reject: OnReject = "raise"

    def __init__(
        self, *, name: str, function: Callable[..., Any], tool_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        # `tool_options` are fields of the gate that only tools have.
        check_known(type(self).__name__, options, options_of(type(self)))
        given = {**{option: read.default for option, read in _OPTIONS.items()}, **options}
        for option, read in _OPTIONS.items():
            value = given[option]
            if not isinstance(value, read.types) and not (read.or_callable and callable(value)):
                raise ConfigError(f"{option}= takes {read.takes}, not {value!r}")
        self.name, self.description, self.function = checked_name(name), given["description"], function
        self.type = self.kind.capitalize()  # in events and spans
        self.default_params = dict(given["default_params"] or {})
        _check_defaults(name, self.default_params)
        self._store = compat.store_of(given["store"], given["tracing_provider"])
        if given["always"] and given["requires_approval"] is False:
            given["requires_approval"] = True
        rest, description = self.signature.rest, given["approval_description"]
        rule = by_name(given["requires_approval"], rest)
        self._rule: bool | Callable[..., Any] | Policy = rule if isinstance(rule, bool | Policy) else _as_rule(rule)
        self.is_free = self._rule is False  # its calls never wait
        self._describe = by_name(description, rest) if callable(description) else None
        as_they_are = ("risk", "idempotent", "verify", "notify_arguments", "always")
        own = {option: by_name(value, rest) for option, value in (tool_options or {}).items()}
        self._options: dict[str, Any] = own | {option: given[option] for option in as_they_are} | {
            "prompt": by_name(given["approval_prompt"], rest),
            "description": self.description if self._describe is not None else description or self.description,
            "expires": duration.option("expires", given["expires"]),
            "approval_expires": duration.option("approval_expires", given["approval_expires"]),
            "quorum": quorum_of(given["quorum"], given["roles"]),
            "redact": redact_names(given["approval_redact_keys"], "approval_redact_keys"),
            "redactor": given["approval_redactor"],
            "escalation": Escalation.of(given["escalate_after"], given["escalate_to"]),
        }  # fmt: skip
        self.check_names()

    def check_names(self) -> None:
        """Check the names of arguments and default parameters, and of the parameters of hooks.

        Raises:
            ConfigError: An argument cannot be passed, or a default or a hook names an argument that does not exist.
        """
        taken = sorted(set(RESERVED).intersection(self.signature.names))
        if taken:
            raise ConfigError(f"{self.name} has a parameter {taken[0]!r}, a name that is reserved for runs; rename it")
        strange = sorted(set(self.default_params) - set(self.signature.names))
        if strange and self.signature.rest is None:
            raise ConfigError(f"default_params= names {strange[0]!r}, which {self.name} does not take")
        # The gate is made now, because it checks its options.
        check_hook("approval_description", self._describe, self.gate.tool, self.signature.names)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def store(self) -> Store:
        """The store of its runs and requests."""
        return config.open_store(self._store)

    def parts(self) -> Mapping[str, Definition]:
        """Return the runnables that it may call, by name; direct calls by a handler are not included."""
        return {}

    @cached_property
    def signature(self) -> Signature:
        """The signature of its function."""
        return Signature(self.function)

    @cached_property
    def shape(self) -> Schema:
        """The schema of its arguments."""
        return self.gate.schema

    @cached_property
    def gate(self) -> Gate:
        """The gate before its calls."""
        own = getattr(inspect.unwrap(self.function), "__name__", None)
        is_own = own == self.name and self.kind == "tool" and has_own_name(getattr(self, "handler", self.function))
        named = None if is_own else self.name  # the same method of two objects is distinguished by the tools' names
        context = None if self._describe is None else functools.partial(_facts, self._describe)
        return Gate(
            self.function, when=self._rule, context=context, named=named, option_names=WORDS,
            redaction=Redaction([*self._options["redact"], *self.hidden()]), **self._options,
        )  # fmt: skip

    def hidden(self) -> Collection[str]:
        """Return names to mask in addition to those in the options."""
        return ()

    def secrets(self) -> Collection[str]:
        """Return the names of secret parts of its input; all names if a redactor decides."""
        named = {*self._options["redact"], *self.hidden()}
        return named if self._options["redactor"] is None else named.union(self.signature.names)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments for a model, without those that the program creates for each call."""
        whole = self.shape.json_schema()
        properties: dict[str, Any] = whole.get("properties", {})
        shown_as = self.signature.shown_as
        asked = {shown_as(n): p for n, p in properties.items() if not callable(self.default_params.get(n))}
        required = [shown_as(name) for name in whole.get("required", []) if name not in self.default_params]
        return {**whole, "properties": asked, "required": required}

    @property
    def offer(self) -> dict[str, Any]:
        """The tool's description for a model."""
        return {"name": self.name, "description": self.description or "", "parameters": self.schema}

    def arguments_of(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name: given values, then default parameters, then the function's defaults.

        Raises:
            Failed: The arguments do not match the types.
        """
        try:
            return self.validate(self._placed({**defaults, **self.signature.by_name(given)}))
        except SchemaError as error:
            raise Failed("ValidationError", "; ".join(error.problems)) from None

    def completed(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an input in canonical form with fixed defaults, for comparison; an invalid input is unchanged."""
        fixed = {name: value for name, value in self.default_params.items() if not callable(value)}
        try:
            form = canonical.load(canonical.encode(dict(self._placed({**fixed, **given}))).text)
            # Parsed like an edit, so that 1 and 1.0 are the same float; twice, because defaults are not normalized.
            return self.shape.fit(self.shape.fit(cast("dict[str, Any]", form)))
        except (ArgumentError, SchemaError):
            return given

    def defaults(self, given: Mapping[str, Any]) -> Operations[dict[str, Any]]:
        """Return the default parameters of a call that passes these arguments; each callable is called once.

        Raises:
            Failed: A callable failed.
        """
        found: dict[str, Any] = {}
        given, rest = self.signature.by_name(given), self.signature.rest
        for name, value in self.default_params.items():
            if name in given or (rest is not None and name in given.get(rest, ())):
                continue
            try:
                found[name] = (yield HookCall(value, {})) if callable(value) else value
            except Exception as error:
                text = f"the default parameter {name!r} could not be computed: {error}"
                raise Failed(type(error).__name__, text) from error
        return found

    def _placed(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        names, rest = self.signature.names, self.signature.rest
        if rest is None:
            return given
        more = {name: value for name, value in given.items() if name not in names}
        own = {name: value for name, value in given.items() if name in names}
        return {**own, rest: {**more, **own.get(rest, {})}}

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the arguments, which are values or JSON, to the types of the handler.

        Raises:
            sayso.model.schema.SchemaError: The arguments do not match the types.
        """
        exact = self._exact
        # Validation takes longer than the rest of a step, and most arguments already have their plain type.
        if exact is not None and arguments.keys() == exact.keys():
            for name, kind in exact.items():
                value = arguments[name]
                if type(value) is not kind or not _IS_PLAIN[kind](value):
                    break
            else:
                return {name: arguments[name] for name in exact}
        return self.shape.validate(arguments)

    @cached_property
    def _exact(self) -> Mapping[str, Any] | None:
        """The types of the arguments, if all are plain types without further constraints; else None."""
        hints = hints_of(annotated(inspect.unwrap(self.function)))
        kinds = {name: hints.get(name) for name in self.signature.names}
        is_plain = self.signature.rest is None and all(kind in _IS_PLAIN for kind in kinds.values())
        return kinds if is_plain and not self.shape.has_bounds else None

    def shown(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the masked arguments of a call that is not held."""
        gate = self.gate
        if gate.redactor is not None:
            return plain(redaction.shown_by(gate.redactor, dict(arguments)))
        return masked(arguments, gate.redaction)


def masked(arguments: Mapping[str, Any], redaction: Redaction) -> dict[str, Any]:
    """Return arguments as plain JSON values, masked by name."""
    try:
        tree = canonical.load(canonical.encode(dict(arguments)).text)
    except ArgumentError:
        return cast("dict[str, Any]", redaction.mask(plain(dict(arguments))))
    return cast("dict[str, Any]", canonical.display(cast("Any", redaction.mask(tree))))


_IS_PLAIN: dict[Any, Callable[[Any], bool]] = {
    str: str.isascii, bool: lambda _: True, int: lambda value: value.bit_length() < 64
}  # fmt: skip


def _facts(describe: Callable[..., Any], masked: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a call from its masked arguments, as a fact for the reviewer."""
    try:
        text = describe(**chosen(describe)(masked))
    except Exception as error:
        raise HookError("approval_description", error) from error
    if not isinstance(text, str):
        error = TypeError(f"approval_description must return a string, not {type(text).__name__}")
        raise HookError("approval_description", error)
    return {"description": text}


def by_name(hook: Any, rest: str | None) -> Any:
    """Return a hook that receives the arguments under `rest` by their own names, like the handler."""
    if rest is None or not callable(hook):
        return hook

    @functools.wraps(hook)
    def flat(**arguments: Any) -> Any:
        more = arguments.pop(rest, {})
        return hook(**chosen(hook)({**arguments, **more}))

    flat.__dict__.pop("__wrapped__", None)  # its parameters differ from the hook's
    return flat


def _as_rule(policy: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a `requires_approval` callable into a rule with the same parameters."""

    async def awaited(answer: Any) -> Any:
        return _verdict(await answer)

    @functools.wraps(policy)
    def rule(*args: Any, **kwargs: Any) -> Any:
        answer = policy(*args, **kwargs)
        return awaited(answer) if inspect.isawaitable(answer) else _verdict(answer)

    @functools.wraps(policy)
    async def rule_async(*args: Any, **kwargs: Any) -> Any:
        return _verdict(await policy(*args, **kwargs))

    return rule_async if inspect.iscoroutinefunction(policy) else rule


def _verdict(answer: Any) -> Any:
    """Convert an `ApprovalPolicyDecision` to a verdict; return other values unchanged for the gate to check."""
    if isinstance(answer, dict):
        try:
            answer = ApprovalPolicyDecision.model_validate(answer, strict=True)
        except ValidationError as error:
            raise TypeError(
                f"returned a dict that is not an ApprovalPolicyDecision: {error.error_count()} problem(s)"
            ) from None
    if not isinstance(answer, ApprovalPolicyDecision):
        return answer
    if not answer.required:
        return allow()
    facts = answer.model_dump(include={"description", "kind", "ui", "metadata"}, exclude_none=True)
    return Verdict("hold", prompt=answer.prompt, context={name: value for name, value in facts.items() if value})


def _check_defaults(tool: str, params: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for callable default parameters that require arguments."""
    for name, made in params.items():
        try:
            parameters = inspect.signature(made).parameters.values() if callable(made) else ()
        except (TypeError, ValueError):  # Python may not know a builtin's parameters
            continue
        needed = [
            p.name for p in parameters if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
        ]
        if needed:
            raise ConfigError(
                f"default_params[{name!r}] of {tool} is called without arguments, and its parameter {needed[0]!r} needs"
                " one; give a value, or a callable that needs none (`lambda: ...`)"
            )


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler so that a nested gated function that waits is distinguished from a failure."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def enter_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except ConfirmationRequired as held:
                raise NestedCallHeld(held) from held

        setattr(enter_async, ENTERED, function)
        return enter_async

    @functools.wraps(function)
    def enter(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except ConfirmationRequired as held:
            raise NestedCallHeld(held) from held
        if inspect.iscoroutine(result):
            result.close()
            name = getattr(function, "__name__", type(function).__name__)
            raise TypeError(f"{name} returned a coroutine, which nobody awaits; make it an `async def`")
        return result

    setattr(enter, ENTERED, function)
    return enter


def checked_name(name: str) -> str:
    """Return the name if every provider accepts it for a tool and it is valid in a path; else raise `ConfigError`."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"name= takes 1 to 64 letters, digits, '_' or '-', not {name!r}")
    return name
