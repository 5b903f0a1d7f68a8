"""Suspend and resume an agent by replay, for frameworks that keep an agent's state in local variables.

The agent runs again from its start with the recorded results of its steps, so a resume repeats no model call and no
tool call. Held calls are not recorded here: their decisions and results are in the store.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Self

from sayso.errors import ConfigError
from sayso.gates.scope import checked_name
from sayso.integrations.tool_calls import plain


class Suspended(BaseException):
    """The agent stopped at a call that waits for a person. It is no `Exception`, which frameworks show to the model.

    Attributes:
        id: The id of the pending request.
        state: The JSON state for resuming the agent, with the model's output and the results of ungated tools.
    """

    def __init__(self, id: str, state: dict[str, Any]) -> None:  # noqa: A002  the field's name
        super().__init__(f"{id} waits for a person; decide it, then resume the agent from `.state`")
        self.id = id
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return Suspended, (self.id, self.state)


class Position:
    """How far the run of an agent is, and what its state records.

    Args:
        state: JSON values: the agent's `run` and `inputs`, and its recorded `predictions` and `results` by step.
        suspends: Whether a call that waits suspends the agent.

    Attributes:
        words: What the model wrote with its latest calls.
    """

    def __init__(self, state: dict[str, Any], *, suspends: bool, prefix: str = "") -> None:
        self.state, self.suspends, self._prefix = state, suspends, prefix
        self.words: str | None = None
        self._counts = Counter[str]()

    @classmethod
    def start(cls, run: str, inputs: Mapping[str, Any], *, suspends: bool) -> Self:
        """Return the start of a run, with inputs that have a JSON form."""
        state: dict[str, Any] = {
            "version": 1, "run": checked_name(run), "inputs": plain(inputs), "predictions": {}, "results": {},
        }  # fmt: skip
        return cls(state, suspends=suspends)

    @classmethod
    def restore(cls, state: Mapping[str, Any], *, suspends: bool) -> Self:
        """Return the start of a replay from `Suspended.state`.

        Raises:
            ConfigError: It is not such a state, or of another version.
        """
        if not isinstance(state, Mapping) or state.get("version") != 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("resume takes what Suspended.state was, of this version of sayso")
        return cls(copy.deepcopy(dict(state)), suspends=suspends)

    def next_step(self, kind: Literal["predictions", "results"]) -> str:
        """Return the name of the next step, the same in each replay."""
        self._counts[kind] += 1
        return f"{self._prefix}{self._counts[kind]}"

    def next_call(self) -> tuple[str, str, str | None, Callable[[str], None] | None]:
        """Return the key and run of the next held call, the model's words, and a function that suspends the agent."""
        key = f"call-{self.next_step('results')}"
        return key, self.state["run"], self.words, self.suspend if self.suspends else None

    def inside(self, step: str) -> Position:
        """Return the position at the start of a step, for an agent that runs inside it."""
        return Position(self.state, suspends=self.suspends, prefix=f"{step}.")

    @contextmanager
    def activate(self) -> Generator[None]:
        """Make this the `position` of the code in a block."""
        token = position.set(self)
        try:
            yield
        finally:
            position.reset(token)

    def suspend(self, request_id: str) -> None:
        """Raise `Suspended` with a copy of the state."""
        raise Suspended(request_id, copy.deepcopy(self.state))


position: ContextVar[Position | None] = ContextVar("sayso_replay_position", default=None)
"""The position of the current code in an agent's run; None outside one."""


class RecordedCalls:
    """A part of an agent whose calls are made once in a run; a replay takes their results from the state."""

    def __init__(self, inner: Any, here: Position) -> None:
        self.inner, self.here = inner, here

    def __call__(self, **arguments: Any) -> Any:
        """Make the call, or return its recorded result."""
        with self.step(arguments) as results:
            if not results:
                results.append(self.inner(**arguments))
        return results[0]

    async def acall(self, **arguments: Any) -> Any:
        """Do the same as a call without blocking the event loop."""
        with self.step(arguments) as results:
            if not results:
                results.append(await self.inner.acall(**arguments))
        return results[0]

    @contextmanager
    def step(self, arguments: dict[str, Any]) -> Generator[list[Any]]:
        """Yield a list of the recorded result; if it is empty, the block makes the call and adds its result."""
        raise NotImplementedError


class FreeTool(RecordedCalls):
    """A tool that is not held."""

    @contextmanager
    def step(self, arguments: dict[str, Any]) -> Generator[list[Any]]:  # noqa: ARG002  as in `RecordedCalls`
        """Record a result or an error; an agent inside the tool belongs to the same run."""
        step, saved = self.here.next_step("results"), self.here.state["results"]
        if step in saved:
            if "error" in saved[step]:
                raise RuntimeError(saved[step]["error"])
            yield [saved[step]["value"]]
            return
        results = list[Any]()
        with self.here.inside(step).activate():
            try:
                yield results
                saved[step] = {"value": plain(results[0])}
            except Exception as error:
                saved[step] = {"error": f"{type(error).__name__}: {error}"}
                raise
