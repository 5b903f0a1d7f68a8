"""Which exceptions leave it open whether a call took effect.

A call that may have taken effect (a timeout, a connection lost after sending, a server error) ends as `unknown`; a
call that raised anything else ends as `failed`. An exception is judged together with its causes and contexts, even
suppressed ones. Its class is recognized by package and name, so no client library is imported. Invariant: an ambiguous
error becomes `failed` only if it certainly occurred before anything was sent, or is `NotExecuted`.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self, cast

from sayso import errors


class NotExecuted(Exception):
    """Raised by a gated function to say that its call certainly did nothing, whatever error caused it.

    The call ends as `failed` and not as `unknown`. The approval is used up, and the message is recorded. Raise a new
    one each time: it speaks for the call that it leaves first, and not for the calls around that.

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
_REDIS = _names("redis", "ConnectionError TimeoutError")
_MYSQL = _names("mysql", "InterfaceError OperationalError") | {"MySQLdb.OperationalError", "pymysql.OperationalError"}
# Raised after something was or may have been sent; also the interrupts of job queues, which hit a call anywhere.
_SENT = frozenset[str]().union(
    _of_httpx("ReadTimeout WriteTimeout ReadError WriteError CloseError RemoteProtocolError TimeoutException"),
    _of_httpx("DecodingError"),
    _names("aiohttp", "ServerDisconnectedError ServerTimeoutError ClientOSError ClientPayloadError"),
    _names("aiohttp", "ClientConnectionResetError ClientConnectionError HttpProcessingError"),
    _names("anthropic", "APIResponseValidationError"),
    _names("aiohttp", "ContentTypeError"),
    _names("aiokafka", "KafkaConnectionError KafkaTimeoutError RequestTimedOutError"),
    _names("asyncio", "IncompleteReadError"),
    _names("azure", "ServiceResponseError"),
    _names("billiard", "SoftTimeLimitExceeded Terminated TimeLimitExceeded TimeoutError WorkerLostError"),
    _names("botocore", "ReadTimeoutError ConnectionClosedError HTTPClientError ResponseStreamingError"),
    _names("botocore", "IncompleteReadError ResponseParserError"),
    _names("celery", "SoftTimeLimitExceeded TimeLimitExceeded TimeoutError WorkerLostError"),
    _names("concurrent", "CancelledError TimeoutError BrokenExecutor"),
    _names("google", "RetryError"),
    _names("grpc", "FutureCancelledError FutureTimeoutError"),
    _names("h11", "RemoteProtocolError"),
    _names("http", "RemoteDisconnected IncompleteRead BadStatusLine LineTooLong"),
    _names("imaplib", "IMAP4.abort"),
    _names("kafka", "KafkaConnectionError KafkaTimeoutError RequestTimedOutError"),
    _names("multiprocessing", "TimeoutError"),
    _names("openai", "APIResponseValidationError"),
    _names("pika", "AMQPHeartbeatTimeout ConnectionClosed StreamLostError"),
    _names("pymongo", "AutoReconnect WTimeoutError"),
    _names("requests", "ChunkedEncodingError ContentDecodingError"),
    _names("rq", "BaseTimeoutException"),
    _names("sayso", "OutcomeNotRecordedError"),
    _names("smtplib", "SMTPServerDisconnected"),
    _names("subprocess", "TimeoutExpired"),
    _names("urllib3", "DecodeError IncompleteRead InvalidChunkLength TimeoutError"),
    _names("websockets", "ConnectionClosed"),
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
    _names("aiohttp", "ClientConnectorError ClientHttpProxyError ConnectionTimeoutError ServerFingerprintMismatch"),
    _names("azure", "ServiceRequestError"),
    _names("botocore", "ConnectTimeoutError EndpointConnectionError"),
    _names("psycopg", "ConnectionTimeout"),
    _names("psycopg_pool", "PoolClosed PoolTimeout TooManyRequests"),
    _names("pymongo", "ServerSelectionTimeoutError"),
    _names("redis", "AuthenticationError BusyLoadingError MaxConnectionsError"),
    _names("requests", "ConnectTimeout"),
    _names("urllib3", "NewConnectionError NameResolutionError ConnectTimeoutError"),
)
# Raised for a certificate or a proxy, and also for a connection that broke during sending: the error inside decides.
_SILENT = _names("requests", "SSLError ProxyError") | _names("botocore", "SSLError ProxyConnectionError")

