"""Earlier requests of a call: that of its key, its stored result, and the one that the call has waited for.

A key finds its request forever, even if a rule now allows the call. Invariant: no call runs in addition to the request
of its key, or against what a person decided while it waited.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from sayso import clock, errors
from sayso.effects import Effects, StoreCall
from sayso.gates.hooks import key_of
from sayso.gates.options import Gate
from sayso.gates.scope import Occasion
from sayso.model import canonical
from sayso.model.ids import call_digest
from sayso.model.lifecycle import is_due
from sayso.model.parameters import annotated, hints_of
from sayso.model.request import Request, State
from sayso.model.schema import Schema
from sayso.policy import Verdict
from sayso.stores.program import ProgramStore


def asked_before(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], occasion: Occasion, verdict: Verdict,
    waited: Request | None = None,
) -> Effects[Request | None]:  # fmt: skip
    """Return the earlier request of a call that its rule now allows, if there is one.

    A rule may depend on the time, and its file may have changed. What a person decided about this call counts
    nevertheless, and so does the request of its key, or one that was answered here. None if nobody was asked, the rule
    denies the call, or nobody answered in time.

    Args:
        gate, store, arguments, occasion: As for `gated_call`.
        verdict: The rule's verdict.
        waited: The request for which this very call has waited.
    """
    if verdict.kind == "deny":
        return None
    if waited is not None:
        return (yield from _if_it_answers(store, waited.id))
    if occasion.has_name and (occasion.key is not None or gate.key is not None):
        keyed = occasion._replace(key=(yield from key_of(gate, arguments, occasion)))
        found = yield from find_keyed(gate, store, lambda: _digest(gate, arguments), keyed)
        if found is not None:
            return found
    with suppress(errors.ArgumentError):  # such a call was never asked
        adopted = occasion.adopted.get(_digest(gate, arguments)) if occasion.adopted else None
        if adopted is not None:
            return (yield from _if_it_answers(store, adopted))
    return None


def _if_it_answers(store: ProgramStore, request_id: str) -> Effects[Request | None]:
    """Return the current request if it still answers its call."""
    found: Request | None = None
    with suppress(errors.RequestNotFoundError):
        found = yield StoreCall(store.settle, request_id)
    return found if found is not None and (found.holds or found.key is not None) else None


def _digest(gate: Gate, arguments: dict[str, Any]) -> str:
    return call_digest(gate.tool, gate.schema.digest, canonical.encode(arguments).digest_input)


def find_keyed(
    gate: Gate, store: ProgramStore, digest: Callable[[], str], occasion: Occasion
) -> Effects[Request | None]:  # fmt: skip
    """Return the current request with a key, if the digest of its call is that of `digest`.

    A request that ends the call here is compared with the journal; an approval is when it is started.

    Raises:
        KeyReusedError: The key was used for another call.
    """
    run_id, key = occasion.run_ids[0], cast("str", occasion.key)
    found: Request | None = yield StoreCall(store.find_key, run_id, key)
    if found is None:
        return None
    if found.subject.digest != digest():
        is_same = getattr(found.subject, "tool", None) == gate.tool
        other = f"another tool, {getattr(found.subject, 'tool', 'a question')}"
        what = "other arguments, or another schema of them" if is_same else other
        raise errors.KeyReusedError(run_id, key, request_id=found.id, what=what)
    is_open = found.state in {State.PENDING, State.APPROVED} and not is_due(found, clock.now())
    return found if is_open else (yield StoreCall(store.settle, found.id))


def replay(gate: Gate, store: ProgramStore, request: Request) -> Effects[Any]:
    """Return the result of the call with a key, whichever process ran it.

    Raises:
        CallFailedError: The call failed.
        ValueNotKeptError: Its result was not kept, or cannot be read here.
    """
    if request.state is State.FAILED:
        raise errors.CallFailedError(request.id, error=None if request.execution is None else request.execution.error)
    text: str = yield StoreCall(store.result, request.id)
    try:
        return canonical.decode(text, _result_classes(gate.function))["result"]
    except errors.ArgumentError as error:
        raise errors.ValueNotKeptError(request.id, f"cannot be read here ({error.reason})") from None


def _result_classes(function: Callable[..., Any]) -> Mapping[str, type]:
    annotation = hints_of(annotated(inspect.unwrap(function))).get("return")
    return {} if annotation is None else Schema.of_type(annotation).classes
