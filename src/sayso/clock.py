"""The only source of time.

Every time that is stored or compared comes from `now`; stores call it inside a transaction. Tests replace the clock
with `use`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


_SYSTEM: Callable[[], datetime] = partial(datetime.now, UTC)
_source = _SYSTEM


def now() -> datetime:
    """Return the current instant, aware and in UTC."""
    return _source()


def milliseconds(moment: datetime | None = None) -> int:
    """Return an instant, the current one if not given, as whole milliseconds since 1970: how runs write it."""
    return ((_source() if moment is None else moment) - _EPOCH) // _MILLISECOND


def is_replaced() -> bool:
    """Say whether `use` put another clock in the place of this machine's, which then counts for every store."""
    return _source is not _SYSTEM


def microseconds(moment: datetime) -> int:
    """Return an instant as whole microseconds since 1970, UTC: how stores and the journal write it."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def instant(count: int) -> datetime:
    """Return the instant that `microseconds` wrote."""
    return _EPOCH + timedelta(microseconds=count)


def written(moment: datetime) -> str:
    """Return an instant as programs are told it: ISO 8601 in UTC, with the Z that JSON has of it everywhere."""
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


@contextmanager
def use(source: Callable[[], datetime]) -> Generator[None]:
    """Take the time from `source` inside the block, in every thread of this process."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before
