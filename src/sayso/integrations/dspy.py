"""Sayso in DSPy: tools that wait for a person, a person as a tool, and agents that suspend and resume (extra `dspy`).

`dspy.ReAct` shows every `Exception` of a tool to the model and continues. This is right for a person who does not
answer, but not for a run that a person ends, a question that could not be stored, or a call that cannot be made: these
raise `Stopped`, which is not an `Exception`. Invariant: no model continues as if a person had answered.

`Resumable` suspends an agent at a call that waits, and resumes it by replay, in any process. The state of a
`dspy.ReAct` is in local variables of its `forward`, so that runs again from the start with the recorded predictions and
tool results: a resume repeats no model call, no tool call, and no question to a person.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Literal, Unpack
from weakref import WeakSet

from pydantic import TypeAdapter

from sayso.channels.human import HumanInputRequest, Requester, carried
from sayso.errors import ConfigError, SaysoError
from sayso.gates.hold import HoldOptions
from sayso.gates.scope import checked_name
from sayso.gates.signals import ConfirmationCancelled, ConfirmationRejected, as_told_to_model, trimmed
from sayso.integrations.tool_calls import (
    acall_tool,
    call_tool,
    check_options,
    fields_of,
    framework,
    is_in_loop,
    object_schema,
    options_of,
    plain,
)  # fmt: skip
from sayso.stores.base import Store

__all__ = [
    "Resumable", "Stopped", "Suspended", "gate", "human_in_the_loop",
]  # fmt: skip

GATED: WeakSet[Callable[..., Any]] = WeakSet()  # the functions of gated tools
_ENDS = {"finish", "submit"}  # tools with which an agent ends; they have no effect


class Suspended(BaseException):
    """The agent stopped at a call that waits for a person. It is no `Exception`, or DSPy would show it to the model.

    Attributes:
        id: The id of the pending request.
        state: The JSON state for `Resumable.resume`, with the model's output and the results of ungated tools.
    """

    def __init__(self, id: str, state: dict[str, Any]) -> None:  # noqa: A002  the field's name
        super().__init__(f"{id} waits for a person; decide it, then resume the agent from `.state`")
        self.id = id
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return Suspended, (self.id, self.state)


class _Place:
    """The position in an agent's run: the number of steps so far, and the recorded data of the next one."""

    def __init__(self, state: dict[str, Any], *, suspends: bool, prefix: str = "") -> None:
        self._state, self._suspends, self._prefix = state, suspends, prefix
        self._models = self._tools = 0
        self.predictions: dict[str, Any] = state["predictions"]
        self.results: dict[str, Any] = state["results"]
        self.words: str | None = None

    def next_prediction(self) -> str:
        self._models += 1
        return f"{self._prefix}{self._models}"

    def next_tool(self) -> str:
        self._tools += 1
        return f"{self._prefix}{self._tools}"

    def inside(self, step: str) -> _Place:
        return _Place(self._state, suspends=self._suspends, prefix=f"{step}.")

    def call(self) -> tuple[str, str, str | None, Callable[[str], None] | None]:
        """Return the key and run of the call at this position, the model's words, and a function that suspends it."""
        return f"call-{self.next_tool()}", self._state["run"], self.words, self._suspend if self._suspends else None

    def _suspend(self, request_id: str) -> None:
        raise Suspended(request_id, copy.deepcopy(self._state))


