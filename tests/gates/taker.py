"""A program that spends from one budget: `taker.py STORE COUNT AMOUNT [hang]`; prints what ran."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import sayso
from sayso import policy

STORE, COUNT, AMOUNT, *HANG = sys.argv[1:]
sayso.configure(store=STORE)
LIMIT = policy.Budget("sum(args.amount) <= 100 per 24h")


def within(amount: int) -> policy.Verdict:
    return policy.allow(budget=LIMIT)


@sayso.gate(name="spend", when=within, wait="raise")
def spend(amount: int) -> None:
    print(amount, flush=True)
    if HANG:
        time.sleep(3600)


for _ in range(int(COUNT)):
    with suppress(sayso.ConfirmationRequired), sayso.run():
        spend(int(AMOUNT))
