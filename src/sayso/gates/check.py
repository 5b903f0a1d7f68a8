"""What people are shown and told of a call: its masked form, the prompt, the rule; and what must stay out of them.

Two functions that are gated as one tool, and do not have the same objects around them, are kept apart.

Which function asked for a request is remembered here, for this process and weakly; another process cannot know it.
What is remembered goes when the gate does, when the call was executed, and at the latest when the request has ended.
The invariant: a gate never uses a request of which it is known that a different function asked for it.

`check`: what the gate says to a call. It asks the rule, binds the call, and finds or records its request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, NoReturn, cast
from weakref import ref

from sayso import clock, errors, telemetry
from sayso.effects import Effects, UserCode, Verb, drive
from sayso.errors import ConfigError
from sayso.gates.captured import is_same
from sayso.gates.options import ALLOWED, Check, Gate, Needs, Place, current, requester
from sayso.model import canonical, redaction
from sayso.model.canonical.tags import dump
from sayso.model.fingerprint import call_digest, fingerprint
from sayso.model.ids import new_request_id
from sayso.model.lifecycle import is_due
from sayso.model.nan import nan_in
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.run import Saved
from sayso.model.schema import SchemaError
from sayso.policy import Happened, Verdict, verdict_of
from sayso.stores import worker
from sayso.stores.base import Store
from sayso.view.summary import is_random

__all__ = [
    "HookError",
    "again",
    "call_of",
    "check",
    "fit_facts",
    "forget",
    "is_as_shown",
    "keep_apart",
    "lacking",
    "must_fit",
    "must_keep_bounds",
    "not_found_again",
    "open_request",
    "prompt_of",
    "refuse",
    "refused_edit",
    "rule_text",
    "secrets_among",
    "secrets_of",
    "withdraw",
]


class HookError(Exception):
    """One of several hooks behind one option of a gate failed.

    Attributes:
        option: What the author calls it.
        error: What it raised.
    """

    def __init__(self, option: str, error: Exception) -> None:
        super().__init__(option)
        self.option, self.error = option, error


def call_of(gate: Gate, arguments: dict[str, Any], form: canonical.Form, digest: str) -> Call:
    """Return the call as it is recorded: its real form, and the one that people see."""
    # What people see comes from what was bound: the caller's own lists may have changed since.
    # One brace and no bracket: scalars only, which are their own form and cannot change.
    is_flat = form.text.count("{") == 1 and "[" not in form.text
    tree: dict[str, Any] = arguments if is_flat else canonical.load(form.text)
    if gate.redactor is not None:
        tree = _shown_by_redactor(gate.redactor, canonical.decode(form.text, gate.schema.classes))
    masked = gate.redaction.mask(tree)
    is_masked = masked is not tree or gate.redactor is not None
    text = dump(masked) if is_masked else None
    return Call(gate.tool, gate.name, form.text, text, digest, gate.schema.text, gate.schema.digest)


def _shown_by_redactor(redactor: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> dict[str, Any]:
    shown = redaction.shown_by(redactor, arguments)
    try:
        return canonical.load(canonical.encode(shown).text)
    except errors.ArgumentError:
        return dict(redaction.FAILED)


def must_fit(gate: Gate, arguments: dict[str, Any]) -> None:
    """Raise `ArgumentError` for an argument that is not what the function's own types say.

    An edit is checked by these types, so the reviewer could change nothing else in such a call either.
    """
    _refuse_first(gate, gate.schema.misfits(arguments))


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
        return []  # what cannot be read is no edit of ours; the start will find that
    return []


def must_keep_bounds(gate: Gate, arguments: dict[str, Any]) -> None:
    """Raise `ArgumentError` for an argument of a call that nobody is asked about, outside of what its author allows."""
    _refuse_first(gate, gate.out_of_bounds(arguments))


def _refuse_first(gate: Gate, problems: list[str]) -> None:
    if problems:
        where, _, reason = problems[0].partition(": ")
        raise errors.ArgumentError(where, f"does not fit {gate.name}'s own types ({reason})")


def is_as_shown(gate: Gate, call: Call) -> bool:
    """Say whether what people see of a recorded call is what would run.

    A gate's own redactor may show what it likes, but must make the same of the same arguments again.
    """
    if call.masked is None:
        return True
    try:
        shown, real = canonical.load(call.masked), canonical.load(call.form)
    except errors.ArgumentError:  # it is no text of ours any more
        return False
    if redaction.agrees(shown, real):
        return True
    if gate.redactor is None:
        return False
    again = _shown_by_redactor(gate.redactor, canonical.decode(call.form, gate.schema.classes))
    failed: dict[str, Any] = dict(redaction.FAILED)
    return dump(shown) in {dump(gate.redaction.mask(again)), dump(gate.redaction.mask(failed))}


def secrets_of(gate: Gate, form: str, shown: str | None) -> frozenset[str]:
    """Return the texts of a call that nobody may see: what a name marks, and what the gate's redactor took out."""
    if shown is None:
        return frozenset()
    tree = canonical.load(form)
    marked = gate.redaction.secrets(tree)
    if gate.redactor is None:
        return marked
    return marked | {text for text in gate.redaction.texts(tree) if text not in shown}


