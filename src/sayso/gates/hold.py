"""`hold`: holds a call that is not a Python function, such as a foreign tool with a JSON Schema.

It does the first steps of `sayso.gate`, validating and asking, and returns a `Held` for the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, Unpack, cast

from sayso import config, errors
from sayso.effects import Effects
from sayso.gates import scope
from sayso.gates.call import find_or_ask, wanted_of
from sayso.gates.caller import Caller, started_before
from sayso.gates.held import Held, HeldBase, driven
from sayso.gates.hooks import ask_rule, note_allowed, note_denial, under_record
from sayso.gates.keys import asked_before
from sayso.gates.options import (
    NOT_GIVEN,
    ForeignGate,
    Gate,
    check_known,
    check_text,
    no_function,
    quorum_of,
    redact_names,
    rule_options,
)
from sayso.gates.outcome import exception_classes
from sayso.model import canonical, duration
from sayso.model.redaction import Redaction
from sayso.model.request import State
from sayso.model.schema import Schema, SchemaError
from sayso.policy import Policy
from sayso.stores.base import Store


class HoldOptions(TypedDict, total=False):
    """The options of `hold` besides the tool and its arguments; see `hold`."""

    schema: Mapping[str, Any] | str | None
    key: str | None
    run: str | None
    effect: str | Callable[..., Any] | None
    title: str | None
    description: str | None
    when: bool | Callable[..., Any] | Policy
    always: bool
    quorum: int
    roles: Collection[str]
    redact: Collection[str]
    expires: timedelta | str
    approval_expires: timedelta | str
    context: Mapping[str, Any] | None
    store: Store | str | None
    withdraw_on_exit: bool
    suspends: type[BaseException] | Collection[type[BaseException]]


def hold(tool: str, arguments: Mapping[str, Any], **options: Unpack[HoldOptions]) -> Held:
    """Hold a call that is not a Python function, and return at once; durable on return.

    Args:
        tool: Name of the tool; together with the schema, it identifies its calls.
        arguments: By name; JSON values, or others that have a canonical form.
        schema: JSON Schema of the arguments (draft 2020-12, 2019-09 or 7), as a dict or text. It validates the
            arguments and a reviewer's changes.
        key: The occasion of the call in its run, such as a model's call id. The same key finds the same request
            forever, even in other processes; with other arguments it is refused.
        run: Name of the run; defaults to the current one (`sayso.run`). A key needs a run with a name.
        effect: What the call does to the world, across runs: a template over the arguments (`"refund:{order_id}"`) or
            a callable; as for `sayso.gate`.
        title: The tool's name for people, shown as the program's words.
        description: What the tool does.
        when, always: As for `sayso.gate`: a rule gets the arguments that it names. An allowed call is not recorded.
        quorum, roles, redact, expires, approval_expires, store: As for `sayso.gate`.
        context: Facts for the reviewer's front end: JSON values.
        withdraw_on_exit: As a context manager, withdraw the request on leaving the block if nobody has decided.
        suspends: As for `sayso.gate`: what the function of `once` raises if it has not ended and will run again.

    Raises:
        TypeError: An option does not exist.
        ConfigError: An option cannot be used, or the key's run has no name. Nothing was asked.
        ArgumentError: An argument does not fit the schema, or has no canonical form.
        KeyReusedError: The key was used in this run for another call.
        PolicyError: The rule failed.
        StoreError: The request could not be recorded.
    """
    return driven(holding(Held, tool, arguments, **options))


H = TypeVar("H", bound=HeldBase)


def holding(
    kind: type[H], tool: str, arguments: Mapping[str, Any], **options: Unpack[HoldOptions]
) -> Effects[H]:  # fmt: skip
    """Validate and ask, as `hold` does; shared by its sync and async forms."""
    check_known("hold", options, HoldOptions.__optional_keys__)
    key, run, context = options.get("key"), options.get("run"), options.get("context")
    texts: dict[str, Any] = {name: options.get(name) for name in ("effect", "title", "description")}
    texts |= rule_options(options.get("when", NOT_GIVEN), options.get("always", False))
    given, shape = _given(arguments), _schema(options.get("schema"))
    _check(tool, given, key, texts)
    facts, names = None if context is None else dict(context), redact_names(options.get("redact", ()))
    gate = ForeignGate(
        no_function, named=tool, given=shape, quorum=quorum_of(options.get("quorum", 1), options.get("roles", ())),
        expires=duration.option("expires", options.get("expires", "24h")),
        approval_expires=duration.option("approval_expires", options.get("approval_expires", "24h")),
        redaction=Redaction(names), redact=names,
        context=None if facts is None else lambda masked: facts,  # noqa: ARG005  the hook's name for it
        suspends=exception_classes(options.get("suspends", ()), "suspends="), **texts,
    )  # fmt: skip
    _must_fit(gate, given)
    config.check_store(options.get("store"))
    where, around = config.open_store(options.get("store")), scope.current()
    here = around
    if run is not None:
        here = scope.Scope(scope.checked_name(run), acts_for=around.acts_for, outer=around)
    occasion = here.occasion_of_call(blocks=True)._replace(key=key)
    verdict, request, denial = (yield from ask_rule(gate, given, occasion)), None, None
    if verdict.kind == "deny":
        denial = yield from note_denial(gate, where, given, occasion, verdict)
    elif verdict.kind == "allow" and not verdict.is_recorded:
        request = yield from asked_before(gate, where, given, occasion, verdict)
        if request is not None:
            gate = cast("ForeignGate", under_record(gate, request, occasion))
        elif verdict.log:
            yield from note_allowed(gate, where, occasion, verdict)
    else:
        gate = cast("ForeignGate", gate.under(verdict))
        request = yield from find_or_ask(gate, where, given, wanted_of(gate, occasion, verdict), Caller(), verdict)
        if key is None and request.state is State.RUNNING:
            raise started_before(request)
    withdraws = options.get("withdraw_on_exit", False)
    return kind(gate, where, here, occasion, given, request, denial, withdraw_on_exit=withdraws)


def _must_fit(gate: Gate, arguments: dict[str, Any]) -> None:
    """Check that arguments fit the schema.

    Raises:
        ArgumentError: One does not; nothing was asked.
    """
    try:
        gate.schema.validate(arguments)
    except SchemaError as error:
        where, _, reason = error.problems[0].partition(": ")
        raise errors.ArgumentError(where, f"does not fit the schema of {gate.name} ({reason})") from None


def _check(tool: object, arguments: Mapping[str, Any], key: object, texts: Mapping[str, Any]) -> None:
    """Check the options before anything is asked."""
    if key is not None and (
        not isinstance(key, str) or not 0 < len(key) <= 200 or not key.isprintable() or key != key.strip()
    ):
        raise errors.ConfigError(f"key= takes a string of 1 to 200 characters without surrounding spaces, not {key!r}")
    for name in ("title", "description"):
        if texts[name] is not None and not isinstance(texts[name], str):
            raise errors.ConfigError(f"{name}= takes a string, not {texts[name]!r}")
    check_text("effect", texts["effect"], str(tool), tuple(arguments))


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise TypeError(f"hold() takes the arguments by name, as a dict, not {arguments!r}; nothing was asked")
    # A copy, because the caller may change its own lists meanwhile.
    return canonical.decode(canonical.encode(dict(arguments)).text, {})


def _schema(schema: Mapping[str, Any] | str | None) -> Schema:
    if schema is None:
        return Schema.of_json({"type": "object"})
    tree: Any = schema
    if isinstance(schema, str):
        try:
            tree = json.loads(schema)
        except ValueError as error:
            raise errors.ConfigError(f"schema= is not JSON: {error}; nothing was asked") from None
    if not isinstance(tree, Mapping):
        raise errors.ConfigError(f"schema= takes a JSON Schema as a dict or string, not {tree!r}; nothing was asked")
    return Schema.of_json(cast("Mapping[str, Any]", tree))
