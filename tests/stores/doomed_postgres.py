"""A program on Postgres that is killed at one place, started by `test_postgres_deaths`: URL EFFECTS POINT.

It asks, a person (played here) approves, the call adds a line to a file, and its outcome is recorded with its result.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sayso
from sayso import errors
from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres_connection import Connection, Rows, translated

VERBS = ("ask", "decide", "start", "call", "finish")
POINTS = [f"{when} {verb}" for verb in VERBS for when in ("before", "after")] + ["within finish", "sent start"]
_deadly: list[str] = []


def reach(place: str) -> None:
    """Die here, if this is the place."""
    if place in _deadly:
        os.kill(os.getpid(), signal.SIGKILL)


def wrap(verb: str, kind: type[Any] = PostgresStore) -> None:
    """Have a verb of a store say where it is."""
    original = getattr(kind, verb)

    def doing(self: Any, *args: Any, **options: Any) -> Any:
        reach(f"before {verb}")
        if f"within {verb}" in _deadly or f"sent {verb}" in _deadly:
            wrap_statements(verb)
        done = original(self, *args, **options)
        reach(f"after {verb}")
        return done

    setattr(kind, verb, doing)


def wrap_statements(verb: str) -> None:
    """Have the connection say which statement it is at."""
    run, command = Connection.run, Connection.command

    def watched(self: Connection, sql: str, values: Sequence[str | int | None] = ()) -> Rows:
        if f"sent {verb}" in _deadly and "INSERT INTO journal" in sql:
            # The server has it, and nobody hears what it says.
            self.pgconn.send_query_params(
                translated(sql), [None if one is None else str(one).encode() for one in values]
            )
            self.pgconn.flush()
            reach(f"sent {verb}")
        return run(self, sql, values)

    def commanded(self: Connection, text: bytes) -> None:
        if text == b"COMMIT":
            reach(f"within {verb}")
        command(self, text)

    Connection.run, Connection.command = watched, commanded  # type: ignore[method-assign]


def main(url: str, effects: Path, point: str) -> None:
    _deadly.append(point)
    store = PostgresStore(url)
    for verb in VERBS:
        if verb != "call":
            wrap(verb)

    @sayso.gate(wait="raise", store=store, key="{order}")
    def pay(order: str) -> str:
        reach("before call")
        with effects.open("a", encoding="ascii") as file:
            file.write(f"{order}\n")
        reach("after call")
        return f"paid {order}"

    with sayso.run("order-1"):
        try:
            print(pay("o1"))
        except sayso.ConfirmationRequired as held:
            with suppress(errors.AlreadyDecidedError):
                sayso.Review(store=store, reviewer="ada").approve(held.confirmation_id)
            print(pay("o1"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