place: ContextVar[_Place | None] = ContextVar("sayso_dspy_place", default=None)
"""The position of the current code in a `Resumable`; None outside one."""


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
        if wait not in {"suspend", "block"}:
            raise ConfigError(f"wait= takes 'suspend' or 'block', not {wait!r}")
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
        return self._run(self._begun(run, inputs), inputs)

    async def acall(self, run: str, /, **inputs: Any) -> Any:
        """Call the agent without blocking the event loop."""
        return await self._arun(self._begun(run, inputs), inputs)

    def resume(self, state: Mapping[str, Any]) -> Any:
        """Continue from `Suspended.state`. It can be called early, late or repeatedly: nothing is asked or run twice.

        Raises:
            Suspended: The call still waits, or a later one does.
        """
        return self._run(*self._opened(state))

    async def aresume(self, state: Mapping[str, Any]) -> Any:
        """Do the same as `resume` without blocking the event loop."""
        return await self._arun(*self._opened(state))

    def _begun(self, run: str, inputs: Mapping[str, Any]) -> _Place:
        outer = place.get()
        if outer is not None:
            return outer
        state: dict[str, Any] = {
            "version": 1,
            "run": checked_name(run),
            "inputs": plain(inputs),
            "predictions": {},
            "results": {},
        }
        return _Place(state, suspends=self._suspends)

    def _opened(self, state: Mapping[str, Any]) -> tuple[_Place, dict[str, Any]]:
        if not isinstance(state, Mapping) or state.get("version") != 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("resume takes what Suspended.state was, of this version of sayso")
        fields, saved = self._agent.signature.input_fields, copy.deepcopy(dict(state))
        inputs = {
            n: TypeAdapter(fields[n].annotation).validate_python(v) if n in fields else v
            for n, v in saved["inputs"].items()
        }
        return _Place(saved, suspends=self._suspends), inputs

    def _run(self, here: _Place, inputs: Mapping[str, Any]) -> Any:
        token = place.set(here)
        try:
            return self._replaying(here)(**inputs)
        finally:
            place.reset(token)

    async def _arun(self, here: _Place, inputs: Mapping[str, Any]) -> Any:
        token = place.set(here)
        try:
            return await self._replaying(here).acall(**inputs)
        finally:
            place.reset(token)

    def _replaying(self, here: _Place) -> Any:
        agent = copy.copy(self._agent)
        agent.react = _Model(self._agent, here)
        agent.tools = {
            name: tool if name in _ENDS or tool.func in GATED else _FreeTool(tool, here)
            for name, tool in self._agent.tools.items()
        }
        return agent


