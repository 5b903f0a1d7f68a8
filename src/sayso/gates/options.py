"""`Gate`: a function and the options of its gate, validated when the function is decorated.

For example, this rejects functions without a name of their own, names that cannot be displayed, names in `redact=` that
no argument or result can have, and hooks with parameters that do not exist. `ForeignGate` is for a call that is no
Python function. Invariant: an option is rejected before anything is called or stored.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import MethodType, ModuleType
from typing import Any, cast

from sayso.effects import HookCall
from sayso.errors import ArgumentError, ConfigError, PolicyError
from sayso.gates.caller import Block
from sayso.gates.captured_values import CapturedValues
from sayso.model import cached_property, canonical, duration
from sayso.model.parameters import Signature, chosen, hints_of, method_refusal, unknown_keyword
from sayso.model.redaction import Redaction, marks
from sayso.model.reviewer import Escalation, Quorum
from sayso.model.schema import Schema
from sayso.model.schema_validation import mapped
from sayso.model.text import closest
from sayso.policy import Policy, Verdict, describe, in_effect
from sayso.policy.rules import template_fields


def tool_of(function: Callable[..., Any], name: str | None) -> str:
    """Return the name that identifies a gate's calls: the given one, or the function's own.

    Raises:
        TypeError: The function is a class, or has no name of its own and was given none.
        ConfigError: The name cannot be displayed.
    """
    if isinstance(function, classmethod):
        raise TypeError(method_refusal(cast("object", function)))
    if not callable(function):
        raise TypeError(f"a gate takes a function, not {function!r}; nothing was gated")
    if isinstance(function, type):
        raise TypeError(
            f"{function.__name__} is a class, and a gate needs a function; gate a function that creates one"
        )
    if inspect.iscoroutinefunction(type(function).__call__):
        raise TypeError("an object with an async __call__ looks like a plain function; gate its __call__, with name=")
    if name is None:
        kind = _nameless(function)
        if kind is not None:
            bound = getattr(function, "__name__", "method")
            way_out = (
                f"name the object: sayso.gate(obj.{bound}, name='…') or sayso.Tool(obj.{bound}, name='…')"
                if _is_bound(function)
                else "gate a plain function, or give name="
            )
            raise TypeError(f"{kind}, so two of them look the same; {way_out}. Nothing was gated")
        return canonical.function_name(function)
    if not isinstance(name, str) or not 0 < len(name) <= 200:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"name= takes a string of 1 to 200 characters, not {name!r}")
    if not name.isprintable() or name != name.strip():
        raise ConfigError(f"name= takes printable characters without surrounding spaces, not {name!r}")
    return name


def has_own_name(function: Callable[..., Any]) -> bool:
    """Return whether a callable has an identifying name; a lambda, a partial or a bound method has none."""
    return _nameless(function) is None


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
    hidden = getattr(function, "__self__", None)  # for a builtin, its module
    return inspect.isbuiltin(function) and hidden is not None and not isinstance(hidden, ModuleType)


def rule_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options `when=` and `always=` as gate fields; without `when=` the policy file in effect applies.

    Raises:
        ConfigError: One of them cannot be used.
    """
    when, always = options.get("when", True), options.get("always", False)
    if not isinstance(when, bool | Policy) and not callable(when):
        raise ConfigError(f"when= takes True, False, a callable or a sayso.policy.Policy, not {when!r}")
    if not isinstance(always, bool):
        raise ConfigError(f"always= takes True or False, not {always!r}")
    if always and when is False:
        raise ConfigError("always=True holds every call, and when=False none; give one of them")
    return {"when": when, "always": always, "follows": "when" not in options}


def check_known(what: str, options: Iterable[str], known: Collection[str]) -> None:
    """Reject an unknown option, and suggest the one that was probably meant.

    Raises:
        TypeError: An option is unknown.
    """
    for option in options:
        if option not in known:
            raise unknown_keyword(what, option, known)


