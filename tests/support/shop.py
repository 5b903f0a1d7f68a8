"""A program for workers to load, whose agents wait for a person; each action of a handler adds a line to a file.

usage: shop.py HOW_MANY starts that many runs and ends. `TAKES` is the duration of a refund in seconds; `STUCK` makes it
block the event loop meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from sayso import Agent, Tool
from sayso.testing import ScriptedModel

TAKES = float(os.environ.get("TAKES", "0"))


def note(text: str) -> None:
    ledger = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{text}\n".encode())
    os.close(ledger)


def look(order: int) -> str:
    note(f"look {order}")
    return "paid in full"


def refund(order: int) -> str:
    note(f"refund {order}")
    time.sleep(TAKES)
    return "refunded"


async def refund_in_the_loop(order: int) -> str:
    return refund(order)


handler = refund_in_the_loop if "STUCK" in os.environ else refund


def calls(name: str) -> object:
    return lambda messages: {"calls": [{"id": name, "name": name, "arguments": {"order": int(messages[0]["content"])}}]}


clerk = Agent(
    name="clerk",
    model=ScriptedModel([calls("look"), calls("refund"), "done"]),
    tools=[look, Tool(handler, name="refund", requires_approval=True)],
)
number = 7


def make() -> Agent:
    return clerk


def make_nothing() -> None:
    return None


async def begin(how_many: int) -> None:
    for n in range(how_many):
        assert (await clerk(prompt=str(n)).collect()).status.reason == "approval_required"


if __name__ == "__main__":
    Path("effects").touch()
    asyncio.run(begin(int(sys.argv[1])))