# Where errors carry the HTTP status of an answer. A server error (500 or above) does not say how far the server came; a
# gateway answers 502 and 504 for a lost connection and a timeout behind it. An error in spite of a success (below 300)
# says that the client could not use the answer.
_STATUS: dict[str, Callable[[Any], object]] = {
    "aiohttp.ClientResponseError": attrgetter("status"),
    "anthropic.APIStatusError": attrgetter("status_code"),
    "azure.HttpResponseError": attrgetter("status_code"),
    "botocore.ClientError": lambda error: error.response["ResponseMetadata"]["HTTPStatusCode"],
    "google.GoogleAPICallError": attrgetter("code"),
    "httpx.HTTPStatusError": attrgetter("response.status_code"),
    "httpx2.HTTPStatusError": attrgetter("response.status_code"),
    "openai.APIStatusError": attrgetter("status_code"),
    "requests.HTTPError": attrgetter("response.status_code"),
    "stripe.StripeError": attrgetter("http_status"),
    "urllib.HTTPError": attrgetter("code"),
    "urllib3.ResponseError": lambda error: int(str(error).split()[2]),  # "too many 503 error responses"
    "xmlrpc.ProtocolError": attrgetter("errcode"),
}
# Where clients decode an answer.
_DECODES = {
    ("aiohttp.client_reqrep", "json"), ("aiohttp.client_reqrep", "text"), ("http.client", "begin"),
    ("httpx._models", "json"), ("httpx2._models", "json"), ("mcp.client.session", "_validate_tool_result"),
    ("mcp.client.session", "validate_tool_result"), ("requests.models", "json"), ("urllib3.response", "json"),
}  # fmt: skip

# SQLSTATEs of a connection that broke, of a server that crashed, and of a statement whose end the server does not know.
_SQL_OPEN, _SQL_NOT_CONNECTED = ("08", "40003", "57P02"), {"08001", "08004"}
_MYSQL_OPEN = {2006, 2013, 2055}  # gone away; lost while a statement ran; the same, with the system's error
# A connection that times out ends with what the network last said, e.g. that there is no route to the host any more.
_DISK_OR_LINE = {
    errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH
}  # fmt: skip

