"""One payment, whatever breaks: retries, an idempotency key, and a hook that finds out what happened.

    python examples/idempotent.py            the service is down at first: the approval lasts for the second try
    python examples/idempotent.py --crash    the program dies inside the call; start it again without --crash

Approve it once, on the terminal or with `sayso approve ID`. The service here is the file `service.json`; like a real
one it takes a payment once per key.
"""

import json
import os
import signal
import sys
from pathlib import Path

import sayso

SERVICE = Path("service.json")


def taken() -> dict[str, int]:
    """Ask the service which payments it took, by key."""
    return json.loads(SERVICE.read_text(encoding="utf-8")) if SERVICE.exists() else {}


def was_paid(invoice: str) -> sayso.Happened | bool:
    """Find out how a call ended that nobody saw end; asked only about an unknown outcome."""
    request = sayso.current_request()
    return sayso.Happened(f"paid {invoice} (the service knew)") if request and request.id in taken() else False


@sayso.gate(retries=1, verify=was_paid)
def pay(invoice: str, amount: int) -> str:
    """Pay an invoice."""
    request = sayso.current_request()
    key = request.id if request else invoice  # the same in every start of one approval
    payments = taken()
    if not SERVICE.exists():
        SERVICE.write_text("{}", encoding="utf-8")
        raise ConnectionError("the service is down")
    SERVICE.write_text(json.dumps(payments | {key: amount}), encoding="utf-8")
    if "--crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {invoice}"


if __name__ == "__main__":
    with sayso.run("invoice-2026-118"):  # a restarted program finds the approval again
        try:
            print(pay("2026-118", 950))
        except ConnectionError as error:
            print(f"failed: {error}; trying again needs no second approval")
            print(pay("2026-118", 950))
    print(f"payments taken: {len(taken())}")
