"""An agent behind a web API: a pause is saved as JSON under a session's id, and a later request goes on from it.

    python examples/react_web.py

It needs starlette and no network: a client in this file talks to the app directly. To serve the app itself:
`uvicorn examples.react_web:app`. What is saved can be shown and gives no right: what runs is what the store holds.
"""

import asyncio
import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import sayso

SESSIONS: dict[str, str] = {}  # a database, in earnest


@sayso.tool(require_confirmation=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


async def scripted(messages: list[dict[str, Any]], _tools: list[dict[str, Any]]) -> Any:
    """Stand in for a model: delete what the question names, and say what happened."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    if told:
        return [("finish", {"answer": told[-1].splitlines()[-1]})]
    return [("delete_file", {"path": messages[1]["content"].split()[-1]})]


agent = sayso.ReAct("question -> answer", [delete_file], model=scripted)


async def answer(**inputs: Any) -> JSONResponse:
    """Run the agent to its answer, or to its next pause."""
    try:
        result = await agent.aforward(**inputs)
    except sayso.ConfirmationRequired as held:
        SESSIONS[held.confirmation_id] = json.dumps(held.to_dict())
        shown = {"session_id": held.confirmation_id, "question": held.question, "tool_call": held.tool_call}
        return JSONResponse({"status": "confirmation_required", **shown}, status_code=202)
    except sayso.ConfirmationRejected as no:
        return JSONResponse({"status": "rejected", "reason": no.message})
    except sayso.SaysoError as error:  # e.g. arguments that do not fit: the request still waits
        return JSONResponse({"status": "error", "reason": str(error)}, status_code=422)
    return JSONResponse({"status": "completed", "result": result.answer})


async def start(request: Request) -> JSONResponse:
    return await answer(question=(await request.json())["question"])


async def resume(request: Request) -> JSONResponse:
    given = await request.json()
    saved = json.loads(SESSIONS[given["session_id"]])
    state = sayso.ResumeState(saved, given["user_response"])
    return await answer(question=state.context["original_question"], resume_state=state)


routes = [Route("/agent/start", start, methods=["POST"]), Route("/agent/resume", resume, methods=["POST"])]
app = Starlette(routes=routes)


async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the app without a server."""
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return json.loads(b"".join(message.get("body", b"") for message in sent))


async def client() -> None:
    """Ask for three deletions: one is approved, one changed after a slip, one refused."""
    for number, responses in enumerate([["yes"], ['{"pth": 1}', '{"path": "/srv/older"}'], ["no"]]):
        said = await post("/agent/start", {"question": f"Delete /srv/old-{number}"})
        print(said["question"])
        for response in responses:
            end = await post("/agent/resume", {"session_id": said["session_id"], "user_response": response})
            print(f"  {response} -> {end['status']}: {end.get('result') or end['reason']}")


if __name__ == "__main__":
    asyncio.run(client())
