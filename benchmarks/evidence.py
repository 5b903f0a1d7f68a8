"""What it costs to verify, checkpoint, anchor and export a long journal, and to write and verify one receipt."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sayso import audit, clock
from sayso.audit.checkpoint import anchor_text, checkpoint, history, read_anchor
from sayso.audit.export import FORMATS, exported, receipt_text, verify_receipt
from sayso.audit.signing import make_key, signer_at
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision
from sayso.model.reviewer import LOCAL, Identity
from sayso.stores.base import Filter
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call

from .contest import Plan
from .statistic import median
from .table import Row, seconds

__all__ = ["evidence"]

ROWS_OF_ONE = 4  # asked, approved, started, done
ADA = Identity(LOCAL, "ada")


def evidence(plan: Plan) -> list[Row]:
    """Time each on one store of many rows in many chains."""
    rows, chains = plan.pick(100_000, 4_000), plan.pick(10_000, 400)
    store = SqliteStore(plan.new_folder("evidence").with_suffix(".db"))
    _fill(store, rows, chains)
    signer = _signer(plan.folder)
    name = f"evidence, {rows:,} rows in {chains:,} chains"
    repeats = plan.pick(5, 3)
    store.note("run-0", "denied", ADA, {"rule": "so that there is something new"})
    found = [_timed(name, "a first checkpoint, signed", 1, lambda: checkpoint(store, signer))]
    found.append(_timed(name, "verify (aim: 100,000 rows < 5 s)", repeats, lambda: _verify(store, rows)))
    anchor = anchor_text(store, signer).encode()
    known = [*read_anchor(anchor).known, *history(store).known]
    found.append(_timed(name, "verify, held to an anchor", repeats, lambda: audit.verify(store, known=known)))
    found.append(_timed(name, f"read an anchor of {len(anchor):,} bytes", repeats, lambda: read_anchor(anchor)))
    found += [_timed(name, f"export as {form}", repeats, partial(_export, store, form)) for form in FORMATS]
    request = store.list(Filter(), limit=1, newest=True).requests[0]
    receipt = receipt_text(store, request.id, signer).encode()
    found.append(_timed(name, "a receipt, signed", repeats, lambda: receipt_text(store, request.id, signer)))
    found.append(_timed(name, "verify a receipt", repeats, lambda: verify_receipt(receipt)))
    store.close()
    return found


def _signer(folder: Path) -> Any:
    make_key(folder / "evidence.key")
    return signer_at(folder / "evidence.key")


def _fill(store: SqliteStore, rows: int, chains: int) -> None:
    store._writer().execute("PRAGMA synchronous = OFF")  # only what stands there is measured
    for n in range(rows // ROWS_OF_ONE):
        request = store.ask(sample_call(f"run-{n % chains}", {"amount": n}))
        store.decide(request.id, Decision("approve", ADA, clock.now(), "cli", "ok", ""), roles=(), seen=None)
        store.start(request.id, "t")
        store.finish(request.id, "t", Outcome("done", result='{"result":"paid"}'))


def _verify(store: SqliteStore, rows: int) -> None:
    found = audit.verify(store)
    if found.broken or found.rows < rows:
        raise RuntimeError(f"the journal does not verify: {found.broken[:1]}")


def _export(store: SqliteStore, form: Any) -> None:
    for _ in exported(store, form):
        pass


def _timed(name: str, who: str, repeats: int, work: Callable[[], Any]) -> Row:
    taken, busy = list[float](), list[float]()
    for _ in range(repeats):
        before, used = time.perf_counter(), time.process_time()
        work()
        taken.append(time.perf_counter() - before)
        busy.append(time.process_time() - used)
    return Row.of(name, f"sayso: {who}", "sqlite FULL", taken, note=f"{seconds(median(busy))} of CPU", cpu=median(busy))
