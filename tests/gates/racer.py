"""Processes that race for the same request, stepped from round to round.

usage: racer.py STORE EFFECTS MODE COUNT. So many processes are forked; each line read is `ROUND REQUEST_ID` and goes to
all of them; for it, each of them writes a line of what became of it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

import sayso
import sayso.stores.jsonl
import sayso.stores.sqlite
from sayso import errors
from sayso.stores.memory import MemoryStore

STORE, EFFECTS, MODE, COUNT = sys.argv[1:]
sayso.configure(store=STORE)


def load() -> None:
    """Load what is loaded late, once and before the forks."""
    with sayso.run("load"), suppress(sayso.ConfirmationRequired):
        sayso.gate(wait="raise", store=MemoryStore())(len)([])


def main() -> None:
    load()
    racers = list[tuple[int, int]]()
    for number in range(int(COUNT)):
        (reading, told), (answers, writing) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(told)
            for ours, theirs in racers:  # so that each sees the end of its own
                os.close(ours)
                os.close(theirs)
            os.environ["RACER"] = f"racer-{number}"
            race(reading, writing)
        os.close(reading)
        os.close(writing)
        racers.append((told, answers))
    answered = [open(answers) for _, answers in racers]  # noqa: PTH123, SIM115  pipes have no path
    for line in sys.stdin:
        for told, _ in racers:
            os.write(told, line.encode())
        print(*(each.readline().strip() for each in answered), sep="\n", flush=True)
    for told, _ in racers:
        os.close(told)
    for _ in racers:
        os.wait()


def race(reading: int, writing: int) -> NoReturn:
    name = os.environ["RACER"]
    review = sayso.Review(reviewer=name, channel="race")

    @sayso.gate(wait="raise")
    def pay(round_: int) -> str:
        ledger = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(ledger, f"{round_} {os.environ['RACER']}\n".encode())  # a name in the closure would be in the call
        os.close(ledger)
        return "paid"

    def start(round_: int) -> str:
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
            verbs[int(name.removeprefix("racer-")) % len(verbs)]()
        except errors.AlreadyDecidedError as told:
            return f"told {told.by} {told.channel} {told.state} {told.at is not None}"
        except errors.StaleViewError:
            return "told that it changed"
        return f"won {name}"

    code = 1
    try:
        for line in open(reading):  # noqa: SIM115  a pipe has no path
            number, _, wanted = line.strip().partition(" ")
            answer = decide(int(number), wanted) if MODE == "decide" else start(int(number))
            os.write(writing, f"{answer}\n".encode())
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
