"""Which errors leave it open whether a call took effect.

The classes of client libraries are made here with the modules, names and bases that the real ones have (httpx 0.28,
httpx2 2.16, requests 2.34, urllib3 2.8, aiohttp 3.14, botocore 1.44, grpcio 1.85, google-api-core 2.44, redis 8.1,
openai 3.54, stripe 16.1, psycopg 3.3, psycopg2 2.9, asyncpg 0.32, PyMySQL 1.2, mysqlclient 2.2, billiard 4.3, rq 3.0),
because sayso knows them by these and imports none. `test_ambiguous_sockets.py` has real ones against real sockets.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import imaplib
import queue
import smtplib
import socket
import ssl
import subprocess
import xmlrpc.client
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import sayso
from sayso import errors, policy
from sayso.gates.ambiguous import exception_classes, is_ambiguous, mark_unknown, unknown_request
from sayso.stores.base import Store


def fake(path: str, *bases: type[BaseException]) -> type[Any]:
    """Return a class as a library has it: `path` is its module and name."""
    module, _, name = path.rpartition(".")
    return type(name, bases or (Exception,), {"__module__": module})


HttpxTimeout = fake("httpx.TimeoutException")
Httpx2Timeout = fake("httpx2.TimeoutException")
RequestException = fake("requests.exceptions.RequestException", OSError)
RequestsConnection = fake("requests.exceptions.ConnectionError", RequestException)
RequestsTimeout = fake("requests.exceptions.Timeout", RequestException)
RequestsSSL = fake("requests.exceptions.SSLError", RequestsConnection)
RequestsProxy = fake("requests.exceptions.ProxyError", RequestsConnection)
Urllib3Error = fake("urllib3.exceptions.HTTPError")
Urllib3Timeout = fake("urllib3.exceptions.TimeoutError", Urllib3Error)
Protocol = fake("urllib3.exceptions.ProtocolError", Urllib3Error)
Urllib3Connect = fake("urllib3.exceptions.ConnectTimeoutError", Urllib3Timeout)
NewConnection = fake("urllib3.exceptions.NewConnectionError", Urllib3Connect)
Urllib3Read = fake("urllib3.exceptions.ReadTimeoutError", Urllib3Timeout)
Urllib3Proxy = fake("urllib3.exceptions.ProxyError", Urllib3Error)
Urllib3SSL = fake("urllib3.exceptions.SSLError", Urllib3Error)
Redis = fake("redis.exceptions.ConnectionError")
Mongo = fake("pymongo.errors.AutoReconnect")
Aio = fake("aiohttp.client_exceptions.ClientConnectionError")
AioOS = fake("aiohttp.client_exceptions.ClientOSError", Aio, OSError)
AioConnector = fake("aiohttp.client_exceptions.ClientConnectorError", AioOS)
AioResponse = fake("aiohttp.client_exceptions.ClientResponseError")
AioServer = fake("aiohttp.client_exceptions.ServerConnectionError", Aio)
AioTimeout = fake("aiohttp.client_exceptions.ServerTimeoutError", AioServer, TimeoutError)
BotoConnection = fake("botocore.exceptions.ConnectionError")
BotoClient = fake("botocore.exceptions.HTTPClientError")
RpcError = fake("grpc.RpcError")
OpenAI = fake("openai.APIConnectionError")
OpenAITimeout = fake("openai.APITimeoutError", OpenAI)
PSYCOPG = fake("psycopg.OperationalError")
PSYCOPG2 = fake("psycopg2.OperationalError")
ASYNCPG = fake("asyncpg.exceptions.PostgresConnectionError")
Interface = fake("asyncpg.exceptions._base.InterfaceError")
PyMySQL = fake("pymysql.err.OperationalError")
MySQL = fake("MySQLdb.OperationalError")
StripeError = fake("stripe._error.StripeError")
Stripe = fake("stripe._error.APIConnectionError", StripeError)


class MaxRetry(fake("urllib3.exceptions.MaxRetryError", Urllib3Error)):
    def __init__(self, reason: BaseException) -> None:
        super().__init__(f"Max retries exceeded ({reason})")
        self.reason = reason


MaxRetry.__module__, MaxRetry.__qualname__ = "urllib3.exceptions", "MaxRetryError"


class Rpc(fake("grpc._channel._InactiveRpcError", RpcError)):
    def __init__(self, code: str, details: str = "") -> None:
        self._code, self._details = code, details

    def code(self) -> object:
        return type("StatusCode", (), {"name": self._code})()

    def details(self) -> str:
        return self._details


def sql(path: str, state: str | None, message: str = "the connection was lost") -> BaseException:
    """Return an error of a driver for Postgres, with its SQLSTATE; None for one that the driver itself found."""
    kind = PSYCOPG2 if path.startswith("psycopg2") else ASYNCPG if path.startswith("asyncpg") else PSYCOPG
    made: BaseException = fake(path, kind)(message)
    setattr(made, "pgcode" if kind is PSYCOPG2 else "sqlstate", state)
    return made


def answered(path: str, attribute: str, status: int, *bases: type[BaseException]) -> BaseException:
    """Return an error that carries the HTTP status of an answer, where the real one does."""
    value: Any = status
    *outer, last = attribute.split(".")
    if outer:
        value = {outer[-1]: {last: value}} if len(outer) > 1 else SimpleNamespace(**{last: value})
        last = outer[0]
    error = fake(path, *bases)("the server answered")
    setattr(error, last, value)
    return error


def detailed(number: int) -> OSError:
    """Return an error of a class of its own with an `errno`, which Python does not turn into one of its classes."""
    return type("DeviceError", (OSError,), {})(number, "no answer")


def caused(error: BaseException, cause: BaseException | None) -> BaseException:
    error.__cause__ = cause
    return error


def during(error: BaseException, handled: BaseException) -> BaseException:
    error.__context__ = handled
    return error


def connecting(error: BaseException, where: str = "socket.create_connection", **variables: Any) -> BaseException:
    """Return an error as it comes out of the function that connects, or of another function of this name there."""
    module, _, name = where.rpartition(".")
    source: dict[str, Any] = {"__name__": module}
    text = f"def {name}({', '.join(['error', *variables])}):\n    raise error"
    exec(text, source)  # noqa: S102  a frame with the names and variables of the real one
    with pytest.raises(type(error)) as caught:
        source[name](error, **variables)
    return caught.value


def caught_in(error: BaseException, where: str) -> BaseException:
    """Return an error that a library raised and caught itself."""
    step = connecting(error, where).__traceback__
    return error.with_traceback(None if step is None else step.tb_next)


def mcp(path: str, code: int, message: str) -> BaseException:
    error: BaseException = fake(path)(message)
    error.error = SimpleNamespace(code=code, message=message)  # type: ignore[attr-defined]
    return error


def test_an_answer_after_attempts_that_urllib3_notes_does_not_tell_what_they_did() -> None:
    for earlier in ((), ("a connection that was refused",)):
        rejected = fake("requests.exceptions.HTTPError", RequestException)("409, a duplicate")
        rejected.response = SimpleNamespace(raw=SimpleNamespace(retries=SimpleNamespace(history=earlier)))
        assert is_ambiguous(rejected) is bool(earlier)


@pytest.mark.parametrize(
    "client", ["requests.exceptions.HTTPError", "httpx.HTTPStatusError", "aiohttp.ClientResponseError"]
)
def test_an_answer_after_a_redirect_does_not_tell_what_the_first_one_did(client: str) -> None:
    for status, expected in ((303, True), (302, True), (307, False)):
        error, is_aiohttp = fake(client)("404 Not Found"), client.startswith("aiohttp")
        history = [SimpleNamespace(**{"status" if is_aiohttp else "status_code": status})]
        if is_aiohttp:
            error.history = history
        else:
            error.response = SimpleNamespace(history=history)
        assert is_ambiguous(error) is expected, status


def test_redis_tries_again_to_connect_without_having_sent_anything() -> None:
    connect, again = "redis.connection.connect", "redis.retry.call_with_retry"
    assert not is_ambiguous(connecting(connecting(Redis("refused"), again, failures=11), connect))
    assert is_ambiguous(connecting(connecting(Redis("refused"), connect), again, failures=11))


def test_an_answer_to_a_later_attempt_of_botocore_does_not_tell_what_the_first_one_did() -> None:
    for attempts in (0, 1):
        error = fake("botocore.errorfactory.ConditionalCheckFailedException")("the request failed")
        error.response = {"ResponseMetadata": {"RetryAttempts": attempts}}
        assert is_ambiguous(error) is bool(attempts)


def fallback(handled: BaseException, error: BaseException, where: str) -> BaseException:
    """Return the error of a fallback that a program tries while it handles another error."""
    module, _, name = where.rpartition(".")
    source: dict[str, Any] = {"__name__": module}
    exec(f"def {name}(error):\n    raise error", source)  # noqa: S102  a frame with the names of the real one
    with pytest.raises(type(error)) as caught:  # noqa: PT012  as programs do
        try:
            raise handled
        except type(handled):
            source[name](error)
    return caught.value


@pytest.mark.parametrize("handled", [TimeoutError, ConnectionResetError, BrokenPipeError])
def test_a_fallback_that_could_not_connect_does_not_explain_the_first_attempt(handled: type[OSError]) -> None:
    for refused, where in (
        (fake("httpx.ConnectError")("refused"), "httpx._transports.default.handle_async_request"),
        (sql("psycopg.OperationalError", None, "connection refused"), "psycopg.connection.connect"),
        (AioConnector("refused"), "aiohttp.connector._create_connection"),
    ):
        assert is_ambiguous(fallback(handled(), refused, where))
        assert not is_ambiguous(fallback(ValueError(), type(refused)("refused"), where))


ATTEMPTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "redis": ("redis.retry.call_with_retry", {"failures": 0}, {"failures": 1}),
    "redis, async": ("redis.asyncio.retry.call_with_retry", {"failures": 0}, {"failures": 1}),
    "redis, another version": ("redis.retry.call_with_retry", {"failures": 0}, {"count": 0}),
    "xmlrpc": ("xmlrpc.client.request", {"i": 0}, {"i": 1}),
    "aiohttp, PUT": (
        "aiohttp.client._request", {"method": "PUT", "retry_persistent_connection": True},
        {"method": "PUT", "retry_persistent_connection": False},
    ),
    "httpx, redirected": (
        "httpx._client._send_handling_redirects", {"history": []}, {"history": ["303 See Other"]}
    ),
    "httpx2, another version": (
        "httpx2._client._send_handling_redirects", {"history": []}, {"answers": []}
    ),
    "aiohttp, redirected": (
        "aiohttp.client._request", {"method": "POST", "history": ()}, {"method": "POST", "history": ["303 See Other"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("client", ATTEMPTS)
def test_a_later_attempt_of_a_client_that_sent_nothing_does_not_tell_what_the_first_one_did(client: str) -> None:
    where, first, later = ATTEMPTS[client]
    for kind in (ConnectionRefusedError, fake("httpx.ConnectError"), fake("redis.exceptions.ResponseError"), TypeError):
        assert not is_ambiguous(connecting(kind("1"), where, **first))
        assert is_ambiguous(connecting(kind("2"), where, **later))
        assert is_ambiguous(caused(RuntimeError("could not pay"), connecting(kind("2"), where, **later)))
    assert not is_ambiguous(caused(sayso.NotExecuted("a duplicate"), connecting(kind("2"), where, **later)))


@pytest.mark.parametrize(
    "where",
    [
        "tenacity.__call__", "tenacity.asyncio.iter", "backoff._sync.retry", "backoff._async.retry",
        "stamina._core._do_retry", "google.api_core.retry.retry_unary.retry_target",
        "google.api_core.retry.retry_unary_async.retry_target", "redis.cluster.execute_command",
        "redis.asyncio.cluster.execute_command",
    ],
)  # fmt: skip
def test_what_comes_out_of_code_that_tries_again_does_not_tell_what_the_first_attempt_did(where: str) -> None:
    counted = openai("BadRequestError", "0")
    for error in (
        ValueError("no such order"),
        ConnectionRefusedError(),
        fake("httpx.ConnectError")("refused"),
        counted,
    ):
        assert not is_ambiguous(error)
        assert is_ambiguous(connecting(error, where))


def openai(name: str, count: str | None, package: str = "openai") -> BaseException:
    """Return an error of a client that tells its server how often it has tried before; None for an old version."""
    error: Any = fake(f"{package}.{name}", fake(f"{package}.APIStatusError"))("the server answered")
    headers = {} if count is None else {"x-stainless-retry-count": count}
    error.status_code, error.request = 400, SimpleNamespace(headers=headers)
    return error


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_the_request_of_an_error_tells_whether_it_was_the_first_one(package: str) -> None:
    for count, expected in (("0", False), ("1", True), (None, True)):
        error = openai("BadRequestError", count, package)
        assert is_ambiguous(connecting(error, f"{package}._base_client.request")) is expected
    for taken, expected in ((0, False), (1, True)):
        error = TypeError("it is not JSON serializable, and has no request")
        assert is_ambiguous(connecting(error, f"{package}._base_client.request", retries_taken=taken)) is expected
    assert is_ambiguous(connecting(TypeError(), f"{package}._base_client.request")), "nobody knows"
    assert not is_ambiguous(connecting(ValueError("no key"), f"{package}._client.__init__"))


OPEN: dict[str, Callable[[], BaseException]] = {
    "requests.ProxyError, reset after sending": lambda: RequestsProxy(
        MaxRetry(caused(Urllib3Proxy("Unable to connect to proxy"), ConnectionResetError()))
    ),
    "botocore.ProxyConnectionError, reset after sending": lambda: caused(
        fake("botocore.exceptions.ProxyConnectionError", BotoConnection)(),
        caused(Urllib3Proxy(), ConnectionResetError()),
    ),
    "TimeoutError": TimeoutError,
    "concurrent.futures.TimeoutError": concurrent.futures.TimeoutError,
    "a worker process that died": concurrent.futures.BrokenExecutor,
    "ConnectionResetError": ConnectionResetError,
    "ConnectionAbortedError": ConnectionAbortedError,
    "BrokenPipeError": BrokenPipeError,
    "ssl.SSLEOFError": lambda: ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
    "http.client.RemoteDisconnected": lambda: http.client.RemoteDisconnected("closed"),
    "http.client.IncompleteRead": lambda: http.client.IncompleteRead(b"a", 9),
    "http.client.BadStatusLine": lambda: http.client.BadStatusLine("x"),
    "asyncio.IncompleteReadError": lambda: asyncio.IncompleteReadError(b"a", 9),
    "subprocess.CalledProcessError, killed": lambda: subprocess.CalledProcessError(-9, "rsync"),
    "subprocess.CalledProcessError, killed in a shell": lambda: subprocess.CalledProcessError(137, "rsync"),
    "subprocess.CalledProcessError, ssh lost its connection": lambda: subprocess.CalledProcessError(255, "ssh"),
    "subprocess.CalledProcessError, stopped by timeout": lambda: subprocess.CalledProcessError(124, "timeout 9 rsync"),
    "queue.Empty": queue.Empty,
    "subprocess.TimeoutExpired": lambda: subprocess.TimeoutExpired("rsync", 5),
    "smtplib.SMTPServerDisconnected": lambda: smtplib.SMTPServerDisconnected("closed"),
    "httpx.ReadTimeout": fake("httpx.ReadTimeout", HttpxTimeout),
    "httpx.WriteTimeout": fake("httpx.WriteTimeout", HttpxTimeout),
    "httpx.ReadError": fake("httpx.ReadError", fake("httpx.NetworkError")),
    "httpx.WriteError": fake("httpx.WriteError", fake("httpx.NetworkError")),
    "httpx.RemoteProtocolError": fake("httpx.RemoteProtocolError"),
    "httpx2.ReadTimeout": fake("httpx2.ReadTimeout", Httpx2Timeout),
    "httpcore.ReadTimeout": fake("httpcore.ReadTimeout", fake("httpcore.TimeoutException")),
    "httpcore.RemoteProtocolError": fake("httpcore.RemoteProtocolError"),
    "requests.ReadTimeout": fake("requests.exceptions.ReadTimeout", RequestsTimeout),
    "requests.ChunkedEncodingError": fake("requests.exceptions.ChunkedEncodingError", RequestException),
    "requests.ConnectionError, aborted": lambda: RequestsConnection(
        Protocol("Connection aborted.", http.client.RemoteDisconnected("closed"))
    ),
    "requests.ConnectionError, empty": RequestsConnection,
    "requests.SSLError, broken while sending": lambda: RequestsSSL(MaxRetry(Urllib3SSL(ssl.SSLEOFError(8, "EOF")))),
    "urllib3.ReadTimeoutError": Urllib3Read,
    "urllib3.ProtocolError": Protocol,
    "urllib3.MaxRetryError, read": lambda: MaxRetry(Urllib3Read("read timed out")),
    "aiohttp.ServerDisconnectedError": fake("aiohttp.client_exceptions.ServerDisconnectedError", AioServer),
    "aiohttp.ServerTimeoutError": AioTimeout,
    "aiohttp.SocketTimeoutError": fake("aiohttp.client_exceptions.SocketTimeoutError", AioTimeout),
    "aiohttp.ClientOSError": AioOS,
    "aiohttp.ClientPayloadError": fake("aiohttp.client_exceptions.ClientPayloadError"),
    "botocore.ReadTimeoutError": fake("botocore.exceptions.ReadTimeoutError", BotoClient),
    "botocore.ConnectionClosedError": fake("botocore.exceptions.ConnectionClosedError", BotoClient),
    "grpc DATA_LOSS": lambda: Rpc("DATA_LOSS"),
    "grpc INTERNAL, as of an answer that cannot be decoded": lambda: Rpc("INTERNAL"),
    "grpc DEADLINE_EXCEEDED": lambda: Rpc("DEADLINE_EXCEEDED"),
    "grpc UNAVAILABLE": lambda: Rpc("UNAVAILABLE"),
    "grpc UNKNOWN": lambda: Rpc("UNKNOWN"),
    "grpc.RpcError without a code": RpcError,
    "grpc RESOURCE_EXHAUSTED, by an answer": lambda: Rpc(
        "RESOURCE_EXHAUSTED", "Stream removed (CLIENT: Received message larger than max (5000000 vs. 4194304))"
    ),
    "grpc RESOURCE_EXHAUSTED, by an answer, grpcio 1.49": lambda: Rpc(
        "RESOURCE_EXHAUSTED", "Received message larger than max (5000000 vs. 4194304)"
    ),
    "grpc.FutureCancelledError": fake("grpc.FutureCancelledError"),
    "openai.APITimeoutError": OpenAITimeout,
    "openai.APITimeoutError, read": lambda: caused(OpenAITimeout(), fake("httpx2.ReadTimeout", Httpx2Timeout)()),
    "openai.APIConnectionError": OpenAI,
    "stripe.APIConnectionError": Stripe,
    "stripe.APIConnectionError, aborted": lambda: caused(
        Stripe(), RequestsConnection(Protocol("aborted", ConnectionResetError()))
    ),
    "aiohttp.ContentTypeError": lambda: answered(
        "aiohttp.client_exceptions.ContentTypeError", "status", 200, AioResponse
    ),
    "anthropic.InternalServerError": lambda: answered(
        "anthropic.InternalServerError", "status_code", 529, fake("anthropic.APIStatusError")
    ),
    "azure.ServiceResponseTimeoutError": fake(
        "azure.core.exceptions.ServiceResponseTimeoutError", fake("azure.core.exceptions.ServiceResponseError")
    ),
    "azure.DecodeError": lambda: answered(
        "azure.core.exceptions.DecodeError", "status_code", 200, fake("azure.core.exceptions.HttpResponseError")
    ),
    "azure.HttpResponseError, 500": lambda: answered("azure.core.exceptions.HttpResponseError", "status_code", 500),
    "botocore.ClientError, 503": lambda: answered(
        "botocore.exceptions.ClientError", "response.ResponseMetadata.HTTPStatusCode", 503
    ),
    "google.DeadlineExceeded": lambda: answered(
        "google.api_core.exceptions.DeadlineExceeded",
        "code",
        504,
        fake("google.api_core.exceptions.GoogleAPICallError"),
    ),
    "httpx.DecodingError": fake("httpx.DecodingError"),
    "openai.InternalServerError": lambda: answered(
        "openai.InternalServerError", "status_code", 500, fake("openai.APIStatusError")
    ),
    "openai.APIResponseValidationError": fake("openai.APIResponseValidationError"),
    "requests.ContentDecodingError": fake("requests.exceptions.ContentDecodingError", RequestException),
    "aiohttp, a text that cannot be decoded": lambda: connecting(
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "aiohttp.client_reqrep.text"
    ),
    "botocore.ResponseParserError": fake("botocore.parsers.ResponseParserError"),
    "mcp, a result that does not fit its schema": lambda: connecting(
        RuntimeError("Invalid structured content returned by tool pay"), "mcp.client.session._validate_tool_result"
    ),
    "mcp 2, a result that does not fit its schema": lambda: connecting(
        RuntimeError("Invalid structured content returned by tool pay"), "mcp.client.session.validate_tool_result"
    ),
    "stripe.APIError, a success that cannot be decoded": lambda: answered(
        "stripe._error.APIError", "http_status", 200, StripeError
    ),
    "urllib3.ResponseError, 503": lambda: MaxRetry(
        fake("urllib3.exceptions.ResponseError", Urllib3Error)("too many 503 error responses")
    ),
    "urllib3.InvalidHeader, an answer of two lengths": lambda: connecting(
        fake("urllib3.exceptions.InvalidHeader", Urllib3Error)(), "urllib3.response._init_length"
    ),
    "requests, a redirect that cannot be decoded": lambda: connecting(
        UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "invalid start byte"), "requests.sessions.resolve_redirects"
    ),
    "xmlrpc.client.ProtocolError, 502": lambda: xmlrpc.client.ProtocolError("a/RPC2", 502, "Bad Gateway", {}),
    "stripe.APIError, 500": lambda: answered("stripe._error.APIError", "http_status", 500, StripeError),
    "ssl.SSLError, read": lambda: ssl.SSLError("The read operation timed out"),
    "ssl.SSLSyscallError": lambda: ssl.SSLSyscallError(5, "Some I/O error occurred"),
    "OSError, EIO": lambda: OSError(errno.EIO, "Input/output error"),
    "OSError, EHOSTUNREACH": lambda: OSError(errno.EHOSTUNREACH, "No route to host"),
    "OSError, ENETDOWN": lambda: OSError(errno.ENETDOWN, "Network is down"),
    "OSError, ETIMEDOUT in a class of its own": lambda: detailed(errno.ETIMEDOUT),
    "celery.SoftTimeLimitExceeded": fake("billiard.exceptions.SoftTimeLimitExceeded"),
    "celery.TimeoutError": fake("celery.exceptions.TimeoutError"),
    "rq.JobTimeoutException": fake("rq.timeouts.JobTimeoutException", fake("rq.timeouts.BaseTimeoutException")),
    "psycopg.OperationalError, lost": lambda: sql("psycopg.OperationalError", None),
    "psycopg.errors.ConnectionFailure": lambda: sql("psycopg.errors.ConnectionFailure", "08006"),
    "psycopg.errors.CrashShutdown": lambda: sql("psycopg.errors.CrashShutdown", "57P02"),
    "psycopg2.OperationalError, lost": lambda: sql("psycopg2.OperationalError", None),
    "psycopg2.InterfaceError, closed": lambda: fake("psycopg2.InterfaceError")("connection already closed"),
    "asyncpg.ConnectionDoesNotExistError": lambda: sql("asyncpg.exceptions.ConnectionDoesNotExistError", "08003"),
    "asyncpg.InterfaceError, closed": lambda: Interface("connection is closed"),
    "pymysql 2006": lambda: PyMySQL(2006, "MySQL server has gone away"),
    "pymysql 2013": lambda: PyMySQL(2013, "Lost connection to MySQL server during query"),
    "mysqlclient 2013": lambda: MySQL(2013, "Lost connection to MySQL server during query"),
    "mysql.connector 2013": lambda: fake("mysql.connector.errors.OperationalError")(2013, "Lost connection", None),
    "sayso.OutcomeNotRecordedError of a call inside": lambda: errors.OutcomeNotRecordedError("rq_1", 5, "disk full"),
    "sayso.RunBusyError of a call inside": lambda: errors.RunBusyError("order-4721"),
    "a sayso.StoreError after a lost connection": lambda: caused(
        errors.StoreUnavailableError("away"), ConnectionResetError()
    ),
    "redis.ConnectionError, lost": lambda: connecting(Redis("Connection closed by server."), "redis.connection.read"),
    "redis.TimeoutError": fake("redis.exceptions.TimeoutError"),
    "websockets.ConnectionClosedError": fake(
        "websockets.exceptions.ConnectionClosedError", fake("websockets.exceptions.ConnectionClosed")
    ),
    "pymongo.NetworkTimeout": fake("pymongo.errors.NetworkTimeout", Mongo),
    "pika.StreamLostError": fake("pika.exceptions.StreamLostError"),
    "kafka.KafkaTimeoutError": fake("kafka.errors.KafkaTimeoutError"),
    "kafka.RequestTimedOutError": fake("kafka.errors.RequestTimedOutError"),
    "kafka.KafkaConnectionError": fake("kafka.errors.KafkaConnectionError"),
    "aiokafka.RequestTimedOutError": fake("aiokafka.errors.RequestTimedOutError"),
    "pika.AMQPHeartbeatTimeout": fake("pika.exceptions.AMQPHeartbeatTimeout"),
    "mcp, closed": lambda: mcp("mcp.shared.exceptions.MCPError", -32000, "Connection closed"),
    "mcp, timed out": lambda: mcp("mcp.shared.exceptions.MCPError", -32001, "Request timed out"),
    "mcp 1, timed out": lambda: mcp("mcp.shared.exceptions.McpError", 408, "Timed out"),
    "kafka.KafkaTimeoutError, no broker": lambda: connecting(
        fake("kafka.errors.KafkaTimeoutError")(), "kafka.producer.kafka._wait_on_metadata"
    ),
    "azure.ServiceRequestError": fake("azure.core.exceptions.ServiceRequestError"),
    "botocore.ConnectTimeoutError": fake("botocore.exceptions.ConnectTimeoutError", BotoConnection),
    "botocore.EndpointConnectionError": fake("botocore.exceptions.EndpointConnectionError", BotoConnection),
    "grpc RESOURCE_EXHAUSTED, by the request": lambda: Rpc(
        "RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (5000000 vs. 4194304)"
    ),
    "stripe.APIConnectionError, refused": lambda: caused(
        Stripe(), RequestsConnection(MaxRetry(NewConnection("refused")))
    ),
    "urllib3.ResponseError, 429": lambda: MaxRetry(
        fake("urllib3.exceptions.ResponseError", Urllib3Error)("too many 429 error responses")
    ),
    "urllib3.ResponseError, redirects": lambda: MaxRetry(
        fake("urllib3.exceptions.ResponseError", Urllib3Error)("too many redirects")
    ),
    "EOFError of a pipe": lambda: connecting(EOFError(), "multiprocessing.connection._recv"),
    "EOFError of ftplib": lambda: connecting(EOFError(), "ftplib.getline"),
    "imaplib.IMAP4.abort": lambda: imaplib.IMAP4.abort("socket error: EOF"),
    "concurrent.futures.CancelledError": concurrent.futures.CancelledError,
    "asyncio.CancelledError": asyncio.CancelledError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "GeneratorExit": GeneratorExit,
}

SURE: dict[str, Callable[[], BaseException]] = {
    "requests.ConnectionError, a proxy closed the line during CONNECT": lambda: RequestsConnection(
        Protocol("aborted", connecting(http.client.RemoteDisconnected("closed"), "urllib3.connection.connect"))
    ),
    "requests.ProxyError, refused": lambda: RequestsProxy(MaxRetry(caused(Urllib3Proxy(), NewConnection("refused")))),
    "requests.ProxyError, 407": lambda: RequestsProxy(
        MaxRetry(caused(Urllib3Proxy(), connecting(OSError("Tunnel connection failed: 407"), "http.client.connect")))
    ),
    "aiokafka.KafkaConnectionError, no broker": lambda: connecting(
        fake("aiokafka.errors.KafkaConnectionError")(), "aiokafka.client.bootstrap"
    ),
    "mcp, closed while connecting": lambda: connecting(
        mcp("mcp.shared.exceptions.MCPError", -32000, "Connection closed"), "mcp.client.session.initialize"
    ),
    "fastmcp, refused": lambda: connecting(RuntimeError("could not connect"), "fastmcp.client.client.__aenter__"),
    "smtplib.SMTPServerDisconnected, connecting": lambda: connecting(
        smtplib.SMTPServerDisconnected("closed"), "smtplib.connect"
    ),
    "ValueError": lambda: ValueError("amount"),
    "OSError": lambda: OSError(28, "No space left"),
    "ConnectionError": lambda: ConnectionError("the line is down"),
    "ConnectionRefusedError": ConnectionRefusedError,
    "socket.gaierror": lambda: socket.gaierror(-2, "Name or service not known"),
    "ssl.SSLCertVerificationError": lambda: ssl.SSLCertVerificationError(1, "certificate verify failed"),
    "TimeoutError while connecting": lambda: connecting(TimeoutError("timed out")),
    "httpx.ConnectTimeout": lambda: caused(fake("httpx.ConnectTimeout", HttpxTimeout)(), TimeoutError()),
    "httpx.PoolTimeout": fake("httpx.PoolTimeout", HttpxTimeout),
    "httpx.ConnectError, in the handshake": lambda: caused(
        fake("httpx.ConnectError")(), caused(fake("httpcore.ConnectError")(ConnectionResetError()), None)
    ),
    "httpx.HTTPStatusError, 308": lambda: answered("httpx.HTTPStatusError", "response.status_code", 308),
    "httpx.HTTPStatusError, 499": lambda: answered("httpx.HTTPStatusError", "response.status_code", 499),
    "aiohttp.ClientHttpProxyError, 502": lambda: answered(
        "aiohttp.client_exceptions.ClientHttpProxyError", "status", 502, AioResponse
    ),
    "requests.ConnectTimeout": lambda: fake(
        "requests.exceptions.ConnectTimeout", RequestsConnection, RequestsTimeout
    )(MaxRetry(caused(Urllib3Connect(), TimeoutError()))),
    "requests.ConnectionError, refused": lambda: RequestsConnection(MaxRetry(NewConnection("refused"))),
    "requests.ConnectionError, no such name": lambda: RequestsConnection(
        MaxRetry(fake("urllib3.exceptions.NameResolutionError", NewConnection)())
    ),
    "requests.SSLError, certificate": lambda: RequestsSSL(MaxRetry(Urllib3SSL(ssl.SSLCertVerificationError(1, "x")))),
    "requests.HTTPError": fake("requests.exceptions.HTTPError", RequestException),
    "requests.ReadTimeout, in the handshake": lambda: fake("requests.exceptions.ReadTimeout", RequestsTimeout)(
        caused(Urllib3Read(), connecting(TimeoutError()))
    ),
    "urllib3.MaxRetryError, refused": lambda: MaxRetry(NewConnection("refused")),
    "aiohttp.ClientConnectorError": lambda: caused(AioConnector(), ConnectionResetError()),
    "aiohttp.ConnectionTimeoutError": fake("aiohttp.client_exceptions.ConnectionTimeoutError", AioTimeout),
    "grpc PERMISSION_DENIED": lambda: Rpc("PERMISSION_DENIED"),
    "grpc RESOURCE_EXHAUSTED": lambda: Rpc("RESOURCE_EXHAUSTED", "quota exceeded"),
    "openai.APIConnectionError, refused": lambda: caused(OpenAI(), fake("httpx2.ConnectError")()),
    "openai.APITimeoutError, connecting": lambda: caused(
        OpenAITimeout(), fake("httpx2.ConnectTimeout", Httpx2Timeout)()
    ),
    "ssl.SSLError, handshake": lambda: connecting(
        ssl.SSLError("_ssl.c:1000: The handshake operation timed out"), "ssl.do_handshake"
    ),
    "ssl.SSLError, a wrong version": lambda: connecting(
        ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "ssl.do_handshake"
    ),
    "OSError, EIO while connecting": lambda: connecting(OSError(errno.EIO, "Input/output error")),
    "OSError, EHOSTUNREACH while connecting": lambda: connecting(OSError(errno.EHOSTUNREACH, "No route to host")),
    "psycopg.OperationalError, connecting": lambda: connecting(
        sql("psycopg.OperationalError", None, "connection refused"), "psycopg.connection.connect"
    ),
    "psycopg.errors.ConnectionTimeout": lambda: sql("psycopg.errors.ConnectionTimeout", None),
    "psycopg.errors.LockNotAvailable": lambda: sql("psycopg.errors.LockNotAvailable", "55P03"),
    "psycopg.errors.SqlclientUnableToEstablishSqlconnection": lambda: sql("psycopg.errors.Sqlclient", "08001"),
    "psycopg_pool.PoolTimeout": lambda: sql("psycopg_pool.errors.PoolTimeout", None),
    "psycopg2.OperationalError, connecting": lambda: connecting(
        sql("psycopg2.OperationalError", None), "psycopg2.connect"
    ),
    "psycopg2.errors.DeadlockDetected": lambda: sql("psycopg2.errors.DeadlockDetected", "40P01"),
    "asyncpg, connecting": lambda: connecting(TimeoutError(), "asyncpg.connection.connect"),
    "asyncpg.ConnectionRejectionError": lambda: sql("asyncpg.exceptions.ConnectionRejectionError", "08004"),
    "asyncpg.InterfaceError, wrong use": lambda: Interface("the server expects 2 arguments for this query"),
    "pymysql 2003": lambda: during(PyMySQL(2003, "Can't connect"), connecting(TimeoutError())),
    "pymysql 2013, connecting": lambda: connecting(PyMySQL(2013, "Lost connection"), "pymysql.connections.connect"),
    "pymysql 1205": lambda: PyMySQL(1205, "Lock wait timeout exceeded"),
    "mysqlclient 2013, connecting": lambda: connecting(MySQL(2013, "Lost connection"), "MySQLdb.Connect"),
    "xmlrpc.client.ProtocolError, 401": lambda: xmlrpc.client.ProtocolError("a/RPC2", 401, "Unauthorized", {}),
    "xmlrpc.client.Fault": lambda: xmlrpc.client.Fault(1, "no such order"),
    "subprocess.CalledProcessError, 1": lambda: subprocess.CalledProcessError(1, "rsync"),
    "stripe.CardError, 402": lambda: answered("stripe._error.CardError", "http_status", 402, StripeError),
    "openai.RateLimitError": lambda: answered(
        "openai.RateLimitError", "status_code", 429, fake("openai.APIStatusError")
    ),
    "botocore.ClientError, 400": lambda: answered(
        "botocore.exceptions.ClientError", "response.ResponseMetadata.HTTPStatusCode", 400
    ),
    "sayso.StoreError of a call inside": lambda: caused(
        errors.StoreUnavailableError("away"), fake("httpx.ConnectError")("refused")
    ),
    "redis.ConnectionError, refused": lambda: connecting(Redis("refused"), "redis.connection.connect_check_health"),
    "redis.AuthenticationError": fake("redis.exceptions.AuthenticationError", Redis),
    "pymongo.ServerSelectionTimeoutError": fake("pymongo.errors.ServerSelectionTimeoutError", Mongo),
    "mcp, an error of the tool": lambda: mcp("mcp.shared.exceptions.MCPError", -32602, "Invalid params"),
    "EOFError of input()": EOFError,
    "imaplib.IMAP4.error": lambda: imaplib.IMAP4.error("no such mailbox"),
    "sayso.ConfirmationRequired of a call inside": lambda: sayso.ConfirmationRequired("inner"),
    "sayso.NotExecuted": lambda: sayso.NotExecuted("the account is locked"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_an_error_that_says_nothing_about_the_effect_is_ambiguous(name: str) -> None:
    error = OPEN[name]()
    assert is_ambiguous(error)
    assert is_ambiguous(caused(RuntimeError("could not pay"), error)), "and so is what was raised from it"
    assert is_ambiguous(during(RuntimeError("could not pay"), error)), "and what was raised while handling it"
    assert is_ambiguous(BaseExceptionGroup("many", [ValueError(), BaseExceptionGroup("inner", [error])]))


@pytest.mark.parametrize("name", SURE)
def test_an_error_before_anything_was_sent_or_after_an_answer_is_not(name: str) -> None:
    error = SURE[name]()
    assert not is_ambiguous(error)
    assert not is_ambiguous(caused(RuntimeError("could not pay"), error))
    assert not is_ambiguous(ExceptionGroup("many", [ValueError(), error]))  # type: ignore[list-item]


@pytest.mark.parametrize("name", OPEN)
def test_not_executed_says_no_whatever_it_was_raised_from(name: str) -> None:
    assert not is_ambiguous(caused(sayso.NotExecuted("locked"), OPEN[name]()), (Exception,))
    assert not is_ambiguous(during(sayso.NotExecuted("locked"), OPEN[name]()), (Exception,))


def test_not_executed_speaks_for_its_own_call_and_not_for_the_one_beside() -> None:
    assert is_ambiguous(ExceptionGroup("two", [sayso.NotExecuted("locked"), TimeoutError()]))
    assert not is_ambiguous(ExceptionGroup("two", [sayso.NotExecuted("locked"), ValueError()]))


@pytest.mark.parametrize(
    "first",
    [TimeoutError(), fake("httpx.ReadTimeout", HttpxTimeout)(), Urllib3Read("read"), BotoClient("closed")],
    ids=["TimeoutError", "httpx", "urllib3", "botocore"],
)
def test_a_first_attempt_that_is_open_is_not_undone_by_a_second_that_was_refused(first: BaseException) -> None:
    refused = during(ConnectionRefusedError(), first)
    assert is_ambiguous(refused)
    assert is_ambiguous(caused(fake("httpx.ConnectError")(), caused(fake("httpcore.ConnectError")(refused), refused)))


def raised(error: BaseException, cause: BaseException | None, handled: BaseException) -> BaseException:
    """Return an error as `raise error from cause` raises it while another one is handled."""
    return caused(during(error, handled), cause)  # also a cause that is None suppresses the context


@pytest.mark.parametrize("name", OPEN)
def test_what_was_raised_from_none_or_from_another_error_does_not_hide_the_one_that_was_handled(name: str) -> None:
    assert is_ambiguous(raised(RuntimeError("could not pay"), None, OPEN[name]()))
    assert is_ambiguous(raised(RuntimeError("could not pay"), ValueError("x"), OPEN[name]()))
    assert is_ambiguous(raised(RuntimeError("could not pay"), OPEN[name](), ValueError("x")))
    assert not is_ambiguous(raised(sayso.NotExecuted("booked nothing"), None, OPEN[name]()))


@pytest.mark.parametrize("name", SURE)
def test_what_was_raised_from_none_while_a_sure_error_was_handled_is_not_ambiguous(name: str) -> None:
    assert not is_ambiguous(raised(RuntimeError("could not pay"), None, SURE[name]()))


def test_a_cancellation_that_is_the_timeout_of_a_connection_attempt_is_not_ambiguous() -> None:
    cut_off = connecting(caused(TimeoutError(), asyncio.CancelledError()))
    assert not is_ambiguous(cut_off)
    assert not is_ambiguous(caused(fake("httpx.ConnectTimeout")(), caused(TimeoutError(), asyncio.CancelledError())))
    in_anyio = during(TimeoutError(), caught_in(asyncio.CancelledError(), "anyio._core._tasks.fail_at"))
    assert not is_ambiguous(during(fake("httpx.ConnectTimeout")(), caught_in(in_anyio, "httpcore._async.connect")))
    assert not is_ambiguous(caused(fake("httpx.PoolTimeout")(), in_anyio))
    earlier = during(asyncio.CancelledError(), asyncio.CancelledError())
    assert is_ambiguous(caused(fake("httpx.ConnectTimeout")(), caused(TimeoutError(), earlier)))
    own = connecting(asyncio.CancelledError(), "shop.pay")  # which the program caught
    assert is_ambiguous(caused(fake("httpx.ConnectTimeout")(), during(TimeoutError(), own)))


def int_of(to: str) -> bool:
    return int(to) > 0  # the error quotes it


def no_person(to: str) -> policy.Verdict:
    raise ZeroDivisionError(to)


@pytest.mark.parametrize("redact", [(), ("to",)], ids=["shown", "secret"])
@pytest.mark.parametrize(
    "when",
    [lambda: True, lambda: policy.deny("no"), no_person, int_of],
    ids=["waits", "denied", "rule fails", "rule quotes the argument"],
)
def test_a_gate_inside_does_not_hide_what_the_program_was_handling(
    store: Store, when: Callable[..., Any], redact: tuple[str, ...]
) -> None:
    @sayso.gate(wait="raise", when=when, redact=redact)
    def tell(to: str) -> None:
        """Tell the customer."""

    async def called(handled: BaseException) -> BaseException:
        try:
            try:
                raise handled
            except type(handled):
                await atell("a long address")
        except BaseException as error:  # noqa: BLE001  whatever the gate raises
            return error
        raise AssertionError("it ran")

    @sayso.gate(wait="raise", when=when, redact=redact)
    async def atell(to: str) -> None:
        """Tell the customer."""

    for handled, expected in ((TimeoutError("to a long address"), True), (ValueError("wrong"), False)):
        with pytest.raises(Exception) as caught:  # noqa: PT011, PT012  whatever the gate raises
            try:
                raise handled
            except type(handled):
                tell("a long address")
        assert is_ambiguous(caught.value) is expected
        assert is_ambiguous(raised(RuntimeError(), None, caught.value)) is expected
        assert is_ambiguous(asyncio.run(called(type(handled)()))) is expected


def test_what_the_caller_was_handling_does_not_count_where_it_is_suppressed() -> None:
    before = TimeoutError()
    assert not is_ambiguous(raised(ValueError(), None, before), handled=before)


def test_real_failure_to_connect_to_postgres_is_not_ambiguous() -> None:
    psycopg = pytest.importorskip("psycopg")
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect("host=127.0.0.1 port=1 connect_timeout=2")
    assert not is_ambiguous(caught.value)
    assert is_ambiguous(psycopg.OperationalError("server closed the connection unexpectedly"))


def test_what_the_caller_was_handling_before_the_call_does_not_count() -> None:
    before = TimeoutError()
    assert is_ambiguous(during(ValueError(), before))
    assert not is_ambiguous(during(ValueError(), before), handled=before)


def test_the_unknown_request_of_a_call_inside_is_found_behind_from_none_and_behind_another_cause() -> None:
    marked = RuntimeError("inside")
    mark_unknown(marked, "rq_1", may_start_again=False)
    assert unknown_request(raised(RuntimeError(), None, marked)) == "rq_1"
    assert unknown_request(raised(RuntimeError(), ValueError("x"), marked)) == "rq_1"
    assert unknown_request(raised(RuntimeError(), marked, ValueError("x"))) == "rq_1"
    assert unknown_request(ExceptionGroup("of a task group", [ValueError("x"), marked])) == "rq_1"
    assert unknown_request(raised(sayso.NotExecuted("nothing"), None, marked)) is None
    assert unknown_request(raised(RuntimeError(), None, ValueError("x"))) is None


def test_more_classes_may_be_named() -> None:
    class BankError(Exception):
        pass

    assert not is_ambiguous(BankError())
    assert is_ambiguous(BankError(), (BankError,))
    assert is_ambiguous(caused(RuntimeError(), BankError()), (BankError,))
    assert is_ambiguous(ConnectionRefusedError(), (OSError,)), "the author of the gate knows better"


def test_an_error_that_cannot_be_read_is_ambiguous() -> None:
    class Odd(RpcError):  # type: ignore[misc,valid-type]
        def code(self) -> object:
            raise RuntimeError("no code")

    Odd.__module__ = "grpc"
    assert is_ambiguous(Odd())


def test_errors_that_lead_in_a_circle_are_read_once() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__context__, two.__context__ = two, one
    assert not is_ambiguous(one)


@pytest.mark.parametrize("first", [ValueError, TimeoutError])
def test_a_long_chain_and_deeply_nested_groups_are_read_to_their_end(first: type[Exception]) -> None:
    chain = group = first("the first one")
    for _ in range(2_000):
        chain = during(RuntimeError("again"), chain)  # type: ignore[assignment]
    for _ in range(60):  # 2 ** 60 ways lead to the first one
        group = caused(ExceptionGroup("both", [group, group]), group)  # type: ignore[assignment]
    for error in (chain, group):
        assert is_ambiguous(error) is (first is TimeoutError)


def test_one_class_or_several_are_taken_and_anything_else_is_refused_by_name() -> None:
    assert exception_classes(KeyError) == (KeyError,)
    assert exception_classes([KeyError, OSError]) == (KeyError, OSError)
    assert exception_classes(()) == ()
    for wrong in ("httpx.ReadTimeout", [KeyError, "x"], 5, int, KeyError("x"), None):
        with pytest.raises(errors.ConfigError, match=r"^ambiguous= takes exception classes, not "):
            exception_classes(wrong)
    with pytest.raises(errors.ConfigError, match="NotExecuted"):
        exception_classes(sayso.NotExecuted)
