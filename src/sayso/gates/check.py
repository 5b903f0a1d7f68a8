"""`check`: may this call run? It asks the gate's rule, and finds or records the call's request.

`open_request` and `withdraw` are the two writes of a program's side before a start. The registry at the end remembers,
for this process, which function asked for a request: a request that another function asked for is never used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

from sayso import clock, errors, telemetry
from sayso.effects import Effects, HookCall, StoreCall, drive
from sayso.errors import ConfigError
from sayso.gates.captured import is_same
from sayso.gates.masking import HookError, mask_facts, masked_call, refuse, secrets_among, secrets_of
from sayso.gates.occasion import find_keyed, key_of, must_show_no_secret, replay, words_of
from sayso.gates.options import ALLOWED, Check, Gate, Needs, Place, current, requester
from sayso.model import canonical, redaction
from sayso.model.canonical.tags import dump
from sayso.model.fingerprint import call_digest, fingerprint
from sayso.model.ids import new_request_id
from sayso.model.lifecycle import is_due
from sayso.model.nan import nan_in
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.run import RunUpdate
from sayso.model.schema import SchemaError
from sayso.policy import Happened, Verdict, verdict_of
from sayso.stores import worker
from sayso.stores.base import Store
from sayso.view.summary import is_random

__all__ = [
    "again", "check", "check_function", "forget_function", "lacking", "not_found_again", "open_request",
    "refused_edit", "withdraw",
]  # fmt: skip

_OPEN = {State.PENDING, State.APPROVED}
_HOLD = verdict_of(True, "")


def check(gate: Gate, store: Store, arguments: dict[str, Any], place: Place) -> Effects[Check]:
    """Find out whether a call may run.

    Raises:
        ConfigError: Another function, gated as the same tool, asked for this call.
        PolicyError: A rule, prompt or hook failed.
        ArgumentError: An argument has no canonical form, or does not fit the function's own types.
        StartRefusedError: The call is running elsewhere, or its outcome is unknown.
        StoreError: The store failed.
    """
    verdict = _HOLD if gate.when is True else (yield from _ask_rule(gate, arguments))
    if verdict.kind == "allow":
        gate.check_bounds(arguments)
        return ALLOWED
    if verdict.kind == "deny":
        return (yield from _deny(gate, store, arguments, place, verdict))
    form, schema = canonical.encode(arguments), gate.schema
    if '"$' in form.text:  # only a tagged value can name a class
        canonical.check_round_trip(form, schema.classes)
    digest = call_digest(gate.tool, schema.digest, form.digest_input)
    # A rule that names who must agree does not mean those whom the gate would let in later, unless it says so.
    escalation = verdict.escalation or (gate.escalation if verdict.quorum is None else None)
    needs = Needs(verdict.quorum or gate.quorum, place.acts_for, escalation, gate.retries, gate.idempotent)
    key = yield from key_of(gate, arguments, place)
    while True:
        known = _find(store, digest, place) if key is None else find_keyed(gate, store, digest, place.run_ids[0], key)
        found = yield from known
        if found is None:
            if place.pool is not None:
                raise not_found_again(gate.name, place.pool)
            call = masked_call(gate, arguments, form, schema, digest)
            found = yield from _ask(gate, store, call, arguments, place._replace(key=key), verdict, needs)
        if not place.at:  # a journaled run knows its own code, and each of its calls by its place
            check_function(gate, found)
        lacks = needs.unmet_by(found) if found.state in _OPEN else None
        if lacks is not None:
            # Asked anew, and of everybody: two programs that differ would else withdraw each other's requests for ever.
            yield StoreCall(store, store.withdraw, found.id, requester(), lacks)
            needs = needs.joined(found)
            continue
        answer = yield from _answer(gate, store, found, needs)
        if answer is not None:
            return answer


def again(gate: Gate, store: Store, request: Request, place: Place) -> Effects[Check]:
    """Find out whether a call that was asked before may run; no rule or prompt is asked a second time.

    What the gate asks for without its rule counts as well (`lacking`): the stricter of the two.

    Raises:
        As `check` does.
    """
    answer = yield from _answer(gate, store, request, _needs_again(gate, request, place))
    if answer is not None:
        return answer
    return (yield from check(gate, store, canonical.decode(request.call.form, gate.schema.classes), place))


def lacking(gate: Gate, request: Request, place: Place) -> str | None:
    """Return why a request that waits, or was approved, is less than the gate asks for by now; None where it is not."""
    return _needs_again(gate, request, place).unmet_by(request) if request.state in _OPEN else None


def _needs_again(gate: Gate, request: Request, place: Place) -> Needs:
    # A rule may have asked for other people than the gate does; only the record has their names.
    who = gate if isinstance(gate.when, bool) else request
    return Needs(who.quorum, place.acts_for, who.escalation, gate.retries, gate.idempotent)


def _answer(gate: Gate, store: Store, request: Request, needs: Needs) -> Effects[Check | None]:
    """Return what the state of a request means for its call; None where the call is to be asked anew."""
    match request.state:
        case State.PENDING:
            return Check("held", request)
        case State.APPROVED:
            return (yield from _approved(gate, store, request, needs))
        case State.REJECTED | State.FEEDBACK | State.CANCELLED | State.ANSWERED:
            return Check("refused", request)
        case State.UNKNOWN:
            return (yield from _verify(gate, store, request, needs))
        case State.DONE | State.FAILED if request.key is not None:
            return Check("happened", request, result=(yield from replay(gate, store, request)))
        case State.EXPIRED if request.key is not None:
            return Check("refused", request)  # its key finds it for ever: nothing is asked anew
        case State.RUNNING | State.DONE | State.FAILED | State.EXPIRED:
            # Running: somebody has the one start. The others hold nothing; they are met only where they change
            # between being found and being read, and the next call asks anew.
            at = None if request.execution is None else request.execution.started_at
            raise errors.AlreadyStartedError(request.id, state=request.state, at=at, age="before")


def _approved(gate: Gate, store: Store, request: Request, needs: Needs) -> Effects[Check]:
    """Let an approved call start, or send it back to its reviewers where the function's own types refuse their edit."""
    problems = refused_edit(gate, request)
    if not problems:
        return Check("ready", request, needs=needs)
    # The row is compared with the journal first: to send an altered one back would hide that it was altered.
    yield StoreCall(store, store.settle, request.id)
    after = yield StoreCall(store, store.send_back, request.id, requester(), problems)
    return Check("held" if after.state is State.PENDING else "ready", after, needs=needs)


