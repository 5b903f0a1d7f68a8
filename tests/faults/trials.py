"""The faults: each trial lets one happen to a fleet under load, so many times, and returns what came of it.

The kill sweeps are those of the tests of deaths (`tests/gates/doomed.py`, `tests/stores/doomed_postgres.py`,
`tests/runs/doomed_runs.py`), counted here. A trial that cannot happen on this machine raises `LeftOutError`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import sayso
from sayso import config
from sayso.model.request import State
from sayso.model.run import RunState
from sayso.stores.base import Filter
from tests.faults import program
from tests.faults.fleet import PATIENCE, ROOT, Counts, Fleet, Kind, durable_postgres, until
from tests.gates import doomed
from tests.runs import doomed_runs
from tests.stores import doomed_postgres
from tests.support.postgres import Server

__all__ = ["TRIALS", "LeftOutError"]


class LeftOutError(Exception):
    """This machine cannot be made to have that fault."""


@cache
def postgres() -> Server:
    """Return the server of all trials but those that stop it."""
    return durable_postgres()


@contextmanager
def fleet(kind: Kind, **options: Any) -> Iterator[Fleet]:
    with tempfile.TemporaryDirectory(prefix="sayso-faults-", ignore_cleanup_errors=True) as folder:
        if kind == "postgres":
            options.setdefault("postgres", postgres())
        one = Fleet(kind, Path(folder), **options)
        try:
            yield one
        finally:
            one.close()


# -- SIGKILL at each failpoint -------------------------------------------------------------------------------------


def _lines(module: Any, *words: str) -> list[Any]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(
        [sys.executable, module.__file__, *words], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def program_on_sqlite(times: int) -> Counts:
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        for death in _lines(doomed, "sweep", folder, str(times), *doomed.POINTS):
            told, effects = death["told"], len(death["told"]["effects"])
            is_unknown = told["states"] == ["unknown"]
            counts += Counts(
                trials=1, calls=1, effects=min(1, effects), doubled=int(effects > 1),
                lost=len(told["broken"]) + int(told["states"] not in (["done"], ["unknown"])),
                unknown=int(is_unknown), told=int(is_unknown and told["went"] == "unknown"),
            )  # fmt: skip
    return counts


def program_on_postgres(times: int) -> Counts:
    counts = Counts()
    for point in doomed_postgres.POINTS * times:
        url = postgres().new()
        with tempfile.TemporaryDirectory() as folder:
            effects = Path(folder) / "effects"
            command = [sys.executable, doomed_postgres.__file__, url, str(effects)]
            died = subprocess.run([*command, point], capture_output=True, check=False)
            again = subprocess.run([*command, "none"], capture_output=True, check=False, text=True)
            happened = effects.read_text().split() if effects.exists() else []
            with closing(config._make(url)) as store:
                states = [one.state for one in store.list(Filter()).requests]
            is_unknown = states == [State.UNKNOWN]
            assert died.returncode == -signal.SIGKILL, died.stderr
            counts += Counts(
                trials=1, calls=1, effects=len(set(happened)), doubled=int(len(happened) > 1),
                lost=int(states not in ([State.DONE], [State.UNKNOWN])), unknown=int(is_unknown),
                told=int(is_unknown and "unknown" in again.stderr), silent=0,
            )  # fmt: skip
        postgres().drop(url)
    return counts


def program_on_server(times: int) -> Counts:
    """Kill a program whose store is a server, at each point; it is started again at once."""
    with fleet("server") as here:
        recovery: list[float] = []
        for number, point in enumerate(program.PROGRAM_POINTS * times):
            name = f"p{number}"
            assert here.load(name, "--die", point).wait(PATIENCE) == -signal.SIGKILL, point
            here.processes.pop(name)
            recovery.append(_goes_on(here, name, lambda name=name: here.load(name)))
            here.kill(name)  # what it was at meanwhile is settled at the end
        return here.counted(len(recovery), recovery)


def _goes_on(here: Fleet, name: str, start: Callable[[], Any]) -> float:
    """Start what died, and return after how long a program of this name got on."""
    before = time.monotonic()
    start()
    kinds = ("done", "unknown", "unrecorded")
    lines = until(
        lambda: [at for kind in kinds for at, who, _ in here.lines(kind) if who == name and at > before], "it goes on"
    )
    return min(lines) - before


def server_at_points(times: int) -> Counts:
    """Kill the server at each point of its verbs, also between the commit and the answer, under load."""
    with fleet("server") as here:
        here.kill("server-0")
        here.load("a", "--threads", "4")
        recovery: list[float] = []
        for point in program.SERVER_POINTS * times:
            here.serve(0, "--die", point).wait(PATIENCE)
            before = time.monotonic()
            server = here.serve(0)
            recovery.append(here.recovered(before))
            server.kill()
            server.wait()
        here.serve(0)
        return here.counted(len(recovery), recovery)


def runs_on_files(times: int) -> Counts:
    """Kill agents and workflows at each verb of each leg, over SQLite and JSON lines."""
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        for store in ("sqlite", "jsonl"):
            for death in _lines(doomed_runs, folder, store, *doomed_runs.KINDS[: 5 if times > 1 else 1]):
                pays = Counter(one for one in death["effects"] if one.startswith("pay"))
                running, reasons = death["found"]["running"], [said["reason"] for said in death["told"]]
                counts += Counts(
                    trials=1, calls=len(pays), effects=len(pays), doubled=sum(count > 1 for count in pays.values()),
                    lost=int(death["told"][-1]["code"] not in {"success", "error"}), unknown=bool(running),
                    told=bool(running) and "outcome_unknown" in reasons,
                )  # fmt: skip
    return counts


def worker_at_points(kind: Kind, times: int, *far: str) -> Counts:
    """Kill a worker at each verb; another one goes on with its run, at once or, from afar, when the lease is over."""
    with fleet(kind, lease="2s" if far else "") as here:
        store = config.open_store(here.address) if kind != "server" else _client(here)
        tool, recovery = program.paying(here.folder, store), list[float]()
        for number, point in enumerate(program.WORKER_POINTS * times):
            run_id = f"w-{number}"
            asyncio.run(tool(order=run_id, run_id=run_id).collect())
            program.append(here.folder / "log-w", f"{time.monotonic():.4f} begun {number} ")
            with closing(here.store()) as behind:
                until(lambda behind=behind: sayso.Review(behind).list(state="approved").requests, "an approval")
            code = here.work("--die", point, *far).wait(PATIENCE)
            assert code == -signal.SIGKILL, (point, code, (here.folder / "output").read_text()[-2000:])
            before = time.monotonic()
            with closing(here.store()) as behind:
                while True:
                    here.work().wait(PATIENCE)
                    if behind.get_run(run_id).run.state is not RunState.RUNNING:
                        break
                    assert time.monotonic() < before + PATIENCE, f"{point}: nobody took over"
            recovery.append(time.monotonic() - before)
            here.processes.pop("worker")
        here.settle = lambda: None  # type: ignore[method-assign]  # there is no program, and nothing under way
        return here.counted(len(recovery), recovery)


def _client(here: Fleet) -> Any:
    from sayso.stores.http import HttpStore

    return HttpStore(here.address, here.token)


# -- under load ----------------------------------------------------------------------------------------------------


def programs_under_load(kind: Kind, times: int) -> Counts:
    """Kill one of two programs at a random moment, and start it again."""
    with fleet(kind) as here:
        for name in ("a", "b"):
            here.load(name, "--threads", "4")
        recovery: list[float] = []
        for number in range(times):
            here.at_work()
            name = "ab"[number % 2]
            here.kill(name)
            recovery.append(_goes_on(here, name, lambda name=name: here.load(name, "--threads", "4")))
        return here.counted(times, recovery)


def postgres_stopped(times: int) -> Counts:
    """Stop Postgres as a crash does, under load, and start it again."""
    server = durable_postgres()
    try:
        with fleet("postgres", postgres=server) as here:
            for name in ("a", "b"):
                here.load(name, "--threads", "4")
            recovery: list[float] = []
            for _ in range(times):
                here.at_work(5)
                server.stop(immediately=True)
                server.start()
                recovery.append(here.recovered(time.monotonic()))
            return here.counted(times, recovery)
    finally:
        server.end()


def one_of_two_servers(times: int) -> Counts:
    """Kill one of two servers over one Postgres, in turns, under load; then start it again."""
    with fleet("server", postgres=postgres(), servers=2) as here:
        for name in ("a", "b"):
            here.load(name, "--threads", "4")
        assert here.network is not None
        recovery: list[float] = []
        for number in range(times):
            # Half of the connections go to each: to the one that stands first while they are made.
            here.network.targets = here.ports[:: 1 if number % 2 else -1]
            here.at_work(5)
            here.kill(f"server-{number % 2}")
            recovery.append(here.recovered(time.monotonic()))
            here.serve(number % 2)
        return here.counted(times, recovery)


def disk_full(kind: Kind, times: int) -> Counts:
    """Fill the disk under load until nothing is recorded any more, and make room again."""
    with tempfile.TemporaryDirectory(prefix="sayso-disk-") as place:
        size = "size=160m" if kind == "postgres" else "size=16m"
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], capture_output=True, check=False)
        if mount.returncode != 0:
            raise LeftOutError("it may not mount a small disk of its own")
        server = None
        try:
            Path(place).chmod(0o777)
            if kind == "postgres":
                server = durable_postgres(Path(place))
            with fleet(kind, **({"postgres": server} if server else {"place": Path(place)})) as here:
                return _filled(here, Path(place) / "ballast", times, server)
        finally:
            if server is not None:
                server.end()
            subprocess.run(["umount", "-l", place], check=False)


def _filled(here: Fleet, ballast: Path, times: int, server: Server | None) -> Counts:
    here.load("a", "--threads", "4")
    recovery: list[float] = []
    for _ in range(times):
        here.at_work(5)
        before, end = time.monotonic(), time.monotonic() + PATIENCE
        with ballast.open("wb", buffering=0) as file:
            while not _is_stuck(here, before):
                assert time.monotonic() < end, "the disk did not become full"
                _fill(file)
        ballast.unlink()
        if server is not None and not server._answers():  # it ends itself where its log cannot be written
            server.stop(immediately=True)
            server.start()
        recovery.append(here.recovered(time.monotonic()))
    return here.counted(times, recovery)


def _is_stuck(here: Fleet, since: float) -> bool:
    """Whether a program heard of a failure, or waits for more than 2 s: a client is patient with its server."""
    is_told = any(at > since for kind in ("fault", "unrecorded") for at, *_ in here.lines(kind))
    return is_told or time.monotonic() - max(since, here.lines("done")[-1][0]) > 2


def _fill(file: Any) -> None:
    for size in (65536, 512):  # first in great steps, then to the last byte
        try:
            file.write(b"\0" * size)
        except OSError:
            continue
        return
    time.sleep(0.02)


def clock_off(kind: Kind, times: int) -> Counts:
    """Run one program an hour ahead and one an hour behind, with requests that last ten minutes."""
    with fleet(kind) as here:
        for name, seconds in (("ahead", 3600), ("behind", -3600), ("right", 0)):
            here.load(name, "--threads", "2", "--clock", str(seconds))
        for name in ("ahead", "behind", "right"):
            until(lambda name=name: sum(who == name for _, who, _ in here.lines("done")) >= 5 * times, f"calls {name}")
        return here.counted(2)


def bad_network(kind: Kind, fault: str, times: int) -> Counts:
    """Cut connections, hold messages back, or send them twice."""
    with fleet(kind) as here:
        assert here.network is not None
        database = here.behind.partition("@/")[2].partition("?")[0]
        through = f"postgresql://tester@127.0.0.1:{here.network.port}/{database}?sslmode=disable"
        here.load("a", "--threads", "4", address=through if kind == "postgres" else None)
        here.at_work()
        setattr(here.network, fault, {"cut": 0.05, "late": 0.3, "twice": 0.5}[fault])
        until(lambda: here.network is None or here.network.faults >= times, "faults of the network")
        here.network.heal()
        recovery = [here.recovered(time.monotonic())]
        return here.counted(here.network.faults, recovery)


def stopped_process(kind: Kind, times: int, seconds: float) -> Counts:
    """Stop a program inside a call for longer than its lease; another one is told `unknown`; then wake the first.

    Its outcome is recorded when it wakes, so a call that was unknown meanwhile is counted here.
    """
    with fleet(kind, lease="2s") as here:
        recovery, effects = list[float](), here.folder / "effects"
        for number in range(times):
            name = f"s{number}"
            # It has one thread, and is stopped in its call: in a transaction it would keep locks.
            sleeper = here.load(name, "--threads", "1", "--takes", "0.8")
            until(lambda name=name: effects.exists() and f"{name}-" in effects.read_text(), "a call")
            before = time.monotonic()
            sleeper.send_signal(signal.SIGSTOP)
            other = here._start("other", "load", here.address, str(here.folder), name, "--threads", "2")
            time.sleep(seconds)
            until(lambda name=name, before=before: _is_told(here, name, before), "somebody is told `unknown`")
            other.kill()
            other.wait()
            here.processes.pop("other")
            before = time.monotonic()
            sleeper.send_signal(signal.SIGCONT)
            recovery.append(here.recovered(before))
            here.kill(name)
        return here.counted(times, recovery) + Counts(unknown=times, told=times)


def _is_told(here: Fleet, name: str, since: float) -> bool:
    return any(at > since and who == name for at, who, _ in here.lines("unknown"))


def _all(kinds: tuple[Kind, ...], name: str, trial: Callable[..., Counts], full: int, short: int | None = None) -> Any:
    where = {"sqlite": "SQLite", "postgres": "Postgres", "server": "server"}
    return [(name, where[kind], lambda times, kind=kind: trial(kind, times), full, short) for kind in kinds]


EVERY: tuple[Kind, ...] = ("sqlite", "postgres", "server")
TRIALS: list[tuple[str, str, Callable[[int], Counts], int, int | None]] = [
    ("program killed at each failpoint", "SQLite", program_on_sqlite, 10, None),
    ("program killed at each failpoint", "Postgres", program_on_postgres, 3, None),
    ("program killed at each failpoint", "server", program_on_server, 3, 1),
    ("runs killed at each failpoint", "SQLite, JSON lines", runs_on_files, 2, None),
    *_all(EVERY, "worker killed at each failpoint", worker_at_points, 2),
    *_all(("postgres", "server"), "worker killed on another machine, with a lease of 2 s",
          lambda kind, times: worker_at_points(kind, times, "--far"), 1),
    ("server killed at each failpoint", "server", server_at_points, 3, 1),
    *_all(EVERY, "program killed at any moment, under load", programs_under_load, 20),
    ("Postgres stopped (`-m immediate`), under load", "Postgres", postgres_stopped, 20, 1),
    ("one of two servers killed, under load", "servers over Postgres", one_of_two_servers, 20, 1),
    *_all(EVERY, "disk full", disk_full, 5),
    # Over SQLite all programs are on one machine, and have one clock.
    *_all(("postgres", "server"), "clock of a program an hour ahead, an hour behind", clock_off, 20),
    ("connections cut", "server", lambda times: bad_network("server", "cut", times), 100, 5),
    ("connections cut", "Postgres", lambda times: bad_network("postgres", "cut", times), 100, None),
    ("messages up to 0.3 s late", "server", lambda times: bad_network("server", "late", times), 300, None),
    ("messages up to 0.3 s late", "Postgres", lambda times: bad_network("postgres", "late", times), 300, None),
    ("requests sent twice", "server", lambda times: bad_network("server", "twice", times), 300, 20),
    *_all(EVERY, "program stopped (SIGSTOP) for 5 s, past its lease of 2 s",
          lambda kind, times: stopped_process(kind, times, 5.0), 3),
]  # fmt: skip
