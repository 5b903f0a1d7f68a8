"""The events of a run, and the exceptions with which a step ends without a value.

The events are pydantic models with the names and fields of seed 002; `parse_event` parses the result of
`model_dump_json`. Arguments in events are masked. Events about waiting requests are created only from the request, so a
loaded run, a repeated event and the first event are the same.

    Halt      the whole run stops, for now or for good: a person must decide, another process has it, a rule failed
    Denied    this call is not made, because a person or a rule refused it; its caller can continue
    Failed    this call was made and ended with an error; its caller can continue

These three are raised between steps inside `sayso.runs` and never reach a program, whose result is the run's output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from math import isfinite, isnan
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationInfo, field_serializer, field_validator

from sayso import clock
from sayso.effects import Suspended
from sayso.gates import exceptions
from sayso.model.canonical import LIMIT_DIGITS
from sayso.model.request import Request, State
from sayso.model.schema import Schema
from sayso.model.text import Text, each_leaf, storable

_LONGEST_INT = 10**LIMIT_DIGITS


def plain(value: Any) -> Any:
    """Convert a value to plain JSON for events and models; values without a JSON form become `str`. Never raises."""
    if value is None or isinstance(value, str | int):
        return _fit(value)
    from pydantic_core import to_jsonable_python

    for mode in ("utf8", "base64"):  # base64 for bytes that are not text
        with suppress(Exception):  # from user code in a value, or for a value that is nested too deeply
            return each_leaf(to_jsonable_python(value, fallback=str, bytes_mode=mode, serialize_unknown=True), _fit)
    return f"<{type(value).__name__} without a form as JSON>"


def _fit(leaf: Any) -> Any:
    """Replace a number that JSON lacks by text, and characters that cannot be encoded."""
    match leaf:
        case float() if not isfinite(leaf):
            return "NaN" if isnan(leaf) else "Infinity" if leaf > 0 else "-Infinity"
        case int() if abs(leaf) >= _LONGEST_INT:  # Python refuses to format it
            return "<int without a form as JSON>"
        case _:
            return storable(leaf)


class RunStatus(BaseModel):
    """How a run, or a part of it, ended.

    Attributes:
        code: `success`, `error` or `cancelled`; a run that waits for a person is `cancelled` and can be resumed.
        reason: `approval_required`, `input_required`, `approval_denied`, `approval_already_claimed`, `cancelled`,
            `approval_policy_error`; and, in addition to the approval API: `outcome_unknown`, `run_changed`,
            `input_changed`, and `store_failed`, after which the run can be resumed.
        message: The same as a sentence.
    """

    code: Literal["success", "error", "cancelled"]
    reason: str | None = None
    message: str | None = None


class _Event(BaseModel):
    # Exporters and browsers may add fields; unknown ones are dropped.
    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="strings")

    run_id: str
    path: str


class StartEvent(_Event):
    """A runnable starts. Every event has `run_id`, `path` and, in JSON, `type`.

    Attributes:
        run_id: The id of the outermost run; pass it as `parent_id` to continue the run.
        path: The names from the outermost runnable down to this one, joined by dots.
        runnable_type: `Tool`, `Agent`, `Workflow`, `function`.
        t0: The time, in Unix milliseconds.
    """

    type: Literal["START"] = "START"
    runnable_type: str
    t0: int


class DeltaEvent(_Event):
    """A piece of a model's streamed text.

    Attributes:
        text: The text since the last piece.
    """

    type: Literal["DELTA"] = "DELTA"
    text: str


class _Waiting(_Event):
    runnable_path: str
    runnable_name: str
    runnable_type: str
    tool_call_id: str | None = None
    t0: int
    metadata: dict[str, Any] = Field(default_factory=dict)


class ApprovalEvent(_Waiting):
    """A call waits for a person.

    Attributes:
        approval_id: The id of the request, with which it can be decided through any channel.
        runnable_path, runnable_name, runnable_type: The runnable that would run.
        tool_call_id: The model provider's id of the call, as a label.
        input: The masked arguments.
        input_schema: The JSON Schema of the arguments.
        prompt, description: Texts for the reviewer.
        kind, ui: Hints for a front end, from the rule; masked like the arguments.
        fingerprint: Fingerprint of the call with this input, which an `ApprovalResolution` of it names as `seen`.
        t0: When it was asked, in Unix milliseconds.
        metadata: Under `approval`, `expired` is True if an earlier decision or request has expired, and `refused` says
            why a decision was refused.
    """

    type: Literal["APPROVAL"] = "APPROVAL"
    approval_id: str
    input: dict[str, Any]
    input_schema: dict[str, Any]
    prompt: str | None = None
    description: str | None = None
    kind: str | None = None
    ui: dict[str, Any] | None = None
    fingerprint: str | None = None

    @property
    def request_id(self) -> str:
        """Id of the request; also `approval_id`, `confirmation_id` and `id`. Not part of the JSON."""
        return self.approval_id

    id = confirmation_id = request_id


class InteractionEvent(_Waiting):
    """A handler asks a person for a value.

    Attributes:
        interaction_id: The id of the request, with which it can be answered.
        kind: A hint for a front end: `suspend`, `ask_user`, `confirm`, …
        payload: The data from the handler.
        response_schema: The JSON Schema that the answer must match; None for any answer.
        runnable_path, runnable_name, runnable_type, tool_call_id, t0, metadata: As in `ApprovalEvent`.
    """

    type: Literal["INTERACTION"] = "INTERACTION"
    interaction_id: str
    kind: str
    payload: dict[str, Any]
    response_schema: dict[str, Any] | None = None

    @property
    def request_id(self) -> str:
        """Id of the request; also `approval_id`, `confirmation_id` and `id`. Not part of the JSON."""
        return self.interaction_id

    id = approval_id = confirmation_id = request_id


class OutputEvent(_Event):
    """A runnable has ended or paused.

    Attributes:
        runnable_type: `Tool`, `Agent`, `Workflow`.
        input: The masked input.
        status: How it ended: `code`, `reason` and `message`.
        output: The return value; in JSON as plain values. An agent's is a `str` with `collect_text()`. For a run that
            waits or was cancelled, a dict with `approval_id` (or `suspension_id`), `status`, and `prompt` or `reason`.
        error: The `type` and `message` of an error.
        t0, t1: The start and end, in Unix milliseconds.
        usage: Counters of this call of the run, including nested runs: tokens, `approvals:…`.
        metadata: On the outermost event, `pending_approvals` and `pending_interactions`: the events' fields as dicts.
            For a held call, `approval` has `id`, `input`, `effective_input` if it was changed, and `resolution`.
    """

    type: Literal["OUTPUT"] = "OUTPUT"
    runnable_type: str
    input: dict[str, Any] | None = None
    status: RunStatus
    output: Any = None
    error: dict[str, Any] | None = None
    t0: int
    t1: int
    usage: dict[str, int] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @field_validator("output")
    @classmethod
    def _readable(cls, output: Any, info: ValidationInfo) -> Any:
        """Let an agent's output be used like a message, which it is in other libraries."""
        return Text(output) if type(output) is str and info.data.get("runnable_type") == "Agent" else output

    @property
    def pending_approvals(self) -> list[ApprovalEvent]:
        """The calls that wait for a person; `metadata["pending_approvals"]` has the same as dicts."""
        return [ApprovalEvent.model_validate(entry) for entry in self.metadata.get("pending_approvals", ())]

    @property
    def pending_interactions(self) -> list[InteractionEvent]:
        """The questions that wait for a person; `metadata["pending_interactions"]` has the same as dicts."""
        return [InteractionEvent.model_validate(entry) for entry in self.metadata.get("pending_interactions", ())]

    @field_serializer("output", when_used="json")
    def _plain(self, output: Any) -> Any:
        return plain(output)


