"""A reviewer's edit: the whole call as it would run, from changes made to what was shown.

What was masked and left as shown stays what it really is; everything else is validated by the function's types before
anybody decides anything. The invariant: nothing that the reviewer did not see or write gets into the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sayso import errors
from sayso.model import canonical
from sayso.model.call import Call
from sayso.model.canonical.tags import dump
from sayso.model.fingerprint import call_digest
from sayso.model.redaction import MASK, Redaction
from sayso.model.request import Request
from sayso.model.shape import Shape, ShapeError
from sayso.model.step import wrong_steps
from sayso.model.target import PLAN_TOOL, moved
from sayso.model.unmask import UnmaskError, unmask
from sayso.model.unset import with_unset

__all__ = ["edited_call", "shape_of"]


def shape_of(request: Request) -> Shape:
    """Return the types of a request's arguments or answer: the program's own where it lives in this process.

    Raises:
        StoreCorruptError: What the store holds is not the text of a shape that this version knows.
    """
    subject = request.subject
    live = Shape.live(subject.shape_digest)
    if live is not None:
        return live
    try:
        return Shape.from_text(subject.shape)
    except ValueError as error:
        raise errors.StoreCorruptError(
            f"the types of request {request.id} cannot be read ({error}); it can be rejected, not edited or answered"
        ) from error


def edited_call(
    request: Request, changes: Mapping[str, Any] | None = None, arguments: Mapping[str, Any] | None = None
) -> Call:
    """Return the call as a reviewer changed it, validated by the function's types; nothing is decided.

    Raises:
        InvalidChangesError: The arguments do not fit.
        WrongKindError: The request is a question.
    """
    if request.kind != "call":
        raise errors.WrongKindError(
            request.id, kind="question", verb="changed arguments", instead="answer, reject or cancel"
        )
    if changes is not None and arguments is not None:
        raise errors.InvalidChangesError(request.id, ["give changes or arguments, not both"])
    shape, before = shape_of(request), request.effective
    changes, arguments = (None if given is None else shape.by_name(given) for given in (changes, arguments))
    try:
        tree = _merged(before, changes, arguments)
        form = _as_given(shape, canonical.encode(_validated(shape, tree, canonical.load(before.form))), before)
    except ShapeError as error:
        raise errors.InvalidChangesError(request.id, error.problems) from None
    except UnmaskError as error:
        raise errors.InvalidChangesError(request.id, [str(error)]) from None
    except errors.ArgumentError as error:
        raise errors.InvalidChangesError(request.id, [f"{error.argument}: {error.reason}"]) from None
    if problems := _unfit(request, canonical.load(form.text)):
        raise errors.InvalidChangesError(request.id, problems)
    digest = call_digest(before.tool, before.shape_digest, form.digest_input)
    masked = _masked_edit(request, canonical.load(form.text))
    return Call(before.tool, before.name, form.text, masked, digest, before.shape, before.shape_digest)


def _unfit(request: Request, after: dict[str, Any]) -> list[str]:
    """Return what is wrong with an edit of a call that waits for sayso itself, and which its types let through."""
    if request.call.tool == PLAN_TOOL:
        return wrong_steps(cast("dict[str, Any]", canonical.display(after)))
    return moved(request, canonical.load(request.call.form), after)


def _validated(shape: Shape, tree: dict[str, Any], real: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an edit; what was not changed stays to the byte, whatever validation would make of it."""
    values = canonical.decode(dump(tree), shape.classes)
    kept = {name for name, form in tree.items() if name in real and dump(form) == dump(real[name])}
    fitted = shape.validate(values, written=values.keys() - kept)
    return {name: values[name] if name in kept else value for name, value in fitted.items()}


def _as_given(shape: Shape, form: canonical.Form, before: Call) -> canonical.Form:
    """Return an edit in which what nobody gave does not count as given."""
    tree = dump(with_unset(canonical.load(form.text), canonical.load(before.form)))
    return form if tree == form.text else canonical.encode(canonical.decode(tree, shape.classes))


def _merged(before: Call, changes: Mapping[str, Any] | None, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    real, shown = canonical.load(before.form), before.shown
    given = arguments if changes is None else changes
    tree = canonical.load(canonical.encode(dict(given or {})).text)
    written = cast("dict[str, Any]", tree.get("$dict", tree))
    new = {name: _meant(name, value, real, shown) for name, value in written.items()}
    return new if changes is None else {**real, **new}


def _meant(name: str, value: Any, real: Mapping[str, Any], shown: Mapping[str, Any]) -> Any:
    if name not in real or name not in shown:
        return value
    if _is_as_shown(value, shown[name]):
        return real[name]
    seen = shown[name] if '{"$' in dump(value) else canonical.display(shown[name])
    return unmask(value, real[name], seen, where=name)


def _is_as_shown(value: Any, shown: Any) -> bool:
    # What equals the shown value was not changed, so the real value stays, to the byte; compared as text, because
    # 1 == 1.0 == True and they are three different arguments.
    return dump(value) in {dump(shown), dump(canonical.display(shown))}


def _masked_edit(request: Request, tree: dict[str, Any]) -> str | None:
    """Return the masked form of an edited call. What the gate's own redactor hid stays hidden whole: it is not here."""
    redaction = Redaction(request.redact)
    masked = cast("dict[str, Any]", redaction.mask(tree))
    call = request.call
    if call.masked is not None:
        by_keys = cast("dict[str, Any]", redaction.mask(canonical.load(call.form)))
        shown = call.shown
        hidden = [name for name in tree if name not in shown or dump(shown[name]) != dump(by_keys.get(name))]
        masked = {**masked, **{name: MASK for name in hidden if name in tree}}
    return None if masked is tree else dump(masked)
