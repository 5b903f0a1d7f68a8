"""A person at the terminal of a program that blocks: real processes on a pseudo-terminal, every letter of the menu.

The program prints what its gated call returned or raised, on a stdout of its own; the store tells what was decided.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sayso.model.request import Request, State
from sayso.reviews import Review
from sayso.stores.base import Store
from tests.support.acting import AHELD, HELD
from tests.support.person import Person

MENU = "d detach   (then enter)\n> "
AGO = r"(just now|\d+ s ago)"  # a busy machine may stop a process between what it decides and what it shows
PROGRAM = """
import sayso, sys
from typing import Annotated
from pydantic import Field

@sayso.gate({options})
def refund(
    order_id: str, amount: Annotated[float, Field(le=500)] = 320.0, reason: str = "", api_key: str = "hunter2-hunter2"
) -> str:
    "Pay money back to a customer."
    return f"refunded {{amount:.2f}} for {{order_id}} {{reason!r}} {{api_key}}"

with sayso.run("order-4721"{run}):
    try:
        print({call})
    except sayso.ConfirmationRequired as held:
        print("waits", held.confirmation_id)
    except sayso.ConfirmationRejected as no:
        print(type(no).__name__, no)
"""


LATER = """
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sayso import clock
later = clock.use(lambda: datetime.now(UTC) + timedelta(hours=2 * Path("later").exists()))
later.__enter__()
"""


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


def at_terminal(text: str, **kept: object) -> Person:
    Path("program.py").write_text(text, encoding="utf-8")
    return Person("program.py", env={**os.environ}, cwd=Path.cwd(), is_forked=True, **kept)  # type: ignore[arg-type]


def program(call: str = 'refund("A-4721")', options: str = "", run: str = "") -> Person:
    return at_terminal(PROGRAM.format(call=call, options=options, run=run))


def the_request() -> Request:
    (request,) = Review().list(state="all").requests
    return request


def test_approve_runs_the_call_and_leaves_stdout_to_the_program() -> None:
    with program() as person:
        shown = person.sees(MENU)
        assert 'order_id  "A-4721"' in shown
        assert "amount    320.00" in shown
        assert "hunter2" not in shown
        assert 'description  "Pay money back to a customer."' in shown
        assert "in run         order-4721" in shown
        assert "no answer means no" in shown
        person.types("a")
        assert person.ends() == (0, "refunded 320.00 for A-4721 '' hunter2-hunter2\n")
        assert re.search(rf"approved by ada \(terminal, {AGO}\)", person.screen)
    decision = the_request().decision
    assert decision is not None
    assert (decision.by.subject, decision.channel) == ("ada", "terminal")


def test_edit_asks_for_each_argument_and_shows_the_changes_before_it_approves() -> None:
    with program() as person:
        person.sees(MENU)
        person.types("e")
        person.sees('order_id ["A-4721"]: ')
        person.types("")
        person.sees("amount [320.00]: ")
        person.types("much")
        assert "amount: " in person.sees("amount [320.00]: ")
        person.types("80")
        person.sees('reason [""]: ')
        person.types("damaged")
        person.sees("api_key [***]: ")
        person.types("")
        changes = person.sees("run refund with these arguments? [y/n] ")
        assert "amount  320.00 -> 80.00" in changes
        assert 'reason  "" -> "damaged"' in changes
        assert the_request().state is State.PENDING
        person.types("y")
        assert person.ends() == (0, "refunded 80.00 for A-4721 'damaged' hunter2-hunter2\n")


def test_an_edit_that_is_not_confirmed_or_does_not_fit_decides_nothing() -> None:
    with program() as person:
        dropped = False
        for amount, after in (("80", "[y/n] "), ("900", "the maximum of 500")):
            dropped = "the changes were dropped, nothing was decided" in person.sees(MENU)
            person.types("e")
            for prompt, typed in (("order_id [", ""), ("amount [", amount)):
                person.sees(prompt)
                person.types(typed)
            if after == "[y/n] ":
                for prompt in ("reason [", "api_key ["):
                    person.sees(prompt)
                    person.types("")
            person.sees(after)
            assert the_request().state is State.PENDING
            person.types("n" if after == "[y/n] " else "")
        assert dropped
        person.sees("reason [")
        person.types("")
        person.sees("api_key [")
        person.types("")
        assert "nothing was changed" in person.sees(MENU)
        person.types("d")
        person.ends()
    assert the_request().state is State.PENDING


def test_reject_tells_the_program_why() -> None:
    with program() as person:
        person.sees(MENU)
        person.types("r")
        person.sees("why? ")
        person.types("too much")
        code, out = person.ends()
    assert (code, out.startswith("ConfirmationRejected"), "too much" in out) == (0, True, True)
    assert the_request().state is State.REJECTED


def test_feedback_needs_words() -> None:
    with program() as person:
        person.sees(MENU)
        person.types("f")
        person.sees("instead? ")
        person.types("")
        assert "nothing was sent back" in person.sees(MENU)
        person.types("feedback")
        person.sees("instead? ")
        person.types("ask the customer")
        code, out = person.ends()
    assert (code, out.startswith("ConfirmationFeedback"), "ask the customer" in out) == (0, True, True)


@pytest.mark.parametrize("key", ["d\n", "\x04"], ids=["d", "end of input"])
def test_detach_leaves_it_pending_and_says_how_to_go_on(key: str, store: Store) -> None:
    with program() as person:
        person.sees(MENU)
        person.presses(key.encode())
        code, out = person.ends()
        request = the_request()
        assert (code, out) == (0, f"waits {request.id}\n")
        assert f"decide with: sayso --store {store.url} approve {request.id[:11]}" in person.screen
        assert "the same call in the run order-4721" in person.screen
    assert request.state is State.PENDING
    Review().approve(request.id, by="bob")
    with program() as person:
        assert person.ends() == (0, "refunded 320.00 for A-4721 '' hunter2-hunter2\n")


@pytest.mark.parametrize("text", [HELD, AHELD], ids=["sync", "async"])
def test_detach_from_a_call_that_its_program_withdraws_goes_on_waiting_for_a_decision_elsewhere(text: str) -> None:
    with at_terminal(text) as person:
        person.sees(MENU)
        person.presses(b"d\n")
        person.sees("still waits")
        Review().approve(the_request().id, by="bob")
        assert person.ends() == (0, "refunded\n")


UNNAMED = """
import sayso