def quorum_of(quorum: int, roles: Collection[str]) -> Quorum:
    """Return the quorum for the options `quorum=` and `roles=`.

    Raises:
        ConfigError: One of them cannot be used.
    """
    if type(quorum) is not int or quorum < 1:
        raise ConfigError(f"quorum= takes a number of people from 1, not {quorum!r}")
    if isinstance(roles, str) or not isinstance(roles, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"roles= takes a collection of strings, such as {{'finance'}}, not {roles!r}")
    strange = [role for role in roles if not isinstance(role, str) or not role or role != role.strip()]  # pyright: ignore[reportUnnecessaryIsInstance]
    if strange:
        raise ConfigError(f"roles= takes strings without surrounding spaces, not {strange[0]!r}")
    return Quorum(quorum, frozenset(roles))


def block_of(options: Mapping[str, Any]) -> Block | None:
    """Return how to block, by the `wait=`, `timeout=` and `on_expiry=` of a gate or a question; None for `"raise"`.

    Raises:
        ConfigError: One of them cannot be used.
    """
    wait, timeout, on_expiry = options.get("wait", "block"), options.get("timeout"), options.get("on_expiry", "reject")
    span = None if timeout is None else duration.option("timeout", timeout)
    if wait not in ("block", "raise"):
        raise ConfigError(f"wait= takes 'block' or 'raise', not {wait!r}")
    if on_expiry not in ("reject", "ask"):
        raise ConfigError(f"on_expiry= takes 'reject' or 'ask', not {on_expiry!r}")
    if wait == "block":
        return Block(span, on_expiry)
    useless = "timeout= is how long a call waits" if span is not None else None
    if "on_expiry" in options:
        useless = "on_expiry= is for a call that waits until its request expires"
    if useless is not None:
        raise ConfigError(f"{useless}, and with wait='raise' no call waits; leave out one of them")
    return None


def check_hook(option: str, hook: object, tool: str, names: Collection[str]) -> None:
    """Reject a rule, prompt or hook with a parameter that is not an argument of the call.

    Raises:
        ConfigError: It has an unknown parameter, or a positional-only one.
    """
    if isinstance(hook, bool) or not callable(hook):
        return
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return
    for parameter in parameters:
        if parameter.default is not inspect.Parameter.empty or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        if parameter.name not in names:
            raise ConfigError(
                f"{option}= has a parameter {parameter.name!r}, which is not an argument of {tool}"
                f" ({_there_are(names)}){_meant(parameter.name, names)}"
            )
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"{option}= gets its arguments by name, so {parameter.name!r} must not be positional-only"
            )


def redact_names(redact: Collection[str], option: str = "redact") -> tuple[str, ...]:
    """Return the names in an option such as `redact=`; raises `ConfigError` if it is not a collection of names."""
    if isinstance(redact, str) or not isinstance(redact, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"{option}= takes a collection of names, not {redact!r}")
    strange = [name for name in redact if not isinstance(name, str) or not name.strip()]  # pyright: ignore[reportUnnecessaryIsInstance]
    if strange:
        raise ConfigError(f"{option}= takes names of arguments or fields as strings, not {strange[0]!r}")
    return tuple(redact)


def check_text(
    option: str, text: object, tool: str, names: Collection[str], *, is_secret: Callable[[str], bool] | None = None
) -> None:
    """Reject an invalid text or template at decoration.

    Args:
        option: The option's name, as the author knows it.
        text: The value; a callable is checked by `check_hook`.
        tool: The tool.
        names: The names of its arguments.
        is_secret: For a key or an effect, which are shown unmasked: returns whether an argument is secret.

    Raises:
        ConfigError: It is not a text, or names an argument that does not exist or is secret.
    """
    if text is None or callable(text):
        return
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{option}= takes a string, a template or a callable, not {text!r}")
    try:
        fields = template_fields(text)
    except ValueError as error:
        raise ConfigError(f"{option}= {text!r} is not a valid template: {error}; write {{{{ for a brace") from None
    for part in fields:
        name = part.partition(".")[0].partition("[")[0]
        if name not in names or "._" in part:
            listed = ", ".join(names) or "nothing"
            raise ConfigError(f"{option}= {text!r} names {part!r}, which {tool} does not take (it takes {listed})")
        if is_secret is not None and any(map(is_secret, part.replace("[", ".").replace("]", "").split("."))):
            raise ConfigError(f"{option}= {text!r} names {part!r}, which is secret; it would be shown unmasked")


_NO_PAUSE = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit)


