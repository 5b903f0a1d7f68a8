"""A simulated person at a pseudo-terminal, who reads a program's output and types.

`Person(...)` starts a real process whose stdin and stderr are the terminal. Its stdout is a pipe, as in
`program | tee log`, unless `all_three` is set. With `is_forked` it starts in a tenth of the time (see `warm`), and gets
no signals but those of the terminal's keys. Nothing sleeps: `sees` waits for output with a deadline.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

from tests.support import warm

PATIENCE = 30.0


class Person:
    """A person at a program's terminal."""

    def __init__(
        self, *command: str, env: dict[str, str], cwd: Path, all_three: bool = False, columns: int = 100,
        is_forked: bool = False,
    ) -> None:  # fmt: skip
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

        def own_the_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        before = ["-I", "-S", str(warm.CLIENT), warm.address()] if is_forked else []
        self.process = subprocess.Popen(
            [sys.executable, *before, *command],
            stdin=slave,
            stderr=slave,
            stdout=slave if all_three else subprocess.PIPE,
            env=env,
            cwd=cwd,
            preexec_fn=None if is_forked else own_the_terminal,  # noqa: PLW1509  a controlling terminal is needed for Ctrl-C, and no thread runs here
        )
        os.close(slave)
        self.screen = ""
        self._seen = 0

    def sees(self, text: str) -> str:
        """Wait until `text` appears after what was seen before; return all output up to then."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.screen[self._seen :]:
            if time.monotonic() > deadline or not self._read(deadline):
                raise AssertionError(f"{text!r} is not on the screen:\n{self.screen[self._seen :]}")
        start = self._seen
        self._seen = self.screen.index(text, start) + len(text)
        return self.screen[start : self._seen]

    def _read(self, deadline: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            piece = os.read(self._master, 65_536)
        except OSError:  # the program ended
            return False
        self.screen += piece.decode().replace("\r\n", "\n")
        return bool(piece)

    def types(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def presses(self, key: bytes) -> None:
        os.write(self._master, key)

    def ends(self) -> tuple[int, str]:
        """Wait for the program to end; return its exit code, and its stdout if that is a pipe."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        code = self.process.wait(timeout=PATIENCE)
        out = b"" if self.process.stdout is None else self.process.stdout.read()
        return code, out.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._master)
