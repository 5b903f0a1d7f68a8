"""Shared code of the adapters: ask for a framework's tool call, wait, run it once, and report to the model.

`acall_tool` and `call_tool` run a call through `hold`. `ToolHook` serves the hook points of frameworks and determines
which tools are held, and for whom. A framework's module defines where its calls pass, how it names and runs them, and
how its model receives a result or a refusal. `sayso.integrations.functions` is for frameworks without a hook point.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import json
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, cast

import sayso
from sayso import aio, clock, config, errors
from sayso.effects import UserCall, in_thread, offload, shielded
from sayso.errors import ConfigError
from sayso.gates import scope
from sayso.gates.exceptions import ConfirmationRejected, ConfirmationRequired
from sayso.gates.gate import HoldOptions
from sayso.gates.held import HeldBase
from sayso.integrations.shown import is_shown, must_be_shown, plain
from sayso.model import canonical
from sayso.model.ids import is_random, new_run_id
from sayso.model.parameters import Signature
from sayso.model.request import MODEL_WORDS, Request, State, not_run
from sayso.model.text import is_plain_name

OWN = frozenset({"schema", "key", "run", "context", "suspends", "withdraw_on_exit"})
"""The options of `hold` that an adapter sets itself."""
_REFUSALS = (
    ConfirmationRejected, errors.ArgumentError, errors.CallFailedError, errors.EffectTakenError,
    errors.OutcomeUnknownError, errors.ValueNotKeptError,
)  # fmt: skip


@dataclass(frozen=True)
class ToolResult:
    """The result of a held call, for its model.

    Attributes:
        words: A person's changes and comments; if the call did not run, the whole message.
        value: The value that the tool returned; None if it did not run.
        has_run: Whether it ran, here or when the same call was made before.
    """

    words: str
    value: Any = None
    has_run: bool = True

    @property
    def text(self) -> str:
        """The result as text: a person's words first, then the tool's value."""
        if not self.has_run:
            return self.words
        return f"{self.words}\n\n{text_of(self.value)}" if self.words else text_of(self.value)

    @property
    def returned(self) -> Any:
        """The tool's value, or `text` if a person has changed or written something."""
        return self.value if self.has_run and not self.words else self.text


class ToolFunction:
    """A Python function as a tool: its data for `hold`, and its call with approved arguments.

    Args:
        function: A function with annotated parameters that have a JSON form.

    Attributes:
        name, schema, description: The tool's; the description is the first paragraph of the docstring.
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
        """Call the function; an async one returns an awaitable."""
        from pydantic_core import ArgsKwargs

        return self._adapter.validate_python(ArgsKwargs((), approved))

    async def acall(self, approved: dict[str, Any]) -> Any:
        """Call the function; a sync one runs in a thread."""
        if self.is_async:
            return await self.call(approved)
        return (await in_thread(UserCall(scope.in_this_run(self.call), (approved,), {}))).unwrap()


def text_of(value: Any) -> str:
    """Return a tool's result as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def fields_of(value: Any) -> Any:
    """Convert a value to JSON values; models become their fields, without their custom serialization."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return {name: fields_of(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, list | tuple):
        return [fields_of(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: fields_of(item) for name, item in cast("dict[str, Any]", value).items()}
    return plain(value)


def must_not_block(tool: str, instead: str) -> None:
    """Refuse to wait for a person in the thread of an event loop.

    Raises:
        ConfigError: An event loop runs in this thread; nothing was asked.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(f"{tool} waits for a person and was called without await in an event loop; {instead}")


def check_wait(wait: str, *ways: str) -> None:
    """Raise `ConfigError` if `wait` is none of the ways in which an adapter can wait."""
    if wait not in ways:
        raise ConfigError(f"wait= takes {', '.join(map(repr, ways[:-1]))} or {ways[-1]!r}, not {wait!r}")


