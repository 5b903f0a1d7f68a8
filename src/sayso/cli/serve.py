"""`serve`: the web inbox on this machine, for the one who sits at it; its pages are `sayso.inbox`.

Who opens the printed address decides in the configured reviewer's name. Invariant: it listens on this machine's own
addresses only, because on any other there would be no way to know who decides.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
import time
import webbrowser
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from sayso import config, errors
from sayso.cli.desk import Desk, NoStoreYetError, decides, reviewer
from sayso.cli.say import complain, out
from sayso.model.reviewer import Reviewer
from sayso.model.show.escape import escape
from sayso.model.show.label import name_of
from sayso.stores.base import Store

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["serve"]

_GRACE = 1  # seconds; streams are told to end at once, and what hangs all the same is cut off
_PACE = 5.0  # seconds between two new addresses for people who are not signed in


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", default=8600, show_default=True, type=click.IntRange(0, 65_535), help="0 takes a free one.")
@click.option("--open", "opens", is_flag=True, help="Open the address in a browser.")
@decides
@click.pass_obj
def serve(desk: Desk, host: str, port: int, opens: bool, name: str | None, roles: tuple[str, ...]) -> int:
    """Open the inbox in a browser on this machine.

    The address that is printed works once, and begins a session in which you decide. SIGTERM or Ctrl-C ends it.
    """
    who = reviewer(name, roles)
    address = _loopback(host)
    store = _store(desk)
    with _listening(address, port) as listener:
        base = _base_url(address, listener.getsockname()[1])
        app = _made(store, who, base)
        out(f"inbox of {escape(store.url)}; you decide as {name_of(who.identity)}")
        first = _address(app, who, base)
        out(f"open {first}", "  it works once; Ctrl-C ends the server")
        if opens:
            webbrowser.open(first)
        _run(app, listener)
    return 0


def _store(desk: Desk) -> Store:
    try:
        return desk.store
    except NoStoreYetError as fault:
        complain(f"{fault}; it is made now, and what programs ask there appears in the inbox")
        return config.open_store(desk.address)


def _loopback(host: str) -> str:
    """Return the address to listen on.

    Raises:
        ConfigError: It is not this machine's own.
    """
    if host.casefold() == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        address = None
    if address is not None and address.is_loopback:
        return str(address)
    raise errors.ConfigError(
        f"`sayso serve` does not listen on {host!r}: there it could not know who decides, so it listens on 127.0.0.1,"
        " ::1 or localhost only. To reach it from elsewhere, forward a port (`ssh -L 8600:127.0.0.1:8600 HOST`), or"
        " mount sayso.inbox.create_app(who=…) in a program that knows its people"
    )


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=512)
    except OSError as error:
        raise errors.ConfigError(
            f"cannot listen on {address}, port {port}: {error.strerror}; --port takes another one"
        ) from error


def _base_url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _made(store: Store, who: Reviewer, base: str) -> Starlette:
    try:
        from sayso.inbox import create_app
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            f"`sayso serve` needs the extra `web` ({error.name} is missing): pip install 'sayso[web]'"
        ) from error
    last = [time.monotonic()]

    def stranger() -> None:
        now = time.monotonic()
        if now - last[0] >= _PACE:
            last[0] = now
            out(f"somebody came who is not signed in; if that was you, open {_address(app, who, base)}")

    app = create_app(store, on_stranger=stranger)
    return app


def _address(app: Starlette, who: Reviewer, base: str) -> str:
    from sayso.inbox import login_path

    return base + login_path(app, who)


def _run(app: Starlette, listener: socket.socket) -> None:
    import uvicorn

    settings = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="off",
        timeout_graceful_shutdown=_GRACE,
    )  # fmt: skip
    with _ended_by(signal.SIGTERM, signal.SIGINT):
        uvicorn.Server(settings).run(sockets=[listener])


@contextmanager
def _ended_by(*signals: signal.Signals) -> Generator[None]:
    """Let the server end by these signals as by a command: it raises them again when it has ended."""

    def heard(_: int, __: FrameType | None) -> None:
        return

    before: list[tuple[signal.Signals, Callable[[int, FrameType | None], object] | int | None]] = [
        (one, signal.signal(one, heard)) for one in signals
    ]
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)
