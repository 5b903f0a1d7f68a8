"""One call through its gate: ask the rule, find or record the request, wait, start and execute.

Everything here is a generator of effects (`sayso.effects`), so sync and async functions share it. How a call waits is
up to its `Caller`. Invariant: a held call runs only through `execute`, or its halves `begin` and `end`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from sayso import clock, errors, telemetry
from sayso.effects import Attempt, Effects, StoreCall, UserCall
from sayso.gates import captured
from sayso.gates.caller import Caller, not_found_again, started_before
from sayso.gates.hooks import (
    ask_rule,
    ask_verify,
    effect_of,
    facts_of,
    has_no_hooks,
    key_of,
    must_show_no_secret,
    note_allowed,
    note_denial,
    prompt_of,
    text_of,
    under_record,
)  # fmt: skip
from sayso.gates.keys import asked_before, find_keyed, replay
from sayso.gates.masking import is_as_shown, masked_call, refused_by_types, secrets_of
from sayso.gates.options import Gate
from sayso.gates.outcome import judged, mark_unknown, outcome_of, warn_of_late_end
from sayso.gates.scope import Occasion, executing, requester
from sayso.model import canonical, redaction
from sayso.model.ids import call_digest, fingerprint, new_request_id, new_token
from sayso.model.lifecycle import Outcome, is_due
from sayso.model.request import Call, Request, State, build_request
from sayso.model.reviewer import PROGRAM, Identity
from sayso.policy import Happened, Verdict
from sayso.policy.verdict import HOLD
from sayso.stores import worker
from sayso.stores.program import ProgramStore

_OPEN = {State.PENDING, State.APPROVED}
_CHANGED = (errors.NotApprovedError, errors.ApprovalExpiredError, errors.AlreadyStartedError)
_NOBODY = Caller()


def current_request() -> Request | None:
    """Return the request whose call is running here; None outside of a gated function.

    Its `id` is the same in every start of one approval: an idempotency key for the service that is called.
    """
    running = executing.get()
    return running[-1] if running else None


def gated_call(  # noqa: C901, PLR0912  one loop, read in one go
    gate: Gate, store: ProgramStore, arguments: dict[str, Any] | None, occasion: Occasion, caller: Caller,
    request: Request | None = None,
) -> Effects[Attempt]:  # fmt: skip
    """Take one call through a gate: ask the rule, find or record its request, wait, start, run, record the end.

    Nothing is written for a call that the rule lets through. What is approved runs from the recorded arguments.

    Args:
        gate: The gate of the function that is called.
        store: Where its request lives.
        arguments: The arguments by name; None for those of `request`.
        occasion: Where the call stands, and for whom it is made.
        caller: Who makes it: how it waits, what a no raises, what is saved with it. It is closed at the end.
        request: The request that the call waits for already, where its caller knows it. Then no rule is asked, unless
            it has to be asked anew.

    Raises:
        ConfirmationRequired, ConfirmationRejected: What the caller raises for a call that waits, or got a no.
        ConfigError: Another function, gated as the same tool, asked for this call.
        PolicyError: A rule, prompt or hook failed.
        ArgumentError: An argument has no canonical form, or does not fit the function's own types.
        KeyReusedError: The key was used for another call, or by a gate that asked for less.
        StartRefusedError: The call is running elsewhere, or its outcome is unknown.
        StoreError: The store failed.
        OutcomeNotRecordedError: The call ran, and the store could not be told.
    """
    asked, wanted, form = gate, occasion, "{}" if request is None else request.call.form
    waited: Request | None = None
    try:
        if request is not None:
            asked, wanted = under_record(gate, request, occasion), wanted_again(gate, occasion, request)
            request = None if (yield from _is_taken_back(asked, store, wanted, request)) else request
        while True:
            if request is None:
                arguments = canonical.decode(form, gate.schema.classes) if arguments is None else arguments
                verdict = yield from ask_rule(gate, arguments, occasion)
                if verdict is not HOLD and not verdict.is_recorded:
                    request = yield from asked_before(gate, store, arguments, occasion, verdict, waited)
                    if request is None:
                        return (yield from _unasked(gate, store, arguments, occasion, caller, verdict))
                    asked, wanted = under_record(gate, request, occasion), wanted_again(gate, occasion, request)
                else:
                    asked = gate if verdict is HOLD else gate.under(verdict)
                    wanted = wanted_of(gate, occasion, verdict)
                    request = yield from find_or_ask(asked, store, arguments, wanted, caller, verdict)
            match request.state:
                case State.PENDING:  # what is decided meanwhile is found, and the rule may say otherwise by then
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
) -> Effects[Attempt]:
    """Let a call through, or refuse it, as the rule says without asking a person."""
    if verdict.kind == "deny":
        raise caller.denied((yield from note_denial(gate, store, arguments, occasion, verdict)))
    gate.check_bounds(arguments)
    if verdict.log:
        yield from note_allowed(gate, store, occasion, verdict)
    attempt: Attempt = yield UserCall(gate.function, *caller.allowed(gate, arguments))
    caller.passed(attempt)
    return attempt


def _run(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion, caller: Caller
) -> Effects[Attempt | Request | None]:
    """Start and run an approved call, once; return how it ended.

    Returns:
        How the call ended; or its request, where that changed and is to be looked at again; or None, where the call is
        to be asked anew.
    """
    if request.state is State.UNKNOWN:
        found = yield from _look_into(gate, store, request, wanted, caller)
        if found is not request:
            return found
    elif caller.is_over(request):
        yield StoreCall(store.withdraw, request.id, requester(), "the decision counted until now")
        return None
    elif request.edited is not None and (returned := (yield from send_back(gate, store, request))) is not None:
        return returned
    caller.begin(request)
    try:
        attempt = yield from execute(gate, store, request, wanted, caller)
    except _CHANGED as refusal:  # since it was read; what it has become says the rest
        caller.resume(request)
        after: Request = yield StoreCall(store.settle, request.id)
        # A server gives out no further start before a person has answered something: to ask again changes nothing.
        if isinstance(refusal, errors.AlreadyStartedError) and after == request:
            raise
        return after
    yield from caller.executed(request, attempt)
    return attempt


def _closed(gate: Gate, store: ProgramStore, request: Request, caller: Caller) -> Effects[Attempt | None]:
    """Return what the call of a key gave; None where the call is asked anew; raise what its request has become."""
    match request.state:
        case State.DONE | State.FAILED if request.key is not None:
            value = yield from replay(gate, store, request)
            caller.happened(request)
            return Attempt(value, None)
        case State.DONE | State.FAILED:  # it ended between being found and being read; the next call asks anew
            raise started_before(request)
        case State.EXPIRED | State.CANCELLED if not (request.holds or request.key) and caller.asks_anew(request):
            return None
        case _:
            raise caller.refused(request)


# -- what the gate asks for ----------------------------------------------------------------------------------------


def wanted_of(gate: Gate, occasion: Occasion, verdict: Verdict) -> Occasion:
    """Return what the gate asks for of a call that its rule holds."""
    # A rule that names who must agree does not mean those whom the gate would let in later, unless it says so.
    escalation = verdict.escalation or (gate.escalation if verdict.quorum is None else None)
    return occasion.asking_for(verdict.quorum or gate.quorum, escalation, gate.retries, idempotent=gate.idempotent)


def _is_taken_back(
    gate: Gate, store: ProgramStore, wanted: Occasion, request: Request, verdict: Verdict | None = None
) -> Effects[bool]:  # fmt: skip
    """Withdraw a request that waits, or was approved, and is less than the gate asks for now; say whether it was.

    Raises:
        KeyReusedError: It is less, and has a key: nothing could be asked in its place, so it stays.
    """
    if request.state not in _OPEN:
        return False
    lack = wanted.lack_of(request)
    under = None if request.decision is None else request.decision.under
    is_held = verdict is not None and (verdict.always or (under == "budget" and not verdict.budgets))
    if lack is None and under is not None and (gate.always or is_held):
        lack = "no person has looked at it, and the gate wants one now"
    if lack is None and gate.effect is not None and request.edited is None:
        effect = yield from effect_of(gate, canonical.decode(request.call.form, gate.schema.classes))
        if effect != request.effect:
            lack = f"it was asked for the effect {request.effect!r}, and the gate names {effect!r} now"
    if lack is None:
        return False
    if request.key is not None:
        raise errors.KeyReusedError(request.run_id, request.key, request_id=request.id, what=f"less asked for: {lack}")
    yield StoreCall(store.withdraw, request.id, requester(), lack)
    return True


def wanted_again(gate: Gate, occasion: Occasion, request: Request) -> Occasion:
    """Return what is asked of a request where no rule is asked again; the stricter of gate and record counts."""
    # A rule may have asked for other people than the gate does; only the record has their names.
    who = gate if isinstance(gate.when, bool) and request.rule is None else request
    return occasion.asking_for(who.quorum, who.escalation, gate.retries, idempotent=gate.idempotent)


def send_back(gate: Gate, store: ProgramStore, request: Request) -> Effects[Request | None]:
    """Let an approved edit wait anew that only the program can refuse: by its own types, or for another effect.

    Returns:
        The request, which waits for its reviewers again; None where nothing speaks against a start.
    """
    if request.edited is None:
        return None
    problems = refused_by_types(gate, request, request.edited)
    if not problems and gate.effect is not None:
        effect = yield from effect_of(gate, canonical.decode(request.edited.form, gate.schema.classes))
        problems = [] if effect == request.effect else [_moved(effect, request)]
    if not problems:
        return None
    # The row is compared with the journal first: sending an altered one back would hide that it was altered.
    yield StoreCall(store.settle, request.id)
    return (yield StoreCall(store.send_back, request.id, requester(), problems))


def _moved(effect: str, request: Request) -> str:
    there_is = f"these arguments have the effect {effect!r}, and {request.effect!r} was asked for"
    return f"effect: {there_is}; let the program ask for that call"


# -- find or record ----------------------------------------------------------------------------------------------


def find_or_ask(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], wanted: Occasion, caller: Caller,
    verdict: Verdict = HOLD,
) -> Effects[Request]:  # fmt: skip
    """Return the request that answers for a call here, as it stands by now, else a new one. Durable then.

    Args:
        gate: The function's gate.
        store: Where requests live.
        arguments: By name.
        wanted: Where the call stands, and what a new request asks for.
        caller: Who records it.
        verdict: What the rule says of it.
    """
    form, schema = canonical.encode(arguments), gate.schema
    if '"$' in form.text:  # only a tagged value can name a class
        canonical.check_round_trip(form, schema.classes)
    digest = call_digest(gate.tool, schema.digest, form.digest_input)
    if gate.key is not None or wanted.key is not None:
        wanted = wanted._replace(key=(yield from key_of(gate, arguments, wanted)))
    own = fingerprint(wanted.run_ids[0], digest, wanted.place, wanted.key)
    is_own = wanted.key is None and wanted.pool is None and len(wanted.run_ids) == 1 and digest not in wanted.adopted
    asks_first = is_own and caller.finds and store.asks_first(own) and has_no_hooks(gate, verdict)
    while True:
        found = None if asks_first else (yield from _find(gate, store, digest, own, wanted, caller))
        is_new = False
        if found is None:
            if wanted.pool is not None:
                raise not_found_again(gate.name, wanted.pool)
            call = masked_call(gate, arguments, form, schema, digest)
            request = yield from _new_request(gate, call, own, arguments, wanted, verdict)
            found = yield from caller.ask(store, request)
            is_new = found.id == request.id
            if asks_first and not is_new and (found := (yield from _held_by_now(store, found))) is None:
                continue  # it has just ended
        if not (wanted.place or gate.is_self_contained):  # a journaled run knows its calls by their places
            gate.captured.check_asked(found.id, gate.tool)
        if is_new or not (yield from _is_taken_back(gate, store, wanted, found, verdict)):
            return found
        # Asked of everybody: two programs that differ would else withdraw each other's requests for ever.
        wanted = wanted.joined(found)


def _held_by_now(store: ProgramStore, found: Request) -> Effects[Request | None]:
    """Return a request as time has left it; None where it answers for no call any more.

    An approval is compared with the journal when it is started; what ends the call here is compared by `settle`.
    """
    if found.state not in _OPEN or is_due(found, clock.now()):
        found = yield StoreCall(store.settle, found.id)
    return found if found.holds else None


def _find(
    gate: Gate, store: ProgramStore, digest: str, own: str, occasion: Occasion, caller: Caller
) -> Effects[Request | None]:
    """Return the request that answers for this call: its key's, one decided from here, the run's own, a parent's."""
    if occasion.key is not None:
        return (yield from find_keyed(gate, store, lambda: digest, occasion))
    if not caller.finds:
        return None
    adopted = occasion.adopted.get(digest)
    finds = [StoreCall(store.find, own)]
    if adopted is not None:
        finds.insert(0, StoreCall(_get, store, adopted))
    finds += [StoreCall(store.find, fingerprint(run_id, digest, occasion.place)) for run_id in occasion.run_ids[1:]]
    for find in finds:
        found: Request | None = yield find
        if found is not None and (held := (yield from _held_by_now(store, found))) is not None:
            return held
    return None


