"""Where messages may go: 0 connections to addresses of this machine and its network, however they are spelt.

What is counted is what the socket layer was asked to connect to. The one invariant: a case that is refused for
another reason than the one it stands for would be no case, so each is shown to be taken when it is mended.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from sayso import errors
from sayso.channels import webhook
from sayso.channels.registry import Notification
from sayso.channels.webhook import AddressRefusedError, Destination, WebhookChannel, WebhookKeys
from tests.conftest import Clock

KEYS = WebhookKeys(["whsec_" + "A" * 32], source="the test")
AT = datetime(2026, 1, 1, tzinfo=UTC)
NOTICE = Notification(
    id="msg_1", event="test", request_id="rq_1", run_id="run_1", tool="m:f", kind="call", risk=None, state="pending",
    fingerprint="f" * 64, title="a test", line="a test", link=None, asked_at=AT, expires_at=AT, arguments=None,
    outcome=None,
)  # fmt: skip

ANY = str(ipaddress.IPv4Address(0))
LITERALS = [
    "127.0.0.1", "127.1.2.3", ANY, "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200",
    "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1",
    "255.255.255.255", "168.63.129.16",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:8.8.8.8]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
    "[64:ff9b::8.8.8.8]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:808:808::1]", "[2001::1]",
    "[2001:db8::1]", "[3fff::1]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[100::1]",
    "[5f00::1]",
]  # fmt: skip
SPELLINGS = [
    "2130706433", "0x7f000001", "0x7f.0x0.0x0.0x1", "0177.0.0.1", "127.1", "127.0.1", "0", "127.0.0.1.", "1.1.1.1.",
    "08.8.8.8", "8.8.8.0x8", "[::1%25eth0]", "[fe80::1%eth0]", "[v1.example.com]", "localhost", "LOCALHOST",
    "localhost.", "intranet", "①②⑦.⓪.⓪.①", "\uff11\uff12\uff17.0.0.1", "127。0。0。1", "%31%32%37.0.0.1",
    "exa mple.com", "-a.com",
    "a..com", "", "example.com:", "example.com:0", "example.com:22", "example.com:99999", "example.com:80:80",
    "user@example.com", "user:pass@example.com", "example.com#@127.0.0.1", "127.0.0.1\\@example.com",
    "example.com\t", "a" * 64 + ".com", "b." * 130 + "com",
]  # fmt: skip
SCHEMES = [
    "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "//example.com/", "https:example.com",
    "https:/example.com", "javascript:alert(1)", "gopher://example.com/", "unix:/run/docker.sock", "",
]  # fmt: skip


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What the socket layer was asked to connect to, or to send to; none of it goes out."""
    asked: list[object] = []

    def refuse(_: socket.socket, address: object, *__: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    for verb in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, verb, refuse)
    return asked


def send(url: str, *answers: Collection[str], allow_private: bool = False) -> list[str]:
    """Send to a URL with a resolver that gives these answers in turn; return which names were asked for."""
    left, named = list(answers), list[str]()

    def resolve(host: str, port: int) -> Collection[str]:
        named.append(host)
        return left.pop(0) if len(left) > 1 else left[0]

    where = Destination.parse(url, allow_private=allow_private)
    with patch("sayso.channels.webhook.addresses_of", resolve):
        WebhookChannel("ops", where, KEYS).send(NOTICE)
    return named


PUBLIC = ["93.184.216.34"]


def test_public_addresses_are_connected_to(connects: list[object]) -> None:
    public = ["example.com", "xn--bcher-kva.example", "8.8.8.8", "[2606:4700::1111]", "example.com:8443", "EXAMPLE.com"]
    for host in public:
        with pytest.raises(ConnectionRefusedError):
            send(f"https://{host}/hook", PUBLIC)
    assert [address[1] for address in connects] == [443, 443, 443, 443, 8443, 443]


def refused(error: type[Exception], url: str, *answers: Collection[str], **options: bool) -> None:
    """Check that sending to a URL is refused with this error."""
    with pytest.raises(error, match="nothing "):
        send(url, *answers, **options)


