"""What a program says when it stops waiting, or waits again, and what is said of a request that it leaves behind.

Real processes, with a terminal and without. The invariant: nobody is told to decide what nobody comes back for.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import Request, State
from sayso.reviews import Review
from sayso.stores.base import Store
from tests.support import commands
from tests.support.acting import program
from tests.support.person import Person

SECONDS = 30
MENU = "d detach   (then enter)\n> "
PAY = """
import asyncio, signal, sayso, sys

@sayso.gate
def pay(amount: int) -> str:
    return "paid"

@sayso.gate
async def apay(amount: int) -> str:
    return "paid"

def work():
    WORK

if "named" in sys.argv:
    with sayso.run("order-4721"):
        print(work())
else:
    print(work())
"""
SYNC = PAY.replace("WORK", "return pay(10)")
ASYNC = PAY.replace("WORK", "return asyncio.run(apay(10))")
OWN = PAY.replace("WORK", "signal.signal(signal.SIGTERM, lambda *_: sys.exit('mine')); return pay(10)")


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


def at_terminal(text: str, *words: str) -> Person:
    Path("program.py").write_text(text, encoding="utf-8")
    return Person("program.py", *words, env={**os.environ}, cwd=Path.cwd(), all_three=True)


def the_request() -> Request:
    (request,) = Review().list(state="all").requests
    return request


def short() -> str:
    return the_request().id[:11]


def until_it_waits(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = ""
    while "decide with" not in said:
        row = process.stderr.readline()
        assert row, said
        said += row
    return said


def ended_by_sigterm(text: str, *words: str) -> tuple[int, str]:
    """Let a program without a terminal wait, terminate it, and return its exit code and what it said then."""
    process = program(text, *words)
    until_it_waits(process)
    process.terminate()
    out, rest = process.communicate(timeout=SECONDS)
    assert out == ""
    return process.returncode, rest


# -- Ctrl-C and a no, at a terminal ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SYNC, ASYNC], ids=["sync", "async"])
def test_ctrl_c_in_a_nameless_run_withdraws_the_request_and_says_so(text: str) -> None:
    with at_terminal(text) as person:
        person.sees(MENU)
        person.presses(b"\x03")
        assert person.ends()[0] == -signal.SIGINT
    after = person.screen[person.screen.index(MENU) :]
    assert (
        f"> ^C\nsayso  {short()} was withdrawn: its run has no name, so no program could fetch the decision later"
        in after
    )
    assert "a new start asks again" in after
    assert "decide with" not in after
    assert the_request().state is State.CANCELLED


def test_ctrl_c_in_a_named_run_says_that_a_new_start_finds_the_decision() -> None:
    with at_terminal(SYNC, "named") as person:
        person.sees(MENU)
        person.presses(b"\x03")
        assert person.ends()[0] == -signal.SIGINT
    after = person.screen[person.screen.index(MENU) :]
    assert f"> ^C\nsayso  {short()} still waits" in after
    assert "then start the program again: the same call in the run order-4721 finds the decision" in after
    assert "lives" not in after


def no(person: Person) -> None:
    person.types("r")
    person.sees("why? ")
    person.types("too much")


def detach(person: Person) -> None:
    person.types("d")
    person.sees("withdraw it? [y/N] ")
    person.types("y")


@pytest.mark.parametrize(
    ("does", "end"),
    [
        (lambda person: person.presses(b"\x03"), "KeyboardInterrupt\n"),
        (no, " was rejected by ada: too much\n"),
        (detach, "sayso.ConfirmationCancelled: "),
    ],
    ids=["ctrl-c", "no", "detach"],
)
@pytest.mark.parametrize("text", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_traceback_ends_at_the_call_that_was_held(text: str, does: Callable[[Person], None], end: str) -> None:
    with at_terminal(text) as person:
        person.sees(MENU)
        does(person)
        person.ends()
    shown = person.screen[person.screen.index("Traceback") :]
    assert end in shown
    assert "program.py" in shown
    assert str(Path(sayso.__file__).parent) not in shown


def frames_of(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def test_a_variable_keeps_the_frames_of_the_package() -> None:
    program = """import sayso
