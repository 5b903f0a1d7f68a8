"""What the Postgres store does beyond the contract: lost connections, notifications, the feed, migrations, time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

import sayso
from sayso import audit, clock, config, errors
from sayso.model.ids import effect_digest, new_token
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request, State, Verb
from sayso.model.reviewer import LOCAL, Identity
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores.base import Filter, Store
from sayso.stores.records import Record, row_of_record
from sayso.stores.workers import Lease
from sayso.testing import sample_call
from sayso.testing.scene import outcomes_of
from tests.support import postgres as servers
from tests.support.postgres import Server, installed, server
from tests.support.tcp_proxy import Proxy

pytest.importorskip("psycopg", reason="NOT TESTED with Postgres, because psycopg is not installed")

from psycopg import OperationalError
from psycopg.conninfo import conninfo_to_dict

from sayso.stores import postgres, postgres_database
from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres_connection import COMMIT, Connection, Connections, Rows, translated
from sayso.stores.postgres_database import changes_since
from sayso.stores.postgres_transaction import PostgresTransaction

ADA = Identity(LOCAL, "ada")
AWAY = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1"
PATIENCE = 30  # seconds in which a change must be noticed


@pytest.mark.parametrize("place", [0, 1])
def test_a_version_that_is_missing_is_a_failure_in_ci_and_left_out_elsewhere(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_GIVEN", None)
    monkeypatch.setattr(servers, "installed", lambda: (Path("/nowhere"),) * place)
    for is_required, raised in ((True, pytest.fail.Exception), (False, pytest.skip.Exception)):
        monkeypatch.setattr(servers, "_REQUIRED", is_required)
        with pytest.raises(raised, match="NOT TESTED: there is no"):
            server(place)


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(url)) as store:
        yield store


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """A proxy before the server."""
    folder = Path(url.partition("host=")[2])
    found = Proxy(folder / ".s.PGSQL.5432")
    yield found
    found.close()


def decide(
    store: PostgresStore, request: Request, verb: Verb = "approve", by: Identity = ADA, comment: str | None = None
) -> Request:
    fingerprint = request.current_fingerprint
    decision = Decision(verb, by, store.now(), "test", comment, fingerprint, False, None)
    return store.decide(request.id, decision, roles=(), seen=fingerprint)


def cycle(store: PostgresStore, **fields: Any) -> Request:
    """Ask, approve, start and finish; return what became of it."""
    request, token = store.ask(sample_call(None, **fields)), new_token()
    decide(store, request)
    store.start(request.id, token)
    return store.finish(request.id, token, Outcome("done"))


def raw(url: str, sql: str, *values: Any) -> list[Any]:
    """Run a statement as somebody else does who may write the tables."""
    import psycopg

    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        cursor = connection.execute(sql.encode(), values)
        return cursor.fetchall() if cursor.description else []


# -- a connection that is lost ------------------------------------------------------------------------------------


def through(proxy: Proxy, url: str) -> str:
    return f"postgresql://tester@127.0.0.1:{proxy.port}{urlsplit(url).path}?sslmode=disable"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["ask", "decide", "start", "finish", "in a transaction"])
def test_what_was_lost_on_its_way_happens_once(
    url: str, proxy: Proxy, verb: str, when: Literal["before", "after"]
) -> None:
    with closing(PostgresStore(through(proxy, url))) as store, closing(PostgresStore(url)) as other:
        cycle(store)  # the schema of the call is known then, and each verb is one statement
        request, token = sample_call(None, key="k" if verb == "in a transaction" else None), new_token()
        verbs: dict[str, Callable[[], Request]] = {
            "ask": lambda: store.ask(request),
            "decide": lambda: decide(store, request),
            "start": lambda: store.start(request.id, token),
            "finish": lambda: store.finish(request.id, token, Outcome("done")),
        }
        last = "finish" if verb == "in a transaction" else verb
        if verb == "in a transaction":  # its result is kept, in a row of its own
            verbs["finish"] = lambda: store.finish(request.id, token, Outcome("done", kept='"paid"'))
        for name, work in verbs.items():
            if name == last:
                proxy.cut(when, "COMMIT\0" if verb == "in a transaction" else request.id)
            found = work()
            assert other.get(request.id) == found
            if name == last:
                break
        assert proxy.cuts == 1
        events = [entry.event for entry in other.journal(request_id=request.id)]
        assert events == ["asked", "approved", "started", "done"][: list(verbs).index(last) + 1]
        assert audit.verify(other).broken == ()


def test_a_start_that_loses_two_connections_is_not_refused_because_of_itself(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, token = store.ask(sample_call(None)), new_token()
    decide(store, request)
    real, starts, losses = Connection.run, list[str](), ["second", "first"]

    def run(self: Connection, sql: str, values: Sequence[Any] = ()) -> Rows:
        is_start = "UPDATE standing" in sql
        starts.extend([sql] * is_start)
        # Lost before the first one is sent, and when somebody looks up after the second one whether the first arrived.
        is_lost = is_start if len(starts) == 1 else sql == postgres._TOOK and len(starts) == 2
        if is_lost and losses:
            losses.pop()
            self.close()
            raise OperationalError("the connection is lost")
        return real(self, sql, values)

    monkeypatch.setattr(Connection, "run", run)
    assert store.start(request.id, token).state is State.RUNNING


def test_a_session_that_lost_its_prepared_statements_is_given_up(store: PostgresStore) -> None:
    for reset in (b"DEALLOCATE ALL", b"DISCARD ALL"):
        for _ in range(3):  # so that each statement is prepared
            cycle(store)
        with store._connections.one() as connection:
            connection.command(reset)
        assert cycle(store).state is State.DONE
        assert connection.closed


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
def test_a_server_that_has_become_read_only_is_left_for_the_one_that_can_be_written(
    store: PostgresStore, url: str, *, is_shared: bool
) -> None:
    def ask() -> object:
        return store.together([lambda view: view.ask(request)])[0] if is_shared else store.ask(request)

    here, database, request = server(), urlsplit(url).path[1:], sample_call(None)
    store.ask(sample_call(None))
    here.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    store._connections.close()  # as when a primary is restarted as a standby
    told = outcomes_of([ask])
    assert [type(one) for one in told] == [errors.StoreReadOnlyError]
    here.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert ask() == request


def test_what_may_have_been_committed_and_leaves_no_trace_is_said(url: str, proxy: Proxy) -> None:
    with closing(PostgresStore(through(proxy, url))) as store:
        store.keep(Record("note", "a", {}))
        proxy.cut("after", "COMMIT\0")
        with pytest.raises(errors.StoreUnavailableError, match="may or may not be stored"):
            store.keep(Record("note", "b", {}), only_new=True)
        assert store.record("note", "b") is not None


@pytest.mark.parametrize("verb", ["decide", "start", "finish"])
def test_what_may_have_been_committed_when_the_database_went_away_is_said(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE", 0.2)
    with closing(PostgresStore(through(proxy, url))) as store, closing(PostgresStore(url)) as other:
        cycle(store)
        request, token = store.ask(sample_call(None)), new_token()
        verbs: dict[str, Callable[[], Request]] = {
            "decide": lambda: decide(store, request),
            "start": lambda: store.start(request.id, token),
            "finish": lambda: store.finish(request.id, token, Outcome("done")),
        }
        for name, work in verbs.items():
            if name == verb:
                break
            work()
        proxy.cut("after", request.id)
        monkeypatch.setattr(store._connections, "_connect", PostgresStore(AWAY)._connect)
        with pytest.raises(errors.StoreUnavailableError, match="may or may not be stored"):
            verbs[verb]()
        assert other.get(request.id).state in {State.APPROVED, State.RUNNING, State.DONE}


def test_who_knows_the_row_gives_up_like_anybody_else_when_the_database_went_away(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, tries = store.ask(sample_call(None)), list[int]()
    store._cache.heads.clear()  # so that a decision reads the end of the chain, and nothing else

    def lost(self: Connection, sql: str, values: Sequence[Any] = ()) -> Rows:
        self.close()
        raise OperationalError("the connection is lost")

    def connect() -> Connection:
        tries.append(1)
        raise OperationalError("the database is not there")

    monkeypatch.setattr(postgres, "_PATIENCE", 0.0)
    monkeypatch.setattr(Connection, "run", lost)
    monkeypatch.setattr(store._connections, "_connect", connect)
    with pytest.raises(errors.StoreUnavailableError):
        decide(store, request)
    assert len(tries) < 3


def test_a_text_that_is_too_long_for_an_index_is_refused_at_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, connect = list[str](), store._connections._connect
    cycle(store)

    def counted() -> Connection:
        tries.append("connect")
        return connect()

    monkeypatch.setattr(store._connections, "_connect", counted)
    run_id = "".join(chr(0x4E00 + 7919 * n % 20000) for n in range(3000))
    for refused in (lambda: store.ask(sample_call(run_id)), lambda: store.keep(Record("note", run_id, {}))):
        with pytest.raises(errors.StoreError, match="index row requires") as caught:
            refused()
        assert not isinstance(caught.value, errors.StoreUnavailableError)
    assert tries == []


def test_a_start_that_another_won_meanwhile_is_refused_after_a_lost_connection(url: str, proxy: Proxy) -> None:
    with closing(PostgresStore(through(proxy, url))) as store, closing(PostgresStore(url)) as other:
        cycle(store)
        request = store.ask(sample_call(None))
        decide(store, request)
        proxy.cut("before", request.id)
        other.start(request.id, "theirs")
        with pytest.raises(errors.AlreadyStartedError):
            store.start(request.id, "mine")


def crashes(times: int, workers: int) -> None:
    """Stop a server as by a crash while programs run, and look that nothing is lost or started twice."""
    here = Server(installed()[0], is_durable=True)
    try:
        address, done, ends = here.new(), list[str](), threading.Event()
        store = PostgresStore(address)
        cycle(store)

        def work() -> None:
            while not ends.is_set():
                done.append(cycle(store).id)

        before = [threading.Thread(target=work) for _ in range(workers)]
        for thread in before:
            thread.start()
        for _ in range(times):
            wanted = len(done) + 2 * workers
            while len(done) < wanted and any(thread.is_alive() for thread in before):
                ends.wait(0.01)
            here.stop(immediately=True)
            here.start()
        ends.set()
        for thread in before:
            thread.join()
        ids = [row[0] for row in raw(address, "SELECT id FROM sayso.standing WHERE state = 'done'")]
        assert len(done) > 2 * workers * times
        assert set(done) <= set(ids)
        started = (
            "SELECT max(n) FROM (SELECT count(*) AS n FROM sayso.journal WHERE event = 'started' GROUP BY request_id) x"
        )
        assert raw(address, started) == [(1,)]
        assert audit.verify(store).broken == ()
        store.close()
    finally:
        here.end()


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
def test_who_goes_on_with_an_older_copy_of_the_database_writes_the_schema_again(
    store: PostgresStore, url: str, *, is_shared: bool
) -> None:
    store.ask(sample_call(None))
    raw(url, "DELETE FROM sayso.schema_text")
    request = sample_call(None)
    found = store.together([lambda view: view.ask(request)])[0] if is_shared else store.ask(request)
    with closing(PostgresStore(url)) as other:
        assert other.get(request.id) == found


def test_a_crash_of_the_server_loses_nothing_and_starts_nothing_twice() -> None:
    server()
    crashes(2, workers=3)


@pytest.mark.slow
def test_twenty_crashes_of_the_server_lose_nothing_and_start_nothing_twice() -> None:
    server()
    crashes(20, workers=6)


def test_a_server_that_was_never_there_is_told_at_once() -> None:
    store = PostgresStore("postgresql://sayso:hidden@127.0.0.1:1/none?connect_timeout=1")
    with pytest.raises(errors.StoreUnavailableError) as caught:
        store.get("rq_1")
    assert "hidden" not in str(caught.value)


# -- many at once -------------------------------------------------------------------------------------------------


def at_once(store: PostgresStore, works: Sequence[Callable[[], object]]) -> list[object]:
    """Have each wait in the queue before any is done."""
    store.count(Filter())
    with store._write_lock:
        told: list[object] = [None] * len(works)

        def run(n: int) -> None:
            try:
                told[n] = works[n]()
            except (errors.SaysoError, ValueError, KeyboardInterrupt) as error:
                told[n] = error

        threads = [threading.Thread(target=run, args=(n,)) for n in range(len(works))]
        for thread in threads:
            thread.start()
        while len(store._queue) < len(works):
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    return told


def test_verbs_that_wait_share_one_commit(store: PostgresStore, url: str) -> None:
    cycle(store)
    told = at_once(store, [partial(store.ask, sample_call(None)) for _ in range(8)])
    requests = [one for one in told if isinstance(one, Request)]
    transactions = "SELECT count(DISTINCT tx) FROM sayso.journal WHERE request_id = ANY($1)"
    assert raw(url, transactions, [request.id for request in requests]) == [(1,)]
    assert len(requests) == 8
    assert audit.verify(store).broken == ()


def test_who_made_a_shared_commit_reads_over_a_connection_of_its_own_afterwards(store: PostgresStore) -> None:
    asked = [sample_call(None) for _ in range(4)]

    def ask(request: Request) -> Request:
        store.ask(request)
        store._connections.close()  # as when the database goes away
        return store.get(request.id)

    assert at_once(store, [partial(ask, one) for one in asked]) == asked


def test_in_a_shared_commit_a_refused_verb_spoils_no_other(store: PostgresStore) -> None:
    cycle(store)
    first, second = store.ask(sample_call(None)), store.ask(sample_call("shared", {"amount": 1}))
    works: list[Callable[[], object]] = [
        partial(decide, store, first, "approve", ADA),
        partial(decide, store, first, "reject", Identity(LOCAL, "bob")),
        partial(decide, store, second),
        partial(store.ask, sample_call("shared", {"amount": 2})),
        partial(store.ask, sample_call("shared", {"amount": 3})),
        partial(store.ask, sample_call("same")),
        partial(store.ask, sample_call("same")),
        partial(store.start, "rq_none", "t"),
        partial(store.keep, Record("note", "a", {})),
    ]
    told = at_once(store, works)
    kinds = [type(one) for one in told]
    assert sorted(kind.__name__ for kind in kinds[:2]) == ["AlreadyDecidedError", "Request"]
    assert kinds[2:] == [Request] * 5 + [errors.RequestNotFoundError, bool]
    assert told[5] == told[6]
    assert audit.verify(store).broken == ()


def test_in_a_shared_commit_an_error_that_is_not_ours_reaches_its_own_caller_only(store: PostgresStore) -> None:
    def fails(_: PostgresTransaction) -> None:
        raise ValueError("mine")

    works: list[Callable[[], object]] = [partial(store.ask, sample_call(None)) for _ in range(6)]
    told = at_once(store, [partial(store._transact, fails), *works])
    assert isinstance(told[0], ValueError)
    assert [type(one) for one in told[1:]] == [Request] * 6
    assert audit.verify(store).broken == ()


def test_in_a_shared_commit_a_text_that_no_row_can_have_spoils_no_other(store: PostgresStore) -> None:
    asked = [store.ask(sample_call(f"run_{n}")) for n in range(4)]
    for request in asked[:2]:
        decide(store, request)
    works: list[Callable[[], object]] = [
        partial(store.start, asked[0].id, "token"),
        partial(store.start, asked[1].id, "token"),
        partial(decide, store, asked[2]),
        partial(store.ask, sample_call("run_9\0")),
        partial(decide, store, asked[3]),
    ]
    told = at_once(store, works)
    assert [type(one) for one in told[:3] + told[4:]] == [Request] * 4
    assert isinstance(told[3], errors.StoreError)
    assert audit.verify(store).broken == ()


@pytest.mark.parametrize("name", ["title", "summary", "prompt", "effect", "key"])
def test_a_text_with_a_zero_byte_is_kept_and_can_be_searched(store: PostgresStore, url: str, name: str) -> None:
    request = store.ask(sample_call(None, **{name: "one\0two"}))
    decided = decide(store, request, comment="three\0four")
    with closing(PostgresStore(url)) as other:
        assert other.get(request.id) == decided
        assert getattr(decided, name) == "one\0two"
        assert [one.id for one in other.list(Filter(text="three four")).requests] == [request.id]
        other.start(request.id, new_token())


def interrupt_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Ctrl-C arrive with the answer to the next commit."""
    command, interrupts = Connection.command, [KeyboardInterrupt()]

    def interrupted(connection: Connection, text: bytes) -> None:
        command(connection, text)
        if text == COMMIT and interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(Connection, "command", interrupted)


