"""What the web inbox costs: its first page on a large store, news for many open pages, its end, and a steady flood."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from .browsers import Inbox, Pages, Streams, serving
from .contest import Plan
from .core import all_cores
from .screen import in_a_browser
from .statistic import median
from .table import Row, seconds
from .worker import AbsentError, Worker, WorkerFailedError

__all__ = ["inbox", "stream_path"]

STORE = "sqlite FULL"
PENDING = 20
OPEN = 200
RATE = 50
RING = 10_000  # events that the server keeps, as `docs/reference/http-api.md` says
PATHS = {"inbox": "/", "history": "/history", "insights, first look": "/insights?days=90"}


def inbox(plan: Plan) -> list[Row]:
    """Measure the pages and the streams of `sayso serve`, each in processes of their own."""
    rows: list[Row] = []
    for name, measure in _MEASURES.items():
        try:
            with all_cores():
                rows += measure(name, plan)
        except AbsentError as absent:
            return [Row(name, "sayso serve", STORE, note=f"absent ({absent})")]
        except (WorkerFailedError, TimeoutError, OSError) as failure:
            rows.append(Row(name, "sayso serve", STORE, note=f"failed: {type(failure).__name__} {failure}"))
    return rows


def _pages(name: str, plan: Plan) -> list[Row]:
    """Time pages on a small and on a large store."""
    rows: list[Row] = []
    for decided in (100, plan.pick(100_000, 2_000)):
        with ExitStack() as stack:
            worker, store = _filled(stack, plan, decided)
            server = stack.enter_context(serving(store))
            worker.close()
            server.time_pages("/", 5)
            for what, path in PATHS.items():
                taken = server.time_pages(path, 1 if "first" in what else plan.pick(200, 20))
                aim = "aim: median under 50 ms" if what == "inbox" else ""
                rows.append(Row.of(name, f"{what}, {decided:,} decided", STORE, taken, note=aim))
    return rows


def _news(name: str, plan: Plan) -> list[Row]:
    """Time how long it takes until every open page is told of a request that another process asks."""
    with ExitStack() as stack:
        worker, store = _filled(stack, plan, 100)
        server = stack.enter_context(serving(store))
        return [
            _told(name, who, asyncio.run(_announced(server, worker, count, pause)))
            for who, count, pause in (
                ("one after another", plan.pick(50, 10), 0.3), ("after 8 quiet seconds", plan.pick(10, 1), 8.0),
            )
        ]  # fmt: skip


async def _announced(server: Inbox, worker: Worker, count: int, pause: float) -> list[float]:
    pages = Pages(server)
    await pages.open(OPEN, stream_path())
    taken: list[float] = []
    for number in range(count):
        await asyncio.sleep(pause)
        before = pages.shown[0]
        asked = await asyncio.to_thread(worker.call, "ask_at", amount=time.monotonic_ns() + number)
        taken.append(await pages.until(before + 1) - asked / 1e9)
    await pages.close()
    return taken


def _told(name: str, who: str, taken: Sequence[float]) -> Row:
    note = f"longest {seconds(max(taken))} (aim: within 250 ms); from before the commit to the last of {OPEN} pages"
    return Row.of(name, f"asked by another process, {who}", STORE, taken, note=note, longest=max(taken))


def _end(name: str, plan: Plan) -> list[Row]:
    """Time how long the server takes to end while pages are open."""
    taken: list[float] = []
    for _ in range(plan.pick(5, 2)):
        with ExitStack() as stack:
            worker, store = _filled(stack, plan, 100)
            worker.close()
            server = stack.enter_context(serving(store))
            taken.append(asyncio.run(_ended(server)))
    return [Row.of(name, f"{OPEN} open pages", STORE, taken, note=f"longest {seconds(max(taken))} (aim: under 1 s)")]


async def _ended(server: Inbox) -> float:
    pages = Pages(server)
    await pages.open(OPEN, stream_path())
    taken = await asyncio.to_thread(server.seconds_to_end)
    await pages.close()
    return taken


def _flood(name: str, plan: Plan) -> list[Row]:
    """Ask so many requests a second for a minute, and see what every open page, and every stream of events, heard."""
    rows: list[Row] = []
    for flooded in (_flooded_pages, _flooded_streams):
        with ExitStack() as stack:
            worker, store = _filled(stack, plan, 100)
            server = stack.enter_context(serving(store))
            rows += asyncio.run(flooded(name, server, worker, plan))
    return rows


async def _flooded_pages(name: str, server: Inbox, worker: Worker, plan: Plan) -> list[Row]:
    pages = Pages(server)
    await pages.open(OPEN, stream_path())
    before = pages.shown[0]
    flood = await _pour(server, worker, plan, None, lambda count, _: pages.until(before + count))
    await pages.close()
    notes = [
        f"each of {OPEN} pages was told of the last one, the last page {seconds(flood.lag)} after it",
        f"{pages.backwards} counts went backwards", f"told {median(pages.told):,.0f} times each",
    ]  # fmt: skip
    return [flood.row(name, "pages", notes)]


async def _flooded_streams(name: str, server: Inbox, worker: Worker, plan: Plan) -> list[Row]:
    """Pour twice over streams of events: what is asked is decided a second later, and then nobody decides.

    The ring of events is full before: while it fills, the server's memory grows by what it keeps on purpose.
    """
    kept = await _fill_ring(server, worker, plan.pick(RING, RING // 50))
    ring = f"the ring of {RING:,} events was {'full' if kept >= RING else f'NOT full, with {kept:,},'} before"
    rows: list[Row] = []
    for left_open, what in ((RATE, ", each decided a second later"), (None, " that nobody decides")):
        streams = Streams(server)
        await streams.open(OPEN, "/api/v1/events")
        flood = await _pour(server, worker, plan, left_open, lambda _, events, to=streams: to.until(events))
        await asyncio.sleep(1)  # for what would come twice
        await streams.close()
        wrong = sum(len(ids) != flood.events + 1 or len(set(ids)) != len(ids) for ids in streams.ids)
        every = f"each of {OPEN} heard each of {flood.events:,} events once"
        if wrong:
            every = f"WRONG: {wrong} streams lost or repeated some"
        notes = [f"{every}, the last one {seconds(flood.lag)} after it", ring]
        rows.append(flood.row(name, "event streams", notes, what))
    return rows


async def _fill_ring(server: Inbox, worker: Worker, count: int) -> int:
    """Have so many events noticed, of requests that are all decided; return how many a stream heard of."""
    streams = Streams(server)
    await streams.open(1, "/api/v1/events")
    await asyncio.to_thread(worker.call, "ask_and_reject", count=count // 2)
    await streams.until(count)
    await streams.close()
    return len(set(streams.ids[0])) - 1


@dataclass
class _Flood:
    """What a flood of requests did to a server.

    Attributes:
        count: How many were asked.
        events: How many events that made.
        lag: Seconds from the last one to the moment at which everybody had heard of it.
        taken, used: Seconds it took, and of processor time that the server used.
        memory: Resident bytes of the server, every twelfth of the time.
    """

    count: int
    events: int
    lag: float
    taken: float
    used: float
    memory: list[int]

    def row(self, name: str, what: str, notes: Sequence[str], which: str = "") -> Row:
        grown = (median(self.memory[-3:]) - median(self.memory[2:5])) / 2**20
        more = [
            f"{self.used / self.taken:.0%} of a core",
            f"memory {self.memory[-1] / 2**20:.0f} MB, {grown:+.1f} MB since the first third",
        ]
        return Row(
            name, f"{OPEN} {what}, {RATE} requests a second{which}", STORE, rate=f"{self.count / self.taken:,.0f}",
            samples=self.count, note="; ".join([*notes, *more]),
            figures={"lag": self.lag, "grown": grown, "core": self.used / self.taken},
        )  # fmt: skip


async def _pour(
    server: Inbox, worker: Worker, plan: Plan, left_open: int | None, until: Callable[[int, int], Awaitable[float]]
) -> _Flood:  # fmt: skip
    """Flood; `until` waits until everybody has heard of so many requests, and of so many events."""
    span = plan.pick(60, 5)
    busy, memory = server.busy(), list[int]()

    async def weigh() -> None:
        while True:
            memory.append(server.memory())
            await asyncio.sleep(span / 12)

    weighing = asyncio.create_task(weigh())
    begun = time.perf_counter()
    asked = await asyncio.to_thread(worker.call, "ask_steadily", rate=RATE, span=span, left_open=left_open)
    events = 2 * asked["count"] - asked["open"]
    lag = await until(asked["count"], events) - asked["ended"] / 1e9
    taken, used = time.perf_counter() - begun, server.busy() - busy
    weighing.cancel()
    return _Flood(asked["count"], events, lag, taken, used, memory)


def _filled(stack: ExitStack, plan: Plan, decided: int) -> tuple[Worker, str]:
    worker = Worker("ours:Listing", plan.new_folder("inbox"), "FULL")
    stack.callback(worker.close)
    worker.call("fill", decided=decided, pending=PENDING)
    return worker, f"sqlite:///{Path(worker.folder) / 'sayso.db'}"


def stream_path() -> str:
    """Return the path of the events from now on."""
    return f"/events?since={quote(datetime.now(UTC).isoformat())}"


_MEASURES: dict[str, Callable[[str, Plan], list[Row]]] = {
    "a page of the inbox, to its last byte": _pages,
    f"a new request on {OPEN} open pages": _news,
    f"SIGTERM with {OPEN} open pages": _end,
    "a flood of requests": _flood,
    "in a browser": in_a_browser,
}
