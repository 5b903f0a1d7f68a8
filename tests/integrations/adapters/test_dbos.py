"""Held steps of DBOS workflows on SQLite and Postgres: lost, doubled and false messages, kills, two executors."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import config, errors
from sayso.channels import deliver
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from tests.integrations.adapters.installed import framework
from tests.support.postgres import server
from tests.support.threads import few_threads

dbos: Any = framework("dbos", "held steps of DBOS")
adapter: Any = framework("sayso.integrations.dbos", "held steps of DBOS")
DBOS, DBOSChannel, held_step = dbos.DBOS, adapter.DBOSChannel, adapter.held_step

PATIENCE = 60.0
PROGRAM = Path(__file__).with_name("dbos_program").with_suffix(".py")


class Shop:
    """An application of DBOS in this process, and what its tools did."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.refunds: list[float] = []
        DBOS(
            config={
                "name": "shop", "system_database_url": database, "executor_id": "one", "application_version": "1",
                "notification_listener_polling_interval_sec": 0.02, "log_level": "CRITICAL",
                "max_executor_threads": 8,  # a busy machine would begin one for each of many steps
            }
        )  # fmt: skip

    def workflow(self, *, is_async: bool = False, fails: bool = False, **options: Any) -> Any:
        """Return a workflow whose step is held."""

        def refund(order_id: str, amount: float) -> str:
            """Pay money back."""
            self.refunds.append(amount)
            if fails:
                raise ValueError("the bank is closed")
            return f"refunded {amount:.2f} for {order_id}"

        async def arefund(order_id: str, amount: float) -> str:
            return refund(order_id, amount)

        held = held_step(**options)(arefund if is_async else refund)

        async def acomplaint(order_id: str) -> Any:
            return await held(order_id, amount=50.0)

        def complaint(order_id: str) -> Any:
            return held(order_id, amount=50.0)

        made = DBOS.workflow()(acomplaint if is_async else complaint)
        DBOS.launch()
        return made


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    config.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    yield Shop(f"sqlite:///{tmp_path / 'dbos.db'}")
    DBOS.destroy(destroy_registry=True)


@pytest.fixture
def store(shop: Shop) -> Store:
    return config.default_store()


def started(workflow: Any) -> Any:
    with dbos.SetWorkflowID("w-1"):
        return DBOS.start_workflow(workflow, "A-1")


def everything(store: Store) -> list[Request]:
    return list(reversed(store.list(Filter(), limit=500).requests))


