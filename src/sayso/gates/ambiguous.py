"""Which exceptions leave it open whether a call took effect: such a call ends as `unknown`, any other as `failed`.

The rule, which users read in `docs/guides/survive-crashes.md`:

1. An interrupt, a timeout, a lost connection, a server error and an answer that the client cannot use may have come
   after the effect (`_SENT`, `_SOCKET`, `_EITHER`, `_DETAILED`, `_DECODES`).
2. They have not if nothing was sent: their class says so (`_NOT_SENT`), or they come out of connecting (`_CONNECTS`).
3. An error of code that tries again or follows a redirect says nothing about the earlier attempts (`_RETRIES`).
4. What an error carries counts like the error: its cause, its context, even a suppressed one, and its members.

`NotExecuted` is believed, whatever it carries. Classes and functions are known by package and name, so no client
library is imported. Where a rule cannot tell, the answer is `unknown`. `Handled` leaves an older error out that the
program was handling; `mark_unknown` notes an unknown outcome on the error, for the call or run around it.
"""

from __future__ import annotations

import errno
import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NamedTuple, cast

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


def _names(table: str) -> frozenset[str]:
    """Return the names in a table of packages and their classes or functions, separated by several blanks."""
    entries = [entry.split(": ") for entry in re.split(r"\s{2,}", table.strip())]
    return frozenset(
        f"{one}.{name}" for packages, names in entries for one in packages.split(",") for name in names.split()
    )


