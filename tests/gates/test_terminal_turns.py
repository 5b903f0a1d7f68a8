"""What a blocking gate says where no conversation is possible, and whose turn it is where one is.

The conversation itself is driven by real terminals in `tests/gates/test_terminal_dialog.py`.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import sayso
from sayso import config, terminal
from sayso.gates import dialog, stderr
from sayso.model.request import Request, State
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import held


class Closed(io.StringIO):
    """A stream whose other end is gone."""

    def write(self, _: str, /) -> int:
        raise BrokenPipeError

    def fileno(self) -> int:
        raise ValueError("I/O operation on closed file")

    def isatty(self) -> bool:
        raise ValueError("I/O operation on closed file")


class Pretends(io.StringIO):
    """A stream that says it is a terminal, as Textual's do; `descriptor` says whether it is one."""

    def __init__(self, descriptor: int = -1) -> None:
        super().__init__()
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return True


def ask(*args: str, run: str | None = "order-4721", **options: object) -> Request:
    @sayso.gate(wait="raise", **options)  # type: ignore[call-overload, misc]
    def refund(order_id: str, amount: float = 320.0) -> str:
        return order_id

    with sayso.run(run), pytest.raises(sayso.ConfirmationRequired) as caught:
        refund(*(args or ("A-4721",)))
    return config.default_store().get(caught.value.confirmation_id)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    streams = capsys.readouterr()
    assert streams.out == "", "stdout belongs to the program"
    return streams.err.splitlines()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    sayso.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    return config.default_store()


# -- where the conversation comes from ---------------------------------------------------------------------------

# Each import is the first of a process; a forked child has what its parent had.
ENTRIES = (
    "sayso", "sayso.aio", "sayso.gates.dialog", "sayso.gates.wait", "sayso.gates.gated_call",
    "sayso.gates.gate", "sayso.runs.worker", "sayso.channels.human", "sayso.testing",
)  # fmt: skip
FIRST_IMPORTS = """
import importlib, os, sys
for entry in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sayso"]:
        del sys.modules[name]
    importlib.import_module(entry)
    if os.fork() == 0:
        from sayso.gates import dialog
        found = dialog._load()
        print(entry, found.__module__, found.__name__)
        sys.exit()
    os.wait()
"""


