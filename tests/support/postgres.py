"""A PostgreSQL server of the tests' own, from the programs of this machine, in a folder that goes and on a Unix socket.

It refuses to run as root, so root lends it to the account `postgres` or `nobody`. Where there is none, its tests are
left out and say so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

__all__ = ["postgres"]


def programs() -> Path | None:
    """Return the folder of `initdb` and `pg_ctl`; distributions keep it out of the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


def account() -> str | None:
    """Return the account that the server runs as; None where this one will do."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("NOT TESTED with PostgreSQL, because it does not run as root and there is no other account")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start a server, and return the connection string of its database."""
    folder = programs()
    if folder is None:
        pytest.skip("NOT TESTED with PostgreSQL, because its server is not installed: apt-get install postgresql")
    user, home = account(), Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path has at most 107 characters

    def run(name: str, *words: str) -> None:
        command = [folder / name, "-D", home / "data", *words]
        done = subprocess.run(command, cwd=home, user=user, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        log = home / "log"
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}"

    try:
        if user is not None:
            shutil.chown(home, user)
        run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-F -k {home} -c listen_addresses='' -c max_connections=200"
        run("pg_ctl", "-w", "-l", str(home / "log"), "-o", options, "start")
        yield f"postgresql://postgres@/postgres?host={home}"
    finally:
        with suppress(AssertionError):
            run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)
