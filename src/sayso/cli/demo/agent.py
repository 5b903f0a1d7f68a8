"""The agent of the demo: a program of its own that tidies a folder, as an `Agent` with tools on real files.

Each tool writes into the ledger what it really did, after it did it, so that effects can be counted from the disk. The
run has a name and lives in the store: an agent that was killed goes on with what its run has not done, and cannot know
whether the call that it died in had happened. The record knows, or says that nobody does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path, PurePath
from typing import Any

import sayso
from sayso import scope
from sayso.cli.demo.place import RUN, Effect, Place, say
from sayso.effects import drive
from sayso.errors import ConfigError
from sayso.testing import ScriptedModel
from sayso.view import escape, line
from sayso.view.summary import short
from sayso.wait import Block, Waiter

__all__ = [
    "PROMPT",
    "TOOLS",
    "Voice",
    "delete",
    "leaves_the_archive",
    "look",
    "main",
    "move",
    "script_to",
    "work",
    "write",
]

PROMPT = "Tidy this folder: put logs into archive/, with a summary, and delete what nobody needs any more."
_HOW = (
    "You tidy a folder with your tools, and nothing else. Paths are relative to it. Look before you act."
    " A refused call is final: leave that file and go on. End with one sentence that says what you did."
)
# For an agent whose demo is gone: it does not stand there for ever.
_STANDS = timedelta(minutes=10)
_dies_with: list[str] = []


# -- what it can do ------------------------------------------------------------------------------------------------


def look() -> list[str]:
    """List the files."""
    return sorted(path.relative_to(Path.cwd()).as_posix() for path in Path.cwd().rglob("*") if path.is_file())


def move(source: str, path: str) -> str:
    """Move a file."""
    old, new = _inside(source), _inside(path)
    if new.exists():
        raise FileExistsError(f"{path} is there already")
    new.parent.mkdir(exist_ok=True)
    old.rename(new)
    _note("move", path, source)
    return f"moved {source} to {path}"


def write(path: str, text: str) -> str:
    """Write a new file."""
    new = _inside(path)
    new.parent.mkdir(exist_ok=True)
    with new.open("x", encoding="utf-8") as file:
        file.write(text)
    _note("write", path)
    return f"wrote {path}"


def delete(path: str) -> str:
    """Delete a file for good."""
    _inside(path).unlink()
    _note("delete", path)
    request = sayso.current_request()
    if request is not None and request.call.arguments["path"] in _dies_with:
        os.kill(os.getpid(), signal.SIGKILL)  # after the effect, before anybody could write down that it happened
    return f"deleted {path}"


def leaves_the_archive(path: str) -> bool:
    """Hold whatever does not stay inside `archive/`."""
    parts = PurePath(path).parts
    return parts[:1] != ("archive",) or ".." in parts


TOOLS = [
    sayso.Tool(look),
    sayso.Tool(move, requires_approval=leaves_the_archive),
    sayso.Tool(write, requires_approval=leaves_the_archive),
    sayso.Tool(delete, requires_approval=leaves_the_archive, risk="high", expires="1h"),
]


def _inside(path: str) -> Path:
    """Return the file, which must lie in the folder that is tidied: nothing of anybody else's is touched."""
    here = Path.cwd()
    full = (here / path).resolve()
    if full == here or not full.is_relative_to(here):
        raise ValueError(f"{path} is not in the folder that is tidied")
    return full


def _note(did: str, path: str, source: str | None = None) -> None:
    request = sayso.current_request()
    name = _inside(path).relative_to(Path.cwd()).as_posix()
    Place(Path.cwd().parent).note(Effect(did, name, source, None if request is None else request.id))


# -- what it thinks ------------------------------------------------------------------------------------------------


def script_to(deletions: Sequence[str]) -> ScriptedModel:
    """Return a stand-in for a model, which says the same in every life of the agent."""
    summary = {"path": "archive/summary.txt", "text": "app.log was moved to archive/\n"}
    tidies = [("move", {"source": "app.log", "path": "archive/app.log"}), ("write", summary)]
    return ScriptedModel(
        [
            {"text": "The log goes into the archive.", "calls": tidies},
            *({"text": f"Nobody needs {path} any more.", "calls": [("delete", {"path": path})]} for path in deletions),
            _last_words,
        ]
    )


