"""Calls the hooks of a gate, and masks secrets in what is stored or shown: the call, its result, errors and facts.

The hooks are the rule, the key, the effect, the texts and facts for reviewers, and `verify=`. A text may also be a
template (`"refund:{order_id}"`), parsed when the function is decorated. If a hook raises or returns an unusable value,
the call does not run and `PolicyError` is raised, without quoting secrets. `unchanged` stops a call whose arguments
changed after its rule decided. Invariant: a key or an effect is never empty and never contains a secret.
"""

from __future__ import annotations

import math
import string
import sys
from collections import UserDict, UserList, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, time
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import Enum
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar, cast
from uuid import UUID

from sayso import errors, telemetry
from sayso.config import requester
from sayso.effects import HookCall, Operations, StoreCall
from sayso.gates.options import Gate
from sayso.gates.scope import CallSite, executing
from sayso.model import canonical, redaction
from sayso.model.canonical.json_tree import dump
from sayso.model.parameters import nan_in, parts_in
from sayso.model.request import Call, Request
from sayso.model.schema import Schema, SchemaError
from sayso.model.text import is_plain_name
from sayso.policy import Happened, Policy, Verdict, verdict_of
from sayso.policy.verdict import HOLD
from sayso.stores.program import ProgramStore

_T = TypeVar("_T")
_SINGLE = {str, int, float, bool}
_PLAIN = frozenset({str, int, bool, bytes, type(None)})


class HookError(Exception):
    """A hook of one of a gate's options failed.

    Attributes:
        option: The option's name, as the author wrote it.
        error: The hook's exception.
    """

    def __init__(self, option: str, error: Exception) -> None:
        super().__init__(option)
        self.option, self.error = option, error


def masked_call(gate: Gate, arguments: dict[str, Any], form: canonical.Form, schema: Schema, digest: str) -> Call:
    """Return the call to record: its canonical form, and the masked form that people see.

    Args:
        gate, schema, digest: The gate, its schema, and the digest of the call.
        arguments: As `as_encoded` returns them.
        form: Their canonical form.

    Raises:
        ArgumentError: An argument does not fit its type.
    """
    # An edit is validated by the same types, so a reviewer could not change anything else in such a call.
    if problems := schema.misfits(arguments):
        raise gate.misfit(problems[0])
    tree = arguments if '"$' not in form.text else canonical.load(form.text)  # without tags, both are the same
    if gate.redactor is not None:
        tree = _shown_by_redactor(gate.redactor, schema.decode(form.text))
    masked = gate.redaction.mask(tree)
    is_masked = masked is not tree or gate.redactor is not None
    text = dump(masked) if is_masked else None
    return Call(
        tool=gate.tool, name=gate.name, form=form.text, masked=text, digest=digest, schema=schema.text,
        schema_digest=schema.digest,
    )  # fmt: skip


def as_encoded(schema: Schema, arguments: dict[str, Any], form: canonical.Form) -> dict[str, Any]:
    """Return the arguments as recorded, for hooks and texts: the caller's own lists may have changed meanwhile."""
    # A form with one brace and no bracket has only scalars, which cannot change.
    is_flat = form.text.count("{") == 1 and "[" not in form.text
    return arguments if is_flat else schema.decode(form.text)