def test_ctrl_c_behind_a_shared_commit_makes_nobody_do_it_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [store.ask(sample_call(None)) for _ in range(4)]
    for request in asked:
        decide(store, request)
    interrupt_one_commit(monkeypatch)
    told = at_once(store, [partial(store.start, one.id, "token") for one in asked])
    assert sorted(type(one).__name__ for one in told) == ["KeyboardInterrupt", "Request", "Request", "Request"]
    assert {store.get(one.id).state for one in asked} == {State.RUNNING}
    assert audit.verify(store).broken == ()


def test_ctrl_c_behind_a_shared_commit_without_a_trace_makes_nobody_do_it_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = store.now()
    runs = [RunRecord(f"run_{n}", "support", "agent", RunState.RUNNING, "mine", now, now) for n in range(4)]
    interrupt_one_commit(monkeypatch)
    told = at_once(store, [partial(store.save_run, RunUpdate(run, [Step("/a", "{}")])) for run in runs])
    names = [type(one).__name__ for one in told]
    assert sorted(names) == ["KeyboardInterrupt", *["StoreUnavailableError"] * 3]
    assert [len(store.get_run(run.id).steps) for run in runs] == [1] * 4


@pytest.mark.parametrize("is_alone", [True, False])
def test_ctrl_c_at_any_moment_of_a_verb_holds_up_no_later_one(store: PostgresStore, *, is_alone: bool) -> None:
    moments = 0

    def interrupt_at(moment: int) -> bool:
        """Raise as Python does for a signal, after a call of a C function; return whether the verb got so far."""
        count = iter(range(moment + 1))

        def profile(frame: Any, event: str, _: Any) -> None:
            if event == "c_return" and "postgres" in frame.f_code.co_filename and next(count, None) == moment:
                sys.setprofile(None)
                raise KeyboardInterrupt

        request = sample_call(None, key=None if is_alone else new_token())
        sys.setprofile(profile)
        try:
            store.ask(request)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False

    store.ask(sample_call(None))
    while interrupt_at(moments):
        assert not store._write_lock.locked(), moments
        assert store._writing == {}, moments
        store._connections = Connections(store._connect)  # an interrupted one may have lost a place
        moments += 1
    assert moments > 20


