"""What the adapters share: one call of a framework's tool is asked for, waited for, run once, and told to the model.

`acall_tool` and `call_tool` take a call through `hold`. `ToolHook` serves the hook points of frameworks: which tools
are held, and whose call it is. The module of a framework says where a call passes, how it names and runs one, and how
its model is told a result or a no. For a framework without such a point there is `sayso.integrations.functions`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import sayso
from sayso import aio, errors
from sayso.errors import ConfigError
from sayso.gates import scope
from sayso.gates.held import HeldBase
from sayso.gates.hold import HoldOptions
from sayso.gates.signals import ConfirmationRejected, ConfirmationRequired
from sayso.model.ids import is_random, new_run_id
from sayso.model.parameters import Signature
from sayso.model.request import MODEL_WORDS, State, not_run

OWN = frozenset({"schema", "key", "run", "context", "suspends", "withdraw_on_exit"})
"""The options of `hold` that an adapter fills by itself."""
_REFUSALS = (
    ConfirmationRejected, errors.ArgumentError, errors.CallFailedError, errors.EffectTakenError,
    errors.OutcomeUnknownError, errors.ValueNotKeptError,
)  # fmt: skip


@dataclass(frozen=True)
class ToolResult:
    """How a held call ended, for its model.

    Attributes:
        words: What a person changed and wrote; where the call did not run, all that there is to say.
        value: What the tool returned; None where it did not run.
        has_run: Whether it ran: here, or where the same call was made before.
    """

    words: str
    value: Any = None
    has_run: bool = True

    @property
    def text(self) -> str:
        """The result as text: a person's words first, then what the tool returned."""
        if not self.has_run:
            return self.words
        return f"{self.words}\n\n{text_of(self.value)}" if self.words else text_of(self.value)

    @property
    def returned(self) -> Any:
        """What the tool returned as it is, if nobody has anything to say about it; else `text`."""
        return self.value if self.has_run and not self.words else self.text


class ToolFunction:
    """A Python function as a tool: what `hold` needs of it, and its call with what was approved.

    Args:
        function: It has annotated parameters that have a JSON form.

    Attributes:
        name, schema, description: Of the tool; the first paragraph of the docstring describes it.
        is_async: Whether it is an async function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        from pydantic import TypeAdapter

        kind: Any = function  # pydantic calls it with validated arguments
        self._adapter, self._signature = TypeAdapter[Any](kind), Signature(function)
        self.name, self.schema = function.__name__, self._adapter.json_schema()
        self.description = (inspect.getdoc(function) or "").partition("\n\n")[0]
        self.is_async = inspect.iscoroutinefunction(function)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, as JSON values."""
        return plain(self._signature.bind(args, dict(kwargs)))

    def call(self, approved: dict[str, Any]) -> Any:
        """Call the function; the value of an async one is awaitable."""
        from pydantic_core import ArgsKwargs

        return self._adapter.validate_python(ArgsKwargs((), approved))

    async def acall(self, approved: dict[str, Any]) -> Any:
        """Call the function, a sync one in a thread."""
        return await (self.call(approved) if self.is_async else asyncio.to_thread(self.call, approved))


def text_of(value: Any) -> str:
    """Return a tool's result as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def plain(value: Any) -> Any:
    """Return a value of pydantic models, dataclasses and the like as JSON values; what has no such form as its text."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)


def fields_of(value: Any) -> Any:
    """Return a value as JSON values, models by their fields and not as they serialize themselves."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return {name: fields_of(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, list | tuple):
        return [fields_of(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: fields_of(item) for name, item in cast("dict[str, Any]", value).items()}
    return plain(value)


def is_in_loop() -> bool:
    """Return whether an event loop runs in this thread, which a wait would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_options(options: Mapping[str, Any], *more: str) -> None:
    """Refuse an option that `hold` does not have, or that the adapter fills by itself.

    Raises:
        TypeError: There is no such option; nothing was asked.
    """
    known = {*HoldOptions.__annotations__, *more} - (OWN - {*more})
    unknown = sorted(options.keys() - known)
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r} here; there are {', '.join(sorted(known))}")


def options_of(
    options: Mapping[str, Any], *, key: str | None, run: str | None, schema: Mapping[str, Any] | None,
    description: str | None = None, words: str | None = None,
) -> HoldOptions:  # fmt: skip
    """Return the options of `hold` for one call.

    Args:
        options: What the user gave to the adapter.
        key: The model's id of the call; None where the framework does not say it.
        run: Name of the conversation; None for a run that nobody can come back to.
        schema: JSON Schema of the arguments.
        description: What the tool does.
        words: What the model wrote beside its call; shown to the reviewer as unverified.
    """
    if run is None and (key is not None or scope.current().owner is not None):
        run = new_run_id()  # a key needs a run of its own; and two agents in one process share no decisions
    filled: dict[str, Any] = {"schema": schema, "key": key, "run": run, "description": description or None, **options}
    if words:
        filled["context"] = {**(filled.get("context") or {}), MODEL_WORDS: words}
    return cast("HoldOptions", filled)


