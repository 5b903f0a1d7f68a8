"""A terminal with a person at it: rows out on stderr, lines in from stdin.

Here is the reading that can be broken off while it waits, and paging; what is said is `sayso.waiting.talk`. stdout is
never touched: it belongs to the program. Invariant: what was typed before something was shown is no answer to it.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

__all__ = ["Gone", "Over", "Screen", "is_there"]

_POLL = 0.1
_WIDEST = 100
_LONGEST_LINE = 65_536


class Over(Exception):
    """What was asked has been settled while the screen waited for a line."""


class Gone(Exception):
    """Nobody is at the terminal any more: its input ended, or it was closed."""


def is_there() -> bool:
    """Say whether a person can be asked here: stdin and stderr are a terminal, with this program in its foreground."""
    try:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        if sys.platform == "win32":
            return True
        # Reading from the background would stop the whole program.
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no stdin at all, a closed one, or one that stands in for it
        return False


class Screen:
    """The terminal of this process.

    Args:
        is_over: Asked about ten times a second while a line is awaited; True breaks the waiting off.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over

    @staticmethod
    def is_shown() -> bool:
        """Say whether what is written goes to a terminal."""
        try:
            return sys.stderr.isatty()
        except (AttributeError, ValueError):  # no stderr at all, or a closed one
            return False

    @property
    def width(self) -> int:
        """How many columns a row may have."""
        return max(46, min(shutil.get_terminal_size().columns - 1, _WIDEST))

    def say(self, *rows: str) -> None:
        """Print rows.

        Raises:
            Gone: The terminal does not take them.
        """
        self._write("".join(f"{row}\n" for row in rows or ("",)))

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError) as error:
            raise Gone from error

    def forget_typed(self) -> None:
        """Drop what was typed so far: it was typed before there was anything to see."""
        if sys.platform == "win32":
            return
        import termios

        with suppress(OSError, ValueError, termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def ask(self, prompt: str) -> str:
        """Return a line that the person typed, without white space around it.

        Raises:
            Over: It is not needed any more.
            Gone: There will be none.
        """
        while True:
            self._write(prompt)
            typed = self._line()
            with suppress(UnicodeDecodeError):
                return typed.decode(sys.stdin.encoding or "utf-8").strip()
            self.say("that is not text in this terminal's encoding; again")

    def _line(self) -> bytes:
        typed = b""
        while not typed.endswith(b"\n"):
            while not _has_input():
                if self._is_over():
                    self.forget_typed()
                    self.say()
                    raise Over
            piece = _read()
            if not piece or len(typed) > _LONGEST_LINE:
                raise Gone
            typed += piece
        return typed

    def page(self, rows: Sequence[str]) -> bool:
        """Print rows a screenful at a time; return whether the person saw them all."""
        height = max(shutil.get_terminal_size().lines - 2, 5)
        for start in range(0, len(rows), height):
            self.say(*rows[start : start + height])
            remaining = len(rows) - start - height
            if remaining <= 0:
                break
            wish = self.ask(f"-- {remaining:,} more lines: enter goes on, e prints to the end, q stops -- ")
            if wish.lower().startswith("q"):
                return False
            if wish.lower().startswith("e"):
                self.say(*rows[start + height :])
                break
        return True


def _has_input() -> bool:
    if sys.platform == "win32":
        return True  # select knows only sockets there, so reading blocks
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], _POLL)[0])
    except (OSError, ValueError) as error:
        raise Gone from error


def _read() -> bytes:
    try:
        if sys.platform == "win32":
            return sys.stdin.readline().encode(sys.stdin.encoding or "utf-8")
        return os.read(sys.stdin.fileno(), 4096)
    except (OSError, ValueError) as error:
        raise Gone from error
