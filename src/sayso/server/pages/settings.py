"""The settings page, which is read only: the store, the gates that have asked, channels and tokens.

The settings themselves are made in `sayso.toml`, in the environment and by commands. Channels are described as by
`sayso doctor`. No secret is shown, and the one action here, a test message, decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock, config, errors
from sayso.audit.checkpoint import Schedule
from sayso.channels import registry
from sayso.channels.notification import test_notification
from sayso.channels.outbox import health
from sayso.channels.registry import ChannelCheck, check
from sayso.model import redaction
from sayso.model.canonical import MASK
from sayso.model.duration import ago
from sayso.model.edit import schema_of
from sayso.model.escaping import escape
from sayso.model.request import Request
from sayso.model.schema import Schema
from sayso.server.auth.tokens import Token, Tokens
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import render
from sayso.stores.base import Filter, Store
from sayso.stores.migrate import newest_schema
from sayso.view.hint import kinds_of
from sayso.view.summary import name_of, token

__all__ = ["public_address", "send_test", "settings"]

_MOST = 1_000
_ROOM = 60
_ERROR_ROOM = 400


class _Gate(NamedTuple):
    """A function that asked, as its newest request says."""

    name: str
    tool: str
    asked: int
    last: str
    kinds: list[tuple[str, str]]
    schema: str


class _TokenRow(NamedTuple):
    """A token, in words."""

    id: str
    kind: str
    person: str
    roles: str
    stands: str
    used: str


class _ChannelRow(NamedTuple):
    """A channel, in words; one that a program brings along can only be tried there."""

    name: str
    kind: str
    stands: str
    is_wrong: bool
    sent: str
    can_test: bool


def settings(context: RequestContext) -> Response:
    """Show how this inbox is set up."""
    return _page(context)


def send_test(context: RequestContext) -> Response:
    """Send a message about no request through a channel of the settings file, and say how that went."""
    name, tables = context.form.get("channel", ""), config.channel_tables()
    if name not in tables:
        raise HTTPException(404, "there is no such channel in sayso.toml; nothing was sent")
    try:
        registry.make(name, tables[name]).send(test_notification(name, context.settings.base_url))
    except Exception as error:  # noqa: BLE001  a channel is somebody's code and somebody's network: its fault is shown
        said = f"The test message did not go out through {name}: {redaction.error_text(error, ())}"
        return _page(context, status=502, said=escape(said[:_ERROR_ROOM]))
    return _page(context, said=f"A test message went out through {name}.")


def _page(context: RequestContext, *, status: int = 200, said: str = "") -> Response:
    store, now = context.settings.store, clock.now()
    channels, fault = check(health(store))
    return render(
        context, "settings.html", status=status, said=said, is_fault=status != 200, store=_store_facts(store),
        gates=_gates(store, now), most=_MOST, channels=[_channel_row(one, now) for one in channels],
        channel_fault=None if fault is None else escape(fault),
        tokens=[_token_row(one, now) for one in Tokens(store).all()], evidence_fault=_evidence_fault(context),
    )  # fmt: skip


def _evidence_fault(context: RequestContext) -> str | None:
    """Return why this server wrote no checkpoint the last time; None where it did, or writes none."""
    schedule: Schedule | None = context.http.app.state.checkpoints
    return None if schedule is None or schedule.problem is None else escape(schedule.problem)


def _channel_row(one: ChannelCheck, now: datetime) -> _ChannelRow:
    health = one.health
    stands = "nobody has delivered to it yet" if health is None else "works"
    sent = "never" if health is None or health.sent_at is None else ago(health.sent_at, now)
    return _ChannelRow(
        escape(one.name), escape(one.kind), escape(one.problem or stands), one.problem is not None, sent,
        one.is_configured,
    )  # fmt: skip


def public_address(url: str) -> str:
    """Return the address of a store without the name and password that may stand in it."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return escape(url)
    return escape(urlunsplit(parts._replace(netloc=f"{MASK}@{parts.netloc.rpartition('@')[2]}")))


def _store_facts(store: Store) -> list[tuple[str, str]]:
    found = [("address", public_address(store.url)), ("requests", f"{store.count(Filter()):,}")]
    return [*found, ("schema", str(newest_schema()))] if store.url.startswith("sqlite:") else found


def _gates(store: Store, now: datetime) -> list[_Gate]:
    """Return the functions of the newest requests, by name."""
    asked: dict[str, list[Request]] = {}
    for request in store.list(Filter(kind="call"), limit=_MOST, newest=True).requests:
        asked.setdefault(request.call.tool, []).append(request)
    return [_gate(tool, requests, now) for tool, requests in sorted(asked.items())]


def _gate(tool: str, requests: list[Request], now: datetime) -> _Gate:
    newest = requests[0]
    kinds, schema = _schema_said(newest)
    return _Gate(
        token(newest.call.name, _ROOM), escape(tool), len(requests), ago(newest.created_at, now), kinds, schema
    )


def _schema_said(request: Request) -> tuple[list[tuple[str, str]], str]:
    try:
        found: Schema = schema_of(request)
    except errors.StoreCorruptError as fault:
        return [], escape(str(fault))
    schema = json.dumps(found.json_schema(), indent=2, ensure_ascii=False)
    return list(kinds_of(found).items()), escape(schema, block=True)


def _token_row(one: Token, now: datetime) -> _TokenRow:
    if one.revoked_at is not None:
        stands = f"revoked {ago(one.revoked_at, now)}"
    else:
        stands = f"ends {one.expires_at:%Y-%m-%d}" if one.is_good(now) else f"ended {ago(one.expires_at, now)}"
    return _TokenRow(
        escape(one.id), one.kind, name_of(one.person), _listed(one.roles), stands, one.used_on or "not yet"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(token(name) for name in sorted(names)) or "-"
