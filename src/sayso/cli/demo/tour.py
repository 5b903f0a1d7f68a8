"""The two stories of the demo, and how it ends.

`tidy` is the plain one; `crash` kills the agent between approval and start, and inside the call. Who decides is a
person, where there is a terminal, else the simulated reviewer; the stories are the same. The demo fails (exit 1) if
any count from the disk is not what the record promises.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from sayso import terminal
from sayso.cli.demo import count
from sayso.cli.demo.cast import Agent, Broken, Stage
from sayso.cli.demo.count import Row
from sayso.cli.demo.inbox import Deed
from sayso.cli.demo.place import RUN, Place, say
from sayso.cli.output import WRONG, complain, out
from sayso.errors import ConfigError
from sayso.model.request import Request, State
from sayso.runs.models import model_of
from sayso.view import escape
from sayso.view.summary import short

__all__ = ["Left", "crash", "improvise", "tidy", "tour"]

_APPROVE_THE_DRAFT = Deed("approve", "you mean the draft; the final one stays", {"path": "report-draft.md"})
_REJECT = Deed("reject", "keep it: the contract runs until 2031")
_APPROVE, _LEAVE_IT = Deed("approve"), Deed("reject", "leave it as it is")
_JUNK = {"report-draft.md", "old-backup.txt"}

_TIDY = ("report-final.md", "contract.txt")
_CRASH = ("report-final.md", "old-backup.txt")
_BY_RULE = (
    Row("archive/app.log", "move 1x", "passed by rule, nobody was asked"),
    Row("archive/summary.txt", "write 1x", "passed by rule, nobody was asked"),
)
_DRAFT = Row("report-draft.md", "gone, deleted 1x", "asked > approved > started > done")
_CONTRACT = Row("contract.txt", "still there, deleted 0x", "asked > rejected")
_BACKUP = Row("old-backup.txt", "gone, deleted 1x", "asked > approved > started > unknown > resolved > done")
_ENDINGS = [ending for name in ("SIGTERM", "SIGHUP") if (ending := getattr(signal, name, None)) is not None]


class Left(Exception):
    """The person went away without deciding; the story ends here."""


def tour(folder: Path | None, *, with_crash: bool, model: str | None = None) -> int:
    """Make the folder, tell the story, show the journal, count; see `sayso demo --help`.

    Returns:
        The exit code: 0 only if every count is as promised. Everything that was started has ended.
    """
    if with_crash and sys.platform == "win32":
        raise click.UsageError("--crash needs the signals of a POSIX system")
    if with_crash and model is not None:
        raise click.UsageError("--crash follows a script, so that it dies where it should; leave --model out")
    try:
        if model is not None:
            _check(model)
        _tour(Place.made_in(folder), with_crash=with_crash, model=model)
    except (Broken, ConfigError, OSError) as error:
        complain(f"error: {escape(str(error))}")
        return WRONG
    return 0


def _check(model: str) -> None:
    """Raise `ConfigError` where this model cannot be asked, before anything is made."""
    model_of(model)  # says what to install
    from sayso.runs.provider import ProviderModel

    ProviderModel(model).check()


def _tour(place: Place, *, with_crash: bool, model: str | None) -> None:
    stage = Stage(place, with_person=terminal.is_there(), model=model)
    # What is ignored stays so: under nohup a hang-up ends nothing.
    endings = [ending for ending in _ENDINGS if signal.getsignal(ending) is not signal.SIG_IGN]
    before = {ending: signal.signal(ending, _stop) for ending in endings}
    try:
        _begin(stage)
        try:
            _story(stage, with_crash=with_crash)
        except Left:
            say("demo", "nobody decided, so the story ends here; the request stays in the store")
        _end(stage, None if model else (*_BY_RULE, _DRAFT, _BACKUP if with_crash else _CONTRACT))
    finally:
        stage.close()
        for ending, handler in before.items():
            signal.signal(ending, handler)


def _stop(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _begin(stage: Stage) -> None:
    say("demo", f"made {escape(str(stage.place.files))}")
    say("demo", "an agent tidies it: calls that stay inside archive/ pass by rule, others wait for a person")
    if stage.model is not None:
        say("demo", f"what it does is up to {escape(stage.model)}")
    elif stage.with_person:
        say("demo", "it takes report-final.md for a draft: try e, and give it report-draft.md instead")
    _say_where_to_decide(stage)
    out("")


def _say_where_to_decide(stage: Stage) -> None:
    if not stage.with_person:
        how = "by command" if stage.inbox is None else f"through the HTTP API of {stage.inbox.base}"
        say("demo", f"no terminal here, so a simulated reviewer decides, {how}")
        return
    say("demo", f"decide here, or in a second terminal: {terminal.command(stage.store)} ls")
    if stage.inbox is None:
        say("demo", "an inbox in the browser needs the extra `web`: pip install 'sayso[web]'")
        return
    address = stage.inbox.address()
    say("demo", f"or in a browser: {address}")
    if _has_desktop():
        stage.inbox.open(address)


def _has_desktop() -> bool:
    """Say whether a browser would open beside this terminal, and not in it."""
    if sys.platform in {"darwin", "win32"}:
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


# -- the stories -----------------------------------------------------------------------------------------------


def _story(stage: Stage, *, with_crash: bool) -> None:
    if with_crash:
        crash(stage)
    elif stage.model is None:
        tidy(stage)
    else:
        improvise(stage)


def improvise(stage: Stage) -> None:
    """A provider's model does as it likes; only what nobody needs may be deleted."""
    agent = stage.start((), at_terminal=stage.with_person)
    while not stage.with_person and (request := stage.next_or_end(agent)) is not None:
        may_go = request.call.name == "delete" and request.call.arguments["path"] in _JUNK
        stage.decide(request, _APPROVE if may_go else _LEAVE_IT)
    _must_end_well(stage, agent)


