"""`execute`: the single start of an approved call, from its stored form, and the record of how it ended."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType
from typing import Any, cast

from sayso import errors, telemetry
from sayso.effects import Attempt, Effects, Suspended, Try, Verb
from sayso.gates.check import forget, is_as_shown, refused_edit, secrets_of
from sayso.gates.options import Gate, Needs, current, spent
from sayso.gates.outcome import is_ambiguous, mark_unknown
from sayso.model import canonical, redaction
from sayso.model.canonical.tags import dump
from sayso.model.fingerprint import call_digest
from sayso.model.ids import new_token
from sayso.model.lifecycle import Outcome, result_to_keep
from sayso.model.request import Request
from sayso.model.run import Saved
from sayso.stores.base import Store

__all__ = ["execute"]

_RESULT_LIMIT = 65_536
_ERROR_LIMIT = 2_000
_NO_SECRET_INSIDE = {str, int, float, bool}


def execute(
    gate: Gate, store: Store, request: Request, needs: Needs | None = None,
    saves: Callable[[Attempt], Saved | None] | None = None, kept: Callable[[], None] | None = None,
) -> Effects[Attempt]:  # fmt: skip
    """Start an approved call, run it from its stored form, and record how it ended.

    The start is durable before the call runs. An error of the call is a `failed` outcome; being broken off
    (cancellation, Ctrl-C, exit) is an `unknown` one, because nobody can say what it had done by then, and so is an
    error that leaves it open (`sayso.gates.outcome`): the error gets a note that says so.

    Args:
        gate: The function's gate.
        store: Where the request lives.
        request: The request that is to be started.
        needs: What its approval must have had (`Check.needs`); without, what its record says.
        saves: What is to be saved of the run together with the outcome.
        kept: Called when both are in the store.

    Raises:
        StartRefusedError: Somebody else has the start, the approval ended, or the record was altered; nothing ran.
        InvalidChangesError: The edited arguments do not pass the function's own validation; nothing ran.
        OutcomeNotRecordedError: The call ran, and the store could not be told.
    """
    token = new_token()
    try:
        started = yield Verb(store.blocks, store.start, request.id, token)
        args, kwargs = gate.signature.spread(_arguments(gate, started, needs))
    except (errors.StartRefusedError, GeneratorExit) as refusal:
        if isinstance(refusal, errors.AlteredRequestError):
            with suppress(errors.StoreCorruptError):  # an altered row is not written to; it was not started either
                yield from _finish(store, request, token, Outcome("failed", error=str(refusal)))
        raise
    except BaseException as error:  # also a cancellation: the start may be recorded, and surely nothing ran
        yield from _finish(store, request, token, Outcome("failed", error=f"not run: {type(error).__name__}"))
        raise
    before = current.set(started)
    try:
        attempt: Attempt = yield telemetry.executing(started, Try(gate.function, args, kwargs))
    finally:
        with suppress(ValueError):  # a coroutine may be closed from a context that never had it
            current.reset(before)
    attempt = _judged(gate, _begun(gate, attempt))
    is_kept = yield from _record(gate, store, started, token, attempt, None if saves is None else saves(attempt))
    if is_kept and kept is not None:
        kept()
    if not gate.retries and not gate.idempotent:
        forget(request.id)
    return attempt


def _begun(gate: Gate, attempt: Attempt) -> Attempt:
    """Make a failure of a coroutine that a plain function handed back: it has not begun, and would be called done."""
    value = attempt.value
    if type(value) is not CoroutineType or inspect.iscoroutinefunction(gate.function):
        return attempt
    cast("CoroutineType[Any, Any, Any]", value).close()
    return Attempt(None, TypeError(f"{gate.name} is no async function and returned a coroutine; gate the async one"))


def _judged(gate: Gate, attempt: Attempt) -> Attempt:
    """Say of a call that raised whether nobody can tell if it took effect."""
    if not isinstance(attempt.raised, Exception):  # what is broken off is unknown anyway
        return attempt
    handled = sys.exc_info()[1]  # by the program around the call, where it was made in an `except` block
    return attempt._replace(is_ambiguous=is_ambiguous(attempt.raised, gate.ambiguous, handled))


def _arguments(gate: Gate, request: Request, needs: Needs | None) -> dict[str, Any]:
    """Return the arguments to run with: from the stored form, if it is the one that was shown and approved."""
    call = request.effective
    arguments, digest_input = canonical.read(call.form, lambda: gate.schema.classes)
    digest = call_digest(gate.tool, gate.schema.digest, digest_input)
    decision = request.decision
    # Every decision carries a fingerprint, a no as well: only a yes is one to run by.
    approved = decision.fingerprint if decision is not None and decision.verb == "approve" else None
    if digest != call.digest or request.fingerprint_of(digest) != approved:
        raise errors.AlteredRequestError(request.id)
    if (call.tool, call.name) != (gate.tool, gate.name) or not is_as_shown(gate, call):
        raise errors.AlteredRequestError(request.id, "what people are shown of the call is not what would run")
    if request.missing_votes:
        raise errors.AlteredRequestError(
            request.id, f"it shows fewer approvals than the {request.quorum} it was asked of"
        )
    lacks = spent(request, gate.retries, idempotent=gate.idempotent)
    if lacks is None and needs is not None:
        lacks = needs.unmet_by(request)
    if lacks is not None:
        raise errors.AlteredRequestError(request.id, lacks)
    # A gate asks this before it starts a call (`sayso.gates.check`); not everybody who starts one is a gate.
    if problems := refused_edit(gate, request):
        raise errors.InvalidChangesError(request.id, problems)
    return arguments


def _finish(store: Store, request: Request, token: str, outcome: Outcome, saved: Saved | None = None) -> Effects[bool]:
    try:
        yield Verb(store.blocks, store.finish, request.id, token, outcome, saved)
    except errors.StartRefusedError:
        return False  # the start was not recorded, or somebody has resolved it by now
    return True


def _record(
    gate: Gate, store: Store, request: Request, token: str, attempt: Attempt, saved: Saved | None
) -> Effects[bool]:
    """Record how a call ended; say whether that, and what was to be saved with it, is in the store."""
    try:
        is_kept = yield from _finish(store, request, token, _outcome(gate, request, attempt), saved)
    except errors.StoreError as error:
        if attempt.raised is None:
            raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error
        attempt.raised.add_note(f"sayso: the outcome of {request.id} could not be recorded: {error}")
        is_kept = False
    else:
        if not is_kept:
            return False
    if attempt.raised is not None and attempt.is_ambiguous:
        mark_unknown(attempt.raised, request.id, may_start_again=request.idempotent)
    return is_kept


def _outcome(gate: Gate, request: Request, attempt: Attempt) -> Outcome:
    if attempt.raised is None:
        kept = (None, None) if request.key is None else result_to_keep(attempt.value)
        return Outcome("done", _kept_result(gate, request, attempt.value), None, *kept)
    if isinstance(attempt.raised, Suspended):
        return Outcome("suspended")
    text = redaction.error_text(attempt.raised, secrets_of(gate, request.effective.form, request.effective.masked))
    if len(text) > _ERROR_LIMIT:
        text = f"{text[:_ERROR_LIMIT]} … ({len(text) - _ERROR_LIMIT} more characters)"
    state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"
    return Outcome(state, error=text)


def _kept_result(gate: Gate, request: Request, value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = canonical.encode({"result": value}).text
    except Exception:  # noqa: BLE001  a result needs no canonical form, and may be any object; the record does without
        return None
    if len(text) > _RESULT_LIMIT:
        return None
    secrets = secrets_of(gate, request.effective.form, request.effective.masked)
    if not secrets and type(value) in _NO_SECRET_INSIDE:
        return text
    tree = canonical.load(text)
    masked = gate.redaction.mask(tree)
    return redaction.scrub(text if masked is tree else dump(masked), secrets)
