"""Guards that only a particular accident reaches: each test fails when its guard is taken away (see `tests/mutants`).

What a part does in the usual course is tested beside that part. The one invariant: nothing here depends on luck; where
two callers must meet, one is held until the other has come.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import types
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

import sayso
from sayso import config, effects, errors
from sayso.model.ids import call_digest, question_digest
from sayso.model.redaction import MASK
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Identity, Quorum
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import frozen_clock, sample_call
from sayso.testing.scene import ADA, BOB, Scene, refusal
from tests.support.acting import approved, forked, held, running
from tests.support.altering import rewrite


@pytest.fixture(autouse=True)
def run_of_its_own() -> Iterator[None]:
    with sayso.run():
        yield


@pytest.fixture
def memory() -> Store:
    config.configure(store="memory:")
    return config.default_store()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    config.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    return tmp_path / "sayso.db"


def state_of(request_id: str) -> State:
    return config.default_store().get(request_id).state


# -- people --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["Ada", "ADA", "\uff41da", "\u24d0da"])
def test_one_person_in_two_spellings_counts_once(other: str) -> None:
    assert Quorum(2).missing([Identity(LOCAL, "ada"), Identity(LOCAL, other)]) == 1
    assert Quorum(2).missing([ADA, BOB]) == 0


@pytest.mark.parametrize("name", ["a\u200bda", "ada\u202e", "a\x00da", " ada", ""])
def test_a_name_that_hides_something_names_nobody(name: str) -> None:
    with pytest.raises(ValueError, match="'"):
        Identity(LOCAL, name)


def test_a_run_inside_another_acts_for_the_same_person(memory: Store) -> None:
    pay = sayso.gate(wait="raise")(echo)
    with sayso.run("outer", on_behalf_of="carol"), sayso.run("inner"):
        request_id = held(pay, 1).confirmation_id
    with pytest.raises(errors.OwnRequestError):
        sayso.Review().approve(request_id, by="carol")


def echo(amount: Any) -> Any:
    return amount


def test_who_names_what_was_looked_at_decides_that_alone(memory: Store) -> None:
    request_id = held(sayso.gate(wait="raise")(echo), 1).confirmation_id
    with pytest.raises(errors.StaleViewError):
        sayso.Review().approve(request_id, by="ada", seen="0" * 64)
    assert state_of(request_id) is State.PENDING


def test_an_answer_that_does_not_fit_decides_nothing(memory: Store) -> None:
    request_id = held(sayso.ask, "How many?", type=int, wait="raise").confirmation_id
    with pytest.raises(errors.InvalidAnswerError):
        sayso.Review().answer(request_id, "some", by="ada")
    assert state_of(request_id) is State.PENDING


# -- what is asked -------------------------------------------------------------------------------------------------


def test_the_parts_of_a_digest_cannot_be_shifted() -> None:
    assert call_digest("a", "bc", b"{}") != call_digest("ab", "c", b"{}")
    assert question_digest("a", "1b", 0) != question_digest("a1", "b", 0)


@dataclass
class Parcel:
    weight: int


class Growing(Parcel):
    """Its weight is another one for each process that reads it from the store."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value + 1 if name == "weight" else value


def test_a_call_that_no_other_process_could_run_is_refused_when_asked(memory: Store) -> None:
    pay = sayso.gate(wait="raise")(echo)  # no annotation mentions the class
    with pytest.raises(errors.ArgumentError):
        pay(Parcel(3))

    @sayso.gate(wait="raise")
    def ship(parcel: Growing) -> None: ...

    with pytest.raises(errors.ArgumentError, match="cannot be restored unchanged"):
        ship(Growing(3))


def test_a_masked_value_that_is_left_as_shown_stays_what_it_is(memory: Store) -> None:
    got: list[tuple[str, str]] = []

    @sayso.gate(wait="raise")
    def connect(url: str, password: str) -> None:
        got.append((url, password))

    request_id = held(connect, "db", "hunter2").confirmation_id
    shown = memory.get(request_id).call.arguments
    assert shown == {"url": "db", "password": MASK}
    edited = sayso.Review().approve(request_id, by="ada", arguments={**shown, "url": "db2"})
    assert edited.effective.arguments == {"url": "db2", "password": MASK}
    connect("db", "hunter2")
    assert got == [("db2", "hunter2")]