# A pipe or connection that ended in the middle. An EOFError of `input()` or of a truncated file is another thing.
_ENDS_IN = {"ftplib", "multiprocessing.connection"}
_MCP = _names("mcp", "MCPError McpError")
_MCP_OPEN = {-32000, -32001, 408}  # the connection was closed; a request timed out, also in the first version
_SUCCESS, _SERVER_ERROR = range(200, 300), 500
# `INTERNAL` is also what a client says that cannot decode the answer.
_GRPC_OPEN = {"CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"}
_CHILD = "subprocess.CalledProcessError"
_NOT_EXECUTED = "sayso.NotExecuted"
_DETAILED = _POSTGRES | _POSTGRES_CLOSED | _MYSQL | _REDIS | _MCP | {_CHILD, _TLS, "grpc.RpcError", "builtins.EOFError"}
_KNOWN = _SOCKET | _SENT | _EITHER | _NOT_SENT | _SILENT | _DETAILED | set(_STATUS) | {_NOT_EXECUTED}
_LIBRARIES = {name.partition(".")[0] for name in _KNOWN} | {
    "aiohappyeyeballs", "aiomysql", "anyio", "contextlib", "exceptiongroup", "fastmcp",
}  # fmt: skip
# Where Python itself, clients and drivers connect. An error raised inside these occurred before anything was sent.
_CONNECTS = {
    ("socket", "create_connection"), ("ssl", "do_handshake"), ("asyncio.base_events", "create_connection"),
    ("http.client", "connect"), ("urllib3.connection", "connect"),  # also through a proxy
    ("smtplib", "connect"), ("smtplib", "login"), ("mcp.client.session", "initialize"),
    ("fastmcp.client.client", "_connect"),
    ("aiokafka.client", "bootstrap"), ("kafka.producer.kafka", "_wait_on_metadata"),
    ("MySQLdb.connections", "__init__"), ("aiomysql.connection", "_connect"), ("asyncpg.connection", "connect"),
    ("mysql.connector.abstracts", "connect"), ("psycopg.connection", "connect"),
    ("psycopg.connection_async", "connect"), ("psycopg2", "connect"), ("pymysql.connections", "connect"),
    ("redis.connection", "connect"), ("redis.connection", "connect_check_health"),
    ("redis.asyncio.connection", "connect"), ("redis.asyncio.connection", "connect_check_health"),
    ("redis.sentinel", "connect"), ("redis.asyncio.sentinel", "connect"),
}  # fmt: skip
# Where clients and libraries try again, or follow a redirect: functions of a module, a local variable, and its value in
# the first attempt. The error of the last attempt says nothing about the earlier ones, and does not refer to theirs.
_TRIES_AGAIN: dict[str, tuple[Collection[str], str, object]] = {
    "anthropic._base_client": (("request", "_request"), "retries_taken", 0),  # its versions count in one or the other
    "backoff._async": (("retry",), "tries", 1),
    "backoff._sync": (("retry",), "tries", 1),
    "botocore.endpoint": (("_send_request",), "attempts", 1),
    "httpx._client": (("_send_handling_redirects",), "history", []),
    "httpx2._client": (("_send_handling_redirects",), "history", []),
    "openai._base_client": (("request",), "retries_taken", 0),
    "redis.asyncio.cluster": (("execute_command",), "_", 0),
    "redis.asyncio.retry": (("call_with_retry",), "failures", 0),
    "redis.cluster": (("execute_command", "_internal_execute_command"), "_", 0),
    "redis.retry": (("call_with_retry",), "failures", 0),
    "stripe._http_client": (
        ("_request_with_retries_internal", "_request_with_retries_internal_async"), "num_retries", 0
    ),
    "xmlrpc.client": (("request",), "i", 0),  # once, if the connection was lost
}  # fmt: skip
# urllib3 notes the errors of its earlier attempts.
_URLLIB3 = {("urllib3.connectionpool", "urlopen"), ("urllib3.poolmanager", "urlopen")}
_TASK_GROUPS = {("asyncio.taskgroups", "__aexit__"), ("anyio._backends._asyncio", "__aexit__")}
# The tasks of their groups only move messages for the block in which the program makes its calls.
_GROUPS_INSIDE = {"mcp"}
# These follow a redirect or try again, and have a local variable from then on.
_HAVE_AGAIN = {
    ("google.api_core.retry.retry_unary", "retry_target"): "next_sleep",
    ("google.api_core.retry.retry_unary_async", "retry_target"): "next_sleep",
    ("requests.sessions", "resolve_redirects"): "prepared_request", ("urllib.request", "http_error_302"): "new",
}  # fmt: skip
# The errors of these have the answers by which they were redirected. After one with these statuses, the server may have
# done what it was asked to; with 307 and 308 it has not.
_HTTP, _SEE_OTHER = {"aiohttp", "httpx", "httpx2", "requests"}, {301, 302, 303}
_STANDARD = {"builtins", "socket", "ssl"}
_Places = Sequence[tuple[FrameType, tuple[Any, str]]]
"""The frames of a traceback, with their module and function."""


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
        return _may_have_happened(error, also, handled)
    except Exception:  # noqa: BLE001  reading an error may run user code; if that fails, nothing is known
        return True


