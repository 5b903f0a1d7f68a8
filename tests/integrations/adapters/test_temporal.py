"""Held activities of Temporal: Update and Signal, false and lost messages, killed workers, a killed server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import clock, config, errors
from sayso.channels import deliver
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from tests.integrations.adapters.installed import framework
from tests.support.ports import free_port

temporal: Any = framework("temporalio.client", "held activities of Temporal")
workers: Any = framework("temporalio.worker", "held activities of Temporal")
enums: Any = framework("temporalio.api.enums.v1", "held activities of Temporal").EventType
adapter: Any = framework("sayso.integrations.temporal", "held activities of Temporal")
flows: Any = framework("tests.integrations.adapters.temporal_flows", "held activities of Temporal")

PATIENCE = 90.0
PROGRAM = Path(__file__).with_name("temporal_program").with_suffix(".py")
SERVER = Path(sys.executable).with_name("temporal")
SOON = timedelta(seconds=1)


class Server:
    """A development server whose database is a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self._port)]
        more = ["--db-filename", str(self._folder / "temporal.db"), "--log-level", "never"]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen([SERVER, *words, *more], stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    async def client(self) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                client = await temporal.Client.connect(self.address)
                await client.count_workflows()
            except Exception:  # noqa: BLE001  it is not there yet
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            else:
                return client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("temporal"))
    yield made
    made.kill()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    config.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    flows.REFUNDS.clear()
    return config.default_store()


def everything(store: Store) -> list[Request]:
    return list(store.list(Filter(), limit=100).requests)


async def waiting(store: Store) -> Request:
    return (await until(lambda: [one for one in everything(store) if one.state is State.PENDING]))[0]


async def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return found


Story = Callable[[Any, Any], Awaitable[None]]


