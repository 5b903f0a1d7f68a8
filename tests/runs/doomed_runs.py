"""Runs that are killed, started by `test_deaths`; prints one JSON line for each death.

    doomed_runs.py FOLDER STORE KIND…      for each point and each leg of a run of this kind: die there, and go on

Every leg of a run is a process of its own, forked, that opens the store, says yes to what waits, goes on, and ends.
Where one dies is chosen from outside the package: the verbs of the store and the calls are wrapped here. Effects are
lines in a file that only handlers append to. Whoever goes on after a death first looks at what the store holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import sayso
from sayso import Agent, OutputEvent, Tool, Workflow, effects
from sayso.runs.runnable import Runnable
from sayso.stores.base import Filter, Store
from sayso.testing import ScriptedModel
from tests.gates.doomed import in_child

VERBS = ("ask", "decide", "take_run", "start", "save_run", "finish", "leave_run")
POINTS = [f"{when} {what}" for what in (*VERBS, "the call") for when in ("before", "after")]
KINDS = ("tool", "agent", "workflow", "nested", "step")
_deadly: list[str] = []


def reach(point: str) -> None:
    """Die here, if this is the point."""
    if point in _deadly:
        os.kill(os.getpid(), signal.SIGKILL)


def install() -> None:
    """Put the points in their places, in this process."""
    for verb in VERBS:
        setattr(Store, verb, _wrapped(verb, getattr(Store, verb)))
    arun = effects.UserCall.arun

    async def call(self: effects.UserCall) -> effects.Attempt:
        reach("before the call")
        attempt = await arun(self)
        reach("after the call")
        return attempt

    effects.UserCall.arun = call


def _wrapped(verb: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def doing(self: Store, *args: Any, **options: Any) -> Any:
        reach(f"before {verb}")
        result = original(self, *args, **options)
        reach(f"after {verb}")
        return result

    return doing


# -- the runs ------------------------------------------------------------------------------------------------------


def built(kind: str) -> Runnable:
    """Return a run's code; the effects of its handlers are told apart by their texts."""

    def noted(text: str) -> str:
        # From the environment: a path in the closure would be a part of the call, and here folders are copied.
        file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{text}\n".encode())
        os.close(file)
        return text

    async def pay(n: int) -> str:
        return noted(f"pay {n}")

    def look(n: int) -> str:
        return noted(f"look {n}")

    gated, free = Tool(pay, requires_approval=True), Tool(look)

    def agent(name: str, *turns: Any, tools: list[Any], **options: Any) -> Agent:
        return Agent(name=name, model=ScriptedModel([*turns, "done"]), tools=tools, **options)

    match kind:
        case "tool":
            return gated
        case "agent":
            first: Any = [("look", {"n": 1}), ("pay", {"n": 2}), ("pay", {"n": 3})]
            return agent("agent", first, [("pay", {"n": 4})], tools=[gated, free])
        case "workflow":
            return (
                Workflow(name="workflow")
                .step(free, name="a", n=1)
                .step(gated, name="b", n=2)
                .step(gated, name="c", n=3, depends_on=["a", "b"])
                .step(free, name="d", n=4, depends_on=["b"])
            )
        case "nested":
            below = agent("below", [("look", {"n": 1}), ("pay", {"n": 2})], tools=[gated, free], requires_approval=True)
            return agent("nested", [("below", {"prompt": "go"}), ("pay", {"n": 3})], tools=[below, gated])
        case _:
            inside = agent("inside", [("pay", {"n": 2})], tools=[gated])
            flow = Workflow(name="step").step(free, name="a", n=1).step(inside, prompt="go", depends_on=["a"])
            return flow.step(free, name="z", n=3, depends_on=["inside"])


def store_of(folder: Path, store: str) -> Store:
    """Open the store anew."""
    address = f"sqlite:///{folder / 'runs.db'}" if store == "sqlite" else f"jsonl:{folder / 'runs.jsonl'}"
    sayso.configure(store=address)
    return sayso.Review().store