@sayso.gate
def refund(order_id: str) -> str:
    return f"refunded {order_id}"

try:
    print(refund("A-4721"))
except sayso.ConfirmationRejected as no:
    print(type(no).__name__, no)
"""


@pytest.mark.parametrize("keys", ["d\ny\n", "\x04"], ids=["d", "end of input"])
def test_to_detach_from_a_run_without_a_name_withdraws_and_says_so(keys: str) -> None:
    with at_terminal(UNNAMED) as person:
        person.sees(MENU)
        person.presses(keys.encode())
        code, out = person.ends()
        assert code == 0
        assert out.startswith("ConfirmationCancelled ")
        assert "the person at the terminal detached" in out
        assert "was withdrawn: its run has no name, so no program could fetch the decision later" in person.screen
        assert "still waits" not in person.screen
        assert "Traceback" not in person.screen
        assert "> sayso" not in person.screen
    assert the_request().state is State.CANCELLED


def test_whoever_learns_that_to_detach_is_to_withdraw_may_stay() -> None:
    with at_terminal(UNNAMED) as person:
        person.sees(MENU)
        person.types("d")
        assert "detaching withdraws it" in person.sees("withdraw it? [y/N] ")
        person.types("")
        person.sees(MENU)
        assert the_request().state is State.PENDING
        person.types("a")
        assert person.ends() == (0, "refunded A-4721\n")


def test_an_empty_answer_loses_no_finished_edit() -> None:
    with program() as person:
        person.sees(MENU)
        person.types("e")
        for prompt, typed in (("order_id [", ""), ("amount [", "80"), ("reason [", ""), ("api_key [", "")):
            person.sees(prompt)
            person.types(typed)
        for record in ("", "perhaps"):
            person.sees("run refund with these arguments? [y/n] ")
            person.types(record)
        person.sees("[y/n] ")
        person.types("y")
        assert person.ends()[1].startswith("refunded 80.00 for A-4721")


def test_a_slip_decides_nothing_and_asks_again() -> None:
    with program() as person:
        for record in ("", "yes", "x", "approve it", "A B", "\x1b[A"):
            person.sees(MENU)
            person.types(record)
        assert "please type one of a, e, r, f, d" in person.sees(MENU)
        assert the_request().state is State.PENDING
        person.types("d")
        person.ends()


def test_what_was_typed_before_the_call_was_shown_decides_nothing() -> None:
    with program() as person:
        person.types("a")
        person.sees(MENU)
        person.types("d")
        assert person.ends()[1].startswith("waits")


@pytest.mark.parametrize("during", ["menu", "edit"])
def test_decided_elsewhere_while_it_asks_ends_the_asking(during: str) -> None:
    with program() as person:
        person.sees(MENU)
        if during == "edit":
            person.types("e")
            person.sees("order_id [")
        Review(channel="chat").approve(the_request().id, by="bob", changes={"amount": 80})
        assert person.ends() == (0, "refunded 80.00 for A-4721 '' hunter2-hunter2\n")
        assert "approved with changes by bob (chat, " in person.screen
        assert "amount  320.00 -> 80.00" in person.screen


def test_rejected_elsewhere_is_told_too() -> None:
    with program() as person:
        person.sees(MENU)
        Review(channel="chat").reject(the_request().id, "no", by="bob")
        assert person.ends()[1].startswith("ConfirmationRejected")
        assert "rejected by bob (chat, " in person.screen


def test_an_end_that_is_reached_while_it_asks_is_a_no() -> None:
    with at_terminal(LATER + PROGRAM.format(call='refund("A-4721")', options='expires="1h"', run="")) as person:
        person.sees(MENU)
        Path("later").touch()
        assert person.ends()[1].startswith("ConfirmationExpired")
        assert "nobody decided" in person.screen
    assert the_request().state is State.EXPIRED


def test_ctrl_c_leaves_it_pending_and_says_how_to_go_on() -> None:
    with program() as person:
        person.sees(MENU)
        person.presses(b"\x03")
        code, _ = person.ends()
        assert code == -signal.SIGINT
        assert f"{the_request().id[:11]} still waits, expires in " in person.screen
        assert "decide with: sayso --store" in person.screen
    assert the_request().state is State.PENDING


ASYNC = """
import asyncio, sayso

