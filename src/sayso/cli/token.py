"""`token`: make, list and revoke the tokens with which programs reach the inbox's HTTP API.

Invariant: a token's text is printed once, when it is made, and cannot be had again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from sayso import clock, config, errors
from sayso.cli.desk import Desk, NoStoreYetError, as_json, reviewer
from sayso.cli.say import WRONG, complain, document, out
from sayso.model import duration
from sayso.model.reviewer import LOCAL
from sayso.stores.base import Store
from sayso.view.summary import columns, name_of, padded, time_left
from sayso.view.summary import token as word

if TYPE_CHECKING:
    from sayso.server.token import Token, Tokens

__all__ = ["ls", "new", "revoke", "token"]

_MAY = {
    "ask": "it asks and runs what was approved, and never decides; nobody of its name can decide what it asked",
    "review": "it decides in this name, and never runs anything",
    "admin": "it looks at everything, resolves outcomes and revokes tokens, and neither asks nor decides",
}
_as = click.option(
    "--as", "maker", metavar="NAME", help="Who you are, for the journal; else SAYSO_REVIEWER, else user@host."
)


def _tokens(store: Store) -> Tokens:
    try:
        from sayso.server.token import Tokens
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            f"`sayso token` needs the extra `web` ({error.name} is missing): pip install 'sayso[web]'"
        ) from error
    return Tokens(store)


@click.group()
def token() -> None:
    """Make, list and revoke the tokens with which programs reach the inbox."""


@token.command("new")
@click.option("--kind", type=click.Choice(["ask", "review", "admin"]), required=True, help="What it may do.")
@click.option("--name", required=True, metavar="NAME", help="The program, or the person, in whose name it acts.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role of that person; repeatable.")
@click.option("--issuer", default=LOCAL, metavar="WORD", help="Who vouches for the name; as where they sign in.")
@click.option("--expires", "span", default="90d", show_default=True, metavar="SPAN", help="How long it is good.")
@_as
@as_json
@click.pass_obj
def new(
    desk: Desk, kind: Literal["ask", "review", "admin"], name: str, roles: tuple[str, ...], issuer: str, span: str,
    maker: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Make a token, and print it once.

    The store keeps only a digest of it.
    """
    lasts, by = _span(span), reviewer(maker, ()).identity
    try:
        made, text = _tokens(_store(desk)).new(
            kind, name, roles=roles, issuer=issuer, lasts=lasts, by=by, channel="cli"
        )
    except ValueError as error:
        raise click.UsageError(f"{error}; no token was made") from error
    if as_json:
        document({**_document(made), "token": text})
        return 0
    out(text)
    complain(
        f"token {made.id} of {name_of(made.person)}, for {duration.text(lasts)}: {_MAY[kind]}",
        f"it is not shown again; `sayso token revoke {made.id}` ends it",
    )
    return 0


@token.command("ls")
@as_json
@click.pass_obj
def ls(desk: Desk, as_json: bool) -> int:
    """List tokens, also those that are not good any more."""
    try:
        found = _tokens(desk.store).all()
    except NoStoreYetError as fault:
        complain(str(fault))
        found = list[Any]()
    if as_json:
        document([_document(one) for one in found])
        return 0
    rows = [("ID", "KIND", "GOOD FOR", "LAST USED", "NAME"), *map(_cells, sorted(found, key=lambda one: one.made_at))]
    pads = [max(columns(row[column]) for row in rows) for column in range(4)]
    for row in rows if found else []:
        out("  ".join([*(padded(cell, pad) for cell, pad in zip(row, pads, strict=False)), row[4]]))
    if not found:
        out("there is none; `sayso token new` makes one")
    return 0


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@_as
@click.pass_obj
def revoke(desk: Desk, token_id: str, maker: str | None) -> int:
    """End a token at once."""
    ended = _tokens(desk.store).revoke(token_id, by=reviewer(maker, ()).identity, channel="cli")
    if ended is None:
        complain(f"error: there is no token {word(token_id)}; nothing was changed", "`sayso token ls` lists them")
        return WRONG
    out(f"{ended.id} revoked; it opens nothing any more")
    return 0


def _span(text: str) -> Any:
    try:
        return duration.parse(text)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--expires") from error


def _store(desk: Desk) -> Store:
    try:
        return desk.store
    except NoStoreYetError:
        return config.open_store(desk.address)  # a token may be the first thing that it keeps


def _cells(one: Token) -> tuple[str, ...]:
    roles = f", {', '.join(word(role) for role in sorted(one.roles))}" if one.roles else ""
    return one.id, one.kind, _good_for(one), one.used_on or "never", f"{name_of(one.person)}{roles}"


def _good_for(one: Token) -> str:
    if one.revoked_at is not None:
        return "revoked"
    return time_left(one.expires_at, clock.now()).removeprefix("in ")


def _document(one: Token) -> dict[str, Any]:
    return {
        "id": one.id, "kind": one.kind, "name": one.person.subject, "issuer": one.person.issuer,
        "roles": sorted(one.roles), "made_at": clock.written(one.made_at), "expires_at": clock.written(one.expires_at),
        "revoked_at": None if one.revoked_at is None else clock.written(one.revoked_at), "used_on": one.used_on,
    }  # fmt: skip
