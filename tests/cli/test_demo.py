"""`sayso demo` as its reader meets it: real processes, real files, a real terminal, real kills.

What the demo says about itself is not believed: files, ledger and journal are read again here. Invariant: whatever
happens to a demo, no process of it is left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sayso import audit, cli, config
from sayso.model.request import State
from sayso.reviews import Review
from sayso.runs import agent
from sayso.stores.sqlite import SqliteStore
from tests.runs.provider_server import Answer, Provider, serving
from tests.support import warm
from tests.support.browsing import fields_of
from tests.support.person import Person

program: Any = sys.modules[cli._demo().callback.__module__]  # type: ignore[union-attr]

MENU = "d detach   (then enter)\n> "
ARCHIVE = {"archive/app.log", "archive/summary.txt"}
STAYS = re.compile(r"the folder stays for you to look at: (.+)$", re.MULTILINE)
AS_ASKED = ["asked", "approved", "started", "done"]


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    words = ("-m", "sayso", "demo", *words)
    code, out, err = warm.run(list(words), dict(os.environ))
    return subprocess.CompletedProcess(words, code, out.decode(), err.decode())


def sits_before(place: Path, *words: str) -> Person:
    return Person(
        "-m", "sayso", "demo", "--dir", str(place), *words, env=dict(os.environ), cwd=place, all_three=True, columns=160
    )


def made(output: str) -> Any:
    found = STAYS.search(output)
    assert found, output
    return program.Folder(Path(found[1]))


def edits_path(person: Person, path: str) -> None:
    """Approve the deletion of another path than the agent proposed."""
    person.sees(MENU)
    person.types("e")
    person.sees('path ["report-final.md"]: ')
    person.types(path)
    person.sees("[y/n] ")
    person.types("y")


def at_its_end(person: Person) -> Any:
    """Wait until the demo has ended well, and return its folder."""
    code, _ = person.ends()
    assert code == 0, person.screen
    return made(person.screen)


def processes_of(place: Path) -> list[str]:
    """Return the command lines of living processes that name this folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(place) in command:
            found.append(command)
    return found


def story(place: Any) -> list[tuple[str, list[str], State]]:
    """Return, of each request, what was to be deleted, its events, and where it stands."""
    store = SqliteStore(str(place.root / "sayso.db"))
    try:
        seen = Review(store).list(state="all").requests
        assert audit.verify(store).broken == ()
        return [
            (
                request.effective.shown["path"],
                [entry.event for entry in audit.entries(store, request_id=request.id)],
                request.state,
            )
            for request in seen
        ]
    finally:
        store.close()


def deleted(place: Any) -> list[str]:
    return [effect.path for effect in place.effects() if effect.did == "delete"]


# -- without a terminal ----------------------------------------------------------------------------------------


def test_demo_without_a_terminal_ends_by_itself_and_deletes_only_what_was_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    before = sorted((tmp_path / "home").iterdir())

    done = demo()

    assert done.returncode == 0, done.stdout + done.stderr
    place = made(done.stdout)
    assert [folder.resolve() for folder in temporary.iterdir()] == [place.root]
    assert sorted((tmp_path / "home").iterdir()) == before
    assert place.present() == (set(program.FILES) - {"app.log", "report-draft.md"}) | ARCHIVE
    assert deleted(place) == ["report-draft.md"]
    assert story(place) == [
        ("report-draft.md", AS_ASKED, State.DONE),
        ("contract.txt", ["asked", "rejected"], State.REJECTED),
    ]
    assert processes_of(place.root) == []


