"""Programs that run into each other, started by `test_races`; each prints one JSON value.

    racers.py start STORE EFFECTS PROCESSES ROUNDS     all start the one approval of each round
    racers.py decide STORE PROCESSES ROUNDS            all decide the one request of each round
    racers.py ask STORE PROCESSES ROUNDS               all ask the same call, in one run for each round
    racers.py wait STORE EFFECTS                       one waits for somebody else's decision

The processes are forked and let go together by a barrier. An effect is one line in a file opened for appending, so
that it is counted by the kernel and not by the store.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

import sayso
from sayso.errors import SaysoError
from sayso.model.decision import Verb
from sayso.model.reviewer import Reviewer
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore

# No cancel: it may also take back what somebody else has just approved.
VERBS: list[Verb] = ["approve", "reject", "approve", "feedback"]


def append(path: str, line: str) -> None:
    """Have an effect."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode() + b"\n")
    os.close(file)


def gated(store: Store, effects: str, **options: Any) -> Callable[[int], str]:
    """Return the call that all want to run."""

    @sayso.gate(store=store, **options)
    def pay(amount: int) -> str:
        append(effects, str(amount))
        return f"paid {amount}"

    return pay


def held(pay: Callable[[int], str], n: int) -> str:
    """Ask, and return the id of what waits."""
    try:
        with sayso.run(f"order-{n}"):
            pay(n)
    except sayso.ConfirmationRequired as signal:
        return signal.confirmation_id
    raise AssertionError("it was not held")


def together(processes: int, rounds: int, work: Callable[[int, int], Any]) -> list[list[Any]]:
    """Have every process do each round at the same moment; return what each of them said, by round."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(processes), context.SimpleQueue()

    def child(place: int) -> None:
        told: list[Any] = []
        for n in range(rounds):
            barrier.wait()
            told.append(work(place, n))
        answers.put(told)

    children = [context.Process(target=child, args=(place,)) for place in range(processes)]
    for process in children:
        process.start()
    told = [answers.get() for _ in children]
    for process in children:
        process.join()
    return [list(column) for column in zip(*told, strict=True)]


def started(store: Store, effects: str, processes: int, rounds: int) -> object:
    """All call, in the run of the round, what one approval allows once."""
    pay = gated(store, effects, wait="raise")
    ids = [held(pay, n) for n in range(rounds)]
    for request_id in ids:
        sayso.Review(store).approve(request_id, by="ada")

    def work(_: int, n: int) -> str:
        try:
            with sayso.run(f"order-{n}"):
                return pay(n)
        except (SaysoError, sayso.ConfirmationRequired) as refusal:
            return type(refusal).__name__

    return together(processes, rounds, work)


def decided(store: Store, processes: int, rounds: int) -> object:
    """All decide the one request of the round, each in another way."""
    pay = gated(store, os.devnull, wait="raise")
    ids = [held(pay, n) for n in range(rounds)]

    def work(place: int, n: int) -> list[str]:
        review = sayso.Review(store, reviewer=Reviewer(f"person{place}"), channel=f"channel{place}")
        options = {"changes": {"amount": 1_000 + place}} if place % 4 == 2 else {"comment": "mine"}
        try:
            getattr(review, VERBS[place % 4])(ids[n], **options)
        except sayso.errors.AlreadyDecidedError as late:
            return ["late", late.by, late.channel]
        return ["won", f"person{place}", f"channel{place}"]

    return together(processes, rounds, work)


def asked(store: Store, processes: int, rounds: int) -> object:
    """All ask the same."""
    pay = gated(store, os.devnull, wait="raise")
    return together(processes, rounds, lambda _, n: held(pay, n))


def waited(store: Store, effects: str) -> object:
    """Wait where the call stands."""
    with sayso.run("order-7"):
        return gated(store, effects)(7)


def main(kind: str, path: str, *rest: str) -> object:
    """Run one of the programs above."""
    store = SqliteStore(path)
    match kind, rest:
        case "start", (effects, processes, rounds):
            return started(store, effects, int(processes), int(rounds))
        case "decide", (processes, rounds):
            return decided(store, int(processes), int(rounds))
        case "ask", (processes, rounds):
            return asked(store, int(processes), int(rounds))
        case "wait", (effects,):
            return waited(store, effects)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
