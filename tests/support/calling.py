"""Clients that call the inbox's HTTP API in tests, each with its own token.

Invariant: a client sends no cookies or headers that the test does not show.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

import sayso
from sayso.model.request import Request
from sayso.server.auth.tokens import TokenKind, Tokens
from sayso.stores.base import Store
from sayso.stores.http_messages import AskedRequest
from tests.support.acting import held
from tests.support.browsing import BASE

__all__ = ["SECRET", "asked_message", "bearer", "bought", "caller", "code_of"]

SECRET = "hunter2"


def asked_message(request: Request) -> dict[str, Any]:
    """Return the message with which a program asks a request."""
    return json.loads(AskedRequest.of_request(request).model_dump_json())


def bearer(store: Store, kind: TokenKind = "review", name: str = "ada", **options: Any) -> dict[str, str]:
    """Create a token and return its authorization header."""
    return {"authorization": f"Bearer {Tokens(store).new(kind, name, **options)[1]}"}


def caller(app: Starlette, kind: TokenKind | None = "review", name: str = "ada", **options: Any) -> TestClient:
    """Return a client with a new token, or without one."""
    headers = {} if kind is None else bearer(app.state.settings.store, kind, name, **options)
    return TestClient(app, base_url=BASE, headers=headers)


def bought(amount: int = 5, **options: Any) -> str:
    """Ask for a purchase whose arguments include a secret, and return the id of its request."""

    @sayso.gate(wait="raise", **options)
    def buy(amount: int, card_token: str = SECRET) -> str:
        return f"bought for {amount}"

    return held(buy, amount).confirmation_id


def code_of(answer: Any) -> tuple[int, str]:
    """Return the status and the problem code of an error response."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    told = answer.json()
    assert told["status"] == answer.status_code
    assert told["title"]
    assert told["detail"]
    assert told["type"].endswith(f"/{told['code']}")
    return answer.status_code, told["code"]
