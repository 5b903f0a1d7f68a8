"""`worker`: resumes runs after a person has decided, whichever process started them; see `sayso.runs.worker`.

This module loads the runnables, handles signals, and prints a line for each run. Invariant: after SIGTERM the process
ends within the grace period, whatever a handler does.
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
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import click

from sayso import config, errors
from sayso.cli import context
from sayso.cli.context import CliContext, echo, echo_err
from sayso.model.rendering import quote_if_needed
from sayso.model.text import escape
from sayso.runs.runnable import Runnable
from sayso.runs.worker import Ending, Limits, Report, Worker
from sayso.view.summary import in_short, short

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
        row = f"{quote_if_needed(report.run_id)} {quote_if_needed(report.name)} {report.ending.words}"
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
