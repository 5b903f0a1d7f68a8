"""One call through its gate, from the rule to the recorded outcome: the loop in which every held call runs.

The loop finds or records the request of the call (`sayso.gates.find_or_ask`), waits as its `Caller` says, and runs it
(`sayso.gates.execution`). Everything here is a generator of operations (`sayso.effects`), so that sync and async
functions share it. Invariant: a held call runs only through `execute`, or its halves `begin` and `end`.
"""

from __future__ import annotations

import sys
from typing import Any

from sayso import config, errors
from sayso.effects import Attempt, Operations, StoreCall, UserCall
from sayso.gates.ambiguous import claim_not_executed
from sayso.gates.caller import Caller, already_started
from sayso.gates.execution import execute, look_into, replay, send_back
from sayso.gates.find_or_ask import as_recorded, find_earlier, find_or_ask, wanted_of, withdraw_if_too_weak
from sayso.gates.hooks import ask_rule, note_allowed, note_denial, unchanged
from sayso.gates.options import Gate
from sayso.gates.scope import CallSite, executing
from sayso.model.request import Request, State
from sayso.policy import Verdict
from sayso.policy.verdict import HOLD
from sayso.stores.program import ProgramStore

_CHANGED = (
    errors.NotApprovedError, errors.ApprovalExpiredError, errors.AlreadyStartedError, errors.OutcomeUnknownError,
)  # fmt: skip


def current_request() -> Request | None:
    """Return the request whose call is running here; None outside a gated function.

    Its `id` is the same in every start of one approval, so it can be an idempotency key for the called service.
    """
    return next(reversed(executing.get()), None)


def gated_call(  # noqa: C901, PLR0912  one loop, to be read from top to bottom
    gate: Gate, store: ProgramStore, arguments: dict[str, Any] | None, site: CallSite, caller: Caller,
    request: Request | None = None,
) -> Operations[Attempt]:  # fmt: skip
    """Take one call through a gate: ask the rule, find or record its request, wait, start, run, record the outcome.

    Nothing is written for a call that the rule allows. An approved call runs with the recorded arguments.

    Args:
        gate: The gate of the function.
        store: The store for its request.
        arguments: The arguments by name; None for those of `request`.
        site: Where the call is made, and for whom.
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
    asked, wanted, form = gate, site, "{}" if request is None else request.call.form
    waited: Request | None = None
    try:
        if request is not None:
            asked, wanted = as_recorded(gate, site, request)
            request = None if (yield from withdraw_if_too_weak(asked, store, wanted, request)) else request
        while True:
            if request is None:
                arguments = gate.schema.decode(form) if arguments is None else arguments
                verdict = yield from ask_rule(gate, arguments, site)
                if verdict is not HOLD and not verdict.is_recorded:
                    request = yield from find_earlier(gate, store, arguments, site, verdict, waited)
                    if request is None:
                        return (yield from _unasked(gate, store, arguments, site, caller, verdict))
                    asked, wanted = as_recorded(gate, site, request)
                else:
                    asked = gate if verdict is HOLD else gate.under(verdict)
                    wanted = wanted_of(gate, site, verdict)
                    request = yield from find_or_ask(asked, store, arguments, wanted, caller, verdict)
            match request.state:
                case State.PENDING:  # a decision made meanwhile is found, and the rule may decide otherwise by then
                    after = yield from caller.wait(waited := request)
                    site = site._replace(key=request.key)  # a hook that gave another one would ask forever
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
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], site: CallSite, caller: Caller, verdict: Verdict
) -> Operations[Attempt]:
    """Run or refuse a call as the rule decides, without asking a person."""
    if verdict.kind == "deny":
        raise caller.denied((yield from note_denial(gate, store, arguments, site, verdict)))
    gate.check_bounds(arguments)
    if verdict.log:
        yield from unchanged(gate, arguments, note_allowed(gate, store, site, verdict))
    handled = sys.exc_info()
    attempt: Attempt = yield UserCall(gate.function, *caller.allowed(gate, arguments))
    claim_not_executed(attempt.raised, handled)  # and not that of a call around it
    caller.passed(attempt)
    return attempt


def _run(
    gate: Gate, store: ProgramStore, request: Request, wanted: CallSite, caller: Caller
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
    elif request.edited is not None and (back := (yield from send_back(gate, store, request, wanted))) is not None:
        return back
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
            raise already_started(request)
        case State.EXPIRED | State.CANCELLED if not (request.holds or request.key) and caller.asks_anew(request):
            return None
        case _:
            raise caller.refused(request)
