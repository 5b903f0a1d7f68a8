"""The channels of `sayso.toml` and those that a store knows: made, registered, and checked for `sayso doctor`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from sayso import clock, config, errors
from sayso.channels.notification import Channel, TerminalChannel
from sayso.channels.settings import Table
from sayso.clock import instant, microseconds
from sayso.errors import ConfigError, SaysoError
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from sayso.stores.records import Record
from sayso.stores.transaction import CHANNEL, delivery_kind

__all__ = [
    "MOST_WAITING",
    "ChannelCheck",
    "ChannelHealth",
    "ChannelRegistry",
    "all_records",
    "check",
    "check_name",
    "configured",
    "forget",
    "health",
    "kind_of",
    "make",
]

_EXTRAS = {"apprise": "notify", "slack": "slack", "terminal": None, "webhook": None}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def make(name: str, settings: Mapping[str, Any]) -> Channel:
    """Return the channel that a table of `sayso.toml` describes.

    Args:
        name: The channel's name, `ops` for `[channels.ops]`.
        settings: What stands in the table; `type` says which kind of channel it is.

    Raises:
        ConfigError: There is no such type, its extra is missing, or a setting cannot be used.
    """
    check_name(name)
    kind = kind_of(name, settings)
    try:
        return _maker(kind)(name, settings)
    except ModuleNotFoundError as error:
        extra = _EXTRAS[kind]
        if extra is None:
            raise
        raise errors.ConfigError(
            f"channel {name} needs the extra `{extra}` ({error.name} is missing): pip install 'sayso[{extra}]'"
        ) from error


def _maker(kind: str) -> Callable[[str, Mapping[str, Any]], Channel]:
    match kind:
        case "apprise":
            from sayso.channels.apprise import make as made
        case "slack":
            from sayso.channels.slack import make as made
        case "webhook":
            from sayso.channels.webhook import make as made
        case "terminal":
            return _terminal
        case _:
            raise RuntimeError(f"the channel type {kind} has an extra and no maker")  # a slip of this module's author
    return made


def _terminal(name: str, settings: Mapping[str, Any]) -> TerminalChannel:
    Table(f"channels.{name}", settings, known=("type",))
    return TerminalChannel(name)


def kind_of(name: str, settings: Mapping[str, Any]) -> str:
    """Return the type of a channel; raises `ConfigError` where there is no such type."""
    kind: object = settings.get("type")
    if kind == "queue":
        raise errors.ConfigError(
            f"[channels.{name}] a queue lives in a program: use sayso.channels.queue_channel there, and take this out"
        )
    if not isinstance(kind, str) or kind not in _EXTRAS:
        raise errors.ConfigError(f"[channels.{name}] type is one of {', '.join(_EXTRAS)}, not {kind!r}")
    return kind


def check_name(name: str) -> None:
    """Raise `ConfigError` for a name that cannot be used in keys and addresses."""
    if _NAME.fullmatch(name) is None:
        raise errors.ConfigError(f"a channel's name is up to 40 of a-z, 0-9, - and _, not {name!a}")


def configured() -> dict[str, Channel]:
    """Return the channels of the settings file, by name; raises `ConfigError` where one cannot be made."""
    return {name: make(name, settings) for name, settings in config.channel_tables().items()}


MOST_WAITING = 50
"""How many requests that waited already are announced to a new channel without `--backlog`."""

_CHUNK = 200
_SEEN_EVERY = timedelta(minutes=1)
_AWAY_AFTER = timedelta(minutes=10)


@dataclass(frozen=True)
class ChannelHealth:
    """How the deliveries of one channel go.

    Attributes:
        name: The channel.
        kind: Its class.
        waiting: How many messages are due and were not tried yet.
        failing: How many failed and will be tried again.
        given_up: How many were given up in the last seven days.
        seen_at: When a deliverer last looked, to the minute.
        sent_at: When the last message was sent.
        failed_at: When the last failure was.
        error: The message of that failure.
    """

    name: str
    kind: str
    waiting: int
    failing: int
    given_up: int
    seen_at: datetime | None
    sent_at: datetime | None
    failed_at: datetime | None
    error: str | None

    @property
    def problem(self) -> str | None:
        """What is wrong with it, in a sentence; None where nothing is."""
        if self.given_up or self.failing:
            tried = f"{self.failing} messages fail and are tried again" if self.failing else ""
            lost = f"{self.given_up} were given up" if self.given_up else ""
            return f"{' and '.join(filter(None, (tried, lost)))}: {self.error or 'no reason was kept'}"
        if self.waiting and (self.seen_at is None or clock.now() - self.seen_at > _AWAY_AFTER):
            return f"{self.waiting} messages wait and nobody delivers them; run `sayso serve` or `sayso notify`"
        return None


class ChannelRegistry:
    """The channels that a store announces requests to."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def register(self, channels: Iterable[Channel], *, by: Literal["settings", "program"]) -> None:
        """Register channels, and announce to new ones what waits already, up to `MOST_WAITING` requests.

        Raises:
            ConfigError: A name cannot be one, or two have the same.
        """
        found = list(channels)
        names = [channel.name for channel in found]
        for name in names:
            check_name(name)
        twice = sorted(name for name in set(names) if names.count(name) > 1)
        if twice:
            raise errors.ConfigError(f"two channels are named {twice[0]!r}; no message is sent")
        for channel in found:
            known = self._store.record(CHANNEL, channel.name)
            # `begins` stays until the waiting requests are announced, so that another process does it if this one dies.
            before = {"begins": True} if known is None else known.body
            self._store.keep(Record(CHANNEL, channel.name, {**before, "kind": type(channel).__name__, "by": by}))
            if before.get("begins"):
                self._begin(channel.name)

    def _begin(self, name: str) -> None:
        """Announce what waits already to a new channel, or log that it is too much for that."""
        waiting = self._store.count(_waiting())
        if waiting <= MOST_WAITING:
            self.announce_waiting(name)
        else:
            import logging

            logging.getLogger("sayso").warning(
                "%s requests waited before the channel %s was known, and are not announced to it: `sayso notify"
                " --backlog %s` announces them; what is asked from now on is announced", f"{waiting:,}", name, name,
            )  # fmt: skip
        while (record := self._store.record(CHANNEL, name)) is not None and record.body.get("begins"):
            body = {key: value for key, value in record.body.items() if key != "begins"}
            self._store.swap(record, replace(record, body=body))

    def announce_waiting(self, name: str) -> int:
        """Make due the requests that wait and were never announced to a channel; return how many."""
        number, cursor = 0, None
        while True:
            page = self._store.list(_waiting(), cursor=cursor, limit=_CHUNK)
            for request in page.requests:
                record = Record(delivery_kind(name), request.id, {"changes": 0, "sent": []}, clock.now())
                # Only new ones: what was asked since the channel was registered has its delivery already.
                number += self._store.keep(record, only_new=True)
            cursor = page.cursor
            if cursor is None:
                return number

    def forget_removed(self, names: Collection[str]) -> None:
        """Forget the channels that the settings do not name any more."""
        for record in self._store.records(CHANNEL):
            if record.body.get("by") == "settings" and record.key not in names:
                forget(self._store, record.key)

    def record_attempts(self, name: str, *, sent: bool, error: str | None) -> None:
        """Record that a channel is delivered to, and how it went; at most once a minute where nothing changed."""
        record, now = self._store.record(CHANNEL, name), clock.now()
        if record is None:
            return
        seen = record.body.get("seen_at")
        is_old = not isinstance(seen, int) or now - instant(seen) >= _SEEN_EVERY
        if not (sent or error is not None or is_old):
            return
        news: dict[str, Any] = {"seen_at": microseconds(now)}
        if sent:
            news["sent_at"] = microseconds(now)
        if error is not None:
            news |= {"failed_at": microseconds(now), "error": error}
        # Two deliverers of one channel may write at once; the one that loses writes again at its next attempt.
        self._store.swap(record, replace(record, body={**record.body, **news}))


