"""`gate`, the decorator, and `hold`, for calls that are not Python functions, such as those of foreign tools.

The loop that takes a call through its gate is `sayso.gates.gated_call`; how a call waits is in `sayso.gates.wait`.
`hold` does the first steps, validating and asking, and returns a `Held` for the others. `Gate`, a function with its
options, is in `sayso.gates.options`.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from sayso import config, errors
from sayso.effects import Attempt, HookCall, Operations, adrive, drive
from sayso.errors import ConfigError
from sayso.gates import exceptions, scope
from sayso.gates.ambiguous import exception_classes
from sayso.gates.caller import Block, Caller, already_started
from sayso.gates.exceptions import trim, trimmed
from sayso.gates.find_or_ask import find_earlier, find_or_ask, wanted_of
from sayso.gates.gated_call import gated_call
from sayso.gates.held import Held, HeldBase, driven
from sayso.gates.hooks import ask_rule, note_allowed, note_denial, under_record
from sayso.gates.options import (
    ForeignGate,
    Gate,
    block_of,
    check_known,
    check_text,
    quorum_of,
    redact_names,
    rule_options,
)
from sayso.gates.wait import Waiter
from sayso.model import canonical, duration
from sayso.model.redaction import Redaction
from sayso.model.request import Request, State
from sayso.model.reviewer import Escalation, Reviewer
from sayso.model.run import RunUpdate
from sayso.model.schema import Schema, SchemaError
from sayso.model.text import is_plain_name
from sayso.policy import Policy
from sayso.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")
Wait = Literal["block", "raise"]
OnExpiry = Literal["reject", "ask"]
OnReject = Literal["raise", "return"] | Callable[[exceptions.ConfirmationRejected], Any]


class RequestOptions(TypedDict, total=False):
    """The options that functions, tools, agents and workflows share; see `gate`."""

    always: bool
    expires: timedelta | str
    approval_expires: timedelta | str
    quorum: int
    roles: Collection[str]
    risk: str | None
    idempotent: bool
    verify: Callable[..., Any] | None
    store: Store | str | None
    escalate_after: timedelta | str | None
    escalate_to: Collection[str | Reviewer]
    notify_arguments: bool


class CallOptions(TypedDict, total=False):
    """The further options that functions and tools share; see `gate`."""

    ambiguous: type[BaseException] | Collection[type[BaseException]]
    key: str | Callable[..., Any] | None
    effect: str | Callable[..., Any] | None
    title: str | Callable[..., Any] | None
    summary: str | Callable[..., Any] | None
    suspends: type[BaseException] | Collection[type[BaseException]]


class ConfirmOptions(RequestOptions, CallOptions, total=False):
    """The options of `sayso.confirm_first`, in both of its forms; see `gate`."""

    when: bool | Callable[..., Any] | Policy
    prompt: str | Callable[..., Any] | None
    description: str | None
    name: str | None
    redact: Collection[str]
    redactor: Callable[[dict[str, Any]], Any] | None
    retries: int


class WaitOptions(ConfirmOptions, total=False):
    """The options of `gate` except `on_reject=`, which changes what its function returns."""

    wait: Wait
    timeout: timedelta | str | None
    on_expiry: OnExpiry


class GateOptions(WaitOptions, total=False):
    """The options of `gate`, in both of its forms."""

    on_reject: OnReject


class _TextForNo(Protocol):
    """The decorator that `gate(on_reject="return")` returns: its function may also return the text of a rejection."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | str]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | str]: ...


