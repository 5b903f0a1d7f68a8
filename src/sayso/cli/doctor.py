"""`doctor`: checks that the store is sound and the clock plausible, and lists what needs attention.

Invariant: without `--seal` it changes nothing. It exits with 1 if something is wrong.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import click

from sayso import __version__, clock, config
from sayso.audit.checkpoint import first_of, history, problems
from sayso.channels import registry
from sayso.cli import context
from sayso.cli.audit import checkpoint_text, signer
from sayso.cli.context import WRONG, CliContext
from sayso.errors import SaysoError, StoreForbiddenError
from sayso.model.duration import ago
from sayso.model.request import State
from sayso.model.text import escape
from sayso.policy import in_effect
from sayso.stores.base import Filter, Store

_SLACK = timedelta(seconds=5)


@dataclass(frozen=True)
class _Finding:
    """The result of one check."""

    name: str
    value: Any
    wrong: str | None = None


@click.command()
@click.option("--seal", is_flag=True, help="First encrypt requests that were stored before SAYSO_KEY was set.")
@context.json_option
@click.pass_obj
def doctor(cli: CliContext, seal: bool) -> int:
    """Check the store, the clock and the settings; exit with 1 if something is wrong."""
    found = list[_Finding]()
    if seal:
        key, file = os.environ.get("SAYSO_KEY"), context.file_of(cli.store.url)
        if not key or file is None:
            raise click.UsageError("--seal needs SAYSO_KEY and a SQLite store")
        from sayso.stores.sqlite_file import seal_store

        done = seal_store(file, key)
        found.append(_Finding("sealed now", f"{done.sealed:,} of {done.requests:,} requests"))
        if done.readable_rows:
            kept = f"{done.readable_rows:,} rows keep readable comments: the journal is never rewritten"
            found.append(_Finding("journal", kept))
    versions = {"sayso": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    versions |= {name: metadata.version(name) for name in ("pydantic", "click")}
    found += [*(_Finding(*one) for one in versions.items()), *_findings(cli)]
    wrong = [one for one in found if one.wrong is not None]
    rows = list[str]()
    for one in found:
        problem = "" if one.wrong is None else f"   {context.paint('WRONG', 'red')}: {escape(one.wrong)}"
        rows.append(f"{one.name:16}  {_text(one.value)}{problem}")
    return cli.answer(
        {
            "ok": not wrong, "found": {one.name: one.value for one in found},
            "wrong": [{"name": one.name, "problem": one.wrong} for one in wrong],
        },
        [*rows, "there are problems" if wrong else "everything is in order"], WRONG if wrong else 0,
    )  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count:,}" for name, count in cast("dict[str, int]", value).items()) or "none"
    return "-" if value is None else f"{value:,}" if type(value) is int else escape(str(value))


def _findings(cli: CliContext) -> Iterator[_Finding]:
    has_key = bool(os.environ.get("SAYSO_KEY"))
    yield _Finding(
        "SAYSO_KEY", "set, arguments are sealed" if has_key else "not set, arguments are readable in the store"
    )
    yield from _settings_findings()
    known: list[registry.ChannelHealth] | None = None
    try:
        store = cli.store
        yield _Finding("store", store.public_url)
        file = context.file_of(store.url)
        if file is not None:
            yield from _file_findings(file)
        yield from _content_findings(store)
        try:
            known = registry.health(store)
            context.check_key(store)
        except StoreForbiddenError:
            return  # a server's channels and checkpoints are checked on the server
        past = history(store)  # whether rows link to each other is checked by `log --verify`
        wrong = problems(store, past)
        text = "none" if past.newest is None else f"{past.number:,}, the newest {checkpoint_text(past.newest)}"
        problem = f"{first_of(wrong)}; `sayso log --verify` shows where" if wrong else None
        yield _Finding("checkpoints", text, problem)
    except context.NoStoreYetError as fault:
        # Before the first program asks, a missing default store is normal; a missing store that was named is an error.
        yield _Finding("store", str(fault), None if cli.address is None else "use another store with --store")
        known = []
    except SaysoError as fault:
        yield _Finding("opening", "failed", str(fault))
    yield from _channel_findings(known)


def _settings_findings() -> Iterator[_Finding]:
    where = ", from SAYSO_CONFIG" if "SAYSO_CONFIG" in os.environ else ""
    try:
        file = config.settings_file()
        yield _Finding("settings", "no sayso.toml in this folder or above it" if file is None else f"{file}{where}")
        policy = in_effect()
    except SaysoError as fault:
        yield _Finding("rules", "cannot be used", str(fault))
    else:
        text = (
            "none; a gate without when= holds every call" if policy is None else f"{len(policy.rules)}, {policy.path}"
        )
        yield _Finding("rules", text)
    try:
        who = signer()
    except SaysoError as fault:
        yield _Finding("signing key", "cannot be used", str(fault))
    else:
        yield _Finding("signing key", "none; evidence is not signed" if who is None else who.key)


def _file_findings(file: Path) -> Iterator[_Finding]:
    try:
        status = file.stat()
    except OSError as error:
        yield _Finding("file", str(file), f"cannot be accessed ({error.strerror})")
        return
    mode = stat.S_IMODE(status.st_mode)
    is_open = os.name == "posix" and mode & 0o077
    yield _Finding("mode", f"{mode:04o}", "others can read or write it; chmod 600" if is_open else None)
    sizes = [part.stat().st_size for part in (file, Path(f"{file}-wal")) if part.exists()]
    yield _Finding("bytes", sum(sizes))
    can_read = os.access(file, os.R_OK)
    yield _Finding("readable", can_read, None if can_read else "the file cannot be read")
    can_write = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    yield _Finding("writable", can_write, None if can_write else "the file or its folder cannot be written")
    schema = None
    address = f"{file.as_uri()}?mode=ro"
    # Opening the store reports an error.
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(address, uri=True)) as connection:
        schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    yield _Finding("schema", schema)


def _content_findings(store: Store) -> Iterator[_Finding]:
    counts = {str(state): store.count(Filter(states=frozenset({state}))) for state in State}
    yield _Finding("requests", {name: count for name, count in counts.items() if count})
    unknown = counts[State.UNKNOWN]
    hint = "`sayso ls --state unknown` lists them; `sayso resolve ID --happened` or `--did-not` settles one"
    yield _Finding("unknown outcomes", unknown, hint if unknown else None)
    newest = store.list(Filter(), limit=100, newest=True).requests
    instants = [one.created_at for one in newest]
    instants += [one.decision.at for one in newest if one.decision is not None]
    instants += [one.execution.finished_at or one.execution.started_at for one in newest if one.execution is not None]
    latest = max(instants, default=None)
    is_ahead = latest is not None and latest > clock.now() + _SLACK
    yield _Finding(
        "newest record", None if latest is None else clock.written(latest),
        "it is in the future: the clock of this machine, or of the one that wrote it, is wrong" if is_ahead else None,
    )  # fmt: skip


def _channel_findings(known: list[registry.ChannelHealth] | None) -> Iterator[_Finding]:
    """Check the channels; `known` has those registered in the store, or None if it does not open."""
    found, fault = registry.check(known or ())
    if fault is not None:
        yield _Finding("channels", "cannot be read", fault)
    for one in found:
        if one.health is None:
            text = "configured" if known is None else "configured, nothing delivered yet"
        else:
            sent = one.health.sent_at
            text = "nothing sent yet" if sent is None else f"last sent {ago(sent, clock.now())}"
            text += f", {one.health.waiting} waiting" if one.health.waiting else ""
        yield _Finding(f"channel {one.name}", f"{one.kind}, {text}", one.problem)
