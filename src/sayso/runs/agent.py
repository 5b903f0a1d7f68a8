"""`Agent`: a model that calls tools until it has an answer. `converse` is its loop.

The loop has no state of its own: messages are derived from the run's history turn by turn, so a resumed run reaches the
same point without asking the model again. The calls of one turn run concurrently; the agent pauses after all of them
have settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Unpack, cast

from sayso import errors
from sayso.gates.signals import trimmed
from sayso.model import cached_property
from sayso.model.redaction import words
from sayso.runs.definition import RunnableOptions, checked_name
from sayso.runs.engine import run_step
from sayso.runs.events import DeltaEvent, Denied, Failed, Halt, most_urgent
from sayso.runs.messages import Message, ModelCall, Reply, denial_text, not_a_tool, reply_to, text_of
from sayso.runs.models import model_of
from sayso.runs.runnable import Runnable
from sayso.runs.state import StepContext, current_step
from sayso.runs.tool import Tool, tools_by_name


async def converse(agent: Agent, step: StepContext, prompt: str) -> str:
    """Ask the model, make the calls of its turn, and ask again with their results, until it answers with text."""
    messages = _opening(agent, step, prompt)
    for turn in range(agent.max_iters):
        reply = await _ask(agent, step, turn, messages)
        messages.append(reply.message)
        if not reply.calls:
            return reply.text
        messages += await _make_calls(agent, step, turn, reply.calls)
    raise Failed("MaxItersError", f"{agent.name} had no answer after {agent.max_iters} turns")


def _opening(agent: Agent, step: StepContext, prompt: str) -> list[Message]:
    place = f"{step.place}/system"
    known = step.history.known.get(place)
    if known is None:
        known = {"system": agent.system_prompt() if callable(agent.system_prompt) else agent.system_prompt}
        if known["system"] is not None:
            step.history.put(place, known)
    opening: list[Message] = [] if known["system"] is None else [{"role": "system", "content": known["system"]}]
    return [*opening, {"role": "user", "content": prompt}]


async def _ask(agent: Agent, step: StepContext, turn: int, messages: list[Message]) -> Reply:
    """Return the model's reply of a turn from the history, or ask for a new one and record it."""
    place = f"{step.place}/turn{turn}"
    known = step.history.known.get(place)
    if known is not None:
        saved: dict[str, Any] = known["reply"]
        return replace(Reply(**saved), calls=[ModelCall(**call) for call in saved["calls"]])
    step.attempt.check_going()

    def emit(text: str) -> None:
        step.attempt.check_going()
        if step.attempt.emit is not None:
            step.attempt.emit(DeltaEvent(run_id=step.history.run_id, path=step.path, text=text))

    try:
        reply = await reply_to(agent.model, agent.name, messages, agent.offers, emit)
    except Exception as error:
        raise Halt("error", None, words(error, ()), error) from error
    for what, n in reply.usage.items():
        step.count(what, n)
    step.history.put(place, {"path": step.path, "reply": asdict(reply)})
    if reply.calls:  # the final answer is saved with the end of the run
        await step.history.save()
    return reply


async def _make_calls(agent: Agent, step: StepContext, turn: int, calls: Sequence[ModelCall]) -> list[Message]:
    """Make the calls of a turn concurrently, and return the messages with their results in the order of the calls.

    Raises:
        Halt: A call waits or stops the run; all others have settled.
    """
    made = [asyncio.ensure_future(_make_call(agent, step, turn, n, calls)) for n in range(len(calls))]
    try:
        await asyncio.wait(made)
    except asyncio.CancelledError:
        for one in made:
            one.cancel()
        await asyncio.gather(*made, return_exceptions=True)
        raise
    faults = [fault for one in made if (fault := one.exception()) is not None]
    for fault in faults:
        if not isinstance(fault, Halt):
            raise fault
    if faults:
        raise most_urgent(cast("list[Halt]", faults))
    return [one.result() for one in made]


async def _make_call(agent: Agent, step: StepContext, turn: int, n: int, calls: Sequence[ModelCall]) -> Message:
    call, tools = calls[n], agent.parts()
    part = tools.get(call.name)
    if part is None:
        return call.result(not_a_tool(call.name, tools), is_error=True)
    if call.problem is not None:
        return call.result(f"The arguments cannot be read: {call.problem}. Nothing was run.", is_error=True)
    below = step.child(part, f"turn{turn}.{n}", (turn, n), call.id, is_only=len(calls) == 1)
    try:
        value = await run_step(below, call.arguments)
    except Denied as denied:
        return call.result(denial_text(call.name, denied, below.metadata.get("approval")), is_error=True)
    except Failed as failed:
        return call.result(f"{call.name} failed: {failed}", is_error=True, approval=below.metadata.get("approval"))
    return call.result(text_of(value), approval=below.metadata.get("approval"))


class Agent(Runnable):
    """A model with tools. Calling it with `prompt=` gives a lazy run.

    Args:
        name: See `Runnable`.
        model: A name such as `openai/gpt-5` or `openai:gpt-5` (extra `agent`), a pydantic-ai model, or an async
            callable; see `sayso.runs.models.model_of`.
        tools: Tools, plain functions, agents and workflows.
        system_prompt: Text, or a callable without arguments that returns it, asked when a run begins.
        max_iters: How many turns the model has in one run.
        options: See `Runnable`.

    Raises:
        ConfigError: Two tools of one name, or an option that cannot be used.
    """

    kind: ClassVar[str] = "agent"

    @trimmed
    def __init__(
        self, *, name: str = "agent", model: Any, tools: Sequence[Runnable | Callable[..., Any]] = (),
        system_prompt: str | Callable[[], str] | None = None, max_iters: int = 10,
        **options: Unpack[RunnableOptions],
    ) -> None:  # fmt: skip
        if type(max_iters) is not int or max_iters < 1:
            raise errors.ConfigError(f"max_iters= takes a whole number from 1, not {max_iters!r}")
        if system_prompt is not None and not isinstance(system_prompt, str) and not callable(system_prompt):
            raise errors.ConfigError(f"system_prompt= takes a string or a callable, not {system_prompt!r}")
        checked_name(name)
        self.model = model_of(model)
        self.system_prompt, self.max_iters = system_prompt, max_iters
        self._tools = tools_by_name(tools, lambda given: given if isinstance(given, Runnable) else Tool(given))

        async def go(prompt: str) -> str:
            return await converse(self, cast("StepContext", current_step()), prompt)

        go.__name__ = go.__qualname__ = name
        # Its approval is valid until it ends; the history has its steps, and each of them starts only once.
        options.setdefault("idempotent", True)
        super().__init__(name=name, function=go, **options)

    def parts(self) -> Mapping[str, Runnable]:
        """Return the tools by name."""
        return self._tools

    @cached_property
    def offers(self) -> list[dict[str, Any]]:
        """The descriptions of the tools for the model."""
        return [part.offer for part in self._tools.values()]