def check_options(options: Mapping[str, Any], *more: str) -> None:
    """Refuse an option that `hold` does not have, or that the adapter sets itself.

    Raises:
        TypeError: `options` has such an option; nothing was asked.
    """
    known = {*HoldOptions.__annotations__, *more} - (OWN - {*more})
    unknown = sorted(options.keys() - known)
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r}; the options are {', '.join(sorted(known))}")


def options_of(
    options: Mapping[str, Any], *, key: str | None, run: str | None, schema: Mapping[str, Any] | None,
    description: str | None = None, words: str | None = None,
) -> HoldOptions:  # fmt: skip
    """Return the options of `hold` for one call.

    Args:
        options: The options that the user gave to the adapter.
        key: The model's id of the call; None if the framework does not provide it. An id that no key can be, e.g. of
            more than 200 characters, is replaced by its digest.
        run: The name of the conversation; None for the enclosing run or, without one, a run that cannot be resumed.
        schema: The JSON Schema of the arguments.
        description: The tool's description.
        words: The model's text next to the call; reviewers see it marked as unverified.
    """
    if run is None and scope.current().owner is not None:
        run = new_run_id()  # a key needs a run with an id, and two agents in one process must not share decisions
    if key and not is_plain_name(key):  # LiteLLM appends a signature of kilobytes to the ids of some models
        key = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    filled: dict[str, Any] = {"schema": schema, "key": key, "run": run, "description": description or None, **options}
    if words:
        filled["context"] = {**(filled.get("context") or {}), MODEL_WORDS: words}
    return cast("HoldOptions", filled)


