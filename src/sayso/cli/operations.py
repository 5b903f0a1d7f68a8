"""Commands that operate sayso besides `serve`: `worker` resumes runs, `notify` delivers messages, `doctor` checks.

`worker` resumes runs after a person has decided, whichever process started them; see `sayso.runs.worker`. This module
loads the runnables, handles signals, and prints a line for each run. Invariant: after SIGTERM the process ends within
the grace period, whatever a handler does.

`notify` delivers messages about requests to the channels of `sayso.toml` if no `sayso serve` does. Invariant: it
decides nothing, and a failed message stays in the outbox.

`doctor` checks that the store exists and is sound and that the clock is plausible, and lists what needs attention.
Invariant: without `--seal` it changes nothing. It exits with 1 if something is wrong.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import platform
import sqlite3
import stat
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, cast

import click

from sayso import __version__, clock, config, errors
from sayso.audit.checkpoint import first_of, history, problems
from sayso.channels import registry
from sayso.channels.outbox import delivering
from sayso.cli import context
from sayso.cli.audit import checkpoint_text, signer
from sayso.cli.context import WRONG, CliContext, echo, echo_err
from sayso.errors import SaysoError, StoreForbiddenError
from sayso.model.duration import ago
from sayso.model.redaction import words
from sayso.model.request import State
from sayso.model.text import escape
from sayso.policy import in_effect
from sayso.runs.runnable import Runnable
from sayso.runs.worker import Ending, Limits, Report, Worker
from sayso.stores.base import Filter, Store
from sayso.view.summary import in_short, short, token

_AFTER_GRACE = 0.12  # seconds to record interrupted runs; the default grace period and this stay below one second
_THREADS = 32  # for handlers that are sync functions


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE:NAME...")
@click.option(
    "--concurrency", metavar="N", type=context.Number(1, 10_000), default=8, show_default=True,
    help="Most runs at a time.",
)  # fmt: skip
@click.option(
    "--grace", metavar="SPAN", type=context.as_span, default="800ms", show_default=True,
    help="Time for handlers after SIGTERM.",
)  # fmt: skip
@click.option(
    "--limit", "limits", metavar="N|TOOL=N", multiple=True,
    help="Most calls at a time, of all tools or of one; repeatable.",
)  # fmt: skip
@click.option("--health", metavar="[HOST:]PORT", help="Serve GET /healthz and /readyz; HOST is by default 127.0.0.1.")
@click.option("--once", is_flag=True, help="Resume the runs that are ready, then exit; 1 if one failed to resume.")
@context.json_option
@click.pass_obj
def worker(
    cli: CliContext, targets: tuple[str, ...], concurrency: int, grace: timedelta, limits: tuple[str, ...],
    health: str | None, once: bool,
) -> int:  # fmt: skip
    """Resume runs after a person has decided.

    Each MODULE:NAME is a Tool, Agent or Workflow, or a function without arguments that returns one. Modules are
    imported from this folder first. Several workers may run at once; SIGTERM or Ctrl-C stops one within a second.
    """
    if cli.address is not None:
        config.configure(store=cli.address)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    tally = _Tally(as_json=cli.as_json)
    served = Worker(
        [_load(target) for target in targets], concurrency=concurrency, limits=_limits(limits), grace=grace,
        on_report=tally.add,
    )  # fmt: skip
    if any(store.url.startswith("memory:") for store in served.stores):
        raise errors.ConfigError("only its own program can see a store in memory; no worker can resume its runs")
    logger = logging.getLogger("sayso")
    if not logger.hasHandlers():  # otherwise the loaded program has configured logging
        logger.addHandler(_ComplaintHandler(logging.WARNING))
    with nullcontext() if health is None else _serving_health(served, health):
        _run_worker(served, grace, once=once)
    tally.close()
    if served.is_cut_short:
        _exit_now(0)  # a handler in a thread cannot be interrupted, and the interpreter would wait for it
    return 1 if once and tally.has_faults else 0


# -- the runnables ---------------------------------------------------------------------------------------------


def _load(target: str) -> Runnable:
    """Import the runnable that `module:name` names.

    Raises:
        BadParameter: The target does not have this form.
        ConfigError: It does not exist, or is not a runnable.
    """
    module, colon, name = target.partition(":")
    if not (colon and name and all(part.isidentifier() for part in [*module.split("."), *name.split(".")])):
        raise click.BadParameter(f"{target!r} does not have the form module:name", param_hint="MODULE:NAME")
    with _user_code(target, "importing it"):
        found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise errors.ConfigError(f"{target}: there is no {part!r} in {module}")
        found = getattr(found, part)
    if not isinstance(found, Runnable) and callable(found):
        with _user_code(target, "calling it"):
            found = found()
    if isinstance(found, Runnable):
        return found
    raise errors.ConfigError(
        f"{target} is {type(found).__name__!r}; a worker takes a Tool, Agent or Workflow, or a function without"
        " arguments that returns one"
    )


@contextmanager
def _user_code(target: str, doing: str) -> Generator[None]:
    module = target.partition(":")[0]
    try:
        yield
    except errors.ConfigError as error:
        raise errors.ConfigError(f"{target}: {error}") from error
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            hint = f"; did you mean {module.removesuffix('.py')!r}?" if module.endswith(".py") else ""
            raise errors.ConfigError(f"{target}: there is no module {missing!r} in {Path.cwd()}{hint}") from error
        # The error is in the user's module, so its place is more useful than our traceback. A SyntaxError includes it.
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({Path(place.filename).name}, line {place.lineno})"
        raise errors.ConfigError(f"{target}: {doing} raised {type(error).__name__}: {error}{where}") from error


def _limits(given: tuple[str, ...]) -> Limits:
    all_calls, by_tool = None, dict[str, int]()
    for text in given:
        name, _, most = text.rpartition("=")
        if not (most.isascii() and most.isdigit() and int(most[:6]) > 0 and len(most) <= 6):
            raise click.BadParameter(
                f"{text!r} is not a number or TOOL=NUMBER, such as 20 or refund=2", param_hint="--limit"
            )
        if name:
            by_tool[name] = int(most)
        else:
            all_calls = int(most)
    return Limits(all_calls, by_tool)


# -- health --------------------------------------------------------------------------------------------------


@contextmanager
def _serving_health(served: Worker, address: str) -> Generator[None]:
    """Answer probes from a separate thread, so that they can report a blocked event loop.

    `/healthz` says whether the process should be replaced, `/readyz` whether it is doing its work.
    """
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 <= int(port[:6]) <= 65_535):
        raise click.BadParameter(f"{address!r} is not [HOST:]PORT, such as 8601 or 0.0.0.0:8601", param_hint="--health")

    class Probe(BaseHTTPRequestHandler):
        timeout = 5.0  # seconds for a request to arrive

        def do_GET(self) -> None:
            health = served.health()
            fine = {"/healthz": health["status"] != "stuck", "/readyz": health["status"] == "ok"}.get(self.path)
            body = json.dumps(health if fine is not None else {"status": "not_found"}).encode()
            self.send_response(404 if fine is None else 200 if fine else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the base class
            """Log nothing, because probes arrive every few seconds."""

    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Probe)
    except OSError as error:
        raise errors.ConfigError(f"--health: cannot listen on {address} ({error.strerror})") from error
    thread = threading.Thread(target=server.serve_forever, name="sayso-health", daemon=True)
    thread.start()
    echo_err(f"health: http://{server.server_address[0]}:{server.server_address[1]}/readyz")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


# -- signals ---------------------------------------------------------------------------------------------------


def _run_worker(served: Worker, grace: timedelta, *, once: bool) -> None:
    """Run the worker until it ends or a signal stops it."""
    stopping = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            _exit_now(128 + number)
        stopping.set()
        served.stop()

    def watch() -> None:
        # A handler that blocks the event loop or its thread must not keep the process alive.
        stopping.wait()
        time.sleep(grace.total_seconds() + _AFTER_GRACE)
        _exit_now(0)

    threading.Thread(target=watch, name="sayso-stop", daemon=True).start()
    loop = asyncio.new_event_loop()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="handler")
    loop.set_default_executor(threads)
    task = loop.create_task(served.run(once=once))
    with context.handle_signals(stop):
        try:
            while not task.done():
                # A handler that calls sys.exit() stops the loop, but must end only its own run.
                with suppress(SystemExit):
                    loop.run_until_complete(task)
        finally:
            threads.shutdown(wait=False)
            loop.close()


def _exit_now(code: int) -> None:
    os._exit(code)  # all output is already flushed, and another flush could block on a stuck reader


# -- printing --------------------------------------------------------------------------------------------------


class _Tally:
    """Prints a line for each run, and at the end the number of runs of each kind."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[Ending] = Counter()
        self._changed: list[str] = []

    @property
    def has_faults(self) -> bool:
        """Whether a run could not be resumed because of an error."""
        return any(self._counts[ending] for ending in (Ending.RETRY, Ending.BROKEN, Ending.CHANGED))

    def add(self, report: Report) -> None:
        self._counts[report.ending] += 1
        if report.ending is Ending.CHANGED:
            self._changed.append(escape(f"{report.run_id} not resumed: {report.message}"))
        if self._as_json:
            echo(json.dumps({
                "run": report.run_id, "name": report.name, "ending": report.ending.value, "message": report.message,
                "waits": list(report.waits), "seconds": round(report.seconds, 6),
            }))  # fmt: skip
            return
        row = f"{token(report.run_id)} {token(report.name)} {report.ending.words}"
        if report.ending is Ending.PAUSED:
            row += f": {', '.join(map(short, report.waits))}"
        elif report.ending is not Ending.DONE:
            row += f": {escape(in_short(report.message or ''))}"
        echo(row)

    def close(self) -> None:
        """Print the totals, and the runs that were not resumed because their code has changed."""
        counts = [f"{count} {ending.words}" for ending, count in self._counts.items()]
        echo_err(f"worker ended: {', '.join(counts) or 'no run was resumed'}", *self._changed)


