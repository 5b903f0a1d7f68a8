"""What a tool, agent or workflow declares: its options, gate and schema, and how its arguments are completed and shown.

What would go wrong at a later call is refused where the tool, agent or workflow is declared.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, cast

from pydantic import BaseModel, Field, StrictBool, ValidationError

from sayso import config
from sayso.effects import Effects, HookCall
from sayso.errors import ArgumentError, ConfigError
from sayso.gates.gate import CallOptions, OnReject, RequestOptions
from sayso.gates.masking import HookError
from sayso.gates.options import Gate, check_hook, check_known, check_redact, has_own_name, quorum_of
from sayso.gates.signals import ConfirmationRequired
from sayso.model import canonical, duration, redaction
from sayso.model.cached import cached_property
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


class CommonOptions(RequestOptions, total=False):
    """What all of them take, beside what each names itself."""

    requires_approval: bool | Callable[..., Any] | Policy
    approval_prompt: str | Callable[..., Any] | None
    approval_description: str | Callable[..., Any] | None
    approval_redact_keys: Collection[str]
    approval_redactor: Callable[[dict[str, Any]], Any] | None
    approval_ui: Any
    approval_kind: str | None
    tracing_provider: Any


class ToolOptions(CommonOptions, CallOptions, total=False):
    """What tools take; `default_params` is apart, because it changes which arguments a call needs."""

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


class _Option(NamedTuple):
    """What an option takes, where its own reader does not say so: values of these types, a callable as well."""

    default: Any
    takes: str = ""
    types: Any = object
    or_callable: bool = False


_OPTIONS: Mapping[str, _Option] = MappingProxyType({
    "description": _Option(None, "a text", str | None),
    "requires_approval": _Option(False, "True, False, a callable or a sayso.policy.Policy", bool | Policy, True),
    "always": _Option(False, "True or False", bool),
    "approval_prompt": _Option(None, "a text or a callable", str | None, True),
    "approval_description": _Option(None, "a text or a callable", str | None, True),
    "approval_redact_keys": _Option((), "a collection of names", Collection),
    "approval_redactor": _Option(None, "a callable", type(None), True),
    "approval_ui": _Option(None, "a dict, a pydantic model or a callable", dict | BaseModel | None, True),
    "approval_kind": _Option(None, "a text", str | None),
    "default_params": _Option(None, "a dict of arguments by name", Mapping | None),
    "expires": _Option("24h"), "approval_expires": _Option("24h"), "quorum": _Option(1), "roles": _Option(()),
    "risk": _Option(None, "a text", str | None),
    "idempotent": _Option(False, "True or False", bool),
    "verify": _Option(None, "a callable", type(None), True),
    "store": _Option(None), "tracing_provider": _Option(None),
    "escalate_after": _Option(None), "escalate_to": _Option(()),
    "notify_arguments": _Option(False, "True or False", bool),
})  # fmt: skip
"""What all of them take; `Definition` says what each means."""


def _read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options by name; raises `ConfigError` for a value that cannot be used."""
    given = {**{name: option.default for name, option in _OPTIONS.items()}, **options}
    for name, option in _OPTIONS.items():
        value = given[name]
        is_text = option.types is Collection and isinstance(value, str)
        if (is_text or not isinstance(value, option.types)) and not (option.or_callable and callable(value)):
            raise ConfigError(f"{name}= takes {option.takes}, not {value!r}")
    return given


