"""Makes forty requests, on which docs/guides/policy.md replays its rules."""

from contextlib import suppress

import sayso


@sayso.gate(wait="raise", when=True)
def refund(order: str, amount: float) -> str:
    return f"refunded {amount}"


for number in range(40):
    with suppress(sayso.ConfirmationRequired):
        refund(f"A-{number}", 10 + 3 * number)
