"""Requests, runs and rows of the journal as JSON between a sayso server and the programs that use it as their store.

A request travels as the columns of its row (`sayso.stores.row`), unsealed, with the text of its shape beside them, so
that there is one codec and not two; the connection keeps it from others. What a program sends when it asks is less: no
state, no decision and no instant, which are the server's to say. The invariant: what is read here was written here, or
is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sayso import errors
from sayso.model.canonical.compact import dumps
from sayso.model.entry import Entry
from sayso.model.request import Request
from sayso.model.run import RunRecord, RunState, Saved, Step
from sayso.stores.memory_runs import run_of, run_values
from sayso.stores.row import ASKED_COLUMNS, Row, asked_values, progress_values, request_of
from sayso.stores.run_verbs import Kept
from sayso.stores.seal import Seal

__all__ = [
    "asked_wire", "entry_of", "kept_of", "kept_wire", "mark_of", "readable", "request_from", "request_wire",
    "run_from", "saved_of", "saved_wire",
]  # fmt: skip

_OPEN = Seal()
_MICROSECOND = timedelta(microseconds=1)
_SERVERS = ("search", "created_at")  # columns that are not the program's to say


def asked_wire(request: Request) -> dict[str, Any]:
    """Return what a program sends when it asks."""
    columns = dict(zip(ASKED_COLUMNS, asked_values(request, _OPEN), strict=True))
    lasts = (request.expires_at - request.created_at) // _MICROSECOND
    said = {name: value for name, value in columns.items() if name not in _SERVERS}
    return {**said, "shape": request.subject.shape, "lasts": lasts}


def request_wire(request: Request) -> dict[str, Any]:
    """Return a request as it stands: its row, its shape, and a mark that differs after each change of it."""
    columns = asked_values(request, _OPEN) + progress_values(request, _OPEN, "")
    return {
        "row": dict(zip(Row._fields, columns, strict=True)),
        "shape": request.subject.shape,
        "mark": mark_of(request),
    }


def request_from(wire: Mapping[str, Any]) -> Request:
    """Return the request that `request_wire` wrote; raises `StoreCorruptError` where it did not."""
    with readable():
        row, shape = Row(**wire["row"]), str(wire["shape"])
    return request_of(row, _OPEN, lambda _: shape)


def mark_of(request: Request) -> str:
    """Return something that differs after each change of a request."""
    return hashlib.sha256(dumps(progress_values(request, _OPEN, "")).encode()).hexdigest()[:32]


def saved_wire(saved: Saved | None) -> dict[str, Any] | None:
    """Return what is to be saved of a run."""
    if saved is None:
        return None
    return {"run": run_values(saved.run), "steps": [list(step) for step in saved.steps], "left": saved.left}


def saved_of(wire: Mapping[str, Any]) -> Saved:
    """Return what `saved_wire` wrote; raises `LookupError`, `TypeError` or `ValueError` where it did not."""
    left = wire["left"]
    return Saved(run_of(wire["run"]), [Step(*step) for step in wire["steps"]], None if left is None else RunState(left))


def kept_wire(kept: Kept) -> dict[str, Any]:
    """Return a run and its steps."""
    return {"run": run_values(kept.run), "steps": [list(step) for step in kept.steps]}


def kept_of(wire: Mapping[str, Any]) -> Kept:
    """Return what `kept_wire` wrote; raises `StoreCorruptError` where it did not."""
    with readable():
        return Kept(run_of(wire["run"]), tuple(Step(*step) for step in wire["steps"]))


def run_from(wire: Mapping[str, Any]) -> RunRecord:
    """Return a run without its steps; raises `StoreCorruptError` where it is none."""
    with readable():
        return run_of(wire)


def entry_of(wire: Any) -> Entry:
    """Return a row of the journal; raises `StoreCorruptError` where it is none."""
    with readable():
        return Entry(*wire)


@contextmanager
def readable() -> Generator[None]:
    """Read a server's answer inside the block; raises `StoreCorruptError` where it is not as a server answers."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> errors.StoreCorruptError:
    return errors.StoreCorruptError(
        f"this address does not answer as a sayso server ({type(error).__name__} in reading its answer); nothing runs"
        " by it: look at SAYSO_STORE, and whether both sides are of the same version"
    )
