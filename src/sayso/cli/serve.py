"""`serve`: runs the web inbox, for this machine's user or for people who sign in; the pages are in `sayso.server`.

An inbox is open if it can be reached from another machine: it listens on a non-loopback address, or has a non-local
base address. Invariant: an open inbox does not start without a way to sign in, nor over plain http unless that is
explicitly allowed. Invalid settings are rejected before anything listens, and secrets come only from the environment.
"""

from __future__ import annotations

import errno
import html
import ipaddress
import os
import socket
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from sayso import config, errors
from sayso.audit.checkpoint import checkpointing
from sayso.channels.outbox import delivering
from sayso.channels.settings import LOOPBACK, Table, allowed_reviewers
from sayso.cli import context
from sayso.cli.audit import signer
from sayso.cli.context import CliContext, Number, echo, echo_err
from sayso.model import duration
from sayso.model.reviewer import Reviewer, name_of
from sayso.model.text import escape
from sayso.stores.base import Store

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from sayso.server.auth.sign_in import Provider, SignIn


_SERVE = (
    "host", "port", "tls_cert", "tls_key", "login_links", "proxy_header", "proxy_roles_header", "trusted_proxies",
    "reviewers", "required_role", "session", "rate", "plain_address", "undo",
)  # fmt: skip
_OIDC = ("issuer", "client_id", "client_secret_env", "name", "scopes", "roles_claim")
_GRACE = 5  # seconds for requests in progress; streams and long polls are ended at once
_SECONDS_BETWEEN_LINKS = 5.0  # minimum interval between new addresses for visitors who are not signed in
_CHECKPOINT = timedelta(hours=1)
_BOTH = ("127.0.0.1", "::1")  # the addresses to which a browser resolves NAME.localhost
_TRIES = 20
_WAYS = "--login-links (links that `sayso login` prints), --proxy-header with --trusted-proxy, or [oidc] in sayso.toml"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}"><title>sayso</title></head>
<body><p><a href="{link}">Open the inbox</a></p></body></html>
"""


@contextmanager
def login_page(link: str, lasts: float) -> Generator[Callable[[], None]]:
    """Open a sign-in link in a browser through a file that redirects to it, and yield a function that removes the file.

    The file is also removed when the block ends, and after `lasts` seconds, when the link is no longer valid.
    """
    folder = tempfile.TemporaryDirectory(prefix="sayso-", ignore_cleanup_errors=True)  # mode 0700
    file = Path(folder.name) / "open.html"
    file.touch(0o600)
    file.write_text(_PAGE.format(link=html.escape(link)), encoding="utf-8")
    timer = threading.Timer(lasts, folder.cleanup)
    timer.daemon = True
    timer.start()
    # In a thread, because some browsers' commands return only when the browser is closed.
    threading.Thread(target=webbrowser.open, args=[file.as_uri()], daemon=True).start()
    try:
        yield folder.cleanup
    finally:
        timer.cancel()
        folder.cleanup()


@click.command()
@click.option("--host", metavar="ADDRESS", help="The IP address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=Number(0, 65_535), metavar="N", help="The port; 0 takes a free one.  [default: 8600]")
@click.option("--open", "opens", is_flag=True, help="Open the inbox in a browser.")
@click.option("--base-url", metavar="URL", help="The inbox's URL for people, e.g. https://approvals.example.com.")
@click.option("--plain-address", "is_plain", is_flag=True, help="Use http://127.0.0.1 instead of NAME.localhost.")
@click.option("--login-links", "has_links", is_flag=True, help="Let people sign in with links of `sayso login`.")
@click.option("--proxy-header", "header", metavar="NAME", help="The header in which a proxy names the person.")
@click.option("--proxy-roles-header", "roles_header", metavar="NAME", help="The header with that person's roles.")
@click.option(
    "--trusted-proxy", "peers", metavar="NETWORK", multiple=True, help="The proxy's address or network; repeatable."
)
@click.option("--tls-cert", "certificate", type=_FILE, help="Serve https with this certificate (PEM).")
@click.option("--tls-key", "key", type=_FILE, help="The certificate's private key, if it is in another file.")
@click.option("--insecure-http", is_flag=True, help="Allow decisions from other machines over plain http.")
@click.option("--rate", metavar="N", help="Requests per minute and token, or e.g. 10/second.  [default: no limit]")
@context.reviewer_options
@click.pass_obj
def serve(
    cli: CliContext, host: str | None, port: int | None, opens: bool, base_url: str | None, has_links: bool,
    header: str | None, roles_header: str | None, peers: tuple[str, ...], certificate: Path | None, key: Path | None,
    insecure_http: bool, is_plain: bool, rate: str | None,
) -> int:  # fmt: skip
    """Serve the inbox for browsers.

    On this machine, open the printed link, which works once, to sign in. From other machines, people have to sign in
    through --login-links, --proxy-header, or [oidc] in sayso.toml. SIGTERM or Ctrl-C stops the server.
    """
    table = serve_table()
    certificate, key = certificate or _file(table, "tls_cert"), key or _file(table, "tls_key")
    place = place_of(
        table.get("host", str, "127.0.0.1") if host is None else host,
        table.get("port", int, 8600) if port is None else port,
        base_url or config.base_url(), certificate=certificate, key=key,
    )  # fmt: skip
    with context.require_web("serve"):
        from sayso.server.api.aap import Webhooks

        rules = _sign_in(table, has_links, header, roles_header, peers)
    place.check(is_known=rules is not None, is_insecure=insecure_http)
    signs, limit = signer(), table.get("rate", str, "") if rate is None else rate
    limit = f"{limit}/minute" if limit.isascii() and limit.isdigit() else limit or None
    store, named = cli.store_or_new, None
    context.check_key(store)
    if rules is None and place.can_be_named and not is_plain and not table.get("plain_address", bool, False):
        from sayso.server.protection import local_hostname

        named = local_hostname(store)
    # Look up this machine's user only if nobody signs in: in a container the user may have no name.
    begin = partial(_app_for_one, store, cli.reviewer, named) if rules is None else partial(_app_for_many, store, rules)
    with ExitStack() as stack:
        listeners = [listen(place)] if named is None else listen_by_name(place)
        for one in listeners:
            stack.enter_context(one)
        taken: int = listeners[0].getsockname()[1]
        url = place.url(taken, named)
        app, first = begin(url, limit)
        stack.enter_context(delivering(store, url, also=[Webhooks(store), app.state.push]))
        app.state.checkpoints = stack.enter_context(checkpointing(store, every=_CHECKPOINT, signer=signs))
        settings = _uvicorn_config(app, place, url if named else None)
        _print_address(place, first, None if rules is None else taken)
        if opens:
            _open_browser(app, first, stack)
        _run(app, listeners, settings)
    return 0


# -- settings --------------------------------------------------------------------------------------------------------


def serve_table() -> Table:
    """Return `[serve]` of the settings file; raise `ConfigError` for an unknown setting."""
    return Table("serve", config.table("serve"), known=_SERVE)


def _file(table: Table, name: str) -> Path | None:
    text = table.get(name, str, "")
    if text and not Path(text).is_absolute():
        raise table.error(name, "must be an absolute path; the server was not started")
    return Path(text) if text else None


def _sign_in(
    table: Table, has_links: bool, header: str | None, roles_header: str | None, peers: Sequence[str]
) -> SignIn | None:
    """Return how people sign in, from options and settings; None if no way to sign in is configured."""
    from sayso.server.auth.sessions import ABSOLUTE
    from sayso.server.auth.sign_in import Proxy, SignIn, networks

    has_links = has_links or table.get("login_links", bool, False)
    header = header or table.get("proxy_header", str, "") or None
    roles = roles_header or table.get("proxy_roles_header", str, "") or None
    trusted = networks(peers or table.texts("trusted_proxies"))
    if (header or roles) and not trusted:
        raise errors.ConfigError(
            "--proxy-header is accepted only from the proxy's own addresses: add --trusted-proxy with its address,"
            " e.g. 10.0.0.5"
        )
    if roles and not header:
        raise errors.ConfigError("--proxy-roles-header needs --proxy-header")
    proxy, known = Proxy(trusted, header, roles, is_direct=True) if trusted else None, _provider()
    signs_in = proxy is not None and proxy.header is not None
    if signs_in and (has_links or known is not None):
        raise errors.ConfigError(
            "a proxy that signs people in cannot be combined with login links or [oidc]; remove one of them"
        )
    lasts, may = table.get("session", str, ""), allowed_reviewers()
    rules = SignIn(
        has_links=has_links, proxy=proxy, provider=known, reviewers=may.reviewers, role=may.role,
        lasts=duration.parse(lasts) if lasts else ABSOLUTE,
    )  # fmt: skip
    if has_links or signs_in or known:
        return rules
    if rules.reviewers is not None or rules.role is not None:
        raise errors.ConfigError(
            f"[serve] limits who may review, but no way to sign in is configured; add one of: {_WAYS}"
        )
    return None


def _provider() -> Provider | None:
    """Return the OpenID provider from `[oidc]`; None if it is not configured."""
    found = config.table("oidc")
    if not found:
        return None
    from sayso.server.auth.sign_in import Oidc, Provider

    table = Table("oidc", found, known=_OIDC)
    scopes = table.texts("scopes") or ["openid"]
    if "openid" not in scopes:
        raise table.error("scopes", "must include 'openid'")
    return Provider(
        Oidc(
            table.text("issuer"), table.text("client_id"),
            table.secret("client_secret_env") if "client_secret_env" in found else None,
            name=table.get("name", str, "oidc"), scopes=tuple(scopes),
            roles_claim=table.get("roles_claim", str, "") or None,
        )
    )  # fmt: skip


# -- running ---------------------------------------------------------------------------------------------------------


def _app_for_one(store: Store, who: Reviewer, named: str | None, url: str, rate: str | None) -> tuple[Starlette, str]:
    from sayso.server import create_app, login_path

    last = time.monotonic()

    def stranger() -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINKS:
            last = time.monotonic()
            echo(f"a visitor is not signed in; if that was you, open {url}{login_path(app, who)}")

    app = create_app(store, hosts=[named] if named else [], on_stranger=stranger, rate=rate)
    echo(f"inbox of {escape(store.public_url)}; you decide as {name_of(who.identity)}")
    return app, url + login_path(app, who)


def _app_for_many(store: Store, rules: SignIn, url: str, rate: str | None) -> tuple[Starlette, str]:
    from sayso.server import create_app
    from sayso.server.auth.sessions import server_secret

    if (rules.has_links or rules.provider is not None) and server_secret(store) is None:
        raise errors.ConfigError(
            f"sign-in for the inbox of {store.public_url} needs a permanent secret: set SAYSO_SECRET to 32 random"
            " characters or more (`openssl rand -hex 32`)"
        )
    app = create_app(store, base_url=url, sign_in=rules, rate=rate)
    rows = ["  with login links of `sayso login NAME`"] if rules.has_links else []
    if rules.proxy is not None and rules.proxy.header is not None:
        rows.append(f"  with the proxy's header {escape(rules.proxy.header)}")
    if rules.provider is not None:
        rows.append(f"  with {escape(rules.provider.oidc.issuer)}")
    echo(f"inbox of {escape(store.public_url)}; people sign in", *rows)
    return app, url


def _print_address(place: Place, first: str, port: int | None) -> None:
    """Print the address to open, and where the server listens if the address does not show it."""
    note = "the link works once" if port is None else f"the server listens on {place.address}, port {port}"
    echo(f"open {first}", f"  {note}; press Ctrl-C to stop the server")
    if place.is_open and place.base_url is not None and place.certificate is None:
        if place.base_url.startswith("http:"):
            echo_err(
                "WARNING: decisions arrive over plain http; anyone who can read the traffic can decide in another"
                " person's name"
            )
        else:
            echo_err(
                f"the server speaks plain http on {place.address}; make sure that only the https proxy can reach it"
            )


def _open_browser(app: Starlette, first: str, stack: ExitStack) -> None:
    """Open the inbox in a browser; the sign-in link is not passed on the command line, which others could read."""
    from sayso.server.auth.sessions import PRINTED

    token = first.partition("?token=")[2]
    remove = stack.enter_context(login_page(first, PRINTED.total_seconds()))

    def used(other: str) -> None:
        if other == token:
            remove()

    app.state.on_link_used = used


def _uvicorn_config(app: Starlette, place: Place, own_url: str | None) -> uvicorn.Config:
    """Return the server's configuration with its certificate loaded; raise `ConfigError` if that fails."""
    from sayso.server.protection import Limits, OwnName, config, raise_file_limit

    settings = config(
        OwnName(app, on_stranger=app.state.on_stranger) if own_url else app,
        Limits().within(raise_file_limit()), log_config=None, access_log=False, server_header=False,
        proxy_headers=False, lifespan="off", timeout_graceful_shutdown=_GRACE,
        ssl_certfile=place.certificate, ssl_keyfile=place.key,
    )  # fmt: skip
    try:
        settings.load()
    except OSError as error:
        raise errors.ConfigError(
            f"the certificate {place.certificate} cannot be used: {error}; the server was not started"
        ) from error
    return settings


