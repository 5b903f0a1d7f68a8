"""`hold`: holds a call that is not a Python function, such as a foreign tool with a JSON Schema.

The caller takes the steps that `sayso.gate` takes by itself: `hold` checks and asks, `Held.wait` waits, `Held.once`
runs the call and records its outcome; or `start` and `finish` do the latter by hand. `sayso.aio.hold` is the async
version. Invariant: `once` and `start` hand out exactly the approved arguments, and only once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack, cast

from sayso import config, errors
from sayso.effects import Attempt, Effects, StoreCall, UserCall, drive
from sayso.gates import scope, signals
from sayso.gates.call import Started, begin, end, find_or_ask, gated_call, send_back, wanted_again, wanted_of
from sayso.gates.caller import Block, Caller, started_before, withdraw
from sayso.gates.hooks import ask_rule, note_allowed, note_denial, under_record
from sayso.gates.keys import asked_before, replay
from sayso.gates.options import (
    NOT_GIVEN,
    ForeignGate,
    Gate,
    check_known,
    check_text,
    no_function,
    quorum_of,
    redact_names,
    rule_options,
)
from sayso.gates.outcome import exception_classes
from sayso.gates.signals import trim
from sayso.model import canonical, duration
from sayso.model.redaction import Redaction
from sayso.model.request import Request, State, not_run
from sayso.model.schema import Schema, SchemaError
from sayso.policy import Policy
from sayso.stores.base import Store
from sayso.wait import Waiter, until_ended

if TYPE_CHECKING:
    from concurrent.futures import Future

R = TypeVar("R")
_NOES = {State.REJECTED, State.FEEDBACK, State.CANCELLED, State.EXPIRED}


class HeldBase:
    """What `Held` and `sayso.aio.Held` share: how the call stands, as it was last looked at."""

    def __init__(
        self, gate: Gate, store: Store, run: scope.Scope, occasion: scope.Occasion, given: dict[str, Any],
        request: Request | None, denial: str | None, *, withdraw_on_exit: bool,
    ) -> None:  # fmt: skip
        self._gate, self._store, self._run, self._occasion = gate, store, run, occasion
        self._given, self._request, self._denial = given, request, denial
        self._withdraws = withdraw_on_exit
        self._started: Started | None = None
        self._attempt: Attempt | None = None

    @property
    def id(self) -> str | None:
        """Id of the request; None where the rule allowed or denied the call and nobody was asked."""
        return None if self._request is None else self._request.id

    @property
    def request(self) -> Request | None:
        """The request as it was last looked at; `refresh` looks again."""
        return self._request

    @property
    def state(self) -> str:
        """Its state when it was last looked at (`pending`, `approved`, `done`, ...); else `allowed` or `denied`."""
        if self._request is not None:
            return self._request.state.value
        return "allowed" if self._denial is None else "denied"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that would run, with what a reviewer changed; real values, no secret is masked."""
        if self._request is None:
            return dict(self._given)
        return canonical.decode(self._request.effective.form, {})

    @property
    def changes(self) -> dict[str, Any]:
        """The arguments that a reviewer changed or added; one that was taken away is missing from `arguments`."""
        now = self.arguments
        return {n: value for n, value in now.items() if n not in self._given or _differ(self._given[n], value)}

    @property
    def reason(self) -> str | None:
        """What the reviewer wrote, or why the rule denied it."""
        if self._request is None:
            return self._denial
        return None if self._request.decision is None else self._request.decision.comment

    def message_for_model(self) -> str:
        """Return what to tell the model that asked; empty for a call that was approved as it stood without a note."""
        if self._request is not None:
            return self._request.message_for_model()
        return "" if self._denial is None else not_run(self._gate.name, self._denial)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._gate.name!r} {self.id} {self.state}>"

    # -- the verbs, as effects; `Held` and `sayso.aio.Held` drive them ------------------------------------------

    def _refreshing(self) -> Effects[Request | None]:
        if self._request is not None:
            self._request = yield StoreCall(self._store.settle, self._request.id)
        return self._request

    def _waiting(self, timeout: timedelta | str | float | None) -> Effects[None]:
        self._must_not_be_denied()
        request = yield from self._refreshing()
        if request is None:
            return
        if request.state is State.PENDING:
            block = Block(_span(timeout), "reject")
            waiter = Waiter(self._run, self._store, block)
            self._request = yield from _over(waiter, waiter.until_decided(request, block))
        if self._request is not None and self._request.state in _NOES:
            raise signals.refused(self._request)

    def _once(self, function: Callable[[dict[str, Any]], Any]) -> Effects[Attempt]:
        self._must_not_be_denied()
        request = yield from self._refreshing()
        if request is None:
            return (yield from self._once_allowed(function))
        if self._started is not None:
            raise errors.StartRefusedError(request.id, f"this handle has started {request.id}: say how it ended first")
        own = self._attempt
        if request.state is State.DONE and request.key is None and own is not None and own.raised is None:
            return own
        gate, caller = replace(self._gate, function=function), _OnceCaller(self._run, self._store, stays=True)
        try:
            attempt = yield from gated_call(gate, self._store, self._given, self._occasion, caller, request)
        finally:
            self._request = caller.latest or request
        if caller.has_run:
            self._attempt = attempt
            with suppress(errors.StoreError):  # how the call ended counts, and not that the store fails by now
                yield from self._refreshing()
        return attempt

    def _once_allowed(self, function: Callable[[dict[str, Any]], Any]) -> Effects[Attempt]:
        """Run a call that nobody was asked about; whoever asks this handle for it meanwhile gets what it gives."""
        from concurrent.futures import Future

        mine = Future[Attempt]()
        running: Future[Attempt] = self.__dict__.setdefault("_allowed", mine)  # atomic: of two threads, one runs it
        if self._attempt is not None:
            return self._attempt
        if running is not mine and self in _inside.get():
            raise errors.SaysoError(f"the call of {self._gate.name} asks for its own result: it would wait for itself")
        if running is not mine:
            return (yield _Awaited(running))
        mine.set_running_or_notify_cancel()  # a task that is cancelled while it waits cancels nothing
        before = _inside.set((*_inside.get(), self))
        try:
            attempt: Attempt = yield UserCall(function, (dict(self._given),), {})
        finally:
            with suppress(ValueError):  # a coroutine may be closed from a context that never had it
                _inside.reset(before)
        self._attempt = attempt
        mine.set_result(attempt)
        return attempt

    def _starting(self, by: str | None) -> Effects[dict[str, Any]]:
        self._must_not_be_denied()
        request = yield from self._refreshing()
        if request is None:
            return dict(self._given)
        if request.state is State.PENDING:
            raise signals.ConfirmationRequired.of(request)
        if request.state in _NOES:
            raise signals.refused(request)
        if request.state is State.UNKNOWN:
            raise errors.OutcomeUnknownError(request.id)
        if request.state is not State.APPROVED:
            raise started_before(request)
        gate = under_record(self._gate, request, self._occasion)  # its rule may say less by now than when it was asked
        returned = yield from send_back(gate, self._store, request)
        if returned is not None:  # what a reviewer changed does not fit: it waits again
            self._request = returned
            raise signals.ConfirmationRequired.of(returned)
        wanted = wanted_again(gate, self._occasion, request)
        try:
            self._started = yield from begin(gate, self._store, request, wanted, by)
        except errors.GrantEndedError:
            raise  # it waits for a person now, which says more than that it waits
        except errors.NotApprovedError:
            request = yield from self._refreshing()
            if request is not None and request.state is State.PENDING:  # its approval was undone
                raise signals.ConfirmationRequired.of(request) from None
            raise
        self._request = self._started.request
        return dict(self._started.args[0])

    def _ending(self, attempt: Attempt) -> Effects[None]:
        if self._request is not None:
            started = self._started
            if started is None:
                raise errors.NotApprovedError(
                    self._request.id, state=f"{self.state}, and was not started by this handle"
                )
            yield from end(self._gate, self._store, started, attempt, is_raised=False)
            self._started = None
        self._attempt = attempt
        yield from self._refreshing()

    def _resulting(self, timeout: timedelta | str | float | None) -> Effects[Any]:
        self._must_not_be_denied()
        if self._request is None:
            if self._attempt is None:
                raise errors.ValueNotKeptError(self._gate.name, "is not there: it was allowed, and has not run here")
            return self._attempt.unwrap()
        waiter, span = Waiter(self._run, self._store, stays=True), _span(timeout)
        yield from self._waiting(timeout)
        request = _sure((yield from self._refreshing()))
        if request.state is State.RUNNING:
            if span is not None:
                waiter.deadline = time.monotonic() + span.total_seconds()
            request = self._request = yield from _over(waiter, _ended(self._store, request, waiter))
        if request.state is State.UNKNOWN:
            raise errors.OutcomeUnknownError(request.id)
        if request.state is State.APPROVED:
            raise errors.NotApprovedError(request.id, state=f"{self.state} and has not been started")
        own = self._attempt
        if request.state is State.DONE and request.key is None and own is not None and own.raised is None:
            return own.value
        return (yield from replay(self._gate, self._store, request))

    def _withdrawing(self, reason: str | None) -> Effects[None]:
        if self._request is not None:
            yield from withdraw(self._store, self._request.id, reason or "the program withdrew it")
            yield from self._refreshing()

    def _sending_back(self, problems: Collection[str]) -> Effects[None]:
        if self._request is not None:
            self._request = yield StoreCall(self._store.send_back, self._request.id, scope.requester(), problems)

    def _leaving(self) -> Effects[None]:
        if self._withdraws:
            request = yield from self._refreshing()
            if request is not None and request.state is State.PENDING:
                yield from self._withdrawing("the program left before anybody decided")

    def _must_not_be_denied(self) -> None:
        if self._denial is not None:
            raise signals.ConfirmationDenied(self._denial)