def secrets_among(gate: Gate, arguments: dict[str, Any]) -> frozenset[str] | None:
    """Return the secrets in arguments that are not bound yet; None where nobody can say."""
    try:
        return secrets_of(gate, canonical.encode(arguments).text, "")
    except errors.ArgumentError:
        return None  # nobody can say what is secret in them


def refuse(gate: Gate, rule: str, error: Exception, arguments: dict[str, Any]) -> NoReturn:
    """Raise the `PolicyError` for a hook that failed; what quotes a secret of the call goes no further."""
    secrets = secrets_among(gate, arguments)
    words = type(error).__name__ if secrets is None else redaction.error_text(error, secrets)
    refusal = errors.PolicyError(f"{rule} of {gate.name}", f"raised {words}")
    cause = None if secrets is None or redaction.quotes(error, secrets) else error
    try:
        raise refusal from cause
    finally:
        # `from None` hides what was raised before and still holds it, for whoever walks the chain: a tracker of errors.
        refusal.__context__ = cause


def fit_facts(gate: Gate, facts: Any, secrets: Collection[str]) -> Any:
    """Return what a program tells a front end about a call, JSON values, with the call's secrets masked."""
    if isinstance(facts, dict):
        named = cast("dict[str, Any]", facts)
        is_secret = gate.redaction.is_secret
        return {n: redaction.MASK if is_secret(n) else fit_facts(gate, v, secrets) for n, v in named.items()}
    if isinstance(facts, list):
        return [fit_facts(gate, item, secrets) for item in cast("list[Any]", facts)]
    if isinstance(facts, str):
        return redaction.fit(facts, secrets)
    return redaction.MASK if isinstance(facts, int | float) and str(facts) in secrets else facts


def rule_text(gate: Gate, verdict: Verdict) -> str | None:
    """Return why a call is held, for the reviewer."""
    if isinstance(gate.when, bool):
        return verdict.reason
    rule = gate.rule
    return rule if verdict.reason is None else f"{rule}: {verdict.reason}"


def prompt_of(gate: Gate, arguments: dict[str, Any]) -> Effects[str | None]:
    """Return what the gate wants the reviewer to read first; raises `PolicyError` where its prompt fails."""
    if gate.prompt is None or isinstance(gate.prompt, str):
        return gate.prompt
    try:
        text = yield gate.asks(gate.prompt, arguments)
    except Exception as error:  # noqa: BLE001  user code: a prompt that fails must not let the call through
        refuse(gate, f"{gate.word('prompt')}=", error, arguments)
    if not isinstance(text, str):
        raise errors.PolicyError(
            f"{gate.word('prompt')}= of {gate.name}", f"returned {type(text).__name__}, not a text"
        )
    return text


