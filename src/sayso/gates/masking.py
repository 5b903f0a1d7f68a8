"""Masks secrets in what leaves a gate: the call that reviewers see, its result, error messages and facts.

Also checks what comes back to a gate: whether an edited call fits the function's own types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sayso import errors
from sayso.gates.options import Gate
from sayso.model import canonical, redaction
from sayso.model.canonical.json_tree import dump
from sayso.model.request import Call, Request, build_call
from sayso.model.schema import Schema, SchemaError

_RESULT_LIMIT = 65_536
_NO_SECRET_INSIDE = {str, int, float, bool}


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
    """Return the call to record: its canonical form, and the masked form that people see."""
    # The masked form is made from the canonical one, because the caller's own lists may have changed meanwhile. A form
    # with one brace and no bracket has only scalars, which cannot change.
    is_flat = form.text.count("{") == 1 and "[" not in form.text
    tree: dict[str, Any] = arguments if is_flat else canonical.load(form.text)
    if gate.redactor is not None:
        tree = _shown_by_redactor(gate.redactor, canonical.decode(form.text, schema.classes))
    masked = gate.redaction.mask(tree)
    is_masked = masked is not tree or gate.redactor is not None
    text = dump(masked) if is_masked else None
    return build_call(
        tool=gate.tool, name=gate.name, form=form.text, masked=text, digest=digest, schema=schema.text,
        schema_digest=schema.digest,
    )  # fmt: skip


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
    again = _shown_by_redactor(gate.redactor, canonical.decode(call.form, gate.schema.classes))
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
    proposed, call = request.call, request.effective
    secrets = secrets_of(gate, call.form, call.masked)
    return secrets if call is proposed else secrets | secrets_of(gate, proposed.form, proposed.masked)


def secrets_among(gate: Gate, arguments: dict[str, Any]) -> frozenset[str] | None:
    """Return the secrets in arguments that are not recorded; None if they have no canonical form to search."""
    try:
        return secrets_of(gate, canonical.encode(arguments).text, "")
    except errors.ArgumentError:
        return None


def refuse(gate: Gate, rule: str, error: Exception, arguments: dict[str, Any]) -> NoReturn:
    """Raise the `PolicyError` for a hook that failed, without the secrets of the call."""
    secrets = secrets_among(gate, arguments)
    text = type(error).__name__ if secrets is None else redaction.error_text(error, secrets)
    refusal = errors.PolicyError(f"{rule} of {gate.name}", f"raised {text}")
    cause = None if secrets is None or redaction.quotes(error, secrets) else error
    try:
        raise refusal from cause
    finally:
        # `from None` hides the first error but still refers to it, and an error tracker that walks the chain finds it.
        refusal.__context__ = cause


def shown_result(gate: Gate, request: Request, value: Any) -> str | None:
    """Return the masked text of a result for people; None if it is too long or has no canonical form."""
    try:
        text = canonical.encode({"result": value}).text
    except Exception:  # noqa: BLE001  a result may be any object, and reading it may raise anything
        return None
    if len(text) > _RESULT_LIMIT:
        return None
    if request.call.masked is None and type(value) in _NO_SECRET_INSIDE and request.edited is None:
        return text
    secrets = secrets_known(gate, request)
    if not secrets and type(value) in _NO_SECRET_INSIDE:
        return text
    tree = canonical.load(text)
    masked = gate.redaction.mask(tree)
    return redaction.scrub(text if masked is tree else dump(masked), secrets)


def refused_by_types(gate: Gate, request: Request, edited: Call) -> list[str]:
    """Return the problems of an edit by the function's own types, which the reviewer's process may not have had."""
    before, after = canonical.load(request.call.form), canonical.load(edited.form)
    kept = {name for name in after if name in before and dump(after[name]) == dump(before[name])}
    try:
        gate.schema.validate(canonical.decode(edited.form, gate.schema.classes), kept=kept)
    except SchemaError as error:
        return error.problems
    except errors.ArgumentError:  # it was altered, which the start will detect
        return []
    return []
