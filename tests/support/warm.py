"""Runs Python programs in separate processes without starting an interpreter for each: a warm server forks.

`run(["-m", "sayso", "ls"], …)` returns what `subprocess.run([sys.executable, "-m", "sayso", "ls"], …)` returns, in a
tenth of the time. It runs commands of `sayso`, `-c TEXT`, and program files. Each process has its own environment,
folder, streams and `__main__`, and ends only after its threads and exit functions; if its stdin is a terminal, it gets
the keys of that. Shells use `warm_client.py`. It is not suitable for tests about interpreter start-up or signals.
"""

from __future__ import annotations

import atexit
import fcntl
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["CLIENT", "address", "run"]

CLIENT = Path(__file__).with_name("warm_client.py")
PATIENCE = 180
LARGEST = 1 << 20
LOADED = ("pydantic", "sayso.runs.agent", "sayso.testing", "sayso.gates.gate", "sayso.confirmation", "sayso.audit")
STORES = ("sayso.stores.sqlite", "sayso.stores.jsonl", "sayso.stores.memory")


def run(
    words: list[str], environment: dict[str, str], stdin: bytes = b"", folder: Path | None = None
) -> tuple[int, bytes, bytes]:
    """Run a program, and return its exit code, stdout and stderr."""
    folder = folder or Path.cwd()
    if _startup(environment) != _startup(dict(os.environ)):
        done = subprocess.run(
            [sys.executable, *words], env=environment, input=stdin, capture_output=True, timeout=PATIENCE, cwd=folder,
            check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr
    # Files, not pipes, so that nothing has to read while the program writes.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(address())
            message = marshal.dumps((words, str(folder), environment))
            socket.send_fds(connection, [b"%d\n" % len(message)], [file.fileno() for file in (given, out, err)])
            connection.sendall(message)
            code = int(connection.recv(16))
        for file in (out, err):
            file.seek(0)
        return code, out.read(), err.read()


def _startup(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that an interpreter reads only at start-up, which a fork would ignore."""
    named = {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LC_", "LANG"))}
    return {name: value for name, value in named.items() if name != "PYTHONUNBUFFERED"}


@cache
def address() -> str:
    """Start this process's server on the first call, and return its address."""
    folder = tempfile.mkdtemp()
    process = subprocess.Popen(
        [sys.executable, __file__, f"{folder}/programs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/"
    )

    def stop() -> None:
        with process:
            assert process.stdin is not None
            process.stdin.close()
        shutil.rmtree(folder)

    atexit.register(stop)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    return f"{folder}/programs"


def _serve(where: str) -> None:
    """Serve until stdin is closed, which happens when the test process ends."""
    from sayso import cli

    for name in (*LOADED, *STORES, *(f"sayso.cli.{module}" for module, _ in cli._COMMANDS.values() if module)):
        import_module(name)
    cli._demo()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(where)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing reaps the processes that wait for programs
    os.write(1, b".")
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _answer(connection)
        connection.close()


def _answer(connection: socket.socket) -> NoReturn:
    head, fds, _, _ = socket.recv_fds(connection, LARGEST, 3)
    size, _, message = head.partition(b"\n")
    while len(message) < int(size):
        message += connection.recv(LARGEST)
    words, folder, environment = marshal.loads(message)  # noqa: S302  from our own tests
    child = os.fork()
    if child != 0:
        # A killed client closes the connection, and its program must end with it.
        ended = os.pidfd_open(child)
        if ended not in select.select([ended, connection], [], [])[0]:
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(OSError):
            connection.sendall(b"%d" % code)
        os._exit(0)
    connection.close()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if os.isatty(0):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C there is for the program, and not for who waits for it
    _open_streams()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    code = _ended(words, folder)
    # Shut down like an interpreter, except for its finalization, which would take longer than most programs.
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _open_streams() -> None:
    """Reopen the standard streams, because their buffering depends on whether they are a file or a terminal."""
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        is_at_once = name == "stderr" or os.isatty(fd)
        new = open(  # noqa: SIM115  it has no path, and stays open to the end
            fd, mode, 1 if is_at_once else -1, old.encoding, old.errors, closefd=False
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _ended(words: list[str], folder: str) -> int:
    """Run a program as an interpreter would, and return its exit code, or a negative signal to end by."""
    try:
        _run(words, folder)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001  the edge of a process
        traceback: Any = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error, traceback)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _run(words: list[str], folder: str) -> None:
    if words[0] == "-W":
        sys.warnoptions.append(words[1])
        warnings.simplefilter(words[1])  # pyright: ignore[reportArgumentType]  "error" is all that is asked for
        words = words[2:]
    if words[:2] == ["-m", "sayso"]:
        from sayso import cli

        sys.path[0], sys.argv = folder, [str(Path(cli.__file__).parents[1] / "__main__.py"), *words[2:]]
        raise SystemExit(cli.main())
    main = sys.modules["__main__"] = ModuleType("__main__")
    if words[0] == "-c":
        sys.path[0], text, file = "", words[1], "<string>"
        sys.argv = ["-c", *words[2:]]
    else:
        file = words[0]
        sys.path[0], sys.argv = str(Path(file).resolve().parent), words
        text, main.__file__ = Path(file).read_text(encoding="utf-8"), file
    exec(compile(text, file, "exec", dont_inherit=True), main.__dict__)  # noqa: S102  runs the program


if __name__ == "__main__":
    _serve(sys.argv[1])