_FEW = 64


class _Asked(NamedTuple):
    gate: ref[Gate]
    until: datetime


_asked: dict[str, _Asked] = {}
_room = [_FEW]


def keep_apart(gate: Gate, request: Request) -> None:
    """Remember that a gate met a request, if nobody else has before.

    Raises:
        ConfigError: A live gate of the same tool met it before, whose function has other objects around it.
    """
    if gate.stands_alone:
        return
    known = _asked.get(request.id)
    other = None if known is None else known.gate()
    if other is gate:
        return
    if other is not None and not is_same(other.surroundings, gate.surroundings):
        raise ConfigError(
            f"two functions are gated as {gate.tool!r}, with different objects around them, and the other one asked"
            f" for {request.id}; give each a name= of its own. The call was not run"
        )
    if other is None:
        _asked[request.id] = _Asked(ref(gate), request.expires_at + request.approval_window)
        _tidy()


def forget(request_id: str) -> None:
    """Drop what is remembered of a request whose call was executed."""
    _asked.pop(request_id, None)


def _tidy() -> None:
    if len(_asked) <= _room[0]:
        return
    now = clock.now()
    for request_id, asked in list(_asked.items()):
        if asked.gate() is None or asked.until <= now:
            _asked.pop(request_id, None)
    # Twice what had to stay, so that looking at all of them is rare however many there are.
    _room[0] = max(_FEW, 2 * len(_asked))


_OPEN = {State.PENDING, State.APPROVED}


def check(gate: Gate, store: Store, arguments: dict[str, Any], place: Place) -> Effects[Check]:
    """Find out whether a call may run.

    Raises:
        ConfigError: Another function, gated as the same tool, asked for this call.
        PolicyError: A rule, prompt or hook failed.
        ArgumentError: An argument has no canonical form, or does not fit the function's own types.
        StartRefusedError: The call is running elsewhere, or its outcome is unknown.
        StoreError: The store failed.
    """
    verdict = yield from _verdict(gate, arguments)
    if verdict.kind == "allow":
        must_keep_bounds(gate, arguments)
        return ALLOWED
    if verdict.kind == "deny":
        return (yield from _deny(gate, store, arguments, place, verdict))
    form = canonical.encode(arguments)
    if '"$' in form.text:  # the shape's classes are only wanted where a class may appear
        canonical.check_round_trip(form, gate.schema.classes)
    digest = call_digest(gate.tool, gate.schema.digest, form.digest_input)
    needs = _needs(gate, place, verdict)
    while True:
        found = yield from _find(store, digest, place)
        if found is None:
            if place.pool is not None:
                raise not_found_again(gate.name, place.pool)
            call = call_of(gate, arguments, form, digest)
            found = yield from _ask(gate, store, call, arguments, place, verdict, needs)
        if not place.at:  # a run knows its own code, and each of its calls by its place
            keep_apart(gate, found)
        lacks = needs.unmet_by(found) if found.state in _OPEN else None
        if lacks is None:
            return (yield from _answer(gate, store, found, arguments, place, needs))
        # Asked anew, and of everybody: two programs that differ would else take each other's requests back for ever.
        yield Verb(store.blocks, store.clear, found.id, requester(), lacks)
        needs = needs.joined(found)


def not_found_again(what: str, pool: str) -> errors.ConfigError:
    """Return the refusal of what would raise `ConfirmationRequired` where nobody could come back to it."""
    return errors.ConfigError(
        f"{what} would wait for a person in a thread of a pool ({pool}) outside of any run; nothing was asked and "
        "nothing ran. Such a thread serves one caller after another, so nobody could come back for the decision. Name "
        'the run around it, inside of the thread: with sayso.run("order-4721"): ...'
    )