def _may_have_happened(
    error: BaseException, also: tuple[type[BaseException], ...], handled: BaseException | None
) -> bool:  # fmt: skip
    """Look at an error and at all that it carries, each once, until one of them says that the call may have happened.

    An error is explained if an error around it says that there was no connection.
    """
    met, waiting = set[tuple[int, bool]](), [(error, False)]
    while waiting:
        error, is_explained = waiting.pop()
        if (id(error), is_explained) in met:
            continue
        met.add((id(error), is_explained))
        name, places = _known_name(error), list(_frames(error))
        if name == _NOT_EXECUTED:
            of_inner: Handled | None = error.__dict__.get("_sayso_inner")  # what this call was handling when it made it
            if of_inner is not None and of_inner.error is not handled:
                waiting.append((of_inner.error, False))
        elif isinstance(error, also) or _is_open(error, name, places, is_explained=is_explained):
            return True
        else:
            waiting += _carried(error, name, places, handled, is_explained=is_explained)
    return False


def _is_open(error: BaseException, name: str, places: _Places, *, is_explained: bool) -> bool:
    """Return whether an error by itself says that the call may have happened."""
    is_interrupt = not isinstance(error, Exception)  # a cancellation, Ctrl-C or exit: it may hit a call anywhere
    if not is_explained and (is_interrupt or _has_cancelled_tasks(error, places)):
        return True
    is_broken = name in _SOCKET or _has_broken(name, error)
    is_after = name in _SENT or (is_broken and not is_explained) or _is_open_answer(name, error)
    if is_after and not _is_before_sending(name, error):
        return True
    return (name in _EITHER and not _carries_one_before_sending(error)) or _was_tried_before(error, name, places)


def _has_cancelled_tasks(error: Any, places: _Places) -> bool:
    """Return whether an error is that of a task group, which cancels its other tasks in the middle when one fails."""
    for index, (_, place) in enumerate(places):
        if place not in _TASK_GROUPS:
            continue
        opener = str(places[index - 1][1][0]) if index else ""
        if opener.partition(".")[0] not in _GROUPS_INSIDE:
            return True
        # An error of the block comes out of one of the frames that entered it; one of a task cancelled the block.
        around, members = {frame for frame, _ in places}, getattr(error, "exceptions", ())
        if not any(one.__traceback__ is not None and one.__traceback__.tb_frame in around for one in members):
            return True
    return False


def _carried(
    error: BaseException, name: str, places: _Places, handled: BaseException | None, *, is_explained: bool
) -> Iterator[tuple[BaseException, bool]]:  # fmt: skip
    """Yield the errors that an error refers to, and whether each of them is explained."""
    # If there was no connection, the members of a group are attempts to connect.
    if not is_explained:
        yield from ((member, False) for member in _members(error))
    for earlier in _earlier_attempts(error, places):
        if earlier is not None:
            yield earlier, False
    # The context of a socket's own error, or of an interrupt, is earlier, and nothing here explains it; nor what the
    # program itself caught before it called a library. But a timeout that ended a connection attempt explains the
    # cancellation that it was made of.
    is_explained = is_explained or _is_before_sending(name, error)
    explains = is_explained and isinstance(error, Exception) and name.partition(".")[0] not in _STANDARD
    cut_off = _cut_off(error) if is_explained and name == "builtins.TimeoutError" else None
    for one in _inside(error, name, handled):
        is_of_timeout = one is cut_off and not isinstance(one, Exception)
        yield one, is_of_timeout or (explains and (one is error.__cause__ or _is_caught_by_library(one)))


def _carries_one_before_sending(error: BaseException) -> bool:
    """Return whether an error carries one that occurred before anything was sent."""
    met, waiting = set[int](), [error]
    while waiting:
        for one in _inside(waiting.pop(), "", None):
            if id(one) in met:
                continue
            met.add(id(one))
            if _is_before_sending(_known_name(one), one):
                return True
            waiting.append(one)
    return False


def _is_before_sending(name: str, error: BaseException) -> bool:
    return name in _NOT_SENT or any(place in _CONNECTS for _, place in _frames(error))


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


def _members(error: BaseException) -> Sequence[BaseException]:
    return cast("Any", error).exceptions if isinstance(error, BaseExceptionGroup) else ()


