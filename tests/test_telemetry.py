"""What OpenTelemetry hears of a program: its spans, its numbers, and never what a call is about."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sayso
from sayso import telemetry
from sayso.errors import StoreUnavailableError
from sayso.model.request import State
from sayso.server.metrics import observe
from sayso.stores import workers
from sayso.stores.base import Filter, Store
from sayso.stores.records import Record
from sayso.testing import ScriptedReviewer, sample_call
from tests.conftest import Clock
from tests.support.acting import held
from tests.support.canaries import Program, assert_clean


class Heard:
    """What was exported."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = (
            TracerProvider(shutdown_on_exit=False),
            MeterProvider([self._reader], shutdown_on_exit=False),
        )
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._spans.get_finished_spans()}

    @property
    def points(self) -> dict[str, list[Any]]:
        found = self._reader.get_metrics_data()
        return {} if found is None else {
            metric.name: list(metric.data.data_points)
            for resource in found.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
        }  # fmt: skip

    def everything(self) -> list[object]:
        return [*(span.to_json() for span in self._spans.get_finished_spans()), self.points]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """A program that records."""
    found = Heard()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.tracers)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", found.meters)
    assert metrics.get_meter_provider() is found.meters
    monkeypatch.setattr(telemetry, "_cached", [])
    yield found
    found.tracers.shutdown()
    found.meters.shutdown()


def refund_of(ran: list[Any], **options: Any) -> Callable[..., Any]:
    @sayso.gate(wait=options.pop("wait", "raise"), risk="high", **options)
    def refund(order: str, amount: int) -> str:
        ran.append(trace.get_current_span())
        if amount < 0:
            raise ValueError(f"no refund of {amount} for {order}")
        return "paid"

    return refund


def test_a_call_that_waits_and_runs_has_its_spans_and_numbers(
    heard: Heard, memory: Store, ran: list[Any], clock: Clock
) -> None:
    refund = refund_of(ran)
    request_id = held(refund, "o-1", 5).confirmation_id
    clock.tick(seconds=40)
    sayso.Review(reviewer="ada", channel="test").approve(request_id)
    refund("o-1", 5)
    spans = heard.spans
    assert set(spans) == {"sayso.ask refund", "execute_tool refund"}
    told = dict(spans["execute_tool refund"].attributes or {})
    assert told["gen_ai.operation.name"] == "execute_tool"
    assert (told["gen_ai.tool.name"], told["gen_ai.tool.type"]) == ("refund", "function")
    assert (told["sayso.request.id"], told["sayso.risk"], told["sayso.outcome"]) == (request_id, "high", "done")
    points = heard.points
    assert [point.value for point in points["sayso.requests"]] == [1]
    decision = points["sayso.decisions"][0]
    assert (decision.value, decision.attributes["sayso.decision.verb"]) == (1, "approve")
    assert [(point.count, point.sum) for point in points["sayso.decision.duration"]] == [(1, 40.0)]
    assert [point.count for point in points["gen_ai.execute_tool.duration"]] == [1]


def test_what_a_call_records_stands_below_its_span(heard: Heard, memory: Store, ran: list[Any]) -> None:
    refund = refund_of(ran)
    before = trace.get_current_span()
    sayso.Review(reviewer="ada").approve(held(refund, "o-1", 5).confirmation_id)
    refund("o-1", 5)
    assert [span.name for span in ran] == ["execute_tool refund"]
    assert trace.get_current_span() is before


def test_a_failure_is_told_by_its_kind_and_not_by_its_words(heard: Heard, memory: Store, ran: list[Any]) -> None:
    refund = refund_of(ran)
    sayso.Review(reviewer="ada").approve(held(refund, "o-1", -5).confirmation_id)
    with pytest.raises(ValueError, match="no refund"):
        refund("o-1", -5)
    span = heard.spans["execute_tool refund"]
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, None)
    assert not span.events
    assert "no refund" not in str(heard.everything())


