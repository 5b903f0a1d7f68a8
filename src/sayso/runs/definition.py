"""What a tool, agent or workflow declares: its name, gate and schema, and how its arguments are completed and shown."""

from __future__ import annotations

import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar

from sayso import compat, config, errors
from sayso.effects import Effects, HookCall
from sayso.gates import Gate
from sayso.gates.options import check_known, has_own_name, quorum_of
from sayso.gating import OnReject
from sayso.model import duration
from sayso.model.parameters import Signature
from sayso.model.redaction import Redaction
from sayso.model.reviewer import Reviewer
from sayso.model.schema import Schema, SchemaError
from sayso.runs import options as run_options
from sayso.runs.events import Failed, NestedCallHeld
from sayso.runs.options import Approval, by_name, rest_of
from sayso.signals import ConfirmationRequired
from sayso.stores.base import Store

__all__ = ["RESERVED", "Definition", "checked_name", "entry"]

RESERVED = ("parent_id", "run_id", "resume", "approval_decisions")


class Definition(ABC):
    """What is declared of a tool, an agent or a workflow.

    Args:
        name: How people and models call it; letters, digits, `_`, `-`, at most 64.
        description: What it does, for models and reviewers.
        requires_approval: Whether a person must approve a call: True, False, or a sync or async callable over the
            arguments that returns a bool or an `ApprovalPolicyDecision`.
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

    def __init__(
        self, *, name: str, function: Callable[..., Any], description: str | None = None,
        requires_approval: bool | Callable[..., Any] = False,
        approval_prompt: str | Callable[..., Any] | None = None,
        approval_description: str | Callable[..., Any] | None = None,
        approval_redact_keys: Collection[str] = (), approval_redactor: Callable[[dict[str, Any]], Any] | None = None,
        approval_ui: Any = None, approval_kind: str | None = None, default_params: Mapping[str, Any] | None = None,
        expires: timedelta | str = "24h", approval_expires: timedelta | str = "24h", quorum: int = 1,
        roles: Collection[str] = (), risk: str | None = None, idempotent: bool = False,
        verify: Callable[..., Any] | None = None, store: Store | str | None = None, tracing_provider: Any = None,
        escalate_after: timedelta | str | None = None, escalate_to: Collection[str | Reviewer] = (),
        notify_arguments: bool = False, **unknown: Any,
    ) -> None:  # fmt: skip
        check_known(type(self).__name__, unknown, run_options.options_of(type(self)))
        run_options.check_options({
            "description": description, "approval_prompt": approval_prompt,
            "approval_description": approval_description, "approval_redact_keys": approval_redact_keys,
            "approval_redactor": approval_redactor, "approval_ui": approval_ui, "approval_kind": approval_kind,
            "default_params": default_params, "risk": risk, "idempotent": idempotent, "verify": verify,
        })  # fmt: skip
        self.name, self.description, self.function = checked_name(name), description, function
        self.type = self.kind.capitalize()  # as events and spans say it
        self.default_params = dict(default_params or {})
        run_options.check_defaults(name, self.default_params)
        self._store = compat.store_of(store, tracing_provider)
        rest = rest_of(function)
        told = approval_description if callable(approval_description) else None
        self._asking = {"requires_approval": requires_approval, "approval_prompt": approval_prompt, "verify": verify}
        self._asking |= {"approval_description": approval_description, "approval_ui": approval_ui}
        self._approval = Approval(
            by_name(requires_approval, rest), by_name(approval_ui, rest), approval_kind, by_name(told, rest)
        )
        self._options: dict[str, Any] = {
            "prompt": by_name(approval_prompt, rest),
            "description": description if told is not None else approval_description or description,
            "expires": duration.option("expires", expires),
            "approval_expires": duration.option("approval_expires", approval_expires),
            "quorum": quorum_of(quorum, roles),
            "redact": tuple(approval_redact_keys),
            "redactor": approval_redactor,
            "risk": risk,
            "idempotent": idempotent,
            "verify": verify,
            **run_options.escalation_options(escalate_after, escalate_to, notify_arguments=notify_arguments),
        }
        self.check_names()

    def check_names(self) -> None:
        """Refuse arguments that cannot be given, default parameters that are none, and what asks for such.

        Raises:
            ConfigError: There is one.
        """
        taken = sorted(set(RESERVED).intersection(self.signature.names))
        if taken:
            raise errors.ConfigError(f"{self.name} takes an argument {taken[0]!r}, a word of the run; rename it")
        strange = sorted(set(self.default_params) - set(self.signature.names))
        if self.signature.takes_any:
            return
        if strange:
            raise errors.ConfigError(f"default_params= names {strange[0]!r}, which {self.name} does not take")
        secrets = self._options["redact"]
        run_options.check_asked(self.name, self.function, self.signature.names, self._asking, secrets)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    @property
    def store(self) -> Store:
        """Where its runs and requests live."""
        return config.open_store(self._store)

    @abstractmethod
    def parts(self) -> Mapping[str, Definition]:
        """Return the runnables that it may call, by name."""

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
        approval = self._approval
        own = getattr(inspect.unwrap(self.function), "__name__", None)
        is_own = own == self.name and self.kind == "tool" and has_own_name(getattr(self, "handler", self.function))
        named = None if is_own else self.name  # two objects with one method are told apart by the names of their tools
        redaction = Redaction([*self._options["redact"], *self.hidden()])
        return Gate(
            self.function, when=approval.rule, context=approval.context, named=named, redaction=redaction,
            option_names=run_options.WORDS, **self._options,
        )  # fmt: skip

    def hidden(self) -> Collection[str]:
        """Return names to mask beside those that were asked for."""
        return ()

    def secrets(self) -> Collection[str]:
        """Return the names of what people may not see of its input; all of them where a redactor decides."""
        named = {*self._options["redact"], *self.hidden()}
        return named if self._options["redactor"] is None else named.union(self.signature.names)

    @property
    def is_free(self) -> bool:
        """Whether its calls wait for nobody."""
        return self._approval.rule is False

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments that a model is asked for: none that the program makes for each call."""
        whole = self.shape.json_schema()
        properties: dict[str, Any] = whole.get("properties", {})
        shown_as = self.signature.shown_as
        asked = {shown_as(n): p for n, p in properties.items() if not callable(self.default_params.get(n))}
        required = [shown_as(name) for name in whole.get("required", []) if name not in self.default_params]
        return {**whole, "properties": asked, "required": required}

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
        """Return an input as the handler takes it, with fixed defaults; as it is where it does not fit its types."""
        fixed = {name: value for name, value in self.default_params.items() if not callable(value)}
        try:
            # Twice, because what is filled in is as the author wrote it: an `int` where the type is `float`.
            return self.validate(self.validate(self._placed({**fixed, **given})))
        except SchemaError:
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
        return rest_of(self.function)

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
        return self.shape.validate(arguments)

    def shown(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as people may see them."""
        return self._approval.shown(self.gate, arguments)


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
        raise errors.ConfigError(f"name= takes 1 to 64 letters, digits, '_' or '-', not {name!r}")
    return name
