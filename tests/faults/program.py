"""The processes that faults happen to: a program under load, a worker, a server. Started by `fleet`, or by hand.

    python -m tests.faults.program load ADDRESS FOLDER NAME [--threads N] [--takes S] [--clock S] [--die POINT]
    python -m tests.faults.program worker ADDRESS FOLDER [--die POINT]
    python -m tests.faults.program server ADDRESS PORT [--die POINT]
    python -m tests.faults.program forker     starts the others as forks, without a new interpreter for each

A program asks, waits, and appends a line to `FOLDER/effects` for each call that it makes; `FOLDER/log-NAME` says what
it knows of each, with an instant. It goes on until `FOLDER/stop` is there, and settles what it began. Started again
after it died, it goes on with what its log has begun and not settled. The store is wrapped from outside, by the
failpoints of the tests of deaths.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import sayso
from sayso import Tool, clock, config, errors
from sayso.runs.worker import Ending, Report, Worker
from sayso.stores import workers
from sayso.stores.base import Store
from tests.stores import doomed_postgres
from tests.stores.doomed_postgres import reach

VERBS = ("ask", "start", "finish")
WORKER_VERBS = ("take_run", "start", "finish")
SERVER_VERBS = ("ask", "decide", "start", "finish")
PROGRAM_POINTS = [f"{when} {verb}" for verb in ("ask", "start", "call", "finish") for when in ("before", "after")]
WORKER_POINTS = [f"{when} {verb}" for verb in (*WORKER_VERBS, "call") for when in ("before", "after")]
SERVER_POINTS = [f"{when} {verb}" for verb in SERVER_VERBS for when in ("before", "after", "committed")]


def append(path: Path, line: str) -> None:
    """Add a line in one write, so that the lines of processes do not mix."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


class Program:
    """Works through orders 0, 1, 2, … on several threads."""

    def __init__(self, folder: Path, name: str, store: Store, takes: float) -> None:
        self._folder, self._name, self._store, self._takes = folder, name, store, takes
        self._log = folder / f"log-{name}"
        self._lock, self._orders = threading.Lock(), self._all()
        # With a lifetime far below an hour, a clock that is an hour off would show.
        self._pay = sayso.gate(wait="block", store=store, name="pay", key="{order}", expires="10m")(self._effect)

    def _all(self) -> Iterator[int]:
        lines = [line.split() for line in self._log.read_text().splitlines()] if self._log.exists() else []
        begun = {int(line[2]) for line in lines if line[1] == "begun"}
        yield from sorted(begun - {int(line[2]) for line in lines if line[1] in {"done", "unknown", "unrecorded"}})
        order = max(begun, default=-1)
        while not (self._folder / "stop").exists():
            order += 1
            yield order

    def _effect(self, order: str) -> str:
        reach("before call")
        append(self._folder / "effects", order)
        if self._takes:
            time.sleep(self._takes)
        reach("after call")
        return "paid"

    def _note(self, what: str, order: int, more: str = "") -> None:
        append(self._log, f"{time.monotonic():.4f} {what} {order} {more}")

    def thread(self) -> None:
        while True:
            with self._lock:
                order = next(self._orders, None)
            if order is None:
                return
            self._note("begun", order)
            while not self._is_settled(order):
                time.sleep(0.05)

    def _is_settled(self, order: int) -> bool:
        try:
            with sayso.run(f"{self._name}-{order}"):
                self._pay(f"{self._name}-{order}")
            self._note("done", order)
        except errors.OutcomeUnknownError:
            self._note("unknown", order)
        except errors.OutcomeNotRecordedError:
            self._note("unrecorded", order)
        except (errors.SaysoError, OSError) as fault:
            self._note("fault", order, f"{type(fault).__name__}: {fault}".replace("\n", " ")[:200])
            return False
        return True


def wrap(store: Store, verbs: tuple[str, ...]) -> None:
    for verb in verbs:
        doomed_postgres.wrap(verb, type(store))