# Raised after something was or may have been sent, or by a client that tries again by itself; also the interrupts of
# job queues, which hit a call anywhere, and all errors of a worker process, which come without their traceback, cause
# and context. A class stands for its subclasses.
_SENT = _names("""
    aiohttp: ClientConnectionError ClientPayloadError HttpProcessingError
    aiokafka,kafka: KafkaConnectionError KafkaTimeoutError RequestTimedOutError
    anthropic,openai: APIResponseValidationError    asyncio: IncompleteReadError LimitOverrunError
    _queue,queue: Empty
    azure: ServiceRequestError ServiceResponseError
    billiard,celery: SoftTimeLimitExceeded Terminated TimeLimitExceeded TimeoutError WorkerLostError
    botocore: ConnectionError HTTPClientError IncompleteReadError ResponseParserError ResponseStreamingError
    concurrent: BrokenExecutor CancelledError    concurrent,joblib,loky: _RemoteTraceback
    ftplib: error_proto error_reply    google: RetryError    grpc: FutureCancelledError FutureTimeoutError
    h11: RemoteProtocolError    http: BadStatusLine IncompleteRead LineTooLong RemoteDisconnected
    httpcore,httpcore2,httpx,httpx2: DecodingError NetworkError RemoteProtocolError TimeoutException
    imaplib: IMAP4.abort    multiprocess,multiprocessing: MaybeEncodingError RemoteTraceback TimeoutError
    pika: AMQPHeartbeatTimeout ConnectionClosed StreamLostError    pymongo: AutoReconnect WTimeoutError
    redis: ConnectionError TimeoutError    requests: ChunkedEncodingError ContentDecodingError
    rq: BaseTimeoutException    sayso: OutcomeNotRecordedError OutcomeUnknownError RunBusyError
    smtplib: SMTPServerDisconnected
    stripe: APIConnectionError    subprocess: TimeoutExpired    urllib: ContentTooShortError
    urllib3: DecodeError ResponseError TimeoutError
    websockets: ConnectionClosed
""")
# The same, unless an error around it says that there was no connection: sockets raise these at any time.
_SOCKET = _names("""
    builtins: BrokenPipeError ConnectionAbortedError ConnectionResetError EOFError TimeoutError    ssl: SSLError
""")
# The same, unless it was made of an error that occurred before anything was sent.
_EITHER = _names("""
    anthropic,openai: APIConnectionError    requests: ConnectionError Timeout    urllib3: ProtocolError ReadTimeoutError
""")
# The same, if the details say so: the status of an answer, the code of a database, the death of a child process.
_DETAILED = _names("""
    MySQLdb,mysql,pymysql: InterfaceError OperationalError    aiohttp: ClientResponseError
    anthropic,openai: APIStatusError    asyncpg: InterfaceError PostgresConnectionError    azure: HttpResponseError
    botocore: ClientError    google: GoogleAPICallError    grpc: RpcError    httpx,httpx2: HTTPStatusError
    mcp: MCPError McpError    psycopg: OperationalError    psycopg2: InterfaceError OperationalError
    requests,urllib: HTTPError    stripe: StripeError    subprocess: CalledProcessError
    xmlrpc: Fault ProtocolError
""")
# Raised before anything was sent: no address, no connection, no certificate, no free connection in the pool.
_NOT_SENT = _names("""
    aiohttp: ClientConnectorError ClientHttpProxyError ConnectionTimeoutError ServerFingerprintMismatch
    builtins: ConnectionRefusedError
    httpcore,httpcore2,httpx,httpx2: ConnectError ConnectTimeout LocalProtocolError PoolTimeout ProxyError
    httpcore,httpcore2,httpx,httpx2: UnsupportedProtocol    psycopg: ConnectionTimeout
    psycopg_pool: PoolClosed PoolTimeout TooManyRequests    pymongo: ServerSelectionTimeoutError
    redis: AuthenticationError BusyLoadingError MaxConnectionsError    requests: ConnectTimeout
    socket: gaierror herror    ssl: SSLCertVerificationError    urllib3: ConnectTimeoutError NewConnectionError
""")
# Functions that connect: what comes out of them occurred before anything was sent.
_CONNECTS = _names("""
    MySQLdb: Connect    aiokafka: bootstrap    aiomysql: _connect    asyncio,socket: create_connection
    asyncpg,ftplib,http,mysql,psycopg,psycopg2,pymysql,redis,smtplib,urllib3: connect    fastmcp: __aenter__
    ftplib,smtplib: login    mcp: initialize    poplib: __init__ apop pass_ user    redis: connect_check_health
    ssl: do_handshake
""")
# Functions that read or decode an answer.
_DECODES = _names("""
    aiohttp: json receive_bytes receive_json receive_str text    ftplib: getline    http: begin
    httpx,httpx2,requests,urllib3: json    imaplib: readline    mcp: _validate_tool_result validate_tool_result
    poplib: _getline    smtplib: __exit__ getreply    urllib3: _init_length    xmlrpc: parse_response
""")


def _is_counted_first(error: Any, known: Mapping[str, Any]) -> bool:
    # The client tells its server, too. An error of another class, such as a TypeError, has no request.
    return known.get("retries_taken") == 0 or error.request.headers["x-stainless-retry-count"] == "0"


# Functions that try again: the beginning of their module and name.
_RETRIES = (
    "aiohttp_retry.", "backoff.", "google.api_core.retry.", "httpx_retries.", "redis.asyncio.cluster.execute",
    "redis.cluster.execute", "requests.sessions.resolve_redirects", "retrying.", "stamina.", "tenacity.",
)  # fmt: skip
# Before other redirects than these, the server may have done what it was asked to.
_NOT_DONE = {307, 308}
# These call themselves to try again or to follow a redirect.
_CALL_THEMSELVES = {"requests", "urllib", "urllib3"}
# These do so in a loop. Their error, or the function's variables, tell whether it was the first attempt; if they do not
# (in another version), it is not known to have been.
_IS_FIRST: dict[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "aiohttp._request": lambda _, known: (  # it has the first two only after it has checked its arguments
        not known.get("history")
        and (known.get("retry_persistent_connection", True) or known["method"] in {"PATCH", "POST"})
    ),
    "anthropic.request": _is_counted_first,
    "httpx._send_handling_redirects": lambda _, known: not known["history"],
    "httpx2._send_handling_redirects": lambda _, known: not known["history"],
    "openai.request": _is_counted_first,
    "redis.call_with_retry": lambda _, known: known["failures"] == 0,
    "xmlrpc.request": lambda _, known: known["i"] == 0,
}

