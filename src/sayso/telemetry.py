"""OpenTelemetry spans, metrics and log records of a program: requests, waits, decisions and executed calls.

Names follow the semantic conventions for generative AI where they apply (`execute_tool NAME`, `gen_ai.tool.name`,
`gen_ai.execute_tool.duration`); the others begin with `sayso.`. Nothing is imported or recorded unless the program has
set a tracer or meter provider (extra `otel`). Arguments, results and people's words are never recorded, and an error
here never reaches a gate. The logger `sayso` gets the same events at INFO. The metrics of a server are in
`sayso.server.metrics`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sayso.effects import Attempt, Operation, Suspended, UserCall
from sayso.model.request import Call, Request, Verb

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span, Tracer

_log = logging.getLogger("sayso")
_API = "opentelemetry.trace"
_EXECUTE = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}


class _Instruments(NamedTuple):
    """The tracer and the instruments of one pair of providers."""

    providers: tuple[object, object]
    tracer: Tracer
    requests: Counter
    denials: Counter
    decisions: Counter
    deciding: Histogram
    executing: Histogram


_cached: list[_Instruments] = []  # at most one; replaced when the program sets other providers


def log(event: str, request: Request, state: str | None = None) -> None:
    """Log an event of a request with its id, tool, run and state (by default its own), and none of its arguments."""
    if not _log.isEnabledFor(logging.INFO):
        return
    with suppress(Exception):  # handlers and filters are foreign code; no call may fail because of it
        from sayso.model.text import escape

        tool = request.subject.tool if isinstance(request.subject, Call) else "question"
        facts = {"id": request.id, "tool": tool, "run": request.run_id, "state": str(state or request.state)}
        words = ", ".join(f"{name} {escape(value)}" for name, value in facts.items() if name != "id")
        extra = {"sayso_event": event, **{f"sayso_{name}": value for name, value in facts.items()}}
        _log.info("%s %s: %s", event, request.id, words, extra=extra)


def warn(text: str, *values: object) -> None:
    """Log a warning."""
    with suppress(Exception):  # as in `log`
        _log.warning(text, *values)


def asked(request: Request) -> Request:
    """Record that a request was asked, and return it."""
    log("asked", request)
    if _API not in sys.modules:
        return request
    with _recording() as instruments:
        if instruments is not None:
            instruments.tracer.start_span(f"sayso.ask {_name(request)}", attributes=_span_attributes(request)).end()
            instruments.requests.add(1, _metric_attributes(request))
    return request


def denied(tool: str) -> None:
    """Record that a rule refused a call."""
    with _recording() as instruments:
        if instruments is not None:
            instruments.denials.add(1, {"gen_ai.tool.name": tool})


def decided(request: Request, verb: Verb, channel: str) -> Request:
    """Record a decision or a vote, and return the request."""
    log("decided", request)
    if _API not in sys.modules:
        return request
    with _recording() as instruments:
        if instruments is not None:
            attributes = {**_metric_attributes(request), "sayso.decision.verb": verb, "sayso.channel": channel}
            instruments.decisions.add(1, attributes)
            if request.decision is not None:  # otherwise it was one vote of several
                waited = (request.decision.at - request.created_at).total_seconds()
                instruments.deciding.record(max(0.0, waited), attributes)
    return request


def executing(request: Request, operation: UserCall, is_in_doubt: Callable[[BaseException], bool]) -> Operation:
    """Return the operation with a span around the started call, or the operation itself if nothing is recorded.

    `is_in_doubt` returns whether a call that ended with an error may have taken effect.
    """
    if not _is_recording():
        return operation
    return _Traced(operation, request, "execute_tool", is_in_doubt, **_EXECUTE)


def waiting(request: Request, operation: Operation) -> Operation:
    """Return the operation with a span around the wait, or the operation itself if nothing is recorded."""
    return _Traced(operation, request, "sayso.wait") if _is_recording() else operation


class _Traced:
    """Runs an operation inside a span; spans that it makes are children. The span raises nothing."""

    def __init__(
        self, wrapped: Operation, request: Request, operation: str,
        is_in_doubt: Callable[[BaseException], bool] | None = None, **attributes: str,
    ) -> None:  # fmt: skip
        self._wrapped, self._request, self._operation, self._attributes = wrapped, request, operation, attributes
        self._is_in_doubt = is_in_doubt
        self.is_of_user = isinstance(wrapped, UserCall)
        self._span: Span | None = None
        self._token: Any = None
        self._begun = time.monotonic()

    def __call__(self) -> Any:
        with self:
            return self._record_result(self._wrapped())

    async def arun(self) -> Any:
        with self:
            return self._record_result(await self._wrapped.arun())

    def __enter__(self) -> Self:
        with _recording() as instruments:
            if instruments is not None:
                from opentelemetry import context, trace

                named = f"{self._operation} {_name(self._request)}"
                attributes = self._attributes | _span_attributes(self._request)
                self._span = instruments.tracer.start_span(named, attributes=attributes)
                self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with _recording():
            from opentelemetry import context, trace

            # A coroutine may be closed in another context, in which the span was never current.
            if self._token is not None and trace.get_current_span() is self._span:
                context.detach(self._token)
            if self._span is not None:
                if kind is not None:
                    self._span.set_attribute("error.type", kind.__qualname__)
                self._span.end()

    def _record_result(self, result: Any) -> Any:
        """Record how a call or a wait ended, without a message of an error, and return the result."""
        with _recording() as instruments:
            if isinstance(result, Attempt):
                attributes: dict[str, str] = {"sayso.outcome": "done"}
                if isinstance(result.raised, Suspended):
                    attributes = {"sayso.outcome": "suspended"}
                elif result.raised is not None:
                    error, judge = result.raised, self._is_in_doubt
                    is_unknown = not isinstance(error, Exception) or (judge is not None and judge(error))
                    outcome = "unknown" if is_unknown else "failed"
                    attributes = {"sayso.outcome": outcome, "error.type": type(error).__qualname__}
                if self._span is not None:
                    self._span.set_attributes(attributes)
                    if "error.type" in attributes:
                        from opentelemetry.trace import StatusCode

                        self._span.set_status(StatusCode.ERROR)
                if instruments is not None:
                    named = {**_EXECUTE, **_metric_attributes(self._request), **attributes}
                    instruments.executing.record(time.monotonic() - self._begun, named)
            elif self._span is not None and isinstance(result, Request):
                self._span.set_attribute("sayso.state", str(result.state))
                if result.decision is not None:
                    self._span.set_attribute("sayso.decision.verb", result.decision.verb)
        return result


def _is_recording() -> bool:
    """Return whether the program has set a tracer or meter provider."""
    if _API not in sys.modules:  # not imported, so no provider is set; importing it here would take time
        return False
    with suppress(Exception):  # a provider may run any code
        from opentelemetry import metrics, trace

        return _is_real_provider(trace.get_tracer_provider()) or _is_real_provider(metrics.get_meter_provider())
    return False


def _is_real_provider(provider: object) -> bool:
    # Until a provider is set the API has a proxy, which records nothing. Many libraries import only the API.
    return not type(provider).__name__.lstrip("_").startswith("Proxy")


@contextmanager
def _recording() -> Generator[_Instruments | None]:
    """Yield the instruments, or None if nothing is recorded. Suppress every error of the block."""
    instruments = None
    with suppress(Exception):  # providers, processors and exporters are foreign code; no call may fail because of it
        instruments = _instruments() if _is_recording() else None
    with suppress(Exception):  # the same
        yield instruments


def _instruments() -> _Instruments:
    from importlib.metadata import version

    from opentelemetry import metrics, trace

    providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
    if _cached and _cached[0].providers == providers:
        return _cached[0]
    own = version("sayso")
    meter = metrics.get_meter("sayso", own)
    made = _Instruments(
        providers,
        trace.get_tracer("sayso", own),
        meter.create_counter("sayso.requests", "{request}", "Requests that were asked."),
        meter.create_counter("sayso.denials", "{call}", "Calls that a rule denied."),
        meter.create_counter("sayso.decisions", "{decision}", "Decisions and votes of people."),
        meter.create_histogram("sayso.decision.duration", "s", "From asking to the decision."),
        meter.create_histogram("gen_ai.execute_tool.duration", "s", "Duration of a started call."),
    )
    _cached[:] = [made]
    return made


def _name(request: Request) -> str:
    return request.subject.name if isinstance(request.subject, Call) else "question"


def _metric_attributes(request: Request) -> dict[str, str]:
    """Return attributes with few distinct values, so that the number of time series stays small."""
    found = {"sayso.request.kind": request.kind}
    if isinstance(request.subject, Call):
        found["gen_ai.tool.name"] = request.subject.name
    return found if request.risk is None else {**found, "sayso.risk": request.risk}


def _span_attributes(request: Request) -> dict[str, str]:
    found = {**_metric_attributes(request), "sayso.request.id": request.id, "sayso.run.id": request.run_id}
    return {**found, "sayso.tool": request.subject.tool} if isinstance(request.subject, Call) else found