def _check_suspends(suspends: Iterable[type[BaseException]], ambiguous: Iterable[type[BaseException]]) -> None:
    """Reject pauses that a failed or interrupted call can end with as well: it would be started again, unasked.

    Raises:
        ConfigError: One of them is that general, or `ambiguous=` names it too.
    """
    for pause in suspends:
        if any(issubclass(end, pause) for end in _NO_PAUSE) or pause.__name__ == "CancelledError":
            raise ConfigError(
                f"suspends= takes exceptions of a framework that pauses, and with {pause.__name__} a call may also fail"
                " or be interrupted; name a class that means nothing else"
            )
        for error in ambiguous:
            if issubclass(error, pause):
                raise ConfigError(
                    f"ambiguous= and suspends= contradict each other: after {error.__name__}, the call would be started"
                    " again although it may have had its effect; leave it out of one of them"
                )


def check_redact(function: Callable[..., Any], redact: Collection[str], tool: str, option: str) -> None:
    """Reject the name of a secret that nothing in the function's arguments or result can have.

    If a value can be anything (`Any`, a dict, `**kwargs`, no annotation), so can the names in it.

    Raises:
        ConfigError: A name matches neither a parameter nor a field of a type.
    """
    if not redact:
        return
    names = list(dict.fromkeys(_names(function)))
    for key in redact:
        if "" not in names and not any(marks(key, name.removeprefix(".")) for name in names):
            raise ConfigError(
                f"{option} names {key!r}, but no argument or field of {tool} has that name"
                f" ({_there_are(names)}){_meant(key, names)}"
            )


