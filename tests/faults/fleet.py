"""Programs, servers, a reviewer and a store, and what there is to count when a fault is over.

The programs are processes (`program`), the effect of a call is a line that only the call itself appends, and the
reviewer notes each approval that was confirmed. `Fleet.counted` settles everything and compares the three with the
record.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal

import sayso
from sayso import audit, config, errors
from sayso.audit import entries
from sayso.model.request import State
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Filter, Store
from tests.faults.network import Network
from tests.support.ports import free_port
from tests.support.postgres import Server, installed

__all__ = ["PATIENCE", "Counts", "Fleet", "durable_postgres", "until"]

PATIENCE = 300.0  # seconds, for a busy machine
ROOT = Path(__file__).resolve().parents[2]
Kind = Literal["sqlite", "postgres", "server"]


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: it did not come about")
        time.sleep(0.01)
    return found


class Process:
    """A process that the forker started, as `subprocess.Popen` has it."""

    _forker: subprocess.Popen[str] | None = None
    _lock = threading.Lock()

    def __init__(self, output: Path, environment: dict[str, str], *words: str) -> None:
        self.returncode: int | None = None
        self.pid: int = self._told("start", str(output), environment, *words)

    @classmethod
    def _told(cls, *words: Any) -> Any:
        with cls._lock:
            if cls._forker is None:
                known = {key: value for key, value in os.environ.items() if not key.startswith("SAYSO")}
                known["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
                cls._forker = subprocess.Popen(
                    [sys.executable, "-m", "tests.faults.program", "forker"], env=known, cwd=ROOT, text=True, bufsize=1,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )  # fmt: skip
                atexit.register(cls._end, cls._forker)
            assert cls._forker.stdin is not None
            assert cls._forker.stdout is not None
            cls._forker.stdin.write(json.dumps(words) + "\n")
            return json.loads(cls._forker.stdout.readline())

    @staticmethod
    def _end(forker: subprocess.Popen[str]) -> None:
        with forker:
            assert forker.stdin is not None
            forker.stdin.close()

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._told("ended", self.pid)
        return self.returncode

    def wait(self, seconds: float = PATIENCE) -> int | None:
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # the number of one that has not been waited for is nobody else's
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass
class Counts:
    """What came of some trials; two of them can be added up.

    Attributes:
        trials: How many faults there were.
        calls: How many calls were asked for.
        effects: How many of them had their effect.
        doubled: How many of them had it more than once.
        lost: Confirmed decisions that the record does not have, calls that never ended, and broken entries of it.
        unknown: How many outcomes are unknown in the record.
        told: How many of those a program or worker was told, that came back for it or that it happened to.
        silent: Effects of calls that the record neither calls done nor unknown.
        recovery: Seconds from the end of each fault to the next call that was done.
    """

    trials: int = 0
    calls: int = 0
    effects: int = 0
    doubled: int = 0
    lost: int = 0
    unknown: int = 0
    told: int = 0
    silent: int = 0
    recovery: list[float] = field(default_factory=list[float])

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def is_right(self) -> bool:
        """Whether every promise was kept."""
        return (self.doubled, self.lost, self.silent, self.unknown - self.told) == (0, 0, 0, 0)


class Fleet:
    """A store of a kind, and processes around it.

    Args:
        kind: `server` is a server of its own over SQLite.
        folder: Where the effects and the logs are.
        place: Where the store's file is, if that is elsewhere.
        postgres: For `postgres`, and for servers over it.
        servers: How many, with `server`.
        lease: For how long a started call counts as running without a renewal; empty is the usual time.
    """

    def __init__(
        self, kind: Kind, folder: Path, *, place: Path | None = None, postgres: Server | None = None, servers: int = 1,
        lease: str = "",
    ) -> None:  # fmt: skip
        self.kind, self.folder, self._lease = kind, folder, lease
        folder.mkdir(parents=True, exist_ok=True)
        self.postgres = postgres
        self.behind = f"sqlite:///{(place or folder) / 'sayso.db'}" if postgres is None else postgres.new()
        self.processes = dict[str, Process]()
        self.token = self._review_token = ""
        self.network: Network | None = None
        self.ports = list[int]()
        self._approved, self._is_over = list[str](), threading.Event()
        if kind == "server":
            with closing(self.store()) as store:
                self.token, self._review_token = (
                    Tokens(store).new(kind, name)[1] for kind, name in (("ask", "agent"), ("review", "ada"))
                )
            self.ports += [free_port() for _ in range(servers)]
            self.network = Network(list(self.ports))
            for number in range(servers):
                self.serve(number)
        elif postgres is not None:
            self.network = Network([Path(postgres.url("x").partition("host=")[2]) / ".s.PGSQL.5432"])
        self._reviewer = threading.Thread(target=self._review, daemon=True)
        self._reviewer.start()

    # -- processes ---------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """What programs open, through the network where there is one."""
        if self.kind == "server" and self.network is not None:
            return f"http://127.0.0.1:{self.network.port}"
        return self.behind

    def store(self) -> Store:
        """Open the store itself, anew."""
        return config._make(self.behind)

    def _start(self, name: str, *words: str) -> Process:
        known = {"SAYSO_TOKEN": self.token, "SAYSO_SECRET": "s" * 32, "SAYSO_LEASE": self._lease}
        process = Process(self.folder / "output", known, *words)
        self.processes[name] = process
        return process

    def serve(self, number: int = 0, *more: str) -> Process:
        """Start a server, and return when it takes connections."""
        server = self._start(f"server-{number}", "server", self.behind, str(self.ports[number]), *more)

        def answers() -> bool:
            assert server.poll() in {None, -signal.SIGKILL}, (self.folder / "output").read_text()[-2000:]
            with socket.socket() as probe:
                return server.poll() is not None or probe.connect_ex(("127.0.0.1", self.ports[number])) == 0

        until(answers, "a server")
        return server

    def load(self, name: str = "a", *more: str, address: str | None = None) -> Process:
        """Start a program, or start it again."""
        return self._start(name, "load", address or self.address, str(self.folder), name, *more)

    def work(self, *more: str) -> Process:
        """Start a worker, which ends when nothing is ready any more."""
        return self._start("worker", "worker", self.address, str(self.folder), *more)

    def kill(self, name: str) -> None:
        """Kill a process and bury it."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    # -- the reviewer ------------------------------------------------------------------------------------------

    def _review(self) -> None:
        with closing(self.store()) as store:
            review = sayso.Review(store, reviewer="ada", channel="faults")
            look = self._over_http if self.kind == "server" else lambda: self._at_store(review)
            while not self._is_over.is_set():
                with suppress(errors.SaysoError, OSError, HTTPException, ValueError):
                    if look():
                        continue
                self._is_over.wait(0.02)

    def _at_store(self, review: sayso.Review) -> int:
        found = review.list(state="pending", limit=50).requests
        for one in found:
            with suppress(errors.AlreadyDecidedError):
                review.approve(one.id)
                self._approved.append(one.id)
        return len(found)

    def _over_http(self) -> int:
        found = self._http("/requests?state=pending&limit=50")["requests"]
        for one in found:
            with suppress(OSError, HTTPException):  # decided already, perhaps by a message whose answer was lost
                self._http(f"/requests/{one['id']}/approve", {"seen": one["fingerprint"]})
                self._approved.append(one["id"])
        return len(found)

    def _http(self, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self._review_token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/api/v1{path}", data, headers)  # noqa: S310  ours
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    # -- what is known ------------------------------------------------------------------------------------------

    def lines(self, what: str) -> list[tuple[float, str, int]]:
        """Return what programs noted of this kind: when, who, and of which order."""
        found: list[tuple[float, str, int]] = []
        for log in self.folder.glob("log-*"):
            for line in log.read_text().splitlines():
                instant, kind, order, *_ = line.split()
                if kind == what:
                    found.append((float(instant), log.name.removeprefix("log-"), int(order)))
        return sorted(found)

    def at_work(self, more: int = 3) -> None:
        """Wait until so many more calls were done."""
        before = len(self.lines("done"))
        until(lambda: len(self.lines("done")) >= before + more, "calls under load")

    def recovered(self, since: float) -> float:
        """Wait for the next call that is done, and return how long it took."""
        return until(lambda: next((at for at, *_ in self.lines("done") if at > since), 0.0), "the recovery") - since

    def settle(self) -> None:
        """Have every program settle what it began, and end."""
        (self.folder / "stop").touch()
        names = {name for _, name, _ in self.lines("begun")}
        for name in names:
            process = self.processes.pop(name, None)
            if process is not None:
                process.wait(PATIENCE)
            if process is None or process.returncode != 0:
                assert self.load(name).wait(PATIENCE) == 0, (self.folder / "output").read_text()[-2000:]
                self.processes.pop(name)

    def counted(self, trials: int, recovery: list[float] | None = None) -> Counts:
        """Settle everything, and return what there is in effects, in the record, and in the programs' knowledge."""
        self.settle()
        self._is_over.set()
        self._reviewer.join(PATIENCE)
        path = self.folder / "effects"
        effects = Counter(path.read_text().split() if path.exists() else ())
        with closing(self.store()) as store:
            store.sweep()
            requests, cursor = list[Any](), None
            while page := store.list(Filter(), cursor=cursor, limit=500):
                requests += page.requests
                cursor = page.cursor
                if cursor is None:
                    break
            decided = {entry.request_id for entry in entries(store) if entry.event == "approved"}
            broken = len(audit.verify(store).broken)
        states = {one.run_id: one.state for one in requests}
        unknown = {run for run, state in states.items() if state is State.UNKNOWN}
        told = {f"{name}-{order}" for kind in ("unknown", "unrecorded") for _, name, order in self.lines(kind)}
        ended = {run for run, state in states.items() if state in {State.DONE, State.UNKNOWN}}
        begun = {f"{name}-{order}" for _, name, order in self.lines("begun")}
        return Counts(
            trials=trials, calls=len(begun), effects=len(effects), doubled=sum(count > 1 for count in effects.values()),
            lost=len(set(self._approved) - decided) + len(begun - ended) + broken,
            unknown=len(unknown), told=len(unknown & told), silent=len(set(effects) - ended),
            recovery=recovery or [],
        )  # fmt: skip

    def close(self) -> None:
        """End what is left."""
        self._is_over.set()
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self._reviewer.join(PATIENCE)
        if self.network is not None:
            self.network.close()
        if self.postgres is not None:
            self.postgres.drop(self.behind)


def durable_postgres(place: Path | None = None) -> Server:
    """Start a server that syncs each commit, perhaps with its files in a place of its own."""
    if place is None:
        return Server(installed()[0], is_durable=True)
    before, tempfile.tempdir = tempfile.tempdir, str(place)
    try:
        return Server(installed()[0], is_durable=True)
    finally:
        tempfile.tempdir = before