def waiting(
    store: Store, is_there: Callable[[Request], bool] = lambda request: request.state is State.PENDING
) -> Request:
    """Wait for a request, and return it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = [request for request in everything(store) if is_there(request)]
        if found:
            return found[0]
        assert time.monotonic() < deadline, everything(store)
        time.sleep(0.01)


@pytest.fixture
def delivered(shop: Shop, store: Store) -> Iterator[None]:
    with deliver(store, [DBOSChannel(shop.database)]):
        yield


def ended(run: Any) -> Any:
    """Return what a workflow gave, or raise it; DBOS itself would wait without end."""
    deadline = time.monotonic() + PATIENCE
    while run.get_status().status == "PENDING":
        assert time.monotonic() < deadline, DBOS.list_workflow_steps(run.workflow_id)
        time.sleep(0.01)
    return run.get_result()


def approve(request: Request, **more: Any) -> None:
    sayso.Review(by="ada").approve(request.id, **more)


def test_approved_step_runs_once_with_what_was_approved(shop: Shop, store: Store, delivered: None) -> None:
    run = started(shop.workflow())
    request = waiting(store)
    assert (request.run_id, request.call.name, dict(request.call.arguments)) == (
        "dbos/w-1", "refund", {"order_id": "A-1", "amount": 50.0}
    )  # fmt: skip
    approve(request, changes={"amount": 20.0})
    assert ended(run) == "refunded 20.00 for A-1"
    assert shop.refunds == [20.0]
    assert [request.state for request in everything(store)] == [State.DONE]


def test_many_async_workflows_wait_without_a_thread_each(shop: Shop, store: Store, delivered: None) -> None:
    workflow = shop.workflow(is_async=True)

    async def main() -> tuple[list[str], list[Any]]:
        with few_threads() as begun:
            handles = []
            for number in range(40):
                with dbos.SetWorkflowID(f"w-{number}"):
                    handles.append(await DBOS.start_workflow_async(workflow, "A-1"))
            await asyncio.to_thread(waiting, store, lambda _: len(everything(store)) == 40)
            for request in everything(store):
                await asyncio.to_thread(approve, request)
            return begun, [await handle.get_result() for handle in handles]

    begun, results = asyncio.run(main())
    assert results == ["refunded 50.00 for A-1"] * 40
    assert shop.refunds == [50.0] * 40
    assert len(begun) < 20


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_no_is_raised_in_the_workflow_with_its_words(shop: Shop, store: Store, delivered: None, is_async: bool) -> None:
    run = started(shop.workflow(is_async=is_async))
    sayso.Review(by="ada").reject(waiting(store).id, "over the limit")
    with pytest.raises(sayso.ConfirmationRejected, match="over the limit"):
        ended(run)
    assert shop.refunds == []


def test_second_reviewer_is_told_who_decided(shop: Shop, store: Store, delivered: None) -> None:
    run = started(shop.workflow())
    request = waiting(store)
    approve(request)
    with pytest.raises(errors.AlreadyDecidedError, match="ada"):
        sayso.Review(by="bob").reject(request.id, "no")
    assert ended(run) == "refunded 50.00 for A-1"


def test_workflow_looks_by_itself_where_no_message_comes(shop: Shop, store: Store) -> None:
    run = started(shop.workflow(recheck="1s"))
    approve(waiting(store))
    assert ended(run) == "refunded 50.00 for A-1"


def test_false_doubled_and_late_messages_start_nothing(shop: Shop, store: Store) -> None:
    run = started(shop.workflow())
    request, client = waiting(store), dbos.DBOSClient(system_database_url=shop.database)
    for number in range(3):
        client.send("w-1", {"request_id": request.id, "state": "approved"}, f"sayso/{request.id}", str(number))
    deadline = time.monotonic() + PATIENCE
    while len([step for step in DBOS.list_workflow_steps("w-1") if step["function_name"] == "refund"]) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (shop.refunds, store.get(request.id).state) == ([], State.PENDING)
    sayso.Review(by="ada").reject(request.id, "no")
    client.send("w-1", {"request_id": request.id, "state": "approved"}, f"sayso/{request.id}", "late")
    with pytest.raises(sayso.ConfirmationRejected):
        ended(run)
    assert shop.refunds == []


def test_step_that_failed_is_not_made_again(shop: Shop, store: Store, delivered: None) -> None:
    run = started(shop.workflow(fails=True))
    approve(waiting(store))
    with pytest.raises(ValueError, match="the bank is closed"):
        ended(run)
    assert shop.refunds == [50.0]
    assert [request.state for request in everything(store)] == [State.FAILED]


def test_rule_lets_a_step_through_without_asking(shop: Shop, store: Store) -> None:
    assert ended(started(shop.workflow(when=lambda amount: amount > 100))) == "refunded 50.00 for A-1"
    assert everything(store) == []


def test_fork_of_a_workflow_gets_the_result_of_the_first_call(shop: Shop, store: Store, delivered: None) -> None:
    run = started(shop.workflow())
    approve(waiting(store))
    ended(run)
    forked = DBOS.fork_workflow("w-1", 2)  # after the first attempt, before the message
    assert ended(forked) == "refunded 50.00 for A-1"
    assert shop.refunds == [50.0]
    assert len(everything(store)) == 1


def test_held_step_outside_of_a_workflow_asks_nobody(shop: Shop, store: Store) -> None:
    @held_step
    def refund(order_id: str) -> str:
        raise AssertionError(order_id)

    @DBOS.step()
    def step(order_id: str) -> str:
        return refund(order_id)

    @DBOS.workflow()
    def complaint(order_id: str) -> str:
        return step(order_id)

    DBOS.launch()
    with pytest.raises(errors.ConfigError, match="in a DBOS workflow"):
        refund("A-1")
    with pytest.raises(errors.ConfigError, match="outside of its steps"):
        complaint("A-1")
    assert everything(store) == []


def test_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="quroum"):
        held_step(quroum=2)(lambda: None)


def test_channel_leaves_requests_of_other_programs_alone(shop: Shop, store: Store, delivered: None) -> None:
    shop.workflow()
    held = sayso.hold("lookup", {}, run="order-1")
    channel = DBOSChannel("sqlite:////nowhere/dbos.db")  # never opened
    with deliver(store, [channel], runs=False) as (deliverer,):
        sayso.Review(by="ada").approve(held.id)
        deliverer.deliver_due()
        assert deliverer.failed == 0


# -- programs that die ---------------------------------------------------------------------------------------------


class Place:
    """A folder with two databases, and the programs that use them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config.configure(store=f"sqlite:///{folder / 'sayso.db'}")
        self.store = config.default_store()
        self.programs: list[subprocess.Popen[bytes]] = []

    def run(self, executor: str, death: str = "") -> subprocess.Popen[bytes]:
        words = [sys.executable, str(PROGRAM), str(self.folder), executor, "w-1", *([death] if death else [])]
        with (self.folder / f"said-{len(self.programs)}").open("wb") as said:
            self.programs.append(subprocess.Popen(words, stdout=said))
        return self.programs[-1]

    def said(self, program: subprocess.Popen[bytes]) -> list[str]:
        return self.lines(f"said-{self.programs.index(program)}")

    def result(self, program: subprocess.Popen[bytes]) -> str:
        program.wait(PATIENCE)
        return self.said(program)[-1]

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for program in made.programs:
        program.kill()
        program.wait()