def test_a_connection_lost_in_a_shared_commit_loses_no_verb_and_does_none_twice(url: str, proxy: Proxy) -> None:
    for when in ("before", "after"):
        with closing(PostgresStore(through(proxy, url))) as store:
            cycle(store)
            asked = [sample_call(None) for _ in range(6)]
            proxy.cut(when, asked[0].id)
            assert at_once(store, [partial(store.ask, one) for one in asked]) == asked
            assert [len(store.journal(request_id=one.id)) for one in asked] == [1] * 6
    assert proxy.cuts == 2


# -- who waits ----------------------------------------------------------------------------------------------------


def test_a_decision_and_a_new_request_are_heard_without_a_look(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.stores.postgres_database._SECOND", 3600.0)
    monkeypatch.setattr("sayso.stores.postgres_database.IDLE", 3600.0)
    request, woken, again = store.ask(sample_call(None)), threading.Event(), threading.Event()
    wakes = [woken, again]
    unwatch = store.watch(request.id, lambda: wakes.pop(0).set() if wakes else None)
    assert woken.wait(PATIENCE)  # once without need, when it listens
    with closing(PostgresStore(url)) as other:
        decide(other, request)
        assert again.wait(PATIENCE)
        asked = threading.Event()
        unwatch_all = store.watch_all(asked.set)
        other.ask(sample_call(None))
        assert asked.wait(PATIENCE)
    unwatch()
    unwatch_all()


@pytest.mark.parametrize("pooler", ["", "&sayso_pooler=transaction"])
def test_a_process_that_is_stopped_in_a_transaction_keeps_its_locks_for_ten_seconds_only(url: str, pooler: str) -> None:
    def timeout(tx: PostgresTransaction) -> str:
        tx.find_record("note", "a")  # not in the statement of one verb alone
        sql = "SELECT current_setting('idle_in_transaction_session_timeout')"
        return tx._execute(sql, ()).fetchone()[0]

    with closing(PostgresStore(f"{url}{pooler}")) as store:
        found = [store._transact(timeout)]
        found += store.together([lambda view: view._transact(timeout)] * 2)
        assert found == ["10s"] * 3


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
def test_who_was_stopped_for_too_long_in_a_transaction_does_it_again(url: str, *, is_shared: bool) -> None:
    went: list[int] = []

    def keep(tx: PostgresTransaction) -> int:
        tx.find_record("note", "a")
        (pid,) = tx._execute("SELECT pg_backend_pid()", ()).fetchone()
        went.append(pid)
        if len(went) == 1:
            tx._execute("SELECT set_config('idle_in_transaction_session_timeout', '20ms', true)", ())
            end = time.monotonic() + PATIENCE
            while raw(url, "SELECT 1 FROM pg_stat_activity WHERE pid = $1", pid):
                assert time.monotonic() < end, "the transaction goes on"
                time.sleep(0.01)
        tx.put_record(row_of_record(Record("note", "a", {"n": len(went)})))
        return len(went)

    with closing(PostgresStore(url)) as store:
        found = store.together([lambda view: view._transact(keep)])[0] if is_shared else store._transact(keep)
        assert store.record("note", "a") == Record("note", "a", {"n": found})


def test_a_pooler_needs_neither_listen_nor_prepared_statements(url: str) -> None:
    with closing(PostgresStore(f"{url}&sayso_pooler=transaction")) as store, closing(PostgresStore(url)) as other:
        for _ in range(8):
            cycle(store)
        with store._connections.one() as connection:
            assert connection.execute(b"SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        request, woken, again = store.ask(sample_call(None)), threading.Event(), threading.Event()
        wakes = [woken, again]
        unwatch = store.watch(request.id, lambda: wakes.pop(0).set() if wakes else None)
        assert woken.wait(PATIENCE)
        listening = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND datname = current_database()"
        assert raw(url, listening) == [(0,)]
        decide(other, request)
        assert again.wait(PATIENCE)
        unwatch()
    with pytest.raises(errors.ConfigError, match="sayso_pooler"):
        PostgresStore(f"{url}&sayso_pooler=session")


def test_the_feed_tells_each_change_once_also_of_who_began_first_and_committed_last(
    store: PostgresStore, url: str
) -> None:
    import psycopg

    entry = "INSERT INTO sayso.journal VALUES ('run', {}, 0, 'rq_{}', 'noted', '', '', '{{}}', '{}')"
    with store._connections.one() as reader, psycopg.connect(url) as early, psycopg.connect(url) as late:
        mark = changes_since(reader, None).mark
        early.execute(entry.format(1, "early", "a").encode())
        late.execute(entry.format(2, "late", "b").encode())
        late.commit()
        first = changes_since(reader, mark)
        early.commit()
        second = changes_since(reader, first.mark)
        assert (first.requests, second.requests) == (["rq_late"], ["rq_early"])
        assert changes_since(reader, second.mark).requests == []


# -- tables -------------------------------------------------------------------------------------------------------


def test_two_that_begin_at_once_make_the_tables_once() -> None:
    here = server()
    for n in range(3):
        here.execute(f"CREATE DATABASE begun_{n}")
        address = here.url(f"begun_{n}")
        stores = [PostgresStore(address) for _ in range(4)]
        assert outcomes_of([partial(one.count, Filter()) for one in stores]) == [0] * 4
        assert raw(address, "SELECT version FROM sayso.version") == [(postgres_database.newest_schema(),)]
        for one in stores:
            one.close()
        here.drop(address)


def test_an_upgrade_under_load_stops_nobody(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, ends, done = PostgresStore(url), threading.Event(), list[Request]()
    cycle(old)

    def work() -> None:
        while not ends.is_set():
            done.append(cycle(old))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    scripts = postgres_database._scripts()
    text = "ALTER TABLE sayso.standing ADD COLUMN later text; CREATE INDEX later ON sayso.standing (later);"
    expand = postgres_database._Script(scripts[-1].number + 1, 1, text)
    monkeypatch.setattr(postgres_database, "_scripts", lambda: (*scripts, expand))
    with closing(PostgresStore(url)) as new:
        cycle(new)
        before = len(done)
        while len(done) < before + 6 and all(thread.is_alive() for thread in threads):
            ends.wait(0.01)
        ends.set()
        for thread in threads:
            thread.join()
        assert len(done) >= before + 6
        assert {request.state for request in done} == {State.DONE}
        assert raw(url, "SELECT version, works_from FROM sayso.version") == [(expand.number, 1)]
        assert audit.verify(new).broken == ()
    old.close()


def test_tables_that_this_sayso_cannot_use_are_refused(url: str) -> None:
    raw(url, "UPDATE sayso.version SET version = 99, works_from = 99")
    with closing(PostgresStore(url)) as store, pytest.raises(errors.StoreVersionError, match="newer sayso"):
        store.count(Filter())


def test_a_role_that_may_not_read_the_tables_is_told_so(url: str) -> None:
    store = PostgresStore(f"{url}&options=-c%20role%3Dpg_monitor")
    with closing(store), pytest.raises(errors.StoreReadOnlyError, match="permission denied for schema sayso"):
        store.count(Filter())


@pytest.mark.parametrize("pooler", ["", "&sayso_pooler=transaction"])
def test_what_another_user_makes_in_the_search_path_is_not_called(url: str, pooler: str) -> None:
    for sql in (
        "CREATE TABLE public.called (what text)",
        """CREATE FUNCTION public.times(a numeric, b integer) RETURNS numeric LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.called VALUES ('times'); RETURN 0; END $$""",
        "CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.times)",
        """CREATE FUNCTION public.hashtextextended(a text, b integer) RETURNS bigint LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.called VALUES ('hashtextextended'); RETURN 0; END $$""",
    ):
        raw(url, sql)
    with closing(PostgresStore(url + pooler)) as store:
        for _ in range(3):
            assert cycle(store, effect=new_token()).state is State.DONE
        assert abs(store.now() - datetime.now(UTC)) < timedelta(minutes=1)
    assert raw(url, "SELECT DISTINCT what FROM public.called") == []


def test_the_journal_is_only_added_to(store: PostgresStore, url: str) -> None:
    import psycopg

    cycle(store)
    for sql in ("UPDATE sayso.journal SET at = 0", "DELETE FROM sayso.journal", "TRUNCATE sayso.journal"):
        with pytest.raises(psycopg.errors.RaiseException, match="only added to"):
            raw(url, sql)


COLUMNS = {
    "asked": (
        "kind", "tool", "name", "risk", "created_at", "asked", "form", "masked", "digest", "schema_digest",
        "key_digest", "effect_digest",
    ),
    "standing": ("fingerprint", "holds", "state", "live", "ends_at", "claimed_by", "progress", "link"),
}  # fmt: skip


@pytest.mark.parametrize("is_known", [True, False])
def test_a_change_of_any_column_is_found_before_a_start(url: str, *, is_known: bool) -> None:
    wrong: list[str] = []
    for table, columns in COLUMNS.items():
        for column in columns:
            with closing(PostgresStore(url)) as store, closing(PostgresStore(url)) as other:
                # Without an effect, for which the start would read everything anew.
                request = store.ask(sample_call(None, key=new_token(), effect=None if is_known else new_token()))
                decide(store, request)
                is_number = column in {"created_at", "ends_at", "holds", "live"}
                value: object = 7 if is_number else "x"
                raw(url, f"UPDATE sayso.{table} SET {column} = $1 WHERE id = $2", value, request.id)  # noqa: S608
                try:
                    (store if is_known else other).start(request.id, "t")
                except (errors.AlteredRequestError, errors.StoreCorruptError):
                    continue
                wrong.append(f"{table}.{column}")
    assert wrong == []


@pytest.mark.parametrize("comment", [None, "fine"])  # a comment is written to `asked`, where it is searched for
def test_a_change_of_any_column_before_a_decision_of_who_knows_the_row_is_found_before_a_start(
    store: PostgresStore, url: str, comment: str | None
) -> None:
    wrong: list[str] = []
    for table, columns in COLUMNS.items():
        for column in columns:
            request = store.ask(sample_call(None, key=new_token()))
            value: object = 7 if column in {"created_at", "ends_at", "holds", "live"} else "x"
            raw(url, f"UPDATE sayso.{table} SET {column} = $1 WHERE id = $2", value, request.id)  # noqa: S608
            try:
                decide(store, request, comment=comment)
                store.start(request.id, "t")
            except (errors.AlteredRequestError, errors.StoreCorruptError):
                continue
            wrong.append(f"{table}.{column}")
    assert wrong == []


def test_a_change_for_which_a_decision_waits_is_found_before_a_start(store: PostgresStore, url: str) -> None:
    import psycopg

    request = store.ask(sample_call(None))
    with psycopg.connect(url) as other:
        other.execute("UPDATE sayso.asked SET tool = 'x' WHERE id = %s", (request.id,))
        thread = threading.Thread(target=decide, args=(store, request), kwargs={"comment": "fine"})
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while not raw(url, "SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert time.monotonic() < deadline
    thread.join()
    with pytest.raises(errors.AlteredRequestError):
        store.start(request.id, "t")


@pytest.mark.parametrize("tables", [("asked",), ("standing",), ("asked", "standing")], ids="+".join)
def test_a_request_that_was_deleted_frees_neither_its_key_nor_its_effect(
    store: PostgresStore, url: str, tables: tuple[str, ...]
) -> None:
    first = store.ask(sample_call("run_1", key="k", effect="refund:A-1"))
    decide(store, first)
    store.start(first.id, "t")
    for table in tables:
        raw(url, f"DELETE FROM sayso.{table} WHERE id = $1", first.id)  # noqa: S608  our own table names
    with closing(PostgresStore(url)) as other:
        for each in (store, other):
            another = each.ask(sample_call(None, effect="refund:A-1"))
            decide(each, another)
            for refused in (
                partial(each.start, another.id, new_token()),
                partial(each.find_key, "run_1", "k"),
                partial(each.ask, sample_call("run_1", key="k")),
            ):
                with pytest.raises(errors.AlteredRequestError, match=f"{first.id} was altered: .* row was deleted"):
                    refused()
        (broken,) = audit.verify(other).broken
        assert f"{first.id} is missing" in broken.reason


def test_a_journal_that_lost_its_end_or_got_another_lets_nothing_start(store: PostgresStore, url: str) -> None:
    off = "ALTER TABLE sayso.journal DISABLE TRIGGER journal_is_only_added_to"
    on = "ALTER TABLE sayso.journal ENABLE TRIGGER journal_is_only_added_to"
    for harm in (
        "DELETE FROM sayso.journal WHERE request_id = $1 AND event = 'approved'",
        "UPDATE sayso.journal SET detail = '{}' WHERE request_id = $1 AND event = 'approved'",
        "UPDATE sayso.journal SET request_id = 'x' WHERE request_id = $1 AND event = 'approved'",
    ):
        request = store.ask(sample_call(None))
        decide(store, request)
        raw(url, off)
        raw(url, harm, request.id)
        raw(url, on)
        with pytest.raises(errors.AlteredRequestError):
            store.start(request.id, "t")


def test_an_entry_that_somebody_added_is_found_also_by_who_knows_the_end_of_the_chain(
    store: PostgresStore, url: str
) -> None:
    first, second = (store.ask(sample_call("run_1", {"amount": amount})) for amount in (1, 2))
    decide(store, first)
    entry = "INSERT INTO sayso.journal VALUES ('run_1', 4, 0, $1, 'commented', '', '', '{}', 'x')"
    raw(url, entry, first.id)
    decide(store, second)  # after the entry, which this store knows then as the end of the chain
    with pytest.raises(errors.AlteredRequestError):
        store.start(first.id, "t")


# -- races --------------------------------------------------------------------------------------------------------


def test_of_two_starts_of_one_effect_at_once_one_runs(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(4)]
    for n in range(5):
        requests = [one.ask(sample_call(f"run_{n}_{place}", effect=f"refund:{n}")) for place, one in enumerate(stores)]
        for request in requests:
            decide(stores[0], request)
        told = outcomes_of([
            partial(one.start, request.id, new_token()) for one, request in zip(stores, requests, strict=True)
        ])  # fmt: skip
        assert sum(isinstance(one, Request) for one in told) == 1, told
    for one in stores:
        one.close()


def test_who_takes_a_run_passes_over_one_that_another_process_is_writing(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {urlsplit(url).path[1:]} SET lock_timeout = '2s'".encode())
    with closing(PostgresStore(url)) as store:
        now = store.now()
        free = RunRecord("run_1", "support", "agent", RunState.PAUSED, None, now, now)
        store.save_run(RunUpdate(free, [Step("/", "{}")]))
        mine, theirs = Lease(), Lease()
        with psycopg.connect(url) as other:
            other.execute(b"SELECT 1 FROM sayso.run WHERE run_id = 'run_1' FOR UPDATE")
            with pytest.raises(errors.RunBusyError):
                store.take_run("run_1", mine.holder)
        assert store.take_run("run_1", theirs.holder).steps == (Step("/", "{}"),)
        with pytest.raises(errors.RunNotFoundError):
            store.take_run("run_2", mine.holder)


def test_who_takes_a_run_that_got_a_step_meanwhile_does_not_call_it_altered(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = store.now()
    run = RunRecord("run_1", "support", "agent", RunState.PAUSED, None, now, now)
    store.save_run(RunUpdate(run, [Step("/", "{}")]))
    take = Connection.run

    def taking(self: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
        found = take(self, sql, values)
        if "SKIP LOCKED" in sql:  # as when the lock is on a newer row than the step that was read with it
            found = Rows((*row[:-1], "0" * 64) for row in found)
        return found

    monkeypatch.setattr(Connection, "run", taking)
    assert store.take_run("run_1", Lease().holder).run == run


def test_a_run_that_another_process_stores_meanwhile_is_not_called_altered(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, real, done = store.now(), Connection.run, list[str]()
    run = RunRecord("run_1", "support", "agent", RunState.PAUSED, None, now, now)

    def slow(self: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
        if "SELECT 1 FROM step" in sql and not done:
            done.append(sql)
            with closing(PostgresStore(url)) as other:
                other.save_run(RunUpdate(run, [Step("/other", "{}")]))
        return real(self, sql, values)

    monkeypatch.setattr(Connection, "run", slow)
    store.save_run(RunUpdate(run, [Step("/mine", "{}")]))
    assert [step.place for step in store.get_run("run_1").steps] == ["/other", "/mine"]


@pytest.mark.parametrize("pooler", ["", "&sayso_pooler=transaction"])
def test_a_verb_that_waits_for_a_row_holds_up_no_verb_that_does_not_need_it(url: str, pooler: str) -> None:
    import psycopg

    with closing(PostgresStore(url + pooler)) as store, psycopg.connect(url) as other:
        locked, free = store.ask(sample_call(None)), store.ask(sample_call(None))
        other.execute("SELECT 1 FROM sayso.standing WHERE id = %s FOR UPDATE", (locked.id,))
        threads = [threading.Thread(target=decide, args=(store, one)) for one in (locked, free)]
        threads[0].start()
        deadline = time.monotonic() + PATIENCE
        while not raw(url, "SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert time.monotonic() < deadline
        threads[1].start()
        threads[1].join(PATIENCE)
        assert not threads[1].is_alive()
        assert threads[0].is_alive()
        assert store.get(free.id).state is State.APPROVED
        other.rollback()
        threads[0].join()
        assert store.get(locked.id).state is State.APPROVED


def test_an_approval_that_ends_while_its_start_waits_for_a_row_starts_nothing(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    request, told, tries = store.ask(sample_call(None)), list[object](), list[bool]()
    now, transaction = store.now, store._transaction
    decide(store, request)

    def noted(*args: Any, **options: Any) -> PostgresTransaction:
        tries.append(options["is_alone"])
        return transaction(*args, **options)

    def start() -> None:
        told.extend(outcomes_of([partial(store.start, request.id, new_token())]))

    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM sayso.standing WHERE id = %s FOR UPDATE", (request.id,))
        monkeypatch.setattr(store, "_transaction", noted)
        starting = threading.Thread(target=start)
        starting.start()
        deadline = time.monotonic() + PATIENCE
        while not raw(url, "SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert time.monotonic() < deadline
        monkeypatch.setattr(store, "now", lambda: now() + request.approval_window)
        while False not in tries:  # it goes on waiting in a transaction, and looks at the time anew
            assert time.monotonic() < deadline
            time.sleep(0.005)
    starting.join()
    assert [type(one) for one in told] == [errors.ApprovalExpiredError]


def test_verbs_that_wait_for_rows_leave_a_connection_to_those_that_do_not(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr("sayso.stores.postgres._PATIENCE", 10 * PATIENCE)
    locked, free = [store.ask(sample_call(None)) for _ in range(6)], store.ask(sample_call(None))
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM sayso.standing WHERE id <> %s FOR UPDATE", (free.id,))
        threads = [threading.Thread(target=decide, args=(store, one)) for one in locked]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + PATIENCE
        while len(raw(url, "SELECT 1 FROM pg_locks WHERE NOT granted")) < 3:
            assert time.monotonic() < deadline
        thread = threading.Thread(target=decide, args=(store, free))
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert all(one.is_alive() for one in threads)
        other.rollback()
        for one in threads:
            one.join()
    assert all(store.get(one.id).state is State.APPROVED for one in (*locked, free))


def test_a_start_with_an_effect_waits_for_another_one_of_it(store: PostgresStore, url: str) -> None:
    import psycopg

    request = store.ask(sample_call(None, effect="refund:1"))
    decide(store, request)
    started = threading.Thread(target=store.start, args=(request.id, "t"))
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(url) as other:
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        other.execute(lock.encode(), (f"effect:{effect_digest('refund:1')}",))
        started.start()
        while started.is_alive() and raw(url, waiting) == [(0,)]:
            threading.Event().wait(0.005)
        assert started.is_alive()
        asked = threading.Thread(target=store.ask, args=(sample_call(None),))
        asked.start()
        asked.join(PATIENCE)
        assert not asked.is_alive(), "a verb waits for another one of its process"
        assert started.is_alive()
    started.join()
    assert store.get(request.id).state is State.RUNNING


def test_verbs_of_several_processes_in_one_run_leave_one_whole_chain(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(4)]

    def work(store: PostgresStore, n: int) -> None:
        for k in range(4):
            request = store.ask(sample_call("shared", {"amount": 10 * n + k}))
            decide(store, request)
            store.start(request.id, "t")
            store.finish(request.id, "t", Outcome("done"))

    assert outcomes_of([partial(work, one, n) for n, one in enumerate(stores)]) == [None] * 4
    found = audit.verify(stores[0])
    assert (found.rows, found.chains, found.broken) == (64, 1, ())
    for one in stores:
        one.close()


def test_a_scrub_waits_for_nobody_and_nobody_for_it(store: PostgresStore, url: str) -> None:
    import psycopg

    request = cycle(store)
    with psycopg.connect(url) as other:
        other.execute(b"SELECT * FROM sayso.standing FOR UPDATE")
        assert store.scrub()
        assert store.get(request.id) == request


# -- time ---------------------------------------------------------------------------------------------------------


def test_the_clock_of_this_machine_does_not_count(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> datetime:
        return datetime.now(UTC) + timedelta(hours=1)

    here = datetime.now(UTC)
    monkeypatch.setattr(clock, "_SYSTEM", late)
    monkeypatch.setattr(clock, "now", late)
    assert abs(store.now() - here) < timedelta(minutes=1)
    request = store.ask(sample_call(None))
    assert abs(request.created_at - here) < timedelta(minutes=1)
    assert store.get(request.id) == request
    decided = decide(store, request)
    entry = store.journal(request_id=request.id)[-1]
    assert abs(clock.instant(entry.at) - here) < timedelta(minutes=1)
    assert decided.approval_expires_at is not None
    assert abs(decided.approval_expires_at - here - request.approval_window) < timedelta(minutes=1)


def test_a_machine_that_was_suspended_asks_for_the_time_anew(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle(store)
    asleep = SimpleNamespace(monotonic=lambda: time.monotonic() - 3600, time=time.time, sleep=time.sleep)
    monkeypatch.setattr(postgres, "time", asleep)
    assert abs(store.now() - datetime.now(UTC)) < timedelta(minutes=1)
    request = store.ask(sample_call(None))
    assert abs(request.created_at - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("is_shared", [False, True], ids=["each from a thread", "shared"])
def test_verbs_behind_one_lock_wait_for_a_lost_database_together(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    import psycopg

    cycle(store)
    store.close()
    began, slept = time.monotonic(), [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    def connect() -> Connection:
        slept[0] += 1
        raise psycopg.OperationalError("the database is not there")

    monkeypatch.setattr(store._connections, "_connect", connect)
    monkeypatch.setattr(store, "count", lambda _: 0)  # `at_once` looks first
    clocks = SimpleNamespace(monotonic=lambda: began + slept[0], time=time.time, sleep=sleep)
    monkeypatch.setattr(postgres, "time", clocks)
    works = [partial(Store.ask, request=sample_call(None)) for _ in range(8)]
    if is_shared:
        told = store.together(works)
    else:
        told = at_once(store, [partial(work, store) for work in works])
    assert [type(one) for one in told] == [errors.StoreUnavailableError] * 8
    assert slept[0] < 60  # each may try once more


@pytest.mark.parametrize("fault", ["DiskFull", "OutOfMemory"])
def test_a_database_without_room_is_not_waited_for(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    from psycopg import errors as faults

    tries = list[str]()

    def full(self: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
        tries.append(sql)
        raise getattr(faults, fault)("no room")

    store.now()
    monkeypatch.setattr(Connection, "run", full)
    with pytest.raises(errors.StoreFullError):
        store.ask(sample_call(None))
    assert len(tries) < 5


def test_a_call_that_was_not_seen_here_is_asked_without_a_look(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, run = list[str](), Connection.run

    def noted(connection: Connection, sql: str, values: Sequence[Any] = ()) -> Any:
        sent.append(sql)
        return run(connection, sql, values)

    @sayso.gate(wait="raise", store=store)
    def pay(amount: int) -> None: ...

    def ask(amount: int) -> str:
        with pytest.raises(sayso.ConfirmationRequired) as held:
            pay(amount)
        return held.value.confirmation_id

    with sayso.run():
        ask(1)  # the schema and the run are known then
        monkeypatch.setattr(Connection, "run", noted)
        asked = ask(2)
        (sql,) = sent
        assert "INSERT INTO asked" in sql
        assert ask(2) == asked


def test_a_database_that_went_away_without_a_word_is_not_waited_for(store: PostgresStore) -> None:
    assert store.count(Filter()) == 0
    with store._connections.one() as connection:
        found = connection.info.get_parameters()
    assert (found["connect_timeout"], found["tcp_user_timeout"]) == ("10", "15000")
    assert (found["keepalives_idle"], found["keepalives_interval"], found["keepalives_count"]) == ("5", "5", "2")


def test_the_settings_of_an_address_reach_libpq_as_they_are_written(url: str) -> None:
    settings = "options=-c%20lock_timeout%3D7s&application_name=a+b%20c&keepalives_idle=9"
    with closing(PostgresStore(f"{url}&sayso_pooler=transaction&{settings}")) as store:
        assert store._query("SHOW lock_timeout", ()) == [("7s",)]
        with store._connections.one() as connection:
            assert connection.info.get_parameters()["keepalives_idle"] == "9"
        store._connections.close()
        conninfo = conninfo_to_dict(store._conninfo)
    assert conninfo["application_name"] == "a+b c"
    assert conninfo["host"] == url.partition("host=")[2]


def test_the_address_opens_the_store(url: str) -> None:
    assert isinstance(config.open_store(url), PostgresStore)
    assert translated("SELECT n FROM request WHERE id = ?") == b"SELECT n FROM sayso.request WHERE id = $1"