# -- what runs -----------------------------------------------------------------------------------------------------


def test_a_call_whose_form_and_digest_were_both_altered_is_not_run(file: Path) -> None:
    ran: list[int] = []
    pay = sayso.gate(wait="raise", name="pay")(ran.append)
    request_id, other_id = approved(pay, 10), held(pay, 1_000_000).confirmation_id
    store = config.default_store()
    other = store.get(other_id).call
    rewrite(store.url, request_id, form=other.form, digest=other.digest)
    with pytest.raises(errors.AlteredRequestError, match="do not match the approved fingerprint"):
        pay(10)
    assert ran == []
    assert state_of(request_id) is State.FAILED


EDIT_ELSEWHERE = """
import sys, sayso
sayso.Review(sys.argv[1]).approve(sys.argv[2], by="ada", changes={"amount": 7})
"""


def even(amount: int) -> int:
    if amount % 2:
        raise ValueError("odd")
    return amount


def test_an_edit_made_without_the_functions_validators_is_validated_before_it_runs(file: Path) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise")
    def pay(amount: Annotated[int, AfterValidator(even)]) -> None:
        ran.append(amount)

    request_id = held(pay, 10).confirmation_id
    running(forked(EDIT_ELSEWHERE, f"sqlite:///{file}", request_id))
    assert held(pay, 10).confirmation_id == request_id
    assert ran == []
    assert state_of(request_id) is State.PENDING


@pytest.mark.parametrize("broken_off", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_call_that_is_broken_off_is_unknown_and_not_failed(memory: Store, broken_off: type[BaseException]) -> None:
    @sayso.gate(wait="raise", retries=3)
    def pay(amount: int) -> None:
        raise broken_off

    request_id = approved(pay, 1)
    with pytest.raises(broken_off):
        pay(1)
    assert state_of(request_id) is State.UNKNOWN
    execution = memory.get(request_id).execution
    assert execution is not None
    assert (execution.error or "").startswith(broken_off.__name__), "it is recorded by the call itself"
    with pytest.raises(errors.OutcomeUnknownError):
        pay(1)


@types.coroutine
def pause() -> Generator[None]:
    yield


def test_a_coroutine_that_is_thrown_away_in_mid_call_is_unknown(memory: Store) -> None:
    begun: list[int] = []

    @sayso.gate(wait="raise")
    async def pay(amount: int) -> None:
        begun.append(amount)
        await pause()

    with pytest.raises(sayso.ConfirmationRequired) as caught:
        pay(1).send(None)
    sayso.Review().approve(caught.value.confirmation_id, by="ada")
    call = pay(1)
    call.send(None)
    assert begun == [1]
    call.close()
    assert state_of(caught.value.confirmation_id) is State.UNKNOWN


def test_a_call_that_ran_and_could_not_be_recorded_says_so_with_its_result(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pay = sayso.gate(wait="raise")(echo)
    request_id = approved(pay, 7)

    def full(*_: object) -> Request:
        raise errors.StoreFullError("no room left")

    monkeypatch.setattr(memory, "finish", full)
    with pytest.raises(errors.OutcomeNotRecordedError) as caught:
        pay(7)
    assert (caught.value.result, state_of(request_id)) == (7, State.RUNNING)


def test_a_hook_that_says_something_else_settles_nothing(memory: Store) -> None:
    said: list[object] = []

    @sayso.gate(wait="raise", verify=lambda: said[-1])
    def pay(amount: int) -> None:
        raise KeyboardInterrupt

    request_id = approved(pay, 1)
    with pytest.raises(KeyboardInterrupt):
        pay(1)
    for answer in ("yes", 1, 0, {}):
        said.append(answer)
        with pytest.raises(errors.PolicyError):
            pay(1)
    assert state_of(request_id) is State.UNKNOWN


def test_a_cancelled_task_waits_for_the_end_of_a_verb_that_has_begun() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[str]()

    def verb() -> None:
        begun.set()
        assert go_on.wait(30)
        done.append("committed")

    async def main() -> None:
        task = asyncio.create_task(effects.offload(verb))
        assert await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(main())
    finally:
        go_on.set()
    assert done == ["committed"]


# -- stores --------------------------------------------------------------------------------------------------------


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Scene, SqliteStore, SqliteStore]]:
    """A scene on one store, and the same file as another process has it, which guesses from what it saw last."""
    here, there = SqliteStore(tmp_path / "shared.db"), SqliteStore(tmp_path / "shared.db")

    class Here(Scene):
        def make_store(self) -> Store:
            return here

    scene = Here()
    scene.setup_method()
    yield scene, here, there
    scene.teardown_method()
    there.close()


