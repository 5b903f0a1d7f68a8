"""The page of grants, and the forms that revoke one, agree to one, stop every start and let calls start again."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.words import say
from sayso.server.context import RequestContext, redirect
from sayso.server.pages.rendering import render
from sayso.view.summary import time_left

_MOST_ENDED = 50


def grants(context: RequestContext) -> Response:
    """List what lets calls start, and what did."""
    found, now = context.review.grants(ended=True), clock.now()
    standing = [(grant, time_left(grant.until, now)) for grant in found if grant.ended is None]
    ended = [grant for grant in found if grant.ended is not None][:_MOST_ENDED]
    return render(context, "grants.html", standing=standing, ended=ended)


def act_on_grant(context: RequestContext) -> Response:
    """Revoke a grant, or agree to it."""
    grant_id, verb = context.http.path_params["grant_id"], context.http.path_params["verb"]
    verbs = {"revoke": context.review.revoke, "agree": context.review.agree}
    if verb not in verbs:
        raise HTTPException(404, say("there is no such thing to do"))
    try:
        verbs[verb](grant_id)
    except errors.GrantNotFoundError:
        raise HTTPException(404, say("there is no such grant; nothing was changed")) from None
    except errors.DecisionRefusedError as fault:
        raise HTTPException(403, str(fault)) from None
    return redirect(context.path("grants"))


def stop(context: RequestContext) -> Response:
    """Block every start."""
    context.review.stop(reason=context.field("note"))
    return redirect(context.path("grants"))


def go(context: RequestContext) -> Response:
    """Let calls start again."""
    context.review.go()
    return redirect(context.path("grants"))
