"""`worker`: resumes runs when a person has decided, whichever process began them; see `sayso.runs.worker`.

This module loads the runnables, handles signals, and prints one line for each run. Invariant: after SIGTERM the
process ends when the grace is over, whatever a handler does.
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
from sayso.cli.context import CliContext, Number, as_span, handling_signals, json_option
from sayso.cli.output import complain, out
from sayso.model.escaping import escape
from sayso.runs.runnable import Runnable
from sayso.runs.worker import Ending, Limits, Report, Worker
from sayso.view.summary import in_short, short, token

_AFTER_GRACE = 0.12  # seconds for writing down what was broken off; the grace and this stay below one second
_THREADS = 32  # for handlers that are plain functions


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE:NAME...")
@click.option(
    "--concurrency", metavar="N", type=Number(1, 10_000), default=8, show_default=True, help="Runs at a time."
)
@click.option(
    "--grace", metavar="SPAN", type=as_span, default="800ms", show_default=True, help="For handlers, after SIGTERM."
)
@click.option(
    "--limit", "limits", metavar="N|TOOL=N", multiple=True, help="Calls at a time: of all tools, or of one; repeatable."
)
@click.option("--health", metavar="[HOST:]PORT", help="Answer GET /healthz and /readyz there; by default on 127.0.0.1.")
@click.option("--once", is_flag=True, help="Resume what is ready now, and end, with 1 if a run could not be resumed.")
@json_option
@click.pass_obj
def worker(
    cli: CliContext, targets: tuple[str, ...], concurrency: int, grace: timedelta, limits: tuple[str, ...],
    health: str | None, once: bool,
) -> int:  # fmt: skip
    """Resume runs when a person has decided.

    Each MODULE:NAME is a Tool, Agent or Workflow, or a function without arguments that returns one. Modules are looked
    for in this folder first. Start as many workers as you like; SIGTERM or Ctrl-C ends one within a second.
    """
    if cli.address is not None:
        config.configure(store=cli.address)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    tally = _Tally(as_json=cli.as_json)
    served = Worker(
        [_loaded(target) for target in targets], concurrency=concurrency, limits=_limits(limits), grace=grace,
        tell=tally.add,
    )  # fmt: skip
    if any(store.url.startswith("memory:") for store in served.stores):
        raise errors.ConfigError("a store in memory is seen by its own program only; no worker can resume its runs")
    logger = logging.getLogger("sayso")
    if not logger.hasHandlers():  # else the loaded program has configured logging
        logger.addHandler(_Told(logging.WARNING))
    with nullcontext() if health is None else _answering(served, health):
        _serve(served, grace, once=once)
    tally.close()
    if served.is_cut_short:
        _leave(0)  # a handler in a thread cannot be broken off, and Python would wait for it
    return 1 if once and tally.has_faults else 0


# -- what to serve ---------------------------------------------------------------------------------------------


def _loaded(target: str) -> Runnable:
    """Return the runnable that `module:name` names.

    Raises:
        BadParameter: It has another form.
        ConfigError: It is not there, or is no runnable.
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
        # The user's own module; where it went wrong says more than our traceback would. A SyntaxError says it itself.
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({Path(place.filename).name}, line {place.lineno})"
        raise errors.ConfigError(f"{target}: {doing} raised {type(error).__name__}: {error}{where}") from error


def _limits(given: tuple[str, ...]) -> Limits:
    all_calls, by_tool = None, dict[str, int]()
    for text in given:
        name, _, most = text.rpartition("=")
        if not (most.isascii() and most.isdigit() and int(most[:6]) > 0 and len(most) <= 6):
            raise click.BadParameter(
                f"{text!r} is neither a whole number from 1 nor TOOL=N, as 20 and refund=2 are", param_hint="--limit"
            )
        if name:
            by_tool[name] = int(most)
        else:
            all_calls = int(most)
    return Limits(all_calls, by_tool)


# -- health --------------------------------------------------------------------------------------------------


@contextmanager
def _answering(served: Worker, address: str) -> Generator[None]:
    """Answer probes from a thread of its own, so that they hear of an event loop that is stuck.

    `/healthz` says whether the process is to be replaced, `/readyz` whether it does what it is there for.
    """
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 <= int(port[:6]) <= 65_535):
        raise click.BadParameter(f"{address!r} is no [HOST:]PORT, as 8601 and 0.0.0.0:8601 are", param_hint="--health")

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
            """Print nothing: a probe comes every few seconds."""

    try:
        server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Probe)
    except OSError as error:
        raise errors.ConfigError(f"--health: {address} cannot be listened on ({error.strerror})") from error
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
    """Let the worker work until it ends or a signal ends it."""
    stopping = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            _leave(128 + number)
        stopping.set()
        served.stop()

    def watch() -> None:
        # A handler that keeps the event loop or its thread busy must not keep the process.
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
                # A handler that calls sys.exit() stops the loop; that is the end of its own run only.
                with suppress(SystemExit):
                    loop.run_until_complete(task)
        finally:
            threads.shutdown(wait=False)
            loop.close()


def _leave(code: int) -> None:
    os._exit(code)  # every line was flushed when it was printed, and a flush could wait for a reader that is stuck


# -- printing --------------------------------------------------------------------------------------------------


class _Tally:
    """Prints a line for each run, and at the end how many there were of each kind."""

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
        """Print how many there were, and which were not resumed because their code has changed."""
        counts = [f"{count} {ending.words}" for ending, count in self._counts.items()]
        complain(f"worker ended: {', '.join(counts) or 'no run went on'}", *self._changed)


class _Told(logging.Handler):
    """Prints what is logged as commands print their complaints."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(*map(escape, self.format(record).splitlines()))
