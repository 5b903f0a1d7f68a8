"""The gate in front of a function: may this call run? `sayso.gate` and `sayso.hold` are the ways in.

`call` is the loop that takes one call through a gate, and the only place where a held call is started; `options` is
what a gate's author may say, checked at the decoration; `hooks` asks the author's callables; `masking` is what people
may see; `captured` is what a function holds beside its arguments; `outcome` tells which errors leave the end open.
"""

from sayso.gates.call import Started, begin, current_request, end, execute, find_or_ask, gated_call, not_found_again
from sayso.gates.options import Gate
from sayso.gates.outcome import NotExecuted, exception_classes, unknown_request

__all__ = [
    "Gate", "NotExecuted", "Started", "begin", "current_request", "end", "exception_classes", "execute", "find_or_ask",
    "gated_call", "not_found_again", "unknown_request",
]  # fmt: skip
