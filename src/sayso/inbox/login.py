"""How a session begins and ends. A link that the terminal printed opens a page; the page's button uses the link up.

So nothing that only looks at an address (a mail scanner, a browser that reads ahead) can spend it. The invariant: one
link, one session.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso.inbox.page import render_outside
from sayso.inbox.visit import Settings, Visit, is_ours, path_to, read_form, see_other, session_of, signed_in

__all__ = ["begin", "end", "offer"]


async def offer(http: Http) -> Response:
    """Show the button that begins a session."""
    return render_outside(http, "login.html", token=http.query_params.get("token", ""))


async def begin(http: Http) -> Response:
    """Begin a session by a link."""
    if not is_ours(http):
        raise HTTPException(403, "this did not come from a page of this inbox")
    form = await read_form(http)
    settings: Settings = http.app.state.settings
    session = settings.sessions.begin_by(form.get("token", ""))
    if session is not None:
        return signed_in(http, session, see_other(path_to(http)))
    if session_of(http) is not None:  # the link was used here: a second click, or the button after going back
        return see_other(path_to(http))
    raise HTTPException(401)


def end(visit: Visit) -> Response:
    """End the session."""
    visit.settings.sessions.end(visit.session)
    response = render_outside(visit.http, "bye.html")
    name, is_https = visit.settings.cookie(visit.http)
    response.delete_cookie(name, path="/", httponly=True, samesite="lax", secure=is_https)
    return response
