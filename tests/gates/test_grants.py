"""Grants, budgets and the stop as a program meets them: through its gates, with several processes, over HTTP."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sayso
from sayso import errors, policy
from sayso.model.request import State
from sayso.stores.base import Store
from sayso.stores.http import HttpStore
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from tests.support.serving import new_token, serving

SIZED = {"type": "object", "properties": {"size": {"type": "integer"}}}
TAKER = Path(__file__).with_name("taker.py")
KINDS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "jsonl": lambda folder: JsonlStore(folder / "s.jsonl"),
    "sqlite": lambda folder: SqliteStore(folder / "s.db"),
}


@pytest.fixture(params=["memory", "jsonl", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return KINDS[request.param](tmp_path)


def held(call: Callable[[], object]) -> str:
    with pytest.raises(sayso.ConfirmationRequired) as raised:
        call()
    return str(raised.value.confirmation_id)


def test_a_gated_call_runs_by_a_grant_and_its_record_names_it(store: Store) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise", store=store, name="pay")
    def pay(amount: int, to: str) -> None:
        ran.append(amount)

    review = sayso.Review(store, by="ada")
    with sayso.run():
        grant = review.grant(held(lambda: pay(30, "bob")), count=2, lasts="1h")
        pay(30, "bob")
    with sayso.run():
        pay(10, "bob")
        held(lambda: pay(31, "bob"))
        held(lambda: pay(10, "eve"))
    assert ran == [30, 10]
    assert [(one.id, one.left) for one in review.grants()] == [(grant.id, 1)]
    review.revoke(grant.id[:12], reason="enough")
    with sayso.run():
        held(lambda: pay(10, "bob"))
    assert review.grants() == []


def test_a_gate_that_says_always_gets_no_grant(store: Store) -> None:
    @sayso.gate(wait="raise", store=store, name="pay", always=True)
    def pay(amount: int) -> None: ...

    with sayso.run():
        asked = held(lambda: pay(30))
    with pytest.raises(errors.GrantRefusedError):
        sayso.Review(store, by="ada").grant(asked, count=2, lasts="1h")


def test_a_rule_that_says_always_or_denies_wins_over_a_grant(store: Store) -> None:
    verdicts = [policy.hold(), policy.hold(always=True), policy.deny("no")]

    @sayso.gate(wait="raise", store=store, name="pay", when=lambda: verdicts[0])
    def pay(amount: int) -> None: ...

    with sayso.run():
        sayso.Review(store, by="ada").grant(held(lambda: pay(30)), count=5, lasts="1h")
    with sayso.run():
        pay(20)
        verdicts.pop(0)
        held(lambda: pay(10))
        verdicts.pop(0)
        with pytest.raises(sayso.ConfirmationDenied):
            pay(5)


def test_a_call_that_was_held_for_another_tool_runs_by_a_grant(store: Store) -> None:
    review = sayso.Review(store, by="ada")
    first = sayso.hold("mail", {"to": "bob", "size": 5}, key="1", run="r", store=store)
    review.grant(str(first.id), count=1, lasts="1h", here=True)
    second = sayso.hold("mail", {"to": "bob", "size": 4}, key="2", run="r", store=store)
    assert second.state == "approved"
    assert second.once(lambda arguments: arguments["size"]) == 4
    assert sayso.hold("mail", {"to": "bob", "size": 4}, key="3", run="r", store=store).state == "pending"


def test_a_stop_spends_no_approval(store: Store) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise", store=store, name="pay")
    def pay(amount: int) -> None:
        ran.append(amount)

    review = sayso.Review(store, by="ada")
    with sayso.run():
        review.approve(held(lambda: pay(1)))
        review.stop(reason="fire")
        with pytest.raises(errors.StoppedError, match="fire"):
            pay(1)
        assert ran == []
        assert review.go()
        pay(1)
    assert ran == [1]


def test_what_a_policy_allows_within_a_budget_waits_when_it_is_used_up(store: Store) -> None:
    ran: list[int] = []

    @sayso.gate(
        wait="raise", store=store, name="pay",
        when=lambda: policy.allow(budget="sum(args.amount) <= 100 per 24h per agent"), quorum=2,
    )  # fmt: skip
    def pay(amount: int) -> None:
        ran.append(amount)

    for amount in (60, 40):
        with sayso.run():
            pay(amount)
    with sayso.run():
        request = store.get(held(lambda: pay(1)))
        assert "no room" in str(request.rule)
        assert request.missing_votes == 2
    assert ran == [60, 40]


def test_programs_of_a_server_are_granted_and_stopped_too(tmp_path: Path) -> None:
    behind = SqliteStore(tmp_path / "server.db")
    with serving() as server:
        store = HttpStore(server.of(behind), new_token(behind))
        review = sayso.Review(behind, by="ada")
        first = sayso.hold("mail", {"size": 5}, schema=SIZED, key="1", run="r", store=store)
        review.grant(str(first.id), count=5, lasts="1h")
        second = sayso.hold("mail", {"size": 4}, schema=SIZED, key="2", run="r", store=store)
        assert second.state == "approved"
        review.stop()
        with pytest.raises(errors.StoppedError):
            second.start()
        review.go()
        review.revoke(review.grants()[0].id)
        with pytest.raises(errors.GrantEndedError, match="revoked"):
            second.start()
        store.close()


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_ten_processes_never_exceed_a_budget(tmp_path: Path, kind: str) -> None:
    store = KINDS[kind](tmp_path)
    words = [sys.executable, str(TAKER), store.url, "3", "9"]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(10)]
    ran = [int(line) for one in running for line in one.communicate(timeout=120)[0].split()]
    assert sum(ran) == 99
    waits = sayso.Review(store).list(state=State.PENDING, limit=100).requests
    assert len(waits) + len(ran) == 30


def test_a_start_that_was_killed_keeps_its_part_of_a_budget(tmp_path: Path) -> None:
    store = KINDS["sqlite"](tmp_path)
    words = [sys.executable, str(TAKER), store.url, "1", "70"]
    killed = subprocess.Popen([*words, "hang"], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "70\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    review = sayso.Review(store, by="ada")
    assert review.count(state=State.UNKNOWN) == 1
    assert subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout == ""
    review.resolve(review.list(state=State.UNKNOWN).requests[0].id, happened=False)
    assert subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout == "70\n"
