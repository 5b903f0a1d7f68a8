"""The lists of a Confirm: they read and compare like any list, and nobody adds to one in place.

A field of a locked Confirm refuses to be assigned, and what stands in a field would otherwise still grow. Invariant:
what was read from a series stays what it is, for whoever holds it.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

__all__ = ["Series"]

T = TypeVar("T")


class Series(list[T]):
    """A list that does not change."""

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "decisions and events of a Confirm are not changed in place, and nothing was; use add_decision or"
            " process_decision, or assign a new list to a Confirm of your own"
        )

    append = extend = insert = pop = remove = clear = reverse = _refused
    sort = _refused  # pyright: ignore[reportAssignmentType]  which knows no order of them, either
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refused

    def __reduce__(self) -> tuple[Any, ...]:
        return Series, (list(self),)
