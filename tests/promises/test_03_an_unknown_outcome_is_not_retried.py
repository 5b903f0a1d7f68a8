"""3. An outcome that cannot be known is recorded as `unknown`, and nothing is retried automatically."""

from __future__ import annotations

import signal

import sayso
from sayso.model.request import State
from tests.promises.world import World


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
