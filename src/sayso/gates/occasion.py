"""The key, the effect, the title and the summary of a call: texts of the gate's author, made from its arguments.

A text may be a template (`"refund:{order_id}"`), read at the decoration, or a callable. The key finds a call's request
for ever, and `replay` returns what became of it; the effect is taken by the start, across runs. The invariants: a key
or an effect never holds a secret or an empty value, and a call whose reviewer moved its effect does not start.
"""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sayso import errors
from sayso.effects import Effects, StoreCall
from sayso.gates.masking import refuse
from sayso.model import canonical, redaction
from sayso.model.request import Request, State
from sayso.model.schema import Schema
from sayso.model.signature import annotated, hints_of
from sayso.stores.base import Store

if TYPE_CHECKING:
    from sayso.gates.options import Gate, Place

__all__ = [
    "Words",
    "effect_of",
    "find_keyed",
    "key_of",
    "must_keep_effect",
    "must_show_no_secret",
    "replay",
    "words_of",
]

_LONGEST = 200
_ONE_VALUE = (str, int, float, Decimal, date, datetime, time, UUID, Enum, PurePath)


class Words(NamedTuple):
    """What a gate's author says of one call.

    Attributes:
        effect: What it does to the world, by a name that counts across runs.
        title: What people are to call the function.
        summary: What the call does, in one line.
    """

    effect: str | None
    title: str | None
    summary: str | None


class _Template(string.Formatter):
    """Fills a template; where `is_name`, each value in it must be one that a name can be made of."""

    def __init__(self, *, is_name: bool) -> None:
        self._is_name = is_name

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        value, first = super().get_field(field_name, args, kwargs)
        if self._is_name and (not isinstance(value, _ONE_VALUE) or value == ""):
            kind = "empty" if value is None or value == "" else f"a {type(value).__name__}"
            raise ValueError(f"{field_name} is {kind}, of which no name can be made")
        return value, first


def key_of(gate: Gate, arguments: dict[str, Any], place: Place) -> Effects[str | None]:
    """Return the key of a call; None where its gate asks for none.

    Raises:
        PolicyError: It cannot be made.
        ConfigError: The run has no name, so nobody could find the key again.
    """
    if place.key is None and gate.key is None:
        return None
    if not place.has_name:
        raise errors.ConfigError(
            f"the key of {gate.name} counts in a run with a name, and this one has none: with sayso.run('order-4721'):"
            " ..., or run= where a call is held by hand. Nothing was asked and nothing ran"
        )
    if place.key is not None:
        return place.key
    return _must_be_name(gate, "key", (yield from _text_of(gate, "key", gate.key, arguments, is_name=True)))


def effect_of(gate: Gate, arguments: dict[str, Any]) -> Effects[str | None]:
    """Return the effect of a call with these arguments; raises `PolicyError` where it cannot be made."""
    if gate.effect is None:
        return None
    text = yield from _text_of(gate, "effect", gate.effect, arguments, is_name=True)
    return _must_be_name(gate, "effect", text)


def words_of(gate: Gate, arguments: dict[str, Any], secrets: Collection[str]) -> Effects[Words]:
    """Return what the author says of a call, for its request; secrets are masked in what people read.

    Raises:
        PolicyError: One of the texts cannot be made, or the effect would show a secret.
    """
    effect = yield from effect_of(gate, arguments)
    must_show_no_secret(gate, "effect", effect, secrets)
    read: list[str | None] = []
    for option, given in (("title", gate.title), ("summary", gate.summary)):
        text = None
        if given is not None:
            text = yield from _text_of(gate, option, given, arguments, is_name=False)
        read.append(None if text is None else redaction.fit(" ".join(text.split()), secrets))
    return Words(effect, read[0], read[1])


def must_show_no_secret(gate: Gate, option: str, text: str | None, secrets: Collection[str]) -> None:
    """Refuse a key or an effect that would show a secret: it has to be the same in every process, and is not masked."""
    if text is not None and redaction.scrub(text, secrets) != text:
        raise errors.PolicyError(f"{option}= of {gate.name}", "holds a secret argument, and would be shown as it is")


def _text_of(gate: Gate, option: str, given: Any, arguments: dict[str, Any], *, is_name: bool) -> Effects[str]:
    try:
        if callable(given):
            text = yield gate.hook_call(given, arguments)
        else:
            text = _Template(is_name=is_name).vformat(given, (), arguments)
    except Exception as error:  # noqa: BLE001  user code: what cannot be named waits for nobody
        refuse(gate, f"{option}=", error, arguments)
    if not isinstance(text, str):
        raise errors.PolicyError(f"{option}= of {gate.name}", f"returned {type(text).__name__}, not a text")
    return text


def _must_be_name(gate: Gate, option: str, text: str) -> str:
    if not 0 < len(text) <= _LONGEST or not text.isprintable() or text != text.strip():
        raise errors.PolicyError(
            f"{option}= of {gate.name}",
            f"gave no text of 1 to {_LONGEST} characters that can be seen, without spaces around them",
        )
    return text


def must_keep_effect(gate: Gate, request: Request, arguments: dict[str, Any]) -> Effects[None]:
    """Refuse the start of a call that would have another effect than the one that its start takes.

    A reviewer changed what the effect is made of, or the gate's author changed `effect=` since the call was asked.

    Raises:
        InvalidChangesError: The arguments have another effect.
    """
    if gate.effect is None:
        return
    effect = yield from effect_of(gate, arguments)
    if effect != request.effect:
        problem = f"effect: these arguments have the effect {effect!r}, and {request.effect!r} was asked for"
        raise errors.InvalidChangesError(request.id, [f"{problem}; let the program ask for that call"])


def find_keyed(gate: Gate, store: Store, digest: str, run_id: str, key: str) -> Effects[Request | None]:
    """Return the request that was asked with a key, compared with the journal and as it stands by now.

    Raises:
        KeyReusedError: It was asked for another call.
    """
    found: Request | None = yield StoreCall(store, store.find_key, run_id, key)
    if found is None:
        return None
    if found.subject.digest != digest:
        is_same = getattr(found.subject, "tool", None) == gate.tool
        what = "other arguments" if is_same else f"another tool, {getattr(found.subject, 'tool', 'a question')}"
        raise errors.KeyReusedError(run_id, key, request_id=found.id, what=what)
    return (yield StoreCall(store, store.settle, found.id))


def replay(gate: Gate, store: Store, request: Request) -> Effects[Any]:
    """Return what the call of a key returned, in whichever process it ran.

    Raises:
        CallFailedError: It failed.
        ValueNotKeptError: Its result was not kept, or cannot be read here.
    """
    if request.state is State.FAILED:
        raise errors.CallFailedError(request.id, error=None if request.execution is None else request.execution.error)
    text: str = yield StoreCall(store, store.result, request.id)
    try:
        return canonical.decode(text, _result_classes(gate.function))["result"]
    except errors.ArgumentError as error:
        raise errors.ValueNotKeptError(request.id, f"cannot be read here ({error.reason})") from None


def _result_classes(function: Callable[..., Any]) -> Mapping[str, type]:
    annotation = hints_of(annotated(inspect.unwrap(function))).get("return")
    return {} if annotation is None else Schema.of_type(annotation).classes
