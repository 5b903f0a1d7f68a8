"""A PgBouncer in front of the tests' Postgres, in transaction pooling mode.

It uses the next connection for each transaction (`server_round_robin`), so that session state is certainly lost:
prepared statements, settings, LISTEN. It checks each connection first, because emptying a database closes them.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.postgres import Server, unprivileged

__all__ = ["through_pooler"]

_SETTINGS = """[databases]
* = {target}
[pgbouncer]
listen_port = 6432
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
server_round_robin = 1
server_check_delay = 0
default_pool_size = 6
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""


_IS_REQUIRED = os.environ.get("SAYSO_POOLER") == "required"  # read at import, as fixtures clear our variables


def through_pooler(server: Server, url: str) -> str:
    """Return the address of a server's database behind a pooler; skip the test if no pooler is installed.

    In CI, where `SAYSO_POOLER` is `required`, the test fails instead.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        absent = "NOT TESTED: there is no PgBouncer: apt-get install pgbouncer"
        (pytest.fail if _IS_REQUIRED else pytest.skip)(absent)
    folder = _started(program, server.url("postgres"))
    return f"postgresql://tester@/{urlsplit(url).path[1:]}?host={folder}&port=6432&sayso_pooler=transaction"


@cache
def _started(program: str, url: str) -> Path:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    folder, user = Path(tempfile.mkdtemp(prefix="sayso-pooler-")), unprivileged()
    known = conninfo_to_dict(url)
    target = " ".join(f"{name}={known[name]}" for name in ("host", "port", "user", "password") if name in known)
    settings = folder / "pgbouncer.ini"
    settings.write_text(_SETTINGS.format(target=target, folder=folder), encoding="utf-8")
    as_user = {}
    if user is not None:
        for path in (folder, settings):
            os.chown(path, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    dies_with_us = [shutil.which("setpriv"), "--pdeathsig", "INT"] if shutil.which("setpriv") else []
    process = subprocess.Popen([*dies_with_us, program, "-q", settings], cwd=folder, **as_user)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(process.wait, 10)
    atexit.register(process.kill)
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f"postgresql://tester@/postgres?host={folder}&port=6432").close()
            break
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    return folder