def refused_edit(gate: Gate, request: Request) -> list[str]:
    """Return what the function's own types say against an edit; the reviewer's process may not have had them."""
    if request.edited is None:
        return []
    before, after = (canonical.load(call.form) for call in (request.call, request.edited))
    kept = {name for name in after if name in before and dump(after[name]) == dump(before[name])}
    try:
        gate.schema.validate(canonical.decode(request.edited.form, gate.schema.classes), kept=kept)
    except SchemaError as error:
        return error.problems
    except errors.ArgumentError:
        return []  # it was altered; the start will find that
    return []


# -- the rule ------------------------------------------------------------------------------------------------------


def _ask_rule(gate: Gate, arguments: dict[str, Any]) -> Effects[Verdict]:
    rule = gate.when
    if isinstance(rule, bool):
        return verdict_of(rule, "")
    try:
        asked = gate.hook_call(rule, arguments, partial(_forms, arguments))
        lost = nan_in(asked.kwargs)
        answer = (yield asked) if lost is None else None
    except Exception as error:  # noqa: BLE001  user code: whatever it raises means that the call is not run
        refuse(gate, gate.rule, error, arguments)
    if lost is not None:
        raise errors.PolicyError(f"{gate.rule} of {gate.name}", f"cannot judge {lost}, which is NaN")
    if asked.has_moved:
        raise errors.PolicyError(f"{gate.rule} of {gate.name}", "the arguments changed while the rule decided")
    # The rule's name takes longer to make than most rules take to answer; it is shown only with a wrong answer.
    return verdict_of(answer, "" if type(answer) is bool else f"{gate.rule} of {gate.name}")


