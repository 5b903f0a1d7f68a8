"""Who has a run in hand: a process, and one task of it.

A lease lives as long as the object: when a task is thrown away without a word, its lease goes with it, and the run can
be taken by another. Of other processes of this machine it is known whether they live (`sayso.stores.worker`).
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from sayso.model.ids import new_token
from sayso.stores import worker

__all__ = ["Lease", "is_free"]


class Lease:
    """The right to go on with one run.

    Attributes:
        holder: What stands in the run's record.
    """

    def __init__(self) -> None:
        self._token = new_token()
        self.holder = f"{worker.current()}#{self._token}"
        _live[self._token] = self

    def release(self) -> None:
        """Let it go; what was written under it can be taken by others at once."""
        _live.pop(self._token, None)


_live: WeakValueDictionary[str, Lease] = WeakValueDictionary()


def is_free(holder: str | None) -> bool:
    """Say whether a run that this one holds may be taken by another. False also when that cannot be known from here."""
    if holder is None:
        return True
    process, _, token = holder.rpartition("#")
    return token not in _live if process == worker.current() else worker.is_gone(process)
