"""The outcome of a call: failed or unknown, as judged by its exception; and the earlier requests that a call repeats.

A call that may have taken effect (a timeout, or a connection lost after sending) ends as `unknown`; a call that raised
anything else ends as `failed`. An exception is judged together with its causes and contexts, even suppressed ones. Its
class is recognized by package and name, so no client library is imported. Invariant: an ambiguous error becomes
`failed` only if it certainly occurred before anything was sent, or is `NotExecuted`.

The earlier request of a call is that of its key, with its stored result, or the one that the call has waited for. A key
finds its request forever, even if a rule now allows the call. Invariant: no call runs in addition to the request of its
key, or against what a person decided while it waited; and nobody asks how a call ended that is known to go on.
"""

from __future__ import annotations

import errno
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from sayso import clock, errors
from sayso.drivers import Attempt, Operations, StoreCall, Suspended, left_to_run
from sayso.gates.hooks import ask_verify, key_of, secrets_known, shown_result, unchanged
from sayso.gates.options import Gate
from sayso.gates.scope import Occasion
from sayso.gates.signals import Caller, ConfirmationRequired
from sayso.model import canonical, redaction
from sayso.model.ids import call_digest
from sayso.model.lifecycle import Outcome, is_due, result_to_keep
from sayso.model.parameters import annotated, hints_of
from sayso.model.request import Request, State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.schema import Schema
from sayso.policy import Happened, Verdict
from sayso.stores import processes
from sayso.stores.program import ProgramStore


