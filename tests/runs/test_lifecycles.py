"""Five kinds of runs through every life that a person can give them, over every store.

A tool, an agent, a workflow, an agent as another's tool, an agent in a workflow's step; each is paused, approved,
denied, edited, cancelled, too late, and decided in parts. The code is built anew for each leg, as another process
would. The one invariant: the handlers that ran are exactly those that a person let run.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import ApprovalResolution, Cancel, OutputEvent, Tool, Workflow, load_run
from sayso.runs.runnable import Runnable
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.running import agent_of, awaited, reason

KINDS = ("tool", "agent", "workflow", "nested", "step")
MANY = ("agent", "workflow", "nested", "step")


class Life:
    """A run of one kind; each leg has its own code."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.ran: list[tuple[str, int]] = []
        self.said: OutputEvent = self.leg()

    def built(self) -> Runnable:
        ran = self.ran

        async def pay(n: int) -> str:
            ran.append(("pay", n))
            return f"paid {n}"

        def look(n: int) -> str:
            ran.append(("look", n))
            return f"looked {n}"

        gated, free = Tool(pay, requires_approval=True), Tool(look)
        calls: list[Any] = [("look", {"n": 0}), ("pay", {"n": 1}), ("pay", {"n": 2})]
        agent = agent_of([gated, free], calls)
        match self.kind:
            case "tool":
                return gated
            case "agent":
                return agent
            case "nested":
                return agent_of([agent], [("agent", {"prompt": "go"})], name="outer")
            case "step":
                return Workflow(name="flow").step(agent, prompt="go").step(free, name="last", n=9, depends_on=["agent"])
            case _:
                flow = Workflow(name="flow").step(free, name="zero", n=0)
                return flow.step(gated, name="one", n=1).step(gated, name="two", n=2)

    def leg(self, **decisions: Any) -> OutputEvent:
        """Begin, or go on with what the store knows; decisions are by `pay1` and `pay2`."""
        known = {} if not hasattr(self, "said") else self.waiting()
        chosen = {known[name]: value for name, value in decisions.items()}
        given = {"tool": {"n": 1}, "agent": {"prompt": "go"}, "nested": {"prompt": "go"}}.get(self.kind, {})
        self.said = self.built()(run_id="order-1", resume=chosen, **given).run()
        return self.said

    def waiting(self) -> dict[str, str]:
        pending = self.said.metadata.get("pending_approvals", [])
        return {f"pay{entry['input']['n']}": entry["approval_id"] for entry in pending}

    @property
    def paid(self) -> list[int]:
        return sorted(n for what, n in self.ran if what == "pay")

    @property
    def names(self) -> tuple[str, ...]:
        return ("pay1",) if self.kind == "tool" else ("pay1", "pay2")


@pytest.fixture(params=KINDS)
def life(request: pytest.FixtureRequest, each_store: Store, clock: Clock) -> Life:
    """A run that has paused."""
    life = Life(request.param)
    assert reason(life.said) == ("cancelled", "approval_required")
    assert tuple(sorted(life.waiting())) == life.names
    assert life.paid == []
    return life


def free_ones_ran_once(life: Life) -> None:
    looked = [n for what, n in life.ran if what == "look"]
    assert len(looked) == len(set(looked))
    assert (0 in looked) == (life.kind != "tool")


def test_approved(life: Life) -> None:
    output = life.leg(**dict.fromkeys(life.names, True))
    assert reason(output) == ("success", None)
    assert life.paid == [1, 2][: len(life.names)]
    assert life.ran[-1] == ("look", 9) or life.kind != "step"
    assert output.usage["approvals:approved"] == len(life.names)
    free_ones_ran_once(life)
    assert load_run("order-1").record.state == "ended"
    assert life.leg().output == output.output
    free_ones_ran_once(life)
    assert life.paid == [1, 2][: len(life.names)]


def test_denied(life: Life) -> None:
    output = life.leg(**dict.fromkeys(life.names, ApprovalResolution(approved=False, reason="not today")))
    assert life.paid == []
    assert output.usage["approvals:denied"] == len(life.names)
    if life.kind in {"tool", "workflow"}:
        assert reason(output) == ("cancelled", "approval_denied")
    else:
        assert reason(output) == ("success", None)
        assert "not today" in str(output.output)
    assert load_run("order-1").record.state == "ended"
    assert reason(life.leg()) == reason(output)
    assert life.paid == []


def test_edited(life: Life) -> None:
    said = {"approved": True, "override_input": {"n": 7}}
    output = life.leg(pay1=said, **dict.fromkeys(life.names[1:], True))
    assert reason(output) == ("success", None)
    assert life.paid == sorted([7, 2][: len(life.names)])
    assert "paid 7" in str(output.output)
    free_ones_ran_once(life)


