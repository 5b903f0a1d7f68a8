"""The only source of time.

Every time that is stored or compared comes from `now`. Stores call it inside a transaction. Tests replace the clock
with `use`, so call it as `clock.now()` and keep no other reference to it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)

_SYSTEM: Callable[[], datetime] = partial(datetime.now, UTC)
now = _SYSTEM
"""Returns the current instant, aware and in UTC."""


def milliseconds(moment: datetime | None = None) -> int:
    """Return an instant, by default the current one, as whole milliseconds since 1970: the format of runs."""
    return ((now() if moment is None else moment) - EPOCH) // _MILLISECOND


def is_replaced() -> bool:
    """Return whether `use` has replaced the system clock. If so, stores use the replacement for their own clock."""
    return now is not _SYSTEM


def microseconds(moment: datetime) -> int:
    """Return an instant as whole microseconds since 1970 (UTC): the format of stores and the journal."""
    return (moment - EPOCH) // MICROSECOND  # written out where a store does it for each change of a request


def instant(count: int) -> datetime:
    """Return the instant that `microseconds` encoded."""
    return EPOCH + timedelta(microseconds=count)


def written(moment: datetime) -> str:
    """Return an instant as ISO 8601 in UTC with a trailing `Z`: the format of the JSON that programs receive."""
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


@contextmanager
def use(source: Callable[[], datetime]) -> Generator[None]:
    """Take the time from `source` inside the block, in every thread of this process."""
    global now
    before, now = now, source
    try:
        yield
    finally:
        now = before