_inside: ContextVar[tuple[HeldBase, ...]] = ContextVar("sayso_once", default=())
"""The handles whose allowed calls run in this context."""


class _Awaited:
    """The effect of waiting for a call that another thread or task runs."""

    def __init__(self, running: Future[Attempt]) -> None:
        self._running = running

    def __call__(self) -> Attempt:
        return self._running.result()

    async def arun(self) -> Attempt:
        import asyncio

        return await asyncio.wrap_future(self._running)


class _OnceCaller(Waiter):
    """`once`: it waits for a call that runs elsewhere, and for no person.

    Attributes:
        latest: The request as the loop saw it last; None where it is the one that was given.
        has_run: Whether the call was made here.
    """

    latest: Request | None = None
    has_run = False

    def wait(self, request: Request) -> Effects[None]:
        self.latest = request
        return Caller.wait(self, request)

    def running(self, request: Request) -> Effects[Request]:
        return _ended(self._store, request, self)

    def asks_anew(self, request: Request) -> bool:  # noqa: ARG002  the handle is of this request
        """Ask nothing anew: the handle is of this request."""
        return False

    def refused(self, request: Request) -> BaseException:
        self.latest = request
        return super().refused(request)

    def executed(self, request: Request, attempt: Attempt) -> Effects[None]:  # noqa: ARG002  its request says it
        yield from ()
        self.latest, self.has_run = request, True


