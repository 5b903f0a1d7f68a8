"""`suspend`: a handler asks a person for a value and stops; when it runs again, the answer is there.

A handler that suspends has not ended: it runs again from its top when the answer is given, so that what it does
before `suspend` it does again. Each question is a request in the store, with an id of its own and a place: the first
question of a handler, the second, and so on. Ready tools for agents: `ask_user`, `ask_user_multi`, `confirm`.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from sayso import clock, signals, telemetry
from sayso.effects import Effects, StoreCall, Suspended
from sayso.errors import ConfigError
from sayso.gates import requester
from sayso.gates.masking import mask_facts, secrets_among
from sayso.model import canonical
from sayso.model.fingerprint import fingerprint, question_digest
from sayso.model.ids import new_request_id
from sayso.model.request import Question, Request, State
from sayso.model.run import RunState
from sayso.model.schema import Schema
from sayso.model.text import storable
from sayso.runs.decide import cancelled
from sayso.runs.events import RunStatus
from sayso.runs.frame import Frame, frame_now
from sayso.runs.halt import Halt
from sayso.runs.pending import event_of, waiting_output
from sayso.runs.proof import must_be_of

__all__ = ["Asks", "Holds", "answers", "ask_for", "ask_user", "ask_user_multi", "confirm", "hold_for", "suspend"]

_WAITS_FOR = timedelta(hours=24)


class Asks(Suspended):
    """The handler asks a person, and nobody has answered yet."""

    def __init__(self, number: int, payload: dict[str, Any], kind: str, schema: dict[str, Any] | None) -> None:
        super().__init__(kind)
        self.number, self.payload, self.kind, self.schema = number, payload, kind, schema


class Holds(Suspended):
    """A gated function that the handler called waits for a person."""

    def __init__(self, signal: signals.ConfirmationRequired) -> None:
        super().__init__(signal.confirmation_id)
        self.signal = signal


def suspend(payload: dict[str, Any], *, kind: str = "suspend", response_schema: dict[str, Any] | None = None) -> Any:
    """Ask a person for a value from inside a handler, sync or async.

    The first time the handler stops here, and the run ends with `input_required` and an `InteractionEvent`. Resumed
    with `resume={interaction_id: value}`, or after an answer through any channel, the handler runs again from its top
    and this returns the value. Ask before you act: what stands above runs again.

    Args:
        payload: What the person needs to see, JSON values; `question` in it is the line that channels show.
        kind: A word by which a front end picks how to draw it.
        response_schema: JSON Schema that the answer must fit before it counts; a text where there is none.

    Raises:
        RuntimeError: Called outside of a run's handler.
        ConfigError: The schema says what answers cannot be held to.
    """
    frame = frame_now.get()
    if frame is None:
        raise RuntimeError("suspend() asks in a run; call it inside the handler of a Tool")
    if not frame.is_running:  # its number would be that of a question of the handler, which would get its answer
        raise RuntimeError("suspend() asks inside a handler; a rule, a prompt or a default parameter cannot")
    number, frame.suspensions = frame.suspensions, frame.suspensions + 1
    if number in frame.answers:
        return frame.answers[number]
    if response_schema is not None:
        Schema.of_json_answer(response_schema)
    _must_be_json(payload)
    raise Asks(number, payload, kind, response_schema)


def _must_be_json(payload: object) -> None:
    try:
        json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the payload of suspend() holds what JSON has no form for: {error}") from None
    if not isinstance(payload, dict):
        raise ConfigError(f"the payload of suspend() is a dict, not {type(payload).__name__}")


def ask_user(question: str, options: list[str] | None = None) -> str:
    """Ask the user a question and wait for the answer.

    Use it only when you cannot go on without it. Give options where the answer is a choice.
    """
    schema = None if options is None else {"type": "string", "enum": options}
    return suspend({"question": question, "options": options}, kind="ask_user", response_schema=schema)


def ask_user_multi(question: str, options: list[str]) -> list[str]:
    """Ask the user to pick one or more of the options, and wait for the answer."""
    items = {"type": "string", "enum": options}
    schema = {"type": "array", "items": items, "minItems": 1}
    return suspend({"question": question, "options": options}, kind="ask_user_multi", response_schema=schema)


def confirm(action: str) -> bool:
    """Ask the user whether to go ahead with an action, and wait for the answer."""
    payload = {"question": action, "action": action}
    return suspend(payload, kind="confirm", response_schema={"type": "boolean"})


def _place(frame: Frame, number: int) -> str:
    return f"{frame.place}?{number}"


def _inside(frame: Frame) -> str:
    return f"{frame.place}!"


def answers(frame: Frame) -> Effects[dict[int, Any]]:
    """Return what persons have answered to the questions of this handler, by their number.

    Raises:
        Halt: A question still waits, or a person would not answer it.
    """
    found: dict[int, Any] = {}
    store, inside = frame.journal.store, frame.journal.at(_inside(frame))
    if inside is not None and "waits" in inside:
        held: Request = yield StoreCall(store, store.settle, inside["waits"])
        if held.state is State.PENDING:
            raise _waits(frame, held)  # the handler would only run to the same point again
        frame.journal.put(_inside(frame), {"held": held.id})
    while (known := frame.journal.at(_place(frame, len(found)))) is not None:
        place = _place(frame, len(found))
        request = yield StoreCall(store, store.settle, known["waits"] if "waits" in known else known["answered"])
        must_be_of(request, frame, place)
        if request.state is State.EXPIRED:
            frame.late = len(found)
            break  # it is asked anew
        if request.state is not State.ANSWERED:
            raise _unanswered(frame, request)
        found[len(found)] = _answer_of(request, known.get("schema"))
        if "waits" in known:  # nothing waits there any more, and a worker need not look again
            rest = {name: part for name, part in known.items() if name != "waits"}
            frame.journal.put(place, {**rest, "answered": request.id})
    return found


def _unanswered(frame: Frame, request: Request) -> Halt:
    if request.state is State.PENDING:
        return _waits(frame, request)
    return cancelled(frame, request)


def _waits(frame: Frame, request: Request) -> Halt:
    if request.kind == "call":
        frame.count("approvals:required")
    else:
        frame.count("suspends:required")
    event = event_of(request, frame.leg.note_of(request.id), frame.path)
    frame.leg.wait(frame.rank, event)
    reason = "approval_required" if request.kind == "call" else "input_required"
    text = f"{request.id} waits for a person: {_asked(request)}"
    return Halt(RunStatus(code="cancelled", reason=reason, message=text), output=waiting_output(event))


def _asked(request: Request) -> str:
    return request.call.name if request.kind == "call" else request.question.text


def _answer_of(request: Request, schema: dict[str, Any] | None) -> Any:
    if request.decision is None or request.decision.answer is None:
        return None
    if schema is None:
        return request.answer
    return Schema.of_json_answer(schema).validate(canonical.decode(request.decision.answer, {}))["answer"]


def ask_for(frame: Frame, asks: Asks) -> Effects[Halt]:
    """Record a handler's question, and return what the run says then."""
    secrets = secrets_among(frame.runnable.gate, frame.arguments or {}) or frozenset[str]()
    payload = mask_facts(frame.runnable.gate, asks.payload, secrets)
    text = storable(str(payload.get("question") or payload.get("action") or asks.kind))
    schema = Schema.of_type(str) if asks.schema is None else Schema.of_json_answer(asks.schema)
    place = _place(frame, asks.number)
    digest = question_digest(text, schema.digest, 0)
    facts = {**(frame.gate_place.context or {}), "kind": asks.kind, "payload": payload}
    now, acts_for = clock.now(), frame.leg.acts_for
    request = Request(
        id=new_request_id(),
        kind="question",
        run_id=frame.journal.run_id,
        fingerprint=fingerprint(frame.journal.run_id, digest, place),
        place=place,
        subject=Question(text, digest, schema.text, schema.digest),
        requester=requester(),
        created_at=now,
        expires_at=now + _WAITS_FOR,
        approval_window=_WAITS_FOR,
        on_behalf_of=acts_for[0] if acts_for else None,
        also_for=acts_for[1:],
        context={**facts, "response_schema": asks.schema},
    )
    body = {"waits": request.id, "path": frame.path, "name": frame.runnable.name, "schema": asks.schema}
    if asks.number == frame.late:
        body["note"] = {"expired": True}
    store, journal = frame.journal.store, frame.journal
    yield journal.alone(frame)
    try:
        saved, numbers = journal.offer((place, body), left=RunState.PAUSED if frame.is_outermost else None)
        held = telemetry.asked((yield StoreCall(store, store.ask, request, saved)))
        is_back = frame.is_outermost and held.id == request.id
        journal.confirm(numbers, (place, {**body, "waits": held.id}), is_back=is_back)
    finally:
        journal.saved_by(frame)
    return _waits(frame, held)


def hold_for(frame: Frame, holds: Holds) -> Effects[Halt]:
    """Note that a function called by the handler waits, and return what the run says then."""
    store, request_id = frame.journal.store, holds.signal.confirmation_id
    request = yield StoreCall(store, store.get, request_id)
    body = {"waits": request_id, "path": frame.path, "name": frame.runnable.name}
    saved, numbers = frame.journal.offer((_inside(frame), body))
    yield StoreCall(store, store.save_run, saved)
    frame.journal.confirm(numbers, (_inside(frame), body))
    return _waits(frame, request)
