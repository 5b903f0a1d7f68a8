"""The long-running commands besides `serve`: `worker` resumes runs, and `notify` delivers messages.

`worker` resumes runs after a person has decided, whichever process started them; see `sayso.runs.worker`. This module
loads the runnables, handles signals, and prints a line for each run. Invariant: after SIGTERM the process ends within
the grace period, whatever a handler does.

`notify` delivers messages about requests to the channels of `sayso.toml` if no `sayso serve` does. Invariant: it
decides nothing, and a failed message stays in the outbox.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import click

from sayso import config, errors
from sayso.channels.outbox import delivering, forget
from sayso.channels.registry import Channel, announce_waiting, configured, make, test_notification
from sayso.cli.context import WRONG, CliContext, Number, as_span, complain, handling_signals, json_option, out
from sayso.model.redaction import words
from sayso.model.text import escape
from sayso.runs.runnable import Runnable
from sayso.runs.worker import Ending, Limits, Report, Worker
from sayso.stores.base import Store
from sayso.view.summary import in_short, short, token

_AFTER_GRACE = 0.12  # seconds to record interrupted runs; the default grace period and this stay below one second
_THREADS = 32  # for handlers that are sync functions


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE:NAME...")
@click.option(
    "--concurrency", metavar="N", type=Number(1, 10_000), default=8, show_default=True, help="Most runs at a time."
)
@click.option(
    "--grace", metavar="SPAN", type=as_span, default="800ms", show_default=True, help="Time for handlers after SIGTERM."
)
@click.option(
    "--limit",
    "limits",
    metavar="N|TOOL=N",
    multiple=True,
    help="Most calls at a time, of all tools or of one; repeatable.",
)
@click.option("--health", metavar="[HOST:]PORT", help="Serve GET /healthz and /readyz; HOST is by default 127.0.0.1.")
@click.option("--once", is_flag=True, help="Resume the runs that are ready, then exit; 1 if one failed to resume.")
@json_option
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
        [_loaded(target) for target in targets], concurrency=concurrency, limits=_limits(limits), grace=grace,
        on_report=tally.add,
    )  # fmt: skip
    if any(store.url.startswith("memory:") for store in served.stores):
        raise errors.ConfigError("only its own program can see a store in memory; no worker can resume its runs")
    logger = logging.getLogger("sayso")
    if not logger.hasHandlers():  # otherwise the loaded program has configured logging
        logger.addHandler(_ComplaintHandler(logging.WARNING))
    with nullcontext() if health is None else _answering(served, health):
        _serve(served, grace, once=once)
    tally.close()
    if served.is_cut_short:
        _leave(0)  # a handler in a thread cannot be interrupted, and the interpreter would wait for it
    return 1 if once and tally.has_faults else 0


# -- the runnables ---------------------------------------------------------------------------------------------


def _loaded(target: str) -> Runnable:
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
def _answering(served: Worker, address: str) -> Generator[None]:
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
    complain(f"health: http://{server.server_address[0]}:{server.server_address[1]}/readyz")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


# -- signals ---------------------------------------------------------------------------------------------------


def _serve(served: Worker, grace: timedelta, *, once: bool) -> None:
    """Run the worker until it ends or a signal stops it."""
    stopping = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            _leave(128 + number)
        stopping.set()
        served.stop()

    def watch() -> None:
        # A handler that blocks the event loop or its thread must not keep the process alive.
        stopping.wait()
        time.sleep(grace.total_seconds() + _AFTER_GRACE)
        _leave(0)

    threading.Thread(target=watch, name="sayso-stop", daemon=True).start()
    loop = asyncio.new_event_loop()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="handler")
    loop.set_default_executor(threads)
    task = loop.create_task(served.run(once=once))
    with handling_signals(stop):
        try:
            while not task.done():
                # A handler that calls sys.exit() stops the loop, but must end only its own run.
                with suppress(SystemExit):
                    loop.run_until_complete(task)
        finally:
            threads.shutdown(wait=False)
            loop.close()


def _leave(code: int) -> None:
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
            out(json.dumps({
                "run": report.run_id, "name": report.name, "ending": report.ending.value, "message": report.message,
                "waits": list(report.waits), "seconds": round(report.seconds, 6),
            }))  # fmt: skip
            return
        row = f"{token(report.run_id)} {token(report.name)} {report.ending.words}"
        if report.ending is Ending.PAUSED:
            row += f": {', '.join(map(short, report.waits))}"
        elif report.ending is not Ending.DONE:
            row += f": {escape(in_short(report.message or ''))}"
        out(row)

    def close(self) -> None:
        """Print the totals, and the runs that were not resumed because their code has changed."""
        counts = [f"{count} {ending.words}" for ending, count in self._counts.items()]
        complain(f"worker ended: {', '.join(counts) or 'no run was resumed'}", *self._changed)


class _ComplaintHandler(logging.Handler):
    """Prints log records in the format in which commands print errors."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(*map(escape, self.format(record).splitlines()))


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
        return _test(tested, link)
    if forgotten is not None:
        if not forget(cli.store, forgotten):
            complain(f"error: no channel {escape(forgotten)!r} is known to this store; nothing changed")
            return WRONG
        then = "; if sayso.toml still names it, the next delivery registers it again"
        out(f"{escape(forgotten)} gets no more notifications{then}")
        return 0
    store, channels = cli.store_or_new, configured()
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
    with handling_signals(lambda _, __: ended.set()), delivering(store, link):
        out(f"delivering to {', '.join(map(escape, channels))}; press Ctrl-C to stop")
        ended.wait()
    return 0


def _test(name: str, link: str | None) -> int:
    tables = config.channel_tables()
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise errors.ConfigError(f"sayso.toml has no channel {name!r} (it has {known}); nothing was sent")
    try:
        make(name, tables[name]).send(test_notification(name, link))
    except errors.ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  any failure of the channel is the result of the test
        complain(
            f"error: {escape(name)} could not send the message: {type(error).__name__}: {escape(words(error, ()))}"
        )
        return WRONG
    out(f"{escape(name)} sent a test message")
    return 0


def _once(store: Store, channels: Mapping[str, Channel], link: str | None, backlog: str | None = None) -> int:
    store.sweep()
    failed = 0
    with delivering(store, link, runs=False) as deliverers:
        if backlog is not None:
            announce_waiting(store, backlog)
        for name, deliverer in zip(channels, deliverers, strict=True):
            deliverer.take_over()
            sent = deliverer.deliver_due()
            failed += deliverer.failed
            out(f"{escape(name)}: {sent} sent" + (f", {deliverer.failed} failed" if deliverer.failed else ""))
    return WRONG if failed else 0