def load(options: argparse.Namespace) -> None:
    store = config.open_store(options.address)
    wrap(store, VERBS)
    program = Program(options.folder, options.name, store, options.takes)
    threads = [threading.Thread(target=program.thread) for _ in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()


def paying(folder: Path, store: Store) -> Tool:
    """Return what a worker goes on with."""

    def pay(order: str) -> str:
        reach("before call")
        append(Path(os.environ["EFFECTS"]), order)
        reach("after call")
        return "paid"

    os.environ["EFFECTS"] = str(folder / "effects")  # a path in the closure would be a part of the call
    return Tool(pay, requires_approval=True, store=store)


def work(options: argparse.Namespace) -> None:
    if options.far:
        socket.gethostname = workers._boot_id = lambda: "far"
        workers._named.cache_clear()
    store = config.open_store(options.address)
    wrap(store, WORKER_VERBS)

    def tell(report: Report) -> None:
        name, _, order = report.run_id.partition("-")
        what = "unknown" if report.ending is Ending.UNKNOWN else "done" if report.ending is Ending.DONE else "fault"
        append(options.folder / f"log-{name}", f"{time.monotonic():.4f} {what} {order} {report.message}")

    asyncio.run(Worker([paying(options.folder, store)], concurrency=1, on_report=tell).run(once=True))


def serve(options: argparse.Namespace) -> None:
    from uvicorn import Server

    from sayso.server import create_app
    from sayso.server.protection import Limits, raise_file_limit
    from sayso.server.protection import config as settings_of

    store = config.open_store(options.address)
    wrap(store, SERVER_VERBS)
    if options.die.startswith("committed"):
        _die_after_commit(store, options.die)
    listener = socket.create_server(("127.0.0.1", options.port), backlog=512, reuse_port=True)
    app = create_app(store, rate=None, stranger_rate=None, in_flight=256, open_per_token=10_000)
    settings = settings_of(
        app, Limits().within(raise_file_limit()), log_config=None, access_log=False, proxy_headers=False, lifespan="off"
    )
    Server(settings).run(sockets=[listener])


def _die_after_commit(store: Store, point: str) -> None:
    """Die when a batch that held this verb is durable, and before anybody is answered."""
    verb, done, kind = point.removeprefix("committed "), list[str](), type(store)
    original, together = getattr(kind, verb), kind.together

    def doing(self: Any, *args: Any, **more: Any) -> Any:
        result = original(self, *args, **more)
        done.append(verb)
        return result

    def committed(self: Any, works: Any) -> Any:
        results = together(self, works)
        if done:
            reach(point)
        return results

    setattr(kind, verb, doing)
    kind.together = committed  # type: ignore[method-assign]


def fork() -> None:
    """Start, and wait for, what each line of the standard input names; end with it."""
    for name in ("sayso.server", "sayso.stores.sqlite", "sayso.stores.http", "sayso.server.protection", "uvicorn",
                 "uvicorn.protocols.http.httptools_impl", "sayso.gates.gate",
                 "sayso.model.schema_of_types"):  # fmt: skip
        import_module(name)
    for line in sys.stdin:
        what, *words = json.loads(line)
        if what == "start":
            output, environment, *command = words
            child = os.fork()
            if child == 0:
                _become(output, environment, command)
            answer: int | None = child
        else:  # the exit code of a child that has ended
            ended, status = os.waitpid(words[0], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        print(json.dumps(answer), flush=True)


def _become(output: str, environment: dict[str, str], command: list[str]) -> None:
    code = 1
    try:
        file, nothing = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), os.open(os.devnull, os.O_RDONLY)
        for number, fd in enumerate((nothing, file, file)):
            os.dup2(fd, number)
        os.environ.update(environment)
        main(command)
        code = 0
    except BaseException:  # noqa: BLE001  the edge of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(words: list[str] | None = None) -> None:
    if (words or sys.argv[1:]) == ["forker"]:
        fork()
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("load", "worker", "server"))
    parser.add_argument("address")
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--takes", type=float, default=0.0)
    parser.add_argument("--clock", type=float, default=0.0)
    parser.add_argument("--die", default="")
    parser.add_argument("--far", action="store_true", help="be a process of another machine")
    options = parser.parse_args(words)
    doomed_postgres._deadly.append(options.die)
    if options.clock:  # this machine's clock is wrong; not a clock that a test put in its place
        off = timedelta(seconds=options.clock)
        clock._SYSTEM = clock.now = lambda: datetime.now(UTC) + off
    if options.what == "server":
        options.port = int(options.rest[0])
    else:
        options.folder, options.name = Path(options.rest[0]), options.rest[-1]
    {"load": load, "worker": work, "server": serve}[options.what](options)


if __name__ == "__main__":
    main()