def object_schema(properties: Mapping[str, Any], *, is_open: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of arguments from their schemas by name; an argument with a default is optional."""
    required = [name for name, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": dict(properties), "required": required}
    return schema if is_open else {**schema, "additionalProperties": False}


def _refusal_result(
    tool: str, held: HeldBase | None, error: Exception, options: HoldOptions, *, is_tools_own: bool, tells_failure: bool
) -> ToolResult:  # fmt: skip
    """Return the message for the model instead of a result, or raise the error if it must end the run."""
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
        reason = error.reason if isinstance(error, errors.EffectTakenError) else str(error)
        words = f"{words} {not_run(tool, reason, may_change=held is None)}".strip()
    return ToolResult(words, has_run=False)


async def acall_tool(
    tool: str, arguments: Mapping[str, Any], execute: Callable[[dict[str, Any]], Awaitable[Any]],
    options: HoldOptions, *, waits: Callable[[str], None] | None = None, timeout: float | None = None,  # noqa: ASYNC109
    tells_failure: bool = False,
    check: Callable[[dict[str, Any]], Awaitable[Collection[str]]] | None = None, originals: Any = None,
) -> ToolResult:  # fmt: skip
    """Hold a call, wait for its decision without a thread, run it once and return the result for the model.

    Cancelling the task while the call waits withdraws the request.

    Args:
        tool: The name of the tool.
        arguments: The arguments from the model.
        execute: Runs the tool with the approved arguments.
        options: Options from `options_of`.
        waits: Called with the request's id instead of waiting; it raises an exception that ends the run. If it returns,
            the store is read again.
        timeout: The seconds to wait before raising `ConfirmationRequired`; the request then stays pending.
        tells_failure: If a person was asked, return a message for the model when the tool raises, and raise only the
            exceptions in `suspends`. It is for frameworks whose model would otherwise retry.
        check: Called with a person's changes, for checks that the tool's schema cannot express. If it returns problems,
            the request goes back to its reviewers.
        originals: The values that `arguments` were converted from, if the tool gets them unless a person changes the
            call. The call is refused if `arguments` leave out or change a part of them.

    Raises:
        ConfirmationRequired: The timeout has passed.
        KeyReusedError: The model's call id was used in this run for another call.
        StoreError: The store cannot be reached; nothing was run.
        Exception: The tool raised this exception.
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
        if originals is not None:
            must_be_shown(originals, arguments)
        held = await ask_call(tool, arguments, {"withdraw_on_exit": waits is None and timeout is None, **options})
        async with held:
            while True:
                try:
                    await _check_edit(held, check)
                    value = await held.once(run)
                    return ToolResult(held.message_for_model(), value)
                except ConfirmationRequired as signal:
                    if signal in raised or signal.id != held.id:  # raised by a gate inside the tool
                        raise
                    if waits is not None:
                        waits(signal.id)
                    else:
                        await held.wait(timeout)
    except Exception as error:  # noqa: BLE001  re-raised unless it becomes a message
        result = _refusal_result(tool, held, error, options, is_tools_own=error in raised, tells_failure=tells_failure)
        if isinstance(error, errors.EffectTakenError) and held is not None and error.request_id == held.id:
            await held.withdraw(error.reason)  # open, it would keep later requests from the effect
        return result


def call_tool(
    tool: str, arguments: Mapping[str, Any], execute: Callable[[dict[str, Any]], Any], options: HoldOptions,
    *, waits: Callable[[str], None] | None = None, tells_failure: bool = False, originals: Any = None,
) -> ToolResult:  # fmt: skip
    """Do the same as `acall_tool`, blocking the current thread while it waits.

    Args:
        tool, arguments, execute, options, waits, tells_failure, originals: As for `acall_tool`.
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
        if originals is not None:
            must_be_shown(originals, arguments)
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
    except Exception as error:  # noqa: BLE001  re-raised unless it becomes a message
        result = _refusal_result(tool, held, error, options, is_tools_own=error in raised, tells_failure=tells_failure)
        if isinstance(error, errors.EffectTakenError) and held is not None and error.request_id == held.id:
            held.withdraw(error.reason)  # open, it would keep later requests from the effect
        return result


async def ask_call(tool: str, arguments: Mapping[str, Any], options: HoldOptions) -> aio.Held:
    """Hold a call; with `withdraw_on_exit`, withdraw it if the task is cancelled while it is recorded."""
    try:
        return await aio.hold(tool, arguments, **options)
    except asyncio.CancelledError:
        # It may have been recorded anyway. A run without a name has withdrawn it; in a named run, find and withdraw it.
        if options.get("withdraw_on_exit") and not is_random(options.get("run") or scope.current().run_id):
            await shielded(_withdraw_call(tool, arguments, options))
        raise


async def _withdraw_call(tool: str, arguments: Mapping[str, Any], options: HoldOptions) -> None:
    async with await aio.hold(tool, arguments, **options):
        pass


async def start_call(held: aio.Held) -> dict[str, Any]:
    """Start an approved call that its framework runs, and return the arguments.

    Raises:
        SaysoError: It cannot start. If that is because its effect is taken, it is withdrawn: open, it would keep later
            requests from the effect.
    """
    try:
        return await held.start()
    except errors.EffectTakenError as taken:
        await held.withdraw(taken.reason)
        raise errors.SaysoError(taken.reason) from taken


async def _check_edit(held: aio.Held, check: Callable[[dict[str, Any]], Awaitable[Collection[str]]] | None) -> None:
    """Send back an edit that the tool refuses; raise `ConfirmationRequired` if the call waits or waits again."""
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
    """Import a framework's module.

    Raises:
        ConfigError: It is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f'{title} is not installed: pip install "sayso[{extra}]"') from error


class ToolFailed(Exception):
    """The framework turned an exception of the tool into a result."""


