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
from sayso.channels.registry import make, test_notification
from sayso.cli.context import (
    WRONG,
    CliContext,
    NoStoreYetError,
    Number,
    as_option,
    as_span,
    complain,
    json_option,
    needing_web,
    out,
    reviewer_of,
    text_table,
)
from sayso.cli.serve import place_of, serve_table
from sayso.model import duration
from sayso.model.escaping import escape
from sayso.model.reviewer import LOCAL, Reviewer
from sayso.stores.base import Store
from sayso.view.summary import name_of, time_left
from sayso.view.summary import token as word

if TYPE_CHECKING:
    from sayso.server.auth.tokens import Token, Tokens

_MAY = {
    "ask": "it asks and runs what was approved, and never decides; nobody of its name can decide what it asked",
    "review": "it decides in this name, and never runs anything",
    "admin": "it looks at everything, resolves outcomes and revokes tokens, and neither asks nor decides",
}


def _tokens(store: Store) -> Tokens:
    with needing_web("token"):
        from sayso.server.auth.tokens import Tokens
    return Tokens(store)


@click.group()
def token() -> None:
    """Create, list and revoke the tokens with which programs reach the inbox."""


@token.command("new")
@click.option("--kind", type=click.Choice(["ask", "review", "admin"]), required=True, help="What it may do.")
@click.option("--name", required=True, metavar="NAME", help="The program, or the person, in whose name it acts.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role of that person; repeatable.")
@click.option("--issuer", default=LOCAL, metavar="WORD", help="Who vouches for the name; as where they sign in.")
@click.option(
    "--expires", "span", default="90d", show_default=True, metavar="SPAN", type=as_span,
    help="How long it is good.",
)  # fmt: skip
@as_option
@json_option
@click.pass_obj
def _new(
    cli: CliContext, kind: Literal["ask", "review", "admin"], name: str, roles: tuple[str, ...], issuer: str,
    span: timedelta,
) -> int:  # fmt: skip
    """Make a token, and print it once.

    The store keeps only a digest of it.
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
        cli.say_store()
        complain(
            f"token {made.id} of {name_of(made.person)}, for {duration.text(span)}: {_MAY[kind]}",
            f"it is not shown again; `sayso token revoke {made.id}` ends it",
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
        complain(str(fault))
        found = list[Any]()
    rows = [("ID", "KIND", "GOOD FOR", "LAST USED", "NAME")]
    for one in sorted(found, key=lambda one: one.made_at):
        roles = f", {', '.join(word(role) for role in sorted(one.roles))}" if one.roles else ""
        left = "revoked" if one.revoked_at else time_left(one.expires_at, clock.now()).removeprefix("in ")
        rows.append((one.id, one.kind, left, one.used_on or "never", f"{name_of(one.person)}{roles}"))
    shown = ["  ".join(row) for row in text_table(rows)] if found else ["there is none; `sayso token new` makes one"]
    return cli.answer([_document(one) for one in found], shown)


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@as_option
@click.pass_obj
def _revoke(cli: CliContext, token_id: str) -> int:
    """End a token at once."""
    ended = _tokens(cli.store).revoke(token_id, by=cli.reviewer.identity, channel="cli")
    if ended is None:
        complain(f"error: there is no token {word(token_id)}; nothing was changed", "`sayso token ls` lists them")
        return WRONG
    out(f"{ended.id} revoked; it opens nothing any more")
    return 0


def _document(one: Token) -> dict[str, Any]:
    return {
        "id": one.id, "kind": one.kind, "name": one.person.subject, "issuer": one.person.issuer,
        "roles": sorted(one.roles), "made_at": clock.written(one.made_at), "expires_at": clock.written(one.expires_at),
        "revoked_at": None if one.revoked_at is None else clock.written(one.revoked_at), "used_on": one.used_on,
    }  # fmt: skip


@click.command()
@click.argument("name", required=False)
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role that they have; repeatable.")
@click.option("--for", "span", default="15m", show_default=True, metavar="SPAN", help="How long the link is good.")
@click.option("--base-url", metavar="URL", help="How people reach the inbox; else as it is set for `sayso serve`.")
@click.option("--port", type=Number(1, 65_535), metavar="N", help="The server's, if no address is set.")
@click.option("--send", "channel", metavar="CHANNEL", help="Send it by this channel instead, e.g. by mail.")
@click.pass_obj
def login(
    cli: CliContext, name: str | None, roles: tuple[str, ...], span: str, base_url: str | None, port: int | None,
    channel: str | None,
) -> int:  # fmt: skip
    """Print a link by which NAME signs in to the inbox, once.

    It needs a server that accepts such links: `sayso serve --login-links`. Without NAME the link is for you, and for
    the server that a plain `sayso serve` runs on this machine. The first person who opens a link is signed in, so send
    it only through a channel that nobody but NAME reads.
    """
    if name is None and roles:
        raise click.UsageError("--role goes with NAME; without NAME the link is yours, with the roles that you have")
    who, lasts = cli.reviewer if name is None else reviewer_of(name, roles, option="NAME"), duration.parse(span)
    table = serve_table()
    header = table.get("proxy_header", str, "")
    if header:
        raise errors.ConfigError(
            f"people sign in by the proxy's header {header} (proxy_header in [serve]), so a link would open nothing;"
            " no link was made"
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
    token = _token(cli, who, lasts)
    url = f"{place.url(place.port, _own_name(cli) if is_named else None)}/login?token={token}"
    cli.say_store()
    with_roles = f" ({', '.join(sorted(who.roles))})" if who.roles else ""
    note = f"it begins one session of {name_of(who.identity)}{escape(with_roles)}, once, within {duration.text(lasts)}"
    if sender is None:
        out(url)
        complain(note)
        return 0
    about = replace(test_notification(sender.name, url), title="sign in to the inbox of sayso", line=note)
    try:
        sender.send(about)
    except Exception as error:  # a channel runs third-party code over a network
        raise errors.ConfigError(
            f"channel {sender.name} did not take the link ({type(error).__name__}); nobody can use it, make another one"
        ) from error
    out(f"sent by {sender.name}: {note}")
    return 0


def _own_name(cli: CliContext) -> str:
    with needing_web("login"):
        from sayso.server.hosts import local_hostname
    return local_hostname(cli.store_or_new)


def _token(cli: CliContext, who: Reviewer, lasts: timedelta) -> str:
    with needing_web("login"):
        from sayso.server.auth.sessions import LONGEST, Links, TokenSigner, server_secret
    if lasts > LONGEST:
        raise errors.ConfigError(f"a login link is good for {duration.text(LONGEST)} at most; no link was made")
    store = cli.store_or_new
    if server_secret(store) is None:
        raise errors.ConfigError(
            f"links to the inbox of {store.public_url} are signed with SAYSO_SECRET, as its server's are; it is not set"
        )
    return Links(TokenSigner(store)).token(who, lasts)


@click.group()
def key() -> None:
    """Make the key that signs evidence, or show its public half."""


@key.command("new", short_help="Make a private key, and print the public one.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def _key_new(file: Path) -> int:
    """Make a private key in FILE, for its owner alone, and print the public one.

    Name the file in sayso.toml, under [evidence], or in SAYSO_SIGNING_KEY; give the public key to whoever verifies.
    """
    out(make_key(file.expanduser()))
    complain(f"the private key is in {escape(str(file))}; checkpoints are signed where sayso.toml says [evidence] key")
    return 0


@key.command("show", short_help="Print the public half of a key.")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
def _key_show(file: Path | None) -> int:
    """Print the public half of the key in FILE, else of the configured one."""
    path = file or config.signing_key()
    if path is None:
        raise errors.ConfigError(
            "no key is configured: `sayso key new FILE` makes one, and [evidence] key or SAYSO_SIGNING_KEY names it"
        )
    out(signer_at(path.expanduser()).key)
    return 0