def _names(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the names that a value can have, fields with a leading dot; "" if any name is possible."""
    # A new schema, not the gate's own, which is read at the first call, when every annotation can be resolved.
    schemas = [Schema.of(function)]
    yield from schemas[0].names
    plain = inspect.unwrap(function)
    # Without an annotation, nothing is known about the result; one that cannot be resolved yet may be anything.
    if "return" in getattr(plain, "__annotations__", {}):
        schemas.append(Schema.of_type(hints_of(plain).get("return", Any)))
    found: list[str] = []

    def gather(node: dict[str, Any]) -> dict[str, Any]:
        is_open = node.get("type", "object") == "object" and node.get("additionalProperties", True) is not False
        if is_open and not node.keys() & {"$ref", "anyOf", "oneOf", "enum", "not"}:
            found.append("")
        found.extend(f".{name}" for name in node.get("properties", ()))
        return node

    for schema in schemas:
        for part in [*schema.properties.values(), *schema.tree.get("$defs", {}).values()]:
            mapped(part, gather)
        for cls in schema.classes.values():
            found += [f".{name}" for name in getattr(cls, "__private_attributes__", ())]
            found += [f".{name}" for name in getattr(cls, "__dataclass_fields__", getattr(cls, "model_fields", ()))]
    yield from found


def _there_are(names: Collection[str]) -> str:
    shown = [name.removeprefix(".") for name in names]
    return f"there are {', '.join(dict.fromkeys(shown))}" if shown else "it takes none"


def _meant(name: str, names: Collection[str]) -> str:
    near = closest(name, (known.removeprefix(".") for known in names))
    return "" if near is None else f"; did you mean {near!r}?"


@dataclass(frozen=True, eq=False)
class Gate:
    """A function and the options of its gate; see `sayso.gate` for the options.

    Attributes:
        named: The name that the gate was given, in place of the function's own.
        escalation: Who else may decide, and after which time.
        option_names: The author's names for options that are called otherwise here: `{"when": "requires_approval"}`.
        context: Computes facts for the reviewer's front end from the masked arguments.
        ambiguous: Further errors after which the effect of a call is uncertain (see `sayso.gates.ambiguous`).
        key: The occasion of a call in its run; for `effect`, `title`, `summary` see `sayso.gate`.
        suspends: The exceptions of a call that has not ended and may be started again.
        always: A person decides each call, even one that a rule allows, and no grant or budget can.
        follows: It has no `when=` of its own, so the policy file in effect applies.
        channels: The only channels that are notified of its requests; empty for all.
        has_effect_of_rule: Whether a rule named its effect, for the arguments of one call.
        tool: Identifies its calls: the given name, or `module:function`.
        name: The name for people.
        signature: The function's signature.
        is_self_contained: Whether the function captures nothing, so that its name identifies it.
        captured: The values that it captures.

    Raises:
        TypeError: The function cannot be gated, or needs a name.
        ConfigError: An option does not fit the function.
    """

    function: Callable[..., Any]
    when: bool | Callable[..., Any] | Policy = True
    prompt: str | Callable[..., Any] | None = None
    description: str | None = None
    expires: timedelta = timedelta(hours=24)
    approval_expires: timedelta = timedelta(hours=24)
    quorum: Quorum = Quorum()
    redaction: Redaction = Redaction()
    redactor: Callable[[dict[str, Any]], Any] | None = None
    redact: tuple[str, ...] = ()
    risk: str | None = None
    retries: int = 0
    idempotent: bool = False
    verify: Callable[..., Any] | None = None
    named: str | None = None
    context: Callable[[dict[str, Any]], Any] | None = None
    escalation: Escalation | None = None
    notify_arguments: bool = False
    ambiguous: tuple[type[BaseException], ...] = ()
    key: str | Callable[..., Any] | None = None
    effect: str | Callable[..., Any] | None = None
    title: str | Callable[..., Any] | None = None
    summary: str | Callable[..., Any] | None = None
    suspends: tuple[type[BaseException], ...] = ()
    always: bool = False
    follows: bool = False
    channels: tuple[str, ...] = ()
    has_effect_of_rule: bool = False
    option_names: Mapping[str, str] = field(default_factory=dict[str, str])
    tool: str = field(init=False)
    name: str = field(init=False)
    signature: Signature = field(init=False)
    is_self_contained: bool = field(init=False)
    _bare: Schema = field(init=False, repr=False)
    captured: CapturedValues = field(init=False, repr=False)
    _by_captured: dict[str, Schema] = field(init=False, repr=False)
    _hook_arguments: dict[int, Callable[[Mapping[str, Any]], dict[str, Any]]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        function, tool = self.function, tool_of(self.function, self.named)
        captured = CapturedValues(function, has_own_name=self.named is None)
        signature = Signature(function)
        texts = {"key": self.key, "effect": self.effect, "title": self.title, "summary": self.summary}
        hooks = {"when": self.when, "prompt": self.prompt, "verify": self.verify, **texts}
        for option, hook in hooks.items():
            check_hook(self.option_name(option), hook, tool, signature.names)
        for option, text in texts.items():
            is_secret = self.redaction.is_secret if option in {"key", "effect"} else None
            check_text(option, text, tool, signature.names, is_secret=is_secret)
        check_redact(function, self.redact, tool, f"{self.option_name('redact')}=")
        _check_suspends(self.suspends, self.ambiguous)
        if self.escalation is not None and self.escalation.after >= self.expires:
            raise ConfigError(
                f"escalate_after= of {tool} is not shorter than expires=, so nobody would be asked; make expires="
                " longer"
            )
        derived = {
            "tool": tool,
            "name": self.named or getattr(function, "__name__", type(function).__name__),
            "signature": signature,
            "is_self_contained": captured.is_none,
            "_bare": Schema.of(function, redact=self.redact),
            "captured": captured,
            "_by_captured": {},
            "_hook_arguments": {id(hook): chosen(hook) for hook in hooks.values() if callable(hook)},
        }
        self.__dict__.update(derived)

    def option_name(self, option: str) -> str:
        """Return the author's name for an option."""
        return self.option_names.get(option, option)

    @property
    def rule(self) -> str:
        """The name of its rule for people: `when=is_large`."""
        return describe(self.when, self.option_name("when"))

    def policy(self) -> Policy | None:
        """Return the policy that applies to its calls; None if its own `when=` does, or there is none.

        Raises:
            PolicyError: The policy file in effect cannot be used.
        """
        if isinstance(self.when, Policy):
            return self.when
        return in_effect() if self.follows else None

    @property
    def holds_all(self) -> bool:
        """Whether every call waits for a person, because no rule could decide otherwise."""
        return self.when is True and (self.always or self.policy() is None)

    def under(self, verdict: Verdict) -> Gate:
        """Return the gate for a call that a rule holds, with the rule's additions.

        Raises:
            PolicyError: Both name an effect, or the rule masks an argument whose default is in the schema.
        """
        is_more = bool(verdict.redact or verdict.channels or verdict.always)
        if not is_more and verdict.effect is None and verdict.summary is None:
            return self
        names = tuple(name for name in verdict.redact if name not in self.redact)
        if verdict.effect is not None and self.effect is not None and verdict.effect != self.effect:
            raise PolicyError(
                f"{verdict.rule or self.rule} of {self.name}", "names an effect, but the gate has its own effect="
            )
        redaction = self.redaction.also(names)
        for name, node in self.schema.properties.items() if names else ():
            if (
                node.get("default") not in (None, "", [], {})
                and redaction.is_secret(name)
                and not self.redaction.is_secret(name)
            ):
                what = f"masks {name!r}, whose default is part of the schema; name it in the gate's redact= too"
                raise PolicyError(f"{verdict.rule or self.rule} of {self.name}", what)
        made = copy.copy(self)
        made.__dict__.update(
            redact=(*self.redact, *names), redaction=redaction, channels=verdict.channels or self.channels,
            always=self.always or verdict.always,
            effect=self.effect if verdict.effect is None else verdict.effect,
            has_effect_of_rule=self.has_effect_of_rule or (self.effect is None and verdict.effect is not None),
            summary=self.summary if verdict.summary is None else verdict.summary,
        )  # fmt: skip
        return made

    def hook_call(
        self, hook: Callable[..., Any], arguments: Mapping[str, Any], snapshot: Callable[[], object] | None = None
    ) -> HookCall:
        """Return the call of one of the gate's hooks with the arguments that it takes."""
        return HookCall(hook, self._hook_arguments[id(hook)](arguments), snapshot)

    @cached_property
    def has_async_rule(self) -> bool:
        """Whether its rule is awaited, as far as its functions show; computing this takes longer than most rules."""
        rule: Any = self.when
        return any(map(inspect.iscoroutinefunction, (rule, inspect.unwrap(rule), type(rule).__call__)))

    @cached_property
    def is_unbounded(self) -> bool:
        """Whether only Python's own rules limit its arguments."""
        return not self.signature.fields and not self._bare.has_bounds

    def check_bounds(self, arguments: Mapping[str, Any]) -> None:
        """Raise `ArgumentError` if an argument of a call that is not held violates the bounds of its type."""
        if problems := self._bare.out_of_bounds(arguments):
            raise self.misfit(problems[0])

    def misfit(self, problem: str) -> ArgumentError:
        """Return the error for an argument that does not fit its type, for a problem of `Schema`."""
        where, _, reason = problem.partition(": ")
        return ArgumentError(where, f"does not fit the types of {self.name} ({reason})")

    @property
    def schema(self) -> Schema:
        """The schema of its arguments; its digest covers the plain values that the function captures now."""
        if self.is_self_contained:
            return self._bare
        digest = self.captured.digest()
        if digest is None:
            return self._bare
        schema = self._by_captured.get(digest)
        if schema is None:
            self._by_captured.clear()  # a variable that changes with each call must not exhaust the memory
            schema = self._by_captured[digest] = self._bare.among(digest)
        return schema


# -- a foreign tool ----------------------------------------------------------------------------------------------------


def no_function(**_: Any) -> Any:
    """Placeholder for the function of a held call."""
    raise RuntimeError("a held call has no function of its own")  # `once` provides one


class _ByName(Signature):
    """The signature of a foreign tool: its function takes one dict."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(no_function)
        self.names = names

    def spread(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (dict(arguments),), {}


@dataclass(frozen=True, eq=False)
class ForeignGate(Gate):
    """The gate of a call that is not a Python function: its schema is given, and may not list all its names."""

    function: Callable[..., Any] = no_function
    given: Schema = field(default_factory=lambda: Schema.of_json({"type": "object"}))

    def __post_init__(self) -> None:
        tool = tool_of(no_function, self.named)
        _check_suspends(self.suspends, self.ambiguous)
        derived = {
            "tool": tool, "name": tool, "signature": _ByName(self.given.names), "is_self_contained": True,
            "_bare": self.given, "captured": CapturedValues(no_function), "_by_captured": {},
            "_hook_arguments": {id(hook): chosen(hook) for hook in (self.when, self.effect) if callable(hook)},
        }  # fmt: skip
        self.__dict__.update(derived)