def check_handler(handler: Callable[..., Any]) -> None:
    """Refuse what is no function whose call begins and ends.

    Raises:
        TypeError: It is a generator or a context manager made of one, or an object that is called async.
        ConfigError: It is none at all, or Python cannot tell its arguments.
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
        raise ConfigError(f"Python cannot tell the arguments of {handler!r}; wrap it in a function") from None


def options_of(runnable: type) -> frozenset[str]:
    """Return the options that a tool, an agent or a workflow takes by name."""
    starts = [vars(base)["__init__"] for base in runnable.__mro__ if "__init__" in vars(base) and base is not object]
    found = [parameter for start in starts for parameter in inspect.signature(start).parameters.values()]
    return frozenset(_OPTIONS) | {p.name for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY} - {"function"}


class Definition:
    """What is declared of a tool, an agent or a workflow.

    Args:
        name: How people and models call it; letters, digits, `_`, `-`, at most 64.
        description: What it does, for models and reviewers.
        requires_approval: Whether a person must approve a call: True, False (the default), or a sync or async callable
            over the arguments that returns a bool or an `ApprovalPolicyDecision`, or a `sayso.policy.Policy`.
        always: A person decides each call, also without `requires_approval`: what a rule would let through waits, and
            no grant and no budget stands in.
        approval_prompt, approval_description: For the reviewer; each may be a callable: the prompt over the arguments,
            the description over the masked ones.
        approval_redact_keys: More names of arguments and fields to mask, at every depth.
        approval_redactor: Gets a copy of the arguments and returns what people may see.
        approval_ui: Data for a front end's card, or a callable over the masked arguments that returns it.
        approval_kind: A word by which a front end picks a card.
        default_params: Arguments that the caller leaves out; a sync or async callable without parameters is asked once
            for each call.
        expires, approval_expires: How long a request waits, and an approval counts.
        quorum, roles, risk, idempotent, verify, escalate_after, escalate_to, notify_arguments: As for `sayso.gate`.
        store: Where runs and requests live, instead of the configured store; `tracing_provider` is another name of it.

    Raises:
        ConfigError: An option cannot be used.
    """

    kind: ClassVar[str]
    needs_values: ClassVar[bool] = False
    on_reject: OnReject = "raise"

    def __init__(self, *, name: str, function: Callable[..., Any], **options: Any) -> None:
        check_known(type(self).__name__, options, options_of(type(self)))
        given = _read_options(options)
        self.name, self.description, self.function = checked_name(name), given["description"], function
        self.type = self.kind.capitalize()  # as events and spans say it
        self.default_params = dict(given["default_params"] or {})
        _check_defaults(name, self.default_params)
        self._store = compat.store_of(given["store"], given["tracing_provider"])
        if given["always"] and given["requires_approval"] is False:
            given["requires_approval"] = True
        rest, description = self.rest, given["approval_description"]
        asking = ("requires_approval", "approval_prompt", "verify", "approval_description", "approval_ui")
        self._asking = {option: given[option] for option in asking}
        rule = by_name(given["requires_approval"], rest)
        self._rule: bool | Callable[..., Any] | Policy = rule if isinstance(rule, bool | Policy) else _as_rule(rule)
        self.is_free = self._rule is False  # its calls wait for nobody
        self._ui, self._ui_kind = by_name(given["approval_ui"], rest), given["approval_kind"]
        self._describe = by_name(description, rest) if callable(description) else None
        as_they_are = ("risk", "idempotent", "verify", "notify_arguments", "always")
        self._options: dict[str, Any] = {option: given[option] for option in as_they_are} | {
            "prompt": by_name(given["approval_prompt"], rest),
            "description": self.description if self._describe is not None else description or self.description,
            "expires": duration.option("expires", given["expires"]),
            "approval_expires": duration.option("approval_expires", given["approval_expires"]),
            "quorum": quorum_of(given["quorum"], given["roles"]), "redact": tuple(given["approval_redact_keys"]),
            "redactor": given["approval_redactor"],
            "escalation": Escalation.of(given["escalate_after"], given["escalate_to"]),
        }  # fmt: skip
        self.check_names()

    def check_names(self) -> None:
        """Refuse arguments that cannot be given, default parameters that are none, and what asks for such.

        Raises:
            ConfigError: There is one.
        """
        taken = sorted(set(RESERVED).intersection(self.signature.names))
        if taken:
            raise ConfigError(f"{self.name} takes an argument {taken[0]!r}, a word of the run; rename it")
        strange = sorted(set(self.default_params) - set(self.signature.names))
        if self.signature.takes_any:
            return
        if strange:
            raise ConfigError(f"default_params= names {strange[0]!r}, which {self.name} does not take")
        for option, hook in self._asking.items():
            check_hook(option, hook, self.name, self.signature.names)
        check_redact(self.function, self._options["redact"], self.name, "approval_redact_keys=")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def store(self) -> Store:
        """Where its runs and requests live."""
        return config.open_store(self._store)

    def parts(self) -> Mapping[str, Definition]:
        """Return the runnables that it may call, by name; what a handler calls by itself is its own business."""
        return {}

    @cached_property
    def signature(self) -> Signature:
        """How it is called."""
        return Signature(self.function)

    @cached_property
    def shape(self) -> Schema:
        """Which arguments it takes."""
        return self.gate.schema

    @cached_property
    def gate(self) -> Gate:
        """The checkpoint before its calls."""
        own = getattr(inspect.unwrap(self.function), "__name__", None)
        is_own = own == self.name and self.kind == "tool" and has_own_name(getattr(self, "handler", self.function))
        named = None if is_own else self.name  # two objects with one method are told apart by the names of their tools
        has_facts = not (self._ui is None and self._ui_kind is None and self._describe is None)
        return Gate(
            self.function, when=self._rule, context=self._facts if has_facts else None, named=named,
            redaction=self.redaction, option_names=WORDS, **self._options,
        )  # fmt: skip

    def _facts(self, masked: dict[str, Any]) -> Any:
        """Return the facts for a card, or a coroutine that does; `masked` are the arguments as people may see them."""
        facts: dict[str, Any] = {"kind": self._ui_kind} if self._ui_kind is not None else {}
        if self._describe is not None:
            with _named("approval_description"):
                facts["description"] = _text(self._describe(**chosen(self._describe)(masked)))
        if self._ui is None:
            return facts
        with _named("approval_ui"):
            ui: Any = self._ui
            if callable(ui) and not isinstance(ui, BaseModel):
                ui = ui(**chosen(ui)(masked))
            return _awaited(facts, ui) if inspect.isawaitable(ui) else {**facts, "ui": _card(ui)}

    @property
    def redaction(self) -> Redaction:
        """What people may not see of its input."""
        return Redaction([*self._options["redact"], *self.hidden()])

    def hidden(self) -> Collection[str]:
        """Return names to mask beside those that were asked for."""
        return ()

    def secrets(self) -> Collection[str]:
        """Return the names of what people may not see of its input; all of them where a redactor decides."""
        named = {*self._options["redact"], *self.hidden()}
        return named if self._options["redactor"] is None else named.union(self.signature.names)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments that a model is asked for: none that the program makes for each call."""
        whole = self.shape.json_schema()
        properties: dict[str, Any] = whole.get("properties", {})
        shown_as = self.signature.shown_as
        asked = {shown_as(n): p for n, p in properties.items() if not callable(self.default_params.get(n))}
        required = [shown_as(name) for name in whole.get("required", []) if name not in self.default_params]
        return {**whole, "properties": asked, "required": required}

    @property
    def offer(self) -> dict[str, Any]:
        """What a model is offered to call."""
        return {"name": self.name, "description": self.description or "", "parameters": self.schema}

    def arguments_of(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name: what is given, else the default parameters, else the defaults.

        Raises:
            Failed: They do not fit the types.
        """
        try:
            return self.validate(self._placed({**defaults, **self.signature.by_name(given)}))
        except SchemaError as error:
            raise Failed("ValidationError", "; ".join(error.problems), error) from None

    def completed(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an input in canonical form with fixed defaults, to be compared; as it is where it does not fit."""
        fixed = {name: value for name, value in self.default_params.items() if not callable(value)}
        try:
            form = canonical.load(canonical.encode(dict(self._placed({**fixed, **given}))).text)
            # As an edit is read, so that 1 and 1.0 are one float; twice, for a default is as the author wrote it.
            return self.shape.fit(self.shape.fit(cast("dict[str, Any]", form)))
        except (ArgumentError, SchemaError):
            return given

    @cached_property
    def makes_defaults(self) -> bool:
        """Whether a default parameter is made anew for each call."""
        return any(map(callable, self.default_params.values()))

    def defaults(self, given: Mapping[str, Any]) -> Effects[dict[str, Any]]:
        """Return the default parameters of a call that gives these arguments; each callable is asked once.

        Raises:
            Failed: One of them failed.
        """
        found: dict[str, Any] = {}
        given = self.signature.by_name(given)
        for name, value in self.default_params.items():
            if name in given or (self.rest is not None and name in given.get(self.rest, ())):
                continue
            try:
                found[name] = (yield HookCall(value, {})) if callable(value) else value
            except Exception as error:
                text = f"the default of {name!r} could not be made: {error}"
                raise Failed(type(error).__name__, text, error) from error
        return found

    @cached_property
    def rest(self) -> str | None:
        """The name under which arguments of any name stand, where the function takes such."""
        parameters = inspect.signature(self.function).parameters.values()
        return next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)

    def _placed(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.rest is None:
            return given
        names = self.signature.names
        more = {name: value for name, value in given.items() if name not in names}
        own = {name: value for name, value in given.items() if name in names}
        return {**own, self.rest: {**more, **own.get(self.rest, {})}}

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the handler takes them, from values or from JSON.

        Raises:
            sayso.model.schema.SchemaError: They do not fit its types.
        """
        exact = self._exact
        # A validation costs more than the rest of a step, and most arguments have their plain type already.
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
        """The types of the arguments, where all are plain ones and nothing else is asked of them."""
        hints = hints_of(annotated(inspect.unwrap(self.function)))
        kinds = {name: hints.get(name) for name in self.signature.names}
        is_plain = self.rest is None and all(kind in _IS_PLAIN for kind in kinds.values())
        return kinds if is_plain and not self.signature.takes_any and not self.shape.has_bounds else None

    def shown(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as people may see them, where nothing is held."""
        gate = self.gate
        if gate.redactor is not None:
            return plain(redaction.shown_by(gate.redactor, dict(arguments)))
        if all(isinstance(value, _FLAT) for value in arguments.values()):
            is_secret = gate.redaction.is_secret
            return {name: redaction.MASK if is_secret(name) else value for name, value in arguments.items()}
        try:
            tree = canonical.load(canonical.encode(dict(arguments)).text)
        except ArgumentError:
            return cast("dict[str, Any]", gate.redaction.mask(plain(dict(arguments))))
        return cast("dict[str, Any]", canonical.display(cast("Any", gate.redaction.mask(tree))))


_FLAT = (str, int, float, bool, type(None))
_IS_PLAIN: dict[Any, Callable[[Any], bool]] = {
    str: str.isascii, bool: lambda _: True, int: lambda value: value.bit_length() < 64
}  # fmt: skip


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


def by_name(hook: Any, rest: str | None) -> Any:
    """Return a hook that gets what stands under `rest` by its own names, as the handler does."""
    if rest is None or not callable(hook) or isinstance(hook, BaseModel):
        return hook

    @functools.wraps(hook)
    def flat(**arguments: Any) -> Any:
        more = arguments.pop(rest, {})
        return hook(**chosen(hook)({**arguments, **more}))

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


def _check_defaults(tool: str, params: Mapping[str, Any]) -> None:
    """Refuse default parameters that cannot be made, because they ask for arguments themselves."""
    for name, made in params.items():
        try:
            parameters = inspect.signature(made).parameters.values() if callable(made) else ()
        except (TypeError, ValueError):  # of a builtin, Python may not know
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
    """Return a handler with a gated function inside of it that waits told apart from one that failed."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def enter_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except ConfirmationRequired as held:
                raise NestedCallHeld(held) from held

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

    return enter


def checked_name(name: str) -> str:
    """Return a name that every provider takes for a tool, and that a path may hold; raises `ConfigError` for others."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"name= takes 1 to 64 letters, digits, '_' or '-', not {name!r}")
    return name