def again(gate: Gate, store: Store, request: Request, place: Place) -> Effects[Check]:
    """Find out whether a call that was asked before may run; no rule or prompt is asked a second time.

    What the gate asks for without its rule counts as well (`lacking`): the stricter of the two.

    Raises:
        As `check` does.
    """
    arguments = canonical.decode(request.call.form, gate.schema.classes)
    return (yield from _answer(gate, store, request, arguments, place, _needs_again(gate, request, place)))


def lacking(gate: Gate, request: Request, place: Place) -> str | None:
    """Return why a request that waits, or was approved, is less than the gate asks for by now; None where it is not."""
    return _needs_again(gate, request, place).unmet_by(request) if request.state in _OPEN else None


def _needs(gate: Gate, place: Place, verdict: Verdict) -> Needs:
    # A rule that names who must agree does not mean whom the gate would let in later, unless it says so.
    escalation = verdict.escalation or (gate.escalation if verdict.quorum is None else None)
    return Needs(verdict.quorum or gate.quorum, place.acts_for, escalation, gate.retries, gate.idempotent)


def _needs_again(gate: Gate, request: Request, place: Place) -> Needs:
    # A rule may have asked for other people than the gate does; only the record says whom.
    who = gate if isinstance(gate.when, bool) else request
    return Needs(who.quorum, place.acts_for, who.escalation, gate.retries, gate.idempotent)


def _verdict(gate: Gate, arguments: dict[str, Any]) -> Effects[Verdict]:
    rule = gate.when
    if isinstance(rule, bool):
        return verdict_of(rule, gate.rule)
    try:
        asked = gate.asks(rule, arguments).watching(partial(_forms, arguments))
        lost = nan_in(asked.kwargs)
        answer = (yield asked) if lost is None else None
    except Exception as error:  # noqa: BLE001  user code: whatever it raises means that the call is not run
        refuse(gate, gate.rule, error, arguments)
    if lost is not None:
        raise errors.PolicyError(f"{gate.rule} of {gate.name}", f"cannot judge {lost}, which is NaN")
    if asked.has_moved:
        raise errors.PolicyError(f"{gate.rule} of {gate.name}", "the arguments changed while the rule decided")
    # How the rule is named takes longer to write than a rule takes to answer, and is wanted where it answers nonsense.
    return verdict_of(answer, "" if type(answer) is bool else f"{gate.rule} of {gate.name}")


def _forms(arguments: dict[str, Any]) -> list[str | None]:
    return [_form(name, value) for name, value in arguments.items()]


def _form(name: str, value: object) -> str | None:
    try:
        return canonical.encode({name: value}).text
    except errors.ArgumentError:
        return None  # nobody can say what is in it: a call that is held will be refused for it, as always


def _deny(gate: Gate, store: Store, arguments: dict[str, Any], place: Place, verdict: Verdict) -> Effects[Check]:
    secrets = secrets_among(gate, arguments)
    reason = None if verdict.reason is None or secrets is None else redaction.fit(verdict.reason, secrets)
    detail = {"tool": gate.tool, "rule": gate.rule, "reason": reason}
    yield Verb(store.blocks, store.note, place.run_ids[0], "denied", requester(), detail)
    telemetry.denied(gate.name)
    return Check("deny", reason=reason)


def _find(store: Store, digest: str, place: Place) -> Effects[Request | None]:
    """Return the request that answers for this call here: one decided from here, the run's own, a parent's."""
    if place.saves is not None:
        return None  # the run would know of one: each is saved with its step; and `open` finds what it does not know
    adopted = place.adopted.get(digest)
    if adopted is not None:
        with suppress(errors.RequestNotFoundError):
            found = yield from _settled(store, (yield Verb(store.blocks, store.get, adopted)))
            if found.holds:
                return found
    for run_id in place.run_ids:
        found = yield Verb(store.blocks, store.find, fingerprint(run_id, digest, place.at))
        if found is not None:
            found = yield from _settled(store, found)
            if found.holds:
                return found
    return None