def object_schema(properties: Mapping[str, Any], *, is_open: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of arguments whose own schemas are given by name; a default makes one optional."""
    required = [name for name, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": dict(properties), "required": required}
    return schema if is_open else {**schema, "additionalProperties": False}


def _refusal_result(
    tool: str, held: HeldBase | None, error: Exception, options: HoldOptions, *, is_tools_own: bool, tells_failure: bool
) -> ToolResult:  # fmt: skip
    """Return what the model is told in place of a result; raise what ends the run."""
    if is_tools_own:
        named = options.get("suspends", ())
        suspends = (named,) if isinstance(named, type) else tuple(named)
        if not tells_failure or held is None or held.request is None or isinstance(error, suspends):
            raise error
        return ToolResult(held.message_for_model(), has_run=False)
    if not isinstance(error, _REFUSALS):
        raise error
    words = "" if held is None else held.message_for_model()
    if not words or isinstance(error, errors.ValueNotKeptError | errors.EffectTakenError):
        words = f"{words} {not_run(tool, str(error), may_change=held is None)}".strip()
    return ToolResult(words, has_run=False)


async def acall_tool(
    tool: str, arguments: Mapping[str, Any], execute: Callable[[dict[str, Any]], Awaitable[Any]],
    options: HoldOptions, *, waits: Callable[[str], None] | None = None, timeout: float | None = None,  # noqa: ASYNC109
    tells_failure: bool = False,
    check: Callable[[dict[str, Any]], Awaitable[Collection[str]]] | None = None,
) -> ToolResult:  # fmt: skip
    """Hold a call, wait for its decision without a thread, run it once and return what to tell the model.

    A task that is cancelled while the call waits takes the request back.

    Args:
        tool: Name of the tool.
        arguments: As the model gave them.
        execute: Runs the tool with the approved arguments.
        options: As `options_of` returns them.
        waits: Called with the id of the request in place of waiting; it raises what ends the run. Where it returns, the
            store is asked again.
        timeout: How many seconds to wait before `ConfirmationRequired` is raised; the request stays then.
        tells_failure: Return what the model is told of a tool that raised, where a person was asked, and raise only
            what `suspends` names. For a framework that would have its model try again.
        check: Called with what a person changed, where the tool has checks that its schema cannot say; with the
            problems that it returns, the request waits for its reviewers again.

    Raises:
        ConfirmationRequired: The timeout passed.
        KeyReusedError: The model's call id was used in this run for another call.
        StoreError: The store cannot be reached; nothing was run.
        Exception: What the tool itself raised.
    """
    held: aio.Held | None = None
    raised: list[BaseException] = []

    async def run(approved: dict[str, Any]) -> Any:
        try:
            result = execute(approved)
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            raised.append(error)
            raise

    try:
        held = await _asked(tool, arguments, {"withdraw_on_exit": waits is None and timeout is None, **options})
        async with held:
            while True:
                try:
                    await _must_fit(held, check)
                    value = await held.once(run)
                    return ToolResult(held.message_for_model(), value)
                except ConfirmationRequired as signal:
                    if signal in raised or signal.id != held.id:  # of a gate inside the tool
                        raise
                    if waits is not None:
                        waits(signal.id)
                    else:
                        await held.wait(timeout)
    except Exception as error:  # noqa: BLE001  what no words are made of is raised again
        return _refusal_result(tool, held, error, options, is_tools_own=error in raised, tells_failure=tells_failure)


def call_tool(
    tool: str, arguments: Mapping[str, Any], execute: Callable[[dict[str, Any]], Any], options: HoldOptions,
    *, waits: Callable[[str], None] | None = None, tells_failure: bool = False,
) -> ToolResult:  # fmt: skip
    """Do what `acall_tool` does in a thread that may wait.

    Args:
        tool, arguments, execute, options, waits, tells_failure: As for `acall_tool`.
    """
    held: sayso.Held | None = None
    raised: list[BaseException] = []

    def run(approved: dict[str, Any]) -> Any:
        try:
            return execute(approved)
        except BaseException as error:
            raised.append(error)
            raise

    try:
        held = sayso.hold(tool, arguments, **{"withdraw_on_exit": waits is None, **options})
        with held:
            while True:
                try:
                    value = held.once(run)
                    return ToolResult(held.message_for_model(), value)
                except ConfirmationRequired as signal:
                    if signal in raised or signal.id != held.id:
                        raise
                    if waits is not None:
                        waits(signal.id)
                    else:
                        held.wait()
    except Exception as error:  # noqa: BLE001  what no words are made of is raised again
        return _refusal_result(tool, held, error, options, is_tools_own=error in raised, tells_failure=tells_failure)


async def _asked(tool: str, arguments: Mapping[str, Any], options: HoldOptions) -> aio.Held:
    try:
        return await aio.hold(tool, arguments, **options)
    except asyncio.CancelledError:
        # It may have been recorded all the same. A run without a name has withdrawn it; in one with a name, find it.
        if options.get("withdraw_on_exit") and not is_random(options.get("run") or scope.current().run_id):
            async with await aio.hold(tool, arguments, **options):
                pass
        raise


async def _must_fit(held: aio.Held, check: Callable[[dict[str, Any]], Awaitable[Collection[str]]] | None) -> None:
    """Send an edit back that the tool refuses; raise `ConfirmationRequired` for a call that waits, or waits again."""
    if check is None:
        return
    request = await held.refresh()
    if request is not None and request.state is State.APPROVED and request.edited is not None:
        problems = await check(held.arguments)
        if problems:
            await held.send_back(*problems)
            request = held.request
    if request is not None and request.state is State.PENDING:
        raise ConfirmationRequired.of(request)


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
