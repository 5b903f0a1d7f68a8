"""The data model: frozen values and pure functions, without input or output; and `cached_property` for Python 3.11.

Stored: `request`, `run`, `journal`, `grant`. Rules: `lifecycle` (every change of state), `teamwork` (what reviewers do
before), `edit`. People: `reviewer`. Arguments: `parameters` binds them, `canonical` is their one text, `schema` and
`schema_of_types` describe them, `schema_validation` and `json_edits` check what people enter, `redaction` masks
secrets. Text: `rendering`, `text`, `duration`. Ids and digests: `ids`.
"""

from __future__ import annotations

import sys

if sys.version_info >= (3, 12):
    from functools import cached_property
else:
    from collections.abc import Callable
    from typing import Any, Generic, TypeVar, overload

    T = TypeVar("T")

    class cached_property(Generic[T]):  # noqa: N801  as the class in functools
        """A value that is computed at its first use and stored in the object's `__dict__`."""

        def __init__(self, compute: Callable[[Any], T]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, one: None, owner: type | None = None) -> cached_property[T]: ...
        @overload
        def __get__(self, one: object, owner: type | None = None) -> T: ...
        def __get__(self, one: Any, owner: type | None = None) -> T | cached_property[T]:
            if one is None:
                return self
            value = one.__dict__[self._name] = self._compute(one)
            return value