@sayso.gate
async def refund(order_id: str) -> str:
    return f"refunded {order_id}"

async def main():
    with sayso.run("order-4721"):
        print(await refund("A-4721"))

asyncio.run(main())
"""


def test_async_programs_ask_the_same_way() -> None:
    with at_terminal(ASYNC) as person:
        person.sees(MENU)
        person.types("a")
        assert person.ends() == (0, "refunded A-4721\n")


def test_ctrl_c_in_an_async_program_leaves_it_pending() -> None:
    with at_terminal(ASYNC) as person:
        person.sees(MENU)
        person.presses(b"\x03")
        assert person.ends()[0] == -signal.SIGINT
        assert f"{the_request().id[:11]} still waits" in person.screen
    assert the_request().state is State.PENDING


def test_a_refusal_is_shown_and_it_asks_again() -> None:
    with program(run=', on_behalf_of="Ada"') as person:
        assert "on behalf of   Ada" in person.sees(MENU)
        person.types("a")
        assert f"error: 'ada' asked for {the_request().id[:11]} and cannot" in person.sees(MENU)
        assert the_request().state is State.PENDING
        person.types("d")
        person.ends()


def test_a_vote_of_several_goes_on_waiting_for_the_others() -> None:
    with program(options="quorum=2") as person:
        assert "needs          2 different reviewers" in person.sees(MENU)
        person.types("a")
        assert "1 more reviewer must approve" in person.sees(MENU)
        person.types("a")
        assert "error: 'ada' has approved" in person.sees(MENU)
        Review(channel="chat").approve(the_request().id, by="bob")
        assert person.ends()[1].startswith("refunded")


def test_a_call_that_is_changed_under_the_reviewer_is_shown_again() -> None:
    with program(options="quorum=2") as person:
        person.sees(MENU)
        Review(channel="chat").approve(the_request().id, by="bob", changes={"amount": 77})
        person.types("a")
        again = person.sees(MENU)
        assert "was changed since you looked" in again
        assert "amount    77.0" in again
        assert the_request().missing_votes == 1
        person.types("a")
        assert person.ends()[1].startswith("refunded 77.00")


def test_a_long_value_has_to_be_seen_whole_before_it_can_be_approved() -> None:
    text = '"x" * 3000 + "MARKER" + "y" * 3000'
    with program(call=f'refund("A-4721", reason={text})') as person:
        shown = person.sees(MENU)
        assert "of 6,006 characters not shown" in shown
        assert "MARKER" not in shown
        for letter in ("a", "e"):
            person.types(letter)
            assert "v shows the whole" in person.sees(MENU)
        person.types("v")
        person.sees("more lines: enter continues, e prints to the end, q stops -- ")
        person.types("q")
        person.sees(MENU)
        person.types("a")
        assert "v shows the whole" in person.sees(MENU)
        assert the_request().state is State.PENDING
        person.types("v")
        first = person.sees("q stops -- ")
        person.types("e")
        rest = person.sees("\n  a approve   e edit   r reject   f feedback   d detach   (then enter)\n> ")
        assert "MARKER" in "".join(line.strip().lstrip("|: ") for line in (first + rest).splitlines())
        person.types("a")
        assert person.ends()[0] == 0
    assert the_request().state is State.DONE


def test_hidden_characters_of_the_program_are_not_raw_on_the_screen() -> None:
    nasty = "\x1b[31m\u202e\u200b\x9b\U000e0041"
    with program(call=f"refund({nasty!r})", options=f"prompt={nasty!r}, risk={nasty!r}") as person:
        shown = person.sees(MENU)
        assert "<U+001B>[31m<U+202E><U+200B><U+009B><U+E0041>" in shown
        assert "warning: argument order_id: contains hidden characters" in shown
        person.types("r")
        person.sees("why? ")
        person.types("no \x1b[31m")
        person.ends()
        # The terminal itself echoes ESC as ^[; everything else comes from us.
        assert not any(one in person.screen for one in nasty if one not in "[31m")


# -- questions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "typed", "answer"),
    [
        ('choices=["berlin", "lyon"]', "2", "'lyon'"),
        ('choices=["berlin", "lyon"]', "berlin", "'berlin'"),
        ("choices=[3, 1, 2]", "1", "1"),
        ("type=bool", "no", "False"),
        ("type=int", "42", "42"),
        ("type=str", "=r", "'r'"),
        ("type=str", "a plain answer", "'a plain answer'"),
    ],
)
def test_a_question_takes_the_answer_itself(options: str, typed: str, answer: str) -> None:
    with at_terminal(f'import sayso\nprint(repr(sayso.ask("Which?", {options})))') as person:
        person.sees("d detach   (then enter)\n> ")
        person.types(typed)
        assert person.ends() == (0, f"{answer}\n")


def test_a_wrong_answer_is_explained_and_it_asks_again() -> None:
    with at_terminal('import sayso\nprint(sayso.ask("How many?", type=int))') as person:
        person.sees("> ")
        person.types("many")
        assert "error: " in person.sees("> ")
        assert the_request().state is State.PENDING
        person.types("5")
        assert person.ends() == (0, "5\n")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("type=int", "please type your answer (integer); or one of r, d"),
        ('choices=["berlin", "lyon"]', "please type your answer, or its number; or one of r, d"),
    ],
)
def test_an_empty_line_is_no_answer_and_it_says_what_is_wanted(options: str, wanted: str) -> None:
    with at_terminal(f'import sayso\nprint(repr(sayso.ask("Which?", {options})))') as person:
        person.sees("d detach   (then enter)\n> ")
        person.types("")
        assert wanted in person.sees("d detach   (then enter)\n> ")
        assert the_request().state is State.PENDING
        person.types("d")
        person.sees("withdraw it? [y/N] ")
        person.types("y")
        person.ends()


# -- where nobody, or somebody else, is asked ------------------------------------------------------------------


def test_two_threads_ask_one_after_the_other() -> None:
    text = PROGRAM.partition("with sayso.run")[0].format(options="") + (
        "import threading\n"
        'threads = [threading.Thread(target=lambda n=n: print(refund(f"A-{n}") + chr(10), end="")) for n in range(2)]\n'
        "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\n"
    )
    with at_terminal(text) as person:
        first = person.sees(MENU)
        assert first.count("waits for a person") == 1
        person.types("a")
        second = person.sees(MENU)
        assert second.count("waits for a person") == 1
        person.types("a")
        assert sorted(line[:23] for line in person.ends()[1].splitlines()) == [
            "refunded 320.00 for A-0", "refunded 320.00 for A-1",
        ]  # fmt: skip


def test_a_program_in_the_background_does_not_ask_at_the_terminal() -> None:
    text = (
        "import subprocess, sys\n"
        'ask = "from sayso.gates import dialog; print(dialog.person_is_at_terminal())"\n'
        "print(*(subprocess.run([sys.executable, '-c', ask], capture_output=False, stdout=subprocess.PIPE, text=True,"
        " process_group=group).stdout.strip() for group in (None, 0)))\n"
    )
    with at_terminal(text) as person:
        assert person.ends()[1] == "True False\n"


def test_without_a_terminal_it_says_where_to_decide_and_goes_on_by_itself(store: Store) -> None:
    Path("program.py").write_text(PROGRAM.format(call='refund("A-4721")', options="", run=""), encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, "program.py"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    first, second = running.stderr.readline(), running.stderr.readline()
    request = the_request()
    assert 'waiting for a person  refund(order_id="A-4721", amount=320.00, ' in first
    assert f"{request.id[:11]}   expires in " in first
    command = second.partition("sayso ")[2].split()
    assert command == ["--store", store.url, "approve", request.id[:11]]
    subprocess.run([sys.executable, "-m", "sayso", *command], check=True, capture_output=True)
    out, err = running.communicate(timeout=30)
    assert (out, err, running.returncode) == ("refunded 320.00 for A-4721 '' hunter2-hunter2\n", "", 0)


def test_next_decides_one_after_another() -> None:
    Path("asking.py").write_text(
        PROGRAM.partition("with sayso.run")[0].format(options='wait="raise"')
        + "from contextlib import suppress\n"
        + 'for n in range(4):\n    with suppress(sayso.ConfirmationRequired):\n        refund(f"A-{n}")\n',
        encoding="utf-8",
    )
    subprocess.run([sys.executable, "asking.py"], check=True)
    menu = "s skip   q quit   (then enter)\n> "
    with Person("-m", "sayso", "next", "--as", "bob", env={**os.environ}, cwd=Path.cwd(), is_forked=True) as person:
        assert 'order_id  "A-0"' in person.sees(menu)
        person.types("a")
        assert 'order_id  "A-1"' in person.sees(menu)
        person.types("s")
        assert 'order_id  "A-2"' in person.sees(menu)
        person.types("r")
        person.sees("why? ")
        person.types("no")
        assert 'order_id  "A-3"' in person.sees(menu)
        person.types("q")
        code, out = person.ends()
    assert (code, len(re.findall(rf"by bob \(cli, {AGO}\)", out))) == (0, 2)
    with Person("-m", "sayso", "next", env={**os.environ}, cwd=Path.cwd(), is_forked=True) as person:
        person.sees(menu)
        person.presses(b"\x03")
        assert person.ends()[0] == 130
    states = [request.state for request in Review().list(state="all").requests]
    assert states == [State.APPROVED, State.PENDING, State.REJECTED, State.PENDING]
