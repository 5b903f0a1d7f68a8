"""Timbal: a gated tool ends its run as cancelled, and calling it again with the run's id and the decision goes on.

Its durable providers keep whole traces; they promise one start over many workers, which its memory does not.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from ..running import Calling, Running

__all__ = ["TimbalCalling", "TimbalRunning"]

RUNS = "INSERT INTO runs SELECT run_id || '-' || :n, parent_id || '-' || :n, spans, stored_at FROM runs WHERE {real}"
CLAIMS = (
    "INSERT INTO approval_claims SELECT parent_id || '-' || :n, approval_id, claimed_by_run_id || '-' || :n, claimed_at"
    " FROM approval_claims WHERE {real}"
)


class TimbalRunning(Running):
    """Its SQLite file has SQLite's own sync setting, which is FULL; its JSON lines are not synced."""

    package = "timbal"

    def fill(self, runs: int) -> None:
        """Leave so many ended runs: 50 are made, the others are copies with ids of their own.

        Each run rewrites its file of JSON lines, so that to make 10,000 would take hours.
        """
        real = min(runs, 50)
        super().fill(real)
        copies = runs // real - 1
        if self.variant == "sqlite":
            _copy_rows(self.path, copies)
        else:
            _copy_lines(self.path, copies)


def _copy_rows(path: Path, copies: int) -> None:
    db = sqlite3.connect(path)
    with db:
        (runs,) = db.execute("SELECT max(rowid) FROM runs").fetchone()
        (claims,) = db.execute("SELECT max(rowid) FROM approval_claims").fetchone()
        for number in range(copies):
            db.execute(RUNS.format(real=f"rowid <= {runs}"), {"n": number})
            db.execute(CLAIMS.format(real=f"rowid <= {claims}"), {"n": number})
    db.close()


def _copy_lines(path: Path, copies: int) -> None:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open("a", encoding="utf-8") as file:
        for number in range(copies):
            for record in lines:
                parent = record["parent_id"]
                ids = {"run_id": f"{record['run_id']}-{number}", "parent_id": parent and f"{parent}-{number}"}
                file.write(json.dumps({**record, **ids}) + "\n")
    kept = path.with_name(f"{path.name}.approval_claims.json")
    claims = json.loads(kept.read_text(encoding="utf-8"))
    for number in range(copies):
        claims |= {f"{key}-{number}": claim for key, claim in list(claims.items())[: len(lines) // 2]}
    kept.write_text(json.dumps(claims, sort_keys=True), encoding="utf-8")


class TimbalCalling(Calling):
    """It keeps the trace of every call in memory."""

    package = "timbal"
