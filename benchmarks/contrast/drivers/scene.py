"""The scenes of the adapters' own tests, with tools whose effects are counted in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.contrast.subject import Call, Tools
from tests.integrations.adapters.suite import ModelCall, Scene

__all__ = ["Counted", "scene_of"]


class Counted(Scene):
    """A scene whose model makes one call, of a tool of `own`."""

    own: Sequence[Callable[..., str]] = ()

    @property
    def tools(self) -> list[Callable[..., str]]:
        return list(self.own)


def scene_of(tools: Tools, call: Call, run: str, mode: str = "pause", **options: Any) -> Counted:
    """Return the scene of a call; the model's id of the call is another in each run, as models make them."""
    made = [[ModelCall(f"{run}-c1", call.tool, call.arguments)]]
    scene = Counted(made, mode, thread=run, options=options, held=("refund", "payout"))
    scene.own = [tools.refund, tools.payout]
    return scene
