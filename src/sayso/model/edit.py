"""A reviewer's edit of a call: applied, and validated as far as possible without the program's classes.

A value that equals its mask keeps the original; an omitted argument takes its default. Calls of `sayso.mplp`, which
wait for a plan or a target, have additional rules. Invariant: the program that runs the call can rebuild every edit
that is accepted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from sayso import errors
from sayso.model import canonical
from sayso.model.canonical import MASK, Json, dump
from sayso.model.canonical.json_tree import children_of, fields_of, items_of, tag_in, with_fields, with_items
from sayso.model.ids import call_digest
from sayso.model.redaction import Redaction, conceal, has_gap, restored
from sayso.model.request import Call, Request
from sayso.model.schema import Schema, SchemaError

PLAN_TOOL = "sayso.mplp.document:carry_out_plan"
TARGET_TOOL = "sayso.mplp.document:use_target"
READ_ONLY = "readOnly"
"""The JSON Schema keyword that marks a call whose program does not accept changed arguments."""

_FIXED = ("target_type", "target_id")


def is_target(request: Request) -> bool:
    """Return whether a request waits for the approval of a target."""
    return isinstance(request.subject, Call) and request.subject.tool in {PLAN_TOOL, TARGET_TOOL}


def is_read_only(request: Request) -> bool:
    """Return whether the arguments of a request's call cannot be changed, because its program runs what it sent."""
    # A text search first: few schemas contain the word, and only those have to be parsed.
    return f'"{READ_ONLY}"' in request.subject.schema and schema_of(request).tree.get(READ_ONLY) is True


def must_not_be_read_only(request: Request) -> None:
    """Check that the arguments of a request's call can be changed.

    Raises:
        InvalidChangesError: They cannot.
    """
    if is_read_only(request):
        fixed = "the arguments of this call cannot be changed: its program runs exactly what it sent"
        raise errors.InvalidChangesError(
            request.id, [f"{fixed}; approve it as it is, or reject it and say what to change"]
        )


def _unfit(request: Request, after: dict[str, Any]) -> list[str]:
    """Return the problems of an edit that the types accept but the rules for plans and targets do not."""
    if request.call.tool == PLAN_TOOL:
        return wrong_steps(cast("dict[str, Any]", canonical.display(after)))
    if request.call.tool != TARGET_TOOL:
        return []
    before = canonical.load(request.call.form)
    changed = [name for name in _FIXED if dump(before.get(name)) != dump(after.get(name))]
    fixed = "is the target of this Confirm and cannot be changed; to use another target, reject this one with a reason"
    return [f"{name}: {fixed}" for name in changed]


ID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_ID = re.compile(ID_PATTERN.removeprefix("^").removesuffix("$"))


def wrong_steps(arguments: Mapping[str, Any]) -> list[str]:
    """Return the problems of the steps in a plan's arguments (plain JSON values), each as `where: what is wrong`."""
    match arguments:
        case {"steps": [*steps]}:
            # A program on another machine may ask with its own types, so a step may be any JSON value.
            return list(_wrong([step if isinstance(step, dict) else {} for step in steps]))
        case _:
            return []


def _wrong(steps: list[dict[str, Any]]) -> Iterator[str]:
    if not any(str(step.get("description", "")).strip() for step in steps):
        yield "steps: no step has a description"
    known = [step.get("step_id") for step in steps]
    for index, step in enumerate(steps):
        own, needs = step.get("step_id"), step.get("dependencies")
        if own is not None and _ID.fullmatch(str(own)) is None:
            yield f"steps[{index}].step_id: should be a UUID v4 in lower case; leave it out, and the step gets one"
        if own is not None and own in known[:index]:
            yield f"steps[{index}].step_id: is already the id of another step"
        for place, needed in enumerate(cast("list[Any]", needs) if isinstance(needs, list) else ()):
            if needed not in known:
                yield f"steps[{index}].dependencies[{place}]: is not the id of a step in this plan"


