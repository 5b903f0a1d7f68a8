"""Questions that a handler asks with `suspend`, and the decisions that a caller passes to a run.

A handler that suspends has not ended: it runs again from its start after the answer, so code before `suspend` runs
again. Each question is a request in the store with its own id and place: the first question of a handler, the second,
and so on. The tools `ask_user`, `ask_user_multi` and `confirm` are for agents.

Decisions are passed by id, in the spellings of seed 002, and recorded before anything continues. Only requests of this
run can be decided; other ids are ignored with a warning. A refused decision decides nothing, and the request is emitted
again with the reason.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from sayso import clock, errors, telemetry
from sayso.config import requester
from sayso.errors import ConfigError
from sayso.gates import exceptions
from sayso.gates.hooks import secrets_among
from sayso.model import cached_property, canonical
from sayso.model.ids import fingerprint, new_request_id, question_digest
from sayso.model.request import Question, Request, State
from sayso.model.run import RunSnapshot, RunState
from sayso.model.schema import Schema
from sayso.model.text import storable
from sayso.reviews import Review
from sayso.runs import events
from sayso.runs.state import Body, RunHistory, StepContext, call_store, current_context, resolution_place
from sayso.stores.base import Store

_WAITS_FOR = timedelta(hours=24)


def suspend(payload: dict[str, Any], *, kind: str = "suspend", response_schema: dict[str, Any] | None = None) -> Any:
    """Ask a person for a value from inside a handler, sync or async.

    The first call stops the handler, and the run ends with `input_required` and an `InteractionEvent`. When the run is
    resumed with `resume={interaction_id: value}`, or after an answer through any channel, the handler runs again from
    its start, and this call returns the value. Ask before you act, because code above this call runs again.

    Args:
        payload: The data for the person, as JSON values; channels show its `question` as the line.
        kind: A label with which a front end selects how to render it.
        response_schema: A JSON Schema that the answer must match; by default the answer is a text.

    Raises:
        RuntimeError: Called outside a run's handler.
        ConfigError: The schema uses features that cannot be enforced.
    """
    step = current_context.get()
    if step is None:
        raise RuntimeError("suspend() works only in a run; call it in the handler of a Tool")
    if not step.is_running:  # it would take the number, and so the answer, of a question of the handler
        raise RuntimeError("suspend() works only inside a handler, not in a rule, a prompt or a default parameter")
    number, step.suspensions = step.suspensions, step.suspensions + 1
    if number in step.answers:
        return step.answers[number]
    if response_schema is not None:
        Schema.of_json_answer(response_schema)
    try:
        json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the payload of suspend() cannot be written as JSON: {error}") from None
    if not isinstance(payload, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"the payload of suspend() must be a dict, not {type(payload).__name__}")
    raise events.QuestionAsked(number, payload, kind, response_schema)


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
    """Return people's answers to this handler's questions in earlier passes, by number.

    This also reads the outcomes of its nested gated calls.

    Raises:
        Halt: A question still waits, or a person refused to answer it.
    """
    found: dict[int, Any] = {}
    history, store, inside = step.history, step.history.store, step.history.known.get(_inside(step))
    await history.read_requests()
    if inside is not None and "waits" in inside:
        held = await call_store(store, store.settle, inside["waits"])
        if held.state is State.PENDING:
            raise step.waits_for(held)  # the handler would only stop at the same point again
        history.put(_inside(step), {"held": held.id})
    while (known := history.known.get(place := _place(step, len(found)))) is not None:
        request = await call_store(store, store.settle, known["waits"] if "waits" in known else known["answered"])
        step.must_own(request, place)
        if request.state is State.EXPIRED:
            step.late = len(found)
            break  # it is asked again
        if request.state is not State.ANSWERED:
            raise step.waits_for(request) if request.state is State.PENDING else cancelled(step, request)
        form, schema = None if request.decision is None else request.decision.answer, known.get("schema")
        answer = None if form is None else request.answer
        if form is not None and schema is not None:
            answer = Schema.of_json_answer(schema).validate(canonical.decode(form, {}))["answer"]
        found[len(found)] = answer
        if "waits" in known:  # nothing waits there any more, so workers can skip it
            rest = {name: part for name, part in known.items() if name != "waits"}
            history.put(place, {**rest, "answered": request.id})
    return found


async def record_question(step: StepContext, asks: events.QuestionAsked) -> events.Halt:
    """Record a handler's question, and return the resulting `Halt`."""
    history, store, acts_for = step.history, step.history.store, step.history.acts_for
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
        also_for=acts_for[1:], context={**(step.site.context or {}), **facts},
    )  # fmt: skip
    body = {"waits": request.id, "path": step.path, "name": step.runnable.name, "schema": asks.schema}
    if asks.number == step.late:
        body["note"] = {"expired": True}
    await history.quiet()
    with history.checkpoint((place, body), RunState.PAUSED if step.is_alone else None) as checkpoint:
        held = telemetry.asked(await call_store(store, store.ask, request, checkpoint.update))
        checkpoint.saved(held.id)
    return step.waits_for(held)


