"""Questions with an awaitable response, the requesters that bring them to a person, and a tool for models.

A requester brings a question to a person: `console_requester` prints it where the program runs, and
`create_queue_requester` puts it on a queue. `human_in_the_loop` lets a model ask one, and `queue_channel` puts
notifications on a queue. A cancellable thread reads the console, so the program continues meanwhile. Only one question
at a time uses the console, and text typed before it appeared is discarded. Stdin may also be a pipe, in which each line
answers one question. If `input` or stdin was replaced, as in notebooks and tests, `input` is called.
"""

from __future__ import annotations

import asyncio
import builtins
import io
import queue as queues
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import BuiltinFunctionType
from typing import Any

from sayso import clock, config, terminal
from sayso.channels.registry import Channel, Notification
from sayso.effects import Attempt, Operations, adrive, drive, offload, until_done
from sayso.errors import AlreadyDecidedError, ConfigError, RequestExpiredError
from sayso.gates import exceptions, scope, stderr
from sayso.gates.ask import Asking
from sayso.gates.caller import Block
from sayso.gates.exceptions import trim, trimmed
from sayso.gates.options import quorum_of
from sayso.gates.wait import Waiter
from sayso.model import duration
from sayso.model.request import Request, State
from sayso.model.reviewer import Quorum, Reviewer
from sayso.model.schema import Schema
from sayso.model.text import escape, storable
from sayso.reviews import Review
from sayso.runs.agent import Tool
from sayso.runs.state import current_step
from sayso.stores.base import Store
from sayso.view import full_text
from sayso.view.full_text import decided
from sayso.view.summary import short

_TEXT = Schema.of_type(str)