def test_cancelled(life: Life) -> None:
    output = life.leg(pay1=Cancel("enough"), **dict.fromkeys(life.names[1:], True))
    assert (reason(output), output.status.message) == (("cancelled", "cancelled"), "enough")
    assert life.paid == []
    assert ("look", 9) not in life.ran
    assert reason(life.leg()) == ("cancelled", "cancelled")
    assert life.paid == []


def test_too_late(life: Life, clock: Clock) -> None:
    before = life.waiting()
    clock.tick(hours=24)
    output = life.leg(**dict.fromkeys(life.names, True))
    assert reason(output) == ("cancelled", "approval_required")
    assert life.paid == []
    assert output.usage == {"approvals:expired": len(before), "approvals:required": len(before)}
    assert set(life.waiting().values()).isdisjoint(before.values())
    output = life.leg(**dict.fromkeys(life.names, True))
    assert reason(output) == ("success", None)
    assert life.paid == [1, 2][: len(life.names)]
    free_ones_ran_once(life)


@pytest.mark.parametrize("life", MANY, indirect=True)
@pytest.mark.parametrize("first", ["pay1", "pay2"])
def test_decided_in_parts(life: Life, first: str) -> None:
    second = "pay2" if first == "pay1" else "pay1"
    before = life.waiting()
    output = life.leg(**{first: True})
    assert reason(output) == ("cancelled", "approval_required")
    assert life.waiting() == {second: before[second]}
    assert life.paid == [int(first[-1])]
    assert output.usage["approvals:required"] == 1
    sayso.Review(reviewer="ada").approve(before[second])
    assert reason(life.leg()) == ("success", None)
    assert life.paid == [1, 2]
    free_ones_ran_once(life)


def test_paused_again_and_again(life: Life) -> None:
    before = life.waiting()
    for _ in range(3):
        assert reason(life.leg()) == ("cancelled", "approval_required")
        assert life.waiting() == before
    assert life.paid == []
    free_ones_ran_once(life)
    assert len(sayso.Review().list().requests) == len(before)


# -- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@awaited
async def test_of_twenty_tasks_that_go_on_one_runs_the_handler(each_store: Store, kind: str) -> None:
    life = await asyncio.to_thread(Life, kind)
    decisions = dict.fromkeys(life.waiting().values(), True)
    runs = [life.built()(parent_id="order-1", resume=decisions).collect() for _ in range(20)]
    outputs = await asyncio.gather(*runs)
    assert life.paid == [1, 2][: len(life.names)]
    assert sorted(reason(output)[1] or "" for output in outputs) == ["", *["approval_already_claimed"] * 19]
    assert sum(output.usage.get("approvals:approved", 0) for output in outputs) == len(life.names)


RACER = """
import asyncio, os, sys
import jsonschema_rs, pydantic, sayso, sayso.stores.jsonl, sayso.stores.sqlite  # once, before the forks

sayso.configure(store=sys.argv[1])

async def pay(n: int) -> str:
    ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, b"paid\\n")
    os.close(ledger)
    await asyncio.sleep(0.05)
    return "paid"

tool = sayso.Tool(pay, requires_approval=True)
racing, begin = os.pipe()
if len(sys.argv) == 3:
    output = tool(n=1).run()
    print(output.run_id, output.metadata["pending_approvals"][0]["approval_id"])
elif any(os.fork() == 0 for _ in range(20)):
    os.close(begin)
    os.read(racing, 1)  # until the parent closes its end, for all at once
    output = tool(parent_id=sys.argv[3], approval_decisions={sys.argv[4]: True}).run()
    os.write(1, f"{output.status.code} {output.status.reason}\\n".encode())
else:
    os.close(begin)
    sys.exit(sum(os.wait()[1] for _ in range(20)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_of_twenty_processes_that_go_on_one_runs_the_handler(tmp_path: Path, kind: str) -> None:
    program, ledger = tmp_path / "racer.py", tmp_path / "ledger"
    program.write_text(RACER, encoding="utf-8")
    address = f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else f"jsonl:{tmp_path / 'runs.jsonl'}"
    command = [sys.executable, str(program), address, str(ledger)]
    paused = subprocess.run(command, capture_output=True, text=True, check=True)
    racers = subprocess.run([*command, *paused.stdout.split()], capture_output=True, text=True, check=True, timeout=60)
    said = sorted(racers.stdout.splitlines())
    assert said == [*["cancelled approval_already_claimed"] * 19, "success None"]
    assert ledger.read_text(encoding="ascii") == "paid\n"