def _shown_by_redactor(redactor: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> dict[str, Any]:
    shown = redaction.shown_by(redactor, arguments)
    try:
        return canonical.load(canonical.encode(shown).text)
    except errors.ArgumentError:
        return dict(redaction.FAILED)


def is_as_shown(gate: Gate, call: Call, masked: str) -> bool:
    """Return whether the masked form of a recorded call belongs to the arguments that would run.

    A gate's own redactor may show anything, but must return the same for the same arguments.
    """
    try:
        shown, real = canonical.load(masked), canonical.load(call.form)
    except errors.ArgumentError:  # not written by sayso
        return False
    if redaction.agrees(shown, real):
        return True
    if gate.redactor is None:
        return False
    again = _shown_by_redactor(gate.redactor, gate.schema.decode(call.form))
    failed: dict[str, Any] = dict(redaction.FAILED)
    return dump(shown) in {dump(gate.redaction.mask(again)), dump(gate.redaction.mask(failed))}


def secrets_of(gate: Gate, form: str, shown: str | None) -> frozenset[str]:
    """Return the secret texts of a call: those under secret names, and those that the gate's redactor left out."""
    if shown is None:
        return frozenset()
    tree = canonical.load(form)
    marked = gate.redaction.secrets(tree)
    if gate.redactor is None:
        return marked
    return marked | {text for text in gate.redaction.texts(tree) if text not in shown}


def secrets_known(gate: Gate, request: Request) -> frozenset[str]:
    """Return the secret texts of a request's call, both as proposed and as changed."""
    proposed, edited = request.call, request.edited
    secrets = secrets_of(gate, proposed.form, proposed.masked)
    return secrets if edited is None else secrets | secrets_of(gate, edited.form, edited.masked)


def secrets_among(gate: Gate, arguments: dict[str, Any]) -> frozenset[str] | None:
    """Return the secrets in arguments that are not recorded; None if they have no canonical form to search."""
    try:
        return secrets_of(gate, canonical.encode(arguments).text, "")
    except errors.ArgumentError:
        return None


def refuse(
    gate: Gate, rule: str, error: Exception, arguments: dict[str, Any], handled: BaseException | None
) -> NoReturn:  # fmt: skip
    """Raise the `PolicyError` for a hook that failed, without the secrets of the call.

    Args:
        gate, rule, arguments: For the message.
        error: What the hook raised.
        handled: What the program was handling when it made the call; it stays in the chain of errors, because an outer
            call is judged by it.
    """
    secrets = secrets_among(gate, arguments)
    text = type(error).__name__ if secrets is None else redaction.error_text(error, secrets)
    refusal = errors.PolicyError(f"{rule} of {gate.name}", f"raised {text}")
    cause = None if secrets is None or redaction.quotes(error, secrets) else error
    try:
        raise refusal from cause
    finally:
        # `from None` hides the first error but still refers to it, and an error tracker that walks the chain finds it.
        refusal.__context__ = handled if cause is None else cause


def shown_result(gate: Gate, request: Request, value: Any) -> str | None:
    """Return the masked text of a result for people; None if it is too long or has no canonical form."""
    try:
        text = canonical.encode({"result": value}).text
    except Exception:  # noqa: BLE001  a result may be any object, and reading it may raise anything
        return None
    if len(text) > 65_536:
        return None
    is_open = request.call.masked is None and request.edited is None and not gate.redact
    if is_open and type(value) in _SINGLE and "://" not in text:  # nothing here is a secret, or looks like one
        return text
    tree = canonical.load(text)
    masked = gate.redaction.mask(tree)
    return redaction.scrub(text if masked is tree else dump(masked), secrets_known(gate, request))


def refused_by_types(gate: Gate, request: Request, edited: Call) -> list[str]:
    """Return the problems of an edit by the function's own types, which the reviewer's process may not have had."""
    before, after = canonical.load(request.call.form), canonical.load(edited.form)
    kept = {name for name in after if name in before and dump(after[name]) == dump(before[name])}
    try:
        gate.schema.validate(gate.schema.decode(edited.form), kept=kept)
    except SchemaError as error:
        return error.problems
    except errors.ArgumentError:  # it was altered, which the start will detect
        return []
    return []


_LONGEST = 200
_ONE_VALUE = (str, int, float, Decimal, date, datetime, time, UUID, Enum, PurePath)


# -- the rule ----------------------------------------------------------------------------------------------------


def ask_rule(gate: Gate, arguments: dict[str, Any], site: CallSite) -> Operations[Verdict]:
    """Return the verdict of the gate's rule, or of the policy file, on a call with these arguments."""
    policy = gate.policy()
    if policy is None:
        if gate.when is True:
            return HOLD
        verdict = yield from _own_rule(gate, arguments)
    else:
        verdict = _of_policy(gate, policy, arguments, site)
    if gate.always and verdict.kind == "allow":
        return replace(verdict, kind="hold", reason=None, budgets=(), log=False)
    if not site.has_name and any(one.per == "run" for one in verdict.budgets):
        why = "a budget per run limits nothing here, because each task, thread or call has its own: use sayso.run()"
        return replace(verdict, kind="hold", reason=why, budgets=(), log=False)
    if policy is not None and verdict.kind == "allow":
        policy.let_through(gate.name)
    return verdict


def _of_policy(gate: Gate, policy: Policy, arguments: dict[str, Any], site: CallSite) -> Verdict:
    handled = sys.exc_info()[1]
    try:
        return policy.verdict(
            gate.tool, arguments, schema=gate.schema, run=site.name, agent=requester().subject,
            is_function=gate.tool != gate.name,
        )  # fmt: skip
    except errors.PolicyError:  # it quotes no argument
        raise
    except Exception as error:  # noqa: BLE001  whatever is wrong with the rules or the schema, the call does not run
        refuse(gate, str(policy), error, arguments, handled)


def under_record(gate: Gate, request: Request, site: CallSite) -> Gate:
    """Return the gate for a recorded request, with the masks and the effect of the rule that held it."""
    names = tuple(name for name in request.redact if name not in gate.redact) if request.redact else ()
    effect = None
    if request.effect is not None and gate.effect is None:
        policy = gate.policy()
        if policy is not None:
            effect = _of_policy(gate, policy, gate.schema.decode(request.call.form), site).effect
        if effect is None:
            effect = request.effect.replace("{", "{{").replace("}", "}}")  # not a template
    return gate.under(Verdict("hold", redact=names, effect=effect)) if names or effect is not None else gate


def note_denial(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], site: CallSite, verdict: Verdict
) -> Operations[str]:
    """Write to the journal that the rule denied a call; return the reason."""
    secrets = secrets_among(gate, arguments)
    reason = None if verdict.reason is None or secrets is None else redaction.fit(verdict.reason, secrets)
    rule = verdict.rule or gate.rule
    detail = {"tool": gate.tool, "rule": rule, "reason": reason}
    yield StoreCall(store.note, site.run_ids[0], "denied", requester(), detail)
    telemetry.denied(gate.name)
    return reason or f"{rule} denies {gate.name}"