def tidy(stage: Stage) -> None:
    """Two deletions are held: one is approved with another path, one is rejected."""
    agent = stage.start(_TIDY, at_terminal=stage.with_person)
    if not stage.with_person:
        for deed in (_APPROVE_THE_DRAFT, _REJECT):
            stage.decide(stage.next_request(agent), deed)
    _must_end_well(stage, agent)


def crash(stage: Stage) -> None:
    """The agent is killed twice; each deletion happens once."""
    _killed_before_the_start(stage)
    out("")
    _killed_inside_the_call(stage)


def _killed_before_the_start(stage: Stage) -> None:
    say("demo", "1. killed between approval and start")
    agent = stage.start(_CRASH)
    request = stage.next_request(agent)
    agent.hold_still()
    say("demo", "holds the agent still (SIGSTOP), so that it cannot start what is approved now")
    request = _decided(stage, request, _APPROVE_THE_DRAFT)
    ended = agent.kill()
    now = stage.store.get(request.id)
    if ended != -signal.SIGKILL or now.execution is not None:
        raise Broken(f"the agent was not killed in time: it ended with {ended}, {short(now.id)} is {now.state}")
    say("demo", f"killed the agent (SIGKILL); {short(now.id)} is {now.state}, and was not started")


def _killed_inside_the_call(stage: Stage) -> None:
    say("demo", "starts the agent again: its run goes on where it stood, and asks nothing twice")
    agent = stage.start(_CRASH, dies=True)
    request = stage.next_request(agent)
    say("demo", "2. killed inside the call: after the file is gone, before anybody could record it")
    request = _decided(stage, request, _APPROVE)
    ended = stage.end_of(agent)
    if ended == 0:  # a person may decide otherwise; the simulated reviewer is held to the promised rows
        say("demo", f"{short(request.id)} is {stage.store.get(request.id).state}: there was no call to be killed in")
        return
    if ended != -signal.SIGKILL:
        raise Broken(f"the agent was to die inside the call, and ended with {ended}")
    say("demo", "the agent is dead (SIGKILL, inside the call); starts it again")
    _must_end_well(stage, stage.start(_CRASH))
    _resolve(stage, request)


def _decided(stage: Stage, request: Request, deed: Deed) -> Request:
    after = stage.decide(request, deed)
    if after.state is State.PENDING:
        raise Left
    return after


def _must_end_well(stage: Stage, agent: Agent) -> None:
    ended = stage.end_of(agent)
    if ended != 0:
        raise Broken(f"the agent failed with {ended}")


def _resolve(stage: Stage, request: Request) -> None:
    """Let somebody look at the disk and say what happened."""
    if stage.store.get(request.id).state is not State.UNKNOWN:
        raise Broken(f"{request.id} should be unknown, and is {stage.store.get(request.id).state}")
    seen = count.Witnesses.heard(stage.store, stage.place)
    there = "still there" if seen.name(request) in seen.present else "gone"
    say(stage.reviewer, f"on the disk: {seen.name(request)} is {there}, deletions in the ledger: {seen.times(request)}")
    if not stage.with_person:
        stage.simulate(request, Deed("resolve", "looked at the disk", happened=seen.times(request) > 0))
        return
    happened = click.confirm("Did the deletion happen?", default=None, err=True)
    deed = Deed("resolve", "looked at the disk", happened=happened)
    code = stage.command(stage.reviewer, deed.verb, short(request.id), *deed.words)
    if code != 0:
        raise Broken(f"sayso resolve ended with {code}")


# -- the end ---------------------------------------------------------------------------------------------------


def _end(stage: Stage, promised: Sequence[Row] | None) -> None:
    out("")
    stage.command("demo", "log", "--run", RUN)
    verified = stage.command("demo", "log", "--verify")
    out("")
    seen = count.Witnesses.heard(stage.store, stage.place)
    say("demo", "counted from the disk:")
    for row in count.rows(seen):
        out(f"  {escape(row.name):<22}{row.disk:<26}{row.record}")
    out("")
    problems = count.problems(seen, None if stage.with_person else promised)
    problems += ["sayso log --verify found a break"] if verified else []
    for problem in problems:
        say("demo", f"WRONG: {escape(problem)}")
    if problems:
        raise Broken(
            f"counts that are not as promised: {len(problems)}; the folder stays: {escape(str(stage.place.root))}"
        )
    say("demo", "every count is as promised: what was approved was done once, the rest not at all")
    for request in stage.waiting():
        say("demo", f"{short(request.id)} still waits: {terminal.command(stage.store)} approve {short(request.id)}")
    say("demo", f"the folder stays for you to look at: {escape(str(stage.place.root))}")