def test_forbidden_addresses_odd_spellings_and_other_schemes_get_no_connection(connects: list[object]) -> None:
    for url in [*(f"https://{host}/hook" for host in [*LITERALS, *SPELLINGS]), *SCHEMES]:
        refused(errors.ConfigError, url, PUBLIC)
    assert connects == []


def test_a_name_that_leads_to_a_forbidden_address_gets_no_connection(connects: list[object]) -> None:
    for bare in (address.strip("[]") for address in LITERALS):
        for answer in ([bare], [*PUBLIC, bare], [bare, *PUBLIC]):
            refused(AddressRefusedError, "https://hooks.example.com/", answer)
    assert connects == []


@pytest.mark.parametrize("odd", [[], ["nonsense"], ["fe80::1%eth0"], ["127.0.0.1%1"]])
def test_a_name_with_no_address_that_can_be_read_gets_no_connection(odd: list[str], connects: list[object]) -> None:
    with pytest.raises(AddressRefusedError):
        send("https://hooks.example.com/", odd)
    assert connects == []


def test_a_name_that_is_rebound_is_asked_for_once_and_not_followed(connects: list[object]) -> None:
    with pytest.raises(ConnectionRefusedError):
        send("https://hooks.example.com/", PUBLIC, ["127.0.0.1"])
    assert connects == [(PUBLIC[0], 443)]