def leg(folder: Path, store: str, kind: str, point: str | None = None) -> dict[str, Any]:
    """Begin the run or go on with it, with a yes to all that waits; return what it says."""
    where = store_of(folder, store)
    if point is not None:
        install()
        _deadly.append(point)
    waiting = where.list(Filter(states=frozenset({sayso.model.request.State.PENDING}))).requests
    given = {"n": 1} if kind == "tool" else {} if kind in {"workflow", "step"} else {"prompt": "go"}
    os.environ["EFFECTS"] = str(folder / "effects")
    run = built(kind)(run_id="order-1", resume={request.id: True for request in waiting}, **given)
    output: OutputEvent = asyncio.run(run.collect())
    return {"code": output.status.code, "reason": output.status.reason}


def look_at(folder: Path, store: str) -> dict[str, Any]:
    """Say what stands in the store, nothing settled: what is under way, and which handlers' ends are written."""
    where = store_of(folder, store)
    running = [r.call.arguments for r in where.list(Filter(), limit=100).requests if r.state == "running"]
    try:
        steps = where.get_run("order-1").steps
    except sayso.errors.RunNotFoundError:
        steps = []
    bodies = [json.loads(step.body) for step in steps]
    ended = [
        body["value"]["form"] for body in bodies if "status" in body and body["type"] == "Tool" and "value" in body
    ]
    return {"running": [a["n"] for a in running if "n" in a], "ended": [json.loads(form)["value"] for form in ended]}


def resolve(folder: Path, store: str) -> list[str]:
    """Say of each call whose outcome is unknown what really happened; return the states of all."""
    store_of(folder, store)
    review = sayso.Review(reviewer="ada")
    for request in review.list(state="unknown").requests:
        if request.call.name == "pay":
            assert request.execution is not None
            happened = f"pay {request.call.arguments['n']}" in effects_in(folder)
            review.resolve(request.id, happened=happened, start=request.execution.starts)
    return [str(request.state) for request in review.list(limit=100).requests]


def effects_in(folder: Path) -> list[str]:
    """Return what happened, as the kernel kept it."""
    path = folder / "effects"
    return path.read_text(encoding="ascii").splitlines() if path.exists() else []


# -- the sweep -----------------------------------------------------------------------------------------------------


def die(folder: Path, store: str, kind: str, point: str) -> dict[str, Any]:
    """Take the next leg of a run, dying at the point; then go on to the end."""
    code, said = in_child(lambda: leg(folder, store, kind, point))
    if code == 0:
        return {"died": False}
    _, found = in_child(lambda: look_at(folder, store))
    killed, told, states = effects_in(folder), [], []
    for _ in range(12):
        _, said = in_child(lambda: leg(folder, store, kind))
        told.append(said)
        if isinstance(said, str) or said["reason"] not in {"approval_required", "outcome_unknown"}:
            break
        _, now = in_child(lambda: resolve(folder, store))
        states += now if said["reason"] == "outcome_unknown" else []
    return {
        "died": True, "code": code, "found": found, "killed": killed, "told": told, "effects": effects_in(folder),
        "resolved": states,
    }  # fmt: skip


def legs(folder: Path, store: str, kind: str) -> list[Path]:
    """Take a run to its end; return copies of its folder from before each leg."""
    place, copies = folder / f"{store}-{kind}", list[Path]()
    place.mkdir()
    reason: str | None = "approval_required"
    while reason == "approval_required":
        copies.append(shutil.copytree(place, folder / f"{store}-{kind}-{len(copies)}"))
        _, said = in_child(lambda: leg(place, store, kind))
        reason = said["reason"]
    return copies


def sweep(folder: Path, store: str, kind: str) -> None:
    """Die at each point of each leg, once; over a file of lines at every other one, in turn."""
    for number, before in enumerate(legs(folder, store, kind)):
        for point in POINTS if store == "sqlite" else POINTS[(number + KINDS.index(kind)) % 2 :: 2]:
            death = die(shutil.copytree(before, before.with_name(f"{before.name}-{point}")), store, kind, point)
            if death["died"]:
                print(json.dumps({"kind": kind, "store": store, "point": point, "leg": number, **death}), flush=True)


if __name__ == "__main__":
    for late in ("runs.agent", "stores.sqlite", "stores.jsonl", "model.json_edits", "model.schema_of_types"):
        import_module(f"sayso.{late}")  # once, before the forks

    for each in sys.argv[3:]:
        sweep(Path(sys.argv[1]), sys.argv[2], each)
