"""The program's door: may this call run?

`check` asks the gate's rule, binds the call to its canonical form and finds or records its request; `execute` takes
the single right to run it, runs it from the stored form, and records how it ended. Both are generators of effects
(see `sayso.drive`), the same for sync and async programs. What a hold does to the program is decided in
`sayso.waiting`. The invariant: nothing but `execute` runs a call that was held.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from typing import Any, Literal, NamedTuple, NoReturn

from sayso import clock, errors
from sayso.drive import Attempt, Effects, Try, UserCode, Verb
from sayso.model import canonical, redaction, told
from sayso.model.call import Call
from sayso.model.fingerprint import call_digest, fingerprint
from sayso.model.ids import new_request_id, new_token
from sayso.model.lifecycle import Outcome, is_due
from sayso.model.quorum import Quorum
from sayso.model.redaction import Redaction
from sayso.model.request import Request, State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.shape import Shape, ShapeError
from sayso.model.signature import Signature, chosen
from sayso.model.tags import dump
from sayso.policy import Happened, Verdict, describe, verdict_of
from sayso.stores.base import Store

__all__ = ["Check", "Gate", "Place", "check", "current_request", "execute", "requester"]

_RESULT_LIMIT = 65_536
_ERROR_LIMIT = 2_000
_NO_SECRET_INSIDE = {str, int, float, bool}
_current: ContextVar[Request | None] = ContextVar("sayso_current_request", default=None)


@dataclass(frozen=True, eq=False)
class Gate:
    """A function, and what its calls need before they run; `sayso.gate` explains the options."""

    function: Callable[..., Any]
    when: bool | Callable[..., Any] = True
    prompt: str | Callable[..., Any] | None = None
    description: str | None = None
    expires: timedelta = timedelta(hours=24)
    approval_expires: timedelta = timedelta(hours=24)
    quorum: Quorum = Quorum()
    redaction: Redaction = Redaction()
    redactor: Callable[[dict[str, Any]], Any] | None = None
    redact: tuple[str, ...] = ()
    risk: str | None = None
    retries: int = 0
    idempotent: bool = False
    verify: Callable[..., Any] | None = None
    tool: str = field(init=False)
    name: str = field(init=False)
    shape: Shape = field(init=False)
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        derived = {
            "tool": canonical.function_name(self.function),
            "name": getattr(self.function, "__name__", type(self.function).__name__),
            "shape": Shape.of(self.function),
            "signature": Signature(self.function),
        }
        self.__dict__.update(derived)

    def asks(self, hook: Callable[..., Any], arguments: Mapping[str, Any]) -> UserCode:
        """Return the call of one of the gate's hooks with the arguments that it names."""
        return UserCode(hook, _choose(hook)(arguments))


