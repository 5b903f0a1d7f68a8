"""Questions that a handler asks by `suspend`, and the decisions that a caller gives a run.

A handler that suspends has not ended: it runs again from its top when the answer is given, so what it does before
`suspend` is done again. Each question is a request in the store, with an id of its own and a place: the first question
of a handler, the second, and so on. Ready tools for agents: `ask_user`, `ask_user_multi`, `confirm`.

Decisions are given by id, in the spellings of seed 002, and taken before anything goes on. Only a request that this run
raised can be decided; any other id is ignored with a warning. A decision that is refused decides nothing, and the
request is emitted again with the reason.
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
from sayso.errors import ConfigError
from sayso.gates import signals
from sayso.gates.masking import secrets_among
from sayso.gates.scope import requester
from sayso.model import canonical
from sayso.model.cached import cached_property
from sayso.model.escaping import storable
from sayso.model.ids import fingerprint, new_request_id, question_digest
from sayso.model.request import Question, Request, State
from sayso.model.run import RunSnapshot, RunState
from sayso.model.schema import Schema
from sayso.reviews import Review
from sayso.runs.events import (
    ApprovalEvent,
    Halt,
    NestedCallHeld,
    OutputEvent,
    QuestionAsked,
    approval_note,
    ended_output,
    event_of,
    plain,
)
from sayso.runs.state import Body, RunHistory, StepContext, current_context, resolution_place, verb
from sayso.stores.base import Store

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


_CANCEL = "sayso.cancel"
_SPENT = {State.RUNNING, State.DONE, State.FAILED}


class ApprovalResolution(BaseModel):
    """A decision about one held call.

    Attributes:
        approved: Whether it may run.
        reason: Why, or why not; the model is told.
        approver_id: Who decided; the configured reviewer when not given.
        comment: A note; it is recorded and told to the model after the reason.
        decided_at: Unix milliseconds; the instant of construction when not given. The record's own time is the store's.
        expires_at: Unix milliseconds from which on the decision does not count any more.
        override_input: With an approval: changed arguments, merged over those proposed and validated before it counts.
        metadata: Of yours, JSON values; kept with the decision.

    Raises:
        pydantic.ValidationError: A field that there is not: by a misspelt `override_input` the call would run as it is.
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

    def is_expired(self, at: int | None = None) -> bool:
        """Say whether the decision does not count any more."""
        return self.expires_at is not None and (clock.milliseconds() if at is None else at) >= self.expires_at


class Cancel(BaseModel):
    """A resume value that ends the whole run: nothing more runs, and the model is told nothing.

    Attributes:
        reason: Why; it becomes the status's message.
        type: In JSON, `{"type": "sayso.cancel", "reason": …}` stands for it.
    """

    type: Literal["sayso.cancel", "timbal.cancel"] = _CANCEL
    reason: str | None = None

    def __init__(self, reason: str | None = None, **fields: Any) -> None:
        super().__init__(reason=reason, **fields)


class Resolution:
    """One value of `resume=` or `approval_decisions=`, read as what it may be.

    What it is depends on the request: a call takes an approval, a question any value as its answer.

    Attributes:
        cancel: Set where it is a `Cancel`.
    """

    def __init__(self, given: Any) -> None:
        self.given: Any = given
        self.cancel = _cancel_of(given)

    def approval(self) -> ApprovalResolution:
        """Return it as a decision about a call.

        Raises:
            TypeError: It is none: a text such as "no" is not taken for a yes.
            pydantic.ValidationError: A dict that is none.
        """
        if isinstance(self.given, ApprovalResolution):
            return self.given
        if isinstance(self.given, bool):
            return ApprovalResolution(approved=self.given)
        kind = type(self.given).__name__
        if kind != "dict":
            raise TypeError(
                "a decision about a call is True, False, an ApprovalResolution or a dict with the same fields,"
                f" not {kind}"
            )
        return ApprovalResolution.model_validate(self.given, strict=True)


def _cancel_of(given: Any) -> Cancel | None:
    if isinstance(given, Cancel):
        return given
    if isinstance(given, Mapping):
        fields = cast("Mapping[str, Any]", given)
        if fields.get("type") in {_CANCEL, "timbal.cancel"}:
            reason = fields.get("reason")
            return Cancel(reason if isinstance(reason, str) else None)
    return None


def resolutions_of(*given: Mapping[str, Any] | None) -> dict[str, Resolution]:
    """Return the values by id.

    Raises:
        TypeError: They are not given by id.
        ValueError: One id has two values: nobody can say which was meant.
    """
    found: dict[str, Resolution] = {}
    for values in given:
        if values is not None:
            if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
                raise TypeError(f"decisions are given by id, in a dict, not as {type(values).__name__}")
            for request_id, value in values.items():
                if request_id in found and found[request_id].given != value:
                    raise ValueError(f"{request_id} is decided twice, by approval_decisions= and by resume=")
                found[request_id] = Resolution(value)
    return found


class IgnoredDecisionWarning(UserWarning):
    """A decision was given for an id that this run did not raise, or that is decided otherwise already."""


class IgnoredInputWarning(UserWarning):
    """Input was given with `parent_id=` that is not what the run was called with; the run keeps its own."""


