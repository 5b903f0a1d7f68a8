"""A program that is killed, started by `test_deaths`; prints one JSON line for each time it died.

    doomed.py sweep FOLDER TIMES POINT…    for each point: kill a process there, start it again, and look
    doomed.py storm FOLDER TIMES           kill a process at random moments while it runs call after call
    doomed.py hold FOLDER                  run one call that waits inside for a line on stdin

The program asks, a person (played here) approves, the call appends a line to a file, and the outcome is recorded.
Where it dies is chosen from outside the package: the connection to SQLite, the verbs and the call are wrapped here,
and nothing in the package knows of it. Each process is forked, opens the store itself, and dies by SIGKILL.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import sayso
from sayso import audit, effects, errors
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite_file import Connection

STATEMENTS = {
    "schema": ("BEGIN IMMEDIATE", "CREATE TABLE journal", "COMMIT"),
    # The first call with a schema writes that as well, in one transaction; what follows is one statement a verb.
    "ask": ("BEGIN IMMEDIATE", "INSERT OR IGNORE INTO schema_text", "INSERT INTO request", "COMMIT"),
    "decide": ("UPDATE request",),
    "start": ("UPDATE request",),
    "call": (),
    "finish": ("UPDATE request",),
}


def _points() -> list[str]:
    points: list[str] = []
    for verb, statements in STATEMENTS.items():
        # Between two statements nothing is written, so that "before" is needed for the first one alone.
        points += [f"{verb}: before {each}" for each in statements[:1] or ("the effect",)]
        points += [f"{verb}: after {each}" for each in statements or ("the effect",)]
    return points


POINTS = _points()
_doing = ["schema"]
_deadly: list[str] = []


def reach(point: str) -> None:
    """Die here, if this is the point."""
    if point in _deadly:
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Connection):
    """A connection that says which statement it is at."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        statement = " ".join(sql.split())
        verb = _doing[-1]
        known = next((each for each in STATEMENTS.get(verb, ()) if statement.startswith(each)), None)
        reach(f"{verb}: before {known}")
        cursor = super().execute(sql, parameters)
        reach(f"{verb}: after {known}")
        return cursor


def wrapped(verb: str) -> Callable[..., Any]:
    """Return a verb of the store that says that it is at work, once the schema stands."""
    original = getattr(Store, verb)

    def doing(self: Store, *args: Any, **options: Any) -> Any:
        self.count(Filter())  # opens the store
        _doing.append(verb)
        try:
            return original(self, *args, **options)
        finally:
            _doing.pop()

    return doing


def install() -> None:
    """Put the points in their places, in this process."""
    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **options: connect(*args, **(options | {"factory": Deadly}))
    for verb in ("ask", "decide", "start", "finish"):
        setattr(Store, verb, wrapped(verb))
    run = effects.UserCall.__call__

    def call(self: effects.UserCall) -> effects.Attempt:
        reach("call: before the effect")
        attempt = run(self)
        reach("call: after the effect")
        return attempt

    effects.UserCall.__call__ = call


# -- the program ---------------------------------------------------------------------------------------------------


def gated(folder: Path, store: Store) -> Callable[[int], str]:
    """Return the call that must not happen twice."""

    @sayso.gate(wait="raise", store=store)
    def pay(amount: int) -> str:
        file = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, b"%d\n" % amount)
        os.close(file)
        return "paid"

    return pay


def live(folder: Path, store: Store, n: int = 1) -> str:
    """Do what the program has to do, from wherever it was left; return how it went."""
    pay = gated(folder, store)
    if store.count(Filter(states=frozenset({State.DONE}), run_id=f"order-{n}")):
        return "was done"
    with sayso.run(f"order-{n}"):
        try:
            return pay(n)
        except sayso.ConfirmationRequired as held:
            sayso.Review(store).approve(held.confirmation_id, by="ada")
        except errors.OutcomeUnknownError:
            return "unknown"
        return pay(n)


def effects_in(folder: Path) -> list[str]:
    """Return what happened, as the kernel kept it."""
    path = folder / "effects"
    return path.read_text(encoding="ascii").split() if path.exists() else []


def states(store: Store) -> list[str]:
    """Return the states as they stand, nothing settled."""
    return [str(request.state) for request in store.list(Filter(), limit=1000).requests]


def in_child(work: Callable[[], object]) -> tuple[int, Any]:
    """Run work in a process of its own; return its exit code (negative: the signal) and what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps(work()).encode())
            code = 0
        except BaseException as error:  # noqa: BLE001  # the parent reads it
            os.write(writing, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123  # a pipe has no path
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(said) if said else None


def load(folder: Path) -> None:
    """Load what is loaded late, once and before the forks; no store's file is opened here."""
    live(folder, MemoryStore(), -1)


