"""sayso's runs: the contenders that Timbal meets, a run with many finished steps, and many that wait at once."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .contender import MEMO, Contender
from .running import Calling, Running

__all__ = ["CLERK", "Crowd", "Finished", "SaysoCalling", "SaysoRunning"]


class SaysoRunning(Running):
    """The program that `peers.timbal` runs, with another import root."""

    package = "sayso"


class SaysoCalling(Calling):
    """The same, on a SQLite store, which a run that waits for nobody does not touch."""

    package = "sayso"

    def __init__(self, folder: Path, variant: str) -> None:
        sayso: Any = importlib.import_module("sayso")
        sayso.configure(store=f"sqlite:///{folder / 'runs.db'}")
        super().__init__(folder, variant)

    def ways(self) -> dict[str, Callable[[], Any]]:
        """Return the ways to make the call, by name."""
        return {**super().ways(), "acall": lambda: self.tool.acall(amount=10, to="alice")}

    def written(self) -> int:
        """Return how many bytes the calls left on the disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


class Finished(Contender):
    """Runs in which many steps have ended before one waits: a workflow of steps in a row, an agent of as many turns."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.sayso: Any = importlib.import_module("sayso")
        self.sayso.configure(store=f"sqlite:///{folder / 'runs.db'}")
        self.review, self.ada = self.sayso.Review(), self.sayso.Reviewer("ada")
        self.runner = asyncio.Runner()
        self.made = 0

        async def look(order: int) -> dict[str, Any]:
            self.made += 1
            return {"order": order, "total": 25.5, "note": MEMO}

        async def pay(amount: int) -> str:
            self.effects.append(amount)
            return "paid"

        self.look = self.sayso.Tool(name="look", handler=look)
        self.pay = self.sayso.Tool(name="pay", handler=pay, requires_approval=True)

    def agent(self, steps: int) -> Any:
        """Return an agent that looks so many times, once a turn, and then pays."""

        async def model(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
            turn = sum(message["role"] == "assistant" for message in messages)
            if turn > steps:
                return "done"
            name, arguments = ("look", {"order": turn}) if turn < steps else ("pay", {"amount": turn})
            return {"calls": [{"id": f"call{turn}", "name": name, "arguments": arguments}]}

        return self.sayso.Agent(name="clerk", model=model, tools=[self.look, self.pay], max_iters=steps + 2)

    def workflow(self, steps: int) -> Any:
        """Return a workflow of so many steps in a row, the last one gated."""
        flow, before = self.sayso.Workflow(name="flow"), list[str]()
        for number in range(steps):
            flow.step(self.look, name=f"look{number}", depends_on=before, order=number)
            before = [f"look{number}"]
        return flow.step(self.pay, depends_on=before, amount=steps)

    def time_resumes(self, kind: str, steps: int, count: int) -> list[int]:
        """Return the nanoseconds of `count` resumes of runs that were decided; raises if a step was taken twice."""
        runnable = self.agent(steps) if kind == "agent" else self.workflow(steps)
        given = {"prompt": "go on"} if kind == "agent" else {}
        self.made = 0
        self.effects.clear()

        async def timed() -> list[int]:
            taken: list[int] = []
            for _ in range(count):
                paused = await runnable(**given).collect()
                self.review.approve(paused.metadata["pending_approvals"][0]["approval_id"], by=self.ada)
                before = time.perf_counter_ns()
                output = await runnable(parent_id=paused.run_id).collect()
                taken.append(time.perf_counter_ns() - before)
                if output.status.code != "success":
                    raise RuntimeError(f"the run ended with {output.status}")
            return taken

        taken = self.runner.run(timed())
        if (self.made, len(self.effects)) != (steps * count, count):
            raise RuntimeError(f"{self.made} steps of {steps * count}, {len(self.effects)} payments of {count}")
        return taken

    def close(self) -> None:
        self.runner.close()


CLERK = '''\
"""An agent whose one payment waits for a person; each payment that is made is a line of `effects`."""

import asyncio
import os
from pathlib import Path

from sayso import Agent, Tool

effects = Path(__file__).parent / "effects"


async def pay(amount: int, to: str) -> str:
    line = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(line, b"%d\\n" % amount)
    os.close(line)
    await asyncio.sleep(float(os.environ.get("CLERK_WAITS", "0")))  # for the answer of a bank
    return "paid"


async def model(messages, tools):
    if messages[-1]["role"] == "tool":
        return "done"
    amount = int(messages[-1]["content"])
    return {"calls": [{"id": "call0", "name": "pay", "arguments": {"amount": amount, "to": "alice"}}]}


agent = Agent(name="clerk", model=model, tools=[Tool(name="pay", handler=pay, requires_approval=True)])
'''


class Crowd(Contender):
    """Many agents that wait at once; the module of their agent stands in the folder as `clerk.py`.

    `variant` is the address of a Postgres, or anything else for a SQLite store in the folder.
    """

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.sayso: Any = importlib.import_module("sayso")
        self.sayso.configure(store=variant if "://" in variant else f"sqlite:///{folder / 'runs.db'}")
        (folder / "clerk.py").write_text(CLERK, encoding="utf-8")
        module = {"__file__": str(folder / "clerk.py"), "__name__": "clerk"}
        exec(compile(CLERK, "clerk.py", "exec"), module)
        self.agent: Any = module["agent"]
        self.runner = asyncio.Runner()

    async def pause(self, first: int, count: int) -> None:
        """Leave so many runs waiting."""
        for amount in range(first, first + count):
            output = await self.agent(prompt=str(amount)).collect()
            if output.status.reason != "approval_required":
                raise RuntimeError(f"the run ended with {output.status}")

    def fill(self, count: int) -> None:
        """Leave so many runs waiting."""
        self.runner.run(self.pause(0, count))

    def decide_all(self) -> int:
        """Approve everything, and return how many that were."""
        review, ada, decided = self.sayso.Review(), self.sayso.Reviewer("ada"), 0
        while pending := review.list(state="pending", limit=1000).requests:
            for request in pending:
                review.approve(request.id, by=ada)
            decided += len(pending)
        return decided

    def weigh(self, warm: int, count: int, *, traced: bool) -> dict[str, float]:
        """Let so many more runs wait, and return by how much bytes, tasks and threads of this process have grown."""

        async def weighed() -> dict[str, float]:
            # Whatever has a bound has reached it by then: caches, what the store remembers, the pool of threads.
            await self.pause(0, warm)
            before = _weight(traced=traced)
            await self.pause(warm, count)
            return {name: after - before[name] for name, after in _weight(traced=traced).items()}

        if traced:
            tracemalloc.start()
        return self.runner.run(weighed())

    def close(self) -> None:
        self.runner.close()


def _weight(*, traced: bool) -> dict[str, float]:
    gc.collect()
    known = Path("/proc/self/statm")
    pages = int(known.read_text(encoding="ascii").split()[1]) if known.exists() else 0
    return {
        "bytes": tracemalloc.get_traced_memory()[0] if traced else pages * os.sysconf("SC_PAGE_SIZE"),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
    }