@pytest.mark.parametrize("error", [TimeoutError(), LookupError()], ids=["known", "named by the gate"])
def test_a_call_that_may_have_happened_is_told_as_unknown(heard: Heard, memory: Store, error: Exception) -> None:
    @sayso.gate(wait="raise", ambiguous=LookupError)
    def refund(order_id: str) -> None:
        raise error

    sayso.Review(reviewer="ada").approve(held(refund, "o-1").confirmation_id)
    with pytest.raises(type(error)):
        refund("o-1")
    assert (heard.spans["execute_tool refund"].attributes or {})["sayso.outcome"] == "unknown"


class Forever:
    def __await__(self) -> Iterator[None]:
        yield


def test_a_traced_call_whose_coroutine_is_closed_is_unknown(heard: Heard, memory: Store) -> None:
    @sayso.gate(wait="raise")
    async def pay(amount: int) -> None:
        await Forever()

    with sayso.run("r-1"):
        with pytest.raises(sayso.ConfirmationRequired):
            pay(1).send(None)
        (request,) = memory.list(Filter()).requests
        sayso.Review().approve(request.id, by="ada")
        call = pay(1)
        call.send(None)
        call.close()
    assert memory.get(request.id).state is State.UNKNOWN


def test_a_wait_has_its_span(heard: Heard, memory: Store, ran: list[Any]) -> None:
    async def program() -> str:
        @sayso.gate(wait="block")
        async def refund(order: str) -> str:
            ran.append(trace.get_current_span())
            return "paid"

        loop, is_asked = asyncio.get_running_loop(), asyncio.Event()
        unwatch = memory.watch_all(lambda: loop.call_soon_threadsafe(is_asked.set))
        task = asyncio.create_task(refund("o-1"))
        await is_asked.wait()
        unwatch()
        sayso.Review(reviewer="ada").approve(sayso.Review().list().requests[0].id)
        return await task

    assert asyncio.run(program()) == "paid"
    assert (heard.spans["sayso.wait refund"].attributes or {})["sayso.decision.verb"] == "approve"
    assert [span.name for span in ran] == ["execute_tool refund"]


def test_a_denial_is_counted(heard: Heard, memory: Store, ran: list[Any]) -> None:
    refund = refund_of(ran, when=lambda amount: sayso.deny(f"never {amount}"))
    with pytest.raises(sayso.ConfirmationDenied):
        refund("o-1", 5)
    assert [dict(point.attributes) for point in heard.points["sayso.denials"]] == [{"gen_ai.tool.name": "refund"}]


@pytest.mark.parametrize("end", [None, ValueError, KeyboardInterrupt])
def test_no_argument_is_in_what_is_recorded(
    heard: Heard, memory: Store, program: Program, end: type[BaseException] | None
) -> None:
    act = program.gated()
    program.ends.append(None if end is None else end(program.everything()))
    request_id = held(act, **program.arguments).confirmation_id
    sayso.Review(reviewer="ada").approve(request_id, comment=program.everything())
    with nullcontext() if end is None else pytest.raises(end):
        act(**program.arguments)
    assert_clean(*heard.everything())
    assert heard.spans["execute_tool act"].attributes


def breaks(*_: object, **__: object) -> None:
    raise RuntimeError("the exporter is broken")