class NotExecuted(Exception):
    """Raised by a gated function to say that its call certainly did nothing, whatever error caused it.

    The call ends as `failed` and not as `unknown`. The approval is used up, and the message is recorded.

    Example:
        ```python
        @sayso.gate(wait="raise")
        def pay(amount: int) -> None:
            try:
                bank.pay(amount)
            except bank.LockTimeout as error:  # the bank promises that nothing was booked
                raise sayso.NotExecuted("the account is locked") from error
        ```
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


NotExecuted.__module__ = "sayso"


def _names(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names.split())


def _of_httpx(names: str) -> frozenset[str]:
    packages = ("httpx", "httpx2", "httpcore", "httpcore2")
    return frozenset[str]().union(*(_names(package, names) for package in packages))


# Raised by a socket, before or after a connection exists. If the error around it says that there was none, it does not
# count.
_SOCKET = _names("builtins", "TimeoutError ConnectionResetError ConnectionAbortedError BrokenPipeError") | _names(
    "ssl", "SSLEOFError SSLZeroReturnError SSLSyscallError"
)
# Likewise, if the details of the error say that a connection broke (`_has_broken`).
_TLS = "ssl.SSLError"
_POSTGRES = {"asyncpg.PostgresConnectionError", "psycopg.OperationalError", "psycopg2.OperationalError"}
_POSTGRES_CLOSED = {"asyncpg.InterfaceError", "psycopg2.InterfaceError"}
_MYSQL = _names("mysql", "InterfaceError OperationalError") | {"MySQLdb.OperationalError", "pymysql.OperationalError"}
# Raised after something was or may have been sent; also the interrupts of job queues, which hit a call anywhere.
_SENT = frozenset[str]().union(
    _of_httpx("ReadTimeout WriteTimeout ReadError WriteError CloseError RemoteProtocolError TimeoutException"),
    _names("aiohttp", "ServerDisconnectedError ServerTimeoutError ClientOSError ClientPayloadError"),
    _names("aiohttp", "ClientConnectionResetError ClientConnectionError HttpProcessingError"),
    _names("asyncio", "IncompleteReadError"),
    _names("billiard", "SoftTimeLimitExceeded Terminated TimeLimitExceeded TimeoutError WorkerLostError"),
    _names("botocore", "ReadTimeoutError ConnectionClosedError HTTPClientError ResponseStreamingError"),
    _names("botocore", "IncompleteReadError"),
    _names("celery", "SoftTimeLimitExceeded TimeLimitExceeded TimeoutError WorkerLostError"),
    _names("concurrent", "CancelledError TimeoutError BrokenExecutor"),
    _names("grpc", "FutureTimeoutError"),
    _names("h11", "RemoteProtocolError"),
    _names("http", "RemoteDisconnected IncompleteRead BadStatusLine"),
    _names("multiprocessing", "TimeoutError"),
    _names("requests", "ChunkedEncodingError"),
    _names("rq", "BaseTimeoutException"),
    _names("sayso", "OutcomeNotRecordedError"),
    _names("smtplib", "SMTPServerDisconnected"),
    _names("subprocess", "TimeoutExpired"),
    _names("urllib3", "IncompleteRead InvalidChunkLength TimeoutError"),
)
# Classes for errors both before and after sending: the error that they carry decides; without one, nobody knows.
_EITHER = frozenset[str]().union(
    _names("anthropic", "APIConnectionError"),
    _names("openai", "APIConnectionError"),
    _names("requests", "ConnectionError Timeout"),
    _names("stripe", "APIConnectionError"),
    _names("urllib3", "ProtocolError ReadTimeoutError"),
)
# Raised before anything was sent: no address, no connection, no handshake, no free connection in the pool.
_NOT_SENT = frozenset[str]().union(
    _names("builtins", "ConnectionRefusedError"),
    _names("socket", "gaierror herror"),
    _names("ssl", "SSLCertVerificationError"),
    _of_httpx("ConnectTimeout PoolTimeout ConnectError ProxyError LocalProtocolError UnsupportedProtocol"),
    _names("aiohttp", "ClientConnectorError ConnectionTimeoutError ServerFingerprintMismatch"),
    _names("botocore", "ConnectTimeoutError EndpointConnectionError ProxyConnectionError"),
    _names("psycopg", "ConnectionTimeout"),
    _names("psycopg_pool", "PoolClosed PoolTimeout TooManyRequests"),
    _names("requests", "ConnectTimeout ProxyError"),
    _names("urllib3", "NewConnectionError NameResolutionError ConnectTimeoutError ProxyError"),
)
# Raised for a certificate, and also for a connection that broke during sending: only the error inside decides.
_SILENT = _names("requests", "SSLError") | _names("botocore", "SSLError")

# SQLSTATEs of a connection that broke, of a server that crashed, and of a statement whose end the server does not know.
_SQL_OPEN, _SQL_NOT_CONNECTED = ("08", "40003", "57P02"), {"08001", "08004"}
_MYSQL_OPEN = {2006, 2013, 2055}  # gone away; lost while a statement ran; the same, with the system's error
_DISK_OR_LINE = {errno.EIO, errno.ETIMEDOUT}

_GRPC_OPEN = {"DEADLINE_EXCEEDED", "UNAVAILABLE", "UNKNOWN", "CANCELLED"}
_NOT_EXECUTED = "sayso.NotExecuted"
_DETAILED = _POSTGRES | _POSTGRES_CLOSED | _MYSQL | {_TLS, "grpc.RpcError"}
_KNOWN = _SOCKET | _SENT | _EITHER | _NOT_SENT | _SILENT | _DETAILED | {_NOT_EXECUTED}
# Where Python itself and database drivers connect. An error raised inside these occurred before anything was sent.
_CONNECTS = {
    ("socket", "create_connection"), ("ssl", "do_handshake"), ("asyncio.base_events", "create_connection"),
    ("MySQLdb.connections", "__init__"), ("aiomysql.connection", "_connect"), ("asyncpg.connection", "connect"),
    ("mysql.connector.abstracts", "connect"), ("psycopg.connection", "connect"),
    ("psycopg.connection_async", "connect"), ("psycopg2", "connect"), ("pymysql.connections", "connect"),
}  # fmt: skip
_ERROR_LIMIT = 2_000
_STANDARD = {"builtins", "socket", "ssl"}


def is_ambiguous(
    error: BaseException, also: tuple[type[BaseException], ...] = (), handled: BaseException | None = None
) -> bool:
    """Return whether the call may have taken effect in spite of an error.

    Args:
        error: The call's exception.
        also: Further ambiguous classes, from the gate's author.
        handled: The error that the caller was handling when it made the call; earlier errors are not judged.
    """
    try:
        return bool(_Judge(also, handled).judge([error]))
    except Exception:  # noqa: BLE001  reading an error may run user code; if that fails, nothing is known
        return True


class _Judge(NamedTuple):
    """Judges whether a call may have taken effect: True, False (nothing was sent), or None (the errors do not say).

    Attributes:
        also: Further ambiguous classes.
        handled: The error that the caller was handling when it made the call.
    """

    also: tuple[type[BaseException], ...]
    handled: BaseException | None

    def judge(self, errors: Iterable[BaseException]) -> bool | None:
        """Return the judgement of several errors together."""
        met = set[tuple[int, bool]]()
        return _together([self._judge_one(error, met, is_explained=False) for error in errors])

    def _judge_one(self, error: BaseException, met: set[tuple[int, bool]], *, is_explained: bool) -> bool | None:
        """Return the judgement of one error; `is_explained`: an error around it says that there was no connection."""
        key, name = (id(error), is_explained), _known_name(error)
        if key in met or name == _NOT_EXECUTED:
            return None
        met.add(key)
        is_interrupt = not isinstance(error, Exception)  # a cancellation, Ctrl-C or exit: it may hit a call anywhere
        if isinstance(error, self.also) or (is_interrupt and not is_explained):
            return True
        inside = list(_inside(error, name, self.handled))
        if name in _EITHER:
            return self.judge(inside) is not False
        is_broken = name in _SOCKET or _has_broken(name, error)
        is_before = name in _NOT_SENT or (is_broken and _was_connecting(error.__traceback__))
        is_after = name in _SENT or (is_broken and not is_explained) or _is_open_rpc(name, error)
        if is_after and not is_before:
            return True
        # If there was no connection, the members of a group are attempts to connect.
        if isinstance(error, BaseExceptionGroup) and not is_explained:
            members: Sequence[BaseException] = cast("Any", error).exceptions
            if any(self.judge([member]) for member in members):
                return True
        # The context of a socket's own error, or of an interrupt, is earlier, and nothing here explains it. But a
        # timeout that ended a connection attempt explains the cancellation that it was made of.
        is_explained = is_explained or is_before
        explains = is_explained and not is_interrupt and name.partition(".")[0] not in _STANDARD
        cut_off = error.__cause__ if is_explained and name == "builtins.TimeoutError" else None
        judgement = _together(
            [
                self._judge_one(one, met, is_explained=explains or (one is cut_off and not isinstance(one, Exception)))
                for one in inside
            ]
        )
        return False if judgement is None and is_before else judgement


def _together(judgements: Collection[bool | None]) -> bool | None:
    return True if True in judgements else False if False in judgements else None


def _known_name(error: BaseException) -> str:
    """Return the first known class of an error; empty if there is none."""
    for kind in type(error).__mro__:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        if name in _KNOWN:
            return name
    return ""


def _inside(error: BaseException, name: str, handled: BaseException | None) -> Iterator[BaseException]:
    """Yield the cause and the context of an error, and the errors that it carries."""
    cause, context = error.__cause__, error.__context__
    if cause is not None:
        yield cause
    # `raise ... from None`, or from another error, hides the context from readers, but does not undo what it was about.
    if context is not None and context is not handled and name not in _EITHER:  # those carry the relevant error
        yield context
    for carried in (*error.args, getattr(error, "reason", None)):  # requests and urllib3 carry errors in these
        if isinstance(carried, BaseException):
            yield carried


def _was_connecting(step: TracebackType | None) -> bool:
    while step is not None:
        frame = step.tb_frame
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _CONNECTS:
            return True
        step = step.tb_next
    return False


def _has_broken(name: str, error: Any) -> bool:
    """Return whether the details of an error say that the connection of a database, a socket or a disk broke."""
    if name in _POSTGRES:
        state = getattr(error, "pgcode" if name.startswith("psycopg2") else "sqlstate", None)
        return state is None or (state.startswith(_SQL_OPEN) and state not in _SQL_NOT_CONNECTED)
    if name in _POSTGRES_CLOSED:
        return "connection" in str(error) and "closed" in str(error)
    if name in _MYSQL:
        return bool(error.args) and error.args[0] in _MYSQL_OPEN
    if name == _TLS:
        return "timed out" in str(error) and "handshake" not in str(error)
    return name == "" and isinstance(error, OSError) and error.errno in _DISK_OR_LINE


def _is_open_rpc(name: str, error: Any) -> bool:
    if name != "grpc.RpcError":
        return False
    code = getattr(error, "code", None)
    return not callable(code) or getattr(code(), "name", "UNKNOWN") in _GRPC_OPEN


def exception_classes(given: Any, option: str = "ambiguous=") -> tuple[type[BaseException], ...]:
    """Return the exception classes in `ambiguous=` or another option: one class, or several.

    Raises:
        ConfigError: A value is not an exception class.
    """
    several = (
        cast("Collection[Any]", given) if isinstance(given, Collection) and not isinstance(given, str) else [given]
    )
    for one in several:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise errors.ConfigError(f"{option} takes exception classes, not {one!r}")
        if issubclass(one, NotExecuted):
            raise errors.ConfigError(f"{option} cannot take {one.__name__}, which means that the call had no effect")
    return tuple(several)


def mark_unknown(error: BaseException, request_id: str, *, may_start_again: bool) -> None:
    """Note on an error that the outcome of its call is unknown, for readers and for the enclosing run."""
    hint = "it may be started again, because it is idempotent" if may_start_again else "it is not retried automatically"
    note = (
        f"sayso: the outcome of {request_id} is unknown: the call was started, and this error does not say whether it"
        f" took effect; {hint}. Find out whether it took effect, then run `sayso resolve {request_id} --happened` or"
        " `--did-not`"
    )
    with suppress(Exception):  # an error may not allow changes
        error.add_note(note)
        error._sayso_unknown = request_id  # type: ignore[attr-defined]  # noqa: SLF001  an attribute of ours on it


def unknown_request(error: BaseException) -> str | None:
    """Return the request whose outcome is unknown because of this error, one of its causes or one of its contexts."""
    met, waiting = set[int](), [error]
    while waiting:
        current = waiting.pop()
        if id(current) in met or isinstance(current, NotExecuted):
            continue
        met.add(id(current))
        found = current.__dict__.get("_sayso_unknown")
        if isinstance(found, str):
            return found
        # The context counts even if it is suppressed, as in `_inside`.
        waiting += [one for one in (current.__context__, current.__cause__) if one is not None]
    return None


class Handled(NamedTuple):
    """What the program was handling when it made a call, if it is in an `except` block.

    Attributes:
        error: The error.
        trace: Its traceback then. It grows if the call meets the same object again, as some clients store what they
            raise.
    """

    error: BaseException | None
    trace: TracebackType | None

    @classmethod
    def now(cls) -> Self:
        """Return what is handled here."""
        error = sys.exc_info()[1]
        return cls(error, None if error is None else error.__traceback__)

    def before(self) -> BaseException | None:
        """Return the error if it is older than the call and has nothing to do with it."""
        return None if self.error is None or self.error.__traceback__ is not self.trace else self.error


def judged(gate: Gate, attempt: Attempt, handled: Handled | None = None) -> Attempt:
    """Return how a call ended, with the two facts that only the gate knows."""
    if isinstance(attempt.raised, gate.suspends):  # it paused for its framework, and has not ended
        return attempt
    if isinstance(attempt.raised, ConfirmationRequired):  # of a gate inside the started call, which thereby ends
        note = (
            f"sayso: {gate.name} was approved and started, and is recorded as failed, because a call inside it waits:"
            " calling it again asks for it again, and repeats what it did before. Use one gate, around the outer call;"
            " or give that gate suspends=sayso.ConfirmationRequired, which keeps its approval"
        )
        with suppress(Exception):  # as in `mark_unknown`; `add_note` would lose it: the others are made at each access
            attempt.raised.__notes__ = [*getattr(attempt.raised, "__notes__", ()), note]
    if isinstance(attempt.raised, Exception):  # an interrupted call is unknown anyway
        before = None if handled is None else handled.before()
        return attempt._replace(is_ambiguous=is_ambiguous(attempt.raised, gate.ambiguous, before))
    left = None if type(attempt.value) in _WHOLE else left_to_run(attempt.value)
    if left is None:
        return attempt
    # Nobody here learns how that ends, and the call would be recorded as done.
    what, has_begun = left
    text = f"{gate.name} returned {what}, whose work would run after the call; gate the async function that does it"
    return Attempt(None, TypeError(f"{text}, or one that runs it to its end"), is_ambiguous=has_begun)


_OPEN = {State.PENDING, State.APPROVED}
_WHOLE = {type(None), bool, int, float, str, bytes, dict, list, tuple}


def outcome_of(gate: Gate, request: Request, attempt: Attempt) -> Outcome:
    """Return the outcome to record for a call, secrets masked."""
    if attempt.raised is None:
        value = attempt.value
        shown = None if value is None else shown_result(gate, request, value)
        for_replay = (None, None) if request.key is None else result_to_keep(value)
        return Outcome("done", shown, None, *for_replay)
    if isinstance(attempt.raised, (Suspended, *gate.suspends)):
        return Outcome("suspended")
    text = redaction.error_text(attempt.raised, secrets_known(gate, request))
    if isinstance(attempt.raised, ConfirmationRequired):
        why = "a call or a question inside it waits for a person"
        text = f"it stopped because {why}; what it did before is done ({text})"
    if len(text) > _ERROR_LIMIT:
        text = f"{text[:_ERROR_LIMIT]} … ({len(text) - _ERROR_LIMIT} more characters)"
    state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"
    return Outcome(state, error=text, not_run=state == "failed" and isinstance(attempt.raised, NotExecuted))


def asked_before(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], occasion: Occasion, verdict: Verdict,
    waited: Request | None = None,
) -> Operations[Request | None]:  # fmt: skip
    """Return the earlier request of a call that its rule now allows, if there is one.

    A rule may depend on the time, and its file may have changed. What a person decided about this call counts
    nevertheless, and so does the request of its key, or one that was answered here. None if nobody was asked, the rule
    denies the call, or nobody answered in time. Raises `PolicyError` if the arguments changed meanwhile.

    Args:
        gate, store, arguments, occasion: As for `gated_call`.
        verdict: The rule's verdict.
        waited: The request for which this very call has waited.
    """
    if verdict.kind == "deny":
        return None
    if waited is not None:
        return (yield from unchanged(gate, arguments, _if_it_answers(store, waited.id)))
    if occasion.has_name and (occasion.key is not None or gate.key is not None):
        found = yield from unchanged(gate, arguments, _of_key(gate, store, arguments, occasion))
        if found is not None:
            return found
    with suppress(errors.ArgumentError):  # such a call was never asked
        adopted = occasion.adopted.get(_digest(gate, arguments)) if occasion.adopted else None
        if adopted is not None:
            return (yield from unchanged(gate, arguments, _if_it_answers(store, adopted)))
    return None


def _of_key(
    gate: Gate, store: ProgramStore, arguments: dict[str, Any], occasion: Occasion
) -> Operations[Request | None]:  # fmt: skip
    keyed = occasion._replace(key=(yield from key_of(gate, arguments, occasion)))
    return (yield from find_keyed(gate, store, lambda: _digest(gate, arguments), keyed))


def _if_it_answers(store: ProgramStore, request_id: str) -> Operations[Request | None]:
    """Return the current request if it still answers its call."""
    found: Request | None = None
    with suppress(errors.RequestNotFoundError):
        found = yield StoreCall(store.settle, request_id)
    return found if found is not None and (found.holds or found.key is not None) else None


def held_by_now(store: ProgramStore, found: Request) -> Operations[Request | None]:
    """Return the settled request; None if it no longer answers a call.

    An approval is compared with the journal when it is started; a request that ends the call here, by `settle`.
    """
    if found.state not in _OPEN or is_due(found, clock.now()):
        found = yield StoreCall(store.settle, found.id)
    return found if found.holds else None


def _digest(gate: Gate, arguments: dict[str, Any]) -> str:
    return call_digest(gate.tool, gate.schema.digest, canonical.encode(arguments).digest_input)


def find_keyed(
    gate: Gate, store: ProgramStore, digest: Callable[[], str], occasion: Occasion
) -> Operations[Request | None]:  # fmt: skip
    """Return the current request with a key, if the digest of its call is that of `digest`.

    A request that ends the call here is compared with the journal; an approval is when it is started.

    Raises:
        KeyReusedError: The key was used for another call.
    """
    run_id, key = occasion.run_ids[0], cast("str", occasion.key)
    found: Request | None = yield StoreCall(store.find_key, run_id, key)
    if found is None:
        return None
    if found.subject.digest != digest():
        is_same = getattr(found.subject, "tool", None) == gate.tool
        other = f"another tool, {getattr(found.subject, 'tool', 'a question')}"
        what = "other arguments, or another schema of them" if is_same else other
        raise errors.KeyReusedError(run_id, key, request_id=found.id, what=what)
    is_open = found.state in _OPEN and not is_due(found, clock.now())
    return found if is_open else (yield StoreCall(store.settle, found.id))


def replay(gate: Gate, store: ProgramStore, request: Request) -> Operations[Any]:
    """Return the result of the call with a key, whichever process ran it.

    Raises:
        CallFailedError: The call failed.
        ValueNotKeptError: Its result was not kept, or cannot be read here.
    """
    if request.state is State.FAILED:
        raise errors.CallFailedError(request.id, error=None if request.execution is None else request.execution.error)
    text: str = yield StoreCall(store.result, request.id)
    annotation = hints_of(annotated(inspect.unwrap(gate.function))).get("return")
    classes: Mapping[str, type] = {} if annotation is None else Schema.of_type(annotation).classes
    try:
        return canonical.decode(text, classes)["result"]
    except errors.ArgumentError as error:
        raise errors.ValueNotKeptError(request.id, f"cannot be read here ({error.reason})") from None


def look_into(
    gate: Gate, store: ProgramStore, request: Request, wanted: Occasion, caller: Caller
) -> Operations[Attempt | Request | None]:  # fmt: skip
    """Ask the gate's `verify=` hook about a call with an unknown outcome, and record its answer.

    Returns:
        How the call ended; or the request, if it is to be started again; or None, if the call is to be asked again.

    Raises:
        OutcomeUnknownError: It has not ended, as far as can be seen here; or nobody can tell, and the call is not
            idempotent.
    """
    # A call whose lease was lost, or whose task was cancelled, may go on: what the hook sees of it would change.
    execution = request.execution
    worker = None if execution is None or execution.finished_at is not None else execution.worker
    running = processes.running_at(request.id, worker)
    if running is not None:
        raise errors.OutcomeUnknownError(request.id, running=running)
    answer = None if gate.verify is None else (yield from ask_verify(gate, gate.verify, request))
    if answer is None:
        if request.idempotent and wanted.lack_of(request) is None:
            return request
        raise errors.OutcomeUnknownError(request.id)
    hook = Identity(PROGRAM, f"verify={getattr(gate.verify, '__name__', 'hook')}")
    resolve = partial(
        store.resolve, roles=None, happened=bool(answer), comment=None, channel="verify",
        token=None if execution is None else execution.token,
    )  # fmt: skip
    try:
        resolved: Request = yield StoreCall(resolve, request.id, hook)
    except errors.NotUnknownError:  # somebody else resolved it, and may have started it again; its new state decides
        return (yield StoreCall(store.settle, request.id))
    if answer:
        caller.happened(resolved)
        return Attempt(answer.result if isinstance(answer, Happened) else None, None)
    return resolved if resolved.state is State.APPROVED or resolved.key is not None else None
