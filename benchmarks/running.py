"""What a library whose tools make runs must do: call a tool, pause a gated one, go on with it.

sayso and Timbal run the same program here, with another import root; what only sayso has stands in `ours_runs`.
Every leg of a run has a task of its own, as in a server, so that nothing but the store joins them.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from .contender import MEMO, Contender, make_effect

__all__ = ["Calling", "Running"]

PROVIDERS = {"sqlite": ("SqliteTracingProvider", "runs.db"), "jsonl": ("JsonlTracingProvider", "runs.jsonl")}


def of_face(package: str, name: str) -> Any:
    """Return what the approval face calls so: `Tool` of `timbal`, or `state.tracing.providers.…` of it."""
    module, _, last = f"{package}.{name}".rpartition(".")
    return getattr(importlib.import_module(module), last)


async def leg(work: Coroutine[Any, Any, Any]) -> Any:
    """Await `work` in a task, and in a context, of its own."""
    return await asyncio.get_running_loop().create_task(work)


class Running(Contender):
    """A gated tool of `package` on the durable provider that `variant` names: `sqlite` or `jsonl`."""

    package: str

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        name, file = PROVIDERS[variant]
        self.path = folder / file
        provider = of_face(self.package, f"state.tracing.providers.{name}").configured(_path=self.path)
        tool = of_face(self.package, "Tool")
        effect = make_effect(self.effects)
        self.pay = tool(name="pay", handler=effect, requires_approval=True, tracing_provider=provider)
        self.runner = asyncio.Runner()

    async def trip(self, amount: int) -> None:
        """Pause, and go on with the decision."""
        paused = await leg(self.pay(amount=amount, to="alice", memo=MEMO).collect())
        decisions = {entry["approval_id"]: True for entry in paused.metadata["pending_approvals"]}
        resumed = self.pay(amount=amount, to="alice", memo=MEMO, parent_id=paused.run_id, resume=decisions)
        output = await leg(resumed.collect())
        if output.output != "paid":
            raise RuntimeError(f"the run ended with {output.status}")

    def time_round_trips(self, first: int, count: int) -> list[int]:
        """Return the nanoseconds of `count` round trips, each with an amount of its own."""

        async def timed() -> list[int]:
            taken: list[int] = []
            for amount in range(first, first + count):
                before = time.perf_counter_ns()
                await self.trip(amount)
                taken.append(time.perf_counter_ns() - before)
            return taken

        return self.runner.run(timed())

    def fill(self, runs: int) -> None:
        """Leave so many ended runs in the store, with negative amounts, some of them at the same time."""

        async def filled() -> None:
            for first in range(-runs, 0, 16):
                await asyncio.gather(*(self.trip(amount) for amount in range(first, min(first + 16, 0))))

        self.runner.run(filled())

    def close(self) -> None:
        self.runner.close()


class Calling(Contender):
    """A tool of `package` that waits for nobody, on its default settings."""

    package: str

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)

        async def look(amount: int, to: str) -> int:
            return amount

        def plain(amount: int, to: str) -> int:
            return amount

        tool = of_face(self.package, "Tool")
        self.bare, self.tool = look, tool(name="look", handler=look)
        self.thread = tool(name="plain", handler=plain)
        self.runner = asyncio.Runner()

    async def iterate(self) -> None:
        """Hear every event of a run."""
        async for _ in self.tool(amount=10, to="alice"):
            pass

    def ways(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Return the ways to make the call, by name."""
        return {
            "bare": lambda: self.bare(amount=10, to="alice"),
            "collect": lambda: self.tool(amount=10, to="alice").collect(),
            "iterate": self.iterate,
            "thread": lambda: self.thread(amount=10, to="alice").collect(),
        }

    def time_calls(self, way: str, count: int) -> float:
        """Return the mean nanoseconds of one call over `count` calls."""
        call = self.ways()[way]

        async def timed() -> float:
            loop = itertools.repeat(None, count)
            before = time.perf_counter_ns()
            for _ in loop:
                await call()
            return (time.perf_counter_ns() - before) / count

        # A task, and so a context, for every batch: Timbal takes calls that share one for turns of one session.
        return self.runner.run(leg(timed()))

    def close(self) -> None:
        self.runner.close()