def note_allowed(gate: Gate, store: ProgramStore, site: CallSite, verdict: Verdict) -> Operations[None]:
    """Write to the journal that a rule with `log` allowed a call; durable before the call runs."""
    detail = {"tool": gate.tool, "rule": verdict.rule or gate.rule, "key": site.key}
    yield StoreCall(store.note, site.run_ids[0], "allowed", requester(), detail)


def _own_rule(gate: Gate, arguments: dict[str, Any]) -> Operations[Verdict]:
    rule: Any = gate.when
    if isinstance(rule, bool):
        return verdict_of(rule, "")
    handled = sys.exc_info()[1]
    try:
        seen = _copies(gate, arguments) if gate.has_async_rule else arguments
        asked = gate.hook_call(rule, seen, lambda: _forms(arguments))
        lost = nan_in(asked.kwargs)
        answer = (yield asked) if lost is None else None
    except Exception as error:  # noqa: BLE001  user code: any error means that the call does not run
        refuse(gate, gate.rule, error, arguments, handled)
    if lost is not None:
        raise errors.PolicyError(f"{gate.rule} of {gate.name}", f"cannot judge {lost}, which is NaN")
    if asked.has_moved:
        raise errors.PolicyError(f"{gate.rule} of {gate.name}", "the arguments changed while the rule decided")
    # Building the rule's name takes longer than most rules run, and it is needed for an invalid answer only.
    return verdict_of(answer, "" if type(answer) is bool else f"{gate.rule} of {gate.name}")


def unchanged(gate: Gate, arguments: dict[str, Any], operations: Operations[_T]) -> Operations[_T]:
    """Run the operations between a verdict and the call that it lets through; other tasks or threads may run meanwhile.

    Raises:
        PolicyError: The arguments are no longer those that the rule judged.
    """
    before = _forms(arguments)
    result = yield from operations
    if _forms(arguments) != before:
        raise errors.PolicyError(f"{gate.rule} of {gate.name}", "the arguments changed after the rule had decided")
    return result


