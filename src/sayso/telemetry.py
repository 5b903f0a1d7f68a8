"""Spans and metrics for OpenTelemetry: what a program asked, how long it waited, and how the call went.

Names follow the semantic conventions for generative AI where these have one (`execute_tool NAME`, `gen_ai.tool.name`,
`gen_ai.execute_tool.duration`); the others begin with `sayso.`. Nothing is loaded, and nothing done, unless the program
has told OpenTelemetry where it goes to (extra `otel`). The invariant: no argument, no result and no word of a person is
in any of it, and a fault in here reaches no gate.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sayso.effects import Attempt, Effect, Suspended, UserCall
from sayso.model.request import Call, Request, Verb

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span, Tracer

__all__ = ["asked", "decided", "denied", "executing", "waiting"]

_API = "opentelemetry.trace"
_EXECUTE = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}


class _Signals(NamedTuple):
    """What is recorded with; made once for a pair of providers."""

    providers: tuple[object, object]
    tracer: Tracer
    requests: Counter
    denials: Counter
    decisions: Counter
    deciding: Histogram
    executing: Histogram


_known: list[_Signals] = []  # one at most: a program that changes its providers begins anew


def asked(request: Request) -> Request:
    """Record that a request was asked, and return it."""
    if _API not in sys.modules or not _is_heard():
        return request
    with _safe() as signals:
        if signals is not None:
            signals.tracer.start_span(f"sayso.ask {_name(request)}", attributes=_of_span(request)).end()
            signals.requests.add(1, _of_metric(request))
    return request


def denied(tool: str) -> None:
    """Record that a rule refused a call."""
    with _safe() as signals:
        if signals is not None:
            signals.denials.add(1, {"gen_ai.tool.name": tool})


def decided(request: Request, verb: Verb, channel: str) -> Request:
    """Record what a person said of a request, and return it as it stands after that."""
    if not _is_heard():
        return request
    with _safe() as signals:
        if signals is not None:
            said = {**_of_metric(request), "sayso.decision.verb": verb, "sayso.channel": channel}
            signals.decisions.add(1, said)
            if request.decision is not None:  # else it was one vote of several
                waited = (request.decision.at - request.created_at).total_seconds()
                signals.deciding.record(max(0.0, waited), said)
    return request


def executing(request: Request, effect: UserCall) -> UserCall:
    """Return the effect that also records how the started call goes; the same one where nobody records."""
    return _TracedCall(request, effect) if _API in sys.modules and _is_heard() else effect


def waiting(request: Request, effect: Effect) -> Effect:
    """Return the effect that also records how long the program stands and waits; the same where nobody records."""
    return _TracedWait(request, effect) if _is_heard() else effect


class _TracedCall(UserCall):
    """A call inside of its span, so that what the call records stands below it."""

    def __init__(self, request: Request, effect: UserCall) -> None:
        self._request, self._effect = request, effect

    def run(self) -> Attempt:
        with _Span("execute_tool", self._request, **_EXECUTE) as span:
            return span.ended(self._effect.run())

    async def arun(self) -> Attempt:
        with _Span("execute_tool", self._request, **_EXECUTE) as span:
            return span.ended(await self._effect.arun())


class _TracedWait(Effect):
    def __init__(self, request: Request, effect: Effect) -> None:
        self._request, self._effect = request, effect

    def run(self) -> Any:
        with _Span("sayso.wait", self._request) as span:
            return span.waited(self._effect.run())

    async def arun(self) -> Any:
        with _Span("sayso.wait", self._request) as span:
            return span.waited(await self._effect.arun())


class _Span:
    """A span that is the current one while its block runs; what goes wrong with it stays in here."""

    def __init__(self, operation: str, request: Request, **said: str) -> None:
        self._operation, self._request, self._said = operation, request, said
        self._span: Span | None = None
        self._leave: Callable[[], object] | None = None
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        with _safe() as signals:
            if signals is not None:
                named = f"{self._operation} {_name(self._request)}"
                self._span = signals.tracer.start_span(named, attributes=self._said | _of_span(self._request))
                self._leave = _entered(self._span)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with _safe():
            if self._leave is not None:
                self._leave()
            if self._span is not None:
                if kind is not None:
                    self._span.set_attribute("error.type", kind.__qualname__)
                self._span.end()

    def ended(self, attempt: Attempt) -> Attempt:
        """Record how a call went, by the kind of its error and not by its words."""
        raised = attempt.raised
        outcome = "done" if raised is None else _outcome(raised)
        with _safe() as signals:
            said: dict[str, str] = {"sayso.outcome": outcome}
            if outcome in {"failed", "unknown"}:
                said["error.type"] = type(raised).__qualname__
            if self._span is not None:
                self._span.set_attributes(said)
                if "error.type" in said:
                    self._span.set_status(_error())
            if signals is not None:
                named = {**_EXECUTE, **_of_metric(self._request), **said}
                signals.executing.record(time.monotonic() - self._begun, named)
        return attempt

    def waited(self, after: Any) -> Any:
        """Record how a wait ended."""
        with _safe():
            if self._span is not None and isinstance(after, Request):
                self._span.set_attribute("sayso.state", str(after.state))
                if after.decision is not None:
                    self._span.set_attribute("sayso.decision.verb", after.decision.verb)
        return after


def _outcome(raised: BaseException) -> str:
    if isinstance(raised, Suspended):
        return "suspended"
    return "failed" if isinstance(raised, Exception) else "unknown"


def _error() -> Any:
    from opentelemetry.trace import StatusCode

    return StatusCode.ERROR


def _entered(span: Span) -> Callable[[], object]:
    """Make a span the current one, and return what makes the one before current again."""
    from opentelemetry import context, trace

    token = context.attach(trace.set_span_in_context(span))

    def leave() -> None:
        # A coroutine may be thrown away from a context that never had the span: there is nothing to put back there.
        if trace.get_current_span() is span:
            context.detach(token)

    return leave


def _is_heard() -> bool:
    """Say whether the program has said where spans or metrics go to."""
    if _API not in sys.modules:  # nobody has loaded it, so nobody can have said so; and to load it takes its time
        return False
    with suppress(Exception):  # a provider may be made just then, by somebody's code
        from opentelemetry import metrics, trace

        return _is_chosen(trace.get_tracer_provider()) or _is_chosen(metrics.get_meter_provider())
    return False


def _is_chosen(provider: object) -> bool:
    # Until somebody sets one, there is a proxy that hands everything on to nobody: many libraries load the API.
    return not type(provider).__name__.lstrip("_").startswith("Proxy")


@contextmanager
def _safe() -> Generator[_Signals | None]:
    """Give what is recorded with, and let no fault of it out; None where nobody records."""
    signals = None
    with suppress(Exception):  # providers, processors and exporters are somebody's code, and no call fails by them
        signals = _signals() if _is_heard() else None
    with suppress(Exception):  # the same
        yield signals


def _signals() -> _Signals:
    from importlib.metadata import version

    from opentelemetry import metrics, trace

    providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
    if _known and _known[0].providers == providers:
        return _known[0]
    own = version("sayso")
    meter = metrics.get_meter("sayso", own)
    made = _Signals(
        providers,
        trace.get_tracer("sayso", own),
        meter.create_counter("sayso.requests", "{request}", "Requests that were asked."),
        meter.create_counter("sayso.denials", "{call}", "Calls that a rule refused."),
        meter.create_counter("sayso.decisions", "{decision}", "Decisions and votes of people."),
        meter.create_histogram("sayso.decision.duration", "s", "From asking to the decision."),
        meter.create_histogram("gen_ai.execute_tool.duration", "s", "Duration of a started call."),
    )
    _known[:] = [made]
    return made


def _name(request: Request) -> str:
    return request.subject.name if isinstance(request.subject, Call) else "question"


def _of_metric(request: Request) -> dict[str, str]:
    """Return what there are few of, so that a metric does not grow with the number of requests."""
    found = {"sayso.request.kind": request.kind}
    if isinstance(request.subject, Call):
        found["gen_ai.tool.name"] = request.subject.name
    return found if request.risk is None else {**found, "sayso.risk": request.risk}


def _of_span(request: Request) -> dict[str, str]:
    found = {**_of_metric(request), "sayso.request.id": request.id, "sayso.run.id": request.run_id}
    return {**found, "sayso.tool": request.subject.tool} if isinstance(request.subject, Call) else found