class DecisionTaker:
    """The decisions given with one call of a run.

    Attributes:
        others: Runs of decided requests that are not the one that was called: which call each is of, by id.
        refusals: What became of each no about a run that another process has a lease for, in words.
    """

    def __init__(self, store: Store, resolutions: Mapping[str, Resolution]) -> None:
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
            except (errors.RequestNotFoundError, UnicodeError):  # what no file takes is no id
                _warn(f"there is no request {request_id!r} (ids are whole here); its decision is ignored")
        return found

    async def runs(self) -> list[RunSnapshot]:
        """Return the runs of the known requests that are decided, those with something left to decide first."""
        return await verb(self.store, self._runs) if self._resolutions else []

    def _runs(self) -> list[RunSnapshot]:
        found: list[RunSnapshot] = []
        requests = sorted(self._known.values(), key=lambda request: request.state in _SPENT)
        for run_id in dict.fromkeys(request.run_id for request in requests):
            with suppress(errors.RunNotFoundError):  # it was asked outside of a runnable
                found.append(self.store.get_run(run_id))
                self._looked_at.add(run_id)
        return found

    async def decide(self, history: RunHistory) -> dict[str, Body]:
        """Take the decisions; return what there is to say about those that were not taken, by id.

        Raises:
            Halt: All that was given to decide has been executed, by whoever was first.
        """
        if not self._resolutions and (self._waited is not None or not history.waiting()):
            return {}
        return await verb(self.store, self._decisions, history)

    def look(self, snapshot: RunSnapshot) -> RunSnapshot:
        """Look at what a run waits for whose lease was just taken, in the same trip, if nothing is to be decided."""
        if not self._resolutions:
            with suppress(errors.SaysoError):  # `decide` looks again, and there it is heard
                self._wait_for({step.place: step.waits for step in snapshot.steps}.values())
        return snapshot

    def _wait_for(self, request_ids: Iterable[str | None]) -> None:
        self._waited = [self.store.get(request_id) for request_id in dict.fromkeys(request_ids) if request_id]

    def _decisions(self, history: RunHistory) -> dict[str, Body]:
        """Take the decisions, and look at what the run waits for after that: one trip to the store's thread for all."""
        mine: dict[str, Request] = {}
        for request_id, request in self._known.items():
            if request.run_id == history.run_id and history.is_stored:
                mine[request_id] = request
            elif not history.is_stored or request.run_id not in self._looked_at:
                _warn(self._ignored(request))
        # After a crash whoever brings the decision again goes on with the run: nobody else would.
        is_whole = history.was is not RunState.BROKEN
        if is_whole and mine and all(request.state in _SPENT for request in mine.values()):
            text, reason = f"the calls of {', '.join(mine)} were started before", "approval_already_claimed"
            output = ended_output(reason, next(iter(mine)))
            raise Halt("cancelled", reason, f"{text}; they are not started again", output=output)
        taken = {request_id: self._take(request, history) for request_id, request in mine.items()}
        notes = {request_id: note for request_id, note in taken.items() if note is not None}
        for request_id, note in notes.items():
            if "expired" in note:
                _keep(note, request_id, history)
        self._wait_for(body["waits"] for _, body in history.waiting())
        return notes

    async def refuse(self, run_id: str) -> None:
        """Record each no about the calls of a run whose lease another process has; `refusals` says how.

        An approval waits until the run is free, for it lets something happen. A no keeps something from happening, and
        the person who said it goes away.
        """
        if self._resolutions:
            await verb(self.store, self._refuse, run_id)

    def _refuse(self, run_id: str) -> None:
        for request in self._known.values():
            if request.run_id == run_id:
                self._refuse_one(request, self._resolutions[request.id])
            elif request.run_id not in self._looked_at:
                _warn(self._ignored(request))

    def _refuse_one(self, request: Request, resolution: Resolution) -> None:
        try:
            no = resolution.cancel or (None if request.kind == "question" else resolution.approval())
        except (TypeError, ValueError):
            return  # it is no decision, so it is no no
        if no is None or (isinstance(no, ApprovalResolution) and no.approved):
            return
        try:
            if isinstance(no, Cancel):
                self._review.cancel(request.id, no.reason)
            elif no.is_expired():
                raise ValueError("it counted until its expires_at only")  # noqa: TRY301  told below, as any other
            else:
                self._review.reject(request.id, _reason_of(no), by=no.approver_id)
        except (errors.SaysoError, TypeError, ValueError) as error:
            self.refusals.append(f"the no to {request.id} was not recorded: {error}")
            _warn(self.refusals[-1])
            return
        self.refusals.append(f"the no to {request.id} was recorded")

    def _ignored(self, request: Request) -> str:
        run_id = request.run_id
        if run_id not in self.others:
            return f"{request.id} is a request of another run; its decision is ignored"
        return (
            f"{request.id} is a request of another run, {run_id} {self.others[run_id]}; its decision is ignored,"
            f" and this call begins anew. To go on with that run, give parent_id={run_id!r}"
        )

    def _take(self, request: Request, history: RunHistory) -> Body | None:
        if request.state is not State.PENDING and request.state is not State.APPROVED:
            return None  # decided through another channel, or in an earlier call; that stands
        try:
            return self._decided(request, self._resolutions[request.id], history)
        except errors.AlreadyDecidedError as error:
            if request.state is State.PENDING:
                _warn(str(error))
            return None
        except (errors.DecisionRefusedError, TypeError, ValueError) as error:
            text = f"it is no decision: {_problems(error)}" if isinstance(error, ValidationError) else str(error)
            _warn(f"the decision of {request.id} was not taken: {text}")
            return {"refused": text}

    def _decided(self, request: Request, resolution: Resolution, history: RunHistory) -> Body | None:
        if resolution.cancel is not None:
            self._review.cancel(request.id, resolution.cancel.reason)
            return None
        if request.kind == "question":
            self._review.answer(request.id, resolution.given)
            return None
        approval = resolution.approval()
        if approval.is_expired():
            return {"expired": True}
        if request.state is State.APPROVED:
            if not approval.approved:
                _warn(f"{request.id} was approved before; the later no is ignored, cancel the run instead")
            elif approval.override_input is not None:
                _warn(f"{request.id} was approved before; the later change is ignored, it runs as it was approved")
            return None
        self._vote(request, approval, history)
        return None

    def _vote(self, request: Request, approval: ApprovalResolution, history: RunHistory) -> None:
        place = resolution_place(request.id)
        before = history.known.get(place) or {}
        if "expires_at" in before and not self.store.get(request.id).votes:
            before = {}  # an earlier approval whose process died before it counted
        extras = _extras_of(approval, before)
        if not approval.approved:
            self._review.reject(request.id, _reason_of(approval), by=approval.approver_id)
        elif approval.expires_at is None:
            self._approve(request, approval)
        else:
            # Saved before the approval: a process that dies in between must not leave an approval without its end.
            history.put(place, {**before, "expires_at": extras["expires_at"]})
            history.save_now()
            try:
                self._approve(request, approval)
            except (errors.DecisionRefusedError, TypeError, ValueError):
                history.put(place, before)  # it ends no approval that somebody else gives
                raise
        history.put(place, extras)

    def _approve(self, request: Request, approval: ApprovalResolution) -> None:
        self._review.approve(
            request.id, by=approval.approver_id, changes=approval.override_input, comment=_reason_of(approval)
        )

    def stop_if_cancelled(self, step: StepContext) -> None:
        """Stop a run one of whose requests was cancelled: nothing else of it runs, whatever was approved beside.

        Raises:
            Halt: It was.
        """
        for request in self._waited or ():
            if request.state is State.CANCELLED and request.holds:
                halt = cancelled(step, request)
                _tell_cancelled(step, request, halt)
                raise halt
            if request.state is State.APPROVED:
                step.attempt.approved[request.id] = request


