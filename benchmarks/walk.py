"""How far one held call goes through sayso's own code: the Python functions that it calls, and the files they are in.

No time is measured, so a busy machine changes nothing. Each program runs by itself, as `python -m benchmarks.walk
PROGRAM`, after rounds that fill what is remembered.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from .contest import Plan
from .table import Row

__all__ = ["walk"]

ROOT = Path(__file__).resolve().parent.parent
MEASURE = "a held call's way through the code"
AIMS = {"cycle": (220, 20), "agent": (600, 35)}
TEXTS = {"cycle": "a gate raises, is approved, and runs", "agent": "an agent pauses, is approved, and is resumed"}
WARM_UP = 3.0  # seconds: the store looks twice while its folder has changed within the last two


def walk(plan: Plan) -> list[Row]:
    """Return a row for each program."""
    del plan
    return [_row(name) for name in AIMS]


def _row(name: str) -> Row:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk", name], cwd=ROOT, capture_output=True, text=True, check=True
    )
    calls, files = json.loads(ended.stdout)
    most_calls, most_files = AIMS[name]
    return Row(
        MEASURE,
        f"sayso: {TEXTS[name]}",
        "sqlite FULL",
        median=f"{calls} calls",
        samples=1,
        note=f"in {files} files (aim: at most {most_calls} calls in {most_files} files)",
        figures={"calls": float(calls), "files": float(files)},
    )


@contextmanager
def _counted(package: Path) -> Iterator[list[str]]:
    """Yield the file of each call of a function of the package, in any thread."""
    entered = list[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(package)):
            entered.append(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _cycle() -> Callable[[], None]:
    import sayso

    @sayso.gate(wait="raise")
    def pay(amount: int, to: str) -> str:
        return f"paid {amount} to {to}"

    review, ada, count = sayso.Review(), sayso.Reviewer("ada"), itertools.count()

    def once() -> None:
        amount = next(count)
        try:
            pay(amount, "mill")
        except sayso.ConfirmationRequired as held:
            review.approve(held.confirmation_id, by=ada)
        pay(amount, "mill")

    return once


def _agent() -> Callable[[], None]:
    import sayso

    async def model(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
        del tools
        return [("pay", {"amount": 320})] if messages[-1]["role"] == "user" else "done"

    def pay(amount: int) -> str:
        return f"paid {amount}"

    agent = sayso.Agent(name="clerk", model=model, tools=[sayso.Tool(pay, requires_approval=True)])
    review, ada = sayso.Review(), sayso.Reviewer("ada")

    async def once() -> None:
        paused = await agent(prompt="pay the mill").collect()
        review.approve(paused.metadata["pending_approvals"][0]["approval_id"], by=ada)
        output = await agent(parent_id=paused.run_id).collect()
        if output.output != "done":
            raise RuntimeError(f"the agent did not end: {output}")

    return lambda: asyncio.run(once())


def _main(name: str) -> None:
    import sayso

    with tempfile.TemporaryDirectory() as folder:
        sayso.configure(store=f"sqlite:///{folder}/walk.db")
        once = {"cycle": _cycle, "agent": _agent}[name]()
        with sayso.run("walk") if name == "cycle" else nullcontext():
            until = time.monotonic() + WARM_UP
            while time.monotonic() < until:
                once()
            with _counted(Path(sayso.__file__).parent) as entered:
                once()
        print(json.dumps([len(entered), len(set(entered))]))


if __name__ == "__main__":
    _main(sys.argv[1])