def _settled(store: Store, request: Request) -> Effects[Request]:
    # An approval is compared with the journal when it is started; what ends the call here is compared by `settle`.
    if request.state not in _OPEN or is_due(request, clock.now()):
        return (yield Verb(store.blocks, store.settle, request.id))
    return request


def _ask(
    gate: Gate, store: Store, call: Call, arguments: dict[str, Any], place: Place, verdict: Verdict, needs: Needs
) -> Effects[Request]:
    must_fit(gate, arguments)
    # Where values around the function tell its calls apart, several versions of it are nothing unusual. Without a disk
    # nothing is left of an earlier program.
    is_resumable = place.has_name and gate.stands_alone and store.blocks and not place.at
    earlier = (yield from _earlier(gate, store, place)) if is_resumable else None
    prompt = verdict.prompt if verdict.prompt is not None else (yield from prompt_of(gate, arguments))
    rule, secrets = rule_text(gate, verdict), secrets_of(gate, call.form, call.masked)
    now, run_id = clock.now(), place.run_ids[0]
    request = Request(
        id=new_request_id(),
        kind="call",
        run_id=run_id,
        fingerprint=fingerprint(run_id, call.digest, place.at),
        place=place.at,
        subject=call,
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
        context=earlier or (yield from _facts(gate, call, arguments, place, verdict)),
    )
    saved = None if place.saves is None else (yield from place.saves(request))
    return (yield from open_request(store, request, saved))


def open_request(store: Store, request: Request, saved: Saved | None = None) -> Effects[Request]:
    """Record a request, and return the one that holds its place now; durable then.

    Where this is broken off by a cancelled task or Ctrl-C, the request may be stored all the same, and is withdrawn.
    It stays where somebody can come back to it: in a run with a name, or one that is saved together with it.
    """
    if saved is not None or not is_random(request.run_id):
        return telemetry.asked((yield Verb(store.blocks, store.open, request, saved)))
    is_left = threading.Event()
    try:
        return telemetry.asked((yield Verb(store.blocks, _opened, store, request, is_left)))
    except BaseException as error:
        is_left.set()
        with suppress(errors.SaysoError):
            why = f"the program stopped waiting ({type(error).__name__})"
            yield from withdraw(store, request.id, why, error)
        raise


def _opened(store: Store, request: Request, is_left: threading.Event) -> Request:
    found = store.open(request)
    if is_left.is_set():  # a coroutine that is closed does not wait for this thread, and may have withdrawn too early
        with suppress(errors.SaysoError):
            drive(withdraw(store, request.id, "the program stopped waiting (GeneratorExit)", GeneratorExit()))
    return found


def withdraw(store: Store, request_id: str, why: str, error: BaseException) -> Effects[None]:
    """Take back a request that nobody waits for any more because of `error`.

    Raises:
        StoreError: The store failed; the request may still be pending.
    """
    # A store on another machine gives up sooner here: whoever stops waiting must not be held up.
    verb: Callable[..., Request] = getattr(store, "withdraw", store.clear)
    if isinstance(error, GeneratorExit):  # nothing can be awaited any more
        verb(request_id, requester(), why)
    else:
        yield Verb(store.blocks, verb, request_id, requester(), why)


def _facts(
    gate: Gate, call: Call, arguments: dict[str, Any], place: Place, verdict: Verdict
) -> Effects[dict[str, Any] | None]:
    """Return what a front end may know about a call; what the rule says comes before what the gate says."""
    if place.context is None and gate.context is None and verdict.context is None:
        return None
    facts: Any = {}
    if gate.context is not None:
        try:
            facts = yield UserCode(gate.context, {"masked": call.arguments})
        except HookError as failed:
            refuse(gate, f"{failed.option}=", failed.error, arguments)
        except Exception as error:  # noqa: BLE001  user code: the call waits for nobody whom it cannot be shown to
            refuse(gate, "context=", error, arguments)
    told_of = fit_facts(gate, {**facts, **(verdict.context or {})}, secrets_of(gate, call.form, call.masked))
    return {**(place.context or {}), **told_of}


