"""The settings page: the reader's language and devices, who is away, and the server's settings, read only.

Here a reviewer turns notifications on and declares themselves away; other settings are made in `sayso.toml`, in the
environment or by commands. Channels are described as in `sayso doctor`. No secret is shown; the page decides nothing.
"""

from __future__ import annotations

import json
from datetime import datetime
from importlib.util import find_spec
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from sayso import clock, config, errors
from sayso.audit.checkpoint import Schedule
from sayso.channels import registry
from sayso.channels.registry import DeliveryError, check, health, test_notification
from sayso.model import redaction
from sayso.model.duration import ago
from sayso.model.edit import schema_of
from sayso.model.request import Request
from sayso.model.reviewer import name_of
from sayso.model.text import escape, say
from sayso.server.auth.tokens import doubt_about
from sayso.server.context import DEVICE_COOKIE, RequestContext, device_key, redirect, set_cookie
from sayso.server.language import choose_language, language_of, languages
from sayso.server.pages.edits import NotDoneError, colleagues, person_named
from sayso.server.pages.rendering import render
from sayso.server.web_push import LASTS, DeviceRefusedError, Push, may_approve_there
from sayso.stores.base import Filter, Store
from sayso.stores.sqlite_file import newest_schema
from sayso.view.full_text import kinds_of
from sayso.view.summary import absence

_MOST, _ERROR_ROOM = 1_000, 400
_LONGEST_DEVICE, _LONGEST_KEY = 60, 2_000


def send_test(context: RequestContext) -> Response:
    """Send a test message through a channel of the settings file, and show the result."""
    name, tables = context.form.get("channel", ""), config.channel_tables()
    if name not in tables:
        raise HTTPException(404, say("there is no such channel in sayso.toml; nothing was sent"))
    context.count_test()
    try:
        registry.make(name, tables[name]).send(test_notification(name, context.settings.base_url))
    except Exception as error:  # noqa: BLE001  a channel is any code, on any network: show every error
        fault = escape(redaction.error_text(error, ())[:_ERROR_ROOM])
        notice = say("The test message did not go out through %(name)s: %(fault)s", name=escape(name), fault=fault)
        return settings(context, status=502, notice=notice)
    return settings(context, notice=say("A test message went out through %(name)s.", name=escape(name)))


def set_language(context: RequestContext) -> Response:
    """Store a person's language, or leave it to the browser."""
    choose_language(context.settings.store, context.reviewer.identity, context.form.get("tag", ""))
    return redirect(context.path("settings"))


def go_away(context: RequestContext) -> Response:
    """Record that this person is away, and who stands in."""
    try:
        to = person_named(context, context.field("to") or "")
        made = context.review.delegate(to, context.field("until") or "")
    except NotDoneError as refused:
        return settings(context, status=422, away_fault=str(refused))
    except (errors.ConfigError, ValueError) as fault:
        return settings(context, status=422, away_fault=escape(str(fault)))
    further, doubt = absence(made.to, context.review.delegations()), doubt_about(context.settings.store, made.to)
    if further:
        doubt = say(
            "%(name)s is %(away)s: a stand-in's own stand-in does not count.", name=name_of(made.to), away=further
        )
    if doubt is not None:
        return settings(context, away_fault=doubt)
    return redirect(context.path("settings"))


def come_back(context: RequestContext) -> Response:
    """Record that this person is back."""
    context.review.end_delegation()
    return redirect(context.path("settings"))


def settings(
    context: RequestContext, *, status: int = 200, notice: str = "", away_fault: str = "", of_devices: str = ""
) -> Response:
    """Return the page, with a message about a channel (`notice`), about being away, or about devices."""
    store = context.settings.store
    facts = [(say("address"), escape(store.public_url)), (say("requests"), f"{store.count(Filter()):,}")]
    facts += [(say("schema"), str(newest_schema()))] if store.url.startswith("sqlite:") else []
    schedule: Schedule | None = context.http.app.state.checkpoints
    channels, fault = check(health(store))
    chosen = language_of(store, context.reviewer.identity)
    away = context.review.delegations()
    return render(
        context, "settings.html", status=status, notice=notice, is_fault=status != 200, store=facts,
        gates=_gates(store), most=_MOST, channels=channels, channel_fault=fault,
        of_devices=of_devices, devices=None if find_spec("pywebpush") is None else _devices(context),
        evidence_fault=None if schedule is None else schedule.problem,
        choices=[("", say("as in the browser")), *((one.tag, one.name) for one in languages().values())],
        chosen="" if chosen is None else chosen.tag, away_fault=away_fault, colleagues=colleagues(context),
        away=[(one.by.is_same(context.reviewer.identity), name_of(one.by), absence(one.by, [one])) for one in away],
        form=context.form,
    )  # fmt: skip


