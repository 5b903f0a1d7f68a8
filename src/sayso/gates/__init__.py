"""The gate in front of a function, which decides whether a call may run.

`sayso.gate` and `sayso.hold` are its public API. `call` takes one call through its gate and is the only module that
starts a held call. `options` validates the options of a gate when a function is decorated, `hooks` calls the user's
callables, `masking` hides secrets, `captured` reads what a function captures, and `outcome` tells failed calls from
calls with unknown outcome. `scope` is the run that a call belongs to, `caller` is who makes it, and `signals` are the
exceptions that tell the caller.
"""

from sayso.gates.call import Started, begin, current_request, end, execute, find_or_ask, gated_call
from sayso.gates.options import Gate
from sayso.gates.outcome import NotExecuted, exception_classes, unknown_request

__all__ = [
    "Gate", "NotExecuted", "Started", "begin", "current_request", "end", "exception_classes", "execute", "find_or_ask",
    "gated_call", "unknown_request",
]  # fmt: skip