def _earlier(gate: Gate, store: Store, place: Place) -> Effects[dict[str, Any] | None]:
    """Return a note on what waits in this run for the function as it was before its parameters changed."""
    versions = yield Verb(store.blocks, store.versions, place.run_ids[0], gate.tool)
    earlier = [request_id for request_id, digest in versions if digest != gate.schema.digest]
    if not earlier:
        return None
    import logging

    waits = ", ".join(earlier)
    text = "%s asks anew in run %r: an earlier version of it, with other parameters, waits as %s and will not run"
    logging.getLogger("sayso").warning(text, gate.name, place.run_ids[0], waits)
    return {"note": f"an earlier version of this function waits as {waits}; to approve that one runs nothing"}


def _answer(
    gate: Gate, store: Store, request: Request, arguments: dict[str, Any], place: Place, needs: Needs
) -> Effects[Check]:
    match request.state:
        case State.PENDING:
            return Check("held", request)
        case State.APPROVED:
            return (yield from _approved(gate, store, request, needs))
        case State.REJECTED | State.FEEDBACK | State.CANCELLED | State.ANSWERED:
            return Check("refused", request)
        case State.UNKNOWN:
            return (yield from _unknown(gate, store, request, arguments, place, needs))
        case State.RUNNING | State.DONE | State.FAILED | State.EXPIRED:
            # Running: somebody has the one start. The others do not hold; they are only met when they change
            # between being found and being read, and the next call asks anew.
            at = None if request.execution is None else request.execution.started_at
            raise errors.AlreadyStartedError(request.id, state=request.state, at=at, age="before")


def _approved(gate: Gate, store: Store, request: Request, needs: Needs) -> Effects[Check]:
    """Let an approved call start, if the function's own types take what reviewers made of it; they were not there."""
    problems = refused_edit(gate, request)
    if not problems:
        return Check("ready", request, needs=needs)
    # The row is compared with the journal first: what is sent back by an altered one would hide that it was altered.
    yield Verb(store.blocks, store.settle, request.id)
    after = yield Verb(store.blocks, store.send_back, request.id, requester(), problems)
    return Check("held" if after.state is State.PENDING else "ready", after, needs=needs)


def _unknown(
    gate: Gate, store: Store, request: Request, arguments: dict[str, Any], place: Place, needs: Needs
) -> Effects[Check]:
    answer = None
    if gate.verify is not None:
        ran_with = canonical.decode(request.effective.form, gate.schema.classes)
        answer = yield from _verified(gate, gate.verify, request, ran_with)
    if answer is None:
        if request.idempotent and needs.unmet_by(request) is None:
            return Check("ready", request, needs=needs)
        raise errors.OutcomeUnknownError(request.id)
    hook = Identity(PROGRAM, f"verify={getattr(gate.verify, '__name__', 'hook')}")
    settle = partial(store.resolve, roles=None, happened=bool(answer), comment=None, channel="verify")
    resolved = yield Verb(store.blocks, settle, request.id, hook)
    if answer:
        result = answer.result if isinstance(answer, Happened) else None
        return Check("happened", resolved, result=result)
    if resolved.state is State.APPROVED and needs.unmet_by(resolved) is None:
        return Check("ready", resolved, needs=needs)
    return (yield from check(gate, store, arguments, place))


def _verified(
    gate: Gate, verify: Callable[..., Any], request: Request, arguments: dict[str, Any]
) -> Effects[Happened | bool | None]:
    token = current.set(request)
    try:
        answer = yield gate.asks(verify, arguments)
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
