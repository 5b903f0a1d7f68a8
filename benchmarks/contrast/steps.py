"""One scenario with one subject: each step that it makes is a process, forked from this one."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from benchmarks.contrast.subject import MINUTE, REFUND, Effect, NotApplicable, Subject, Tools

__all__ = ["Broken", "Play", "Unasked"]


class Broken(Exception):
    """The subject does not do what it must, so that its cell would say nothing."""


class Unasked(Exception):
    """The call ran before anybody was asked."""


class Play:
    """One scenario with one subject, in a folder of its own.

    Attributes:
        effect: What the tool does to the world, for subjects that can be told.
        refusal: How the last step was refused, in the subject's own words.
    """

    def __init__(self, make: Callable[..., Subject], folder: Path) -> None:
        self.make, self.folder = make, folder
        self.effect: str | None = None
        self.refusal = ""
        self.server: subprocess.Popen[bytes] | None = None

    def effects(self) -> list[Effect]:
        return Tools(self.folder).effects()

    def ask(self, run: str = "run-1") -> Any:
        """Let the agent ask; return what it saved."""
        before = len(self.effects())
        saved = self.verb("ask", run=run, must_work=True)
        if len(self.effects()) > before:
            raise Unasked
        return saved

    def approve(self, saved: Any) -> Any:
        return self.verb("decide", saved, "approve", must_work=True)

    def decided(self, saved: Any, decision: str) -> Any:
        return self.verb("decide", saved, decision)

    def resume_with(
        self, saved: Any, answer: Any, *, then: str = "", days: int = 0, must_work: bool = False
    ) -> None:  # fmt: skip
        if days:
            self.close()
            self.serve(days)
        self.verb("resume", saved, answer, then=then, days=days, must_work=must_work)

    def resumed_at_once(self, count: int, saved: Any, answer: Any) -> None:
        gate, opened = os.pipe()
        steps = [self._forked("resume", (saved, answer), gate=(gate, opened)) for _ in range(count)]
        os.close(gate)
        os.close(opened)  # what all of them wait for
        for step in steps:
            self._result(*step)

    def verb(
        self, name: str, *given: Any, run: str | None = None, then: str = "", days: int = 0, must_work: bool = False
    ) -> Any:
        """Do one step in a process of its own; return what it returned, or None where it was refused."""
        given = given if run is None else (REFUND, run)
        return self._result(*self._forked(name, given, then=then, days=days), must_work=must_work)

    def altered(self, saved: Any, answer: Any, old: Any, new: Any) -> tuple[Any, Any]:
        """Put `new` in the place of `old` wherever something was saved; both have the same length in every form."""
        is_served = self.server is not None
        self.close()
        forms = [(str(old).encode(), str(new).encode())]
        if isinstance(old, float):
            forms.append((struct.pack(">d", old), struct.pack(">d", new)))
        for path in (path for path in self.folder.rglob("*") if path.is_file() and path.name != "effects"):
            if path.suffix in {".db", ".sqlite"}:
                with suppress(sqlite3.DatabaseError):  # what is still in its log has checksums
                    connection = sqlite3.connect(path)
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    connection.close()
            content = path.read_bytes()
            for one, other in forms:
                content = content.replace(one, other)
            path.write_bytes(content)
        if is_served:
            self.serve()
        text = json.dumps([saved, answer]).replace(str(old), str(new))
        return cast("tuple[Any, Any]", tuple(json.loads(text)))

    def serve(self, days: int = 0) -> None:
        """Start the subject's own server, if it has one, as it would be in so many days."""
        module = getattr(self.make, "server_module", "")
        if module:
            command = [sys.executable, "-m", module, str(self.folder), str(days)]
            with (self.folder / "server.log").open("ab") as log:
                self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
            assert self.server.stdout is not None
            if not self.server.stdout.readline():  # it says when it is ready
                raise Broken("its server does not start")

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.communicate()
            self.server = None

    # -- processes ---------------------------------------------------------------------------------------------

    def _forked(
        self, name: str, given: tuple[Any, ...], *, then: str = "", days: int = 0, gate: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """Begin a step in a new process; return its id and the end of a pipe that has its result."""
        reads, writes = os.pipe()
        process = os.fork()
        if process:
            os.close(writes)
            return process, reads
        try:
            os.close(reads)
            self._muted()
            report = json.dumps(self._done(name, given, then, days, gate))
            os.write(writes, report.encode())
            if then == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(0)

    def _muted(self) -> None:
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nobody is at a terminal
        os.dup2(log, 1)
        os.dup2(log, 2)

    def _done(
        self, name: str, given: tuple[Any, ...], then: str, days: int, gate: tuple[int, int] | None
    ) -> dict[str, Any]:
        try:
            if days:
                travel: Any = importlib.import_module("time_machine")
                travel.travel(time.time() + timedelta(days=days).total_seconds(), tick=True).start()
            subject = self.make(self.folder, self.effect)
            subject.tools.then = then
            if gate is not None:
                os.close(gate[1])
                os.read(gate[0], 1)  # ends when the parent closes the other end, for all at once
            return {"value": _step(subject, name, given)}
        except NotApplicable as why:
            return {"not_applicable": str(why)}
        except BaseException as error:  # noqa: BLE001  a refusal has many classes, and its words are the result
            import traceback

            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"}

    def _result(self, process: int, reads: int, *, must_work: bool = False) -> Any:
        """Wait for a step, at most a minute; a process that was killed has no result."""
        os.set_blocking(reads, False)
        until, content, is_alive = time.monotonic() + MINUTE, b"", True
        while is_alive and time.monotonic() < until:
            is_alive = os.waitpid(process, os.WNOHANG) == (0, 0)
            with suppress(BlockingIOError):
                content += os.read(reads, 1 << 20)
            if is_alive:
                time.sleep(0.005)
        if is_alive:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        os.close(reads)
        report = json.loads(content) if content else {"error": "its process ended"}
        if "not_applicable" in report:
            raise NotApplicable(report["not_applicable"])
        self.refusal = report.get("error", "").partition("\n")[0][:200]
        if self.refusal and must_work:
            raise Broken(self.refusal)
        return report.get("value")


def _step(subject: Subject, name: str, given: tuple[Any, ...]) -> Any:
    if name == "cancelled":
        return asyncio.run(subject.cancelled(*given))
    if name == "pooled":
        with ThreadPoolExecutor(1) as pool:
            saved = pool.submit(subject.ask, REFUND, "run-1").result()
            if subject.tools.effects():
                return "unasked"
            answer = pool.submit(subject.decide, saved, "approve").result()
            pool.submit(subject.resume, saved, answer).result()
            return pool.submit(subject.ask, REFUND, "run-2").result()
    return getattr(subject, name)(*given)
