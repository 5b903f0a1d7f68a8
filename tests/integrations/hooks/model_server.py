"""A model provider on this machine that answers each turn as the test scripts it: OpenAI responses, Gemini content."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

__all__ = ["Call", "Turn", "model"]


class Call(NamedTuple):
    """A tool call of the model."""

    name: str
    arguments: dict[str, Any]


Turn = Callable[[str], Call | str]
"""What the model answers to the text of a request, the conversation so far; a text ends the agent's turn."""


@contextmanager
def model(turns: Sequence[Turn]) -> Generator[str]:
    """Serve a model that takes these turns, and give its address; after the last one it says `done`."""
    left = list(turns)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base
            pass

        def do_GET(self) -> None:
            self._send("application/json", '{"data": [], "models": []}')

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            if not ("/responses" in self.path or "treamGenerateContent" in self.path):
                self._send("application/json", "{}")
                return
            number = len(turns) - len(left)
            answer = left.pop(0)(text) if left else "done"
            events = _gemini(answer) if "treamGenerateContent" in self.path else _openai(number, answer)
            self._send("text/event-stream", "".join(f"data: {json.dumps(event)}\n\n" for event in events))

        def _send(self, kind: str, body: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _openai(number: int, answer: Call | str) -> list[dict[str, Any]]:
    if isinstance(answer, str):
        item: dict[str, Any] = {"type": "message", "role": "assistant", "id": f"msg_{number}"}
        item["content"] = [{"type": "output_text", "text": answer}]
    else:
        item = {
            "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": answer.name,
            "arguments": json.dumps(answer.arguments),
        }  # fmt: skip
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None}
    response = {"id": f"resp_{number}"}
    return [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "usage": {**usage, "total_tokens": 2}}},
    ]


def _gemini(answer: Call | str) -> list[dict[str, Any]]:
    is_text = isinstance(answer, str)
    part = {"text": answer} if is_text else {"functionCall": {"name": answer.name, "args": answer.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return [{"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2}}]
