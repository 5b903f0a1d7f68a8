"""A view of a store inside an open transaction: what its verbs write becomes durable together, or not at all.

A store's verbs are written once, on classes that know only `_transact`. `joined` gives a work a view of the store whose
`_transact` uses the open transaction, so that several verbs become one transaction without a second implementation. It
requires a store whose reads, during a work, see what its transaction wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

from sayso import errors
from sayso.stores.base import Store
from sayso.stores.grants import GrantVerbs
from sayso.stores.people import PeopleVerbs
from sayso.stores.program import ProgramStore
from sayso.stores.records import RecordVerbs
from sayso.stores.request_store import RequestStore
from sayso.stores.review import ReviewStore
from sayso.stores.transaction import Transaction

T = TypeVar("T")


class _Refused(NamedTuple):
    """An exception of a work that rolls nothing back: it wrote nothing before, or a verb refused and recorded that."""

    error: BaseException


class _View:
    """A store whose verbs join a transaction; its reads are unchanged."""

    def __init__(self, store: Store, tx: Transaction) -> None:
        self._store, self._tx = store, tx
        self.has_written, self.refusal = False, cast("errors.SaysoError | None", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(type(self._store), name).__get__(self) if name in _VERBS else getattr(self._store, name)

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        self.has_written = True
        result = work(self._tx, *args, **options)
        if isinstance(result, errors.SaysoError):
            self.refusal = result
            raise result
        return result


Store.register(_View)
_VERBS = frozenset(
    name
    for base in (RequestStore, RecordVerbs, GrantVerbs, PeopleVerbs, ReviewStore, ProgramStore)
    for name, member in vars(base).items()
    if isinstance(member, FunctionType) and not name.startswith("__") and not hasattr(member, "__isabstractmethod__")
)


def joined(store: Store, work: Callable[[Store], T]) -> Callable[[Transaction], T | _Refused]:
    """Convert a work on a store to one on an open transaction; pass its result to `result_of`."""

    def inside(tx: Transaction) -> T | _Refused:
        view = _View(store, tx)
        try:
            return work(cast("Store", view))
        except Exception as error:
            # What was written before a refusal stays, as if each verb were its own transaction. Any other error rolls
            # the transaction back.
            if view.has_written and error is not view.refusal:
                raise
            return _Refused(error)

    return inside


def result_of(result: T | _Refused) -> T | BaseException:
    """Return the result of a work, or the exception that it raised."""
    return result.error if isinstance(result, _Refused) else result
