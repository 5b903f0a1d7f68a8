"""`Agent`: a model that calls tools until it has an answer; `Tool`, and `model_of`, which finds the model.

`converse` is the loop of an agent. It has no state of its own: messages are derived from the run's history turn by
turn, so a resumed run reaches the same point without asking the model again. The calls of one turn run concurrently;
the agent pauses after all of them have settled.

A `Tool` is a function for models and programs, with approval options; `tool` creates one from a function. A model is
given by its name, as a pydantic-ai model, or as an async function.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import asdict, replace
from functools import update_wrapper
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Unpack, cast, overload

from sayso import errors
from sayso.effects import Attempt, Operations, adrive, drive
from sayso.errors import ConfigError
from sayso.gates.ambiguous import exception_classes
from sayso.gates.exceptions import trim, trimmed
from sayso.gates.gate import OnReject, call_function, checked_on_reject
from sayso.gates.options import Gate, check_known
from sayso.model import cached_property
from sayso.model.redaction import words
from sayso.runs.definition import RunnableOptions, ToolOptions, check_handler, checked_name, entry, options_of
from sayso.runs.engine import run_step
from sayso.runs.events import DeltaEvent, Denied, Failed, Halt, fault_of, is_claimed
from sayso.runs.messages import (
    Message,
    Model,
    ModelCall,
    ModelError,
    Reply,
    denial_text,
    kind_of,
    not_a_tool,
    reply_of,
    reply_to,
    text_of,
)
from sayso.runs.runnable import Run, Runnable
from sayso.runs.state import StepContext, current_step

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)  # so that `Tool` without parameters accepts and returns anything
    R_co = TypeVar("R_co", default=Any, covariant=True)
else:
    from typing import ParamSpec, TypeVar

    P, R_co = ParamSpec("P"), TypeVar("R_co", covariant=True)


Q = ParamSpec("Q")
T = TypeVar("T")
R = TypeVar("R", bound=Runnable)
Errors = type[BaseException] | Collection[type[BaseException]]


class Tool(Runnable, Generic[P, R_co]):
    """A function with a name, a description, a schema and a gate.

    `tool(amount=5)` returns a lazy run of this call; `tool.call(amount=5)` and `await tool.acall(amount=5)` return the
    value, or raise `ConfirmationRequired` and `ConfirmationRejected` like `sayso.confirm_first`. A tool has the name,
    docstring and signature of its handler, for people, `inspect` and type checkers (which let a tool with
    `default_params` take anything).

    Args:
        handler: A sync or async function. In an async run, a sync one runs in a thread.
        name: The name; by default the handler's.
        description: The description; by default the handler's docstring.
        ambiguous, key, effect, title, summary, suspends: As for `sayso.gate`. A run has a name, so keys apply in it.
            If the handler raises one of `suspends`, the run pauses, and makes the call again when it is resumed.
        on_reject: How a refusal is returned. `raise` raises it from `call` and ends a run as denied. `return` returns
            its `message_for_model` as the value. A callable gets the `ConfirmationRejected` and returns the value.
        options: See `Runnable`.

    Raises:
        TypeError: The handler is a generator, a method without its object, or an object with an async `__call__`.
        ConfigError: An option is invalid, or the handler is not a function.
    """

    kind: ClassVar[str] = "tool"

    @overload
    def __init__(
        self: Tool[..., T], handler: Callable[..., T], *, default_params: Mapping[str, Any], name: str | None = None,
        description: str | None = None, **options: Unpack[ToolOptions],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self, handler: Callable[P, R_co], *, name: str | None = None, description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> None: ...  # fmt: skip
    @trimmed
    def __init__(
        self, handler: Callable[..., Any], *, name: str | None = None, description: str | None = None,
        ambiguous: Errors = (), suspends: Errors = (), on_reject: OnReject = "raise",
        key: str | Callable[..., Any] | None = None, effect: str | Callable[..., Any] | None = None,
        title: str | Callable[..., Any] | None = None, summary: str | Callable[..., Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        if isinstance(handler, staticmethod):  # @sayso.tool is above @staticmethod
            handler = cast("Callable[..., Any]", handler.__func__)
        check_handler(handler)
        self.handler = handler
        own = getattr(handler, "__name__", "")
        if name is None and own in {"", "<lambda>"}:
            raise errors.ConfigError("a lambda or a callable object has no name of its own; give name=")
        super().__init__(
            name=own if name is None else name,
            function=entry(handler),
            description=description or inspect.getdoc(handler),
            tool_options={
                "key": key, "effect": effect, "title": title, "summary": summary,
                "ambiguous": exception_classes(ambiguous), "suspends": exception_classes(suspends, "suspends="),
            },
            **options,
        )  # fmt: skip
        self.on_reject = checked_on_reject(on_reject)
        update_wrapper(self, handler, updated=())

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Run: ...
    @overload
    def __call__(
        self, *args: Any, parent_id: str | None, run_id: str | None = None, resume: Mapping[str, Any] | None = None,
        approval_decisions: Mapping[str, Any] | None = None, **kwargs: Any,
    ) -> Run: ...  # fmt: skip
    @overload
    def __call__(
        self, *args: Any, run_id: str | None, resume: Mapping[str, Any] | None = None,
        approval_decisions: Mapping[str, Any] | None = None, **kwargs: Any,
    ) -> Run: ...  # fmt: skip
    @overload
    def __call__(
        self, *args: Any, resume: Mapping[str, Any] | None, approval_decisions: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Run: ...  # fmt: skip
    @overload
    def __call__(self, *args: Any, approval_decisions: Mapping[str, Any] | None, **kwargs: Any) -> Run: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Run:
        """Return a run; see `Runnable`."""
        return super().__call__(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        return inspect.iscoroutinefunction(self.handler)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the tool directly and return the value.

        Raises:
            ConfirmationRequired: A person must decide first; the same call made afterwards continues.
            ConfirmationRejected: The call was refused.
            TypeError: The handler is async; use `acall`.
            sayso.model.schema.SchemaError: The arguments do not match the types.
        """
        if self.is_async:
            raise TypeError(f"{self.name} is async; use `await {self.name}.acall(...)`")
        waits = [name for name, made in self.default_params.items() if inspect.iscoroutinefunction(made)]
        if waits:
            raise TypeError(
                f"default_params[{waits[0]!r}] of {self.name} is async, and nothing was called;"
                f" use `await {self.name}.acall(...)`"
            )
        try:
            return drive(self._way(args, kwargs)).unwrap()
        except BaseException as error:
            trim(error)
            raise

    @overload
    async def acall(self: Tool[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Call the tool without blocking the event loop; see `call`."""
        try:
            return (await adrive(self._way(args, kwargs))).unwrap()
        except BaseException as error:
            trim(error)
            raise

    def _way(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Operations[Attempt]:
        given = self.signature.named(args, kwargs)
        made = yield from self.defaults(given)
        arguments = self.validate(self._placed({**made, **given}))
        args, kwargs = self.signature.spread(arguments)
        return (yield from call_function(self._own_gate, args, kwargs, None, self.store, self.on_reject))

    @cached_property
    def _own_gate(self) -> Gate:
        # With the bare handler: a direct call can raise, so a gated function inside it may raise as well.
        return replace(self.gate, function=self.handler)


@overload
def tool(
    function: Callable[..., T], /, *, default_params: Mapping[str, Any], name: str | None = None,
    description: str | None = None, require_confirmation: bool = False, **options: Unpack[ToolOptions],
) -> Tool[..., T]: ...  # fmt: skip


@overload
def tool(
    function: Callable[Q, T], /, *, name: str | None = None, description: str | None = None,
    require_confirmation: bool = False, **options: Unpack[ToolOptions],
) -> Tool[Q, T]: ...  # fmt: skip


@overload
def tool(
    function: None = None, /, *, default_params: Mapping[str, Any], name: str | None = None,
    description: str | None = None, require_confirmation: bool = False, **options: Unpack[ToolOptions],
) -> Callable[[Callable[..., T]], Tool[..., T]]: ...  # fmt: skip


@overload
def tool(
    function: None = None, /, *, name: str | None = None, description: str | None = None,
    require_confirmation: bool = False, **options: Unpack[ToolOptions],
) -> Callable[[Callable[Q, T]], Tool[Q, T]]: ...  # fmt: skip


@trimmed
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None,
    require_confirmation: bool = False, **options: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:  # fmt: skip
    """Create a `Tool` from a function: `@tool`, or with options.

    Args:
        require_confirmation: The confirmation API's alias of `requires_approval=True`. The other options are `Tool`'s.
    """
    check_known("tool", options, {*options_of(Tool), "require_confirmation"})
    if not isinstance(require_confirmation, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise errors.ConfigError(f"require_confirmation= takes True or False, not {require_confirmation!r}")
    if require_confirmation and "requires_approval" in options:
        raise errors.ConfigError("require_confirmation= and requires_approval= are two names of one option; give one")
    if require_confirmation:
        options["requires_approval"] = True

    @trimmed
    def make(handler: Callable[..., Any]) -> Tool:
        return Tool(handler, name=name, description=description, **options)

    return make if function is None else make(function)


def tools_by_name(tools: object, tool_of: Callable[[Any], R]) -> dict[str, R]:
    """Return the tools in `tools=` by name; raise `ConfigError` if it is not a list, or has a name twice."""
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise errors.ConfigError(f"tools= takes a list, not {tools!r}")
    found: dict[str, R] = {}
    for part in map(tool_of, cast("Iterable[Any]", tools)):
        if part.name in found:
            raise errors.ConfigError(f"two tools are called {part.name!r}; give one of them another name=")
        found[part.name] = part
    return found


class CallableModel:
    """A model that is an async function of `(messages, tools)`.

    The function returns a value that `reply_of` accepts, or is an async generator that yields text and, if it calls
    tools, finally such a value.
    """

    def __init__(self, function: Callable[[list[Message], list[dict[str, Any]]], object]) -> None:
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self._function = function

    async def turn(self, messages: list[Message], tools: list[dict[str, Any]], /) -> AsyncGenerator[str | Reply]:
        """See `Model.turn`. Exceptions of the function are passed on unchanged."""
        # Copies, because the store keeps the history, and a function may modify its arguments.
        answer: Any = self._function(deepcopy(messages), deepcopy(tools))
        streamed, final = "", None
        if inspect.isasyncgen(answer):
            async with aclosing(cast("AsyncGenerator[object]", answer)) as pieces:
                async for piece in pieces:
                    if final is not None:
                        raise ModelError(self.name, "sent more after its reply")
                    if isinstance(piece, str):
                        streamed += piece
                        yield piece
                    else:
                        final = piece
        elif inspect.isawaitable(answer):
            final = await answer
        else:
            raise ModelError(self.name, f"returned {kind_of(answer)} without being async: make it an `async def`")
        reply = reply_of(streamed if final is None and streamed else final, messages, model=self.name)
        if reply.text and not streamed:
            yield reply.text
        yield reply if reply.text or not streamed else replace(reply, text=streamed)


def model_of(given: object) -> Model:
    """Return a model.

    Args:
        given: A name (`openai/gpt-5`, `openai:gpt-5`, or another one that pydantic-ai knows), a pydantic-ai model, a
            `Model`, or an async function as for `CallableModel`. A provider's key is read at the first turn, not here.

    Raises:
        ConfigError: It is none of these, the name is unknown, or a package is not installed.
    """
    if isinstance(given, type):
        raise ConfigError(f"the class {given.__name__} is not a model; give an instance of it")
    if isinstance(given, Model):
        return given
    if isinstance(given, str) and find_spec("pydantic_ai") is None:
        raise ConfigError(
            f"the model {given!r} needs pydantic-ai, which is not installed: "
            'pip install "sayso[agent]" (an async function as the model needs no package)'
        )
    if isinstance(given, str) or any(kind.__module__.startswith("pydantic_ai.models") for kind in type(given).__mro__):
        from sayso.runs.provider import ProviderModel

        return ProviderModel(cast("Any", given))
    if callable(given):
        return CallableModel(given)
    raise ConfigError(f"{kind_of(given)} is not a model: give a name, a pydantic-ai model, or an async function")


async def converse(agent: Agent, step: StepContext, prompt: str) -> str:
    """Ask the model, make the calls of its turn, and ask again with their results, until it answers with text."""
    place = f"{step.place}/system"
    known = step.history.known.get(place)
    if known is None:
        known = {"system": agent.system_prompt() if callable(agent.system_prompt) else agent.system_prompt}
        if known["system"] is not None:
            step.history.put(place, known)
    messages: list[Message] = [{"role": "user", "content": prompt}]
    if known["system"] is not None:
        messages.insert(0, {"role": "system", "content": known["system"]})
    for turn in range(agent.max_iters):
        reply = await _ask(agent, step, turn, messages)
        messages.append(reply.message)
        if not reply.calls:
            return reply.text
        messages += await _make_calls(agent, step, turn, reply.calls)
    raise Failed("MaxItersError", f"{agent.name} had no answer after {agent.max_iters} turns")


async def _ask(agent: Agent, step: StepContext, turn: int, messages: list[Message]) -> Reply:
    """Return the model's reply of a turn from the history, or ask for a new one and record it."""
    place = f"{step.place}/turn{turn}"
    known = step.history.known.get(place)
    if known is not None:
        saved: dict[str, Any] = known["reply"]
        return replace(Reply(**saved), calls=[ModelCall(**call) for call in saved["calls"]])
    step.history.check_going()

    def emit(text: str) -> None:
        step.history.check_going()
        if step.history.emit is not None:
            step.history.emit(DeltaEvent(run_id=step.history.run_id, path=step.path, text=text))

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
        if len(calls) > 1 and any(is_claimed(one.exception()) for one in made):
            # Of calls with one key one is started. The others get its result, now that it has one.
            made = [
                asyncio.ensure_future(_make_call(agent, step, turn, n, calls)) if is_claimed(one.exception()) else one
                for n, one in enumerate(made)
            ]
            await asyncio.wait(made)
    except asyncio.CancelledError:
        for one in made:
            one.cancel()
        await asyncio.gather(*made, return_exceptions=True)
        raise
    faults = [fault for one in made if (fault := one.exception()) is not None]
    if faults:
        raise fault_of(faults)
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
            callable; see `sayso.runs.agent.model_of`.
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
