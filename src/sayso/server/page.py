"""How a page is made: one Jinja environment, in which everything is escaped for HTML, and what every page gets.

Texts from programs and people are escaped by `sayso.view` before they come to a template, or there with the
filter `seen`; Jinja escapes again, for HTML. The invariant: a name that a template misspells is an error, not a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request as Http
from starlette.responses import HTMLResponse

from sayso import __version__, clock
from sayso.model.request import State
from sayso.model.text import escape
from sayso.server.visit import Visit, path_to
from sayso.stores.base import Filter
from sayso.view.summary import name_of

__all__ = ["fragment", "pending_count", "render", "render_outside", "waiting"]

_PENDING = frozenset({State.PENDING})


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("sayso.server"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    filters = cast("dict[str, Callable[[str], str]]", made.filters)  # pyright: ignore[reportUnknownMemberType]
    filters |= {"seen": escape, "block": _block}
    return made


def _block(text: str) -> str:
    return escape(text, block=True)


def waiting() -> Filter:
    """Return the filter of what waits now; what has reached its end does not, though nobody wrote that down yet."""
    return Filter(states=_PENDING, at=clock.now())


def pending_count(visit: Visit) -> int:
    """Return how many requests wait: in the title, the menu and the list, all from one count."""
    return visit.settings.store.count(waiting())


def render(visit: Visit, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page for somebody who is known."""

    def path(*steps: str, **asked: str) -> str:
        return visit.path(*steps, **asked)

    context = {
        "path": path, "csrf": visit.session.csrf, "me": name_of(visit.reviewer.identity),
        "pending": pending_count(visit), "version": __version__, "has_logout": visit.settings.who is None, **context,
    }  # fmt: skip
    return HTMLResponse(_environment().get_template(template).render(context), status_code=status)


def render_outside(http: Http, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page that shows nothing of any request, for whoever it is."""

    def path(*steps: str, **asked: str) -> str:
        return path_to(http, *steps, **asked)

    context = {"path": path, "version": __version__, **context}
    return HTMLResponse(_environment().get_template(template).render(context), status_code=status)


def fragment(template: str, **context: Any) -> str:
    """Return a part of a page, for an event."""
    return _environment().get_template(template).render(context)