class _Model:
    """Wraps the agent's predictor so that each prediction is made once in a run."""

    def __init__(self, agent: Any, here: _Place) -> None:
        self._module, self._tools, self._here = agent.react, list(agent.tools.values()), here

    def __call__(self, **inputs: Any) -> Any:
        step = self._here.next_prediction()
        return self._known(step) or self._made(step, self._module(**self._given(inputs)))

    async def acall(self, **inputs: Any) -> Any:
        step = self._here.next_prediction()
        return self._known(step) or self._made(step, await self._module.acall(**self._given(inputs)))

    def _given(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {**inputs, "tools": self._tools} if "tools" in inputs else inputs  # an input field of ReActV2

    def _known(self, step: str) -> Any:
        saved = self._here.predictions.get(step)
        if saved is None:
            return None
        prediction: Any = importlib.import_module("dspy").Prediction
        fields = self._module.signature.output_fields
        return self._noted(
            prediction(**{n: TypeAdapter(fields[n].annotation).validate_python(v) for n, v in saved.items()})
        )

    def _made(self, step: str, prediction: Any) -> Any:
        fields = self._module.signature.output_fields
        self._here.predictions[step] = {n: fields_of(prediction[n]) for n in fields if n in prediction}
        return self._noted(prediction)

    def _noted(self, prediction: Any) -> Any:
        thought = prediction.get("next_thought")
        self._here.words = None if thought is None else str(getattr(thought, "content", thought))
        return prediction


class _FreeTool:
    """An ungated tool whose call runs once in a run; later replays take its result from the state."""

    def __init__(self, tool: Any, here: _Place) -> None:
        self._tool, self._here = tool, here

    def __call__(self, **arguments: Any) -> Any:
        step = self._here.next_tool()
        if step not in self._here.results:
            with self._recording(step) as result:
                result["value"] = self._tool(**arguments)
            return result["value"]
        return self._known(step)

    async def acall(self, **arguments: Any) -> Any:
        step = self._here.next_tool()
        if step not in self._here.results:
            with self._recording(step) as result:
                result["value"] = await self._tool.acall(**arguments)
            return result["value"]
        return self._known(step)

    @contextmanager
    def _recording(self, step: str) -> Generator[dict[str, Any]]:
        result: dict[str, Any] = {}
        token = place.set(self._here.inside(step))
        try:
            yield result
            self._here.results[step] = plain(result)
        except Exception as error:
            self._here.results[step] = {"error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            place.reset(token)

    def _known(self, step: str) -> Any:
        saved = self._here.results[step]
        if "error" in saved:
            raise RuntimeError(saved["error"])
        return saved["value"]


_is_awaited: ContextVar[bool] = ContextVar("sayso_dspy_is_awaited", default=False)


class Stopped(BaseException):
    """The program must stop here, instead of reporting the error to the model.

    Attributes:
        why: `ConfirmationCancelled` if a person ended the run, or a `SaysoError` if nothing could be asked.
    """

    def __init__(self, why: ConfirmationCancelled | SaysoError) -> None:
        super().__init__(str(why))
        self.why = why


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
    kind = _tool_class()
    inner = tool if isinstance(tool, kind.__base__) else kind.__base__(tool)
    schema = object_schema(inner.args, is_open=inner.has_kwargs)

    def gated(**arguments: Any) -> Any:
        is_awaited = _is_awaited.get()
        _is_awaited.set(False)
        if not is_awaited and is_in_loop():
            raise Stopped(ConfigError(f"{inner.name} was called without await in an event loop; use `acall`"))
        here = place.get()
        key, run, words, waits = (None, None, None, None) if here is None else here.call()
        filled = options_of(options, key=key, run=run, schema=schema, description=inner.desc, words=words)
        given = plain(arguments)
        return (_held_async if is_awaited else _held)(inner, given, filled, waits)

    made = kind(gated, name=inner.name, desc=inner.desc, args=inner.args, arg_types={})
    made.has_kwargs = inner.has_kwargs
    GATED.add(made.func)
    return made


def _held(inner: Any, given: dict[str, Any], filled: HoldOptions, waits: Any) -> Any:
    try:
        return call_tool(inner.name, given, lambda approved: plain(inner(**approved)), filled, waits=waits).returned
    except SaysoError as why:
        raise Stopped(why) from why


async def _held_async(inner: Any, given: dict[str, Any], filled: HoldOptions, waits: Any) -> Any:
    async def execute(approved: dict[str, Any]) -> Any:
        return plain(await inner.acall(**approved))

    try:
        return (await acall_tool(inner.name, given, execute, filled, waits=waits)).returned
    except SaysoError as why:
        raise Stopped(why) from why


@trimmed
def human_in_the_loop(
    requester: Requester, *, name: str = "ask_human", description: str | None = None, expires: timedelta | str = "24h",
    roles: Sequence[str] = (), risk: str | None = None, store: Store | str | None = None,
) -> Any:  # fmt: skip
    """Return a `dspy.Tool` with one argument, `question`, that asks a person and waits for the answer.

    Call it with `await tool.acall(question=…)` in an event loop, and with `tool(question=…)` otherwise, also in a
    thread; the same applies to `ReAct.acall` and `ReAct.__call__`. Without a loop, the requester runs in a new one. If
    nobody answers, or a person refuses to, it raises `ConfirmationRejected`, whose text tells the model of a `ReAct`
    the reason and not to ask again.

    Args:
        requester: Brings each question to a person.
        name, description: The tool's name and description for the model.
        expires, roles, risk, store: As for `sayso.channels.HumanInputRequest`.

    Raises:
        ConfigError: DSPy is not installed.
    """

    def ask_human(question: str) -> Any:
        """Ask a person a question and wait for the answer."""
        is_awaited = _is_awaited.get()
        _is_awaited.set(False)
        if not is_awaited and is_in_loop():
            raise Stopped(ConfigError(f"{name} was called without await in an event loop; use `acall`"))
        request = HumanInputRequest(question, expires=expires, roles=roles, risk=risk, store=store)
        answer = _answered(request, requester)
        return answer if is_awaited else asyncio.run(answer)

    return _tool_class()(ask_human, name=name, desc=description)


async def _answered(request: HumanInputRequest, requester: Requester) -> str:
    try:
        return await carried(request, requester)
    except (ConfirmationCancelled, SaysoError) as why:
        raise Stopped(why) from why
    except ConfirmationRejected as no:
        raise as_told_to_model(no) from None  # the model reads this text


def _tool_class() -> Any:
    plain: Any = framework("dspy", "dspy", "DSPy").Tool

    class HumanTool(plain):
        """A tool that can tell whether it is awaited."""

        async def acall(self, **kwargs: Any) -> Any:
            token = _is_awaited.set(True)
            try:
                return await plain.acall(self, **kwargs)
            finally:
                _is_awaited.reset(token)

    return HumanTool
