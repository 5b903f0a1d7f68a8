"""The lines of stdin, one by one, read so that waiting for one can be broken off.

Beside what a terminal types, stdin may be a pipe in which many lines stand at once; what was read of it and not yet
wanted is kept. Where something stands in for stdin or for `input`, as in notebooks and tests, that is asked.
"""

from __future__ import annotations

import builtins
import io
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import BuiltinFunctionType

__all__ = ["Left", "Lines"]

_POLL = 0.1
_LONGEST = 65_536


class Left(Exception):
    """Nobody needs the line any more."""


class Lines:
    """What stdin says. One thread at a time may ask it."""

    def __init__(self) -> None:
        self._rest = b""

    def after(self, prompt: str, is_left: Callable[[], bool]) -> str:
        """Show the prompt on stderr and return the line that follows, without its end.

        Args:
            prompt: Shown as it is.
            is_left: Asked about ten times a second; True breaks the waiting off. Not where `input` is asked instead.

        Raises:
            EOFError: There will be none.
            Left: `is_left` said so.
        """
        fd = _fd()
        if fd is None:
            return input(prompt)
        if os.isatty(fd):
            self._rest = b""
            _forget_typed(fd)
        with suppress(
            AttributeError, OSError, ValueError
        ):  # no stderr, or one that nobody reads: then there is no prompt
            sys.stderr.write(prompt)
            sys.stderr.flush()
        while b"\n" not in self._rest:
            is_ready = False
            while not is_ready:
                is_ready = _has_input(fd)
                if is_left():
                    raise Left  # what is there belongs to whoever reads next
            piece = os.read(fd, 4096)
            if not piece and not self._rest:
                raise EOFError
            self._rest += piece or b"\n"
            if len(self._rest) > _LONGEST and b"\n" not in self._rest:
                raise EOFError(f"a line of more than {_LONGEST:,} bytes")
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(sys.stdin.encoding or "utf-8", errors="backslashreplace").removesuffix("\r")


def _fd() -> int | None:
    """Return what to wait for and read from; None where `input` has to do it."""
    if sys.platform == "win32" or not isinstance(builtins.input, BuiltinFunctionType):
        return None
    try:
        return sys.stdin.fileno()
    except (AttributeError, ValueError, io.UnsupportedOperation):  # none at all, a closed one, one that stands in
        return None


def _has_input(fd: int) -> bool:
    if os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp():
        time.sleep(_POLL)  # in the background: reading would stop the whole program
        return False
    return bool(select.select([fd], [], [], _POLL)[0])


def _forget_typed(fd: int) -> None:
    if sys.platform != "win32":
        import termios

        with suppress(OSError, termios.error):
            termios.tcflush(fd, termios.TCIFLUSH)
