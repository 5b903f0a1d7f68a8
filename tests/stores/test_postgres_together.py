"""Works of a server on the Postgres store: many of them in one commit, each of them one transaction."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

from sayso import audit, errors
from sayso.model.ids import new_token
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import LOCAL, Identity
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores import workers
from sayso.stores.base import Store
from sayso.stores.filter import RunFilter
from sayso.stores.records import Record
from sayso.testing import sample_call
from tests.support.tcp_proxy import Proxy

pytest.importorskip("psycopg", reason="NOT TESTED with Postgres, because psycopg is not installed")

from sayso.stores import postgres_transaction
from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres_connection import Connection


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(url)) as store:
        yield store


def approve(request: Request, view: Store) -> Request:
    fingerprint = request.current_fingerprint
    decision = Decision("approve", Identity(LOCAL, "ada"), view.now(), "test", None, fingerprint, False, None)
    return view.decide(request.id, decision, roles=(), seen=fingerprint)


def whole(request: Request, view: Store) -> State:
    """Ask, approve, start and finish in one work."""
    token = new_token()
    approve(view.ask(request), view)
    view.start(request.id, token)
    return view.finish(request.id, token, Outcome("done")).state


def transactions(url: str, requests: list[Request]) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        sql = "SELECT count(DISTINCT tx) FROM sayso.journal WHERE request_id = ANY(%s)"
        [(count,)] = connection.execute(sql, ([request.id for request in requests],)).fetchall()
        return count


def test_threads_that_read_at_the_same_time_remember_and_forget_without_an_error() -> None:
    remembered = dict[str, int]()
    went: list[int] = []

    def remember(who: int) -> None:
        for number in range(30_000):
            postgres_transaction._put(remembered, f"{who} {number}", number)
        went.append(who)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=remember, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert sorted(went) == [0, 1, 2, 3]
    assert len(remembered) < postgres_transaction._REMEMBERED + 4


def test_works_share_one_commit(store: PostgresStore, url: str) -> None:
    requests = [sample_call(None) for _ in range(5)] + [sample_call("shared", {"amount": n}) for n in range(3)]
    assert store.together([partial(whole, request) for request in requests]) == [State.DONE] * 8
    assert transactions(url, requests) == 1
    assert audit.verify(store).broken == ()
    again = [sample_call(None) for _ in range(3)]
    store.together([partial(whole, request) for request in again])
    assert transactions(url, requests + again) == 2


def test_the_lease_of_a_start_in_a_work_is_renewed_until_its_end(store: PostgresStore) -> None:
    asked, tokens = [store.ask(sample_call(None)) for _ in range(8)], [new_token() for _ in range(8)]
    ids = [request.id for request in asked]
    store.together([partial(approve, request) for request in asked])
    store.together([partial(_started, *one) for one in zip(ids, tokens, strict=True)])
    # Without a name of its own, whoever runs the calls is this process, which renews its leases.
    assert {store.get(request_id).state for request_id in ids} == {State.RUNNING}
    assert set(tokens) <= set(workers._keepers[store].held)
    store.together([partial(_finished, *one) for one in zip(ids, tokens, strict=True)])
    assert not set(tokens) & set(workers._keepers[store].held)


def _started(request_id: str, token: str, view: Store) -> Request:
    return view.start(request_id, token)


def _finished(request_id: str, token: str, view: Store) -> Request:
    return view.finish(request_id, token, Outcome("done"))


def test_a_work_sees_what_those_before_it_wrote_and_nobody_else_does(store: PostgresStore, url: str) -> None:
    request = sample_call(None)
    with closing(PostgresStore(url)) as other:
        works: list[Callable[[Store], Any]] = [
            lambda view: view.ask(request).id,
            lambda view: view.get(request.id).id,
            lambda _: other.find(request.fingerprint),
            lambda view: view.keep(Record("note", "a", {})),
            lambda view: view.record("note", "a") is not None,
        ]
        assert store.together(works) == [request.id, request.id, None, True, True]
        assert other.get(request.id) == request


def test_a_work_that_fails_undoes_what_it_wrote_and_no_other(store: PostgresStore) -> None:
    first, second = sample_call(None), sample_call(None)

    def fail(view: Store) -> None:
        approve(view.ask(first), view)
        raise RuntimeError("after it wrote")

    def refuse(view: Store) -> None:
        raise errors.RunNotFoundError("before it wrote")

    works: list[Callable[[Store], Any]] = [
        partial(whole, second),
        fail,
        refuse,
        lambda view: view.start("rq_none", "t"),
    ]
    done, *failed = store.together(works)
    assert done == State.DONE
    assert [type(one) for one in failed] == [RuntimeError, errors.RunNotFoundError, errors.RequestNotFoundError]
    assert not store.journal(request_id=first.id)
    assert store.ask(first).state is State.PENDING  # nothing of it is remembered either
    assert audit.verify(store).broken == ()


def test_what_another_process_changed_meanwhile_costs_the_works_beside_it_nothing(
    store: PostgresStore, url: str
) -> None:
    known, taken, new, claimed = (store.ask(sample_call(None)) for _ in range(4))
    with closing(PostgresStore(url)) as other:
        other.claim(claimed.id, Identity(LOCAL, "ada"), roles=(), channel="test")
        for request in (known, taken):
            approve(request, other)
        other.start(taken.id, "theirs")
    works: list[Callable[[Store], Any]] = [
        partial(approve, new),
        lambda view: view.start(known.id, "ours"),
        lambda view: view.start(taken.id, "ours"),
        partial(whole, sample_call(None)),
        partial(approve, claimed),  # which the row that is remembered allows as well, and the statement does not
    ]
    approved, started, refused, state, overtaken = store.together(works)
    assert isinstance(approved, Request)
    assert isinstance(overtaken, Request)
    assert store.get(claimed.id) == overtaken
    assert [entry.event for entry in store.journal(request_id=claimed.id)] == ["asked", "claimed", "approved"]
    assert isinstance(started, Request)
    assert isinstance(refused, errors.AlreadyStartedError)
    assert state == State.DONE
    assert transactions(url, [new, claimed]) == 4  # their asks, the claim, and the commit that all of them share
    assert audit.verify(store).broken == ()


@pytest.mark.parametrize("when", ["before", "after"])
def test_works_whose_commit_was_lost_on_its_way_happen_once(url: str, when: Literal["before", "after"]) -> None:
    proxy = Proxy(Path(url.partition("host=")[2]) / ".s.PGSQL.5432")
    through = f"postgresql://tester@127.0.0.1:{proxy.port}{urlsplit(url).path}?sslmode=disable"
    requests = [sample_call(None) for _ in range(4)]
    with closing(PostgresStore(through)) as store:
        assert store.together([partial(whole, sample_call(None))]) == [State.DONE]
        proxy.cut(when, "COMMIT\0")
        assert store.together([partial(whole, request) for request in requests]) == [State.DONE] * 4
        assert proxy.cuts == 1
        assert [len(store.journal(request_id=request.id)) for request in requests] == [4] * 4
        assert audit.verify(store).broken == ()
    proxy.close()


def test_a_work_whose_commit_was_lost_without_a_trace_is_not_done_again(url: str) -> None:
    proxy = Proxy(Path(url.partition("host=")[2]) / ".s.PGSQL.5432")
    through = f"postgresql://tester@127.0.0.1:{proxy.port}{urlsplit(url).path}?sslmode=disable"
    went: list[str] = []

    def keep(name: str, view: Store) -> None:
        went.append(name)
        view.keep(Record("note", name, {"went": went.count(name)}))

    request = sample_call(None)
    with closing(PostgresStore(through)) as store:
        store.keep(Record("note", "first", {}))
        proxy.cut("after", "COMMIT\0")
        told = store.together([partial(keep, "a"), partial(whole, request), partial(keep, "b")])
        assert [type(told[0]), told[1], type(told[2])] == [
            errors.StoreUnavailableError, State.DONE, errors.StoreUnavailableError,
        ]  # fmt: skip
        assert "may or may not be stored" in str(told[0])
        kept = {one.key: one.body for one in store.records("note")}
        assert kept == {"first": {}, "a": {"went": went.count("a")}, "b": {"went": went.count("b")}}
    assert went.count("a") == went.count("b") == 1
    proxy.close()


def test_a_decision_in_one_commit_with_a_read_that_the_database_broke_off_is_recorded(
    store: PostgresStore, url: str
) -> None:
    import psycopg

    store.keep(Record("channel", "hook", {}))  # else the commit looks once more for one
    request = store.ask(sample_call(None))
    went: list[str] = []

    def read(view: Store) -> int:
        went.append("read")
        return len(view.runs(RunFilter())[0])

    with psycopg.connect(url) as other:  # as an upgrade, or VACUUM FULL
        other.execute("LOCK TABLE sayso.run IN ACCESS EXCLUSIVE MODE")
        told: list[Any] = []
        thread = threading.Thread(target=lambda: told.extend(store.together([partial(approve, request), read])))
        thread.start()
        while thread.is_alive() and len(went) < 2:  # the first time it is broken off
            time.sleep(0.005)
        other.rollback()
        thread.join()
    approved, runs = told
    assert store.get(request.id) == approved
    assert approved.state is State.APPROVED
    assert runs == 0


@pytest.mark.parametrize("count", [1, 3])
def test_who_stops_everything_while_works_share_a_commit_is_not_overtaken_by_them(
    store: PostgresStore, url: str, count: int
) -> None:
    requests = [sample_call(None) for _ in range(count)]
    for request in requests:
        approve(store.ask(request), store)

    def start(request: Request, view: Store) -> Request:
        return view.start(request.id, "ours")

    def start_and_look_away(view: Store) -> Request:
        found = view.start(requests[0].id, "ours")
        if other.stopped() is None:
            other.stop(Identity(LOCAL, "ada"), channel="test")
        return found

    with closing(PostgresStore(url)) as other:
        told = store.together([start_and_look_away, *(partial(start, request) for request in requests[1:])])
    assert [type(one) for one in told] == [errors.StoppedError] * count
    assert [store.get(request.id).state for request in requests] == [State.APPROVED] * count


def test_a_work_that_stops_everything_stops_the_start_behind_it_in_the_same_work(store: PostgresStore) -> None:
    approve(request := store.ask(sample_call(None)), store)
    (told,) = store.together(
        [lambda view: (view.stop(Identity(LOCAL, "ada"), channel="test"), view.start(request.id, "ours"))]
    )
    assert isinstance(told, errors.StoppedError)
    assert store.stopped() is not None


@pytest.mark.parametrize("count", [1, 2])
def test_works_are_told_what_another_process_has_decided(store: PostgresStore, url: str, count: int) -> None:
    requests = [store.ask(sample_call(None)) for _ in range(count)]
    with closing(PostgresStore(url)) as other:
        for request in requests:
            approve(request, other)
    settled = store.together([lambda view, one=one: view.settle(one.id).state for one in requests])
    assert settled == [State.APPROVED] * count


def test_a_work_alone_starts_what_another_process_has_approved(store: PostgresStore, url: str) -> None:
    request = store.ask(sample_call(None))
    with closing(PostgresStore(url)) as other:
        approve(request, other)
    assert store.together([lambda view: view.start(request.id, "ours").state]) == [State.RUNNING]


def test_a_work_that_stops_everything_stops_the_works_behind_it(store: PostgresStore) -> None:
    requests = [sample_call(None) for _ in range(2)]
    for request in requests:
        approve(store.ask(request), store)
    works: list[Callable[[Store], Any]] = [
        lambda view: view.start(requests[0].id, "ours").state,
        lambda view: view.stop(Identity(LOCAL, "ada"), channel="test"),
        lambda view: view.start(requests[1].id, "ours"),
    ]
    state, _, refused = store.together(works)
    assert state == State.RUNNING
    assert isinstance(refused, errors.StoppedError)


def test_a_work_that_wrote_and_then_met_an_altered_row_is_not_done_on_top_of_itself(
    store: PostgresStore, url: str
) -> None:
    import psycopg

    first = store.ask(sample_call(None))
    with closing(PostgresStore(url)) as other, psycopg.connect(url, autocommit=True) as raw:
        second = other.ask(sample_call(None))
        raw.execute("UPDATE sayso.asked SET tool = 'x' WHERE id = %s", (second.id,))
        with pytest.raises(errors.StoreCorruptError):
            store.settle(second.id)  # it is remembered as it was read
    (told,) = store.together([lambda view: (approve(first, view), approve(second, view))])
    assert isinstance(told, errors.StoreCorruptError)
    assert [entry.event for entry in store.journal(request_id=first.id)] == ["asked", "approved"]


def test_who_asks_in_a_run_that_another_process_stores_meanwhile_is_refused_as_a_whole(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ask(sample_call(None))
    now, real, done = store.now(), Connection.run, list[str]()
    request, run = sample_call("run_1"), RunRecord("run_1", "support", "agent", RunState.RUNNING, "mine", now, now)

    def slow(self: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
        if "SELECT 1 FROM step" in sql and not done:
            done.append(sql)
            with closing(PostgresStore(url)) as other:
                other.save_run(RunUpdate(replace(run, holder="theirs"), [Step("/", "{}")]))
        return real(self, sql, values)

    monkeypatch.setattr(Connection, "run", slow)
    (told,) = store.together([lambda view: view.ask(request, RunUpdate(run, [Step("/mine", "{}")]))])
    assert isinstance(told, errors.RunBusyError)
    assert store.journal(request_id=request.id) == []


def test_a_work_whose_row_somebody_keeps_locked_is_told_so_and_holds_up_no_work_behind_it(
    store: PostgresStore, url: str
) -> None:
    import psycopg

    locked, free = store.ask(sample_call(None)), store.ask(sample_call(None))
    told: list[Any] = []
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM sayso.standing WHERE id = %s FOR UPDATE", (locked.id,))
        works = [partial(approve, one) for one in (locked, free)]
        thread = threading.Thread(target=lambda: told.extend(store.together(works)))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    busy, approved = told
    assert isinstance(busy, errors.StoreBusyError)
    assert approved.state is State.APPROVED
    assert store.get(locked.id).state is State.PENDING


def test_a_work_that_waits_for_another_process_holds_up_no_work_before_it(store: PostgresStore, url: str) -> None:
    import psycopg

    store.keep(Record("note", "held", {}))
    works: list[Callable[[Store], Any]] = [
        lambda view: view.keep(Record("note", "free", {})),
        lambda view: view.keep(Record("note", "held", {"by": "us"})),
    ]
    with closing(PostgresStore(url)) as other, psycopg.connect(url) as theirs:
        theirs.execute("UPDATE sayso.record SET due = 7 WHERE key = 'held'")
        thread = threading.Thread(target=store.together, args=(works,))
        thread.start()
        deadline = time.monotonic() + 30
        while other.record("note", "free") is None and time.monotonic() < deadline:
            threading.Event().wait(0.005)
        is_there = other.record("note", "free") is not None
        theirs.rollback()
        thread.join()
        assert is_there
        assert [one.body for one in other.records("note")] == [{}, {"by": "us"}]