Event = StartEvent | DeltaEvent | ApprovalEvent | InteractionEvent | OutputEvent
_reader: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])


def parse_event(text: str | bytes | dict[str, Any]) -> Event:
    """Parse an event from JSON text, or from the parsed dict.

    Raises:
        pydantic.ValidationError: It is not an event.
    """
    return _reader.validate_python(text) if isinstance(text, dict) else _reader.validate_json(text)


def event_of(
    request: Request, note: dict[str, Any] | None = None, path: str | None = None
) -> ApprovalEvent | InteractionEvent:
    """Return the event for a request that waits.

    Args:
        note: Notes for this emission.
        path: The path of the handler that made the call, if the call does not have it.
    """
    facts, is_call = request.context or {}, request.kind == "call"
    name = request.call.name if is_call else "ask"  # the default outside a runnable's own call
    path = path or facts.get("path") or name
    metadata = {"expired": False, **(note or {})}
    place: dict[str, Any] = {
        "run_id": request.run_id, "path": path, "runnable_path": path,
        "runnable_name": facts.get("runnable_name") or name,
        "runnable_type": str(facts.get("runnable_type", "function")), "tool_call_id": facts.get("tool_call_id"),
        "t0": clock.milliseconds(request.created_at),
    }  # fmt: skip
    if not is_call:
        return InteractionEvent(
            **place, interaction_id=request.id, kind=facts.get("kind", "suspend"),
            payload=facts.get("payload") or {"question": request.question.text},
            response_schema=facts.get("response_schema"), metadata={"interaction": metadata},
        )  # fmt: skip
    call = request.effective
    return ApprovalEvent(
        **place, approval_id=request.id, input=call.arguments,
        input_schema=json.loads(_json_schema(call.schema)),
        prompt=request.prompt, description=facts.get("description") or request.description, kind=facts.get("kind"),
        ui=facts.get("ui"), fingerprint=request.current_fingerprint,
        metadata={**facts.get("metadata", {}), "approval": metadata},
    )  # fmt: skip