_KNOWN = _SENT | _SOCKET | _EITHER | _DETAILED | _NOT_SENT | {"sayso.NotExecuted"}
_LIBRARIES = {name.partition(".")[0] for name in _KNOWN | _CONNECTS} | {"aiohappyeyeballs", "anyio", "contextlib"}
# What the network last said before a connection timed out, such as that there is no route to the host any more.
_LINE_OR_DISK = {
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EIO, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ENOTCONN,
    errno.ETIMEDOUT,
}  # fmt: skip
# A client that cannot decode an answer says `INTERNAL`.
_GRPC_OPEN = {"CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"}


class _Step(NamedTuple):
    frame: FrameType
    place: str  # module and function
    call: str  # package and function
    package: str


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
        return _may_have_run(error, also, handled)
    except Exception:  # noqa: BLE001  reading an error may run user code; if that fails, nothing is known
        return True


def _may_have_run(error: BaseException, also: tuple[type[BaseException], ...], handled: BaseException | None) -> bool:
    """Look at an error and at all that it carries, each once, until one of them says that the call may have happened.

    An error is explained if an error around it says that there was no connection.
    """
    met, waiting = set[tuple[int, bool]](), [(error, False)]
    while waiting:
        error, is_explained = waiting.pop()
        if (id(error), is_explained) in met:
            continue
        met.add((id(error), is_explained))
        name, steps = _known_name(error), _steps(error)
        if name == "sayso.NotExecuted":
            _, before, _ = error.__dict__.get("_sayso_inner", _NOTHING)  # what this call was handling when it made it
            if before is not None and before is not handled:
                waiting.append((before, False))
            continue
        is_marked = "_sayso_unknown" in error.__dict__  # it ended a gated call inside this one
        if is_marked or isinstance(error, also) or _is_open(error, name, steps, is_explained=is_explained):
            return True
        if not is_explained:  # else the members of a group are attempts to connect
            waiting += ((member, False) for member in _members(error))
        # A library's error explains what it was made of: its cause, and what the library itself caught; what the
        # program caught before is earlier. A socket's own error only explains the cancellation that made a timeout.
        explains = isinstance(error, Exception) and (is_explained or _is_before_sending(name, steps))
        is_of_socket = name.startswith(("builtins.", "socket.", "ssl."))
        for one in _made_of(error, handled):
            is_cut_off = name == "builtins.TimeoutError" and not isinstance(one, Exception)
            can_explain = explains and (is_cut_off or not is_of_socket)
            waiting.append((one, can_explain and (one is error.__cause__ or _is_caught_by_library(one))))
    return False


def _is_open(error: BaseException, name: str, steps: list[_Step], *, is_explained: bool) -> bool:
    """Return whether an error by itself says that the call may have happened."""
    if _was_tried_before(error, steps):
        return True
    # An interrupt may hit a call anywhere, and a task group cancels its other tasks anywhere when one of them fails.
    if not is_explained and (not isinstance(error, Exception) or _is_of_task_group(steps)):
        return True
    if not is_explained and _is_of_signal_handler(steps):
        return True
    if name in _EITHER:
        return not _has_sent_nothing(error)
    if _is_before_sending(name, steps):
        return False
    if name in _SENT:
        return True
    if name in _DETAILED:
        with suppress(AttributeError, LookupError):  # a program may raise such an error without an answer
            return _has_broken_off(name, error)
    if any(step.call in _DECODES or _is_json_of_answer(step) for step in steps):
        return True
    if name == "builtins.EOFError":  # of a pipe or connection; that of `input()` or of a file is another thing
        return any(step.package == "multiprocessing" for step in steps)
    is_lost = name in _SOCKET or (name == "" and isinstance(error, OSError) and error.errno in _LINE_OR_DISK)
    return is_lost and not is_explained