@pytest.mark.slow
def test_demo_shows_who_acts_what_was_sent_to_the_inbox_and_the_reason_of_a_no(tmp_path: Path) -> None:
    done = demo("--dir", str(tmp_path))
    place = made(done.stdout)
    sent = r'POST http://127\.0\.0\.1:\d+/api/v1/requests/rq_\w{8}…/approve {"changes": {"path": "report-draft\.md"}'
    assert re.search(rf"^simulated reviewer  {sent}", done.stdout, re.MULTILINE)
    store = SqliteStore(str(place.root / "sayso.db"))
    decided = [request.decision for request in Review(store).list(state="all").requests]
    store.close()
    assert {(decision.by.subject, decision.channel) for decision in decided if decision} == {(program.SIMULATED, "api")}
    assert re.search(r"^agent .*deleted report-draft\.md$", done.stdout, re.MULTILINE)
    assert re.search(r"^agent .*rejected by simulated-reviewer: keep it: the contract", done.stdout, re.MULTILINE)
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_crashed_agent_deletes_once_and_what_nobody_saw_end_is_unknown_until_somebody_looks(crashed: Any) -> None:
    done, place = crashed
    assert story(place) == [
        ("report-draft.md", AS_ASKED, State.DONE),
        ("old-backup.txt", ["asked", "approved", "started", "unknown", "resolved"], State.DONE),
    ]
    assert deleted(place) == ["report-draft.md", "old-backup.txt"]
    assert place.present() == {"contract.txt", "report-final.md"} | ARCHIVE
    lives = re.findall(r"^agent +finds (.+)$", done.stdout, re.MULTILINE)
    assert len(lives) == 3
    assert "report-draft.md" in lives[1]
    assert "old-backup.txt" not in lives[2]
    assert re.search(r"^agent +stops here: .* its outcome is unknown; it was not run again", done.stdout, re.MULTILINE)
    assert processes_of(place.root) == []


@pytest.mark.slow
def test_approved_call_is_started_by_another_process_than_the_one_that_was_killed(finished: Any) -> None:
    store = SqliteStore(str(finished.root / "sayso.db"))
    rows = [json.loads(entry.detail) for entry in audit.entries(store) if entry.event == "started"]
    store.close()
    # The first life waited for the first deletion, and was killed; the second started it, and died in the next call.
    assert len(rows) == 2
    assert rows[0]["worker"] == rows[1]["worker"]
    assert [row["attempt"] for row in rows] == [1, 1]


@pytest.mark.slow
def test_what_is_the_readers_own_stays_as_it_is_and_does_not_reach_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{tmp_path}/elsewhere.db")
    (tmp_path / "sayso.toml").write_text('store = "sqlite:///elsewhere-too.db"\n')
    own = tmp_path / "own"
    (own / "sayso-demo" / "files").mkdir(parents=True)
    for name in ("app.log", "contract.txt", "click.py", "sayso-demo/files/report-draft.md"):
        (own / name).write_text("mine")
    before = {path: path.read_text() for path in own.rglob("*") if path.is_file()}

    done = demo("--dir", str(own))

    assert done.returncode == 0, done.stdout + done.stderr
    assert {path: path.read_text() for path in before} == before
    assert not list(tmp_path.glob("elsewhere*"))
    assert made(done.stdout).root == own / "sayso-demo-2"
    assert {path.name for path in own.iterdir()} == {
        "app.log", "click.py", "contract.txt", "sayso-demo", "sayso-demo-2",
    }  # fmt: skip


