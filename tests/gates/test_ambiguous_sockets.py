"""How a gated call ends whose client loses its connection, is refused one, or gets an answer that settles nothing;
and of one whose client tries again by itself or follows a redirect.

Real clients send to a real socket. `test_ambiguous_errors.py` has the classes of the clients that are not installed.
"""

from __future__ import annotations

import asyncio
import ftplib
import http.client
import imaplib
import json
import poplib
import smtplib
import socket
import struct
import threading
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

import pytest

import sayso
from sayso.model.request import State
from sayso.stores.base import Store
from tests.support.acting import approved, state_of

FAULT = xmlrpc.client.dumps(xmlrpc.client.Fault(1, "no such order")).encode()
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
    "try again": b"HTTP/1.1 409 Conflict\r\nRetry-After-Ms: 1\r\nContent-Length: 0\r\n\r\n",
    "303": b"HTTP/1.1 303 See Other\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: shop://done\r\nContent-Length: 0\r\n\r\n",
    "307 elsewhere": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: shop://done\r\nContent-Length: 0\r\n\r\n",
    "no xml": b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: 6\r\n\r\n<html>",
    "no answer": b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: 17\r\n\r\n<methodResponse/>",
    "a long line": b"a" * 70_000,
    "fault": b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n%s" % (len(FAULT), FAULT),
}


@contextmanager
def served(*hows: str) -> Iterator[int]:
    """Listen, take each request, and then answer, hang up, reset, or stay silent; give the port.

    The last of several ways is also that of all further connections.
    """
    refused, listener, kept = refusing(), socket.create_server(("127.0.0.1", 0)), list[socket.socket]()

    def serve() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            how = hows[min(len(kept), len(hows) - 1)]
            kept.append(line)
            heard = b""
            while b"amount=5" not in heard and (piece := line.recv(65_536)):
                heard += piece
            answer = ANSWERS.get(how, b"")
            line.sendall(answer % refused if how == "303" else answer)
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


def read_httpx(port: int) -> None:
    httpx = pytest.importorskip("httpx2")
    httpx.post(f"http://127.0.0.1:{port}/", content=b"amount=5").raise_for_status()


def read_urllib(port: int) -> None:
    try:
        by_urllib(port, 60.0)
    except urllib.error.HTTPError as error:
        error.close()
        raise


def read_json(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=b"amount=5", timeout=60) as answer:
        json.load(answer)


def read_short(port: int) -> None:
    try:
        urllib.request.urlretrieve(f"http://127.0.0.1:{port}/", data=b"amount=5")
    finally:
        urllib.request.urlcleanup()


def read_xmlrpc(port: int) -> None:
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}/") as server:
        server.pay("amount=5")


def read_line(port: int) -> None:
    async def pay() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer):
            writer.write(b"amount=5")
            await reader.readline()

    asyncio.run(pay())


def shut_down(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"amount=5")
        with suppress(ConnectionResetError):
            line.recv(1)
        line.shutdown(socket.SHUT_WR)


READ: dict[str, tuple[Callable[[int], None], str]] = {
    "httpx, a redirect": (read_httpx, "303"),
    "urllib, a redirect to another scheme": (read_urllib, "elsewhere"),
    "urllib, a short answer": (read_short, "half"),
    "json.load, no JSON": (read_json, "garbled"),
    "xmlrpc, a redirect": (read_xmlrpc, "303"),
    "xmlrpc, no XML": (read_xmlrpc, "no xml"),
    "xmlrpc, no result": (read_xmlrpc, "no answer"),
    "asyncio, a line that is too long": (read_line, "a long line"),
    "socket, closed after a reset": (shut_down, "reset"),
}


@pytest.mark.parametrize("what", READ)
def test_an_answer_that_the_client_cannot_use_is_unknown(store: Store, what: str) -> None:
    send, how = READ[what]
    post = sayso.gate(send, name="post", wait="raise")
    with served(how) as port:
        request_id = approved(post, port)
        error = raised_by(lambda port, _: post(port), port, 0.0)
    assert state_of(request_id) is State.UNKNOWN, repr(error)


def test_a_redirect_that_is_to_be_sent_again_is_failed(store: Store) -> None:
    post = sayso.gate(read_urllib, name="post", wait="raise")
    with served("307 elsewhere") as port:
        request_id = approved(post, port)
        with pytest.raises(urllib.error.HTTPError, match="307"):
            post(port)
    assert state_of(request_id) is State.FAILED