class HumanInputRequest:
    """A question to a person, and its response.

    The first use of `ask`, `response`, `set_response` or `id` records it. It belongs to the run in which it was
    created.

    Args:
        question: The question.
        expires: How long it waits for an answer.
        roles: Whoever answers must have one of these roles.
        risk: A risk label of your choice.
        store: The store to use instead of the configured one.

    Attributes:
        question: The question.
        store: The store that records it.
        channel: The channel that the record of the answer names; a requester sets its own name.
        known: The request as last read by this object; None before it is recorded.
    """

    def __init__(
        self, question: str, *, expires: timedelta | str = "24h", roles: Sequence[str] = (), risk: str | None = None,
        store: Store | str | None = None,
    ) -> None:  # fmt: skip
        self.question = question
        self.channel = "python"
        self.store = config.open_store(store)
        self._expires, self._quorum, self._risk = duration.parse(expires), Quorum(1, roles), risk
        frame = current_step()
        self._asking = Asking(storable(question), _TEXT, scope.current(), "" if frame is None else frame.place)
        self.known: Request | None = None
        self._has_answered = False
        self._on_decided_elsewhere: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        known = "" if self.known is None else f", {self.known.id} was last seen {self.known.state}"
        return f"<HumanInputRequest {self.question!r}{known}>"

    @property
    def id(self) -> str:
        """The request's id in the store, with which any process can answer it. Reading it records the question."""
        return drive(self._ask()).id

    async def ask(self) -> bool:
        """Record the question, or find it in its run; return whether it waits for an answer. Durable on return.

        Raises:
            StoreError: The question could not be recorded.
        """
        return (await adrive(self._ask())).state is State.PENDING

    async def response(self) -> str:
        """Wait for the answer through any channel. Cancelling the wait leaves the question pending.

        Raises:
            ConfirmationExpired: Nobody answered in time.
            ConfirmationRejected: The person refused to answer.
            StoreError: The store failed.
        """
        try:
            return await adrive(self._until_answered())
        except BaseException as error:
            trim(error)
            raise
        finally:
            is_decided = self.known is not None and self.known.state is not State.PENDING
            for forget in self._on_decided_elsewhere if is_decided and not self._has_answered else ():
                forget()

    def set_response(self, response: str, *, by: Reviewer | str | None = None, comment: str | None = None) -> None:
        """Answer the question from any thread or loop, and wake the waiting program. Durable on return.

        This blocks while it writes to the store; in a coroutine, `await asyncio.to_thread(request.set_response, …)`.

        Args:
            response: The answer.
            by: Who answers; by default the configured reviewer. Pass the person if several people use the program.
            comment: A comment for the record.

        Raises:
            AlreadyDecidedError: Somebody answered first; the message says who, when and through which channel.
            DecisionRefusedError: The answer was refused for another reason, e.g. because the question has expired.
            InvalidAnswerError: The answer is not a string.
        """
        review = Review(self.store, channel=self.channel)
        self.known = review.answer(self.id, response, by=by, comment=comment)
        self._has_answered = True

    async def meanwhile(self, work: Awaitable[None]) -> None:
        """Await `work`, and cancel it if the question is decided first.

        This raises the exception of `work`, unless the question was already decided then.

        Raises:
            StoreError: The store failed.
        """
        working, deciding = asyncio.ensure_future(work), asyncio.ensure_future(adrive(self._until_decided()))
        try:
            await asyncio.wait({working, deciding}, return_when=asyncio.FIRST_COMPLETED)
            if deciding.done() or _lost_race(working):
                await deciding
            else:
                working.result()
        finally:
            for ending in (deciding, working):
                ending.cancel()
                await until_done(ending)
            is_decided = deciding.done() and not deciding.cancelled()
            if is_decided and not working.cancelled() and working.exception() is not None and not _lost_race(working):
                report = {"message": "a requester failed after its question was decided"}
                asyncio.get_running_loop().call_exception_handler(report | {"exception": working.exception()})

    def when_decided_elsewhere(self, forget: Callable[[], object]) -> None:
        """Call `forget` if `response` returns an answer that was not given through this object."""
        self._on_decided_elsewhere.append(forget)

    # -- inside ------------------------------------------------------------------------------------------------

    def _ask(self) -> Operations[Request]:
        if self.known is None:
            self.known = yield from self._asking.find_or_ask(self.store, self._expires, self._quorum, self._risk)
        return self.known

    def _until_decided(self) -> Operations[Request]:
        request = yield from self._ask()
        if request.state is State.PENDING:
            block = Block(on_expiry="ask", is_quiet=True)
            waiter = Waiter(scope.current(), self.store, block, keeps_request=True)
            try:
                self.known = request = yield from waiter.until_decided(request, block)
            except BaseException as error:
                yield from waiter.break_off(error)
                raise
            finally:
                waiter.close()
        return request

    def _until_answered(self) -> Operations[str]:
        request = yield from self._until_decided()
        if request.state is not State.ANSWERED:
            raise exceptions.refused(request)
        return (yield from self._asking.answer(self.store, request))


Requester = Callable[[HumanInputRequest], Awaitable[None]]
"""Brings a question to a person: it calls `set_response`, or lets somebody else answer the request."""


async def carried(request: HumanInputRequest, requester: Requester) -> str:
    """Run the requester, unless the request is already decided, and return the response.

    Raises:
        Exception: The requester failed before anybody answered; the question stays pending in the store.
        ConfirmationRejected: As for `HumanInputRequest.response`.
        StoreError: The store failed.
    """
    if await request.ask():
        await request.meanwhile(requester(request))
    return await request.response()


def _lost_race(work: asyncio.Future[None]) -> bool:
    return not work.cancelled() and isinstance(work.exception(), AlreadyDecidedError | RequestExpiredError)


