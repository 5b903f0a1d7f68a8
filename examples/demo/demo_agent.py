"""The agent of the demo: it tidies a folder of real files, and every deletion waits for a person.

    python examples/demo/demo_agent.py FOLDER MODEL DELETION...

Each tool writes what it did into a ledger, after it did it, so that effects can be counted from the disk. The run has a
name and lives in the store: an agent that was killed continues with what its run has not done yet.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import sayso
from sayso.cli.context import echo, paint
from sayso.model.request import State
from sayso.testing import ScriptedModel
from sayso.view import escape, line
from sayso.view.summary import short

RUN = "demo-tidy-up"
PROMPT = "Tidy this folder: put logs into archive/, with a summary, and delete what nobody needs any more."
RULES = (
    "You tidy a folder with your tools, and nothing else. Paths are relative to it. Look before you act."
    " A refused call is final: leave that file and go on. End with one sentence that says what you did."
)


def say(who: str, what: str) -> None:
    """Print one line that begins with who acts."""
    echo(paint(f"{who:<20}", {"agent": "cyan", "demo": "yellow"}.get(who, "green")) + what)


class Effect(NamedTuple):
    """One line of the ledger: what a tool did to which file, and for which request (None: a rule let it pass)."""

    did: str
    path: str
    source: str | None = None
    request: str | None = None


class Folder(NamedTuple):
    """The folder of one demo: the files, the store, and the ledger."""

    root: Path

    @property
    def files(self) -> Path:
        return self.root / "files"

    @property
    def ledger(self) -> Path:
        return self.root / "effects.jsonl"

    @property
    def address(self) -> str:
        return f"sqlite:///{self.root / 'sayso.db'}"

    def effects(self) -> list[Effect]:
        rows = self.ledger.read_text(encoding="utf-8").splitlines() if self.ledger.exists() else []
        return [Effect(**json.loads(row)) for row in rows]

    def present(self) -> set[str]:
        return {path.relative_to(self.files).as_posix() for path in self.files.rglob("*") if not path.is_dir()}


# -- its tools -----------------------------------------------------------------------------------------------------


def look() -> list[str]:
    """List the files."""
    return sorted(Folder(Path.cwd().parent).present())


def move(source: str, path: str) -> str:
    """Move a file."""
    old, new = inside(source), inside(path)
    if new.exists():
        raise FileExistsError(f"{path} exists already")
    new.parent.mkdir(exist_ok=True)
    old.rename(new)
    note("move", path, source)
    return f"moved {source} to {path}"


def write(path: str, text: str) -> str:
    """Write a new file."""
    new = inside(path)
    new.parent.mkdir(exist_ok=True)
    with new.open("x", encoding="utf-8") as file:
        file.write(text)
    note("write", path)
    return f"wrote {path}"


def delete(path: str) -> str:
    """Delete a file for good."""
    inside(path).unlink()
    note("delete", path)
    request = sayso.current_request()
    if request is not None and os.environ.get("DEMO_DIES_IN") == request.call.arguments["path"]:
        os.kill(os.getpid(), signal.SIGKILL)  # after the effect, before anybody could record it
    return f"deleted {path}"


def inside(path: str) -> Path:
    """Return a file of the folder; nothing outside of it is touched."""
    full = (Path.cwd() / path).resolve()
    if full == Path.cwd() or not full.is_relative_to(Path.cwd()):
        raise ValueError(f"{path} is not in the folder that is tidied")
    return full


def note(did: str, path: str, source: str | None = None) -> None:
    request = sayso.current_request()
    name = inside(path).relative_to(Path.cwd()).as_posix()
    effect = Effect(did, name, source, None if request is None else request.id)
    with Folder(Path.cwd().parent).ledger.open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(effect._asdict()) + "\n")


def leaves_the_archive(path: str) -> bool:
    """The rule: whatever stays inside `archive/` passes, everything else waits for a person."""
    parts = PurePath(path).parts
    return parts[:1] != ("archive",) or ".." in parts


def script(deletions: Sequence[str]) -> ScriptedModel:
    """Return a stand-in for a model, which says the same each time the agent is started."""
    summary = {"path": "archive/summary.txt", "text": "app.log was moved to archive/\n"}
    tidies = [("move", {"source": "app.log", "path": "archive/app.log"}), ("write", summary)]

    def end(messages: list[dict[str, Any]]) -> str:
        results = [message["is_error"] for message in messages if message["role"] == "tool"]
        return f"Tidied up: {results.count(False)} calls of {len(results)} were made."

    nobody_needs = [
        {"text": f"Nobody needs {one} any more.", "calls": [("delete", {"path": one})]} for one in deletions
    ]
    return ScriptedModel([{"text": "The log goes into the archive.", "calls": tidies}, *nobody_needs, end])


async def go_on(agent: sayso.Agent) -> sayso.OutputEvent:
    """Run the agent until it ends or waits, and print what happens."""
    text = ""
    async for event in agent(PROMPT, run_id=RUN):
        if isinstance(event, sayso.DeltaEvent):
            text += event.text
            continue
        for row in filter(str.strip, text.splitlines()):
            say("agent", escape(row))
        text = ""
        if isinstance(event, sayso.ApprovalEvent):
            say("agent", f"wants {line(event.runnable_name, event.input)}, and must ask")
        elif isinstance(event, sayso.OutputEvent) and event.runnable_type == "Tool":
            say_result(event)
        elif isinstance(event, sayso.OutputEvent) and event.path == agent.name:
            return event
    raise AssertionError("a run ends with its output")


def say_result(event: sayso.OutputEvent) -> None:
    match event.status.code, event.status.reason:
        case "success", _:
            if "approval" not in event.metadata:
                say("agent", f"calls {line(event.path.rpartition('.')[2], event.input or {})}: need not ask")
            say("agent", escape(str(event.output)))
        case "cancelled", "approval_denied":
            say("agent", f"does not do it: {escape(event.status.message or '')}")
        case "error", None:
            say("agent", f"could not do it: {escape((event.error or {}).get('message', ''))}")
        case _:  # it waits, or it stops the whole run, which is printed at the end
            pass


def work(root: str, model: str, *deletions: str) -> int:
    """Be the agent: do what its run has not done yet, and return the exit code."""
    folder, parent = Folder(Path(root)), os.getppid()
    os.chdir(folder.files)
    sayso.configure(store=folder.address)
    tools = [
        sayso.Tool(look),
        sayso.Tool(move, requires_approval=leaves_the_archive),
        sayso.Tool(write, requires_approval=leaves_the_archive),
        sayso.Tool(delete, requires_approval=leaves_the_archive, risk="high", expires="1h"),
    ]
    say("agent", f"finds {', '.join(sorted(folder.present()))}")
    agent = sayso.Agent(name="tidy", model=model or script(deletions), tools=tools, system_prompt=RULES, max_iters=30)
    while True:
        output = asyncio.run(go_on(agent))
        if output.status.reason == "approval_required":
            # Its run is saved by now, so whoever stops this process stops it in no transaction.
            ids = [pending["approval_id"] for pending in output.metadata["pending_approvals"]]
            say("agent", f"waits for a person: {', '.join(map(short, ids))}")
            for request_id in ids:
                while agent.store.get(request_id).state is State.PENDING:
                    if os.getppid() != parent:
                        return 1  # nobody is there any more to decide
                    time.sleep(0.02)
        elif output.status.code == "success":
            return 0
        else:
            say("agent", f"stops here: {escape(output.status.message or output.status.reason or '')}")
            return 0 if output.status.reason in {"outcome_unknown", "cancelled"} else 1


if __name__ == "__main__":
    try:
        sys.exit(work(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