def _devices(context: RequestContext) -> dict[str, Any]:
    """Return the reader's devices, with this browser's marked, and the key with which a browser subscribes."""
    push: Push = context.http.app.state.push
    here, now = device_key(context.http), clock.now()
    rows = [
        (one.key, one.name, ago(datetime.fromisoformat(one.record.body["added"]), now), one.key == here, one.record.due)
        for one in push.devices(context.reviewer)
    ]
    return {"rows": rows, "key": push.public_key()}


def _gates(store: Store) -> list[dict[str, Any]]:
    asked: dict[str, list[Request]] = {}
    for request in store.list(Filter(kind="call"), limit=_MOST, newest=True).requests:
        asked.setdefault(request.call.tool, []).append(request)
    gates: list[dict[str, Any]] = []
    for _, (newest, *others) in sorted(asked.items()):
        try:
            found = schema_of(newest)
            kinds, schema = kinds_of(found), json.dumps(found.json_schema(), indent=2, ensure_ascii=False)
        except errors.StoreCorruptError as fault:
            kinds, schema = {}, str(fault)
        gates.append({
            "call": newest.call, "asked": 1 + len(others), "last": newest.created_at, "kinds": kinds, "schema": schema,
        })  # fmt: skip
    return gates


# -- notifications in the reader's browsers, which `sayso.server.web_push` sends -------------------------------------
# An approval from a notification is checked again here, with the fingerprint that it carried: a request that changed
# since, or that must be approved on its page, is refused.


def change_device(context: RequestContext) -> Response:
    """Add this browser as a device, or remove or test one of the reader's devices."""
    push: Push = context.http.app.state.push
    verb, me = context.http.path_params["verb"], context.reviewer
    key = context.form.get("key", "")
    if verb == "add":
        return _add_device(context, push)
    if verb == "remove":
        if not push.remove(me, key):
            raise HTTPException(404, say("you have no such device; nothing was removed"))
        return redirect(context.path("settings") + "#devices")
    if verb == "test":
        device = next((one for one in push.devices(me) if one.key == key), None)
        if device is None:
            raise HTTPException(404, say("you have no such device; nothing was sent"))
        context.count_test()
        try:
            push.test(device)
        except DeliveryError as fault:
            notice = say("The test message did not go out: %(fault)s", fault=escape(str(fault)))
            return settings(context, status=502, of_devices=notice)
        return settings(context, of_devices=say("A test message went out."))
    raise HTTPException(404, say("there is no such action"))


def _add_device(context: RequestContext, push: Push) -> Response:
    sent = [context.form.get(name, "") for name in ("endpoint", "p256dh", "auth")]
    name = (context.field("name") or say("a browser"))[:_LONGEST_DEVICE]
    if any(len(one) > _LONGEST_KEY for one in sent):
        raise HTTPException(422, say("this is not a browser's push subscription; nothing was turned on"))
    try:
        device = push.add(context.reviewer, name, *sent)
    except DeviceRefusedError as fault:
        return settings(context, status=422, of_devices=escape(str(fault)))
    response = redirect(context.path("settings") + "#devices")
    set_cookie(context.http, response, DEVICE_COOKIE, device.key, lasts=LASTS)
    return response


def decide_notified(context: RequestContext) -> Response:
    """Approve or reject a request from its notification, if it still is what that showed and the policy allows it.

    A rejection tells the program that no reason was given, if the browser let none be typed.
    """
    verb = context.http.path_params["verb"]
    if verb not in {"approve", "reject"}:
        raise HTTPException(404, say("there is no such action"))
    store, seen = context.settings.store, context.form.get("seen", "")
    request = context.review.get(context.http.path_params["request_id"])
    if not may_approve_there(store, request):
        raise HTTPException(409, say("this can be decided only on its own page; nothing was decided"))
    review, undo = context.review_on(store, channel="push"), context.settings.undo_within
    if verb == "reject":
        reason = context.field("note") or "rejected from a notification, without a reason"
        review.reject(request.id, reason, seen=seen)
        return PlainTextResponse("")
    review.approve(request.id, seen=seen)
    return PlainTextResponse("" if undo is None else str(int(undo.total_seconds())))
