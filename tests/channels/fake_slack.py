"""A workspace of Slack on this machine, for tests: its Web API over HTTP, and Socket Mode over a WebSocket.

It speaks to the real client of slack-sdk: it opens connections for the right token alone, keeps messages and modals,
refuses what Slack refuses (texts that are too long, ids of blocks that stand twice, an update of a message that is not
there), and sends what people press as envelopes that want to be acknowledged. The invariant: what a test reads of a
message or a modal is what came over the wire.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

__all__ = ["APP", "BOT", "CHANNEL", "TEAM", "FakeSlack", "fake_slack", "texts_in"]

BOT, APP, TEAM, CHANNEL = "xoxb-1-hunter2", "xapp-1-hunter2", "T1", "C1"
PATIENCE = 30.0
_LIMITS = {
    "section": 3_000, "header": 150, "context": 2_000, "button": 75, "radio": 75, "input": 2_000, "title": 24,
    "submit": 24, "close": 24,
}  # fmt: skip


class _Refused(Exception):
    """What Slack answers with `ok: false`."""


@dataclass
class FakeSlack:
    """One workspace, with one channel and one app."""

    url: str = ""
    socket_url: str = ""
    bot: str = BOT
    team: str = TEAM
    fails: list[str] = field(default_factory=list)
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    ephemeral: list[dict[str, Any]] = field(default_factory=list)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    opened: int = 0
    acks: dict[str, queue.Queue[dict[str, Any]]] = field(default_factory=dict)
    _lines: list[ServerConnection] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))

    # -- what a test does --------------------------------------------------------------------------------------

    def wait(self, fact: Any) -> Any:
        """Wait until something is so."""
        with self._changed:
            found = self._changed.wait_for(fact, PATIENCE)
        assert found, "Slack waits in vain"
        return found

    def connected(self, count: int = 1) -> None:
        """Wait until the app has opened its connection so many times, and that one stands."""
        self.wait(lambda: self.opened >= count and self._lines)

    def send(self, payload: dict[str, Any], envelope_id: str | None = None, times: int = 1) -> dict[str, Any]:
        """Send an envelope, once or several times, and return what its last acknowledgement carries."""
        envelope_id = envelope_id or f"env-{next(self._numbers)}"
        acks = self.acks.setdefault(envelope_id, queue.Queue())
        text = json.dumps({
            "type": "interactive", "envelope_id": envelope_id, "payload": payload, "accepts_response_payload": True,
        })  # fmt: skip
        for _ in range(times):
            self._lines[-1].send(text)
        for _ in range(times - 1):
            acks.get(timeout=PATIENCE)
        return acks.get(timeout=PATIENCE).get("payload", {})

    def press(self, user: str, message: dict[str, Any], *, team: str | None = None, times: int = 1) -> str:
        """Press Review, and return the trigger by which a modal can be opened."""
        trigger, team = f"trigger-{next(self._numbers)}", team or self.team
        actions = [one for block in message["blocks"] for one in block.get("elements", []) if "action_id" in one]
        action = next(one for one in actions if one["action_id"] == "sayso_review")
        self.send({
            "type": "block_actions", "user": {"id": user, "team_id": team}, "team": {"id": team},
            "trigger_id": trigger, "channel": {"id": CHANNEL}, "actions": [action],
        }, times=times)  # fmt: skip
        return trigger

    def opens(self, user: str, message: dict[str, Any]) -> dict[str, Any]:
        """Press Review, and return the modal that opens."""
        trigger = self.press(user, message)
        return self.wait(lambda: self.views.get(trigger))

    def submit(
        self, user: str, view: dict[str, Any], verb: str | None, *, team: str | None = None,
        envelope_id: str | None = None, times: int = 1, **texts: str,
    ) -> dict[str, Any]:  # fmt: skip
        """Press Decide in a modal, with some texts filled in, and return what Slack is answered."""
        values: dict[str, Any] = {}
        for block in view["blocks"]:
            if block["type"] != "input":
                continue
            element, name = block["element"], block["block_id"]
            if element["type"] == "radio_buttons":
                option = next((one for one in element["options"] if one["value"] == verb), None)
                values[name] = {element["action_id"]: {"type": "radio_buttons", "selected_option": option}}
            elif element["type"] == "checkboxes":
                chosen = element["options"] if texts.pop(name, "") else []
                values[name] = {element["action_id"]: {"type": "checkboxes", "selected_options": chosen}}
            else:
                text = texts.pop(name.replace("-", "_"), element.get("initial_value"))
                values[name] = {element["action_id"]: {"type": "plain_text_input", "value": text}}
        assert not texts, f"the modal has no {texts}"
        team = team or self.team
        return self.send({
            "type": "view_submission", "user": {"id": user, "team_id": team}, "team": {"id": team},
            "view": {**view, "state": {"values": values}},
        }, envelope_id, times)  # fmt: skip

    def drop(self) -> None:
        """Ask the app to connect anew, as Slack does every few hours."""
        self._lines[-1].send(json.dumps({"type": "disconnect", "reason": "refresh_requested"}))

    def cut(self) -> None:
        """Close the connection without a word."""
        self._lines[-1].close()

    # -- what the app is answered ------------------------------------------------------------------------------

    def answer(self, method: str, token: str, said: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            self.calls.append(method)
            self._changed.notify_all()
            if self.fails:
                return {"ok": False, "error": self.fails.pop(0)}
            if token != (APP if method == "apps.connections.open" else self.bot):
                return {"ok": False, "error": "invalid_auth"}
            try:
                return {"ok": True, **getattr(self, "_" + method.replace(".", "_").casefold())(said)}
            except _Refused as refused:
                return {"ok": False, "error": str(refused)}

    def _auth_test(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"team_id": self.team, "user_id": "U0"}

    def _apps_connections_open(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"url": f"{self.socket_url}/link/?ticket={next(self._numbers)}"}

    def _chat_postmessage(self, said: dict[str, Any]) -> dict[str, Any]:
        if said["channel"] != CHANNEL:
            raise _Refused("channel_not_found")
        _check_blocks(said["blocks"])
        ts = f"1700000000.{next(self._numbers):06}"
        self.messages[ts] = said
        return {"channel": CHANNEL, "ts": ts}

    def _chat_update(self, said: dict[str, Any]) -> dict[str, Any]:
        if said["ts"] not in self.messages:
            raise _Refused("message_not_found")
        _check_blocks(said["blocks"])
        self.messages[said["ts"]] = said
        return {"channel": CHANNEL, "ts": said["ts"]}

    def _chat_postephemeral(self, said: dict[str, Any]) -> dict[str, Any]:
        _check_blocks(said["blocks"])
        self.ephemeral.append(said)
        return {}

    def _views_open(self, said: dict[str, Any]) -> dict[str, Any]:
        if said["trigger_id"] in self.views:
            raise _Refused("exchanged_trigger_id")
        view = {**said["view"], "id": f"V{next(self._numbers)}"}
        _check_view(view)
        self.views[said["trigger_id"]] = self.views[view["id"]] = view
        return {"view": view}

    def _views_update(self, said: dict[str, Any]) -> dict[str, Any]:
        _check_view(said["view"])
        self.views[said["view_id"]] = said["view"]
        return {}

    # -- Socket Mode -------------------------------------------------------------------------------------------

    def line(self, line: ServerConnection) -> None:
        """Speak to one connection until it ends."""
        line.send(json.dumps({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}}))
        with self._changed:
            self._lines.append(line)
            self.opened += 1
            self._changed.notify_all()
        try:
            for text in line:
                said = json.loads(text)
                self.acks.setdefault(said["envelope_id"], queue.Queue()).put(said)
        except ConnectionClosed:
            pass
        finally:
            with self._changed:
                self._lines.remove(line)
                self._changed.notify_all()


def _check_view(view: dict[str, Any]) -> None:
    for name in ("title", "submit", "close"):
        if name in view and len(view[name]["text"]) > _LIMITS[name]:
            raise _Refused("invalid_arguments")
    ids = [block["block_id"] for block in view["blocks"] if "block_id" in block]
    if len(view["blocks"]) > 100 or len(ids) != len(set(ids)) or len(view.get("private_metadata", "")) > 3_000:
        raise _Refused("invalid_arguments")
    _check_blocks(view["blocks"])


def _check_blocks(blocks: list[dict[str, Any]]) -> None:
    for block in blocks:
        room = _LIMITS.get(block["type"], 75)
        for one in [block, *block.get("elements", []), *block.get("element", {}).get("options", [])]:
            text = one if one.get("type") == "plain_text" else one.get("text") or one.get("label")
            if isinstance(text, dict) and not 0 < len(text["text"]) <= (75 if one.get("type") == "button" else room):
                raise _Refused("invalid_blocks")


def texts_in(thing: Any) -> list[dict[str, Any]]:
    """Return every text object of a message or a modal."""
    if isinstance(thing, list):
        return [text for item in thing for text in texts_in(item)]
    if not isinstance(thing, dict):
        return []
    here = [thing] if thing.get("type") in {"plain_text", "mrkdwn"} else []
    return here + [text for item in thing.values() for text in texts_in(item)]


@contextmanager
def fake_slack() -> Iterator[FakeSlack]:
    """Run a workspace."""
    slack = FakeSlack()

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            is_json = self.headers.get("content-type", "").startswith("application/json")
            said = json.loads(body or b"{}") if is_json else {k: v[0] for k, v in parse_qs(body.decode()).items()}
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            answer = json.dumps(slack.answer(urlsplit(self.path).path.rpartition("/")[2], token, said)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    sockets: Server = serve(slack.line, "127.0.0.1", 0, ping_interval=None, close_timeout=0.2)
    slack.url = f"http://127.0.0.1:{api.server_address[1]}/api/"
    slack.socket_url = f"ws://127.0.0.1:{sockets.socket.getsockname()[1]}"
    threads = [
        threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.02}),
        threading.Thread(target=sockets.serve_forever),
    ]
    for thread in threads:
        thread.start()
    try:
        yield slack
    finally:
        api.shutdown()
        sockets.shutdown()
        for thread in threads:
            thread.join()
        api.server_close()
