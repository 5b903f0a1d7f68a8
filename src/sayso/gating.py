"""A call on its way through a gate, and `gate` itself: written once for sync and async functions.

The way is a generator of effects: check; if it is held, do what the gate's `wait` says (raise, or block and check
again); if it is ready, execute. See `sayso.gates` for what check and execute promise.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from sayso import config, scope, signals
from sayso.effects import Attempt, Effects, Try, adrive, drive
from sayso.errors import ApprovalExpiredError, ConfigError, NotApprovedError
from sayso.gates import Gate, check, exception_classes, execute
from sayso.gates.check import must_keep_bounds
from sayso.gates.options import check_known, quorum_of, span_of
from sayso.model.quorum import Escalation
from sayso.model.redaction import Redaction
from sayso.model.request import Request, State
from sayso.model.reviewer import Reviewer
from sayso.model.run import Saved
from sayso.signals import trim, trimmed
from sayso.stores.base import Store
from sayso.wait import Block, Waiter, block_of

__all__ = ["ConfirmOptions", "GateOptions", "OnExpiry", "Passage", "Wait", "gate"]

P = ParamSpec("P")
R = TypeVar("R")
Wait = Literal["block", "raise"]
OnExpiry = Literal["reject", "ask"]
Saves = Callable[[Attempt], Saved | None]
_MOST_WITHDRAWN = 5


class ConfirmOptions(TypedDict, total=False):
    """The options of `sayso.confirm_first`, in both of its forms; `gate` explains them."""

    when: bool | Callable[..., Any]
    prompt: str | Callable[..., Any] | None
    description: str | None
    expires: timedelta | str
    approval_expires: timedelta | str
    name: str | None
    quorum: int
    roles: Collection[str]
    redact: Collection[str]
    redactor: Callable[[dict[str, Any]], Any] | None
    risk: str | None
    retries: int
    idempotent: bool
    verify: Callable[..., Any] | None
    store: Store | str | None
    escalate_after: timedelta | str | None
    escalate_to: Collection[str | Reviewer]
    notify_arguments: bool
    ambiguous: type[BaseException] | Collection[type[BaseException]]


class GateOptions(ConfirmOptions, total=False):
    """The options of `gate`, in both of its forms."""

    wait: Wait
    timeout: timedelta | str | None
    on_expiry: OnExpiry


@overload
def gate(function: Callable[P, R], /, **options: Unpack[GateOptions]) -> Callable[P, R]: ...
@overload
def gate(function: None = None, /, **options: Unpack[GateOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@trimmed
def gate(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Put a person's say-so in front of a function: `@gate`, `@gate(quorum=2)`, or `gate(function, quorum=2)`.

    A call that the rule holds is recorded and does not run. Once a person approved it, it runs from the recorded
    arguments (as changed by the reviewer), at most once. The decorated function keeps its signature; `def` and
    `async def` both work.

    Args:
        function: A plain function; its arguments must have a canonical form (see `sayso.model.canonical`). Plain,
            immutable values in its closure count as part of the call.
        when: Which calls are held: `True`, or a callable that gets the call's arguments by name and returns `True`
            (hold), `False` (let through, nothing is written) or a verdict of `sayso.policy`. Anything else, and
            anything it raises, is a `PolicyError`, and the call does not run.
        prompt: What the reviewer reads first; a text, or a callable that gets the arguments by name.
        description: What the function does; its docstring's first line by default.
        expires: How long a request waits (`"90s"`, `"24h"`, `"7d"` or a `timedelta`). No answer is a no.
        approval_expires: How long an approval counts.
        name: What the call is told apart by and shown as, in place of the function's own name; for a lambda, a partial,
            a bound method or an object that is called, which have none. What these hide is not shown to the reviewer,
            so say it here.
        quorum: How many distinct people must approve.
        roles: Each of them must have one of these.
        redact: More names of arguments and fields to mask, at every depth, beside the usual ones. One that nothing
            in the arguments or the result can have is refused.
        redactor: Gets a copy of the arguments and returns what people may see.
        risk: A word of yours, e.g. `high`.
        retries: How many further starts one approval gives a call that failed.
        idempotent: The call may be started again, also after an unknown outcome; give the service the idempotency
            key `sayso.current_request().id`.
        verify: Asked about an unknown outcome with the arguments by name: `True` or `sayso.Happened(result)`, it
            happened; `False`, it did not; `None`, it cannot tell.
        wait: `block` waits where the call stands, asking on the terminal if there is one; `raise` raises
            `ConfirmationRequired`, and calling again later goes on.
        timeout: With `block`, how long to stand there before `ConfirmationRequired` is raised; the request stays.
        on_expiry: With `block`: `reject` raises `ConfirmationExpired`, `ask` asks anew.
        store: Where its requests live, instead of the configured store.
        escalate_after: After this time, those whom `escalate_to` names may decide too, and channels say so.
        escalate_to: Roles (texts) and `sayso.Reviewer` objects. How many must approve stays as it is.
        notify_arguments: Messages that channels send may carry the arguments, masked; otherwise they carry none.
        ambiguous: Exception classes, one or several, after which nobody knows whether the call took effect: it ends as
            `unknown` and is not tried again by itself. Timeouts and lost connections of the usual libraries are known
            (`docs/howto/survive-crashes.md` lists them). `raise sayso.NotExecuted(...)` says that nothing happened.

    Raises:
        TypeError: The function is a generator or a class, or has no name of its own and was given none.
        ConfigError: An option cannot be used.

    The decorated function raises, beside what the function itself does:
        ConfirmationRequired: It waits for a person (with `wait="raise"`, after `timeout`, or when detached).
        ConfirmationRejected: One of its kinds: the answer was no, or nobody waits for the call any more.
        PolicyError, ArgumentError, StartRefusedError, StoreError: It was not run, for the reason that they say.
        ConfigError: It would raise `ConfirmationRequired` in a thread of a pool, outside of a run with a name.
        OutcomeNotRecordedError: It ran, and the store could not be told.
    """
    check_known("gate", options, GateOptions.__optional_keys__)
    return functools.partial(_gated, options=options) if function is None else _gated(function, options)


