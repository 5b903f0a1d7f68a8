"""What the hook points of frameworks share: which tools are held, how a call is asked for, and whose call it is.

The module of a framework says where a call passes and how the model is told its result. For a framework without such a
point there is `sayso.integrations.functions`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sayso.errors import ConfigError
from sayso.gates import scope
from sayso.gates.hold import HoldOptions
from sayso.integrations.tool_calls import ToolResult, acall_tool, call_tool, check_options, options_of, plain


def framework(module: str, extra: str, title: str) -> Any:
    """Import a framework's module, or say what to install.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f'{title} is not installed: pip install "sayso[{extra}]"') from error


class ToolFailed(Exception):
    """A framework made a result of what the tool raised."""


class Call(NamedTuple):
    """A model's call of a tool.

    Attributes:
        name: The tool.
        arguments: What it would run with.
        id: The model's id of the call, by which a replay finds it; None where the framework does not say it.
        conversation: What the framework calls the conversation or session.
        schema: JSON Schema of the arguments.
        description: What the tool does.
        words: What the model wrote beside the call.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None
    conversation: str | None = None
    schema: Mapping[str, Any] | None = None
    description: str | None = None
    words: str = ""


class ToolHook:
    """Holds the calls of some tools, or of all, wherever a framework lets them pass.

    Args:
        tools: Names or patterns (`refund*`) of the tools to hold, as the model sees them; all of them when None.
        options: `when`, `effect`, `quorum` and so on, as for `sayso.hold`, but for what a call fills in by itself.
        suspends: What a tool raises to hand control to its framework: it is passed on, and is no failure.

    Raises:
        ConfigError: `tools` is no list of names.
        TypeError: There is no such option.
    """

    def __init__(
        self, tools: Collection[str] | None, options: HoldOptions, *, suspends: tuple[type[BaseException], ...] = ()
    ) -> None:
        if isinstance(tools, str):
            raise ConfigError(f"tools= takes a list of names or patterns, not {tools!r}")
        check_options(options, "run", "context")
        self._tools, self._options = None if tools is None else tuple(tools), options
        self._suspends = suspends

    def holds(self, name: str, known: Iterable[str] = ()) -> bool:
        """Say whether the calls of a tool are held.

        Raises:
            ConfigError: Of the `known` tools none has a name that is to be held: a misspelt one would hold nothing.
        """
        names = frozenset(known)
        for pattern in (self._tools or ()) if names else ():
            if not any(fnmatchcase(each, pattern) for each in names):
                raise ConfigError(f"there is no tool {pattern!r} to hold, only {', '.join(sorted(names))}")
        return self._tools is None or any(fnmatchcase(name, pattern) for pattern in self._tools)

    async def acall(self, call: Call, execute: Callable[[dict[str, Any]], Awaitable[Any]]) -> ToolResult:
        """Hold a call without a thread, and run it once it is approved; see `acall_tool`."""
        given = plain(call.arguments)
        run = _with_originals(call, given, execute)
        return await acall_tool(call.name, given, run, self._filled(call), tells_failure=True)

    def call(self, call: Call, execute: Callable[[dict[str, Any]], Any]) -> ToolResult:
        """Hold a call in a thread that may wait."""
        given = plain(call.arguments)
        run = _with_originals(call, given, execute)
        return call_tool(call.name, given, run, self._filled(call), tells_failure=True)

    def _filled(self, call: Call) -> HoldOptions:
        current = scope.current()
        run = call.conversation or None if current.owner is not None else current.run_id  # a named run comes first
        options: HoldOptions = {**self._options, "suspends": self._suspends}
        return options_of(
            options, key=call.id or None, run=run, schema=call.schema, description=call.description, words=call.words
        )


def _with_originals(call: Call, given: Any, execute: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """Run a call that nobody changed with the framework's own values, which JSON may not give back as they are."""

    def run(approved: dict[str, Any]) -> Any:
        return execute(dict(call.arguments) if approved == given else approved)

    return run


class PendingCalls:
    """Finds the model's id of a call where a framework tells a tool only its arguments.

    The framework shows the message whose calls it runs; a call takes the first id that its tool and arguments have and
    that no other call has taken. Which of two equal calls has which id makes no difference.
    """

    def __init__(self) -> None:
        self._left = ContextVar[list[tuple[str, str, Mapping[str, Any]]]]("sayso_pending")
        self._words = ContextVar[str]("sayso_words", default="")

    def show(self, calls: Iterable[tuple[str, str, Mapping[str, Any]]], words: str = "") -> None:
        """Take note of the calls of a message (id, tool and arguments), for this task and those that it starts."""
        self._left.set(list(calls))
        self._words.set(words)

    def take(self, name: str, arguments: Mapping[str, Any]) -> tuple[str | None, str]:
        """Return the id of a call and the words of its message; None where no message has such a call."""
        left = self._left.get([])
        for each in left:
            if each[1] == name and each[2] == arguments:
                left.remove(each)
                return each[0], self._words.get()
        return None, ""
