"""The scripted agent of the demo: a program of its own that tidies a folder.

Three gated functions do the work, on real files. Each writes into the ledger what it really did, after it did it, so
that effects can be counted from the disk. A list on disk is ticked off after each step: an agent that was killed goes
on with the first step that has no tick, and cannot know whether that step had happened. The gate knows, or says that
nobody does.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import sayso
from sayso.cli.demo.place import RUN, Effect, Place, say
from sayso.errors import OutcomeUnknownError
from sayso.model.show import escape, line

__all__ = ["Fate", "Step", "delete", "leaves_the_archive", "main", "move", "steps_to", "work", "write"]


@dataclass
class Fate:
    """What this process was told about its own end."""

    dies_in_call: bool = False


_fate = Fate()


# -- what it can do ------------------------------------------------------------------------------------------------


def leaves_the_archive(path: str) -> bool:
    """Hold whatever does not stay inside `archive/`."""
    parts = PurePath(path).parts
    return parts[:1] != ("archive",) or ".." in parts


@sayso.gate(when=leaves_the_archive)
def move(source: str, path: str) -> str:
    """Move a file."""
    old, new = _inside(source), _inside(path)
    if new.exists():
        raise FileExistsError(f"{path} is there already")
    new.parent.mkdir(exist_ok=True)
    old.rename(new)
    _note("move", path, source)
    return f"moved {source} to {path}"


@sayso.gate(when=leaves_the_archive)
def write(path: str, text: str) -> str:
    """Write a new file."""
    with _inside(path).open("x", encoding="utf-8") as file:
        file.write(text)
    _note("write", path)
    return f"wrote {path}"


# The timeout is for an agent whose demo is gone: it does not stand there for ever.
@sayso.gate(when=leaves_the_archive, risk="high", expires="1h", timeout="10m")
def delete(path: str) -> str:
    """Delete a file for good."""
    _inside(path).unlink()
    _note("delete", path)
    if _fate.dies_in_call:
        os.kill(os.getpid(), signal.SIGKILL)  # after the effect, before anybody could write down that it happened
    return f"deleted {path}"


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


# -- what it does --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One entry of the agent's list."""

    function: Callable[..., str]
    arguments: dict[str, str]

    def __str__(self) -> str:
        return line(self.function.__name__, dict(self.arguments))


def steps_to(deletions: Sequence[str]) -> list[Step]:
    """Return the agent's list, the same in every life of it."""
    return [
        Step(move, {"source": "app.log", "path": "archive/app.log"}),
        Step(write, {"path": "archive/summary.txt", "text": "app.log was moved here\n"}),
        *(Step(delete, {"path": path}) for path in deletions),
    ]


def work(step: Step) -> bool:
    """Do one step; say whether it can be ticked off."""
    say("agent", f"calls {step}")
    try:
        done = step.function(**step.arguments)
    except sayso.ConfirmationRequired as held:
        say("agent", f"leaves it: {held.confirmation_id} still waits for a person")
        return False
    except OutcomeUnknownError as unknown:
        say("agent", f"stops here: {escape(str(unknown))}")
        return False
    except sayso.ConfirmationRejected as no:
        say("agent", f"does not do it: {escape(no.message)}")
    except (OSError, ValueError) as error:
        say("agent", f"could not do it: {escape(str(error))}")
    else:
        say("agent", escape(done))
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Tidy the folder: do every step that has no tick."""
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("folder", type=Path)
    parser.add_argument("deletions", nargs="*")
    parser.add_argument("--dies-in-last-call", action="store_true")
    given = parser.parse_args(arguments)
    place = Place(given.folder.resolve())
    sayso.configure(store=place.address)
    os.chdir(place.files)
    ticked = place.ticks.read_text(encoding="utf-8").splitlines() if place.ticks.exists() else []
    steps = steps_to(given.deletions)
    say("agent", f"finds {', '.join(sorted(place.present()))}")
    with sayso.run(RUN):
        for step in steps:
            if str(step) in ticked:
                continue
            _fate.dies_in_call = given.dies_in_last_call and step is steps[-1]
            if work(step):
                with place.ticks.open("a", encoding="utf-8") as ticks:
                    ticks.write(f"{step}\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