class Call(NamedTuple):
    """A model's call of a tool.

    Attributes:
        name: The name of the tool.
        arguments: The arguments of the call.
        id: The model's id of the call, with which a replay finds it; None if the framework does not provide it.
        conversation: The framework's id of the conversation or session.
        schema: The JSON Schema of the arguments.
        description: The tool's description.
        words: The model's text next to the call.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None
    conversation: str | None = None
    schema: Mapping[str, Any] | None = None
    description: str | None = None
    words: str = ""


ListNames = Callable[[], Awaitable[tuple[Collection[str], Collection[str], bool]]]


class HeldTools:
    """The tools that an adapter holds.

    Args:
        tools: Names or patterns (`refund*`) of the tools to hold, as the model sees them; None for all.

    Raises:
        ConfigError: `tools` is not a list of names.
    """

    def __init__(self, tools: Collection[str] | None) -> None:
        if isinstance(tools, str):
            raise ConfigError(f"tools= takes a list of names or patterns, not {tools!r}")
        self.names = None if tools is None else tuple(tools)
        self._warned, self._matched = set[str](), set[str]()

    def unmatched(self, known: Collection[str]) -> list[str]:
        """Return the patterns that match none of the `known` tools, because they may be misspelt."""
        return [each for each in self.names or () if not any(fnmatchcase(name, each) for name in known)]

    def check(self, known: Collection[str]) -> None:
        """Raise `ConfigError` if a pattern matches none of the `known` tools."""
        for pattern in self.unmatched(known):
            raise ConfigError(f"there is no tool {pattern!r} to hold, only {', '.join(sorted(known))}")

    def holds(self, name: str, known: Iterable[str] = (), *, or_more: bool = False) -> bool:
        """Return whether the calls of a tool are held; check the names if the framework says which tools there are.

        With `or_more`, there may be tools that the framework has not told yet. A pattern that matches no known tool is
        then warned about, once, and a call is refused only if it may be the one that was meant.

        Raises:
            ConfigError: A pattern seems to be misspelt; nothing was asked or run.
        """
        names = frozenset(known)
        unmatched = self.unmatched(names) if names else []
        if not or_more and unmatched:
            self.check(names)
        for pattern in unmatched:
            if pattern not in self._warned:
                only = ", ".join(sorted(names))
                text = f"no known tool matches {pattern!r}, so it holds nothing yet; the known tools are {only}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
                self._warned.add(pattern)  # last: where warnings are errors, each call is refused
        is_held = self.names is None or any(fnmatchcase(name, pattern) for pattern in self.names)
        near = [] if is_held else get_close_matches(name, unmatched, n=1, cutoff=0.8)
        if near:
            raise ConfigError(f"{name} is not among the tools to hold, but {near[0]!r} is, which no known tool matches")
        return is_held

    async def holds_in(self, name: str, list_names: ListNames) -> bool:
        """Do the same as `holds`, and list the tools in every call until each pattern has matched one.

        Args:
            name: The tool; an empty name only checks the patterns.
            list_names: Returns the names of the tools that the caller may see, the names of those hidden from it, which
                no error lists, and whether there are no others.

        Raises:
            ConfigError: A pattern seems to be misspelt; nothing was asked or run.
        """
        if not self.unmatched(self._matched):
            return self.holds(name)
        visible, hidden, is_every = await list_names()
        self._matched |= {each for each in {*visible, *hidden} if self.holds(each)}
        known = {*visible, *self._matched}
        return self.holds(name, known if is_every else {*known, name}, or_more=not is_every)


class ToolHook(HeldTools):
    """Holds the calls of some or all tools at a framework's hook point.

    Args:
        tools: As for `HeldTools`.
        options: `when`, `effect`, `quorum` and so on, as for `sayso.hold`, except those that this class sets itself.
        suspends: The exceptions with which a tool returns control to its framework; they are passed on, not failures.

    Raises:
        ConfigError: `tools` is not a list of names.
        TypeError: There is no such option.
    """

    def __init__(
        self, tools: Collection[str] | None, options: HoldOptions, *, suspends: tuple[type[BaseException], ...] = ()
    ) -> None:
        super().__init__(tools)
        check_options(options, "run", "context")
        self._options, self._suspends = options, suspends

    async def acall(self, call: Call, execute: Callable[[dict[str, Any]], Awaitable[Any]]) -> ToolResult:
        """Hold a call without a thread, and run it once it is approved; see `acall_tool`."""
        given = plain(call.arguments)
        run = _with_originals(call, given, execute)
        return await acall_tool(
            call.name, given, run, self._hold_options(call), tells_failure=True, originals=call.arguments
        )  # fmt: skip

    def call(self, call: Call, execute: Callable[[dict[str, Any]], Any]) -> ToolResult:
        """Hold a call, blocking the current thread while it waits; see `call_tool`."""
        given = plain(call.arguments)
        run = _with_originals(call, given, execute)
        return call_tool(call.name, given, run, self._hold_options(call), tells_failure=True, originals=call.arguments)

    def _hold_options(self, call: Call) -> HoldOptions:
        current = scope.current()
        run = call.conversation or None if current.owner is not None else current.run_id  # a named run takes precedence
        options: HoldOptions = {**self._options, "suspends": self._suspends}
        return options_of(
            options, key=call.id or None, run=run, schema=call.schema, description=call.description, words=call.words
        )


def _with_originals(call: Call, given: Any, execute: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """Run an unchanged call with the framework's own values, if it has others than JSON values."""
    is_json = _is_json(call.arguments, given)

    def run(approved: dict[str, Any]) -> Any:
        is_unchanged = canonical.is_same(approved, given)  # `==` would take an edit of 1 to true for none
        # The framework shares its values with others, who may have changed them while the call waited.
        is_own = is_unchanged and not is_json and is_shown(call.arguments, approved)
        return execute(dict(call.arguments) if is_own else approved)

    return run


