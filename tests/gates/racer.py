"""One of many processes that race for the same request, stepped from round to round through its standard input.

usage: racer.py STORE EFFECTS MODE NAME; each line read is `ROUND REQUEST_ID`; each line written is what became of it.
"""

from __future__ import annotations

import os
import sys

import sayso
from sayso import errors

STORE, EFFECTS, MODE, NAME = sys.argv[1:]
sayso.configure(store=STORE)
review = sayso.Review(reviewer=NAME, channel="race")


@sayso.gate(wait="raise")
def pay(round_: int) -> str:
    ledger = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{round_} {NAME}\n".encode())
    os.close(ledger)
    return "paid"


def start(round_: int, _: str) -> str:
    with sayso.run(f"round-{round_}"):
        try:
            return pay(round_)
        except errors.AlreadyStartedError:
            return "already started"
        except sayso.ConfirmationRequired as held:  # it was over already: the same call asks anew
            return f"asked {held.confirmation_id}"
        except sayso.ConfirmationRejected as refusal:
            return type(refusal).__name__


def decide(round_: int, request_id: str) -> str:
    verbs = (
        lambda: review.approve(request_id),
        lambda: review.reject(request_id, "no"),
        lambda: review.approve(request_id, changes={"round_": round_ + 1000}),
        lambda: review.feedback(request_id, "think again"),
    )
    try:
        verbs[int(NAME.removeprefix("racer-")) % len(verbs)]()
    except errors.AlreadyDecidedError as told:
        return f"told {told.by} {told.channel} {told.state} {told.at is not None}"
    except errors.StaleViewError:
        return "told that it changed"
    return f"won {NAME}"


def ask(round_: int, _: str) -> str:
    return start(round_, _)


print("ready", flush=True)
for line in sys.stdin:
    number, _, wanted = line.strip().partition(" ")
    print({"start": start, "decide": decide, "ask": ask}[MODE](int(number), wanted), flush=True)
