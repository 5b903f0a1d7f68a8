"""Grants, budgets and the stop as a program meets them: through its gates, with several processes, over HTTP."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors, policy
from sayso.model.request import State
from sayso.model.reviewer import Quorum
from sayso.policy import Policy
from sayso.stores.base import Filter, Store
from sayso.stores.http import HttpStore
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from tests.support.acting import forked, running
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


def test_an_unknown_call_whose_grant_has_ended_is_refused_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    errors_of = iter([None, TimeoutError()])

    @sayso.gate(wait="raise", store=store, name="pay", idempotent=True)
    def pay(amount: int) -> None:
        error = next(errors_of)
        if error is not None:
            raise error

    review, starts = sayso.Review(store, by="ada"), list[str]()
    with sayso.run():
        grant = review.grant(held(lambda: pay(30)), count=5, lasts="1h")
        pay(30)
    with sayso.run():
        with pytest.raises(TimeoutError):
            pay(30)
        review.revoke(grant.id)
        start = store.start

        def counted(request_id: str, *args: Any, **options: Any) -> Any:
            starts.append(request_id)
            assert len(starts) == 1, "it tries for ever"
            return start(request_id, *args, **options)

        monkeypatch.setattr(store, "start", counted)
        with pytest.raises(errors.GrantEndedError, match="revoked"):
            pay(30)


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


@pytest.mark.parametrize("says", ["gate", "rule"])
def test_an_unknown_call_that_no_person_approved_does_not_start_again_where_one_is_now_needed(
    store: Store, says: str
) -> None:
    ran, verdicts = list[int](), [policy.hold(), policy.hold(), policy.hold(always=says == "rule")]

    def pays(*, always: bool) -> None:
        @sayso.gate(wait="raise", store=store, name="pay", idempotent=True, always=always, when=lambda: verdicts.pop(0))
        def pay(amount: int) -> None:
            ran.append(amount)
            raise TimeoutError

        pay(30)

    with sayso.run():
        sayso.Review(store, by="ada").grant(held(lambda: pays(always=False)), count=5, lasts="1h")
    with sayso.run("order-1"):
        with pytest.raises(TimeoutError):
            pays(always=False)
        with pytest.raises(errors.OutcomeUnknownError):
            pays(always=says == "gate")
    assert ran == [30]


def test_an_argument_that_was_left_out_keeps_its_default(store: Store) -> None:
    ran = list[Any]()

    @sayso.gate(wait="raise", store=store, name="pay")
    def pay(amount: int, currency: str = "EUR", note: str | None = None, *lines: int, **more: int) -> None:
        ran.append((amount, currency, note, lines, more))

    with sayso.run():
        sayso.Review(store, by="ada").grant(held(lambda: pay(30)), count=9, lasts="1h")
    with sayso.run():
        pay(20)
        pay(10, "EUR")
        pay(5, currency="EUR", note=None)
        for wider in (
            lambda: pay(5, "USD"), lambda: pay(5, note="x"), lambda: pay(5, "EUR", None, 1), lambda: pay(5, tip=1),
        ):  # fmt: skip
            held(wider)
    assert [amount for amount, *_ in ran] == [20, 10, 5]


def test_a_default_that_changes_ends_what_was_granted(store: Store) -> None:
    def pay(amount: int, currency: str = "EUR") -> None: ...
    def dear(amount: int, currency: str = "USD") -> None: ...

    with sayso.run():
        request_id = held(lambda: sayso.gate(pay, wait="raise", store=store, name="pay")(30))
        sayso.Review(store, by="ada").grant(request_id, count=9, lasts="1h")
    with sayso.run():
        held(lambda: sayso.gate(dear, wait="raise", store=store, name="pay")(20))


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


@pytest.mark.parametrize(("before", "used"), [([], 0), ([ValueError("no paper")], 60)], ids=["once", "twice"])
def test_a_budget_gets_back_only_what_no_start_can_have_used(store: Store, before: list[Exception], used: int) -> None:
    ends = iter([*before, sayso.NotExecuted("refused")])

    @sayso.gate(
        wait="raise", store=store, name="pay", retries=len(before),
        when=lambda: policy.allow(budget="sum(args.amount) <= 100 per 24h"),
    )  # fmt: skip
    def pay(amount: int) -> None:
        raise next(ends)

    with sayso.run():
        for kind in (*map(type, before), sayso.NotExecuted):
            with pytest.raises(kind):
                pay(60)
    assert [one.used for one in store.budgets()] == [used]


def test_a_budget_gets_nothing_back_by_the_word_of_a_call_inside(store: Store) -> None:
    @sayso.gate(when=lambda: False)
    def book() -> None:
        raise sayso.NotExecuted("nothing was booked")

    @sayso.gate(wait="raise", store=store, when=lambda: policy.allow(budget="sum(args.amount) <= 100 per 24h"))
    def pay(amount: int) -> None:
        book()

    with sayso.run(), pytest.raises(sayso.NotExecuted):
        pay(60)
    assert [one.used for one in store.budgets()] == [60]


@pytest.mark.parametrize("options", [{"timeout": timedelta(microseconds=1)}, {"wait": "raise"}], ids=["block", "raise"])
def test_a_budget_per_run_lets_nothing_through_outside_of_a_named_run(store: Store, options: dict[str, Any]) -> None:
    ran: list[int] = []
    rule = policy.allow(budget="count() <= 2 per 1h per run")

    @sayso.gate(store=store, name="pay", when=lambda: rule, **options)
    def pay(amount: int) -> None:
        ran.append(amount)

    request = store.get(held(lambda: pay(1)))
    assert "budget per run limits nothing here" in str(request.rule)
    assert sayso.hold("mail", {}, when=lambda **_: rule, store=store).state == "pending"
    assert ran == []
    with sayso.run():
        pay(1)
        pay(2)
        held(lambda: pay(3))
    assert ran == [1, 2]


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


SMALL = """
[[rules]]
name = "small refunds"
tool = "refund"
when = "args.size <= 50"
verdict = "allow"
budget = "sum(args.size) <= 100 per 24h per agent"
"""


def test_a_program_on_another_machine_has_the_budgets_that_the_servers_policy_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    behind, ran = SqliteStore(tmp_path / "server.db"), list[int]()
    with serving() as server:
        store = HttpStore(server.of(behind), new_token(behind))

        def refund(size: int, limit: str = "sum(args.size) <= 1_000_000 per 1h", tool: str = "refund") -> Any:
            rule = Policy.of_text(SMALL.replace("sum(args.size) <= 100 per 24h per agent", limit))
            call = sayso.hold(tool, {"size": size}, schema=SIZED, when=rule, key=f"{size}{limit}", run="r", store=store)
            if call.state == "approved":
                call.once(lambda given: ran.append(given["size"]))
            return call

        assert refund(40).state == "pending"  # the server has no policy: what a program says is no permission
        settings = tmp_path / "sayso.toml"
        settings.write_text(SMALL.replace("<= 50", "<= 45"))
        settings.chmod(0o600)
        assert refund(48).state == "pending"
        assert "the server's policy says hold: no rule matches" in str(refund(48).request.rule)
        for size in (41, 42):
            assert refund(size).state == "done"
        assert refund(20).state == "pending"  # 83 of the server's 100 are used
        assert refund(1, "sum(args.size) <= 0 per 1h").state == "pending"  # the program's own budget counts, too
        assert refund(3).state == "done"
        settings.write_text("[[rules]]")
        with pytest.raises(errors.AskRefusedError, match="policy could not be evaluated"):
            refund(2)
        assert ran == [41, 42, 3]
        approved = behind.list(Filter(states=frozenset({State.DONE})), limit=10).requests[0].decision
        assert approved is not None
        assert (approved.by.qualified, approved.under) == ("policy:budget", "budget")
        store.close()


def test_what_has_no_room_on_a_server_needs_whom_the_programs_rule_and_the_servers_rule_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings, behind = tmp_path / "sayso.toml", SqliteStore(tmp_path / "server.db")
    two = policy.hold(quorum=2, roles=["finance", "ops"], escalate_after="1h", escalate_to=["boss"])
    with serving() as server:
        store = HttpStore(server.of(behind), new_token(behind))

        def refund(size: int, otherwise: policy.Verdict | None) -> sayso.Request:
            rule = policy.allow(budget="sum(args.size) <= 100 per 24h", otherwise=otherwise)
            options: dict[str, Any] = {"when": lambda **_: rule, "key": str(size), "run": "r", "store": store}
            call = sayso.hold("refund", {"size": size}, schema=SIZED, **options)
            assert sayso.hold("refund", {"size": size}, schema=SIZED, **options).id == call.id  # and it is found again
            return behind.get(call.id)

        def server_says(*words: str) -> None:
            settings.write_text("\n".join(["[[rules]]", 'name = "refunds"', 'tool = "refund"', *words]))
            settings.chmod(0o600)

        budget = 'budget = "sum(args.size) <= 100 per 24h"'
        for number, (words, otherwise, quorum, opens) in enumerate([
            ([], two, Quorum(2, {"finance", "ops"}), True),
            (['verdict = "allow"', budget], two, Quorum(2, {"finance", "ops"}), True),
            (['verdict = "allow"', budget, "quorum = 3", 'roles = ["ops"]'], two, Quorum(3, {"ops"}), False),
            (['verdict = "allow"', budget, "quorum = 2"], None, Quorum(2), False),
            (['verdict = "hold"', 'roles = ["ops"]'], policy.hold(quorum=2), Quorum(2, {"ops"}), False),
        ]):  # fmt: skip
            if words:
                server_says(*words)
            held = refund(200 + number, otherwise)
            assert (held.state, held.quorum, held.escalation is not None) == (State.PENDING, quorum, opens), words
        with pytest.raises(errors.AskRefusedError, match="no role in common"):
            refund(300, policy.hold(roles=["finance"]))
        server_says('verdict = "allow"', budget, "quorum = 2")
        assert refund(50, None).state is State.APPROVED
        store.close()


def test_a_budget_of_the_server_has_no_room_at_the_start_if_another_program_took_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sayso.toml").write_text(SMALL.replace(" per agent", ""))
    (tmp_path / "sayso.toml").chmod(0o600)
    behind = SqliteStore(tmp_path / "server.db")
    with serving() as server:
        stores = [HttpStore(server.of(behind), new_token(behind, name=name)) for name in ("one", "two")]
        rule = Policy.of_text(SMALL)
        held = [
            sayso.hold("refund", {"size": 50}, schema=SIZED, when=rule, key=str(number), run=f"r{number % 2}",
                       store=stores[number % 2])
            for number in range(4)
        ]  # fmt: skip
        assert [one.state for one in held] == ["approved"] * 4
        for one in held[:2]:
            one.once(lambda _: None)
        with pytest.raises(errors.GrantEndedError, match="no room"):
            held[2].start()
        assert behind.get(str(held[2].id)).state is State.PENDING
        for store in stores:
            store.close()


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_ten_processes_never_exceed_a_budget(tmp_path: Path, kind: str) -> None:
    store = KINDS[kind](tmp_path)
    takers = [forked(TAKER.read_text("utf-8"), store.url, "3", "9") for _ in range(10)]
    ran = [int(line) for taker in takers for line in running(taker).split()]
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