def _forms(arguments: dict[str, Any]) -> list[str | None]:
    return [_form(name, value) for name, value in arguments.items()]


def _form(name: str, value: object) -> str | None:
    try:
        return canonical.encode({name: value}).text
    except errors.ArgumentError:
        return None  # a call that is held will be refused for it


def _deny(gate: Gate, store: Store, arguments: dict[str, Any], place: Place, verdict: Verdict) -> Effects[Check]:
    secrets = secrets_among(gate, arguments)
    reason = None if verdict.reason is None or secrets is None else redaction.fit(verdict.reason, secrets)
    detail = {"tool": gate.tool, "rule": gate.rule, "reason": reason}
    yield StoreCall(store, store.note, place.run_ids[0], "denied", requester(), detail)
    telemetry.denied(gate.name)
    return Check("deny", reason=reason)


# -- find or record ----------------------------------------------------------------------------------------------


def _find(store: Store, digest: str, place: Place) -> Effects[Request | None]:
    """Return the request that answers for this call here: one decided from here, the run's own, a parent's."""
    if place.snapshot is not None:
        return None  # the run's journal names its request, and `open` finds one that the journal does not know
    adopted = place.adopted.get(digest)
    if adopted is not None:
        with suppress(errors.RequestNotFoundError):
            found = yield from _settled(store, (yield StoreCall(store, store.get, adopted)))
            if found.holds:
                return found
    for run_id in place.run_ids:
        found = yield StoreCall(store, store.find, fingerprint(run_id, digest, place.at))
        if found is not None:
            found = yield from _settled(store, found)
            if found.holds:
                return found
    return None


def _settled(store: Store, request: Request) -> Effects[Request]:
    # An approval is compared with the journal when it is started; what ends the call here is compared by `settle`.
    if request.state not in _OPEN or is_due(request, clock.now()):
        return (yield StoreCall(store, store.settle, request.id))
    return request


def _ask(
    gate: Gate, store: Store, call: Call, arguments: dict[str, Any], place: Place, verdict: Verdict, needs: Needs
) -> Effects[Request]:
    gate.check_types(arguments)
    # Where captured values tell a function's calls apart, several versions of it are nothing unusual; and a store in
    # memory has nothing of an earlier program.
    facts = None
    if place.has_name and gate.is_self_contained and store.blocks and not place.at:
        facts = yield from _note_of_earlier_versions(gate, store, place)
    if facts is None and not (place.context is None and gate.context is None and verdict.context is None):
        facts = yield from _facts(gate, call, arguments, place, verdict)
    prompt = gate.prompt if verdict.prompt is None else verdict.prompt
    if prompt is not None and not isinstance(prompt, str):
        prompt = yield from _ask_prompt(gate, prompt, arguments)
    rule = verdict.reason
    if not isinstance(gate.when, bool):
        rule = gate.rule if rule is None else f"{gate.rule}: {rule}"
    secrets = secrets_of(gate, call.form, call.masked)
    must_show_no_secret(gate, "key", place.key, secrets)
    words = yield from words_of(gate, arguments, secrets)
    now, run_id = clock.now(), place.run_ids[0]
    request = Request(
        id=new_request_id(),
        kind="call",
        run_id=run_id,
        fingerprint=fingerprint(run_id, call.digest, place.at, place.key),
        place=place.at,
        subject=call,
        key=place.key,
        effect=words.effect,
        title=words.title,
        summary=words.summary,
        requester=requester(),
        created_at=now,
        expires_at=now + (verdict.expires or gate.expires),
        approval_window=gate.approval_expires,
        quorum=needs.quorum,
        on_behalf_of=needs.barred[0] if needs.barred else None,
        also_for=needs.barred[1:],
        process=None if place.has_name else worker.current(),
        prompt=None if prompt is None else redaction.fit(prompt, secrets),
        description=gate.description,
        risk=verdict.risk or gate.risk,
        rule=None if rule is None else redaction.fit(rule, secrets),
        retries=gate.retries,
        idempotent=gate.idempotent,
        redact=gate.redact,
        notify_arguments=gate.notify_arguments,
        escalation=needs.escalation,
        context=facts,
    )
    saved = None if place.snapshot is None else (yield from place.snapshot(request))
    return (yield from open_request(store, request, saved))