def _copies(gate: Gate, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as they are now, for an async rule or a hook that makes a text.

    Another task's change that is undone before the rule answers has no effect. Nobody else sees what a hook changes.
    Values without a canonical form are passed as they are.
    """
    copies = dict[str, Any]()
    for name, value in arguments.items():
        copies[name] = value
        if type(value) not in _PLAIN:
            with suppress(errors.ArgumentError):
                copies[name] = gate.schema.decode(canonical.encode({name: value}).text)[name]
    return copies


def _forms(arguments: Mapping[str, Any]) -> list[object]:
    return [_form(*one) for one in arguments.items()]


def _form(name: str, value: object) -> object:
    try:
        return canonical.encode({name: value}).text
    except errors.ArgumentError:  # a held call will be rejected because of it
        return _comparable(value)


def _comparable(value: object) -> list[object]:
    """Return what can be compared of a value without a canonical form: plain parts by value, others by identity."""
    found, waiting, seen = list[object](), list[Any]([value]), set[int]()
    while waiting:
        part = waiting.pop()
        kind = cast("type[Any]", type(part))
        if kind in _PLAIN or kind is float:
            found.append((kind, part))
            continue
        if issubclass(kind, bytearray):
            found.append(bytes(part))
        parts = _contents(part)
        inside = [] if id(part) in seen else list(parts)
        seen.add(id(part))
        found += [id(part), [key if type(key) in _PLAIN else id(key) for key, _ in inside]]
        waiting += [one for _, one in inside]
    return found


def _contents(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return what a container has inside. A client or another object of the program's own classes is not entered."""
    if isinstance(value, set | deque):
        return enumerate(cast("set[Any]", value))
    if isinstance(value, SimpleNamespace | UserDict | UserList):
        return vars(cast("object", value)).items()
    private: dict[str, Any] = getattr(value, "__pydantic_private__", None) or {}
    return [*parts_in(value), *private.items()]


# -- key, effect, and texts for people -----------------------------------------------------------------------------


def _shortest(value: Any) -> Any:
    """Return a number so that equal ones have the same text: 100 for 100.0, which a model may write either way."""
    if type(value) is float and math.isfinite(value):
        value = Decimal(int(value) if value.is_integer() else repr(value))
    elif type(value) is int:
        value = Decimal(value)
    if type(value) is Decimal:
        digits = Context(prec=max(1, len(value.as_tuple().digits)), Emin=MIN_EMIN, Emax=MAX_EMAX)
        value = value.normalize(digits)  # in a context of its own: the program's could round it
        return int(value) if value == value.to_integral_value() and value.adjusted() < _LONGEST else value
    return value


class _Template(string.Formatter):
    """Fills a template. If `is_name`, each value in it must be of a type that can be part of a name."""

    def __init__(self, *, is_name: bool) -> None:
        self._is_name = is_name

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        value, first = super().get_field(field_name, args, kwargs)
        if self._is_name and (not isinstance(value, _ONE_VALUE) or value == ""):
            kind = "empty" if value is None or value == "" else f"a {type(value).__name__}"
            raise ValueError(f"{field_name} is {kind}, which cannot be part of a name")
        return _shortest(value) if self._is_name else value, first

    def format_field(self, value: Any, format_spec: str) -> Any:
        if self._is_name and format_spec and type(value) is int:
            # An int is rounded to a float by `.2f`, and refuses `.3`, which the number that was given may take.
            with suppress(ValueError):  # e.g. `x`, which only an int takes
                return format(Decimal(value), format_spec)
        return super().format_field(value, format_spec)


def key_of(gate: Gate, arguments: dict[str, Any], site: CallSite) -> Operations[str | None]:
    """Return the key of a call; None if its gate has none.

    Raises:
        PolicyError: The key cannot be computed.
        ConfigError: The run has no name, so the key could never be found again.
    """
    if site.key is None and gate.key is None:
        return None
    if not site.has_name:
        raise errors.ConfigError(
            f"the key of {gate.name} needs a named run, and this run has none: use `with sayso.run('order-4721'):`"
            " or pass run= to hold(). Nothing was asked and nothing ran"
        )
    if site.key is not None:
        return site.key
    return (yield from _filled(gate, "key", gate.key, arguments, is_name=True))


def effect_of(gate: Gate, arguments: dict[str, Any]) -> Operations[str]:
    """Return the effect of a call with these arguments; raises `PolicyError` if it cannot be computed."""
    return (yield from _filled(gate, "effect", gate.effect, arguments, is_name=True))


def effect_of_edit(gate: Gate, request: Request, edited: Call, site: CallSite) -> Operations[str | None]:
    """Return the effect of a request's call as a reviewer changed it; None if it has none.

    Unless the gate has its own, the rule may name another one for the changed arguments, or none.

    Raises:
        PolicyError: It cannot be computed, or the rule that named it no longer does.
    """
    arguments, effect = gate.schema.decode(edited.form), gate.effect
    if effect is None or gate.has_effect_of_rule:
        effect = yield from _effect_by_rule(gate, arguments, site)
        if effect is None and request.effect is None:
            return None
        if effect is None:
            effect = yield from _effect_by_rule(gate, gate.schema.decode(request.call.form), site)
    if effect is None:
        what = f"the arguments of {request.id} were changed, and no rule says which effect they have now"
        raise errors.PolicyError(f"effect of {gate.name}:", what)
    return (yield from _filled(gate, "effect", effect, arguments, is_name=True))


def _effect_by_rule(gate: Gate, arguments: dict[str, Any], site: CallSite) -> Operations[str | None]:
    policy = gate.policy()
    verdict = (yield from _own_rule(gate, arguments)) if policy is None else _of_policy(gate, policy, arguments, site)
    return verdict.effect


def text_of(
    gate: Gate, option: str, given: Any, arguments: dict[str, Any], secrets: Collection[str]
) -> Operations[str]:  # fmt: skip
    """Return the text of the author's `title=` or `summary=` for a call on one line, secrets masked.

    Raises:
        PolicyError: It cannot be computed.
    """
    text = yield from _filled(gate, option, given, arguments, is_name=False)
    return redaction.fit(" ".join(text.split()), secrets)


def must_show_no_secret(gate: Gate, option: str, text: str, secrets: Collection[str]) -> None:
    """Reject a key or effect that would show a secret: it must be the same in every process, so it is not masked."""
    if redaction.scrub(text, secrets) != text:
        raise errors.PolicyError(f"{option}= of {gate.name}", "contains a secret argument, and would be shown unmasked")


def _filled(gate: Gate, option: str, given: Any, arguments: dict[str, Any], *, is_name: bool) -> Operations[str]:
    handled = sys.exc_info()[1]
    try:
        if callable(given):
            text = yield gate.hook_call(given, _copies(gate, arguments))
        else:
            text = _Template(is_name=is_name).vformat(given, (), arguments)
    except Exception as error:  # noqa: BLE001  user code: a call without a text is not asked
        refuse(gate, f"{option}=", error, arguments, handled)
    if not isinstance(text, str):
        raise errors.PolicyError(f"{option}= of {gate.name}", f"returned {type(text).__name__}, not a string")
    if is_name and not is_plain_name(text, _LONGEST):
        what = f"did not give 1 to {_LONGEST} printable characters without surrounding spaces"
        raise errors.PolicyError(f"{option}= of {gate.name}", what)
    return text


# -- for the reviewer --------------------------------------------------------------------------------------------


def prompt_of(gate: Gate, prompt: str | Callable[..., Any], arguments: dict[str, Any]) -> Operations[str]:
    """Return what the reviewer should read first."""
    if isinstance(prompt, str):
        return prompt
    return (yield from _filled(gate, gate.option_name("prompt"), prompt, arguments, is_name=False))


def facts_of(
    gate: Gate, call: Call, arguments: dict[str, Any], wanted: CallSite, verdict: Verdict, secrets: frozenset[str]
) -> Operations[dict[str, Any]]:  # fmt: skip
    """Return the facts about a call for a front end; those of the rule override those of the gate."""
    facts: Any = {}
    handled = sys.exc_info()[1]
    if gate.context is not None:
        try:
            facts = yield HookCall(gate.context, {"masked": call.arguments})
        except HookError as failed:
            refuse(gate, f"{failed.option}=", failed.error, arguments, handled)
        except Exception as error:  # noqa: BLE001  user code: a call that cannot be shown is not asked
            refuse(gate, "context=", error, arguments, handled)
    return {**(wanted.context or {}), **gate.redaction.mask_facts({**facts, **(verdict.context or {})}, secrets)}


# -- afterwards --------------------------------------------------------------------------------------------------


def ask_verify(gate: Gate, verify: Callable[..., Any], request: Request) -> Operations[Happened | bool | None]:
    """Return the answer of `verify=` for a call with an unknown outcome; None if it cannot tell."""
    arguments = gate.schema.decode(request.effective.form)
    before, handled = executing.set((*executing.get(), request)), sys.exc_info()[1]
    try:
        answer = yield gate.hook_call(verify, arguments)
    except Exception as error:  # noqa: BLE001  user code: a hook that fails tells nothing, and nothing runs
        refuse(gate, "verify=", error, arguments, handled)
    finally:
        with suppress(ValueError):  # as in `execute`
            executing.reset(before)
    if answer is None or isinstance(answer, bool | Happened):
        return answer
    raise errors.PolicyError(
        f"verify= of {gate.name}", f"returned {type(answer).__name__}, not True, False, None or Happened(result)"
    )
