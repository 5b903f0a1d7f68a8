"""`token`, `login` and `key`: credentials for programs and people, and keys that sign evidence.

Invariant: a token is printed once, when it is created, and a private key never.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from sayso import clock, config, errors
from sayso.audit.signing import make_key, signer_at
from sayso.cli import context
from sayso.cli.context import CliContext, NoStoreYetError, echo, echo_err, json_option, require_web, text_table
from sayso.model import duration
from sayso.model.rendering import quote_if_needed
from sayso.model.reviewer import LOCAL, name_of
from sayso.model.text import escape
from sayso.stores.base import Store
from sayso.view.summary import time_left

if TYPE_CHECKING:
    from sayso.server.auth.tokens import Token, Tokens

_MAY = {
    "ask": "it makes requests and runs approved calls; it cannot decide, and no reviewer of the same name can "
    "decide its requests",
    "review": "it decides in this name; it cannot run calls",
    "admin": "it reads everything, resolves outcomes and revokes tokens; it cannot make requests or decide",
}


def _tokens(store: Store) -> Tokens:
    with require_web("token"):
        from sayso.server.auth.tokens import Tokens
    return Tokens(store)


@click.group()
def token() -> None:
    """Create, list and revoke tokens, with which programs use the server."""


@token.command("new")
@click.option(
    "--kind", type=click.Choice(["ask", "review", "admin"]), required=True,
    help="ask: make requests and run approved calls; review: decide; admin: operate the server.",
)  # fmt: skip
@click.option("--name", required=True, metavar="NAME", help="The program or person that the token acts for.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role of that person; repeatable.")
@click.option("--issuer", default=LOCAL, metavar="WORD", help="The issuer of the name, as at sign-in.")
@click.option(
    "--expires", "span", default="90d", show_default=True, metavar="SPAN", type=context.as_span,
    help="How long the token is valid.",
)  # fmt: skip
@context.as_option
@json_option
@click.pass_obj
def _new(
    cli: CliContext, kind: Literal["ask", "review", "admin"], name: str, roles: tuple[str, ...], issuer: str,
    span: timedelta
) -> int:  # fmt: skip
    """Create a token and print it once.

    The store keeps only its digest.
    """
    by = cli.reviewer.identity
    try:
        store = cli.store
    except NoStoreYetError:
        store = config.open_store(cli.address)  # a token may be the first record of a new store
    try:
        made, text = _tokens(store).new(kind, name, roles=roles, issuer=issuer, lasts=span, by=by, channel="cli")
    except ValueError as error:
        raise click.UsageError(f"{error}; no token was made") from error
    cli.answer({**_document(made), "token": text}, [text])
    if not cli.as_json:
        cli.print_store()
        echo_err(
            f"token {made.id} of {name_of(made.person)}, for {duration.text(span)}: {_MAY[kind]}",
            f"it is not shown again; revoke it with `sayso token revoke {made.id}`",
        )
    return 0


@token.command("ls")
@json_option
@click.pass_obj
def _ls(cli: CliContext) -> int:
    """List tokens, including those that are no longer valid."""
    try:
        found = _tokens(cli.store).all()
    except NoStoreYetError as fault:
        echo_err(str(fault))
        found = list[Any]()
    rows = [("ID", "KIND", "VALID FOR", "LAST USED", "NAME")]
    for one in sorted(found, key=lambda one: one.made_at):
        roles = f", {', '.join(quote_if_needed(role) for role in sorted(one.roles))}" if one.roles else ""
        left = "revoked" if one.revoked_at else time_left(one.expires_at, clock.now()).removeprefix("in ")
        rows.append((one.id, one.kind, left, one.used_on or "never", f"{name_of(one.person)}{roles}"))
    shown = ["  ".join(row) for row in text_table(rows)] if found else ["no tokens; `sayso token new` makes one"]
    return cli.answer([_document(one) for one in found], shown)


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@context.as_option
@click.pass_obj
def _revoke(cli: CliContext, token_id: str) -> int:
    """Revoke a token at once."""
    ended = _tokens(cli.store).revoke(token_id, by=cli.reviewer.identity, channel="cli")
    if ended is None:
        echo_err(
            f"error: there is no token {quote_if_needed(token_id)}; nothing was changed", "`sayso token ls` lists them"
        )
        return context.WRONG
    echo(f"{ended.id} revoked; it is no longer valid")
    return 0


def _document(one: Token) -> dict[str, Any]:
    return {
        "id": one.id, "kind": one.kind, "name": one.person.subject, "issuer": one.person.issuer,
        "roles": sorted(one.roles), "made_at": clock.written(one.made_at), "expires_at": clock.written(one.expires_at),
        "revoked_at": None if one.revoked_at is None else clock.written(one.revoked_at), "used_on": one.used_on,
    }  # fmt: skip


@click.command()
@click.argument("name", required=False)
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role of that person; repeatable.")
@click.option("--for", "span", default="15m", show_default=True, metavar="SPAN", help="How long the link is valid.")
@click.option("--base-url", metavar="URL", help="The URL of the inbox; by default as configured for `sayso serve`.")
@click.option("--port", type=context.Number(1, 65_535), metavar="N", help="The server's port, if no URL is configured.")
@click.option("--send", "channel", metavar="CHANNEL", help="Send the link through this channel instead of printing it.")
@click.pass_obj
def login(
    cli: CliContext, name: str | None, roles: tuple[str, ...], span: str, base_url: str | None, port: int | None,
    channel: str | None,
) -> int:  # fmt: skip
    """Print a link with which NAME signs in to the inbox, once.

    The server must accept login links: `sayso serve --login-links`. Without NAME, the link is for you, and for a plain
    `sayso serve` on this machine. Whoever opens the link first is signed in, so send it only where NAME alone reads it.
    """
    from sayso.channels.registry import make, test_notification
    from sayso.cli.serve import place_of, serve_table

    if name is None and roles:
        raise click.UsageError("--role needs NAME; without NAME the link is for you, with your own roles")
    who, lasts = cli.reviewer if name is None else context.reviewer_of(name, roles, option="NAME"), duration.parse(span)
    table = serve_table()
    header = table.get("proxy_header", str, "")
    if header:
        raise errors.ConfigError(
            f"people sign in through the proxy's header {header} (proxy_header in [serve]), so a login link would not"
            " work; no link was made"
        )
    place = place_of(
        table.get("host", str, "127.0.0.1"), table.get("port", int, 8600) if port is None else port,
        base_url or config.base_url(),
    )  # fmt: skip
    is_named = name is None and place.can_be_named and not table.get("plain_address", bool, False)
    settings = None if channel is None else config.channel_tables().get(channel)
    if channel is not None and settings is None:
        raise errors.ConfigError(f"sayso.toml has no channel [channels.{channel}]; no link was made")
    sender = None if channel is None or settings is None else make(channel, settings)
    with require_web("login"):
        from sayso.server.auth.sessions import LONGEST, Links, TokenSigner, server_secret
        from sayso.server.protection import local_hostname
    if lasts > LONGEST:
        raise errors.ConfigError(f"a login link is valid for at most {duration.text(LONGEST)}; no link was made")
    store = cli.store_or_new
    if server_secret(store) is None:
        raise errors.ConfigError(
            f"links to the inbox of {store.public_url} are signed with SAYSO_SECRET, which is not set; set it as for"
            " the server"
        )
    token = Links(TokenSigner(store)).token(who, lasts)
    named = local_hostname(store) if is_named else None
    url = f"{place.url(place.port, named)}/login?token={token}"
    cli.print_store()
    with_roles = f" ({', '.join(sorted(who.roles))})" if who.roles else ""
    note = f"it signs in {name_of(who.identity)}{escape(with_roles)}, once, within {duration.text(lasts)}"
    if sender is None:
        echo(url)
        echo_err(note)
        return 0
    about = replace(test_notification(sender.name, url), title="sign in to the inbox of sayso", line=note)
    try:
        sender.send(about)
    except Exception as error:  # a channel runs third-party code over a network
        raise errors.ConfigError(
            f"channel {sender.name} could not send the link ({type(error).__name__}); run the command again for a new"
            " link"
        ) from error
    echo(f"sent through {sender.name}: {note}")
    return 0


@click.group()
def key() -> None:
    """Create the key that signs evidence, or show its public key."""


@key.command("new", short_help="Create a private key, and print its public key.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def _key_new(file: Path) -> int:
    """Create a private key in FILE, which only its owner can read, and print its public key.

    Name the file in sayso.toml, under [evidence], or in SAYSO_SIGNING_KEY; give the public key to those who verify.
    """
    echo(make_key(file.expanduser()))
    echo_err(
        f"the private key is in {escape(str(file))}; to sign checkpoints with it, name it in sayso.toml: [evidence] key"
    )
    return 0


@key.command("show", short_help="Print the public key of a private key.")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
def _key_show(file: Path | None) -> int:
    """Print the public key of the private key in FILE, by default of the configured one."""
    path = file or config.signing_key()
    if path is None:
        raise errors.ConfigError(
            "no key is configured: `sayso key new FILE` makes one, and [evidence] key or SAYSO_SIGNING_KEY names it"
        )
    echo(signer_at(path.expanduser()).key)
    return 0
