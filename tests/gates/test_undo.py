"""An approval that can still be undone, and the program that waits for it: in processes of their own.

The invariant: of an undo and a start one wins, and a call never runs whose approval was undone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import sayso
from sayso import config, errors
from sayso.model.request import State
from tests.promises.world import World
from tests.support.acting import running

RACE = """
import os, sys, time
import sayso
from sayso import errors

STORE, PATH, MODE, IDS = sys.argv[1:]
sayso.configure(store=STORE)
store = sayso.Review().store
events = lambda one: [row.event for row in store.journal(request_id=one)]
open(f"{PATH}.ready.{os.getpid()}", "w").close()
while not os.path.exists(f"{PATH}.go"):
    time.sleep(0.001)
told = []
for number, one in enumerate(IDS.split(",")):
    if MODE == "person":
        review = sayso.Review(by="ada", undo_within=f"{number % 9 + 1}ms")
        review.approve(one)
        try:
            review.undo(one)
            told.append("undone")
        except errors.NotUndoneError:
            told.append("late")
        continue
    while True:
        try:
            store.start(one, f"token-{number}")
            told.append("started")
            break
        except errors.StartRefusedError:
            if "undone" in events(one):
                told.append("refused")
                break
print(" ".join(told))
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    path = tmp_path / "sayso.db"
    config.configure(store=f"sqlite:///{path}")
    return World(config.default_store(), path, tmp_path / "effects")


def test_a_program_waits_until_the_approval_cannot_be_undone(world: World) -> None:
    request_id = world.pays()
    review = sayso.Review(by="ada", undo_within="300ms")
    review.approve(request_id)
    assert world.pays() == "paid"
    with pytest.raises(errors.NotUndoneError, match="nothing changed"):
        review.undo(request_id)
    approved, started = (
        row.at for row in world.store.journal(request_id=request_id) if row.event in {"approved", "started"}
    )
    assert started - approved >= 300_000


def test_a_program_that_waits_hears_of_the_undo_and_asks_on(world: World) -> None:
    request_id = world.pays()
    review = sayso.Review(by="ada", undo_within="60s")
    review.approve(request_id)
    program = world.start()
    assert review.undo(request_id).state is State.PENDING
    assert running(program) == request_id
    assert world.ran() == []


@pytest.mark.slow
def test_of_an_undo_and_a_start_at_once_one_wins(world: World) -> None:
    @sayso.gate(wait="raise")
    def pay(amount: int) -> None: ...

    ids: list[str] = []
    for amount in range(60):
        with sayso.run(f"order-{amount}"), pytest.raises(sayso.ConfirmationRequired) as pause:
            pay(amount)
        ids.append(pause.value.confirmation_id)
    modes = ("person", "program")
    person, program = (told.split() for told in world.race(RACE, [(mode, ",".join(ids)) for mode in modes]))
    assert set(zip(person, program, strict=True)) <= {("undone", "refused"), ("late", "started")}
    for request_id, told in zip(ids, person, strict=True):
        events = [row.event for row in world.store.journal(request_id=request_id)]
        assert events == ["asked", "approved", "undone" if told == "undone" else "started"]
