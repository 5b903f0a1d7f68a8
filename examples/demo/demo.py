"""A destructive call on real files stops, a person decides it, and it runs once. `sayso demo` runs this program.

    python examples/demo/demo.py [--dir FOLDER] [--crash] [--model openai:gpt-5]

The agent is a process of its own with tools on real files. Each tool writes what it did into a ledger, so that at the
end three witnesses can be compared: the store, the ledger and the files. The demo exits with 0 only if they agree.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import count
from pathlib import Path, PurePath
from typing import Any, NoReturn, TypeVar

import click

import sayso
from sayso import audit, config, terminal
from sayso.cli.context import echo, echo_err
from sayso.errors import ConfigError
from sayso.gates import dialog, stderr
from sayso.model.request import Request, State
from sayso.runs import agent
from sayso.stores.base import Store
from sayso.view import escape
from sayso.view.summary import short

sys.path.append(str(Path(__file__).parent))
from demo_agent import RUN, Effect, Folder, say

SIMULATED, PATIENCE, MODEL_PATIENCE = "simulated-reviewer", 30.0, 300.0
FILES = {
    "app.log": "12:00 started\n12:01 stopped\n",
    "contract.txt": "This contract runs until 2031.\n",
    "old-backup.txt": "a copy of everything, three years old\n",
    "report-draft.md": "# Report\n\nto be written\n",
    "report-final.md": "# Report\n\nAll is well.\n",
}

T = TypeVar("T")


class DemoError(Exception):
    """The demo cannot go on, or does not show what it promises."""


def make_folder(parent: Path | None) -> Folder:
    """Make a new folder with the files, in `parent` or among the temporary files; an existing one is left alone."""
    if parent is None:
        root = Path(tempfile.mkdtemp(prefix="sayso-demo-")).resolve()
    else:
        names = (parent.resolve() / ("sayso-demo" if n == 1 else f"sayso-demo-{n}") for n in count(1))
        root = next(name for name in names if not name.exists())
    (root / "files").mkdir(parents=True)
    for name, text in FILES.items():
        (root / "files" / name).write_text(text, encoding="utf-8")
    return Folder(root)


def sayso_here() -> str:
    """Return how a shell calls `sayso`: by its path where no environment is activated, as behind `make demo`."""
    if shutil.which("sayso"):
        return "sayso"
    started = Path(sys.argv[0]).absolute()
    return shlex.quote(str(started)) if started.name == "sayso" else f"{shlex.quote(sys.executable)} -m sayso"


def command_for(store: Store) -> str:
    """Return how `sayso` is called on a store, word for word."""
    return stderr.command(store).replace("sayso", sayso_here(), 1)


# -- the stage: one agent after another, the inbox, and the reviewer ------------------------------------------------


class Child:
    """A program that was started here; its lines are kept, and printed if `prints`."""

    def __init__(self, command: Sequence[str], speaking: threading.Lock, *, prints: bool, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace", **options,
        )  # fmt: skip
        self.lines: list[str] = []
        self._relay = threading.Thread(target=self._read, args=(speaking if prints else None,), daemon=True)
        self._relay.start()

    def _read(self, speaking: threading.Lock | None) -> None:
        with self.process.stdout or nullcontext(()) as rows:
            for row in rows:
                if speaking is not None:
                    with speaking:  # the agent does not talk into what a command prints
                        echo(row.rstrip("\n"))
                self.lines.append(row)

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def end(self, *, kill: bool = False) -> int:
        """Wait for its end, or kill it; return its exit code, or minus the signal."""
        if kill:
            self.process.kill()
        code = self.process.wait(PATIENCE)
        self._relay.join(PATIENCE)
        return code


class Stage:
    """What a story needs: the folder, agents, the inbox, and somebody who decides."""

    def __init__(
        self, folder: Folder, *, with_person: bool, model: str | None = None, with_inbox: bool = True
    ) -> None:  # fmt: skip
        self.folder, self.with_person, self.model = folder, with_person, model
        self.reviewer = "you" if with_person else "simulated reviewer"
        self.store: Store = config.open_store(folder.address)
        self._speaking = threading.Lock()
        self._children: list[Child] = []
        self._met: set[str] = set()
        self._token = ""
        self.link = self._serve() if with_inbox and find_spec("uvicorn") and find_spec("starlette") else None

    def _serve(self) -> str:
        """Serve the inbox at a free port, and return the address that signs a person in."""
        words = ["serve", "--port=0", "--plain-address"]
        if self.with_person and ({"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ) or sys.platform == "darwin"):
            words.append("--open")
        # In another folder: the settings of the reader, and the channels in them, are no part of the demo.
        command = ["-m", "sayso", "--store", self.folder.address, *words]
        inbox = Child(command, self._speaking, prints=False, cwd=Path.cwd().anchor)
        self._children.append(inbox)

        def found() -> str | None:
            if inbox.has_ended():
                raise DemoError(f"sayso serve ended: {''.join(inbox.lines)}")
            return next((row.split()[1] for row in inbox.lines if row.startswith("open ")), None)

        return self.wait("the inbox is served", found)

    @property
    def url(self) -> str | None:
        return None if self.link is None else self.link.partition("/login")[0]

    def say_where_to_decide(self) -> None:
        if not self.with_person:
            how = "by command" if self.url is None else f"through the HTTP API of {self.url}"
            say("demo", f"no terminal here, so a simulated reviewer decides, {how}")
            return
        say("demo", f"decide here, or in a second terminal: {command_for(self.store)} ls")
        web = "an inbox in the browser needs the extra `web`: pip install 'sayso[web]'"
        say("demo", web if self.link is None else f"or in a browser: {self.link}")

    def close(self) -> None:
        """End every program that was started here."""
        for child in self._children:
            if not child.has_ended():
                child.end(kill=True)
        self.store.close()

    def start(self, *deletions: str, dies_in: str = "") -> Child:
        """Start the agent; it kills itself in the deletion of `dies_in`."""
        command = [str(Path(__file__).with_name("demo_agent.py")), str(self.folder.root), self.model or "", *deletions]
        environment = {**os.environ, "DEMO_DIES_IN": dies_in}
        self._children.append(Child(command, self._speaking, prints=True, env=environment))
        return self._children[-1]

    def next_request(self, agent: Child) -> Request | None:
        """Wait until the agent has asked for something new, and said so; return None if it ends instead."""

        def found() -> list[Request] | None:
            ended = agent.has_ended()
            new = [one for one in sayso.Review(self.store).list().requests if one.id not in self._met]
            return new or ([] if ended else None)

        request = next(iter(self.wait("the agent asks", found)), None)
        if request is not None:
            self._met.add(request.id)
            self.wait("the agent says so", lambda: any(short(request.id) in row for row in agent.lines) or None)
        return request

    def must_end(self, agent: Child) -> None:
        """Wait for the agent's end, which must be a good one."""
        self.wait("the agent ends", lambda: agent.has_ended() or None)
        if code := agent.end():
            raise DemoError(f"the agent failed with {code}")

    def wait(self, what: str, found: Callable[[], T | None]) -> T:
        """Wait for what a program does; a person may take their time, a program may not."""
        patience = PATIENCE if self.model is None else MODEL_PATIENCE
        late = time.monotonic() + patience
        while (answer := found()) is None:
            if time.monotonic() > late:
                raise DemoError(f"waited {patience:.0f} seconds until {what}; stopped everything")
            time.sleep(0.02)
        return answer

    def decide(self, request: Request, verb: str, comment: str | None, changes: dict[str, str]) -> Request:
        """Let the person decide at this terminal or elsewhere, or the simulated reviewer as it is said here."""
        if self.with_person:
            return terminal.converse(self.store, request, lambda: self.store.get(request.id).state is not State.PENDING)
        body: dict[str, Any] = {"changes": changes} if changes else {}
        self.simulate(request, verb, body | ({} if comment is None else {"comment": comment}))
        return self.store.get(request.id)

    def simulate(self, request: Request, verb: str, body: dict[str, Any]) -> None:
        """Decide as the simulated reviewer: through the HTTP API of the inbox, or by command where there is none."""
        if self.url is None:
            words = [f"--set={name}={value}" for name, value in body.get("changes", {}).items()]
            words += ["-m", body["comment"]] if "comment" in body else []
            words += ["--happened" if body["happened"] else "--did-not"] if "happened" in body else []
            self.command(self.reviewer, verb, short(request.id), *words, "--as", SIMULATED)
            return
        if not self._token:
            self._token = self._run("token", "new", "--kind=review", f"--name={SIMULATED}", "--expires=1h").split()[0]
        path = f"/api/v1/requests/{request.id}"
        with self._speaking:
            seen = {} if verb == "resolve" else {"seen": self._call("GET", path)["fingerprint"]}
            answer = self._call("POST", f"{path}/{verb}", body | seen)
            say(self.reviewer, f"POST {self.url}/api/v1/requests/{short(request.id)}…/{verb} {json.dumps(body)}")
            echo(f"  {answer['state']}")

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)  # noqa: S310  our own server
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:  # noqa: S310  the same
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise DemoError(f"the inbox answered {error.code}: {error.read().decode()}") from error

    def command(self, who: str, *words: str) -> None:
        """Run `sayso` on this store as a process of its own, and show what was typed and what it printed."""
        with self._speaking:
            say(who, f"$ {command_for(self.store)} {shlex.join(words)}")
            echo(*(f"  {row}" for row in self._run(*words).splitlines()))

    def _run(self, *words: str) -> str:
        command = [sys.executable, "-P", "-m", "sayso", "--store", self.folder.address, *words]
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=PATIENCE
        )
        if done.returncode:
            raise DemoError(f"sayso {words[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


# -- the stories ---------------------------------------------------------------------------------------------------


class LeftError(Exception):
    """The person went away without a decision; the story ends here."""


def asked(stage: Stage, agent: Child) -> Request:
    """Return the request that the agent asks next."""
    request = stage.next_request(agent)
    if request is None:
        raise DemoError("the agent ended and asked nothing")
    return request


def decided(stage: Stage, request: Request, verb: str, comment: str | None = None, **changes: str) -> Request:
    """Return a request after its decision."""
    after = stage.decide(request, verb, comment, changes)
    if after.state is State.PENDING:
        raise LeftError
    return after


DRAFT = ("approve", "you mean the draft; the final one stays")


def tidy(stage: Stage) -> None:
    """Two deletions are held: one is approved with another path, one is rejected."""
    agent = stage.start("report-final.md", "contract.txt")
    decided(stage, asked(stage, agent), *DRAFT, path="report-draft.md")
    decided(stage, asked(stage, agent), "reject", "keep it: the contract runs until 2031")
    stage.must_end(agent)


def improvise(stage: Stage) -> None:
    """A provider's model does as it likes; the simulated reviewer lets only what nobody needs be deleted."""
    agent = stage.start()
    while (request := stage.next_request(agent)) is not None:
        junk = request.call.name == "delete" and request.call.arguments["path"] in {"report-draft.md", "old-backup.txt"}
        decided(stage, request, *(("approve",) if junk else ("reject", "leave it as it is")))
    stage.must_end(agent)


def crash(stage: Stage) -> None:
    """The agent is killed between approval and start, and again inside the call; each deletion happens once."""
    deletions = ("report-final.md", "old-backup.txt")
    say("demo", "1. killed between approval and start")
    agent = stage.start(*deletions)
    request = asked(stage, agent)
    agent.process.send_signal(signal.SIGSTOP)
    say("demo", "holds the agent still (SIGSTOP), so that it cannot start what is approved now")
    decided(stage, request, *DRAFT, path="report-draft.md")
    ended, now = agent.end(kill=True), stage.store.get(request.id)
    if ended != -signal.SIGKILL or now.execution is not None:
        raise DemoError(f"the agent was not killed in time: it ended with {ended}, {short(now.id)} is {now.state}")
    say("demo", f"killed the agent (SIGKILL); {short(now.id)} is {now.state}, and was not started")
    echo("")
    say("demo", "starts the agent again: its run continues where it stopped, and asks nothing twice")
    agent = stage.start(*deletions, dies_in=deletions[-1])
    request = asked(stage, agent)
    say("demo", "2. killed inside the call: after the file is gone, before anybody could record it")
    decided(stage, request, "approve")
    stage.wait("the agent ends", lambda: agent.has_ended() or None)
    ended, now = agent.end(), stage.store.get(request.id)
    if ended == 0:  # a person may decide otherwise; the simulated reviewer is held to the promised rows
        say("demo", f"{short(now.id)} is {now.state}: there was no call to be killed in")
        return
    if ended != -signal.SIGKILL:
        raise DemoError(f"the agent was to die inside the call, and ended with {ended}")
    say("demo", "the agent is dead (SIGKILL, inside the call); starts it again")
    stage.must_end(stage.start(*deletions))
    resolve(stage, stage.store.get(request.id))


def resolve(stage: Stage, request: Request) -> None:
    """Let somebody look at the disk and say what happened."""
    if request.state is not State.UNKNOWN:
        raise DemoError(f"{request.id} should be unknown, and is {request.state}")
    times = sum(effect.request == request.id for effect in stage.folder.effects())
    there = "still there" if target(request) in stage.folder.present() else "gone"
    say(stage.reviewer, f"on the disk: {target(request)} is {there}, deletions in the ledger: {times}")
    happened = click.confirm("Did the deletion happen?", default=None, err=True) if stage.with_person else times > 0
    body = {"happened": happened, "comment": "looked at the disk"}
    stage.simulate(request, "resolve", body)


# -- the count -----------------------------------------------------------------------------------------------------

DONE = {"delete": "deleted", "move": "moved", "write": "written"}
BY_RULE = "passed by rule, nobody was asked"
PROMISED = {
    ("archive/app.log", "move 1x", BY_RULE),
    ("archive/summary.txt", "write 1x", BY_RULE),
    ("report-draft.md", "gone, deleted 1x", "asked > approved > started > done"),
}
BACKUP = ("old-backup.txt", "gone, deleted 1x", "asked > approved > started > unknown > resolved > done")
CONTRACT = ("contract.txt", "still there, deleted 0x", "asked > rejected")

Row = tuple[str, str, str]


def target(request: Request) -> str:
    """Return the file that a request is about, as the ledger would write it."""
    return PurePath(os.path.normpath(request.effective.shown["path"])).as_posix()


def counted(folder: Folder, store: Store) -> tuple[list[Row], list[str]]:
    """Compare the store, the ledger and the files; return what to show of each file, and every disagreement."""
    requests = sayso.Review(store).list(state="all").requests
    effects, present = folder.effects(), folder.present()
    problems = [f"run {one.run_id}: {one.reason}" for one in audit.verify(store).broken]
    rows = [(effect.path, f"{effect.did} 1x", BY_RULE) for effect in effects if effect.request is None]
    for request in requests:
        events = [entry.event for entry in audit.entries(store, request_id=request.id)]
        name, own = target(request), [effect for effect in effects if effect.request == request.id]
        gone = request.call.name == "delete"
        disk = ("still there" if gone else "there") if name in present else ("gone" if gone else "not there")
        ending = [str(request.state)] if events[-1] != request.state else []
        rows.append((name, f"{disk}, {DONE[request.call.name]} {len(own)}x", " > ".join([*events, *ending])))
        if len(own) not in {State.DONE: {1}, State.UNKNOWN: {0, 1}}.get(request.state, {0}):
            problems.append(f"{request.id} is {request.state}, and its call had {len(own)} effects")
        if events.count("started") > 1:
            problems.append(f"{request.id} was started {events.count('started')} times")
        problems += (
            f"{request.id} was approved for {name}, and {effect.path} was {DONE[effect.did]}"
            for effect in own if effect.path != name
        )  # fmt: skip
    return rows, [*problems, *unasked(effects, {one.id for one in requests}), *unexplained(effects, present)]


def unasked(effects: list[Effect], known: set[str]) -> Iterator[str]:
    """Yield the effects that nobody approved and no rule let pass."""
    for effect in effects:
        if effect.request is not None and effect.request not in known:
            yield f"{effect.did} {effect.path} was done for {effect.request}, which no record knows"
        if effect.request is None and not effect.path.startswith("archive/"):
            yield f"{effect.did} {effect.path} was done, and nobody was asked"
    by_rule = Counter((effect.did, effect.path) for effect in effects if effect.request is None)
    yield from (f"{did} {name} was done {times} times" for (did, name), times in by_rule.items() if times > 1)


def unexplained(effects: list[Effect], present: set[str]) -> Iterator[str]:
    """Yield the files that are there, or gone, and the ledger does not say why."""
    expected = set(FILES)
    for effect in effects:
        if effect.did == "delete":
            expected.discard(effect.path)
        else:
            expected = expected - {effect.source} | {effect.path}
    for name in sorted(expected ^ present):
        yield f"{name} is {'gone' if name in expected else 'there'}, and the ledger does not say so"


# -- the command ---------------------------------------------------------------------------------------------------


@click.command()
@click.option(
    "--dir", "parent", type=click.Path(file_okay=False, path_type=Path), help="Where to make the folder sayso-demo."
)
@click.option("--crash", "with_crash", is_flag=True, help="Kill the agent, twice, at the worst moments.")
@click.option("--model", metavar="NAME", help="Let a provider's model be the agent: openai:gpt-5 (extra `agent`).")
def demo(parent: Path | None, with_crash: bool, model: str | None) -> int:
    """Watch a deletion wait for a person, and happen once.

    A scripted agent tidies a folder of real files. Two harmless calls pass by rule, two deletions are held. On a
    terminal you decide, there or in the inbox that is opened; without one a simulated reviewer does, through the
    inbox's HTTP API.
    Nothing outside of the folder that it makes is touched, and the folder stays.
    """
    if with_crash and (model is not None or sys.platform == "win32"):
        raise click.UsageError("--crash follows a script and needs POSIX signals; leave --model out")
    try:
        if model is not None:
            agent.model_of(model)  # says what to install
            from sayso.runs.provider import ProviderModel

            ProviderModel(model).check()
        folder = make_folder(parent)
    except (ConfigError, OSError) as error:
        where = f"the folder cannot be made in {parent or tempfile.gettempdir()}"
        is_place = isinstance(error, OSError)
        echo_err(f"error: {escape(f'{where} ({error.strerror}); name another with --dir' if is_place else str(error))}")
        return 1
    stage = Stage(folder, with_person=dialog.person_is_at_terminal(), model=model)
    # What is ignored stays so: under nohup a hang-up ends nothing.
    endings = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, stop) for one in endings}
    try:
        tell(stage, crash if with_crash else tidy if model is None else improvise)
    except (DemoError, ConfigError, OSError) as error:
        echo_err(f"error: {escape(str(error))}")
        return 1
    finally:
        stage.close()
        for one, handler in before.items():
            signal.signal(one, handler)
    return 0


