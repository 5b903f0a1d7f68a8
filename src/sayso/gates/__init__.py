"""The program's door: may this call run?

`check` asks the gate's rule, binds the call to its canonical form and finds or records its request; `execute` takes
the single right to run it, runs it from the stored form, and records how it ended. Both are generators of effects
(see `sayso.effects`), the same for sync and async programs. What a hold does to the program is decided in
`sayso.gating`. The invariant: nothing but `execute` runs a call that was held.
"""

from sayso.gates.check import again, check, lacking, not_found_again, open_request, withdraw
from sayso.gates.execute import Started, begin, end, execute
from sayso.gates.options import Check, Gate, Needs, Place, current_request, requester
from sayso.gates.outcome import NotExecuted, exception_classes, unknown_request

__all__ = [
    "Check", "Gate", "Needs", "NotExecuted", "Place", "Started", "again", "begin", "check", "current_request", "end",
    "exception_classes", "execute", "lacking", "not_found_again", "open_request", "requester", "unknown_request",
    "withdraw",
]  # fmt: skip