# -- sweep ---------------------------------------------------------------------------------------------------------


def die(folder: Path, point: str) -> str:
    """Live until the point."""
    install()
    _deadly.append(point)
    return live(folder, SqliteStore(folder / "requests.db"))


def come_back(folder: Path) -> dict[str, Any]:
    """Start again, and say what was found and how it went on."""
    store = SqliteStore(folder / "requests.db")
    found = states(store)
    went = live(folder, store)
    once = effects_in(folder)
    again = live(folder, store) if went == "unknown" else went
    told = {"found": found, "went": went, "again": again, "effects": once, "states": states(store)}
    if went == "unknown":
        review = sayso.Review(store)
        request = review.list(state="unknown").requests[0]
        assert request.execution is not None
        review.resolve(request.id, happened=bool(once), start=request.execution.starts, by="ada")
        told["resolved"] = states(store)
    broken = audit.verify(store).broken
    integrity = sqlite3.connect(folder / "requests.db").execute("PRAGMA integrity_check").fetchone()[0]
    return {**told, "broken": [str(each) for each in broken], "integrity": integrity}


def sweep(folder: Path, times: int, points: list[str]) -> None:
    """Kill at each point as often, and print what came of it."""
    load(folder)
    for point in points:
        for n in range(times):
            place = folder / f"{POINTS.index(point)}-{n}"
            place.mkdir()
            code, said = in_child(lambda place=place, point=point: die(place, point))
            killed = effects_in(place)
            back, told = in_child(lambda place=place: come_back(place))
            line = {"point": point, "code": code, "said": said, "killed": killed, "back": back, "told": told}
            print(json.dumps(line), flush=True)


# -- storm ---------------------------------------------------------------------------------------------------------


def loud(verb: str, line: int) -> Callable[..., Any]:
    """Return a verb of the store that writes a dot when it is done."""
    original = getattr(Store, verb)

    def doing(self: Store, *args: Any, **options: Any) -> Any:
        done = original(self, *args, **options)
        os.write(line, b".")
        return done

    return doing


def stays(line: int) -> Callable[..., Any]:
    """Return a call that says when it had its effect, and does not end."""
    run = effects.UserCall.__call__

    def call(self: effects.UserCall) -> NoReturn:
        run(self)
        os.write(line, b"!")
        while True:
            signal.pause()

    return call


def storm(folder: Path, times: int) -> None:
    """Kill a process at random moments while it runs call after call; print what is left of them.

    One in ten is killed inside of a call, so that some surely are.
    """
    kills = 0
    load(folder)
    for number in range(times):
        is_inside = number % 10 == 9
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            if is_inside:
                effects.UserCall.__call__ = stays(writing)
            store = SqliteStore(folder / "requests.db")
            first = max(0, store.count(Filter()) - 1)
            for verb in ("ask", "decide", "start", "finish"):
                setattr(Store, verb, loud(verb, writing))
            os.write(writing, b".")
            for n in range(first, 1_000_000):
                live(folder, store, n)
        os.close(writing)
        # So much work first, and not so much time, of which a busy machine may give the child none.
        for _ in range(0 if is_inside else random.randint(1, 12)):
            os.read(reading, 1)
        while is_inside and os.read(reading, 1) not in {b"!", b""}:
            pass
        time.sleep(random.uniform(0, 0.003))
        os.kill(child, signal.SIGKILL)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        kills += os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    def look() -> dict[str, Any]:
        store = SqliteStore(folder / "requests.db")
        went = [live(folder, store, n) for n in range(store.count(Filter()))]
        return {"went": went, "broken": len(audit.verify(store).broken)}

    code, told = in_child(look)
    print(json.dumps({"kills": kills, "code": code, "told": told, "effects": effects_in(folder)}))


# -- hold ----------------------------------------------------------------------------------------------------------


def hold(folder: Path) -> None:
    """Be inside the call until somebody says a word."""
    store = SqliteStore(folder / "requests.db")

    @sayso.gate(wait="raise", store=store)
    def pay(amount: int) -> str:
        print("inside", flush=True)
        sys.stdin.readline()
        return f"paid {amount}"

    with sayso.run("order-1"):
        try:
            pay(1)
        except sayso.ConfirmationRequired as held:
            sayso.Review(store).approve(held.confirmation_id, by="ada")
        print(pay(1), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sweep", where, times, *points]:
            sweep(Path(where), int(times), points)
        case ["storm", where, times]:
            storm(Path(where), int(times))
        case ["hold", where]:
            hold(Path(where))
        case _:
            raise SystemExit(__doc__)