async def record_held_call(step: StepContext, holds: events.NestedCallHeld) -> events.Halt:
    """Record that a function that the handler called waits, and return the resulting `Halt`."""
    store, request_id = step.history.store, holds.signal.confirmation_id
    request = await call_store(store, store.get, request_id)
    body = {"waits": request_id, "path": step.path, "name": step.runnable.name}
    with step.history.checkpoint((_inside(step), body)) as checkpoint:
        await call_store(store, store.save_run, checkpoint.update)
        checkpoint.saved()
    return step.waits_for(request)


async def record_started_call(
    step: StepContext, error: errors.AlreadyStartedError | errors.OutcomeUnknownError
) -> events.Halt:
    """Return the `Halt` for a call that was started and, as far as is known, has not ended.

    If it is a call inside the handler, the run waits for its outcome from now on. Otherwise the run would wait for
    nothing, and no worker would continue it.
    """
    history, request_id = step.history, error.request_id
    if all(body["waits"] != request_id for _, body in history.waiting()):
        with suppress(errors.RequestNotFoundError):  # it is in another store
            request = await call_store(history.store, history.store.get, request_id)
            if request.run_id == history.run_id and request.state not in _OPEN:
                body = {"waits": request_id, "path": step.path, "name": step.runnable.name}
                history.put(_inside(step), body)
    if isinstance(error, errors.OutcomeUnknownError):
        return events.Halt("error", "outcome_unknown", str(error), error)
    reason = "approval_already_claimed"
    return events.Halt("cancelled", reason, str(error), output=events.ended_output(reason, request_id))


def cancelled(step: StepContext, request: Request) -> events.Halt:
    """Return the `Halt` of a run that a person cancelled at this request."""
    if request.kind == "call":
        step.count("approvals:cancelled")
    comment = None if request.decision is None else request.decision.comment
    message = comment or exceptions.refused(request).message
    return events.Halt("cancelled", "cancelled", message, output=events.ended_output("cancelled", request.id, message))


_CANCEL = "sayso.cancel"
_OPEN = {State.PENDING, State.APPROVED}
_SPENT = {State.RUNNING, State.DONE, State.FAILED}


class ApprovalResolution(BaseModel):
    """A decision on one held call.

    Attributes:
        approved: Whether the call may run.
        reason: The reason, which the model is told.
        approver_id: The reviewer; by default the configured one.
        comment: A note, which is recorded and told to the model after the reason.
        decided_at: Unix milliseconds, by default the time of construction; the record uses the store's own time.
        expires_at: Unix milliseconds at which the decision stops being valid.
        override_input: For an approval, changed arguments; they are merged over the proposed ones and validated first.
        metadata: Your own data as JSON values, stored with the decision.
        seen: The `fingerprint` of the `ApprovalEvent` that the reviewer saw. Without it, and for a plain True, an
            approval counts only for the call as it was asked: it is refused if another reviewer has changed the call.

    Raises:
        pydantic.ValidationError: A field is unknown; ignoring a misspelt `override_input` would run the call unchanged.
    """

    model_config = ConfigDict(extra="forbid")

    approved: StrictBool
    reason: str | None = None
    approver_id: str | None = None
    comment: str | None = None
    decided_at: int = Field(default_factory=clock.milliseconds)
    expires_at: int | None = None
    override_input: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    seen: str | None = None

    def is_expired(self, at: int | None = None) -> bool:
        """Return whether the decision is no longer valid."""
        return self.expires_at is not None and (clock.milliseconds() if at is None else at) >= self.expires_at


