"""Each column and each JSON field of the rows of a run, altered one at a time by somebody with the store's file.

The program and the people then act as usual, and nobody approves anything new. Nothing may run that did not run with
the file as it was: nothing a second time, nothing that was not approved, nothing with fewer people.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import Tool, Workflow, clock, config, confirm_first, errors
from sayso.model.request import State
from sayso.runs.runnable import Runnable
from sayso.stores.sqlite import SqliteStore
from tests.gates.doomed import in_child
from tests.support.altering import leaves, replaced
from tests.support.evidence import as_somebody_with_the_file
from tests.support.running import agent_of

RUN, EVE = "order-1", "eve"
_TABLES = ("run", "step", "wait")
_ENDS = ("", "-wal", "-shm")


class World:
    """A store with one run in some state, as a file that is copied for each alteration.

    Attributes:
        path: The file.
        ran: What handlers did.
        fails: What a handler does when it is called: nothing, raise, or end its process.
    """

    def __init__(self, path: Path, make: Callable[[World], Runnable], given: dict[str, Any]) -> None:
        self.path, self.given = path, given
        self.ran = list[str]()
        self.fails: Callable[[], object] = lambda: None
        self.runnable = make(self)

    def tool(self, name: str, **options: Any) -> Tool:
        def act(n: int) -> int:
            self.ran.append(f"{name} {n}")
            if name == "fragile":
                self.fails()
            return n + 1

        return Tool(act, name=name, **options)

    def go_on(self, **options: Any) -> sayso.OutputEvent:
        return self.runnable(**self.given, run_id=RUN, **options).run()

    def go_on_as_a_worker(self) -> None:
        for run_id in filter(None, config.default_store().ready_runs([self.runnable.name])):
            self.runnable(parent_id=run_id).run()

    def begin(self) -> None:
        with sayso.run("elsewhere", on_behalf_of=EVE):
            self.go_on()

    def waiting(self) -> list[str]:
        return [r.id for r in sayso.Review().list(run=RUN).requests if r.state is State.PENDING]

    def approve(self, by: str = "ada") -> None:
        for request_id in self.waiting():
            with suppress(errors.SaysoError):
                sayso.Review(reviewer=by).approve(request_id)

    def die(self) -> None:
        """Go on in a process that ends inside of a handler."""

        def work() -> None:
            self.fails = lambda: os._exit(9)
            self.go_on()

        config.default_store().close()
        assert in_child(work)[0] == 9

    def play(self, sql: str, values: tuple[Any, ...]) -> tuple[Counter[str], str]:
        """Let the program, and the person for whom it acts, act on a copy; return what ran, and any odd error."""
        copy = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else self.path.parent) / f"sayso-{os.getpid()}.db"
        try:
            shutil.copyfile(self.path, copy)
            with as_somebody_with_the_file(copy) as connection:
                connection.execute(sql, values)
            config.configure(store=f"sqlite:///{copy}")
            return self.acted()
        finally:
            config.default_store().close()
            for end in _ENDS:
                Path(f"{copy}{end}").unlink(missing_ok=True)

    def acted(self) -> tuple[Counter[str], str]:
        """Return what runs when the program goes on, and what it raised that no program expects."""
        odd = ""
        self.ran.clear()
        acts: list[Callable[[], object]] = [
            self.go_on_as_a_worker, self.go_on, lambda: self.approve(EVE), lambda: self.runnable(parent_id=RUN).run()
        ]  # fmt: skip
        for act in acts:
            try:
                act()
            except errors.SaysoError:
                pass
            except Exception as error:  # noqa: BLE001  told by the test
                odd = repr(error)
        return Counter(self.ran), odd


def flow(world: World) -> Workflow:
    """Look, pay, ship: the first is free, a person must approve each of the others."""
    steps = Workflow(name="flow").step(world.tool("look"))
    steps = steps.step(world.tool("fragile", requires_approval=True, ambiguous=TimeoutError), n=lambda look: look)
    return steps.step(world.tool("ship", requires_approval=True), n=lambda fragile: fragile)


def approved_whole(world: World) -> Workflow:
    """One approval for all steps."""
    steps = Workflow(name="flow", requires_approval=True).step(world.tool("charge"))
    return steps.step(world.tool("fragile"), n=lambda charge: charge)


def agent(world: World) -> Runnable:
    """An agent of which one tool is free, and one waits."""
    tools = [world.tool("look"), world.tool("pay", requires_approval=True)]
    return agent_of(tools, [("look", {"n": 1}), ("pay", {"n": 2})])


def handler(world: World) -> Tool:
    """A handler with two gated calls inside."""

    @confirm_first
    def wipe(n: int) -> int:
        world.ran.append(f"wipe {n}")
        return n

    def both(n: int) -> int:
        return wipe(n) + wipe(n + 1)

    return Tool(both)


def asking(world: World) -> Tool:
    """A handler that asks before it acts."""

    def act(n: int) -> int:
        if sayso.suspend({"question": "Go on?"}, response_schema={"type": "boolean"}):
            world.ran.append(f"act {n}")
        return n

    return Tool(act)


def two_people(world: World) -> Tool:
    return world.tool("pay", requires_approval=True, quorum=2)


def agreed(world: World) -> None:
    world.begin()
    world.approve()


def half_done(world: World) -> None:
    agreed(world)
    world.go_on()
    world.approve()


def finished(world: World) -> None:
    half_done(world)
    world.go_on()


def dead(world: World) -> None:
    agreed(world)
    world.die()


def unknown(world: World) -> None:
    def late() -> None:
        raise TimeoutError

    agreed(world)
    world.fails = late
    world.go_on()
    world.fails = lambda: None


def said_no(world: World) -> None:
    world.begin()
    [waits] = world.waiting()
    sayso.Review(reviewer="ada").answer(waits, False)


def agreed_until_now(world: World) -> None:
    then = clock.now() - timedelta(hours=1)
    with clock.use(lambda: then):
        world.begin()
        [waits] = world.waiting()
        soon = clock.microseconds(then) // 1000 + 200
        world.go_on(resume={waits: {"approved": True, "approver_id": "ada", "expires_at": soon}})
        sayso.Review(reviewer="bob").approve(waits)


# How the run is made, what happens to it, its input, and what runs where nothing was altered.
N = {"n": 1}
WORLDS: dict[str, tuple[Callable[[World], Runnable], Callable[[World], None], dict[str, Any], list[str]]] = {
    "a tool waits for the second of two": (two_people, agreed, N, []),
    "a tool whose approval has ended": (two_people, agreed_until_now, N, []),
    "a workflow may pay": (flow, agreed, N, ["fragile 2"]),
    "a workflow may ship": (flow, half_done, N, ["ship 3"]),
    "a workflow has finished": (flow, finished, N, []),
    "a workflow died while it paid": (flow, dead, N, []),
    "a workflow that does not know whether it paid": (flow, unknown, N, []),
    "an approved workflow died in its second step": (approved_whole, dead, N, ["fragile 2"]),
    "an agent may pay": (agent, agreed, {"prompt": "go"}, ["pay 2"]),
    "a handler may make its second call": (handler, half_done, N, ["wipe 2"]),
    "a handler was told no": (asking, said_no, N, []),
}


def alterations(path: Path) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Yield each change of one column, or of one field of its JSON, in the rows of runs."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        for table in _TABLES:
            rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table}").fetchall()]  # noqa: S608  our own names
            for row in rows:
                key = " AND ".join(f"{name} IS ?" for name in row)
                for column, value in row.items():
                    others = [other[column] for other in rows if other[column] != value]
                    for what, new in changes(column, value, others):
                        sql = f"UPDATE {table} SET {column} = ? WHERE {key}"  # noqa: S608  our own names
                        name = f"{table}[{row.get('n', '')} {row.get('place', '')}].{column}{what}"
                        yield name, sql, (new, *row.values())


def changes(column: str, value: Any, others: list[Any]) -> Iterator[tuple[str, Any]]:
    plain: list[Any] = [None, 0, *others[:1], *others[-1:], value + 1 if isinstance(value, int) else f"{value}x"]
    if column == "state":
        plain += ["running", "paused", "broken", "ended"]
    for new in dict.fromkeys(plain):
        if new != value:
            yield f" = {new!r:.40}", new
    if column == "body":
        tree = json.loads(str(value))
        for number, (path, _) in enumerate(leaves(tree)):
            if len(path) > 1 and number % 3:
                continue  # there are hundreds, and one column is all that anybody compares
            new = (..., None, 0, "", "other", True)[number % 6]
            yield f".{'.'.join(map(str, path))} = {new!r}", json.dumps(replaced(tree, path, new))


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_more_runs_for_a_run_of_which_anything_was_altered(name: str, tmp_path: Path) -> None:
    make, prepare, given, runs = WORLDS[name]
    world = World(tmp_path / "original.db", make, given)
    config.configure(store=f"sqlite:///{world.path}")
    prepare(world)
    config.default_store().close()
    SqliteStore(world.path).close()
    with closing(sqlite3.connect(world.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert world.play("SELECT 1", ()) == (Counter(runs), "")
    wrong, count = list[str](), 0
    for what, sql, values in alterations(world.path):
        try:
            ran, odd = world.play(sql, values)
        except sqlite3.IntegrityError:
            continue  # the file itself does not take it
        count += 1
        if ran - Counter(runs) or odd:
            wrong.append(f"{what}: ran {sorted(ran.elements())} {odd}")
    assert count > 50
    assert wrong == []
