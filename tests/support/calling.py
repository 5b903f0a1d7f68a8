"""Programs that call the inbox's HTTP API in these tests, each with a token of its own.

The invariant: a client sends what a test says it sends, and no cookie or header that a test does not see.
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
    """Return what a program sends of a request when it asks."""
    return json.loads(AskedRequest.of_request(request).model_dump_json())


def bearer(store: Store, kind: TokenKind = "review", name: str = "ada", **options: Any) -> dict[str, str]:
    """Return the header of a new token."""
    return {"authorization": f"Bearer {Tokens(store).new(kind, name, **options)[1]}"}


def caller(app: Starlette, kind: TokenKind | None = "review", name: str = "ada", **options: Any) -> TestClient:
    """Return a client with a new token, or with none."""
    headers = {} if kind is None else bearer(app.state.settings.store, kind, name, **options)
    return TestClient(app, base_url=BASE, headers=headers)


def bought(amount: int = 5, **options: Any) -> str:
    """Ask for a purchase with a secret in it, and return the id of its request."""

    @sayso.gate(wait="raise", **options)
    def buy(amount: int, card_token: str = SECRET) -> str:
        return f"bought for {amount}"

    return held(buy, amount).confirmation_id


def code_of(answer: Any) -> tuple[int, str]:
    """Return the status of a refusal, and the code of its problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    told = answer.json()
    assert told["status"] == answer.status_code
    assert told["title"]
    assert told["detail"]
    assert told["type"].endswith(f"/{told['code']}")
    return answer.status_code, told["code"]
