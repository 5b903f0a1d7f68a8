"""`login`: a link by which somebody signs in to the inbox, made on the machine where its server runs.

Invariant: whoever can make one can read the server's secret, and could decide in anybody's name without it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import click

from sayso import config, errors
from sayso.channels.notification import Channel, test_notification
from sayso.channels.registry import make
from sayso.cli.desk import Desk, reviewer
from sayso.cli.listen import place_of
from sayso.cli.say import complain, out
from sayso.cli.ways import serve_table
from sayso.model import duration
from sayso.model.reviewer import Reviewer
from sayso.model.text import escape
from sayso.view.summary import name_of

__all__ = ["login"]


@click.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role that they have; repeatable.")
@click.option("--for", "span", default="15m", show_default=True, metavar="SPAN", help="How long the link is good.")
@click.option("--base-url", metavar="URL", help="How people reach the inbox; else as it is set for `sayso serve`.")
@click.option("--send", "channel", metavar="CHANNEL", help="Send it by this channel instead, e.g. by mail.")
@click.pass_obj
def login(
    desk: Desk, name: str, roles: tuple[str, ...], span: str, base_url: str | None, channel: str | None
) -> int:  # fmt: skip
    """Print a link by which NAME signs in to the inbox, once.

    It needs a server that takes such links: `sayso serve --login-links`. Whoever reads a link first can use it, so a
    channel that it is sent by must be read by NAME alone.
    """
    who, lasts = reviewer(name, roles), duration.parse(span)
    table = serve_table()
    place = place_of(
        table.get("host", str, "127.0.0.1"), table.get("port", int, 8600), base_url or config.base_url(),
    )  # fmt: skip
    sender = None if channel is None else _sender(channel)
    url = f"{place.url(place.port)}/login?token={_token(desk, who, lasts)}"
    with_roles = f" ({', '.join(sorted(who.roles))})" if who.roles else ""
    said = f"it begins one session of {name_of(who.identity)}{escape(with_roles)}, once, within {duration.text(lasts)}"
    if sender is None:
        out(url)
        complain(said)
    else:
        _send(sender, url, said)
        out(f"sent by {sender.name}: {said}")
    return 0


def _sender(channel: str) -> Channel:
    table = config.channel_tables().get(channel)
    if table is None:
        raise errors.ConfigError(f"sayso.toml has no channel [channels.{channel}]; no link was made")
    return make(channel, table)


def _send(sender: Channel, url: str, said: str) -> None:
    about = replace(test_notification(sender.name, url), title="sign in to the inbox of sayso", line=said)
    try:
        sender.send(about)
    except Exception as error:  # a channel is somebody's code and somebody's network
        raise errors.ConfigError(
            f"channel {sender.name} did not take the link ({type(error).__name__}); nobody can use it, make another one"
        ) from error


def _token(desk: Desk, who: Reviewer, lasts: timedelta) -> str:
    try:
        from sayso.server.link import LONGEST, Links
        from sayso.server.secret import secret_of
        from sayso.server.stamp import Stamps
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            f"`sayso login` needs the extra `web` ({error.name} is missing): pip install 'sayso[web]'"
        ) from error
    if lasts > LONGEST:
        raise errors.ConfigError(f"a login link is good for {duration.text(LONGEST)} at most; no link was made")
    store = desk.store_or_new
    if secret_of(store) is None:
        raise errors.ConfigError(
            f"links to the inbox of {store.url} are signed with SAYSO_SECRET, as its server's are; it is not set"
        )
    return Links(Stamps(store)).token(who, lasts)
