"""The channels of `sayso.toml` and those that a store knows: made, registered, and checked for `sayso doctor`."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from sayso import clock, config
from sayso.channels.notification import Channel
from sayso.clock import instant, microseconds
from sayso.errors import ConfigError, SaysoError
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from sayso.stores.records import Record, records_in
from sayso.stores.review import requests_in
from sayso.stores.transaction import CHANNEL, delivery_kind

# The module of each type, imported where it is configured, and the extra that it needs.
_TYPES = {
    "apprise": ("apprise", "notify"), "slack": ("slack", "slack"), "terminal": ("notification", None),
    "webhook": ("webhook", None),
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def make(name: str, settings: Mapping[str, Any]) -> Channel:
    """Return the channel that a table of `sayso.toml` describes.

    Args:
        name: The channel's name, `ops` for `[channels.ops]`.
        settings: The table; its `type` says which kind of channel it is.

    Raises:
        ConfigError: There is no such type, its extra is missing, or a setting cannot be used.
    """
    _check_name(name)
    kind: object = settings.get("type")
    if kind == "queue":
        raise ConfigError(
            f"[channels.{name}] a queue lives in a program: use sayso.channels.queue_channel there, and take this out"
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ConfigError(f"[channels.{name}] type is one of {', '.join(_TYPES)}, not {kind!r}")
    module, extra = _TYPES[kind]
    try:
        return importlib.import_module(f"sayso.channels.{module}").make(name, settings)
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        raise ConfigError(
            f"channel {name} needs the extra `{extra}` ({error.name} is missing): pip install 'sayso[{extra}]'"
        ) from error


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"a channel's name is up to 40 of a-z, 0-9, - and _, not {name!a}")


def configured() -> dict[str, Channel]:
    """Return the channels of the settings file, by name; raises `ConfigError` where one cannot be made."""
    return {name: make(name, settings) for name, settings in config.channel_tables().items()}


MOST_WAITING = 50
"""How many requests that waited already are announced to a new channel without `--backlog`."""

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


def register(store: Store, channels: Iterable[Channel], *, by: Literal["settings", "program"]) -> None:
    """Register channels in a store, and announce to new ones what is pending, up to `MOST_WAITING` requests.

    Raises:
        ConfigError: A name cannot be one, or two have the same.
    """
    found = list(channels)
    names = [channel.name for channel in found]
    for name in names:
        _check_name(name)
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise ConfigError(f"two channels are named {twice[0]!r}; no message is sent")
    for channel in found:
        known = store.record(CHANNEL, channel.name)
        # `begins` stays until the pending requests are announced, so that another process does it if this one dies.
        before = {"begins": True} if known is None else known.body
        people = sorted({one.qualified for one in getattr(channel, "people", ())})
        body = {**before, "kind": type(channel).__name__, "by": by, "people": people}
        store.keep(Record(CHANNEL, channel.name, body if people else {k: v for k, v in body.items() if k != "people"}))
        if before.get("begins"):
            _begin(store, channel.name)


def _begin(store: Store, name: str) -> None:
    """Announce what is pending to a new channel, or log that it is too much for that."""
    waiting = store.count(_waiting())
    if waiting <= MOST_WAITING:
        announce_waiting(store, name)
    else:
        logging.getLogger("sayso").warning(
            "%s requests waited before the channel %s was known, and are not announced to it: `sayso notify"
            " --backlog %s` announces them; what is asked from now on is announced", f"{waiting:,}", name, name,
        )  # fmt: skip
    while (record := store.record(CHANNEL, name)) is not None and record.body.get("begins"):
        body = {key: value for key, value in record.body.items() if key != "begins"}
        store.swap(record, replace(record, body=body))


def announce_waiting(store: Store, name: str) -> int:
    """Make due the pending requests that were never announced to a channel; return how many."""
    number = 0
    for request in requests_in(store, _waiting()):
        if request.channels and name not in request.channels:
            continue
        record = Record(delivery_kind(name), request.id, {"changes": 0, "sent": []}, clock.now())
        # Only new ones: what was asked since the channel was registered has its delivery already.
        number += store.keep(record, only_new=True)
    return number


def forget_removed(store: Store, names: Collection[str]) -> None:
    """Forget the channels that the settings do not name any more."""
    for record in store.records(CHANNEL):
        if record.body.get("by") == "settings" and record.key not in names:
            forget(store, record.key)


def record_attempts(store: Store, name: str, *, sent: bool, error: str | None) -> None:
    """Record that a channel is delivered to, and how it went; at most once a minute where nothing changed."""
    record, now = store.record(CHANNEL, name), clock.now()
    if record is None:
        return
    seen = record.body.get("seen_at")
    if not sent and error is None and seen is not None and now - instant(seen) < _SEEN_EVERY:
        return
    news: dict[str, Any] = {"seen_at": microseconds(now)}
    if sent:
        news["sent_at"] = microseconds(now)
    if error is not None:
        news |= {"failed_at": microseconds(now), "error": error}
    # Two deliverers of one channel may write at once; the one that loses writes again at its next attempt.
    store.swap(record, replace(record, body={**record.body, **news}))


def _waiting() -> Filter:
    return Filter(states=frozenset({State.PENDING}), at=clock.now())


def forget(store: Store, name: str) -> bool:
    """Forget a channel and all that is owed to it; return whether it was registered."""
    was_there = store.drop(CHANNEL, name)
    for record in list(records_in(store, delivery_kind(name))):
        store.drop(record.kind, record.key)
    return was_there


def health(store: Store) -> list[ChannelHealth]:
    """Return the health of the channels that a store knows, by name."""
    found, now = list[ChannelHealth](), clock.now()
    for channel in store.records(CHANNEL):
        body, waiting, failing, given_up = channel.body, 0, 0, 0
        for record in records_in(store, delivery_kind(channel.key)):
            if record.body.get("given_up"):
                given_up += 1
            elif record.body.get("tries"):
                failing += 1
            elif record.due is not None and record.due <= now:
                waiting += 1
        times = {name: instant(body[name]) if name in body else None for name in ("seen_at", "sent_at", "failed_at")}
        counts = waiting, failing, given_up
        found.append(ChannelHealth(channel.key, body["kind"], *counts, error=body.get("error"), **times))
    return found


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
    found, fault, tables = list[ChannelCheck](), None, dict[str, dict[str, Any]]()
    try:
        tables = config.channel_tables()
    except SaysoError as error:
        fault = str(error)
    by_name = {one.name: one for one in known}
    for name, table in tables.items():
        health = by_name.pop(name, None)
        problem = None if health is None else health.problem
        try:
            make(name, table)
        except ConfigError as error:
            problem = f"{error}; no message leaves by it"
        found.append(ChannelCheck(name, str(table.get("type", "no type")), True, health, problem))
    for one in by_name.values():
        found.append(ChannelCheck(one.name, one.kind.removesuffix("Channel").lower(), False, one, one.problem))
    return found, fault
