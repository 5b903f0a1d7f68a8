"""What a run tells while it goes on: pydantic models that survive a trip through JSON.

Names and fields are those of the approval face. What they carry of a call's arguments is what people may see: masked.
`parse_event` reads back what `model_dump_json` wrote.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationInfo,
    field_serializer,
    field_validator,
)

from sayso.model.text import Text
from sayso.runs.values import plain

__all__ = [
    "ApprovalEvent",
    "DeltaEvent",
    "Event",
    "InteractionEvent",
    "OutputEvent",
    "RunStatus",
    "StartEvent",
    "parse_event",
]


class RunStatus(BaseModel):
    """How a run, or a part of it, ended.

    Attributes:
        code: `success`, `error` or `cancelled`; a run that waits for a person is `cancelled` and can be resumed.
        reason: `approval_required`, `input_required`, `approval_denied`, `approval_already_claimed`, `cancelled`,
            `approval_policy_error`; beside them, which the face does not know: `outcome_unknown`, `run_changed`,
            `input_changed`, and `store_failed`, after which the run can be resumed.
        message: The same in a sentence.
    """

    code: Literal["success", "error", "cancelled"]
    reason: str | None = None
    message: str | None = None


class _Event(BaseModel):
    # Exporters and browsers may add what they like; what is not known is not kept.
    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="strings")

    run_id: str
    path: str


class StartEvent(_Event):
    """A runnable begins.

    Attributes:
        run_id: Of the outermost run; give it back as `parent_id` to go on.
        path: Names from the outermost runnable down to this one, joined by dots.
        runnable_type: `Tool`, `Agent`, `Workflow`, `function`.
        t0: When, in Unix milliseconds.
    """

    type: Literal["START"] = "START"
    runnable_type: str
    t0: int


class DeltaEvent(_Event):
    """A piece of a model's text, as it streams.

    Attributes:
        text: What came since the last one.
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
        approval_id: Id of the request; decide by it, through any channel.
        runnable_path, runnable_name, runnable_type: What is about to run.
        tool_call_id: The model provider's id of the call: a label.
        input: The arguments, masked.
        input_schema: JSON Schema of the arguments.
        prompt, description: For the reviewer.
        kind, ui: How a front end may draw it; `ui` is made of the masked arguments.
        t0: When it was asked, in Unix milliseconds.
        metadata: Under `approval`: `expired` is True where an earlier decision or request ran out of time, `refused`
            says why a decision was not taken.
    """

    type: Literal["APPROVAL"] = "APPROVAL"
    approval_id: str
    input: dict[str, Any]
    input_schema: dict[str, Any]
    prompt: str | None = None
    description: str | None = None
    kind: str | None = None
    ui: dict[str, Any] | None = None

    @property
    def request_id(self) -> str:
        """Id of the request; also `approval_id`, `confirmation_id` and `id`. Not part of the JSON."""
        return self.approval_id

    id = confirmation_id = request_id


class InteractionEvent(_Waiting):
    """A handler asks a person for a value.

    Attributes:
        interaction_id: Id of the request; answer by it.
        kind: How a front end may draw it: `suspend`, `ask_user`, `confirm`, …
        payload: What the handler gave.
        response_schema: JSON Schema that the answer is held to; None where anything goes.
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
    """A runnable ended, or pauses.

    Attributes:
        input: Its input, masked.
        status: How it ended.
        output: What it returned; in JSON as plain values. An agent's is a `str` with `collect_text()`. Of a run that
            waits, or was cancelled, a dict: `approval_id` (or `suspension_id`), `status`, and `prompt` or `reason`.
        error: `type` and `message`, for `error`.
        t0, t1: From when to when, in Unix milliseconds.
        usage: Counters of this run since it was called, those of nested runs added: tokens, `approvals:…`.
        metadata: On the outermost one, `pending_approvals` and `pending_interactions`: the events' fields as dicts.
            Under `approval`, of a held call: `id`, `input`, `effective_input` if it was changed, and the `resolution`.
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
        """Let an agent's output be read as a message, which it is elsewhere."""
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
    """Return the event that JSON text, or the dict it stands for, tells.

    Raises:
        pydantic.ValidationError: It is no event.
    """
    return _reader.validate_python(text) if isinstance(text, dict) else _reader.validate_json(text)