@trimmed
def _gated(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    if isinstance(function, staticmethod):  # the decorator stands above @staticmethod, and hands one back
        return staticmethod(_gated(cast("Callable[..., Any]", function.__func__), options))
    passage = _declared(function, **options)
    if inspect.iscoroutinefunction(function):

        @_dressed(function, passage.name)
        async def held_async(*args: Any, **kwargs: Any) -> Any:
            if passage.is_open:
                args, kwargs = passage.opened(args, kwargs)
                return await function(*args, **kwargs)
            try:
                attempt = await adrive(passage.effects(args, kwargs))
                return attempt.unwrap()
            except BaseException as error:
                trim(error)
                raise

        return held_async
    if passage.is_open:

        @_dressed(function, passage.name)
        def open_to_all(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = passage.opened(args, kwargs)
            return function(*args, **kwargs)

        return open_to_all

    @_dressed(function, passage.name)
    def held(*args: Any, **kwargs: Any) -> Any:
        try:
            attempt = drive(passage.effects(args, kwargs))
            return attempt.unwrap()
        except BaseException as error:
            trim(error)
            raise

    return held


def _declared(
    function: Callable[..., Any], *, name: str | None = None, expires: timedelta | str = "24h",
    approval_expires: timedelta | str = "24h", quorum: int = 1, roles: Collection[str] = (),
    redact: Collection[str] = (), description: str | None = None, wait: Wait = "block",
    timeout: timedelta | str | None = None, on_expiry: OnExpiry = "reject", store: Store | str | None = None,
    escalate_after: timedelta | str | None = None, escalate_to: Collection[str | Reviewer] = (),
    ambiguous: type[BaseException] | Collection[type[BaseException]] = (), **options: Any,
) -> Passage:  # fmt: skip
    _check_options(function, options | {"description": description})
    secret_names = _names(redact)
    made = Gate(
        function,
        named=name,
        expires=span_of("expires", expires),
        approval_expires=span_of("approval_expires", approval_expires),
        quorum=quorum_of(quorum, roles),
        escalation=Escalation.of(escalate_after, escalate_to),
        redaction=Redaction(secret_names),
        redact=secret_names,
        ambiguous=exception_classes(ambiguous),
        description=description if description is not None else _first_line(function),
        **options,
    )
    config.check_store(store)
    return Passage(made, block_of(wait, timeout, on_expiry), store)


def _dressed(function: Callable[..., Any], name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def dress(held: Callable[P, R]) -> Callable[P, R]:
        held.__name__ = held.__qualname__ = name  # stays where the function has no name of its own
        return functools.update_wrapper(held, function)

    return dress


class Passage:
    """A gate, and what a hold does to the program that makes the call.

    Args:
        gate: The gate.
        block: How to wait where the call stands; None raises.
        store: Where its requests live, instead of the configured store.
    """

    def __init__(self, gate: Gate, block: Block | None = None, store: Store | str | None = None) -> None:
        self._gate, self._block, self._store = gate, block, store
        self.name = gate.name
        self.is_open = gate.when is False

    def opened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what to call the function with where it is never held; bounds and defaults of its author count.

        Raises:
            ArgumentError: An argument is outside of its bounds; nothing was run.
        """
        gate = self._gate
        if gate.is_unbounded:
            return args, kwargs
        try:
            arguments = gate.signature.bind(args, kwargs)
            must_keep_bounds(gate, arguments)
        except BaseException as error:
            trim(error)
            raise
        return gate.signature.spread(arguments)

    def effects(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Effects[Attempt]:
        """Take one call through the gate."""
        gate, arguments = self._gate, self._gate.signature.bind(args, kwargs)
        store, here = config.open_store(self._store), scope.current()
        recalled = None if here.memory is None else here.memory.recall(gate, store, arguments)
        if recalled is not None and recalled.known is not None:
            return recalled.known
        saves = None if recalled is None else recalled.saves
        waiter = Waiter(here, store)
        return (yield from waiter.over(self._through(waiter, arguments, args, kwargs, saves)))

    def _through(
        self, waiter: Waiter, arguments: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        saves: Saves | None,
    ) -> Effects[Attempt]:  # fmt: skip
        gate, store, here, withdrawn = self._gate, waiter.store, waiter.here, list[str]()
        place = here.place_of_raise() if self._block is None else here.place_of_block()
        while True:
            answer = yield from check(gate, store, arguments, place)
            match answer.kind:
                case "allow":
                    return (yield from _run_free(gate, arguments, args, kwargs))
                case "deny":
                    raise signals.ConfirmationDenied(answer.reason or f"{gate.rule} denies {gate.name}")
                case "held":
                    yield from self._hold(waiter, _sure(answer.request), withdrawn)
                case "refused":
                    raise signals.refused(_sure(answer.request))
                case "ready":
                    request = _sure(answer.request)
                    waiter.begin(request)
                    try:
                        attempt = yield from execute(gate, store, request, answer.needs, saves)
                    except (NotApprovedError, ApprovalExpiredError):
                        waiter.resume(request)
                        continue  # cancelled or expired since the check, which now says so in its own words
                    here.executed(request, attempt)
                    return attempt
                case "happened":
                    return Attempt(answer.result, None)

    def _hold(self, waiter: Waiter, request: Request, withdrawn: list[str]) -> Effects[None]:
        waiter.here.raised[request.id] = None
        if self._block is None:
            raise signals.ConfirmationRequired.of(request)
        after = yield from self._block.until_decided(waiter.store, request, waiter)
        if after.state is State.CANCELLED and not after.holds:
            # Taken back, mostly for one that asks for more; the call is asked anew. Two programs that want different
            # roles would go on doing that to each other for ever.
            withdrawn.append(after.id)
            if len(withdrawn) > _MOST_WITHDRAWN:
                raise signals.refused(after)


def _run_free(
    gate: Gate, arguments: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Effects[Attempt]:  # fmt: skip
    # The caller's own objects: what is let through is neither recorded nor rebuilt.
    if gate.signature.fields:
        args, kwargs = gate.signature.spread(arguments)
    return (yield Try(gate.function, args, kwargs))


def _sure(request: Request | None) -> Request:
    if request is None:
        raise RuntimeError("a check that names no request")  # gates.check promises one
    return request


def _first_line(function: Callable[..., Any]) -> str | None:
    text = inspect.getdoc(function.func if isinstance(function, functools.partial) else function)
    return text.strip().splitlines()[0] if text and text.strip() else None


def _names(redact: Collection[str]) -> tuple[str, ...]:
    if isinstance(redact, str) or not isinstance(redact, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"redact= takes a collection of names, not {redact!r}")
    strange = [name for name in redact if not isinstance(name, str) or not name.strip()]  # pyright: ignore[reportUnnecessaryIsInstance]
    if strange:
        raise ConfigError(f"redact= takes names of arguments or fields as texts, not {strange[0]!r}")
    return tuple(redact)


def _check_options(function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse at the decoration what would fail at the first call."""
    kinds = {
        "description": (str | None, "a text"), "risk": (str | None, "a text"), "idempotent": (bool, "True or False"),
        "notify_arguments": (bool, "True or False"),
    }  # fmt: skip
    for name, (kind, said) in kinds.items():
        if name in options and not isinstance(options[name], kind):
            raise ConfigError(f"{name}= takes {said}, not {options[name]!r}")
    retries = options.get("retries", 0)
    if type(retries) is not int or retries < 0:
        raise ConfigError(f"retries= takes a whole number from 0, not {retries!r}")
    _check_hooks(options, may_be_async=inspect.iscoroutinefunction(function))


def _check_hooks(options: dict[str, Any], *, may_be_async: bool) -> None:
    when = options.get("when", True)
    if not isinstance(when, bool) and not callable(when):
        raise ConfigError(f"when= takes True, False or a callable, not {when!r}")
    for name in ("prompt", "redactor", "verify"):
        hook = options.get(name)
        if hook is not None and not callable(hook) and not (name == "prompt" and isinstance(hook, str)):
            said = "a text or a callable" if name == "prompt" else "a callable"
            raise ConfigError(f"{name}= takes {said}, not {hook!r}")
    for name in ("when", "prompt", "verify"):
        if inspect.iscoroutinefunction(options.get(name)) and not may_be_async:
            raise ConfigError(f"{name}= is async, which needs an async function behind the gate")
