"""`doctor`: is the store there and sound, does the clock make sense, what waits for attention.

Invariant: without `--seal` it changes nothing, and exits with 1 if something is wrong.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import click

from sayso import __version__, clock, config
from sayso.channels import outlet
from sayso.channels.roll import ChannelHealth, health
from sayso.cli.desk import Desk, NoStoreYetError, as_json, file_of
from sayso.cli.say import WRONG, document, out, paint
from sayso.errors import ConfigError, SaysoError, StoreForbiddenError
from sayso.model.duration import ago
from sayso.model.request import Request, State
from sayso.model.show.escape import escape
from sayso.stores.base import Filter, Store

__all__ = ["doctor"]

_SLACK = timedelta(seconds=5)


@dataclass(frozen=True)
class _Finding:
    """One thing that was looked at."""

    name: str
    value: Any
    wrong: str | None = None


@click.command()
@click.option("--seal", is_flag=True, help="First seal what stands readable from before SAYSO_KEY was set.")
@as_json
@click.pass_obj
def doctor(desk: Desk, seal: bool, as_json: bool) -> int:
    """Check the store, the clock and the settings; exit with 1 if something is wrong."""
    done = _sealed(desk) if seal else ()
    found = [*done, *_versions(), *_looked_at(desk)]
    is_wrong = any(finding.wrong is not None for finding in found)
    if as_json:
        document({
            "ok": not is_wrong,
            "found": {finding.name: finding.value for finding in found},
            "wrong": [{"name": one.name, "problem": one.wrong} for one in found if one.wrong is not None],
        })  # fmt: skip
    else:
        for finding in found:
            wrong = "" if finding.wrong is None else f"   {paint('WRONG', 'red')}: {escape(finding.wrong)}"
            out(f"{finding.name:16}  {_text(finding.value)}{wrong}")
        out("something is wrong" if is_wrong else "all is well")
    return WRONG if is_wrong else 0


def _sealed(desk: Desk) -> Iterator[_Finding]:
    key, file = os.environ.get("SAYSO_KEY"), file_of(desk.store.url)
    if not key or file is None:
        raise click.UsageError("--seal needs SAYSO_KEY, and a store in a file")
    from sayso.stores.reseal import reseal

    done = reseal(file, key)
    yield _Finding("sealed now", f"{done.sealed:,} of {done.requests:,} requests")
    if done.renewed:
        yield _Finding("sealed anew", f"{done.renewed:,} that were sealed by an earlier version")
    if done.readable_rows:
        yield _Finding("journal", f"{done.readable_rows:,} rows keep readable words: the journal is never rewritten")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        counts = cast("dict[str, int]", value)
        return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"
    return "-" if value is None else f"{value:,}" if type(value) is int else escape(str(value))


def _versions() -> Iterator[_Finding]:
    yield _Finding("sayso", __version__)
    yield _Finding("python", platform.python_version())
    yield _Finding("sqlite", sqlite3.sqlite_version)
    for name in ("pydantic", "click"):
        yield _Finding(name, metadata.version(name))


def _looked_at(desk: Desk) -> Iterator[_Finding]:
    has_key = bool(os.environ.get("SAYSO_KEY"))
    yield _Finding(
        "SAYSO_KEY", "set, arguments are sealed" if has_key else "not set, arguments stand readable in the file"
    )
    known: list[ChannelHealth] | None = None
    try:
        store = desk.store
        yield _Finding("store", store.url)
        file = file_of(store.url)
        if file is not None:
            yield from _file(file)
        yield from _content(store)
        try:
            known = health(store)
        except StoreForbiddenError:
            return  # the channels of a server are looked at there
    except NoStoreYetError as fault:
        # Before the first program asks, the usual place is empty; a place that was named is not.
        yield _Finding("store", str(fault), None if desk.address is None else "name another one with --store")
        known = []
    except SaysoError as fault:
        yield _Finding("opening", "failed", str(fault))
    yield from _channels(known)


def _file(file: Path) -> Iterator[_Finding]:
    try:
        status = file.stat()
    except OSError as error:
        yield _Finding("file", str(file), f"cannot be looked at ({error.strerror})")
        return
    mode = stat.S_IMODE(status.st_mode)
    is_open = os.name == "posix" and mode & 0o077
    yield _Finding("mode", f"{mode:04o}", "others can read or write it; chmod 600" if is_open else None)
    sizes = [part.stat().st_size for part in (file, Path(f"{file}-wal")) if part.exists()]
    yield _Finding("bytes", sum(sizes))
    yield _Finding("readable", os.access(file, os.R_OK), None if os.access(file, os.R_OK) else "it cannot be read")
    can_write = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    yield _Finding("writable", can_write, None if can_write else "it, or its folder, cannot be written")
    yield _Finding("schema", _schema(file))


def _schema(file: Path) -> int | None:
    try:
        connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        try:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return None  # opening the store says what is wrong with it


def _content(store: Store) -> Iterator[_Finding]:
    counts = {str(state): store.count(Filter(states=frozenset({state}))) for state in State}
    yield _Finding("requests", {name: count for name, count in counts.items() if count})
    unknown = counts[State.UNKNOWN]
    hint = "find out, then `sayso resolve ID --happened` or `--did-not`; `sayso ls --state unknown` lists them"
    yield _Finding("unknown outcomes", unknown, hint if unknown else None)
    latest = max(
        (at for one in store.list(Filter(), limit=100, newest=True).requests for at in _instants(one)), default=None
    )
    is_ahead = latest is not None and latest > clock.now() + _SLACK
    yield _Finding(
        "newest record", None if latest is None else latest.isoformat(),
        "it lies in the future: this clock, or the one that wrote it, is wrong" if is_ahead else None,
    )  # fmt: skip


def _channels(known: list[ChannelHealth] | None) -> Iterator[_Finding]:
    """Look at the channels that the store knows, None where it does not open, and make those of the settings file."""
    try:
        tables = config.channel_tables()
    except SaysoError as fault:
        yield _Finding("channels", "cannot be read", str(fault))
        tables = {}
    for channel in known or ():
        table = tables.get(channel.name)
        wrong = None if table is None else _unmakable(channel.name, table)
        yield _Finding(f"channel {channel.name}", _how_it_is(channel, table), wrong or channel.problem)
    stands = "configured" if known is None else "configured, and nobody has delivered to it yet"
    for name in sorted(tables.keys() - {channel.name for channel in known or ()}):
        yield _Finding(f"channel {name}", f"{tables[name].get('type')}, {stands}", _unmakable(name, tables[name]))


def _unmakable(name: str, table: Mapping[str, Any]) -> str | None:
    """Return why a channel of the settings file can send nothing; None where it can be made."""
    try:
        outlet.make(name, table)
    except ConfigError as fault:
        return f"{fault}; no message leaves by it"
    return None


def _how_it_is(channel: ChannelHealth, table: Mapping[str, Any] | None) -> str:
    # A program's own channel has no table, and is entered by its class.
    kind = channel.kind.removesuffix("Outlet").lower() if table is None else table.get("type")
    sent = "nothing sent yet" if channel.sent_at is None else f"last sent {ago(channel.sent_at, clock.now())}"
    return f"{kind}, {sent}" + (f", {channel.waiting} waiting" if channel.waiting else "")


def _instants(request: Request) -> Iterator[datetime]:
    yield request.created_at
    if request.decision is not None:
        yield request.decision.at
    if request.execution is not None:
        yield request.execution.finished_at or request.execution.started_at
