"""What an edit changed: one row for each place, old and new shown so that the difference can be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sayso.model.canonical.decode import class_in, fields_of, items_of
from sayso.model.canonical.names import place
from sayso.model.canonical.tags import MASK, Json
from sayso.model.text import escape
from sayso.view.arguments import brief, quoted

__all__ = ["Change", "changes"]

_ROOM = 160
_CONTEXT = 20
_ABSENT: Json = {"$absent": None}


@dataclass(frozen=True)
class Change:
    """One value that differs between two argument trees.

    Attributes:
        path: Where, e.g. `order.lines[2].price`.
        before: The text of the old value; None where there was none.
        after: The text of the new value; None where there is none.
    """

    path: str
    before: str | None
    after: str | None

    def line(self) -> str:
        """Return `amount  320.0 -> 80.0`; what was or is not there reads `(nothing)`."""
        before, after = ("(nothing)" if text is None else text for text in (self.before, self.after))
        return f"{self.path}  {before} -> {after}"


def changes(
    before: dict[str, Json], after: dict[str, Json], *, is_secret: Callable[[str], bool] | None = None
) -> list[Change]:
    """Return every changed, added or removed leaf between two argument trees; types count, the order of keys does not.

    Args:
        before: The arguments as they were.
        after: The arguments as they would be.
        is_secret: Which names hide their values (`Redaction.is_secret`). Given the real trees, a secret that was
            changed is then listed and not shown; masked trees need none, and do not tell.
    """
    return list(_changes(before, after, (), is_secret))


_Steps = tuple[str | int, ...]
_IsSecret = Callable[[str], bool] | None


def _changes(before: Json, after: Json, steps: _Steps, is_secret: _IsSecret) -> Iterator[Change]:
    old, new = _children(before), _children(after)
    if old is None or new is None or _kind(before) != _kind(after):
        if _exact(before) != _exact(after):
            yield Change(_where(steps), *_pair(before, after))
        return
    for step in {**old, **new}:
        here = (*steps, step)
        if isinstance(step, str) and is_secret is not None and is_secret(step):
            yield from _secret_change(old.get(step, _ABSENT), new.get(step, _ABSENT), here)
        elif step not in old:
            yield from (Change(path, None, text) for path, text in _leaves(new[step], here, is_secret))
        elif step not in new:
            yield from (Change(path, text, None) for path, text in _leaves(old[step], here, is_secret))
        else:
            yield from _changes(old[step], new[step], here, is_secret)


def _secret_change(before: Json, after: Json, steps: _Steps) -> Iterator[Change]:
    if after is _ABSENT:
        yield Change(_where(steps), MASK, None)
    elif before is _ABSENT:
        yield Change(_where(steps), None, MASK)
    elif _exact(before) != _exact(after):
        yield Change(_where(steps), MASK, f"{MASK} (changed)")


def _leaves(tree: Json, steps: _Steps, is_secret: _IsSecret) -> Iterator[tuple[str, str]]:
    children = _children(tree)
    if not children:
        yield _where(steps), brief(tree, _ROOM)
        return
    for step, child in children.items():
        if isinstance(step, str) and is_secret is not None and is_secret(step):
            yield _where((*steps, step)), MASK
        else:
            yield from _leaves(child, (*steps, step), is_secret)


def _children(tree: Json) -> dict[str | int, Json] | None:
    fields = fields_of(tree)
    if fields is not None:
        return {**fields}
    items = items_of(tree)
    return None if items is None else dict(enumerate(items))


def _kind(tree: Json) -> tuple[str, str | None]:
    if fields_of(tree) is not None:
        return "fields", class_in(tree)
    return ("list" if isinstance(tree, list) else "tuple"), None


def _exact(tree: Json) -> str:
    # As text, because 1 == 1.0 == True and -0.0 == 0.0, and they are different arguments.
    return repr(tree)


def _where(steps: _Steps) -> str:
    return escape(place(steps))


def _pair(before: Json, after: Json) -> tuple[str, str]:
    if isinstance(before, str) and isinstance(after, str) and max(len(before), len(after)) > _ROOM - 2:
        start, end = _common(before, after)
        return _around(before, start, end), _around(after, start, end)
    shown = brief(before, _ROOM), brief(after, _ROOM)
    if shown[0] != shown[1]:
        return shown
    return shown[0], f"{shown[1]} (changed{'' if shown[1] == MASK else ' where it is not shown'})"


def _common(before: str, after: str) -> tuple[int, int]:
    """Return how many characters two texts share at their heads and, of the rest, at their tails."""
    shorter = min(len(before), len(after))
    start = _longest(shorter, lambda size: before[:size] == after[:size])
    return start, _longest(shorter - start, lambda size: before[len(before) - size :] == after[len(after) - size :])


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return least


def _around(text: str, start: int, end: int) -> str:
    first, last = max(start - _CONTEXT, 0), min(len(text) - end + _CONTEXT, len(text))
    head = f"(… {first:,} characters …) " if first else ""
    tail = f" (… {len(text) - last:,} characters …)" if last < len(text) else ""
    return f"{head}{_cut(text[first:last])}{tail}"


def _cut(text: str) -> str:
    return quoted(text) if len(text) <= _ROOM else brief(text, _ROOM)
