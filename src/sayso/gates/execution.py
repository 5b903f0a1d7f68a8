"""Start an approved call, run it, and record how it ended.

`execute` does all three; `begin` and `end` are its halves, for a call that something else runs. Invariants: what runs
is what was approved, compared again with the record when it is started; the start is durable before the call runs; a
start that has no recorded end is `unknown`, and so is a call that goes on in a thread or task until that has ended.
`verify=` is not asked about a call that is known to be still running.

Also the other ways to an end: `send_back` returns an edit to its reviewers that only the program can refuse, `replay`
returns the result of a call with a key, and `look_into` asks `verify=` about an unknown outcome.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, cast

from sayso import config, errors, telemetry
from sayso.effects import Attempt, InTasks, InThread, Operations, StoreCall, Suspended, UserCall, drive, left_to_run
from sayso.gates import captured_values
from sayso.gates.ambiguous import Handled, claim_not_executed, in_doubt, mark_unknown
from sayso.gates.caller import Caller
from sayso.gates.exceptions import ConfirmationRequired
from sayso.gates.hooks import (
    ask_verify,
    effect_of,
    effect_of_edit,
    is_as_shown,
    refused_by_types,
    secrets_known,
    shown_result,
)
from sayso.gates.interruptions import jobs_in_context, when_done
from sayso.gates.options import Gate
from sayso.gates.scope import CallSite, current_task, executing
from sayso.model import canonical, redaction
from sayso.model.ids import StartToken, call_digest, new_token
from sayso.model.lifecycle import Outcome, result_to_keep
from sayso.model.parameters import annotated, hints_of
from sayso.model.request import NOT_RUN, Request, State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.schema import Schema
from sayso.policy import Happened
from sayso.stores import workers
from sayso.stores.program import ProgramStore

_NOBODY = Caller()
_ERROR_LIMIT = 2_000
_WHOLE = {type(None), bool, int, float, str, bytes, dict, list, tuple}


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
    gate: Gate, store: ProgramStore, request: Request, wanted: CallSite | None = None, caller: Caller = _NOBODY
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
    before, handled = executing.set((*executing.get(), started.request)), sys.exc_info()
    try:
        try:
            call = UserCall(gate.function, started.args, started.kwargs, started.token)
            is_in_doubt = partial(in_doubt, gate.ambiguous, handled)
            attempt: Attempt = yield telemetry.executing(started.request, call, is_in_doubt)
        finally:
            with suppress(ValueError):  # a coroutine may be closed in a context without it
                executing.reset(before)
        attempt = judged(gate, attempt, handled)
        if attempt.raised is not None and not isinstance(attempt.raised, gate.suspends):
            attempt = _judged_by_tasks(started.request, attempt)
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
        _mark(started.request, attempt)
        return attempt
    return (yield from end(gate, store, started, attempt, caller))


def begin(
    gate: Gate, store: ProgramStore, request: Request, wanted: CallSite | None = None, by: str | None = None,
    caller: Caller = _NOBODY,
) -> Operations[Started]:  # fmt: skip
    """Start an approved call, for this process or the worker `by`: the first half of `execute`; durable on return.

    If the approval can still be undone, it first waits until that time is over.
    """
    token, started, pid = StartToken(new_token()), None, os.getpid()
    try:
        while started is None:
            left: int | None = None
            try:
                # While a hook was asked, another caller may have started it, and it may go on.
                started = yield StoreCall(store.start, request.id, token, by=by, seen=request)
            except errors.ApprovalHeldError as held:
                left = held.milliseconds
            if left is not None:  # outside of `except`: no traceback shows it as the context of what ends the wait
                yield from caller.held_back(request, left / 1000)
        arguments = _approved_arguments(gate, started, wanted)
        # Without an effect, the rule is asked only about an edit that came after `send_back` asked it.
        if gate.effect is not None or started.edited not in (None, request.edited):
            yield from _must_have_effect(gate, started, arguments, wanted)
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
        yield from _failed_to_start(store, request, token, type(error).__name__)
        raise
    if os.getpid() != pid:
        raise errors.StartRefusedError(request.id, f"process {pid} started {request.id} and has forked this one")
    telemetry.log("started", started)
    return Started(started, token, args, kwargs, pid)


def _approved_arguments(gate: Gate, request: Request, wanted: CallSite | None) -> dict[str, Any]:
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
        wanted = CallSite(
            (), {}, request.acts_for, quorum=request.quorum, escalation=request.escalation, retries=gate.retries,
            idempotent=gate.idempotent,
        )  # fmt: skip
    if (lack := wanted.lack_of(request)) is not None:
        raise errors.AlteredRequestError(request.id, lack)
    # `gated_call` checks this before the start; other callers may not.
    if request.edited is not None and (problems := refused_by_types(gate, request, request.edited)):
        raise errors.InvalidChangesError(request.id, problems)
    return arguments


def _must_have_effect(
    gate: Gate, started: Request, arguments: dict[str, Any], wanted: CallSite | None
) -> Operations[None]:  # fmt: skip
    if started.edited is not None:
        site = CallSite((started.run_id,), {}) if wanted is None else wanted
        effect = yield from effect_of_edit(gate, started, started.edited, site)
    else:
        effect = yield from effect_of(gate, arguments)
    if effect != started.effect:  # which the start took
        raise errors.InvalidChangesError(started.id, [_moved(effect, started)])


def _failed_to_start(store: ProgramStore, request: Request, token: str, why: str) -> Operations[None]:
    is_begun = request.execution is not None and request.execution.stopped  # an earlier start keeps its effect
    failed = Outcome("failed", error=f"{NOT_RUN}{why}", not_run=True)
    with suppress(errors.StartRefusedError):  # the start was not recorded either
        yield StoreCall(store.finish, request.id, token, Outcome("suspended") if is_begun else failed)


def send_back(gate: Gate, store: ProgramStore, request: Request, site: CallSite) -> Operations[Request | None]:
    """Return an edit to its reviewers that only the program can reject: by its own types, or for another effect.

    Returns:
        The request, which waits for its reviewers again; None if nothing prevents a start.
    """
    if request.edited is None:
        return None
    problems = refused_by_types(gate, request, request.edited)
    if not problems:
        effect = yield from effect_of_edit(gate, request, request.edited, site)
        problems = [] if effect == request.effect else [_moved(effect, request)]
    if not problems:
        return None
    # First compare the row with the journal: returning an altered one would hide that it was altered.
    yield StoreCall(store.settle, request.id)
    return (yield StoreCall(store.send_back, request.id, config.requester(), problems))


def _moved(effect: str | None, request: Request) -> str:
    there_is = f"these arguments have the effect {effect!r}, but the request is for {request.effect!r}"
    return f"effect: {there_is}; let the program ask for that call instead"


# -- how it ended -----------------------------------------------------------------------------------------------------


def end(  # noqa: C901, PLR0912  one end after the other
    gate: Gate, store: ProgramStore, start: Started, attempt: Attempt, caller: Caller = _NOBODY, *,
    is_raised: bool = True,
) -> Operations[Attempt]:  # fmt: skip
    """Record how a started call ended; if that fails, add a note to its error if it `is_raised`, else raise."""
    request, raised, is_resolved = start.request, attempt.raised, False
    try:
        outcome, saved = outcome_of(gate, request, attempt), caller.saving(attempt)
        verb = StoreCall(store.finish, request.id, start.token, outcome, saved)
    except BaseException as error:  # as in `execute`
        yield from _not_recorded(store, start, error)
        raise
    try:
        after: Request = yield verb
    except errors.StartRefusedError:
        is_resolved = True
        telemetry.warn(
            "the call of %s ended here as %s, but its worker was presumed dead and somebody has resolved its outcome;"
            " the request is unchanged, and its journal records this", request.id, outcome.state,
        )  # fmt: skip
    except errors.StoreError as error:
        if raised is None or not is_raised:
            raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error
        with suppress(Exception):  # as in `mark_unknown`
            raised.add_note(f"sayso: the outcome of {request.id} could not be recorded: {error}")
    except (errors.SaysoError, GeneratorExit):
        raise
    except BaseException:  # Ctrl-C, perhaps before the commit: the outcome is known, and nobody else can record it
        with suppress(errors.SaysoError):  # it was recorded, or cannot be
            yield verb
        raise
    else:
        telemetry.log("ended", request, outcome.state)
        if saved is not None:
            caller.saved()
        if not (after.holds or gate.is_self_contained):
            captured_values.forget(request.id)
    if outcome.state == "unknown" and not is_resolved and attempt.left is None:
        _mark(request, attempt)
    elif isinstance(raised, ConfirmationRequired) and outcome.state == "failed":  # of a gate inside the started call
        note = (
            f"sayso: {gate.name} was approved and started, and is recorded as failed, because a call inside it waits:"
            " calling it again asks for it again, and repeats what it did before. Use one gate, around the outer call;"
            " or give that gate suspends=sayso.ConfirmationRequired, which keeps its approval"
        )
        with suppress(Exception):  # as in `mark_unknown`
            raised.add_note(note)
    return attempt


def _mark(request: Request, attempt: Attempt) -> None:
    if attempt.raised is not None and attempt.is_ambiguous:
        starts = 1 if request.execution is None else request.execution.starts
        mark_unknown(attempt.raised, request.id, may_start_again=request.idempotent, start=starts)


def judged(gate: Gate, attempt: Attempt, handled: Handled = (None, None, None)) -> Attempt:
    """Return how a call ended, with the two facts that only the gate knows."""
    if isinstance(attempt.raised, gate.suspends):  # it paused for its framework, and has not ended
        return attempt
    if isinstance(attempt.raised, Exception):  # an interrupted call is unknown anyway
        is_ambiguous = attempt.is_ambiguous or in_doubt(gate.ambiguous, handled, attempt.raised)
        attempt = attempt._replace(is_ambiguous=is_ambiguous)
        return attempt._replace(is_without_effect=claim_not_executed(attempt.raised, handled))
    left = None if type(attempt.value) in _WHOLE else left_to_run(attempt.value)
    if left is None:
        return attempt
    # Nobody here learns how that ends, and the call would be recorded as done.
    what, has_begun = left
    text = f"{gate.name} returned {what}, whose work would run after the call; gate the async function that does it"
    return Attempt(None, TypeError(f"{text}, or one that runs it to its end"), is_ambiguous=has_begun)


def _judged_by_tasks(request: Request, attempt: Attempt) -> Attempt:
    """Return how a call with an error ended: it goes on if its tasks or threads do, as those that a timeout leaves."""
    me = current_task()
    if me is None or attempt.left is not None or attempt.is_without_effect:
        return attempt
    left = _left_running(request, me)
    if not left:
        return attempt
    what = "task" if any(hasattr(one, "get_loop") for one in left) else "thread"
    note = f"sayso: a {what} that {request.call.name} started was still running when this error ended it"
    with suppress(Exception):  # as in `mark_unknown`
        cast("BaseException", attempt.raised).add_note(note)
    is_ambiguous = attempt.is_ambiguous or isinstance(attempt.raised, Exception)  # others are unknown anyway
    return InTasks(attempt._replace(is_ambiguous=is_ambiguous), partial(_when_one_ended, request, me)).attempt


def _left_running(request: Request, me: Any) -> list[Any]:
    """Return the asyncio tasks and the futures of threads that a call started and that still run."""
    import asyncio

    loop = me.get_loop()
    tasks = set[Any]() if loop.is_closed() else asyncio.all_tasks(loop) - {me}
    contexts = [(task, _context_of(task)) for task in tasks]
    return [
        one
        for one, context in [*contexts, *jobs_in_context()]
        if context is not None and any(made_in is request for made_in in context.get(executing, ()))
    ]


def _when_one_ended(request: Request, me: Any, callback: Callable[[], None]) -> bool:
    left = _left_running(request, me)
    if left:
        when_done(left[0], callback)
    return bool(left)


def _context_of(task: Any) -> Context | None:
    if sys.version_info >= (3, 12):
        return task.get_context()
    return next((one for one in gc.get_referents(task) if isinstance(one, Context)), None)


def outcome_of(gate: Gate, request: Request, attempt: Attempt) -> Outcome:
    """Return the outcome to record for a call, secrets masked."""
    if attempt.raised is None:
        value = attempt.value
        shown = None if value is None else shown_result(gate, request, value)
        for_replay = (None, None) if request.key is None else result_to_keep(value)
        return Outcome("done", shown, None, *for_replay)
    if isinstance(attempt.raised, (Suspended, *gate.suspends)):
        return Outcome("suspended")
    text = redaction.error_text(attempt.raised, secrets_known(gate, request))
    if isinstance(attempt.raised, ConfirmationRequired):
        why = "a call or a question inside it waits for a person"
        text = f"it stopped because {why}; what it did before is done ({text})"
    if len(text) > _ERROR_LIMIT:
        text = f"{text[:_ERROR_LIMIT]} … ({len(text) - _ERROR_LIMIT} more characters)"
    state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"
    return Outcome(state, error=text, not_run=state == "failed" and attempt.is_without_effect)


def _not_recorded(store: ProgramStore, start: Started, error: BaseException) -> Operations[None]:
    with suppress(errors.SaysoError):
        outcome = Outcome("unknown", error=f"not recorded: {type(error).__name__}")
        yield StoreCall(store.finish, start.request.id, start.token, outcome, None)


def _leave(gate: Gate, store: ProgramStore, start: Started, left: InThread | InTasks) -> Operations[None]:
    """Record a call as unknown that goes on where nobody waits for it, and how it ends when its thread or tasks do.

    Without an end in the record, other processes see that this worker is alive, and ask nobody how the call ended.
    """
    ran = start.request.execution
    try:
        with suppress(errors.StoreError):
            yield StoreCall(store.settle, start.request.id, gone=None if ran is None else ran.worker)
    finally:  # not earlier: once this start has an end, this process may start the call again, and is not gone
        left.when_ended(partial(_end_late, gate, store, start))


def _end_late(gate: Gate, store: ProgramStore, start: Started, attempt: Attempt) -> None:
    if start.pid != os.getpid():  # a child that the thread forked
        return
    try:
        drive(end(gate, store, start, judged(gate, attempt), is_raised=False))
    except errors.SaysoError as error:  # nobody waits for this thread
        telemetry.warn("the call of %s has ended in its thread: %s", start.request.id, error)


# -- how it ended before, or elsewhere --------------------------------------------------------------------------------


def replay(gate: Gate, store: ProgramStore, request: Request) -> Operations[Any]:
    """Return the result of the call with a key, whichever process ran it.

    Raises:
        CallFailedError: The call failed.
        ValueNotKeptError: Its result was not kept, or cannot be read here.
    """
    if request.state is State.FAILED:
        raise errors.CallFailedError(request.id, error=None if request.execution is None else request.execution.error)
    text: str = yield StoreCall(store.result, request.id)
    annotation = hints_of(annotated(inspect.unwrap(gate.function))).get("return")
    classes: Mapping[str, type] = {} if annotation is None else Schema.of_type(annotation).classes
    try:
        return canonical.decode(text, classes)["result"]
    except errors.ArgumentError as error:
        raise errors.ValueNotKeptError(request.id, f"cannot be read here ({error.reason})") from None


def look_into(
    gate: Gate, store: ProgramStore, request: Request, wanted: CallSite, caller: Caller
) -> Operations[Attempt | Request | None]:  # fmt: skip
    """Ask the gate's `verify=` hook about a call with an unknown outcome, and record its answer.

    Returns:
        How the call ended; or the request, if it is to be started again; or None, if the call is to be asked again.

    Raises:
        OutcomeUnknownError: It has not ended, as far as can be seen here; or nobody can tell, and the call is not
            idempotent.
    """
    # A call whose lease was lost, or whose task was cancelled, may go on: what the hook sees of it would change.
    execution = request.execution
    worker = None if execution is None or execution.finished_at is not None else execution.worker
    running = workers.running_at(request.id, worker)
    if running is not None:
        raise errors.OutcomeUnknownError(request.id, running=running)
    answer = None if gate.verify is None else (yield from ask_verify(gate, gate.verify, request))
    if answer is None:
        is_without_person = request.decision is not None and request.decision.under is not None
        is_enough = wanted.lack_of(request) is None and not (gate.always and is_without_person)
        if request.idempotent and is_enough and not caller.is_over(request):
            return request
        raise errors.OutcomeUnknownError(request.id)
    found = Attempt(answer.result if isinstance(answer, Happened) else None, None)
    hook = Identity(PROGRAM, f"verify={getattr(gate.verify, '__name__', 'hook')}")
    resolve = partial(
        store.resolve, roles=None, happened=bool(answer), comment=None, channel="verify",
        token=None if execution is None else execution.token,
        outcome=outcome_of(gate, request, found) if answer else None,
    )  # fmt: skip
    try:
        resolved: Request = yield StoreCall(resolve, request.id, hook)
    except errors.NotUnknownError:  # somebody else resolved it, and may have started it again; its new state decides
        return (yield StoreCall(store.settle, request.id))
    if answer:
        caller.happened(resolved)
        return found
    return resolved if resolved.state is State.APPROVED or resolved.key is not None else None
