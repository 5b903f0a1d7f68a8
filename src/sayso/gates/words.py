"""What people are shown and told of a call: its masked form, the prompt, the rule; and what must stay out of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NoReturn, cast

from sayso import errors
from sayso.drive import Effects
from sayso.gates.gate import Gate
from sayso.model import canonical, redaction
from sayso.model.canonical.tags import dump
from sayso.model.request import Call
from sayso.policy import Verdict

__all__ = [
    "HookError",
    "call_of",
    "fit_facts",
    "is_as_shown",
    "must_fit",
    "must_keep_bounds",
    "prompt_of",
    "refuse",
    "rule_text",
    "secrets_among",
    "secrets_of",
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
        tree = _shown_by_redactor(gate.redactor, canonical.decode(form.text, gate.shape.classes))
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


def must_fit(gate: Gate, arguments: dict[str, Any]) -> None:
    """Raise `ArgumentError` for an argument that is not what the function's own types say.

    An edit is checked by these types, so the reviewer could change nothing else in such a call either.
    """
    _refuse_first(gate, gate.shape.misfits(arguments))


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
    again = _shown_by_redactor(gate.redactor, canonical.decode(call.form, gate.shape.classes))
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
