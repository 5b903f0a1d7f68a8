"""The step machine: one step of a run, first or resumed, streamed or collected, free or gated.

A step is a runnable at a place. If the journal says that it ended, it is not done again: its value, its error or its
no is given once more. If the journal says that it waits, the request decides what becomes of it, and no rule, prompt
or default is asked a second time. Else it begins. The invariant: between the journal and the gate there is no third
way to run a handler, and what the gate records of a call is saved in one transaction with the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sayso import errors, scope, signals
from sayso.effects import Attempt, Effects, StoreCall, Suspended, UserCall, adrive
from sayso.gates import Check, Needs, again, check, execute, lacking, requester, unknown_request
from sayso.gates.masking import secrets_among
from sayso.model import canonical, redaction
from sayso.model.request import Request, State
from sayso.model.run import RunState, RunUpdate
from sayso.runs.decide import cancelled, extras_place
from sayso.runs.events import RunStatus
from sayso.runs.frame import Frame, frame_now, now_ms
from sayso.runs.halt import Denied, Failed, Halt, end_of
from sayso.runs.inner import Inner
from sayso.runs.interaction import Asks, Holds, answers, ask_for, hold_for
from sayso.runs.journal import Body
from sayso.runs.pending import approval_event, approval_note, ended_output, resolution_of, waiting_output
from sayso.runs.proof import borne_out, must_be_of, read_proof
from sayso.runs.values import Live, Lost, Made, back, recorded, result_classes

__all__ = ["perform"]

_SUCCESS = RunStatus(code="success")


async def perform(frame: Frame, given: Mapping[str, Any]) -> Any:
    """Take one step, and return its value.

    Raises:
        Denied: A person or a rule said no.
        Failed: The handler, or its input, is at fault.
        Halt: The run stops here.
    """
    known = frame.journal.at(frame.place)
    if known is not None:
        known = await adrive(borne_out(frame, known))
        if "status" in known:
            return _once_more(frame, known)
    frame.leg.check_going()
    frame.leg.emit(frame.start_event())
    token = frame_now.set(frame)
    try:
        value = await _taken(frame, given, known)
    except Halt as halt:
        frame.leg.emit(frame.output_event(halt.status, halt.output, error=halt.error))
        raise
    except (Denied, Failed) as fault:
        status, error = end_of(fault)
        if isinstance(fault, Denied) and fault.partial is None:  # by a rule, or by a gate inside of the handler
            fault.partial = ended_output(status, None, fault.message)
        await _ended(frame, status, error, value=fault.partial)
        frame.leg.emit(frame.output_event(status, fault.partial, error=error if isinstance(fault, Failed) else None))
        raise
    finally:
        frame_now.reset(token)
    await _ended(frame, _SUCCESS, value=value)
    frame.leg.emit(frame.output_event(_SUCCESS, value))
    return value


async def _ended(frame: Frame, status: RunStatus, error: dict[str, Any] | None = None, *, value: Any = None) -> None:
    """Write down how a step ended, unless the gate has done it together with the outcome."""
    known = frame.journal.at(frame.place)
    if known is None or "status" not in known:
        live = None if value is None else Live(value, frame.runnable.function, frame.path)
        frame.journal.put(frame.place, frame.told(status, value=live, error=error))
        await frame.journal.save()


def _once_more(frame: Frame, known: Body) -> Any:
    frame.metadata = known.get("metadata") or {}
    status: Body = known["status"]
    error: Body = known.get("error") or {}
    value = _value_of(frame, known.get("value"))
    match status["code"], status.get("reason"):
        case "success", _:
            return value
        case "cancelled", "approval_denied":
            end = Denied(status.get("message", ""), is_feedback=bool(error.get("feedback")))
        case "error", None:
            end = Failed(error.get("type", "Error"), error.get("message", ""))
        case _:
            raise Halt(RunStatus(**status), error=error or None, output=value)
    end.partial = value
    raise end


def _value_of(frame: Frame, kept: Any) -> Any:
    if isinstance(kept, Live):
        return kept.value  # it ended in this very leg
    if not kept:
        return None
    if "form" in kept:
        return back(kept["form"], result_classes(frame.runnable.function))
    lost = Lost(kept["plain"], str(errors.ValueNotKeptError(frame.path, kept["lost"])))
    return lost if frame.parent is not None and frame.parent.runnable.needs_values else lost.plain


async def _taken(frame: Frame, given: Mapping[str, Any], known: Body | None) -> Any:
    waits = None if known is None else known.get("waits")
    try:
        with scope.run(frame.journal.run_id):
            here = scope.current()
            here.memory, here.at = Inner(frame), frame.place
            with frame.journal.ending(partial(here.end, "whoever listened to the run has gone")):
                return await _settled(frame, given, waits)
    except Asks as asks:
        raise (await adrive(ask_for(frame, asks))) from None
    except Holds as holds:
        raise (await adrive(hold_for(frame, holds))) from None
    except errors.PolicyError as error:
        status = RunStatus(code="error", reason="approval_policy_error", message=str(error))
        raise Halt(status, error) from error
    except errors.AlreadyStartedError as error:
        status = RunStatus(code="cancelled", reason="approval_already_claimed", message=str(error))
        raise Halt(status, output=ended_output(status, error.request_id)) from error
    except errors.OutcomeUnknownError as error:
        raise Halt(RunStatus(code="error", reason="outcome_unknown", message=str(error)), error) from error
    except errors.ArgumentError as error:
        raise Failed("ArgumentError", str(error), error) from error
    except errors.StoreError as error:
        raise Halt(RunStatus(code="error", reason="store_failed", message=str(error)), error) from error
    except (errors.StartRefusedError, errors.RunBusyError) as error:
        raise Halt(RunStatus(code="error", message=str(error)), error) from error


async def _settled(frame: Frame, given: Mapping[str, Any], waits: str | None) -> Any:
    runnable = frame.runnable
    arguments = {} if waits is not None else runnable.arguments_of(given, await _defaults(frame, given))
    frame.answers, frame.suspensions = await adrive(answers(frame)), 0
    if frame.journal.has_inner(frame.place):
        await adrive(read_proof(frame))
    if waits is not None or not runnable.is_free:
        return await adrive(_through(frame, arguments, waits))
    frame.begin(arguments, runnable.shown(arguments))
    args, kwargs = runnable.signature.spread(arguments)
    return _unwrapped(frame, await UserCall(runnable.function, args, kwargs).arun())


async def _defaults(frame: Frame, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default parameters of this call: what the journal knows, else made now, and noted where it matters."""
    runnable, place = frame.runnable, f"{frame.place}="
    if not runnable.makes_defaults:
        return await adrive(runnable.defaults(given))
    known = frame.journal.at(place)
    if known is not None and known["made"] is not None:
        made = known["made"]
        return made.value if isinstance(made, Made) else canonical.decode(made, runnable.shape.classes)
    values = await adrive(runnable.defaults(given))
    frame.journal.put(place, {"made": Made(values)})
    return values