def _run(app: Starlette, listeners: list[socket.socket], settings: uvicorn.Config) -> None:
    """Serve until a signal ends it."""
    import uvicorn

    from sayso.server.metrics import observe

    observe(app.state.settings.store)
    with context.handle_signals(lambda _, __: None):  # the server re-raises the signals after it has ended
        uvicorn.Server(settings).run(sockets=listeners)
    app.state.tokens.write_uses()  # of tokens that were only used to read


# -- listening -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a server listens, and how people reach it.

    Attributes:
        address: The IP address to listen on.
        port: The port; 0 for any free one.
        base_url: The URL for people; None for the address and port themselves.
        certificate, key: Files for TLS; None for plain http.
    """

    address: str
    port: int
    base_url: str | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be reached from another machine."""
        is_here = ipaddress.ip_address(self.address).is_loopback
        return not is_here or (self.base_url is not None and urlsplit(self.base_url).hostname not in LOOPBACK)

    @property
    def can_be_named(self) -> bool:
        """Whether browsers on this machine can reach it as `NAME.localhost`."""
        return self.base_url is None and self.certificate is None and self.address in _BOTH

    def url(self, port: int, name: str | None = None) -> str:
        """Return the URL for people, with the actual port and, if given, the inbox's name on this machine."""
        if self.base_url is not None:
            return self.base_url
        if name is not None:
            return f"http://{name}:{port}"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"

    def check(self, *, is_known: bool, is_insecure: bool) -> None:
        """Refuse a place where reviewers would not be authenticated, or where the network could forge decisions.

        Args:
            is_known: Whether there is a way to sign in.
            is_insecure: Whether plain http was explicitly allowed.

        Raises:
            ConfigError: The place is refused; nothing listens.
        """
        if self.certificate is not None and self.base_url is not None and not self.base_url.startswith("https:"):
            raise errors.ConfigError(f"with --tls-cert the --base-url must begin with https://, not {self.base_url}")
        if not self.is_open:
            return
        where = self.address if self.base_url is None else f"{self.address} as {self.base_url}"
        if not is_known:
            raise errors.ConfigError(
                f"`sayso serve` does not listen on {where}: other machines could reach it, and it could not tell who"
                f" decides. Add a way to sign in: {_WAYS}. To reach it from another machine without one, forward a"
                " port (`ssh -L 8600:127.0.0.1:8600 HOST`), or mount sayso.server.create_app(who=…) in a program that"
                " authenticates people"
            )
        if self.base_url is None:
            raise errors.ConfigError(
                f"`sayso serve` does not listen on {where} without --base-url: give the URL by which people reach it,"
                " like https://approvals.example.com; it answers to no other name"
            )
        if not self.base_url.startswith("https:") and not is_insecure:
            raise errors.ConfigError(
                f"`sayso serve` does not serve {where} over plain http: anyone who can read the traffic could decide"
                " in another person's name. Put an https proxy in front and give its address as --base-url, or use"
                " --tls-cert and --tls-key; --insecure-http allows it anyway"
            )


