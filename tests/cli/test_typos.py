"""Slips at the command line: a mistyped id, store, run or editor is told, and passes for nothing that there is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest

import sayso as package
from sayso.cli import main
from sayso.model.request import State
from sayso.stores.base import Store
from tests.support.commands import ask_question, ask_refund, get, sayso, start

PLAN = "plan:550e8400-e29b-41d4-a716-446655440001"


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


class Told:
    """Runs a command in this process, and returns its exit code and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(words)
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


# -- ids -----------------------------------------------------------------------------------------------------------

VERBS = (
    ("approve",), ("reject",), ("cancel",), ("feedback", "-m", "no"), ("claim",), ("release",), ("extend", "1h"),
    ("resolve", "--happened"), ("answer", "x"),
)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("cut", [slice(0, 6), slice(3, 4)], ids=["rq_ and three", "one"])
def test_a_slip_of_the_finger_decides_nothing(told: Told, verb: tuple[str, ...], cut: slice) -> None:
    request = ask_question() if verb[0] == "answer" else ask_refund()
    if verb[0] == "resolve":
        package.Review().approve(request.id)
        request = start(request)
    name, *rest = verb
    code, said, complaint = told(name, request.id[cut], *rest)
    assert (code, said) == (1, "")
    assert f"{request.id[cut]!r} is too short an id to decide on; nothing was decided." in complaint
    assert get(request.id) == request


def test_four_characters_of_an_id_decide_and_one_is_enough_to_look(told: Told) -> None:
    request = ask_refund()
    assert told("show", request.id[3])[0] == 0
    assert told("approve", request.id[3:7])[0] == 0
    assert get(request.id).state is State.APPROVED


# -- stores and runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["sqlite:///{}", "jsonl:{}"])
def test_looking_makes_no_store_and_no_folder(told: Told, tmp_path: Path, address: str) -> None:
    place = tmp_path / "mistyped" / "store"
    where = address.format(place)
    code, said, complaint = told("--store", where, "ls")
    assert (code, said, f"there is no store at {place}" in complaint) == (0, "no open requests\n", True)
    for words in (("log",), ("log", "--verify"), ("log", "export"), ("show", "rq_1234"), ("approve", "rq_1234")):
        code, said, complaint = told("--store", where, *words)
        assert (code, said, f"there is no store at {place}" in complaint) == (1, "", True), words
    assert not place.parent.exists()


NO_RUN = "no run 'nope' is in this store; a run is stored when it first pauses\n"


@pytest.mark.parametrize("words", [(), ("--json",), ("--verify",), ("export",)], ids="".join)
def test_a_run_that_there_is_not_is_told_and_is_not_whole(told: Told, words: tuple[str, ...]) -> None:
    ask_refund(run="order-1")
    assert told("log", *words, "--run", "order-1")[0] == 0
    assert told("log", *words, "--run", "nope") == (1, "", f"error: {NO_RUN}")


def test_ls_of_a_run_that_there_is_not_says_so_and_ends_well(told: Told) -> None:
    ask_refund(run="order-1")
    assert told("ls", "--run", "nope") == (0, "no open requests\n", NO_RUN)
    package.Review().reject(ask_refund(run="order-2").id)
    assert told("ls", "--run", "order-2") == (0, "no open requests\n", "")


def test_a_run_that_was_removed_is_broken_where_a_checkpoint_knows_it(told: Told, store: Store) -> None:
    request = ask_refund(run="order-1")
    assert told("log", "--checkpoint")[0] == 0
    with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DROP TRIGGER journal_is_not_deleted")
        connection.execute("DELETE FROM journal WHERE run_id = 'order-1'")
        connection.execute("DELETE FROM request WHERE id = ?", (request.id,))
    connection.close()
    code, said, complaint = told("log", "--verify", "--run", "order-1")
    assert (code, "BROKEN  run order-1" in said, complaint) == (1, True, "")


