"""Many streams of events beside each other: one look for all, each hears its own, and who is slow holds up nobody.

The streams here are listeners of a broadcaster, without a server around them. However they come and go, each is handed
every event once, in order, and nothing once it was shut out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from sayso import errors
from sayso.model.reviewer import Identity, Reviewer
from sayso.server import live as hubs
from sayso.server.api import events
from sayso.server.api.endpoint import Principal
from sayso.server.api.events import Broadcaster, ClientStream, EventLog, LoggedEvent
from sayso.server.auth.tokens import TokenKind
from sayso.server.live import PerLoop
from sayso.stores.base import Store
from sayso.testing import sample_call

PATIENCE = 30  # seconds; a wait that is never over ends here


def listener(
    log: EventLog, name: str = "ada", kind: TokenKind = "review", is_authorized: Callable[[], bool] = lambda: True
) -> ClientStream:
    who = Principal(kind, Reviewer(name), f"token of {name}", "api")
    return ClientStream(who, is_authorized, log.number)


def with_broadcaster(store: Store, work: Callable[[EventLog, Broadcaster], Awaitable[None]]) -> None:
    """Run `work` with a broadcaster of a log, as streams have it."""

    async def main() -> None:
        log = EventLog(store)
        here = PerLoop(partial(Broadcaster, log)).here()
        end = log.listen(here.wake)
        with here.open():
            await work(log, here)
        end()

    asyncio.run(main())


async def heard(here: Broadcaster, one: ClientStream) -> bytes | None:
    return await asyncio.wait_for(here.next_payload(one), PATIENCE)


def ids_in(said: bytes | None) -> list[int]:
    lines = (said or b"").decode().split("\r\n")
    return [int(line.rpartition("-")[2]) for line in lines if line.startswith("id: ")]


async def take(here: Broadcaster, one: ClientStream, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        said = await heard(here, one)
        assert said is not None
        found += ids_in(said)
    return found


def ask(store: Store, count: int = 1, name: str = "other") -> None:
    for _ in range(count):
        store.ask(sample_call(requester=Identity("token", name)))


def test_a_change_after_a_pause_is_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs.Hub, "pause", 3600.0)

    class Looked(hubs.Hub):
        async def _refresh(self) -> None:
            looked.set()

    async def main() -> None:
        with Looked(asyncio.get_running_loop()).open():
            await asyncio.wait_for(looked.wait(), PATIENCE)

    looked = asyncio.Event()
    asyncio.run(main())


def test_the_more_streams_the_longer_a_look_waits_for_further_changes() -> None:
    async def main() -> None:
        hub, pauses = hubs.Hub(asyncio.get_running_loop()), list[float]()
        with ExitStack() as streams:
            for _ in range(60):
                streams.enter_context(hub.open())
                pauses.append(hub.pause)
        assert pauses[0] == pytest.approx(0.021)
        assert pauses == sorted(pauses)
        assert pauses[-1] == 0.05

    asyncio.run(main())


def test_streams_at_one_place_are_handed_the_same_bytes_of_one_look(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, since = list[int](), EventLog.since

    def counted(log: EventLog, number: int) -> list[LoggedEvent] | None:
        looks.append(number)
        return since(log, number)

    async def work(log: EventLog, here: Broadcaster) -> None:
        everybody = [listener(log) for _ in range(20)]
        waiting = [asyncio.create_task(heard(here, one)) for one in everybody]
        await asyncio.sleep(0)
        ask(memory, 3)
        said = await asyncio.gather(*waiting)
        assert ids_in(said[0]) == [1, 2, 3]
        assert all(each is said[0] for each in said)

    monkeypatch.setattr(EventLog, "since", counted)
    with_broadcaster(memory, work)
    assert looks == [0]


def test_a_change_wakes_many_streams_once(memory: Store) -> None:
    log, woken = EventLog(memory), list[int]()
    ends = [log.listen(here) for here in [lambda: woken.append(1)] * 20]
    ask(memory)
    assert woken == [1]
    for end in ends:
        end()
    ask(memory)
    assert woken == [1]


def test_a_burst_wakes_the_loop_once(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(log: EventLog, here: Broadcaster) -> None:
        calls = list[int]()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *_: calls.append(1))
        ask(memory, 10)
        assert calls == [1]
        monkeypatch.undo()

    with_broadcaster(memory, work)


def test_tokens_of_programs_at_one_place_hear_of_their_own(memory: Store) -> None:
    async def work(log: EventLog, here: Broadcaster) -> None:
        bot, robot, ada = listener(log, "bot", "ask"), listener(log, "robot", "ask"), listener(log)
        for name in ("bot", "other", "robot", "bot"):
            ask(memory, name=name)
        found = await asyncio.gather(take(here, bot, 2), take(here, robot, 1), take(here, ada, 4))
        assert found == [[1, 4], [3], [1, 2, 3, 4]]

    with_broadcaster(memory, work)


def test_who_is_far_behind_is_handed_bounded_pieces(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_MAX_BATCH", 4)

    async def work(log: EventLog, here: Broadcaster) -> None:
        ada, bot = listener(log), listener(log, "bot", "ask")
        ask(memory, 9)
        ask(memory, name="bot")
        # Nothing happens after that: what is left behind a piece needs no event that tells of it.
        sizes = [len(ids_in(await heard(here, ada))) for _ in range(3)]
        assert sizes == [4, 4, 2]
        assert ids_in(await heard(here, bot)) == [10]

    with_broadcaster(memory, work)


def test_who_is_shut_out_hears_no_more_and_the_others_do(memory: Store) -> None:
    async def work(log: EventLog, here: Broadcaster) -> None:
        let_in, shut_out = listener(log, "ada"), listener(log, "bob", is_authorized=lambda: False)
        both = asyncio.gather(heard(here, let_in), heard(here, shut_out))
        ask(memory)
        said = await both
        assert (ids_in(said[0]), said[1]) == ([1], None)

    with_broadcaster(memory, work)


def test_who_is_shut_out_while_nothing_happens_is_found_out(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "_RECHECK", 0.05)

    async def work(log: EventLog, here: Broadcaster) -> None:
        good = [True, True, False]
        one = listener(log, is_authorized=lambda: good.pop(0))
        assert await heard(here, one) is None
        assert good == []

    with_broadcaster(memory, work)


def test_who_was_shut_out_while_it_sent_is_found_out_when_it_comes_back(memory: Store) -> None:
    async def work(log: EventLog, here: Broadcaster) -> None:
        good = [True]
        slow, quick = listener(log, "bob", is_authorized=lambda: good[0]), listener(log)
        ask(memory)
        assert [ids_in(each) for each in await asyncio.gather(heard(here, slow), heard(here, quick))] == [[1], [1]]
        good[0] = False
        here.wake()  # as by a token that is revoked: no event, and the slow one is sending meanwhile
        looked, loop = asyncio.Event(), asyncio.get_running_loop()
        quick.is_authorized = lambda: loop.call_soon_threadsafe(looked.set) is not None
        waiting = asyncio.create_task(heard(here, quick))
        await asyncio.wait_for(looked.wait(), PATIENCE)
        assert await heard(here, slow) is None
        waiting.cancel()

    with_broadcaster(memory, work)


def test_nothing_is_kept_for_who_does_not_read(memory: Store) -> None:
    async def work(log: EventLog, here: Broadcaster) -> None:
        slow, quick = listener(log, "bob"), listener(log)
        for number in range(1, 4):
            ask(memory)
            assert await take(here, quick, 1) == [number]
        assert slow.seen == 0
        assert await take(here, slow, 3) == [1, 2, 3]

    with_broadcaster(memory, work)


def test_while_a_token_cannot_be_looked_at_its_own_streams_hear_nothing(
    memory: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hubs, "_RETRY", 0.05)
    faults = [errors.StoreBusyError("busy")] * 3

    def busy_at_first() -> bool:
        if faults:
            raise faults.pop()
        return True

    async def work(log: EventLog, here: Broadcaster) -> None:
        good, bad = listener(log), [listener(log, "bob", is_authorized=busy_at_first) for _ in range(20)]
        waiting = [asyncio.create_task(heard(here, one)) for one in bad]
        ask(memory)
        assert await take(here, good, 1) == [1]
        assert all(one.seen == 0 for one in bad if faults)
        assert [ids_in(await one) for one in waiting] == [[1]] * 20

    with_broadcaster(memory, work)
    said = [line.getMessage() for line in caplog.records if "busy" in line.getMessage()]
    assert len(said) == 3  # one line for each look, however many streams there are


def test_a_store_that_did_not_answer_is_looked_at_again_though_nothing_happens(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_RETRY", 0.05)
    since, faults = EventLog.since, [errors.StoreBusyError("busy")]

    def busy_once(log: EventLog, number: int) -> list[LoggedEvent] | None:
        if faults:
            raise faults.pop()
        return since(log, number)

    monkeypatch.setattr(EventLog, "since", busy_once)

    async def work(log: EventLog, here: Broadcaster) -> None:
        ask(memory)
        assert await take(here, listener(log), 1) == [1]

    with_broadcaster(memory, work)
    assert faults == []


def test_a_look_that_fails_ends_the_streams_and_is_no_silence(
    memory: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(log: EventLog, here: Broadcaster) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(EventLog, "batch", lambda *_: 1 // 0)
            assert await asyncio.gather(*(heard(here, listener(log)) for _ in range(20))) == [None] * 20
        ask(memory)
        one = listener(log)
        one.seen = 0
        assert await take(here, one, 1) == [1]

    with_broadcaster(memory, work)
    [line] = [line for line in caplog.records if line.exc_info is not None]  # one for all of them
    assert "ZeroDivisionError" in repr(line.exc_info)


def test_what_happens_while_it_looks_is_heard(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, is_first = EventLog.batch, [True]

    def late(*args: Any) -> Any:
        found = batch(*args)
        if is_first:
            is_first.clear()
            ask(memory)  # after this look has read the store
        return found

    monkeypatch.setattr(EventLog, "batch", late)

    async def work(log: EventLog, here: Broadcaster) -> None:
        assert await take(here, listener(log), 2) == [1, 2]

    async def begun(log: EventLog, here: Broadcaster) -> None:
        ask(memory)
        await work(log, here)

    with_broadcaster(memory, begun)


def test_many_streams_that_come_and_go_hear_each_event_once(each_store: Store) -> None:
    count, last = 60, 60

    async def client(log: EventLog, here: Broadcaster, number: int) -> list[int]:
        found: list[int] = []
        one = listener(log, f"client{number}")
        one.seen = 0
        while not found or found[-1] < last:
            said = await heard(here, one)
            found += ids_in(said)
            if number % 3 == 0:  # reads slowly
                await asyncio.sleep(0.07)
            if number % 3 == 1:  # breaks off, and comes back with the last id
                one = listener(log, f"client{number}")
                one.seen = found[-1]
        return found

    async def work(log: EventLog, here: Broadcaster) -> None:
        asking = threading.Thread(target=ask, args=(each_store, count))
        asking.start()
        found = await asyncio.gather(*(client(log, here, number) for number in range(12)))
        asking.join()
        assert found == [list(range(1, count + 1))] * 12

    with_broadcaster(each_store, work)


def test_a_broadcaster_ends_with_its_last_stream_and_begins_with_the_next(memory: Store) -> None:
    async def main() -> None:
        log = EventLog(memory)
        broadcasters = PerLoop(partial(Broadcaster, log))
        here = broadcasters.here()
        end = log.listen(here.wake)
        with here.open():
            assert broadcasters.here() is here
            (task,) = (each for each in asyncio.all_tasks() if each is not asyncio.current_task())
            with here.open():
                pass
            assert not task.cancelling()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled()
        with here.open():
            ask(memory)
            one = listener(log)
            one.seen = 0
            assert await take(here, one, 1) == [1]
        end()

    asyncio.run(main())