class _ComplaintHandler(logging.Handler):
    """Prints log records in the format in which commands print errors."""

    def emit(self, record: logging.LogRecord) -> None:
        echo_err(*map(escape, self.format(record).splitlines()))


@click.command()
@click.option("--once", is_flag=True, help="Send the messages that are due, then exit; with 1 if one failed.")
@click.option("--base-url", metavar="URL", help="The URL of the inbox, with which links begin.")
@click.option("--test", "tested", metavar="CHANNEL", help="Send a test message through this channel, then exit.")
@click.option("--forget", "forgotten", metavar="CHANNEL", help="Stop notifying this channel, then exit.")
@click.option(
    "--backlog", metavar="CHANNEL", help="Like --once, but first announce older pending requests to this channel."
)
@click.pass_obj
def notify(
    cli: CliContext, once: bool, base_url: str | None, tested: str | None, forgotten: str | None, backlog: str | None
) -> int:  # fmt: skip
    """Notify people of requests and outcomes through the channels of sayso.toml.

    `sayso serve` does the same while it runs. Several may run at once; each message is sent once. SIGTERM or Ctrl-C
    stops it.
    """
    link = base_url or config.base_url()
    if tested is not None:
        return _send_test(tested, link)
    if forgotten is not None:
        if not registry.forget(cli.store, forgotten):
            echo_err(f"error: no channel {escape(forgotten)!r} is known to this store; nothing changed")
            return WRONG
        then = "; if sayso.toml still names it, the next delivery registers it again"
        echo(f"{escape(forgotten)} gets no more notifications{then}")
        return 0
    store, channels = cli.store_or_new, registry.configured()
    if not channels:
        _once(store, channels, link)  # drops messages queued for channels that were removed from the settings
        file = config.settings_file()
        where = "there is no sayso.toml in this folder or above it" if file is None else f"{file} names none"
        raise errors.ConfigError(
            f"no channel is configured, so nobody can be notified: {where}; write [channels.NAME] with type = ... into"
            ' sayso.toml, such as [channels.desk] with type = "terminal"'
        )
    if backlog is not None and backlog not in channels:
        raise errors.ConfigError(f"sayso.toml has no channel {backlog!r} (it has {', '.join(sorted(channels))})")
    if once or backlog is not None:
        return _once(store, channels, link, backlog)
    ended = threading.Event()
    with context.handle_signals(lambda _, __: ended.set()), delivering(store, link):
        echo(f"delivering to {', '.join(map(escape, channels))}; press Ctrl-C to stop")
        ended.wait()
    return 0


def _send_test(name: str, link: str | None) -> int:
    tables = config.channel_tables()
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise errors.ConfigError(f"sayso.toml has no channel {name!r} (it has {known}); nothing was sent")
    try:
        registry.make(name, tables[name]).send(registry.test_notification(name, link))
    except errors.ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  any failure of the channel is the result of the test
        echo_err(
            f"error: {escape(name)} could not send the message: {type(error).__name__}: {escape(words(error, ()))}"
        )
        return WRONG
    echo(f"{escape(name)} sent a test message")
    return 0


def _once(store: Store, channels: Mapping[str, registry.Channel], link: str | None, backlog: str | None = None) -> int:
    store.sweep()
    failed = 0
    with delivering(store, link, runs=False) as deliverers:
        if backlog is not None:
            registry.announce_waiting(store, backlog)
        for name, deliverer in zip(channels, deliverers, strict=True):
            deliverer.take_over()
            sent = deliverer.deliver_due()
            failed += deliverer.failed
            echo(f"{escape(name)}: {sent} sent" + (f", {deliverer.failed} failed" if deliverer.failed else ""))
    return WRONG if failed else 0


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
        "SAYSO_KEY", "set, arguments are sealed" if has_key else "not set, arguments are readable in the file"
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