def _keep(note: Body, request_id: str, history: RunHistory) -> None:
    """Write a note down where the request waits, so that the stored run says what the event says."""
    for place, body in history.waiting():
        if body["waits"] == request_id:
            # Nothing else of the step: what is put here counts as done here, and needs no proof any more.
            waits = {name: body[name] for name in ("waits", "path", "name", "schema") if name in body}
            history.put(place, {**waits, "note": {**(body.get("note") or {}), **note}})


def _tell_cancelled(step: StepContext, request: Request, halt: Halt) -> None:
    """Say of the call that was cancelled that it has ended, or note it where that is the run's own call."""
    path = next((body["path"] for _, body in step.history.waiting() if body["waits"] == request.id), step.path)
    event = event_of(request, path=path)
    shown = event.input if isinstance(event, ApprovalEvent) else None
    metadata = {"approval": {**approval_note(request), "cancelled": True}} if request.kind == "call" else {}
    if path == step.path:
        step.input, step.metadata = shown, {**step.metadata, **metadata}
    elif step.attempt.emit is not None:
        step.attempt.emit(
            OutputEvent(
                run_id=event.run_id, path=path, runnable_type=event.runnable_type, input=shown, status=halt.status,
                output=halt.output, t0=event.t0, t1=clock.milliseconds(), metadata=metadata,
            )
        )  # fmt: skip


def _reason_of(approval: ApprovalResolution) -> str | None:
    """Return what the record and the model are told: the reason and the comment, each once."""
    return "; ".join(dict.fromkeys(text for text in (approval.reason, approval.comment) if text)) or None


def _extras_of(approval: ApprovalResolution, before: Mapping[str, Any]) -> Body:
    """Return what a resolution says beyond the decision."""
    # Of several that agreed, the first whose word ends ends the approval.
    ends = [at for at in (approval.expires_at, before.get("expires_at")) if at is not None]
    fields = {
        "decided_at": approval.decided_at, "expires_at": min(ends, default=None),
        "metadata": plain(approval.metadata), "comment": approval.comment, "reason": approval.reason,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value}


def _problems(error: ValidationError) -> str:
    """Return what is wrong, without the values: they may be secrets."""
    fields = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in fields)


def _warn(text: str) -> None:
    warnings.warn(text, IgnoredDecisionWarning, stacklevel=2)
