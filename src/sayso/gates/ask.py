"""`ask`: asks a person a question, stores it as a request, and waits for the answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from sayso import clock, config
from sayso.config import requester
from sayso.effects import Operations, StoreCall, adrive, drive
from sayso.errors import ConfigError, InvalidAnswerError
from sayso.gates import exceptions, scope
from sayso.gates.caller import not_found_again, open_request
from sayso.gates.exceptions import add_not_run, trim
from sayso.gates.options import block_of, check_known, quorum_of
from sayso.gates.scope import CallSite, Scope
from sayso.gates.wait import Waiter
from sayso.model import duration
from sayso.model.ids import fingerprint, new_request_id, question_digest
from sayso.model.lifecycle import is_due
from sayso.model.request import Question, Request, State
from sayso.model.reviewer import Quorum
from sayso.model.schema import Schema, SchemaError
from sayso.model.text import storable
from sayso.stores import workers
from sayso.stores.base import Store


class Asking:
    """A question that is being asked.

    Args:
        text: The question.
        schema: The schema of the answer.
        here: The run in which it is asked.
        site: The runs whose answers apply. Defaults to those that a blocking call would find.
        at: The place in a journaled run where it is asked, if `here` does not know it. Equal questions at two places
            have two answers.
    """

    def __init__(self, text: str, schema: Schema, here: Scope, at: str = "", *, site: CallSite | None = None) -> None:
        self._schema, self._here = schema, here
        self._around = here.call_site(blocks=True) if site is None else site
        self._at = at or next((known.at for known in here.lineage() if known.at), "")
        self._occasion = question_digest(text, schema.digest, 0)
        # A question that was answered in a parent of this task is asked again as well.
        self._number = max(known.occasions.get(self._occasion, 0) for known in here.lineage())
        self._subject = Question(text, question_digest(text, schema.digest, self._number), schema.text, schema.digest)

    def find_or_ask(self, store: Store, expires: timedelta, quorum: Quorum, risk: str | None) -> Operations[Request]:
        """Return the request of this question, an existing one or else a new one; durable on return.

        Raises:
            StoreError: The question could not be recorded.
        """
        wanted, digest = self._around._replace(quorum=quorum), self._subject.digest
        left = wanted.adopted.get(digest)
        finds = [] if left is None else [StoreCall(store.get, left)]
        finds += [StoreCall(store.find, fingerprint(run_id, digest, self._at)) for run_id in wanted.run_ids]
        for find in finds:
            found: Request | None = yield find
            if found is not None and is_due(found, clock.now()):
                found = yield StoreCall(store.settle, found.id)
            if found is None or not found.holds:
                continue
            lacks = wanted.lack_of(found) if found.state in {State.PENDING, State.ANSWERED} else None
            if lacks is None:
                request = found
                break
            yield StoreCall(store.withdraw, found.id, requester(), lacks)
            wanted = wanted.joined(found)
        else:
            if wanted.pool is not None:
                raise not_found_again("the question", wanted.pool)
            now, run_id = clock.now(), wanted.run_ids[0]
            new = Request(
                id=new_request_id(), kind="question", run_id=run_id, fingerprint=fingerprint(run_id, digest, self._at),
                place=self._at, subject=self._subject, requester=requester(), created_at=now, expires_at=now + expires,
                approval_window=expires, quorum=wanted.quorum,
                on_behalf_of=wanted.acts_for[0] if wanted.acts_for else None, also_for=wanted.acts_for[1:],
                process=workers.current() if wanted.name is None else None, risk=risk,
            )  # fmt: skip
            request = yield from open_request(store, new)
        if request.state is State.PENDING:
            self._here.raised[request.id] = None
        return request

    def answer(self, store: Store, request: Request) -> Operations[Any]:
        """Return the answer as a value of the type; the next equal question of this run is a new one.

        The type's own validators check it here once more, because the reviewer's process may not have had them.

        Raises:
            InvalidAnswerError: They reject it.
            StoreCorruptError: The row does not match the journal, so this is not the recorded answer.
        """
        request = yield StoreCall(store.settle, request.id)
        text = "{}" if request.decision is None or request.decision.answer is None else request.decision.answer
        try:
            answer = self._schema.validate(self._schema.decode(text))["answer"]
        except SchemaError as error:
            yield StoreCall(store.withdraw, request.id, requester())
            raise InvalidAnswerError(request.id, error.problems, still_waits=False) from None
        self._here.forget(request.id)
        # Several tasks of the run may have asked this at once; all of them get this one answer.
        heard = self._here.occasions.get(self._occasion, 0)
        self._here.occasions[self._occasion] = max(heard, self._number + 1)
        return answer


T = TypeVar("T")

# Kept alive, because live schemas are weakly referenced, and a reviewer in this process should find the types.
_lately: deque[Schema] = deque(maxlen=128)


class AskOptions(TypedDict, total=False):
    """The options of `ask` besides the question and the type of its answer."""

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
        question: The question.
        type: `bool`, `str`, a number, an Enum, a `Literal`, a pydantic model, …; `str` by default.
        choices: The values to choose from, in place of a type.
        expires: How long the question waits.
        roles: The person who answers must have one of these.
        risk: A word of your own.
        wait: `block` or `raise`, as for `sayso.gate`.
        timeout: With `block`, how long to wait before `ConfirmationRequired` is raised.
        on_expiry: With `block`: `reject` raises `ConfirmationExpired`, `ask` asks again.
        store: The store for the question, instead of the configured store.

    Raises:
        ConfirmationRequired: It waits for a person (with `wait="raise"`, after `timeout`, or when detached).
        ConfirmationRejected: The person refused to answer, or nobody answered in time.
        InvalidAnswerError: The type's own validators, which the reviewer's process did not have, reject the answer.
        ConfigError: An answer of this type cannot be stored and validated.
        StoreError: The question could not be recorded.
    """
    try:
        return drive(_asking(question, **options))
    except BaseException as error:
        trim(error)
        if isinstance(error, ConfigError):
            add_not_run(error, "nothing was asked")
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
            add_not_run(error, "nothing was asked")
        raise