sayso.configure(store="memory:")
@sayso.gate(%s)
def pay() -> None: ...
pay()
"""
    for options, end in (("wait='raise'", "ConfirmationRequired: "), ("quorum=0", "ConfigError: quorum")):
        command = [sys.executable, "-c", program % options]
        environment = os.environ | {"SAYSO_TRACEBACK": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert str(Path(sayso.__file__).parent / "gates") in done.stderr
        assert end in done.stderr


def test_what_a_gate_raises_shows_the_programs_own_frames_alone() -> None:
    sayso.configure(store="memory:")
    ends: list[BaseException] = [KeyboardInterrupt(), ValueError("refused")]

    @sayso.gate(wait="raise")
    def pay(amount: int) -> int:
        raise ends.pop()

    @sayso.gate(wait="raise")
    async def apay(amount: int) -> int:
        raise ends.pop()

    def told() -> str:
        raise LookupError("no such customer")

    def run(call: Callable[[int], Any], amount: int = 1) -> Any:
        made = call(amount)
        return asyncio.run(made) if inspect.iscoroutine(made) else made

    with sayso.run("tracebacks"):
        for call in (pay, apay):
            ends[:] = [KeyboardInterrupt(), ValueError("refused")]
            for error in (ValueError, KeyboardInterrupt, errors.OutcomeUnknownError):
                if error is not errors.OutcomeUnknownError:
                    with pytest.raises(sayso.ConfirmationRequired) as held:
                        run(call)
                    sayso.Review().approve(held.value.confirmation_id, by="ada")
                with pytest.raises(error) as caught:
                    run(call)
                shown = frames_of(caught.value)
                assert shown[0] == __file__
                assert not [name for name in shown if name.startswith(str(Path(sayso.__file__).parent))], error
        refusing = sayso.gate(pay.__wrapped__, prompt=told, wait="raise", name="told")  # type: ignore[attr-defined]
        with pytest.raises(errors.PolicyError) as refused:
            refusing(2)
        assert set(frames_of(refused.value)) == {__file__}
        assert isinstance(refused.value.__cause__, LookupError)
        assert frames_of(refused.value.__cause__)[-1] == __file__
        with pytest.raises(TypeError, match=r"^pay\(\) missing a required argument: 'amount'$") as misfit:
            pay()  # type: ignore[call-arg]
        assert frames_of(misfit.value) == [__file__]


def test_a_traceback_of_a_fault_and_one_of_a_rule_keep_every_frame() -> None:
    def interrupted(amount: int) -> bool:
        raise KeyboardInterrupt

    @sayso.gate(when=interrupted)
    def pay(amount: int) -> int:
        return amount

    with pytest.raises(KeyboardInterrupt) as caught:
        pay(1)
    assert "interrupted" in [entry.name for entry in caught.traceback]
    nowhere = sayso.gate(wait="raise", store=f"sqlite:///{Path(__file__)}/no.db")(pay.__wrapped__)  # type: ignore[attr-defined]
    with pytest.raises(errors.StoreError) as fault:
        nowhere(1)
    assert "drive" in [entry.name for entry in fault.traceback]


# -- SIGTERM ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SYNC, ASYNC], ids=["sync", "async"])
def test_sigterm_ends_a_program_that_waits_and_its_request_stays_pending(text: str) -> None:
    code, said = ended_by_sigterm(text, "named")
    assert (code, said) == (-signal.SIGTERM, "")
    assert the_request().state is State.PENDING


def test_a_program_with_a_handler_of_its_own_keeps_it() -> None:
    code, said = ended_by_sigterm(OWN)
    assert (code, said) == (1, "mine\n")


# -- waiting again ---------------------------------------------------------------------------------------------


def test_a_restarted_program_says_that_it_waits_again_and_since_when() -> None:
    made = asked_three_minutes_ago()
    second = program(SYNC, "named")
    said = until_it_waits(second)
    assert f"waiting again for a person  pay(amount=10)   {made.id[:11]}   asked 3 min ago, expires in " in said
    Review().approve(made.id)
    assert second.communicate(timeout=SECONDS)[0] == "paid\n"


def asked_three_minutes_ago() -> Request:
    """Ask what the program asks, as an earlier start of it."""
    text = SYNC.replace("@sayso.gate\ndef", '@sayso.gate(wait="raise")\ndef').replace('"named" in sys.argv', "True")
    then = "from datetime import UTC, datetime, timedelta\nfrom sayso import clock\n"
    then += "past = clock.use(lambda: datetime.now(UTC) - timedelta(minutes=3))\npast.__enter__()\n"
    done = subprocess.run([sys.executable, "-c", then + text], capture_output=True, text=True, check=False)
    assert "ConfirmationRequired" in done.stderr, done.stderr
    return the_request()


def test_a_program_that_asks_for_the_first_time_does_not_say_again() -> None:
    process = program(SYNC)
    assert "again" not in until_it_waits(process)
    Review().approve(the_request().id)
    assert process.communicate(timeout=SECONDS)[0] == "paid\n"


# -- what a program left behind --------------------------------------------------------------------------------


def left_behind(*words: str) -> Request:
    ended_by_sigterm(SYNC, *words)
    return the_request()


def test_a_request_whose_program_is_gone_is_marked_where_it_is_listed_shown_and_approved() -> None:
    request = left_behind()
    listed, shown = commands.sayso("ls").out, commands.sayso("show", request.id).out
    assert f"{request.id[:11]}" in listed
    assert "  program ended  " in listed
    assert "no program will fetch the decision; `sayso cancel ID` removes it from this list" in listed
    assert "  program ended: its run has no name" in shown
    assert f"next: sayso cancel {request.id[:11]} -m WHY\n" in shown
    assert "next: sayso approve" not in shown
    approved = commands.sayso("approve", request.id)
    assert approved.code == 0
    assert "program ended: its run has no name" in approved.out
    assert "waiting for the program" not in approved.out
    assert "approved, program ended" in commands.sayso("ls").out
    assert commands.sayso("cancel", request.id).code == 0
    assert commands.sayso("ls").out == "no open requests\n"


def test_an_answer_that_nobody_comes_back_for_says_so() -> None:
    ended_by_sigterm('import sayso\nprint(sayso.ask("How many?", type=int))')
    answered = commands.sayso("answer", the_request().id, "5")
    assert (answered.code, "answered 5 by ada" in answered.out) == (0, True)
    assert "program ended: its run has no name" in answered.out


def test_feedback_that_nobody_comes_back_for_says_so() -> None:
    request = left_behind()
    assert "program ended: its run has no name" in commands.sayso("feedback", request.id, "-m", "less").out


def test_a_request_of_a_named_run_waits_for_its_next_start() -> None:
    request = left_behind("named")
    said = [commands.sayso(*words, request.id).out for words in (["show"], ["approve"])] + [commands.sayso("ls").out]
    assert not any("program ended" in out for out in said)
    assert "waiting for the program to run it" in said[1]


def test_a_request_of_a_living_program_is_not_marked() -> None:
    process = program(SYNC)
    until_it_waits(process)
    assert "program ended" not in commands.sayso("ls").out
    assert "waiting for the program to run it" in commands.sayso("approve", the_request().id).out
    assert process.communicate(timeout=SECONDS)[0] == "paid\n"


def test_next_says_so_as_well() -> None:
    left_behind()
    with Person("-m", "sayso", "next", env={**os.environ}, cwd=Path.cwd()) as person:
        assert "program ended: its run has no name" in person.sees("q quit   (then enter)\n> ")
        person.types("q")
        person.ends()