def _unclear(where: str) -> SchemaError:
    """Return the error for an edit of a masked list or text in which a mask cannot be matched to its secret."""
    what = "a value with masked parts was added, removed or moved, so it is unclear which secret"
    return SchemaError([f"{where or 'arguments'}: {what} {MASK} stands for; write the secrets out"])


def unmask(edited: Json, original: Json, masked: Json, *, where: str = "") -> Json:
    """Return `edited` with each mask replaced by the value of `original` that was masked there.

    `edited` and `masked` have the same form: both canonical, or both as people see them (`canonical.display`). Values
    from `original` are in canonical form. A text that equals `MASK` where nothing was masked is an ordinary text.

    Args:
        edited: The reviewer's version of `masked`; names may be missing.
        original: The tree before masking.
        masked: What the reviewer saw.
        where: The name of the trees in errors.

    Raises:
        SchemaError: A masked value was moved, so it is not certain which secret a mask stands for.
    """
    if masked == MASK:
        return original if _is_mask(edited) else edited
    if isinstance(edited, str) and isinstance(original, str) and masked != original and masked == conceal(original):
        back = original if edited == masked else restored(edited, original)
        if back is None:
            raise _unclear(where)
        return back
    named, shown, real = fields_of(edited), fields_of(masked), fields_of(original)
    if named is not None and shown is not None and real is not None:
        new = [name for name, value in named.items() if mentions_mask(value) and not (name in shown and name in real)]
        if _hides(masked, original):
            if new:
                raise _unclear(f"{where}.{new[0]}" if where else new[0])
            _must_be_own(named, shown, where)
        merged = {
            name: unmask(value, real[name], shown[name], where=f"{where}.{name}" if where else name)
            if name in shown and name in real
            else value
            for name, value in named.items()
        }
        return with_fields(edited, merged)
    items, seen, kept = items_of(edited), items_of(masked), items_of(original)
    if items is not None and seen is not None and kept is not None and _hides(masked, original):
        places = _places(items, seen, kept, where)
        paired = zip(items, places, strict=True)
        return with_items(
            edited,
            [
                item if place is None else unmask(item, kept[place], seen[place], where=f"{where}[{place}]")
                for item, place in paired
            ],
        )
    if mentions_mask(edited) and _hides(masked, original):  # its kind differs from what was masked
        raise _unclear(where)
    return edited


def _must_be_own(named: Mapping[str, Json], shown: Mapping[str, Json], where: str = "") -> None:
    """Refuse a value that is more like one under another name, whose secrets it may have, than like its own."""
    masked = {name: value for name, value in shown.items() if mentions_mask(value)}
    for name, value in named.items():
        if name in masked and value != masked[name] and mentions_mask(value):
            own = _alike(value, masked[name])
            if any(_alike(value, other) > own for other in masked.values()):
                raise _unclear(f"{where}.{name}" if where else name)


def _places(items: list[Json], seen: list[Json], kept: list[Json], where: str) -> list[int | None]:
    """Return, for each element that contains a mask, the index in `seen` of the element that it was."""
    still = len(items) == len(seen)
    found: list[int | None] = [None] * len(items)
    open_ends: list[int] = []
    for index, item in enumerate(items):
        if not mentions_mask(item):
            continue
        same = [place for place, other in enumerate(seen) if other == item]
        if still and index in same:
            found[index] = index
        elif same and all(kept[place] == kept[same[0]] for place in same):
            found[index] = same[0]
        else:
            open_ends.append(index)
    for index in open_ends:
        # Changed in place. That is certain only if no other element came from this place, and this one from no other.
        if not still or index in found or any(other == items[index] for other in seen):
            raise _unclear(where)
        alike = [_alike(items[index], other) for other in seen]
        others = (place for place, other in enumerate(seen) if place != index and mentions_mask(other))
        if any(alike[place] + (place not in found) > alike[index] for place in others):
            raise _unclear(where)
        found[index] = index
    return found


