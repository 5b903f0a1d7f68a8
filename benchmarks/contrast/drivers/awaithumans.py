"""awaithumans: `await_human` as in its quick start, with its own server, in which the reviewer completes the task.

A program that goes on later makes the same call again: its default key, of the task and its payload, finds the task.

    python -m benchmarks.contrast.drivers.awaithumans FOLDER DAYS    its server, that many days from now
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from awaithumans import await_human
from pydantic import BaseModel

from benchmarks.contrast.subject import Call, NotApplicable, Subject

TOKEN = "a token of the program and of the reviewer"
GRACE = 1.0


class Payment(BaseModel):
    tool: str
    order_id: str
    amount: float


class Decision(BaseModel):
    approved: bool


class Awaithumans(Subject):
    server_module = "benchmarks.contrast.drivers.awaithumans"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{(self.folder / 'port').read_text(encoding='utf-8')}"

    async def awaited(self, saved: Any) -> None:
        decision: Any = await await_human(
            task=f"Approve {saved['tool']}", payload_schema=Payment, response_schema=Decision, timeout_seconds=3_600,
            payload=Payment(tool=saved["tool"], **saved["arguments"]), server_url=self.url, api_key=TOKEN,
        )  # fmt: skip
        if decision.approved:
            getattr(self.tools, saved["tool"])(**saved["arguments"])

    def ask(self, call: Call, run: str) -> Any:
        saved = {"tool": call.tool, "arguments": call.arguments}
        self.resume(saved, None)
        return saved

    def resume(self, saved: Any, answer: Any) -> None:
        async def main() -> None:
            task = asyncio.ensure_future(self.awaited(saved))
            await self.until_it_waits(saved, task)
            await asyncio.wait([task], timeout=GRACE)
            if not task.cancel():  # where it still waits for its person, the program ends here
                task.result()

        asyncio.run(main())

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "edit":
            raise NotApplicable("it has no edits")
        (task,) = self.waiting(saved)
        answer = {"approved": True if decision == "approve" else decision}
        self.http(f"/api/tasks/{task['id']}/complete", {"response": answer, "completed_by_email": "ada@example.com"})

    def waiting(self, saved: Any) -> list[Any]:
        """Return the tasks for this tool that nobody has completed."""
        named = f"Approve {saved['tool']}"
        return [task for task in self.http("/api/tasks") if task["task"] == named and task["status"] != "completed"]

    async def until_it_waits(self, saved: Any, task: asyncio.Future[None]) -> None:
        while not task.done() and not await asyncio.to_thread(self.waiting, saved):  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0.05)

    def http(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read())

    async def cancelled(self, call: Call, run: str) -> None:
        saved = {"tool": call.tool, "arguments": call.arguments}
        task = asyncio.ensure_future(self.awaited(saved))
        await self.until_it_waits(saved, task)
        await self.cancelled_when(lambda: True, task)
        await asyncio.to_thread(self.decide, saved, "approve")
        await asyncio.sleep(GRACE)


def serve(folder: Path, days: float) -> None:
    """Run its server on this machine alone, with its database in the folder."""
    if days:
        import time_machine

        time_machine.travel(time.time() + days * 86_400, tick=True).start()
    listener = socket.create_server(("127.0.0.1", 0))
    (folder / "port").write_text(str(listener.getsockname()[1]), encoding="utf-8")
    os.environ |= {
        "AWAITHUMANS_DB_PATH": str(folder / "peer.db"), "AWAITHUMANS_ADMIN_API_TOKEN": TOKEN,
        "AWAITHUMANS_PAYLOAD_KEY": "cGF5bG9hZGtleXBheWxvYWRrZXlwYXlsb2Fka2V5MTI=",
    }  # fmt: skip
    import uvicorn
    from awaithumans.server.app import create_app

    class Told(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("ready", flush=True)

    Told(uvicorn.Config(create_app(serve_dashboard=False), log_level="error")).run([listener])


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]))
