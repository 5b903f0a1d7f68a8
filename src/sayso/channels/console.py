"""The lines of stdin, one by one, read so that waiting for one can be broken off.

Beside what a terminal types, stdin may be a pipe in which many lines stand at once; what was read of it and not yet
wanted is kept. Where something stands in for stdin or for `input`, as in notebooks and tests, that is asked.

A question at the console: printed, and answered by the next line that is typed.

The program goes on meanwhile: a thread reads, and can be left at any time. Invariant: one question at a time has the
console, and what was typed at a terminal before the question was shown is no answer to it.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType

from sayso import clock, terminal
from sayso.channels.human import HumanInputRequest
from sayso.effects import Attempt, offload
from sayso.model.request import Request, State
from sayso.model.text import escape
from sayso.view import card
from sayso.view.card import decided
from sayso.view.summary import short

__all__ = ["Left", "Lines", "console_requester"]

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


_LOOK_AGAIN = 0.05
_lines = Lines()


async def console_requester(request: HumanInputRequest) -> None:
    """Ask at the console where this program runs, in the name of the configured reviewer.

    Questions that come at the same time are asked one after the other. When the question is decided elsewhere, the
    console says so and is free again.

    Raises:
        EOFError: Nobody is at the console; the question still waits in the store.
        StoreError: The store failed.
        DecisionRefusedError: The configured reviewer may not answer this.
    """
    request.channel = "console"
    await request.ask()
    await request.meanwhile(_asked(request))


async def _asked(request: HumanInputRequest) -> None:
    turn = terminal.turn()
    while not turn.acquire(blocking=False):  # noqa: ASYNC110  whoever has it may be in no loop, and rings no bell
        await asyncio.sleep(_LOOK_AGAIN)
    try:
        typed = await _typed(_prompt(request), turn)
    except asyncio.CancelledError:
        _take_leave(request)
        raise
    except EOFError:
        raise EOFError(f"nobody is at the console to answer; {short(request.id)} still waits") from None
    await offload(partial(request.set_response, typed))


async def _typed(prompt: str, turn: threading.Lock) -> str:
    """Return the line that follows the prompt; the thread that reads it gives the turn back when it has ended."""
    loop, left = asyncio.get_running_loop(), threading.Event()
    read: asyncio.Future[Attempt] = loop.create_future()

    def hand_over(attempt: Attempt) -> None:
        if not read.done():
            read.set_result(attempt)

    def work() -> None:
        try:
            attempt = Attempt(_lines.after(prompt, left.is_set), None)
        except BaseException as error:  # noqa: BLE001  it belongs to the task that waits
            attempt = Attempt(None, error)
        turn.release()
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(hand_over, attempt)

    # Not a pool's thread: where `input` reads it cannot be left, and the program would not end without it.
    threading.Thread(target=work, name="sayso-console", daemon=True).start()
    try:
        return (await read).unwrap()
    finally:
        left.set()


def _prompt(request: HumanInputRequest) -> str:
    first, *more = escape(request.question, block=True).split("\n")
    warnings = [] if request.known is None else [f"(warning: {said})" for said in card.cautions(request.known)]
    return "\n".join(["", first, *(f"| {line}" for line in more), *warnings, "> "])


def _take_leave(request: HumanInputRequest) -> None:
    known = request.known
    if known is not None and known.state is State.PENDING:
        terminal.say_what_waits(request.store, known, is_interrupted=True)
    elif known is not None:
        _say(known)


def _say(after: Request) -> None:
    with suppress(AttributeError, OSError, ValueError):  # no stderr, or one that nobody reads
        sys.stderr.write(f"\nsayso  {short(after.id)} {decided(after, clock.now())}\n")
        sys.stderr.flush()