@cache
def _choose(hook: Callable[..., Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return chosen(hook)


class Place(NamedTuple):
    """Where a call is made: the runs whose decisions count for it, and for whom it is made.

    Attributes:
        run_ids: The own run first, then those of parent tasks.
        adopted: Requests that were decided from here, by digest of their call.
        on_behalf_of: The person for whom the program acts.
    """

    run_ids: Sequence[str]
    adopted: Mapping[str, str]
    on_behalf_of: Identity | None


class Check(NamedTuple):
    """What the gate says to a call.

    Attributes:
        kind: `allow`: run it; `deny`: the rule refused it; `held`: a person must decide `request`; `ready`: run it by
            `execute`; `refused`: a person said no; `happened`: it ran before, and returned `result`.
        request: The request, but for `allow` and `deny`.
        reason: Why it was denied.
        result: What it returned, for `happened`.
    """

    kind: Literal["allow", "deny", "held", "ready", "refused", "happened"]
    request: Request | None = None
    reason: str | None = None
    result: Any = None


_ALLOWED = Check("allow")


def current_request() -> Request | None:
    """Return the request whose call is running here; None outside of a gated function.

    Its `id` is the same in every start of one approval: an idempotency key for the service that is called.
    """
    return _current.get()


@cache
def _program() -> Identity:
    name = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    try:
        return Identity(PROGRAM, name)
    except ValueError:  # a file name that cannot be shown as it is
        return Identity(PROGRAM, ascii(name).strip() or "python")


def requester() -> Identity:
    """Return the identity of this program."""
    return _program()


# -- check -----------------------------------------------------------------------------------------------------


def check(gate: Gate, store: Store, arguments: dict[str, Any], place: Place) -> Effects[Check]:
    """Find out whether a call may run.

    Raises:
        PolicyError: A rule, prompt or hook failed.
        ArgumentError: An argument has no canonical form.
        StartRefusedError: The call is running elsewhere, or its outcome is unknown.
        StoreError: The store failed.
    """
    verdict = yield from _verdict(gate, arguments)
    if verdict.kind == "allow":
        return _ALLOWED
    if verdict.kind == "deny":
        return (yield from _deny(gate, store, arguments, place, verdict))
    form = canonical.encode(arguments)
    if '"$' in form.text:  # the shape's classes are only wanted where a class may appear
        canonical.check_round_trip(form, gate.shape.classes)
    digest = call_digest(gate.tool, gate.shape.digest, form.digest_input)
    found = yield from _find(store, digest, place)
    if found is None:
        call = _call(gate, arguments, form, digest)
        found = yield from _ask(gate, store, call, arguments, place, verdict)
    return (yield from _answer(gate, store, found, arguments, place))


def _verdict(gate: Gate, arguments: dict[str, Any]) -> Effects[Verdict]:
    rule = gate.when
    if isinstance(rule, bool):
        return verdict_of(rule, rule)
    try:
        answer = yield gate.asks(rule, arguments)
    except Exception as error:  # user code: whatever it raises means that the call is not run
        _refuse(gate, describe(rule), error, arguments)
    return verdict_of(answer, rule)


def _refuse(gate: Gate, rule: str, error: Exception, arguments: dict[str, Any]) -> NoReturn:
    """Raise the `PolicyError` for a hook that failed; what quotes a secret of the call goes no further."""
    secrets = _secrets_among(gate, arguments)
    if secrets is None:
        raise errors.PolicyError(f"{rule} of {gate.name}", f"raised {type(error).__name__}") from None
    cause = None if told.quotes(error, secrets) else error
    raise errors.PolicyError(f"{rule} of {gate.name}", f"raised {told.error_text(error, secrets)}") from cause


def _deny(
    gate: Gate, store: Store, arguments: dict[str, Any], place: Place, verdict: Verdict
) -> Effects[Check]:
    secrets = _secrets_among(gate, arguments)
    reason = None if verdict.reason is None or secrets is None else told.fit(verdict.reason, secrets)
    detail = {"tool": gate.tool, "rule": describe(gate.when), "reason": reason}
    yield Verb(store.blocks, store.note, place.run_ids[0], "denied", _program(), detail)
    return Check("deny", reason=reason)


def _secrets_among(gate: Gate, arguments: dict[str, Any]) -> frozenset[str] | None:
    try:
        return _secrets(gate, canonical.encode(arguments).text, "")
    except errors.ArgumentError:
        return None  # nobody can say what is secret in them


def _find(store: Store, digest: str, place: Place) -> Effects[Request | None]:
    """Return the request that answers for this call here: one decided from here, the run's own, a parent's."""
    adopted = place.adopted.get(digest)
    if adopted is not None:
        with suppress(errors.RequestNotFoundError):
            found = yield from _settled(store, (yield Verb(store.blocks, store.get, adopted)))
            if found.holds:
                return found
    for run_id in place.run_ids:
        found = yield Verb(store.blocks, store.find, fingerprint(run_id, digest))
        if found is not None:
            found = yield from _settled(store, found)
            if found.holds:
                return found
    return None


def _settled(store: Store, request: Request) -> Effects[Request]:
    if request.state is State.RUNNING or is_due(request, clock.now()):
        return (yield Verb(store.blocks, store.settle, request.id))
    return request


def _call(gate: Gate, arguments: dict[str, Any], form: canonical.Form, digest: str) -> Call:
    # One brace: scalars only, which are their own form.
    tree: dict[str, Any] = arguments if form.text.count("{") == 1 else canonical.load(form.text)
    if gate.redactor is not None:
        tree = _shown_by_redactor(gate.redactor, arguments)
    masked = gate.redaction.mask(tree)
    is_masked = masked is not tree or gate.redactor is not None
    text = dump(masked) if is_masked else None
    return Call(gate.tool, gate.name, form.text, text, digest, gate.shape.text, gate.shape.digest)


def _shown_by_redactor(redactor: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> dict[str, Any]:
    shown = redaction.shown_by(redactor, arguments)
    try:
        return canonical.load(canonical.encode(shown).text)
    except errors.ArgumentError:
        return dict(redaction.FAILED)


def _secrets(gate: Gate, form: str, shown: str | None) -> frozenset[str]:
    """Return the texts of a call that nobody may see: what a name marks, and what the gate's redactor took out."""
    if shown is None:
        return frozenset()
    tree = canonical.load(form)
    marked = gate.redaction.secrets(tree)
    if gate.redactor is None:
        return marked
    return marked | {text for text in gate.redaction.texts(tree) if text not in shown}


def _secrets_of(gate: Gate, request: Request) -> frozenset[str]:
    return _secrets(gate, request.effective.form, request.effective.masked)


def _ask(
    gate: Gate, store: Store, call: Call, arguments: dict[str, Any], place: Place, verdict: Verdict
) -> Effects[Request]:
    prompt = verdict.prompt if verdict.prompt is not None else (yield from _prompt(gate, arguments))
    rule, secrets = _rule_text(gate, verdict), _secrets(gate, call.form, call.masked)
    now, run_id = clock.now(), place.run_ids[0]
    request = Request(
        id=new_request_id(),
        kind="call",
        run_id=run_id,
        fingerprint=fingerprint(run_id, call.digest),
        subject=call,
        requester=_program(),
        created_at=now,
        expires_at=now + (verdict.expires or gate.expires),
        approval_window=gate.approval_expires,
        quorum=verdict.quorum or gate.quorum,
        on_behalf_of=place.on_behalf_of,
        prompt=None if prompt is None else told.fit(prompt, secrets),
        description=gate.description,
        risk=verdict.risk or gate.risk,
        rule=None if rule is None else told.fit(rule, secrets),
        retries=gate.retries,
        idempotent=gate.idempotent,
        redact=gate.redact,
    )
    return (yield Verb(store.blocks, store.open, request))


def _rule_text(gate: Gate, verdict: Verdict) -> str | None:
    if isinstance(gate.when, bool):
        return verdict.reason
    rule = describe(gate.when)
    return rule if verdict.reason is None else f"{rule}: {verdict.reason}"


def _prompt(gate: Gate, arguments: dict[str, Any]) -> Effects[str | None]:
    if gate.prompt is None or isinstance(gate.prompt, str):
        return gate.prompt
    try:
        text = yield gate.asks(gate.prompt, arguments)
    except Exception as error:  # user code: a prompt that fails must not let the call through
        _refuse(gate, "prompt=", error, arguments)
    if not isinstance(text, str):
        raise errors.PolicyError(f"prompt= of {gate.name}", f"returned {type(text).__name__}, not a text")
    return text


def _answer(
    gate: Gate, store: Store, request: Request, arguments: dict[str, Any], place: Place
) -> Effects[Check]:
    match request.state:
        case State.PENDING:
            return Check("held", request)
        case State.APPROVED:
            return Check("ready", request)
        case State.REJECTED | State.FEEDBACK | State.CANCELLED | State.ANSWERED:
            return Check("refused", request)
        case State.UNKNOWN:
            return (yield from _unknown(gate, store, request, arguments, place))
        case State.RUNNING | State.DONE | State.FAILED | State.EXPIRED:
            # Running: somebody has the one start. The others do not hold; they are only met when they change
            # between being found and being read, and the next call asks anew.
            at = None if request.execution is None else request.execution.started_at
            raise errors.AlreadyStartedError(request.id, state=request.state, at=at, age="before")


def _unknown(
    gate: Gate, store: Store, request: Request, arguments: dict[str, Any], place: Place
) -> Effects[Check]:
    answer = None
    if gate.verify is not None:
        ran_with = canonical.decode(request.effective.form, gate.shape.classes)
        answer = yield from _verified(gate, gate.verify, request, ran_with)
    if answer is None:
        if request.idempotent:
            return Check("ready", request)
        raise errors.OutcomeUnknownError(request.id)
    hook = Identity(PROGRAM, f"verify={getattr(gate.verify, '__name__', 'hook')}")
    settle = partial(store.resolve, roles=None, happened=bool(answer), comment=None, channel="verify")
    resolved = yield Verb(store.blocks, settle, request.id, hook)
    if answer:
        result = answer.result if isinstance(answer, Happened) else None
        return Check("happened", resolved, result=result)
    if resolved.state is State.APPROVED:
        return Check("ready", resolved)
    return (yield from check(gate, store, arguments, place))


def _verified(
    gate: Gate, verify: Callable[..., Any], request: Request, arguments: dict[str, Any]
) -> Effects[Happened | bool | None]:
    token = _current.set(request)
    try:
        answer = yield gate.asks(verify, arguments)
    except Exception as error:  # user code: a hook that fails says nothing, and nothing is run
        _refuse(gate, "verify=", error, arguments)
    finally:
        with suppress(ValueError):  # as in `execute`
            _current.reset(token)
    if answer is None or isinstance(answer, bool | Happened):
        return answer
    raise errors.PolicyError(
        f"verify= of {gate.name}", f"returned {type(answer).__name__}, not True, False, None or Happened(result)"
    )


# -- execute ---------------------------------------------------------------------------------------------------


def execute(gate: Gate, store: Store, request: Request) -> Effects[Attempt]:
    """Start an approved call, run it from its stored form, and record how it ended.

    The start is durable before the call runs. An error of the call is a `failed` outcome; being broken off
    (cancellation, Ctrl-C, exit) is an `unknown` one, because nobody can say what it had done by then.

    Raises:
        StartRefusedError: Somebody else has the start, the approval ended, or the record was altered; nothing ran.
        InvalidChangesError: The edited arguments do not pass the function's own validation; nothing ran.
        OutcomeNotRecordedError: The call ran, and the store could not be told.
    """
    token = new_token()
    try:
        started = yield Verb(store.blocks, store.start, request.id, token)
        args, kwargs = gate.signature.spread(_arguments(gate, started))
    except (errors.StartRefusedError, GeneratorExit) as refusal:
        if isinstance(refusal, errors.AlteredRequestError):
            yield from _finish(store, request, token, Outcome("failed", error="not run: the record was altered"))
        raise
    except BaseException as error:  # also a cancellation: the start may be recorded, and surely nothing ran
        yield from _finish(store, request, token, Outcome("failed", error=f"not run: {type(error).__name__}"))
        raise
    before = _current.set(started)
    try:
        attempt: Attempt = yield Try(gate.function, args, kwargs)
    finally:
        with suppress(ValueError):  # a coroutine may be closed from a context that never had it
            _current.reset(before)
    yield from _record(gate, store, started, token, attempt)
    return attempt


def _arguments(gate: Gate, request: Request) -> dict[str, Any]:
    """Return the arguments to run with: from the stored form, if it is the one that was approved."""
    call = request.effective
    arguments, digest_input = canonical.read(call.form, lambda: gate.shape.classes)
    digest = call_digest(gate.tool, gate.shape.digest, digest_input)
    approved = request.decision.fingerprint if request.decision is not None else None
    if digest != call.digest or fingerprint(request.run_id, digest) != approved:
        raise errors.AlteredRequestError(request.id)
    if request.edited is not None:
        # The reviewer's process may not have had the function's own validators; here they are.
        try:
            gate.shape.validate(arguments)
        except ShapeError as error:
            raise errors.InvalidChangesError(request.id, error.problems) from None
    return arguments


def _finish(store: Store, request: Request, token: str, outcome: Outcome) -> Effects[None]:
    with suppress(errors.StartRefusedError):  # the start was not recorded, or somebody has resolved it by now
        yield Verb(store.blocks, store.finish, request.id, token, outcome)


def _record(gate: Gate, store: Store, request: Request, token: str, attempt: Attempt) -> Effects[None]:
    try:
        yield from _finish(store, request, token, _outcome(gate, request, attempt))
    except errors.StoreError as error:
        if attempt.raised is None:
            raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error
        attempt.raised.add_note(f"sayso: the outcome of {request.id} could not be recorded: {error}")


def _outcome(gate: Gate, request: Request, attempt: Attempt) -> Outcome:
    if attempt.raised is None:
        return Outcome("done", result=_kept_result(gate, request, attempt.value))
    text = told.error_text(attempt.raised, _secrets_of(gate, request))
    if len(text) > _ERROR_LIMIT:
        text = f"{text[:_ERROR_LIMIT]} … ({len(text) - _ERROR_LIMIT} more characters)"
    state = "failed" if isinstance(attempt.raised, Exception) else "unknown"
    return Outcome(state, error=text)


def _kept_result(gate: Gate, request: Request, value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = canonical.encode({"result": value}).text
    except Exception:  # a result needs no canonical form, and may be any object; the record does without
        return None
    if len(text) > _RESULT_LIMIT:
        return None
    secrets = _secrets_of(gate, request)
    if not secrets and type(value) in _NO_SECRET_INSIDE:
        return text
    tree = canonical.load(text)
    masked = gate.redaction.mask(tree)
    return redaction.scrub(text if masked is tree else dump(masked), secrets)