def _frames(error: BaseException) -> Iterator[tuple[FrameType, tuple[Any, str]]]:
    """Yield the frames of a traceback with their module and function."""
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, (step.tb_frame.f_globals.get("__name__"), step.tb_frame.f_code.co_name)
        step = step.tb_next


def _is_caught_by_library(error: BaseException) -> bool:
    for _, (module, _) in _frames(error):  # the first one caught it
        return str(module).partition(".")[0] in _LIBRARIES
    return error.__traceback__ is None  # it was carried, and not raised


def _cut_off(timeout: BaseException) -> BaseException | None:
    """Return what a timeout was made of; anyio makes its timeouts without a cause."""
    before = timeout.__context__
    return timeout.__cause__ or (before if before is not None and _is_caught_by_library(before) else None)


def _was_tried_before(error: Any, name: str, places: _Places) -> bool:
    """Return whether a client, or a library for retries, had tried before the attempt that raised the error.

    What the last attempt says, such as a refused connection or status 409, does not tell how the earlier ones ended.
    """
    # Stripe's client repeats a request with the same idempotency key, so that an answer is that to the first attempt.
    if type(error).__module__.startswith("stripe.") and name not in _EITHER:
        return False
    if _is_later_answer(error):
        return True
    is_counted = dict[str, bool]()
    for frame, place in places:
        module, function = place
        if place in _CONNECTS:  # from here on it tries again to connect, which sends nothing
            break
        if place in _HAVE_AGAIN and _HAVE_AGAIN[place] in frame.f_locals:
            return True
        if module in _TRIES_AGAIN and function in _TRIES_AGAIN[module][0]:
            _, variable, first = _TRIES_AGAIN[module]
            known = frame.f_locals
            if known.get(variable, first) != first:
                return True
            is_counted[module] = is_counted.get(module, False) or variable in known
        elif _is_later_attempt(frame, module, function):
            return True
    # Another version counts in another way.
    return False in is_counted.values() or None in _earlier_attempts(error, places)


def _is_later_answer(error: Any) -> bool:
    """Return whether an error is an answer to a later attempt, or after a redirect, as its attributes say."""
    package, response = type(error).__module__.partition(".")[0], getattr(error, "response", None)
    if package == "botocore" and response:
        return bool(response.get("ResponseMetadata", {}).get("RetryAttempts"))
    answers = (getattr(error, "history", ()) or getattr(response, "history", ())) if package in _HTTP else ()
    return any(getattr(one, "status_code", getattr(one, "status", None)) in _SEE_OTHER for one in answers)


def _is_later_attempt(frame: FrameType, module: Any, function: str) -> bool:
    if module == "aiohttp.client" and function == "_request":  # it tries once more if a kept connection was closed
        repeatable, known = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}, frame.f_locals
        is_repeated = known.get("retry_persistent_connection") is False and known.get("method") in repeatable
        return is_repeated or bool(known.get("history"))
    if str(module).partition(".")[0] == "tenacity" and "retry_state" in frame.f_locals:
        return getattr(frame.f_locals["retry_state"], "attempt_number", 2) > 1
    return False


def _earlier_attempts(error: Any, places: _Places) -> Iterator[BaseException | None]:
    """Yield how urllib3's earlier attempts ended: their errors, or None for an answer, such as a redirect."""
    notes = [frame.f_locals.get("retries") for frame, place in places if place in _URLLIB3]
    if type(error).__module__ == "requests.exceptions":  # the program rejects the last answer
        notes.append(getattr(getattr(getattr(error, "response", None), "raw", None), "retries", None))
    for retries in notes:
        for attempt in getattr(retries, "history", ()):
            yield attempt.error


