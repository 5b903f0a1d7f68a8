"""How a gated call ends whose client loses its connection, is refused one, or gets an answer that settles nothing.

Real clients send to a real socket. `test_ambiguous_errors.py` has the classes of the clients that are not installed.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

import sayso
from sayso.model.request import State
from sayso.stores.base import Store
from tests.support.acting import approved, state_of

ANSWERS = {
    "half": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
    "409": b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
    "500": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    "504": b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n",
    "another protocol": b"HTTP/3.0 200 OK\r\n\r\n",
    "a line without end": b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000,
    "a chunk without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    "200 headers": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    "garbled": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n<html>",
}


@contextmanager
def served(how: str) -> Iterator[int]:
    """Listen, take each request, and then answer, hang up, reset, or stay silent; give the port."""
    listener, kept = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()

    def serve() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            kept.append(line)
            heard = b""
            while b"amount=5" not in heard and (piece := line.recv(65_536)):
                heard += piece
            line.sendall(ANSWERS.get(how, b""))
            if how == "reset":
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if how != "hang":
                line.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)
        for line in kept:
            line.close()


def raised_by(post: Callable[[int, float], None], port: int, seconds: float) -> Exception:
    try:
        post(port, seconds)
    except Exception as error:  # noqa: BLE001  each client has its own
        return error
    raise AssertionError("nothing was raised")


def refusing() -> int:
    """Return a port on which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return listener.getsockname()[1]


def by_urllib(port: int, seconds: float) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=b"amount=5", timeout=seconds) as answer:
        answer.read()


def by_http_client(port: int, seconds: float) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)) as line:
        line.request("POST", "/", body=b"amount=5")
        with line.getresponse() as answer:
            answer.read()


def by_httpx(port: int, seconds: float) -> None:
    httpx = pytest.importorskip("httpx2", reason="a client with the errors of httpx")
    httpx.post(f"http://127.0.0.1:{port}/", content=b"amount=5", timeout=seconds)


def by_requests(port: int, seconds: float) -> None:
    requests = pytest.importorskip("requests")
    with requests.Session() as session:
        session.post(f"http://127.0.0.1:{port}/", data=b"amount=5", timeout=seconds)


def by_asyncio(port: int, seconds: float) -> None:
    async def post() -> None:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"amount=5")
                await reader.readexactly(500)
            finally:
                writer.close()

    asyncio.run(post())


CLIENTS: dict[str, Callable[[int, float], None]] = {
    "urllib": by_urllib, "http.client": by_http_client, "httpx": by_httpx, "requests": by_requests,
    "asyncio": by_asyncio,
}  # fmt: skip


@pytest.mark.parametrize("how", ["hang up", "reset", "hang", "half"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_that_is_lost_after_sending_is_unknown(store: Store, client: str, how: str) -> None:
    post, seconds = sayso.gate(CLIENTS[client], name="post", wait="raise"), 0.5 if how == "hang" else 60.0
    with served(how) as port:
        request_id = approved(post, port, seconds)
        error = raised_by(post, port, seconds)
    assert state_of(request_id) is State.UNKNOWN, repr(error)
    assert request_id in error.__notes__[-1]


@pytest.mark.parametrize("how", ["another protocol", "a line without end", "a chunk without end", "200 headers"])
@pytest.mark.parametrize("client", ["urllib", "http.client"])
def test_an_answer_that_is_no_http_is_unknown(store: Store, client: str, how: str) -> None:
    post = sayso.gate(CLIENTS[client], name="post", wait="raise")
    with served(how) as port:
        request_id = approved(post, port, 60.0)
        error = raised_by(post, port, 60.0)
    assert state_of(request_id) is State.UNKNOWN, repr(error)
    assert isinstance(error, http.client.HTTPException)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_that_was_refused_is_failed(store: Store, client: str) -> None:
    post = sayso.gate(CLIENTS[client], name="post", wait="raise")
    port = refusing()
    request_id = approved(post, port, 60.0)
    error = raised_by(post, port, 60.0)
    assert state_of(request_id) is State.FAILED, repr(error)


def answered_httpx(port: int, package: str) -> None:
    httpx = pytest.importorskip(package)
    httpx.post(f"http://127.0.0.1:{port}/", content=b"amount=5").raise_for_status().json()


def answered_requests(port: int) -> None:
    requests = pytest.importorskip("requests")
    with requests.Session() as session:
        response = session.post(f"http://127.0.0.1:{port}/", data=b"amount=5")
        response.raise_for_status()
        response.json()


def answered_aiohttp(port: int) -> None:
    aiohttp = pytest.importorskip("aiohttp")

    async def post() -> None:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.post(f"http://127.0.0.1:{port}/", data=b"amount=5") as response,
        ):
            await response.json()

    asyncio.run(post())


ANSWERED: dict[str, Callable[[int], None]] = {
    "urllib": lambda port: by_urllib(port, 60.0), "httpx": partial(answered_httpx, package="httpx"),
    "httpx2": partial(answered_httpx, package="httpx2"), "requests": answered_requests, "aiohttp": answered_aiohttp,
}  # fmt: skip


@pytest.mark.parametrize("how", ["409", "500", "504", "garbled"])
@pytest.mark.parametrize("client", ANSWERED)
def test_a_server_error_and_an_answer_that_cannot_be_decoded_are_unknown_and_a_refusal_is_failed(
    store: Store, client: str, how: str
) -> None:
    if (client, how) == ("urllib", "garbled"):
        pytest.skip("urllib decodes nothing")

    @sayso.gate(name="post", wait="raise")
    def post(port: int) -> None:
        ANSWERED[client](port)

    with served(how) as port:
        request_id = approved(post, port)
        with pytest.raises(Exception, match=how if how.isdigit() else "Expecting value|unexpected character"):
            post(port)
    assert state_of(request_id) is (State.FAILED if how == "409" else State.UNKNOWN)