class Cancel(BaseModel):
    """A resume value that ends the whole run: nothing more runs, and the model is not told.

    Attributes:
        reason: The reason, which becomes the status's message.
        type: The marker in the JSON form, `{"type": "sayso.cancel", "reason": …}`.
    """

    type: Literal["sayso.cancel", "timbal.cancel"] = _CANCEL
    reason: str | None = None

    def __init__(self, reason: str | None = None, **fields: Any) -> None:
        super().__init__(reason=reason, **fields)


# The meaning of a value of `resume=` or `approval_decisions=` depends on its request: a call takes an approval, and a
# question takes any value as its answer. A `Cancel` ends the run at either.


def _cancel_of(given: Any) -> Cancel | None:
    """Return the value as a `Cancel`; None if it is another one."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
    if fields.get("type") in {_CANCEL, "timbal.cancel"}:
        reason = fields.get("reason")
        return Cancel(reason if isinstance(reason, str) else None)
    return given if isinstance(given, Cancel) else None


def _approval_of(given: Any) -> ApprovalResolution:
    """Return the value as a decision on a call.

    Raises:
        TypeError: It is not a decision; e.g. a text such as "no" must not be treated as true.
        pydantic.ValidationError: It is a dict, but not a valid decision.
    """
    if isinstance(given, ApprovalResolution):
        return given
    if isinstance(given, bool):
        return ApprovalResolution(approved=given)
    kind = type(given).__name__
    if kind != "dict":
        raise TypeError(
            "a decision on a call must be True, False, an ApprovalResolution or a dict with the same fields,"
            f" not {kind}"
        )
    return ApprovalResolution.model_validate(given, strict=True)


def resolutions_of(*given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge mappings of values by id.

    Raises:
        TypeError: An argument is not a mapping by id.
        ValueError: An id has two values, which is ambiguous.
    """
    found: dict[str, Any] = {}
    for values in given:
        if values is not None:
            if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
                raise TypeError(f"decisions must be a dict by request id, not {type(values).__name__}")
            for request_id, value in values.items():
                if request_id in found and found[request_id] != value:
                    raise ValueError(f"{request_id} is decided twice, by approval_decisions= and by resume=")
                found[request_id] = value
    return found


class IgnoredDecisionWarning(UserWarning):
    """A decision was passed for an id that is not from this run, or that was already decided differently."""


class IgnoredInputWarning(UserWarning):
    """The input passed with `parent_id=` differs from the run's own input, which the run keeps."""