@lru_cache(maxsize=256)
def _json_schema(text: str) -> str:
    return json.dumps(Schema.from_text(text).json_schema())


def entry_of(event: ApprovalEvent | InteractionEvent) -> dict[str, Any]:
    """Return the event's fields as JSON values, for a list of pending events."""
    return event.model_dump(mode="json", exclude={"type"})


def approval_note(request: Request, shown: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of `metadata["approval"]` for a held call, with masked arguments.

    Args:
        shown: The masked arguments, if the caller already has them.
    """
    facts, shown = request.context or {}, request.effective.arguments if shown is None else shown
    fields = {
        "prompt": request.prompt,
        "description": facts.get("description") or request.description,
        "kind": facts.get("kind"),
        "ui": facts.get("ui"),
        "tool_call_id": facts.get("tool_call_id"),
        "metadata": facts.get("metadata"),
        "effective_input": None if request.edited is None else shown,
    }
    ids = {"id": request.id, "approval_id": request.id, "required": True, "input": shown}
    return {**ids, **{name: value for name, value in fields.items() if value is not None}}


def ended_output(status: str, approval_id: str | None, reason: str | None = None) -> dict[str, Any]:
    """Return the output of a cancelled call."""
    return {"approval_id": approval_id, "status": status, "reason": reason}


def waiting_output(event: ApprovalEvent | InteractionEvent) -> dict[str, Any]:
    """Return the output of a call while it waits for this event."""
    if isinstance(event, ApprovalEvent):
        return {"approval_id": event.approval_id, "status": "approval_required", "prompt": event.prompt}
    fields = {"kind": event.kind, "payload": event.payload}
    return {"suspension_id": event.interaction_id, "status": "input_required", **fields}


def resolution_of(request: Request) -> dict[str, Any]:
    """Return the decision for the record (who, when, why), with the names of the approval API."""
    decision = request.decision
    if decision is None:
        return {}
    return {
        "approved": decision.verb == "approve",
        "decision": decision.verb,
        "approver_id": str(decision.by),
        "reason": decision.comment if decision.verb != "approve" else None,
        "comment": decision.comment,
        "decided_at": clock.milliseconds(decision.at),
        "expires_at": None if request.approval_expires_at is None else clock.milliseconds(request.approval_expires_at),
        "channel": decision.channel,
        "override_input": None if request.edited is None else request.edited.arguments,
        "expired": request.state is State.EXPIRED,
    }


# If several calls stop in one turn, the first of these reasons is the run's.
_ORDER = (
    "cancelled",
    "approval_policy_error",
    "run_changed",
    "input_changed",
    "store_failed",
    None,
    "outcome_unknown",
    "approval_already_claimed",
    "approval_required",
    "input_required",
    "suspended",
    "stopped",
)


class Halt(Suspended):
    """The run stops here.

    Attributes:
        status: The status of the run.
        error: The `type` and `message` of the underlying error, if any.
        output: The output of the run (see `ended_output`).
        event: The event that waits for a person, if that is why the run stops.
    """

    def __init__(
        self, code: Literal["error", "cancelled"], reason: str | None, message: str, cause: BaseException | None = None,
        *, error: dict[str, Any] | None = None, output: Any = None,
        event: ApprovalEvent | InteractionEvent | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.event = event
        self.status, self.output = RunStatus(code=code, reason=reason, message=message), output
        self.error = error if cause is None else {"type": type(cause).__name__, "message": message}


class Denied(Exception):
    """A person or a rule refused this call.

    Attributes:
        message: The refusal, as a sentence.
        is_feedback: Whether it was sent back with feedback, so a changed call may be accepted.
        signal: The exception that a call outside a run would raise, if this call itself was refused.
        partial: A partial value, if there is one.
    """

    def __init__(
        self, message: str, *, is_feedback: bool = False, signal: exceptions.ConfirmationRejected | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.is_feedback, self.signal = message, is_feedback, signal
        self.partial: Any = None


class Failed(Exception):
    """A call ended with an error.

    Attributes:
        kind: The type of the error.
        message: Its message, with secrets masked.
        partial: A partial value, if there is one.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message = kind, message
        self.partial: Any = None


def end_of(fault: Denied | Failed) -> tuple[RunStatus, dict[str, Any]]:
    """Return the status and the recorded error of a call that ended with this fault."""
    if isinstance(fault, Denied):
        status = RunStatus(code="cancelled", reason="approval_denied", message=fault.message)
        return status, {"feedback": fault.is_feedback}
    return RunStatus(code="error", message=str(fault)), {"type": fault.kind, "message": fault.message}


def fault_of(faults: Iterable[BaseException]) -> BaseException:
    """Return the one that counts: an unexpected error, or else the most urgent `Halt`, a failure, or a refusal."""

    def rank(fault: BaseException) -> tuple[int, int]:
        if isinstance(fault, Halt):
            return 1, _ORDER.index(fault.status.reason)
        if isinstance(fault, Failed):
            return 2, 0
        return 3 if isinstance(fault, Denied) else 0, 0

    return min(faults, key=rank)


def is_claimed(fault: BaseException | None) -> bool:
    """Return whether a call ended because it met a start of its key, by another call of its run or elsewhere."""
    return isinstance(fault, Halt) and fault.status.reason == "approval_already_claimed"


class QuestionAsked(Suspended):
    """The handler asks a person who has not answered yet."""

    def __init__(self, number: int, payload: dict[str, Any], kind: str, schema: dict[str, Any] | None) -> None:
        super().__init__(kind)
        self.number, self.payload, self.kind, self.schema = number, payload, kind, schema


class NestedCallHeld(Suspended):
    """A gated function that the handler called waits for a person."""

    def __init__(self, signal: exceptions.ConfirmationRequired) -> None:
        super().__init__(signal.confirmation_id)
        self.signal = signal
