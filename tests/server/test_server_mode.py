"""Agents here, the server there, a person at the server: real processes, killed in the middle, and one effect.

The server is a process with its own file; the program has a token and nothing else. The invariant: however often the
program or the server is killed and started again, what was approved once runs once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sayso.model.request import Request, State
from sayso.reviews import Review
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Filter
from sayso.stores.sqlite import SqliteStore
from tests.support.serving import reserved_port

pytestmark = pytest.mark.slow

PATIENCE = 60
SERVER = """
import socket, sys, uvicorn
from sayso.server import create_app
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])), reuse_port=True)
config = uvicorn.Config(create_app(sys.argv[1], open_per_token=1_000), log_level="critical", lifespan="off")
uvicorn.Server(config).run(sockets=[listener])
"""
PROGRAM = """
import os, sys
import sayso

@sayso.gate(wait="block", name="refund", idempotent=False)
def refund(amount: int) -> str:
    ledger = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"refund {amount}\\n".encode())
    os.close(ledger)
    if os.environ.get("DIES") == "inside":
        os.kill(os.getpid(), 9)
    return "refunded"

with sayso.run("order-4721"):
    print(refund(90), flush=True)
"""


class Scene:
    """A folder with a server's file, a port, and what is started and killed there."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.store = SqliteStore(folder / "server.db")
        self.token = Tokens(self.store).new("ask", "support-bot")[1]
        self.person = Review(self.store, reviewer="ada", channel="web")

    def python(self, code: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO")}
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments], cwd=self.folder, env=known | environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    @contextmanager
    def serving(self) -> Iterator[subprocess.Popen[bytes]]:
        server = self.python(SERVER, self.store.url, str(self.port))
        try:
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and server.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", self.port), 30).close()
                    break
                except OSError:
                    time.sleep(0.02)
            yield server
        finally:
            server.kill()
            server.communicate(timeout=PATIENCE)

    def program(self, **environment: str) -> subprocess.Popen[bytes]:
        address = f"http://127.0.0.1:{self.port}"
        return self.python(PROGRAM, SAYSO_STORE=address, SAYSO_TOKEN=self.token, **environment)

    def until(self, state: State) -> Request:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = self.store.list(Filter(states=frozenset({state}))).requests
            if found:
                return found[0]
            time.sleep(0.01)
        raise AssertionError(f"nothing is {state}")

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with reserved_port() as port:
        one = Scene(tmp_path, port)
        yield one
        one.store.close()


def killed(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)


def said(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out.decode(), err.decode()


def test_a_program_that_is_killed_between_decision_and_start_runs_its_call_once(scene: Scene) -> None:
    with scene.serving():
        first = scene.program()
        request = scene.until(State.PENDING)
        killed(first)
        scene.person.approve(request.id)
        assert scene.effects == []
        status, out, err = said(scene.program())
        assert (status, out) == (0, "refunded\n"), err
        assert scene.effects == ["refund 90"]
        assert scene.store.get(request.id).state is State.DONE


def test_a_program_that_is_killed_inside_its_call_is_not_run_again_and_told_why(scene: Scene) -> None:
    with scene.serving():
        first = scene.program(DIES="inside")
        scene.person.approve(scene.until(State.PENDING).id)
        assert said(first)[0] == -signal.SIGKILL
        status, _, err = said(scene.program())
        assert status == 1
        assert "OutcomeUnknownError" in err
        assert scene.effects == ["refund 90"]
        assert scene.until(State.UNKNOWN)


def test_a_server_that_is_killed_while_a_program_waits_loses_nothing(scene: Scene) -> None:
    with scene.serving() as server:
        program = scene.program()
        request = scene.until(State.PENDING)
        killed(server)
    scene.person.approve(request.id)
    assert scene.effects == []
    with scene.serving():
        status, out, err = said(program)
        assert (status, out) == (0, "refunded\n"), err
    assert scene.effects == ["refund 90"]
    assert scene.store.get(request.id).state is State.DONE


CROWD = """
import asyncio, sys
import sayso

@sayso.gate(wait="block", name="refund")
async def refund(amount: int) -> int:
    return amount

async def one(number):
    with sayso.run(f"order-{number}"):
        return await refund(number)

async def all_of_them(count):
    ended = await asyncio.gather(*map(one, range(count)), return_exceptions=True)
    print(sum(isinstance(one, int) for one in ended), [repr(one) for one in ended if not isinstance(one, int)][:3])

asyncio.run(all_of_them(int(sys.argv[1])))
"""


@pytest.mark.slow
def test_five_hundred_who_wait_all_hear_after_restarts_and_none_fails(scene: Scene) -> None:
    count, waiting = 500, Filter(states=frozenset({State.PENDING}))

    def until_asked(many: int) -> None:
        until = time.monotonic() + 3 * PATIENCE
        while scene.store.count(waiting) < many:
            assert time.monotonic() < until, scene.store.count(waiting)
            time.sleep(0.02)

    with scene.serving() as server:
        programs = scene.python(
            CROWD, str(count), SAYSO_STORE=f"http://127.0.0.1:{scene.port}", SAYSO_TOKEN=scene.token
        )  # fmt: skip
        until_asked(count // 3)
        killed(server)  # while others of them are asking
    with scene.serving() as server:
        until_asked(count)
        killed(server)
    for request in scene.store.list(waiting, limit=count).requests:
        scene.person.approve(request.id)
    with scene.serving():
        out, err = programs.communicate(timeout=3 * PATIENCE)
    assert out.decode() == f"{count} []\n", err.decode()[-2_000:]
    assert scene.store.count(Filter(states=frozenset({State.DONE}))) == count