def _alike(one: Json, other: Json) -> int:
    """Return how many parts of a value are the same in another one, at every depth."""
    parts, others = children_of(one), children_of(other)
    if parts is None or others is None:
        return int(one == other)
    return sum(_alike(part, others[step]) for step, part in parts.items() if step in others)


def writes_over(edited: Json, shown: Json) -> bool:
    """Return whether an edit replaces a masked value with another text, without revealing whether the two are equal.

    `edited` is in canonical form or plain JSON, `shown` in the form of `Call.drawn`.
    """
    if tag_in(shown) == "$secret":
        return not _is_mask(edited)
    if isinstance(shown, str):
        return has_gap(shown) and not (isinstance(edited, str) and has_gap(edited))
    named, fields = fields_of(edited), fields_of(shown)
    if named is not None and fields is not None:
        return any(writes_over(named[name], part) for name, part in fields.items() if name in named)
    items, seen = items_of(edited), items_of(shown)
    if items is not None and seen is not None and len(items) == len(seen):
        return any(map(writes_over, items, seen))
    return '{"$secret":' in dump(shown)


def _is_mask(tree: Json) -> bool:
    secret = tree.get("$secret") if isinstance(tree, dict) else None
    return tree == MASK or (isinstance(secret, list) and secret[-1:] == [MASK])


def mentions_mask(tree: Json) -> bool:
    """Return whether a value or a part of it looks like a mask."""
    parts = children_of(tree)
    if parts is None:
        return _is_mask(tree) or (isinstance(tree, str) and has_gap(tree))
    return any(map(mentions_mask, parts.values()))


def _hides(masked: Json, original: Json) -> bool:
    if masked == MASK:
        return original != MASK
    if isinstance(masked, str) and isinstance(original, str):
        return masked != original and masked == conceal(original)
    shown, real = children_of(masked) or {}, children_of(original) or {}
    return any(step in real and _hides(part, real[step]) for step, part in shown.items())


def with_unset(new: Json, old: Json) -> Json:
    """Return `new` with a field marked as not given if it is so in `old` and has the same value.

    Args:
        new: The edited value, in canonical form.
        old: The value before the edit.
    """
    fields, before = fields_of(new), fields_of(old)
    items, earlier = items_of(new), items_of(old)
    if items is not None and earlier is not None:
        pairs = [with_unset(item, was) for item, was in zip(items, earlier, strict=False)]
        return with_items(new, [*pairs, *items[len(pairs) :]])
    if fields is None or before is None:
        return new
    made = with_fields(
        new, {name: with_unset(part, before[name]) if name in before else part for name, part in fields.items()}
    )
    match made, old:
        case {"$model": [str(name), dict(own), *rest]}, {"$model": [str(other), _, dict(was)]} if name == other:
            more = rest[0] if rest and isinstance(rest[0], dict) else {}
            same = [field for field in _unset(was) if field in own and dump(own[field]) == dump(before[field])]
            unset: list[Json] = sorted({*same, *_unset(more)})  # pyright: ignore[reportAssignmentType]
            return {"$model": [name, own, {**more, "unset": unset}]} if unset else made
        case _:
            return made


def _unset(rest: Mapping[str, Json]) -> list[str]:
    names = rest.get("unset")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def schema_of(request: Request) -> Schema:
    """Return the types of a request's arguments or answer: the program's own if it lives in this process.

    Raises:
        StoreCorruptError: The stored schema cannot be read by this version.
    """
    subject = request.subject
    live = Schema.live(subject.schema_digest)
    if live is not None:
        return live
    try:
        return Schema.from_text(subject.schema)
    except ValueError as error:
        raise errors.StoreCorruptError(
            f"the types of request {request.id} cannot be read ({error}); it can be rejected, not edited or answered"
        ) from error


