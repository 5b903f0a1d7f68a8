"""Waking: one thread for all who wait, only who waits for what changed, and nobody is forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.stores import watching, workers
from sayso.stores.http import Listener
from sayso.stores.http_transport import Transport
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.stores.watching import BUSY, IDLE, Bell, Watcher
from sayso.testing import sample_call

SOON = 30.0  # seconds; far more than any wait here takes


def watchers() -> int:
    return sum(thread.name == "sayso-watcher" for thread in threading.enumerate())


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def alone() -> None:
    """Whoever waited in the tests before these has gone, and so has the thread that watched for them."""
    until(lambda: watchers() == 0)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    """The same file twice, as two processes have it."""
    path = tmp_path / "requests.db"
    with closing(SqliteStore(path)) as mine, closing(SqliteStore(path)) as theirs:
        yield mine, theirs
    until(lambda: watchers() == 0)


def test_fifty_who_wait_share_one_thread_that_ends_with_them(stores: tuple[SqliteStore, SqliteStore]) -> None:
    mine, theirs = stores
    ids = [mine.ask(sample_call()).id for _ in range(50)]
    for _ in range(2):
        woken = [threading.Event() for _ in ids]
        ends = [mine.watch(request_id, event.set) for request_id, event in zip(ids, woken, strict=True)]
        assert watchers() == 1
        review = sayso.Review(theirs, reviewer="ada")
        for request_id in ids:
            review.extend(request_id, "1h")
        assert all(event.wait(SOON) for event in woken)
        for end in ends:
            end()
        until(lambda: watchers() == 0)


def test_who_waits_for_any_change_is_not_asked_for_an_id() -> None:
    asked, woken = list[str](), threading.Event()

    class Asked(MemoryStore):
        def watch(self, request_id: str, wake: Callable[[], None]) -> Callable[[], None]:
            asked.append(request_id[:3])
            return super().watch(request_id, wake)

    store = Asked()
    end = store.watch_all(woken.set)
    store.ask(sample_call())
    end()
    assert woken.is_set()
    assert asked == []


def test_only_who_waits_for_what_changed_is_woken(stores: tuple[SqliteStore, SqliteStore]) -> None:
    mine, theirs = stores
    changed, other = (mine.ask(sample_call()).id for _ in range(2))
    calls = {changed: 0, other: 0}

    def count(request_id: str) -> Callable[[], None]:
        def called() -> None:
            calls[request_id] += 1

        return called

    ends = [mine.watch(request_id, count(request_id)) for request_id in calls]
    review = sayso.Review(theirs, reviewer="ada")
    review.extend(changed, "1h")
    until(lambda: min(calls.values()) >= 1)  # at a change, each that is new is rung once
    before = calls[other]
    for n in range(3):
        was = calls[changed]
        review.extend(changed, f"{n + 2}h")
        until(lambda was=was: calls[changed] > was)
    assert calls[other] == before
    for end in ends:
        end()


def test_the_thread_compares_no_requests_after_what_the_store_wrote_itself(
    stores: tuple[SqliteStore, SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = stores
    request_id, polls = mine.ask(sample_call()).id, list[str]()
    watcher = mine._watcher
    version, marks = watcher._version, watcher._marks
    monkeypatch.setattr(watcher, "_version", lambda: (polls.append("version"), version())[1])
    monkeypatch.setattr(watcher, "_marks", lambda ids: (polls.append("marks"), marks(ids))[1])
    end = mine.watch(request_id, lambda: None)
    until(lambda: "marks" in polls)
    for store, expected in ((mine, 0), (theirs, 1)):
        until(lambda: polls[-1] == "version")
        polls.clear()
        sayso.Review(store, reviewer="ada").extend(request_id, f"{expected + 1}h")
        looks = polls.count("version")  # while it was written, and perhaps before that
        until(lambda looks=looks: polls.count("version") >= looks + 3)
        assert polls.count("marks") == expected
    end()


def test_the_two_numbers_of_a_version_are_never_the_same(stores: tuple[SqliteStore, SqliteStore]) -> None:
    mine, theirs = stores
    request_id = mine.ask(sample_call()).id
    writing, reading = list[int](), list[int]()
    for n in range(9):
        writing.append(mine._version())
        with mine._write_lock:
            reading.append(mine._version())
        sayso.Review(mine if n % 3 else theirs, reviewer="ada").extend(request_id, f"{n + 2}h")
    assert set(writing).isdisjoint(reading)


def test_nobody_who_comes_as_the_thread_ends_is_forgotten(stores: tuple[SqliteStore, SqliteStore]) -> None:
    mine, theirs = stores
    request_id = mine.ask(sample_call()).id
    review = sayso.Review(theirs, reviewer="ada")
    for n in range(60):
        woken = threading.Event()
        end = mine.watch(request_id, woken.set)
        woken.clear()
        review.extend(request_id, f"{n + 2}h")
        assert woken.wait(SOON)
        end()
        time.sleep(BUSY * (n % 5) / 4)  # so that the next one comes before, while and after the thread ends


class Pacing:
    """Stands for the event on which the thread sleeps; notes how long, and does not."""

    def __init__(self, ends: Callable[[], None], after: int) -> None:
        self.paces: list[float] = []
        self._ends, self._after = ends, after

    def wait(self, pace: float) -> bool:
        self.paces.append(pace)
        if len(self.paces) == self._after:
            self._ends()
        return False

    def set(self) -> None: ...

    def clear(self) -> None: ...


def watched_for(looks: int, version: Callable[[], int]) -> tuple[list[float], int]:
    """Return how long the thread slept after each look, and how often the one who waits was woken."""
    bell, woken = Bell(), list[int]()
    end = bell.add("rq_1", lambda: woken.append(1))
    watcher = Watcher(bell, version, lambda ids: dict.fromkeys(ids, len(woken)))
    pacing: Any = Pacing(end, looks)
    watcher._nudge = pacing
    watcher.ensure()
    until(lambda: watcher._thread is None)
    return pacing.paces, len(woken)


def test_the_thread_slows_down_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "sleep", lambda _: None)
    paces, _ = watched_for(9_000, lambda: 1)  # 37 minutes
    assert paces[:100] == [BUSY] * 100
    assert paces == sorted(paces)
    assert paces[-1] == IDLE


def test_a_change_makes_the_thread_quick_again() -> None:
    looks: list[int] = []

    def version() -> int:
        looks.append(1)
        return len(looks) // 300

    paces, woken = watched_for(400, version)
    assert (paces[298], paces[300]) == (IDLE, BUSY)
    assert woken >= 2


def test_who_waits_on_a_store_that_fails_is_woken_to_find_out() -> None:
    def version() -> int:
        raise OSError("gone")

    paces, woken = watched_for(5, version)
    assert (len(paces), woken) == (5, 5)


@pytest.mark.parametrize(("took", "rest"), [(0.0, 0.0), (0.01, 0.04), (1.0, IDLE)])
def test_a_look_is_followed_by_a_rest_of_its_length(monkeypatch: pytest.MonkeyPatch, took: float, rest: float) -> None:
    now, rests = [0.0], list[float]()

    def version() -> int:
        now[0] += took
        return 1

    monkeypatch.setattr(watching, "thread_time", lambda: now[0])
    monkeypatch.setattr(watching, "sleep", rests.append)
    watched_for(3, version)
    assert rests == [pytest.approx(rest)] * 3


def test_a_wake_that_is_taken_back_twice_takes_nobody_elses() -> None:
    bell, woken = Bell(), list[str]()

    def wake() -> None:
        woken.append("woken")

    first, _ = bell.add("rq_1", wake), bell.add("rq_1", wake)
    first()
    first()
    bell.ring(["rq_1", "rq_2"])
    assert woken == ["woken"]


def test_a_wake_that_fails_keeps_nobody_else_asleep(caplog: pytest.LogCaptureFixture) -> None:
    bell, woken = Bell(), list[str]()
    bell.add("rq_1", lambda: int("not a number"))
    bell.add("rq_1", lambda: woken.append("woken"))
    bell.ring(["rq_1"])
    assert woken == ["woken"]
    assert "could not be woken" in caplog.text


def test_where_no_thread_could_be_started_the_next_one_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, list[str]()
    store, bell = SqliteStore(tmp_path / "s.db"), Bell()
    unwatch = bell.add(None, lambda: None)
    keeper, watcher = workers._Keeper(store), Watcher(bell, lambda: 1, lambda _: {})
    listener = Listener(bell, Transport("http://127.0.0.1:9", "token"))

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("sayso-") and thread.name not in refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    for one, begin in (
        (keeper, lambda: keeper.add("rq_1", "token", is_run=False)),
        (watcher, watcher.ensure),
        (listener, lambda: listener.listen(None, None)),
    ):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            begin()
        begin()
        thread: threading.Thread | None = one._thread
        assert thread is None or thread.is_alive(), one
    assert refused == ["sayso-leases", "sayso-watcher", "sayso-listener"]
    unwatch()
    listener.close()
    keeper.held.clear()
