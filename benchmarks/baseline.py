"""The approval table that a careful programmer writes by hand on sqlite3, and nothing more.

Four statements, each its own commit: ask, decide, start, finish.
It keeps no journal, checks no reviewer, knows no quorum and no redaction: it is the floor under every durable row.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from pathlib import Path

from .contender import MEMO, Contender, make_effect

__all__ = ["Baseline"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS request (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, digest TEXT NOT NULL,
    state TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL, decided_at REAL, decided_by TEXT,
    edited TEXT, started_by TEXT, started_at REAL, lease_until REAL, outcome TEXT, done_at REAL
);
CREATE INDEX IF NOT EXISTS request_by_state ON request (state, created_at);
"""
ASK = """
INSERT INTO request (id, run_id, tool, arguments, digest, state, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, 'pending', ?, ?) ON CONFLICT (id) DO NOTHING
"""
DECIDE = """
UPDATE request SET state = 'approved', decided_at = ?, decided_by = ?
WHERE id = ? AND state = 'pending' AND (expires_at IS NULL OR expires_at > ?)
"""
START = """
UPDATE request SET state = 'running', started_by = ?, started_at = ?, lease_until = ?
WHERE id = ? AND state = 'approved' AND started_by IS NULL RETURNING arguments
"""
FINISH = """
UPDATE request SET state = 'done', outcome = ?, done_at = ? WHERE id = ? AND started_by = ? AND done_at IS NULL
"""


class Baseline(Contender):
    """The hand-written table; `variant` is the synchronous setting, FULL or NORMAL."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.db = sqlite3.connect(folder / "baseline.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute(f"PRAGMA synchronous={variant}")
        self.db.execute("PRAGMA busy_timeout=5000")
        self.db.executescript(SCHEMA)
        self.pay = make_effect(self.effects)
        self.worker = secrets.token_hex(8)

    def ask(self, amount: int) -> str:
        arguments = json.dumps({"amount": amount, "to": "alice", "memo": MEMO}, sort_keys=True)
        digest = hashlib.sha256(f"order-{amount}\0pay\0{arguments}".encode()).hexdigest()
        request_id, now = secrets.token_hex(16), time.time()
        self.db.execute(ASK, (request_id, f"order-{amount}", "pay", arguments, digest, now, now + 86400))
        return request_id

    def decide(self, ticket: str) -> None:
        now = time.time()
        if self.db.execute(DECIDE, (now, "ada", ticket, now)).rowcount != 1:
            raise RuntimeError("somebody else decided")

    def run(self, amount: int, ticket: str) -> None:
        now = time.time()
        started = self.db.execute(START, (self.worker, now, now + 300, ticket)).fetchall()
        if not started:
            raise RuntimeError("somebody else started")
        value = self.pay(**json.loads(started[0][0]))
        self.db.execute(FINISH, (json.dumps(value), time.time(), ticket, self.worker))

    def close(self) -> None:
        self.db.close()
