"""`execute`: start an approved call once, run it from its stored form, and record how it ended."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType
from typing import Any, NamedTuple, cast

from sayso import errors, telemetry
from sayso.effects import Attempt, Effects, StoreCall, Suspended, UserCall
from sayso.gates.check import forget_function, refused_edit
from sayso.gates.masking import is_as_shown, secrets_of
from sayso.gates.occasion import must_keep_effect
from sayso.gates.options import Gate, Needs, current
from sayso.gates.outcome import is_ambiguous, mark_unknown
from sayso.model import canonical, redaction
from sayso.model.canonical.tags import dump
from sayso.model.fingerprint import call_digest
from sayso.model.ids import new_token
from sayso.model.lifecycle import Outcome, result_to_keep
from sayso.model.request import Request
from sayso.model.run import RunUpdate
from sayso.stores.base import Store

__all__ = ["Started", "begin", "end", "execute"]

_RESULT_LIMIT = 65_536
_ERROR_LIMIT = 2_000
_NO_SECRET_INSIDE = {str, int, float, bool}


def execute(
    gate: Gate, store: Store, request: Request, needs: Needs | None = None,
    snapshot: Callable[[Attempt], RunUpdate | None] | None = None, on_saved: Callable[[], None] | None = None,
) -> Effects[Attempt]:  # fmt: skip
    """Start an approved call, run it from its stored form, and record how it ended.

    The start is durable before the call runs. An error of the call is a `failed` outcome. A call that is broken off
    (cancellation, Ctrl-C, exit) is `unknown`, because nobody can say what it had done by then; so is one with an
    ambiguous error (`sayso.gates.outcome`), which gets a note that says so.

    Args:
        gate: The function's gate.
        store: Where the request lives.
        request: The request that is to be started.
        needs: What its approval must have (`Check.needs`); what its record and the gate say, when not given.
        snapshot: Returns what is to be saved of the run together with the outcome.
        on_saved: Called when both are in the store.

    Raises:
        StartRefusedError: Somebody else has the start, the approval ended, or the record was altered; nothing ran.
        InvalidChangesError: The edited arguments do not pass the function's own validation; nothing ran.
        OutcomeNotRecordedError: The call ran, and the store could not be told.
    """
    started = yield from begin(gate, store, request, needs)
    before = current.set(started.request)
    try:
        call = UserCall(gate.function, started.args, started.kwargs)
        attempt: Attempt = yield telemetry.executing(started.request, call)
    finally:
        with suppress(ValueError):  # a coroutine may be closed from a context that never had it
            current.reset(before)
    return (yield from end(gate, store, started, _judged(gate, attempt), snapshot, on_saved))


class Started(NamedTuple):
    """The single right to run an approved call.

    Attributes:
        request: The request, running.
        token: What `Store.finish` wants back.
        args: The positional arguments to run with.
        kwargs: The keyword arguments.
    """

    request: Request
    token: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def begin(gate: Gate, store: Store, request: Request, needs: Needs | None = None) -> Effects[Started]:
    """Start an approved call: the first half of `execute`, durable on return."""
    token = new_token()
    try:
        started = yield StoreCall(store, store.start, request.id, token)
        arguments = _approved_arguments(gate, started, needs)
        yield from must_keep_effect(gate, started, arguments)
        args, kwargs = gate.signature.spread(arguments)
    except (errors.StartRefusedError, GeneratorExit) as refusal:
        if isinstance(refusal, errors.AlteredRequestError):
            with suppress(errors.StoreCorruptError):  # an altered row is not written to; it was not started either
                yield from _finish(store, request, token, Outcome("failed", error=str(refusal)))
        raise
    except BaseException as error:  # also a cancellation: the start may be recorded, and surely nothing ran
        yield from _finish(store, request, token, Outcome("failed", error=f"not run: {type(error).__name__}"))
        raise
    return Started(started, token, args, kwargs)


def end(
    gate: Gate, store: Store, start: Started, attempt: Attempt,
    snapshot: Callable[[Attempt], RunUpdate | None] | None = None, on_saved: Callable[[], None] | None = None,
) -> Effects[Attempt]:  # fmt: skip
    """Record how a started call ended: the second half of `execute`."""
    started = request = start.request
    saved = None if snapshot is None else snapshot(attempt)
    try:
        is_recorded = yield from _finish(store, started, start.token, _outcome(gate, started, attempt), saved)
    except errors.StoreError as error:
        if attempt.raised is None:
            raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error
        attempt.raised.add_note(f"sayso: the outcome of {request.id} could not be recorded: {error}")
        is_recorded = None
    if attempt.raised is not None and attempt.is_ambiguous and is_recorded is not False:
        mark_unknown(attempt.raised, request.id, may_start_again=started.idempotent)
    if is_recorded and on_saved is not None:
        on_saved()
    if not gate.retries and not gate.idempotent:
        forget_function(request.id)
    return attempt


def _finish(
    store: Store, request: Request, token: str, outcome: Outcome, saved: RunUpdate | None = None
) -> Effects[bool]:
    """Record an outcome; return whether it, and what was to be saved with it, is in the store."""
    try:
        yield StoreCall(store, store.finish, request.id, token, outcome, saved)
    except errors.StartRefusedError:
        return False  # the start was not recorded, or somebody has resolved it by now
    return True


def _approved_arguments(gate: Gate, request: Request, needs: Needs | None) -> dict[str, Any]:
    """Return the arguments to run with, read from the stored form; refuse them unless they are what was approved."""
    call = request.effective
    arguments, digest_input = canonical.read(call.form, lambda: gate.schema.classes)
    digest = call_digest(gate.tool, gate.schema.digest, digest_input)
    decision = request.decision
    # Every decision has a fingerprint, a no as well: only an approval lets the call run.
    approved = decision.fingerprint if decision is not None and decision.verb == "approve" else None
    if digest != call.digest or request.fingerprint_of(digest) != approved:
        raise errors.AlteredRequestError(request.id)
    if (call.tool, call.name) != (gate.tool, gate.name) or not is_as_shown(gate, call):
        raise errors.AlteredRequestError(request.id, "what people are shown of the call is not what would run")
    if request.missing_votes:
        raise errors.AlteredRequestError(
            request.id, f"it shows fewer approvals than the {request.quorum} it was asked of"
        )
    lacks = (needs or Needs.recorded(gate, request)).unmet_by(request)
    if lacks is not None:
        raise errors.AlteredRequestError(request.id, lacks)
    # The gate asked this before the start (`check`); other callers may not have.
    if problems := refused_edit(gate, request):
        raise errors.InvalidChangesError(request.id, problems)
    return arguments


def _judged(gate: Gate, attempt: Attempt) -> Attempt:
    """Return how a call ended, with the two things that only the gate can tell."""
    if isinstance(attempt.raised, gate.suspends):  # it stops for its framework, and has not ended
        return attempt
    if isinstance(attempt.raised, Exception):  # what is broken off is unknown anyway
        handled = sys.exc_info()[1]  # by the program around the call, where it was made in an `except` block
        return attempt._replace(is_ambiguous=is_ambiguous(attempt.raised, gate.ambiguous, handled))
    value = attempt.value
    if type(value) is CoroutineType and not inspect.iscoroutinefunction(gate.function):
        # It has not begun, and would be recorded as done.
        cast("CoroutineType[Any, Any, Any]", value).close()
        text = f"{gate.name} is no async function and returned a coroutine; gate the async one"
        return Attempt(None, TypeError(text))
    return attempt


def _outcome(gate: Gate, request: Request, attempt: Attempt) -> Outcome:
    if attempt.raised is None:
        value = attempt.value
        shown = None if value is None else _shown_result(gate, request, value)
        for_replay = (None, None) if request.key is None else result_to_keep(value)
        return Outcome("done", shown, None, *for_replay)
    if isinstance(attempt.raised, (Suspended, *gate.suspends)):
        return Outcome("suspended")
    call = request.effective
    text = redaction.error_text(attempt.raised, secrets_of(gate, call.form, call.masked))
    if len(text) > _ERROR_LIMIT:
        text = f"{text[:_ERROR_LIMIT]} … ({len(text) - _ERROR_LIMIT} more characters)"
    state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"
    return Outcome(state, error=text)


def _shown_result(gate: Gate, request: Request, value: Any) -> str | None:
    """Return the text of a result as people may see it, masked; None where it is too long or has no canonical form."""
    try:
        text = canonical.encode({"result": value}).text
    except Exception:  # noqa: BLE001  a result may be any object, and reading it may raise anything
        return None
    if len(text) > _RESULT_LIMIT:
        return None
    call = request.effective
    secrets = secrets_of(gate, call.form, call.masked)
    if not secrets and type(value) in _NO_SECRET_INSIDE:
        return text
    tree = canonical.load(text)
    masked = gate.redaction.mask(tree)
    return redaction.scrub(text if masked is tree else dump(masked), secrets)