def place_of(
    host: str, port: int, base_url: str | None, *, certificate: Path | None = None, key: Path | None = None
) -> Place:
    """Return the place that these settings describe.

    Raises:
        ConfigError: One of the settings is invalid.
    """
    if certificate is None and key is not None:
        raise errors.ConfigError("--tls-key needs --tls-cert; the server was not started")
    try:
        address = "127.0.0.1" if host.casefold() == "localhost" else str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        raise errors.ConfigError(
            f"`sayso serve` listens on an IP address or localhost, not {host!r}; give the name by which people reach"
            " it as --base-url"
        ) from None
    if base_url is None:
        return Place(address, port, None, certificate, key)
    try:
        parts = urlsplit(base_url)
        is_valid = parts.port != 0 and bool(parts.hostname)  # reading the port raises if it is not a number
    except ValueError:
        parts, is_valid = urlsplit(""), False
    origin = f"{parts.scheme}://{parts.netloc}"
    if not is_valid or parts.scheme not in {"http", "https"} or "@" in parts.netloc:
        raise errors.ConfigError(f"--base-url {base_url!r} is not a URL; give one like https://approvals.example.com")
    if base_url.removesuffix("/") != origin:
        raise errors.ConfigError(
            f"--base-url {base_url!r} has a path or query; the inbox needs its own host name, like {origin}"
        )
    return Place(address, port, origin, certificate, key)


