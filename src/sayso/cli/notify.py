"""`notify`: deliver messages about requests to the channels of `sayso.toml`, where no `sayso serve` does.

Invariant: it decides nothing, and a message that fails stays in the outbox.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import click

from sayso import config, errors
from sayso.channels.outbox import delivering, forget
from sayso.channels.registry import Channel, announce_waiting, configured, make, test_notification
from sayso.cli.context import CliContext, handling_signals
from sayso.cli.output import WRONG, complain, out
from sayso.model.escaping import escape
from sayso.model.redaction import words
from sayso.stores.base import Store


@click.command()
@click.option("--once", is_flag=True, help="Send what is due now, and end, with 1 if a message failed.")
@click.option("--base-url", metavar="URL", help="Where people find the inbox; links begin with it.")
@click.option("--test", "tested", metavar="CHANNEL", help="Send a test message through one channel, and end.")
@click.option("--forget", "forgotten", metavar="CHANNEL", help="Announce nothing to a channel any more, and end.")
@click.option(
    "--backlog", metavar="CHANNEL", help="As --once; first announce to a channel what waited before it was known."
)
@click.pass_obj
def notify(
    cli: CliContext, once: bool, base_url: str | None, tested: str | None, forgotten: str | None, backlog: str | None
) -> int:  # fmt: skip
    """Tell people through the channels of sayso.toml what waits and what became of it.

    `sayso serve` does the same while it runs. Several may run at once; each message goes out once. SIGTERM or Ctrl-C
    ends it.
    """
    link = base_url or config.base_url()
    if tested is not None:
        return _test(tested, link)
    if forgotten is not None:
        if not forget(cli.store, forgotten):
            complain(f"error: no channel {escape(forgotten)!r} is known to this store; nothing changed")
            return WRONG
        then = "; if sayso.toml still names it, the next delivery starts it anew"
        out(f"{escape(forgotten)} gets no notifications any more{then}")
        return 0
    store, channels = cli.store_or_new, configured()
    if not channels:
        _once(store, channels, link)  # clears what was queued for channels that the settings no longer have
        file = config.settings_file()
        where = "there is no sayso.toml in this folder or above it" if file is None else f"{file} names none"
        raise errors.ConfigError(
            f"no channel is configured, so nobody is notified: {where}; write [channels.NAME] with type = ..."
            ' into sayso.toml, such as [channels.desk] with type = "terminal"'
        )
    if backlog is not None and backlog not in channels:
        raise errors.ConfigError(f"sayso.toml names no channel {backlog!r} (there is {', '.join(sorted(channels))})")
    if once or backlog is not None:
        return _once(store, channels, link, backlog)
    ended = threading.Event()
    with handling_signals(lambda _, __: ended.set()), delivering(store, link):
        out(f"delivering to {', '.join(map(escape, channels))}; Ctrl-C ends it")
        ended.wait()
    return 0


def _test(name: str, link: str | None) -> int:
    tables = config.channel_tables()
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise errors.ConfigError(f"sayso.toml names no channel {name!r} (there is {known}); nothing was sent")
    try:
        make(name, tables[name]).send(test_notification(name, link))
    except errors.ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  a channel is somebody's network: whatever is wrong is what was asked for
        complain(f"error: {escape(name)} did not take it: {type(error).__name__}: {escape(words(error, ()))}")
        return WRONG
    out(f"{escape(name)} took a test message")
    return 0


def _once(store: Store, channels: Mapping[str, Channel], link: str | None, backlog: str | None = None) -> int:
    store.sweep()
    failed = 0
    with delivering(store, link, runs=False) as deliverers:
        if backlog is not None:
            announce_waiting(store, backlog)
        for name, deliverer in zip(channels, deliverers, strict=True):
            deliverer.take_over()
            sent = deliverer.deliver_due()
            failed += deliverer.failed
            out(f"{escape(name)}: {sent} sent" + (f", {deliverer.failed} failed" if deliverer.failed else ""))
    return WRONG if failed else 0
