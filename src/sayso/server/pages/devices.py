"""Notifications in one's own browsers: turned on and off on the settings page, and approval from one of them.

`sayso.server.push` sends them. What a notification offers is checked again here, with the fingerprint that it carried:
a request that changed since, or that the policy wants looked at, is not approved.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from sayso.channels.notification import DeliveryError
from sayso.model.escaping import escape
from sayso.model.words import say
from sayso.reviews import Review
from sayso.server.context import DEVICE_COOKIE, RequestContext, redirect, set_cookie
from sayso.server.pages.settings import page_of_settings
from sayso.server.push import LASTS, DeviceRefusedError, Push, may_approve_there

_LONGEST_NAME, _LONGEST = 60, 2_000


def change(context: RequestContext) -> Response:
    """Add this browser as a device, remove a device of one's own, or send a test message to it."""
    push, verb, me = push_of(context), context.http.path_params["verb"], context.reviewer
    key = context.form.get("key", "")
    if verb == "add":
        return _add(context, push)
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
            said = say("The test message did not go out: %(fault)s", fault=escape(str(fault)))
            return page_of_settings(context, status=502, of_devices=said)
        return page_of_settings(context, of_devices=say("A test message went out."))
    raise HTTPException(404, say("there is no such thing to do"))


def push_of(context: RequestContext) -> Push:
    """Return the channel of devices."""
    return context.http.app.state.push


def _add(context: RequestContext, push: Push) -> Response:
    sent = [context.form.get(name, "") for name in ("endpoint", "p256dh", "auth")]
    name = (context.field("name") or say("a browser"))[:_LONGEST_NAME]
    if any(len(one) > _LONGEST for one in sent):
        raise HTTPException(422, say("this is no subscription of a browser; nothing was turned on"))
    try:
        device = push.add(context.reviewer, name, *sent)
    except DeviceRefusedError as fault:
        return page_of_settings(context, status=422, of_devices=escape(str(fault)))
    response = redirect(context.path("settings") + "#devices")
    set_cookie(context.http, response, DEVICE_COOKIE, device.key, lasts=LASTS)
    return response


def approve(context: RequestContext) -> Response:
    """Approve a request from its notification, as it was shown there and as the policy lets it be."""
    store, seen = context.settings.store, context.form.get("seen", "")
    request = context.review.get(context.http.path_params["request_id"])
    if not may_approve_there(store, request):
        raise HTTPException(409, say("this is approved on its page only; nothing was decided"))
    undo = context.settings.undo_within
    review = Review(store, reviewer=context.reviewer, channel="push", sweeps=False, undo_within=undo)
    review.approve(request.id, seen=seen)
    return PlainTextResponse("" if undo is None else str(int(undo.total_seconds())))