def _get(store: ProgramStore, request_id: str) -> Request | None:
    with suppress(errors.RequestNotFoundError):
        return store.get(request_id)
    return None


def _new_request(
    gate: Gate, call: Call, own: str, arguments: dict[str, Any], wanted: Occasion, verdict: Verdict
) -> Effects[Request]:
    gate.check_types(arguments)
    secrets = frozenset[str]() if call.masked is None else secrets_of(gate, call.form, call.masked)
    if wanted.key is not None:
        must_show_no_secret(gate, "key", wanted.key, secrets)
    facts = None
    if wanted.context is not None or gate.context is not None or verdict.context is not None:
        facts = yield from facts_of(gate, call, arguments, wanted, verdict, secrets)
    prompt = gate.prompt if verdict.prompt is None else verdict.prompt
    if prompt is not None:
        prompt = redaction.fit((yield from prompt_of(gate, prompt, arguments)), secrets)
    rule, named = verdict.reason, verdict.rule or (None if isinstance(gate.when, bool) else gate.rule)
    if named is not None:
        rule = named if rule is None else f"{named}: {rule}"
    effect = None
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
        requester=requester(),
        created_at=now,
        expires_at=now + (verdict.expires or gate.expires),
        approval_window=gate.approval_expires,
        quorum=wanted.quorum,
        on_behalf_of=wanted.acts_for[0] if wanted.acts_for else None,
        also_for=wanted.acts_for[1:],
        process=None if wanted.has_name else worker.current(),
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