def _was_tried_before(error: Any, steps: list[_Step]) -> bool:
    """Return whether code that tries again or follows a redirect may have sent something before this attempt.

    What the last attempt says, such as a refused connection or status 409, does not tell how the earlier ones ended.
    """
    met = set[object]()
    for frame, place, call, package in steps:
        if call in _CONNECTS:  # from here on it tries again to connect, which sends nothing
            break
        if place.startswith(_RETRIES) or (call in _IS_FIRST and not _IS_FIRST[call](error, frame.f_locals)):
            return True
        if package in _CALL_THEMSELVES and frame not in met:  # an error that is raised anew passes a frame twice
            if frame.f_code in met:
                return True
            met |= {frame, frame.f_code}
    package, response = type(error).__module__.partition(".")[0], getattr(error, "response", None)
    if package == "botocore" and response:
        return bool(response.get("ResponseMetadata", {}).get("RetryAttempts"))
    if package not in {"aiohttp", "httpx", "httpx2", "requests"}:
        return False
    retries = getattr(getattr(response, "raw", None), "retries", None)  # of requests, which has them from urllib3
    redirects = getattr(error, "history", ()) or getattr(response, "history", ())
    statuses = {getattr(one, "status_code", getattr(one, "status", None)) for one in redirects}
    return bool(getattr(retries, "history", ()) or statuses - _NOT_DONE)


def _is_of_task_group(steps: list[_Step]) -> bool:
    """Return whether an error left a task group; the tasks in MCP's own ones only move messages for its block."""
    ends, packages = {"anyio.__aexit__", "asyncio.__aexit__", "trio.__aexit__"}, [step.package for step in steps]
    return any(step.call in ends and opener != "mcp" for opener, step in zip(["", *packages], steps, strict=False))


def _is_json_of_answer(step: _Step) -> bool:
    source = type(step.frame.f_locals.get("fp")).__module__ if step.call == "json.load" else ""
    return source.partition(".")[0] in _LIBRARIES


def _is_of_signal_handler(steps: list[_Step]) -> bool:
    """Return whether the handler of a signal raised an error: it gets the frame that the signal interrupted."""
    for before, step in itertools.pairwise(steps):
        names, rest, _, values = inspect.getargvalues(step.frame)
        several = values.get(rest or "")  # the function may have put something else there
        others = cast("tuple[object, ...]", several) if type(several) is tuple else ()
        given = (*map(values.get, names), *others)
        if any(one is before.frame for one in given):
            return True
    return False


def _has_broken_off(name: str, error: Any) -> bool:
    """Return whether the details of an error say that a connection or child process ended, or the status is open."""
    package, _, kind = name.partition(".")
    if package == "subprocess":
        # It was killed; a shell says so with a status above 128, ssh of a lost connection with 255, `timeout` with 124.
        return error.returncode < 0 or error.returncode == 124 or error.returncode > 128
    if package in {"asyncpg", "psycopg", "psycopg2"}:
        if kind == "InterfaceError":
            return "connection" in str(error) and "closed" in str(error)
        state = getattr(error, "pgcode" if package == "psycopg2" else "sqlstate", None)  # None: the driver found it
        # The connection broke, the server crashed, or it does not know the end of a statement. Not: no connection.
        return state is None or (state.startswith(("08", "40003", "57P02")) and state not in {"08001", "08004"})
    if package in {"MySQLdb", "mysql", "pymysql"}:
        return error.args[0] in {2006, 2013, 2055}  # gone away; lost during a statement, in two forms
    if package == "mcp":
        return error.error.code in {-32000, -32001, 408}  # closed; timed out, also in the first version
    if package == "grpc":
        code = getattr(error, "code", None)
        status = getattr(code(), "name", "UNKNOWN") if callable(code) else "UNKNOWN"
        is_too_large = status == "RESOURCE_EXHAUSTED" and "Received message larger than max" in str(error.details())
        return status in _GRPC_OPEN or is_too_large
    # A server error does not say how far the server came; a gateway answers 502 and 504 for a lost connection and a
    # timeout behind it. An error in spite of a success says that the client could not use the answer, and one for a
    # redirect that it did not follow it.
    if package == "botocore":
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    else:
        answer = error.response if package in {"httpx", "httpx2", "requests"} else error
        values = (getattr(answer, name, None) for name in ("status_code", "http_status", "errcode", "status", "code"))
        status = next((value for value in values if isinstance(value, int)), 0)
    return status >= 500 or (200 <= status < 400 and status not in _NOT_DONE)