# -- ids of runs, and columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [PLAN, PLAN.replace("plan", "confirm"), "r" * 48])
def test_a_run_s_id_stands_whole_where_people_copy_it(told: Told, run: str) -> None:
    request = ask_refund(run=run)
    for words in (("ls",), ("log",), ("show", request.id)):
        assert run in told(*words)[1], words


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("token", "new"), "error: Missing option '--kind': ask, review or admin\n"),
        (("receipt",), "error: Missing argument 'ID'.\n"),
        (("serve", "--port", "80x"), "error: Invalid value for '--port': '80x' is not a valid whole number.\n"),
        (("ls", "--limit", "many"), "error: Invalid value for '--limit': 'many' is not a valid whole number.\n"),
        (("log", "--limit", "0"), "error: Invalid value for '--limit': 0 is not in the range x>=1.\n"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_an_option_that_is_missing_or_wrong_is_told_in_plain_words(
    told: Told, words: tuple[str, ...], said: str
) -> None:
    code, printed, complaint = told(*words)
    assert (code, printed, complaint.splitlines(keepends=True)[0]) == (2, "", said)
    assert len(complaint.splitlines()) == 2


def test_a_key_that_cannot_be_read_is_told_without_a_word_of_what_was_not_wanted(told: Told) -> None:
    code, _, complaint = told("key", "show", "nofile")
    assert (code, "the key nofile cannot be read (No such file or directory)" in complaint) == (1, True)
    assert "nothing was signed" not in complaint


def test_delivering_to_no_channel_ends_at_once(told: Told) -> None:
    code, printed, complaint = told("notify")
    assert (code, printed) == (1, "")
    assert "no channel is configured, so nobody can be notified" in complaint


def test_a_demo_that_has_no_place_says_where_and_what_to_do(told: Told, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    code, _, complaint = told("demo", "--dir", str(taken / "below"))
    assert (code, "Errno" in complaint) == (1, False)
    assert f"cannot be made in {taken / 'below'} (Not a directory); name another with --dir" in complaint


# -- the editor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("editor", "why"),
    [
        ("false", "false: Editing failed"),
        ("/no/such/editor", "No such file or directory"),
        ("'vi", "No closing quotation"),
    ],
)
def test_an_editor_that_fails_decides_nothing_and_the_way_out_is_told(editor: str, why: str) -> None:
    request = ask_refund()
    done = sayso("approve", request.id, "--edit", EDITOR=editor)
    assert (done.code, done.out) == (1, "")
    assert "error: the editor failed (" in done.err
    assert why in done.err
    assert "); set EDITOR to another one, or change arguments with --set" in done.err
    assert "nothing was decided" in done.err
    assert get(request.id) == request


def test_what_an_editor_saved_in_no_encoding_of_ours_decides_nothing(tmp_path: Path) -> None:
    script = tmp_path / "editor.sh"
    script.write_text("#!/bin/sh\nprintf '{\\377' > \"$1\"\ntouch -d '2100-01-01' \"$1\"\n", encoding="utf-8")
    request = ask_refund()
    done = sayso("approve", request.id, "--edit", EDITOR=f"sh {script}")
    assert (done.code, "what the editor saved is not UTF-8" in done.err) == (1, True)
    assert get(request.id) == request


# -- help ----------------------------------------------------------------------------------------------------------


def every_command() -> list[tuple[str, ...]]:
    from sayso.cli import _COMMANDS, _sayso  # pyright: ignore[reportPrivateUsage]  there is no other list

    context = click.Context(_sayso)
    found: list[tuple[str, ...]] = [()]
    for name in _COMMANDS:
        command = _sayso.get_command(context, name)
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, below) for below in command.commands]
    return found


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_no_help_is_cut_short_or_wider_than_a_terminal(
    told: Told, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, said, _ = told(*command, "--help")
    usage, *rows = said.splitlines()
    assert (code, usage.startswith("Usage: sayso")) == (0, True)
    assert not [row for row in rows if row.endswith("...") or len(row) > 80]


def test_help_of_ls_says_what_states_there_are(told: Told) -> None:
    said = " ".join(told("ls", "--help")[1].split())
    assert "--state STATE Only requests in this state; repeatable. One of pending, approved," in said
    assert all(state in said for state in State)


def test_help_of_receipt_names_its_option(told: Told) -> None:
    assert "--output" in told("receipt", "--help")[1]