def _through(frame: Frame, arguments: dict[str, Any], waits: str | None) -> Effects[Any]:
    """Take a call through its gate; `waits` is the request that it already waits for."""
    while True:
        answer = yield from _answer(frame, arguments, waits)
        match answer.kind:
            case "allow":
                gate = frame.runnable.gate
                frame.begin(arguments, frame.runnable.shown(arguments))
                return _unwrapped(frame, (yield UserCall(gate.function, *gate.signature.spread(arguments))))
            case "happened":
                _noted(frame, answer)
                return answer.result
            case "deny":
                raise Denied(answer.reason or f"a rule denies {frame.runnable.name}")
            case "held":
                raise _held(frame, _noted(frame, answer))
            case "refused":
                raise _refused(frame, _noted(frame, answer))
            case "ready":
                try:
                    return (yield from _executed(frame, _noted(frame, answer), answer.needs))
                except (errors.NotApprovedError, errors.ApprovalExpiredError) as late:
                    waits = late.request_id  # cancelled or expired since: the request says so itself


def _answer(frame: Frame, arguments: dict[str, Any], waits: str | None) -> Effects[Check]:
    gate, store = frame.runnable.gate, frame.journal.store
    expired = False
    if waits is not None:
        known = frame.leg.approved.pop(waits, None)
        request: Request = (yield StoreCall(store, store.settle, waits)) if known is None else known
        must_be_of(request, frame, frame.place)
        match request.state:
            case State.DONE:
                result = None if request.execution is None else request.execution.result
                return Check("happened", request, result=None if result is None else recorded(result))
            case State.FAILED:
                raise _failed_before(request)
            case State.EXPIRED:
                arguments, expired = canonical.decode(request.call.form, gate.schema.classes), True
            case State.PENDING | State.APPROVED if why := _why_anew(frame, request):
                yield StoreCall(store, store.withdraw, waits, requester(), why)
                arguments, expired = canonical.decode(request.call.form, gate.schema.classes), _is_late(frame, request)
            case _:
                return (yield from again(gate, store, request, frame.gate_place))
    asked: list[tuple[str, list[int]]] = []
    body = {"path": frame.path, "name": frame.runnable.name, "note": {"expired": True} if expired else {}}

    def snapshot(request: Request) -> Effects[RunUpdate]:
        yield frame.journal.alone(frame)
        left = RunState.PAUSED if frame.is_outermost else None
        saved, numbers = frame.journal.offer((frame.place, {"waits": request.id, **body}), left=left)
        asked.append((request.id, numbers))
        return saved

    try:
        answer = yield from check(gate, store, arguments, frame.gate_place._replace(snapshot=snapshot))
        for request_id, numbers in asked:
            met = answer.request.id
            is_back = frame.is_outermost and met == request_id  # the store keeps it in hand with any other
            frame.journal.confirm(numbers, (frame.place, {"waits": met, **body}), is_back=is_back)
    finally:
        frame.journal.saved_by(frame)
    if expired and answer.kind not in {"allow", "deny"}:
        frame.leg.notes[answer.request.id] = {"expired": True}
    # Decided before our own asking had come back, the run is in hand no more: whoever takes it goes on with it.
    return answer._replace(kind="held") if frame.journal.is_back else answer