def listen_by_name(place: Place) -> list[socket.socket]:
    """Return sockets that listen on one port of every address to which a browser may resolve `NAME.localhost`.

    If one address were left free, another user's program could listen there and receive the login link.

    Raises:
        ConfigError: The system does not allow it, or another program already listens on one of them.
    """
    (other,) = set(_BOTH) - {place.address}
    for _ in range(_TRIES):
        first = listen(place)
        port: int = first.getsockname()[1]
        try:
            return [first, listen(replace(place, address=other, port=port))]
        except errors.ConfigError as fault:
            if not isinstance(fault.__cause__, OSError) or fault.__cause__.errno != errno.EADDRINUSE:
                return [first]  # this machine has only one of the addresses
            first.close()
            if place.port:
                break
    raise errors.ConfigError(
        f"another program listens on {other}, port {place.port}, and a browser could reach it instead; the server was"
        " not started. Use another --port, or --plain-address to serve http://127.0.0.1"
    )


def listen(place: Place) -> socket.socket:
    """Return a socket that listens at a place.

    Raises:
        ConfigError: The system does not allow it, or another program already listens there.
    """
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    try:
        listener = socket.create_server((place.address, place.port), family=family, backlog=512)
    except OSError as error:
        raise errors.ConfigError(
            # Not `error.strerror`, to which `create_server` adds the address.
            f"cannot listen on {place.address}, port {place.port}: {os.strerror(error.errno or 0)}; use another --port"
        ) from error
    # Accepted connections inherit it; without it, the second part of each response waits 40 ms for a delayed ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
