"""sayso, driven through its public names only: the contender, the gate that lets through, the waiter, and the lists."""

from __future__ import annotations

import importlib
import itertools
import random
import sqlite3
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from .contender import MEMO, Contender, make_effect

__all__ = ["Confirming", "Deciding", "Durable", "InMemory", "Letting", "Listing", "Waiting"]


class Ours(Contender):
    """sayso on the store that `variant` names: `memory:`, or a SQLite file in the folder."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.sayso: Any = importlib.import_module("sayso")
        self.sayso.configure(store=variant if variant == "memory:" else f"sqlite:///{folder / 'sayso.db'}")
        self.review = self.sayso.Review()
        self.ada = self.sayso.Reviewer("ada")


class Durable(Ours):
    """A gate that raises; every call in a run of its own, and a named reviewer approves."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.pay = self.sayso.gate(wait="raise")(make_effect(self.effects))

    def ask(self, amount: int) -> str:
        try:
            with self.sayso.run(f"order-{amount}"):
                self.pay(amount, "alice", MEMO)
        except self.sayso.ConfirmationRequired as held:
            return held.confirmation_id
        raise RuntimeError("the call was not held")

    def decide(self, ticket: str) -> None:
        self.review.approve(ticket, by=self.ada)

    def run(self, amount: int, ticket: str) -> None:
        with self.sayso.run(f"order-{amount}"):
            self.pay(amount, "alice", MEMO)


class InMemory(Durable):
    """The same on the memory store, in the scope of the current thread."""

    def ask(self, amount: int) -> str:
        try:
            self.pay(amount, "alice", MEMO)
        except self.sayso.ConfirmationRequired as held:
            return held.confirmation_id
        raise RuntimeError("the call was not held")

    def run(self, amount: int, ticket: str) -> None:
        self.pay(amount, "alice", MEMO)


class Confirming(InMemory):
    """The program that `peers.udspy` runs, with another import root."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.pay = self.sayso.confirm_first(make_effect(self.effects))

    def decide(self, ticket: str) -> None:
        self.sayso.respond_to_confirmation(ticket, approved=True)


class Letting(Ours):
    """Gates that let the call through: by a constant, by a rule over its arguments, and by a policy file."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)

        def pay(amount: int, to: str) -> int:
            return amount

        rule = self.sayso.gate(when=lambda amount: amount > 100)
        file = folder / "policy.toml"
        others = "".join(f"[[rules]]\ntool = 'other_{n}'\nwhen = 'args.x > {n}'\nverdict = 'hold'\n" for n in range(10))
        file.write_text(f"{others}[[rules]]\ntool = '*pay'\nwhen = 'args.amount <= 100'\nverdict = 'allow'\n")
        file.chmod(0o600)
        policy = self.sayso.gate(when=self.sayso.policy.Policy.load(file))
        self.calls: dict[str, Any] = {
            "bare": pay, "static": self.sayso.gate(when=False)(pay), "rule": rule(pay), "policy": policy(pay),
        }  # fmt: skip

    def time_calls(self, kind: str, count: int) -> float:
        """Return the mean nanoseconds of one call over `count` calls."""
        pay = self.calls[kind]
        loop = itertools.repeat(None, count)
        before = time.perf_counter_ns()
        for _ in loop:
            pay(10, "alice")
        return (time.perf_counter_ns() - before) / count

    def written(self) -> int:
        """Return how many requests the calls left in the store."""
        return len(self.review.list(state="all", limit=10).requests)


class Waiting(Ours):
    """A program that stands still at its gate until somebody in another process decides."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)

        def pay(amount: int, to: str, memo: str) -> int:
            return time.monotonic_ns()

        self.pay = self.sayso.gate(wait="block")(pay)

    def wait(self, amount: int) -> int:
        """Return the instant (monotonic, ns) at which the held call began to run."""
        return self.pay(amount, "alice", MEMO)


class Deciding(Ours):
    """The other process; `variant` is not used, each decision names the store's folder."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.reviews: dict[str, Any] = {}
        self.random = random.Random(1)

    def review_of(self, store: str) -> Any:
        """Return the person's door to the store in this folder, opened once."""
        if store not in self.reviews:
            self.reviews[store] = self.sayso.Review(store=f"sqlite:///{store}/sayso.db")
        return self.reviews[store]

    def decide_one(self, store: str, at_least: float, at_most: float) -> int:
        """Approve what waits there after a pause between the two; return the instant before the decision (ns)."""
        review = self.review_of(store)
        until = time.monotonic() + 20
        while not (pending := review.list(state="pending", limit=1).requests):
            if time.monotonic() > until:
                raise TimeoutError("nothing was asked")
            time.sleep(0.005)
        time.sleep(self.random.uniform(at_least, at_most))
        before = time.monotonic_ns()
        review.approve(pending[0].id, by=self.ada)
        return before


