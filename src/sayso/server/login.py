"""How a session begins and ends. A login link opens a page, and the page's button uses the link up.

So nothing that only looks at an address (a mail scanner, a browser that reads ahead) can spend it; the answer of an
OpenID provider is taken by a button, too (`sayso.server.trip`). The invariant: a session begins with an id of its own,
for somebody who may review here, and ends the one that the browser had.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso.model.reviewer import Reviewer
from sayso.server.api.limits import Rate
from sayso.server.api.problems import Problem
from sayso.server.page import render_outside
from sayso.server.visit import (
    Form,
    Settings,
    Visit,
    is_ours,
    not_admitted,
    path_to,
    read_form,
    see_other,
    session_of,
    set_cookie,
)

__all__ = ["begin", "begun", "end", "failed", "offer", "strangers_form"]


async def offer(http: Http) -> Response:
    """Show the button that begins a session."""
    token = http.query_params.get("token")
    if token is None:
        raise HTTPException(401)
    return render_outside(http, "login.html", token=token)


async def begin(http: Http) -> Response:
    """Begin a session by a link."""
    settings: Settings = http.app.state.settings
    token = (await strangers_form(http)).get("token", "")
    if not settings.sign_in.has_links:
        raise HTTPException(403, "this inbox takes no login links; nobody was signed in")
    person = await run_in_threadpool(settings.links.use, token)
    if person is not None:
        on_used: Callable[[str], None] | None = http.app.state.on_link_used
        if on_used is not None:
            on_used(token)
        return begun(http, person, path_to(http))
    if session_of(http) is not None:  # the link was used here: a second click, or the button after going back
        return see_other(path_to(http))
    raise failed(http, HTTPException(401))


async def strangers_form(http: Http) -> Form:
    """Return a form by which somebody signs in, who is not known yet: few from one address, and short.

    What was not sent by a page of ours is refused: it would sign somebody in as somebody else, unseen.
    """
    settings: Settings = http.app.state.settings
    rate: Rate = http.app.state.stranger_rate
    try:
        rate.count(f"form {settings.sender(http)}")  # first of all: nothing has been read
    except Problem as fault:
        raise HTTPException(429, fault.detail, fault.headers) from None
    if not is_ours(http):
        raise HTTPException(403, "this did not come from a page of this inbox; nobody was signed in")
    return await read_form(http, is_known=False)


def begun(http: Http, person: Reviewer, where: str) -> Response:
    """Begin the session of somebody who is known, and send the browser on."""
    settings: Settings = http.app.state.settings
    if not settings.sign_in.admits(person):
        raise not_admitted(person)
    name = settings.cookie(http)[0]
    before = settings.sessions.find(http.cookies.get(name))
    if before is not None:
        settings.sessions.end(before)
    response = see_other(where)
    set_cookie(http, response, "sayso", settings.sessions.begin(person).id)
    return response


def failed(http: Http, fault: HTTPException) -> HTTPException:
    """Count a failed attempt, and return what to answer: to come later, where there were too many from one address.

    What is right is never held up: else whoever shares an address with somebody could keep them out.
    """
    settings: Settings = http.app.state.settings
    origin = settings.sender(http)
    wait = settings.attempts.wait(origin)
    if not wait:
        settings.attempts.fail(origin)
        return fault
    said = f"too many attempts to sign in failed; nobody was signed in, try again in {wait} s"
    return HTTPException(429, said, {"retry-after": str(wait)})


def end(visit: Visit) -> Response:
    """End the session."""
    visit.settings.sessions.end(visit.session)
    response = render_outside(visit.http, "bye.html")
    set_cookie(visit.http, response, "sayso", None)
    return response
