"""The way back from a mask: an edit made by somebody who saw `***` gets the real secrets again.

Here is the walk that puts originals back; which values are masked is `sayso.model.redaction`.
Invariant: a secret comes back only to the place that it was taken from; where that place is not certain, nothing
comes back and the edit is refused.
"""

from __future__ import annotations

from sayso.model.canonical.tags import MASK, Json
from sayso.model.canonical.tree import fields_of, items_of, with_fields, with_items
from sayso.model.url_password import conceal, has_gap, restored

__all__ = ["UnmaskError", "unmask"]


class UnmaskError(ValueError):
    """An edit of a masked list, or of a text with masked passwords, does not say whose secret stands where.

    Attributes:
        where: The list or text, e.g. `order.users`.
    """

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where}: what has masked values in it was added, removed or moved, so it is not certain whose secret"
            f" {MASK} stands for; write the secrets out"
        )
        self.where = where

    def __reduce__(self) -> tuple[type[UnmaskError], tuple[str]]:
        return type(self), (self.where,)


def unmask(edited: Json, original: Json, masked: Json, *, where: str = "") -> Json:
    """Return `edited` with the values of `original` wherever it says `MASK` and `masked` says so too.

    `edited` and `masked` are in the same form: both canonical or both as people see them (`canonical.display`); what
    comes back from `original` is in the canonical form. `MASK` at a place that was not masked is an ordinary text.

    Args:
        edited: What the reviewer made of `masked`; names may be missing.
        original: The tree that was masked.
        masked: What the reviewer saw.
        where: What the trees are called in errors.

    Raises:
        UnmaskError: Elements of a list with secrets were moved so that their secrets cannot be told apart.
    """
    if masked == MASK:
        return original if _is_mask(edited) else edited
    if isinstance(edited, str) and isinstance(original, str) and masked != original and masked == conceal(original):
        return _with_password(edited, original, str(masked), where)
    named, shown, real = fields_of(edited), fields_of(masked), fields_of(original)
    if named is not None and shown is not None and real is not None:
        back = {
            name: unmask(value, real[name], shown[name], where=f"{where}.{name}" if where else name)
            if name in shown and name in real
            else value
            for name, value in named.items()
        }
        return with_fields(edited, back)
    items, seen, kept = items_of(edited), items_of(masked), items_of(original)
    if items is not None and seen is not None and kept is not None and _hides(masked, original):
        places = _places(items, seen, kept, where or "arguments")
        paired = zip(items, places, strict=True)
        return with_items(
            edited,
            [
                item if place is None else unmask(item, kept[place], seen[place], where=f"{where}[{place}]")
                for item, place in paired
            ],
        )
    return edited


def _with_password(edited: str, original: str, masked: str, where: str) -> str:
    back = original if edited == masked else restored(edited, original)
    if back is None:
        raise UnmaskError(where or "arguments")
    return back


def _places(items: list[Json], seen: list[Json], kept: list[Json], where: str) -> list[int | None]:
    """Return for each element that mentions the mask which element of `seen` it was."""
    still = len(items) == len(seen)
    found: list[int | None] = [None] * len(items)
    open_ends: list[int] = []
    for index, item in enumerate(items):
        if not _mentions(item):
            continue
        same = [place for place, other in enumerate(seen) if other == item]
        if still and index in same:
            found[index] = index
        elif same and all(kept[place] == kept[same[0]] for place in same):
            found[index] = same[0]
        else:
            open_ends.append(index)
    for index in open_ends:
        # Changed where it stood: certain only while no other element has come from this place.
        if not still or index in found or any(other == items[index] for other in seen):
            raise UnmaskError(where)
        found[index] = index
    return found


def _is_mask(tree: Json) -> bool:
    secret = tree.get("$secret") if isinstance(tree, dict) else None
    return tree == MASK or (isinstance(secret, list) and secret[-1:] == [MASK])


def _mentions(tree: Json) -> bool:
    parts = items_of(tree)
    if parts is None:
        named = fields_of(tree)
        parts = None if named is None else list(named.values())
    if parts is None:
        return _is_mask(tree) or (isinstance(tree, str) and has_gap(tree))
    return any(map(_mentions, parts))


def _hides(masked: Json, original: Json) -> bool:
    if masked == MASK:
        return original != MASK
    if isinstance(masked, str) and isinstance(original, str):
        return masked != original and masked == conceal(original)
    shown, real = fields_of(masked), fields_of(original)
    if shown is not None and real is not None:
        return any(name in real and _hides(value, real[name]) for name, value in shown.items())
    seen, kept = items_of(masked), items_of(original)
    return seen is not None and kept is not None and any(map(_hides, seen, kept))
