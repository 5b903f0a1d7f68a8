"""What somebody costs a server who is not known to it: few forms, short ones, soon, and no thread of the loop's time.

Whole connections are in `test_connections`. The invariant: a body is read after it is known who sends it, or as little
of it as a sign-in needs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette

from sayso.model.reviewer import Reviewer
from sayso.server import context, create_app, login_path, protection
from sayso.server.api import endpoint
from sayso.server.api.problems import Problem
from sayso.stores.base import Store
from tests.support.browsing import BASE, Browser, browser
from tests.support.calling import bearer, caller, code_of

FORMS = ["/login", "/login/openid", "/login/openid/go"]
HOST = BASE.removeprefix("http://").encode()


class Sender:
    """Sends a body piece by piece, as the server asks for it.

    Attributes:
        read: How many bytes were asked for.
        status: Of the answer.
    """

    def __init__(self, app: Starlette, path: str, pieces: list[bytes], **headers: str) -> None:
        self._app, self._pieces = app, pieces
        self.read, self.status = 0, 0
        given = {"host": HOST.decode(), "origin": BASE, **headers}
        self._scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "scheme": "http", "server": ("localhost", 8600), "client": ("203.0.113.7", 50_000),
            "http_version": "1.1",
            "headers": [(name.replace("_", "-").encode(), said.encode()) for name, said in given.items()],
        }  # fmt: skip

    async def _receive(self) -> dict[str, Any]:
        if not self._pieces:
            await asyncio.Event().wait()  # and never goes on
        piece = self._pieces.pop(0)
        self.read += len(piece)
        return {"type": "http.request", "body": piece, "more_body": True}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    def answered(self) -> int:
        async def answer() -> None:
            await asyncio.wait_for(self._app(self._scope, self._receive, self._send), 60)  # type: ignore[arg-type]

        asyncio.run(answer())
        return self.status


FORM = {"content_type": "application/x-www-form-urlencoded"}


@pytest.fixture
def app(memory: Store) -> Starlette:
    return create_app(memory)


def test_a_stranger_sends_a_short_form_or_none(app: Starlette) -> None:
    long = Sender(app, "/login", [b"token=" + b"%41" * 2_000] * 1_000, **FORM)
    assert long.answered() == 413
    assert long.read <= 16_000 + 6_006
    declared = Sender(app, "/login", [b"x" * 100], content_length="8000000", **FORM)
    assert (declared.answered(), declared.read) == (413, 0)


def test_a_stranger_sends_a_form_soon_or_none(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_TIMEOUT_OF_STRANGER", 0.01)
    assert Sender(app, "/login", [b"token="], **FORM).answered() == 408


def test_a_stranger_who_sends_many_forms_is_refused_before_one_is_read(memory: Store) -> None:
    app = create_app(memory, stranger_rate="2/hour")
    link = login_path(app, Reviewer("ada")).partition("token=")[2]
    for _ in range(2):
        assert Browser(app, base_url=BASE, client=("203.0.113.7", 1)).submit("/login", token="x").status_code == 401
    refused = Sender(app, "/login", [b"token=" + link.encode()], **FORM)
    assert (refused.answered(), refused.read) == (429, 0)
    other = Browser(app, base_url=BASE, client=("203.0.113.8", 1))
    assert other.submit("/login", token=link).status_code == 200


def test_who_asked_once_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protection, "_MOST_KNOWN", 3)
    rate = protection.Rate("1/minute")
    known: dict[str, Any] = rate._storage.events
    for who in ("a", "b", "c"):
        rate.count(who)
    for who in list(known)[:2]:
        known[who] = []  # as the library leaves it after the minute
    rate.count("d")
    assert len(known) == 2
    for who in ("c", "d"):
        with pytest.raises(Problem):
            rate.count(who)


def test_a_port_that_the_scheme_implies_is_none_of_the_origin(memory: Store) -> None:
    for base, origin in [("https://inbox.example:443", "https://inbox.example"), ("http://u@a.b:80/x", "http://a.b")]:
        app = create_app(memory, base_url=base)
        client = Browser(app, base_url=origin, follow_redirects=False)
        token = login_path(app, Reviewer("ada")).partition("=")[2]
        for sender, status in [("https://evil.example", 403), (f"{origin}:1", 403), (origin, 303)]:
            assert client.post("/login", data={"token": token}, headers={"origin": sender}).status_code == status


@pytest.mark.parametrize("path", ["/", "/settings/test", "/bulk", f"/r/rq_{'0' * 32}/approve", "/logout"])
def test_no_form_of_a_page_is_read_without_a_session(app: Starlette, path: str) -> None:
    sent = Sender(app, path, [b"csrf=1"], **FORM)
    assert sent.answered() in {401, 405}
    assert sent.read == 0


def test_no_body_is_read_before_the_token_is_looked_at(app: Starlette) -> None:
    for headers in ({}, {"authorization": "Bearer sst_x"}):
        sent = Sender(app, "/api/v1/program/ask", [b"{}"], content_type="application/json", **headers)
        assert (sent.answered(), sent.read) == (401, 0)


def test_a_body_that_does_not_come_is_not_waited_for(
    app: Starlette, memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protection, "_BODY_TIMEOUT", 0.01)
    headers = bearer(memory, "ask", "bot")
    sent = Sender(app, "/api/v1/program/ask", [b"{"], content_type="application/json", **headers)
    assert sent.answered() == 408


def in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_large_bodies_of_those_who_are_known_are_parsed_beside_the_loop(
    app: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[tuple[str, bool]] = []

    def seen(name: str, real: Any) -> Any:
        def parse(text: bytes) -> Any:
            where.append((name, in_a_loop()))
            return real(text)

        return parse

    monkeypatch.setattr(context, "_parse_form", seen("form", context._parse_form))
    monkeypatch.setattr(endpoint, "parsed", seen("json", endpoint.parsed))
    page, program = browser(app), caller(app, "ask", "bot")
    where.clear()
    page.submit(f"/r/rq_{'0' * 32}/approve", note="x" * 100_000)
    answer = program.post("/api/v1/program/sweep", json={"x": "y" * 100_000})
    assert code_of(answer) == (422, "invalid_input")
    assert where == [("form", False), ("json", False)]
