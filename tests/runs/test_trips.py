"""How often a run goes to its store, and that what it saw there on its way in is no licence to run.

Every trip from the event loop to the store's threads costs more than most verbs do. The one invariant: a look saves a
trip, and the start alone says whether an approval still counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import Tool, effects
from sayso.runs.decisions import DecisionTaker
from sayso.runs.state import StepContext
from sayso.stores.base import Store
from sayso.testing import frozen_clock
from tests.support.running import agent_of, awaited, ids, reason, started, yes


@pytest.fixture
def pay(ran: list[Any]) -> Tool:
    """A tool that waits."""

    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    return Tool(pay, requires_approval=True)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with every trip to the threads of the stores."""
    made, pool = list[object](), effects._pool()

    class Counting:
        def submit(self, *work: Any) -> object:
            made.append(work)
            return pool.submit(*work)

    monkeypatch.setattr(effects, "_pool", Counting)
    return made


@pytest.mark.parametrize("address", ["sqlite:///{}.db", "jsonl:{}.jsonl"])
def test_a_round_trip_of_a_gated_tool_takes_five_trips_to_its_store(
    address: str, tmp_path: Any, pay: Tool, trips: list[object]
) -> None:
    sayso.configure(store=address.format(tmp_path / "sayso"))

    @awaited
    async def round_trip() -> None:
        paused = await pay(amount=1).collect()
        assert len(trips) == 1  # asked, and handed back with it
        output = await pay(parent_id=paused.run_id, resume=yes(paused)).collect()
        assert (output.output, len(trips)) == ("paid", 5)  # taken in hand, decided, started, ended

    round_trip()


def test_a_round_trip_of_an_agent_takes_six_trips_to_its_store(tmp_path: Any, pay: Tool, trips: list[object]) -> None:
    sayso.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    clerk = agent_of([pay], ("pay", {"amount": 1}))

    @awaited
    async def round_trip() -> None:
        paused = await clerk(prompt="go").collect()
        assert len(trips) == 1  # asked, and handed back with it: nothing else was under way
        output = await clerk(parent_id=paused.run_id, resume=yes(paused)).collect()
        assert (reason(output), len(trips)) == (("success", None), 6)  # taken, decided, started, ended, handed back

    round_trip()


def _meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen when a run has looked at what was decided, and has not begun yet."""
    look = DecisionTaker.stop_if_cancelled

    def looked(decider: DecisionTaker, frame: StepContext) -> None:
        look(decider, frame)
        happens()

    monkeypatch.setattr(DecisionTaker, "stop_if_cancelled", looked)


def test_an_approval_that_is_cancelled_after_the_look_does_not_run(
    each_store: Store, monkeypatch: pytest.MonkeyPatch, ran: list[Any], pay: Tool
) -> None:
    paused = started(pay, amount=1)
    _meanwhile(monkeypatch, lambda: sayso.Review().cancel(ids(paused)[0], "changed my mind"))
    output = pay(parent_id=paused.run_id, resume=yes(paused)).run()
    assert (reason(output), output.status.message, ran) == (("cancelled", "cancelled"), "changed my mind", [])


def test_an_approval_that_expires_after_the_look_does_not_run(
    each_store: Store, monkeypatch: pytest.MonkeyPatch, ran: list[Any], pay: Tool
) -> None:
    with frozen_clock() as frozen:
        paused = started(pay, amount=1)
        _meanwhile(monkeypatch, lambda: frozen.tick("25h"))
        output = pay(parent_id=paused.run_id, resume=yes(paused)).run()
    assert (reason(output), ran) == (("cancelled", "approval_required"), [])
    assert ids(output) != ids(paused)
