"""A server that limits, restarts or is away slows a program down, and fails none of its calls.

Time passes only where a verb would sleep (`Hours`), so no test waits for it. The invariant: what was approved once runs
once, whatever became of the connection meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import config, errors
from sayso.config import requester
from sayso.gates import stderr
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.reviews import Review
from sayso.server import create_app
from sayso.stores import http as stores_http
from sayso.stores import http_transport
from sayso.stores.base import Filter, Store
from sayso.stores.http import HttpStore, Listener
from sayso.stores.http_transport import LaterError
from sayso.stores.sqlite import SqliteStore
from sayso.stores.watching import Bell
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.serving import Serving, new_token, reserved_port, serving

PATIENCE = 60
PENDING = Filter(states=frozenset({State.PENDING}))


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Store]:
    """The store on the server."""
    store = SqliteStore(tmp_path / "server.db")
    yield store
    store.close()


class Hours:
    """The time of a line to a server: it passes while a verb sleeps, and something happens at some moment of it."""

    def __init__(self) -> None:
        self.now, self.at, self.happens = 0.0, float("inf"), lambda: None
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self.now >= self.at:
            self.at = float("inf")
            self.happens()

    def after(self, seconds: float, happens: Callable[[], object]) -> None:
        self.at, self.happens = self.now + seconds, happens  # type: ignore[assignment]


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    one = Hours()
    monkeypatch.setattr(http_transport, "time", one)
    return one


def approved(store: Store, request: Request) -> Request:
    return Review(store, reviewer="ada", channel="web").approve(request.id)


# -- limits --------------------------------------------------------------------------------------------------------


def limiting(app: Any, answers: list[tuple[int, str | None]]) -> Any:
    """Return an ASGI program that answers so first, and then as `app` does."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if not answers:
            await app(scope, receive, send)
            return
        status, wait = answers.pop(0)
        headers = [] if wait is None else [(b"retry-after", wait.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"code": "rate_limited", "detail": "too often"}'})

    return answer


def test_a_server_that_says_later_is_asked_again_when_it_says_so(there: Store, hours: Hours) -> None:
    with serving(store=there) as server:
        here = HttpStore(server.url, new_token(there))
        server.app = limiting(server.app, [(429, "7"), (503, "3"), (429, "59")])
        request = here.ask(sample_call())
        here.close()
    assert there.get(request.id) == request
    first, second, third = hours.slept
    assert 7 <= first <= 14
    assert 3 <= second <= 6
    assert 59 <= third <= 118  # a limit is no absence: it is waited for longer than the patience of a minute


@pytest.mark.parametrize("status", [408, 500, 520, 524])
def test_an_answer_that_a_proxy_replaced_by_a_page_of_its_own_is_asked_for_again(
    there: Store, hours: Hours, status: int
) -> None:
    replaced: list[str] = []

    def replacing(app: Any) -> Any:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                if message["type"] == "http.response.start":
                    await send({**message, "status": status, "headers": [(b"content-length", b"6")]})
                else:
                    await send({"type": "http.response.body", "body": b"<html>"})

            is_new = scope["path"] not in replaced
            replaced.append(scope["path"])
            await app(scope, receive, sent if is_new else send)

        return answer

    with serving(store=there) as server:
        here = HttpStore(server.url, new_token(there))
        server.app = replacing(server.app)
        request = here.ask(sample_call())
        Review(there, reviewer="ada").approve(request.id)
        assert here.start(request.id, "t").state is State.RUNNING
        assert here.finish(request.id, "t", Outcome("done")).state is State.DONE
        here.close()
    assert [replaced.count(f"/api/v1/program/{verb}") for verb in ("ask", "start", "finish")] == [2, 2, 2]


def test_programs_that_were_put_off_together_do_not_come_back_together() -> None:
    assert len({http_transport.jittered(1.0) for _ in range(20)}) == 20
    assert all(0.5 <= http_transport.jittered(1.0) <= 1.5 for _ in range(100))
    assert all(1.0 <= http_transport.jittered(1.0, never_less=True) <= 2.0 for _ in range(100))


def test_what_is_full_and_says_no_instant_is_told_at_once(there: Store, hours: Hours) -> None:
    with serving(store=there) as server:
        here = HttpStore(server.url, new_token(there))
        server.app = limiting(server.app, [(429, None)])
        with pytest.raises(errors.StoreBusyError):
            here.ask(sample_call())
        here.close()
    assert hours.slept == []


async def _batch(count: int, there: Store) -> list[str]:
    @sayso.gate(wait="block", name="refund")
    async def refund(amount: int) -> str:
        return f"refunded {amount}"

    async def item(number: int) -> str:
        with sayso.run(f"order-{number}"):
            return await refund(number)

    def decide_all() -> None:
        left = count
        while left:
            for request in there.list(PENDING).requests:
                approved(there, request)
                left -= 1
            threading.Event().wait(0.01)

    deciding = asyncio.create_task(asyncio.to_thread(decide_all))
    done = await asyncio.gather(*map(item, range(count)))
    await deciding
    return list(done)


def test_a_batch_of_a_hundred_gated_calls_goes_through_one_token(there: Store) -> None:
    with serving() as server:
        server.app = create_app(there)  # with the limits that it has by itself
        sayso.configure(store=server.url, token=new_token(there))
        assert asyncio.run(_batch(100, there)) == [f"refunded {n}" for n in range(100)]
        config.default_store().close()


# -- the server is away --------------------------------------------------------------------------------------------


def _asks(here: HttpStore, there: Store, _: Request) -> State:
    return here.ask(sample_call("another")).state


def _starts(here: HttpStore, there: Store, request: Request) -> State:
    return here.start(request.id, "t").state


def _looks(here: HttpStore, there: Store, request: Request) -> State:
    return here.get(request.id).state


def _finishes(here: HttpStore, there: Store, request: Request) -> State:
    there.start(request.id, "t")
    return here.finish(request.id, "t", Outcome("done")).state


@pytest.mark.parametrize(
    ("verb", "state"),
    [(_asks, State.PENDING), (_starts, State.RUNNING), (_looks, State.APPROVED), (_finishes, State.DONE)],
    ids=["ask", "start", "look", "finish"],
)
def test_a_server_that_is_away_for_thirty_seconds_fails_no_call(
    there: Store, hours: Hours, verb: Callable[..., State], state: State
) -> None:
    with ExitStack() as line:
        port = line.enter_context(reserved_port())
        with serving(port) as first:
            here = HttpStore(first.of(there), new_token(there))
            request = here.ask(sample_call())
        approved(there, request)
        hours.after(30, lambda: line.enter_context(serving(port, there)))
        assert verb(here, there, request) is state
        here.close()
    assert 30 <= hours.now < 33


def test_a_program_says_once_in_each_absence_that_it_waits_for_the_server(
    there: Store, hours: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as line:
        port = line.enter_context(reserved_port())
        with serving(port) as first:
            here = HttpStore(first.of(there), new_token(there))
            here.ask(sample_call())
        for _ in range(2):
            with pytest.raises(errors.StoreUnavailableError):
                here.ask(sample_call())
        with serving(port, there):
            here.ask(sample_call())
        with pytest.raises(errors.StoreUnavailableError):
            here.ask(sample_call())
        here.close()
    said = [record.getMessage() for record in caplog.records if record.name == "sayso"]
    assert len(said) == 2
    assert all("cannot be reached" in one and "; retrying for 5" in one for one in said)


def test_a_wait_outlasts_the_patience_for_a_server_that_is_away(there: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    looks = threading.Semaphore(0)

    @sayso.gate(wait="block", name="refund")
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    with ExitStack() as line:
        port = line.enter_context(reserved_port())
        with serving(port) as first:
            here = HttpStore(first.of(there), new_token(there), patience=0.05)
            monkeypatch.setattr(here, "look_again", 0.01)
            real = here.as_heard

            def as_heard(request_id: str) -> Request:
                try:
                    return real(request_id)
                except errors.StoreUnavailableError:
                    looks.release()
                    raise

            monkeypatch.setattr(here, "as_heard", as_heard)
            sayso.configure(store=here)
            calling = threading.Thread(target=lambda: done.append(refund(1)))
            calling.start()
            while not there.count(PENDING):
                threading.Event().wait(0.01)
        for _ in range(3):
            assert looks.acquire(timeout=PATIENCE)  # it has looked in vain, for longer than it has patience
        approved(there, there.list(PENDING).requests[0])
        here._patience = PATIENCE  # to start and to end
        line.enter_context(serving(port, there))
        calling.join(PATIENCE)
        here.close()
    assert done == ["refunded 1"]


def _is_down(here: HttpStore, server: Serving, hours: Hours, patch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Any:
        raise ConnectionRefusedError("nobody listens")

    patch.setattr(here._transport, "connect", refused)
    here._transport.close()  # what was kept is broken


def _hangs(here: HttpStore, server: Serving, hours: Hours, patch: pytest.MonkeyPatch) -> None:
    def silent(connection: HTTPConnection, *_: object) -> Any:
        hours.now += connection.sock.gettimeout() or float("inf")
        raise TimeoutError("timed out")

    patch.setattr(here._transport, "exchange", silent)


def _hangs_when_connected(here: HttpStore, server: Serving, hours: Hours, patch: pytest.MonkeyPatch) -> None:
    here._transport.close()
    _hangs(here, server, hours, patch)


def _limits(here: HttpStore, server: Serving, hours: Hours, patch: pytest.MonkeyPatch) -> None:
    server.app = limiting(server.app, [(429, "1")] * 1_000)


@pytest.mark.parametrize("fault", [_is_down, _hangs, _hangs_when_connected, _limits], ids=lambda fault: fault.__name__)
def test_a_withdrawal_gives_up_after_two_seconds(
    there: Store, hours: Hours, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None]
) -> None:
    with serving(store=there) as server:
        here = HttpStore(server.of(there), new_token(there))
        request = here.ask(sample_call())
        fault(here, server, hours, monkeypatch)
        with pytest.raises((errors.StoreUnavailableError, errors.StoreBusyError)):
            here.withdraw(request.id, requester(), "nobody waits for it", is_brief=True)
        here.close()
    assert hours.now <= 2


@pytest.mark.parametrize("fault", [_is_down, _hangs, _limits], ids=lambda fault: fault.__name__)
def test_a_look_of_one_who_waits_ends_soon_and_ends_no_wait(
    there: Store, hours: Hours, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None]
) -> None:
    with serving(store=there) as server:
        here = HttpStore(server.of(there), new_token(there))
        request = here.ask(sample_call())
        fault(here, server, hours, monkeypatch)
        with pytest.raises(errors.StoreUnavailableError):  # after which a wait goes on
            here.as_heard(request.id)
        here.close()
    assert hours.now <= 2


@pytest.mark.parametrize("verb", ["/ask", "/get"])
def test_an_end_that_is_reached_is_asked_for_as_long_as_a_server_limits(
    there: Store, hours: Hours, clock: Clock, verb: str
) -> None:
    @sayso.gate(wait="block", name="refund", expires="1h")
    def refund(amount: int) -> None: ...

    with serving(store=there) as server:
        taking = server.app
        here = HttpStore(server.url, new_token(there))

        async def limits_as_it_ends(scope: Any, receive: Any, send: Any) -> None:
            """End the request while it is asked, or while it is looked at, and limit what comes then."""
            if not scope["path"].endswith(verb):
                await taking(scope, receive, send)
                return
            server.app = limited = limiting(taking, [(429, "59")])
            if verb == "/get":
                clock.tick(hours=1)
                await limited(scope, receive, send)
                return
            sent = list[Any]()

            async def keep(message: Any) -> None:
                sent.append(message)

            await taking(scope, receive, keep)
            clock.tick(hours=1)  # before the answer is on its way
            for message in sent:
                await send(message)

        server.app = limits_as_it_ends
        sayso.configure(store=here)
        with pytest.raises(sayso.ConfirmationExpired):
            refund(1)
        here.close()
    assert hours.now >= 59 or verb == "/get"  # that look is short; the next one hears of the end


def test_the_listener_asks_again_when_the_server_says_so_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    hours, bell, sent = Hours(), Bell(), list[float]()

    class Limiting:
        """A transport to a server that wants to be left alone for a minute, and then hears that nobody waits."""

        def connect(self, _: float) -> Any:
            return HTTPConnection("127.0.0.1")

        def send_once(self, *_: object) -> Any:
            sent.append(hours.now)
            if len(sent) == 1:
                raise LaterError(60)
            leave()
            raise ConnectionResetError

    class News(threading.Event):
        """Wakes early again and again, as when others come to wait."""

        def wait(self, timeout: float | None = None) -> bool:
            hours.now += min(timeout or 0, 7)
            return True

    monkeypatch.setattr(stores_http, "time", hours)
    transport: Any = Limiting()
    listener = Listener(bell, transport)
    listener._news = News()
    leave = bell.add("rq_1", lambda: None)
    listener._run()
    first, second = sent
    assert 60 <= second - first <= 140


def test_a_cancelled_task_is_not_held_up_by_a_server_that_takes_no_withdrawal(
    there: Store, hours: Hours, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits = threading.Event()
    monkeypatch.setattr(stderr, "announce", lambda *_: waits.set())

    @sayso.gate(name="refund")
    async def refund(amount: int) -> str:
        return f"refunded {amount}"

    async def main() -> None:
        call = asyncio.create_task(refund(1))
        assert await asyncio.to_thread(waits.wait, PATIENCE)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()

    with serving(store=there) as server:
        taking, none = server.app, limiting(server.app, [(503, None)] * 1_000)

        async def but_withdrawals(scope: Any, receive: Any, send: Any) -> None:
            await (none if scope["path"].endswith("/withdraw") else taking)(scope, receive, send)

        server.app = but_withdrawals
        sayso.configure(store=server.url, token=new_token(there))
        asyncio.run(main())
        config.default_store().close()
    assert 0 < hours.now <= 2
    assert "could not be withdrawn" in caplog.text


def test_a_process_sends_few_verbs_at_a_time_and_the_others_queue(there: Store) -> None:
    now = Counter[str]()
    with serving(store=there) as server:
        real = server.app

        async def counting(scope: Any, receive: Any, send: Any) -> None:
            now["here"] += 1
            now["most"] = max(now["most"], now["here"])
            try:
                await real(scope, receive, send)
            finally:
                now["here"] -= 1

        server.app = counting
        here = HttpStore(server.url, new_token(there))
        threads = [threading.Thread(target=here.ask, args=[sample_call(f"run-{n}")]) for n in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        here.close()
    assert there.count(Filter()) == 100
    assert now["most"] <= http_transport._AT_ONCE
