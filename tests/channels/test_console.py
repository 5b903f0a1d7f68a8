"""Questions at the console: real programs at a pseudo-terminal or behind a pipe, with a person who types.

The invariant: while the console waits the program goes on, and it can be left at any time.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sayso
from sayso.channels import HumanInputRequest, console_requester, human_in_the_loop
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from tests.support.person import PATIENCE, Person

ASKS = """
import asyncio, sys
import sayso
from sayso.channels import console_requester, human_in_the_loop

tool = human_in_the_loop(console_requester)

async def main():
    with sayso.run("order-1"):
        for question in sys.argv[1:]:
            print("heard", repr(await tool.acall(question=question)), flush=True)

asyncio.run(main())
"""

TICKS = """
import asyncio
from sayso.channels import console_requester, human_in_the_loop

async def main():
    ticks = 0
    asking = asyncio.create_task(human_in_the_loop(console_requester).acall(question="Which size?"))
    while not asking.done():
        await asyncio.sleep(0.005)
        ticks += 1
        if ticks == 40:
            print("still ticking", flush=True)
    print("heard", await asking, ticks >= 40)

asyncio.run(main())
"""

AT_ONCE = """
import asyncio
from sayso.channels import console_requester, human_in_the_loop

async def main():
    tool = human_in_the_loop(console_requester)
    print(await asyncio.gather(tool.acall(question="First?"), tool.acall(question="Second?")))

asyncio.run(main())
"""


@pytest.fixture
def env(file_store: Store) -> dict[str, str]:
    return {**os.environ, "SAYSO_STORE": file_store.url, "SAYSO_REVIEWER": "ada"}


def test_typed_line_is_the_answer(file_store: Store, env: dict[str, str], place: Path) -> None:
    with Person("-c", ASKS, "Which size?", env=env, cwd=place, is_forked=True) as person:
        person.sees("\nWhich size?\n> ")
        person.types("small, please")
        assert person.ends() == (0, "heard 'small, please'\n")
    (answered,) = file_store.list(Filter(states=frozenset({State.ANSWERED}))).requests
    assert answered.decision is not None
    assert (str(answered.decision.by), answered.decision.channel) == ("ada", "console")


def test_program_goes_on_while_the_console_waits(env: dict[str, str], place: Path) -> None:
    with Person("-c", TICKS, env=env, cwd=place, all_three=True, is_forked=True) as person:
        person.sees("Which size?\n> ")
        person.sees("still ticking")
        person.types("small")
        person.sees("heard small True")
        assert person.ends()[0] == 0


def test_what_was_typed_before_the_question_is_no_answer(env: dict[str, str], place: Path) -> None:
    late = f"import select, sys\nprint('ready', file=sys.stderr)\nselect.select([sys.stdin], [], [])\n{ASKS}"
    with Person("-c", late, "Pay 4,000?", env=env, cwd=place, is_forked=True) as person:
        person.sees("ready")
        person.types("yes")
        person.sees("Pay 4,000?\n> ")
        person.types("no")
        assert person.ends() == (0, "heard 'no'\n")


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("\x1b[2JPay?", "<U+001B>[2JPay?"),
        ("Pay \u202e0001?", "Pay <U+202E>0001?"),
        ("Pay?\n> yes\nsayso  approved", "Pay?\n| > yes\n| sayso  approved"),
    ],
)
def test_question_cannot_disguise_itself(question: str, shown: str, env: dict[str, str], place: Path) -> None:
    with Person("-c", ASKS, question, env=env, cwd=place, is_forked=True) as person:
        person.sees(shown)
        person.sees("\n> ")
        person.types("no")
        assert person.ends()[0] == 0
        assert "\x1b" not in person.screen
        assert "\u202e" not in person.screen


def test_ctrl_c_ends_the_program_at_once_and_the_question_still_waits(
    file_store: Store, env: dict[str, str], place: Path
) -> None:
    with Person("-c", ASKS, "Which size?", env=env, cwd=place, is_forked=True) as person:
        person.sees("> ")
        person.presses(b"\x03")
        person.sees("still waits")
        code, out = person.ends()
    assert code in {1, 130, -signal.SIGINT}
    assert out == ""
    assert "KeyboardInterrupt" in person.screen
    (waits,) = file_store.list(Filter(states=frozenset({State.PENDING}))).requests
    sayso.Review().answer(waits.id, "small", by="ada")
    with Person("-c", ASKS, "Which size?", env=env, cwd=place, is_forked=True) as person:
        assert person.ends() == (0, "heard 'small'\n")


def test_console_is_free_again_when_the_question_is_answered_elsewhere(
    file_store: Store, env: dict[str, str], place: Path
) -> None:
    with Person("-c", ASKS, "First?", "Second?", env=env, cwd=place, is_forked=True) as person:
        person.sees("First?\n> ")
        (waits,) = file_store.list(Filter(states=frozenset({State.PENDING}))).requests
        sayso.Review(channel="cli").answer(waits.id, "elsewhere", by="grace")
        person.sees("answered")
        person.sees("Second?\n> ")
        person.types("here")
        assert person.ends() == (0, "heard 'elsewhere'\nheard 'here'\n")
    assert "grace" in person.screen


def test_questions_that_come_at_once_are_asked_one_after_the_other(env: dict[str, str], place: Path) -> None:
    with Person("-c", AT_ONCE, env=env, cwd=place, is_forked=True) as person:
        first = person.sees("?\n> ")
        word = first.split("?")[0].split()[-1]
        person.types(word)
        second = person.sees("?\n> ")
        assert second.startswith(f"{word}\n")  # what was typed stands before the next question
        person.types(second.split("?")[0].split()[-1])
        assert person.ends() == (0, "['First', 'Second']\n")


# -- no terminal -------------------------------------------------------------------------------------------------------


def piped(text: str, *questions: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", ASKS, *questions]
    return subprocess.run(words, input=text, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_lines_of_a_pipe_are_answers_one_by_one(env: dict[str, str]) -> None:
    done = piped("small\r\n\nlarge", "First?", "Second?", "Third?", env=env)
    assert (done.returncode, done.stdout) == (0, "heard 'small'\nheard ''\nheard 'large'\n")
    assert done.stderr == "\nFirst?\n> \nSecond?\n> \nThird?\n> "


def test_line_that_waits_in_an_open_pipe_is_read(env: dict[str, str]) -> None:
    words = [sys.executable, "-c", ASKS, "First?", "Second?"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("small\nlarge\n")
        process.stdin.flush()
        try:
            assert [process.stdout.readline() for _ in range(2)] == ["heard 'small'\n", "heard 'large'\n"]
        finally:
            process.kill()


def test_end_of_input_is_told_and_the_question_still_waits(file_store: Store, env: dict[str, str]) -> None:
    done = piped("", "Which size?", env=env)
    assert done.returncode == 1
    assert "EOFError: there is no terminal to ask at" in done.stderr
    assert file_store.count(Filter(states=frozenset({State.PENDING}))) == 1


def test_what_stands_in_for_input_is_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[str] = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return "small"

    monkeypatch.setattr(builtins, "input", typed)
    assert asyncio.run(human_in_the_loop(console_requester).acall(question="Which size?")) == "small"
    assert prompts == ["\nWhich size?\n> "]


def test_requester_of_the_console_sets_the_response(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "input", lambda _: "small")

    async def main() -> str:
        request = HumanInputRequest("Which size?")
        await console_requester(request)
        return await request.response()

    assert asyncio.run(main()) == "small"
