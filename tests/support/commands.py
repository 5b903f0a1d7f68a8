"""Runs the command line as another process would, and creates the requests that it decides.

`sayso(...)` runs a command like `python -m sayso` and returns its exit code and output. `ask_...` leave requests in the
configured store, like a program that has ended. Invariant: all output is checked for unescaped characters.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

import sayso as package
from sayso import config
from sayso.model.ids import new_token
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request
from tests.support import warm
from tests.support.acting import held

__all__ = ["HIDDEN", "Done", "ask_question", "ask_refund", "get", "refund", "sayso", "start"]

HIDDEN = "\x1b[31m\u202e\u200b\x9b\U000e0041\u3164"


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def sayso(*words: str, stdin: str = "", **environment: str) -> Done:
    code, out, err = warm.run(["-m", "sayso", *words], {**os.environ, **environment}, stdin.encode())
    result = Done(code, out.decode(), err.decode())
    assert "Traceback" not in result.err, result.err
    assert not any(one in result.out + result.err for one in HIDDEN if one not in "[31m"), "something came out raw"
    return result


@package.gate(wait="raise", risk="high", prompt="A refund above the limit.")
def refund(
    order_id: str, amount: Annotated[float, Field(le=500)] = 320.0, reason: str = "", api_key: str = "hunter2-hunter2"
) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


def ask_refund(order_id: str = "A-4721", run: str = "order-4721", **arguments: Any) -> Request:
    """Make a call that waits, and return its request."""
    with package.run(run):
        return get(held(refund, order_id, **arguments).confirmation_id)


def ask_question(text: str = "Which warehouse?", run: str = "order-4721", **options: Any) -> Request:
    with package.run(run):
        return get(held(package.ask, text, wait="raise", **options).confirmation_id)


def get(request_id: str) -> Request:
    return config.default_store().get(request_id)


def start(request: Request, outcome: Outcome | None = None) -> Request:
    """Start an approved call as a program would, and record its outcome if one is given."""
    store, token = config.default_store(), new_token()
    after = store.start(request.id, token)
    return after if outcome is None else store.finish(request.id, token, outcome)