def test_demo_that_cannot_make_its_folder_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = demo("--dir", str(tmp_path / "file" / "folder"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


# -- with a provider's model -----------------------------------------------------------------------------------


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    pytest.importorskip("pydantic_ai", reason="the extra `agent` is not installed: the demo of models is NOT tested")
    with serving() as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-dummy")
        yield served


def deletes(*paths: str) -> list[tuple[str, str]]:
    return [("delete", json.dumps({"path": path})) for path in paths]


@pytest.mark.slow
def test_model_of_a_provider_is_the_agent_and_deletes_only_what_was_approved(
    tmp_path: Path, provider: Provider
) -> None:
    provider.answers = [
        Answer("Let me look.", [("look", "{}")]),
        Answer("Two can go.", deletes("report-draft.md", "contract.txt")),
        Answer("The draft is gone, the contract stays."),
    ]

    done = demo("--model", "openai-chat/gpt-5", "--dir", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    place = made(done.stdout)
    assert deleted(place) == ["report-draft.md"]
    assert {(path, state) for path, _, state in story(place)} == {
        ("report-draft.md", State.DONE),
        ("contract.txt", State.REJECTED),
    }
    assert re.search(r"^agent +The draft is gone, the contract stays\.", done.stdout, re.MULTILINE)
    assert "contract.txt" in json.dumps(provider.asked[1])  # what it saw when it looked
    assert "simulated-reviewer rejected it" in json.dumps(provider.asked[2])
    assert len(provider.asked) == 3
    assert processes_of(place.root) == []


@pytest.mark.slow
def test_key_that_a_provider_does_not_take_ends_the_demo_with_its_words(tmp_path: Path, provider: Provider) -> None:
    provider.answers = [Answer(status=401)]
    done = demo("--model", "openai:gpt-5", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert "status 401: the key was not accepted" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert processes_of(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [("openai:gpt-5", "OPENAI_API_KEY"), ("gpt-5", "no provider")])
def test_model_that_cannot_be_asked_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    pytest.importorskip("pydantic_ai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    done = demo("--model", name, "--dir", str(tmp_path / "new"))
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_demo_without_the_extra_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent, "find_spec", lambda _: None)
    words = ["--dir", str(tmp_path / "new"), "--model", "openai:gpt-5"]
    assert program.demo.main(words, standalone_mode=False) == 1
    assert 'pip install "sayso[agent]"' in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_crash_story_takes_no_model(tmp_path: Path) -> None:
    done = demo("--crash", "--model", "openai:gpt-5", "--dir", str(tmp_path / "new"))
    assert done.returncode == 2
    assert "leave --model out" in done.stderr
    assert not (tmp_path / "new").exists()


# -- a person at the terminal ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_person_edits_a_path_and_rejects_with_a_reason_that_the_agent_prints(tmp_path: Path) -> None:
    with sits_before(tmp_path) as person:
        edits_path(person, "report-draft.md")
        person.sees("deleted report-draft.md")
        person.sees(MENU)
        person.types("r")
        person.sees("why? ")
        person.types("we need it")
        person.sees("does not do it: the call delete was rejected")
        assert "we need it" in person.sees("\n")
        place = at_its_end(person)
    assert place.present() == (set(program.FILES) - {"app.log", "report-draft.md"}) | ARCHIVE
    assert [state for _, _, state in story(place)] == [State.DONE, State.REJECTED]


@pytest.mark.slow
def test_person_approves_one_and_leaves_the_other_which_is_not_deleted(tmp_path: Path) -> None:
    with sits_before(tmp_path) as person:
        person.sees(MENU)
        person.types("a")
        person.sees("deleted report-final.md")
        person.sees(MENU)
        person.types("d")
        person.sees("still waits for a person")
        place = at_its_end(person)
    assert "contract.txt" in place.present()
    assert story(place)[1] == ("contract.txt", ["asked"], State.PENDING)
    assert processes_of(place.root) == []


@pytest.mark.slow
def test_person_decides_in_a_second_terminal(tmp_path: Path) -> None:
    with sits_before(tmp_path) as person:
        shown = person.sees(MENU)
        request_id = re.findall(r"rq_\w+", shown)[-1]
        address = program.Folder(tmp_path / "sayso-demo").address
        subprocess.run(
            [sys.executable, "-m", "sayso", "--store", address, "reject", request_id, "-m", "not this one"],
            check=True,
            capture_output=True,
        )
        person.sees("does not do it: the call delete was rejected")
        person.sees(MENU)
        person.types("a")
        assert deleted(at_its_end(person)) == ["contract.txt"]


@pytest.mark.slow
def test_person_decides_in_a_browser(tmp_path: Path) -> None:
    with sits_before(tmp_path) as person:
        said = re.search(r"or in a browser: (http://127\.0\.0\.1:\d+)/login\?token=(\S+)", person.sees(MENU))
        assert said is not None, person.screen
        base, token = said.groups()
        asked = Review(f"sqlite:///{tmp_path / 'sayso-demo' / 'sayso.db'}").list().requests[0]
        with httpx2.Client(base_url=base, headers={"origin": base}, follow_redirects=True) as browser:
            assert browser.post("/login", data={"token": token}).status_code == 200
            page = fields_of(browser.get(f"/r/{asked.id}").text)
            said_no = {"csrf": page["csrf"], "seen": page["seen"], "note": "not this one"}
            assert browser.post(f"/r/{asked.id}/reject", data=said_no).status_code == 200
        assert "not this one" in person.sees("not this one")
        person.sees(MENU)
        person.types("a")
        assert deleted(at_its_end(person)) == ["contract.txt"]


@pytest.mark.slow
def test_demo_without_the_inbox_is_decided_by_command(tmp_path: Path) -> None:
    place = program.make_folder(tmp_path)
    stage = program.Stage(place, with_person=False, with_inbox=False)
    try:
        program.tidy(stage)
    finally:
        stage.close()
    assert stage.link is None
    assert deleted(place) == ["report-draft.md"]


@pytest.mark.slow
def test_path_that_leaves_the_folder_is_not_deleted_also_when_it_was_approved(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with sits_before(tmp_path) as person:
        edits_path(person, "../../mine.txt")
        person.sees("could not do it: ../../mine.txt is not in the folder that is tidied")
        person.sees(MENU)
        person.types("a")
        place = at_its_end(person)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert [state for _, _, state in story(place)] == [State.FAILED, State.DONE]


@pytest.mark.slow
def test_person_decides_in_the_crash_story_and_says_what_happened(tmp_path: Path) -> None:
    with sits_before(tmp_path, "--crash") as person:
        for _ in range(2):
            person.sees(MENU)
            person.types("a")
        person.sees("Did the deletion happen?")
        person.types("y")
        place = at_its_end(person)
    assert [events for _, events, _ in story(place)] == [
        AS_ASKED,
        ["asked", "approved", "started", "unknown", "resolved"],
    ]
    assert deleted(place) == ["report-final.md", "old-backup.txt"]


@pytest.mark.slow
def test_wrong_word_about_what_happened_is_found_on_the_disk(tmp_path: Path) -> None:
    with sits_before(tmp_path, "--crash") as person:
        for _ in range(2):
            person.sees(MENU)
            person.types("a")
        person.sees("Did the deletion happen?")
        person.types("n")
        person.sees("WRONG: ")
        assert "is failed, and its call had 1 effects" in person.sees("\n")
        code, _ = person.ends()
    assert code == 1, person.screen


@pytest.mark.slow
def test_rejection_in_the_crash_story_leaves_nothing_to_crash_in(tmp_path: Path) -> None:
    with sits_before(tmp_path, "--crash") as person:
        for _ in range(2):
            person.sees(MENU)
            person.types("r")
            person.sees("why? ")
            person.types("")
        place = at_its_end(person)
    assert deleted(place) == []
    assert [state for _, _, state in story(place)] == [State.REJECTED, State.REJECTED]


@pytest.mark.slow
def test_foreign_change_in_the_folder_fails_the_count(tmp_path: Path) -> None:
    with sits_before(tmp_path) as person:
        person.sees(MENU)
        (tmp_path / "sayso-demo" / "files" / "report-draft.md").unlink()
        person.types("r")
        person.sees("why? ")
        person.types("")
        person.sees(MENU)
        person.types("d")
        person.sees("WRONG: report-draft.md is gone, and the ledger does not say so")
        code, _ = person.ends()
    assert code == 1, person.screen


# -- being stopped ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--crash",)], ids=["tidy", "crash"])
@pytest.mark.parametrize("how", ["ctrl-c", "terminated"])
def test_stopped_demo_leaves_no_process_and_decides_nothing(tmp_path: Path, how: str, words: tuple[str, ...]) -> None:
    with sits_before(tmp_path, *words) as person:
        person.sees(MENU)
        if how == "ctrl-c":
            person.presses(b"\x03")
        else:
            person.process.send_signal(signal.SIGTERM)
        code, _ = person.ends()
    assert code == (130 if how == "ctrl-c" else 128 + signal.SIGTERM), person.screen
    place = program.Folder(tmp_path / "sayso-demo")
    assert processes_of(place.root) == []
    assert story(place) == [("report-final.md", ["asked"], State.PENDING)]
    assert deleted(place) == []


@pytest.mark.slow
def test_agent_that_nobody_answers_is_ended_and_the_demo_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = program.make_folder(tmp_path)
    stage = program.Stage(place, with_person=False, with_inbox=False)
    agent = stage.start("report-final.md")
    stage.next_request(agent)
    monkeypatch.setattr(program, "PATIENCE", 2.0)
    with pytest.raises(program.DemoError, match="waited 2 seconds until the agent"):
        stage.must_end(agent)
    stage.close()
    assert agent.process.returncode == -signal.SIGKILL
    assert processes_of(place.root) == []
    assert deleted(place) == []


def test_commands_are_printed_so_that_they_work_where_nothing_is_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.shutil, "which", lambda _: None)
    for started, called in [("/x/.venv/bin/sayso", "/x/.venv/bin/sayso"), ("-m", f"{sys.executable} -m sayso")]:
        monkeypatch.setattr(sys, "argv", [started])
        assert program.command_for(config.open_store("sqlite:///a.db")).startswith(f"{called} --store sqlite:///")
    monkeypatch.setattr(program.shutil, "which", lambda _: "/usr/bin/sayso")
    assert program.command_for(config.open_store("sqlite:///a.db")).startswith("sayso --store")


# -- the count -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Any]:
    done = demo("--crash", "--dir", str(tmp_path_factory.mktemp("finished")))
    assert done.returncode == 0, done.stdout + done.stderr
    return done, made(done.stdout)


@pytest.fixture
def finished(crashed: tuple[Any, Any]) -> Any:
    return crashed[1]


@pytest.mark.slow
def test_receipts_of_a_demo_verify_offline_and_a_changed_byte_fails(finished: Any, tmp_path: Path) -> None:
    store = SqliteStore(str(finished.root / "sayso.db"))
    ids = [request.id for request in Review(store).list(state="all").requests]
    store.close()
    assert len(ids) == 2
    receipt = tmp_path / "receipt.json"
    for request_id in ids:
        assert run_sayso("--store", finished.address, "receipt", request_id, "-o", str(receipt)) == 0
        whole = receipt.read_bytes()
        assert run_sayso("receipt", "verify", str(receipt)) == 0
        at = whole.index(b"report-draft.md" if b"report-draft.md" in whole else b"old-backup.txt")
        receipt.write_bytes(whole[:at] + b"R" + whole[at + 1 :])
        assert run_sayso("receipt", "verify", str(receipt)) == 1
        receipt.unlink()


def run_sayso(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "sayso", *words], capture_output=True, check=False).returncode


def counted(place: Any) -> list[str]:
    store = SqliteStore(str(place.root / "sayso.db"))
    try:
        return program.counted(place, store)[1]
    finally:
        store.close()


def ledger_lines(change: Callable[[list[str]], list[str]]) -> Callable[[Any], None]:
    def lie(place: Any) -> None:
        lines = change(place.ledger.read_text().splitlines())
        place.ledger.write_text("".join(f"{line}\n" for line in lines))

    return lie


def in_the_store(statement: str) -> Callable[[Any], None]:
    def lie(place: Any) -> None:
        with closing(sqlite3.connect(place.root / "sayso.db")) as connection, connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f'DROP TRIGGER "{name}"')
            assert connection.execute(statement).rowcount == 1
        connection.close()

    return lie


LIES: dict[str, tuple[Callable[[Any], None], str]] = {
    "file gone": (lambda place: (place.files / "contract.txt").unlink(), "contract.txt is gone"),
    "file there": (lambda place: (place.files / "old-backup.txt").touch(), "old-backup.txt is there"),
    "done twice": (ledger_lines(lambda lines: [*lines, lines[-1]]), "its call had 2 effects"),
    "done by rule twice": (
        ledger_lines(lambda lines: [*lines, *(line for line in lines if "summary.txt" in line)]),
        "write archive/summary.txt was done 2 times",
    ),
    "not done": (ledger_lines(lambda lines: lines[:-1]), "its call had 0 effects"),
    "another file": (
        ledger_lines(lambda lines: [*lines[:-1], lines[-1].replace("old-backup", "contract")]),
        "was approved for old-backup.txt, and contract.txt was deleted",
    ),
    "nobody asked": (
        ledger_lines(lambda lines: [*lines, '{"did": "delete", "path": "contract.txt"}']),
        "delete contract.txt was done, and nobody was asked",
    ),
    "unknown request": (
        ledger_lines(lambda lines: [*lines, '{"did": "delete", "path": "contract.txt", "request": "rq_no"}']),
        "delete contract.txt was done for rq_no, which no record knows",
    ),
    "journal changed": (
        in_the_store("UPDATE journal SET event = 'rejected' WHERE event = 'unknown'"),
        "one of them was changed",
    ),
    "started twice": (
        in_the_store("UPDATE journal SET event = 'started' WHERE event = 'unknown'"),
        "was started 2 times",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_count_finds_what_is_not_as_promised(finished: Any, tmp_path: Path, lie: str) -> None:
    place = program.Folder(tmp_path / "copy")
    shutil.copytree(finished.root, place.root)
    assert counted(place) == []
    tell, found = LIES[lie]
    tell(place)
    assert any(found in problem for problem in counted(place)), counted(place)
