"""Executes one step of a run: first or resumed, streamed or collected, gated or not.

A step is a runnable at a place. If the run's history has its end, its value, error or denial is returned again. If it
waits, its request decides, and no rule, prompt or default is evaluated a second time. Otherwise it starts. The gate's
record of a call is saved in one transaction with the step. Gated functions that a handler calls itself are recorded
too (`NestedCalls`), so that a handler that runs again gets their results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any, cast

from sayso import config, errors
from sayso.effects import Attempt, HookCall, Operations, StoreCall, Suspended, UserCall, adrive
from sayso.gates import exceptions, scope
from sayso.gates.ambiguous import unknown_request
from sayso.gates.caller import Caller, open_request
from sayso.gates.gate import rejection_result
from sayso.gates.gated_call import gated_call
from sayso.gates.hooks import secrets_among
from sayso.gates.options import Gate
from sayso.model import canonical, redaction
from sayso.model.ids import call_digest
from sayso.model.request import Request, State, not_run
from sayso.model.run import RunState, RunUpdate
from sayso.runs import events, state
from sayso.runs.decisions import answers, cancelled, record_held_call, record_question, record_started_call
from sayso.runs.events import Denied, Failed, Halt, NestedCallHeld, QuestionAsked, RunStatus
from sayso.runs.state import Body, Checkpoint, Deferred, LostValue, StepContext, current_context, resolution_place
from sayso.stores.base import ProgramStore

_SUCCESS = RunStatus(code="success")
_REASONS = {
    errors.OutcomeNotRecordedError: "store_failed",
    errors.PolicyError: "approval_policy_error",
    errors.StoreError: "store_failed",
    errors.StartRefusedError: None,
    errors.RunBusyError: None,
}
"""The reason of a run that one of these exceptions stops; the first match is used."""

MAY_FAIL = {State.PENDING, State.APPROVED, State.RUNNING, State.UNKNOWN}
"""States of a request that has an effect now, and may end without it."""

_NO_FAILURE = (errors.OutcomeNotRecordedError, errors.OutcomeUnknownError, errors.StoppedError, errors.StoreError)
"""Errors of a call that a handler made, which the call's end, the store or `sayso go` may resolve."""


def _halt(error: errors.SaysoError) -> Halt:
    """Return what stops a run at an error of the store, a rule or a start: no handler has failed, so it can be resumed.

    Raises any other error.
    """
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return Halt("error", reason, str(error), error)
    raise error


async def run_step(step: StepContext, given: Mapping[str, Any]) -> Any:
    """Execute one step, and return its value.

    Raises:
        Denied: A person or a rule refused the call.
        Failed: The handler failed, or its input is invalid.
        Halt: The run stops here.
    """
    known = step.history.known.get(step.place)
    if known is not None and "status" in known:
        try:
            known = await _confirmed(step, known)
        except errors.SaysoError as error:
            raise _halt(error) from error
        if "status" in known:
            return _repeated(step, known)
    limit = step.history.limit if step.runnable.kind == "tool" else None
    async with nullcontext() if limit is None else limit(step.runnable.name):
        step.history.check_going()  # what waited for its place has not begun, and can still be stopped
        step.emit_start()
        token = current_context.set(step)
        try:
            try:
                value = await _value(step, given, None if known is None else known.get("waits"))
            except errors.SaysoError as error:
                raise _halt(error) from error
        except Halt as halt:
            step.emit_end(halt.status, halt.output, halt.error)
            raise
        except (Denied, Failed) as fault:
            status, error = events.end_of(fault)
            if isinstance(fault, Denied) and fault.partial is None:  # by a rule, or by a gate inside the handler
                fault.partial = events.ended_output("approval_denied", None, fault.message)
            await _save_end(step, status, error, value=fault.partial)
            step.emit_end(status, fault.partial, error if isinstance(fault, Failed) else None)
            raise
        finally:
            with suppress(ValueError):  # a coroutine may be closed in a context without it
                current_context.reset(token)
        await _save_end(step, _SUCCESS, value=value)
        step.emit_end(_SUCCESS, value)
        return value