@trimmed
def human_in_the_loop(
    requester: Requester, *, name: str = "ask_human", description: str | None = None, expires: timedelta | str = "24h",
    roles: Sequence[str] = (), risk: str | None = None, store: Store | str | None = None,
) -> Tool:  # fmt: skip
    """Return a tool with one argument, `question`, that asks a person: `answer = await tool.acall(question="…")`.

    It is also a tool for an `Agent` or a `ReAct`. It waits for the first answer through any channel, and then cancels
    the requester. In a run with an id, a question that was asked before the program stopped is found again together
    with its answer.

    Args:
        requester: Brings each question to a person.
        name, description: The tool's name and description for the model.
        expires, roles, risk, store: As for `HumanInputRequest`.
    """
    if not callable(requester):
        raise ConfigError(f"human_in_the_loop takes a requester (a function that asks a person), not {requester!r}")
    duration.option("expires", expires)
    quorum_of(1, roles)
    if risk is not None and not isinstance(risk, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"risk= takes a string, not {risk!r}")

    async def ask_human(question: str) -> str:
        """Ask a person a question and wait for the answer."""
        request = HumanInputRequest(question, expires=expires, roles=roles, risk=risk, store=store)
        return await carried(request, requester)

    return Tool(ask_human, name=name, description=description, store=store)


def _read_line(prompt: str, is_cancelled: Callable[[], bool]) -> str:
    """Show the prompt on stderr and return the line of stdin that follows, without its end; empty if cancelled.

    If stdin or `input` was replaced, `input` is called, which cannot be cancelled. Raises `EOFError` at stdin's end.
    """
    if not _can_read_stdin():
        return input(prompt)
    terminal.Screen.discard_input()
    with suppress(AttributeError, OSError, ValueError):  # no stderr, or its reader is gone
        sys.stderr.write(prompt)
        sys.stderr.flush()
    line = terminal.read_line(is_cancelled) or b""
    return line.decode(sys.stdin.encoding or "utf-8", errors="backslashreplace").removesuffix("\r")


def _can_read_stdin() -> bool:
    """Return whether lines can be read from the file descriptor of stdin."""
    if sys.platform == "win32" or not isinstance(builtins.input, BuiltinFunctionType):
        return False
    try:
        return sys.stdin.fileno() >= 0
    except (AttributeError, ValueError, io.UnsupportedOperation):  # no stdin, or it is closed or replaced
        return False


_LOOK_AGAIN = 0.05  # seconds


async def console_requester(request: HumanInputRequest) -> None:
    """Ask at the console of this program, in the name of the configured reviewer.

    Concurrent questions are asked one after another. If a question is decided elsewhere, the console says so and shows
    the next one.

    Raises:
        EOFError: Stdin has ended; the question stays pending in the store.
        StoreError: The store failed.
        DecisionRefusedError: The configured reviewer may not answer this.
    """
    request.channel = "console"
    await request.ask()
    await request.meanwhile(_ask_at_console(request))


async def _ask_at_console(request: HumanInputRequest) -> None:
    turn = terminal.turn()
    while not turn.acquire(blocking=False):  # noqa: ASYNC110  the holder may be a thread without a loop, which cannot wake this one
        await asyncio.sleep(_LOOK_AGAIN)
    try:
        first, *more = escape(request.question, block=True).split("\n")
        cautions = [] if request.known is None else full_text.cautions(request.known)
        warnings = [f"(warning: {caution})" for caution in cautions]
        typed = await _read_typed("\n".join(["", first, *(f"| {line}" for line in more), *warnings, "> "]), turn)
    except asyncio.CancelledError:
        known = request.known
        if known is not None and known.state is State.PENDING:
            stderr.say_what_waits(request.store, known, is_interrupted=True)
        elif known is not None:
            stderr.print_rows("", f"sayso  {short(known.id)} {decided(known, clock.now())}")
        raise
    except EOFError:
        raise EOFError(f"there is no terminal to ask at; {short(request.id)} stays pending") from None
    await offload(partial(request.set_response, typed))


