"""Runs commands as processes of their own, without a new interpreter for each: a server forks where all is loaded.

`run` gives what `subprocess.run([sys.executable, "-m", "sayso", ...])` gives, in a tenth of the time. Each command has
its own environment, folder and streams; its threads and exit functions end as they would, and only then does it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["run"]

PATIENCE = 60
LARGEST = 1 << 20
LOADED = ("pydantic", "sayso.stores.sqlite", "sayso.stores.jsonl", "sayso.stores.memory")


def run(words: list[str], environment: dict[str, str], stdin: bytes) -> tuple[int, bytes, bytes]:
    """Return the exit code of a command, its output, and what it wrote to its standard error."""
    if _startup(environment) != _startup(dict(os.environ)):
        done = subprocess.run(
            [sys.executable, "-m", "sayso", *words], env=environment, input=stdin, capture_output=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr
    # Files and no pipes: nobody has to read while the command writes.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(_server())
            message = json.dumps({"words": words, "folder": str(Path.cwd()), "environment": environment}).encode()
            socket.send_fds(connection, [b"%d\n" % len(message)], [file.fileno() for file in (given, out, err)])
            connection.sendall(message)
            code = int(connection.recv(16))
        for file in (out, err):
            file.seek(0)
        return code, out.read(), err.read()


def _startup(environment: dict[str, str]) -> dict[str, str]:
    """Return what an interpreter reads only when it starts, and a fork does not."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


@cache
def _server() -> str:
    """Start the server of this process, once, and return its address."""
    folder = tempfile.mkdtemp()
    process = subprocess.Popen(
        [sys.executable, __file__, f"{folder}/commands"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
    )

    def stop() -> None:
        with process:
            assert process.stdin is not None
            process.stdin.close()
        shutil.rmtree(folder)

    atexit.register(stop)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    return f"{folder}/commands"


def _serve(address: str) -> None:
    """Answer until the standard input ends, as it does with the tests."""
    from sayso import cli

    for module, _ in cli._COMMANDS.values():
        import_module(f"sayso.cli.{module}")
    for module in LOADED:
        import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for the commands
    os.write(1, b".")
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _run(connection, cli)
        connection.close()


def _run(connection: socket.socket, cli: Any) -> NoReturn:
    head, fds, _, _ = socket.recv_fds(connection, LARGEST, 3)
    size, _, message = head.partition(b"\n")
    while len(message) < int(size):
        message += connection.recv(LARGEST)
    command = json.loads(message)
    child = os.fork()
    if child != 0:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(b"%d" % code)
        os._exit(0)
    connection.close()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    time.tzset()
    sys.path[0], sys.argv = command["folder"], [str(Path(cli.__file__).parents[1] / "__main__.py"), *command["words"]]
    code = 1
    try:
        code = cli.main()
    except BaseException:  # noqa: BLE001  the edge of a process
        traceback.print_exc()
    # What an interpreter does at its end, but for taking itself apart: that would take longer than most commands.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