async def _save_end(step: StepContext, status: RunStatus, error: Body | None = None, *, value: Any = None) -> None:
    """Record and save a step's end, unless the gate saved it with the outcome, or it is the run's own end."""
    if "status" not in step.history.known.get(step.place, ()):
        step.record(status, value=value, error=error)
        if not step.is_outermost:
            try:
                await step.history.save()
            except errors.SaysoError as fault:
                raise _halt(fault) from fault


def _repeated(step: StepContext, known: Body) -> Any:
    """Return the value of a step that has ended, or raise its error again."""
    step.metadata = known.get("metadata") or {}
    status: Body = known["status"]
    error: Body = known.get("error") or {}
    value = state.restored(known.get("value"), step.runnable.function)
    if isinstance(value, LostValue):
        lost = LostValue(value.plain, str(errors.ValueNotKeptError(step.path, value.reason)))
        value = lost if step.parent is not None and step.parent.runnable.needs_values else lost.plain
    match status["code"], status.get("reason"):
        case "success", _:
            return value
        case "cancelled", "approval_denied":
            end = Denied(status.get("message", ""), is_feedback=bool(error.get("feedback")))
        case "error", None:
            end = Failed(error.get("type", "Error"), error.get("message", ""))
        case code, reason:
            raise Halt(code, reason, status.get("message", ""), error=error or None, output=value)
    end.partial = value
    raise end


async def _confirmed(step: StepContext, known: Body) -> Body:
    """Return the recorded end of a step if its request confirms it, or else the end according to the request.

    Raises:
        Halt: The call needed an approval, and there is no approved request.
    """
    runnable, history = step.runnable, step.history
    if runnable.is_free or step.place not in history.from_store or known["status"]["code"] != "success":
        return known
    await history.read_requests()
    gate, request = runnable.gate, history.requests.at.get(step.place)
    if request is None and gate.key is not None:
        approval: Body = known["metadata"].get("approval") or {}
        keyed = history.requests.keyed.get(str(approval.get("id")))
        request = keyed if keyed is not None and keyed.call.tool == gate.tool else None
    if request is not None and request.state is State.DONE:
        return known
    if request is not None and request.state in {State.REJECTED, State.FEEDBACK} and runnable.on_reject != "raise":
        return known  # the value that `on_reject` gave for the refusal
    if request is not None and (request.holds or request.state is State.FAILED):
        body = {"waits": request.id, "path": step.path, "name": runnable.name}
        history.put(step.place, body)
        return body
    if gate.holds_all:
        text = f"the run's record says that {step.path} was done, but no request confirms it; it is not trusted"
        raise Halt("error", None, text, error={"type": "AlteredRequestError", "message": text})
    return known  # its rule allowed it


async def _value(step: StepContext, given: Mapping[str, Any], waits: str | None) -> Any:
    """Run the handler, through its gate if it has one; `waits` is the request for which the step already waits."""
    runnable, history = step.runnable, step.history
    try:
        here, token = scope.enter(history.run_id)
        here.finished_calls, here.at = NestedCalls(step), step.place
        history.handlers.add(here)
        try:
            if step.place in history.passes:
                step.answers = await answers(step)
            if waits is not None:
                return await adrive(_waiting(step, waits))
            defaults = await _defaults(step, given) if runnable.default_params else {}
            arguments = runnable.arguments_of(given, defaults)
            if not runnable.is_free:
                return await adrive(_gated(step, arguments))
            step.begin(lambda: arguments, runnable.shown(arguments))
            args, kwargs = runnable.signature.spread(arguments)
            return _unwrapped(step, await UserCall(runnable.function, args, kwargs).arun())
        finally:
            history.handlers.discard(here)
            scope.leave(here, token)
    except QuestionAsked as asked:
        raise (await record_question(step, asked)) from None
    except NestedCallHeld as held:
        raise (await record_held_call(step, held)) from None
    except (errors.AlreadyStartedError, errors.OutcomeUnknownError) as error:
        raise (await record_started_call(step, error)) from error
    except (errors.ArgumentError, errors.AskRefusedError, errors.CallFailedError) as error:
        raise Failed(type(error).__name__, str(error)) from error


