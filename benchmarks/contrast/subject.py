"""What every subject must be able to do, and the tools whose effects are counted.

The effects are lines in a file, so that ten processes at once are counted as well as one that was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["MINUTE", "REFUND", "Call", "Effect", "NotApplicable", "Subject", "Tools"]

MINUTE = 60.0
_GRACE = 1.5  # seconds in which a call that was approved too late may start


class NotApplicable(Exception):
    """This scenario makes no sense for this subject; the text says why."""


@dataclass(frozen=True)
class Call:
    """The call that the model makes."""

    tool: str = "refund"
    order_id: str = "A-1"
    amount: float = 50.0

    @property
    def arguments(self) -> dict[str, Any]:
        return {"order_id": self.order_id, "amount": self.amount}


REFUND = Call()
Effect = tuple[str, str, Any]


class Tools:
    """Two tools that a person must approve. What they do is written down in `folder`.

    Attributes:
        then: What happens right after the effect: nothing, `timeout` (the answer is lost) or `die` (kill -9).
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.then = folder, ""

    def refund(self, order_id: str, amount: float) -> str:
        """Refund an order."""
        return self._effect("refund", order_id, amount)

    def payout(self, order_id: str, amount: float) -> str:
        """Pay out an order."""
        return self._effect("payout", order_id, amount)

    def waiting(self, order_id: str, amount: float) -> str:
        """Refund an order, after somebody has approved it: the wait that people write by hand."""
        (self.folder / "waits").touch()
        until = time.monotonic() + MINUTE
        while not (self.folder / "approved").exists():
            if time.monotonic() > until:
                return "nobody decided"
            time.sleep(0.01)
        return self.refund(order_id, amount)

    def _effect(self, tool: str, order_id: str, amount: Any) -> str:
        line = json.dumps([tool, order_id, amount], default=repr) + "\n"
        with (self.folder / "effects").open("a", encoding="utf-8") as file:  # one write, appended: no line is torn
            file.write(line)
        if self.then == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.then == "timeout":
            raise TimeoutError("no answer from the bank")
        return f"{tool} of {amount} for {order_id}"

    def effects(self) -> list[Effect]:
        """Return what happened, in order."""
        path = self.folder / "effects"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [(tool, order, amount) for tool, order, amount in map(json.loads, lines)]


class Subject:
    """A framework, a peer, or sayso, with all that it saves in `folder`. Each verb runs in a process of its own.

    What `ask` and `decide` return is JSON: it is what a program would have saved, and what it is given as the answer.

    Attributes:
        effect: What the tool does to the world, as a template, in the scenario that is about it; else None.
    """

    server_module: ClassVar[str] = ""
    """Module that is run as a server while a scenario is played, for a subject that needs one."""

    def __init__(self, folder: Path, effect: str | None = None) -> None:
        self.folder, self.effect, self.tools = folder, effect, Tools(folder)

    def ask(self, call: Call, run: str) -> Any:
        """Let the agent make the call in this run, until it waits for a person."""
        raise NotImplementedError

    def decide(self, saved: Any, decision: str) -> Any:
        """Let a person `approve`, `edit` the amount to "much", or say the text `no` where a decision is expected."""
        raise NotImplementedError

    def resume(self, saved: Any, answer: Any) -> None:
        """Go on with a run in a new process, with what `decide` returned."""
        raise NotImplementedError

    def forge(self, saved: Any) -> Any:
        """Return an answer that says approved, and alter what is stored so that it says so, too; nobody decided.

        Unless it says more, a subject takes whatever answer the program brings.
        """
        return self.decide(saved, "approve")

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        """Run the agent with a tool that waits by itself for its person."""
        raise NotApplicable("no call waits in it: the program comes back later")

    async def cancelled(self, call: Call, run: str) -> None:
        """Have a call wait, cancel its client, and approve the call then.

        A framework that has no such wait is given a tool that waits by itself, as people write it.
        """

        def refund(order_id: str, amount: float) -> str:
            """Refund an order."""
            return self.tools.waiting(order_id, amount)

        task = asyncio.ensure_future(self.chat(refund, call, run))
        await self.cancelled_when((self.folder / "waits").exists, task)
        (self.folder / "approved").touch()
        await asyncio.sleep(_GRACE)

    async def cancelled_when(self, waits: Callable[[], bool], task: asyncio.Future[Any]) -> None:
        """Cancel a task once its call waits."""
        async with asyncio.timeout(MINUTE):
            while not waits():
                if task.done():
                    task.result()
                    raise RuntimeError("it did not wait")
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task], timeout=_GRACE)
