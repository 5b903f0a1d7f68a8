"""Looking after tokens: list them, and revoke one. They are made on the server's machine only (`sayso token new`).

So an admin's token that got out cannot make itself people. The invariant: no answer holds a secret.
"""

from __future__ import annotations

from sayso.server.api import wire
from sayso.server.api.operation import Asked, Operation
from sayso.server.api.problem import Problem
from sayso.server.token import Tokens

__all__ = ["OPERATIONS", "revoke", "tokens"]


def tokens(asked: Asked) -> wire.Tokens:
    """List all."""
    return wire.Tokens(tokens=list(map(wire.Token.of, Tokens(asked.settings.store).all())))


def revoke(asked: Asked) -> wire.Token:
    """End one."""
    who = asked.principal
    token = Tokens(asked.settings.store).revoke(asked.path("token_id"), by=who.reviewer.identity, channel=who.channel)
    if token is None:
        raise Problem("not_found", "there is no token of this id; nothing was changed")
    return wire.Token.of(token)


OPERATIONS = (
    Operation("GET", "/v1/tokens", "List tokens", tokens, kinds=("admin",), answer=wire.Tokens),
    Operation(
        "DELETE", "/v1/tokens/{token_id}", "Revoke a token, at once", revoke, kinds=("admin",), answer=wire.Token,
        problems=("not_found",),
    ),
)  # fmt: skip
