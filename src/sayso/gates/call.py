"""One call through its gate: ask the rule, find or record the request, wait, start and execute.

Everything here is a generator of operations (`sayso.drivers`), so that sync and async functions share it. A `Caller`
decides how a call waits. Invariant: a held call runs only through `execute`, or its halves `begin` and `end`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from sayso import clock, config, errors, telemetry
from sayso.drivers import Attempt, InThread, Operations, StoreCall, UserCall, drive
from sayso.gates import captured
from sayso.gates.ambiguous import Handled, in_doubt, is_own_word, mark_unknown
from sayso.gates.hooks import (
    as_encoded,
    ask_rule,
    effect_of,
    facts_of,
    is_as_shown,
    key_of,
    masked_call,
    must_show_no_secret,
    note_allowed,
    note_denial,
    prompt_of,
    refused_by_types,
    secrets_of,
    text_of,
    unchanged,
    under_record,
)  # fmt: skip
from sayso.gates.options import Gate
from sayso.gates.outcome import asked_before, find_keyed, held_by_now, judged, look_into, outcome_of, replay
from sayso.gates.scope import Occasion, executing
from sayso.gates.signals import Caller, not_found_again, started_before
from sayso.model import canonical, redaction
from sayso.model.ids import StartToken, call_digest, fingerprint, new_request_id, new_token
from sayso.model.lifecycle import Outcome
from sayso.model.request import Call, Request, State, build_request
from sayso.policy import Verdict
from sayso.policy.verdict import HOLD
from sayso.stores import processes
from sayso.stores.program import ProgramStore

_OPEN = {State.PENDING, State.APPROVED}
_CHANGED = (errors.NotApprovedError, errors.ApprovalExpiredError, errors.AlreadyStartedError)
_NOBODY = Caller()


def current_request() -> Request | None:
    """Return the request whose call is running here; None outside a gated function.

    Its `id` is the same in every start of one approval, so it can be an idempotency key for the called service.
    """
    return next(reversed(executing.get()), None)


def gated_call(  # noqa: C901, PLR0912  one loop, to be read from top to bottom
    gate: Gate, store: ProgramStore, arguments: dict[str, Any] | None, occasion: Occasion, caller: Caller,
    request: Request | None = None,
) -> Operations[Attempt]:  # fmt: skip
    """Take one call through a gate: ask the rule, find or record its request, wait, start, run, record the outcome.

    Nothing is written for a call that the rule allows. An approved call runs with the recorded arguments.

    Args:
        gate: The gate of the function.
        store: The store for its request.
        arguments: The arguments by name; None for those of `request`.
        occasion: Where the call is made, and for whom.
        caller: Who makes it: how it waits, what a rejection raises, what is saved with it. It is closed at the end.
        request: The request that the call already waits for, if the caller knows it. The rule is then not asked, unless
            the call has to be asked again.

    Raises:
        ConfirmationRequired, ConfirmationRejected: Raised by the caller for a call that waits or was rejected.
        ConfigError: Another function that is gated as the same tool asked for this call.
        PolicyError: A rule, prompt or hook failed.
        ArgumentError: An argument has no canonical form, or does not fit the function's own types.
        KeyReusedError: The key was used for another call, or by a gate with weaker requirements.
        StartRefusedError: The call is running elsewhere, or its outcome is unknown.
        StoreError: The store failed.
        OutcomeNotRecordedError: The call ran, but its outcome could not be recorded.
    """
    asked, wanted, form = gate, occasion, "{}" if request is None else request.call.form
    waited: Request | None = None
    try:
        if request is not None:
            asked, wanted = as_recorded(gate, occasion, request)
            request = None if (yield from _is_taken_back(asked, store, wanted, request)) else request
        while True:
            if request is None:
                arguments = gate.schema.decode(form) if arguments is None else arguments
                verdict = yield from ask_rule(gate, arguments, occasion)
                if verdict is not HOLD and not verdict.is_recorded:
                    request = yield from asked_before(gate, store, arguments, occasion, verdict, waited)
                    if request is None:
                        return (yield from _unasked(gate, store, arguments, occasion, caller, verdict))
                    asked, wanted = as_recorded(gate, occasion, request)
                else:
                    asked = gate if verdict is HOLD else gate.under(verdict)
                    wanted = wanted_of(gate, occasion, verdict)
                    request = yield from find_or_ask(asked, store, arguments, wanted, caller, verdict)
            match request.state:
                case State.PENDING:  # a decision made meanwhile is found, and the rule may decide otherwise by then
                    after = yield from caller.wait(waited := request)
                case State.RUNNING:
                    after = yield from caller.running(request)
                case State.APPROVED | State.UNKNOWN:
                    after = yield from _run(asked, store, request, wanted, caller)
                case _:
                    after = yield from _closed(asked, store, request, caller)
            if isinstance(after, Attempt):
                return after
            request = after
    except BaseException as error:
        yield from caller.break_off(error)
        raise
    finally:
        caller.close()


def _unasked(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], occasion: Occasion, caller: Caller, verdict: Verdict
) -> Operations[Attempt]:
    """Run or refuse a call as the rule decides, without asking a person."""
    if verdict.kind == "deny":
        raise caller.denied((yield from note_denial(gate, store, arguments, occasion, verdict)))
    gate.check_bounds(arguments)
    if verdict.log:
        yield from unchanged(gate, arguments, note_allowed(gate, store, occasion, verdict))
    handled = Handled.now()
    attempt: Attempt = yield UserCall(gate.function, *caller.allowed(gate, arguments))
    is_own_word(attempt.raised, handled)  # and not that of a call around it
    caller.passed(attempt)
    return attempt


def _run(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion, caller: Caller
) -> Operations[Attempt | Request | None]:
    """Start and run an approved call, once; return how it ended.

    Returns:
        How the call ended; or its request, if that changed and must be looked at again; or None, if the call must be
        asked again.
    """
    if request.state is State.UNKNOWN:
        found = yield from look_into(gate, store, request, wanted, caller)
        if found is not request:
            return found
    elif caller.is_over(request):
        yield StoreCall(store.withdraw, request.id, config.requester(), "the decision counted until now")
        return None
    elif request.edited is not None and (returned := (yield from send_back(gate, store, request))) is not None:
        return returned
    caller.begin(request)
    try:
        attempt = yield from execute(gate, store, request, wanted, caller)
    except _CHANGED:  # since it was read; its new state decides
        caller.not_started(request)
        after: Request = yield StoreCall(store.settle, request.id)
        if after == request:  # it would be refused again, e.g. by a grant that has ended, or by a server
            raise
        return after
    yield from caller.executed(request, attempt)
    return attempt


def _closed(gate: Gate, store: ProgramStore, request: Request, caller: Caller) -> Operations[Attempt | None]:
    """Return the result of a call with a key; None if the call is asked again; raise for a request that is closed."""
    match request.state:
        case State.DONE | State.FAILED if request.key is not None:
            value = yield from replay(gate, store, request)
            caller.happened(request)
            return Attempt(value, None)
        case State.DONE | State.FAILED:  # it ended after it was found; the next call asks again
            raise started_before(request)
        case State.EXPIRED | State.CANCELLED if not (request.holds or request.key) and caller.asks_anew(request):
            return None
        case _:
            raise caller.refused(request)


# -- what the gate asks for ----------------------------------------------------------------------------------------


def wanted_of(gate: Gate, occasion: Occasion, verdict: Verdict) -> Occasion:
    """Return what the gate requires for a call that its rule holds."""
    # If a rule names who must approve, the gate's own escalation does not apply, unless the rule adds one.
    escalation = verdict.escalation or (gate.escalation if verdict.quorum is None else None)
    return occasion._replace(
        quorum=verdict.quorum or gate.quorum, escalation=escalation, retries=gate.retries, idempotent=gate.idempotent
    )


def _is_taken_back(
    gate: Gate, store: ProgramStore, wanted: Occasion, request: Request, verdict: Verdict | None = None
) -> Operations[bool]:  # fmt: skip
    """Withdraw an open request that has less than the gate now requires; return whether it was withdrawn.

    Raises:
        KeyReusedError: It has less and has a key, so nothing could be asked in its place; it stays.
    """
    if request.state not in _OPEN:
        return False
    lack = wanted.lack_of(request)
    under = None if request.decision is None else request.decision.under
    is_held = verdict is not None and (verdict.always or (under == "budget" and not verdict.budgets))
    if lack is None and under is not None and (gate.always or is_held):
        lack = "no person has approved it, and the gate now requires one"
    if lack is None and gate.effect is not None and request.edited is None:
        effect = yield from effect_of(gate, gate.schema.decode(request.call.form))
        if effect != request.effect:
            lack = f"it has the effect {request.effect!r}, and the gate now gives {effect!r}"
    if lack is None:
        return False
    if request.key is not None:
        raise errors.KeyReusedError(
            request.run_id, request.key, request_id=request.id, what=f"weaker requirements: {lack}"
        )
    yield StoreCall(store.withdraw, request.id, config.requester(), lack)
    return True


def as_recorded(gate: Gate, occasion: Occasion, request: Request) -> tuple[Gate, Occasion]:
    """Return the gate and what it requires for a request whose rule is not asked again.

    The stricter of gate and record applies; raises `PolicyError` as `under_record`.
    """
    # A rule may have required other people than the gate does, and only the record has their names.
    who = gate if isinstance(gate.when, bool) and request.rule is None else request
    wanted = occasion._replace(
        quorum=who.quorum, escalation=who.escalation, retries=gate.retries, idempotent=gate.idempotent
    )
    return under_record(gate, request, occasion), wanted


def send_back(gate: Gate, store: ProgramStore, request: Request) -> Operations[Request | None]:
    """Return an edit to its reviewers that only the program can reject: by its own types, or for another effect.

    Returns:
        The request, which waits for its reviewers again; None if nothing prevents a start.
    """
    if request.edited is None:
        return None
    problems = refused_by_types(gate, request, request.edited)
    if not problems and gate.effect is not None:
        effect = yield from effect_of(gate, gate.schema.decode(request.edited.form))
        problems = [] if effect == request.effect else [_moved(effect, request)]
    if not problems:
        return None
    # First compare the row with the journal: returning an altered one would hide that it was altered.
    yield StoreCall(store.settle, request.id)
    return (yield StoreCall(store.send_back, request.id, config.requester(), problems))


def _moved(effect: str, request: Request) -> str:
    there_is = f"these arguments have the effect {effect!r}, but the request is for {request.effect!r}"
    return f"effect: {there_is}; let the program ask for that call instead"


# -- find or record ----------------------------------------------------------------------------------------------


def find_or_ask(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], wanted: Occasion, caller: Caller,
    verdict: Verdict = HOLD,
) -> Operations[Request]:  # fmt: skip
    """Return the current request that answers this call, or else a new one; durable on return.

    Args:
        gate: The function's gate.
        store: The store for requests.
        arguments: By name.
        wanted: Where the call is made, and what a new request requires.
        caller: Who records it.
        verdict: The rule's verdict.
    """
    form, schema = canonical.encode(arguments), gate.schema
    if '"$' in form.text:  # only a tagged value can contain a class
        canonical.check_round_trip(form, schema.classes)
    digest = call_digest(gate.tool, schema.digest, form.digest_input)
    if gate.key is not None or wanted.key is not None:
        wanted = wanted._replace(key=(yield from key_of(gate, as_encoded(schema, arguments, form), wanted)))
    own = fingerprint(wanted.run_ids[0], digest, wanted.place, wanted.key)
    is_own = wanted.key is None and wanted.pool is None and len(wanted.run_ids) == 1 and digest not in wanted.adopted
    prompt = gate.prompt if verdict.prompt is None else verdict.prompt
    # Without hooks, creating a request in vain has no side effect.
    has_hooks = any(map(callable, (gate.context, prompt, gate.title, gate.summary, gate.effect)))
    asks_first = is_own and caller.finds and not has_hooks and store.asks_first(own)
    while True:
        found = None if asks_first else (yield from _find(gate, store, digest, own, wanted, caller))
        is_new = False
        if found is None:
            if wanted.pool is not None:
                raise not_found_again(gate.name, wanted.pool)
            arguments = as_encoded(schema, arguments, form)  # what is shown of the call is made of what would run
            call = masked_call(gate, arguments, form, schema, digest)
            request = yield from _new_request(gate, call, own, arguments, wanted, verdict)
            found = yield from caller.ask(store, request)
            is_new = found.id == request.id
            if asks_first and not is_new and (found := (yield from held_by_now(store, found))) is None:
                continue  # it has just ended
        if not (wanted.place or gate.is_self_contained):  # a journaled run identifies its calls by their places
            gate.captured.check_asked(found.id, gate.tool)
        if is_new or not (yield from _is_taken_back(gate, store, wanted, found, verdict)):
            return found
        # Require both: otherwise two programs with different requirements would withdraw each other's requests forever.
        wanted = wanted.joined(found)


def _find(
    gate: Gate, store: ProgramStore, digest: str, own: str, occasion: Occasion, caller: Caller
) -> Operations[Request | None]:
    """Return the request that answers this call: that of its key, one decided here, the run's own, or a parent's."""
    if occasion.key is not None:
        return (yield from find_keyed(gate, store, lambda: digest, occasion))
    if not caller.finds:
        return None
    adopted = occasion.adopted.get(digest)
    finds = [*([] if adopted is None else [StoreCall(store.get, adopted)]), StoreCall(store.find, own)]
    finds += [StoreCall(store.find, fingerprint(run_id, digest, occasion.place)) for run_id in occasion.run_ids[1:]]
    for find in finds:
        try:
            found: Request | None = yield find
        except errors.RequestNotFoundError:  # what was decided here is in another store
            continue
        if found is not None and (held := (yield from held_by_now(store, found))) is not None:
            return held
    return None


def _new_request(
    gate: Gate, call: Call, own: str, arguments: dict[str, Any], wanted: Occasion, verdict: Verdict
) -> Operations[Request]:
    secrets = frozenset[str]() if call.masked is None else secrets_of(gate, call.form, call.masked)
    if wanted.key is not None:
        must_show_no_secret(gate, "key", wanted.key, secrets)
    facts = effect = None
    if wanted.context is not None or gate.context is not None or verdict.context is not None:
        facts = yield from facts_of(gate, call, arguments, wanted, verdict, secrets)
    prompt = gate.prompt if verdict.prompt is None else verdict.prompt
    if prompt is not None:
        prompt = redaction.fit((yield from prompt_of(gate, prompt, arguments)), secrets)
    rule, named = verdict.reason, verdict.rule or (None if isinstance(gate.when, bool) else gate.rule)
    if named is not None:
        rule = named if rule is None else f"{named}: {rule}"
    if gate.effect is not None:
        effect = yield from effect_of(gate, arguments)
        must_show_no_secret(gate, "effect", effect, secrets)
    title = None if gate.title is None else (yield from text_of(gate, "title", gate.title, arguments, secrets))
    summary = None if gate.summary is None else (yield from text_of(gate, "summary", gate.summary, arguments, secrets))
    now = clock.now()
    return build_request(
        id=new_request_id(),
        kind="call",
        run_id=wanted.run_ids[0],
        fingerprint=own,
        place=wanted.place,
        subject=call,
        key=wanted.key,
        effect=effect,
        title=title,
        summary=summary,
        requester=config.requester(),
        created_at=now,
        expires_at=now + (verdict.expires or gate.expires),
        approval_window=gate.approval_expires,
        quorum=wanted.quorum,
        on_behalf_of=wanted.acts_for[0] if wanted.acts_for else None,
        also_for=wanted.acts_for[1:],
        process=None if wanted.has_name else processes.current(),
        prompt=prompt,
        description=None if gate.description is None else redaction.fit(gate.description, secrets),
        risk=verdict.risk or gate.risk,
        rule=None if rule is None else redaction.fit(rule, secrets),
        retries=gate.retries,
        idempotent=gate.idempotent,
        redact=gate.redact,
        channels=gate.channels,
        notify_arguments=gate.notify_arguments,
        escalation=wanted.escalation,
        context=facts,
        always=gate.always or verdict.always,
        approve_from_notification=verdict.approve_from_notification,
        budgets=tuple((one.text, one.name) for one in verdict.budgets) if verdict.budgets else (),
    )


# -- start, run, record --------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """The single right to run an approved call, granted.

    Attributes:
        request: The request, which is running.
        token: The token that `ProgramStore.finish` needs.
        args: The positional arguments.
        kwargs: The keyword arguments.
        pid: The process that began the call, and records its end.
    """

    request: Request
    token: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pid: int


def execute(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion | None = None, caller: Caller = _NOBODY
) -> Operations[Attempt]:
    """Start an approved call, run it from its stored form, and record how it ended.

    The start is durable before the call runs. If the call raises an error, its outcome is `failed`; after an ambiguous
    one (`sayso.gates.ambiguous`), which gets a note, or an interruption (cancellation, Ctrl-C, exit), it is `unknown`.

    Args:
        gate, store, request: The function's gate, its store and the request to start.
        wanted: What its approval must satisfy. Defaults to the stricter of its record and the gate.
        caller: Who makes the call; what it saves of its run is stored together with the outcome.

    Raises:
        StartRefusedError: Somebody else started it, the approval ended, or the record was altered; nothing ran.
        InvalidChangesError: The edited arguments fail the function's own validation; nothing ran.
        OutcomeNotRecordedError: The call ran, but its outcome could not be recorded.
    """
    started = yield from begin(gate, store, request, wanted, caller=caller)
    before, handled = executing.set((*executing.get(), started.request)), Handled.now()
    try:
        try:
            call = UserCall(gate.function, started.args, started.kwargs, started.token)
            is_in_doubt = partial(in_doubt, gate.ambiguous, handled)
            attempt: Attempt = yield telemetry.executing(started.request, call, is_in_doubt)
        finally:
            with suppress(ValueError):  # a coroutine may be closed in a context without it
                executing.reset(before)
        attempt = judged(gate, attempt, handled)
    except BaseException as error:  # usually Ctrl-C right after the call; the call must not stay `running`
        if started.pid == os.getpid() and not isinstance(error, GeneratorExit):
            yield from _not_recorded(store, started, error)
        raise
    ran = started.request.execution
    if ran is not None and ran.unresolved and attempt.raised is not None:
        attempt = attempt._replace(is_ambiguous=True)  # it does not tell how the earlier start ended
    if started.pid != os.getpid():  # a child that the call forked; it goes on in its parent, which records its end
        return attempt
    if attempt.left is not None:
        yield from _leave(gate, store, started, attempt.left)
        return attempt
    return (yield from end(gate, store, started, attempt, caller))


def begin(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion | None = None, by: str | None = None,
    caller: Caller = _NOBODY,
) -> Operations[Started]:  # fmt: skip
    """Start an approved call, for this process or the worker `by`: the first half of `execute`; durable on return.

    If the approval can still be undone, it first waits until that time is over.
    """
    token, started, pid = StartToken(new_token()), None, os.getpid()
    try:
        while started is None:
            try:
                started = yield StoreCall(store.start, request.id, token, by=by)
            except errors.ApprovalHeldError as held:
                yield from caller.held_back(request, held.milliseconds / 1000)
        arguments = _approved_arguments(gate, started, wanted)
        if gate.effect is not None:
            yield from _must_have_effect(gate, started, arguments)
            # Its hook may have changed them, or a value that the function captures.
            arguments = _approved_arguments(gate, started, wanted)
        args, kwargs = gate.signature.spread(arguments)
        caller.started(started)
    except errors.AlteredRequestError as refusal:
        with suppress(errors.StoreCorruptError):  # an altered row is not written to; it was not started either
            yield from _failed_to_start(store, request, token, str(refusal))
        raise
    except (errors.StartRefusedError, GeneratorExit):
        raise
    except BaseException as error:  # also a cancellation: the start may be recorded, and nothing ran
        yield from _failed_to_start(store, request, token, f"not run: {type(error).__name__}")
        raise
    if os.getpid() != pid:
        raise errors.StartRefusedError(request.id, f"process {pid} started {request.id} and has forked this one")
    telemetry.log("started", started)
    return Started(started, token, args, kwargs, pid)


def _failed_to_start(store: ProgramStore, request: Request, token: str, why: str) -> Operations[None]:
    with suppress(errors.StartRefusedError):  # the start was not recorded either
        yield StoreCall(_finish_not_run, store, request.id, token, why)  # one operation: anyio cancels each await


def _finish_not_run(store: ProgramStore, request_id: str, token: str, why: str) -> None:
    ran = store.get(request_id).execution  # as it was started: it may have been started since it was read
    is_begun = ran is not None and ran.stopped  # an earlier start keeps its effect
    store.finish(request_id, token, Outcome("suspended") if is_begun else Outcome("failed", error=why, not_run=True))


def _must_have_effect(gate: Gate, started: Request, arguments: dict[str, Any]) -> Operations[None]:
    effect = yield from effect_of(gate, arguments)
    if effect != started.effect:  # which the start took
        raise errors.InvalidChangesError(started.id, [_moved(effect, started)])


def end(
    gate: Gate, store: ProgramStore, start: Started, attempt: Attempt, caller: Caller = _NOBODY, *,
    is_raised: bool = True,
) -> Operations[Attempt]:  # fmt: skip
    """Record how a started call ended; if that fails, add a note to its error if it `is_raised`, else raise."""
    request, raised, is_resolved = start.request, attempt.raised, False
    try:
        outcome, saved = outcome_of(gate, request, attempt), caller.saving(attempt)
    except BaseException as error:  # as in `execute`
        yield from _not_recorded(store, start, error)
        raise
    try:
        after: Request = yield StoreCall(store.finish, request.id, start.token, outcome, saved)
    except errors.StartRefusedError:
        is_resolved = True
        telemetry.warn(
            "the call of %s ended here as %s, but its worker was presumed dead and somebody has resolved its outcome;"
            " the request is unchanged, and its journal records this", request.id, outcome.state,
        )  # fmt: skip
    except errors.StoreError as error:
        if raised is None or not is_raised:
            raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error
        raised.add_note(f"sayso: the outcome of {request.id} could not be recorded: {error}")
    else:
        telemetry.log("ended", request, outcome.state)
        if saved is not None:
            caller.saved()
        if not after.holds:
            captured.forget(request.id)
    if raised is not None and attempt.is_ambiguous and outcome.state == "unknown" and not is_resolved:
        starts = 1 if request.execution is None else request.execution.starts
        mark_unknown(raised, request.id, may_start_again=request.idempotent, start=starts)
    return attempt


def _not_recorded(store: ProgramStore, start: Started, error: BaseException) -> Operations[None]:
    with suppress(errors.SaysoError):
        outcome = Outcome("unknown", error=f"not recorded: {type(error).__name__}")
        yield StoreCall(store.finish, start.request.id, start.token, outcome, None)


def _leave(gate: Gate, store: ProgramStore, start: Started, left: InThread) -> Operations[None]:
    """Record a call as unknown whose task was cancelled, and how it ends when its thread does.

    Without an end in the record, other processes see that this worker is alive, and ask nobody how the call ended.
    """
    left.when_ended(partial(_end_late, gate, store, start))
    ran = start.request.execution
    with suppress(errors.StoreError):
        yield StoreCall(store.settle, start.request.id, gone=None if ran is None else ran.worker)


def _end_late(gate: Gate, store: ProgramStore, start: Started, attempt: Attempt) -> None:
    if start.pid != os.getpid():  # a child that the thread forked
        return
    try:
        drive(end(gate, store, start, judged(gate, attempt), is_raised=False))
    except errors.SaysoError as error:  # nobody waits for this thread
        telemetry.warn("the call of %s has ended in its thread: %s", start.request.id, error)


def _approved_arguments(gate: Gate, request: Request, wanted: Occasion | None) -> dict[str, Any]:
    """Return the arguments from the stored form, after checking that they are the approved ones."""
    call = request.effective
    arguments, digest_input = canonical.read(call.form, lambda: gate.schema.classes)
    digest = call_digest(gate.tool, gate.schema.digest, digest_input)
    decision = request.decision
    # Every decision has a fingerprint, even a rejection; only an approval allows a start.
    approved = decision.fingerprint if decision is not None and decision.verb == "approve" else None
    if digest != call.digest or request.fingerprint_of(digest) != approved:
        raise errors.AlteredRequestError(request.id)
    is_drawn = call.masked is None or is_as_shown(gate, call, call.masked)
    if (call.tool, call.name) != (gate.tool, gate.name) or not is_drawn:
        raise errors.AlteredRequestError(request.id, "what is shown of the call is not what would run")
    if request.missing_votes:
        raise errors.AlteredRequestError(request.id, f"it has fewer approvals than required ({request.quorum})")
    if wanted is None:
        wanted = Occasion(
            (), {}, request.acts_for, quorum=request.quorum, escalation=request.escalation, retries=gate.retries,
            idempotent=gate.idempotent,
        )  # fmt: skip
    if (lack := wanted.lack_of(request)) is not None:
        raise errors.AlteredRequestError(request.id, lack)
    # `gated_call` checks this before the start; other callers may not.
    if request.edited is not None and (problems := refused_by_types(gate, request, request.edited)):
        raise errors.InvalidChangesError(request.id, problems)
    return arguments