def _failed_before(request: Request) -> Failed:
    """Return how a call failed that was made before."""
    execution = request.execution
    if execution is None or execution.error is None:
        return Failed("Error", "the call failed")
    kind, _, words = execution.error.partition(": ")
    if execution.resolved_by is not None:
        return Failed("NotExecuted", f"{execution.resolved_by} found out that it did not take effect ({kind}: {words})")
    return Failed(kind, words)


def _why_anew(frame: Frame, request: Request) -> str | None:
    """Return why a request that waits, or was approved, is taken back, and its call asked anew."""
    if _is_late(frame, request):
        return "the decision counted until now"
    return lacking(frame.runnable.gate, request, frame.gate_place)


def _is_late(frame: Frame, request: Request) -> bool:
    if request.state is not State.APPROVED:
        return False
    until = (frame.journal.at(extras_place(request.id)) or {}).get("expires_at")
    return until is not None and now_ms() >= until


def _noted(frame: Frame, answer: Check) -> Request:
    """Keep for the record what was asked and decided: the arguments as they are shown, who decided, what changed."""
    request = answer.request
    call = request.effective
    frame.begin(canonical.decode(call.form, frame.runnable.gate.schema.classes), call.arguments)
    approval = approval_note(request)
    if request.decision is not None:
        more = frame.journal.at(extras_place(request.id)) or {}
        approval["resolution"] = {"metadata": {}, **resolution_of(request), **more}
        approval["message_for_model"] = request.message_for_model()
    if request.edited is not None:
        was = request.call.arguments
        approval["changed"] = [[n, was.get(n), now] for n, now in call.arguments.items() if was.get(n) != now]
    frame.metadata["approval"] = approval
    return request


