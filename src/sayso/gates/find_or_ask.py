"""The request of a call: an earlier one that answers it, or else a new one; and what its gate requires of it.

An earlier request is the one that this call waited for, the one with its key, or one that was decided in this run for
the same call. A key finds its request forever, even if a rule now allows the call. Invariants: no call runs in addition
to the request of its key, or against a decision that was made while it waited; no approval counts that has less than
its gate now requires.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from sayso import clock, config, errors
from sayso.effects import Operations, StoreCall
from sayso.gates.caller import Caller, not_found_again
from sayso.gates.hooks import (
    as_encoded,
    effect_of,
    facts_of,
    key_of,
    masked_call,
    must_show_no_secret,
    prompt_of,
    secrets_of,
    text_of,
    unchanged,
    under_record,
)
from sayso.gates.options import Gate
from sayso.gates.scope import CallSite
from sayso.model import canonical, redaction
from sayso.model.ids import call_digest, fingerprint, new_request_id
from sayso.model.lifecycle import is_due
from sayso.model.request import Call, Request, State
from sayso.policy import Verdict
from sayso.policy.verdict import HOLD
from sayso.stores import workers
from sayso.stores.program import ProgramStore

_OPEN = {State.PENDING, State.APPROVED}


def find_or_ask(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], wanted: CallSite, caller: Caller,
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
    hooks = (gate.context, prompt, gate.title, gate.summary, gate.effect)
    # Without hooks, creating a request in vain has no side effect.
    asks_first = is_own and caller.finds and store.asks_first(own) and not any(map(callable, hooks))
    while True:
        found = None if asks_first else (yield from _find(gate, store, digest, wanted, caller))
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
        if is_new or not (yield from withdraw_if_too_weak(gate, store, wanted, found, verdict)):
            return found
        # Require both: otherwise two programs with different requirements would withdraw each other's requests forever.
        wanted = wanted.joined(found)


def _find(gate: Gate, store: ProgramStore, digest: str, site: CallSite, caller: Caller) -> Operations[Request | None]:
    """Return the request that answers this call: that of its key, one decided here, the run's own, or a parent's."""
    if site.key is not None:
        return (yield from find_keyed(gate, store, lambda: digest, site))
    if not caller.finds:
        return None
    adopted = site.adopted.get(digest)
    finds = [] if adopted is None else [StoreCall(store.get, adopted)]
    finds += [StoreCall(store.find, fingerprint(run_id, digest, site.place, site.key)) for run_id in site.run_ids]
    for find in finds:
        try:
            found: Request | None = yield find
        except errors.RequestNotFoundError:  # what was decided here is in another store
            continue
        if found is not None and (held := (yield from held_by_now(store, found))) is not None:
            return held
    return None


def _new_request(
    gate: Gate, call: Call, own: str, arguments: dict[str, Any], wanted: CallSite, verdict: Verdict
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
    return Request(
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
        process=workers.current() if wanted.name is None else None,
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
        always=gate.always,
        approve_from_notification=verdict.approve_from_notification,
        budgets=tuple((one.text, one.name) for one in verdict.budgets) if verdict.budgets else (),
    )


# -- the request that a call repeats ---------------------------------------------------------------------------------


def find_keyed(
    gate: Gate, store: ProgramStore, digest: Callable[[], str], site: CallSite
) -> Operations[Request | None]:  # fmt: skip
    """Return the current request with a key, if the digest of its call is that of `digest`.

    An approval is compared with the journal when it is started; any other request is compared here.

    Raises:
        KeyReusedError: The key was used for another call.
    """
    run_id, key = site.run_ids[0], cast("str", site.key)
    found: Request | None = yield StoreCall(store.find_key, run_id, key)
    if found is None:
        return None
    if found.subject.digest != digest():
        is_same = getattr(found.subject, "tool", None) == gate.tool
        other = f"another tool, {getattr(found.subject, 'tool', 'a question')}"
        what = "other arguments, or another schema of them" if is_same else other
        raise errors.KeyReusedError(run_id, key, request_id=found.id, what=what)
    is_open = found.state in _OPEN and not is_due(found, clock.now())
    return found if is_open else (yield StoreCall(store.settle, found.id))


def held_by_now(store: ProgramStore, found: Request) -> Operations[Request | None]:
    """Return the settled request; None if it no longer answers a call.

    An approval is compared with the journal when it is started; any other request is compared here, by `settle`.
    """
    if found.state not in _OPEN or is_due(found, clock.now()):
        found = yield StoreCall(store.settle, found.id)
    return found if found.holds else None


def find_earlier(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], site: CallSite, verdict: Verdict,
    waited: Request | None = None,
) -> Operations[Request | None]:  # fmt: skip
    """Return the earlier request of a call that its rule now allows, if there is one.

    A rule may depend on the time, and its file may have changed. What a person decided about this call counts
    nevertheless, and so does the request of its key, or one that was answered here. None if nobody was asked, the rule
    denies the call, or nobody answered in time. Raises `PolicyError` if the arguments changed meanwhile.

    Args:
        gate, store, arguments, site: As for `gated_call`.
        verdict: The rule's verdict.
        waited: The request for which this very call has waited.
    """
    if verdict.kind == "deny":
        return None
    if waited is not None:
        return (yield from unchanged(gate, arguments, _if_it_answers(store, waited.id)))
    if site.key is not None or gate.key is not None:
        return (yield from unchanged(gate, arguments, _of_key(gate, store, arguments, site))) if site.has_name else None
    with suppress(errors.ArgumentError):  # such a call was never asked
        adopted = site.adopted.get(_digest(gate, arguments)) if site.adopted else None
        if adopted is not None:
            return (yield from unchanged(gate, arguments, _if_it_answers(store, adopted)))
    return None


def _of_key(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], site: CallSite
) -> Operations[Request | None]:  # fmt: skip
    keyed = site._replace(key=(yield from key_of(gate, arguments, site)))
    return (yield from find_keyed(gate, store, lambda: _digest(gate, arguments), keyed))


def _if_it_answers(store: ProgramStore, request_id: str) -> Operations[Request | None]:
    """Return the current request if it still answers its call."""
    found: Request | None = None
    with suppress(errors.RequestNotFoundError):
        found = yield StoreCall(store.settle, request_id)
    return found if found is not None and (found.holds or found.key is not None) else None


def _digest(gate: Gate, arguments: dict[str, Any]) -> str:
    return call_digest(gate.tool, gate.schema.digest, canonical.encode(arguments).digest_input)


# -- what the gate requires of it -----------------------------------------------------------------------------------


def wanted_of(gate: Gate, site: CallSite, verdict: Verdict) -> CallSite:
    """Return what the gate requires for a call that its rule holds."""
    # If a rule names who must approve, the gate's own escalation does not apply, unless the rule adds one.
    escalation = verdict.escalation or (gate.escalation if verdict.quorum is None else None)
    return site._replace(
        quorum=verdict.quorum or gate.quorum, escalation=escalation, retries=gate.retries, idempotent=gate.idempotent
    )


def withdraw_if_too_weak(
    gate: Gate, store: ProgramStore, wanted: CallSite, request: Request, verdict: Verdict | None = None
) -> Operations[bool]:  # fmt: skip
    """Withdraw an open request that has less than the gate now requires; return whether it was withdrawn.

    Raises:
        KeyReusedError: It has less and has a key, so nothing could be asked in its place; it stays.
    """
    if request.state not in _OPEN:
        return False
    lack = wanted.lack_of(request)
    under = None if request.decision is None else request.decision.under
    is_held = verdict is not None and under == "budget" and not verdict.budgets
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


def as_recorded(gate: Gate, site: CallSite, request: Request) -> tuple[Gate, CallSite]:
    """Return the gate and what it requires for a request whose rule is not asked again.

    Raises `PolicyError` if the policy file in effect cannot be used.
    """
    # A rule may have required other people than the gate does, also fewer, and only the record tells whom.
    who = gate if isinstance(gate.when, bool) and request.rule is None else request
    wanted = site._replace(
        quorum=who.quorum, escalation=who.escalation, retries=gate.retries, idempotent=gate.idempotent
    )
    return under_record(gate, request, site), wanted