class DecisionTaker:
    """The decisions passed with one call of a run.

    Attributes:
        others: By id: other runs to which decided requests belong, and the call of each.
        refusals: The results, as texts, of rejections for a run whose lease another process holds.
    """

    def __init__(self, store: Store, resolutions: Mapping[str, Any]) -> None:
        self.store, self._resolutions = store, resolutions
        self._waited: list[Request] | None = None
        self.others: dict[str, str] = {}
        self.refusals: list[str] = []
        self._looked_at: set[str] = set()

    @cached_property
    def _review(self) -> Review:
        return Review(self.store, channel="resume")

    @cached_property
    def _known(self) -> dict[str, Request]:
        found: dict[str, Request] = {}
        for request_id in self._resolutions:
            try:
                found[request_id] = self.store.settle(request_id)
            except (errors.RequestNotFoundError, UnicodeError):  # a text that cannot be encoded is not an id
                _warn(f"there is no request {request_id!r} (a prefix is not enough here); its decision is ignored")
        return found

    def runs(self) -> list[RunSnapshot]:
        """Return the runs of the decided requests, those with requests left to decide first."""
        found: list[RunSnapshot] = []
        requests = sorted(self._known.values(), key=lambda request: request.state in _SPENT)
        for run_id in dict.fromkeys(request.run_id for request in requests):
            with suppress(errors.RunNotFoundError):  # it was asked outside a runnable
                found.append(self.store.get_run(run_id))
                self._looked_at.add(run_id)
        return found

    async def decide(self, history: RunHistory) -> dict[str, Body]:
        """Record the decisions; return, by id, notes about those that were not recorded.

        Raises:
            Halt: All calls with decisions were already executed by another process.
        """
        if not self._resolutions and (self._waited is not None or not history.waiting()):
            return {}
        return await call_store(self.store, self._decisions, history)

    def take_run(self, run_id: str, holder: str) -> RunSnapshot:
        """Take the lease of a run; if there are no decisions, read what it waits for in the same thread hop."""
        snapshot = self.store.take_run(run_id, holder)
        if not self._resolutions:
            with suppress(errors.SaysoError):  # `decide` reads again and reports the error
                self._wait_for({step.place: step.waits for step in snapshot.steps}.values())
        return snapshot

    def _wait_for(self, request_ids: Iterable[str | None]) -> None:
        self._waited = [self.store.get(request_id) for request_id in dict.fromkeys(request_ids) if request_id]

    def _decisions(self, history: RunHistory) -> dict[str, Body]:
        """Record the decisions and then read what the run waits for, in one hop to the store's thread."""
        mine: dict[str, Request] = {}
        for request_id, request in self._known.items():
            if request.run_id == history.run_id and history.is_stored:
                mine[request_id] = request
            elif not history.is_stored or request.run_id not in self._looked_at:
                _warn(self._ignored(request))
        # After a crash, a caller that passes the decisions again continues the run, because nothing else would.
        is_whole = history.was is not RunState.BROKEN
        if is_whole and mine and all(request.state in _SPENT for request in mine.values()):
            text, reason = f"the calls of {', '.join(mine)} were started before", "approval_already_claimed"
            output = events.ended_output(reason, next(iter(mine)))
            raise events.Halt("cancelled", reason, f"{text}; they are not started again", output=output)
        taken = {request_id: self._take(request, history) for request_id, request in mine.items()}
        notes = {request_id: note for request_id, note in taken.items() if note is not None}
        for place, body in history.waiting():  # note it where the request waits too, so that the stored run matches
            note = notes.get(body["waits"], {})
            if "expired" in note:
                # Copy only these fields: data that is put here counts as produced here, and is no longer verified.
                waits = {name: body[name] for name in ("waits", "path", "name", "schema") if name in body}
                history.put(place, {**waits, "note": {**(body.get("note") or {}), **note}})
        self._wait_for(body["waits"] for _, body in history.waiting())
        return notes

    def refuse(self, run_id: str) -> None:
        """Record the rejections for a run whose lease another process holds; add the results to `refusals`.

        An approval waits until the run is free, because it lets something happen. A rejection prevents something, and
        the person who made it may not come back.
        """
        for request in self._known.values():
            if request.run_id != run_id:
                if request.run_id not in self._looked_at:
                    _warn(self._ignored(request))
                continue
            given = self._resolutions[request.id]
            try:
                no = _cancel_of(given) or (None if request.kind == "question" else _approval_of(given))
            except (TypeError, ValueError):
                continue  # not a decision, so not a rejection
            if no is None or (isinstance(no, ApprovalResolution) and no.approved):
                continue
            try:
                if isinstance(no, Cancel):
                    self._review.cancel(request.id, no.reason)
                elif no.is_expired():
                    raise ValueError("it was valid only until its expires_at")  # noqa: TRY301  reported below, like any other error
                else:
                    self._review.reject(request.id, _reason_of(no), by=no.approver_id)
            except (errors.SaysoError, TypeError, ValueError) as error:
                self.refusals.append(f"the rejection of {request.id} was not recorded: {error}")
                _warn(self.refusals[-1])
            else:
                self.refusals.append(f"the rejection of {request.id} was recorded")

    def _ignored(self, request: Request) -> str:
        run_id = request.run_id
        if run_id not in self.others:
            return f"{request.id} is a request of another run; its decision is ignored"
        return (
            f"{request.id} is a request of another run, {run_id} {self.others[run_id]}; its decision is ignored,"
            f" and this call starts a new run. To resume that run, pass parent_id={run_id!r}"
        )

    def _take(self, request: Request, history: RunHistory) -> Body | None:
        """Record one decision; return a note if it was not recorded and the request is emitted again."""
        if request.state is not State.PENDING and request.state is not State.APPROVED:
            return None  # already decided through another channel or in an earlier call
        try:
            return self._decided(request, self._resolutions[request.id], history)
        except errors.AlreadyDecidedError as error:
            if request.state is State.PENDING:
                _warn(str(error))
            return None
        except (errors.DecisionRefusedError, TypeError, ValueError) as error:
            text = str(error)
            if isinstance(error, ValidationError):  # described without values, which may be secrets
                fields = error.errors(include_url=False, include_context=False, include_input=False)
                problems = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in fields)
                text = f"it is not a decision: {'; '.join(problems)}"
            _warn(f"the decision on {request.id} was not recorded: {text}")
            return {"refused": text}

    def _decided(self, request: Request, given: Any, history: RunHistory) -> Body | None:
        if (cancel := _cancel_of(given)) is not None:
            self._review.cancel(request.id, cancel.reason)
        elif request.kind == "question":
            self._review.answer(request.id, given)
        elif (approval := _approval_of(given)).is_expired():
            return {"expired": True}
        elif request.state is State.PENDING:
            self._vote(request, approval, history)
        elif not approval.approved:
            _warn(f"{request.id} was approved before; the later no is ignored, cancel the run instead")
        elif approval.override_input is not None:
            _warn(f"{request.id} was approved before; the later change is ignored, it runs as it was approved")
        return None

    def _vote(self, request: Request, approval: ApprovalResolution, history: RunHistory) -> None:
        place = resolution_place(request.id)
        before = history.known.get(place) or {}
        if "expires_at" in before and not self.store.get(request.id).votes:
            before = {}  # from an approval whose process died before it was recorded
        # If several people approved, the earliest expiry ends the approval.
        ends = [at for at in (approval.expires_at, before.get("expires_at")) if at is not None]
        fields = {
            "decided_at": approval.decided_at, "expires_at": min(ends, default=None),
            "metadata": events.plain(approval.metadata), "comment": approval.comment, "reason": approval.reason,
        }  # fmt: skip
        extras = {name: value for name, value in fields.items() if value}
        if not approval.approved:
            self._review.reject(request.id, _reason_of(approval), by=approval.approver_id)
        else:
            if approval.expires_at is not None:
                # Saved before the approval, because a crash in between must not leave an approval without its expiry.
                history.put(place, {**before, "expires_at": extras["expires_at"]})
                history.save_now()
            try:
                reason, changes = _reason_of(approval), approval.override_input
                seen = request.fingerprint if approval.seen is None else approval.seen
                self._review.approve(request.id, by=approval.approver_id, changes=changes, comment=reason, seen=seen)
            except (errors.DecisionRefusedError, TypeError, ValueError):
                if approval.expires_at is not None:
                    history.put(place, before)  # it must not limit another person's approval
                raise
        history.put(place, extras)

    def stop_if_cancelled(self, step: StepContext) -> None:
        """Stop a run if one of its requests was cancelled; nothing more of it runs, whatever else was approved.

        Raises:
            Halt: A request was cancelled.
        """
        history, waited = step.history, self._waited or ()
        history.approved = {request.id: request for request in waited if request.state is State.APPROVED}
        request = next((one for one in waited if one.state is State.CANCELLED and one.holds), None)
        if request is None:
            return
        halt = cancelled(step, request)
        path = next((body["path"] for _, body in history.waiting() if body["waits"] == request.id), step.path)
        event = events.event_of(request, path=path)
        shown = event.input if isinstance(event, events.ApprovalEvent) else None
        metadata = {"approval": {**events.approval_note(request), "cancelled": True}} if request.kind == "call" else {}
        if path == step.path:  # it is the run's own call
            step.input, step.metadata = shown, {**step.metadata, **metadata}
        elif history.emit is not None:
            end = events.OutputEvent(
                run_id=event.run_id, path=path, runnable_type=event.runnable_type, input=shown, status=halt.status,
                output=halt.output, t0=event.t0, t1=clock.milliseconds(), metadata=metadata,
            )  # fmt: skip
            history.emit(end)
        raise halt


def _reason_of(approval: ApprovalResolution) -> str | None:
    """Return the text for the record and the model: the reason and the comment, without repetition."""
    return "; ".join(dict.fromkeys(text for text in (approval.reason, approval.comment) if text)) or None


def _warn(text: str) -> None:
    warnings.warn(text, IgnoredDecisionWarning, stacklevel=2)