# -- what became of it earlier --------------------------------------------------------------------------------------


def _look_into(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion, caller: Caller
) -> Effects[Attempt | Request | None]:  # fmt: skip
    """Ask the gate's `verify=` hook about a call whose outcome is unknown, and record its answer.

    Returns:
        What the call gave; or the request, to be started again; or None, where the call is to be asked anew.

    Raises:
        OutcomeUnknownError: Nobody can tell, and the call is not idempotent.
    """
    answer = None if gate.verify is None else (yield from ask_verify(gate, gate.verify, request))
    if answer is None:
        if request.idempotent and wanted.lack_of(request) is None:
            return request
        raise errors.OutcomeUnknownError(request.id)
    hook = Identity(PROGRAM, f"verify={getattr(gate.verify, '__name__', 'hook')}")
    resolve = partial(
        store.resolve, roles=None, happened=bool(answer), comment=None, channel="verify",
        token=None if request.execution is None else request.execution.token,
    )  # fmt: skip
    try:
        resolved: Request = yield StoreCall(resolve, request.id, hook)
    except errors.NotUnknownError:  # somebody else found out, and may have started it again: what became of that counts
        return (yield StoreCall(store.settle, request.id))
    if answer:
        caller.happened(resolved)
        return Attempt(answer.result if isinstance(answer, Happened) else None, None)
    return resolved if resolved.state is State.APPROVED or resolved.key is not None else None


