"""Sayso in DSPy: a tool that waits for a person, and a person as a tool (extra `dspy`).

`dspy.ReAct` takes every `Exception` of a tool for something that the model should read, and goes on. A person who
does not answer is that. A run that a person ends, a question that could not be kept and a call that cannot be made are
not: they leave as `Stopped`, which is none. Invariant: no model goes on as if it had been answered. `Resumable`, which
suspends and resumes an agent, is in `dspy_react`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Unpack

from sayso.channels.human import HumanInputRequest, Requester, carried
from sayso.errors import ConfigError, SaysoError
from sayso.gates.hold import HoldOptions
from sayso.gates.signals import ConfirmationCancelled, ConfirmationRejected, as_told_to_model, trimmed
from sayso.integrations.dspy_react import GATED, Resumable, Suspended, place
from sayso.integrations.tool_calls import (
    acall_tool,
    call_tool,
    check_options,
    is_in_loop,
    object_schema,
    options_of,
    plain,
)  # fmt: skip
from sayso.integrations.tool_hooks import framework
from sayso.stores.base import Store

__all__ = ["Resumable", "Stopped", "Suspended", "gate", "human_in_the_loop"]

_is_awaited: ContextVar[bool] = ContextVar("sayso_dspy_is_awaited", default=False)


class Stopped(BaseException):
    """The program is to end here, and no model is to be told instead.

    Attributes:
        why: `ConfirmationCancelled`, where a person ended the run; a `SaysoError`, where nothing could be asked.
    """

    def __init__(self, why: ConfirmationCancelled | SaysoError) -> None:
        super().__init__(str(why))
        self.why = why


@trimmed
def gate(tool: Any, **options: Unpack[HoldOptions]) -> Any:
    """Return a `dspy.Tool` like `tool` whose calls wait for a person.

    It waits where it is called, in `await tool.acall(…)` and `ReAct.acall` without a thread. In a `Resumable` it ends
    the run with `Suspended` instead. A no, and what a person changed and wrote, is the tool's observation.

    Args:
        tool: A `dspy.Tool`, or any callable that DSPy makes one of.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `store`, `context` and `run`, as for `sayso.hold`.

    Raises:
        TypeError: There is no such option.
        ConfigError: DSPy is not installed.

    The tool raises what `tool` does, and beside it:
        Stopped: Nothing could be asked, or the call was made with other arguments before; nothing was run.
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

    Call it with `await tool.acall(question=…)` in a loop, and with `tool(question=…)` where there is none, also in a
    thread; the same holds for `ReAct.acall` and `ReAct.__call__`. Without a loop, the requester runs in one of its own.
    Where nobody answers, or a person would not, it raises `ConfirmationRejected`, whose text tells the model of a
    `ReAct` why, and not to ask again.

    Args:
        requester: Carries each question to a person.
        name, description: What the model sees.
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
        raise as_told_to_model(no) from None  # a model reads what is left of it


def _tool_class() -> Any:
    plain: Any = framework("dspy", "dspy", "DSPy").Tool

    class HumanTool(plain):
        """A tool that knows whether it is awaited."""

        async def acall(self, **kwargs: Any) -> Any:
            token = _is_awaited.set(True)
            try:
                return await plain.acall(self, **kwargs)
            finally:
                _is_awaited.reset(token)

    return HumanTool