def _made_of(error: BaseException, handled: BaseException | None) -> Iterator[BaseException]:
    """Yield the cause of an error, those that requests and urllib3 carry in attributes, and the context.

    `raise ... from None`, or from another error, hides the context from readers, but does not undo it.
    """
    for one in (error.__cause__, *error.args, getattr(error, "reason", None)):
        if isinstance(one, BaseException):
            yield one
    if error.__context__ is not None and error.__context__ is not handled:
        yield error.__context__


def _members(error: BaseException) -> Collection[BaseException]:
    return cast("Any", error).exceptions if isinstance(error, BaseExceptionGroup) else ()


def _has_sent_nothing(error: BaseException, depth: int = 3) -> bool:
    """Return whether an error was made of one that occurred before anything was sent."""
    parts = _made_of(error, error.__context__) if depth else ()
    return any(_is_before_sending(_known_name(one), _steps(one)) or _has_sent_nothing(one, depth - 1) for one in parts)


def _is_before_sending(name: str, steps: list[_Step]) -> bool:
    return name in _NOT_SENT or any(step.call in _CONNECTS for step in steps)


def _is_caught_by_library(error: BaseException) -> bool:
    steps = _steps(error)  # the first one caught it; without one, it was carried and not raised
    return not steps or steps[0].package in _LIBRARIES


def _known_name(error: BaseException) -> str:
    """Return the first known class of an error; empty if there is none."""
    names = (f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(error).__mro__)
    return next((name for name in names if name in _KNOWN), "")


def _steps(error: BaseException) -> list[_Step]:
    """Return the frames of an error's traceback, the one that caught it first."""
    steps, trace = list[_Step](), error.__traceback__
    while trace is not None:
        module, function = str(trace.tb_frame.f_globals.get("__name__")), trace.tb_frame.f_code.co_name
        package = module.partition(".")[0]
        steps.append(_Step(trace.tb_frame, f"{module}.{function}", f"{package}.{function}", package))
        trace = trace.tb_next
    return steps


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
        # The context counts even if it is suppressed.
        waiting += [one for one in (current.__context__, current.__cause__) if one is not None]
        waiting += _members(current)
    return None


Handled = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]
"""What the program was handling when it made a call, as `sys.exc_info` returned it then."""
_NOTHING: Handled = (None, None, None)


def in_doubt(also: tuple[type[BaseException], ...], handled: Handled, error: BaseException) -> bool:
    """Return whether a call that ended with this error may have taken effect; see `is_ambiguous`."""
    _, before, trace = handled
    # The traceback grows if the call meets the same object again, as some clients store what they raise.
    is_older = before is not None and before.__traceback__ is trace
    return is_ambiguous(error, also, before if is_older else None)


def claim_not_executed(error: BaseException | None, handled: Handled = _NOTHING) -> bool:
    """Return whether the call itself raised `NotExecuted`, and mark it, so that the calls around it ignore it."""
    if not isinstance(error, NotExecuted) or "_sayso_inner" in error.__dict__:
        return False
    with suppress(Exception):  # as in `mark_unknown`
        error._sayso_inner = handled  # type: ignore[attr-defined]  # noqa: SLF001
    return True