def test_workflow_that_was_killed_goes_on_with_what_was_decided_meanwhile(place: Place) -> None:
    first = place.run("one")
    request = waiting(place.store)
    first.kill()
    first.wait(PATIENCE)
    approve(request, changes={"amount": 20.0})
    with pytest.raises(errors.AlreadyDecidedError, match="ada"):
        sayso.Review(by="bob").reject(request.id, "no")
    assert place.result(place.run("one")) == "refunded 20.00 for A-1"
    assert (place.lines("effects"), place.lines("looked-up")) == (["A-1 20.00"], ["A-1"])


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_program_with_a_waiting_workflow_can_be_ended_and_goes_on(place: Place, end: signal.Signals) -> None:
    first = place.run("one")
    request = waiting(place.store)
    if end is signal.SIGINT:
        first.send_signal(end)  # leaves the main program; Python then waits for the thread of the workflow
        waiting(place.store, lambda _: "interrupted" in place.said(first))
    while first.poll() is None:
        first.send_signal(end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.wait(1.0)
    assert first.returncode == -end
    approve(request)
    assert place.result(place.run("one")) == "refunded 320.00 for A-1"
    assert place.lines("effects") == ["A-1 320.00"]


@pytest.mark.parametrize(
    ("death", "result", "state"),
    [("inside", "OutcomeUnknownError", State.UNKNOWN), ("behind", "refunded 320.00 for A-1", State.DONE)],
)
def test_call_in_which_or_behind_which_the_program_died_is_not_made_again(
    place: Place, death: str, result: str, state: State
) -> None:
    first = place.run("one", death)
    approve(waiting(place.store))
    assert first.wait(PATIENCE) == -9
    assert place.result(place.run("one")) == result
    assert place.lines("effects") == ["A-1 320.00"]
    assert [request.state for request in everything(place.store)] == [state]


def test_two_executors_that_run_one_workflow_make_its_call_once(place: Place) -> None:
    first = place.run("one")
    request = waiting(place.store)
    second = place.run("two<one")
    waiting(place.store, lambda _: bool(place.said(second)))
    approve(request)
    assert {place.result(first), place.result(second)} == {"refunded 320.00 for A-1"}
    assert place.lines("effects") == ["A-1 320.00"]


# -- one Postgres database for both --------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shop]:
    url = server().new()
    config.configure(store=url)
    yield Shop(url)
    DBOS.destroy(destroy_registry=True)


def messages(url: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute("SELECT destination_uuid, topic FROM dbos.notifications").fetchall()


def executed(url: str, sql: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(sql.encode())


def test_decision_and_message_are_in_one_transaction(shared: Shop) -> None:
    store, run = config.default_store(), started(shared.workflow(recheck="1h"))
    request = waiting(store)
    adapter.wake_in_transaction(shared.database)
    adapter.wake_in_transaction(shared.database)  # twice is once
    doom = "CREATE FUNCTION doom() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$"
    executed(shared.database, doom)
    late = "CREATE CONSTRAINT TRIGGER doom AFTER UPDATE ON sayso.standing DEFERRABLE INITIALLY DEFERRED"
    executed(shared.database, f"{late} FOR EACH ROW EXECUTE FUNCTION doom()")
    with pytest.raises(errors.StoreError):  # at the commit, behind the message
        approve(request)
    assert (store.get(request.id).state, messages(shared.database)) == (State.PENDING, [])
    executed(shared.database, "DROP TRIGGER doom ON sayso.standing")
    approve(request)  # and nobody delivers
    assert ended(run) == "refunded 50.00 for A-1"
    assert messages(shared.database) == [("w-1", f"sayso/{request.id}")]


def test_decision_counts_where_dbos_cannot_be_told(shared: Shop) -> None:
    store, run = config.default_store(), started(shared.workflow(recheck="1s"))
    request = waiting(store)
    adapter.wake_in_transaction(shared.database)
    executed(shared.database, "ALTER FUNCTION dbos.send_message(text, json, text, text) RENAME TO gone")
    approve(request)
    assert ended(run) == "refunded 50.00 for A-1"
    other = sayso.hold("lookup", {}, run="order-1")
    sayso.Review(by="ada").approve(other.id)
    assert other.once(lambda _: "found") == "found"


def test_shared_database_needs_both(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="a Postgres store"):
        adapter.wake_in_transaction(f"sqlite:///{tmp_path / 'sayso.db'}")
    with pytest.raises(errors.ConfigError, match="launch DBOS there first"):
        adapter.wake_in_transaction(server().new())
