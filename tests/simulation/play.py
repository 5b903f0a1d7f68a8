"""Play one schedule by its seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.handles import handles
from tests.simulation.kernel import World
from tests.simulation.programs import Scene
from tests.simulation.scenes import budgets, calls, gates
from tests.simulation.servers import server
from tests.simulation.stored_runs import runs, workers
from tests.simulation.team import team

__all__ = ["SCENES", "Played", "play"]


class Played(NamedTuple):
    """How a schedule went.

    Attributes:
        broken: The promise that was broken, or the error that no code caught; None where all went well.
        digest: The same for the same seed: of every point at which the world was reached.
    """

    scene: str
    faults: list[str]
    broken: BaseException | None
    digest: int
    steps: int


SCENES: tuple[type[Scene], ...] = (calls, team, handles, budgets, gates, team, server, workers, runs, budgets)
"""By the last digit of a seed: mostly what costs least, as that gives the most schedules."""


def play(seed: int, use: Callable[[World | None], None], scene: type[Scene] | None = None) -> Played:
    """Play the schedule of a seed; of the scene that it stands for, unless another is named."""
    world = World(seed)
    use(world)
    kind = SCENES[seed % len(SCENES)] if scene is None else scene
    broken: BaseException | None = None
    try:
        kind(world).play()
    except Exception as error:  # noqa: BLE001  whatever it is, the schedule found it
        broken = error
    finally:
        world.running = None
        world.close()
        use(None)
    return Played(kind.__name__, world.reports, broken, world.digest, world.steps)
