"""`suspend`: a handler asks a person for a value and stops; when it runs again, the answer is there.

A handler that suspends has not ended: it runs again from its top when the answer is given, so what it does before
`suspend` is done again. Each question is a request in the store, with an id of its own and a place: the first question
of a handler, the second, and so on. Ready tools for agents: `ask_user`, `ask_user_multi`, `confirm`.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from sayso import clock, telemetry
from sayso.errors import ConfigError
from sayso.gates import signals
from sayso.gates.masking import secrets_among
from sayso.gates.scope import requester
from sayso.model import canonical
from sayso.model.escaping import storable
from sayso.model.ids import fingerprint, new_request_id, question_digest
from sayso.model.request import Question, Request, State
from sayso.model.run import RunState
from sayso.model.schema import Schema
from sayso.runs.events import Halt, NestedCallHeld, QuestionAsked, ended_output
from sayso.runs.state import StepContext, current_context, verb

_WAITS_FOR = timedelta(hours=24)


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
    step = current_context.get()
    if step is None:
        raise RuntimeError("suspend() asks in a run; call it inside the handler of a Tool")
    if not step.is_running:  # its number would be that of a question of the handler, which would get its answer
        raise RuntimeError("suspend() asks inside a handler; a rule, a prompt or a default parameter cannot")
    number, step.suspensions = step.suspensions, step.suspensions + 1
    if number in step.answers:
        return step.answers[number]
    if response_schema is not None:
        Schema.of_json_answer(response_schema)
    _must_be_json(payload)
    raise QuestionAsked(number, payload, kind, response_schema)


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


def _place(step: StepContext, number: int) -> str:
    return f"{step.place}?{number}"


def _inside(step: StepContext) -> str:
    return f"{step.place}!"


async def answers(step: StepContext) -> dict[int, Any]:
    """Return what persons have answered to the questions of this handler in earlier passes, by their number.

    What became of the gated calls that it made by itself is read as well.

    Raises:
        Halt: A question still waits, or a person would not answer it.
    """
    found: dict[int, Any] = {}
    history, store, inside = step.history, step.history.store, step.history.known.get(_inside(step))
    await history.read_requests()
    if inside is not None and "waits" in inside:
        held = await verb(store, store.settle, inside["waits"])
        if held.state is State.PENDING:
            raise step.waits_for(held)  # the handler would only run to the same point again
        history.put(_inside(step), {"held": held.id})
    while (known := history.known.get(place := _place(step, len(found)))) is not None:
        request = await verb(store, store.settle, known["waits"] if "waits" in known else known["answered"])
        step.must_own(request, place)
        if request.state is State.EXPIRED:
            step.late = len(found)
            break  # it is asked anew
        if request.state is not State.ANSWERED:
            raise step.waits_for(request) if request.state is State.PENDING else cancelled(step, request)
        found[len(found)] = _answer_of(request, known.get("schema"))
        if "waits" in known:  # nothing waits there any more, and a worker need not look again
            rest = {name: part for name, part in known.items() if name != "waits"}
            history.put(place, {**rest, "answered": request.id})
    return found


def _answer_of(request: Request, schema: dict[str, Any] | None) -> Any:
    if request.decision is None or request.decision.answer is None:
        return None
    if schema is None:
        return request.answer
    return Schema.of_json_answer(schema).validate(canonical.decode(request.decision.answer, {}))["answer"]


async def record_question(step: StepContext, asks: QuestionAsked) -> Halt:
    """Record a handler's question, and return what the run says then."""
    history, store, acts_for = step.history, step.history.store, step.attempt.acts_for
    secrets = secrets_among(step.runnable.gate, step.arguments()) or frozenset[str]()
    payload = step.runnable.gate.redaction.mask_facts(asks.payload, secrets)
    text = storable(str(payload.get("question") or payload.get("action") or asks.kind))
    schema = Schema.of_type(str) if asks.schema is None else Schema.of_json_answer(asks.schema)
    place, now = _place(step, asks.number), clock.now()
    digest = question_digest(text, schema.digest, 0)
    facts = {"kind": asks.kind, "payload": payload, "response_schema": asks.schema}
    request = Request(
        id=new_request_id(), kind="question", run_id=history.run_id,
        fingerprint=fingerprint(history.run_id, digest, place), place=place,
        subject=Question(text, digest, schema.text, schema.digest), requester=requester(), created_at=now,
        expires_at=now + _WAITS_FOR, approval_window=_WAITS_FOR, on_behalf_of=acts_for[0] if acts_for else None,
        also_for=acts_for[1:], context={**(step.occasion.context or {}), **facts},
    )  # fmt: skip
    body = {"waits": request.id, "path": step.path, "name": step.runnable.name, "schema": asks.schema}
    if asks.number == step.late:
        body["note"] = {"expired": True}
    await history.quiet().arun()
    with history.checkpoint((place, body), RunState.PAUSED if step.is_alone else None) as checkpoint:
        held = telemetry.asked(await verb(store, store.ask, request, checkpoint.update))
        checkpoint.saved(held.id)
    return step.waits_for(held)


async def record_held_call(step: StepContext, holds: NestedCallHeld) -> Halt:
    """Note that a function called by the handler waits, and return what the run says then."""
    store, request_id = step.history.store, holds.signal.confirmation_id
    request = await verb(store, store.get, request_id)
    body = {"waits": request_id, "path": step.path, "name": step.runnable.name}
    with step.history.checkpoint((_inside(step), body)) as checkpoint:
        await verb(store, store.save_run, checkpoint.update)
        checkpoint.saved()
    return step.waits_for(request)


def cancelled(step: StepContext, request: Request) -> Halt:
    """Return the end of a run that a person cancelled at this request."""
    if request.kind == "call":
        step.count("approvals:cancelled")
    comment = None if request.decision is None else request.decision.comment
    message = comment or signals.refused(request).message
    return Halt("cancelled", "cancelled", message, output=ended_output("cancelled", request.id, message))