def stop(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def tell(stage: Stage, story: Callable[[Stage], None]) -> None:
    """Tell a story from its beginning to the count."""
    say("demo", f"made {escape(str(stage.folder.files))}")
    say("demo", "an agent tidies it: calls that stay inside archive/ pass by rule, others wait for a person")
    if stage.model is not None:
        say("demo", f"what it does is up to {escape(stage.model)}")
    elif stage.with_person:
        say("demo", "it takes report-final.md for a draft: try e, and give it report-draft.md instead")
    stage.say_where_to_decide()
    echo("")
    try:
        story(stage)
    except LeftError:
        say("demo", "nobody decided, so the story ends here; the request still waits for a person, in the store")
    echo("")
    stage.command("demo", "log", "--run", RUN)
    stage.command("demo", "log", "--verify")
    echo("")
    say("demo", "counted from the disk:")
    rows, problems = counted(stage.folder, stage.store)
    for name, disk, record in rows:
        echo(f"  {escape(name):<22}{disk:<26}{record}")
    echo("")
    if stage.model is None and not stage.with_person:
        promised = PROMISED | {BACKUP if story is crash else CONTRACT}
        problems += [f"not so: {name} {disk}, {record}" for name, disk, record in sorted(promised - set(rows))]
    for problem in problems:
        say("demo", f"WRONG: {escape(problem)}")
    if problems:
        raise DemoError(
            f"{len(problems)} counts are not as promised; the folder stays: {escape(str(stage.folder.root))}"
        )
    say("demo", "every count is as promised: what was approved was done once, the rest not at all")
    for request in sayso.Review(stage.store).list().requests:
        say("demo", f"{short(request.id)} still waits: {command_for(stage.store)} approve {short(request.id)}")
    say("demo", f"the folder stays for you to look at: {escape(str(stage.folder.root))}")


if __name__ == "__main__":
    demo()