@pytest.mark.parametrize("answers", ["text", "bytes", "close", "abort"])
def test_a_web_socket_that_gives_no_json_is_unknown(store: Store, answers: str) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    pytest.importorskip("aiohttp.web")

    async def serve(request: Any) -> Any:
        line = aiohttp.web.WebSocketResponse()
        await line.prepare(request)
        await line.receive()
        if answers == "text":
            await line.send_str("<html>")
        elif answers == "bytes":
            await line.send_bytes(b"{}")
        elif answers == "abort":
            request.transport.abort()
        return line

    @sayso.gate(wait="raise")
    async def pay() -> None:
        app = aiohttp.web.Application()
        app.router.add_get("/", serve)
        runner = aiohttp.web.AppRunner(app)
        await runner.setup()
        try:
            site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
            async with aiohttp.ClientSession() as session, session.ws_connect(url) as line:
                await line.send_str("amount=5")
                await line.receive_json()
        finally:
            await runner.cleanup()

    async def call() -> str:
        with pytest.raises(sayso.ConfirmationRequired) as held:
            await pay()
        sayso.Review().approve(held.value.confirmation_id, by="ada")
        with pytest.raises(Exception, match=r"Expecting value|is not WSMsgType"):
            await pay()
        return held.value.confirmation_id

    assert state_of(asyncio.run(call())) is State.UNKNOWN


@contextmanager
def mail_server(says_to_data: bytes, says_to_quit: bytes) -> Iterator[int]:
    says = {b"DATA\r\n": b"354 go\r\n", b".\r\n": says_to_data, b"QUIT\r\n": says_to_quit}
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line, line.makefile("rb") as heard:
                line.sendall(b"220 ready\r\n")
                is_mail = False
                for command in heard:
                    if not is_mail or command == b".\r\n":
                        line.sendall(says.get(command.upper(), b"250 ok\r\n"))
                    is_mail = command.upper() == b"DATA\r\n" or (is_mail and command != b".\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(60)


@pytest.mark.parametrize(
    ("says_to_data", "says_to_quit", "state"),
    [
        (b"250 ok\r\n", b"421 timeout\r\n", State.UNKNOWN),
        (b"250 " + b"a" * 10_000 + b"\r\n", b"221 bye\r\n", State.UNKNOWN),
        (b"554 spam\r\n", b"221 bye\r\n", State.FAILED),
    ],
    ids=["an error at the goodbye", "a long line", "refused"],
)
def test_what_a_mail_server_says_after_the_mail_tells_nothing_about_it(
    store: Store, says_to_data: bytes, says_to_quit: bytes, state: State
) -> None:
    @sayso.gate(wait="raise")
    def send(port: int) -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=60) as line:
            line.sendmail("a@example.org", "b@example.org", "hello")

    with mail_server(says_to_data, says_to_quit) as port:
        request_id = approved(send, port)
        with pytest.raises(smtplib.SMTPResponseException):
            send(port)
    assert state_of(request_id) is state


