"""`notify`: delivers messages about requests to the channels of `sayso.toml` if no `sayso serve` does.

Invariant: it decides nothing, and a failed message stays in the outbox.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import click

from sayso import config, errors
from sayso.channels import registry
from sayso.channels.outbox import delivering
from sayso.cli import context
from sayso.cli.context import WRONG, CliContext, echo, echo_err
from sayso.model.redaction import words
from sayso.model.text import escape
from sayso.stores.base import Store


@click.command()
@click.option("--once", is_flag=True, help="Send the messages that are due, then exit; with 1 if one failed.")
@click.option("--base-url", metavar="URL", help="The URL of the inbox, with which links begin.")
@click.option("--test", "tested", metavar="CHANNEL", help="Send a test message through this channel, then exit.")
@click.option("--forget", "forgotten", metavar="CHANNEL", help="Stop notifying this channel, then exit.")
@click.option(
    "--backlog", metavar="CHANNEL", help="Like --once, but first announce older pending requests to this channel."
)
@click.pass_obj
def notify(
    cli: CliContext, once: bool, base_url: str | None, tested: str | None, forgotten: str | None, backlog: str | None
) -> int:  # fmt: skip
    """Notify people of requests and outcomes through the channels of sayso.toml.

    `sayso serve` does the same while it runs. Several may run at once; each message is sent once. SIGTERM or Ctrl-C
    stops it.
    """
    link = base_url or config.base_url()
    if tested is not None:
        return _send_test(tested, link)
    if forgotten is not None:
        if not registry.forget(cli.store, forgotten):
            echo_err(f"error: no channel {escape(forgotten)!r} is known to this store; nothing changed")
            return WRONG
        then = "; if sayso.toml still names it, the next delivery registers it again"
        echo(f"{escape(forgotten)} gets no more notifications{then}")
        return 0
    store, channels = cli.store_or_new, registry.configured()
    if not channels:
        _once(store, channels, link)  # drops messages queued for channels that were removed from the settings
        file = config.settings_file()
        where = "there is no sayso.toml in this folder or above it" if file is None else f"{file} names none"
        raise errors.ConfigError(
            f"no channel is configured, so nobody can be notified: {where}; write [channels.NAME] with type = ... into"
            ' sayso.toml, such as [channels.desk] with type = "terminal"'
        )
    if backlog is not None and backlog not in channels:
        raise errors.ConfigError(f"sayso.toml has no channel {backlog!r} (it has {', '.join(sorted(channels))})")
    if once or backlog is not None:
        return _once(store, channels, link, backlog)
    ended = threading.Event()
    with context.handle_signals(lambda _, __: ended.set()), delivering(store, link):
        echo(f"delivering to {', '.join(map(escape, channels))}; press Ctrl-C to stop")
        ended.wait()
    return 0


def _send_test(name: str, link: str | None) -> int:
    tables = config.channel_tables()
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise errors.ConfigError(f"sayso.toml has no channel {name!r} (it has {known}); nothing was sent")
    try:
        registry.make(name, tables[name]).send(registry.test_notification(name, link))
    except errors.ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  any failure of the channel is the result of the test
        echo_err(
            f"error: {escape(name)} could not send the message: {type(error).__name__}: {escape(words(error, ()))}"
        )
        return WRONG
    echo(f"{escape(name)} sent a test message")
    return 0


def _once(store: Store, channels: Mapping[str, registry.Channel], link: str | None, backlog: str | None = None) -> int:
    store.sweep()
    failed = 0
    with delivering(store, link, runs=False) as deliverers:
        if backlog is not None:
            registry.announce_waiting(store, backlog)
        for name, deliverer in zip(channels, deliverers, strict=True):
            deliverer.take_over()
            sent = deliverer.deliver_due()
            failed += deliverer.failed
            echo(f"{escape(name)}: {sent} sent" + (f", {deliverer.failed} failed" if deliverer.failed else ""))
    return WRONG if failed else 0
