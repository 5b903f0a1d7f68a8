"""The writer of the API: many works in one commit, each answered when it is durable and not before."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from sayso import errors
from sayso.model.ids import fingerprint
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.server.auth.tokens import Tokens
from sayso.server.writer import Writer
from sayso.server.writer import _Job as writer_job
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.serving import new_token, serving


def keep(n: int, store: Store) -> int:
    store.keep(Record("note", f"n{n}", {}))
    return n


def kept(store: Store) -> set[str]:
    return {record.key for record in store.records("note")}


def test_nothing_is_answered_before_its_commit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "server.db")
    store.keep(Record("other", "first", {}))
    at_commit: list[bool] = []

    async def write() -> list[int]:
        loop, writer = asyncio.get_running_loop(), Writer(store)

        def traced(statement: str) -> None:
            if statement == "COMMIT":  # once the loop has done whatever it was handed until now
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
                at_commit.append(any(one.done() for one in writes))

        store._writer().set_trace_callback(traced)
        writes = [asyncio.ensure_future(writer.do(lambda view, n=n: keep(n, view))) for n in range(20)]
        answers = list(await asyncio.gather(*writes))
        while len(await asyncio.to_thread(kept, reader)) < 20:  # also where they were answered too early
            pass
        return answers

    reader = SqliteStore(tmp_path / "server.db")
    asyncio.run(write())
    assert at_commit[0] is False
    assert len(at_commit) < 20
    assert kept(SqliteStore(tmp_path / "server.db")) == {f"n{n}" for n in range(20)}


def test_what_one_work_raises_undoes_that_one_alone(tmp_path: Path) -> None:
    def fail(view: Store) -> None:
        keep(99, view)
        raise RuntimeError("after it wrote")

    def refuse(view: Store) -> None:
        raise errors.RunNotFoundError("before it wrote")

    store = SqliteStore(tmp_path / "server.db")
    works: list[Any] = [lambda view, n=n: keep(n, view) for n in range(5)]
    found = store.together([*works[:2], fail, *works[2:4], refuse, works[4]])
    assert [one for one in found if not isinstance(one, BaseException)] == list(range(5))
    assert [type(one) for one in found if isinstance(one, BaseException)] == [RuntimeError, errors.RunNotFoundError]
    assert kept(store) == {f"n{n}" for n in range(5)}


def test_a_work_sees_what_the_works_before_it_wrote(tmp_path: Path) -> None:
    for store in (SqliteStore(tmp_path / "server.db"), MemoryStore()):
        found = store.together([lambda view: keep(1, view), lambda view: view.record("note", "n1") is not None])
        assert found == [1, True]


def test_a_batch_sees_what_another_process_changed_and_dropped_before_it(tmp_path: Path) -> None:
    store, other = SqliteStore(tmp_path / "server.db"), SqliteStore(tmp_path / "server.db")
    request, looks = sample_call(), list[Any]()

    def look(view: Store) -> None:
        looks.append((view.get(request.id).state, view.record("note", "n1") is not None))

    def drop(view: Store) -> None:
        view.drop("note", "n1")

    store.together([lambda view: keep(1, view), lambda view: view.ask(request), look])
    other.withdraw(request.id, request.requester)
    store.together([look, drop, look])
    assert looks == [(State.PENDING, True), (State.CANCELLED, True), (State.CANCELLED, False)]


def test_a_batch_reads_a_request_again_only_where_it_could_be_another(tmp_path: Path) -> None:
    store, other = SqliteStore(tmp_path / "server.db"), SqliteStore(tmp_path / "server.db")
    request, by = sample_call(), Reviewer("ada").identity

    def claim(view: Store) -> None:
        view.claim(request.id, by, roles=(), channel="api")

    def broken_off(view: Store) -> None:
        claim(view)
        raise RuntimeError("after it wrote")

    def look(view: Store) -> bool:
        return view.get(request.id).claimed_by is not None

    store.together([lambda view: view.ask(request), look])
    reads = list[str]()
    store._writer().set_trace_callback(lambda statement: reads.append(statement) if "LEFT JOIN" in statement else None)
    for before, is_claimed, count in (
        (lambda: None, False, 0),
        (lambda: store.together([broken_off]), False, 1),
        (lambda: store.together([claim]), True, 0),
        (lambda: other.release(request.id, by, roles=(), force=False, channel="api"), False, 1),
        (lambda: claim(store), True, 0),
    ):
        before()
        reads.clear()
        assert (store.together([look, look]), len(reads)) == ([is_claimed, is_claimed], count)


def test_the_verbs_of_one_work_are_one_transaction(tmp_path: Path) -> None:
    def broken_off(view: Store) -> None:
        keep(1, view)
        keep(2, view)
        raise RuntimeError("between two verbs")

    store = SqliteStore(tmp_path / "server.db")
    [error] = store.together([broken_off])
    assert isinstance(error, RuntimeError)
    assert kept(store) == set()


def test_many_who_look_leave_room_for_what_is_written() -> None:
    batches = list[int]()

    class Counted(MemoryStore):
        def together(self, works: Sequence[Any]) -> Sequence[Any]:
            batches.append(len(works))
            return super().together(works)

    async def look_and_write() -> None:
        writer, looked, loop = Writer(Counted()), asyncio.Semaphore(0), asyncio.get_running_loop()
        with writer._has_jobs:  # so that all of them wait before the first is done
            for _ in range(200):
                writer._looks.append(writer_job(lambda _: None, lambda _: looked.release(), loop))
        assert await writer.do(lambda view: keep(1, view)) == 1
        assert batches[0] == 65
        for _ in range(200):
            await asyncio.wait_for(looked.acquire(), 30)

    asyncio.run(look_and_write())


def test_whom_a_commit_wakes_looks_before_the_works_of_the_next_one() -> None:
    done = list[str]()

    class Waking(MemoryStore):
        def together(self, works: Sequence[Any]) -> Sequence[Any]:
            found = super().together(works)
            if not done:  # as the commit wakes one who waits, while another wants something written
                done.append("first")
                asyncio.run_coroutine_threadsafe(hand_in(), loops[0]).result(10)
            return found

    async def hand_in() -> None:
        writes.append(asyncio.ensure_future(writer.do(lambda _: done.append("next"))))
        await asyncio.sleep(0)
        writer.look(lambda _: done.append("look"), lambda _: None, loops[0])

    async def write() -> None:
        loops.append(asyncio.get_running_loop())
        await writer.do(lambda view: keep(1, view))
        await asyncio.wait_for(writes[0], 30)

    writer, loops, writes = Writer(Waking()), list[asyncio.AbstractEventLoop](), list[asyncio.Future[None]]()
    asyncio.run(write())
    assert done == ["first", "look", "next"]


def test_who_cannot_be_answered_holds_nobody_up() -> None:
    class Broken(MemoryStore):
        def together(self, works: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002  none is done
            raise errors.StoreUnavailableError("the disk is gone")

    async def write() -> None:
        writer = Writer(Broken())
        for _ in range(2):
            with pytest.raises(errors.StoreUnavailableError):
                await writer.do(lambda view: keep(1, view))

    asyncio.run(write())


def test_a_token_that_was_revoked_meanwhile_writes_nothing(tmp_path: Path, clock: Clock) -> None:
    # The server remembers whose token it is; another process revokes it.
    store = SqliteStore(tmp_path / "server.db")
    token = new_token(store)
    with serving(store=store) as server, closing(HTTPConnection("127.0.0.1", server.port)) as connection:

        def note() -> tuple[int, str]:
            body = json.dumps({"run_id": "order-1", "event": "denied", "detail": {}})
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request("POST", "/api/v1/program/note", body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("code", "")

        assert note() == (200, "")
        Tokens(SqliteStore(tmp_path / "server.db")).revoke(token.split("_")[1])
        before = len(store.journal())
        assert note() == (401, "not_signed_in")
        assert len(store.journal()) == before
        token = new_token(store, lasts=timedelta(minutes=5))
        assert note() == (200, "")
        clock.tick(minutes=6)
        assert note() == (401, "not_signed_in")


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_of_batches_loses_nothing_that_it_answered(tmp_path: Path) -> None:
    for killed in range(5):
        answered = _until_killed(tmp_path, after=20 + 15 * killed)
        store = SqliteStore(tmp_path / "server.db")
        assert len(answered) >= 20
        for request_id in answered:
            assert store.get(request_id).id == request_id
        store.close()


def _until_killed(folder: Path, after: int) -> list[str]:
    """Ask from eight threads, kill the server after so many answers, and return the ids that were answered."""
    server = Path(__file__).parents[2] / "benchmarks" / "ours_scale.py"
    command = [sys.executable, str(server), str(folder), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout is not None
        port, token, _, sample = json.loads(process.stdout.readline())
        answered, lock = list[str](), threading.Lock()

        def ask() -> None:
            connection = HTTPConnection("127.0.0.1", port)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            try:
                while True:
                    request_id, run = f"rq_{secrets.token_hex(16)}", f"order-{secrets.token_hex(6)}"
                    asked = {**sample, "id": request_id, "run_id": run}
                    asked["fingerprint"] = fingerprint(run, sample["subject"]["digest"], "")
                    connection.request("POST", "/api/v1/program/ask", json.dumps({"request": asked}), headers)
                    answer = connection.getresponse()
                    assert (answer.status, json.loads(answer.read())["request"]["id"]) == (200, request_id)
                    with lock:
                        answered.append(request_id)
                        if len(answered) == after:
                            process.send_signal(signal.SIGKILL)
            except (OSError, HTTPException):
                return  # it was killed
            finally:
                connection.close()

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return answered