# -- start, run, record --------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """The single right to run an approved call.

    Attributes:
        request: The request, running.
        token: What `ProgramStore.finish` wants back.
        args: The positional arguments to run with.
        kwargs: The keyword arguments.
    """

    request: Request
    token: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def execute(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion | None = None, caller: Caller = _NOBODY
) -> Effects[Attempt]:
    """Start an approved call, run it from its stored form, and record how it ended.

    The start is durable before the call runs. An error of the call is a `failed` outcome. A call that is broken off
    (cancellation, Ctrl-C, exit) is `unknown`, because nobody can say what it had done by then; so is one with an
    ambiguous error (`sayso.gates.outcome`), which gets a note that says so.

    Args:
        gate: The function's gate.
        store: Where the request lives.
        request: The request that is to be started.
        wanted: What its approval must have; what its record and the gate say, when not given.
        caller: Who makes the call; what it saves of its run is stored together with the outcome.

    Raises:
        StartRefusedError: Somebody else has the start, the approval ended, or the record was altered; nothing ran.
        InvalidChangesError: The edited arguments do not pass the function's own validation; nothing ran.
        OutcomeNotRecordedError: The call ran, and the store could not be told.
    """
    started = yield from begin(gate, store, request, wanted, caller=caller)
    before = executing.set((*executing.get(), started.request))
    try:
        call = UserCall(gate.function, started.args, started.kwargs)
        attempt: Attempt = yield telemetry.executing(started.request, call)
    finally:
        try:  # noqa: SIM105  `suppress` is three calls, in each call of a gate
            executing.reset(before)
        except ValueError:  # a coroutine may be closed from a context that never had it
            pass
    return (yield from end(gate, store, started, judged(gate, attempt), caller))


def begin(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion | None = None, by: str | None = None,
    caller: Caller = _NOBODY,
) -> Effects[Started]:  # fmt: skip
    """Start an approved call, for this process or the worker `by`: the first half of `execute`, durable on return.

    An approval that can still be undone is waited for.
    """
    token, started = new_token(), None
    try:
        while started is None:
            try:
                started = yield StoreCall(store.start, request.id, token, by=by)
            except errors.ApprovalHeldError as held:
                yield from caller.held_back(request, held.milliseconds / 1000)
        arguments = _approved_arguments(gate, started, wanted)
        if gate.effect is not None:  # the effect that the start took is the one that these arguments have
            yield from _must_have_effect(gate, started, arguments)
        args, kwargs = gate.signature.spread(arguments)
    except errors.AlteredRequestError as refusal:
        with suppress(errors.StoreCorruptError):  # an altered row is not written to; it was not started either
            yield from _failed_to_start(store, request, token, str(refusal))
        raise
    except (errors.StartRefusedError, GeneratorExit):
        raise
    except BaseException as error:  # also a cancellation: the start may be recorded, and surely nothing ran
        yield from _failed_to_start(store, request, token, f"not run: {type(error).__name__}")
        raise
    telemetry.log("started", started)
    return Started(started, token, args, kwargs)


def _failed_to_start(store: ProgramStore, request: Request, token: str, why: str) -> Effects[None]:
    with suppress(errors.StartRefusedError):  # the start was not recorded either
        yield StoreCall(store.finish, request.id, token, Outcome("failed", error=why, not_run=True), None)


def _must_have_effect(gate: Gate, request: Request, arguments: dict[str, Any]) -> Effects[None]:
    effect = yield from effect_of(gate, arguments)
    if effect != request.effect:
        raise errors.InvalidChangesError(request.id, [_moved(effect, request)])


def end(
    gate: Gate, store: ProgramStore, start: Started, attempt: Attempt, caller: Caller = _NOBODY, *,
    is_raised: bool = True,
) -> Effects[Attempt]:  # fmt: skip
    """Record how a started call ended; where that fails, what it raised tells the program, if it `is_raised` there."""
    request, raised = start.request, attempt.raised
    is_resolved = False
    try:
        outcome, saved = outcome_of(gate, request, attempt), caller.saving(attempt)
    except BaseException as error:  # Ctrl-C, mostly: in a process that goes on, the call would count as running
        with suppress(errors.SaysoError):
            told = Outcome("unknown", error=f"not recorded: {type(error).__name__}")
            yield StoreCall(store.finish, request.id, start.token, told, None)
        raise
    try:
        yield StoreCall(store.finish, request.id, start.token, outcome, saved)
    except errors.StartRefusedError:
        is_resolved = warn_of_late_end(request, outcome)
    except errors.StoreError as error:
        if raised is None or not is_raised:
            raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error
        raised.add_note(f"sayso: the outcome of {request.id} could not be recorded: {error}")
    else:
        telemetry.log("ended", request, outcome.state)
        caller.saved()
    if raised is not None and attempt.is_ambiguous and not is_resolved:
        mark_unknown(raised, request.id, may_start_again=request.idempotent)
    if not (gate.is_self_contained or gate.retries or gate.idempotent):
        captured.forget(request.id)
    return attempt


def _approved_arguments(gate: Gate, request: Request, wanted: Occasion | None) -> dict[str, Any]:
    """Return the arguments to run with, read from the stored form; refuse them unless they are what was approved."""
    call = request.effective
    arguments, digest_input = canonical.read(call.form, lambda: gate.schema.classes)
    digest = call_digest(gate.tool, gate.schema.digest, digest_input)
    decision = request.decision
    # Every decision has a fingerprint, a no as well: only an approval lets the call run.
    approved = decision.fingerprint if decision is not None and decision.verb == "approve" else None
    if digest != call.digest or request.fingerprint_of(digest) != approved:
        raise errors.AlteredRequestError(request.id)
    is_drawn = call.masked is None or is_as_shown(gate, call, call.masked)
    if (call.tool, call.name) != (gate.tool, gate.name) or not is_drawn:
        raise errors.AlteredRequestError(request.id, "what people are shown of the call is not what would run")
    if request.missing_votes:
        raise errors.AlteredRequestError(
            request.id, f"it shows fewer approvals than the {request.quorum} it was asked of"
        )
    if wanted is None:
        wanted = Occasion(
            (), {}, request.acts_for, quorum=request.quorum, escalation=request.escalation, retries=gate.retries,
            idempotent=gate.idempotent,
        )  # fmt: skip
    lack = wanted.lack_of(request)
    if lack is not None:
        raise errors.AlteredRequestError(request.id, lack)
    # `gated_call` asked this before the start; other callers may not have.
    if request.edited is not None and (problems := refused_by_types(gate, request, request.edited)):
        raise errors.InvalidChangesError(request.id, problems)
    return arguments
