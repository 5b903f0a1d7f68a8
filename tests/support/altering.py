"""Alters a request's rows like somebody with write access to the file: one column or JSON field at a time.

`alterations` yields all such single changes. `rewrite` also updates the digest of the row in the journal. No store
detects such a change, so the program's own checks before it runs the call must.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from sayso.model.request import State
from sayso.stores.codec import RequestRow, Seal, row_digest

__all__ = ["Alteration", "alterations", "leaves", "replaced", "rewrite"]

_SAY = (
    """
    UPDATE journal SET detail = json_set(detail, '$.row_digest', :row_digest)
    WHERE run_id = :run_id AND seq = (SELECT max(seq) FROM journal WHERE run_id = :run_id AND request_id = :id)
    """,
    "UPDATE request SET detail = json_set(detail, '$.row_digest', :row_digest) WHERE run_id = :run_id AND id = :id",
)
_ROWS = {
    "request": ("SELECT * FROM request WHERE id = ?", "id"),
    "journal": ("SELECT * FROM journal WHERE request_id = ?", "link"),
    "schema_text": ("SELECT * FROM schema_text WHERE ? IS NOT NULL", "id"),  # the file has only one request
}
_JSON = {"asked", "progress", "form", "masked", "detail", "text"}
# Values that an attacker could write to optional fields of a request.
_ADDED: dict[str, dict[str, Any]] = {
    "asked": {"idempotent": True, "retries": 9, "quorum": [1], "place": "elsewhere", "also_for": [["local", "eve"]]},
    "progress": {"approval_ends": 9_999_999_999_999_999, "claimed": ["local", "eve", 1], "escalated": 1},
}


class Alteration(NamedTuple):
    """One change of one value in a store's file.

    Attributes:
        table: The table.
        column: The column.
        what: The field inside the column's JSON, if any, and its new value.
        sql: The statement that makes the change.
        values: The parameters of the statement.
    """

    table: str
    column: str
    what: str
    sql: str
    values: tuple[Any, ...]


def rewrite(address: str, request_id: str, **columns: Any) -> None:
    """Write columns of a request in the SQLite file at this address, and update the digest of its state."""
    with closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DROP TRIGGER IF EXISTS journal_is_not_updated")
        for column, value in columns.items():
            if column == "edited":
                sql = "UPDATE request SET progress = json_set(progress, '$.edited', json(?)) WHERE id = ?"
                connection.execute(sql, (json.dumps(value), request_id))
                continue
            connection.execute(f"UPDATE request SET {column} = ? WHERE id = ?", (value, request_id))  # noqa: S608
        sql = f"SELECT {', '.join(RequestRow._fields)} FROM request WHERE id = ?"  # noqa: S608  our own names
        row = RequestRow(*connection.execute(sql, (request_id,)).fetchone())
        said = {"row_digest": row_digest(row, Seal()), "run_id": row.run_id, "id": request_id}
        for statement in _SAY:
            connection.execute(statement, said)


def alterations(path: Path, request_id: str) -> Iterator[Alteration]:
    """Yield each change of a column, or of a field of its JSON, in the rows that belong to a request."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        for table, (select, key) in _ROWS.items():
            for row in connection.execute(select, (request_id,)).fetchall():
                for column, value in dict(row).items():
                    sql = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"  # noqa: S608  our own names
                    for what, new in _changes(column, value):
                        yield Alteration(table, column, what, sql, (new, row[key]))


def _changes(column: str, value: Any) -> Iterator[tuple[str, Any]]:
    for new in _others(column, value):
        yield f"= {new!r:.40}", new
    if column in _JSON and isinstance(value, str) and not value.startswith("sealed:"):
        for name, tree in _fields(json.loads(value), _ADDED.get(column, {})):
            yield name, json.dumps(tree, separators=(",", ":"))


def _others(column: str, value: Any) -> list[Any]:
    if column == "state":
        return [state.value for state in State if state.value != value]
    if column == "event":
        return [event for event in ("approved", "released", "teleported") if event != value]
    if value is None:
        return ["{}", 1]
    return [value + 1, 9_999_999_999_999_999, None] if isinstance(value, int) else ["other", f"{value}x", None]


def _fields(tree: Any, added: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield copies of the tree in which one field is altered, removed or added."""
    for path, leaf in leaves(tree):
        name = ".".join(map(str, path))
        for new in ("other", 7, True):
            if new != leaf:
                yield f".{name} = {new!r}", replaced(tree, path, new)
        yield f".{name} removed", replaced(tree, path, ...)
    for name, value in added.items():
        if tree.get(name) != value:
            yield f".{name} = {value!r} added", {**tree, name: value}


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield (*path, name), value
        yield from leaves(value, (*path, name))


def replaced(tree: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy: Any = json.loads(json.dumps(tree))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return copy
