"""A provider on 127.0.0.1 that speaks OpenAI's two protocols, chat completions and responses, plain and streamed.

Each request takes the next of `answers`; what was asked is kept in `asked`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What the provider says next: text and calls, or a status; and how it misbehaves."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)  # name and arguments as JSON text
    thinking: str = ""  # encrypted reasoning, that has to come back
    status: int = 200
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    breaks: str = ""  # "reset": the connection dies in mid-stream; "end": it ends there as if all were said
    finish: str = "stop"


class Provider:
    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.closed = threading.Semaphore(0)  # released once for each connection that ends
        self.url = ""


def chat_chunks(answer: Answer) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5", "choices": [choice],
        }  # fmt: skip

    yield chunk({"role": "assistant", "content": ""})
    for word in answer.text.split(" ") if answer.text else ():
        yield chunk({"content": word + " "})
    for number, (name, arguments) in enumerate(answer.calls):
        function = {"name": name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": number, "id": f"c{number}", "type": "function", "function": function}]})
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            yield chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if answer.calls else answer.finish)
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    head = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    yield head | {"choices": [], "usage": usage}


def chat_whole(answer: Answer) -> dict[str, Any]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(answer.calls)
    ]
    message = {"role": "assistant", "content": answer.text or None, "tool_calls": calls or None}
    return {
        "id": "chat_1", "object": "chat.completion", "created": 1, "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else answer.finish}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }  # fmt: skip


def response_items(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thinking:
        items.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": answer.thinking})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        items.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        )  # fmt: skip
    for n, (name, arguments) in enumerate(answer.calls):
        items.append(
            {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": name, "arguments": arguments,
             "status": "completed"}
        )  # fmt: skip
    return items


def response_whole(answer: Answer, items: list[dict[str, Any]], status: str) -> dict[str, Any]:
    usage = {
        "input_tokens": 11, "output_tokens": 7, "total_tokens": 18,
        "input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    incomplete = {"reason": answer.finish} if status == "incomplete" else None
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "status": status, "error": None,
        "incomplete_details": incomplete, "instructions": None, "metadata": {}, "output": items, "tools": [],
        "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "top_p": 1.0,
        "usage": usage if status != "in_progress" else None,
    }  # fmt: skip


def response_events(answer: Answer) -> Iterator[dict[str, Any]]:
    items = response_items(answer)
    yield {"type": "response.created", "response": response_whole(answer, [], "in_progress")}
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield {
                "type": "response.output_item.added",
                **place,
                "item": item | {"content": [], "status": "in_progress"},
            }
            yield {"type": "response.content_part.added", **place, "content_index": 0, "part": empty}
            for word in item["content"][0]["text"].split(" "):
                delta = {"content_index": 0, "delta": word + " ", "logprobs": []}
                yield {"type": "response.output_text.delta", **place, **delta}
        elif item["type"] == "function_call":
            yield {"type": "response.output_item.added", **place, "item": item | {"arguments": ""}}
            half = len(item["arguments"]) // 2
            for piece in (item["arguments"][:half], item["arguments"][half:]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
        else:
            yield {"type": "response.output_item.added", **place, "item": item}
        yield {"type": "response.output_item.done", **place, "item": item}
    status = "completed" if answer.finish == "stop" else "incomplete"
    yield {"type": f"response.{status}", "response": response_whole(answer, items, status)}


class Handler(BaseHTTPRequestHandler):
    provider: Provider
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def finish(self) -> None:
        self.provider.closed.release()
        with suppress(OSError):  # whoever asked has left in mid-stream
            super().finish()

    def do_POST(self) -> None:  # the standard library's name
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.provider.asked.append(asked | {"path": self.path})
        self.provider.keys.append(self.headers["Authorization"])
        answer = self.provider.answers.pop(0)
        if answer.status != 200:
            self.whole(answer, answer.body or {"error": {"message": "as told", "type": "t", "code": "c"}})
        elif asked.get("stream"):
            self.streamed(answer, chat="chat" in self.path)
        elif "chat" in self.path:
            self.whole(answer, chat_whole(answer))
        else:
            self.whole(answer, response_whole(answer, response_items(answer), "completed"))

    def whole(self, answer: Answer, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(answer.status)
        # Without this header the client tries again by itself, and the test would wait for it.
        headers = {"Content-Type": "application/json", "Content-Length": str(len(text)), "x-should-retry": "false"}
        for name, value in (headers | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def streamed(self, answer: Answer, *, chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        if answer.breaks == "end":
            self.send_header("Connection", "close")
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = list(chat_chunks(answer) if chat else response_events(answer))
        if answer.breaks:
            # All but the last third, so that the break falls into the middle of what is said.
            events = events[: len(events) * 2 // 3]
        for number, event in enumerate(events):
            head = "" if chat else f"event: {event['type']}\n"
            self.piece(answer, f"{head}data: {json.dumps(event | {'sequence_number': number})}\n\n")
        if answer.breaks:
            self.wfile.flush()
            self.close_connection = True
            return
        if chat:
            self.piece(answer, "data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def piece(self, answer: Answer, text: str) -> None:
        data = text.encode()
        self.wfile.write(data if answer.breaks == "end" else b"%x\r\n%s\r\n" % (len(data), data))


@contextmanager
def serving() -> Iterator[Provider]:
    """Serve on a free port until the block ends."""
    provider = Provider()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"provider": provider}))
    server.daemon_threads = True
    provider.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
