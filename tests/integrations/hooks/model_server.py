"""A model provider on this machine that answers each turn as the test scripts it.

It speaks as OpenAI (responses), Gemini (content) and Anthropic (messages) do, as far as the hosts need it.
"""

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
            provider = next((make for part, make in _PROVIDERS.items() if part in self.path), None)
            if provider is None:
                self._send("application/json", '{"input_tokens": 1}')
                return
            is_aside = provider is _anthropic and '"name":"Bash"' not in text  # such as a title for the session
            number = len(turns) - len(left)
            answer = "done" if is_aside or not left else left.pop(0)(text)
            events = provider(number, answer)
            # Anthropic's events have names in front of them; Gemini CLI takes none.
            names = (f"event: {event['type']}\n" if provider is _anthropic else "" for event in events)
            lines = (f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(names, events, strict=True))
            self._send("text/event-stream", "".join(lines))

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


def _gemini(_: int, answer: Call | str) -> list[dict[str, Any]]:
    is_text = isinstance(answer, str)
    part = {"text": answer} if is_text else {"functionCall": {"name": answer.name, "args": answer.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return [{"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2}}]


def _anthropic(number: int, answer: Call | str) -> list[dict[str, Any]]:
    if isinstance(answer, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta, why = {"type": "text_delta", "text": answer}, "end_turn"
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": answer.name, "input": {}}
        delta, why = {"type": "input_json_delta", "partial_json": json.dumps(answer.arguments)}, "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


_PROVIDERS = {"/responses": _openai, "treamGenerateContent": _gemini, "/v1/messages?": _anthropic}