def test_the_systems_resolver_is_not_asked_again(connects: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    real = socket.getaddrinfo

    def spy(host: object, *args: object, **options: object) -> object:
        asked.append(host)
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", spy)
    with pytest.raises(ConnectionRefusedError):
        send("https://hooks.example.com/", PUBLIC)
    assert asked == PUBLIC  # the connection is made by number


PRIVATE = ["127.0.0.1", "[::1]", "10.1.2.3", "192.168.0.7", "[fd12::1]", "localhost", "intranet:81"]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_are_taken_when_they_are_allowed(host: str, connects: list[object]) -> None:
    with pytest.raises(ConnectionRefusedError):
        send(f"http://{host}/hook", ["127.0.0.1"], allow_private=True)
    assert len(connects) == 1


def test_metadata_odd_spellings_and_other_schemes_are_refused_even_then(connects: list[object]) -> None:
    hosts = ["169.254.169.254", "100.100.100.200", "[fd00:ec2::254]", "[fe80::1]", "224.0.0.1", ANY, "255.255.255.255",
             "[::ffff:127.0.0.1]", "2130706433", "127.1", "[::]", "[fd00:ec2::23]", "[fd20:ce::254]"]  # fmt: skip
    schemes = ["ftp", "file", "gopher", "ws", "unix"]
    for url in [*(f"http://{host}/hook" for host in hosts), *(f"{one}://127.0.0.1:8000/hook" for one in schemes)]:
        refused(errors.ConfigError, url, ["127.0.0.1"], allow_private=True)
    assert connects == []


def test_a_receiver_that_hung_is_not_waited_for_again_within_a_minute(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fine = (Destination.parse(f"https://hooks.example.com/{name}") for name in ("slow", "fine"))
    elapsed, asked = [0.0], list[Destination]()

    def answer(where: Destination, *_: object, **__: object) -> tuple[int, bytes]:
        asked.append(where)
        elapsed[0] += 9 if where is slow else 0.1
        return 200, b""

    monkeypatch.setattr(webhook, "post", answer)
    monkeypatch.setattr(webhook, "time", SimpleNamespace(monotonic=lambda: elapsed[0]))
    receivers = webhook.Receivers()
    assert receivers.post(slow, b"", {})[0] == 200
    with pytest.raises(OSError, match="timed out recently"):
        receivers.post(slow, b"", {})
    assert receivers.post(fine, b"", {})[0] == receivers.post(fine, b"", {})[0] == 200
    clock.tick(seconds=61)
    assert receivers.post(slow, b"", {})[0] == 200
    assert asked == [slow, fine, fine, slow]


def test_the_deadline_also_ends_a_body_that_trickles_in() -> None:
    for said in (b"", b"Connection: close\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def trickle(said: bytes = said, listener: socket.socket = listener) -> None:
                line, _ = listener.accept()
                with line, suppress(OSError):
                    heard = b""
                    while not heard.endswith(b"{}"):  # the end of a connection with something unread is a reset
                        heard += line.recv(65_536)
                    line.sendall(b"HTTP/1.1 200 OK\r\n" + said + b"Content-Length: 100\r\n\r\n")
                    for _ in range(100):
                        line.sendall(b"x")
                        time.sleep(0.1)

            receiver = threading.Thread(target=trickle)
            receiver.start()
            where = Destination.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/", allow_private=True)
            status, body = webhook.post(where, b"{}", {}, seconds=1.0, room=100)
            assert status == 200, said
            assert 0 < len(body) < 100
            receiver.join()


HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def reset_after(sent: bytes, *, is_late: bool) -> Iterator[Destination]:
    """A receiver whose connection is reset for the client that has read this, by the deadline or before it."""
    timers, read = list[threading.Timer](), list[int]()

    class Timer(threading.Timer):
        def start(self) -> None:  # only the test says when it is time
            timers.append(self)

    def readinto(line: socket.SocketIO, buffer: memoryview) -> int | None:
        if sum(read) == len(sent):
            if is_late:
                timers[0].function(*timers[0].args)
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        count = real(line, buffer)
        read.append(count or 0)
        return count

    def answer() -> None:
        line, _ = listener.accept()
        with line, suppress(OSError):
            line.sendall(sent)
            while line.recv(65_536):
                pass

    real = socket.SocketIO.readinto
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=answer)
        receiver.start()
        with patch.object(socket.SocketIO, "readinto", readinto), patch.object(threading, "Timer", Timer):
            yield Destination.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/", allow_private=True)
        receiver.join()


@pytest.mark.parametrize("sent", [
    HEAD + b"Content-Length: 100\r\n\r\nx", HEAD + b"\r\nx", HEAD + b"Transfer-Encoding: chunked\r\n\r\n64\r\nx",
])  # fmt: skip
def test_a_reset_by_the_deadline_ends_a_body_and_any_other_is_a_fault(sent: bytes) -> None:
    with reset_after(sent, is_late=True) as where:
        assert webhook.post(where, b"{}", {}, room=100) == (200, b"x")
    with reset_after(sent, is_late=False) as where, pytest.raises(ConnectionResetError):
        webhook.post(where, b"{}", {}, room=100)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1", HEAD])
def test_a_reset_by_the_deadline_before_an_answer_is_no_answer_in_time(sent: bytes) -> None:
    with reset_after(sent, is_late=True) as where, pytest.raises(TimeoutError, match="did not answer in time"):
        webhook.post(where, b"{}", {}, room=100)
    with reset_after(sent, is_late=False) as where, pytest.raises(ConnectionResetError):
        webhook.post(where, b"{}", {}, room=100)


def test_a_further_port_can_be_named() -> None:
    with pytest.raises(errors.ConfigError, match="port 9000"):
        Destination.parse("https://example.com:9000/")
    assert Destination.parse("https://example.com:9000/", ports=[9000]).port == 9000


def test_what_is_shown_of_a_destination_holds_no_path() -> None:
    where = Destination.parse("https://example.com/T0/hunter2?key=hunter2")
    assert where.path == "/T0/hunter2?key=hunter2"
    assert "hunter2" not in f"{where!r} {where.origin} {WebhookChannel('ops', where, KEYS)!r}"
    for url in ["http://example.com/hunter2", "https://127.0.0.1/hunter2", "https://u:hunter2@example.com/"]:
        with pytest.raises(errors.ConfigError) as caught:
            Destination.parse(url)
        assert "hunter2" not in str(caught.value)


def test_enough_addresses_are_forbidden() -> None:
    assert len({*LITERALS, *SPELLINGS}) >= 60
