"""Check the chains of a journal with nothing but the standard library, as somebody who does not trust sayso would.

    python examples/check_journal.py requests.db

It takes a SQLite store, and prints the runs whose rows do not follow from each other.
"""

import hashlib
import json
import sqlite3
import sys


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


run, seq, link, broken, rows = None, 0, "", set(), 0
for row in sqlite3.connect(sys.argv[1]).execute("SELECT * FROM journal ORDER BY run_id, seq"):
    if row[0] != run:
        run, seq, link = row[0], 0, digest(f"sayso/journal/1:{row[0]}")
    seq, rows = seq + 1, rows + 1
    content = json.dumps([link, *row[:8]], separators=(",", ":"))
    if row[1] != seq or digest(content) != row[8]:
        broken.add(run)
    seq, link = row[1], row[8]
print(f"{rows} rows, broken runs: {sorted(broken)}")
