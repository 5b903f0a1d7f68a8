"""How a call ended, and the earlier request that a call repeats.

An earlier request is the one that this call waited for, the one with its key, or one that was decided in this run for
the same call. A key finds its request forever, even if a rule now allows the call. Invariants: no call runs in addition
to the request of its key, or against a decision that was made while it waited. `verify=` is not asked about a call that
is known to be still running.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from sayso import clock, errors
from sayso.drivers import Attempt, Operations, StoreCall, Suspended, left_to_run
from sayso.gates.ambiguous import Handled, in_doubt, is_own_word
from sayso.gates.hooks import ask_verify, key_of, secrets_known, shown_result, unchanged
from sayso.gates.options import Gate
from sayso.gates.scope import Occasion
from sayso.gates.signals import Caller, ConfirmationRequired
from sayso.model import canonical, redaction
from sayso.model.ids import call_digest
from sayso.model.lifecycle import Outcome, is_due, result_to_keep
from sayso.model.parameters import annotated, hints_of
from sayso.model.request import Request, State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.schema import Schema
from sayso.policy import Happened, Verdict
from sayso.stores import processes
from sayso.stores.program import ProgramStore


def judged(gate: Gate, attempt: Attempt, handled: Handled | None = None) -> Attempt:
    """Return how a call ended, with the two facts that only the gate knows."""
    if isinstance(attempt.raised, gate.suspends):  # it paused for its framework, and has not ended
        return attempt
    if isinstance(attempt.raised, ConfirmationRequired):  # of a gate inside the started call, which thereby ends
        note = (
            f"sayso: {gate.name} was approved and started, and is recorded as failed, because a call inside it waits:"
            " calling it again asks for it again, and repeats what it did before. Use one gate, around the outer call;"
            " or give that gate suspends=sayso.ConfirmationRequired, which keeps its approval"
        )
        with suppress(Exception):  # as in `mark_unknown`; `add_note` would lose it: the others are made at each access
            attempt.raised.__notes__ = [*getattr(attempt.raised, "__notes__", ()), note]
    if isinstance(attempt.raised, Exception):  # an interrupted call is unknown anyway
        attempt = attempt._replace(is_ambiguous=in_doubt(gate.ambiguous, handled, attempt.raised))
        return attempt._replace(is_without_effect=is_own_word(attempt.raised, handled))
    left = None if type(attempt.value) in _WHOLE else left_to_run(attempt.value)
    if left is None:
        return attempt
    # Nobody here learns how that ends, and the call would be recorded as done.
    what, has_begun = left
    text = f"{gate.name} returned {what}, whose work would run after the call; gate the async function that does it"
    return Attempt(None, TypeError(f"{text}, or one that runs it to its end"), is_ambiguous=has_begun)


_ERROR_LIMIT = 2_000
_OPEN = {State.PENDING, State.APPROVED}
_WHOLE = {type(None), bool, int, float, str, bytes, dict, list, tuple}


def outcome_of(gate: Gate, request: Request, attempt: Attempt) -> Outcome:
    """Return the outcome to record for a call, secrets masked."""
    if attempt.raised is None:
        value = attempt.value
        shown = None if value is None else shown_result(gate, request, value)
        for_replay = (None, None) if request.key is None else result_to_keep(value)
        return Outcome("done", shown, None, *for_replay)
    if isinstance(attempt.raised, (Suspended, *gate.suspends)):
        return Outcome("suspended")
    text = redaction.error_text(attempt.raised, secrets_known(gate, request))
    if isinstance(attempt.raised, ConfirmationRequired):
        why = "a call or a question inside it waits for a person"
        text = f"it stopped because {why}; what it did before is done ({text})"
    if len(text) > _ERROR_LIMIT:
        text = f"{text[:_ERROR_LIMIT]} … ({len(text) - _ERROR_LIMIT} more characters)"
    state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"
    return Outcome(state, error=text, not_run=state == "failed" and attempt.is_without_effect)


def asked_before(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], occasion: Occasion, verdict: Verdict,
    waited: Request | None = None,
) -> Operations[Request | None]:  # fmt: skip
    """Return the earlier request of a call that its rule now allows, if there is one.

    A rule may depend on the time, and its file may have changed. What a person decided about this call counts
    nevertheless, and so does the request of its key, or one that was answered here. None if nobody was asked, the rule
    denies the call, or nobody answered in time. Raises `PolicyError` if the arguments changed meanwhile.

    Args:
        gate, store, arguments, occasion: As for `gated_call`.
        verdict: The rule's verdict.
        waited: The request for which this very call has waited.
    """
    if verdict.kind == "deny":
        return None
    if waited is not None:
        return (yield from unchanged(gate, arguments, _if_it_answers(store, waited.id)))
    if occasion.has_name and (occasion.key is not None or gate.key is not None):
        found = yield from unchanged(gate, arguments, _of_key(gate, store, arguments, occasion))
        if found is not None:
            return found
    with suppress(errors.ArgumentError):  # such a call was never asked
        adopted = occasion.adopted.get(_digest(gate, arguments)) if occasion.adopted else None
        if adopted is not None:
            return (yield from unchanged(gate, arguments, _if_it_answers(store, adopted)))
    return None


def _of_key(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], occasion: Occasion
) -> Operations[Request | None]:  # fmt: skip
    keyed = occasion._replace(key=(yield from key_of(gate, arguments, occasion)))
    return (yield from find_keyed(gate, store, lambda: _digest(gate, arguments), keyed))


def _if_it_answers(store: ProgramStore, request_id: str) -> Operations[Request | None]:
    """Return the current request if it still answers its call."""
    found: Request | None = None
    with suppress(errors.RequestNotFoundError):
        found = yield StoreCall(store.settle, request_id)
    return found if found is not None and (found.holds or found.key is not None) else None


def held_by_now(store: ProgramStore, found: Request) -> Operations[Request | None]:
    """Return the settled request; None if it no longer answers a call.

    An approval is compared with the journal when it is started; a request that ends the call here, by `settle`.
    """
    if found.state not in _OPEN or is_due(found, clock.now()):
        found = yield StoreCall(store.settle, found.id)
    return found if found.holds else None


def _digest(gate: Gate, arguments: dict[str, Any]) -> str:
    return call_digest(gate.tool, gate.schema.digest, canonical.encode(arguments).digest_input)


def find_keyed(
    gate: Gate, store: ProgramStore, digest: Callable[[], str], occasion: Occasion
) -> Operations[Request | None]:  # fmt: skip
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
    is_open = found.state in _OPEN and not is_due(found, clock.now())
    return found if is_open else (yield StoreCall(store.settle, found.id))


def replay(gate: Gate, store: ProgramStore, request: Request) -> Operations[Any]:
    """Return the result of the call with a key, whichever process ran it.

    Raises:
        CallFailedError: The call failed.
        ValueNotKeptError: Its result was not kept, or cannot be read here.
    """
    if request.state is State.FAILED:
        raise errors.CallFailedError(request.id, error=None if request.execution is None else request.execution.error)
    text: str = yield StoreCall(store.result, request.id)
    annotation = hints_of(annotated(inspect.unwrap(gate.function))).get("return")
    classes: Mapping[str, type] = {} if annotation is None else Schema.of_type(annotation).classes
    try:
        return canonical.decode(text, classes)["result"]
    except errors.ArgumentError as error:
        raise errors.ValueNotKeptError(request.id, f"cannot be read here ({error.reason})") from None


def look_into(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion, caller: Caller
) -> Operations[Attempt | Request | None]:  # fmt: skip
    """Ask the gate's `verify=` hook about a call with an unknown outcome, and record its answer.

    Returns:
        How the call ended; or the request, if it is to be started again; or None, if the call is to be asked again.

    Raises:
        OutcomeUnknownError: It has not ended, as far as can be seen here; or nobody can tell, and the call is not
            idempotent.
    """
    # A call whose lease was lost, or whose task was cancelled, may go on: what the hook sees of it would change.
    execution = request.execution
    worker = None if execution is None or execution.finished_at is not None else execution.worker
    running = processes.running_at(request.id, worker)
    if running is not None:
        raise errors.OutcomeUnknownError(request.id, running=running)
    answer = None if gate.verify is None else (yield from ask_verify(gate, gate.verify, request))
    if answer is None:
        if request.idempotent and wanted.lack_of(request) is None and not caller.is_over(request):
            return request
        raise errors.OutcomeUnknownError(request.id)
    found = Attempt(answer.result if isinstance(answer, Happened) else None, None)
    hook = Identity(PROGRAM, f"verify={getattr(gate.verify, '__name__', 'hook')}")
    resolve = partial(
        store.resolve, roles=None, happened=bool(answer), comment=None, channel="verify",
        token=None if execution is None else execution.token,
        outcome=outcome_of(gate, request, found) if answer else None,
    )  # fmt: skip
    try:
        resolved: Request = yield StoreCall(resolve, request.id, hook)
    except errors.NotUnknownError:  # somebody else resolved it, and may have started it again; its new state decides
        return (yield StoreCall(store.settle, request.id))
    if answer:
        caller.happened(resolved)
        return found
    return resolved if resolved.state is State.APPROVED or resolved.key is not None else None
