"""Questions at the console: printed, and answered by the next line that is typed.

A thread reads stdin and can be cancelled, so that the program goes on meanwhile. One question at a time has the
console, and what was typed before it was shown is not its answer. Stdin may also be a pipe that holds many lines, each
of which answers one question; where `input` or stdin was replaced, as in notebooks and tests, `input` is called.
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
from sayso.gates import notices
from sayso.model.escaping import escape
from sayso.model.request import State
from sayso.view import card
from sayso.view.card import decided
from sayso.view.summary import short

_POLL = 0.1
_LONGEST = 65_536


class ReadCancelled(Exception):
    """The line is not needed any more."""


class StdinReader:
    """Reads lines of stdin, one thread at a time. What a pipe brought too early is kept for the next line."""

    def __init__(self) -> None:
        self._buffer = b""

    def read_line(self, prompt: str, is_cancelled: Callable[[], bool]) -> str:
        """Show the prompt on stderr and return the line that follows, without its end.

        Args:
            prompt: Shown as it is.
            is_cancelled: Called about ten times a second; True cancels the read. Not where `input` is called.

        Raises:
            EOFError: Stdin has ended.
            ReadCancelled: `is_cancelled` returned True.
        """
        fd = _fd()
        if fd is None:
            return input(prompt)
        if os.isatty(fd):
            self._buffer = b""
            terminal.Screen.forget_typed()
        with suppress(AttributeError, OSError, ValueError):  # no stderr, or one that nobody reads
            sys.stderr.write(prompt)
            sys.stderr.flush()
        while b"\n" not in self._buffer:
            is_ready = False
            while not is_ready:
                if os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp():
                    time.sleep(_POLL)  # in the background, where reading would stop the process
                else:
                    is_ready = bool(select.select([fd], [], [], _POLL)[0])
                if is_cancelled():
                    raise ReadCancelled  # what is there belongs to the next read
            piece = os.read(fd, 4096)
            if not piece and not self._buffer:
                raise EOFError
            self._buffer += piece or b"\n"
            if len(self._buffer) > _LONGEST and b"\n" not in self._buffer:
                raise EOFError(f"a line of more than {_LONGEST:,} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(sys.stdin.encoding or "utf-8", errors="backslashreplace").removesuffix("\r")


def _fd() -> int | None:
    """Return the file descriptor of stdin; None where `input` must be called."""
    if sys.platform == "win32" or not isinstance(builtins.input, BuiltinFunctionType):
        return None
    try:
        return sys.stdin.fileno()
    except (AttributeError, ValueError, io.UnsupportedOperation):  # no stdin, a closed one, or a replaced one
        return None


_LOOK_AGAIN = 0.05
_stdin = StdinReader()


async def console_requester(request: HumanInputRequest) -> None:
    """Ask at the console where this program runs, in the name of the configured reviewer.

    Questions at the same time are asked one after the other. When a question is decided elsewhere, the console says so
    and asks the next one.

    Raises:
        EOFError: Stdin has ended; the question still waits in the store.
        StoreError: The store failed.
        DecisionRefusedError: The configured reviewer may not answer this.
    """
    request.channel = "console"
    await request.ask()
    await request.meanwhile(_asked(request))


async def _asked(request: HumanInputRequest) -> None:
    turn = terminal.turn()
    while not turn.acquire(blocking=False):  # noqa: ASYNC110  its holder may be a thread without a loop, which cannot wake this one
        await asyncio.sleep(_LOOK_AGAIN)
    try:
        typed = await _typed(_prompt(request), turn)
    except asyncio.CancelledError:
        known = request.known
        if known is not None and known.state is State.PENDING:
            notices.say_what_waits(request.store, known, is_interrupted=True)
        elif known is not None:
            notices.say("", f"sayso  {short(known.id)} {decided(known, clock.now())}")
        raise
    except EOFError:
        raise EOFError(f"nobody is at the console to answer; {short(request.id)} still waits") from None
    await offload(partial(request.set_response, typed))


async def _typed(prompt: str, turn: threading.Lock) -> str:
    """Return the line that follows the prompt; the thread that reads it releases the turn at its end."""
    loop, cancelled = asyncio.get_running_loop(), threading.Event()
    read: asyncio.Future[Attempt] = loop.create_future()

    def hand_over(attempt: Attempt) -> None:
        if not read.done():
            read.set_result(attempt)

    def work() -> None:
        try:
            attempt = Attempt(_stdin.read_line(prompt, cancelled.is_set), None)
        except BaseException as error:  # noqa: BLE001  it belongs to the task that waits
            attempt = Attempt(None, error)
        turn.release()
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(hand_over, attempt)

    # Not a thread of a pool: `input` cannot be cancelled, and the program would wait for it at its end.
    threading.Thread(target=work, name="sayso-console", daemon=True).start()
    try:
        return (await read).unwrap()
    finally:
        cancelled.set()


def _prompt(request: HumanInputRequest) -> str:
    first, *more = escape(request.question, block=True).split("\n")
    warnings = [] if request.known is None else [f"(warning: {caution})" for caution in card.cautions(request.known)]
    return "\n".join(["", first, *(f"| {line}" for line in more), *warnings, "> "])
