"""The protocol's documents (`parse`, `export`), their common parts, plans and decisions, and the held calls.

A document may be incomplete or invalid while a program builds it; `export` returns only what conforms to the protocol's
schemas. A plan's status follows from decisions and starts, and cannot be assigned.

Two calls are held to represent targets: they are what a reviewer sees and what a start runs. A plan is held as
`carry_out_plan(title, objective, steps)`, with its steps in the protocol's JSON, so reviewers read and edit it like any
other arguments. Every other target is held as `use_target(target_type, target_id, reason)`. The run id names the
target, and the arguments must match it. `sayso.model.edit` validates edits. A start runs the action given to `gate_for`
with the approved target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import update_wrapper
from typing import Annotated, Any, ClassVar, Literal, NoReturn, NotRequired, Self, TypedDict, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from sayso import clock
from sayso.errors import ArgumentError
from sayso.gates.captured_values import ENTERED
from sayso.gates.options import Gate
from sayso.model import canonical
from sayso.model.edit import PLAN_TOOL
from sayso.model.request import Call
from sayso.mplp.schema import (
    VERSION,
    ConfirmRefusedError,
    NotConformantError,
    id_of,
    new_id,
    normalize,
    parse_json,
    pointer,
    problems_of,
)

_NO_OFFSET = timedelta(0)


class Part(BaseModel):
    """An immutable part of a document."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class Document(BaseModel):
    """A document of the protocol.

    Attributes:
        kind: The name of its schema.
    """

    kind: ClassVar[str]
    model_config = ConfigDict(extra="forbid", populate_by_name=True, validate_assignment=True)

    _changes: tuple[str, ...] = PrivateAttr(default=())

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes that `parse(..., strict=False)` made, one line each."""
        return self._changes

    @classmethod
    def parse(cls, json: str | bytes | bytearray | Mapping[str, Any], *, strict: bool = True) -> Self:
        """Parse a document.

        Args:
            json: The JSON as text or bytes, or the parsed values.
            strict: Accept only documents that conform to the schema. If False, also accept other spellings
                (`protocolVersion`, ids with a prefix, times without a zone, unknown fields), and list the
                corrections in `changes`.

        Raises:
            NotConformantError: The document does not conform; `problems` says where and why.
        """
        changes: list[str] = []
        found = parse_json(json, cls.__name__)
        if not strict:
            found = normalize(cls.kind, found, changes)
        cls._check(found)
        document = cls.model_validate(found)
        document.__pydantic_private__ = {**(document.__pydantic_private__ or {}), "_changes": tuple(changes)}
        return document

    @classmethod
    def beyond_schema(cls, document: Mapping[str, Any]) -> Iterator[str]:  # noqa: ARG003  for subclasses
        """Yield violations of rules that the protocol's schema does not express."""
        return iter(())

    @classmethod
    def _check(cls, document: dict[str, Any]) -> None:
        problems = problems_of(cls.kind, document) or list(cls.beyond_schema(document))
        if problems:
            raise NotConformantError(cls.__name__, problems)

    @classmethod
    def conforming_fields(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that conform to the schema, as JSON values; omit the others."""
        found: dict[str, Any] = {}
        for name, value in fields.items():
            try:
                plain = parse_json({name: value})
            except NotConformantError:
                continue
            if not problems_of(cls.kind, plain[name], field=name):
                found |= plain
        return found

    def export(self) -> dict[str, Any]:
        """Return the document as JSON values that conform to the protocol's schema.

        Raises:
            NotConformantError: The document does not conform; `problems` names the fields.
        """
        plain = parse_json(_to_json(self), type(self).__name__)
        self._check(plain)
        return plain

    def to_json(self) -> str:
        """Return `export` as indented JSON text."""
        return json.dumps(self.export(), indent=2, ensure_ascii=False)

    def update_from(self, other: Self) -> None:
        """Replace the content with that of another document."""
        object.__setattr__(self, "__dict__", dict(vars(other)))
        object.__setattr__(self, "__pydantic_fields_set__", set(other.model_fields_set))


def repeated_ids(items: Sequence[Mapping[str, Any]], name: str, key: str, what: str = "one") -> Iterator[str]:
    """Yield a problem for each item of a field that repeats the id of an earlier item."""
    seen = set[str]()
    for index, item in enumerate(items):
        if item[key] in seen:
            yield f"{pointer(name, index, key)}: {item[key]!r} is the id of another {what} already"
        seen.add(item[key])


def time_now() -> datetime:
    """Return the current instant; a default of fields that follows `clock.use`."""
    return clock.now()


def time_text(moment: datetime) -> str:
    """Format a time as in the protocol's examples; a naive time gets no zone."""
    precision = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    text = moment.isoformat(timespec=precision)
    return f"{text.removesuffix('+00:00')}Z" if moment.utcoffset() == _NO_OFFSET else text


def _to_json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        found: dict[str, Any] = {}
        for name, info in type(value).model_fields.items():
            held, is_given = getattr(value, name), name in value.model_fields_set
            may_be_null = is_given and bool(info.json_schema_extra)
            if (held is not None or may_be_null) and (held != [] or is_given):
                found[info.alias or name] = _to_json(held)
        return found | {name: _to_json(held) for name, held in (value.model_extra or {}).items()}
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _to_json(held) for name, held in cast("Mapping[str, Any]", value).items()}
    return [_to_json(item) for item in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


class Concern(StrEnum):
    """A cross-cutting concern of the protocol."""

    COORDINATION = "coordination"
    ERROR_HANDLING = "error-handling"
    EVENT_BUS = "event-bus"
    LEARNING_FEEDBACK = "learning-feedback"
    OBSERVABILITY = "observability"
    ORCHESTRATION = "orchestration"
    PERFORMANCE = "performance"
    PROTOCOL_VERSIONING = "protocol-versioning"
    SECURITY = "security"
    STATE_SYNC = "state-sync"
    TRANSACTION = "transaction"


class Module(StrEnum):
    """A module of the protocol."""

    CONTEXT = "context"
    PLAN = "plan"
    CONFIRM = "confirm"
    TRACE = "trace"
    ROLE = "role"
    EXTENSION = "extension"
    DIALOG = "dialog"
    COLLAB = "collab"
    CORE = "core"
    NETWORK = "network"


class Meta(Part):
    """Metadata of a document."""

    protocol_version: str = VERSION
    schema_version: str = VERSION
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    tags: list[str] | None = None
    cross_cutting: list[Concern] | None = None


class Ref(Part):
    """A reference to another object of the protocol."""

    id: str
    module: Module
    description: str | None = None


class Governance(Part):
    """Lifecycle phase, truth domain and lock of a document; accepts the protocol's names or snake case."""

    lifecycle_phase: str | None = Field(default=None, alias="lifecyclePhase")
    truth_domain: str | None = Field(default=None, alias="truthDomain")
    locked: bool | None = None
    last_confirm_ref: Ref | None = Field(default=None, alias="lastConfirmRef")


class Trace(Part):
    """The place of a document in a trace."""

    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    context_id: str | None = None
    attributes: dict[str, Any] | None = None


class Event(Part):
    """An event in the life of a document: `confirm.requested`, `confirm.decided`, `confirm.cancelled`."""

    event_id: str = Field(default_factory=new_id)
    event_type: str
    source: str = "confirm"
    timestamp: datetime = Field(default_factory=time_now)
    trace_id: str | None = None
    data: dict[str, Any] | None = Field(default=None, json_schema_extra={"nullable": True})


class StageEvent(BaseModel):
    """An event of the family `pipeline_stage` for subscribers: `plan_approved` or `plan_rejected`.

    It is not part of a document, because event types in the protocol's documents have no underscore.
    """

    model_config = ConfigDict(frozen=True)

    event_id: str = Field(default_factory=new_id)
    event_family: str = "pipeline_stage"
    event_type: str
    timestamp: datetime = Field(default_factory=time_now)
    payload: dict[str, Any]


class TargetType(StrEnum):
    """The kind of target of a Confirm."""

    CONTEXT = "context"
    PLAN = "plan"
    TRACE = "trace"
    EXTENSION = "extension"
    OTHER = "other"


class ConfirmStatus(StrEnum):
    """The status of a Confirm."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class DecisionStatus(StrEnum):
    """The result of a decision."""

    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class PlanStatus(StrEnum):
    """The status of a plan."""

    DRAFT = "draft"
    PROPOSED = "proposed"
    APPROVED = "approved"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class StepStatus(StrEnum):
    """The status of a step."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    FAILED = "failed"


T = TypeVar("T")


class FrozenList(list[T]):
    """An immutable list."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "decisions and events of a Confirm cannot be changed in place; nothing was changed. Use add_decision or"
            " process_decision, or assign a new list to a Confirm of your own"
        )

    append = extend = insert = pop = remove = clear = reverse = _refuse
    sort = _refuse  # pyright: ignore[reportAssignmentType]  the signature of `list.sort`
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


class PlanStep(Part):
    """A step of a plan."""

    step_id: str = Field(default_factory=new_id)
    description: str
    status: StepStatus = StepStatus.PENDING
    dependencies: list[str] | None = None
    agent_role: str | None = None
    order_index: int | None = None


class Plan(Document):
    """A plan, which needs an approval before it is carried out.

    Missing values of `meta`, `plan_id` and `context_id` are generated, and the status defaults to `draft`.

    Raises:
        ConfirmRefusedError: A program assigns the status.
    """

    kind = "plan"

    meta: Meta = Field(default_factory=lambda: Meta(created_at=clock.now()))
    plan_id: str = Field(default_factory=new_id)
    context_id: str = Field(default_factory=new_id)
    title: str
    objective: str
    status: PlanStatus = PlanStatus.DRAFT
    steps: list[PlanStep]
    trace: Trace | None = None
    events: list[Event] | None = None

    @classmethod
    def beyond_schema(cls, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield duplicate step ids, and dependencies on steps that are not in the plan."""
        yield from repeated_ids(document["steps"], "steps", "step_id", "step")
        seen = {step["step_id"] for step in document["steps"]}
        for index, step in enumerate(document["steps"]):
            for place, needed in enumerate(step.get("dependencies") or ()):
                if needed not in seen:
                    yield f"{pointer('steps', index, 'dependencies', place)}: there is no step {needed!r} in this plan"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "status" and value != self.status:
            reason = (
                f"the status of plan {self.plan_id} follows from decisions and starts; use"
                " submit_plan_for_approval, process_decision or start"
            )
            raise ConfirmRefusedError(self.plan_id, reason)
        super().__setattr__(name, value)


class Decision(Part):
    """The decision of one reviewer.

    The protocol identifies a reviewer by a role. If a person decided through a channel of sayso, it is their name.
    """

    decision_id: str = Field(default_factory=new_id)
    status: DecisionStatus
    decided_by_role: str
    decided_at: datetime = Field(default_factory=time_now)
    reason: str | None = None


_Text = Annotated[str, Field(min_length=1)]


# The name is part of the call's schema, whose digest every recorded request of a plan has.
class Step(TypedDict):
    """A step in the form that reviewers edit: empty fields are omitted, and a new step needs no id."""

    description: _Text
    step_id: NotRequired[str]
    status: NotRequired[Literal["pending", "in_progress", "completed", "blocked", "skipped", "failed"]]
    dependencies: NotRequired[list[str] | None]
    agent_role: NotRequired[str | None]
    order_index: NotRequired[Annotated[int, Field(ge=0)] | None]


_ONLY_START = "only sayso.mplp.start starts this call; nothing was done"


def carry_out_plan(title: _Text, objective: _Text, steps: Annotated[list[Step], Field(min_length=1)]) -> Any:  # noqa: ARG001  for its signature
    """Carry out a plan, once."""
    raise RuntimeError(_ONLY_START)


def use_target(target_type: TargetType, target_id: str, reason: str | None = None) -> Any:  # noqa: ARG001  the same
    """Use a target of the protocol, once."""
    raise RuntimeError(_ONLY_START)


def gate_for(tool: str, action: Callable[..., Any] | None = None, **options: Any) -> Gate:
    """Return the gate of one of the two calls.

    Args:
        action: What the call runs; it gets the arguments by name.
        options: Those of `Gate`.
    """
    function: Callable[..., Any] = carry_out_plan if tool == PLAN_TOOL else use_target
    if action is not None:
        update_wrapper(action, function)  # the same name and parameters, so that it is the same tool
        setattr(action, ENTERED, function)
    return Gate(action or function, description=function.__doc__, **options)


def target_of(call: Call) -> dict[str, Any]:
    """Return the arguments of a call of `use_target`; empty if they are invalid."""
    with suppress(ArgumentError):  # a program may have built the request by hand
        return canonical.decode(call.form, {canonical.class_name(TargetType): TargetType})
    return {}


def plan_with(plan: Plan, arguments: Mapping[str, Any]) -> Plan:
    """Return a plan with these arguments of its call applied; steps that a reviewer added get derived ids.

    Raises:
        NotConformantError: They are not the arguments of a plan; a program may have built the call by hand.
    """
    try:
        known = [step["step_id"] for step in arguments["steps"] if "step_id" in step]
        steps: list[PlanStep] = []
        for index, step in enumerate(arguments["steps"]):
            own = {"step_id": id_of("step", plan.plan_id, index, step["description"], *known)}
            steps.append(PlanStep.model_validate(own | step))
        return plan.model_copy(
            update={"title": arguments["title"], "objective": arguments["objective"], "steps": steps}
        )
    except (KeyError, TypeError, ValueError):
        raise NotConformantError(
            "Plan", ["/: the request does not have the title, objective and steps of a plan"]
        ) from None