@pytest.fixture
def play(server: Server, store: Store, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Start a workflow whose worker runs here, and tell its story."""

    def played(
        story: Story, flow: str = "Complaint", args: Any = ("refund", ["A-1", 50.0]), *, wakes: bool = True
    ) -> None:
        async def main() -> None:
            client = await server.client()
            queue = request.node.name
            options = {"task_queue": queue, "sticky_queue_schedule_to_start_timeout": SOON}
            async with workers.Worker(client, **options, **flows.ALL):
                run = await client.start_workflow(flow, args=args, id=f"w-{queue}", task_queue=queue)
                await asyncio.wait_for(story(client, run), PATIENCE)

        channel = adapter.TemporalChannel(lambda: temporal.Client.connect(server.address), patience=30 * SOON)
        channels = [channel] if wakes else []
        with deliver(store, channels):
            asyncio.run(main())

    return played


async def events(run: Any) -> list[int]:
    return [event.event_type async for event in run.fetch_history_events()]


async def failure(run: Any) -> Any:
    """Return the error of the activity by which a workflow failed."""
    with pytest.raises(temporal.WorkflowFailureError) as raised:
        await run.result()
    return raised.value.cause.cause


def test_approved_activity_runs_once_with_what_was_approved(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        request = await waiting(store)
        assert (request.run_id, request.call.name) == (f"temporal/{run.id}", "refund")
        sayso.Review(by="ada").approve(request.id, changes={"amount": 20.0})
        assert await run.result() == "refunded 20.00 for A-1"
        assert enums.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED in await events(run)

    play(story)
    assert flows.REFUNDS == [20.0]
    assert [request.state for request in everything(store)] == [State.DONE]


def test_no_fails_the_activity_and_the_second_reviewer_is_told(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        request = await waiting(store)
        sayso.Review(by="ada").reject(request.id, "over the limit")
        with pytest.raises(errors.AlreadyDecidedError, match="ada"):
            sayso.Review(by="bob").approve(request.id)
        error = await failure(run)
        assert (error.type, error.non_retryable) == ("ConfirmationRejected", True)
        assert "over the limit" in error.message

    play(story)
    assert flows.REFUNDS == []


def test_second_update_is_rejected_and_false_ones_start_nothing(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        request = await waiting(store)
        said = [request.id, "approved", "approved by mallory"]
        assert await run.execute_update(adapter.DECIDED, args=said) == "recorded"
        with pytest.raises(temporal.WorkflowUpdateFailedError) as refused:
            await run.execute_update(adapter.DECIDED, args=[request.id, "rejected", "rejected by bob"])
        assert "approved by mallory" in str(refused.value.cause)
        await run.signal(adapter.DECIDED, args=said)
        assert (flows.REFUNDS, store.get(request.id).state) == ([], State.PENDING)
        sayso.Review(by="ada").reject(request.id, "no")
        assert (await failure(run)).type == "ConfirmationRejected"

    play(story)
    assert flows.REFUNDS == []


def test_cancelled_workflow_withdraws_its_request(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        request = await waiting(store)
        await run.cancel()
        with pytest.raises(temporal.WorkflowFailureError):
            await run.result()
        assert store.get(request.id).state is State.CANCELLED

    play(story)
    assert flows.REFUNDS == []


def test_activity_that_raised_is_not_made_again(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        sayso.Review(by="ada").approve((await waiting(store)).id)
        assert (await failure(run)).type == "ValueError"

    play(story, args=("fail", ["A-1"]))
    assert flows.REFUNDS == [0.0]
    assert [request.state for request in everything(store)] == [State.FAILED]


def test_request_that_nobody_decides_expires_without_a_message(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        assert (await failure(run)).type == "ConfirmationExpired"

    play(story, args=("hurry", ["A-1"]), wakes=False)
    assert flows.REFUNDS == []


def test_workflow_looks_by_itself_where_no_message_comes(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        sayso.Review(by="ada").approve((await waiting(store)).id)
        assert await run.result() == "refunded 50.00 for A-1"

    play(story, "Impatient", (), wakes=False)
    assert flows.REFUNDS == [50.0]


def test_rule_lets_an_activity_through_without_asking(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        assert await run.result() == "paid"

    play(story, args=("small", [5.0]))
    assert everything(store) == []


def test_workflow_that_knows_nothing_of_it_starts_nothing_by_itself(play: Any, store: Store) -> None:
    async def story(client: Any, run: Any) -> None:
        request = await waiting(store)

        async def failures() -> str:
            described = await run.describe()
            (pending,) = described.raw_description.pending_activities
            return pending.last_failure.application_failure_info.type

        deadline = time.monotonic() + PATIENCE
        while await failures() != "sayso.Waits":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        sayso.Review(by="ada").reject(request.id, "no")
        await run.terminate()

    play(story, "Plain", ())
    assert flows.REFUNDS == []


def test_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="quroum"):
        adapter.held_activity(quroum=2)(lambda: None)


# -- what dies -----------------------------------------------------------------------------------------------------


class Place:
    """A folder with a store, and the workers that use it."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder, self._server = folder, server
        self.workers: list[subprocess.Popen[bytes]] = []

    def work(self, death: str = "") -> subprocess.Popen[bytes]:
        words = [sys.executable, str(PROGRAM), str(self._folder), self._server.address, *([death] if death else [])]
        with (self._folder / "log").open("ab") as log:
            self.workers.append(subprocess.Popen(words, stderr=log))
        return self.workers[-1]

    @property
    def effects(self) -> list[str]:
        path = self._folder / "effects"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def place(tmp_path: Path, own: Server, store: Store) -> Iterator[Place]:
    made = Place(tmp_path, own)
    yield made
    for worker in made.workers:
        worker.kill()
        worker.wait()


def test_killed_worker_and_killed_server_lose_nothing_and_double_nothing(
    place: Place, own: Server, store: Store
) -> None:
    async def main() -> None:
        client, worker = await own.client(), place.work()
        channel = adapter.TemporalChannel(lambda: temporal.Client.connect(own.address), patience=SOON)
        with deliver(store, [channel], runs=False) as (deliverer,):
            await client.start_workflow("Complaint", "A-1", id="w-1", task_queue="shop", task_timeout=SOON)
            request = await waiting(store)
            worker.kill()
            worker.wait(PATIENCE)
            own.kill()
            sayso.Review(by="ada").approve(request.id, changes={"amount": 20.0})
            await asyncio.to_thread(deliverer.deliver_due)
            assert deliverer.failed == 1  # there is no server
            own.start()
            run = (await own.client()).get_workflow_handle("w-1")
            with clock.use(lambda: datetime.now(UTC) + 10 * SOON):  # there is no worker, and so it sends a Signal
                await asyncio.to_thread(deliverer.deliver_due)
            assert deliverer.failed == 0
            place.work()
            assert await asyncio.wait_for(run.result(), PATIENCE) == "refunded 20.00 for A-1"
            # Not before: Temporal keeps it out of the history while the worker that was killed has a task.
            assert enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED in await events(run)

    asyncio.run(main())
    assert place.effects == ["A-1 20.00"]


def test_call_in_which_the_worker_died_is_not_made_again(place: Place, own: Server, store: Store) -> None:
    async def main() -> None:
        client, worker = await own.client(), place.work("inside")
        run = await client.start_workflow("Complaint", "A-1", id="w-1", task_queue="shop")
        with deliver(store, [adapter.TemporalChannel(lambda: temporal.Client.connect(own.address), patience=SOON)]):
            sayso.Review(by="ada").approve((await waiting(store)).id)
            await asyncio.to_thread(worker.wait, PATIENCE)
            place.work()
            error = await asyncio.wait_for(failure(run), PATIENCE)
        assert error.type == "OutcomeUnknownError"

    asyncio.run(main())
    assert place.effects == ["A-1 50.00"]
    assert [request.state for request in everything(store)] == [State.UNKNOWN]