def _waiting() -> Filter:
    return Filter(states=frozenset({State.PENDING}), at=clock.now())


def forget(store: Store, name: str) -> bool:
    """Forget a channel and all that is owed to it; return whether it was registered."""
    was_there = store.drop(CHANNEL, name)
    for record in list(all_records(store, delivery_kind(name))):
        store.drop(record.kind, record.key)
    return was_there


def health(store: Store) -> list[ChannelHealth]:
    """Return the health of the channels that a store knows, by name."""
    return [_health(store, record) for record in store.records(CHANNEL)]


def _health(store: Store, channel: Record) -> ChannelHealth:
    waiting = failing = given_up = 0
    now, error = clock.now(), channel.body.get("error")
    for record in all_records(store, delivery_kind(channel.key)):
        if record.body.get("given_up"):
            given_up += 1
        elif record.body.get("tries"):
            failing += 1
        elif record.due is not None and record.due <= now:
            waiting += 1
    return ChannelHealth(
        name=channel.key,
        kind=str(channel.body.get("kind", "")),
        waiting=waiting,
        failing=failing,
        given_up=given_up,
        seen_at=_at(channel, "seen_at"),
        sent_at=_at(channel, "sent_at"),
        failed_at=_at(channel, "failed_at"),
        error=None if error is None else str(error),
    )


def _at(channel: Record, name: str) -> datetime | None:
    found = channel.body.get(name)
    return instant(found) if isinstance(found, int) else None


def all_records(store: Store, kind: str) -> Iterator[Record]:
    """Yield all records of a kind, page by page."""
    after = ""
    while found := store.records(kind, after=after):
        yield from found
        after = found[-1].key


class ChannelCheck(NamedTuple):
    """One channel that was checked.

    Attributes:
        name: The channel.
        kind: Its type in the settings file, or the name of its class where a program registered it.
        is_configured: Whether it is in the settings file.
        health: How its deliveries go; None where the store does not know it, or is not open.
        problem: What is wrong with it, in a sentence; None where nothing is.
    """

    name: str
    kind: str
    is_configured: bool
    health: ChannelHealth | None
    problem: str | None


def check(known: Sequence[ChannelHealth]) -> tuple[list[ChannelCheck], str | None]:
    """Return all channels, those of the settings file first, and what is wrong with that file.

    Args:
        known: Those that the store knows; none where it does not open.
    """
    fault, tables = None, dict[str, dict[str, Any]]()
    try:
        tables = config.channel_tables()
    except SaysoError as error:
        fault = str(error)
    by_name = {one.name: one for one in known}
    found = [_configured(name, table, by_name.pop(name, None)) for name, table in tables.items()]
    return [*found, *map(_brought, by_name.values())], fault


def _configured(name: str, table: Mapping[str, Any], health: ChannelHealth | None) -> ChannelCheck:
    problem = _unmakable(name, table) or (None if health is None else health.problem)
    return ChannelCheck(name, str(table.get("type", "no type")), True, health, problem)


def _brought(health: ChannelHealth) -> ChannelCheck:
    # It has no table; its kind is its class.
    return ChannelCheck(health.name, health.kind.removesuffix("Channel").lower(), False, health, health.problem)


def _unmakable(name: str, table: Mapping[str, Any]) -> str | None:
    """Return why a channel of the settings file cannot be made; None where it can."""
    try:
        make(name, table)
    except ConfigError as fault:
        return f"{fault}; no message leaves by it"
    return None
