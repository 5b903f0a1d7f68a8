"""`Tool`: a function for models and programs, with approval options; `tool` creates one from a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Unpack, cast, overload

from sayso import errors
from sayso.effects import Attempt, Effects, adrive, drive
from sayso.gates.gate import OnReject, call_function, checked_on_reject
from sayso.gates.options import Gate, check_hook, check_known, check_text
from sayso.gates.outcome import exception_classes
from sayso.gates.signals import trim, trimmed
from sayso.model import cached_property
from sayso.runs.definition import ToolOptions, check_handler, entry, options_of
from sayso.runs.definition import by_name as _flat
from sayso.runs.runnable import Run, Runnable

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
            **options,
        )
        self.on_reject = checked_on_reject(on_reject)
        words = {"key": key, "effect": effect, "title": title, "summary": summary}
        for option, hook in words.items():
            check_hook(option, hook, self.name, self.signature.names)
            if not self.signature.takes_any:
                shown = self.redaction.is_secret if option in {"key", "effect"} else None
                check_text(option, hook, self.name, self.signature.names, is_secret=shown)
        self._options |= {option: _flat(hook, self.rest) for option, hook in words.items()}
        self._options["ambiguous"] = exception_classes(ambiguous)
        self._options["suspends"] = exception_classes(suspends, "suspends=")
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

    def _way(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Effects[Attempt]:
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