def _ask_prompt(gate: Gate, prompt: Callable[..., Any], arguments: dict[str, Any]) -> Effects[str]:
    option = f"{gate.option_name('prompt')}="
    try:
        text = yield gate.hook_call(prompt, arguments)
    except Exception as error:  # noqa: BLE001  user code: a prompt that fails must not let the call through
        refuse(gate, option, error, arguments)
    if not isinstance(text, str):
        raise errors.PolicyError(f"{option} of {gate.name}", f"returned {type(text).__name__}, not a text")
    return text


def not_found_again(what: str, pool: str) -> errors.ConfigError:
    """Return the refusal of what would raise `ConfirmationRequired` where nobody could come back to it."""
    return errors.ConfigError(
        f"{what} would wait for a person in a thread of a pool ({pool}) outside of any run; nothing was asked and "
        "nothing ran. Such a thread serves one caller after another, so nobody could come back for the decision. Name "
        'the run around it, inside of the thread: with sayso.run("order-4721"): ...'
    )


def _facts(
    gate: Gate, call: Call, arguments: dict[str, Any], place: Place, verdict: Verdict
) -> Effects[dict[str, Any]]:
    """Return what a front end may know about a call; what the rule says comes before what the gate says."""
    facts: Any = {}
    if gate.context is not None:
        try:
            facts = yield HookCall(gate.context, {"masked": call.arguments})
        except HookError as failed:
            refuse(gate, f"{failed.option}=", failed.error, arguments)
        except Exception as error:  # noqa: BLE001  user code: the call waits for nobody whom it cannot be shown to
            refuse(gate, "context=", error, arguments)
    masked = mask_facts(gate, {**facts, **(verdict.context or {})}, secrets_of(gate, call.form, call.masked))
    return {**(place.context or {}), **masked}


def _note_of_earlier_versions(gate: Gate, store: Store, place: Place) -> Effects[dict[str, Any] | None]:
    """Return a note on what waits in this run for the function as it was before its parameters changed."""
    versions = yield StoreCall(store, store.versions, place.run_ids[0], gate.tool)
    earlier = [request_id for request_id, digest in versions if digest != gate.schema.digest]
    if not earlier:
        return None
    import logging

    waits = ", ".join(earlier)
    text = "%s asks anew in run %r: an earlier version of it, with other parameters, waits as %s and will not run"
    logging.getLogger("sayso").warning(text, gate.name, place.run_ids[0], waits)
    return {"note": f"an earlier version of this function waits as {waits}; to approve that one runs nothing"}


def open_request(store: Store, request: Request, saved: RunUpdate | None = None) -> Effects[Request]:
    """Record a request, and return the open one of its fingerprint, this or an earlier one. Durable on return.

    A cancelled task or Ctrl-C may break this off when the request is stored already; it is withdrawn then. It stays
    where somebody can come back to it: in a run with a name, or one that is saved together with it.
    """
    if saved is not None or not is_random(request.run_id):
        return telemetry.asked((yield StoreCall(store, store.ask, request, saved)))
    is_left = threading.Event()
    try:
        return telemetry.asked((yield StoreCall(store, _opened, store, request, is_left)))
    except BaseException as error:
        is_left.set()
        with suppress(errors.SaysoError):
            why = f"the program stopped waiting ({type(error).__name__})"
            yield from withdraw(store, request.id, why, error)
        raise


def _opened(store: Store, request: Request, is_left: threading.Event) -> Request:
    found = store.ask(request)
    if is_left.is_set():  # a coroutine that is closed does not wait for this thread, and may have withdrawn too early
        with suppress(errors.SaysoError):
            drive(withdraw(store, request.id, "the program stopped waiting (GeneratorExit)", GeneratorExit()))
    return found


