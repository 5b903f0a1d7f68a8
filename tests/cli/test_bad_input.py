"""Bad input at the command line: each says what happened, that nothing was decided and what to do, and decides nothing.

One row of the table is one command; after it the request must stand exactly as before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sayso as package
from sayso import clock as sayso_clock
from sayso.model.request import Request, State
from sayso.stores.base import Store
from tests.support.acting import held
from tests.support.commands import ask_question, ask_refund, get, sayso
from tests.support.evidence import as_somebody_with_the_file


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


def decided() -> Request:
    request = ask_refund()
    return package.Review(channel="chat").approve(request.id, by="bob")


def expired() -> Request:
    with sayso_clock.use(lambda: datetime.now(UTC) - timedelta(days=2)):
        return ask_refund()


def expired_approval() -> Request:
    with sayso_clock.use(lambda: datetime.now(UTC) - timedelta(days=2)):
        return package.Review().approve(ask_refund().id, by="bob")


def with_role() -> Request:
    @package.gate(wait="raise", roles=["finance"])
    def wire(amount: int) -> int:
        return amount

    with package.run("order-4721"):
        return get(held(wire, 10).confirmation_id)


def own() -> Request:
    with package.run("order-4721", on_behalf_of="ada"):

        @package.gate(wait="raise")
        def wire(amount: int) -> int:
            return amount

        return get(held(wire, 10).confirmation_id)


def claimed() -> Request:
    return package.Review().claim(ask_refund().id, by="bob")


def question() -> Request:
    return ask_question(choices=["berlin", "lyon"])


def number() -> Request:
    return ask_question(type=int)


class Row(NamedTuple):
    """A command on a request, the exit code, and what the complaint says of `{id}`, `{short}` as it is shown."""

    asked: Callable[[], Request]
    words: tuple[str, ...]
    code: int
    said: tuple[str, ...]


ROWS = {
    "unknown id": Row(
        ask_refund, ("approve", "rq_nowhere"), 1,
        ("no request 'rq_nowhere'", "nothing was decided", "sayso ls --all"),
    ),
    "no id at all": Row(ask_refund, ("approve", "rq_"), 1, ("no request", "nothing was decided")),
    "decided": Row(
        decided, ("reject", "{id}"), 3,
        ("request {short} was already approved by 'bob' (chat,", "nothing changed", "sayso show {short}`"),
    ),
    "expired": Row(expired, ("approve", "{id}"), 4, ("expired 1 day ago", "nothing was decided", "ask again")),
    "expired, answered": Row(expired, ("reject", "{id}", "-m", "no"), 4, ("expired", "nothing was decided")),
    "an approval that expired": Row(
        expired_approval, ("cancel", "{id}"), 4,
        ("expired 1 day ago", "nothing was decided"),
    ),
    "an edit that does not fit": Row(
        ask_refund, ("approve", "{id}", "--set", "amount=900"), 1,
        ("amount: ", "the maximum of 500", "nothing was decided", "try again"),
    ),
    "an edit of another type": Row(
        ask_refund, ("approve", "{id}", "--set", "amount=much"), 1,
        ("amount: ", "nothing was decided"),
    ),
    "no such argument": Row(
        ask_refund, ("approve", "{id}", "--set", "amonut=1"), 1,
        ("amonut: there is no such argument", "amount", "nothing was decided"),
    ),
    "not name=value": Row(ask_refund, ("approve", "{id}", "--set", "amount"), 2, ("not NAME=VALUE", "--help")),
    "an answer that is no choice": Row(
        question, ("answer", "{id}", "paris"), 1,
        ("berlin", "lyon", "{short} still waits"),
    ),
    "an answer of another type": Row(number, ("answer", "{id}", "soon"), 1, ("integer", "{short} still waits")),
    "an answer to a call": Row(
        ask_refund, ("answer", "{id}", "yes"), 1,
        ("is a call", "approve", "Nothing was decided"),
    ),
    "approving a question": Row(question, ("approve", "{id}"), 1, ("is a question", "answer", "Nothing was decided")),
    "arguments for a question": Row(
        question, ("approve", "{id}", "--set", "answer=x"), 1,
        ("is a question", "Nothing was decided"),
    ),
    "missing role": Row(
        with_role, ("approve", "{id}"), 1,
        ("'ada' needs the role 'finance'", "nothing was decided", "--role finance", "does not know who else has it"),
    ),
    "another role": Row(with_role, ("approve", "{id}", "--role", "sales"), 1, ("needs the role 'finance'",)),
    "own request": Row(
        own, ("approve", "{id}"), 1,
        ("'ada' asked for {short} and cannot decide it", "somebody else", "nothing was decided"),
    ),
    "own request, other letters": Row(
        own, ("approve", "{id}", "--as", "ADA"), 1,
        ("asked for {short} and cannot decide",),
    ),
    "claimed": Row(claimed, ("approve", "{id}"), 1, ("was claimed by 'bob'", "nothing was decided", "release --force")),
    "no name": Row(ask_refund, ("approve", "{id}", "--as", " "), 2, ("--as", "empty", "--help")),
    "no role": Row(ask_refund, ("approve", "{id}", "--role", "a\u200bb"), 2, ("--role", "invisible", "--help")),
    "no role of a named one": Row(ask_refund, ("claim", "{id}", "--as", "bob", "--role", ""), 2, ("--role", "empty")),
    "not unknown": Row(
        ask_refund, ("resolve", "{id}", "--happened"), 3,
        ("is pending, its outcome is not unknown", "sayso show {short}`"),
    ),
    "happened or not": Row(ask_refund, ("resolve", "{id}"), 2, ("--happened", "--help")),
    "not claimed": Row(ask_refund, ("release", "{id}"), 1, ("is not claimed", "nothing changed")),
    "no duration": Row(ask_refund, ("extend", "{id}", "soon"), 2, ("'soon' is not a duration", "'90s'")),
    "feedback without words": Row(ask_refund, ("feedback", "{id}"), 2, ("--message",)),
    "set and edit": Row(ask_refund, ("approve", "{id}", "--set", "amount=1", "--edit"), 2, ("not both",)),
    "one edit for two": Row(ask_refund, ("approve", "{id}", "{id}", "--set", "amount=1"), 2, ("need exactly one ID",)),
    "next without a terminal": Row(ask_refund, ("next",), 2, ("needs a terminal", "approve")),
    "no such command": Row(
        ask_refund, ("aprove", "{id}"), 2,
        ("No such command 'aprove'", "did you mean approve?", "--help"),
    ),
    "a command's other name": Row(ask_refund, ("pending",), 2, ("No such command 'pending'", "did you mean ls?")),
    "no command at all like it": Row(ask_refund, ("xyzzy",), 2, ("No such command 'xyzzy'", "--help")),
    "a bool for a number": Row(
        ask_refund, ("approve", "{id}", "--set", "amount=true"), 1,
        ('amount: Input is not of type "number"', "nothing was decided"),
    ),
    "no such state": Row(ask_refund, ("ls", "--state", "waiting"), 2, ("'waiting'", "pending")),
    "no such cursor": Row(ask_refund, ("ls", "--cursor", "12"), 2, ("'12' is not a cursor of this list",)),
    "a cursor of letters": Row(ask_refund, ("ls", "--cursor", "0.x"), 2, ("is not a cursor of this list",)),
    "verifying a request": Row(ask_refund, ("log", "--verify", "--request", "{id}"), 2, ("checks whole runs",)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_bad_input_is_explained_and_decides_nothing(name: str) -> None:
    row = ROWS[name]
    before = row.asked()
    package.Review().get(before.id)  # an end that was reached is written by whoever looks, which is no decision
    before = get(before.id)
    done = sayso(*(word.format(id=before.id) for word in row.words))
    assert (done.code, done.out) == (row.code, ""), done.err
    assert all(said.format(id=before.id, short=before.id[:11]) in done.err for said in row.said), done.err
    assert before.id not in done.err
    assert len(done.err.splitlines()) <= 2
    assert get(before.id) == before


@pytest.mark.parametrize("words", [("show", "rq_nowhere"), ("show", "rq_")], ids=" ".join)
def test_a_command_that_only_looks_does_not_say_that_nothing_was_decided(words: tuple[str, ...]) -> None:
    ask_refund()
    done = sayso(*words)
    assert (done.code, "no request" in done.err, "decided" in done.err) == (1, True, False), done.err


def test_settings_that_cannot_be_used_end_what_decides_with_that_word_and_what_looks_without() -> None:
    said = {words: sayso("--store", "mysql://x", *words).err for words in (("approve", "rq_1"), ("ls",))}
    assert all("is not the address of a store" in err for err in said.values())
    assert ["nothing was decided" in err for err in said.values()] == [True, False]


@pytest.mark.parametrize("command", ["approve", "show"])
def test_a_slip_in_an_id_is_told_which_was_meant(command: str) -> None:
    request = ask_refund()
    record = request.id[:9] + ("zz" if command == "show" else "z" + request.id[10])
    assert f"did you mean {request.id[:11]}?" in sayso(command, record).err
    assert "did you mean" not in sayso(command, "rq_zzzzzzzz").err
    assert get(request.id).state is State.PENDING


def test_a_hint_goes_to_the_store_that_was_named(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    request = decided()
    monkeypatch.delenv("SAYSO_STORE")
    done = sayso("--store", file_store.url, "reject", request.id)
    assert f"`sayso --store {file_store.url} show {request.id[:11]}`" in done.err


def test_an_expired_request_is_refused_by_whoever_meets_it_first() -> None:
    request = expired()
    assert request.state is State.PENDING
    assert sayso("approve", request.id).code == 4
    assert get(request.id).state is State.EXPIRED


def test_an_ambiguous_prefix_names_what_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(["7777" + "0" * 28, "7777" + "1" * 28, "8" + "0" * 31])
    monkeypatch.setattr("sayso.model.ids.new_token", lambda: next(ids))
    first, second, third = ask_refund("A-1"), ask_refund("A-2"), ask_refund("A-3")
    done = sayso("approve", "rq_7777")
    assert done.code == 1
    assert all(said in done.err for said in (first.id, second.id, "give more of the id", "nothing was decided"))
    assert third.id not in done.err
    assert {get(first.id).state, get(second.id).state} == {State.PENDING}
    assert sayso("reject", "77770").code == 0
    assert get(first.id).state is State.REJECTED


# -- stores that cannot be opened ------------------------------------------------------------------------------


def a_folder(path: Path) -> None:
    path.mkdir()


def not_a_store(path: Path) -> None:
    path.write_text("a letter to somebody\n" * 100, encoding="utf-8")


def another_database(path: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def a_newer_store(path: Path) -> None:
    from sayso.stores.sqlite import SqliteStore

    store = SqliteStore(path)
    store.sweep()
    store.close()
    import sqlite3

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()


def nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (a_folder, "cannot be opened"),
        (not_a_store, "not a sayso store"),
        (another_database, "another program's database"),
        (a_newer_store, "written by a newer sayso"),
        (nothing, "there is no store at"),
    ],
    ids=["folder", "text", "foreign", "newer", "missing"],
)
def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path, make: Callable[[Path], Any], said: str) -> None:
    path = tmp_path / "other.db"
    make(path)
    content = path.read_bytes() if path.is_file() else None
    for words in (("approve", "rq_1234"), ("show", "rq_1234"), ("log",)):
        done = sayso("--store", f"sqlite:///{path}", *words)
        assert (done.code, said in done.err, str(path) in done.err, done.out) == (1, True, True, ""), done.err
        assert "sayso doctor" in done.err
    doctor = sayso("--store", f"sqlite:///{path}", "doctor")
    assert (doctor.code, said in doctor.out) == (1, True)
    assert (path.read_bytes() if path.is_file() else None) == content


def test_a_command_makes_no_store(tmp_path: Path) -> None:
    path = tmp_path / "mistyped.db"
    done = sayso("--store", f"sqlite:///{path}", "ls")
    assert (done.code, done.out, "there is no store at" in done.err) == (0, "no open requests\n", True)
    assert sayso("--store", f"sqlite:///{path}", "ls", "--json").data == {"requests": [], "cursor": None}
    assert not path.exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("memory:", "can see a store in memory"),
        ("mysql://x", "is not the address of a store"),
        ("", "is not the address of a store"),
    ],
)
def test_an_address_that_names_no_store_is_refused(address: str, said: str) -> None:
    done = sayso("--store", address, "approve", "rq_1")
    assert (done.code, said in done.err) == (1, True), done.err


def test_a_settings_file_with_a_slip_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAYSO_STORE")
    (tmp_path / "sayso.toml").write_text("stroe = 'x'\n", encoding="utf-8")
    done = sayso("ls")
    assert (done.code, "stroe" in done.err, "sayso.toml" in done.err) == (1, True, True)


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="arguments are bytes there")
def test_an_argument_that_is_no_text_is_refused() -> None:
    request = ask_refund()
    done = subprocess.run(
        [sys.executable, "-m", "sayso", "reject", request.id, "-m", b"\xff\xfe"], capture_output=True, check=False
    )
    assert (done.returncode, b"not valid UTF-8" in done.stderr) == (2, True)
    assert get(request.id).state is State.PENDING


@pytest.mark.parametrize(
    "altered",
    ["at = 9223372036854775807", "at = 'then'", "by = x'ff'", "event = x'ff'", "detail = x'00'",
     f"detail = '{'[' * 100_000}'"],
    ids=["at-huge", "at-text", "by-bytes", "event-bytes", "detail-bytes", "detail-deep"],
)  # fmt: skip
def test_an_altered_row_of_the_journal_is_shown_and_never_a_traceback(store: Store, altered: str) -> None:
    request = ask_refund()
    with as_somebody_with_the_file(Path(store.url.removeprefix("sqlite:///"))) as connection:
        connection.execute(f"UPDATE journal SET {altered}")  # noqa: S608  our own words
    for words in (["log"], ["log", "--json"], ["show", request.id], ["show", request.id, "--json"]):
        done = sayso(*words)
        assert done.code == 0, done.err
        assert done.out
    assert sayso("log", "--verify").code == 1
