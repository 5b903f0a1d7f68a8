"""A first gated function: the call stops, a person decides, and what was approved is what runs.

    python examples/refund.py

On a terminal you are asked right there. Anywhere else it waits, and you decide in a second one:

    sayso ls
    sayso approve ID --set amount=80 -m "half, as goodwill"
"""

import sayso


@sayso.gate
def refund(order_id: str, amount: float, reason: str = "") -> str:
    """Pay money back to a customer."""
    note = f" ({reason})" if reason else ""
    return f"refunded {amount:.2f} for {order_id}{note}"


if __name__ == "__main__":
    try:
        print(refund("A-4721", 320.0))
    except sayso.ConfirmationRejected as no:
        print(f"not refunded: {no.message}")
    except sayso.ConfirmationRequired as held:
        print(f"not decided yet: {held.confirmation_id}")