def withdraw(store: Store, request_id: str, why: str, error: BaseException) -> Effects[None]:
    """Take back a request that nobody waits for any more because of `error`.

    Raises:
        StoreError: The store failed; the request may still be pending.
    """
    verb = partial(store.withdraw, is_brief=True)  # whoever stops waiting must not be held up
    if isinstance(error, GeneratorExit):  # nothing can be awaited any more
        verb(request_id, requester(), why)
    else:
        yield StoreCall(store, verb, request_id, requester(), why)


# -- an unknown outcome -------------------------------------------------------------------------------------------


def _verify(gate: Gate, store: Store, request: Request, needs: Needs) -> Effects[Check | None]:
    """Ask the gate's `verify=` hook about a call whose outcome is unknown, and record its answer."""
    answer = None
    if gate.verify is not None:
        answer = yield from _ask_verify(gate, gate.verify, request)
    if answer is None:
        if request.idempotent and needs.unmet_by(request) is None:
            return Check("ready", request, needs=needs)
        raise errors.OutcomeUnknownError(request.id)
    hook = Identity(PROGRAM, f"verify={getattr(gate.verify, '__name__', 'hook')}")
    resolve = partial(store.resolve, roles=None, happened=bool(answer), comment=None, channel="verify")
    resolved = yield StoreCall(store, resolve, request.id, hook)
    if answer:
        return Check("happened", resolved, result=answer.result if isinstance(answer, Happened) else None)
    if resolved.state is State.APPROVED and needs.unmet_by(resolved) is None:
        return Check("ready", resolved, needs=needs)
    return None


def _ask_verify(gate: Gate, verify: Callable[..., Any], request: Request) -> Effects[Happened | bool | None]:
    arguments = canonical.decode(request.effective.form, gate.schema.classes)
    token = current.set(request)
    try:
        answer = yield gate.hook_call(verify, arguments)
    except Exception as error:  # noqa: BLE001  user code: a hook that fails says nothing, and nothing is run
        refuse(gate, "verify=", error, arguments)
    finally:
        with suppress(ValueError):  # as in `execute`
            current.reset(token)
    if answer is None or isinstance(answer, bool | Happened):
        return answer
    raise errors.PolicyError(
        f"verify= of {gate.name}", f"returned {type(answer).__name__}, not True, False, None or Happened(result)"
    )


# -- which function asked -----------------------------------------------------------------------------------------

_FEW = 64


class _Asked(NamedTuple):
    gate: ref[Gate]
    until: datetime


_asked: dict[str, _Asked] = {}
_limit = [_FEW]


def check_function(gate: Gate, request: Request) -> None:
    """Register which gate asked for a request, for as long as the gate lives and the request can count.

    Raises:
        ConfigError: A live gate of the same tool asked for it, and its function captured other objects.
    """
    if gate.is_self_contained:
        return
    known = _asked.get(request.id)
    other = None if known is None else known.gate()
    if other is gate:
        return
    if other is not None and not is_same(other.captured_objects, gate.captured_objects):
        raise ConfigError(
            f"two functions are gated as {gate.tool!r}, with different objects around them, and the other one asked"
            f" for {request.id}; give each a name= of its own. The call was not run"
        )
    if other is None:
        _asked[request.id] = _Asked(ref(gate), request.expires_at + request.approval_window)
        _remove_ended()


def forget_function(request_id: str) -> None:
    """Remove a request whose call was executed from the registry."""
    _asked.pop(request_id, None)


def _remove_ended() -> None:
    if len(_asked) <= _limit[0]:
        return
    now = clock.now()
    for request_id, asked in list(_asked.items()):
        if asked.gate() is None or asked.until <= now:
            _asked.pop(request_id, None)
    # Twice what had to stay, so that the whole registry is searched rarely, however large it is.
    _limit[0] = max(_FEW, 2 * len(_asked))