COPIED = {
    "id": "'rq_' || lower(hex(randomblob(13)))",
    "run_id": "run_id || '-' || :copy",
    "fingerprint": "fingerprint || '-' || :copy",
}


def _copy_requests(path: Path, times: int) -> int:
    """Write every request of a store again so many times, and return how many there are then.

    Asking for 100,000 would take minutes; no list reads the journal, so that is left as it is.
    """
    db = sqlite3.connect(path)
    with db:
        (real,) = db.execute("SELECT max(n) FROM request").fetchone()
        columns = [str(column[1]) for column in db.execute("PRAGMA table_info(request)") if column[1] != "n"]
        values = ", ".join(COPIED.get(name, name) for name in columns)
        sql = f"INSERT INTO request ({', '.join(columns)}) SELECT {values} FROM request WHERE n <= :real ORDER BY n"
        for number in range(times):
            db.execute(sql, {"copy": number, "real": real})
    (written,) = db.execute("SELECT count(*) FROM request").fetchone()
    db.close()
    return written


class Listing(Durable):
    """A store with many decided requests and a few that are pending."""

    def fill(self, decided: int, pending: int) -> dict[str, int]:
        """Leave so many requests decided (half rejected, half run) and then so many pending; return the counts.

        The first 500 are asked and decided as always, the others are copies of them with ids and runs of their own.
        """
        real = min(decided, 500)
        for amount in range(0, real, 2):
            self.round_trip(amount)
            self.review.reject(self.ask(amount + 1), "too much", by=self.ada)
        written = _copy_requests(self.folder / "sayso.db", decided // real - 1)
        for amount in range(decided, decided + pending):
            self.ask(amount)
        return {"decided": written, "pending": len(self.review.list(state="pending", limit=1000).requests)}

    def fill_day(self, count: int) -> None:
        """Leave so many requests pending as a day brings them: calls, some of them risky, and questions."""
        risky = self.sayso.gate(wait="raise", risk="high")(make_effect(self.effects))
        for number in range(count):
            match number % 10:
                case 3:
                    with self.sayso.run(f"order-{number}"), suppress(self.sayso.ConfirmationRequired):
                        self.sayso.ask(f"Ship order {number} today?", wait="raise", type=bool)
                case 7:
                    with self.sayso.run(f"order-{number}"), suppress(self.sayso.ConfirmationRequired):
                        risky(number, "alice", MEMO)
                case _:
                    self.ask(number)

    def ask_at(self, amount: int) -> int:
        """Ask, and return the nanosecond before."""
        before = time.perf_counter_ns()
        self.ask(amount)
        return before

    def ask_steadily(self, rate: int, span: int, left_open: int | None = None) -> dict[str, int]:
        """Ask so many times a second, for so many seconds, and say no to the oldest while more than that are open.

        Returns how many times it asked, how many it left open, and the nanosecond after the last.
        """
        begun, asked = time.perf_counter(), deque[str]()
        for number in range(rate * span):
            time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            asked.append(self.ask(time.monotonic_ns()))
            if left_open is not None and len(asked) > left_open:
                self.review.reject(asked.popleft(), "too much", by=self.ada)
        return {"count": rate * span, "open": len(asked), "ended": time.perf_counter_ns()}

    def ask_and_reject(self, count: int) -> None:
        """Ask so many times, and say no each time: two events each, and nothing stays open."""
        for _ in range(count):
            self.review.reject(self.ask(time.monotonic_ns()), "too much", by=self.ada)

    def time_pages(self, count: int, **options: Any) -> list[int]:
        """Return the nanoseconds of `count` first pages."""
        taken: list[int] = []
        for _ in range(count):
            before = time.perf_counter_ns()
            self.review.list(**options)
            taken.append(time.perf_counter_ns() - before)
        return taken
