"""The shop: what its programs ask for, and what its workers do once a person has said yes.

`python shop.py FIRST LAST` begins a run for each of these orders and ends; `sayso worker shop:refund` carries them out.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from sayso import Tool

SLOW = 3  # the order for which the bank takes long


def pay_back(order: int) -> str:
    """Pay an order back: one line in a file, so that it can be counted."""
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(ledger, f"order {order} by {os.getpid()}\n".encode())
    os.close(ledger)
    time.sleep(60 if order == SLOW else 0.1)  # the bank's answer; a worker that is killed here will never tell
    return f"paid back order {order}"


refund = Tool(pay_back, name="refund", requires_approval=True)


async def begin(first: int, last: int) -> None:
    for order in range(first, last + 1):
        await refund(order=order, run_id=f"order-{order}").collect()


if __name__ == "__main__":
    asyncio.run(begin(int(sys.argv[1]), int(sys.argv[2])))
