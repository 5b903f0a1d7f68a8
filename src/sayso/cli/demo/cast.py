"""The processes of the demo: the agent, and the commands that a reviewer types.

Only processes that were started here are held still or ended, by their own handle, and `Stage.close` leaves none.
Invariant: nothing here waits for a program longer than `PATIENCE`; only a person may take their time.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import TypeVar

from sayso import config, terminal
from sayso.cli.demo.inbox import SIMULATED, Deed, Inbox, NotTakenError, is_installed
from sayso.cli.demo.place import Place, say
from sayso.cli.output import out
from sayso.model.request import Request, State
from sayso.stores.base import Filter
from sayso.view.summary import short

__all__ = ["PATIENCE", "Agent", "Broken", "Stage"]

T = TypeVar("T")
PATIENCE = 30.0
_THINKING = 300.0  # a provider's model may take its time
_LOOK_AGAIN = 0.02
_ANNOUNCEMENT = _GOODBYE = 2.0
_PYTHON = (sys.executable, "-P", "-m")  # -P: what lies in the reader's folder is no part of the demo


# One speaks at a time: the agent does not talk into what a command says.
_floor = threading.Lock()


def _after_fork() -> None:
    global _floor  # noqa: PLW0603  whoever had the floor is not there any more in a forked child
    _floor = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Broken(Exception):
    """The demo cannot go on, or does not show what it promises."""


class Agent:
    """One life of the agent.

    Args:
        place: Its folder.
        deletions: Which files it wants to delete.
        model: The name of a provider's model that thinks for it; None for the script.
        dies: Whether it kills itself in its last call.
        at_terminal: Whether it talks to the person itself; otherwise its lines pass through here.
    """

    def __init__(
        self, place: Place, deletions: Sequence[str], *, model: str | None, dies: bool, at_terminal: bool
    ) -> None:  # fmt: skip
        words = [*_PYTHON, "sayso.cli.demo.agent", str(place.root), *deletions]
        words += [] if model is None else [f"--model={model}"]
        words += ["--dies-in-last-call"] if dies else []
        self._said: list[str] = []
        self._relay: threading.Thread | None = None
        if at_terminal:
            self._process = subprocess.Popen(words)  # noqa: S603  (our own program)
            return
        self._process = subprocess.Popen(  # noqa: S603  (our own program)
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        self._relay = threading.Thread(target=self._pass_on, daemon=True)
        self._relay.start()

    def _pass_on(self) -> None:
        with self._process.stdout or nullcontext(()) as rows:
            for row in rows:
                with _floor:
                    out(row.rstrip("\n"))
                self._said.append(row)

    def has_said(self, text: str) -> bool:
        """Say whether a line with this text has passed through here; for an agent that is not at the terminal."""
        return any(text in row for row in self._said)

    @property
    def ended(self) -> int | None:
        """How it ended: 0, an exit code, or minus the signal; None while it lives."""
        return self._process.poll()

    def hold_still(self) -> None:
        """Stop it where it stands: it is alive and does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> int:
        """Kill it, and return how it ended."""
        self._process.kill()
        return self.reap()

    def reap(self) -> int:
        """Take note of its end, so that its process id is free, and pass its last lines on."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired as late:
            raise Broken(f"the agent did not end in {PATIENCE:.0f} seconds") from late
        if self._relay is not None:
            self._relay.join(PATIENCE)
        return code

    def stop(self) -> None:
        """End it, if it still lives."""
        if self.ended is None and self._relay is None:  # Ctrl-C reached it, too: it may say goodbye to the person
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GOODBYE)
        if self.ended is None:
            self.kill()


class Stage:
    """The place, its store, who decides, and every process that was started.

    Args:
        place: The folder.
        with_person: Whether a person decides, at this terminal or elsewhere; else the simulated reviewer does.
        model: The name of a provider's model that thinks for the agent; None for the script.

    Attributes:
        inbox: Its inbox; None where the extra `web` is not installed.
    """

    def __init__(self, place: Place, *, with_person: bool, model: str | None = None) -> None:
        self.place = place
        self.with_person = with_person
        self.model = model
        self.store = config.open_store(place.address)
        self.inbox = Inbox(self.store) if is_installed() else None
        self._agents: list[Agent] = []
        self._met: set[str] = set()

    def close(self) -> None:
        """End what was started."""
        for agent in self._agents:
            agent.stop()
        if self.inbox is not None:
            self.inbox.close()
        self.store.close()

    # -- the agent ---------------------------------------------------------------------------------------------

    def start(self, deletions: Sequence[str], *, dies: bool = False, at_terminal: bool = False) -> Agent:
        """Start the agent."""
        agent = Agent(self.place, deletions, model=self.model, dies=dies, at_terminal=at_terminal)
        self._agents.append(agent)
        return agent

    def waiting(self) -> list[Request]:
        """Return the requests that wait for a person."""
        return list(self.store.list(Filter(frozenset({State.PENDING}))).requests)

    def next_request(self, agent: Agent) -> Request:
        """Wait until the agent stands before a request that was not met yet, and has said so."""
        request = self.next_or_end(agent)
        if request is None:
            raise Broken(f"the agent ended ({agent.ended}) and asked nothing")
        return request

    def next_or_end(self, agent: Agent) -> Request | None:
        """Wait as `next_request` does; return None if the agent ends instead."""

        def found() -> tuple[Request | None] | None:
            fresh = [request for request in self.waiting() if request.id not in self._met]
            if fresh:
                return (fresh[0],)
            return None if agent.ended is None else (None,)

        (request,) = self._until("the agent asks", found)
        if request is None:
            return None
        self._met.add(request.id)
        heard = time.monotonic() + _ANNOUNCEMENT
        while not agent.has_said(short(request.id)) and time.monotonic() < heard:
            time.sleep(_LOOK_AGAIN)
        return request

    def end_of(self, agent: Agent) -> int:
        """Wait until the agent ends; as long as a person needs, if one is asked."""
        self._until("the agent ends", lambda: agent.ended is not None or None, may_ask=self.with_person)
        return agent.reap()

    def _until(self, what: str, found: Callable[[], T | None], *, may_ask: bool = False) -> T:
        patience = PATIENCE if self.model is None else _THINKING
        late = time.monotonic() + patience
        while True:
            answer = found()
            if answer is not None:
                return answer
            if may_ask and self.waiting():
                late = time.monotonic() + patience
            if time.monotonic() > late:
                raise Broken(f"waited {patience:.0f} seconds until {what}; stopped everything")
            time.sleep(_LOOK_AGAIN)

    # -- the reviewer ------------------------------------------------------------------------------------------

    @property
    def reviewer(self) -> str:
        """Who decides, as the demo's lines say it."""
        return "you" if self.with_person else "simulated reviewer"

    def command(self, who: str, *words: str) -> int:
        """Run `sayso` on this store as a process of its own, show what was typed and what it said; return its code."""
        with _floor:
            say(who, f"$ {terminal.command(self.store)} {shlex.join(words)}")
            done = self._run(words)
            out(*(f"  {row}" for row in done.stdout.splitlines()))
        return done.returncode

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603  (our own program)
                [*_PYTHON, "sayso", "--store", self.place.address, *words], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
                timeout=PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise Broken(f"sayso {words[0]} did not end in {PATIENCE:.0f} seconds") from late

    def decide(self, request: Request, deed: Deed) -> Request:
        """Let the person decide at this terminal, or the simulated reviewer do a deed; return the request after it."""
        if self.with_person:
            return terminal.converse(self.store, request, lambda: self.store.get(request.id).state is not State.PENDING)
        self.simulate(request, deed)
        return self.store.get(request.id)

    def simulate(self, request: Request, deed: Deed) -> None:
        """Let the simulated reviewer do a deed: through the inbox, or by command where there is none."""
        if self.inbox is None:
            code = self.command(self.reviewer, deed.verb, short(request.id), *deed.words, "--as", SIMULATED)
            if code != 0:
                raise Broken(f"sayso {deed.verb} ended with {code}")
            return
        with _floor:
            try:
                sent, *answered = self.inbox.take(deed, request.id)
            except NotTakenError as no:
                raise Broken(str(no)) from no
            say(self.reviewer, sent)
            out(*answered)