def test_a_call_that_blocks_finds_the_conversation_whatever_was_imported_first() -> None:
    ran = subprocess.run([sys.executable, "-c", FIRST_IMPORTS, *ENTRIES], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{entry} sayso.terminal converse" for entry in ENTRIES], ran.stderr


# -- is a person there -----------------------------------------------------------------------------------------


def test_nobody_is_there_without_terminals() -> None:
    assert not dialog.person_is_at_terminal()


@pytest.mark.parametrize("stream", [None, Closed()], ids=["none", "closed"])
@pytest.mark.parametrize("name", ["stdin", "stderr"])
def test_nobody_is_there_where_a_stream_is_missing(
    monkeypatch: pytest.MonkeyPatch, name: str, stream: io.StringIO | None
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, name, stream)
    assert not dialog.person_is_at_terminal()


def test_nobody_is_there_where_a_program_draws_over_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    primary, terminal = os.openpty()
    try:
        monkeypatch.setattr(sys, "stdin", Pretends(terminal))
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
        monkeypatch.setattr(sys, "stderr", Pretends(terminal))
        assert dialog.person_is_at_terminal()
        monkeypatch.setattr(sys, "stderr", Pretends())
        assert not dialog.person_is_at_terminal()
    finally:
        os.close(primary)
        os.close(terminal)


# -- announce --------------------------------------------------------------------------------------------------


def test_announce_names_the_call_the_end_and_the_command(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    request = ask(expires="90m")
    stderr.announce(config.default_store(), request)
    assert said(capsys) == [
        (
            'sayso  waiting for a person  refund(order_id="A-4721", amount=320.00)'
            f"   {request.id[:11]}   expires in 1h 30m"
        ),
        f"       decide with: sayso approve {request.id[:11]}",
    ]


def test_announce_names_the_store_where_a_plain_command_would_look_elsewhere(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ask()
    stderr.announce(store, request)
    assert said(capsys)[1] == f"       decide with: sayso --store {store.url} approve {request.id[:11]}"


def test_an_address_with_spaces_is_quoted_for_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sayso.configure(store=f"sqlite:///{tmp_path / 'my store.db'}")
    stderr.announce(config.default_store(), ask())
    assert f"sayso --store 'sqlite:///{tmp_path / 'my store.db'}' approve" in said(capsys)[1]


@pytest.mark.parametrize("where", ["environment", "relative", "file"])
def test_a_store_of_the_settings_is_named_because_they_may_not_count_where_the_command_is_typed(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "environment":
        monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{tmp_path / 'here.db'}")
    elif where == "relative":
        monkeypatch.setenv("SAYSO_STORE", "sqlite:///here.db")
    elif where == "file":
        (tmp_path / "sayso.toml").write_text('store = "sqlite:///here.db"\n', encoding="utf-8")
    request = ask()
    stderr.announce(config.default_store(), request)
    command = f"sayso --store sqlite:///{tmp_path / 'here.db'} approve {request.id[:11]}"
    assert said(capsys)[1] == f"       decide with: {command}"


def test_how_to_see_a_call_is_said_where_its_line_leaves_something_out(capsys: pytest.CaptureFixture[str]) -> None:
    @sayso.gate(wait="raise")
    def post(text: str) -> None: ...

    for length, rows in (
        (20, ["decide with: sayso approve {id}"]),
        (150, ["see all of it: sayso show {id}", "decide with: sayso approve {id}"]),
        (9_000, ["see all of it: sayso show --full {id}", "decide with: sayso approve {id} --seen FINGERPRINT"]),
    ):
        request = config.default_store().get(held(post, "word " * (length // 5)).confirmation_id)
        stderr.announce(config.default_store(), request)
        assert said(capsys)[1:] == [f"       {row.format(id=request.id[:11])}" for row in rows]


def test_a_store_in_memory_is_said_to_be_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    sayso.configure(store="memory:")
    stderr.announce(config.default_store(), ask())
    assert "only this program can decide it" in said(capsys)[1]


def test_a_question_is_announced_with_answer(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        sayso.ask("Which\x1b one?", wait="raise")
    request = store.get(caught.value.confirmation_id)
    stderr.announce(store, request)
    rows = said(capsys)
    assert 'question "Which<U+001B> one?"' in rows[0]
    assert rows[1] == "       warning: the question contains hidden characters (U+001B)"
    assert rows[2].endswith(f"answer {request.id[:11]} VALUE")


@pytest.mark.parametrize("stream", [None, Closed()], ids=["none", "closed"])
def test_a_closed_stderr_does_not_break_a_gate(
    store: Store, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None
) -> None:
    request = ask()
    monkeypatch.setattr(sys, "stderr", stream)
    stderr.announce(store, request)
    stderr.say_what_waits(store, request)


def test_a_settings_file_that_cannot_be_read_does_not_break_a_gate(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ask()
    (tmp_path / "sayso.toml").write_text("no = toml = at all", encoding="utf-8")
    stderr.announce(store, request)
    assert f"sayso --store {store.url} approve" in said(capsys)[1]


# -- goodbye ---------------------------------------------------------------------------------------------------


def test_goodbye_says_how_a_named_run_goes_on(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    request = ask(run="nightly clean-up, approved by the boss")
    stderr.say_what_waits(store, request)
    rows = said(capsys)
    assert rows[0].startswith(f"sayso  {request.id[:11]} still waits, expires in ")
    assert "decide with: sayso" in rows[1]
    assert 'the same call in the run "nightly clean-up, approved by the boss" finds the decision' in rows[2]


def test_goodbye_says_that_a_run_without_a_name_asks_anew(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    stderr.say_what_waits(store, ask(run=None))
    assert "a new start asks again" in said(capsys)[2]


# -- whose turn it is ------------------------------------------------------------------------------------------


def waiting_for_its_turn(store: Store, request: Request, is_over: Callable[[], bool]) -> list[Request]:
    """Converse in a thread while somebody else has the terminal; return what came of it."""
    came: list[Request] = []
    with terminal._turn:
        waiting = threading.Thread(target=lambda: came.append(terminal.converse(store, request, is_over)))
        waiting.start()
        waiting.join(30)
        assert not waiting.is_alive()
    return came


def test_who_waits_for_the_terminal_is_told_when_the_request_is_settled(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    request = ask()
    sayso.Review().approve(request.id, by="bob")
    (after,) = waiting_for_its_turn(store, request, lambda: store.get(request.id).state is not State.PENDING)
    assert after.state is State.APPROVED
    assert said(capsys) == []


def test_a_terminal_that_goes_away_detaches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask()
    monkeypatch.setattr(sys, "stderr", Closed())
    assert terminal.converse(store, request, lambda: False).state is State.PENDING
    assert not terminal._turn.locked()


# -- the dialog ------------------------------------------------------------------------------------------------


class Typed(terminal.Screen):
    """A screen at which these lines are typed; keeps what it shows."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lambda: False)
        self.shown, self._lines = list[str](), list(lines)

    def say(self, *rows: str) -> None:
        self.shown += rows

    def ask(self, prompt: str) -> str:
        self.shown.append(prompt)
        return self._lines.pop(0)

    def discard_input(self) -> None: ...


def decided_at(screen: Typed, store: Store, request: Request) -> Request:
    return terminal.Dialog(screen, sayso.Review(store, reviewer="ada"), request, {"s": "skip"}).run()[0]


def test_lists_and_objects_are_shown_as_they_are_typed(store: Store) -> None:
    @sayso.gate(wait="raise")
    def tag(names: list[str], sizes: dict[str, int], note: str) -> None: ...

    request = store.get(held(tag, ["a", "b"], {"x": 1}, "plain").confirmation_id)
    screen = Typed("e", '["a", "c"]', "", "", "y")
    assert decided_at(screen, store, request).effective.shown["names"] == ["a", "c"]
    asked = [row for row in screen.shown if row.endswith("]: ")]
    assert asked == ['names [["a", "b"]]: ', 'sizes [{"x": 1}]: ', 'note ["plain"]: ']


def test_a_request_whose_program_is_gone_can_be_cancelled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    request, left = ask(), ask()
    there = Typed("s")
    decided_at(there, store, request)
    assert "cancel" not in "".join(there.shown)
    monkeypatch.setattr(sayso.Review, "program_is_gone", lambda *_: True)
    gone = Typed("c", "nobody is there")
    after = decided_at(gone, store, left)
    assert "c cancel" in "".join(gone.shown)
    assert (after.state, after.decision and after.decision.comment) == (State.CANCELLED, "nobody is there")