@overload
def gate(
    function: Callable[P, Coroutine[Any, Any, R]], /, *, on_reject: Literal["return"], **options: Unpack[WaitOptions]
) -> Callable[P, Coroutine[Any, Any, R | str]]: ...
@overload
def gate(
    function: Callable[P, R], /, *, on_reject: Literal["return"], **options: Unpack[WaitOptions]
) -> Callable[P, R | str]: ...
@overload
def gate(function: None = None, /, *, on_reject: Literal["return"], **options: Unpack[WaitOptions]) -> _TextForNo: ...
@overload
def gate(function: Callable[P, R], /, **options: Unpack[GateOptions]) -> Callable[P, R]: ...
@overload
def gate(function: None = None, /, **options: Unpack[GateOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@trimmed
def gate(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Require a person's approval for a function: `@gate`, `@gate(quorum=2)`, or `gate(function, quorum=2)`.

    A call that the rule holds is recorded and does not run. After a person has approved it, it runs with the recorded
    arguments (as changed by the reviewer), at most once. The decorated function keeps its signature. `def` and
    `async def` both work.

    Args:
        function: A plain function; its arguments must have a canonical form (see `sayso.model.canonical`). Plain,
            immutable values in its closure count as part of the call. It must do its work before it returns: a call
            that returns a coroutine or generator with work to do raises `TypeError` and ends as `failed`; a task,
            another future, `map` or `filter` may have begun, and ends as `unknown`.
        when: Which calls are held: `True`, or a callable that gets the call's arguments by name and returns `True`
            (hold), `False` (allow, nothing is written) or a verdict of `sayso.policy`. If it returns anything else or
            raises, `PolicyError` is raised and the call does not run. A `sayso.policy.Policy` uses the rules of a file;
            so does a gate without `when=` if the `sayso.toml` in effect has rules.
        always: A person decides each call: a call that the rule or policy allows waits as well, and no grant or budget
            can approve it. What they deny, and what they require for a hold, still applies.
        prompt: What the reviewer reads first; a text, or a callable that gets the arguments by name.
        description: What the function does; by default the first line of its docstring.
        expires: How long a request waits (`"90s"`, `"24h"`, `"7d"` or a `timedelta`), 24 hours by default. No answer
            counts as a rejection.
        approval_expires: How long an approval is valid, 24 hours by default.
        name: The name that identifies and shows the call, in place of the function's own. Required for a lambda, a
            partial, a bound method or a callable object, which have none. The reviewer does not see what these contain,
            so say it in the name.
        quorum: How many distinct people must approve, 1 by default.
        roles: Each of them must have one of these.
        redact: More names of arguments and fields to mask, at every depth, in addition to the default ones. A name that
            nothing in the arguments or the result can have is an error.
        redactor: Gets a copy of the arguments and returns what people may see.
        risk: A word of your own, e.g. `high`.
        retries: How often a failed call may be started again under one approval, 0 by default.
        idempotent: Whether the call may be started again even after an unknown outcome. Give the service the
            idempotency key `sayso.current_request().id`.
        verify: Called for an unknown outcome with the arguments by name. Returns `True` or `sayso.Happened(result)` if
            the call happened, `False` if it did not and cannot happen any more, `None` if it cannot tell. It is not
            called while the call is seen to run on this machine; on another machine the call may still be in progress.
        wait: `block`, the default, waits, and asks on the terminal if there is one. `raise` raises
            `ConfirmationRequired`; calling again later continues.
        timeout: With `block`, how long to wait before `ConfirmationRequired` is raised; the request stays pending, or
            approved if the approval can still be undone. If the call runs elsewhere by then, which a call with a key
            waits for, `StartRefusedError` is raised.
        on_expiry: With `block`: `reject`, the default, raises `ConfirmationExpired`; `ask` asks again (without `key`).
        store: The store for its requests, instead of the configured store.
        escalate_after: After this time, the people in `escalate_to` may decide too, and channels are notified.
        escalate_to: Roles (texts) and `sayso.Reviewer` objects. The quorum does not change.
        notify_arguments: Whether notifications may carry the arguments, masked; by default they carry none.
        ambiguous: One or several exception classes after which the effect of the call is uncertain: it ends as
            `unknown` and is not retried automatically. Timeouts and lost connections of common libraries are known
            (`docs/guides/survive-crashes.md` says which). `raise sayso.NotExecuted(...)` says that nothing happened.
        key: The occasion of a call in its run, which needs a name: a template over the arguments (`"{order_id}"`) or a
            callable over them. A key is asked once and finds its request forever: a call that is done returns its
            stored result, one that runs elsewhere is waited for, and other arguments raise `KeyReusedError`.
        effect: What a call does to the world, by a name that counts across runs and tools
            (`"refund:{order_id}"`); a template or a callable. It starts once, until it is known to have failed.
        title: The function's name for people; a text, a template or a callable. Shown as the program's words.
        summary: What a call does, in one line (`"Refund €{amount} for {order_id}"`); likewise.
        suspends: One or several exception classes with which the function pauses for its framework, and does nothing
            else: the call has not ended, its start is given back, and the exception is passed on. With
            `ConfirmationRequired`, a call that meets another gate keeps its approval and runs again from the beginning
            once that one is approved; without it, such a call ends as `failed`.
        on_reject: What the caller gets for a rejection: `raise`, the default, raises it; `return` returns its
            `message_for_model`; a callable gets the `ConfirmationRejected`, and its result is returned.

    Raises:
        TypeError: The function is a generator, a context manager or a class, or has no name and was given none.
        ConfigError: An option cannot be used.

    The decorated function raises, in addition to the function's own exceptions:
        ConfirmationRequired: The call waits for a person (with `wait="raise"`, after `timeout`, or when detached).
        ConfirmationRejected: Or a subclass: the call was rejected, or nobody waits for it any more.
        PolicyError, ArgumentError, StartRefusedError, StoreError: The call did not run, for the reason given.
        ConfigError: It would raise `ConfirmationRequired` in a thread of a pool, outside a run with a name.
        OutcomeNotRecordedError: The call ran, but its outcome could not be recorded.
    """
    check_known("gate", options, GateOptions.__optional_keys__)
    return functools.partial(_gated, options=options) if function is None else _gated(function, options)


_OF_CALLER = {"wait", "timeout", "on_expiry", "on_reject"}


@trimmed
def _gated(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    if isinstance(function, staticmethod):  # the decorator is above @staticmethod, and returns one
        return staticmethod(_gated(cast("Callable[..., Any]", function.__func__), options))
    block, on_reject = block_of(options), checked_on_reject(options.get("on_reject", "raise"))
    declared = {name: option for name, option in options.items() if name not in _OF_CALLER}
    made, store = _declared(function, **declared)
    if made.key is not None and block is not None and block.on_expiry == "ask":
        raise ConfigError("on_expiry='ask' asks again, and with key= a call is asked once; leave out one of them")
    is_off = made.when is False

    if inspect.iscoroutinefunction(function):

        async def gated_async(*args: Any, **kwargs: Any) -> Any:
            if is_off:
                args, kwargs = _bounded(made, args, kwargs)
                return await function(*args, **kwargs)
            try:
                return (await adrive(call_function(made, args, kwargs, block, store, on_reject))).unwrap()
            except BaseException as error:
                trim(error)
                raise

        return _named_after(gated_async, function, made.name)

    def ungated(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _bounded(made, args, kwargs)
        return function(*args, **kwargs)

    def gated(*args: Any, **kwargs: Any) -> Any:
        try:
            return drive(call_function(made, args, kwargs, block, store, on_reject)).unwrap()
        except BaseException as error:
            trim(error)
            raise

    return _named_after(ungated if is_off else gated, function, made.name)


def _named_after(wrapper: Callable[..., Any], function: Callable[..., Any], name: str) -> Callable[..., Any]:
    wrapper.__name__ = wrapper.__qualname__ = name  # kept if the function has no name of its own
    return functools.update_wrapper(wrapper, function)


def _bounded(
    gate: Gate, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """Return the arguments for the function of a disabled gate: bounds and defaults of its types still apply."""
    if gate.is_unbounded:
        return args, kwargs
    try:
        arguments = gate.signature.bind(args, kwargs)
        gate.check_bounds(arguments)
    except BaseException as error:
        trim(error)
        raise
    return gate.signature.spread(arguments)


def _declared(
    function: Callable[..., Any], *, name: str | None = None, expires: timedelta | str = "24h",
    approval_expires: timedelta | str = "24h", quorum: int = 1, roles: Collection[str] = (),
    redact: Collection[str] = (), description: str | None = None, store: Store | str | None = None,
    escalate_after: timedelta | str | None = None, escalate_to: Collection[str | Reviewer] = (),
    ambiguous: type[BaseException] | Collection[type[BaseException]] = (),
    suspends: type[BaseException] | Collection[type[BaseException]] = (),
    **options: Any,
) -> tuple[Gate, Store | str | None]:  # fmt: skip
    options |= rule_options(options)
    _check_options(options | {"description": description}, may_be_async=inspect.iscoroutinefunction(function))
    if description is None:
        documented: Any = function
        text = inspect.getdoc(documented.func if isinstance(documented, functools.partial) else documented)
        description = text.strip().splitlines()[0] if text and text.strip() else None
    secret_names = redact_names(redact)
    made = Gate(
        function,
        named=name,
        expires=duration.option("expires", expires),
        approval_expires=duration.option("approval_expires", approval_expires),
        quorum=quorum_of(quorum, roles),
        escalation=Escalation.of(escalate_after, escalate_to),
        redaction=Redaction(secret_names),
        redact=secret_names,
        ambiguous=exception_classes(ambiguous),
        suspends=exception_classes(suspends, "suspends="),
        description=description,
        **options,
    )
    config.check_store(store)
    return made, store


class _FunctionCaller(Waiter):
    """The call of a decorated function, which may block."""

    given: tuple[tuple[Any, ...], Mapping[str, Any]]
    recalled: scope.Recalled | None = None

    def allowed(self, gate: Gate, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the given arguments, completed with defaults that only a pydantic `Field` has."""
        return gate.signature.spread(arguments) if gate.signature.fields else self.given

    def is_over(self, request: Request) -> bool:
        """Return whether the enclosing run was given the approval until a time that is over."""
        return self.recalled is not None and self.recalled.is_over(request)

    def passed(self, attempt: Attempt) -> None:
        """Record the result for the enclosing run, which saves it with its next step and does not repeat the call."""
        if self.recalled is not None:
            self.recalled.snapshot(attempt)

    def saving(self, attempt: Attempt) -> RunUpdate | None:
        """Return what the enclosing run saves with the outcome."""
        return None if self.recalled is None else self.recalled.snapshot(attempt)


def call_function(
    gate: Gate, args: tuple[Any, ...], kwargs: dict[str, Any], block: Block | None, store: Store | str | None,
    on_reject: OnReject,
) -> Operations[Attempt]:  # fmt: skip
    """Take the call of a function through its gate, in the current run.

    Args:
        gate: The gate of the function.
        args: The positional arguments of the call.
        kwargs: The keyword arguments.
        block: How to wait for the decision; None raises `ConfirmationRequired`.
        store: The store for the request, instead of the configured store.
        on_reject: What the caller gets for a rejection.
    """
    arguments = gate.signature.bind(args, kwargs)
    opened, run = config.default_store() if store is None else config.open_store(store), scope.current()
    caller = _FunctionCaller(run, opened, block)
    caller.given = args, kwargs
    if run.finished_calls is not None:
        caller.recalled = recalled = run.finished_calls.recall(gate, opened, arguments)
        if recalled is not None and recalled.known is not None:
            return _known(recalled.known)
    operations = gated_call(gate, opened, arguments, run.call_site(blocks=block is not None), caller)
    return operations if on_reject == "raise" else _given_for_no(operations, on_reject)


def _known(attempt: Attempt) -> Operations[Attempt]:
    yield from ()
    return attempt


def checked_on_reject(given: object) -> OnReject:
    """Return the value of `on_reject=`; raises `ConfigError` if it is not valid."""
    if given not in {"raise", "return"} and not callable(given):
        raise ConfigError(f"on_reject= takes 'raise', 'return' or a callable, not {given!r}")
    return cast("OnReject", given)


def rejection_result(on_reject: OnReject, no: exceptions.ConfirmationRejected) -> Operations[Any]:
    """Return what a caller gets for a rejection by `on_reject=`."""
    if not callable(on_reject):
        return no.message_for_model
    return (yield HookCall(functools.partial(on_reject, no), {}))


def _given_for_no(operations: Operations[Attempt], on_reject: OnReject) -> Operations[Attempt]:
    """Give the caller of a rejected call what the gate's author wants."""
    try:
        return (yield from operations)
    except exceptions.ConfirmationRejected as no:  # the gate's own; an exception of the function is in its attempt
        return Attempt((yield from rejection_result(on_reject, no)), None)


def _check_options(options: dict[str, Any], *, may_be_async: bool) -> None:
    """Reject at decoration what would fail at the first call."""
    kinds = {
        "description": (str | None, "a string"), "risk": (str | None, "a string"),
        "idempotent": (bool, "True or False"), "notify_arguments": (bool, "True or False"),
    }  # fmt: skip
    for name, (kind, expected) in kinds.items():
        if name in options and not isinstance(options[name], kind):
            raise ConfigError(f"{name}= takes {expected}, not {options[name]!r}")
    retries = options.get("retries", 0)
    if type(retries) is not int or retries < 0:
        raise ConfigError(f"retries= takes a whole number from 0, not {retries!r}")
    for name in ("prompt", "redactor", "verify"):
        hook = options.get(name)
        if hook is not None and not callable(hook) and not (name == "prompt" and isinstance(hook, str)):
            expected = "a string or a callable" if name == "prompt" else "a callable"
            raise ConfigError(f"{name}= takes {expected}, not {hook!r}")
    for name in ("when", "prompt", "verify"):
        if inspect.iscoroutinefunction(options.get(name)) and not may_be_async:
            raise ConfigError(f"{name}= is async, so the gated function must be async too")


class HoldOptions(TypedDict, total=False):
    """The options of `hold` besides the tool and its arguments; see `hold`."""

    schema: Mapping[str, Any] | str | None
    key: str | None
    run: str | None
    effect: str | Callable[..., Any] | None
    title: str | None
    description: str | None
    when: bool | Callable[..., Any] | Policy
    always: bool
    quorum: int
    roles: Collection[str]
    redact: Collection[str]
    expires: timedelta | str
    approval_expires: timedelta | str
    context: Mapping[str, Any] | None
    store: Store | str | None
    withdraw_on_exit: bool
    suspends: type[BaseException] | Collection[type[BaseException]]


def hold(tool: str, arguments: Mapping[str, Any], **options: Unpack[HoldOptions]) -> Held:
    """Hold a call that is not a Python function, and return at once; durable on return.

    Args:
        tool: Name of the tool; together with the schema, it identifies its calls.
        arguments: By name; JSON values, or others that have a canonical form.
        schema: JSON Schema of the arguments (draft 2020-12, 2019-09 or 7), as a dict or text. It validates the
            arguments and a reviewer's changes.
        key: The occasion of the call in its run, such as a model's call id. The same key finds the same request
            forever, even in other processes; with other arguments it is refused.
        run: Name of the run; defaults to the current one (`sayso.run`). A key needs a run with a name.
        effect: What the call does to the world, across runs: a template over the arguments (`"refund:{order_id}"`) or
            a callable; as for `sayso.gate`.
        title: The tool's name for people, shown as the program's words.
        description: What the tool does.
        when, always: As for `sayso.gate`: a rule gets the arguments that it names. An allowed call is not recorded.
        quorum, roles, redact, expires, approval_expires, store: As for `sayso.gate`.
        context: Facts for the reviewer's front end: JSON values.
        withdraw_on_exit: As a context manager, withdraw the request on leaving the block if nobody has decided, or if
            the caller is cancelled or interrupted before an approved call starts; in a run without a name, where
            nobody could come back to it, also if the block ends with an error.
        suspends: As for `sayso.gate`: what the function of `once` raises if it has not ended and will run again.

    Raises:
        TypeError: An option does not exist.
        ConfigError: An option cannot be used, or the key's run has no name. Nothing was asked.
        ArgumentError: An argument does not fit the schema, or has no canonical form.
        KeyReusedError: The key was used in this run for another call.
        PolicyError: The rule failed.
        StoreError: The request could not be recorded.
    """
    return driven(holding(Held, tool, arguments, **options))


H = TypeVar("H", bound=HeldBase)


def holding(
    kind: type[H], tool: str, arguments: Mapping[str, Any], **options: Unpack[HoldOptions]
) -> Operations[H]:  # fmt: skip
    """Validate and ask, as `hold` does; shared by its sync and async forms."""
    check_known("hold", options, HoldOptions.__optional_keys__)
    key, run, context = options.get("key"), options.get("run"), options.get("context")
    texts: dict[str, Any] = {name: options.get(name) for name in ("effect", "title", "description")}
    texts |= rule_options(options)
    withdraws: object = options.get("withdraw_on_exit", False)
    if not isinstance(withdraws, bool):
        raise ConfigError(f"withdraw_on_exit= takes True or False, not {withdraws!r}; nothing was asked")
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise TypeError(f"hold() takes the arguments by name, as a dict, not {arguments!r}; nothing was asked")
    # A copy, because the caller may change its own lists meanwhile.
    given = canonical.decode(canonical.encode(dict(arguments)).text, {})
    shape = _schema(options.get("schema"))
    _check(tool, given, key, texts)
    facts, names = None if context is None else dict(context), redact_names(options.get("redact", ()))
    gate = ForeignGate(
        named=tool, given=shape, quorum=quorum_of(options.get("quorum", 1), options.get("roles", ())),
        expires=duration.option("expires", options.get("expires", "24h")),
        approval_expires=duration.option("approval_expires", options.get("approval_expires", "24h")),
        redaction=Redaction(names), redact=names,
        context=None if facts is None else lambda masked: facts,  # noqa: ARG005  the hook's name for it
        suspends=exception_classes(options.get("suspends", ()), "suspends="), **texts,
    )  # fmt: skip
    try:
        shape.validate(given)
    except SchemaError as error:
        where, _, reason = error.problems[0].partition(": ")
        raise errors.ArgumentError(where, f"does not fit the schema of {gate.name} ({reason})") from None
    config.check_store(options.get("store"))
    store, here = config.open_store(options.get("store")), scope.current()
    if run is not None:
        here = scope.Scope(scope.checked_name(run), acts_for=here.acts_for, outer=here)
    site = here.call_site(blocks=True)._replace(key=key)
    verdict, request, denial = (yield from ask_rule(gate, given, site)), None, None
    if verdict.kind == "deny":
        denial = yield from note_denial(gate, store, given, site, verdict)
    elif verdict.kind == "allow" and not verdict.is_recorded:
        request = yield from find_earlier(gate, store, given, site, verdict)
        if request is not None:
            gate = cast("ForeignGate", under_record(gate, request, site))
        elif verdict.log:
            yield from note_allowed(gate, store, site, verdict)
    else:
        gate = cast("ForeignGate", gate.under(verdict))
        request = yield from find_or_ask(gate, store, given, wanted_of(gate, site, verdict), Caller(), verdict)
        if key is None and request.state is State.RUNNING:
            raise already_started(request)
    return kind(gate, store, here, site, given, request, denial, withdraw_on_exit=withdraws)


def _check(tool: object, arguments: Mapping[str, Any], key: object, texts: Mapping[str, Any]) -> None:
    """Check the options before anything is asked."""
    if key is not None and not is_plain_name(key):
        raise errors.ConfigError(f"key= takes a string of 1 to 200 characters without surrounding spaces, not {key!r}")
    for name in ("title", "description"):
        if texts[name] is not None and not isinstance(texts[name], str):
            raise errors.ConfigError(f"{name}= takes a string, not {texts[name]!r}")
    check_text("effect", texts["effect"], str(tool), tuple(arguments))


def _schema(schema: Mapping[str, Any] | str | None) -> Schema:
    if schema is None:
        return Schema.of_json({"type": "object"})
    tree: Any = schema
    if isinstance(schema, str):
        try:
            tree = json.loads(schema)
        except ValueError as error:
            raise errors.ConfigError(f"schema= is not JSON: {error}; nothing was asked") from None
    if not isinstance(tree, Mapping):
        raise errors.ConfigError(f"schema= takes a JSON Schema as a dict or string, not {tree!r}; nothing was asked")
    return Schema.of_json(cast("Mapping[str, Any]", tree))
