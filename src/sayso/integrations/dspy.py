"""Sayso in DSPy: tools that wait for a person, a person as a tool, and agents that suspend and resume (extra `dspy`).

`dspy.ReAct` shows every `Exception` of a tool to the model and continues. This is right for a person who does not
answer, but not for a run that a person ends, a question that could not be stored, or a call that cannot be made: these
raise `Stopped`, which is not an `Exception`. Invariant: no model continues as if a person had answered.
`Resumable` suspends an agent at a call that waits, and resumes it by replay (`sayso.integrations.replay`).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, Unpack
from weakref import WeakSet

from pydantic import TypeAdapter

from sayso.channels import human
from sayso.errors import ConfigError, SaysoError
from sayso.gates.exceptions import ConfirmationCancelled, ConfirmationRejected, as_told_to_model, trimmed
from sayso.gates.gate import HoldOptions
from sayso.integrations import tool_calls
from sayso.integrations.replay import FreeTool, Position, RecordedCalls, Suspended, position
from sayso.integrations.tool_calls import check_options, check_wait, fields_of, must_not_block, plain
from sayso.stores.base import Store

__all__ = ["Resumable", "Stopped", "Suspended", "gate", "human_in_the_loop"]

_gated: WeakSet[Callable[..., Any]] = WeakSet()  # the functions of gated tools
_ENDS = {"finish", "submit"}  # tools with which an agent ends; they have no effect


class Stopped(BaseException):
    """The program must stop here, instead of reporting the error to the model.

    Attributes:
        why: `ConfirmationCancelled` if a person ended the run, or a `SaysoError` if nothing could be asked.
    """

    def __init__(self, why: ConfirmationCancelled | SaysoError) -> None:
        super().__init__(str(why))
        self.why = why


class Resumable:
    """A `dspy.ReAct` or `dspy.ReActV2` whose gated tools suspend it; see the page docs/guides/dspy.md.

    Tool calls are identified by their order in a run, so each call of the agent needs its own run name, also for a
    second question in a conversation. If an ungated tool runs another `Resumable`, that agent becomes part of the outer
    run.

    Args:
        agent: The agent. It is not modified.
        wait: `suspend` raises `Suspended` at a call that waits; `block` waits for the decision.
    """

    def __init__(self, agent: Any, *, wait: Literal["suspend", "block"] = "suspend") -> None:
        check_wait(wait, "suspend", "block")
        if not all(hasattr(agent, name) for name in ("react", "tools", "signature")):
            raise ConfigError(f"Resumable takes a dspy.ReAct or dspy.ReActV2, not {agent!r}")
        self._agent, self._suspends = agent, wait == "suspend"

    def __call__(self, run: str, /, **inputs: Any) -> Any:
        """Run the agent and return its prediction.

        Args:
            run: The name of this call of the agent, the same in every process.
            inputs: The inputs of its signature, with values that have a JSON form.

        Raises:
            Suspended: A call waits for a person.
        """
        with self._replay(self._position(run, inputs)) as agent:
            return agent(**inputs)

    async def acall(self, run: str, /, **inputs: Any) -> Any:
        """Call the agent without blocking the event loop."""
        with self._replay(self._position(run, inputs)) as agent:
            return await agent.acall(**inputs)

    def resume(self, state: Mapping[str, Any]) -> Any:
        """Continue from `Suspended.state`. It can be called early, late or repeatedly: nothing is asked or run twice.

        Raises:
            Suspended: The call still waits, or a later one does.
        """
        here = Position.restore(state, suspends=self._suspends)
        with self._replay(here) as agent:
            return agent(**self._inputs(here))

    async def aresume(self, state: Mapping[str, Any]) -> Any:
        """Do the same as `resume` without blocking the event loop."""
        here = Position.restore(state, suspends=self._suspends)
        with self._replay(here) as agent:
            return await agent.acall(**self._inputs(here))

    def _position(self, run: str, inputs: Mapping[str, Any]) -> Position:
        return position.get() or Position.start(run, inputs, suspends=self._suspends)

    def _inputs(self, here: Position) -> dict[str, Any]:
        given = here.state["inputs"]
        return {**given, **_validate(self._agent.signature.input_fields, given)}

    @contextmanager
    def _replay(self, here: Position) -> Generator[Any]:
        agent = copy.copy(self._agent)
        agent.react = _Predictor(agent.react, here, agent.tools.values())
        agent.tools = {
            name: tool if name in _ENDS or tool.func in _gated else FreeTool(tool, here)
            for name, tool in agent.tools.items()
        }
        with here.activate():
            yield agent


class _Predictor(RecordedCalls):
    def __init__(self, inner: Any, here: Position, tools: Collection[Any]) -> None:
        super().__init__(inner, here)
        self._tools = list(tools)

    @contextmanager
    def step(self, arguments: dict[str, Any]) -> Generator[list[Any]]:
        if "tools" in arguments:  # an input of ReActV2, which takes DSPy's own
            arguments["tools"] = self._tools
        step, saved = self.here.next_step("predictions"), self.here.state["predictions"]
        fields: Any = self.inner.signature.output_fields
        results = [_dspy().Prediction(**_validate(fields, saved[step]))] if step in saved else []
        yield results
        saved.setdefault(step, {name: fields_of(results[0][name]) for name in fields if name in results[0]})
        thought = results[0].get("next_thought")
        self.here.words = None if thought is None else str(getattr(thought, "content", thought))


def _validate(fields: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {n: TypeAdapter(fields[n].annotation).validate_python(v) for n, v in values.items() if n in fields}


@trimmed
def gate(tool: Any, **options: Unpack[HoldOptions]) -> Any:
    """Return a `dspy.Tool` like `tool` whose calls wait for a person.

    A call waits in place, without a thread in `await tool.acall(…)` and `ReAct.acall`. In a `Resumable` it ends the run
    with `Suspended` instead. A refusal, and a person's changes and comments, become the tool's observation.

    Args:
        tool: A `dspy.Tool`, or any callable that DSPy can turn into one.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `store`, `context` and `run`, as for `sayso.hold`.

    Raises:
        TypeError: There is no such option.
        ConfigError: DSPy is not installed.

    In addition to the exceptions of `tool`, the tool raises:
        Stopped: Nothing could be asked, or the call was made before with other arguments; nothing was run.
    """
    check_options(options, "run", "context")
    inner = tool if isinstance(tool, _dspy().Tool) else _dspy().Tool(tool)
    schema = tool_calls.object_schema(inner.args, is_open=inner.has_kwargs)

    def call_of(arguments: dict[str, Any]) -> dict[str, Any]:
        here = position.get()
        key, run, words, waits = (None, None, None, None) if here is None else here.next_call()
        filled = tool_calls.options_of(options, key=key, run=run, schema=schema, description=inner.desc, words=words)
        return {"tool": inner.name, "arguments": plain(arguments), "options": filled, "waits": waits}

    def held(**arguments: Any) -> Any:
        return tool_calls.call_tool(execute=lambda approved: plain(inner(**approved)), **call_of(arguments)).returned

    async def held_async(**arguments: Any) -> Any:
        async def execute(approved: dict[str, Any]) -> Any:
            return plain(await inner.acall(**approved))

        return (await tool_calls.acall_tool(execute=execute, **call_of(arguments))).returned

    made = _tool(held, held_async, name=inner.name, desc=inner.desc, args=inner.args, is_open=inner.has_kwargs)
    _gated.add(made.func)
    return made


@trimmed
def human_in_the_loop(
    requester: human.Requester, *, name: str = "ask_human", description: str | None = None,
    expires: timedelta | str = "24h", roles: Sequence[str] = (), risk: str | None = None,
    store: Store | str | None = None,
) -> Any:  # fmt: skip
    """Return a `dspy.Tool` with one argument, `question`, that asks a person and waits for the answer.

    Call it with `await tool.acall(question=…)` in an event loop, and with `tool(question=…)` otherwise, also in a
    thread; the same applies to `ReAct.acall` and `ReAct.__call__`. Without a loop, the requester runs in a new one. If
    nobody answers, or a person refuses to, it raises `ConfirmationRejected`, whose text tells the model of a `ReAct`
    the reason and not to ask again.

    Args:
        requester: Brings each question to a person.
        name, description, expires, roles, risk, store: As for `sayso.channels.human_in_the_loop`.

    Raises:
        ConfigError: DSPy is not installed, or an option is invalid.
    """
    person = human.human_in_the_loop(
        requester, name=name, description=description, expires=expires, roles=roles, risk=risk, store=store
    )

    def ask(question: str) -> str:
        return asyncio.run(person.acall(question=question))

    return _tool(ask, person.acall, name=name, desc=person.description, args={"question": {"type": "string"}})


def _dspy() -> Any:
    return tool_calls.framework("dspy", "dspy", "DSPy")


def _tool(
    call: Callable[..., Any], acall: Callable[..., Awaitable[Any]], *, is_open: bool = False, **about: Any
) -> Any:  # fmt: skip
    """Return a `dspy.Tool` of a function for calls and one for awaited calls."""

    def function(**arguments: Any) -> Any:
        with _stopping():
            must_not_block(about["name"], "use `acall`")
            return call(**arguments)

    async def async_function(**arguments: Any) -> Any:
        with _stopping():
            return await acall(**arguments)

    class HeldTool(_dspy().Tool):
        async def acall(self, **kwargs: Any) -> Any:
            return await awaited.acall(**kwargs)

    made, awaited = HeldTool(function, **about, arg_types={}), _dspy().Tool(async_function, **about, arg_types={})
    made.has_kwargs = awaited.has_kwargs = is_open
    return made


@contextmanager
def _stopping() -> Generator[None]:
    try:
        yield
    except (ConfirmationCancelled, SaysoError) as why:
        raise Stopped(why) from why
    except ConfirmationRejected as no:
        raise as_told_to_model(no) from None  # the model reads this text