async def _read_typed(prompt: str, turn: threading.Lock) -> str:
    """Return the line that follows the prompt. The reading thread releases `turn` when it ends."""
    loop, cancelled = asyncio.get_running_loop(), threading.Event()
    read: asyncio.Future[Attempt] = loop.create_future()

    def hand_over(attempt: Attempt) -> None:
        if not read.done():
            read.set_result(attempt)

    def work() -> None:
        try:
            attempt = Attempt(_read_line(prompt, cancelled.is_set), None)
        except BaseException as error:  # noqa: BLE001  raised in the waiting task
            attempt = Attempt(None, error)
        turn.release()
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(hand_over, attempt)

    # Not a pool thread: `input` cannot be cancelled, and the interpreter would wait for the pool at exit.
    threading.Thread(target=work, name="sayso-console", daemon=True).start()
    try:
        return (await read).unwrap()
    finally:
        cancelled.set()


_SECONDS = 10  # how long to wait for space in a queue, or for a busy event loop


class QueueChannel(Channel):
    """A channel that puts notifications on a queue, for `sayso.channels.deliver`.

    Args:
        queue: A `queue.Queue`, or an `asyncio.Queue`; for the latter, create the channel in the queue's event loop.
        name: The channel's name.

    Raises:
        RuntimeError: The queue is an `asyncio.Queue`, and no event loop is running.
    """

    def __init__(
        self, queue: queues.Queue[Notification] | asyncio.Queue[Notification], *, name: str = "queue"
    ) -> None:  # fmt: skip
        self.name, self._queue = name, queue
        self._loop = asyncio.get_running_loop() if isinstance(queue, asyncio.Queue) else None

    def send(self, notification: Notification) -> None:
        """Put it on the queue; raise `queue.Full` or `TimeoutError` if there is no space within ten seconds."""
        if isinstance(self._queue, queues.Queue):
            self._queue.put(notification, timeout=_SECONDS)
        elif self._loop is not None:
            # An asyncio queue can be used only in its own loop, and this is another thread.
            putting = asyncio.run_coroutine_threadsafe(self._queue.put(notification), self._loop)
            try:
                putting.result(_SECONDS)
            except TimeoutError:
                putting.cancel()  # otherwise it could still be queued, and the retry would queue it twice
                raise


queue_channel = QueueChannel


def create_queue_requester(
    request_queue: asyncio.Queue[Any], pending_requests: MutableMapping[str, dict[str, Any]]
) -> Requester:
    """Return a requester that puts each question on a queue.

    Create it in the event loop that reads the queue; it can then be used from other loops and threads too.

    Args:
        request_queue: Receives `{"type": "human_input", "id": …, "question": …}` with the request's id in the store.
            While a bounded queue is full the program waits, and still accepts an answer through another channel.
        pending_requests: Receives `{"request": …, "question": …, "sent": …}` under the id, before the item is queued;
            `sent` becomes true afterwards. Whoever calls `request.set_response` removes the entry. If the request is
            decided elsewhere or expires, the waiting program removes the entry when it notices.
    """
    home: asyncio.AbstractEventLoop | None = None
    with suppress(RuntimeError):
        home = asyncio.get_running_loop()

    async def queue_requester(request: HumanInputRequest) -> None:
        request.channel = "queue"
        await request.ask()
        request_id = request.id
        entry = {"request": request, "question": request.question, "sent": False}
        pending_requests[request_id] = entry
        request.when_decided_elsewhere(partial(_forget, pending_requests, request_id, entry))
        putting = request_queue.put({"type": "human_input", "id": request_id, "question": request.question})
        try:
            # A put from another loop does not wake the reader of an asyncio queue.
            if home is None or home.is_closed() or home is asyncio.get_running_loop():
                await putting
            else:
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(putting, home))
        except BaseException:
            _forget(pending_requests, request_id, entry)
            raise
        entry["sent"] = True

    return queue_requester


def _forget(pending: MutableMapping[str, dict[str, Any]], request_id: str, entry: dict[str, Any]) -> None:
    # The same question may have been asked again in the meantime, under a new entry.
    if pending.get(request_id) is entry:
        pending.pop(request_id, None)
