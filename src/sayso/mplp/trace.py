"""Trace ids: those of W3C trace context where a trace is active, in the form that the protocol takes.

A W3C trace id is 128 bits, like a UUID; six of them say "UUID v4" in the protocol's form, so the exact `traceparent`
stands beside it in the attributes. OpenTelemetry is asked only where the program has loaded it. Invariant: one trace
gives one trace id, in every process.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from sayso.errors import ConfigError
from sayso.mplp.ids import id_of, shaped
from sayso.mplp.part import Trace

__all__ = ["active", "checked", "trace_of"]

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})-[0-9a-f]{2}")


def checked(traceparent: str) -> str:
    """Return a `traceparent` (W3C trace context).

    Raises:
        ConfigError: It is none.
    """
    if _PARENT.fullmatch(traceparent) is None:
        raise ConfigError(f"{traceparent!a} is no W3C traceparent; nothing was asked")
    return traceparent


def active() -> str | None:
    """Return the `traceparent` of the span that is active here; None where there is none."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def trace_of(traceparent: str | None, context_id: str | None = None) -> Trace | None:
    """Return the trace that a `traceparent` names; None where it names none."""
    parts = None if traceparent is None else _PARENT.fullmatch(traceparent)
    if parts is None:
        return None
    return Trace(
        trace_id=shaped(parts["trace"]),
        span_id=id_of("span", parts["trace"], parts["span"]),
        context_id=context_id,
        attributes={"traceparent": traceparent},
    )