async def _defaults(step: StepContext, given: Mapping[str, Any]) -> Body:
    """Return this call's default parameters from the history, or create them and record them if needed."""
    runnable, place = step.runnable, f"{step.place}="
    if not any(map(callable, runnable.default_params.values())):
        return await adrive(runnable.defaults(given))
    made = step.history.known.get(place, {}).get("made")
    if made is not None:
        return made.value if isinstance(made, Deferred) else runnable.shape.decode(made)
    values = await adrive(runnable.defaults(given))
    step.history.put(place, {"made": state.made_defaults(values)})
    return values


def _waiting(step: StepContext, request_id: str) -> Operations[Any]:
    """Continue a call that waited, according to its request; no rule, prompt or default is evaluated again."""
    store, known = step.history.store, step.history.approved.pop(request_id, None)
    request: Request = (yield StoreCall(store.settle, request_id)) if known is None else known
    step.must_own(request, step.place)
    match request.state:
        case State.DONE if request.execution is None or request.execution.kept is None:
            _note_request(step, request)
            return state.result_shown(request)
        case State.FAILED:
            if request.execution is None or request.execution.error is None:
                raise Failed("Error", "the call failed")
            kind, _, words = request.execution.error.partition(": ")
            by = request.execution.resolved_by
            if by is not None:
                raise Failed("NotExecuted", f"{by} found out that it did not take effect ({kind}: {words})")
            raise Failed(kind, words)
        case _:
            return (yield from _gated(step, None, request))


def _gated(step: StepContext, arguments: Body | None, request: Request | None = None) -> Operations[Any]:
    """Make a call through its gate."""
    gate, caller = step.runnable.gate, _StepCaller(step)
    try:
        attempt = yield from gated_call(gate, step.history.store, arguments, step.site, caller, request)
    except Denied as no:  # by a person or the rule; a refusal inside the handler is in the attempt
        if step.runnable.on_reject == "raise" or no.signal is None:
            raise
        try:
            return (yield from rejection_result(step.runnable.on_reject, no.signal))
        except Exception as error:
            raise _failed(step, error) from error
    except errors.EffectTakenError as taken:
        if taken.state in MAY_FAIL:  # the run can be resumed once that request has ended
            raise
        yield StoreCall(step.history.store.withdraw, taken.request_id, config.requester(), taken.reason)
        raise Failed(type(taken).__name__, not_run(gate.name, taken.reason)) from taken
    return _unwrapped(step, attempt)