def _ended(store: Store, request: Request, waiter: Waiter) -> Effects[Request]:
    after = yield from until_ended(store, request.id, waiter)
    if after.state is State.RUNNING:
        raise TimeoutError(f"the call of {request.id} still runs; nothing was started here")
    return after


class Held(HeldBase):
    """A call that waits for a person, or that a rule let through; made by `sayso.hold`.

    Everything that it raises is what a gated function raises: `ConfirmationRequired` where it waits,
    `ConfirmationRejected` for a no, a `StartRefusedError` where it cannot start.
    """

    def refresh(self) -> Request | None:
        """Look at the request again and return it."""
        return _run(self._refreshing())

    def wait(self, timeout: timedelta | str | float | None = None) -> Self:
        """Wait until the call is decided, and return this; what is approved has not run then.

        Args:
            timeout: Seconds, or a span such as `"90s"`; without end when not given. The request stays.

        Raises:
            ConfirmationRequired: The timeout passed.
            ConfirmationRejected: One of its kinds: the answer was no.
        """
        _run(self._waiting(timeout))
        return self

    def once(self, function: Callable[[dict[str, Any]], R]) -> R:
        """Run `function(arguments)` if it was approved and nobody has, and return its result.

        Whoever asks with the same key gets the same result, in other threads and processes as well: they wait for the
        one that runs. `function` gets the arguments as they were approved. What it raises is recorded and raised.

        Raises:
            ConfirmationRequired: Nobody has decided yet.
            ConfirmationRejected: The answer was no.
            CallFailedError: It ran elsewhere, and failed.
            OutcomeUnknownError: It was started, and nobody knows how it ended.
        """
        return _run(self._once(function)).unwrap()

    def start(self, *, by: str | None = None) -> dict[str, Any]:
        """Take the one right to run the call, durable on return, and return the arguments as they were approved.

        Then say how it ended: `finish`, `fail` or `unknown`. A process that ends before leaves it `unknown`. `by` names
        another process that runs the call (`sayso.stores.worker`); it says how it ended by `request.execution.token`.

        Raises:
            ConfirmationRequired: Nobody has decided yet.
            ConfirmationRejected: The answer was no.
            StartRefusedError: Somebody else has started it; nothing is to be run.
        """
        return _run(self._starting(by))

    def finish(self, result: Any = None) -> None:
        """Record that the call was done, and what it gave. Durable on return.

        Raises:
            OutcomeNotRecordedError: The store could not be told; so do `fail` and `unknown`. Say it again.
        """
        _run(self._ending(Attempt(result, None)))

    def fail(self, error: Exception | str) -> None:
        """Record that the call failed and surely had no effect. Durable on return."""
        _run(self._ending(Attempt(None, as_error(error))))

    def unknown(self, error: BaseException | str) -> None:
        """Record that nobody can say whether the call had its effect. Durable on return."""
        _run(self._ending(Attempt(None, as_error(error), is_ambiguous=True)))

    def withdraw(self, reason: str | None = None) -> None:
        """Take the request back, if it waits or was approved and has not started."""
        _run(self._withdrawing(reason))

    def send_back(self, *problems: str) -> None:
        """Let an approved edit wait for its reviewers again, because the tool refuses what they changed.

        The reviewers read `problems`, so that no value of an argument belongs there. Nothing happens where the request
        is no approved edit any more.
        """
        _run(self._sending_back(problems))

    def result(self, timeout: timedelta | str | float | None = None) -> Any:
        """Return what the call gave, whoever ran it; wait for the decision and for its end, and start nothing.

        Raises:
            NotApprovedError: It is approved, and nobody has started it.
            TimeoutError: It still runs after the timeout.
            ConfirmationRequired, ConfirmationRejected, CallFailedError, OutcomeUnknownError: As for `once`.
            ValueNotKeptError: It is done, and its result was not kept (without a key, or over 1 MB).
        """
        return _run(self._resulting(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _run(self._leaving())


class HoldOptions(TypedDict, total=False):
    """What `hold` takes beside the tool and its arguments; `hold` explains them."""

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
    """Hold a call that is no Python function, and return at once; durable then.

    Args:
        tool: Name of the tool: with the schema, what its calls are told apart by.
        arguments: By name; JSON values, or others that have a canonical form.
        schema: JSON Schema of the arguments (draft 2020-12, 2019-09 or 7), as a dict or text. The arguments are checked
            by it, and what a reviewer changes too.
        key: The occasion of the call in its run, such as a model's call id. The same key finds the same request for
            ever, in other processes as well; with other arguments it is refused.
        run: Name of the run; the current one (`sayso.run`) when not given. A key needs a run with a name.
        effect: What the call does to the world, across runs: a template over the arguments (`"refund:{order_id}"`) or
            a callable; as for `sayso.gate`.
        title: What people are to call the tool, marked as the program's words.
        description: What the tool does.
        when, always: As for `sayso.gate`: a rule gets the arguments that it names. What it allows runs unrecorded.
        quorum, roles, redact, expires, approval_expires, store: As for `sayso.gate`.
        context: Facts for the reviewer's front end: JSON values.
        withdraw_on_exit: As a context manager, take the request back on leaving while nobody has decided.
        suspends: As for `sayso.gate`: what the function of `once` raises when it has not ended and is made again.

    Raises:
        TypeError: There is no such option.
        ConfigError: An option cannot be used, or the key's run has no name. Nothing was asked.
        ArgumentError: An argument does not fit the schema, or has no canonical form.
        KeyReusedError: The key was used in this run for another call.
        PolicyError: The rule failed.
        StoreError: The request could not be recorded.
    """
    return _run(holding(Held, tool, arguments, **options))


H = TypeVar("H", bound=HeldBase)


def holding(
    kind: type[H], tool: str, arguments: Mapping[str, Any], **options: Unpack[HoldOptions]
) -> Effects[H]:  # fmt: skip
    """Check and ask, as `hold` says; written once for its sync and async form."""
    check_known("hold", options, HoldOptions.__optional_keys__)
    key, run, context = options.get("key"), options.get("run"), options.get("context")
    texts: dict[str, Any] = {name: options.get(name) for name in ("effect", "title", "description")}
    texts |= rule_options(options.get("when", NOT_GIVEN), options.get("always", False))
    given, shape = _given(arguments), _schema(options.get("schema"))
    _check(tool, given, key, texts)
    facts, names = None if context is None else dict(context), redact_names(options.get("redact", ()))
    gate = ForeignGate(
        no_function, named=tool, given=shape, quorum=quorum_of(options.get("quorum", 1), options.get("roles", ())),
        expires=duration.option("expires", options.get("expires", "24h")),
        approval_expires=duration.option("approval_expires", options.get("approval_expires", "24h")),
        redaction=Redaction(names), redact=names,
        context=None if facts is None else lambda masked: facts,  # noqa: ARG005  the hook's name for it
        suspends=exception_classes(options.get("suspends", ()), "suspends="), **texts,
    )  # fmt: skip
    _must_fit(gate, given)
    config.check_store(options.get("store"))
    where, around = config.open_store(options.get("store")), scope.current()
    here = around
    if run is not None:
        here = scope.Scope(scope.checked_name(run), acts_for=around.acts_for, outer=around)
    occasion = here.occasion_of_call(blocks=True)._replace(key=key)
    verdict, request, denial = (yield from ask_rule(gate, given, occasion)), None, None
    if verdict.kind == "deny":
        denial = yield from note_denial(gate, where, given, occasion, verdict)
    elif verdict.kind == "allow" and not verdict.is_recorded:
        request = yield from asked_before(gate, where, given, occasion, verdict)
        if request is not None:
            gate = cast("ForeignGate", under_record(gate, request, occasion))
        elif verdict.log:
            yield from note_allowed(gate, where, occasion, verdict)
    else:
        gate = cast("ForeignGate", gate.under(verdict))
        request = yield from find_or_ask(gate, where, given, wanted_of(gate, occasion, verdict), Caller(), verdict)
        if key is None and request.state is State.RUNNING:
            raise started_before(request)
    withdraws = options.get("withdraw_on_exit", False)
    return kind(gate, where, here, occasion, given, request, denial, withdraw_on_exit=withdraws)


def _must_fit(gate: Gate, arguments: dict[str, Any]) -> None:
    """Refuse arguments that do not fit the schema.

    Raises:
        ArgumentError: One does not; nothing was asked.
    """
    try:
        gate.schema.validate(arguments)
    except SchemaError as error:
        where, _, reason = error.problems[0].partition(": ")
        raise errors.ArgumentError(where, f"does not fit the schema of {gate.name} ({reason})") from None


def _check(tool: object, arguments: Mapping[str, Any], key: object, texts: Mapping[str, Any]) -> None:
    """Refuse options that cannot be used, before anything is asked."""
    if key is not None and (
        not isinstance(key, str) or not 0 < len(key) <= 200 or not key.isprintable() or key != key.strip()
    ):
        raise errors.ConfigError(f"key= takes a text of 1 to 200 characters without spaces around them, not {key!r}")
    for name in ("title", "description"):
        if texts[name] is not None and not isinstance(texts[name], str):
            raise errors.ConfigError(f"{name}= takes a text, not {texts[name]!r}")
    check_text("effect", texts["effect"], str(tool), tuple(arguments))


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise TypeError(f"hold() takes the arguments by name, as a dict, not {arguments!r}; nothing was asked")
    # The caller's own lists may change while it waits.
    return canonical.decode(canonical.encode(dict(arguments)).text, {})


def _schema(schema: Mapping[str, Any] | str | None) -> Schema:
    if schema is None:
        return Schema.of_json({"type": "object"})
    tree: Any = schema
    if isinstance(schema, str):
        try:
            tree = json.loads(schema)
        except ValueError as error:
            raise errors.ConfigError(f"schema= is no JSON: {error}; nothing was asked") from None
    if not isinstance(tree, Mapping):
        raise errors.ConfigError(f"schema= takes a JSON Schema as a dict or text, not {tree!r}; nothing was asked")
    return Schema.of_json(cast("Mapping[str, Any]", tree))


def _span(timeout: timedelta | str | float | None) -> timedelta | None:
    if isinstance(timeout, int | float):
        return max(timedelta(seconds=timeout), timedelta(microseconds=1))
    return None if timeout is None else duration.option("timeout", timeout)


def as_error(error: BaseException | str) -> BaseException:
    """Return what is recorded where the program says in words how a call ended."""
    return error if isinstance(error, BaseException) else RuntimeError(error)


def _differ(before: Any, after: Any) -> bool:
    return canonical.encode({"value": before}).text != canonical.encode({"value": after}).text


def _over(waiter: Waiter, effects: Effects[R]) -> Effects[R]:
    """Do what may wait; where it is broken off, take back what nobody waits for any more."""
    try:
        return (yield from effects)
    except BaseException as error:
        yield from waiter.break_off(error)
        raise
    finally:
        waiter.close()


def _sure(request: Request | None) -> Request:
    if request is None:
        raise RuntimeError("a call that nobody was asked about has no request")
    return request


def _run(effects: Effects[R]) -> R:
    try:
        return drive(effects)
    except BaseException as error:
        trim(error)
        raise
