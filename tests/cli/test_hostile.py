"""Text that wants to deceive: whatever a program or a person wrote, nothing of it reaches the terminal raw.

`sayso(...)` itself fails when a raw hidden character is in the output; here every field carries them, and is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import sayso as package
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.stores.base import Store
from tests.support.acting import held
from tests.support.commands import HIDDEN, Done, ask_question, ask_refund, get, sayso, start

SHOWN = "<U+001B>[31m<U+202E><U+200B><U+009B><U+E0041><U+3164>"
FAKE = "x\nrq_00000000 approved   amount  1 -> 2\rerror: nothing"


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


@pytest.fixture
def hostile() -> Request:
    """A request with hidden characters wherever a program may put text."""

    @package.gate(
        wait="raise", prompt=f"please {HIDDEN}\n{FAKE}", description=f"nice {HIDDEN}{FAKE}", risk=f"low {HIDDEN}{FAKE}",
        when=lambda: package.policy.hold(f"because {HIDDEN}{FAKE}"),
    )  # fmt: skip
    def post(note: str, extra: dict[str, str], **more: str) -> str:
        return note

    post_with = {f"key {HIDDEN} {FAKE}": "v"}
    with package.run("a run, on behalf of the boss"):
        signal = held(post, f"{HIDDEN}{FAKE}", {f"{HIDDEN}": f"{HIDDEN}{FAKE}"}, **post_with)
    return get(signal.confirmation_id)


def is_clean(done: Done) -> bool:
    lines = (done.out + done.err).split("\n")
    return not any(line.lstrip().startswith(("rq_00000000", "error: nothing")) for line in lines)


def test_ls_and_show_escape_everything_and_warn(hostile: Request) -> None:
    listed, shown, full = sayso("ls"), sayso("show", hostile.id), sayso("show", "--full", hostile.id)
    assert all(map(is_clean, (listed, shown, full)))
    assert "! contains hidden or look-alike characters" in listed.out
    assert SHOWN in shown.out
    for what in ("argument note: ", "the prompt ", "the description ", "the risk ", "the rule "):
        assert f"warning: {what}contains hidden characters (U+001B, U+202E" in shown.out
    assert 'in run         "a run, on behalf of the boss"' in shown.out
    assert "the program says, unverified:" in shown.out
    assert shown.out.index("note") < shown.out.index("the program says")


def test_json_escapes_and_keeps_every_character(hostile: Request) -> None:
    done = sayso("show", "--json", hostile.id)
    assert done.out.isascii()
    assert done.data["arguments"]["note"] == HIDDEN + FAKE
    assert done.data["prompt"] == f"please {HIDDEN}\n{FAKE}"
    assert len(done.data["warnings"]) >= 5


def test_comments_results_and_errors_are_escaped(hostile: Request) -> None:
    review = package.Review(channel=f"chat {HIDDEN}{FAKE}")
    review.approve(hostile.id, by="bob", changes={"note": f"new {HIDDEN}{FAKE}"}, comment=f"ok {HIDDEN}{FAKE}")
    start(hostile, Outcome("failed", error=f"ValueError: {HIDDEN}{FAKE}"))
    for done in (sayso("show", hostile.id), sayso("log"), sayso("ls", "--all"), sayso("reject", hostile.id)):
        assert is_clean(done)
    shown = sayso("show", hostile.id).out
    assert f'error "ValueError: {SHOWN}' in shown
    assert f'"ok {SHOWN}' in shown


def test_a_hostile_comment_from_the_command_line_is_kept_and_escaped(hostile: Request) -> None:
    done = sayso("reject", hostile.id, "-m", f"no {HIDDEN}{FAKE}")
    assert (done.code, is_clean(done), f'"no {SHOWN}' in done.out) == (0, True, True)
    decision = get(hostile.id).decision
    assert decision is not None
    assert decision.comment == f"no {HIDDEN}{FAKE}"


@pytest.mark.parametrize(
    "words",
    [
        ("show", f"rq_{HIDDEN}{FAKE}"),
        ("approve", "ID", "--set", f"{HIDDEN}{FAKE}=1"),
        ("approve", "ID", "--set", f"{HIDDEN}{FAKE}"),
        ("approve", "ID", "--as", f"{HIDDEN}{FAKE}"),
        ("approve", "ID", "--role", f"{HIDDEN}{FAKE}", "--seen", f"{HIDDEN}{FAKE}"),
        ("approve", "ID", f"--{HIDDEN}{FAKE}"),
        (f"{HIDDEN}{FAKE}",),
        ("ls", "--cursor", f"{HIDDEN}{FAKE}"),
        ("ls", "--state", f"{HIDDEN}{FAKE}"),
        ("extend", "ID", f"{HIDDEN}{FAKE}"),
        ("log", "--request", f"{HIDDEN}{FAKE}"),
        ("--store", f"sqlite:////nowhere/{HIDDEN}{FAKE}", "show", "rq_1"),
        ("--store", f"{HIDDEN}{FAKE}", "ls"),
    ],
)
def test_errors_escape_what_was_typed(words: tuple[str, ...]) -> None:
    request = ask_refund()
    done = sayso(*(request.id if word == "ID" else word for word in words))
    assert done.code in {1, 2, 3}
    assert is_clean(done)
    assert get(request.id).state is State.PENDING


def test_a_hostile_question_is_escaped() -> None:
    request = ask_question(f"Which?{HIDDEN}\n{FAKE}", choices=[f"berlin{HIDDEN}{FAKE}", "lyon"])
    shown = sayso("show", request.id)
    assert is_clean(shown)
    assert "warning: the question contains hidden characters" in shown.out
    wrong = sayso("answer", request.id, "paris")
    assert (wrong.code, is_clean(wrong)) == (1, True)


def test_a_journal_that_was_written_by_hand_is_escaped(hostile: Request, store: Store) -> None:
    import sqlite3

    store.close()
    path = store.url.removeprefix("sqlite:///")
    nasty = f"{HIDDEN}{FAKE}"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER journal_is_not_updated")
        connection.execute("UPDATE journal SET event = ?, by = ?, channel = ?, detail = ?", (nasty,) * 4)
    connection.close()
    for done in (sayso("log"), sayso("log", "--json"), sayso("show", hostile.id), sayso("log", "--verify")):
        assert is_clean(done)
