"""A person whom a program awaits: a question with an awaitable response, and the tool that asks it for a model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cache

from sayso import config
from sayso.effects import Effects, adrive, drive, until_done
from sayso.errors import AlreadyDecidedError, ConfigError, RequestExpiredError
from sayso.gates import scope, signals
from sayso.gates.ask import Asking
from sayso.gates.caller import Block
from sayso.gates.options import quorum_of
from sayso.gates.signals import trim, trimmed
from sayso.gates.wait import Waiter
from sayso.model import duration
from sayso.model.escaping import storable
from sayso.model.request import Request, State
from sayso.model.reviewer import Quorum, Reviewer
from sayso.model.schema import Schema
from sayso.reviews import Review
from sayso.runs.state import current_step
from sayso.runs.tool import Tool
from sayso.stores.base import Store


class HumanInputRequest:
    """A question to a person, and its response.

    It is recorded by the first of `ask`, `response`, `set_response` and `id`, and belongs to the run in which it is
    created.

    Args:
        question: The question.
        expires: How long it waits for an answer.
        roles: Who answers must have one of these.
        risk: A word of yours.
        store: The store, in place of the configured one.

    Attributes:
        question: The question.
        store: Its store.
        channel: How it reaches the person, for the record of the answer; a requester sets its own name.
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
        self._asking = Asking(storable(question), _text(), scope.current(), "" if frame is None else frame.place)
        self._request: Request | None = None
        self._has_answered = False
        self._forgets: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        known = "" if self._request is None else f", {self._request.id} was {self._request.state} when last seen"
        return f"<HumanInputRequest {self.question!r}{known}>"

    @property
    def id(self) -> str:
        """Its id in the store; it can be answered by it from anywhere."""
        return drive(self._asked()).id

    @property
    def known(self) -> Request | None:
        """The request as this object last read it; None before it is recorded."""
        return self._request

    async def ask(self) -> bool:
        """Record the question, or find it in its run; return whether it waits for an answer. Durable then.

        Raises:
            StoreError: It could not be recorded.
        """
        return (await adrive(self._asked())).state is State.PENDING

    async def response(self) -> str:
        """Wait for the answer through any channel. A cancelled wait leaves the question pending.

        Raises:
            ConfirmationExpired: Nobody answered in time.
            ConfirmationRejected: The person would not answer.
            StoreError: The store failed.
        """
        try:
            return await adrive(self._answered())
        except BaseException as error:
            trim(error)
            raise
        finally:
            is_decided = self._request is not None and self._request.state is not State.PENDING
            for forget in self._forgets if is_decided and not self._has_answered else ():
                forget()

    def set_response(self, response: str, *, by: Reviewer | str | None = None, comment: str | None = None) -> None:
        """Give the answer, from any thread or loop, and wake who waits. Durable on return.

        It writes to the store; in a coroutine where that matters, `await asyncio.to_thread(request.set_response, …)`.

        Args:
            response: The answer.
            by: Who answers; the configured reviewer when not given. Name the person where several use the program.
            comment: The record keeps it.

        Raises:
            AlreadyDecidedError: Somebody was first; says who, when and through which channel.
            DecisionRefusedError: It was refused otherwise, e.g. because the question has expired.
            InvalidAnswerError: It is not a text.
        """
        review = Review(self.store, channel=self.channel)
        self._request = review.answer(self.id, response, by=by, comment=comment)
        self._has_answered = True

    async def meanwhile(self, work: Awaitable[None]) -> None:
        """Await `work`, and cancel it when the question is decided first.

        An exception of `work` is raised, unless the question was decided by then.

        Raises:
            StoreError: The store failed.
        """
        working, deciding = asyncio.ensure_future(work), asyncio.ensure_future(adrive(self._decided()))
        try:
            await asyncio.wait({working, deciding}, return_when=asyncio.FIRST_COMPLETED)
            if deciding.done() or _came_second(working):
                await deciding
            else:
                working.result()
        finally:
            for ending in (deciding, working):
                ending.cancel()
                await until_done(ending)
            is_decided = deciding.done() and not deciding.cancelled()
            if is_decided and not working.cancelled() and working.exception() is not None and not _came_second(working):
                report = {"message": "a requester failed after its question was decided"}
                asyncio.get_running_loop().call_exception_handler(report | {"exception": working.exception()})

    def when_decided_elsewhere(self, forget: Callable[[], object]) -> None:
        """Call `forget` when `response` ends by an answer that was not given through this object."""
        self._forgets.append(forget)

    # -- inside ------------------------------------------------------------------------------------------------

    def _asked(self) -> Effects[Request]:
        if self._request is None:
            self._request = yield from self._asking.find_or_ask(self.store, self._expires, self._quorum, self._risk)
        return self._request

    def _decided(self) -> Effects[Request]:
        request = yield from self._asked()
        if request.state is State.PENDING:
            block = Block(on_expiry="ask", is_quiet=True)
            waiter = Waiter(scope.current(), self.store, block, stays=True)
            try:
                self._request = request = yield from waiter.until_decided(request, block)
            except BaseException as error:
                yield from waiter.break_off(error)
                raise
            finally:
                waiter.close()
        return request

    def _answered(self) -> Effects[str]:
        request = yield from self._decided()
        if request.state is not State.ANSWERED:
            raise signals.refused(request)
        return (yield from self._asking.answer(self.store, request))


Requester = Callable[[HumanInputRequest], Awaitable[None]]
"""Brings a request to a person: calls `set_response`, or arranges that somebody can answer it."""


async def carried(request: HumanInputRequest, requester: Requester) -> str:
    """Let a requester bring the request to a person, unless it is decided already, and return the response.

    Raises:
        Exception: The requester failed before anybody answered; the question still waits in the store.
        ConfirmationRejected: As for `HumanInputRequest.response`.
        StoreError: The store failed.
    """
    if await request.ask():
        await request.meanwhile(requester(request))
    return await request.response()


@cache
def _text() -> Schema:
    return Schema.of_type(str)


def _came_second(work: asyncio.Future[None]) -> bool:
    return not work.cancelled() and isinstance(work.exception(), AlreadyDecidedError | RequestExpiredError)


@trimmed
def human_in_the_loop(
    requester: Requester, *, name: str = "ask_human", description: str | None = None, expires: timedelta | str = "24h",
    roles: Sequence[str] = (), risk: str | None = None, store: Store | str | None = None,
) -> Tool:  # fmt: skip
    """Return a tool with one argument, `question`, that asks a person: `answer = await tool.acall(question="…")`.

    An `Agent` or a `ReAct` takes it as a tool, too. It blocks until the first answer through any channel, and then
    cancels the requester. In a run with an id, a question that was asked before the program stopped is found again with
    its answer.

    Args:
        requester: Brings each question to a person.
        name, description: For the model.
        expires, roles, risk, store: As for `HumanInputRequest`.
    """
    if not callable(requester):
        raise ConfigError(f"human_in_the_loop takes a requester, a function that carries a question, not {requester!r}")
    duration.option("expires", expires)
    quorum_of(1, roles)
    if risk is not None and not isinstance(risk, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"risk= takes a text, not {risk!r}")

    async def ask_human(question: str) -> str:
        """Ask a person a question and wait for the answer."""
        request = HumanInputRequest(question, expires=expires, roles=roles, risk=risk, store=store)
        return await carried(request, requester)

    return Tool(ask_human, name=name, description=description, store=store)