def _asking(
    question: str, *, type: Any = None, choices: Sequence[Any] | None = None, expires: timedelta | str = "24h",
    roles: Collection[str] = (), risk: str | None = None, store: Store | str | None = None, **waits: Any,
) -> Operations[Any]:  # fmt: skip
    check_known("ask", waits, AskOptions.__optional_keys__ | {"type", "choices"})
    if not isinstance(question, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"ask() takes a question as a string, not {question!r}")
    if risk is not None and not isinstance(risk, str):  # pyright: ignore[reportUnnecessaryIsInstance]  the same
        raise ConfigError(f"risk= takes a string, not {risk!r}")
    config.check_store(store)
    span, quorum = duration.option("expires", expires), quorum_of(1, roles)
    question, schema = storable(question), _schema(_answer_type(type, choices))
    _lately.append(schema)
    block, where = block_of(waits), config.open_store(store)
    here = scope.current()
    asking = Asking(question, schema, here, site=here.call_site(blocks=block is not None))
    waiter = Waiter(here, where, block)
    try:
        while True:
            request = yield from asking.find_or_ask(where, span, quorum, risk)
            if request.state is State.PENDING:
                if block is None:
                    raise exceptions.ConfirmationRequired.of(request)
                request = yield from waiter.until_decided(request, block)
            if request.state is State.ANSWERED:
                return (yield from asking.answer(where, request))
            if request.state is not State.EXPIRED:
                raise exceptions.refused(request)
    except BaseException as error:
        yield from waiter.break_off(error)
        raise
    finally:
        waiter.close()


def _answer_type(type: Any, choices: Sequence[Any] | None) -> Any:
    if choices is None:
        if isinstance(type, str):  # pydantic would take it for a forward reference, and accept anything
            raise ConfigError(f"type= takes a type, not the string {type!r}; nothing was asked")
        return str if type is None else type
    if type is not None:
        raise TypeError("ask() takes type= or choices=, not both; nothing was asked")
    if isinstance(choices, str) or not isinstance(choices, Collection) or not choices:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"choices= takes a list of at least one value, not {choices!r}; nothing was asked")
    return Literal[cast("Any", tuple(choices))]


def _schema(answer_type: Any) -> Schema:
    schema = Schema.of_type(answer_type)
    node = schema.resolved(schema.properties["answer"])
    if node.get("x-sayso-type") == "set" or node.keys() == {"x-sayso-code"}:
        raise ConfigError(
            f"type= {answer_type!r} cannot be used: an answer of this type could be neither stored nor checked"
        )
    return schema
