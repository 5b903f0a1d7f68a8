"""`hold`: a call that is no Python function (a foreign tool with a JSON Schema) waits for a person.

It is the loop of `sayso.gate`, in the caller's hands: `hold` checks and asks, `Held.wait` waits, `Held.once` starts and
records, or `start` and `finish` do so by hand. `sayso.aio.hold` is the same, awaited. The invariant: what `once` and
`start` give out is what was approved, and it is given out once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Self, TypeVar, cast

from sayso import config, errors, scope, signals
from sayso.effects import Attempt, Effects, StoreCall, UserCall, drive
from sayso.gates import Check, Gate, Place, Started, again, begin, check, end, execute, requester
from sayso.gates.captured import CapturedValues
from sayso.gates.options import check_text, quorum_of, redact_names, span_of, tool_of
from sayso.model import canonical
from sayso.model.redaction import Redaction
from sayso.model.request import Request, State, not_run
from sayso.model.schema import Schema, SchemaError
from sayso.model.signature import Signature, chosen
from sayso.signals import trim
from sayso.stores.base import Store
from sayso.wait import Block, Waiter, until_ended

__all__ = ["Held", "HeldBase", "hold", "holding"]

R = TypeVar("R")
_NOES = {State.REJECTED, State.FEEDBACK, State.CANCELLED, State.EXPIRED}
_GONE = (errors.NotApprovedError, errors.ApprovalExpiredError, errors.AlreadyStartedError)


def _no_function(**_: Any) -> Any:
    raise RuntimeError("a held call has no function of its own")  # `once` brings one


class _ByName(Signature):
    """How a foreign tool is called: with one dict."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(_no_function)
        self.names = names

    def spread(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (dict(arguments),), {}


@dataclass(frozen=True, eq=False)
class _ForeignGate(Gate):
    """The gate of a call that is no Python function: its schema is given, and its names are not known for sure."""

    given: Schema = field(default_factory=lambda: Schema.of_json({"type": "object"}))

    def __post_init__(self) -> None:
        tool = tool_of(_no_function, self.named)
        hooks = [hook for hook in (self.when, self.effect) if callable(hook)]
        derived = {
            "tool": tool, "name": tool, "signature": _ByName(self.given.names), "is_self_contained": True,
            "_bare": self.given, "_captured": CapturedValues(_no_function), "_by_captured": {},
            "_hook_arguments": {id(hook): chosen(hook) for hook in hooks},
        }  # fmt: skip
        self.__dict__.update(derived)


class HeldBase:
    """What `Held` and `sayso.aio.Held` share: how the call stands, as it was last looked at."""

    def __init__(
        self, gate: Gate, store: Store, here: scope.Scope, place: Place, given: dict[str, Any], answer: Check, *,
        withdraw_on_exit: bool,
    ) -> None:  # fmt: skip
        self._gate, self._store, self._here, self._place = gate, store, here, place
        self._given, self._verdict = given, answer
        self._request = answer.request
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
        return "allowed" if self._verdict.kind == "allow" else "denied"

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
            return self._verdict.reason
        return None if self._request.decision is None else self._request.decision.comment

    def message_for_model(self) -> str:
        """Return what to tell the model that asked; empty for a call that was approved as it stood without a note."""
        if self._request is not None:
            return self._request.message_for_model()
        return "" if self._verdict.kind == "allow" else not_run(self._gate.name, str(self._denial()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._gate.name!r} {self.id} {self.state}>"

    # -- the verbs, as effects; `Held` and `sayso.aio.Held` drive them ------------------------------------------

    def _refreshing(self) -> Effects[Request | None]:
        if self._request is not None:
            self._request = yield StoreCall(self._store, self._store.settle, self._request.id)
        return self._request

    def _waiting(self, timeout: timedelta | str | float | None) -> Effects[None]:
        self._must_not_be_denied()
        request = yield from self._refreshing()
        if request is None:
            return
        waiter = Waiter(self._here, self._store)
        if request.state is State.PENDING:
            block = Block(_span(timeout), "reject")
            self._request = yield from _over(waiter, block.until_decided(self._store, request, waiter))
        if self._request is not None and self._request.state in _NOES:
            raise signals.refused(self._request)

    def _once(self, function: Callable[[dict[str, Any]], Any]) -> Effects[Attempt]:
        self._must_not_be_denied()
        if self._request is None:
            attempt = self._attempt
            if attempt is None:
                attempt = self._attempt = yield UserCall(function, (dict(self._given),), {})
            return attempt
        waiter = Waiter(self._here, self._store, stays=True)
        return (yield from _over(waiter, self._through(waiter, function)))

    def _through(self, waiter: Waiter, function: Callable[[dict[str, Any]], Any]) -> Effects[Attempt]:
        while True:
            answer = yield from self._looked(waiter)
            request = self._request = _sure(answer.request)
            match answer.kind:
                case "ready":
                    waiter.begin(request)
                    gate = replace(self._gate, function=function)
                    try:
                        self._attempt = yield from execute(gate, self._store, request, answer.needs)
                    except _GONE:
                        waiter.resume(request)
                        continue
                    yield from self._refreshing()
                    return self._attempt
                case "happened":
                    return Attempt(answer.result, None)
                case "held":
                    raise signals.ConfirmationRequired.of(request)
                case _:
                    raise signals.refused(request)

    def _looked(self, waiter: Waiter) -> Effects[Check]:
        """Find out how the call stands; wait for one that runs."""
        while True:
            request = _sure((yield from self._refreshing()))
            if request.state is State.EXPIRED:
                return Check("refused", request)
            if request.state is State.DONE and request.key is None and self._attempt is not None:
                return Check("happened", request, result=self._attempt.value)
            if request.state is not State.RUNNING:
                return (yield from again(self._gate, self._store, request, self._place))
            after = yield from until_ended(self._store, request.id, waiter)
            if after.state is State.RUNNING:
                raise TimeoutError(f"the call of {request.id} still runs; nothing was started here")

    def _starting(self) -> Effects[dict[str, Any]]:
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
            at = None if request.execution is None else request.execution.started_at
            raise errors.AlreadyStartedError(request.id, state=request.state, at=at, age="before")
        answer = yield from again(self._gate, self._store, request, self._place)
        self._request = _sure(answer.request)
        if answer.kind != "ready":  # what a reviewer changed does not fit: it waits again
            raise signals.ConfirmationRequired.of(self._request)
        self._started = yield from begin(self._gate, self._store, self._request, answer.needs)
        self._request = self._started.request
        return dict(self._started.args[0])

    def _ending(self, attempt: Attempt) -> Effects[None]:
        if self._request is not None:
            started, self._started = self._started, None
            if started is None:
                raise errors.NotApprovedError(
                    self._request.id, state=f"{self.state}, and was not started by this handle"
                )
            yield from end(self._gate, self._store, started, attempt)
        self._attempt = attempt
        yield from self._refreshing()

    def _resulting(self, timeout: timedelta | str | float | None) -> Effects[Any]:
        self._must_not_be_denied()
        if self._request is None:
            if self._attempt is None:
                raise errors.ValueNotKeptError(self._gate.name, "is not there: it was allowed, and has not run here")
            return self._attempt.unwrap()
        waiter, span = Waiter(self._here, self._store, stays=True), _span(timeout)
        yield from self._waiting(timeout)
        if span is not None:
            import time

            waiter.deadline = time.monotonic() + span.total_seconds()
        answer = yield from _over(waiter, self._looked(waiter))
        if answer.kind == "happened":
            return answer.result
        raise errors.NotApprovedError(_sure(answer.request).id, state=f"{self.state} and has not been started")

    def _withdrawing(self, reason: str | None) -> Effects[None]:
        if self._request is not None:
            why, verb = reason or "the program withdrew it", partial(self._store.withdraw, is_brief=True)
            yield StoreCall(self._store, verb, self._request.id, requester(), why)
            yield from self._refreshing()

    def _leaving(self) -> Effects[None]:
        if self._withdraws:
            request = yield from self._refreshing()
            if request is not None and request.state is State.PENDING:
                yield from self._withdrawing("the program left before anybody decided")

    def _denial(self) -> signals.ConfirmationDenied:
        return signals.ConfirmationDenied(self._verdict.reason or f"{self._gate.rule} denies {self._gate.name}")

    def _must_not_be_denied(self) -> None:
        if self._verdict.kind == "deny":
            raise self._denial()


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

    def start(self) -> dict[str, Any]:
        """Take the one right to run the call, durable on return, and return the arguments as they were approved.

        Then say how it ended: `finish`, `fail` or `unknown`. A process that ends before leaves it `unknown`.

        Raises:
            ConfirmationRequired: Nobody has decided yet.
            ConfirmationRejected: The answer was no.
            StartRefusedError: Somebody else has started it; nothing is to be run.
        """
        return _run(self._starting())

    def finish(self, result: Any = None) -> None:
        """Record that the call was done, and what it gave. Durable on return."""
        _run(self._ending(Attempt(result, None)))

    def fail(self, error: Exception | str) -> None:
        """Record that the call failed and surely had no effect. Durable on return."""
        _run(self._ending(Attempt(None, _error(error))))

    def unknown(self, error: BaseException | str) -> None:
        """Record that nobody can say whether the call had its effect. Durable on return."""
        _run(self._ending(Attempt(None, _error(error), is_ambiguous=True)))

    def withdraw(self, reason: str | None = None) -> None:
        """Take the request back, if it waits or was approved and has not started."""
        _run(self._withdrawing(reason))

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


def hold(
    tool: str, arguments: Mapping[str, Any], *, schema: Mapping[str, Any] | str | None = None, key: str | None = None,
    run: str | None = None, effect: str | Callable[..., Any] | None = None, title: str | None = None,
    description: str | None = None, when: bool | Callable[..., Any] = True, quorum: int = 1,
    roles: Collection[str] = (), redact: Collection[str] = (), expires: timedelta | str = "24h",
    approval_expires: timedelta | str = "24h", context: Mapping[str, Any] | None = None,
    store: Store | str | None = None, withdraw_on_exit: bool = False,
) -> Held:  # fmt: skip
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
        when: As for `sayso.gate`: a rule gets the arguments that it names. What it allows runs and nothing is written.
        quorum, roles, redact, expires, approval_expires, store: As for `sayso.gate`.
        context: Facts for the reviewer's front end: JSON values.
        withdraw_on_exit: As a context manager, take the request back on leaving while nobody has decided.

    Raises:
        ConfigError: An option cannot be used, or the key's run has no name. Nothing was asked.
        ArgumentError: An argument does not fit the schema, or has no canonical form.
        KeyReusedError: The key was used in this run for another call.
        PolicyError: The rule failed.
        StoreError: The request could not be recorded.
    """
    options = dict(locals())
    return _run(holding(Held, **options))


H = TypeVar("H", bound=HeldBase)


def holding(
    kind: type[H], *, tool: str, arguments: Mapping[str, Any], schema: Mapping[str, Any] | str | None,
    key: str | None, run: str | None, quorum: int, roles: Collection[str], redact: Collection[str],
    expires: timedelta | str, approval_expires: timedelta | str, context: Mapping[str, Any] | None,
    store: Store | str | None, withdraw_on_exit: bool, **texts: Any,
) -> Effects[H]:  # fmt: skip
    """Check and ask, as `hold` says; written once for its sync and async form."""
    given, shape = _given(arguments), _schema(schema)
    _check(tool, given, key, texts)
    facts, names = None if context is None else dict(context), redact_names(redact)
    gate = _ForeignGate(
        _no_function, named=tool, given=shape, quorum=quorum_of(quorum, roles),
        expires=span_of("expires", expires), approval_expires=span_of("approval_expires", approval_expires),
        redaction=Redaction(names), redact=names,
        context=None if facts is None else lambda masked: facts,  # noqa: ARG005  the hook's name for it
        **texts,
    )  # fmt: skip
    _must_fit(gate, given)
    config.check_store(store)
    where, around = config.open_store(store), scope.current()
    here = around
    if run is not None:
        here = scope.Scope(scope.checked_name(run), acts_for=around.acts_for, outer=around)
    place = here.place_of_call(blocks=True)._replace(key=key)
    answer = yield from _asked(gate, where, given, place)
    return kind(gate, where, here, place, given, answer, withdraw_on_exit=withdraw_on_exit)


def _asked(gate: Gate, store: Store, arguments: dict[str, Any], place: Place) -> Effects[Check]:
    try:
        return (yield from check(gate, store, arguments, place))
    except (errors.AlreadyStartedError, errors.CallFailedError, errors.OutcomeUnknownError, errors.ValueNotKeptError):
        # How it ended, or that it runs, is for `wait`, `once` and `result` to say: its handle is what was asked for.
        if place.key is None:
            raise
        found = yield StoreCall(store, store.find_key, place.run_ids[0], place.key)
        return Check("held", found)


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
    when = texts["when"]
    if not isinstance(when, bool) and not callable(when):
        raise errors.ConfigError(f"when= takes True, False or a callable, not {when!r}")
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
    if timeout is None:
        return None
    if isinstance(timeout, int | float):
        return max(timedelta(seconds=timeout), timedelta(microseconds=1))
    return span_of("timeout", timeout)


def _error(error: BaseException | str) -> BaseException:
    return error if isinstance(error, BaseException) else RuntimeError(error)


def _differ(before: Any, after: Any) -> bool:
    return canonical.encode({"value": before}).text != canonical.encode({"value": after}).text


def _over(waiter: Waiter, effects: Effects[R]) -> Effects[R]:
    """Do what may wait; where it is broken off, take back what nobody waits for any more."""
    try:
        return (yield from effects)
    except BaseException as error:
        yield from waiter.withdraw(error)
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