def _last_words(messages: list[dict[str, Any]]) -> str:
    ends = [message["is_error"] for message in messages if message["role"] == "tool"]
    return f"Tidied up: {ends.count(False)} calls of {len(ends)} were made."


# -- what it does --------------------------------------------------------------------------------------------------


class Voice:
    """Says line by line what the events of a run tell."""

    def __init__(self) -> None:
        self._said = ""

    def tell(self, event: Any) -> None:
        """Say what an event tells."""
        if isinstance(event, sayso.DeltaEvent):
            self._said += event.text
            return
        for row in filter(str.strip, self._said.splitlines()):
            say("agent", escape(row))
        self._said = ""
        if isinstance(event, sayso.ApprovalEvent):
            say("agent", f"wants {line(event.runnable_name, event.input)}, and must ask")
        elif isinstance(event, sayso.OutputEvent) and event.runnable_type == "Tool":
            self._end_of_call(event)

    @staticmethod
    def _end_of_call(event: sayso.OutputEvent) -> None:
        match event.status.code, event.status.reason:
            case "success", _:
                if "approval" not in event.metadata:
                    say("agent", f"calls {line(event.path.rpartition('.')[2], event.input or {})}: need not ask")
                say("agent", escape(str(event.output)))
            case "cancelled", "approval_denied":
                say("agent", f"does not do it: {escape(event.status.message or '')}")
            case "error", None:
                say("agent", f"could not do it: {escape((event.error or {}).get('message', ''))}")
            case _:  # it waits, or it stops the whole run, which says so itself
                pass


async def _leg(agent: sayso.Agent) -> sayso.OutputEvent:
    """Take the run from where it stands to its end, or to where it waits."""
    voice = Voice()
    async for event in agent(PROMPT, run_id=RUN):
        voice.tell(event)
        if isinstance(event, sayso.OutputEvent) and event.path == agent.name:
            return event
    raise AssertionError("unreachable")


def work(agent: sayso.Agent) -> int:
    """Work until the run has ended, or waits for nothing but what a person left to wait; return the exit code."""
    left: set[str] = set()
    while True:
        output = asyncio.run(_leg(agent))
        match output.status.reason:
            case "approval_required":
                waiting = {entry["approval_id"] for entry in output.metadata["pending_approvals"]} - left
                left |= {request_id for request_id in sorted(waiting) if not _is_decided(agent, request_id)}
                if waiting <= left:
                    return 0
            case None if output.status.code == "success":
                return 0
            case reason:
                say("agent", f"stops here: {escape(output.status.message or reason or '')}")
                return 0 if reason in {"outcome_unknown", "cancelled"} else 1


def _is_decided(agent: sayso.Agent, request_id: str) -> bool:
    """Wait for a person, who decides at this terminal or by command."""
    try:
        waiter = Waiter(scope.current(), agent.store)
        drive(Block(_STANDS, "ask").until_decided(agent.store, agent.store.get(request_id), waiter))
    except sayso.ConfirmationRequired:
        say("agent", f"leaves it: {short(request_id)} still waits for a person")
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Tidy the folder: do what the run has not done yet; return the exit code."""
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("folder", type=Path)
    parser.add_argument("deletions", nargs="*")
    parser.add_argument("--model", help="a provider's model, instead of the script")
    parser.add_argument("--dies-in-last-call", action="store_true")
    given = parser.parse_args(arguments)
    place = Place(given.folder.resolve())
    os.chdir(place.files)
    sayso.configure(store=place.address)
    _dies_with[:] = given.deletions[-1:] if given.dies_in_last_call else []
    try:
        model = given.model or script_to(given.deletions)
        agent = sayso.Agent(name="tidy", model=model, tools=TOOLS, system_prompt=_HOW, max_iters=30)
    except ConfigError as error:
        say("agent", f"stops here: {escape(str(error))}")
        return 1
    say("agent", f"finds {', '.join(sorted(place.present()))}")
    return work(agent)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
