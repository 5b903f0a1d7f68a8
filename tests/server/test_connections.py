"""Connections that ask nothing or read nothing: they end by themselves, make room for others, and shut nobody out.

Real sockets and the real server; limits are short where a test waits for one to pass. The invariant: a request that is
being answered is answered, whoever else comes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from sayso.server import create_app, protection
from sayso.server.api import long_poll
from sayso.server.protection import Limits, config, raise_file_limit
from sayso.stores.base import Filter, Store
from sayso.testing import sample_call
from tests.support.calling import asked_message
from tests.support.serving import new_token

PATIENCE, NEVER = 120, 3_600
HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def limited(app: Any, limits: Limits, **options: Any) -> Iterator[int]:
    """Serve an app within limits, and give the port; the system takes little of an answer that nobody reads."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    server = uvicorn.Server(config(app, limits, log_config=None, access_log=False, lifespan="off", **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
        gc.unfreeze()


def connected(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall(sent)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Return the status and what follows, as far as one read goes; nothing where it was closed."""
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes a connection."""
    while answer(connection):
        pass
    return True


def test_a_server_that_collects_garbage_leaves_out_what_stood_before_it() -> None:
    with limited(create_app("memory:"), Limits()):
        assert gc.get_freeze_count() > 10_000


class Loop:
    """Answers with the module of the event loop that it runs in."""

    async def __call__(self, _: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": type(asyncio.get_running_loop()).__module__.encode()})


def test_a_server_runs_on_uvloop_but_for_tls_whose_handshake_must_end_in_time() -> None:
    with limited(Loop(), Limits()) as port, closing(connected(port, WHOLE)) as connection:
        assert b"uvloop" in answer(connection)
    assert config(Loop(), Limits(), ssl_certfile="cert.pem").loop == "asyncio"
    gc.unfreeze()


class Told:
    """Waits in the answer to its first request until the peer is gone.

    Attributes:
        messages: What it was told.
        is_asked, ended: Set when it begins, and when it was told.
    """

    def __init__(self) -> None:
        self.messages, self.is_asked, self.ended = list[str](), threading.Event(), threading.Event()

    async def __call__(self, _: Any, receive: Any, __: Any) -> None:
        self.messages.append((await receive())["type"])
        self.is_asked.set()
        self.messages.append((await receive())["type"])
        self.ended.set()


def test_a_request_with_others_behind_it_is_told_that_its_peer_is_gone() -> None:
    app = Told()
    with limited(app, Limits()) as port:
        with closing(connected(port, 3 * WHOLE)):
            assert app.is_asked.wait(PATIENCE)
        assert app.ended.wait(PATIENCE)
    assert app.messages == ["http.request", "http.disconnect"]


def test_a_header_that_does_not_come_whole_ends_the_connection(memory: Store) -> None:
    with limited(create_app(memory), Limits(header=0.2)) as port:
        for sent in (b"", b"GET", HALF):
            with closing(connected(port, sent)) as connection:
                assert is_closed(connection)


def test_bytes_that_drip_put_the_end_of_a_header_not_off(memory: Store) -> None:
    with limited(create_app(memory), Limits(header=0.5)) as port, closing(connected(port, HALF)) as connection:
        dripping = threading.Event()

        def drip() -> None:
            try:
                while not dripping.wait(0.02):
                    connection.send(b"x")
            except OSError:
                return

        thread = threading.Thread(target=drip)
        thread.start()
        assert is_closed(connection)
        dripping.set()
        thread.join()


def test_the_second_request_of_a_connection_has_its_time_as_well(memory: Store) -> None:
    with limited(create_app(memory), Limits(header=0.5)) as port, closing(connected(port, WHOLE)) as connection:
        assert b"200 OK" in answer(connection)
        connection.sendall(HALF)
        assert is_closed(connection)


def test_who_asks_nothing_more_is_let_go_and_who_began_to_ask_keeps_the_time_for_a_header(memory: Store) -> None:
    with limited(create_app(memory), Limits(header=NEVER), timeout_keep_alive=1) as port, ExitStack() as stack:
        asking, idle = (stack.enter_context(closing(connected(port))) for _ in range(2))
        for connection, sent in ((asking, HALF), (idle, b"")):
            connection.sendall(WHOLE)
            assert b"200 OK" in answer(connection)
            connection.sendall(sent)
        assert is_closed(idle)  # which has rested for less time than the other
        asking.sendall(b"1\r\n\r\n")
        assert b"200 OK" in answer(asking)


def test_who_was_answered_before_the_body_was_whole_may_not_go_on_sending(memory: Store) -> None:
    head = b"POST /api/v1/program/ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
    with (
        limited(create_app(memory), Limits(header=NEVER, rest=0.2)) as port,
        closing(connected(port, head)) as connection,
    ):
        assert b"401 Unauthorized" in answer(connection)
        connection.sendall(b"1")  # which stops the clock by which uvicorn ends what is idle
        assert is_closed(connection)


def test_where_all_places_are_taken_who_waited_longest_makes_room(memory: Store) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(limited(create_app(memory), Limits(most=20, header=NEVER)))
        halves = [stack.enter_context(closing(connected(port, HALF))) for _ in range(60)]
        assert b"200 OK" in answer(stack.enter_context(closing(connected(port, WHOLE))))
        assert all(is_closed(one) for one in halves[:40])


def test_a_request_that_is_answered_makes_room_for_nobody(memory: Store) -> None:
    began, ends = threading.Semaphore(0), threading.Event()
    real = create_app(memory)

    async def slow(scope: Any, receive: Any, send: Any) -> None:

        began.release()
        await asyncio.to_thread(ends.wait, PATIENCE)
        await real(scope, receive, send)

    with ExitStack() as stack:
        port = stack.enter_context(limited(slow, Limits(most=3, header=NEVER)))
        asking = [stack.enter_context(closing(connected(port, WHOLE))) for _ in range(3)]
        for _ in asking:
            assert began.acquire(timeout=PATIENCE)
        refused = answer(stack.enter_context(closing(connected(port, WHOLE))))
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 1" in refused
        ends.set()
        assert all(b"200 OK" in answer(one) for one in asking)


def test_a_program_that_waits_keeps_no_input(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, asleep, deliver = 30, threading.Semaphore(0), long_poll._Waiting._deliver

    def noted(waiting: Any, found: Any) -> None:
        deliver(waiting, found)
        asleep.release()

    def alive() -> Counter[str]:
        gc.collect()
        return Counter(type(one).__name__ for one in gc.get_objects())

    monkeypatch.setattr(long_poll._Waiting, "_deliver", noted)
    body = json.dumps({"seen": {"rq_" + "0" * 32: None}, "seconds": 30}).encode()
    head = (
        "POST /api/v1/program/wait HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {new_token(memory)}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with limited(create_app(memory), Limits()) as port, ExitStack() as stack:
        before = alive()
        for _ in range(programs):
            stack.enter_context(closing(connected(port, head.encode() + body)))
            assert asleep.acquire(timeout=PATIENCE)
        grown = alive() - before
    assert grown["_Waiting"] == programs
    assert (grown["Wait"], grown["Principal"]) == (0, 1)
    assert grown["deque"] < 2 * programs  # asyncio's transports have one each in Python 3.12 and later


def sent_to(token: str, path: str, body: Any, *further: str, method: str = "POST") -> bytes:
    """Return a whole request to the API, as a program sends it."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{method} /api/v1{path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}",
        "Content-Type: application/json", f"Content-Length: {len(content)}", *further,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + content


def read_answer(file: Any, *, has_body: bool = True) -> tuple[bytes, dict[str, str], bytes]:
    """Read exactly one response, and return its status line, its headers and its body."""
    status, headers = file.readline(), dict[str, str]()
    while line := file.readline().decode().rstrip("\r\n"):
        name, _, value = line.partition(": ")
        assert name not in headers
        headers[name] = value
    return status, headers, file.read(int(headers["content-length"])) if has_body else b""


def test_every_way_to_ask_gets_the_same_answer(memory: Store) -> None:
    reviewer, asked = new_token(memory, "review"), memory.ask(sample_call())
    path = f"/requests/{asked.id}"
    with limited(create_app(memory), Limits()) as port, ExitStack() as stack:
        answers = list[tuple[bytes, dict[str, str], bytes]]()
        for method, further in (("GET", []), ("GET", ["Connection: close"]), ("HEAD", [])):
            sent = sent_to(reviewer, path, None, *further, method=method)
            file = stack.enter_context(closing(connected(port, sent))).makefile("rb")
            answers.append(read_answer(file, has_body=method == "GET"))
            assert answers[-1][1].pop("date")
    assert answers[1][1].pop("connection") == "close"
    assert answers[0] == answers[1] == (answers[2][0], answers[2][1], answers[0][2])
    assert json.loads(answers[0][2])["id"] == asked.id
    assert {name: answers[0][1].get(name) for name in protection.HEADERS} == protection.HEADERS
    assert answers[0][1]["cache-control"] == "no-cache"


def test_pipelined_requests_are_answered_in_their_order(memory: Store) -> None:
    token = new_token(memory)
    sent = [sent_to(token, "/program/find-key", {"run_id": "order", "key": str(number)}) for number in range(2)]
    with limited(create_app(memory), Limits()) as port, closing(connected(port, b"".join(sent))) as connection:
        file = connection.makefile("rb")
        first = read_answer(file)
        assert first[1]["cache-control"] == "no-store"
        assert first[::2] == read_answer(file)[::2] == (b"HTTP/1.1 200 OK\r\n", b'{"found":null}')


class Large:
    """Answers each request with so many bytes, in pieces.

    Attributes:
        ended: Released after each answer, whether or not it was read.
    """

    def __init__(self, pieces: int, size: int) -> None:
        self._pieces, self._size, self.ended = pieces, size, threading.Semaphore(0)

    async def __call__(self, _: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for left in reversed(range(self._pieces)):
            await send({"type": "http.response.body", "body": bytes(self._size), "more_body": left > 0})
        self.ended.release()


def deaf(port: int, sent: bytes) -> socket.socket:
    """Return a connection whose end at the peer takes next to nothing that is not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(PATIENCE)
    connection.connect(("127.0.0.1", port))
    connection.sendall(sent)
    return connection


def is_served(port: int) -> bool:
    """Ask until there is a place; say whether there ever was."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with closing(connected(port, WHOLE)) as connection:
            if b"200 OK" in answer(connection):
                return True
    return False


def test_who_pipelines_requests_and_reads_no_answer_loses_the_place() -> None:
    large = Large(pieces=100, size=100_000)
    with (
        limited(large, Limits(most=1, header=NEVER, unread=0.2)) as port,
        closing(deaf(port, 3 * WHOLE)),
    ):
        assert large.ended.acquire(timeout=PATIENCE), "the answer still waits to be read"
        assert is_served(port)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", id="asked to close"),
        pytest.param(WHOLE + b"no request\r\n\r\n", id="sent no request"),
    ],
)
def test_who_reads_not_the_last_answer_of_a_connection_that_closes_loses_the_place(sent: bytes) -> None:
    large = Large(pieces=1, size=50_000)  # less than makes a server wait until it may write
    with limited(large, Limits(most=1, header=NEVER, unread=0.2)) as port, closing(deaf(port, sent)):
        assert large.ended.acquire(timeout=PATIENCE)
        assert is_served(port)


class Manual:
    """Stands for a loop and a transport: time passes and bytes are read when a test says so."""

    def __init__(self) -> None:
        self.left, self.is_aborted, self.timers = 0, False, dict[int, Any]()
        self._is_closing, self._now = False, 0.0

    def call_later(self, seconds: float, do: Any, *given: Any) -> Any:
        number = len(self.timers)
        self.timers[number] = self._now + seconds, partial(do, *given)
        return SimpleNamespace(cancel=lambda: self.timers.pop(number, None))

    def pass_time(self, seconds: float = 30.0) -> None:
        self._now += seconds
        for number, (due, do) in list(self.timers.items()):
            if due <= self._now:
                del self.timers[number]
                do()

    def get_write_buffer_size(self) -> int:
        return self.left

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes) -> None:
        self.left += len(data)

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self.is_aborted = True


@pytest.fixture
def manual() -> Manual:
    return Manual()


@pytest.fixture
def connection(manual: Manual) -> Any:
    settings = config(Large(1, 1), Limits())
    settings.load()
    made: Any = settings.http_protocol_class
    one = made(config=settings, server_state=ServerState(), app_state={}, _loop=manual)
    one.connection_made(manual)
    one._stop_waiting()
    return one


def test_who_reads_slowly_is_let_read_and_who_drips_is_not(manual: Manual, connection: Any) -> None:
    manual.left = 1_000_000
    connection.pause_writing()
    for _ in range(10):
        manual.left -= 65_536
        manual.pass_time()
        assert not manual.is_aborted
    manual.left -= 1_000
    manual.pass_time()
    assert manual.is_aborted


def test_who_sent_no_request_and_reads_no_answer_to_that_is_given_up(manual: Manual, connection: Any) -> None:
    connection.data_received(b"no request\r\n\r\n")
    assert manual.is_closing()
    manual.pass_time()
    assert manual.is_aborted


@pytest.mark.parametrize("ends", ["resume_writing", "connection_lost"])
def test_who_has_read_or_gone_is_not_given_up(manual: Manual, connection: Any, ends: str) -> None:
    manual.left = 70_000
    connection.pause_writing()
    manual.left = 10_000  # few enough for more to be written, though less than 64 kB were read
    getattr(connection, ends)(*([OSError()] if ends == "connection_lost" else []))
    manual.pass_time()
    assert not manual.is_aborted


def test_a_request_that_is_answered_has_no_timeout(manual: Manual, connection: Any) -> None:
    connection._wait(10.0)
    connection._stop_waiting()
    manual.pass_time(10.0)
    assert not manual.is_aborted
    connection._wait(10.0)
    manual.pass_time(10.0)
    assert manual.is_aborted


def test_who_asks_nothing_more_and_does_not_read_the_answer_is_given_up(manual: Manual, connection: Any) -> None:
    connection.cycle = SimpleNamespace(more_body=False, response_complete=True)
    connection.on_response_complete()
    manual.pass_time(5.0)
    assert manual.is_closing()
    assert not manual.is_aborted
    manual.pass_time(5.0)
    assert manual.is_aborted


def test_a_server_asks_for_as_many_files_as_the_system_lets_it() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256));"
        "from sayso.server.protection import Limits, raise_file_limit;"
        "print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE), Limits().within(2_000).most)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "256 (256, 256) 1616\n"


# -- the server as people start it ---------------------------------------------------------------------------------

SERVE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1_024))
from sayso.cli import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def started(store: Store) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`sayso serve` at the usual limit of files; gives the process and its port."""
    words = ["--store", store.url, "serve", "--port", "0", "--as", "ada"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process, int(process.stdout.readline().partition("/login")[0].rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def test_eleven_hundred_half_requests_shut_nobody_out_at_the_usual_limit_of_files(file_store: Store) -> None:
    if raise_file_limit() < 2_000:
        pytest.skip("this system lets the test itself open too few files")
    with started(file_store) as (_, port), ExitStack() as stack:
        for _ in range(1_100):
            stack.enter_context(closing(connected(port, HALF)))
        for _ in range(3):
            with closing(connected(port, WHOLE)) as connection:
                assert b"200 OK" in answer(connection)


def test_sigterm_lets_a_request_that_is_under_way_end_and_takes_no_other(file_store: Store) -> None:

    body = json.dumps({"request": asked_message(sample_call())}).encode()
    head = (
        "POST /api/v1/program/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {new_token(file_store)}\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with started(file_store) as (process, port), closing(connected(port, head.encode())) as connection:
        assert answer(connection).startswith(b"HTTP/1.1 100")  # it is known who asks, and the body is waited for
        connection.sendall(body[:100])
        process.send_signal(signal.SIGTERM)
        while True:
            try:
                connected(port).close()
            except ConnectionRefusedError:
                break
            except ConnectionResetError:  # it came as the listener was closed
                continue
        connection.sendall(body[100:])
        assert b" 200 " in answer(connection)
        assert process.wait(PATIENCE) == 0
    assert file_store.count(Filter()) == 1
