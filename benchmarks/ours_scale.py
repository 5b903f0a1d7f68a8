"""The server that `benchmarks.scale` measures: `python ours_scale.py FOLDER PORT` serves as `sayso serve` does.

It prints its port, a token of each kind and what a program sends when it asks, as one line of JSON. It runs with the
code of another checkout too, so it uses nothing that is new.
"""

from __future__ import annotations

import json
import socket
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uvicorn import Server

import sayso
from sayso.server import create_app
from sayso.server.auth.tokens import Tokens
from sayso.stores.http_messages import AskedRequest

# A checkout served beside this one may be older than the name of this module.
_NAME = "protection" if find_spec("sayso.server.protection") else "connections"
_protection: Any = import_module(f"sayso.server.{_NAME}")
_MEMO = "invoice 2026-114 of the supplier, as agreed on the phone. " * 10


def sample() -> object:
    """Return the message of a call that waits."""
    sayso.configure(store="memory:")

    @sayso.gate(wait="raise")
    def pay(amount: int, to: str, memo: str) -> str:
        raise NotImplementedError

    try:
        pay(30, "alice", _MEMO)
    except sayso.ConfirmationRequired as held:
        request = sayso.Review().get(held.confirmation_id)
        return json.loads(AskedRequest.of_request(request).model_dump_json())
    raise RuntimeError("the call was not held")


def decide(review: sayso.Review) -> None:
    """Approve all that waits."""
    while found := review.list(state="pending", limit=256).requests:
        works = [partial(_approve, one.id) for one in found]
        assert not any(isinstance(one, BaseException) for one in review.store.together(works))


def _approve(request_id: str, store: Any) -> None:
    sayso.Review(store, reviewer="ada", sweeps=False).approve(request_id)


def main() -> None:
    """Serve until killed, or with `decide` in place of a port, approve all that waits there."""
    folder = Path(sys.argv[1])
    review = sayso.Review(f"sqlite:///{folder / 'server.db'}", reviewer="ada")
    if sys.argv[2] == "decide":
        decide(review)
        return
    port = int(sys.argv[2])
    tokens, kept = Tokens(review.store), folder / "tokens.json"
    if not kept.exists():
        kept.write_text(json.dumps([tokens.new("ask", "agent")[1], tokens.new("review", "ada")[1]]))
    listener = socket.create_server(("127.0.0.1", port), backlog=2048, reuse_port=True)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    app = create_app(review.store, rate=None, stranger_rate=None, in_flight=256, open_per_token=10_000)
    settings = _protection.config(
        app, _protection.Limits().within(_protection.raise_file_limit()),
        log_config=None, access_log=False, server_header=False,
        proxy_headers=False, lifespan="off",
    )  # fmt: skip
    print(json.dumps([listener.getsockname()[1], *json.loads(kept.read_text()), sample()]), flush=True)
    Server(settings).run(sockets=[listener])


if __name__ == "__main__":
    main()