Shared = tuple[Scene, SqliteStore, SqliteStore]


def test_a_row_that_was_changed_elsewhere_is_not_overwritten_from_memory(scene: Shared) -> None:
    people, here, there = scene
    request = people.decide("approve", here.ask(sample_call("run_1")))
    assert there.get(request.id).state is State.APPROVED
    here.start(request.id, "first")
    there.ask(sample_call("run_1", {"amount": 2}))  # it knows the end of the chain again, and not of the start
    refusal(errors.AlreadyStartedError, lambda: there.start(request.id, "second"))
    execution = here.get(request.id).execution
    assert execution is not None
    assert execution.token == "first"


def test_an_answer_is_never_given_from_memory_alone(scene: Shared) -> None:
    people, here, there = scene
    request = here.ask(sample_call("run_1"))
    there.get(request.id)
    people.decide("approve", request)
    assert there.settle(request.id).state is State.APPROVED
    refusal(errors.NotUnknownError, lambda: there.resolve(
        request.id, BOB, roles=(), happened=True, comment=None, channel="test"))  # fmt: skip
    here.start(request.id, "t")
    assert there.settle(request.id).state is State.RUNNING


def test_nobody_else_can_write_between_a_verbs_reading_and_its_writing(scene: Shared) -> None:
    people, here, _ = scene
    request = people.ask()
    heard: list[str] = []

    def work(tx: Any) -> None:
        tx.load(request.id)
        with closing(sqlite3.connect(here.url.removeprefix("sqlite:///"), timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                heard.append(str(error))
        tx.note("run_1", "looked", BOB, "test", {})

    here._transact(work)
    assert heard
    assert set(heard) == {"database is locked"}


def test_in_memory_one_verb_ends_before_the_next_begins() -> None:
    store, inside, log = MemoryStore(), threading.Event(), list[str]()

    def first(_: Any) -> None:
        log.append("first begins")
        inside.set()
        other.join(0.2)  # the second has all this time to come in between
        log.append("first ends")

    other = threading.Thread(target=lambda: (inside.wait(30), store._transact(lambda _: log.append("second"))))
    other.start()
    store._transact(first)
    other.join(30)
    assert log == ["first begins", "first ends", "second"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_takes_over_no_lock_and_no_connection(scene: Shared) -> None:
    people, here, _ = scene
    people.ask()
    assert here._writing is not None
    child = os.fork()
    if child == 0:
        is_afresh = here._writing is None and here._reading is None and not here._write_lock.locked()
        os._exit(0 if is_afresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("make", [MemoryStore, lambda: SqliteStore("guards.db")])
def test_an_end_that_a_refused_verb_met_stays_written(make: Callable[[], Store]) -> None:
    with frozen_clock() as clock, closing(make()) as store:
        request = store.ask(sample_call())
        clock.tick("24h")
        refusal(errors.RequestExpiredError, lambda: store.claim(request.id, ADA, roles=(), channel="test"))
        assert store.get(request.id).state is State.EXPIRED
        assert [entry.event for entry in store.journal()] == ["asked", "expired"]


def test_running_call_is_ended_by_force_alone_and_never_made_ready_again(memory: Store) -> None:
    request = memory.ask(replace(sample_call(), retries=3))
    sayso.Review().approve(request.id, by="ada")
    memory.start(request.id, "token")
    resolve = partial(memory.resolve, request.id, ADA, roles=(), happened=False, comment=None, channel="test")
    assert "--force" in str(refusal(errors.NotUnknownError, resolve))
    ended = resolve(force=True)
    assert (ended.state, ended.holds) == (State.FAILED, False)
    assert "given_up" in memory.journal(request_id=request.id)[-1].detail