def test_a_server_tells_how_its_store_looks(
    heard: Heard, memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.ask(sample_call())
    memory.keep(Record("channel", "ops", {"kind": "webhook", "by": "settings"}))
    clock.tick(minutes=2)
    observe(memory)
    found = {
        (name, *point.attributes.values()): point.value for name, points in heard.points.items() for point in points
    }
    assert (found["sayso.pending", "1m"], found["sayso.pending", "10m"]) == (1, 0)
    assert (found["sayso.states", "pending"], found["sayso.states", "unknown"]) == (1, 0)
    assert found["sayso.channel.messages", "ops", "failing"] == 0

    def gone(_: object) -> int:
        raise StoreUnavailableError("the disk is gone")

    monkeypatch.setattr(memory, "count", gone)
    assert "sayso.states" not in heard.points


class Broken(SpanProcessor):
    on_start = on_end = breaks


def test_a_fault_of_telemetry_reaches_no_gate(
    heard: Heard, memory: Store, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refund = refund_of(ran)
    heard.tracers.add_span_processor(Broken())
    monkeypatch.setattr(telemetry, "_metric_attributes", breaks)
    sayso.Review(reviewer="ada").approve(held(refund, "o-1", 5).confirmation_id)
    assert refund("o-1", 5) == "paid"
    monkeypatch.setattr(telemetry, "_instruments", breaks)
    sayso.Review(reviewer="ada").approve(held(refund, "o-2", 5).confirmation_id)
    assert refund("o-2", 5) == "paid"


class Away(logging.Handler):
    """A log server that cannot be reached."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError(f"the log server is away: {record.msg}")


@pytest.fixture
def broken_log() -> Iterator[None]:
    log, handler, level = logging.getLogger("sayso"), Away(), logging.getLogger("sayso").level
    log.addHandler(handler)
    log.setLevel("INFO")
    yield
    log.removeHandler(handler)
    log.setLevel(level)


def test_a_fault_of_a_log_handler_reaches_no_gate(broken_log: None, store: Store, ran: list[Any]) -> None:
    refund = refund_of(ran)
    with sayso.run("order-1"):
        request_id = held(refund, "o-1", 5).confirmation_id
        sayso.Review(reviewer="ada").approve(request_id)
        assert refund("o-1", 5) == "paid"
        assert store.get(request_id).state == "done"

        @sayso.gate(wait="raise")
        def slow(to: str) -> str:
            [running] = sayso.Review().list(state="running")
            store.settle(running.id, gone=workers.current())
            sayso.Review(reviewer="ada").resolve(running.id, happened=True)
            return "paid, but resolved before"

        sayso.Review(reviewer="ada").approve(held(slow, "bob").confirmation_id)
        assert slow("bob") == "paid, but resolved before"


def test_where_nobody_listens_nothing_is_recorded(
    memory: Store, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[int]()
    monkeypatch.setattr(telemetry, "_instruments", lambda: made.append(1))
    refund = refund_of(ran)
    sayso.Review(reviewer="ada").approve(held(refund, "o-1", 5).confirmation_id)
    refund("o-1", 5)
    assert made == []


def test_nothing_of_it_is_loaded_by_a_program_that_does_not(tmp_path: Any) -> None:
    code = (
        "import sys, sayso; sayso.configure(store='memory:')\n"
        "def pay(): return 1\n"
        "pay = sayso.gate(wait='raise')(pay)\n"
        "try: pay()\n"
        "except sayso.ConfirmationRequired as held: sayso.Review(reviewer='ada').approve(held.confirmation_id)\n"
        "assert pay() == 1\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus'))]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_the_log_says_what_happens_to_a_request_and_nothing_of_its_arguments(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    @sayso.gate(wait="raise")
    def pay(iban: str) -> str:
        raise ValueError(iban)

    @sayso.gate
    def wire(iban: str) -> str:
        return iban

    with caplog.at_level("INFO", "sayso"), sayso.run("order-1"):
        request_id = held(pay, "DE02 1203").confirmation_id
        sayso.Review().approve(request_id, comment="DE02 is fine", by="ada")
        with pytest.raises(ValueError, match="DE02"):
            pay("DE02 1203")
        with ScriptedReviewer(store).approve():
            wire("DE02 1203")
    assert [one.getMessage() for one in caplog.records][:4] == [
        f"{event} {request_id}: tool {store.get(request_id).call.tool}, run order-1, state {state}"
        for event, state in [("asked", "pending"), ("decided", "approved"), ("started", "running"), ("ended", "failed")]
    ]
    told = [(one.sayso_event, one.sayso_state) for one in caplog.records[4:]]  # type: ignore[attr-defined]
    assert sorted(told) == [
        ("asked", "pending"), ("decided", "approved"), ("ended", "done"), ("heard", "approved"), ("started", "running"),
    ]  # fmt: skip
    assert not [one for one in caplog.records if "DE02" in f"{one.__dict__}"]
