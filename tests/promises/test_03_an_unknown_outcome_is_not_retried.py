"""3. An outcome that cannot be known is recorded as `unknown`, and nothing is retried automatically."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

import sayso
from sayso.model.request import State
from tests.promises.world import World
from tests.support.acting import forked, running

# One of its processes is in the middle of the call; for another one, whose clock is an hour ahead, its lease was lost.
SLOW = """
import os, sys, time
from contextlib import nullcontext
from datetime import timedelta
import sayso
from sayso import clock

STORE, EFFECTS, MODE, options = *sys.argv[1:4], eval(sys.argv[4])
sayso.configure(store=STORE)
now = clock.now

@sayso.gate(wait="raise", verify=lambda to: os.path.exists(EFFECTS), effect="pay:{to}", **options)
def pay(to: str) -> str:
    if MODE == "slow":
        open(f"{EFFECTS}.in", "w").close()
        while not os.path.exists(f"{EFFECTS}.go"):
            time.sleep(0.001)
    with open(EFFECTS, "a") as ledger:
        ledger.write(f"{to}\\n")
    return "paid"

with sayso.run("order-4721"), clock.use(lambda: now() + timedelta(hours=1)) if MODE == "late" else nullcontext():
    try:
        print(pay("alice"))
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)
    except sayso.errors.SaysoError as error:
        print(type(error).__name__)
"""


def test_3_an_outcome_that_cannot_be_known_is_unknown_and_not_retried(world: World) -> None:
    request_id = world.pays()
    sayso.Review().approve(request_id, by="ada")
    killed = world.start("die")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(world.ran()) == 1
    for _ in range(3):
        assert world.pays() == "OutcomeUnknownError"
    assert sayso.Review().get(request_id).state is State.UNKNOWN
    assert len(world.ran()) == 1
    resolved = sayso.Review().resolve(request_id, happened=True, by="ada", comment="it is on the bank's list")
    assert (resolved.state, world.pays() != request_id, len(world.ran())) == (State.DONE, True, 1)


@pytest.mark.parametrize("options", [{}, {"retries": 1}, {"idempotent": True}])
def test_3_a_call_that_goes_on_in_a_process_of_this_machine_is_neither_verified_nor_retried(
    world: World, options: dict[str, object]
) -> None:
    def begin(mode: str) -> subprocess.Popen[str]:
        return forked(SLOW, world.store.url, str(world.effects), mode, repr(options))

    request_id = running(begin("ask"))
    sayso.Review().approve(request_id, by="ada")
    slow = begin("slow")
    deadline = time.monotonic() + 60
    while not world.effects.with_name("effects.in").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    late = [running(begin("late")) for _ in range(2)]
    meanwhile = sayso.Review().get(request_id).state, world.ran()
    world.effects.with_name("effects.go").touch()
    assert running(slow) == "paid"
    assert (late, *meanwhile) == (["OutcomeUnknownError"] * 2, State.UNKNOWN, [])
    assert world.ran() == ["alice"]
    assert sayso.Review().get(request_id).state is State.DONE
