"""The inbox of this machine under a name of its own, and the way of a browser to it that no other user can read.

The invariant: no page is shown, and no session begins, under a name whose cookies others' programs are sent; and no
link stands in a command line.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sayso import errors
from sayso.cli.serve import listen_by_name, login_page, place_of
from sayso.model.reviewer import Reviewer
from sayso.server import create_app, login_path
from sayso.server.protection import OwnName, local_hostname
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.support.calling import bearer

PATIENCE = 60
NAME, PORT = "sayso-0123456789abcdef.localhost", 8600
URL = f"http://{NAME}:{PORT}"
SHARED = ["127.0.0.1", "localhost", "[::1]"]


def inbox(store: Store, came: list[str] | None = None) -> Any:
    app = create_app(store, hosts=[NAME])
    seen = [] if came is None else came
    return app, OwnName(app, on_stranger=lambda: seen.append("x"))


@pytest.mark.parametrize("host", SHARED)
def test_no_session_begins_under_a_shared_name(memory: Store, host: str) -> None:
    app, front = inbox(memory)
    base = f"http://{host}:{PORT}"
    token = login_path(app, Reviewer("ada")).partition("token=")[2]
    answer = TestClient(front, base_url=base).post("/login", data={"token": token}, headers={"origin": base})
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers
    own = TestClient(front, base_url=URL)
    assert own.post("/login", data={"token": token}, headers={"origin": URL}).status_code == 200


@pytest.mark.parametrize("host", SHARED)
def test_no_page_is_shown_and_no_name_told_under_a_shared_name(memory: Store, host: str) -> None:
    came: list[str] = []
    _, front = inbox(memory, came)
    client = TestClient(front, base_url=f"http://{host}:{PORT}", follow_redirects=False)
    for path in ("/", "/r/rq_1?a=b%20c", "/login?token=abc", "/static/app.css"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (421, "no-store")
        assert "set-cookie" not in answer.headers
        assert NAME not in answer.text + str(answer.headers)
        assert "which its terminal shows" in answer.text
    assert came == ["x"] * 4  # and the terminal shows it


def test_programs_are_answered_under_every_name_of_this_machine(memory: Store) -> None:
    _, front = inbox(memory)
    for host in [*SHARED, NAME]:
        client = TestClient(front, base_url=f"http://{host}:{PORT}")
        assert client.get("/healthz").status_code == 200
        assert client.get("/api/v1/me", headers=bearer(memory)).status_code == 200
    assert TestClient(front, base_url="http://sayso-other.localhost:8600").get("/healthz").status_code == 421


def test_the_name_stays_and_cannot_be_worked_out_without_the_secret(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = local_hostname(file_store)
    assert re.fullmatch(r"sayso-[0-9a-f]{16}\.localhost", first)
    assert local_hostname(file_store) == first  # an address in a message is good after a restart
    monkeypatch.setenv("SAYSO_SECRET", "1" * 32)
    assert local_hostname(file_store) != first


def test_it_listens_wherever_a_browser_looks_for_the_name() -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(one) for one in listen_by_name(place_of("127.0.0.1", 0, None))]
        port = both[0].getsockname()[1]
        if len(both) == 1:
            pytest.skip("this machine has no IPv6")
        assert [one.getsockname()[:2] for one in both] == [("127.0.0.1", port), ("::1", port)]


def test_nothing_is_served_where_another_program_would_be_sent_the_link() -> None:
    try:
        theirs = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with theirs:
        port = theirs.getsockname()[1]
        with pytest.raises(
            errors.ConfigError, match=f"another program listens on ::1, port {port}.*the server was not started"
        ):
            listen_by_name(place_of("127.0.0.1", port, None))


# -- the browser that is opened ------------------------------------------------------------------------------------

# A browser that says how it was called and what it was given, and stays.
BROWSER = """#!{python}
import json, os, signal, sys, urllib.parse, urllib.request
path = urllib.request.url2pathname(urllib.parse.urlsplit(sys.argv[1]).path)
told = {{"pid": os.getpid(), "argument": sys.argv[1], "page": "", "modes": []}}
if os.path.exists(path):
    told["page"] = open(path).read()
    told["modes"] = [os.stat(path).st_mode, os.stat(os.path.dirname(path)).st_mode]
with open({fifo!r}, "w") as out:
    json.dump(told, out)
signal.pause()
"""


@contextmanager
def opened(store: Store, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, dict[str, Any]]]:
    """`sayso serve --open` with that browser: the process, the link, and what the browser says."""
    fifo, script = folder / "told", folder / "browser"
    os.mkfifo(fifo)
    script.write_text(BROWSER.format(python=sys.executable, fifo=str(fifo)))
    script.chmod(0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "sayso", "--store", store.url, "serve", "--port", "0", "--as", "ada", "--open"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
        env=os.environ | {"BROWSER": f"{script} %s", "TMPDIR": str(folder)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        link = process.stdout.readline().split()[1]
        with fifo.open() as said:
            told = json.load(said)
        try:
            yield process, link, told
        finally:
            os.kill(told["pid"], signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()


def command_lines() -> list[bytes]:
    found: list[bytes] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="command lines are looked at in /proc")
def test_the_link_stands_in_no_command_line_and_its_page_is_its_owners_alone(file_store: Store, place: Path) -> None:
    with opened(file_store, place) as (process, link, told):
        token = link.partition("token=")[2]
        assert len(token) > 100
        assert told["argument"].startswith("file:///")
        assert any(told["argument"].encode() in line for line in command_lines())
        assert not any(token.encode() in line for line in command_lines())
        assert f'content="0;url={link}"' in told["page"]
        assert [stat.S_IMODE(mode) for mode in told["modes"]] == [0o600, 0o700]
        page = Path(told["argument"].removeprefix("file://"))
        assert page.exists()
        body = f"token={token}".encode()
        host = link.removeprefix("http://").partition("/")[0]
        head = (
            f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n"
            f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with closing(socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), PATIENCE)) as connection:
            connection.sendall(head.encode() + body)
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 303")
        assert not page.exists()  # the link was used
        assert not page.parent.exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_the_page_of_a_link_that_nobody_used_is_gone_when_the_server_ends(file_store: Store, place: Path) -> None:
    with opened(file_store, place) as (process, _, told):
        page = Path(told["argument"].removeprefix("file://"))
        assert page.exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert not page.parent.exists()


def test_the_page_of_a_link_that_has_ended_is_gone(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    with login_page("http://x.localhost/login?token=<&", 0.01):
        for timer in [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]:
            timer.join(PATIENCE)
        assert not list(place.glob("sayso-*"))
    with login_page('http://x.localhost/login?token="<&', PATIENCE):
        (page,) = place.glob("sayso-*/open.html")
        assert "token=&quot;&lt;&amp;" in page.read_text()
    assert not page.exists()


def test_messages_lead_to_the_inboxs_own_name(file_store: Store, place: Path) -> None:
    (place / "sayso.toml").write_text('[channels.ops]\ntype = "terminal"\n')
    with opened(file_store, place) as (process, link, _):
        request = file_store.ask(sample_call())
        assert process.stderr is not None
        said = ""
        while request.id not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
    assert f"{link.partition('/login')[0]}/r/{request.id}" in said
