"""The inbox of the demo, and the simulated reviewer, who decides through its HTTP API.

The inbox is served in the demo's own process, at an address of this machine alone, and ends with it. The invariant: the
simulated reviewer has nothing that another program could not have: the address, and a token that may review.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Literal

from sayso.cli.serve import LoginPage
from sayso.stores.base import Store
from sayso.view.summary import short

__all__ = ["SIMULATED", "Deed", "Inbox", "NotTakenError", "is_installed"]

SIMULATED = "simulated-reviewer"
_PATIENCE = 30
_LASTS = timedelta(hours=1)
_GRACE = 1
_NEEDS = ("jinja2", "sse_starlette", "starlette", "uvicorn")


@dataclass(frozen=True)
class Deed:
    """What the simulated reviewer does with a request.

    Attributes:
        verb: Which verb of the person's door.
        comment: Its words to the program.
        changes: New values for some arguments of what it approves.
        happened: What it says became of a call whose outcome is unknown.
    """

    verb: Literal["approve", "reject", "resolve"]
    comment: str | None = None
    changes: Mapping[str, str] = field(default_factory=dict[str, str])
    happened: bool | None = None

    @property
    def words(self) -> list[str]:
        """The same as options of the command line."""
        sets = [word for name, value in self.changes.items() for word in ("--set", f"{name}={value}")]
        outcome = [] if self.happened is None else ["--happened" if self.happened else "--did-not"]
        return [*sets, *outcome, *([] if self.comment is None else ["-m", self.comment])]

    def body(self, seen: str) -> dict[str, Any]:
        """The same as the body of a request to the API, about the call with the fingerprint that was looked at."""
        said: dict[str, Any] = {"changes": dict(self.changes)} if self.changes else {}
        said |= {} if self.happened is None else {"happened": self.happened}
        said |= {} if self.comment is None else {"comment": self.comment}
        return said if self.verb == "resolve" else said | {"seen": seen}


class NotTakenError(Exception):
    """The inbox did not take a decision; the message is its answer."""


def is_installed() -> bool:
    """Say whether there is what the inbox needs (extra `web`)."""
    return all(find_spec(name) is not None for name in _NEEDS)


class Inbox:
    """The inbox of one store, served until `close`."""

    def __init__(self, store: Store) -> None:
        import uvicorn

        from sayso.server import create_app

        self._app = create_app(store, hooks={})
        settings = uvicorn.Config(
            self._app, log_config=None, access_log=False, server_header=False, lifespan="off",
            timeout_graceful_shutdown=_GRACE,
        )  # fmt: skip
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by what it accepts
        self._host, self._port = self._listener.getsockname()
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()
        self._store, self._token = store, ""
        self._page: LoginPage | None = None

    def close(self) -> None:
        """End it, with the pages that are open."""
        if self._page is not None:
            self._page.remove()
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        self._listener.close()

    @property
    def base(self) -> str:
        """Where it is."""
        return f"http://{self._host}:{self._port}"

    def open(self, address: str) -> None:
        """Open an address that signs in in a browser; not by its command line, which others can read."""
        self._page = LoginPage(address, _LASTS.total_seconds())
        self._page.open()

    def address(self) -> str:
        """Return an address at which a person signs in, once."""
        from sayso.server import login_path

        return self.base + login_path(self._app)

    def take(self, deed: Deed, request_id: str) -> list[str]:
        """Decide as the simulated reviewer, over HTTP; return what was sent and answered, as lines to show.

        Raises:
            NotTakenError: It was refused.
        """
        path = f"/api/v1/requests/{request_id}"
        seen = self._ask("GET", path)["fingerprint"]
        sent = deed.body(seen)
        answer = self._ask("POST", f"{path}/{deed.verb}", sent)
        shown = json.dumps({name: value for name, value in sent.items() if name != "seen"})
        return [f"POST {self.base}/api/v1/requests/{short(request_id)}…/{deed.verb} {shown}", f"  {answer['state']}"]

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        if not self._token:
            from sayso.server.auth.tokens import Tokens

            _, self._token = Tokens(self._store).new("review", SIMULATED, lasts=_LASTS)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_PATIENCE)
        try:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            said: dict[str, Any] = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NotTakenError(f"the inbox did not answer: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise NotTakenError(f"the inbox answered {answer.status}: {said.get('detail')}")
        return said
