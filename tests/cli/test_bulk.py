"""Many requests at once: `approve` and `reject` with filters, and the lists of ids that scripts read.

The invariant: what was not in the list that somebody said yes to is not decided.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sayso as package
from sayso.cli import main
from sayso.model.request import Request, State
from sayso.model.reviewer import Quorum
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from tests.conftest import Clock
from tests.support.commands import ask_question, ask_refund, get
from tests.support.person import Person

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that the commands find by the environment, and a reviewer."""
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, and returns its exit code and what it printed."""

    def ran(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ran


def person(*words: str, cwd: Path) -> Person:
    return Person("-m", "sayso", *words, env={**os.environ, "NO_COLOR": "1"}, cwd=cwd, is_forked=True)


def states(*requests: Request) -> list[str]:
    return [str(get(request.id).state) for request in requests]


# -- choose --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "state"), [("approve", "approved"), ("reject", "rejected")])
def test_filters_choose_what_is_decided(run: Run, store: Store, clock: Clock, verb: str, state: str) -> None:
    ours = [ask_refund(f"A-{number}", run="night-1") for number in range(3)]
    other_run, other_tool = ask_refund("B-1", run="night-2"), store.ask(sample_call("night-1"))
    clock.tick(hours=2)
    young = ask_refund("A-9", run="night-1")
    code, out, err = run(verb, "--run", "night-1", "--tool", "refund", "--older-than", "1h", "--yes", "-m", "as agreed")
    assert (code, err) == (0, "")
    assert states(*ours, other_run, other_tool, young) == [state] * 3 + ["pending"] * 3
    assert out.splitlines()[-1] == f"3 {state}"
    decisions = [get(request.id).decision for request in ours]
    assert {(one.by.subject, one.channel, one.comment) for one in decisions if one} == {("ada", "cli", "as agreed")}


@pytest.mark.parametrize("by_filter", [True, False], ids=["by filter", "by id"])
def test_many_calls_whose_effect_is_taken_are_approved_again_with_a_reason(
    run: Run, store: Store, by_filter: bool
) -> None:
    calls = [store.ask(sample_call(f"run_{number}", effect="refund:A-4721")) for number in range(3)]
    chosen = ["--tool", calls[0].call.tool, "--yes"] if by_filter else [request.id for request in calls]
    assert run("approve", *chosen, "--again")[0] == 1
    assert states(*calls) == ["pending"] * 3
    assert run("approve", *chosen, "--again", "-m", "the customer ordered three times")[0] == 0
    for request in calls:
        assert store.start(request.id, "worker").state is State.RUNNING


def test_a_taken_effect_is_shown_before_many_are_approved(store: Store, tmp_path: Path) -> None:
    first, second = (store.ask(sample_call(f"run_{number}", effect="refund:A-4721")) for number in range(2))
    with person("approve", "--tool", first.call.tool, cwd=tmp_path) as who:
        assert f"the same effect: {first.id[:11]} pending" in who.sees("approve these 2? [y/N]")
        who.types("n")
        assert who.ends()[0] == 1
    assert states(first, second) == ["pending"] * 2


@pytest.mark.parametrize(
    "words",
    [
        ("--risk", "high"), ("--agent", "{agent}"), ("--kind", "call"), ("--text", "A-4721-run"),
        ("--search", "A-4721-run"), ("--mine",), ("--claimed-by", "ada"), ("--tool", "{tool}"),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_every_filter_of_a_list_chooses_what_is_approved(run: Run, store: Store, words: tuple[str, ...]) -> None:
    ours, other = ask_refund(run="A-4721-run"), store.ask(sample_question("B"))
    store.ask(sample_call("C"))
    package.Review(by="ada").claim(ours.id)
    given = [word.format(agent=ours.requester.subject, tool=ours.call.tool) for word in words]
    listed = run("ls", "-q", "--state", "pending", *given)[1].split()
    assert ours.id in listed
    assert other.id not in listed
    assert run("approve", "--run", "A-4721-run", *given, "--yes")[0] == 0
    assert states(ours, other) == ["approved", "pending"]


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_requests_are_named_by_ids_or_by_filters(run: Run, verb: str) -> None:
    request = ask_refund()
    for words, says in (
        ((), "give ids (sayso "),
        (("--yes",), "give ids (sayso "),
        ((request.id, "--run", "order-4721"), "ids or filters, not both"),
        ((request.id, "--yes"), "--yes needs filters"),
        (("--rum", "order-4721", "--yes"), "--run"),
        (("--older-than", "soon", "--yes"), "not a duration"),
        (("--run", "order-4721"), "no terminal"),
        (("--run", "order-4721", "--json"), "--json cannot ask for confirmation"),
    ):
        code, out, err = run(verb, *words)
        assert (code, out) == (2, ""), words
        assert says in err, words
    assert states(request) == ["pending"]


def test_set_and_edit_do_not_go_with_filters(run: Run) -> None:
    request = ask_refund()
    for words in (("--set", "amount=1"), ("--edit",), ("--seen", request.fingerprint)):
        assert run("approve", "--run", "order-4721", "--yes", *words)[0] == 2
    assert states(request) == ["pending"]


def test_a_run_that_there_is_not_is_an_error_and_nothing_to_decide_is_none(run: Run) -> None:
    request = ask_refund()
    code, _, err = run("approve", "--run", "order-4712", "--yes")
    assert code == 1
    assert "no run 'order-4712' is in this store" in err
    assert "nothing was decided" in err
    code, _, err = run("approve", "--tool", "refnd", "--yes")
    assert (code, err) == (0, "no pending request matches; nothing was decided\n")
    assert states(request) == ["pending"]


# -- ask -----------------------------------------------------------------------------------------------------------


def test_a_person_sees_the_list_and_is_asked_once(tmp_path: Path) -> None:
    requests = [ask_refund(f"A-{number}", run="night", reason="r" * 50) for number in range(3)]
    with person("approve", "--run", "night", cwd=tmp_path) as somebody:
        shown = somebody.sees("approve these 3? [y/N]")
        assert all(request.id[:11] in shown for request in requests)
        assert shown.count("r" * 50) == 3, "what the row shortens is shown in full"
        somebody.types("y")
        code, out = somebody.ends()
    assert code == 0
    assert out.splitlines()[-1] == "3 approved"
    assert states(*requests) == ["approved"] * 3


@pytest.mark.parametrize("word", ["", "n", "no"])
def test_everything_but_a_yes_decides_nothing(tmp_path: Path, word: str) -> None:
    request = ask_refund(run="night")
    with person("reject", "--run", "night", cwd=tmp_path) as somebody:
        somebody.sees("reject this one? [y/N]")
        somebody.types(word)
        somebody.sees("nothing was decided")
        assert somebody.ends()[0] == 1
    assert states(request) == ["pending"]


def test_what_came_or_changed_after_the_list_is_not_decided(store: Store, tmp_path: Path) -> None:
    kept, gone = (ask_refund(f"A-{number}", run="night") for number in range(2))
    edited = store.ask(sample_call("night", quorum=Quorum(2)))
    bob = package.Review(by="bob")
    with person("approve", "--run", "night", cwd=tmp_path) as somebody:
        somebody.sees("approve these 3? [y/N]")
        late = ask_refund("A-9", run="night")
        bob.approve(edited.id, changes={"amount": 7})  # the first of two, so it waits on, and is another call
        bob.reject(gone.id)
        somebody.types("y")
        code, out = somebody.ends()
    assert states(kept, edited, gone, late) == ["approved", "pending", "rejected", "pending"]
    assert out.splitlines()[-1] == "1 approved; 2 not decided, see above"
    assert "was changed since you looked" in somebody.screen
    assert "was already rejected by 'bob'" in somebody.screen
    assert code == 3


# -- tell ----------------------------------------------------------------------------------------------------------


def test_a_question_and_a_call_too_long_for_one_view_are_left_out_of_an_approval(run: Run) -> None:
    call, question = ask_refund(run="night"), ask_question(run="night")
    long = ask_refund("A-2", run="night", reason="x" * 5_000)
    code, out, err = run("approve", "--run", "night", "--yes")
    assert code == 1
    assert out.splitlines()[-1] == "1 approved"
    assert f"skipped: {question.id[:11]} is a question" in err
    assert f"skipped: {long.id[:11]} is too long for one view" in err
    assert states(call, question, long) == ["approved", "pending", "pending"]
    assert run("reject", "--run", "night", "--yes")[0] == 0
    assert states(question, long) == ["rejected", "rejected"]


def test_each_refusal_is_told_and_the_others_are_decided(run: Run) -> None:
    free, claimed = ask_refund("A-1", run="night"), ask_refund("A-2", run="night")
    package.Review(by="bob").claim(claimed.id)
    code, out, err = run("approve", "--run", "night", "--yes")
    assert code == 1
    assert "was claimed by" in err
    assert out.splitlines()[-1] == "1 approved; 1 not decided, see above"
    assert states(free, claimed) == ["approved", "pending"]


def test_a_vote_of_several_is_counted_apart(run: Run, store: Store) -> None:
    request = store.ask(sample_call("night", quorum=Quorum(2)))
    code, out, _ = run("approve", "--run", "night", "--yes")
    assert code == 0
    assert out.splitlines()[-1] == "1 approved by you, waiting for more reviewers"
    assert get(request.id).state is State.PENDING


def test_json_tells_each(run: Run) -> None:
    requests = [ask_refund(f"A-{number}", run="night") for number in range(2)]
    code, out, _ = run("approve", "--run", "night", "--yes", "--json")
    told = json.loads(out)
    assert code == 0
    assert [(one["id"], one["ok"]) for one in told] == [(request.id, True) for request in requests]


# -- ids -----------------------------------------------------------------------------------------------------------


def test_quiet_prints_whole_ids_of_all_pages(run: Run, store: Store) -> None:
    requests = [store.ask(sample_call("night", {"amount": number})) for number in range(60)]
    assert run("ls", "--quiet") == (0, "".join(f"{request.id}\n" for request in requests), "")
    code, out, err = run("ls", "-q", "--limit", "2")
    assert (code, out.split()) == (0, [request.id for request in requests[:2]])
    cursor = err.strip().rpartition(" ")[2]
    assert run("ls", "-q", "--limit", "58", "--cursor", cursor)[1].split() == [one.id for one in requests[2:]]
    assert run("ls", "-q", "--tool", "nothing") == (0, "", "")
    assert run("ls", "-q", "--json")[0] == 2