def _is_json(arguments: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    try:
        return canonical.is_same(arguments, given)
    except errors.ArgumentError:
        return False


class PendingCalls:
    """Finds the model's id of a call in frameworks that pass only arguments to tools.

    The framework provides the message whose calls it runs. A call takes the first id with its tool and arguments that
    no other call has taken. Equal calls are interchangeable.
    """

    def __init__(self) -> None:
        self._unclaimed = ContextVar[list[tuple[str, str, Mapping[str, Any]]]]("sayso_pending")
        self._words = ContextVar[str]("sayso_words", default="")

    def show(self, calls: Iterable[tuple[str, str, Mapping[str, Any]]], words: str = "") -> None:
        """Record the calls of a message (id, tool and arguments), for this task and the tasks that it starts."""
        self._unclaimed.set(list(calls))
        self._words.set(words)

    def take(
        self, name: str, arguments: Mapping[str, Any], injectable: Collection[str]
    ) -> tuple[str | None, str, dict[str, Any]]:
        """Return the id of a call, the text of its message, and the arguments that the model gave.

        The framework may have added the `injectable` arguments, unless the model itself gave them. If there is no such
        call, the id is None, the text is empty, and the arguments are all others.
        """
        left, others = self._unclaimed.get([]), {n: value for n, value in arguments.items() if n not in injectable}
        for each in left:
            given = others | {n: value for n, value in arguments.items() if n in each[2]}
            if each[1] == name and each[2] == given:
                left.remove(each)
                return each[0], self._words.get(), given
        return None, "", others


_DELIVERY = timedelta(minutes=10)  # how long a result may still be on its way


def is_over(request: Request, *, is_ours: bool) -> bool:
    """Return whether an equal call no longer belongs to this request, and so is a new one.

    A person's refusal stays in effect. A result that this process did not handle may not have reached its client.
    """
    if request.state is State.EXPIRED:
        return True
    if request.state is State.CANCELLED:
        return request.decision is not None and request.decision.channel == "program"
    if request.state not in {State.DONE, State.FAILED} or is_ours:
        return False
    ended = None if request.execution is None else request.execution.finished_at
    return ended is None or clock.now() - ended > _DELIVERY


async def next_number(options: HoldOptions, digest: str) -> int:
    """Return the number of the next of equal calls whose keys are `DIGEST-NUMBER`, as an earlier process left them."""
    run, number = options.get("run"), 0
    if run is None or is_random(run):
        return number
    store = config.open_store(options.get("store"))
    while (found := await offload(partial(store.find_key, run, f"{digest}-{number}"))) is not None:
        if found.state not in {State.DONE, State.FAILED} or not is_over(found, is_ours=False):
            break  # a no, or an expiry, answers later calls too
        number += 1
    return number
