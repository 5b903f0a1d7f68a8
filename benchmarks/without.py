"""The pieces of sayso that can be switched off one at a time, to see what each of them costs.

A piece is found by the name of its function or method, wherever in the package that stands, and replaced in this
process only. Nothing here is for a program that is to be safe. A piece that is found nowhere any more says so.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .ours import Durable, InMemory

__all__ = ["EVERYTHING", "PIECES", "Without", "WithoutInMemory"]


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "sayso"]


def _replace(name: str, new: Callable[..., Any], *, first: str = "") -> None:
    """Put `new` in the place of a function of the package, in every module that has it.

    `first` is its first parameter, where several functions have this name.
    """
    found = 0
    for module in _modules():
        old = vars(module).get(name)
        if inspect.isroutine(old) or hasattr(old, "__wrapped__"):
            if first and next(iter(inspect.signature(old).parameters), "") != first:
                continue
            setattr(module, name, new)
            found += 1
    if not found:
        raise LookupError(f"there is no function {name} any more; name its successor in benchmarks/without.py")


def _replace_method(name: str, new: Callable[..., Any], *owners: str) -> None:
    """Put `new` in the place of a method of the classes with these names."""
    found = 0
    for module in _modules():
        for owner in owners:
            cls = vars(module).get(owner)
            if isinstance(cls, type) and name in vars(cls):
                setattr(cls, name, new)
                found += 1
    if not found:
        raise LookupError(f"no {' or '.join(owners)} has a method {name}; name its successor in benchmarks/without.py")


DIGEST = "0" * 64


def _fingerprint() -> None:
    _replace("call_digest", lambda *_: DIGEST)
    _replace("fingerprint", lambda run_id, *_: str(run_id))


def _row_digests() -> None:
    _replace("digest_of_asked", lambda *_: DIGEST)
    _replace("_digest_of_row", lambda *_: DIGEST)


def _chain() -> None:
    entry: Any = importlib.import_module("sayso.model.journal").Entry

    def chained(before: str, run_id: str, seq: int, *rest: Any) -> Any:
        return entry(run_id, seq, *rest, f"{run_id}/{seq}/{rest[1]}")  # unique, as the compare-and-set needs

    _replace("chained", chained)
    _replace("first_link", str)


def _journal_rows() -> None:
    for connection in _connections():
        for trigger in ("request_is_journalled", "change_is_journalled"):
            connection.execute(f"DROP TRIGGER IF EXISTS temp.{trigger}")
    transaction: Any = importlib.import_module("sayso.stores.sqlite_transaction")
    newest = f" AND ({transaction._ENTRY}) IS"
    transaction._UNCHANGED = transaction._UNCHANGED.partition(newest)[0]  # no row is there to be looked at
    transaction._sql.cache_clear()
    transaction.SqliteTransaction._is_intact = lambda *_: True  # nor compared with, where a request is read again


def _redaction() -> None:
    _replace_method("mask", lambda _, tree: tree, "Redaction")
    _replace("secrets_of", lambda *_: frozenset[str]())


def _comparison() -> None:
    canonical: Any = importlib.import_module("sayso.model.canonical")
    _replace(
        "_approved_arguments", lambda gate, request, *_: canonical.decode(request.effective.form, {}), first="gate"
    )
    _replace_method("verify", lambda *_: True, "SqliteTransaction", "_Memory")


def _schema() -> None:
    _replace_method("misfits", lambda *_: [], "Schema")


def _channels() -> None:
    _replace_method("record_keys", lambda *_: (), "SqlTransaction", "SingleStatement", "TableTransaction")


def _telemetry() -> None:
    telemetry: Any = importlib.import_module("sayso.telemetry")
    telemetry.asked = lambda request: request
    telemetry.decided = lambda request, *_: request
    telemetry.executing = lambda _, effect, *__: effect


def _sync() -> None:
    for connection in _connections():
        connection.execute("PRAGMA synchronous = NORMAL")


def _connections() -> list[sqlite3.Connection]:
    connections = [found for found in gc.get_objects() if isinstance(found, sqlite3.Connection)]
    if not connections:
        raise LookupError("no connection of the store was found")
    return connections


class Piece(NamedTuple):
    """A piece, by the name under which the table has it: how it is switched off, on disk and in memory."""

    durable: tuple[Callable[[], None], ...]
    memory: tuple[Callable[[], None], ...]
    how: str


PIECES = {
    "digest of the call, fingerprint": Piece((_fingerprint,), (_fingerprint,), "constants; the canonical form stays"),
    "digests of each row, for the comparison": Piece((_row_digests,), (), "constants; computed on reading in memory"),
    "hash chain of the journal": Piece((_chain,), (), "links are numbers; computed on reading in memory"),
    "journal rows": Piece(
        (_journal_rows,), (), "not written; on disk they are still made, in memory one is an item of a list"
    ),
    "redaction": Piece((_redaction,), (_redaction,), "nothing is looked for, nothing masked"),
    "comparison at the start": Piece((_comparison,), (_comparison,), "the form runs as it is stored"),
    "schema checks": Piece((_schema,), (_schema,), "arguments are not held against the types"),
    "what is owed to channels": Piece((_channels,), (_channels,), "no look for a channel that is to be told"),
    "spans and counters, nobody listens": Piece((_telemetry,), (_telemetry,), "not called"),
}
EVERYTHING = "all of these"
PIECES[EVERYTHING] = Piece(
    tuple(part for piece in PIECES.values() for part in piece.durable),
    tuple(part for piece in PIECES.values() for part in piece.memory),
    "at once, which is less than their sum where two share work",
)


class Without(Durable):
    """sayso on a file without one piece; `variant` is the sync setting and the piece, none where it is empty."""

    def __init__(self, folder: Path, variant: str) -> None:
        sync, _, piece = variant.rstrip("/").partition("/")
        super().__init__(folder, sync)
        unsynced = () if sync == "FULL" else (_sync,)
        _switch_off(self, (*unsynced, *(PIECES[piece].durable if piece else ())))


class WithoutInMemory(InMemory):
    """The same on the memory store."""

    def __init__(self, folder: Path, variant: str) -> None:
        store, _, piece = variant.rstrip("/").partition("/")
        super().__init__(folder, store)
        _switch_off(self, PIECES[piece].memory if piece else ())


def _switch_off(ours: Durable, switches: tuple[Callable[[], None], ...]) -> None:
    # What is used only later is loaded by one call that is whole, and so is the connection opened.
    ours.round_trip(-1)
    ours.effects.clear()
    for switch_off in switches:
        switch_off()