def _has_broken(name: str, error: Any) -> bool:
    """Return whether the details of an error say that a child process, or the connection of something, broke off."""
    if name == _CHILD:
        return error.returncode < 0  # it was killed
    if name in _POSTGRES:
        state = getattr(error, "pgcode" if name.startswith("psycopg2") else "sqlstate", None)
        return state is None or (state.startswith(_SQL_OPEN) and state not in _SQL_NOT_CONNECTED)
    if name in _POSTGRES_CLOSED:
        return "connection" in str(error) and "closed" in str(error)
    if name in _REDIS:
        return True
    if name in _MYSQL:
        return bool(error.args) and error.args[0] in _MYSQL_OPEN
    if name == _TLS:
        return "timed out" in str(error) and "handshake" not in str(error)
    return name == "" and isinstance(error, OSError) and error.errno in _DISK_OR_LINE


def _is_open_answer(name: str, error: Any) -> bool:
    """Return whether a server's answer broke off, cannot be decoded, or does not tell whether the call took effect."""
    if any(place in _DECODES for _, place in _frames(error)):
        return True
    if name in _STATUS:
        with suppress(AttributeError, LookupError, ValueError):  # a program may raise such an error without an answer
            status = _STATUS[name](error)
            return isinstance(status, int) and (status >= _SERVER_ERROR or status in _SUCCESS)
    if name == "builtins.EOFError":
        return any(module in _ENDS_IN for _, (module, _) in _frames(error))
    if name in _MCP:
        return getattr(getattr(error, "error", None), "code", None) in _MCP_OPEN
    if name != "grpc.RpcError":
        return False
    code = getattr(error, "code", None)
    status = getattr(code(), "name", "UNKNOWN") if callable(code) else "UNKNOWN"
    if status == "RESOURCE_EXHAUSTED":  # of the server, or the client could not take the answer, which it says likewise
        details = str(error.details())
        return "Received message larger than max" in details and "SERVER:" not in details
    return status in _GRPC_OPEN


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


def mark_unknown(error: BaseException, request_id: str, *, may_start_again: bool, start: int = 1) -> None:
    """Note on an error that the outcome of its call is unknown, for readers and for the enclosing run.

    `start` counts the starts of the call so far.
    """
    hint = "it may be started again, because it is idempotent" if may_start_again else "it is not retried automatically"
    which = f" --start {start}" if start > 1 else ""
    note = (
        f"sayso: the outcome of {request_id} is unknown: the call was started, and this error does not say whether it"
        f" took effect; {hint}. Find out whether it took effect, then run"
        f" `sayso resolve {request_id} --happened{which}` or `--did-not{which}`"
    )
    with suppress(Exception):  # an error may not allow changes
        error.add_note(note)
        error._sayso_unknown = request_id  # type: ignore[attr-defined]  # noqa: SLF001  an attribute of ours on it


def unknown_request(error: BaseException) -> str | None:
    """Return the request whose outcome is unknown because of this error, a cause, a context or a member of it."""
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
        waiting += cast("Any", current).exceptions if isinstance(current, BaseExceptionGroup) else ()
    return None


class Handled(NamedTuple):
    """What the program was handling when it made a call, if it is in an `except` block.

    Attributes:
        error: The error.
        trace: Its traceback then. It grows if the call meets the same object again, as some clients store what they
            raise.
    """

    error: BaseException
    trace: TracebackType | None

    @classmethod
    def now(cls) -> Self | None:
        """Return what is handled here; None if nothing is."""
        error = sys.exc_info()[1]
        return None if error is None else cls(error, error.__traceback__)

    def before(self) -> BaseException | None:
        """Return the error if it is older than the call and has nothing to do with it."""
        return self.error if self.error.__traceback__ is self.trace else None


def in_doubt(also: tuple[type[BaseException], ...], handled: Handled | None, error: BaseException) -> bool:
    """Return whether a call that ended with this error may have taken effect; see `is_ambiguous`."""
    return is_ambiguous(error, also, None if handled is None else handled.before())


def is_own_word(error: BaseException | None, handled: Handled | None) -> bool:
    """Return whether an error is `NotExecuted` of the call that ends with it; if so, it is not for calls around it."""
    if not isinstance(error, NotExecuted) or "_sayso_inner" in error.__dict__:
        return False
    with suppress(Exception):  # as in `mark_unknown`
        error._sayso_inner = handled  # type: ignore[attr-defined]  # noqa: SLF001
    return True
