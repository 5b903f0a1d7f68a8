"""A process of its own for each contender, told what to do one line at a time.

The parent holds a `Worker`; the child (`python -m benchmarks.worker`) makes the contender and calls its methods.
Between two commands a worker is blocked on its pipe, so it takes nothing from the one that is being measured.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

__all__ = ["AbsentError", "Worker", "WorkerFailedError"]

ROOT = Path(__file__).resolve().parent.parent


class AbsentError(Exception):
    """The library that a contender needs is not installed here."""


class WorkerFailedError(Exception):
    """The contender raised; the text is its error."""


class Worker:
    """The parent's end: one contender in one child process, with its store in `folder`."""

    def __init__(self, path: str, folder: Path, variant: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        # The child's own complaints go to a file: a filled pipe that nobody reads would stop it in mid-measurement.
        self.complaints = TemporaryFile("w+", encoding="utf-8", dir=folder.parent)  # noqa: SIM115 - `close` does
        self.child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", path, str(folder), variant],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            text=True,
            cwd=ROOT,
        )
        try:
            self.hear()
        except BaseException:
            self.close()
            raise

    def tell(self, method: str, **options: Any) -> None:
        """Start a method of the contender without waiting for it; rubbish is collected before."""
        self._send([method, options, True])

    def step(self, method: str, **options: Any) -> Any:
        """Run a method that is one step among many, so that nothing is collected before it; return what it returns."""
        self._send([method, options, False])
        return self.hear()

    def _send(self, command: list[Any]) -> None:
        assert self.child.stdin is not None
        # A child that has ended left its reason behind, which `hear` finds.
        with suppress(BrokenPipeError):
            self.child.stdin.write(json.dumps(command) + "\n")
            self.child.stdin.flush()

    def hear(self) -> Any:
        """Wait for the answer of the method started last."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise WorkerFailedError(self.last_words())
        kind, answer = json.loads(line)
        if kind == "absent":
            raise AbsentError(answer)
        if kind == "failed":
            raise WorkerFailedError(answer)
        return answer

    def call(self, method: str, **options: Any) -> Any:
        """Run a method of the contender and return what it returns."""
        self.tell(method, **options)
        return self.hear()

    def last_words(self) -> str:
        """Return the last line that the child wrote before it ended."""
        self.child.wait(timeout=10)
        self.complaints.seek(0)
        lines = self.complaints.read().strip().splitlines()
        return lines[-1] if lines else f"the worker ended with status {self.child.returncode}"

    def close(self) -> None:
        """End the child and its pipes."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        with suppress(BrokenPipeError):
            self.child.stdin.close()
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()
        self.complaints.close()


def serve() -> None:
    """Make the contender named on the command line and obey the parent until its pipe closes."""
    # Libraries print; the answers keep a descriptor that no print can reach.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(kind: str, value: Any) -> None:
        answers.write(json.dumps([kind, value]) + "\n")
        answers.flush()

    path, folder, variant = sys.argv[1:4]
    module, _, name = path.partition(":")
    try:
        contender = getattr(importlib.import_module(f"benchmarks.{module}"), name)(Path(folder), variant)
        answer("done", None)
        for line in sys.stdin:
            method, options, collects = json.loads(line)
            if collects:
                gc.collect()
            answer("done", getattr(contender, method)(**options))
        contender.close()
    except ModuleNotFoundError as missing:
        # A library that is not there at all, as opposed to one that lacks a part of itself.
        answer("failed" if "." in (missing.name or "") else "absent", str(missing))
    except Exception as error:  # noqa: BLE001 - whatever a contender raises becomes its row
        answer("failed", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    serve()