def edited_call(
    request: Request, changes: Mapping[str, Any] | None = None, arguments: Mapping[str, Any] | None = None
) -> Call:
    """Return the call with a reviewer's changes, validated by the function's types. Decides nothing.

    Raises:
        InvalidChangesError: The arguments do not fit the types.
        WrongKindError: The request is a question.
    """
    if request.kind != "call":
        raise errors.WrongKindError(
            request.id, kind="question", verb="changed arguments", instead="answer, reject or cancel"
        )
    if changes is not None and arguments is not None:
        raise errors.InvalidChangesError(request.id, ["give changes or arguments, not both"])
    schema, before = schema_of(request), request.effective
    changes, arguments = (None if given is None else schema.by_name(given) for given in (changes, arguments))
    try:
        real = _named(canonical.load(before.form))
        shown = _named(before.shown)
        written = _named(canonical.load(canonical.encode(dict((arguments if changes is None else changes) or {})).text))
        added = [name for name, value in written.items() if name not in real and mentions_mask(value)]
        if any(_hides(shown.get(name, MASK), value) for name, value in real.items()):
            if added:
                raise _unclear(added[0])
            _must_be_own(written, {name: canonical.display(value) for name, value in shown.items()})
        if changes is not None:
            schema.must_know(name for name in written if name not in real)
        new = {name: _meant(name, value, real, shown) for name, value in written.items()}
        merged = new if changes is None else {**real, **new}
        # An unchanged value stays identical to the byte, even if its type would normalise it.
        kept = {name for name, form in merged.items() if name in real and dump(form) == dump(real[name])}
        fitted = schema.fit(merged, kept=kept)
        tree: Json = {"$dict": fitted} if any(name.startswith("$") for name in fitted) else fitted
        form = _form(with_unset(tree, canonical.load(before.form)))
    except SchemaError as error:
        raise errors.InvalidChangesError(request.id, error.problems) from None
    except errors.ArgumentError as error:
        raise errors.InvalidChangesError(request.id, [f"{error.argument}: {error.reason}"]) from None
    after = canonical.load(form.text)
    if problems := _unfit(request, after):
        raise errors.InvalidChangesError(request.id, problems)
    digest = call_digest(before.tool, before.schema_digest, form.digest_input)
    if digest != before.digest:
        must_not_be_read_only(request)
    masked = _masked_edit(request, after)
    return Call(before.tool, before.name, form.text, masked, digest, before.schema, before.schema_digest)


def _form(tree: Json) -> canonical.Form:
    text = dump(tree)
    raw = canonical.digest_input(text)
    if len(raw) > canonical.LIMIT_BYTES:
        raise errors.ArgumentError("the changes", f"make the arguments larger than {canonical.LIMIT_BYTES:,} bytes")
    return canonical.Form(text, raw)


def _named(tree: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", tree.get("$dict", tree))


def _meant(name: str, value: Any, real: Mapping[str, Any], shown: Mapping[str, Any]) -> Any:
    if name not in real:
        return value
    if name not in shown:  # the gate's own redactor removed it: it is masked as a whole
        return unmask(value, real[name], MASK, where=name)
    # A value that equals the shown one was not changed, so the real value stays, to the byte. They are compared as
    # text, because 1 == 1.0 == True are three different arguments.
    if dump(value) in {dump(shown[name]), dump(canonical.display(shown[name]))}:
        return real[name]
    seen = shown[name] if '{"$' in dump(value) else canonical.display(shown[name])
    return unmask(value, real[name], seen, where=name)


def _masked_edit(request: Request, tree: dict[str, Any]) -> str | None:
    """Return the masked form of an edited call. What the gate's own redactor hid, which is not here, stays hidden."""
    redaction = Redaction(request.redact)
    masked = cast("dict[str, Any]", redaction.mask(tree))
    call = request.call
    if call.masked is not None:
        by_keys = cast("dict[str, Any]", redaction.mask(canonical.load(call.form)))
        shown = call.shown
        hidden = [name for name in tree if name not in shown or dump(shown[name]) != dump(by_keys.get(name))]
        masked = {**masked, **{name: MASK for name in hidden if name in tree}}
    return None if masked is tree else dump(masked)
