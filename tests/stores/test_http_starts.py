"""One approval on a server is one start, whatever the program says of it; and a run is one program's.

The agent's machine is not trusted here, as in `test_http_attacks`. The invariant of each test: what a token of the
kind `ask` starts beyond what was shown was paid for by one more answer of a person.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores.base import Filter
from sayso.stores.http import HttpStore
from sayso.stores.http_transport import Transport
from sayso.stores.memory import MemoryStore
from sayso.stores.workers import Lease
from sayso.testing import sample_call
from sayso.testing.scene import refusal
from tests.stores.test_http_attacks import Stage
from tests.support.serving import Serving, serving

STOPPED = Outcome("suspended")


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as one:
        yield one


@pytest.fixture
def stage(server: Serving) -> Iterator[Stage]:
    stage = Stage(server, MemoryStore())
    yield stage
    stage.close()


class Agent:
    """A program whose approved call asks for more while it runs."""

    def __init__(self, stage: Stage, run_id: str = "order") -> None:
        self.stage, self.store, self.lease = stage, stage.program(), Lease()
        self.run = RunRecord(run_id, "agent", "agent", RunState.RUNNING, self.lease.holder, _now(), _now())
        self.request = self.store.ask(sample_call(run_id))
        stage.person().approve(self.request.id)

    def asks(self, amount: int) -> Request:
        inner = sample_call(self.run.id, {"amount": amount})
        return self.store.ask(inner, RunUpdate(self.run, [Step("/inner", "{}", inner.id)]))

    def stops(self, token: str) -> Request:
        return self.store.finish(self.request.id, token, STOPPED)

    def starts(self, token: str) -> Request:
        return self.store.start(self.request.id, token)


def _now() -> Any:
    return sample_call().created_at


def test_a_start_that_stopped_for_nobody_is_not_given_out_again(stage: Stage) -> None:
    agent = Agent(stage)
    agent.starts("1")
    agent.stops("1")
    refusal(errors.AlreadyStartedError, lambda: agent.starts("2"))


@pytest.mark.timeout(120)
def test_a_gate_that_gets_no_further_start_says_so_and_does_not_try_for_ever(stage: Stage) -> None:
    store, made = stage.program(), list[str]()

    def stops() -> None:
        made.append("stops")
        raise KeyError("its framework asks somebody else")

    def fails() -> None:
        made.append("fails")
        raise ValueError("not now")

    gates = [(stops, 1, {"suspends": KeyError}), (fails, 6, {"idempotent": True})]
    for function, most, options in gates:
        act = sayso.gate(function, wait="raise", store=store, **options)
        with sayso.run(f"order-{function.__name__}"):
            with pytest.raises(sayso.ConfirmationRequired) as held:
                act()
            stage.person().approve(held.value.confirmation_id)
            for _ in range(most):
                with pytest.raises((KeyError, ValueError)):
                    act()
            refusal(errors.AlreadyStartedError, act)
        assert made.count(function.__name__) == most


def test_a_program_that_has_seen_an_earlier_start_is_not_given_one_after_a_later_one(stage: Stage) -> None:
    store = stage.program()
    request = store.ask(sample_call(idempotent=True))
    stage.person().approve(request.id)
    store.start(request.id, "1")
    seen = store.finish(request.id, "1", Outcome("unknown"))
    store.start(request.id, "2", seen=seen)
    store.finish(request.id, "2", Outcome("unknown"))
    refusal(errors.AlreadyStartedError, lambda: store.start(request.id, "3", seen=seen))


@pytest.mark.parametrize("runs_already", [False, True])
def test_a_start_that_was_looked_into_before_another_is_not_given_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, runs_already: bool
) -> None:
    agent, looked = Agent(stage), list[str]()
    if runs_already:
        agent.starts("1")

    def look(*_: Any) -> None:
        looked.append("")
        if len(looked) == 1:  # between the look and the start of one message, another server's comes and stops
            if not runs_already:
                stage.store.start(agent.request.id, "1")
            stage.store.finish(agent.request.id, "1", STOPPED)

    monkeypatch.setattr("sayso.server.api.program.must_have_starts", look)
    refusal(errors.AlreadyStartedError, lambda: agent.starts("2"))
    assert stage.store.get(agent.request.id).state is State.APPROVED


def test_a_start_that_stopped_to_ask_is_given_back_once_for_each_answer(stage: Stage) -> None:
    agent = Agent(stage)
    for amount, token in enumerate(("1", "2", "3")):
        agent.starts(token)
        inner = agent.asks(amount)
        assert agent.stops(token).state is State.APPROVED
        refusal(errors.AlreadyStartedError, lambda: agent.starts("too soon"))
        stage.person().reject(inner.id)
    agent.starts("4")
    execution = stage.store.get(agent.request.id).execution
    assert execution is not None
    assert (execution.attempt, execution.starts) == (1, 4)


def test_what_the_program_takes_back_is_no_answer(stage: Stage) -> None:
    agent = Agent(stage)
    agent.starts("1")
    inner = agent.asks(1)
    agent.stops("1")
    agent.store.withdraw(inner.id, Identity("program", "me"), "never mind")
    refusal(errors.AlreadyStartedError, lambda: agent.starts("2"))


def test_an_answer_from_before_a_start_pays_for_no_other(stage: Stage) -> None:
    agent = Agent(stage)
    inner = agent.asks(1)
    stage.person().approve(inner.id)
    agent.starts("1")
    agent.stops("1")
    refusal(errors.AlreadyStartedError, lambda: agent.starts("2"))


def test_an_answer_that_comes_before_the_stop_was_told_counts(stage: Stage) -> None:
    agent = Agent(stage)
    agent.starts("1")
    inner = agent.asks(1)
    stage.person().approve(inner.id)
    assert agent.stops("1").state is State.APPROVED
    assert agent.starts("2").state is State.RUNNING


def test_an_answer_to_another_program_or_in_another_run_pays_for_nothing(stage: Stage) -> None:
    agent, other = Agent(stage), stage.program("other")
    agent.starts("1")
    agent.stops("1")
    foreign = stage.store.ask(sample_call("order", {"amount": 3}, requester=Identity("token", "other")))
    for request in (foreign, other.ask(sample_call("its own")), agent.store.ask(sample_call("another run"))):
        stage.person().approve(request.id)
        refusal(errors.AlreadyStartedError, lambda: agent.starts("2"))


def test_what_a_grant_or_a_budget_lets_through_is_no_answer_of_a_person(stage: Stage) -> None:
    agent = Agent(stage)
    stage.person().grant(agent.asks(0).id, count=5, lasts="1h")
    agent.starts("1")
    by_grant = agent.asks(0)
    in_budget = stage.store.ask(
        sample_call("order", {"amount": 3}, requester=agent.request.requester, budgets=(("count() <= 9 per 1h", None),))
    )
    assert (by_grant.state, in_budget.state) == (State.APPROVED, State.APPROVED)
    agent.stops("1")
    refusal(errors.AlreadyStartedError, lambda: agent.starts("2"))


@pytest.mark.parametrize("wait", ["block", "raise"])
def test_messages_of_a_call_that_come_again_after_its_end_ask_and_start_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, wait: Any
) -> None:
    store, sent = stage.program(), list[tuple[str, bytes]]()
    post = Transport.post

    def noted(self: Transport, path: str, body: bytes, *args: Any, **options: Any) -> bytes:
        sent.append((path, body))
        return post(self, path, body, *args, **options)

    monkeypatch.setattr(Transport, "post", noted)

    @sayso.gate(store=store, wait=wait)
    def pay(amount: int) -> int:
        return amount

    def approve() -> None:
        while not (pending := stage.store.list(Filter(states=frozenset({State.PENDING}))).requests):
            threading.Event().wait(0.005)
        stage.person().approve(pending[0].id)

    person = threading.Thread(target=approve)
    person.start()
    with sayso.run("order"):
        if wait == "raise":
            with pytest.raises(sayso.ConfirmationRequired):
                pay(5)
            person.join()
        assert pay(5) == 5
    person.join()
    before = stage.store.list(Filter()).requests
    assert [one.state for one in before] == [State.DONE]
    for path, body in [one for one in sent if one[0] != "/wait"]:
        with suppress(errors.StartRefusedError):
            post(store._transport, path, body)
    assert stage.store.list(Filter()).requests == before


@pytest.mark.parametrize("options", [{"retries": 5}, {"idempotent": True}], ids=["retries", "idempotent"])
def test_a_start_that_comes_again_after_a_later_one_starts_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    store, sent = stage.program(), list[bytes]()
    post = Transport.post

    def noted(self: Transport, path: str, body: bytes, *args: Any, **options: Any) -> bytes:
        sent.extend([body] * (path == "/start"))
        return post(self, path, body, *args, **options)

    request = store.ask(sample_call(**options))
    stage.person().approve(request.id)
    monkeypatch.setattr(Transport, "post", noted)
    for token in ("1", "2", "3"):
        store.start(request.id, token)
        before = store.finish(request.id, token, Outcome("failed"))
    for body in sent:
        refusal(errors.AlreadyStartedError, lambda body=body: post(store._transport, "/start", body))
    assert stage.store.get(request.id) == before
    # Another process of the program knows of the starts what it has read.
    assert stage.program().start(request.id, "4").state is State.RUNNING


def test_more_retries_than_a_server_gives_are_refused(stage: Stage) -> None:
    program = stage.program()
    refusal(errors.AskRefusedError, lambda: program.ask(sample_call(retries=6)))
    assert program.ask(sample_call(retries=5)).retries == 5


def test_an_idempotent_call_of_which_people_find_that_it_did_not_happen_starts_once_more_each_time(
    stage: Stage,
) -> None:
    program, person = stage.program(), stage.person()
    request = program.ask(sample_call(idempotent=True))
    person.approve(request.id)
    for start in range(1, 9):
        program.start(request.id, str(start))
        program.finish(request.id, str(start), Outcome("unknown"))
        person.resolve(request.id, happened=False, start=start)
    program.start(request.id, "last")
    program.finish(request.id, "last", Outcome("unknown"))
    refusal(errors.AlreadyStartedError, lambda: program.start(request.id, "one more"))


def test_an_idempotent_call_has_its_share_of_starts(stage: Stage) -> None:
    program = stage.program()
    request = program.ask(sample_call(idempotent=True))
    stage.person().approve(request.id)
    for count in range(6):
        program.start(request.id, str(count))
        program.finish(request.id, str(count), Outcome("failed"))
    refusal(errors.AlreadyStartedError, lambda: program.start(request.id, "one more"))


def test_what_a_program_calls_its_hook_is_not_recorded(stage: Stage) -> None:
    program = stage.program()
    request = program.ask(sample_call())
    stage.person().approve(request.id)
    program.start(request.id, "1")
    program.finish(request.id, "1", Outcome("unknown"))
    name = Identity("program", "approved by ada")
    program.resolve(request.id, name, roles=None, happened=True, comment=None, channel="verify")
    last = stage.store.journal(request_id=request.id)[-1]
    assert (last.event, last.by, last.channel, json.loads(last.detail)) == (
        "resolved", "token:agent", "verify", {"happened": True},
    )  # fmt: skip


def test_of_two_programs_that_begin_a_run_at_once_one_is_refused(stage: Stage) -> None:
    programs, together = [stage.program("one"), stage.program("two")], threading.Barrier(2)
    found: list[str] = []

    def begin(program: HttpStore) -> None:
        together.wait(30)
        try:
            found.append(program.ask(sample_call("new")).requester.subject)
        except errors.RunNotFoundError:
            found.append("refused")

    threads = [threading.Thread(target=begin, args=[one]) for one in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) in (["one", "refused"], ["refused", "two"])
    assert len(stage.store.list(Filter()).requests) == 1


def test_neither_comments_nor_rows_of_anothers_request_are_read_with_ones_own_run(stage: Stage) -> None:
    mine, other = stage.program("mine"), stage.program("other")
    own = mine.ask(sample_call("shared"))
    stage.person().comment(own.id, "all below 500 is let through")
    foreign = other.ask(sample_call("elsewhere"))
    stage.store.note("shared", "denied", Identity("token", "other"), {})
    moved = stage.store.ask(sample_call("shared", {"amount": 3}, requester=foreign.requester))
    stage.person().reject(moved.id, "of no concern to mine")
    mine.ask(sample_call("shared", {"amount": 4}))
    for limit in (1, 100):
        seen, after = list[Any](), None
        while rows := mine.journal(run_id="shared", after=after, limit=limit):
            seen += rows
            after = rows[-1].run_id, rows[-1].seq
        assert [(row.event, row.by) for row in seen] == [("asked", "token:mine")] * 2
    assert [row.event for row in mine.journal(request_id=own.id)] == ["asked"]


def test_runs_that_can_go_on_are_found_behind_many_of_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayso.server.api.program._READY", (3, 100))
    monkeypatch.setattr("sayso.server.api.program._READY_TIMEOUT", 60.0)
    mine, other = stage.program("mine"), stage.program("other")
    for program, run_ids in ((other, [f"o{n}" for n in range(8)]), (mine, ["m"])):
        for run_id in run_ids:
            _broken(program, run_id)
    assert list(mine.ready_runs(["agent"])) == ["m"]


def _broken(program: HttpStore, run_id: str) -> None:
    run = RunRecord(run_id, "agent", "agent", RunState.RUNNING, Lease().holder, _now(), _now())
    program.leave_run(RunUpdate(run, [Step("/", "{}")]), RunState.BROKEN)


def test_a_tampered_number_of_retries_is_refused(stage: Stage) -> None:
    refusal(errors.AskRefusedError, lambda: stage.program().ask(sample_call(retries=100)))