def _held(frame: Frame, request: Request) -> Halt:
    note = frame.leg.notes.get(request.id)
    if note is not None and note.get("expired"):
        frame.count("approvals:expired")
    frame.count("approvals:required")
    event = approval_event(request, frame.leg.note_of(request.id))
    frame.metadata["approval"].update(event.metadata.get("approval", {}))
    frame.leg.wait(frame.rank, event)
    text = f"{request.id} waits for a person: {event.prompt or event.runnable_name}"
    status = RunStatus(code="cancelled", reason="approval_required", message=text)
    return Halt(status, output=waiting_output(event))


def _refused(frame: Frame, request: Request) -> Halt | Denied:
    if request.state is State.CANCELLED:
        return cancelled(frame, request)
    signal = signals.refused(request)
    frame.count("approvals:denied")
    denied = Denied(signal.message, is_feedback=request.state is State.FEEDBACK)
    status, _ = end_of(denied)
    denied.partial = ended_output(status, request.id, None if request.decision is None else request.decision.comment)
    return denied


def _executed(frame: Frame, request: Request, needs: Needs | None) -> Effects[Any]:
    offered: list[tuple[list[int], bool]] = []

    def snapshot(attempt: Attempt) -> RunUpdate | None:
        if attempt.is_ambiguous:
            return None  # it has no end yet: a person, or `verify=`, finds out
        try:
            value, (status, error) = _unwrapped(frame, attempt), (_SUCCESS, None)
        except (Denied, Failed) as fault:
            value, (status, error) = fault.partial, end_of(fault)
        except BaseException:  # noqa: BLE001  it waits, or was broken off: it has not ended
            return None
        live = None if value is None and status is not _SUCCESS else Live(value, frame.runnable.function, frame.path)
        number = frame.journal.put(frame.place, frame.told(status, value=live, error=error))
        # What was before it was saved when the call was asked; of many that end at once each brings its own.
        only = number if frame.journal.is_crowded else None
        left = RunState.ENDED if frame.is_outermost and only is None else None
        saved, numbers = frame.journal.offer(only=only, left=left)
        offered.append((numbers, left is not None))
        return saved

    def on_saved() -> None:
        for numbers, is_back in offered:
            frame.journal.confirm(numbers, is_back=is_back)

    attempt = yield from execute(frame.runnable.gate, frame.journal.store, request, needs, snapshot, on_saved)
    if request.idempotent and isinstance(attempt.raised, Exception) and not attempt.is_ambiguous:
        # Its end stands in the journal, and nothing starts it again: its approval is not left open.
        store = frame.journal.store
        yield StoreCall(store, store.withdraw, request.id, requester(), "it has ended")
    if not isinstance(attempt.raised, Suspended):
        frame.count("approvals:approved")
    if attempt.is_ambiguous:
        raise errors.OutcomeUnknownError(request.id) from attempt.raised
    return _unwrapped(frame, attempt)


def _unwrapped(frame: Frame, attempt: Attempt) -> Any:
    match attempt.raised:
        case None:
            return attempt.value
        case Denied() | Failed() as settled:
            raise settled
        case signals.ConfirmationCancelled() as ended:  # of a function that the handler called
            frame.leg.check_going()
            status = RunStatus(code="cancelled", reason="cancelled", message=ended.message)
            raise Halt(status, output=ended_output(status, ended.confirmation_id, ended.message))
        case signals.ConfirmationRejected() as rejected:
            raise Denied(rejected.message, is_feedback=isinstance(rejected, signals.ConfirmationFeedback))
        case errors.OutcomeUnknownError() as unknown:  # of a function that the handler called, here and below
            raise unknown
        case Exception() as error:
            request_id = unknown_request(error)
            if request_id is not None:
                raise errors.OutcomeUnknownError(request_id) from error
            raise _failed(frame, error)
        case other:
            raise other


def _failed(frame: Frame, error: BaseException) -> Failed:
    if isinstance(error, Failed):
        return error
    secrets = secrets_among(frame.runnable.gate, frame.arguments or {})
    return Failed(type(error).__name__, "" if secrets is None else redaction.words(error, secrets), error)
