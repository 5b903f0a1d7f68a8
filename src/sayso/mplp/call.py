"""The two calls that are held for approval in place of a target: what a reviewer sees, and what a start runs.

A plan is held as `carry_out_plan(title, objective, steps)`, with its steps as the protocol's JSON, so reviewers read
and edit the plan like other arguments; every other target is held as `use_target(target_type, target_id, reason)`.
The run names the target, and the arguments must agree with it. `sayso.model.edit` has the checks of edits. A start runs
the action given to `running_as`, with the target as approved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from pydantic import Field

from sayso.errors import ArgumentError
from sayso.gates.options import Gate
from sayso.model import canonical
from sayso.model.edit import PLAN_TOOL, TARGET_TOOL
from sayso.model.request import Call
from sayso.mplp.document import Plan, PlanStep, TargetType
from sayso.mplp.schema import NotConformantError, id_of

_Text = Annotated[str, Field(min_length=1)]
_running: ContextVar[Callable[[dict[str, Any]], Any] | None] = ContextVar("sayso_mplp_running", default=None)


class Step(TypedDict):
    """A step as reviewers edit it: fields without a value are left out, and a new step needs no id."""

    description: _Text
    step_id: NotRequired[str]
    status: NotRequired[Literal["pending", "in_progress", "completed", "blocked", "skipped", "failed"]]
    dependencies: NotRequired[list[str] | None]
    agent_role: NotRequired[str | None]
    order_index: NotRequired[Annotated[int, Field(ge=0)] | None]


def carry_out_plan(title: _Text, objective: _Text, steps: Annotated[list[Step], Field(min_length=1)]) -> Any:
    """Carry out a plan, once."""
    return _do({"title": title, "objective": objective, "steps": steps})


def use_target(target_type: TargetType, target_id: str, reason: str | None = None) -> Any:
    """Use a target of the protocol, once."""
    return _do({"target_type": target_type, "target_id": target_id, "reason": reason})


def _do(arguments: dict[str, Any]) -> Any:
    action = _running.get()
    if action is None:
        raise RuntimeError("this call is started by sayso.mplp.start alone; nothing was done")
    return action(arguments)


def _awaited(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return the same function for async programs; its name and parameters are the same, so it is the same tool."""

    @wraps(function)
    async def awaited(**arguments: Any) -> Any:
        return await function(**arguments)

    return awaited


@contextmanager
def running_as(action: Callable[[dict[str, Any]], Any]) -> Generator[None]:
    """Make the two calls run this action while the block runs, in this task."""
    token = _running.set(action)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine may be closed from a context that never had it
            _running.reset(token)


def is_ours(call: Call) -> bool:
    """Say whether a call is one of the two."""
    return call.tool in {PLAN_TOOL, TARGET_TOOL}


def gate_for(tool: str, *, is_async: bool = False, **options: Any) -> Gate:
    """Return the checkpoint before one of the two calls; `options` are those of `Gate`."""
    function = carry_out_plan if tool == PLAN_TOOL else use_target
    return Gate(_awaited(function) if is_async else function, description=function.__doc__, **options)


def target_of(call: Call) -> dict[str, Any]:
    """Return the arguments of a call of `use_target`; empty where they cannot be read."""
    with suppress(ArgumentError):  # a program may have written it by hand
        return canonical.decode(call.form, {canonical.class_name(TargetType): TargetType})
    return {}


def edited_plan(plan: Plan, call: Call) -> Plan:
    """Return a plan with the arguments of its call."""
    return plan_with(plan, canonical.decode(call.form, {}))


def plan_with(plan: Plan, arguments: Mapping[str, Any]) -> Plan:
    """Return a plan with these arguments of its call; steps that a reviewer added get derived ids.

    Raises:
        NotConformantError: They are not those of a plan; a program may have written the call by hand.
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
        raise NotConformantError("Plan", ["/: what waits has not the title, objective and steps of a plan"]) from None
