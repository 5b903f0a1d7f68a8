"""`ask`: a typed question to a person, answered through any channel.

The question is a request like a held call. In a named run an equal question finds its answer again, also in another
process; asked a second time in the same run of the program, it is a new question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from sayso import config
from sayso.drive import Effects, adrive, drive
from sayso.errors import ConfigError
from sayso.gates.declared import quorum_of, span_of
from sayso.model.keywords import checks_keywords
from sayso.model.quorum import Quorum
from sayso.model.request import State
from sayso.model.schema import Schema
from sayso.model.text import storable
from sayso.stores.base import Store
from sayso.waiting import scope, signals
from sayso.waiting.block import block_of
from sayso.waiting.frames import say, trim
from sayso.waiting.question import Asking
from sayso.waiting.waiter import Waiter

__all__ = ["AskOptions", "aask", "ask"]

T = TypeVar("T")

# Shapes live as long as somebody holds them, and who answers in this process should find the types themselves.
_lately: deque[Schema] = deque(maxlen=128)


class AskOptions(TypedDict, total=False):
    """What `ask` takes beside the question and the type of its answer."""

    expires: timedelta | str
    roles: Collection[str]
    risk: str | None
    wait: Literal["block", "raise"]
    timeout: timedelta | str | None
    on_expiry: Literal["reject", "ask"]
    store: Store | str | None


@overload
def ask(question: str, *, type: type[T], **options: Unpack[AskOptions]) -> T: ...
@overload
def ask(question: str, *, choices: Sequence[T], **options: Unpack[AskOptions]) -> T: ...
@overload
def ask(question: str, **options: Unpack[AskOptions]) -> str: ...
@overload
def ask(question: str, *, type: Any, **options: Unpack[AskOptions]) -> Any: ...
def ask(question: str, **options: Any) -> Any:
    """Ask a person, wait for the answer, and return it as a value of the type.

    Args:
        question: What is asked.
        type: `bool`, `str`, a number, an Enum, a `Literal`, a pydantic model, …; `str` by default.
        choices: The values to choose from, in place of a type.
        expires: How long the question waits.
        roles: The one who answers must have one of these.
        risk: A word of yours.
        wait: `block` or `raise`, as for `sayso.gate`.
        timeout: With `block`, how long to stand there before `ConfirmationRequired` is raised.
        on_expiry: With `block`: `reject` raises `ConfirmationExpired`, `ask` asks anew.
        store: Where the question lives, instead of the configured store.

    Raises:
        ConfirmationRequired: It waits for a person (with `wait="raise"`, after `timeout`, or when detached).
        ConfirmationRejected: The person would not answer, or nobody did in time.
        InvalidAnswerError: The answer came from where the type's own validators are not, and they refuse it here.
        ConfigError: No answer of this type could be kept and checked.
        StoreError: The question could not be recorded.
    """
    try:
        return drive(_asking(question, **options))
    except BaseException as error:
        trim(error)
        if isinstance(error, ConfigError):
            say(error, "nothing was asked")
        raise


@overload
async def aask(question: str, *, type: type[T], **options: Unpack[AskOptions]) -> T: ...
@overload
async def aask(question: str, *, choices: Sequence[T], **options: Unpack[AskOptions]) -> T: ...
@overload
async def aask(question: str, **options: Unpack[AskOptions]) -> str: ...
@overload
async def aask(question: str, *, type: Any, **options: Unpack[AskOptions]) -> Any: ...
async def aask(question: str, **options: Any) -> Any:
    """Ask a person without blocking the event loop; see `ask`."""
    try:
        return await adrive(_asking(question, **options))
    except BaseException as error:
        trim(error)
        if isinstance(error, ConfigError):
            say(error, "nothing was asked")
        raise


@checks_keywords(name="ask")
def _asking(
    question: str, *, type: Any = None, choices: Sequence[Any] | None = None, expires: timedelta | str = "24h",
    roles: Collection[str] = (), risk: str | None = None, wait: Literal["block", "raise"] = "block",
    timeout: timedelta | str | None = None, on_expiry: Literal["reject", "ask"] = "reject",
    store: Store | str | None = None,
) -> Effects[Any]:  # fmt: skip
    span, quorum = _checked(question, expires, roles, risk, store)
    question, shape = storable(question), _shape(_answer_type(type, choices))
    _lately.append(shape)
    block, where = block_of(wait, timeout, on_expiry), config.open_store(store)
    here = scope.current()
    asking = Asking(question, shape, here, place=here.place_of_raise() if block is None else None)
    waiter = Waiter(here, where)

    def answered() -> Effects[Any]:
        while True:
            request = yield from asking.find_or_ask(where, span, quorum, risk)
            if request.state is State.PENDING:
                if block is None:
                    raise signals.ConfirmationRequired.of(request)
                request = yield from block.until_decided(where, request, waiter)
            if request.state is State.ANSWERED:
                return (yield from asking.answer(where, request))
            if request.state is not State.EXPIRED:
                raise signals.refused(request)

    return (yield from waiter.over(answered()))


def _checked(
    question: object, expires: timedelta | str, roles: Collection[str], risk: object, store: object
) -> tuple[timedelta, Quorum]:
    """Refuse options that cannot be used, before anything is asked."""
    if not isinstance(question, str):
        raise ConfigError(f"ask() takes a question as a text, not {question!r}")
    if risk is not None and not isinstance(risk, str):
        raise ConfigError(f"risk= takes a text, not {risk!r}")
    config.check_store(store)
    return span_of("expires", expires), quorum_of(1, roles)


def _answer_type(type: Any, choices: Sequence[Any] | None) -> Any:
    if choices is None:
        return str if type is None else type
    if type is not None:
        raise TypeError("ask() takes type= or choices=, not both; nothing was asked")
    if isinstance(choices, str) or not isinstance(choices, Collection) or not choices:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"choices= takes a list of at least one value, not {choices!r}; nothing was asked")
    return Literal[cast("Any", tuple(choices))]


def _shape(answer_type: Any) -> Schema:
    shape = Schema.of_type(answer_type)
    node = shape.resolved(shape.properties["answer"])
    if node.get("x-sayso-type") == "set" or node.keys() == {"x-sayso-code"}:
        raise ConfigError(
            f"type= {answer_type!r} cannot be asked for: it has no form in which an answer could be kept and checked"
        )
    return shape
