"""The commands `approve --alike`, `grants`, `stop` and `go`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from sayso import errors
from sayso.cli import main
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.model.reviewer import name_of
from sayso.stores.base import Store
from sayso.testing import sample_call

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ran


def like(store: Store, amount: int = 5, to: str = "alice") -> State:
    return store.ask(sample_call(None, {"amount": amount, "to": to})).state


def budgets(run: Run) -> list[dict[str, str | None]]:
    return json.loads(run("grants", "ls", "--json")[1])["budgets"]


def test_grants_lists_what_is_used_of_each_budget(store: Store, run: Run) -> None:
    for name, amount, limit in [
        ("gifts", 70, "sum(args.amount) <= 100 per 24h"), ("gifts", 20, "sum(args.amount) <= 100 per 24h"),
        (None, 1, "count() <= 2 per 1h per run"), (None, 2, "count() <= 9 per 1h per agent"),
    ]:  # fmt: skip
        asked = store.ask(sample_call("night", {"amount": amount}, budgets=((limit, name),)))
        store.start(asked.id, asked.id)
    whose = name_of(asked.requester)
    code, out, _ = run("grants")
    assert (code, sorted(out.splitlines())) == (0, sorted([
        "no grants", "", "budgets of policies, and how much of them is used:",
        "sum(args.amount) <= 100 per 24h: 90 used; gifts", "count() <= 2 per 1h per run: 1 used; pay in run night",
        f"count() <= 9 per 1h per agent: 1 used; pay for {whose}",
    ]))  # fmt: skip
    nobody = {"rule": None, "tool": None, "agent": None, "run": None}
    accounts = [
        {"budget": "sum(args.amount) <= 100 per 24h", "used": "90", **nobody, "rule": "gifts", "tool": "pay"},
        {"budget": "count() <= 2 per 1h per run", "used": "1", **nobody, "tool": "pay", "run": "night"},
        {
            "budget": "count() <= 9 per 1h per agent",
            "used": "1",
            **nobody,
            "tool": "pay",
            "agent": asked.requester.qualified,
        },
    ]
    assert sorted(budgets(run), key=str) == sorted(accounts, key=str)
    for record in store.records("budget"):
        store.keep(replace(record, body={"budget": record.body["budget"], "takings": []}))
    assert run("grants")[1].count(": cannot be read, so no call passes; no longer used") == 3
    assert all(one == {**nobody, "budget": one["budget"], "used": None} for one in budgets(run))


def test_the_next_calls_like_one_are_approved_until_the_grant_is_revoked(store: Store, run: Run) -> None:
    request = store.ask(sample_call())
    code, out, _ = run("approve", request.id, "--alike", "--count", "5", "--for", "1h", "--at-most", "amount=8")
    assert code == 0
    assert "amount is at most 8" in out
    assert [like(store, 8), like(store, 9), like(store, 8, "bob")] == [State.APPROVED, State.PENDING, State.PENDING]
    code, out, _ = run("grants")
    assert "5 of 5 left, ends in 1h" in out
    grant_id = json.loads(run("grants", "ls", "--json")[1])["grants"][0]["id"]
    code, out, _ = run("grants", "revoke", grant_id[:12], "-m", "enough")
    assert (code, "revoked by ada" in out) == (0, True)
    assert like(store) is State.PENDING
    assert run("grants")[1] == "no grants\n"
    assert "revoked" in run("grants", "ls", "--all")[1]
    code, out, _ = run("log", "--grant", grant_id[:12])
    assert [row.split()[3] for row in out.splitlines()] == ["granted", "grant_revoked"]
    assert "2 rows in 1 chain" in run("log", "--verify", "--grant", grant_id)[1]
    assert run("log", "--grant", grant_id, "--run", "night")[0] == 2
    code, _, err = run("grants", "agree", grant_id)
    assert (code, "`sayso grants ls --all`" in err) == (1, True)


def test_alike_needs_one_id_a_count_and_an_end(store: Store, run: Run) -> None:
    request = store.ask(sample_call())
    for words in (
        ["--alike"], ["--alike", "--count", "5"], ["--alike", "--count", "0", "--for", "1h"], ["--count", "5"],
        ["--alike", "--count", "5", "--for", "1h", "--edit"],
        ["--alike", "--count", "1", "--for", "1h", "--at-most", "x"],
    ):  # fmt: skip
        assert run("approve", request.id, *words)[0] == 2, words
    assert run("approve", request.id, "--alike", "--count", "1", "--for", "1h", "--without", "nothing")[0] == 1
    assert store.get(request.id).state is State.PENDING
    assert run("grants", "revoke", "gr_none")[0] == 1


def test_who_approves_or_lists_during_a_stop_is_told(store: Store, run: Run) -> None:
    requests = [store.ask(sample_call(None, {"amount": amount, "to": "alice"})) for amount in (1, 2)]
    assert "stopped" not in run("ls")[1]
    run("stop", "--reason", "fire")
    assert run("approve", requests[0].id)[1].splitlines()[1:] == [
        "all calls are stopped by ada: fire; it can start after `sayso go`"
    ]
    assert run("ls")[1].splitlines()[-1] == "all calls are stopped by ada: fire; `sayso go` lets them start again"
    run("go")
    assert run("approve", requests[1].id)[1].splitlines()[1:] == ["waiting for the program to run it"]


def test_who_approves_an_effect_that_another_call_has_is_told(store: Store, run: Run) -> None:
    first, second = (store.ask(sample_call(None, {"amount": n, "to": "alice"}, effect="pay:1")) for n in (1, 2))
    assert run("approve", first.id)[1].splitlines()[1:] == ["waiting for the program to run it"]  # it was asked first
    store.start(first.id, "t")
    warning, hint = run("approve", second.id)[1].splitlines()[1:]
    assert warning.startswith(f"warning: the same effect: {first.id[:11]} approved by ada")
    assert hint == "it does not start until that has ended without its effect"
    store.finish(first.id, "t", Outcome("failed"))
    third = store.ask(sample_call(None, {"amount": 3, "to": "alice"}, effect="pay:1"))
    run("cancel", second.id)
    assert run("approve", third.id)[1].splitlines()[1:] == ["waiting for the program to run it"]


def test_a_stop_blocks_starts_until_go(store: Store, run: Run) -> None:
    request = store.ask(sample_call())
    run("approve", request.id)
    code, out, _ = run("stop", "--reason", "fire")
    assert (code, "stopped by ada: fire" in out) == (0, True)
    with pytest.raises(errors.StoppedError):
        store.start(request.id, "t")
    assert json.loads(run("stop", "--json", "--as", "bob")[1])["by"] == "local:ada"
    assert run("go")[1] == "calls can start again\n"
    assert "calls were not stopped" in run("go")[1]
    assert store.start(request.id, "t").state is State.RUNNING
