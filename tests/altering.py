"""A request's row, changed by somebody with the file who also writes the digest that the journal keeps of it.

No store takes such a row for altered at first sight; what the program itself looks at before it runs must.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from sayso.stores.row import Row, stands_digest
from sayso.stores.seal import Seal

__all__ = ["rewrite"]

_SAY = (
    "UPDATE journal SET detail = json_set(detail, '$.stands', :stands) WHERE run_id = :run_id AND seq ="
    " (SELECT max(seq) FROM journal WHERE run_id = :run_id AND request_id = :id)"
)


def rewrite(address: str, request_id: str, **columns: Any) -> None:
    """Write columns of a request in the SQLite file at this address, and how it stands then."""
    with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DROP TRIGGER IF EXISTS journal_is_not_updated")
        for column, value in columns.items():
            connection.execute(f"UPDATE request SET {column} = ? WHERE id = ?", (value, request_id))  # noqa: S608
        sql = f"SELECT {', '.join(Row._fields)} FROM request WHERE id = ?"  # noqa: S608  our own names
        row = Row(*connection.execute(sql, (request_id,)).fetchone())
        said = {"stands": stands_digest(row, Seal()), "run_id": row.run_id, "id": request_id}
        connection.execute(_SAY, said)