class _StepCaller(Caller):
    """A step as the caller of a gated call: it pauses the run instead of waiting, and is saved together with its call.

    `is_late` is True if the request replaces an earlier one that has expired, or whose decision has.
    """

    finds = False  # the history names its request, and the store finds one that the history does not have

    is_late = False

    def __init__(self, step: StepContext) -> None:
        self._step = step
        self._checkpoint: Checkpoint | None = None

    def allowed(self, gate: Gate, arguments: Body) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        self._step.history.check_going()
        self._step.begin(lambda: arguments, self._step.runnable.shown(arguments))
        return gate.signature.spread(arguments)

    def ask(self, store: ProgramStore, request: Request) -> Operations[Request]:
        step, history = self._step, self._step.history
        note = {"expired": True} if self.is_late else {}
        waits = {"waits": request.id, "path": step.path, "name": step.runnable.name, "note": note}
        yield HookCall(history.quiet, {})
        with history.checkpoint((step.place, waits), RunState.PAUSED if step.is_alone else None) as checkpoint:
            met = yield from open_request(store, request, checkpoint.update)
            # A person may have approved after the request was recorded, which had already released the run.
            checkpoint.saved(met.id, is_approved=met.decision is not None and met.decision.under is not None)
        if self.is_late:
            step.history.notes[met.id] = note
        if history.is_released:  # whoever takes the run continues it, even if this is decided by now
            raise _held(step, met)
        return met

    def wait(self, request: Request) -> Operations[None]:
        yield from ()
        raise _held(self._step, request)

    def asks_anew(self, request: Request) -> bool:
        self.is_late = request.state is State.EXPIRED
        return self.is_late

    def is_over(self, request: Request) -> bool:
        self.is_late = self._step.history.is_over(request.id)
        return self.is_late

    def refused(self, request: Request) -> BaseException:
        step = self._step
        _note_request(step, request)
        if request.state is State.CANCELLED:
            return cancelled(step, request)
        signal = exceptions.refused(request)
        step.count("approvals:denied")
        denied = Denied(signal.message, is_feedback=request.state is State.FEEDBACK, signal=signal)
        comment = None if request.decision is None else request.decision.comment
        denied.partial = events.ended_output("approval_denied", request.id, comment)
        return denied

    def denied(self, reason: str) -> BaseException:
        return Denied(reason, signal=exceptions.ConfirmationDenied(reason))

    def begin(self, request: Request) -> None:
        self._step.history.check_going()
        _note_request(self._step, request)

    def happened(self, request: Request) -> None:
        _note_request(self._step, request)

    def saving(self, attempt: Attempt) -> RunUpdate | None:
        if attempt.is_ambiguous:
            return None  # it has no outcome yet: a person or `verify=` determines it
        step, history = self._step, self._step.history
        try:
            value, (status, error) = _unwrapped(step, attempt), (_SUCCESS, None)
        except (Denied, Failed) as fault:
            value, (status, error) = fault.partial, events.end_of(fault)
        except BaseException:  # noqa: BLE001  it waits or was interrupted, so it has not ended
            return None
        step.record(status, value=value, error=error)
        self._checkpoint = history.checkpoint(left=RunState.ENDED if step.is_outermost else None)
        return self._checkpoint.update

    def saved(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.saved()

    def close(self) -> None:
        """Release the steps that were to be saved with an outcome that was not recorded."""
        if self._checkpoint is not None:
            self._checkpoint.release()

    def executed(self, request: Request, attempt: Attempt) -> Operations[None]:
        step = self._step
        if isinstance(attempt.raised, (Suspended, *step.runnable.gate.suspends)):
            return  # it has not ended, and its approval stays valid to continue
        if request.idempotent and isinstance(attempt.raised, Exception) and not attempt.is_ambiguous:
            # Its end is in the history and nothing starts it again, so withdraw its approval.
            store = step.history.store
            yield StoreCall(store.withdraw, request.id, config.requester(), "it has ended")
        step.count("approvals:approved")
        if attempt.is_ambiguous:
            raise errors.OutcomeUnknownError(request.id) from attempt.raised


def _note_request(step: StepContext, request: Request, shown: Body | None = None) -> None:
    """Record what was asked and decided: the masked arguments, the reviewer and the changes."""
    approval = events.approval_note(request, shown)
    gate = step.runnable.gate
    step.begin(lambda: gate.schema.decode(request.effective.form), approval["input"])
    if request.decision is not None:
        more = step.history.known.get(resolution_place(request.id)) or {}
        approval["resolution"] = {"metadata": {}, **events.resolution_of(request), **more}
        approval["message_for_model"] = request.message_for_model()
    if request.edited is not None:
        was, now = request.call.arguments, approval["input"]
        approval["changed"] = [[name, was.get(name), value] for name, value in now.items() if was.get(name) != value]
    step.metadata["approval"] = approval


def _held(step: StepContext, request: Request) -> Halt:
    halt = step.waits_for(request)
    event = cast("events.ApprovalEvent", halt.event)
    _note_request(step, request, event.input)
    step.metadata["approval"].update(event.metadata["approval"])
    if step.history.notes.get(request.id, {}).get("expired"):
        step.count("approvals:expired")
    return halt


def _unwrapped(step: StepContext, attempt: Attempt) -> Any:
    match attempt.raised:
        case None:
            return attempt.value
        case Denied() | Failed() as settled:
            raise settled
        case exceptions.ConfirmationCancelled() as ended:  # from a function that the handler called
            step.history.check_going()
            output = events.ended_output("cancelled", ended.confirmation_id, ended.message)
            raise Halt("cancelled", "cancelled", ended.message, output=output)
        case exceptions.ConfirmationRejected() as rejected:
            raise Denied(rejected.message, is_feedback=isinstance(rejected, exceptions.ConfirmationFeedback))
        case errors.SaysoError() as fault if isinstance(fault, _NO_FAILURE):
            raise fault
        case errors.AlreadyStartedError() | errors.EffectTakenError() as fault if fault.state in MAY_FAIL:
            raise fault
        case error if isinstance(error, step.runnable.gate.suspends):
            message = f"{step.path} stopped for its framework ({type(error).__name__}); resume the run to go on"
            raise Halt("cancelled", "suspended", message) from error
        case Exception() as error:
            request_id = unknown_request(error)
            if request_id is not None:
                raise errors.OutcomeUnknownError(request_id) from error
            raise _failed(step, error)
        case other:
            raise other


def _failed(step: StepContext, error: BaseException) -> Failed:
    if isinstance(error, Failed):
        return error
    secrets = secrets_among(step.runnable.gate, step.arguments())
    return Failed(type(error).__name__, "" if secrets is None else redaction.words(error, secrets))


# -- nested calls of a handler -----------------------------------------------------------------------------------------


class NestedCalls:
    """The gated calls of one handler in one pass; a `sayso.gates.scope.FinishedCalls`."""

    def __init__(self, step: StepContext) -> None:
        self._step = step
        self._seen: Counter[str] = Counter()

    def recall(self, gate: Gate, store: ProgramStore, arguments: Mapping[str, Any]) -> _NestedCall | None:
        """Return the record of this call; None if the run cannot store it."""
        history = self._step.history
        if store is not history.store:
            return None
        if history.is_left:
            raise RuntimeError(f"the run {history.run_id} was handed back; {gate.name} is not called for it")
        try:
            form = canonical.encode(dict(arguments))
        except errors.ArgumentError:
            return None
        digest = call_digest(gate.tool, gate.schema.digest, form.digest_input)
        self._seen[digest] += 1
        return _NestedCall(self._step, f"{self._step.place}!{digest}.{self._seen[digest]}", gate, digest)


class _NestedCall:
    """A gated call inside a handler; `known` is its result from an earlier pass, or None if it must be made."""

    def __init__(self, step: StepContext, place: str, gate: Gate, digest: str) -> None:
        self._history, self._place, self._function = step.history, place, gate.function
        self.known = self._recalled(digest, must_be_held=gate.holds_all)

    def _recalled(self, digest: str, *, must_be_held: bool) -> Attempt | None:
        history, mine = self._history, f"!{digest}."
        body, noted = history.known.get(self._place), sum(mine in place for place in list(history.known))
        if body is None:
            made = history.requests.unrecorded(digest, noted)
            if made is None:
                return None
            # More calls were made than recorded, by a thread that continued after its run was released.
            value = state.result_shown(made)
            history.put(self._place, {"value": state.live_value(value, self._function)})
            return Attempt(value, None)
        stored = list(history.from_store) if must_be_held else ()
        made = len(history.requests.made.get(digest, ()))
        if self._place in stored and made < sum(mine in place for place in stored):
            return None
        value = state.restored(body["value"], self._function)
        return None if isinstance(value, LostValue) else Attempt(value, None)

    def is_over(self, request: Request) -> bool:
        """Return whether the resolution that approved it has expired."""
        return self._history.is_over(request.id)

    def snapshot(self, attempt: Attempt) -> RunUpdate | None:
        """Record its result, and return the update to save with its outcome. A failed call is asked again."""
        if attempt.raised is not None:
            return None
        value = attempt.value
        self._history.put(self._place, {"value": None if value is None else state.live_value(value, self._function)})
        if not self._history.is_stored:
            return None
        with self._history.checkpoint() as checkpoint:  # not reported whether it was saved, so the next includes it
            return checkpoint.update
