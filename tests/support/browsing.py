"""A browser without scripts for tests of the inbox: it keeps cookies, reads forms and submits them like a page.

Invariant: it sends only the page's own values and the changes that a test makes.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sayso.model.reviewer import Reviewer
from sayso.server import login_path
from sayso.server.auth.sessions import Session

__all__ = ["BASE", "Browser", "Here", "browser", "fields_of", "session_at", "text_of"]

BASE = "http://localhost:8600"
_SENT = re.compile(r"csrf|seen|start|note|at_most:.*|f\d.*")


class Here(httpx2.HTTPTransport):
    """Resolves NAME.localhost to this machine, as browsers do, but not every system."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        here = httpx2.Request(
            request.method, request.url.copy_with(host="127.0.0.1"), headers=request.headers, stream=request.stream,
            extensions=request.extensions,
        )  # fmt: skip
        return super().handle_request(here)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.form: str | None = None
        self._area: str | None = None
        self._select: str | None = None
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "form":
            self.form = "decide" if "data-decide" in given else "other"
        if not name:
            if tag == "option" and self._select and (self._select not in self.fields or "selected" in given):
                self.fields[self._select] = given.get("value", "")
            return
        if tag == "input" and given.get("type") not in {"checkbox", "radio"}:
            self.fields.setdefault(name, given.get("value", ""))
        elif tag == "textarea":
            self._area = name
            self.fields[name] = ""
        elif tag == "select":
            self._select = name

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            self.fields[self._area] = self.fields[self._area].removeprefix("\n")
            self._area = None
        elif tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._area is not None:
            self.fields[self._area] += data


def fields_of(text: str) -> dict[str, str]:
    """Return the values of a page's form fields, by name."""
    page = _Page()
    page.feed(text)
    return page.fields


def text_of(text: str) -> str:
    """Return the visible text of a page."""
    page = _Page()
    page.feed(text)
    return "".join(page.words)


class Browser(TestClient):
    """A browser that submits forms of the pages that it has opened.

    Args:
        root: The path below which the inbox is mounted.
    """

    def __init__(self, app: Any, *, root: str = "", **options: Any) -> None:
        super().__init__(app, **options)
        self._root = root

    def submit(self, page: str, **fields: str) -> Any:
        """Submit a form, as a browser would from one of our pages."""
        crlf = {name: value.replace("\n", "\r\n") for name, value in fields.items()}
        return self.post(f"{self._root}{page}", data=crlf, headers={"origin": BASE})

    def decide(self, request_id: str, verb: str, **changed: str) -> Any:
        """Open a request's page, change some fields, and press a button."""
        fields = fields_of(self.get(f"{self._root}/r/{request_id}").text)
        keep = {name: value for name, value in fields.items() if _SENT.fullmatch(name)}
        return self.submit(f"/r/{request_id}/{verb}", **{**keep, **changed})


def browser(app: Starlette, name: str = "ada", *, roles: Any = (), raises: bool = True) -> Browser:
    """Return a browser with a signed-in person."""
    client = Browser(app, base_url=BASE, raise_server_exceptions=raises)
    token = login_path(app, Reviewer(name, roles=roles)).partition("token=")[2]
    assert client.post("/login", data={"token": token}, headers={"origin": BASE}).status_code == 200
    return client


def session_at(app: Starlette, client: TestClient) -> Session:
    """Return the session of the person who is signed in with a browser."""
    session = app.state.settings.sessions.find(client.cookies["sayso-8600"])
    assert session is not None
    return session