@contextmanager
def line_server(greeting: bytes, says: dict[bytes, bytes]) -> Iterator[int]:
    """Answer each line by its command, which may follow a tag; hang up where there is no answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line, line.makefile("rb") as heard, suppress(ConnectionError):
                line.sendall(greeting)
                for command in heard:
                    tag, *words = command.split()
                    answer = says.get(words[0] if words and words[0] in says else tag)
                    if answer is None:
                        return
                    line.sendall(answer.replace(b"TAG", tag))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(60)


def by_ftp(port: int) -> None:
    with ftplib.FTP(timeout=60) as line:  # noqa: S321  to this machine
        line.connect("127.0.0.1", port)
        line.login()
        line.delete("orders")


def by_pop(port: int) -> None:
    line = poplib.POP3("127.0.0.1", port, timeout=60)
    try:
        line.user("bob")
        line.dele(1)
    finally:
        line.close()


def by_imap(port: int) -> None:
    line = imaplib.IMAP4("127.0.0.1", port, timeout=60)
    try:
        line.noop()
    finally:
        line.shutdown()


FTP, POP = {b"USER": b"230 in\r\n"}, {b"USER": b"+OK\r\n"}
IMAP = {b"CAPABILITY": b"* CAPABILITY IMAP4REV1\r\nTAG OK done\r\n"}
TALKS: dict[str, tuple[Callable[[int], None], bytes, dict[bytes, bytes], State]] = {
    "ftplib, no answer of FTP": (by_ftp, b"220 hi\r\n", FTP | {b"DELE": b"hello\r\n"}, State.UNKNOWN),
    "ftplib, another answer": (by_ftp, b"220 hi\r\n", FTP | {b"DELE": b"150 soon\r\n"}, State.UNKNOWN),
    "ftplib, a long line": (by_ftp, b"220 hi\r\n", FTP | {b"DELE": b"2" * 9_000 + b"\r\n"}, State.UNKNOWN),
    "ftplib, refused": (by_ftp, b"220 hi\r\n", FTP | {b"DELE": b"550 no\r\n"}, State.FAILED),
    "ftplib, no answer of FTP at first": (by_ftp, b"hello\r\n", {}, State.FAILED),
    "poplib, closed": (by_pop, b"+OK\r\n", POP, State.UNKNOWN),
    "poplib, closed at the login": (by_pop, b"+OK\r\n", {}, State.FAILED),
    "poplib, a long line": (by_pop, b"+OK\r\n", POP | {b"DELE": b"+" * 9_000 + b"\r\n"}, State.UNKNOWN),
    "poplib, refused": (by_pop, b"+OK\r\n", POP | {b"DELE": b"-ERR no\r\n"}, State.FAILED),
    "imaplib, a long line": (by_imap, b"* OK\r\n", IMAP | {b"NOOP": b"* " + b"a" * 1_100_000}, State.UNKNOWN),
    "imaplib, refused": (by_imap, b"* OK\r\n", IMAP | {b"NOOP": b"TAG BAD no\r\n"}, State.FAILED),
}


@pytest.mark.parametrize("what", TALKS)
def test_an_answer_of_a_line_protocol_that_tells_nothing_is_unknown(store: Store, what: str) -> None:
    send, greeting, says, state = TALKS[what]
    post = sayso.gate(send, name="post", wait="raise")
    with line_server(greeting, says) as port:
        request_id = approved(post, port)
        error = raised_by(lambda port, _: post(port), port, 0.0)
    assert state_of(request_id) is state, repr(error)


def again_openai(port: int, retries: int) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{port}", max_retries=retries) as client:
        client.completions.create(model="m", prompt="amount=5")


def again_urllib3(port: int, retries: int) -> None:
    urllib3 = pytest.importorskip("urllib3")
    with urllib3.PoolManager(retries=urllib3.Retry(retries)) as pool:
        pool.request("POST", f"http://127.0.0.1:{port}/", body=b"amount=5")


def again_requests(port: int, retries: int) -> None:
    requests, urllib3 = pytest.importorskip("requests"), pytest.importorskip("urllib3")
    with requests.Session() as session:
        retry = urllib3.Retry(retries, allowed_methods=None)
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
        session.post(f"http://127.0.0.1:{port}/", data=b"amount=5").raise_for_status()


def again_xmlrpc(port: int, retries: int) -> None:
    assert retries in (0, 1), "it always has one"
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}/") as server:
        server.pay("amount=5")


def again_aiohttp(port: int, retries: int) -> None:
    assert retries in (0, 1), "it always has one"
    aiohttp = pytest.importorskip("aiohttp")

    async def put() -> None:
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            await session.put(f"http://127.0.0.1:{port}/", data=b"amount=5")

    asyncio.run(put())


AGAIN: dict[str, tuple[Callable[[int, int], None], list[str]]] = {
    "openai": (again_openai, ["try again", "409"]), "requests": (again_requests, ["hang up", "409"]),
    "xmlrpc": (again_xmlrpc, ["hang up", "fault"]), "aiohttp": (again_aiohttp, ["hang up", "409"]),
}  # fmt: skip


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("client", AGAIN)
def test_an_answer_is_failed_if_it_is_that_to_the_first_attempt(store: Store, client: str, is_first: bool) -> None:
    send, hows = AGAIN[client]
    post = sayso.gate(send, name="post", wait="raise")
    with served(*(hows[1:] if is_first else hows)) as port:
        request_id = approved(post, port, 0 if is_first else 1)
        with pytest.raises(Exception, match=r"409|no such order"):
            post(port, 0 if is_first else 1)
    assert state_of(request_id) is (State.FAILED if is_first else State.UNKNOWN)


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("send", [again_urllib3, again_requests])
def test_a_connection_that_was_refused_is_unknown_if_the_client_has_tried_before(
    store: Store, send: Callable[[int, int], None], retries: int
) -> None:
    post, port = sayso.gate(send, name="post", wait="raise"), refusing()
    request_id = approved(post, port, retries)
    with pytest.raises(Exception, match="refused"):
        post(port, retries)
    assert state_of(request_id) is (State.UNKNOWN if retries else State.FAILED)


def redirected_httpx(port: int, package: str) -> None:
    httpx = pytest.importorskip(package)
    httpx.post(f"http://127.0.0.1:{port}/", content=b"amount=5", follow_redirects=True)


REDIRECTED = ANSWERED | {package: partial(redirected_httpx, package=package) for package in ("httpx", "httpx2")}


@pytest.mark.parametrize("is_redirected", [False, True], ids=["direct", "redirected"])
@pytest.mark.parametrize("client", REDIRECTED)
def test_a_connection_that_was_refused_is_unknown_if_it_followed_a_redirect(
    store: Store, client: str, is_redirected: bool
) -> None:
    @sayso.gate(name="post", wait="raise")
    def post(port: int) -> None:
        REDIRECTED[client](port)

    with served("303") as redirecting:
        port = redirecting if is_redirected else refusing()
        request_id = approved(post, port)
        error = raised_by(lambda port, _: post(port), port, 0.0)
    assert state_of(request_id) is (State.UNKNOWN if is_redirected else State.FAILED), repr(error)
