"""A Python function: alone, as the approval code of the README keeps it, and behind `sayso.gate`.

`Stored` is what every subject with sayso shares: the person decides in a store, and a program brings no answer.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import sayso
from benchmarks.contrast.subject import Call, Subject
from sayso import errors
from sayso.model.request import State

WRONG = "much"


class Plain(Subject):
    """The approval code that people write first: it saves the call, and runs what is saved when somebody says yes."""

    def ask(self, call: Call, run: str) -> Any:
        return {"tool": call.tool, "arguments": call.arguments}

    def decide(self, saved: Any, decision: str) -> Any:
        return {"approve": True, "no": "no", "edit": {"amount": WRONG}}[decision]

    def resume(self, saved: Any, answer: Any) -> None:
        if answer:
            edited = answer if isinstance(answer, dict) else {}
            getattr(self.tools, saved["tool"])(**{**saved["arguments"], **edited})

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        await asyncio.to_thread(tool, **call.arguments)


class Stored(Subject):
    """A subject whose person decides by `sayso.Review`; what the program brings as an answer is the framework's own.

    The subclasses say how the framework is run; `native` is the answer that it would take for an approval, or for a no.
    """

    def __init__(self, folder: Path, effect: str | None = None) -> None:
        super().__init__(folder, effect)
        sayso.configure(store=self.url)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'sayso.db'}"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the gate."""
        return {} if self.effect is None else {"effect": self.effect}

    def pending(self, run: str = "") -> Any:
        """Return the request that waits in a run, or None."""
        waiting = sayso.Review(by="ada").list(state=State.PENDING)
        return next((request for request in waiting if run in request.run_id), None)

    def decide(self, saved: Any, decision: str) -> Any:
        request, review = self.pending(saved["run"]), sayso.Review(by="ada")
        if decision == "approve":
            review.approve(request.id)
        else:
            with suppress(errors.SaysoError):
                review.answer(request.id, "no") if decision == "no" else review.approve(
                    request.id, changes={"amount": WRONG}
                )
        return self.native(saved, decision)

    def native(self, saved: Any, decision: str) -> Any:
        """Return the answer that the framework would take from its own approval."""
        return None

    def forge(self, saved: Any) -> Any:
        connection = sqlite3.connect(self.folder / "sayso.db")
        with connection:
            connection.execute("UPDATE request SET state = 'approved'")
        connection.close()
        return self.native(saved, "approve")

    async def cancelled(self, call: Call, run: str) -> None:
        task = asyncio.ensure_future(self.block(call, run))
        await self.cancelled_when(lambda: self.pending() is not None, task)
        with suppress(errors.SaysoError):  # it is not there any more
            for request in sayso.Review(by="ada").list():
                sayso.Review(by="ada").approve(request.id)
        await asyncio.sleep(1)

    async def block(self, call: Call, run: str) -> None:
        """Run the agent with a call that waits in place for its person."""
        raise NotImplementedError


class Gate(Stored):
    """A function behind `sayso.gate`, which raises until somebody has decided."""

    def gated(self, tool: str) -> Any:
        return sayso.gate(wait="raise", name=tool, **self.options)(getattr(self.tools, tool))

    def ask(self, call: Call, run: str) -> Any:
        with suppress(sayso.ConfirmationRequired), sayso.run(run):
            self.gated(call.tool)(**call.arguments)
        return {"run": run, "tool": call.tool, "arguments": call.arguments}

    def resume(self, saved: Any, answer: Any) -> None:
        with sayso.run(saved["run"]):
            self.gated(saved["tool"])(**saved["arguments"])

    async def block(self, call: Call, run: str) -> None:
        @sayso.gate(wait="block", **self.options)
        async def refund(order_id: str, amount: float) -> str:
            return self.tools.refund(order_id, amount)

        with sayso.run(run):
            await refund(**call.arguments)
